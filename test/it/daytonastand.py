"""A stand-in for Daytona: its API and the toolbox of its sandboxes, as much as its official client and our provider use. Both
are tested against it (test_provider_services.py): the client keeps it honest."""

import email
import email.policy
import json
import os
import re
import signal
import subprocess
import urllib.parse

from standin import Stand, pump

KEY = "dtn_key-of-the-tests"


class DaytonaStand(Stand):
    """Sandboxes are `sandboxes` by id: {"name", "labels", "state"}; a new one starts with the second look."""

    def __init__(self, base):
        super().__init__(base)
        self.sandboxes, self.sessions, self.serial = {}, {}, 0

    def answer(self, h):
        url = urllib.parse.urlsplit(h.path)
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        self.calls.append(f"{h.command} {url.path}")
        if h.headers["Authorization"] != f"Bearer {KEY}":
            return h.say(401, {"statusCode": 401, "message": "Unauthorized"})
        if url.path.startswith("/toolbox/"):
            name, path = url.path.removeprefix("/toolbox/").split("/", 1)
            if self.sandboxes.get(name, {}).get("state") != "started":
                return h.say(404, {"statusCode": 404, "message": "sandbox not found"})
            return self.toolbox(h, self.places[name], name, "/" + path, query)
        return self.api(h, url.path.removeprefix("/sandbox"), query)

    def said(self, name):
        s = self.sandboxes[name]
        return {"id": name, "name": s["name"], "organizationId": "o", "target": "us", "user": "daytona", "env": {}, "snapshot": "base",
                "labels": s["labels"], "public": False, "networkBlockAll": False, "state": s["state"], "cpu": 1, "gpu": 0, "memory": 1,
                "disk": 1, "toolboxProxyUrl": f"{self.url}/toolbox"}

    def api(self, h, path, query):
        if h.command == "POST" and path == "":
            asked = h.json()
            if asked.get("name") in [s["name"] for s in self.sandboxes.values()]:
                return h.say(409, {"statusCode": 409, "message": f"Sandbox with name {asked['name']} already exists"})
            self.serial += 1
            name = f"sb{self.serial}"
            self.make(name)
            self.sandboxes[name] = {"name": asked.get("name") or name, "labels": asked.get("labels") or {}, "state": "starting"}
            return h.say(200, self.said(name))
        if path == "/paginated":
            wanted = json.loads(query.get("labels", "{}"))
            found = [self.said(n) for n, s in self.sandboxes.items() if all(s["labels"].get(k) == v for k, v in wanted.items())]
            page, size = int(query.get("page", 1)), 2
            return h.say(200, {"items": found[(page - 1) * size:page * size], "total": len(found), "page": page,
                               "totalPages": -(-len(found) // size)})
        name = next((n for n, s in self.sandboxes.items() if path.split("/")[1] in (n, s["name"])), None)
        if not name:
            return h.say(404, {"statusCode": 404, "message": "Sandbox not found"})
        sandbox = self.sandboxes[name]
        if h.command == "DELETE":
            said = {**self.said(name), "state": "destroyed"}
            del self.sandboxes[name]
            self.remove(name)
            return h.say(200, said)
        if h.command == "POST":
            sandbox["state"] = "stopped" if path.endswith("/stop") else "starting"
        said = self.said(name)
        if h.command == "GET" and sandbox["state"] == "starting":
            sandbox["state"] = "started"
        return h.say(200, said)

    # The toolbox.
    def toolbox(self, h, place, name, path, query):
        if path.startswith("/files/"):
            return self.files(h, place, path.removeprefix("/files/"), query)
        if path == "/process/execute":
            asked = h.json()
            process = place.spawn(["sh", "-c", asked["command"]], asked.get("cwd") or "/tmp", asked.get("envs"), stdin=subprocess.DEVNULL)
            out = process.communicate()
            return h.say(200, {"exitCode": process.returncode, "result": (out[0] + out[1]).decode("utf-8", "replace")})
        if path == "/process/session":
            self.sessions[name, h.json()["sessionId"]] = {}
            return h.say(201)
        found = re.fullmatch(r"/process/session/([^/]+)(?:/(exec)|/command/([^/]+)(/logs)?)?", path)
        commands = self.sessions.get((name, found[1]))
        if commands is None or (found[3] and found[3] not in commands):
            return h.say(404, {"statusCode": 404, "message": "session or command not found"})
        if h.command == "DELETE":
            for command in self.sessions.pop((name, found[1])).values():
                if command["process"].poll() is None:
                    os.killpg(command["process"].pid, signal.SIGKILL)
            return h.say(204)
        if found[2]:
            return self.begin_command(h, place, commands)
        command = commands[found[3]]
        if found[4]:
            said = {s: bytes(command[s]).decode("utf-8", "replace") for s in ("stdout", "stderr")}
            return h.say(200, {**said, "output": said["stdout"] + said["stderr"]})
        code = command["process"].poll()
        done = code is not None and not any(t.is_alive() for t in command["threads"])
        return h.say(200, {"id": found[3], "command": command["line"], **({"exitCode": code} if done else {})})

    def begin_command(self, h, place, commands):
        asked, ident = h.json(), f"c{len(commands)}"
        command = {"line": asked["command"], "stdout": bytearray(), "stderr": bytearray()}
        command["process"] = place.spawn(["sh", "-c", asked["command"]], "/tmp", stdin=subprocess.DEVNULL)
        command["threads"] = pump(command["process"], lambda stream, data: command[stream].extend(data))
        commands[ident] = command
        return h.say(202, {"cmdId": ident})

    def files(self, h, place, what, query):
        if what == "download":
            try:
                return h.say(200, place.path(query["path"]).read_bytes(), kind="application/octet-stream")
            except FileNotFoundError:
                return h.say(404, {"statusCode": 404, "message": "no such file"})
        kind = h.headers["Content-Type"]
        if what == "bulk-download":
            paths = h.json()["paths"]
            parts = b"".join(b"--part\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\nContent-Type: "
                             b"application/octet-stream\r\n\r\n%s\r\n" % (p.encode(), place.path(p).read_bytes()) for p in paths)
            return h.say(200, parts + b"--part--\r\n", kind="multipart/form-data; boundary=part")
        form = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + h.body, policy=email.policy.HTTP)
        parts = {p.get_param("name", header="content-disposition"): p.get_payload(decode=True) for p in form.iter_parts()}
        files = ([(query["path"], parts["file"])] if what == "upload" else
                 [(data.decode(), parts[n.replace("path", "file")]) for n, data in parts.items() if n.endswith(".path")])
        for path, data in files:
            place.path(path).parent.mkdir(parents=True, exist_ok=True)
            place.path(path).write_bytes(data)
        return h.say(200)
