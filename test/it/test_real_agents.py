"""Claude Code, Codex, Gemini CLI, opencode and pi, as they are published, do real work for Berth: woken by an issue they
change a file, comment and close it, from this machine, a sandbox, an ssh host and a plugin's place; and every way in which
that ends early.

TEST_AGENTS=all runs every cell, TEST_AGENTS=claude:sandbox,codex:*:works those; without it a few fast ones run."""
# slow: whole agent programs start many times
# share 6: 13 s of processor time

import fnmatch
import json
import os
import pathlib
import shutil
import tempfile
import time
import unittest

import realagents
from berthtest import PATIENCE, SOURCE, wait_until
from models import Cut, Fail, ModelServer, Say, Shell, Stall
from providertest import ProviderTest
from runtest import RunTest
from sshtest import Fixture, missing_command
from test_plugin_box import Executor

MODELS_AT = "127.0.0.2"  # not an address that programs reach without their proxy
FAST = ("claude:local:works", "claude:local:resumed", "claude:sandbox:works", "claude:sandbox:cancelled", "claude:endpoint",
        "claude:local:401", "codex:local:works", "gemini-acp:local:works", "claude-acp:sandbox:works", "codex:sandbox:works", "codex:sandbox:401")
CHOSEN = os.environ.get("TEST_AGENTS", ",".join(FAST)).replace("all", "*").split(",")
PATIENT = 180  # seconds in which any of the programs gets up on a busy machine

API = """api() { curl -sS --fail-with-body --max-time 60 -X "$1" -H "Authorization: Bearer $PAPERCLIP_API_KEY" \
-H "X-Paperclip-Run-Id: $PAPERCLIP_RUN_ID" -H 'Content-Type: application/json' ${3+-d "$3"} "$PAPERCLIP_API_URL/api$2"; }
"""
SAY = API + """api POST "/issues/$PAPERCLIP_TASK_ID/comments" '{"body":"%s"}'\n"""
WORK = SAY % "Noted." + """echo noted >> NOTES.md
api PATCH "/issues/$PAPERCLIP_TASK_ID" '{"status":"done"}'
"""
# Says that it is up, and waits until somebody answers; the daemon may be away for a while.
HOLD = SAY % "Up." + """until api GET "/issues/$PAPERCLIP_TASK_ID/comments" | grep -q "Go on"; do sleep 0.2; done
"""


def setUpModule():
    """Codex's own sandbox wants a home that is neither in the temporary directory nor below /dev, where those of tests are."""
    tempfile.tempdir = tempfile.mkdtemp(prefix="b-", dir="/var/tmp")
    unittest.addModuleCleanup(shutil.rmtree, tempfile.tempdir, ignore_errors=True)


class Cases(RunTest):
    """One program in one kind of place. The end of this file makes a class of each pair."""

    program = place = None

    def setUp(self):
        self.bin = realagents.programs()
        self.home = self.temp_dir()
        self.models = self.make_models()
        self.addCleanup(self.models.close)
        self.daemon_env = {**self.daemon_env, "HOME": str(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}",
                           "BERTH_WORKSPACE_ROOTS": tempfile.gettempdir(),
                           "BERTH_PRIVATE_HOSTS": f"{MODELS_AT}:{self.models.port}",
                           "BERTH_SANDBOX_ROOTFS_DIRS": str(realagents.CACHE), "BERTH_PLUGIN_BOX": "always",
                           "BERTH_PLUGIN_CONFINE": "false"}
        super().setUp()

    def make_models(self):
        return ModelServer(MODELS_AT)

    def make_lease(self):
        super().make_lease()
        if PATIENCE > 1:
            self.be_patient()
        (self.work / "NOTES.md").write_text("# Notes\n")
        getattr(self, f"make_{self.place}")()

    def be_patient(self):
        """A program that lists its models has 20 seconds for it, which a busy machine makes longer."""
        described = json.loads((SOURCE / "src" / "core" / "adapters" / f"{self.program.adapter}.json").read_text())
        if "modelList" in described:
            described["modelList"].update(seconds=int(20 * PATIENCE), sandboxSeconds=int(120 * PATIENCE))
            self.daemon.stop()
            (self.daemon.data / "adapters").mkdir(exist_ok=True)
            (self.daemon.data / "adapters" / "own.json").write_text(json.dumps(described))
            self.daemon.start()

    # Places. Each says where the programs' own files are: self.files here, self.files_there as the program sees it; and
    # self.at_home, the home that they have there, or the project where that comes into being with the place.

    def make_local(self):
        self.env, self.at_home = None, self.home
        self.files = self.files_there = self.temp_dir()

    def make_sandbox(self, **config):
        self.require_sandboxes()
        allowed = {"network": "allowlist", "allowedHosts": [f"{MODELS_AT}:{self.models.port}"]}
        self.env = self.sandbox_environment(rootfs=str(realagents.rootfs()), memoryMb=4096, **{**allowed, **config})
        self.files, self.files_there, self.at_home = self.work / ".own", pathlib.Path("/workspace/.own"), self.work

    def make_ssh(self):
        if missing_command():
            raise unittest.SkipTest(missing_command())
        self.fixture = Fixture(self.temp_dir() / "lab")
        self.addCleanup(self.fixture.stop)
        self.fixture.start()
        (self.fixture.home / ".profile").write_text(f'PATH="{self.bin}:$PATH"\n')
        self.env = self.environment(self.acme, name="host", driver="ssh", config=self.fixture.config())
        self.at_home = self.fixture.home
        self.files = self.files_there = self.temp_dir()

    def make_plugin(self):
        self.provider = ProviderTest.install_provider(self, SOURCE / "test" / "workers" / "runner.py")
        executor = Executor()
        self.at_home = self.work
        executor.env = {"PATH": self.daemon_env["PATH"], "HOME": str(self.temp_dir())}
        self.addCleanup(executor.close)
        (self.provider.dir / "executor").write_text(str(executor.server_address[1]))
        self.env = self.environment(self.acme, name="acme", driver="sandbox", config={"provider": "acme", "image": "i"})
        self.files = self.files_there = self.temp_dir()

    def put(self, name, text):
        """A file of the program's in the place; its path there."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(self.files_there / name)

    def put_home(self, name, text):
        path = self.at_home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    # Agents.

    def settle(self):
        return self.program.settle(self)

    def coder(self, **config):
        env, more = self.settle()
        config = {"cwd": str(self.work), **more, **config, "env": {**env, **config.pop("env", {})}}
        body = {"defaultEnvironmentId": self.env["id"]} if self.env else {}
        return self.agent(self.acme, "Coder", adapterType=self.program.adapter, adapterConfig=config, **body)

    def issue_for(self, agent):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": "Keep a note", "description": "Add the word noted to NOTES.md.", "assigneeAgentId": agent["id"]},
            status=201)

    def only_run(self):
        runs = wait_until(self.runs, "the agent is woken")
        self.assertEqual(len(runs), 1, runs)
        return runs[0]

    def until(self, condition, what, run):
        """Wait for something that the program does; when its run ends before, that is the failure."""
        def look():
            if self.row_of(run)["step"] == "done":
                self.fail(f"{what}\n{self.story(run)}")
            return condition()
        wait_until(look, what, PATIENT)

    def ended(self, run, status="succeeded"):
        run = self.finished(run, PATIENT)
        self.assertEqual(run["status"], status, self.story(run))
        return run

    def story(self, run):
        """What a reader of a failed cell wants to know."""
        row = self.run_row(run)
        told = {k: row[k] for k in ("status", "errorCode", "error", "exitCode", "signal") if k in row}
        events = [(e["message"], e["payload"].get("cwd"), e["payload"].get("commandArgs"))
                  if e["eventType"] == "adapter.invoke" else e["message"] for e in self.run_events(run)]
        turns = [(r.method, r.path, r.turn) for r in self.models.requests]
        return "\n".join(map(str, (told, events, turns, self.log_text(run)[-1500:], self.log_text(run, "stderr")[-1500:])))

    def comments(self, issue):
        return [c["body"] for c in self.ok("GET", f"/api/issues/{issue['id']}/comments")]

    def assert_worked(self, issue, run):
        row = self.ok("GET", f"/api/issues/{issue['id']}")
        self.assertEqual(row["status"], "done", self.story(run))
        self.assertIn("Noted.", self.comments(issue))
        self.assertEqual((self.work / "NOTES.md").read_text(), "# Notes\nnoted\n", self.story(run))
        self.assertEqual(self.models.left, [])

    # Cases.

    def case_works(self):
        self.models.script(Shell(WORK), Say("All done."))
        issue = self.issue_for(self.coder())
        run = self.ended(self.only_run())
        self.assert_worked(issue, run)
        first = self.models.turns[0]
        self.assertEqual(first.key, realagents.KEY)
        self.assertIn("Keep a note", first.text)
        usage = run["usageJson"]
        self.assertEqual((usage["cachedInputTokens"], usage["outputTokens"]), (self.program.cached, 40), usage)
        self.assertIn(usage["inputTokens"], (120, 200), usage)  # without the cached ones or with them, as the program counts
        self.assertIn("All done.", json.dumps(run["resultJson"]))
        self.nothing_held()

    def case_resumed(self):
        self.models.script(Shell(WORK), Say("Remember the word heliotrope."))
        agent = self.coder()
        issue = self.issue_for(agent)
        first = self.ended(self.only_run())
        self.assert_worked(issue, first)
        if self.program.by_the_minute:
            made = time.strftime("%H:%M")
            wait_until(lambda: time.strftime("%H:%M") != made, "another minute begins", 70)
        self.models.script(Shell("echo again"), Say("Done again."))
        second = self.ended(self.wake(agent, payload={"issueId": issue["id"]}))
        # Of a session that is a file, the name: where each run has a directory of its own the file comes along.
        before, after = (os.path.basename(i or "") for i in (second["sessionIdBefore"], first["sessionIdAfter"]))
        self.assertEqual(before, after, self.story(second))
        self.assertTrue("heliotrope" in self.models.turns[0].text,
                        f"the second run does not know what was said in the first\n{self.story(second)}")
        usage = second["usageJson"]
        self.assertEqual(usage["outputTokens"], 40, f"the run's own tokens, not the session's: {usage}")

    def case_lost(self):
        """Its session is gone, as the program finds out: the run begins anew, once, and does the work."""
        if self.place != "local":
            raise unittest.SkipTest("elsewhere a session without its files is not asked for")
        self.models.script(Say("Remember the word heliotrope."))
        agent = self.coder()
        first = self.ended(self.wake(agent))
        for files in (*self.home.glob(".*/projects"), *self.home.glob(".gemini/tmp"), *self.home.glob(".pi"),
                      *self.home.glob(".local/share/opencode"), *self.daemon.data.glob("companies/*/codex-home*/sessions")):
            shutil.rmtree(files)
        self.models.script(Say("Done."))
        second = self.ended(self.wake(agent))
        self.assertNotEqual(second["sessionIdAfter"], first["sessionIdAfter"])
        self.assertFalse("heliotrope" in self.models.turns[0].text, self.story(second))

    def case_cancelled(self):
        self.models.script(Stall(always=True))
        self.issue_for(self.coder())
        run = self.only_run()
        self.until(self.models.stalled.is_set, "the program waits for its model", run)
        self.cancel(run)
        self.ended(run, "cancelled")
        self.nothing_held()

    def case_timed_out(self):
        self.models.script(Stall(always=True))
        self.issue_for(self.coder(timeoutSec=10, graceSec=2))
        self.ended(self.only_run(), "timed_out")
        self.nothing_held()

    def case_daemon_killed(self):
        self.models.script(Shell(HOLD), Shell(WORK), Say("All done."))
        issue = self.issue_for(self.coder())
        run = self.only_run()
        self.until(lambda: "Up." in self.comments(issue), "the program works", run)
        self.daemon.listen = "%s:%d" % self.daemon.address  # agents of this machine know it by that
        self.daemon.restart(crash=True)
        self.ok("POST", f"/api/issues/{issue['id']}/comments", {"body": "Go on."}, status=201)
        self.assert_worked(issue, self.ended(run))

    def case_recovers(self):
        """What passes by itself is no failure of the run; of a program that gives up at once, it is one to try again."""
        self.models.script(Cut(), Shell(WORK), Fail(529, always=False), Say("All done."))
        issue = self.issue_for(self.coder())
        run = self.finished(self.only_run(), PATIENT)
        if run["status"] == "failed" and len(self.models.turns) == 1:
            return self.assert_failed(run, "transient_upstream", again=True)
        self.assert_worked(issue, self.ended(run))

    def fails(self, code, again):
        self.issue_for(self.coder())
        self.assert_failed(self.ended(self.only_run(), "failed"), code, again)

    def assert_failed(self, run, code, again):
        """With that code and a sentence; whether it is tried again is known by then."""
        self.assertEqual(run["errorCode"], f"{self.program.codes or self.program.name}_{code}", self.story(run))
        self.assertTrue(run["error"], self.story(run))
        later = [r for r in self.runs() if r["id"] != run["id"]]
        self.assertEqual([r["status"] for r in later], ["scheduled_retry"] if again else [], self.story(run))
        for planned in later:
            self.cancel(planned)
        self.nothing_held()

    def case_401(self):
        self.models.script(Fail(401))
        self.fails("auth_required", again=False)

    def case_429(self):
        self.models.script(Fail(429, after=3600))
        self.fails("transient_upstream", again=True)

    def case_503(self):
        self.models.script(Fail(503))
        self.fails("transient_upstream", again=True)

    def case_no_network(self):
        self.models.close()  # nobody listens there
        self.fails("unreachable", again=True)


class Endpoint(Cases):
    """The vendor's own address, which the program has by itself: reached through the proxy by its name, with TLS from end to
    end. The daemon is the one that takes addresses of names from a file."""

    place = "sandbox"
    daemon_binary = "faults"

    def make_models(self):
        chain, self.ca = realagents.make_certificate(self.temp_dir(), [self.program.host])
        models = ModelServer("127.0.0.1", chain)
        hosts = self.temp_dir() / "hosts"
        hosts.write_text(f"{self.program.host} !127.0.0.1:{models.port}\n")
        self.daemon_env = {**self.daemon_env, "BERTH_TEST_HOSTS": str(hosts)}
        return models

    def make_sandbox(self):
        super().make_sandbox(allowedHosts=[self.program.host])

    def settle(self):
        return self.program.by_default(self.put("ca.pem", self.ca.read_text()))


CASES = [name.removeprefix("case_") for name in vars(Cases) if name.startswith("case_")]


def cell(case):
    def test(self):
        began, result, why = time.monotonic(), "works", None
        try:
            getattr(self, f"case_{case}")()
        except unittest.SkipTest:
            result = None
            raise
        except BaseException as e:
            result, why = "fails", str(e) or repr(e)
            raise
        finally:
            if result:
                realagents.record(self.program, self.place, case, result, why, time.monotonic() - began)
    return test


def chosen(*cell):
    return any(fnmatch.fnmatch(":".join(cell), f"{pattern}*") for pattern in CHOSEN)


for _program in realagents.PROGRAMS:
    for _place in realagents.PLACES:
        _tests = {f"test_{case}": cell(case) for case in CASES if chosen(_program.name, _place, case)}
        if _tests:
            _name = f"{_program.name.title().replace('-', '')}{_place.capitalize()}Test"
            globals()[_name] = type(_name, (Cases,), {"program": _program, "place": _place, "__module__": __name__,
                                                      **_tests})
    if chosen(_program.name, "endpoint", "works"):
        _name = f"{_program.name.title().replace('-', '')}EndpointTest"
        globals()[_name] = type(_name, (Endpoint,), {"program": _program, "__module__": __name__,
                                                     "test_works": Cases.case_works})
del Cases, Endpoint

if __name__ == "__main__":
    unittest.main()
