"""berth-box --relay by itself: streams to boxes, questions about them, and hosts that do not keep to the protocol."""

import base64
import os
import random
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest
import uuid

import boxproto
from berthtest import wait_until
from boxproto import ACCEPT, BYTES, END, OPEN, PING, PONG, RESET, WINDOW, frame
from exectest import sanitized
from relaytest import BOX

RELAY, ASK, ANSWER = 64, 65, 66
ENSURE, ALIVE, BURY, LIST = 1, 2, 3, 4
GREETING = frame(RELAY, 0, b"BRLY\0\1")


class Relay:
    def __init__(self, base):
        near, far = socket.socketpair()
        with far:
            self.process = subprocess.Popen([BOX, "--relay", "--dir", base], stdin=far, stdout=far,
                                            stderr=subprocess.DEVNULL)
        self.socket = near
        near.settimeout(30)
        self.channel = 0

    def take(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise EOFError(data)
            data += more
        return data

    def next(self):
        length, kind, _, _, channel = struct.unpack(">IBBHI", self.take(12))
        return boxproto.Frame(kind, channel, self.take(length))

    def send(self, kind, channel=0, payload=b""):
        self.socket.sendall(frame(kind, channel, payload))

    def ask(self, want, box, execs=()):
        self.channel += 1
        self.send(ASK, self.channel, bytes([want]) + box.bytes + b"".join(e.bytes for e in execs))
        answer = self.next()
        assert (answer.type, answer.channel) == (ANSWER, self.channel), answer
        code, value, length = struct.unpack(">HBI", answer.payload[:7])
        assert len(answer.payload) == 7 + length
        self.text = answer.payload[7:].decode()
        return code, value

    def open(self, box, limit=1 << 20):
        self.channel += 1
        self.send(OPEN, self.channel, box.bytes + struct.pack(">Q", limit))
        return self.channel, self.next()

    def close(self):
        self.socket.close()
        return self.process.wait(10)


class RelayTest(unittest.TestCase):
    def setUp(self):
        self.base = tempfile.mkdtemp(prefix="relay-")
        self.addCleanup(shutil.rmtree, self.base, ignore_errors=True)
        self.addCleanup(self.kill_boxes)

    def kill_boxes(self):
        with Open(self) as r:
            for name in os.listdir(f"{self.base}/boxes"):
                r.ask(BURY, uuid.UUID(name))

    def test_the_life_of_a_box(self):
        box = uuid.uuid4()
        with Open(self) as r:
            self.assertEqual(r.ask(ALIVE, box), (0, 0))
            self.assertEqual(r.ask(ENSURE, box), (0, 0))
            self.assertEqual(r.ask(ENSURE, box), (0, 0))
            self.assertEqual(r.ask(ALIVE, box), (0, 1))
            channel, answer = r.open(box)
            self.assertEqual((answer.type, struct.unpack(">Q", answer.payload)[0]), (ACCEPT, 1 << 18))
            hello = frame(boxproto.HELLO, 0, b"BRTH" + struct.pack(">HH16sQ", 1, 1, bytes(16), 1))
            r.send(BYTES, channel, struct.pack(">Q", 0) + hello)
            welcome = r.next()
            self.assertEqual((welcome.type, welcome.channel), (BYTES, channel))
            self.assertEqual(welcome.payload[8 + 4], boxproto.WELCOME)
        # It outlives the relay.
        with Open(self) as r:
            self.assertEqual(r.ask(ALIVE, box), (0, 1))
            self.assertEqual(r.ask(BURY, box, [uuid.uuid4()]), (0, 0))
            self.assertEqual(r.ask(ALIVE, box), (0, 0))
            self.assertEqual(r.ask(BURY, box), (0, 0))
        self.assertEqual(os.listdir(f"{self.base}/boxes"), [])

    def test_a_box_that_is_not_there(self):
        with Open(self) as r:
            channel, answer = r.open(uuid.uuid4())
            self.assertEqual((answer.type, answer.channel, answer.payload), (RESET, channel, b"\2"))
            r.send(PING, 0, bytes(8))
            self.assertEqual(r.next(), (PONG, 0, bytes(8)))

    def test_a_box_that_cannot_be_started(self):
        box = uuid.uuid4()
        os.mkdir(f"{self.base}/boxes")
        with open(f"{self.base}/boxes/{box}", "w", encoding="ascii"):
            pass
        with Open(self) as r:
            self.assertEqual(r.ask(ENSURE, box), (1, 0))
        os.unlink(f"{self.base}/boxes/{box}")

    def test_a_box_that_ends_without_a_word(self):
        """It was killed, or there was nothing to run it with: another try may find it better."""
        if sanitized():
            self.skipTest("a sanitizer needs more address space than the limit leaves")
        with Open(self) as r:
            r.ask(ALIVE, uuid.uuid4())
            resource.prlimit(r.process.pid, resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
            self.assertEqual(r.ask(ENSURE, uuid.uuid4()), (2, 0))

    def test_a_box_that_ends(self):
        box = uuid.uuid4()
        with Open(self) as r:
            r.ask(ENSURE, box)
            channel, _ = r.open(box)
            r.send(BYTES, channel, struct.pack(">Q", 0) + b"\xff" * 12)  # no frame: the box closes after an ERROR
            said = r.next()
            self.assertEqual(said.type, BYTES)
            end = r.next()
            self.assertEqual((end.type, struct.unpack(">Q", end.payload)[0]), (END, len(said.payload) - 8))
            # Frames for what is over are dropped.
            r.send(WINDOW, channel, struct.pack(">Q", 1 << 30))
            r.send(RESET, channel, b"\1")
            self.assertEqual(r.ask(ALIVE, box), (0, 1))

    def test_credit_is_kept(self):
        """Two bytes at a time, if that is all there is."""
        box = uuid.uuid4()
        with Open(self) as r:
            r.ask(ENSURE, box)
            channel, _ = r.open(box, limit=2)
            r.send(BYTES, channel, struct.pack(">Q", 0) + b"\xff" * 12)
            got, limit = b"", 2
            while len(got) < 20:
                piece = r.next()
                self.assertEqual((piece.type, struct.unpack(">Q", piece.payload[:8])[0]), (BYTES, len(got)))
                got += piece.payload[8:]
                self.assertLessEqual(len(got), limit)
                if len(got) == limit:
                    limit += 2
                    r.send(WINDOW, channel, struct.pack(">Q", limit))

    def test_what_does_not_fit_ends_it(self):
        box = uuid.uuid4()
        bad = {
            "no frame": b"\xff" * 12,
            "unknown type": frame(200),
            "a stream never opened": frame(BYTES, 5, bytes(8) + b"x"),
            "channel 0": frame(OPEN, 0, bytes(24)),
            "a question without a meaning": frame(ASK, 1, b"\x09" + bytes(16)),
            "half an id": frame(ASK, 1, b"\x03" + bytes(20)),
            "executions where none are": frame(ASK, 1, b"\x02" + bytes(32)),
            "two nodes that want it": frame(ASK, 1, b"\x01" + bytes(48)),
            "a list of executions": frame(ASK, 1, b"\x04" + bytes(32)),
            "an answer": frame(ANSWER, 1, bytes(7)),
            "a channel twice": frame(ASK, 1, b"\x02" + bytes(16)) * 2,
            "a gap": frame(OPEN, 9, box.bytes + bytes(8)) + frame(BYTES, 9, struct.pack(">Q", 5) + b"x"),
            "too much": frame(OPEN, 9, box.bytes + bytes(8)) + b"".join(
                frame(BYTES, 9, struct.pack(">Q", i * 60000) + bytes(60000)) for i in range(200)),
            "credit taken back": frame(OPEN, 9, box.bytes + struct.pack(">Q", 9)) + frame(WINDOW, 9, bytes(8)),
        }
        with Open(self) as r:
            r.ask(ENSURE, box)
        for name, data in bad.items():
            with self.subTest(name):
                r = Relay(self.base)
                r.take(len(GREETING))
                try:
                    r.socket.sendall(data)
                except OSError:
                    pass
                if name == "too much":
                    r.socket.shutdown(socket.SHUT_WR)
                    self.assertIn(r.process.wait(10), (0, 1))  # the box may be first to refuse it
                else:
                    self.assertEqual(r.process.wait(10), 1)
                r.socket.close()
        with Open(self) as r:
            self.assertEqual(r.ask(ALIVE, box), (0, 1))

    def test_noise(self):
        rng = random.Random(5)
        for _ in range(40):
            r = Relay(self.base)
            r.take(len(GREETING))
            with r.socket:
                kinds = [rng.choice((ASK, OPEN, BYTES, WINDOW, END, RESET, PING)) for _ in range(rng.randrange(8))]
                data = b"".join(frame(k, rng.randrange(4), rng.randbytes(rng.randrange(40))) for k in kinds)
                try:
                    r.socket.sendall(data + rng.randbytes(rng.randrange(30)))
                except OSError:
                    pass
            self.assertIn(r.process.wait(10), (0, 1))

    def test_it_lists_what_there_is_and_who_had_it_made(self):
        node, box, nobodys = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
        with Open(self) as r:
            self.assertEqual(r.ask(ENSURE, box, [node]), (0, 0))
            self.assertEqual(r.ask(ENSURE, box, [uuid.uuid4()]), (0, 0))  # it stays whose it is
            self.assertEqual(r.ask(ENSURE, nobodys), (0, 0))
            self.assertEqual(r.ask(LIST, uuid.UUID(int=0)), (0, 0))
            self.assertEqual(dict(line.split() for line in r.text.splitlines()),
                             {str(box): str(node), str(nobodys): "-"})
            for b in (box, nobodys):
                self.assertEqual(r.ask(BURY, b), (0, 0))
            self.assertEqual(r.ask(LIST, uuid.UUID(int=0)), (0, 0))
            self.assertEqual(r.text, "")

    def test_it_lists_any_number_part_by_part(self):
        ids = sorted(str(uuid.uuid4()) for _ in range(600))
        with Open(self) as r:
            for i in ids:
                os.mkdir(f"{self.base}/boxes/{i}")
            got, last, more = [], uuid.UUID(int=0), 1
            while more:
                code, more = r.ask(LIST, last)
                self.assertEqual(code, 0)
                got += [line.split()[0] for line in r.text.splitlines()]
                last = uuid.UUID(got[-1])
            self.assertEqual(got, ids)

    def test_one_that_cannot_be_looked_at_is_not_dead(self):
        box = uuid.uuid4()
        with Open(self) as r:
            self.assertEqual(r.ask(ENSURE, box), (0, 0))
            limits = resource.prlimit(r.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(r.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
            for want in (ALIVE, ENSURE, LIST):
                self.assertEqual(r.ask(want, box), (2, 0))
            resource.prlimit(r.process.pid, resource.RLIMIT_NOFILE, limits)
            self.assertEqual(r.ask(ALIVE, box), (0, 1))
            self.assertEqual(r.ask(BURY, box), (0, 0))
            self.assertEqual(r.ask(ALIVE, box), (0, 0))

    def test_many_questions_at_once(self):
        boxes = [uuid.uuid4() for _ in range(100)]
        with Open(self) as r:
            for i, box in enumerate(boxes):
                r.send(ASK, i + 1, bytes([BURY]) + box.bytes)
            answers = {}
            for _ in boxes:
                answer = r.next()
                answers[answer.channel] = struct.unpack(">H", answer.payload[:2])[0]
            self.assertEqual(set(answers), set(range(1, 101)))
            self.assertLessEqual(set(answers.values()), {0, 2})
            self.assertIn(0, answers.values())

    def test_no_descriptor_is_left_in_a_box(self):
        """The host sees the relay's end although boxes live on."""
        box = uuid.uuid4()
        r = Relay(self.base)
        r.take(len(GREETING))
        r.ask(ENSURE, box)
        r.process.kill()
        r.process.wait()
        self.assertEqual(r.socket.recv(1), b"")
        r.socket.close()
        wait_until(lambda: os.path.exists(f"{self.base}/boxes/{box}/box.sock"), "it lives")


    def exchange(self, box, session, offset, taken, data, wait=0):
        """One call of an exchange: status, bytes taken, offset, bytes."""
        call = struct.pack(">BQQQI", 1, session, offset, taken, wait) + data
        done = subprocess.run([BOX, "--exchange", "--dir", f"{self.base}/boxes/{box}"], input=base64.b64encode(call),
                              capture_output=True, timeout=30, check=True)
        word, _, text = done.stdout.partition(b":")
        self.assertEqual(word, b"berth-exchange")
        answer = base64.b64decode(text)
        version, *fields = struct.unpack(">BBQQ", answer[:18])
        self.assertEqual(version, 1)
        return *fields, answer[18:]

    def test_an_exchange(self):
        """Bytes that come again, in part or whole, behind a gap, in an older session."""
        box = uuid.uuid4()
        self.assertEqual(self.exchange(box, 1, 0, 0, b"")[0], 2)  # there is no box
        with Open(self) as r:
            r.ask(ENSURE, box)
        hello = frame(boxproto.HELLO, 0, b"BRTH" + struct.pack(">HH16sQ", 1, 1, bytes(16), 1))
        ping = frame(PING, 0, b"12345678")
        self.assertEqual(self.exchange(box, 5, 0, 0, hello[:20])[:2], (0, 20))
        self.assertEqual(self.exchange(box, 5, 0, 0, hello[:20])[:2], (0, 20))
        self.assertEqual(self.exchange(box, 5, 30, 0, b"x")[:2], (0, 20))
        _, taken, offset, welcome = self.exchange(box, 5, 5, 0, (hello + ping)[5:], wait=5000)
        self.assertEqual((taken, offset), (len(hello + ping), 0))
        while len(welcome) < 71:  # WELCOME and PONG
            welcome = self.exchange(box, 5, taken, 0, b"", wait=1000)[3]
        self.assertEqual(welcome[-8:], b"12345678")
        # Until they are acknowledged they come again, and then no more.
        self.assertEqual(self.exchange(box, 5, taken, 0, b"")[2:], (0, welcome))
        self.assertEqual(self.exchange(box, 5, taken, 10, b"")[2:], (10, welcome[10:]))
        self.assertEqual(self.exchange(box, 5, taken, len(welcome), b"")[2:], (len(welcome), b""))
        self.assertEqual(self.exchange(box, 4, 0, 0, b"")[0], 3)
        self.assertEqual(self.exchange(box, 6, 0, 0, b"")[:3], (0, 0, 0))
        self.assertEqual(self.exchange(box, 5, taken, 0, b"")[0], 3)
        # The box ends a connection that says nothing that it knows.
        status, told = 0, b""
        self.exchange(box, 7, 0, 0, b"\xff" * 12)
        while status == 0:
            status, _, _, told = self.exchange(box, 7, 12, 0, b"", wait=1000)
        self.assertEqual((status, told[4]), (1, boxproto.ERROR))


class Open:
    def __init__(self, test):
        self.test = test

    def __enter__(self):
        self.relay = Relay(self.test.base)
        self.test.assertEqual(self.relay.take(len(GREETING)), GREETING)
        return self.relay

    def __exit__(self, *_):
        self.test.assertEqual(self.relay.close(), 0)


if __name__ == "__main__":
    unittest.main()
