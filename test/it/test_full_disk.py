"""A full disk: a command waits for room, for a bounded time; then it has failed, and says so wherever it is seen. The
daemon starts, answers and gives things up. What was refused for want of room can be asked for again."""
# share 3: 8 s of processor time

# sqlite: the disk of a SQLite file

import os
import pathlib

from berthtest import ident, wait_until
from exectest import ExecTest, marked
from fulldisk import SmallData, SmallOutput, own_mounts
from relaytest import FarTest
from runtest import RunTest
from sandboxtest import SandboxTest
from test_ssh_plain import PlainTest as SshPlainTest

PATIENT = {"BERTH_SWEEP_INTERVAL_MS": "50"}  # for a minute
HASTY = {**PATIENT, "BERTH_OUTPUT_WAIT_MS": "300"}
FLOOD = "exec cat /dev/zero"


def prints_in_vain(pid):
    try:
        return "pipe_write" in pathlib.Path(f"/proc/{pid}/stack").read_text()
    except OSError:
        return True


def setUpModule():
    own_mounts()


class Waiting:
    """Room comes in time."""

    def test_what_it_said_last_waits_for_room(self):
        exec_id = self.detach("read x; echo RESULT; echo ERRORS >&2; exit 3", openStdin=True)
        self.fill()
        self.stdin(exec_id, b"\n")
        wait_until(lambda: not marked([exec_id]), "the command is over")
        self.assertEqual(self.execution(exec_id)["status"], "running")
        self.free()
        row = self.ended(exec_id)
        self.assertEqual((row["exitCode"], row["incomplete"], row["reason"]), (3, False, None))
        self.assertEqual((self.output(exec_id), self.output(exec_id, "stderr")), (b"RESULT\n", b"ERRORS\n"))

    def test_a_command_that_goes_on(self):
        lines = 40000
        exec_id = self.detach(f"read x; i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); done",
                              openStdin=True)
        self.fill()
        self.stdin(exec_id, b"\n")
        (pid,) = marked([exec_id])
        wait_until(lambda: prints_in_vain(pid), "the command blocks where it prints, or is over")
        self.free()
        row = self.ended(exec_id)
        self.assertEqual((row["exitCode"], row["incomplete"]), (0, False), row)
        self.assertEqual(self.output(exec_id), b"".join(b"line %d\n" % i for i in range(lines)))

    def test_a_place_that_is_given_up_does_not_wait(self):
        exec_id = self.detach("read x; echo RESULT", openStdin=True)
        self.fill()
        self.stdin(exec_id, b"\n")
        wait_until(lambda: not marked([exec_id]), "the command is over")
        self.release(self.held)
        row = self.ended(exec_id)
        self.assertTrue(row["incomplete"], row)
        self.free()


class Failing:
    """It does not."""

    def assert_failed(self, row):
        self.assertEqual((row["status"], row["incomplete"]), ("exited", True), row)
        self.assertIn("disk ran full", row["reason"])
        self.assertIn(str(self.daemon.data / "output"), row["reason"])
        self.assertIn("Make room", row["reason"])

    def test_what_it_said_last_is_lost(self):
        exec_id = self.detach("read x; echo RESULT; exit 0", openStdin=True)
        self.fill()
        self.stdin(exec_id, b"\n")
        self.assert_failed(self.ended(exec_id))

    def test_a_command_that_goes_on_is_killed(self):
        row = self.ended(self.detach(FLOOD))
        self.assert_failed(row)
        self.assertEqual((row["exitCode"], row["signal"]), (None, "SIGKILL"))
        (self.daemon.data / "output" / row["execId"] / "stdout").unlink()


class LocalWaitingTest(Waiting, SmallOutput, ExecTest):
    daemon_env = PATIENT

    # What went through a buffer is held: that of a terminal, and that of a command with values that must not be seen.
    def test_a_terminal(self):
        exec_id = self.detach("stty -echo -onlcr; read x; echo RESULT", tty={"columns": 80, "rows": 24})
        wait_until(lambda: self.execution(exec_id)["status"] == "running", "it runs")
        self.fill()
        self.stdin(exec_id, b"\n")
        wait_until(lambda: not marked([exec_id]), "the command is over")
        self.free()
        self.assertEqual(self.ended(exec_id)["incomplete"], False)
        self.assertTrue(self.output(exec_id).endswith(b"RESULT\n"))


class LocalFailingTest(Failing, SmallOutput, ExecTest):
    daemon_env = HASTY

    def test_the_answer_and_the_command_line_say_so(self):
        got = self.sh(FLOOD)
        self.assertTrue(got["metadata"]["incomplete"])
        self.assertIn("disk ran full", got["metadata"]["reason"])
        status, _, err = self.cli("run", "--", "sh", "-c", "echo lost")
        self.assertNotEqual(status, 0)
        self.assertIn("disk ran full", err)


class SandboxWaitingTest(Waiting, SmallOutput, SandboxTest):
    daemon_env = PATIENT


class SandboxFailingTest(Failing, SmallOutput, SandboxTest):
    daemon_env = HASTY


class FarWaitingTest(Waiting, SmallOutput, FarTest):
    """The box has room, and the daemon has none."""
    daemon_env = {**FarTest.daemon_env, **PATIENT}


class FarFailingTest(Failing, SmallOutput, FarTest):
    daemon_env = {**FarTest.daemon_env, **HASTY}


class KeyTest(SmallOutput, ExecTest):
    options = "size=1m,nr_inodes=64"

    def test_a_refusal_does_not_burn_the_key(self):
        self.sh("true")
        self.use_up_inodes()
        refused = self.execute("/bin/sh", ["-c", "echo once"], idempotencyKey="k")
        self.assertEqual(refused.status, 503, refused.text)
        self.assertIn("No space left", refused.error)
        self.free()
        got = self.sh("echo once", idempotencyKey="k")
        self.assertEqual(got["stdout"], "once\n")
        self.assertEqual(self.sh("echo once", idempotencyKey="k")["execId"], got["execId"])


class RunDiskTest(SmallData, RunTest):
    daemon_env = {**HASTY, "BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_DISK_RESERVE_MB": "2"}

    def ends_full(self, environment=None):
        """A run whose disk fills up while it works, and stays full until it has failed."""
        agent = self.runner("while [ ! -e go ]; do sleep 0.02; done; echo RESULT; exit 0", environment=environment)
        run = self.wake(agent)
        self.wait_for(run, step="executing")
        execution = self.row_of(run)["execution_id"]
        wait_until(lambda: marked([execution]) or environment, "the command is up")
        lease = self.row_of(run)["lease_id"]
        helper = self.detach("read x; touch go", lease=lease, cwd="/workspace" if environment else str(self.work),
                             openStdin=True)
        self.fill()
        self.held = lease
        self.assert_status(self.stdin(helper, b"\n"), 200)
        self.assert_told(run)
        self.free()

    def assert_told(self, run):
        row = self.finished(run)
        self.assertEqual((row["status"], row["errorCode"], row["incomplete"]), ("failed", "disk_full", True), row)
        self.assertIn("Make room", row["error"])
        self.assertIn(str(self.daemon.data), row["error"])
        listed = next(r for r in self.ok("GET", f"/api/companies/{ident(self.acme)}/heartbeat-runs")
                      if r["id"] == row["id"])
        self.assertTrue(listed["incomplete"])
        self.assertTrue(self.ok("GET", f"/api/heartbeat-runs/{ident(run)}/log")["incomplete"])

    def test_a_local_run(self):
        self.ends_full()

    def test_a_run_in_a_sandbox(self):
        self.ends_full(self.sandbox())

    def test_a_run_that_found_room_has_it_all(self):
        agent = self.runner("echo begun; while [ ! -e go ]; do sleep 0.02; done; echo RESULT")
        run = self.wake(agent)
        self.up(run)
        self.release_held()
        row = self.finished(run)
        self.assertEqual((row["status"], row["incomplete"]), ("succeeded", False))
        self.assertNotIn("incomplete", self.ok("GET", f"/api/heartbeat-runs/{ident(run)}/log"))


class DaemonTest(SmallData, ExecTest):
    daemon_env = {**HASTY, "BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_DISK_RESERVE_MB": "2"}

    def assert_serves(self, leases):
        """Reads and releases; the rest is refused, and can be asked for again."""
        local = ident(self.local)
        self.assertEqual(self.ok("GET", "/api/companies")[0]["name"], "Acme")
        for method, path, body in (("POST", "/api/companies", {"name": "x"}),
                                   ("POST", f"/api/environments/{local}/leases", {"idempotencyKey": "again"}),
                                   ("PATCH", f"/api/environments/{local}", {"description": "x"})):
            refused = self.req(method, path, body)
            self.assertEqual(refused.status, 503, refused.text)
            self.assertIn("disk with the data directory is full", refused.error)
            self.assertIn(str(self.daemon.data), refused.error)
        for lease in leases:
            self.assertEqual(self.release(lease)["lease"]["status"], "released")
        self.free()
        got = self.acquire(self.local, idempotencyKey="again")
        self.assertEqual(ident(self.req("POST", f"/api/environments/{local}/leases", {"idempotencyKey": "again"}).json),
                         ident(got))

    def test_it_goes_on(self):
        leases = [self.held] + [self.acquire(self.local) for _ in range(30)]
        self.sh("echo hello")
        self.fill()
        self.assert_serves(leases)

    def start_again(self, stop):
        leases = [self.held] + [self.acquire(self.local) for _ in range(10)]
        exec_id = self.sh("echo hello")["execId"]
        stop()
        self.fill()
        self.daemon.start()
        self.assertEqual(self.output(exec_id), b"hello\n")
        self.assert_serves(leases)

    def test_it_starts_after_a_stop(self):
        self.start_again(self.daemon.stop)

    def test_it_starts_after_a_crash(self):
        self.start_again(self.daemon.kill)

    def test_it_starts_again_and_again(self):
        self.fill()
        for stop in (self.daemon.stop, self.daemon.kill, self.daemon.stop):
            stop()
            self.fill()
            self.daemon.start()
        self.assert_serves([self.held])

    def test_without_a_reserve(self):
        self.daemon.env["BERTH_DISK_RESERVE_MB"] = "0"
        self.daemon.restart()
        self.assertEqual([f for f in os.listdir(self.daemon.data) if "reserve" in f], [])
        self.daemon.stop()
        self.assertEqual([f for f in os.listdir(self.daemon.data) if "reserve" in f], [])
        self.daemon.start()


class SshPlainDiskTest(SmallOutput, SshPlainTest):
    """A command that nobody can make wait: what it said is kept in memory meanwhile."""
    daemon_env = {**SshPlainTest.daemon_env, **PATIENT}

    def start(self):
        path = f"/api/environment-leases/{self.lease_['id']}"
        go = self.fixture.workspace / "go"
        before = self.children()
        exec_id = self.ok("POST", f"{path}/execute", {
            "command": "sh", "args": ["-c", f"while [ ! -e {go} ]; do sleep 0.02; done; echo RESULT; exit 3"],
            "detach": True}, status=202)["execId"]
        self.fill()
        wait_until(lambda: self.children() > before, "ssh runs it")
        go.touch()
        wait_until(lambda: self.children() == before, "the daemon has heard all of it")
        return f"{path}/executions/{exec_id}"

    def children(self):
        tasks = pathlib.Path(f"/proc/{self.daemon.process.pid}/task")
        return sum(len((task / "children").read_text().split()) for task in tasks.iterdir())

    def ended(self, path):
        return wait_until(lambda: (lambda row: row["endedAt"] and row)(self.ok("GET", path)), "it ends", 30)

    def test_it_waits_for_room(self):
        path = self.start()
        self.free()
        row = self.ended(path)
        self.assertEqual((row["exitCode"], row["incomplete"], row["stdoutBytes"]), (3, False, 7), row)

    def test_it_fails_with_the_reason(self):
        self.daemon.env["BERTH_OUTPUT_WAIT_MS"] = "300"
        self.daemon.restart()
        row = self.ended(self.start())
        self.assertEqual((row["exitCode"], row["incomplete"]), (3, True), row)
        self.assertIn("disk ran full", row["reason"])
        self.free()

    test_commands = test_output_over_the_limit_is_not_kept = test_what_goes_in_and_comes_out = None


del SshPlainTest
