"""How many calls of a provider a command with a workspace takes, by what the provider can do; and that calls do not stand
behind each other where a provider runs one at a time. Sandboxes are directories of the test."""
# slow: the box is brought into a sandbox for each test

import base64
import json
import struct
import threading

from berthtest import SOURCE, wait_until
from providertest import ProviderTest
from test_plugin_box import WITHOUT_FILES, Executor, ExecutorHandler

MOST = 32  # of about 85 that it was; what is counted depends a little on how calls meet
COMMANDS = [m for m in WITHOUT_FILES if m != "environmentRealizeWorkspace"]  # the directory is the lease's own
FILES = ["environmentSyncIn", "environmentSyncOut"]


class Serial(ExecutorHandler):
    """One command of a sandbox at a time, like a bridge whose sandbox has one shell."""
    one = threading.Lock()

    def handle(self):
        with self.one:
            super().handle()


class Calls(ProviderTest):
    worker = SOURCE / "test" / "workers" / "runner.py"
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_CONFINE": "false", "BERTH_SWEEP_INTERVAL_MS": "1000"}
    handler = ExecutorHandler

    def setUp(self):
        super().setUp()
        self.executor = Executor()
        self.executor.RequestHandlerClass = self.handler
        self.addCleanup(self.executor.close)
        (self.provider.dir / "executor").write_text(str(self.executor.server_address[1]))
        self.env = self.sandbox()
        self.supports(COMMANDS + FILES)
        self.here = self.temp_dir() / "here"
        self.here.mkdir()
        (self.here / "one").write_text("1\n")
        (self.here / "two").write_text("2\n")

    def supports(self, methods):
        (self.provider.dir / "methods").write_text(json.dumps(methods))
        self.ok("POST", f"/api/plugins/{self.provider.id}/disable")
        self.ok("POST", f"/api/plugins/{self.provider.id}/enable")
        self.provider.wait_running()

    def exchanges(self, calls):
        """How long each call of the stream was to wait for bytes, in milliseconds."""
        texts = [base64.b64decode(c["stdin"]) for c in calls if c["args"][:1] == ["--exchange"]]
        return [struct.unpack(">I", text[25:29])[0] for text in texts]


class CountedTest(Calls):
    def run_with_workspace(self):
        """A lease, the workspace in, a command, its changes home, the release; what the worker was asked."""
        before = len(self.provider.calls())
        status, out, err = self.cli("run", "--env", "box", "-w", str(self.here), "--", "sh", "-c", "cat one two; echo 3 > three")
        self.assertEqual((status, out), (0, "1\n2\n"), err)
        self.assertEqual((self.here / "three").read_text(), "3\n")
        (self.here / "three").unlink()
        wait_until(lambda: not self.provider.world(), "the sandbox is given up")
        calls = self.provider.calls()[before:]
        return [c["params"] for c in calls if c["method"] == "environmentExecute"], [c["method"] for c in calls]

    def test_with_files(self):
        calls, methods = self.run_with_workspace()
        self.assertEqual(methods.count("environmentSyncIn"), 1)
        self.assertLessEqual(len(calls), MOST)
        self.assertEqual([c["command"] for c in calls].count("sh"), 1)  # the box is looked for, and comes as a file

    def test_without_files(self):
        self.supports(COMMANDS)
        calls, methods = self.run_with_workspace()
        self.assertNotIn("environmentSyncIn", methods)
        self.assertLessEqual(len(calls), MOST)
        self.assertEqual([c["command"] for c in calls].count("sh"), 2)  # and one that gets it as its input

    def test_files_that_fail(self):
        """A provider that says it has files, and does not: the box comes in pieces."""
        self.provider.behave(SyncIn={"error": {"code": -32002, "message": "no"}})
        calls, _ = self.run_with_workspace()
        self.assertGreater([c["command"] for c in calls].count("sh"), 10)


class SerialTest(Calls):
    handler = Serial
    daemon_env = {**Calls.daemon_env, "BERTH_PLUGIN_BOX": "always"}

    def waits_of_a_command(self, lease):
        before = len(self.provider.calls("environmentExecute"))
        status, out, err = self.cli("lease", "exec", lease["id"], "--", "echo", "out")
        self.assertEqual((status, out), (0, "out\n"), err)
        return set(self.exchanges(self.provider.calls("environmentExecute")[before:]))

    def test_one_at_a_time_is_learnt(self):
        """Calls that wait long stand in the way only until that was seen."""
        lease = self.take(self.env)
        self.addCleanup(self.release, lease)
        status, _, err = self.cli("lease", "exec", "--detach", lease["id"], "--", "sleep", "1000")  # silent: its stream waits
        self.assertEqual(status, 0, err)
        wait_until(lambda: self.waits_of_a_command(lease) == {100}, "it is learnt", 60)


class SideBySideTest(SerialTest):
    """Calls that overtake each other are left as they are."""
    handler = ExecutorHandler

    def test_one_at_a_time_is_learnt(self):
        lease = self.take(self.env)
        self.addCleanup(self.release, lease)
        self.cli("lease", "exec", "--detach", lease["id"], "--", "sleep", "1000")
        for _ in range(5):
            self.assertNotIn(100, self.waits_of_a_command(lease))
