"""Other users of the daemon's machine. In local trusted mode the operator needs no key; the kernel says who that is, for
the port as for the socket, and everybody else signs in."""

import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import unittest

from berthtest import BINARIES, BerthTest, Response, wait_until

NOBODY = 65534
STRANGER = 58299  # no user has it

# A client of its own, because a test's process cannot become somebody else and come back.
CLIENT = """
import encodings.idna, http.client, json, os, sys
uid, host, port, method, path, headers = int(sys.argv[1]), *sys.argv[2:6], json.loads(sys.argv[6])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
connection = http.client.HTTPConnection(host, int(port), timeout=60)
for _ in range(int(sys.argv[7])):
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
print(json.dumps([answer.status, dict(answer.headers), body]))
"""

# Sends a request and is gone before anybody can ask the kernel who it was.
HIT_AND_RUN = """
import encodings.idna, os, socket, struct, sys
uid, host, port, how = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
os.setgroups([]); os.setgid(uid); os.setuid(uid)
sock = socket.create_connection((host, port))
body = b'{"name": "Mallory"}'
sock.sendall(b"POST /api/companies HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
             b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
if how == "reset":
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
sock.close()
"""


# Somebody has the port that daemons have, in a network of its own; somebody else calls. Prints how the call ended, and
# what was sent to the port.
IMPOSTOR = """
import os, socket, subprocess, sys
owner, caller, family, address, program = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
ready, told = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    os.setgroups([]); os.setgid(owner); os.setuid(owner)
    sock = socket.socket(getattr(socket, family))
    sock.bind((address, 3100)); sock.listen()
    os.write(ready[1], b".")
    peer, got = sock.accept()[0], b""
    while not got.endswith(b"\\r\\n\\r\\n"):
        got += peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n[]")
    os.write(told[1], got)
    os._exit(0)
os.close(told[1])
os.read(ready[0], 1)
done = subprocess.run([program, "company", "list"], capture_output=True, text=True, user=caller, group=caller, extra_groups=[],
                      env={"HOME": "/nonexistent", "PATH": os.environ["PATH"], "BERTH_API_KEY": "the-key"})
if done.returncode:
    os.kill(pid, 9)
os.waitpid(pid, 0)
print(done.returncode, done.stderr, os.read(told[0], 65536).decode())
"""


def open_to_all(path):
    """Other users may pass our temporary directories."""
    for parent in (path, *path.parents):
        if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
class ImpostorTest(BerthTest):
    """The port that nobody named may be anybody's while no daemon has it."""

    def call(self, owner, caller, family="AF_INET", address="127.0.0.1"):
        program = self.temp_dir() / "berth"
        shutil.copy(BINARIES["normal"], program)
        open_to_all(program.parent)
        program.chmod(0o755)
        return subprocess.run(["unshare", "--net", sys.executable, "-c", IMPOSTOR, str(owner), str(caller), family, address,
                               str(program)], stdout=subprocess.PIPE, text=True, check=True).stdout

    def test_another_user_has_the_port(self):
        for where in (("AF_INET", "127.0.0.1"), ("AF_INET", "0.0.0.0"), ("AF_INET6", "::")):
            said = self.call(STRANGER, NOBODY, *where)
            self.assertNotIn("the-key", said)
            self.assertIn(f"user {STRANGER}", said)
            self.assertIn("--api-url", said)

    def test_root_or_the_caller_has_the_port(self):
        for owner in (0, NOBODY):
            said = self.call(owner, NOBODY)
            self.assertTrue(said.startswith("0 "), said)
            self.assertIn("the-key", said)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
class LocalUserTest(BerthTest):
    def asks(self, uid, method, path, token=None, times=1, host=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        done = subprocess.run([sys.executable, "-c", CLIENT, str(uid), host or self.daemon.address[0],
                               str(self.daemon.address[1]), method, path, json.dumps(headers), str(times)],
                              capture_output=True, text=True, check=True, timeout=120)
        status, fields, body = json.loads(done.stdout)
        return Response(status, {"Content-Type": fields.get("Content-Type", "")}, body.encode())


class StrangerTest(LocalUserTest):
    # http-api 8.83
    def test_a_stranger_is_told_to_sign_in(self):
        self.company()
        for path in ("/api/companies", "/api/instance/settings/general", "/api/plugins", "/metrics", "/api/leaks"):
            answer = self.asks(NOBODY, "GET", path)
            self.assert_error(answer, 401, contains="berth key create --board")
            self.assertIn("you are another one", answer.error)
        self.assert_error(self.asks(NOBODY, "POST", "/api/companies"), 401)
        self.assert_status(self.asks(0, "GET", "/api/companies"), 200)
        # on one connection the answer stays the same
        self.assert_status(self.asks(NOBODY, "GET", "/api/companies", times=5), 401)

    def test_what_is_open_to_a_stranger(self):
        health = self.asks(NOBODY, "GET", "/api/health")
        self.assert_status(health, 200)
        self.assertNotIn("berthVersion", health.json)
        self.assertIn("berthVersion", self.asks(0, "GET", "/api/health").json)
        self.assert_status(self.asks(NOBODY, "GET", "/"), 200)

    def test_a_key_works_for_any_user(self):
        company = self.company()
        user = self.board_user(company)
        self.assertEqual([c["id"] for c in self.asks(NOBODY, "GET", "/api/companies", user["token"]).json],
                         [company["id"]])
        self.assert_error(self.asks(NOBODY, "GET", "/api/companies", "pcp_board_" + "0" * 48), 401, "Unauthorized")

    def test_signing_in(self):
        """Anybody may ask for a key; the operator approves it."""
        made = self.daemon.tcp.req("POST", "/api/cli-auth/challenges", {"command": "berth env list"}).json
        self.assert_error(self.asks(NOBODY, "GET", f"/api/cli-auth/challenges/{made['id']}"), 404)
        self.assert_error(self.asks(NOBODY, "GET", f"/api/cli-auth/challenges/{made['id']}?token=x"), 404)
        self.assert_status(self.asks(NOBODY, "GET", f"/api/cli-auth/challenges/{made['id']}?token={made['token']}"), 200)
        self.assert_status(self.asks(NOBODY, "GET", "/api/cli-auth/me"), 401)

    def test_one_who_is_gone_is_nobody(self):
        """The kernel shows the socket of a process that closed it as root's."""
        os.kill(self.daemon.process.pid, signal.SIGSTOP)  # it looks when they are gone
        try:
            for how in ("close", "reset"):
                subprocess.run([sys.executable, "-c", HIT_AND_RUN, str(NOBODY), self.daemon.address[0],
                                str(self.daemon.address[1]), how], check=True, timeout=60)
        finally:
            os.kill(self.daemon.process.pid, signal.SIGCONT)
        # They are served before us, who came later.
        self.assertEqual(self.ok("GET", "/api/companies"), [])
        wait_until(lambda: self.daemon.tcp_connections() <= 1, "they are done with")
        self.assertEqual(self.ok("GET", "/api/companies"), [])

    def test_a_websocket(self):
        company = self.company()
        script = CLIENT.replace(
            "connection.request(method, path, headers=headers)",
            "connection.request(method, path, headers={**headers, 'Connection': 'Upgrade', 'Upgrade': 'websocket', "
            "'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ=='})")
        done = subprocess.run([sys.executable, "-c", script, str(NOBODY), self.daemon.address[0],
                               str(self.daemon.address[1]), "GET", f"/api/companies/{company['id']}/events/ws", "{}", "1"],
                              capture_output=True, text=True, check=True, timeout=60)
        self.assertEqual(json.loads(done.stdout)[0], 403)


class NamedTest(LocalUserTest):
    daemon_env = {"BERTH_TRUSTED_UIDS": f"nobody,{STRANGER}"}

    def test_those_who_are_named(self):
        for uid in (NOBODY, STRANGER, 0):
            self.assert_status(self.asks(uid, "GET", "/api/companies"), 200)
        self.assert_status(self.asks(STRANGER + 1, "GET", "/api/companies"), 401)


class NamedInAuthenticatedModeTest(LocalUserTest):
    daemon_env = {"BERTH_TRUSTED_UIDS": str(STRANGER)}
    daemon_flags = ("--mode", "authenticated")

    def test_the_port_trusts_nobody(self):
        for uid in (0, STRANGER):
            self.assert_error(self.asks(uid, "GET", "/api/companies"), 403, "Board access required")


class SixTest(LocalUserTest):
    daemon_autostart = False

    def test_ipv6(self):
        self.daemon.listen = "[::1]:0"
        self.daemon.start()
        self.assert_status(self.asks(0, "GET", "/api/companies"), 200)
        self.assert_status(self.asks(NOBODY, "GET", "/api/companies"), 401)


class RootAsksTest(LocalUserTest):
    """A daemon of root's asks once whom else it is for."""

    daemon_autostart = False

    def started_on_a_terminal(self, typed, env=None):
        """What it asked, with `typed` for an answer. It is stopped once it listens."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        process = subprocess.Popen([self.daemon.binary, "serve", "--listen", "127.0.0.1:0", "--data",
                                    str(self.daemon.data)], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
                                   env={**clean, **(env or {})}, start_new_session=True)
        os.close(theirs)
        seen = b""
        if typed is not None:
            while b"] " not in seen:
                self.assertTrue(select.select([ours], [], [], 60)[0], seen)
                seen += os.read(ours, 4096)
            os.write(ours, typed.encode())
        try:
            self.assertRegex(process.stdout.readline().decode(), "^listening on ")
        finally:
            process.terminate()
            # Nobody may be kept from ending by a terminal that is full.
            while process.poll() is None:
                if select.select([ours], [], [], 0.05)[0]:
                    try:
                        seen += os.read(ours, 65536)
                    except OSError:
                        break
            process.wait(60)
            process.stdout.close()
        return seen.decode()

    def settings(self):
        file = self.daemon.data / "berth.toml"
        return file.read_text() if file.exists() else ""

    def test_the_answer_is_kept(self):
        (self.daemon.data / "berth.toml").write_text("[log]\nlevel = \"info\"\n")
        seen = self.started_on_a_terminal("nosuchuser\nnobody\n")
        self.assertIn("Which user of this machine", seen)
        self.assertIn("'nosuchuser' is neither", seen)
        self.assertEqual(self.settings(), 'trusted_uids = "nobody"\n[log]\nlevel = "info"\n')
        self.assertNotIn("Which user", self.started_on_a_terminal(None))
        self.daemon.start()
        self.assert_status(self.asks(NOBODY, "GET", "/api/companies"), 200)

    def test_sudo_is_suggested(self):
        seen = self.started_on_a_terminal("\n", {"SUDO_UID": str(NOBODY), "SUDO_USER": "nobody"})
        self.assertIn("[nobody]", seen)
        self.assertEqual(self.settings(), 'trusted_uids = "nobody"\n')

    def test_without_a_terminal(self):
        self.daemon.env.update(SUDO_UID=str(STRANGER))
        self.daemon.start()
        self.assert_status(self.asks(STRANGER, "GET", "/api/companies"), 200)
        self.assert_status(self.asks(NOBODY, "GET", "/api/companies"), 401)
        self.assertIn(f"user={STRANGER}", self.daemon.log())
        self.assertEqual(self.settings(), "")

    def test_nobody_is_there(self):
        self.daemon.start()
        self.assertIn("only root may use this daemon without a key", self.daemon.log())

    def test_a_name_that_is_no_user(self):
        self.daemon.env["BERTH_TRUSTED_UIDS"] = "nosuchuser"
        self.daemon.spawn().wait(expect=1)
        self.daemon.killed = True
        self.assertIn("'nosuchuser' is neither a user of this machine nor a number", self.daemon.log())


class OrdinaryUserTest(LocalUserTest):
    """A daemon that is no root asks the kernel the same."""

    daemon_autostart = False

    def test_its_own_user(self):
        folder = self.temp_dir()
        for name in ("berth", "berth-box"):
            shutil.copy2(pathlib.Path(self.daemon.binary).parent / name, folder / name)
        open_to_all(folder)
        script = folder / "as-nobody"
        script.write_text(f'#!/bin/sh\nexec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups '
                          f'"{folder}/berth" "$@"\n')
        script.chmod(0o755)
        os.chown(self.daemon.data, NOBODY, NOBODY)
        open_to_all(self.daemon.data.parent)
        self.daemon.binary = str(script)
        self.daemon.env["HOME"] = str(self.daemon.data)
        self.daemon.start()
        self.assert_status(self.asks(NOBODY, "GET", "/api/companies"), 200)
        self.assert_status(self.asks(0, "GET", "/api/companies"), 200)
        self.assert_status(self.asks(STRANGER, "GET", "/api/companies"), 401)


if __name__ == "__main__":
    unittest.main()
