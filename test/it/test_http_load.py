"""Clients that misbehave: too many, silent, slow to read, gone in the middle. The daemon serves the others
meanwhile, and keeps nothing of them."""
# threads: many connections, a full queue, a pool that is busy

# sqlite: holds a lock of the SQLite file

import contextlib
import json
import os
import resource
import select
import socket
import sqlite3
import struct
import threading
import unittest

from berthtest import FAKE_CONFIG, BerthTest, RawConnection, ident, wait_until

GET = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
RUN = "7b2f0a52-8a53-4c8e-9d4e-0a4e3f6f6a11"


class CrowdTest(BerthTest):
    daemon_autostart = False

    def start_limited(self, descriptors):
        """Start it with a hard limit of its own: a limit once lowered cannot be raised again."""
        script = self.temp_dir() / "berth"
        script.write_text(f'#!/bin/sh\nulimit -n {descriptors}\nexec "{self.daemon.binary}" "$@"\n')
        script.chmod(0o755)
        self.daemon.binary = str(script)
        self.daemon.start()

    def crowd(self, n, uid=None, source=None):
        many = []
        self.addCleanup(lambda: [raw.close() for raw in many])
        for _ in range(n):
            many.append(RawConnection(self.daemon.address, source=source, uid=uid))
        return many

    def make_user(self):
        """A company and a key in it, for clients whom the daemon does not know by their uid."""
        self.acme = self.operator("POST", "/api/companies", {"name": "Acme"}, 201)
        self.token = self.board_user(self.acme)["token"]

    def get(self, path):
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n"

    def listeners(self, n, uid):
        """Connections that are busy for good: each follows the company's events."""
        crowd = self.crowd(n, uid)
        for raw in crowd:
            raw.send(self.get(f"/api/companies/{self.acme['id']}/events"))
            self.assertIn(b"200 OK", raw.reader.readline())
        return crowd

    def asked(self, path="/api/health", uid=None, source=None):
        with RawConnection(self.daemon.address, source=source, uid=uid) as raw:
            return raw.send(self.get(path)).response()

    def test_silent_clients_keep_nobody_out(self):
        self.start_limited(256)
        crowd = self.crowd(300)
        for _ in range(3):
            with self.daemon.raw() as raw:
                self.assertEqual(raw.send(GET).response().status, 200)
        self.assert_status(self.daemon.req_unix("GET", "/api/health"), 200)
        # Room for operations is left: a new reader, a new environment.
        company = self.company()
        self.acquire(self.environment(company))
        self.assertTrue(crowd[0].closed_by_peer(), "who was idle longest gave way")
        self.assertEqual(crowd[-1].send(GET).response().status, 200)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for sockets of other users")
    def test_busy_clients_leave_the_operator_in(self):
        """A user has half of the connections at most, whatever addresses it comes from. When all are busy the next are
        told to come back; whether the daemon is well can still be asked."""
        self.start_limited(320)  # 64 are kept, half of the others are for connections
        self.make_user()
        crowd = self.listeners(64, 1)
        for source in ("127.0.0.1", "127.0.0.2", "127.9.9.9"):
            answer = self.asked(uid=1, source=source)
            self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "1"))
        self.assertEqual(self.asked("/api/companies", 2).status, 200)
        self.assertEqual(self.daemon.req("GET", "/api/companies").status, 200, "the operator's page")
        self.listeners(64, 2)
        answer = self.asked("/api/companies", 3)
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "1"))
        answer = self.asked(uid=3)
        self.assertEqual((answer.status, answer.headers["Connection"]), (200, "close"))
        self.assert_status(self.daemon.req_unix("POST", "/api/companies", {"name": "in"}), 201)
        crowd[1].close()
        wait_until(lambda: self.asked("/api/companies", 3).status == 200, "a place is free again")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for sockets of other users")
    def test_half_open_requests_lock_nobody_out(self):
        """One who begins requests and does not end them loses his own, not the others theirs."""
        self.start_limited(256)
        self.make_user()
        heads = self.crowd(200, 1)
        for raw in heads:
            with contextlib.suppress(OSError):
                raw.send(b"GET /api/comp")
        bodies = self.crowd(200, 2)
        for raw in bodies:
            with contextlib.suppress(OSError):
                raw.send(b"POST /api/companies HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Content-Length: 100\r\n\r\n{")
        for _ in range(3):
            self.assertEqual(self.asked("/api/companies", 3).status, 200)
            self.assertEqual(self.asked(uid=3).status, 200)
        wait_until(lambda: self.daemon.tcp_connections() <= 2 * 16 + 1, "what they began and did not end is given up")
        for uid in (1, 2):
            self.assertEqual(self.asked("/api/companies", uid).status, 200)

    def test_all_of_loopback_is_one_client(self):
        """Who comes from many addresses of 127.0.0.0/8 has what one client has."""
        self.start_limited(320)
        self.make_user()
        for i in range(64):
            raw = self.crowd(1, source=f"127.0.{i}.2")[0]
            raw.send(self.get(f"/api/companies/{self.acme['id']}/events"))
            self.assertIn(b"200 OK", raw.reader.readline())
        answer = self.asked("/api/companies", source="127.1.2.3")
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (503, "1"))

    def test_the_limit_is_raised(self):
        """The usual 1024 descriptors would be spent on connections alone."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < 8192:
            self.skipTest(f"the hard limit is {hard}")
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        try:
            self.daemon.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        soft = resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE)[0]
        self.assertGreater(soft, 4096 + 1024)


class DisconnectTest(BerthTest):
    """A client that goes away in the middle leaves nothing behind."""

    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_SWEEP_INTERVAL_MS": "50"}

    def setUp(self):
        self.world = self.temp_dir()
        self.daemon_env = {**self.daemon_env, "BERTH_FAKE_WORLD": str(self.world)}
        super().setUp()

    @staticmethod
    def reset(raw):
        """Gone without a farewell."""
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()

    def acquire_bytes(self, env, key):
        body = json.dumps({"idempotencyKey": key, "heartbeatRunId": RUN}).encode()
        return (b"POST /api/environments/%s/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % (ident(env).encode(), len(body))) + body

    def test_in_the_middle_of_acquire(self):
        """Each lease is either there to be found by its key, with its sandbox, or neither is."""
        env = self.environment(self.company())
        for i in range(60):
            with self.daemon.raw() as raw:
                raw.send(self.acquire_bytes(env, f"k{i}"))
                if i % 3 == 0:
                    self.reset(raw)
                elif i % 3 == 1:
                    raw.half_close()
        self.settle()
        leases = self.ok("GET", f"/api/environments/{env['id']}/leases?status=active")
        self.assertEqual({p.name for p in self.world.iterdir()}, self.held())
        self.assertEqual(len(leases), len(self.held()))
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)
        self.ok("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})
        self.settle()
        self.assertEqual(list(self.world.iterdir()), [])
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)

    def test_gone_before_the_lease_was_written(self):
        """Nobody knows of it, so it must not come to be. The database is held up meanwhile."""
        env = self.environment(self.company())
        body = b"{}"
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db", isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                raw = self.daemon.raw()
                raw.send(b"POST /api/environments/%s/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
                         b"Content-Type: application/json\r\n\r\n" % env["id"].encode() + body)
                self.addCleanup(raw.close)
                wait_until(lambda: not self.idle(), "the operation runs")
                self.reset(raw)
            wait_until(lambda: self.daemon.tcp_connections() <= 1, "the daemon heard that they are gone")
            db.execute("ROLLBACK")
        self.settle()
        self.assertEqual(self.ok("GET", f"/api/environments/{env['id']}/leases"), [])
        self.assertEqual((self.held(), list(self.world.iterdir())), (set(), []))
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)

    def held(self):
        return {r["id"] for r in self.daemon.sql("SELECT id FROM places WHERE state IN ('held', 'ready')")}

    def settle(self):
        """Nothing is on its way any more: all who came before us were taken, their connections are over,
        no operation runs, no place is between two states."""
        with self.daemon.raw() as raw:
            self.assertEqual(raw.send(GET).response().status, 200)
        wait_until(lambda: self.daemon.tcp_connections() <= 1, "only our own connection is left")
        wait_until(lambda: self.idle() and not self.daemon.sql(
            "SELECT id FROM places WHERE state NOT IN ('held', 'ready', 'gone')"), "all is done")

    def idle(self):
        metrics = self.req("GET", "/metrics").text
        return "\nberth_operations_queued 0\n" in metrics and "\nberth_operations_busy 1\n" in metrics  # our own

    def test_in_the_middle_of_a_body(self):
        for i in range(40):
            raw = self.daemon.raw()
            raw.send(b"POST /api/companies HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 100000\r\n\r\n" + b"{" * (i * 100))
            self.reset(raw) if i % 2 else raw.close()
        self.settle()
        self.assertEqual(self.ok("GET", "/api/companies"), [])

    def test_many_at_once(self):
        """More than there are threads and room in the queue: all are answered, by 201 or by 503."""
        env = self.environment(self.company())
        statuses = []

        def work(n):
            for i in range(10):
                with self.daemon.raw(timeout=30) as raw:
                    statuses.append(raw.send(self.acquire_bytes(env, f"{n}.{i}")).response().status)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(statuses), 160)
        self.assertLessEqual(set(statuses), {201, 503})
        self.settle()
        self.assertEqual(len(self.held()), statuses.count(201))


class NarrowTest(BerthTest):
    """One thread and one place in the queue."""

    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_OP_THREADS": "1", "BERTH_OP_QUEUE": "1"}

    def test_a_full_queue_is_503(self):
        company = self.company()
        request = b"GET /api/companies/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % company["id"].encode()
        crowd = [RawConnection(self.daemon.address) for _ in range(60)]
        for raw in crowd:
            self.addCleanup(raw.close)
            raw.send(request)
        answers = [raw.response() for raw in crowd]
        self.assertLessEqual({a.status for a in answers}, {200, 503})
        self.assertIn(200, {a.status for a in answers})
        for answer in answers:
            if answer.status == 503:
                self.assertEqual(answer.headers["Retry-After"], "1")
                self.assertTrue(answer.error)
        self.ok("GET", f"/api/companies/{company['id']}")


class NeverReadingTest(BerthTest):
    def test_pipeline_without_reading(self):
        """Answers that nobody takes do not pile up: reading stops until the client reads."""
        with self.daemon.raw(timeout=20) as raw:
            request = GET.replace(b"health", b"companies") * 500
            raw.sock.setblocking(False)
            sent, view = 0, memoryview(b"")
            while True:  # until the daemon takes no more and the buffers between are full
                try:
                    view = view or memoryview(request)
                    n = raw.sock.send(view)
                    sent, view = sent + n, view[n:]
                except BlockingIOError:
                    if not self.writable_soon(raw.sock):
                        break
                self.assertLess(sent, 256 << 20, "it takes requests without end")
            self.assertLess(self.daemon.rss_kb(), 400 << 10)
            self.assert_status(self.req("GET", "/api/companies"), 200)
            raw.sock.setblocking(True)
            raw.sock.settimeout(20)
            for _ in range(1000):
                self.assertEqual(raw.response().json, [])

    @staticmethod
    def writable_soon(sock):
        return bool(select.select([], [sock], [], 0.5)[1])

    def test_a_big_answer_nobody_reads(self):
        company = self.company()
        for i in range(50):
            self.environment(company, name=f"e{i}", description="d" * 60000, config=FAKE_CONFIG)
        path = f"/api/companies/{company['id']}/environments"
        whole = self.req("GET", path)
        self.assertGreater(len(whole.body), 3000000)
        with self.daemon.raw(timeout=30) as raw:
            raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
            raw.send(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
            self.assert_status(self.req("GET", "/api/health"), 200)
            self.assertEqual(json.loads(raw.response().body), json.loads(whole.body), "late, but whole")


