"""Adapters: every kind of agent runs from its descriptor, comes back to its session, and can be tried in an
environment. The agents are test/agents/agent under the names of the real programs."""
# share 3: 6 s of processor time

import base64
import io
import json
import os
import pathlib
import shutil
import tarfile
import time
import unittest

from berthtest import ident, wait_until
from providertest import ProviderTest
from runtest import RunTest
from sandboxtest import BERTH
from sshtest import Fixture, SshTest, missing_command

AGENT = pathlib.Path(__file__).resolve().parents[1] / "agents" / "agent"
# adapter, its command, what its configuration needs
KINDS = {
    "claude_local": ("claude", {}),
    "codex_local": ("codex", {}),
    "cursor": ("agent", {}),
    "gemini_local": ("gemini", {}),
    "opencode_local": ("opencode", {"model": "openai/gpt-5"}),
    "pi_local": ("pi", {"model": "xai/grok"}),
}


class AdapterTest(RunTest):
    def make_lease(self):
        super().make_lease()
        self.bin = self.work / "bin"
        self.bin.mkdir()
        self.diary = self.work / "diary"
        for command, _ in KINDS.values():
            (self.bin / command).symlink_to(AGENT)

    def coder(self, kind, environment=None, env=None, **config):
        """An agent of that kind; its name is the kind."""
        command, more = KINDS[kind]
        config = {"command": str(self.bin / command), **more, **config,
                  "env": {"AGENT_DIARY": str(self.diary), **(env or {})}}
        body = {"defaultEnvironmentId": ident(environment)} if environment else {}
        return self.agent(self.acme, kind, adapterType=kind, adapterConfig=config, **body)

    def calls(self):
        """What the agents wrote down: one (args, prompt, variables) per call."""
        found = []
        for block in self.diary.read_text().split("end\n")[:-1]:
            lines = block.splitlines()
            found.append((next(x[5:] for x in lines if x.startswith("args ")),
                          "\n".join(x[7:] for x in lines if x.startswith("prompt ")),
                          dict(x[4:].split("=", 1) for x in lines if x.startswith("env "))))
        return found

    def state(self, agent):
        return self.ok("GET", f"/api/agents/{ident(agent)}/runtime-state")

    def run_it(self, agent):
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["error"]), ("succeeded", None), run)
        return run


class RunningTest(AdapterTest):
    def check_kind(self, kind):
        agent = self.coder(kind, promptTemplate="work on {{ run.id }}, {{ agent.name }}")
        first, second = self.run_it(agent), self.run_it(agent)
        (args, prompt, env), (resumed, _, _) = self.calls()
        command = KINDS[kind][0]
        self.assertTrue(prompt.startswith("## How this run works"), prompt)
        self.assertTrue(prompt.endswith(f"work on {first['id']}, {kind}"), prompt)
        self.assertEqual((env["PAPERCLIP_RUN_ID"], env["PAPERCLIP_AGENT_ID"]), (first["id"], agent["id"]))
        self.assertIn("PAPERCLIP_API_KEY", env)
        self.assertTrue(env["PAPERCLIP_API_URL"].startswith("http://127.0.0.1:"), env["PAPERCLIP_API_URL"])
        session = second["sessionIdBefore"]
        self.assertIsNotNone(session)
        self.assertEqual(first["sessionIdAfter"], session)
        self.assertIn(session, resumed)
        if kind != "pi_local":  # which is told the name of its session every time
            self.assertEqual(session, "fresh-session")
            self.assertNotIn(session, args)
        usage = second["usageJson"]
        self.assertEqual([usage[k] for k in ("inputTokens", "cachedInputTokens", "outputTokens")], [10, 4, 6], usage)
        self.assertIn(f"hello from {command}", json.dumps(second["resultJson"]))
        return first

    def test_claude(self):
        self.check_kind("claude_local")

    def test_codex(self):
        self.check_kind("codex_local")

    def test_cursor(self):
        self.check_kind("cursor")

    def test_gemini(self):
        self.check_kind("gemini_local")

    def test_opencode(self):
        self.check_kind("opencode_local")

    def test_pi(self):
        self.check_kind("pi_local")

    def test_the_task(self):
        """What an agent is told of its issue: all of it, and how to answer; also as a skill."""
        agent = self.coder("claude_local")
        issue = self.ok("POST", f"/api/companies/{ident(self.acme)}/issues",
                        {"title": "Mend the login", "description": "It says 500.\nSince Monday."}, 201)
        self.ok("POST", f"/api/issues/{issue['id']}/comments", {"body": "only on Firefox"}, 201)
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": agent["id"], "status": "todo"})
        run = wait_until(lambda: [r for r in self.runs() if r["status"] == "succeeded"], "a run")[0]
        ((args, prompt, _),) = self.calls()
        self.assertIn(f"## Your task: {issue['identifier']}, Mend the login\n\nIt says 500.\nSince Monday.\n", prompt)
        self.assertIn("only on Firefox", prompt)
        self.assertIn("PATCH /issues/$PAPERCLIP_TASK_ID '{\"status\":\"done\"}'", prompt)
        told = self.run_row(run)["contextSnapshot"]["paperclipIssue"]
        self.assertEqual((told["description"], told["commentCount"], told["descriptionTruncated"]),
                         ("It says 500.\nSince Monday.", 1, False))
        bundle = pathlib.Path(args.split("--add-dir ")[1].split()[0])
        self.assertIn("name: berth", (bundle / ".claude/skills/berth/SKILL.md").read_text())

    def test_a_session_that_is_not_known_any_more(self):
        """The second run is told to go on, is refused, and begins anew under the same run."""
        agent = self.coder("claude_local", env={"AGENT_SESSION": "lost"})
        self.run_it(agent)
        self.ok("PATCH", f"/api/agents/{agent['id']}",
                {"adapterConfig": {"env": {"AGENT_DIARY": str(self.diary)}}})
        run = self.run_it(agent)
        self.assertEqual((run["sessionIdBefore"], run["sessionIdAfter"]), ("lost", "fresh-session"))
        self.assertEqual(["--resume lost" in args for args, _, _ in self.calls()], [False, True, False])

    def test_what_a_failure_says(self):
        run = self.finished(self.wake(self.coder("claude_local", env={"AGENT_MODE": "auth"})))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "claude_auth_required"))
        status, shown, why = self.cli("runs", "show", run["id"])
        self.assertIn("berth agent update 'claude_local' --secret-env ANTHROPIC_API_KEY", shown)
        run = self.finished(self.wake(self.coder("codex_local", env={"AGENT_MODE": "crash"})))
        self.assertEqual((run["status"], run["exitCode"], run["error"]),
                         ("failed", 7, "Codex exited with code 7: out of luck"))

    def test_models_are_asked_for_once(self):
        agent = self.coder("opencode_local")
        asked = pathlib.Path(f"{self.diary}.models")
        for n in (1, 1):
            self.run_it(agent)
            self.assertEqual(len(asked.read_text().splitlines()), n)
        config = self.ok("GET", f"/api/agents/{agent['id']}")["adapterConfig"]
        self.ok("PATCH", f"/api/agents/{agent['id']}", {"adapterConfig": {**config, "variant": "high"}})
        self.run_it(agent)
        self.assertEqual(len(asked.read_text().splitlines()), 2)

    def test_long_instructions(self):
        """More than fits into one argument of a command."""
        text = self.work / "AGENTS.md"
        text.write_text("be kind\n" * 24000)
        for kind in ("gemini_local", "pi_local"):
            self.run_it(self.coder(kind, instructionsFilePath=str(text)))
        (_, gemini, _), (pi, _, _) = self.calls()
        self.assertGreater(gemini.count("be kind"), 23999)
        self.assertGreater(pathlib.Path(pi.split("--append-system-prompt ")[1].split()[0]).stat().st_size, 190000)

    def test_skills_on_this_machine(self):
        home = self.temp_dir()
        (home / ".gemini/skills/mine").mkdir(parents=True)
        self.daemon.env = {**self.daemon.env, "HOME": str(home)}
        self.daemon.restart()
        self.run_it(self.coder("gemini_local"))
        self.assertIn("name: berth", (home / ".gemini/skills/berth/SKILL.md").read_text())
        self.assertTrue((home / ".gemini/skills/mine").is_dir())
        run = self.run_it(self.coder("opencode_local"))
        env = next(e for e in self.run_events(run) if e["eventType"] == "adapter.invoke")["payload"]["env"]
        (path,) = json.loads(env["OPENCODE_CONFIG_CONTENT"])["skills"]["paths"]
        self.assertTrue((pathlib.Path(path) / "berth/SKILL.md").is_file())

    def test_a_failure_that_may_pass(self):
        """The service is overloaded: the same work is tried again later, unless the agent is not to."""
        for retries in (None, 0):
            agent = self.coder("claude_local", env={"AGENT_MODE": "busy"},
                               **({} if retries is None else {"maxRetries": retries}))
            run = self.finished(self.wake(agent))
            self.assertEqual((run["status"], run["errorCode"]), ("failed", "claude_transient_upstream"))
            self.assertEqual(run["resultJson"]["errorFamily"], "transient_upstream")
            self.assertIn("retryNotBefore", run["resultJson"])
            again = [r for r in map(self.run_row, self.runs()) if r["retryOfRunId"] == run["id"]]
            self.assertEqual([r["status"] for r in again], ["scheduled_retry"] if retries is None else [])
            for r in again:
                self.assertIn("; trying again at ", run["error"])
                self.assertEqual(self.cancel(r)["status"], "cancelled")

    def test_in_a_sandbox(self):
        """The same there: the program comes with the workspace, its diary comes home, and nothing is resumed that was
        done in another sandbox (remote-execution 8.83)."""
        (self.work / "ws").mkdir()
        shutil.copy(AGENT, self.work / "ws" / "claude")
        agent = self.coder("claude_local", self.sandbox(), command="./claude", cwd=str(self.work / "ws"),
                           env={"AGENT_DIARY": "diary", "MY_WORKSPACE_CWD": str(self.work / "ws"),
                                "MY_OWN": "x", "PAPERCLIP_TASK_ID": "mine"})
        run = self.run_it(agent)
        self.run_it(agent)
        self.diary = self.work / "ws" / "diary"
        (args, _, env), (again, _, _) = self.calls()
        self.assertIn("--allowedTools", args)
        self.assertNotIn("--resume", again)
        self.assertEqual(env["PAPERCLIP_RUN_ID"], run["id"])
        # remote-execution 8.64
        self.assertEqual([env[k] for k in ("PAPERCLIP_WORKSPACE_CWD", "MY_WORKSPACE_CWD", "MY_OWN", "PAPERCLIP_TASK_ID")],
                         ["/workspace", "/workspace", "x", "mine"])
        self.nothing_held()


# the file of a session where Claude has it
CLAUDES = '"$HOME/.claude/projects/$(pwd -P | sed "s/[^A-Za-z0-9]/-/g")/$session.jsonl"'


class SessionTest(AdapterTest):
    """The files of a session go with the agent from one sandbox to the next."""

    def kept(self, kind, keep):
        ws = self.work / kind
        ws.mkdir()
        command = KINDS[kind][0]
        shutil.copy(AGENT, ws / command)
        agent = self.coder(kind, self.sandbox(kind), command=f"./{command}", cwd=str(ws),
                           env={"AGENT_DIARY": "diary", "AGENT_KEEP": keep})
        first, second = self.run_it(agent), self.run_it(agent)
        self.diary = ws / "diary"
        self.assertIsNotNone(first["sessionIdAfter"])
        self.assertEqual(second["sessionIdBefore"], first["sessionIdAfter"])
        self.assertIn(first["sessionIdAfter"], self.calls()[1][0])
        kept = [int(x.split()[1]) for x in self.diary.read_text().splitlines() if x.startswith("kept ")]
        self.assertEqual(kept, [kept[0], kept[0] + 1])
        self.nothing_held()
        return agent

    def test_claude(self):
        """And one whose files are gone begins anew; the run succeeds."""
        agent = self.kept("claude_local", '"$HOME/.claude/projects/-workspace/fresh-session.jsonl"')
        shutil.rmtree(self.daemon.data / "companies" / ident(self.acme) / "sessions")
        self.assertIsNone(self.run_it(agent)["sessionIdBefore"])

    def test_what_is_taken_from_an_archive(self):
        """An earlier place made it: nothing but the files of sessions comes from it into another."""
        found = 'for f in settings.json projects/p/other.jsonl projects/link; do [ ! -e "$HOME/.claude/$f" ] || echo found; done'
        agent = self.kept("claude_local", f'"$HOME/.claude/projects/-workspace/fresh-session.jsonl"; {found}')
        archive, = (self.daemon.data / "companies" / ident(self.acme) / "sessions").glob("*/*")
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as tar:
            for name in ("projects/p/fresh-session.jsonl", "projects/p/other.jsonl", "settings.json"):
                member = tarfile.TarInfo(name)
                member.size = 2
                tar.addfile(member, io.BytesIO(b"x\n"))
            link = tarfile.TarInfo("projects/link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc"
            tar.addfile(link)
        archive.write_bytes(base64.b64encode(made.getvalue()))
        self.run_it(agent)
        said = self.diary.read_text().splitlines()
        self.assertEqual([x for x in said if x.startswith("kept ")][2:], ["kept 2"])
        self.assertNotIn("found", said)

    def test_it_stays_on_its_side(self):
        """What was said in an isolated place is not resumed on a machine outside, nor the other way round."""
        if missing_command():
            self.skipTest(missing_command())
        host = Fixture(self.temp_dir() / "lab")
        self.addCleanup(host.stop)
        host.start()
        ws = self.work / "ws"
        ws.mkdir()
        shutil.copy(AGENT, ws / "claude")
        box = self.sandbox()
        outside = self.environment(self.acme, name="host", driver="ssh", config=host.config())
        agent = self.coder("claude_local", box, command="./claude", cwd=str(ws),
                           env={"AGENT_DIARY": "diary", "AGENT_KEEP": CLAUDES})
        for env in (box, outside, box, outside):
            self.ok("PATCH", f"/api/agents/{agent['id']}", {"defaultEnvironmentId": ident(env)})
            self.run_it(agent)
        # on the host the second run finds what is there in any case, and resumes it
        self.assertEqual([x for x in (ws / "diary").read_text().splitlines() if x.startswith("kept ")],
                         ["kept 1", "kept 1", "kept 2", "kept 2"])
        self.diary = ws / "diary"
        self.assertEqual(["--resume" in args for args, _, _ in self.calls()], [False, False, True, True])

    def test_a_name_that_is_an_option(self):
        agent = self.coder("claude_local", env={"AGENT_SESSION": "--settings=x"})
        self.run_it(agent)
        self.assertIsNone(self.run_it(agent)["sessionIdBefore"])
        self.assertNotIn("--settings", self.calls()[1][0])

    def test_not_without_end(self):
        """A program that names another session in each run does not fill the disk."""
        agent = self.kept("claude_local", CLAUDES)
        folder = self.daemon.data / "companies" / ident(self.acme) / "sessions" / agent["id"]
        now = time.time()
        for i in range(40):
            with open(folder / f"claude_local-{i}", "wb") as f:
                f.truncate(12 << 20)
            os.utime(folder / f"claude_local-{i}", (now - 1000 + i, now - 1000 + i))
        self.run_it(agent)
        left = {p.name: p.stat().st_size for p in folder.iterdir()}
        self.assertLess(sum(left.values()), 129 << 20)
        self.assertEqual(len(left), 11)
        self.assertIn("claude_local-39", left)

    def test_codex(self):
        self.kept("codex_local", '"$CODEX_HOME/sessions/2026/11/18/rollout-fresh-session.jsonl"')

    def test_gemini(self):
        self.kept("gemini_local", '"$(ls "$HOME"/.gemini/tmp/*/chats/session-1-fresh-se.json || echo "$HOME/.gemini/tmp/w/chats/session-1-fresh-se.json")"')

    def test_opencode(self):
        self.kept("opencode_local", '"$OPENCODE_DB"')

    def test_pi(self):
        self.kept("pi_local", '"$wanted"')


class BegunAnewTest(AdapterTest):
    """Without its session, when the daemon died before it had noted that; its agent is changed meanwhile."""

    def begun(self, change):
        held, began = self.work / "held", self.work / "began"
        program = self.work / "program"
        program.write_text(f"""#!/bin/sh
            case "$*" in *--resume*) ;; *) : >"{began}"; while [ -e "{held}" ]; do sleep 0.05; done ;; esac
            exec "{self.bin}/claude" "$@"\n""")
        program.chmod(0o755)
        config = {"command": str(program), "cwd": str(self.work)}
        agent = self.coder("claude_local", **config, env={"AGENT_SESSION": "lost"})
        self.run_it(agent)
        self.ok("PATCH", f"/api/agents/{agent['id']}",
                {"adapterConfig": {**config, "env": {"AGENT_DIARY": str(self.diary)}}})
        began.unlink()
        held.touch()
        run = self.wake(agent)
        wait_until(began.exists, "it is begun anew")
        self.wait_for(run, step="executing")
        self.daemon.kill()
        kept = self.daemon.sql("SELECT * FROM heartbeat_run_commands")
        self.edit("UPDATE heartbeat_runs SET step = 'finishing', execution_id = (SELECT id FROM executions WHERE "
                  "idempotency_key = 'run:' || heartbeat_runs.id) WHERE id = ?", (ident(run),))
        self.edit(f"UPDATE agents SET {change}")
        self.daemon.start()
        self.wait_for(run, step="executing")
        self.assertEqual(self.daemon.sql("SELECT * FROM heartbeat_run_commands"), kept)
        held.unlink()
        run = self.finished(run)
        self.assertEqual((run["status"], run["error"], run["sessionIdAfter"]), ("succeeded", None, "fresh-session"))
        self.assertEqual(["--resume lost" in args for args, _, _ in self.calls()], [False, True, False])

    def test_with_another_configuration(self):
        self.begun("adapter_config = json_set(adapter_config, '$.timeoutSec', 77)")

    def test_of_another_kind(self):
        self.begun("adapter_type = 'codex_local'")


MINE = {
    "type": "mine", "label": "Mine", "remote": True, "command": "/tmp/mine", "prompt": "argument",
    "args": ["--say", "{{ prompt }}"],
    "install": {"shell": """printf '#!/bin/sh\\necho "{\\"say\\":\\"hello\\"}"\\n' >/tmp/mine; chmod +x /tmp/mine"""},
    "output": {"format": "json-lines", "events": [{"set": {"summary": "say"}}]},
    "probe": {"seconds": 20, "expect": "hello"},
}


class Trying(AdapterTest):
    def try_it(self, kind, environment=None, company=None, **config):
        body = {"adapterConfig": config}
        if environment:
            body["environmentId"] = ident(environment)
        return self.ok("POST", f"/api/companies/{ident(company or self.acme)}/adapters/{kind}/test-environment", body)

    def codes(self, result):
        return [c["code"] for c in result["checks"]]

    def try_claude(self, mode=None, command="claude"):
        return self.try_it("claude_local", command=str(self.bin / command), cwd=str(self.work),
                           env={"AGENT_MODE": mode} if mode else {})

    def ends(self):
        """How the leases of tests ended, oldest first."""
        return [r["status"] for r in self.daemon.sql("SELECT status FROM environment_leases ORDER BY acquired_at")]


class CommandTest(Trying):
    def test_list_and_test(self):
        _, listed, _ = self.cli("adapter", "list")
        self.assertRegex(listed, r"claude_local +claude +api.anthropic.com")
        command = str(self.bin / "claude")
        status, said, why = self.cli("adapter", "test", "claude_local", "--environment", "Local", "-o", f"command={command}")
        self.assertEqual(status, 0, why)
        self.assertIn(f"Command is executable: {command}", said)
        status, said, _ = self.cli("adapter", "test", "claude_local", "--environment", "Local", "-o", "command=/no/such")
        self.assertEqual(status, 1)
        self.assertIn("fail", said)
        status, _, why = self.cli("adapter", "test", "nothing")
        self.assertEqual((status != 0, why), (True, "berth: Adapter not found; 'berth adapter list' shows those there are\n"))


class TranscriptTest(AdapterTest):
    def test_what_people_see(self):
        run = self.run_it(self.coder("claude_local"))
        answer = self.ok("GET", f"/api/heartbeat-runs/{run['id']}/transcript")
        self.assertEqual((answer["readable"], answer["eof"]), (True, True))
        self.assertEqual([(r["kind"], r.get("text")) for r in answer["records"]], [("text", "hello from claude"), ("usage", None)])
        self.assertTrue(all(r["ts"] for r in answer["records"]))
        told = "hello from claude\n[tokens: 10 in, 4 cached, 6 out]\n"
        self.assertEqual(self.cli("runs", "logs", run["id"])[:2], (0, told))
        self.assertEqual(self.cli("runs", "logs", "-f", run["id"])[:2], (0, told))
        self.assertIn('{"type":"result"', self.cli("runs", "logs", "--raw", run["id"])[1])
        # Page by page it is the same.
        records, page = [], {"nextOffset": 0, "eof": False}
        while not page["eof"]:
            page = self.ok("GET", f"/api/heartbeat-runs/{run['id']}/transcript?offset={page['nextOffset']}&limitBytes=1")
            records += page["records"]
        self.assertEqual(records, answer["records"])

    def test_of_programs_without_one(self):
        run = self.run_it(self.runner("echo plain; echo bad >&2"))
        self.assertFalse(self.ok("GET", f"/api/heartbeat-runs/{run['id']}/transcript")["readable"])
        self.assertEqual(self.cli("runs", "logs", run["id"]), (0, "plain\n", "bad\n"))


class NetworkTest(AdapterTest):
    def test_a_sandbox_for_an_adapter(self):
        status, _, why = self.cli("env", "create", "sandbox", "for-claude", "--for", "claude_local")
        self.assertEqual(status, 0, why)
        status, shown, _ = self.cli("env", "show", "for-claude", "--json")
        config = json.loads(shown)["config"]
        self.assertEqual((config["network"], "api.anthropic.com" in config["allowedHosts"]), ("allowlist", True))
        status, _, why = self.cli("env", "create", "sandbox", "for-claude", "--for", "claude_local")
        self.assertEqual(status, 1)
        self.assertIn("the environment 'for-claude' already exists", why)
        self.assertEqual(self.cli("env", "create", "ssh", "x", "--for", "claude_local")[0], 2)
        self.assertEqual(self.cli("issue", "create", "x", "--follow")[0], 2)
        status, shown, why = self.cli("adapter", "list")
        self.assertEqual([line for line in shown.splitlines() if len(line) > 80], [])
        self.assertIn("platform.claude.com", shown)
        self.assertIn("'berth adapter list' shows", self.cli("adapter", "test", "nothing")[2])
        why = self.cli("env", "create", "sandbox", "z", "-o", "network=allowlist", "-o", 'allowedHosts:=["*"]')[2]
        self.assertIn("write each host, example.com, or *.example.com", why)
        status, _, why = self.cli("env", "create", "sandbox", "y", "--for", "claud")
        self.assertEqual((status != 0, why), (True, "berth: Adapter not found; 'berth adapter list' shows those there are\n"))

    def test_a_model_that_will_not_be_reached(self):
        self.daemon.stop()
        (self.daemon.data / "adapters").mkdir()
        (self.daemon.data / "adapters" / "own.json").write_text(json.dumps(
            {"type": "own", "remote": True, "command": "true", "hosts": ["model.example"], "prompt": "none",
             "output": {"format": "text"}}))
        self.daemon.start()
        agent = self.agent(self.acme, "O", adapterType="own", defaultEnvironmentId=ident(self.sandbox()))
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "adapter_no_network"))
        self.assertIn("own needs model.example, and this sandbox has no network: allow it with", run["error"])
        for n, (hosts, env, code) in enumerate(((["other.example"], {}, "adapter_no_network"), (["*.example"], {}, None),
                                                (["other.example"], {"HTTPS_PROXY": "http://other.example"}, None))):
            box = self.sandbox(name=f"box-{n}", network="allowlist", allowedHosts=hosts)
            run = self.finished(self.wake(self.agent(self.acme, f"O{n}", adapterType="own", defaultEnvironmentId=ident(box),
                                                     adapterConfig={"env": env})))
            self.assertEqual(run["errorCode"], code, run["error"])
            if code:
                self.assertIn("own needs model.example, which is not in allowedHosts of this sandbox", run["error"])

    def test_what_the_proxy_refused(self):
        script = ('at=${HTTPS_PROXY#http://}; exec 3<>"/dev/tcp/${at%:*}/${at##*:}"; '
                  'printf "CONNECT blocked.example:443 HTTP/1.1\\r\\nHost: blocked.example:443\\r\\n\\r\\n" >&3; head -n 1 <&3')
        box = self.sandbox(network="allowlist", allowedHosts=["other.example"])
        agent = self.agent(self.acme, "B", adapterType="process", defaultEnvironmentId=ident(box),
                           adapterConfig={"command": "bash", "args": ["-c", script]})
        run = self.run_it(agent)
        self.assertIn("403", self.log_text(run))
        wait_until(lambda: "blocked: blocked.example:443, not in allowedHosts" in self.messages(run), "the event")

    def test_hosts_that_can_never_be_reached(self):
        for host in ("localhost:8080", "127.0.0.1:9", "10.1.2.3", "*.localhost"):
            self.assert_error(self.req("POST", f"/api/companies/{ident(self.acme)}/environments", {
                "name": host, "driver": "sandbox",
                "config": {"provider": "berth", "network": "allowlist", "allowedHosts": ["example.com", host]}}),
                422, contains=f"{host} can never be reached")


class TryingTest(Trying):
    def test_here(self):
        result = self.try_claude()
        self.assertEqual((result["adapterType"], result["status"]), ("claude_local", "pass"), result)
        self.assertEqual(self.codes(result), ["claude_environment_target", "claude_cwd_valid",
                                              "claude_command_resolvable", "claude_hello_probe_passed"])
        self.assertEqual(self.ends(), ["released"])
        self.assertRegex(result["testedAt"], r"^20\d\d-.*Z$")

    def check_hello(self, mode, status, code):
        result = self.try_claude(mode)
        self.assertEqual((result["status"], self.codes(result)[-1]), (status, f"claude_hello_probe_{code}"), result)

    def test_what_it_answers(self):
        self.check_hello("auth", "warn", "auth_required")
        self.check_hello("mumble", "warn", "unexpected_output")
        self.check_hello("crash", "fail", "failed")
        result = self.try_claude(command="codex")
        self.assertEqual((result["status"], self.codes(result)[-1]),
                         ("pass", "claude_hello_probe_skipped_custom_command"))
        result = self.try_claude(command="nothing")
        self.assertEqual((result["status"], self.codes(result)[-1]), ("fail", "claude_command_unresolvable"))
        result = self.try_it("pi_local", command=str(self.bin / "pi"))
        self.assertEqual((result["status"], result["checks"][-1]["message"]),
                         ("fail", "Pi requires an explicit model in provider/model form (adapterConfig.model)."))

    def test_secrets_are_not_given(self):
        result = self.try_it("process", command="sh", env={
            "TOKEN": {"type": "secret_ref", "secretId": "00000000-0000-4000-8000-000000000000"}, "A": "b"})
        self.assertEqual(result["status"], "pass")
        self.assertEqual([c["detail"] for c in result["checks"] if c["code"] == "process_env_secrets_skipped"],
                         ["TOKEN"])

    def test_a_directory_that_is_none(self):
        (self.work / "file").write_text("")
        result = self.try_it("process", command="sh", cwd=str(self.work / "file"))
        self.assertEqual((result["status"], self.codes(result)[-1]), ("fail", "process_cwd_invalid"))
        result = self.try_it("process", command="sh", cwd="here")
        self.assertEqual((result["status"], self.codes(result)[-1]), ("fail", "process_cwd_invalid"))
        result = self.try_it("process")
        self.assertEqual((result["status"], result["checks"][-1]["message"]),
                         ("fail", "Process adapter missing command"))

    def test_http(self):
        self.assertEqual(self.codes(self.try_it("http")), ["http_url_missing"])
        result = self.try_it("http", url="http://127.0.0.1:1/")
        self.assertEqual((result["status"], self.codes(result)), ("pass", ["http_url_configured"]))
        self.assertEqual(self.ends(), [])

    def test_an_environment_that_is_not_there(self):
        """environment-runtime 7.123, http-api 8.46: no lease, and nothing is tried here instead."""
        other = self.company("Other")
        env = self.environment(other, config=BERTH)
        for environment in (env, {"id": "00000000-0000-4000-8000-000000000000"}):
            result = self.try_it("process", environment, command="sh")
            self.assertEqual((result["status"], self.codes(result)), ("warn", ["environment_not_found"]))
        self.assertEqual(self.ends(), [])
        self.assert_error(self.req("POST", f"/api/companies/{self.acme['id']}/adapters/nonsense/test-environment", {}),
                          422, "Unknown adapter type: nonsense")

    def test_an_adapter_that_only_works_here(self):
        """environment-runtime 7.122, http-api 8.47"""
        result = self.try_it("http", self.sandbox(), url="http://h/")
        self.assertEqual((result["status"], self.codes(result)), ("warn", ["environment_target_unsupported"]))
        self.assertEqual(result["checks"][0]["message"], 'Adapter "http" is not allowed in "box" environments.')
        self.assertEqual(self.ends(), ["failed"])

    def test_in_a_sandbox(self):
        """environment-runtime 7.124, http-api 8.48"""
        result = self.try_it("process", self.sandbox(), command="sh")
        self.assertEqual((result["status"], self.codes(result)),
                         ("pass", ["process_environment_target", "process_cwd_valid", "process_command_resolvable"]))
        self.assertIn("sandbox environment", result["checks"][0]["message"])
        self.assertEqual(self.ends(), ["released"])

    def test_a_lease_that_cannot_be_had(self):
        env = self.sandbox()
        self.ok("PATCH", f"/api/environments/{env['id']}", {"status": "archived"})
        result = self.try_it("process", env, command="sh")
        self.assertEqual((result["status"], self.codes(result)), ("fail", ["environment_lease_acquire_failed"]))
        self.assertEqual(result["checks"][0]["message"], 'Could not acquire a lease for environment "box".')

    def test_who_may(self):
        """Whoever configures agents; but what runs on this machine is the board's to choose."""
        plain = self.agent(self.acme, "Plain")
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        path = f"/api/companies/{self.acme['id']}/adapters/process/test-environment"
        body = {"adapterConfig": {"command": "sh"}}
        self.assertEqual(self.req("POST", path, body, token=plain["token"]).status, 403)
        self.assert_error(self.req("POST", path, body, token=maker["token"]), 403, "Board access required")
        body["environmentId"] = self.sandbox()["id"]
        self.assertEqual(self.ok("POST", path, body, token=maker["token"])["status"], "pass")

    def test_models(self):
        base = f"/api/companies/{self.acme['id']}/adapters"
        self.assertEqual(self.ok("GET", f"{base}/codex_local/model-profiles"), [])
        self.assertEqual(self.ok("GET", f"{base}/gemini_local/detect-model"),
                         {"model": "auto", "provider": "google", "source": "adapter_default"})
        self.assertIsNone(self.ok("GET", f"{base}/codex_local/detect-model"))
        self.assert_error(self.req("GET", f"{base}/mine/detect-model"), 422, "Unknown adapter type: mine")
        fields = {f["key"]: f for f in self.ok("GET", "/api/adapters/codex_local/config-schema")["fields"]}
        self.assertEqual((fields["model"]["type"], fields["timeoutSec"]["type"], fields["extraArgs"]["type"]),
                         ("combobox", "number", "text"))
        self.assertIn("gpt-5.4", [o["value"] for o in fields["model"]["options"]])
        self.assertLessEqual({"search", "fastMode", "modelReasoningEffort", "cwd"}, set(fields))
        self.assertNotIn("permissionMode", fields)
        self.assert_error(self.req("GET", "/api/adapters/mine/config-schema"), 404, "Adapter not found")
        path = f"{base}/{{}}/models"
        self.assertIn({"id": "gpt-5.4", "label": "gpt-5.4"}, self.ok("GET", path.format("codex_local")))
        self.assertEqual(self.ok("GET", path.format("process")), [])
        self.assert_error(self.req("GET", path.format("process") + "?environmentId=00000000-0000-4000-8000-000000000000"),
                          404, "Environment not found")


class OwnTest(Trying):
    """Descriptors of the operator's own."""

    def make_lease(self):
        super().make_lease()
        self.daemon.stop()
        folder = self.daemon.data / "adapters"
        folder.mkdir()
        (folder / "mine.json").write_text(json.dumps(MINE))
        (folder / "worse.json").write_text(json.dumps({"type": "worse", "command": "x", "args": "-p"}))
        self.daemon.start()

    def test_what_is_not_there_is_installed(self):
        """remote-execution 8.49: looked for, installed, looked for again; and it says hello."""
        result = self.try_it("mine", self.sandbox(network="allowlist", allowedHosts=["other.example"]))
        self.assertEqual((result["status"], self.codes(result)),
                         ("pass", ["mine_environment_target", "mine_cwd_valid", "mine_install_command_run",
                                   "mine_command_resolvable", "mine_hello_probe_passed"]), result)

    def own_adapter(self, install):
        """One whose program is not there: it is started by its own name only when the script made it."""
        (self.daemon.data / "adapters" / "mine.json").write_text(json.dumps(
            {"type": "mine", "remote": True, "command": "my-agent", "install": {"shell": install}, "prompt": "none",
             "output": {"format": "text"}}))
        self.daemon.restart()
        return self.agent(self.acme, "M", adapterType="mine",
                          defaultEnvironmentId=ident(self.sandbox(network="allowlist", allowedHosts=["example.com"])))

    def test_installed_for_the_user(self):
        """In ~/.local/bin, which is not on the search path of the place; each line is an event."""
        agent = self.own_adapter("mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho I am $0\\n' >~/.local/bin/my-agent; "
                                 "chmod +x ~/.local/bin/my-agent; echo one; echo two >&2")
        run = self.run_it(agent)
        self.assertIn("/.local/bin/my-agent", self.log_text(run))
        self.assertEqual([e["message"] for e in self.run_events(run) if e["eventType"] == "install"], ["one", "two"])

    def test_what_it_installs_is_told_meanwhile(self):
        run = self.wake(self.own_adapter("echo one; printf half; sleep 300"))
        wait_until(lambda: "one" in self.messages(run), "the first line")
        self.assertNotIn("half", self.messages(run))
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")

    def test_an_installation_that_fails(self):
        run = self.finished(self.wake(self.own_adapter("echo first; echo no such package >&2; exit 3")))
        self.assertEqual((run["status"], run["errorCode"], run["error"]),
                         ("failed", "adapter_install_failed",
                          "my-agent could not be installed in this sandbox: no such package"))

    def test_no_network_to_install_with(self):
        """Nothing is tried: the answer comes at once, and says what helps; to a test as to a run."""
        result = self.try_it("mine", self.sandbox(name="away"))
        self.assertEqual((self.codes(result)[-1], result["checks"][-1]["message"][:60]),
                         ("mine_command_unresolvable", "/tmp/mine is not in this sandbox, which has no network to in"))
        agent = self.agent(self.acme, "C", adapterType="claude_local", defaultEnvironmentId=ident(self.sandbox()))
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "adapter_install_failed"))
        self.assertIn("claude is not in this sandbox, which has no network to install it: start", run["error"])

    def test_it_is_an_adapter_like_others(self):
        shown = self.ok("GET", f"/api/companies/{self.acme['id']}/environments/capabilities")["adapters"]
        self.assertEqual((shown[-1]["adapterType"], shown[-1]["drivers"]["ssh"]), ("mine", "supported"))
        self.assertNotIn("worse", [a["adapterType"] for a in shown])
        self.assertIn("worse.json: args has to be a list", self.daemon.log())
        agent = self.agent(self.acme, "M", adapterType="mine", adapterConfig={"command": "/bin/echo"})
        run = self.run_it(agent)
        self.assertIn("--say ## How this run works", self.log_text(run))


class HostTest(SshTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()

    def try_it(self, kind, env, **config):
        result = self.ok("POST", f"/api/companies/{self.acme['id']}/adapters/{kind}/test-environment",
                         {"adapterConfig": config, "environmentId": env["id"]})
        return result["status"], [c["code"] for c in result["checks"]], result["checks"]

    def test_on_a_host(self):
        env = self.ssh_environment(self.acme)
        status, codes, checks = self.try_it("process", env, command="sh")
        self.assertEqual((status, codes), ("pass", ["process_environment_target", "process_cwd_valid",
                                                    "process_command_resolvable"]), checks)
        self.assertIn("SSH environment ", checks[0]["message"])
        status, codes, _ = self.try_it("http", env, url="http://h/")
        self.assertEqual((status, codes), ("warn", ["environment_target_unavailable"]))

    def test_a_host_that_does_not_answer(self):
        line = self.new_line()
        env = self.ssh_environment(self.acme, port=line.port)
        line.close()
        status, codes, checks = self.try_it("process", env, command="sh")
        self.assertEqual((status, codes), ("warn", ["environment_target_failed"]), checks)
        self.assertEqual(checks[0]["message"], f'Could not connect to environment "{env["name"]}" to run the test.')


class PluginTest(ProviderTest):
    def try_it(self):
        return self.ok("POST", f"/api/companies/{self.company_id}/adapters/process/test-environment",
                       {"adapterConfig": {"command": "sh"}, "environmentId": self.env["id"]})

    def setUp(self):
        super().setUp()
        self.env = self.sandbox()

    def ended(self):
        return [r["status"] for r in self.daemon.sql("SELECT status FROM environment_leases ORDER BY acquired_at")]

    def test_a_workspace_that_cannot_be_had(self):
        """environment-runtime 7.125, http-api 8.49"""
        self.provider.behave(RealizeWorkspace={"error": {"code": -32000, "message": "no room"}})
        result = self.try_it()
        self.assertEqual((result["status"], [c["code"] for c in result["checks"]]),
                         ("fail", ["environment_workspace_realize_failed"]))
        self.assertEqual(result["checks"][0]["message"], 'Could not realize a workspace inside "box".')
        self.assertIn("no room", result["checks"][0]["detail"])
        self.assertEqual(self.ended(), ["failed"])
        self.assertEqual(self.provider.world(), set())

    def test_commands_that_fail(self):
        """Whatever is run there ends with status 3."""
        result = self.try_it()
        self.assertEqual((result["status"], [c["code"] for c in result["checks"]]),
                         ("fail", ["process_environment_target", "process_cwd_invalid"]))
        self.assertEqual(result["checks"][1]["detail"], "oops")
        self.assertEqual(self.ended(), ["released"])


if __name__ == "__main__":
    unittest.main()
