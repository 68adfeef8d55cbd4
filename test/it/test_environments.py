"""Environments over HTTP: reading, creating, changing, deleting, and who may."""

import concurrent.futures
import unittest
import uuid

from berthtest import FAKE_CONFIG, BerthTest, wait_until

RUN = "7e0a33f4-5a5c-4d55-9c5e-3f3f6f4d9b01"
SSH = {"host": "ssh.example.test", "username": "deploy", "remoteWorkspacePath": "/srv/work"}
STORED_SSH = {"host": "ssh.example.test", "port": 22, "username": "deploy", "remoteWorkspacePath": "/srv/work",
              "privateKey": None, "privateKeySecretRef": None, "knownHosts": None, "strictHostKeyChecking": True}
FAKE_REFUSED = "Built-in fake sandbox environments are reserved for internal probes and cannot be saved."


class EnvironmentsTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.environments = f"/api/companies/{self.acme['id']}/environments"

    def list(self, query="", **more):
        return self.ok("GET", self.environments + query, **more)

    def local(self):
        return self.list("?driver=local")[0]

    def activity(self, action):
        rows = self.operator("GET", f"/api/companies/{self.acme['id']}/activity?limit=500")
        return [row for row in rows if row["action"] == action]


class ReadingTest(EnvironmentsTest):
    def test_shape(self):
        made = self.environment(self.acme, name="box", driver="ssh", config=SSH, description="d",
                                metadata={"a": [1]})
        self.assertEqual(set(made), {"id", "companyId", "name", "description", "driver", "status", "config",
                                     "metadata", "createdAt", "updatedAt", "isolated", "isolation", "envVars"})
        self.assertEqual(uuid.UUID(made["id"]).version, 4)
        self.assertEqual(made["companyId"], self.acme["id"])
        self.assertEqual(made["config"], STORED_SSH)
        self.assertEqual(made["metadata"], {"a": [1]})
        self.assertRegex(made["createdAt"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}"), made)
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id'].upper()}"), made)

    # environment-runtime 7.62; http-api 8.1
    def test_filters(self):
        box = self.environment(self.acme, name="box")
        ssh = self.environment(self.acme, name="remote", driver="ssh", config=SSH)
        old = self.environment(self.acme, name="old", driver="ssh", config=SSH, status="archived")

        def names(query):
            return [e["name"] for e in self.list(query)]

        self.assertEqual(names("?driver=local"), ["Local"])
        self.assertEqual(names("?driver=ssh"), ["old", "remote"])
        self.assertEqual(names("?driver=ssh&status=active"), ["remote"])
        self.assertEqual(names("?status=archived"), ["old"])
        self.assertEqual(names("?driver=SSH"), [])
        self.assertEqual(names("?driver=plugin"), [])
        self.assertEqual(names("?status=nonsense"), [])
        self.assertEqual(names(""), ["old", "remote", "box", "Local"])
        # newest update first
        self.ok("PATCH", f"/api/environments/{box['id']}", {"description": "x"})
        self.assertEqual(names(""), ["box", "old", "remote", "Local"])
        self.assertNotEqual(ssh["id"], old["id"])

    # environment-runtime 7.63; http-api 8.2, 8.3
    def test_capabilities(self):
        answer = self.ok("GET", self.environments + "/capabilities")
        self.assertEqual(answer["drivers"], {"local": "supported", "ssh": "supported", "sandbox": "supported",
                                             "plugin": "unsupported"})
        self.assertEqual(answer["sandboxProviders"]["fake"],
                         {"status": "unsupported", "supportsSavedProbe": True, "supportsUnsavedProbe": True,
                          "supportsRunExecution": False, "supportsReusableLeases": True, "supportsInteractiveSetup": False,
                          "interactiveSetupConnectionTypes": [], "supportsTemplateCapture": False,
                          "supportsTemplateDelete": False, "supportsSetupTokenLogin": False,
                          "displayName": "Fake", "source": "builtin"})
        self.assertEqual([p for p, c in answer["sandboxProviders"].items() if c["source"] != "builtin"], [])
        self.assertNotIn("fake-plugin", answer["sandboxProviders"])
        self.assertEqual(answer["pluginDrivers"], [])
        self.assertEqual([a["adapterType"] for a in answer["adapters"]],
                         ["process", "http", "acp", "acpx_local", "claude_local", "codex_local", "cursor_cloud",
                          "gemini_local", "opencode_local", "pi_local", "cursor", "openclaw_gateway", "gemini_acp",
                          "kimi_local", "grok_local", "hermes_local"])
        remote = {a["adapterType"] for a in answer["adapters"] if a["drivers"]["ssh"] == "supported"}
        self.assertEqual(remote, {"process", "acp", "acpx_local", "claude_local", "codex_local", "cursor", "gemini_local",
                                  "opencode_local", "pi_local", "gemini_acp", "kimi_local", "grok_local", "hermes_local"})
        for adapter in answer["adapters"]:
            self.assertEqual(adapter["drivers"]["local"], "supported")
            self.assertEqual(adapter["drivers"]["plugin"], "unsupported")
            self.assertEqual(adapter["drivers"]["sandbox"], adapter["drivers"]["ssh"])
            self.assertEqual(adapter["sandboxProviders"]["fake"], "unsupported")

    def test_missing(self):
        nowhere = str(uuid.uuid4())
        self.assert_error(self.req("GET", f"/api/environments/{nowhere}"), 404, "Environment not found")
        self.assert_error(self.req("GET", "/api/environments/not-a-uuid"), 404, "Environment not found")
        self.assert_error(self.req("GET", f"/api/companies/{nowhere}/environments"), 404, "Company not found")
        self.assert_error(self.req("GET", "/api/companies/x/environments"), 404, "Company not found")
        self.assert_error(self.req("GET", f"/api/companies/{nowhere}/environments/capabilities"), 404,
                          "Company not found")
        self.assert_error(self.req("POST", f"/api/companies/{nowhere}/environments",
                                   {"name": "x", "driver": "local"}), 404, "Company not found")

    # environment-runtime 7.65, 7.67; http-api 8.6, 8.7
    def test_redacted_for_an_agent_without_rights(self):
        made = self.environment(self.acme, driver="ssh", config=SSH, metadata={"a": 1})
        agent = self.agent(self.acme)
        redacted = {**made, "config": {}, "metadata": None, "configRedacted": True, "metadataRedacted": True}
        listed = self.list("?driver=ssh", token=agent["token"])
        self.assertEqual(listed, [redacted])
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}", token=agent["token"]), redacted)

    # environment-runtime 7.66; http-api 8.8
    def test_whole_for_an_agent_that_may_create_agents(self):
        made = self.environment(self.acme, driver="ssh", config=SSH, metadata={"a": 1})
        agent = self.agent(self.acme, permissions={"canCreateAgents": True})
        self.assertEqual(self.list("?driver=ssh", token=agent["token"]), [made])
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}", token=agent["token"]), made)

    def test_redacted_for_a_board_user_without_rights(self):
        made = self.environment(self.acme, driver="ssh", config=SSH, metadata={"a": 1})
        user = self.board_user(self.acme)
        seen = self.ok("GET", f"/api/environments/{made['id']}", token=user["token"])
        self.assertEqual((seen["config"], seen["metadata"], seen["configRedacted"]), ({}, None, True))
        manager = self.board_user(self.acme, user="mia", grants=["environments:manage"])
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}", token=manager["token"]), made)

    # environment-runtime 7.83; http-api 8.25
    def test_other_company(self):
        made = self.environment(self.acme, name="box")
        lease = self.acquire(made)["lease"]
        other = self.company("Other")
        stranger = self.agent(other, permissions={"canCreateAgents": True})["token"]
        before = self.daemon.sql("SELECT COUNT(*) AS n FROM activity_log")
        for method, path, body in (
                ("GET", self.environments, None),
                ("GET", self.environments + "/capabilities", None),
                ("POST", self.environments, {"name": "x", "driver": "ssh", "config": SSH}),
                ("POST", self.environments + "/probe-config", {"driver": "local"}),
                ("GET", f"/api/environments/{made['id']}", None),
                ("PATCH", f"/api/environments/{made['id']}", {"name": "mine"}),
                ("DELETE", f"/api/environments/{made['id']}", None),
                ("GET", f"/api/environments/{made['id']}/delete-blast-radius", None),
                ("POST", f"/api/environments/{made['id']}/probe", None),
                ("GET", f"/api/environments/{made['id']}/leases", None),
                ("GET", f"/api/environment-leases/{lease['id']}", None),
                ("GET", f"/api/companies/{self.acme['id']}/activity", None)):
            with self.subTest(method=method, path=path):
                self.assert_error(self.req(method, path, body, token=stranger), 403,
                                  "Agent key cannot access another company")
        user = self.board_user(other, user="otto", role="owner")["token"]
        for method, path, body in (
                ("GET", self.environments, None),
                ("GET", f"/api/environments/{made['id']}", None),
                ("PATCH", f"/api/environments/{made['id']}", {"name": "mine"}),
                ("DELETE", f"/api/environments/{made['id']}", None),
                ("POST", f"/api/environments/{made['id']}/leases", {}),
                ("GET", f"/api/environment-leases/{lease['id']}", None),
                ("POST", f"/api/environment-leases/{lease['id']}/release", {}),
                ("POST", f"/api/environment-leases/{lease['id']}/renew", {"ttlMs": 1000})):
            with self.subTest(method=method, path=path):
                self.assert_error(self.req(method, path, body, token=user), 403,
                                  "User does not have access to this company")
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}"), made)
        self.assertEqual(self.lease(lease)["status"], "active")
        self.assertEqual(self.daemon.sql("SELECT COUNT(*) AS n FROM activity_log"), before)


class CreatingTest(EnvironmentsTest):
    def test_minimal(self):
        made = self.ok("POST", self.environments, {"name": "box", "driver": "ssh", "config": SSH}, status=201)
        self.assertEqual((made["status"], made["description"], made["metadata"]), ("active", None, None))
        self.assertEqual([row["details"] for row in self.activity("environment.created")],
                         [{"name": "box", "driver": "ssh", "status": "active"}])

    # environment-runtime 7.68; http-api 8.9, 8.10: for isolated kinds
    def test_by_a_permitted_agent(self):
        agent = self.agent(self.acme, permissions={"canCreateAgents": True})
        made = self.ok("POST", self.environments, {"name": "box", "driver": "sandbox", "config": FAKE_CONFIG}, status=201,
                       token=agent["token"], headers={"X-Paperclip-Run-Id": RUN})
        self.assertEqual(made["status"], "active")
        row = self.activity("environment.created")[0]
        self.assertEqual((row["actorType"], row["actorId"], row["agentId"], row["runId"]),
                         ("agent", agent["id"], agent["id"], RUN))
        self.assertEqual((row["entityType"], row["entityId"]), ("environment", made["id"]))
        self.assertEqual(row["details"], {"name": "box", "driver": "sandbox", "status": "active"})
        self.assert_error(self.req("POST", self.environments, {"name": "host", "driver": "ssh", "config": SSH},
                                   token=agent["token"]), 403,
                          "Agent keys choose isolated environments only (driver). Name one, or ask the board")

    # environment-runtime 7.69; http-api 8.11
    def test_by_a_board_user_with_the_permission(self):
        user = self.board_user(self.acme, grants=["environments:manage"])
        made = self.ok("POST", self.environments, {"name": "box", "driver": "ssh", "config": SSH}, status=201,
                       token=user["token"])
        row = self.activity("environment.created")[0]
        self.assertEqual((row["actorType"], row["actorId"], row["entityId"]), ("user", user["userId"], made["id"]))
        # the permission counts in that company and for that user only
        other = self.company("Other")
        self.board_user(other, user="ann")
        self.assert_error(self.req("POST", f"/api/companies/{other['id']}/environments",
                                   {"name": "x", "driver": "ssh", "config": SSH}, token=user["token"]),
                          403, "Missing permission: environments:manage")
        wrong = self.board_user(self.acme, user="wim", grants=["agents:create"])
        self.assert_error(self.req("POST", self.environments, {"name": "x", "driver": "ssh", "config": SSH},
                                   token=wrong["token"]), 403, "Missing permission: environments:manage")

    # environment-runtime 7.70, 7.80; http-api 8.12, 8.14
    def test_without_the_permission(self):
        body = {"name": "box", "driver": "ssh", "config": SSH}
        for who in (self.board_user(self.acme), self.agent(self.acme)):
            self.assert_error(self.req("POST", self.environments, body, token=who["token"]), 403,
                              "Missing permission: environments:manage")
        self.assertEqual([e["name"] for e in self.list()], ["Local"])
        self.assertEqual(self.activity("environment.created"), [])

    # environment-runtime 7.71; http-api 8.13: for isolated kinds
    def test_by_an_agent_with_a_grant(self):
        agent = self.agent(self.acme, grants=["environments:manage"])
        self.ok("POST", self.environments, {"name": "box", "driver": "sandbox", "config": FAKE_CONFIG}, status=201,
                token=agent["token"])
        self.assertEqual(len(self.list("?driver=sandbox")), 1)
        self.assert_error(self.req("POST", self.environments, {"name": "host", "driver": "ssh", "config": SSH},
                                   token=agent["token"]), 403, contains="isolated environments only")
        self.assertEqual(self.list("?driver=ssh"), [])

    # environment-runtime 7.72; http-api 8.15
    def test_ssh_without_a_path(self):
        answer = self.req("POST", self.environments,
                          {"name": "box", "driver": "ssh", "config": {"host": "h", "username": "u"}})
        self.assert_error(answer, 422, "SSH environments require a remote workspace path.")
        self.assertEqual(answer.json["details"]["issues"][0]["path"], ["remoteWorkspacePath"])
        self.assertEqual(self.list("?driver=ssh"), [])

    # environment-runtime 7.45
    def test_two_ssh_environments(self):
        one = self.environment(self.acme, name="a", driver="ssh", config=SSH)
        two = self.environment(self.acme, name="a", driver="ssh", config=SSH)
        self.assertNotEqual(one["id"], two["id"])
        self.assertEqual(len(self.list("?driver=ssh")), 2)

    def test_second_local_one(self):
        self.assert_error(self.req("POST", self.environments, {"name": "again", "driver": "local"}), 409,
                          "A local environment already exists for this company.")
        ssh = self.environment(self.acme, driver="ssh", config=SSH)
        self.assert_error(self.req("PATCH", f"/api/environments/{ssh['id']}", {"driver": "local"}), 409,
                          "A local environment already exists for this company.")
        self.assertEqual(self.ok("GET", f"/api/environments/{ssh['id']}"), ssh)
        self.assertEqual(len(self.list("?driver=local")), 1)

    def test_second_local_one_in_parallel(self):
        local = self.local()
        self.ok("PATCH", f"/api/environments/{local['id']}", {"driver": "ssh", "config": SSH})
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.req("POST", self.environments, {"name": "l", "driver": "local"}),
                                    range(8)))
        self.assertEqual(sorted(a.status for a in answers), [201] + [409] * 7)

    def test_bad_bodies(self):
        def issues(body):
            answer = self.req("POST", self.environments, body)
            self.assert_error(answer, 400, "Validation error")
            return [(i["path"], i["message"]) for i in answer.json["details"]]

        self.assertEqual(issues({}), [(["name"], "Required"), (["driver"], "Required")])
        self.assertEqual(issues(None), [([], "Required")])
        self.assertEqual(issues([]), [([], "Expected object, received array")])
        self.assertEqual(issues({"name": "", "driver": "local"}),
                         [(["name"], "String must contain at least 1 character(s)")])
        self.assertEqual(issues({"name": 7, "driver": "moon"}),
                         [(["name"], "Expected string, received number"),
                          (["driver"], "Invalid enum value. Expected 'local' | 'ssh' | 'sandbox' | 'plugin', "
                                       "received 'moon'")])
        self.assertEqual(issues({"name": "x", "driver": "ssh", "status": "gone"}),
                         [(["status"], "Invalid enum value. Expected 'active' | 'archived', received 'gone'")])
        self.assertEqual(issues({"name": "x", "driver": "ssh", "config": [], "metadata": 1, "description": {}}),
                         [(["description"], "Expected string, received object"),
                          (["config"], "Expected object, received array"),
                          (["metadata"], "Expected object, received number")])
        self.assertEqual(issues({"name": "x", "driver": "ssh", "companyId": "y", "id": 1}),
                         [([], "Unrecognized key(s) in object: 'companyId', 'id'")])
        self.assertEqual([e["name"] for e in self.list()], ["Local"])

    def test_what_needs_plugins(self):
        self.assert_error(self.req("POST", self.environments,
                                   {"name": "x", "driver": "sandbox", "config": {"provider": "e2b"}}), 422,
                          'Sandbox provider "e2b" is not installed or its plugin worker is not running.')
        self.assert_error(self.req("POST", self.environments,
                                   {"name": "x", "driver": "plugin", "config": {"pluginKey": "a", "driverKey": "b"}}),
                          422, 'Plugin environment driver "a:b" is not ready.')

    # http-api 8.36
    def test_provider_key_of_the_wrong_form(self):
        for provider in ("Not A Key", "-x", "a/b", "UPPER"):
            answer = self.req("POST", self.environments,
                              {"name": "x", "driver": "sandbox", "config": {"provider": provider}})
            self.assert_error(answer, 422, contains="Sandbox provider key must start with a lowercase alphanumeric")
            self.assertEqual(answer.json["details"]["issues"][0]["path"], ["provider"])


class FakeProviderTest(EnvironmentsTest):
    daemon_env = {}

    # environment-runtime 7.75; http-api 8.18
    def test_fake_cannot_be_saved(self):
        for config in ({"provider": "fake"}, {}, {"image": "debian:12"}):
            self.assert_error(self.req("POST", self.environments,
                                       {"name": "x", "driver": "sandbox", "config": config}), 422, FAKE_REFUSED)
        self.assertEqual(self.list("?driver=sandbox"), [])

    # environment-runtime 7.87; http-api 8.29
    def test_nor_switched_to(self):
        ssh = self.environment(self.acme, driver="ssh", config=SSH)
        answer = self.req("PATCH", f"/api/environments/{ssh['id']}",
                          {"driver": "sandbox", "config": {"provider": "fake"}})
        self.assert_error(answer, 422, FAKE_REFUSED)
        self.assertEqual(self.ok("GET", f"/api/environments/{ssh['id']}"), ssh)
        self.assertEqual(self.activity("environment.updated"), [])

    def test_nor_leased(self):
        data = self.daemon.data
        self.daemon.stop()
        allowed = self.new_daemon(data=data, env={"BERTH_ALLOW_FAKE_PROVIDER": "1"}).start()
        made = allowed.req("POST", self.environments, {"name": "x", "driver": "sandbox", "config": {}}).json
        allowed.stop()
        self.daemon.start()
        answer = self.req("POST", f"/api/environments/{made['id']}/leases", {})
        self.assert_error(answer, 422, contains="reserved for internal probes")
        self.assertEqual(self.daemon.sql("SELECT COUNT(*) AS n FROM places"), [{"n": 0}])


class UpdatingTest(EnvironmentsTest):
    def patch(self, env, body, status=200):
        return self.ok("PATCH", f"/api/environments/{env['id']}", body, status=status)

    # environment-runtime 7.84; http-api 8.26
    def test_activity_has_no_values(self):
        made = self.environment(self.acme, name="box", driver="ssh", config=SSH)
        self.patch(made, {"status": "archived", "config": {"host": "hidden-host", "port": 2200},
                          "metadata": {"hidden-key": "hidden-value"}})
        row = self.activity("environment.updated")[0]
        self.assertEqual(row["details"], {
            "changedFields": ["config", "metadata", "status"], "status": "archived",
            "configChanged": True, "configTopLevelKeyCount": 8,
            "metadataChanged": True, "metadataTopLevelKeyCount": 1})
        self.assertEqual((row["entityType"], row["entityId"], row["actorType"], row["actorId"]),
                         ("environment", made["id"], "user", "local-board"))
        self.assertNotIn("hidden", str(self.daemon.sql("SELECT * FROM activity_log")))

    def test_activity_of_the_other_fields(self):
        made = self.environment(self.acme, name="box", driver="ssh", config=SSH)
        self.patch(made, {"name": "new", "description": "hidden", "driver": "ssh", "metadata": None})
        self.assertEqual(self.activity("environment.updated")[0]["details"], {
            "changedFields": ["config", "description", "driver", "metadata", "name"], "name": "new",
            "driver": "ssh", "descriptionChanged": True, "configChanged": True, "configTopLevelKeyCount": 8,
            "metadataChanged": True, "metadataTopLevelKeyCount": 0})

    def test_config_is_merged_while_the_driver_stays(self):
        made = self.environment(self.acme, driver="ssh", config={**SSH, "knownHosts": "k"})
        changed = self.patch(made, {"config": {"port": "2222"}})
        self.assertEqual(changed["config"], {**STORED_SSH, "port": 2222, "knownHosts": "k"})
        changed = self.patch(made, {"driver": "ssh", "config": {"knownHosts": None}})
        self.assertEqual(changed["config"], {**STORED_SSH, "port": 2222})
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}"), changed)
        # A millisecond may have room for all of this.
        wait_until(lambda: self.patch(made, {"description": "d"})["updatedAt"] > made["updatedAt"], "a time that moves on")
        self.assertEqual(changed["createdAt"], made["createdAt"])

    def test_config_is_replaced_when_told(self):
        made = self.environment(self.acme, driver="ssh", config={**SSH, "knownHosts": "k", "port": 2222})
        changed = self.patch(made, {"config": SSH, "replaceConfig": True})
        self.assertEqual(changed["config"], STORED_SSH)
        self.assertEqual(self.patch(made, {"name": "n", "replaceConfig": True})["config"], STORED_SSH)
        self.assert_status(self.req("PATCH", f"/api/environments/{made['id']}", {"config": {}, "replaceConfig": True}), 422)

    def test_null_clears(self):
        made = self.environment(self.acme, driver="ssh", config=SSH, description="d", metadata={"a": 1})
        changed = self.patch(made, {"description": None, "metadata": None})
        self.assertEqual((changed["description"], changed["metadata"]), (None, None))
        self.assertEqual(changed["config"], STORED_SSH)

    def test_nothing_to_change(self):
        made = self.environment(self.acme, driver="ssh", config=SSH)
        changed = self.patch(made, {})
        self.assertEqual({**changed, "updatedAt": None}, {**made, "updatedAt": None})
        self.assertEqual(self.activity("environment.updated")[0]["details"], {"changedFields": []})

    # environment-runtime 7.85; http-api 8.27
    def test_ssh_to_local(self):
        local = self.local()
        self.patch(local, {"driver": "ssh", "config": {**SSH, "knownHosts": "ssh.example.test ssh-ed25519 AAAA"}})
        changed = self.patch(local, {"driver": "local"})
        self.assertEqual((changed["driver"], changed["config"]), ("local", {}))
        row = self.daemon.sql("SELECT * FROM environments WHERE id = ?", (local["id"],))[0]
        self.assertEqual(row["config"], "{}")
        self.assertNotIn("AAAA", str(row))

    # environment-runtime 7.86; http-api 8.28
    def test_local_to_ssh(self):
        local = self.local()
        self.assert_error(self.req("PATCH", f"/api/environments/{local['id']}", {"driver": "ssh"}), 422,
                          "SSH environments require a host.")
        self.assertEqual(self.ok("GET", f"/api/environments/{local['id']}"), local)
        self.assertEqual(self.activity("environment.updated"), [])

    # environment-runtime 7.88; http-api 8.30
    def test_unknown(self):
        for ident in (str(uuid.uuid4()), "x", "%00", "..%2f.."):
            self.assert_error(self.req("PATCH", f"/api/environments/{ident}", {"name": "x"}), 404)
        self.assert_error(self.req("PATCH", f"/api/environments/{uuid.uuid4()}", {"name": "x"}), 404,
                          "Environment not found")
        self.assertEqual(self.activity("environment.updated"), [])

    def test_bad_bodies(self):
        made = self.environment(self.acme, driver="ssh", config=SSH)
        for body in (None, [], {"name": ""}, {"name": None}, {"status": "x"}, {"driver": None}, {"config": None},
                     {"metadata": []}, {"leasePolicy": "x"}):
            self.assert_error(self.req("PATCH", f"/api/environments/{made['id']}", body), 400, "Validation error")
        self.assert_error(self.req("PATCH", f"/api/environments/{made['id']}", {"config": {"shell": "zsh"}}), 422,
                          "Unrecognized key(s) in object: 'shell'")
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}"), made)

    def test_without_rights(self):
        made = self.environment(self.acme, driver="ssh", config=SSH)
        for who in (self.agent(self.acme), self.board_user(self.acme)):
            for method, path in (("PATCH", ""), ("DELETE", ""), ("GET", "/leases"), ("POST", "/probe"),
                                 ("GET", "/delete-blast-radius")):
                self.assert_error(self.req(method, f"/api/environments/{made['id']}{path}",
                                           {"name": "x"} if method == "PATCH" else None, token=who["token"]),
                                  403, "Missing permission: environments:manage")
        self.assertEqual(self.ok("GET", f"/api/environments/{made['id']}"), made)

    def test_parallel_changes_all_count(self):
        made = self.environment(self.acme, driver="ssh", config=SSH)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: self.req("PATCH", f"/api/environments/{made['id']}",
                                                       {"metadata": {"n": i}}), range(16)))
        self.assertEqual({a.status for a in answers}, {200})
        self.assertEqual(len(self.activity("environment.updated")), 16)


class DeletingTest(EnvironmentsTest):
    def radius(self, env):
        return self.ok("GET", f"/api/environments/{env['id']}/delete-blast-radius")

    def test_free_one(self):
        made = self.environment(self.acme, name="box", driver="ssh", config=SSH)
        self.assertEqual(self.radius(made), {
            "environmentId": made["id"], "canDelete": True, "deleteBlockedReasons": [],
            "staticReferences": {"isManagedLocal": False, "isInstanceDefault": False,
                                 "isCompanyDefault": False, "agentDefaultCount": 0,
                                 "executionWorkspaceSelectionCount": 0, "issueSelectionCount": 0,
                                 "projectSelectionCount": 0, "secretBindingCount": 0},
            "activeRuntimeUse": {"activeLeaseCount": 0, "activeCustomImageSetupSessionCount": 0,
                                 "hasActiveRuntimeUse": False},
            "pendingCleanupLeaseCount": 0, "reusableSandboxLeaseCount": 0})
        self.assertEqual(self.ok("DELETE", f"/api/environments/{made['id']}"), made)
        self.assert_error(self.req("GET", f"/api/environments/{made['id']}"), 404, "Environment not found")
        self.assert_error(self.req("DELETE", f"/api/environments/{made['id']}"), 404, "Environment not found")
        self.assert_error(self.req("GET", f"/api/environments/{made['id']}/delete-blast-radius"), 404)
        self.assertEqual([row["details"] for row in self.activity("environment.deleted")],
                         [{"name": "box", "driver": "ssh", "status": "active"}])

    def test_local_of_the_company(self):
        local = self.local()
        answer = self.req("DELETE", f"/api/environments/{local['id']}")
        self.assert_error(answer, 409, contains="archive it instead")
        self.assertEqual(answer.json["details"], {"deleteBlockedReasons": ["managed_local"]})
        self.assertEqual(self.radius(local)["deleteBlockedReasons"], ["managed_local", "company_default"])
        self.assertEqual(self.req("DELETE", f"/api/environments/{local['id']}?closeLeases=true").status, 409)

    def test_with_an_active_lease(self):
        made = self.environment(self.acme)
        lease = self.acquire(made)["lease"]
        radius = self.radius(made)
        self.assertEqual((radius["canDelete"], radius["deleteBlockedReasons"]), (False, ["active_lease"]))
        self.assertEqual(radius["activeRuntimeUse"]["activeLeaseCount"], 1)
        self.assertTrue(radius["activeRuntimeUse"]["hasActiveRuntimeUse"])
        answer = self.req("DELETE", f"/api/environments/{made['id']}")
        self.assert_error(answer, 409, contains="closeLeases=true")
        self.assertEqual(answer.json["details"], {"deleteBlockedReasons": ["active_lease"]})
        self.assertEqual(self.lease(lease)["status"], "active")
        self.release(lease)
        self.ok("DELETE", f"/api/environments/{made['id']}")
        # rows of leases go along
        self.assert_error(self.req("GET", f"/api/environment-leases/{lease['id']}"), 404,
                          "Environment lease not found")

    def test_nobody_else_s_leases(self):
        made = self.environment(self.acme, name="a")
        other = self.environment(self.acme, name="b")
        kept = self.acquire(other)["lease"]
        self.acquire(made)
        self.ok("DELETE", f"/api/environments/{made['id']}?closeLeases=true")
        self.assertEqual(self.lease(kept)["status"], "active")


class DeletingWithAWorldTest(EnvironmentsTest):
    def setUp(self):
        self.world = self.temp_dir()
        self.daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_FAKE_WORLD": str(self.world)}
        super().setUp()

    def sandboxes(self):
        return sorted(p.name for p in self.world.iterdir())

    def test_an_idle_sandbox_blocks_until_told(self):
        made = self.environment(self.acme, config={"provider": "fake", "reuseLease": True})
        self.release(self.acquire(made, heartbeatRunId=RUN))
        answer = self.req("DELETE", f"/api/environments/{made['id']}")
        self.assert_status(answer, 409)
        self.assertEqual(answer.json["details"], {"deleteBlockedReasons": ["reusable_sandbox_lease"]})
        radius = self.ok("GET", f"/api/environments/{made['id']}/delete-blast-radius")
        self.assertEqual(radius["reusableSandboxLeaseCount"], 1)
        self.assertEqual(len(self.sandboxes()), 1)
        self.ok("DELETE", f"/api/environments/{made['id']}?closeLeases=true")
        self.assertEqual(self.sandboxes(), [])

    def test_closing_everything(self):
        made = self.environment(self.acme, config={"provider": "fake", "reuseLease": True})
        idle = self.acquire(made, heartbeatRunId=RUN)
        self.acquire(made)
        self.acquire(made, heartbeatRunId=str(uuid.uuid4()))
        self.release(idle)
        self.assertEqual(len(self.sandboxes()), 3)
        for refused in ("", "?closeLeases=false", "?closeLeases=yes"):
            self.assertEqual(self.req("DELETE", f"/api/environments/{made['id']}{refused}").status, 409)
        self.ok("DELETE", f"/api/environments/{made['id']}?closeLeases=true")
        self.assertEqual(self.sandboxes(), [])
        self.assertEqual([row["details"]["status"] for row in self.activity("environment.lease_released")],
                         ["expired", "expired", "released"])
        self.assertEqual(self.daemon.sql("SELECT state FROM places WHERE state <> 'gone'"), [])

    def test_an_acquire_that_is_under_way(self):
        """Its place is on its way: the deletion waits for it and gives it up too."""
        made = self.environment(self.acme)
        held = self.acquire(made)["lease"]
        (self.world / "hold-open").touch()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            acquiring = pool.submit(self.req, "POST", f"/api/environments/{made['id']}/leases", {})
            wait_until(lambda: self.daemon.sql("SELECT 1 FROM places WHERE state = 'intended'"), "the provider is asked")
            deleting = pool.submit(self.req, "DELETE", f"/api/environments/{made['id']}?closeLeases=true")
            wait_until(lambda: not self.daemon.sql("SELECT 1 FROM environment_leases WHERE id = ? AND status = 'active'",
                                                   (held["id"],)), "the deletion is at it")
            (self.world / "hold-open").unlink()
            self.assert_status(deleting.result(), 200)
            acquiring.result()  # it may have had its lease, for a moment
        self.assertEqual(self.sandboxes(), [])

    def test_a_provider_that_fails_keeps_it(self):
        made = self.environment(self.acme)
        self.acquire(made)
        (self.world / "fail-close").touch()
        answer = self.req("DELETE", f"/api/environments/{made['id']}?closeLeases=true")
        self.assert_status(answer, 409)
        self.assertEqual(answer.json["details"], {"deleteBlockedReasons": ["pending_sandbox_cleanup"]})
        radius = self.ok("GET", f"/api/environments/{made['id']}/delete-blast-radius")
        self.assertEqual(radius["pendingCleanupLeaseCount"], 1)
        self.assertEqual(len(self.sandboxes()), 2)  # fail-close, and what could not be closed
        (self.world / "fail-close").unlink()


if __name__ == "__main__":
    unittest.main()
