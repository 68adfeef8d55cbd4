"""Agents: made, changed, paused, terminated; who may; what is shown of them; which environments they may choose."""

import os
import unittest

from worktest import MISSING, WorkTest

REMOTE = ("acpx_local", "claude_local", "codex_local", "cursor", "gemini_local", "opencode_local", "pi_local")


class AgentTest(WorkTest):
    def make(self, name="Ada", **body):
        return self.ok("POST", self.agents, {"name": name, **body}, status=201)

    # http-api 8.81
    def test_a_new_agent(self):
        boss = self.make("Boss", role="ceo")
        agent = self.make("Ada Lovelace", role="engineer", title="Engineer", icon="gear", capabilities="code",
                          reportsTo=boss["id"], budgetMonthlyCents=500, metadata={"a": 1}, desiredSkills=["x"],
                          runtimeConfig={"modelProfiles": {}})
        self.assertEqual((agent["urlKey"], agent["status"], agent["reportsTo"], agent["adapterType"]),
                         ("ada-lovelace", "idle", boss["id"], "process"))
        self.assertEqual(agent["runtimeConfig"], {"modelProfiles": {},
                                                  "heartbeat": {"enabled": False, "maxConcurrentRuns": 20}})
        self.assertEqual(agent["adapterConfig"], {"paperclipSkillSync": {"desiredSkills": ["x"]}})
        detail = self.ok("GET", f"/api/agents/{agent['id']}")
        self.assertEqual([a["name"] for a in detail["chainOfCommand"]], ["Boss"])
        access = detail.pop("access")
        self.assertEqual((access["canAssignTasks"], access["taskAssignSource"]), (True, "explicit_grant"))
        self.assertEqual(access["membership"]["membershipRole"], "member")
        self.assertEqual([g["permissionKey"] for g in access["grants"]], ["tasks:assign"])
        self.assertLessEqual(agent.items(), detail.items())
        self.assertEqual(self.ok("GET", f"/api/agents/{boss['id']}")["access"]["taskAssignSource"], "ceo_role")
        self.assertIn("agent.created", self.actions(entityType="agent", entityId=agent["id"]))

    def test_what_create_refuses(self):
        other = self.ok("POST", f"/api/companies/{self.company('Other')['id']}/agents", {"name": "X"}, status=201)
        for body, status, text in (
                ({}, 400, "Validation error"),
                ({"name": ""}, 400, "Validation error"),
                ({"name": "A", "role": "king"}, 400, "Validation error"),
                ({"name": "A", "adapterType": "abacus"}, 422, "Unknown adapter type: abacus"),
                ({"name": "A", "reportsTo": MISSING}, 422, "Manager not found"),
                ({"name": "A", "reportsTo": other["id"]}, 422, "Manager must belong to same company"),
                ({"name": "A", "defaultEnvironmentId": "x"}, 400, "Validation error")):
            with self.subTest(body=body):
                self.assert_error(self.req("POST", self.agents, body), status, text)
        self.assertEqual(self.ok("GET", self.agents), [])

    # http-api 8.80
    def test_approval(self):
        self.ok("PATCH", f"/api/companies/{self.acme['id']}", {"requireBoardApprovalForNewAgents": True})
        self.assert_error(self.req("POST", self.agents, {"name": "A"}), 409, contains="/agent-hires")
        self.assertEqual(self.ok("GET", self.agents), [])

    # http-api 8.82
    def test_the_list_takes_no_parameters(self):
        self.assert_error(self.req("GET", self.agents + "?x=1"), 400, "Unsupported query parameter: x")
        self.assert_error(self.req("GET", self.agents + "?x=1&y"), 400, "Unsupported query parameters: x, y")

    def test_by_slug(self):
        agent = self.agent(self.acme, "Ada Lovelace")
        path = "/api/agents/ada-lovelace"
        self.assert_error(self.req("GET", path), 422, "Agent shortname lookup requires companyId query parameter")
        path += f"?companyId={self.acme['id']}"
        self.assertEqual(self.ok("GET", path)["id"], agent["id"])
        self.assertEqual(self.agent_ok(agent, "GET", "/api/agents/ada-lovelace")["id"], agent["id"])
        self.assert_error(self.req("GET", f"/api/agents/nobody?companyId={self.acme['id']}"), 404, "Agent not found")
        second = self.make("Ada Lovelace")
        self.assert_error(self.req("GET", path), 409,
                          "Agent shortname is ambiguous in this company. Use the agent ID.")
        self.ok("POST", f"/api/agents/{second['id']}/terminate")
        self.assertEqual(self.ok("GET", path)["id"], agent["id"])

    def test_changing(self):
        agent = self.make(adapterConfig={"command": "sh", "args": ["-c"]})
        path = f"/api/agents/{agent['id']}"
        changed = self.ok("PATCH", path, {"name": "New Name", "role": "qa", "title": "T", "adapterConfig": {"args": []},
                                          "runtimeConfig": {"heartbeat": {"enabled": True}}, "budgetMonthlyCents": 7,
                                          "metadata": {"k": 2}, "icon": None, "status": "active"})
        self.assertEqual((changed["urlKey"], changed["role"], changed["title"], changed["budgetMonthlyCents"],
                          changed["metadata"], changed["status"]), ("new-name", "qa", "T", 7, {"k": 2}, "active"))
        self.assertEqual(changed["adapterConfig"], {"command": "sh", "args": []})
        self.assertEqual(changed["runtimeConfig"]["heartbeat"], {"enabled": True, "maxConcurrentRuns": 20})
        self.assertEqual(self.ok("GET", path)["name"], "New Name")
        self.assertEqual(self.ok("PATCH", path, {"adapterConfig": {"x": 1}, "replaceAdapterConfig": True})
                         ["adapterConfig"], {"x": 1})
        entry = next(a for a in self.ok("GET", f"/api/companies/{self.acme['id']}/activity")
                     if a["action"] == "agent.updated")
        self.assertEqual(entry["details"], {"changedTopLevelKeys": ["adapterConfig", "replaceAdapterConfig"]})
        boss = self.make("Boss", reportsTo=agent["id"])
        for body, status, text in (
                ({"permissions": {}}, 422, "Use /api/agents/:id/permissions for permission changes"),
                ({"reportsTo": agent["id"]}, 422, "Reporting relationship would create cycle"),
                ({"reportsTo": boss["id"]}, 422, "Reporting relationship would create cycle"),
                ({"status": "asleep"}, 400, "Validation error"),
                ({"status": "running"}, 422, "The status running follows from runs"),
                ({"name": ""}, 400, "Validation error")):
            with self.subTest(body=body):
                self.assert_error(self.req("PATCH", path, body), status, text)
        self.assertEqual(self.ok("GET", path)["name"], "New Name")

    def test_pause_and_resume(self):
        path = f"/api/agents/{self.make()['id']}"
        paused = self.ok("POST", path + "/pause")
        self.assertEqual((paused["status"], paused["pauseReason"]), ("paused", "manual"))
        self.assertIsNotNone(paused["pausedAt"])
        self.assertEqual(self.ok("POST", path + "/pause", {"reason": "lunch"})["pauseReason"], "lunch")
        resumed = self.ok("POST", path + "/resume", {})
        self.assertEqual((resumed["status"], resumed["pauseReason"], resumed["pausedAt"]), ("idle", None, None))
        self.assertEqual(self.ok("POST", path + "/resume")["status"], "idle")
        self.assertEqual(self.actions(entityType="agent")[:3], ["agent.resumed", "agent.paused", "agent.paused"])

    # A terminated agent has neither keys nor secrets, and does not come back.
    def test_terminate(self):
        secret = self.ok("POST", f"/api/companies/{self.acme['id']}/secrets", {"name": "k", "value": "v"}, status=201)
        agent = self.agent(self.acme, adapterConfig={"env": {"A": {"type": "secret_ref", "secretId": secret["id"]}}})
        path = f"/api/agents/{agent['id']}"
        self.assertEqual(self.ok("POST", path + "/terminate")["status"], "terminated")
        self.assertEqual(self.ok("GET", f"/api/secrets/{secret['id']}/usage")["bindings"], [])
        self.assert_error(self.as_agent(agent, "GET", "/api/agents/me"), 401)
        self.assertTrue(all(k["revokedAt"] for k in self.ok("GET", path + "/keys")))
        self.assert_error(self.req("POST", path + "/keys", {}), 409, "Cannot create keys for terminated agents")
        self.assert_error(self.req("POST", path + "/resume"), 409, "Terminated agents cannot be resumed")
        self.assert_error(self.req("POST", path + "/pause"), 409, "Cannot pause terminated agent")
        self.assert_error(self.req("PATCH", path, {"status": "idle"}), 409, "Terminated agents cannot be resumed")
        self.assertEqual(self.ok("POST", path + "/terminate")["status"], "terminated")
        self.ok("PATCH", path, {"title": "gone", "adapterConfig": {"x": 1}})
        self.assertEqual(self.ok("GET", f"/api/secrets/{secret['id']}/usage")["bindings"], [])
        patched = self.agent(self.acme, "Bob", adapterConfig={"env": {"A": {"type": "secret_ref",
                                                                          "secretId": secret["id"]}}})
        self.ok("PATCH", f"/api/agents/{patched['id']}", {"status": "terminated"})
        self.assertEqual(self.ok("GET", f"/api/secrets/{secret['id']}/usage")["bindings"], [])
        self.assert_error(self.as_agent(patched, "GET", "/api/agents/me"), 401)

    def test_deleting_one_with_runs(self):
        agent = self.agent(self.acme)
        issue = self.issue(assigneeAgentId=agent["id"])
        self.insert_run(agent)
        self.assert_error(self.req("DELETE", f"/api/agents/{agent['id']}"), 409,
                          contains="The agent has runs, which stay on record; terminate it instead, or delete it with them")
        self.edit("DELETE FROM heartbeat_runs")
        self.ok("DELETE", f"/api/agents/{agent['id']}")
        self.assertIsNone(self.row(issue)["assigneeAgentId"])

    def test_configuration_and_history(self):
        agent = self.make(adapterConfig={"command": "sh", "apiKey": "hidden-1", "env": {"MY_TOKEN": "hidden-2"}})
        path = f"/api/agents/{agent['id']}"
        shown = self.ok("GET", path + "/configuration")
        self.assertEqual(shown["adapterConfig"]["apiKey"], "***REDACTED***")
        self.assertEqual(shown["adapterConfig"]["env"], {"MY_TOKEN": "***REDACTED***"})
        everyone = f"/api/companies/{self.acme['id']}/agent-configurations"
        self.assertEqual([g for g in self.ok("GET", everyone) if g["id"] == agent["id"]], [shown])
        other = self.agent(self.acme, "Other")
        self.assert_error(self.as_agent(other, "GET", everyone), 403, "Missing permission: can create agents")
        self.assertEqual(self.ok("GET", path + "/config-revisions"), [])
        self.ok("PATCH", path, {"title": "one", "adapterConfig": {"command": "bash"}})
        self.ok("PATCH", path, {"icon": "x"})  # nothing that is recorded
        self.ok("PATCH", path, {"title": "two", "adapterConfig": {"command": "zsh"}})
        newest, first = self.ok("GET", path + "/config-revisions")
        self.assertEqual((first["source"], first["changedKeys"], first["createdByUserId"]),
                         ("patch", ["title", "adapterConfig"], "local-board"))
        self.assertEqual((first["beforeConfig"]["title"], first["afterConfig"]["title"]), (None, "one"))
        self.assertNotIn("hidden", str(self.ok("GET", path + "/config-revisions")))
        self.assertEqual(self.ok("GET", f"{path}/config-revisions/{newest['id']}"), newest)
        self.assert_error(self.req("GET", f"{path}/config-revisions/{MISSING}"), 404, "Config revision not found")
        back = self.ok("POST", f"{path}/config-revisions/{first['id']}/rollback")
        self.assertEqual((back["title"], back["adapterConfig"]["command"]), ("one", "bash"))
        self.assertEqual(back["adapterConfig"]["apiKey"], "hidden-1")
        rolled = self.ok("GET", path + "/config-revisions")[0]
        self.assertEqual((rolled["source"], rolled["rolledBackFromRevisionId"]), ("rollback", first["id"]))

    def test_instructions_path(self):
        agent = self.agent(self.acme, adapterType="claude_local")
        path = f"/api/agents/{agent['id']}"
        self.assertEqual(self.ok("PATCH", path + "/instructions-path", {"path": "/srv/AGENTS.md"}),
                         {"agentId": agent["id"], "adapterType": "claude_local",
                          "adapterConfigKey": "instructionsFilePath", "path": "/srv/AGENTS.md"})
        self.assertEqual(self.ok("GET", path)["adapterConfig"], {"instructionsFilePath": "/srv/AGENTS.md"})
        self.ok("PATCH", path + "/instructions-path", {"path": None})
        self.assertEqual(self.ok("GET", path)["adapterConfig"], {})
        self.assert_error(self.req("PATCH", path + "/instructions-path", {}), 400)
        self.assert_error(self.as_agent(agent, "PATCH", path + "/instructions-path", {"path": "/x"}), 403,
                          contains="cannot modify instructions path")
        plain = self.make("P")
        self.assert_error(self.req("PATCH", f"/api/agents/{plain['id']}/instructions-path", {"path": "/x"}), 422,
                          contains="No default instructions path key for adapter type 'process'")

    def test_skills(self):
        agent = self.agent(self.acme, desiredSkills=["a"])
        path = f"/api/agents/{agent['id']}/skills"
        self.assertEqual(self.ok("GET", path), {"adapterType": "process", "supported": False, "mode": "unsupported",
                                                "desiredSkills": ["a"], "entries": [], "warnings": []})
        self.assertEqual(self.agent_ok(agent, "POST", path + "/sync", {"desiredSkills": ["b"]})["desiredSkills"], ["b"])
        self.assertEqual(self.ok("GET", path)["desiredSkills"], ["b"])
        self.assert_error(self.req("POST", path + "/sync", {"desiredSkills": [1]}), 400, "Validation error")
        self.assert_error(self.req("POST", path + "/sync", {}), 400, "Validation error")
        other = self.agent(self.acme, "Bob")
        self.assert_error(self.as_agent(other, "POST", path + "/sync", {"desiredSkills": []}), 403,
                          "Only CEO or agent creators can modify other agents")
        self.assertEqual(self.agent_ok(other, "GET", path)["desiredSkills"], [])

    def test_skills_that_there_are(self):
        company = self.acme["id"]
        self.assertEqual([s["key"] for s in self.ok("GET", f"/api/companies/{company}/skills")], ["berth"])
        for folder, text in (("skills/review", "---\nname: x\ndescription: 'Look twice: always'\n---\n"),
                             ("skills/deploy", "no head\n"), (f"companies/{company}/skills/deploy", "---\n---\n"),
                             ("skills/.hidden", "x"), ("skills/not a name", "x")):
            path = self.daemon.data / folder
            path.mkdir(parents=True)
            (path / "SKILL.md").write_text(text)
        (self.daemon.data / "skills" / "empty").mkdir()
        (self.daemon.data / "skills" / "pipe").mkdir()
        os.mkfifo(self.daemon.data / "skills" / "pipe" / "SKILL.md")
        own, *skills = self.ok("GET", f"/api/companies/{company}/skills")
        self.assertEqual((own["key"], own["scope"]), ("berth", "instance"))
        self.assertEqual([(s["key"], s["scope"], s["description"]) for s in skills],
                         [("deploy", "company", None), ("review", "instance", "Look twice: always")])
        agent = self.agent(self.acme, "Coder", adapterType="claude_local")
        path = f"/api/agents/{agent['id']}/skills"
        answer = self.ok("GET", path)
        self.assertEqual((answer["supported"], answer["mode"], answer["desiredSkills"], answer["warnings"]),
                         (True, "ephemeral", ["berth", "deploy", "review"], []))
        answer = self.ok("POST", path + "/sync", {"desiredSkills": ["acme/x/review", "gone"]})
        self.assertEqual([(e["key"], e["state"], e["desired"]) for e in answer["entries"]],
                         [("berth", "available", False), ("deploy", "available", False), ("review", "configured", True), ("gone", "missing", True)])
        self.assertEqual(answer["warnings"], ['The skill "gone" is not there.'])
        other = self.agent(self.acme, "Bob")
        self.assertEqual(len(self.agent_ok(other, "GET", f"/api/companies/{company}/skills")), 3)
        self.assertEqual(self.agent_ok(other, "GET", path)["entries"], [])

    def test_export_preview(self):
        secret = self.ok("POST", f"/api/companies/{self.acme['id']}/secrets", {"name": "k", "value": "v"}, status=201)
        boss = self.agent(self.acme, "Boss", role="ceo")
        self.make("Ada", adapterConfig={"env": {"A": "not-shown", "B": {"type": "secret_ref", "secretId": secret["id"]}}})
        self.ok("POST", self.projects, {"name": "Site", "env": {"C": "c"}}, status=201)
        path = f"/api/companies/{self.acme['id']}/exports/preview"
        answer = self.ok("POST", path, {"include": {}})
        self.assertEqual([(i["key"], i["kind"], i["agentSlug"], i["projectSlug"]) for i in
                          answer["manifest"]["envInputs"]],
                         [("A", "plain", "ada", None), ("B", "secret", "ada", None), ("C", "plain", None, "site")])
        self.assertNotIn("not-shown", str(answer))
        self.agent_ok(boss, "POST", path, {})
        self.assert_error(self.as_agent(self.agent(self.acme, "Bob"), "POST", path, {}), 403, "Board access required")

    def test_runtime_state(self):
        agent = self.agent(self.acme)
        path = f"/api/agents/{agent['id']}/runtime-state"
        state = self.ok("GET", path)
        self.assertEqual(set(state), {
            "agentId", "companyId", "adapterType", "sessionId", "stateJson", "lastRunId", "lastRunStatus",
            "totalInputTokens", "totalOutputTokens", "totalCachedInputTokens", "totalCostCents", "lastError",
            "createdAt", "updatedAt", "sessionDisplayId", "sessionParamsJson"})
        self.assertEqual((state["totalCostCents"], state["stateJson"], state["sessionId"]), (0, {}, None))
        self.assertEqual(self.ok("POST", path + "/reset-session", {"taskKey": "x"})["agentId"], agent["id"])
        self.assertEqual(self.ok("POST", path + "/reset-session")["agentId"], agent["id"])
        self.assert_error(self.as_agent(agent, "GET", path), 403, "Board access required")

    def test_sessions_of_tasks(self):
        agent = self.agent(self.acme)
        path = f"/api/agents/{agent['id']}/task-sessions"
        self.assertEqual(self.ok("GET", path), [])
        for key, at in (("one", 1), ("two", 2)):
            self.edit("INSERT INTO agent_task_sessions (agent_id, task_key, adapter_type, session_params_json, "
                      "session_display_id, created_at, updated_at) VALUES (?, ?, 'claude_local', '{\"a\":1}', 's', 1, ?)",
                      (agent["id"], key, at))
        rows = self.ok("GET", path)
        self.assertEqual([(row["taskKey"], row["sessionParamsJson"]) for row in rows], [("two", {"a": 1}), ("one", {"a": 1})])
        self.ok("POST", f"/api/agents/{agent['id']}/runtime-state/reset-session", {"taskKey": "two"})
        self.assertEqual([row["taskKey"] for row in self.ok("GET", path)], ["one"])
        self.assert_error(self.as_agent(agent, "GET", path), 403, "Board access required")

    # http-api 8.77
    def test_members_without_the_right(self):
        agent = self.make(adapterConfig={"command": "sh"})
        token = self.board_user(self.acme, role="operator")["token"]
        path = f"/api/agents/{agent['id']}"
        shown = self.ok("GET", path, token=token)
        self.assertEqual((shown["adapterConfig"], shown["runtimeConfig"]), ({}, {}))
        self.assertEqual([(a["adapterConfig"], a["runtimeConfig"]) for a in self.ok("GET", self.agents, token=token)],
                         [({}, {})])
        for method, where, body in (("PATCH", path, {"name": "x"}), ("POST", path + "/keys", {}),
                                    ("POST", path + "/pause", {}), ("POST", path + "/terminate", {}),
                                    ("POST", self.agents, {"name": "x"}), ("GET", path + "/configuration", None),
                                    ("GET", path + "/runtime-state", None), ("GET", path + "/keys", None),
                                    ("PATCH", path + "/permissions", {"canCreateAgents": True})):
            with self.subTest(method=method, where=where):
                self.assert_error(self.req(method, where, body, token=token), 403, "Missing permission: agents:create")
        self.assertEqual(self.ok("GET", path)["name"], "Ada")

    # http-api 8.83, 8.84
    def test_other_companies(self):
        agent, second = self.agent(self.acme), self.agent(self.acme, "Bob")
        path = f"/api/agents/{agent['id']}"
        key = self.ok("GET", path + "/keys")[0]["id"]
        token = self.board_user(self.company("Other"), role="owner")["token"]
        for method, where, body in (("POST", path + "/pause", {}), ("GET", path + "/keys", None),
                                    ("POST", path + "/keys", {}), ("DELETE", f"{path}/keys/{key}", None),
                                    ("POST", path + "/terminate", {}), ("GET", path, None)):
            with self.subTest(method=method, where=where):
                self.assert_error(self.req(method, where, body, token=token), 403,
                                  "User does not have access to this company")
        self.assert_error(self.req("DELETE", f"/api/agents/{second['id']}/keys/{key}"), 404, "Key not found")
        self.assertEqual(self.agent_ok(agent, "GET", "/api/agents/me")["status"], "idle")

    def test_what_agents_may(self):
        box = self.sandbox()["id"]
        ada, boss = self.agent(self.acme, defaultEnvironmentId=box), self.agent(self.acme, "Boss", role="ceo")
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        path = f"/api/agents/{ada['id']}"
        self.assertEqual(self.agent_ok(ada, "PATCH", path, {"title": "me", "adapterConfig": {"command": "sh"}})["title"],
                         "me")
        for body in ({"role": "ceo"}, {"reportsTo": boss["id"]}, {"adapterType": "codex_local"}, {"budgetMonthlyCents": 1},
                     {"defaultEnvironmentId": None}):
            with self.subTest(body=body):
                self.assert_error(self.as_agent(ada, "PATCH", path, body), 403)
        self.assert_error(self.as_agent(ada, "PATCH", path, {"status": "paused"}), 403, "Board access required")
        self.assert_error(self.as_agent(maker, "PATCH", path, {"status": "paused"}), 403, "Board access required")
        self.assert_error(self.as_agent(ada, "PATCH", f"/api/agents/{boss['id']}", {"title": "x"}), 403,
                          "Only CEO or agent creators can modify other agents")
        for who in (boss, maker):
            self.agent_ok(who, "PATCH", path, {"title": who["name"]})
        self.assert_error(self.as_agent(maker, "PATCH", path + "/permissions", {"canCreateAgents": True}), 403,
                          "Only CEO can manage permissions")
        detail = self.agent_ok(boss, "PATCH", path + "/permissions", {"canCreateAgents": False,
                                                                       "canAssignTasks": False})
        self.assertEqual((detail["access"]["canAssignTasks"], detail["access"]["taskAssignSource"]), (False, "none"))
        for where in ("/pause", "/resume", "/terminate", "/keys"):
            self.assert_error(self.as_agent(maker, "POST", path + where, {}), 403, "Board access required")
        self.assertEqual(self.agent_ok(ada, "GET", f"/api/agents/{maker['id']}")["adapterConfig"], {})
        self.assertEqual(self.agent_ok(ada, "GET", path)["adapterConfig"], {"command": "sh"})
        self.assert_error(self.as_agent(ada, "POST", self.agents, {"name": "x"}), 403,
                          "Missing permission: can create agents")
        self.assert_error(self.req("GET", "/api/agents/me"), 401, "Agent authentication required")

    # http-api 8.79
    def test_host_commands(self):
        ada = self.agent(self.acme, defaultEnvironmentId=self.sandbox()["id"])
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        path = f"/api/agents/{ada['id']}"
        for body, named in (
                ({"adapterConfig": {"workspaceStrategy": {"provisionCommand": "x"}}},
                 "adapterConfig.workspaceStrategy.provisionCommand"),
                ({"adapterConfig": {"workspaceStrategy": {"teardownCommand": "x"}}},
                 "adapterConfig.workspaceStrategy.teardownCommand"),
                ({"runtimeConfig": {"modelProfiles": {"cheap": {"adapterConfig": {"workspaceStrategy": {
                    "provisionCommand": "x"}}}}}},
                 "runtimeConfig.modelProfiles.cheap.adapterConfig.workspaceStrategy.provisionCommand")):
            for who in (ada, maker):
                with self.subTest(named=named, who=who["name"]):
                    self.assert_error(self.as_agent(who, "PATCH", path, body), 403,
                                      f"Agent keys cannot modify host-executed workspace commands ({named}).")
        self.assert_error(self.as_agent(maker, "POST", self.agents, {
            "name": "x", "adapterConfig": {"workspaceStrategy": {"provisionCommand": "x"}}}), 403)
        self.assert_error(self.as_agent(ada, "PATCH", path, {"adapterConfig": {"cwd": "/root"}}), 403,
                          "Agent keys cannot choose directories of the host (adapterConfig.cwd).")
        self.assert_error(self.as_agent(ada, "PATCH", path, {"adapterConfig": {"instructionsFilePath": "/x"}}), 403,
                          "Agent-authenticated callers cannot modify instructions path or bundle configuration "
                          "(adapterConfig.instructionsFilePath)")
        # What the board set may be sent back.
        config = {"workspaceStrategy": {"provisionCommand": "make"}, "cwd": "/srv", "command": "sh"}
        self.ok("PATCH", path, {"adapterConfig": config})
        self.agent_ok(ada, "PATCH", path, {"adapterConfig": {**config, "command": "bash"}, "replaceAdapterConfig": True})
        self.assertEqual(self.ok("GET", path)["adapterConfig"], {**config, "command": "bash"})


class AgentEnvironmentTest(WorkTest):
    # http-api 8.41
    def test_other_companies(self):
        theirs = self.ssh(self.company("Other"))
        for id in (theirs["id"], MISSING):
            self.assert_error(self.req("POST", self.agents, {"name": "A", "defaultEnvironmentId": id}), 422,
                              "Environment not found.")
        agent = self.agent(self.acme)
        self.assert_error(self.req("PATCH", f"/api/agents/{agent['id']}", {"defaultEnvironmentId": theirs["id"]}), 422,
                          "Selected environment must belong to the same company")

    # http-api 8.42, 8.44, 8.45
    def test_drivers(self):
        ssh = self.ssh()["id"]
        self.assert_error(self.req("POST", self.agents, {"name": "A", "adapterType": "http",
                                                         "defaultEnvironmentId": ssh}), 422,
                          'Environment driver "ssh" is not allowed here. Allowed drivers: local')
        self.assert_error(self.req("POST", self.agents, {"name": "A", "defaultEnvironmentId": self.strange()["id"]}), 422,
                          'Environment driver "plugin" is not allowed here. Allowed drivers: local, ssh, sandbox')
        self.assertEqual(self.ok("GET", self.agents), [])
        local_only = self.agent(self.acme, "H", adapterType="http")
        self.assert_error(self.req("PATCH", f"/api/agents/{local_only['id']}", {"defaultEnvironmentId": ssh}), 422,
                          'Environment driver "ssh" is not allowed here')
        remote = self.agent(self.acme, "R", adapterType="claude_local", defaultEnvironmentId=ssh)
        self.assert_error(self.req("PATCH", f"/api/agents/{remote['id']}", {"adapterType": "http"}), 422,
                          'Environment driver "ssh" is not allowed here')
        self.assertEqual(self.ok("GET", f"/api/agents/{remote['id']}")["adapterType"], "claude_local")
        self.ok("PATCH", f"/api/agents/{remote['id']}", {"adapterType": "http", "defaultEnvironmentId": None})

    # http-api 8.43. Berth runs `process` everywhere, too.
    def test_remote_adapters(self):
        ssh, box = self.ssh()["id"], self.sandbox()["id"]
        for adapter in (*REMOTE, "process"):
            with self.subTest(adapter=adapter):
                agent = self.ok("POST", self.agents, {"name": adapter, "adapterType": adapter,
                                                      "defaultEnvironmentId": ssh}, status=201)
                self.assertEqual(agent["defaultEnvironmentId"], ssh)
                path = f"/api/agents/{agent['id']}"
                self.assertEqual(self.ok("PATCH", path, {"defaultEnvironmentId": box})["defaultEnvironmentId"], box)
                self.assertEqual(self.ok("PATCH", path, {"defaultEnvironmentId": ssh})["defaultEnvironmentId"], ssh)

    def test_archived_and_fake(self):
        fake, old = self.environment(self.acme)["id"], self.ssh()["id"]
        self.ok("PATCH", f"/api/environments/{old}", {"status": "archived"})
        agent = self.agent(self.acme)
        path = f"/api/agents/{agent['id']}"
        for method, where, body in (("POST", self.agents, {"name": "A"}), ("PATCH", path, {})):
            self.assert_error(self.req(method, where, {**body, "defaultEnvironmentId": old}), 422,
                              "Environment is archived.")
        self.assert_error(self.req("POST", self.agents, {"name": "A", "defaultEnvironmentId": fake}), 422,
                          'Environment sandbox provider "fake" is not allowed here. The built-in fake provider is '
                          "probe-only and cannot execute runs.")
        self.assert_error(self.req("PATCH", path, {"defaultEnvironmentId": fake}), 422,
                          'Selected sandbox provider "fake" is not supported for agent defaults yet')


if __name__ == "__main__":
    unittest.main()
