"""Every route with bodies, ids and parameters that nobody should send: never a 500, never a crash, and
those who may not are refused whatever they send."""

import json
import pathlib
import re

from berthtest import SOURCE, BerthTest, new_company

MISSING = "00000000-0000-4000-8000-000000000000"

IDS = (MISSING, "x", "%00", "%ff", "..", "%2e%2e%2f", "'%20OR%201=1", "a" * 3000, "%E2%80%AE", "0", "-1", "%zz", "me")
DEEP = b"[" * 100000
BODIES = (
    b"", b"{", b"}", b"null", b"[]", b"0", b'"x"', b"true", b"\x00", b"\xff\xfe", b"{}", b"{} {}", b'{"a":1,"a":2}',
    b'{"name":null}', b'{"name":{}}', b'{"name":[]}', b'{"name":1e999}', b'{"name":"\\u0000"}', b'{"name":"\\ud800"}',
    b'{"name":"' + b"x" * 100000 + b'"}', b'{"name":"\xff"}', b'{"__proto__":{"name":"x"}}', DEEP,
    b'{"name":' + DEEP + b"}", b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b'{"ttlMs":-1}', b'{"ttlMs":9223372036854775807}', b'{"ttlMs":9223372036854775808}', b'{"ttlMs":1e300}',
    b'{"ttlMs":0.5}', b'{"ttlMs":"1"}', b'{"heartbeatRunId":"x"}', b'{"heartbeatRunId":1}', b'{"idempotencyKey":""}',
    b'{"idempotencyKey":"' + b"k" * 70000 + b'"}', b'{"status":"x"}', b'{"status":1}', b'{"status":null}',
    b'{"workspace":null}', b'{"workspace":{"localPath":"/etc/../.."}}', b'{"workspace":{"localPath":""}}',
    b'{"command":"x","args":1}', b'{"command":1}', b'{"command":"x","env":[]}', b'{"token":"' + b"t" * 5000 + b'"}',
    b'{"grants":[null,1,"x",{}]}', b'{"grants":{}}', b'{"expiresAt":"9999-99-99T99:99:99Z"}', b'{"expiresAt":1}',
    b'{"expiresAt":"+275760-09-13T00:00:00.000Z"}', b'{"budgetMonthlyCents":-1}', b'{"budgetMonthlyCents":1e18}',
    b'{"name":"x","driver":"x"}', b'{"name":"x","driver":"sandbox","config":null}',
    b'{"name":"x","driver":"sandbox","config":{"provider":{}}}', b'{"name":"x","driver":"ssh","config":{"port":1e9}}',
    b'{"name":"x","driver":"ssh","config":{"host":"h","port":"22","username":1,"remoteWorkspacePath":[]}}',
    b'{"driver":"plugin","name":"x","config":{"pluginKey":1}}', b'{"config":[],"driver":"local"}',
    b'{"metadata":[]}', b'{"metadata":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}", b'{"envVars":{"A":1}}',
    b'{"actorType":"x","actorId":1}', b'{"requestedCompanyId":"x"}', b'{"adapterType":"' + b"y" * 9000 + b'","name":"x"}',
)
QUERIES = ("", "?limit=-1", "?limit=99999999999999999999", "?limit=x", "?cursor=x", "?cursor=1.", "?cursor=%00",
           "?status=%ff", "?token=", "?" + "a=b&" * 500, "?%", "?=", "?&&&", "?limit=1&limit=2", "?closeLeases=true",
           "?driver=%27", "?entityId=%F0%9F%92%A9", "?agentId=x")


def routes():
    """(method, pattern) of all there are, as the source has them."""
    found = []
    for path in sorted(pathlib.Path(SOURCE / "src/api").glob("*.c")):
        found += re.findall(r'\{ "([A-Z]+)",\s+"(/[^"]*)"', path.read_text())
    return [(method, pattern) for method, pattern in found if not pattern.startswith("/api/test/")]


ENDLESS = {"/api/companies/:companyId/events"}  # answered for as long as somebody listens
EMPTY = {"/api/heartbeat-runs/:id/issues"}  # http-api, section 3.9: nothing was touched by a run that nobody knows


class HostileTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.env = self.environment(self.acme)
        self.held = self.acquire(self.env)["lease"]
        self.agent = self.ok("POST", f"/api/companies/{self.acme['id']}/agents", {"name": "Ada"}, 201)

    def fill(self, pattern, ident=None):
        """A path of the pattern: with things that exist, or with `ident` everywhere."""
        first = {"companies": self.acme, "environments": self.env, "environment-leases": self.held,
                 "agents": self.agent}.get(pattern.split("/")[2] if pattern.count("/") > 1 else "", {"id": MISSING})
        parts = [ident or first["id"], *([ident or MISSING] * 3)]
        return re.sub(r":\w+", lambda _: parts.pop(0), pattern)

    def send(self, method, path, body=None, token=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        answer = self.req(method, path, body, headers=headers, token=token)
        self.assertNotEqual(answer.status, 500, answer.body)
        if answer.status >= 400 and path.startswith("/api"):
            self.assertTrue(answer.error, answer.body)
        return answer

    def test_there_are_routes(self):
        self.assertGreater(len(routes()), 45)

    def test_ids(self):
        for method, pattern in routes():
            if ":" not in pattern:
                continue
            for ident in IDS:
                with self.subTest(method=method, pattern=pattern, ident=ident[:20]):
                    answer = self.send(method, self.fill(pattern, ident), None if method == "GET" else b"{}")
                    # What could be the short name of an agent needs a company: 422.
                    named = pattern.startswith("/api/agents/:") or ident in ("me", MISSING) or pattern in EMPTY
                    self.assertIn(answer.status, (200, 400, 401, 403, 404, 422) if named else (400, 401, 404),
                                  answer.body)

    def test_bodies(self):
        for method, pattern in routes():
            if method in ("GET", "DELETE") or pattern.endswith("/archive"):
                continue
            path = self.fill(pattern)
            for body in BODIES:
                with self.subTest(method=method, pattern=pattern, body=body[:60]):
                    answer = self.send(method, path, body)
                    self.assertLess(answer.status, 500, answer.body)
        self.assertEqual(self.ok("GET", "/api/health")["status"], "ok")

    def test_queries(self):
        for method, pattern in routes():
            if method != "GET" or pattern in ENDLESS:
                continue
            for query in QUERIES:
                with self.subTest(pattern=pattern, query=query[:30]):
                    self.assertLess(self.send("GET", self.fill(pattern) + query).status, 500)

    def test_answers_are_json(self):
        """Also those about names that are none."""
        for text in ("\u2028", "\U0001f4a9", '"\\', "</script>", "\x7f"):
            made = self.ok("POST", "/api/companies", {"name": text}, 201)
            self.assertEqual(self.ok("GET", f"/api/companies/{made['id']}")["name"], text)
        answer = self.req("GET", f"/api/companies/{self.acme['id']}/agents?%22%3Cx%3E=1")
        self.assert_status(answer, 400)
        json.loads(answer.body)


class RefusedTest(HostileTest):
    """Nobody in particular, in authenticated mode: no body gets past the check of who it is."""

    daemon_flags = ("--mode", "authenticated")
    public = {"/api/health", "/*", "/api/cli-auth/challenges", "/api/cli-auth/challenges/:id",
              "/api/cli-auth/challenges/:id/cancel", "/api/cli-auth/revoke-current"}

    def setUp(self):
        BerthTest.setUp(self)
        self.acme = self.as_operator("POST", "/api/companies", new_company())
        self.env = self.as_operator("POST", f"/api/companies/{self.acme['id']}/environments",
                                    {"name": "box", "driver": "sandbox", "config": {"provider": "fake"}})
        self.held = self.as_operator("POST", f"/api/environments/{self.env['id']}/leases", {})["lease"]
        self.agent = self.as_operator("POST", f"/api/companies/{self.acme['id']}/agents", {"name": "Ada"})

    def as_operator(self, method, path, body):
        answer = self.daemon.req_unix(method, path, body)
        self.assert_status(answer, 201)
        return answer.json

    def test_ids(self):
        for method, pattern in routes():
            if ":" in pattern and pattern not in self.public:
                for ident in IDS:
                    with self.subTest(method=method, pattern=pattern, ident=ident[:20]):
                        self.assertIn(self.send(method, self.fill(pattern, ident)).status, (400, 401, 403, 404))

    def test_bodies(self):
        bodies = [b for b in BODIES if len(b) < 200]
        for method, pattern in routes():
            if pattern in self.public:
                continue
            for token in (None, "pcp_board_" + "0" * 48):
                for body in bodies if method not in ("GET", "DELETE") else [None]:
                    with self.subTest(method=method, pattern=pattern, body=body, token=token):
                        answer = self.send(method, self.fill(pattern), body, token)
                        # A body that is no JSON at all may be told so first; nothing else may.
                        # One that should have come over a socket, too.
                        self.assertIn(answer.status, (401,) if token and not pattern.endswith("/ws") else (400, 401, 403),
                                      answer.body)
                        self.assertNotEqual(answer.error, "Validation error")
                        self.assertEqual(answer.json.get("details"), None)
        self.assertEqual(len(self.daemon.sql("SELECT * FROM companies")), 1)

    def test_queries(self):
        for pattern in {p for m, p in routes() if m == "GET"} - self.public:
            for query in QUERIES:
                with self.subTest(pattern=pattern, query=query[:30]):
                    self.assertIn(self.send("GET", self.fill(pattern) + query).status, (400, 401, 403, 404))

    def test_answers_are_json(self):
        self.assertEqual(self.req("GET", "/api/nothing").error, "API route not found")
