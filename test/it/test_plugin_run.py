"""The command line on top of a plugin: input that a command gets all at once."""

import os
import signal
import subprocess

from berthtest import SOURCE, wait_until
from providertest import ProviderTest

MIB = 1 << 20


class NoBoxTest(ProviderTest):
    """A box was tried, and a confined worker cannot run one."""
    worker = SOURCE / "test" / "workers" / "runner.py"

    def test_piped(self):
        self.sandbox()
        status, out, err = self.cli("run", "--env", "box", "--", "cat", stdin="whole")
        self.assertEqual((status, out), (0, "whole"), err)


class InputTest(ProviderTest):
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_BOX": "off"}
    worker = SOURCE / "test" / "workers" / "runner.py"

    def setUp(self):
        super().setUp()
        self.env = self.sandbox()

    def run_there(self, *command, stdin=None):
        return self.cli("run", "--env", "box", "--", *command, stdin=stdin)

    def executed(self):
        return self.provider.calls("environmentExecute")

    def test_without_input(self):
        done = subprocess.run([self.daemon.binary, "run", "--env", "box", "--", "readlink", "/proc/self/fd/0"],
                              stdin=subprocess.DEVNULL, capture_output=True, env=self.cli_env(), timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, b"/dev/null\n"))
        self.assertNotIn("stdin", self.executed()[0])

    def test_piped(self):
        self.assertEqual(self.run_there("cat", stdin="one\ntwo \u2028 \u00e4")[:2], (0, "one\ntwo \u2028 \u00e4"))
        self.assertEqual([p["stdin"] for p in self.executed()], ["one\ntwo \u2028 \u00e4"])
        self.assertEqual(self.run_there("sh", "-c", "wc -c; exit 7", stdin="")[:2], (7, "0\n"))
        lease = self.take(self.env)
        status, out, err = self.cli("lease", "exec", lease["id"], "--", "wc", "-c", stdin="x" * 100000)
        self.assertEqual((status, out.strip(), err), (0, "100000", ""))

    # What a request holds is the limit, and it is said before anything runs.
    def test_limit(self):
        most = 8 * MIB - 2  # the quotes
        self.assertEqual(self.run_there("sha256sum", stdin="x" * most)[0], 0)
        self.assertEqual(len(self.executed()), 1)
        for data in ("x" * (most + 1), "\x01" * (2 * MIB), "x" * 20 * MIB):
            status, out, err = self.run_there("cat", stdin=data)
            self.assertEqual((status != 0, out), (True, ""))
            self.assertIn("gets all of its input at the start, at most 8 MiB", err)
        self.assertEqual(len(self.executed()), 1)
        wait_until(lambda: not self.provider.world(), "all leases are given up")

    def test_only_text(self):
        for data in (b"a\0b", b"\xff\xfe"):
            done = subprocess.run([self.daemon.binary, "run", "--env", "box", "--", "cat"], input=data, capture_output=True,
                                  env=self.cli_env(), timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"takes text as its input", done.stderr)
        self.assertEqual(self.executed(), [])

    # Nobody waits for input that never ends: a signal ends it, and the lease goes with it.
    def test_interrupted(self):
        process = subprocess.Popen([self.daemon.binary, "run", "--env", "box", "--", "cat"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.cli_env())
        process.stdin.write(b"begun")
        process.stdin.flush()
        wait_until(lambda: self.provider.world(), "the lease is there")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: process.poll() is not None, "it ends")
        process.communicate()
        self.assertEqual(process.returncode, -signal.SIGTERM)
        wait_until(lambda: not self.provider.world(), "the lease is given up")
        self.assertEqual(self.executed(), [])

    def cli_env(self):
        return {**os.environ, **self.daemon.env, "BERTH_DATA": str(self.daemon.data)}
