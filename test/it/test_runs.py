"""Runs: an agent is woken, works in its environment, and what it did is recorded."""

import unittest

from runtest import RunTest


class LocalTest(RunTest):
    def test_a_run_from_wake_to_done(self):
        """environment-runtime 7.117: one local environment, one lease, released; the context names both."""
        agent = self.runner('echo hello; echo "$PAPERCLIP_AGENT_ID"')
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["exitCode"], run["errorCode"]), ("succeeded", 0, None), run)
        self.assertEqual(self.log_text(run), f"hello\n{agent['id']}\n")
        envs = self.ok("GET", f"/api/companies/{self.acme['id']}/environments")
        self.assertEqual([(e["name"], e["driver"]) for e in envs], [("Local", "local")])
        (lease,) = self.leases(run)
        self.assertEqual((lease["status"], lease["provider"]), ("released", "local"))
        self.assertIsNotNone(lease["released_at"])
        place = run["contextSnapshot"]["paperclipEnvironment"]
        self.assertEqual((place["id"], place["leaseId"]), (envs[0]["id"], lease["id"]))
        self.assertEqual(self.began(), [run["id"]])
        self.assertEqual(self.messages(run), ["run started", "adapter invocation", "run succeeded"])
        self.nothing_held()


if __name__ == "__main__":
    unittest.main()
