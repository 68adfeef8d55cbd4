"""The provider `cloudflare` and its Worker (deploy/cloudflare-bridge), the Worker under workerd with sandboxes of the test."""
# slow: starts workerd for each test, and a daemon

import hashlib
import hmac
import http.client
import json
import os
import re
import subprocess
import threading
import time
import unittest

from berthtest import BINARIES, SOURCE, BerthTest
from cloudflarestand import TOKEN, CloudflareStand
from plugintest import WORKER, manifest, need_node
from standin import PROVIDERS, Stand, Worker, WorkerError

PREFIX = "/api/paperclip-sandbox/v1"
BRIDGE = SOURCE / "deploy/cloudflare-bridge/src/bridge.js"
CWD = "/tmp/work"  # in a place, whose /tmp is a directory of the test
PLACE = "11111111-1111-4111-8111-111111111111"


class StandTest(BerthTest):
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        need_node()
        self.stand = CloudflareStand(self.temp_dir())
        self.addCleanup(self.stand.close)

    def request(self, method, path, body=None, token=TOKEN, headers=None):
        connection = http.client.HTTPConnection(self.stand.bridge.removeprefix("http://"), timeout=30)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        proof = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request(method, path, data, {**proof, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if "json" in answer.getheader("content-type") else text.decode()
        finally:
            connection.close()

    def bridge(self, method, path, body=None, **more):
        return self.request(method, PREFIX + path, body, **more)

    def config(self, **more):
        return {"bridgeBaseUrl": self.stand.bridge, "bridgeAuthToken": TOKEN, "requestedCwd": CWD, **more}

    def worker(self, **more):
        worker = Worker("cloudflare", self.temp_dir(), self.config(**more))
        self.addCleanup(worker.close)
        return worker

    def asked(self, method):
        return [args for _, _, name, args in self.stand.asked if name == method]


class BridgeTest(StandTest):
    """Requests as Paperclip's provider makes them."""

    # remote-execution 8.88: for every route; the scheme's case does not matter
    def test_bearer(self):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN}):
            for method, path in (("GET", "/health"), ("POST", "/exec"), ("GET", "/nothing")):
                status, said = self.bridge(method, path, token=None, headers=headers)
                self.assertEqual((status, said), (401, {"error": "unauthorized", "message": "Missing or invalid bridge bearer token."}))
        for scheme in ("Bearer", "bearer", "BEARER"):
            self.assertEqual(self.bridge("GET", "/health", token=None, headers={"Authorization": f"{scheme} {TOKEN}"})[0], 200)
        status, said = self.bridge("GET", "/nothing/")
        self.assertEqual((status, said["error"]), (404, "not_found"))

    def signed(self, method, path, body=b"", at=None, token=TOKEN, change=None):
        host = self.stand.bridge.removeprefix("http://")
        moment = str(int(at or time.time()))
        parts = {"method": method, "host": host, "path": PREFIX + path, "time": moment, "body": body, **(change or {})}
        text = "\n".join(["v1", parts["method"], parts["host"], parts["path"], parts["time"], hashlib.sha256(parts["body"]).hexdigest()])
        mac = hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()
        return self.bridge(method, path, body or None, token=None, headers={"X-Berth-Signature": f"t={moment},v1={mac}"})[0]

    def test_signature(self):
        self.assertEqual(self.signed("GET", "/health"), 200)
        body = json.dumps({"environmentId": "e", "runId": "r", "requestedCwd": CWD}).encode()
        self.assertEqual(self.signed("POST", "/leases/acquire", body), 200)
        for wrong in ({"token": "other"}, {"at": time.time() - 301}, {"at": time.time() + 301}, {"change": {"method": "PUT"}},
                      {"change": {"host": "evil"}}, {"change": {"path": f"{PREFIX}/leases"}}, {"change": {"time": "1"}},
                      {"change": {"body": b"other"}}):
            self.assertEqual(self.signed("GET", "/health", **wrong), 401, wrong)

    # remote-execution 8.89, 8.90, 8.91: names, the sentinel's path, what is a timeout
    def test_rules(self):
        script = f"""import * as b from {json.dumps(str(BRIDGE))};
            const id = (v) => b.leaseId(v, () => "ABCD1234");
            console.log(JSON.stringify([id({{environmentId: "Env_123", reuseLease: true}}), id({{runId: "Run_123"}}),
              id({{runId: "r", owner: {{place: "P-1"}}}}), b.sentinelPath("/work/"), b.sentinelPath("/work"),
              [new Error("Command timed out after 5ms"), new Error("x timeout"), Object.assign(new Error("x"), {{name: "TimeoutError"}}),
               new Error("no such file")].map(b.isTimeout), b.bearerToken("bearer  abc"), b.bearerToken("abc"), b.bearerToken(null),
              await b.bearerMatches("Bearer ", ""), b.quote("odd'one")]))"""
        done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=30)
        self.assertEqual(json.loads(done.stdout or "null"), [
            "pc-env-env-123", "pc-run-123-abcd1234", "pc-p-1", "/work/.paperclip-lease.json", "/work/.paperclip-lease.json",
            [True, True, True, False], "abc", None, None, False, "'odd'\"'\"'one'"], done.stderr)

    def acquire(self, **more):
        status, said = self.bridge("POST", "/leases/acquire", {"environmentId": "e", "runId": "Run_1", "requestedCwd": CWD, **more})
        self.assertEqual(status, 200, said)
        return said

    # remote-execution 8.92, 8.94, 8.95
    def test_exec(self):
        lease = self.acquire()["providerLeaseId"]
        self.stand.asked.clear()
        body = {"providerLeaseId": lease, "command": "sh", "args": ["-c", "cat; echo $GREETING; pwd; exit 3"], "cwd": CWD,
                "env": {"GREETING": "it's"}, "timeoutMs": 7000}
        status, said = self.bridge("POST", "/exec", {**body, "stdin": "piped\n"})
        self.assertEqual((status, said), (200, {"exitCode": 3, "signal": None, "timedOut": False, "stdout": f"piped\nit's\n{CWD}\n", "stderr": ""}))
        (line, options), = self.asked("exec")
        self.assertRegex(line, r"^sh -lc '")
        self.assertEqual(options, {"cwd": "/", "timeout": 7000})
        (path, content), = self.asked("writeFile")
        self.assertRegex(path, r"^/tmp/\.paperclip-bridge-stdin-[0-9a-f-]{36}$")
        self.assertEqual((content, self.asked("deleteFile")), ("piped\n", [[path]]))
        self.stand.asked.clear()
        self.bridge("POST", "/exec", {**body, "stdin": ""})
        self.assertEqual((self.asked("writeFile"), self.asked("deleteFile")), ([], []))
        status, said = self.bridge("POST", "/exec", {**body, "env": {"bad-key": "x"}})
        self.assertEqual((status, said["error"]), (400, "invalid_request"))
        self.assertIn("bad-key", said["message"])
        for missing in ("providerLeaseId", "command"):
            self.assertEqual(self.bridge("POST", "/exec", {**body, missing: ""})[0], 400)

    # remote-execution 8.93, 8.98
    def test_exec_streams(self):
        lease = self.acquire()["providerLeaseId"]
        self.stand.asked.clear()
        status, text = self.bridge("POST", "/exec", {"providerLeaseId": lease, "command": "echo", "args": ["hello"], "cwd": "/tmp",
                                                     "streamOutput": True})
        events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
        self.assertEqual([(name, json.loads(data)) for name, data in events], [
            ("stdout", {"data": "hello\n"}),
            ("complete", {"exitCode": 0, "signal": None, "timedOut": False, "stdout": "hello\n", "stderr": ""})])
        (_, options), = self.asked("exec")
        self.assertEqual((status, options), (200, {"cwd": "/", "timeout": 300000, "stream": True, "onOutput": "function"}))

    def test_a_command_that_takes_too_long(self):
        lease = self.acquire()["providerLeaseId"]
        status, said = self.bridge("POST", "/exec", {"providerLeaseId": lease, "command": "sleep", "args": ["60"], "cwd": "/tmp", "timeoutMs": 200})
        self.assertEqual((status, said["exitCode"], said["timedOut"]), (200, None, True))
        self.assertEqual(self.asked("deleteSession"), [["paperclip"]])

    # remote-execution 8.96, 8.97
    def test_leases(self):
        said = self.acquire(sessionId="s")
        self.assertEqual([(session, name) for _, session, name, _ in self.stand.asked], [
            (None, "getSession"), (None, "createSession"), ("s", "exec"), ("s", "exec")])
        self.assertIn("mkdir -p", self.asked("exec")[0][0])
        self.assertIn(".paperclip-lease.json", self.asked("exec")[1][0])
        self.assertRegex(said["providerLeaseId"], r"^pc-run-1-[0-9a-f]{8}$")
        self.stand.asked.clear()
        again = {"providerLeaseId": said["providerLeaseId"], "requestedCwd": CWD, "sessionId": "s"}
        status, resumed = self.bridge("POST", "/leases/resume", again)
        self.assertEqual((status, resumed["metadata"]["resumedLease"]), (200, True))
        self.assertIn("test -s", self.asked("exec")[0][0])
        self.stand.places[said["providerLeaseId"]].path(f"{CWD}/.paperclip-lease.json").unlink()
        self.assertEqual(self.bridge("POST", "/leases/resume", again)[1]["error"], "sandbox_state_lost")
        self.assertIn(said["providerLeaseId"], self.stand.places)  # a failed resume destroys nothing
        self.assertEqual(self.bridge("POST", "/leases/acquire", {"runId": "r"})[0], 400)
        self.assertEqual(self.bridge("DELETE", f"/leases/{said['providerLeaseId']}")[0], 200)
        self.assertEqual((self.stand.places, self.bridge("GET", "/leases")), ({}, (200, {"leases": []})))

    def test_an_acquire_that_fails_leaves_nothing(self):
        self.stand.exec = lambda *_: {"success": False, "exitCode": 1, "stdout": "", "stderr": "no room"}
        status, said = self.bridge("POST", "/leases/acquire", {"environmentId": "e", "runId": "r"})
        self.assertEqual((status, said), (502, {"error": "sandbox_failed", "message": "no room"}))
        self.assertEqual((self.stand.places, self.bridge("GET", "/leases")[1]), ({}, {"leases": []}))


class ProviderTest(StandTest):
    # remote-execution 8.100, 8.102
    def test_execute(self):
        for auth in ("bearer", "hmac"):
            worker = self.worker(bridgeAuth=auth)
            lease = worker.acquire(PLACE)
            self.assertEqual(lease["providerLeaseId"], f"pc-{PLACE}")
            self.assertEqual(worker.acquire(PLACE)["providerLeaseId"], lease["providerLeaseId"])  # the same one
            done = worker.sh(lease, "echo one; echo two >&2; cat; exit 4", stdin="three\n")
            self.assertEqual((done["exitCode"], done["stdout"], done["stderr"]), (4, "one\nthree\n", "two\n"))
            chunks = [params for method, params in worker.logs if method == "execute.log"]
            self.assertEqual("".join(c["chunk"] for c in chunks if c["stream"] == "stdout"), "one\nthree\n")
            self.stand.asked.clear()
            channel = worker.sh(lease, "echo ${PAPERCLIP_SANDBOX_EXEC_CHANNEL-none}", env={"PAPERCLIP_SANDBOX_EXEC_CHANNEL": "bridge"})
            self.assertEqual(channel["stdout"], "none\n")
            self.assertEqual({session for _, session, name, _ in self.stand.asked if name == "exec"}, {"paperclip-bridge"})
            self.assertNotIn("stream", self.asked("exec")[0][1])
            worker.destroy(lease)

    # remote-execution 8.101
    def test_configuration(self):
        worker = self.worker()
        normal = worker.call("environmentValidateConfig", config={
            "bridgeBaseUrl": f" {self.stand.bridge}// ", "bridgeAuthToken": " t ", "timeoutMs": 1000.9, "bridgeRequestTimeoutMs": "2000.5",
            "requestedCwd": " /w ", "sessionId": " s "})
        self.assertEqual({**normal["normalizedConfig"], **{
            "bridgeBaseUrl": self.stand.bridge, "bridgeAuthToken": "t", "timeoutMs": 1000, "bridgeRequestTimeoutMs": 2000,
            "requestedCwd": "/w", "sessionId": "s", "sessionStrategy": "named", "sleepAfter": "10m"}}, normal["normalizedConfig"])
        refused = worker.call("environmentValidateConfig", config={
            "bridgeBaseUrl": "http://example.com", "bridgeAuthToken": "t", "reuseLease": True, "requestedCwd": "relative"})
        self.assertEqual((refused["ok"], refused["errors"]), (False, [
            "bridgeBaseUrl must use HTTPS unless it points at localhost.", "reuseLease requires keepAlive for Cloudflare sandboxes.",
            "requestedCwd must be an absolute POSIX path."]))
        self.assertEqual(worker.call("environmentValidateConfig", config={})["errors"], [
            "Cloudflare sandbox environments require bridgeBaseUrl.", "Cloudflare sandbox environments require bridgeAuthToken."])
        for config, text in (({"bridgeBaseUrl": "nonsense"}, "bridgeBaseUrl must be a valid URL."),
                             ({"timeoutMs": 0}, "timeoutMs must be between 1 and 86400000."),
                             ({"sessionId": " "}, "sessionId is required when sessionStrategy is named.")):
            self.assertEqual(worker.call("environmentValidateConfig", config=self.config(**config))["errors"], [text])

    # remote-execution 8.103
    def test_what_is_gone(self):
        worker = self.worker()
        lease = worker.acquire(PLACE)
        worker.destroy(lease)
        worker.destroy(lease)
        self.assertEqual(worker.call("environmentResumeLease", providerLeaseId=lease["providerLeaseId"], leaseMetadata={}),
                         {"providerLeaseId": None, "metadata": {"provider": "cloudflare", "expired": True}})
        done = worker.sh(lease, "true")
        self.assertEqual((done["exitCode"], done["stderr"]), (1, f"There is no sandbox {lease['providerLeaseId']}.\n"))
        self.assertEqual(worker.sh({"providerLeaseId": None}, "true")["stderr"], "No provider lease ID available for execution.\n")
        self.assertEqual(self.stand.places, {})  # nothing was made anew by asking

    def bare(self, answer):
        stand = Stand(self.temp_dir())
        self.addCleanup(stand.close)
        stand.answer = answer
        return stand

    def test_a_conflict(self):
        """A bridge that answers 409, as Paperclip's does for a sandbox that lost its files."""
        stand = self.bare(lambda h: h.say(409, {"error": "sandbox_state_lost", "message": "lost"}))
        worker = self.worker(bridgeBaseUrl=stand.url)
        self.assertIsNone(worker.call("environmentResumeLease", providerLeaseId="pc-1", leaseMetadata={})["providerLeaseId"])
        done = worker.sh({"providerLeaseId": "pc-1"}, "true")
        self.assertEqual((done["exitCode"], done["stderr"]), (1, "lost\n"))

    # remote-execution 8.104
    def test_realize(self):
        seen = []
        stand = self.bare(lambda h: (seen.append(dict(h.headers)), h.say(500, {"error": "internal_error", "message": "full"})))
        request = {"workspaceRealizationRequest": {"issueId": "issue-7"}}
        with self.assertRaisesRegex(WorkerError, "^Failed to prepare Cloudflare sandbox workspace at /tmp/w: .*full"):
            self.worker(bridgeBaseUrl=stand.url).call("environmentRealizeWorkspace", lease={"providerLeaseId": "pc-1", "metadata": {"remoteCwd": "/tmp/w"}},
                                                      workspace={"metadata": request})
        self.assertEqual((len(seen), seen[0]["X-Paperclip-Issue-Id"], seen[0]["X-Paperclip-Environment-Id"]), (1, "issue-7", "env-1"))
        worker = self.worker()
        lease = worker.acquire(PLACE)
        self.assertEqual(worker.call("environmentRealizeWorkspace", lease=lease, workspace={})["cwd"], CWD)

    # remote-execution 8.99
    def test_limits(self):
        """30 s without a word in the configuration, shown by the normal form; for a command the larger of the two."""
        worker = self.worker()
        self.assertEqual(worker.call("environmentValidateConfig")["normalizedConfig"]["bridgeRequestTimeoutMs"], 30000)
        gate = threading.Event()
        self.addCleanup(gate.set)
        silent = self.bare(lambda h: gate.wait(60))
        slow = self.worker(bridgeBaseUrl=silent.url, bridgeRequestTimeoutMs=300)
        lease = {"providerLeaseId": "pc-1"}
        with self.assertRaisesRegex(WorkerError, "^Cloudflare sandbox bridge request timed out after 300ms.$"):
            slow.call("environmentReleaseLease", **lease)
        for asked, used in ((100, 300), (500, 500)):
            with self.assertRaisesRegex(WorkerError, f"^Cloudflare sandbox bridge request timed out after {used}ms.$"):
                slow.sh(lease, "true", timeoutMs=asked)

    def test_a_stream_that_ends_too_early(self):
        def answer(handler):
            handler.begin("text/event-stream")
            handler.piece(b'event: stdout\r\ndata: {"data":"half"}\r\n\r\n')
            handler.piece(b"")

        with self.assertRaisesRegex(WorkerError, "ended without a completion event"):
            self.worker(bridgeBaseUrl=self.bare(answer).url).sh({"providerLeaseId": "pc-1"}, "true")

    def test_files(self):
        worker = self.worker()
        lease = worker.acquire(PLACE)
        here = self.temp_dir()
        (here / "in" / "deep").mkdir(parents=True)
        (here / "in" / "deep" / "it's").write_bytes(os.urandom(300000))
        (here / "one").write_text("one")
        done = worker.call("environmentSyncIn", lease=lease, operations=[
            {"operationId": "a", "files": [{"sourcePath": str(here / "one"), "targetPath": f"{CWD}/new/one", "kind": "file", "mode": 0o755},
                                           {"sourcePath": str(here / "in"), "targetPath": f"{CWD}/tree", "kind": "directory", "exclude": ["skipped"]}],
             "postUploadCommands": [{"command": "cat one > copy", "cwd": f"{CWD}/new"}]}])
        self.assertEqual(done, {"operations": [{"operationId": "a", "filesTransferred": 2, "bytesTransferred": 300003}]})
        self.assertEqual(worker.sh(lease, "stat -c %a new/one; cat new/copy; ls /tmp | grep -c berth-sync")["stdout"], "755\none0\n")
        worker.call("environmentSyncOut", lease=lease, operations=[
            {"operationId": "b", "files": [{"sourcePath": f"{CWD}/tree", "targetPath": str(here / "out"), "kind": "directory"},
                                           {"sourcePath": f"{CWD}/new/copy", "targetPath": str(here / "two"), "kind": "file"}]}])
        self.assertEqual(((here / "out/deep/it's").read_bytes(), (here / "two").read_text()),
                         ((here / "in/deep/it's").read_bytes(), "one"))
        with self.assertRaisesRegex(WorkerError, "status 7"):
            worker.call("environmentSyncIn", lease=lease, operations=[{"operationId": "c", "files": [], "postUploadCommands": [{"command": "exit 7"}]}])


class DaemonTest(StandTest):
    daemon_autostart = True

    def run_cli(self, *args, expect=0):
        status, out, err = self.daemon.cli(*args)
        self.assertEqual(status, expect, err + out)
        return out

    def test_life(self):
        self.run_cli("plugin", "install", "berth:cloudflare")
        self.assertIn("brings no provider", self.daemon.cli("plugin", "install", "berth:nothing")[2])
        self.run_cli("env", "create", "sandbox", "cf", "-o", "provider=cloudflare",
                     *(word for pair in self.config(bridgeAuth="hmac").items() for word in ("-o", "=".join(pair))))
        self.assertEqual(self.run_cli("run", "--env", "cf", "--", "sh", "-c", "echo made; exit 3", expect=3), "made\n")
        self.assertEqual(self.run_cli("leaks"), "no leaks\n")
        self.assertEqual(self.stand.places, {})

    def test_conformance(self):
        options = [word for pair in self.config().items() for word in ("-o", "=".join(pair))]
        done = subprocess.run([BINARIES["normal"], "plugin", "conformance", str(PROVIDERS / "cloudflare"), "--json", *options],
                              capture_output=True, text=True, timeout=180)
        report = json.loads(done.stdout or '{"checks": []}')
        self.assertEqual(([c for c in report["checks"] if c["result"] != "ok"], done.returncode), ([], 0), done.stderr)
        self.assertEqual(self.stand.places, {})

    def test_a_manifest_that_names_a_transport(self):
        """What newer manifests say of their bridge is kept out of the way."""
        folder = self.temp_dir() / "folder"
        folder.mkdir()
        said = manifest(bridge={"transport": "https"})
        said["environmentDrivers"][0]["bridge"] = {"transport": "https"}
        said["capabilities"].append("bridge.transport")
        (folder / "berth-plugin.json").write_text(json.dumps(said))
        (folder / "worker.js").write_text(WORKER)
        plugin = self.ok("POST", "/api/plugins/install", {"packageName": str(folder), "isLocalPath": True})
        self.assertEqual(plugin["status"], "ready", plugin)


if __name__ == "__main__":
    unittest.main()
