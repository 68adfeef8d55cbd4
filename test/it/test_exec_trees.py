"""Process trees: whatever a command does to get away, nothing of it is left when it has ended, was signalled, ran
into its time limit, or lost its lease. Each case runs with the method that the machine offers and once more without
cgroups."""
# share 3: 17 s of processor time

import os
import sys
import unittest

from berthtest import wait_until
from exectest import ExecTest, forced_subreaper, marked, process_state, with_argument

# Each leaves something behind; %s is a duration by which the remains can be told from others.
DOUBLE_FORK = "(sh -c 'exec sleep %s' &) ; true"
SETSID = "setsid sh -c 'exec sleep %s' & true"
DAEMON = ("exec python3 -c 'import os,sys\n"
          "if os.fork(): os._exit(0)\n"
          "os.setsid()\n"
          "if os.fork(): os._exit(0)\n"
          "os.chdir(\"/\")\n"
          "for fd in range(3): os.close(fd)\n"
          "os.execvp(\"sleep\", [\"sleep\", \"%s\"])'")
BARE = "setsid env -i sleep %s & true"  # no marker, no session of ours
BARE_TWICE = "setsid env -i sh -c 'setsid sleep %s & true' & true"
HOLDER = "sh -c 'trap \"\" TERM HUP INT; while :; do sleep %s; done' & echo held"
STOPPED = "sleep %s & p=$!; until grep -q sleep /proc/$p/comm; do :; done; kill -STOP $p; true"
MANY = "for i in $(seq 50); do setsid sleep %s & done; true"
ESCAPES = {"double fork": DOUBLE_FORK, "setsid": SETSID, "daemon": DAEMON, "no marker": BARE,
           "no marker, twice": BARE_TWICE, "holds the pipes and ignores signals": HOLDER, "stopped": STOPPED,
           "fifty": MANY}


class Trees:
    """The cases, whatever the method."""

    counter = 0

    def tag(self):
        Trees.counter += 1
        return f"9{os.getpid()}{Trees.counter:03d}"

    def method(self):
        return self.sh("true") and self.execution(self.detach("exec sleep 1000"))["killMethod"]

    def assert_gone(self, tag):
        wait_until(lambda: not with_argument(tag), "nothing of it is left")

    def test_when_the_command_ends(self):
        """remote-execution 8.59: the box reaps what lingers, whatever the command said before."""
        for name, script in ESCAPES.items():
            with self.subTest(name):
                tag = self.tag()
                done = self.sh(script % tag)
                self.assertEqual(done["exitCode"], 0)
                # The answer comes after the tree's end: there is nothing to wait for.
                self.assertEqual(with_argument(tag), [])
                self.assertEqual(marked([done["execId"]]), [])

    def test_on_a_signal_that_kills(self):
        for name, script in ESCAPES.items():
            with self.subTest(name):
                tag = self.tag()
                exec_id = self.detach(f"{script % tag}; echo there; exec sleep 1{tag}"
                                      if not script.startswith("exec") else f"{script[5:] % tag}; echo there; exec sleep 1{tag}")
                wait_until(lambda: b"there" in self.output(exec_id), "it has begun")
                wait_until(lambda: with_argument(tag), "its child is there")
                self.signal(exec_id, "SIGKILL")
                self.assertEqual(self.ended(exec_id)["signal"], "SIGKILL")
                self.assertEqual(with_argument(tag) + with_argument(f"1{tag}"), [])

    def test_at_the_time_limit(self):
        """SIGTERM is ignored by all of them; only the end of the grace helps."""
        tag = self.tag()
        done = self.sh(f"trap '' TERM; setsid sleep {tag} & setsid env -i sh -c 'trap \"\" TERM; sleep {tag}; :' & "
                       f"kill -STOP $$; while :; do sleep {tag}; done", timeoutMs=300)
        self.assertEqual((done["timedOut"], done["signal"]), (True, "SIGKILL"))
        self.assertEqual(with_argument(tag), [])

    def test_a_stopped_command_hears_the_time_limit(self):
        done = self.sh("trap 'echo heard; exit 3' TERM; echo began; kill -STOP $$; while :; do sleep 0.01; done",
                       timeoutMs=300)
        self.assertEqual((done["timedOut"], done["exitCode"], done["stdout"]), (True, 3, "began\nheard\n"))

    def test_release_of_the_lease(self):
        tag = self.tag()
        ids = [self.detach(f"trap '' TERM; {s % tag}; echo there; while :; do sleep {tag}; done")
               for n, s in ESCAPES.items() if n != "daemon"]
        for exec_id in ids:
            wait_until(lambda e=exec_id: b"there" in self.output(e), "it has begun")
        self.release(self.held)
        self.assertEqual(with_argument(tag), [])
        self.assertEqual(marked(ids), [])
        for exec_id in ids:
            self.assertEqual(self.ended(exec_id)["signal"], "SIGKILL")

    def test_when_the_box_is_killed(self):
        tag = self.tag()
        ids = [self.detach(f"{s % tag}; echo there; while :; do sleep {tag}; done")
               for n, s in ESCAPES.items() if self.survives_the_box(n)]
        for exec_id in ids:
            wait_until(lambda e=exec_id: b"there" in self.output(e), "it has begun")
        os.kill(self.box_pid(), 9)
        for exec_id in ids:
            row = self.ended(exec_id)
            self.assertEqual((row["status"], row["incomplete"], row["exitCode"]), ("lost", True, None))
            self.assertIn("supervisor", row["reason"])
            self.assertIn("may be missing", row["reason"])
        self.assertEqual(with_argument(tag), [])
        self.assertEqual(self.lease(self.held)["status"], "active")
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")

    def test_children_that_hold_the_pipes(self):
        """The command's end is the end; what it had written is there, what its children write later is not."""
        tag = self.tag()
        done = self.sh(f"(while :; do echo noise; sleep 0.001; done) & (exec sleep {tag}) & echo mine; exit 6")
        self.assertEqual(done["exitCode"], 6)
        self.assertIn("mine\n", done["stdout"])
        self.assertEqual(self.output(done["execId"]).decode(), done["stdout"])
        self.assertEqual(with_argument(tag), [])

    def test_short_processes(self):
        n = 2000 * min(5, int(os.environ.get("TEST_ROUNDS", "1")))
        done = self.sh(f"i=0; while [ $i -lt {n} ]; do /bin/true & i=$((i+1)); [ $((i % 50)) -eq 0 ] && wait; done; "
                       "wait; echo $i")
        self.assertEqual((done["exitCode"], done["stdout"]), (0, f"{n}\n"))
        with_children = [p for p in marked([done["execId"]]) if process_state(p)]
        self.assertEqual(with_children, [])

    def test_a_fork_bomb(self):
        """As a user with a limit of its own: it can neither take the machine nor outlive the limit."""
        if os.getuid() != 0:
            self.skipTest("needs a second user to have a process limit of its own")
        bomb = ("import os,resource,sys\n"
                "resource.setrlimit(resource.RLIMIT_NPROC,(60,60))\n"
                f"os.setgroups([]); os.setgid({self.bomb_user}); os.setuid({self.bomb_user})\n"
                "print('armed', flush=True)\n"
                "while True:\n"
                " try:\n"
                "  if os.fork()==0: os.setsid()\n"
                " except OSError: pass\n")
        done = self.run_ok(sys.executable, ["-c", bomb, self.tag()], timeoutMs=700)
        self.assertEqual((done["timedOut"], done["stdout"][:6]), (True, "armed\n"))
        self.assertEqual(marked([done["execId"]]), [])
        self.assertEqual([p for p in os.listdir("/proc") if p.isdigit() and owner(p) == self.bomb_user
                          and process_state(p) not in (None, "Z")], [])


def owner(pid):
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


class MachineTreesTest(Trees, ExecTest):
    """With what the machine offers: cgroups where they can be had."""

    bomb_user = 60123

    def survives_the_box(self, name):
        return self.method() == "cgroup" and name != "daemon" or "marker" not in name and name != "daemon"


class SubreaperTreesTest(Trees, ExecTest):
    bomb_user = 60124

    @property
    def daemon_binary(self):
        return forced_subreaper()

    def survives_the_box(self, name):
        # Without cgroups, what cleared its environment and left the session cannot be told from a stranger's once
        # the box is gone.
        return "marker" not in name and name != "daemon"

    def test_it_is_forced(self):
        self.assertEqual(self.method(), "subreaper")


if __name__ == "__main__":
    unittest.main()
