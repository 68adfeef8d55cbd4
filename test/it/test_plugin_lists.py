"""Providers that tell what they have (environmentListLeases), and the provider in C of examples/c-provider: what is left
over is found by the owner tag, and what never came back is removed without asking anybody."""

import json
import pathlib
import shutil
import subprocess
import unittest

from berthtest import BINARIES, SOURCE, BerthTest, ident, wait_until
from providertest import RUN, ProviderTest

EXAMPLE = pathlib.Path(BINARIES["normal"]).parent / "examples" / "c-provider"


class ListTest(ProviderTest):
    worker = SOURCE / "test" / "workers" / "lister.py"

    def leaks(self):
        return self.ok("GET", "/api/leaks")

    def owner(self, name):
        return json.loads((self.provider.dir / "world" / name).read_text())

    def test_owner_and_report(self):
        env = self.sandbox()
        lease = self.take(env, heartbeatRunId=RUN)
        place, = self.places()
        owner = self.owner(lease["providerLeaseId"])
        self.assertEqual(owner["place"], place["id"])
        report = self.leaks()
        self.assertEqual((report["total"], report["notListable"]), (0, []))
        # Somebody else's, another daemon's, and one of ours that no row names.
        ours = {"instance": owner["instance"], "place": "0" * 8 + "-0000-4000-8000-000000000001"}
        for name, said in {"other": None, "foreign": {**ours, "instance": ours["place"]}, "lost": ours}.items():
            (self.provider.dir / "world" / name).write_text(json.dumps(said))
        unknown = self.leaks()["unknown"]
        self.assertEqual([(u["ownerTag"], u["description"]) for u in unknown], [(ours["place"], "lost")])
        (self.provider.dir / "world" / lease["providerLeaseId"]).unlink()
        self.assertEqual([m["placeId"] for m in self.leaks()["missing"]], [place["id"]])

    def test_a_provider_that_does_not_answer_is_named(self):
        env = self.sandbox()
        self.take(env, heartbeatRunId=RUN)
        self.provider.behave(ListLeases={"error": {"code": -32002, "message": "no"}})
        report = self.leaks()
        self.assertEqual((report["missing"], report["notListable"]), ([], ["sandbox", "acme"]))

    def test_a_worker_that_dies_over_an_acquire_leaves_nothing(self):
        """Before it made the sandbox, and after: either way the place is settled by itself."""
        env = self.sandbox()
        for told in ({"exit": 3}, {"die": True}):
            with self.subTest(told):
                self.provider.behave(AcquireLease=told)
                status = self.req("POST", f"/api/environments/{ident(env)}/leases", {"heartbeatRunId": RUN}).status
                self.assertGreaterEqual(status, 400)
                self.provider.behave()
                wait_until(lambda: not self.places("state <> 'gone'"), "the place is settled")
                self.assertEqual(self.provider.world(), set())


class ExampleTest(BerthTest):
    """libberth-provider by its public header and archive alone."""

    def test_conformance(self):
        done = subprocess.run([BINARIES["normal"], "plugin", "conformance", str(EXAMPLE), "--json"],
                              capture_output=True, text=True, timeout=120)
        report = json.loads(done.stdout)
        self.assertEqual([c for c in report["checks"] if c["result"] == "failed"], [])
        self.assertEqual((done.returncode, report["skipped"]), (0, 1))  # it has no workspaces to realize

    def test_a_folder_with_a_static_manifest_installs_and_runs(self):
        folder = self.temp_dir() / "folder"
        folder.mkdir()
        for name in ("berth-plugin.json", "worker"):
            shutil.copy(EXAMPLE / name, folder)
        status, out, err = self.daemon.cli("plugin", "install", str(folder))
        self.assertEqual(status, 0, err)
        status, out, err = self.daemon.cli("env", "create", "sandbox", "box", "-o", "provider=directories")
        self.assertEqual(status, 0, err)
        status, out, err = self.daemon.cli("run", "--env", "box", "--", "sh", "-c", "echo made $((6 * 7)); exit 3")
        self.assertEqual((status, out), (3, "made 42\n"), err)
        status, out, err = self.daemon.cli("leaks")
        self.assertEqual((status, out), (0, "no leaks\n"), err)

    def test_a_static_manifest_that_is_wrong(self):
        folder = self.temp_dir() / "wrong"
        folder.mkdir()
        (folder / "berth-plugin.json").write_text("{}")
        answer = self.req("POST", "/api/plugins/install", {"packageName": str(folder), "isLocalPath": True})
        self.assertEqual(answer.status, 400)
        self.assertIn("Invalid plugin manifest: id: Required", answer.json["error"])


if __name__ == "__main__":
    unittest.main()
