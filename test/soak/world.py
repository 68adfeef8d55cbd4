"""What the soak plays on: one daemon with every kind of place that this machine can make, and where the effects of commands
are seen. Nothing here judges: that is checker.py's.

    world = World(directory, history, random)
    world.start()
    world.kinds         {"local": environment id, "sandbox": …, "reused": …, "pooled": …, "ssh": …, "plugin": …}
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from berthtest import BUILD, SOURCE, Client, Daemon, new_company, set_clock, wait_until
from providertest import TIMES, write_package
from proxytest import free_port
from sandboxrounds import Outside, pids, proc
from sshtest import SSHD, Fixture, Line, missing_command, processes

DISK_MB = 384
SECRETS = 2
ISSUES = 2
ENV = {
    "BERTH_SWEEP_INTERVAL_MS": "100", "BERTH_IDLE_PLACE_TTL_MS": "3000", "BERTH_CLOSE_TIMEOUT_MS": "5000",
    # A place whose acquire could not be undone is left alone for twice the one above and once this one.
    "BERTH_OPERATION_TIMEOUT_MS": "20000", "BERTH_OUTPUT_WAIT_MS": "5000", "BERTH_TEST_PLUGIN_TIMES": TIMES, "BERTH_LOG_LEVEL": "info",
}
# An agent's work: it notes that it began, and prints.
AGENT = 'echo x >> "began-$PAPERCLIP_RUN_ID"; i=0; while [ $i -lt 40 ]; do echo "line $i"; i=$((i+1)); sleep $0; done'
AGENT_OUTPUT = "".join(f"line {i}\n" for i in range(40))


def digest(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


class Missing(Exception):
    """This machine cannot make such a place."""

KINDS = ["local", "sandbox", "reused", "pooled", "ssh", "plugin"]


class World:
    def __init__(self, directory, history, random):
        self.dir = pathlib.Path(directory)
        self.history, self.random = history, random
        self.effects = self.dir / "effects"
        self.effects.mkdir()
        self.mounted = False
        self.data = self.dir / "d"
        self.data.mkdir()
        self.mount()
        self.clock = self.dir / "clock"
        self.control = self.dir / "faulty"
        self.control.write_bytes(bytes(8))
        env = {**ENV, "BERTH_TEST_CLOCK_FILE": str(self.clock), "LD_PRELOAD": str(BUILD / "test/harness/libfaulty.so"),
               "FAULTY": str(self.control), "FAULTY_BENEATH": str(self.data)}
        self.port = free_port()
        self.daemon = Daemon(data=self.data, env=env, binary="faults", listen=f"127.0.0.1:{self.port}")
        self.client = Client(("127.0.0.1", self.port), timeout=60)
        self.outside = None
        self.kinds, self.agents, self.missing = {}, {}, {}
        self.fixture = self.line = self.plugin = None
        self.expected_end = False

    def mount(self):
        """A small disk for the data, so that it can be filled."""
        if os.geteuid() == 0:
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "none", str(self.data)],
                                  capture_output=True)
            self.mounted = done.returncode == 0

    # The daemon.

    def up(self):
        """Start it; a look at what keeps it from starting otherwise."""
        try:
            self.daemon.start()
        except AssertionError as error:
            self.history.see("trouble", rule="not-started", text=str(error)[:2000])
            wait_until(self.try_again, "the daemon starts", 60)
        self.expected_end = False

    def try_again(self):
        time.sleep(0.5)  # it ended by itself: not again at once
        with contextlib.suppress(AssertionError):
            return self.daemon.start()
        return None

    def down(self):
        self.expected_end = True
        self.daemon.kill()

    def watch(self, excuse=None):
        """Whether it ended by itself: then it is started again. `excuse`: a fault that may end it."""
        if self.expected_end or self.daemon.running():
            return
        status = self.daemon.process.returncode
        if excuse is None:
            self.history.see("trouble", rule="daemon-died", text=f"status {status}: {self.daemon.log_tail(20)[-3000:]}")
        self.daemon.killed = True
        self.up()

    def ask(self, method, path, body=None, status=(200, 201, 202)):
        """For the driver's own steps, when nothing is broken."""
        answer = self.client.req(method, path, body)
        if answer.status not in status:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.text[:500]}")
        return answer.json

    def start(self, only=None):
        """`only`: the kinds of places that clients use; all that there are."""
        self.up()
        self.outside = Outside(self.daemon)
        self.company = self.ask("POST", "/api/companies", new_company("Soak"))["id"]
        self.environments = f"/api/companies/{self.company}/environments"
        self.kinds["local"] = next(e["id"] for e in self.ask("GET", self.environments) if e["driver"] == "local")
        for name, make in (("sandbox", self.make_sandboxes), ("ssh", self.make_ssh), ("plugin", self.make_plugin)):
            try:
                make()
            except Missing as why:
                self.missing[name] = str(why)
        self.make_records()
        self.used = {kind: i for kind, i in self.kinds.items() if not only or kind in only}
        self.make_agents()

    def environment(self, name, driver, **config):
        self.kinds[name] = self.ask("POST", self.environments, {"name": name, "driver": driver, "config": config})["id"]

    def make_sandboxes(self):
        probe = self.ask("POST", f"{self.environments}/probe-config", {"driver": "sandbox", "config": {"provider": "berth"}})
        if not probe["ok"]:
            raise Missing("this machine can make no sandboxes")
        self.environment("sandbox", "sandbox", provider="berth")
        self.environment("reused", "sandbox", provider="berth", reuseLease=True)
        self.environment("pooled", "sandbox", provider="berth", poolSize=2)

    def make_ssh(self):
        if missing_command():
            raise Missing(missing_command())
        self.fixture = Fixture(self.dir / "lab").start()
        self.line = Line(self.fixture.port)
        self.environment("ssh", "ssh", **self.fixture.config(port=self.line.port))

    def make_plugin(self):
        if not shutil.which("node"):
            raise Missing("node is not installed: manifests cannot be evaluated")
        package = write_package(self.dir / "package", SOURCE / "test/workers/runner.py")
        self.plugin = self.ask("POST", "/api/plugins/install", {"packageName": str(package), "isLocalPath": True})["id"]
        (self.data / "plugins/private" / self.plugin / "quiet").touch()
        self.environment("plugin", "sandbox", provider="acme", image="i")

    def make_records(self):
        self.issues = [self.ask("POST", f"/api/companies/{self.company}/issues", {"title": f"Soak {n}"})["id"]
                       for n in range(ISSUES)]
        self.secrets = {}  # id: the agent that has it as a variable
        for n in range(SECRETS):
            op = self.history.begin("rotate", secret=f"S{n}", sha=digest("first"))
            secret = self.ask("POST", f"/api/companies/{self.company}/secrets", {"name": f"S{n}", "value": "first"})
            self.history.end(op, "ok")
            agent = self.ask("POST", f"/api/companies/{self.company}/agents", {
                "name": f"keeper {n}", "adapterConfig": {"env": {"VALUE": {"type": "secret_ref", "secretId": secret["id"]}}}})
            self.secrets[f"S{n}"] = (secret["id"], agent["id"])

    def make_agents(self):
        for kind, environment in self.used.items():
            if kind in ("reused", "pooled"):
                continue
            home = self.dir / f"agent-{kind}"
            home.mkdir()
            for pause in ("0", "0.02"):
                agent = self.ask("POST", f"/api/companies/{self.company}/agents", {
                    "name": f"{kind} {pause}", "adapterType": "process", "defaultEnvironmentId": environment,
                    "adapterConfig": {"command": "/bin/sh", "args": ["-c", AGENT, pause], "cwd": str(home), "graceSec": 1}})
                self.agents[agent["id"]] = (kind, home)

    # What can be broken.

    def supervisors(self):
        """{pid: place id} of every box of this daemon, here and on the ssh host."""
        roots = [os.fsencode(os.path.realpath(self.data))]
        if self.fixture:
            roots.append(os.fsencode(self.fixture.home))
        found = {}
        for pid in pids():
            words = proc(pid, "cmdline").split(b"\0")
            if pid != self.daemon.process.pid and b"--id" in words and any(r in w for r in roots for w in words):
                found[pid] = words[words.index(b"--id") + 1].decode()
        return found

    def commands(self):
        """{pid: execution id} of what runs now."""
        open_now = {row["id"].encode(): row["id"] for row in
                    self.daemon.sql("SELECT id FROM executions WHERE status IN ('starting', 'running')")}
        found = {}
        for pid in pids():
            for word in proc(pid, "environ").split(b"\0"):
                if word.startswith(b"BERTH_EXEC=") and word[11:] in open_now:
                    found[pid] = open_now[word[11:]]
        return found

    def workers(self):
        """Processes of the plugin."""
        return [pid for pid, line in processes(self.daemon.process.pid) if b"worker.py" in line]

    def ssh_clients(self):
        return [pid for pid, line in processes(self.daemon.process.pid)
                if os.path.basename(line.split(b"\0")[0]) in (b"ssh", b"ssh:")]

    def sshd_again(self):
        """The same sshd on the same port."""
        fixture = self.fixture
        fixture.process.wait()
        fixture.process = subprocess.Popen([SSHD, "-D", "-f", str(fixture.config_path), "-E", str(fixture.log_path)],
                                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        fixture.write_state()
        wait_until(fixture.answers, "sshd answers", 20)

    def set_clock(self, seconds):
        set_clock(self.clock, seconds)

    def powercut_binary(self):
        """The same daemon with boxes that write down what they sync (test/it/powercut.py)."""
        folder = self.dir / "cut"
        if not folder.exists():
            folder.mkdir()
            shutil.copy2(self.daemon.binary, folder / "berth")
            shutil.copy2(BUILD / "test/harness/berth-box-powercut", folder / "berth-box")
        return str(folder / "berth")

    def behave(self, **methods):
        """As providertest.Provider: how the plugin answers from now on."""
        folder = self.data / "plugins/private" / self.plugin
        new = folder / "behave.new"
        with contextlib.suppress(OSError):  # the disk may be full: then it is as it was
            new.write_text(json.dumps({f"environment{name}": told for name, told in methods.items()}))
            new.rename(folder / "behave")

    # The end.

    def close(self):
        self.client.close()
        self.daemon.kill()
        for pid in {*self.supervisors(), *self.commands_of_all()}:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if self.line:
            self.line.close()
        if self.fixture:
            self.fixture.stop()
        if self.mounted:
            wait_until(lambda: subprocess.run(["umount", str(self.data)], capture_output=True).returncode == 0,
                       "the disk is free", 20)

    def commands_of_all(self):
        with contextlib.suppress(Exception):
            return self.outside.marked()
        return []
