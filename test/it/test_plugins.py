"""Plugins over HTTP: the routes, who may use them, statuses, configuration, logs."""

import json
import os
import signal
import unittest

from berthtest import new_company, wait_until
from plugintest import KEY, WORKER, PluginTest, manifest, need_node

NOBODY = "00000000-0000-4000-8000-000000000000"


class RoutesTest(PluginTest):
    def setUp(self):
        need_node()
        super().setUp()

    # http-api 8.69
    def test_install_from_a_directory(self):
        path = self.package()
        plugin = self.install(path)
        self.assertEqual(plugin["pluginKey"], KEY)
        self.assertEqual((plugin["packageName"], plugin["version"], plugin["apiVersion"]), ("acme-box", "1.0.0", 1))
        self.assertEqual((plugin["status"], plugin["installOrder"], plugin["lastError"]), ("ready", 1, None))
        self.assertEqual(plugin["categories"], ["automation"])
        self.assertEqual(plugin["packagePath"], os.path.realpath(path))
        self.assertEqual(plugin["manifestJson"], manifest())
        self.assertRegex(plugin["checksum"], r"^blake2b-256:[0-9a-f]{64}$")
        self.assertEqual(self.files("packages"), [])  # nothing is copied
        self.assertEqual(self.plugin(plugin), {**plugin, "supportsConfigTest": True})
        self.assertEqual(self.plugin(KEY)["id"], plugin["id"])  # a dotted key, too
        self.assertEqual(self.ok("GET", "/api/plugins"), [plugin])
        self.assertEqual(self.worker()["status"], "running")

    def test_what_install_refuses(self):
        def refused(text, **body):
            self.assert_error(self.req("POST", "/api/plugins/install", body), 400, text)

        refused("packageName is required and must be a string")
        refused("packageName is required and must be a string", packageName=7)
        refused("version must be a string if provided", packageName="x", version=1)
        refused("isLocalPath must be a boolean if provided", packageName="x", isLocalPath="yes")
        refused("packageName cannot be empty", packageName="  ")
        for name in ("a<b", "a>b", "a:b", 'a"b', "a|b", "a?b", "a*b", "-g", "--prefix=/", "../x", "/etc", "a b",
                     "git+ssh://x", "file:x", "@scope", "a@1.0.0"):
            refused("packageName contains invalid characters", packageName=name)
        for version in ("-g", "file:../x", "npm:other@1", "a/b", "1;2"):
            refused("version contains invalid characters", packageName="x", version=version)
        refused("Local plugin path does not exist: /nowhere/at/all", packageName="/nowhere/at/all", isLocalPath=True)
        empty = self.temp_dir()
        refused(f"Missing package.json at {os.path.realpath(empty)}", packageName=str(empty), isLocalPath=True)
        (empty / "package.json").write_text('{"name": "x"}')
        refused(f"Package x at {os.path.realpath(empty)} does not appear to be a Paperclip plugin "
                "(no manifest found).", packageName=str(empty), isLocalPath=True)
        refused("Invalid localPath: /etc/hostname is not a directory", packageName="/etc/hostname", isLocalPath=True)
        self.assertEqual(self.ok("GET", "/api/plugins"), [])
        self.assertEqual(self.files("staging"), [])

    # environment-runtime 7.112; with the right and one of a key it is test_install
    def test_manifests_that_are_refused(self):
        def refused(contains, **more):
            path = self.package(**more)
            answer = self.req("POST", "/api/plugins/install", {"packageName": str(path), "isLocalPath": True})
            self.assert_error(answer, 400, contains=contains)

        refused("Invalid plugin manifest: id: ", key="Not Good")
        refused("Invalid plugin manifest: version: ", version="1.0")
        refused("Capability 'environment.drivers.register' is required when environmentDrivers are declared",
                capabilities=["http.outbound"])
        driver = manifest()["environmentDrivers"][0]
        refused("Duplicate environment driver keys: acme", environmentDrivers=[driver, driver])
        refused("requires host version 9999.0.0 or newer, but this server is running", minimumHostVersion="9999.0.0")
        refused('Worker entrypoint not found for plugin "acme.box". Checked: ',
                entrypoints={"worker": "../../etc/passwd"})
        refused("not today", manifest_js="throw new Error('not today')")

    def test_the_same_key_twice(self):
        self.install(self.package())
        answer = self.req("POST", "/api/plugins/install", {"packageName": str(self.package()), "isLocalPath": True})
        self.assert_error(answer, 409, f"Plugin already installed: {KEY}")
        self.assertEqual(len(self.ok("GET", "/api/plugins")), 1)
        self.assertEqual(self.worker()["status"], "running")

    # http-api 8.76
    def test_status_filter(self):
        plugin = self.install(self.package())
        self.assertEqual([p["id"] for p in self.ok("GET", "/api/plugins?status=ready")], [plugin["id"]])
        self.assertEqual(self.ok("GET", "/api/plugins?status=error"), [])
        self.assert_error(self.req("GET", "/api/plugins?status=fine"), 400,
                          "Invalid status 'fine'. Must be one of: installed, ready, disabled, error, "
                          "upgrade_pending, uninstalled")

    def test_missing(self):
        for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/enable"), ("POST", "/disable"),
                               ("POST", "/upgrade"), ("POST", "/approve"), ("GET", "/health"), ("GET", "/logs"),
                               ("GET", "/config"), ("POST", "/config"), ("GET", "/dashboard")):
            for name in (NOBODY, "no.such.plugin", "%20", "x%2fy"):
                answer = self.req(method, f"/api/plugins/{name}{suffix}")
                self.assert_error(answer, 404, "Plugin not found")
        self.assert_error(self.req("GET", f"/api/plugins/operations/{NOBODY}"), 404, "Plugin operation not found")

    def test_lists_that_are_empty(self):
        self.assertEqual(self.ok("GET", "/api/plugins/ui-contributions"), [])
        self.assertEqual(self.ok("GET", "/api/plugins/tools"), [])

    def test_examples(self):
        (example,) = self.ok("GET", "/api/plugins/examples")
        self.assertEqual(example["tag"], "example")
        package = json.loads(open(os.path.join(example["localPath"], "package.json")).read())
        self.assertEqual(example["packageName"], package["name"])
        self.assertEqual(set(example), {"packageName", "pluginKey", "displayName", "description", "localPath", "tag"})

    # http-api 8.3-8.5; environment-runtime 7.64
    def test_the_worker_has_its_driver_listed(self):
        company = self.company()
        where = f"/api/companies/{company['id']}/environments/capabilities"
        self.assertNotIn("acme", self.ok("GET", where)["sandboxProviders"])
        plugin = self.install(self.package())
        answer = self.ok("GET", where)
        driver = manifest()["environmentDrivers"][0]
        self.assertEqual(answer["sandboxProviders"]["acme"], {
            "status": "supported", "supportsSavedProbe": True, "supportsUnsavedProbe": True,
            "supportsRunExecution": True, "supportsReusableLeases": True, "supportsInteractiveSetup": False,
            "interactiveSetupConnectionTypes": [], "supportsTemplateCapture": False, "supportsTemplateDelete": False,
            "supportsSetupTokenLogin": False, "displayName": "Acme", "source": "plugin",
            "pluginKey": KEY, "pluginId": plugin["id"], "configSchema": driver["configSchema"]})
        adapters = {a["adapterType"]: a["sandboxProviders"] for a in answer["adapters"]}
        self.assertEqual(adapters["codex_local"]["acme"], "supported")
        self.assertEqual(adapters["process"]["acme"], "supported")
        self.assertEqual(adapters["http"]["acme"], "unsupported")
        self.post(plugin, "disable")
        self.assertNotIn("acme", self.ok("GET", where)["sandboxProviders"])


class AccessTest(PluginTest):
    daemon_env = {**PluginTest.daemon_env, "BERTH_DEPLOYMENT_MODE": "authenticated"}

    def setUp(self):
        need_node()
        super().setUp()
        self.acme = self.operator("POST", "/api/companies", new_company(), 201)
        self.path = self.package()

    # http-api 8.68, 8.70, 8.71
    def test_who_may(self):
        agent = self.agent(self.acme)["token"]
        member = self.board_user(self.acme, "ann", role="owner")["token"]
        stranger = self.board_user(None, "eve")["token"]
        admin = self.board_user(None, "root", admin=True)["token"]
        install = {"packageName": str(self.path), "isLocalPath": True}
        writes = [("POST", "/api/plugins/install", install), ("DELETE", f"/api/plugins/{KEY}", None),
                  ("POST", f"/api/plugins/{KEY}/enable", None), ("POST", f"/api/plugins/{KEY}/disable", None),
                  ("POST", f"/api/plugins/{KEY}/upgrade", {}), ("POST", f"/api/plugins/{KEY}/approve", {}),
                  ("POST", f"/api/plugins/{KEY}/config", {"configJson": {}}),
                  ("GET", f"/api/plugins/operations/{NOBODY}", None)]
        reads = ["/api/plugins", "/api/plugins/examples", "/api/plugins/tools", "/api/plugins/ui-contributions"]
        for method, path, body in writes:  # before anything is looked up
            self.assert_error(self.req(method, path, body, token=agent), 403, "Board access required")
            self.assert_error(self.req(method, path, body, token=member), 403, "Instance admin access required")
            self.assert_error(self.req(method, path, body), 403, "Board access required")
        for path in reads:
            self.assert_error(self.req("GET", path, token=agent), 403, "Board access required")
            self.assert_error(self.req("GET", path, token=stranger), 403,
                              "Company membership or instance admin access required")
            self.ok("GET", path, token=member)
        self.assertEqual(self.ok("GET", "/api/plugins", token=admin), [])  # the installer was not touched
        plugin = self.ok("POST", "/api/plugins/install", install, token=admin)
        self.assertEqual(plugin["status"], "ready")
        for suffix in ("", "/health", "/dashboard"):
            self.ok("GET", f"/api/plugins/{KEY}{suffix}", token=member)
        # One worker serves all companies: what it prints, and what it is configured with, is nobody's but the admin's.
        for method, suffix, body in (("GET", "/logs", None), ("GET", "/config", None),
                                     ("POST", "/config/test", {"configJson": {}})):
            self.ok(method, f"/api/plugins/{KEY}{suffix}", body, token=admin)
            self.assert_error(self.req(method, f"/api/plugins/{KEY}{suffix}", body, token=member), 403,
                              "Instance admin access required")
        for suffix in ("", "/health", "/logs", "/config", "/dashboard"):
            self.assert_error(self.req("GET", f"/api/plugins/{KEY}{suffix}", token=agent), 403,
                              "Board access required")
        trail = self.operator("GET", f"/api/companies/{self.acme['id']}/activity")
        self.assertEqual([e["action"] for e in trail if e["entityType"] == "plugin"], ["plugin.installed"])


class LifeTest(PluginTest):
    def setUp(self):
        need_node()
        super().setUp()
        self.acme = self.company()
        self.path = self.package()
        self.installed = self.install(self.path)

    def actions(self):
        trail = self.ok("GET", f"/api/companies/{self.acme['id']}/activity?entityType=plugin")
        return [entry["action"] for entry in reversed(trail)]

    def test_disable_and_enable(self):
        pid = self.worker()["pid"]
        plugin = self.post(KEY, "disable", {"reason": "too dear"})
        self.assertEqual((plugin["status"], plugin["lastError"]), ("disabled", "too dear"))
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertEqual(self.plugin(KEY, "/dashboard")["worker"], None)
        self.assertFalse(self.plugin(KEY, "/health")["healthy"])
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/disable"), 400,
                          "Cannot disable plugin in status 'disabled'. Plugin must be in 'ready' status to be "
                          "disabled.")
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {}), 400,
                          contains="Cannot upgrade plugin in status 'disabled'.")
        plugin = self.post(KEY, "enable")
        self.assertEqual((plugin["status"], plugin["lastError"]), ("ready", None))
        self.assertEqual(self.worker()["status"], "running")
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/enable"), 400,
                          "Cannot enable plugin in status 'ready'. Plugin must be in 'disabled', 'error', or "
                          "'upgrade_pending' status to be enabled.")
        self.assertEqual(self.actions(), ["plugin.installed", "plugin.disabled", "plugin.enabled"])

    def test_statuses_last(self):
        other = self.install(self.package(key="acme.other", name="acme-other"))
        self.post(other, "disable")
        self.daemon.restart()
        wait_until(lambda: self.worker().get("status") == "running", "the worker is started again")
        self.assertEqual(self.plugin("acme.other")["status"], "disabled")
        self.assertEqual(self.plugin("acme.other", "/dashboard")["worker"], None)
        self.daemon.restart(crash=True)
        wait_until(lambda: self.worker().get("status") == "running", "the worker is started again")

    def test_uninstall_and_install_again(self):
        pid = self.worker()["pid"]
        plugin = self.ok("DELETE", f"/api/plugins/{KEY}")
        self.assertEqual(plugin["status"], "uninstalled")
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertTrue((self.path / "worker.js").exists())  # a local package is not ours to remove
        self.assertEqual(self.ok("GET", "/api/plugins"), [])
        self.assertEqual([p["id"] for p in self.ok("GET", "/api/plugins?status=uninstalled")], [plugin["id"]])
        self.assert_error(self.req("DELETE", f"/api/plugins/{KEY}"), 400,
                          f"Plugin {KEY} is already uninstalled. Use removeData=true to permanently delete it.")
        again = self.install(self.package(version="2.0.0"))
        self.assertEqual((again["id"], again["version"], again["status"]), (plugin["id"], "2.0.0", "ready"))

    def test_purge(self):
        self.ok("POST", f"/api/plugins/{KEY}/config", {"configJson": {"a": 1}})
        plugin = self.ok("DELETE", f"/api/plugins/{KEY}?purge=true")
        self.assertEqual(plugin["id"], self.installed["id"])
        self.assert_error(self.req("GET", f"/api/plugins/{KEY}"), 404, "Plugin not found")
        self.assertEqual(self.daemon.sql("SELECT 1 FROM plugin_config"), [])
        self.assertEqual(self.files("private"), [])
        again = self.install(self.path)
        self.assertNotEqual(again["id"], plugin["id"])

    def test_health_and_dashboard(self):
        health = self.plugin(KEY, "/health")
        self.assertEqual(health, {
            "pluginId": self.installed["id"], "status": "ready", "healthy": True,
            "checks": [{"name": "registry", "passed": True, "message": "Plugin found in registry"},
                       {"name": "manifest", "passed": True, "message": "Manifest is valid"},
                       {"name": "status", "passed": True, "message": "Current status: ready"},
                       {"name": "worker", "passed": True, "message": "Worker is running"}]})
        board = self.plugin(KEY, "/dashboard")
        self.assertEqual(board["health"], health)
        self.assertEqual((board["recentJobRuns"], board["recentWebhookDeliveries"]), ([], []))
        self.assertEqual(set(board["worker"]), {"status", "pid", "uptime", "consecutiveCrashes", "totalCrashes",
                                                "pendingRequests", "lastCrashAt", "nextRestartAt"})
        os.kill(board["worker"]["pid"], signal.SIGKILL)
        wait_until(lambda: self.worker()["totalCrashes"] == 1, "the crash is seen")

    def test_a_worker_that_does_not_start(self):
        broken = self.package(key="acme.broken", name="acme-broken",
                              worker="process.stderr.write('no key\\n'); process.exit(3)")
        plugin = self.install(broken)
        self.assertEqual(plugin["status"], "error")
        self.assertTrue(plugin["lastError"].startswith("Activation failed: "), plugin["lastError"])
        health = self.plugin("acme.broken", "/health")
        self.assertEqual(health["checks"][-1]["name"], "error_state")
        self.assertEqual(health["lastError"], plugin["lastError"])
        self.assertEqual(self.worker()["status"], "running")  # the other one
        (broken / "worker.js").write_text(WORKER)
        plugin = self.post("acme.broken", "upgrade", {})  # take over what is there now
        self.assertEqual((plugin["status"], plugin["lastError"]), ("ready", None))

    def test_files_that_changed(self):
        with open(self.path / "worker.js", "a") as file:
            file.write("// more\n")
        self.daemon.restart()
        wait_until(lambda: self.plugin()["status"] == "error", "the change is noticed")
        self.assertIn("Activation failed: the files of the package are not those that were installed",
                      self.plugin()["lastError"])
        self.assertIn(self.installed["checksum"], self.plugin()["lastError"])
        self.assertEqual(self.post(KEY, "enable")["status"], "error")  # enabling does not accept them
        plugin = self.post(KEY, "upgrade")
        self.assertEqual(plugin["status"], "ready")
        self.assertNotEqual(plugin["checksum"], self.installed["checksum"])

    # http-api 8.72
    def test_configuration(self):
        schema = {"type": "object", "required": ["region"], "additionalProperties": False,
                  "properties": {"region": {"type": "string"}, "size": {"type": "integer", "minimum": 1},
                                 "key": {"type": "string", "format": "secret-ref"}}}
        path = self.package(key="acme.conf", name="acme-conf", instanceConfigSchema=schema)
        self.install(path)
        where = "/api/plugins/acme.conf/config"
        self.assertIsNone(self.ok("GET", where))
        for body in ({}, {"configJson": 1}, {"configJson": []}):
            self.assert_error(self.req("POST", where, body), 400, '"configJson" is required and must be an object')
        answer = self.req("POST", where, {"configJson": {"size": 0, "more": 1}})
        self.assert_error(answer, 400, "Configuration does not match the plugin's instanceConfigSchema")
        self.assertEqual(sorted((e["field"], e["message"]) for e in answer.json["fieldErrors"]), [
            ("/", "must NOT have additional properties"), ("/", "must have required property 'region'"),
            ("/size", "must be >= 1")])
        for secret in (NOBODY, "plain", {"type": "secret_ref", "secretId": NOBODY}):
            self.assert_error(self.req("POST", where, {"configJson": {"region": "eu", "key": secret}}), 422,
                              "Plugin secret references are disabled until company-scoped plugin config lands")
        self.assertIsNone(self.ok("GET", where))
        saved = self.ok("POST", where, {"configJson": {"region": "eu"}})
        self.assertEqual(saved["configJson"], {"region": "eu"})
        self.assertEqual(self.ok("GET", where), saved)
        wait_until(lambda: 'changed {"region":"eu"}' in self.logged("acme.conf"), "the worker is told")
        again = self.ok("POST", where, {"configJson": {"region": "us"}})
        self.assertEqual(again["id"], saved["id"])
        self.post("acme.conf", "disable")
        self.post("acme.conf", "enable")
        self.assertIn('config {"region":"us"}', self.logged("acme.conf"))  # with initialize
        self.assertIn("plugin.config.updated", self.actions())

    def test_trying_a_configuration(self):
        where = f"/api/plugins/{KEY}/config/test"
        self.assertEqual(self.ok("POST", where, {"configJson": {"region": "eu"}}), {"valid": True})
        self.assertEqual(self.ok("POST", where, {"configJson": {"region": "moon"}}),
                         {"valid": False, "message": "no moon"})
        self.assert_error(self.req("POST", where, {}), 400, '"configJson" is required and must be an object')
        self.post(KEY, "disable")
        self.assert_error(self.req("POST", where, {"configJson": {}}), 400,
                          "Plugin is not ready (current status: disabled)")
        silent = self.package(key="acme.silent", name="acme-silent", worker=WORKER.replace(
            "//MORE", "delete answers.validateConfig; delete answers.configChanged;"))
        plugin = self.install(silent)
        self.assertFalse(self.plugin(plugin)["supportsConfigTest"])
        answer = self.post(plugin, "config/test", {"configJson": {}})
        self.assertEqual((answer["valid"], answer["supported"]), (False, False))
        pid = self.worker("acme.silent")["pid"]
        self.post(plugin, "config", {"configJson": {"a": 1}})  # it does not listen, so it is started again
        self.assertNotEqual(self.worker("acme.silent")["pid"], pid)
        self.assertIn('config {"a":1}', self.logged("acme.silent"))
        dying = self.package(key="acme.dying", name="acme-dying", worker=WORKER.replace(
            "//MORE", "answers.validateConfig = () => process.exit(5);"))
        self.install(dying)
        answer = self.req("POST", "/api/plugins/acme.dying/config/test", {"configJson": {}})
        self.assert_status(answer, 502)
        self.assertEqual(answer.json["code"], "WORKER_UNAVAILABLE")

    def test_logs(self):
        self.ok("POST", f"/api/plugins/{KEY}/config", {"configJson": {"n": 1}})
        wait_until(lambda: len(self.logged()) == 2, "both lines")
        newest, oldest = self.plugin(KEY, "/logs")
        self.assertEqual((newest["level"], newest["message"]), ("warn", 'changed {"n":1}'))
        self.assertEqual((oldest["level"], oldest["pluginId"]), ("info", self.installed["id"]))
        self.assertEqual(set(newest), {"id", "pluginId", "level", "message", "meta", "createdAt"})
        self.assertEqual(self.plugin(KEY, "/logs?level=warn"), [newest])
        self.assertEqual(self.plugin(KEY, "/logs?limit=1"), [newest])
        self.assertEqual(self.plugin(KEY, f"/logs?since={newest['createdAt'].replace('Z', '%2B00:00')}")[-1:],
                         [newest])
        self.assert_error(self.req("GET", f"/api/plugins/{KEY}/logs?since=never"), 400, contains="since")
        self.assert_error(self.req("GET", f"/api/plugins/{KEY}/logs?limit=x"), 400, contains="limit")

    def test_secrets_in_logs(self):
        chatty = self.package(key="acme.chatty", name="acme-chatty", worker=WORKER.replace(
            "//MORE", 'say({ method: "log", params: { level: "info", message: "hi", '
                      'meta: { apiKey: "sesame", n: 1 } } });'))
        self.install(chatty)
        line = self.plugin("acme.chatty", "/logs")[-1]
        self.assertEqual(line["meta"], {"apiKey": "***REDACTED***", "n": 1})


class DirectoryTest(PluginTest):
    daemon_autostart = False

    def test_a_directory_that_is_somebody_elses(self):
        shared = self.temp_dir() / "plugins"
        first = self.new_daemon(env={"BERTH_PLUGIN_DIR": str(shared)}).start()
        self.assertEqual(sorted(os.listdir(shared)), ["node-id", "packages", "private", "staging"])
        second = self.new_daemon(env={"BERTH_PLUGIN_DIR": str(shared)}).spawn()
        second.wait(expect=1)
        second.killed = True
        self.assertIn("belongs to another daemon", second.log())
        first.restart()


if __name__ == "__main__":
    unittest.main()
