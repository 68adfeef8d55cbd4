"""What cannot be looked at is not dead: nothing is ended, removed or written off because a call failed
(docs/decisions/0014-cannot-tell.md). Calls of a living daemon fail with errors that prove nothing (failcalls.py), and its
descriptors are taken away (prlimit)."""

import errno
import os
import pathlib
import resource
import tempfile
import unittest

import berthtest
from berthtest import RawConnection, ident, wait_until
from exectest import OPEN, ExecTest, marked, process_state, sanitized
from failcalls import FailingCalls
from sandboxtest import RUN_A, SandboxTest

WAITS = "echo begun; read line; echo $line; exit 7"


class Watched:
    """Work that must go on, and the passes of the sweeper that could end it."""

    def sweeps(self):
        text = self.daemon.req_unix("GET", "/metrics").text
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("berth_sweeps_total")))

    def let_sweep(self, passes=3):
        seen = self.sweeps()
        wait_until(lambda: self.sweeps() >= seen + passes, f"{passes} passes of the sweeper")

    def begin(self, lease):
        """A command that waits for a line of input: its id."""
        self.held = lease
        ident_ = self.detach(WAITS, openStdin=True)
        self.output_is(ident_, b"begun\n")
        return ident_

    def finish(self, lease, ident_):
        """It is still the same one, and ends as it would have."""
        self.held = lease
        self.assertEqual(self.lease(lease)["status"], "active")
        self.assert_status(self.stdin(ident_, b"on\n"), 200)
        row = self.ended(ident_)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 7, False), row)
        self.output_is(ident_, b"begun\non\n")


# Every call of the daemon whose failure could be taken for the end of a sandbox, or of a box, while nobody asks for one.
LOOKS = [
    ("open", "/box"),           # box_is_alive(), box_connect(): its directory
    ("open", "box.lock"),       # box_is_alive()
    ("flock", "box.lock"),      # box_is_alive()
    ("connect", "box.sock"),    # box_connect()
    ("access", "/sandboxes/"),  # box_dir(), remove_place()
]
# No proof of anything.
ERRORS = [errno.EMFILE, errno.EIO, errno.ENOMEM, errno.EACCES]


class SandboxesTest(FailingCalls, Watched, SandboxTest):
    def test_sweeping_ends_nothing_that_it_cannot_look_at(self):
        work = self.begin(self.held)
        for calls, text in LOOKS:
            for number in ERRORS:
                with self.subTest(calls=calls, text=text, error=errno.errorcode[number]), \
                        self.failing(calls, number, text):
                    self.let_sweep()
                    self.assertEqual(self.lease(self.held)["status"], "active")
        self.finish(self.held, work)
        self.assertNotIn("ended by itself", self.daemon.log())

    def test_a_dead_one_is_still_found(self):
        with self.failing("open", errno.EMFILE, "/box"):
            self.kill_box()
            self.let_sweep()
            self.assertEqual(self.lease(self.held)["status"], "active")
        wait_until(lambda: self.lease(self.held)["status"] == "failed", "it is found dead")

    def test_a_daemon_that_starts_without_means_kills_no_work(self):
        for number in (errno.EMFILE, errno.EIO):
            with self.subTest(error=errno.errorcode[number]):
                work = self.begin(self.held)
                self.daemon.kill()
                with self.failing("open,flock,connect", number, "/box"):
                    self.daemon.start()
                    self.let_sweep()
                    self.assertIn(self.execution(work)["status"], OPEN)
                self.finish(self.held, work)

    def test_an_end_is_not_judged_by_files_that_cannot_be_read(self):
        """The exit record is there and cannot be read: the execution stays open until it can."""
        for calls, text in [("open", "/exit"), ("stat", "/stdout"), ("stat", "/stderr")]:
            for number in (errno.EMFILE, errno.EIO):
                with self.subTest(calls=calls, text=text, error=errno.errorcode[number]):
                    lease = self.acquire(self.env)
                    self.held = lease
                    done = self.detach("exit 5")
                    self.ended(done)
                    work = self.begin(lease)
                    with self.failing(calls, number, text):
                        self.kill_box(lease)
                        self.let_sweep()
                        self.assertIn(self.execution(work)["status"], OPEN)
                    self.assertEqual(self.ended(work)["status"], "lost")
                    self.assertEqual(self.execution(done)["exitCode"], 5)

    def test_releasing_says_gone_only_when_it_is(self):
        for calls, number, text in [("open", errno.EMFILE, "/box"), ("access", errno.EIO, "/sandboxes/"),
                                    ("open", errno.EIO, "/pid"), ("open", errno.ENOMEM, "/cgroup")]:
            with self.subTest(calls=calls, text=text):
                lease = self.acquire(self.env)
                pid, place = self.init_pid(lease), self.place(lease)
                with self.failing(calls, number, text):
                    self.release(lease)
                    state = self.daemon.sql("SELECT state FROM places WHERE id = ?", (place,))[0]["state"]
                    # What could not be looked at is no proof that it has ended.
                    self.assertTrue(state == "closing" or process_state(pid) in (None, "Z"), (state, process_state(pid)))
                wait_until(lambda: self.daemon.sql("SELECT 1 FROM places WHERE id = ? AND state = 'gone'", (place,)),
                           "it is closed by itself", 30)
                self.assertIn(process_state(pid), (None, "Z"))

    def test_an_idle_one_that_cannot_be_looked_at_stays(self):
        """It has files that the next lease wants; another one would not have them."""
        env = self.sandbox_environment("kept", reuseLease=True)
        first = self.acquire(env, heartbeatRunId=RUN_A)
        place = self.place(first)
        self.release(first)
        self.assertEqual(self.places(f"id = '{place}'")[0]["state"], "ready")
        with self.failing("open", errno.EMFILE, "/box"):
            answer = self.req("POST", f"/api/environments/{ident(env)}/leases", {"heartbeatRunId": RUN_A})
            self.assert_status(answer, 503)
            self.let_sweep()
        wait_until(lambda: self.places(f"id = '{place}'")[0]["state"] == "ready", "it is idle again")
        again = self.acquire(env, heartbeatRunId=RUN_A)
        self.assertEqual(self.place(again), place)


class WorkspaceTest(FailingCalls, Watched, SandboxTest):
    def test_a_file_that_cannot_be_looked_at_was_not_deleted(self):
        """The layer of a sandbox says by what it has not that a file is gone."""
        home = self.temp_dir()
        (home / "kept").write_text("kept\n")
        (home / "changed").write_text("old\n")
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/workspace/stage", {"localPath": str(home)})
        self.sh("echo new > changed; echo more > added")
        with self.failing("stat", errno.EIO, "/upper/"):
            answer = self.req("POST", f"/api/environment-leases/{ident(self.held)}/workspace/restore", {})
            self.assertGreaterEqual(answer.status, 500, answer.body)
            self.assertEqual((home / "kept").read_text(), "kept\n")
            self.assertEqual((home / "changed").read_text(), "old\n")
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/workspace/restore", {})
        self.assertEqual({p.name: p.read_text() for p in home.iterdir() if p.is_file()},
                         {"kept": "kept\n", "changed": "new\n", "added": "more\n"})


class LocalTest(FailingCalls, Watched, ExecTest):
    def test_a_daemon_that_starts_without_means_kills_no_work(self):
        for calls, number, text in [("open", errno.EMFILE, "/boxes/"), ("open", errno.EIO, "box.lock"),
                                    ("connect", errno.ENOMEM, "box.sock")]:
            with self.subTest(calls=calls, text=text):
                work = self.begin(self.held)
                self.daemon.kill()
                with self.failing(calls, number, text):
                    self.daemon.start()
                    self.let_sweep()
                    self.assertIn(self.execution(work)["status"], OPEN)
                self.finish(self.held, work)

    def test_releasing_leaves_nothing_that_it_cannot_look_at(self):
        for calls, number, text in [("open", errno.EMFILE, "/boxes/"), ("open", errno.EMFILE, "/proc"),
                                    ("open", errno.EIO, "box.lock"), ("open", errno.EMFILE, "/cgroup.procs"),
                                    ("open", errno.ENOMEM, "/environ")]:
            with self.subTest(calls=calls, text=text):
                lease = self.acquire(self.local)
                work = self.begin(lease)
                pid = self.box_pid(lease)
                place = self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?", (ident(lease),))
                with self.failing(calls, number, text):
                    self.release(lease)
                    state = self.daemon.sql("SELECT state FROM places WHERE id = ?", (place[0]["place_id"],))[0]["state"]
                    self.assertTrue(state == "closing" or (process_state(pid) in (None, "Z") and not marked([work])),
                                    (state, process_state(pid), marked([work])))
                wait_until(lambda: not self.daemon.sql("SELECT 1 FROM places WHERE id = ? AND state <> 'gone'",
                                                       (place[0]["place_id"],)), "it is closed by itself", 30)
                self.assertEqual(marked([work]), [])
                self.assertIn(process_state(pid), (None, "Z"))
        self.held = self.acquire(self.local)


def few_descriptors(limit):
    """A daemon that may have so many: the name of a binary for daemon_binary."""
    name = f"descriptors-{limit}"
    if name not in berthtest.BINARIES:
        script = pathlib.Path(tempfile.mkdtemp(prefix="few-")) / "berth"
        script.write_text(f'#!/bin/sh\nulimit -n {limit}\nexec "{berthtest.BINARIES["normal"]}" "$@"\n')
        script.chmod(0o700)
        berthtest.BINARIES[name] = str(script)
    return name


@unittest.skipIf(sanitized(), "a sanitizer needs descriptors of its own")
class DescriptorsTest(Watched, SandboxTest):
    """Of real daemons with real limits."""

    def take_all(self):
        """No descriptor is left to the daemon: the lowest number that is free is past its limit."""
        pid = self.daemon.process.pid
        used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
        free = next(n for n in range(1 << 20) if n not in used)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
        self.addCleanup(self.give_back, before)
        return before

    def give_back(self, before):
        if self.daemon.running():
            resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, before)

    def reachable(self):
        """Whoever asks for the health gets an answer, and so does the operator; by connections of their own."""
        with self.daemon.raw() as raw:
            answer = raw.send("GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").response()
            self.assert_status(answer, 200)
        with self.daemon.raw(unix=True) as raw:
            answer = raw.send("GET /api/companies HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").response()
            self.assert_status(answer, 200)

    def test_without_a_descriptor_everything_that_lives_goes_on(self):
        local = next(e for e in self.ok("GET", f"/api/companies/{ident(self.acme)}/environments")
                     if e["driver"] == "local")
        leases = [self.held, self.acquire(self.env), self.acquire(local)]
        given_up = self.acquire(self.env)
        works = [self.begin(lease) for lease in leases]
        self.let_sweep(1)
        before = self.take_all()
        self.reachable()
        self.let_sweep(5)
        self.reachable()
        # Ending still works: some descriptors are kept for that.
        pid, place = self.init_pid(given_up), self.place(given_up)
        self.operator("POST", f"/api/environment-leases/{ident(given_up)}/release", {})
        wait_until(lambda: self.places(f"id = '{place}'")[0]["state"] == "gone", "the place is closed without means", 30)
        self.assertIn(process_state(pid), (None, "Z"))
        self.give_back(before)
        for lease, work in zip(leases, works):
            self.finish(lease, work)
        self.held = self.acquire(self.env)
        self.assertEqual(self.sh("echo fine")["stdout"], "fine\n")


@unittest.skipIf(sanitized(), "a sanitizer needs descriptors of its own")
class FewDescriptorsTest(Watched, SandboxTest):
    daemon_binary = few_descriptors(384)

    def test_followers_share_files_and_end_nothing(self):
        """As many as one client may have, each following a command of a sandbox."""
        leases = [self.held, self.acquire(self.env)]
        works = [self.begin(lease) for lease in leases]
        self.let_sweep(1)
        before = self.daemon.fd_count()
        followers = []
        self.addCleanup(lambda: [f.close() for f in followers])
        for i in range(70):
            lease, work = leases[i % 2], works[i % 2]
            raw = RawConnection(self.daemon.address)
            followers.append(raw)
            raw.send(f"GET {self.path(work, '/events', lease)} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for raw in followers:
            self.assertEqual(raw.reader.readline().split()[1], b"200")
        self.let_sweep(5)
        # A connection each, and the files of two commands.
        self.assertLessEqual(self.daemon.fd_count(), before + 70 + 8)
        with self.daemon.raw(unix=True) as raw:
            self.assert_status(raw.send("GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").response(), 200)
        for lease, work in zip(leases, works):
            self.finish(lease, work)
        for raw in followers:  # everybody hears the end
            text = b""
            while b"event: exit" not in text:
                line = raw.reader.readline()
                self.assertTrue(line, text)
                text = (text + line)[-4096:]
            raw.close()


@unittest.skipIf(sanitized(), "a sanitizer needs descriptors of its own")
class CascadeTest(Watched, SandboxTest):
    """One sandbox after the other, until there is no room: the last is refused and the others are as they were."""

    daemon_binary = few_descriptors(96)
    config = {"memoryMb": 64}

    def test_what_does_not_fit_is_refused_and_ends_nothing(self):
        leases = [self.held]
        for _ in range(96):
            answer = self.req("POST", f"/api/environments/{ident(self.env)}/leases", {})
            if answer.status != 201:
                break
            leases.append(answer.json)
        self.assert_error(answer, 503, contains="descriptors")
        self.assertGreater(len(leases), 5)
        pids = [self.init_pid(lease) for lease in leases]
        self.let_sweep(5)
        self.assertEqual({row["status"] for row in self.daemon.sql("SELECT status FROM environment_leases")}, {"active"})
        self.assertTrue(all(process_state(pid) not in (None, "Z") for pid in pids))
        for lease in leases[1:]:
            self.release(lease)
        self.assertEqual(self.sh("echo fine")["stdout"], "fine\n")


if __name__ == "__main__":
    unittest.main()
