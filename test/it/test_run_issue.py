"""What a run has to itself while it lives: its issue, its place among the runs of its agent. It keeps them until its
command is gone, also when it was cancelled before."""

import json
import unittest

from runtest import HOLD, RunTest, wait_until

# Says whether the one before it is still there; the first stays, whatever it is told.
ALONE = ("trap '' TERM; if [ -e pid ] && kill -0 $(cat pid); then echo beside >> seen; else echo alone >> seen; fi; "
         "echo $$ > pid; if [ $(wc -l < seen) = 1 ]; then echo up; while :; do sleep 0.05; done; fi")

STAYS = "trap '' TERM; " + HOLD  # until release_held(), whatever it is told
# Without an issue it stays until there is a file; with one it says what it was told.
SECOND = ('if [ -n "$PAPERCLIP_TASK_ID" ]; then printf %s "$PAPERCLIP_WAKE_PAYLOAD_JSON"; else echo up; '
          'while [ ! -e end ]; do sleep 0.02; done; fi')


class HeldTest(RunTest):
    def stubborn(self, name="Ada", **body):
        return self.runner(ALONE, name, adapter={"graceSec": 2}, **body)

    def issue(self, agent):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/issues",
                       {"title": "work", "status": "todo", "assigneeAgentId": agent["id"]}, status=201)

    def first_run(self):
        run = wait_until(self.runs, "the agent is woken")[0]
        self.up(run)
        return run

    def assert_apart(self, first):
        second = wait_until(lambda: [r for r in self.runs() if r["id"] != first["id"]], "another run")[0]
        self.assertEqual(self.finished(second)["status"], "succeeded")
        self.assertEqual((self.work / "seen").read_text(), "alone\nalone\n")
        self.assertLessEqual(self.row_of(first)["exited_at"], self.row_of(second)["spawned_at"])
        self.nothing_held()
        return second

    def test_the_issue_of_a_cancelled_run_is_taken_until_its_command_is_gone(self):
        agent = self.stubborn()
        issue = self.issue(agent)
        run = self.first_run()
        self.assertEqual(self.cancel(run)["status"], "cancelled")
        told = self.wake(agent, payload={"issueId": issue["id"]})
        self.assertEqual((told["reason"], told["executionRunId"]), ("issue_execution_deferred", run["id"]))
        self.assertEqual(self.ok("GET", f"/api/issues/{issue['id']}")["executionRunId"], run["id"])
        # For everybody else it is over.
        self.assertIsNone(self.ok("GET", f"/api/issues/{issue['id']}/active-run"))
        self.assert_apart(run)

    def test_one_that_was_given_to_somebody_else(self):
        ada, bob = self.stubborn(), self.stubborn("Bob")
        issue = self.issue(ada)
        run = self.first_run()
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": bob["id"]})
        self.assertEqual(self.row_of(run)["error_code"], "issue_reassigned")
        self.assertEqual(self.assert_apart(run)["agent_id"], bob["id"])

    def test_over_a_crash(self):
        agent = self.stubborn()
        issue = self.issue(agent)
        run = self.first_run()
        self.cancel(run)
        self.wake(agent, payload={"issueId": issue["id"]})
        self.daemon.restart(crash=True)
        self.assert_apart(run)

    def test_the_place_of_a_cancelled_run_among_those_of_its_agent(self):
        agent = self.stubborn(runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        first, _ = self.wake_several(agent, 2)
        self.up(first)
        self.cancel(first)
        self.assert_apart(first)


class LeftTest(RunTest):
    """The command of a run that lost its issue is still there, as long as the test wants."""

    def setUp(self):
        super().setUp()
        self.ada = self.runner(STAYS, adapter={"graceSec": 120})
        self.bob = self.runner(SECOND, "Bob", runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        self.other = self.wake(self.bob)
        self.up(self.other)

    def tearDown(self):
        self.release_held()
        (self.work / "end").touch()
        self.settled()
        super().tearDown()

    def issue(self, **body):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "work", "status": "todo", **body},
                       status=201)

    def run_of(self, agent, issue):
        return wait_until(lambda: [r for r in self.runs() if (r["agent_id"], r["issue_id"]) == (agent["id"], issue["id"])],
                          "it is woken")[0]

    def as_bob(self, method, path, body):
        return self.daemon.req(method, f"/api/issues/{path}", body, {"X-Paperclip-Run-Id": self.other["id"]},
                               self.bob["token"])

    def checkout(self, issue):
        return self.as_bob("POST", f"{issue['id']}/checkout",
                           {"agentId": self.bob["id"], "expectedStatuses": ["todo", "in_progress"]})

    def ada_works(self):
        issue = self.issue(assigneeAgentId=self.ada["id"])
        run = self.run_of(self.ada, issue)
        self.up(run)
        return issue, run

    def give_to_bob(self, issue, run):
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": self.bob["id"]})
        self.assertEqual((self.row_of(run)["error_code"], self.row_of(run)["step"]), ("issue_reassigned", "executing"))

    def test_it_is_not_checked_out_before_the_command_is_gone(self):
        issue, run = self.ada_works()
        self.give_to_bob(issue, run)
        self.assert_error(self.checkout(issue), 409, "Issue checkout conflict")
        # Nor in passing, by changing it.
        self.assert_error(self.as_bob("PATCH", issue["id"], {"title": "mine"}), 409, "Issue run ownership conflict")
        self.assertIsNone(self.row_of(run)["exited_at"])
        self.release_held()
        wait_until(lambda: self.checkout(issue).status == 200, "it is free")
        self.assertIsNotNone(self.row_of(run)["exited_at"])
        self.assertEqual(self.ok("GET", f"/api/issues/{issue['id']}")["checkoutRunId"], self.other["id"])

    def test_it_is_not_locked_for_a_run_that_waited(self):
        issue, run = self.ada_works()
        self.ok("POST", f"/api/issues/{issue['id']}/comments", {"body": "@Bob look"}, status=201)
        waits = self.run_of(self.bob, issue)
        self.give_to_bob(issue, run)
        (self.work / "end").touch()
        self.finished(waits)
        self.assertIs(json.loads(self.log_text(waits))["checkedOutByHarness"], False)
        self.assertEqual(self.row_of(run)["step"], "executing")

    def test_one_who_was_only_asked_keeps_nobody_out(self):
        issue = self.issue()
        self.ok("POST", f"/api/issues/{issue['id']}/comments", {"body": "@Ada look"}, status=201)
        run = self.run_of(self.ada, issue)
        self.up(run)
        self.cancel(run)
        self.assert_status(self.checkout(issue), 200)
        self.assertEqual(self.row_of(run)["step"], "executing")


class ToldTest(RunTest):
    def told(self, run):
        """What the command got to read."""
        self.assertEqual(self.finished(run)["status"], "succeeded")
        return json.loads(self.log_text(run))

    def test_whether_its_issue_is_checked_out_for_it(self):
        script = 'printf %s "$PAPERCLIP_WAKE_PAYLOAD_JSON"'
        ada, bob = self.runner(script), self.runner(script, "Bob")
        issue = self.ok("POST", f"/api/companies/{self.acme['id']}/issues",
                        {"title": "work", "status": "todo", "assigneeAgentId": ada["id"]}, status=201)
        told = self.told(wait_until(self.runs, "the assignment wakes the agent")[0])
        self.assertEqual((told["checkedOutByHarness"], told["issue"]["status"]), (True, "in_progress"))
        self.assertEqual(self.ok("GET", f"/api/issues/{issue['id']}")["status"], "in_progress")
        # Somebody else's.
        told = self.told(self.wake(bob, payload={"issueId": issue["id"]}))
        self.assertIs(told["checkedOutByHarness"], False)
        # Without an issue there is nothing to say.
        told = self.told(self.wake(bob, payload={"x": 1}))
        self.assertNotIn("checkedOutByHarness", told)
        self.nothing_held()


if __name__ == "__main__":
    unittest.main()
