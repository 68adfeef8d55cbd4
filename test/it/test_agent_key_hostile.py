"""An agent's key in the wrong hands: what it is used for to get out of a sandbox, onto this machine, or into its network.

The table of docs/agent-keys.md, field by field and role by role, is in test_agent_fields.py; these are whole attacks."""

import json
import unittest

from berthtest import wait_until
from runtest import HookTest, RunTest

HIRE = r"""
H="Authorization: Bearer $PAPERCLIP_API_KEY"; J="Content-Type: application/json"; U=$PAPERCLIP_API_URL/api
R=$(curl -s -w ' HTTP-%{http_code}' -H "$H" -H "$J" -d @hire.json $U/companies/$PAPERCLIP_COMPANY_ID/agent-hires)
echo "$R"
"""


class EscapeTest(RunTest):
    def setUp(self):
        super().setUp()
        self.mark = self.temp_dir() / "escaped"
        self.evil = {"command": "/bin/sh", "args": ["-c", f"id > {self.mark}"]}

    def as_(self, who, method, path, body=None):
        return self.req(method, path, body, token=who["token"])

    def refused(self, who, method, path, body, contains=None):
        self.assert_error(self.as_(who, method, path, body), 403, contains=contains)

    def never_ran(self):
        self.settled()
        self.assertFalse(self.mark.exists(), "an agent's key ran a command on this machine")

    def isolated_workspaces(self):
        self.ok("PATCH", "/api/instance/settings/experimental", {"enableIsolatedWorkspaces": True})

    # From inside a sandbox, through the callback channel.
    def test_a_hire_without_environment(self):
        box = self.sandbox()
        (self.work / "hire.json").write_text(json.dumps(
            {"name": "Helper", "adapterType": "process", "adapterConfig": self.evil}))
        boss = self.runner(HIRE, "Boss", environment=box, permissions={"canCreateAgents": True})
        run = self.wake(boss)
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertIn("HTTP-403", self.log_text(run))
        self.assertEqual(self.daemon.sql("SELECT id FROM agents WHERE name = 'Helper'"), [])
        self.never_ran()

    # What an agent in a sandbox brings home is not where the next agent, on this machine, works.
    def test_the_next_agent_does_not_work_in_its_directory(self):
        work, good = self.temp_dir(), self.temp_dir()
        (good / "build.sh").write_text("echo good\n")
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=local")[0]["id"]
        inside = self.agent(self.acme, "Inside", wakes=True, defaultEnvironmentId=self.sandbox()["id"], adapterConfig={
            "command": "sh", "args": ["-c", f"echo 'id > {self.mark}' > build.sh"], "cwd": str(work)})
        outside = self.agent(self.acme, "Outside", wakes=True, defaultEnvironmentId=local, adapterConfig={
            "command": "sh", "args": ["build.sh"], "cwd": str(good)})
        project = self.as_(inside, "POST", f"/api/companies/{self.acme['id']}/projects", {"name": "P"}).json
        issue = self.as_(inside, "POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": "I", "projectId": project["id"], "assigneeAgentId": inside["id"], "status": "todo"}).json

        def over(agent):
            return [r for r in self.ok("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs?agentId={agent['id']}")
                    if r["finishedAt"]]
        wait_until(lambda: over(inside), "the first agent is done")
        self.assertTrue((work / "build.sh").exists())
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": outside["id"], "status": "todo"})
        # A run that leaves its issue open is followed by another: there may be two by now.
        for run in wait_until(lambda: over(outside), "the second agent is done"):
            self.assertEqual((run["status"], self.log_text(run).strip()), ("succeeded", "good"))
        self.never_ran()

    # The other way round: it takes up the work of an agent on this machine, and would bring home what that one runs next.
    def test_it_does_not_fill_the_directory_of_an_agent_outside(self):
        company, mine = f"/api/companies/{self.acme['id']}", self.temp_dir()
        for n, path in enumerate(("", "/sub", "/..")):
            with self.subTest(path=path):
                top = self.temp_dir()
                work = top / "work"
                (work / "sub").mkdir(parents=True)
                (work / "build.sh").write_text("echo good\n")
                outside = self.agent(self.acme, f"Outside{n}", wakes=True, defaultEnvironmentId=self.local(), adapterConfig={
                    "command": "sh", "args": ["build.sh"], "cwd": str(work)})
                inside = self.agent(self.acme, f"Inside{n}", wakes=True, defaultEnvironmentId=self.sandbox(f"box{n}")["id"],
                                    adapterConfig={"command": "sh", "cwd": str(mine), "args": [
                                        "-c", f"mkdir -p work; for f in build.sh work/build.sh; do echo 'id > {self.mark}' > $f; done"]})
                project = self.as_(inside, "POST", f"{company}/projects", {"name": f"P{n}"}).json
                issue = self.as_(inside, "POST", f"{company}/issues", {
                    "title": "I", "projectId": project["id"], "assigneeAgentId": outside["id"], "status": "todo"}).json
                self.settled()
                (workspace,) = self.ok("GET", f"{company}/execution-workspaces?projectId={project['id']}")
                if path:  # one that overlaps, as an owner might have named it
                    self.edit("UPDATE execution_workspaces SET cwd = ?, cwd_from = NULL WHERE id = ?",
                              (str((work / path.strip("/")).resolve()), workspace["id"]))
                run = self.as_(inside, "POST", f"/api/agents/{inside['id']}/wakeup", {"payload": {"issueId": issue["id"]}})
                self.assert_status(run, 202)
                self.assertEqual(self.finished(run.json)["status"], "succeeded")
                self.assertEqual((work / "build.sh").read_text(), "echo good\n")
                self.assertEqual(list((work / "sub").iterdir()), [])
        self.never_ran()

    # A directory that the board named is for those inside or for those outside, whoever works there first.
    def test_a_directory_of_both_sides(self):
        company, box = f"/api/companies/{self.acme['id']}", self.sandbox()["id"]
        outside = self.agent(self.acme, "Outside", wakes=True, defaultEnvironmentId=self.local(), adapterConfig={
            "command": "sh", "args": ["-c", "sh ./build.sh"], "cwd": str(self.temp_dir())})
        inside = self.agent(self.acme, "Inside", wakes=True, defaultEnvironmentId=box, adapterConfig={
            "command": "sh", "args": ["-c", f"echo 'id > {self.mark}' > build.sh"], "cwd": str(self.temp_dir())})
        for order in ((outside, inside), (inside, outside)):
            with self.subTest(first=order[0]["name"]):
                both = self.temp_dir()
                (both / "build.sh").write_text("echo good\n")
                issue = self.provisioned_issue(box, None)["id"]
                self.edit("UPDATE issues SET execution_workspace_preference = NULL WHERE id = ?", (issue,))
                workspace = self.daemon.sql("SELECT execution_workspace_id AS id FROM issues WHERE id = ?", (issue,))[0]["id"]
                self.ok("PATCH", f"/api/execution-workspaces/{workspace}", {"cwd": str(both)})
                for agent in (*order, outside):
                    self.finished(self.wake(agent, payload={"issueId": issue}))
                self.never_ran()
                self.assertEqual("good" in (both / "build.sh").read_text(), order[0] is outside)
        # Named once more it is for those outside again: the board has seen what is in it.
        (both / "build.sh").write_text("echo good\n")
        self.ok("PATCH", f"/api/execution-workspaces/{workspace}", {"cwd": str(both)})
        run = self.finished(self.wake(outside, payload={"issueId": issue}))
        self.assertEqual((run["status"], self.log_text(run)), ("succeeded", "good\n"))

    # Neither by leaving the project whose policy is a sandbox, nor by archiving the workspace that says so.
    def test_work_is_not_moved_out(self):
        self.isolated_workspaces()
        box = self.sandbox()["id"]
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=local")[0]["id"]
        ada = self.agent(self.acme, "Ada", wakes=True, defaultEnvironmentId=local, adapterConfig={"command": "true"})
        self.ok("PATCH", f"/api/agents/{ada['id']}", {"runtimeConfig": {"heartbeat": {"maxFollowUps": 0}}})
        project = self.ok("POST", f"/api/companies/{self.acme['id']}/projects", {
            "name": "P", "executionWorkspacePolicy": {"enabled": True, "environmentId": box}}, status=201)
        issue = self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": "I", "projectId": project["id"], "assigneeAgentId": ada["id"], "status": "todo"}, status=201)
        run = wait_until(lambda: next((r for r in self.ok("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs")
                                       if r["finishedAt"]), None), "the run is over")
        headers = {"X-Paperclip-Run-Id": run["id"]}
        self.assert_error(self.req("PATCH", f"/api/issues/{issue['id']}", {"projectId": None}, token=ada["token"],
                                   headers=headers), 403, contains="projectId")
        (workspace,) = self.ok("GET", f"/api/companies/{self.acme['id']}/execution-workspaces")
        self.assert_error(self.req("PATCH", f"/api/execution-workspaces/{workspace['id']}", {"status": "archived"},
                                   token=ada["token"], headers=headers), 403, contains="status")

    # The same with a key, whatever the hire says about its place, and whatever its adapter does of itself.
    def test_hires_outside(self):
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=local")[0]["id"]
        ssh = self.environment(self.acme, name="host", driver="ssh", config={
            "host": "127.0.0.1", "username": "u", "remoteWorkspacePath": "/srv"})["id"]
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        for body in ({"adapterConfig": self.evil}, {"adapterConfig": self.evil, "defaultEnvironmentId": local},
                     {"adapterConfig": self.evil, "defaultEnvironmentId": ssh}, {"adapterType": "codex_local"},
                     {"adapterType": "http", "adapterConfig": {"url": "http://127.0.0.1:1/"}}, {}):
            for route in ("agents", "agent-hires"):
                with self.subTest(body=body, route=route):
                    self.refused(maker, "POST", f"/api/companies/{self.acme['id']}/{route}", {"name": "x", **body})
        self.assertEqual(len(self.daemon.sql("SELECT id FROM agents")), 1)

    def test_a_ceo(self):
        box = self.sandbox()
        ceo = self.agent(self.acme, "Ceo", role="ceo", adapterType="process", defaultEnvironmentId=box["id"],
                         adapterConfig={"command": "true"})
        local = self.agent(self.acme, "Loc", adapterType="process", adapterConfig={"command": "true"})
        own, other = f"/api/agents/{ceo['id']}", f"/api/agents/{local['id']}"
        self.refused(ceo, "PATCH", other, {"adapterConfig": self.evil}, "adapterConfig.command")
        self.refused(ceo, "PATCH", other, {"adapterConfig": {"env": {"LD_PRELOAD": "/tmp/x.so"}}}, "adapterConfig.env")
        self.refused(ceo, "PATCH", own, {"defaultEnvironmentId": None})
        self.refused(ceo, "PATCH", own + "/permissions", {"canCreateAgents": True, "canAssignTasks": True})
        self.refused(ceo, "PATCH", other + "/permissions", {"canCreateAgents": True})
        self.refused(ceo, "PATCH", own, {"budgetMonthlyCents": 1000000})
        self.assertEqual(self.as_(ceo, "POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": "x", "status": "todo", "assigneeAgentId": local["id"]}).status, 201)
        self.never_ran()
        row = self.ok("GET", own)
        self.assertEqual((row["defaultEnvironmentId"], row["permissions"]["canCreateAgents"], row["budgetMonthlyCents"]),
                         (box["id"], False, 0))

    def test_rights_by_a_hire(self):
        box = self.sandbox()
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        hires = f"/api/companies/{self.acme['id']}/agent-hires"
        self.refused(maker, "POST", hires, {"name": "x", "defaultEnvironmentId": box["id"], "role": "ceo"}, "role")
        self.refused(maker, "POST", hires, {"name": "x", "defaultEnvironmentId": box["id"],
                                            "permissions": {"canCreateAgents": True}}, "canCreateAgents")
        self.assertEqual(self.as_(maker, "POST", hires, {"name": "x", "defaultEnvironmentId": box["id"],
                                                         "adapterConfig": self.evil}).status, 201)
        self.never_ran()

    # What was the board's once is not the agent's to bring back.
    def test_rolling_back_to_a_command_of_this_machine(self):
        box = self.sandbox()
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        agent = self.agent(self.acme, "Was", adapterType="process", adapterConfig={"command": "true"})
        path = f"/api/agents/{agent['id']}"
        self.ok("PATCH", path, {"adapterConfig": {"command": "false"}})
        self.ok("PATCH", path, {"defaultEnvironmentId": box["id"]})
        old = self.ok("GET", path + "/config-revisions")[-1]["id"]
        self.refused(maker, "POST", f"{path}/config-revisions/{old}/rollback", {})
        self.assertEqual(self.ok("GET", path)["defaultEnvironmentId"], box["id"])

    def local(self):
        return self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=local")[0]["id"]

    def project_in(self, environment, name="p"):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/projects", {
            "name": name, "executionWorkspacePolicy": {"enabled": True, "environmentId": environment}}, status=201)["id"]

    def assert_refused(self, after=0):
        """There are more runs than `after`; each of those was refused its place, and ran nothing."""
        wait_until(lambda: len(self.runs()) > after, f"more than {after} runs")
        self.never_ran()
        for run in self.runs()[after:]:
            self.assertEqual((run["status"], run["error_code"]), ("failed", "environment_not_isolated"), run["error"])
            self.assertIn("does not work there by itself", run["error"])
            self.assertEqual((run["lease_id"], run["execution_id"]), (None, None))

    # A sandboxed agent may write its own command; that does not follow it out of the sandbox.
    def test_own_command_in_a_project_of_this_machine(self):
        self.isolated_workspaces()
        local = self.local()
        ada = self.agent(self.acme, adapterType="process", defaultEnvironmentId=self.sandbox()["id"],
                         adapterConfig={"command": "true"})
        self.assertEqual(self.as_(ada, "PATCH", f"/api/agents/{ada['id']}", {"adapterConfig": self.evil}).status, 200)
        issue = self.as_(ada, "POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": "x", "status": "todo", "projectId": self.project_in(local), "assigneeAgentId": ada["id"]})
        self.assert_status(issue, 201)
        self.as_(ada, "POST", f"/api/agents/{ada['id']}/wakeup", {"payload": {"issueId": issue.json["id"]}})
        self.assert_refused()
        # A board user who chooses this machine for the agent answers for what it runs there.
        self.ok("PATCH", f"/api/agents/{ada['id']}", {"adapterConfig": {"command": "true"}, "replaceAdapterConfig": True,
                                                      "defaultEnvironmentId": local})
        again = self.wake(ada, payload={"issueId": issue.json["id"]})
        self.assertEqual(self.finished(again)["status"], "succeeded")

    # The command is the board's; the directory that it would run in here is the agent's.
    def test_no_work_moves_an_agent_out(self):
        self.isolated_workspaces()
        local, box, company = self.local(), self.sandbox()["id"], f"/api/companies/{self.acme['id']}"
        here = self.project_in(local)
        ada = self.agent(self.acme, "Ada", adapterType="process", defaultEnvironmentId=box, adapterConfig=self.evil)
        bob = self.agent(self.acme, "Bob", defaultEnvironmentId=box)
        for_ada = {"title": "x", "status": "todo", "assigneeAgentId": ada["id"]}
        wakeup = f"/api/agents/{ada['id']}/wakeup"

        def made(who, body, path=f"{company}/issues"):
            answer = self.as_(who, "POST", path, body) if who else self.req("POST", path, body)
            self.assert_status(answer, 201)
            return answer.json["id"]

        def tries(what, act):
            with self.subTest(what=what):
                self.mark.unlink(missing_ok=True)
                before = len(self.runs())
                act()
                self.assert_refused(before)

        theirs = made(None, {"title": "x", "status": "todo", "projectId": here})
        free = made(None, {"title": "x", "status": "todo", "projectId": here})
        parent = made(None, {"title": "x", "projectId": here})
        own = made(None, {"title": "x", "executionWorkspaceSettings": {"environmentId": local}})
        reused = self.provisioned_issue(local, None)["id"]
        unsaid = self.provisioned_issue(local, None)["id"]
        self.edit("UPDATE execution_workspaces SET metadata = '{\"config\": {\"provisionCommand\": \"true\"}}' WHERE id = "
                  "(SELECT execution_workspace_id FROM issues WHERE id = ?)", (unsaid,))
        tries("an issue of its own", lambda: made(ada, {**for_ada, "projectId": here}))
        tries("a child of another", lambda: made(ada, for_ada, f"/api/issues/{parent}/children"))
        tries("taking one", lambda: self.as_(ada, "PATCH", f"/api/issues/{theirs}", {"assigneeAgentId": ada["id"]}))
        tries("a wake-up", lambda: self.as_(ada, "POST", wakeup, {"payload": {"issueId": theirs}}))
        tries("a comment of another", lambda: self.as_(bob, "POST", f"/api/issues/{free}/comments", {
            "body": f"[@Ada](agent://{ada['id']})"}))
        tries("the issue's environment", lambda: self.as_(ada, "POST", wakeup, {"payload": {"issueId": own}}))
        tries("a reused workspace", lambda: self.as_(ada, "POST", wakeup, {"payload": {"issueId": reused}}))
        tries("one that stands for the default", lambda: self.as_(ada, "POST", wakeup, {"payload": {"issueId": unsaid}}))
        # Neither does the board, by giving the agent work: it says where an agent works in the agent.
        tries("the board's issue", lambda: made(None, {**for_ada, "projectId": here}))

    # Other machines are no more isolated than this one, and from there nobody comes here either.
    def test_no_work_moves_an_agent_to_another_machine(self):
        self.isolated_workspaces()
        far = self.environment(self.acme, name="far", driver="ssh", config={
            "host": "127.0.0.1", "port": 9, "username": "u", "remoteWorkspacePath": "/srv"})["id"]
        inside = self.agent(self.acme, "Inside", adapterType="process", defaultEnvironmentId=self.sandbox()["id"],
                            adapterConfig=self.evil)
        there = self.agent(self.acme, "There", adapterType="process", defaultEnvironmentId=far, adapterConfig=self.evil)
        for n, (agent, to) in enumerate(((inside, far), (there, self.local()))):
            issue = self.as_(agent, "POST", f"/api/companies/{self.acme['id']}/issues", {
                "title": "x", "status": "todo", "projectId": self.project_in(to, f"p{n}"), "assigneeAgentId": agent["id"]})
            self.assert_status(issue, 201)
            self.assert_refused(n)

    def test_environments_of_its_own(self):
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        path = f"/api/companies/{self.acme['id']}/environments"
        box, local = self.sandbox(), self.ok("GET", path + "?driver=local")[0]
        ssh = {"host": "127.0.0.1", "username": "u", "remoteWorkspacePath": "/srv"}
        self.refused(maker, "POST", path, {"name": "h", "driver": "ssh", "config": ssh}, "driver")
        self.refused(maker, "POST", path + "/probe-config", {"driver": "ssh", "config": ssh}, "driver")
        self.refused(maker, "POST", path, {"name": "h", "driver": "sandbox", "config": {
            "provider": "berth", "network": "allowlist", "allowedHosts": ["example.org"]}}, "config.network, config.allowedHosts")
        self.refused(maker, "PATCH", f"/api/environments/{box['id']}", {"driver": "ssh", "config": ssh}, "driver")
        self.refused(maker, "PATCH", f"/api/environments/{box['id']}", {
            "config": {"network": "allowlist", "allowedHosts": ["example.org"]}}, "config.network")
        self.refused(maker, "PATCH", f"/api/environments/{local['id']}", {"config": {"env": {"PATH": "/tmp"}}})
        self.refused(maker, "POST", f"/api/companies/{self.acme['id']}/adapters/process/test-environment", {
            "environmentId": local["id"], "adapterConfig": self.evil})
        self.never_ran()

    # Whoever names no environment works in the company's default: what is written while that is a sandbox stays in one.
    def test_a_default_that_opens(self):
        box = self.sandbox()
        company = f"/api/companies/{self.acme['id']}"
        local = self.ok("GET", company + "/environments?driver=local")[0]["id"]
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        self.ok("PATCH", company, {"defaultEnvironmentId": local})
        self.refused(maker, "POST", company + "/agent-hires", {"name": "x", "adapterConfig": self.evil})
        self.refused(maker, "PATCH", company, {"defaultEnvironmentId": box["id"]})
        self.ok("PATCH", company, {"defaultEnvironmentId": box["id"]})
        hired = self.as_(maker, "POST", company + "/agent-hires", {"name": "x", "adapterConfig": self.evil})
        self.assert_status(hired, 201)
        self.ok("PATCH", company, {"defaultEnvironmentId": local})
        agent = hired.json["agent"]
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "environment_not_isolated"))
        self.assertIn("written with an agent's key", run["error"])
        self.never_ran()
        # A member more says nothing about the command; a board user who saves all of it answers for it.
        self.ok("PATCH", f"/api/agents/{agent['id']}", {"adapterConfig": {"timeoutSec": 60}})
        self.ok("PATCH", f"/api/agents/{agent['id']}/instructions-path", {"path": "/x", "adapterConfigKey": "instructionsFilePath"})
        self.assertEqual(self.finished(self.wake(agent))["errorCode"], "environment_not_isolated")
        self.never_ran()
        self.ok("PATCH", f"/api/agents/{agent['id']}", {"adapterConfig": {"command": "true"}, "replaceAdapterConfig": True})
        self.assertEqual(self.finished(self.wake(agent))["status"], "succeeded")

    def test_everybody_moved_at_once(self):
        box, second = self.sandbox(), self.sandbox("second")
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=local")[0]["id"]
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True}, defaultEnvironmentId=box["id"])
        for to in (local, second["id"]):
            self.refused(maker, "DELETE", f"/api/environments/{box['id']}?moveTo={to}", None, "moveTo")
        self.assertEqual(self.ok("GET", f"/api/agents/{maker['id']}")["defaultEnvironmentId"], box["id"])

    def test_work_that_is_moved(self):
        self.isolated_workspaces()
        box = self.sandbox()
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=local")[0]["id"]
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True}, defaultEnvironmentId=box["id"])
        project = self.ok("POST", f"/api/companies/{self.acme['id']}/projects", {
            "name": "p", "executionWorkspacePolicy": {"enabled": True, "environmentId": box["id"]}}, status=201)
        issue = self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": "x", "projectId": project["id"], "executionWorkspaceSettings": {"environmentId": box["id"]}}, status=201)
        for id in (local, None):
            with self.subTest(id=id):
                self.refused(maker, "PATCH", f"/api/projects/{project['id']}", {
                    "executionWorkspacePolicy": {"enabled": True, "environmentId": id}}, "environmentId")
                self.refused(maker, "PATCH", f"/api/issues/{issue['id']}", {
                    "executionWorkspaceSettings": {"environmentId": id}}, "environmentId")
        self.refused(maker, "PATCH", f"/api/projects/{project['id']}", {"executionWorkspacePolicy": None}, "environmentId")
        self.refused(maker, "PATCH", f"/api/projects/{project['id']}", {"env": {"LD_PRELOAD": "/tmp/x.so"}}, "env")
        elsewhere = self.provisioned_issue(local, "true")
        workspace = self.daemon.sql("SELECT execution_workspace_id AS id FROM issues WHERE id = ?",
                                    (elsewhere["id"],))[0]["id"]
        self.refused(maker, "PATCH", f"/api/issues/{issue['id']}", {
            "executionWorkspaceId": workspace, "executionWorkspacePreference": "reuse_existing"})
        inside = self.provisioned_issue(box, "true")
        workspace = self.daemon.sql("SELECT execution_workspace_id AS id FROM issues WHERE id = ?",
                                    (inside["id"],))[0]["id"]
        for config in ({"environmentId": local}, {"environmentId": None}):
            with self.subTest(config=config):
                self.refused(maker, "PATCH", f"/api/execution-workspaces/{workspace}", {"config": config})
        self.refused(maker, "PATCH", f"/api/execution-workspaces/{workspace}", {"metadata": None})


class RequestTest(HookTest):
    """What agents of type http make the daemon ask for."""

    def test_an_agent_chooses_no_url(self):
        agent = self.hook()
        for config in ({"url": "http://127.0.0.1:9/latest/meta-data/iam", "method": "GET"}, {"headers": {"X": "y"}},
                       {"payloadTemplate": {"x": 1}}, {"unheardOf": 1}):
            with self.subTest(config=config):
                self.assert_error(self.req("PATCH", f"/api/agents/{agent['id']}", {"adapterConfig": config},
                                           token=agent["token"]), 403, contains=f"adapterConfig.{next(iter(config))}")


if __name__ == "__main__":
    unittest.main()
