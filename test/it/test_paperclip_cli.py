"""Paperclip's own command line, as it is published, against Berth: each command as a user would type it."""
# slow: a node for each command
# share 6: 6 s of processor time

import json

from berthtest import new_company, wait_until
from paperclipcli import PaperclipCliTest
from plugintest import KEY, WORKER, manifest

MISSING = "00000000-0000-4000-8000-000000000000"


class CliTest(PaperclipCliTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.wait_for_runs)
        self.acme = self.company()
        self.c = self.acme["id"]

    def wait_for_runs(self):
        """What is given up takes a moment longer than the run, and would outlive the daemon."""
        wait_until(lambda: not self.daemon.sql("SELECT 1 FROM heartbeat_runs WHERE step <> 'done'"), "every run is done")
        wait_until(lambda: not self.daemon.sql("SELECT 1 FROM places WHERE driver = 'local' AND state <> 'gone'"),
                   "the places of runs are given up")

    def names(self, rows, member="name"):
        return sorted(row[member] for row in rows)


class EnvironmentCommands(CliTest):
    def test_the_life_of_an_environment(self):
        env = self.pc("environment", "create", "-C", self.c,
                      {"name": "box", "driver": "sandbox", "config": {"provider": "fake", "image": "x"}})
        self.assertEqual((env["driver"], env["status"], env["config"]["image"]), ("sandbox", "active", "x"))
        self.assertEqual(self.names(self.pc("environment", "list", "-C", self.c)), ["Local", "box"])
        self.assertEqual(self.pc("environment", "get", env["id"])["id"], env["id"])
        changed = self.pc("environment", "update", env["id"], {"description": "for tests"})
        self.assertEqual(changed["description"], "for tests")
        probe = self.pc("environment", "probe", env["id"])
        self.assertEqual((probe["ok"], probe["driver"]), (True, "sandbox"))
        lease = self.acquire(env)["lease"]
        self.assertEqual([row["id"] for row in self.pc("environment", "leases", env["id"])], [lease["id"]])
        self.assertEqual(self.pc("environment", "lease", lease["id"])["status"], "active")
        self.pc_fails("environment", "delete", env["id"], says="API error 409: Environment")
        self.release(lease)
        self.assertEqual(self.pc("environment", "delete", env["id"])["id"], env["id"])
        self.pc_fails("environment", "get", env["id"], says="API error 404: Environment not found")

    def test_before_there_is_one(self):
        known = self.pc("environment", "capabilities", "-C", self.c)
        self.assertEqual(known["drivers"]["ssh"], "supported")
        probe = self.pc("environment", "probe-config", "-C", self.c, {"driver": "local", "config": {}})
        self.assertTrue(probe["ok"])
        # A probe that failed is an answer: status 0.
        probe = self.pc("environment", "probe-config", "-C", self.c,
                        {"driver": "ssh", "config": {"host": "127.0.0.1", "port": 1, "username": "u",
                                                     "remoteWorkspacePath": "/srv"}})
        self.assertFalse(probe["ok"])
        self.pc_fails("environment", "create", "-C", self.c, {"name": "far", "driver": "ssh", "config": {}},
                      says="API error 422: ")
        said = self.pc_process("environment", "list", PAPERCLIP_COMPANY_ID=self.c)
        self.assertEqual(said.returncode, 0)
        self.assertIn("name=Local", said.stdout)

    def test_execution_workspaces(self):
        self.assertEqual(self.pc("workspace", "list", "-C", self.c), [])
        for command in ("get", "close-readiness", "operations"):
            self.pc_fails("workspace", command, MISSING, says="API error 404: Execution workspace not found")
        self.pc_fails("workspace", "update", MISSING, {"name": "x"}, says="API error 404: Execution workspace not found")
        self.pc_fails("workspace", "runtime-service", MISSING, "start", says="API error 404: ")


class ProjectCommands(CliTest):
    def test_the_life_of_a_project(self):
        made = self.pc("project", "create", "-C", self.c, "--name", "Site", "--color", "#123456",
                       "--execution-workspace-policy-json", json.dumps({"enabled": True, "defaultMode": "shared_workspace"}))
        self.assertEqual((made["status"], made["workspaces"], made["codebase"]["origin"]), ("backlog", [], "local_folder"))
        self.assertEqual(self.pc("project", "get", "site", "-C", self.c)["id"], made["id"])
        changed = self.pc("project", "update", made["id"], "--status", "in_progress", "--env-json", '{"A": "b"}',
                          "--archived-at", "2026-01-01T00:00:00.000Z")
        self.assertEqual((changed["status"], changed["env"]["A"]["value"], changed["archivedAt"]),
                         ("in_progress", "b", "2026-01-01T00:00:00.000Z"))
        first = self.pc("project-workspace", "create", made["id"], {"cwd": "/srv/site", "repoUrl": "https://example.org/x.git"})
        self.assertTrue(first["isPrimary"])
        one = self.pc("project-workspace", "update", made["id"], first["id"], {"name": "main", "setupCommand": "make"})
        self.assertEqual([one], self.pc("project-workspace", "list", made["id"]))
        self.pc_fails("project-workspace", "runtime-service", made["id"], first["id"], "start", says="API error 422: ")
        self.assertEqual(self.pc("project-workspace", "delete", made["id"], first["id"])["id"], first["id"])
        self.assertEqual(self.pc("project", "delete", "site", "-C", self.c, "--yes")["id"], made["id"])
        self.assertEqual(self.pc("project", "list", "-C", self.c), [])


class AgentCommands(CliTest):
    def test_the_life_of_an_agent(self):
        ada = self.pc("agent", "create", "-C", self.c, {"name": "Ada", "adapterType": "process",
                                                        "adapterConfig": {"command": "true", "env": {"X": "1"}}})
        self.assertEqual((ada["urlKey"], ada["status"], ada["adapterConfig"]["command"]), ("ada", "idle", "true"))
        self.assertEqual(self.names(self.pc("agent", "list", "-C", self.c)), ["Ada"])
        self.assertEqual(self.pc("agent", "get", ada["id"])["chainOfCommand"], [])
        self.assertEqual(self.pc("agent", "update", ada["id"], {"title": "Engineer"})["title"], "Engineer")
        allowed = self.pc("agent", "permissions:update", ada["id"], {"canCreateAgents": True, "canAssignTasks": True})
        self.assertTrue(allowed["permissions"]["canCreateAgents"])
        self.assertEqual(self.pc("agent", "pause", ada["id"])["status"], "paused")
        self.assertEqual(self.pc("agent", "resume", ada["id"])["status"], "idle")
        self.pc_fails("agent", "approve", ada["id"], says="API error 409: Agent is not pending approval")
        self.assertEqual(self.pc("agent", "configuration", ada["id"])["adapterConfig"]["command"], "true")
        revisions = self.pc("agent", "config-revisions", ada["id"])
        self.assertEqual([row["changedKeys"] for row in revisions], [["title"]])
        one = self.pc("agent", "config-revision:get", ada["id"], revisions[0]["id"])
        self.assertEqual(one["afterConfig"]["title"], "Engineer")
        self.assertEqual(self.pc("agent", "config-revision:rollback", ada["id"], revisions[0]["id"])["title"], "Engineer")
        self.assertEqual(self.pc("agent", "terminate", ada["id"])["status"], "terminated")
        self.pc_fails("agent", "delete", ada["id"], says="Refusing to delete without --yes")
        self.assertEqual(self.pc("agent", "delete", ada["id"], "--yes"), {"ok": True})

    def test_hiring(self):
        hired = self.pc("agent", "hire", "-C", self.c, {"name": "Bob", "adapterType": "process"})
        self.assertEqual((hired["agent"]["status"], hired["approval"]), ("idle", None))
        self.ok("PATCH", f"/api/companies/{self.c}", {"requireBoardApprovalForNewAgents": True})
        self.pc_fails("agent", "create", "-C", self.c, {"name": "Eve"}, says="/agent-hires")
        eve = self.pc("agent", "hire", "-C", self.c, {"name": "Eve", "adapterType": "process"})["agent"]
        self.assertEqual(eve["status"], "pending_approval")
        self.pc_fails("token", "agent", "create", "-C", self.c, "--agent", "eve",
                      says="Cannot create keys for pending approval agents")
        self.pc_fails("agent", "resume", eve["id"], says="API error 409: ")
        self.assertEqual(self.pc("agent", "approve", eve["id"])["status"], "idle")
        self.assertIn("agent.approved", [row["action"] for row in self.pc("activity", "list", "-C", self.c)])

    def test_as_the_agent(self):
        ada = self.agent(self.acme)
        issue = self.ok("POST", f"/api/companies/{self.c}/issues", {"title": "task", "assigneeAgentId": ada["id"]}, 201)
        self.assertEqual(self.pc("agent", "me", token=ada["token"])["id"], ada["id"])
        self.assertEqual([row["id"] for row in self.pc("agent", "inbox", token=ada["token"])], [issue["id"]])
        self.pc("agent", "inbox-mine", "--user-id", "local-board", token=ada["token"])
        self.assertEqual(self.pc("company", "current", token=ada["token"])["id"], self.c)
        self.assertEqual([row["id"] for row in self.pc("company", "list", token=ada["token"])], [self.c])
        self.pc_fails("agent", "me", says="API error 401: Agent authentication required")
        self.pc_fails("secrets", "list", "-C", self.c, token=ada["token"], says="API error 403: Board access required")
        self.pc_fails("agent", "me", token="pcp_" + "0" * 48, says="API error 401: ")

    def test_what_is_remembered(self):
        ada = self.agent(self.acme)
        state = self.pc("agent", "runtime-state", ada["id"])
        self.assertEqual((state["agentId"], state["sessionId"], state["totalInputTokens"]), (ada["id"], None, 0))
        self.assertEqual(self.pc("agent", "runtime-state:reset-session", ada["id"])["agentId"], ada["id"])
        self.assertEqual(self.pc("agent", "runtime-state:reset-session", ada["id"], "--task-key", "k")["sessionId"], None)

    def test_skills_and_instructions(self):
        ada = self.agent(self.acme, adapterType="claude_local")
        sync = ("agent", "skills:sync", ada["id"], "--desired-skills")
        self.assertEqual(self.pc(*sync, "a,b", "--mode", "replace")["desiredSkills"], ["a", "b"])
        self.assertEqual(self.pc(*sync, "b,c", "--mode", "add")["desiredSkills"], ["a", "b", "c"])
        self.assertEqual(self.pc(*sync, "a", "--mode", "remove")["desiredSkills"], ["b", "c"])
        self.assertEqual(self.pc("agent", "skills", ada["id"])["desiredSkills"], ["b", "c"])
        path = self.pc("agent", "instructions-path:update", ada["id"], {"path": "/srv/AGENTS.md"})
        self.assertEqual(path["path"], "/srv/AGENTS.md")

    def test_keys(self):
        ada = self.agent(self.acme)
        made = self.pc("token", "agent", "create", "-C", self.c, "--agent", "ada", "--name", "cli")["key"]
        self.assertTrue(made["token"].startswith("pcp_"))
        keys = self.pc("token", "agent", "list", "-C", self.c, "--agent", ada["id"])["keys"]
        self.assertEqual(self.names(keys), ["cli", "test"])
        self.assertTrue(self.pc("token", "agent", "revoke", made["id"], "-C", self.c, "--agent", "ada")["ok"])
        self.pc_fails("agent", "me", token=made["token"], says="API error 401: ")
        said = self.pc_process("agent", "local-cli", "ada", "-C", self.c, "--no-install-skills")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(f"export PAPERCLIP_AGENT_ID='{ada['id']}'", said.stdout)
        self.assertIn("export PAPERCLIP_API_KEY='pcp_", said.stdout)


class IssueCommands(CliTest):
    def idle_agent(self):
        """One that nothing wakes."""
        ada = self.agent(self.acme)
        self.ok("POST", f"/api/agents/{ada['id']}/pause", {})
        return ada

    def test_the_life_of_an_issue(self):
        ada = self.idle_agent()
        issue = self.pc("issue", "create", "-C", self.c, "--title", "First task", "--description", "Do it.",
                        "--priority", "high")
        self.assertEqual((issue["identifier"], issue["status"], issue["priority"]), ("ACM-1", "backlog", "high"))
        self.assertEqual(self.pc("issue", "get", "ACM-1")["description"], "Do it.")
        self.assertEqual(self.names(self.pc("issue", "list", "-C", self.c, "--match", "first"), "title"), ["First task"])
        self.assertEqual(self.pc("issue", "list", "-C", self.c, "--status", "done"), [])
        changed = self.pc("issue", "update", issue["id"], "--status", "todo", "--comment", "go on", "--priority", "low")
        self.assertEqual((changed["status"], changed["priority"], changed["comment"]["body"]), ("todo", "low", "go on"))
        said = self.pc("issue", "comment", issue["id"], "--body", "and now?")
        comments = self.pc("issue", "comments", "ACM-1", "--order", "asc", "--limit", "5")
        self.assertEqual([row["body"] for row in comments], ["go on", "and now?"])
        after = self.pc("issue", "comments", "ACM-1", "--order", "asc", "--after-comment-id", comments[0]["id"])
        self.assertEqual([row["id"] for row in after], [said["id"]])
        self.assertEqual(self.pc("issue", "comment:get", issue["id"], said["id"])["body"], "and now?")
        taken = self.pc("issue", "checkout", issue["id"], "--agent-id", ada["id"])
        self.assertEqual((taken["status"], taken["assigneeAgentId"]), ("in_progress", ada["id"]))
        forced = self.pc("issue", "force-release", issue["id"])
        self.assertEqual(forced["previous"]["checkoutRunId"], None)
        given_back = self.pc("issue", "release", issue["id"])
        self.assertEqual((given_back["status"], given_back["assigneeAgentId"]), ("todo", None))
        self.pc_fails("issue", "checkout", issue["id"], "--agent-id", ada["id"], "--expected-statuses", "blocked",
                      says="API error 409: Issue checkout conflict details=")

    def test_as_an_agent_with_a_run(self):
        ada = self.idle_agent()
        issue = self.pc("issue", "create", "-C", self.c, "--title", "task", "--assignee-agent-id", ada["id"])
        run = "00000000-0000-4000-8000-00000000000a"
        as_ada = {"token": ada["token"], "run": run}
        taken = self.pc("issue", "checkout", issue["id"], "--agent-id", ada["id"], "--expected-statuses",
                        "todo,in_progress", **as_ada)
        self.assertEqual(taken["checkoutRunId"], run)
        self.pc_fails("issue", "comment", issue["id"], "--body", "x", token=ada["token"],
                      says="API error 401: Agent run id required")
        self.assertEqual(self.pc("issue", "comment", issue["id"], "--body", "x", **as_ada)["createdByRunId"], run)
        done = self.pc("issue", "update", issue["id"], "--status", "done", "--comment", "done", **as_ada)
        self.assertEqual(done["status"], "done")

    def test_around_an_issue(self):
        issue = self.pc("issue", "create", "-C", self.c, "--title", "parent")
        child = self.pc("issue", "child:create", issue["id"], {"title": "child"})
        self.assertEqual(child["parentId"], issue["id"])
        context = self.pc("issue", "heartbeat-context", child["id"])
        self.assertEqual([row["id"] for row in context["ancestors"]], [issue["id"]])
        plan = self.pc("issue", "document:put", issue["id"], "plan", "--title", "Plan", "--body", "1. begin")
        self.assertEqual(self.pc("issue", "document:get", issue["id"], "plan")["body"], "1. begin")
        self.pc_fails("issue", "document:put", issue["id"], "plan", "--body", "2", "--base-revision-id", MISSING,
                      says="API error 409: ")
        self.pc("issue", "document:put", issue["id"], "plan", "--body", "2.", "--base-revision-id",
                plan["latestRevisionId"])
        self.assertEqual(len(self.pc("issue", "document:revisions", issue["id"], "plan")), 2)
        self.assertEqual(self.names(self.pc("issue", "documents", issue["id"]), "key"), ["plan"])
        self.assertIn("issue.created", [row["action"] for row in self.pc("activity", "issue", issue["id"])])
        # What Berth has none of.
        for command in ("approvals", "interactions", "work-products", "attachments"):
            self.assertEqual(self.pc("issue", command, issue["id"]), [], command)
        self.pc_fails("issue", "interactions", MISSING, says="API error 404: Issue not found")


class RunCommands(CliTest):
    def worker(self, script, name="Ada", **body):
        """An agent that runs a script on this machine."""
        return self.agent(self.acme, name, adapterConfig={"command": "sh", "args": ["-c", script]}, **body)

    def ended(self, run):
        return wait_until(lambda: (row := self.pc("run", "get", run))["finishedAt"] and row, "the run ends", 30)

    def test_heartbeat(self):
        ada = self.worker("echo hello from the agent")
        done = self.pc_process("heartbeat", "run", "--agent-id", ada["id"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"Invoked heartbeat run \S+ for agent Ada \({ada['id']}\)")
        self.assertIn("[event] lifecycle: run started", done.stdout)
        self.assertRegex(done.stdout, r"Run \S+ completed with status succeeded")
        bad = self.worker("echo oops >&2; exit 3", "Bad")
        done = self.pc_process("heartbeat", "run", "--agent-id", bad["id"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"Run \S+ completed with status failed")
        self.ok("POST", f"/api/agents/{ada['id']}/pause", {})
        self.pc_fails("agent", "heartbeat:invoke", ada["id"], says="API error 409: Agent is not invokable in its current state")

    def test_runs(self):
        ada = self.worker("echo hello")
        run = self.pc("agent", "wake", "ada", "-C", self.c, "--reason", "try", "--payload", '{"a": 1}',
                      "--idempotency-key", "once", "--force-fresh-session")
        self.assertEqual((run["agentId"], run["invocationSource"], run["triggerDetail"]), (ada["id"], "on_demand", "manual"))
        row = self.ended(run["id"])
        self.assertEqual((row["status"], row["exitCode"], row["error"]), ("succeeded", 0, None))
        self.assertEqual([r["id"] for r in self.pc("run", "list", "-C", self.c, "--agent-id", ada["id"], "--limit", "5")],
                         [run["id"]])
        self.assertEqual(self.pc("run", "live", "-C", self.c), [])
        self.assertEqual([r["id"] for r in self.pc("run", "live", "-C", self.c, "--min-count", "1")], [run["id"]])
        seen = self.pc("run", "events", run["id"])
        self.assertEqual((seen[0]["message"], seen[-1]["message"]), ("run started", "run succeeded"))
        self.assertEqual(self.pc("run", "events", run["id"], "--after-seq", seen[-2]["seq"], "--limit", "1"), seen[-1:])
        self.assertIn("hello", self.pc("run", "log", run["id"])["content"])
        self.assertEqual(self.pc("run", "issues", run["id"]), [])
        self.assertEqual(self.pc("run", "workspace-operations", run["id"]), [])
        # A run that has ended stays as it is.
        self.assertEqual(self.pc("run", "cancel", run["id"])["status"], "succeeded")
        self.pc_fails("run", "get", MISSING, says="API error 404: Heartbeat run not found")
        self.assertEqual(self.pc("agent", "runtime-state", ada["id"])["lastRunId"], run["id"])
        self.assertEqual(self.pc("agent", "task-sessions", ada["id"]), [])

    def test_cancelling(self):
        ada = self.worker("sleep 600")
        run = self.pc("agent", "heartbeat:invoke", ada["id"])
        wait_until(lambda: self.pc("run", "get", run["id"])["status"] == "running", "it runs")
        self.assertEqual([r["agentName"] for r in self.pc("run", "live", "-C", self.c)], ["Ada"])
        self.pc("run", "watchdog-decision", run["id"], "--decision", "continue", "--reason", "it thinks")
        self.assertEqual(self.pc("run", "cancel", run["id"])["status"], "cancelled")
        self.assertEqual(self.ended(run["id"])["errorCode"], "cancelled")

    def test_runs_of_an_issue(self):
        ada = self.worker("sleep 600")
        issue = self.pc("issue", "create", "-C", self.c, "--title", "task", "--assignee-agent-id", ada["id"])
        active = wait_until(lambda: self.pc("issue", "active-run", issue["id"]), "assigning wakes the agent")
        wait_until(lambda: self.pc("issue", "get", issue["id"])["checkoutRunId"] == active["id"], "it has the issue")
        self.assertEqual([r["id"] for r in self.pc("issue", "live-runs", "ACM-1")], [active["id"]])
        self.pc("run", "cancel", active["id"])
        self.ended(active["id"])
        self.assertIsNone(self.pc("issue", "active-run", issue["id"]))
        self.assertEqual([r.get("runId", r.get("id")) for r in self.pc("issue", "runs", issue["id"])], [active["id"]])


class ActivityCommands(CliTest):
    def test_activity(self):
        env = self.environment(self.acme)
        made = self.pc("activity", "create", "-C", self.c, {"actorId": "me", "action": "note.made", "entityType": "environment",
                                                            "entityId": env["id"]})
        self.assertEqual(made["actorType"], "system")
        rows = self.pc("activity", "list", "-C", self.c, "--entity-type", "environment", "--entity-id", env["id"])
        self.assertEqual([row["action"] for row in rows], ["note.made", "environment.created"])
        plain = self.pc_process("activity", "list", "-C", self.c, "--entity-id", env["id"])
        self.assertIn("action=note.made actorType=system actorId=me", plain.stdout)


class SecretCommands(CliTest):
    def test_the_life_of_a_secret(self):
        made = self.pc("secrets", "create", "-C", self.c, "--name", "API_TOKEN", "--value-env", "V", V="first-value")
        self.assertEqual((made["key"], made["latestVersion"]), ("api_token", 1))
        self.pc("secrets", "update", made["id"], {"description": "for tests"})
        self.assertEqual(self.pc("secrets", "rotate", made["id"], "--value", "second-value")["latestVersion"], 2)
        listed = self.pc("secrets", "list", "-C", self.c)
        self.assertEqual(listed[0]["description"], "for tests")
        self.assertNotIn("-value", json.dumps(listed))
        self.assertEqual(self.pc("secrets", "usage", made["id"]), {"secretId": made["id"], "bindings": []})
        self.assertEqual(self.pc("secrets", "access-events", made["id"]), [])
        self.pc_fails("secrets", "delete", made["id"], "--yes", says="--confirm")
        self.assertEqual(self.pc("secrets", "delete", made["id"], "--yes", "--confirm", made["id"]), {"ok": True})
        self.assertEqual(self.pc("secrets", "list", "-C", self.c), [])

    def test_variables_of_agents(self):
        ada = self.agent(self.acme, adapterConfig={"command": "true", "env": {"OPENAI_API_KEY": "sk-1", "MODE": "fast"}})
        found = self.pc("secrets", "migrate-inline-env", "-C", self.c)
        self.assertEqual([row["envKey"] for row in found["candidates"]], ["OPENAI_API_KEY"])
        moved = self.pc("secrets", "migrate-inline-env", "-C", self.c, "--apply")
        self.assertEqual((moved["updatedAgents"], moved["createdSecrets"]), (1, 1))
        env = self.ok("GET", f"/api/agents/{ada['id']}")["adapterConfig"]["env"]
        self.assertEqual((env["OPENAI_API_KEY"]["type"], env["MODE"]["value"]), ("secret_ref", "fast"))
        declared = self.pc("secrets", "declarations", "-C", self.c, "--kind", "secret")
        self.assertEqual([row["key"] for row in declared], ["OPENAI_API_KEY"])

    def test_providers_and_vaults(self):
        health = self.pc_process("secrets", "doctor", "-C", self.c)
        self.assertEqual(health.returncode, 0, health.stderr)
        self.assertIn("local_encrypted", health.stdout)
        self.assertIn("local_encrypted", [row["id"] for row in self.pc("secrets", "providers", "-C", self.c)])
        self.pc_fails("secrets", "link", "-C", self.c, "--name", "E", "--provider", "local_encrypted", "--external-ref",
                      "x", says="API error 400: local_encrypted does not support external reference secrets")
        vault = self.pc("secrets", "provider-config:create", "-C", self.c,
                        {"provider": "local_encrypted", "displayName": "Ours", "config": {}})
        at = ("secrets",)
        self.assertEqual([row["id"] for row in self.pc(*at, "provider-configs", "-C", self.c)], [vault["id"]])
        self.assertEqual(self.pc(*at, "provider-config:get", vault["id"])["displayName"], "Ours")
        renamed = self.pc(*at, "provider-config:update", vault["id"], {"displayName": "Theirs"})
        self.assertEqual(renamed["displayName"], "Theirs")
        self.assertTrue(self.pc(*at, "provider-config:default", vault["id"])["isDefault"])
        self.assertEqual(self.pc(*at, "provider-config:health", vault["id"])["configId"], vault["id"])
        no_list = "API error 422: local_encrypted provider does not support remote import listing"
        self.pc_fails(*at, "remote-import:preview", "-C", self.c, {"providerConfigId": vault["id"]}, says=no_list)
        self.pc_fails(*at, "remote-import", "-C", self.c,
                      {"providerConfigId": vault["id"], "secrets": [{"externalRef": "x"}]}, says=no_list)
        self.pc_fails(*at, "provider-config:discovery-preview", "-C", self.c, {"provider": "aws_secrets_manager"},
                      says="API error 422: Berth does not look for vaults.")
        self.assertEqual(self.pc(*at, "provider-config:delete", vault["id"])["status"], "disabled")


class PluginCommands(CliTest):
    # The plugin is named by its key in every command; Paperclip knew only ids (http-api 9, item 5).
    def test_the_life_of_a_plugin(self):
        said = self.pc_process("plugin", "install", str(self.package()))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(f"Installed {KEY} v1.0.0 (ready)", said.stdout)
        self.assertIn(f"Target Paperclip: {self.daemon.url}", said.stdout)
        self.assertIn(f"key={KEY}  status=ready  version=1.0.0", self.pc_process("plugin", "list").stdout)
        self.assertEqual(self.pc("plugin", "list", "--status", "error"), [])
        self.assertTrue(self.pc("plugin", "target")["reachable"])
        self.assertEqual(self.pc("plugin", "inspect", KEY)["pluginKey"], KEY)
        self.assertTrue(self.pc("plugin", "health", KEY)["healthy"])
        self.assertTrue(self.pc("plugin", "logs", KEY))
        self.assertEqual(self.pc("plugin", "dashboard", KEY)["worker"]["status"], "running")
        self.assertEqual(self.pc("plugin", "disable", KEY)["status"], "disabled")
        self.assertEqual(self.pc("plugin", "enable", KEY)["status"], "ready")
        self.assertEqual(self.pc("plugin", "upgrade", KEY)["status"], "ready")
        self.assertEqual(self.pc("plugin", "uninstall", KEY)["pluginKey"], KEY)
        self.pc_fails("plugin", "uninstall", KEY, says="API error 400: ")
        self.pc("plugin", "uninstall", KEY, "--force")
        self.pc_fails("plugin", "inspect", KEY, says="API error 404: Plugin not found")
        self.pc("plugin", "examples")

    def test_configuration(self):
        self.install(self.package())
        self.assertEqual(self.pc("plugin", "config", KEY, "-C", self.c), None)
        saved = self.pc("plugin", "config:set", KEY, "-C", self.c, {"configJson": {"region": "earth"}})
        self.assertEqual(saved["configJson"], {"region": "earth"})
        self.assertEqual(self.pc("plugin", "config", KEY, "-C", self.c)["configJson"], {"region": "earth"})
        tried = self.pc("plugin", "config:test", KEY, "-C", self.c, {"configJson": {"region": "moon"}})
        self.assertEqual(tried, {"valid": False, "message": "no moon"})

    def test_what_it_offers_besides(self):
        more = """
        answers.getData = ({ key, params }) => ({ key, params });
        answers.performAction = ({ key }) => { if (key === "bad") throw new Error("not that"); return { done: key }; };
        answers.runJob = ({ job }) => { say({ method: "log", params: { level: "info", message: "ran " + job.jobKey +
          " " + job.runId } }); return null; };
        """
        self.install(self.package(worker=WORKER.replace("//MORE", more),
                                  capabilities=["environment.drivers.register", "jobs.schedule"],
                                  jobs=[{"jobKey": "sync", "displayName": "Sync", "schedule": "0 * * * *"}]))
        self.assertEqual(self.pc("plugin", "ui-contributions"), [])
        self.assertEqual(self.pc("plugin", "tools"), [])
        self.assertEqual(self.pc("plugin", "bridge:data", KEY, {"key": "k", "params": {"a": 1}}),
                         {"data": {"key": "k", "params": {"a": 1}}})
        self.assertEqual(self.pc("plugin", "data", KEY, "k2"), {"data": {"key": "k2", "params": {}}})
        self.assertEqual(self.pc("plugin", "bridge:action", KEY, {"key": "go"}), {"data": {"done": "go"}})
        self.assertEqual(self.pc("plugin", "action", KEY, "stop"), {"data": {"done": "stop"}})
        self.pc_fails("plugin", "action", KEY, "bad", says="API error 502: ")
        self.pc_fails("plugin", "bridge:stream", KEY, "ch", says="Plugin stream bridge is not enabled")
        self.assertEqual(self.names(self.pc("plugin", "jobs", KEY), "jobKey"), ["sync"])
        begun = self.pc("plugin", "job:trigger", KEY, "sync")
        self.assertEqual(begun["jobId"], "sync")
        wait_until(lambda: f"ran sync {begun['runId']}" in self.logged(), "the job runs")
        self.assertEqual(self.pc("plugin", "job:runs", KEY, "sync"), [])
        self.pc_fails("plugin", "job:trigger", KEY, "nothing", says="API error 404: Job not found")
        self.pc_fails("plugin", "tool:execute", {"tool": "x"}, says="API error 400: Validation error")


class InstanceCommands(CliTest):
    def test_who_and_where(self):
        self.assertEqual(self.pc("health")["status"], "ok")
        self.assertEqual(self.pc("whoami")["userId"], "local-board")
        self.assertEqual(self.pc("auth", "whoami")["source"], "local_implicit")
        self.assertEqual(self.pc("profile", "session")["user"]["id"], "local-board")
        paths = self.pc("openapi")["paths"]
        self.assertIn("get", paths["/api/environments/{id}"])
        self.assertIn("patch", paths["/api/environments/{id}"])
        self.assertEqual(paths["/api/environments/{id}"]["parameters"][0]["name"], "id")
        gone = self.pc_process("health", "--api-base", "http://127.0.0.1:1")
        self.assertEqual(gone.returncode, 1)

    def test_companies(self):
        made = self.pc("company", "create", {"name": "Initech", "description": "x"})
        self.assertEqual(made["issuePrefix"], "INI")
        self.assertEqual(self.names(self.pc("company", "list")), ["Acme", "Initech"])
        self.assertEqual(self.pc("company", "get", made["id"])["name"], "Initech")
        self.assertEqual(self.pc("company", "current", "-C", made["id"])["name"], "Initech")
        self.assertEqual(self.pc("company", "update", made["id"], {"description": "y"})["description"], "y")
        self.assertEqual(self.pc("company", "stats")[made["id"]], {"agentCount": 0, "issueCount": 0})
        self.assertEqual(self.pc("company", "export:preview", made["id"], {})["manifest"]["envInputs"], [])
        self.assertEqual(self.pc("company", "archive", made["id"])["status"], "archived")
        gone = self.pc("company", "delete", "INI", "--yes", "--confirm", "INI")
        self.assertEqual(gone["deletedCompanyId"], made["id"])

    def test_from_above(self):
        boss = self.agent(self.acme, name="Boss", role="ceo")
        self.agent(self.acme, name="Worker", reportsTo=boss["id"])
        self.ok("POST", f"/api/companies/{self.c}/issues", {"title": "task"}, 201)
        seen = self.pc("dashboard", "get", "-C", self.c)
        self.assertEqual((seen["agents"]["active"], seen["tasks"]["open"], seen["tasks"]["done"]), (2, 1, 0))
        chart = self.pc("org", "get", "-C", self.c)
        self.assertEqual([(top["name"], [row["name"] for row in top["reports"]]) for top in chart],
                         [("Boss", ["Worker"])])
        self.assertIn("claude_local", self.names(self.pc("adapter", "list"), "type"))
        self.assertTrue(self.pc("adapter", "get", "process")["supportsRemoteExecution"])
        self.pc_fails("adapter", "get", "nothing", says="API error 404: Adapter not found")
        for group in ("goal", "approval", "routine", "project"):
            self.assertEqual(self.pc(group, "list", "-C", self.c), [], group)
        self.assertEqual(self.names(self.pc("skill", "list", "-C", self.c), "key"), ["berth"])  # comes with Berth

    def test_settings(self):
        self.assertFalse(self.pc("instance", "settings:general")["censorUsernameInLogs"])
        self.assertTrue(self.pc("instance", "settings:general:update", {"censorUsernameInLogs": True})["censorUsernameInLogs"])
        self.pc("instance", "settings:experimental:update", {"enableEnvironments": True})
        self.assertTrue(self.pc("instance", "settings:experimental")["enableEnvironments"])
        self.assertEqual(self.pc("instance", "scheduler-heartbeats"), [])


class SignedInCommands(CliTest):
    daemon_flags = ("--mode", "authenticated")

    def company(self, name="Acme"):
        return self.operator("POST", "/api/companies", new_company(name), 201)

    def test_signing_in(self):
        self.pc_fails("agent", "list", "-C", self.c, says="API error 401: Unauthorized")
        asked = self.pc("auth", "challenge", "create", {"command": "paperclipai company list"})
        at = ("auth", "challenge")
        self.assertEqual(self.pc(*at, "get", asked["id"], "--token", asked["token"])["status"], "pending")
        admin = self.board_user(self.acme, user="root", role="owner", admin=True)
        approved = self.pc(*at, "approve", asked["id"], "--token-env", "T", T=asked["token"], token=admin["token"])
        self.assertTrue(approved["approved"])
        token = asked["boardApiToken"]
        self.assertEqual(self.names(self.pc("company", "list", token=token)), ["Acme"])
        self.assertEqual(self.pc("whoami", token=token)["source"], "board_key")
        self.assertTrue(self.pc("auth", "revoke-current", token=token)["revoked"])
        self.pc_fails("company", "list", token=token, says="API error 401: ")
        asked = self.pc(*at, "create", {"command": "x"})
        self.assertTrue(self.pc(*at, "cancel", asked["id"], "--token", asked["token"])["cancelled"])

    def test_board_keys(self):
        admin = self.board_user(self.acme, user="root", role="owner", admin=True)["token"]
        made = self.pc("token", "board", "create", "--name", "ci", "--ttl-days", "2", token=admin)["key"]
        self.assertEqual(self.pc("whoami", token=made["token"])["userId"], self.pc("whoami", token=admin)["userId"])
        forever = self.pc("token", "board", "create", "--name", "ever", "--never-expires", "-C", self.c, token=admin)["key"]
        self.assertIsNone(forever["expiresAt"])
        self.assertEqual(self.names(self.pc("token", "board", "list", token=admin)), ["ci", "ever", "test"])
        self.pc("token", "board", "revoke", made["id"], token=admin)
        self.pc_fails("whoami", token=made["token"], says="API error 401: ")
