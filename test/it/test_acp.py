"""Agents that speak the Agent Client Protocol: the box beside the work is their client. The agent is test/agents/acp-agent,
which does what AGENT_STEPS says; test_real_agents.py has the real programs."""

import json
import pathlib
import shutil
import subprocess
import unittest

from boxproto import BINARY
from runtest import RunTest, ident, wait_until

AGENT = pathlib.Path(__file__).resolve().parents[1] / "agents" / "acp-agent"


class AcpTest(RunTest):
    def make_lease(self):
        super().make_lease()
        (self.work / "home").mkdir()
        self.program = self.work / "acp-agent"
        shutil.copy(AGENT, self.program)

    def coder(self, steps, environment=None, env=None, kind="acp", **config):
        name = f"a{len(list(self.work.glob('diary*')))}"
        self.diary = self.work / f"diary-{name}"
        self.diary.touch()
        inside = {} if environment else {"AGENT_DIARY": str(self.diary), "HOME": str(self.work / "home")}
        config = {"command": "./acp-agent" if environment else str(self.program), "cwd": str(self.work), **config,
                  "env": {"AGENT_STEPS": steps, **inside, **(env or {})}}
        body = {"defaultEnvironmentId": ident(environment)} if environment else {}
        return self.agent(self.acme, name, adapterType=kind, adapterConfig=config, **body)

    def heard(self):
        """The messages that the agent was sent: (method or id, params, result or error)."""
        return [json.loads(line) for line in self.diary.read_text().splitlines()]

    def events(self, run):
        return [json.loads(line) for line in self.log_text(run).splitlines()]

    def steps(self, run):
        """What the agent did, as events of the run."""
        return [(e["eventType"].removeprefix("adapter."), e["message"], e["level"], {
            k: v for k, v in e["payload"].items() if k not in ("kind", "executionId", "offset")})
            for e in self.ok("GET", f"/api/heartbeat-runs/{ident(run)}/events?limit=1000") if "offset" in (e["payload"] or {})]

    def transcript(self, run):
        page = self.ok("GET", f"/api/heartbeat-runs/{ident(run)}/transcript")
        self.assertTrue(page["readable"])
        return [{k: v for k, v in r.items() if k not in ("ts", "stream")} for r in page["records"]]


class SessionTest(AcpTest):
    def test_a_whole_turn(self):
        """Thought, plan, tool calls, a question and files; what was said and counted is the run's result."""
        agent = self.coder("thought plan files noise tool message", model="m2", sessionMode="ask", authMethod="by-key")
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["error"]), ("succeeded", None), run)
        self.assertEqual(run["resultJson"]["summary"], "hello from acp")  # the last message, not all that was said
        self.assertEqual({k: run["usageJson"][k] for k in ("inputTokens", "cachedInputTokens", "outputTokens", "model")},
                         {"inputTokens": 100, "cachedInputTokens": 7, "outputTokens": 20, "model": "m2"})
        self.assertEqual((self.work / "made/by-agent.txt").read_text(), "one\ntwo\nthree\n")
        methods = [m["method"] for m in self.heard() if "method" in m]
        self.assertEqual(methods, ["initialize", "session/new", "session/set_mode", "session/set_config_option",
                                   "session/prompt"])
        self.assertEqual(self.heard()[1]["params"], {"cwd": str(self.work), "mcpServers": []})
        self.assertTrue(self.heard()[4]["params"]["prompt"][0]["text"].startswith("## How this run works"))
        told = self.transcript(run)
        for record in ({"kind": "thinking", "text": "let me see"}, {"kind": "plan", "text": "[x] look\n[>] leap"},
                       {"kind": "tool", "id": "t1", "name": "Tool 1", "input": {"path": "file"}},
                       {"kind": "result", "id": "t1", "text": "done", "failed": False},
                       {"kind": "result", "id": "t2", "text": "no luck", "failed": True},
                       {"kind": "delta", "text": "hello "},
                       {"kind": "usage", "tokens": {"input": 100, "cached": 7, "output": 20}}):
            self.assertEqual(told.count(record), 1, (record, told))
        self.assertEqual(self.steps(run), [
            ("plan", "[x] look", "info", {"text": "[x] look\n[>] leap"}),
            ("tool_call", "Tool 1", "info", {"id": "t1", "name": "Tool 1", "input": {"path": "file"}}),
            ("tool_call_update", "done", "info", {"id": "t1", "text": "done", "failed": False}),
            ("tool_call", "Tool 2", "info", {"id": "t2", "name": "Tool 2", "input": {"path": "file"}}),
            ("tool_call_update", "no luck", "warn", {"id": "t2", "text": "no luck", "failed": True})])
        said = "".join(r.get("text", "") for r in told)
        self.assertIn("read 'two\\n' /no/such/file: No such file or directory; /dev/null is not a regular file; -32601", said)
        self.assertIn("a line that is no message", said)
        self.assertNotIn("not ours", said)  # of another session

    def test_permissions(self):
        """On this machine the agent is refused what it asks for, unless the operator says otherwise."""
        for mode, choice in ((None, "o-reject_once"), ("allow-once", "o-allow_once"), ("allow-always", "o-allow_always"),
                             ("approve-all", "o-allow_once"), ("allow-reads", "o-reject_once"), ("deny-all", "o-reject_once")):
            run = self.finished(self.wake(self.coder("ask", **({"permissionMode": mode} if mode else {}))))
            self.assertEqual((run["status"], run["resultJson"]["summary"]), ("succeeded", f"chosen {choice}"), mode)
            (record,) = [r for r in self.transcript(run) if r["kind"] == "result"]
            self.assertEqual((record["failed"], record["text"]), (("reject" in choice),
                             "permission refused" if "reject" in choice else "permission given"))
        run = self.finished(self.wake(self.coder("ask", permissionMode="maybe")))
        self.assertEqual((run["status"], run["error"]),
                         ("failed", "permissionMode has to be allow-always, allow-once, allow-reads or reject"))

    def test_a_session_goes_on(self):
        """session/load, or session/resume where the agent has it; what it tells again is not said in this run."""
        for steps, method in (("message", "session/load"), ("message resumes", "session/resume")):
            agent = self.coder(steps)
            first, second = (self.finished(self.wake(agent)) for _ in range(2))
            self.assertEqual([r["status"] for r in (first, second)], ["succeeded"] * 2)
            self.assertEqual(second["sessionIdBefore"], first["sessionIdAfter"])
            self.assertEqual(second["sessionIdAfter"], first["sessionIdAfter"])
            opened = [m for m in self.heard() if m.get("method", "").startswith("session/") and "cwd" in m["params"]]
            self.assertEqual([m["method"] for m in opened], ["session/new", method])
            self.assertEqual(opened[1]["params"]["sessionId"], first["sessionIdAfter"])
            self.assertEqual(second["resultJson"]["summary"], "hello from acp")
            self.assertNotIn("told", self.log_text(second))

    def test_a_session_that_does_not_go_on(self):
        """One that is lost, and an agent that loads none: the run begins anew, with all that a new session has to know."""
        lost, forgetful = self.coder("message"), self.coder("message forgetful")
        for agent in (lost, forgetful):
            self.assertEqual(self.finished(self.wake(agent))["status"], "succeeded")
        shutil.rmtree(self.work / "home" / ".acp-agent")
        for agent in (lost, forgetful):
            run = self.finished(self.wake(agent))
            self.assertEqual((run["status"], run["error"]), ("succeeded", None), run)
            self.assertNotEqual(run["sessionIdAfter"], run["sessionIdBefore"])
        prompts = [m["params"]["prompt"][0]["text"] for m in self.heard() if m.get("method") == "session/prompt"]
        self.assertEqual([p.startswith("## How this run works") for p in prompts], [True, True])

    def test_a_login(self):
        """An agent that wants one is logged in by the method that it offers and the operator named."""
        run = self.finished(self.wake(self.coder("login message", authMethod="by-key")))
        self.assertEqual(run["status"], "succeeded")
        self.assertEqual([m["method"] for m in self.heard()][1:4], ["session/new", "authenticate", "session/new"])
        run = self.finished(self.wake(self.coder("login message", authMethod="by-magic")))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "acp_auth_required"), run)

    def test_its_failures(self):
        for steps, code, error in (
                ("thought die", "adapter_failed", "the agent ended during session/prompt: exit status 7"),
                ("newer", "adapter_failed", "the agent does not speak version 1 of the protocol"),
                ("mute", "adapter_failed", "the agent did not get ready in time"),
                ("long", "adapter_failed", "the agent sent a line that is too long"),
                ("stop=refusal", "acp_refused", "The agent refused to go on."),
                ("stop=max_turn_requests", "max_turns_exhausted", "max_turn_requests")):
            run = self.finished(self.wake(self.coder(steps, startSec=1 if steps == "mute" else 60)))
            self.assertEqual((run["status"], run["errorCode"]), ("failed", code), (steps, run))
            self.assertIn(error, run["error"], steps)
        run = self.finished(self.wake(self.coder("message", model="m3")))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "acp_model_unavailable"), run)
        self.assertIn("model m3 was refused: Invalid params; the agent offers m1, m2", run["error"])
        run = self.finished(self.wake(self.coder("message", command="/no/such/agent")))
        self.assertEqual((run["status"], run["exitCode"]), ("failed", 127))
        self.assertIn("cannot start /no/such/agent: No such file or directory", run["error"])

    def test_long_things_are_cut(self):
        run = self.finished(self.wake(self.coder("big message")))
        self.assertEqual((run["status"], run["resultJson"]["summary"]), ("succeeded", "hello from acp"))
        self.assertLess(max(len(line) for line in self.log_text(run).splitlines()), 256 << 10)
        steps = self.steps(self.finished(self.wake(self.coder("wordy"))))
        self.assertEqual([(kind, payload["truncated"]) for kind, _, _, payload in steps],
                         [("tool_call", True), ("tool_call_update", True)])
        self.assertNotIn("input", steps[0][3])
        self.assertEqual(steps[1][3]["text"], ("y" * 4096))
        run = self.finished(self.wake(self.coder("many")))
        self.assertEqual((run["status"], len(self.steps(run))), ("succeeded", 500))
        self.assertEqual(self.steps(run)[-1][:2], ("more", "there were more steps; the transcript has them"))
        self.assertEqual(len([r for r in self.transcript(run) if r["kind"] == "plan"]), 600)


class EndingTest(AcpTest):
    def test_cancel(self):
        """The agent is asked first, in the words of the protocol; one that does not hear it is ended."""
        run = self.wake(self.coder("hang"))
        self.up(run)
        wait_until(lambda: "hanging" in self.log_text(run), "it works")
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")
        self.assertEqual(self.heard()[-1]["method"], "session/cancel")
        self.assertEqual(self.events(run)[-1]["stopReason"], "cancelled")
        run = self.wake(self.coder("deaf", graceSec=1))
        self.up(run)
        wait_until(lambda: "deaf" in self.log_text(run), "it works")
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")
        self.nothing_held()

    def test_time_limit(self):
        run = self.finished(self.wake(self.coder("deaf", timeoutSec=2, graceSec=1)))
        self.assertEqual(run["status"], "timed_out")
        self.nothing_held()

    def test_the_daemon_is_killed(self):
        """The session goes on without the daemon, and what it did meanwhile is not lost."""
        run = self.wake(self.coder(f"thought plan message wait={self.work}/go plan message"))
        self.up(run)
        wait_until(lambda: self.steps(run), "it works")
        self.daemon.kill()
        self.release_held()
        wait_until(lambda: any("turn" in p.read_text() for p in (self.work / "home/.acp-agent").iterdir()), "it has ended")
        self.daemon.start()
        run = self.finished(run)
        self.assertEqual((run["status"], run["resultJson"]["summary"]), ("succeeded", "hello from acphello from acp"))
        self.assertEqual([r["kind"] for r in self.transcript(run)].count("plan"), 2)
        self.assertEqual([s[0] for s in self.steps(run)], ["plan"] * 2)
        self.assertEqual([m.get("method") for m in self.heard()].count("session/prompt"), 1)
        self.nothing_held()


class CrashTest(AcpTest):
    daemon_binary = "faults"

    def test_steps_are_recorded_once(self):
        for point in ("run.steps.before", "run.steps.after"):
            agent = self.coder("plan tool")
            self.crash_at(point, lambda: self.wake(agent))
            (run,) = [r for r in self.runs() if r["agent_id"] == ident(agent)]
            self.assertEqual(self.finished(run)["status"], "succeeded")
            self.assertEqual([s[0] for s in self.steps(run)],
                             ["plan"] + ["tool_call", "tool_call_update"] * 2, point)


class SandboxTest(AcpTest):
    def test_in_a_sandbox(self):
        """Isolated, so what it asks for is given once; its files come home, and a cancel ends it."""
        env = self.sandbox()
        run = self.finished(self.wake(self.coder("ask files", environment=env)), 60)
        self.assertEqual((run["status"], run["error"]), ("succeeded", None), run)
        self.assertTrue(run["resultJson"]["summary"].startswith("chosen o-allow_onceread 'two"), run["resultJson"])
        self.assertEqual((self.work / "made/by-agent.txt").read_text(), "one\ntwo\nthree\n")
        run = self.wake(self.coder("hang", environment=env))
        self.up(run)
        wait_until(lambda: "hanging" in self.log_text(run), "it works")
        self.cancel(run)
        self.assertEqual(self.finished(run, 60)["status"], "cancelled")
        self.assertIn("cancelled", self.log_text(run))
        self.nothing_held()


class KindsTest(AcpTest):
    def test_acpx(self):
        """Paperclip's name for it, with the members that its agents have."""
        env = {"PATH": f"{self.work}/bin:/usr/bin:/bin"}
        (self.work / "bin").mkdir()
        for name in ("claude-agent-acp", "codex-acp"):
            (self.work / "bin" / name).symlink_to(AGENT)
        for config in ({}, {"agent": "codex", "mode": "persistent", "nonInteractivePermissions": "deny"},
                       {"agent": "custom", "agentCommand": f"{self.program} --acp"}):
            agent = self.coder("ask", kind="acpx_local", env=env, command="", permissionMode="approve-all", **config)
            run = self.finished(self.wake(agent))
            self.assertEqual((run["status"], run["resultJson"].get("summary")), ("succeeded", "chosen o-allow_once"), run)
        run = self.finished(self.wake(self.coder("ask", kind="acpx_local", command="", agent="custom")))
        self.assertIn("agent has to be claude, codex or gemini", run["error"])

    def test_kimi(self):
        (self.work / "kimi").symlink_to(AGENT)
        run = self.finished(self.wake(self.coder("message", kind="kimi_local", command=str(self.work / "kimi"))))
        self.assertEqual((run["status"], run["usageJson"]["provider"]), ("succeeded", "moonshot"))
        (invoked,) = [e["payload"] for e in self.run_events(run) if e["eventType"] == "adapter.invoke"]
        self.assertEqual(invoked["commandArgs"], ["acp"])


class ClientTest(unittest.TestCase):
    """The client by itself."""

    def test_words_that_it_does_not_know(self):
        for words in (["nonsense"], ["permissions=maybe"], ["startSec=0"], []):
            done = subprocess.run([BINARY, "--acp", "--", *words, *(["--", "true"] if words else [])],
                                  input="", capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn("usage: berth-box --acp", done.stderr)


if __name__ == "__main__":
    unittest.main()
