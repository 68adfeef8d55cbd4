"""berth-box as PID 1 of a sandbox, for tests: the description it reads, starting it, looking at it from outside.

    box = Sandbox(self, processes=10)            # keywords: see spec()
    host = box.connect()
    out, err, exit = host.run_shell("id")
"""

import os
import pathlib
import shutil
import signal
import struct
import subprocess
import uuid as uuids

from boxproto import Box, Host, string

TMPFS, DIRECTORY, IMAGE = 0, 1, 2
PRIVATE, BIND, OVERLAY = 0, 1, 2
NO_NETWORK, TUNNEL, HOST_NETWORK = 0, 1, 2
AGENT, SUPERVISOR = 1000, 2000000000
NESTED, ROOT_INSIDE, OWN_USERS = 1, 2, 4
IDS = 65536


def first_id():
    """A range that no other test of this machine uses: by the process id, far above those of real users."""
    return 1_000_000_000 + os.getpid() % 10000 * IDS


def spec(first=None, ids=IDS, output="", rootfs="", base=(), layers=(), storage=TMPFS, storage_path="", workspace=PRIVATE,
         workspace_dir="", workspace_path="", network=NO_NETWORK, nested=False, root=False, own_users=False, user=0, group=0,
         working_dir="", hostname="", memory=0, disk=0,
         inodes=0, wall=0, processes=0, cpu=0, files=0):
    flags = (NESTED if nested else 0) | (ROOT_INSIDE if root else 0) | (OWN_USERS if own_users else 0)
    base = [rootfs] if rootfs else base
    return (b"BSBX" + struct.pack(">HII", 3, first_id() if first is None else first, ids) + string(output)
            + struct.pack(">I", len(base)) + b"".join(string(path) for path in base)
            + struct.pack(">I", len(layers)) + b"".join(string(path) + struct.pack(">IB", base, *form or [0]) for path, base, *form in layers)
            + bytes([storage]) + string(storage_path) + bytes([workspace]) + string(workspace_dir)
            + string(workspace_path) + bytes([network, flags]) + struct.pack(">II", user, group) + string(working_dir) + string(hostname)
            + struct.pack(">QQQQIII", memory, disk, inodes, wall, processes, cpu, files))


class Sandbox(Box):
    """Started like a Box; ended, with its cgroups and directory, when the test is over."""

    def __init__(self, test, *flags, raw=None, prefix=(), dir=None, start=True, **more):
        self.spec = spec(**more) if raw is None else raw
        self.prefix = list(prefix)
        self.report = {}
        super().__init__(test, "--sandbox", *flags, dir=dir, start=start)

    def launch(self):
        env = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
        done = subprocess.run([*self.prefix, self.binary, "--dir", str(self.dir), "--id", str(self.id), *self.flags],
                              input=self.spec, capture_output=True, timeout=60, env=env)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def start(self):
        status, out, err = self.launch()
        assert status == 0 and out.startswith("ready "), f"berth-box: {status} {out!r} {err!r}"
        self.report = dict(line.split(" ", 1) for line in out.splitlines())
        pid, method = self.report.pop("ready").split()
        self.pid, self.kill_method = int(pid), int(method)
        self.pidfd = os.pidfd_open(self.pid)
        return self

    def shell(self, script, **more):
        """Run it; stdout as text and the exit code."""
        with Host(self.path) as host:
            host.hello()
            out, err, end = host.run_shell(script, **more)
        return (out + err).decode(), end.code

    def dispose(self):
        if self.pid:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
                self.wait_gone()
            except ProcessLookupError:
                pass
            os.close(self.pidfd)
        for host in self.hosts:
            host.close()
        for folder in self.cgroups():
            for inner, _, _ in os.walk(folder, topdown=False):
                os.rmdir(inner)
        shutil.rmtree(self.base, ignore_errors=True)


def inside(box):
    """The host's numbers of all processes in the sandbox, PID 1 included."""
    wanted = os.readlink(f"/proc/{box.pid}/ns/pid")
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "ns/pid") == wanted:
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def small_root(folder, programs=("sh", "ls", "cat", "id", "touch", "rm", "mkdir", "chown", "stat", "ln")):
    """A rootfs of a few programs of this machine and the libraries they need."""
    root = pathlib.Path(folder)
    for name in ("etc", "bin", "usr", "tmp", "var"):
        (root / name).mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    for name in programs:
        program = shutil.which(name, path="/usr/bin:/bin")
        shutil.copy(program, root / "bin" / name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for word in listed.split():
            if word.startswith("/"):
                (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, root / word[1:])
    return root


def new_id():
    return uuids.uuid4()
