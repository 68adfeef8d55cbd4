"""Waking agents: by hand, by what happens to issues; coalesced, deferred, skipped, once per key."""
# threads: wake-ups from several callers at once

import unittest
import uuid

from berthtest import set_clock, wait_until
from waketest import WakeTest
from worktest import MISSING


class ByHandTest(WakeTest):
    def test_a_wake_up_queues_a_run(self):
        ada = self.sleeper()
        run = self.wake(ada, triggerDetail="manual", reason="look around", payload={"n": 1})
        self.assertEqual((run["status"], run["invocationSource"], run["triggerDetail"], run["agentId"],
                          run["exitCode"], run["issueId"], run["companyId"]),
                         ("queued", "on_demand", "manual", ada["id"], None, None, self.acme["id"]))
        self.assertEqual(run["contextSnapshot"], {
            "wakeSource": "on_demand", "wakeTriggerDetail": "manual", "wakeReason": "look around",
            "triggeredBy": "board", "actorId": "local-board",
            "paperclipWake": {"reason": "look around", "payload": {"n": 1}}})
        self.assertEqual([(r["status"], r["run"]) for r in self.requests(ada)], [("queued", run["id"])])
        self.assertEqual(self.runs(ada)[0]["wakeupRequestId"], run["wakeupRequestId"])

    def test_invoke_needs_no_body_and_wakeup_does(self):
        ada = self.sleeper()
        self.assert_error(self.req("POST", f"/api/agents/{ada['id']}/wakeup"), 400, "Validation error")
        run = self.ok("POST", f"/api/agents/{ada['id']}/heartbeat/invoke", status=202)
        self.assertEqual((run["invocationSource"], run["triggerDetail"]), ("on_demand", "manual"))
        for body in ({"source": "dream"}, {"triggerDetail": "x"}, {"payload": []}, {"forceFreshSession": "yes"}):
            self.assert_error(self.req("POST", f"/api/agents/{ada['id']}/wakeup", body), 400, "Validation error")

    def test_what_waits_takes_the_next_along(self):
        ada = self.sleeper()
        first = self.wake(ada)
        self.assertEqual(self.wake(ada, reason="again", forceFreshSession=True)["id"], first["id"])
        self.assertEqual((self.told(first)["wakeReason"], self.told(first)["forceFreshSession"]), ("again", True))
        task = self.wake(ada, payload={"taskKey": "t1"})
        self.assertNotEqual(task["id"], first["id"])
        self.assertEqual(self.wake(ada, payload={"taskKey": "t1"})["id"], task["id"])
        self.assertEqual([r["status"] for r in self.requests(ada)], ["queued", "coalesced", "queued", "coalesced"])
        self.assertEqual(len(self.runs(ada)), 2)

    def test_the_same_key_is_the_same_run(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        first = self.wake(ada, idempotencyKey="k", payload={"taskKey": "a"})
        again = self.wake(ada, idempotencyKey="k", payload={"taskKey": "b"})
        self.assertEqual(again["id"], first["id"])
        self.ok("POST", f"/api/heartbeat-runs/{first['id']}/cancel")
        self.assertEqual(self.wake(ada, idempotencyKey="k")["status"], "cancelled")
        self.assertNotEqual(self.wake(bob, idempotencyKey="k")["id"], first["id"])
        self.assertEqual(len(self.runs(ada)), 1)

    def test_who_cannot_be_woken(self):
        ada = self.sleeper()
        for action, status in (("pause", "paused"), ("terminate", "terminated")):
            self.ok("POST", f"/api/agents/{ada['id']}/{action}")
            answer = self.req("POST", f"/api/agents/{ada['id']}/wakeup", {})
            self.assert_error(answer, 409, "Agent is not invokable in its current state")
            self.assertEqual(answer.json["details"], {"status": status})
        self.assertEqual(self.requests(ada), [])
        quiet = self.agent(self.acme, "Quiet")
        self.assertEqual(self.wake(quiet), {
            "status": "skipped", "reason": "wakeup_skipped", "message": "Wakeup was skipped.", "issueId": None,
            "executionRunId": None, "executionAgentId": None, "executionAgentName": None})
        self.assert_error(self.req("POST", f"/api/agents/{MISSING}/wakeup", {}), 404, "Agent not found")

    # http-api 8.78
    def test_who_may_wake(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        path = f"/api/agents/{ada['id']}/wakeup"
        self.assert_error(self.as_agent(bob, "POST", path, {}), 403, "Agent can only invoke itself")
        self.assert_error(self.as_agent(bob, "POST", f"/api/agents/{ada['id']}/heartbeat/invoke"), 403,
                          "Agent can only invoke itself")
        own = self.agent_ok(ada, "POST", path, {}, status=202)
        self.assertEqual((own["contextSnapshot"]["triggeredBy"], own["contextSnapshot"]["actorId"]),
                         ("agent", ada["id"]))
        member = self.board_user(self.acme, role="operator")["token"]
        stranger = self.board_user(self.company("Other"), user="bob", role="owner")["token"]
        for token, text in ((member, "Missing permission: agents:create"),
                            (stranger, "User does not have access to this company")):
            self.assert_error(self.req("POST", path, {}, token=token), 403, text)
        self.assertEqual(len(self.requests(ada)), 1)

    def test_an_issue_that_is_not_there(self):
        ada, other = self.sleeper(), self.company("Other")
        theirs = self.ok("POST", f"/api/companies/{other['id']}/issues", {"title": "x"}, status=201)
        for issue in (MISSING, theirs["id"], "ACM-99"):
            self.assert_error(self.req("POST", f"/api/agents/{ada['id']}/wakeup", {"payload": {"issueId": issue}}),
                              404, "Issue not found")
        self.assertEqual(self.requests(ada), [])

    def test_it_is_there_after_a_crash(self):
        ada = self.sleeper()
        run = self.wake(ada, idempotencyKey="k")
        self.daemon.restart(crash=True)
        self.assertEqual(self.wake(ada, idempotencyKey="k")["id"], run["id"])
        self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{run['id']}")["status"], "queued")


class ByIssuesTest(WakeTest):
    def reasons(self, agent):
        return [r["contextSnapshot"].get("wakeReason") for r in self.runs(agent)]

    def test_an_assignment(self):
        ada = self.sleeper()
        issue = self.issue("do", assigneeAgentId=ada["id"])
        (run,) = self.runs(ada)
        self.assertEqual((run["invocationSource"], run["issueId"]), ("assignment", issue["id"]))
        told = self.told(run)
        self.assertEqual((told["wakeReason"], told["issueId"], told["taskId"], told["taskKey"]),
                         ("issue_assigned", issue["id"], issue["id"], issue["id"]))
        self.assertEqual(told["paperclipWake"]["issue"]["identifier"], issue["identifier"])
        later = self.issue("later")
        self.assertEqual(len(self.runs(ada)), 1)
        self.ok("PATCH", f"/api/issues/{later['id']}", {"assigneeAgentId": ada["id"]})
        self.assertEqual(len(self.runs(ada)), 1)  # it is in the backlog
        self.ok("PATCH", f"/api/issues/{later['id']}", {"status": "todo"})
        self.ok("PATCH", f"/api/issues/{later['id']}", {"title": "other"})
        self.assertEqual([r["issueId"] for r in self.runs(ada)], [issue["id"], later["id"]])

    def test_who_is_paused_is_not_woken(self):
        ada = self.sleeper()
        self.ok("POST", f"/api/agents/{ada['id']}/pause")
        issue = self.issue(assigneeAgentId=ada["id"])
        self.comment(issue, "hello @Ada")
        self.assertEqual(self.requests(ada), [])

    def test_a_comment_by_somebody_else(self):
        ada = self.sleeper()
        issue = self.issue(assigneeAgentId=ada["id"])
        first, second = self.comment(issue, "one"), self.comment(issue, "two")
        (run,) = self.runs(ada)
        told = self.told(run)
        self.assertEqual((told["wakeReason"], told["wakeCommentId"], told["commentId"]),
                         ("issue_commented", second["id"], second["id"]))
        self.assertEqual((told["paperclipWake"]["commentIds"], [c["body"] for c in told["paperclipWake"]["comments"]]),
                         ([first["id"], second["id"]], ["one", "two"]))
        self.agent_ok(ada, "POST", f"/api/issues/{issue['id']}/comments", {"body": "mine"}, status=201)
        self.assertEqual(self.told(run)["commentId"], second["id"])

    def test_comments_on_what_is_closed(self):
        ada = self.sleeper()
        issue = self.issue()
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"status": "done"})
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": ada["id"]})
        self.comment(issue, "too late")
        self.assertEqual(self.requests(ada), [])
        self.comment(issue, "once more", reopen=True)
        self.assertEqual(self.reasons(ada), ["issue_commented"])

    def test_mentions(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        eve, long = self.sleeper("Eve"), self.sleeper("Bob Long")
        issue = self.issue(assigneeAgentId=ada["id"])
        self.comment(issue, f"x@bob.org @bobby; @bob: and [E](agent://{eve['id']})")
        self.assertEqual((self.reasons(bob), self.reasons(eve), self.reasons(long)),
                         (["issue_comment_mentioned"], ["issue_comment_mentioned"], []))
        self.comment(issue, "@Bob Long, @bob-long")
        self.assertEqual((len(self.requests(bob)), len(self.requests(long))), (1, 1))
        self.agent_ok(bob, "POST", self.issues, {"title": "t"}, status=201)
        own = self.issue(assigneeAgentId=bob["id"])
        before = len(self.requests(bob))
        self.agent_ok(bob, "POST", f"/api/issues/{own['id']}/comments", {"body": "@bob"}, status=201)
        self.assertEqual(len(self.requests(bob)), before)  # nobody wakes itself by talking

    def test_who_is_asked_beside_the_work_does_not_wait_for_it(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue = self.issue(status="backlog", assigneeAgentId=ada["id"])
        self.run_row(ada, issue=issue)
        self.comment(issue, "@Bob, what do you think?")
        self.assertEqual([r["status"] for r in self.requests(ada)], ["deferred_issue_execution"])
        self.assertEqual([r["status"] for r in self.requests(bob)], ["queued"])

    def test_many_comments(self):
        """The newest are told; the others can be read."""
        ada = self.sleeper()
        issue = self.issue(assigneeAgentId=ada["id"])
        said = [self.comment(issue, f"number {n}") for n in range(23)]
        (run,) = self.runs(ada)
        told = self.told(run)["paperclipWake"]
        self.assertEqual(told["commentIds"], [c["id"] for c in said[-20:]])
        self.assertEqual([c["body"] for c in told["comments"]], [c["body"] for c in said[-20:]])

    def test_the_board_takes_it_for_an_agent(self):
        ada = self.sleeper()
        issue = self.issue()
        self.ok("POST", f"/api/issues/{issue['id']}/checkout", {"agentId": ada["id"], "expectedStatuses": ["backlog"]})
        self.assertEqual(self.reasons(ada), ["issue_checked_out"])

    def test_what_it_waits_for(self):
        ada = self.sleeper()
        first = self.issue()
        second = self.issue(assigneeAgentId=ada["id"], blockedByIssueIds=[first["id"]])
        self.assertEqual([(r["status"], r["error"]) for r in self.requests(ada)],
                         [("skipped", "issue_dependencies_blocked")])
        answer = self.wake(ada, payload={"issueId": second["identifier"]})
        self.assertEqual((answer["status"], answer["reason"], answer["issueId"]),
                         ("skipped", "issue_dependencies_blocked", second["id"]))
        self.assertEqual(self.runs(ada), [])
        self.comment(second, "what do you wait for?")  # who is spoken to may answer
        (run,) = self.runs(ada)
        self.ok("POST", f"/api/heartbeat-runs/{run['id']}/cancel")
        self.ok("PATCH", f"/api/issues/{first['id']}", {"status": "done"})
        self.assertEqual(self.reasons(ada), ["issue_commented", "issue_blockers_resolved"])

    def test_it_is_given_to_somebody_else(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue = self.issue(assigneeAgentId=ada["id"])
        (mine,) = self.runs(ada)
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": bob["id"]})
        gone = self.ok("GET", f"/api/heartbeat-runs/{mine['id']}")
        self.assertEqual((gone["status"], gone["errorCode"]), ("cancelled", "issue_reassigned"))
        self.assertEqual(self.reasons(bob), ["issue_assigned"])
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"status": "cancelled"})
        self.assertEqual([r["errorCode"] for r in self.runs(bob)], ["issue_cancelled"])

    def test_who_gives_it_away_goes_on(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue = self.issue(status="backlog", assigneeAgentId=ada["id"])
        run = self.run_row(ada, issue=issue)
        self.agent_ok(ada, "PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": bob["id"], "status": "todo"},
                      run=run)
        self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{run}")["status"], "running")
        self.assertEqual([r["status"] for r in self.requests(bob)], ["deferred_issue_execution"])


class TimerTest(WakeTest):
    daemon_binary = "faults"
    daemon_env = {**WakeTest.daemon_env, "BERTH_SWEEP_INTERVAL_MS": "20"}

    def setUp(self):
        self.clock = self.temp_dir() / "clock"
        self.clock.write_text("0")
        self.daemon_env = {**self.daemon_env, "BERTH_TEST_CLOCK_FILE": str(self.clock)}
        super().setUp()

    def timed(self, **heartbeat):
        agent = self.sleeper()
        self.ok("PATCH", f"/api/agents/{agent['id']}",
                {"runtimeConfig": {"heartbeat": {"enabled": True, "maxConcurrentRuns": 1, **heartbeat}}})
        wait_until(lambda: self.due(agent), "its schedule begins")
        return agent

    def due(self, agent):
        rows = self.daemon.sql("SELECT last_due_at FROM agent_schedules WHERE agent_id = ?", (agent["id"],))
        return rows[0]["last_due_at"] if rows else None

    def set_clock(self, seconds):
        set_clock(self.clock, seconds)

    def passes(self, n=3):
        """Wait until the schedule was looked at so often."""
        other = self.agent(self.acme, f"Other {uuid.uuid4()}")
        for _ in range(n):
            for enabled in (True, False):
                self.ok("PATCH", f"/api/agents/{other['id']}",
                        {"runtimeConfig": {"heartbeat": {"enabled": enabled, "intervalSec": 3600}}})
                wait_until(lambda wanted=enabled: (self.due(other) is not None) == wanted, "a pass")

    def count(self, agent):
        return len(self.requests(agent))

    def test_an_interval(self):
        ada = self.timed(intervalSec=600)
        begun = self.due(ada)
        self.passes()
        self.assertEqual(self.count(ada), 0)
        self.set_clock(601)
        wait_until(lambda: self.count(ada) == 1, "it is due")
        (run,) = self.runs(ada)
        self.assertEqual((run["invocationSource"], run["triggerDetail"], self.told(run)["wakeReason"],
                          self.told(run)["triggeredBy"]), ("timer", "system", "heartbeat_timer", "system"))
        self.passes()
        self.daemon.restart(crash=True)
        self.passes()
        self.assertEqual(self.count(ada), 1)
        self.set_clock(601 + 6000)  # what was missed is made up for once
        wait_until(lambda: self.count(ada) == 2, "it is due again")
        self.passes()
        self.assertEqual(self.count(ada), 2)
        # However late it was looked at, the times do not wander.
        self.assertEqual((self.due(ada) - begun) % 600_000_000, 0)

    def test_a_clock_that_is_set_back(self):
        ada, eve = self.timed(intervalSec=600), self.sleeper("Eve")
        self.set_clock(601)
        wait_until(lambda: self.count(ada) == 1, "it is due")
        self.set_clock(-86400)
        self.passes()
        self.assertEqual(self.count(ada), 1)
        self.set_clock(-86400 + 601)
        wait_until(lambda: self.count(ada) == 2, "the interval counts from when the clock was set")
        self.assertEqual(self.count(eve), 0)

    def test_cron(self):
        ada = self.timed(cron="0 * * * *")
        self.set_clock(3600)
        wait_until(lambda: self.count(ada) == 1, "the hour struck")
        struck = self.due(ada)
        self.assertEqual(struck % 3_600_000_000, 0)
        self.set_clock(0)
        self.passes()
        self.set_clock(3600)
        self.passes()
        self.assertEqual((self.count(ada), self.due(ada)), (1, struck))
        self.set_clock(3 * 3600)
        wait_until(lambda: self.count(ada) == 2, "later hours count once")
        # Set back by days it would be silent for as long: it begins anew.
        self.set_clock(-5 * 86400)
        wait_until(lambda: self.due(ada) < struck, "it counts from when the clock was set")
        self.assertEqual(self.count(ada), 2)
        self.set_clock(-5 * 86400 + 3600)
        wait_until(lambda: self.count(ada) == 3, "the next hour counts")

    def test_only_by_its_timer(self):
        ada = self.timed(intervalSec=600, wakeOnDemand=False)
        self.assertEqual(self.wake(ada)["status"], "skipped")
        self.set_clock(601)
        wait_until(lambda: self.runs(ada), "it is due")

    def test_what_does_not_wake(self):
        ada = self.timed(intervalSec=600)
        for body in ({"enabled": False, "intervalSec": 600}, {"enabled": True},
                     {"enabled": True, "intervalSec": -5}):
            self.ok("PATCH", f"/api/agents/{ada['id']}", {"runtimeConfig": {"heartbeat": body}})
            wait_until(lambda: self.due(ada) is None, f"{body} is no schedule")
        self.ok("PATCH", f"/api/agents/{ada['id']}",
                {"runtimeConfig": {"heartbeat": {"enabled": True, "intervalSec": 600}}})
        wait_until(lambda: self.due(ada), "it begins")
        for line in ("nonsense", "* * * *", 5):
            self.assert_error(self.req("PATCH", f"/api/agents/{ada['id']}",
                                       {"runtimeConfig": {"heartbeat": {"enabled": True, "cron": line}}}), 422)
        self.ok("POST", f"/api/agents/{ada['id']}/pause")
        wait_until(lambda: self.due(ada) is None, "not while it is paused")
        self.set_clock(10000)
        self.passes()
        self.assertEqual(self.count(ada), 0)

    def test_a_retry_comes_due(self):
        ada = self.sleeper()
        run = self.run_row(ada, "scheduled_retry", scheduled_retry_at=2**60)
        later = self.run_row(ada, "scheduled_retry", scheduled_retry_at=2**60)
        self.edit("UPDATE heartbeat_runs SET scheduled_retry_at = 1 WHERE id = ?", (run,))
        wait_until(lambda: self.ok("GET", f"/api/heartbeat-runs/{run}")["status"] == "queued", "its time has come")
        self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{later}")["status"], "scheduled_retry")


class DeferredTest(WakeTest):
    daemon_env = {**WakeTest.daemon_env, "BERTH_SWEEP_INTERVAL_MS": "50"}

    def held(self, ada):
        issue = self.issue(status="backlog", assigneeAgentId=ada["id"])
        return issue, self.run_row(ada, issue=issue)

    def test_it_is_being_worked_on(self):
        ada = self.sleeper()
        issue, run = self.held(ada)
        for _ in range(2):
            self.assertEqual(self.wake(ada, payload={"issueId": issue["id"]}, idempotencyKey="k"), {
                "status": "skipped", "reason": "issue_execution_deferred",
                "message": "Wakeup was deferred because this issue is already being executed by Ada.",
                "issueId": issue["id"], "executionRunId": run, "executionAgentId": ada["id"],
                "executionAgentName": "Ada"})
        first, said = self.comment(issue, "this"), self.comment(issue, "and this")
        (request,) = self.requests(ada)
        self.assertEqual((request["status"], request["count"], request["reason"]),
                         ("deferred_issue_execution", 2, "issue_commented"))
        self.wake(ada, payload={"issueId": issue["id"]})  # which says nothing of comments, and forgets none
        self.end(run)
        (made,) = wait_until(lambda: self.runs(ada), "what was deferred is taken up")
        told = self.told(made)
        self.assertEqual((made["issueId"], told["wakeCommentId"], told["triggeredBy"]),
                         (issue["id"], said["id"], "board"))
        self.assertEqual((told["paperclipWake"]["commentIds"], [c["body"] for c in told["paperclipWake"]["comments"]]),
                         ([first["id"], said["id"]], ["this", "and this"]))
        self.assertNotIn("_wake", told["paperclipWake"]["payload"])
        self.assertEqual([(r["status"], r["run"]) for r in self.requests(ada)], [("queued", made["id"])])
        self.assertEqual(self.wake(ada, idempotencyKey="k")["id"], made["id"])

    def test_one_after_the_other(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue, run = self.held(ada)
        self.wake(bob, payload={"issueId": issue["id"]})
        self.wake(ada, payload={"issueId": issue["id"]})
        self.end(run)
        (first,) = wait_until(lambda: self.runs(bob), "the oldest is taken up")
        self.assertEqual(self.runs(ada), [])
        self.ok("POST", f"/api/heartbeat-runs/{first['id']}/cancel")
        wait_until(lambda: self.runs(ada), "then the next")

    def test_a_checkout_counts_too(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        run = self.run_row(ada)
        issue = self.issue()
        self.checkout(issue, ada, run=run)
        answer = self.wake(bob, payload={"issueId": issue["id"]})
        self.assertEqual((answer["reason"], answer["executionRunId"]), ("issue_execution_deferred", run))
        self.end(run)
        wait_until(lambda: self.runs(bob), "it is taken up when that run has ended")

    def test_what_is_no_longer_wanted(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue, run = self.held(ada)
        self.wake(bob, payload={"issueId": issue["id"]})
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"status": "done"})
        self.end(run)
        wait_until(lambda: self.requests(bob)[0]["status"] == "skipped", "it is given up")
        self.assertEqual((self.requests(bob)[0]["error"], self.runs(bob)), ("issue_closed", []))

    def test_it_was_given_to_somebody_else(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue, run = self.held(ada)
        self.wake(ada, payload={"issueId": issue["id"]})
        self.comment(issue, "please")
        self.edit("UPDATE issues SET assignee_agent_id = ? WHERE id = ?", (bob["id"], issue["id"]))
        self.end(run)
        wait_until(lambda: self.requests(ada)[0]["status"] == "skipped", "it is given up")
        self.assertEqual((self.requests(ada)[0]["error"], self.runs(ada)), ("issue_reassigned", []))

    def test_who_was_paused_meanwhile(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue, run = self.held(ada)
        self.wake(bob, payload={"issueId": issue["id"]})
        self.edit("UPDATE agents SET status = 'paused' WHERE id = ?", (bob["id"],))
        self.end(run)
        wait_until(lambda: self.requests(bob)[0]["status"] == "skipped", "it is given up")
        self.assertEqual((self.requests(bob)[0]["error"], self.runs(bob)), ("agent_not_invokable", []))

    def test_a_fresh_session_that_was_asked_for(self):
        ada = self.sleeper()
        issue, run = self.held(ada)
        self.wake(ada, payload={"issueId": issue["id"]}, forceFreshSession=True)
        self.wake(ada, payload={"issueId": issue["id"]})  # which does not take it back
        self.end(run)
        (made,) = wait_until(lambda: self.runs(ada), "what was deferred is taken up")
        self.assertTrue(self.told(made)["forceFreshSession"])

    def test_an_interruption(self):
        ada = self.sleeper()
        issue, run = self.held(ada)
        all_runs = [run, *(self.run_row(ada, issue=issue) for _ in range(20))]
        self.comment(issue, "stop", interrupt=True)
        for run in all_runs:
            self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{run}")["status"], "cancelled")
        self.assertEqual(len(self.runs(ada)), 1)
        self.assert_error(self.as_agent(ada, "POST", f"/api/issues/{issue['id']}/comments",
                                        {"body": "x", "interrupt": True}, run=str(uuid.uuid4())), 403)


class UnsweptTest(WakeTest):
    daemon_env = {**WakeTest.daemon_env, "BERTH_SWEEP_INTERVAL_MS": "3600000"}

    def test_what_is_cancelled_before_it_began_lets_the_next_in(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        issue = self.issue(assigneeAgentId=ada["id"])
        (first,) = self.runs(ada)
        self.assertEqual(self.wake(bob, payload={"issueId": issue["id"]})["reason"], "issue_execution_deferred")
        self.ok("POST", f"/api/heartbeat-runs/{first['id']}/cancel")
        self.assertEqual([(r["status"], r["issueId"]) for r in self.runs(bob)], [("queued", issue["id"])])


if __name__ == "__main__":
    unittest.main()
