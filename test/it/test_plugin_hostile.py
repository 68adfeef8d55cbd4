"""A worker that tries to reach what is not its own (test/workers/hostile.py), on a daemon of root and on one of an
ordinary user; what an honest one still needs; and what `berth plugin sandbox-check` says about both."""

import json
import os
import pathlib
import signal
import stat
import subprocess

import escapetest
from berthtest import SOURCE, ident, wait_until
from providertest import ProviderTest

FIRST, COUNT = 0x7fff0000, 0x8000


class HostileWorkerTest(ProviderTest):
    """As root."""
    daemon_binary = "normal"
    worker = SOURCE / "test" / "workers" / "hostile.py"
    as_user = False
    maxDiff = None

    def setUp(self):
        if self.as_user:
            if why := escapetest.why_not_as_user():
                self.skipTest(why)
            self.daemon_binary = escapetest.user_binary()
        elif os.geteuid() != 0:
            self.skipTest("needs root")
        self.uid = escapetest.USER_ID if self.as_user else 0
        self.ground = self.temp_dir()
        super().setUp()

    def new_daemon(self, **options):
        daemon = super().new_daemon(**options)
        if self.as_user:
            os.chown(daemon.data, self.uid, self.uid)
            pathlib.Path(daemon.data).parent.chmod(0o711)
        return daemon

    def install_provider(self, worker=None, **more):
        """In a home, as `~/hostile`: the directory above the one that the program is in is the home itself."""
        self.home = self.ground / "home"
        if not self.home.exists():
            (self.home / ".ssh").mkdir(parents=True)
            (self.home / ".ssh" / "id_test").write_text("PRIVATE")
            (self.home / "victim").write_text("precious")
            (self.home / "victim").chmod(0o640)
            self.give_away()
        return super().install_provider(worker, **more)

    def temp_dir(self):
        path = super().temp_dir()
        if hasattr(self, "home"):  # packages lie there
            path.rmdir()
            path = self.home
        return path

    def give_away(self):
        """All of it belongs to the daemon's user, who can get there."""
        for path in (self.ground, *self.ground.rglob("*")):
            os.chown(path, self.uid, self.uid, follow_symlinks=False)
        for parent in self.ground.parents:
            if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)

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
        other = self.daemon.data / "plugins" / "private" / "11111111-1111-4111-8111-111111111111"
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

    def test_everything_holds(self):
        self.ok("POST", f"/api/companies/{self.company_id}/secrets", {"name": "one", "value": "x"}, status=201)
        targets = self.targets()
        before = self.look(targets)
        answers = self.ask("attack", json.dumps(targets))
        reached = {name: text for name, text in answers.items() if not text.startswith("held: ")}
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


class UserHostileWorkerTest(HostileWorkerTest):
    """As an ordinary user, whose own user the worker has."""
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
