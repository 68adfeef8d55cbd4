"""The line to an ssh host is cut a hundred times while a command prints."""
# slow: each cut is followed by a pause and a login
# share 6: 20 s of processor time

import random
import unittest

from berthtest import wait_until
from test_ssh_exec import ExecCase


class HundredCutsTest(ExecCase):
    def test_every_line_once_in_order(self):
        rng = random.Random(7)
        lease = self.acquire(self.env)["lease"]
        gate = self.fixture.workspace / "stop"
        script = (f'i=0; while [ ! -e {gate} ]; do i=$((i+1)); echo "line $i"; sleep 0.002; done; '
                  'echo "last $i"; exit 42')
        began = self.execute(lease, "sh", "-c", script, detach=True, status=202)
        known = 0
        for _ in range(100):
            known = wait_until(lambda k=known: (n := len(self.output(lease, began))) > k and n, "output comes", 60)
            # Some bytes more, so that the cut is anywhere: within a frame, between two, in none.
            self.line.passed, self.line.cut_after = 0, rng.randrange(1, 400)
            wait_until(lambda: self.line.cut_after is None, "the line is cut", 60)
        gate.touch()
        row = self.finished(lease, began, 60)
        self.assertEqual((row["status"], row["exitCode"]), ("exited", 42), row)
        lines = self.output(lease, began).decode().split("\n")
        last = int(lines[-2].split()[1])
        self.assertEqual(lines, [f"line {i}" for i in range(1, last + 1)] + [f"last {last}", ""])
        self.assertGreaterEqual(self.line.accepted, 100)


if __name__ == "__main__":
    unittest.main()
