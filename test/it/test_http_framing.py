"""The framing of HTTP/1 on the wire. Whatever two readers could understand differently is refused, the
connection is closed, and what came behind the refused request is never taken for a request of its own."""

import json

from berthtest import BerthTest, RawConnection, wait_until

HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
MAX_HEAD = 16384
MAX_TARGET = 8192
MAX_HEADERS = 64
MAX_BODY = 10 << 20


def company(name):
    """A good request that can be seen to have had an effect."""
    body = json.dumps({"name": name}).encode()
    return b"POST /api/companies HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: %d\r\n\r\n" % len(body) + body


SMUGGLED = company("smuggled")
EVIL = b'{"name":"evil"}'  # 15 bytes, 0xf


def post(fields, body=EVIL, version=b"HTTP/1.1", line=b"POST /api/companies "):
    return line + version + b"\r\n" + HOST + JSON + fields + b"\r\n" + body


def length(value):
    return post(b"Content-Length: " + value + b"\r\n")


def coding(value):
    return post(b"Transfer-Encoding: " + value + b"\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVIL), EVIL))


def chunked(body):
    return post(b"Transfer-Encoding: chunked\r\n", body)


def get(fields=b"", target=b"/api/companies", host=HOST, version=b"HTTP/1.1", method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + host + fields + b"\r\n"


def host(value):
    return get(host=b"Host: " + value + b"\r\n")


CHUNK = b"%x\r\n%s\r\n" % (len(EVIL), EVIL)

LENGTHS = {
    "both lengths": (400, post(b"Content-Length: 15\r\nTransfer-Encoding: chunked\r\n", CHUNK + b"0\r\n\r\n")),
    "both lengths, the other way round": (
        400, post(b"Transfer-Encoding: chunked\r\nContent-Length: 15\r\n", CHUNK + b"0\r\n\r\n")),
    "two lengths": (400, post(b"Content-Length: 15\r\nContent-Length: 0\r\n")),
    "the same length twice": (400, post(b"Content-Length: 15\r\nContent-Length: 15\r\n")),
    "two lengths, spelt differently": (400, post(b"Content-Length: 15\r\ncontent-LENGTH: 0\r\n")),
    "list": (400, length(b"15, 15")),
    "plus": (400, length(b"+15")),
    "minus": (400, length(b"-15")),
    "minus zero": (400, length(b"-0")),
    "hex": (400, length(b"0xf")),
    "exponent": (400, length(b"15e0")),
    "fraction": (400, length(b"15.0")),
    "underscore": (400, length(b"1_5")),
    "inner space": (400, length(b"1 5")),
    "empty": (400, length(b"")),
    "words": (400, length(b"fifteen")),
    "vertical tab": (400, length(b"\x0b15")),
    "past 63 bits": (400, length(b"9223372036854775808")),
    "past 64 bits, by 15": (400, length(b"18446744073709551631")),
    "many zeros": (400, length(b"0" * 30 + b"15")),
    "just in 63 bits": (413, length(b"9223372036854775807")),
    "past the limit of bodies": (413, length(b"%d" % (MAX_BODY + 1))),
}

CODINGS = {
    "identity": (501, coding(b"identity")),
    "gzip under chunked": (501, coding(b"gzip, chunked")),
    "chunked under identity": (501, coding(b"chunked, identity")),
    "chunked in a list of itself": (501, coding(b"chunked, chunked")),
    "upper case": (501, coding(b"Chunked")),
    "prefixed": (501, coding(b"xchunked")),
    "parameter": (501, coding(b"chunked;q=1")),
    "quoted": (501, coding(b'"chunked"')),
    "empty": (501, coding(b"")),
    "vertical tab": (400, coding(b"\x0bchunked")),
    "NUL behind": (400, coding(b"chunked\x00")),
    "twice": (400, post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CHUNK + b"0\r\n\r\n")),
    "twice, one unknown": (
        400, post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n", CHUNK + b"0\r\n\r\n")),
    "space before the colon": (400, post(b"Transfer-Encoding : chunked\r\n", CHUNK + b"0\r\n\r\n")),
    "folded": (400, post(b"Transfer-Encoding:\r\n chunked\r\n", CHUNK + b"0\r\n\r\n")),
    "in HTTP/1.0": (400, post(b"Transfer-Encoding: chunked\r\n", CHUNK + b"0\r\n\r\n", b"HTTP/1.0")),
}

CHUNKS = {
    "no size": (400, chunked(b"\r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "negative size": (400, chunked(b"-f\r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "0x": (400, chunked(b"0xf\r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "space before the size": (400, chunked(b" " + CHUNK + b"0\r\n\r\n")),
    "space after the size": (400, chunked(b"f \r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "size past 64 bits": (400, chunked(b"1000000000000000f\r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "size of too many zeros": (400, chunked(b"0" * 20 + CHUNK + b"0\r\n\r\n")),
    "line feed alone after the size": (400, chunked(b"f\n" + EVIL + b"\r\n0\r\n\r\n")),
    "carriage return alone after the size": (400, chunked(b"f\r" + EVIL + b"\r\n0\r\n\r\n")),
    "line feed in the extension": (400, chunked(b"f;x\n" + EVIL + b"\r\n0\r\n\r\n")),
    "NUL in the extension": (400, chunked(b"f;\x00\r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "long extension": (400, chunked(b"f;" + b"x" * 300 + b"\r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "longer than its size": (400, chunked(b"e\r\n" + EVIL + b"\r\n0\r\n\r\n")),
    "line feed alone after the chunk": (400, chunked(b"f\r\n" + EVIL + b"\n0\r\n\r\n")),
    "line feed alone at the end": (400, chunked(CHUNK + b"0\r\n\n")),
    "length in a trailer": (400, chunked(CHUNK + b"0\r\nContent-Length: 0\r\n\r\n")),
    "coding in a trailer": (400, chunked(CHUNK + b"0\r\ntransfer-encoding: chunked\r\n\r\n")),
    "identity in a trailer": (400, chunked(CHUNK + b"0\r\nAuthorization: Bearer x\r\n\r\n")),
    "host in a trailer": (400, chunked(CHUNK + b"0\r\nHost: localhost\r\n\r\n")),
    "folded trailer": (400, chunked(CHUNK + b"0\r\nX: a\r\n b\r\n\r\n")),
    "trailer without colon": (400, chunked(CHUNK + b"0\r\nX\r\n\r\n")),
    "too many trailers": (400, chunked(CHUNK + b"0\r\n" + b"X: yyyyyyyyyyyyyyyy\r\n" * 300 + b"\r\n")),
    "nothing but framing": (400, chunked(b"1;" + b"x" * 200 + b"\r\n \r\n") + (
        b"1;" + b"x" * 200 + b"\r\n \r\n") * 200 + b"0\r\n\r\n"),
}

HEADS = {
    "line feed alone": (400, b"GET /api/companies HTTP/1.1\nHost: localhost\n\n"),
    "line feed alone, once": (400, get(b"X: a\nY: b\r\n")),
    "carriage return alone": (400, get(b"X: a\rY: b\r\n")),
    "carriage returns before the line feed": (400, get(b"X: a\r\r\n")),
    "folded": (400, get(b"X: a\r\n b\r\n")),
    "folded by a tab": (400, get(b"X: a\r\n\tb\r\n")),
    "folded first line": (400, b"GET /api/companies HTTP/1.1\r\n " + HOST + b"\r\n"),
    "space before the colon": (400, get(b"X : a\r\n")),
    "tab before the colon": (400, get(b"X\t: a\r\n")),
    "no colon": (400, get(b"X\r\n")),
    "no name": (400, get(b": a\r\n")),
    "NUL in a name": (400, get(b"X\x00: a\r\n")),
    "NUL in a value": (400, get(b"X: a\x00b\r\n")),
    "escape in a value": (400, get(b"X: \x1b[2J\r\n")),
    "delete in a value": (400, get(b"X: \x7f\r\n")),
    "name above ASCII": (400, get("Ü: a\r\n".encode())),
    "two identities": (400, get(b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n")),
    "two origins": (400, post(b"Origin: http://localhost\r\nOrigin: http://evil.example\r\nContent-Length: 15\r\n")),
    "two content types": (400, post(b"Content-Type: text/plain\r\nContent-Length: 15\r\n")),
    "no Host": (400, get(host=b"")),
    "two Hosts": (400, get(HOST)),
    "two Hosts, one foreign": (400, get(b"Host: evil.example\r\n")),
    "empty Host": (400, host(b"")),
    "Host with userinfo": (400, host(b"evil@localhost")),
    "Host with a path": (400, host(b"localhost/evil")),
    "Host list": (400, host(b"localhost, evil.example")),
    "Host with a space": (400, host(b"localhost evil")),
    "Host without its port": (400, host(b"localhost:")),
    "Host with a port of words": (400, host(b"localhost:http")),
    "Host with a long port": (400, host(b"localhost:031000")),
    "Host with half a bracket": (400, host(b"[::1")),
    "Host with empty brackets": (400, host(b"[]")),
    "unknown expectation": (417, post(b"Expect: 200-ok\r\nContent-Length: 15\r\n")),
    "two expectations": (400, post(b"Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 15\r\n")),
}

START_LINES = {
    "empty line first": (400, b"\r\n" + get()),
    "space first": (400, b" " + get()),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64),
    "the preface of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/0.9": (400, b"GET /api/companies\r\n\r\n"),
    "HTTP/1.2": (505, get(version=b"HTTP/1.2")),
    "HTTP/2.0": (505, get(version=b"HTTP/2.0")),
    "HTTP/1.10": (400, get(version=b"HTTP/1.10")),
    "lower-case version": (400, get(version=b"http/1.1")),
    "two versions": (400, get(version=b"HTTP/1.1 HTTP/1.1")),
    "two spaces": (400, get(target=b" /api/companies")),
    "space behind": (400, get(version=b"HTTP/1.1 ")),
    "tab": (400, b"GET\t/api/companies\tHTTP/1.1\r\n" + HOST + b"\r\n"),
    "space in the target": (400, get(target=b"/api/comp anies")),
    "NUL in the target": (400, get(target=b"/api/\x00companies")),
    "carriage return in the target": (400, get(target=b"/api/\rcompanies")),
    "fragment": (400, get(target=b"/api/companies#x")),
    "target above ASCII": (400, get(target="/api/ü".encode())),
    "no slash": (400, get(target=b"api/companies")),
    "asterisk": (400, get(target=b"*")),
    "absolute-form of another host": (400, get(target=b"http://evil.example/api/companies")),
    "absolute-form of another port": (400, get(target=b"http://localhost:1/api/companies")),
    "absolute-form with userinfo": (400, get(target=b"http://x@localhost/api/companies")),
    "absolute-form of another scheme": (400, get(target=b"ftp://localhost/api/companies")),
    "absolute-form without a path": (400, get(target=b"http://localhost")),
    "lower-case method": (400, get(method=b"get")),
    "authority-form": (501, b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "TRACE": (501, get(method=b"TRACE")),
    "unknown method": (501, get(method=b"BREW")),
    "bracket in the method": (400, get(method=b"GE[T")),
}

SIZES = {
    "endless request line": (414, b"GET /" + b"a" * MAX_HEAD),
    "target one past the limit": (414, get(target=b"/" + b"a" * MAX_TARGET)),
    "endless header": (431, get(b"X: " + b"a" * MAX_HEAD + b"\r\n")),
    "many small headers": (431, get(b"X: a\r\n" * MAX_HEADERS)),
    "chunks past the limit of bodies": (
        413, chunked((b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 10 + b"1\r\n \r\n0\r\n\r\n")),
}


class FramingTest(BerthTest):
    def names(self):
        return [c["name"] for c in self.ok("GET", "/api/companies")]

    def assert_refused(self, status, request, pieces=1):
        before = self.names()
        with self.daemon.raw() as raw:
            data = request + SMUGGLED
            step = -(-len(data) // pieces)
            for at in range(0, len(data), step):
                raw.send(data[at:at + step])
            answer = raw.response()
            self.assertEqual(answer.status, status, answer.body)
            self.assertEqual(answer.headers["Connection"], "close")
            self.assertTrue(answer.error, "the refusal says why")
            self.assertTrue(raw.closed_by_peer(), "a second answer, or the connection stays")
        self.assertEqual(self.names(), before)

    def refuse_all(self, kinds, pieces=(1, 40)):
        for name, (status, request) in kinds.items():
            for n in pieces:
                with self.subTest(name, pieces=n):
                    self.assert_refused(status, request, n)

    def test_content_length(self):
        self.refuse_all(LENGTHS)

    def test_transfer_encoding(self):
        self.refuse_all(CODINGS)

    def test_chunks(self):
        self.refuse_all(CHUNKS)

    def test_head_lines(self):
        self.refuse_all(HEADS)

    def test_start_lines(self):
        self.refuse_all(START_LINES)

    def test_sizes(self):
        self.refuse_all(SIZES)

    def test_refused_behind_good_ones(self):
        """The good requests before it are answered, the refused one ends the connection."""
        with self.daemon.raw() as raw:
            raw.send(company("one") + get() + length(b"+15") + SMUGGLED)
            self.assertEqual(raw.response().status, 201)
            self.assertEqual(len(raw.response().json), 1)
            self.assertEqual(raw.response().status, 400)
            self.assertTrue(raw.closed_by_peer())
        self.assertEqual(self.names(), ["one"])

    def test_refused_on_the_unix_socket(self):
        for name, (status, request) in {**LENGTHS, **CODINGS}.items():
            with self.subTest(name), self.daemon.raw(unix=True) as raw:
                raw.send(request + SMUGGLED)
                self.assertEqual(raw.response().status, status)
                self.assertTrue(raw.closed_by_peer())
        self.assertEqual(self.names(), [])

    def test_refusal_while_the_client_still_sends(self):
        """It must not be lost in a reset because more was on its way."""
        with self.daemon.raw() as raw:
            raw.send(length(b"%d" % (MAX_BODY + 1)))
            for _ in range(16):
                raw.send(b"x" * 65536)
            self.assertEqual(raw.response().status, 413)
            raw.half_close()
            self.assertTrue(raw.closed_by_peer())

    def test_incomplete_requests_have_no_effect(self):
        for cut in (1, 20, len(SMUGGLED) - 1):
            with self.subTest(cut=cut), self.daemon.raw() as raw:
                raw.send(SMUGGLED[:cut]).half_close()
                self.assertTrue(raw.closed_by_peer())
        with self.daemon.raw() as raw:
            raw.send(chunked(CHUNK)).half_close()
            self.assertTrue(raw.closed_by_peer())
        self.assertEqual(self.names(), [])

    def test_a_body_is_never_a_request(self):
        """Also of requests that need none, or that are answered with an error."""
        body = SMUGGLED
        fields = HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body
        with self.daemon.raw() as raw:
            for line, status in ((b"GET /api/companies", 200), (b"DELETE /api/nothing", 404),
                                 (b"POST /api/companies", 400), (b"OPTIONS /api/companies", 200),
                                 (b"GET /api/health", 200)):
                raw.send(line + b" HTTP/1.1\r\n" + fields)
                self.assertEqual(raw.response().status, status, line)
            raw.send(b"POST /api/companies HTTP/1.1\r\n" + JSON + b"Origin: http://evil.example\r\n" + fields)
            self.assertEqual(raw.response().status, 403)
            raw.send(get())
            self.assertEqual(raw.response().json, [])

    def test_other_hosts_are_answered_once(self):
        """A refusal above the framing keeps the connection, with its body consumed."""
        with self.daemon.raw() as raw:
            raw.send(post(b"Content-Length: 15\r\n").replace(b"localhost", b"evil.example"))
            self.assertEqual(raw.response().status, 403)
            raw.send(get())
            self.assertEqual(raw.response().json, [])


class LimitsTest(BerthTest):
    """One short of what SIZES refuses is fine."""

    def test_at_the_limits(self):
        with self.daemon.raw() as raw:
            raw.send(get(target=b"/api/" + b"a" * (MAX_TARGET - 5)))
            self.assertEqual(raw.response().status, 404)
            raw.send(get(b"X: a\r\n" * (MAX_HEADERS - 1)))
            self.assertEqual(raw.response().status, 200)
            head = get(b"X: \r\n")
            raw.send(get(b"X: " + b"a" * (MAX_HEAD - len(head)) + b"\r\n"))
            self.assertEqual(raw.response().status, 200)

    def test_a_body_of_the_greatest_size(self):
        body = EVIL + b" " * (MAX_BODY - len(EVIL))
        with self.daemon.raw(timeout=30) as raw:
            raw.send(length(b"%d" % len(body))[:-len(EVIL)] + body)
            self.assertEqual(raw.response().status, 201)
            raw.send(chunked(b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"))
            self.assertEqual(raw.response().status, 201)


class GoodTest(BerthTest):
    def test_keep_alive(self):
        with self.daemon.raw() as raw:
            for _ in range(50):
                raw.send(get())
                answer = raw.response()
                self.assertEqual((answer.status, answer.json), (200, []))
                self.assertEqual(answer.headers["Keep-Alive"], "timeout=185")

    def test_pipelined(self):
        names = [f"c{i}" for i in range(30)]
        with self.daemon.raw() as raw:
            raw.send(b"".join(company(n) + get(target=b"/api/health") for n in names))
            for name in names:
                answer = raw.response()
                self.assertEqual((answer.status, answer.json["name"]), (201, name))
                self.assertEqual(raw.response().json["status"], "ok")

    def test_byte_by_byte(self):
        with self.daemon.raw() as raw:
            chunks = b"5\r\n%s\r\nA;x=y\r\n%s\r\n0\r\nX: y\r\n\r\n" % (EVIL[:5], EVIL[5:])
            for byte in company("slow") + chunked(chunks):
                raw.send(bytes([byte]))
            self.assertEqual(raw.response().json["name"], "slow")
            self.assertEqual(raw.response().json["name"], "evil")

    def test_request_behind_a_chunked_body(self):
        with self.daemon.raw() as raw:
            raw.send(chunked(CHUNK + b"0\r\n\r\n") + get())
            self.assertEqual(raw.response().status, 201)
            self.assertEqual(len(raw.response().json), 1)

    def test_close_when_asked(self):
        for request in (get(b"Connection: close\r\n"), get(b"Connection: keep-alive, Close\r\n"),
                        get(version=b"HTTP/1.0")):
            with self.subTest(request=request), self.daemon.raw() as raw:
                raw.send(request + SMUGGLED)
                self.assertEqual(raw.response().json, [])
                self.assertTrue(raw.closed_by_peer())
        self.assertEqual(self.ok("GET", "/api/companies"), [])

    def test_old_client_that_stays(self):
        with self.daemon.raw() as raw:
            for _ in range(2):
                raw.send(get(b"Connection: keep-alive\r\n", version=b"HTTP/1.0"))
                answer = raw.response()
                self.assertEqual(answer.status, 200)
                self.assertNotIn("chunked", answer.headers.get("Transfer-Encoding", ""))

    def test_head_has_no_body(self):
        with self.daemon.raw() as raw:
            raw.send(get(method=b"HEAD") + get())
            head = raw.response("HEAD")
            full = raw.response()
            self.assertEqual((head.status, head.body), (200, b""))
            self.assertEqual(head.headers["Content-Length"], full.headers["Content-Length"])

    def test_absolute_form_of_the_same_host(self):
        with self.daemon.raw() as raw:
            raw.send(get(target=b"http://LOCALHOST/api/companies"))
            self.assertEqual(raw.response().json, [])

    def test_answer_to_a_half_closed_client(self):
        with self.daemon.raw() as raw:
            raw.send(company("half") + get()).half_close()
            self.assertEqual(raw.response().status, 201)
            self.assertEqual(len(raw.response().json), 1)
            self.assertTrue(raw.closed_by_peer())

    def test_expect_continue(self):
        body = json.dumps({"name": "patient"}).encode()
        with self.daemon.raw() as raw:
            raw.send(post(b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(body), b""))
            self.assertEqual(raw.reader.readline(), b"HTTP/1.1 100 Continue\r\n")
            self.assertEqual(raw.reader.readline(), b"\r\n")
            raw.send(body)
            self.assertEqual(raw.response().json["name"], "patient")

    def test_expect_continue_for_what_is_refused(self):
        """No invitation to send what will not be read."""
        with self.daemon.raw() as raw:
            raw.send(post(b"Expect: 100-continue\r\nContent-Length: %d\r\n" % (MAX_BODY + 1), b""))
            self.assertEqual(raw.reader.peek(12)[:12], b"HTTP/1.1 413")
            self.assertEqual(raw.response().status, 413)
            self.assertTrue(raw.closed_by_peer())

    def test_idle_connections_are_given_up(self):
        many = [RawConnection(self.daemon.address) for _ in range(50)]
        wait_until(lambda: self.daemon.tcp_connections() == 50, "the connections are taken")
        for raw in many:
            raw.close()
        wait_until(lambda: self.daemon.tcp_connections() == 0, "the connections are given up")
