"""Hostile programs in boxes of the built-in sandbox, of a daemon that is root and of an ordinary user's: none gets out.

Each case is a program of test/it/escape that tries; the last class runs them without a sandbox, where they succeed.
"""

# slow: every case starts a daemon and a box of its own

import hashlib
import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from berthtest import ident, wait_until
from escapetest import ESCAPE, USER_ID, HostileTest, bare, ids_of
from exectest import descendants

READ_ONLY = ("/usr",)
FILL_INOTIFY = """
import ctypes, os, time
while ctypes.CDLL(None).inotify_init() >= 0:
    pass
os.mkdir("/tmp/full")
time.sleep(1000)
"""
TRY_INOTIFY = "import ctypes; print(ctypes.CDLL(None).inotify_init())"


class Canaries:
    """Files with a word in their names, in places of the host where boxes have no business."""

    PLACES = ("/root", "/var/backups", "/var/tmp", "/run", "/srv", "/mnt", "/dev/shm", "/tmp")

    def __init__(self, *more):
        self.word = f"canary{os.urandom(6).hex()}"
        self.files = []
        for place in (*self.PLACES, *more):
            if os.path.isdir(place) and os.access(place, os.W_OK):
                file = pathlib.Path(place) / f"{self.word}.txt"
                file.write_text("sing\n")
                self.files.append(file)

    def alive(self):
        return [f for f in self.files if f.read_text() == "sing\n"]

    def remove(self):
        for file in self.files:
            file.unlink(missing_ok=True)


SUPERVISOR = 2_000_000_000  # whom PID 1 is, as the box counts


class EscapeCases:
    """The cases; the classes below say whose daemon it is."""

    def setUp(self):
        self.rootfs_dir = self.temp_dir()
        self.rootfs_dir.chmod(0o755)
        self.daemon_env = {**self.daemon_env, "BERTH_SANDBOX_ROOTFS_DIRS": str(self.rootfs_dir)}
        super().setUp()

    def system(self):
        """The root of a system of the daemon's user, as small as it gets, with the programs in it: setuid, with file
        capabilities."""
        rootfs = self.rootfs_dir / "system"
        rootfs.mkdir(mode=0o755)
        for name in ("bin", "dev", "proc", "tmp", "etc", "home", "workspace", "usr", "sys", "root", "run", "var"):
            (rootfs / name).mkdir()
        program = rootfs / "bin/escape"
        shutil.copy2(ESCAPE, program)
        owner = USER_ID if self.as_user else 0
        for path in (rootfs, *rootfs.rglob("*")):
            os.chown(path, owner, owner)
        os.chmod(program, 0o6755)
        os.setxattr(program, "security.capability", bytes([1, 0, 0, 2, 0, 0, 0x20, 0] + [0] * 12))
        return str(rootfs)

    def root_box(self, **config):
        """A box whose commands are root inside."""
        box = self.box(rootfs=self.system(), user="root", **config)
        self.home[ident(box)] = "/bin"
        return box

    # Files of the host.

    def canaries(self, *more):
        canaries = Canaries(*more)
        self.addCleanup(canaries.remove)
        return canaries

    def test_the_hosts_files_do_not_exist(self):
        box = self.box()
        canaries = self.canaries(self.daemon.data)
        self.held(box, "open", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/sshd_config", "/boot", "/lost+found",
                  *canaries.files)
        self.held(box, "empty", "/root", "/var/backups", "/var/lib", "/mnt", "/media", "/srv")
        self.held(box, "find", canaries.word)

    def test_the_daemons_data_and_sockets(self):
        box = self.box()
        data = self.daemon.data
        self.held(box, "open", data, data / "berth.db", data / "berth.db-wal", data / "berth.sock", data / "boxes", data / "sandboxes",
                  data / "output", self.daemon.log_path)
        self.held(box, "unix", data / "berth.sock", *(data / "sandboxes").glob("*/box/box.sock"))
        self.held(box, "tcp", self.daemon.address[1], "127.0.0.1", "::1", "169.254.169.254", "10.0.0.1")

    def test_what_is_read_only_stays_it(self):
        box = self.box()
        self.held(box, "write", "/usr", "/usr/bin", "/bin", "/lib")
        self.held(box, "remount", "/", *READ_ONLY)

    def test_ways_up_and_around(self):
        box = self.box()
        for case in ("cwd", "chroot", "handle"):
            self.held(box, case)
        for place in ("/", "/tmp", "/proc/self/cwd", "/proc/1/cwd", "/proc/1/root", "/../..", "/proc/self/fd"):
            answer = self.req("POST", f"/api/environment-leases/{ident(box)}/execute",
                              {"command": self.escape_program(box), "args": ["cwd"], "cwd": place})
            if answer.status == 200:
                self.assertTrue(answer.json["stdout"].startswith("HELD"), f"{place}: {answer.text}")
            else:
                self.assert_status(answer, 422)

    # Other boxes.

    def test_another_boxs_files_and_processes(self):
        one, other = self.box(), self.box()
        word = f"secret{os.urandom(6).hex()}"
        self.sh(one, f"cd; echo x >{word}.txt; echo x >/tmp/{word}.txt")
        started = self.ok("POST", f"/api/environment-leases/{ident(one)}/execute",
                          {"command": "/bin/sh", "args": ["-c", f"exec sleep 1000 # {word}"], "detach": True}, status=202)
        self.held(other, "find", word)
        self.held(other, "find-process", word)
        self.held(other, "signal", started["pid"], self.box_pid(one), self.daemon.process.pid)
        # Not even the same user on the host: what the kernel shares by user is not shared.
        ids = [set().union(*(ids_of(p) for p in (self.box_pid(b), *descendants(self.box_pid(b))))) for b in (one, other)]
        self.assertFalse(any(0 in i for i in ids), ids)
        if not self.as_user:
            self.assertFalse(ids[0] & ids[1], ids)

    def test_commands_have_ids_that_nobody_else_has(self):
        one, other = self.box(), self.box()
        ids = []
        for box in (one, other):
            self.ok("POST", f"/api/environment-leases/{ident(box)}/execute",
                    {"command": "/bin/sleep", "args": ["1000"], "detach": True}, status=202)
            commands = descendants(self.box_pid(box))
            self.assertTrue(commands)
            ids.append(set().union(*(ids_of(p) for p in commands)))
        self.assertFalse(ids[0] & ids[1], ids)
        self.assertFalse((ids[0] | ids[1]) & {0, os.geteuid(), *ids_of(self.daemon.process.pid)}, ids)

    # Processes of the host, and PID 1.

    def test_the_hosts_processes(self):
        word = f"marker{os.urandom(6).hex()}"
        process = subprocess.Popen(["/bin/sh", "-c", "sleep 1000; : $0", word])
        self.addCleanup(self.end, process)
        box = self.box()
        self.held(box, "find-process", word)
        self.held(box, "find-process", "berth serve")
        self.held(box, "signal", process.pid, self.daemon.process.pid)

    def end(self, process):
        for pid in (*descendants(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def test_pid_1_cannot_be_entered(self):
        box = self.box()
        self.held(box, "enter-init")
        self.held(box, "exe", "1")

    def test_pid_1_cannot_be_killed(self):
        box = self.box()
        pid = self.box_pid(box)
        self.held(box, "kill-init")
        self.assertEqual(self.sh(box, "echo still here"), "still here\n")
        self.assertEqual(self.box_pid(box), pid)

    def test_the_supervisors_program_stays_as_it_is(self):
        box = self.box()
        program = pathlib.Path(os.readlink(f"/proc/{self.box_pid(box)}/exe"))
        digest = hashlib.sha256(program.read_bytes()).digest() if program.exists() else None
        caught = []
        catcher = threading.Thread(target=lambda: caught.append(self.verdict(box, "catch-exe", "berth")))
        catcher.start()
        for command in ("/proc/self/exe", "/proc/1/exe", "/proc/thread-self/exe"):
            for _ in range(5):
                self.req("POST", f"/api/environment-leases/{ident(box)}/execute", {"command": command, "args": ["--help"]})
        catcher.join(60)
        self.assertEqual(caught[0][0], "HELD", caught)
        if digest:
            self.assertEqual(hashlib.sha256(program.read_bytes()).digest(), digest)

    def test_its_own_processes_by_unneeded_calls(self):
        self.held(self.box(), "read-child")

    def test_leaked_descriptors(self):
        box = self.box()
        self.held(box, "descriptors")
        self.held(box, "reopen")

    # The kernel.

    def test_status(self):
        self.held(self.box(), "status")

    def test_system_calls(self):
        box = self.box()
        for case in ("keys", "bpf", "perf", "io-uring", "userfaultfd", "kernel-image", "modules", "clock", "messages",
                     "administration", "setns"):
            with self.subTest(case):
                self.held(box, case)
        if os.uname().machine == "x86_64":
            self.held(box, "other-doors")

    def test_namespaces(self):
        box = self.box()
        self.held(box, "unshare")
        self.held(box, "clone3")

    def test_mounts(self):
        box = self.box()
        self.held(box, "mount")
        self.held(box, "mount-api")

    def test_settings_and_control_groups(self):
        box = self.box()
        for case in ("settings", "kernel-memory", "cgroups", "shares"):
            with self.subTest(case):
                self.held(box, case)

    # Sockets.

    def test_socket_families(self):
        box = self.box()
        for case in ("raw", "vsock", "netlink", "families", "interfaces"):
            with self.subTest(case):
                self.held(box, case)

    def test_abstract_sockets_of_the_host(self):
        name = f"berth-test-{os.urandom(6).hex()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{name}")
            listener.listen()
            self.held(self.box(), "abstract", name)

    def test_loopback_of_the_host(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.held(self.box(), "tcp", listener.getsockname()[1], "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1")

    # Devices, terminals, privileges.

    def test_devices(self):
        box = self.box()
        home = self.escape_program(box).rpartition("/")[0]
        self.held(box, "devices")
        self.held(box, "mknod", "/tmp", "/dev", home)

    def test_terminals(self):
        box = self.box()
        self.held(box, "terminal")
        self.held(box, "terminal", tty={"columns": 80, "rows": 24})

    def test_setuid_files(self):
        box = self.box()
        home = self.escape_program(box).rpartition("/")[0]
        self.held(box, "ids")
        self.held(box, "setuid", home, "/tmp")

    # Names that change.

    def test_a_working_directory_that_becomes_a_link(self):
        box = self.box()
        canaries = self.canaries(self.daemon.data)
        program = self.escape_program(box)
        home = program.rpartition("/")[0]
        swapping = self.ok("POST", f"/api/environment-leases/{ident(box)}/execute",
                           {"command": program, "args": ["swap", home, "turn", str(self.daemon.data), "100000000"],
                            "detach": True}, status=202)["execId"]
        seen = set()
        for _ in range(40):
            answer = self.req("POST", f"/api/environment-leases/{ident(box)}/execute",
                              {"command": program, "args": ["find", canaries.word, ".", ".."], "cwd": f"{home}/turn"})
            seen.add(answer.status)
            if answer.status == 200:
                self.assertTrue(answer.json["stdout"].startswith("HELD"), answer.text)
        self.assertLessEqual(seen, {200, 422})
        # While it goes on, everything is given up: nobody may follow the link out.
        self.release(box)
        wait_until(lambda: self.ok("GET", "/api/leaks")["total"] == 0, "the box is gone")
        self.assertEqual(canaries.alive(), canaries.files)
        self.assertTrue(swapping)

    def test_links_in_the_files_of_a_box(self):
        box = self.box()
        canaries = self.canaries(self.daemon.data)
        targets = sorted({str(f.parent) for f in canaries.files}) + [str(canaries.files[0])]
        for place in self.writable(box):
            self.held(box, "links", place, *targets)
        self.release(box)
        wait_until(lambda: self.ok("GET", "/api/leaks")["total"] == 0, "the box is gone")
        self.assertEqual(canaries.alive(), canaries.files)

    def writable(self, box):
        home = self.escape_program(box).rpartition("/")[0]
        return [p for p in self.sh(box, f"for d in {home} /tmp /workspace /dev/shm; do [ -w $d ] && echo $d; done; :").split()]

    # Floods.

    def limited(self, name, value, **config):
        """A box with a limit, and by what its lease says that it is enforced; None when it is not."""
        box = self.box(**{name: value}, **config)
        sandbox = self.lease(box)["metadata"]["sandbox"]
        limit = sandbox["limits"][name]
        self.assertEqual(limit["value"], value)
        self.assertEqual(limit["enforced"], limit["by"] is not None and (name, limit["by"]) != ("memoryMb", "rlimit"))
        self.assertEqual(name in sandbox["notEnforced"], not limit["enforced"])
        return box, limit["by"]

    def flooded(self, box, by, case, *args):
        """Held, where it is enforced. Where it is not, the lease says so, and there is nothing to try."""
        if by:
            self.held(box, case, *args)
        self.assertEqual(self.sh(box, "echo alive"), "alive\n")

    def test_fork_bomb(self):
        box, by = self.limited("maxProcesses", 48)
        self.flooded(box, by, "fork-bomb", 200)

    def test_memory(self):
        box, by = self.limited("memoryMb", 64)
        # Without a cgroup each process is held to it for itself, and only for what it maps privately.
        for way in ("anonymous",) if by == "rlimit" else ("anonymous", "together", "memfd", "shared"):
            with self.subTest(way):
                self.flooded(box, by, "memory", way, 192)

    def test_memory_that_no_process_holds(self):
        """Files in memory outlive whoever wrote them, so in the end the kernel finds nobody to kill but PID 1, if that
        counts too: the box and what is in it stay."""
        box, by = self.limited("memoryMb", 64, diskMb=256)
        if by not in ("cgroup1", "cgroup2"):
            self.skipTest("no cgroup limits memory here")
        pid = self.box_pid(box)
        for i in range(4):
            done = self.run_in(box, "/bin/sh", "-c",
                               f"echo 0 >/proc/self/oom_score_adj; exec dd if=/dev/zero of=/tmp/fill{i} bs=64k")
            self.assertEqual(done["signal"], "SIGKILL", done)
        self.assertEqual(self.box_pid(box), pid)
        self.assertTrue(os.path.exists(f"/proc/{pid}"))
        self.assertEqual(self.lease(box)["status"], "active")

    def test_disk(self):
        box, by = self.limited("diskMb", 32)
        self.flooded(box, by, "disk", 96, *self.writable(box))

    def test_inodes(self):
        box, by = self.limited("diskMb", 32)
        self.flooded(box, by, "inodes", 20000, *self.writable(box))

    def test_open_files(self):
        box, by = self.limited("maxOpenFiles", 256)
        self.flooded(box, by, "open-files", 1024)

    # Root inside: it may do a little more, and none of that reaches beyond the box.

    def test_root_inside(self):
        box = self.root_box()
        canaries = self.canaries(self.daemon.data)
        for case, *args in (("enter-init",), ("exe", "1"), ("keys",), ("bpf",), ("perf",), ("io-uring",), ("userfaultfd",),
                            ("kernel-image",), ("modules",), ("clock",), ("messages",), ("administration",), ("setns",),
                            ("unshare",), ("clone3",), ("other-doors",), ("raw",), ("vsock",), ("netlink",), ("families",),
                            ("mount",), ("mount-api",), ("remount", "/"), ("devices",), ("mknod", "/tmp", "/dev", "/root"),
                            ("handle",), ("settings",), ("kernel-memory",), ("cgroups",), ("shares",), ("read-child",),
                            ("descriptors",), ("terminal",), ("find", canaries.word), ("open", *canaries.files)):
            with self.subTest(case):
                self.held(box, case, *args)
        pid = self.box_pid(box)
        self.held(box, "kill-init")
        self.held(box, "cwd")
        self.assertEqual(self.box_pid(box), pid)
        self.assertNotIn(0, set().union(*(ids_of(p) for p in (pid, *descendants(pid)))))

    def test_root_inside_does_not_become_the_supervisor(self):
        """Neither its user nor a member of its group, which is the daemon's own where that is no root."""
        self.held(self.root_box(), "supervisor", SUPERVISOR)

    def test_pid_1_believes_no_forged_sender(self):
        """A signal from outside has no sender inside; who queues a signal may say so too."""
        box = self.root_box()
        pid = self.box_pid(box)
        for _ in range(3):
            self.assertRegex(self.held(box, "forge-signal"), r"[1-9]\d* of \d+ signals were accepted")
        self.held(box, "cwd")  # a box that stops starts nothing
        self.assertEqual(self.ok("GET", f"/api/environment-leases/{ident(box)}")["status"], "active")
        os.kill(pid, signal.SIGTERM)  # the host's word still counts
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the box has stopped")

    def test_pid_1_believes_no_signal_without_a_sender(self):
        """A signal that the kernel had no room to queue arrives without its sender."""
        box = self.root_box()
        pid = self.box_pid(box)
        self.assertRegex(self.held(box, "crowd-signals"), r"[1-9]\d* signals are queued, 16 more were accepted")
        self.held(box, "cwd")  # a box that stops starts nothing
        os.kill(pid, signal.SIGTERM)  # the host's word still counts
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the box has stopped")

    def test_a_crash_does_not_start_the_hosts_handler(self):
        """core(5): with a limit of 1 byte the kernel does not run the program of core_pattern, which is the host's root."""
        limits = self.sh(self.box(), "cat /proc/self/limits")
        self.assertRegex(limits, r"Max core file size +1 +1 ")

    # Sandboxes inside: allowed when asked for, and then still nothing of the host.

    def test_nested_sandboxes(self):
        box = self.box(nestedSandbox=True)
        canaries = self.canaries(self.daemon.data)
        self.assertEqual(self.verdict(box, "clone3")[0] in ("HELD", "ESCAPED"), True)
        self.held(box, "nested-remount", *READ_ONLY)
        for case in ("nested-mount", "nested-device", "keys", "bpf", "io-uring", "modules", "kernel-image", "cgroups",
                     "settings", "vsock", "enter-init", "other-doors"):
            with self.subTest(case):
                self.held(box, case)
        self.held(box, "find", canaries.word)


class RootDaemonTest(EscapeCases, HostileTest):
    """The daemon is root: boxes get ids of a range of their own."""

    def test_disk_of_an_image(self):
        box, by = self.limited("diskMb", 32, storage="image")
        self.assertEqual(by, "image")
        self.flooded(box, by, "disk", 96, *(d for d in self.writable(box) if d != "/dev/shm"))  # which is memory

    def test_what_the_kernel_counts_for_each_user(self):
        """The kernel counts what a namespace's users have for who made the namespace, too: no box uses up root's share, or that
        of another box."""
        full, other = self.box(), self.box()
        self.ok("POST", f"/api/environment-leases/{ident(full)}/execute",
                {"command": "python3", "args": ["-c", FILL_INOTIFY], "detach": True}, status=202)
        self.sh(full, "until [ -e /tmp/full ]; do sleep 0.1; done")
        self.assertEqual(self.sh(full, f"python3 -c '{TRY_INOTIFY}'"), "-1\n")
        self.assertEqual(self.sh(other, f"python3 -c '{TRY_INOTIFY}'"), "3\n")
        done = subprocess.run(["python3", "-c", TRY_INOTIFY], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, "3\n")

    def test_setuid_files_of_the_operators_root(self):
        box = self.box(rootfs=self.system())
        self.home[ident(box)] = "/bin"
        self.held(box, "privileged", "/bin/escape")


class UserDaemonTest(EscapeCases, HostileTest):
    """The daemon is an ordinary user's, with ids from /etc/subuid."""

    as_user = True

    def test_nested_sandboxes_of_root_are_refused(self):
        """Root inside gives a namespace of its own making any mapped id, and the supervisor's is the daemon's own."""
        answer = self.req("POST", f"/api/companies/{ident(self.company())}/environments",
                          {"name": "deep", "driver": "sandbox",
                           "config": {"provider": "berth", "rootfs": self.system(), "user": "root", "nestedSandbox": True}})
        self.assert_error(answer, 422, contains="needs a daemon that runs as root")


class WithoutSandboxTest(unittest.TestCase):
    """The same programs without a sandbox, as root: they get through, so that HELD above means something."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def escapes(self, case, *args, **options):
        with self.subTest(case):
            word, text = bare(case, *args, **options)
            if word == "HELD" and "ENOSYS" in text:
                return  # this kernel does not have it
            self.assertEqual(word, "ESCAPED", f"{case}: {text}")

    def test_each_gets_through(self):
        file = pathlib.Path(self.folder) / "canary"
        file.touch()
        for args in (("open", "/etc/shadow"), ("empty", self.folder), ("write", self.folder),
                     ("find", "canary", self.folder), ("chroot",), ("handle",), ("signal", "1"), ("read-child",), ("status",),
                     ("keys",), ("bpf",), ("perf",), ("io-uring",), ("userfaultfd",), ("kernel-image",), ("modules",),
                     ("clock",), ("messages",), ("administration",), ("unshare",), ("clone3",), ("setns",), ("raw",),
                     ("netlink",), ("families",), ("mount",), ("mount-api",), ("remount", "/"),
                     ("devices",), ("mknod", self.folder), ("ids",), ("supervisor", SUPERVISOR), ("setuid", self.folder), ("exe", "self"),
                     ("settings",), ("kernel-memory",), ("cgroups",), ("shares",), ("open-files", "256"),
                     ("fork-bomb", "8"), ("memory", "anonymous", "8"), ("memory", "together", "16"),
                     ("memory", "memfd", "8"), ("memory", "shared", "16"), ("disk", "4", self.folder),
                     ("inodes", "32", self.folder)):
            self.escapes(*args)

    def test_processes(self):
        word = f"marker{os.urandom(6).hex()}"
        process = subprocess.Popen(["/bin/sh", "-c", "read x; : $0", word], stdin=subprocess.PIPE)
        try:
            self.escapes("find-process", word)
            self.escapes("enter-init", process.pid)
        finally:
            process.communicate(b"\n")

    def test_sockets(self):
        name = f"berth-test-{os.urandom(6).hex()}"
        with socket.socket(socket.AF_UNIX) as listener, socket.create_server(("127.0.0.1", 0)) as tcp:
            listener.bind(f"\0{name}")
            listener.listen()
            self.escapes("abstract", name)
            self.escapes("tcp", tcp.getsockname()[1], "127.0.0.1")
        path = pathlib.Path(self.folder) / "sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            self.escapes("unix", path)

    def test_a_descriptor_that_came_along(self):
        with open("/dev/null", "rb") as leak:
            self.escapes("descriptors", pass_fds=[leak.fileno()])

    def test_a_working_directory_outside(self):
        shutil.copy2(ESCAPE, self.folder)
        outside = os.open("/", os.O_RDONLY)

        def change():
            os.chroot(self.folder)
            os.fchdir(outside)
        try:
            done = subprocess.run(["/escape", "cwd"], preexec_fn=change, capture_output=True, text=True, timeout=60)
        finally:
            os.close(outside)
        self.assertTrue(done.stdout.startswith("ESCAPED"), done)

    def test_a_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(ESCAPE, ["escape", "terminal"])
        said = b""
        try:
            while chunk := os.read(terminal, 4096):
                said += chunk
        except OSError:
            pass  # the other end is closed
        os.close(terminal)
        os.waitpid(pid, 0)
        legacy = pathlib.Path("/proc/sys/dev/tty/legacy_tiocsti")
        if legacy.exists() and legacy.read_text().strip() == "0":
            self.skipTest("this kernel refuses TIOCSTI to everybody")
        self.assertIn(b"ESCAPED", said)


if __name__ == "__main__":
    unittest.main()
