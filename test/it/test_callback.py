"""Callbacks: an agent inside its environment reaches the API as itself. The tunnel carries what the seed's gateway
script carried in files; what the agent sees is the same."""

import base64
import json
import threading

from berthtest import ident, wait_until
from callbacktest import JSON, CallbackTest


class ChannelTest(CallbackTest):
    # remote-execution 8.18, 8.53: the tunnel carries it; the handler is the API itself
    def test_a_request_reaches_the_api_as_the_run(self):
        run = self.run_of()
        self.assertEqual(run.url, f"http://127.0.0.1:{run.port}")
        self.assertEqual(run.mode, "tunnel_v1")
        self.assertNotEqual(run.key, self.ada["token"])
        self.assertEqual(len(base64.urlsafe_b64decode(run.key)), 24)
        me = run.req("GET", "/api/agents/me?view=compact")
        self.assert_status(me, 200)
        self.assertEqual(me.json["id"], self.ada["id"])
        # The run's id is on what it writes.
        answer = run.req("POST", f"/api/issues/{self.issue['id']}/comments", {"body": "from inside"})
        self.assert_status(answer, 201)
        row = self.daemon.sql("SELECT * FROM activity_log WHERE run_id = ?", (run.id,))
        self.assertTrue(row, "no audit entry names the run")

    def test_the_same_run_gets_the_same_channel(self):
        run = self.run_of()
        told = run.port, run.key
        run.again()
        self.assertEqual((run.port, run.key), told)
