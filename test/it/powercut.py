"""A disk that loses everything that was not synced. test/harness/powercut.c writes down what daemon and boxes sync
beneath a directory; Disk.put_back(step) makes of that directory what is there after a power cut at this step:

    disk = Disk(root)                 # before the daemon is started, on a data directory beneath root
    self.new_daemon(data=root / "d", env={**env, **disk.env}, binary=disk.binary())
    ...
    step = disk.step()                # right after an answer: this many syncs have been done
    ...                               # kill the daemon and its boxes
    disk.put_back(step)               # the answer's effect has to be there

A file is what it was when it was last synced, or empty; a directory has the names that it had when it was last synced.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

import berthtest

HARNESS = berthtest.BUILD / "test/harness"


class Disk:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.record = pathlib.Path(f"{root}.disk")
        self.record.mkdir()
        self.env = {"LD_PRELOAD": str(HARNESS / "libpowercut.so")}

    @staticmethod
    def binary():
        """A daemon whose boxes write down what they sync: the name of a binary for daemon_binary."""
        name = "powercut"
        if name not in berthtest.BINARIES:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="cut-"))  # the daemon looks for the box beside itself
            shutil.copy2(berthtest.BINARIES["normal"], folder / "berth")
            shutil.copy2(HARNESS / "berth-box-powercut", folder / "berth-box")
            berthtest.BINARIES[name] = str(folder / "berth")
        return name

    def sync(self, *paths):
        """What the test itself put there."""
        subprocess.run(["sync", *map(str, paths)], check=True, env={**os.environ, **self.env})

    def steps(self):
        """[(kind, key, path)], one for each sync that was done."""
        try:
            lines = (self.record / "steps").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [tuple(line.split(" ", 2)) for line in lines]

    def step(self):
        return len(self.steps())

    def put_back(self, step):
        """Make of the root what is there after a power cut when `step` syncs have been done."""
        files, directories, top = {}, {}, None
        for number, (kind, key, path) in enumerate(self.steps()[:step]):
            (files if kind == "f" else directories)[key] = self.record / str(number)
            if path == ".":
                top = key
        for entry in self.root.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if top:
            self._fill(self.root, top, files, directories)

    def _fill(self, folder, key, files, directories):
        if key not in directories:
            return
        for entry in directories[key].read_text("utf-8", "surrogateescape").split("\0")[:-1]:
            kind, inner, mode, uid, gid, name, target = entry.split("\t")
            path = folder / name
            if kind == "l":
                path.symlink_to(target)
                continue
            if kind == "d":
                path.mkdir()
                self._fill(path, inner, files, directories)
            elif inner in files:
                shutil.copyfile(files[inner], path)
            else:
                path.touch()
            path.chmod(int(mode, 8))
            if os.geteuid() == 0:
                os.chown(path, int(uid), int(gid))
