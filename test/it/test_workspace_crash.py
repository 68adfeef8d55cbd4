"""The daemon killed at every crash point of workspaces (`workspace.*`, those of the merge and of bundles have unit tests),
and at random moments. Afterwards every file on the host is the old one or the new one, and every change made in the
sandbox is in the directory, in a copy kept beside it, or in a salvage."""

# slow: a daemon for each point

import os
import subprocess
import unittest

from berthtest import ROUNDS, SEED, ident, wait_until
from crashtest import Died, PointWalk
from crashtest import Operation as AnyOperation
from sandboxtest import BERTH, RUN_A
from workspacerounds import WorkspaceRounds
from workspacetest import WorkspaceTest, contents

UNIT = ("workspace.merge.", "workspace.bundle.")
START = {"a": "a0\n", "both": "b0\n", "gone": "g0\n", "stays": "s0\n", "d/x": "x0\n"}


class Operation(AnyOperation):
    config = {}
    restored = True  # whether what was changed is wanted in the end

    def check(self):
        """What is special to it, when all is over."""

    def acquire(self):
        self.t.held = self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/leases", {"heartbeatRunId": RUN_A})
        self.t.ask("POST", self.t.ws("/stage"), {"localPath": str(self.t.dir)})

    def edit(self):
        self.t.ask("POST", f"/api/environment-leases/{ident(self.t.held)}/execute", {
            "command": "sh", "args": ["-c", "echo a1 > a; echo b1 > both; rm gone stays; echo y1 > d/y; "
                                            "mkdir n; echo z1 > n/z"]})
        self.t.put("both", "ours\n")
        self.t.put("stays", "ours\n")
        self.t.put("local", "ours\n")
        self.t.edited = True

    def release(self):
        self.t.ask("POST", f"/api/environment-leases/{ident(self.t.held)}/release", {})


class Stage(Operation):
    def act(self):
        self.acquire()
        self.edit()
        self.t.ask("POST", self.t.ws("/stage"), {"localPath": str(self.t.dir)})
        self.release()


class Restore(Operation):
    def stage(self):
        self.acquire()
        self.edit()

    def act(self):
        self.t.ask("POST", self.t.ws("/restore"), {})
        self.release()


class Release(Restore):
    def act(self):
        self.release()
        for saved in self.t.ask("GET", f"/api/companies/{ident(self.t.acme)}/salvages"):
            self.t.ask("POST", f"/api/salvages/{saved['id']}/apply", {})
            self.t.ask("DELETE", f"/api/salvages/{saved['id']}")


class Reuse(Restore):
    config = {"reuseLease": True}

    def act(self):
        self.release()


class Discard(Restore):
    restored = False

    def act(self):
        self.t.ask("POST", self.t.ws("/discard"), {})


class Git(Restore):
    """The same with a commit that comes home."""

    def git(self, *words):
        return subprocess.run(["git", "-C", self.t.dir, "-c", "user.name=T", "-c", "user.email=t@example", *words],
                              check=True, capture_output=True, text=True).stdout.strip()

    def stage(self):
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")
        super().stage()
        done = self.t.ask("POST", f"/api/environment-leases/{ident(self.t.held)}/execute", {
            "command": "sh", "args": ["-c", "export HOME=/tmp; git config --global --add safe.directory /workspace; "
                                            "git -c user.name=B -c user.email=b@example commit -q -a -m second"]})
        self.t.assertEqual(done["exitCode"], 0, done)

    def check(self):
        self.t.assertEqual(self.git("log", "--format=%s"), "second\nfirst")
        self.git("fsck", "--strict")


class Recover(Operation):
    """What a first crash left is taken up by a daemon that crashes too."""

    def stage(self):
        self.acquire()
        self.edit()
        self.t.daemon.stop()
        self.t.daemon.env["BERTH_CRASH_AT"] = "workspace.restore.settle.before"
        self.t.daemon.start()
        try:
            self.t.ask("POST", self.t.ws("/restore"), {})
        except Died:
            self.t.daemon.kill()
        self.t.daemon.env.pop("BERTH_CRASH_AT")


OPERATIONS = [Stage, Restore, Release, Reuse, Discard, Git, Recover]


class CrashTest(PointWalk, WorkspaceTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "30"}

    def prepare(self, cls):
        self.acme = self.company()
        self.require_sandboxes()
        self.env = self.environment(self.acme, config={**BERTH, **cls.config})
        self.dir = self.temp_dir()
        self.edited = False
        for name, text in START.items():
            self.put(name, text)

    def check(self, operation):
        half = "SELECT id FROM workspaces WHERE state IN ('staging', 'restoring')"
        wait_until(lambda: not self.daemon.sql(half), "no workspace is half done", 20)
        for lease in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.ask("POST", f"/api/environment-leases/{lease['id']}/release", {})
        wait_until(lambda: not self.daemon.sql("SELECT id FROM workspaces WHERE state <> 'ended'"), "all have ended", 20)
        self.assertEqual(os.listdir(self.daemon.data / "workspaces"), [])
        wait_until(lambda: not self.daemon.sql("SELECT id FROM salvages WHERE state <> 'ready'"), "no salvage is half done")
        for saved in self.salvages():
            self.ask("POST", f"/api/salvages/{saved['id']}/apply", {})
            self.ask("DELETE", f"/api/salvages/{saved['id']}")
        self.assertEqual(os.listdir(self.daemon.data / "salvage"), [])
        self.check_files(operation)
        self.nothing_left()

    def check_files(self, operation):
        now = {name: text for name, text in contents(self.dir).items() if not name.startswith(".git/")}
        kept = [name for name in now if name.startswith("both.berth-local-")]
        if not self.edited:
            self.assertEqual(now, START)
            return
        if not operation.restored and "n/z" not in now:
            self.assertEqual(now, {**START, "both": "ours\n", "stays": "ours\n", "local": "ours\n"})
            return
        self.assertIn("ours\n", [now.pop(name) for name in kept])
        self.assertEqual(now, {"a": "a1\n", "both": "b1\n", "stays": "ours\n", "d/x": "x0\n", "d/y": "y1\n",
                               "n/z": "z1\n", "local": "ours\n"})
        operation.check()

    def test_every_point(self):
        self.walk(OPERATIONS, self.listed("workspace.") - self.listed(*UNIT), again=False)


class RoundsTest(WorkspaceTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "30"}

    def test_random_kills(self):
        for seed in (1 + SEED, 2 + SEED):
            with self.subTest(seed=seed):
                rounds = WorkspaceRounds(self.daemon, ident(self.acme), ident(self.env), self.temp_dir(), seed)
                rounds.run(6 * ROUNDS)
                print(f"seed {seed}: {rounds.summary()}")

    def test_random_kills_while_it_is_fetched(self):
        """A copy on this machine comes home by the file worker of a box: fetched first, then merged."""
        local = next(e for e in self.ok("GET", f"/api/companies/{ident(self.acme)}/environments")
                     if e["driver"] == "local")
        rounds = WorkspaceRounds(self.daemon, ident(self.acme), ident(local), self.temp_dir(), 3 + SEED, ("copy",))
        rounds.run(6 * ROUNDS)
        print(f"seed {3 + SEED}: {rounds.summary()}")


if __name__ == "__main__":
    unittest.main()
