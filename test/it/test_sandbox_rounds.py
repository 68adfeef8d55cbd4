"""kill -9 of the daemon, boxes, launchers and commands while boxes come and go: in the end nothing is left on the machine."""

# slow: a few dozen daemons and boxes one after the other
# share 6: 6 s of processor time

import unittest

from berthtest import ROUNDS, SEED
from sandboxrounds import SandboxRounds
from escapetest import HostileTest


class SandboxRoundsTest(HostileTest):
    def rounds(self, seed, kills, pool=0):
        seed, kills = seed + SEED, kills * ROUNDS
        environments = [self.sandbox("once")["id"], self.sandbox("again", reuseLease=True)["id"]]
        with SandboxRounds(self.daemon, environments, seed, pool=pool) as rounds:
            for _ in range(kills):
                rounds.kill()
            found = rounds.finish()
        print(f"seed {seed}: {rounds.summary()}")
        self.assertEqual(found, [], self.daemon.log_tail(40))

    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_IDLE_PLACE_TTL_MS": "100"}

    def test_boxes(self):
        self.rounds(1, 25)

    def test_boxes_from_a_pool(self):
        self.rounds(2, 15, pool=3)


class UserSandboxRoundsTest(SandboxRoundsTest):
    """The same for an ordinary user's daemon."""

    as_user = True


if __name__ == "__main__":
    unittest.main()
