"""Callbacks: an agent inside its environment reaches the API as itself. The tunnel carries what Paperclip's gateway
script carried in files; what the agent sees is the same."""
# threads: tunnel connections on the loop, requests on the pool

# sqlite: holds a lock of the SQLite file

import base64
import contextlib
import json
import queue
import sqlite3
import threading

from berthtest import RawConnection, ident, wait_until
from callbacktest import JSON, CallbackTest

# remote-execution 8.34, in the order of the table
ALLOWED = """
GET /api/agents/me
GET /api/agents/me/inbox-lite
GET /api/agents/me/inbox/mine
GET /api/agents/agent-1
GET /api/agents/agent-1/skills
POST /api/agents/agent-1/skills/sync
PATCH /api/agents/agent-1/instructions-path
GET /api/companies/company-1
GET /api/companies/company-1/dashboard
GET /api/companies/company-1/agents
GET /api/companies/company-1/issues
GET /api/companies/company-1/projects
GET /api/companies/company-1/goals
GET /api/companies/company-1/org
GET /api/companies/company-1/approvals
GET /api/companies/company-1/routines
GET /api/companies/company-1/skills
POST /api/companies/company-1/issues
POST /api/companies/company-1/approvals
POST /api/companies/company-1/routines
GET /api/projects/project-1
GET /api/goals/goal-1
GET /api/issues/issue-1
GET /api/issues/issue-1/heartbeat-context
GET /api/issues/issue-1/comments
GET /api/issues/issue-1/comments/comment-1
GET /api/issues/issue-1/documents
GET /api/issues/issue-1/documents/plan
GET /api/issues/issue-1/documents/plan/revisions
GET /api/issues/issue-1/approvals
GET /api/issues/issue-1/interactions
GET /api/issues/issue-1/interactions/interaction-1
POST /api/issues/issue-1/comments
POST /api/issues/issue-1/checkout
POST /api/issues/issue-1/release
POST /api/issues/issue-1/interactions
POST /api/issues/issue-1/interactions/interaction-1/accept
POST /api/issues/issue-1/interactions/interaction-1/reject
POST /api/issues/issue-1/interactions/interaction-1/respond
PUT /api/issues/issue-1/documents/plan
PATCH /api/issues/issue-1
GET /api/approvals/approval-1
GET /api/approvals/approval-1/issues
GET /api/approvals/approval-1/comments
POST /api/approvals/approval-1/comments
GET /api/execution-workspaces/workspace-1
POST /api/execution-workspaces/workspace-1/runtime-services/start
POST /api/execution-workspaces/workspace-1/runtime-services/stop
POST /api/execution-workspaces/workspace-1/runtime-services/restart
GET /api/routines/routine-1
GET /api/routines/routine-1/runs
POST /api/routines/routine-1/run
POST /api/routines/routine-1/triggers
PATCH /api/routines/routine-1
PATCH /api/routine-triggers/trigger-1
DELETE /api/routine-triggers/trigger-1
"""

# remote-execution 8.35
DENIED = """
POST /api/execution-workspaces/workspace-1/runtime-services/delete
POST /api/companies/company-1/agents
POST /api/agents/agent-1/pause
POST /api/agents/agent-1/terminate
POST /api/agents/agent-1/keys
POST /api/companies/company-1/exports
POST /api/companies/company-1/imports
POST /api/companies/company-1/archive
POST /api/companies/company-1/logo
GET /api/companies/company-1/secrets
DELETE /api/issues/issue-1/documents/plan
DELETE /api/issues/issue-1/approvals/approval-1
POST /api/approvals/approval-1/approve
POST /api/approvals/approval-1/reject
PATCH /api/secrets/secret-1
DELETE /api/secrets/secret-1
"""

# What the server itself puts on every answer.
OWN = {"date", "connection", "keep-alive", "content-length"}


def pairs(text):
    return [line.split(" ") for line in text.split("\n") if line]


class ChannelTest(CallbackTest):
    # remote-execution 8.18, 8.53: the tunnel carries it, and the handler is the API itself; the mode says so
    def test_a_request_reaches_the_api_as_the_run(self):
        run = self.run_of()
        self.assertEqual(run.url, f"http://127.0.0.1:{run.port}")
        self.assertEqual(run.mode, "tunnel_v1")
        self.assertNotEqual(run.key, self.ada["token"])
        self.assertEqual(len(base64.urlsafe_b64decode(run.key)), 24)
        me = run.req("GET", "/api/agents/me?view=compact")
        self.assert_status(me, 200)
        self.assertEqual(me.json["id"], self.ada["id"])
        # The run's id is on what it writes.
        self.assert_status(run.req("POST", self.comments(), {"body": "from inside"}), 201)
        self.assertTrue(self.activity(run.id), "no audit entry names the run")

    def comments(self, issue=None):
        return f"/api/issues/{ident(issue or self.issue)}/comments"

    def activity(self, run_id):
        return self.daemon.sql("SELECT * FROM activity_log WHERE run_id = ?", (run_id,))

    # remote-execution 8.19
    def test_headers_that_do_not_count(self):
        run, other = self.run_of(), self.run_of()
        answer = run.req("POST", self.comments(), {"body": "hello"},
                         {"X-Paperclip-Run-Id": other.id, "X-Bridge-Debug": "1", "Origin": "http://evil.example",
                          "Host": "evil.example", "Cookie": "a=b", "X-Forwarded-Host": "evil.example"})
        self.assert_status(answer, 201)
        self.assertEqual(answer.json["authorAgentId"], self.ada["id"])
        self.assertEqual(self.activity(other.id), [])
        self.assertEqual(len(self.activity(run.id)), 1)
        # Not even one that the API would refuse.
        self.assert_status(run.req("GET", "/api/agents/me", headers={"X-Paperclip-Run-Id": "no uuid"}), 200)

    # remote-execution 8.20
    def test_what_comes_back(self):
        run = self.run_of()
        answer = run.req("GET", f"/api/issues/{ident(self.issue)}")
        self.assert_status(answer, 200)
        self.assertEqual({name.lower() for name in answer.headers.keys()} - OWN, {"content-type", "etag"})
        self.assertEqual(answer.json["id"], self.issue["id"])
        again = run.req("GET", f"/api/issues/{ident(self.issue)}", headers={"If-None-Match": answer.headers["etag"]})
        self.assert_status(again, 304)
        missing = run.req("GET", "/api/issues/none")
        self.assert_error(missing, 404, "Issue not found")
        self.assertEqual({name.lower() for name in missing.headers.keys()} - OWN, {"content-type"})

    # remote-execution 8.21, 8.23: with the one policy there is
    def test_denied_routes(self):
        run = self.run_of()
        self.assert_error(run.req("DELETE", "/api/secrets", b"{}", JSON), 403, "Route not allowed: DELETE /api/secrets")
        self.assert_error(run.req("DELETE", "/api/issues/issue-1"), 403, "Route not allowed: DELETE /api/issues/issue-1")
        self.assertEqual(run.count(), 2)
        self.assertEqual(len(self.refusals(403)), 1, "logged more than once")

    def refusals(self, status):
        return [line for line in self.daemon.log().splitlines()
                if "a callback was refused" in line and f"status={status} " in line]

    # remote-execution 8.22
    def test_wrong_tokens(self):
        run, other = self.run_of(), self.run_of()
        last = run.key[:-1] + ("A" if run.key[-1] != "A" else "B")
        first = ("A" if run.key[0] != "A" else "B") + run.key[1:]
        for token in ("", "x", run.key[:-1], run.key + "A", last, first, run.key.swapcase(), other.key,
                      self.ada["token"]):
            answer = run.req("POST", self.comments(), {"body": "no"}, token=token)
            self.assert_error(answer, 401, "Invalid bridge token.")
        self.assert_error(run.client.req("GET", "/api/agents/me"), 401, "Invalid bridge token.")
        self.assert_error(run.client.req("GET", "/api/agents/me", headers={"Authorization": f"Basic {run.key}"}), 401,
                          "Invalid bridge token.")
        self.assertEqual(run.count(), 0)
        self.assertEqual(run.req("GET", self.comments()).json, [])
        self.assertEqual(len(self.refusals(401)), 1)
        # And outside of it the channel's token is nobody's.
        self.assert_error(self.req("GET", "/api/agents/me", token=run.key), 401, "Unauthorized")

    # remote-execution 8.28: the queue is the requests under way
    def test_no_more_than_64_under_way(self):
        run = self.run_of()
        held = []
        for _ in range(64):
            raw = run.raw()
            self.addCleanup(raw.close)
            raw.send(run.head("POST", self.comments(), "Content-Type: application/json", "Content-Length: 20"))
            held.append(raw)
        wait_until(lambda: run.count() == 64, "all are in")
        self.assert_error(run.req("GET", "/api/agents/me"), 503, "Bridge request queue is full.")
        held.pop().close()
        wait_until(lambda: run.req("GET", "/api/agents/me").status == 200, "there is room again")
        held[0].send('{"body":"at last."} ')
        self.assert_status(held[0].response("POST"), 201)

    # remote-execution 8.29
    def test_only_json(self):
        run = self.run_of()
        for headers in ({"Content-Type": "text/plain"}, {}, {"Content-Type": "application/x-www-form-urlencoded"}):
            answer = run.req("POST", self.comments(), b'{"body":"x"}', headers)
            self.assert_error(answer, 415, "Bridge only accepts JSON request bodies.")
        for kind in ("application/json", "application/JSON; charset=utf-8", "application/vnd.x+json"):
            self.assert_status(run.req("POST", self.comments(), b'{"body":"x"}', {"Content-Type": kind}), 201)

    # remote-execution 8.34, 8.35
    def test_the_routes_of_agents(self):
        run = self.run_of()
        self.assertEqual((len(pairs(ALLOWED)), len(pairs(DENIED))), (56, 16))
        for method, path in pairs(ALLOWED):
            answer = run.req(method, path, None if method == "GET" else b"{}", None if method == "GET" else JSON)
            self.assertNotIn("Route not allowed", answer.text, f"{method} {path}")
            self.assertNotIn(answer.status, (401, 415, 429, 500, 503), f"{method} {path}")
        for method, path in pairs(DENIED):
            answer = run.req(method, path, None if method == "GET" else b"{}", None if method == "GET" else JSON)
            self.assert_error(answer, 403, f"Route not allowed: {method} {path}")

    # remote-execution 8.55
    def test_answers_that_are_too_large(self):
        run = self.run_of()
        path = f"/api/issues/{ident(self.issue)}/documents/plan"
        self.ok("PUT", path, {"format": "markdown", "title": "Plan", "body": "x" * 300000}, status=201)
        self.assert_error(run.req("GET", path), 502,
                          "Bridge response body exceeded the configured size limit of 262144 bytes.")
        self.assert_status(run.req("GET", "/api/agents/me"), 200)

    def test_bodies_that_are_too_large(self):
        run = self.run_of()
        text = "Bridge request body exceeded the configured size limit."
        fits = json.dumps({"body": "x" * 1000}).encode().ljust(262144)
        self.assert_status(run.req("POST", self.comments(), fits, JSON), 201)
        with run.raw() as raw:
            raw.send(run.head("POST", self.comments(), "Content-Type: application/json", "Content-Length: 262145"))
            answer = raw.response("POST")
            self.assertEqual((answer.status, answer.error), (502, text))
        with run.raw() as raw:
            raw.send(run.head("POST", self.comments(), "Content-Type: application/json", "Transfer-Encoding: chunked"))
            raw.send(b"40000\r\n" + b" " * 0x40000 + b"\r\n1\r\n \r\n")
            answer = raw.response("POST")
            self.assertEqual((answer.status, answer.error), (502, text))
        wait_until(lambda: run.req("GET", "/api/agents/me").status == 200, "the channel goes on")

    def test_a_body_in_chunks(self):
        run = self.run_of()
        with run.raw() as raw:
            raw.send(run.head("POST", self.comments(), "Content-Type: application/json", "Transfer-Encoding: chunked"))
            raw.send('9\r\n{"body": \r\n').send('9\r\n"slowly"}\r\n').send("0\r\n\r\n")
            answer = raw.response("POST")
            self.assertEqual(answer.status, 201, answer.body)
            self.assertEqual(answer.json["body"], "slowly")

    def test_one_connection_for_many(self):
        run = self.run_of()
        with run.raw() as raw:
            raw.send(run.head("GET", "/api/agents/me") * 20)
            self.assertEqual([raw.response().status for _ in range(20)], [200] * 20)

    # What the run did is in its events, a little later; a flood of it is not.
    def test_callbacks_are_listed(self):
        run = self.run_of()
        run.req("GET", "/api/agents/me?secret=1")
        run.req("POST", self.comments(), {"body": "x"})
        run.req("DELETE", "/api/secrets", b"{}", JSON)
        listed = wait_until(lambda: len(run.events()) == 3 and run.events(), "they are recorded")
        self.assertEqual([(e["method"], e["path"], e["status"]) for e in listed],
                         [("GET", "/api/agents/me", 200), ("POST", self.comments(), 201), ("DELETE", "/api/secrets", 403)])
        self.assertTrue(all(0 <= e["ms"] < 60000 for e in listed))
        self.assertEqual(run.count(), 3)

    # The rights are those of the agent.
    def test_another_company(self):
        run = self.run_of()
        theirs = self.company("Other")
        issue = self.ok("POST", f"/api/companies/{theirs['id']}/issues", {"title": "Secret"}, status=201)
        for method, path, body in (("GET", f"/api/issues/{issue['id']}", None),
                                   ("GET", f"/api/companies/{theirs['id']}/issues", None),
                                   ("PATCH", f"/api/issues/{issue['id']}", {"title": "Mine"}),
                                   ("POST", self.comments(issue), {"body": "hello"}),
                                   ("POST", f"/api/issues/{issue['id']}/checkout",
                                    {"agentId": self.ada["id"], "expectedStatuses": ["todo"]})):
            answer = run.req(method, path, body)
            self.assertIn(answer.status, (403, 404), f"{method} {path}: {answer.body}")
        self.assertEqual(self.ok("GET", f"/api/issues/{issue['id']}")["title"], "Secret")

    def test_an_agent_that_was_dismissed(self):
        run = self.run_of()
        self.assert_status(run.req("GET", "/api/agents/me"), 200)
        self.ok("POST", f"/api/agents/{self.ada['id']}/terminate", {})
        self.assertEqual(run.req("GET", "/api/agents/me").status, 401)


class EndTest(CallbackTest):
    def comments(self):
        return f"/api/issues/{ident(self.issue)}/comments"

    def test_what_is_under_way_is_answered(self):
        run = self.run_of()
        raw = run.raw()
        self.addCleanup(raw.close)
        raw.send(run.head("POST", self.comments(), "Content-Type: application/json", "Content-Length: 19"))
        wait_until(lambda: run.count() == 1, "it is in")
        idle = run.raw()
        self.addCleanup(idle.close)
        run.close_channel()
        self.assert_error(run.req("GET", "/api/agents/me"), 401, "Invalid bridge token.")
        raw.send('{"body":"the last"}')
        self.assertEqual(raw.response("POST").status, 201)
        wait_until(lambda: self.refused(run), "nobody listens any more")

    def refused(self, run):
        try:
            run.raw().close()
        except ConnectionError:
            return True
        return False

    def test_a_run_that_has_ended(self):
        run = self.run_of()
        self.assert_status(run.req("GET", "/api/agents/me"), 200)
        run.end()
        wait_until(lambda: self.refused(run), "nobody listens any more")
        self.assertEqual(run.count(), 0)
        wait_until(lambda: len(run.events()) == 1, "what it did is recorded")

    # The row says that it is over before anybody closed the channel.
    def test_a_run_that_was_cancelled(self):
        run, other = self.run_of(), self.run_of()
        with run.raw() as raw:
            raw.send(run.head("GET", "/api/agents/me"))
            self.assertEqual(raw.response().status, 200)
            run.end("cancelled")
            self.assertEqual(self.req("GET", "/api/health").status, 200)
        self.assert_status(other.req("GET", "/api/agents/me"), 200)

    def test_the_daemon_restarts(self):
        run = self.run_of()
        told = run.url, run.key
        self.assert_status(run.req("GET", "/api/agents/me"), 200)
        self.detach("sleep 1000", lease=run.lease)
        self.daemon.restart(crash=True)
        answers = []

        head, target = run.head("GET", "/api/agents/me"), run.target

        def ask():  # on a connection of its own: again() closes the run's
            with RawConnection(target) as raw:
                raw.send(head)
                answers.append(raw.response())
        run.client.close()
        thread = threading.Thread(target=ask)
        thread.start()
        run.again()
        thread.join(20)
        self.assertEqual((run.url, run.key), told)
        self.assertEqual([a.status for a in answers], [200])
        run.end()

    def test_a_flood_is_not_listed(self):
        """Also not a part at a time, over restarts of the daemon."""
        run = self.run_of()
        self.detach("sleep 1000", lease=run.lease)
        self.daemon.kill()
        with self.daemon.record() as db:
            db.executemany("INSERT INTO heartbeat_run_events (run_id, seq, id, company_id, agent_id, event_type, payload, "
                           "created_at) VALUES (?, ?, ?, ?, ?, 'callback', '{}', 1)",
                           [(run.id, 1000 + n, str(n), ident(self.acme), self.ada["id"]) for n in range(998)])
        self.daemon.start()
        run.again()
        for _ in range(5):
            self.assert_status(run.req("GET", "/api/agents/me"), 200)
        run.end()
        wait_until(lambda: self.refused(run), "nobody listens any more")
        self.daemon.stop()  # which writes what is left to be written
        self.assertEqual(len(run.events()), 1000)
        self.daemon.start()

    def test_the_same_run_gets_the_same_channel(self):
        run = self.run_of()
        told = run.port, run.key
        run.again()
        self.assertEqual((run.port, run.key), told)
        self.assert_status(run.req("GET", "/api/agents/me"), 200)

    def test_the_lease_goes_first(self):
        run = self.run_of()
        self.assert_status(run.req("GET", "/api/agents/me"), 200)
        self.release(run.lease)
        wait_until(lambda: self.refused(run), "the box is gone")
        run.end()
        self.assert_status(self.req("GET", "/api/health"), 200)


class SilenceTest(CallbackTest):
    daemon_env = {**CallbackTest.daemon_env, "BERTH_TEST_CALLBACK_TIMEOUT_MS": "300"}

    # remote-execution 8.30: the host is the operation behind the route
    def test_no_answer_in_time(self):
        run = self.run_of()
        answers = queue.Queue()

        def ask():
            answers.put(run.req("POST", f"/api/issues/{ident(self.issue)}/comments", {"body": "x"}))
        # One of two is the writer that waits for the database, the other waits for the writer.
        threads = [threading.Thread(target=ask) for _ in range(2)]
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db", timeout=20)) as other:
            other.execute("BEGIN IMMEDIATE")
            for thread in threads:
                thread.start()
            answer = answers.get(timeout=20)
            other.rollback()
        for thread in threads:
            thread.join(20)
        self.assert_error(answer, 502, "Timed out waiting for host bridge response.")
        wait_until(lambda: run.req("GET", "/api/agents/me").status == 200, "the channel goes on")
