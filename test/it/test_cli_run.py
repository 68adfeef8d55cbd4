"""`berth run` and `berth lease exec` on real daemons and boxes: what comes out, how it ends, signals, terminals,
daemons that go away, and the private one."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

from berthtest import BINARIES, BerthTest, wait_until

BERTH = BINARIES["normal"]
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PYTHON = sys.executable
EVERY_BYTE = bytes(range(256))


def default_signals():
    """Whoever runs the tests in the background ignores these, and so would we."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """A command on a terminal of its own; a leader of its session, so that Ctrl-C typed here reaches it."""

    def __init__(self, args, env, columns=100, rows=30):
        self.parent, child = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(child)
        self.child = child  # kept open, to look at its settings after the end
        self.seen = b""
        self.process = subprocess.Popen(args, stdin=child, stdout=child, stderr=child, env=env, start_new_session=True,
                                        preexec_fn=self._take_over)

    @staticmethod
    def _take_over():
        default_signals()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns, rows):
        fcntl.ioctl(self.parent, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data):
        os.write(self.parent, data)

    def expect(self, pattern, timeout=30):
        """Read until the pattern is there; drop what was up to its end and return the match."""
        def found():
            if select.select([self.parent], [], [], 0)[0]:
                self.seen += os.read(self.parent, 65536)
            return re.search(pattern, self.seen)
        match = wait_until(found, f"{pattern!r} on the terminal; there is {self.seen!r}", timeout)
        self.seen = self.seen[match.end():]
        return match

    def wait(self, timeout=30):
        status = self.process.wait(timeout)
        while select.select([self.parent], [], [], 0)[0]:
            self.seen += os.read(self.parent, 65536)
        return status

    def is_raw(self):
        return not termios.tcgetattr(self.child)[3] & termios.ICANON

    def is_as_before(self):
        return termios.tcgetattr(self.child) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.parent)
        os.close(self.child)


class RunTest(BerthTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.release_all)  # boxes outlive their daemon

    def release_all(self):
        for row in self.leases() if self.daemon.running() else []:
            self.berth("lease", "release", row["id"])

    @property
    def env(self):
        return {**os.environ, "BERTH_DATA": str(self.daemon.data), "TERM": "xterm"}

    def berth(self, *args, stdin=b"", env=None, cwd=None):
        """(status, stdout, stderr), as bytes."""
        done = subprocess.run([BERTH, *args], input=stdin, capture_output=True, timeout=120, cwd=cwd,
                              env={**self.env, **(env or {})})
        return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")

    def start(self, *args, stdin=subprocess.DEVNULL, env=None):
        # Without a buffer: communicate() would not see what readline() read ahead.
        process = subprocess.Popen([BERTH, *args], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**self.env, **(env or {})}, bufsize=0, preexec_fn=default_signals)
        self.addCleanup(self._reap, process)
        return process

    @staticmethod
    def _reap(process):
        if process.poll() is None:
            process.kill()
        with contextlib.suppress(ValueError):
            process.communicate()

    def terminal(self, *args, **more):
        terminal = Terminal([BERTH, *args], self.env, **more)
        self.addCleanup(terminal.close)
        return terminal

    def leases(self, status="active"):
        return self.daemon.sql("SELECT id FROM environment_leases WHERE status = ?", (status,))

    def lease_of_own(self):
        self.berth("company", "create", "Acme")
        return json.loads(self.berth("--json", "lease", "acquire", "Local")[1])["lease"]["id"]


class OutputTest(RunTest):
    def test_streams_and_status(self):
        status, out, err = self.berth("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((status, out), (7, b"out\n"))
        self.assertTrue(err.endswith("err\n"), err)
        self.assertEqual(self.leases(), [])
        self.assertEqual(len(self.leases("released")), 1)
        self.assertEqual(self.berth("run", "--", "true")[0], 0)

    def test_words_after_the_command_are_its_own(self):
        self.assertEqual(self.berth("run", "echo", "-v", "--json", "--", "x")[1], b"-v --json -- x\n")
        self.assertEqual(self.berth("run", "--", "echo", "--", "-e")[1], b"-- -e\n")
        self.assertEqual(self.berth("run", "-v")[0], 2)

    def test_bytes_are_exact(self):
        # Text, text with NUL, bytes that are no text, and characters that are cut in two.
        for data in (b"plain\n", b"a\0b\n", EVERY_BYTE * 300, ("ä€𝄞" * 30000).encode(), b"no newline"):
            with self.subTest(data=data[:10]):
                status, out, err = self.berth("run", "--", "cat", stdin=data)
                self.assertEqual((status, out), (0, data), err)
                out = self.berth("run", "--", "sh", "-c", "cat >&2", stdin=data)
                self.assertEqual(out[1], b"")

    def test_a_megabyte_of_input_and_output(self):
        data = os.urandom(1 << 20)
        self.assertEqual(self.berth("run", "--", "cat", stdin=data)[:2], (0, data))
        status, out, _ = self.berth("run", "--", "sh", "-c", "cat >&2", stdin=data)
        self.assertEqual((status, out), (0, b""))

    def test_input_that_nobody_reads(self):
        self.assertEqual(self.berth("run", "--", "true", stdin=os.urandom(4 << 20))[0], 0)
        self.assertEqual(self.berth("run", "--", "head", "-c", "3", stdin=b"abc" * 1000000)[:2], (0, b"abc"))

    def test_output_that_nobody_reads(self):
        line = f"{shlex.quote(BERTH)} run -- yes | head -n 1; echo ${{PIPESTATUS[0]}}"
        out = subprocess.run(["bash", "-c", line], capture_output=True, env=self.env, timeout=120).stdout
        self.assertEqual(out, b"y\n141\n")

    def test_output_comes_while_it_runs(self):
        process = self.start("run", "--", "sh", "-c", "echo ready; read line; echo got $line", stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.stdin.write(b"this\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"got this\n")
        self.assertEqual(process.wait(30), 0)

    def test_commands_that_cannot_start(self):
        plain = self.temp_dir() / "plain"
        plain.write_text("no program")
        status, out, err = self.berth("run", "--", "no-such-command")
        self.assertEqual((status, out), (127, b""))
        self.assertIn("berth: cannot run 'no-such-command': No such file or directory", err)
        status, _, err = self.berth("run", "--", str(plain))
        self.assertEqual(status, 126, err)
        status, _, err = self.berth("run", "--cwd", "/nonexistent", "--", "true")
        self.assertEqual(status, 1)
        self.assertIn("working directory", err)
        self.assertEqual(self.leases(), [])

    def test_signals_and_time_limits_show_in_the_status(self):
        self.assertEqual(self.berth("run", "--", "sh", "-c", "kill -TERM $$")[0], 143)
        self.assertEqual(self.berth("run", "--", "sh", "-c", "kill -9 $$")[0], 137)
        self.assertEqual(self.berth("run", "--", "sh", "-c", "kill -INT $$")[0], 130)
        status, _, err = self.berth("run", "--timeout", "200ms", "--", "sleep", "600")
        self.assertEqual(status, 124)
        self.assertIn("time was over", err)
        self.assertEqual(self.berth("run", "--timeout", "soon", "--", "true")[0], 2)

    def test_directory_and_variables(self):
        here = self.temp_dir().resolve()
        (here / "sub").mkdir()
        pwd = ["--", "pwd"]
        self.assertEqual(self.berth("run", *pwd, cwd=here)[1].decode(), f"{here}\n")
        self.assertEqual(self.berth("run", "--cwd", "sub", *pwd, cwd=here)[1].decode(), f"{here}/sub\n")
        self.assertEqual(self.berth("run", "--workspace", str(here), *pwd, cwd="/")[1].decode(), f"{here}\n")
        self.assertEqual(self.berth("run", "--workspace", ".", "--cwd", "sub", *pwd, cwd=here)[1].decode(),
                         f"{here}/sub\n")
        status, _, err = self.berth("run", "--workspace", "/proc", *pwd)
        self.assertEqual(status, 1)
        self.assertEqual(self.leases(), [], err)
        out = self.berth("run", "-e", "A=1", "-e", "B=x=y", "-e", "C", "--", "sh", "-c", "echo $A $B $C $D",
                         env={"C": "here", "D": "not"})[1]
        self.assertEqual(out, b"1 x=y here\n")

    def test_the_result_as_json(self):
        status, out, err = self.berth("run", "--json", "--", "sh", "-c", "echo out; exit 3")
        result = json.loads(out)
        self.assertEqual(status, 3)
        self.assertIn("out\n", err)
        self.assertEqual((result["lease"]["status"], result["execution"]["exitCode"]), ("released", 3))
        times = [result["timeline"][k + "Ms"] for k in ("daemon", "lease", "start", "firstOutput", "exit", "release")]
        self.assertEqual(times, sorted(times))

    def test_the_timeline(self):
        err = self.berth("run", "-v", "--", "sh", "-c", "echo hi; exit 2")[2]
        found = re.findall(r"^  (\w[\w ]*?) +\d+\.\d ms", err, re.M)
        self.assertEqual(found, ["daemon", "lease", "start", "first output", "exit", "release"])
        self.assertIn("status 2", err)

    def test_keep(self):
        status, _, err = self.berth("run", "--keep", "--", "true")
        kept = re.search(rf"kept lease ({UUID}) until", err)
        self.assertEqual((status, bool(kept)), (0, True), err)
        self.assertEqual([row["id"] for row in self.leases()], [kept[1]])
        self.assertEqual(self.berth("lease", "exec", kept[1], "--", "echo", "again")[1], b"again\n")

    def test_the_environment(self):
        self.berth("company", "create", "Acme")
        self.berth("env", "create", "sandbox", "fake", "-o", "provider=fake")
        status, _, err = self.berth("run", "--env", "fake", "--", "true")
        self.assertEqual(status, 1, err)
        self.assertEqual(self.leases(), [])
        self.assertEqual(self.berth("run", "--env", "nowhere", "--", "true")[0], 5)
        self.assertEqual(self.berth("run", "--env", "Local", "--", "echo", "here")[1], b"here\n")


class OwnDirectoryTest(RunTest):
    """Roots that the workspace is not in, and the user that the daemon runs as."""

    daemon_env = {"BERTH_WORKSPACE_ROOTS": "/nonexistent"}

    def setUp(self):
        super().setUp()
        self.dir = self.temp_dir().resolve()
        (self.dir / "a").write_text("1\n")
        self.args = ["run", "-w", str(self.dir), "--isolation", "copy", "--", "sh", "-c", "echo 2 >>a; echo new >b"]

    def refused(self, *before, env=None):
        status, _, err = self.berth(*before, *self.args, env=env)
        self.assertNotEqual(status, 0)
        self.assertIn("BERTH_WORKSPACE_ROOTS", err)
        self.assertEqual(os.listdir(self.dir), ["a"])

    def test_through_the_socket_it_is_allowed(self):
        status, _, err = self.berth(*self.args)
        self.assertEqual(status, 0, err)
        self.assertEqual(((self.dir / "a").read_text(), (self.dir / "b").read_text()), ("1\n2\n", "new\n"))

    def test_through_the_port_it_is_not(self):
        self.refused("--api-url", self.daemon.url)

    def test_with_a_key_it_is_not(self):
        self.berth("company", "create", "Acme")
        key = json.loads(self.berth("--json", "key", "create", "--board")[1])["token"]
        self.refused(env={"BERTH_API_KEY": key})

    @unittest.skipUnless(os.getuid() == 0, "needs root")
    def test_the_directory_of_another_user_is_not(self):
        os.chown(self.dir, 65534, 65534)
        self.refused()


class LeaseTest(RunTest):
    def test_exec(self):
        lease = self.lease_of_own()
        status, out, _ = self.berth("lease", "exec", lease[-12:], "--env", "A=b", "--cwd", "/", "--", "sh", "-c",
                                    "pwd; echo $A; cat; exit 4", stdin=b"in\n")
        self.assertEqual((status, out), (4, b"/\nb\nin\n"))
        self.assertEqual([row["id"] for row in self.leases()], [lease])
        self.assertEqual(self.berth("lease", "exec", lease, "--", "no-such-command")[0], 127)
        self.assertEqual(self.berth("lease", "exec", lease)[0], 2)
        self.assertEqual(self.berth("lease", "exec", lease, "-t", "-d", "--", "true")[0], 2)
        self.berth("lease", "release", lease)
        status, _, err = self.berth("lease", "exec", lease, "--", "true")
        self.assertEqual(status, 1)
        self.assertIn("berth: ", err)

    def test_detached(self):
        lease = self.lease_of_own()
        gate = self.temp_dir() / "gate"
        os.mkfifo(gate)
        script = f"echo one; echo wrong >&2; cat {gate} >/dev/null; printf 'two\\0\\377'"
        status, out, _ = self.berth("lease", "exec", lease, "--detach", "--", "sh", "-c", script)
        execution = out.decode().strip()
        self.assertRegex(execution, f"^{UUID}$")
        follower = self.start("lease", "output", lease, execution, "-f")
        self.assertEqual(follower.stdout.readline(), b"one\n")
        wait_until(lambda: self.berth("lease", "output", lease, execution[-12:], "--stderr")[1] == b"wrong\n",
                   "standard error is there")
        self.assertEqual(self.berth("lease", "output", lease, execution)[:2], (0, b"one\n"))
        self.assertRegex(self.berth("lease", "executions", lease)[1].decode(), rf"{execution} +running +- .*sh -c")
        gate.write_bytes(b"go")
        self.assertEqual(follower.communicate(timeout=30)[0], b"two\0\xff")
        self.assertEqual(follower.returncode, 0)
        self.assertEqual(self.berth("lease", "output", lease, execution)[:2], (0, b"one\ntwo\0\xff"))
        listed = json.loads(self.berth("--json", "lease", "executions", lease)[1])
        self.assertEqual([(e["execId"], e["exitCode"]) for e in listed], [(execution, 0)])

    def test_signal(self):
        lease = self.lease_of_own()
        for given, name in (("TERM", "SIGTERM"), ("SIGUSR1", "SIGUSR1"), ("9", "SIGKILL")):
            execution = self.berth("lease", "exec", lease, "-d", "--", "sleep", "600")[1].decode().strip()
            self.assertEqual(self.berth("lease", "signal", lease, execution, given)[0], 0)
            follow = self.berth("lease", "output", lease, execution, "-f")
            self.assertEqual(follow[:2], (0, b""))
            path = f"/api/environment-leases/{lease}/executions/{execution}"
            self.assertEqual(self.ok("GET", path)["signal"], name)
        status, _, err = self.berth("lease", "signal", lease, execution, "NONSENSE")
        self.assertEqual(status, 2)
        self.assertIn("no signal", err)
        self.assertEqual(self.berth("lease", "signal", lease, execution, "TERM")[0], 1)
        self.assertEqual(self.berth("lease", "signal", lease, "ffffffff", "TERM")[0], 5)

    def test_nothing_ran(self):
        lease = self.lease_of_own()
        self.assertEqual(self.berth("lease", "executions", lease)[1], b"nothing was run in this lease\n")


class SignalTest(RunTest):
    CATCH = "trap 'echo caught; exit 5' {0}; echo ready; while :; do sleep 0.01; done"
    STUBBORN = "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.01; done"

    def test_they_are_passed_on(self):
        for name in ("INT", "TERM", "HUP", "QUIT"):
            with self.subTest(signal=name):
                process = self.start("run", "--", "sh", "-c", self.CATCH.format(name))
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(getattr(signal, "SIG" + name))
                self.assertEqual(process.communicate(timeout=30)[0], b"caught\n")
                self.assertEqual(process.returncode, 5)
        self.assertEqual(self.leases(), [])

    def test_twice_kills(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("run", "--", "sh", "-c", self.STUBBORN)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(number)
            wait_until(lambda: not pending(process.pid, number), "the signal was taken")
            process.send_signal(number)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 137)
        self.assertEqual(self.leases(), [])

    def test_three_times_leaves_it(self):
        lease = self.lease_of_own()
        process = self.start("lease", "exec", lease, "--", "sh", "-c", self.STUBBORN)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.daemon.process.send_signal(signal.SIGSTOP)  # nothing that we send gets through
        try:
            for _ in range(3):
                process.send_signal(signal.SIGTERM)
                # One at a time: equal signals that wait for delivery are one.
                wait_until(lambda: not pending(process.pid, signal.SIGTERM), "the signal was taken")
            err = process.communicate(timeout=30)[1].decode()
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        execution = re.search(rf"the command goes on as execution ({UUID})", err)[1]
        self.assertIn(f"berth lease output {lease} {execution} -f", err)

    def test_dying_of_ctrl_c_is_seen_by_the_shell(self):
        terminal = self.terminal("run", "--", "sh", "-c", "echo ready; exec sleep 600")
        terminal.expect(rb"leased Local \(\d+ ms\)")
        terminal.expect(b"ready\r\n")
        terminal.type(b"\x03")
        self.assertEqual(terminal.wait(), -signal.SIGINT)
        self.assertEqual(self.leases(), [])

    def test_ctrl_c_that_is_handled(self):
        terminal = self.terminal("run", "--", "sh", "-c", self.CATCH.format("INT"))
        terminal.expect(b"ready\r\n")
        terminal.type(b"\x03")
        terminal.expect(b"caught\r\n")
        self.assertEqual(terminal.wait(), 5)


class TtyTest(RunTest):
    def test_a_real_terminal(self):
        terminal = self.terminal("run", "-t", "--", "sh", "-c", "tty; stty size; echo $TERM; read x; echo got:$x")
        terminal.expect(rb"/dev/pts/\d+\r\n30 100\r\nxterm\r\n")
        self.assertTrue(terminal.is_raw())
        terminal.type(b"hello\r")
        terminal.expect(b"got:hello\r\n")
        self.assertEqual(terminal.wait(), 0)
        self.assertTrue(terminal.is_as_before())

    def test_resize(self):
        script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done"
        terminal = self.terminal("run", "-t", "--", "sh", "-c", script)
        terminal.expect(b"ready\r\n")
        terminal.resize(77, 22)
        terminal.expect(b"22 77\r\n")
        terminal.type(b"\x03")
        self.assertEqual(terminal.wait(), 130)

    def test_ctrl_c_goes_through_the_terminal(self):
        terminal = self.terminal("run", "-t", "--", "sh", "-c", "trap 'echo caught; exit 6' INT; echo ready; "
                                 "while :; do sleep 0.01; done")
        terminal.expect(b"ready\r\n")
        terminal.type(b"\x03")
        terminal.expect(b"caught\r\n")
        self.assertEqual(terminal.wait(), 6)
        self.assertTrue(terminal.is_as_before())

    def test_restored_after_signals(self):
        lease = self.lease_of_own()
        for number, status in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, -signal.SIGUSR1),
                               (signal.SIGABRT, -signal.SIGABRT)):
            with self.subTest(signal=number):
                terminal = self.terminal("lease", "exec", lease, "-t", "--", "sh", "-c", "echo ready; exec sleep 600")
                terminal.expect(b"ready\r\n")
                self.assertTrue(terminal.is_raw())
                terminal.process.send_signal(number)
                self.assertEqual(terminal.wait(), status)
                self.assertTrue(terminal.is_as_before())

    def test_restored_when_it_fails(self):
        terminal = self.terminal("run", "-t", "--", "no-such-command")
        self.assertEqual(terminal.wait(), 127)
        self.assertTrue(terminal.is_as_before())

    def test_interactive_without_a_terminal_of_its_own(self):
        terminal = self.terminal("run", "-i", "--", "sh", "-c", "tty; read x; echo got:$x")
        terminal.expect(b"not a tty\r\n")
        terminal.type(b"word\n")
        terminal.expect(b"got:word\r\n")
        self.assertEqual(terminal.wait(), 0)


class RestartTest(RunTest):
    """The daemon is killed under a command that goes on; nothing is lost and nothing comes twice."""

    COUNT = "i=0; while [ $i -lt {0} ]; do i=$((i+1)); echo $i; sleep 0.005; done"

    def test_output(self):
        process = self.start("run", "--", "sh", "-c", self.COUNT.format(300))
        seen = [process.stdout.readline() for _ in range(20)]
        for _ in range(2):
            self.daemon.restart(crash=True)
            seen += [process.stdout.readline() for _ in range(20)]
        rest, err = process.communicate(timeout=60)
        seen += rest.splitlines(keepends=True)
        self.assertEqual(seen, [b"%d\n" % n for n in range(1, 301)], err)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.leases(), [])

    def test_input(self):
        process = self.start("run", "--", "cat", stdin=subprocess.PIPE)
        seen = []
        for n in range(30):
            process.stdin.write(b"%d\n" % n)
            process.stdin.flush()
            if n % 10 == 5:
                self.daemon.restart(crash=True)
            seen.append(process.stdout.readline())
        process.stdin.close()
        self.assertEqual(seen, [b"%d\n" % n for n in range(30)])
        self.assertEqual(process.wait(60), 0)

    def test_the_end_comes_while_nobody_is_there(self):
        gate = self.temp_dir() / "gate"
        os.mkfifo(gate)
        process = self.start("run", "--", "sh", "-c", f"echo ready; cat {gate}; exit 9")
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.daemon.kill()
        gate.write_bytes(b"last words")
        self.daemon.start()
        self.assertEqual(process.communicate(timeout=60)[0], b"last words")
        self.assertEqual(process.returncode, 9)

    def test_signals_wait_for_the_daemon(self):
        process = self.start("run", "--", "sh", "-c", SignalTest.CATCH.format("INT"))
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.daemon.kill()
        process.send_signal(signal.SIGINT)
        self.daemon.start()
        self.assertEqual(process.communicate(timeout=60)[0], b"caught\n")
        self.assertEqual(process.returncode, 5)

    def test_a_daemon_that_stays_away(self):
        process = self.start("run", "--", "sh", "-c", "echo ready; exec sleep 600", env={"BERTH_RECONNECT": "300ms"})
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.daemon.kill()
        err = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, 3)
        self.assertIn("does not answer any more", err)
        self.assertRegex(err, rf"could not release lease {UUID}")
        self.daemon.start()
        lease = self.leases()[0]["id"]
        self.assertEqual(self.berth("lease", "release", lease)[0], 0)

    def test_a_person_is_told(self):
        terminal = self.terminal("run", "--", "sh", "-c", "echo ready; exec sleep 600")
        terminal.expect(b"ready\r\n")
        self.daemon.kill()
        terminal.expect(b"connection to the daemon lost; trying again")
        self.daemon.start()
        terminal.expect(b"connected again")
        terminal.type(b"\x03")
        self.assertEqual(terminal.wait(), -signal.SIGINT)


class PrivateTest(unittest.TestCase):
    """No daemon runs: berth run starts one, the next joins it, and it ends with the last."""

    def setUp(self):
        self.data = pathlib.Path(tempfile.mkdtemp(prefix="p-"))
        self.env = {**os.environ, "BERTH_DATA": str(self.data)}
        self.addCleanup(self.end)

    def end(self):
        if self.alive():
            for lease in json.loads(self.berth("lease", "list", "--json").stdout or "[]"):
                self.berth("lease", "release", lease["id"])
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid(), signal.SIGTERM)
        wait_until(lambda: not self.alive(), "the private daemon has ended", 30)
        subprocess.run(["rm", "-rf", str(self.data)], check=True)

    def pid(self):
        return int((self.data / "berth.lock").read_text().split()[0])

    def alive(self):
        try:
            command = pathlib.Path(f"/proc/{self.pid()}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return False
        return b"--private" in command

    def berth(self, *args, **more):
        return subprocess.run([BERTH, *args], capture_output=True, text=True, timeout=120, env=self.env, **more)

    def start(self, *args):
        process = subprocess.Popen([BERTH, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def log(self):
        return (self.data / "berth.log").read_text()

    def test_life(self):
        first = self.start("run", "--", "sh", "-c", "echo ready; read x")
        self.assertEqual(first.stdout.readline(), "ready\n")
        pid = self.pid()
        done = self.berth("run", "--", "echo", "second")
        self.assertEqual((done.returncode, done.stdout), (0, "second\n"), done.stderr)
        self.assertEqual(self.pid(), pid)
        ports = subprocess.run(["ls", "-l", f"/proc/{pid}/fd"], capture_output=True, text=True, check=True)
        self.assertIn("socket", ports.stdout)
        self.assertEqual(self.berth("lease", "list", "--json").returncode, 0, "every command finds it")
        first.stdin.write("\n")
        first.stdin.flush()
        self.assertEqual(first.wait(30), 0)
        wait_until(lambda: not self.alive(), "it ends with its last client", 30)
        self.assertIn("nobody needs it any more", self.log())
        done = self.berth("run", "--", "echo", "again")
        self.assertEqual((done.returncode, done.stdout), (0, "again\n"), done.stderr)
        self.assertNotEqual(self.pid(), pid)

    def test_many_at_once_start_one(self):
        runs = [self.start("run", "--", "sh", "-c", f"echo {n}; read x") for n in range(8)]
        for n, run in enumerate(runs):
            self.assertEqual(run.stdout.readline(), f"{n}\n")
        self.assertEqual(len(re.findall(r"msg=ready", self.log())), 1)
        for run in runs:
            run.stdin.close()
            run.stdin = None
            self.assertIn(run.wait(30), (0, 1))

    def test_keep_keeps_it(self):
        done = self.berth("run", "--keep", "--", "true")
        lease = re.search(rf"kept lease ({UUID})", done.stderr)[1]
        log = len(self.log())
        done = self.berth("lease", "exec", lease, "--", "echo", "still here")
        self.assertEqual(done.stdout, "still here\n", done.stderr)
        self.assertTrue(self.alive())
        self.assertEqual(len(self.log()), log, "it has not been started again")
        self.assertEqual(self.berth("lease", "release", lease).returncode, 0)
        wait_until(lambda: not self.alive(), "it ends once the lease is given up", 30)

    def test_killed_under_a_command(self):
        run = self.start("run", "--", "sh", "-c", "echo ready; read x; echo got $x; exit 3")
        self.assertEqual(run.stdout.readline(), "ready\n")
        os.kill(self.pid(), signal.SIGKILL)
        out, err = run.communicate("word\n", timeout=60)
        self.assertEqual((run.returncode, out), (3, "got word\n"), err)

    def serve(self, *args):
        """`berth serve` in this directory, which has said where it listens."""
        daemon = self.start("serve", "--listen", "127.0.0.1:0", *args)
        self.addCleanup(daemon.wait, 60)
        self.addCleanup(daemon.terminate)
        self.assertTrue(daemon.stdout.readline().startswith("listening on http://"))
        return daemon

    def test_serve_takes_over(self):
        run = self.start("run", "--", "sh", "-c", "echo ready; read x; echo got $x; exit 3")
        self.assertEqual(run.stdout.readline(), "ready\n")
        private = self.pid()
        daemon = self.serve()
        self.assertEqual(self.pid(), daemon.pid)
        wait_until(lambda: not os.path.exists(f"/proc/{private}"), "the private daemon ends", 30)
        out, err = run.communicate("word\n", timeout=60)
        self.assertEqual((run.returncode, out), (3, "got word\n"), err)
        self.assertEqual(json.loads(self.berth("lease", "list", "--json").stdout), [], "its lease was released")
        self.assertEqual(self.pid(), daemon.pid)

    def test_serve_in_the_background_takes_over(self):
        lease = re.search(rf"kept lease ({UUID})", self.berth("run", "--keep", "--", "true").stderr)[1]
        done = self.berth("serve", "--background", "--listen", "127.0.0.1:0")
        self.addCleanup(lambda: os.kill(daemon, signal.SIGTERM))
        daemon = self.pid()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("listening on http://", done.stdout)
        self.assertFalse(self.alive(), "the private one")
        self.assertEqual(self.berth("lease", "exec", lease, "--", "echo", "here").stdout, "here\n")
        done = self.berth("serve", "--background", "--listen", "127.0.0.1:0")
        self.assertIn(f"a daemon already runs (process {daemon})", done.stdout)
        self.assertEqual(self.berth("lease", "release", lease).returncode, 0)

    def test_serve_leaves_other_processes_alone(self):
        """The lock's file names somebody else: a number that was used again, or a file that somebody wrote."""
        self.serve()
        had = (self.data / "berth.lock").read_text()
        bystander = subprocess.Popen(["sleep", "600"])
        self.addCleanup(bystander.wait)
        self.addCleanup(bystander.kill)
        (self.data / "berth.lock").write_text(f"{bystander.pid}\nprivate\n")
        second = self.start("serve", "--listen", "127.0.0.1:0")
        self.addCleanup(second.kill)
        with self.assertRaises(subprocess.TimeoutExpired):
            second.wait(2)
        self.assertIsNone(bystander.poll())
        (self.data / "berth.lock").write_text(had)
        self.assertEqual(second.wait(60), 1)
        self.assertIn("another berth daemon", second.stderr.read())

    def test_every_command_starts_one(self):
        done = self.berth("company", "create", "Acme")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.alive())
        os.kill(self.pid(), signal.SIGKILL)
        wait_until(lambda: not self.alive(), "it is dead", 30)
        self.assertTrue((self.data / "berth.sock").exists(), "it leaves its socket")
        done = self.berth("company", "list")
        self.assertEqual((done.returncode, "Acme" in done.stdout), (0, True), done.stderr)

    @unittest.skipUnless(os.getuid() == 0, "needs root")
    def test_none_is_started_in_the_directory_of_another_user(self):
        os.chown(self.data, 65534, 65534)
        for where in (self.data, self.data / "inner" / "berth"):
            done = self.berth("--data", str(where), "company", "list")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("is user 65534's", done.stderr)
        self.assertEqual(os.listdir(self.data), [])

    def test_a_daemon_that_cannot_start(self):
        (self.data / "berth.toml").write_text("nonsense = 1\n")
        done = self.berth("run", "--", "true")
        self.assertEqual(done.returncode, 3)
        self.assertIn("the daemon does not start", done.stderr)
        self.assertIn("there is no setting 'nonsense'", done.stderr)

    def test_none_is_started_for_a_named_one(self):
        done = self.berth("--api-url", f"unix:{self.data}/other.sock", "run", "--", "true")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(os.listdir(self.data), [])


def pending(pid, number):
    """Whether a signal waits for delivery."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    masks = re.findall(r"^S\w*Pnd:\s+([0-9a-f]+)", text, re.M)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


if __name__ == "__main__":
    unittest.main()
