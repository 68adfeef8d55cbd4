"""What is asked in the place before an agent starts there: whether its model can be had, and whether its session is one
of that directory."""

import json
import pathlib
import re
import shutil
import unittest

import test_adapters

PI = """#!/bin/sh
while [ "$1" != --session ]; do shift; done
[ -f "$2" ] && [ ! -s "$2" ] || exit 3
printf '{"type":"turn_end","message":{"content":"%s"}}\\n' "$2"
"""


class ReadyTest(test_adapters.AdapterTest):
    def executions(self, run, kind):
        return self.daemon.sql("SELECT * FROM executions WHERE idempotency_key = ?", (f"{kind}:{run['id']}",))

    def refused(self, agent, text):
        """It ended before the agent was started, and holds nothing."""
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"], run["error"]), ("failed", "adapter_failed", text))
        self.assertEqual(self.executions(run, "run"), [])
        self.assertEqual([l["status"] for l in self.leases(run)], ["failed"])
        self.nothing_held()
        return run


class ModelTest(ReadyTest):
    # remote-execution 8.85
    def test_it_is_asked_before_there_is_a_way_home(self):
        run = self.run_it(self.coder("opencode_local", env={"MY_KEY": "mine"}))
        self.assertEqual(pathlib.Path(f"{self.diary}.models").read_text(), "models no key mine\n")
        (asked,), (started,) = self.executions(run, "models"), self.executions(run, "run")
        self.assertEqual((json.loads(asked["args"]), asked["timeout_ms"]), (["models"], 20000))
        self.assertLess(asked["ended_at"], started["created_at"])

    # remote-execution 8.85
    def test_one_that_cannot_be_had(self):
        agent = self.coder("opencode_local", env={"AGENT_MODELS": "Models:\nopenai/gpt-4 x\n  xai/grok\n\topenai/gpt-55"})
        self.refused(agent, "Configured OpenCode model is unavailable: openai/gpt-5. "
                            "Available models: openai/gpt-4, xai/grok, openai/gpt-55")
        self.assertFalse(self.diary.exists())

    def test_many(self):
        """More than 64 KiB of them: the last one counts too, and only the first are told."""
        names = [f"openai/model-{i:04}-{'x' * 40}" for i in range(1500)]
        (self.work / "models").write_text("\n".join(names))
        env = {"AGENT_MODELS": str(self.work / "models")}
        self.run_it(self.coder("opencode_local", model=names[-1], env=env))
        self.refused(self.coder("opencode_local", env=env), "Configured OpenCode model is unavailable: openai/gpt-5. "
                            f"Available models: {', '.join(names[:12])}, ...")

    def test_it_cannot_be_asked(self):
        shown = self.bin / "opencode"
        self.refused(self.coder("opencode_local", env={"AGENT_MODE": "crash"}), f"`{shown} models` failed: out of luck")
        self.refused(self.coder("opencode_local", env={"AGENT_MODELS": "log in first"}),
                     f"OpenCode names no models. Run `{shown} models` there and see that it is logged in with a provider.")

    def test_in_a_sandbox(self):
        (self.work / "ws").mkdir()
        shutil.copy(test_adapters.AGENT, self.work / "ws" / "opencode")
        agent = self.coder("opencode_local", self.sandbox(), command="./opencode", cwd=str(self.work / "ws"),
                           env={"AGENT_MODELS": "a/b"})
        run = self.refused(agent, "Configured OpenCode model is unavailable: openai/gpt-5. Available models: a/b")
        self.assertEqual(self.executions(run, "models")[0]["timeout_ms"], 120000)


class SessionFileTest(ReadyTest):
    def session(self, run):
        return pathlib.Path(run["sessionIdAfter"])

    # remote-execution 8.86
    def test_one_that_is_none_of_this_directory(self):
        agent = self.coder("pi_local")
        before = self.session(self.run_it(agent))
        self.assertRegex(str(before), r"/\.pi/paperclips/\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{6}Z-" + agent["id"] + r"\.jsonl$")
        self.assertEqual(set(json.loads(before.read_text())), {"type", "cwd"})
        again = self.run_it(agent)
        self.assertEqual((again["sessionIdBefore"], self.session(again)), (str(before), before))
        cwd = json.loads(before.read_text())["cwd"]
        for what in ("", "{", '{"type":"session","cwd":"/elsewhere"}\n', json.dumps({"type": "other", "cwd": cwd}) + "\n",
                     "x" * 100_000, None):
            before.unlink()
            if what is None:
                before.mkdir()  # cannot be read
            else:
                before.write_text(what)
            run = self.run_it(agent)
            self.assertIsNone(run["sessionIdBefore"], what)
            self.assertNotEqual(self.session(run), before)
            if what is not None:
                self.assertEqual(before.read_text(), what)
                before = self.session(run)
        last = self.session(run)
        last.write_text(json.dumps({"cwd": cwd, "more": 1, "type": "session"}) + "\n" + "x" * 100_000)
        self.assertEqual(self.run_it(agent)["sessionIdBefore"], str(last))
        self.nothing_held()

    # remote-execution 8.86
    def test_it_is_made_empty_beside_the_work(self):
        (self.work / "ws").mkdir()
        program = self.work / "ws" / "pi"
        program.write_text(PI)
        program.chmod(0o755)
        agent = self.coder("pi_local", self.sandbox(), command="./pi", cwd=str(self.work / "ws"))
        said = self.run_it(agent)["resultJson"]["summary"]
        self.assertTrue(re.fullmatch(r"/workspace/\.paperclip-runtime/pi/sessions/[0-9TZ-]+-" + agent["id"] + r"\.jsonl", said),
                        said)


class HomelessTest(ReadyTest):
    daemon_env = {**ReadyTest.daemon_env, "HOME": "/dev/null"}

    def test_where_no_session_can_be_made(self):
        run = self.finished(self.wake(self.coder("pi_local")))
        self.assertRegex(run["error"], r"^The session file /dev/null/\.pi/.* could not be made\.$")
        self.assertEqual((run["status"], self.executions(run, "run")), ("failed", []))
        self.nothing_held()


if __name__ == "__main__":
    unittest.main()
