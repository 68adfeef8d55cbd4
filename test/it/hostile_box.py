"""A box, its file worker and the relay in front of it that break the box protocol (docs/box-protocol.md) where a test tells
them to, and keep to it otherwise.

    class ExecTest(HostileTest):
        def test_exit_twice(self):
            self.breach(Break(bp.ACK, lambda link, channel: EXIT_FRAME(channel) * 2))

The daemon reaches this peer instead of boxes (relaytest.Way.serve, with BERTH_TEST_BOX_MUX): every byte that it hears is
written here. `Break.when` is the type of the frame from the daemon at which it happens, once; the answer that an honest
box gives is sent before it (`after`), or left out.
"""

import collections
import os
import random
import struct
import threading
import time

import boxproto as bp
from berthtest import ident, wait_until
from relaytest import FarTest

RELAY, ASK, ANSWER = 64, 65, 66
ENSURE, ALIVE, BURY = 1, 2, 3
CREDIT = 256 << 10
FEATURES = 31
MAX64 = (1 << 64) - 1
NOT_KEPT = "does not keep to the protocol"


def now_ms():
    return int(time.time() * 1000)


def welcome(version=1, features=FEATURES, pid=4242, kill=3, limit=1 << 26, executions=0):
    return bp.frame(bp.WELCOME, 0, struct.pack(">HI16sIBQI", version, features, bytes(16), pid, kill, limit, executions))


def started(channel, pid=42, at=None, kill=3):
    return bp.frame(bp.STARTED, channel, struct.pack(">IQB", pid, now_ms() if at is None else at, kill))


def failed(channel, code=6, text="no such command"):
    return bp.frame(bp.FAILED, channel, struct.pack(">H", code) + bp.string(text))


def error(channel, code=4, text="no such execution"):
    return bp.frame(bp.ERROR, channel, struct.pack(">H", code) + bp.string(text))


def exit_fields(code=0, signal=0, flags=0, at=None, out=0, err=0):
    return struct.pack(">iBBQQQ", code, signal, flags, now_ms() if at is None else at, out, err)


def exited(channel, **fields):
    return bp.frame(bp.EXIT, channel, exit_fields(**fields))


def state(channel, exec_id, kind=1, pid=42, at=None, stdin=0, out=0, err=0, exit=None):
    payload = exec_id + struct.pack(">BIQQQQ", kind, pid, now_ms() if at is None else at, stdin, out, err)
    return bp.frame(bp.STATE, channel, payload + ((exit or exit_fields()) if kind == 2 else b""))


def data(channel, offset, content, stream=1):
    return bp.frame(bp.DATA, channel, struct.pack(">BQ", stream, offset) + content)


def grew(channel, length, stream=1):
    return bp.frame(bp.GREW, channel, struct.pack(">BQ", stream, length))


def taken(channel, upto, limit):
    return bp.frame(bp.TAKEN, channel, struct.pack(">QQ", upto, limit))


def listed(count=0):
    return bp.frame(bp.LISTED, 0, struct.pack(">I", count))


def number(kind, channel, value):
    """PING, PONG, ACCEPT, WINDOW, END: one number of 64 bits."""
    return bp.frame(kind, channel, struct.pack(">Q", value))


def listening(listener, port=3128, code=0, text=""):
    return bp.frame(bp.LISTENING, 0, listener + struct.pack(">HH", port, code) + bp.string(text))


def opened(channel, listener, limit=CREDIT):
    return bp.frame(bp.OPEN, channel, listener + struct.pack(">Q", limit))


def carried(channel, offset, content):
    return bp.frame(bp.BYTES, channel, struct.pack(">Q", offset) + content)


def reset(channel, reason=1):
    return bp.frame(bp.RESET, channel, bytes([reason]))


def answer(channel, code=0, value=0, text=""):
    return bp.frame(ANSWER, channel, struct.pack(">HB", code, value) + bp.string(text))


# The file worker: one zstd stream of messages. Blocks that are not compressed need no library.

ZSTD_BEGIN = struct.pack("<I", 0xFD2FB528) + bytes([0x00, 0x50])
HELLO, TREE, READY, SCAN, MANIFEST, SCANNED = range(1, 7)
FILE, BIG, CHUNKS_ARE, WANT, DATA, BIG_END, DONE, GET, GONE, FINISH, FINISHED, FAIL, CLEAR, STILL_ALIVE = range(11, 25)
EMPTY_TREE = b"BTREE\0\0\1" + b"\0" + b"\0"


def block(content):
    out = b""
    for at in range(0, len(content), 60000):
        piece = content[at:at + 60000]
        out += struct.pack("<I", len(piece) << 3)[:3] + piece
    return out


def message(kind, payload=b"", slot=0):
    return struct.pack(">IBI", len(payload), kind, slot) + payload


HELLO_MESSAGE = message(HELLO, struct.pack(">II", 0o22, 1))


class Break:
    """What is said instead of, or after, the honest answer to a frame."""

    def __init__(self, when, say, after=False):
        self.when, self.say, self.after = when, say, after


class Link:
    """One stream to a box: what the daemon says comes in pieces, what is said goes out as BYTES of the relay."""

    def __init__(self, host, channel, box_id, limit):
        self.host, self.channel, self.box_id = host, channel, box_id
        self.limit = limit  # of what may be sent
        self.buffer = bytearray()
        self.sent = self.got = 0
        self.listener = None
        self.connects = {}  # channel of a service: how much was sent on it
        self.channels = {}  # channel: execution
        self.sending = threading.Lock()  # a test may speak from a thread of its own

    def send(self, content):
        with self.sending:
            self.send_pieces(content)

    def send_pieces(self, content):
        for at in range(0, len(content), 32768):
            piece = content[at:at + 32768]
            while self.sent + len(piece) > self.limit and self.channel in self.host.links:
                self.host.hold_next()
            self.host.send(carried(self.channel, self.sent, piece))
            self.sent += len(piece)

    def feed(self, content):
        self.buffer += content
        while len(self.buffer) >= 12:
            length, kind, _, _, channel = struct.unpack(">IBBHI", self.buffer[:12])
            if len(self.buffer) < 12 + length:
                return
            payload = bytes(self.buffer[12:12 + length])
            del self.buffer[:12 + length]
            self.host.box.hear(self, kind, channel, payload)

    def worker(self, channel, content):
        """Bytes of a file worker on one of the connections that the daemon made."""
        for at in range(0, len(content), 32768):
            piece = content[at:at + 32768]
            self.send(carried(channel, self.connects[channel], piece))
            self.connects[channel] += len(piece)


class Box:
    """What survives a link: the executions, and what is to be broken next."""

    def __init__(self):
        self.execs = {}  # id: "running" or "ended"
        self.next = None  # a Break
        self.broken = self.heard = 0
        self.noise = None  # (link, kind, channel, payload) -> bytes, after each frame
        self.ends = True  # executions end by themselves
        self.stopped = set()  # boxes that are no more
        self.reset = 0  # links that the daemon ended

    def hear(self, link, kind, channel, payload):
        self.heard += 1
        at, self.next = (self.next, None) if self.next and self.next.when == kind else (None, self.next)
        if not at or at.after:
            self.answer(link, kind, channel, payload)
        elif kind == bp.START:
            self.execs[payload[:16]] = "running"
            link.channels[channel] = payload[:16]
        elif kind == bp.CONNECT:
            link.connects[channel] = 0
        if at:
            self.broken += 1
            if kind == bp.LISTEN:
                link.listener = payload[:16]
            link.send(at.say(link, channel))
        if self.noise:
            link.send(self.noise(link, kind, channel, payload))

    def answer(self, link, kind, channel, payload):
        say = getattr(self, f"on_{kind}", None)
        if say:
            say(link, channel, payload)

    def end(self, link, channel):
        exec_id = link.channels.get(channel)
        if exec_id in self.execs:
            self.execs[exec_id] = "ended"
            link.send(exited(channel))

    def on_1(self, link, channel, payload):  # HELLO
        link.send(welcome())

    def on_3(self, link, channel, payload):  # PING
        link.send(bp.frame(bp.PONG, 0, payload))

    def on_5(self, link, channel, payload):  # LIST
        for exec_id, kind in self.execs.items():
            link.send(state(0, exec_id, 2 if kind == "ended" else 1))
        link.send(listed(len(self.execs)))

    def on_8(self, link, channel, payload):  # STOP
        link.send(bp.frame(bp.STOPPED))
        link.host.send(number(bp.END, link.channel, link.sent))
        link.host.links.pop(link.channel, None)
        self.stopped.add(link.box_id)

    def on_16(self, link, channel, payload):  # START
        if payload[:16] in self.execs:
            self.on_18(link, channel, payload)
            return
        self.execs[payload[:16]] = "running"
        link.channels[channel] = payload[:16]
        link.send(started(channel))

    def on_18(self, link, channel, payload):  # ATTACH
        exec_id = payload[:16]
        if exec_id not in self.execs:
            link.send(error(channel))
            return
        link.channels[channel] = exec_id
        link.send(state(channel, exec_id, 2 if self.execs[exec_id] == "ended" else 1))

    def on_22(self, link, channel, payload):  # ACK: the streams are open
        if payload[0] == bp.STDERR and self.ends:
            self.end(link, channel)

    def on_25(self, link, channel, payload):  # SIGNAL
        self.end(link, channel)

    def on_28(self, link, channel, payload):  # FORGET
        self.execs.pop(link.channels.pop(channel, None), None)

    def on_48(self, link, channel, payload):  # LISTEN
        link.listener = payload[:16]
        link.send(listening(link.listener))

    def on_57(self, link, channel, payload):  # CONNECT
        link.connects[channel] = 0
        link.send(number(bp.ACCEPT, channel, 1 << 40))


class Relay:
    """Called with each connection of the daemon (Way.serve)."""

    def __init__(self):
        self.box = Box()
        self.next = None  # a Break of the relay's own frames
        self.broken = self.heard = 0
        self.noise = None
        self.credit = 1 << 40  # for what the daemon sends on a stream
        self.lock = threading.Lock()

    def __call__(self, near):
        with self.lock:  # one daemon has one connection at a time
            Carrier(self, near).run()


class Carrier:
    def __init__(self, relay, near):
        self.relay, self.near = relay, near
        self.box = relay.box
        self.links = {}
        self.held = collections.deque()

    def send(self, content):
        self.near.sendall(content)

    def take(self, n):
        content = b""
        while len(content) < n:
            more = self.near.recv(n - len(content))
            if not more:
                raise OSError("gone")
            content += more
        return content

    def read(self):
        length, kind, _, _, channel = struct.unpack(">IBBHI", self.take(12))
        payload = self.take(length)
        if kind == bp.WINDOW and channel in self.links:
            self.links[channel].limit = struct.unpack(">Q", payload)[0]
        elif kind in (bp.RESET, bp.END):
            self.box.reset += self.links.pop(channel, None) is not None
        return kind, channel, payload

    def hold_next(self):
        """Credit is awaited: what comes meanwhile is dealt with later."""
        self.held.append(self.read())

    def run(self):
        self.send(bp.frame(RELAY, 0, b"BRLY" + struct.pack(">H", 1)))
        while True:
            kind, channel, payload = self.held.popleft() if self.held else self.read()
            self.relay.heard += 1
            at = self.relay.next if self.relay.next and self.relay.next.when == kind else None
            if at:
                self.relay.next = None
            if not at or at.after:
                self.answer(kind, channel, payload)
            if at:
                self.relay.broken += 1
                self.send(at.say(self, channel))
            if self.relay.noise:
                self.send(self.relay.noise(self, kind, channel, payload))

    def answer(self, kind, channel, payload):
        if kind == bp.PING:
            self.send(bp.frame(bp.PONG, 0, payload))
        elif kind == ASK:
            want, box_id = payload[0], payload[1:17]
            if want == BURY:
                self.box.execs.clear()
                self.box.stopped.add(box_id)
            if want == ENSURE:
                self.box.stopped.discard(box_id)
            self.send(answer(channel, 0, int(want == ALIVE and box_id not in self.box.stopped)))
        elif kind == bp.OPEN:
            self.links[channel] = Link(self, channel, *struct.unpack(">16sQ", payload))
            self.send(number(bp.ACCEPT, channel, self.relay.credit))
        elif kind == bp.BYTES and channel in self.links:
            link = self.links[channel]
            link.got += len(payload) - 8
            self.send(number(bp.WINDOW, channel, self.relay.credit + link.got))
            link.feed(payload[8:])


class HostileTest(FarTest):
    """Every lease is in the hands of self.relay."""

    through_a_relay = True

    def setUp(self):
        self.relay = Relay()
        self.box = self.relay.box
        super().setUp()

    def make_lease(self):
        self.way.serve = self.relay
        super().make_lease()

    def complaints(self):
        """How often the daemon has ended a link. Its log says why, but for what it says too often."""
        return self.box.reset

    def honest(self):
        self.box.next = self.box.noise = self.relay.next = self.relay.noise = None
        self.box.ends = True

    def breach(self, at, status="exited", **request):
        """One command during which the box breaks the protocol once. The link ends, with a text; the next one is honest, and
        the command ends as it would have: it is never taken for gone."""
        before, broken = self.complaints(), self.box.broken
        self.box.next = at
        if at.when in (bp.HELLO, bp.LIST, bp.LISTEN):
            self.way.cut()
        got = self.execute("/bin/true", detach=True, **request)
        exec_id = got.json["execId"] if got.status == 202 else got.json["details"]["execId"]
        wait_until(lambda: self.box.broken > broken, "the box has broken the protocol")
        wait_until(lambda: self.complaints() > before, "the daemon ends the link")
        row = self.ended(exec_id)
        self.assertEqual(row["status"], status, row)
        self.assertTrue(self.daemon.running())
        return row

    def tolerated(self, at, status="exited"):
        """The same for what may happen: nothing is said and the link goes on."""
        before, links = self.complaints(), max(self.way.connections, 1)
        self.box.next = at
        row = self.ended(self.detach("true"))
        self.assertEqual(row["status"], status, row)
        self.assertEqual(self.complaints(), before)
        self.assertEqual(self.way.connections, links)

    def meanwhile(self, peer, frames, n, request):
        """`n` times `request` at once, until the peer, which is hostile, has heard so many frames; then it is honest, and
        every request gets its answer."""
        upto = peer.heard + frames
        threads = [threading.Thread(target=request) for _ in range(n)]
        for t in threads:
            t.start()
        wait_until(lambda: peer.heard >= upto or not any(t.is_alive() for t in threads), "the peer was talked to")
        self.honest()
        for t in threads:
            t.join(60)
            self.assertFalse(t.is_alive(), "a request is answered")
        opened = "SELECT id FROM executions WHERE status IN ('starting', 'running')"
        wait_until(lambda: not self.daemon.sql(opened), "every execution has its end", 60)
        self.assertTrue(self.daemon.running())

    def tearDown(self):
        self.honest()
        super().tearDown()


# Anything at all, for the rounds with a fixed seed.

def some64(dice):
    return dice.choice([0, 1, 2, 100, 4095, 4096, 65535, 1 << 20, (1 << 32) - 1, 1 << 32, (1 << 62) - 1, 1 << 62, (1 << 63) - 1,
                        1 << 63, MAX64, dice.getrandbits(64), dice.randrange(2000), now_ms()])


def some_exit(dice):
    return struct.pack(">iBBQQQ", dice.choice([0, -1, 5, -2, 1 << 30]), dice.choice([0, 9, 64, 65, 255]),
                       dice.choice([0, 1, 2, 4, 7, 8, 255]), some64(dice), some64(dice), some64(dice))


def some_frame(dice, link):
    """A frame of the box, well-formed in nine of ten, with channels and ids that mean something."""
    ids = list(link.channels.values()) + list(link.host.box.execs) + [dice.randbytes(16)]
    c = dice.choice([*link.channels, *link.channels, 0, 1, dice.getrandbits(32)])
    s = dice.choice([*link.connects, *link.connects, 1, 2, 3, 0x80000001, dice.getrandbits(32)])
    listener = dice.choice([link.listener or bytes(16), dice.randbytes(16)])
    makers = [
        lambda: started(c, dice.getrandbits(32), some64(dice), dice.randrange(5)),
        lambda: state(dice.choice([0, c]), dice.choice(ids), dice.choice([1, 2]), dice.getrandbits(32), some64(dice),
                      some64(dice), some64(dice), some64(dice), some_exit(dice)),
        lambda: data(c, dice.choice([0, some64(dice)]), dice.randbytes(dice.choice([0, 1, 10, 4000, 60000])),
                     dice.choice([1, 1, 2, 3])),
        lambda: grew(c, some64(dice), dice.choice([1, 2, 3])),
        lambda: taken(c, some64(dice), some64(dice)),
        lambda: bp.frame(bp.EXIT, c, some_exit(dice)),
        lambda: failed(c, dice.randrange(14), "x" * dice.choice([0, 10, 600])),
        lambda: error(dice.choice([0, c]), dice.randrange(14), "x" * dice.choice([0, 10, 600])),
        lambda: listed(dice.choice([0, 1, 2, (1 << 32) - 1])),
        lambda: number(dice.choice([bp.PING, bp.PONG]), 0, dice.choice([c, some64(dice)])),
        lambda: listening(listener, *dice.choice([(4000, 0), (0, 11), (0, 0), (1, 1)])),
        lambda: opened(dice.choice([s, 1, 2, 3]), listener, some64(dice)),
        lambda: number(dice.choice([bp.ACCEPT, bp.WINDOW, bp.END]), s, some64(dice)),
        lambda: carried(s, dice.choice([link.connects.get(s, 0), some64(dice)]), dice.randbytes(dice.choice([1, 20, 50000]))),
        lambda: carried(s, 0, b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n"),
        lambda: reset(s, dice.randrange(8)),
        lambda: bp.frame(bp.STOPPED),
        lambda: welcome(dice.choice([1, 1, 2]), dice.getrandbits(32), dice.getrandbits(32), dice.randrange(5), some64(dice)),
        lambda: bp.frame(dice.choice([bp.EXIT, bp.STARTED, bp.STATE, bp.TAKEN, bp.WINDOW, dice.randrange(256)]), c,
                         dice.randbytes(dice.randrange(60))),
    ]
    return dice.choice(makers)()


def some_relay_frame(dice, carrier):
    c = dice.choice([*carrier.links, 1, 2, 3, 0, dice.getrandbits(32)])
    makers = [
        lambda: answer(c, dice.randrange(5), dice.randrange(3), "x" * dice.choice([0, 10, 600])),
        lambda: number(dice.choice([bp.PING, bp.PONG]), dice.choice([0, c]), some64(dice)),
        lambda: number(dice.choice([bp.ACCEPT, bp.WINDOW, bp.END]), c, some64(dice)),
        lambda: carried(c, dice.choice([0, some64(dice)]), dice.randbytes(dice.choice([1, 30, 50000]))),
        lambda: reset(c, dice.randrange(8)),
        lambda: bp.frame(RELAY, 0, b"BRLY" + struct.pack(">H", 1)),
        lambda: opened(c, dice.randbytes(16), some64(dice)),
        lambda: bp.frame(dice.randrange(256), c, dice.randbytes(dice.randrange(60))),
    ]
    return dice.choice(makers)()


def some_message(dice):
    """A message of the file worker, in the bytes of its stream."""
    payload = dice.choice([b"", struct.pack(">II", 0o22, 1), EMPTY_TREE, bytes(32), dice.randbytes(dice.randrange(100)),
                           struct.pack(">IIqQB", 0, 0o644, 0, some64(dice), 0) + bytes(32), bp.string("why")])
    return message(dice.randrange(1, 25), payload, dice.choice([0, 0, 1, 7, 255, 256, (1 << 32) - 1]))


def rounds(default):
    """How many rounds with random frames: TEST_HOSTILE_ROUNDS makes it more."""
    return int(os.environ.get("TEST_HOSTILE_ROUNDS", default))


def seeds(first, default):
    """A seed for each round."""
    return range(first, first + rounds(default))


def dice_for(seed):
    return random.Random(seed)


def workspace_path(lease, tail):
    return f"/api/environment-leases/{ident(lease)}/workspace{tail}"
