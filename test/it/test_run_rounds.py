"""Runs over local, sandbox, ssh and plugin environments while everything that they stand on is killed at random."""

# slow: daemons and boxes one after the other
# share 6: 5 s of processor time

import contextlib
import os
import signal
import unittest

from berthtest import ROUNDS, SEED, SOURCE
from providertest import ProviderTest
from runrounds import WORK, RunRounds
from sandboxtest import BERTH
from sshtest import Fixture, missing_command


class RunRoundsTest(ProviderTest):
    """A provider of a plugin is at hand; the other kinds are made here."""

    daemon_env = {**ProviderTest.daemon_env, "BERTH_SWEEP_INTERVAL_MS": "50"}
    worker = SOURCE / "test" / "workers" / "runner.py"

    def kinds(self):
        self.victims = {}
        kinds = {"local": None, "plugin": self.sandbox()["id"]}
        self.victims["worker"] = self.kill_worker
        company = self.company_id
        probe = self.req("POST", f"/api/companies/{company}/environments/probe-config",
                         {"driver": "sandbox", "config": BERTH})
        if probe.json["ok"]:
            kinds["sandbox"] = self.environment(self.company_id, name="berth", config=BERTH)["id"]
        if not missing_command():
            fixture = Fixture(self.temp_dir() / "lab")
            self.addCleanup(fixture.stop)
            fixture.start()
            self.victims["connection"] = fixture.kill_sessions
            kinds["ssh"] = self.ok("POST", f"/api/companies/{company}/environments",
                                   {"name": "host", "driver": "ssh", "config": fixture.config()}, 201)["id"]
        return kinds

    def kill_worker(self):
        worker = (self.req("GET", f"/api/plugins/{self.provider.id}/dashboard").json or {}).get("worker") or {}
        if worker.get("pid"):
            with contextlib.suppress(OSError):
                os.kill(worker["pid"], signal.SIGKILL)

    def rounds(self, seed, count):
        rounds = RunRounds(self.daemon, self.company_id, self.kinds(), self.temp_dir(), seed, self.victims)
        rounds.run(count)
        print(f"seed {seed}: {rounds.summary()}")

    def test_undisturbed(self):
        """What each does in each kind of environment when nobody dies."""
        rounds = RunRounds(self.daemon, self.company_id, self.kinds(), self.temp_dir(), 0)
        for agent in rounds.agents:
            self.ok("POST", f"/api/agents/{agent}/wakeup", {}, 202)
        rounds.check()
        for row in self.daemon.sql("SELECT * FROM heartbeat_runs"):
            self.assertEqual(row["status"], WORK[rounds.agents[row["agent_id"]]][2], row)
        rounds.nothing_left()

    def test_rounds(self):
        self.rounds(1 + SEED, 6 * ROUNDS)


if __name__ == "__main__":
    unittest.main()
