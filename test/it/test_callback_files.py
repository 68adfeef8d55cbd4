"""Callbacks where only plain commands can be run: a gateway inside, a queue of files, and a thread that looks."""
# slow: each request is a few commands, and a queue that is closed is given two seconds
# share 6: 6 s of processor time

# sqlite: holds a lock of the SQLite file

import contextlib
import json
import os
import pathlib
import queue
import shutil
import socketserver
import sqlite3
import subprocess
import tempfile
import threading
import unittest
import uuid

from berthtest import SOURCE, Client, ident, wait_until
from callbacktest import JSON, CallbackTest
from exectest import ExecTest
from providertest import ProviderTest

CHANNEL = "PAPERCLIP_SANDBOX_EXEC_CHANNEL"
LOWER = {"content-type": "application/json"}
# Knows nothing of the session that it made; begun anew, it asks as often as it takes a gateway to end.
FORGETFUL = """#!/bin/sh
cat >/dev/null
case "$*" in *--resume*) echo "No conversation found with session ID: s1" >&2; exit 1 ;; esac
for i in 1 2 3 4 5 6 7 8 9 10; do
        curl -s -m 20 -o /dev/null -w '%{http_code}\\n' -H "Authorization: Bearer $PAPERCLIP_API_KEY" \\
                "$PAPERCLIP_API_URL/api/agents/me" >>"$MY_DIARY"
done
echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s1","result":"done"}'
"""
GATEWAY = SOURCE / "src" / "core" / "callbacks" / "files" / "paperclip-bridge-server.mjs"


class Executor(socketserver.ThreadingTCPServer):
    """Runs the commands of the sandboxes, outside of what keeps a worker in; notes and spoils them as a test likes."""

    allow_reuse_address = daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.spoil = [], None
        threading.Thread(target=self.serve_forever, args=(0.05,)).start()

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        params = json.loads(self.rfile.readline())
        self.server.seen.append(params)
        told = self.server.spoil(params) if self.server.spoil else None
        if told is None:
            done = subprocess.run([params["command"], *params.get("args", [])], capture_output=True, timeout=60,
                                  cwd=params.get("cwd") or params["lease"]["metadata"]["remoteCwd"],
                                  env={"PATH": os.environ["PATH"], **params["env"]},
                                  input=params.get("stdin", "").encode())
            told = {"exitCode": done.returncode, "timedOut": False, "stdout": done.stdout.decode(),
                    "stderr": done.stderr.decode()}
        self.wfile.write(json.dumps(told).encode() + b"\n")


class QueueTest(ProviderTest):
    worker = SOURCE / "test" / "workers" / "runner.py"
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_BOX": "off", "BERTH_PLUGIN_CONFINE": "false"}

    execute, run_ok, sh = ExecTest.execute, ExecTest.run_ok, ExecTest.sh
    inside, make_people = CallbackTest.inside, CallbackTest.make_people

    def setUp(self):
        super().setUp()
        self.executor = Executor()
        self.addCleanup(self.executor.close)
        (self.provider.dir / "executor").write_text(str(self.executor.server_address[1]))
        self.env = self.sandbox()
        self.held = self.take(self.env)
        self.acme = self.company_id
        self.make_people()
        self.remote = pathlib.Path(self.lease(self.held)["metadata"]["remoteCwd"])
        self.root = self.remote / ".paperclip-runtime" / "process" / "paperclip-bridge"
        self.addCleanup(self.release, self.held)

    def run_of(self, *args, **more):
        run = CallbackTest.run_of(self, *args, **more)
        self.addCleanup(self.ended, run)
        self.addCleanup(run.close_channel)
        return run

    def files(self, run):
        return self.root / "queue" / run.id

    def comments(self):
        return f"/api/issues/{ident(self.issue)}/comments"

    def texts(self):
        return [c["body"] for c in self.ok("GET", self.comments() + "?order=asc")]

    def put(self, run, name, **request):
        """A request as the gateway would write it."""
        path = self.files(run) / "requests" / f"{name}.json"
        body = {"id": name, "method": "POST", "path": self.comments(), "query": "", "headers": LOWER, "body": "{}",
                **request}
        path.with_suffix(".new").write_text(json.dumps(body))
        path.with_suffix(".new").rename(path)

    def answer(self, run, name):
        path = self.files(run) / "responses" / f"{name}.json"
        return path.exists() and json.loads(path.read_text())

    def ended(self, run):
        wait_until(lambda: not self.files(run).exists(), "the queue is gone", 30)

    @contextlib.contextmanager
    def locked(self):
        """Nobody writes to the database meanwhile."""
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db", timeout=20)) as other:
            other.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                other.rollback()

    # remote-execution 8.36, and 8.53 as Paperclip has it
    def test_through_the_gateway(self):
        run = self.run_of()
        self.assertEqual((run.mode, run.url), ("queue_v1", f"http://127.0.0.1:{run.port}"))
        me = run.req("GET", "/api/agents/me?view=compact")
        self.assert_status(me, 200)
        self.assertEqual(me.json["id"], self.ada["id"])
        self.assertEqual(run.req("GET", "/api/agents/me", headers={"If-None-Match": me.headers["etag"]}).status, 304)
        self.assert_status(run.req("POST", self.comments(), {"body": "by files \u00fc"},
                                   {"X-Paperclip-Run-Id": str(uuid.uuid4())}), 201)
        self.assertEqual(self.texts(), ["by files \u00fc"])
        self.assertTrue(self.daemon.sql("SELECT * FROM activity_log WHERE run_id = ?", (run.id,)))
        self.assert_error(run.req("DELETE", "/api/secrets", b"{}", JSON), 403, "Route not allowed: DELETE /api/secrets")
        self.assert_error(run.req("GET", "/api/agents/me", token="wrong"), 401, "Invalid bridge token.")
        self.assert_error(run.req("GET", "/api/agents/../secrets"), 400)
        self.assert_error(run.req("POST", self.comments(), b"x", {"Content-Type": "text/plain"}), 415,
                          "Bridge only accepts JSON request bodies.")
        self.assertEqual(self.inside(run, "GET", "/api/agents/me").status, 200)
        control = [p for p in self.executor.seen if "paperclip-bridge" in json.dumps(p["args"])]
        self.assertTrue(control)
        self.assertTrue(all(run.key not in json.dumps(p["args"]) for p in control), "the token is in an argument")
        calls = [c for c in self.provider.calls("environmentExecute") if "paperclip-bridge" in json.dumps(c["args"])]
        self.assertTrue(all(c["env"] == {CHANNEL: "bridge"} for c in calls))
        run.end()
        self.ended(run)

    # remote-execution 8.32
    def test_the_program_is_brought_once(self):
        self.run_of().end()
        program = self.root / "server" / GATEWAY.name
        wait_until(lambda: program.exists(), "it is there")
        self.assertEqual(program.read_bytes(), GATEWAY.read_bytes())
        before = program.stat().st_mtime_ns
        self.run_of().end()
        self.assertEqual(program.stat().st_mtime_ns, before)
        self.assertEqual(sorted(os.listdir(program.parent)), [program.name])

    # remote-execution 8.33
    def test_a_program_that_arrives_damaged(self):
        def spoil(params):
            if "upload" in params["args"][1]:
                params["stdin"] = "AAAA" + params["stdin"][4:]
        self.executor.spoil = spoil
        answer = self.daemon.req_unix("POST", "/api/test/runs", {"agentId": self.ada["id"], "leaseId": ident(self.held)})
        self.assert_error(answer, 502, contains="sha mismatch")
        self.assertEqual(os.listdir(self.root / "server"), [])

    # remote-execution 8.24
    def test_what_waits_is_still_handled(self):
        run = self.run_of()
        names = sorted(str(uuid.uuid4()) for _ in range(2))
        with self.nothing_runs():
            for name in reversed(names):
                self.put(run, name, body=json.dumps({"body": name}))
            run.close_channel()
        self.ended(run)
        self.assertEqual(self.texts(), names)

    @contextlib.contextmanager
    def nothing_runs(self):
        """Commands wait meanwhile."""
        gate = threading.Event()
        self.executor.spoil = lambda params: gate.wait(20) and None
        try:
            yield
        finally:
            gate.set()
            self.executor.spoil = None

    def kept_answers(self):
        """What is written for requests, also when the queue is gone afterwards."""
        kept = {}

        def keep(params):
            if len(params["args"]) > 4 and params["args"][4]:
                kept[params["args"][4].removesuffix(".json")] = json.loads(params["stdin"])
        self.executor.spoil = keep
        return kept

    # remote-execution 8.25, 8.27: the time to drain is two seconds
    def test_what_takes_too_long_is_told_so(self):
        run = self.run_of()
        names = sorted(str(uuid.uuid4()) for _ in range(3))
        kept = self.kept_answers()
        with self.locked():
            for name in reversed(names):
                self.put(run, name, body=json.dumps({"body": name}))
            wait_until(lambda: run.count() >= 1, "the first is under way")
            run.close_channel()
            self.ended(run)
        self.assertEqual({n: (kept[n]["status"], json.loads(kept[n]["body"])["error"]) for n in names[1:]},
                         {n: (503, "Bridge worker stopped before request could be handled.") for n in names[1:]})
        self.assertIn(kept[names[0]]["status"], (502, 503))
        self.assertEqual(self.root.joinpath("queue").exists() and os.listdir(self.root / "queue"), [])
        self.assertLessEqual(len(self.texts()), 1)  # the first was under way, and nobody can tell

    # remote-execution 8.26
    def test_commands_that_fail(self):
        run = self.run_of()
        self.executor.spoil = lambda params: {"exitCode": 1, "timedOut": False, "stdout": "no", "stderr": ""}
        seen = len(self.executor.seen)
        wait_until(lambda: len(self.executor.seen) > seen + 1, "it tries again")
        self.executor.spoil = None
        self.assert_status(run.req("GET", "/api/agents/me"), 200)
        self.executor.spoil = lambda params: {"exitCode": 1, "timedOut": False, "stdout": "no", "stderr": ""}
        run.close_channel()
        wait_until(lambda: run.count() == 0, "it ends all the same", 20)
        self.executor.spoil = None
        os.kill(int((self.files(run) / "server.pid").read_text()), 9)
        shutil.rmtree(self.files(run))

    # An answer that was written, and whose command was lost: the request is not made twice.
    def test_answers_of_commands_are_lost(self):
        run = self.run_of()
        lost = []

        def lose(params):
            if len(params["args"]) > 4 and params["args"][4] and len(lost) < 3:
                lost.append(params["args"][4])
                return {"exitCode": 1, "timedOut": False, "stdout": "lost", "stderr": ""}
        self.executor.spoil = lose
        self.assert_status(run.req("POST", self.comments(), {"body": "once"}), 201)
        self.assertEqual((self.texts(), len(lost)), (["once"], 3))

    def test_the_lease_goes_first(self):
        """Nothing more is run in a place that was given up, and the channel ends."""
        run = CallbackTest.run_of(self)
        self.assert_status(run.req("GET", "/api/agents/me"), 200)
        gateway = int((self.files(run) / "server.pid").read_text())
        self.release(self.held)
        wait_until(lambda: run.count() == 0, "the channel is gone", 30)
        run.end()
        with contextlib.suppress(ProcessLookupError):
            os.kill(gateway, 9)

    def test_a_session_that_is_not_known_any_more(self):
        """The command that is begun anew finds the gateway, and nobody ends it meanwhile."""
        home = pathlib.Path(self.temp_dir())
        diary, program = home / "diary", home / "claude"
        program.write_text(FORGETFUL)
        program.chmod(0o755)
        agent = self.agent(self.acme, "Eve", adapterType="claude_local",
                           defaultEnvironmentId=ident(self.env),
                           adapterConfig={"command": str(program), "env": {"MY_DIARY": str(diary)}})
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db", timeout=20)) as other, other:
            # As if each lease were the one before.
            other.execute("CREATE TRIGGER again AFTER INSERT ON environment_leases BEGIN UPDATE agent_runtime_state SET "
                          "session_params_json = json_set(session_params_json, '$.remoteExecution.leaseId', NEW.id); END")
        for times in (10, 20):
            run = ident(self.ok("POST", f"/api/agents/{agent['id']}/wakeup", {}, status=202))
            row = wait_until(lambda: self.daemon.sql("SELECT * FROM heartbeat_runs WHERE id = ? AND step = 'done'", (run,)),
                             "it is done", 60)[0]
            self.assertEqual((row["status"], row["error"]), ("succeeded", None))
            self.assertEqual(diary.read_text().split(), ["200"] * times)
        self.assertEqual(row["session_id_before"], "s1")

    def test_a_gateway_that_ends_without_a_word(self):
        """It was killed, or there was no room to say why: the run waits and is prepared again, because nothing of it ran."""
        agent = self.agent(self.acme, "Eve", adapterType="process", defaultEnvironmentId=ident(self.env),
                           adapterConfig={"command": "true"})
        spoiled = []

        def spoil(params):
            if params["command"] == "true":
                return {"exitCode": 0, "timedOut": False, "stdout": "", "stderr": ""}
            if "nohup" in params["args"][1] and len(spoiled) < 2:
                spoiled.append(params)
                return {"exitCode": 1, "timedOut": False, "stdout": "", "stderr": ""}
            return None
        self.executor.spoil = spoil
        run = ident(self.ok("POST", f"/api/agents/{agent['id']}/wakeup", {}, status=202))
        row = wait_until(lambda: self.daemon.sql("SELECT * FROM heartbeat_runs WHERE id = ? AND step = 'done'", (run,)),
                         "it is done", 60)[0]
        self.assertEqual((row["status"], row["error"], len(spoiled)), ("succeeded", None, 2))

    def test_in_the_order_of_their_names(self):
        run = self.run_of()
        names = sorted(str(uuid.uuid4()) for _ in range(5))
        with self.nothing_runs():
            for name in reversed(names):
                self.put(run, name, body=json.dumps({"body": name}))
        wait_until(lambda: all(self.answer(run, name) for name in names), "all are answered")
        self.assertEqual(self.texts(), names)
        self.assertEqual({self.answer(run, n)["status"] for n in names}, {201})
        wait_until(lambda: {p.suffix for p in (self.files(run) / "responses").iterdir()} == {".json"},
                   "no lock and nothing half written is left")
        self.assertEqual(list((self.files(run) / "requests").iterdir()), [])

    def test_files_that_are_no_requests(self):
        """They are nobody's, and keep no request waiting."""
        run = self.run_of()
        for name in ("0", "." + "0" * 35, "z" * 36, "0" * 36, "00000000-0000-4000-8000-00000000000A", "0000 0"):
            (self.files(run) / "requests" / f"{name}.json").write_text("{}")
        self.assert_status(run.req("GET", "/api/agents/me"), 200)
        self.assertEqual(list((self.files(run) / "responses").glob("*.json")), [])

    def test_hostile_files(self):
        run = self.run_of()
        cases = {
            400: [{"path": "/api/agents/../secrets"}, {"path": "http://x/api/agents/me"}, {"method": "GET\r\nX: y"},
                  {"query": "?a b"}, {"query": "x"}, {"path": "/api/agents/me\r\nX: y"}, {"method": None}, {"path": 7}],
            403: [{"path": "/api/secrets", "method": "DELETE"}, {"method": "HEAD", "path": "/api/agents/me"}],
            415: [{"headers": {"content-type": "text/plain"}}, {"headers": {"content-type": "a/json\r\nX: y"}}],
            200: [{"method": "GET", "path": "/api/agents/me", "headers": {"authorization": "Bearer x", "host": "evil"}}],
        }
        for status, requests in cases.items():
            for request in requests:
                name = str(uuid.uuid4())
                self.put(run, name, **request)
                answer = wait_until(lambda: self.answer(run, name), f"{request} is answered")
                self.assertEqual(answer["status"], status, (request, answer))
        name = str(uuid.uuid4())
        for text in (b"no json", b"[]", b"", b"\xff" * 100, b"{" * 100000, b" " * (3 << 20)):
            name = str(uuid.uuid4())
            (self.files(run) / "requests" / f"{name}.new").write_bytes(text)
            (self.files(run) / "requests" / f"{name}.new").rename(self.files(run) / "requests" / f"{name}.json")
            answer = wait_until(lambda: self.answer(run, name), f"{text[:20]} is answered")
            self.assertEqual((answer["status"], json.loads(answer["body"])),
                             (400, {"error": "Invalid bridge request payload."}))


class GatewayTest(unittest.TestCase):
    """The program by itself."""

    def setUp(self):
        node = shutil.which("node")
        if not node:
            raise unittest.SkipTest("no node")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="gw-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.process = subprocess.Popen([node, GATEWAY], env={
            "PAPERCLIP_BRIDGE_QUEUE_DIR": str(self.dir / "q"), "PAPERCLIP_BRIDGE_TOKEN": "secret",
            "PAPERCLIP_BRIDGE_RESPONSE_TIMEOUT_MS": "1500", "PAPERCLIP_BRIDGE_MAX_QUEUE_DEPTH": "2",
            "PAPERCLIP_BRIDGE_MAX_BODY_BYTES": "-1", "PAPERCLIP_BRIDGE_POLL_INTERVAL_MS": "10"})
        self.addCleanup(self.process.wait, 20)
        self.addCleanup(self.process.kill)
        ready = self.dir / "q" / "ready.json"
        wait_until(lambda: ready.exists(), "it is ready", 30)
        told = json.loads(ready.read_text())
        self.assertEqual((told["pid"], told["host"], told["baseUrl"]),
                         (self.process.pid, "127.0.0.1", f"http://127.0.0.1:{told['port']}"))
        self.client = Client(("127.0.0.1", told["port"]))
        self.addCleanup(self.client.close)

    def req(self, method="GET", path="/api/agents/me", body=None, headers=None, token="secret"):
        return self.client.req(method, path, body, headers, token)

    def requests(self):
        return sorted((self.dir / "q" / "requests").glob("*.json"))

    def reply(self, text):
        """Answer the one request that comes, in a thread; what it was."""
        seen = queue.Queue()

        def work():
            path = wait_until(lambda: self.requests() and self.requests()[0], "a request comes")
            seen.put(json.loads(path.read_text()))
            target = self.dir / "q" / "responses" / path.name
            target.with_suffix(".new").write_text(text)
            target.with_suffix(".new").rename(target)
        threading.Thread(target=work).start()
        return seen

    def test_a_request(self):
        seen = self.reply(json.dumps({"status": 202, "headers": {"etag": "x", "content-length": "999", "n": 1},
                                      "body": "{}"}))
        answer = self.req("POST", "/api/issues/1/comments?a=b", {"x": 1}, {"X-Other": "1", "If-Match": "*"})
        self.assertEqual((answer.status, answer.headers["etag"], answer.body), (202, "x", b"{}"))
        told = seen.get(timeout=10)
        self.assertEqual({k: told[k] for k in ("method", "path", "query", "body", "headers")},
                         {"method": "POST", "path": "/api/issues/1/comments", "query": "?a=b", "body": '{"x": 1}',
                          "headers": {"content-type": "application/json", "if-match": "*"}})
        self.assertEqual(self.requests(), [])
        self.assertEqual(list((self.dir / "q" / "responses").iterdir()), [])

    # remote-execution 8.28
    def test_the_queue_is_full(self):
        for name in ("a", "b"):
            (self.dir / "q" / "requests" / f"{name}.json").write_text("{}")
        answer = self.req()
        self.assertEqual((answer.status, answer.json), (503, {"error": "Bridge request queue is full."}))

    # remote-execution 8.30, 8.31
    def test_bad_answers(self):
        answer = self.req()
        self.assertEqual((answer.status, answer.json), (502, {"error": "Timed out waiting for host bridge response."}))
        self.assertEqual(self.requests(), [])
        self.reply("{no json")
        answer = self.req()
        self.assertEqual(answer.status, 502)
        self.assertIn("JSON", answer.json["error"])

    # remote-execution 8.22, 8.29, with the default limit of a body
    def test_refusals(self):
        self.assertEqual(self.req(token="secre").status, 401)
        self.assertEqual(self.client.req("GET", "/").status, 401)
        self.assertEqual(self.req("POST", "/", b"x", {"Content-Type": "text/plain"}).status, 415)
        answer = self.req("POST", "/", b" " * 262145, JSON)
        self.assertEqual((answer.status, answer.json),
                         (502, {"error": "Bridge request body exceeded the configured size limit."}))
        self.assertEqual(self.requests(), [])

    def test_it_ends_when_it_is_idle(self):
        self.client.close()
        self.process.terminate()
        self.assertEqual(self.process.wait(20), 0)
