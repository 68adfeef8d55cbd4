"""kill -9 of the daemon, of the box, and of both, while commands run and print. Afterwards every command still runs or
its end is recorded, every byte is there exactly once, leases and places are right, and nothing leaks.

The rounds are in execrounds.py."""
# share 3: 6 s of processor time

# sqlite: looks into the SQLite file

import contextlib
import os
import shutil
import signal
import sqlite3
import threading

from berthtest import ROUNDS, SEED, ident, wait_until
from exectest import ExecTest, marked, process_state, with_argument
from execrounds import Rounds

LOST = "lost"


class RoundsTest(ExecTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50"}

    def rounds(self, seed, **more):
        leases = [ident(self.held), ident(self.acquire(self.local)), ident(self.acquire(self.local))]
        for n in range(ROUNDS):
            rounds = Rounds(self.daemon, leases, f"{seed + SEED}.{n}" if n else seed + SEED, **more)
            self.addCleanup(rounds.close)
            problems = rounds.run()
            self.assertEqual(problems, [])

    def test_fifty_commands_seed_1(self):
        self.rounds(1, commands=50, kills=6)

    def test_fifty_commands_seed_2(self):
        self.rounds(2, commands=50, kills=6, pause=(0.0, 0.05))


class BoxTest(ExecTest):
    """The box killed with SIGKILL."""

    def assert_lost(self, exec_id, lease=None):
        row = self.ended(exec_id, lease)
        self.assertEqual((row["status"], row["exitCode"], row["signal"], row["incomplete"]), (LOST, None, None, True))
        self.assertIn("supervisor", row["reason"])
        self.assertIn("may be missing", row["reason"])
        self.assertEqual(marked([exec_id]), [])
        return row

    def test_alone(self):
        exec_id = self.detach("echo before; echo error >&2; exec sleep 1000")
        done = self.sh("echo done; exit 4")
        self.output_is(exec_id, b"before\n")
        self.output_is(exec_id, b"error\n", "stderr")
        end = self.follow(exec_id)
        os.kill(self.box_pid(), signal.SIGKILL)
        row = self.assert_lost(exec_id)
        got = end()
        self.assertEqual((got.stdout, got.stderr), (b"before\n", b"error\n"))
        self.assertEqual((got.exit["status"], got.exit["incomplete"], got.exit["reason"]),
                         (LOST, True, row["reason"]))
        self.assertEqual((row["stdoutBytes"], row["stderrBytes"]), (7, 6))
        self.assertEqual(self.execution(done["execId"])["exitCode"], 4)
        self.assertEqual(self.lease(self.held)["status"], "active")
        # The lease can still be used; there is a new box.
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")

    def test_a_caller_who_waits(self):
        answers = []
        waiter = threading.Thread(target=lambda: answers.append(self.execute("/bin/sh", ["-c", "echo x; exec sleep 999"])))
        waiter.start()
        self.addCleanup(waiter.join)
        exec_id = wait_until(self.exec_ids, "it is recorded")[0]
        self.output_is(exec_id, b"x\n")
        os.kill(self.box_pid(), signal.SIGKILL)
        waiter.join(30)
        self.assert_error(answers[0], 502, contains="supervisor")
        self.assertEqual(answers[0].json["details"], {"execId": self.exec_ids()[0]})

    def test_a_power_cut_that_takes_the_files(self):
        """Within one boot no output files mean that it never began. After another boot they may have been lost, and the
        command may have run: it is not told as one that never began, which a run would begin again."""
        for boot, status in (("boot_id", "failed"), ("'01a1e342-1d86-48b0-9696-3065fde48f56'", LOST)):
            with self.subTest(status):
                exec_id = self.detach("exec sleep 1000")
                box = self.box_pid()
                self.daemon.kill()
                os.kill(box, signal.SIGKILL)
                shutil.rmtree(self.daemon.data / "output" / exec_id)
                with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db:
                    db.execute(f"UPDATE executions SET boot_id = {boot}")
                    db.commit()
                self.daemon.start()
                self.assertEqual(self.ended(exec_id)["status"], status)

    def test_together_with_the_daemon(self):
        exec_id = self.detach("echo before; exec sleep 1000")
        pid = self.execution(exec_id)["pid"]
        self.output_is(exec_id, b"before\n")
        box = self.box_pid()
        self.daemon.kill()
        os.kill(box, signal.SIGKILL)
        self.daemon.start()
        self.assert_lost(exec_id)
        wait_until(lambda: process_state(pid) in (None, "Z"), "the command is gone")
        self.assertEqual(self.output(exec_id), b"before\n")
        self.assertEqual(self.lease(self.held)["status"], "active")
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")

    def test_an_end_that_was_recorded_is_not_lost(self):
        """It ended while the daemon was away; then the box died too."""
        folder = self.temp_dir()
        os.mkfifo(folder / "go")
        exec_id = self.detach(f"read x < {folder}/go; echo done; exit 5")
        box = self.box_pid()
        self.daemon.kill()
        (folder / "go").write_text("\n")
        record = self.daemon.data / "output" / exec_id / "exit"
        wait_until(lambda: record.exists() and record.stat().st_size == 34, "the box records its end")
        os.kill(box, signal.SIGKILL)
        self.daemon.start()
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 5, False))
        self.assertEqual(self.output(exec_id), b"done\n")

    def test_released_without_a_box(self):
        exec_id = self.detach("exec sleep 1000")
        box = self.box_pid()
        self.daemon.kill()
        os.kill(box, signal.SIGKILL)
        self.daemon.start()
        self.assertEqual(self.release(self.held)["lease"]["status"], "released")
        self.assertEqual(self.ended(exec_id)["status"], LOST)

    def test_again_and_again_while_commands_are_started(self):
        """Whatever happens, each is answered, each row has its end, and record and world agree."""
        stop, answers, lock = threading.Event(), [], threading.Lock()
        folder = self.temp_dir()

        def keep_starting(worker):
            n = 0
            while not stop.is_set():
                n += 1
                mark = folder / f"{worker}.{n}"
                answer = self.execute("/bin/sh", ["-c", f"echo x >> {mark}; echo ran"])
                with lock:
                    answers.append((answer, mark))
        workers = [threading.Thread(target=keep_starting, args=(i,)) for i in range(6)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(15):
                pid = wait_until(lambda: next(iter(self.boxes().values()), None), "there is a box")
                seen = len(answers)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                wait_until(lambda n=seen: len(answers) >= n + 6, "the callers are answered", 30)
        finally:
            stop.set()
            for worker in workers:
                worker.join(60)
        self.assertFalse(any(w.is_alive() for w in workers))
        for answer, mark in answers:
            times = mark.read_text().count("x") if mark.exists() else 0
            self.assertLessEqual(times, 1)
            if answer.status == 200:
                self.assertEqual((answer.json["exitCode"], answer.json["stdout"], times), (0, "ran\n", 1))
            elif answer.status == 422:
                self.assert_error(answer, 422, contains="before the command was started")
                self.assertEqual(times, 0)
            else:
                self.assert_error(answer, 502, contains="supervisor")
        self.assertTrue(any(a.status == 200 for a, _ in answers))
        for row in self.daemon.sql("SELECT id, status FROM executions"):
            self.assertIn(row["status"], ("exited", LOST, "failed"))


POINTS = ("exec.intend.before", "exec.intend.after", "exec.launch.before", "exec.launch.after", "exec.post.before",
          "exec.output.before", "exec.end.before", "exec.end.after", "exec.bury.before", "exec.bury.after")
REMOVING = ("exec.remove_output.before", "exec.remove_output.after")


class CrashPointTest(ExecTest):
    """The daemon dies at each point of the exec paths; then record and world agree."""

    daemon_binary = "faults"
    daemon_autostart = False

    def test_every_point_is_here(self):
        status, out, _ = self.daemon.cli("faults")
        self.assertEqual(status, 0)
        here = {p for p in out.split() if p.startswith("exec.") and not p.startswith("exec.data.")}
        self.assertEqual(here, {*POINTS, *REMOVING})  # those of data: test_exec_far.py

    def crash(self, point, act):
        """Let `act` run into the point, and start the daemon again without it."""
        daemon = self.daemon = self.new_daemon(env={**self.daemon_env, "BERTH_CRASH_AT": point})
        daemon.start()
        self.make_lease()
        try:
            act()
        except OSError:
            pass
        except Exception as e:  # http.client's own
            if type(e).__module__ != "http.client":
                raise
        self.assertEqual(daemon.wait(), -signal.SIGKILL, "the point was not reached")
        del daemon.env["BERTH_CRASH_AT"]
        daemon.start()

    def check(self, ran_file):
        """The row has its end, and it is that of the world."""
        rows = self.daemon.sql("SELECT id FROM executions")
        ran = ran_file.read_text().count("x") if ran_file.exists() else 0
        self.assertLessEqual(ran, 1)
        if not rows:
            self.assertEqual(ran, 0)
        for row in rows:
            end = self.ended(row["id"])
            if ran:
                self.assertEqual((end["status"], end["exitCode"]), ("exited", 3))
                self.assertEqual(self.output(row["id"]), b"out\n")
            else:
                self.assertEqual((end["status"], end["pid"]), ("failed", None), end)
                self.assertIn("before the command was started", end["reason"])
        self.assertEqual(self.lease(self.held)["status"], "active")
        self.assertEqual(self.sh("echo on")["stdout"], "on\n")
        self.nothing_left()

    def test_starting_and_ending(self):
        for point in POINTS[:8]:
            with self.subTest(point):
                ran = self.temp_dir() / "ran"
                self.crash(point, lambda f=ran: self.sh(f"echo x >> {f}; echo out; exit 3"))
                self.check(ran)

    def test_the_same_key_after_the_crash(self):
        """What a client does that does not know what became of its request."""
        for point in POINTS[:8]:
            with self.subTest(point):
                ran = self.temp_dir() / "ran"
                script = f"echo x >> {ran}; echo out; exit 3"
                self.crash(point, lambda s=script: self.sh(s, idempotencyKey="k"))
                wait_until(lambda: not self.daemon.sql("SELECT 1 FROM executions WHERE status = 'starting'"), "settled")
                answer = self.execute("/bin/sh", ["-c", script], idempotencyKey="k")
                if answer.status == 422:
                    self.assertIn("before the command was started", answer.error)
                    self.assertFalse(ran.exists())
                else:
                    self.assert_status(answer, 200)
                    self.assertEqual((answer.json["exitCode"], answer.json["stdout"], ran.read_text()),
                                     (3, "out\n", "x\n"))
                self.nothing_left()

    def test_releasing(self):
        for point in POINTS[8:]:
            with self.subTest(point):
                def act():
                    exec_id = self.detach("echo out; exec sleep 1000")
                    self.output_is(exec_id, b"out\n")
                    self.release(self.held)
                self.crash(point, act)
                (exec_id,) = self.exec_ids()
                wait_until(lambda: self.lease(self.held)["status"] == "released", "the release is finished")
                end = self.ended(exec_id)
                self.assertEqual((end["status"], end["signal"]), ("exited", "SIGTERM"))
                self.assertEqual(self.output(exec_id), b"out\n")
                self.nothing_left()

    def test_removing_output(self):
        """The rows are gone; the next start removes what they left."""
        for point in REMOVING:
            with self.subTest(point):
                def act():
                    self.sh("echo out")
                    self.release(self.held)
                    company = self.daemon.sql("SELECT id FROM companies")[0]["id"]
                    self.ok("DELETE", f"/api/companies/{company}")
                    wait_until(lambda: not self.daemon.running(), "the daemon died")
                self.crash(point, act)
                self.assertEqual(self.daemon.sql("SELECT id FROM executions"), [])
                wait_until(lambda: not list((self.daemon.data / "output").iterdir()), "the output is removed")
                wait_until(lambda: not self.daemon.sql("SELECT * FROM outputs_to_remove"), "and no intent is left")

    def test_burying_a_box_that_was_killed(self):
        for point in POINTS[8:]:
            with self.subTest(point):
                def act():
                    exec_id = self.detach("echo out; exec sleep 1000")
                    self.output_is(exec_id, b"out\n")
                    os.kill(self.box_pid(), signal.SIGKILL)
                    self.ended(exec_id)
                self.crash(point, act)
                (exec_id,) = self.exec_ids()
                self.assertEqual(self.ended(exec_id)["status"], LOST)
                self.assertEqual(self.lease(self.held)["status"], "active")
                self.assertEqual(self.sh("echo on")["stdout"], "on\n")
                self.nothing_left()
