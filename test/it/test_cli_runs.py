"""`berth runs` and `berth agent wake`, against a daemon that runs agents."""

import collections
import json
import os
import re
import signal
import subprocess
import unittest

from berthtest import BINARIES, wait_until
from waketest import WakeTest
from websockettest import PING_MS


Done = collections.namedtuple("Done", "status stdout stderr")


class CliRunsTest(WakeTest):
    daemon_env = {**WakeTest.daemon_env, **PING_MS}

    def process(self, script, name="Ada"):
        return self.agent(self.acme, name, wakes=True, adapterConfig={"command": "sh", "args": ["-c", script]})

    def run_cli(self, *args, status=0):
        done = Done(*self.cli(*args))
        self.assertEqual(done.status, status, done.stderr)
        return done

    def test_waking_and_following(self):
        self.process("echo hello; echo trouble >&2")
        done = self.run_cli("agent", "wake", "Ada", "--reason", "see", "--follow")
        self.assertEqual(done.stdout, "hello\n")
        self.assertIn("trouble\n", done.stderr)
        self.assertRegex(done.stderr, r"run [0-9a-f-]{36} succeeded; ")
        (run,) = self.ok("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs")
        self.assertEqual(run["contextSnapshot"]["wakeReason"], "see")
        self.assertEqual(self.run_cli("runs", "logs", run["id"]).stdout, "hello\n")
        records = [json.loads(line) for line in self.run_cli("runs", "logs", run["id"], "--json").stdout.splitlines()]
        self.assertIn(("stdout", "hello\n"), [(r["stream"], r["chunk"]) for r in records])

    def test_a_log_does_not_steer_a_terminal(self):
        """What an agent writes is there in a pipe; who looks on a terminal gets no control characters from it."""
        self.process(r"printf 'a\033]0;owned\007\033[2Jb\302\233 31mc\342\200\256d\n'")
        done = self.run_cli("agent", "wake", "Ada", "--follow")
        self.assertEqual(done.stdout, "a\x1b]0;owned\x07\x1b[2Jb\x9b 31mc\u202ed\n")
        (run,) = self.ok("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs")
        for args in (["runs", "logs", run["id"]], ["runs", "logs", "-f", run["id"]], ["runs", "logs", "--json", run["id"]]):
            _, seen = self.terminal(*args)
            self.assertEqual(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", seen.replace("\r\n", "\n")), [], args)
            self.assertIn("31mc", seen)

    def test_a_run_that_fails(self):
        self.process("echo no; exit 3")
        done = self.run_cli("agent", "wake", "ada", "-f", status=1)
        (run,) = self.ok("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs")
        self.assertIn(f"run {run['id']} failed: {run['error']}; ", done.stderr)
        self.assertIn(f"failed: {run['error']}\n", self.run_cli("runs", "logs", "-f", run["id"], status=1).stderr)
        self.run_cli("runs", "logs", run["id"])
        shown = self.run_cli("runs", "show", run["id"][-8:]).stdout
        self.assertRegex(shown, r"Status +failed")
        self.assertRegex(shown, r"Exit code +3")

    def test_show_has_the_timeline(self):
        self.process("true")
        self.run_cli("agent", "wake", "Ada", "--follow")
        (run,) = self.ok("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs")
        wait_until(lambda: self.ok("GET", f"/api/heartbeat-runs/{run['id']}")["step"] == "done", "it is released")
        shown = self.run_cli("runs", "show", run["id"]).stdout
        steps = [line.split()[0] for line in shown[shown.index("Timeline:"):].splitlines()[1:]]
        self.assertEqual([s for s in steps if s in ("queued", "claimed", "leased", "started", "exited", "finished",
                                                    "released")],
                         ["queued", "claimed", "leased", "started", "exited", "finished", "released"])
        self.assertEqual(json.loads(self.run_cli("runs", "show", run["id"], "--json").stdout)["id"], run["id"])
        events = self.run_cli("runs", "events", run["id"]).stdout
        self.assertIn("run succeeded", events)

    def follow(self, run, *more):
        tail = subprocess.Popen([BINARIES["normal"], "runs", "logs", "-f", run, *more], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True,
                                env={**os.environ, "BERTH_DATA": str(self.daemon.data)})
        self.addCleanup(tail.stdout.close)
        self.addCleanup(tail.wait)
        self.addCleanup(tail.kill)
        return tail

    # Whole and not doubled, by a daemon that crashes and by one that is stopped, in the middle of much output.
    def test_following_while_the_daemon_is_restarted(self):
        gates = [self.temp_dir() / name for name in ("one", "two")]
        wait = "".join(f"seq {part} {part + 1999}; while [ ! -e {gate} ]; do sleep 0.02; done; "
                       for part, gate in zip((0, 2000), gates))
        self.process(f"{wait} seq 4000 5999")
        run = self.run_cli("agent", "wake", "Ada").stdout.strip()
        text, records = self.follow(run), self.follow(run, "--json")
        got = [text.stdout.readline() for _ in range(1000)]
        first = records.stdout.readline()  # both have found the daemon
        self.daemon.restart(crash=True)
        gates[0].write_text("")
        got += [text.stdout.readline() for _ in range(2000)]
        self.daemon.restart()
        gates[1].write_text("")
        got += text.stdout.read().splitlines(keepends=True)
        self.assertEqual(got, [f"{n}\n" for n in range(6000)])
        self.assertEqual(text.wait(30), 0)
        records = [json.loads(line) for line in [first, *records.stdout]]
        self.assertEqual([r["seq"] for r in records], list(range(1, len(records) + 1)))
        self.assertEqual("".join(r["chunk"] for r in records if r["stream"] == "stdout"), "".join(got))

    # Neither what the log lacks for a while nor what the run is then is its end.
    def test_following_a_log_that_cannot_be_read_for_a_while(self):
        gate = self.temp_dir() / "gate"
        self.process(f"echo one; while [ ! -e {gate} ]; do sleep 0.02; done; echo two")
        run = self.run_cli("agent", "wake", "Ada").stdout.strip()
        tail = self.follow(run)
        self.assertEqual(tail.stdout.readline(), "one\n")
        (row,) = self.daemon.sql("SELECT log_ref FROM heartbeat_runs WHERE id = ?", (run,))
        log = self.daemon.data / "run-logs" / row["log_ref"]
        with self.daemon.events(f"/api/heartbeat-runs/{run}/stream") as stream:
            self.assertEqual(stream.next().type, "log")
            log.rename(log.with_suffix(".away"))
            log.mkdir()
            gate.touch()
            self.assertNotIn("end", [event.type for event in stream])
        log.rmdir()
        log.with_suffix(".away").rename(log)
        self.assertEqual(tail.stdout.read(), "two\n")
        self.assertEqual(tail.wait(30), 0)

    def test_interrupting_is_not_ending(self):
        gate = self.temp_dir() / "gate"
        self.process(f"echo one; while [ ! -e {gate} ]; do sleep 0.02; done; exit 4")
        run = self.run_cli("agent", "wake", "Ada").stdout.strip()
        tail = self.follow(run)
        self.assertEqual(tail.stdout.readline(), "one\n")
        tail.send_signal(signal.SIGINT)
        self.assertEqual(tail.wait(30), -signal.SIGINT)
        self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{run}")["status"], "running")
        tail = self.follow(run)
        gate.write_text("")
        self.assertEqual((tail.stdout.read(), tail.wait(30)), ("one\n", 1))

    def test_names_instead_of_ids(self):
        ada = self.sleeper()
        issue = self.issue(title="Mend the login", assigneeAgentId=ada["id"])
        (run,) = self.runs(ada)
        self.assertRegex(self.run_cli("runs", "show", run["id"]).stdout, rf"Issue +{issue['identifier']} Mend the login\n")
        self.assertRegex(self.run_cli("issue", "show", issue["identifier"]).stdout, rf"Agent +Ada \({ada['id']}\)")
        self.assertRegex(self.run_cli("agent", "show", "Ada").stdout, "Command +true\n")
        self.assertIn(issue["identifier"], self.run_cli("runs", "list").stdout)

    def test_words_of_advice(self):
        self.sleeper()
        self.run_cli("agent", "pause", "Ada")
        self.assertIn("Ada is paused; `berth agent resume Ada`", self.run_cli("agent", "wake", "Ada", status=1).stderr)
        made = self.run_cli("agent", "create", "Eve", "-o", 'args=["-c"]', "--json")
        self.assertIn("-o 'args:=...'", made.stderr)
        self.assertIn("it has no command yet", made.stderr)

    def test_lists(self):
        ada = self.sleeper()
        self.sleeper("Bob")
        issue = self.issue(assigneeAgentId=ada["id"])
        (run,) = self.runs(ada)
        for args in (("runs", "list", "--issue", issue["identifier"]), ("issue", "runs", issue["identifier"]),
                     ("runs", "list", "--live"), ("runs", "list", "--agent", "Ada", "-n", "1")):
            out = self.run_cli(*args).stdout
            self.assertIn(run["id"], out, args)
        self.assertNotIn(run["id"], self.run_cli("runs", "list", "--agent", "Bob").stdout)
        listed = json.loads(self.run_cli("runs", "list", "--issue", issue["identifier"], "--json").stdout)
        self.assertEqual([r["id"] for r in listed], [run["id"]])

    def test_ending_and_what_is_skipped(self):
        ada = self.sleeper()
        issue = self.issue(status="backlog", assigneeAgentId=ada["id"])
        run = self.run_cli("agent", "wake", "Ada", "--task", "t", "--key", "k").stdout.strip()
        self.assertEqual(self.run_cli("agent", "wake", "Ada", "--key", "k").stdout.strip(), run)
        self.assertEqual(self.run_cli("runs", "cancel", run).stdout, f"{run} is cancelled\n")
        self.assertEqual(self.run_cli("runs", "cancel", run).stdout, f"{run} was over: cancelled\n")
        self.assertEqual(self.run_cli("runs", "logs", "-f", run, status=1).stdout, "")  # it never began
        self.run_row(ada, issue=issue)
        said = self.run_cli("agent", "wake", "Ada", "--issue", issue["identifier"]).stdout
        self.assertIn("Wakeup was deferred", said)

    def test_timers(self):
        made = json.loads(self.run_cli("agent", "create", "Eve", "--every", "15m", "--json").stdout)
        self.assertEqual((made["runtimeConfig"]["heartbeat"]["enabled"], made["runtimeConfig"]["heartbeat"]["intervalSec"]),
                         (True, 900))
        made = json.loads(self.run_cli("agent", "update", "Eve", "--cron", "@hourly", "--json").stdout)
        heartbeat = made["runtimeConfig"]["heartbeat"]
        self.assertEqual((heartbeat["cron"], "intervalSec" in heartbeat, heartbeat["maxConcurrentRuns"]),
                         ("@hourly", False, 20))
        made = json.loads(self.run_cli("agent", "update", "Eve", "--no-timer", "--json").stdout)
        self.assertEqual((made["runtimeConfig"]["heartbeat"]["enabled"], "cron" in made["runtimeConfig"]["heartbeat"]),
                         (False, False))
        for args, status in ((("--every", "5s"), 2), (("--every", "1h", "--no-timer"), 2), (("--cron", "daily"), 1)):
            self.run_cli("agent", "update", "Eve", *args, status=status)

    def test_mistakes(self):
        self.sleeper()
        for args, status in ((("runs", "show", "4f2a9c"), 5), (("runs", "list", "-n", "x"), 2), (("runs",), 2),
                             (("agent", "wake", "Nobody"), 5), (("agent", "wake", "Ada", "--issue", "ACM-9"), 5),
                             (("runs", "list", "--live", "--agent", "Ada"), 2)):
            with self.subTest(args=args):
                self.run_cli(*args, status=status)


if __name__ == "__main__":
    unittest.main()
