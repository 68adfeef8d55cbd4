"""Workspaces of leases: staged, used, brought home. Here with the local driver, where commands work in the
directory itself, and what holds for all drivers."""

import unittest

from berthtest import BerthTest, ident
from workspacetest import contents

MISSING = "00000000-0000-4000-8000-000000000000"


class WorkspaceTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.dir = self.temp_dir()
        self.c = self.company()
        self.env = next(e for e in self.ok("GET", f"/api/companies/{self.c['id']}/environments")
                        if e["driver"] == "local")
        self.lease_id = ident(self.acquire(self.env))
        self.addCleanup(self.release, self.lease_id)

    def path(self, rest=""):
        return f"/api/environment-leases/{self.lease_id}/workspace{rest}"

    def stage(self, **body):
        body.setdefault("localPath", str(self.dir))
        return self.ok("POST", self.path("/stage"), body)

    def test_a_local_workspace_is_worked_on_in_place(self):
        staged = self.stage()
        self.assertEqual(staged["cwd"], str(self.dir))
        self.assertEqual(staged["way"], "in_place")
        done = self.ok("POST", f"/api/environment-leases/{self.lease_id}/execute",
                       {"command": "sh", "args": ["-c", "pwd; echo hi > made.txt"]})
        self.assertEqual(done["stdout"], f"{self.dir}\n")
        self.assertEqual((self.dir / "made.txt").read_text(), "hi\n")
        restored = self.ok("POST", self.path("/restore"), {})
        self.assertEqual((restored["added"], restored["changed"], restored["conflicts"]), (0, 0, []))

    def test_a_copy_of_its_own(self):
        (self.dir / "a").write_text("1\n")
        (self.dir / "gone").write_text("x\n")
        staged = self.stage(isolation="copy")
        self.assertEqual((staged["way"], staged["files"]), ("sync", 2))
        self.assertNotEqual(staged["cwd"], str(self.dir))
        run = {"command": "sh", "args": ["-c", "echo 2 > a; rm gone; echo new > new"]}
        self.ok("POST", f"/api/environment-leases/{self.lease_id}/execute", run)
        self.assertEqual(contents(self.dir), {"a": "1\n", "gone": "x\n"})
        report = self.ok("POST", self.path("/restore"), {})
        self.assertEqual((report["added"], report["changed"], report["deleted"], report["conflicts"]), (1, 1, 1, []))
        self.assertEqual(contents(self.dir), {"a": "2\n", "new": "new\n"})
        self.ok("POST", f"/api/environment-leases/{self.lease_id}/execute",
                {"command": "sh", "args": ["-c", "echo late > late"]})
        self.release(self.lease_id)
        saved = self.ok("GET", f"/api/companies/{self.c['id']}/salvages")
        self.assertEqual([(s["changes"], s["deletes"]) for s in saved], [(1, 0)])
        self.ok("POST", f"/api/salvages/{saved[0]['id']}/apply", {})
        self.assertEqual(contents(self.dir), {"a": "2\n", "new": "new\n", "late": "late\n"})

    def test_a_cwd_that_is_given_counts(self):
        self.stage()
        done = self.ok("POST", f"/api/environment-leases/{self.lease_id}/execute", {"command": "pwd", "cwd": "/"})
        self.assertEqual(done["stdout"], "/\n")

    def test_state_is_shown_on_the_workspace_and_on_the_lease(self):
        self.assert_error(self.req("GET", self.path()), 404, "The lease has no workspace")
        self.stage(exclude=["node_modules"])
        state = self.ok("GET", self.path())
        self.assertEqual(state["state"], "staged")
        self.assertEqual(state["localPath"], str(self.dir))
        self.assertEqual(state["exclude"], ["node_modules"])
        self.assertIsNone(state["progress"])
        self.assertIsNone(state["restoredAt"])
        self.assertEqual(self.lease(self.lease_id)["metadata"]["stagedWorkspace"]["state"], "staged")
        self.ok("POST", self.path("/restore"), {})
        self.assertIsNotNone(self.ok("GET", self.path())["restoredAt"])
        self.release(self.lease_id)
        self.assertEqual(self.ok("GET", self.path())["state"], "ended")
        self.assertEqual(self.lease(self.lease_id)["metadata"]["stagedWorkspace"]["state"], "ended")
        self.assertEqual(self.ok("GET", f"/api/companies/{self.c['id']}/salvages"), [])

    def test_staging_again_replaces(self):
        first = self.stage()["workspaceId"]
        other = self.temp_dir()
        second = self.stage(localPath=str(other))
        self.assertEqual(second["cwd"], str(other))
        rows = {r["id"]: r["state"] for r in self.daemon.sql("SELECT id, state FROM workspaces")}
        self.assertEqual(rows, {first: "ended", second["workspaceId"]: "staged"})

    def test_the_directory_must_lie_beneath_a_root(self):
        for bad in ("/", "/etc", str(self.dir / "missing"), "relative", str(self.dir / "../../../etc")):
            answer = self.req("POST", self.path("/stage"), {"localPath": bad})
            self.assert_error(answer, 422, contains="beneath the allowed roots")
        (self.dir / "out").symlink_to("/etc")
        self.assert_error(self.req("POST", self.path("/stage"), {"localPath": str(self.dir / "out")}), 422)
        self.stage()
        self.assert_error(self.req("POST", self.path("/restore"), {"localPath": "/etc"}), 422)
        self.assertEqual(self.ok("GET", self.path())["state"], "staged")

    def test_a_workspace_without_a_stage(self):
        self.assert_error(self.req("POST", self.path("/restore"), {}), 404, "The lease has no workspace")
        self.assert_error(self.req("GET", self.path("/diff")), 404)
        self.assert_error(self.req("POST", self.path("/discard"), {}), 404)

    def test_bodies_are_checked(self):
        for body in ({}, {"localPath": ""}, {"localPath": 5}, {"localPath": "/tmp", "exclude": "x"},
                     {"localPath": "/tmp", "other": 1}, {"localPath": "/tmp", "isolation": "magic"}):
            self.assert_error(self.req("POST", self.path("/stage"), body), 400)
        self.assert_error(self.req("POST", self.path("/restore"), {"x": 1}), 400)

    def test_an_isolation_that_is_not_there(self):
        answer = self.req("POST", self.path("/stage"), {"localPath": str(self.dir), "isolation": "overlay"})
        self.assert_error(answer, 422, contains="isolation \"overlay\"")

    def test_a_lease_that_ended(self):
        self.release(self.lease_id)
        self.assert_error(self.req("POST", self.path("/stage"), {"localPath": str(self.dir)}), 409)

    def test_discarding(self):
        self.stage()
        self.assertEqual(self.ok("POST", self.path("/discard"), {})["state"], "ended")
        self.assert_error(self.req("POST", self.path("/restore"), {}), 409)
        self.assertEqual(self.stage()["way"], "in_place")

    def test_only_who_manages_environments(self):
        agent = self.agent(self.c)
        for method, rest in (("GET", ""), ("GET", "/diff"), ("POST", "/stage"), ("POST", "/restore"),
                             ("POST", "/discard")):
            body = {"localPath": str(self.dir)} if method == "POST" else None
            self.assert_error(self.req(method, self.path(rest), body, token=agent["token"]), 403,
                              "Board access required")
        self.assert_error(self.req("GET", f"/api/companies/{self.c['id']}/salvages", token=agent["token"]), 403)

    def test_no_salvage(self):
        for method, rest in (("GET", ""), ("GET", "/diff"), ("POST", "/apply"), ("DELETE", "")):
            self.assert_error(self.req(method, f"/api/salvages/{MISSING}{rest}"), 404, "Salvage not found")

    def test_the_fake_provider_has_no_workspaces(self):
        fake = self.environment(self.c)
        lease = ident(self.acquire(fake))
        self.assert_error(self.req("POST", f"/api/environment-leases/{lease}/workspace/stage",
                                   {"localPath": str(self.dir)}), 422, contains="cannot be staged")
        self.release(lease)

    def test_it_is_recorded(self):
        self.stage()
        self.ok("POST", self.path("/restore"), {})
        self.ok("POST", self.path("/discard"), {})
        actions = [a["action"] for a in self.ok("GET", f"/api/companies/{self.c['id']}/activity?"
                                                       f"entityType=environment_lease")]
        self.assertEqual(actions[:3], ["environment.workspace_discarded", "environment.workspace_restored",
                                       "environment.workspace_staged"])
        self.assertIn("berth_workspaces_staged_total 1", self.req("GET", "/metrics").text)


if __name__ == "__main__":
    unittest.main()
