"""The daemon killed at the crash points of one area, each in a life of its own:

    class CrashTest(PointWalk, RunTest):
        def prepare(self, cls): ...    # the scene, with self.daemon running
        def check(self, operation): ...  # when the next daemon is up

        def test_every_point(self):
            self.walk(OPERATIONS, self.listed("run."))

A point that no operation reaches fails the walk, so a new one needs an operation. BERTH_WALK_ONLY=name walks
single operations; of the points, TEST_SHARE takes its share (test/harness/share.py)."""

import http.client
import os
import signal
import subprocess
import unittest

from berthtest import BINARIES, wait_until
from share import CRASH_PARTS, in_share


class Died(Exception):
    """The daemon went away before it answered."""


class Operation:
    times_max = 1  # of a point that is passed more often
    points = ""    # what those begin with that are its own

    def __init__(self, test):
        self.t = test

    def stage(self):
        """Before the daemon that crashes is started."""

    def act(self):
        """What it crashes in."""

    def mend(self):
        """After the crash, before the check."""


class PointWalk:
    """For a BerthTest; comes first among the bases."""

    daemon_binary = "faults"
    daemon_autostart = False

    def prepare(self, cls):
        raise NotImplementedError

    def check(self, operation):
        raise NotImplementedError

    def crash_env(self, cls):
        """What only the daemon that crashes is told."""
        return {}

    def ask(self, method, path, body=None):
        try:
            answer = self.req(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.daemon.process.wait(20)
            raise Died from error
        self.assertLess(answer.status, 300, answer.body)
        return answer.json

    def wait_while_alive(self, condition, what="it happens, or the daemon dies"):
        wait_until(lambda: not self.daemon.running() or condition(), what, 30)
        if not self.daemon.running():
            raise Died

    def listed(self, *areas):
        """The points that the program has."""
        out = subprocess.run([BINARIES["faults"], "faults"], capture_output=True, text=True, check=True).stdout
        return {point for point in out.split() if point.startswith(areas)}

    def once(self, cls, point=None):
        """One life, killed at the point: whether it was reached. Without a point: those that were passed."""
        self.daemon = self.new_daemon(env=dict(self.daemon_env))
        self.daemon.start()
        self.prepare(cls)
        operation = cls(self)
        operation.stage()
        if self.daemon.running():
            self.daemon.stop()
        trace = self.daemon.data / "trace"
        quiet = self.daemon.env
        self.daemon.env = {**quiet, **self.crash_env(cls)}
        self.daemon.env["BERTH_CRASH_AT" if point else "BERTH_FAULT_TRACE"] = point or str(trace)
        try:
            self.daemon.start()
            operation.act()
        except (Died, AssertionError):
            if self.daemon.running() or not point:
                raise
        # It may still be on its way to the point: what a test sees is committed before it.
        status = self.daemon.stop(expect=None)
        self.assertIn(status, (0, -signal.SIGKILL), self.daemon.log_tail())
        self.daemon.kill()
        self.daemon.env = quiet
        self.daemon.start()
        operation.mend()
        self.check(operation)
        self.daemon.stop()
        if point:
            return status == -signal.SIGKILL
        return trace.read_text().split() if trace.exists() else []

    def walk(self, operations, listed, again=True, complete=True):
        """Every operation through every point of `listed` that it passes; with again=False through those that none before it
        reached. Together they have to reach all, unless some cannot be made here (complete=False)."""
        reached, only = set(), os.environ.get("BERTH_WALK_ONLY", "")
        for cls in operations:
            if only.lower() not in cls.__name__.lower():
                continue
            passed = self.once(cls)
            for point in sorted(p for p in listed & set(passed) if p.startswith(cls.points)):
                for n in range(1, min(passed.count(point), cls.times_max) + 1):
                    if point in reached and not again:
                        break
                    if not in_share(f"{cls.__name__}:{point}:{n}", CRASH_PARTS):
                        reached.add(point)  # passed, and crashed at with another commit
                        continue
                    with self.subTest(operation=cls.__name__, point=point, time=n):
                        if self.once(cls, f"{point}:{n}"):
                            reached.add(point)
        if complete and not only:
            self.assertEqual(listed - reached, set(), "points that no operation reaches")

    def tearDown(self):
        unittest.TestCase.tearDown(self)  # the checks of each life are made in it
