"""What follows from the end of a run for its issue, and from the silence of one that runs: follow-ups, blocks, the
fields that say how it ended."""

import unittest

from runtest import HOLD, RunTest, wait_until

HOUR_US = 3600 * 1000000


class FollowTest(RunTest):
    def issue(self, agent):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/issues",
                       {"title": "work", "status": "todo", "assigneeAgentId": agent["id"]}, status=201)

    def look(self, issue):
        return self.ok("GET", f"/api/issues/{issue['id']}")

    def comments(self, issue):
        return self.ok("GET", f"/api/issues/{issue['id']}/comments")

    def follower(self, script, **heartbeat):
        return self.runner(script, runtimeConfig={"heartbeat": {"maxFollowUps": 2, **heartbeat}})

    def blocked(self, issue, *says):
        wait_until(lambda: self.look(issue)["status"] == "blocked", "the issue is blocked")
        (comment,) = self.comments(issue)
        self.assertEqual(comment["authorType"], "system")
        for text in (*says, "set the status to `todo` with a comment"):
            self.assertIn(text, comment["body"])
        self.settled()
        self.assertIsNone(self.look(issue)["executionRunId"])


class LeftOpenTest(FollowTest):
    def test_a_run_that_leaves_its_issue_open(self):
        """It is woken again, twice, and told why; then the issue is blocked. Nothing is woken by that."""
        issue = self.issue(self.follower("echo nothing"))
        self.blocked(issue, "left the issue in progress without a word, and so did the 2 before it")
        rows = [self.run_row(r) for r in self.runs()]
        self.assertEqual([(r["status"], r["livenessState"], r["continuationAttempt"]) for r in rows],
                         [("succeeded", "needs_followup", n) for n in range(3)])
        self.assertEqual([r["contextSnapshot"]["wakeReason"] for r in rows],
                         ["issue_assigned", *["run_liveness_continuation"] * 2])
        told = rows[1]["contextSnapshot"]["paperclipWake"]["payload"]
        self.assertEqual((told["sourceRunId"], told["maxContinuationAttempts"]), (rows[0]["id"], 2))
        self.assertIn("follow-up 1 of 2", told["instruction"])
        self.assertIn("the issue is still open; its agent is woken once more", self.messages(rows[0]))
        self.assertIn("the issue is blocked", self.messages(rows[2]))

    def test_one_that_says_how_it_stands(self):
        for status, body, state, reason in (
                ("in_progress", {"comment": "half of it"}, "advanced", "evidence: 1 issue comment(s), 1 activity event(s)"),
                ("done", {"status": "done"}, "completed", "Issue is done"),
                ("blocked", {"status": "blocked"}, "blocked", "Issue status is blocked")):
            with self.subTest(status):
                (self.work / "go").unlink(missing_ok=True)
                agent = self.follower(HOLD)
                issue = self.issue(agent)
                run = wait_until(lambda: [r for r in self.runs() if r["issue_id"] == issue["id"]], "a run")[0]
                self.up(run)
                answer = self.daemon.req("PATCH", f"/api/issues/{issue['id']}", body, {"X-Paperclip-Run-Id": run["id"]},
                                         agent["token"])
                self.assert_status(answer, 200)
                self.release_held()
                run = self.finished(run)
                self.settled()
                self.assertEqual((run["livenessState"], self.look(issue)["status"]), (state, status))
                self.assertTrue(run["livenessReason"].endswith(reason), run["livenessReason"])
                self.assertIsNotNone(run["lastUsefulActionAt"])
                self.assertEqual(len([r for r in self.runs() if r["issue_id"] == issue["id"]]), 1)

    def test_where_nothing_follows(self):
        """Not for an agent that is not to be, nor without an issue; a crash in the middle changes nothing."""
        issue = self.issue(self.follower("echo x", maxFollowUps=0))
        run = self.finished(wait_until(self.runs, "a run")[0])
        self.assertEqual(run["livenessState"], "needs_followup")
        silent = self.finished(self.wake(self.follower("true")))
        self.assertEqual((silent["livenessState"], silent["resultJson"]["stopReason"]), ("empty_response", "completed"))
        self.settled()
        self.assertEqual((len(self.runs()), self.look(issue)["status"]), (2, "in_progress"))


class CrashTest(FollowTest):
    daemon_binary = "faults"

    def test_a_crash_around_the_end(self):
        """The follow-up is there once, whether the end was recorded or not."""
        for point in ("run.conclude.before", "run.conclude.after"):
            with self.subTest(point):
                agent = self.follower("echo x", maxFollowUps=1)
                made = {}
                self.crash_at(point, lambda: made.update(self.issue(agent)))
                issue = made or self.daemon.sql("SELECT id FROM issues WHERE assignee_agent_id = ?", (agent["id"],))[0]
                self.blocked(issue, "so did the 1 before it")
                self.assertEqual([r["continuation_attempt"] for r in self.runs() if r["agent_id"] == agent["id"]], [0, 1])


class FailedTest(FollowTest):
    def test_a_command_that_is_lost_twice(self):
        issue = self.issue(self.follower(HOLD))
        seen = set()
        for _ in range(2):
            run = wait_until(lambda: [r for r in self.runs() if r["id"] not in seen], "a run")[0]
            seen.add(run["id"])
            self.up(run)
            self.kill_box_of(run)
            last = self.finished(run)
            self.assertEqual((last["errorCode"], last["resultJson"]["stopReason"]), ("process_lost", "process_lost"))
        self.blocked(issue, "was lost, for the second time: Process lost", f"berth runs logs {run['id'][:8]}")
        self.assertEqual((last["livenessState"], last["livenessReason"]),
                         ("failed", "Run ended with failed (process_lost)"))
        self.assertEqual(len(self.runs()), 2)

    def test_an_overloaded_service(self):
        """Tried again when it is due, counted, and blocked when that was often enough."""
        said = '{"type":"result","subtype":"error","is_error":true,"session_id":"s","result":"API Error: 529 overloaded"}'
        program = self.work / "claude"
        program.write_text(f"#!/bin/sh\ncat > /dev/null; echo '{said}'; exit 1\n")
        program.chmod(0o755)
        agent = self.agent(self.acme, "Ada", adapterType="claude_local",
                           adapterConfig={"command": str(program), "cwd": str(self.work), "maxRetries": 2})
        issue = self.issue(agent)
        pauses = []
        for attempt in range(3):
            run = wait_until(lambda: [r for r in self.runs() if r["scheduled_retry_attempt"] == attempt], "a run")[0]
            if attempt:
                self.assertEqual(run["scheduled_retry_reason"], "transient_failure_retry")
                pauses.append(run["scheduled_retry_at"] - run["created_at"])
                self.edit("UPDATE heartbeat_runs SET scheduled_retry_at = 1 WHERE id = ?", (run["id"],))
            row = self.finished(run)
            self.assertEqual((row["status"], row["resultJson"]["stopReason"]), ("failed", "adapter_failed"))
        self.assertAlmostEqual(pauses[1] / pauses[0], 2, delta=0.2)
        self.assertEqual(row["retryExhaustedReason"], "Bounded retry exhausted after 2 scheduled attempts")
        self.blocked(issue, "Bounded retry exhausted after 2", "overloaded")

    def test_what_a_cancelled_run_says(self):
        agent = self.runner(HOLD, adapter={"timeoutSec": 70})
        run = self.wake(agent)
        self.up(run)
        for row in (self.cancel(run), self.finished(run)):
            limits = {"stopReason": "cancelled", "timeoutFired": False, "timeoutSource": "config", "timeoutConfigured": True,
                      "effectiveTimeoutSec": 70}
            self.assertEqual(row["resultJson"], {**row["resultJson"], **limits})
            self.assertEqual((row["livenessState"], row["livenessReason"]),
                             ("failed", "Run ended with cancelled (cancelled)"))


class SilenceTest(FollowTest):
    def silent(self, run, hours):
        self.edit("UPDATE heartbeat_runs SET started_at = ?2, last_output_at = ?2 WHERE id = ?1",
                  (run["id"], self.row_of(run)["created_at"] - hours * HOUR_US))

    def said(self, run):
        return [(e["level"], e["payload"]["level"]) for e in self.run_events(run) if e["message"].startswith("no output for")]

    def test_it_is_reported_and_goes_on(self):
        run = self.wake(self.runner(HOLD))
        self.up(run)
        self.silent(run, 2)
        wait_until(lambda: self.said(run), "it is suspicious")
        after = self.row_of(self.wake(self.runner("true", "Bob")))
        self.wait_for(after, step="done")  # some passes later nothing more is said
        self.assertEqual(len(self.said(run)), 1)
        self.silent(run, 5)
        wait_until(lambda: len(self.said(run)) == 2, "it is critical")
        self.assertEqual(self.said(run), [("warn", "suspicious"), ("error", "critical")])
        self.ok("POST", f"/api/heartbeat-runs/{run['id']}/watchdog-decisions", {"decision": "continue"})
        silence = self.run_row(run)["outputSilence"]
        self.assertEqual(silence["level"], "snoozed")
        self.release_held()
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertEqual(len(self.said(run)), 2)

    def test_an_agent_that_wants_it_to_end(self):
        """Not while somebody said that it may go on."""
        agent = self.follower(HOLD, cancelSilentSec=60)
        kept, run = self.wake_several(agent, 2)
        for one in (kept, run):
            self.up(one)
        self.ok("POST", f"/api/heartbeat-runs/{kept['id']}/watchdog-decisions", {"decision": "dismissed_false_positive"})
        self.silent(kept, 1)
        self.silent(run, 1)
        row = self.finished(run)
        self.assertEqual((row["status"], row["errorCode"]), ("cancelled", "output_silence"))
        self.assertRegex(row["error"], r"^Cancelled because it printed nothing for 36\d\d s$")
        self.assertEqual(self.run_row(kept)["status"], "running")
        self.release_held()
        self.assertEqual(self.finished(kept)["status"], "succeeded")


if __name__ == "__main__":
    unittest.main()
