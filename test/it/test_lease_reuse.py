"""Reuse: a place outlives its lease, and who gets it next. The fake provider keeps a file per living sandbox."""
# threads: two acquirers for one idle place

import concurrent.futures
import unittest
import uuid

from berthtest import BerthTest, wait_until

ONE = "7e0a33f4-5a5c-4d55-9c5e-3f3f6f4d9b01"
TWO = "0d7df4ee-8c0e-4b3f-8a44-1d5f8f0d2c02"


def reusing(image="ubuntu:24.04"):
    return {"provider": "fake", "image": image, "reuseLease": True}


class ReuseTest(BerthTest):
    sweep_ms = "3600000"
    more_env = {}

    def setUp(self):
        self.world = self.temp_dir()
        self.daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_FAKE_WORLD": str(self.world),
                           "BERTH_SWEEP_INTERVAL_MS": self.sweep_ms, **self.more_env}
        super().setUp()
        self.acme = self.company()
        self.env = self.environment(self.acme, config=reusing())

    def sandboxes(self):
        """Ids of the places that exist in the fake world."""
        return sorted(p.name for p in self.world.iterdir() if not p.name.startswith(("fail-", "lose-")))

    def place_of(self, record):
        return self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?",
                               (record["lease"]["id"],))[0]["place_id"]

    def state_of(self, place):
        return self.daemon.sql("SELECT state FROM places WHERE id = ?", (place,))[0]["state"]

    def set_image(self, image):
        self.ok("PATCH", f"/api/environments/{self.env['id']}", {"config": {"image": image}})


class PlacesTest(ReuseTest):
    def test_one_file_per_living_sandbox(self):
        plain = self.environment(self.acme, name="plain")
        one, two = self.acquire(plain), self.acquire(plain)
        self.assertEqual(self.sandboxes(), sorted([self.place_of(one), self.place_of(two)]))
        self.assertEqual((self.world / self.place_of(one)).read_text(), one["lease"]["providerLeaseId"])
        self.release(one)
        self.assertEqual(self.sandboxes(), [self.place_of(two)])
        self.release(two)
        self.assertEqual(self.sandboxes(), [])

    def test_parked_place_serves_the_next_run(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        place = self.place_of(first)
        self.assertNotIn("resumedLease", first["lease"]["metadata"])
        self.assertEqual(self.release(first)["lease"]["cleanupStatus"], "success")
        self.assertEqual((self.sandboxes(), self.state_of(place)), ([place], "ready"))
        second = self.acquire(self.env, heartbeatRunId=TWO)
        self.assertEqual(self.place_of(second), place)
        self.assertNotEqual(second["lease"]["id"], first["lease"]["id"])
        self.assertEqual(second["lease"]["providerLeaseId"], first["lease"]["providerLeaseId"])
        self.assertEqual(second["lease"]["metadata"],
                         {"driver": "sandbox", "executionWorkspaceMode": None, "provider": "fake",
                          "image": "ubuntu:24.04", "reuseLease": True, "resumedLease": True})
        self.assertEqual((self.sandboxes(), self.state_of(place)), ([place], "held"))
        # the first lease is history
        self.assertEqual(self.lease(first)["status"], "released")

    def test_two_runs_at_once_get_different_places(self):
        one = self.acquire(self.env, heartbeatRunId=ONE)
        two = self.acquire(self.env, heartbeatRunId=TWO)
        self.assertNotEqual(self.place_of(one), self.place_of(two))
        self.assertEqual(len(self.sandboxes()), 2)
        # releasing one leaves the other what it has
        self.release(one)
        self.assertEqual(self.state_of(self.place_of(two)), "held")
        self.assertEqual(self.lease(two)["status"], "active")

    def test_same_run_joins_its_own(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        second = self.acquire(self.env, heartbeatRunId=ONE)
        place = self.place_of(first)
        self.assertEqual(self.place_of(second), place)
        self.assertTrue(second["lease"]["metadata"]["resumedLease"])
        self.assertEqual(self.sandboxes(), [place])
        self.release(first)
        self.assertEqual(self.state_of(place), "held")  # the second lease still uses it
        self.release(second)
        self.assertEqual(self.state_of(place), "ready")

    def test_ad_hoc_leases_neither_take_nor_leave(self):
        self.release(self.acquire(self.env, heartbeatRunId=ONE))
        parked = self.sandboxes()
        adhoc = self.acquire(self.env)
        self.assertNotIn(self.place_of(adhoc), parked)
        self.release(adhoc)
        self.assertEqual(self.sandboxes(), parked)

    def test_environments_do_not_share(self):
        other = self.environment(self.acme, name="other", config=reusing())
        one = self.acquire(self.env, heartbeatRunId=ONE)
        self.release(one)
        self.assertNotEqual(self.place_of(self.acquire(other, heartbeatRunId=TWO)), self.place_of(one))

    # environment-runtime 7.2
    def test_another_image_does_not_match(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        self.release(first)
        self.set_image("debian:12")
        second = self.acquire(self.env, heartbeatRunId=TWO)
        self.assertNotEqual(self.place_of(second), self.place_of(first))
        self.assertNotIn("resumedLease", second["lease"]["metadata"])
        self.assertEqual(second["lease"]["metadata"]["image"], "debian:12")

    def test_without_reuse_any_more(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        self.release(first)
        self.ok("PATCH", f"/api/environments/{self.env['id']}", {"config": {"reuseLease": False}})
        second = self.acquire(self.env, heartbeatRunId=TWO)
        self.assertNotEqual(self.place_of(second), self.place_of(first))
        self.assertEqual(second["lease"]["leasePolicy"], "ephemeral")

    def test_failed_and_expired_leases_leave_nothing(self):
        for status in ("failed", "expired"):
            lease = self.acquire(self.env, heartbeatRunId=ONE)
            self.release(lease, status=status)
            self.assertEqual((self.sandboxes(), self.state_of(self.place_of(lease))), ([], "gone"))

    def test_archived_environments_keep_nothing(self):
        lease = self.acquire(self.env, heartbeatRunId=ONE)
        self.ok("PATCH", f"/api/environments/{self.env['id']}", {"status": "archived"})
        self.release(lease)
        self.assertEqual(self.sandboxes(), [])

    def test_many_runs_at_once_never_share(self):
        parked = [self.acquire(self.env, heartbeatRunId=str(uuid.uuid4())) for _ in range(3)]
        for record in parked:
            self.release(record)
        self.assertEqual(len(self.sandboxes()), 3)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            records = list(pool.map(lambda _: self.acquire(self.env, heartbeatRunId=str(uuid.uuid4())), range(12)))
        places = [self.place_of(record) for record in records]
        self.assertEqual(len(set(places)), 12)
        self.assertEqual(sorted(places), self.sandboxes())
        # every idle one was taken before a new one was made
        self.assertTrue({self.place_of(record) for record in parked} <= set(places))
        self.assertEqual(sum("resumedLease" in record["lease"]["metadata"] for record in records), 3)

    def test_one_run_at_once(self):
        """Parallel acquires of one run all succeed, and what they hold is whole."""
        self.release(self.acquire(self.env, heartbeatRunId=TWO))
        for _ in range(5):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: self.req("POST", f"/api/environments/{self.env['id']}/leases",
                                                           {"heartbeatRunId": ONE}), range(8)))
            self.assertEqual({(a.status, a.error) for a in answers}, {(201, None)})
            held = {self.place_of(a.json) for a in answers}
            self.assertTrue(all(self.state_of(place) == "held" for place in held))
            released = self.ok("POST", f"/api/heartbeat-runs/{ONE}/release-leases", {})
            self.assertEqual(len(released), 8)
            self.assertTrue(all(self.state_of(place) == "ready" for place in held))
            self.assertEqual(self.daemon.sql("SELECT id FROM places WHERE state NOT IN ('gone', 'ready')"), [])


class ProviderTroubleTest(ReuseTest):
    def test_open_fails(self):
        (self.world / "fail-open").touch()
        self.assert_error(self.req("POST", f"/api/environments/{self.env['id']}/leases", {}), 502,
                          "The fake provider was told to fail.")
        self.assertEqual(self.sandboxes(), [])
        self.assertEqual(self.daemon.sql("SELECT state FROM places"), [{"state": "gone"}])
        self.assertEqual(self.ok("GET", f"/api/environments/{self.env['id']}/leases"), [])
        (self.world / "fail-open").unlink()
        self.acquire(self.env)

    def test_answer_of_open_is_lost(self):
        (self.world / "lose-open").touch()
        self.assert_status(self.req("POST", f"/api/environments/{self.env['id']}/leases", {}), 502)
        # what was made all the same is closed: the fake provider can be asked for it by our tag
        self.assertEqual(self.sandboxes(), [])
        self.assertEqual(self.daemon.sql("SELECT state FROM places"), [{"state": "gone"}])

    def test_a_failed_open_frees_its_key(self):
        (self.world / "fail-open").touch()
        path = f"/api/environments/{self.env['id']}/leases"
        self.assert_status(self.req("POST", path, {"idempotencyKey": "k"}), 502)
        (self.world / "fail-open").unlink()
        self.assert_status(self.req("POST", path, {"idempotencyKey": "k"}), 201)

    def test_resume_fails(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        self.release(first)
        (self.world / "fail-resume").touch()
        second = self.acquire(self.env, heartbeatRunId=TWO)
        self.assertNotEqual(self.place_of(second), self.place_of(first))
        self.assertNotIn("resumedLease", second["lease"]["metadata"])
        # the one that could not be resumed is of no use to anybody
        self.assertEqual(self.sandboxes(), [self.place_of(second)])
        self.assertEqual(self.state_of(self.place_of(first)), "gone")

    def test_parked_one_vanished(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        self.release(first)
        (self.world / self.place_of(first)).unlink()
        second = self.acquire(self.env, heartbeatRunId=TWO)
        self.assertEqual(self.sandboxes(), [self.place_of(second)])
        self.assertEqual(self.state_of(self.place_of(first)), "gone")

    def test_close_fails(self):
        """The lease ends, says so, and the place stays on the books until it is gone."""
        plain = self.environment(self.acme, name="plain")
        record = self.acquire(plain)
        (self.world / "fail-close").touch()
        ended = self.release(record)["lease"]
        self.assertEqual((ended["status"], ended["cleanupStatus"]), ("released", "failed"))
        self.assertEqual(self.state_of(self.place_of(record)), "closing")
        self.assertEqual(self.sandboxes(), [self.place_of(record)])
        leaks = self.ok("GET", "/api/leaks")
        self.assertEqual((leaks["total"], len(leaks["cleanupDue"])), (1, 1))
        (self.world / "fail-close").unlink()


class SweptTest(ReuseTest):
    sweep_ms = "20"

    def test_image_change_closes_the_idle_one(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        busy = self.acquire(self.env, heartbeatRunId=TWO)
        self.release(first)
        self.set_image("debian:12")
        wait_until(lambda: self.sandboxes() == [self.place_of(busy)], "the idle sandbox with the old image goes")
        self.assertEqual(self.lease(busy)["status"], "active")
        # the busy one is closed once it is idle
        self.release(busy)
        wait_until(lambda: self.sandboxes() == [], "the other one goes too")

    def test_archiving_closes_the_idle_one(self):
        self.release(self.acquire(self.env, heartbeatRunId=ONE))
        self.ok("PATCH", f"/api/environments/{self.env['id']}", {"status": "archived"})
        wait_until(lambda: self.sandboxes() == [], "the idle sandbox goes")

    def test_other_driver_closes_the_idle_one(self):
        self.release(self.acquire(self.env, heartbeatRunId=ONE))
        self.ok("PATCH", f"/api/environments/{self.env['id']}",
                {"driver": "ssh", "config": {"host": "h", "username": "u", "remoteWorkspacePath": "/w"}})
        wait_until(lambda: self.sandboxes() == [], "the idle sandbox goes")

    def test_failed_close_is_tried_again(self):
        plain = self.environment(self.acme, name="plain")
        record = self.acquire(plain)
        (self.world / "fail-close").touch()
        self.assertEqual(self.release(record)["lease"]["cleanupStatus"], "failed")
        (self.world / "fail-close").unlink()
        wait_until(lambda: self.sandboxes() == [], "the sandbox goes at last")
        wait_until(lambda: self.lease(record)["cleanupStatus"] == "success", "the lease says so")
        self.assertEqual(self.lease(record)["status"], "released")

    def test_expired_lease_of_a_reusable_place(self):
        record = self.acquire(self.env, heartbeatRunId=ONE, ttlMs=1)
        wait_until(lambda: self.lease(record)["status"] == "expired", "the lease expires")
        wait_until(lambda: self.sandboxes() == [], "its sandbox goes")


class IdleTest(ReuseTest):
    sweep_ms = "20"
    more_env = {"BERTH_IDLE_PLACE_TTL_MS": "1"}

    def test_idle_too_long(self):
        first = self.acquire(self.env, heartbeatRunId=ONE)
        busy = self.acquire(self.env, heartbeatRunId=TWO)
        self.release(first)
        wait_until(lambda: self.sandboxes() == [self.place_of(busy)], "the idle sandbox goes")
        self.assertEqual(self.state_of(self.place_of(busy)), "held")


if __name__ == "__main__":
    unittest.main()
