"""Both ends of the box protocol against each other and against garbage, with fixed seeds. The real berth-box (under
`make asan` with sanitizers) gets random but valid commands, and then bytes that are none; the real daemon gets a box that
lies. Nothing crashes, nothing hangs, and what was promised still holds. fuzz_box_link.c and fuzz_frame.c go deeper into
single functions."""

import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import threading
import unittest
import uuid

import boxproto as bp
from berthtest import wait_until
from boxproto import Box, Closed
from exectest import OPEN, ExecTest

SCRIPTS = ["true", "echo out; echo err >&2", "exit 7", "head -c 300000 /dev/zero", "sleep 0.05; echo late", "cat",
           "cat; echo more", "trap '' TERM; sleep 0.3", "sleep 1000", "kill -9 $$", "(sleep 1000 &) ; echo x",
           "printf 'a\\377b'", "while read x; do echo $x; done", "exec sleep 0.2"]


class Model:
    """What one execution may do, as far as the host can tell."""

    def __init__(self, exec_id, flags):
        self.id, self.flags = exec_id, flags
        self.channel = None
        self.at = {bp.STDOUT: 0, bp.STDERR: 0}
        self.started = self.failed = self.exited = self.killed = self.eof = False
        self.taken = self.limit = self.sent = 0
        self.exit = None


class Walk:
    """Random valid commands on one box, over connections that come and go."""

    def __init__(self, test, seed):
        self.test, self.random = test, random.Random(seed)
        self.box = Box(test, "--spool-limit", "65536")
        self.execs = []
        self.epoch = 1
        self.connect()

    def connect(self):
        if self.epoch > 1:
            self.host.close()
        self.host = self.box.connect(self.epoch)
        self.epoch += 1
        self.channels = {}
        known = {s.id: s for s in self.host.list()}
        # What failed, or was under way when the connection went, is not known to the box.
        for e in self.execs:
            self.test.assertTrue(e.id in known or not e.started, "an execution that was not forgotten is listed")
        self.execs = [e for e in self.execs if e.id in known]
        for e in self.execs:
            self.attach(e)

    def open_streams(self, e):
        for stream in e.at:
            self.host.ack(e.channel, stream, e.at[stream])

    def attach(self, e):
        e.channel = self.host.channel()
        self.channels[e.channel] = e
        e.limit = 0
        self.host.send(bp.ATTACH, e.channel, e.id.bytes)
        self.open_streams(e)

    def hear(self, f):
        e = self.channels.get(f.channel)
        if f.type in (bp.PONG, bp.STATE, bp.LISTED) and f.channel == 0:
            return
        self.test.assertIsNotNone(e, f"a frame on a channel that nobody opened: {f}")
        if f.type == bp.STARTED:
            e.started = True
        elif f.type == bp.FAILED:
            e.failed = True
        elif f.type == bp.STATE:
            state = bp.parse_state(f.payload)
            self.test.assertEqual(state.id, e.id)
            e.started = True
            e.taken = state.stdin
            e.sent = max(state.stdin, 0)
        elif f.type == bp.DATA:
            stream, offset, data = bp.parse_data(f.payload)
            self.test.assertEqual(offset, e.at[stream], "every byte once and in order")
            e.at[stream] += len(data)
            self.host.ack(e.channel, stream, e.at[stream])
        elif f.type == bp.TAKEN:
            e.taken, e.limit = struct.unpack(">QQ", f.payload)
            self.test.assertLessEqual(e.taken, e.sent)
        elif f.type == bp.EXIT:
            e.exit = bp.parse_exit(f.payload)
            self.test.assertEqual((e.exit.out, e.exit.err), (e.at[bp.STDOUT], e.at[bp.STDERR]))
            e.exited = True
        elif f.type == bp.ERROR and not e.started:  # it failed, perhaps between LIST and ATTACH
            self.test.assertEqual(bp.parse_error(f.payload)[0], 4)
            e.failed = True
        else:
            self.test.fail(f"unexpected: {f}")

    def drain(self):
        """Hear everything up to the answer of a PING."""
        self.host.send(bp.PING, 0, b"12345678")
        while True:
            f = self.host.kept.popleft() if self.host.kept else self.host.next()
            if f.type == bp.PONG:
                return
            self.hear(f)

    def step(self):
        action = self.random.choice(["start", "start", "drain", "drain", "signal", "stdin", "stdin", "reconnect",
                                     "forget", "resize", "list", "kill"])
        live = [e for e in self.execs if e.started and not e.exited and e.channel]
        e = self.random.choice(live) if live else None
        if action == "start":
            self.start()
        elif action == "reconnect" and self.random.random() < 0.4:
            self.connect()
        elif action == "list":
            self.host.list()
        elif action == "forget":
            over = [x for x in self.execs if x.exited]
            if over:
                x = self.random.choice(over)
                self.host.forget(x.channel)
                self.execs.remove(x)
        elif e and action == "signal":
            self.host.signal(e.channel, self.random.choice([1, 2, 10, 12, 15, 18, 19, 28]))
        elif e and action == "kill":
            self.host.signal(e.channel, 9)
        elif e and action == "resize":
            self.host.send(bp.RESIZE, e.channel, struct.pack(">HH", self.random.randint(1, 500), self.random.randint(1, 500)))
        elif e and action == "stdin" and e.flags & (bp.OPEN_STDIN | bp.TERMINAL) and not e.eof and e.limit > e.sent:
            n = self.random.randint(0, min(e.limit - e.sent, 5000))
            e.eof = self.random.random() < 0.3
            self.host.stdin(e.channel, e.sent, self.random.randbytes(n).replace(b"\3", b"x").replace(b"\4", b"x"), e.eof)
            e.sent += n
        else:
            self.drain()

    def start(self):
        if len(self.execs) > 30:
            return
        flags = self.random.choice([0, 0, bp.OPEN_STDIN, bp.TERMINAL])
        e = Model(uuid.UUID(int=self.random.getrandbits(128)), flags)
        script = self.random.choice(SCRIPTS)
        if self.random.random() < 0.1:
            command, args = self.random.choice(["/no/such", "", "/etc", "nope"]), []
        else:
            command, args = "/bin/sh", ["-c", script] + ["x" * self.random.choice([0, 10, 70_000])]
        e.channel = self.host.start(command, args, exec_id=e.id, flags=flags, grace=200,
                                    limit=self.random.choice([0, 0, 0, 100, 500]),
                                    cwd=self.random.choice(["", "/tmp", "/no/such"]) if self.random.random() < 0.2 else "")
        self.channels[e.channel] = e
        self.open_streams(e)
        self.execs.append(e)

    def finish(self):
        self.connect()
        for e in self.execs:
            if e.channel and not e.failed:
                self.host.signal(e.channel, 9)
        wait_until(lambda: self.drain() or all(e.failed or e.exited for e in self.execs), "everything ends", 30)
        self.host.stop()
        self.box.wait_gone()


class ValidCommandsTest(unittest.TestCase):
    def test_random_walks(self):
        for seed in (1, 2, 3):
            with self.subTest(seed=seed):
                walk = Walk(self, seed)
                for _ in range(250):
                    walk.step()
                walk.finish()


class GarbageTest(unittest.TestCase):
    """Bytes that no host would send. The box says so, closes, and goes on with what it runs."""

    def garbage(self, rng, started):
        """A stream that begins well or not, and ends badly."""
        kind = rng.randrange(6)
        if kind == 0:
            return rng.randbytes(rng.randint(1, 3000))
        hello = bp.frame(bp.HELLO, 0, b"BRTH" + struct.pack(">HH", 1, 1) + bp.NODE.bytes + struct.pack(">Q", 1 << 40))
        if kind == 1:  # a header that lies
            return hello + struct.pack(">IBBHI", rng.choice([0, 65537, 1 << 31, 5]), rng.randrange(256), rng.randrange(3),
                                       rng.randrange(3), rng.getrandbits(32)) + rng.randbytes(50)
        valid = [bp.frame(bp.ATTACH, 9, started.bytes), bp.frame(bp.LIST), bp.frame(bp.PING, 0, b"12345678"),
                 bp.frame(bp.START, 3, bp.start_payload(uuid.UUID(int=rng.getrandbits(128)), "/bin/true")),
                 bp.frame(bp.ACK, 9, struct.pack(">BQQ", 1, 0, 100)), bp.frame(bp.SIGNAL, 9, b"\x12"),
                 bp.frame(bp.STDIN, 9, struct.pack(">QB", 0, 0) + b"x"), bp.frame(bp.RESIZE, 9, struct.pack(">HH", 5, 5)),
                 bp.header(bp.CONT, 3, 10) + b"0123456789"]
        stream = bytearray(hello + b"".join(rng.choices(valid, k=rng.randint(1, 12))))
        if kind in (2, 3):  # flipped bits; never those that would make a STOP of it
            for _ in range(rng.randint(1, 8)):
                stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
        elif kind == 4:
            del stream[rng.randrange(len(stream)):]
        else:
            at = rng.randrange(len(stream))
            stream[at:at] = rng.randbytes(rng.randint(1, 40))
        return bytes(stream)

    def test_garbage_changes_nothing(self):
        box = Box(self)
        host = box.connect()
        keeper = uuid.uuid4()
        ch = host.start("/bin/sh", ["-c", "trap '' HUP INT TERM CONT USR1 USR2; echo alive; while read x; do echo $x; done"],
                        exec_id=keeper, flags=bp.OPEN_STDIN)
        host.started(ch)
        host.close()
        rng = random.Random(4)
        for _ in range(300):
            data = self.garbage(rng, keeper)
            if self.could_end_it(data):
                continue
            with box.host() as raw:
                try:
                    raw.raw(data)
                    raw.sock.shutdown(socket.SHUT_WR)
                    while raw.sock.recv(1 << 16):
                        pass
                except (Closed, OSError):
                    pass
            box.hosts.clear()
        self.assertTrue(box.alive())
        host = box.host()
        self.assertEqual(host.hello(epoch=(1 << 64) - 1).type, bp.WELCOME)
        self.assertEqual({s.id: s.state for s in host.list()}[keeper], 1)
        ch, _ = host.attach(keeper)
        host.signal(ch, 9)
        out, _, end = host.collect(ch)
        self.assertTrue(out.startswith(b"alive\n"))
        self.assertEqual(end.signal, 9)
        host.stop()
        box.wait_gone()

    @staticmethod
    def could_end_it(data):
        """A mutation may happen to be a valid STOP, STOP_BY or SIGNAL 9."""
        at = 0
        while at + 12 <= len(data):
            length, kind = struct.unpack(">IB", data[at:at + 5])
            if kind in (bp.STOP, bp.STOP_BY, bp.FORGET) or (kind == bp.SIGNAL and data[at + 12:at + 13] != b"\x12"):
                return True
            at += 12 + length
        return False


class LyingBox:
    """Stands where a box stood: its lock, its socket, and an answer of its own making."""

    def __init__(self, folder, answer):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        self.lock = open(folder / "box.lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.listener = socket.socket(socket.AF_UNIX)
        here = os.open(folder, os.O_RDONLY)
        self.listener.bind(f"/proc/self/fd/{here}/box.sock")
        os.close(here)
        self.listener.listen(16)
        self.answer, self.served, self.stopping = answer, 0, False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while not self.stopping:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            self.served += 1
            with conn:
                try:
                    conn.settimeout(5)
                    self.answer(conn)
                except OSError:
                    pass

    def close(self):
        self.stopping = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.lock.close()
        self.thread.join(30)


WELCOME = bp.frame(bp.WELCOME, 0, struct.pack(">HI16sIBQI", 1, 3, bytes(16), 4711, 1, 1 << 20, 0))


class LyingBoxTest(ExecTest):
    def lie(self, answer):
        """A daemon that starts and finds this instead of the box it knew; then the truth: it is dead."""
        exec_id = self.detach("exec sleep 1000")
        place = next(iter(self.boxes()))
        os.kill(self.box_pid(), signal.SIGKILL)
        self.daemon.kill()
        wait_until(lambda: not bp.marked(exec_id), "the command went with its box")
        liar = LyingBox(self.daemon.data / "boxes" / place, answer)
        try:
            self.daemon.start()
            wait_until(lambda: liar.served >= 3, "it is asked again and again")
            self.assertEqual(self.ok("GET", "/api/health")["status"], "ok")
        finally:
            liar.close()
        self.assertIn(self.ended(exec_id)["status"], ("lost", "failed", "exited"))
        self.assertEqual(self.sh("echo fine")["stdout"], "fine\n")

    def test_silence(self):
        """A box that hangs keeps nobody else waiting, and is taken up when it goes on."""
        exec_id = self.detach("echo x; read y; echo $y", openStdin=True)
        box = self.box_pid()
        self.daemon.kill()
        os.kill(box, signal.SIGSTOP)
        try:
            self.daemon.start()
            other = self.acquire(self.local)
            self.assertEqual(self.sh("echo fine", lease=other)["stdout"], "fine\n")
            self.assertIn(self.execution(exec_id)["status"], OPEN)
        finally:
            os.kill(box, signal.SIGCONT)
        wait_until(lambda: self.stdin(exec_id, b"on\n").status == 200, "it takes input again")
        self.assertEqual(self.ended(exec_id)["exitCode"], 0)
        self.assertEqual(self.output(exec_id), b"x\non\n")

    def test_garbage(self):
        rng = random.Random(5)
        self.lie(lambda conn: conn.sendall(rng.randbytes(5000)))

    def test_garbage_after_a_welcome(self):
        rng = random.Random(6)

        def answer(conn):
            conn.recv(1000)
            conn.sendall(WELCOME + bp.frame(bp.LISTED, 0, struct.pack(">I", 0))[:rng.randrange(17)] + rng.randbytes(5000))
        self.lie(answer)

    def test_frames_about_nothing(self):
        """Well formed, and all lies: channels and executions that nobody asked for."""
        rng = random.Random(7)
        exits = struct.pack(">iBBQQQ", 0, 0, 0, 1, 1 << 60, 1 << 60)

        def answer(conn):
            conn.recv(1000)
            state = bytes(16) + struct.pack(">BIQQQQ", 2, 1, 1, 1, 1, 1) + exits
            frames = [bp.frame(bp.STATE, 0, state), bp.frame(bp.STATE, 5, state), bp.frame(bp.EXIT, 1, exits),
                      bp.frame(bp.GREW, 1, struct.pack(">BQ", 1, 1 << 62)), bp.frame(bp.STARTED, 7, struct.pack(">IQB", 1, 1, 1)),
                      bp.frame(bp.TAKEN, 1, struct.pack(">QQ", 1 << 62, 1 << 63)), bp.frame(bp.STOPPED),
                      bp.frame(bp.FAILED, 1, struct.pack(">HI", 6, 2) + b"no"), bp.frame(bp.PING, 0, b"12345678"),
                      bp.frame(bp.ERROR, 1, struct.pack(">HI", 3, 2) + b"no")]
            conn.sendall(WELCOME + b"".join(rng.choices(frames, k=50)))
        self.lie(answer)
