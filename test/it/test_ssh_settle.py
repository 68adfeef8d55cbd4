"""What a crash leaves of places on ssh hosts settles by itself, and what is on a host can be told: whether a place has
something there, and which node had it made."""

import contextlib
import http.client
import os
import signal
import threading
import unittest

from berthtest import wait_until
from sshtest import SshTest


class SettleTest(SshTest):
    daemon_binary = "faults"
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50"}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_boxes)

    # The host.

    def boxes(self):
        """{box id: pid} of what is on the host."""
        found = {}
        for folder in self.fixture.home.glob(".cache/berth/boxes/*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[folder.name] = int((folder / "pid").read_text().split()[0])
        return found

    def end_boxes(self):
        for pid in self.boxes().values():  # of what a test left on purpose, or failed with
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # The record.

    def write(self, *statements):
        """Behind the daemon's back, while it does not run."""
        with self.daemon.record() as db:
            for statement in statements:
                db.execute(statement)

    def states(self):
        return sorted(row["state"] for row in self.daemon.sql("SELECT state FROM places WHERE state <> 'gone'"))

    def settled(self):
        """Nobody but the daemon does anything about it."""
        wait_until(lambda: set(self.states()) <= {"held"}, "every place is held or gone", 30)

    def place_of(self, lease):
        return self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?",
                               (lease["id"],))[0]["place_id"]

    def begin_again(self, **env):
        self.daemon.kill()
        self.daemon.env = {**self.daemon_env, **env}
        self.daemon.start()

    def test_an_acquire_that_was_cut_at_any_step(self):
        env = self.ssh_environment(self.company())
        for point in ("lease.intend.before", "lease.intend.after", "lease.open.after", "lease.bind.before",
                      "lease.bind.after"):
            with self.subTest(point):
                self.begin_again(BERTH_CRASH_AT=point)
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.req("POST", f"/api/environments/{env['id']}/leases", {"idempotencyKey": point})
                self.daemon.wait(-9)
                self.begin_again()
                self.settled()
                self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)
                answer = self.req("POST", f"/api/environments/{env['id']}/leases", {"idempotencyKey": point})
                self.assertIn(answer.status, (200, 201), answer.body)
                lease = answer.json["lease"]
                self.assertEqual(self.execute(lease, "echo", "fine")["stdout"], "fine\n")
                self.release(lease)
                wait_until(lambda: not self.states() and not self.boxes(), "nothing is left of it")

    def test_a_login_that_was_cut_with_a_host_that_stays_silent(self):
        """Nothing of the place was there yet, so nobody has to ask the host."""
        line = self.new_line()
        env = self.ssh_environment(self.company(), port=line.port)
        self.begin_again()
        line.stall()

        def acquire():
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.req("POST", f"/api/environments/{env['id']}/leases", {})
        threads = [threading.Thread(target=acquire) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(self.states()) == 4 and line.connections() > 0, "all of them are on their way")
        self.daemon.kill()
        for thread in threads:
            thread.join()
        self.daemon.start()
        wait_until(lambda: not self.states(), f"all of them are settled: {self.states()}", 30)

    def test_what_an_earlier_daemon_was_uncertain_about(self):
        """Both ways: nothing is there, and a box that runs something is."""
        env = self.ssh_environment(self.company())
        lease = self.acquire(env)["lease"]
        self.execute(lease, "sh", "-c", "sleep 1000", status=202, detach=True)
        wait_until(self.boxes, "a box runs on the host")
        pid = next(iter(self.boxes().values()))
        empty = self.acquire(env)["lease"]
        self.daemon.stop()
        self.write("UPDATE environment_leases SET status = 'failed', released_at = 1",
                   "UPDATE places SET state = 'uncertain', next_attempt_at = 0",
                   f"UPDATE places SET provider_lease_id = NULL WHERE id = '{self.place_of(empty)}'")
        self.daemon.start()
        wait_until(lambda: not self.states(), f"both are settled: {self.states()}", 30)
        self.assertEqual(self.boxes(), {})
        self.assertFalse(os.path.exists(f"/proc/{pid}/cmdline") and
                         b"berth-box" in open(f"/proc/{pid}/cmdline", "rb").read())


class LeaksTest(SettleTest):
    daemon_binary = "normal"

    def forgotten(self):
        """A box on the host that no row of ours names: its place."""
        env = self.ssh_environment(self.company())
        lease = self.acquire(env)["lease"]
        self.execute(lease, "true")
        place = self.place_of(lease)
        self.daemon.stop()
        self.write("UPDATE environment_leases SET status = 'failed', released_at = 1",
                   f"UPDATE places SET state = 'gone' WHERE id = '{place}'",
                   f"UPDATE executions SET status = 'lost' WHERE place_id = '{place}'")
        self.daemon.start()
        return place

    def test_a_box_that_nobody_names_is_found_on_the_host(self):
        place = self.forgotten()
        report = self.ok("GET", "/api/leaks")
        self.assertEqual([(t["provider"], t["ownerTag"]) for t in report["unknown"]], [("ssh", place)])
        self.assertIn("remove it at the provider", report["unknown"][0]["nextStep"])
        self.assertEqual(report["notListable"], [])

    def test_what_another_node_had_made_is_none_of_our_business(self):
        """Two daemons, one account on one host."""
        place = self.forgotten()
        other = self.new_daemon()
        other.start()
        ours, self.daemon = self.daemon, other
        env = self.ssh_environment(self.company())
        lease = self.acquire(env)["lease"]
        self.execute(lease, "true")
        theirs = self.place_of(lease)
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)
        self.assertEqual(set(self.boxes()), {place, theirs})
        self.daemon = ours
        self.assertEqual([t["ownerTag"] for t in self.ok("GET", "/api/leaks")["unknown"]], [place])
        # One of a version that did not note it: told, and not offered to be removed.
        (self.fixture.home / ".cache/berth/boxes" / theirs / "node").unlink()
        advice = {t["ownerTag"]: t["nextStep"] for t in self.ok("GET", "/api/leaks")["unknown"]}
        self.assertIn("does not say which node", advice[theirs])
        self.daemon = other
        self.release(lease)
        self.assertNotIn(theirs, self.boxes())

    def test_a_host_that_does_not_answer_hides_nothing_of_others(self):
        place = self.forgotten()
        company = self.ok("GET", "/api/companies")[0]
        line = self.new_line()
        self.ssh_environment(company, name="silent", port=line.port)
        line.close()
        self.begin_again()
        report = self.ok("GET", "/api/leaks")
        self.assertEqual([t["ownerTag"] for t in report["unknown"]], [place])
        self.assertEqual(report["notListable"], ["ssh"])

    # The others are SettleTest's.
    test_an_acquire_that_was_cut_at_any_step = None
    test_a_login_that_was_cut_with_a_host_that_stays_silent = None
    test_what_an_earlier_daemon_was_uncertain_about = None


if __name__ == "__main__":
    unittest.main()
