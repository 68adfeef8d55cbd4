"""What tests of executions stand on: a daemon with a local environment and a lease in it, short ways to run
commands, and a look at the machine for what they may have left.

    class EchoTest(ExecTest):
        def test_echo(self):
            self.assertEqual(self.sh("echo hi")["stdout"], "hi\\n")

After every test that passed, all its leases are released, and then nothing may be left: no process with the marker
of one of its executions, no supervisor, no cgroup, no leak, no open row.
"""

import base64
import contextlib
import os
import pathlib
import shutil
import signal
import stat
import tempfile
import threading

import berthtest
from berthtest import BerthTest, ident, wait_until

CGROUP_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
OPEN = ("starting", "running")


def sanitized():
    return bool(os.environ.get("ASAN_OPTIONS") or os.environ.get("TSAN_OPTIONS"))


def memory_tells():
    """Not under a sanitizer, which keeps what was freed."""
    return not sanitized()


def processes():
    """Every process that lives: (pid, environment as a set of bytes, command line as a list of bytes)."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
            line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        yield int(entry), set(environ.split(b"\0")), line.rstrip(b"\0").split(b"\0")


def marked(ids):
    """The processes that carry the marker of one of these executions."""
    wanted = {f"BERTH_EXEC={i}".encode() for i in ids}
    return [pid for pid, environ, _ in processes() if wanted & environ]


def with_argument(word):
    """The processes with this word in their command line: for those that cleared their environment."""
    return [pid for pid, _, line in processes() if word.encode() in line]


def cgroups(box_ids):
    """What is left of the cgroups of these boxes, wherever cgroup2 is mounted."""
    names = {f"berth-{i}" for i in box_ids}
    found = []
    for mount in CGROUP_MOUNTS:
        if os.path.exists(f"{mount}/cgroup.procs"):
            found += [os.path.join(at, d) for at, dirs, _ in os.walk(mount) for d in dirs if d in names]
    return found


def process_state(pid):
    """The letter of /proc/PID/stat; None when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def descendants(pid):
    """The processes beneath one, as the host counts."""
    parents = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                stat_line = pathlib.Path(f"/proc/{entry}/stat").read_text()
                parents[int(entry)] = int(stat_line.rpartition(")")[2].split()[1])
    found, more = set(), {pid}
    while more:
        found |= more
        more = {p for p, parent in parents.items() if parent in more} - found
    return found - {pid}


def command_name(pid):
    """None when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def forced_subreaper():
    """A daemon whose boxes make no use of cgroups: the name of a binary for daemon_binary."""
    name = "subreaper"
    if name not in berthtest.BINARIES:
        # The daemon looks for the box beside itself.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="sub-"))
        real = os.environ.get("BERTH_BOX_BIN") or str(pathlib.Path(berthtest.BINARIES["normal"]).parent / "berth-box")
        shutil.copy2(berthtest.BINARIES["normal"], folder / "berth")
        wrapper = folder / "berth-box"
        wrapper.write_text(f'#!/bin/sh\nexec "{real}" "$@" --kill subreaper\n')
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        berthtest.BINARIES[name] = str(folder / "berth")
    return name


def event_bytes(event):
    """The bytes of a stdout or stderr event."""
    if event.json["encoding"] == "base64":
        return base64.b64decode(event.json["data"], validate=True)
    return event.json["data"].encode()


class Collected:
    """Events of one execution put together, with their offsets checked."""

    def __init__(self):
        self.data = {"stdout": bytearray(), "stderr": bytearray()}
        self.exit = None
        self.last_id = ""

    def take(self, event):
        self.last_id = event.id
        if event.type == "exit":
            self.exit = event.json
            return
        into = self.data[event.type]
        assert event.json["offset"] == len(into), f"{event.type} at {event.json['offset']}, expected {len(into)}"
        into += event_bytes(event)
        assert event.id == f"{len(self.data['stdout'])}.{len(self.data['stderr'])}", event.id

    def __getattr__(self, name):
        return bytes(self.data[name])


class ExecTest(BerthTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50"}

    def setUp(self):
        super().setUp()
        if self.daemon_autostart:
            self.make_lease()

    def make_lease(self):
        """Every company has a local environment from the start."""
        company = ident(self.company())
        self.local = next(e for e in self.ok("GET", f"/api/companies/{company}/environments")
                          if e["driver"] == "local")
        self.held = self.acquire(self.local)

    # Running.

    def execute(self, command, args=(), lease=None, **body):
        return self.req("POST", f"/api/environment-leases/{ident(lease or self.held)}/execute",
                        {"command": command, "args": list(args), **body})

    def run_ok(self, command, args=(), status=200, **body):
        answer = self.execute(command, args, **body)
        self.assert_status(answer, status)
        return answer.json

    def sh(self, script, **body):
        return self.run_ok("/bin/sh", ["-c", script], **body)

    def detach(self, script, **body):
        """Start and do not wait: the id."""
        return self.run_ok("/bin/sh", ["-c", script], status=202, detach=True, **body)["execId"]

    def path(self, exec_id, tail="", lease=None):
        return f"/api/environment-leases/{ident(lease or self.held)}/executions/{exec_id}{tail}"

    def execution(self, exec_id, lease=None):
        return self.ok("GET", self.path(exec_id, lease=lease))

    def ended(self, exec_id, lease=None, timeout=30):
        """Wait for the end of it; what the row says."""
        def look():
            row = self.execution(exec_id, lease)
            return row if row["status"] not in OPEN else None
        return wait_until(look, f"execution {exec_id} ends", timeout)

    def signal(self, exec_id, name, lease=None):
        return self.ok("POST", self.path(exec_id, "/signal", lease), {"signal": name})

    def stdin(self, exec_id, data, eof=False):
        return self.req("POST", self.path(exec_id, f"/stdin{'?eof=1' if eof else ''}"), data,
                        {"Content-Type": "application/octet-stream"})

    def output(self, exec_id, stream="stdout", offset=0, lease=None):
        answer = self.req("GET", self.path(exec_id, f"/output?stream={stream}&offset={offset}", lease))
        self.assert_status(answer, 200)
        return answer.body

    def output_is(self, exec_id, wanted, stream="stdout", lease=None):
        """Wait until it has printed exactly this so far."""
        wait_until(lambda: self.output(exec_id, stream, lease=lease) == wanted, f"{stream} is {wanted!r}")

    def events(self, exec_id, last_id=None, lease=None, timeout=60):
        fields = {} if last_id is None else {"Last-Event-ID": last_id}
        return self.daemon.events(self.path(exec_id, "/events", lease), fields, timeout=timeout)

    def collect(self, exec_id, lease=None):
        got = Collected()
        with self.events(exec_id, lease=lease) as stream:
            for event in stream:
                got.take(event)
        return got

    def follow(self, exec_id, lease=None):
        """Collect in a thread; end() waits for it."""
        got, failure = Collected(), []

        def read():
            try:
                with self.events(exec_id, lease=lease) as stream:
                    for event in stream:
                        got.take(event)
            except BaseException as e:  # told to who waits
                failure.append(e)
        thread = threading.Thread(target=read)
        thread.start()

        def end():
            thread.join(60)
            assert not thread.is_alive(), "the event stream does not end"
            if failure:
                raise failure[0]
            return got
        self.addCleanup(thread.join, 60)
        return end

    # Looking.

    def boxes_dir(self):
        return self.daemon.data / "boxes"

    def boxes(self):
        """{box id: pid}, of those that have a directory."""
        found = {}
        for folder in self.boxes_dir().glob("*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[folder.name] = int((folder / "pid").read_text().split()[0])
        return found

    def box_pid(self, lease=None):
        place = self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?",
                                (ident(lease or self.held),))[0]["place_id"]
        return self.boxes()[place]

    def exec_ids(self):
        return [row["id"] for row in self.daemon.sql("SELECT id FROM executions")]

    def nothing_left(self):
        """Release everything; then nothing may be left of it."""
        for row in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.release(row["id"])
        self.nothing_in_the_world()

    def nothing_in_the_world(self):
        ids = self.exec_ids()
        places = [row["id"] for row in self.daemon.sql("SELECT id FROM places")]
        open_rows = "SELECT id, status FROM executions WHERE status IN ('starting', 'running')"
        wait_until(lambda: not marked(ids), "no process carries a marker")
        wait_until(lambda: not list(self.boxes_dir().glob("*")), "every supervisor is gone")
        wait_until(lambda: not self.daemon.sql(open_rows), "every execution has its end")
        wait_until(lambda: not cgroups(places), "every cgroup is gone")
        wait_until(lambda: self.ok("GET", "/api/leaks")["total"] == 0, "no leak is found")
        living = self.daemon.sql("SELECT state FROM places WHERE state <> 'gone'")
        self.assertEqual(living, [])

    def tearDown(self):
        if self.daemon.running() and not self._failed():
            self.nothing_left()
        super().tearDown()

    def _failed(self):
        result = self._outcome.result
        return any(test is self for test, _ in result.errors + result.failures) or not self._outcome.success

    def _end(self, daemon):
        try:
            super()._end(daemon)
        finally:
            for folder in (daemon.data / "boxes").glob("*"):  # of a failed test
                with contextlib.suppress(OSError, ValueError, IndexError):
                    os.kill(int((folder / "pid").read_text().split()[0]), signal.SIGKILL)
