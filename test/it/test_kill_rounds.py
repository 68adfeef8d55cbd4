"""kill -9 at random moments under load: nothing that was answered is lost, and in the end record and world agree."""
# threads: clients beside a daemon that is killed
# share 6: 4 s of processor time

import unittest

from berthtest import ROUNDS, SEED
from crashworld import World
from killrounds import KillRounds


class KillRoundsTest(unittest.TestCase):
    def rounds(self, seed, kills, **env):
        seed, kills = seed + SEED, kills * ROUNDS
        world = World(binary="normal", env=env)
        self.addCleanup(world.dispose)
        self.assertTrue(world.start())
        with KillRounds(world, seed) as rounds:
            for _ in range(kills):
                rounds.kill()
            rounds.finish()
        print(f"seed {seed}: {rounds.kills} kills, {rounds.answers()} answers")
        world.daemon.stop()

    def test_under_load(self):
        self.rounds(1, 15)

    def test_with_idle_places_that_soon_go(self):
        self.rounds(2, 15, BERTH_IDLE_PLACE_TTL_MS="30")

    def test_with_few_threads(self):
        self.rounds(3, 10, BERTH_OP_THREADS="2")


if __name__ == "__main__":
    unittest.main()
