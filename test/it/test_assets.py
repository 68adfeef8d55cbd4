"""Assets: what an agent's program is given beside the work. Skills, instructions, the configuration of the user that
the daemon runs as, in sandboxes, on ssh hosts, in places of plugins, and here. The programs are test/agents/agent, which
writes down what it sees."""
# share 3: 9 s of processor time

import json
import os
import shutil
import stat
import subprocess
import time
import unittest
from pathlib import Path

from berthtest import SOURCE, ident, wait_until
from providertest import ProviderTest
from runtest import RunTest
from sshtest import Fixture, missing_command
from test_adapters import AGENT, KINDS
from test_plugin_box import Executor

REMOTE = "/workspace/.paperclip-runtime"


class Assets(RunTest):
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.home = self.temp_dir()
        self.daemon.env = {**self.daemon.env, "HOME": str(self.home), "CODEX_HOME": "", "CLAUDE_CONFIG_DIR": "",
                           "XDG_CONFIG_HOME": ""}
        self.daemon.start()
        shutil.rmtree(self.daemon.data / "builtin-skills")  # only the skills of the test; test_adapters.py has this one
        self.make_lease()

    def make_lease(self):
        super().make_lease()
        for command, _ in KINDS.values():
            shutil.copy(AGENT, self.work / command)

    def skill(self, name, text="do it well", company=None, description="what it is for"):
        root = self.daemon.data / "companies" / ident(company) if company else self.daemon.data
        folder = root / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n{text}\n")
        return folder

    def users(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def coder(self, kind, environment=None, env=None, look="", **config):
        command, more = KINDS[kind]
        config = {"command": f"./{command}", "cwd": str(self.work), **more, **config,
                  "env": {"AGENT_DIARY": "diary", "AGENT_LOOK": look, **(env or {})}}
        body = {"defaultEnvironmentId": ident(environment)} if environment else {}
        return self.agent(self.acme, f"{kind} {os.urandom(4).hex()}", adapterType=kind, adapterConfig=config, **body)

    def call(self, agent):
        """Run it once: its arguments, homes, and {path: (mode, kind, first line)} of what it looked at."""
        (self.work / "diary").unlink(missing_ok=True)
        self.run_it(agent)
        lines = (self.work / "diary").read_text().splitlines()
        seen = [x[5:].split(" ", 3) for x in lines if x.startswith("look ")]
        return (next(x[5:] for x in lines if x.startswith("args ")),
                dict(x[5:].split("=", 1) for x in lines if x.startswith("home ")),
                {path: (mode, kind, line) for mode, kind, path, line in seen})

    def run_it(self, agent):
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["error"]), ("succeeded", None), run)
        return run

    def notes(self, run):
        return next(e for e in self.run_events(run) if e["message"] == "adapter invocation")["payload"]["commandNotes"]

    def assert_nothing_came_home(self):
        self.assertFalse((self.work / ".paperclip-runtime").exists())
        self.assertEqual(sorted(p.name for p in (self.daemon.data / "run-assets").glob("*")), [])

    def host(self, **config):
        if missing_command():
            raise unittest.SkipTest(missing_command())
        self.fixture = Fixture(self.temp_dir() / "lab")
        self.addCleanup(self.fixture.stop)
        self.fixture.start()
        return self.environment(self.acme, name="host", driver="ssh", config={**self.fixture.config(), **config})


class SandboxTest(Assets):
    def test_claude(self):
        """remote-execution 8.5, 8.11: skills and instructions as files of the agent's own, whatever they are here; the
        configuration of the user, in a directory that the program may write to."""
        folder = self.skill("review", text="look twice")
        (folder / "bin").mkdir()
        (folder / "bin" / "tool").write_text("#!/bin/sh\n")
        (folder / "bin" / "tool").chmod(0o755)
        (folder / "alias.md").symlink_to("SKILL.md")
        shared = self.temp_dir() / "shared"
        shutil.copytree(folder, shared, symlinks=True)
        (self.daemon.data / "skills" / "linked").symlink_to(shared)
        self.users(".claude/.credentials.json", "LOGIN\n")
        self.users(".claude/settings.json", "SETTINGS\n")
        self.users(".claude/history.jsonl", "PRIVATE\n")
        (self.work / "AGENTS.md").write_text("be kind\n")
        agent = self.coder("claude_local", self.sandbox(), look=f"{REMOTE}/claude",
                           instructionsFilePath=str(self.work / "AGENTS.md"))
        args, homes, seen = self.call(agent)
        skills = f"{REMOTE}/claude/skills"
        self.assertIn(f"--add-dir {skills}", args)
        self.assertIn(f"--append-system-prompt-file {skills}/agent-instructions.md", args)
        self.assertEqual(seen[f"{skills}/agent-instructions.md"], ("600", "file", "be kind"))
        self.assertEqual(seen[f"{skills}/.claude/skills/review"][:2], ("700", "directory"))
        for name in ("review", "linked"):
            base = f"{skills}/.claude/skills/{name}"
            self.assertEqual(seen[f"{base}/SKILL.md"], ("600", "file", "---"))
            self.assertEqual(seen[f"{base}/alias.md"], ("600", "file", "---"))
            self.assertEqual(seen[f"{base}/bin/tool"], ("700", "file", "#!/bin/sh"))
        config = f"{REMOTE}/claude/config"
        self.assertEqual(homes["CLAUDE_CONFIG_DIR"], config)
        self.assertEqual(seen[f"{config}/.credentials.json"], ("600", "file", "LOGIN"))
        self.assertEqual(seen[f"{config}/settings.json"], ("600", "file", "SETTINGS"))
        self.assertNotIn(f"{config}/history.jsonl", seen)
        self.assert_nothing_came_home()
        self.nothing_held()

    def test_claude_with_a_configuration_of_its_own(self):
        self.users(".claude/.credentials.json", "LOGIN\n")
        agent = self.coder("claude_local", self.sandbox(), look="/workspace", env={"CLAUDE_CONFIG_DIR": "/tmp/mine"})
        args, homes, seen = self.call(agent)
        self.assertEqual(homes["CLAUDE_CONFIG_DIR"], "/tmp/mine")
        self.assertNotIn("--add-dir", args)
        self.assertEqual([path for path in seen if "claude/" in path], [])

    def test_codex(self):
        """remote-execution 8.70: the login is a link here, and a file there."""
        self.skill("review")
        self.users(".codex/auth.json", "LOGIN\n")
        self.users(".codex/config.toml", "CONFIG\n")
        self.users(".codex/history.jsonl", "PRIVATE\n")
        home = f"{REMOTE}/codex/home"
        args, homes, seen = self.call(self.coder("codex_local", self.sandbox(), look=f"{REMOTE}/codex"))
        self.assertEqual(homes["CODEX_HOME"], home)
        self.assertEqual(seen[f"{home}/auth.json"], ("600", "file", "LOGIN"))
        self.assertEqual(seen[f"{home}/config.toml"], ("600", "file", "CONFIG"))
        self.assertIn(f"{home}/skills/review/SKILL.md", seen)
        self.assertNotIn(f"{home}/history.jsonl", seen)
        here = self.daemon.data / "companies" / ident(self.acme) / "codex-home"
        self.assertEqual(os.readlink(here / "auth.json"), str(self.home / ".codex" / "auth.json"))
        self.assertFalse((here / "config.toml").is_symlink())
        # Copied once: what the company has is its own from then on.
        self.users(".codex/config.toml", "NEWER\n")
        self.users(".codex/auth.json", "AGAIN\n")
        _, _, seen = self.call(self.coder("codex_local", self.sandbox("box2"), look=f"{REMOTE}/codex"))
        self.assertEqual((seen[f"{home}/config.toml"][2], seen[f"{home}/auth.json"][2]), ("CONFIG", "AGAIN"))

    def test_codex_with_a_key(self):
        """The key is in a file of the place, and nowhere here; the user's login stays here."""
        self.users(".codex/auth.json", "LOGIN\n")
        key = 'sk-"quoted"\\and-back'
        secret = self.ok("POST", f"/api/companies/{ident(self.acme)}/secrets", {"name": "key", "value": key}, status=201)
        agent = self.coder("codex_local", self.sandbox(), look=f"{REMOTE}/codex",
                           env={"OPENAI_API_KEY": {"type": "secret_ref", "secretId": secret["id"]}})
        _, _, seen = self.call(agent)
        mode, kind, line = seen[f"{REMOTE}/codex/home/auth.json"]
        self.assertEqual((mode, kind, json.loads(line)), ("600", "file", {"OPENAI_API_KEY": key}))
        for path in (self.daemon.data / "companies").rglob("*"):
            self.assertFalse(path.is_file() and key.encode() in path.read_bytes(), path)

    def test_a_commit_of_everything(self):
        """remote-execution 8.70: a login is in no commit, nor is what a program keeps in its home."""
        self.users(".codex/auth.json", "LOGIN\n")
        git = ["git", "-c", "user.name=A", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "-q", self.work], check=True)
        commit = "".join(f"git -c user.name=A -c user.email=a@b {x} >&2\n" for x in ("add -A", "commit -qm all"))
        box = self.sandbox()
        for kind in ("codex_local", "gemini_local"):
            with self.subTest(kind):
                command = KINDS[kind][0]
                home = '"$HOME"' if kind == "gemini_local" else '"$CODEX_HOME"'
                (self.work / command).write_text(f"#!/bin/sh\nmkdir -p {home}\n: >{home}/secret\n{commit}"
                                                 + AGENT.read_text().removeprefix("#!/bin/sh\n"))
                self.run_it(self.coder(kind, box))
                files = subprocess.run([*git, "-C", self.work, "log", "--all", "--name-only", "--format="], check=True,
                                       capture_output=True, text=True).stdout.split()
                self.assertIn(command, files)
                self.assertEqual([f for f in files if "paperclip" in f], [])

    def test_homes(self):
        """cursor, gemini and opencode find them in their home, which is beside the work."""
        self.skill("review")
        self.users(".config/opencode/opencode.json", "OPENCODE\n")
        (self.home / ".config/opencode/outside").symlink_to("/etc/hostname")
        box = self.sandbox()
        for kind, key, folder in (("cursor", "cursor", ".cursor"), ("gemini_local", "gemini", ".gemini"),
                                  ("opencode_local", "opencode", ".claude")):
            with self.subTest(kind):
                root = f"{REMOTE}/{key}"
                _, homes, seen = self.call(self.coder(kind, box, look=root))
                self.assertEqual(homes["HOME"], root)
                self.assertEqual(seen[f"{root}/{folder}/skills/review/SKILL.md"], ("600", "file", "---"))
        config = f"{REMOTE}/opencode/xdgConfig"
        self.assertEqual(homes["XDG_CONFIG_HOME"], config)
        self.assertEqual(seen[f"{config}/opencode/opencode.json"], ("600", "file", "OPENCODE"))
        self.assertEqual(seen[f"{config}/opencode/outside"][1], "link")

    def test_pi(self):
        self.skill("review")
        args, _, seen = self.call(self.coder("pi_local", self.sandbox(), look=f"{REMOTE}/pi"))
        self.assertIn(f"--skill {REMOTE}/pi/skills", args)
        self.assertIn(f"{REMOTE}/pi/skills/review/SKILL.md", seen)

    def test_logins_of_programs(self):
        """The file in which a program keeps its login, from a variable of the agent, where the program looks."""
        login = json.dumps({"a": "it's \\ \"quoted\""})
        box = self.sandbox()
        for kind, name, path in (
                ("claude_local", "CLAUDE_CREDENTIALS_JSON", '"$CLAUDE_CONFIG_DIR"/.credentials.json'),
                ("codex_local", "CODEX_AUTH_JSON", '"$CODEX_HOME"/auth.json'),
                ("gemini_local", "GEMINI_CREDENTIALS_JSON", '"$HOME"/.gemini/oauth_creds.json'),
                ("opencode_local", "OPENCODE_AUTH_JSON", '"$HOME"/.local/share/opencode/auth.json'),
                ("pi_local", "PI_AUTH_JSON", '"$HOME"/.pi/agent/auth.json')):
            with self.subTest(kind):
                (self.work / "diary").unlink(missing_ok=True)
                _, _, seen = self.call(self.coder(kind, box, env={name: login}, look=path))
                self.assertEqual(list(seen.values()), [("600", "file", login)])

    def test_which(self):
        """Those that are asked for; of the company's and the general ones of a name, the company's."""
        self.skill("review", text="for all")
        self.skill("deploy")
        own = self.skill("review", company=self.acme, description="theirs")
        (own / "own").write_text("x\n")
        self.skill("other", company=self.company("Other"))
        box = self.sandbox()
        base = f"{REMOTE}/pi/skills"
        _, _, seen = self.call(self.coder("pi_local", box, look=base))
        self.assertEqual({p[len(base) + 1:] for p in seen} - {""},
                         {"deploy", "deploy/SKILL.md", "review", "review/SKILL.md", "review/own"})
        agent = self.coder("pi_local", box, look=base,
                           paperclipSkillSync={"desiredSkills": ["acme/tools/deploy", "gone"]})
        (self.work / "diary").unlink()
        run = self.run_it(agent)
        self.assertIn('The skill "gone" is not there and is left out.', self.notes(run))
        look = [x.split(" ", 4)[3] for x in (self.work / "diary").read_text().splitlines() if x.startswith("look ")]
        self.assertEqual(look, [base, f"{base}/deploy", f"{base}/deploy/SKILL.md"])
        none = self.coder("pi_local", box, paperclipSkillSync={"desiredSkills": []})
        self.assertNotIn("--skill", self.call(none)[0])

    def test_what_cannot_be_brought(self):
        """remote-execution 8.84: a link that leads out of a skill is not followed; the run fails, its program never
        starts, what is in its workspace is kept, and its lease is released."""
        folder = self.skill("review")
        (folder / "notes").symlink_to("/etc/hostname")
        run = self.finished(self.wake(self.coder("claude_local", self.sandbox())))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "asset_staging_failed"))
        self.assertEqual(run["error"], 'Failed to stage assets for environment "box" (sandbox): asset "skills": '
                                       'skill "review": notes leads out of its directory')
        self.assertFalse((self.work / "diary").exists())
        self.assertEqual(self.daemon.sql("SELECT id FROM executions WHERE idempotency_key LIKE 'run:%'"), [])
        self.assertEqual([w["state"] for w in self.daemon.sql("SELECT state FROM workspaces")], ["ended"])
        self.assert_nothing_came_home()
        self.nothing_held()

    def test_too_much(self):
        folder = self.skill("review")
        (folder / "a").symlink_to(".")
        run = self.finished(self.wake(self.coder("claude_local", self.sandbox())))
        self.assertEqual(run["errorCode"], "asset_staging_failed")
        self.assertIn("lies too deep", run["error"])
        (folder / "a").unlink()
        with (folder / "big").open("wb") as f:
            f.truncate((256 << 20) + 1)
        run = self.finished(self.wake(self.coder("claude_local", self.sandbox("b2"))))
        self.assertIn("there are more than 256 MiB", run["error"])

    def test_of_an_adapter_of_the_operators(self):
        folder = self.daemon.data / "adapters"
        folder.mkdir()
        (folder / "mine.json").write_text(json.dumps({
            "type": "mine", "remote": True, "command": "sh", "prompt": "none",
            "args": ["-c", "cat {{ assets.kit }}/skills/review/SKILL.md {{ assets.kit }}/etc/mine.conf"],
            "assets": [{"key": "kit", "from": [{"skills": "skills"},
                                               {"user": ".mine", "files": ["mine.conf"], "into": "etc"}]}],
            "output": {"format": "text"}}))
        self.daemon.restart()
        self.skill("review", text="as told")
        self.users(".mine/mine.conf", "CONF\n")
        agent = self.agent(self.acme, adapterType="mine", adapterConfig={"cwd": str(self.work)},
                           defaultEnvironmentId=ident(self.sandbox()))
        run = self.run_it(agent)
        self.assertEqual(self.log_text(run).splitlines()[-2:], ["as told", "CONF"])


class HostTest(Assets):
    def test_claude(self):
        """remote-execution 8.82: in the directory of the run; what the user of the host has stays his."""
        self.skill("review")
        self.users(".claude/.credentials.json", "LOGIN\n")
        env = self.host()
        args, homes, seen = self.call(self.coder("claude_local", env, look='"$PAPERCLIP_WORKSPACE_CWD"/.paperclip-runtime'))
        self.assertNotIn("CLAUDE_CONFIG_DIR", homes)
        self.assertEqual(homes["HOME"], str(self.fixture.home))
        (skill,) = [p for p in seen if p.endswith("/SKILL.md")]
        (run,) = self.runs()
        self.assertIn(f"/.paperclip-runtime/runs/{run['id']}/workspace/.paperclip-runtime/claude/skills/.claude/skills/"
                      "review/SKILL.md", skill)
        self.assertIn(f"--add-dir {skill.removesuffix('/.claude/skills/review/SKILL.md')}", args)
        self.assertEqual([p for p in seen if "credentials" in p], [])
        self.assertEqual(len([m for m in self.messages(run) if m == "adapter invocation"]), 1)
        self.assertIsNotNone(run["restored_at"])
        self.assert_nothing_came_home()
        self.nothing_held()

    def test_in_the_home_of_a_user(self):
        """What is there under the same name is left alone; what we put there is brought up to date."""
        self.skill("review", text="one")
        self.skill("deploy")
        env = self.host()
        theirs = self.fixture.home / ".gemini" / "skills" / "deploy"
        theirs.mkdir(parents=True)
        (theirs / "SKILL.md").write_text("mine\n")
        agent = self.coder("gemini_local", env, look='"$HOME"/.gemini/skills')
        _, _, seen = self.call(agent)
        skills = self.fixture.home / ".gemini" / "skills"
        self.assertEqual((theirs / "SKILL.md").read_text(), "mine\n")
        self.assertIn("one", (skills / "review" / "SKILL.md").read_text())
        self.assertEqual(stat.S_IMODE((skills / "review" / "SKILL.md").stat().st_mode), 0o600)
        shutil.rmtree(self.daemon.data / "skills" / "review")
        self.skill("review", text="two")
        self.call(agent)
        self.assertIn("two", (skills / "review" / "SKILL.md").read_text())
        self.assertEqual(sorted(p.name for p in skills.iterdir()), ["deploy", "review"])

    def test_what_is_withdrawn(self):
        """It goes from a home with the next run of the agent, unless another agent has it too; also the last."""
        for name in ("review", "deploy", "plan"):
            self.skill(name)
        env = self.host()
        skills = self.fixture.home / ".gemini" / "skills"
        (skills / "own").mkdir(parents=True)
        all_of_them = self.coder("gemini_local", env)
        one = self.coder("gemini_local", env, paperclipSkillSync={"desiredSkills": ["deploy"]})
        self.call(all_of_them)
        self.call(one)
        self.assertEqual(sorted(p.name for p in skills.iterdir()), ["deploy", "own", "plan", "review"])
        for desired, left in ((["review", "gone"], ["deploy", "own", "review"]), ([], ["deploy", "own"])):
            config = {**all_of_them["adapterConfig"], "paperclipSkillSync": {"desiredSkills": desired}}
            self.ok("PATCH", f"/api/agents/{all_of_them['id']}", {"adapterConfig": config})
            self.call(all_of_them)
            self.assertEqual(sorted(p.name for p in skills.iterdir()), left)

    def test_one_at_a_time(self):
        """Two that copy into one home wait for each other; but not for one that was killed."""
        self.skill("review")
        env = self.host()
        skills = self.fixture.home / ".gemini" / "skills"
        (skills / ".berth-lock").mkdir(parents=True)
        agent = self.coder("gemini_local", env)
        run = self.wake(agent)
        there = "workspace/.paperclip-runtime/runs/*/workspace/.paperclip-runtime/gemini/skills/review/SKILL.md"
        wait_until(lambda: list(self.fixture.home.parent.glob(there)), "they have been brought")
        self.assertEqual([p.name for p in skills.iterdir()], [".berth-lock"])
        (skills / ".berth-lock").rmdir()
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertEqual([p.name for p in skills.iterdir()], ["review"])
        (skills / ".berth-lock").mkdir()
        os.utime(skills / ".berth-lock", (0, 0))
        self.call(agent)
        self.assertEqual([p.name for p in skills.iterdir()], ["review"])

    def test_codex_keeps_its_sessions(self):
        """remote-execution 8.8, 8.9: where a directory stays, what the program made of its own stays, what is not part
        of the asset any more goes, and new files beneath it come."""
        self.skill("review")
        env = self.host(workspaceMode="in_place", remoteWorkspacePath=str(self.temp_dir()))
        agent = self.coder("codex_local", env, look='"$CODEX_HOME"')
        _, homes, _ = self.call(agent)
        home = self.fixture.home.__class__(homes["CODEX_HOME"])
        (home / "sessions").mkdir()
        (home / "sessions" / "s1").write_text("x")
        (home / "stale").write_text("x")
        self.skill("second")
        _, _, seen = self.call(agent)
        self.assertIn(f"{home}/sessions/s1", seen)
        self.assertIn(f"{home}/skills/review/SKILL.md", seen)
        self.assertIn(f"{home}/skills/second/SKILL.md", seen)
        self.assertNotIn(f"{home}/stale", seen)

    def test_several_in_one_directory(self):
        """In place, each agent has its own: nobody's key is replaced by another's while he works."""
        there = self.temp_dir()
        env = self.host(workspaceMode="in_place", remoteWorkspacePath=str(there))
        for key in ("one", "two"):
            agent = self.coder("codex_local", env, look='"$CODEX_HOME"', env={"OPENAI_API_KEY": key})
            _, homes, _ = self.call(agent)
            self.assertEqual(homes["CODEX_HOME"], f"{there}/.paperclip-runtime/codex/{agent['id']}/home")
        keys = [json.loads(p.read_text())["OPENAI_API_KEY"] for p in there.glob(".paperclip-runtime/codex/*/home/auth.json")]
        self.assertEqual(sorted(keys), ["one", "two"])

    def test_a_place_that_does_not_take_them(self):
        """remote-execution 8.84: something is in the way there. What is in the workspace is as it was."""
        self.skill("review")
        there = self.temp_dir()
        (there / ".paperclip-runtime").mkdir()
        (there / ".paperclip-runtime" / "claude").write_text("in the way\n")
        before = sorted(p.name for p in self.work.iterdir())
        env = self.host(workspaceMode="in_place", remoteWorkspacePath=str(there))
        run = self.finished(self.wake(self.coder("claude_local", env)))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "asset_staging_failed"))
        self.assertTrue(run["error"].startswith('Failed to stage assets for environment "host" (ssh): asset "skills": '),
                        run["error"])
        self.assertEqual(self.daemon.sql("SELECT id FROM executions"), [])
        self.assertEqual(sorted(p.name for p in self.work.iterdir()), before)
        self.assertEqual([w["state"] for w in self.daemon.sql("SELECT state FROM workspaces")], ["ended"])
        self.assertEqual(self.daemon.sql("SELECT id FROM salvages"), [])
        self.assert_nothing_came_home()
        self.nothing_held()


    def test_a_link_that_leads_elsewhere(self):
        """What it leads to is not ours to empty."""
        self.skill("review")
        there, theirs = self.temp_dir(), self.temp_dir()
        (theirs / "skills").mkdir()
        (theirs / "skills" / "file").write_text("x")
        (there / ".paperclip-runtime").mkdir()
        (there / ".paperclip-runtime" / "claude").symlink_to(theirs)
        env = self.host(workspaceMode="in_place", remoteWorkspacePath=str(there))
        run = self.finished(self.wake(self.coder("claude_local", env)))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "asset_staging_failed"))
        self.assertIn(f"{there}/.paperclip-runtime/claude is a link", run["error"])
        self.assertEqual([p.name for p in theirs.iterdir()], ["skills"])
        self.assertEqual([p.name for p in (theirs / "skills").iterdir()], ["file"])


class CompaniesTest(Assets):
    """In mode authenticated: a company has owners of its own, who are not the user that the daemon runs as."""

    def req(self, method, path, body=None, headers=None, token=None):
        return self.daemon.req_unix(method, path, body, headers, token)

    def restart(self, mode, **env):
        self.daemon.stop()
        self.daemon.flags = ["--mode", mode]
        self.daemon.env = {**self.daemon.env, "BERTH_WORKSPACE_ROOTS": "/tmp:/dev/shm", **env}
        self.daemon.start()

    def have(self, kind, environment=None):
        """The files of the user that an agent of that kind finds, by the first line that only they have."""
        where = REMOTE if environment else '"$CODEX_HOME"'
        _, _, seen = self.call(self.coder(kind, environment, look=where))
        self.assertTrue(any("SKILL.md" in path for path in seen) or not environment, seen)
        return sorted({line for _, _, line in seen.values() if line.startswith("USERS")})

    def test_files_of_the_user(self):
        self.skill("review")
        for name in (".claude/.credentials.json", ".claude/settings.json", ".codex/auth.json", ".codex/config.toml",
                     ".config/opencode/opencode.json"):
            self.users(name, f"USERS {name}\n")
        whole = {"claude_local": ["USERS .claude/.credentials.json", "USERS .claude/settings.json"],
                 "codex_local": ["USERS .codex/auth.json", "USERS .codex/config.toml"],
                 "opencode_local": ["USERS .config/opencode/opencode.json"]}
        box = self.sandbox()
        for mode, env, given in (("local_trusted", {}, True), ("authenticated", {}, False),
                                 ("authenticated", {"BERTH_SHARE_USER_FILES": "true"}, True),
                                 ("local_trusted", {"BERTH_SHARE_USER_FILES": "false"}, False)):
            self.restart(mode, **env)
            for kind, files in whole.items():
                with self.subTest(mode=mode, env=env, kind=kind):
                    self.assertEqual(self.have(kind, box), files if given else [])
            with self.subTest(mode=mode, env=env, kind="codex_local", here=True):
                self.assertEqual(self.have("codex_local"), whole["codex_local"] if given else [])


class HereTest(Assets):
    def test_claude(self):
        """A directory of links, under the hash of what they lead to; no copy of the user's configuration."""
        folder = self.skill("review")
        self.users(".claude/.credentials.json", "LOGIN\n")
        (self.work / "AGENTS.md").write_text("be kind\n")
        agent = self.coder("claude_local", instructionsFilePath=str(self.work / "AGENTS.md"))
        args, _, _ = self.call(agent)
        cache = self.daemon.data / "companies" / ident(self.acme) / "claude-prompt-cache"
        (bundle,) = cache.iterdir()
        self.assertIn(f"--add-dir {bundle} ", args + " ")
        self.assertEqual(os.readlink(bundle / ".claude" / "skills" / "review"), str(folder))
        self.assertIn("be kind", (bundle / "agent-instructions.md").read_text())
        self.assertEqual(stat.S_IMODE(bundle.stat().st_mode), 0o700)
        self.assertFalse((self.daemon.data / "run-assets").exists())

    def test_a_session_belongs_to_its_bundle(self):
        """remote-execution 8.83: with other instructions or skills it begins anew."""
        folder = self.skill("review")
        agent = self.coder("claude_local")
        self.call(agent)
        self.assertIn("--resume", self.call(agent)[0])
        (folder / "SKILL.md").write_text("other\n")
        self.assertNotIn("--resume", self.call(agent)[0])
        self.assertIn("--resume", self.call(agent)[0])
        state = self.ok("GET", f"/api/agents/{agent['id']}/runtime-state")
        self.assertEqual(len(state["sessionParamsJson"]["promptBundleKey"]), 64)

    def test_codex(self):
        self.users(".codex/auth.json", "LOGIN\n")
        folder = self.skill("review")
        _, homes, seen = self.call(self.coder("codex_local", look='"$CODEX_HOME"'))
        home = self.daemon.data / "companies" / ident(self.acme) / "codex-home"
        self.assertEqual(homes["CODEX_HOME"], str(home))
        self.assertEqual(seen[f"{home}/auth.json"][1:], ("link", "LOGIN"))
        self.assertEqual(os.readlink(home / "skills" / "review"), str(folder))
        # A skill that is gone goes; what else is there stays.
        (home / "skills" / "own").symlink_to("/nowhere")
        shutil.rmtree(folder)
        self.skill("deploy")
        self.call(self.coder("codex_local"))
        self.assertEqual(sorted(os.listdir(home / "skills")), ["deploy", "own"])
        _, homes, _ = self.call(self.coder("codex_local", look="/nowhere", env={"CODEX_HOME": "/tmp/mine"}))
        self.assertEqual(homes["CODEX_HOME"], "/tmp/mine")

    def test_codex_with_a_key(self):
        """Its home is another one, without the user's login; those without a key have theirs as before."""
        self.users(".codex/auth.json", "LOGIN\n")
        self.users(".codex/config.toml", "CONFIG\n")
        folder = self.skill("review")
        _, homes, seen = self.call(self.coder("codex_local", look='"$CODEX_HOME"', env={"OPENAI_API_KEY": "sk-1"}))
        company = self.daemon.data / "companies" / ident(self.acme)
        home = company / "codex-home-key"
        self.assertEqual(homes["CODEX_HOME"], str(home))
        self.assertNotIn(f"{home}/auth.json", seen)
        self.assertEqual(seen[f"{home}/config.toml"], ("600", "file", "CONFIG"))
        self.assertEqual(os.readlink(home / "skills" / "review"), str(folder))
        _, homes, seen = self.call(self.coder("codex_local", look='"$CODEX_HOME"'))
        self.assertEqual(homes["CODEX_HOME"], str(company / "codex-home"))
        self.assertEqual(seen[f"{company}/codex-home/auth.json"][1:], ("link", "LOGIN"))

    def test_links_of_the_operators(self):
        """Only what leads into the data directory is ours."""
        folder = self.skill("review")
        theirs = self.temp_dir()
        skills = self.daemon.data / "companies" / ident(self.acme) / "codex-home" / "skills"
        skills.mkdir(parents=True)
        links = {"review": str(theirs), "beside": f"{self.daemon.data}-old/skills/beside",
                 "gone": f"{self.daemon.data}/skills/gone", "deploy": f"{self.daemon.data}/skills/review"}
        for name, target in links.items():
            (skills / name).symlink_to(target)
        deploy = self.skill("deploy")
        self.call(self.coder("codex_local"))
        self.assertEqual({p.name: os.readlink(p) for p in skills.iterdir()},
                         {"review": str(theirs), "beside": links["beside"], "deploy": str(deploy)})
        self.assertTrue(folder.exists())

    def test_pi(self):
        folder = self.skill("review")
        args, _, _ = self.call(self.coder("pi_local"))
        (bundle,) = (self.daemon.data / "companies" / ident(self.acme) / "pi-prompt-cache").iterdir()
        self.assertIn(f"--skill {bundle}", args)
        self.assertEqual(os.readlink(bundle / "review"), str(folder))

    def test_a_skill_that_moved(self):
        """Unchanged, to where the company has its own: the links lead to where it is now."""
        folder = self.skill("review")
        agent = self.coder("pi_local")
        self.call(agent)
        own = self.daemon.data / "companies" / ident(self.acme) / "skills" / "review"
        own.parent.mkdir()
        folder.rename(own)
        args, _, _ = self.call(agent)
        bundle = Path(args.split("--skill ")[1].split()[0])
        self.assertEqual(os.readlink(bundle / "review"), str(own))

    def test_what_a_crash_left(self):
        """Bundles that were never finished go a day later, with the next one that is made."""
        cache = self.daemon.data / "companies" / ident(self.acme) / "pi-prompt-cache"
        for name, age in ((".run-skills", 2 * 86400), (".young-skills", 3600), ("used", 2 * 86400),
                          ("unused", 31 * 86400)):
            (cache / name / "review").mkdir(parents=True)
            os.utime(cache / name, (time.time() - age,) * 2)
        self.skill("review")
        args, _, _ = self.call(self.coder("pi_local"))
        bundle = Path(args.split("--skill ")[1].split()[0])
        self.assertEqual({p.name for p in cache.iterdir()}, {".young-skills", "used", bundle.name})


class PluginPlace(ProviderTest):
    worker = SOURCE / "test" / "workers" / "runner.py"
    wait_for, row_of, run_row, finished = RunTest.wait_for, RunTest.row_of, RunTest.run_row, RunTest.finished
    edit, log_text = RunTest.edit, RunTest.log_text

    def check(self):
        self.provider.behave(RealizeWorkspace={"result": {"cwd": " "}})
        folder = self.daemon.data / "skills" / "review"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("as told\n")
        look = 'while [ "$1" != --skill ]; do shift; done; stat -c "%a" "$2/review/SKILL.md"; cat "$2/review/SKILL.md"'
        env = self.sandbox()
        path = self.daemon.data / "adapters" / "mine.json"
        path.parent.mkdir()
        path.write_text(json.dumps({
            "type": "mine", "remote": True, "command": "sh", "prompt": "none", "output": {"format": "text"},
            "args": ["-c", look, "sh", "--skill", "{{ assets.skills }}"],
            "assets": [{"key": "skills", "from": [{"skills": ""}], "keep": ["kept"]}]}))
        self.daemon.restart()
        agent = self.agent(self.company_id, adapterType="mine", adapterConfig={})
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        run = self.finished(self.ok("POST", f"/api/agents/{agent['id']}/wakeup", {}, 202))
        self.assertEqual((run["status"], run["error"]), ("succeeded", None), run)
        self.assertEqual(self.log_text(run), "600\nas told\n")
        self.assertEqual(list((self.daemon.data / "run-assets").glob("*")), [])
        return run


class PluginCommandsTest(PluginPlace):
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_BOX": "off"}

    def test_where_only_commands_run(self):
        self.check()


class PluginBoxTest(PluginPlace):
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_BOX": "always", "BERTH_PLUGIN_CONFINE": "false"}

    def test_by_way_of_a_box(self):
        executor = Executor()
        self.addCleanup(executor.close)
        (self.provider.dir / "executor").write_text(str(executor.server_address[1]))
        self.check()
        (lease,) = self.daemon.sql("SELECT metadata FROM environment_leases")
        self.assertEqual(json.loads(lease["metadata"])["commands"], "box")


if __name__ == "__main__":
    unittest.main()
