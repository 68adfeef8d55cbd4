"""What an agent that means harm sends through its channel: refused, bounded, told once."""
# plain: the daemon's memory is measured

import contextlib
import json
import select

from berthtest import ident, wait_until
from callbacktest import CallbackTest
from exectest import memory_tells
from sandboxtest import SandboxTest

PATHS = """
/api/agents/../secrets
/api/agents/me/../../secrets
/api/agents/%2e%2e/secrets
/api/agents/%2E%2e/secrets
/api/agents/.%2e/secrets
/api/agents/me%2f..%2fsecrets
/api/agents/me%2F..%2Fsecrets
/api/agents/..%5csecrets
/api/agents/..%5Csecrets
/api/agents/..\\secrets
/api/agents\\me
//api/agents/me
/api//agents/me
/api/agents//me
/api/./agents/me
/api/agents/%252e%252e/secrets
/api/agents/me%00
/api/agents/me%0d%0aX:%20y
/api/agents/%
/api/agents/%2
/api/agents/%zz
*
""".split()


class SmugglingTest(CallbackTest):
    def setUp(self):
        super().setUp()
        self.run_ = self.run_of()

    def send(self, text):
        """The status of the first answer, and whether the connection was closed after it."""
        with self.run_.raw() as raw:
            raw.send(text)
            answer = raw.response()
            return answer.status, answer.error

    def test_paths(self):
        run = self.run_
        for path in PATHS:
            status, error = self.send(run.head("GET", path))
            self.assertEqual(status, 400, f"{path}: {error}")
            self.assertNotIn("Route not allowed", error or "", path)
        # A whole URL, also one that names us.
        host = f"127.0.0.1:{run.port}"
        for url in (f"http://{host}/api/agents/me", "http://evil.example/api/agents/me", f"https://{host}/api/agents/me",
                    f"HTTP://{host}/api/agents/me"):
            status, error = self.send(run.head("GET", url))
            self.assertEqual(status, 400, f"{url}: {error}")
        self.assertEqual(self.send(run.head("GET", "/api/agents/me"))[0], 200)
        lines = [line for line in self.daemon.log().splitlines() if "a callback was refused" in line]
        self.assertEqual(len([line for line in lines if "status=400 " in line]), 1, lines)

    # In the query they mean nothing.
    def test_queries(self):
        self.assertEqual(self.send(self.run_.head("GET", "/api/agents/me?x=../..%2f%5c//"))[0], 200)

    def test_framing(self):
        run, post = self.run_, f"/api/issues/{ident(self.issue)}/comments"
        kind = "Content-Type: application/json"
        inner = run.head("GET", "/api/agents/me")
        for fields, body in ((("Content-Length: 4", "Transfer-Encoding: chunked"), "0\r\n\r\n" + inner),
                             (("Content-Length: 2", "Content-Length: 3"), "{} "),
                             (("Content-Length: 2, 2",), "{}"),
                             (("Content-Length: +2",), "{}"),
                             (("Transfer-Encoding: xchunked",), "0\r\n\r\n"),
                             (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), "0\r\n\r\n"),
                             (("Transfer-Encoding : chunked",), "0\r\n\r\n"),
                             (("Content-Length: 2", "X: a\r\n b"), "{}"),
                             (("Content-Length: 2", "Authorization: Bearer x"), "{}"),
                             (("Content-Length: 2", f"Host: 127.0.0.1:{run.port}"), "{}"),
                             (("Content-Length: 2", "Content-Type: text/plain"), "{}")):
            with run.raw() as raw:
                raw.send(run.head("POST", post, kind, *fields) + body)
                answer = raw.response("POST")
                self.assertGreaterEqual(answer.status, 400, fields)
                self.assertLess(answer.status, 502, fields)
                raw.half_close()
                self.assertNotIn(b"HTTP/1.1 200", raw.rest(), f"{fields}: a second request was found in the first")
        self.assertEqual(self.send(run.head("GET", "/api/agents/me"))[0], 200)
        self.assertEqual(run.req("GET", post).json, [])

    # Bodies that never end hold their own run's places, and no one else's.
    def test_slow_bodies(self):
        run, other = self.run_, self.run_of()
        raws = []
        for _ in range(70):
            raw = run.raw()
            self.addCleanup(raw.close)
            raw.send(run.head("POST", f"/api/issues/{ident(self.issue)}/comments", "Content-Type: application/json",
                              "Content-Length: 262144") + "{")
            raws.append(raw)
        wait_until(lambda: run.req("GET", "/api/agents/me").status == 503, "the places are taken")
        self.assert_status(other.req("GET", "/api/agents/me"), 200)
        for raw in raws:
            raw.close()
        wait_until(lambda: run.req("GET", "/api/agents/me").status == 200, "they are free again")

    # Heads that never end hold connections, and a run has only so many.
    def test_connections(self):
        run, other = self.run_, self.run_of()
        def hold():
            raw = run.raw()
            self.addCleanup(raw.close)
            raw.send("GET")

        def one_too_many():
            hold()  # one whose bytes had not arrived made room, as if it were idle
            with run.raw() as raw:
                raw.send(run.head("GET", "/api/agents/me"))
                return raw.response().status == 503
        for _ in range(96):
            hold()
        wait_until(one_too_many, "no more are taken")
        self.assert_status(other.req("GET", "/api/agents/me"), 200)
        self.assertEqual(self.req("GET", "/api/health").status, 200)


class SlowTest(CallbackTest):
    daemon_env = {**CallbackTest.daemon_env, "BERTH_TEST_BODY_TIMEOUT_MS": "300"}

    # A byte now and then is no way to keep a place.
    def test_a_body_byte_by_byte(self):
        run = self.run_of()
        with run.raw() as raw:
            raw.send(run.head("POST", f"/api/issues/{ident(self.issue)}/comments", "Content-Type: application/json",
                              "Content-Length: 262144"))

            def answered():
                with contextlib.suppress(OSError):  # it was closed after its answer
                    raw.send(" ")
                return select.select([raw.sock], [], [], 0)[0]
            wait_until(answered, "there is an answer although the body goes on")
            self.assertEqual(raw.response("POST").status, 408)
        wait_until(lambda: [e["status"] for e in run.events()] == [400], "its place is free")
        self.assert_status(run.req("GET", "/api/agents/me"), 200)


FLOOD = r"""
import os, socket, sys, threading, urllib.parse
url = urllib.parse.urlsplit(os.environ["PAPERCLIP_API_URL"])
head = (f"GET /api/agents/me HTTP/1.1\r\nHost: {url.netloc}\r\n"
        f"Authorization: Bearer {os.environ['PAPERCLIP_API_KEY']}\r\n\r\n").encode()
counts, lock = {}, threading.Lock()

def some(n):
    mine = {}
    with socket.create_connection((url.hostname, url.port)) as s:
        reader = s.makefile("rb")
        for at in range(0, n, 50):
            s.sendall(head * 50)
            for _ in range(50):
                status = int(reader.readline().split()[1])
                length = 0
                while (line := reader.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                reader.read(length)
                mine[status] = mine.get(status, 0) + 1
    with lock:
        for k, v in mine.items():
            counts[k] = counts.get(k, 0) + v

threads = [threading.Thread(target=some, args=(500,)) for _ in range(20)]
for t in threads: t.start()
for t in threads: t.join()
import json
print(json.dumps(counts))
"""

FETCH = r"""
const url = process.env.PAPERCLIP_API_URL, key = process.env.PAPERCLIP_API_KEY;
const headers = {authorization: `Bearer ${key}`, "content-type": "application/json"};
(async () => {
  const me = await (await fetch(`${url}/api/agents/me`, {headers})).json();
  const posted = await fetch(`${url}/api/issues/${process.env.ISSUE}/comments`,
                             {method: "POST", headers, body: JSON.stringify({body: "from node"})});
  const denied = await fetch(`${url}/api/secrets`, {method: "DELETE", headers});
  const many = await Promise.all([...Array(40)].map(() => fetch(`${url}/api/agents/me`, {headers}).then((r) => r.status)));
  console.log(JSON.stringify({me: me.id, posted: posted.status, denied: await denied.json(), many}));
})();
"""


class SandboxCallbackTest(SandboxTest, CallbackTest):
    """From within a sandbox without any network."""
    daemon_env = CallbackTest.daemon_env
    config = {"network": "none"}

    def make_lease(self):
        SandboxTest.make_lease(self)
        self.make_people()

    def test_curl(self):
        run = self.run_of()
        self.skip_without("curl")
        me = self.inside(run, "GET", "/api/agents/me")
        self.assertEqual((me.status, json.loads(me.body)["id"]), (200, self.ada["id"]))
        path = f"/api/issues/{ident(self.issue)}"
        self.assertEqual(self.inside(run, "POST", path + "/comments", {"body": "hi"}).status, 201)
        self.assertEqual(self.inside(run, "PATCH", path, {"title": "Renamed"}).status, 200)
        self.assertEqual(self.ok("GET", path)["title"], "Renamed")
        denied = self.inside(run, "GET", "/api/agents/../secrets")
        self.assertEqual(denied.status, 400)
        # Outside nobody listens on that port.
        self.assertRaises(ConnectionError, run.raw)

    def test_node(self):
        run = self.run_of()
        self.skip_without("node")
        done = self.run_ok("node", ["-e", FETCH], env={**run.env(), "ISSUE": ident(self.issue)})
        self.assertEqual(done["exitCode"], 0, done)
        told = json.loads(done["stdout"])
        self.assertEqual(told, {"me": self.ada["id"], "posted": 201, "many": [200] * 40,
                                "denied": {"error": "Route not allowed: DELETE /api/secrets"}})

    def test_ten_thousand_at_once(self):
        run, other = self.run_of(), self.run_of()
        self.skip_without("python3")
        self.assertEqual(self.run_ok("python3", ["-c", "print(1)"])["exitCode"], 0)
        before = self.daemon.rss_kb()
        done = self.run_ok("python3", ["-c", FLOOD], env=run.env(), timeoutMs=120000)
        self.assertEqual(done["exitCode"], 0, done)
        counts = {int(k): v for k, v in json.loads(done["stdout"]).items()}
        self.assertEqual(sum(counts.values()), 10000, counts)
        self.assertLessEqual(set(counts), {200, 429, 503}, counts)
        self.assertGreaterEqual(counts[200], 300, counts)
        self.assertIn(429, counts)
        if memory_tells():
            self.assertLess(self.daemon.rss_kb() - before, 40 * 1024)
        lines = [line for line in self.daemon.log().splitlines() if "a callback was refused" in line]
        self.assertLessEqual(len(lines), 2, lines)  # one of each kind
        self.assertEqual(self.inside(other, "GET", "/api/agents/me").status, 200)
        wait_until(lambda: len(run.events()) == min(1000, run.count()), "the first of them are listed")
        wait_until(lambda: self.inside(run, "GET", "/api/agents/me").status == 200, "who slows down may go on")

    def test_the_box_is_killed(self):
        run = self.run_of()
        self.kill_box()
        run.end()
        self.assertEqual(self.req("GET", "/api/health").status, 200)
