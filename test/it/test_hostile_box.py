"""Boxes, file workers and relays that break the protocol in every frame, order, size and time (docs/box-protocol.md, section
13). What breaks it ends the link, with a text that says what; the daemon goes on, and what ran there is not taken for gone.
fuzz_exec_box.c drives the same state machines deeper."""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import socket
import struct
import threading
import unittest

import boxproto as bp
import exectest
import hostile_box as hb
from berthtest import wait_until
from hostile_box import MAX64, Break, HostileTest

TIMES = (MAX64, 1 << 63, (1 << 63) // 1000 + 1, 253402300800000)
LENGTHS = (MAX64, 1 << 63, (1 << 62) + 1)


class ExecTest(HostileTest):
    def each(self, cases, **more):
        for name, at in cases.items():
            with self.subTest(name):
                self.breach(at, **more)

    def test_honest(self):
        """The peer of these tests is one that the daemon works with."""
        self.tolerated(None)
        self.tolerated(None)
        self.assertEqual(self.complaints(), 0)

    def test_after_the_end(self):
        """What follows EXIT: once it was memory that had been freed."""
        def after_exit(more):
            return Break(bp.ACK, lambda link, c: self.end(link, c) + more(link, c))
        self.each({
            "STARTED": after_exit(lambda link, c: hb.started(c)),
            "FAILED": after_exit(lambda link, c: hb.failed(c)),
            "FAILED and STARTED, often": after_exit(lambda link, c: (hb.failed(c) + hb.started(c)) * 50),
            "EXIT": after_exit(lambda link, c: hb.exited(c)),
            "DATA": after_exit(lambda link, c: hb.data(c, 0, b"x")),
            "GREW": after_exit(lambda link, c: hb.grew(c, 1)),
            "STATE": after_exit(lambda link, c: hb.state(c, link.channels[c])),
        })

    def end(self, link, channel):
        self.box.execs[link.channels[channel]] = "ended"
        return hb.exited(channel)

    def test_after_failed(self):
        def fail(more):
            def say(link, c):
                self.box.execs.pop(link.channels[c])
                return hb.failed(c) + more(link, c)
            return Break(bp.START, say)
        self.each({
            "FAILED": fail(lambda link, c: hb.failed(c)),
            "FAILED, often": fail(lambda link, c: hb.failed(c) * 100),
            "STARTED": fail(lambda link, c: hb.started(c)),
            "DATA": fail(lambda link, c: hb.data(c, 0, b"x")),
            "GREW": fail(lambda link, c: hb.grew(c, 1)),
        }, status="failed")

    def test_instead_of_started(self):
        self.each({
            "EXIT": Break(bp.START, lambda link, c: hb.exited(c)),
            "DATA": Break(bp.START, lambda link, c: hb.data(c, 0, b"x")),
            "GREW": Break(bp.START, lambda link, c: hb.grew(c, 1)),
            "TAKEN": Break(bp.START, lambda link, c: hb.taken(c, 0, 1)),
            "STATE of another": Break(bp.START, lambda link, c: hb.state(c, bytes(16))),
            "STARTED of another channel": Break(bp.START, lambda link, c: hb.started(c + 1)),
            "STARTED of no channel": Break(bp.START, lambda link, c: hb.started(0)),
            "FAILED of no channel": Break(bp.START, lambda link, c: hb.failed(0)),
            "FAILED without a code": Break(bp.START, lambda link, c: hb.failed(c, 0)),
            "FAILED with a text that is none": Break(bp.START, lambda link, c: hb.failed(c, 6, "a\0b")),
        })

    def test_twice(self):
        self.each({
            "STARTED": Break(bp.START, lambda link, c: hb.started(c), after=True),
            "STARTED, then FAILED": Break(bp.START, lambda link, c: hb.failed(c), after=True),
            "STARTED, then STATE": Break(bp.START, lambda link, c: hb.state(c, link.channels[c]), after=True),
            "WELCOME": Break(bp.HELLO, lambda link, c: hb.welcome(), after=True),
            "LISTED": Break(bp.LIST, lambda link, c: hb.listed(0), after=True),
        })

    def test_before_welcome(self):
        for kind in (bp.LISTED, bp.STOPPED, bp.PING, bp.PONG, bp.STATE, bp.STARTED, bp.EXIT, bp.DATA, bp.OPEN, bp.LISTENING):
            with self.subTest(kind):
                self.breach(Break(bp.HELLO, lambda link, c, kind=kind: bp.frame(kind, 0, bytes(40))))

    def test_listing(self):
        self.each({
            "more than it said": Break(bp.LIST, lambda link, c: hb.state(0, bytes(16)) + hb.listed(0)),
            "fewer than it said": Break(bp.LIST, lambda link, c: hb.listed(7)),
            "without an end": Break(bp.LIST, lambda link, c: hb.state(0, bytes(16)) * 1025),
            "LISTED that is too short": Break(bp.LIST, lambda link, c: bp.frame(bp.LISTED)),
        })
        # STATE without a question; the listing is over by then.
        self.breach(Break(bp.ACK, lambda link, c: hb.state(0, link.channels[c])))

    def test_frames_of_the_host_and_unknown_ones(self):
        ours = [bp.HELLO, bp.LIST, bp.STOP_BY, bp.STOP, bp.CONT, bp.START, bp.ATTACH, bp.ACK, bp.STDIN, bp.SIGNAL, bp.RESIZE,
                bp.FORGET, bp.LISTEN, bp.UNLISTEN, bp.CONNECT, hb.RELAY, hb.ASK, hb.ANSWER]
        for kind in ours + [0, 12, 30, 47, 58, 63, 67, 255]:
            with self.subTest(kind):
                self.breach(Break(bp.ACK, lambda link, c, kind=kind: bp.frame(kind, c, bytes(16))))

    def test_unasked(self):
        self.each({
            "PONG": Break(bp.ACK, lambda link, c: hb.number(bp.PONG, 0, c)),
            "PONG on a channel": Break(bp.ACK, lambda link, c: hb.number(bp.PONG, c, 1)),
            "STOPPED": Break(bp.ACK, lambda link, c: bp.frame(bp.STOPPED)),
            "TAKEN of a command without input": Break(bp.ACK, lambda link, c: hb.taken(c, 0, 100)),
            "GREW of files that are not shared": Break(bp.ACK, lambda link, c: hb.grew(c, 10)),
            "a channel that nobody opened": Break(bp.ACK, lambda link, c: hb.exited(c + 1)),
            "a channel of no link": Break(bp.ACK, lambda link, c: hb.exited(0xffffffff)),
        })

    def test_sizes(self):
        good = hb.exited(1)[12:]
        self.each({
            "a payload that is too short": Break(bp.ACK, lambda link, c: bp.frame(bp.EXIT, c, good[:-1])),
            "a payload that is too long": Break(bp.ACK, lambda link, c: bp.frame(bp.EXIT, c, good + b"x")),
            "a frame that is too long": Break(bp.ACK, lambda link, c: bp.header(bp.DATA, c, 65537)),
            "a frame of four gigabytes": Break(bp.ACK, lambda link, c: bp.header(bp.DATA, c, 0xffffffff)),
            "flags": Break(bp.ACK, lambda link, c: struct.pack(">IBBHI", 0, bp.STOPPED, 1, 0, 0)),
            "DATA without a byte": Break(bp.ACK, lambda link, c: hb.data(c, 0, b"")),
            "DATA of stream 3": Break(bp.ACK, lambda link, c: hb.data(c, 0, b"x", 3)),
            "DATA of stream 0": Break(bp.ACK, lambda link, c: hb.data(c, 0, b"x", 0)),
            "DATA behind a gap": Break(bp.ACK, lambda link, c: hb.data(c, 1, b"x")),
            "DATA past every number": Break(bp.ACK, lambda link, c: hb.data(c, MAX64, b"xx")),
        })

    def test_times(self):
        for at in TIMES:
            with self.subTest(at):
                self.breach(Break(bp.START, lambda link, c, at=at: hb.started(c, at=at)))
                self.breach(Break(bp.ACK, lambda link, c, at=at: hb.exited(c, at=at)))
                self.breach(Break(bp.LIST, lambda link, c, at=at: hb.state(0, bytes(16), at=at)))
                self.breach(Break(bp.LIST, lambda link, c, at=at: hb.state(0, bytes(16), 2, exit=hb.exit_fields(at=at))))

    def test_the_clock_of_a_host_may_be_wrong(self):
        """Within what a date can be, a time is believed or replaced, and nothing breaks."""
        for at in (0, 1, 253402300799999):
            with self.subTest(at):
                self.tolerated(Break(bp.START, lambda link, c, at=at: hb.started(c, at=at)))

    def test_counts_and_codes(self):
        for length in LENGTHS:
            with self.subTest(length):
                self.breach(Break(bp.ACK, lambda link, c, n=length: hb.exited(c, out=n)))
                self.breach(Break(bp.ACK, lambda link, c, n=length: hb.exited(c, err=n)))
                for field in ("stdin", "out", "err"):
                    self.breach(Break(bp.LIST, lambda link, c, n=length, f=field: hb.state(0, bytes(16), **{f: n})))
        self.each({
            "pid": Break(bp.START, lambda link, c: hb.started(c, pid=1 << 31)),
            "kill method 0": Break(bp.START, lambda link, c: hb.started(c, kill=0)),
            "kill method 4": Break(bp.START, lambda link, c: hb.started(c, kill=4)),
            "exit code": Break(bp.ACK, lambda link, c: hb.exited(c, code=-2)),
            "signal": Break(bp.ACK, lambda link, c: hb.exited(c, signal=65)),
            "exit flags": Break(bp.ACK, lambda link, c: hb.exited(c, flags=16)),
            "a state that does not exist": Break(bp.LIST, lambda link, c: hb.state(0, bytes(16), 3)),
            "another version": Break(bp.HELLO, lambda link, c: hb.welcome(version=2)),
            "kill method of WELCOME": Break(bp.HELLO, lambda link, c: hb.welcome(kill=0)),
            "pid of WELCOME": Break(bp.HELLO, lambda link, c: hb.welcome(pid=0xffffffff)),
            "spool limit of WELCOME": Break(bp.HELLO, lambda link, c: hb.welcome(limit=MAX64)),
            "executions of WELCOME": Break(bp.HELLO, lambda link, c: hb.welcome(executions=1 << 31)),
        })

    def test_input(self):
        """TAKEN of more than was sent, and of what goes back."""
        for name, say in {
            "more than was sent": lambda link, c: hb.taken(c, 100, 200),
            "past every number": lambda link, c: hb.taken(c, MAX64, MAX64),
            "a limit behind what was taken": lambda link, c: hb.taken(c, 0, 100) + hb.taken(c, 0, 50),
        }.items():
            with self.subTest(name):
                self.breach(Break(bp.START, say, after=True), stdin="hello")

    def test_the_texts_say_what(self):
        for text, at in {
            "the box sent STARTED of an execution that runs": Break(bp.START, lambda link, c: hb.started(c), after=True),
            "EXIT with a time out of its range": Break(bp.ACK, lambda link, c: hb.exited(c, at=MAX64)),
            "ACK, which only a host sends": Break(bp.ACK, lambda link, c: bp.frame(bp.ACK, c)),
        }.items():
            self.breach(at)
            line = next(line for line in self.daemon.log().splitlines() if text in line)
            self.assertIn(hb.NOT_KEPT, line)

    def test_it_is_not_reached_without_end(self):
        """A box that always breaks the protocol is tried with growing pauses, and its command stays open."""
        self.box.ends = False
        exec_id = self.detach("true")
        self.box.noise = lambda link, kind, c, payload: hb.listed(9) if kind == bp.LIST else b""
        self.way.cut()
        wait_until(lambda: self.complaints() >= 6, "it was tried several times")
        self.assertIn(self.execution(exec_id)["status"], ("starting", "running"))
        self.assert_error(self.req("POST", self.path(exec_id, "/signal"), {"signal": "SIGTERM"}), 503,
                          contains="does not keep to the protocol")
        self.honest()
        self.assertEqual(self.ended(exec_id)["status"], "exited")


class TakingTest(HostileTest):
    """A box that asks and asks, behind a relay that takes none of the answers: they do not fill the daemon's memory."""

    def memory(self):
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def test_pings(self):
        def say(link, channel):
            self.relay.credit = 1 << 40  # of the next link
            return hb.number(bp.PING, 0, 7) * 1_000_000
        before = self.memory()
        self.relay.credit = 300
        self.breach(Break(bp.LIST, say, after=True))
        if "ASAN_OPTIONS" not in os.environ:  # the sanitizer keeps what was freed
            self.assertLess(self.memory() - before, 10 << 10)


class SilenceTest(HostileTest):
    """A box that accepts and does not answer: its link is cut and opened again, and no command ends by that."""

    def setUp(self):
        self.daemon_env = {**self.daemon_env, "BERTH_PEER_SILENCE_MS": "600"}
        super().setUp()

    def mute(self, *kinds):
        """The box answers none of these frames until it is told to talk again."""
        for kind in kinds:
            setattr(self.box, f"on_{kind}", lambda link, channel, payload: None)

    def talk(self):
        for name in [n for n in vars(self.box) if n.startswith("on_")]:
            delattr(self.box, name)

    def cut_and_kept(self, *kinds, at=None, **request):
        """The link is cut more than once while nothing of `kinds` is answered, then the command ends as it would have."""
        before = self.complaints()
        self.mute(*kinds)
        if at == "reached":
            self.way.cut()
        got = {}
        asker = threading.Thread(target=lambda: got.update(answer=self.execute("/bin/true", **request)))
        asker.start()
        try:
            wait_until(lambda: self.complaints() >= before + 2, "the daemon has ended the link, and the next one")
            self.assertTrue(asker.is_alive(), "the command is not taken for gone")
        finally:
            self.talk()
            asker.join(60)
        self.assertEqual((got["answer"].status, got["answer"].json.get("exitCode")), (200, 0), got["answer"].text)
        self.assertIn("a box does not answer", self.daemon.log())

    def test_no_welcome(self):
        self.cut_and_kept(bp.HELLO, at="reached")

    def test_no_list(self):
        self.cut_and_kept(bp.LIST, at="reached")

    def test_no_list_but_signs_of_life(self):
        """A box that sends PING all the time is not silent; what was asked is still not answered."""
        self.box.noise = lambda link, kind, c, payload: hb.number(bp.PING, 0, 7) if kind in (bp.LIST, bp.PONG) else b""
        self.cut_and_kept(bp.LIST, at="reached")

    def test_no_started(self):
        self.cut_and_kept(bp.START)

    def test_no_word_while_it_runs(self):
        """Neither PONG nor anything else."""
        self.box.ends = False
        exec_id = self.detach("true")
        before = self.complaints()
        self.mute(bp.PING)
        wait_until(lambda: self.complaints() >= before + 2, "the daemon has ended the link, and the next one")
        self.assertEqual(self.execution(exec_id)["status"], "running")
        self.talk()
        self.box.ends = True
        self.way.cut()
        self.assertEqual(self.ended(exec_id)["status"], "exited")

    def test_a_box_that_answers_keeps_its_link(self):
        self.box.ends = False
        exec_id = self.detach("true")
        links, heard = self.complaints(), self.box.heard
        wait_until(lambda: self.box.heard > heard + 12, "it was pinged for several times the limit")
        self.assertEqual(self.complaints(), links)
        self.assertEqual(self.execution(exec_id)["status"], "running")

    def test_a_time_limit_ends_on_the_host_too(self):
        """A box that says for ever that the command runs, and one that says nothing: the command is lost, and the daemon says so."""
        for name, kinds in {"it runs": (), "nothing": (bp.HELLO, bp.PING)}.items():
            with self.subTest(name):
                self.box.ends = False
                exec_id = self.detach("true", timeoutMs=1)
                self.box.on_25 = lambda link, channel, payload: None  # a signal ends nothing
                self.mute(*kinds)
                row = self.ended(exec_id)
                self.assertEqual(row["status"], "lost", row)
                self.assertIn("long after its time limit", row["reason"])
                self.talk()
                self.honest()
                self.assertEqual(self.execute("/bin/true").json["exitCode"], 0)

    def test_a_time_limit_and_a_byte_now_and_then(self):
        """Output that has piled up may take long to come; for ever it does not."""
        self.box.ends = False
        self.box.on_25 = lambda link, channel, payload: None  # a signal ends nothing
        sent = itertools.count()
        self.box.noise = lambda link, kind, c, payload: b"".join(
            hb.data(channel, next(sent), b"x") for channel in link.channels) if kind == bp.PING else b""
        row = self.ended(self.detach("true", timeoutMs=1))
        self.assertEqual(row["status"], "lost", row)
        self.assertIn("long after its time limit", row["reason"])
        self.assertGreater(row["stdoutBytes"], 12)

    def test_a_time_limit_and_no_way(self):
        """Who cannot be reached may have ended it in time: the command is not taken for lost."""
        self.box.ends = False
        exec_id = self.detach("true", timeoutMs=1)
        self.way.serve = lambda near: None
        self.way.cut()
        tries = self.way.connections
        wait_until(lambda: self.way.connections > tries + 18, "it was tried for longer than the limit", 60)
        self.assertEqual(self.execution(exec_id)["status"], "running")
        self.honest()
        self.way.serve = self.relay
        self.assertEqual(self.ended(exec_id)["status"], "exited")


class StoppedTest(exectest.ExecTest):
    """An honest box that is stopped for several times the limit, as when its machine sleeps: nothing is lost by that."""

    daemon_env = {**exectest.ExecTest.daemon_env, "BERTH_PEER_SILENCE_MS": "400"}

    def test_it_comes_back(self):
        before = self.detach("for i in $(seq 200); do echo $i; sleep 0.01; done; exit 3")
        pid = self.box_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            got = {}
            asker = threading.Thread(target=lambda: got.update(meanwhile=self.execute("/bin/echo", args=["late"])))
            asker.start()
            wait_until(lambda: self.daemon.log().count("a box does not answer") >= 2, "its link was cut, and the next one", 30)
            self.assertEqual(self.execution(before)["status"], "running")
            self.assertTrue(asker.is_alive())
        finally:
            os.kill(pid, signal.SIGCONT)
        asker.join(60)
        self.assertEqual((got["meanwhile"].json["exitCode"], got["meanwhile"].json["stdout"]), (0, "late\n"))
        row = self.ended(before)
        self.assertEqual((row["status"], row["exitCode"]), ("exited", 3), row)
        self.assertEqual(self.output(before), "".join(f"{i}\n" for i in range(1, 201)).encode())


class TunnelTest(HostileTest):
    """Connections from inside: LISTEN is sent for the way out of the environment."""

    def setUp(self):
        self.daemon_env = {**self.daemon_env, "BERTH_TEST_EGRESS": '{"network": "allowlist", "allowedHosts": ["x.example"]}'}
        super().setUp()

    def test_listening_and_offering(self):
        def at(say):
            return Break(bp.LISTEN, say, after=True)
        cases = {
            "LISTENING twice": at(lambda link, c: hb.listening(link.listener)),
            "LISTENING of another": at(lambda link, c: hb.listening(bytes(16))),
            "LISTENING without a port or a reason": Break(bp.LISTEN, lambda link, c: hb.listening(link.listener, 0, 0)),
            "LISTENING with both": Break(bp.LISTEN, lambda link, c: hb.listening(link.listener, 1, 11)),
            "OPEN out of order": at(lambda link, c: hb.opened(2, link.listener)),
            "OPEN twice": at(lambda link, c: hb.opened(1, link.listener) * 2),
            "OPEN of no channel": at(lambda link, c: hb.opened(0, link.listener)),
            "OPEN of a channel of ours": at(lambda link, c: hb.opened(0x80000001, link.listener)),
            "OPEN past every number": at(lambda link, c: hb.opened(1, link.listener, MAX64)),
            "a connection that nobody offered": at(lambda link, c: hb.carried(1, 0, b"x")),
            "a service that nobody asked for": at(lambda link, c: hb.number(bp.ACCEPT, 0x80000001, 1)),
        }
        for name, case in cases.items():
            with self.subTest(name):
                self.breach(case)

    def test_connections(self):
        def at(say):
            return Break(bp.LISTEN, lambda link, c: hb.opened(1, link.listener) + say, after=True)
        cases = {
            "ACCEPT of its own": hb.number(bp.ACCEPT, 1, 1),
            "a gap": hb.carried(1, 5, b"x"),
            "past every number": hb.carried(1, MAX64, b"x"),
            "no bytes": hb.carried(1, 0, b""),
            "past the credit": b"".join(hb.carried(1, i * 60000, bytes(60000)) for i in range(20)),
            "past the end": hb.number(bp.END, 1, 0) + hb.carried(1, 0, b"x"),
            "END twice": hb.number(bp.END, 1, 0) * 2,
            "END elsewhere": hb.number(bp.END, 1, 5),
            "credit that is taken back": hb.number(bp.WINDOW, 1, 1 << 20) + hb.number(bp.WINDOW, 1, 5),
            "credit past every number": hb.number(bp.WINDOW, 1, MAX64),
            "RESET without a reason": hb.reset(1, 0),
            "RESET with a reason that does not exist": hb.reset(1, 6),
            "the next one out of order": hb.reset(1) + hb.carried(3, 0, b"x"),
        }
        for name, say in cases.items():
            with self.subTest(name):
                self.breach(at(say))

    def test_what_came_too_late_is_dropped(self):
        self.tolerated(None)
        self.box.next = Break(bp.LISTEN, lambda link, c: hb.opened(1, link.listener) + hb.reset(1) + hb.carried(1, 7, b"x"), after=True)
        self.way.cut()
        before = self.complaints()
        wait_until(lambda: self.box.next is None, "it was said")
        self.tolerated(None)
        self.assertEqual(self.complaints(), before)


class FilesTest(HostileTest):
    """The worker that moves trees: its connection, and the messages in it."""

    def setUp(self):
        super().setUp()
        self.dir = self.temp_dir()
        (self.dir / "file").write_text("text")

    def stage(self):
        return self.req("POST", hb.workspace_path(self.held, "/stage"), {"localPath": str(self.dir), "isolation": "copy"})

    def speak(self, *messages):
        """A worker that says this, whatever it hears."""
        def say(link, channel):
            link.send(hb.number(bp.ACCEPT, channel, 1 << 40))
            link.worker(channel, hb.ZSTD_BEGIN + hb.block(b"".join(messages)))
            return b""
        return Break(bp.CONNECT, say)

    def test_messages_out_of_order(self):
        hello, ready, scanned = hb.HELLO_MESSAGE, hb.message(hb.READY), hb.message(hb.SCANNED)
        tree, done = hb.message(hb.MANIFEST, hb.EMPTY_TREE), hb.message(hb.FINISHED)
        cases = {
            "FINISHED first": (done,),
            "FINISHED before the end": (hello, done, ready, tree, scanned),
            "FINISHED before it was asked for": (hello, ready, tree, scanned, done),
            "READY first": (ready,),
            "HELLO twice": (hello, hello),
            "READY twice": (hello, ready, ready),
            "a manifest before READY": (hello, tree),
            "SCANNED before READY": (hello, scanned),
            "SCANNED twice": (hello, ready, tree, scanned, scanned),
            "a manifest after its end": (hello, ready, tree, scanned, tree),
            "WANT of nothing": (hello, ready, tree, scanned, hb.message(hb.WANT, b"\xff")),
            "DONE of nothing": (hello, ready, tree, scanned, hb.message(hb.DONE, b"\0")),
            "GONE of nothing": (hello, ready, tree, scanned, hb.message(hb.GONE)),
            "a message of ours": (hello, ready, tree, scanned, hb.message(hb.FINISH)),
            "a message that does not exist": (hello, hb.message(25)),
            "another version": (hb.message(hb.HELLO, struct.pack(">II", 0o22, 2)),),
            "a mask that is none": (hb.message(hb.HELLO, struct.pack(">II", 0o1000, 1)),),
            "a payload past every number": (struct.pack(">IBI", 0xffffffff, hb.HELLO, 0),),
            "a failure": (hello, hb.message(hb.FAIL, bp.string("disk full\x1b[2J"))),
        }
        for name, messages in cases.items():
            with self.subTest(name):
                self.box.next = self.speak(*messages)
                got = self.stage()
                self.assertGreaterEqual(got.status, 400, got.text)
                self.assertIn("file worker", got.text)
                self.assertTrue(self.daemon.running())

    def test_a_worker_that_is_alive_and_nothing_else(self):
        """ALIVE is no progress: the transfer ends."""
        self.daemon.stop()
        self.daemon.env["BERTH_PEER_SILENCE_MS"] = "200"
        self.daemon.start()
        over = threading.Event()

        def accept(link, channel, payload):
            link.connects[channel] = 0
            link.send(hb.number(bp.ACCEPT, channel, 1 << 40))
            link.worker(channel, hb.ZSTD_BEGIN + hb.block(hb.HELLO_MESSAGE))

            def alive():
                while not over.wait(0.05) and link.channel in link.host.links:
                    with contextlib.suppress(OSError):
                        link.worker(channel, hb.block(hb.message(hb.STILL_ALIVE)))
            threading.Thread(target=alive, daemon=True).start()
        self.addCleanup(over.set)
        self.box.on_57 = accept
        got = self.stage()
        self.assertGreaterEqual(got.status, 400, got.text)
        self.assertIn("alive and nothing else", got.text)

    def test_a_stream_that_is_none(self):
        def garbage(link, channel):
            link.send(hb.number(bp.ACCEPT, channel, 1 << 40))
            link.worker(channel, bytes(range(256)) * 10)
            return b""
        self.box.next = Break(bp.CONNECT, garbage)
        self.assertGreaterEqual(self.stage().status, 400)

    def test_the_connection_itself(self):
        cases = {
            "bytes before ACCEPT": lambda link, c: hb.carried(c, 0, b"x"),
            "ACCEPT twice": lambda link, c: hb.number(bp.ACCEPT, c, 1) * 2,
            "a limit past every number": lambda link, c: hb.number(bp.ACCEPT, c, MAX64),
            "END before ACCEPT": lambda link, c: hb.number(bp.END, c, 0),
        }
        for name, say in cases.items():
            with self.subTest(name):
                before = self.complaints()
                # Each attempt gets the same, until the daemon gives up.
                self.box.noise = lambda link, kind, c, payload, say=say: say(link, c) if kind == bp.CONNECT else b""
                self.box.on_57 = lambda link, c, payload: link.connects.update({c: 0})
                self.assertGreaterEqual(self.stage().status, 400)
                self.assertGreater(self.complaints(), before)
                self.assertTrue(self.daemon.running())
        del self.box.on_57
        self.honest()


class RelayTest(HostileTest):
    """What breaks the relay's own protocol ends the carrier, and every stream in it."""

    def carrier_ends(self, at):
        before, broken = self.way.connections, self.relay.broken
        self.relay.next = at
        with contextlib.suppress(socket.timeout):
            exec_id = self.detach("true")
        wait_until(lambda: self.relay.broken > broken, "the relay has broken the protocol")
        wait_until(lambda: self.way.connections > before, "the daemon has opened another carrier")
        row = self.ended(exec_id)
        self.assertEqual(row["status"], "exited", row)
        self.assertTrue(self.daemon.running())

    def test_streams(self):
        self.tolerated(None)
        for name, say in {
            "a frame of a box": lambda carrier, c: hb.welcome(),
            "RELAY twice": lambda carrier, c: bp.frame(hb.RELAY, 0, b"BRLY" + struct.pack(">H", 1)),
            "ACCEPT twice": lambda carrier, c: hb.number(bp.ACCEPT, c, 1 << 40),
            "a stream that nobody asked for": lambda carrier, c: hb.carried(c + 50, 0, b"x"),
            "no stream": lambda carrier, c: hb.carried(0, 0, b"x"),
            "a gap": lambda carrier, c: hb.carried(c, 1 << 30, b"x"),
            "past every number": lambda carrier, c: hb.carried(c, MAX64, b"x"),
            "END elsewhere": lambda carrier, c: hb.number(bp.END, c, 1 << 30),
            "credit that is taken back": lambda carrier, c: hb.number(bp.WINDOW, c, 1),
            "credit past every number": lambda carrier, c: hb.number(bp.WINDOW, c, MAX64),
            "RESET without a reason": lambda carrier, c: hb.reset(c, 0),
            "OPEN": lambda carrier, c: hb.opened(c, bytes(16)),
            "a question": lambda carrier, c: bp.frame(hb.ASK, c, bytes([2]) + bytes(16)),
            "PING": lambda carrier, c: hb.number(bp.PING, 0, 1),
            "PONG that nobody asked for": lambda carrier, c: hb.number(bp.PONG, 0, 1),
            "an answer that nobody asked for": lambda carrier, c: hb.answer(c),
            "a frame that is too long": lambda carrier, c: bp.header(bp.BYTES, c, 65537),
            "flags": lambda carrier, c: struct.pack(">IBBHI", 0, bp.BYTES, 0, 1, c),
            "an unknown frame": lambda carrier, c: bp.frame(200, c),
        }.items():
            with self.subTest(name):
                self.carrier_ends(Break(bp.BYTES, say))

    def test_bytes_before_accept(self):
        self.tolerated(None)
        self.relay.next = Break(bp.OPEN, lambda carrier, c: hb.carried(c, 0, b"x"))
        before = self.way.connections
        self.way.cut()
        self.assertEqual(self.ended(self.detach("true"))["status"], "exited")
        wait_until(lambda: self.way.connections > before + 1, "the daemon has opened another carrier")

    def test_answers(self):
        """A lease is acquired while its questions are answered wrongly: that it cannot be known is no end of anything."""
        self.tolerated(None)
        for name, say in {
            "twice": lambda carrier, c: hb.answer(c, 0, 1) * 2,
            "another code": lambda carrier, c: hb.answer(c, 3),
            "another value": lambda carrier, c: hb.answer(c, 0, 2),
            "a failure with a value": lambda carrier, c: hb.answer(c, 1, 1),
            "of another channel": lambda carrier, c: hb.answer(c + 9),
            "a stream instead": lambda carrier, c: hb.number(bp.ACCEPT, c, 1),
            "a text that is too long": lambda carrier, c: bp.frame(hb.ANSWER, c, struct.pack(">HBI", 0, 1, 1 << 31)),
        }.items():
            with self.subTest(name):
                self.relay.next = Break(hb.ASK, say)
                before, broken = self.way.connections, self.relay.broken
                exec_id = self.detach("true")
                if self.relay.broken == broken:  # nothing was asked while the link was there
                    self.way.cut()
                wait_until(lambda: self.relay.broken > broken, "a question was answered wrongly")
                wait_until(lambda: self.way.connections > before, "the daemon has opened another carrier")
                self.assertEqual(self.ended(exec_id)["status"], "exited")


class RoundsTest(HostileTest):
    """Random frames in between, with a seed for each round; TEST_HOSTILE_ROUNDS makes it longer."""

    def setUp(self):
        self.daemon_env = {**self.daemon_env, "BERTH_TEST_EGRESS": '{"network": "allowlist", "allowedHosts": ["x.example"]}'}
        super().setUp()

    def test_boxes(self):
        for seed in hb.seeds(1000, 12):
            with self.subTest(seed=seed):
                dice = hb.dice_for(seed)

                def noise(link, kind, channel, payload, dice=dice):
                    if kind in (bp.HELLO, bp.LIST) and dice.random() < 0.8:
                        return b""
                    return b"".join(hb.some_frame(dice, link) for _ in range(dice.choice([0, 0, 1, 1, 2, 10])))
                self.box.ends = dice.random() < 0.7
                self.box.noise = noise
                self.meanwhile(self.box, 15, 4, lambda: self.execute("/bin/true", detach=True, stdin="some input"))

    def test_relays(self):
        for seed in hb.seeds(2000, 8):
            with self.subTest(seed=seed):
                dice = hb.dice_for(seed)
                self.relay.noise = lambda carrier, kind, c, payload, dice=dice: b"".join(
                    hb.some_relay_frame(dice, carrier) for _ in range(dice.choice([0, 0, 0, 1, 2])))
                self.meanwhile(self.relay, 15, 4, lambda: self.execute("/bin/true", detach=True))

    def test_file_workers(self):
        folder = self.temp_dir()
        (folder / "file").write_text("text")
        for seed in hb.seeds(3000, 8):
            with self.subTest(seed=seed):
                dice = hb.dice_for(seed)

                def say(link, channel, dice=dice):
                    link.send(hb.number(bp.ACCEPT, channel, 1 << 40))
                    good = [hb.HELLO_MESSAGE, hb.message(hb.READY), hb.message(hb.MANIFEST, hb.EMPTY_TREE),
                            hb.message(hb.SCANNED)]
                    wild = b"".join(hb.some_message(dice) for _ in range(dice.randrange(1, 6)))
                    link.worker(channel, hb.ZSTD_BEGIN + hb.block(b"".join(good[:dice.randrange(5)]) + wild))
                    return hb.number(bp.END, channel, link.connects[channel])
                self.box.next = Break(bp.CONNECT, say)
                got = self.req("POST", hb.workspace_path(self.held, "/stage"), {"localPath": str(folder), "isolation": "copy"})
                self.assertGreaterEqual(got.status, 400, got.text)
                self.assertTrue(self.daemon.running())


if __name__ == "__main__":
    unittest.main()
