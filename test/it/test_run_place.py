"""The place of a run: its lease and its workspace, what makes it ready, and what each kind of environment is to it."""

import json
import os
import unittest

from berthtest import SOURCE, wait_until
from providertest import ProviderTest
from runtest import RunTest
from sshtest import Fixture, missing_command


class PlaceTest(RunTest):
    def executions(self, run, kind="run"):
        return self.daemon.sql("SELECT * FROM executions WHERE idempotency_key = ?", (f"{kind}:{run['id']}",))

    def refused(self, run, code):
        """It ended with that code before anything was run, and what was leased is released as failed."""
        run = self.finished(run)
        self.assertEqual((run["status"], run["errorCode"]), ("failed", code), run)
        self.assertEqual(self.executions(run), [])
        self.assertNotIn("adapter invocation", self.messages(run))
        self.assertEqual({l["status"] for l in self.leases(run)} - {"failed"}, set())
        return run["error"]

    def ssh_environment(self):
        if missing_command():
            raise unittest.SkipTest(missing_command())
        self.fixture = Fixture(self.temp_dir() / "lab")
        self.addCleanup(self.fixture.stop)
        self.fixture.start()
        return self.environment(self.acme, name="host", driver="ssh", config=self.fixture.config())


class RealizeTest(PlaceTest):
    def test_what_is_recorded(self):
        """environment-runtime 7.92, 7.96: lease and workspace are told once what was realized, and the run names all."""
        env = self.sandbox()
        issue = self.provisioned_issue(env, None)
        run = self.finished(self.wake(self.runner("true"), payload={"issueId": issue["id"]}))
        self.assertEqual(run["status"], "succeeded", run)
        (lease,) = self.leases(run)
        (workspace,) = self.daemon.sql("SELECT * FROM execution_workspaces")
        place = run["contextSnapshot"]["paperclipEnvironment"]
        of_lease, of_workspace = json.loads(lease["metadata"]), json.loads(workspace["metadata"])
        self.assertTrue(place["workspaceRealization"])
        self.assertEqual(of_lease["workspaceRealization"], place["workspaceRealization"])
        self.assertEqual(of_workspace["workspaceRealization"], place["workspaceRealization"])
        request = of_workspace["workspaceRealizationRequest"]
        self.assertEqual((request["heartbeatRunId"], request["issueId"]), (run["id"], issue["id"]))
        self.assertEqual((lease["execution_workspace_id"], lease["issue_id"]), (workspace["id"], issue["id"]))
        (execution,) = self.executions(run)
        self.assertEqual(execution["lease_id"], lease["id"])

    def test_a_directory_that_cannot_be_brought_in(self):
        """environment-runtime 7.93"""
        agent = self.runner("true", environment=self.sandbox(), adapter={"cwd": "/no/such/directory"})
        text = self.refused(self.wake(agent), "workspace_realization_failed")
        self.assertRegex(text, r'^Failed to realize workspace for environment "box" \(sandbox\): .')

    def test_a_place_that_runs_nothing(self):
        """environment-runtime 7.94"""
        env = self.environment(self.acme, name="fake")
        agent = self.agent(self.acme, adapterType="process", adapterConfig={"command": "true"})
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        run = self.finished(self.wake(agent))
        self.assertEqual(run["errorCode"], "transport_resolution_failed")
        self.assertRegex(run["error"], r'^Failed to resolve execution target for "fake": .')
        self.assertEqual([l["status"] for l in self.leases(run)], ["failed"])
        self.assertEqual(self.executions(run), [])

    def test_the_command_of_a_sandbox(self):
        """remote-execution 8.46: command, arguments, directory and time limit are the adapter's."""
        agent = self.runner('test "$1" = x', environment=self.sandbox(),
                            adapter={"args": ["-c", 'test "$1" = x', "sh", "x"], "timeoutSec": 90})
        run = self.finished(self.wake(agent))
        self.assertEqual(run["status"], "succeeded", run)
        (execution,) = self.executions(run)
        self.assertEqual((execution["command"], execution["timeout_ms"]), ("/bin/sh", 90000))
        self.assertEqual(json.loads(execution["args"])[2:], ["sh", "x"])
        self.assertEqual(execution["cwd"], run["contextSnapshot"]["paperclipEnvironment"]["cwd"])

    def test_time_limit_of_a_sandbox(self):
        """remote-execution 8.48, superseded: four hours unless it is set; none here."""
        for env, limit in ((self.sandbox(), 14400000), (None, 0)):
            run = self.finished(self.wake(self.runner("true", f"Agent {limit}", environment=env)))
            self.assertEqual(self.executions(run)[0]["timeout_ms"] or 0, limit)


class ProvisionTest(PlaceTest):
    def provisioned(self, env, command):
        issue = self.provisioned_issue(env, command)
        return self.finished(self.wake(self.runner("cat ready"), payload={"issueId": issue["id"]}))

    def check(self, env):
        command = 'echo "$SHELL" > ready'
        run = self.provisioned(env, command)
        self.assertEqual(run["status"], "succeeded", run)
        self.assertEqual(self.log_text(run), "/bin/bash\n")
        (execution,) = self.executions(run, "provision")  # once
        self.assertEqual((execution["command"], json.loads(execution["args"])), ("bash", ["-lc", command]))
        self.assertEqual(execution["cwd"], run["contextSnapshot"]["paperclipEnvironment"]["cwd"])

    def test_in_a_sandbox(self):
        """environment-runtime 7.97"""
        self.check(self.sandbox())

    def test_on_a_host(self):
        """environment-runtime 7.98, for real (H20)"""
        self.check(self.ssh_environment())

    def test_one_that_is_cancelled_meanwhile(self):
        """Nobody waits for what is not wanted any more."""
        issue = self.provisioned_issue(self.sandbox(), "sleep 1000")
        run = self.wake(self.runner("true"), payload={"issueId": issue["id"]})
        wait_until(lambda: self.executions(run, "provision"), "it is made ready")
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")
        self.assertEqual(self.executions(run), [])
        self.nothing_held()

    def test_one_that_fails(self):
        """environment-runtime 7.99, remote-execution 8.81"""
        issue = self.provisioned_issue(self.sandbox(), "echo what >&2; echo more >&2; exit 127")
        text = self.refused(self.wake(self.runner("true"), payload={"issueId": issue["id"]}),
                            "workspace_realization_failed")
        self.assertEqual(text, 'Failed to provision workspace for environment "box" (sandbox): exit code 127: what')


class ImpatientTest(PlaceTest):
    daemon_env = {**PlaceTest.daemon_env, "BERTH_RUN_PREPARE_TIMEOUT_MS": "0"}

    def test_a_place_that_cannot_be_had(self):
        """environment-runtime, section 5.3: lease_acquire_failed"""
        env = self.ssh_environment()
        self.fixture.stop()
        agent = self.runner("true", environment=env)
        text = self.refused(self.wake(agent), "lease_acquire_failed")
        self.assertRegex(text, r'^Failed to acquire lease for environment "host" \(ssh\): .')


class HostTest(PlaceTest):
    def test_a_run_on_a_host(self):
        """environment-runtime 7.101, 7.103, remote-execution 8.41: the directory and the home are those of the host, and
        the way home is the run's own."""
        env = self.ssh_environment()
        agent = self.agent(self.acme, adapterType="process", defaultEnvironmentId=env["id"],
                           adapterConfig={"command": "sh", "args": ["-c", 'pwd; echo "$HOME"; echo "$PAPERCLIP_API_URL"']})
        run = self.finished(self.wake(agent))
        self.assertEqual(run["status"], "succeeded", run)
        (lease,) = self.leases(run)
        metadata, place = json.loads(lease["metadata"]), run["contextSnapshot"]["paperclipEnvironment"]
        pwd, home, url = self.log_text(run).splitlines()
        self.assertEqual(os.path.realpath(pwd), os.path.realpath(metadata["remoteCwd"]))
        self.assertEqual((place["remoteCwd"], place["host"]), (metadata["remoteCwd"], metadata["host"]))
        self.assertEqual(home, str(self.fixture.home))
        self.assertRegex(url, r"^http://127\.0\.0\.1:\d+$")
        self.assertNotIn("ApiUrl", json.dumps(place))

    def test_its_changes_come_home(self):
        (self.work / "in").write_text("there\n")
        agent = self.runner("cat in; echo made > out", environment=self.ssh_environment())
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], self.log_text(run)), ("succeeded", "there\n"), run)
        self.assertEqual((self.work / "out").read_text(), "made\n")


class InstallTest(PlaceTest):
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        folder = self.daemon.data / "adapters"
        folder.mkdir()
        (folder / "tool.json").write_text(json.dumps({
            "type": "tool", "label": "Tool", "remote": True, "command": "./tool-of-test", "prompt": "none",
            "install": {"shell": "printf '#!/bin/sh\\necho installed\\n' > tool-of-test; chmod +x tool-of-test"},
            "output": {"format": "text"}}))
        self.daemon.start()
        self.make_lease()

    def test_what_is_missing_is_installed_in_sandboxes(self):
        """remote-execution 8.43: with sh -c, in the directory of the work, with the time that is given."""
        place = self.sandbox(network="allowlist", allowedHosts=["example.org"])  # without one nothing is installed
        agent = self.agent(self.acme, adapterType="tool", defaultEnvironmentId=place["id"],
                           adapterConfig={"cwd": str(self.work), "timeoutSec": 120})
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], self.log_text(run)), ("succeeded", "installed\n"), run)
        (execution,) = self.executions(run, "setup")
        self.assertEqual((execution["command"], json.loads(execution["args"])[0]), ("sh", "-c"))
        self.assertEqual(execution["cwd"], self.executions(run)[0]["cwd"])
        self.assertEqual(execution["timeout_ms"], 120000)

    def test_but_not_here(self):
        """remote-execution 8.44: neither here nor on hosts"""
        agent = self.agent(self.acme, adapterType="tool", adapterConfig={"cwd": str(self.work)})
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], self.executions(run, "setup")), ("failed", []))


class PluginPlaceCase(ProviderTest):
    worker = SOURCE / "test" / "workers" / "runner.py"

    def run_in(self, env, adapter="process", **config):
        agent = self.agent(self.company_id, adapterType=adapter, adapterConfig=config)
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        run = self.ok("POST", f"/api/agents/{agent['id']}/wakeup", {}, 202)
        return RunTest.finished(self, run)

    wait_for, row_of, run_row, log_text = RunTest.wait_for, RunTest.row_of, RunTest.run_row, RunTest.log_text
    edit = RunTest.edit


class PluginPlaceTest(PluginPlaceCase):
    def run_pwd(self, env):
        return self.run_in(env, command="sh", args=["-c", "pwd"])

    def test_a_driver_of_a_plugin(self):
        """environment-runtime 7.95: nothing is realized, and its command runs there all the same."""
        run = self.run_pwd(self.machine())
        self.assertEqual(run["status"], "succeeded", run)
        self.assertEqual(self.provider.calls("environmentRealizeWorkspace"), [])
        self.assertEqual(run["contextSnapshot"]["paperclipEnvironment"]["workspaceRealization"], {})
        self.assertEqual(len(self.provider.calls("environmentReleaseLease")), 1)

    def test_a_sandbox_of_a_plugin(self):
        """environment-runtime 7.115: the run and the mode are told; it is released with its own id"""
        run = self.run_pwd(self.sandbox())
        self.assertEqual(run["status"], "succeeded", run)
        (asked,) = self.provider.calls("environmentAcquireLease")
        self.assertEqual((asked["runId"], asked["workspaceMode"]), (run["id"], "shared_workspace"))
        (released,) = self.provider.calls("environmentReleaseLease")
        (lease,) = self.daemon.sql("SELECT * FROM environment_leases")
        self.assertEqual((released["providerLeaseId"], lease["status"]), (lease["provider_lease_id"], "released"))


class BridgeLimitTest(PluginPlaceCase):
    daemon_env = {**PluginPlaceCase.daemon_env, "BERTH_PLUGIN_BOX": "off"}

    def test_what_carries_callbacks_has_a_limit_of_its_own(self):
        """remote-execution 8.54, and why not so: docs/decisions/0006. The agent has its own; one of the others that hangs
        must not keep its calls waiting for as long."""
        run = self.run_in(self.sandbox(), command="sh", args=["-c", "true"], timeoutSec=1800)
        self.assertEqual(run["status"], "succeeded", run)
        limits = {"agent": set(), "bridge": set()}
        for call in self.provider.calls("environmentExecute"):
            limits[call["env"].get("PAPERCLIP_SANDBOX_EXEC_CHANNEL", "agent")].add(call["timeoutMs"])
        self.assertEqual(limits, {"agent": {1800000}, "bridge": {20000}})


class TargetTest(PluginPlaceCase):
    """What Paperclip called an execution target is the lease's row and the identity in a session."""

    daemon_autostart = False

    def install_provider(self, worker=None, **more):
        folder = self.daemon.data / "adapters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tool.json").write_text(json.dumps({
            "type": "tool", "label": "Tool", "remote": True, "command": "sh", "prompt": "none",
            "args": ["-c", """printf '{"type":"began","id":"s1","at":"%s"}\\n' "$(pwd)" """],
            "output": {"format": "json-lines", "events": [{"match": {"type": "began"}, "set": {"session": "id"}}]}}))
        self.daemon.start()
        return super().install_provider(worker, **more)

    def test_a_provider_that_names_no_directory(self):
        """environment-runtime 7.100, remote-execution 8.78"""
        self.provider.behave(AcquireLease={"more": {"metadata": {}}}, RealizeWorkspace={"result": {"cwd": " "}})
        env = self.sandbox(timeoutMs=60000)
        run = self.run_in(env, "tool")
        self.assertEqual(run["status"], "succeeded", run)
        self.assertEqual(json.loads(self.log_text(run))["at"], "/tmp")
        (lease,) = self.daemon.sql("SELECT * FROM environment_leases")
        (state,) = self.daemon.sql("SELECT * FROM agent_runtime_state")
        self.assertEqual(json.loads(state["session_params_json"])["remoteExecution"], {
            "transport": "sandbox", "providerKey": "acme", "environmentId": env["id"], "leaseId": lease["id"],
            "remoteCwd": "/tmp"})
        calls = self.provider.calls("environmentExecute")
        self.assertEqual({c["config"]["timeoutMs"] for c in calls}, {60000})


if __name__ == "__main__":
    unittest.main()
