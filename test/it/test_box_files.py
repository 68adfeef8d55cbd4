"""Connections that the host makes to the box's file service (box protocol, section 7): the box alone, against a host in
python, which speaks to the worker in blocks that are not compressed."""

import os
import pathlib
import signal
import struct
import tempfile
import unittest

from berthtest import wait_until
from boxproto import (ACCEPT, BYTES, CONNECT, END, ERROR, EXIT, FILES, FROM_HOST, NO_LIMIT, RESET, STOP, Box, Closed,
                      parse_error, process_lives, string)
from sandboxproto import AGENT, Sandbox, first_id, inside

REFUSED, LIMIT = 2, 5
HELLO, TREE, DIR, FILE, MODE, FINISH = 1, 2, 7, 11, 9, 20
MAKE_ROOT = 1


def message(kind, payload=b""):
    return struct.pack(">IBI", len(payload), kind, 0) + payload


def hello():
    return message(HELLO, struct.pack(">II", 0, 1))


def tree(root):
    return message(TREE, string("") + string(root) + bytes([MAKE_ROOT]))


def put(path, content, mode=0o644):
    return message(FILE, string(path) + struct.pack(">IQ", mode, 10 ** 18) + bytes(32) + content)


class Worker:
    """One connection of the host."""

    def __init__(self, host, number=1, service=FILES):
        self.host, self.channel, self.sent = host, FROM_HOST | number, 0
        host.send(CONNECT, self.channel, struct.pack(">BQ", service, NO_LIMIT))
        self.answer = host.wait(self.channel)
        # The beginning of a zstd stream with a window of a megabyte.
        self.begun = False

    def bytes(self, data):
        self.host.send(BYTES, self.channel, struct.pack(">Q", self.sent) + data)
        self.sent += len(data)

    def say(self, *messages):
        data = b"".join(messages)
        block = struct.pack("<I", len(data) << 3)[:3] + data
        self.bytes((b"" if self.begun else b"\x28\xb5\x2f\xfd\x00\x50") + block)
        self.begun = True

    def end(self):
        self.host.send(END, self.channel, struct.pack(">Q", self.sent))

    def reset(self):
        self.host.send(RESET, self.channel, bytes([1]))


def workers(box):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            args = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if b"--files" in args and parent == box.pid:
            found.append(int(path.name))
    return found


class FilesTest(unittest.TestCase):
    flags = ()

    def setUp(self):
        self.box = Box(self, *self.flags)
        self.host = self.box.connect()
        folder = tempfile.TemporaryDirectory(prefix="files-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "made"

    def worker(self, number=1):
        w = Worker(self.host, number)
        self.assertEqual(w.answer.type, ACCEPT)
        wait_until(lambda: len(workers(self.box)) >= 1, "a worker")
        return w

    def gone(self):
        wait_until(lambda: workers(self.box) == [], "the worker has ended")

    def test_the_feature_is_announced(self):
        self.assertTrue(self.host.welcome.features & 4)

    def test_a_worker_makes_files(self):
        w = self.worker()
        w.say(hello(), tree(str(self.root)), put("a", b"content", 0o640))
        wait_until(lambda: (self.root / "a").exists() and (self.root / "a").read_bytes() == b"content", "the file")
        self.assertEqual((self.root / "a").stat().st_mode & 0o777, 0o640)
        w.end()
        self.assertEqual(self.host.wait(w.channel, END, RESET).type, END)
        self.gone()
        self.worker(2)

    def test_a_reset_kills_it(self):
        w = self.worker()
        pid = workers(self.box)[0]
        os.kill(pid, signal.SIGSTOP)
        w.reset()
        wait_until(lambda: not process_lives(pid), "the worker is dead")

    def test_a_worker_that_dies_is_told(self):
        w = self.worker()
        os.kill(workers(self.box)[0], signal.SIGKILL)
        self.assertIn(self.host.wait(w.channel, END, RESET).type, (END, RESET))

    def test_a_host_that_goes(self):
        self.worker()
        self.host.close()
        self.gone()
        self.host = self.box.connect(epoch=2)
        self.worker()

    def test_what_is_refused(self):
        self.assertEqual(Worker(self.host, 1, service=9).answer.payload, bytes([REFUSED]))
        for number in range(2, 10):
            self.worker(number)
        refused = Worker(self.host, 10)
        self.assertEqual((refused.answer.type, refused.answer.payload), (RESET, bytes([LIMIT])))
        with self.assertRaises(Closed):
            self.host.send(CONNECT, FROM_HOST | 12, struct.pack(">BQ", FILES, NO_LIMIT))
            while True:
                f = self.host.next()
                if f.type == ERROR:
                    self.assertEqual(parse_error(f.payload)[0], 3)
        self.gone()

    def test_a_channel_without_the_bit(self):
        self.host.send(CONNECT, 1, struct.pack(">BQ", FILES, NO_LIMIT))
        with self.assertRaises(Closed):
            while True:
                self.host.next()

    def test_garbage_ends_the_worker_and_nothing_else(self):
        w = self.worker()
        w.bytes(os.urandom(1000))
        self.host.wait(w.channel, END, RESET)
        w.end()
        self.gone()
        self.host.ping()

    def test_commands_that_end_leave_it_alone(self):
        w = self.worker()
        pid = workers(self.box)[0]
        channel = self.host.start("sh", ["-c", "sleep 1000 & exit 0"])
        self.host.wait(channel, EXIT)
        self.assertTrue(process_lives(pid))
        w.say(hello(), tree(str(self.root)))
        wait_until(self.root.exists, "the directory")

    def test_stop_ends_it(self):
        self.worker()
        pid = workers(self.box)[0]
        self.host.send(STOP, 0, struct.pack(">I", 100))
        wait_until(lambda: not process_lives(pid) and not process_lives(self.box.pid), "everything has ended")


class FilesWithoutCgroupTest(FilesTest):
    flags = ("--kill", "subreaper")


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class SandboxFilesTest(unittest.TestCase):
    def test_a_worker_has_the_rights_of_a_command(self):
        box = Sandbox(self)
        host = box.connect()
        before = set(inside(box))
        w = Worker(host)
        self.assertEqual(w.answer.type, ACCEPT)
        w.say(hello(), tree("/tmp/made"), put("a", b"content"))
        out, _, end = host.run_shell("until test -s /tmp/made/a; do sleep 0.01; done; cat /tmp/made/a;"
                                     "stat -c %u /tmp/made/a")
        self.assertEqual((out, end.code), (f"content{AGENT}\n".encode(), 0))
        pid = next(iter(p for p in inside(box) if p not in before))
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        self.assertIn(f"Uid:\t{first_id() + AGENT}\t{first_id() + AGENT}\t{first_id() + AGENT}", status)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertIn(f"{name}:\t0000000000000000", status)
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("Seccomp:\t2", status)
        w.say(tree("/tmp"))  # a second one is an error
        host.wait(w.channel, END, RESET)
        w.end()
        wait_until(lambda: not process_lives(pid), "the worker has ended")


if __name__ == "__main__":
    unittest.main()
