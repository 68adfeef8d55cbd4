"""Values stay inside: marked ones go through every path there is, and then they are looked for in the database, the
data directory, logs, arguments and environments of all processes, and the answers of every GET route, as operator and
as agent. A value that is meant to be seen shows that the search finds things.
"""

# sqlite: looks into the SQLite file

import base64
import contextlib
import http.client
import os
import pathlib
import shutil
import re
import resource
import signal
import subprocess
import threading
import unittest

from awsfake import AwsFake, refuse
from berthtest import BINARIES, ident, new_company, wait_until
from exectest import ExecTest, sanitized
from providertest import ProviderTest
from secretscan import Marks, fill, forms, get_routes

AWS_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SSH = {"host": "127.0.0.1", "port": 1, "username": "deploy", "remoteWorkspacePath": "/srv/work"}
WORKSPACE = "30000000-0000-4000-8000-000000000001"
SHOW = 'for v in "$LOCAL" "$REMOTE" "$LINKED"; do echo "out $v"; echo "err $v" >&2; done'


def ref(secret):
    return {"type": "secret_ref", "secretId": secret}


class Scanning:
    """For tests with a daemon and self.marks."""

    def setUp(self):
        self.marks = Marks()
        self.answers = []
        super().setUp()

    def req(self, method, path, body=None, headers=None, token=None):
        """What every call answers is searched too."""
        answer = super().req(method, path, body, headers, token)
        self.answers.append((f"{method} {path}", answer.body, repr(answer.headers)))
        return answer

    def walk_routes(self):
        rows = self.daemon.sql
        ids = {"companies": [r["id"] for r in rows("SELECT id FROM companies")], "secrets": [r["id"] for r in rows("SELECT id FROM company_secrets")],
               "environments": [r["id"] for r in rows("SELECT id FROM environments")],
               "environment-leases": [r["id"] for r in rows("SELECT id FROM environment_leases")],
               "executions": [r["id"] for r in rows("SELECT id FROM executions")], "agents": [r["id"] for r in rows("SELECT id FROM agents")],
               "secret-provider-configs": [r["id"] for r in rows("SELECT id FROM company_secret_provider_configs")],
               "plugins": [r["id"] for r in rows("SELECT id FROM plugins")],
               "issues": [r["id"] for r in rows("SELECT id FROM issues")],
               "projects": [r["id"] for r in rows("SELECT id FROM projects")],
               "comments": [r["id"] for r in rows("SELECT id FROM issue_comments")], "documents": ["plan"],
               "config-revisions": [r["id"] for r in rows("SELECT id FROM agent_config_revisions")],
               "salvages": [r["id"] for r in rows("SELECT id FROM salvages")],
               "adapters": ["process"], "kinds": ["podman"],
               "heartbeat-runs": [r["id"] for r in rows("SELECT id FROM heartbeat_runs")],
               "execution-workspaces": [r["id"] for r in rows("SELECT id FROM execution_workspaces")]}
        agent = self.agent(ids["companies"][0], name="Reader", grants=["environments:manage"], role="ceo",
                           permissions={"canCreateAgents": True})
        own = self.ok("POST", f"/api/agents/{ids['agents'][0]}/keys", {"name": "scan"}, status=201)["token"]
        good = set()
        for pattern in get_routes():
            if re.fullmatch(r"/api/companies/:[a-zA-Z]+/events", pattern):
                continue  # never ends
            for path in fill(pattern, ids):
                for query in ("", "?stream=stderr") if path.endswith("/output") else ("",):
                    for token in (None, agent["token"], own):
                        if self.req("GET", path + query, token=token).status == 200:
                            good.add(pattern)
        return good

    def assert_clean(self, but=()):
        roots = [p for p in self.daemon.data.iterdir() if p.name != "plugins"]
        self.assertEqual(self.marks.in_files(*roots, self.daemon.log_path), set())
        self.assertEqual(self.marks.in_processes(but), set())
        for what, body, headers in self.answers:
            self.assertEqual(self.marks.found_in(body + headers.encode()), set(), what)
        self.assertEqual(self.marks.found_in("\n".join(self.daemon.stdout).encode()), set())


class ScanCase(Scanning, ExecTest):
    daemon_env = {**ExecTest.daemon_env, "BERTH_LOG_LEVEL": "debug", "BERTH_SECRETS_STRICT_MODE": "true",
                  "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "AKIDTEST",
                  "AWS_SECRET_ACCESS_KEY": AWS_KEY}
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.aws = AwsFake()
        self.addCleanup(self.aws.close)
        self.daemon.env.update({"BERTH_SECRETS_AWS_ENDPOINT": self.aws.url, "HOME": str(self.temp_dir())})

    def begin(self):
        self.daemon.start()
        self.make_lease()
        self.acme = self.held["lease"]["companyId"]
        self.secrets = f"/api/companies/{self.acme}/secrets"
        self.vault = self.ok("POST", f"/api/companies/{self.acme}/secret-provider-configs",
                             {"provider": "aws_secrets_manager", "displayName": "prod",
                              "config": {"region": "us-east-1", "namespace": "prod"}}, status=201)["id"]

    def create(self, name, **more):
        return self.ok("POST", self.secrets, {"name": name, "value": self.marks.make(name), **more}, status=201)["id"]

    def outside(self):
        return {"provider": "aws_secrets_manager", "providerConfigId": self.vault}

    def link(self):
        """A secret that AWS holds already, imported."""
        self.aws.CreateSecret({"Name": "team/linked", "SecretString": self.marks.make("linked"),
                               "ClientRequestToken": "t" * 32}, "us-east-1")
        seen = self.ok("POST", self.secrets + "/remote-import/preview", {"providerConfigId": self.vault})
        row = next(c for c in seen["candidates"] if c["name"] == "team/linked")
        done = self.ok("POST", self.secrets + "/remote-import", {
            "providerConfigId": self.vault, "secrets": [{"externalRef": row["externalRef"], "name": "linked"}]})
        self.assertEqual(done["importedCount"], 1, done)
        return next(s["id"] for s in self.ok("GET", self.secrets) if s["name"] == "linked")

    def make_agent(self, **env):
        return self.ok("POST", f"/api/companies/{self.acme}/agents",
                       {"name": "Ada", "adapterConfig": {"env": env}}, status=201)["id"]

    def family(self, pid):
        """The process and all below it."""
        found = {pid}
        while True:
            more = {int(p) for p in filter(str.isdigit, os.listdir("/proc")) if parent(p) in found} - found
            if not more:
                return found
            found |= more


def parent(pid):
    with contextlib.suppress(OSError):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


class SecretScan(ScanCase):
    def setUp(self):
        super().setUp()
        self.begin()

    def fail_with_values(self):
        """Calls that are refused with a value in the body."""
        key = self.create("twice")
        bad = self.marks.make("failed")
        agent = f"/api/companies/{self.acme}/agents"
        for method, path, body in (
                ("POST", self.secrets, {"name": "twice", "value": bad}),
                ("POST", self.secrets, {"name": "x", "value": bad, "provider": "nope"}),
                ("POST", self.secrets, {"name": "x", "value": [bad]}),
                ("POST", self.secrets, {"value": bad}),
                ("POST", self.secrets, f'{{"name": "x", "value": "{bad}"'.encode()),
                ("POST", self.secrets, f'{{"name": "x", "value": "{bad}", "value": "{bad}"}}'.encode()),
                ("POST", self.secrets, f'{{"name": "x", "value": "{bad}\\ud800"}}'.encode()),
                ("POST", self.secrets, {"name": "x", "value": bad + "x" * 70000}),
                ("POST", self.secrets, {"name": "x", "value": bad, "provider": "vault"}),
                ("POST", f"/api/secrets/{key}/rotate", {"value": bad, "externalRef": "x"}),
                ("POST", "/api/secrets/00000000-0000-4000-8000-000000000000/rotate", {"value": bad}),
                ("PATCH", f"/api/secrets/{key}", {"value": bad, "status": "nope"}),
                ("POST", "/api/nothing", {"value": bad}),
                ("POST", agent, {"name": "x", "adapterConfig": {"env": {"API_TOKEN": bad}}}),
                ("POST", agent, {"name": "x", "adapterConfig": {"env": {"API_TOKEN": {"type": "secret_ref",
                                                                                      "secretId": bad}}}}),
                ("POST", f"/api/companies/{self.acme}/environments",
                 {"name": "x", "driver": "ssh", "config": {**SSH, "port": "x", "privateKey": bad}}),
                ("POST", f"/api/companies/{self.acme}/environments",
                 {"name": "x", "driver": "local", "config": {"privateKey": bad, "x": bad}, "status": "nope"})):
            answer = self.req(method, path, body, headers={"Content-Type": "application/json"})
            self.assertGreaterEqual(answer.status, 400, (method, path, answer.body))
        self.aws.script("CreateSecret", refuse("InvalidRequestException", message=f"no such thing as {bad}"))
        self.assertGreaterEqual(self.req("POST", self.secrets, {"name": "y", "value": bad, **self.outside()}).status, 400)
        self.req("POST", f"/api/companies/{self.acme}/environments/probe-config",
                 {"driver": "ssh", "config": {**SSH, "privateKey": bad}})

    def keys_of_environments(self):
        env = self.environment(self.acme, driver="ssh", name="ssh",
                               config={**SSH, "privateKey": self.marks.make("ssh key", lines=4)})
        self.ok("PATCH", f"/api/environments/{env['id']}", {"config": {"privateKey": self.marks.make("new key", lines=4)}})
        self.req("POST", f"/api/environments/{env['id']}/probe", {})
        gone = self.environment(self.acme, driver="ssh", name="gone",
                                config={**SSH, "privateKey": self.marks.make("gone key", lines=4)})
        self.ok("DELETE", f"/api/environments/{gone['id']}")

    def rotate_and_remove(self):
        for name, more in (("rotated", {}), ("rotated outside", self.outside())):
            key = self.create(name, **more)
            self.ok("POST", f"/api/secrets/{key}/rotate", {"value": self.marks.make(f"{name} again")})
        self.ok("DELETE", f"/api/secrets/{self.create('removed')}")
        for command in ("create", "rotate"):
            status, _, text = self.daemon.cli("--company", self.acme, "secret", command, "typed",
                                              stdin=self.marks.make(f"{command} by hand"))
            self.assertEqual(status, 0, text)

    def work(self, agent):
        """Records beside the secrets, a workspace in use, and one that was given up with changes in it."""
        company = f"/api/companies/{self.acme}"
        project = self.ok("POST", f"{company}/projects", {"name": "P"}, status=201)["id"]
        issue = self.ok("POST", f"{company}/issues", {"title": "I", "projectId": project}, status=201)["id"]
        self.ok("POST", f"/api/issues/{issue}/comments", {"body": "x"}, status=201)
        self.ok("PUT", f"/api/issues/{issue}/documents/plan", {"format": "markdown", "body": "x"}, status=201)
        self.ok("PATCH", f"/api/agents/{agent}", {"title": "Scanner"})
        with self.daemon.record() as db:
            db.execute("INSERT INTO execution_workspaces (id, company_id, project_id, mode, strategy_type, name, status, "
                       "last_used_at, opened_at, created_at, updated_at) VALUES (?, ?, ?, 'shared_workspace', "
                       "'project_primary', 'w', 'active', 1, 1, 1, 1)", (WORKSPACE, self.acme, project))
        tree = self.temp_dir()
        (tree / "file").write_text("x")
        other = self.acquire(self.local)
        self.ok("POST", f"/api/environment-leases/{ident(other)}/workspace/stage",
                {"localPath": str(tree), "isolation": "copy"})
        self.sh("echo changed > file", lease=other, agentId=agent)
        self.release(other)
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/workspace/stage", {"localPath": str(tree)})

    def run_agent(self, agent):
        self.ok("PATCH", f"/api/agents/{agent}", {"adapterConfig": {"command": "sh", "args": ["-c", SHOW]}})
        run = self.ok("POST", f"/api/agents/{agent}/wakeup", {}, status=202)["id"]
        wait_until(lambda: self.daemon.sql("SELECT 1 FROM heartbeat_runs WHERE id = ? AND step = 'done'", (run,)),
                   "the run is over", 30)
        log = self.ok("GET", f"/api/heartbeat-runs/{run}/log")["content"]
        self.assertEqual(log.count("***REDACTED***"), 6, log)

    def test_every_path(self):
        local, remote, linked = self.create("local"), self.create("remote", **self.outside()), self.link()
        agent = self.make_agent(LOCAL=ref(local), REMOTE=ref(remote), LINKED=ref(linked))
        self.fail_with_values()
        self.keys_of_environments()
        self.rotate_and_remove()
        self.work(agent)

        said = self.sh(SHOW, agentId=agent)
        self.assertEqual((said["stdout"], said["stderr"]), ("out ***REDACTED***\n" * 3, "err ***REDACTED***\n" * 3))
        self.assertEqual(self.sh(SHOW, agentId=agent, tty={})["stdout"].count("***REDACTED***"), 6)
        self.execute("/no/such/command", agentId=agent)
        status, out, _ = self.daemon.cli("--company", self.acme, "run", "--agent", "Ada", "--", "sh", "-c", SHOW)
        self.assertEqual((status, self.marks.found_in(out.encode())), (0, set()))
        self.run_agent(agent)
        self.ok("POST", "/api/instance/secrets/rekey", {})

        running = self.detach(SHOW + "; exec sleep 1000", agentId=agent)
        self.output_is(running, b"out ***REDACTED***\n" * 3)
        pid = self.execution(running)["pid"]
        self.assertEqual({name for name, at, file in self.marks.in_processes() if at == pid and file == "environ"},
                         {"local", "remote", "linked"}, "the command has its variables, and the search finds them")
        self.assert_clean(but=self.family(pid))
        self.assert_credentials_stay()

        self.signal(running, "SIGKILL")
        self.ended(running)  # the events of one that runs have no end
        good = self.walk_routes()
        self.assertEqual({r for r in get_routes() if r not in good | self.absent
                          and not r.startswith(("/api/plugins/:", "/api/test/"))}, set(), "not seen at all")
        self.assert_clean()
        self.daemon.stop()  # the log of the database goes into the database
        self.assert_clean()
        self.daemon.start()

    # What needs something that is not made here: a sign-in, a snapshot, an image, a browser, an installation that goes on. Those of
    # plugins are seen below.
    absent = {"/api/issues", "/api/cli-auth/challenges/:id", "/api/companies/:companyId/environment-snapshots/:name",
              "/api/companies/:companyId/images/:name",
              "/api/auth/get-session", "/api/plugins/operations/:operationId",
              "/api/companies/:companyId/events", "/api/companies/:companyId/events/ws",
              "/api/environment-leases/:id/terminal/ws", "/api/workspace-operations/:id/log", "/api/goals/:id",
              "/api/approvals/:id"}

    def assert_credentials_stay(self):
        """Those of the vault are in the environment of the daemon, where the operator put them, and in no other."""
        marks = Marks()
        marks.values["credential"] = AWS_KEY
        # Of the test's keeper, who takes in what lost its parent: daemons of other tests have that key too.
        ours = self.family(os.getppid())
        self.assertEqual({at for _, at, _ in marks.in_processes()} & ours, {self.daemon.process.pid})

    def test_the_search_finds(self):
        """What is no secret is where it is meant to be: stored, and in answers."""
        shown = self.marks.make("plain")
        agent = self.make_agent(SHOWN=shown)
        self.assertTrue({pathlib.Path(path).name for _, path in self.marks.in_files(self.daemon.data)}
                        & {"berth.db", "berth.db-wal"})
        self.sh('printf "%s" "$SHOWN"; printf "%s" "$SHOWN" | base64 >&2', agentId=agent)
        names = {pathlib.Path(path).name for _, path in self.marks.in_files(self.daemon.data)}
        self.assertLessEqual({"stdout", "stderr"}, names)
        self.walk_routes()
        self.assertEqual({what for what, body, _ in self.answers if self.marks.found_in(body)}
                         & {f"GET /api/agents/{agent}", f"GET /api/companies/{self.acme}/agents"},
                         {f"GET /api/agents/{agent}", f"GET /api/companies/{self.acme}/agents"})
        for text in (base64.b64encode(f"{pad}{shown}tail".encode()) for pad in ("", "a", "ab")):
            self.assertEqual(self.marks.found_in(text), {"plain"})
        self.assertGreaterEqual(len(forms(shown)), 6)


def dies(act):
    """Do it; the daemon may be gone before it answers."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        act()


class CrashScan(ScanCase):
    """The daemon ends in the middle: nothing that was in its memory is left on the disk."""

    daemon_binary = "faults"

    def crash_at(self, point, act):
        self.daemon.stop()
        self.daemon.env["BERTH_CRASH_AT"] = point
        self.daemon.start()
        dies(act)
        self.assertEqual(self.daemon.wait(), -signal.SIGKILL, f"{point} was not reached")
        self.assert_clean()
        del self.daemon.env["BERTH_CRASH_AT"]
        self.daemon.start()
        self.assert_clean()

    def test_points(self):
        self.begin()
        agent = self.make_agent(LOCAL=ref(self.create("local")), REMOTE=ref(self.create("remote", **self.outside())),
                                LINKED=ref(self.link()))
        listed = subprocess.run([BINARIES["faults"], "faults"], capture_output=True, text=True, check=True).stdout.split()
        creating = [p for p in listed if p.startswith(("secret.create.", "secret.reserve."))]
        self.assertTrue(creating, listed)
        for n, point in enumerate(creating):
            with self.subTest(point):
                self.crash_at(point, lambda n=n: self.create(f"created {n}", **self.outside()))
        for point in ("exec.intend.after", "exec.launch.before", "exec.post.before", "exec.end.before"):
            with self.subTest(point):
                if "launch" in point:
                    self.release(self.held)
                    self.held = self.acquire(self.local)
                self.crash_at(point, lambda: self.sh(SHOW, agentId=agent))

    def test_signals_in_the_middle(self):
        """Killed, and by a fault of its own, while secrets are made, rotated and used, and the key is changed. No core is
        written although we would allow one."""
        limit = resource.getrlimit(resource.RLIMIT_CORE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_CORE, limit)
        resource.setrlimit(resource.RLIMIT_CORE, (limit[1], limit[1]))
        self.begin()
        key = self.create("local")
        agent = self.make_agent(LOCAL=ref(key), REMOTE=ref(self.create("remote", **self.outside())),
                                LINKED=ref(self.link()))
        # A sanitizer takes faults for its own.
        faults = (signal.SIGSEGV, signal.SIGABRT) if not sanitized() else ()
        for n, number in enumerate((signal.SIGKILL, *faults)):
            values = [self.marks.make(f"round {n} {i}") for i in range(40)]
            began = threading.Event()

            def make(client, n=n, values=values, began=began):
                for i, value in enumerate(values):
                    client.req("POST", self.secrets, {"name": f"s{n}.{i}", "value": value})
                    client.req("POST", f"/api/secrets/{key}/rotate", {"value": value})
                    if i == 2:
                        began.set()

            def use(client):
                while True:
                    client.req("POST", f"/api/environment-leases/{self.held['lease']['id']}/execute",
                               {"command": "sh", "args": ["-c", SHOW], "agentId": agent})

            def rekey(client):
                while True:
                    client.req("POST", "/api/instance/secrets/rekey", {})

            clients = [type(self.daemon.tcp)(self.daemon.address) for _ in range(3)]
            threads = [threading.Thread(target=dies, args=(lambda f=f, c=c: f(c),))
                       for f, c in zip((make, use, rekey), clients)]
            for thread in threads:
                thread.start()
            self.assertTrue(began.wait(60))
            os.kill(self.daemon.process.pid, number)
            _, status = os.waitpid(self.daemon.process.pid, 0)
            self.daemon.process.returncode = -number
            for thread in threads:
                thread.join(60)
            self.assertEqual((os.WTERMSIG(status), os.WCOREDUMP(status)), (number, False))
            self.assert_clean(but=self.commands())
            self.daemon.killed = True
            self.daemon.start()
            wait_until(lambda: not self.commands(), "the commands have ended")
            self.assert_clean()
        self.assertEqual(list(pathlib.Path().glob("core*")), [])

    def commands(self):
        """What the boxes started: it has the values, rightly."""
        return {p for box in self.boxes().values() for p in self.family(box) - {box}}


class PluginScan(Scanning, ProviderTest):
    """A member of a plugin's configuration that its schema calls secret, and an agent's variable: both get to the worker,
    which is meant to have them (it keeps a diary in its own directory), and to nobody else."""

    def test_configuration_and_variables(self):
        token, key, new = (self.marks.make(name) for name in ("token", "key", "new key"))
        secret = self.ok("POST", f"/api/companies/{self.company_id}/secrets", {"name": "t", "value": token}, status=201)
        agent = self.ok("POST", f"/api/companies/{self.company_id}/agents",
                        {"name": "Ada", "adapterConfig": {"env": {"TOKEN": ref(secret["id"])}}}, status=201)["id"]
        env = self.sandbox(apiKey=key)
        lease = self.take(env)
        path = f"/api/environment-leases/{lease['id']}/execute"
        self.provider.behave(Execute={"output": [["stdout", f"{token} {key[:9]}"], ["stdout", key[9:]],
                                                 ["stderr", token]], "log": f"{token} {key}"})
        said = self.ok("POST", path, {"command": "x", "agentId": agent})
        self.assertEqual((said["stdout"], said["stderr"]), ("***REDACTED*** ***REDACTED***", "***REDACTED***"))
        self.provider.behave(Execute={"error": {"code": -32000, "message": f"{token} {key}"}})
        self.assertGreaterEqual(self.req("POST", path, {"command": "x", "agentId": agent}).status, 400)
        self.provider.behave(Execute={"output": [["stdout", token]], "die": True})
        self.req("POST", path, {"command": "x", "agentId": agent})
        self.provider.behave()
        self.provider.wait_running()
        self.change(env, config={"apiKey": new})
        self.assertEqual(self.provider.calls("environmentExecute")[0]["env"], {"TOKEN": token})
        self.assert_clean()
        good = self.walk_routes()
        self.assertEqual({r for r in get_routes() if r.startswith("/api/plugins/:")} - good,
                         {"/api/plugins/:pluginId/bridge/stream/:channel"})  # not there, as with Paperclip
        self.assert_clean()
        self.daemon.restart(crash=True)
        self.release(lease)
        self.assert_clean()


class MemoryScan(ScanCase):
    """Nobody else reads the memory of the daemon or of a box: no core dump, no ptrace by the same user."""

    def limits(self, pid):
        line = next(l for l in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines() if "core file" in l)
        return line.split()[4:6]

    @unittest.skipUnless(os.geteuid() == 0, "only root can start it as somebody else")
    def test_not_dumpable(self):
        self.daemon.data.chmod(0o755)
        os.chown(self.daemon.data, 65534, 65534)
        os.chmod(self.daemon.data.parent, 0o755)
        # The clone may lie in a directory that is closed to others.
        programs = self.temp_dir() / "programs"
        programs.mkdir()
        programs.parent.chmod(0o755)
        for program in (self.daemon.binary, pathlib.Path(self.daemon.binary).with_name("berth-box")):
            shutil.copy(program, programs)
        process = subprocess.Popen([programs / pathlib.Path(self.daemon.binary).name, "serve", "--listen", "127.0.0.1:0", "--data",
                                    str(self.daemon.data)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, user=65534, group=65534, extra_groups=[])
        try:
            process.stdout.readline()
            self.make_lease_unix()
            box = next(iter(self.boxes().values()))
            for pid in (process.pid, box):
                self.assertEqual(os.stat(f"/proc/{pid}/environ").st_uid, 0, "files of a process that may be dumped are its user's")
                # 1: no program of core_pattern either. A sanitizer lowers the first when it starts.
                self.assertEqual(self.limits(pid)[sanitized():], ["1", "1"][sanitized():])
        finally:
            for row in self.daemon.sql("SELECT id FROM environment_leases"):
                self.daemon.req_unix("POST", f"/api/environment-leases/{row['id']}/release", {})
            process.terminate()
            process.wait(30)
            process.stdout.close()

    def make_lease_unix(self):
        """A box with a command in it, by the Unix socket."""
        company = self.operator("POST", "/api/companies", new_company(), 201)["id"]
        env = next(e for e in self.operator("GET", f"/api/companies/{company}/environments") if e["driver"] == "local")
        lease = self.operator("POST", f"/api/environments/{env['id']}/leases", {}, 201)["lease"]["id"]
        self.operator("POST", f"/api/environment-leases/{lease}/execute", {"command": "true", "cwd": "/"})


if __name__ == "__main__":
    unittest.main()
