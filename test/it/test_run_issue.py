"""What a run has to itself while it lives: its issue, its place among the runs of its agent. It keeps them until its
command is gone, also when it was cancelled before."""

import json
import unittest

from runtest import RunTest, wait_until

# Says whether the one before it is still there; the first stays, whatever it is told.
ALONE = ("trap '' TERM; if [ -e pid ] && kill -0 $(cat pid); then echo beside >> seen; else echo alone >> seen; fi; "
         "echo $$ > pid; if [ $(wc -l < seen) = 1 ]; then echo up; while :; do sleep 0.05; done; fi")


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
