"""Runs over the death of what they stand on: the daemon, the box, the command, the sandbox."""
# threads: jobs of an earlier daemon beside new ones

import os
import signal
import unittest

import berthtest
from runtest import HOLD, HookTest, RunTest, wait_until

UNKNOWN = "00000000-0000-4000-8000-000000000000"


class RecoveryTest(RunTest):
    def retry_of(self, run):
        return wait_until(lambda: [r for r in self.runs() if r["retry_of_run_id"] == run["id"]], "it is tried again")[0]

    def test_a_command_goes_on_while_the_daemon_is_away(self):
        agent = self.runner(HOLD + "echo over")
        run = self.wake(agent)
        self.up(run)
        self.daemon.restart(crash=True)
        self.assertEqual(self.row_of(run)["status"], "running")
        self.release_held()
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertEqual(self.log_text(run), "up\nover\n")
        self.assertEqual(self.began(), {run["id"]: 1})
        self.nothing_held()

    def test_one_that_ended_while_the_daemon_was_away(self):
        agent = self.runner(HOLD + "echo over")
        run = self.wake(agent)
        self.up(run)
        (lease,) = self.leases(run)
        self.daemon.kill()
        self.release_held()
        out = self.daemon.data / "output" / self.row_of(run)["execution_id"]
        wait_until((out / "exit").exists, "the box has recorded its end")
        self.daemon.start()
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertEqual(self.log_text(run), "up\nover\n")
        self.nothing_held()

    def test_the_first_output_was_before_the_exit(self):
        """What is brought into the log after the end was there before it: nobody tells of output here, only of the end."""
        run = self.wake(self.runner("while [ ! -e go ]; do sleep 0.02; done; echo late"))
        self.wait_for(run, step="executing")
        wait_until(self.began, "the command has begun")
        self.daemon.kill()
        self.release_held()
        out = self.daemon.data / "output" / self.row_of(run)["execution_id"]
        wait_until((out / "exit").exists, "the box has recorded its end")
        self.kill_box_of(run)
        self.daemon.start()
        times = self.finished(run)["timeline"]
        self.assertEqual(self.log_text(run), "late\n")
        self.assertLessEqual(times["firstOutputAt"], times["exitedAt"])

    def test_a_stop_and_a_start(self):
        agent = self.runner(HOLD + "echo over")
        run = self.wake(agent)
        self.up(run)
        self.daemon.restart()
        self.release_held()
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertEqual(self.log_text(run), "up\nover\n")
        self.nothing_held()

    def test_what_waits_begins_after_a_restart(self):
        agent = self.runner(HOLD, runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        first, second = self.wake_several(agent, 2)
        self.up(first)
        self.daemon.restart(crash=True)
        self.release_held()
        for run in (first, second):
            self.assertEqual(self.finished(run)["status"], "succeeded")
        self.nothing_held()

    def test_a_lost_command_is_tried_once_more(self):
        """environment-runtime 7.118 and section 5.6: process_lost, its lease failed; a new run id; not a third time."""
        agent = self.runner("echo up; sleep 1000")
        run = self.wake(agent)
        self.up(run)
        self.kill_box_of(run)
        lost = self.finished(run)
        self.assertEqual((lost["status"], lost["errorCode"]), ("failed", "process_lost"))
        self.assertRegex(lost["error"], r"^Process lost -- child pid \d+ is no longer running; retrying once$")
        (lease,) = self.leases(run)
        self.assertEqual(lease["status"], "failed")
        self.assertIsNotNone(lease["released_at"])
        again = self.retry_of(run)
        self.assertEqual(again["process_loss_retry_count"], 1)
        self.up(again)
        self.kill_box_of(again)
        lost = self.finished(again)
        self.assertEqual((lost["errorCode"], "retrying" in lost["error"]), ("process_lost", False))
        self.assertEqual(len(self.runs()), 2)
        self.nothing_held()

    def test_a_lost_command_while_the_daemon_is_away(self):
        agent = self.runner("echo up; sleep 1000")
        run = self.wake(agent)
        self.up(run)
        self.daemon.kill()
        self.kill_box_of(run)
        self.daemon.start()
        self.assertEqual(self.finished(run)["errorCode"], "process_lost")
        self.cancel(self.retry_of(run))
        self.nothing_held()

    def test_a_sandbox_that_dies(self):
        agent = self.runner("echo up; sleep 1000", environment=self.sandbox())
        run = self.wake(agent)
        self.up(run)
        (lease,) = self.leases(run)
        self.kill_box(lease["id"])
        self.assertEqual(self.finished(run)["errorCode"], "process_lost")
        self.cancel(self.retry_of(run))
        self.nothing_held()

    def test_the_issue_is_kept_for_the_second_try(self):
        agent = self.runner("echo up; sleep 1000")
        issue = self.ok("POST", f"/api/companies/{self.acme['id']}/issues",
                        {"title": "work", "status": "todo", "assigneeAgentId": agent["id"]}, status=201)
        run = wait_until(self.runs, "the assignment wakes the agent")[0]
        self.up(run)
        self.kill_box_of(run)
        again = self.retry_of(run)
        self.up(again)
        self.assertEqual(self.ok("GET", f"/api/issues/{issue['id']}")["executionRunId"], again["id"])
        self.cancel(again)
        self.nothing_held()

    def test_cancelled_while_the_daemon_is_away(self):
        """H6: its leases are released although nobody executes it."""
        agent = self.runner("echo up; sleep 1000")
        run = self.wake(agent)
        self.up(run)
        self.daemon.kill()
        self.edit("UPDATE heartbeat_runs SET status = 'cancelled', cancel_requested_at = 1, finished_at = 1 "
                  "WHERE id = ?", (run["id"],))
        self.daemon.start()
        self.finished(run)
        self.assertEqual([l["status"] for l in self.leases(run)], ["released"])
        self.settled()

    def test_a_lease_that_is_taken_away(self):
        agent = self.runner("echo up; sleep 1000")
        run = self.wake(agent)
        self.up(run)
        (lease,) = self.leases(run)
        self.release(lease["id"])
        self.assertEqual(self.finished(run)["status"], "failed")
        self.settled()
        for row in self.runs():
            self.cancel(row)
        self.nothing_held()


class CrashTest(RunTest):
    """What becomes of a run whose daemon dies between two steps; test_run_crash.py goes through all of them."""
    daemon_binary = "faults"

    def test_a_command_that_was_started_goes_on(self):
        """Although its run does not say so: the daemon died before that was written."""
        run = self.wake(self.runner(HOLD + "echo over"))
        self.up(run)
        self.daemon.kill()
        self.edit("UPDATE heartbeat_runs SET step = 'preparing', execution_id = NULL WHERE id = ?", (run["id"],))
        self.daemon.start()
        self.release_held()
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertEqual((self.log_text(run), self.began()), ("up\nover\n", {run["id"]: 1}))
        self.assertEqual(len(self.runs()), 1)
        self.nothing_held()

    def test_a_command_whose_start_could_not_be_recorded(self):
        """It was started, and the disk failed when its run was to say so: it goes on, and is not started again."""
        agent = self.runner("echo hello")
        self.daemon.stop()
        self.daemon.env["BERTH_FAIL_AT"] = "run.start.after"
        self.daemon.start()
        run = self.wake(agent)
        self.assertEqual(self.finished(run, 30)["status"], "succeeded")
        self.assertEqual((self.log_text(run), self.began()), ("hello\n", {run["id"]: 1}))
        self.assertEqual(len(self.daemon.sql("SELECT id FROM executions")), 1)
        self.nothing_held()

    def test_a_command_that_never_began_is_begun(self):
        """It was to be, and no box ever heard of it: the same run is prepared again (docs/decisions/0006)."""
        agent = self.runner("echo hello")
        self.crash_at("exec.intend.after", lambda: self.wake(agent))
        (run,) = self.runs()
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertEqual(self.began(), {run["id"]: 1})
        self.assertEqual(len(self.runs()), 1)
        self.nothing_held()


class RequestTest(HookTest):
    """A request that a crash cut off is not made again, by nobody: it may have arrived."""
    daemon_binary = "faults"

    def crashed_at(self, point):
        """The run of a daemon that died there; the next one is up."""
        agent = self.hook()
        self.crash_at(point, lambda: self.wake(agent))
        return self.finished(self.runs()[0])

    def assert_lost(self, run, arrived):
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "process_lost"))
        self.assertIn("may have arrived", run["error"])
        self.assertNotIn("retrying", run["error"])
        self.nothing_held()
        self.assertEqual((len(self.runs()), len(self.requests)), (1, arrived))

    def test_it_was_made(self):
        self.assert_lost(self.crashed_at("run.http.after"), 1)

    def test_it_was_about_to_be_made(self):
        self.assert_lost(self.crashed_at("run.http.before"), 0)

    def test_it_waited_for_its_turn(self):
        run = self.crashed_at("run.prepared")
        self.assertEqual(run["status"], "succeeded", run)
        self.nothing_held()
        self.assertEqual([headers["Idempotency-Key"] for _, headers, _ in self.requests], [run["id"]])


class UnheardTest(RunTest):
    daemon_binary = "faults"
    daemon_env = {**RunTest.daemon_env, "BERTH_TEST_RUN_UNHEARD_MS": "100"}

    def test_a_cancelled_command_that_cannot_be_reached(self):
        """It keeps neither its issue nor its agent for ever."""
        agent = self.runner(HOLD, adapter={"graceSec": 1})
        run = self.wake(agent)
        self.up(run)
        box = self.box_pid(self.row_of(run)["lease_id"])
        os.kill(box, signal.SIGSTOP)
        try:
            self.cancel(run)
            wait_until(lambda: self.row_of(run)["step"] in ("releasing", "done"), "it is not waited for", 30)
        finally:
            os.kill(box, signal.SIGCONT)
        self.assertEqual(self.finished(run)["status"], "cancelled")
        self.nothing_held()


class GivenUpTest(RunTest):
    """What can never be done is tried so many times, and no run stays open for it."""
    daemon_binary = "faults"
    daemon_env = {**RunTest.daemon_env, "BERTH_TEST_RUN_ATTEMPTS": "3"}

    def assert_given_up(self, run):
        row = self.finished(run)
        self.assertEqual((row["status"], row["errorCode"]), ("failed", "process_lost"))
        self.assertIn("tried many times", row["error"])
        self.nothing_held()
        self.assertEqual(len(self.runs()), 1)
        self.assertEqual(self.daemon.log().count("a run is given up"), 1)

    @berthtest.sqlite_only
    def test_a_command_that_nobody_knows(self):
        """Its row says that it runs, and that is all there is of it."""
        run = self.wake(self.runner(HOLD))
        self.up(run)
        columns = ", ".join(c["name"] for c in self.daemon.sql("PRAGMA table_info(executions)")
                            if c["name"] not in ("id", "idempotency_key"))
        self.edit(f"INSERT INTO executions (id, idempotency_key, {columns}) SELECT ?, 'nobody', {columns} "
                  "FROM executions", (UNKNOWN,))
        self.edit("UPDATE heartbeat_runs SET execution_id = ? WHERE id = ?", (UNKNOWN, run["id"]))
        self.release_held()
        self.assert_given_up(run)

    def test_output_that_cannot_be_read(self):
        run = self.wake(self.runner(HOLD))
        self.up(run)
        log = self.daemon.data / "run-logs" / self.row_of(run)["log_ref"]
        log.unlink()
        log.mkdir()
        self.release_held()
        self.assert_given_up(run)


if __name__ == "__main__":
    unittest.main()
