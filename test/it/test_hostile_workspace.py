"""A workspace whose author, and a program in the sandbox that changes it, both mean harm: staged, changed, brought home
or salvaged, nothing outside the directory is touched, nothing is run, and no name steers a terminal.

hostile_workspace.py makes the trees and the changes. Each round has a seed, which a failure names; TEST_HOSTILE_ROUNDS
plays more of them, TEST_HOSTILE_SEED begins with another one.
"""

import collections
import os
import pathlib
import re
import shutil
import stat
import subprocess
import unittest

import hostile_workspace
from berthtest import ident, wait_until
from hostile_workspace import Outside, make_tree
from workspacetest import WorkspaceTest

ROUNDS = int(os.environ.get("TEST_HOSTILE_ROUNDS", "6"))
SEED = int(os.environ.get("TEST_HOSTILE_SEED", "1"))
PROGRAM = pathlib.Path(hostile_workspace.__file__).read_text()
# What a directory of the operator may be refused for: as a whole, with a reason.
REFUSALS = (200, 400, 409, 413, 422)


class HostileWorkspace(WorkspaceTest):
    def setUp(self):
        super().setUp()
        self.release(self.held)  # each round has one of its own
        self.world = self.temp_dir()
        self.world.chmod(0o755)
        self.done = collections.Counter()

    def specials(self, top):
        """What is neither file, directory nor link, or lends its owner's rights; by inode, since what a restore is in the way
        of is kept under another name."""
        found = set()
        for folder, dirs, files, fd in os.fwalk(os.fsencode(top)):  # paths may be longer than a path can be
            for name in dirs + files:
                st = os.lstat(name, dir_fd=fd)
                plain = stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode) or stat.S_ISLNK(st.st_mode)
                if not plain or (st.st_mode & 0o6000 and not stat.S_ISLNK(st.st_mode)):
                    found.add((st.st_ino, stat.S_IFMT(st.st_mode), st.st_mode & 0o6000))
        return found

    def play(self, seed):
        here = self.world / str(seed)
        outside = Outside(here / "outside")
        self.dir = here / "work"
        make_tree(self.dir, seed, outside.targets())
        outside.remember()
        for path in (here, self.dir):
            path.chmod(0o755)
        before = self.specials(self.dir)
        self.held = self.acquire(self.env)
        try:
            answer = self.req("POST", self.ws("/stage"), {"localPath": str(self.dir), **({"isolation": self.isolation} if self.isolation else {})})
            self.assertIn(answer.status, REFUSALS, answer.text)
            self.done["stage", answer.status] += 1
            outside.check()
            if answer.status == 200:
                self.change_and_bring_home(seed)
        finally:
            self.release(self.held)
        wait_until(lambda: self.daemon.sql("SELECT id FROM workspaces WHERE state <> 'ended'") == [], "the workspace has ended")
        self.apply_salvages(here)
        outside.check()
        self.assertEqual(self.specials(self.dir) - before, set(), "specials of the sandbox came home")
        self.ask_git()
        self.assertFalse((here / "ran").exists(), "a program of the workspace's ran")
        self.assertEqual(self.ok("GET", "/api/health")["status"], "ok")
        shutil.rmtree(here)

    def change_and_bring_home(self, seed):
        done = self.ok("POST", f"/api/environment-leases/{ident(self.held)}/execute",
                       {"command": "/usr/bin/python3", "args": ["-", str(seed), str(self.dir.parent / "outside"),
                                                                str(self.dir.parent / "outside/secret"), str(self.dir.parent / "outside/deep")],
                        "stdin": PROGRAM})
        self.assertEqual(done["exitCode"], 0, done)
        _, out, err = self.cli("workspace", "diff", ident(self.held))
        self.assertEqual(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out + err), [])
        if seed % 3:  # else: only the release saves it
            answer = self.req("POST", self.ws("/restore"), {})
            self.assertIn(answer.status, REFUSALS, answer.text)
            self.done["restore", answer.status] += 1

    def apply_salvages(self, here):
        for saved in self.salvages():
            elsewhere = here / "salvaged"
            elsewhere.mkdir(exist_ok=True)
            self.assertIn(self.req("POST", f"/api/salvages/{saved['id']}/apply", {"localPath": str(elsewhere)}).status, REFUSALS)
            self.assertEqual(self.specials(elsewhere), set())
            self.ok("DELETE", f"/api/salvages/{saved['id']}")

    def ask_git(self):
        """As somebody would who looks at what came home. Directories that the author made are the author's."""
        if not shutil.which("git"):
            return
        for folder in {self.dir, self.dir.parent / "salvaged"}:
            if folder.is_dir() and not (folder / ".git").exists():
                subprocess.run(["git", "-c", "safe.directory=*", "status"], cwd=folder, capture_output=True, timeout=60)

    def test_rounds(self):
        for seed in range(SEED, SEED + ROUNDS):
            with self.subTest(seed=seed):
                self.play(seed)
        # Refusing everything would be safe too.
        self.assertGreater(self.done["restore", 200], ROUNDS // 4, self.done)


class OverlayTest(HostileWorkspace):
    pass


class CopyTest(HostileWorkspace):
    isolation = "copy"


del HostileWorkspace

if __name__ == "__main__":
    unittest.main()
