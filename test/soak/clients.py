"""The clients of the soak: threads that use the public API as programs do, and write down what they ask and what they are
told (history.py). What was not answered is asked again with the same idempotency key where there is one.
"""

import collections
import http.client
import json
import random
import threading
import time
import uuid

from berthtest import Client
from world import AGENT_OUTPUT, digest

BROKEN = (OSError, http.client.HTTPException, ValueError)
# argv: token, where to note it, lines to print, pause between them, status. Where there is no room, it waits for some.
COMMAND = ('until echo "$1" >> "$2"; do sleep 0.05; done 2>/dev/null; i=0; '
           'while [ $i -lt $3 ]; do echo "$1 $i"; i=$((i+1)); [ "$4" = 0 ] || sleep "$4"; done; exit $5')
COUNT = 'for f in .soak-*; do [ -f "$f" ] && echo "${f#.soak-} $(wc -l < "$f")"; done; true'
NOT_STARTED = "before the command was started"


class Stopped(Exception):
    pass


class ClientThread(threading.Thread):
    """One of many; `over` is set when it is to come to an end, which it does when what it began is done."""

    def __init__(self, world, seed, number, over):
        super().__init__(name=f"{type(self).__name__} {number}", daemon=True)
        self.world, self.history, self.over = world, world.history, over
        self.random = random.Random(f"{seed}/{self.name}")
        self.client = Client(("127.0.0.1", world.port), timeout=30)
        self.problem = None
        self.deadline = None
        self.tries = None  # of the last request: {status: how often}

    def run(self):
        try:
            while not self.over.is_set():
                self.step()
        except Stopped:
            pass
        except Exception as error:  # the driver shows it
            self.problem = repr(error)
        finally:
            self.client.close()

    def token(self):
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    # Asking: (result, status, document).

    def once(self, method, path, body=None, raw=False):
        try:
            answer = self.client.req(method, path, body)
            told = answer.body if raw else answer.json
        except BROKEN:
            self.client.close()
            time.sleep(0.01)  # it may be down on purpose
            return "unknown", 0, None
        if answer.status < 300:
            return "ok", answer.status, told
        if answer.status >= 500 or answer.status in (408, 429):
            time.sleep(0.02)
            return "unknown", answer.status, told
        return "refused", answer.status, told

    def repeat(self, method, path, body=None, raw=False):
        """Until there is an answer: for what may be asked twice. Gives up a minute after all is mended."""
        self.tries = collections.Counter()
        while True:
            told = self.once(method, path, body, raw)
            self.tries[told[1]] += 1
            if told[0] != "unknown" or is_final(*told[1:]):
                return told
            if self.over.is_set():
                self.deadline = self.deadline or time.monotonic() + 60
                if time.monotonic() > self.deadline:
                    return told

    # What most of them do.

    def acquire(self, kind):
        """The id of a lease, or None."""
        key = self.token()
        op = self.history.begin("acquire", place=kind, key=key)
        result, status, told = self.repeat("POST", f"/api/environments/{self.world.kinds[kind]}/leases", {
            "idempotencyKey": key, **({"heartbeatRunId": self.token()} if kind == "reused" else {})})
        if result != "ok":
            self.history.end(op, result, status=status, text=text_of(told))
            return None
        self.history.end(op, "ok", lease=told["lease"]["id"])
        return told["lease"]["id"]

    def release(self, lease):
        op = self.history.begin("release", lease=lease)
        result, status, told = self.repeat("POST", f"/api/environment-leases/{lease}/release", {})
        self.history.end(op, result, **({"status": told["lease"]["status"]} if result == "ok" else {"code": status}))


class LeaseClient(ClientThread):
    """Leases a place, runs commands in it, and gives it up."""

    def step(self):
        kind = self.random.choice(sorted(self.world.used))
        lease = self.acquire(kind)
        if lease is None:
            return
        tokens = [self.execute(kind, lease) for _ in range(self.random.randint(1, 4))]
        if kind not in ("local", "ssh"):
            self.count(lease, tokens)
        if kind == "sandbox" and self.random.random() < 0.3:
            self.work_on_files(lease)
        if self.random.random() < 0.9:  # the driver releases the others
            self.release(lease)

    def note_file(self, kind, token):
        """Where the command notes that it ran: on this machine where it can, else in its place."""
        return str(self.world.effects / token) if kind in ("local", "ssh") else f".soak-{token}"

    def execute(self, kind, lease):
        token, lines = self.token(), self.random.choice((0, 3, 40, 2000))
        pause = self.random.choice(("0.01", "0.03")) if lines == 40 else "0"
        code = self.random.choice((0, 0, 0, 7))
        output = "".join(f"{token} {i}\n" for i in range(lines))
        body = {"command": "/bin/sh", "args": ["-c", COMMAND, "sh", token, self.note_file(kind, token), str(lines), pause,
                                               str(code)],
                "idempotencyKey": self.token(), "detach": self.random.random() < 0.4}
        op = self.history.begin("execute", lease=lease, place=kind, token=token, key=body["idempotencyKey"], code=code,
                                size=len(output), sha=digest(output))
        result, status, told = self.repeat("POST", f"/api/environment-leases/{lease}/execute", body)
        if result == "ok" and body["detach"]:
            self.follow(op, lease, told["execId"])
        elif result == "ok":
            self.history.end(op, "ok", execution=told["execId"], code=told["exitCode"], size=len(told["stdout"]),
                             sha=digest(told["stdout"]), incomplete=bool((told.get("metadata") or {}).get("incomplete")))
        else:
            text = text_of(told)
            self.history.end(op, result, status=status, text=text, tries=self.tries,
                             **({"started": False} if NOT_STARTED in text else {}))
        return token

    def follow(self, op, lease, ident):
        """What became of one that was only started."""
        path = f"/api/environment-leases/{lease}/executions/{ident}"
        while True:
            result, status, told = self.repeat("GET", path)
            if result != "ok" or told["status"] not in ("starting", "running"):
                break
            time.sleep(0.02)
            if self.over.is_set() and self.deadline and time.monotonic() > self.deadline:
                break
        if result != "ok":
            self.history.end(op, "unknown", status=status)
            return
        result, _, data = self.repeat("GET", f"{path}/output?stream=stdout", raw=True)
        whole = {"size": len(data), "sha": digest(data)} if result == "ok" else {}
        self.history.end(op, "ok", execution=ident, code=told["exitCode"], incomplete=told["incomplete"], **whole)

    def count(self, lease, tokens):
        """What ran in a place that nobody sees from outside."""
        result, _, told = self.once("POST", f"/api/environment-leases/{lease}/execute",
                                    {"command": "/bin/sh", "args": ["-c", COUNT]})
        lines = [line.split() for line in told["stdout"].splitlines()] if result == "ok" else []
        if result != "ok" or told["exitCode"] != 0 or any(len(line) != 2 for line in lines):  # its `wc` was killed
            return
        counts = dict(lines)
        for token in tokens:
            self.history.see("effects", token=token, count=int(counts.get(token, 0)), complete=True, inside=True)

    def work_on_files(self, lease):
        """A directory goes in, is changed there, and comes home."""
        home, token = self.world.dir / "files" / self.token(), self.token()
        home.mkdir(parents=True)
        (home / "old").write_text("old\n")
        path = f"/api/environment-leases/{lease}"
        if self.once("POST", f"{path}/workspace/stage", {"localPath": str(home)})[0] != "ok":
            return
        result, _, told = self.once("POST", f"{path}/execute", {"command": "/bin/sh", "args": ["-c", f"echo {token} > new"]})
        if result != "ok" or told["exitCode"] != 0:
            return
        op = self.history.begin("restore", token=token, path=str(home / "new"))
        result, status, _ = self.once("POST", f"{path}/workspace/restore", {})
        self.history.end(op, result, status=status)


class WakeClient(ClientThread):
    """Wakes agents; now and then it thinks better of it."""

    def step(self):
        if not self.world.agents:
            self.over.wait()
            return
        agent = self.random.choice(sorted(self.world.agents))
        kind, _ = self.world.agents[agent]
        key = self.token()
        op = self.history.begin("wake", place=kind, agent=agent, key=key, size=len(AGENT_OUTPUT), sha=digest(AGENT_OUTPUT))
        result, status, told = self.repeat("POST", f"/api/agents/{agent}/wakeup",
                                           {"idempotencyKey": key, "payload": {"taskKey": key}})
        if result != "ok":
            self.history.end(op, result, status=status, text=text_of(told))
            return
        self.history.end(op, "ok", run=told["id"])
        if self.random.random() < 0.1:
            op = self.history.begin("cancel", run=told["id"])
            self.history.end(op, self.repeat("POST", f"/api/heartbeat-runs/{told['id']}/cancel", {})[0])
        self.over.wait(self.random.random() * 0.3)


class CommentClient(ClientThread):
    """Comments and secrets have no keys: each is asked for once."""

    def step(self):
        issue, body = self.random.choice(self.world.issues), f"{self.token()}\n" * self.random.randint(1, 50)
        op = self.history.begin("comment", issue=issue, sha=digest(body))
        result, status, told = self.once("POST", f"/api/issues/{issue}/comments", {"body": body})
        self.history.end(op, result, **({"comment": told["id"]} if result == "ok" else {"status": status}))
        self.over.wait(self.random.random() * 0.05)


class SecretClient(ClientThread):
    def __init__(self, world, seed, number, over):
        super().__init__(world, seed, number, over)
        self.name_of_secret = sorted(world.secrets)[number]
        self.secret = world.secrets[self.name_of_secret][0]

    def step(self):
        value = self.token()
        op = self.history.begin("rotate", secret=self.name_of_secret, sha=digest(value))
        result, status, _ = self.once("POST", f"/api/secrets/{self.secret}/rotate", {"value": value})
        self.history.end(op, result, status=status)
        self.over.wait(self.random.random() * 0.1)


def is_final(status, told):
    """The key names a command that is lost: that does not change any more."""
    return status == 502 and isinstance(told, dict) and "execId" in (told.get("details") or {})


def text_of(told):
    return (told.get("error") or "") if isinstance(told, dict) else json.dumps(str(told))


def everybody(world, seed, over):
    return [*(LeaseClient(world, seed, n, over) for n in range(4)), *(WakeClient(world, seed, n, over) for n in range(2)),
            CommentClient(world, seed, 0, over), *(SecretClient(world, seed, n, over) for n in range(len(world.secrets)))]
