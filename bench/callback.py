"""bench/run --only callback: an agent calls the API from where it works.

`tools` is bench/run itself. The agent is a small python program that the run's command is: it asks for itself
(`GET /api/agents/me`) over one connection, one request after the other, and prints what it took. Beside it stands the same
program against a server on loopback that answers with the same bytes at once (`echo`); over ssh, the same through a
connection that ssh forwards (`ssh -L`), which is the line's own round trip. That line is 5 ms long, each way.

A run may make 200 requests a second and save up 400, so each client is a run of its own and makes 350.
"""

import json
import pathlib
import socket
import statistics
import subprocess
import threading
import time

import sshtest

REQUESTS = 350
CLIENTS = (1, 8, 32)
LINE_S = 0.005  # each way: on loopback alone ssh's own work would be all there is to see
OVER_LINE = 100

CLIENT = r"""
import json, os, socket, sys, time, urllib.parse
url = urllib.parse.urlsplit(os.environ["PAPERCLIP_API_URL"])
head = (f"GET /api/agents/me HTTP/1.1\r\nHost: {url.netloc}\r\n"
        f"Authorization: Bearer {os.environ['PAPERCLIP_API_KEY']}\r\n\r\n").encode()
s = socket.create_connection((url.hostname, url.port))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
took, size, began = [], 0, time.time()
for _ in range(int(sys.argv[1])):
    at = time.perf_counter()
    s.sendall(head)
    data = b""
    while b"\r\n\r\n" not in data:
        data += s.recv(65536)
    end = data.index(b"\r\n\r\n") + 4
    size = end + int(data[:end].lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(data) < size:
        data += s.recv(65536)
    took.append((time.perf_counter() - at) * 1000)
    if not data.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(data[:200])
print(json.dumps({"took": took, "began": began, "ended": time.time(), "size": size}))
"""


class Echo:
    """Answers every request with as many bytes as the API does."""

    def __init__(self, size):
        body = max(0, size - 45)  # behind a head of about that length
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % body + b"x" * body
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        with client:
            while client.recv(65536):
                client.sendall(self.answer)

    def close(self):
        self.listener.close()


def alone(port, requests=REQUESTS):
    """The client by itself against a port of this machine."""
    done = subprocess.run(["python3", "-c", CLIENT, str(requests)], check=True, capture_output=True,
                          env={"PATH": "/usr/bin:/bin", "PAPERCLIP_API_URL": f"http://127.0.0.1:{port}",
                               "PAPERCLIP_API_KEY": "x" * 32})
    return json.loads(done.stdout)


class Agents:
    """Agents that call back, all at once."""

    def __init__(self, scene, environment=None, requests=REQUESTS):
        self.scene, self.environment, self.requests, self.made = scene, environment, requests, []

    def run(self, n):
        while len(self.made) < n:
            body = {"name": f"caller {self.environment} {len(self.made)}", "adapterType": "process",
                    "adapterConfig": {"command": "python3", "args": ["-c", CLIENT, str(self.requests)]}}
            if self.environment:
                body["defaultEnvironmentId"] = self.environment
            self.made.append(self.scene.post(f"/api/companies/{self.scene.company}/agents", body)["id"])
        runs = [self.scene.daemon.req("POST", f"/api/agents/{a}/wakeup", {}).json["id"] for a in self.made[:n]]
        return [self.result(r) for r in runs]

    def result(self, run):
        until = time.monotonic() + 120
        while time.monotonic() < until:
            row = self.scene.daemon.req("GET", f"/api/heartbeat-runs/{run}").json
            if row["status"] in ("succeeded", "failed", "cancelled", "timed_out"):
                break
            time.sleep(0.05)
        log = self.scene.daemon.req("GET", f"/api/heartbeat-runs/{run}/log").json["content"]
        out = "".join(r["chunk"] for r in map(json.loads, log.splitlines()) if r["stream"] == "stdout")
        if row["status"] != "succeeded":
            raise SystemExit(f"bench/callback: a run {row['status']}: {log[-2000:]}")
        return json.loads(out)


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] * 1000  # microseconds


def show(report, what, took, floors=(), target=None):
    report.figure(what, statistics.median(took), "ms", quantile(took, 0.95), quantile(took, 0.99), floors=floors,
                  target=target)


def bench(report, tools, scratch):
    report.group("callback")
    with tools.Scene({"BERTH_CALLBACK": "channel"}) as scene:
        local = Agents(scene)
        first = local.run(1)[0]
        echo = Echo(first["size"])
        floor = statistics.median(alone(echo.port)["took"])
        floors = (("echo", floor),)
        show(report, "round trip, local channel", local.run(1)[0]["took"], floors, ("<=", 0.3))
        sandbox = scene.daemon.req("POST", f"/api/companies/{scene.company}/environments",
                                   {"name": "calls", "driver": "sandbox", "config": {"provider": "berth", "network": "none"}})
        if sandbox.status == 201:
            inside = Agents(scene, sandbox.json["id"])
            inside.run(1)
            show(report, "round trip, sandbox", inside.run(1)[0]["took"], floors)
        over_ssh(report, scene, scratch, echo)
        for n in CLIENTS:
            results = local.run(n)
            seconds = max(r["ended"] for r in results) - min(r["began"] for r in results)
            report.figure(f"callbacks, {n} client{'s' if n > 1 else ''}", n * REQUESTS / seconds, "/s")
        echo.close()
    with tools.Scene() as scene:
        show(report, "round trip, straight with a run token", Agents(scene).run(1)[0]["took"], floors)


def over_ssh(report, scene, scratch, echo):
    if reason := sshtest.missing_command():
        print(f"  (left out: {reason})")
        return
    fixture = sshtest.Fixture(pathlib.Path(scratch) / "callback-lab").start()
    far = sshtest.Line(fixture.port)
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        forward = subprocess.Popen(["ssh", "-F", "none", "-N", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o",
                                    f"UserKnownHostsFile={fixture.known_hosts_path}", "-i", str(fixture.client_key), "-p",
                                    str(far.port), "-L", f"{port}:127.0.0.1:{echo.port}",
                                    f"{fixture.username}@127.0.0.1"], stdin=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 20
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.05)
            far.delay = LINE_S
            line = statistics.median(alone(port, OVER_LINE)["took"])
        finally:
            forward.terminate()
            forward.wait()
        env = scene.post(f"/api/companies/{scene.company}/environments",
                         {"name": "calls over ssh", "driver": "ssh", "config": fixture.config(port=far.port)})["id"]
        agents = Agents(scene, env, OVER_LINE)
        agents.run(1)
        show(report, "round trip, ssh", agents.run(1)[0]["took"], (("the line", line),), ("<=", 1.2 * line))
    finally:
        far.close()
        fixture.stop()
