"""Real clients of providers in workers on the published SDKs, against a stand-in for the services: a sandbox is acquired,
used again after its release, resumed after a restart of the daemon, lost at the provider, destroyed; calls are counted."""
# slow: copies and checks node_modules of each SDK

import http.server
import json
import re
import shutil
import threading

from berthtest import SOURCE, ident, wait_until
from plugintest import NEW_SDK, SDK, PluginTest, from_npm, new_node, sdk_modules
from share import in_share

E2B = "e2b@2.6.2"
KEY = "provider-key-of-the-tests"
BRIDGE = "/api/paperclip-sandbox/v1"
RUNS = [f"{n}{n}{n}{n}{n}{n}{n}{n}-0000-4000-8000-000000000000" for n in "1234"]


class Service:
    """As much of the services as their clients ask for; a client that finds an answer strange fails."""

    def __init__(self):
        self.calls, self.sandboxes = [], {}  # by id: running or paused
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, said = service.answer(self.command, self.path, json.loads(body) if body else {}, self.headers)
                data = json.dumps(said).encode() if said is not None else b""
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, method, path, body, headers):
        if path.startswith("/daytona"):
            return self.answer_daytona(method, path.removeprefix("/daytona").partition("?")[0], headers)
        cloud = not path.startswith(BRIDGE)
        path = path.removeprefix(BRIDGE)
        found = re.match(r"/(sandboxes|leases)/(sb-\d+)", path)
        name = found[2] if found else body.get("providerLeaseId")
        self.calls.append(f"{method} {path.replace(name, 'ID') if name else path}")
        if (headers["X-API-Key"] if cloud else headers["Authorization"]) != (KEY if cloud else f"Bearer {KEY}"):
            return 401, {"code": 401, "error": "unauthorized", "message": "no key"}
        return self.answer_cloud(method, path, name) if cloud else self.answer_bridge(method, path, name, body)

    def make(self):
        name = f"sb-{len(self.calls)}"
        self.sandboxes[name] = "running"
        return name

    def answer_cloud(self, method, path, name):
        if (method, path) == ("POST", "/sandboxes"):
            name = self.make()
        elif name not in self.sandboxes:
            return 404, {"code": 404, "message": "sandbox not found"}
        elif method == "DELETE":
            del self.sandboxes[name]
            return 204, None
        elif path.endswith("/pause"):
            self.sandboxes[name] = "paused"
            return 204, None
        self.sandboxes[name] = "running"
        return 201, {"sandboxID": name, "templateID": "base", "clientID": "c", "envdVersion": "0.2.0",
                     "envdAccessToken": "t"}

    def answer_daytona(self, method, path, headers):
        name = path.split("/")[2] if path.count("/") > 1 else None
        if method != "GET":  # the client asks for the state until it has changed
            self.calls.append(f"{method} {path.replace(name, 'ID') if name else path}")
        if headers["Authorization"] != f"Bearer {KEY}":
            return 401, {"statusCode": 401, "message": "no key"}
        if not name:
            name = self.make()
        elif name not in self.sandboxes:
            return 404, {"statusCode": 404, "message": f"Sandbox with ID {name} not found"}
        elif method == "POST":
            self.sandboxes[name] = "paused" if path.endswith("/stop") else "running"
        state = {"running": "started", "paused": "stopped"}[self.sandboxes[name]]
        if method == "DELETE":
            state = "destroyed"
            del self.sandboxes[name]
        return 200, {"id": name, "name": name, "organizationId": "o", "target": "us", "user": "daytona", "env": {},
                     "labels": {}, "public": False, "networkBlockAll": False, "state": state, "cpu": 1, "gpu": 0,
                     "memory": 1, "disk": 1, "toolboxProxyUrl": "http://127.0.0.1:1/toolbox"}

    def answer_bridge(self, method, path, name, body):
        if path == "/leases/acquire":
            name = self.make()
        elif path == "/leases/resume" and name not in self.sandboxes:
            return 409, {"error": "sandbox_state_lost", "message": "gone"}
        elif path == "/exec":
            return 200, {"exitCode": 0, "signal": None, "timedOut": False, "stdout": f"in {body['cwd']}\n", "stderr": ""}
        elif method == "DELETE":
            self.sandboxes.pop(name, None)
            return 200, {"ok": True}
        self.sandboxes[name] = "paused" if path == "/leases/release" else "running"
        return 200, {"providerLeaseId": name, "metadata": {"provider": "cloudflare", "remoteCwd": "/workspace"}}


class SdksTest(PluginTest):
    sdk = SDK

    providers = (
        ("e2b", ("POST /sandboxes", "POST /sandboxes/ID/connect", "POST /sandboxes/ID/pause", "DELETE /sandboxes/ID")),
        ("bridge", ("POST /leases/acquire", "POST /leases/resume", "POST /leases/release", "DELETE /leases/ID")))

    def modules(self):
        return [sdk_modules(self.sdk), from_npm(E2B, "the client of e2b")]

    def setUp(self):
        if not in_share(type(self).__name__, 6):
            self.skipTest("has its turn with another commit (test/harness/share.py)")
        super().setUp()

    def package_of(self):
        modules = self.modules()
        path = self.temp_dir() / "sdks"
        shutil.copytree(SOURCE / "test" / "workers" / "sdks", path)
        for each in modules:
            shutil.copytree(each, path / "node_modules", symlinks=True, dirs_exist_ok=True)
        (path / "package.json").write_text(json.dumps({
            "name": "sdks", "version": "1.0.0", "type": "module", "paperclipPlugin": {"manifest": "./manifest.json"}}))
        (path / "manifest.json").write_text(json.dumps({
            "id": "acme.sdks", "apiVersion": 1, "version": "1.0.0", "displayName": "Sdks", "description": "For tests.",
            "author": "Acme", "categories": ["automation"], "capabilities": ["environment.drivers.register"],
            "entrypoints": {"worker": "./worker.js"},
            "environmentDrivers": [{"driverKey": key, "kind": "sandbox_provider", "displayName": key, "configSchema": {
                "type": "object", "properties": {"url": {"type": "string"},
                                                 "apiKey": {"type": "string", "format": "secret-ref"}}}}
                                   for key in ("e2b", "bridge", "daytona")]}))
        return path

    def life(self, service, env, calls):
        """One sandbox from its making to its loss, and the next one to its end."""
        def take(run):
            return self.acquire(env, heartbeatRunId=run)["lease"]

        began = len(service.calls)
        first = take(RUNS[0])
        self.release(first)
        second = take(RUNS[1])
        self.assertEqual(second["providerLeaseId"], first["providerLeaseId"])
        self.release(second)
        self.daemon.restart()
        third = take(RUNS[2])
        self.assertEqual(third["providerLeaseId"], first["providerLeaseId"])
        self.release(third)
        del service.sandboxes[first["providerLeaseId"]]  # it is lost
        fourth = take(RUNS[3])
        self.assertNotEqual(fourth["providerLeaseId"], first["providerLeaseId"])
        self.release(fourth)
        self.ok("DELETE", f"/api/environments/{ident(env)}?closeLeases=true")
        wait_until(lambda: not service.sandboxes, "everything is given up")
        acquire, resume, pause, destroy = calls
        counted = {call: service.calls[began:].count(call) for call in calls}
        self.assertEqual(counted, self.expect(acquire, resume, pause, destroy), service.calls[began:])
        self.assertEqual(len(service.calls) - began, sum(counted.values()), service.calls[began:])

    def expect(self, acquire, resume, pause, destroy):
        """The one that was lost is resumed and destroyed, too: the provider says that it is gone."""
        return {acquire: 2, resume: 3, pause: 4, destroy: 2}

    def test_lives(self):
        service = Service()
        self.addCleanup(service.close)
        plugin = self.install(self.package_of())
        self.assertEqual(plugin["status"], "ready", plugin)
        company = ident(self.company())
        for provider, calls in self.providers:
            with self.subTest(provider):
                env = self.ok("POST", f"/api/companies/{company}/environments", {
                    "name": provider, "driver": "sandbox", "config": {
                        "provider": provider, "url": service.url, "apiKey": KEY, "reuseLease": True}}, status=201)
                self.life(service, env, calls)


class MiddleSdkTest(SdksTest):
    sdk = "2026.824.1"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon_env = {**cls.daemon_env, "BERTH_NODE": new_node()}


class NewSdkTest(MiddleSdkTest):
    sdk = NEW_SDK
