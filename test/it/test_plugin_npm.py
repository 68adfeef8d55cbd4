"""Plugins from npm: fetching, progress, upgrades that fail or wait, hostile packages, and a crash at every step. npm is
real, its registry is a small one on loopback."""
# slow: npm takes its time
# share 6: 23 s of processor time

import contextlib
import http.client
import json
import os
import pathlib
import threading
import unittest

from berthtest import wait_until
from plugintest import KEY, WORKER, PluginTest, manifest

BROKEN = "process.exit(3)"


def running(word):
    """Processes with that word in their command line."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word in file.read_bytes():
                found.append(file.parent.name)
    return found


class NpmTest(PluginTest):
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.daemon.env = {**self.daemon.env, **self.start_registry()}
        self.daemon.start()

    def refused(self, contains, name="acme-box", status=400, **body):
        answer = self.req("POST", "/api/plugins/install", {"packageName": name, **body})
        self.assert_error(answer, status, contains=contains)
        self.nothing_left()

    def nothing_left(self, packages=0):
        """No fetch is recorded, nothing is staged, and every package has a row."""
        self.assertEqual(self.files("staging"), [])
        self.assertEqual(self.daemon.sql("SELECT * FROM plugin_installs"), [])
        self.assertEqual(len(self.files("packages")), packages)

    def running_version(self):
        """What the worker that runs was told by its own file."""
        return [line for line in self.logged() if line.startswith("I am ")][:1]

    def publish_version(self, version, worker=WORKER, **more):
        """A version whose worker says which one it is."""
        said = f'say({{ method: "log", params: {{ level: "info", message: "I am {version}" }} }});'
        return self.publish(self.package(version=version, worker=worker.replace("//MORE", said), **more))


class InstallTest(NpmTest):
    def test_install(self):
        marker = self.temp_dir() / "ran"
        self.publish(self.package(package_version="3.2.1", version="1.0.0",
                                  scripts={"preinstall": f"touch {marker}", "postinstall": f"touch {marker}"}))
        plugin = self.install_npm("acme-box")
        self.assertEqual((plugin["status"], plugin["version"], plugin["packageVersion"]), ("ready", "1.0.0", "3.2.1"))
        self.assertIsNone(plugin["packagePath"])
        self.assertFalse(marker.exists())
        self.assertEqual(self.worker()["status"], "running")
        self.nothing_left(packages=1)
        self.assertTrue(self.plugin_dir("packages", self.files("packages")[0], "node_modules", "acme-box").is_dir())
        pid = self.worker()["pid"]
        self.ok("DELETE", f"/api/plugins/{KEY}")
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.nothing_left()

    def test_a_scoped_name_and_a_version(self):
        for version in ("1.0.0", "1.1.0", "2.0.0"):
            self.publish(self.package(name="@acme/plugin-box", version=version))
        self.assertEqual(self.install_npm("@acme/plugin-box", "^1.0.0")["version"], "1.1.0")
        self.assertEqual(self.worker()["status"], "running")

    def test_what_npm_refuses(self):
        self.refused("npm install failed for no-such-package: ", name="no-such-package")
        self.publish(self.package())
        self.refused("npm install failed for acme-box@9.9.9: ", version="9.9.9")
        empty = self.temp_dir() / "e"
        empty.mkdir()
        (empty / "package.json").write_text('{"name": "just-code", "version": "1.0.0"}')
        self.publish(empty)
        self.refused("does not appear to be a Paperclip plugin (no manifest found).", name="just-code")
        self.publish(self.package(version="1.0.1", key="BAD KEY"))
        self.refused("Invalid plugin manifest: id: ", version="1.0.1")

    def test_progress(self):
        self.publish(self.package())
        begun = self.ok("POST", "/api/plugins/install", {"packageName": "acme-box", "wait": False}, status=202)
        where = f"/api/plugins/operations/{begun['operationId']}"
        done = wait_until(lambda: (p := self.ok("GET", where))["done"] and p, "the end", 60)
        self.assertEqual(done["pluginId"], self.plugin()["id"])
        lines = done["lines"]
        self.assertEqual((lines[0], lines[-1]), ("fetching acme-box", "ready"))
        self.assertTrue(any(line.startswith("fetch GET 200 ") for line in lines), lines)
        self.assertIn("starting the worker", lines)
        self.assertEqual(self.ok("GET", f"{where}?after={done['next'] - 1}")["lines"], ["ready"])
        begun = self.ok("POST", "/api/plugins/install", {"packageName": "acme-box", "wait": False}, status=202)
        where = f"/api/plugins/operations/{begun['operationId']}"
        done = wait_until(lambda: (p := self.ok("GET", where))["done"] and p, "the end", 60)
        self.assertEqual((done["status"], done["error"]), (409, f"Plugin already installed: {KEY}"))

    def test_a_package_that_changed_on_disk(self):
        self.publish(self.package())
        self.install_npm("acme-box")
        self.daemon.stop()
        (install,) = self.files("packages")
        with open(self.plugin_dir("packages", install, "node_modules", "acme-box", "worker.js"), "a") as file:
            file.write("// evil\n")
        self.daemon.start()
        wait_until(lambda: self.plugin()["status"] == "error", "the change is noticed")
        self.assertIn("are not those that were installed", self.plugin()["lastError"])
        self.assertEqual(self.plugin(KEY, "/dashboard")["worker"], None)
        plugin = self.post(KEY, "upgrade", {})  # fetched anew
        self.assertEqual(plugin["status"], "ready")
        self.nothing_left(packages=1)

    def test_command_line(self):
        self.publish_version("1.0.0")
        status, out, err = self.cli("plugin", "install", "acme-box@1.0.0")
        self.assertEqual(status, 0, err)
        self.assertIn("fetching acme-box@1.0.0\n", err)
        self.assertIn("starting the worker\n", err)
        self.assertRegex(out, r"Status +ready")
        self.assertIn("acme.box", self.cli("plugin", "list")[1])
        self.assertEqual(json.loads(self.cli("plugin", "show", KEY, "--json")[1])["pluginKey"], KEY)
        self.assertEqual(self.cli("plugin", "health", KEY)[0], 0)
        self.assertIn("I am 1.0.0", self.cli("plugin", "logs", KEY)[1])
        self.assertIn("no configuration", self.cli("plugin", "config", KEY)[2])
        self.assertEqual(json.loads(self.cli("plugin", "config", KEY, "-o", "region=eu")[1]), {"region": "eu"})
        status, out, _ = self.cli("plugin", "config", KEY, "-o", "region=moon", "--test")
        self.assertEqual((status, out), (1, "not valid: no moon\n"))
        self.assertEqual(self.cli("plugin", "disable", KEY, "--reason", "why not")[0], 0)
        self.assertEqual(self.cli("plugin", "health", KEY)[0], 1)
        self.assertIn("why not", self.cli("plugin", "list")[1])
        self.assertEqual(self.cli("plugin", "enable", KEY)[0], 0)
        self.publish_version("1.1.0", capabilities=["environment.drivers.register", "http.outbound"])
        status, out, err = self.cli("plugin", "upgrade", KEY, "-q")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"Status +upgrade_pending(?s:.)*Waiting +1.1.0\n +wants +http.outbound")
        self.assertRegex(self.cli("plugin", "approve", KEY)[1], r"Version +1.1.0")
        self.assertEqual(self.cli("plugin", "uninstall", KEY, "--yes")[1], f"uninstalled {KEY}\n")
        status, _, err = self.cli("plugin", "install", "no-such-package")
        self.assertEqual(status, 1)
        self.assertIn("berth: npm install failed for no-such-package: ", err)
        self.publish_version("1.2.0", worker=BROKEN)
        status, out, _ = self.cli("plugin", "install", "acme-box")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"Status +error")
        self.assertEqual(self.cli("plugin", "install", str(self.package(key="acme.local")))[0], 0)
        for path in ("./nowhere", "nowhere/at-all"):
            status, _, err = self.cli("plugin", "install", path)
            self.assertEqual((status, err), (2, f"berth: {path}: No such file or directory\n"))


class UpgradeTest(NpmTest):
    def setUp(self):
        super().setUp()
        self.publish_version("1.0.0")
        self.first = self.install_npm("acme-box")
        self.assertEqual(self.running_version(), ["I am 1.0.0"])

    def assert_untouched(self):
        """The old one is there and runs, and nothing of the new one is left."""
        now = self.plugin()
        self.assertEqual((now["version"], now["status"], now["checksum"]), ("1.0.0", "ready", self.first["checksum"]))
        self.assertEqual(self.worker()["status"], "running")
        self.assertEqual(self.running_version(), ["I am 1.0.0"])
        self.nothing_left(packages=1)

    # http-api 8.70
    def test_upgrade(self):
        self.publish_version("1.1.0")
        self.publish_version("2.0.0")
        plugin = self.post(KEY, "upgrade", {"version": "1.1.0"})
        self.assertEqual((plugin["id"], plugin["version"], plugin["status"]), (self.first["id"], "1.1.0", "ready"))
        self.assertEqual(self.running_version(), ["I am 1.1.0"])
        self.nothing_left(packages=1)
        self.assertEqual(self.post(KEY, "upgrade")["version"], "2.0.0")
        self.assertEqual(self.running_version(), ["I am 2.0.0"])
        self.nothing_left(packages=1)

    def test_failures_leave_the_old_one_running(self):
        pid = self.worker()["pid"]
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {"version": "7.0.0"}), 400,
                          contains="npm install failed for acme-box@7.0.0: ")
        self.publish_version("1.1.0", manifest_js="throw new Error('not today')")
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {}), 400, contains="not today")
        self.publish_version("1.2.0", key="acme.other")
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {}), 400,
                          "Upgrade failed: new manifest ID 'acme.other' does not match existing plugin ID 'acme.box'")
        self.assertEqual(self.worker()["pid"], pid)  # so far it was not even touched
        self.assert_untouched()
        self.publish_version("1.3.0", worker=BROKEN)
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {}), 400, contains="Upgrade failed: ")
        self.assert_untouched()
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {"version": 1}), 400,
                          "version must be a string if provided")
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {"version": "file:/etc"}), 400,
                          "version contains invalid characters")

    def pend(self, version="2.0.0"):
        self.publish_version(version, capabilities=["environment.drivers.register", "http.outbound"])
        return self.post(KEY, "upgrade", {})

    def test_more_rights_wait_for_approval(self):
        pid = self.worker()["pid"]
        plugin = self.pend()
        self.assertEqual((plugin["status"], plugin["version"]), ("upgrade_pending", "1.0.0"))
        self.assertEqual(plugin["lastError"], 'Upgrade for "acme.box" introduces new capabilities that require '
                                              "approval: http.outbound")
        self.assertEqual(plugin["pendingUpgrade"]["addedCapabilities"], ["http.outbound"])
        self.assertEqual(plugin["pendingUpgrade"]["version"], "2.0.0")
        self.assertEqual((self.worker()["pid"], self.running_version()), (pid, ["I am 1.0.0"]))
        self.nothing_left(packages=2)
        self.assertTrue(self.plugin(KEY, "/health")["healthy"])
        self.daemon.restart()  # the old one still runs, the new one still waits
        wait_until(lambda: self.worker().get("status") == "running", "the worker")
        self.assertEqual(self.running_version(), ["I am 1.0.0"])
        self.nothing_left(packages=2)
        plugin = self.post(KEY, "approve")
        self.assertEqual((plugin["status"], plugin["version"], plugin["lastError"]), ("ready", "2.0.0", None))
        self.assertNotIn("pendingUpgrade", plugin)
        self.assertEqual(self.running_version(), ["I am 2.0.0"])
        self.nothing_left(packages=1)
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/approve"), 400,
                          "No upgrade of plugin acme.box waits for approval (current status: ready)")

    def test_enabling_approves(self):
        self.pend()
        self.assertEqual(self.post(KEY, "enable")["version"], "2.0.0")

    def test_rejecting(self):
        self.pend()
        plugin = self.post(KEY, "approve", {"reject": True})
        self.assertEqual((plugin["status"], plugin["version"], plugin["lastError"]), ("ready", "1.0.0", None))
        self.assert_untouched()

    def test_approving_in_advance_and_twice(self):
        self.pend()
        self.publish_version("3.0.0", capabilities=["environment.drivers.register", "issues.read"])
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/upgrade", {}), 409,
                          contains="It cannot wait while the status is 'upgrade_pending'")
        self.nothing_left(packages=2)
        plugin = self.post(KEY, "upgrade", {"approve": True})
        self.assertEqual((plugin["status"], plugin["version"]), ("ready", "3.0.0"))
        self.nothing_left(packages=1)

    def test_an_approved_version_that_does_not_start(self):
        self.publish_version("2.0.0", worker=BROKEN, capabilities=["environment.drivers.register", "issues.read"])
        self.post(KEY, "upgrade", {})
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/approve"), 400, contains="Upgrade failed: ")
        self.assertEqual(self.plugin()["status"], "upgrade_pending")
        self.assertEqual(self.running_version(), ["I am 1.0.0"])
        self.assertEqual(self.post(KEY, "approve", {"reject": True})["status"], "ready")
        self.assert_untouched()

    def test_a_version_that_waits_and_changes(self):
        self.pend()
        for install in self.files("packages"):
            worker = self.plugin_dir("packages", install, "node_modules", "acme-box", "worker.js")
            if "2.0.0" in worker.read_text():
                worker.write_text("process.exit(0)")
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/approve"), 400,
                          contains="are not those that were installed")
        self.assertEqual(self.running_version(), ["I am 1.0.0"])

    def test_uninstalling_while_one_waits(self):
        self.pend()
        self.ok("DELETE", f"/api/plugins/{KEY}")
        self.nothing_left()


class HostileTest(NpmTest):
    daemon_env = {**PluginTest.daemon_env, "BERTH_PLUGIN_INSTALL_TIMEOUT_MS": "20000", "SESAME": "open"}

    def test_a_manifest_without_end(self):
        self.publish(self.package(manifest_js="for (;;) ;"))
        self.refused("it took longer than 10000 ms")

    def test_a_manifest_that_prints(self):
        noise = "for (let i = 0; i < 1000; i++) console.log('{\"id\":\"noise\"}');"
        self.publish(self.package(manifest_js=f"{noise}\nexport default {json.dumps(manifest())}"))
        self.assertEqual(self.install_npm("acme-box")["pluginKey"], KEY)
        self.ok("DELETE", f"/api/plugins/{KEY}?purge=true")
        self.publish(self.package(version="1.0.1", manifest_js=
                                  "import fs from 'node:fs'; for (;;) fs.writeSync(1, 'x'.repeat(65536))"))
        self.refused("it printed too much")
        self.publish(self.package(version="1.0.2", manifest_js="export default {id: 'x'.repeat(1100000)}"))
        self.refused("the manifest is larger than 1048576 bytes")

    def test_a_manifest_has_no_network(self):
        """It is looked at before anybody has installed anything. With the daemon's user it would be the operator at the port."""
        path = self.package(manifest_js="""let said;
            try { said = "reached " + (await fetch("%s/api/companies", { method: "POST", body: '{"name": "Owned"}',
                                                    headers: { "content-type": "application/json" } })).status; }
            catch (e) { said = "no: " + e.cause?.code; }
            export default """ % self.daemon.url + json.dumps(manifest()).replace('"For tests."', "said"))
        self.assertEqual(self.install(path)["manifestJson"]["description"], "no: EACCES")
        self.assertEqual(self.operator("GET", "/api/companies"), [])

    def test_a_manifest_sees_nothing_of_ours(self):
        """What it could read or reach comes back in its description."""
        secret = self.daemon.data / "node-id"
        spy = f"""
            import fs from "node:fs";
            const seen = [];
            const look = (what, f) => {{ try {{ seen.push(what + "=" + JSON.stringify(String(f())).slice(0, 60)); }} catch {{}} }};
            look("database", () => fs.readFileSync({json.dumps(str(self.daemon.data / "berth.db"))}));
            look("node-id", () => fs.readFileSync({json.dumps(str(secret))}));
            look("home", () => fs.readdirSync({json.dumps(os.environ["HOME"])}));
            look("shadow", () => fs.readFileSync("/etc/shadow"));
            look("write", () => fs.writeFileSync(new URL("./x", import.meta.url), "x"));
            look("daemon", () => fs.readFileSync("/proc/" + process.ppid + "/environ"));
            for (const name of Object.keys(process.env)) seen.push(name);
            export default {{...{json.dumps(manifest())}, description: seen.join(" ")}};
        """
        self.publish(self.package(manifest_js=spy))
        seen = self.install_npm("acme-box")["manifestJson"]["description"]
        self.assertEqual(sorted(seen.split()), ["NODE_ENV", "NODE_OPTIONS", "TZ"])

    def test_the_end_of_what_a_manifest_started(self):
        mark = self.temp_dir() / "mark"
        text = f"""import {{ spawn }} from "node:child_process";
            const c = spawn("/bin/sleep", ["1000.25"], {{ stdio: "inherit" }});
            export default {{...{json.dumps(manifest())}, author: String(c.pid)}};"""
        self.publish(self.package(manifest_js=text))
        self.install_npm("acme-box")
        wait_until(lambda: not running(b"1000.25"), "it is gone")
        self.assertFalse(mark.exists())

    def test_links_out_of_the_package(self):
        path = self.package()
        (path / "worker.js").unlink()
        (path / "worker.js").symlink_to("/etc/passwd")
        answer = self.req("POST", "/api/plugins/install", {"packageName": str(path), "isLocalPath": True})
        self.assert_error(answer, 400, contains='Worker entrypoint not found for plugin "acme.box". Checked: ')

    def test_a_caller_that_leaves(self):
        """The fetch is undone when nobody waits for it."""
        self.registry.packages["slow-box"] = {}
        held = []
        answer = self.registry.answer
        gate = threading.Event()

        def slow(path):
            if "slow-box" in path:
                held.append(path)
                gate.wait(30)
            return answer(path)

        self.registry.answer = slow
        connection = http.client.HTTPConnection(*self.daemon.address, timeout=30)
        connection.request("POST", "/api/plugins/install", json.dumps({"packageName": "slow-box"}),
                           {"Content-Type": "application/json"})
        wait_until(lambda: held, "npm asks for it")
        self.assertEqual(len(self.daemon.sql("SELECT * FROM plugin_installs")), 1)
        connection.close()
        wait_until(lambda: not self.daemon.sql("SELECT * FROM plugin_installs"), "the fetch is forgotten")
        gate.set()
        wait_until(lambda: self.files("staging") == [], "its files are gone")


if __name__ == "__main__":
    unittest.main()
