"""The events of a company, over the socket and as server-sent events: who may, order, coming back, falling
behind, and clients that do what no client may."""
# plain: the daemon's memory is measured
# threads: transactions that announce, and readers on the loop

import subprocess
import threading
import unittest

import berthtest
from berthtest import BerthTest, ident, wait_until
from exectest import memory_tells
from websockettest import PING_MS, Reading, Refused, WebSocket

NODE = r"""
const events = [];
const ws = new WebSocket(process.argv[1]);
ws.onopen = () => console.log("open");
ws.onmessage = (m) => { events.push(JSON.parse(m.data).payload.entityId); if (events.length === 3) ws.close(1000); };
ws.onclose = (e) => { console.log(JSON.stringify({ events, code: e.code, clean: e.wasClean })); };
ws.onerror = (e) => { console.log("error", e.message); process.exit(1); };
"""


class LiveTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.home = self.operator("POST", "/api/companies", {"name": "Acme"}, 201)

    def ws(self, path=None, **more):
        socket = WebSocket(self.daemon, path or self.path("/ws"), **more)
        self.addCleanup(socket.close)
        return socket

    def sse(self, query="", **more):
        stream = self.daemon.events(self.path(query), **more)
        self.addCleanup(stream.close)
        return stream

    def path(self, rest="", company=None):
        return f"/api/companies/{ident(company or self.home)}/events{rest}"

    def act(self, n=1, company=None):
        """Something happens: the ids of what was made, each of which is one `activity.logged`."""
        return [self.operator("POST", f"/api/companies/{ident(company or self.home)}/projects", {"name": f"p{i}"},
                              201)["id"] for i in range(n)]

    def take(self, reader, n):
        """The entities of the next n events, and the last of them."""
        ids, last = [], None
        for _ in range(n):
            last = reader.next()
            self.assertIsNotNone(last)
            last = last if isinstance(last, dict) else {**last.json, "sse": last}
            self.assertEqual(last["type"], "activity.logged", last)
            ids.append(last["payload"]["entityId"])
        return ids, last


class Feeds(LiveTest):
    def test_both_ways_tell_the_same(self):
        """http-api, section 4.1: the event's members and those of activity.logged."""
        socket, stream = self.ws(), self.sse()
        self.assertEqual(stream.headers["Content-Type"], "text/event-stream; charset=utf-8")
        made = self.act(3)
        by_socket, last = self.take(socket, 3)
        by_stream, same = self.take(stream, 3)
        self.assertEqual(by_socket, made)
        self.assertEqual(by_stream, made)
        self.assertEqual(same["sse"].type, "activity.logged")
        self.assertEqual(same.pop("sse").id, str(last["id"]))
        self.assertEqual(same, last)
        self.assertEqual(set(last), {"id", "companyId", "type", "createdAt", "payload"})
        self.assertEqual(last["companyId"], self.home["id"])
        self.assertEqual(set(last["payload"]), {"actorType", "actorId", "action", "entityType", "entityId", "agentId",
                                                "runId", "details"})

    def test_own_company_only(self):
        other = self.operator("POST", "/api/companies", {"name": "Other"}, 201)
        socket = self.ws()
        self.act(2, other)
        made = self.act(1)
        self.assertEqual(self.take(socket, 1)[0], made)

    def test_nothing_is_told_of_what_was_refused(self):
        socket = self.ws()
        self.assertEqual(self.req("POST", f"/api/companies/{self.home['id']}/projects", {"name": ""}).status, 400)
        made = self.act(1)
        self.assertEqual(self.take(socket, 1)[0], made)

    def test_coming_back(self):
        """http-api, section 9.17: replay."""
        socket = self.ws()
        made = self.act(5)
        _, second = self.take(socket, 2)
        socket.close()
        self.assertEqual(self.take(self.ws(self.path(f"/ws?lastEventId={second['id']}")), 3)[0], made[2:])
        self.assertEqual(self.take(self.sse(f"?lastEventId={second['id']}"), 3)[0], made[2:])
        self.assertEqual(self.take(self.sse(headers={"Last-Event-ID": str(second["id"])}), 3)[0], made[2:])

    def test_cut_off_before_the_first_event(self):
        """The stream says where it starts, so that nothing is lost even then."""
        stream = self.sse()
        start = stream.answer.readline() + stream.answer.readline()
        self.assertIn(b"id: ", start)
        number = start.partition(b"id: ")[2].decode().strip()
        stream.close()
        made = self.act(2)
        self.assertEqual(self.take(self.sse(headers={"Last-Event-ID": number}), 2)[0], made)

    def test_reset_over_a_restart(self):
        socket = self.ws()
        self.act(1)
        _, last = self.take(socket, 1)
        reading = socket.end_in_background()
        self.daemon.restart()
        reading.join()
        self.assertEqual((socket.status, socket.reason), (1001, "the daemon stops"))
        for connect in (lambda: self.ws(self.path(f"/ws?lastEventId={last['id']}")),
                        lambda: self.sse(f"?lastEventId={last['id']}")):
            again = connect()
            event = again.next()
            event = event if isinstance(event, dict) else event.json
            self.assertEqual(event["type"], "reset")
            self.assertEqual(event["payload"]["after"], last["id"])
            self.assertGreater(event["id"], last["id"])
            made = self.act(1)
            ids, first = self.take(again, 1)
            self.assertEqual(ids, made)
            self.assertGreater(first["id"], event["id"])

    def test_after_a_crash_numbers_go_on(self):
        socket = self.ws()
        self.act(1)
        _, last = self.take(socket, 1)
        self.daemon.restart(crash=True)
        event = self.sse(headers={"Last-Event-ID": str(last["id"])}).next()
        self.assertEqual(event.type, "reset")
        self.assertGreater(int(event.id), last["id"])

    def test_bad_numbers(self):
        for bad in ("x", "-1", "1x", "99999999999999999999"):
            self.assert_error(self.req("GET", self.path(f"?lastEventId={bad}")), 400)
            with self.assertRaises(Refused) as refused:
                self.ws(self.path(f"/ws?lastEventId={bad}"))
            self.assertEqual(refused.exception.response.status, 400)

    def test_head(self):
        self.assertEqual(self.req("HEAD", self.path()).status, 200)

    def test_node(self):
        """The socket of a real client."""
        url = "ws://%s:%d" % self.daemon.address + self.path("/ws")
        node = subprocess.Popen(["node", "--experimental-websocket", "-e", NODE, url], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(node.wait)
        self.addCleanup(node.stdout.close)
        self.assertEqual(node.stdout.readline(), "open\n")
        made = self.act(3)
        self.assertIn(made[0], line := node.stdout.readline())
        self.assertIn('"code":1000,"clean":true', line)

    def test_two_hundred_subscribers(self):
        sockets = [self.ws() for _ in range(100)]
        streams = [self.sse() for _ in range(100)]
        made = self.act(5)
        for reader in sockets + streams:
            self.assertEqual(self.take(reader, 5)[0], made)
        for reader in sockets + streams:
            reader.close()
        # That a stream's client has left shows when something is sent to it.
        wait_until(lambda: self.act(1) and self.daemon.tcp_connections() == 0, "all connections to be let go of")

    def test_stopping_does_not_wait(self):
        socket, stream = self.ws(), self.sse()
        reading = socket.end_in_background()
        streaming = threading.Thread(target=lambda: self.assertIsNone(stream.next()) or stream.close())
        streaming.start()
        self.daemon.stop()
        reading.join()
        streaming.join()
        self.assertEqual(socket.status, 1001)


class Slow(LiveTest):
    daemon_env = {"BERTH_LIVE_PING_MS": "3600000"}  # who does not read answers no ping either

    @berthtest.sqlite_only
    def test_one_that_does_not_read(self):
        """It is told what it missed; nobody waits for it, and it costs no memory."""
        slow, brisk = self.ws(), self.ws()
        before = self.daemon.rss_kb()
        seen, made = [], []
        reader = threading.Thread(target=lambda: seen.extend(brisk.next() for _ in range(60)))
        reader.start()
        for i in range(60):  # half a megabyte each: the ring goes round
            made += [self.operator("POST", f"/api/companies/{self.home['id']}/projects",
                                   {"name": str(i) + "x" * 500000}, 201)["id"]]
        reader.join()
        self.assertEqual([e["payload"]["entityId"] for e in seen], made)
        if memory_tells():
            self.assertLess(self.daemon.rss_kb() - before, 64 << 10)
        got = []
        while not got or got[-1]["id"] != seen[-1]["id"]:
            got.append(slow.next())
            if got[-1] is None and not memory_tells():
                self.skipTest("filling the ring took so long under a sanitizer that the client was cut off")
        at = [e["type"] for e in got].index("missed")
        self.assertEqual([e["type"] for e in got].count("missed"), 1)
        missed = got[at]["payload"]
        self.assertEqual(missed["after"], got[at - 1]["id"])
        self.assertEqual(missed["before"], got[at + 1]["id"])
        self.assertEqual(got[at]["id"], missed["before"] - 1)
        numbers = {e["id"]: e for e in seen}
        for event in got[:at] + got[at + 1:]:  # the others in order, as they were
            self.assertEqual(event, numbers[event["id"]])
        self.assertEqual(sorted(e["id"] for e in got), [e["id"] for e in got])


class WhoMay(LiveTest):
    daemon_flags = ("--mode", "authenticated")

    def refused(self, path=None, **more):
        with self.assertRaises(Refused) as refused:
            self.ws(path, **more)
        answer = refused.exception.response
        self.assertEqual((answer.status, answer.text), (403, "forbidden"))
        self.assertTrue(answer.headers["Content-Type"].startswith("text/plain"))

    def test_keys(self):
        """http-api, section 4.1 and 9.17: board keys too; who may not is told nothing."""
        other = self.operator("POST", "/api/companies", {"name": "Other"}, 201)
        agent, foreign = self.agent(self.home), self.agent(other)
        board, stranger = self.board_user(self.home, "ann"), self.board_user(other, "bob")
        for token in (agent["token"], board["token"]):
            for socket in (self.ws(token=token), self.ws(self.path(f"/ws?token={token}")),
                           self.sse(token=token)):
                made = self.act(1)
                while self.take(socket, 1)[0] != made:
                    pass
        for token in (foreign["token"], stranger["token"], "pcp_nothing"):
            self.refused(token=token)
            self.refused(self.path(f"/ws?token={token}"))
            self.assertIn(self.sse(token=token).status, (401, 403))
        self.refused()
        self.refused(self.path("/ws", "2942"), token=board["token"])
        self.refused(self.path("/ws", "00000000-0000-4000-8000-000000000000"), token=board["token"])
        # A bad header is not mended by a good query.
        self.refused(self.path(f"/ws?token={board['token']}"), token="pcp_nothing")

    def test_origin(self):
        board = self.board_user(self.home, "ann")
        host = "%s:%d" % self.daemon.address
        self.refused(token=board["token"], headers={"Origin": "http://evil.example"})
        self.refused(token=board["token"], headers={"Origin": "null"})
        self.ws(token=board["token"], headers={"Origin": f"http://{host}"})


class Revoked(LiveTest):
    daemon_flags = ("--mode", "authenticated")
    daemon_env = PING_MS

    def test_a_revoked_key_ends_its_feeds(self):
        board = self.board_user(self.home, "ann")
        stream, socket = self.sse(token=board["token"]), self.ws(token=board["token"])
        reading = [Reading(socket), Reading(stream)]
        self.operator("DELETE", f"/api/board-api-keys/{board['id']}")
        for reader in reading:
            reader.join()
        self.assertEqual((socket.status, socket.reason), (1008, "forbidden"))


class Pings(LiveTest):
    daemon_env = PING_MS

    def test_who_answers_stays(self):
        socket, stream = self.ws(), self.sse()
        while socket.pings < 3:  # the socket sends nothing else
            kind, data = socket.frame()
            self.assertEqual(kind, 9)
            socket.pings += 1
            socket.send_frame(0x8A, data)
        made = []
        acting = threading.Thread(target=lambda: made.extend(self.act(1)))
        acting.start()  # while the pings are answered
        self.addCleanup(acting.join)
        seen, _ = self.take(socket, 1)
        acting.join()
        self.assertEqual(seen, made)
        while stream.answer.readline() != b": still here\n":
            pass

    def test_who_does_not_is_gone(self):
        """http-api, section 4.1: a client that missed the previous pong is terminated."""
        socket = self.ws(answer_pings=False)
        self.assertIsNone(socket.next())
        self.assertEqual(socket.pings, 1)
        self.assertEqual(socket.status, 1001)


class Hostile(LiveTest):
    def ended(self, socket):
        self.assertIsNone(socket.next())
        return socket.status

    def test_other_paths_get_no_answer(self):
        """http-api, section 4.1: other upgrade path."""
        for path in ("/api/nothing/ws", self.path(), "/", "/api/health"):
            with self.assertRaises(ConnectionResetError):
                self.ws(path)

    def test_no_socket_wanted(self):
        self.assert_error(self.req("GET", self.path("/ws")), 400, contains="WebSocket")
        for headers in ({"Sec-WebSocket-Key": None}, {"Sec-WebSocket-Key": "short"}, {"Sec-WebSocket-Version": "8"}):
            with self.assertRaises(Refused) as refused:
                self.ws(headers=headers)
            self.assertEqual(refused.exception.response.status, 400)
        with self.assertRaises(Refused) as refused:
            self.ws(headers={"Host": "evil.example"})
        self.assertEqual(refused.exception.response.status, 403)

    def test_frames_that_are_forbidden(self):
        self.assertEqual(self.ended(self.ws().send_frame(0x81, b"x", mask=None)), 1002)
        self.assertEqual(self.ended(self.ws().send_frame(0xF1, b"x")), 1002)
        self.assertEqual(self.ended(self.ws().send_frame(0x80, b"x")), 1002)
        self.assertEqual(self.ended(self.ws().send_frame(0x89, b"x" * 126)), 1002)
        self.assertEqual(self.ended(self.ws().send_frame(0x81, b"\xff")), 1007)
        self.assertEqual(self.ended(self.ws().send_frame(0x82, b"x" * 5000)), 1009)
        huge = self.ws()
        huge.raw.send(b"\x82\xff\x7f" + b"\xff" * 7 + b"mask")
        self.assertEqual(self.ended(huge), 1009)

    def test_what_clients_may(self):
        socket = self.ws()
        socket.send("whatever").send_frame(0x01, b"in ").send_frame(0x89, b"hi").send_frame(0x80, b"parts")
        self.assertEqual(socket.frame(), (10, b"hi"))
        socket.send_frame(0x8A)  # a pong that nobody asked for
        made = self.act(1)
        self.assertEqual(self.take(socket, 1)[0], made)
        socket.send_frame(0x88, b"\x03\xe8bye")
        self.assertEqual(self.ended(socket), 1000)
        self.assertIsNone(socket.frame())

    def test_byte_by_byte_and_gone_in_the_middle(self):
        socket = self.ws()
        for b in b"\x89\x82\0\0\0\0hi":
            socket.raw.send(bytes([b]))
        self.assertEqual(socket.frame(), (10, b"hi"))
        socket.raw.send(b"\x89\xfe")
        socket.close()
        wait_until(lambda: self.daemon.tcp_connections() == 0, "the connection to be let go of")
        self.assertEqual(self.req("GET", "/api/health").status, 200)


class Clock(LiveTest):
    daemon_binary = "faults"

    def setUp(self):
        self.clock = self.temp_dir() / "clock"
        self.clock.write_text(str(30 * 24 * 3600))
        self.daemon_env = {"BERTH_TEST_CLOCK_FILE": str(self.clock)}
        super().setUp()

    def test_numbers_grow_when_the_clock_is_set_back(self):
        last = {"id": 0}
        for crash in (True, False, True):
            socket = self.ws()
            self.act(1)
            _, event = self.take(socket, 1)
            socket.close()
            self.assertGreater(event["id"], last["id"])
            last = event
            self.clock.write_text("0")
            self.daemon.restart(crash=crash)
        event = self.sse(headers={"Last-Event-ID": str(last["id"])}).next()
        self.assertEqual(event.type, "reset")
        self.assertGreater(int(event.id), last["id"])


if __name__ == "__main__":
    unittest.main()
