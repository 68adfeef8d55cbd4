"""A company's owner is not the user that the daemon runs as: in authenticated mode he gets neither this machine, nor what
is the daemon's own, nor what is another company's."""

import os
import subprocess
import unittest
import uuid

from berthtest import BerthTest, ident, wait_until

KEY = "secrets/master.key"


class OwnerTest(BerthTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_SWEEP_INTERVAL_MS": "50"}
    daemon_flags = ("--mode", "authenticated")
    daemon_autostart = False
    roots = "{home}"

    def tearDown(self):
        if (self.daemon.data / "berth.db").exists():
            wait_until(lambda: not self.daemon.sql("SELECT 1 FROM heartbeat_runs WHERE step <> 'done'"),
                       "places are given up")
        super().tearDown()

    def setUp(self):
        super().setUp()
        self.home = self.temp_dir()
        self.daemon.env = {**self.daemon.env, **self.settings()}
        self.daemon.start()
        self.acme = self.operator("POST", "/api/companies", {"name": "Acme"}, 201)
        self.owner = self.board_user(self.acme, "olga", role="owner")["token"]

    def settings(self):
        return {"BERTH_WORKSPACE_ROOTS": f"/tmp:/dev/shm:{self.home}:{self.daemon.data.parent}:{self.daemon.data}"}

    def own(self, method, path, body=None, status=200):
        return self.ok(method, path, body, status=status, token=self.owner)

    def asks(self, method, path, body=None):
        return self.req(method, path, body, token=self.owner)

    def env(self, driver="sandbox", **config):
        return self.own("POST", f"/api/companies/{self.acme['id']}/environments",
                        {"name": f"{driver}-{os.urandom(3).hex()}", "driver": driver,
                         "config": {"provider": "berth", **config}}, 201)

    def local(self):
        listed = self.operator("GET", f"/api/companies/{self.acme['id']}/environments")
        return next(e for e in listed if e["driver"] == "local")

    def lease(self, env=None):
        lease = self.own("POST", f"/api/environments/{ident(env or self.env())}/leases", {}, 201)["lease"]
        self.give_up(lease)
        return lease

    def give_up(self, lease):
        daemon = self.daemon
        self.addCleanup(lambda: daemon.running() and daemon.req_unix("POST", f"/api/environment-leases/{lease['id']}/release"))

    def stage(self, lease, path, **body):
        return self.asks("POST", f"/api/environment-leases/{lease['id']}/workspace/stage", {"localPath": str(path), **body})

    def sh(self, lease, script):
        return self.own("POST", f"/api/environment-leases/{lease['id']}/execute",
                        {"command": "sh", "args": ["-c", script]})["stdout"]


@unittest.skipUnless(os.geteuid() == 0, "needs a daemon that is root, for overlays and mounts")
class OwnFilesTest(OwnerTest):
    """What is the daemon's own is in no workspace, by whatever name it is called."""

    def assert_kept(self, answer):
        self.assert_error(answer, 422, contains="belongs to the daemon itself")

    def mount(self, source, target):
        done = subprocess.run(["mount", "--bind", str(source), str(target)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"mount: {done.stderr}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(target)], check=True)

    def test_names_of_the_data_directory(self):
        data = self.daemon.data
        link = self.home / "link"
        link.symlink_to(data)
        inner = self.home / "inner"
        inner.symlink_to(data / "secrets")
        above = data.parent
        lease = self.lease()
        for path in (data, data / "secrets", data / "boxes", above, f"{data}/../{data.name}", f"{data}/.", f"{data}//"):
            self.assert_kept(self.stage(lease, path))
            for isolation in ("overlay", "copy"):
                self.assert_kept(self.stage(lease, path, isolation=isolation))
            self.assert_kept(self.asks("POST", f"/api/environment-leases/{lease['id']}/realize-workspace",
                                       {"workspace": {"localPath": str(path)}}))
        for path in (link, inner):  # out of its root, or into the daemon's
            self.assert_status(self.stage(lease, path), 422)

    def test_bind_mounts(self):
        data, lease = self.daemon.data, self.lease()
        whole, part = self.home / "whole", self.home / "part"
        for folder in (whole, part):
            folder.mkdir()
        self.mount(data, whole)
        self.mount(data / "secrets", part)
        self.assertTrue((part / "master.key").exists())
        for path in (whole, part, whole / "secrets", self.home / "whole" / "boxes"):
            self.assert_kept(self.stage(lease, path))
        # What is mounted inside of one is not part of it.
        (self.home / "own").write_text("mine")
        for isolation in ("overlay", "copy"):
            self.assert_status(self.stage(lease, self.home, isolation=isolation), 200)
            self.assertEqual(self.sh(lease, "cat own; find . -type f | grep -v '^./own$'"), "mine")

    def test_the_directory_below_a_mounted_one(self):
        """The data directory is itself mounted from elsewhere: there it is the daemon's too."""
        below = self.home / "srv" / "x"
        (below / "data").mkdir(parents=True)
        there = self.home / "mounted"
        there.mkdir()
        self.mount(below / "data", there)
        second = self.new_daemon(data=there, env={**self.daemon.env}, flags=self.daemon_flags)
        second.start()
        self.daemon = second
        self.acme = self.operator("POST", "/api/companies", {"name": "Acme"}, 201)
        self.owner = self.board_user(self.acme, "olga", role="owner")["token"]
        lease = self.lease()
        for path in (below, below / "data", below / "data" / "secrets", self.home / "srv"):
            self.assert_kept(self.stage(lease, path))

    def test_another_name_of_a_key(self):
        key = self.daemon.data / KEY
        os.link(key, self.home / "innocent")
        (self.home / "other").write_text("mine")
        for isolation in ("overlay", "copy"):
            lease = self.lease()
            self.assert_status(self.stage(lease, self.home, isolation=isolation), 200)
            self.assertEqual(self.sh(lease, "ls -A | grep -v paperclip"), "other\n")
            self.sh(lease, "echo new >new")
            self.own("POST", f"/api/environment-leases/{lease['id']}/workspace/restore", {})
            self.assertEqual((self.home / "innocent").stat().st_ino, key.stat().st_ino, "it is nobody's to delete")
            self.assertEqual((self.home / "new").read_text(), "new\n")
            (self.home / "new").unlink()

    def test_restoring_into_it(self):
        lease = self.lease()
        self.assert_status(self.stage(lease, self.home), 200)
        self.sh(lease, "echo 'mode = \"local_trusted\"' >berth.toml")
        for path in (self.daemon.data, self.daemon.data.parent):
            self.assert_kept(self.asks("POST", f"/api/environment-leases/{lease['id']}/workspace/restore",
                                       {"localPath": str(path)}))
        self.own("POST", f"/api/environment-leases/{lease['id']}/release", {})
        saved = self.own("GET", f"/api/companies/{self.acme['id']}/salvages")
        self.assertEqual(len(saved), 1)
        self.assert_kept(self.asks("POST", f"/api/salvages/{saved[0]['id']}/apply", {"localPath": str(self.daemon.data)}))
        self.assertFalse((self.daemon.data / "berth.toml").exists())

    def test_a_directory_that_is_replaced_meanwhile(self):
        """A part of the path becomes a link between staging and restoring."""
        work = self.home / "a" / "b"
        work.mkdir(parents=True)
        lease = self.lease()
        self.assert_status(self.stage(lease, work), 200)
        self.sh(lease, "echo x >berth.toml")
        (self.home / "a").rename(self.home / "was")
        (self.home / "a").mkdir()
        (self.home / "a" / "b").symlink_to(self.daemon.data)
        answer = self.asks("POST", f"/api/environment-leases/{lease['id']}/workspace/restore", {})
        self.assertIn(answer.status, (409, 422), answer.body)
        self.assertFalse((self.daemon.data / "berth.toml").exists())

    def test_the_root_of_a_sandbox(self):
        answer = self.asks("POST", f"/api/companies/{self.acme['id']}/environments",
                           {"name": "r", "driver": "sandbox",
                            "config": {"provider": "berth", "rootfs": str(self.daemon.data / "secrets")}})
        self.assertIn(answer.status, (400, 422))
        self.daemon.stop()
        self.daemon.env["BERTH_SANDBOX_ROOTFS_DIRS"] = str(self.daemon.data)
        self.daemon.start()
        (self.daemon.data / "rootfs" / "good").mkdir(parents=True)
        for path in (self.daemon.data, self.daemon.data / "secrets"):
            answer = self.asks("POST", f"/api/companies/{self.acme['id']}/environments",
                               {"name": f"r{path.name}", "driver": "sandbox",
                                "config": {"provider": "berth", "rootfs": str(path)}})
            self.assertIn("belongs to the daemon itself", answer.text)
        self.env(rootfs=str(self.daemon.data / "rootfs" / "good"))


@unittest.skipUnless(os.geteuid() == 0, "needs a daemon that is root")
class KeyElsewhereTest(OwnerTest):
    """The master key, the database and the plugins may lie anywhere."""

    def settings(self):
        for name in ("keys", "db", "plugins", "real"):
            (self.home / name).mkdir()
        (self.home / "real" / "key").write_bytes(os.urandom(16).hex().encode())
        (self.home / "real" / "key").chmod(0o600)
        (self.home / "keys" / "key").symlink_to(self.home / "real" / "key")
        return {**super().settings(), "BERTH_SECRETS_KEY_FILE": str(self.home / "keys" / "key"),
                "BERTH_DATABASE": str(self.home / "db" / "berth.db"), "BERTH_PLUGIN_DIR": str(self.home / "plugins")}

    def test_where_they_are(self):
        lease = self.lease()
        (self.home / "free").mkdir()
        (self.home / "plugins" / "one").mkdir(exist_ok=True)
        self.assert_status(self.stage(lease, self.home / "free"), 200)
        for name in ("", "keys", "real", "db", "plugins", "plugins/one"):
            self.assert_error(self.stage(lease, self.home / name), 422, contains="belongs to the daemon itself")


class RootsTest(OwnerTest):
    """Directories of this machine are a company's."""

    def settings(self):
        self.other_id = str(uuid.uuid4())
        for name in ("all", "others", "each", "bob"):
            (self.home / name).mkdir()
        return {"BERTH_WORKSPACE_ROOTS": f"{self.home}/all:{self.other_id}={self.home}/others:{self.home}/each/{{company}}"
                                         f":{self.home}/bob/work:{self.home}/all/inner"}

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a link to somebody else")
    def test_a_root_in_a_directory_of_another_user(self):
        """He makes a link of it: it leads to nothing that is not his."""
        lease = self.lease()
        (self.home / "private" / "work").mkdir(parents=True)
        work = self.home / "bob" / "work"
        work.symlink_to(self.home / "private")
        os.lchown(work, 65534, 65534)
        for path in (work, work / "work", self.home / "private" / "work"):
            self.assert_error(self.stage(lease, path), 422, contains="beneath the allowed roots")
        os.chown(self.home / "private", 65534, 65534)
        self.assert_status(self.stage(lease, work / "work"), 200)

    def test_a_link_in_the_place_of_an_inner_root(self):
        """What comes home to the outer one may put it there; it is the daemon user's then."""
        lease = self.lease()
        (self.home / "private" / "work").mkdir(parents=True)
        inner = self.home / "all" / "inner"
        inner.symlink_to(self.home / "private")
        for path in (inner, inner / "work", self.home / "private" / "work"):
            self.assert_error(self.stage(lease, path), 422, contains="beneath the allowed roots")
        inner.unlink()
        inner.mkdir()
        self.assert_status(self.stage(lease, inner), 200)

    def test_each_has_its_own(self):
        lease = self.lease()
        globex = self.operator("POST", "/api/companies", {"name": "Globex"}, 201)
        for company in (self.acme, globex):
            (self.home / "each" / company["id"] / "work").mkdir(parents=True)
        self.assert_status(self.stage(lease, self.home / "all"), 200)
        self.assert_status(self.stage(lease, self.home / "each" / self.acme["id"] / "work"), 200)
        for path in (self.home / "each" / globex["id"] / "work", self.home / "each", self.home / "others",
                     f"{self.home}/each/{self.acme['id']}/../{globex['id']}"):
            answer = self.stage(lease, path)
            self.assert_error(answer, 422, contains="beneath the allowed roots")
            self.assertNotIn(globex["id"], answer.error.replace(str(path), ""))
            self.assertNotIn("others", answer.error.replace(str(path), ""))
        self.daemon.stop()
        self.daemon.env["BERTH_WORKSPACE_ROOTS"] = f"{self.acme['id']}={self.home}/others:{self.home}/all"
        self.daemon.start()
        self.assert_status(self.stage(lease, self.home / "others"), 200)


class DefaultRootsTest(OwnerTest):
    def settings(self):
        return {"HOME": str(self.home)}

    def test_nothing_is_shared_by_default(self):
        lease = self.lease()
        own = self.home / "berth" / self.acme["id"]
        own.mkdir(parents=True)
        (self.home / "private").mkdir()
        self.assert_status(self.stage(lease, own), 200)
        for path in (self.home, self.home / "private", self.home / "berth", "/tmp"):
            self.assert_error(self.stage(lease, path), 422, contains="beneath the allowed roots")


class HostTest(OwnerTest):
    """This machine is the instance admin's."""

    NO = "takes an instance admin"

    def setUp(self):
        super().setUp()
        self.admin = self.board_user(self.acme, "root", role="owner", admin=True)["token"]
        self.here = self.local()

    def as_admin(self, method, path, body=None, status=200):
        return self.ok(method, path, body, status=status, token=self.admin)

    def company_agents(self):
        return f"/api/companies/{self.acme['id']}/agents"

    def test_leasing(self):
        self.assert_error(self.asks("POST", f"/api/environments/{self.here['id']}/leases", {}), 403, contains=self.NO)
        self.assertEqual(self.own("GET", f"/api/environments/{self.here['id']}/leases"), [])

    def test_a_lease_of_the_admins(self):
        lease = self.operator("POST", f"/api/environments/{self.here['id']}/leases", {}, 201)["lease"]
        at = f"/api/environment-leases/{lease['id']}"
        execution = self.operator("POST", f"{at}/execute", {"command": "sleep", "args": ["600"], "detach": True}, 202)["execId"]
        for method, path, body in (
                ("POST", "/execute", {"command": "id"}),
                ("POST", "/realize-workspace", {"workspace": {}}),
                ("POST", "/workspace/stage", {"localPath": str(self.home)}),
                ("POST", "/workspace/restore", {}),
                ("GET", "/workspace/diff", None),
                ("GET", "/executions", None),
                ("GET", f"/executions/{execution}", None),
                ("POST", f"/executions/{execution}/stdin", {"data": "x"}),
                ("POST", f"/executions/{execution}/signal", {"signal": "SIGKILL"})):
            self.assert_error(self.asks(method, at + path, body), 403, contains=self.NO)
        self.assert_status(self.asks("GET", at), 200)
        self.own("POST", f"{at}/release", {})  # giving it up harms nobody

    def test_environments(self):
        where = f"/api/environments/{self.here['id']}"
        for body in ({"config": {"env": {"LD_PRELOAD": "/tmp/x.so"}}}, {"name": "Mine"}):
            self.assert_error(self.asks("PATCH", where, body), 403, contains=self.NO)
        self.assert_error(self.asks("PATCH", f"/api/environments/{self.env()['id']}", {"driver": "local", "config": {}}),
                          403, contains=self.NO)
        self.assert_error(self.asks("POST", f"/api/companies/{self.acme['id']}/environments",
                                    {"name": "mine", "driver": "local"}), 403, contains=self.NO)

    def test_choosing(self):
        agents, here = self.company_agents(), self.here["id"]
        for body in ({"defaultEnvironmentId": here}, {"defaultEnvironmentId": here, "adapterType": "process"}):
            self.assert_error(self.asks("POST", agents, {"name": "Ada", **body}), 403, contains=self.NO)
        box = self.env()
        ada = self.own("POST", agents, {"name": "Ada", "defaultEnvironmentId": box["id"],
                                        "adapterConfig": {"command": "true"}}, 201)
        self.assert_error(self.asks("PATCH", f"/api/agents/{ada['id']}", {"defaultEnvironmentId": here}), 403,
                          contains=self.NO)
        project = self.own("POST", f"/api/companies/{self.acme['id']}/projects", {"name": "P"}, 201)
        self.assert_error(self.asks("PATCH", f"/api/projects/{project['id']}",
                                    {"executionWorkspacePolicy": {"enabled": True, "environmentId": here}}), 403,
                          contains=self.NO)
        issue = self.own("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "I"}, 201)
        self.assert_error(self.asks("PATCH", f"/api/issues/{issue['id']}",
                                    {"executionWorkspaceSettings": {"environmentId": here}}), 403, contains=self.NO)
        self.assert_error(self.asks("PATCH", f"/api/companies/{self.acme['id']}", {"defaultEnvironmentId": here}), 403,
                          contains=self.NO)
        self.assert_error(self.asks("DELETE", f"/api/environments/{box['id']}?moveTo={here}"), 403, contains=self.NO)

    def test_what_an_agent_runs_here(self):
        """The admin chose this machine for an agent as it was; what it runs is the admin's choice from then on."""
        agents = self.company_agents()
        ada = self.as_admin("POST", agents, {"name": "Ada", "defaultEnvironmentId": self.here["id"],
                                             "adapterConfig": {"command": "true"}}, 201)
        where = f"/api/agents/{ada['id']}"
        for body in ({"adapterConfig": {"command": "id"}}, {"adapterConfig": {"env": {"PATH": "/tmp"}}},
                     {"adapterConfig": {"cwd": "/"}}, {"adapterType": "codex_local"}):
            self.assert_error(self.asks("PATCH", where, body), 403, contains=self.NO)
        self.own("PATCH", where, {"title": "Engineer"})
        self.as_admin("PATCH", where, {"adapterConfig": {"command": "id"}})
        # Where the company's default is this machine, an agent without an environment works there.
        self.as_admin("PATCH", f"/api/companies/{self.acme['id']}", {"defaultEnvironmentId": self.here["id"]})
        self.assert_error(self.asks("POST", agents, {"name": "Bob", "adapterConfig": {"command": "id"}}), 403,
                          contains=self.NO)
        bob = self.own("POST", agents, {"name": "Bob", "adapterConfig": {"command": "id"},
                                        "defaultEnvironmentId": self.env()["id"]}, 201)
        self.assert_error(self.asks("PATCH", f"/api/agents/{bob['id']}", {"defaultEnvironmentId": None}), 403,
                          contains=self.NO)
        self.own("POST", agents, {"name": "Web", "adapterType": "http", "adapterConfig": {"url": "https://a.example/"}}, 201)

    def test_trying_a_command_here(self):
        seen = self.asks("POST", f"/api/companies/{self.acme['id']}/adapters/process/test-environment",
                         {"adapterConfig": {"command": "id"}, "environmentId": self.here["id"]})
        self.assertIn(self.NO, seen.text)
        self.assertNotIn("uid=0", seen.text)

    def test_an_issue_does_not_move_an_agent_here(self):
        """The admin chose this machine for an issue; the owner assigns it to an agent whose command is his."""
        self.operator("PATCH", "/api/instance/settings/experimental", {"enableIsolatedWorkspaces": True})
        flag = self.home / "escaped"
        bob = self.own("POST", self.company_agents(),
                       {"name": "Bob", "defaultEnvironmentId": self.env()["id"],
                        "adapterConfig": {"command": "touch", "args": [str(flag)]}}, 201)
        issue = self.own("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "I"}, 201)
        self.as_admin("PATCH", f"/api/issues/{issue['id']}",
                      {"executionWorkspaceSettings": {"environmentId": self.here["id"]}})
        self.own("PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": bob["id"], "status": "todo"})
        run = wait_until(lambda: next((r for r in self.own("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs")
                                       if r["status"] in ("failed", "succeeded")), None), "the run is over")
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "environment_not_isolated"), run)
        self.assertIn("does not work there by itself", run["error"])
        self.assertFalse(flag.exists())

    def test_a_run_of_what_the_admin_chose(self):
        flag = self.home / "done"
        ada = self.as_admin("POST", self.company_agents(),
                            {"name": "Ada", "defaultEnvironmentId": self.here["id"],
                             "adapterConfig": {"command": "touch", "args": [str(flag)], "cwd": str(self.home)}}, 201)
        self.own("POST", f"/api/agents/{ada['id']}/wakeup", {"source": "on_demand"}, 202)
        wait_until(flag.exists, "it ran here")

    def test_the_machines_own_network(self):
        """Its loopback and its abstract sockets are the operator's."""
        path = f"/api/companies/{self.acme['id']}/environments"
        body = {"name": "wide", "driver": "sandbox", "config": {"provider": "berth", "network": "host"}}
        self.assert_error(self.asks("POST", path, body), 403, contains='network "host"')
        box = self.env()
        self.assert_error(self.asks("PATCH", f"/api/environments/{box['id']}", {"config": {**box["config"], "network": "host"}}),
                          403, contains='network "host"')
        wide = self.as_admin("POST", path, body, 201)
        self.own("PATCH", f"/api/environments/{wide['id']}", {"name": "still wide"})

    def test_the_directory_of_a_workspace(self):
        """An agent on this machine works in no directory that an owner named."""
        bad, good = self.temp_dir(), self.temp_dir()
        mark = bad / "mark"
        (bad / "build.sh").write_text(f"id > {mark}\n")
        (good / "build.sh").write_text("true\n")
        agent = self.as_admin("POST", self.company_agents(), {
            "name": "Ada", "defaultEnvironmentId": self.local()["id"],
            "adapterConfig": {"command": "sh", "args": ["build.sh"], "cwd": str(good)}}, 201)
        project = self.own("POST", f"/api/companies/{self.acme['id']}/projects", {"name": "P"}, 201)
        issue = self.own("POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": "I", "projectId": project["id"], "assigneeAgentId": agent["id"], "status": "todo"}, 201)

        def over(n):
            runs = [r for r in self.operator("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs") if r["finishedAt"]]
            return len(runs) >= n and runs
        self.assertEqual([r["status"] for r in wait_until(lambda: over(1), "the first run is over")], ["succeeded"])
        (workspace,) = self.own("GET", f"/api/companies/{self.acme['id']}/execution-workspaces")
        self.own("PATCH", f"/api/execution-workspaces/{workspace['id']}", {"cwd": str(bad)})
        self.own("PATCH", f"/api/issues/{issue['id']}", {"status": "todo"})
        self.own("POST", f"/api/agents/{agent['id']}/wakeup", {"payload": {"issueId": issue["id"]}}, 202)
        wait_until(lambda: over(2), "the second run is over")
        self.assertFalse(mark.exists())

    def test_the_setting(self):
        self.daemon.stop()
        self.daemon.env["BERTH_LOCAL_FOR_OWNERS"] = "1"
        self.daemon.start()
        lease = self.lease(self.here)
        self.assertEqual(self.sh(lease, "echo here"), "here\n")


class ForeignIdTest(OwnerTest):
    def test_a_lease_takes_no_id_of_another_company(self):
        globex = self.operator("POST", "/api/companies", {"name": "Globex"}, 201)
        agent = self.operator("POST", f"/api/companies/{globex['id']}/agents", {"name": "Gus"}, 201)
        issue = self.operator("POST", f"/api/companies/{globex['id']}/issues", {"title": "theirs"}, 201)
        self.operator("POST", f"/api/agents/{agent['id']}/wakeup", {"source": "on_demand"}, 202)
        run = wait_until(lambda: self.operator("GET", f"/api/companies/{globex['id']}/heartbeat-runs"), "a run")[0]
        env = self.own("POST", f"/api/companies/{self.acme['id']}/environments",
                       {"name": "fake", "driver": "sandbox", "config": {"provider": "fake"}}, 201)
        where = f"/api/environments/{env['id']}/leases"
        for member, theirs in (("heartbeatRunId", run["id"]), ("issueId", issue["id"])):
            self.assert_error(self.asks("POST", where, {member: theirs}), 422, f"{member} is another company's")
        own = self.own("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "ours"}, 201)
        for body in ({"issueId": own["id"]}, {"heartbeatRunId": str(uuid.uuid4())}, {}):
            self.give_up(self.own("POST", where, body, 201)["lease"])


@unittest.skipUnless(os.geteuid() == 0, "needs a daemon that is root")
class InstructionsTest(OwnerTest):
    """Instructions are read by the daemon and told to the agent."""

    def told(self, path):
        """What an agent with these instructions is told."""
        heard = self.home / f"heard-{os.urandom(3).hex()}"
        program = self.home / "codex"
        program.write_text(f"#!/bin/sh\ncat >'{heard}.new'\nmv '{heard}.new' '{heard}'\n")
        program.chmod(0o755)
        agent = self.operator("POST", f"/api/companies/{self.acme['id']}/agents",
                              {"name": f"A{os.urandom(3).hex()}", "adapterType": "codex_local",
                               "defaultEnvironmentId": self.local()["id"],
                               "adapterConfig": {"command": str(program), "cwd": str(self.home),
                                                 "instructionsFilePath": str(path)}}, 201)
        self.operator("POST", f"/api/agents/{agent['id']}/wakeup", {"source": "on_demand"}, 202)
        wait_until(heard.exists, "it was told something")
        return heard.read_text()

    def test_whose_they_are(self):
        (self.home / "AGENTS.md").write_text("be kind")
        self.assertIn("be kind", self.told(self.home / "AGENTS.md"))
        key = (self.daemon.data / KEY).read_text().strip()
        self.assertNotIn(key, self.told(self.daemon.data / KEY))
        self.assertNotIn("root:", self.told("/etc/passwd"))


if __name__ == "__main__":
    unittest.main()
