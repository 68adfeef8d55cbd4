"""examples/shell-agent: reads its issue, changes the workspace, comments and closes, through the callback alone."""

import shutil

from berthtest import SOURCE
from runtest import RunTest

SCRIPT = (SOURCE / "examples" / "shell-agent" / "agent.sh").read_text()
TITLE = 'Water the "plants" \\ today'


class ShellAgentTest(RunTest):
    def shell_agent(self, script=SCRIPT, **more):
        return self.agent(self.acme, "Shell", adapterType="process",
                          adapterConfig={"command": "sh", "args": ["-c", script], **more.pop("adapter", {})}, **more)

    def issue_for(self, agent, **more):
        body = {"title": TITLE, "assigneeAgentId": agent["id"], **more}
        return self.ok("POST", f"/api/companies/{self.acme['id']}/issues", body, status=201)

    def assert_worked(self, issue, agent):
        self.settled()
        runs = self.runs()
        self.assertEqual([run["status"] for run in runs], ["succeeded"], self.log_text(runs[0], "stderr"))
        self.assertEqual(self.log_text(runs[0]), "working on ACM-1\nclosed ACM-1\n")
        self.assertEqual(self.ok("GET", f"/api/issues/{issue['id']}")["status"], "done")
        (comment,) = self.ok("GET", f"/api/issues/{issue['id']}/comments")
        self.assertEqual(comment["body"], f"Noted `{TITLE}` in DONE.md.")
        self.assertEqual((comment["authorAgentId"], comment["createdByRunId"]), (agent["id"], runs[0]["id"]))

    def test_on_this_machine(self):
        agent = self.shell_agent(adapter={"cwd": str(self.work)})
        self.assert_worked(self.issue_for(agent), agent)
        self.assertEqual((self.work / "DONE.md").read_text(), f"- ACM-1: {TITLE}\n")

    def test_without_curl(self):
        tools = self.temp_dir()
        for tool in ("sh", "bash", "sed", "grep", "head", "cat"):
            (tools / tool).symlink_to(shutil.which(tool))
        agent = self.shell_agent(adapter={"cwd": str(self.work), "env": {"PATH": str(tools)}})
        self.assert_worked(self.issue_for(agent), agent)
        self.assertEqual((self.work / "DONE.md").read_text(), f"- ACM-1: {TITLE}\n")

    def test_in_a_sandbox_without_a_network(self):
        agent = self.shell_agent(defaultEnvironmentId=self.sandbox()["id"])
        self.assert_worked(self.issue_for(agent), agent)

    def test_nothing_to_do(self):
        run = self.finished(self.wake(self.shell_agent(adapter={"cwd": str(self.work)})))
        self.assertEqual((run["status"], self.log_text(run)), ("succeeded", "nothing to do\n"))
