"""SSH hosts that cannot run a box: plain commands, and the lease says so."""
# share 3: 6 s of processor time

import unittest

from berthtest import wait_until
from exectest import marked
from sshtest import SshTest


class PlainTest(SshTest):
    def setUp(self):
        tools = self.temp_dir()
        (tools / "uname").write_text('#!/bin/sh\n[ "$1" = -m ] && echo pdp11 || echo Linux\n')
        (tools / "uname").chmod(0o755)
        self.sshd_shell = self.script(f'PATH={tools}:$PATH\nexport PATH\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
        super().setUp()
        self.env = self.ssh_environment(self.company())
        self.lease_ = self.acquire(self.env)["lease"]

    # remote-execution 8.37, 8.40, 8.66, 8.68
    def test_commands(self):
        self.assertEqual(self.lease_["metadata"]["execution"], "plain")
        self.assertIn("pdp11", self.lease_["metadata"]["executionReason"])
        done = self.execute(self.lease_, "sh", "-c", "pwd; echo no >&2; cat; exit 7", stdin="in\nput")
        self.assertEqual((done["exitCode"], done["stdout"], done["stderr"], done["timedOut"]),
                         (7, f"{self.fixture.workspace}\nin\nput", "no\n", False))
        odd = "a b\n'c' \"d\" $HOME `id` \\ \u00fc"
        done = self.execute(self.lease_, "printf", "%s|%s", odd, "-n", env={"ODD": odd})
        self.assertEqual(done["stdout"], f"{odd}|-n")
        done = self.execute(self.lease_, "sh", "-c", 'printf %s "$ODD"', env={"ODD": odd})
        self.assertEqual(done["stdout"], odd)
        self.assertEqual(self.execute(self.lease_, "no-such-program")["exitCode"], 127)
        done = self.execute(self.lease_, "pwd", cwd="/nowhere")
        self.assertNotEqual(done["exitCode"], 0)
        self.assertIn("/nowhere", done["stderr"])
        answer = self.req("POST", f"/api/environment-leases/{self.lease_['id']}/execute",
                          {"command": "true", "env": {"BAD KEY": "x"}})
        self.assert_error(answer, 422, "Invalid SSH environment variable key: BAD KEY")
        answer = self.req("POST", f"/api/environment-leases/{self.lease_['id']}/execute",
                          {"command": "cat", "openStdin": True})
        self.assert_error(answer, 422, contains="cannot run a box")

    # Nobody can make it wait: what is over the limit is not kept, and the execution says so.
    def test_output_over_the_limit_is_not_kept(self):
        env = self.ssh_environment(self.company(), outputMb=1)
        lease = self.acquire(env)["lease"]
        path = f"/api/environment-leases/{lease['id']}"
        for size, kept, limited in ((1 << 20, 1 << 20, False), ((1 << 20) + 1, 1 << 20, True)):
            done = self.execute(lease, "sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x")
            row = self.ok("GET", f"{path}/executions/{done['execId']}")
            self.assertEqual((row["exitCode"], row["stdoutBytes"], row["incomplete"]), (0, kept, limited), row["reason"])
            self.assertEqual("output limit" in (row["reason"] or ""), limited)

    def test_what_goes_in_and_comes_out(self):
        (self.fixture.home / ".profile").write_text("echo noise; A=profile; B=profile; export A B\n")
        done = self.execute(self.lease_, "sh", "-c", "echo $A $B", env={"A": "mine"})
        self.assertEqual(done["stdout"], "mine profile\n")
        done = self.execute(self.lease_, "seq", "200000")
        self.assertEqual(done["stdout"].split()[-1], "200000")
        self.assertEqual(len(done["stdout"].split()), 200000)
        done = self.execute(self.lease_, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'Zq[x]7value'",
                            env={"TOKEN": "Zqx7value"})
        self.assertEqual(done["stdout"].strip(), "0")

    # remote-execution 8.39
    def test_a_time_limit_kills_the_tree(self):
        done = self.execute(self.lease_, "sh", "-c", "echo out; echo err >&2; sleep 300 & setsid sleep 300 & wait", timeoutMs=700)
        self.assertEqual((done["timedOut"], done["exitCode"], done["signal"]), (True, None, "SIGTERM"))
        self.assertEqual((done["stdout"], done["stderr"][:4]), ("out\n", "err\n"))
        self.assertEqual(marked([done["execId"]]), [])

    def test_a_signal_kills_it_and_release_what_is_left(self):
        began = self.execute(self.lease_, "sh", "-c", "sleep 300 & setsid sleep 300 & wait", detach=True, status=202)
        wait_until(lambda: len(marked([began["execId"]])) >= 3, "it runs")
        self.ok("POST", f"/api/environment-leases/{self.lease_['id']}/executions/{began['execId']}/signal",
                {"signal": "SIGTERM"})
        wait_until(lambda: not marked([began["execId"]]), "it is gone")
        began = self.execute(self.lease_, "setsid", "sleep", "300", detach=True, status=202)
        wait_until(lambda: marked([began["execId"]]), "it runs")
        self.assertEqual(self.release(self.lease_)["lease"]["status"], "released")
        wait_until(lambda: not marked([began["execId"]]), "it is gone")


if __name__ == "__main__":
    unittest.main()
