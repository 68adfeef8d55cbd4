"""Boxes behind a way that tests can cut: the daemon treats boxes of this machine as if they were elsewhere and reaches
them through a socket of ours (BERTH_TEST_BOX_RELAY, src/core/exec/box_route_test.h).

    class CutTest(FarTest):
        def test_it(self):
            self.way.cut_after = lambda: 1000      # bytes from the box, of each connection from now on
            self.way.down()                        # nobody is reached; up() again
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading

from berthtest import BINARIES
from exectest import ExecTest

BOX = os.environ.get("BERTH_BOX_BIN") or str(pathlib.Path(BINARIES["normal"]).parent / "berth-box")


def connect_box(folder):
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(f"/proc/self/fd/{at}/box.sock")
        except OSError:
            s.close()
            raise
        return s
    finally:
        os.close(at)


def read_line(s):
    line = b""
    while not line.endswith(b"\n"):
        byte = s.recv(1)
        if not byte:
            return None
        line += byte
    return os.fsdecode(line[:-1])


class Way:
    """What carries connections to boxes. `serve`, if set, is called with each connection in place of the box."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="way-"))
        self.path = str(self.folder / "s")
        self.base = str(self.folder / "base")
        self.cut_after = None
        self.serve = None
        self.cuts = 0
        self.connections = 0
        self._lock = threading.Lock()
        self._open = set()
        self._threads = []
        self._listener = None
        self.up()

    def up(self):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._thread(self._accept, self._listener)

    def down(self):
        listener, self._listener = self._listener, None
        os.unlink(self.path)
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        self.cut()

    def cut(self):
        with self._lock:
            for s in self._open:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def close(self):
        if self._listener:
            self.down()
        for t in self._threads:
            t.join(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _thread(self, fn, *args):
        t = threading.Thread(target=fn, args=args)
        self._threads.append(t)
        t.start()

    def _accept(self, listener):
        while True:
            try:
                near = listener.accept()[0]
            except OSError:
                return
            self._thread(self._carry, near)

    def _carry(self, near):
        with near, contextlib.suppress(OSError):
            with self._lock:
                self._open.add(near)
            try:
                folder = read_line(near)
                if folder is None:
                    return
                self.connections += 1
                if self.serve:
                    self.serve(near)
                    return
                if not folder:
                    self._relay(near)
                    return
                with connect_box(folder) as far:
                    self._pump(near, far)
            finally:
                with self._lock:
                    self._open.discard(near)

    def _relay(self, near):
        """A relay of its own for the connection, with its end at the other side of one that can be cut."""
        far, theirs = socket.socketpair()
        with far:
            with theirs:
                relay = subprocess.Popen([BOX, "--relay", "--dir", self.base], stdin=theirs, stdout=theirs)
            try:
                self._pump(near, far)
            finally:
                far.close()
                assert relay.wait(10) == 0, "the relay ends with its host"

    def _pump(self, near, far):
        def out():
            with contextlib.suppress(OSError):
                while data := near.recv(65536):
                    far.sendall(data)
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
        other = threading.Thread(target=out)
        other.start()
        left = self.cut_after() if self.cut_after else None
        try:
            while left is None or left > 0:
                data = far.recv(65536 if left is None else min(left, 65536))
                if not data:
                    return
                near.sendall(data)
                if left is not None:
                    left -= len(data)
            self.cuts += 1
        finally:
            for s in (near, far):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
            other.join()


class FarTest(ExecTest):
    daemon_binary = "faults"
    through_a_relay = False

    def setUp(self):
        self.way = Way()
        self.addCleanup(self.way.close)
        self.daemon_env = {**self.daemon_env, "BERTH_TEST_BOX_RELAY": self.way.path}
        if self.through_a_relay:
            self.daemon_env["BERTH_TEST_BOX_MUX"] = "1"
        super().setUp()

    def boxes_dir(self):
        return pathlib.Path(self.way.base) / "boxes" if self.through_a_relay else self.daemon.data / "boxes"
