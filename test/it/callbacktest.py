"""What tests of callbacks stand on: a run that is running, in a lease, with its channel open. The row and the channel
are made by routes that only the build with crash points has (src/api/callback_test.c); a command of the run is any
command in the lease.

A local environment's channel (BERTH_CALLBACK=channel) is an address of this machine, so most tests speak to it
themselves; `inside()` asks from within the place, with curl or node.
"""

import json
import shlex
import unittest
import urllib.parse

from berthtest import Client, RawConnection, Response, ident
from exectest import ExecTest

JSON = {"Content-Type": "application/json"}


class Run:
    """One run and its channel."""

    def __init__(self, test, agent, lease, **body):
        self.test, self.agent, self.lease = test, agent, lease
        self.take(test.operator("POST", "/api/test/runs", {"agentId": ident(agent), "leaseId": ident(lease), **body},
                                201))
        test.addCleanup(self.close)

    def take(self, told):
        self.id, self.url, self.key, self.mode, self.port = (told[k] for k in ("runId", "url", "key", "mode", "port"))
        target = urllib.parse.urlsplit(self.url)
        self.target = (target.hostname, target.port)
        self.client = Client(self.target)

    def again(self):
        """After a restart of the daemon."""
        self.client.close()
        self.take(self.test.operator("POST", "/api/test/runs", {"runId": self.id, "leaseId": ident(self.lease),
                                                                "port": self.port}, 201))

    def req(self, method, path, body=None, headers=None, token=None):
        return self.client.req(method, path, body, headers, token=self.key if token is None else token)

    def raw(self):
        return RawConnection(self.target)

    def head(self, method, path, *fields):
        """The bytes of a request's head with the right token."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {self.key}",
                 *fields]
        return "".join(f"{line}\r\n" for line in lines) + "\r\n"

    def end(self, status="succeeded"):
        self.test.operator("POST", f"/api/test/runs/{self.id}/end", {"status": status})

    def close_channel(self):
        self.test.operator("POST", f"/api/test/runs/{self.id}/close")

    def count(self):
        return self.test.operator("GET", f"/api/test/runs/{self.id}")["count"]

    def events(self):
        rows = self.test.daemon.sql("SELECT * FROM heartbeat_run_events WHERE run_id = ? ORDER BY seq", (self.id,))
        return [json.loads(row["payload"]) for row in rows if row["event_type"] == "callback"]

    def env(self):
        return {"PAPERCLIP_API_URL": self.url, "PAPERCLIP_API_KEY": self.key}

    def close(self):
        self.client.close()


class CallbackTest(ExecTest):
    daemon_binary = "faults"
    daemon_env = {**ExecTest.daemon_env, "BERTH_CALLBACK": "channel"}

    def make_lease(self):
        super().make_lease()
        self.acme = self.local["companyId"]
        self.make_people()

    def make_people(self):
        self.ada = self.agent(self.acme)
        # Nobody's: an agent that is given one begins to work at once.
        self.issue = self.ok("POST", f"/api/companies/{ident(self.acme)}/issues", {"title": "Work"}, status=201)

    def run_of(self, agent=None, lease=None, **body):
        return Run(self, agent or self.ada, lease or self.held, **body)

    def inside(self, run, method, path, body=None, *fields):
        """With curl, from within the place: status and body."""
        words = ["curl", "-s", "-m", "20", "-w", "\n%{http_code}", "-X", method, "--path-as-is",
                 "-H", "Authorization: Bearer $PAPERCLIP_API_KEY", "$PAPERCLIP_API_URL" + path]
        for field in fields:
            words += ["-H", field]
        script = " ".join('"' + w.replace('"', '\\"') + '"' for w in words)
        if body is not None:
            script += f" -H 'Content-Type: application/json' --data-binary {shlex.quote(json.dumps(body))}"
        out = self.sh(script, env=run.env(), lease=run.lease)
        self.assertEqual(out["exitCode"], 0, out)
        text, _, status = out["stdout"].rpartition("\n")
        return Response(int(status), {}, text.encode())

    def skip_without(self, program, lease=None):
        if self.sh(f"command -v {program}", lease=lease)["exitCode"] != 0:
            raise unittest.SkipTest(f"no {program} in the place")


__all__ = ["JSON", "CallbackTest", "Run"]
