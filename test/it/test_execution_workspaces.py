"""Execution workspaces: listed, read, changed, closed. Runs make them; here they are put into the database."""

import itertools
import json
import unittest

from berthtest import BerthTest, ident

PROJECT = "10000000-0000-4000-8000-000000000001"
ISSUE = "20000000-0000-4000-8000-000000000001"
FIRST = "30000000-0000-4000-8000-000000000001"
SECOND = "30000000-0000-4000-8000-000000000002"
MISSING = "30000000-0000-4000-8000-00000000000f"
T0 = 1_700_000_000_000_000


class WorkspaceTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.c = self.company()
        self.other = self.company("Other")
        self.daemon.stop()
        with self.daemon.record() as db:
            company = self.c["id"]
            db.execute("INSERT INTO projects (id, company_id, name, created_at, updated_at) VALUES (?, ?, 'P', ?, ?)",
                       (PROJECT, company, T0, T0))
            db.execute("INSERT INTO issues (id, company_id, identifier, title, status, execution_workspace_id, created_at, "
                       "updated_at) VALUES (?, ?, 'PAP-1', 'I', 'todo', ?, ?, ?)", (ISSUE, company, SECOND, T0, T0))
            for n, (workspace, mode, status, config) in enumerate((
                    (FIRST, "shared_workspace", "active", {"provisionCommand": " make deps ", "environmentId": None}),
                    (SECOND, "isolated_workspace", "cleanup_failed", {"provisionCommand": "  "}))):
                db.execute("INSERT INTO execution_workspaces (id, company_id, project_id, source_issue_id, mode, "
                           "strategy_type, name, status, cwd, last_used_at, opened_at, metadata, created_at, updated_at) "
                           "VALUES (?, ?, ?, ?, ?, 'project_primary', ?, ?, '/srv', ?, ?, ?, ?, ?)",
                           (workspace, company, PROJECT, ISSUE if n else None, mode, f"w{n}", status, T0 - n, T0,
                            json.dumps({"config": config, "mine": n}), T0, T0))
        self.daemon.start()

    def path(self, workspace=FIRST, rest=""):
        return f"/api/execution-workspaces/{workspace}{rest}"


class ExecutionWorkspaceTest(WorkspaceTest):
    def names(self, query=""):
        return [w["name"] for w in self.ok("GET", f"/api/companies/{self.c['id']}/execution-workspaces{query}")]

    def test_listing(self):
        self.assertEqual(self.names(), ["w0", "w1"])
        self.assertEqual(self.names("?reuseEligible=true"), ["w0"])
        self.assertEqual(self.names("?status=cleanup_failed"), ["w1"])
        self.assertEqual(self.names(f"?issueId={ISSUE}"), ["w1"])
        self.assertEqual(self.names(f"?projectId={PROJECT}"), ["w0", "w1"])
        self.assertEqual(self.names(f"?projectId={MISSING}"), [])
        summary = self.ok("GET", f"/api/companies/{self.c['id']}/execution-workspaces?summary=true")[0]
        self.assertEqual(summary, {"id": FIRST, "name": "w0", "mode": "shared_workspace", "projectWorkspaceId": None})

    def test_reading(self):
        got = self.ok("GET", self.path())
        self.assertEqual(got["config"], {
            "environmentId": None, "provisionCommand": "make deps", "teardownCommand": None, "cleanupCommand": None,
            "workspaceRuntime": None, "desiredState": None, "serviceStates": None})
        self.assertEqual((got["metadata"]["mine"], got["providerType"], got["closedAt"]), (0, "local_fs", None))
        self.assertIsNone(self.ok("GET", self.path(SECOND))["config"])  # all of it is blank
        self.assert_error(self.req("GET", self.path(MISSING)), 404, "Execution workspace not found")
        self.assert_error(self.req("GET", self.path("no-id")), 404, "Execution workspace not found")

    def test_changing(self):
        got = self.ok("PATCH", self.path(), {"name": "new", "cwd": None, "cleanupEligibleAt": "2026-01-01T00:00:00.000Z",
                                             "config": {"teardownCommand": "make clean"}})
        self.assertEqual((got["name"], got["cwd"], got["cleanupEligibleAt"]),
                         ("new", None, "2026-01-01T00:00:00.000Z"))
        self.assertEqual((got["config"]["provisionCommand"], got["config"]["teardownCommand"]), ("make deps", "make clean"))
        self.assertEqual(got["metadata"]["mine"], 0)
        got = self.ok("PATCH", self.path(), {"config": None, "metadata": {"theirs": 1}})
        self.assertEqual((got["config"], got["metadata"]), (None, {"theirs": 1}))
        entry = self.ok("GET", f"/api/companies/{self.c['id']}/activity?entityType=execution_workspace")[0]
        self.assertEqual((entry["action"], entry["details"]), ("execution_workspace.updated",
                                                               {"changedKeys": ["config", "metadata"]}))

    def test_bodies_are_checked(self):
        for body in ({"name": ""}, {"other": 1}, {"status": "lost"}, {"config": {"x": 1}}, {"config": "x"},
                     {"cleanupEligibleAt": "soon"}, {"metadata": []}):
            self.assert_error(self.req("PATCH", self.path(), body), 400, "Validation error")

    def test_closing(self):
        local = next(e for e in self.ok("GET", f"/api/companies/{self.c['id']}/environments") if e["driver"] == "local")
        lease = self.acquire(local, executionWorkspaceId=FIRST)
        ready = self.ok("GET", self.path(rest="/close-readiness"))
        self.assertEqual((ready["state"], ready["isSharedWorkspace"]), ("blocked", True))
        answer = self.req("PATCH", self.path(), {"status": "archived"})
        self.assert_status(answer, 409)
        self.assertEqual(answer.json["closeReadiness"]["blockingReasons"], ["1 lease(s) use this workspace."])
        self.assertEqual(self.ok("GET", self.path())["status"], "active")
        self.release(lease)
        self.assertEqual(self.ok("GET", self.path(rest="/close-readiness"))["state"], "ready")
        closed = self.ok("PATCH", self.path(), {"status": "archived"})
        self.assertEqual(closed["status"], "archived")
        self.assertIsNotNone(closed["closedAt"])
        self.assertIsNone(self.ok("PATCH", self.path(), {"status": "active"})["closedAt"])
        self.assertEqual(self.ok("GET", self.path(SECOND, "/close-readiness"))["state"], "ready_with_warnings")

    def test_what_was_done_in_it(self):
        self.assertEqual(self.ok("GET", self.path(rest="/workspace-operations")), [])
        local = next(e for e in self.ok("GET", f"/api/companies/{self.c['id']}/environments") if e["driver"] == "local")
        lease = self.acquire(local, executionWorkspaceId=FIRST)
        where = str(self.temp_dir())
        self.ok("POST", f"/api/environment-leases/{ident(lease)}/workspace/stage", {"localPath": where})
        done = self.ok("GET", self.path(rest="/workspace-operations"))
        self.assertEqual([(o["phase"], o["status"], o["cwd"], o["metadata"]["localPath"]) for o in done],
                         [("workspace_stage", "succeeded", where, where)])
        page = self.ok("GET", f"/api/workspace-operations/{done[0]['id']}/log")
        (record,) = map(json.loads, page["content"].splitlines())
        self.assertEqual((page["operationId"], record["stream"]), (done[0]["id"], "system"))
        self.assertIn(f"{where} staged to {where}", record["chunk"])
        self.assert_error(self.req("GET", f"/api/workspace-operations/{FIRST}/log"), 404, "Workspace operation log not found")
        self.release(lease)

    def test_runtime_services(self):
        for kind in ("runtime-services", "runtime-commands"):
            for action in ("start", "stop", "restart", "run"):
                self.assert_error(self.req("POST", self.path(rest=f"/{kind}/{action}"), {}), 422,
                                  contains="does not run services")
        self.assert_error(self.req("POST", self.path(rest="/runtime-services/dance"), {}), 404)
        agent = self.agent(self.c)
        self.assert_error(self.req("POST", self.path(rest="/runtime-services/start"), {}, token=agent["token"]), 403,
                          "Missing permission to manage workspace runtime services")

    def test_agents(self):
        token = self.agent(self.c)["token"]
        self.assertEqual(self.req("GET", self.path(), token=token).json["name"], "w0")
        self.assert_status(self.req("PATCH", self.path(), {"name": "theirs"}, token=token), 200)
        for body, paths in (({"config": {"provisionCommand": "x", "cleanupCommand": "y"}},
                             "config.provisionCommand, config.cleanupCommand"),
                            ({"metadata": {"config": {"workspaceRuntime": {}}}}, "metadata.config.workspaceRuntime, metadata.config.provisionCommand")):
            self.assert_error(self.req("PATCH", self.path(), body, token=token), 403,
                              f"Agent keys cannot modify host-executed workspace commands ({paths}).")
        # It could otherwise leave its sandbox, or have another directory brought into it.
        box, fake = self.environment(self.c, config={"provider": "berth"})["id"], self.environment(self.c)["id"]
        self.ok("PATCH", self.path(), {"config": {"environmentId": box}})
        foreign = self.environment(self.other, config={"provider": "berth"})["id"]
        for id, text in ((fake, 'Environment sandbox provider "fake" is not allowed here.'),
                         (foreign, "Environment not found."), (MISSING, "Environment not found.")):
            self.assert_error(self.req("PATCH", self.path(), {"config": {"environmentId": id}}), 422, contains=text)
        kept = self.ok("GET", self.path())["config"]
        chosen = "Agent keys choose isolated environments only ({}). Name one, or ask the board"
        for body, text in (({"config": {"environmentId": None}}, chosen.format("config.environmentId")),
                           ({"metadata": {"config": {**kept, "environmentId": None}}},
                            chosen.format("metadata.config.environmentId")),
                           ({"cwd": "/root"}, "Agent keys cannot choose directories of the host (cwd).")):
            self.assert_error(self.req("PATCH", self.path(), body, token=token), 403, text)
        self.assertEqual(self.ok("GET", self.path())["config"]["environmentId"], box)
        self.ok("PATCH", self.path(), {"config": {"environmentId": box, "desiredState": "running"}}, token=token)
        keeper = self.agent(self.c, "Keeper", grants=("environments:manage",))["token"]
        local = next(e for e in self.ok("GET", f"/api/companies/{self.c['id']}/environments") if e["driver"] == "local")
        for id in (None, local["id"]):
            self.assert_error(self.req("PATCH", self.path(), {"config": {"environmentId": id}}, token=keeper), 403,
                              chosen.format("config.environmentId"))
        second = self.environment(self.c, name="second", config={"provider": "berth"})["id"]
        self.assert_error(self.req("PATCH", self.path(), {"config": {"environmentId": second}}, token=token), 403,
                          "Missing permission: environments:manage")
        self.ok("PATCH", self.path(), {"config": {"environmentId": second}}, token=keeper)
        stranger = self.agent(self.other, "Bob")["token"]
        for method, rest in (("GET", ""), ("GET", "/close-readiness"), ("GET", "/workspace-operations")):
            self.assert_error(self.req(method, self.path(rest=rest), token=stranger), 403,
                              "Agent key cannot access another company")
        self.assert_error(self.req("GET", f"/api/companies/{self.c['id']}/execution-workspaces", token=stranger), 403)


class CommandTest(WorkspaceTest):
    """What becomes a command where the work is done is for those who manage environments, whatever object it is a part of."""

    WHO = {"owner": (), "admin": (), "operator": (), "viewer": (), "keeper": ("environments:manage",)}
    MAY = ("owner", "admin", "keeper")

    def setUp(self):
        super().setUp()
        self.tokens = {who: self.board_user(self.c, who, role="operator" if grants else who, grants=grants)["token"]
                       for who, grants in self.WHO.items()}
        self.issues, self.projects = (f"/api/companies/{self.c['id']}/{name}" for name in ("issues", "projects"))
        self.count = itertools.count()

    def by_role(self, method, path, body, status, named):
        """Only those who may get through; the others are told which member it was. `body` makes one for each."""
        for who, token in self.tokens.items():
            with self.subTest(who=who, method=method, path=path, named=named):
                answer = self.req(method, path, body(), token=token)
                if who in self.MAY:
                    self.assert_status(answer, status)
                elif who == "viewer":
                    self.assert_error(answer, 403, "Viewer access is read-only")
                else:
                    self.assert_error(answer, 403, contains="Missing permission: environments:manage")
                    self.assertIn(named, answer.text)

    def new(self, name):
        """Another one each time: what stays as it was is no change."""
        n = next(self.count)
        return {name: {"n": n} if name == "workspaceRuntime" else f"make {n}"}

    def test_a_workspace(self):
        for name in ("provisionCommand", "teardownCommand", "cleanupCommand", "workspaceRuntime"):
            self.by_role("PATCH", self.path(), lambda: {"config": self.new(name)}, 200, f"config.{name}")
            self.by_role("PATCH", self.path(), lambda: {"metadata": {"config": self.new(name)}}, 200, f"metadata.config.{name}")

    def test_an_issue(self):
        for settings, path in ((lambda: {"workspaceStrategy": self.new("provisionCommand")}, "workspaceStrategy.provisionCommand"),
                               (lambda: {"workspaceStrategy": self.new("teardownCommand")}, "workspaceStrategy.teardownCommand"),
                               (lambda: self.new("workspaceRuntime"), "workspaceRuntime")):
            named = f"executionWorkspaceSettings.{path}"
            self.by_role("POST", self.issues, lambda: {"title": "x", "executionWorkspaceSettings": settings()}, 201, named)
            self.by_role("PATCH", f"/api/issues/{ISSUE}", lambda: {"executionWorkspaceSettings": settings()}, 200, named)
            # Said to the workspace too.
            self.by_role("PATCH", f"/api/issues/{ISSUE}", lambda: {
                "executionWorkspaceId": FIRST, "executionWorkspacePreference": "reuse_existing",
                "executionWorkspaceSettings": settings()}, 200, named)

    def test_a_project(self):
        for policy, path in ((lambda: {"workspaceStrategy": self.new("provisionCommand")}, "workspaceStrategy.provisionCommand"),
                             (lambda: {"cleanupPolicy": self.new("cleanupCommand")}, "cleanupPolicy.cleanupCommand"),
                             (lambda: {"runtimePolicy": {"deep": self.new("setupCommand")}}, "runtimePolicy.deep.setupCommand"),
                             (lambda: self.new("workspaceRuntime"), "workspaceRuntime")):
            named = f"executionWorkspacePolicy.{path}"
            self.by_role("POST", self.projects, lambda: {
                "name": "x", "executionWorkspacePolicy": {"enabled": True, **policy()}}, 201, named)
            self.by_role("PATCH", f"/api/projects/{PROJECT}", lambda: {
                "executionWorkspacePolicy": {"enabled": True, **policy()}}, 200, named)

    def test_what_is_no_command(self):
        """A member's work goes on: what is sent again as it was is no change; what is taken away is one."""
        token = self.tokens["operator"]
        settings = {"workspaceStrategy": {"provisionCommand": "make deps"}}
        issue = self.ok("POST", self.issues, {"title": "x", "executionWorkspaceSettings": settings}, status=201)["id"]
        for path, body in ((f"/api/issues/{issue}", {"executionWorkspaceSettings": {**settings, "mode": "isolated_workspace"}}),
                           (self.path(), {"name": "y", "config": {"desiredState": "running", "provisionCommand": "make deps"}}),
                           (self.path(), {"metadata": {"mine": 2, "config": {"provisionCommand": "make deps"}}}),
                           (f"/api/projects/{PROJECT}", {"executionWorkspacePolicy": {"enabled": True, "branchPolicy": {"x": 1}}})):
            with self.subTest(path=path, body=body):
                self.ok("PATCH", path, body, token=token)
        for path, body in ((f"/api/issues/{issue}", {"executionWorkspaceSettings": None}), (self.path(), {"config": None}),
                           (self.path(), {"metadata": None}), (self.path(), {"config": {"provisionCommand": None}})):
            with self.subTest(path=path, body=body):
                self.assert_error(self.req("PATCH", path, body, token=token), 403, contains="environments:manage")
        # A run notes there what it was told to do; a client sends all of it again.
        note = {"workspaceRealizationRequest": {"runtimeOverlay": {"provisionCommand": "make deps"}}}
        kept = {"mine": 3, **note, "config": {"provisionCommand": "make deps"}}
        self.ok("PATCH", self.path(), {"metadata": kept})
        self.ok("PATCH", self.path(), {"metadata": {**kept, "mine": 4}}, token=token)


if __name__ == "__main__":
    unittest.main()
