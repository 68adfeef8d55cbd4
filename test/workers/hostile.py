#!/usr/bin/python3
"""A worker that attacks its host. It is a provider as far as it has to be; `environmentExecute` with the command `attack`
and one JSON argument, the targets, tries everything below and answers {name: "held: why" | "REACHED what"}. With the
command `see` it answers what it sees of itself.

A probe is a function that returns what it reached, or raises OSError when it was refused. None may harm the machine
where it succeeds: what is written and changed belongs to the test.
"""

import ctypes
import errno
import fcntl
import glob
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
PROBES = {}

# Numbers of x86_64 and aarch64, where Python has no function.
NUMBERS = {"ptrace": (101, 117), "process_vm_readv": (310, 270), "pidfd_getfd": (438, 438), "keyctl": (250, 219),
           "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "mount": (165, 40),
           "userfaultfd": (323, 282), "setns": (308, 268), "clone3": (435, 435), "clone": (56, 220),
           "open_by_handle_at": (304, 265), "fsopen": (430, 430), "open_tree": (428, 428), "kcmp": (312, 272),
           "fchmodat2": (452, 452), "ioprio_set": (251, 30), "pivot_root": (155, 41), "chroot": (161, 51),
           "move_pages": (279, 239), "file_setattr": (469, 469), "add_key": (248, 217), "tgkill": (234, 131),
           "rt_sigqueueinfo": (129, 138), "pidfd_send_signal": (424, 424), "process_vm_writev": (311, 271)}


def syscall(name, *args):
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    done = libc.syscall(number, *[ctypes.c_long(a or 0) if a is None or isinstance(a, int) else a for a in args])
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done


def probe(function):
    PROBES[function.__name__] = function
    return function


def reads(path):
    with open(path, "rb") as file:
        return f"{path}: {len(file.read(64))} bytes"


# Files. `t` are the targets: data, home, victim (a file of the daemon's user), beside (a file next to it that is not
# there), parent (of the package), others (of other plugins), daemon (its process), port.

@probe
def read_master_key(t):
    return reads(f"{t['data']}/secrets/master.key")


@probe
def read_database(t):
    return reads(f"{t['data']}/berth.db")


@probe
def list_data(t):
    return os.listdir(t["data"])


@probe
def stat_master_key(t):
    return oct(os.stat(f"{t['data']}/secrets/master.key").st_mode)


@probe
def read_ssh(t):
    return reads(f"{t['home']}/.ssh/id_test")


@probe
def read_shadow(t):
    return reads("/etc/shadow")


@probe
def read_beside_package(t):
    return os.listdir(t["parent"])


@probe
def read_other_plugins(t):
    return [reads(path) for path in t["others"]]


@probe
def read_victim(t):
    return reads(t["victim"])


@probe
def write_victim(t):
    with open(t["victim"], "a"):
        return t["victim"]


@probe
def truncate_victim(t):
    os.truncate(t["victim"], 0)
    return t["victim"]


@probe
def remove_victim(t):
    os.unlink(t["victim"])
    return t["victim"]


@probe
def rename_victim(t):
    os.rename(t["victim"], t["beside"])
    return t["beside"]


@probe
def link_victim(t):
    os.link(t["victim"], "linked")
    return os.stat("linked").st_ino


@probe
def make_beside(t):
    os.mkdir(t["beside"])
    return t["beside"]


@probe
def write_own_package(t):
    with open(__file__, "a"):
        return __file__


@probe
def write_tmp(t):
    with open("/tmp/berth-hostile", "w"):
        os.unlink("/tmp/berth-hostile")
    return "/tmp"


@probe
def list_tmp(t):
    """The one of the host has at least the directory of this test."""
    if not os.listdir("/tmp"):
        raise PermissionError(errno.EACCES, "it is empty")
    return os.listdir("/tmp")


@probe
def write_shm(t):
    with open("/dev/shm/berth-hostile", "w"):
        os.unlink("/dev/shm/berth-hostile")
    return "/dev/shm"


def change_each(t, change):
    """The file of somebody, the key of the daemon, its directories, and the package that can at least be read."""
    done, last = [], None
    for path in (t["victim"], f"{t['data']}/secrets/master.key", f"{t['data']}/secrets", t["data"], __file__):
        try:
            change(path)
            done.append(path)
        except OSError as e:
            last = e
    if not done:
        raise last
    return done


@probe
def chmod_foreign(t):
    return change_each(t, lambda path: os.chmod(path, os.stat(path).st_mode & 0o777))


@probe
def chmod_foreign_setuid(t):
    os.chmod(t["victim"], 0o4777)
    return t["victim"]


@probe
def fchmod_foreign(t):
    def change(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fchmod(fd, os.fstat(fd).st_mode & 0o777)
        finally:
            os.close(fd)
    return change_each(t, change)


@probe
def fchmodat2_foreign(t):
    return change_each(t, lambda path: syscall("fchmodat2", -100, path.encode(), 0o644, 0))


@probe
def chown_foreign(t):
    return change_each(t, lambda path: os.chown(path, os.getuid(), -1))


@probe
def utime_foreign(t):
    return change_each(t, lambda path: os.utime(path, (0, 0)))


@probe
def setxattr_foreign(t):
    return change_each(t, lambda path: os.setxattr(path, "user.hostile", b"1"))


@probe
def open_by_handle(t):
    handle = ctypes.create_string_buffer(b"\x08\x00\x00\x00\x01\x00\x00\x00" + b"\x02\x00\x00\x00\x00\x00\x00\x00", 136)
    fd = os.open("/", os.O_RDONLY)
    return syscall("open_by_handle_at", fd, handle, os.O_RDONLY)


@probe
def roots_of_processes(t):
    """The host's root through somebody else's process."""
    found = []
    for link in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
        try:
            if os.path.exists(f"{link}{t['data']}/secrets/master.key"):
                found.append(link)
        except OSError:
            pass
    if not found:
        raise PermissionError(errno.EACCES, "no process leads there")
    return found


@probe
def descriptors(t):
    """Whatever was left open by those who started us: no directory, no socket, no file."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the one of this listing
        if not target.startswith(("pipe:", "/dev/null", "/proc/")):
            found[fd] = target
    if not found:
        raise PermissionError(errno.EBADF, "pipes only")
    return found


# Processes. In a namespace of its own the daemon's number is nobody's, or one of ours: those do not count.

def foreign(t):
    for pid in (t["daemon"], t["stranger"]):
        try:
            with open(f"/proc/{pid}/comm") as file:
                comm = file.read().strip()
        except OSError:
            comm = ""
        if comm not in ("python3", "worker.py"):
            yield pid


def each_process(t, act):
    done, last = [], ProcessLookupError(errno.ESRCH, "there is no such process here")
    for pid in foreign(t):
        try:
            act(pid)
            done.append(pid)
        except OSError as e:
            last = e
    if not done:
        raise last
    return done


@probe
def kill_foreign(t):
    return each_process(t, lambda pid: os.kill(pid, 0))


@probe
def kill_by_pidfd(t):
    return each_process(t, lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), 0))


@probe
def kill_thread(t):
    """The number of any thread means its process."""
    def act(pid):
        last = ProcessLookupError(errno.ESRCH, "no thread can be seen")
        for number in os.listdir(f"/proc/{pid}/task"):
            try:
                return os.kill(int(number), 0)
            except OSError as e:
                last = e
        raise last
    return each_process(t, act)


@probe
def kill_one_thread(t):
    return each_process({**t, "stranger": t["daemon"]}, lambda pid: syscall("tgkill", pid, pid, 0))


@probe
def kill_with_value(t):
    info = ctypes.create_string_buffer(128)
    ctypes.c_int.from_buffer(info, 8).value = -1  # SI_QUEUE
    return each_process(t, lambda pid: syscall("rt_sigqueueinfo", pid, 0, info))


@probe
def kill_group(t):
    return each_process({**t, "stranger": t["daemon"]}, lambda pid: os.killpg(os.getpgid(pid), 0))


@probe
def kill_after_joining_the_group(t):
    def act(pid):
        os.setpgid(0, os.getpgid(pid))
        os.kill(0, 0)
    return each_process({**t, "stranger": t["daemon"]}, act)


@probe
def kill_by_directory(t):
    """A directory of /proc counts as a pidfd."""
    def act(pid):
        fd = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        syscall("pidfd_send_signal", fd, 0, None, 0)
    return each_process(t, act)


# Whoever owns a descriptor is signalled when something happens to it.

@probe
def own_descriptor(t):
    with socket.socket() as s:
        return each_process(t, lambda pid: fcntl.fcntl(s, fcntl.F_SETOWN, pid))


@probe
def own_descriptor_ex(t):
    """By thread, by process, by group; F_SETOWN_EX is 15."""
    def act(pid):
        for kind in (0, 1, 2):
            fcntl.fcntl(s, 15, struct.pack("ii", kind, os.getpgid(pid) if kind == 2 else pid))
    with socket.socket() as s:
        return each_process(t, act)


@probe
def own_socket(t):
    """FIOSETOWN and SIOCSPGRP."""
    def act(pid):
        done, last = [], None
        for request in (0x8901, 0x8902):
            try:
                done.append(fcntl.ioctl(s, request, struct.pack("i", pid)))
            except OSError as e:
                last = e
        if not done:
            raise last
    with socket.socket() as s:
        return each_process(t, act)


@probe
def prlimit_read(t):
    return each_process(t, lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE))


@probe
def prlimit_cpu(t):
    """One second of CPU time is the most the stranger may ever have used."""
    return each_process({**t, "daemon": t["stranger"]}, lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))


@probe
def renice(t):
    return each_process(t, lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)))


@probe
def reschedule(t):
    return each_process(t, lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))


@probe
def set_affinity(t):
    return each_process(t, lambda pid: os.sched_setaffinity(pid, {0}))


@probe
def ioprio(t):
    return each_process(t, lambda pid: syscall("ioprio_set", 1, pid, 3 << 13))


@probe
def trace(t):
    return each_process(t, lambda pid: syscall("ptrace", 0x4206, pid, 0, 0))  # PTRACE_SEIZE


@probe
def read_memory(t):
    def act(pid):
        vector = (ctypes.c_size_t * 2)(1, 1)
        try:
            syscall("process_vm_readv", pid, vector, 1, vector, 1, 0)
        except OSError as e:
            if e.errno != errno.EFAULT:  # allowed, but there is nothing at that address
                raise
    return each_process(t, act)


@probe
def write_memory(t):
    def act(pid):
        vector = (ctypes.c_size_t * 2)(1, 1)
        try:
            syscall("process_vm_writev", pid, vector, 1, vector, 1, 0)
        except OSError as e:
            if e.errno != errno.EFAULT:
                raise
    return each_process(t, act)


@probe
def steal_descriptor(t):
    return each_process(t, lambda pid: syscall("pidfd_getfd", os.pidfd_open(pid), 0, 0))


@probe
def read_environment(t):
    return each_process(t, lambda pid: reads(f"/proc/{pid}/environ"))


@probe
def read_command_line(t):
    return each_process(t, lambda pid: reads(f"/proc/{pid}/cmdline"))


# The kernel.

def unshare(flag):
    if libc.unshare(flag) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return hex(flag)


for name, flag in (("user", 0x10000000), ("mount", 0x00020000), ("pid", 0x20000000), ("net", 0x40000000),
                   ("ipc", 0x08000000), ("uts", 0x04000000), ("cgroup", 0x02000000), ("time", 0x00000080)):
    PROBES[f"unshare_{name}"] = lambda t, flag=flag: unshare(flag)


@probe
def clone_user(t):
    pid = syscall("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


@probe
def clone3_user(t):
    args = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = syscall("clone3", args, ctypes.sizeof(args))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


PROBES["mount"] = lambda t: syscall("mount", b"none", b".", b"tmpfs", 0, 0)
PROBES["fsopen"] = lambda t: syscall("fsopen", b"tmpfs", 0)
PROBES["open_tree"] = lambda t: syscall("open_tree", -100, b"/", 1)
PROBES["pivot_root"] = lambda t: syscall("pivot_root", b".", b".")
PROBES["chroot"] = lambda t: syscall("chroot", b".")
PROBES["keyctl"] = lambda t: syscall("keyctl", 0, -3, 1)
PROBES["add_key"] = lambda t: syscall("add_key", b"user", b"hostile", b"x", 1, -3)
PROBES["bpf"] = lambda t: syscall("bpf", 5, ctypes.create_string_buffer(128), 128)
PROBES["userfaultfd"] = lambda t: syscall("userfaultfd", 1)
PROBES["io_uring"] = lambda t: syscall("io_uring_setup", 1, ctypes.create_string_buffer(120))
PROBES["perf"] = lambda t: syscall("perf_event_open", ctypes.create_string_buffer(b"\1\0\0\0\x70\0\0\0", 128), 0, -1, -1, 0)
PROBES["kcmp"] = lambda t: syscall("kcmp", os.getpid(), os.getpid(), 0, 0, 0)

# name: family, type, protocol
SOCKETS = {"unix": (1, 1, 0), "unix_datagrams": (1, 2, 0), "unix_raw": (1, 3, 0), "netlink": (16, 3, 0), "audit": (16, 3, 9), "packet": (17, 3, 0), "vsock": (40, 1, 0),
           "alg": (38, 5, 0), "raw": (2, 3, 1), "raw6": (10, 3, 58), "bluetooth": (31, 3, 1), "can": (29, 3, 1),
           "qipcrtr": (42, 2, 0), "xdp": (44, 3, 0), "rds": (21, 5, 0), "tipc": (30, 1, 0)}
for name, arguments in SOCKETS.items():
    PROBES[f"socket_{name}"] = lambda t, arguments=arguments: socket.socket(*arguments).family


@probe
def daemon_socket(t):
    """Through a datagram socket of a pair, which is there for children."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(f"{t['data']}/berth.sock")
    return t["data"]


@probe
def datagram_pair(t):
    """Its ends can send to any path."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].fileno()


@probe
def raw_pair(t):
    """Datagrams by another name."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0].fileno()


@probe
def setuid_program(t):
    """`su` and its like run, but give nothing."""
    done = subprocess.run(["/usr/bin/env", "sh", "-c", "su -c id </dev/null"], capture_output=True, text=True)
    if "uid=0" in done.stdout and os.getuid() != 0:
        return done.stdout
    raise PermissionError(errno.EPERM, "no")


def attack(targets):
    """Each in a process of its own: one that succeeds must not spoil those after it."""
    answers = {}
    for name in PROBES:
        done = subprocess.run([sys.executable, __file__, name, json.dumps(targets)], capture_output=True, text=True)
        answers[name] = done.stdout.strip() or f"BROKEN {done.returncode} {done.stderr[-300:]}"
    return answers


def see():
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
            "capabilities": [status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")],
            "noNewPrivileges": status["NoNewPrivs"], "seccomp": status["Seccomp"], "pid": os.getpid(),
            "cwd": os.getcwd(), "environment": dict(os.environ),
            "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit())}


def readable(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as e:
        return e.strerror


def work():
    """What an honest worker does in its directory: everything that changes modes, times and the like."""
    os.makedirs("work/deep", exist_ok=True)
    with open("work/file", "w") as file:
        file.write("x")
    os.chmod("work/file", 0o755)
    os.utime("work/file", (1, 1))
    os.rename("work/file", "work/deep/file")
    child = subprocess.Popen(["/bin/sleep", "1000"])
    child.terminate()
    resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
    socket.getaddrinfo("localhost", 80)
    with open(os.environ["TMPDIR"] + "/t", "w"):
        pass
    return child.wait()


def end_group():
    """A child in a group of its own is ended by that."""
    child = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
    os.killpg(child.pid, signal.SIGTERM)
    return child.wait()


COMMANDS = {"attack": lambda args: attack(json.loads(args[0])), "see": lambda args: see(),
            "read": lambda args: {path: readable(path) for path in args}, "work": lambda args: work(), "end-group": lambda args: end_group(),
            "orphan": lambda args: subprocess.Popen(["/usr/bin/env", "setsid", "/bin/sleep", args[0]]).pid,
            "end": lambda args: os._exit(int(args[1])) if args[0] == "exit" else os.kill(os.getpid(), int(args[1]))}


def execute(params):
    answer = COMMANDS[params["command"]](params.get("args", []))
    return {"exitCode": 0, "timedOut": False, "stdout": json.dumps(answer), "stderr": ""}


METHODS = {
    "initialize": lambda p: {"ok": True, "supportedMethods": list(METHODS)},
    "health": lambda p: {"status": "ok"},
    "shutdown": lambda p: None,
    "environmentValidateConfig": lambda p: {"ok": True, "normalizedConfig": p["config"]},
    "environmentProbe": lambda p: {"ok": True, "summary": "ready"},
    "environmentAcquireLease": lambda p: {"providerLeaseId": "hostile", "metadata": {"remoteCwd": "/"}},
    "environmentResumeLease": lambda p: {"providerLeaseId": "hostile", "metadata": {"remoteCwd": "/"}},
    "environmentExecute": execute,
    "environmentReleaseLease": lambda p: None,
    "environmentDestroyLease": lambda p: None,
}
LOCK = threading.Lock()


def answer(message):
    try:
        said = {"result": METHODS[message["method"]](message.get("params", {}))}
    except Exception as e:
        said = {"error": {"code": -32002, "message": f"{type(e).__name__}: {e}"}}
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
    if message["method"] == "shutdown":
        os._exit(0)


def main():
    if len(sys.argv) == 3:
        try:
            print(f"REACHED {PROBES[sys.argv[1]](json.loads(sys.argv[2]))}")
        except OSError as e:
            print(f"held: {e.strerror or e}")
        return
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
