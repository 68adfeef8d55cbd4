"""Commands in a box inside a sandbox that only a plugin can reach: the program is brought in by commands, and the stream
to it is carried by calls that may be lost, doubled or late."""
# slow: a program is brought into a sandbox in pieces for each test
# share 6: 8 s of processor time

import base64
import contextlib
import http.client
import json
import os
import re
import signal
import socketserver
import struct
import subprocess
import threading

from berthtest import SOURCE, ident, wait_until
from exectest import ExecTest, marked
from providertest import ProviderTest

LINES = 20000
WORD = b"berth-exchange:"
CHANNEL = "PAPERCLIP_SANDBOX_EXEC_CHANNEL"


def numbered(n):
    return b"".join(b"%d\n" % i for i in range(1, n + 1))


class Executor(socketserver.ThreadingTCPServer):
    """Runs the commands of the sandboxes: workers and their children may have no sockets, which boxes need."""

    allow_reuse_address = daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), ExecutorHandler)
        threading.Thread(target=self.serve_forever, args=(0.05,)).start()

    def close(self):
        self.shutdown()
        self.server_close()

    repeats, last = False, (0, b"")
    input_max = 1 << 30  # what a command may get as its input
    env = {}  # of every sandbox

    def repeat(self, printed):
        """The answer with the bytes of the one before in front, as if that had been lost."""
        answer = base64.b64decode(printed[len(WORD):])
        offset, data = struct.unpack(">Q", answer[10:18])[0], answer[18:]
        at, before = self.last
        if data:
            self.last = (offset, data)
        if at + len(before) == offset and len(before) + len(data) <= 192 << 10:
            answer = answer[:10] + struct.pack(">Q", at) + before + data
        return WORD + base64.b64encode(answer) + b"\n"


class ExecutorHandler(socketserver.StreamRequestHandler):
    def handle(self):
        params = json.loads(self.rfile.readline())
        if len(params.get("stdin", "")) > self.server.input_max:
            self.wfile.write(b'{"exitCode": 1, "timedOut": false, "stdout": "", "stderr": "too much input"}\n')
            return
        done = subprocess.run([params["command"], *params.get("args", [])], capture_output=True, timeout=60,
                              cwd=params.get("cwd") or params["lease"]["metadata"]["remoteCwd"],
                              env={"PATH": os.environ["PATH"], **self.server.env, **params["env"]},
                              input=params.get("stdin", "").encode())
        printed = done.stdout
        if self.server.repeats and printed.startswith(WORD):
            printed = self.server.repeat(printed)
        self.wfile.write(json.dumps({"exitCode": done.returncode, "timedOut": False, "stdout": printed.decode(),
                                     "stderr": done.stderr.decode()}).encode() + b"\n")


class PluginBoxTest(ProviderTest):
    worker = SOURCE / "test" / "workers" / "runner.py"
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_BOX": "always", "BERTH_PLUGIN_CONFINE": "false"}

    execute, run_ok, sh, detach = ExecTest.execute, ExecTest.run_ok, ExecTest.sh, ExecTest.detach
    path, execution, ended, signal = ExecTest.path, ExecTest.execution, ExecTest.ended, ExecTest.signal
    output, output_is, stdin, exec_ids = ExecTest.output, ExecTest.output_is, ExecTest.stdin, ExecTest.exec_ids

    inside_the_worker = False

    def setUp(self):
        super().setUp()
        if not self.inside_the_worker:
            executor = self.executor = Executor()
            self.addCleanup(executor.close)
            (self.provider.dir / "executor").write_text(str(executor.server_address[1]))
        self.env = self.sandbox()
        self.held = self.take(self.env)

    def tearDown(self):
        if self.daemon.running():
            for row in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
                self.release(row["id"])
            wait_until(lambda: not self.daemon.sql("SELECT 1 FROM places WHERE state <> 'gone'"), "places are gone", 30)
        super().tearDown()
        for pid in self.residents():
            wait_until(lambda p=pid: p not in self.residents(), "what carried the stream ends")

    def root(self):
        return self.provider.dir / "world"

    def residents(self):
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                line = open(f"/proc/{int(entry)}/cmdline", "rb").read().split(b"\0")
                if b"--exchange" in line and str(self.root()).encode() in b" ".join(line):
                    found.append(int(entry))
        return found

    def lossy(self, **chances):
        (self.provider.dir / "lossy").write_text(json.dumps(chances))

    def metadata(self):
        return self.ok("GET", f"/api/environment-leases/{ident(self.held)}")["metadata"]


class RunTest(PluginBoxTest):
    def test_a_command(self):
        got = self.sh("echo out; echo err >&2; pwd; exit 7")
        cwd = self.metadata()["remoteCwd"]
        self.assertEqual((got["exitCode"], got["stdout"], got["stderr"]), (7, f"out\n{cwd}\n", "err\n"))
        self.assertEqual(self.metadata()["commands"], "box")
        # The program was brought in once, and nothing of it is in the environment of a command.
        before = len(self.provider.calls("environmentExecute"))
        self.assertNotIn(CHANNEL, self.sh("env")["stdout"])
        new = self.provider.calls("environmentExecute")[before:]
        self.assertTrue(all(c["env"] == {CHANNEL: "bridge"} for c in new), new)
        self.assertEqual({c["args"][0] for c in new} - {"--ask"}, {"--exchange"})
        # What it is told is in nobody's arguments.
        self.sh("true", env={"TOKEN": "s3cret-value"})
        self.assertNotIn(b"s3cret", b"".join(base64.b64decode(a) for c in self.provider.calls("environmentExecute")
                                             for a in c["args"] if re.fullmatch("[A-Za-z0-9+/]{40,}=*", a)))
        self.assertTrue(all(len(a) < 131072 for c in self.provider.calls("environmentExecute") for a in c["args"]))

    def test_input_terminal_and_signals(self):
        exec_id = self.detach("cat; echo end", openStdin=True)
        self.stdin(exec_id, b"one\n")
        self.output_is(exec_id, b"one\n")
        self.stdin(exec_id, b"two\n", eof=True)
        self.ended(exec_id)
        self.assertEqual(self.output(exec_id), b"one\ntwo\nend\n")
        self.assertEqual(self.sh("tty >/dev/null && stty size", tty={"columns": 100, "rows": 30})["stdout"], "30 100\r\n")
        exec_id = self.detach("sleep 1000 & sleep 1000")
        wait_until(lambda: marked([exec_id]), "it runs")
        self.signal(exec_id, "SIGKILL")
        self.assertEqual(self.ended(exec_id)["signal"], "SIGKILL")
        self.assertEqual(marked([exec_id]), [])

    def test_much_output(self):
        exec_id = self.detach("head -c 3000000 /dev/zero | tr '\\0' x")
        row = self.ended(exec_id, timeout=60)
        self.assertEqual((row["exitCode"], row["stdoutBytes"]), (0, 3000000))
        self.assertEqual(self.output(exec_id).strip(b"x"), b"")

    def test_lost_doubled_late(self):
        """Every line once, in order, with the right status."""
        self.sh("true")
        self.lossy(unheard=0.15, lost=0.15, twice=0.2, late=0.3)
        exec_id = self.detach(f"cat > /dev/null; seq {LINES}; exit 3", stdin="y" * 300000)
        row = self.ended(exec_id, timeout=90)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 3, False))
        self.assertEqual(self.output(exec_id), numbered(LINES))
        self.lossy()

    def test_answers_that_repeat(self):
        self.sh("true")
        self.executor.repeats = True
        exec_id = self.detach("for i in 1 2 3 4 5 6; do seq 1000; sleep 0.05; done; exit 3")
        self.assertEqual(self.ended(exec_id)["exitCode"], 3)
        self.assertEqual(self.output(exec_id), numbered(1000) * 6)
        self.executor.repeats = False

    def test_the_daemon_is_killed(self):
        exec_id = self.detach(f"seq 1 {LINES // 2}; read x; seq {LINES // 2 + 1} {LINES}; exit 3", openStdin=True)
        self.output_is(exec_id, numbered(LINES // 2))
        self.daemon.restart(crash=True)
        wait_until(lambda: self.stdin(exec_id, b"go\n", eof=True).status == 200, "it takes input again", 30)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["exitCode"]), ("exited", 3))
        self.assertEqual(self.output(exec_id), numbered(LINES))

    def test_releasing_ends_it(self):
        exec_id = self.detach("echo out; exec sleep 1000")
        self.output_is(exec_id, b"out\n")
        self.release(self.held)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["signal"]), ("exited", "SIGTERM"))
        self.assertEqual(marked([exec_id]), [])

    def test_a_box_that_is_killed(self):
        exec_id = self.detach("echo before; exec sleep 1000")
        self.output_is(exec_id, b"before\n")
        (pid,) = [int(p.read_text().split()[0]) for p in self.root().glob("*/work/.paperclip-runtime/berth/boxes/*/pid")]
        os.kill(pid, signal.SIGKILL)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["incomplete"]), ("lost", True))
        self.assertEqual(self.output(exec_id), b"before\n")
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")


class WithoutTest(PluginBoxTest):
    """Where there can be none, commands run as they did."""

    def test_a_provider_that_cannot(self):
        """provider.py answers every command with the same words."""
        self.provider.behave(Execute={"result": {"exitCode": 0, "timedOut": False, "stdout": "hi\n", "stderr": ""}})
        self.assertEqual(self.sh("echo hi")["stdout"], "hi\n")
        metadata = self.metadata()
        self.assertEqual(metadata["commands"], "execute")
        self.assertIn("no shell", metadata["commandsReason"])
        before = len(self.provider.calls("environmentExecute"))
        self.sh("echo hi")
        self.assertEqual(len(self.provider.calls("environmentExecute")), before + 1)
        self.assert_status(self.execute("/bin/cat", openStdin=True), 400)

    def test_another_machine(self):
        self.provider.behave(Execute={"result": {"exitCode": 0, "timedOut": False, "stderr": "",
                                                 "stdout": "berth-put:machine Linux m68k\nberth-put:base /tmp\n"}})
        self.sh("true")
        self.assertIn("m68k", self.metadata()["commandsReason"])

    def test_no_input(self):
        self.provider.behave(Execute={"result": {
            "exitCode": 0, "timedOut": False, "stderr": "",
            "stdout": f"berth-put:machine Linux {os.uname().machine}\nberth-put:base /tmp\n"}})
        self.sh("true")
        self.assertIn("no input", self.metadata()["commandsReason"])

    def test_nowhere_to_write(self):
        self.provider.behave(Execute={"result": {"exitCode": 0, "timedOut": False, "stderr": "",
                                                 "stdout": f"berth-put:machine Linux {os.uname().machine}\n"}})
        self.sh("true")
        self.assertIn("no directory", self.metadata()["commandsReason"])


class RefusedTest(PluginBoxTest):
    inside_the_worker = True

    def test_a_sandbox_without_sockets(self):
        """The program is there and does not get to run a box."""
        self.assertEqual(self.sh("echo hi")["stdout"], "hi\n")
        self.assertEqual(self.metadata()["commands"], "execute")
        self.assertIn("Permission denied", self.metadata()["commandsReason"])


class AutoTest(PluginBoxTest):
    """By default a box is only for what needs one."""

    daemon_env = {**PluginBoxTest.daemon_env, "BERTH_PLUGIN_BOX": "auto"}

    def test_as_it_was(self):
        self.assertEqual(self.sh("echo hi")["stdout"], "hi\n")
        (call,) = self.provider.calls("environmentExecute")
        self.assertEqual(call["command"], "/bin/sh")
        self.assertNotIn("commands", self.metadata())

    def test_a_terminal_brings_one(self):
        self.assert_status(self.execute("/bin/cat", openStdin=True), 400)
        self.assertEqual(self.sh("stty size", tty={"columns": 100, "rows": 30})["stdout"], "30 100\r\n")
        self.assertEqual(self.metadata()["commands"], "box")
        # From then on for all.
        exec_id = self.detach("cat", openStdin=True)
        self.stdin(exec_id, b"one\n", eof=True)
        self.ended(exec_id)
        self.assertEqual(self.output(exec_id), b"one\n")


class OffTest(PluginBoxTest):
    daemon_env = {**PluginBoxTest.daemon_env, "BERTH_PLUGIN_BOX": "off"}

    def test_none(self):
        self.assertEqual(self.execute("/bin/cat", openStdin=True).status, 400)
        self.assertEqual(self.provider.calls("environmentExecute"), [])


POINTS = ("plugin_box.call.before", "plugin_box.call.after", "plugin_box.sync.before", "plugin_box.sync.after",
          "plugin_box.record.before", "plugin_box.record.after")
WITHOUT_FILES = ["environmentValidateConfig", "environmentProbe", "environmentAcquireLease", "environmentResumeLease",
                 "environmentReleaseLease", "environmentDestroyLease", "environmentRealizeWorkspace", "environmentExecute"]


class CrashTest(PluginBoxTest):
    """The daemon dies while the box is brought in; whoever comes next goes on."""

    def test_every_point(self):
        status, out, _ = self.daemon.cli("faults")
        self.assertEqual({p for p in out.split() if p.startswith("plugin_box.")}, set(POINTS))
        for point in (*POINTS, "plugin_box.call.after:2", "plugin_box.call.after:10"):
            with self.subTest(point):
                self.daemon.stop()
                if point == "plugin_box.call.after:10":  # in pieces, for want of anything better
                    (self.provider.dir / "methods").write_text(json.dumps(WITHOUT_FILES))
                    self.executor.input_max = 1 << 20
                self.daemon.env["BERTH_CRASH_AT"] = point
                self.daemon.start()
                self.provider.wait_running()
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.sh("echo hi")
                self.assertEqual(self.daemon.wait(), -signal.SIGKILL, "the point was not reached")
                del self.daemon.env["BERTH_CRASH_AT"]
                self.daemon.start()
                self.provider.wait_running()
                self.assertEqual(self.sh("echo hi")["stdout"], "hi\n")
                self.assertEqual(self.metadata()["commands"], "box")
                self.release(self.held)
                self.held = self.take(self.env)
