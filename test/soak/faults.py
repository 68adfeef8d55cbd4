"""What the soak breaks. Each fault is a function that breaks something, waits, and mends it again; the history says what
it ended (`touched`), because the checker takes no other end for granted.

A fault that this machine cannot do is left out, with a reason (available()).
"""

import contextlib
import os
import resource
import signal
import sqlite3
import struct
import subprocess
import time
import uuid

from berthtest import BUILD, wait_until
from exectest import process_state

POWERCUT = BUILD / "test/harness/libpowercut.so"
LONG = 1.5  # the longest that something is broken, in seconds


def send(pid, number):
    with contextlib.suppress(OSError):
        os.kill(pid, number)


class Faults:
    def __init__(self, world, history, random):
        self.world, self.history, self.random = world, history, random
        self.counts = {}

    # Doing one.

    def available(self):
        """{kind: function}, and {kind: why not}."""
        kinds = {kind: getattr(self, "fault_" + kind.replace("-", "_")) for kind in KINDS}
        missing = {}
        for kind in kinds:
            needs = {"ssh": self.world.fixture, "sshd": self.world.fixture, "line": self.world.fixture,
                     "worker": self.world.plugin, "provider": self.world.plugin}
            for word, there in needs.items():
                if word in kind.split("-") and not there:
                    missing[kind] = self.world.missing["plugin" if word in ("worker", "provider") else "ssh"]
        if not self.world.mounted:
            missing["enospc"] = missing["full-disk-start"] = "needs root, to mount a small file system"
        if not POWERCUT.exists():
            missing["power-cut"] = f"{POWERCUT.name} is not built"
        return {kind: f for kind, f in kinds.items() if kind not in missing}, missing

    def one(self, kind, function):
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.history.fault(kind, "begin")
        try:
            function()
        finally:
            self.history.fault(kind, "end")

    def touch(self, kind, *names):
        """Before it happens: somebody may see the consequence first."""
        self.history.write("fault", kind=kind, phase="touch", touched=list(names))

    def hold(self, longest=LONG):
        time.sleep(self.random.uniform(0.05, longest))  # how long it is broken, not a wait for anything

    def some(self, of):
        found = sorted(of)
        return self.random.choice(found) if found else None

    # Kills.

    def fault_kill_daemon(self):
        self.world.down()
        self.hold(0.3)
        self.world.up()

    def fault_restart(self):
        """As an operator does it."""
        self.world.expected_end = True
        try:
            self.world.daemon.stop()
        except AssertionError as error:
            self.history.see("trouble", rule="daemon-died", text=f"an orderly stop: {error}"[:2000])
            self.world.daemon.kill()
        self.world.up()

    def fault_kill_box(self):
        boxes = self.world.supervisors()
        pid = self.some(boxes)
        if pid:
            self.touch("kill-box", boxes[pid])
            send(pid, signal.SIGKILL)

    def fault_kill_command(self):
        commands = self.world.commands()
        pid = self.some(commands)
        if pid:
            self.touch("kill-command", commands[pid])
            send(pid, signal.SIGKILL)

    def fault_kill_worker(self):
        for pid in self.world.workers():
            self.touch("kill-worker", "plugin")
            send(pid, signal.SIGKILL)

    def fault_kill_ssh_client(self):
        for pid in self.world.ssh_clients():
            send(pid, signal.SIGKILL)

    def fault_kill_sshd(self):
        """With all that hangs on it, but for boxes, which do not."""
        self.world.fixture.process.kill()
        self.world.fixture.kill_sessions()
        self.hold()
        self.world.sshd_again()

    def fault_kill_sshd_sessions(self):
        self.world.fixture.kill_sessions()

    def end_everything(self, kind):
        self.touch(kind, "*")
        boxes = self.world.supervisors()
        commands = self.world.commands()
        workers = dict.fromkeys(self.world.workers())
        self.world.down()
        # Until they have ended: one that was begun meanwhile, or is still dying, would write to a disk that is cut off.
        left, until = {**boxes, **commands, **workers}, time.monotonic() + 10
        while True:
            left = {**left, **self.world.supervisors(), **self.world.commands()}
            for pid in left:
                send(pid, signal.SIGKILL)
            left = {pid: what for pid, what in left.items() if process_state(pid) not in (None, "Z")}
            if not left or time.monotonic() > until:
                break
            time.sleep(0.01)
        if self.world.fixture:
            self.world.fixture.kill_sessions()
        self.touch(kind, "*")  # what was begun since is gone, too

    def fault_kill_all(self):
        """The daemon and everything that it started, at once."""
        self.end_everything("kill-all")
        self.hold(0.3)
        self.world.up()

    # Standstill.

    def freeze(self, found):
        for pid in found:
            send(pid, signal.SIGSTOP)
        try:
            self.hold()
        finally:
            for pid in found:
                send(pid, signal.SIGCONT)

    def fault_freeze_daemon(self):
        self.freeze([self.world.daemon.process.pid])

    def fault_freeze_boxes(self):
        self.freeze([pid for pid in self.world.supervisors() if self.random.random() < 0.5])

    def fault_freeze_worker(self):
        self.freeze(self.world.workers())

    def fault_freeze_ssh_client(self):
        self.freeze(self.world.ssh_clients())

    def fault_freeze_sshd(self):
        self.freeze([self.world.fixture.process.pid])

    # Connections and providers.

    def fault_cut_line(self):
        self.world.line.cut()

    def fault_stall_line(self):
        self.world.line.stall()
        try:
            self.hold()
        finally:
            self.world.line.go_on()

    def fault_slow_provider(self):
        self.world.behave(**{name: {"delay": self.random.uniform(0.2, LONG)} for name in
                             ("AcquireLease", "ReleaseLease", "Execute")})
        self.hold()
        self.world.behave()

    def fault_silent_provider(self):
        """It does what it is asked, and answers when it is over."""
        name = f"go-{self.random.getrandbits(32)}"
        self.world.behave(AcquireLease={"hold": name}, ReleaseLease={"hold": name})
        self.hold()
        self.world.behave()
        with contextlib.suppress(OSError):
            (self.world.data / "plugins/private" / self.world.plugin / name).touch()

    # Resources.

    def fault_enospc(self):
        with self.full_disk():
            self.hold()

    def fault_full_disk_start(self):
        """It is killed while there is no room, and has to start."""
        with self.full_disk():
            self.world.down()
            self.world.up()
            self.hold(0.5)

    @contextlib.contextmanager
    def full_disk(self):
        fill = self.world.data / "fill"
        try:
            file = open(fill, "wb", buffering=0)
            try:
                for size in (1 << 22, 1 << 16, 1 << 12):
                    with contextlib.suppress(OSError):
                        while file.write(bytes(size)) == size:
                            pass
                yield
            finally:
                file.close()
        finally:
            fill.unlink(missing_ok=True)

    def fault_eio(self):
        """One in so many writes and syncs of the daemon fails."""
        self.set_faulty(self.random.choice((3, 10, 50)))
        try:
            self.hold()
        finally:
            self.set_faulty(0)
        self.world.watch()

    def set_faulty(self, one_in):
        with open(self.world.control, "r+b") as file:
            file.write(struct.pack("=II", one_in, self.random.getrandbits(32)))

    @contextlib.contextmanager
    def limited(self, what, value):
        pid = self.world.daemon.process.pid
        before = resource.prlimit(pid, what)
        resource.prlimit(pid, what, (min(value, before[1]) if before[1] != resource.RLIM_INFINITY else value, before[1]))
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, what, before)

    def fault_emfile(self):
        with contextlib.suppress(OSError):
            open_now = len(os.listdir(f"/proc/{self.world.daemon.process.pid}/fd"))
            with self.limited(resource.RLIMIT_NOFILE, max(open_now + self.random.randint(-20, 3), 16)):
                self.hold()
        self.world.watch()

    def fault_enomem(self):
        """The daemon may end for want of memory: that is its policy (base/util.c). Nothing else may."""
        with contextlib.suppress(OSError):
            pages = int(open(f"/proc/{self.world.daemon.process.pid}/statm", encoding="ascii").read().split()[0])
            with self.limited(resource.RLIMIT_AS, pages * resource.getpagesize() + self.random.choice((0, 1 << 20, 1 << 24))):
                self.hold()
        self.world.watch(excuse="enomem")

    # Time.

    def fault_clock(self):
        self.world.set_clock(self.random.choice((-86400, -60, 60, 3600, 86400, 20 * 86400, 400 * 86400)))
        self.hold()
        self.world.set_clock(0)
        self.hold(0.3)

    # Power.

    def fault_power_cut(self):
        """All that was not synced is lost. The daemon is stopped to begin with: the shim has to know what is on the disk."""
        from powercut import Disk  # beside the other test code, with the shim

        world = self.world
        world.expected_end = True
        world.daemon.stop()
        disk = Disk(world.data)
        before, binary = world.daemon.env["LD_PRELOAD"], world.daemon.binary
        world.daemon.env["LD_PRELOAD"] = f"{disk.env['LD_PRELOAD']}:{before}"
        world.daemon.binary = world.powercut_binary()
        subprocess.run(["find", str(world.data), "-xdev", "(", "-type", "f", "-o", "-type", "d", ")", "-exec", "sync", "{}",
                        "+"], check=False, capture_output=True, env={**os.environ, **disk.env})
        world.up()
        self.hold(3 * LONG)
        self.end_everything("power-cut")
        world.daemon.env["LD_PRELOAD"], world.daemon.binary = before, binary
        disk.put_back(disk.step())
        subprocess.run(["rm", "-rf", str(disk.record)], check=True)
        self.boot_again()
        world.up()

    def boot_again(self):
        """The record says that it was another boot: this one goes on, because only the disk was cut off."""
        other = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        with contextlib.closing(sqlite3.connect(self.world.data / "berth.db")) as db, db:
            db.execute("UPDATE executions SET boot_id = ?", (other,))
            db.execute("UPDATE places SET owner_boot = ?", (other,))

    # Afterwards.

    def mend(self):
        """Everything that a fault may have left, whatever happened to it."""
        world = self.world
        self.set_faulty(0)
        world.set_clock(0)
        if world.line:
            world.line.go_on()
        if world.plugin:
            world.behave()
        world.watch()
        wait_until(lambda: world.client.req("GET", "/api/health").status == 200, "the daemon is well", 30)


KINDS = [name[6:].replace("_", "-") for name in sorted(dir(Faults)) if name.startswith("fault_")]
