"""SSH environments: who is let in, what a probe and a lease say, and hosts that mean harm."""

import contextlib
import json
import os
import pathlib

import shutil
import socket
import subprocess
import threading
import unittest
import uuid

from berthtest import wait_until
from sshtest import Fixture, SshTest, missing_command, processes, ssh_keygen

RUN = "b3d7d2a4-6a0c-4b5c-9f2e-0d6f8f1c2a11"


def fingerprint(public_key):
    return subprocess.run(["ssh-keygen", "-lf", str(public_key)], capture_output=True, text=True,
                          check=True).stdout.split()[1]


@unittest.skipIf(missing_command(), missing_command())
class FixtureTest(SshTest):
    # remote-execution 8.65
    def test_it_starts_and_stops(self):
        lab = self.new_fixture()
        done = subprocess.run(["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={lab.known_hosts_path}",
                               "-i", lab.client_key, "-p", str(lab.port), f"{lab.username}@127.0.0.1",
                               f"cd {lab.workspace} && pwd"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, str(lab.workspace)), done.stderr)
        self.assertTrue(lab.running())
        self.assertEqual(lab.state()["kind"], "ssh_openbsd")
        self.assertEqual(lab.state_path.stat().st_mode & 0o777, 0o600)
        self.assertTrue(lab.stop())
        self.assertFalse(lab.running())
        self.assertFalse(lab.stop())

    # remote-execution 8.67
    def test_a_number_that_is_somebody_elses(self):
        other = subprocess.Popen(["sleep", "60"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        lab = Fixture(self.temp_dir() / "lab")
        lab.write_files()
        lab.process, lab.port = other, 1
        lab.write_state()
        self.assertFalse(lab.running())
        lab.start()
        self.addCleanup(lab.stop)
        self.assertTrue(lab.running())
        self.assertNotEqual(lab.state()["pid"], other.pid)
        self.assertIsNone(other.poll())


class ProbeTest(SshTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()

    # environment-runtime 7.57, 7.89; remote-execution 8.76; http-api 8.31
    def test_one_that_works(self):
        env = self.ssh_environment(self.acme)
        self.assertEqual(self.probe(env), {
            "ok": True, "driver": "ssh",
            "summary": f"Connected to {self.fixture.username}@127.0.0.1 and verified the remote workspace path.",
            "details": {"host": "127.0.0.1", "port": self.fixture.port, "username": self.fixture.username,
                        "remoteWorkspacePath": str(self.fixture.workspace),
                        "remoteCwd": str(self.fixture.workspace)}})
        self.assertEqual(self.fixture.log().count("Accepted publickey"), 1)
        row = next(r for r in self.ok("GET", f"/api/companies/{self.acme['id']}/activity")
                   if r["action"] == "environment.probed")
        self.assertEqual(row["details"]["driver"], "ssh")

    def test_nothing_is_kept_of_one_that_nobody_saved(self):
        self.assertTrue(self.probe_config(self.acme)["ok"])
        self.assertEqual(list((self.daemon.data / "ssh").glob("*/*")), [])

    def test_a_key_that_is_a_secret_already(self):
        """One that is not saved may refer to it, and the probe logs in with it."""
        secret = self.ok("POST", f"/api/companies/{self.acme['id']}/secrets",
                         {"name": "key", "value": self.fixture.client_key.read_text()}, status=201)
        answer = self.probe_config(self.acme, privateKey=None, privateKeySecretRef={
            "type": "secret_ref", "secretId": secret["id"], "version": 1})
        self.assertTrue(answer["ok"], answer)
        self.assertNotIn("PRIVATE KEY", str(answer))
        (event,) = self.ok("GET", f"/api/secrets/{secret['id']}/access-events")
        self.assertEqual((event["outcome"], event["actorType"], event["consumerId"], event["configPath"]),
                         ("success", "user", "unsaved", "privateKeySecretRef"))

    def test_the_workspace_is_made(self):
        deep = self.fixture.root / "a b" / "it's \"quoted\" $HOME `x` \\ ; -o" / "ü"
        answer = self.probe_config(self.acme, remoteWorkspacePath=str(deep))
        self.assertTrue(answer["ok"], answer)
        self.assertEqual(answer["details"]["remoteCwd"], str(deep))
        self.assertTrue(deep.is_dir())
        self.assertEqual(list(deep.iterdir()), [])

    def test_beneath_the_home_directory(self):
        answer = self.probe_config(self.acme, remoteWorkspacePath="/~/work/here")
        self.assertEqual(answer["details"]["remoteCwd"], str(self.fixture.home / "work" / "here"), answer)

    def failed(self, **config):
        answer = self.probe_config(self.acme, **config)
        self.assertFalse(answer["ok"], answer)
        self.assertEqual(answer["summary"],
                         f"SSH probe failed for {config.get('username', self.fixture.username)}@"
                         f"{config.get('host', '127.0.0.1')}.")
        self.assertTrue(answer["hint"])
        self.assertNotIn("\n", answer["hint"])
        self.assertEqual(set(answer["details"]),
                         {"host", "port", "username", "remoteWorkspacePath", "error", "code"})
        return answer["details"]["error"], answer["details"]["code"], answer["hint"]

    # environment-runtime 7.61; remote-execution 8.76; http-api 8.35
    def test_each_failure_has_its_hint(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            closed = s.getsockname()[1]
        error, code, hint = self.failed(port=closed)
        self.assertEqual((error, code), (f"ssh: connect to host 127.0.0.1 port {closed}: Connection refused", 255))
        self.assertIn("does not answer", hint)
        _, code, hint = self.failed(host="no-such-host.invalid")
        self.assertEqual(code, 255)
        self.assertIn("no host named", hint)
        other = self.temp_dir() / "other"
        ssh_keygen(other)
        error, code, hint = self.failed(privateKey=other.read_text())
        self.assertIn("Permission denied (publickey)", error)
        self.assertEqual(code, 255)
        self.assertIn("authorized_keys", hint)
        error, code, hint = self.failed(privateKey=None)
        self.assertIn("No key is configured", hint)
        error, code, hint = self.failed(privateKey="-----BEGIN NONSENSE-----")
        self.assertIsNone(code)
        self.assertIn("private key cannot be used", hint)
        error, code, hint = self.failed(remoteWorkspacePath="/proc/nowhere")
        self.assertEqual(code, 1)
        self.assertIn("/proc/nowhere", error)
        self.assertIn("cannot use the directory", hint)
        (self.fixture.root / "file").write_text("")
        error, code, hint = self.failed(remoteWorkspacePath=str(self.fixture.root / "file"))
        self.assertIn("cannot use the directory", hint)

    def test_a_full_disk(self):
        if os.geteuid() != 0:
            self.skipTest("mounting takes root")
        full = self.temp_dir() / "full"
        full.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4096", "none", full], capture_output=True).returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", full])
        with contextlib.suppress(OSError), open(full / "filler", "wb") as f:
            f.write(b"x" * 8192)
        _, code, hint = self.failed(remoteWorkspacePath=str(full))
        self.assertEqual(code, 1)
        self.assertIn("no space left", hint)


class LeaseTest(SshTest):
    # environment-runtime 7.7, 7.8, 7.33, 7.34, 7.37-7.39; remote-execution 8.77
    def test_a_lease_of_a_run(self):
        env = self.ssh_environment(self.company())
        record = self.acquire(env, heartbeatRunId=RUN)
        lease = record["lease"]
        self.assertEqual(lease["provider"], "ssh")
        self.assertEqual(lease["providerLeaseId"], f"ssh://{self.fixture.username}@127.0.0.1:{self.fixture.port}"
                         f"{self.fixture.workspace}")
        self.assertEqual(lease["leasePolicy"], "ephemeral")
        self.assertEqual(lease["metadata"], {
            "driver": "ssh", "executionWorkspaceMode": None, "host": "127.0.0.1", "port": self.fixture.port,
            "username": self.fixture.username, "remoteWorkspacePath": str(self.fixture.workspace),
            "remoteCwd": str(self.fixture.workspace)})
        self.assertEqual((lease["status"], lease["issueId"], lease["heartbeatRunId"]), ("active", None, RUN))
        self.assertEqual(record["leaseContext"], {"executionWorkspaceId": None, "executionWorkspaceMode": None})
        released = self.ok("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})
        self.assertEqual([(r["lease"]["id"], r["lease"]["status"]) for r in released], [(lease["id"], "released")])
        self.assertEqual(self.ok("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {}), [])
        self.assertIsNone(self.lease(lease)["lease"]["cleanupStatus"] if "lease" in self.lease(lease)
                          else self.lease(lease)["cleanupStatus"])

    # environment-runtime 7.45
    def test_two_environments_in_one_company(self):
        acme = self.company()
        first, second = self.ssh_environment(acme), self.ssh_environment(acme, name="second")
        self.assertNotEqual(first["id"], second["id"])

    def test_a_host_that_does_not_let_us_in(self):
        other = self.temp_dir() / "other"
        ssh_keygen(other)
        env = self.ssh_environment(self.company(), privateKey=other.read_text())
        answer = self.req("POST", f"/api/environments/{env['id']}/leases", {})
        self.assert_error(answer, 502, contains="does not accept the key")
        self.assertEqual(self.ok("GET", f"/api/environments/{env['id']}/leases"), [])
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)

    def test_realizing(self):
        env = self.ssh_environment(self.company())
        lease = self.acquire(env)["lease"]
        answer = self.ok("POST", f"/api/environment-leases/{lease['id']}/realize-workspace",
                         {"workspace": {"localPath": str(self.temp_dir())}})
        self.assertEqual(answer["cwd"], str(self.fixture.workspace))
        record = answer["metadata"]["workspaceRealization"]
        self.assertEqual(record["summary"], f"SSH workspace realized at {self.fixture.username}@127.0.0.1:"
                         f"{self.fixture.port}:{self.fixture.workspace}.")


class ApiUrlTest(SshTest):
    def test_the_first_that_answers_is_noted(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            closed = f"http://127.0.0.1:{s.getsockname()[1]}"
        other = self.new_daemon(env={"PAPERCLIP_RUNTIME_API_CANDIDATES_JSON":
                                     json.dumps([closed, 7, self.daemon.url, "http://127.0.0.1:1"])}).start()
        self.daemon, first = other, self.daemon
        env = self.ssh_environment(self.company())
        lease = self.acquire(env)["lease"]
        self.assertEqual(lease["metadata"]["paperclipApiUrl"], first.url)
        self.release(lease)


class CommandLineTest(SshTest):
    def address(self, path=None, port=None):
        return f"{self.fixture.username}@127.0.0.1:{port or self.fixture.port}{path or ''}"

    def create(self, *args):
        return self.cli("--json", "env", "create", "ssh", *args)

    def test_an_address_is_enough(self):
        self.company()
        status, out, err = self.create(self.address(), "--key", self.fixture.client_key, "--accept-host-key")
        self.assertEqual(status, 0, err)
        env = json.loads(out)
        self.assertEqual((env["name"], env["config"]["remoteWorkspacePath"]), ("127.0.0.1", "/~/berth"))
        self.assertIsNone(env["config"]["privateKey"])
        self.assertTrue((self.daemon.data / "ssh" / "known" / env["id"]).exists())
        self.assertEqual(self.acquire(env)["lease"]["metadata"]["remoteCwd"], str(self.fixture.home / "berth"))

    def test_what_does_not_work_is_not_saved(self):
        acme = self.company()
        with socket.create_server(("127.0.0.1", 0)) as s:
            closed = s.getsockname()[1]
        for args, says in (((self.address(), "--key", self.fixture.client_key), "The host key of 127.0.0.1 is not known"),
                           ((self.address(port=closed), "--key", self.fixture.client_key, "--accept-host-key"), "does not answer"),
                           ((self.address("/proc/nowhere"), "--key", self.fixture.client_key, "--accept-host-key"),
                            "cannot use the directory /proc/nowhere"),
                           ((self.address(), "--accept-host-key"), "None of your keys is accepted")):
            status, _, err = self.create(*args)
            self.assertEqual(status, 1, err)
            self.assertIn(says, err)
            self.assertEqual(len([line for line in err.splitlines() if line.startswith("berth:")]), 1, err)
        drivers = [e["driver"] for e in self.ok("GET", f"/api/companies/{acme['id']}/environments")]
        self.assertNotIn("ssh", drivers)

    def test_addresses_that_are_none(self):
        self.company()
        for word in ("user@", "user@host:", "user@host:0", "user@host:70000", "user@:22", "user@host:x/y"):
            status, _, err = self.create(word)
            self.assertEqual(status, 2, (word, err))

    def test_probe_prints_the_hint(self):
        env = self.ssh_environment(self.company(), knownHosts=None)
        status, out, _ = self.cli("env", "probe", env["id"])
        self.assertEqual(status, 1)
        self.assertIn("ssh-keyscan", out)


class KeyTest(SshTest):
    daemon_env = {"BERTH_SSH_TIMEOUT_MS": "60000"}

    def stalled_login(self):
        """A probe whose login has begun and does not go on; what it runs, and the way to let it go on."""
        line = self.new_line()
        env = self.ssh_environment(self.company(), port=line.port)
        line.stall()
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.req("POST", f"/api/environments/{env['id']}/probe", {})))
        asking.start()
        wait_until(lambda: any(b"ssh\0" in c and b"IdentityAgent" in c for _, c in processes(self.daemon.process.pid)),
                   "ssh runs")
        return line, asking, answers

    def test_the_key_is_nowhere_but_in_the_agent(self):
        line, asking, answers = self.stalled_login()
        secrets = [text for text in self.fixture.client_key.read_text().splitlines() if len(text) > 30]
        running = processes(self.daemon.process.pid)
        self.assertTrue(any(c.startswith(b"ssh-agent\0") for _, c in running), running)
        for pid, command in running:
            self.assertNotIn(secrets[0].encode(), command)
            self.assertNotIn(secrets[0].encode(), pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        for path in self.daemon.data.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                self.assertFalse([s for s in secrets if s.encode() in data], path)
        run = next((self.daemon.data / "ssh" / "run").iterdir())
        self.assertEqual(run.stat().st_mode & 0o777, 0o700)
        line.go_on()
        asking.join()
        self.assertTrue(answers[0].json["ok"], answers[0].body)
        self.assertEqual(processes(self.daemon.process.pid), [])
        self.assertEqual(list((self.daemon.data / "ssh" / "run").iterdir()), [])

    def test_what_was_started_ends_with_the_daemon(self):
        line, asking, _ = self.stalled_login()
        running = processes(self.daemon.process.pid)
        asking_failed = threading.excepthook
        threading.excepthook = lambda *_: None  # the one who asks loses his connection
        self.addCleanup(setattr, threading, "excepthook", asking_failed)
        self.daemon.kill()
        asking.join()
        for pid, command in running:
            wait_until(lambda p=pid: not pathlib.Path(f"/proc/{p}/exe").exists(), f"{command} ends")
        self.daemon.start()
        self.assertEqual(list((self.daemon.data / "ssh" / "run").iterdir()), [])


class OwnKeysTest(SshTest):
    """The operator's own agent counts when he said so, and only then."""

    def setUp(self):
        self.agent_dir = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"a-{uuid.uuid4().hex[:8]}"
        self.agent_dir.mkdir(mode=0o700)
        self.addCleanup(shutil.rmtree, self.agent_dir, ignore_errors=True)
        self.daemon_env = {"SSH_AUTH_SOCK": str(self.agent_dir / "s")}
        super().setUp()
        self.keeper = subprocess.Popen(["ssh-agent", "-D", "-a", self.agent_dir / "s"], stdout=subprocess.PIPE)
        self.addCleanup(self.keeper.stdout.close)
        self.addCleanup(self.keeper.wait)
        self.addCleanup(self.keeper.kill)
        self.keeper.stdout.readline()
        subprocess.run(["ssh-add", "-q", self.fixture.client_key], check=True,
                       env={**os.environ, **self.daemon_env})

    def test_only_when_told(self):
        acme = self.company()
        self.assertFalse(self.probe_config(acme, privateKey=None)["ok"])
        answer = self.probe_config(acme, privateKey=None, useSshConfig=True)
        self.assertTrue(answer["ok"], answer)

    def test_only_by_an_admin(self):
        acme = self.company()
        someone = self.board_user(acme, role="admin")
        body = {"name": "h", "driver": "ssh", "config": self.fixture.config(privateKey=None, useSshConfig=True)}
        path = f"/api/companies/{acme['id']}/environments"
        for where in (path, path + "/probe-config"):
            self.assert_error(self.req("POST", where, {k: v for k, v in body.items() if k != "name" or where == path},
                                       token=someone["token"]), 403, contains="instance admin")
        env = self.ok("POST", path, body, 201)
        self.assertIs(env["config"]["useSshConfig"], True)
        self.assert_error(self.req("PATCH", f"/api/environments/{env['id']}", {"config": {"host": "elsewhere"}},
                                   token=someone["token"]), 403, contains="instance admin")


class HostKeyTest(SshTest):
    def new_host_key(self):
        """The host is another one than before."""
        before = fingerprint(f"{self.fixture.host_key}.pub")
        self.fixture.host_key.unlink()
        ssh_keygen(self.fixture.host_key)
        self.fixture.process.send_signal(1)  # sshd reads its files anew
        key = self.fixture.host_key.with_suffix(".pub").read_text().split()[1]
        scan = ["ssh-keyscan", "-t", "ed25519", "-p", str(self.fixture.port), "127.0.0.1"]
        wait_until(lambda: key in subprocess.run(scan, capture_output=True, text=True).stdout, "sshd has its new key", 30)
        return before, fingerprint(f"{self.fixture.host_key}.pub")

    def test_nobody_said_who_it_is(self):
        answer = self.probe_config(self.company(), knownHosts=None)
        self.assertFalse(answer["ok"])
        self.assertIn("is not known", answer["hint"])
        self.assertIn("ssh-keyscan", answer["hint"])

    def test_another_one_than_before(self):
        env = self.ssh_environment(self.company())
        self.assertTrue(self.probe(env)["ok"])
        before, after = self.new_host_key()
        answer = self.probe(env)
        self.assertFalse(answer["ok"])
        self.assertIn(before, answer["hint"])
        self.assertIn(after, answer["hint"])
        self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {}), 502, contains=after)

    def test_recorded_when_the_operator_said_so(self):
        env = self.ssh_environment(self.company(), knownHosts=None, strictHostKeyChecking=False)
        record = self.daemon.data / "ssh" / "known" / env["id"]
        self.assertFalse(record.exists())
        self.assertTrue(self.probe(env)["ok"])
        self.assertEqual(fingerprint(record), fingerprint(f"{self.fixture.host_key}.pub"))
        self.assertEqual(record.stat().st_mode & 0o777, 0o600)
        self.daemon.restart()
        before, after = self.new_host_key()
        answer = self.probe(env)
        self.assertFalse(answer["ok"], answer)
        self.assertIn(before, answer["hint"])
        self.assertIn(after, answer["hint"])
        self.assertEqual(fingerprint(record), before)
        self.ok("DELETE", f"/api/environments/{env['id']}")
        self.assertFalse(record.exists())

    def test_a_key_that_was_refused_is_not_recorded(self):
        other = self.temp_dir() / "other"
        ssh_keygen(other)
        env = self.ssh_environment(self.company(), knownHosts=None, strictHostKeyChecking=False,
                                   privateKey=other.read_text())
        self.assertFalse(self.probe(env)["ok"])
        self.assertFalse((self.daemon.data / "ssh" / "known" / env["id"]).exists())


if __name__ == "__main__":
    unittest.main()
