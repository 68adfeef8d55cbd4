"""What the project of an issue gives its runs: variables, and where they work."""
# slow: runs with git repositories and sandboxes

import unittest

from runtest import RunTest


class ProjectRunTest(RunTest):
    def project(self, **body):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/projects", {"name": "Site", **body}, status=201)

    def issue(self, agent, project, title="task", **body):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": title, "projectId": project["id"], "assigneeAgentId": agent["id"], "status": "todo", **body}, status=201)

    def run_of(self, issue):
        """The run that the issue's assignment began."""
        return self.daemon.sql("SELECT * FROM heartbeat_runs WHERE issue_id = ? ORDER BY created_at", (issue["id"],))[-1]

    def test_variables(self):
        secrets = f"/api/companies/{self.acme['id']}/secrets"
        one, two = (self.ok("POST", secrets, {"name": n, "value": f"value-of-{n}"}, status=201)["id"] for n in ("one", "two"))
        def ref(id):
            return {"type": "secret_ref", "secretId": id}
        project = self.project(env={"PLAIN": "p", "BOTH": "project", "HIDDEN": ref(one), "TAKEN": ref(two),
                                    "PAPERCLIP_WAKE_REASON": "mine"})
        agent = self.runner('echo "$PLAIN $BOTH $TAKEN $PAPERCLIP_WAKE_REASON $HIDDEN"; test "$HIDDEN" = value-of-one',
                            adapter={"env": {"BOTH": "agent", "TAKEN": "agent"}})
        run = self.finished(self.run_of(self.issue(agent, project)))
        self.assertEqual(run["status"], "succeeded", run["error"])
        # The agent's own win; the project's win over the adapter's; a secret's value is in no output.
        self.assertIn("p agent agent mine ***REDACTED***", self.log_text(run))
        self.assertNotIn("value-of-one", self.log_text(run))
        used = [(e["consumerType"], e["consumerId"], e["configPath"], e["outcome"])
                for id in (one, two) for e in self.ok("GET", f"/api/secrets/{id}/access-events")]
        self.assertEqual(used, [("project", project["id"], "env.HIDDEN", "success")])
        # Without the project there is nothing of it.
        bare = self.finished(self.wake(agent))
        self.assertEqual(bare["status"], "failed")


if __name__ == "__main__":
    unittest.main()
