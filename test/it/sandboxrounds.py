"""Boxes made and given up while kill -9 hits the daemon, boxes, launchers and commands: for test_sandbox_rounds.py, and
Outside for the soak.

Clients acquire, run, pause and release as they like and take every answer; only what is left at the end counts. Outside
looks for it without asking the daemon: mounts in every mount namespace, processes, cgroups of both versions, loop
devices, interfaces, files. Then the daemon is asked too.
"""

import contextlib
import http.client
import os
import pathlib
import random
import signal
import threading
import time

from berthtest import Client, wait_until

BROKEN = (OSError, http.client.HTTPException, ValueError)
COMMANDS = ("true", "echo out; echo err >&2", "sleep 1000", "(setsid sleep 1000 &) ; sleep 1000",
            "head -c 300000 /dev/zero", "cd; echo x >f; mkdir -p d/e; ln -s / d/root; sleep 0.01",
            "trap '' TERM; while :; do sleep 0.01; done")


def proc(pid, name):
    """A file of /proc/PID; empty when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


class Outside:
    """What of one daemon's boxes is on this machine."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.data = os.fsencode(os.path.realpath(daemon.data))
        self.interfaces = set(os.listdir("/sys/class/net"))

    def places(self):
        return [row["id"] for row in self.daemon.sql("SELECT id FROM places")]

    def supervisors(self):
        """Every berth-box of ours, also one that has not come far: by its command line."""
        return [pid for pid in pids() if pid != self.daemon.process.pid and self.data in proc(pid, "cmdline")]

    def commands(self):
        """Whatever lives beneath a supervisor."""
        tops, parents = set(self.supervisors()), {}
        for pid in pids():
            stat = proc(pid, "stat").rpartition(b")")[2].split()
            if len(stat) > 1:
                parents[pid] = int(stat[1])
        return [pid for pid, parent in parents.items() if parent in tops and pid not in tops]

    def marked(self):
        wanted = {f"BERTH_EXEC={row['id']}".encode() for row in self.daemon.sql("SELECT id FROM executions")}
        return [pid for pid in pids() if wanted & set(proc(pid, "environ").split(b"\0"))]

    def mounts(self):
        """Lines of any mount table that name something of ours."""
        own = self.data + b"/"
        return [(pid, line) for pid in pids() if pid != self.daemon.process.pid
                for line in proc(pid, "mountinfo").splitlines() if own in line]

    def cgroups(self, ids):
        return [os.path.join(at, d) for at, dirs, _ in os.walk("/sys/fs/cgroup") for d in dirs
                if any(i in d for i in ids)]

    def files(self, ids):
        """Whatever carries a place's id in its name; output is kept by execution, not by place."""
        return [os.path.join(at, name) for at, dirs, files in os.walk(self.daemon.data) for name in dirs + files
                if any(i in name for i in ids)]

    def loops(self):
        backing = pathlib.Path("/sys/block").glob("loop*/loop/backing_file")
        return [str(file) for file in backing if self.data in file.read_bytes()]

    def left(self):
        """One line for each thing that should not be there."""
        ids = self.places()
        found = [f"process {p}: {proc(p, 'cmdline')!r}" for p in {*self.supervisors(), *self.commands(), *self.marked()}]
        found += [f"mount of {pid}: {line!r}" for pid, line in self.mounts()]
        found += [f"cgroup {c}" for c in self.cgroups(ids)]
        found += [f"file {f}" for f in self.files(ids)]
        found += [f"loop device {b}" for b in self.loops()]
        found += [f"ids {row['first_id']} of {row['place_id']}" for row in self.daemon.sql("SELECT * FROM sandboxes")]
        found += [f"interface {i}" for i in set(os.listdir("/sys/class/net")) - self.interfaces if "berth" in i]
        return found


class Worker(threading.Thread):
    """Makes boxes and gives them up, whatever the answers."""

    def __init__(self, rounds, number, seed):
        super().__init__(name=f"worker {number}", daemon=True)
        self.rounds, self.random = rounds, random.Random(seed)
        self.made = self.ran = 0
        self.client = None
        self.unexpected = []

    def ask(self, method, path, body=None):
        """The answer, or None when there was none."""
        address = self.rounds.daemon.address
        try:
            if self.client is None or self.client.target != address:
                self.client = Client(address, timeout=30)
            answer = self.client.req(method, path, body)
        except BROKEN:
            self.client = None
            time.sleep(0.002)  # it is down on purpose
            return None
        if answer.status >= 500 and answer.status not in (500, 502, 503, 504):
            self.unexpected.append(f"{method} {path}: {answer.status} {answer.text[:300]}")
        return answer

    def run(self):
        while not self.rounds.over.is_set():
            self.one_box()
        if self.client:
            self.client.close()

    def one_box(self):
        environment = self.random.choice(self.rounds.environments)
        answer = self.ask("POST", f"/api/environments/{environment}/leases", {})
        if not answer or answer.status != 201:
            return
        self.made += 1
        lease = answer.json["lease"]["id"]
        for _ in range(self.random.randint(0, 3)):
            body = {"command": "/bin/sh", "args": ["-c", self.random.choice(COMMANDS)], "detach": True}
            answer = self.ask("POST", f"/api/environment-leases/{lease}/execute", body)
            self.ran += answer is not None and answer.status == 202
        if self.random.random() < 0.9:  # the others stay until the end
            self.ask("POST", f"/api/environment-leases/{lease}/{self.random.choice(('release', 'release', 'destroy'))}", {})


class SandboxRounds:
    """Use as a context; kill() as often as you like; then finish(), which also empties the pools."""

    VICTIMS = ("daemon", "daemon", "box", "box", "launcher", "command", "command", "all boxes", "daemon and box")

    def __init__(self, daemon, environments, seed, workers=3, pool=0):
        """`pool`: how many boxes each environment has in advance."""
        self.daemon, self.environments, self.pool = daemon, environments, pool
        self.random = random.Random(seed)
        self.outside = Outside(daemon)
        self.over = threading.Event()
        self.workers = [Worker(self, n, seed * 1000 + n) for n in range(workers)]
        self.kills = {}

    def __enter__(self):
        self.set_pools(self.pool)
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.over.set()
        for worker in self.workers:
            worker.join(60)

    def shoot(self, candidates, is_victim):
        """SIGKILL to one of them. Checked through a descriptor: a number may have become somebody else's."""
        if not candidates:
            return
        with contextlib.suppress(OSError):
            pid = self.random.choice(candidates)
            handle = os.pidfd_open(pid)
            try:
                if is_victim(pid):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)

    def ours(self, pid):
        return pid != self.daemon.process.pid and self.outside.data in proc(pid, "cmdline")

    def beneath(self, pid):
        parent = proc(pid, "stat").rpartition(b")")[2].split()[1:2]
        return bool(parent) and self.ours(int(parent[0]))

    def box_pids(self):
        found = []
        for file in (self.daemon.data / "sandboxes").glob("*/box/pid"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found.append(int(file.read_text().split()[0]))
        return found

    def kill(self, shortest=0.0, longest=0.06):
        """Let them work for a random while, then kill somebody."""
        time.sleep(self.random.uniform(shortest, longest))  # the moment of the crash, not a wait for anything
        victim = self.random.choice(self.VICTIMS)
        self.kills[victim] = self.kills.get(victim, 0) + 1
        if "daemon" in victim:
            self.daemon.kill()
        if victim == "launcher":
            boxes = set(self.box_pids())
            self.shoot([p for p in self.outside.supervisors() if p not in boxes], self.ours)
        elif victim == "command":
            self.shoot(self.outside.commands(), self.beneath)
        elif victim == "all boxes":
            for pid in self.box_pids():
                self.shoot([pid], self.ours)
        elif "box" in victim:
            self.shoot(self.box_pids(), self.ours)
        if "daemon" in victim:
            self.daemon.start()

    def finish(self, timeout=40):
        """Give all up; then nothing may be left. A list of texts."""
        self.stop()
        found = [text for worker in self.workers for text in worker.unexpected]
        if not any(worker.made for worker in self.workers):
            found.append("not one box was made")
        self.set_pools(0)
        active = "SELECT id FROM environment_leases WHERE status = 'active'"
        for row in self.daemon.sql(active):
            self.daemon.req("POST", f"/api/environment-leases/{row['id']}/release", {})
        for condition, what in ((lambda: not self.daemon.sql(active), active),
                                (lambda: not self.living_places(), "places that live"),
                                (lambda: self.daemon.req("GET", "/api/leaks").json["total"] == 0, "leaks"),
                                (lambda: not self.outside.left(), "things that are left")):
            try:
                wait_until(condition, what, timeout)
            except AssertionError:
                found += [f"still {what}", *map(str, self.living_places()), *self.outside.left()[:20],
                          self.daemon.req("GET", "/api/leaks").text[:1000]]
                break
        return found

    def set_pools(self, size):
        for environment in self.environments:
            config = self.daemon.req("GET", f"/api/environments/{environment}").json["config"]
            if config["poolSize"] != size:
                answer = self.daemon.req("PATCH", f"/api/environments/{environment}", {"config": {**config, "poolSize": size}})
                assert answer.status == 200, answer.text

    def living_places(self):
        return self.daemon.sql("SELECT id, state FROM places WHERE state <> 'gone'")

    def summary(self):
        return (f"{sum(self.kills.values())} kills {self.kills}, {sum(w.made for w in self.workers)} boxes, "
                f"{sum(w.ran for w in self.workers)} commands")
