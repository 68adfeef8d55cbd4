"""Workspaces made to hurt whoever brings them in or home: random trees of a directory's author, and random changes by a
program in the sandbox. Run as a program (in a sandbox) it makes the changes: hostile_workspace.py SEED TARGET...

    outside = Outside(folder)                    # what must not be touched, beside the workspace
    make_tree(folder / "work", seed, outside.targets())
    outside.remember()
    ...stage, change(), restore...
    outside.check()                              # raises AssertionError with what has changed
"""

import os
import random
import socket
import stat
import sys

ESCAPE = b"\x1b]0;owned\x07\x1b[2J"
NAMES = (b"plain", b"dir", b"-rf", b"--help", b" ", b"...", b". .", b"new\nline", b"tab\t", ESCAPE, b"\x9b31m", b"\xff\xfe", b"\xc2\x9b2J",
         "\u202egpj.exe".encode(), b"*", b"$(touch owned)", b"`id`", b"a;b", b"'", b'"', b"\\", b"CON", b"Plain", b"PLAIN", b"DIR",
         b".GIT", b".Git", b"git~1", b".git ", b".git.", b".gitmodules", b".gitattributes", b"x" * 255, b"y" * 254 + b"\n",
         b".berth-local-1", b".paperclip-runtime", b"._x", b"..x", b"\xe2\x80\xa8")
# What git would run, were it to read this: the marker appears.
GIT_CONFIG = """[core]
	fsmonitor = "touch {marker}; false"
	hooksPath = hooks
	sshCommand = touch {marker}
	pager = touch {marker}
	attributesFile = /etc/passwd
	worktree = {target}
[alias]
	status = "!touch {marker}"
[filter "x"]
	clean = touch {marker}
	smudge = touch {marker}
[diff "x"]
	textconv = touch {marker}
[include]
	path = {target}/config
"""


class Outside:
    """Files beside the workspace, and a look whether they are as they were."""

    def __init__(self, folder):
        self.folder = os.fsencode(folder)
        os.makedirs(os.path.join(self.folder, b"deep/er"))
        for name in (b"secret", b"deep/file", b"deep/er/file", b"config"):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(b"canary " + name)
        os.chmod(os.path.join(self.folder, b"secret"), 0o640)

    def remember(self):
        self.before = self.look()

    def targets(self):
        return [os.fsdecode(self.folder), os.fsdecode(os.path.join(self.folder, b"secret")), os.fsdecode(os.path.join(self.folder, b"deep"))]

    def look(self):
        found = {}
        for folder, dirs, files in os.walk(self.folder):
            for path in (folder, *(os.path.join(folder, name) for name in dirs + files)):
                st = os.lstat(path)
                # The number of links is not in it: the workspace's author may have made another name of a file.
                found[path] = (st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, st.st_size)
                if stat.S_ISREG(st.st_mode):
                    with open(path, "rb") as file:
                        found[path] += (file.read(),)
        return found

    def check(self):
        now = self.look()
        for path in sorted(now.keys() | self.before.keys()):
            assert now.get(path) == self.before.get(path), f"{path!r} was {self.before.get(path)}, is {now.get(path)}"


class Vandal:
    """Random steps beneath one directory. Each is tried; those that the system refuses are no loss."""

    def __init__(self, top, seed, targets, hard_links=False):
        self.top, self.random, self.targets = os.fsencode(top), random.Random(seed), [os.fsencode(t) for t in targets]
        self.hard_links = hard_links
        self.marker = os.path.join(os.path.dirname(self.targets[0]), b"ran").decode()

    def folder(self):
        """A directory of the tree, never one behind a link."""
        at = self.top
        while self.random.random() < 0.6:
            below = [e.path for e in os.scandir(at) if e.is_dir(follow_symlinks=False)]
            if not below:
                break
            at = self.random.choice(sorted(below))
        return at

    def path(self):
        return os.path.join(self.folder(), self.random.choice(NAMES))

    def clear(self, path):
        """So that something else can be there."""
        if os.path.isdir(path) and not os.path.islink(path):
            for name in os.listdir(path):
                self.clear(os.path.join(path, name))
            os.rmdir(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def write(self, path, data):
        self.clear(path)
        with open(path, "xb") as file:
            file.write(data)

    def file(self):
        self.write(self.path(), self.random.choice((b"", b"text\n", ESCAPE, b"\0" * 5000, os.urandom(70000))))

    def append(self):
        """In place: through whatever the name is by now, except a link."""
        files = [e.path for e in os.scandir(self.folder()) if e.is_file(follow_symlinks=False)]
        if files:
            with open(self.random.choice(sorted(files)), "ab") as file:
                file.write(b"more\n")

    def directory(self):
        path = self.path()
        self.clear(path)
        os.mkdir(path)

    def link(self):
        path, target = self.path(), self.random.choice(self.targets)
        way = self.random.choice((target, os.path.relpath(target, os.path.dirname(path)), b"../" * 40 + target.lstrip(b"/"), b"..",
                                  b".", os.path.basename(path), b"/proc/self/root", b"/proc/self/fd/3", b"/dev/stdin", b"x" * 4000,
                                  ESCAPE))
        self.clear(path)
        os.symlink(way, path)

    def folder_to_link(self):
        path = self.folder()
        if path != self.top:
            self.clear(path)
            os.symlink(self.random.choice(self.targets), path)

    def hard_link(self):
        if self.hard_links:
            path = self.path()
            self.clear(path)
            os.link(self.targets[1], path)

    def special(self):
        path, kind = self.path(), self.random.choice(("fifo", "socket", "device"))
        self.clear(path)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "device":
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        else:
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(path)

    def mode(self):
        names = [e.path for e in os.scandir(self.folder()) if not e.is_symlink()]
        if names:
            os.chmod(self.random.choice(sorted(names)), self.random.choice((0, 0o777, 0o6755, 0o1777, 0o400)))

    def sparse(self):
        path = self.path()
        self.write(path, b"x")
        os.truncate(path, 8 << 20)

    def deep(self):
        at = os.open(self.folder(), os.O_RDONLY)
        name, levels = self.random.choice(((b"d", 20), (b"d", 40), (b"new\nline", 20), (b"d" * 100, 10)))
        if self.random.random() < 0.05:
            levels = 300  # more than is taken: such a tree is refused as a whole
        try:
            for _ in range(levels):
                os.mkdir(name, dir_fd=at)
                below = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
        finally:
            os.close(at)

    def git(self):
        """Something that git takes for its own: a directory, or a file that names one."""
        at = os.path.join(self.folder(), self.random.choice((b".git", b".git", b"sub/.git")))
        os.makedirs(os.path.dirname(at), exist_ok=True)
        self.clear(at)
        if self.random.random() < 0.3:
            self.write(at, b"gitdir: " + self.random.choice(self.targets) + b"\n")
            return
        for name in (b"objects/info", b"refs/heads", b"hooks", b"info", b"modules/x"):
            os.makedirs(os.path.join(at, name))
        target = self.targets[0].decode()
        config = GIT_CONFIG.format(marker=self.marker, target=target).encode()
        for name, text in ((b"HEAD", b"ref: refs/heads/main\n"), (b"config", config), (b"config.worktree", config),
                           (b"modules/x/config", config), (b"info/attributes", b"* filter=x diff=x\n"),
                           (b"objects/info/alternates", self.targets[2] + b"\n"), (b"commondir", self.targets[0] + b"\n"),
                           (b"refs/heads/main", b"../../../../etc/passwd\n")):
            self.write(os.path.join(at, name), text)
        for hook in (b"post-checkout", b"pre-commit", b"fsmonitor-watchman", b"post-index-change"):
            self.write(os.path.join(at, b"hooks", hook), f"#!/bin/sh\ntouch {self.marker}\n".encode())
            os.chmod(os.path.join(at, b"hooks", hook), 0o755)
        os.symlink(self.random.choice(self.targets), os.path.join(at, b"refs/heads/link"))

    def remove(self):
        entries = sorted(e.path for e in os.scandir(self.folder()))
        if entries:
            self.clear(self.random.choice(entries))

    def rename(self):
        entries = sorted(e.path for e in os.scandir(self.folder()))
        if entries:
            os.rename(self.random.choice(entries), self.path())

    STEPS = (file, file, file, append, directory, directory, link, link, folder_to_link, hard_link, special, mode, sparse, deep, git, remove,
             rename)

    def vandalize(self, steps):
        for _ in range(steps):
            try:
                self.random.choice(self.STEPS)(self)
            except OSError:
                pass


def make_tree(top, seed, targets):
    """The workspace as its author made it."""
    os.makedirs(top, exist_ok=True)
    Vandal(top, seed, targets, hard_links=True).vandalize(60)


if __name__ == "__main__":
    Vandal(os.getcwd(), sys.argv[1], sys.argv[2:]).vandalize(60)
