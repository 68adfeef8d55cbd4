"""The network of a real sandbox: nothing, or the allow-list and nothing else."""

import pathlib
import unittest

from proxytest import Origin, read_head
from sandboxtest import SandboxTest

TRY_DIRECT = ("import socket, sys\n"
              "try:\n"
              "    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)\n"
              "    print('reached')\n"
              "except OSError as e:\n"
              "    print(type(e).__name__, e.errno)\n")


def answer(text):
    def serve(conn):
        read_head(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
    return serve


class NetworkTest(SandboxTest):
    daemon_binary = "faults"

    def setUp(self):
        self.hosts = pathlib.Path(self.temp_dir()) / "hosts"
        self.hosts.write_text("")
        self.daemon_env = {**self.daemon_env, "BERTH_TEST_HOSTS": str(self.hosts)}
        super().setUp()

    def resolve(self, *lines):
        self.hosts.write_text("".join(f"{line}\n" for line in lines))

    def direct(self, host, port):
        return self.run_ok("python3", ["-c", TRY_DIRECT, host, str(port)])["stdout"].strip()


class AllowlistTest(NetworkTest):
    config = {"network": "allowlist", "allowedHosts": ["good.example", "*.wild.example", "private.example"]}

    def test_curl_reaches_what_is_allowed_and_nothing_else(self):
        origin = Origin(self, answer(b"from outside"))
        self.resolve(f"good.example !127.0.0.1:{origin.port}", f"a.wild.example !127.0.0.1:{origin.port}",
                     f"evil.example !127.0.0.1:{origin.port}", "private.example 10.0.0.1")
        self.assertEqual(self.sh("curl -sS http://good.example/")["stdout"], "from outside")
        self.assertEqual(self.sh("curl -sS http://a.wild.example/")["stdout"], "from outside")
        refused = self.sh("curl -sS http://evil.example/")["stdout"]
        self.assertIn('add "evil.example" to "allowedHosts"', refused)
        self.assertIn("not public (private)", self.sh("curl -sS http://private.example/")["stdout"])
        self.assertIn("403", self.sh("curl -sS https://evil.example/")["stderr"])
        self.assertEqual(origin.accepted, 2)
        # Without the proxy there is no way: no route, no resolver, and loopback is the sandbox's own.
        self.assertNotEqual(self.sh("curl -sS --noproxy '*' http://good.example/")["exitCode"], 0)
        for host in ("127.0.0.1", "1.1.1.1", "10.0.0.1", "169.254.169.254"):
            self.assertNotIn("reached", self.direct(host, origin.port), host)
        self.assertEqual(origin.accepted, 2)

    def test_the_daemon_itself_is_out_of_reach(self):
        port = int(self.daemon.url.rsplit(":", 1)[1])
        self.assertNotIn("reached", self.direct("127.0.0.1", port))
        text = self.sh(f"curl -sS http://127.0.0.1:{port}/api/health --noproxy ''")["stdout"]
        self.assertIn("not among the allowed hosts", text)

    def test_two_sandboxes_have_the_same_port_and_lists_of_their_own(self):
        origin = Origin(self, answer(b"hello"))
        self.resolve(f"good.example !127.0.0.1:{origin.port}", f"other.example !127.0.0.1:{origin.port}")
        other = self.acquire(self.sandbox_environment("other", allowedHosts=["other.example"]))
        self.assertEqual(self.sh("curl -sS http://good.example/")["stdout"], "hello")
        self.assertEqual(self.sh("curl -sS http://other.example/", lease=other)["stdout"], "hello")
        self.assertIn("not among", self.sh("curl -sS http://other.example/")["stdout"])
        self.assertIn("not among", self.sh("curl -sS http://good.example/", lease=other)["stdout"])

    def test_a_restart_of_the_daemon(self):
        origin = Origin(self, answer(b"hello"))
        self.resolve(f"good.example !127.0.0.1:{origin.port}")
        self.assertEqual(self.sh("curl -sS http://good.example/")["stdout"], "hello")
        self.daemon.restart(crash=True)
        self.assertEqual(self.sh("curl -sS http://good.example/")["stdout"], "hello")

    def test_variables_are_set_and_may_be_changed(self):
        env = dict(line.split("=", 1) for line in self.sh("env")["stdout"].splitlines())
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            self.assertEqual(env[name], "http://127.0.0.1:3128")
        self.assertIn("127.0.0.1", env["NO_PROXY"])
        self.assertEqual(self.sh("echo $HTTP_PROXY", env={"HTTP_PROXY": "mine"})["stdout"], "mine\n")


class NoneTest(NetworkTest):
    def test_nothing_is_reached(self):
        origin = Origin(self, answer(b"no"))
        self.resolve(f"good.example !127.0.0.1:{origin.port}")
        self.assertNotEqual(self.sh("curl -sS http://good.example/")["exitCode"], 0)
        self.assertIn("ConnectionRefusedError", self.direct("127.0.0.1", 3128))
        self.assertEqual(self.sh("env | grep -i proxy")["stdout"], "")
        self.assertEqual(origin.accepted, 0)


if __name__ == "__main__":
    unittest.main()
