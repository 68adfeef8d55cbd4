"""The host side of the box protocol (docs/box-protocol.md), for tests: small, synchronous, independent of src/codec.

    box = Box(self)                      # starts berth-box in a directory of its own
    host = box.connect()                 # HELLO and WELCOME are done
    ch = host.start("echo", ["hi"])      # START; returns the channel
    host.wait(ch, EXIT)                  # frames of other channels are kept until somebody asks for them
"""

import collections
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid as uuids

HELLO, WELCOME, PING, PONG, LIST, LISTED, STOP_BY, STOP, STOPPED, ERROR, CONT = range(1, 12)
START, STARTED, ATTACH, STATE, DATA, GREW, ACK, STDIN, TAKEN, SIGNAL, RESIZE, EXIT, FORGET, FAILED = range(16, 30)
TERMINAL, SHARED, OPEN_STDIN, REDACT, OUTPUT = 1, 2, 4, 8, 16
LISTEN, LISTENING, UNLISTEN, OPEN, ACCEPT, BYTES, WINDOW, END, RESET, CONNECT = range(48, 58)
FILES, FROM_HOST = 1, 0x80000000
CALLBACK, PROXY = 1, 2
TIMED_OUT, STOPPED_BY_BOX, INCOMPLETE, OUTPUT_LIMIT = 1, 2, 4, 8
WAIT, DROP = 1, 2
STDOUT, STDERR = 1, 2
CGROUP, SUBREAPER = 1, 3
MAX_PAYLOAD = 65536
NO_LIMIT = 1 << 62
NODE = uuids.UUID(int=7)
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
TIMEOUT = 60

Frame = collections.namedtuple("Frame", "type channel payload")
Exit = collections.namedtuple("Exit", "code signal flags ended out err")
State = collections.namedtuple("State", "id state pid started stdin out err exit")
Welcome = collections.namedtuple("Welcome", "version features box pid kill limit executions")


def string(value):
    raw = os.fsencode(value)
    return struct.pack(">I", len(raw)) + raw


def strings(values):
    return struct.pack(">I", len(values)) + b"".join(string(v) for v in values)


def header(kind, channel, length):
    return struct.pack(">IBBHI", length, kind, 0, 0, channel)


def frame(kind, channel=0, payload=b""):
    """One frame, or its parts when the payload is too long for one."""
    out = b""
    while len(payload) > MAX_PAYLOAD:
        out += header(CONT, channel, MAX_PAYLOAD) + payload[:MAX_PAYLOAD]
        payload = payload[MAX_PAYLOAD:]
    return out + header(kind, channel, len(payload)) + payload


def start_payload(exec_id, command, args=(), env=None, flags=0, limit=0, grace=1000, size=(80, 24), cwd="", spool="",
                  redact=None, output=None):
    """`output`: (limit, of the place, taken of that, ms to wait, 1 wait or 2 drop)."""
    if env is None:
        env = {"PATH": PATH}
    if redact is not None:
        flags |= REDACT
    if output is not None:
        flags |= OUTPUT
    return (exec_id.bytes + struct.pack(">IQIHH", flags, limit, grace, *size) + string(cwd) + string(spool)
            + string(command) + strings(list(args)) + strings([f"{k}={v}" for k, v in env.items()])
            + (strings(redact) if redact is not None else b"")
            + (struct.pack(">QQQIB", *output) if output is not None else b""))


def parse_exit(payload):
    return Exit(*struct.unpack(">iBBQQQ", payload))


def parse_state(payload):
    fields = struct.unpack(">16sBIQQQQ", payload[:53])
    assert fields[1] in (1, 2)
    rest = parse_exit(payload[53:]) if fields[1] == 2 else None
    assert rest or len(payload) == 53
    return State(uuids.UUID(bytes=fields[0]), *fields[1:], rest)


def parse_error(payload):
    code, length = struct.unpack(">HI", payload[:6])
    assert len(payload) == 6 + length
    return code, payload[6:].decode()


def parse_data(payload):
    stream, offset = struct.unpack(">BQ", payload[:9])
    return stream, offset, payload[9:]


def parse_listening(payload):
    listener, port, code, length = struct.unpack(">16sHHI", payload[:24])
    assert len(payload) == 24 + length
    return uuids.UUID(bytes=listener), port, code, payload[24:].decode()


class Closed(Exception):
    """The box has closed the connection."""


class Host:
    def __init__(self, path, timeout=TIMEOUT):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        # The name may be longer than an address has room for.
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        finally:
            os.close(folder)
        self.buffer = bytearray()
        self.kept = collections.deque()
        self.channels = 0
        self.welcome = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, kind, channel=0, payload=b""):
        self.raw(frame(kind, channel, payload))

    def raw(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed() from None

    def next(self):
        """The next frame from the stream, whatever it is."""
        while True:
            if len(self.buffer) >= 12:
                length, kind, flags, reserved, channel = struct.unpack(">IBBHI", self.buffer[:12])
                assert length <= MAX_PAYLOAD and flags == 0 and reserved == 0, "a malformed frame from the box"
                if len(self.buffer) >= 12 + length:
                    payload = bytes(self.buffer[12:12 + length])
                    del self.buffer[:12 + length]
                    return Frame(kind, channel, payload)
            try:
                more = self.sock.recv(1 << 18)
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed()
            self.buffer += more

    def wait(self, channel, *kinds):
        """The next frame of the channel (of one of these types, if given); others are kept in order."""
        for i, f in enumerate(self.kept):
            if f.channel == channel and (not kinds or f.type in kinds):
                del self.kept[i]
                return f
        while True:
            f = self.next()
            if f.channel == channel and (not kinds or f.type in kinds):
                return f
            self.kept.append(f)

    def hello(self, epoch=1, low=1, high=1, magic=b"BRTH"):
        self.send(HELLO, 0, magic + struct.pack(">HH", low, high) + NODE.bytes + struct.pack(">Q", epoch))
        f = self.next()
        if f.type == WELCOME:
            values = struct.unpack(">HI16sIBQI", f.payload)
            self.welcome = Welcome(values[0], values[1], uuids.UUID(bytes=values[2]), *values[3:])
        return f

    def ping(self, value=42):
        """Everything sent before has been handled once this returns."""
        self.send(PING, 0, struct.pack(">Q", value))
        assert self.wait(0, PONG).payload == struct.pack(">Q", value)

    def list(self):
        self.send(LIST)
        states = []
        while True:
            f = self.wait(0, STATE, LISTED)
            if f.type == LISTED:
                assert struct.unpack(">I", f.payload)[0] == len(states)
                return states
            states.append(parse_state(f.payload))

    def channel(self):
        self.channels += 1
        return self.channels

    def start(self, command, args=(), exec_id=None, **more):
        """Send START and return the channel; nothing is awaited."""
        channel = self.channel()
        self.send(START, channel, start_payload(exec_id or uuids.uuid4(), command, args, **more))
        return channel

    def shell(self, script, **more):
        return self.start("/bin/sh", ["-c", script], **more)

    def started(self, channel):
        """The command's pid."""
        f = self.wait(channel, STARTED, FAILED)
        assert f.type == STARTED, f"FAILED: {parse_error(f.payload)}"
        return struct.unpack(">IQB", f.payload)[0]

    def attach(self, exec_id):
        channel = self.channel()
        self.send(ATTACH, channel, exec_id.bytes)
        f = self.wait(channel, STATE, ERROR)
        assert f.type == STATE, f"ERROR: {parse_error(f.payload)}"
        return channel, parse_state(f.payload)

    def ack(self, channel, stream, stored, limit=NO_LIMIT):
        self.send(ACK, channel, struct.pack(">BQQ", stream, stored, limit))

    def open_output(self, channel, out=0, err=0, limit=NO_LIMIT):
        self.ack(channel, STDOUT, out, limit)
        self.ack(channel, STDERR, err, limit)

    def collect(self, channel, out=0, err=0):
        """Take all output from these offsets to the end: (stdout, stderr, Exit). Checks the offsets."""
        self.open_output(channel, out, err)
        at, got = {STDOUT: out, STDERR: err}, {STDOUT: [], STDERR: []}
        while True:
            f = self.wait(channel, DATA, EXIT)
            if f.type == EXIT:
                return b"".join(got[STDOUT]), b"".join(got[STDERR]), parse_exit(f.payload)
            stream, offset, data = parse_data(f.payload)
            assert offset == at[stream], f"stream {stream}: offset {offset}, expected {at[stream]}"
            assert data, "an empty DATA"
            at[stream] += len(data)
            got[stream].append(data)
            self.ack(channel, stream, at[stream])

    def exit(self, channel):
        return parse_exit(self.wait(channel, EXIT).payload)

    def run(self, command, args=(), **more):
        channel = self.start(command, args, **more)
        self.started(channel)
        return self.collect(channel)

    def run_shell(self, script, **more):
        return self.run("/bin/sh", ["-c", script], **more)

    def stdin(self, channel, offset, data, eof=False):
        self.send(STDIN, channel, struct.pack(">QB", offset, eof) + data)

    def signal(self, channel, number):
        self.send(SIGNAL, channel, bytes([number]))

    def forget(self, channel):
        self.send(FORGET, channel)

    def listen(self, listener=None, kind=CALLBACK, port=0, idle=0):
        """LISTEN and its answer: (listener, port). Port 0 when the box could not, with the code instead of the listener."""
        listener = listener or uuids.uuid4()
        self.send(LISTEN, 0, listener.bytes + struct.pack(">BHI", kind, port, idle))
        answered, port, code, _ = parse_listening(self.wait(0, LISTENING).payload)
        assert answered == listener
        return (listener if port else code), port

    def offered(self):
        """The next connection that the box offers: (channel, listener, how much may be sent)."""
        f = self.wait_any(OPEN)
        listener, limit = struct.unpack(">16sQ", f.payload)
        return f.channel, uuids.UUID(bytes=listener), limit

    def accept(self, limit=NO_LIMIT):
        channel, _, _ = self.offered()
        self.send(ACCEPT, channel, struct.pack(">Q", limit))
        return channel

    def wait_any(self, kind):
        """The next frame of the type on whatever channel."""
        for i, f in enumerate(self.kept):
            if f.type == kind:
                del self.kept[i]
                return f
        while True:
            f = self.next()
            if f.type == kind:
                return f
            self.kept.append(f)

    def bytes(self, channel, offset, data):
        self.send(BYTES, channel, struct.pack(">Q", offset) + data)

    def end(self, channel, offset):
        self.send(END, channel, struct.pack(">Q", offset))

    def window(self, channel, limit):
        self.send(WINDOW, channel, struct.pack(">Q", limit))

    def read_tunnel(self, channel, want=None, at=0):
        """Bytes of a connection from offset `at`, up to its end or until there are `want` of them."""
        got = []
        while want is None or sum(map(len, got)) < want:
            f = self.wait(channel, BYTES, END)
            offset = struct.unpack(">Q", f.payload[:8])[0]
            assert offset == at, f"offset {offset}, expected {at}"
            if f.type == END:
                break
            got.append(f.payload[8:])
            at += len(got[-1])
        return b"".join(got)

    def stop(self, grace=1000):
        self.send(STOP, 0, struct.pack(">I", grace))
        self.wait(0, STOPPED)


BINARY = os.environ.get("BERTH_BOX_BIN") or str(pathlib.Path(__file__).resolve().parents[2] / "build/berth-box")


class Box:
    """A berth-box in a directory of its own; ended when the test is over."""

    def __init__(self, test, *flags, dir=None, box_id=None, start=True):
        self.binary = BINARY
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="box-"))
        self.dir = pathlib.Path(dir) if dir else self.base / "box"
        self.id = box_id or uuids.uuid4()
        self.flags = list(flags)
        self.pid = None
        self.kill_method = None
        self.hosts = []
        test.addCleanup(self.dispose)
        if start:
            self.start()

    @property
    def path(self):
        return str(self.dir / "box.sock")

    def launch(self):
        """The raw answer: (status, what it printed)."""
        env = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
        done = subprocess.run([self.binary, "--dir", str(self.dir), "--id", str(self.id), *self.flags],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=30, env=env)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def start(self):
        status, out, err = self.launch()
        assert status == 0 and out.startswith("ready "), f"berth-box: {status} {out!r} {err!r}"
        _, pid, method = out.split()
        self.pid, self.kill_method = int(pid), int(method)
        self.pidfd = os.pidfd_open(self.pid)
        return self

    def host(self):
        """A connection that has said nothing yet."""
        host = Host(self.path)
        self.hosts.append(host)
        return host

    def connect(self, epoch=1):
        host = self.host()
        f = host.hello(epoch)
        assert f.type == WELCOME, f
        return host

    def alive(self):
        return process_lives(self.pid)

    def wait_gone(self, timeout=TIMEOUT):
        until = time.monotonic() + timeout
        while self.alive():
            assert time.monotonic() < until, "the box is still there"
            time.sleep(0.002)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.wait_gone()

    def dispose(self):
        for host in self.hosts:
            host.close()
        if self.pid and self.alive():
            os.kill(self.pid, signal.SIGTERM)
            try:
                self.wait_gone(15)
            except AssertionError:
                self.kill()
        shutil.rmtree(self.base, ignore_errors=True)
        for folder in self.cgroups():  # a box that was killed leaves them to the next one
            for inner, _, _ in os.walk(folder, topdown=False):
                os.rmdir(inner)

    def cgroups(self):
        return find_cgroups(f"berth-{self.id}")


def find_cgroups(name):
    """Wherever cgroup2 is mounted. Others come and go meanwhile, which os.walk() does not mind."""
    return [pathlib.Path(folder) / name for folder, inner, _ in os.walk("/sys/fs/cgroup") if name in inner]


def process_lives(pid):
    """Not gone and not a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def marked(exec_id):
    """The processes that carry an execution's marker."""
    wanted = f"BERTH_EXEC={exec_id}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environ.split(b"\0"):
            found.append(int(entry))
    return found
