"""Workspaces on an ssh host, by the file worker of the box there."""

import os
import pathlib

from berthtest import ident
from sshtest import SshTest

RUN = "7b2f7d1e-53c9-4f7a-9d6e-0a3f6a1c8d11"


class SshWorkspaceTest(SshTest):
    def setUp(self):
        super().setUp()
        self.c = self.company()
        self.dir = self.temp_dir()

    def leased(self, **more):
        self.env = self.ssh_environment(self.c, **more)
        self.held = ident(self.acquire(self.env, heartbeatRunId=RUN))
        self.addCleanup(self.release, self.held)
        return self.lease(self.held)["metadata"]["remoteCwd"]

    def post(self, action, **body):
        return self.ok("POST", f"/api/environment-leases/{self.held}/workspace/{action}", body)

    def sh(self, script):
        done = self.ok("POST", f"/api/environment-leases/{self.held}/execute", {"command": "sh", "args": ["-c", script]})
        self.assertEqual(done["exitCode"], 0, done)
        return done["stdout"]

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

    def test_in_place(self):
        cwd = self.leased(workspaceMode="in_place")
        pathlib.Path(cwd, "stale").write_text("x")
        (self.dir / "file").write_text("x")
        staged = self.post("stage", localPath=str(self.dir))
        self.assertEqual(staged["cwd"], cwd)
        self.assertEqual(self.sh("ls"), "file\n")


if __name__ == "__main__":
    import unittest
    unittest.main()
