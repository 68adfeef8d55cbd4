"""Until the command of a run has started, preparing again is free: the same run, no retry used up, over restarts of the
daemon and over whatever passes. What waits says so, can be cancelled, and gives up in the end."""
# threads: jobs of a run that waits beside its cancel

import contextlib
import os
import pathlib
import signal
import subprocess
import unittest

from berthtest import SOURCE, wait_until
from providertest import ProviderTest
from runtest import RunTest
from sshtest import Fixture, Line, missing_command, processes


class WaitCase(RunTest):
    def waiting(self, run, reason=""):
        """Wait until the run says that it waits, for this reason."""
        def look():
            said = self.run_row(run)["waiting"]
            return said and reason in said["reason"] and said
        return wait_until(look, f"the run waits: {reason}", 30)

    def ran_once(self, run):
        """The run that was accepted has done it, at the first start of its command."""
        self.assertEqual(run["status"], "succeeded", run)
        self.assertIsNone(run["waiting"])
        self.assertEqual([(r["id"], r["process_loss_retry_count"]) for r in self.runs()], [(run["id"], 0)])


class BusyTest(WaitCase):
    """A provider that is busy, and one that says no. It runs no commands, so what gets past it ends at once."""

    def setUp(self):
        self.world = pathlib.Path(self.temp_dir())
        self.daemon_env = {**self.daemon_env, "BERTH_FAKE_WORLD": str(self.world)}
        super().setUp()

    def wake_there(self):
        env = self.environment(self.acme, name="fake")
        agent = self.agent(self.acme, adapterType="process", adapterConfig={"command": "true"})
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        return self.wake(agent)

    def test_a_busy_provider(self):
        (self.world / "busy-open").touch()
        run = self.wake_there()
        said = self.waiting(run, "told to be busy")
        row = self.run_row(run)
        self.assertEqual((row["status"], row["step"], row["leaseId"]), ("running", "preparing", None))
        wait_until(lambda: self.run_row(run)["waiting"]["failures"] > said["failures"], "it is tried again")
        self.assertEqual(self.run_row(run)["waiting"]["since"], said["since"])
        told = [e for e in self.run_events(run) if e["message"].startswith("waiting: ")]
        self.assertRegex(told[0]["message"], r"told to be busy\.; next try at 2\d{3}-\S+Z$")
        self.assertEqual((told[0]["level"], told[0]["payload"]["failures"]), ("warn", 1))
        shown = self.cli("runs", "show", run["id"])[1]
        self.assertRegex(shown, r"Waiting +Failed to acquire lease .*told to be busy")
        self.assertRegex(shown, r"Next try +2\d{3}-")
        (self.world / "busy-open").unlink()
        row = self.finished(run)
        self.assertEqual((row["errorCode"], row["waiting"]), ("transport_resolution_failed", None))
        self.assertEqual(len(self.runs()), 1)

    def test_cancelled_while_it_waits(self):
        (self.world / "busy-open").touch()
        run = self.wake_there()
        wait_until(lambda: self.waiting(run)["failures"] >= 4, "the pauses have grown", 30)
        self.assertEqual(self.cancel(run)["status"], "cancelled")
        row = self.finished(run)
        self.assertEqual((row["status"], row["waiting"]), ("cancelled", None))
        self.nothing_held()

    def test_a_provider_that_says_no(self):
        """environment-runtime, section 5.3: lease_acquire_failed, at once"""
        (self.world / "fail-open").touch()
        run = self.wake_there()
        row = self.finished(run)
        self.assertEqual((row["status"], row["errorCode"]), ("failed", "lease_acquire_failed"))
        self.assertNotIn("given up", row["error"])
        self.assertEqual(self.row_of(run)["prepare_failures"], 0)

    def test_waiting_goes_on_after_a_restart(self):
        (self.world / "busy-open").touch()
        run = self.wake_there()
        said = self.waiting(run)
        self.daemon.restart(crash=True)
        wait_until(lambda: self.waiting(run)["failures"] > said["failures"], "it is tried again")
        self.assertEqual(self.waiting(run)["since"], said["since"])
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")


class LimitTest(BusyTest):
    daemon_env = {**BusyTest.daemon_env, "BERTH_RUN_PREPARE_TIMEOUT_MS": "700"}
    test_a_busy_provider = test_cancelled_while_it_waits = test_a_provider_that_says_no = None
    test_waiting_goes_on_after_a_restart = None

    def test_it_gives_up_in_the_end(self):
        (self.world / "busy-open").touch()
        row = self.finished(self.wake_there())
        self.assertEqual((row["status"], row["errorCode"]), ("failed", "lease_acquire_failed"))
        self.assertRegex(row["error"], r"told to be busy\.; given up after \d tries in 0 s \(run_prepare_timeout_ms\)$")
        self.assertEqual(len(self.runs()), 1)
        self.nothing_held()


class HostTest(WaitCase):
    """A host that cannot be reached for a while."""

    def test_a_host_that_comes_back(self):
        if missing_command():
            raise unittest.SkipTest(missing_command())
        fixture = Fixture(self.temp_dir() / "lab")
        self.addCleanup(fixture.stop)
        fixture.start()
        line = Line(fixture.port)
        self.addCleanup(line.close)
        env = self.environment(self.acme, name="host", driver="ssh", config=fixture.config(port=line.port))
        line.refusing = True
        run = self.wake(self.runner("echo hello", environment=env))
        self.waiting(run, "Failed to acquire lease")
        line.refusing = False
        self.ran_once(self.finished(run, 60))
        self.assertEqual(self.began(), {run["id"]: 1})
        self.nothing_held()


    def killed_while_it_logs_in(self, kill):
        """Somebody, or the kernel for want of memory, ends one side of the login: that passes."""
        if missing_command():
            raise unittest.SkipTest(missing_command())
        shell = self.temp_dir() / "shell"
        held = self.temp_dir() / "go"
        shell.write_text(f"#!/bin/sh\nwhile [ ! -e {held} ]; do sleep 0.01; done\nexec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n")
        shell.chmod(0o755)
        fixture = Fixture(self.temp_dir() / "lab", shell)
        self.addCleanup(fixture.stop)
        fixture.start()
        env = self.environment(self.acme, name="host", driver="ssh", config=fixture.config())
        run = self.wake(self.runner("echo hello", environment=env))
        for pid in wait_until(lambda: kill(fixture), "somebody is there"):
            os.kill(pid, signal.SIGKILL)
        self.waiting(run, "without a word")
        held.touch()
        self.ran_once(self.finished(run, 60))

    def test_an_ssh_that_is_killed(self):
        self.killed_while_it_logs_in(lambda fixture: self.logged_in(fixture) and [
            pid for pid, words in processes(self.daemon.process.pid) if words.startswith(b"ssh\0")])

    def test_a_shell_that_is_killed(self):
        self.killed_while_it_logs_in(self.logged_in)

    def logged_in(self, fixture):
        """The shell there."""
        return [pid for pid, words in processes(fixture.process.pid) if str(fixture.shell).encode() in words]


class SlowPlaceTest(ProviderTest):
    """The daemon ends while the provider makes the place."""
    worker = SOURCE / "test" / "workers" / "runner.py"

    edit, wake, runs, row_of = RunTest.edit, RunTest.wake, RunTest.runs, RunTest.row_of
    wait_for, run_row, finished, ran_once = RunTest.wait_for, RunTest.run_row, RunTest.finished, WaitCase.ran_once

    def restarted_twice(self, crash):
        env, ran = self.sandbox(), self.provider.dir / "ran"
        agent = self.agent(self.company_id, adapterType="process", adapterConfig={
            "command": "sh", "args": ["-c", f'echo "$PAPERCLIP_RUN_ID" >> {ran}']})
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        self.provider.behave(AcquireLease={"hold": "go"})
        run = self.wake(agent)
        for asked in range(1, 3):
            wait_until(lambda: len(self.provider.calls("environmentAcquireLease")) == asked, "it is asked for a place", 60)
            self.daemon.restart(crash=crash)
        self.provider.let_go()
        self.ran_once(self.finished(run, 60))
        self.assertEqual(ran.read_text().split(), [run["id"]])

    def test_two_kills(self):
        self.restarted_twice(crash=True)

    def test_two_orderly_restarts(self):
        self.restarted_twice(crash=False)

    def test_a_worker_that_dies_over_it(self):
        """Its place may exist, and its row says so; the run gets another."""
        env = self.sandbox()
        agent = self.agent(self.company_id, adapterType="process", adapterConfig={"command": "true"})
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        self.provider.behave(AcquireLease={"die": True})
        run = self.wake(agent)
        wait_until(lambda: self.run_row(run)["waiting"], "the run waits", 30)
        self.provider.behave()
        self.ran_once(self.finished(run, 60))

    def test_a_busy_worker(self):
        """-32000 of the plugin protocol: for now."""
        env = self.sandbox()
        agent = self.agent(self.company_id, adapterType="process", adapterConfig={"command": "true"})
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        self.provider.behave(AcquireLease={"error": {"code": -32000, "message": "all machines are taken"}})
        run = self.wake(agent)
        said = wait_until(lambda: self.run_row(run)["waiting"], "the run waits", 30)
        self.assertIn("all machines are taken", said["reason"])
        self.provider.behave()
        self.ran_once(self.finished(run, 60))


class SmallDirectory(WaitCase):
    """One directory of the data directory is a file system of few inodes."""
    daemon_autostart = False
    directory = None

    def setUp(self):
        super().setUp()
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            self.skipTest("needs root, to mount a small file system of its own")
        output = self.daemon.data / self.directory
        output.mkdir()
        wrapper = self.temp_dir() / "wrapper"
        wrapper.write_text("#!/bin/sh\nset -e\n"
                           f"exec unshare -m sh -c 'mount -t tmpfs -o nr_inodes=200 none {output} && exec \"$@\"' "
                           f"sh {self.daemon.binary} \"$@\"\n")
        wrapper.chmod(0o755)
        self.daemon.binary = str(wrapper)
        self.daemon.start()
        super().make_lease()
        self.output = pathlib.Path(f"/proc/{self.daemon.process.pid}/root{output}")

    def make_lease(self):
        pass  # the daemon does not run yet

    def fill(self):
        filler = []
        with contextlib.suppress(OSError):
            while True:
                filler.append(self.output / f"filler-{len(filler)}")
                filler[-1].touch()
        return filler[:-1]


class NoInodesTest(SmallDirectory):
    """The file system of the output has no inodes left: accepted wake-ups wait, and then all of them run."""
    directory = "output"

    def test_a_supervisor_without_room(self):
        """The directory fits, what the supervisor puts into it does not: the command was to be, and never began."""
        agent = self.runner("echo hello")
        first = self.finished(self.wake(agent))["id"]
        filler = self.fill()
        filler.pop().unlink()
        run = self.wake(agent)
        wait_until(lambda: [m for m in self.messages(run)
                            if m.startswith("waiting: The command could not be started for now: ")], "it did not begin", 30)
        for path in filler:
            path.unlink()
        self.assertEqual(self.finished(run, 60)["status"], "succeeded")
        self.assertEqual(self.began(), {first: 1, run["id"]: 1})
        self.assertEqual(len(self.runs()), 2)
        self.nothing_held()

    def test_accepted_wake_ups_run(self):
        agent = self.runner("echo hello")
        first = self.finished(self.wake(agent))["id"]
        filler = self.fill()
        runs = self.wake_several(agent, 3)
        for run in runs:
            self.waiting(run, "No space left on device")
        for path in filler:
            path.unlink()
        for run in runs:
            self.assertEqual(self.finished(run, 60)["status"], "succeeded")
        self.assertEqual(self.began(), {run: 1 for run in [first, *(r["id"] for r in runs)]})
        self.assertEqual(len(self.runs()), 4)
        self.nothing_held()


class NoInodesForSandboxesTest(SmallDirectory):
    directory = "sandboxes"

    def test_sandboxes_without_room(self):
        """However far a sandbox comes, by what is left: the directory, what the daemon puts into it, what its supervisor
        does."""
        agent = self.runner("echo hello", environment=self.sandbox())
        filler = self.fill()
        runs = []
        for _ in range(12):
            runs.append(self.wake(agent))
            wait_until(lambda r=runs[-1]: self.run_row(r)["waiting"] or self.run_row(r)["step"] == "done", "it waits or ends", 30)
            filler.pop().unlink()
        for path in filler:
            path.unlink()
        for run in runs:
            self.assertEqual(self.finished(run, 60)["status"], "succeeded")


class PlaceDiesTest(WaitCase):
    """A place that ends while it is made ready takes no run with it."""

    def test_a_sandbox_that_dies_while_it_is_provisioned(self):
        issue = self.provisioned_issue(self.sandbox(), "[ -e go ] || sleep 1000")
        run = self.wake(self.runner("true"), payload={"issueId": issue["id"]})
        wait_until(lambda: self.daemon.sql("SELECT 1 FROM executions WHERE idempotency_key = ?",
                                           (f"provision:{run['id']}",)), "it is made ready", 30)
        self.release_held()
        self.kill_box(self.row_of(run)["lease_id"])
        self.ran_once(self.finished(run, 60))
        self.nothing_held()


if __name__ == "__main__":
    unittest.main()
