"""The daemon killed at every crash point of sandboxes (`sandbox.*`), each at its first times, while what is under way
is acquiring, parking, pausing, keeping a snapshot, filling the pool, probing. After the next start record and world
agree: every sandbox has a place and every place its sandbox, nothing is frozen that should run, no snapshot is half
made, nothing leaks."""

import os
import unittest

from crashtest import Operation as AnyOperation
from crashtest import PointWalk
from sandboxtest import BERTH, RUN_A, RUN_B, SandboxTest, ident, wait_until

# slow: a daemon for each point


class Operation(AnyOperation):
    times_max = 2
    config = {}
    pool = "0"


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


class Fork(Operation):
    config = {"storage": "disk"}

    def stage(self):
        self.lease = ident(self.t.acquire(self.t.env))
        self.t.ask("POST", f"/api/environment-leases/{self.lease}/execute",
                   {"command": "sh", "args": ["-c", "echo x > ~/file; echo w > w"]})

    def fork(self):
        return self.t.ask("POST", f"/api/environment-leases/{self.lease}/fork", {"count": 2, "idempotencyKey": "k"})

    def act(self):
        forks = self.fork()
        for fork in forks:
            self.t.ask("POST", f"/api/environment-leases/{ident(fork)}/release", {})
        wait_until(lambda: not self.t.daemon.running() or not self.t.daemon.sql("SELECT id FROM snapshots"),
                   "what the forks stood on is gone")

    def mend(self):
        """Asked again, the same key gives two, and there are no others."""
        wait_until(lambda: not self.t.places("state NOT IN ('held', 'gone')"), "nothing is half done", 20)
        made = {ident(fork) for fork in self.fork()}
        self.t.assertEqual(made, {row["id"] for row in self.t.daemon.sql("SELECT id FROM environment_leases")} - {self.lease})
        self.t.assertEqual(len(made), 2)


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


OPERATIONS = [Lease, Reuse, Pause, Pool, Probe] + ([OnDisk, Snapshot, Fork] if os.geteuid() == 0 else [])


class CrashTest(PointWalk, SandboxTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "30", "BERTH_SANDBOX_POOL_MAX": "0"}  # so that it comes to rest

    def prepare(self, cls):
        self.acme = self.company()
        self.require_sandboxes()
        self.env = self.environment(self.acme, config={**BERTH, **cls.config})

    def crash_env(self, cls):
        return {"BERTH_SANDBOX_POOL_MAX": cls.pool}

    def check(self, operation):
        half = "state NOT IN ('held', 'ready')"
        wait_until(lambda: not self.places(f"state <> 'gone' AND {half}"), "nothing is half done", 20)
        wait_until(lambda: self.sandboxes() == {p["id"] for p in self.places()},
                   f"every place has its sandbox: {self.sandboxes()}, {self.places()}", 20)
        wait_until(lambda: {r["place_id"] for r in self.rows()} == self.sandboxes(), "every sandbox has its row")
        wait_until(lambda: not self.daemon.sql("SELECT id FROM snapshots WHERE state <> 'ready'"), "no snapshot is half made")
        kept = {r["id"] for r in self.daemon.sql("SELECT id FROM snapshots")}
        forks = {r["id"] for r in self.daemon.sql("SELECT id FROM snapshots WHERE fork_by IS NOT NULL")}
        self.assertEqual({p.name for p in (self.daemon.data / "snapshots").glob("*")}, kept)
        for lease in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.ask("POST", f"/api/environment-leases/{lease['id']}/resume", {})
            self.held = lease["id"]
            self.assertEqual(self.sh("echo alive", timeoutMs=20000)["stdout"], "alive\n")
            if self.metadata(lease["id"]).get("fork"):
                self.assertEqual(self.sh("cat ~/file /workspace/w")["stdout"], "x\nw\n")
        for name in kept - forks:
            self.ask("DELETE", f"/api/companies/{ident(self.acme)}/environment-snapshots/{name}")
        self.nothing_left()

    def test_every_point(self):
        self.walk(OPERATIONS, self.listed("sandbox.", "fork."), complete=os.geteuid() == 0)


if __name__ == "__main__":
    unittest.main()
