"""What was answered survives a power cut: everything that was not synced is lost (powercut.py), after every single sync
that daemon and boxes do in a life with executions, runs, leases, secrets, workspaces and snapshots."""
# slow: starts a daemon for every sync
# share 6: 19 s of processor time

# sqlite: the disk of a SQLite file

import contextlib
import hashlib
import os
import signal
import sqlite3
import unittest

from berthtest import bring_home, ident, wait_until
from exectest import processes, sanitized
from powercut import Disk
from runtest import RunTest

LINES = "i=0; while [ $i -lt {n} ]; do echo line $i; i=$((i+1)); done; echo done >&2"
EVERY = int(os.environ.get("TEST_POWER_CUT_EVERY", "1"))  # of the steps in between; those of answers are all looked at


@unittest.skipIf(sanitized(), "a sanitizer has to be the first library")
class PowerCutTest(RunTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "500"}
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.root = self.temp_dir() / "r"
        self.root.mkdir()
        self.disk = Disk(self.root)
        self.work = self.root / "work"
        self.work.mkdir()
        self.data = self.root / "d"
        self.data.mkdir(mode=0o700)
        self.disk.sync(self.work, self.root)
        self.promises = []  # (step, what, check)
        self.outputs = {}   # execution: (lease, stdout, stderr), as they really were
        self.daemon = self.new_daemon(data=self.data, env={**self.daemon_env, **self.disk.env},
                                      binary=self.disk.binary())
        self.daemon.start()

    def tearDown(self):  # the world ended with the power
        self.end_boxes()

    # Promises.

    def answered(self, what, check):
        """From this moment on check() has to hold, whatever happens."""
        self.promises.append((self.disk.step(), what, check))

    def check_execution(self, lease, exec_id, code, out, err):
        row = self.execution(exec_id, lease=lease)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"], row["stdoutBytes"], row["stderrBytes"]),
                         ("exited", code, False, len(out), len(err)), row)
        self.assertEqual((self.output(exec_id, lease=lease), self.output(exec_id, "stderr", lease=lease)), (out, err))

    def promise_execution(self, lease, exec_id, code, out, err):
        self.outputs[exec_id] = (lease, out, err)
        self.answered(f"execution {exec_id}", lambda: self.check_execution(lease, exec_id, code, out, err))

    def run_command(self, lease, script, code=0, **body):
        got = self.sh(script, lease=lease, **body)
        self.assertEqual(got["exitCode"], code, got)
        self.promise_execution(lease, got["execId"], code, got["stdout"].encode(), got["stderr"].encode())
        return got

    def run_agent(self, agent):
        run = self.wake(agent)
        self.answered("wake-up", lambda: self.run_row(run))
        row = self.finished(run)
        self.assertEqual(row["status"], "succeeded", row)
        log = self.ok("GET", f"/api/heartbeat-runs/{ident(run)}/log?limitBytes=1000000")

        def check():
            now = self.run_row(run)
            self.assertEqual({k: now[k] for k in ("status", "stdoutExcerpt", "logBytes", "logSha256")},
                             {k: row[k] for k in ("status", "stdoutExcerpt", "logBytes", "logSha256")})
            self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{ident(run)}/log?limitBytes=1000000"), log)
        self.answered("run", check)

    def check_lease(self, lease, status):
        self.assertEqual(self.lease(lease)["status"], status)

    def check_leaks(self):
        self.assertEqual(self.ok("GET", "/api/leaks")["unknown"], [])

    # Cuts.

    def end_boxes(self):
        """All of them at once, as the power does."""
        mark = str(self.data) + "/"
        for pid, _, line in processes():
            if line[0].startswith(b"berth-box") and mark in b" ".join(line).decode("utf-8", "replace"):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def cut(self, step):
        """The next daemon, on what is left."""
        self.disk.put_back(step)
        if not self.data.is_dir():
            return False
        with contextlib.suppress(sqlite3.Error):
            bring_home(self.data)
        self.daemon = self.new_daemon(data=self.data, env=self.daemon_env, binary="normal")
        self.daemon.start()
        return True

    def check_rows(self):
        """Every end that is recorded is true: what is said to be there is, or is said to be incomplete."""
        for row in self.daemon.sql("SELECT id, status, is_incomplete, stdout_len, stderr_len FROM executions"):
            if row["status"] in ("starting", "running"):
                continue
            lease, out, err = self.outputs.get(row["id"], (None, None, None))
            for name, real in (("stdout", out), ("stderr", err)):
                path = self.data / "output" / row["id"] / name
                have = path.read_bytes() if path.exists() else b""
                if not row["is_incomplete"]:
                    self.assertGreaterEqual(len(have), row[f"{name}_len"], row)
                if lease and row["status"] == "exited":
                    self.assertEqual(have[:row[f"{name}_len"]], real[:row[f"{name}_len"]])

    def walk(self):
        self.daemon.kill()
        self.end_boxes()
        last = self.disk.step()
        tight = {step for step, _, _ in self.promises}
        self.assertGreater(last, len(tight))
        for step in range(last + 1):
            if step % EVERY != 0 and step not in tight and step != last:
                continue
            due = [(what, check) for at, what, check in self.promises if at <= step]
            with self.subTest(step=step, after=self.disk.steps()[step - 1] if step else None):
                if not self.cut(step):
                    self.assertEqual(due, [])
                    continue
                for what, check in due:
                    with self.subTest(lost=what):
                        check()
                self.check_rows()
                self.daemon.kill()
                self.end_boxes()

    # What a life consists of.

    def test_commands_and_leases(self):
        acme = self.acme = self.company()
        self.answered("company", lambda: self.ok("GET", f"/api/companies/{ident(acme)}"))
        local = next(e for e in self.ok("GET", f"/api/companies/{ident(acme)}/environments") if e["driver"] == "local")
        held = self.acquire(local)
        self.answered("lease", lambda: self.lease(held))
        self.run_command(held, "true")
        self.run_command(held, "echo out; echo err >&2; exit 3", code=3)
        self.run_command(held, LINES.format(n=20000))
        self.run_command(held, "echo only errors >&2")
        detached = self.detach("echo detached", lease=held)
        self.ended(detached, lease=held)
        self.promise_execution(held, detached, 0, b"detached\n", b"")
        self.release(held)
        self.answered("release", lambda: self.check_lease(held, "released"))
        self.answered("removal of the box", self.check_leaks)
        self.walk()

    def test_runs(self):
        self.acme = self.company()
        agent = self.runner("echo hello; " + LINES.format(n=3000))
        self.run_agent(agent)
        self.run_agent(agent)
        self.walk()

    def test_secrets(self):
        self.acme = self.company()
        local = next(e for e in self.ok("GET", f"/api/companies/{ident(self.acme)}/environments")
                     if e["driver"] == "local")
        secret = self.ok("POST", f"/api/companies/{ident(self.acme)}/secrets", {"name": "S", "value": "one"}, status=201)
        agent = self.agent(self.acme, adapterType="process", adapterConfig={
            "command": "true", "env": {"S": {"type": "secret_ref", "secretId": secret["id"], "version": "latest"}}})

        def check(*values):
            held = self.acquire(local)
            got = self.sh('printf %s "$S" | sha256sum', lease=held, agentId=agent["id"])
            self.assertIn(got["stdout"].split()[0], [hashlib.sha256(v.encode()).hexdigest() for v in values])
            self.release(held)
        self.answered("secret", lambda: check("one", "two"))
        self.ok("POST", f"/api/secrets/{secret['id']}/rotate", {"value": "two"})
        self.answered("rotated secret", lambda: check("two"))
        self.walk()

    def test_sandboxes_and_workspaces(self):
        self.acme = self.company()
        env = self.sandbox(storage="disk")
        folder = self.work / "w"
        folder.mkdir()
        (folder / "f").write_text("base\n")
        self.disk.sync(folder / "f", folder, self.work)

        def begin():
            held = self.acquire(env)
            self.ok("POST", f"/api/environment-leases/{ident(held)}/workspace/stage", {"localPath": str(folder)})
            return held
        held = begin()
        self.run_command(held, "echo changed >> f; echo sandboxed; pwd >&2")
        self.ok("POST", f"/api/environment-leases/{ident(held)}/workspace/restore", {})
        self.answered("restore", lambda: self.assertIn("changed", (folder / "f").read_text()))
        snapshot = self.ok("POST", f"/api/environment-leases/{ident(held)}/snapshot", {"name": "s"}, status=201)
        self.release(held)
        self.answered("removal of the sandbox", self.check_leaks)
        kept = self.sandbox_environment("kept", storage="disk", snapshot=snapshot["name"])
        self.answered("snapshot", lambda: self.release(self.acquire(kept)))

        held = begin()
        self.run_command(held, "echo saved > g")
        self.release(held)
        (saved,) = wait_until(lambda: self.ok("GET", f"/api/companies/{ident(self.acme)}/salvages"), "a salvage")

        def apply():
            self.ok("POST", f"/api/salvages/{saved['id']}/apply", {})
            self.assertEqual((folder / "g").read_text(), "saved\n")
        self.answered("salvage", apply)
        self.walk()

    def test_a_command_that_ends_without_a_daemon(self):
        """The box has nobody who could write its end down: it makes its output safe itself."""
        self.acme = self.company()
        local = next(e for e in self.ok("GET", f"/api/companies/{ident(self.acme)}/environments")
                     if e["driver"] == "local")
        held = self.acquire(local)
        alone = self.detach(f"echo begun; while [ ! -e {self.work}/go ]; do sleep 0.02; done; echo ended",
                            lease=held)
        self.output_is(alone, b"begun\n", lease=held)
        self.outputs[alone] = (held, b"begun\nended\n", b"")
        self.daemon.kill()
        before = self.disk.step()
        self.release_held()
        wait_until(lambda: any(path == f"d/output/{alone}/exit" for _, _, path in self.disk.steps()[before:]),
                   "the box has synced its record")
        wait_until(lambda: self.disk.steps()[-1][2].endswith("/spool"), "and all the names")
        self.end_boxes()
        self.assertTrue(self.cut(self.disk.step()))
        self.ended(alone, lease=held)
        self.check_execution(held, alone, 0, b"begun\nended\n", b"")
        self.release(held)
        self.walk()
