"""Sandboxes from images: what is inside, who may use what, what is fetched again, and what goes when."""
# slow: thirty sandboxes and as many daemons as tests
# share 6: 10 s of processor time

import hashlib
import shutil
import subprocess
import tarfile
import unittest

from imagestore import BERTH, Image, ImagesTest, entry, ident, layer, os, programs, wait_until

ROOT = os.geteuid() == 0


class UseTest(ImagesTest):
    def test_what_the_image_decides(self):
        reference = self.put("tools", layer({"etc/passwd": b"root:x:0:0:r:/root:/bin/sh\nweb:x:33:34:w:/srv/web:/bin/sh\n",
                                             "srv/web/file": b"x"}),
                             User="web", WorkingDir="/srv/app", Env=["A=image", "B=image", "PATH=/bin"])
        env = self.sandbox_environment(image=reference, env={"B": "environment"})
        lease = self.acquire(env)
        out = self.inside(lease, "id -u; id -g; pwd; echo $A $B $C $HOME $USER; touch /workspace/x /etc/x; ls /home", env={"C": "request"})
        self.assertEqual(out.splitlines(), ["33", "34", "/srv/app", "image environment request /srv/web web"])
        sandbox = self.metadata(lease)["sandbox"]
        self.assertEqual(sandbox["imageOwners"], "kept" if ROOT else "flat")
        self.assertEqual(self.metadata(lease)["imageDigest"], self.image(reference)["digest"])
        # What the environment says wins; without a user in the image it is root.
        lease = self.acquire(self.sandbox_environment("agent", image=reference, user="agent"))
        self.assertEqual(self.inside(lease, "id -u; echo $HOME; pwd", cwd="/etc"), "1000\n/home/agent\n/etc\n")
        lease = self.acquire(self.sandbox_environment("root", image=self.put("plain")))
        self.assertEqual(self.inside(lease, "id -u; pwd; touch /etc/x && echo written"), "0\n/workspace\nwritten\n")
        answer = self.req("DELETE", f"{self.images()}/{self.image(reference)['id']}")
        self.assert_error(answer, 409, contains="is in use by 2 sandboxes or snapshots")

    def test_pull_says_when(self):
        reference = self.put()
        never = self.sandbox_environment("never", image=reference, pull="never")
        answer = self.req("POST", f"/api/environments/{ident(never)}/leases", {})
        self.assert_error(answer, 422, contains=f"pull is \"never\". Get it with: berth image pull {reference}")
        missing = self.sandbox_environment("missing", image=reference)
        self.release(self.acquire(missing))
        self.release(self.acquire(never))
        seen = len(self.registry.seen)
        self.release(self.acquire(missing))
        self.assertEqual(len(self.registry.seen), seen)
        # Another image under the same name: only "always" asks.
        self.put("tools", layer({"etc/new": b"new\n"}))
        self.assertIn("No such file", self.inside(self.acquire(missing), "cat /etc/new 2>&1"))
        always = self.sandbox_environment("always", image=reference, pull="always")
        self.assertEqual(self.inside(self.acquire(always), "cat /etc/new"), "new\n")
        names = [row["reference"] for row in self.ok("GET", self.images())]
        self.assertEqual((len(names), names.count(reference)), (2, 1))

    def test_a_run_says_that_it_pulls(self):
        reference = self.put(Env=["A=image"])
        env = self.sandbox_environment(image=reference)
        agent = self.agent(self.acme, adapterType="process", defaultEnvironmentId=ident(env),
                           adapterConfig={"command": "/bin/sh", "args": ["-c", "echo $A"]})
        run = ident(self.ok("POST", f"/api/agents/{ident(agent)}/wakeup", {"source": "on_demand"}, status=202))

        def ended():
            row = self.ok("GET", f"/api/heartbeat-runs/{run}")
            return row if row["finishedAt"] else None
        self.assertEqual(wait_until(ended, "the run ends", 30)["status"], "succeeded")
        said = [e["message"] for e in self.ok("GET", f"/api/heartbeat-runs/{run}/events") if e["eventType"] == "image"]
        self.assertEqual(said, [f"pulling the image {reference}"])

    def test_a_registry_that_refuses(self):
        env = self.sandbox_environment(image=f"{self.registry.host}/nothing")
        self.assert_error(self.req("POST", f"/api/environments/{ident(env)}/leases", {}), 422, contains="nothing")
        rows = self.ok("GET", self.images())
        self.assertEqual([row["state"] for row in rows], ["failed"])
        for reference in ("UPPER", "a b", ""):
            answer = self.req("POST", self.images(), {"reference": reference})
            self.assertIn(answer.status, (400, 422), answer.body)
        self.assert_error(self.req("POST", self.images(), {"reference": "127.0.0.1:1/x"}), 202)
        self.no_image_left()

    @unittest.skipUnless(ROOT, "storage on disk needs root")
    def test_a_snapshot_stands_on_its_image(self):
        reference = self.put()
        self.held = self.acquire(self.sandbox_environment(image=reference, storage="disk"))
        self.sh("echo kept > /etc/kept")
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/snapshot", {"name": "s"}, status=201)
        self.release(self.held)
        for config in ({}, {"image": reference}):
            lease = self.acquire(self.sandbox_environment(f"from {len(config)}", snapshot="s", **config))
            self.assertEqual(self.inside(lease, "cat /etc/kept; id -u"), "kept\n0\n")
            self.release(lease)
        self.assert_error(self.req("DELETE", f"{self.images()}/{self.image(reference)['id']}"), 409)
        other = self.sandbox_environment("other", snapshot="s", image=self.put("other", layer({"x": b"y"})))
        self.assert_error(self.req("POST", f"/api/environments/{ident(other)}/leases", {}), 422, contains="another image")
        self.ok("DELETE", f"/api/companies/{ident(self.acme)}/environment-snapshots/s")
        self.no_image_left()


class UserTest(ImagesTest):
    """The daemon of an ordinary user: all files of a layer are that user's, and the sandbox is an overlay all the same."""

    as_user = True

    def test_a_sandbox(self):
        reference = self.put("tools", layer({"etc/new": b"2", "etc/secret": entry("etc/secret", mode=0o600, uid=7), ".wh.var": b"",
                                             "srv/.wh..wh..opq": b""}), Env=["A=image"])
        lease = self.acquire(self.sandbox_environment(image=reference))
        out = self.inside(lease, "id -u; echo $A; cat /etc/new /etc/secret; echo; touch /etc/x && stat -c %u /etc/x; ls -d /var 2>&1; ls /srv")
        self.assertEqual(out.splitlines()[:5], ["0", "image", "2", "0", "/var"])
        lease = self.acquire(self.sandbox_environment("agent", image=reference, user="agent"))
        self.assertIn("denied", self.inside(lease, "id -u; cat /etc/secret 2>&1"))
        self.assertEqual(self.metadata(lease)["sandbox"]["imageOwners"], "flat")
        for row in list(self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'")):
            self.release(row["id"])
        wait_until(lambda: not self.places(), "every place is gone")
        self.no_image_left()


class LookTest(ImagesTest):
    """Entry by entry as an unpacker that is not ours sees it."""

    @unittest.skipUnless(shutil.which("umoci"), "needs umoci")
    def test_the_same_as_umoci_unpacks(self):
        layers = [programs(), layer({
            "d": entry("d", type=tarfile.DIRTYPE, mode=0o2750, uid=3, gid=4), "d/file": entry("d/file", mode=0o640, uid=3, gid=4),
            "gone": b"x", "old/inner": b"x", "etc/app": b"1", "link": entry("link", type=tarfile.SYMTYPE, linkname="etc/app"),
            "su": entry("su", mode=0o4755), "tmp": entry("tmp", type=tarfile.DIRTYPE, mode=0o1777)}), layer({
                ".wh.gone": b"", "old/.wh..wh..opq": b"", "old/new": b"new", "etc/app": b"2",
                "twin": entry("twin", type=tarfile.LNKTYPE, linkname="etc/app")})]
        image = Image(*layers, User="3:4")
        layout = image.layout(self.temp_dir() / "layout")
        into = self.temp_dir() / "bundle"
        done = subprocess.run(["umoci", "unpack", *([] if ROOT else ["--rootless"]), "--image", f"{layout}:v1", into],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.got("mine:1", suffix="/import", path=str(layout))
        lease = self.acquire(self.sandbox_environment(image="mine:1", user="root"))
        expected = {}
        for path in sorted((into / "rootfs").rglob("*")):
            name, st = str(path.relative_to(into / "rootfs")), path.lstat()
            what = os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"
            expected[name] = f"{st.st_mode:x} {st.st_uid if ROOT else '-'} {st.st_gid if ROOT else '-'} {what}"
        own = {"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/passwd", "etc/group"}
        names = [name for name in expected if name not in own]
        script = ("for f; do test -L \"$f\" && w=$(readlink \"$f\") || { test -f \"$f\" && w=$(sha256sum < \"$f\") || w=-; };"
                  "echo \"$f|$(stat -c '%f %u %g' \"$f\") ${w%% *}\"; done")
        out = self.run_ok("/bin/sh", ["-c", script, "sh", *names], lease=lease, cwd="/", timeoutMs=120000)["stdout"]
        found = dict(line.split("|", 1) for line in out.splitlines())
        if not ROOT:  # all files are the supervisor's there, and setuid bits are dropped
            found = {name: " ".join([what.split()[0], "-", "-", *what.split()[3:]]) for name, what in found.items()}
            expected["su"] = found["su"]
        self.assertEqual(found, {name: expected[name] for name in names})
        listed = set(self.inside(lease, "ls -A / /old /etc", cwd="/").split())
        self.assertIn("new", listed)
        self.assertFalse(listed & {"gone", "inner"})


class StoreTest(ImagesTest):
    def test_rights_of_a_layer_on_the_disk(self):
        other = self.company("Other")
        reference = self.put("private")
        self.got(reference)
        self.assertEqual(len(self.blobs_asked()), 2)
        # By name alone nothing is to be had.
        env = self.environment(other, config={**BERTH, "image": reference, "pull": "never"})
        self.assert_error(self.req("POST", f"/api/environments/{ident(env)}/leases", {}), 422)
        digest = self.image(reference)["digest"]
        self.assert_error(self.req("GET", f"{self.images(other)}/{digest}"), 404)
        # The registry is asked as this company, and says no.
        def refuse(handler, number):
            handler.send(401, b"{}")
        self.registry.rules["/v2/private/manifests/latest"] = refuse
        row = self.ended_image(self.begun(reference, other), other)
        self.assertEqual(row["state"], "failed")
        del self.registry.rules["/v2/private/manifests/latest"]
        # It says yes: the layer of the same repository is shared.
        self.got(reference, other)
        self.assertEqual(len(self.layer_rows()), 1)
        # Another repository that only names the layer's digest has to bring it.
        self.got(self.put("copycat"), other)
        self.assertEqual(len(self.layer_rows()), 1, "the company had it already")
        third = self.company("Third")
        asked = len(self.blobs_asked())
        self.got(self.put("thief"), third)
        self.assertEqual((len(self.layer_rows()), len(self.blobs_asked()) - asked), (2, 2))
        # The instance's are for all, and only admins make them.
        user = self.board_user(third, role="owner")
        answer = self.req("POST", self.images(third), {"reference": reference, "instance": True}, token=user["token"])
        self.assert_error(answer, 403)
        self.got(self.put("shared"), instance=True)
        self.assertIsNone(self.image(f"{self.registry.host}/shared:latest", third)["companyId"])

    def test_a_cut_goes_on(self):
        reference = self.put()
        blob = Image(programs()).layers[0]
        data = self.registry.paths[f"/v2/tools/blobs/{blob}"]

        def cut(handler, number):
            if number == 1:
                handler.send(200, data[:100000], length=len(data))
            else:
                handler.send(403, b"{}")
        self.registry.rules[f"/v2/tools/blobs/{blob}"] = cut
        row = self.ended_image(self.begun(reference))
        self.assertEqual(row["state"], "failed", row)
        self.assertEqual([r["state"] for r in self.layer_rows()], ["cut"])
        kept = (self.daemon.data / "images" / self.layer_rows()[0]["id"] / "blob").stat().st_size
        self.assertGreater(kept, 0)
        self.registry.rules.clear()
        self.got(reference)
        self.assertEqual(self.registry.asked(f"/v2/tools/blobs/{blob}")[-1].get("Range"), f"bytes={kept}-")
        self.assertEqual(len(self.layer_rows()), 1)

    def test_prune_and_the_limit(self):
        used = self.put("used")
        lease = self.acquire(self.sandbox_environment(image=used))
        for i in range(3):
            self.got(self.put(f"more{i}", layer({"big": bytes([i]) * (3 << 20)})))
        self.assertEqual(len(self.layer_rows()), 4)
        self.daemon.stop()
        size = self.layer_rows()[0]["bytes"]
        self.daemon.env["BERTH_IMAGE_STORE_MAX_MB"] = str(sum(r["bytes"] for r in self.layer_rows()) - (2 << 20) >> 20)
        self.daemon.start()
        wait_until(lambda: len(self.layer_rows()) == 3, f"the least recently used goes: {size}")
        names = {row["reference"].split("/")[1].split(":")[0] for row in self.ok("GET", self.images())}
        self.assertEqual(names, {"used", "more1", "more2"})
        answer = self.ok("POST", f"{self.images()}/prune", {})
        self.assertEqual((answer["images"], answer["bytes"]), (2, 2 * (3 << 20)))
        self.assertEqual(len(self.layer_dirs()), 1)
        self.assertEqual(self.inside(lease, "echo here"), "here\n")
        self.release(lease)
        self.no_image_left()

    def test_where_files_may_come_from(self):
        tree, roots = self.temp_dir(), self.temp_dir()
        (tree / "file").write_text("x")
        self.daemon.stop()
        self.daemon.env["BERTH_WORKSPACE_ROOTS"] = str(roots)
        self.daemon.start()
        user = self.board_user(self.acme, role="owner")
        body = {"reference": "mine", "path": str(tree), "format": "directory"}
        self.assert_error(self.req("POST", f"{self.images()}/import", body, token=user["token"]), 422)
        body["path"] = str(self.daemon.data)
        self.assert_error(self.daemon.req_unix("POST", f"{self.images()}/import", body), 422)
        shutil.copytree(tree, roots / "tree")
        body["path"] = str(roots / "tree")
        row = self.ended_image(ident(self.ok("POST", f"{self.images()}/import", body, status=202, token=user["token"])))
        self.assertEqual(row["state"], "ready", row)

    def test_the_command_line(self):
        reference = self.put("tools", Entrypoint=["/bin/sh", "-c"], Cmd=["echo its own"], User="0")
        status, out, err = self.cli("image", "pull", reference)
        self.assertEqual((status, out.split()[0]), (0, reference), err)
        self.assertRegex(err, r"(?m)^[0-9a-f]{12} ready|^$")
        status, out, err = self.cli("run", "--image", reference)
        self.assertEqual((status, out), (0, "its own\n"), err)
        status, out, err = self.cli("run", "--image", reference, "--", "/bin/id", "-u")
        self.assertEqual((status, out), (0, "0\n"), err)
        status, out, _ = self.cli("image", "list")
        self.assertIn(reference, out)
        wait_until(lambda: self.cli("image", "remove", reference)[0] == 0, "it is not used any more")
        self.assertEqual(self.cli("image", "prune")[:2], (0, "removed 0 images, 0.0 MiB\n"))
        status, _, err = self.cli("image", "show", "nothing")
        self.assertEqual((status != 0, "'berth image list' shows" in err), (True, True), err)
        self.no_image_left()


if __name__ == "__main__":
    unittest.main()
