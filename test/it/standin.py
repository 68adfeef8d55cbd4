"""What stand-ins for sandbox services have in common: places in which commands really run, a server, and a client that
speaks to a provider as the daemon does.

A place has its own /tmp, a temporary directory of the test, where its commands work; its processes end with it. Nothing
else keeps a command in."""

import concurrent.futures
import contextlib
import http.server
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import threading

from berthtest import BINARIES

PROVIDERS = pathlib.Path(BINARIES["normal"]).parent / "providers"


class Place:
    def __init__(self, base):
        self.dir = pathlib.Path(tempfile.mkdtemp(dir=base, prefix="place-"))
        as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *as_root, "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
             "sh", "-c", 'mount --bind "$1" /tmp && echo ready && exec sleep infinity', "sh", str(self.dir)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        if self.holder.stdout.readline() != b"ready\n":
            raise AssertionError("a place cannot be made")
        pid = self.holder.pid
        inner = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        self.enter = ["nsenter", *([] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]), "-t", inner, "-m", "-p", "--"]

    def spawn(self, argv, cwd="/tmp", env=None, **more):
        """A command in the place, in a process group of its own."""
        variables = {"PATH": os.environ["PATH"], "HOME": "/tmp", **(env or {})}
        return subprocess.Popen([*self.enter, "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", cwd, *argv], env=variables,
                                stdin=more.pop("stdin", subprocess.PIPE), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                start_new_session=True, **more)

    def path(self, path):
        """Where a file of the place is, seen from here."""
        if not path.startswith("/tmp/") or ".." in path:
            raise FileNotFoundError(path)
        return self.dir / path.removeprefix("/tmp/")

    def destroy(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.holder.pid, signal.SIGKILL)
        self.holder.wait()
        self.holder.stdout.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class Stand:
    """A server on loopback whose requests go to answer(handler). `trouble` is asked first: it may answer instead."""

    def __init__(self, base):
        self.base, self.places, self.calls, self.lock = base, {}, [], threading.Lock()
        self.maker = concurrent.futures.ThreadPoolExecutor(1)  # a place ends with the thread that made it
        self.trouble = None  # trouble(handler) -> True: it has answered
        stand = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                chunked = "chunked" in (self.headers.get("Transfer-Encoding") or "")
                self.body = b"" if chunked else self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if chunked:
                    while size := int(self.rfile.readline(), 16):
                        self.body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    if not (stand.trouble and stand.trouble(self)):
                        stand.answer(self)

            do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = handle_one

            def json(self):
                return json.loads(self.body) if self.body else {}

            def say(self, status, value=None, kind="application/json", headers=()):
                data = value if isinstance(value, bytes) else json.dumps(value).encode() if value is not None else b""
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                for name, text in headers:
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(data)

            def begin(self, kind, status=200):
                """An answer in pieces: piece(), and at its end piece(b"")."""
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()

            def piece(self, data):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # of clients that are killed
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def make(self, name):
        with self.lock:
            if name not in self.places:
                self.places[name] = self.maker.submit(Place, self.base).result()
            return self.places[name]

    def remove(self, name):
        with self.lock:
            place = self.places.pop(name, None)
        if place:
            place.destroy()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for name in list(self.places):
            self.remove(name)
        self.maker.shutdown()


def pump(process, put):
    """Both outputs to put(stream, bytes) as they come, until they have ended."""
    def read(stream, file):
        while data := os.read(file.fileno(), 65536):
            put(stream, data)
        file.close()

    threads = [threading.Thread(target=read, args=pair) for pair in (("stdout", process.stdout), ("stderr", process.stderr))]
    for thread in threads:
        thread.start()
    return threads


class WorkerError(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.code = error["code"]


class Worker:
    """A provider's program, spoken to as the daemon does, without a daemon."""

    def __init__(self, name, folder, config):
        self.config, self.driver, self.serial, self.logs, self.waiting = config, name, 0, [], {}
        self.process = subprocess.Popen([PROVIDERS / name / "worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder,
                                        env={"PATH": os.environ["PATH"], "HOME": str(folder)})
        threading.Thread(target=self.read, daemon=True).start()
        self.methods = self.call("initialize")["supportedMethods"]

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message:
                self.logs.append((message["method"], message["params"]))
            else:
                self.waiting.pop(message["id"]).put(message)

    def begin(self, method, **params):
        self.serial += 1
        box = self.waiting[self.serial] = queue.Queue()
        base = {"driverKey": self.driver, "companyId": "c", "environmentId": "env-1", "config": self.config}
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.serial, "method": method, "params": {**base, **params},
                                             "paperclipInvocation": {"id": f"inv-{self.serial}"}}).encode() + b"\n")
        self.process.stdin.flush()
        return box

    def call(self, method, **params):
        answer = self.begin(method, **params).get(timeout=60)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["result"]

    def acquire(self, place=None, **more):
        owner = {"owner": {"instance": "node-1", "place": place}} if place else {}
        return self.call("environmentAcquireLease", runId="run-1", **owner, **more)

    def execute(self, lease, *argv, **more):
        return self.call("environmentExecute", lease=lease, command=argv[0], args=list(argv[1:]), **more)

    def sh(self, lease, script, **more):
        return self.execute(lease, "sh", "-c", script, **more)

    def destroy(self, lease):
        return self.call("environmentDestroyLease", providerLeaseId=lease["providerLeaseId"], leaseMetadata=lease["metadata"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
