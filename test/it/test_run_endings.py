"""How runs end, whatever happens around them: an agent that is changed while it works."""

import unittest

from runtest import NOTE, RunTest, ident

RESULT = ('{"type":"result","subtype":"success","is_error":false,"session_id":"s1","result":"all done",'
          '"total_cost_usd":0.5,"usage":{"input_tokens":10,"cache_read_input_tokens":4,"output_tokens":6}}')
WAIT = "while [ ! -e go ]; do sleep 0.02; done; "
BEGIN = """echo '{"type":"system","subtype":"init","session_id":"s1","model":"m1"}'; """
SAY = f"echo '{RESULT}'; "


class EndingTest(RunTest):
    def program(self, script, name="agent"):
        path = self.work / name
        path.write_text("#!/bin/sh\n" + NOTE + script + "\n")
        path.chmod(0o755)
        return path

    def claude(self, script, environment=None, **config):
        """An agent that prints what claude prints."""
        name = f"claude{len(list(self.work.glob('claude*')))}"
        config = {"command": str(self.program(script, name)), "cwd": str(self.work), **config}
        if environment:
            config["command"] = f"./{name}"
        body = {"defaultEnvironmentId": ident(environment)} if environment else {}
        return self.agent(self.acme, name, adapterType="claude_local", adapterConfig=config, **body)

    def patch(self, agent, **body):
        return self.ok("PATCH", f"/api/agents/{ident(agent)}", body)

    def said(self, run, text="all done"):
        """It ended as its result says."""
        self.assertEqual((run["status"], run["error"], run["exitCode"], run["signal"]), ("succeeded", None, 0, None), run)
        self.assertEqual(run["resultJson"]["summary"], text)


class ChangedTest(EndingTest):
    def check(self, run):
        self.said(run)
        self.assertEqual(run["sessionIdAfter"], "s1")
        self.assertEqual({k: run["usageJson"][k] for k in ("inputTokens", "outputTokens", "model", "provider", "costUsd")},
                         {"inputTokens": 10, "outputTokens": 6, "model": "m1", "provider": "anthropic", "costUsd": 0.5})

    def test_into_another_kind(self):
        """What was started is read as what it is, and its session is not taken for one of the new kind."""
        agent = self.claude("cat > got; " + BEGIN + WAIT + SAY, promptTemplate="as it was")
        run = self.wake(agent)
        self.up(run)
        self.patch(agent, adapterType="codex_local", adapterConfig={"command": "/nowhere", "promptTemplate": "other"})
        self.release_held()
        self.check(self.finished(run))
        self.assertEqual((self.work / "got").read_text(), "as it was")
        state = self.ok("GET", f"/api/agents/{agent['id']}/runtime-state")
        self.assertEqual((state["adapterType"], state["sessionId"]), ("claude_local", "s1"))
        again = self.finished(self.wake(agent))
        self.assertEqual((again["status"], again["sessionIdBefore"]), ("failed", None))
        self.nothing_held()
        self.assertEqual(self.daemon.sql("SELECT * FROM heartbeat_run_commands"), [])

    def test_into_a_name_and_the_daemon_starts_again(self):
        agent = self.claude(BEGIN + WAIT + SAY)
        run = self.wake(agent)
        self.up(run)
        self.patch(agent, adapterType="cursor_cloud", adapterConfig={})
        self.daemon.restart(crash=True)
        self.release_held()
        self.check(self.finished(run))
        self.nothing_held()

    def test_the_rest_of_its_input(self):
        """More than a pipe holds, and a program that reads it after the restart: it gets what it was started with."""
        long = "x" * 300_000
        agent = self.claude(BEGIN + WAIT + "cat > got; " + SAY, promptTemplate=long)
        run = self.wake(agent)
        self.up(run)
        self.patch(agent, adapterType="process", adapterConfig={"command": "/bin/true", "promptTemplate": "y"})
        self.daemon.restart(crash=True)
        self.release_held()
        self.check(self.finished(run))
        self.assertEqual((self.work / "got").read_text(), long)
        self.nothing_held()

    def test_a_session_that_is_not_known_any_more(self):
        """It is not begun anew by an agent of another kind."""
        agent = self.claude('case "$*" in *--resume*) ' + BEGIN + WAIT +
                            'echo "No conversation found with session ID: s1" >&2; exit 1;; esac; ' + BEGIN + SAY)
        self.check(self.finished(self.wake(agent)))
        run = self.wake(agent)
        self.up(run)
        self.patch(agent, adapterType="http", adapterConfig={"url": "http://127.0.0.1:9/"})
        self.release_held()
        run = self.finished(run)
        self.assertEqual((run["status"], run["exitCode"]), ("failed", 1))
        self.nothing_held()


if __name__ == "__main__":
    unittest.main()
