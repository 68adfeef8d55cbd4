"""The daemon killed at every crash point of runs (`run.*`, `runlog.*`), each at its first times: afterwards every run has ended exactly
once, no command began twice under one run id, nothing is leased, and the work was done or is told as lost."""

import http.client
import json
import os
import signal
import subprocess
import unittest

from berthtest import BINARIES, wait_until
from runtest import HOLD, NOTE, RunTest, ident

# slow: one daemon for each point

TIMES_MAX = {"Local": 3}  # of a point that is passed more often; else 1
OURS = ("run.", "runlog.")
OPERATIONS = []


class Died(Exception):
    """The daemon went away before it answered."""


class Operation:
    """stage() sets the scene; act() is what crashes; the check is the same for all."""

    def __init_subclass__(cls):
        OPERATIONS.append(cls)

    def __init__(self, test):
        self.t = test

    def stage(self):
        pass

    def act(self):
        self.t.wake_and_wait(self.agent)

    def mend(self):
        """After the crash, before the check."""


class Local(Operation):
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


class CrashTest(RunTest):
    daemon_binary = "faults"
    daemon_autostart = False
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "30", "BERTH_SANDBOX_POOL_MAX": "0"}

    def ask(self, method, path, body=None):
        try:
            answer = self.req(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.daemon.process.wait(20)
            raise Died from error
        self.assertLess(answer.status, 300, answer.body)
        return answer.json

    def wait_while_alive(self, condition):
        wait_until(lambda: not self.daemon.running() or condition(), "it happens, or the daemon dies", 30)
        if not self.daemon.running():
            raise Died

    def wait_done(self):
        self.wait_while_alive(lambda: not self.daemon.sql("SELECT 1 FROM heartbeat_runs WHERE step <> 'done'"))

    def wake_and_wait(self, agent, **body):
        self.ask("POST", f"/api/agents/{ident(agent)}/wakeup", body)
        self.wait_done()

    def once(self, cls, point=None):
        """One run on a daemon of its own, killed at the point. True when it was reached."""
        self.daemon = self.new_daemon()
        self.daemon.start()
        self.acme = self.company()
        self.work = self.temp_dir()
        operation = cls(self)
        operation.stage()
        self.daemon.stop()
        trace = self.daemon.data / "trace"
        self.daemon.env = dict(self.daemon.env)
        self.daemon.env["BERTH_CRASH_AT" if point else "BERTH_FAULT_TRACE"] = point or str(trace)
        try:
            self.daemon.start()
            operation.act()
        except (Died, AssertionError):
            if self.daemon.running() or not point:
                raise
        # It may still be on its way to the point: what a test sees is committed before it.
        crashed = self.daemon.stop(expect=None) == -signal.SIGKILL
        self.assertTrue(crashed or self.daemon.process.returncode == 0, self.daemon.log_tail())
        self.daemon.kill()
        self.daemon.env.pop("BERTH_CRASH_AT", None)
        self.daemon.env.pop("BERTH_FAULT_TRACE", None)
        self.daemon.start()
        operation.mend()
        self.check()
        self.daemon.stop()
        points = trace.read_text().split() if trace.exists() else []
        return points if not point else crashed

    def check(self):
        self.nothing_held()
        for run in self.runs():
            resumed = self.work / f"resumed-{run['id']}"
            if resumed.exists():
                self.assertEqual(resumed.read_text(), "resumed\n")
            retries = [r for r in self.runs() if r["retry_of_run_id"] == run["id"]]
            lost = run["error_code"] == "process_lost" and run["process_loss_retry_count"] == 0
            self.assertEqual(len(retries), 1 if lost else 0, run)
        self.nothing_left()

    def test_every_point(self):
        listed = {p for p in subprocess.run([BINARIES["faults"], "faults"], capture_output=True, text=True,
                                            check=True).stdout.split() if p.startswith(OURS)}
        reached, only = set(), os.environ.get("BERTH_WALK_ONLY", "")
        for cls in OPERATIONS:
            if only.lower() not in cls.__name__.lower():
                continue
            passed = self.once(cls)
            for point in sorted({p for p in passed if p.startswith(OURS)}):
                for n in range(1, min(passed.count(point), TIMES_MAX.get(cls.__name__, 1)) + 1):
                    with self.subTest(operation=cls.__name__, point=point, time=n):
                        if self.once(cls, f"{point}:{n}"):
                            reached.add(point)
        if not only:
            self.assertEqual(listed - reached, set(), "points that no operation reaches")

    def tearDown(self):
        unittest.TestCase.tearDown(self)


if __name__ == "__main__":
    unittest.main()
