"""Workspaces on an ssh host, by the file worker of the box there."""

import concurrent.futures
import contextlib
import http.client
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from berthtest import ident, wait_until
from sshtest import SshTest

RUN = "7b2f7d1e-53c9-4f7a-9d6e-0a3f6a1c8d11"
OTHER_RUN = "7b2f7d1e-53c9-4f7a-9d6e-0a3f6a1c8d12"


class WorkspaceCase(SshTest):
    def setUp(self):
        super().setUp()
        self.c = self.company()
        self.dir = self.temp_dir()

    def leased(self, **more):
        self.env = self.ssh_environment(self.c, **more)
        self.held = ident(self.acquire(self.env, heartbeatRunId=RUN))
        self.addCleanup(self.release, self.held)
        return self.lease(self.held)["metadata"]["remoteCwd"]

    def post(self, action, lease=None, **body):
        return self.ok("POST", f"/api/environment-leases/{lease or self.held}/workspace/{action}", body)

    def sh(self, script, lease=None):
        done = self.ok("POST", f"/api/environment-leases/{lease or self.held}/execute",
                       {"command": "sh", "args": ["-c", script]})
        self.assertEqual(done["exitCode"], 0, done)
        return done["stdout"]

    def two_runs(self):
        """Leases of two runs with the same directory, each staged before the other did anything."""
        self.leased()
        other = ident(self.acquire(self.env, heartbeatRunId=OTHER_RUN))
        self.addCleanup(self.release, other)
        leases = (self.held, other)
        places = [self.post("stage", lease, localPath=str(self.dir))["cwd"] for lease in leases]
        self.assertEqual([pathlib.Path(p).parent.name for p in places], [RUN, OTHER_RUN])
        return leases

    def restore_together(self, leases):
        with concurrent.futures.ThreadPoolExecutor(len(leases)) as pool:
            return list(pool.map(lambda lease: self.post("restore", lease), leases))


class CrashTest(WorkspaceCase):
    daemon_binary = "faults"

    def test_a_tree_that_was_removed_is_not_missed(self):
        """Nothing was changed in it, and the daemon dies when it was removed there: the next one goes on to the end."""
        cwd = self.leased()
        (self.dir / "README").write_text("hello\n")
        self.post("stage", localPath=str(self.dir))
        self.daemon.stop()
        self.daemon.env["BERTH_CRASH_AT"] = "workspace.unstage.after"
        self.daemon.start()
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.req("POST", f"/api/environment-leases/{self.held}/release", {})
        self.assertEqual(self.daemon.wait(), -signal.SIGKILL)
        self.assertFalse(pathlib.Path(f"{cwd}/.paperclip-runtime/runs/{RUN}").exists())
        del self.daemon.env["BERTH_CRASH_AT"]
        self.daemon.start()
        wait_until(lambda: not self.daemon.sql("SELECT id FROM places WHERE state <> 'gone'"), "the place is closed")
        [ended] = self.daemon.sql("SELECT state, note FROM workspaces")
        self.assertEqual((ended["state"], ended["note"]), ("ended", None))


class SshWorkspaceTest(WorkspaceCase):
    def test_two_leases_of_one_run(self):
        """A run that is prepared again has another lease, and the first may be given up late: each has its own directory."""
        self.leased()
        other = ident(self.acquire(self.env, heartbeatRunId=RUN))
        self.addCleanup(self.release, other)
        (self.dir / "old").write_text("old\n")
        places = [self.post("stage", lease, localPath=str(self.dir))["cwd"] for lease in (self.held, other)]
        self.assertEqual(pathlib.Path(places[0]).parent.name, RUN)
        self.sh("echo new > new", other)
        self.release(self.held)
        self.assertEqual(self.post("restore", other)["added"], 1)
        self.assertEqual((self.dir / "new").read_text(), "new\n")
        self.assertEqual(pathlib.Path(places[1]).parent.name, other)

    # remote-execution 8.1, 8.2, 8.4, 8.5
    def test_there_and_back(self):
        cwd = self.leased()
        (self.dir / "README").write_text("hello\n")
        (self.dir / "large").write_bytes(os.urandom(3 << 20))
        (self.dir / ".paperclip-runtime").mkdir()
        (self.dir / ".paperclip-runtime/state.json").write_text("local")
        staged = self.post("stage", localPath=str(self.dir))
        self.assertEqual((staged["way"], staged["cwd"]), ("sync", f"{cwd}/.paperclip-runtime/runs/{RUN}/workspace"))
        self.assertEqual(self.sh("cat README; ls -A"), "hello\nREADME\nlarge\n")
        self.sh("echo more >> README; echo 1 > new; printf X | dd of=large bs=1 seek=100 conv=notrunc 2>/dev/null")
        report = self.post("restore")
        self.assertEqual((report["added"], report["changed"], report["conflicts"]), (1, 2, []))
        self.assertEqual((self.dir / "README").read_text(), "hello\nmore\n")
        self.assertEqual((self.dir / "large").read_bytes()[100:101], b"X")
        self.assertEqual(os.listdir(self.dir / ".paperclip-runtime"), ["state.json"])
        self.release(self.held)
        self.assertFalse(pathlib.Path(f"{cwd}/.paperclip-runtime/runs/{RUN}").exists())

    def test_what_a_mac_leaves_beside_files(self):
        """remote-execution 8.69: the file worker of the box copies what tar copied, and leaves out `._*` as it did."""
        self.leased()
        (self.dir / "d").mkdir()
        for name in ("a", "._a", "d/b", "d/._b"):
            (self.dir / name).write_text(name)
        self.post("stage", localPath=str(self.dir))
        self.assertEqual(self.sh("find . -type f | sort; cat a d/b"), "./a\n./d/b\nad/b")
        self.sh("echo x > ._c; echo x > d/._b; echo x > c")
        self.post("restore")
        self.assertEqual(sorted(os.listdir(self.dir)), ["._a", "a", "c", "d"])
        self.assertEqual((self.dir / "d/._b").read_text(), "d/._b")

    def test_two_runs_restore_at_once(self):
        """remote-execution 8.72"""
        (self.dir / "a").write_text("1")
        leases = self.two_runs()
        for name, lease in zip(("one", "two"), leases):
            self.sh(f"mkdir -p d; echo {name} > d/{name}", lease)
        for report in self.restore_together(leases):
            self.assertEqual(report["conflicts"], [])
        self.assertEqual(sorted(os.listdir(self.dir / "d")), ["one", "two"])

    def test_two_runs_restore_in_turn(self):
        """remote-execution 8.73: the second one's baseline is older than what the first brought."""
        leases = self.two_runs()
        for name, lease in zip(("one", "two"), leases):
            self.sh(f"mkdir -p d/e; echo {name} > d/e/{name}", lease)
        for lease in leases:
            self.assertEqual(self.post("restore", lease)["conflicts"], [])
        self.assertEqual([(self.dir / "d/e" / name).read_text() for name in ("one", "two")], ["one\n", "two\n"])

    def test_in_place(self):
        cwd = self.leased(workspaceMode="in_place")
        pathlib.Path(cwd, "stale").write_text("x")
        (self.dir / "file").write_text("x")
        staged = self.post("stage", localPath=str(self.dir))
        self.assertEqual(staged["cwd"], cwd)
        self.assertEqual(self.sh("ls"), "file\n")


@unittest.skipUnless(shutil.which("git"), "needs git")
class SshGitTest(WorkspaceCase):
    """Commits travel as objects beside the files, where Paperclip sent bundles."""

    def git(self, *words):
        return subprocess.run(["git", "-C", self.dir, "-c", "user.name=T", "-c", "user.email=t@example", *words],
                              check=True, capture_output=True, text=True).stdout.rstrip("\n")

    def setUp(self):
        super().setUp()
        self.git("init", "-q", "-b", "main")
        (self.dir / "a").write_text("first\n")
        self.git("add", "a")
        self.git("commit", "-q", "-m", "first")

    def commit_there(self, name, lease=None):
        return self.sh(f"set -e; echo {name} > {name}; git add {name}; "
                       f"git -c user.name=B -c user.email=b@example commit -q -m 'add {name}'; git rev-parse HEAD",
                       lease).strip()

    def test_dirty_there_and_back(self):
        """remote-execution 8.71"""
        self.leased()
        (self.dir / "a").write_text("dirty\n")
        (self.dir / "untracked").write_text("x\n")
        (self.dir / "._a").write_text("x")
        self.post("stage", localPath=str(self.dir))
        self.assertEqual(self.sh("git status --porcelain; cat a; git rev-parse --abbrev-ref HEAD"),
                         " M a\n?? untracked\ndirty\nmain\n")
        head = self.commit_there("b")
        self.sh("echo 'dirty there' > a; echo x > ._b; echo y >> untracked")
        self.assertEqual(self.post("restore")["conflicts"], [])
        self.assertEqual(self.git("rev-parse", "HEAD"), head)
        self.assertEqual(self.git("symbolic-ref", "HEAD"), "refs/heads/main")
        self.assertEqual(self.git("status", "--porcelain").splitlines(), [" M a", "?? ._a", "?? untracked"])
        self.assertEqual((self.dir / "a").read_text(), "dirty there\n")
        self.assertEqual((self.dir / "untracked").read_text(), "x\ny\n")

    def test_a_commit_and_an_edit(self):
        """remote-execution 8.74"""
        self.leased()
        self.post("stage", localPath=str(self.dir))
        self.commit_there("b")
        self.sh("echo edited > b")
        self.post("restore")
        self.assertEqual(self.git("log", "--format=%s"), "add b\nfirst")
        self.assertEqual(self.git("show", "HEAD:b"), "b")
        self.assertEqual((self.dir / "b").read_text(), "edited\n")

    def test_two_runs_commit(self):
        """remote-execution 8.75"""
        leases = self.two_runs()
        heads = [self.commit_there(name, lease) for name, lease in zip(("one", "two"), leases)]
        for report in self.restore_together(leases):
            self.assertEqual(report["conflicts"], [])
        self.assertRegex(self.git("log", "-1", "--format=%s"), "^Paperclip SSH sync merge [0-9a-f]{12}$")
        self.assertEqual(set(self.git("log", "-1", "--format=%P").split()), set(heads))
        self.assertEqual([(self.dir / name).read_text() for name in ("one", "two")], ["one\n", "two\n"])
        self.assertEqual(self.git("status", "--porcelain"), "")


if __name__ == "__main__":
    unittest.main()
