"""Rounds of kill -9 while commands run: for test_exec_kill.py.

Commands print numbered lines to both streams while the daemon is killed and started again, at moments that the seed
chooses. Subscribers read the events and come back with Last-Event-ID; new commands are started between the kills. At the
end every line has to be there exactly once, in the subscribers' eyes and in the files; every end recorded as it was; no
lease, place or process wrong.
"""

import http.client
import json
import random
import threading
import time

from berthtest import EventStream, wait_until
from exectest import Collected, marked

# argv: how many lines, pause between them, exit code
PRINTER = ("i=0; while [ $i -lt $1 ]; do i=$((i+1)); echo \"out $i\"; echo \"err $i\" >&2; "
           "sleep $2; done; exit $3")
BROKEN = (OSError, http.client.HTTPException, json.JSONDecodeError, AttributeError)


def lines(word, n):
    return "".join(f"{word} {i}\n" for i in range(1, n + 1)).encode()


class Command:
    """One command with its subscriber."""

    def __init__(self, rounds, lease, count, pause, code, key):
        self.rounds, self.lease, self.count, self.code = rounds, lease, count, code
        self.body = {"command": "/bin/sh", "args": ["-c", PRINTER, "sh", str(count), pause, str(code)], "detach": True,
                     "idempotencyKey": key}
        self.id = None
        self.got = Collected()
        self.problem = None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            self.start()
            while self.got.exit is None and not self.rounds.closing:
                self.subscribe()
        except Exception as e:  # shown with the others
            self.problem = repr(e)

    def start(self):
        """Again with the same key until it is answered: that must not start it twice."""
        while self.id is None and not self.rounds.closing:
            answer = self.rounds.ask("POST", f"/api/environment-leases/{self.lease}/execute", self.body)
            if answer and answer.status in (200, 202):
                self.id = answer.json["execId"]
            elif answer and answer.status == 422 and "before the command was started" in answer.text:
                self.body["idempotencyKey"] += "+"  # recorded, and then the daemon died: it says it never ran
            elif answer and answer.status not in (503, 504):
                raise AssertionError(f"execute: {answer.status} {answer.text}")
            else:
                self.rounds.wait_for_daemon()

    def subscribe(self):
        path = f"/api/environment-leases/{self.lease}/executions/{self.id}/events"
        try:
            fields = {"Last-Event-ID": self.got.last_id} if self.got.last_id else {}
            with EventStream(self.rounds.daemon.address, path, fields, timeout=30) as stream:
                if stream.status != 200:
                    raise AssertionError(f"events: {stream.status}")
                for event in stream:
                    self.got.take(event)
        except BROKEN:
            self.rounds.wait_for_daemon()

    def problems(self):
        if self.problem:
            return [f"{self.id}: {self.problem}"]
        if self.got.exit is None:
            return [f"{self.id}: no exit was seen; {len(self.got.stdout)} bytes"]
        found = []
        if (self.got.exit["exitCode"], self.got.exit["status"]) != (self.code, "exited"):
            found.append(f"{self.id}: {self.got.exit}, expected {self.code}")
        for stream, word in (("stdout", "out"), ("stderr", "err")):
            wanted = lines(word, self.count)
            if getattr(self.got, stream) != wanted:
                found.append(f"{self.id}: {stream} as seen is wrong: {getattr(self.got, stream)[:200]}")
            file = self.rounds.daemon.data / "output" / self.id / stream
            if file.read_bytes() != wanted:
                found.append(f"{self.id}: {stream} as stored is wrong")
        row = self.rounds.daemon.sql("SELECT status, exit_code, is_incomplete, stdout_len, stderr_len FROM executions "
                                     "WHERE id = ?", (self.id,))[0]
        sizes = (len(lines("out", self.count)), len(lines("err", self.count)))
        if tuple(row.values()) != ("exited", self.code, 0, *sizes):
            found.append(f"{self.id}: the row says {row}")
        return found


class Rounds:
    def __init__(self, daemon, leases, seed, commands=50, kills=6, pause=(0.0, 0.25), timeout=90):
        self.daemon, self.leases, self.kills, self.pause = daemon, leases, kills, pause
        self.random = random.Random(seed)
        self.seed, self.timeout = seed, timeout
        self.closing = False
        self.commands = [Command(self, self.random.choice(leases), self.random.randint(20, 60),
                                 self.random.choice(("0.01", "0.02", "0.03")), self.random.randint(0, 255),
                                 f"{seed}-{i}") for i in range(commands)]

    def ask(self, method, path, body=None):
        """None when the daemon was killed under it."""
        try:
            return self.daemon.req(method, path, body)
        except BROKEN:
            return None

    def wait_for_daemon(self):
        time.sleep(0.005)  # it is down on purpose

    def close(self):
        self.closing = True
        for command in self.commands:
            if command.thread.ident:
                command.thread.join(60)

    def run(self):
        """What was found wrong: a list of texts."""
        try:
            self.play()
        except AssertionError as e:
            return [f"seed {self.seed}: {e}"]
        finally:
            self.close()
        found = [f"seed {self.seed}: {p}" for c in self.commands for p in c.problems()]
        return found + [f"seed {self.seed}: {p}" for p in self.state_problems()]

    def play(self):
        later = list(self.commands)
        per_round = -(-len(later) // self.kills)
        for _ in range(self.kills):
            for command in later[:per_round]:
                command.thread.start()
            del later[:per_round]
            time.sleep(self.random.uniform(*self.pause))  # the moment of the crash, not a wait for anything
            self.daemon.kill()
            self.daemon.start()
        for command in self.commands:
            wait_until(lambda c=command: not c.thread.is_alive(), f"command {command.id} ends", self.timeout)

    def state_problems(self):
        found = []
        for lease in self.leases:
            answer = self.ask("GET", f"/api/environment-leases/{lease}")
            if answer.json["status"] != "active":
                found.append(f"lease {lease} is {answer.json['status']}")
        held = self.daemon.sql("SELECT count(*) AS n FROM places p JOIN environment_leases l ON l.place_id = p.id "
                               "WHERE l.status = 'active' AND p.state = 'held'")[0]["n"]
        active = self.daemon.sql("SELECT count(*) AS n FROM environment_leases WHERE status = 'active'")[0]["n"]
        if held != active:
            found.append(f"{active} leases are active, {held} places are held")
        unsettled = self.daemon.sql("SELECT id, status, reason FROM executions WHERE status NOT IN ('exited') AND "
                                    "coalesce(reason, '') NOT LIKE '%before the command was started%'")
        if unsettled:
            found.append(f"not ended, or not well: {unsettled}")
        left = marked([row["id"] for row in self.daemon.sql("SELECT id FROM executions")])
        if left:
            found.append(f"processes are left: {left}")
        leaks = self.ask("GET", "/api/leaks").json
        if leaks["total"]:
            found.append(f"leaks: {leaks}")
        return found
