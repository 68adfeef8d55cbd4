"""The default environment: where work is done that names no place. Nothing comes to this machine unless somebody chose
that (docs/decisions/0006-differences-on-purpose.md: environment-runtime 7.117, sections 1.1, 5.1, 5.3, 5.6)."""

import contextlib
import json
import pathlib
import sqlite3
import unittest

import berthtest
from berthtest import SOURCE, ident
from runtest import HookTest, RunTest

MISSING = "00000000-0000-4000-8000-000000000000"
KEPT = "agent.environment_kept_by_upgrade"


class DefaultTest(RunTest):
    def path(self):
        return f"/api/companies/{self.acme['id']}"

    def environments(self, company=None):
        return {e["name"]: e for e in self.ok("GET", f"/api/companies/{ident(company or self.acme)}/environments")}

    def choose_default(self, environment):
        return self.ok("PATCH", self.path(), {"defaultEnvironmentId": environment and ident(environment)})

    def actions(self, action):
        return self.ok("GET", f"{self.path()}/activity?action={action}")

    def never_ran(self, run):
        self.assertEqual((self.leases(run), self.began()), ([], {}), run)


class NewCompanyTest(DefaultTest):
    def create(self, **body):
        return self.ok("POST", "/api/companies", {"name": "New", **body}, status=201)

    def test_it_gets_a_sandbox(self):
        self.require_sandboxes()
        made = self.create()
        envs = self.environments(made)
        self.assertEqual(sorted(envs), ["Local", "Sandbox"])
        self.assertEqual(made["defaultEnvironmentId"], envs["Sandbox"]["id"])
        self.assertEqual((envs["Sandbox"]["driver"], envs["Sandbox"]["config"]["provider"]), ("sandbox", "berth"))
        self.assertEqual(self.ok("GET", f"/api/companies/{made['id']}"), made)
        self.assertNotIn("defaultForCompany", envs["Local"]["metadata"])

    def test_what_was_asked_for(self):
        local = self.create(defaultEnvironment="local")
        self.assertEqual(local["defaultEnvironmentId"], self.environments(local)["Local"]["id"])
        none = self.create(defaultEnvironment="none")
        self.assertEqual((none["defaultEnvironmentId"], list(self.environments(none))), (None, ["Local"]))
        self.assert_error(self.req("POST", "/api/companies", {"name": "x", "defaultEnvironment": "ssh"}), 400,
                          "Validation error")


class NoSandboxTest(DefaultTest):
    """A machine that can make no sandbox: the range of ids for them is too small."""
    daemon_env = {**RunTest.daemon_env, "BERTH_SANDBOX_UID_FIRST": "70000", "BERTH_SANDBOX_UID_COUNT": "1",
                  "BERTH_SANDBOX_IDS_PER_BOX": "2"}

    def test_a_new_company_has_none(self):
        made = self.ok("POST", "/api/companies", {"name": "New"}, status=201)
        self.assertEqual((made["defaultEnvironmentId"], list(self.environments(made))), (None, ["Local"]))
        answer = self.req("POST", "/api/companies", {"name": "New", "defaultEnvironment": "sandbox"})
        self.assert_error(answer, 422, contains="This machine cannot make a sandbox")


class ChoosingTest(DefaultTest):
    def test_it_is_checked(self):
        box = self.environment(self.acme, config={"provider": "berth"})
        self.assertEqual(self.choose_default(box)["defaultEnvironmentId"], box["id"])
        self.assertEqual(self.actions("company.updated")[0]["details"]["defaultEnvironmentId"], box["id"])
        old = self.environment(self.acme, name="old", config={"provider": "berth"}, status="archived")
        foreign = self.environment(self.company("Other"), config={"provider": "berth"})
        for id, text in ((MISSING, "Environment not found."), (foreign["id"], "Environment not found."),
                         (old["id"], "Environment is archived."),
                         (self.environment(self.acme, name="fake")["id"], 'provider "fake" is not allowed here')):
            self.assert_error(self.req("PATCH", self.path(), {"defaultEnvironmentId": id}), 422, contains=text)
        self.assert_error(self.req("PATCH", self.path(), {"defaultEnvironmentId": 1}), 400)
        self.assertEqual(self.ok("GET", self.path())["defaultEnvironmentId"], box["id"])
        self.assertEqual(self.ok("PATCH", self.path(), {"name": "Other"})["defaultEnvironmentId"], box["id"])
        self.assertIsNone(self.choose_default(None)["defaultEnvironmentId"])

    def test_only_by_somebody_who_manages_environments(self):
        box = self.environment(self.acme, config={"provider": "berth"})
        body = {"defaultEnvironmentId": box["id"]}
        for grants, status in (((), 403), (("environments:manage",), 200)):
            user = self.board_user(self.acme, user=f"u{len(grants)}", grants=grants)
            self.assert_status(self.req("PATCH", self.path(), body, token=user["token"]), status)
        agent = self.agent(self.acme, grants=("environments:manage",))
        self.assert_status(self.req("PATCH", self.path(), body, token=agent["token"]), 403)

    def test_each_kind_says_whether_it_is_isolated(self):
        self.environment(self.acme, name="box")
        self.environment(self.acme, name="far", driver="ssh",
                         config={"host": "127.0.0.1", "username": "u", "remoteWorkspacePath": "/srv"})
        self.assertEqual({n: (e["isolated"], e["isolation"]) for n, e in self.environments().items()}, {
            "Local": (False, "this machine, not isolated"), "far": (False, "another machine, not isolated"),
            "box": (True, "isolated from this machine and from other places")})
        kinds = self.ok("GET", f"{self.path()}/environments/capabilities")["isolation"]
        self.assertEqual({k: v["isolated"] for k, v in kinds.items()},
                         {"local": False, "ssh": False, "sandbox": True, "plugin": False})


class RunningTest(DefaultTest):
    def test_without_one_a_run_fails_and_says_what_to_do(self):
        self.choose_default(None)
        run = self.finished(self.wake(self.runner("true")))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "environment_not_found"))
        self.assertIn('Agent "Ada" has no environment, and company "Acme" has no default environment.', run["error"])
        self.assertIn("berth agent update 'Ada' --environment", run["error"])
        self.assertIn("berth company update 'Acme' --default-environment", run["error"])
        self.never_ran(run)

    def test_in_a_sandbox(self):
        self.choose_default(self.sandbox())
        run = self.finished(self.wake(self.runner('cat /proc/sys/kernel/hostname; ls "$HOME"; echo inside > made')))
        self.assertEqual(run["status"], "succeeded", run)
        self.assertEqual([l["provider"] for l in self.leases(run)], ["berth"])
        self.assertEqual((self.work / "made").read_text(), "inside\n")

    @berthtest.sqlite_only
    def test_one_that_is_archived_or_gone(self):
        env = self.environment(self.acme, config={"provider": "berth"})
        self.choose_default(env)
        agent = self.runner("true")
        self.edit("UPDATE environments SET status = 'archived' WHERE id = ?", (env["id"],))
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "environment_inactive"))
        self.assertIn('Environment "box" is not active (status: archived). It is the default environment of company '
                      '"Acme"; choose another', run["error"])
        self.never_ran(run)
        self.edit("DELETE FROM environments WHERE id = ?", (env["id"],))
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "environment_not_found"))
        self.never_ran(run)

    def test_the_environment_of_an_agent_is_gone(self):
        """What the attack found: the next run of its agent was on the host, as the daemon's user."""
        self.choose_default(None)
        env = self.environment(self.acme, config={"provider": "berth"})
        agent = self.runner("id -u > who", environment=env)
        self.assert_error(self.req("DELETE", f"/api/environments/{env['id']}"), 409, contains="it is used by 1 agent")
        self.edit("DELETE FROM environments WHERE id = ?", (env["id"],))
        self.edit("UPDATE agents SET default_environment_id = NULL WHERE id = ?", (agent["id"],))
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "environment_not_found"))
        self.never_ran(run)
        self.assertFalse((self.work / "who").exists())

    def test_a_reused_workspace_without_an_environment(self):
        """Environment-runtime, section 5.1 step 1, is superseded: it stands for the company's default, not for this machine."""
        self.choose_default(None)
        env = self.environment(self.acme, config={"provider": "berth"})
        issue = self.provisioned_issue(env, "true")
        self.edit("UPDATE execution_workspaces SET metadata = ?",
                  (json.dumps({"config": {"environmentId": None, "desiredState": "running"}}),))
        run = self.finished(self.wake(self.runner("true", environment=env), payload={"issueId": issue["id"]}))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "environment_not_found"))
        self.never_ran(run)

    def test_a_trial_of_an_adapter(self):
        path = f"{self.path()}/adapters/process/test-environment"
        touch = self.work / "tried"
        body = {"adapterConfig": {"command": "/bin/sh", "args": ["-c", f"touch {touch}"], "cwd": str(self.work)}}
        tried = lambda: [c for c in self.ok("POST", path, body)["checks"] if "environment_" in c["code"]]
        self.assertEqual([c["message"] for c in tried()], ["Tried in the local environment."])
        self.choose_default(None)
        (check,) = tried()
        self.assertEqual((check["code"], check["level"]), ("environment_not_found", "warn"))
        self.assertIn("the company has no default environment", check["message"])
        self.choose_default(self.sandbox())
        self.assertEqual([c["message"] for c in tried()], ["Tried in the sandbox environment (berth)."])
        self.assertFalse(touch.exists())


class RequestTest(HookTest, DefaultTest):
    def test_an_adapter_that_starts_no_process_needs_no_place(self):
        for default in (None, self.environment(self.acme, config={"provider": "berth"})):
            self.choose_default(default)
            run = self.finished(self.wake(self.hook()))
            self.assertEqual((run["status"], run["environmentId"], self.leases(run)), ("succeeded", None, []), run)
            self.assertNotIn("paperclipEnvironment", run["contextSnapshot"])
        checks = self.ok("POST", f"{self.path()}/adapters/http/test-environment",
                         {"adapterConfig": {"url": "http://127.0.0.1:9/"}})["checks"]
        self.assertEqual([c["code"] for c in checks], ["http_url_configured"])
        self.assertEqual(len(self.requests), 2)


class DeletingTest(DefaultTest):
    """Section 3.4 of the HTTP API is superseded: neither deleting nor archiving takes away the place of anybody's work."""

    def setUp(self):
        super().setUp()
        self.choose_default(None)
        self.box = self.environment(self.acme, config={"provider": "berth"})
        self.other = self.environment(self.acme, name="other", config={"provider": "berth"})

    def point_at(self):
        """One of each kind points at the environment; what each then says, by its kind."""
        box = self.box["id"]
        company = self.path()
        agent = self.runner("true", environment=self.box)
        project = self.ok("POST", f"{company}/projects", {"name": "p", "executionWorkspacePolicy": {
            "enabled": True, "environmentId": box}}, 201)
        issue = self.provisioned_issue(self.box, "true")
        self.ok("PATCH", f"/api/issues/{issue['id']}", {"executionWorkspaceSettings": {"environmentId": box}})
        self.choose_default(self.box)
        return lambda: {
            "agent": self.ok("GET", f"/api/agents/{agent['id']}")["defaultEnvironmentId"],
            "project": self.ok("GET", f"/api/projects/{project['id']}")["executionWorkspacePolicy"]["environmentId"],
            "issue": self.ok("GET", f"/api/issues/{issue['id']}")["executionWorkspaceSettings"]["environmentId"],
            "workspace": json.loads(self.daemon.sql("SELECT metadata FROM execution_workspaces")[0]["metadata"])
            ["config"]["environmentId"],
            "company": self.ok("GET", company)["defaultEnvironmentId"],
        }

    def refused(self, answer, what):
        self.assert_error(answer, 409, contains=f'Environment "box" cannot be {what}: it is used by 1 company as its '
                          "default, 1 agent, 1 project, 1 issue, 1 execution workspace. ")
        self.assertIn("moveTo=", answer.error)
        self.assertEqual(answer.json["details"]["deleteBlockedReasons"], [
            "company_default", "agent_default", "project_selection", "issue_selection",
            "execution_workspace_selection"])

    def test_refused(self):
        said, path = self.point_at(), f"/api/environments/{self.box['id']}"
        self.refused(self.req("DELETE", path), "deleted")
        self.refused(self.req("DELETE", f"{path}?closeLeases=true"), "deleted")
        self.refused(self.req("PATCH", path, {"status": "archived"}), "archived")
        radius = self.ok("GET", f"{path}/delete-blast-radius")
        self.assertEqual((radius["canDelete"], radius["staticReferences"]["isCompanyDefault"]), (False, True))
        self.assertEqual(radius["deleteBlockedReasons"][0], "company_default")
        self.assertEqual(set(said().values()), {self.box["id"]})
        self.ok("PATCH", path, {"name": "crate"})  # nothing else is

    def test_moved(self):
        for method, path, body in (("DELETE", "?moveTo={}", None), ("PATCH", "", {"status": "archived"})):
            with self.subTest(method):
                self.box = self.environment(self.acme, name="box", config={"provider": "berth"})
                said, to = self.point_at(), self.other["id"]
                if body:
                    body["moveTo"] = to
                self.ok(method, f"/api/environments/{self.box['id']}{path.format(to)}", body)
                self.assertEqual(set(said().values()), {to})
                (entry,) = [a for a in self.actions("environment.references_moved")
                            if a["entityId"] == self.box["id"]]
                self.assertEqual(entry["details"], {"name": "box", "movedTo": to, "companyDefault": 1, "agents": 1,
                                                    "projects": 1, "issues": 1, "executionWorkspaces": 1})
                self.edit("DELETE FROM agents")
                self.edit("DELETE FROM execution_workspaces")
                self.edit("UPDATE issues SET execution_workspace_settings = NULL")
                self.edit("UPDATE projects SET execution_workspace_policy = NULL")

    def test_moved_to_where_it_cannot_be(self):
        said, path = self.point_at(), f"/api/environments/{self.box['id']}"
        foreign = self.environment(self.company("Other"), config={"provider": "berth"})["id"]
        for to, status in ((self.box["id"], 422), (foreign, 422), (MISSING, 422), ("x", 400)):
            self.assert_status(self.req("DELETE", f"{path}?moveTo={to}"), status)
        self.edit("UPDATE agents SET adapter_type = 'openclaw_gateway'")  # which works on this machine only
        answer = self.req("DELETE", f"{path}?moveTo={self.other['id']}")
        self.assert_error(answer, 422, contains='agent "Ada": Environment driver "sandbox" is not allowed here')
        self.assertEqual(set(said().values()), {self.box["id"]})

    def test_where_it_was_does_not_count(self):
        """A workspace that is archived, and one that only tells where it was in the past."""
        box = self.box["id"]
        self.provisioned_issue(self.box, "true")
        self.assert_status(self.req("DELETE", f"/api/environments/{box}"), 409)
        for metadata, status in (({"config": {}, "workspaceRealization": {"environmentId": box}}, "active"),
                                 ({"config": {"environmentId": box}}, "archived")):
            self.edit("UPDATE execution_workspaces SET metadata = ?, status = ?", (json.dumps(metadata), status))
            radius = self.ok("GET", f"/api/environments/{box}/delete-blast-radius")
            self.assertTrue(radius["canDelete"], radius)
        self.ok("DELETE", f"/api/environments/{box}")

    def test_a_sandbox_does_not_become_something_else(self):
        agent, path = self.runner("true", environment=self.box), f"/api/environments/{self.other['id']}"
        to_ssh = {"driver": "ssh", "config": {"host": "h", "username": "u", "remoteWorkspacePath": "/srv"}}
        answer = self.req("PATCH", f"/api/environments/{self.box['id']}", to_ssh)
        self.assert_error(answer, 409, contains="cannot be changed to a kind that is not isolated: it is used by 1 agent")
        self.ok("PATCH", path, to_ssh)  # which nobody uses
        self.ok("PATCH", f"/api/agents/{agent['id']}", {"defaultEnvironmentId": None})
        self.ok("PATCH", f"/api/environments/{self.box['id']}", to_ssh)


class IsolatedOnlyTest(DefaultTest):
    """`enableManagedSandboxOnly`: only kinds of places that are isolated, whatever they are called."""

    def settings(self, text):
        self.edit("INSERT INTO instance_settings (singleton_key, experimental, created_at, updated_at) "
                  "VALUES ('default', ?, 1, 1) ON CONFLICT (singleton_key) DO UPDATE SET "
                  "experimental = excluded.experimental", (text,))

    def restrict(self, value=True):
        return self.ok("PATCH", "/api/instance/settings/experimental", {"enableManagedSandboxOnly": value})

    def far(self, company=None):
        return self.environment(company or self.acme, name="far", driver="ssh",
                                config={"host": "127.0.0.1", "port": 9, "username": "u", "remoteWorkspacePath": "/srv"})

    def test_nothing_else_is_leased_chosen_or_run(self):
        local, far, box = self.environments()["Local"], self.far(), self.environment(self.acme, config={"provider": "berth"})
        agent = self.runner("true")
        self.assertFalse(self.ok("GET", "/api/instance/settings/experimental")["enableManagedSandboxOnly"])
        self.assertTrue(self.restrict()["enableManagedSandboxOnly"])
        text = "this instance allows only isolated environments (enableManagedSandboxOnly)"
        for env in (local, far):
            self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {}), 403, contains=text)
            self.assert_error(self.req("PATCH", self.path(), {"defaultEnvironmentId": env["id"]}), 403, contains=text)
            self.assert_error(self.req("PATCH", f"/api/agents/{agent['id']}", {"defaultEnvironmentId": env["id"]}), 403,
                              contains=text)
            self.assert_error(self.req("POST", f"{self.path()}/issues", {
                "title": "x", "executionWorkspaceSettings": {"environmentId": env["id"]}}), 403, contains=text)
            self.assert_error(self.req("POST", f"{self.path()}/projects", {
                "name": "x", "executionWorkspacePolicy": {"enabled": True, "environmentId": env["id"]}}), 403,
                contains=text)
        self.assert_error(self.req("POST", "/api/companies", {"name": "x", "defaultEnvironment": "local"}), 403,
                          contains=text)
        run = self.finished(self.wake(agent))  # whose place, the company's default, was chosen before
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "unsupported_environment"))
        self.assertIn(text, run["error"])
        self.never_ran(run)
        self.choose_default(box)
        self.restrict(False)
        self.choose_default(local)
        self.assertEqual(self.finished(self.wake(agent))["status"], "succeeded")

    def test_it_fails_closed(self):
        local = self.environments()["Local"]
        for text, status in (('{"enableManagedSandboxOnly": "false"}', 403), ('{"enableManagedSandboxOnly": null}', 403),
                             ('{"enableManagedSandboxOnly": 0}', 403), ("not json", 403), ("[]", 403), ("", 403),
                             ('{"enableManagedSandboxOnly": false}', 201), ("{}", 201)):
            with self.subTest(text):
                self.settings(text)
                answer = self.req("POST", f"/api/environments/{local['id']}/leases", {})
                self.assert_status(answer, status)
                if status == 201:
                    self.release(answer.json)
        self.settings('{"enableManagedSandboxOnly": "no"}')
        self.assertIs(self.ok("GET", "/api/instance/settings/experimental")["enableManagedSandboxOnly"], True)
        self.assertIs(self.restrict(False)["enableManagedSandboxOnly"], False)


class CommandLineTest(DefaultTest):
    def cli_ok(self, *args):
        status, out, err = self.daemon.cli(*args)
        self.assertEqual(status, 0, err)
        return out, err

    def test_it_says_what_is_not_isolated(self):
        box = self.environment(self.acme, config={"provider": "berth"})
        self.assertIn("this machine, not isolated", self.cli_ok("env", "list")[0])
        self.assertIn("this machine, not isolated", self.cli_ok("env", "show", "Local")[0])
        self.assertIn("Local (this machine, not isolated)", self.cli_ok("company", "show", "Acme")[0])
        note = "'Local' is this machine, not isolated\n"
        for args in (("agent", "create", "Ada", "--environment", "Local", "-o", "command=true"),
                     ("agent", "update", "Ada", "--environment", "Local"),
                     ("issue", "create", "x", "--environment", "Local"),
                     ("project", "create", "x", "--environment", "Local"),
                     ("company", "update", "Acme", "--default-environment", "Local"),
                     ("lease", "acquire", "Local")):
            self.assertIn(note, self.cli_ok(*args)[1], args)
        out, err = self.cli_ok("company", "update", "Acme", "--default-environment", "box")
        self.assertIn("box (isolated from this machine and from other places)", out)
        self.assertEqual(err, "")
        self.assertEqual(self.ok("GET", self.path())["defaultEnvironmentId"], box["id"])
        self.assertIn("none: agents without an environment do not run",
                      self.cli_ok("company", "update", "Acme", "--default-environment", "none")[0])
        self.cli_ok("agent", "create", "Bob", "-o", "command=true")
        self.assertIn("the default of its company", self.cli_ok("agent", "show", "Bob")[0])

    def test_run_stays_here_and_says_so(self):
        self.choose_default(None)
        note = "berth: runs on this machine, not isolated; --sandbox keeps it apart\n"
        self.assertEqual(self.cli_ok("run", "--", "echo", "here"), ("here\n", note))
        self.assertEqual(self.cli_ok("run", "--env", "Local", "--", "echo", "here"), ("here\n", ""))

    def test_moving(self):
        box = self.environment(self.acme, config={"provider": "berth"})
        self.choose_default(box)
        status, _, err = self.daemon.cli("env", "delete", "box", "--yes")
        self.assertEqual(status, 1)
        self.assertIn("it is the default environment of its company", err)
        self.assertIn("--move-to", err)
        self.assertIn("'Local' is this machine, not isolated",
                      self.cli_ok("env", "update", "box", "--status", "archived", "--move-to", "Local")[1])
        self.assertEqual(self.ok("GET", self.path())["defaultEnvironmentId"], self.environments()["Local"]["id"])
        self.cli_ok("env", "update", "box", "--status", "active")
        self.choose_default(box)
        self.cli_ok("env", "delete", "box", "--move-to", "Local", "--yes")
        self.assertEqual(list(self.environments()), ["Local"])


class UpgradeTest(RunTest):
    """A database of version 9: agents without an environment ran on this machine."""

    def version_9(self):
        data = pathlib.Path(self.temp_dir())
        with contextlib.closing(sqlite3.connect(data / "berth.db")) as db, db:
            db.execute("CREATE TABLE schema_migrations (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
                       "applied_at BIGINT NOT NULL)")
            for file in sorted((SOURCE / "src/store/migrations").glob("000*.sql")):
                db.executescript(file.read_text())
                db.execute("INSERT INTO schema_migrations VALUES (?, ?, 1)", (int(file.name[:4]), file.name))
            db.execute("INSERT INTO companies (id, name, issue_prefix, created_at, updated_at) "
                       "VALUES (?, 'Acme', 'ACM', 1, 1)", (self.uid("c"),))
            for name, driver in (("l", "local"), ("e", "sandbox")):
                db.execute("INSERT INTO environments (id, company_id, name, driver, created_at, updated_at) "
                           "VALUES (?, ?, ?, ?, 1, 1)", (self.uid(name), self.uid("c"), driver.title(), driver))
            for n, (name, adapter, own, ran) in enumerate((
                    ("Ran", "process", None, "l"), ("Never", "process", None, None), ("Boxed", "process", "e", "e"),
                    ("Hook", "http", None, "l"), ("Elsewhere", "process", None, "e"))):
                db.execute("INSERT INTO agents (id, company_id, name, url_key, adapter_type, default_environment_id, "
                           "created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 1, 1)",
                           (self.uid(name), self.uid("c"), name, name.lower(), adapter, own and self.uid(own)))
                if ran:
                    db.execute("INSERT INTO heartbeat_runs (id, company_id, agent_id, status, step, environment_id, "
                               "created_at, updated_at) VALUES (?, ?, ?, 'succeeded', 'done', ?, 1, 1)",
                               (self.uid(f"run{n}"), self.uid("c"), self.uid(name), self.uid(ran)))
        return data

    @staticmethod
    def uid(name):
        return f"00000000-0000-4000-8000-{name.encode().hex():0>12}"[:36]

    @berthtest.sqlite_only
    def test_what_ran_here_is_written_down(self):
        daemon = self.new_daemon(data=self.version_9()).start()
        company, local = self.uid("c"), self.uid("l")
        get = lambda path: daemon.req("GET", path).json
        agents = {a["name"]: a["defaultEnvironmentId"] for a in get(f"/api/companies/{company}/agents")}
        self.assertEqual(agents, {"Ran": local, "Never": None, "Boxed": self.uid("e"), "Hook": None, "Elsewhere": None})
        self.assertIsNone(get(f"/api/companies/{company}")["defaultEnvironmentId"])
        (entry,) = get(f"/api/companies/{company}/activity?action={KEPT}")
        self.assertEqual((entry["entityId"], entry["actorType"], entry["details"]), (self.uid("Ran"), "system", {
            "name": "Ran", "defaultEnvironmentId": local, "environmentName": "Local"}))
        checks = {c["name"]: c for c in json.loads(daemon.cli("--json", "doctor")[1])["checks"]}
        kept = checks["agents of Acme"]
        self.assertEqual(kept["status"], "limited")
        self.assertIn("Ran: this machine, not isolated, since an upgrade kept them there", kept["detail"])
        self.assertIn("berth agent update", kept["fix"])
        self.assertIn("berth company update", checks["default of Acme"]["fix"])
        daemon.restart()  # once
        self.assertEqual(len(get(f"/api/companies/{company}/activity?action={KEPT}")), 1)
        # Somebody chose: nothing is left to say.
        box = daemon.req("POST", f"/api/companies/{company}/environments",
                         {"name": "box", "driver": "sandbox", "config": {"provider": "berth"}}).json["id"]
        daemon.req("PATCH", f"/api/agents/{self.uid('Ran')}", {"defaultEnvironmentId": box})
        daemon.req("PATCH", f"/api/companies/{company}", {"defaultEnvironmentId": box})
        checks = {c["name"] for c in json.loads(daemon.cli("--json", "doctor")[1])["checks"]}
        self.assertFalse(checks & {"agents of Acme", "default of Acme"})


if __name__ == "__main__":
    unittest.main()
