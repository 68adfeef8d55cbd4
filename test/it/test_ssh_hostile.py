"""SSH hosts that mean harm: words that are options, login shells that print or hang, servers that are none."""

import contextlib
import os
import shutil
import socket
import threading
import unittest

from berthtest import ident, wait_until
from sshtest import SshTest, processes


class InjectionTest(SshTest):
    """Words of a configuration are never options, and never a shell's."""

    def test_words_that_ssh_would_misread(self):
        acme = self.company()
        mark = self.temp_dir() / "touched"
        evil = [f"-oProxyCommand=touch {mark}", "-o", "a b", "x\ny", "$(touch x)", "`touch x`", "a;touch x", "a'b", 'a"b',
                "-F/dev/null", "--", "x|y", "x\\y", "%h"]
        for word in evil:
            for field in ("host", "username"):
                if field == "host" and word == "%h":
                    continue
                answer = self.probe_config(acme, **{field: word})
                self.assertFalse(answer["ok"], (field, word))
                self.assertIsNone(answer["details"]["code"], (field, word, answer))
        self.assertFalse(self.probe_config(acme, remoteWorkspacePath="/a\nb")["ok"])
        self.assertFalse(mark.exists())
        self.assertEqual(self.fixture.log().count("Accepted publickey"), 0)

    def test_a_lease_refuses_them_too(self):
        env = self.ssh_environment(self.company(), username="-oProxyCommand=true")
        self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {}), 422, contains="user name")


class HostileShellTest(SshTest):
    """Login shells that print, that are no sh, and that do not go on."""

    daemon_env = {"BERTH_SSH_TIMEOUT_MS": "1500"}

    def probe_with(self, shell, **config):
        self.fixture = self.new_fixture(self.script(shell))
        return self.probe_config(self.company(), **config)

    def test_noise_before_the_command(self):
        answer = self.probe_with("head -c 100000 /dev/urandom; printf 'Welcome!'\necho oops >&2\n"
                                 "exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n")
        self.assertTrue(answer["ok"], answer)
        self.assertEqual(answer["details"]["remoteCwd"], str(self.fixture.workspace))

    def test_noise_without_end(self):
        answer = self.probe_with("exec yes\n")
        self.assertFalse(answer["ok"])
        self.assertIn("prints too much", answer["hint"])

    def test_errors_without_end(self):
        answer = self.probe_with("exec yes 'x' >&2\n")
        self.assertFalse(answer["ok"])
        self.assertLess(len(answer["details"]["error"]), 5000)

    def test_a_shell_that_hangs(self):
        answer = self.probe_with("exec cat >/dev/null\n")
        self.assertFalse(answer["ok"])
        self.assertIn("does not go on", answer["hint"])

    def test_a_shell_that_refuses(self):
        answer = self.probe_with("echo 'This account is not available.' >&2; exit 1\n")
        self.assertEqual((answer["ok"], answer["details"]["code"]), (False, 1))
        self.assertEqual(answer["hint"], "This account is not available.")

    def test_a_host_that_lies(self):
        """Its words carry our mark, which it has read from the script."""
        for says in ("cwd relative", "cwd /a\x07b", "nonsense", "ready /tmp", "need x86_64", "cwd /x\nsay done extra"):
            with self.subTest(says):
                answer = self.probe_with("m=$(dd bs=1 count=40 2>/dev/null | sed \"s/m='//;s/'.*//\" | head -1)\n"
                                         f"printf '%sstart\\n%s%s\\n' \"$m\" \"$m\" '{says}'\nexit 0\n")
                self.assertFalse(answer["ok"] and not answer["details"]["remoteCwd"].startswith("/"), answer)

    def test_a_host_that_names_a_file(self):
        """What looks like the word of ssh about a changed key: only files that ssh itself looks into are read for it."""
        folder = self.temp_dir()
        os.mkfifo(folder / "known_hosts")  # whoever opens it waits
        answer = self.probe_with("echo '@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @' >&2\n"
                                 f"echo 'Offending ED25519 key in {folder}/known_hosts:1' >&2; exit 1\n")
        self.assertFalse(answer["ok"])
        self.assertIn("known is another", answer["hint"])

    def test_shells_that_are_not_sh(self):
        for name in ("csh", "tcsh", "fish", "zsh", "dash", "bash"):
            shell = shutil.which(name)
            if not shell:
                continue
            with self.subTest(name):
                answer = self.probe_with(f"exec {shell} -c \"$SSH_ORIGINAL_COMMAND\"\n")
                self.assertTrue(answer["ok"], answer)


class HostileRelayTest(SshTest):
    """The host says that the box is there, and then does something else."""

    daemon_env = {"BERTH_SSH_TIMEOUT_MS": "1500"}

    def acquire_with(self, then):
        shell = self.script("m=$(dd bs=1 count=34 2>/dev/null | sed \"s/m='//;s/'.*//\")\n"
                            "printf '\\n%sstart\\n%scwd /w\\n%sready /tmp\\n' \"$m\" \"$m\" \"$m\"\n" + then)
        self.fixture = self.new_fixture(shell)
        env = self.ssh_environment(self.company())
        return self.req("POST", f"/api/environments/{env['id']}/leases", {})

    def test_what_is_no_relay(self):
        for then in ("exit 0\n", "exec cat >/dev/null\n", "head -c 300000 /dev/urandom\n", "exec yes\n",
                     "printf '\\0\\0\\0\\12BRLY'; exec cat >/dev/null\n"):
            with self.subTest(then):
                self.assert_error(self.acquire_with(then), 502)
                wait_until(lambda: not processes(self.daemon.process.pid), "ssh is ended")
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)


class CachedBoxTest(SshTest):
    """A command on the host has the same rights as the login, and can write to where the box is kept."""

    def setUp(self):
        super().setUp()
        self.env = self.ssh_environment(self.company())
        self.lease = self.acquire(self.env)
        self.run_true()
        (self.cached,) = (self.fixture.home / ".cache/berth/bin").glob("berth-box-*")
        self.good = self.cached.read_bytes()
        self.mark = self.temp_dir() / "it-ran"

    def run_true(self):
        self.assertEqual(self.ok("POST", f"/api/environment-leases/{ident(self.lease)}/execute", {"command": "true"})["exitCode"], 0)

    def log_in_again(self):
        logins = self.fixture.log().count("Accepted publickey")
        self.fixture.kill_sessions()
        wait_until(lambda: self.fixture.log().count("Accepted publickey") > logins, "the daemon logs in again")
        wait_until(lambda: self.ok_now(), "commands run again")

    def ok_now(self):
        return self.req("POST", f"/api/environment-leases/{ident(self.lease)}/execute", {"command": "true"}).status == 200

    def replace(self, content):
        new = self.cached.with_name("other")
        new.write_bytes(content)
        new.chmod(0o755)
        os.replace(new, self.cached)

    def test_another_program_in_its_place(self):
        self.replace(f"#!/bin/sh\n: >{self.mark}\nexec cat\n".encode())
        self.log_in_again()
        self.assertFalse(self.mark.exists(), "what a command put there is not run as the box")
        self.assertEqual(self.cached.read_bytes(), self.good)

    def test_a_program_that_still_works(self):
        """One byte more, and it does what it did: only its hash tells."""
        self.replace(self.good + b"x")
        self.log_in_again()
        self.assertEqual(self.cached.read_bytes(), self.good)

    def test_things_that_are_no_file(self):
        def fifo():
            os.mkfifo(self.cached)
        for make in (fifo, self.cached.mkdir, lambda: self.cached.symlink_to("/dev/zero")):
            if self.cached.is_dir():
                self.cached.rmdir()
            else:
                self.cached.unlink()
            make()
            self.log_in_again()

    def test_the_one_that_is_right_is_not_brought_again(self):
        before = self.cached.stat()
        self.log_in_again()
        self.assertEqual((self.cached.stat().st_ino, self.cached.stat().st_mtime_ns), (before.st_ino, before.st_mtime_ns))
        self.assertEqual([p.name for p in self.cached.parent.iterdir()], [self.cached.name], "no copy is left")

    def test_a_host_that_cannot_tell_a_hash(self):
        """The box is brought anew, and what lies there is not believed."""
        shell = self.script("n=$(echo \"$SSH_ORIGINAL_COMMAND\" | sed 's/.*count=\\([0-9]*\\).*/\\1/')\n"
                            "command() { [ \"$1\" != -p ]; }\n"
                            "eval \"$(dd bs=1 count=$n 2>/dev/null)\"\n")
        self.fixture = self.new_fixture(shell)
        lease = self.acquire(self.ssh_environment(self.company("Other")))
        self.lease = lease
        self.run_true()
        (self.cached,) = (self.fixture.home / ".cache/berth/bin").glob("berth-box-*")
        self.replace(f"#!/bin/sh\n: >{self.mark}\nexec cat\n".encode())
        self.log_in_again()
        self.assertFalse(self.mark.exists())
        self.assertEqual(self.cached.read_bytes(), self.good)


class HostileServerTest(SshTest):
    """Something that listens and is no ssh server, or stops being one."""

    daemon_env = {"BERTH_SSH_TIMEOUT_MS": "1500"}

    def serve(self, talk):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        kept = []

        def run():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    kept.append(client)
                    with contextlib.suppress(OSError):
                        talk(client)
        threading.Thread(target=run, daemon=True).start()
        self.addCleanup(lambda: [c.close() for c in kept])
        return listener.getsockname()[1]

    def test_it_never_says_a_word(self):
        answer = self.probe_config(self.company(), port=self.serve(lambda s: None))
        self.assertFalse(answer["ok"])
        self.assertIn("does not go on", answer["hint"])

    def test_it_speaks_something_else(self):
        def talk(s):
            s.sendall(os.urandom(70000))
            s.close()
        self.assertFalse(self.probe_config(self.company(), port=self.serve(talk))["ok"])

    def test_it_stops_after_its_name(self):
        answer = self.probe_config(self.company(), port=self.serve(lambda s: s.sendall(b"SSH-2.0-x\r\n")))
        self.assertFalse(answer["ok"])
        self.assertIn("does not go on", answer["hint"])

    def test_the_line_dies_or_is_damaged_at_any_byte(self):
        acme = self.company()
        line = self.new_line()
        config = self.fixture.config(port=line.port)
        good = self.ok("POST", f"/api/companies/{acme['id']}/environments/probe-config",
                       {"driver": "ssh", "config": config})
        self.assertTrue(good["ok"], good)
        total = line.passed
        for at in range(1, total, max(1, total // 12)):
            line.passed, line.cut_after = 0, at
            answer = self.ok("POST", f"/api/companies/{acme['id']}/environments/probe-config",
                             {"driver": "ssh", "config": config})
            self.assertEqual(set(answer) - {"hint"}, {"ok", "driver", "summary", "details"}, at)
        line.cut_after = None
        line.corrupt()
        self.assertFalse(self.ok("POST", f"/api/companies/{acme['id']}/environments/probe-config",
                                 {"driver": "ssh", "config": config})["ok"])


if __name__ == "__main__":
    unittest.main()
