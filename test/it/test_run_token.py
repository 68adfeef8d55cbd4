"""Run tokens: the JWT of a run makes its bearer that run's agent, as long as it is running, in every mode."""

import base64
import hashlib
import hmac
import json
import time

from berthtest import ident, wait_until
from callbacktest import CallbackTest
from exectest import ExecTest

SECRET = "an operator's own secret"


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(part):
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def sign(claims, secret=SECRET, header=None, digest=hashlib.sha256):
    text = ".".join(encode(json.dumps(part, separators=(",", ":")).encode())
                    for part in (header or {"alg": "HS256", "typ": "JWT"}, claims))
    return f"{text}.{encode(hmac.new(secret.encode(), text.encode(), digest).digest())}"


class TokenTest(CallbackTest):
    """Local runs come straight to the daemon's port."""
    daemon_env = {**ExecTest.daemon_env, "PAPERCLIP_AGENT_JWT_SECRET": SECRET}

    def claims(self, run, **changes):
        return {"sub": self.ada["id"], "company_id": ident(self.acme), "adapter_type": "process", "run_id": run.id,
                "iat": int(time.time()), "exp": int(time.time()) + 600, "iss": "paperclip", "aud": "paperclip-api",
                **changes}

    def refused(self, token, text="Unauthorized", status=401):
        # Not even the trusted local operator's rights, which a request without any token has.
        for path in ("/api/agents/me", f"/api/companies/{ident(self.acme)}/secrets"):
            self.assert_error(self.req("GET", path, token=token), status, text)

    # http-api 8.88: the round trip. Paperclip gives no token without a secret; here there always is one.
    def test_what_the_agent_gets(self):
        run = self.run_of()
        self.assertEqual((run.url, run.mode, run.port), (self.daemon.url, None, 0))
        header, claims, _ = run.key.split(".")
        self.assertEqual(decode(header), {"alg": "HS256", "typ": "JWT"})
        claims = decode(claims)
        self.assertEqual(claims["exp"] - claims["iat"], 172800)
        self.assertEqual({**claims, "iat": 0, "exp": 0},
                         {"sub": self.ada["id"], "company_id": ident(self.acme), "adapter_type": "process",
                          "run_id": run.id, "iat": 0, "exp": 0, "iss": "paperclip", "aud": "paperclip-api"})
        self.assertEqual(sign(claims), run.key)
        me = self.req("GET", "/api/agents/me", token=run.key)
        self.assert_status(me, 200)
        self.assertEqual(me.json["id"], self.ada["id"])
        # One of Paperclip's own making counts as well.
        self.assert_status(self.req("GET", "/api/agents/me", token=sign(self.claims(run))), 200)

    # The token says which run it is, also on what it writes.
    def test_the_run_of_a_write(self):
        run = self.run_of()
        path = f"/api/issues/{self.issue['id']}/comments"
        self.assert_status(self.req("POST", path, {"body": "hello"}, token=run.key), 201)
        self.assert_status(self.req("POST", path, {"body": "hello"}, {"X-Paperclip-Run-Id": run.id}, run.key), 201)
        rows = self.daemon.sql("SELECT * FROM activity_log WHERE run_id = ?", (run.id,))
        self.assertEqual(len(rows), 2)
        listed = wait_until(lambda: len(run.events()) == 2 and run.events(), "they are listed")
        self.assertEqual([e["path"] for e in listed], [path] * 2)
        self.assertEqual(run.count(), 2)

    def test_a_header_with_another_run(self):
        run, other = self.run_of(), self.run_of()
        answer = self.req("GET", "/api/agents/me", headers={"X-Paperclip-Run-Id": other.id}, token=run.key)
        self.assert_error(answer, 422, "X-Paperclip-Run-Id does not match signed agent JWT run_id")
        self.assertEqual(answer.json["details"]["code"], "agent_jwt_run_id_mismatch")
        # With a key of its own an agent may name its runs, and nobody else's.
        bob = self.agent(self.acme, name="Bob")
        self.assert_status(self.req("GET", "/api/agents/me", headers={"X-Paperclip-Run-Id": run.id},
                                    token=self.ada["token"]), 200)
        self.assert_error(self.req("GET", "/api/agents/me", headers={"X-Paperclip-Run-Id": run.id}, token=bob["token"]),
                          403, "X-Paperclip-Run-Id names a run of another agent")

    # http-api 9: 1 and 14
    def test_it_ends_with_the_run(self):
        for status in ("succeeded", "failed", "cancelled", "timed_out"):
            run = self.run_of()
            self.assert_status(self.req("GET", "/api/agents/me", token=run.key), 200)
            run.end(status)
            self.refused(run.key, "Run has ended and cannot authenticate")

    def test_other_agents_and_companies(self):
        run, bob = self.run_of(), self.agent(self.acme, name="Bob")
        theirs = self.company("Other")
        carl = self.agent(theirs, name="Carl")
        self.refused(sign(self.claims(run, sub=bob["id"])))
        self.refused(sign(self.claims(run, sub=carl["id"])))
        self.refused(sign(self.claims(run, company_id=theirs["id"])))
        self.refused(sign(self.claims(run, run_id="00000000-0000-4000-8000-000000000009")))
        self.refused(sign(self.claims(run, sub="00000000-0000-4000-8000-000000000009")))
        self.ok("POST", f"/api/agents/{self.ada['id']}/terminate", {})
        self.refused(run.key, "Agent is terminated and cannot authenticate")

    # http-api 8.88: expired; another issuer or audience
    def test_claims_that_do_not_count(self):
        run = self.run_of()
        self.refused(sign(self.claims(run, exp=int(time.time()) - 1)))
        self.refused(sign(self.claims(run, iss="other")))
        self.refused(sign(self.claims(run, aud="other")))
        self.refused(sign(self.claims(run, run_id=None)))
        bare = self.claims(run)
        del bare["iss"], bare["aud"]
        self.assert_status(self.req("GET", "/api/agents/me", token=sign(bare)), 200)

    def test_signatures_that_do_not_count(self):
        run = self.run_of()
        claims = self.claims(run)
        self.refused(sign(claims, secret=SECRET + "x"))
        self.refused(sign(claims, header={"alg": "none", "typ": "JWT"}))
        self.refused(sign(claims, header={"alg": "HS512", "typ": "JWT"}, digest=hashlib.sha512))
        head = sign(claims).rpartition(".")[0]
        for tail in ("", encode(b""), encode(b"\0" * 32)):
            self.refused(f"{head}.{tail}")
        self.refused(run.key[:-1])
        self.refused(run.key + "A")

    # Nothing that the daemon starts inherits it.
    def test_the_secret_stays_with_the_daemon(self):
        self.assertNotIn(SECRET, self.sh("env")["stdout"])
        self.assertNotIn(SECRET, (self.daemon.data / "berth.db").read_bytes().decode("latin-1"))
        with open(f"/proc/{self.daemon.process.pid}/environ", "rb") as file:
            self.assertNotIn(SECRET.encode(), file.read())


class AuthenticatedTest(TokenTest):
    """Where a request without a token is nobody."""
    daemon_flags = ("--mode", "authenticated")

    def setUp(self):
        super().setUp()
        self.assertEqual(self.daemon.req("GET", "/api/agents/me").status, 401)

    def req(self, method, path, body=None, headers=None, token=None):
        if token is None:
            return self.daemon.req_unix(method, path, body, headers)
        return self.daemon.req(method, path, body, headers, token)


class SettingsTest(CallbackTest):
    daemon_env = {**ExecTest.daemon_env, "BETTER_AUTH_SECRET": "of Paperclip's sign-in", "BERTH_AGENT_JWT_ISSUER": "me",
                  "BERTH_AGENT_JWT_AUDIENCE": "you", "BERTH_AGENT_JWT_TTL_SECONDS": "60"}

    # http-api 8.88: falls back to the auth secret
    def test_other_names(self):
        run = self.run_of()
        claims = decode(run.key.split(".")[1])
        self.assertEqual((claims["iss"], claims["aud"], claims["exp"] - claims["iat"]), ("me", "you", 60))
        self.assert_status(self.req("GET", "/api/agents/me", token=run.key), 200)
        self.assert_status(self.req("GET", "/api/agents/me", token=sign(claims, "of Paperclip's sign-in")), 200)


class DerivedTest(CallbackTest):
    daemon_env = ExecTest.daemon_env

    # Without any setting the key comes from the instance, and stays.
    def test_it_outlives_the_daemon(self):
        run = self.run_of()
        self.assert_status(self.req("GET", "/api/agents/me", token=run.key), 200)
        self.daemon.restart()
        self.assert_status(self.req("GET", "/api/agents/me", token=run.key), 200)

    def test_another_instance(self):
        run = self.run_of()
        other = self.new_daemon()
        other.start()
        self.assert_error(other.req("GET", "/api/health", token=run.key), 401, "Unauthorized")
