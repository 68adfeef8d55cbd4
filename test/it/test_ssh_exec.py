"""Commands on ssh hosts: one connection for all leases of an environment, boxes at its other end, and lines that break."""
# threads: operations that log in, and the loop that owns the connection
# share 3: 8 s of processor time

import concurrent.futures
import json
import os
import unittest

from berthtest import wait_until
from exectest import marked
from proxytest import Origin, free_port
from sshtest import SshTest, processes


def clients(daemon):
    """The ssh processes of a daemon."""
    return [pid for pid, command in processes(daemon.process.pid) if command.startswith(b"ssh\0")]


class ExecCase(SshTest):
    def setUp(self):
        super().setUp()
        self.line = self.new_line()
        self.acme = self.company()
        self.env = self.ssh_environment(self.acme, port=self.line.port)

    @property
    def boxes(self):
        return self.fixture.home / ".cache" / "berth" / "boxes"

    def path(self, lease, began, what=""):
        return f"/api/environment-leases/{lease['id']}/executions/{began['execId']}{what}"

    def finished(self, lease, began, timeout=60):
        def look():
            row = self.ok("GET", self.path(lease, began))
            return row if row["status"] not in ("starting", "running") else None
        return wait_until(look, "the command ends", timeout)

    def output(self, lease, began, stream="stdout"):
        answer = self.req("GET", self.path(lease, began, f"/output?stream={stream}"))
        self.assert_status(answer, 200)
        return answer.body


class ExecTest(ExecCase):
    # remote-execution 8.37, 8.40, 8.45, 8.66, 8.68
    def test_commands(self):
        lease = self.acquire(self.env)["lease"]
        done = self.execute(lease, "sh", "-c", "pwd; echo no >&2; cat; exit 7", stdin="in\nput")
        self.assertEqual((done["exitCode"], done["stdout"], done["stderr"], done["timedOut"]),
                         (7, f"{self.fixture.workspace}\nin\nput", "no\n", False))
        odd = "a b\n'c' \"d\" $HOME `id` \\ \u00fc"
        self.assertEqual(self.execute(lease, "printf", "%s|%s", odd, "-n")["stdout"], f"{odd}|-n")
        self.assertEqual(self.execute(lease, "pwd", cwd="/usr")["stdout"], "/usr\n")
        self.assertEqual(self.execute(lease, "pwd", cwd="  ")["stdout"], f"{self.fixture.workspace}\n")
        self.assertEqual(self.execute(lease, "no-such-program")["exitCode"], 127)
        answer = self.req("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "pwd", "cwd": "sub"})
        self.assert_error(answer, 422, 'Working directory must be an absolute POSIX path on the remote target: "sub"')
        answer = self.req("POST", f"/api/environment-leases/{lease['id']}/execute",
                          {"command": "true", "env": {"BAD KEY": "x"}})
        self.assert_error(answer, 422, "Invalid SSH environment variable key: BAD KEY")

    # remote-execution 8.38, 8.42, 8.51
    def test_variables(self):
        (self.fixture.home / ".profile").write_text("echo noise; A=profile; B=profile; export A B\ncat\n")
        lease = self.acquire(self.env)["lease"]
        done = self.execute(lease, "sh", "-c", "echo $A $B; echo $HOME; echo $PATH; cat", stdin="mine",
                            env={"A": "mine", "HOME": os.environ["HOME"], "PATH": os.environ["PATH"] + ":/mine"})
        self.assertEqual(done["stdout"].split("\n"),
                         ["mine profile", str(self.fixture.home), os.environ["PATH"] + ":/mine", "mine"])

    def test_leases_share_one_connection(self):
        leases = [self.acquire(self.env)["lease"] for _ in range(3)]
        for lease in leases:
            self.assertEqual(self.execute(lease, "true")["exitCode"], 0)
        self.assertEqual(self.line.accepted, 1)
        self.assertEqual(len(clients(self.daemon)), 1)
        self.assertFalse([c for _, c in processes(self.daemon.process.pid) if b"ssh-agent" in c])
        for lease in leases:
            self.release(lease)
        again = self.acquire(self.env)["lease"]
        self.assertEqual(self.execute(again, "true")["exitCode"], 0)
        self.assertEqual(self.line.accepted, 1)

    def test_the_box_is_brought_once(self):
        first = self.acquire(self.env)["lease"]
        binary = next((self.fixture.home / ".cache" / "berth" / "bin").iterdir())
        before = binary.stat().st_ino
        self.release(first)
        second = self.ssh_environment(self.acme, name="second")
        self.execute(self.acquire(second)["lease"], "true")
        self.assertEqual([(p, p.stat().st_ino) for p in binary.parent.iterdir()], [(binary, before)])

    def test_a_box_that_is_broken_is_brought_again(self):
        folder = self.fixture.home / ".cache" / "berth" / "bin"
        self.release(self.acquire(self.env))
        binary = next(folder.iterdir())
        data = binary.read_bytes()
        binary.unlink()
        binary.write_bytes(data[:1000])
        binary.chmod(0o700)
        other = self.ssh_environment(self.acme, name="other")
        self.assertEqual(self.execute(self.acquire(other)["lease"], "true")["exitCode"], 0)
        self.assertGreater(binary.stat().st_size, 1000)

    def test_release_leaves_nothing(self):
        lease = self.acquire(self.env)["lease"]
        began = self.execute(lease, "sh", "-c", "sleep 300 & setsid sleep 300 & wait", detach=True, status=202)
        wait_until(lambda: len(marked([began["execId"]])) >= 3, "it runs")
        self.assertEqual(len(list(self.boxes.iterdir())), 1)
        self.assertEqual(self.release(lease)["lease"]["status"], "released")
        self.assertEqual(marked([began["execId"]]), [])
        self.assertEqual(list(self.boxes.iterdir()), [])
        self.assertEqual(list(self.fixture.workspace.iterdir()), [])
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)

    # remote-execution 8.39, 8.58
    def test_a_time_limit_kills_the_tree(self):
        lease = self.acquire(self.env)["lease"]
        done = self.execute(lease, "sh", "-c", "echo out; echo err >&2; sleep 300 & setsid sleep 300 & wait", timeoutMs=500)
        self.assertEqual((done["timedOut"], done["exitCode"], done["signal"]), (True, None, "SIGTERM"))
        self.assertEqual((done["stdout"], done["stderr"][:4]), ("out\n", "err\n"))
        self.assertEqual(marked([done["execId"]]), [])

    def test_a_caller_who_gives_up_kills_it_by_signal(self):
        lease = self.acquire(self.env)["lease"]
        began = self.execute(lease, "sleep", "300", detach=True, status=202)
        self.ok("POST", self.path(lease, began, "/signal"), {"signal": "SIGKILL"})
        self.assertEqual(self.finished(lease, began)["signal"], "SIGKILL")

    def test_input_that_comes_later(self):
        lease = self.acquire(self.env)["lease"]
        began = self.execute(lease, "cat", openStdin=True, detach=True, status=202)
        for piece in (b"one\n", b"two\n"):
            self.assert_status(self.req("POST", self.path(lease, began, "/stdin"), piece), 200)
        self.assert_status(self.req("POST", self.path(lease, began, "/stdin?eof=1"), b""), 200)
        self.finished(lease, began)
        self.assertEqual(self.output(lease, began), b"one\ntwo\n")

    def test_many_at_once(self):
        lease = self.acquire(self.env)["lease"]
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            done = list(pool.map(lambda i: self.execute(lease, "echo", str(i)), range(200)))
        self.assertEqual([d["stdout"] for d in done], [f"{i}\n" for i in range(200)])
        self.assertEqual(self.line.accepted, 1)

    # environment-runtime 7.98 and H20: a provisioning command runs on the host
    def test_what_the_seed_could_not_do(self):
        lease = self.acquire(self.env)["lease"]
        self.assertEqual(self.execute(lease, "sh", "-c", "touch provisioned")["exitCode"], 0)
        self.assertTrue((self.fixture.workspace / "provisioned").exists())

    def test_in_place(self):
        env = self.ssh_environment(self.acme, name="in place", config={"workspaceMode": "in_place"})
        self.assertEqual(env["config"]["workspaceMode"], "in_place")
        self.assertEqual(self.acquire(env)["lease"]["metadata"]["workspaceMode"], "in_place")


class NumberedCase(ExecCase):
    SCRIPT = 'i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "line $i"; sleep %s; done; exit 42'

    def numbered(self, lines, pause="0.01"):
        lease = self.acquire(self.env)["lease"]
        return lease, self.execute(lease, "sh", "-c", self.SCRIPT % (lines, pause), detach=True, status=202)

    def assert_whole(self, lease, began, lines):
        row = self.finished(lease, began, 120)
        self.assertEqual((row["status"], row["exitCode"]), ("exited", 42), row)
        self.assertEqual(self.output(lease, began).decode().split("\n"), [f"line {i}" for i in range(1, lines + 1)] + [""])


class BrokenLineTest(NumberedCase):
    def test_the_daemon_restarts(self):
        lease, began = self.numbered(300)
        self.daemon.restart()
        self.daemon.restart(crash=True)
        self.assert_whole(lease, began, 300)
        self.assertEqual(self.release(lease)["lease"]["status"], "released")
        self.assertEqual(list(self.boxes.iterdir()), [])

    def test_the_server_ends_every_connection(self):
        lease, began = self.numbered(600, "0.02")  # it must not end before the third
        known = 0
        for _ in range(3):
            known = wait_until(lambda k=known: (n := len(self.output(lease, began))) > k and n, "output comes", 60)
            seen = self.line.accepted
            for pid in [p for p, c in processes(self.fixture.process.pid) if c.startswith(b"sshd")]:
                os.kill(pid, 9)
            wait_until(lambda n=seen: self.line.accepted > n, "it is opened again", 60)
        self.assert_whole(lease, began, 600)

    def test_a_damaged_line(self):
        lease, began = self.numbered(100, "0.02")
        seen = self.line.accepted
        self.line.corrupt()
        wait_until(lambda: self.line.accepted > seen, "it is opened again", 60)
        self.assert_whole(lease, began, 100)

    def test_a_host_that_is_away_when_the_lease_ends(self):
        lease = self.acquire(self.env)["lease"]
        began = self.execute(lease, "sleep", "300", detach=True, status=202)
        self.line.refusing = True
        self.line.cut()
        released = self.release(lease)["lease"]
        self.assertEqual(released["status"], "released")
        self.assertGreater(self.ok("GET", "/api/leaks")["total"], 0)
        self.line.refusing = False
        wait_until(lambda: self.ok("GET", "/api/leaks")["total"] == 0, "the place is given up", 60)
        self.assertEqual(marked([began["execId"]]), [])
        self.assertEqual(list(self.boxes.iterdir()), [])

    def test_a_slow_line(self):
        lease = self.acquire(self.env)["lease"]
        self.line.delay = 0.05
        done = self.execute(lease, "sh", "-c", "cat; seq 20000", stdin="x" * 300000)
        self.line.delay = 0
        self.assertEqual(len(done["stdout"]), 300000 + len("".join(f"{i}\n" for i in range(1, 20001))))


class SilentLineTest(NumberedCase):
    daemon_env = {"BERTH_SSH_TIMEOUT_MS": "2000"}

    def test_a_line_on_which_nothing_comes(self):
        lease, began = self.numbered(100)
        before = clients(self.daemon)
        self.assertEqual(len(before), 1)
        self.line.stall()
        wait_until(lambda: before[0] not in clients(self.daemon), "the connection is given up", 30)
        self.line.cut()
        self.line.go_on()
        self.assert_whole(lease, began, 100)


class TunnelTest(ExecCase):
    """What listens beside the work on the host is served here, through the one connection."""

    daemon_binary = "faults"

    def setUp(self):
        self.port = free_port()
        hosts = self.temp_dir() / "hosts"
        self.daemon_env = {"BERTH_TEST_EGRESS": json.dumps({"network": "allowlist", "allowedHosts": ["good.example"]}),
                           "BERTH_TEST_EGRESS_PORT": str(self.port), "BERTH_TEST_HOSTS": str(hosts)}
        super().setUp()
        self.origin = Origin(self, lambda c: (c.recv(65536), c.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")))
        hosts.write_text(f"good.example !127.0.0.1:{self.origin.port}\n")

    def test_through_the_box(self):
        lease = self.acquire(self.env)["lease"]
        self.execute(lease, "true")
        command = ["curl", "-s", "--retry", "5", "--retry-connrefused", "-x", f"http://127.0.0.1:{self.port}"]
        self.assertEqual(self.execute(lease, *command, "http://good.example/")["stdout"], "hello\n")
        code = self.execute(lease, *command, "-o", "/dev/null", "-w", "%{http_code}", "http://bad.example/")["stdout"]
        self.assertEqual(code, "403")
        seen = self.line.accepted
        self.line.cut()
        wait_until(lambda: self.line.accepted > seen, "it is opened again", 60)
        self.assertEqual(self.execute(lease, *command, "http://good.example/")["stdout"], "hello\n")


if __name__ == "__main__":
    unittest.main()
