"""Leases whose place a plugin's worker keeps: what the worker is asked, with what, and what is recorded."""
# threads: late answers of a worker beside the sweeper

import ctypes
import json
import pathlib

import berthtest
from berthtest import wait_until
from providertest import KEY, RUN, ProviderTest, manifest

RUN2 = "44444444-4444-4444-8444-444444444444"
HOST_KEYS = {"driver", "executionWorkspaceMode", "pluginId", "pluginKey", "providerMetadata", "provider",
             "sandboxProviderPlugin", "$plugin", "$lease"}


class SandboxTest(ProviderTest):
    # environment-runtime 7.11, 7.12, 7.14, 7.20, 7.113: one life, every call, with one right
    def test_whole_life(self):
        plugin = self.ok("GET", f"/api/plugins/{self.provider.id}")
        self.assertEqual(plugin["manifestJson"]["capabilities"], ["environment.drivers.register"])
        env = self.sandbox(timeoutMs=1234, bridgeRequestTimeoutMs=40000)
        lease = self.take(env, heartbeatRunId=RUN)
        wanted = {"image": "i", "timeoutMs": 1234, "bridgeRequestTimeoutMs": 40000, "reuseLease": False}
        self.assertEqual(self.provider.calls("environmentAcquireLease"), [{
            "driverKey": "acme", "companyId": self.company_id, "environmentId": env["id"], "issueId": None,
            "config": wanted, "runId": RUN}])
        self.assertEqual(lease["metadata"], {
            "driver": "sandbox", "executionWorkspaceMode": None, "pluginId": self.provider.id, "pluginKey": KEY,
            "sandboxProviderPlugin": True, "provider": "acme", **wanted, "sandboxId": lease["providerLeaseId"],
            "remoteCwd": "/work"})
        ran = self.ok("POST", f"/api/environment-leases/{lease['id']}/execute",
                      {"command": "make", "args": ["all"], "env": {"A": "1"}, "timeoutMs": 1000})
        self.assertEqual((ran["exitCode"], ran["stdout"], ran["stderr"]), (3, "ran make\n", "oops\n"))
        workspace = {"localPath": str(self.temp_dir()), "mode": "isolated"}
        realized = self.ok("POST", f"/api/environment-leases/{lease['id']}/realize-workspace",
                           {"workspace": workspace})
        self.assertEqual(realized, {"cwd": "/work", "metadata": {"given": workspace}})
        self.assertEqual(self.release(lease)["lease"]["cleanupStatus"], "success")
        execute = self.provider.calls("environmentExecute")[0]
        self.assertEqual((execute["command"], execute["args"], execute["env"], execute["timeoutMs"]),
                         ("make", ["all"], {"A": "1"}, 1000))
        self.assertEqual(execute["lease"], {"providerLeaseId": lease["providerLeaseId"],
                                            "metadata": lease["metadata"], "expiresAt": None})
        self.assertNotIn("stdin", execute)
        release = self.provider.calls("environmentReleaseLease")[0]
        self.assertEqual((release["providerLeaseId"], release["leaseMetadata"]),
                         (lease["providerLeaseId"], lease["metadata"]))
        for call in self.provider.calls():
            if call["method"] != "environmentValidateConfig":
                self.assertEqual(call["params"]["config"], wanted, call["method"])
                self.assertEqual(call["paperclipInvocation"]["scope"], {"companyId": self.company_id})
        self.assertEqual(self.limits("Execute"), [31000])
        # environment-runtime 7.19
        self.assertEqual(self.limits("AcquireLease") + self.limits("ReleaseLease"), [70000, 70000])
        self.assertEqual(self.provider.world(), set())

    # environment-runtime 7.13, 7.17
    def test_release_after_the_environment_became_another(self):
        env = self.sandbox(timeoutMs=1234)
        lease = self.take(env, heartbeatRunId=RUN)
        self.ok("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "x"})
        self.assertEqual(self.limits("Execute"), [31234])
        self.change(env, driver="ssh", config={"host": "h", "username": "u", "remoteWorkspacePath": "/w"})
        ended = self.release(lease)["lease"]
        self.assertEqual((ended["status"], ended["cleanupStatus"]), ("released", "success"))
        self.assertEqual(self.limits("ReleaseLease"), [31234])
        config = self.provider.calls("environmentReleaseLease")[0]["config"]
        self.assertEqual(config, {"image": "i", "timeoutMs": 1234, "reuseLease": False})
        self.assertFalse(HOST_KEYS & set(config))

    # environment-runtime 7.16 and the pruning of section 3.5: what a provider repeats of a secret is not kept
    @berthtest.sqlite_only
    def test_secrets_are_stripped_from_metadata(self):
        self.provider.behave(AcquireLease={"more": {"metadata": {
            "apiKey": "plain", "sandboxId": "s", "driver": "local", "pluginId": "x", "provider": "y"}}})
        lease = self.take(self.sandbox(), heartbeatRunId=RUN)
        self.assertNotIn("apiKey", lease["metadata"])
        self.assertEqual(lease["metadata"]["sandboxId"], "s")
        # nothing that leads later calls can be set by a provider
        self.assertEqual((lease["metadata"]["driver"], lease["metadata"]["pluginId"], lease["metadata"]["provider"]),
                         ("sandbox", self.provider.id, "acme"))
        self.assertNotIn("plain", str(self.places()) + str(self.daemon.sql("SELECT * FROM environment_leases")))

    # environment-runtime 7.1, 7.21, 7.108
    def test_resume(self):
        env = self.sandbox(reuseLease=True, timeoutMs=1234)
        first = self.take(env, heartbeatRunId=RUN)
        self.assertEqual(first["leasePolicy"], "reuse_by_environment")
        self.release(first)
        self.assertEqual(self.provider.world(), {first["providerLeaseId"]})  # paused, not removed
        second = self.take(env, heartbeatRunId=RUN2)
        self.assertEqual(second["providerLeaseId"], first["providerLeaseId"])
        self.assertEqual(self.provider.methods(), ["AcquireLease", "ReleaseLease", "ResumeLease"])
        self.assertEqual(self.limits("ResumeLease"), [31234])
        resumed = self.provider.calls("environmentResumeLease")[0]
        self.assertEqual((resumed["providerLeaseId"], resumed["leaseMetadata"]),
                         (first["providerLeaseId"], first["metadata"]))
        self.release(second)
        # another configuration is another sandbox, and the old one goes
        self.change(env, config={"image": "j"})
        third = self.take(env, heartbeatRunId=RUN)
        self.assertNotEqual(third["providerLeaseId"], first["providerLeaseId"])
        wait_until(lambda: self.provider.world() == {third["providerLeaseId"]}, "the old one is destroyed")
        self.assertIn("DestroyLease", self.provider.methods())

    # environment-runtime 7.22
    def test_resume_that_fails(self):
        env = self.sandbox(reuseLease=True)
        first = self.take(env, heartbeatRunId=RUN)
        self.release(first)
        self.provider.behave(ResumeLease={"error": {"code": -32002, "message": "no"}})
        second = self.take(env, heartbeatRunId=RUN2)
        self.assertNotEqual(second["providerLeaseId"], first["providerLeaseId"])
        self.assertEqual(self.provider.methods(),
                         ["AcquireLease", "ReleaseLease", "ResumeLease", "AcquireLease", "DestroyLease"])
        acquire = self.provider.calls("environmentAcquireLease")[1]
        self.assertEqual(acquire["runId"], RUN2)
        self.assertNotIn("provider", acquire["config"])
        self.assertEqual(self.provider.world(), {second["providerLeaseId"]})

    def test_resume_of_what_is_gone(self):
        env = self.sandbox(reuseLease=True)
        first = self.take(env, heartbeatRunId=RUN)
        self.release(first)
        (self.provider.dir / "world" / first["providerLeaseId"]).unlink()
        self.assertNotEqual(self.take(env, heartbeatRunId=RUN2)["providerLeaseId"], first["providerLeaseId"])

    # environment-runtime 7.18: section 4.5, a worker that comes up while an acquire waits
    def test_waits_for_a_worker(self):
        env = self.sandbox()
        self.provider.behave(Probe={"exit": 1})
        self.assertFalse(self.ok("POST", f"/api/environments/{env['id']}/probe")["ok"])
        self.assertTrue(self.take(env, heartbeatRunId=RUN)["providerLeaseId"])

    def test_states_of_a_provider(self):
        env = self.sandbox()
        self.ok("POST", f"/api/plugins/{self.provider.id}/disable", {})
        answer = self.req("POST", f"/api/environments/{env['id']}/leases", {})
        self.assert_error(answer, 422, 'Sandbox provider "acme" is installed via plugin "acme.provider", but that '
                                       "plugin is currently disabled.")
        self.assertFalse(self.places())
        probe = self.ok("POST", f"/api/environments/{env['id']}/probe")
        self.assertEqual((probe["ok"], probe["summary"]),
                         (False, 'Sandbox provider "acme" is not installed or its plugin worker is not running.'))
        self.ok("POST", f"/api/plugins/{self.provider.id}/enable", {})
        self.take(env)

    # The environments of a provider, and the secrets in them, are its plugin's as long as that is installed.
    def test_another_plugin_does_not_take_its_key(self):
        env = self.sandbox(apiKey="the key")
        older = self.install_provider(key="evil.older", environmentDrivers=[{
            "driverKey": "evil", "kind": "sandbox_provider", "displayName": "Evil", "configSchema": {"type": "object"}}])
        other = self.install_provider(key="evil.provider")
        self.provider.behave(Probe={"exit": 1})
        self.assertFalse(self.ok("POST", f"/api/environments/{env['id']}/probe")["ok"])
        self.ok("POST", f"/api/plugins/{self.provider.id}/disable", {})
        self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {}), 422, contains="currently disabled")
        self.assertFalse(self.ok("POST", f"/api/environments/{env['id']}/probe")["ok"])
        self.assertEqual((other.calls(), older.calls()), ([], []))
        # Nor does one that has been there for longer, with its next version.
        self.ok("DELETE", f"/api/plugins/{self.provider.id}")
        path = pathlib.Path(self.ok("GET", f"/api/plugins/{older.id}")["packagePath"])
        (path / "manifest.js").write_text(f"export default {json.dumps(manifest(key='evil.older', version='1.0.1'))}")
        self.assert_error(self.req("POST", f"/api/plugins/{older.id}/upgrade", {}), 409, contains='sandbox provider "acme"')
        self.take(env)
        self.assertEqual((len(other.calls("environmentAcquireLease")), older.calls()), (1, []))

    def test_release_while_the_plugin_is_off(self):
        env = self.sandbox()
        lease = self.take(env, heartbeatRunId=RUN)
        self.ok("POST", f"/api/plugins/{self.provider.id}/disable", {})
        ended = self.release(lease)["lease"]
        self.assertEqual((ended["status"], ended["cleanupStatus"]), ("released", "failed"))
        self.assertEqual(len(self.provider.world()), 1)
        self.ok("POST", f"/api/plugins/{self.provider.id}/enable", {})
        wait_until(lambda: not self.provider.world(), "it is cleaned up by itself", 30)
        wait_until(lambda: not self.places("state <> 'gone'"), "and recorded")

    def test_expiry_of_the_provider(self):
        self.provider.behave(AcquireLease={"more": {"expiresAt": "2099-01-01T00:00:00.000Z"}})
        lease = self.take(self.sandbox(), heartbeatRunId=RUN)
        self.assertEqual(lease["expiresAt"], "2099-01-01T00:00:00.000Z")
        self.provider.behave(AcquireLease={"more": {"expiresAt": "soon"}})
        self.assertIsNone(self.take(self.sandbox("b2"), heartbeatRunId=RUN)["expiresAt"])

    # environment-runtime 7.114: a worker without the method
    def test_method_that_is_missing(self):
        self.provider.behave(Execute={"error": {"code": -32004,
                                                "message": "environmentExecute is not implemented by this plugin"}})
        lease = self.take(self.sandbox(), heartbeatRunId=RUN)
        answer = self.req("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "x"})
        self.assert_error(answer, 422, "environmentExecute is not implemented by this plugin")


class SecretTest(ProviderTest):
    VALUE = "tok_very_secret_value"

    # environment-runtime 7.15, 7.16, 7.77; plugin-protocol 6.3.15; http-api 8.21
    def test_value_reaches_the_worker_and_nothing_else(self):
        echo = {"apiKey": self.VALUE, "sandboxId": "s"}
        self.provider.behave(AcquireLease={"more": {"metadata": echo}, "log": f"key is {self.VALUE}"})
        env = self.sandbox(apiKey=f"  {self.VALUE} ")
        ref = env["config"]["apiKey"]
        self.assertRegex(ref, r"^[0-9a-f-]{36}$")
        self.assertEqual([row["id"] for row in self.ok("GET", f"/api/companies/{self.company_id}/secrets")], [ref])
        lease = self.take(env, heartbeatRunId=RUN)
        self.assertEqual((lease["metadata"]["apiKey"], lease["metadata"]["sandboxId"]), (ref, "s"))
        self.ok("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "x"})
        self.provider.behave(Probe={"error": {"code": -32002, "message": f"bad key {self.VALUE}"}})
        probe = self.ok("POST", f"/api/environments/{env['id']}/probe")
        self.assertNotIn(self.VALUE, str(probe))
        self.release(lease)
        for method in ("AcquireLease", "Execute", "ReleaseLease", "Probe"):
            self.assertEqual(self.provider.calls(f"environment{method}")[0]["config"]["apiKey"], self.VALUE, method)
        tables = self.daemon.tables()
        for table in tables:
            self.assertNotIn(self.VALUE, str(self.daemon.sql(f"SELECT * FROM {table}")), table)
        self.assertNotIn(self.VALUE, self.daemon.log())
        self.assertNotIn(self.VALUE, str(self.ok("GET", f"/api/plugins/{self.provider.id}/logs")))

    # What a lease was opened with can still be given up when the environment has dropped the secret (H12).
    def test_release_after_the_secret_was_dropped(self):
        env = self.sandbox(apiKey=self.VALUE)
        lease = self.take(env, heartbeatRunId=RUN)
        self.change(env, driver="ssh", config={"host": "h", "username": "u", "remoteWorkspacePath": "/w"})
        self.assertEqual(self.release(lease)["lease"]["cleanupStatus"], "success")
        self.assertEqual(self.provider.calls("environmentReleaseLease")[0]["config"]["apiKey"], self.VALUE)

    # environment-runtime 7.108, its part on secrets: references are compared, not values
    def test_reuse_by_reference(self):
        env = self.sandbox(apiKey=self.VALUE, reuseLease=True)
        first = self.take(env, heartbeatRunId=RUN)
        self.release(first)
        self.assertEqual(self.take(env, heartbeatRunId=RUN2)["providerLeaseId"], first["providerLeaseId"])


class ConfiguredSecretsTest(ProviderTest):
    daemon_env = {**ProviderTest.daemon_env, "PAPERCLIP_SECRETS_PROVIDER": "gcp_secret_manager"}

    # environment-runtime 7.78
    def test_the_setting_decides_where_the_value_goes(self):
        path = f"/api/companies/{self.company_id}/environments"
        body = {"name": "box", "driver": "sandbox", "config": {"provider": "acme", "image": "i", "apiKey": "value"}}
        self.assert_error(self.req("POST", path, body), 422,
                          "gcp_secret_manager provider is not configured for Paperclip-managed values")
        self.assertEqual(self.ok("GET", f"{path}?driver=sandbox"), [])
        self.assertEqual(self.sandbox()["config"]["image"], "i")


class ConfigTest(ProviderTest):
    # environment-runtime 7.76; http-api 8.19, 8.20
    def test_worker_checks_what_is_saved(self):
        self.provider.behave(ValidateConfig={"result": {"ok": True, "normalizedConfig": {"image": "normal", "n": 1}}})
        env = self.sandbox(image="  raw ", extra=True)
        self.assertEqual(env["config"], {"provider": "acme", "image": "normal", "n": 1})
        self.assertEqual(self.provider.calls("environmentValidateConfig"),
                         [{"driverKey": "acme", "config": {"image": "  raw ", "extra": True, "reuseLease": False}}])
        self.assertNotIn("paperclipInvocation", self.provider.calls()[0])
        self.assertEqual(self.ok("GET", f"/api/companies/{self.company_id}/secrets"), [])

    # Its key would be sent to whatever address the agent names, and any secret of the company with it.
    def test_an_agents_key_does_not_configure_it(self):
        env = self.sandbox(apiKey="the board's", image="https://good.example")
        secret = self.ok("POST", f"/api/companies/{self.company_id}/secrets", {"name": "OTHER", "value": "x"}, 201)["id"]
        agent = self.agent({"id": self.company_id}, permissions={"canCreateAgents": True}, defaultEnvironmentId=env["id"])
        path, all = f"/api/environments/{env['id']}", f"/api/companies/{self.company_id}/environments"
        there = {"provider": "acme", "image": "https://bad.example"}
        own = self.ok("POST", all, {"name": "own", "driver": "sandbox", "config": {"provider": "berth"}}, 201, token=agent["token"])
        for method, where, body in (
                ("PATCH", path, {"config": {"image": "https://bad.example"}}), ("PATCH", path, {"config": {"apiKey": secret}}),
                ("PATCH", path, {"config": {"provider": "berth"}, "replaceConfig": True}),
                ("PATCH", f"/api/environments/{own['id']}", {"config": there, "replaceConfig": True}),
                ("POST", all, {"name": "mine", "driver": "sandbox", "config": there}),
                ("POST", all, {"name": "mine", "driver": "sandbox", "config": {**there, "apiKey": secret}}),
                ("POST", f"{all}/probe-config", {"driver": "sandbox", "config": there})):
            with self.subTest(method=method, body=body):
                self.assert_error(self.req(method, where, body, token=agent["token"]), 403, contains="config.provider")
        self.assertEqual(self.ok("PATCH", path, {"name": "Renamed"}, token=agent["token"])["name"], "Renamed")
        self.ok("POST", f"{path}/probe", {}, token=agent["token"])
        self.assertEqual([(p["config"]["image"], p["config"]["apiKey"]) for p in self.provider.calls("environmentProbe")],
                         [("https://good.example", "the board's")])

    def test_worker_refuses(self):
        self.provider.behave(ValidateConfig={"result": {"ok": False, "errors": ["first", "second"], "warnings": ["w"]}})
        path = f"/api/companies/{self.company_id}/environments"
        answer = self.req("POST", path, {"name": "x", "driver": "sandbox", "config": {"provider": "acme"}})
        self.assert_error(answer, 422, "first")
        self.assertEqual(answer.json["details"], {"errors": ["first", "second"], "warnings": ["w"]})
        self.provider.behave(ValidateConfig={"result": {"ok": False}})
        answer = self.req("POST", path, {"name": "x", "driver": "sandbox", "config": {"provider": "acme"}})
        self.assert_error(answer, 422, 'Sandbox provider "acme" rejected its config.')
        self.assert_error(self.req("POST", path, {"name": "x", "driver": "sandbox", "config": {"provider": "e2b"}}), 422,
                          'Sandbox provider "e2b" is not installed or its plugin worker is not running.')
        for plugin, driver, text in (
                ("nobody", "machine", 'Plugin environment driver "nobody:machine" is not ready.'),
                (KEY, "other", f'Plugin "{KEY}" does not declare environment driver "other".')):
            answer = self.req("POST", path, {"name": "x", "driver": "plugin",
                                             "config": {"pluginKey": plugin, "driverKey": driver}})
            self.assert_error(answer, 422, text)

    # environment-runtime 7.79; http-api 8.22
    def test_plugin_environment(self):
        self.provider.behave(ValidateConfig={"result": {"ok": True, "normalizedConfig": {"size": 2}}})
        env = self.machine(size="2")
        self.assertEqual(env["config"], {"pluginKey": KEY, "driverKey": "machine", "driverConfig": {"size": 2}})

    # environment-runtime 7.59, 7.60
    def test_probes(self):
        env = self.sandbox(timeoutMs=5)
        probe = self.ok("POST", f"/api/environments/{env['id']}/probe")
        self.assertEqual(probe, {
            "ok": True, "driver": "sandbox", "summary": 'Sandbox provider "acme" probe passed.',
            "details": {"provider": "acme", "pluginKey": KEY, "diagnostics": [],
                        "metadata": {"seen": ["image", "reuseLease", "timeoutMs"]}}})
        self.assertEqual(self.provider.calls("environmentProbe"), [{
            "driverKey": "acme", "companyId": self.company_id, "environmentId": env["id"],
            "config": {"image": "i", "timeoutMs": 5, "reuseLease": False}}])
        self.assertEqual(self.limits("Probe"), [120000])
        machine = self.machine(a=1)
        probe = self.ok("POST", f"/api/environments/{machine['id']}/probe")
        self.assertEqual(probe["summary"], f'Plugin environment driver "{KEY}:machine" probe passed.')
        unsaved = self.ok("POST", f"/api/companies/{self.company_id}/environments/probe-config",
                          {"driver": "sandbox", "config": {"provider": "acme", "apiKey": "pasted"}})
        self.assertTrue(unsaved["ok"])
        call = self.provider.calls("environmentProbe")[-1]
        self.assertEqual((call["environmentId"], call["config"]["apiKey"]), ("unsaved", "pasted"))
        self.provider.behave(Probe={"error": {"code": -32002, "message": "no route"}})
        probe = self.ok("POST", f"/api/environments/{env['id']}/probe")
        self.assertEqual((probe["ok"], probe["summary"]), (False, 'Sandbox provider "acme" probe failed.'))
        self.assertEqual(probe["details"]["diagnostics"], [{"severity": "error", "message": "no route"}])


class PluginDriverTest(ProviderTest):
    # environment-runtime 7.24-7.26, 7.28-7.30
    def test_whole_life(self):
        self.provider.behave(AcquireLease={"more": {"expiresAt": "2099-01-01T00:00:00.000Z", "metadata": {
            "driver": "x", "pluginId": "x", "pluginKey": "x", "driverKey": "x", "executionWorkspaceMode": "x", "own": 1}}})
        env = self.machine(size=2)
        lease = self.take(env, heartbeatRunId=RUN)
        self.assertEqual(self.provider.calls("environmentAcquireLease"), [{
            "driverKey": "machine", "companyId": self.company_id, "environmentId": env["id"], "issueId": None,
            "config": {"size": 2}, "runId": RUN}])
        self.assertEqual(self.limits("AcquireLease"), [0])  # the default of a call
        self.assertEqual(lease["provider"], f"plugin:{KEY}:machine")
        self.assertEqual(lease["leasePolicy"], "ephemeral")
        self.assertEqual(lease["expiresAt"], "2099-01-01T00:00:00.000Z")
        self.assertEqual(lease["metadata"], {
            "driver": "plugin", "executionWorkspaceMode": None, "pluginId": self.provider.id, "pluginKey": KEY,
            "driverKey": "machine", "providerMetadata": {
                "driver": "x", "pluginId": "x", "pluginKey": "x", "driverKey": "x", "executionWorkspaceMode": "x",
                "own": 1}})
        resumed = self.ok("POST", f"/api/environment-leases/{lease['id']}/resume")
        self.assertEqual(resumed["providerLeaseId"], lease["providerLeaseId"])
        self.assertEqual(self.provider.calls("environmentResumeLease")[0]["leaseMetadata"], lease["metadata"])
        workspace = {"localPath": str(self.temp_dir())}
        realized = self.ok("POST", f"/api/environment-leases/{lease['id']}/realize-workspace",
                           {"workspace": workspace})
        self.assertEqual(realized, {"cwd": "/work", "metadata": {"given": workspace}})
        self.ok("POST", f"/api/environment-leases/{lease['id']}/execute",
                {"command": "c", "args": ["a"], "cwd": "/d", "env": {"E": "1"}, "timeoutMs": 1000})
        call = self.provider.calls("environmentExecute")[0]
        self.assertEqual([call[k] for k in ("command", "args", "cwd", "env", "config")],
                         ["c", ["a"], "/d", {"E": "1"}, {"size": 2}])
        self.assertEqual(self.limits("Execute"), [31000])
        ended = self.release(lease)["lease"]
        self.assertEqual((ended["status"], ended["cleanupStatus"]), ("released", None))
        self.assertEqual(self.provider.world(), set())

    # environment-runtime 7.27
    def test_release_after_the_environment_became_another(self):
        env = self.machine(size=2)
        lease = self.take(env, heartbeatRunId=RUN)
        self.change(env, driver="ssh", config={"host": "h", "username": "u", "remoteWorkspacePath": "/w"})
        self.assertEqual(self.release(lease)["lease"]["status"], "released")
        call = self.provider.calls("environmentReleaseLease")[0]
        self.assertEqual((call["config"], call["providerLeaseId"], call["leaseMetadata"]),
                         ({}, lease["providerLeaseId"], lease["metadata"]))

    # environment-runtime 7.31
    def test_destroy(self):
        lease = self.take(self.machine(), heartbeatRunId=RUN)
        ended = self.ok("POST", f"/api/environment-leases/{lease['id']}/destroy")
        self.assertEqual(ended.get("lease", ended)["status"], "failed")
        self.assertEqual(self.provider.methods(), ["AcquireLease", "DestroyLease"])
        call = self.provider.calls("environmentDestroyLease")[0]
        self.assertEqual((call["providerLeaseId"], call["leaseMetadata"]), (lease["providerLeaseId"], lease["metadata"]))

    # environment-runtime 7.115, its lease part: the run, its mode, and the way back
    def test_run(self):
        lease = self.take(self.machine(), heartbeatRunId=RUN, executionWorkspaceMode="shared_workspace")
        call = self.provider.calls("environmentAcquireLease")[0]
        self.assertEqual((call["workspaceMode"], call["runId"]), ("shared_workspace", RUN))
        released = self.ok("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})
        self.assertEqual([r["lease"]["id"] for r in released], [lease["id"]])
        self.assertEqual(self.provider.calls("environmentReleaseLease")[0]["leaseMetadata"], lease["metadata"])

    def test_lease_without_an_id(self):
        self.provider.behave(AcquireLease={"result": {"providerLeaseId": None}})
        lease = self.take(self.machine(), heartbeatRunId=RUN)
        self.assertIsNone(lease["providerLeaseId"])
        self.assert_error(self.req("POST", f"/api/environment-leases/{lease['id']}/resume"), 422,
                          f'Plugin environment lease "{lease["id"]}" does not have a provider lease id to resume.')
        self.release(lease)
        self.assertIsNone(self.provider.calls("environmentReleaseLease")[0]["providerLeaseId"])


class PinnedTest(ProviderTest):
    def test_later_calls_go_to_the_plugin_of_the_lease(self):
        env = self.sandbox()
        lease = self.take(env, heartbeatRunId=RUN)
        other = self.install_provider(key="acme.second")
        path = self.ok("GET", f"/api/plugins/{self.provider.id}")["packagePath"]
        self.ok("DELETE", f"/api/plugins/{self.provider.id}")
        second = self.take(env, heartbeatRunId=RUN2)
        self.assertEqual(second["metadata"]["pluginKey"], "acme.second")
        self.ok("POST", "/api/plugins/install", {"packageName": path, "isLocalPath": True})
        self.assertEqual(self.take(env)["metadata"]["pluginKey"], "acme.second")
        self.release(lease)
        self.release(second)
        self.assertEqual(self.provider.methods()[-1], "ReleaseLease")
        self.assertEqual(other.methods(), ["AcquireLease", "AcquireLease", "ReleaseLease"])


class ConfinedTest(ProviderTest):
    """The worker writes into its own directory and nowhere else, and reads little more than its package."""

    @berthtest.sqlite_only
    def test_files(self):
        secret = self.daemon.data / "berth.db"
        self.assertTrue(secret.exists())
        worker = self.temp_dir() / "nosy.py"
        worker.write_text((self.worker).read_text().replace("def main():", f"""import socket


def nosy():
    found = {{}}
    for path in ({str(secret)!r}, "/etc/shadow", "/root", "/etc/hosts"):
        try:
            (os.listdir if os.path.isdir(path) else open)(path)
            found[path] = True
        except OSError:
            found[path] = False
    for name, make in (("unix", lambda: socket.socket(socket.AF_UNIX)), ("inet", lambda: socket.socket(socket.AF_INET)),
                       ("pair", socket.socketpair)):
        try:
            make()
            found[name] = True
        except OSError:
            found[name] = False
    try:
        open("/tmp/berth-nosy", "w").close()
        found["/tmp"] = True
    except OSError:
        found["/tmp"] = False
    with open("nosy.json", "w") as file:
        json.dump(found, file)


def main():
    nosy()""", 1))
        worker.chmod(0o755)
        nosy = self.install_provider(worker=worker, key="acme.nosy")
        found = json.loads((nosy.dir / "nosy.json").read_text())
        # The daemon's socket would take the worker for its operator.
        self.assertEqual([found.pop(name) for name in ("unix", "inet", "pair")], [False, True, True])
        if not self.landlock():
            self.skipTest("the kernel has no Landlock")
        self.assertEqual(found, {str(secret): False, "/etc/shadow": False, "/root": False, "/etc/hosts": True,
                                 "/tmp": False})

    def landlock(self):
        return ctypes.CDLL(None).syscall(444, None, 0, 1) > 0
