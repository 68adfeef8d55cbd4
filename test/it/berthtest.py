"""What black-box tests of Berth stand on: a daemon on a data directory of its own, HTTP over TCP and over
the Unix socket, the command line, and a look into the database from outside.

    class LeaseTest(BerthTest):
        def test_release_ends_it(self):
            env = self.environment(self.company())
            lease = self.acquire(env)["lease"]
            self.assertEqual(self.release(lease)["lease"]["status"], "released")

A test waits for an event with wait_until(), never for time to pass. Every daemon is stopped at the end of
the test that started it, and must then exit with status 0. Standard library only
(docs/decisions/0004-black-box-tests-in-python.md).
"""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("BERTH_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(SOURCE / "test/harness"))
import postgres  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BERTH_BUILD", SOURCE / "build"))
TEMPLATE = os.environ.get("BERTH_TEST_TEMPLATE")  # a database with its tables, for new data directories (test/run)
# With TEST_STORE=postgres each data directory gets a database on the server of the test run, a copy of the template there.
ON_POSTGRES = os.environ.get("BERTH_TEST_STORE") == "postgres"
sqlite_only = unittest.skipIf(ON_POSTGRES, "speaks of the SQLite file")
BINARIES = {
    "normal": os.environ.get("BERTH_BIN", str(BUILD / "berth")),
    "faults": os.environ.get("BERTH_FAULTS_BIN", str(BUILD / "berth-faults")),  # with crash points
}
# For tests that kill at random: so many times as many rounds, and other ones. scripts/nightly sets them.
ROUNDS, SEED = int(os.environ.get("TEST_ROUNDS", "1")), int(os.environ.get("TEST_SEED", "0"))
PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))  # by which every limit is longer; scripts/sanitized sets it
START_TIMEOUT = 20
STOP_TIMEOUT = 20
FAKE_CONFIG = {"provider": "fake"}


def wait_until(condition, what, timeout=10):
    """Poll until condition() is true and return its value; fail with `what` otherwise."""
    timeout *= PATIENCE
    deadline = time.monotonic() + timeout
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain: {what}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def new_company(name="Acme"):
    """The body for a company whose agents run on this machine unless a test gives them another place. It has no
    environment but Local; one that names no `defaultEnvironment` would get a sandbox."""
    return {"name": name, "defaultEnvironment": "local"}


def set_clock(file, seconds):
    """What a daemon adds to its clock (BERTH_TEST_CLOCK_FILE), which it may read at any time: never half of it."""
    new = file.with_suffix(".new")
    new.write_text(str(seconds))
    new.rename(file)


def bring_home(data):
    """A data directory that a test copied goes on as the one it was copied from (src/daemon/home.h)."""
    with contextlib.closing(sqlite3.connect(data / "berth.db", timeout=10)) as db, db:
        at = os.stat(data)
        db.execute("UPDATE database_home SET inode = ?, device = ?", (at.st_ino, at.st_dev))


@dataclasses.dataclass
class Response:
    status: int
    headers: http.client.HTTPMessage  # case-insensitive
    body: bytes

    @property
    def text(self):
        return self.body.decode("utf-8")

    @property
    def json(self):
        """The parsed body; None when it is not JSON."""
        if "json" not in self.headers.get("Content-Type", ""):
            return None
        return json.loads(self.body)

    @property
    def error(self):
        return (self.json or {}).get("error")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = _connect(self.path, self.timeout)


def _connect(target, timeout, source=None, uid=None):
    """target: (host, port), or the path of a Unix socket; source: the address it comes from; uid: the socket's owner, which
    takes root."""
    if uid is not None:
        before = os.geteuid()
        "loaded".encode("idna")  # by connecting, and that user may not read python's files
        os.seteuid(uid)
        try:
            return _connect(target, timeout, source)
        finally:
            os.seteuid(before)
    if isinstance(target, tuple):
        return socket.create_connection(target, timeout=timeout * PATIENCE, source_address=source and (source, 0))
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout * PATIENCE)
    try:
        sock.connect(str(target))
    except OSError:
        sock.close()
        raise
    return sock


class Client:
    """A keep-alive HTTP client, one connection per thread. It never sends a request twice."""

    def __init__(self, target, timeout=30):
        self.target = target
        self.timeout = timeout
        self.local = threading.local()
        self.connections = []

    def _connection(self):
        connection = getattr(self.local, "connection", None)
        # A peer that closed while idle shows as readable.
        if connection and connection.sock and not select.select([connection.sock], [], [], 0)[0]:
            return connection
        if connection:
            connection.close()
        if isinstance(self.target, tuple):
            connection = http.client.HTTPConnection(*self.target, timeout=self.timeout * PATIENCE)
        else:
            connection = _UnixConnection(self.target, self.timeout)
        self.local.connection = connection
        self.connections.append(connection)
        connection.connect()
        return connection

    def req(self, method, path, body=None, headers=None, token=None):
        """body: bytes are sent as they are, anything else as JSON."""
        fields = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            fields.setdefault("Content-Type", "application/json")
        if token is not None:
            fields["Authorization"] = f"Bearer {token}"
        connection = self._connection()
        try:
            connection.request(method, path, body=body, headers=fields)
            answer = connection.getresponse()
            return Response(answer.status, answer.headers, answer.read())
        except BaseException:
            connection.close()
            raise

    def close(self):
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        self.local = threading.local()


class RawConnection:
    """A socket for tests of framing: bytes out as they are, answers in one after the other."""

    def __init__(self, target, timeout=10, source=None, uid=None):
        self.sock = _connect(target, timeout, source, uid)
        self.reader = self.sock.makefile("rb")

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode())
        return self

    def response(self, method="GET"):
        """Read one answer and leave what follows it."""
        reader = self.reader

        class Shared:  # HTTPResponse closes what it reads from
            def makefile(self, *_):
                return self

            def close(self):
                pass

            def __getattr__(self, name):
                return getattr(reader, name)

        answer = http.client.HTTPResponse(Shared(), method=method)
        answer.begin()
        return Response(answer.status, answer.headers, answer.read())

    def rest(self):
        """Everything until the peer closes."""
        return self.reader.read()

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)
        return self

    def closed_by_peer(self):
        """Wait for the end of the stream; False when bytes come instead."""
        try:
            return self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.reader.close()
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@dataclasses.dataclass
class Event:
    type: str
    data: str
    id: str

    @property
    def json(self):
        return json.loads(self.data)


class EventStream:
    """A text/event-stream, read event by event."""

    def __init__(self, target, path, headers=None, timeout=20):
        if isinstance(target, tuple):
            self.connection = http.client.HTTPConnection(*target, timeout=timeout * PATIENCE)
        else:
            self.connection = _UnixConnection(target, timeout)
        self.connection.request("GET", path, headers={"Accept": "text/event-stream", **(headers or {})})
        self.sock = self.connection.sock
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.headers = self.answer.headers

    def next(self):
        """The next event, waiting for it; None at the end of the stream."""
        kind, data, ident = "message", [], ""
        while line := self.answer.readline():
            line = line.decode("utf-8").rstrip("\r\n")
            if not line:
                if data:
                    return Event(kind, "\n".join(data), ident)
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                ident = value
        return None

    def __iter__(self):
        return iter(self.next, None)

    def hang_up(self):
        """Whoever reads from it is told that it is over."""
        self.sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.answer.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Daemon:
    """One `berth serve`. start() returns once it listens; restart() reuses the data directory."""

    def __init__(self, data=None, env=None, flags=(), binary="normal", listen="127.0.0.1:0"):
        self.own_data = data is None
        # Kept short: a Unix socket's path has room for 107 bytes.
        self.data = pathlib.Path(data or tempfile.mkdtemp(prefix="d-"))
        self.env = dict(env or {})
        self.flags = list(flags)
        self.binary = BINARIES[binary]
        self.listen = listen
        self.log_path = pathlib.Path(f"{self.data}.log")
        self.database = None  # its URL, where that is PostgreSQL
        self.process = None
        self.stdout = []
        self.url = None
        self.address = None
        self.tcp = None
        self.unix = Client(self.data / "berth.sock")
        self.killed = False

    # Life cycle.

    def spawn(self):
        """Start without waiting, for daemons that are expected to fail or to crash."""
        assert self.process is None or self.process.poll() is not None, "already running"
        self.process = None  # whoever still reads what the one before has printed is too late
        self.url = None
        self.stdout = []
        self.killed = False
        elsewhere = "BERTH_DATABASE" in self.env or "--database" in self.flags
        if ON_POSTGRES and not elsewhere:
            self.database = postgres.database_of(self.data)
        elif not elsewhere and self.own_data and TEMPLATE and not any(self.data.iterdir()):
            shutil.copy(TEMPLATE, self.data / "berth.db")
            owner = self.data.stat()
            os.chown(self.data / "berth.db", owner.st_uid, owner.st_gid)
        command = [self.binary, "serve", "--listen", self.listen, "--data", str(self.data), *self.flags]
        with open(self.log_path, "ab") as log:
            log.write(f"--- {' '.join(command)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=log, env={**os.environ, **self.more_env(), **self.env})
        self.reader = threading.Thread(target=self._read_stdout, args=(self.process,), daemon=True)
        self.reader.start()
        return self

    def start(self):
        self.spawn()
        try:
            wait_until(lambda: self.url or self.process.poll() is not None, "the daemon listens", START_TIMEOUT)
        except AssertionError:
            self.kill()
            raise
        if not self.url:
            status = self.process.wait()
            raise AssertionError(f"the daemon ended with status {status} before it listened\n{self.log_tail()}")
        return self

    def more_env(self):
        return {"BERTH_DATABASE": self.database} if self.database else {}

    def _read_stdout(self, process):
        for line in process.stdout:
            text = line.decode("utf-8", "replace").rstrip("\n")
            self.stdout.append(text)
            found = re.match(r"listening on (http://(\S+):(\d+))", text)
            if found and self.process is process:
                self.address = (found[2].strip("[]"), int(found[3]))
                self.tcp = Client(self.address)
                self.url = found[1]
        process.stdout.close()

    def stop(self, expect=0):
        """SIGTERM, and it has to end by itself with the expected status."""
        if self.process is None:
            return None
        self._disconnect()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(expect)

    def wait(self, expect=None, timeout=STOP_TIMEOUT):
        """Wait for its end. Status as subprocess gives it: -9 for SIGKILL."""
        timeout *= PATIENCE
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the daemon did not end within {timeout} s\n{self.log_tail()}") from None
        self.reader.join()
        if expect is not None and status != expect:
            raise AssertionError(f"the daemon ended with status {status}, not {expect}\n{self.log_tail()}")
        return status

    def kill(self):
        """kill -9: what a power cut looks like to everyone else."""
        self.killed = True
        self._disconnect()
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()
            self.reader.join()

    def restart(self, crash=False):
        if crash:
            self.kill()
        else:
            self.stop()
        return self.start()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def _disconnect(self):
        for client in (self.tcp, self.unix):
            if client:
                client.close()

    def dispose(self):
        """End it and remove its files. Fails when it did not end well and was not killed on purpose."""
        try:
            if self.process and not self.killed:
                self.stop()
        finally:
            self.kill()
            if self.own_data:
                shutil.rmtree(self.data, ignore_errors=True)
                if self.database:
                    postgres.drop_database_of(self.data)
            with contextlib.suppress(FileNotFoundError):
                self.log_path.unlink()

    # Talking to it.

    def req(self, method, path, body=None, headers=None, token=None):
        return self.tcp.req(method, path, body, headers, token)

    def req_unix(self, method, path, body=None, headers=None, token=None):
        return self.unix.req(method, path, body, headers, token)

    def raw(self, unix=False, timeout=10):
        return RawConnection(self.data / "berth.sock" if unix else self.address, timeout)

    def events(self, path, headers=None, token=None, timeout=20):
        fields = dict(headers or {})
        if token is not None:
            fields["Authorization"] = f"Bearer {token}"
        return EventStream(self.address, path, fields, timeout)

    def cli(self, *args, stdin=None, env=None, timeout=60):
        """Run the command line against this daemon's data directory: (status, stdout, stderr)."""
        done = subprocess.run([self.binary, *map(str, args)], input=stdin, capture_output=True, text=True,
                              timeout=timeout * PATIENCE,
                              env={**os.environ, **self.more_env(), **self.env, "BERTH_DATA": str(self.data), **(env or {})})
        return done.returncode, done.stdout, done.stderr

    # Looking at it.

    def log(self):
        """Everything it wrote to stderr, over all starts."""
        try:
            return self.log_path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def log_tail(self, lines=60):
        return "\n".join(f"  log: {line}" for line in self.log().splitlines()[-lines:])

    def sql(self, query, parameters=()):
        """Rows of the database as dicts, read from outside and read-only."""
        if self.database:
            with contextlib.closing(postgres.Connection(self.database)) as db:
                return db.execute(query, parameters)
        with contextlib.closing(sqlite3.connect(f"file:{self.data / 'berth.db'}?mode=ro", uri=True,
                                                timeout=10)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(query, parameters)]

    def tables(self):
        if self.database:
            return [row["tablename"] for row in self.sql("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
        return [row["name"] for row in self.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]

    @contextlib.contextmanager
    def record(self):
        """A transaction of its own in the database, to change rows behind the daemon's back: with daemon.record() as db:
        db.execute(…)."""
        if self.database:
            with contextlib.closing(postgres.Connection(self.database)) as db:
                db.execute("BEGIN")
                yield db
                db.execute("COMMIT")
            return
        with contextlib.closing(sqlite3.connect(self.data / "berth.db", timeout=20)) as db, db:
            yield db

    def rss_kb(self):
        return int(re.search(r"VmRSS:\s+(\d+)", self._proc("status"))[1])

    def cpu_ticks(self):
        fields = self._proc("stat").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def fd_count(self):
        """What it holds open. Threads start when they are needed: what each has for itself (an event, connections to the
        database) does not count."""
        own = ("anon_inode:[eventfd]", str(self.data / "berth.db"))
        open_now = 0
        for fd in os.listdir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                open_now += not os.readlink(f"/proc/{self.process.pid}/fd/{fd}").startswith(own)
        return open_now

    def tcp_connections(self):
        """How many it holds open on its port. Unlike fd_count() this needs no privileges."""
        port = f":{self.address[1]:04X}"
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(r[1].endswith(port) and r[3] != "0A" and r[9] != "0" for r in rows)

    def thread_count(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def _proc(self, name):
        return pathlib.Path(f"/proc/{self.process.pid}/{name}").read_text()


class BerthTest(unittest.TestCase):
    """A daemon per test. Subclasses change what it is started with, or set daemon_autostart = False."""

    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}
    daemon_flags = ()
    daemon_binary = "normal"
    daemon_autostart = True

    def setUp(self):
        self.daemons = []
        self.kept_log = None
        self.daemon = self.new_daemon()
        if self.daemon_autostart:
            self.daemon.start()

    def new_daemon(self, **options):
        """One more daemon, not started yet. It is ended with the test."""
        options.setdefault("env", self.daemon_env)
        options.setdefault("flags", self.daemon_flags)
        options.setdefault("binary", self.daemon_binary)
        daemon = Daemon(**options)
        self.daemons.append(daemon)
        self.addCleanup(self._end, daemon)
        return daemon

    def _end(self, daemon):
        self.kept_log = self.failure_log()
        daemon.dispose()

    def failure_log(self):
        """What the daemons logged, for the report of a failed test."""
        logs = [d.log_tail() for d in self.daemons if d.log_path.exists()]
        return "\n".join(logs) or self.kept_log or ""

    def temp_dir(self):
        path = pathlib.Path(tempfile.mkdtemp(prefix="t-"))
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    # Requests. ok() is for steps on the way to what a test is about; req() for the thing itself.

    def req(self, method, path, body=None, headers=None, token=None):
        return self.daemon.req(method, path, body, headers, token)

    def ok(self, method, path, body=None, status=200, **more):
        answer = self.req(method, path, body, **more)
        self.assert_status(answer, status)
        return answer.json

    def terminal(self, *args, typed=b"", env=None):
        """Run it on a terminal of its own: (status, all that arrived there)."""
        parent, child = pty.openpty()
        try:
            process = subprocess.Popen([BINARIES["normal"], *args], stdin=child, stdout=child, stderr=child, close_fds=True,
                                       env={**os.environ, "BERTH_DATA": str(self.daemon.data), "TERM": "xterm",
                                            **(env or {})})
            os.close(child)
            seen = b""
            if typed:
                os.write(parent, typed)
            while True:
                self.assertTrue(select.select([parent], [], [], 30)[0], "the command says nothing more")
                try:
                    data = os.read(parent, 65536)
                except OSError:  # the other side is gone
                    break
                if not data:
                    break
                seen += data
            return process.wait(30), seen.decode("utf-8", "replace")
        finally:
            os.close(parent)

    def cli(self, *args, **more):
        return self.daemon.cli(*args, **more)

    def assert_status(self, answer, status):
        self.assertEqual(answer.status, status, answer.body[:2000])

    def assert_error(self, answer, status, text=None, contains=None):
        """`text` is the whole error text, `contains` a part of it."""
        self.assert_status(answer, status)
        if text is not None:
            self.assertEqual(answer.error, text)
        if contains is not None:
            self.assertIn(contains, answer.error or "")

    # The first steps of most tests. Objects may be given as dicts or as ids.

    def company(self, name="Acme"):
        return self.ok("POST", "/api/companies", new_company(name), status=201)

    def environment(self, company, **body):
        """Default: a sandbox with the fake provider."""
        body.setdefault("name", "box")
        body.setdefault("driver", "sandbox")
        if body["driver"] == "sandbox":
            body.setdefault("config", FAKE_CONFIG)
        return self.ok("POST", f"/api/companies/{ident(company)}/environments", body, status=201)

    def acquire(self, environment, **body):
        return self.ok("POST", f"/api/environments/{ident(environment)}/leases", body, status=201)

    def release(self, lease, **body):
        """`lease` may also be the whole lease record."""
        return self.ok("POST", f"/api/environment-leases/{ident(lease)}/release", body)

    def lease(self, lease):
        return self.ok("GET", f"/api/environment-leases/{ident(lease)}")

    # People. The Unix socket makes us the operator in every mode.

    def operator(self, method, path, body=None, status=200):
        answer = self.daemon.req_unix(method, path, body)
        self.assert_status(answer, status)
        return answer.json

    def agent(self, company, name="Ada", grants=(), **body):
        """An agent with a key: its object plus `token`."""
        agent = self.operator("POST", f"/api/companies/{ident(company)}/agents", {"name": name, **body}, 201)
        if grants:
            member = next(m for m in self.operator("GET", f"/api/companies/{ident(company)}/members")["members"]
                          if m["principalId"] == agent["id"])
            self.operator("PATCH", f"/api/companies/{ident(company)}/members/{member['id']}/permissions",
                          {"grants": [{"permissionKey": key} for key in grants]})
        key = self.operator("POST", f"/api/agents/{agent['id']}/keys", {"name": "test"}, 201)
        return {**agent, "token": key["token"]}

    def board_user(self, company=None, user="ann", role=None, grants=(), admin=False):
        """A board key of a named user, a member of the company if there is one: its object, with `token`."""
        body = {"name": "test", "user": user}
        if company:
            body["requestedCompanyId"] = ident(company)
            body["membershipRole"] = role or "operator"
        if grants:
            body["grants"] = [{"permissionKey": key} for key in grants]
        if admin:
            body["instanceAdmin"] = True
        return self.operator("POST", "/api/board-api-keys", body, 201)


def ident(thing):
    if isinstance(thing, dict):
        return thing["lease"]["id"] if "lease" in thing else thing["id"]
    return thing
