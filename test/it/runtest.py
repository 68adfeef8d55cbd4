"""What tests of runs stand on: agents of the process adapter whose command is a shell script, waking them, and a look
at what a run left. Every command adds a line to `began-<run id>` in the test's directory, so that one that began twice
under a run id is seen."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from berthtest import ident, wait_until
from sandboxtest import SandboxTest

TERMINAL = ("succeeded", "failed", "cancelled", "timed_out")
NOTE = 'echo x >> "began-$PAPERCLIP_RUN_ID"; '
HOLD = 'echo up; while [ ! -e go ]; do sleep 0.02; done; '  # until release_held(); in this machine's directory


class RunTest(SandboxTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def make_lease(self):
        self.acme = self.company()
        self.work = self.temp_dir()

    def sandbox(self, name="box", **config):
        self.require_sandboxes()
        return self.sandbox_environment(name, **config)

    def runner(self, script, name="Ada", environment=None, adapter=None, **body):
        """An agent that runs `script` with sh in the test's directory."""
        config = {"command": "/bin/sh", "args": ["-c", NOTE + script], "cwd": str(self.work), **(adapter or {})}
        runtime = body.setdefault("runtimeConfig", {})
        runtime["heartbeat"] = {"maxFollowUps": 0, **runtime.get("heartbeat", {})}  # an issue is left as it is
        if environment:
            body["defaultEnvironmentId"] = ident(environment)
        return self.agent(self.acme, name, adapterType="process", adapterConfig=config, **body)

    def wake(self, agent, **body):
        return self.ok("POST", f"/api/agents/{ident(agent)}/wakeup", body, status=202)

    def wake_several(self, agent, n):
        """Wake-ups without a task are taken together as long as they wait; those of tasks are not."""
        return [self.wake(agent, payload={"taskKey": f"task-{i}"}) for i in range(n)]

    def edit(self, statement, parameters=()):
        """Change a row behind the daemon's back."""
        with self.daemon.record() as db:
            db.execute(statement, parameters)

    def provisioned_issue(self, env, command):
        """An issue that works in a workspace which makes itself ready by a command."""
        company = ident(self.acme)
        project = self.ok("POST", f"/api/companies/{company}/projects", {"name": f"p{uuid.uuid4()}"}, status=201)
        issue = self.ok("POST", f"/api/companies/{company}/issues", {"title": "x", "projectId": project["id"]},
                        status=201)
        workspace = str(uuid.uuid4())
        self.edit("INSERT INTO execution_workspaces (id, company_id, project_id, mode, strategy_type, name, cwd, "
                  "last_used_at, opened_at, metadata, created_at, updated_at) "
                  "VALUES (?, ?, ?, 'shared_workspace', 'project_primary', 'w', ?, 1, 1, ?, 1, 1)",
                  (workspace, company, project["id"], str(self.work),
                   json.dumps({"config": {"environmentId": ident(env), "provisionCommand": command,
                                          "teardownCommand": "true"}})))
        self.edit("UPDATE issues SET execution_workspace_id = ?, execution_workspace_preference = 'reuse_existing' "
                  "WHERE id = ?", (workspace, issue["id"]))
        return issue

    def release_held(self):
        (self.work / "go").touch()

    def crash_at(self, point, act):
        """The daemon, of the build with crash points, dies at one while act() is done, and is started again."""
        self.daemon.stop()
        self.daemon.env["BERTH_CRASH_AT"] = f"{point}:1"
        self.daemon.start()
        with contextlib.suppress(OSError, http.client.HTTPException):
            act()
        self.assertEqual(self.daemon.wait(), -signal.SIGKILL)
        self.daemon.kill()
        del self.daemon.env["BERTH_CRASH_AT"]
        self.daemon.start()

    # Looking.

    def run_row(self, run):
        return self.ok("GET", f"/api/heartbeat-runs/{ident(run)}")

    def row_of(self, run):
        return self.daemon.sql("SELECT * FROM heartbeat_runs WHERE id = ?", (ident(run),))[0]

    def wait_for(self, run, timeout=30, **members):
        """Wait for members of the row; what it is then."""
        def look():
            row = self.row_of(run)
            return row if all(row[k] == v for k, v in members.items()) else None
        return wait_until(look, f"{ident(run)} has {members}", timeout)

    def up(self, run):
        """Wait until its command has said something."""
        self.wait_for(run, step="executing")
        wait_until(lambda: self.log_text(run), "the command is up")

    def finished(self, run, timeout=30):
        """Wait until nothing is left to do, and return the run."""
        self.wait_for(run, timeout, step="done")
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
        """How often the command of each run began, as far as its files came home."""
        return {p.name.removeprefix("began-"): len(p.read_text().splitlines()) for p in self.work.glob("began-*")}

    def log_text(self, run, stream="stdout"):
        path = pathlib.Path(self.daemon.data / "run-logs" / self.row_of(run)["log_ref"])
        lines = path.read_text().splitlines(True) if path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return "".join(r["chunk"] for r in records if r["stream"] == stream)

    def kill_box_of(self, run):
        """The supervisor, and with it what it ran."""
        (lease,) = self.leases(run)
        pid = self.boxes()[lease["place_id"]]
        os.kill(pid, signal.SIGKILL)

    def settled(self, timeout=60):
        """Wait until no run is left to work on."""
        wait_until(lambda: not self.daemon.sql("SELECT 1 FROM heartbeat_runs WHERE step <> 'done'"),
                   "every run is done", timeout)

    def nothing_held(self):
        """Each run ended once, its command began at most once, and nothing of it is left."""
        self.settled()
        for run, times in self.began().items():
            self.assertEqual(times, 1, f"the command of {run} began more than once")
        for run in self.runs():
            self.assertIn(run["status"], TERMINAL)
            ends = [e for e in self.run_events(run) if e["message"] in
                    ("run succeeded", "run failed", "run cancelled", "run timed out")]
            self.assertEqual(len(ends), 1, f"{run['id']} ended {len(ends)} times")
        self.assertEqual(self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"), [])
        self.assertEqual(self.daemon.sql("SELECT id FROM issues WHERE execution_run_id IS NOT NULL"), [])


class HookTest(RunTest):
    """With a web service that is an agent: `requests` has what it was asked, `gate` keeps it from answering. It is on
    loopback, so the daemon is told that agents may reach it."""

    def setUp(self):
        self.requests = requests = []
        self.status, self.location = 200, None
        self.gate = threading.Event()
        self.gate.set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler):
                body = handler.rfile.read(int(handler.headers["Content-Length"] or 0))
                requests.append((handler.path, dict(handler.headers), body))
                self.gate.wait()
                handler.send_response(self.status)
                if self.location:
                    handler.send_header("Location", self.location)
                handler.end_headers()
                handler.wfile.write(b'{"ok": true}')

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.gate.set)
        self.daemon_env = {**self.daemon_env, "BERTH_PRIVATE_HOSTS": f"127.0.0.1:{self.server.server_port}"}
        super().setUp()

    def hook(self):
        return self.agent(self.acme, adapterType="http",
                          adapterConfig={"url": f"http://127.0.0.1:{self.server.server_port}/hook"})


__all__ = ["HOLD", "NOTE", "HookTest", "RunTest", "TERMINAL", "ident", "wait_until"]
