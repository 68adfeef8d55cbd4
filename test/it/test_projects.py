"""Projects: made, changed, found; their variables and their choice of environment."""

import unittest

from worktest import MISSING, WorkTest


class ProjectTest(WorkTest):
    def project(self, name="Site", status=201, **body):
        return self.ok("POST", self.projects, {"name": name, **body}, status=status)

    def test_life(self):
        made = self.project("My Site", description="d", executionWorkspacePolicy={"enabled": True, "defaultMode": "x"})
        self.assertEqual((made["urlKey"], made["status"], made["description"], made["executionWorkspacePolicy"]),
                         ("my-site", "active", "d", {"enabled": True, "defaultMode": "x"}))
        self.assertEqual(self.ok("GET", self.projects), [made])
        self.assertEqual(self.ok("GET", f"/api/projects/{made['id']}"), made)
        slug = f"/api/projects/my-site?companyId={self.acme['id']}"
        self.assertEqual(self.ok("GET", slug), made)
        changed = self.ok("PATCH", slug, {"name": "New", "status": "paused", "executionWorkspacePolicy": None})
        self.assertEqual((changed["urlKey"], changed["status"], changed["executionWorkspacePolicy"]),
                         ("new", "paused", None))
        self.assertEqual(self.actions(entityType="project"), ["project.updated", "project.created"])
        self.project("New")
        self.assert_error(self.req("GET", f"/api/projects/new?companyId={self.acme['id']}"), 409,
                          "Project shortname is ambiguous in this company. Use the project ID.")
        for reference in (MISSING, "nowhere", f"nowhere?companyId={self.acme['id']}"):
            self.assert_error(self.req("GET", f"/api/projects/{reference}"), 404, "Project not found")
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}/goals"), [])
        self.assert_error(self.req("GET", f"/api/companies/{MISSING}/goals"), 404, "Company not found")

    def test_what_is_refused(self):
        for body in ({}, {"name": ""}, {"name": "x", "status": "y"}, {"name": "x", "env": []},
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
