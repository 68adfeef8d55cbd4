"""Small file systems that tests can fill, in a mount namespace of the test's own process: a test file calls
own_mounts() in its setUpModule(). Comes first among the bases:

    class FullTest(SmallOutput, ExecTest): ...   # only <data>/output is small: what commands print
    class FullTest(SmallData, ExecTest): ...     # the whole data directory is
"""

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

CLONE_NEWNS = 0x20000


def own_mounts():
    """Once, before there are threads."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise unittest.SkipTest("needs root, to mount small file systems of its own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


class Small:
    """A file system of its own in each daemon's data directory."""

    inside = "."
    options = "size=1m"

    def new_daemon(self, **options):
        if "data" not in options:
            data = pathlib.Path(tempfile.mkdtemp(prefix="d-"))
            self.small = data / self.inside
            self.small.mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{self.options}", "small", self.small], check=True)
            self.addCleanup(shutil.rmtree, data, ignore_errors=True)
            self.addCleanup(subprocess.run, ["umount", "-l", self.small], check=True)
            options["data"] = data
        return super().new_daemon(**options)

    def fill(self):
        with contextlib.suppress(OSError), open(self.small / "filler", "ab", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def use_up_inodes(self):
        (self.small / "filler").mkdir()
        with contextlib.suppress(OSError):
            for i in range(100000):
                (self.small / "filler" / str(i)).touch(exist_ok=False)

    def free(self):
        filler = self.small / "filler"
        if filler.is_dir():
            shutil.rmtree(filler)
        else:
            filler.unlink()


class SmallOutput(Small):
    inside = "output"


class SmallData(Small):
    options = "size=32m"
