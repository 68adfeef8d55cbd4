"""What kinds of places made by commands have to do, whichever their descriptor: leases, commands, terminals, workspaces,
callbacks, recovery. A module of such a kind inherits the suites, and says how its world is made and looked at:

    class Podman(KindTest):
        provider, config = "podman", {"image": IMAGE}
        def world(self): ...        # the ids of the places that exist there
        def remove(self, ref): ...  # one of them, behind the daemon's back

A workspace replaces what is in the directory of a place. So no kind may be tested whose places see files of this machine,
but for a directory that the test has made.
"""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3

from berthtest import ident, wait_until
from callbacktest import CallbackTest
from crashtest import Operation, PointWalk
from exectest import ExecTest, marked
from test_terminal import TerminalTest as _TerminalTest

RUN = "7b2f7d1e-53c9-4f7a-9d6e-0a3f6a1c8e11"
RUN2 = "7b2f7d1e-53c9-4f7a-9d6e-0a3f6a1c8e12"
BUSYBOX = next((p for p in ("/bin/busybox", "/usr/bin/busybox") if os.path.exists(p)), None)


def processes_with(*words):
    """Pids of processes with all of these among their arguments."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            if all(any(w.encode() in a for a in arguments) for w in words):
                found.append(int(folder.name))
    return found


class KindTest(ExecTest):
    provider = None
    config = {}

    def world(self):
        raise NotImplementedError

    def remove(self, ref):
        raise NotImplementedError

    def remove_place(self, place):
        """The same by the id of the place."""
        raise NotImplementedError

    def reachers(self, ref):
        """Pids of the commands that carry the line to a place."""
        raise NotImplementedError

    def setUp(self):
        self.addCleanup(self.clear_world)
        super().setUp()

    def clear_world(self):
        """Of a failed test."""
        for place in self.world():
            self.remove_place(place)

    def make_lease(self):
        self.acme = self.company()
        self.env = self.make_environment()
        self.held = self.acquire(self.env)["lease"]

    def make_environment(self, name="place", **more):
        return self.environment(self.acme, name=name, config={"provider": self.provider, **self.config, **more})

    def ref(self, lease=None):
        return self.lease(ident(lease or self.held))["providerLeaseId"]

    def place_of(self, lease=None):
        return self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?", (ident(lease or self.held),))[0]["place_id"]

    def places(self, where="1 = 1"):
        return self.daemon.sql(f"SELECT * FROM places WHERE {where}")

    def leaks(self):
        return self.ok("GET", "/api/leaks")

    def nothing_in_the_world(self):
        super().nothing_in_the_world()
        self.assertEqual(self.world(), set())


class PlaceSuite(_TerminalTest):
    """A lease, and everything that is done in it."""

    execution = ExecTest.execution

    def test_stopping_leaves_the_shell_alone(self):
        socket = self.terminal()
        exec_id = self.ready["execId"]
        self.type_in(socket, "echo 'up'-$((1+1))\n")
        self.until(socket, "up-2")
        reading = socket.end_in_background()
        self.daemon.restart()
        reading.join()
        wait_until(lambda: self.execution(exec_id)["status"] == "running", "its box is reached again")
        again = self.terminal(f"?execId={exec_id}")
        self.type_in(again, "exit\n")
        self.assertEqual(self.closing(again)["reason"], "exited")

    def test_the_lease(self):
        lease = self.lease(self.held["id"])
        self.assertEqual((lease["status"], lease["provider"]), ("active", self.provider))
        self.assertTrue(lease["providerLeaseId"])
        self.assertTrue(lease["metadata"]["remoteCwd"].startswith("/"))
        self.assertEqual(self.world(), {self.place_of()})
        probed = self.ok("POST", f"/api/environments/{ident(self.env)}/probe", {})
        self.assertTrue(probed["ok"], probed)
        self.release(self.held)
        self.assertEqual(self.world(), set())
        self.assertEqual(self.leaks()["total"], 0)

    def test_output_status_and_variables(self):
        got = self.sh("echo out; echo err >&2; pwd; echo $MORE; exit 7", env={"MORE": "more"})
        where = self.lease(self.held["id"])["metadata"]["remoteCwd"]
        self.assertEqual((got["exitCode"], got["stdout"], got["stderr"]), (7, f"out\n{where}\nmore\n", "err\n"))
        self.assert_error(self.execute("/no/such"), 422)

    def test_much_output(self):
        exec_id = self.detach("head -c 3000000 /dev/zero | tr '\\0' x")
        self.assertEqual(self.ended(exec_id, timeout=60)["stdoutBytes"], 3000000)
        self.assertEqual(self.output(exec_id).strip(b"x"), b"")

    def test_input_and_signals(self):
        exec_id = self.detach("cat; echo end", openStdin=True)
        end = self.follow(exec_id)
        self.stdin(exec_id, b"one\n")
        self.output_is(exec_id, b"one\n")
        self.stdin(exec_id, b"two\n", eof=True)
        self.assertEqual(end().stdout, b"one\ntwo\nend\n")
        exec_id = self.detach("sleep 1000 & sleep 1000")
        self.signal(exec_id, "SIGKILL")
        self.assertEqual(self.ended(exec_id)["signal"], "SIGKILL")
        self.assertEqual(marked([exec_id]), [])

    def test_a_time_limit(self):
        self.execute("/bin/sh", ["-c", "echo x; sleep 1000"], timeoutMs=200)
        row = self.daemon.sql("SELECT id, timed_out FROM executions")[0]
        self.assertEqual(row["timed_out"], 1)
        self.assertEqual(marked([row["id"]]), [])

    def test_releasing_ends_it(self):
        exec_id = self.detach("echo out; exec sleep 1000")
        self.output_is(exec_id, b"out\n")
        self.release(self.held)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["signal"], self.output(exec_id)), ("exited", "SIGTERM", b"out\n"))

    def test_a_workspace_comes_home_by_a_merge(self):
        home = self.temp_dir()
        (home / "kept").write_text("kept\n")
        (home / "changed").write_text("1\n")
        post = f"/api/environment-leases/{ident(self.held)}/workspace/"
        cwd = self.ok("POST", post + "stage", {"localPath": str(home)})["cwd"]
        self.assertEqual(self.sh("cat kept; ls", cwd=cwd)["stdout"].split("\n")[0], "kept")
        self.sh("echo 2 >>changed; echo new >new; ln -s new link; chmod 755 new", cwd=cwd)
        (home / "kept").write_text("kept, and changed here\n")
        # The place is still known as ours when it is reached again.
        self.daemon.restart(crash=True)
        self.ok("POST", post + "restore", {})
        self.assertEqual(((home / "changed").read_text(), (home / "kept").read_text()), ("1\n2\n", "kept, and changed here\n"))
        self.assertEqual(((home / "new").read_text(), os.readlink(home / "link")), ("new\n", "new"))
        self.assertTrue(os.access(home / "new", os.X_OK))

    def test_two_places_do_not_see_each_other(self):
        other = self.acquire(self.env)["lease"]
        self.assertNotEqual(self.ref(), self.ref(other))
        self.assertEqual(self.world(), {self.place_of(), self.place_of(other)})
        self.release(other)
        self.assertEqual(self.sh("echo here")["stdout"], "here\n")


class CallbackSuite:
    """The API from within, by the box's tunnel: there may be no network at all. With busybox's nc."""
    daemon_binary = "faults"

    make_people, run_of = CallbackTest.make_people, CallbackTest.run_of

    def ask_inside(self, run, path):
        request = (f"GET {path} HTTP/1.0\\r\\nHost: 127.0.0.1:{run.port}\\r\\n"
                   "Authorization: Bearer $PAPERCLIP_API_KEY\\r\\n\\r\\n")
        got = self.sh(f"printf \"{request}\" | nc 127.0.0.1 {run.port}", env=run.env())
        self.assertEqual(got["exitCode"], 0, got)
        return json.loads(got["stdout"].split("\r\n\r\n")[-1])

    def test_a_callback(self):
        self.make_people()
        run = self.run_of()
        self.assertEqual(run.mode, "tunnel_v1")
        self.assertEqual(self.ask_inside(run, "/api/agents/me")["id"], self.ada["id"])
        self.daemon.restart(crash=True)
        run.again()
        self.assertEqual(self.ask_inside(run, "/api/agents/me")["id"], self.ada["id"])


class LossSuite:
    """The daemon, the line and the place go away while a command runs."""

    LINES = 300

    def numbered(self):
        return self.detach(f"i=0; while [ $i -lt {self.LINES} ]; do i=$((i + 1)); echo $i; usleep 3000 2>/dev/null || sleep 0.003; done")

    def assert_whole(self, exec_id):
        row = self.ended(exec_id, timeout=60)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 0, False))
        self.assertEqual(self.output(exec_id), b"".join(b"%d\n" % i for i in range(1, self.LINES + 1)))

    def test_the_daemon_is_killed(self):
        exec_id = self.numbered()
        wait_until(lambda: self.output(exec_id), "it prints")
        self.daemon.restart(crash=True)
        self.assert_whole(exec_id)
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")

    def test_the_line_is_cut(self):
        exec_id = self.numbered()
        wait_until(lambda: self.output(exec_id), "it prints")
        for pid in self.reachers(self.ref()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.assert_whole(exec_id)

    def test_a_place_that_went_away(self):
        """Deleted behind our back: `berth leaks` says so, the lease can be released, and nothing is left of it."""
        exec_id = self.detach("echo out; exec sleep 1000")
        self.output_is(exec_id, b"out\n")
        place = self.place_of()
        self.remove(self.ref())
        wait_until(lambda: place in json.dumps(self.leaks()["missing"]), "it is missing", 30)
        self.release(self.held)
        self.assertEqual(self.ended(exec_id)["status"], "lost")
        self.assertEqual(self.places("state <> 'gone'"), [])

    def test_a_place_that_nothing_here_names(self):
        """`berth leaks` finds what a lost database would leave."""
        place = self.place_of()
        self.daemon.stop()
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db:
            db.execute("PRAGMA foreign_keys = OFF")
            for table, column in (("environment_leases", "place_id"), ("executions", "place_id"), ("places", "id")):
                db.execute(f"DELETE FROM {table} WHERE {column} = ?", (place,))
            db.commit()
        self.daemon.start()
        self.assertIn(place, json.dumps(self.leaks()["unknown"]))
        self.remove_place(place)


class ReuseSuite:
    """A place that the next run takes up again; for kinds that can pause it is stopped meanwhile."""

    def make_lease(self):
        self.acme = self.company()
        self.env = self.make_environment(reuseLease=True)
        self.held = self.acquire(self.env, heartbeatRunId=RUN)["lease"]

    def test_reuse(self):
        place = self.place_of()
        self.sh("echo kept >file")
        self.ok("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})
        self.assertEqual([p["state"] for p in self.places()], ["ready"])
        self.held = self.acquire(self.env, heartbeatRunId=RUN2)["lease"]
        self.assertEqual(self.place_of(), place)
        self.assertEqual(self.sh("cat file")["stdout"], "kept\n")
        self.ok("POST", f"/api/heartbeat-runs/{RUN2}/release-leases", {})
        self.remove(self.ref())
        self.held = self.acquire(self.env, heartbeatRunId=RUN)["lease"]
        self.assertNotEqual(self.place_of(), place)
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/destroy", {})

    def nothing_left(self):
        for row in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.release(row["id"])
        for row in self.places("state = 'ready'"):
            self.ok("POST", f"/api/places/{row['id']}/close", {})
        self.nothing_in_the_world()


# Crashes


class Acquire(Operation):
    points = ("command.create", "command.reach")

    def stage(self):
        self.t.make_scene(False)

    def act(self):
        self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/leases", {"heartbeatRunId": RUN})


class Release(Operation):
    points = "command.destroy"

    def stage(self):
        self.t.make_scene(False)
        self.t.acquire(self.t.env, heartbeatRunId=RUN)

    def act(self):
        self.t.ask("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})
        self.t.wait_while_alive(lambda: not self.t.places("state NOT IN ('gone')"))


class Reuse(Operation):
    points = ("command.pause", "command.resume")

    def stage(self):
        self.t.make_scene(True)
        self.t.acquire(self.t.env, heartbeatRunId=RUN)

    def act(self):
        self.t.ask("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})
        self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/leases", {"heartbeatRunId": RUN2})


class CrashSuite(PointWalk):
    """The daemon is killed at each step between it and the provider; then record and world agree."""

    operations = (Acquire, Release, Reuse)

    def make_scene(self, reuse):
        self.acme = self.company()
        self.env = self.make_environment(reuseLease=reuse)

    def prepare(self, cls):
        pass

    def check(self, operation):
        for run in (RUN, RUN2):
            self.ok("POST", f"/api/heartbeat-runs/{run}/release-leases", {})
        wait_until(lambda: not self.places("state NOT IN ('gone', 'ready')"), "nothing is half done", 60)
        for place in self.places("state = 'ready'"):
            self.ok("POST", f"/api/places/{place['id']}/close", {})
        wait_until(lambda: not self.world(), "nothing is left in the world", 30)
        self.assertEqual(self.leaks()["total"], 0)

    def test_every_point(self):
        self.walk(self.operations, self.listed("command."))


__all__ = ["BUSYBOX", "CallbackSuite", "CrashSuite", "KindTest", "LossSuite", "PlaceSuite", "ReuseSuite", "processes_with"]
