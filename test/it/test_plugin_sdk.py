"""The example provider on the published SDK: the exchange that the protocol's specification recorded."""
# share 3: 7 s of processor time

import json
import os
import pathlib

from berthtest import ident
from plugintest import NEW_SDK, SDK, PluginTest, new_node

RUN = "33333333-3333-4333-8333-333333333333"

# Written down by the worker's side: every line that the host sends, before the SDK reads it.
TAP = """
import { appendFileSync } from "node:fs";
const read = process.stdin.emit.bind(process.stdin);
process.stdin.emit = (name, ...rest) => {
  if (name === "data") appendFileSync("heard", rest[0]);
  return read(name, ...rest);
};
"""


class SdkTest(PluginTest):
    daemon_env = {**PluginTest.daemon_env, "BERTH_LOG_LEVEL": "debug"}
    sdk = SDK

    def setUp(self):
        super().setUp()
        self.path = self.tapped(self.sdk)

    def tapped(self, sdk):
        path = self.example(sdk)
        worker = path / "worker.js"
        worker.write_text(TAP + worker.read_text())
        return path

    def sandbox(self):
        company = ident(self.company())
        return company, self.ok("POST", f"/api/companies/{company}/environments", {
            "name": "box", "driver": "sandbox",
            "config": {"provider": "fake-plugin", "image": " fake:test ", "timeoutMs": 300000}}, status=201)

    def heard(self, plugin):
        text = (self.daemon.data / "plugins" / "private" / plugin["id"] / "heard").read_text()
        return [json.loads(line) for line in text.splitlines()]

    # plugin-protocol 6.3.1
    def test_recorded_exchange(self):
        plugin = self.install(self.path)
        company, env = self.sandbox()
        self.assertEqual(env["config"], {"provider": "fake-plugin", "image": "fake:test", "timeoutMs": 300000,
                                         "reuseLease": False})
        probe = self.ok("POST", f"/api/environments/{env['id']}/probe")
        self.assertEqual(probe["summary"], "Fake sandbox provider is ready for image fake:test.")
        lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
        workspace = {"localPath": str(self.temp_dir()), "mode": "isolated"}
        realized = self.ok("POST", f"/api/environment-leases/{lease['id']}/realize-workspace", {"workspace": workspace})
        self.assertEqual(realized["cwd"], lease["metadata"]["remoteCwd"])
        ran = self.ok("POST", f"/api/environment-leases/{lease['id']}/execute", {
            "command": "sh", "args": ["-c", "echo out; echo err >&2; cat; echo $GREETING; exit 3"],
            "cwd": realized["cwd"], "env": {"GREETING": "hi"}, "stdin": "piped\n", "timeoutMs": 5000})
        self.assertEqual((ran["exitCode"], ran["stdout"], ran["stderr"]), (3, "out\npiped\nhi\n", "err\n"))
        slow = self.ok("POST", f"/api/environment-leases/{lease['id']}/execute",
                       {"command": "sleep", "args": ["5"], "timeoutMs": 200})
        self.assertEqual((slow["exitCode"], slow["signal"], slow["timedOut"]), (None, "SIGTERM", True))
        missing = self.req("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "no-such-binary"})
        self.assert_error(missing, 422, contains="spawn no-such-binary ENOENT")
        self.release(lease)
        self.daemon.stop()
        heard = self.heard(plugin)
        self.assertEqual([m["id"] for m in heard], list(range(1, len(heard) + 1)))
        self.assertEqual([m["method"] for m in heard], [
            "initialize", "environmentValidateConfig", "environmentProbe", "environmentAcquireLease",
            "environmentRealizeWorkspace", "environmentExecute", "environmentExecute", "environmentExecute",
            "environmentReleaseLease", "shutdown"])
        first = heard[0]["params"]
        self.assertEqual(set(first), {"manifest", "config", "instanceInfo", "apiVersion", "databaseNamespace"})
        self.assertEqual((first["config"], first["apiVersion"], first["databaseNamespace"]), ({}, 1, None))
        self.assertEqual(set(first["instanceInfo"]), {"instanceId", "hostVersion"})
        base = {"driverKey", "companyId", "environmentId", "issueId", "config"}
        self.assertEqual([set(m["params"]) for m in heard[1:6]], [
            {"driverKey", "config"}, base - {"issueId"}, base | {"runId"}, base | {"lease", "workspace"},
            base | {"lease", "command", "args", "cwd", "env", "stdin", "timeoutMs"}])
        self.assertEqual(set(heard[8]["params"]), base | {"providerLeaseId", "leaseMetadata"})
        self.assertEqual(heard[9]["params"], {})
        for m in heard[2:9]:
            self.assertEqual(m["paperclipInvocation"]["scope"], {"companyId": company})
            self.assertEqual(m["params"]["config"], {"image": "fake:test", "timeoutMs": 300000, "reuseLease": False})

    # plugin-protocol 6.3.2: this SDK does nothing when it is started through a symlink
    def test_entry_through_a_symlink(self):
        real = self.path / "real"
        real.mkdir()
        (self.path / "worker.js").rename(real / "worker.js")
        os.symlink("real/worker.js", self.path / "worker.js")
        plugin = self.install(self.path)
        self.assertEqual(plugin["status"], "ready")

    # plugin-protocol 6.3.8: node 24 would split at them
    def test_line_separators(self):
        self.install(self.path)
        _, env = self.sandbox()
        lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
        ran = self.ok("POST", f"/api/environment-leases/{lease['id']}/execute",
                      {"command": "cat", "stdin": "a\u2028b\u2029c"})
        self.assertEqual(ran["stdout"], "a\u2028b\u2029c")

    # plugin-protocol 6.3.9
    def test_large_result(self):
        self.install(self.path)
        _, env = self.sandbox()
        lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
        done = self.ok("POST", f"/api/environment-leases/{lease['id']}/execute",
                       {"command": "sh", "args": ["-c", "head -c 20000000 /dev/zero | tr '\\0' x"], "detach": True},
                       status=202)
        path = f"/api/environment-leases/{lease['id']}/executions/{done['execId']}"
        with self.daemon.events(f"{path}/events", timeout=60) as events:
            for _ in events:
                pass
        self.assertEqual(self.ok("GET", path)["stdoutBytes"], 20000000)

    # plugin-protocol 6.3.16
    def test_environment(self):
        plugin = self.install(self.path)
        pid = self.plugin(plugin, "/dashboard")["worker"]["pid"]
        names = {v.split(b"=")[0].decode() for v in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if v}
        self.assertEqual(names, {"PATH", "NODE_PATH", "PAPERCLIP_PLUGIN_ID", "NODE_ENV", "TZ",
                                 "PAPERCLIP_DEPLOYMENT_MODE", "PAPERCLIP_DEPLOYMENT_EXPOSURE", "TMPDIR", "HOME"})


class NewSdkTest(SdkTest):
    """The newest SDK on the node that it asks for, which splits lines at more than line feeds."""
    sdk = NEW_SDK

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon_env = {**cls.daemon_env, "BERTH_NODE": new_node()}

    def test_is_what_runs(self):
        plugin = self.install(self.path)
        package = json.loads((self.path / "node_modules/@paperclipai/plugin-sdk/package.json").read_text())
        self.assertEqual(package["version"], NEW_SDK)
        # The process that is known leads the worker, in its namespaces.
        leader = self.worker(plugin)["pid"]
        children = pathlib.Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        self.assertIn(os.path.realpath(self.daemon.env["BERTH_NODE"]),
                      [os.path.realpath(f"/proc/{child}/exe") for child in children])

    # plugin-protocol 6.3.8
    def test_line_separators_with_the_older_sdk(self):
        self.path = self.tapped(SDK)
        self.test_line_separators()
