"""Projects: made, changed, found; their variables and their choice of environment."""

import unittest

from worktest import MISSING, WorkTest


class ProjectTest(WorkTest):
    def project(self, name="Site", status=201, **body):
        return self.ok("POST", self.projects, {"name": name, **body}, status=status)

    def test_life(self):
        made = self.project("My Site", description="d", executionWorkspacePolicy={"enabled": True, "defaultMode": "operator_branch"})
        self.assertEqual((made["urlKey"], made["status"], made["description"], made["executionWorkspacePolicy"]),
                         ("my-site", "backlog", "d", {"enabled": True, "defaultMode": "operator_branch"}))
        self.assertEqual(self.ok("GET", self.projects), [made])
        self.assertEqual(self.ok("GET", f"/api/projects/{made['id']}"), made)
        slug = f"/api/projects/my-site?companyId={self.acme['id']}"
        self.assertEqual(self.ok("GET", slug), made)
        changed = self.ok("PATCH", slug, {"name": "New", "status": "in_progress", "executionWorkspacePolicy": None})
        self.assertEqual((changed["urlKey"], changed["status"], changed["executionWorkspacePolicy"]),
                         ("new", "in_progress", None))
        self.assertEqual(self.actions(entityType="project"), ["project.updated", "project.created"])
        self.project("New")
        self.assert_error(self.req("GET", f"/api/projects/new?companyId={self.acme['id']}"), 409,
                          "Project shortname is ambiguous in this company. Use the project ID.")
        for reference in (MISSING, "nowhere", f"nowhere?companyId={self.acme['id']}"):
            self.assert_error(self.req("GET", f"/api/projects/{reference}"), 404, "Project not found")
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}/goals"), [])
        self.assert_error(self.req("GET", f"/api/companies/{MISSING}/goals"), 404, "Company not found")

    def test_every_status_and_time(self):
        made = self.project(color="#123456", targetDate="2027-01-01", goalIds=[], leadAgentId=self.agent(self.acme)["id"])
        path = f"/api/projects/{made['id']}"
        self.assertEqual((made["goalIds"], made["goals"], made["workspaces"], made["primaryWorkspace"]), ([], [], [], None))
        for status in ("planned", "in_progress", "completed", "cancelled", "backlog"):
            self.assertEqual(self.ok("PATCH", path, {"status": status})["status"], status)
        at = "2026-01-01T00:00:00.000Z"
        put = self.ok("PATCH", path, {"archivedAt": at, "pausedAt": at, "color": None, "leadAgentId": None})
        self.assertEqual((put["archivedAt"], put["pausedAt"], put["pauseReason"], put["color"], put["leadAgentId"]),
                         (at, at, "manual", None, None))
        self.assertIsNone(self.ok("PATCH", path, {"pausedAt": None})["pauseReason"])
        self.assert_error(self.req("PATCH", path, {"leadAgentId": MISSING}), 422, "Lead agent must belong to same company")

    def test_deleting(self):
        secret = self.ok("POST", f"/api/companies/{self.acme['id']}/secrets", {"name": "k", "value": "v"}, status=201)
        made = self.project(env={"A": {"type": "secret_ref", "secretId": secret["id"]}}, workspace={"cwd": "/srv/x"})
        path, issue = f"/api/projects/{made['id']}", self.issue(projectId=made["id"])
        self.assert_error(self.as_agent(self.agent(self.acme), "DELETE", path), 403, "Board access required")
        self.edit("INSERT INTO execution_workspaces (id, company_id, project_id, mode, strategy_type, name, last_used_at, "
                  "opened_at, created_at, updated_at) VALUES (?, ?, ?, 'shared_workspace', 'project_primary', 'w', 1, 1, 1, 1)",
                  (MISSING, self.acme["id"], made["id"]))
        self.edit("UPDATE issues SET execution_workspace_id = ?", (MISSING,))
        local = next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments") if e["driver"] == "local")
        lease = self.acquire(local, executionWorkspaceId=MISSING)
        self.assert_error(self.req("DELETE", path), 409, contains="1 execution workspace(s) of the project are in use")
        self.release(lease)
        self.assertEqual(self.ok("DELETE", path)["id"], made["id"])
        self.assert_error(self.req("GET", path), 404, "Project not found")
        self.assertEqual((self.row(issue)["projectId"], self.row(issue)["executionWorkspaceId"]), (None, None))
        self.assertEqual(self.ok("GET", f"/api/secrets/{secret['id']}/usage")["bindings"], [])
        self.assertEqual(self.actions(entityType="project")[0], "project.deleted")

    def test_workspaces(self):
        made = self.project(workspace={"cwd": "/srv/site", "repoUrl": "https://example.org/a/site.git", "repoRef": "main",
                                       "setupCommand": "make deps", "cleanupCommand": "make clean"})
        first, path = made["primaryWorkspace"], f"/api/projects/{made['id']}/workspaces"
        self.assertEqual((first["name"], first["isPrimary"], first["sourceType"], first["setupCommand"],
                          first["cleanupCommand"], first["runtimeServices"]),
                         ("site", True, "local_path", "make deps", "make clean", []))
        self.assertEqual(made["workspaces"], [first])
        self.assertEqual({k: made["codebase"][k] for k in ("workspaceId", "repoName", "localFolder", "origin")},
                         {"workspaceId": first["id"], "repoName": "site", "localFolder": "/srv/site", "origin": "local_folder"})
        second = self.ok("POST", path, {"repoUrl": "https://example.org/docs.git", "sourceType": "git_repo"}, status=201)
        self.assertEqual((second["name"], second["isPrimary"]), ("docs", False))
        taken = self.ok("PATCH", f"{path}/{second['id']}", {"isPrimary": True, "defaultRef": "dev"})
        self.assertEqual((taken["isPrimary"], taken["defaultRef"]), (True, "dev"))
        self.assertEqual([(w["id"], w["isPrimary"]) for w in self.ok("GET", path)], [(second["id"], True), (first["id"], False)])
        issue = self.issue(projectId=made["id"], projectWorkspaceId=second["id"])
        self.assertEqual(issue["projectWorkspaceId"], second["id"])
        self.assertEqual(self.ok("DELETE", f"{path}/{second['id']}")["id"], second["id"])
        self.assertIsNone(self.row(issue)["projectWorkspaceId"])
        self.assertEqual([w["isPrimary"] for w in self.row(issue)["project"]["workspaces"]], [True])
        self.assert_error(self.req("PATCH", f"{path}/{second['id']}", {"name": "x"}), 404, "Project workspace not found")
        other = self.project("Other", workspace={"cwd": "/srv/o"})["primaryWorkspace"]
        self.assert_error(self.req("DELETE", f"{path}/{other['id']}"), 404, "Project workspace not found")
        self.assert_error(self.req("POST", self.issues, {"title": "x", "projectId": made["id"], "projectWorkspaceId": other["id"]}),
                          422, "Project workspace must belong to the selected project")
        for body, status in (({}, 422), ({"cwd": "srv"}, 422), ({"cwd": ""}, 400), ({"sourceType": "x"}, 400),
                             ({"sourceType": "remote_managed", "cwd": "/x"}, 422)):
            self.assert_error(self.req("POST", path, body), status)
            self.assert_error(self.req("POST", self.projects, {"name": "no", "workspace": body}), status)
        self.assertNotIn("no", [p["name"] for p in self.ok("GET", self.projects)])
        for kind in ("runtime-services", "runtime-commands"):
            self.assert_error(self.req("POST", f"{path}/{first['id']}/{kind}/start", {}), 422, contains="does not run services")
        # A directory of the host and a command are nothing for an agent's key.
        ada = self.agent(self.acme)
        self.agent_ok(ada, "PATCH", f"{path}/{first['id']}", {"repoRef": "next"})
        self.assert_error(self.as_agent(ada, "POST", path, {"cwd": "/root"}), 403,
                          "Agent keys cannot choose directories of the host (workspace.cwd).")
        self.assert_error(self.as_agent(ada, "PATCH", f"{path}/{first['id']}", {"setupCommand": "x"}), 403,
                          "Agent keys cannot modify host-executed workspace commands (workspace.setupCommand).")

    def test_what_is_refused(self):
        for body in ({}, {"name": ""}, {"name": "x", "status": "y"}, {"name": "x", "status": "active"}, {"name": "x", "env": []},
                     {"name": "x", "executionWorkspacePolicy": {"enabled": True, "defaultMode": "x"}},
                     {"name": "x", "executionWorkspacePolicy": {"enabled": True, "workspaceStrategy": {"type": "x"}}},
                     {"name": "x", "goalIds": [MISSING]},
                     {"name": "x", "executionWorkspacePolicy": {"enabled": True, "unknown": 1}},
                     {"name": "x", "executionWorkspacePolicy": {}}):
            with self.subTest(body=body):
                self.assert_error(self.req("POST", self.projects, body), 400, "Validation error")
        self.assert_error(self.req("POST", self.projects, {"name": "x", "env": {"1A": "x"}}), 422,
                          "Invalid environment variable name: 1A")
        self.assertEqual(self.ok("GET", self.projects), [])

    def test_variables(self):
        secret = self.ok("POST", f"/api/companies/{self.acme['id']}/secrets", {"name": "k", "value": "v"}, status=201)
        ref = {"type": "secret_ref", "secretId": secret["id"]}
        made = self.project(env={"A": "text", "B": ref})
        self.assertEqual(made["env"], {"A": {"type": "plain", "value": "text"}, "B": {**ref, "version": "latest"}})
        usage = self.ok("GET", f"/api/secrets/{secret['id']}/usage")["bindings"]
        self.assertEqual([(b["targetType"], b["targetId"], b["configPath"]) for b in usage],
                         [("project", made["id"], "env.B")])
        ada = self.agent(self.acme)
        path = f"/api/projects/{made['id']}"
        self.assert_error(self.as_agent(ada, "PATCH", path, {"env": {"C": ref}}), 403,
                          contains="Only board users may give secrets to agents (C)")
        # A variable makes programs run (LD_PRELOAD), wherever the project's agents work.
        self.assert_error(self.as_agent(ada, "PATCH", path, {"env": {**made["env"], "D": "d"}}), 403,
                          "Agent keys cannot set this (env); ask the board")
        self.agent_ok(ada, "PATCH", path, {"env": made["env"], "description": "same"})
        self.assertIsNone(self.ok("PATCH", path, {"env": None})["env"])
        self.assertEqual(self.ok("GET", f"/api/secrets/{secret['id']}/usage")["bindings"], [])

    # http-api 8.37; environment-runtime 7.119
    def test_projects_take_a_sandbox(self):
        box, ssh, fake = self.sandbox()["id"], self.ssh()["id"], self.environment(self.acme, name="fake")["id"]
        made = self.project(executionWorkspacePolicy={"enabled": True, "environmentId": box})
        path = f"/api/projects/{made['id']}"
        self.assertEqual(made["executionWorkspacePolicy"]["environmentId"], box)
        for id in (ssh, box):
            policy = {"enabled": True, "environmentId": id}
            self.assertEqual(self.ok("PATCH", path, {"executionWorkspacePolicy": policy})["executionWorkspacePolicy"],
                             policy)
        self.assert_error(self.req("PATCH", path, {"executionWorkspacePolicy": {"enabled": True, "environmentId": fake}}),
                          422, contains='Environment sandbox provider "fake" is not allowed here')

    def test_agents(self):
        ada = self.agent(self.acme)
        made = self.agent_ok(ada, "POST", self.projects, {"name": "hers"}, status=201)
        path = f"/api/projects/{made['id']}"
        self.agent_ok(ada, "PATCH", path, {"executionWorkspacePolicy": {"enabled": True}})
        self.assert_error(self.as_agent(ada, "PATCH", path, {"executionWorkspacePolicy": {
            "enabled": True, "environmentId": self.sandbox()["id"]}}), 403, "Missing permission: environments:manage")
        self.assert_error(self.as_agent(ada, "PATCH", path, {"executionWorkspacePolicy": {
            "enabled": True, "workspaceStrategy": {"provisionCommand": "x"}}}), 403,
            contains="(executionWorkspacePolicy.workspaceStrategy.provisionCommand)")
        viewer = self.board_user(self.acme, "vic", role="viewer")["token"]
        self.assert_error(self.req("PATCH", path, {"name": "x"}, token=viewer), 403, "Viewer access is read-only")


if __name__ == "__main__":
    unittest.main()
