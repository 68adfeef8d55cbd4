"""Callbacks from elsewhere: over ssh, and from a box in a sandbox that a plugin keeps."""
# slow: a program is brought into a sandbox in pieces

import json

from berthtest import ident, wait_until
from callbacktest import CallbackTest
from exectest import ExecTest
from sshtest import SshTest
from test_plugin_box import PluginBoxTest as _PluginBoxTest


class Elsewhere:
    """One of these has self.held, and a place in which curl runs."""

    inside, make_people, run_of = CallbackTest.inside, CallbackTest.make_people, CallbackTest.run_of

    def works(self, run):
        me = self.inside(run, "GET", "/api/agents/me")
        self.assertEqual((me.status, json.loads(me.body)["id"]), (200, self.ada["id"]))
        path = f"/api/issues/{ident(self.issue)}/comments"
        self.assertEqual(self.inside(run, "POST", path, {"body": "hi"}).status, 201)
        self.assertEqual(self.inside(run, "DELETE", "/api/secrets", {}).status, 403)


class SshCallbackTest(Elsewhere, SshTest):
    daemon_binary = "faults"

    def setUp(self):
        super().setUp()
        self.line = self.new_line()
        self.acme = self.company()
        self.env = self.ssh_environment(self.acme, port=self.line.port)
        self.held = self.acquire(self.env)["lease"]
        self.make_people()

    def sh(self, script, lease=None, **body):
        return self.execute(lease or self.held, "sh", "-c", script, **body)

    # remote-execution 8.52: ssh hosts have the channel too
    def test_over_ssh(self):
        run = self.run_of()
        self.assertEqual((run.mode, run.url), ("tunnel_v1", f"http://127.0.0.1:{run.port}"))
        self.works(run)
        seen = self.line.accepted
        self.line.cut()
        wait_until(lambda: self.line.accepted > seen, "the line is opened again", 60)
        self.works(run)
        self.daemon.restart(crash=True)
        told = run.url, run.key
        run.again()
        self.assertEqual((run.url, run.key), told)
        self.works(run)


class PluginCallbackTest(Elsewhere, _PluginBoxTest):
    sh, run_ok, execute = ExecTest.sh, ExecTest.run_ok, ExecTest.execute

    def test_from_a_box_in_a_sandbox_of_a_plugin(self):
        self.acme = self.company_id
        self.make_people()
        run = self.run_of()
        self.assertEqual(run.mode, "tunnel_v1")
        self.works(run)
        self.daemon.restart(crash=True)  # the worker is not up yet when the channel is opened again
        run.again()
        self.works(run)


del _PluginBoxTest
