"""A real sshd for tests, and a line that can be cut.

Fixture is the env-lab of the remote execution specification: an isolated sshd of this user on loopback, on a free port,
with throw-away keys, described by a state file. Line is a relay between client and server that delays,
stalls, cuts and corrupts at will. SshTest is a BerthTest with both at hand.

    class ProbeTest(SshTest):
        def test_it_answers(self):
            env = self.ssh_environment(self.company())
            self.assertTrue(self.ok("POST", f"/api/environments/{env['id']}/probe", {})["ok"])
"""

import contextlib
import getpass
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from berthtest import BerthTest, wait_until
from proxytest import free_port

NEEDED = ("ssh", "sshd", "ssh-keygen")
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
SHELL_PROFILES = (".profile", ".bash_profile", ".zprofile")


def missing_command():
    """Paperclip's text for a machine without ssh, or None."""
    for name in NEEDED:
        if not (SSHD if name == "sshd" else shutil.which(name)):
            return f"Missing required command: {name}"
    return None


def ssh_keygen(path, *more):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "berth-test", "-f", str(path), *more],
                   check=True, stdin=subprocess.DEVNULL)


def processes(parent):
    """Pid and command line of everything below a process."""
    found, waiting = [], [parent]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):  # it may end while we look
            for task in pathlib.Path("/proc").glob(f"{pid}/task/*/children"):
                with contextlib.suppress(OSError):
                    waiting += [int(p) for p in task.read_text().split()]
        with contextlib.suppress(OSError):
            found.append((pid, pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()))
    return found[1:]


class Fixture:
    """One sshd. `root` is where everything of it lies; `shell`, a path, stands in for the login shell."""

    def __init__(self, root, shell=None, options=()):
        self.root = pathlib.Path(root)
        self.state_path = self.root / "state.json"
        self.workspace = self.root / "workspace"
        self.home = self.root / "home"
        self.client_key = self.root / "client_key"
        self.host_key = self.root / "host_key"
        self.known_hosts_path = self.root / "known_hosts"
        self.config_path = self.root / "sshd_config"
        self.log_path = self.root / "sshd.log"
        self.shell = shell
        self.options = list(options)
        self.username = getpass.getuser()
        self.process = None
        self.port = None

    # State

    def state(self):
        try:
            return json.loads(self.state_path.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def running(self):
        """The process that the state names lives, and is that sshd: a number may be used again."""
        state = self.state()
        if not state:
            return False
        try:
            command = pathlib.Path(f"/proc/{state['pid']}/cmdline").read_bytes()
        except OSError:
            return False
        return str(self.config_path).encode() in command

    def write_state(self):
        text = json.dumps({
            "kind": "ssh_openbsd", "bindHost": "127.0.0.1", "host": "127.0.0.1", "port": self.port,
            "username": self.username, "rootDir": str(self.root), "workspaceDir": str(self.workspace),
            "statePath": str(self.state_path), "pid": self.process.pid, "createdAt": time.time(),
            "clientPrivateKeyPath": str(self.client_key), "clientPublicKeyPath": f"{self.client_key}.pub",
            "hostPrivateKeyPath": str(self.host_key), "hostPublicKeyPath": f"{self.host_key}.pub",
            "authorizedKeysPath": str(self.root / "authorized_keys"),
            "knownHostsPath": str(self.known_hosts_path), "sshdConfigPath": str(self.config_path),
            "sshdLogPath": str(self.log_path)})
        with open(os.open(self.state_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)

    # Life

    def write_files(self):
        for folder in (self.workspace, self.home):
            folder.mkdir(parents=True, exist_ok=True)
        for key in (self.client_key, self.host_key):
            if not key.exists():
                ssh_keygen(key)
        (self.root / "authorized_keys").write_text(self.client_key.with_suffix(".pub").read_text())

    def write_config(self):
        lines = [f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {self.host_key}",
                 f"PidFile {self.root / 'sshd.pid'}", f"AuthorizedKeysFile {self.root / 'authorized_keys'}",
                 "PubkeyAuthentication yes", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
                 f"PermitRootLogin {'prohibit-password' if self.username == 'root' else 'no'}",
                 "UsePAM no", "StrictModes no", f"AllowUsers {self.username}", "LogLevel VERBOSE", "UseDNS no",
                 "MaxStartups 200", "MaxSessions 100",
                 # The home of whoever runs the tests is not theirs to write to.
                 f"SetEnv HOME={self.home} XDG_CACHE_HOME={self.home}/.cache", "Subsystem sftp internal-sftp",
                 *([f"ForceCommand {self.shell}"] if self.shell else []), *self.options]
        self.config_path.write_text("\n".join(lines) + "\n")

    def known_hosts(self, port=None):
        key = self.host_key.with_suffix(".pub").read_text().split()
        return f"[127.0.0.1]:{port or self.port} {key[0]} {key[1]}"

    def answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as s:
            s.settimeout(2)
            return s.recv(4) == b"SSH-"
        return False

    def start(self):
        if self.running():
            self.port = self.state()["port"]
            return self
        self.write_files()
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        for _ in range(5):  # somebody may take the port between choosing and binding
            self.port = free_port()
            self.write_config()
            self.process = subprocess.Popen([SSHD, "-D", "-f", str(self.config_path), "-E", str(self.log_path)],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL)
            wait_until(lambda: self.answers() or self.process.poll() is not None, "sshd answers", 20)
            if self.process.poll() is None:
                break
        else:
            raise AssertionError(f"sshd does not start:\n{self.log()}")
        self.known_hosts_path.write_text(self.known_hosts() + "\n")
        self.write_state()
        return self

    def kill_sessions(self):
        """Every connection is cut from the server's side."""
        for pid, _ in processes(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self):
        if not self.state():
            return False
        if self.process and self.process.poll() is None:
            self.kill_sessions()
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)
        return True

    def log(self):
        try:
            return self.log_path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def config(self, **more):
        """The configuration of an environment there."""
        return {"host": "127.0.0.1", "port": self.port, "username": self.username,
                "remoteWorkspacePath": str(self.workspace), "privateKey": self.client_key.read_text(),
                "knownHosts": self.known_hosts(more.get("port")), **more}


class Line:
    """A relay on a port of its own. Each of the switches holds for all connections, from now on.

    stalled: nothing passes, either way. refusing: new connections are closed at once. corrupt(): the next
    bytes from the server are damaged. delay: seconds before each piece is passed on."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs = []
        self.lock = threading.Lock()
        self.open = threading.Event()
        self.open.set()
        self.refusing = False
        self.damage = 0
        self.delay = 0
        self.accepted = 0
        self.passed = 0  # bytes from the server
        self.cut_after = None  # bytes from the server, then every connection is cut
        self.over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.refusing or self.over:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self.lock:
                self.accepted += 1
                self.pairs.append((client, server))
            for a, b, from_server in ((client, server, False), (server, client, True)):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._carry, args=(a, b, from_server), daemon=True).start()

    def _carry(self, source, sink, from_server):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.open.wait()
                if self.delay:
                    time.sleep(self.delay)  # a slow line is what is tested here
                if from_server and self.damage:
                    self.damage -= 1
                    data = bytes(b ^ 0x55 for b in data)
                sink.sendall(data)
                if from_server:
                    self.passed += len(data)
                    if self.cut_after is not None and self.passed >= self.cut_after:
                        self.cut_after = None
                        self.cut()
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def connections(self):
        with self.lock:
            return len(self.pairs)

    def cut(self):
        """End every connection there is now."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for s in pair:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
                s.close()
        return len(pairs)

    def stall(self):
        self.open.clear()

    def go_on(self):
        self.open.set()

    def corrupt(self, pieces=1):
        self.damage = pieces

    def close(self):
        self.over = True
        self.go_on()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


@unittest.skipIf(missing_command(), missing_command())
class SshTest(BerthTest):
    sshd_shell = None
    sshd_options = ()

    def setUp(self):
        super().setUp()
        self.fixture = self.new_fixture(self.sshd_shell, self.sshd_options)

    def new_fixture(self, shell=None, options=()):
        fixture = Fixture(self.temp_dir() / "lab", shell, options)
        self.addCleanup(fixture.stop)
        return fixture.start()

    def new_line(self, fixture=None):
        line = Line((fixture or self.fixture).port)
        self.addCleanup(line.close)
        return line

    def script(self, text, name="shell"):
        """An executable file, for a login shell of our own."""
        path = self.temp_dir() / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    def acquire(self, environment, **body):
        record = super().acquire(environment, **body)
        self.addCleanup(self._let_go, record["lease"]["id"])  # a box would outlive the test
        return record

    def _let_go(self, lease):
        if self.daemon.running():
            self.req("POST", f"/api/environment-leases/{lease}/release", {})

    def ssh_environment(self, company, config=None, **more):
        return self.ok("POST", f"/api/companies/{company['id'] if isinstance(company, dict) else company}"
                       "/environments",
                       {"name": more.pop("name", "host"), "driver": "ssh",
                        "config": {**self.fixture.config(**more), **(config or {})}}, 201)

    def probe(self, env):
        return self.ok("POST", f"/api/environments/{env['id']}/probe", {})

    def probe_config(self, company, **config):
        return self.ok("POST", f"/api/companies/{company['id'] if isinstance(company, dict) else company}"
                       "/environments/probe-config",
                       {"driver": "ssh", "config": self.fixture.config(**config)})

    def execute(self, lease, command, *args, status=200, **more):
        return self.ok("POST", f"/api/environment-leases/{lease['id']}/execute",
                       {"command": command, "args": list(args), **more}, status)

