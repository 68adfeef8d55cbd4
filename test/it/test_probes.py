"""Probes of saved and of unsaved environments."""

import os
import socket
import unittest
import uuid

from berthtest import FAKE_CONFIG, BerthTest

RUN = "7e0a33f4-5a5c-4d55-9c5e-3f3f6f4d9b01"
SSH = {"host": "127.0.0.1", "port": 1, "username": "deploy", "remoteWorkspacePath": "/srv/work"}
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0LWtleS1tYXRlcmlhbA==\n-----END OPENSSH PRIVATE KEY-----"


class ProbesTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.environments = f"/api/companies/{self.acme['id']}/environments"

    def probe(self, env, **more):
        return self.ok("POST", f"/api/environments/{env['id']}/probe", **more)

    def probe_config(self, body, **more):
        return self.req("POST", f"{self.environments}/probe-config", body, **more)

    def activity(self, action):
        rows = self.ok("GET", f"/api/companies/{self.acme['id']}/activity?limit=500")
        return [row for row in rows if row["action"] == action]

    def tables(self):
        return {table: self.daemon.sql(f"SELECT * FROM {table}")
                for table in ("environments", "environment_leases", "places", "company_secrets",
                              "company_secret_versions", "company_secret_bindings")}


class SavedTest(ProbesTest):
    # environment-runtime 7.56; http-api 8.34
    def test_local(self):
        local = self.ok("GET", f"{self.environments}?driver=local")[0]
        answer = self.probe(local)
        self.assertEqual(answer, {
            "ok": True, "driver": "local", "summary": "Local environment is available on this Paperclip host.",
            "details": {"hostname": socket.gethostname(), "cwd": os.getcwd()}})
        rows = self.activity("environment.probed")
        self.assertEqual([(r["entityType"], r["entityId"], r["details"]) for r in rows],
                         [("environment", local["id"],
                           {"driver": "local", "ok": True, "summary": answer["summary"]})])

    # environment-runtime 7.58, 7.90; http-api 8.32
    def test_fake_sandbox(self):
        env = self.environment(self.acme, config={"provider": "fake", "image": "debian:12", "reuseLease": True})
        before = self.tables()
        agent = self.agent(self.acme, permissions={"canCreateAgents": True})
        answer = self.probe(env, token=agent["token"], headers={"X-Paperclip-Run-Id": RUN})
        self.assertEqual(answer, {
            "ok": True, "driver": "sandbox", "summary": "Fake sandbox provider is ready for image debian:12.",
            "details": {"provider": "fake", "image": "debian:12", "reuseLease": True}})
        row = self.activity("environment.probed")[0]
        self.assertEqual((row["entityId"], row["agentId"], row["runId"]), (env["id"], agent["id"], RUN))
        self.assertEqual(row["details"], {"driver": "sandbox", "ok": True, "summary": answer["summary"]})
        self.assertEqual(self.tables(), before)

    # environment-runtime 7.61; http-api 8.35
    def test_ssh_that_fails(self):
        env = self.environment(self.acme, driver="ssh", config=SSH)
        answer = self.probe(env)
        self.assertEqual((answer["ok"], answer["driver"], answer["summary"]),
                         (False, "ssh", "SSH probe failed for deploy@127.0.0.1."))
        self.assertEqual({k: v for k, v in answer["details"].items() if k not in ("error", "code")}, SSH)
        self.assertTrue(answer["details"]["error"])
        self.assertIn("code", answer["details"])
        self.assertEqual(self.activity("environment.probed")[0]["details"],
                         {"driver": "ssh", "ok": False, "summary": answer["summary"]})

    def test_an_archived_one_may_be_probed(self):
        self.assertTrue(self.probe(self.environment(self.acme, status="archived"))["ok"])

    def test_unknown(self):
        for ident in (str(uuid.uuid4()), "nonsense"):
            self.assert_error(self.req("POST", f"/api/environments/{ident}/probe"), 404, "Environment not found")
        self.assertEqual(self.activity("environment.probed"), [])


class UnsavedTest(ProbesTest):
    daemon_env = {}  # probing the fake provider is what it is for

    def test_local(self):
        answer = self.probe_config({"driver": "local", "config": {"anything": 1}})
        self.assert_status(answer, 200)
        self.assertTrue(answer.json["ok"])
        self.assertEqual(self.activity("environment.probed_unsaved")[0]["details"]["configTopLevelKeyCount"], 1)

    def test_fake_sandbox(self):
        before = self.tables()
        answer = self.probe_config({"driver": "sandbox", "name": "try", "description": None, "metadata": {"a": 1},
                                    "config": {"image": " debian:12 "}})
        self.assert_status(answer, 200)
        self.assertEqual(answer.json, {
            "ok": True, "driver": "sandbox", "summary": "Fake sandbox provider is ready for image debian:12.",
            "details": {"provider": "fake", "image": "debian:12", "reuseLease": False}})
        row = self.activity("environment.probed_unsaved")[0]
        self.assertEqual((row["entityType"], row["entityId"]), ("environment", "unsaved"))
        self.assertEqual(row["details"], {"driver": "sandbox", "ok": True, "summary": answer.json["summary"],
                                          "configTopLevelKeyCount": 3})
        self.assertEqual(self.tables(), before)

    # environment-runtime 7.91; http-api 8.33
    def test_nothing_is_stored_of_a_private_key(self):
        before = self.tables()
        answer = self.probe_config({"driver": "ssh", "name": "box", "config": {**SSH, "privateKey": KEY}})
        self.assert_status(answer, 200)
        self.assertEqual((answer.json["ok"], answer.json["driver"]), (False, "ssh"))
        self.assertNotIn("c2VjcmV0", answer.text)
        self.assertEqual(self.tables(), before)
        row = self.activity("environment.probed_unsaved")[0]
        self.assertEqual((row["entityId"], row["details"]["driver"], row["details"]["ok"]), ("unsaved", "ssh", False))
        for table in ("activity_log", "environments"):
            self.assertNotIn("c2VjcmV0", str(self.daemon.sql(f"SELECT * FROM {table}")))
        for file in self.daemon.data.iterdir():
            if file.is_file():
                self.assertNotIn(b"c2VjcmV0", file.read_bytes())
        self.assertNotIn("c2VjcmV0", self.daemon.log())

    def test_refusals(self):
        for body, text in (
                ({"driver": "ssh", "config": {}}, "SSH environments require a host."),
                ({"driver": "ssh"}, "SSH environments require a host."),
                ({"driver": "sandbox", "config": {"provider": "Bad Key"}}, None),
                ({"driver": "sandbox", "config": {"image": ""}}, "Fake sandbox environments require an image."),
                ({"driver": "sandbox", "config": {"provider": "e2b"}},
                 'Sandbox provider "e2b" is not installed or its plugin worker is not running.'),
                ({"driver": "plugin", "config": {"pluginKey": "a", "driverKey": "b"}},
                 'Plugin environment driver "a:b" is not ready.')):
            with self.subTest(body=body):
                self.assert_error(self.probe_config(body), 422, text)
        for body in (None, [], {}, {"driver": "x"}, {"driver": "local", "status": "active"},
                     {"driver": "local", "config": []}, {"driver": "local", "name": 1}, {"driver": None}):
            with self.subTest(body=body):
                self.assert_error(self.probe_config(body), 400, "Validation error")
        self.assert_error(self.req("POST", f"/api/companies/{uuid.uuid4()}/environments/probe-config",
                                   {"driver": "local"}), 404, "Company not found")
        self.assertEqual(self.activity("environment.probed_unsaved"), [])

    def test_who_may(self):
        for who in (self.agent(self.acme), self.board_user(self.acme)):
            self.assert_error(self.probe_config({"driver": "local"}, token=who["token"]), 403,
                              "Missing permission: environments:manage")
        agent = self.agent(self.acme, name="Bob", permissions={"canCreateAgents": True})
        self.assert_status(self.probe_config({"driver": "sandbox", "config": FAKE_CONFIG}, token=agent["token"]), 200)
        # It could otherwise have us connect anywhere.
        self.assert_error(self.probe_config({"driver": "ssh", "config": SSH}, token=agent["token"]), 403,
                          "Agent keys choose isolated environments only (driver). Name one, or ask the board")


if __name__ == "__main__":
    unittest.main()
