"""Limits of what commands print: of one command and of all commands of a place, in every kind of place, and what
happens at them. How the box holds to them is in test_box.py. And what is printed goes with the command's record."""

import shutil
import signal
import uuid

import boxproto
from berthtest import ident, wait_until
from exectest import ExecTest
from relaytest import FarTest
from sandboxtest import SandboxTest
from test_exec_far import Liar

MIB = 1 << 20
WAIT = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_OUTPUT_MAX_MB": "1", "BERTH_OUTPUT_PLACE_MAX_MB": "3",
        "BERTH_OUTPUT_WAIT_MS": "100"}
DROP = {**WAIT, "BERTH_OUTPUT_FULL": "drop", "BERTH_OUTPUT_MAX_MB": "2", "BERTH_OUTPUT_PLACE_MAX_MB": "100"}
FLOOD = "exec cat /dev/zero"
LINES = "i=0; while [ $i -lt 100000 ]; do echo $i 0123456789012345678901234567890123456789; i=$((i+1)); done"


class Limited:
    """For all kinds of places."""

    def output_files(self, exec_id):
        return [self.daemon.data / "output" / exec_id / name for name in ("stdout", "stderr")]

    def on_disk(self, exec_id):
        return sum(f.stat().st_blocks * 512 for f in self.output_files(exec_id))

    def assert_limited(self, row, size):
        self.assertEqual((row["status"], row["stdoutBytes"] + row["stderrBytes"], row["incomplete"]),
                         ("exited", size, True), row)
        self.assertIn("output limit", row["reason"])

    # At the limit, one past it, far past it.
    def test_one_command(self):
        row = self.ended(self.detach(f"head -c {MIB} /dev/zero"))
        self.assertEqual((row["exitCode"], row["stdoutBytes"], row["incomplete"], row["reason"]), (0, MIB, False, None))
        self.assert_limited(self.ended(self.detach(f"head -c {MIB + 1} /dev/zero >&2")), MIB)
        flood = self.ended(self.detach(FLOOD))
        self.assert_limited(flood, MIB)
        self.assertEqual((flood["exitCode"], flood["signal"]), (None, "SIGKILL"))
        self.assertLessEqual(self.on_disk(flood["execId"]), MIB)

    # What commands that are over have printed counts, also for a daemon that was not there when they did.
    def test_all_commands_of_a_place(self):
        for _ in range(2):
            self.ended(self.detach(f"head -c {MIB} /dev/zero"))
        self.daemon.restart(crash=True)
        self.ended(self.detach(f"head -c {MIB - 100} /dev/zero"))
        self.assert_limited(self.ended(self.detach(FLOOD)), 100)
        self.assert_limited(self.ended(self.detach("echo more")), 0)

    # The daemon has no part in it.
    def test_a_daemon_that_is_gone(self):
        exec_id = self.detach("read x; " + FLOOD, openStdin=True)
        self.stdin(exec_id, b"\n")
        self.daemon.restart(crash=True)
        self.assert_limited(self.ended(exec_id), MIB)


class Dropping:
    def test_the_oldest_goes(self):
        exec_id = self.detach(LINES)
        row = self.ended(exec_id, timeout=120)
        self.assertEqual((row["exitCode"], row["incomplete"], row["reason"]), (0, False, None), row)
        start, size = row["stdoutStart"], row["stdoutBytes"]
        self.assertGreater(start, MIB)
        self.assertEqual(start % MIB, 0)
        # Who asks for what is gone gets the rest.
        kept = self.output(exec_id)
        self.assertEqual(len(kept), size - start)
        self.assertNotIn(b"\0", kept)
        self.assertTrue(kept.endswith(b"\n99999 0123456789012345678901234567890123456789\n"), kept[-100:])
        self.assertEqual(self.output(exec_id, offset=size - 10), kept[-10:])
        with self.events(exec_id) as stream:
            parts = [e.json for e in stream if e.type == "stdout"]
        self.assertEqual(parts[0]["offset"], start)
        self.assertEqual("".join(p["data"] for p in parts).encode(), kept)
        status, out, err = self.cli("lease", "output", ident(self.held), exec_id)
        self.assertEqual((status, out.encode()), (0, kept), err)
        self.assertLessEqual(sum(f.stat().st_blocks * 512 for f in self.output_files(exec_id)), 2 * MIB + 8192)

    output_files = Limited.output_files


class LocalOutputTest(Limited, ExecTest):
    daemon_env = WAIT

    # The environment's own configuration comes first.
    def test_the_environment_says(self):
        self.ok("PATCH", f"/api/environments/{ident(self.local)}", {"config": {"outputMb": 2, "outputPlaceMb": 50}})
        lease = self.acquire(self.local)
        row = self.ended(self.detach(FLOOD, lease=lease), lease=lease)
        self.assert_limited(row, 2 * MIB)

    def test_the_answer_and_the_command_line_say_so(self):
        got = self.sh(FLOOD)
        self.assertEqual((got["exitCode"], got["signal"]), (None, "SIGKILL"))
        status, _, err = self.cli("run", "--", "sh", "-c", FLOOD)
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertIn("output limit", err)


class LocalDropTest(Dropping, ExecTest):
    daemon_env = DROP


class FarOutputTest(Limited, FarTest):
    daemon_env = {**FarTest.daemon_env, **WAIT}

    # A box that does not hold to it: no more is kept, and it is told to end the command.
    def test_a_box_that_sends_more(self):
        signals = []

        class Flooder(Liar):
            def on_frame(self, kind, channel, payload):
                if kind == boxproto.SIGNAL:
                    signals.append(payload[0])
                    self.exit(channel, self.sent)
                else:
                    super().on_frame(kind, channel, payload)

        def act(liar, channel, stream, stored, limit):
            while stream == 1 and not signals and liar.sent < limit:
                n = min(32768, limit - liar.sent)
                liar.data(channel, 1, liar.sent, bytes(n))
                liar.sent += n

        self.sh("true")
        liar = Flooder(act)
        liar.sent = 0
        self.way.serve = liar
        self.way.cut()
        exec_id = self.detach("true")
        self.assert_limited(self.ended(exec_id), MIB)
        self.assertEqual(signals, [signal.SIGKILL])
        self.way.serve = None
        self.way.cut()


class FarDropTest(Dropping, FarTest):
    daemon_env = {**FarTest.daemon_env, **DROP}


class SandboxOutputTest(Limited, SandboxTest):
    daemon_env = WAIT

    # The limit of a place is the daemon's, unless the environment has one of its own.
    def test_the_environment_says(self):
        env = self.sandbox_environment(name="small", diskMb=16, outputMb=10, outputFull="wait")
        lease = self.acquire(env)
        self.assertEqual(self.metadata(lease)["sandbox"]["limits"]["outputMb"],
                         {"value": 10, "enforced": True, "by": "box"})
        self.ended(self.detach(f"head -c {3 * MIB - 5} /dev/zero", lease=lease), lease=lease)
        self.assert_limited(self.ended(self.detach(FLOOD, lease=lease), lease=lease), 5)  # of the daemon's 3 MiB

    def test_the_schema_has_it(self):
        found = self.ok("GET", f"/api/companies/{ident(self.acme)}/environments/capabilities")
        schema = found["sandboxProviders"]["berth"]["configSchema"]["properties"]
        self.assertEqual(schema["outputFull"]["enum"], ["wait", "drop"])


class GoneOutputTest(ExecTest):
    """Output directories of executions whose row is gone."""

    def outputs(self):
        return sorted(p.name for p in (self.daemon.data / "output").iterdir())

    def leaks(self):
        return self.ok("GET", "/api/leaks")

    def delete_everything(self):
        """The rows go with their company."""
        company = self.daemon.sql("SELECT id FROM companies")[0]["id"]
        self.release(self.held)
        self.ok("DELETE", f"/api/companies/{company}")
        self.assertEqual(self.daemon.sql("SELECT id FROM executions"), [])

    def test_it_goes_with_its_row(self):
        for _ in range(3):
            self.sh("echo out")
        self.assertEqual(len(self.outputs()), 3)
        self.delete_everything()
        wait_until(lambda: not self.outputs(), "the directories are removed")
        wait_until(lambda: not self.daemon.sql("SELECT * FROM outputs_to_remove"), "nothing is left to remove")

    def test_more_than_one_pass_takes(self):
        """A company may leave more than a hundred."""
        for _ in range(120):
            self.sh("true")
        self.delete_everything()
        wait_until(lambda: not self.outputs(), "the directories are removed")

    def test_removing_it_fails(self):
        exec_id = self.sh("echo out")["execId"]
        deep = self.daemon.data / "output" / exec_id / "/".join(["d"] * 200)
        deep.mkdir(parents=True)  # nothing that we make is so deep
        self.delete_everything()
        [due] = wait_until(lambda: self.leaks()["cleanupDue"], "the failure is a leak")
        self.assertEqual((due["ownerTag"], self.outputs()), (exec_id, [exec_id]))
        self.assertIn("too deep", due["note"])
        shutil.rmtree(self.daemon.data / "output" / exec_id / "d")
        wait_until(lambda: not self.outputs(), "it is tried again")
        wait_until(lambda: self.leaks()["total"] == 0, "and is no leak any more")

    def test_leaks_show_what_no_row_names(self):
        name = str(uuid.uuid4())
        for folder in ("output", "salvage", "snapshots"):
            with self.subTest(folder):
                left = self.daemon.data / folder / name
                left.mkdir()
                [leak] = self.leaks()["unknown"]
                self.assertEqual((leak["ownerTag"], leak["description"]), (name, str(left)))
                status, out, _ = self.cli("leaks")
                self.assertEqual(status, 1)
                self.assertIn(str(left), out)
                left.rmdir()
                self.assertEqual(self.leaks()["total"], 0)


class SandboxDiskTest(SandboxTest):
    daemon_env = {**WAIT, "BERTH_OUTPUT_PLACE_MAX_MB": "100"}
    assert_limited = Limited.assert_limited

    # What is said to be bounded is: the disk of a sandbox does not come a second time as output.
    def test_the_disk_limit_bounds_the_output(self):
        lease = self.acquire(self.sandbox_environment(name="small", diskMb=16, outputMb=10, outputFull="wait"))
        row = self.ended(self.detach(f"head -c {10 * MIB} /dev/zero", lease=lease), lease=lease)
        self.assertEqual((row["stdoutBytes"], row["incomplete"]), (10 * MIB, False), row)
        self.assert_limited(self.ended(self.detach(FLOOD, lease=lease), lease=lease), 6 * MIB)
