"""Workspaces in a plugin's sandbox where all one can do is run commands: an archive in, an archive out."""

import os
import pathlib
import shutil
import unittest

from berthtest import SOURCE
from providertest import ProviderTest


@unittest.skipUnless(shutil.which("tar") and shutil.which("base64"), "needs tar and base64")
class ArchiveCase(ProviderTest):
    worker = SOURCE / "test" / "workers" / "runner.py"
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_BOX": "off"}

    def post(self, action, **body):
        return self.ok("POST", f"/api/environment-leases/{self.held['id']}/workspace/{action}", body)


class ArchiveTest(ArchiveCase):

    def setUp(self):
        super().setUp()
        self.dir = self.temp_dir()
        self.held = self.take(self.sandbox())
        self.cwd = pathlib.Path(self.held["metadata"]["remoteCwd"])
        self.addCleanup(self.release, self.held)

    # remote-execution 8.1-8.7, 8.10
    def test_there_and_back(self):
        long = "n" * 200
        (self.dir / "README").write_text("hello\n")
        (self.dir / long).write_text("long")
        (self.dir / "link").symlink_to("README")
        (self.dir / "empty").mkdir()
        (self.dir / "tool").write_text("#!/bin/sh\n")
        (self.dir / "tool").chmod(0o755)
        (self.dir / "binary").write_bytes(os.urandom(300000))
        (self.dir / "._junk").write_text("x")
        (self.dir / ".claude").mkdir()
        (self.dir / ".claude/settings.json").write_text("local")
        (self.dir / ".paperclip-runtime").mkdir()
        (self.dir / ".paperclip-runtime/state.json").write_text("local")
        (self.cwd / "stale").write_text("x")
        (self.cwd / ".stale").mkdir()
        staged = self.post("stage", localPath=str(self.dir), exclude=[".claude"])
        self.assertEqual((staged["way"], staged["cwd"]), ("archive", str(self.cwd)))
        self.assertEqual(sorted(os.listdir(self.cwd)),
                         sorted([".paperclip-runtime", "README", "binary", "empty", "link", long, "tool"]))
        self.assertEqual((self.cwd / "binary").read_bytes(), (self.dir / "binary").read_bytes())
        self.assertTrue(os.access(self.cwd / "tool", os.X_OK))
        self.assertEqual(os.readlink(self.cwd / "link"), "README")
        (self.cwd / "README").write_text("hello\nmore\n")
        (self.cwd / "binary").unlink()
        (self.cwd / "new").mkdir()
        (self.cwd / "new" / long).write_text("1")
        os.link(self.cwd / "new" / long, self.cwd / "new/hard")
        os.mkfifo(self.cwd / "fifo")
        (self.dir / "local").write_text("kept")
        report = self.post("restore")
        self.assertEqual(report["conflicts"], [])
        self.assertEqual((self.dir / "README").read_text(), "hello\nmore\n")
        self.assertFalse((self.dir / "binary").exists())
        self.assertEqual((self.dir / "new/hard").read_text(), "1")
        self.assertEqual((self.dir / "local").read_text(), "kept")
        self.assertEqual(os.listdir(self.dir / ".paperclip-runtime"), ["state.json"])
        self.assertEqual((self.dir / ".claude/settings.json").read_text(), "local")
        self.assertFalse((self.dir / "fifo").exists())
        calls = self.provider.calls("environmentExecute")
        self.assertTrue(calls)
        self.assertTrue(all(c["cwd"] == "/" and "stdin" not in c for c in calls))
        self.assertEqual(os.listdir(self.cwd / ".paperclip-runtime/berth"), [])
        # And nothing more the next time.
        report = self.post("restore")
        self.assertEqual((report["added"], report["changed"], report["deleted"]), (0, 0, 0))


class ShellTest(ArchiveCase):
    def shell_for(self, number, **metadata):
        """What our scripts are run with in a lease about which the provider says this."""
        cwd, local = self.provider.dir / f"work{number}", self.temp_dir()
        cwd.mkdir()
        os.chown(cwd, self.provider.dir.stat().st_uid, -1)  # the worker's user
        (local / "file").write_text("x")
        self.provider.behave(AcquireLease={"more": {"metadata": {"remoteCwd": str(cwd), **metadata}}})
        self.held = self.take(self.sandbox(f"box {number}"))
        for key, value in metadata.items():
            self.assertEqual(self.lease(self.held)["metadata"][key], value)
        before = len(self.provider.calls("environmentExecute"))
        self.post("stage", localPath=str(local))
        self.assertEqual((cwd / "file").read_text(), "x")
        calls = self.provider.calls("environmentExecute")[before:]
        self.release(self.held)
        self.assertEqual({c["args"][0] for c in calls}, {"-c"})
        (shell,) = {c["command"] for c in calls}
        return shell

    @unittest.skipUnless(shutil.which("bash"), "needs bash")
    def test_the_shell_of_the_lease(self):
        """environment-runtime 7.102, remote-execution 8.50, 8.79: there is no target in between that passes it on."""
        self.assertEqual(self.shell_for(1), "sh")
        self.assertEqual(self.shell_for(2, shellCommand="bash"), "bash")
        self.assertEqual(self.shell_for(3, shellCommand="zsh"), "sh")


if __name__ == "__main__":
    unittest.main()
