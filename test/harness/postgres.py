"""A PostgreSQL server of a test run: Debian's programs, a directory and a Unix socket of its own, nothing on the network.

    with Postgres(directory) as server:      # directory: one that does not exist yet
        url = server.create("some_name")     # a database, a copy of the template where there is one
        server.sql(url, "SELECT …")          # rows as lists of texts
        server.drop(url)

As root it runs as `nobody`, since PostgreSQL refuses root. `fsync` is off: a test that kills the server and looks what was
kept says durable=True."""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

NOBODY = 65534
SETTINGS = {
    "listen_addresses": "''",
    "max_connections": "400",
    "shared_buffers": "'32MB'",
    "dynamic_shared_memory_type": "mmap",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_min_messages": "fatal",
}
CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
NUMBERS = {16, 20, 21, 23, 26, 1700}  # types whose values are read as integers; 16 is boolean


class Rows(list):
    rowcount = 0


class Connection:
    """A look into a database: rows as dicts, with SQLite's `?` for parameters. By libpq, as the daemon reads it."""

    def __init__(self, url):
        self.pq = ctypes.CDLL("libpq.so.5")
        for name, result in {"PQconnectdb": ctypes.c_void_p, "PQerrorMessage": ctypes.c_char_p, "PQexecParams": ctypes.c_void_p,
                             "PQfname": ctypes.c_char_p, "PQgetvalue": ctypes.c_char_p, "PQcmdTuples": ctypes.c_char_p,
                             "PQresultErrorMessage": ctypes.c_char_p}.items():
            getattr(self.pq, name).restype = result
        self.conn = ctypes.c_void_p(self.pq.PQconnectdb(url.encode()))
        if self.pq.PQstatus(self.conn) != 0:
            raise RuntimeError(self.pq.PQerrorMessage(self.conn).decode())

    def execute(self, query, parameters=()):
        number = iter(range(1, len(parameters) + 1))
        query = re.sub(r"\?(\d*)", lambda m: f"${m[1] or next(number)}", query) if parameters else query
        texts = (ctypes.c_char_p * max(1, len(parameters)))(*(None if p is None else str(p).encode() for p in parameters))
        result = ctypes.c_void_p(self.pq.PQexecParams(self.conn, query.encode(), len(parameters), None, texts, None, None, 0))
        try:
            if self.pq.PQresultStatus(result) not in (1, 2):
                raise RuntimeError(self.pq.PQresultErrorMessage(result).decode())
            rows = Rows({self.pq.PQfname(result, c).decode(): self._value(result, r, c)
                         for c in range(self.pq.PQnfields(result))} for r in range(self.pq.PQntuples(result)))
            rows.rowcount = int(self.pq.PQcmdTuples(result) or 0)
            return rows
        finally:
            self.pq.PQclear(result)

    def executemany(self, query, many):
        for parameters in many:
            self.execute(query, parameters)

    def _value(self, result, row, column):
        if self.pq.PQgetisnull(result, row, column):
            return None
        text = self.pq.PQgetvalue(result, row, column).decode()
        if self.pq.PQftype(result, column) in NUMBERS:
            return {"t": 1, "f": 0}[text] if text in "tf" else int(text)
        return text

    def close(self):
        self.pq.PQfinish(self.conn)


def programs():
    """The directory with initdb and postgres, or None."""
    for found in sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True):
        return found.parent
    found = shutil.which("postgres")
    return pathlib.Path(os.path.realpath(found)).parent if found else None


class Postgres:
    def __init__(self, directory, durable=False):
        self.directory = pathlib.Path(directory)
        self.data = self.directory / "data"
        self.bin = programs()
        self.durable = durable
        self.process = None
        self.template = None
        self.number = 0

    def _as_user(self):
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []

    def _run(self, *command, stdin=None):
        done = subprocess.run([*self._as_user(), *map(str, command)], input=stdin, capture_output=True, text=True,
                              cwd=self.directory, env={**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"})
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self):
        """Make it if there is none, and start it."""
        if not self.directory.exists():
            self.directory.mkdir(mode=0o755)
            if os.geteuid() == 0:
                for above in self.directory.parents[:2]:  # temporary directories of the tests, closed to others
                    if not above.stat().st_mode & 0o1:
                        above.chmod(above.stat().st_mode | 0o011)
                os.chown(self.directory, NOBODY, NOBODY)
            self._run(self.bin / "initdb", "--no-sync", "--no-instructions", "-U", "postgres", "-A", "trust", "-E", "UTF8",
                      "--locale=C", "-D", self.data)
            settings = {**SETTINGS, **({} if self.durable else CARELESS),
                        "unix_socket_directories": f"'{self.directory}'"}
            with open(self.data / "postgresql.conf", "a") as file:
                file.writelines(f"{key} = {value}\n" for key, value in settings.items())
        self.process = subprocess.Popen([*self._as_user(), str(self.bin / "postgres"), "-D", str(self.data)], cwd=self.directory,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=open(self.directory / "log", "ab"))
        deadline = time.monotonic() + 60 * float(os.environ.get("TEST_PATIENCE", "1"))
        while True:
            if subprocess.run([self.bin / "pg_isready", "-q", "-h", str(self.directory)]).returncode == 0:
                return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start:\n{(self.directory / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self, how=signal.SIGINT):
        """SIGINT ends every connection; SIGQUIT is a crash, without a checkpoint."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait()
        self.process = None

    def url(self, name):
        return f"postgres:///{name}?host={urllib.parse.quote(str(self.directory), safe='')}&user=postgres"

    def sql(self, name, text):
        """Rows of the last statement as lists of texts. `name` may be the URL."""
        name = name.partition("///")[2].partition("?")[0] if "///" in name else name
        out = self._run(self.bin / "psql", "-X", "-q", "-A", "-t", "-F", "\x1f", "-R", "\x1e", "-v", "ON_ERROR_STOP=1",
                        "-h", self.directory, "-U", "postgres", "-d", name, stdin=text)
        return [row.split("\x1f") for row in out.removesuffix("\n").split("\x1e") if row]

    def create(self, name):
        template = f' TEMPLATE "{self.template}"' if self.template else ""
        self.sql("postgres", f'CREATE DATABASE "{name}"{template} STRATEGY FILE_COPY')
        return self.url(name)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)


# Databases of black-box tests, made through the server that BERTH_TEST_POSTGRES tells of, from BERTH_TEST_POSTGRES_TEMPLATE.
# Named by the data directory, so that daemons that follow each other on one directory have one database.
databases = {}
one_at_a_time = threading.Lock()


def database_of(data):
    key = str(data)
    with one_at_a_time:
        if key not in databases:
            name = f"d{os.getpid()}_{len(databases)}"
            template = os.environ.get("BERTH_TEST_POSTGRES_TEMPLATE", "template0")
            _server_do(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
            databases[key] = name
    return os.environ["BERTH_TEST_POSTGRES"].replace("%s", databases[key])


def drop_database_of(data):
    name = databases.get(str(data))
    if name:
        _server_do(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _server_do(text):
    admin = Connection(os.environ["BERTH_TEST_POSTGRES"].replace("%s", "postgres"))
    try:
        admin.execute(text)
    finally:
        admin.close()


if __name__ == "__main__":  # a server to try things: postgres.py DIRECTORY, until it is told to end
    with Postgres(sys.argv[1]) as running:
        print(running.url("postgres"), flush=True)
        running.process.wait()
