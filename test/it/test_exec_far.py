"""Commands in boxes that are not on this machine: output is sent, written to the same files, and goes on where it was
after whatever happened to the way, the daemon or the box."""
# threads: the loop and the threads that write what a remote box sends

import contextlib
import http.client
import os
import random
import shutil
import signal
import struct

import boxproto
from berthtest import wait_until
from exectest import marked
from relaytest import FarTest

POINTS = ("exec.data.before", "exec.data.after", "exec.data.safe")
LINES = 20000


def numbered(n):
    return b"".join(b"%d\n" % i for i in range(1, n + 1))


class PlainTest(FarTest):
    """What a box on this machine does, this one does too."""

    def test_output_and_status(self):
        got = self.sh("echo out; echo err >&2; exit 7")
        self.assertEqual((got["exitCode"], got["stdout"], got["stderr"]), (7, "out\n", "err\n"))
        exec_id = got["execId"]
        self.assertEqual((self.output(exec_id), self.output(exec_id, "stderr")), (b"out\n", b"err\n"))
        self.assertEqual(self.output(exec_id, offset=2), b"t\n")
        row = self.execution(exec_id)
        self.assertEqual((row["stdoutBytes"], row["stderrBytes"], row["incomplete"]), (4, 4, False))
        # The box keeps nothing: it was told that we have it.
        place = next(self.boxes_dir().glob("*"))
        wait_until(lambda: not list((place / "spool").glob("*")), "the spool is empty")

    def test_much_of_it(self):
        """Past every window and past what waits for the disk."""
        exec_id = self.detach("head -c 30000000 /dev/zero | tr '\\0' x; head -c 5000000 /dev/zero | tr '\\0' y >&2")
        row = self.ended(exec_id, timeout=60)
        self.assertEqual((row["exitCode"], row["stdoutBytes"], row["stderrBytes"]), (0, 30000000, 5000000))
        self.assertEqual(self.output(exec_id).strip(b"x"), b"")
        self.assertEqual(self.output(exec_id, "stderr").strip(b"y"), b"")

    def test_a_command_that_is_not_there(self):
        self.assert_error(self.execute("/no/such"), 422)
        row = self.daemon.sql("SELECT status, exit_code FROM executions")[0]
        self.assertEqual((row["status"], row["exit_code"]), ("failed", 127))

    def test_input_events_and_signals(self):
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
        got = self.execute("/bin/sh", ["-c", "echo x; sleep 1000"], timeoutMs=200)
        row = self.daemon.sql("SELECT id, timed_out FROM executions")[0]
        self.assertEqual(row["timed_out"], 1, got)
        self.assertEqual(marked([row["id"]]), [])

    def test_releasing_ends_it(self):
        exec_id = self.detach("echo out; exec sleep 1000")
        self.output_is(exec_id, b"out\n")
        self.release(self.held)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["signal"]), ("exited", "SIGTERM"))
        self.assertEqual(self.output(exec_id), b"out\n")


class CutTest(FarTest):
    """Every line once, in order, with the right status, whatever is cut."""

    def check(self, exec_id, stream="stdout"):
        row = self.ended(exec_id, timeout=120)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 3, False))
        self.assertEqual(self.output(exec_id, stream), numbered(LINES))

    def test_a_hundred_times(self):
        rng = random.Random(11)
        self.way.cut_after = lambda: rng.randrange(100, rng.choice((300, 16000)))
        exec_id = self.detach(f"seq {LINES} & seq {LINES} >&2; wait; exit 3")
        wait_until(lambda: self.way.cuts >= 100, "the way was cut a hundred times", 120)
        self.check(exec_id)
        self.check(exec_id, "stderr")

    def test_the_daemon_too(self):
        rng = random.Random(12)
        self.way.cut_after = lambda: rng.randrange(1000, 20000)
        exec_id = self.detach(f"seq {LINES}; exit 3")
        for i in range(6):
            wait_until(lambda n=i: self.daemon_has(exec_id) > n * 8000, "some of it is here")
            self.daemon.restart(crash=True)
        self.check(exec_id)

    def daemon_has(self, exec_id):
        return (self.daemon.data / "output" / exec_id / "stdout").stat().st_size

    def test_a_way_that_is_down(self):
        """Nothing is lost, nothing is given up, and a daemon starts without it."""
        mark = self.temp_dir() / "go"
        os.mkfifo(mark)
        exec_id = self.detach(f"echo 1; read x < {mark}; seq 2 {LINES}; exit 3")
        self.output_is(exec_id, b"1\n")
        self.way.down()
        mark.write_text("\n")
        wait_until(lambda: not marked([exec_id]), "the command ends by itself")
        self.assertIn(self.execution(exec_id)["status"], ("starting", "running"))
        self.daemon.restart(crash=True)
        self.assertIn(self.execution(exec_id)["status"], ("starting", "running"))
        self.assertIn(self.execute("/bin/true").status, (502, 503))
        self.way.up()
        self.check(exec_id)

    def test_releasing_while_it_is_down(self):
        exec_id = self.detach("echo 1; exec sleep 1000")
        self.output_is(exec_id, b"1\n")
        self.way.down()
        self.release(self.held)
        self.assertEqual(self.lease(self.held)["cleanupStatus"], None)
        state = "SELECT state FROM places WHERE state <> 'gone'"
        self.assertEqual([row["state"] for row in self.daemon.sql(state)], ["closing"])
        self.way.up()
        wait_until(lambda: not self.daemon.sql(state), "the place is given up in the end", 30)
        self.assertIn(self.ended(exec_id)["status"], ("exited", "lost"))
        self.assertEqual(marked([exec_id]), [])


class BoxTest(FarTest):
    """The box itself dies."""

    def test_killed(self):
        """Another finds what it kept."""
        exec_id = self.detach("echo before; exec sleep 1000")
        self.output_is(exec_id, b"before\n")
        os.kill(self.box_pid(), signal.SIGKILL)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("lost", None, True))
        self.assertIn("supervisor", row["reason"])
        self.assertEqual(self.output(exec_id), b"before\n")
        self.assertEqual(marked([exec_id]), [])
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")

    def test_output_that_was_on_its_side_only(self):
        mark = self.temp_dir() / "go"
        os.mkfifo(mark)
        exec_id = self.detach(f"read x < {mark}; seq {LINES}; exit 3")
        self.output_is(exec_id, b"")
        wait_until(lambda: self.execution(exec_id)["status"] == "running", "it runs")
        box = self.box_pid()
        self.way.down()
        mark.write_text("\n")
        record = next(self.boxes_dir().glob("*")) / "spool" / exec_id / "exit"
        wait_until(lambda: record.exists() and record.stat().st_size == 34, "its end is recorded there")
        os.kill(box, signal.SIGKILL)
        self.way.up()
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 3, False))
        self.assertEqual(self.output(exec_id), numbered(LINES))

    def test_gone_with_all_it_had(self):
        """It may have run, and it does not run again."""
        ran = self.temp_dir() / "ran"
        exec_id = self.detach(f"echo x >> {ran}; echo out; exec sleep 1000")
        self.output_is(exec_id, b"out\n")
        box = self.box_pid()
        self.way.down()
        os.kill(box, signal.SIGKILL)
        shutil.rmtree(next(self.boxes_dir().glob("*")))
        self.way.up()
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["incomplete"]), ("lost", True))
        self.assertIn("does not know the command any more", row["reason"])
        self.assertEqual((self.output(exec_id), ran.read_text()), (b"out\n", "x\n"))

    def test_a_power_cut_here_does_not_end_what_runs_elsewhere(self):
        """It takes the directory of the output, in which nothing was safe yet."""
        mark = self.temp_dir() / "go"
        os.mkfifo(mark)
        exec_id = self.detach(f"read x < {mark}; echo out; exit 3")
        wait_until(lambda: self.execution(exec_id)["status"] == "running", "it runs")
        self.daemon.kill()
        shutil.rmtree(self.daemon.data / "output" / exec_id)
        self.daemon.start()
        mark.write_text("\n")
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 3, False))
        self.assertEqual(self.output(exec_id), b"out\n")

    def test_a_power_cut_that_takes_the_files(self):
        """As of a box on this machine: only within one boot do missing files prove that a command was never sent."""
        for boot, status in (("boot_id", "failed"), ("'01a1e342-1d86-48b0-9696-3065fde48f56'", "lost")):
            with self.subTest(status):
                exec_id = self.detach("exec sleep 1000")
                box = self.box_pid()
                self.daemon.kill()
                os.kill(box, signal.SIGKILL)
                shutil.rmtree(next(self.boxes_dir().glob("*")))
                shutil.rmtree(self.daemon.data / "output" / exec_id)
                with self.daemon.record() as db:
                    db.execute(f"UPDATE executions SET boot_id = {boot}")
                self.daemon.start()
                self.assertEqual(self.ended(exec_id)["status"], status)


class CrashPointTest(FarTest):
    """The daemon dies before a command is sent, and at each point of writing output."""

    daemon_autostart = False

    def test_every_point_is_here(self):
        status, out, _ = self.daemon.cli("faults")
        self.assertEqual({p for p in out.split() if p.startswith("exec.data.")}, set(POINTS))

    def test_before_it_was_sent(self):
        """While its box is reached, which takes long on another host: it never ran, and is told so."""
        for point in ("exec.launch.before", "exec.launch.after"):
            with self.subTest(point):
                ran = self.temp_dir() / "ran"
                self.daemon = self.new_daemon(env={**self.daemon_env, "BERTH_CRASH_AT": point})
                self.daemon.start()
                self.make_lease()
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.detach(f"echo x > {ran}")
                self.assertEqual(self.daemon.wait(), -signal.SIGKILL, "the point was not reached")
                del self.daemon.env["BERTH_CRASH_AT"]
                self.daemon.start()
                (exec_id,) = self.exec_ids()
                row = self.ended(exec_id)
                self.assertEqual((row["status"], row["reason"]),
                                 ("failed", "The daemon or the supervisor ended before the command was started."))
                self.assertFalse(ran.exists())
                self.nothing_left()

    def test_writing(self):
        for point in POINTS:
            for times in (1, 3):
                with self.subTest(point, times=times):
                    self.daemon = self.new_daemon(env={**self.daemon_env, "BERTH_CRASH_AT": f"{point}:{times}"})
                    self.daemon.start()
                    self.make_lease()
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        self.detach(f"seq {LINES}; exit 3")
                    self.assertEqual(self.daemon.wait(), -signal.SIGKILL, "the point was not reached")
                    del self.daemon.env["BERTH_CRASH_AT"]
                    self.daemon.start()
                    (exec_id,) = self.exec_ids()
                    row = self.ended(exec_id)
                    self.assertEqual((row["status"], row["exitCode"], row["incomplete"]), ("exited", 3, False))
                    self.assertEqual(self.output(exec_id), numbered(LINES))
                    self.nothing_left()


class Liar:
    """A box that answers as the test tells it: `act` is called after each START or ATTACH that was acknowledged."""

    def __init__(self, act):
        self.act = act
        self.starts = []
        self.id = None
        self.pid = 4242
        self.dies_at_start = False

    def __call__(self, near):
        self.near = near
        while True:
            head = self.take(12)
            length, kind, _, _, channel = struct.unpack(">IBBHI", head)
            self.on_frame(kind, channel, self.take(length))

    def take(self, n):
        data = b""
        while len(data) < n:
            more = self.near.recv(n - len(data))
            if not more:
                raise OSError("gone")
            data += more
        return data

    def say(self, kind, channel=0, payload=b""):
        self.near.sendall(boxproto.frame(kind, channel, payload))

    def data(self, channel, stream, offset, data):
        self.say(boxproto.DATA, channel, struct.pack(">BQ", stream, offset) + data)

    def exit(self, channel, out, err=0, code=0):
        self.say(boxproto.EXIT, channel, struct.pack(">iBBQQQ", code, 0, 0, 1, out, err))

    def state(self, channel):
        self.say(boxproto.STATE, channel, self.id + struct.pack(">BIQQQQ", 1, 42, 1, 0, 0, 0))

    def on_frame(self, kind, channel, payload):
        if kind == boxproto.HELLO:
            self.say(boxproto.WELCOME, 0, struct.pack(">HI16sIBQI", 1, 0, bytes(16), self.pid, 3, 1 << 26, 0))
        elif kind == boxproto.LIST:
            if self.id:
                self.state(0)
            self.say(boxproto.LISTED, 0, struct.pack(">I", 1 if self.id else 0))
        elif kind == boxproto.START:
            self.starts.append(payload[:16])
            if self.dies_at_start:
                self.pid += 1
                raise OSError("gone")
            self.id = payload[:16]
            self.say(boxproto.STARTED, channel, struct.pack(">IQB", 42, 1, 3))
        elif kind == boxproto.ATTACH:
            self.state(channel)
        elif kind == boxproto.ACK:
            self.act(self, channel, *struct.unpack(">BQQ", payload))


class LiarTest(FarTest):
    """A box that does not keep to the protocol loses its link, and nothing else happens."""

    def lie(self, act):
        self.take_over(act)
        return self.detach("true")

    def take_over(self, act):
        self.liar = Liar(act)
        self.sh("true")  # there is a real one, for who asks
        self.way.serve = self.liar
        self.way.cut()

    def refused(self, act):
        """Each link ends; then the box tells the truth."""
        honest = []

        def first(liar, channel, stream, stored, limit):
            if honest:
                if stream == 2:
                    liar.exit(channel, 0)
            else:
                act(liar, channel, stream, stored, limit)
        exec_id = self.lie(first)
        before = self.way.connections
        wait_until(lambda: self.way.connections > before + 3, "the link is opened again and again")
        self.assertEqual(self.output(exec_id), b"")
        honest.append(1)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["exitCode"], row["stdoutBytes"]), ("exited", 0, 0))
        self.assertEqual(len(self.liar.starts), 1)

    def test_a_gap(self):
        self.refused(lambda liar, channel, stream, stored, limit: liar.data(channel, 1, 1, b"x"))

    def test_past_the_credit(self):
        def act(liar, channel, stream, stored, limit):
            if stream == 1:
                liar.data(channel, 1, limit, b"x")
        self.refused(act)

    def test_past_every_number(self):
        self.refused(lambda liar, channel, stream, stored, limit: liar.data(channel, 1, (1 << 64) - 1, b"xx"))

    def test_another_box_that_does_not_know_it(self):
        """The one that got START may have run it: it is not started again."""
        self.take_over(None)
        self.liar.dies_at_start = True
        answer = self.execute("/bin/true")
        self.assert_error(answer, 502, contains="does not know the command")
        exec_id = self.daemon.sql("SELECT id FROM executions ORDER BY created_at DESC")[0]["id"]
        row = self.ended(exec_id)
        self.assertEqual(row["status"], "lost")
        self.assertIn("does not know the command", row["reason"])
        self.assertEqual(len(self.liar.starts), 1)

    def test_bytes_twice(self):
        def act(liar, channel, stream, stored, limit):
            if stream == 2 and not stored and not liar.done:
                liar.done = True
                liar.data(channel, 1, 0, b"abc")
                liar.data(channel, 1, 0, b"abcdef")
                liar.data(channel, 1, 3, b"def")
                liar.exit(channel, 6)
        Liar.done = False
        exec_id = self.lie(act)
        self.ended(exec_id)
        self.assertEqual(self.output(exec_id), b"abcdef")

    def test_lengths_that_are_not_so(self):
        def act(liar, channel, stream, stored, limit):
            if stream == 2 and not liar.done:
                liar.done = True
                liar.data(channel, 1, 0, b"abc")
                liar.exit(channel, 1 << 50)
        Liar.done = False
        exec_id = self.lie(act)
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["incomplete"], row["stdoutBytes"]), ("exited", True, 3))
        self.assertEqual(self.output(exec_id), b"abc")

    def tearDown(self):
        self.way.serve = None
        self.way.cut()
        super().tearDown()


class RelayPlainTest(PlainTest):
    """The same over a relay: all boxes of a host share one connection."""

    through_a_relay = True

    def test_many_at_once(self):
        leases = [self.held, self.acquire(self.local), self.acquire(self.local)]
        ids = [(lease, self.detach(f"seq {LINES}; exit 3", lease=lease)) for lease in leases for _ in range(5)]
        for lease, exec_id in ids:
            self.assertEqual(self.ended(exec_id, lease)["exitCode"], 3)
            self.assertEqual(self.output(exec_id, lease=lease), numbered(LINES))
        self.assertEqual(self.way.connections, 1)

    def test_much_of_one_beside_another(self):
        lease = self.acquire(self.local)
        flood = self.detach("head -c 20000000 /dev/zero", lease=lease)
        for _ in range(10):
            self.assertEqual(self.sh("echo hi")["stdout"], "hi\n")
        self.assertEqual(self.ended(flood, lease)["stdoutBytes"], 20000000)
        self.assertEqual(self.way.connections, 1)


class RelayCutTest(CutTest):
    through_a_relay = True


class RelayBoxTest(BoxTest):
    through_a_relay = True
