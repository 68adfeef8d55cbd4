"""What tests of the allow-list proxy stand on: a daemon whose local boxes have the proxy, a client of it, and origin
servers that tests script byte by byte.

The daemon is the one with crash points, which takes addresses for host names from a file (src/net/proxy_test_hosts.h).
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import threading

from exectest import ExecTest

TIMEOUT = 60


def free_port():
    """Beneath those that the system gives to connections, so that nobody gets it before it is used."""
    while True:
        port = random.randint(20000, 32000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


class Origin:
    """A server on loopback. `serve(connection)` is called for each connection, on a thread of its own."""

    def __init__(self, test, serve):
        self.serve = serve
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.failures = []
        self.accepted = 0
        threading.Thread(target=self.run, daemon=True).start()
        test.addCleanup(self.close)

    def run(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            conn.settimeout(TIMEOUT)
            threading.Thread(target=self.one, args=(conn,), daemon=True).start()

    def one(self, conn):
        try:
            with conn:
                self.serve(conn)
        except OSError:
            pass
        except BaseException as e:  # told to the test
            self.failures.append(e)

    def close(self):
        self.listener.close()


def read_head(conn):
    """The head of a message, and what came behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = conn.recv(65536)
        if not more:
            break
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


class Answer:
    def __init__(self, sock, method="GET"):
        response = http.client.HTTPResponse(sock, method=method)
        response.begin()
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode("utf-8", "replace")


class ProxyTest(ExecTest):
    daemon_binary = "faults"
    allowed = ["good.example", "*.wild.example", "odd.example:8443", "1.1.1.1", "10.0.0.7", "[fd00::7]:443", "localhost"]
    timeout_ms = None

    def setUp(self):
        self.port = free_port()
        self.hosts = pathlib.Path(self.temp_dir()) / "hosts"
        self.hosts.write_text("")
        self.daemon_env = {
            "BERTH_SWEEP_INTERVAL_MS": "50",
            "BERTH_TEST_EGRESS": json.dumps({"network": "allowlist", "allowedHosts": self.allowed}),
            "BERTH_TEST_EGRESS_PORT": str(self.port),
            "BERTH_TEST_HOSTS": str(self.hosts),
        }
        if self.timeout_ms:
            self.daemon_env["BERTH_TEST_EGRESS_TIMEOUT_MS"] = str(self.timeout_ms)
        super().setUp()
        self.sh("true")

    def resolve(self, **names):
        """good="1.2.3.4" makes good.example have that address; a number is the port of an origin on loopback."""
        lines = [f"{name}.example {f'!127.0.0.1:{to}' if isinstance(to, int) else to}\n" for name, to in names.items()]
        fresh = self.hosts.with_name("fresh")
        fresh.write_text("".join(lines))
        os.rename(fresh, self.hosts)

    def origin(self, serve, name="good"):
        origin = Origin(self, serve)
        self.resolve(**{name: origin.port})
        return origin

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        self.addCleanup(sock.close)
        return sock

    def ask(self, data, method="GET"):
        """Send bytes, get the answer; the proxy has closed its side then."""
        sock = self.connect()
        sock.sendall(data)
        answer = Answer(sock, method)
        self.assertEqual(sock.recv(1), b"")
        sock.close()
        return answer

    def tunnel(self, target="good.example:443"):
        """A connection through CONNECT."""
        sock = self.connect()
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = sock.recv(1)
            self.assertTrue(byte, f"ended in {head!r}")
            head += byte
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
        return sock

    def metric(self, name):
        for line in self.req("GET", "/metrics").text.splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        raise AssertionError(f"no metric {name}")
