"""What tests of runs stand on: agents of the process adapter whose command is a shell script, waking them, and a look
at what a run left. Every command appends its run id to `began` in the test's directory, so that a run id whose command
began twice is seen."""

import json

from berthtest import ident, wait_until
from sandboxtest import SandboxTest

TERMINAL = ("succeeded", "failed", "cancelled", "timed_out")
NOTE = 'echo "$PAPERCLIP_RUN_ID" >> "$BEGAN"; '


class RunTest(SandboxTest):
    def make_lease(self):
        self.acme = self.company()
        self.work = self.temp_dir()
        self.began_file = self.work / "began"

    def sandbox(self, name="box", **config):
        self.require_sandboxes()
        return self.sandbox_environment(name, **config)

    def runner(self, script, name="Ada", environment=None, env=None, adapter=None, **body):
        """An agent that runs `script` with sh."""
        config = {"command": "/bin/sh", "args": ["-c", NOTE + script],
                  "env": {"BEGAN": str(self.began_file), **(env or {})}, **(adapter or {})}
        if environment:
            body["defaultEnvironmentId"] = ident(environment)
        return self.agent(self.acme, name, adapterType="process", adapterConfig=config, **body)

    def wake(self, agent, **body):
        return self.ok("POST", f"/api/agents/{ident(agent)}/wakeup", body, status=202)

    def run_row(self, run):
        return self.ok("GET", f"/api/heartbeat-runs/{ident(run)}")

    def step(self, run):
        return self.daemon.sql("SELECT step FROM heartbeat_runs WHERE id = ?", (ident(run),))[0]["step"]

    def finished(self, run, timeout=30):
        """Wait until nothing is left to do, and return the run."""
        wait_until(lambda: self.step(run) == "done",
                   lambda: f"the run is done: {self.run_row(run)}", timeout)
        row = self.run_row(run)
        self.assertIn(row["status"], TERMINAL)
        return row

    def cancel(self, run):
        return self.ok("POST", f"/api/heartbeat-runs/{ident(run)}/cancel", {})

    def run_events(self, run):
        return self.ok("GET", f"/api/heartbeat-runs/{ident(run)}/events")

    def messages(self, run):
        return [e["message"] for e in self.run_events(run)]

    def leases(self, run):
        return self.daemon.sql("SELECT * FROM environment_leases WHERE heartbeat_run_id = ?", (ident(run),))

    def runs(self):
        return self.daemon.sql("SELECT * FROM heartbeat_runs ORDER BY created_at")

    def began(self):
        return self.began_file.read_text().split() if self.began_file.exists() else []

    def log_text(self, run, stream="stdout"):
        path = self.daemon.data / "run-logs" / self.run_row(run)["logRef"]
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return "".join(r["chunk"] for r in records if r["stream"] == stream)

    def settled(self, timeout=60):
        """Wait until no run is left to work on."""
        wait_until(lambda: not self.daemon.sql("SELECT 1 FROM heartbeat_runs WHERE step <> 'done'"),
                   "every run is done", timeout)

    def nothing_held(self):
        """Each run ended once, its command began at most once, and nothing of it is left."""
        self.settled()
        began = self.began()
        self.assertEqual(sorted(began), sorted(set(began)), "a command began twice under one run id")
        for run in self.runs():
            self.assertIn(run["status"], TERMINAL)
        self.assertEqual(self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"), [])


__all__ = ["NOTE", "RunTest", "TERMINAL", "ident", "wait_until"]
