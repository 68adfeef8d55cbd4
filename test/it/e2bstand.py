"""A stand-in for E2B: its API and the `envd` of its sandboxes, as much as its official client and our provider use. Both are
tested against it (test_provider_services.py): the client keeps it honest."""

import base64
import contextlib
import email
import email.policy
import json
import os
import re
import signal
import struct
import subprocess
import urllib.parse

from standin import Stand, pump

KEY = "e2b_" + "0" * 40
TOKEN = "envd-token"


class E2bStand(Stand):
    """Sandboxes are `sandboxes` by id: {"metadata", "state"}."""

    def __init__(self, base):
        super().__init__(base)
        self.sandboxes, self.processes, self.serial = {}, {}, 0

    def answer(self, h):
        url = urllib.parse.urlsplit(h.path)
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        self.calls.append(f"{h.command} {re.sub(r'sb[0-9]+', 'ID', url.path)}")
        if "E2b-Sandbox-Id" in h.headers:
            return self.envd(h, url.path, query)
        if h.headers["X-API-Key"] != KEY:
            return h.say(401, {"code": 401, "message": "Invalid API key"})
        return self.api(h, url.path, query)

    # The API.
    def said(self, name):
        return {"sandboxID": name, "templateID": "base", "clientID": "c", "envdVersion": "0.2.4", "envdAccessToken": TOKEN,
                "domain": None, "metadata": self.sandboxes[name]["metadata"], "state": self.sandboxes[name]["state"],
                "startedAt": "2026-01-01T00:00:00Z", "endAt": "2027-01-01T00:00:00Z", "cpuCount": 1, "memoryMB": 512, "diskSizeMB": 512}

    def api(self, h, path, query):
        path = path.removeprefix("/v2")  # newer clients have it everywhere
        if (h.command, path) == ("POST", "/sandboxes"):
            if h.json()["templateID"] != "base":
                return h.say(404, {"code": 404, "message": "template not found"})
            self.serial += 1
            name = f"sb{self.serial}"
            self.make(name)
            self.sandboxes[name] = {"metadata": h.json().get("metadata") or {}, "state": "running"}
            return h.say(201, self.said(name))
        if (h.command, path) == ("GET", "/sandboxes"):
            wanted = dict(urllib.parse.parse_qsl(query.get("metadata", "")))
            found = [self.said(n) for n, s in sorted(self.sandboxes.items())
                     if all(s["metadata"].get(k) == v for k, v in wanted.items())]
            at, limit = int(query.get("nextToken", 0)), min(int(query.get("limit", 100)), 2)  # small pages
            more = [("x-next-token", str(at + limit))] if at + limit < len(found) else []
            return h.say(200, found[at:at + limit], headers=more)
        name = path.split("/")[2]
        if name not in self.sandboxes:
            return h.say(404, {"code": 404, "message": f"sandbox {name} not found"})
        if h.command == "DELETE":
            del self.sandboxes[name]
            self.remove(name)
            return h.say(204)
        if path.endswith("/pause"):
            if self.sandboxes[name]["state"] == "paused":
                return h.say(409, {"code": 409, "message": "paused already"})
            self.sandboxes[name]["state"] = "paused"
            return h.say(204)
        if path.endswith("/connect"):
            self.sandboxes[name]["state"] = "running"
        return h.say(200, self.said(name))

    # envd.
    def envd(self, h, path, query):
        name = h.headers["E2b-Sandbox-Id"]
        if self.sandboxes.get(name, {}).get("state") != "running":
            return h.say(502, {"code": 502, "message": "The sandbox was not found", "sandboxId": name})
        if h.headers["X-Access-Token"] != TOKEN:
            return h.say(401, {"code": "unauthenticated", "message": "unauthorized"})
        place = self.places[name]
        if path == "/files":
            return self.files(h, place, query)
        if path == "/process.Process/SendSignal":
            process = self.processes[h.json()["process"]["pid"]]
            os.killpg(process.pid, signal.SIGKILL)
            return h.say(200, {})
        if path == "/process.Process/Start":
            return self.start(h, place)
        return h.say(404, {"code": "unimplemented", "message": path})

    def files(self, h, place, query):
        if h.command == "GET":
            try:
                return h.say(200, place.path(query["path"]).read_bytes(), kind="application/octet-stream")
            except FileNotFoundError:
                return h.say(404, {"code": 404, "message": "no such file"})
        kind = h.headers["Content-Type"]
        if kind.startswith("multipart/"):
            form = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + h.body, policy=email.policy.HTTP)
            data = next(form.iter_parts()).get_payload(decode=True)
        else:
            data = h.body
        place.path(query["path"]).parent.mkdir(parents=True, exist_ok=True)
        place.path(query["path"]).write_bytes(data)
        return h.say(200, [{"name": os.path.basename(query["path"]), "path": query["path"], "type": "file"}])

    def start(self, h, place):
        assert h.headers["Content-Type"] == "application/connect+json", h.headers["Content-Type"]
        flags, length = struct.unpack(">BI", h.body[:5])
        asked = json.loads(h.body[5:5 + length])
        assert flags == 0 and not asked.get("stdin")
        config = asked["process"]
        process = place.spawn([config["cmd"], *config.get("args", [])], config.get("cwd") or "/tmp", config.get("envs"),
                              stdin=subprocess.DEVNULL)
        self.processes[process.pid] = process
        h.begin("application/connect+json")

        def put(message, last=0):
            data = json.dumps(message).encode()
            with self.lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client may be gone
                h.piece(struct.pack(">BI", last, len(data)) + data)

        def output(stream, data):
            put({"event": {"data": {stream: base64.b64encode(data).decode()}}})

        put({"event": {"start": {"pid": process.pid}}})
        put({"event": {"keepalive": {}}})
        for thread in pump(process, output):
            thread.join()
        code = process.wait()
        end = {"status": "signal: killed", "error": "signal: killed"} if code < 0 else {
            "exited": True, "status": f"exit status {code}", **({"exitCode": code, "error": f"exit status {code}"} if code else {})}
        put({"event": {"end": end}})
        put({}, 2)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            h.piece(b"")
