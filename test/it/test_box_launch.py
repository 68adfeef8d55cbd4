"""A box on its way: its process runs, and has not come so far that it has a pid file or a socket. The daemon is killed and the
next one ends the lease: the box that comes up later is found and ended, too. Or the box is killed: a run waits and tries again."""

import contextlib
import http.client
import os
import pathlib
import shutil
import tempfile
import threading

import berthtest
from berthtest import Client, ident, wait_until
from exectest import processes
from runtest import RunTest


def odd_box():
    """A daemon whose boxes note that they were started and wait for a word, while there is a file `slow` beside them, or die and
    take the file `dies` with them: the name of a binary for daemon_binary, and the folder."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="slow-"))
    real = os.environ.get("BERTH_BOX_BIN") or str(pathlib.Path(berthtest.BINARIES["normal"]).parent / "berth-box")
    shutil.copy2(berthtest.BINARIES["normal"], folder / "berth")
    wrapper = folder / "berth-box"
    wrapper.write_text(f'''#!/bin/sh
case "$*" in *--id*)
        if [ -e {folder}/dies ]; then
                exec /bin/rm {folder}/dies
        elif [ -e {folder}/slow ]; then
                : > {folder}/started
                until [ -e {folder}/go ]; do /bin/sleep 0.02; done
        fi ;;
esac
exec "{real}" "$@"
''')
    wrapper.chmod(0o755)
    berthtest.BINARIES[folder.name] = str(folder / "berth")
    return folder.name, folder


class LaunchTest(RunTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_CLOSE_TIMEOUT_MS": "500"}

    def setUp(self):
        self.daemon_binary, self.folder = odd_box()
        self.addCleanup(shutil.rmtree, self.folder)
        super().setUp()

    def make_lease(self):
        super().make_lease()
        self.local = next(e for e in self.ok("GET", f"/api/companies/{ident(self.acme)}/environments")
                          if e["driver"] == "local")
        self.held = self.acquire(self.local)

    def supervisors(self):
        data = os.fsencode(os.path.realpath(self.daemon.data))
        return [pid for pid, _, line in processes() if b"--id" in line and any(data in word for word in line)]

    def killed_in(self, method, path, body):
        """The daemon dies while the box is on its way; the next one runs."""
        (self.folder / "slow").touch()

        def ask():
            with contextlib.suppress(OSError, http.client.HTTPException):  # the daemon is killed
                Client(self.daemon.address, timeout=60).req(method, path, body)
        asker = threading.Thread(target=ask)
        asker.start()
        wait_until((self.folder / "started").exists, "the box is started")
        self.daemon.kill()
        asker.join()
        self.daemon.start()

    def comes_up(self):
        """It comes up now, whatever was made of its place meanwhile, and nothing of it stays."""
        (self.folder / "go").touch()
        wait_until(lambda: not self.supervisors(), "no box is left")
        wait_until(lambda: not any((self.daemon.data / "boxes").iterdir()), "nor its directory")
        wait_until(lambda: not self.daemon.sql("SELECT id FROM places WHERE state <> 'gone'"), "no place lives")
        (self.folder / "slow").unlink()

    def test_killed_while_a_box_is_started(self):
        lease = ident(self.held)
        self.killed_in("POST", f"/api/environment-leases/{lease}/execute", {"command": "true", "detach": True})
        self.req("POST", f"/api/environment-leases/{lease}/release", {})
        self.comes_up()

    def test_a_box_that_ends_without_a_word(self):
        (self.folder / "dies").touch()
        self.assert_error(self.execute("true"), 502, contains="without a word")
        self.sh("true")
        self.release(self.held)
        wait_until(lambda: not self.supervisors(), "no box is left")
        (self.folder / "dies").touch()
        run = self.finished(self.wake(self.runner("echo hello", environment=self.local)))
        self.assertEqual((run["status"], run["stdoutExcerpt"]), ("succeeded", "hello\n"))
        self.assertFalse((self.folder / "dies").exists())
