"""What tests of the built-in sandbox stand on: executions (exectest.py) in sandboxes, and a look at the machine for
what they may have left: no directory, no process, no cgroup, no row.

A machine without the namespaces for it skips these tests, and says what is missing.
"""

import contextlib
import os
import pathlib
import re
import signal
import unittest

from berthtest import ident, wait_until
from exectest import ExecTest, cgroups, marked, process_state

RUN_A = "00000000-0000-4000-8000-00000000000a"
RUN_B = "00000000-0000-4000-8000-00000000000b"
BERTH = {"provider": "berth"}


def cgroups_v1(place_ids):
    """What is left in version 1 hierarchies. Others come and go meanwhile."""
    names = {f"berth-{i}" for i in place_ids}
    # Others come and go meanwhile, which os.walk() does not mind.
    return [os.path.join(folder, name) for folder, inner, _ in os.walk("/sys/fs/cgroup")
            for name in names.intersection(inner) if not folder.startswith("/sys/fs/cgroup/unified")]


class SandboxTest(ExecTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50"}
    config = {}

    def make_lease(self):
        self.acme = self.company()
        self.require_sandboxes()
        self.env = self.sandbox_environment()
        self.held = self.acquire(self.env, **self.lease_body())

    def lease_body(self):
        return {}

    def require_sandboxes(self):
        answer = self.req("POST", f"/api/companies/{ident(self.acme)}/environments/probe-config",
                          {"driver": "sandbox", "config": BERTH})
        self.assert_status(answer, 200)
        if not answer.json["ok"]:
            missing = [p for p in answer.json["details"]["points"] if not p["ok"]]
            raise unittest.SkipTest(f"no sandboxes here: {missing}")

    def sandbox_environment(self, name="box", **config):
        return self.environment(self.acme, name=name, config={**BERTH, **self.config, **config})

    # Looking.

    def place(self, lease=None):
        return self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?",
                               (ident(lease or self.held),))[0]["place_id"]

    def metadata(self, lease=None):
        return self.lease(lease or self.held)["metadata"]

    def init_pid(self, lease=None):
        return self.metadata(lease)["sandbox"]["pid"]

    def sandboxes(self):
        return {p.name for p in (self.daemon.data / "sandboxes").glob("*")}

    def rows(self):
        return self.daemon.sql("SELECT * FROM sandboxes")

    def kill_box(self, lease=None):
        pid = self.init_pid(lease)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_state(pid) in (None, "Z"), "the box is dead")
        return pid

    def places(self, where="state <> 'gone'"):
        return self.daemon.sql(f"SELECT * FROM places WHERE {where} ORDER BY id")

    def close_idle(self):
        for place in self.places("state = 'ready'"):
            self.operator("POST", f"/api/places/{place['id']}/close", {})

    def nothing_left(self):
        # Behind the daemon's back: agents of the test may still point at them, which the API does not allow.
        with self.daemon.record() as db:
            db.execute("UPDATE environments SET status = 'archived' WHERE driver = 'sandbox'")
        super().nothing_left()

    def nothing_in_the_world(self):
        ids = [row["id"] for row in self.daemon.sql("SELECT id FROM places")]
        wait_until(lambda: not self.places(), f"every place is gone: {self.places()}")
        super().nothing_in_the_world()
        self.assertEqual(self.sandboxes(), set())
        self.assertEqual(self.rows(), [])
        self.assertEqual(cgroups(ids) + cgroups_v1(ids), [])
        self.assertEqual(mounts_of(self.daemon.data), [])


    def _end(self, daemon):
        try:
            super()._end(daemon)
        finally:
            for folder in (daemon.data / "sandboxes").glob("*"):  # of a failed test
                with contextlib.suppress(OSError, ValueError, IndexError):
                    os.kill(int((folder / "box" / "pid").read_text().split()[0]), signal.SIGKILL)


def mounts_of(path):
    """What is mounted there, but for what a test mounted itself (fulldisk.py)."""
    text = pathlib.Path("/proc/self/mountinfo").read_text()
    return [line for line in text.splitlines()
            if re.search(rf" {re.escape(str(path))}[/ ]", line) and " - tmpfs small " not in line]


__all__ = ["BERTH", "RUN_A", "RUN_B", "SandboxTest", "cgroups_v1", "ident", "marked", "mounts_of", "process_state",
           "wait_until"]
