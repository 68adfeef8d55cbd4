"""The tunnel of the box protocol, section 8: the box alone, against a host in python."""

import os
import pathlib
import queue
import socket
import struct
import subprocess
import threading
import unittest
import uuid

from boxproto import (ACCEPT, BYTES, CALLBACK, DATA, END, ERROR, EXIT, LISTEN, NO_LIMIT, OPEN, PROXY, RESET, STARTED,
                      STDOUT, UNLISTEN, WINDOW, Box, Closed, parse_data, parse_error, parse_exit)

RING = 256 << 10
CONNS = 256
PROXY_CONNS = 192
FULL, IN_USE = 5, 11
BY_PEER, REFUSED, IDLE, UNLISTENED = 1, 2, 3, 4


class TunnelTest(unittest.TestCase):
    def setUp(self):
        self.box = Box(self)
        self.host = self.box.connect()

    def client(self, port):
        sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.addCleanup(sock.close)
        return sock

    def open(self, **more):
        """A listener, a client of it and the client's channel."""
        limit = more.pop("limit", NO_LIMIT)
        _, port = self.host.listen(**more)
        sock = self.client(port)
        return sock, self.host.accept(limit), port

    def assert_reset(self, sock):
        with self.assertRaises(ConnectionResetError):
            while sock.recv(65536):
                pass
            raise AssertionError("ended without a reset")

    def assert_connection_fails(self, host, text):
        with self.assertRaises(Closed):
            while True:
                f = host.next()
                if f.type == ERROR:
                    self.assertEqual(parse_error(f.payload)[0], 3)
                    self.assertIn(text, parse_error(f.payload)[1])

    def memory_kb(self):
        status = pathlib.Path(f"/proc/{self.box.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])


class ListenTest(TunnelTest):
    def test_the_feature_is_announced(self):
        self.assertTrue(self.host.welcome.features & 8)

    def test_any_port_or_a_given_one(self):
        listener, port = self.host.listen()
        self.assertGreater(port, 0)
        self.host.send(UNLISTEN, 0, listener.bytes)
        _, again = self.host.listen(port=port)
        self.assertEqual(again, port)

    def test_listening_twice_is_listening_once(self):
        listener, port = self.host.listen()
        self.assertEqual(self.host.listen(listener), (listener, port))

    def test_a_port_in_use(self):
        _, port = self.host.listen()
        self.assertEqual(self.host.listen(port=port), (IN_USE, 0))

    def test_too_many_listeners(self):
        listeners = [self.host.listen()[0] for _ in range(64)]
        self.assertEqual(self.host.listen(), (FULL, 0))
        self.host.send(UNLISTEN, 0, listeners[5].bytes)
        self.assertGreater(self.host.listen()[1], 0)

    def test_only_loopback(self):
        _, port = self.host.listen()
        lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()
        self.assertTrue([line for line in lines if f"0100007F:{port:04X} 00000000:0000 0A" in line])
        self.assertFalse([line for line in lines if f"00000000:{port:04X} 00000000:0000 0A" in line])

    def test_unlisten_resets_connections_and_frees_the_port(self):
        listener, port = self.host.listen()
        sock = self.client(port)
        channel = self.host.accept()
        self.host.send(UNLISTEN, 0, listener.bytes)
        self.assertEqual(self.host.wait(channel, RESET).payload, bytes([UNLISTENED]))
        self.assert_reset(sock)
        with self.assertRaises(ConnectionRefusedError):
            self.client(port)

    def test_unlisten_of_nothing_is_nothing(self):
        self.host.send(UNLISTEN, 0, uuid.uuid4().bytes)
        self.host.ping()

    def test_stopping_ends_it(self):
        sock, _, port = self.open()
        self.host.stop()
        self.assert_reset(sock)
        with self.assertRaises(ConnectionRefusedError):
            self.client(port)


class StreamTest(TunnelTest):
    def test_bytes_both_ways_and_half_closing(self):
        sock, channel, _ = self.open()
        sock.sendall(b"question")
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(self.host.read_tunnel(channel), b"question")
        self.host.bytes(channel, 0, b"ans")
        self.host.bytes(channel, 3, b"wer")
        self.host.end(channel, 6)
        self.assertEqual(sock.makefile("rb").read(), b"answer")
        # Over on both sides: what is sent late is dropped, and the channel is no other connection's.
        self.host.window(channel, NO_LIMIT)
        self.host.ping()

    def test_the_host_ends_first(self):
        sock, channel, _ = self.open()
        self.host.end(channel, 0)
        self.assertEqual(sock.recv(1), b"")
        sock.sendall(b"still here")
        sock.close()
        self.assertEqual(self.host.read_tunnel(channel), b"still here")

    def test_nothing_is_read_before_accept(self):
        _, port = self.host.listen()
        sock = self.client(port)
        sock.sendall(b"early")
        channel, _, limit = self.host.offered()
        self.assertEqual(limit, RING)
        self.host.ping()
        self.assertEqual([f for f in self.host.kept if f.type == BYTES], [])
        self.host.send(ACCEPT, channel, struct.pack(">Q", 3))
        self.assertEqual(self.host.read_tunnel(channel, 3), b"ear")
        self.host.ping()
        self.assertEqual([f for f in self.host.kept if f.type == BYTES], [])
        self.host.window(channel, 100)
        self.assertEqual(self.host.read_tunnel(channel, 2, at=3), b"ly")

    def test_refusing(self):
        _, port = self.host.listen()
        sock = self.client(port)
        channel, _, _ = self.host.offered()
        self.host.send(RESET, channel, bytes([REFUSED]))
        self.assert_reset(sock)

    def test_a_reset_from_inside(self):
        sock, channel, _ = self.open()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        self.assertEqual(self.host.wait(channel, RESET).payload, bytes([BY_PEER]))

    def test_a_reset_from_inside_without_credit(self):
        sock, channel, _ = self.open(limit=0)
        sock.sendall(b"x" * 1000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        self.assertEqual(self.host.wait(channel, RESET).payload, bytes([BY_PEER]))

    def test_a_reset_from_the_host(self):
        sock, channel, _ = self.open()
        self.host.bytes(channel, 0, b"half an ans")
        self.host.send(RESET, channel, bytes([BY_PEER]))
        self.assert_reset(sock)

    def test_idle_connections_are_reset(self):
        sock, channel, _ = self.open(idle=30)
        self.assertEqual(self.host.wait(channel, RESET).payload, bytes([IDLE]))
        self.assert_reset(sock)

    def test_large_transfers_both_ways_at_once(self):
        size = 16 << 20
        sock, channel, _ = self.open(limit=1 << 20)
        up, down = os.urandom(size), os.urandom(size)
        got = bytearray()

        def inside():
            sender = threading.Thread(target=lambda: (sock.sendall(up), sock.shutdown(socket.SHUT_WR)), daemon=True)
            sender.start()
            while chunk := sock.recv(65536):
                got.extend(chunk)
            sender.join()

        # A host that only writes while the box only writes would wait for ever, so writing has a thread of its own.
        frames, write = queue.SimpleQueue(), self.host.raw
        self.host.raw = frames.put
        writer = threading.Thread(target=lambda: [write(f) for f in iter(frames.get, None)], daemon=True)
        client = threading.Thread(target=inside, daemon=True)
        writer.start()
        client.start()
        taken, sent, limit, ended = bytearray(), 0, RING, False
        while not ended or sent < size:
            while sent < min(limit, size):
                part = down[sent:min(sent + 60000, limit)]
                self.host.bytes(channel, sent, part)
                sent += len(part)
            if ended and sent == size:
                break  # credit that nobody needs is not given
            try:
                f = self.host.wait(channel, BYTES, END, WINDOW)
            except TimeoutError:
                self.fail(f"nothing more: {sent} of {limit} sent, {frames.qsize()} frames to write, {len(got)} arrived inside; "
                          f"{len(taken)} came out, ended={ended}")
            value = struct.unpack(">Q", f.payload[:8])[0]
            if f.type == WINDOW:
                self.assertGreater(value, limit)
                limit = value
            else:
                self.assertEqual(value, len(taken))
                taken += f.payload[8:]
                ended = f.type == END
                self.host.window(channel, len(taken) + (1 << 20))
        self.host.end(channel, size)
        client.join()
        frames.put(None)
        writer.join()
        self.assertEqual(taken, up)
        self.assertEqual(got, down)


class BoundsTest(TunnelTest):
    def test_a_reader_that_does_not_read_gets_its_window_and_no_more(self):
        sock, channel, _ = self.open()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent, limit = 0, RING
        # Kernel buffers take some; then the ring fills up and credit stops.
        while sent < limit:
            part = min(60000, limit - sent)
            self.host.bytes(channel, sent, b"x" * part)
            sent += part
            self.host.ping()
            for f in [f for f in self.host.kept if f.type == WINDOW]:
                limit = struct.unpack(">Q", f.payload)[0]
                self.host.kept.remove(f)
        self.assertLess(sent, 32 << 20)
        self.host.bytes(channel, sent, b"y")
        self.assert_connection_fails(self.host, "past their credit")

    def test_gaps_and_late_bytes_end_the_connection(self):
        for text, attempt in (
                ("gap", lambda host, ch: host.bytes(ch, 1, b"x")),
                ("END twice", lambda host, ch: host.end(ch, 5)),
                ("credit back", lambda host, ch: host.window(ch, 1)),
                ("is open", lambda host, ch: host.send(ACCEPT, ch, struct.pack(">Q", 1))),
                ("never offered", lambda host, ch: host.bytes(ch + 1, 0, b"x")),
                ("never offered", lambda host, ch: host.send(OPEN, ch, bytes(24))),
                ("malformed", lambda host, ch: host.send(BYTES, ch, bytes(8))),
                ("channel", lambda host, ch: host.send(LISTEN, ch, bytes(23))),
                ("malformed", lambda host, ch: host.send(LISTEN, 0, bytes(23))),
                ("malformed", lambda host, ch: host.send(57, ch, b""))):
            with self.subTest(text):
                self.host = self.box.connect()
                sock, channel, _ = self.open()
                attempt(self.host, channel)
                self.assert_connection_fails(self.host, text)
                self.assert_reset(sock)

    def test_nothing_comes_after_the_end(self):
        for text, attempt in (
                ("END twice", lambda host, ch: host.end(ch, 0)),
                ("their end", lambda host, ch: host.bytes(ch, 0, b"x"))):
            with self.subTest(text):
                self.host = self.box.connect()
                _, channel, _ = self.open()
                self.host.end(channel, 0)
                attempt(self.host, channel)
                self.assert_connection_fails(self.host, text)

    def test_ten_thousand_connections_are_served_within_the_bound(self):
        total, at_once = 10000, 400
        _, port = self.host.listen(kind=PROXY)
        failures = []

        def clients():
            try:
                for _ in range(total // at_once):
                    socks = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(at_once)]
                    for sock in socks:
                        sock.sendall(b"hi")
                    for sock in socks:
                        assert sock.recv(2) == b"ho" and sock.recv(1) == b""
                        sock.close()
            except Exception as e:  # pylint: disable=broad-except
                failures.append(e)

        thread = threading.Thread(target=clients)
        thread.start()
        open_now, most, served, answered = set(), 0, 0, set()
        while served < total and not failures:
            f = self.host.next()
            if f.type == OPEN:
                open_now.add(f.channel)
                most = max(most, len(open_now))
                self.host.send(ACCEPT, f.channel, struct.pack(">Q", 100))
            elif f.type == BYTES:
                answered.add(f.channel)
                # Hold the first ones back until the box has reached its bound.
                if most >= PROXY_CONNS:
                    for channel in answered:
                        self.host.bytes(channel, 0, b"ho")
                        self.host.end(channel, 2)
                    answered.clear()
            elif f.type == END:
                open_now.discard(f.channel)
                served += 1
        thread.join()
        self.assertEqual(failures, [])
        self.assertEqual((served, most), (total, PROXY_CONNS))
        self.assertLess(self.memory_kb(), 20000)

    def test_the_proxy_leaves_room_for_callbacks(self):
        _, proxy = self.host.listen(kind=PROXY)
        _, callback = self.host.listen(kind=CALLBACK)
        for _ in range(PROXY_CONNS + 3):
            self.client(proxy)
        channels = [self.host.accept() for _ in range(PROXY_CONNS)]
        waiting = self.client(callback)
        channel = self.host.accept()
        waiting.sendall(b"hello")
        self.assertEqual(self.host.read_tunnel(channel, 5), b"hello")
        self.assertEqual([f for f in self.host.kept if f.type == OPEN], [])
        self.host.send(RESET, channels[0], bytes([REFUSED]))
        self.assertEqual(self.host.accept(), channel + 1)

    def test_all_places_taken(self):
        _, port = self.host.listen()
        for _ in range(CONNS + 1):
            self.client(port)
        channels = [self.host.accept() for _ in range(CONNS)]
        self.host.ping()
        self.assertEqual([f for f in self.host.kept if f.type == OPEN], [])
        self.host.send(RESET, channels[7], bytes([REFUSED]))
        self.host.accept()


class HostsTest(TunnelTest):
    def test_a_new_host_resets_connections_and_finds_the_listeners(self):
        listener, port = self.host.listen()
        sock = self.client(port)
        self.host.accept()
        second = self.box.connect(epoch=2)
        self.assert_reset(sock)
        # Who connects before the new host has asked waits.
        waiting = self.client(port)
        second.ping()
        second.ping()  # the first may have been answered before the box saw him
        self.assertEqual([f for f in second.kept if f.type == OPEN], [])
        self.assertEqual(second.listen(listener), (listener, port))
        channel = second.accept()
        self.assertEqual(channel, 1)
        second.bytes(channel, 0, b"welcome")
        self.assertEqual(waiting.recv(7), b"welcome")

    def test_connections_made_without_a_host_wait_for_one(self):
        listener, port = self.host.listen()
        self.host.close()
        waiting = self.client(port)
        waiting.sendall(b"anybody?")
        self.host = self.box.connect()
        self.host.listen(listener)
        channel = self.host.accept()
        self.assertEqual(self.host.read_tunnel(channel, 8), b"anybody?")

    def test_a_killed_box_resets_them(self):
        sock, _, _ = self.open()
        sock.sendall(b"x")
        self.box.kill()
        # The kernel closes the socket of a process that died: an end, or a reset for unread bytes.
        try:
            self.assertEqual(sock.recv(1), b"")
        except ConnectionResetError:
            pass


class FairnessTest(TunnelTest):
    def test_a_talkative_command_and_the_tunnel_share_the_link(self):
        """While 100 MB of output are on their way, each 100 bytes through the tunnel come after at most a few buffers of it."""
        total, rounds = 100 << 20, 50
        sock, channel, _ = self.open()
        command = self.host.shell(f"head -c {total} /dev/zero")
        self.host.started(command)
        self.host.open_output(command)
        got, gap, gaps, echoed = 0, 0, [], 0
        sock.sendall(b"q" * 100)
        while True:
            f = self.host.next()
            if f.type == DATA and f.channel == command:
                _, offset, data = parse_data(f.payload)
                self.assertEqual(offset, got)
                got += len(data)
                gap += len(data)
                self.host.ack(command, STDOUT, got)
            elif f.type == BYTES and f.channel == channel:
                gaps.append(gap)
                gap = 0
                echoed += len(f.payload) - 8
                if len(gaps) < rounds:
                    sock.sendall(b"q" * 100)
            elif f.type == EXIT:
                break
        self.assertEqual(parse_exit(f.payload).code, 0)
        self.assertEqual((got, echoed), (total, rounds * 100))
        # Buffers of the link and of the socket beneath it, twice; not the megabytes that wait in the spool.
        self.assertLess(max(gaps), 4 << 20)

    def test_a_full_tunnel_does_not_keep_output_back(self):
        """The other way round: with clients that send without end, a command's output comes through."""
        _, port = self.host.listen()
        for _ in range(4):
            flood = subprocess.Popen(["bash", "-c", f"exec cat /dev/zero > /dev/tcp/127.0.0.1/{port}"],
                                     stderr=subprocess.DEVNULL)
            self.addCleanup(flood.wait)
            self.addCleanup(flood.kill)
            self.host.accept()  # however much the others send
        size, between, got, opened = 8 << 20, 0, 0, False
        command = self.host.shell(f"head -c {size} /dev/zero")
        while got < size:
            f = self.host.next()
            if f.type == BYTES and opened:
                between += len(f.payload)
            elif f.channel == command and f.type == DATA:
                got += len(f.payload) - 9
            elif f.channel == command and f.type == STARTED:
                self.host.open_output(command)
                opened = True
            # Nobody is starved: each of the two has its share, give or take what is in the buffers.
            self.assertLess(between, 4 * got + (32 << 20))

    def test_a_stalled_connection_holds_up_nobody(self):
        stalled, first, port = self.open(limit=0)
        stalled.sendall(b"x" * 100000)
        self.host.bytes(first, 0, b"y" * 65000)
        other = self.client(port)
        channel = self.host.accept()
        other.sendall(b"quick")
        self.assertEqual(self.host.read_tunnel(channel, 5), b"quick")
        self.assertEqual(self.host.run("echo", ["hi"])[0], b"hi\n")


if __name__ == "__main__":
    unittest.main()
