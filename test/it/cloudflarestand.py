"""Berth's Worker of deploy/cloudflare-bridge under workerd, on sandboxes that are kept here: as much of
@cloudflare/sandbox as the Worker uses, with everything that it asked for written down."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import unittest

from berthtest import SOURCE
from plugintest import from_npm
from standin import Stand, pump

TOKEN = "bridge-token-of-the-tests"
CONFIG = """using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "bridge", worker = .bridge), (name = "disk", disk = (path = "%s", writable = true)),
              (name = "executor", external = (address = "127.0.0.1:%d", http = ()))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "bridge")]);
const bridge :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed "index.js"), (name = "bridge.js", esModule = embed "bridge.js"),
             (name = "leases.js", esModule = embed "leases.js")],
  compatibilityDate = "2026-04-01",
  bindings = [(name = "BRIDGE_AUTH_TOKEN", text = "%s"), (name = "EXECUTOR", service = "executor"),
              (name = "LEASES", durableObjectNamespace = "LeaseIndex")],
  durableObjectNamespaces = [(className = "LeaseIndex", uniqueKey = "leases", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"));
"""


class CloudflareStand(Stand):
    """`asked`: (sandbox, session, method, arguments) of every call to a sandbox."""

    def __init__(self, base):
        super().__init__(base)
        self.asked, self.sessions = [], set()
        folder = base / "bridge"
        (folder / "disk").mkdir(parents=True)
        for file in (*(SOURCE / "deploy/cloudflare-bridge/src").glob("*.js"), SOURCE / "test/workers/bridge/index.js"):
            shutil.copy(file, folder / file.name)
        (folder / "config.capnp").write_text(CONFIG % (folder / "disk", self.port, TOKEN))
        modules = from_npm("workerd@1.20261110.1", "workerd")
        program = next((modules / "@cloudflare").glob("workerd-*")) / "bin" / "workerd"
        reading, writing = os.pipe()
        with open(folder / "log", "w") as log:
            self.workerd = subprocess.Popen([program, "serve", f"--control-fd={writing}", folder / "config.capnp"],
                                            pass_fds=[writing], stderr=log)
        os.close(writing)
        with open(reading) as told:
            line = told.readline()
        if not line:
            self.close()
            raise unittest.SkipTest(f"workerd does not run here: {(folder / 'log').read_text()[:500]}")
        self.bridge = f"http://127.0.0.1:{json.loads(line)['port']}"

    def close(self):
        self.workerd.kill()
        self.workerd.wait()
        super().close()

    def answer(self, handler):
        q = handler.json()
        self.asked.append((q["sandbox"], q["session"], q["method"], q["args"]))
        handler.begin("application/x-ndjson")
        try:
            last = {"result": getattr(self, q["method"])(handler, q["sandbox"], q["session"], *q["args"])}
        except (OSError, ValueError) as e:
            last = {"error": str(e)}
        handler.piece(json.dumps(last).encode() + b"\n")
        handler.piece(b"")

    # What a sandbox of @cloudflare/sandbox is asked for.
    def getSession(self, _, sandbox, __, ident):
        if (sandbox, ident) not in self.sessions:
            raise ValueError(f"Session '{ident}' not found")
        self.make(sandbox)

    def createSession(self, _, sandbox, __, options):
        self.make(sandbox)
        self.sessions.add((sandbox, options["id"]))

    def deleteSession(self, _, sandbox, __, ident):
        self.sessions.discard((sandbox, ident))

    def destroy(self, _, sandbox, __):
        self.sessions = {s for s in self.sessions if s[0] != sandbox}
        self.remove(sandbox)

    def exec(self, handler, sandbox, _, command, options):
        process = self.make(sandbox).spawn(["sh", "-c", command], options["cwd"], stdin=subprocess.DEVNULL)
        out = {"stdout": bytearray(), "stderr": bytearray()}

        def put(stream, data):
            out[stream] += data
            if "onOutput" in options:
                with self.lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    handler.piece(json.dumps({"stream": stream, "data": data.decode("utf-8", "replace")}).encode() + b"\n")

        threads = pump(process, put)
        try:
            code = process.wait(options["timeout"] / 1000)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise ValueError(f"Command timed out after {options['timeout']}ms") from None
        finally:
            for thread in threads:
                thread.join()
        said = {stream: bytes(data).decode("utf-8", "replace") for stream, data in out.items()}
        return {"success": code == 0, "exitCode": code, **said}

    def writeFile(self, _, sandbox, __, path, content, options=None):
        data = base64.b64decode(content) if (options or {}).get("encoding") == "base64" else content.encode()
        self.make(sandbox).path(path).write_bytes(data)

    def readFile(self, _, sandbox, __, path, options):
        return {"content": base64.b64encode(self.make(sandbox).path(path).read_bytes()).decode(), "encoding": options["encoding"]}

    def deleteFile(self, _, sandbox, __, path):
        with contextlib.suppress(FileNotFoundError):
            self.make(sandbox).path(path).unlink()
