"""A worker that tries to reach what is not its own (test/workers/hostile.py), on a daemon of root and on one of an
ordinary user; what an honest one still needs; and what `berth plugin sandbox-check` says about both."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess

import escapetest
from berthtest import SOURCE, ident, wait_until
from providertest import Provider, ProviderTest, write_package

FIRST, COUNT = 0x7fff0000, 0x8000


class Ground(ProviderTest):
    """The hostile worker on a daemon whose data lie in a home."""
    daemon_binary = "normal"
    worker = SOURCE / "test" / "workers" / "hostile.py"
    as_user = False
    seen_without_view = ()
    maxDiff = None

    def setUp(self):
        if self.as_user:
            if why := escapetest.why_not_as_user():
                self.skipTest(why)
            self.daemon_binary = escapetest.user_binary("berth-faults" if self.daemon_binary == "faults" else "berth")
        elif os.geteuid() != 0:
            self.skipTest("needs root")
        self.uid = escapetest.USER_ID if self.as_user else 0
        self.packages = 0
        self.make_home()
        super().setUp()

    def make_home(self):
        """A home with a key, with the data of the daemon in it, and with the packages, as `~/package-1`: the directory
        above the one that a worker's program is in is the home itself."""
        self.home = super().temp_dir()
        self.data = self.home / ".berth"
        for path, text, mode in ((".ssh/id_test", "PRIVATE", 0o600), ("victim", "precious", 0o640),
                                 (".cloud/credentials", "CLOUD", 0o600), (".cloud/config", "CONFIG", 0o644)):
            file = self.home / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            file.chmod(mode)
        self.data.mkdir(mode=0o700)
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, self.uid, self.uid)
        if self.as_user:
            for parent in self.home.parents:
                if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/"):
                    parent.chmod(parent.stat().st_mode | 0o011)

    def new_daemon(self, **options):
        return super().new_daemon(data=self.data, **options)

    def install_provider(self, worker=None, **more):
        path = write_package(self.home / f"package-{self.packages}", worker or self.worker, **more)
        self.packages += 1
        row = self.ok("POST", "/api/plugins/install", {"packageName": str(path), "isLocalPath": True})
        self.assertEqual(row["status"], "ready", row)
        return Provider(self, row)

    def restart(self, **env):
        self.daemon.env = {**self.daemon.env, **env}
        self.daemon.restart()
        self.provider.wait_running()

    def ask(self, command, *args):
        if not hasattr(self, "held"):
            self.held = self.acquire(self.sandbox())
        done = self.ok("POST", f"/api/environment-leases/{ident(self.held)}/execute",
                       {"command": command, "args": list(args)})
        self.assertEqual(done["exitCode"], 0, done)
        return json.loads(done["stdout"])

    def targets(self):
        stranger = subprocess.Popen(["/bin/sleep", "1000"], user=self.uid, group=self.uid, extra_groups=[])
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        other = self.data / "plugins" / "private" / "11111111-1111-4111-8111-111111111111"
        other.mkdir()
        (other / "secret").write_text("x")
        for path in (other, other / "secret"):
            os.chown(path, self.uid, self.uid)
        return {"data": str(self.daemon.data), "home": str(self.home), "victim": str(self.home / "victim"),
                "beside": str(self.home / "beside"), "parent": str(self.home), "others": [str(other / "secret")],
                "daemon": self.daemon_pid(), "stranger": stranger.pid}

    def leader(self):
        return self.ok("GET", f"/api/plugins/{self.provider.id}/dashboard")["worker"]["pid"]

    def daemon_pid(self):
        """Of the daemon itself: as another user it is started by a shell."""
        status = pathlib.Path(f"/proc/{self.leader()}/status").read_text()
        return int(status.split("PPid:")[1].split()[0])

    def look(self, targets):
        """What must be the same afterwards."""
        seen = {}
        for path in (pathlib.Path(targets["victim"]), self.daemon.data, self.daemon.data / "secrets",
                     self.daemon.data / "secrets" / "master.key"):
            st = path.stat()
            seen[str(path)] = (oct(st.st_mode), st.st_uid, st.st_gid, os.listxattr(path))
        seen["text"], seen["mtime"] = self.home.joinpath("victim").read_text(), os.stat(targets["victim"]).st_mtime
        limits = pathlib.Path(f"/proc/{targets['stranger']}/limits").read_text()
        seen["limits"] = [line for line in limits.splitlines() if line.startswith("Max cpu time")]
        return seen


class HostileWorkerTest(Ground):
    """As root."""

    def test_everything_holds(self):
        """Nothing of the daemon, of its user, of others or of the kernel can be reached, and nothing was changed."""
        self.ok("POST", f"/api/companies/{self.company_id}/secrets", {"name": "one", "value": "x"}, status=201)
        targets = self.targets()
        before = self.look(targets)
        answers = self.ask("attack", json.dumps(targets))
        reached = {name: text for name, text in answers.items()
                   if not text.startswith("held: ") and name not in self.seen_without_view}
        self.assertEqual(reached, {})
        self.assertGreater(len(answers), 70)
        self.assertEqual(self.look(targets), before)
        self.assertEqual(self.ok("GET", "/api/health")["status"], "ok")

    def test_who_it_is(self):
        seen = self.ask("see")
        none = "0" * 16
        self.assertEqual((seen["capabilities"], seen["noNewPrivileges"], seen["seccomp"]), ([none] * 5, "1", "2"))
        if self.as_user:
            self.assertEqual(seen["uid"], self.uid)
        else:
            self.assertIn(seen["uid"], range(FIRST, FIRST + COUNT))
            self.assertEqual((seen["gid"], seen["groups"]), (seen["uid"], []))
        # Its own processes and the one that collects them.
        self.assertEqual(seen["processes"][0], 1)
        self.assertLess(len(seen["processes"]), 5)
        self.assertEqual(seen["cwd"], str(self.provider.dir))
        self.assertEqual(seen["environment"]["HOME"], str(self.provider.dir))
        owners = {path.stat().st_uid for path in (self.provider.dir, self.provider.dir / "tmp")}
        self.assertEqual(owners, {seen["uid"]})

    def test_what_an_honest_one_does(self):
        self.assertEqual(self.ask("work"), -15)
        moved = self.provider.dir / "work" / "deep" / "file"
        self.assertEqual((stat.S_IMODE(moved.stat().st_mode), moved.stat().st_mtime), (0o755, 1))

    def test_its_end_is_that_of_all_it_started(self):
        """A child in a session of its own does not outlive it, however it ends."""
        kill = lambda: os.kill(self.leader(), signal.SIGKILL)
        stop = lambda: self.ok("POST", f"/api/plugins/{self.provider.id}/disable", {})
        for mark, end in (("1000.25", kill), ("1000.75", stop)):
            self.provider.wait_running()
            self.ask("orphan", mark)
            wait_until(lambda: running(mark), "it runs")
            end()
            wait_until(lambda: not running(mark), "it is gone")

    def test_its_end_is_told_as_it_was(self):
        for args, text in ((["exit", "7"], "code=7, signal=null"), (["signal", "15"], "code=null, signal=SIGTERM")):
            self.provider.wait_running()
            lease = self.acquire(self.sandbox(name=f"box-{args[1]}"))
            answer = self.req("POST", f"/api/environment-leases/{ident(lease)}/execute", {"command": "end", "args": args})
            self.assertIn(f"Worker process exited ({text})", answer.body.decode())


    # Files that it may have.

    def test_what_the_operator_lets_it_read(self):
        """A key of 0600 is passed as a copy under its own name; a directory with its files."""
        paths = [self.home / ".ssh/id_test", self.home / ".cloud", self.home / "not-there"]
        self.restart(BERTH_PLUGIN_PATHS=",".join(map(str, paths)))
        wanted = [".ssh/id_test", ".cloud/credentials", ".cloud/config", "victim", ".berth/berth.db"]
        seen = self.ask("read", *(str(self.home / name) for name in wanted))
        self.assertEqual([seen[str(self.home / name)] for name in wanted[:3]], ["PRIVATE", "CLOUD", "CONFIG"])
        for name in wanted[3:]:
            self.assertIn(seen[str(self.home / name)], ("No such file or directory", "Permission denied"), name)
        copies = [path for path in (self.data / "plugins/copies").rglob("*") if path.is_file()]
        self.assertEqual({(stat.S_IMODE(p.stat().st_mode), p.stat().st_uid) for p in copies},
                         set() if self.as_user else {(0o400, self.provider.dir.stat().st_uid)})
        self.restart(BERTH_PLUGIN_PATHS="")
        self.assertFalse((self.data / "plugins/copies").exists())

    def test_the_data_directory_is_never_read(self):
        """Neither when the operator names the home that it is in, nor when he names it itself."""
        self.restart(BERTH_PLUGIN_PATHS=f"acme.provider:{self.home}")
        names = ["victim", ".berth/berth.db", ".berth/secrets/master.key"]
        seen = list(self.ask("read", *(str(self.home / name) for name in names)).values())
        self.assertEqual(seen, ["precious"] + ["No such file or directory"] * 2)
        self.daemon.env = {**self.daemon.env, "BERTH_PLUGIN_PATHS": str(self.data / "berth.db")}
        self.daemon.restart()
        wait_until(lambda: self.ok("GET", f"/api/plugins/{self.provider.id}")["status"] == "error", "it cannot start")
        self.assertIn("plugin_paths names", self.ok("GET", f"/api/plugins/{self.provider.id}")["lastError"])

    def test_a_package_that_others_may_not_read(self):
        path = write_package(self.home / "closed", self.worker, key="acme.closed")
        for file in (path, *path.rglob("*")):
            file.chmod(0o700)
            os.chown(file, self.uid, self.uid)
        row = self.ok("POST", "/api/plugins/install", {"packageName": str(path), "isLocalPath": True})
        self.assertEqual(row["status"], "ready", row)

    def test_a_program_with_an_interpreter_elsewhere(self):
        """Its package does not decide what else it may read: the operator does."""
        tools = self.home / "tools" / "bin"
        tools.mkdir(parents=True)
        shutil.copy("/bin/sh", tools / "sh")
        worker = self.home / "with-sh.py"
        worker.write_text(f"#!{tools}/sh\nexec /usr/bin/python3 {SOURCE}/none\n")
        worker.chmod(0o755)
        path = write_package(self.home / "elsewhere", worker, key="acme.elsewhere")
        row = self.ok("POST", "/api/plugins/install", {"packageName": str(path), "isLocalPath": True})
        self.assertEqual(row["status"], "error")
        self.assertIn("name that one's directory in plugin_paths", row["lastError"])

    # sandbox-check

    def test_sandbox_check(self):
        report = json.loads(self.cli("plugin", "sandbox-check", "acme.provider", "--json")[1])
        self.assertTrue(report["ok"], report)
        self.assertEqual((report["pluginKey"], report["view"]), ("acme.provider", True))
        self.assertEqual(report["user"], str(self.provider.dir.stat().st_uid))
        reached = {(c["name"], c["what"]) for c in report["checks"] if c["reached"]}
        self.assertEqual(reached, {("network", "the daemon's port")})
        names = {c["name"] for c in report["checks"]}
        self.assertLessEqual({"read", "write", "change the mode", "signal", "resource limits", "trace", "namespace",
                              "mount", "socket", "keys", "kernel"}, names)
        status, shown, _ = self.cli("plugin", "sandbox-check", "acme.provider")
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"network +open +the daemon's port")
        self.assertRegex(shown, r"read +closed +/etc/shadow")
        self.assertEqual(list((self.data / "plugins").glob("decoy-*")), [])

    def test_sandbox_check_of_an_open_one(self):
        self.restart(BERTH_PLUGIN_CONFINE="false")
        status, shown, _ = self.cli("plugin", "sandbox-check", "acme.provider")
        self.assertEqual(status, 1)
        self.assertRegex(shown, r"change the mode +failed +a file of the daemon")
        self.assertRegex(shown, r"resource limits +closed +the daemon")

    def test_sandbox_check_is_for_admins(self):
        token = self.agent(self.company_id)["token"]
        answer = self.req("POST", f"/api/plugins/{self.provider.id}/sandbox-check", {}, token=token)
        self.assert_status(answer, 403)


class WorkerUsersTest(Ground):
    """What only a daemon of root has."""

    def test_users_of_their_own(self):
        other = self.install_provider(key="acme.other")
        users = [p.dir.stat().st_uid for p in (self.provider, other)]
        self.assertEqual(len(set(users)), 2)
        self.restart()
        self.assertEqual([p.dir.stat().st_uid for p in (self.provider, other)], users)

    def test_files_of_an_older_version(self):
        """They belong to root, and the worker gets them; not what has another name elsewhere."""
        self.daemon.stop()
        kept, foreign = self.provider.dir / "kept", self.home / "victim"
        kept.write_text("kept")
        os.link(foreign, self.provider.dir / "linked")
        for path in (self.provider.dir, *self.provider.dir.rglob("*")):
            os.chown(path, 0, 0)
        self.daemon.start()
        self.provider.wait_running()
        self.assertEqual(self.ask("read", str(kept)), {str(kept): "kept"})
        self.assertEqual((kept.stat().st_uid, foreign.stat().st_uid), (self.provider.dir.stat().st_uid, 0))

    def test_turned_off_and_on_again(self):
        """Meanwhile root wrote there."""
        user = self.provider.dir.stat().st_uid
        self.restart(BERTH_PLUGIN_CONFINE="false")
        self.assertEqual(self.ask("work"), -15)
        self.assertEqual((self.provider.dir / "work").stat().st_uid, 0)
        self.restart(BERTH_PLUGIN_CONFINE="true")
        self.assertEqual(self.ask("work"), -15)
        self.assertEqual({p.stat().st_uid for p in (self.provider.dir, self.provider.dir / "work/deep/file")}, {user})

    def test_a_range_that_is_somebodys(self):
        self.daemon.stop()
        self.daemon.env = {**self.daemon.env, "BERTH_PLUGIN_UID_FIRST": "1000", "BERTH_PLUGIN_UID_COUNT": "70000"}
        self.daemon.start()
        wait_until(lambda: self.ok("GET", f"/api/plugins/{self.provider.id}")["status"] == "error", "it cannot start")
        self.assertIn("plugin_uid_first", self.ok("GET", f"/api/plugins/{self.provider.id}")["lastError"])


class UserHostileWorkerTest(HostileWorkerTest):
    """As an ordinary user, whose own user the worker has."""
    as_user = True


class WithoutViewTest(Ground):
    """Where no namespaces can be made Landlock and the filter are left. That a file is there, and what processes are
    called, can be seen."""
    daemon_binary = "faults"
    daemon_env = {**Ground.daemon_env, "BERTH_TEST_NO_VIEW": "1"}
    seen_without_view = {"stat_master_key", "roots_of_processes", "read_command_line"}

    test_everything_holds = HostileWorkerTest.test_everything_holds

    def test_an_honest_one(self):
        """With the daemon's user it cannot change modes and times, even of its own files; with one of its own it can."""
        if self.as_user:
            self.assertIn("Operation not permitted", self.req(
                "POST", f"/api/environment-leases/{ident(self.acquire(self.sandbox()))}/execute",
                {"command": "work", "args": []}).body.decode())
        else:
            self.assertEqual(self.ask("work"), -15)

    def test_it_is_said(self):
        wait_until(lambda: "plugin workers have no view of their own" in self.daemon.log(), "the log says so")
        report = self.ok("POST", f"/api/plugins/{self.provider.id}/sandbox-check", {})
        self.assertFalse(report["view"])
        self.assertTrue(report["ok"], [c for c in report["checks"] if c["reached"]])


class UserWithoutViewTest(WithoutViewTest):
    as_user = True


class OldKernelTest(WithoutViewTest):
    """The same where Landlock keeps no signals inside, as before Linux 6.12."""
    daemon_env = {**WithoutViewTest.daemon_env, "BERTH_TEST_LANDLOCK": "5"}

    def test_it_ends_its_children(self):
        self.assertEqual(self.ask("end-group"), -15)


class UserOldKernelTest(OldKernelTest):
    as_user = True


def running(word):
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in file.read_bytes():
                found.append(int(file.parent.name))
        except OSError:
            pass
    return found


if __name__ == "__main__":
    import unittest
    unittest.main()
