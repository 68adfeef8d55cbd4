"""Places that podman makes, with podman itself: leases, commands, terminals, workspaces, callbacks, reuse, and a crash at each
step."""
# slow: containers are made and removed


import json

from berthtest import wait_until
from kindpodman import PodmanTest, needs_podman
from kindtest import CallbackSuite, CrashSuite, LossSuite, PlaceSuite, ReuseSuite, processes_with


@needs_podman
class Place(PlaceSuite, PodmanTest):
    def test_an_image_that_is_not_there(self):
        env = self.make_environment("missing", image="no-such-image:1")
        answer = self.req("POST", f"/api/environments/{env['id']}/leases", {})
        self.assert_error(answer, 422, contains="podman pull IMAGE")
        self.assertEqual(self.world(), {self.place_of()})

    def test_a_directory_that_has_something_in_it(self):
        """A workspace would replace what is there: it is refused before anything is touched."""
        for path in ("/bin", "/etc", "/"):
            with self.subTest(path=path):
                env = self.make_environment(f"at {path}", workdir=path)
                answer = self.req("POST", f"/api/environments/{env['id']}/leases", {})
                self.assert_error(answer, 502, contains="has something in it that is not this place's")
        self.assertEqual(self.world(), {self.place_of()})

    def test_what_a_configuration_may_say(self):
        for wrong, text in (({"image": "--privileged"}, "image"), ({"network": "host"}, "network"), ({"memoryMb": 1}, "memoryMb"),
                            ({"privileged": True}, "privileged"), ({"image": ""}, "image is required")):
            answer = self.req("POST", f"/api/companies/{self.acme['id']}/environments",
                              {"name": "x", "driver": "sandbox", "config": {"provider": "podman", **self.config, **wrong}})
            self.assert_error(answer, 422, contains=text)

    def test_limits_arrive(self):
        env = self.make_environment("small", memoryMb=64, user="65534", workdir="/tmp/w")
        lease = self.acquire(env)["lease"]
        self.assertEqual(self.sh("id -u; pwd", lease=lease)["stdout"], "65534\n/tmp/w\n")
        self.release(lease)


@needs_podman
class Callback(CallbackSuite, PodmanTest):
    pass


@needs_podman
class Loss(LossSuite, PodmanTest):
    pass


@needs_podman
class Reuse(ReuseSuite, PodmanTest):
    pass


@needs_podman
class Crash(CrashSuite, PodmanTest):
    pass


@needs_podman
class Check(PodmanTest):
    """`berth kind`."""

    def make_lease(self):
        pass

    def check(self, change=lambda d: None):
        status, out, err = self.cli("kind", "show", "podman")
        self.assertEqual(status, 0, err)
        descriptor = json.loads(out)
        change(descriptor)
        folder = self.temp_dir()
        (folder / "checked.json").write_text(json.dumps(descriptor))
        status, out, err = self.cli("kind", "check", str(folder / "checked.json"), "-o", f"image={self.config['image']}",
                                    env={**self.podman.env, "TMPDIR": str(folder)})
        wait_until(lambda: not processes_with("serve", str(folder)), "the daemon of the check has ended", 30)
        return status, out + err

    def test_one_that_works(self):
        self.assertIn("podman", {k["name"] for k in self.ok("GET", "/api/kinds")})
        status, out = self.check()
        self.assertEqual((status, out.count("ok  "), "13 ok, 0 failed" in out), (0, 13, True), out)

    def test_ones_that_do_not(self):
        status, out = self.check(lambda d: d.update(errors=[e for e in d["errors"] if e["is"] != "exists"]))
        self.assertEqual((status, "failed  create again: " in out), (1, True), out)
        status, out = self.check(lambda d: d["commands"].pop("reach"))
        self.assertEqual((status, "failed  descriptor: " in out), (1, True), out)
