"""Where the requests of agents of type http go: to public addresses, and to those that the operator lists."""

import http.server
import threading
import unittest

from runtest import HookTest


class AddressTest(HookTest):
    def asked(self, url):
        agent = self.agent(self.acme, f"Web{len(self.runs())}", adapterType="http", adapterConfig={"url": url})
        return self.finished(self.wake(agent))

    def test_addresses_that_are_not_public(self):
        closed = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.addCleanup(closed.server_close)
        port = closed.server_port
        for host in ("127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0",
                     "169.254.169.254", "10.0.0.1", "192.168.1.1", "[fd00::1]", "[fe80::1]"):
            with self.subTest(host=host):
                run = self.asked(f"http://{host}:{port}/")
                self.assertEqual(run["status"], "failed")
                self.assertRegex(run["error"], r"is not public \(.+\).*private_hosts")
        closed.socket.setblocking(False)
        self.assertRaises(BlockingIOError, closed.socket.accept)
        self.assertEqual(self.requests, [])

    def test_one_that_the_operator_allows(self):
        run = self.finished(self.wake(self.hook()))
        self.assertEqual(run["status"], "succeeded", run)
        self.assertEqual(len(self.requests), 1)

    # The answer of one that is allowed leads nowhere else.
    def test_redirects(self):
        secret = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.addCleanup(secret.server_close)
        self.status, self.location = 302, f"http://127.0.0.1:{secret.server_port}/"
        self.finished(self.wake(self.hook()))
        secret.socket.setblocking(False)
        self.assertRaises(BlockingIOError, secret.socket.accept)

    # A proxy that the daemon's environment names would resolve the name itself.
    def test_no_proxy_is_asked(self):
        asked = threading.Event()

        class Proxy(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                asked.set()
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        proxy = http.server.HTTPServer(("127.0.0.1", 0), Proxy)
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        self.addCleanup(proxy.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(proxy.shutdown)
        self.daemon.stop()
        self.daemon.env["http_proxy"] = f"http://127.0.0.1:{proxy.server_port}"
        self.daemon.start()
        self.assertEqual(self.asked("http://10.255.255.1/")["status"], "failed")
        self.assertFalse(asked.is_set())


if __name__ == "__main__":
    unittest.main()
