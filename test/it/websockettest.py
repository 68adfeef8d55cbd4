"""A WebSocket client for tests, made by hand so that it can also do what no client may."""

import base64
import contextlib
import hashlib
import json
import os
import socket
import struct
import threading

from berthtest import PATIENCE, RawConnection

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
# For daemons whose pings are awaited: a client has until the next one to answer, also on a busy machine.
PING_MS = {"BERTH_LIVE_PING_MS": str(round(300 * PATIENCE))}


class Refused(Exception):
    """The handshake was answered with something else than 101."""

    def __init__(self, response):
        super().__init__(response.status)
        self.response = response


class Reading(threading.Thread):
    """Reads until there is nothing more, and answers pings meanwhile: a WebSocket, or an event stream."""

    def __init__(self, reader):
        super().__init__(daemon=True)
        self.reader = reader
        self.start()

    def run(self):
        with contextlib.suppress(OSError, ValueError):  # when join() had enough
            while self.reader.next() is not None:
                pass
        self.reader.close()

    def join(self, timeout=20):
        """Signs of life come for ever: who is not told of the end is not to be waited for."""
        super().join(timeout * PATIENCE)
        if self.is_alive():
            self.reader.hang_up()
            super().join()
            raise AssertionError(f"not ended after {timeout * PATIENCE} s")


class WebSocket:
    """Connected once it is made. next() answers pings by itself and is None at the end, when `status` and
    `reason` say what the server's close said."""

    def __init__(self, daemon, path, headers=None, token=None, timeout=20, answer_pings=True):
        self.raw = RawConnection(daemon.address, timeout)
        self.answer_pings = answer_pings
        self.pings = 0
        self.status = self.reason = None
        key = base64.b64encode(os.urandom(16))
        fields = {"Host": f"{daemon.address[0]}:{daemon.address[1]}", "Connection": "Upgrade", "Upgrade": "websocket",
                  "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key.decode(), **(headers or {})}
        if token:
            fields["Authorization"] = f"Bearer {token}"
        self.raw.send(f"GET {path} HTTP/1.1\r\n" +
                      "".join(f"{k}: {v}\r\n" for k, v in fields.items() if v is not None) + "\r\n")
        try:
            self._handshake(key)
        except BaseException:
            self.close()
            raise

    def _handshake(self, key):
        line = self.raw.reader.readline()
        if not line.startswith(b"HTTP/1.1 101 "):
            raise Refused(self._refusal(line))
        headers = {}
        while (field := self.raw.reader.readline().strip()):
            name, _, value = field.partition(b":")
            headers[name.lower()] = value.strip()
        expected = base64.b64encode(hashlib.sha1(key + GUID).digest())
        assert headers[b"sec-websocket-accept"] == expected, headers
        assert headers[b"upgrade"].lower() == b"websocket", headers

    def _refusal(self, line):
        if not line:
            raise ConnectionResetError("no answer")
        reader = self.raw.reader

        class Again:  # the line that was read, then the rest
            first = [line]

            def readline(self, *args):
                return self.first.pop() if self.first else reader.readline(*args)

            def __getattr__(self, name):
                return getattr(reader, name)

        self.raw.reader = Again()
        answer = self.raw.response()
        self.raw.reader = reader
        return answer

    def send_frame(self, first, data=b"", mask=b"\x11\x22\x33\x44"):
        """first: the first byte as it is. Without a mask it is a frame that no client may send."""
        n = len(data)
        head = bytes([first])
        flag = 0x80 if mask else 0
        if n < 126:
            head += bytes([flag | n])
        elif n < 65536:
            head += bytes([flag | 126]) + struct.pack(">H", n)
        else:
            head += bytes([flag | 127]) + struct.pack(">Q", n)
        if mask:
            head += mask
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        self.raw.send(head + data)
        return self

    def send(self, text):
        return self.send_frame(0x80 | TEXT, text.encode() if isinstance(text, str) else text)

    def send_json(self, value):
        return self.send(json.dumps(value))

    def frame(self):
        """(kind, bytes), or None at the end of the stream."""
        head = self.raw.reader.read(2)
        if len(head) < 2:
            return None
        assert not head[1] & 0x80, "a server masks nothing"
        n = head[1] & 0x7F
        if n == 126:
            n = struct.unpack(">H", self.raw.reader.read(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.raw.reader.read(8))[0]
        data = self.raw.reader.read(n)
        return (head[0] & 0x0F, data) if len(data) == n else None

    def next(self):
        while (got := self.frame()) is not None:
            kind, data = got
            if kind == TEXT:
                return json.loads(data)
            if kind == PING:
                self.pings += 1
                if self.answer_pings:
                    self.send_frame(0x80 | PONG, data)
            elif kind == CLOSE:
                self.status = struct.unpack(">H", data[:2])[0] if data else None
                self.reason = data[2:].decode()
                return None
        return None

    def end_in_background(self):
        """Read to the end and hang up, as a client does; join() what is returned."""
        return Reading(self)

    def hang_up(self):
        """Whoever reads from it is told that it is over."""
        self.raw.sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.raw.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
