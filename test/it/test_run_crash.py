"""The daemon killed at every crash point of runs (`run.*`, `runlog.*`), each at its first times: afterwards every run has ended exactly
once, no command began twice under one run id, nothing is leased, and the work was done or is told as lost."""

import json
import unittest

from berthtest import wait_until
from crashtest import Operation as AnyOperation
from crashtest import PointWalk
from exectest import command_name, descendants
from runtest import HOLD, NOTE, RunTest, ident

# slow: one daemon for each point

OPERATIONS = []


class Operation(AnyOperation):
    def __init_subclass__(cls):
        OPERATIONS.append(cls)

    def act(self):
        self.t.wake_and_wait(self.agent)


class Local(Operation):
    times_max = 3

    def stage(self):
        self.agent = self.t.runner("echo hello")


class Issue(Operation):
    """The lock of an issue, a wake-up that waits for it, and a command that fails."""

    def stage(self):
        self.agent = self.t.runner("echo no; exit 3")
        self.issue = self.t.ask("POST", f"/api/companies/{ident(self.t.acme)}/issues", {"title": "x"})
        self.t.edit("UPDATE issues SET assignee_agent_id = ?, status = 'todo'", (self.agent["id"],))

    def act(self):
        self.t.wake_and_wait(self.agent, payload={"issueId": self.issue["id"]})


class Sandbox(Operation):
    """With a workspace, a command that makes it ready, and files that come home."""

    def stage(self):
        env = self.t.sandbox()
        self.agent = self.t.runner("cat ready; echo made > out", environment=env)
        self.issue = self.t.provisioned_issue(env, "echo once >> ready")

    def act(self):
        self.t.wake_and_wait(self.agent, payload={"issueId": self.issue["id"]})


class Cancelled(Operation):
    def stage(self):
        self.agent = self.t.runner("echo up; sleep 1000")

    def act(self):
        run = self.t.ask("POST", f"/api/agents/{self.agent['id']}/wakeup", {})
        self.t.wait_while_alive(lambda: self.t.row_of(run)["step"] == "executing")
        self.t.ask("POST", f"/api/heartbeat-runs/{run['id']}/cancel", {})
        self.t.wait_done()

    def mend(self):
        def over():  # its retry, or itself when nobody was told that it ends
            for run in self.t.runs():
                self.t.ask("POST", f"/api/heartbeat-runs/{run['id']}/cancel", {})
            return all(run["step"] == "done" for run in self.t.runs())
        wait_until(over, "everything is cancelled", 30)


class TakenUp(Operation):
    """A command that goes on while the daemon is away."""

    def stage(self):
        self.agent = self.t.runner(HOLD + "echo over")
        run = self.t.wake(self.agent)
        self.t.up(run)

    def act(self):
        self.t.release_held()
        self.t.wait_done()

    def mend(self):
        self.t.release_held()


class Waiting(Operation):
    """A provider that is busy for a while; then its place runs nothing."""

    def stage(self):
        self.busy = self.t.world / "busy-open"
        self.busy.touch()
        env = self.t.ask("POST", f"/api/companies/{ident(self.t.acme)}/environments",
                         {"name": "fake", "driver": "sandbox", "config": {"provider": "fake", "image": "i"}})
        self.agent = self.t.agent(self.t.acme, adapterType="process", adapterConfig={"command": "true"})
        self.t.edit("UPDATE agents SET default_environment_id = ?", (env["id"],))

    def act(self):
        run = self.t.ask("POST", f"/api/agents/{self.agent['id']}/wakeup", {})
        self.t.wait_while_alive(lambda: self.t.row_of(run)["prepare_failures"] > 1)
        self.busy.unlink()
        self.t.wait_done()

    def mend(self):
        self.busy.unlink(missing_ok=True)


class PlaceDies(Operation):
    """The sandbox is killed while it is made ready: its lease is given up, and the run gets another."""

    points = ("run.wait.",)

    def stage(self):
        env = self.t.sandbox()
        self.agent = self.t.runner("echo made > out", environment=env)
        self.issue = self.t.provisioned_issue(env, "[ -e go ] || sleep 1000")

    def sleeps(self):
        lease = self.t.runs()[0]["lease_id"]
        provisions = self.t.daemon.sql("SELECT 1 FROM executions WHERE idempotency_key LIKE 'provision:%'")
        return provisions and "sleep" in map(command_name, descendants(self.t.init_pid(lease)))

    def act(self):
        self.t.ask("POST", f"/api/agents/{self.agent['id']}/wakeup", {"payload": {"issueId": self.issue["id"]}})
        self.t.wait_while_alive(self.sleeps)  # it has looked for `go`, which the sandbox sees as soon as it is there
        self.t.release_held()
        self.t.kill_box(self.t.runs()[0]["lease_id"])
        self.t.wait_done()


class Request(Operation):
    def stage(self):
        self.agent = self.t.agent(self.t.acme, adapterType="http", adapterConfig={"url": "http://127.0.0.1:9/"})


class Installed(Operation):
    """An adapter of the operator's that installs its command first."""

    def stage(self):
        directory = self.t.daemon.data / "adapters"
        directory.mkdir()
        (directory / "mine.json").write_text(json.dumps({
            "type": "mine", "label": "Mine", "remote": True, "command": "berth-test-agent", "prompt": "none",
            "install": {"shell": "mkdir -p bin"}, "output": {"format": "text"}}))
        self.t.daemon.restart()
        self.agent = self.t.agent(self.t.acme, adapterType="mine", adapterConfig={"cwd": str(self.t.work)},
                                  defaultEnvironmentId=ident(self.t.sandbox()))


class Assets(Operation):
    """With skills that are brought there and put in place; nothing of them stays here."""

    points = ("run.assets.",)

    def stage(self):
        directory = self.t.daemon.data / "adapters"
        directory.mkdir()
        (directory / "mine.json").write_text(json.dumps({
            "type": "mine", "label": "Mine", "remote": True, "command": "sh", "prompt": "none",
            "args": ["-c", NOTE + 'cat {{ assets.skills }}/a/SKILL.md "$HOME/.mine/a/SKILL.md"'],
            "assets": [{"key": "skills", "from": [{"skills": ""}], "copyTo": "~/.mine"}],
            "env": [{"name": "HOME", "value": "{{ target.home }}"}], "output": {"format": "text"}}))
        (self.t.daemon.data / "skills" / "a").mkdir(parents=True)
        (self.t.daemon.data / "skills" / "a" / "SKILL.md").write_text("told\n")
        self.t.daemon.restart()
        self.agent = self.t.agent(self.t.acme, adapterType="mine", adapterConfig={"cwd": str(self.t.work)},
                                  defaultEnvironmentId=ident(self.t.sandbox()))

    def mend(self):
        self.t.settled()
        last = self.t.runs()[-1]
        self.t.assertEqual((last["status"], self.t.log_text(last)), ("succeeded", "told\ntold\n"))
        self.t.assertEqual(list((self.t.daemon.data / "run-assets").glob("*")), [])


class Fresh(Operation):
    """A session that the agent does not know any more: once more without it, under the same run."""

    def stage(self):
        program = self.t.work / "agent"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        self.agent = self.t.agent(self.t.acme, adapterType="claude_local",
                                  adapterConfig={"command": str(program), "cwd": str(self.t.work)})
        self.t.finished(self.t.wake(self.agent))


class Ready(Operation):
    """The place is asked for the session, which is none that can be resumed, and for the models."""

    def stage(self):
        directory = self.t.daemon.data / "adapters"
        directory.mkdir()
        (directory / "mine.json").write_text(json.dumps({
            "type": "mine", "label": "Mine", "command": "sh", "prompt": "none", "args": ["-c", NOTE + "echo hello"],
            "modelList": {"args": ["-c", "echo a/b"]}, "output": {"format": "text"},
            "session": {"new": "{{ target.cwd }}/{{ run.stamp }}", "header": {"type": "session"}}}))
        self.t.daemon.restart()
        self.agent = self.t.agent(self.t.acme, adapterType="mine",
                                  adapterConfig={"cwd": str(self.t.work), "model": "a/b"})
        self.t.finished(self.t.wake(self.agent))


class LastWord(Operation):
    """One that has said its result and lives on until it is asked to end."""

    def stage(self):
        directory = self.t.daemon.data / "adapters"
        directory.mkdir()
        (directory / "mine.json").write_text(json.dumps({
            "type": "mine", "label": "Mine", "command": "sh", "prompt": "none",
            "args": ["-c", NOTE + """echo '{"type":"result"}'; exec sleep 1000"""],
            "output": {"format": "json-lines", "lingerSec": 0, "events": [{"match": {"type": "result"}, "end": True}]}}))
        self.t.daemon.restart()
        self.agent = self.t.agent(self.t.acme, adapterType="mine", adapterConfig={"cwd": str(self.t.work)})


PROGRAM = """#!/bin/sh
cat > /dev/null
case "$*" in
*--resume*) echo resumed >> "resumed-$PAPERCLIP_RUN_ID"
        echo 'No conversation found with session ID: s' >&2; exit 1;;
esac
""" + NOTE + """
echo '{"type":"system","subtype":"init","session_id":"s1","model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s1","usage":{"input_tokens":1,"output_tokens":2}}'
"""


class CrashTest(PointWalk, RunTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "30", "BERTH_SANDBOX_POOL_MAX": "0", "BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def setUp(self):
        self.world = self.temp_dir()
        self.daemon_env = {**self.daemon_env, "BERTH_FAKE_WORLD": str(self.world)}
        super().setUp()

    def prepare(self, cls):
        self.acme = self.company()
        self.work = self.temp_dir()

    def wait_done(self):
        self.wait_while_alive(lambda: not self.daemon.sql("SELECT 1 FROM heartbeat_runs WHERE step <> 'done'"))

    def wake_and_wait(self, agent, **body):
        self.ask("POST", f"/api/agents/{ident(agent)}/wakeup", body)
        self.wait_done()

    def check(self, operation):
        self.nothing_held()
        for run in self.runs():
            resumed = self.work / f"resumed-{run['id']}"
            if resumed.exists():
                self.assertEqual(resumed.read_text(), "resumed\n")
            retries = [r for r in self.runs() if r["retry_of_run_id"] == run["id"]]
            lost = run["error_code"] == "process_lost" and run["process_loss_retry_count"] == 0
            # A request that may have arrived is not made again.
            self.assertEqual(len(retries), 1 if lost and "may have arrived" not in run["error"] else 0, run)
        self.nothing_left()

    def test_every_point(self):
        # test_acp.py crashes at those of run.steps.
        self.walk(OPERATIONS, self.listed("run.", "runlog.") - self.listed("run.steps."))


if __name__ == "__main__":
    unittest.main()
