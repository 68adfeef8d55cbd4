"""Runs in every kind of environment while kill -9 hits the daemon, boxes, commands, workers of plugins and connections to
hosts, and some are cancelled: for test_run_rounds.py.

    rounds = RunRounds(daemon, company_id, {"local": None, "sandbox": id, …}, directory, seed)
    rounds.run(10)                      # raises AssertionError with the seed and what is wrong

Afterwards each run has ended once, in one terminal state; the command of no run id began twice; the log of one that
succeeded is its output, and that of another one its beginning; no lease is held and no process is left.
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import time

from berthtest import wait_until
from sandboxrounds import Outside

TERMINAL = ("succeeded", "failed", "cancelled", "timed_out")
ENDS = ("run succeeded", "run failed", "run cancelled", "run timed out")
BROKEN = (OSError, http.client.HTTPException)
NOTE = 'echo x >> "began-$PAPERCLIP_RUN_ID"; '
LINES = "".join(f"line {i}\n" for i in range(3000))
# What an agent does: its script, what that prints, how it ends when nobody disturbs it.
WORK = {
    "quick": ("echo done", "done\n", "succeeded"),
    "lines": ("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done", LINES, "succeeded"),
    "slow": ("for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.03; done", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "succeeded"),
    "bad": ("echo no; exit 3", "no\n", "failed"),
}


class RunRounds:
    def __init__(self, daemon, company, environments, directory, seed, victims=None):
        """`victims`: further things to kill, by name."""
        self.daemon, self.company = daemon, company
        self.dir = pathlib.Path(directory)
        self.seed, self.random = seed, random.Random(seed)
        self.outside = Outside(daemon)
        self.agents = {}
        self.counts = {}
        self.woken = 0
        for kind, environment in environments.items():
            for name, (script, *_) in WORK.items():
                self.agents[self.make_agent(f"{kind} {name}", environment, script)] = name
        self.victims = {"daemon": self.kill_daemon, "box": self.kill_box, "command": self.kill_command,
                        "cancel": self.cancel, **(victims or {})}

    def ask(self, method, path, body=None):
        answer = self.daemon.req(method, path, body)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body[:500]}"
        return answer.json

    def make_agent(self, name, environment, script):
        agent = self.ask("POST", f"/api/companies/{self.company}/agents", {
            "name": name, "adapterType": "process", "defaultEnvironmentId": environment,
            "adapterConfig": {"command": "/bin/sh", "args": ["-c", NOTE + script], "cwd": str(self.dir),
                              "graceSec": 1}})
        return agent["id"]

    # Killing.

    def kill_daemon(self):
        self.daemon.kill()
        time.sleep(self.random.random() * 0.05)
        self.daemon.start()

    def kill_one(self, pids):
        if pids:
            with contextlib.suppress(OSError):
                os.kill(self.random.choice(sorted(pids)), signal.SIGKILL)

    def kill_box(self):
        self.kill_one(self.outside.supervisors())

    def kill_command(self):
        self.kill_one(self.outside.marked())

    def cancel(self):
        live = self.daemon.sql("SELECT id FROM heartbeat_runs WHERE status IN ('queued', 'running')")
        if live:
            with contextlib.suppress(*BROKEN):
                self.ask("POST", f"/api/heartbeat-runs/{self.random.choice(live)['id']}/cancel", {})

    # One round.

    def wake(self):
        for agent in self.random.sample(sorted(self.agents), self.random.randint(1, 4)):
            self.woken += 1
            self.ask("POST", f"/api/agents/{agent}/wakeup", {"payload": {"taskKey": f"task {self.woken}"}})

    def disturb(self):
        for _ in range(self.random.randint(1, 3)):
            time.sleep(self.random.random() ** 2 * 0.2)
            name = self.random.choice(sorted(self.victims))
            self.counts[name] = self.counts.get(name, 0) + 1
            self.victims[name]()

    def open_runs(self):
        return self.daemon.sql("SELECT id, status, step, error FROM heartbeat_runs WHERE step <> 'done'")

    def check(self):
        wait_until(lambda: not self.open_runs(), "every run is done", 120)
        for row in self.daemon.sql("SELECT * FROM heartbeat_runs"):
            self.check_run(row)
        for file in self.dir.glob("began-*"):
            assert file.read_text() == "x\n", f"{file.name}: {file.read_text()!r}"
            file.unlink()
        held = self.daemon.sql("SELECT id, status FROM environment_leases WHERE status = 'active'")
        assert not held, f"leases are held: {held}"

    def check_run(self, row):
        _, text, status = WORK[self.agents[row["agent_id"]]]
        assert row["status"] in TERMINAL, row
        ends = self.daemon.sql("SELECT message FROM heartbeat_run_events WHERE run_id = ? AND event_type = 'lifecycle'",
                               (row["id"],))
        ends = [e["message"] for e in ends if e["message"] in ENDS]
        assert len(ends) == 1, f"{row['id']} ended as {ends}"
        path = self.daemon.data / "run-logs" / (row["log_ref"] or "none")
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        log = "".join(r["chunk"] for r in records if r["stream"] == "stdout")
        if row["status"] == "succeeded":
            assert status == "succeeded" and log == text, f"{row['id']}: {len(log)} of {len(text)} bytes in the log"
        else:
            assert text.startswith(log), f"{row['id']}: the log has what it did not print: {log[-200:]!r}"
        # One that could not be started is recorded too: then the run is prepared again, in another lease.
        begun = self.daemon.sql("SELECT id, status FROM executions WHERE idempotency_key = ? AND started_at IS NOT NULL",
                                (f"run:{row['id']}",))
        assert len(begun) <= 1, f"{row['id']} has begun {len(begun)} times: {begun}"

    def leaks(self):
        """But for what only an operator can settle: somebody died while a place was opened, and its kind cannot be
        searched."""
        found = self.daemon.sql("SELECT id, driver, provider, state, attempts, note FROM places WHERE state NOT IN ('gone', 'ready')")
        return [place for place in found if place["provider"] != "acme" or place["state"] != "uncertain"]

    def nothing_left(self):
        wait_until(lambda: not self.outside.marked(), "no command is left", 30)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.leaks(), "no leak is found", 60)
        assert not self.leaks(), f"seed {self.seed}: places are left: {self.leaks()}\n{self.daemon.log_tail(60)}"

    def run(self, rounds):
        for n in range(rounds):
            try:
                self.wake()
                self.disturb()
                self.check()
            except AssertionError as error:
                raise AssertionError(f"seed {self.seed}, round {n}: {error}\n{self.open_runs()}\n"
                                     f"{self.daemon.log_tail(40)}") from error
        self.nothing_left()

    def summary(self):
        ended = self.daemon.sql("SELECT status, COUNT(*) AS n FROM heartbeat_runs GROUP BY status")
        return (f"{self.woken} wake-ups; killed {self.counts}; "
                f"runs {({row['status']: row['n'] for row in ended})}")
