"""A directory of the host shown in a sandbox that runs (`berth-box --workspace`)."""

import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from sandboxproto import AGENT, DIRECTORY, IDS, Sandbox, first_id


@unittest.skipUnless(os.geteuid() == 0, "a daemon that is not root copies workspaces instead")
class Showing(unittest.TestCase):
    def setUp(self):
        self.host = self.temp_dir("host")
        (self.host / "kept.txt").write_text("kept\n")
        (self.host / "gone.txt").write_text("gone\n")
        (self.host / "sub").mkdir()
        (self.host / "sub" / "deep.txt").write_text("deep\n")
        self.store = self.temp_dir("store")
        os.chown(self.store, first_id(), first_id())
        for name, owner in (("upper", first_id() + AGENT), ("work", first_id())):
            (self.store / name).mkdir()
            os.chown(self.store / name, owner, owner)

    def temp_dir(self, name):
        folder = tempfile.TemporaryDirectory(prefix=f"{name}-")
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def show(self, box, lower=None, store=None, ok=True):
        lower, store = lower or self.host, store or self.store
        return self.workspace(box, "--lower", str(lower), "--store", str(store), ok=ok)

    def workspace(self, box, *more, ok=True):
        done = subprocess.run([box.binary, "--workspace", "/workspace", "--ids", f"{first_id()}:{IDS}", "--dir",
                               str(box.dir), *more], capture_output=True, timeout=60)
        out = done.stdout.decode()
        self.assertEqual(out == "done\n", ok, out)
        return out

    def shell(self, box, script):
        out, code = box.shell(script)
        self.assertEqual(code, 0, out)
        return out

    def test_shown_changed_and_hidden(self):
        box = Sandbox(self)
        self.assertEqual(self.shell(box, "ls -A /workspace"), "")
        self.show(box)
        self.assertEqual(self.shell(box, "cd /workspace; cat kept.txt sub/deep.txt; stat -c %U kept.txt"),
                         "kept\ndeep\nagent\n")
        self.shell(box, "cd /workspace; echo new > new.txt; echo more >> sub/deep.txt; rm gone.txt; chmod 700 kept.txt")
        # Nothing of it is in the host's directory, all of it is in the upper layer.
        self.assertEqual(sorted(os.listdir(self.host)), ["gone.txt", "kept.txt", "sub"])
        self.assertEqual((self.host / "sub" / "deep.txt").read_text(), "deep\n")
        upper = self.store / "upper"
        self.assertEqual((upper / "sub" / "deep.txt").read_text(), "deep\nmore\n")
        self.assertEqual(sorted(os.listdir(upper)), ["gone.txt", "kept.txt", "new.txt", "sub"])
        # An edit of the host is seen inside.
        (self.host / "late.txt").write_text("late\n")
        self.assertEqual(self.shell(box, "cat /workspace/late.txt"), "late\n")
        self.workspace(box)
        self.assertEqual(self.shell(box, "ls -A /workspace"), "")
        self.workspace(box)  # nothing to hide is fine

    def test_another_takes_its_place(self):
        box = Sandbox(self)
        self.show(box)
        self.shell(box, "echo first > /workspace/mine")
        self.show(box)
        self.assertEqual(self.shell(box, "cat /workspace/mine; grep -c berth-workspace /proc/self/mountinfo"),
                         "first\n1\n")
        self.workspace(box)
        self.assertEqual(self.shell(box, "grep -c ' /workspace ' /proc/self/mountinfo || true"), "0\n")

    def test_storage_of_its_own_stays(self):
        disk = self.temp_dir("disk")
        os.chown(disk, first_id(), first_id())
        box = Sandbox(self, storage=DIRECTORY, storage_path=str(disk))
        self.shell(box, "echo private > /workspace/private")
        self.show(box)
        self.assertEqual(self.shell(box, "ls /workspace"), "gone.txt\nkept.txt\nsub\n")
        self.workspace(box)
        self.assertEqual(self.shell(box, "ls /workspace"), "private\n")

    def test_nobody_there(self):
        box = Sandbox(self)
        signal.pidfd_send_signal(box.pidfd, signal.SIGKILL)
        box.wait_gone()
        self.assertIn("no sandbox runs there", self.show(box, ok=False))

    def test_what_cannot_be_shown(self):
        box = Sandbox(self)
        self.assertIn("No such file", self.show(box, lower=self.host / "nothing", ok=False))
        self.assertIn("not a directory", self.show(box, lower=self.host / "kept.txt", ok=False))
        self.assertEqual(self.shell(box, "ls -A /workspace"), "")


if __name__ == "__main__":
    unittest.main()
