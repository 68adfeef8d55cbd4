"""The daemon killed at every crash point of sandboxes (`sandbox.*`), each at its first times, while what is under way
is acquiring, parking, pausing, keeping a snapshot, filling the pool, probing. After the next start record and world
agree: every sandbox has a place and every place its sandbox, nothing is frozen that should run, no snapshot is half
made, nothing leaks.

A point that no operation here reaches fails the test, so a new one needs an operation.
"""

import http.client
import os
import signal
import subprocess
import unittest

from berthtest import BINARIES
from sandboxtest import BERTH, RUN_A, RUN_B, SandboxTest, ident, wait_until

# slow: a daemon for each point
TIMES_MAX = 2


class Died(Exception):
    pass


class Operation:
    config = {}
    pool = "0"

    def __init__(self, t):
        self.t = t

    def stage(self):
        """Before the daemon that crashes is started."""

    def act(self):
        raise NotImplementedError


class Lease(Operation):
    def act(self):
        lease = self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/leases", {})
        self.t.ask("POST", f"/api/environment-leases/{ident(lease)}/execute", {"command": "true"})
        self.t.ask("POST", f"/api/environment-leases/{ident(lease)}/release", {})


class OnDisk(Lease):
    config = {"storage": "disk"}


class Reuse(Operation):
    config = {"reuseLease": True}

    def act(self):
        for run in (RUN_A, RUN_B):
            lease = self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/leases", {"heartbeatRunId": run})
            self.t.ask("POST", f"/api/environment-leases/{ident(lease)}/release", {})


class Pause(Operation):
    def stage(self):
        self.lease = ident(self.t.acquire(self.t.env))

    def act(self):
        self.t.ask("POST", f"/api/environment-leases/{self.lease}/pause", {})
        self.t.ask("POST", f"/api/environment-leases/{self.lease}/resume", {})


class Snapshot(Operation):
    config = {"storage": "disk"}

    def stage(self):
        self.lease = ident(self.t.acquire(self.t.env))
        self.t.ask("POST", f"/api/environment-leases/{self.lease}/execute",
                   {"command": "sh", "args": ["-c", "echo x > ~/file"]})

    def act(self):
        self.t.ask("POST", f"/api/environment-leases/{self.lease}/snapshot", {"name": "s"})
        self.t.ask("DELETE", f"/api/companies/{ident(self.t.acme)}/environment-snapshots/s")


class Pool(Operation):
    config = {"poolSize": 2}
    pool = "8"

    def act(self):
        wait_until(lambda: not self.t.daemon.running() or
                   len(self.t.places("policy = 'stock' AND state = 'ready'")) == 2, "the pool is full")
        lease = self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/leases", {})
        self.t.ask("POST", f"/api/environment-leases/{ident(lease)}/release", {})


class Probe(Operation):
    def act(self):
        self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/probe", {})


OPERATIONS = [Lease, Reuse, Pause, Pool, Probe] + ([OnDisk, Snapshot] if os.geteuid() == 0 else [])


class CrashTest(SandboxTest):
    daemon_binary = "faults"
    daemon_autostart = False
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "30"}

    def ask(self, method, path, body=None):
        try:
            answer = self.req(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.daemon.process.wait(20)
            raise Died from error
        self.assertLess(answer.status, 300, answer.body)
        return answer.json

    def once(self, cls, point=None):
        """One run on a daemon of its own, killed at the point. True when it was reached."""
        self.daemon = self.new_daemon(env={**self.daemon_env, "BERTH_SANDBOX_POOL_MAX": "0"})
        self.daemon.start()
        self.acme = self.company()
        self.require_sandboxes()
        self.env = self.environment(self.acme, config={**BERTH, **cls.config})
        operation = cls(self)
        operation.stage()
        self.daemon.stop()
        self.daemon.env["BERTH_SANDBOX_POOL_MAX"] = cls.pool
        trace = self.daemon.data / "trace"
        self.daemon.env["BERTH_CRASH_AT" if point else "BERTH_FAULT_TRACE"] = point or str(trace)
        try:
            self.daemon.start()
            operation.act()
        except (Died, AssertionError):
            if self.daemon.running() or not point:
                raise
        crashed = not self.daemon.running()
        if crashed:
            self.assertEqual(self.daemon.process.wait(), -signal.SIGKILL, self.daemon.log_tail())
            self.daemon.kill()
        else:
            self.daemon.stop()
        self.daemon.env.pop("BERTH_CRASH_AT", None)
        self.daemon.env.pop("BERTH_FAULT_TRACE", None)
        self.daemon.env["BERTH_SANDBOX_POOL_MAX"] = "0"  # so that it comes to rest
        self.daemon.start()
        self.check(operation)
        self.daemon.stop()
        points = trace.read_text().split() if trace.exists() else []
        return points if not point else crashed

    def check(self, operation):
        half = "state NOT IN ('held', 'ready')"
        wait_until(lambda: not self.places(f"state <> 'gone' AND {half}"), "nothing is half done", 20)
        wait_until(lambda: self.sandboxes() == {p["id"] for p in self.places()},
                   f"every place has its sandbox: {self.sandboxes()}, {self.places()}", 20)
        wait_until(lambda: {r["place_id"] for r in self.rows()} == self.sandboxes(), "every sandbox has its row")
        wait_until(lambda: not self.daemon.sql("SELECT id FROM snapshots WHERE state <> 'ready'"), "no snapshot is half made")
        kept = {r["id"] for r in self.daemon.sql("SELECT id FROM snapshots")}
        self.assertEqual({p.name for p in (self.daemon.data / "snapshots").glob("*")}, kept)
        for lease in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.ask("POST", f"/api/environment-leases/{lease['id']}/resume", {})
            self.held = lease["id"]
            self.assertEqual(self.sh("echo alive", timeoutMs=20000)["stdout"], "alive\n")
        for name in kept:
            self.ask("DELETE", f"/api/companies/{ident(self.acme)}/environment-snapshots/{name}")
        self.nothing_left()

    def test_every_point(self):
        listed = {p for p in subprocess.run([BINARIES["faults"], "faults"], capture_output=True, text=True,
                                            check=True).stdout.split() if p.startswith("sandbox.")}
        reached, only = set(), os.environ.get("BERTH_WALK_ONLY", "")
        for cls in OPERATIONS:
            if only.lower() not in cls.__name__.lower():
                continue
            passed = self.once(cls)
            for point in sorted({p for p in passed if p.startswith("sandbox.")}):
                for n in range(1, min(passed.count(point), TIMES_MAX) + 1):
                    with self.subTest(operation=cls.__name__, point=point, time=n):
                        if self.once(cls, f"{point}:{n}"):
                            reached.add(point)
        if not only and os.geteuid() == 0:
            self.assertEqual(listed - reached, set(), "points that no operation reaches")

    def tearDown(self):
        unittest.TestCase.tearDown(self)


if __name__ == "__main__":
    unittest.main()
