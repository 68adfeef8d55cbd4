"""The allow-list proxy through the tunnel of a real box: who is reached, who is not, and what arrives."""
# plain: the daemon's memory is measured
# threads: the proxy on the loop, names that are looked up on threads

import hashlib
import os
import socket
import struct
import threading
import unittest

import berthtest
from berthtest import wait_until
from exectest import memory_tells
from proxytest import Answer, Origin, ProxyTest, read_head


def plain_answer(body=b"hello", extra=b""):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), extra, body)


def echo(conn):
    while data := conn.recv(65536):
        conn.sendall(data)
    conn.shutdown(socket.SHUT_WR)


class AllowTest(ProxyTest):
    def test_connect(self):
        self.origin(echo)
        sock = self.tunnel()
        sock.sendall(b"ping")
        self.assertEqual(sock.recv(4), b"ping")
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(sock.recv(1), b"")

    def test_bytes_behind_the_head_of_connect_arrive(self):
        self.origin(echo)
        sock = self.connect()
        sock.sendall(b"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\nearly")
        head, rest = read_head(sock)
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "))
        while len(rest) < 5:
            rest += sock.recv(5)
        self.assertEqual(rest, b"early")

    def test_curl_in_a_command(self):
        self.origin(lambda conn: (read_head(conn), conn.sendall(plain_answer(b"through the proxy"))))
        proxy = f"http://127.0.0.1:{self.port}"
        self.assertEqual(self.sh(f"curl -sS --proxy {proxy} http://good.example/")["stdout"], "through the proxy")
        refused = self.sh(f"curl -sS --proxy {proxy} http://evil.example/")
        self.assertIn('"evil.example"', refused["stdout"])
        self.assertIn('"allowedHosts"', refused["stdout"])
        refused = self.sh(f"curl -sS --proxy {proxy} https://evil.example/")
        self.assertIn("403", refused["stderr"])

    def test_a_name_below_a_wildcard(self):
        self.hosts.write_text("")
        origin = self.origin(echo)
        self.hosts.write_text(f"a.b.wild.example !127.0.0.1:{origin.port}\n")
        self.tunnel("a.b.wild.example:443")
        self.assertEqual(self.ask(b"CONNECT wild.example:443 HTTP/1.1\r\nHost: x\r\n\r\n").status, 403)

    def test_ports(self):
        self.origin(echo, "odd")
        self.tunnel("odd.example:8443")
        answer = self.ask(b"CONNECT odd.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(answer.status, 403)
        self.assertIn('add "odd.example" to', answer.text)
        answer = self.ask(b"CONNECT good.example:22 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(answer.status, 403)
        self.assertIn('add "good.example:22" to', answer.text)

    def test_nothing_is_resolved_that_is_not_allowed(self):
        origin = self.origin(echo, "evil")
        answer = self.ask(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        self.assertEqual(answer.status, 403)
        self.assertIn('The host "evil.example" (port 443) is not among the allowed hosts', answer.text)
        self.assertEqual(origin.accepted, 0)

    def test_a_refusal_is_logged_once_and_counted(self):
        before = self.metric("berth_proxy_refused_total")
        for _ in range(20):
            self.ask(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        self.ask(b"CONNECT worse.example:443 HTTP/1.1\r\nHost: worse.example\r\n\r\n")
        self.assertEqual(self.metric("berth_proxy_refused_total"), before + 21)
        lines = [line for line in self.daemon.log().splitlines() if "was refused a connection" in line]
        self.assertEqual(len([line for line in lines if "evil.example" in line]), 1)
        self.assertEqual(len([line for line in lines if "worse.example" in line]), 1)


class AddressTest(ProxyTest):
    def refused(self, target="good.example:443", words=""):
        answer = self.ask(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.assertEqual(answer.status, 403, answer.text)
        self.assertIn(words, answer.text)

    def test_names_with_addresses_that_are_not_public(self):
        for address, kind in (("127.0.0.1", "loopback"), ("10.1.2.3", "private"), ("172.20.0.1", "private"),
                              ("192.168.1.1", "private"), ("169.254.169.254", "link-local"),
                              ("100.64.0.1", "carrier-grade NAT"), ("0.0.0.0", "unspecified"),
                              ("224.0.0.251", "multicast"), ("192.0.2.1", "documentation"), ("::1", "loopback"),
                              ("::ffff:127.0.0.1", "loopback"), ("::ffff:10.0.0.1", "private"),
                              ("fe80::1", "link-local"), ("fd00::1", "unique local"), ("64:ff9b::a00:1", "private"),
                              ("2002:7f00:1::", "loopback"), ("2001::1", "reserved"), ("ff02::1", "multicast")):
            with self.subTest(address):
                self.resolve(good=address)
                self.refused(words=f'has the address {address}, which is not public ({kind})')

    def test_one_bad_address_among_good_ones(self):
        self.resolve(good="93.184.216.34 10.0.0.1")
        self.refused(words="10.0.0.1")

    def test_an_answer_that_turns_private(self):
        """Rebinding: each connection is judged by the answer it uses."""
        self.origin(echo)
        self.tunnel()
        self.resolve(good="127.0.0.1")
        self.refused(words="loopback")

    def test_addresses_that_are_allowed_by_name_are_judged_all_the_same(self):
        self.refused("10.0.0.7:443", "private")
        self.refused("[fd00::7]:443", "unique local")

    def test_the_real_resolver_and_a_name_of_this_machine(self):
        self.refused("localhost:80", "loopback")

    def test_hostile_spellings(self):
        for target in ("2130706433:80", "0x7f000001:80", "0177.0.0.1:80", "127.1:80", "127.0.0.1.:80", "good.example.:443",
                       "[::ffff:7f00:1]:80", "[fe80::1%25eth0]:80", "user@good.example:443", "good.example%00.evil:443",
                       "good.example:443@evil.example:80", "*.wild.example:443", ".wild.example:443", "good.example",
                       "good.example:0", "good.example:65536", "good.example:0443", "good..example:443", "[good.example]:443"):
            with self.subTest(target):
                answer = self.ask(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                self.assertEqual(answer.status, 400, answer.text)

    def test_control_bytes_and_foreign_letters(self):
        for target in (b"good.example\x00:443", b"good.example\t:443", b"good.ex\xc3\xa4mple:443", b"good.example\r:443"):
            with self.subTest(target):
                self.assertEqual(self.ask(b"CONNECT " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n").status, 400)

    def test_the_product_knows_no_test_hosts(self):
        with open(berthtest.BINARIES["normal"], "rb") as file:
            self.assertNotIn(b"BERTH_TEST_", file.read())


class PrivateHostTest(ProxyTest):
    """An address of the operator's own network: both lists have to name it."""

    def setUp(self):
        self.server = Origin(self, echo)
        self.allowed = [f"127.0.0.1:{self.server.port}", "127.0.0.1:1"]
        super().setUp()
        self.daemon.stop()
        self.daemon.env["BERTH_PRIVATE_HOSTS"] = f"127.0.0.1:{self.server.port},127.0.0.1:2"
        self.daemon.start()
        self.sh("true")

    def test_private_hosts(self):
        sock = self.tunnel(f"127.0.0.1:{self.server.port}")
        sock.sendall(b"hello")
        self.assertEqual(sock.recv(5), b"hello")
        for port, words in ((1, "loopback"), (2, "not among the allowed hosts")):
            answer = self.ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            self.assertEqual(answer.status, 403)
            self.assertIn(words, answer.text)


class PlainTest(ProxyTest):
    def exchange(self, request, answer=plain_answer(), method="GET"):
        """What the origin got, and what the client got."""
        got = []

        def serve(conn):
            head, rest = read_head(conn)
            got.append((head, rest))
            conn.sendall(answer)
            conn.shutdown(socket.SHUT_WR)
            while more := conn.recv(65536):
                got.append(more)
        origin = self.origin(serve)
        response = self.ask(request, method)
        self.assertEqual(origin.failures, [])
        return got, response

    def test_a_request_is_written_anew(self):
        got, answer = self.exchange(
            b"GET http://good.example/a/b?c=d HTTP/1.1\r\nHost: evil.example\r\nAccept: */*\r\nConnection: keep-alive, X-Mine\r\n"
            b"X-Mine: 1\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n"
            b"Upgrade: websocket\r\nKeep-Alive: 5\r\nX-Other: 2\r\n\r\n")
        lines = got[0][0].split(b"\r\n")
        self.assertEqual(lines[0], b"GET /a/b?c=d HTTP/1.1")
        self.assertEqual(sorted(lines[1:]), [b"Accept: */*", b"Connection: close", b"Host: good.example", b"X-Other: 2"])
        self.assertEqual((answer.status, answer.text), (200, "hello"))
        self.assertEqual(answer.headers["Connection"], "close")

    def test_no_path_is_the_root(self):
        self.assertTrue(self.exchange(b"GET http://good.example HTTP/1.1\r\nHost: x\r\n\r\n")[0][0][0].startswith(b"GET / HTTP/1.1"))
        self.assertTrue(self.exchange(b"GET http://good.example?q HTTP/1.1\r\nHost: x\r\n\r\n")[0][0][0].startswith(b"GET /?q HTTP/1.1"))

    def test_a_second_request_goes_nowhere(self):
        second = b"GET http://good.example/second HTTP/1.1\r\nHost: good.example\r\n\r\n"
        for first in (b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
                      b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
                      b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"):
            got, answer = self.exchange(first + second)
            self.assertEqual(answer.status, 200)
            everything = b"".join(got[0]) + b"".join(got[1:])
            self.assertNotIn(b"second", everything)

    def test_ambiguous_requests_are_refused(self):
        for fields, status in ((b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
                               (b"Content-Length: 3\r\nContent-Length: 4\r\n", 400),
                               (b"Transfer-Encoding: xchunked\r\n", 501), (b"Transfer-Encoding: chunked, gzip\r\n", 501),
                               (b"Content-Length : 3\r\n", 400), (b" folded: x\r\n", 400), (b"X: a\nB: c\r\n", 400)):
            with self.subTest(fields):
                answer = self.ask(b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\nabc")
                self.assertEqual(answer.status, status, answer.text)

    def test_other_targets(self):
        for line, status in ((b"GET / HTTP/1.1", 400), (b"GET https://good.example/ HTTP/1.1", 400),
                             (b"GET ftp://good.example/ HTTP/1.1", 400), (b"OPTIONS * HTTP/1.1", 400),
                             (b"BREW http://good.example/ HTTP/1.1", 501), (b"GET http:///x HTTP/1.1", 400),
                             (b"GET http://a@good.example/ HTTP/1.1", 400), (b"CONNECT http://good.example HTTP/1.1", 400)):
            with self.subTest(line):
                answer = self.ask(line + b"\r\nHost: x\r\n\r\n")
                self.assertEqual(answer.status, status, answer.text)

    def test_a_chunked_body_arrives_as_chunks(self):
        body = b"5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"
        got, _ = self.exchange(b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        self.assertIn(b"Transfer-Encoding: chunked", got[0][0])
        sent = got[0][1] + b"".join(got[1:])
        self.assertEqual(sent.replace(b"\r\n", b" "), b"5 hello 6  world 0  ")

    def test_a_body_that_is_malformed_or_cut_short(self):
        wait = threading.Event()
        self.addCleanup(wait.set)
        self.origin(lambda conn: (read_head(conn), wait.wait(30)))
        head = b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(self.ask(head + b"zz\r\n").status, 400)
        sock = self.connect()
        sock.sendall(head + b"5\r\nhal")
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(Answer(sock).status, 400)

    def test_a_chunked_answer(self):
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nsurplus"
        got, response = self.exchange(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n", answer)
        self.assertEqual(response.text, "abc")
        _, response = self.exchange(b"GET http://good.example/ HTTP/1.0\r\n\r\n", answer)
        self.assertEqual(response.text, "abc")
        self.assertNotIn("Transfer-Encoding", response.headers)

    def test_an_answer_up_to_the_end_of_the_connection(self):
        _, response = self.exchange(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\nall of it")
        self.assertEqual(response.text, "all of it")

    def test_head(self):
        _, response = self.exchange(b"HEAD http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
                                    b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "HEAD")
        self.assertEqual(response.headers["Content-Length"], "1000")

    def test_interim_answers(self):
        def serve(conn):
            read_head(conn)
            conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.assertEqual(conn.recv(4), b"body")
            conn.sendall(plain_answer())
        origin = self.origin(serve)
        sock = self.connect()
        sock.sendall(b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        self.assertEqual(read_head(sock)[0].split(b"\r\n")[0], b"HTTP/1.1 100 Continue")
        sock.sendall(b"body")
        self.assertEqual(Answer(sock).text, "hello")
        self.assertEqual(origin.failures, [])

    def test_answers_that_are_no_http(self):
        for answer in (b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
                       b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", b"HTTP/1.1 200 OK\n\nx"):
            with self.subTest(answer):
                _, response = self.exchange(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n", answer)
                self.assertEqual(response.status, 502)
                self.assertIn("good.example", response.text)

    def test_an_answer_that_is_cut_short_is_not_whole(self):
        self.origin(lambda conn: (read_head(conn), conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")))
        sock = self.connect()
        sock.sendall(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        with self.assertRaises(ConnectionResetError):
            while sock.recv(1000):
                pass
            raise AssertionError("it ended as if it were whole")

    def test_an_origin_that_keeps_the_connection_open(self):
        """Content-Length ends the answer, whatever the origin does."""
        wait = threading.Event()
        self.addCleanup(wait.set)
        self.origin(lambda conn: (read_head(conn), conn.sendall(plain_answer()), wait.wait(30)))
        self.assertEqual(self.ask(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n").text, "hello")


class FailureTest(ProxyTest):
    timeout_ms = 1000

    def test_nobody_there(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.resolve(good=s.getsockname()[1])
            answer = self.ask(b"CONNECT good.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(answer.status, 502)
        self.assertIn('Could not connect to "good.example" (127.0.0.1, port 443): Connection refused.', answer.text)
        self.assertEqual(self.metric("berth_proxy_failed_total"), 1)

    def test_a_resolver_that_does_not_answer(self):
        self.resolve(good="silent")
        answer = self.ask(b"CONNECT good.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(answer.status, 504)
        self.assertIn("could not be resolved in time", answer.text)

    def test_a_host_that_does_not_answer_the_connection(self):
        # A full backlog: the kernel drops what comes.
        full = socket.socket()
        self.addCleanup(full.close)
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            self.addCleanup(filler.close)
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
            fillers.append(filler)
        self.resolve(good=full.getsockname()[1])
        answer = self.ask(b"CONNECT good.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(answer.status, 504)
        self.assertIn("in time", answer.text)

    def test_a_host_that_does_not_answer_the_request(self):
        wait = threading.Event()
        self.addCleanup(wait.set)
        self.origin(lambda conn: wait.wait(30))
        answer = self.ask(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(answer.status, 504)

    def test_a_head_that_does_not_come(self):
        sock = self.connect()
        sock.sendall(b"CONNECT good.ex")
        self.assertEqual(Answer(sock).status, 408)

    def test_a_client_that_says_nothing_and_goes(self):
        self.connect().close()
        sock = self.connect()
        sock.shutdown(socket.SHUT_WR)
        with self.assertRaises(ConnectionResetError):
            sock.recv(1)

    def test_an_idle_tunnel_is_closed(self):
        self.origin(echo)
        sock = self.tunnel()
        with self.assertRaises(ConnectionResetError):
            sock.recv(1)


class StreamTest(ProxyTest):
    def assert_broken(self, sock):
        try:
            while sock.recv(1 << 20):
                pass
        except ConnectionResetError:
            return
        raise AssertionError("it ended as if it were whole")

    def test_half_closed_peers(self):
        """Each side may end first; the other goes on."""
        def serve(conn):
            conn.sendall(b"mine first")
            conn.shutdown(socket.SHUT_WR)
            got = b""
            while data := conn.recv(1000):
                got += data
            conn.close()
            origin.got = got
        origin = self.origin(serve)
        origin.got = None
        sock = self.tunnel()
        got = b""
        while data := sock.recv(1000):
            got += data
        self.assertEqual(got, b"mine first")
        sock.sendall(b"and mine")
        sock.shutdown(socket.SHUT_WR)
        wait_until(lambda: origin.got == b"and mine", "the rest arrives")

    def test_a_large_download_and_a_slow_reader(self):
        """Back-pressure reaches the origin: what is in between is bounded."""
        size = 256 << 20
        block = os.urandom(1 << 20)
        sent = [0]

        def serve(conn):
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            while sent[0] < size:
                conn.sendall(block)
                sent[0] += len(block)
        self.origin(serve)
        sock = self.tunnel()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        before = self.daemon.rss_kb()

        def stalled():
            at = sent[0]
            try:
                wait_until(lambda: sent[0] > at, "more", 1)
            except AssertionError:
                return True
            return False
        wait_until(stalled, "the origin waits for the reader", 30)
        self.assertLess(sent[0], 64 << 20)
        digest, got = hashlib.sha256(), 0
        while data := sock.recv(1 << 20):
            digest.update(data)
            got += len(data)
        self.assertEqual(got, size)
        expected = hashlib.sha256()
        for _ in range(size >> 20):
            expected.update(block)
        self.assertEqual(digest.digest(), expected.digest())
        if memory_tells():
            self.assertLess(self.daemon.rss_kb() - before, 8 << 10)

    def test_a_large_upload(self):
        size = 128 << 20
        block = os.urandom(1 << 20)

        def serve(conn):
            digest = hashlib.sha256()
            while data := conn.recv(1 << 20):
                digest.update(data)
            conn.sendall(digest.digest())
        self.origin(serve)
        before = self.daemon.rss_kb()
        sock = self.tunnel()
        expected = hashlib.sha256()
        for _ in range(size >> 20):
            sock.sendall(block)
            expected.update(block)
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(sock.recv(32), expected.digest())
        if memory_tells():
            self.assertLess(self.daemon.rss_kb() - before, 8 << 10)

    def test_a_peer_that_resets(self):
        def serve(conn):
            conn.recv(1)
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.origin(serve)
        sock = self.tunnel()
        sock.sendall(b"x")
        self.assert_broken(sock)

    def test_a_client_that_resets(self):
        gone = threading.Event()

        def serve(conn):
            try:
                conn.recv(1)
                conn.recv(1)
            except ConnectionResetError:
                gone.set()
        self.origin(serve)
        sock = self.tunnel()
        sock.sendall(b"x")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        self.assertTrue(gone.wait(30))

    def test_two_thousand_requests(self):
        """Many at once and one after the other: all answered, nothing left."""
        self.origin(lambda conn: (read_head(conn), conn.sendall(plain_answer())))
        failures = []

        def work():
            try:
                for _ in range(40):
                    self.assertEqual(self.ask(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n").text, "hello")
            except BaseException as e:  # told below
                failures.append(e)
        threads = [threading.Thread(target=work) for _ in range(50)]
        before = self.daemon.fd_count()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        wait_until(lambda: self.daemon.fd_count() <= before, "the daemon has closed what it opened")

    def test_more_connections_than_there_may_be(self):
        """They wait; those that are open go on; when one ends, the next gets in."""
        self.origin(echo)
        socks = [self.tunnel() for _ in range(192)]
        waiting = self.connect()
        waiting.sendall(b"CONNECT good.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        socks[77].sendall(b"alive")
        self.assertEqual(socks[77].recv(5), b"alive")
        socks[3].close()
        self.assertIn(b" 200 ", read_head(waiting)[0])
        if memory_tells():
            self.assertLess(self.daemon.rss_kb(), 80 << 10)

    def test_a_command_that_prints_and_the_proxy_do_not_hold_each_other_up(self):
        self.origin(echo)
        sock = self.tunnel()
        printing = self.detach("head -c 104857600 /dev/zero")
        rounds = 0
        while self.execution(printing)["status"] in ("starting", "running"):
            sock.sendall(b"ping")
            self.assertEqual(sock.recv(4), b"ping")
            rounds += 1
        self.assertGreater(rounds, 0)
        self.assertEqual(self.ended(printing)["exitCode"], 0)
        self.assertEqual(len(self.output(printing)), 104857600)


class LossTest(ProxyTest):
    def transfer(self):
        """A download under way: its socket, and an event that ends the origin."""
        def serve(conn):
            while True:
                conn.sendall(b"x" * 65536)
        self.origin(serve)
        sock = self.tunnel()
        self.assertTrue(sock.recv(65536))
        return sock

    def broken(self, sock):
        try:
            while sock.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass

    def works(self):
        self.origin(lambda conn: (read_head(conn), conn.sendall(plain_answer())))
        self.assertEqual(self.ask(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n").text, "hello")

    def test_the_daemon_restarts_in_the_middle(self):
        running = self.detach("sleep 60")
        for crash in (False, True):
            sock = self.transfer()
            self.daemon.restart(crash=crash)
            with self.assertRaises(ConnectionResetError):
                while sock.recv(1 << 20):
                    pass
            self.works()
        self.signal(running, "SIGKILL")
        self.ended(running)

    def test_who_connects_while_there_is_no_daemon_is_served_by_the_next(self):
        self.detach("sleep 60")
        self.daemon.kill()
        self.resolve()
        waiting = self.connect()
        waiting.sendall(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.daemon.start()
        self.assertEqual(Answer(waiting).status, 403)

    def test_the_box_is_killed_in_the_middle(self):
        sock = self.transfer()
        os.kill(self.box_pid(), 9)
        self.broken(sock)
        # Starts another box, once the daemon knows that this one is dead.
        wait_until(lambda: self.execute("true").status == 200, "commands run again")
        self.works()

    def test_the_lease_ends_in_the_middle(self):
        sock = self.transfer()
        self.release(self.held)
        self.broken(sock)
        with self.assertRaises(ConnectionRefusedError):
            self.connect()

    def test_a_hung_lookup_does_not_keep_the_daemon_from_stopping(self):
        self.resolve(good="silent")
        sock = self.connect()
        sock.sendall(b"CONNECT good.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: self.metric("berth_proxy_requests_total") == 1, "it asks")
        self.daemon.restart()
        self.broken(sock)


if __name__ == "__main__":
    unittest.main()
