"""The providers that come with Berth against stand-ins of their services: what each says and does in trouble (one table), a
worker that is killed at every request, and the official clients against the same stand-ins, which keeps those honest."""
# slow: three services, and a daemon whose worker is killed at every request

import json
import os
import signal
import subprocess
import unittest

from berthtest import BINARIES, BerthTest, ident, wait_until
from cloudflarestand import TOKEN, CloudflareStand
from daytonastand import KEY as DAYTONA_KEY
from daytonastand import DaytonaStand
from e2bstand import KEY, E2bStand
from plugintest import from_npm, need_node, npm_install
from providertest import TIMES
from standin import PROVIDERS, Stand, Worker, WorkerError
from test_provider_daytona import DAYTONA

PLACE = "11111111-1111-4111-8111-111111111111"
NODE = "node-1"


def cloudflare(stand):
    return {"bridgeBaseUrl": getattr(stand, "bridge", stand.url), "bridgeAuthToken": TOKEN, "requestedCwd": "/tmp/work"}


def e2b(stand):
    return {"apiUrl": stand.url, "sandboxUrl": stand.url, "apiKey": KEY, "requestedCwd": "/tmp"}


def daytona(stand):
    return {"apiUrl": stand.url, "apiKey": DAYTONA_KEY, "requestedCwd": "/tmp"}


# How a provider is configured for a stand-in, the stand-in, the member with its key, and what it calls the service.
SERVICES = {
    "cloudflare": (cloudflare, CloudflareStand, "bridgeAuthToken", "Cloudflare sandbox bridge"),
    "e2b": (e2b, E2bStand, "apiKey", "E2B"),
    "daytona": (daytona, DaytonaStand, "apiKey", "Daytona"),
}


def refuse(status, said, **headers):
    def trouble(handler):
        handler.say(status, said, headers=[(name.replace("_", "-"), value) for name, value in headers.items()])
        return True
    return trouble


def cut(handler):
    """An answer that ends in the middle."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"half")
    handler.close_connection = True
    return True


# What the service answers, what an acquire then says (NAME is the service), with which code, and after how many requests.
TROUBLE = (
    (refuse(401, {"message": "no such key"}), r"^NAME refuses the key \(HTTP 401: no such key\)\. Check `KEY` of the environment\.$", -32002, 1),
    (refuse(403, {"message": "team is blocked"}), r"^NAME refuses the key \(HTTP 403: team is blocked\)", -32002, 1),
    (refuse(402, {"message": "credit"}), r"^NAME: the account's quota or credit is used up \(HTTP 402: credit\)\.$", -32002, 1),
    (refuse(429, {"message": "slow"}, Retry_After="30"), r"^NAME asks to slow down \(HTTP 429: slow\)\. Try again in 30 s\.$", -32002, 1),
    (refuse(429, {"message": "slow"}, Retry_After="0"), r"^NAME asks to slow down \(HTTP 429: slow\)\. Try again in 0 s\.$", -32002, 3),
    (refuse(429, {"message": "too many"}), r"^NAME asks to slow down, or a quota is used up \(HTTP 429: too many\)\.$", -32002, 1),
    (refuse(500, {"error": {"message": "oh"}}), r"^NAME failed \(HTTP 500: oh\)\.$", -32020, 1),
    (refuse(503, b"<html>no</html>"), r"^NAME failed \(HTTP 503\)\.$", -32020, 1),
    (cut, r"^NAME did not answer whole \(.*\); it may have done what was asked\.$", -32020, 1),
)


class TroubleTest(BerthTest):
    daemon_autostart = False

    def worker(self, name, stand, **more):
        worker = Worker(name, self.temp_dir(), {**SERVICES[name][0](stand), **more})
        self.addCleanup(worker.close)
        return worker

    def bare(self):
        """A server that knows nothing: every answer is the trouble's."""
        stand = Stand(self.temp_dir())
        self.addCleanup(stand.close)
        stand.seen = 0
        return stand

    def test_acquire(self):
        for name, (_, _, key, called) in SERVICES.items():
            stand = self.bare()
            worker = self.worker(name, stand)
            for trouble, text, code, requests in TROUBLE:
                with self.subTest(name, text=text):
                    stand.seen = 0

                    def count(handler, trouble=trouble, stand=stand):
                        stand.seen += 1
                        return trouble(handler)

                    stand.trouble = count
                    with self.assertRaisesRegex(WorkerError, text.replace("NAME", called).replace("KEY", key)) as raised:
                        worker.acquire()  # without a place: nothing is looked for first
                    self.assertEqual((raised.exception.code, stand.seen), (code, requests))
                    self.assertNotIn(worker.config[key], str(raised.exception))

    def test_unreachable(self):
        for name, (_, _, _, called) in SERVICES.items():
            with self.subTest(name):
                stand = Stand(self.temp_dir())
                worker = self.worker(name, stand)
                stand.close()
                for call in (worker.acquire, lambda w=worker: w.call("environmentReleaseLease", providerLeaseId="x")):
                    with self.assertRaisesRegex(WorkerError, f"^{called} cannot be reached .* Check its address and the network"):
                        call()
                self.assertFalse(worker.call("environmentProbe")["ok"])

    def test_a_probe_tells(self):
        for name, (_, _, key, called) in SERVICES.items():
            with self.subTest(name):
                stand = self.bare()
                stand.trouble = refuse(401, {"message": "no such key"})
                said = self.worker(name, stand).call("environmentProbe")
                self.assertEqual((said["ok"], said["summary"]),
                                 (False, f"{called} refuses the key (HTTP 401: no such key). Check `{key}` of the environment."))

    def test_a_sandbox_that_is_gone(self):
        """Deleted behind our back: a resume says so, commands end with 1, giving it up succeeds."""
        for name, (_, stand_in, _, _) in SERVICES.items():
            with self.subTest(name):
                stand = stand_in(self.temp_dir())
                self.addCleanup(stand.close)
                worker, other = self.worker(name, stand), self.worker(name, stand)
                lease = worker.acquire(PLACE)
                other.destroy(lease)
                done = worker.sh(lease, "true")
                self.assertEqual(done["exitCode"], 1)
                self.assertIn(lease["providerLeaseId"], done["stderr"])
                self.assertIsNone(worker.call("environmentResumeLease", providerLeaseId=lease["providerLeaseId"],
                                              leaseMetadata=lease["metadata"])["providerLeaseId"])
                for method in ("Release", "Destroy"):
                    self.assertIsNone(worker.call(f"environment{method}Lease", providerLeaseId=lease["providerLeaseId"],
                                                  leaseMetadata=lease["metadata"]))
                self.assertEqual(worker.call("environmentListLeases", owner={"instance": NODE}), {"leases": []})

    def test_a_stream_that_is_cut(self):
        """In the middle of a command: a failure in words, never a success."""
        for name, (_, stand_in, _, _) in SERVICES.items():
            with self.subTest(name):
                stand = stand_in(self.temp_dir())
                self.addCleanup(stand.close)
                worker = self.worker(name, stand)
                lease = worker.acquire(PLACE)

                def half(handler):
                    handler.begin("application/connect+json")
                    handler.wfile.write(b"5\r\nhalf")
                    handler.close_connection = True
                    return True

                broken = self.bare()
                broken.trouble = half
                worker.config.update(SERVICES[name][0](broken))
                lease["metadata"]["toolboxProxyUrl"] = broken.url  # of Daytona, which has it with the lease
                with self.assertRaises(WorkerError) as raised:
                    worker.sh(lease, "true")
                self.assertRegex(str(raised.exception), "did not answer whole|stream")

    def test_owner_and_list(self):
        for name, (_, stand_in, _, _) in SERVICES.items():
            with self.subTest(name):
                stand = stand_in(self.temp_dir())
                self.addCleanup(stand.close)
                worker = self.worker(name, stand)
                leases = [worker.acquire(f"{n * 8}{PLACE[8:]}") for n in "12345"]
                again = worker.acquire(PLACE)
                self.assertEqual(again["providerLeaseId"], leases[0]["providerLeaseId"])
                found = worker.call("environmentListLeases", owner={"instance": NODE})["leases"]
                self.assertEqual({f["providerLeaseId"]: f["owner"]["place"][0] for f in found},
                                 {lease["providerLeaseId"]: n for lease, n in zip(leases, "12345")})
                for lease in leases:
                    worker.destroy(lease)
                self.assertEqual(stand.places, {})


class KilledTest(BerthTest):
    """The worker is killed at each request that it makes, before the service acts and after: nothing is left over."""
    daemon_binary = "faults"
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "20", "BERTH_TEST_PLUGIN_TIMES": TIMES, "BERTH_CLOSE_TIMEOUT_MS": "5000"}

    def walk(self, name):
        configure, stand_in, _, _ = SERVICES[name]
        stand = stand_in(self.temp_dir())
        self.addCleanup(stand.close)
        self.assertEqual(self.daemon.cli("plugin", "install", f"berth:{name}")[0], 0)
        plugin = self.ok("GET", f"/api/plugins/berth.{name}")["id"]
        company = ident(self.company())
        env = self.ok("POST", f"/api/companies/{company}/environments", {
            "name": name, "driver": "sandbox", "config": {"provider": name, **configure(stand)}}, status=201)

        def worker():
            return self.ok("GET", f"/api/plugins/{plugin}/dashboard")["worker"]

        for after in (False, True):
            for at in range(1, 40):
                wait_until(lambda: (worker() or {}).get("status") == "running", "the worker runs")
                pid, seen = worker()["pid"], [0]

                def kill(handler, at=at, pid=pid, seen=seen, after=after):
                    seen[0] += 1
                    if seen[0] != at:
                        return False
                    if after:
                        stand.answer(handler)
                    os.kill(pid, signal.SIGKILL)
                    handler.close_connection = True
                    return True

                stand.trouble = kill
                lease = self.req("POST", f"/api/environments/{ident(env)}/leases", {})
                if lease.status == 201:
                    found = lease.json["lease"]
                    self.req("POST", f"/api/environment-leases/{found['id']}/execute", {"command": "true"})
                    self.req("POST", f"/api/environment-leases/{found['id']}/release", {})
                wait_until(lambda: not self.daemon.sql("SELECT 1 FROM places WHERE state <> 'gone'"), "every place has its end", 30)
                stand.trouble = None
                self.assertEqual(stand.places, {}, (after, at))
                self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)
                if seen[0] < at:
                    break
            self.assertGreater(at, 3)

    def test_cloudflare(self):
        self.walk("cloudflare")

    def test_e2b(self):
        self.walk("e2b")

    def test_daytona(self):
        self.walk("daytona")


class ConformanceTest(BerthTest):
    daemon_autostart = False

    def conforms(self, name):
        configure, stand_in, _, _ = SERVICES[name]
        stand = stand_in(self.temp_dir())
        self.addCleanup(stand.close)
        options = [word for pair in configure(stand).items() for word in ("-o", "=".join(pair))]
        done = subprocess.run([BINARIES["normal"], "plugin", "conformance", str(PROVIDERS / name), "--json", *options],
                              capture_output=True, text=True, timeout=180)
        report = json.loads(done.stdout or '{"checks": []}')
        self.assertEqual(([c for c in report["checks"] if c["result"] != "ok"], done.returncode), ([], 0), done.stderr)
        self.assertEqual(stand.places, {})

    def test_e2b(self):
        self.conforms("e2b")

    def test_daytona(self):
        self.conforms("daytona")


E2B_CLIENT = """
import { Sandbox } from "e2b";
const [url, key] = process.argv.slice(2);
const options = { apiUrl: url, sandboxUrl: url, apiKey: key, requestTimeoutMs: 20000 };
const made = await Sandbox.create("base", { ...options, timeoutMs: 600000, metadata: { berthInstance: "node-1", berthPlace: "p" } });
const out = [], told = {};
try {
  await made.commands.run("echo out; echo err >&2; exit 3", { cwd: "/tmp", envs: { A: "1" }, onStdout: (d) => out.push(d) });
} catch (e) { told.failed = [e.exitCode, e.stdout, e.stderr]; }
await made.files.write("/tmp/deep/file", "from the client");
told.read = await made.files.read("/tmp/deep/file");
told.cat = (await made.commands.run("cat /tmp/deep/file")).stdout;
const list = Sandbox.list({ ...options, query: { metadata: { berthInstance: "node-1" } } });
told.listed = (await list.nextItems()).map((s) => [s.sandboxId === made.sandboxId, s.metadata.berthPlace, s.state]);
told.paused = await made.pause();
const again = await Sandbox.connect(made.sandboxId, options);
told.same = again.sandboxId === made.sandboxId;
told.killed = [await again.kill(), await Sandbox.kill(made.sandboxId, options)];
console.log(JSON.stringify({ ...told, out }));
"""

DAYTONA_CLIENT = """
import { Daytona } from "@daytonaio/sdk";
import { Buffer } from "node:buffer";
const [url, key] = process.argv.slice(2);
const daytona = new Daytona({ apiUrl: url, apiKey: key, target: "us" });
const made = await daytona.create({ snapshot: "base", name: "mine", labels: { berthInstance: "node-1", berthPlace: "p" } });
const told = { state: made.state };
const ran = await made.process.executeCommand("echo out; exit 3", "/tmp", { A: "1" });
told.ran = [ran.exitCode, ran.result];
await made.process.createSession("s");
const begun = await made.process.executeSessionCommand("s", { command: "echo one; echo two >&2; exit 4", runAsync: true });
let seen;
do seen = await made.process.getSessionCommand("s", begun.cmdId); while (seen.exitCode === undefined);
const logs = await made.process.getSessionCommandLogs("s", begun.cmdId);
told.session = [seen.exitCode, logs.stdout, logs.stderr];
await made.process.deleteSession("s");
await made.fs.uploadFile(Buffer.from("from the client"), "/tmp/deep/file");
told.read = (await made.fs.downloadFile("/tmp/deep/file")).toString();
told.listed = (await daytona.list({ berthInstance: "node-1" })).items.map((s) => [s.id === made.id, s.labels.berthPlace]);
try { await daytona.create({ snapshot: "base", name: "mine" }); } catch (e) { told.twice = e.statusCode; }
await made.stop();
await made.start();
told.again = made.state;
await made.delete();
try { await daytona.get(made.id); } catch (e) { told.gone = e.statusCode; }
console.log(JSON.stringify(told));
process.exit(0);
"""


class ClientTest(BerthTest):
    """What the official clients send is what the stand-ins take, and what they answer the clients understand."""
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        need_node()

    def run_client(self, modules, script, *args):
        folder = self.temp_dir()
        (folder / "node_modules").symlink_to(modules)
        (folder / "client.mjs").write_text(script)
        done = subprocess.run(["node", "client.mjs", *args], cwd=folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_e2b(self):
        modules = from_npm("e2b@2.51.0", "the client of E2B")
        stand = E2bStand(self.temp_dir())
        self.addCleanup(stand.close)
        said = self.run_client(modules, E2B_CLIENT, stand.url, KEY)
        self.assertEqual(said, {"failed": [3, "out\n", "err\n"], "read": "from the client", "cat": "from the client",
                                "listed": [[True, "p", "running"]], "paused": True, "same": True, "killed": [True, False],
                                "out": ["out\n"]})

    def test_daytona(self):
        modules = from_npm(DAYTONA, "the client of Daytona",
                           lambda cache, package: npm_install(cache, package, "ws", "--legacy-peer-deps"))
        stand = DaytonaStand(self.temp_dir())
        self.addCleanup(stand.close)
        said = self.run_client(modules, DAYTONA_CLIENT, stand.url, DAYTONA_KEY)
        self.assertEqual(said, {"state": "started", "ran": [3, "out\n"], "session": [4, "one\n", "two\n"], "read": "from the client",
                                "listed": [[True, "p"]], "twice": 409, "again": "started", "gone": 404})


if __name__ == "__main__":
    unittest.main()
