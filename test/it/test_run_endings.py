"""How runs end, whatever happens around them: an agent that is changed while it works, and one that lives on after
its last word."""

import json
import pathlib
import unittest

import test_plugin_box
import test_run_place
from runtest import NOTE, RunTest, ident, wait_until

RESULT = ('{"type":"result","subtype":"success","is_error":false,"session_id":"s1","result":"all done",'
          '"total_cost_usd":0.5,"usage":{"input_tokens":10,"cache_read_input_tokens":4,"output_tokens":6}}')
WAIT = "while [ ! -e go ]; do sleep 0.02; done; "
BEGIN = """echo '{"type":"system","subtype":"init","session_id":"s1","model":"m1"}'; """
SAY = f"echo '{RESULT}'; "
SAY_IN_PIECES = f"printf %s '{RESULT[:50]}'; sleep 0.1; printf '%s\\n' '{RESULT[50:]}'; "


FAILED = '{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s1","result":"out of luck"}'
LINGER = "exec sleep 1000"
ADAPTERS = pathlib.Path(__file__).resolve().parents[2] / "src" / "core" / "adapters"


class EndingTest(test_run_place.PlaceTest):
    def program(self, script, name="agent"):
        path = self.work / name
        path.write_text("#!/bin/sh\n" + NOTE + script + "\n")
        path.chmod(0o755)
        return path

    def claude(self, script, environment=None, kind="claude_local", **config):
        """An agent that prints what claude prints."""
        name = f"claude{len(list(self.work.glob('claude*')))}"
        config = {"command": str(self.program(script, name)), "cwd": str(self.work), **config}
        if environment:
            config["command"] = f"./{name}"
        body = {"defaultEnvironmentId": ident(environment)} if environment else {}
        return self.agent(self.acme, name, adapterType=kind, adapterConfig=config, **body)

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
        self.assertTrue((self.work / "got").read_text().endswith("as it was"))  # behind how a run works
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
        self.assertTrue((self.work / "got").read_text().endswith(long))
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


class LastWordTest(EndingTest):
    """remote-execution 8.60: an agent that has said its result and lives on is ended, and counts as what it said."""

    def make_lease(self):
        """Claude as `impatient`, who waits no longer than a moment, and as `patient`, who waits a little."""
        super().make_lease()
        (self.daemon.data / "adapters").mkdir()
        for name, seconds in (("impatient", 0), ("patient", 2)):
            adapter = json.loads((ADAPTERS / "claude_local.json").read_text())
            adapter["type"] = name
            adapter["output"]["lingerSec"] = seconds
            (self.daemon.data / "adapters" / f"{name}.json").write_text(json.dumps(adapter))
        self.daemon.restart()

    def ended(self, run):
        self.assertEqual(run["resultJson"].get("terminalResultCleanup"), True)
        self.assertEqual([m for m in self.messages(run) if "asked to end" in m],
                         ["the agent has said its result and lives on; it is asked to end"])
        self.nothing_held()

    def test_it_is_asked_to_end(self):
        agent = self.claude(BEGIN + SAY + LINGER, kind="impatient")
        run = self.finished(self.wake(agent))
        self.said(run)
        self.assertEqual((run["sessionIdAfter"], run["usageJson"]["inputTokens"]), ("s1", 10))
        self.ended(run)

    def test_one_that_does_not_listen(self):
        agent = self.claude("trap '' TERM; " + BEGIN + SAY + "while :; do sleep 0.05; done", kind="impatient", graceSec=1)
        run = self.finished(self.wake(agent))
        self.said(run)
        self.ended(run)

    def test_one_that_says_how_it_was_ended(self):
        """Its exit status is not what counts."""
        agent = self.claude("trap 'exit 9' TERM; " + BEGIN + SAY + "while :; do sleep 0.05; done", kind="impatient")
        run = self.finished(self.wake(agent))
        self.said(run)
        self.ended(run)

    def test_one_that_said_that_it_failed(self):
        run = self.finished(self.wake(self.claude(BEGIN + f"echo '{FAILED}'; " + LINGER, kind="impatient")))
        self.assertEqual((run["status"], run["error"], run["exitCode"], run["signal"]), ("failed", "out of luck", 1, None))
        self.ended(run)

    def test_long_lines_around_it(self):
        """Lines that come in pieces, one that is too long to be looked at, and one that only looks like it."""
        script = ("head -c 1500000 /dev/zero | tr '\\0' x; echo; " + BEGIN + 'printf \'{"type":"assistant","message":{"content":'
                  '[{"type":"text","text":"\\"result\\" \'; head -c 200000 /dev/zero | tr "\\0" y; echo \'"}]}}\'; '
                  "touch spoken; " + WAIT + SAY_IN_PIECES + LINGER)
        run = self.wake(self.claude(script, kind="impatient"))
        self.up(run)
        wait_until((self.work / "spoken").exists, "it has spoken")
        self.release_held()
        run = self.finished(run)
        self.said(run)
        self.ended(run)

    # remote-execution 8.61
    def test_without_a_last_word_nothing_is_ended(self):
        """Another one that speaks later is long over: this one was left alone, and ends by itself."""
        like = """echo '{"type":"user","text":"result"}'; echo '"type":"result"'; echo '{"type":"result"'; """
        quiet = self.wake(self.claude(BEGIN + like + WAIT + "exit 7", kind="impatient"))
        self.up(quiet)
        self.said(self.finished(self.wake(self.claude(BEGIN + SAY + LINGER, kind="impatient"))))
        self.assertEqual(self.run_row(quiet)["status"], "running")
        self.release_held()
        run = self.finished(quiet)
        self.assertEqual((run["status"], run["exitCode"]), ("failed", 7))
        self.assertNotIn("asked to end", " ".join(self.messages(run)))
        self.nothing_held()

    def test_said_while_the_daemon_was_away(self):
        run = self.wake(self.claude(BEGIN + WAIT + SAY + "touch spoken; " + LINGER, kind="impatient"))
        self.up(run)
        self.daemon.kill()
        self.release_held()
        wait_until((self.work / "spoken").exists, "it has spoken")
        self.daemon.start()
        run = self.finished(run)
        self.said(run)
        self.ended(run)

    def test_a_daemon_that_dies_before_it_asks(self):
        """The next one finds the word again."""
        run = self.wake(self.claude(BEGIN + SAY + LINGER, kind="patient"))
        self.up(run)
        wait_until(lambda: "all done" in self.log_text(run), "it has said its result")
        self.daemon.restart(crash=True)
        run = self.finished(run)
        self.said(run)
        self.ended(run)

    def test_cancelled_after_its_last_word(self):
        run = self.wake(self.claude("trap '' TERM; " + BEGIN + SAY + "while :; do sleep 0.05; done", kind="impatient",
                                    graceSec=1))
        wait_until(lambda: "asked to end" in " ".join(self.messages(run)), "it is asked to end")
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")
        self.nothing_held()

    def test_in_a_sandbox(self):
        """The same there, with a restart in between."""
        agent = self.claude(BEGIN + "echo made > out; " + SAY + LINGER, self.sandbox(), kind="patient")
        run = self.wake(agent)
        self.up(run)
        wait_until(lambda: "all done" in self.log_text(run), "it has said its result")
        self.daemon.restart(crash=True)
        run = self.finished(run)
        self.said(run)
        self.assertEqual((self.work / "out").read_text(), "made\n")
        self.ended(run)

    def test_on_a_host(self):
        run = self.finished(self.wake(self.claude(BEGIN + SAY + LINGER, self.ssh_environment(), kind="impatient")))
        self.said(run)
        self.ended(run)


class PluginWordTest(test_plugin_box.PluginBoxTest):
    """In a box inside a sandbox of a plugin."""

    daemon_autostart = False
    run_in, edit = test_run_place.PluginPlaceCase.run_in, RunTest.edit
    wait_for, row_of, run_row = RunTest.wait_for, RunTest.row_of, RunTest.run_row

    def install_provider(self, worker=None, **more):
        folder = self.daemon.data / "adapters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tool.json").write_text(json.dumps({
            "type": "tool", "label": "Tool", "remote": True, "command": "sh", "prompt": "none", "args": ["-c", SAY + LINGER],
            "output": {"format": "json-lines", "lingerSec": 0,
                       "events": [{"match": {"type": "result"}, "keep": True, "end": True, "set": {"summary": "result"}}]}}))
        self.daemon.start()
        return super().install_provider(worker, **more)

    def test_it_is_asked_to_end(self):
        run = self.run_in(self.env, "tool")
        EndingTest.said(self, run)
        self.assertEqual(run["resultJson"]["terminalResultCleanup"], True)


if __name__ == "__main__":
    unittest.main()
