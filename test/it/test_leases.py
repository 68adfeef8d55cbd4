"""Leases over HTTP: acquiring, renewing, releasing, expiring, listing, and using them."""
# threads: acquires, releases and the sweeper on the same places

import concurrent.futures
import datetime
import os
import pathlib
import unittest
import uuid

from berthtest import BerthTest, wait_until

RUN = "7e0a33f4-5a5c-4d55-9c5e-3f3f6f4d9b01"
OTHER_RUN = "0d7df4ee-8c0e-4b3f-8a44-1d5f8f0d2c02"
ISSUE = "3f0a7c3e-0f4a-4f8b-9f0e-5a5d5c5b5a03"
WORKSPACE = "9b2d4f60-7a8c-4e1d-b3f5-6c7d8e9fa004"
SSH = {"host": "ssh.example.test", "username": "deploy", "remoteWorkspacePath": "/srv/work"}


def parse_time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def seconds_between(earlier, later):
    return (parse_time(later) - parse_time(earlier)).total_seconds()


class LeasesTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()

    def local(self):
        return self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=local")[0]

    def leases_of(self, env, query=""):
        return self.ok("GET", f"/api/environments/{env['id']}/leases{query}")

    def release_run(self, run, body=None, **more):
        return self.ok("POST", f"/api/heartbeat-runs/{run}/release-leases", body, **more)

    def activity(self, action):
        rows = self.ok("GET", f"/api/companies/{self.acme['id']}/activity?limit=500")
        return [row for row in rows if row["action"] == action]

    def act(self, lease, action, body=None, **more):
        return self.req("POST", f"/api/environment-leases/{lease['id']}/{action}", body, **more)


class DriverContractTest(LeasesTest):
    """What every driver keeps, for the local one and for the fake sandbox."""

    def each_driver(self):
        for env in (self.local(), self.environment(self.acme, name="box")):
            with self.subTest(driver=env["driver"]):
                yield env

    # environment-runtime 7.33, 7.34
    def test_acquire(self):
        for env in self.each_driver():
            record = self.acquire(env, heartbeatRunId=RUN)
            self.assertEqual(set(record), {"environment", "lease", "leaseContext"})
            self.assertEqual(record["environment"], env)
            self.assertEqual(record["leaseContext"],
                             {"executionWorkspaceId": None, "executionWorkspaceMode": None})
            lease = record["lease"]
            self.assertEqual((lease["companyId"], lease["environmentId"], lease["issueId"], lease["heartbeatRunId"],
                              lease["status"]), (self.acme["id"], env["id"], None, RUN, "active"))
            self.assertEqual(lease["metadata"]["driver"], env["driver"])
            self.assertIsNone(lease["metadata"]["executionWorkspaceMode"])
            self.assertIn("executionWorkspaceMode", lease["metadata"])

    # environment-runtime 7.38, 7.39
    def test_release_run(self):
        for env in self.each_driver():
            lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
            released = self.release_run(RUN)
            self.assertEqual([(r["environment"]["id"], r["lease"]["id"], r["lease"]["status"]) for r in released],
                             [(env["id"], lease["id"], "released")])
            self.assertEqual(self.leases_of(env, "?status=active"), [])
            self.assertEqual(self.release_run(RUN), [])
            self.assertEqual(self.release_run(RUN, {"status": "failed"}), [])
            self.assertEqual(self.lease(lease), released[0]["lease"])

    # environment-runtime 7.40
    def test_the_row(self):
        for env in self.each_driver():
            lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
            self.assertEqual((lease["status"], lease["heartbeatRunId"], lease["releasedAt"]), ("active", RUN, None))
            self.assertEqual(lease["acquiredAt"], lease["lastUsedAt"])
            self.assertEqual((lease["failureReason"], lease["cleanupStatus"]), (None, None))
            ended = self.release(lease)["lease"]
            self.assertEqual(ended["status"], "released")
            self.assertIsNotNone(ended["releasedAt"])
            self.assertEqual(self.lease(lease), ended)
            row = self.daemon.sql("SELECT * FROM environment_leases WHERE id = ?", (lease["id"],))[0]
            self.assertEqual((row["status"], row["heartbeat_run_id"]), ("released", RUN))
            self.assertIsNotNone(row["released_at"])

    # environment-runtime 7.41
    def test_other_runs_are_left_alone(self):
        for env in self.each_driver():
            one = self.acquire(env, heartbeatRunId=RUN)["lease"]
            two = self.acquire(env, heartbeatRunId=OTHER_RUN)["lease"]
            adhoc = self.acquire(env)["lease"]
            self.assertEqual([r["lease"]["id"] for r in self.release_run(RUN)], [one["id"]])
            self.assertEqual({lease["id"] for lease in self.leases_of(env, "?status=active")},
                             {two["id"], adhoc["id"]})

    def test_every_lease_of_the_run(self):
        for env in self.each_driver():
            made = [self.acquire(env, heartbeatRunId=RUN)["lease"]["id"] for _ in range(3)]
            self.assertEqual([r["lease"]["id"] for r in self.release_run(RUN)], made)


class LocalTest(LeasesTest):
    # environment-runtime 7.3, 7.5, 7.35
    def test_without_a_workspace(self):
        record = self.acquire(self.local(), heartbeatRunId=RUN)
        lease = record["lease"]
        self.assertEqual((lease["status"], lease["provider"], lease["providerLeaseId"], lease["leasePolicy"],
                          lease["executionWorkspaceId"], lease["expiresAt"]),
                         ("active", "local", None, "ephemeral", None, None))
        self.assertEqual(lease["metadata"], {"driver": "local", "executionWorkspaceMode": None})
        self.assertEqual(record["leaseContext"], {"executionWorkspaceId": None, "executionWorkspaceMode": None})

    # environment-runtime 7.4
    def test_release_run(self):
        lease = self.acquire(self.local(), heartbeatRunId=RUN)["lease"]
        released = self.release_run(RUN)
        self.assertEqual(len(released), 1)
        self.assertEqual(released[0]["environment"]["driver"], "local")
        self.assertEqual((released[0]["lease"]["status"], released[0]["lease"]["cleanupStatus"]), ("released", None))
        self.assertEqual(self.daemon.sql("SELECT status FROM environment_leases WHERE id = ?", (lease["id"],)),
                         [{"status": "released"}])

    def test_what_it_does_not_do(self):
        lease = self.acquire(self.local())["lease"]
        self.assert_error(self.act(lease, "resume"), 422,
                          'Environment driver "local" does not support lease resume.')
        self.assert_error(self.act(lease, "destroy"), 422,
                          'Environment driver "local" does not support lease destroy.')
        self.assertEqual(self.lease(lease)["status"], "active")

    # environment-runtime 7.32
    def test_released_after_its_environment_became_another(self):
        local = self.local()
        lease = self.acquire(local, heartbeatRunId=RUN)["lease"]
        self.ok("PATCH", f"/api/environments/{local['id']}", {"driver": "ssh", "config": SSH})
        released = self.release_run(RUN)
        self.assertEqual((released[0]["environment"]["driver"], released[0]["lease"]["status"]), ("ssh", "released"))
        self.assertEqual(self.lease(lease)["metadata"]["driver"], "local")


class FakeTest(LeasesTest):
    # environment-runtime 7.36
    def test_without_reuse(self):
        env = self.environment(self.acme, config={"provider": "fake", "image": " debian:12 "})
        lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
        self.assertRegex(lease["providerLeaseId"], f"^sandbox://fake/{RUN}/[0-9a-f-]{{36}}$")
        self.assertEqual(lease["metadata"], {"driver": "sandbox", "executionWorkspaceMode": None, "provider": "fake",
                                             "image": "debian:12", "reuseLease": False})
        self.assertEqual((lease["provider"], lease["leasePolicy"]), ("fake", "ephemeral"))
        adhoc = self.acquire(env)["lease"]
        self.assertRegex(adhoc["providerLeaseId"], "^sandbox://fake/[0-9a-f-]{36}/[0-9a-f-]{36}$")

    # environment-runtime 7.9
    def test_with_reuse(self):
        env = self.environment(self.acme, config={"provider": "fake", "reuseLease": True})
        lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
        self.assertEqual(lease["providerLeaseId"], f"sandbox://fake/{env['id']}")
        self.assertEqual(lease["metadata"], {"driver": "sandbox", "executionWorkspaceMode": None, "provider": "fake",
                                             "image": "ubuntu:24.04", "reuseLease": True})
        self.assertEqual(lease["leasePolicy"], "reuse_by_environment")
        # nobody could publish what an ad-hoc lease leaves
        self.assertEqual(self.acquire(env)["lease"]["leasePolicy"], "ephemeral")

    # environment-runtime 7.10
    def test_release(self):
        for reuse in (False, True):
            env = self.environment(self.acme, config={"provider": "fake", "reuseLease": reuse})
            self.acquire(env, heartbeatRunId=RUN)
            released = self.release_run(RUN)
            self.assertEqual([(r["lease"]["status"], r["lease"]["cleanupStatus"], r["lease"]["failureReason"])
                              for r in released], [("released", "success", None)])

    # environment-runtime 7.23
    def test_released_after_its_environment_became_local(self):
        env = self.environment(self.acme)
        self.acquire(env, heartbeatRunId=RUN)
        self.ok("PATCH", f"/api/environments/{self.local()['id']}", {"driver": "ssh", "config": SSH})
        self.assertEqual(self.ok("PATCH", f"/api/environments/{env['id']}", {"driver": "local"})["config"], {})
        released = self.release_run(RUN)
        self.assertEqual([(r["environment"]["driver"], r["lease"]["status"], r["lease"]["cleanupStatus"])
                          for r in released], [("local", "released", "success")])

    def test_what_it_does_not_do(self):
        lease = self.acquire(self.environment(self.acme))["lease"]
        self.assert_error(self.act(lease, "resume"), 422,
                          'Environment driver "sandbox" does not support lease resume.')
        self.assert_error(self.act(lease, "destroy"), 422,
                          'Environment driver "sandbox" does not support lease destroy.')
        self.assert_error(self.act(lease, "execute", {"command": "true"}), 422,
                          "Sandbox driver does not support direct command execution for built-in providers.")
        self.assertEqual(self.lease(lease)["status"], "active")


class AcquireTest(LeasesTest):
    def test_every_field(self):
        env = self.environment(self.acme)
        record = self.acquire(env, heartbeatRunId=RUN, issueId=ISSUE, executionWorkspaceId=WORKSPACE,
                              executionWorkspaceMode="isolated_workspace", ttlMs=3600000, idempotencyKey="k")
        lease = record["lease"]
        self.assertEqual(set(lease), {
            "id", "companyId", "environmentId", "executionWorkspaceId", "issueId", "heartbeatRunId", "status",
            "leasePolicy", "provider", "providerLeaseId", "acquiredAt", "lastUsedAt", "expiresAt", "releasedAt",
            "failureReason", "cleanupStatus", "metadata", "createdAt", "updatedAt"})
        self.assertEqual((lease["heartbeatRunId"], lease["issueId"], lease["executionWorkspaceId"]),
                         (RUN, ISSUE, WORKSPACE))
        self.assertEqual(lease["metadata"]["executionWorkspaceMode"], "isolated_workspace")
        self.assertEqual(record["leaseContext"], {"executionWorkspaceId": WORKSPACE,
                                                  "executionWorkspaceMode": "isolated_workspace"})
        self.assertAlmostEqual(seconds_between(lease["acquiredAt"], lease["expiresAt"]), 3600, delta=1)
        self.assertEqual(self.lease(lease), lease)

    def test_no_body_and_nulls(self):
        env = self.environment(self.acme)
        self.assert_status(self.req("POST", f"/api/environments/{env['id']}/leases"), 201)
        lease = self.acquire(env, heartbeatRunId=None, issueId=None, executionWorkspaceId=None,
                             executionWorkspaceMode=None)["lease"]
        self.assertEqual((lease["heartbeatRunId"], lease["issueId"]), (None, None))

    def test_run_in_capitals(self):
        env = self.environment(self.acme)
        lease = self.acquire(env, heartbeatRunId=RUN.upper())["lease"]
        self.assertEqual(lease["heartbeatRunId"], RUN)
        self.assertEqual(len(self.release_run(RUN.upper())), 1)

    def test_bad_bodies(self):
        env = self.environment(self.acme)
        for body, message in (
                ([], "Expected object, received array"),
                ({"heartbeatRunId": "run-1"}, "Invalid uuid"),
                ({"heartbeatRunId": 7}, "Expected string, received number"),
                ({"issueId": "x"}, "Invalid uuid"),
                ({"executionWorkspaceId": ""}, "Invalid uuid"),
                ({"executionWorkspaceMode": ""}, "String must contain at least 1 character(s)"),
                ({"executionWorkspaceMode": "x" * 65}, "String must contain at most 64 character(s)"),
                ({"ttlMs": 0}, "Number must be greater than or equal to 1"),
                ({"ttlMs": -5}, "Number must be greater than or equal to 1"),
                ({"ttlMs": 1.5}, "Expected integer, received float"),
                ({"ttlMs": "1000"}, "Expected number, received string"),
                ({"ttlMs": None}, "Expected number, received null"),
                ({"ttlMs": 366 * 86400000 + 1}, f"Number must be less than or equal to {366 * 86400000}"),
                ({"ttlMs": 1e300}, None),
                ({"idempotencyKey": ""}, "String must contain at least 1 character(s)"),
                ({"idempotencyKey": "x" * 256}, "String must contain at most 255 character(s)"),
                ({"idempotencyKey": {}}, "Expected string, received object"),
                ({"leasePolicy": "ephemeral", "x": 1}, "Unrecognized key(s) in object: 'leasePolicy', 'x'")):
            with self.subTest(body=body):
                answer = self.req("POST", f"/api/environments/{env['id']}/leases", body)
                self.assert_error(answer, 400, "Validation error")
                if message:
                    self.assertEqual(answer.json["details"][0]["message"], message)
        self.assertEqual(self.leases_of(env), [])
        self.assertEqual(self.daemon.sql("SELECT COUNT(*) AS n FROM places"), [{"n": 0}])
        self.acquire(env, ttlMs=366 * 86400000, idempotencyKey="x" * 255, executionWorkspaceMode="x" * 64)

    def test_unknown_environment(self):
        self.assert_error(self.req("POST", f"/api/environments/{uuid.uuid4()}/leases", {}), 404,
                          "Environment not found")
        self.assert_error(self.req("POST", "/api/environments/nonsense/leases", {}), 404, "Environment not found")

    def test_archived_environment(self):
        env = self.environment(self.acme, name="old box", status="archived")
        self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {}), 422,
                          'Environment "old box" is not active.')
        self.assertEqual(self.leases_of(env), [])
        self.ok("PATCH", f"/api/environments/{env['id']}", {"status": "active"})
        lease = self.acquire(env)["lease"]
        # a lease that lives may be ended whatever became of the environment
        self.ok("PATCH", f"/api/environments/{env['id']}", {"status": "archived"})
        self.assertEqual(self.release(lease)["lease"]["status"], "released")

    def test_agents_have_no_lease_actions(self):
        env = self.environment(self.acme)
        lease = self.acquire(env, heartbeatRunId=RUN)["lease"]
        token = self.agent(self.acme, permissions={"canCreateAgents": True})["token"]
        self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {}, token=token), 403,
                          "Board access required")
        for action in ("renew", "release", "resume", "destroy", "realize-workspace", "execute"):
            self.assert_error(self.act(lease, action, {"ttlMs": 1}, token=token), 403, "Board access required")
        self.assert_error(self.req("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {}, token=token), 403,
                          "Board access required")
        self.assertEqual(self.lease(lease), lease)

    def test_activity(self):
        env = self.environment(self.acme)
        lease = self.acquire(env, heartbeatRunId=RUN, issueId=ISSUE)["lease"]
        self.release(lease, status="failed")
        details = {"environmentId": env["id"], "driver": "sandbox", "leasePolicy": "ephemeral", "provider": "fake",
                   "executionWorkspaceId": None, "issueId": ISSUE}
        acquired, released = (self.activity(f"environment.lease_{what}") for what in ("acquired", "released"))
        self.assertEqual([(row["entityType"], row["entityId"], row["details"]) for row in acquired],
                         [("environment_lease", lease["id"], details)])
        self.assertEqual(len(released), 1)
        self.assertEqual({**details, "status": "failed", "failureReason": "adapter_or_run_failure"},
                         {k: v for k, v in released[0]["details"].items() if k != "cleanupStatus"})


class IdempotencyTest(LeasesTest):
    def each(self):
        for env in (self.local(), self.environment(self.acme, name="box"),
                    self.environment(self.acme, name="kept", config={"provider": "fake", "reuseLease": True})):
            with self.subTest(environment=env["name"]):
                yield env

    def again(self, env, **body):
        return self.ok("POST", f"/api/environments/{env['id']}/leases", body)

    def test_again_gives_the_same(self):
        for env in self.each():
            first = self.acquire(env, heartbeatRunId=RUN, idempotencyKey="k1")
            self.assertEqual(self.again(env, heartbeatRunId=RUN, idempotencyKey="k1"), first)
            self.assertEqual(len(self.leases_of(env)), 1)
            other = self.acquire(env, heartbeatRunId=RUN, idempotencyKey="k2")
            self.assertNotEqual(other["lease"]["id"], first["lease"]["id"])

    def test_also_after_release(self):
        for env in self.each():
            first = self.acquire(env, heartbeatRunId=RUN, idempotencyKey="k1")
            ended = self.release(first)
            self.assertEqual(self.again(env, heartbeatRunId=RUN, idempotencyKey="k1"), ended)
            self.assertEqual(self.leases_of(env, "?status=active"), [])

    def test_keys_belong_to_their_environment(self):
        one = self.environment(self.acme, name="one")
        two = self.environment(self.acme, name="two")
        self.assertNotEqual(self.acquire(one, idempotencyKey="k")["lease"]["id"],
                            self.acquire(two, idempotencyKey="k")["lease"]["id"])

    def test_at_once(self):
        for env in self.each():
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(
                    lambda _, env=env: self.req("POST", f"/api/environments/{env['id']}/leases",
                                                {"heartbeatRunId": RUN, "idempotencyKey": "k"}), range(16)))
            self.assertEqual(sorted(a.status for a in answers), [200] * 15 + [201])
            self.assertEqual(len({a.json["lease"]["id"] for a in answers}), 1)
            self.assertEqual(len(self.leases_of(env)), 1)
            self.assertEqual(self.daemon.sql("SELECT state FROM places WHERE environment_id = ? AND state <> 'gone'",
                                             (env["id"],)), [{"state": "held"}])

    def test_a_failed_acquire_does_not_use_up_the_key(self):
        env = self.environment(self.acme, status="archived")
        self.assert_status(self.req("POST", f"/api/environments/{env['id']}/leases", {"idempotencyKey": "k"}), 422)
        self.ok("PATCH", f"/api/environments/{env['id']}", {"status": "active"})
        self.acquire(env, idempotencyKey="k")


class ReleaseTest(LeasesTest):
    def test_statuses(self):
        env = self.environment(self.acme)
        for body, status, reason in ((None, "released", None), ({}, "released", None),
                                     ({"status": "released"}, "released", None),
                                     ({"status": "expired"}, "expired", None),
                                     ({"status": "failed"}, "failed", "adapter_or_run_failure")):
            with self.subTest(body=body):
                lease = self.acquire(env)["lease"]
                ended = self.ok("POST", f"/api/environment-leases/{lease['id']}/release", body)["lease"]
                self.assertEqual((ended["status"], ended["failureReason"], ended["cleanupStatus"]),
                                 (status, reason, "success"))
                self.assertIsNotNone(ended["releasedAt"])

    def test_failed_local_lease_gives_no_reason(self):
        ended = self.release(self.acquire(self.local()), status="failed")["lease"]
        self.assertEqual((ended["status"], ended["failureReason"], ended["cleanupStatus"]), ("failed", None, None))

    def test_twice_changes_nothing(self):
        for env in (self.local(), self.environment(self.acme)):
            lease = self.acquire(env)["lease"]
            first = self.release(lease, status="failed")
            self.assertEqual(self.release(lease), first)
            self.assertEqual(self.release(lease, status="expired"), first)
            self.assertEqual(self.lease(lease), first["lease"])
        self.assertEqual(len(self.activity("environment.lease_released")), 2)

    def test_at_once(self):
        env = self.environment(self.acme)
        lease = self.acquire(env)["lease"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda s: self.act(lease, "release", {"status": s}),
                                    ["released", "failed", "expired", "released"] * 4))
        self.assertEqual({a.status for a in answers}, {200})
        self.assertEqual({a.json["lease"]["status"] for a in answers}, {self.lease(lease)["status"]})
        self.assertEqual(len(self.activity("environment.lease_released")), 1)

    def test_bad_bodies(self):
        lease = self.acquire(self.environment(self.acme))["lease"]
        for body in ([], {"status": "active"}, {"status": "retained"}, {"status": None}, {"status": 1},
                     {"reason": "x"}):
            self.assert_error(self.act(lease, "release", body), 400, "Validation error")
            self.assert_error(self.req("POST", f"/api/heartbeat-runs/{RUN}/release-leases", body), 400,
                              "Validation error")
        self.assertEqual(self.lease(lease), lease)

    def test_unknown(self):
        for action in ("renew", "release", "resume", "destroy", "realize-workspace", "execute"):
            for ident in (str(uuid.uuid4()), "nonsense"):
                self.assert_error(self.req("POST", f"/api/environment-leases/{ident}/{action}", {}), 404,
                                  "Environment lease not found")
        self.assert_error(self.req("GET", f"/api/environment-leases/{uuid.uuid4()}"), 404,
                          "Environment lease not found")
        self.assert_error(self.req("POST", "/api/heartbeat-runs/nonsense/release-leases", {}), 404,
                          "Heartbeat run not found")
        self.assertEqual(self.release_run(str(uuid.uuid4())), [])

    def test_a_run_of_several_companies(self):
        """Whoever names a run of somebody else's gets no hold of its leases, and takes nothing from it."""
        other = self.company("Other")
        mine = self.acquire(self.environment(self.acme), heartbeatRunId=RUN)["lease"]
        theirs = self.acquire(self.environment(other), heartbeatRunId=RUN)["lease"]
        manager = self.board_user(self.acme, grants=["environments:manage"])["token"]
        self.assertEqual([r["lease"]["id"] for r in self.release_run(RUN, token=manager)], [mine["id"]])
        self.assertEqual(self.lease(theirs), theirs)
        self.assert_error(self.req("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {}, token=manager), 403,
                          "User does not have access to this company")
        self.assertEqual(self.lease(theirs), theirs)

    def test_statuses_of_a_run(self):
        env = self.environment(self.acme)
        for status in ("released", "expired", "failed"):
            self.acquire(env, heartbeatRunId=RUN)
            self.assertEqual([r["lease"]["status"] for r in self.release_run(RUN, {"status": status})], [status])


class ExpiryTest(LeasesTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_SWEEP_INTERVAL_MS": "20"}

    def test_the_sweeper_ends_what_is_over(self):
        for env in (self.local(), self.environment(self.acme)):
            lease = self.acquire(env, heartbeatRunId=RUN, ttlMs=1)["lease"]
            kept = self.acquire(env, heartbeatRunId=OTHER_RUN)["lease"]
            ended = wait_until(lambda lease=lease: (s := self.lease(lease))["status"] != "active" and s,
                               "the lease expires")
            self.assertEqual(ended["status"], "expired")
            self.assertIsNotNone(ended["releasedAt"])
            self.assertIsNone(ended["failureReason"])
            self.assertEqual(self.lease(kept)["status"], "active")
        row = self.activity("environment.lease_released")[0]
        self.assertEqual((row["actorType"], row["details"]["status"]), ("system", "expired"))

    def test_renewed_ones_stay(self):
        env = self.environment(self.acme)
        lease = self.acquire(env, ttlMs=3600000)["lease"]
        short = self.acquire(env, ttlMs=1)["lease"]
        renewed = self.ok("POST", f"/api/environment-leases/{lease['id']}/renew", {"ttlMs": 7200000})
        self.assertEqual(set(renewed), {"environment", "lease", "leaseContext"})
        self.assertAlmostEqual(seconds_between(renewed["lease"]["lastUsedAt"], renewed["lease"]["expiresAt"]), 7200, delta=1)
        self.assertGreater(renewed["lease"]["expiresAt"], lease["expiresAt"])
        wait_until(lambda: self.lease(short)["status"] == "expired", "the other lease expires")
        self.assertEqual(self.lease(lease)["status"], "active")
        # a shorter time counts as well
        self.ok("POST", f"/api/environment-leases/{lease['id']}/renew", {"ttlMs": 1})
        wait_until(lambda: self.lease(lease)["status"] == "expired", "the renewed lease expires")

    def test_what_ended_is_not_renewed(self):
        lease = self.release(self.acquire(self.environment(self.acme)))["lease"]
        self.assert_error(self.act(lease, "renew", {"ttlMs": 1000}), 409,
                          "The lease has ended and cannot be renewed.")
        self.assertEqual(self.lease(lease), lease)

    def test_bad_renewals(self):
        lease = self.acquire(self.environment(self.acme))["lease"]
        for body in (None, {}, {"ttlMs": 0}, {"ttlMs": "1"}, {"ttlMs": None}, {"ttlMs": 1, "x": 1},
                     {"ttlMs": 366 * 86400000 + 1}):
            self.assert_error(self.act(lease, "renew", body), 400, "Validation error")
        self.assertEqual(self.lease(lease), lease)

    def test_lease_of_a_run_outside_has_no_time(self):
        lease = self.acquire(self.environment(self.acme), heartbeatRunId=RUN)["lease"]
        self.assertIsNone(lease["expiresAt"])
        renewed = self.ok("POST", f"/api/environment-leases/{lease['id']}/renew", {"ttlMs": 60000})["lease"]
        self.assertIsNotNone(renewed["expiresAt"])


class AdHocExpiryTest(LeasesTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_SWEEP_INTERVAL_MS": "20", "BERTH_ADHOC_TTL_MS": "5000"}

    def test_ad_hoc_leases_have_a_time(self):
        env = self.environment(self.acme)
        lease = self.acquire(env)["lease"]
        self.assertAlmostEqual(seconds_between(lease["acquiredAt"], lease["expiresAt"]), 5, delta=1)
        own = self.acquire(env, ttlMs=60000)["lease"]
        self.assertAlmostEqual(seconds_between(own["acquiredAt"], own["expiresAt"]), 60, delta=1)
        self.daemon.env["BERTH_ADHOC_TTL_MS"] = "1"
        self.daemon.restart()
        short = self.acquire(env)["lease"]
        wait_until(lambda: self.lease(short)["status"] == "expired", "the ad-hoc lease expires")
        self.assertEqual(self.lease(own)["status"], "active")


class UseAfterTest(LeasesTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_SWEEP_INTERVAL_MS": "3600000"}

    def test_past_its_time(self):
        """No sweeper comes by, and the lease cannot be used all the same."""
        lease = self.acquire(self.local(), ttlMs=1)["lease"]
        workspace = {"workspace": {}}
        answer = wait_until(lambda: (a := self.act(lease, "realize-workspace", workspace)).status != 200 and a,
                            "the lease's time is up")
        self.assert_error(answer, 409, "The lease has expired and cannot be used any more.")
        self.assert_error(self.act(lease, "renew", {"ttlMs": 1000}), 409,
                          "The lease has ended and cannot be renewed.")
        self.assertEqual(self.lease(lease)["status"], "active")

    def test_after_release(self):
        lease = self.release(self.acquire(self.local()), status="failed")["lease"]
        for action, body in (("realize-workspace", {"workspace": {}}), ("execute", {"command": "true"}),
                             ("resume", {})):
            self.assert_error(self.act(lease, action, body), 409,
                              "The lease is failed and cannot be used any more.")


class ListingTest(LeasesTest):
    # environment-runtime 7.81; http-api 8.23
    def test_status_filter(self):
        env = self.environment(self.acme)
        made = {}
        for status in ("released", "expired", "failed"):
            made[status] = self.release(self.acquire(env), status=status)["lease"]
        made["active"] = self.acquire(env)["lease"]
        for status, lease in made.items():
            self.assertEqual(self.leases_of(env, f"?status={status}"), [lease])
        self.assertEqual(self.leases_of(env, "?status=retained"), [])
        self.assertEqual(self.leases_of(env, "?status=nonsense"), [])
        self.assertEqual(len(self.leases_of(env)), 4)
        self.assertEqual(self.leases_of(self.local()), [])

    # environment-runtime 7.82; http-api 8.24
    def test_single_lease(self):
        env = self.environment(self.acme)
        lease = self.acquire(env)["lease"]
        path = f"/api/environment-leases/{lease['id']}"
        for who in (self.agent(self.acme, permissions={"canCreateAgents": True}),
                    self.agent(self.acme, name="Bob", grants=["environments:manage"]),
                    self.board_user(self.acme, grants=["environments:manage"])):
            self.assertEqual(self.ok("GET", path, token=who["token"]), lease)
            self.assertEqual(self.ok("GET", f"/api/environments/{env['id']}/leases", token=who["token"]), [lease])
        for who in (self.agent(self.acme, name="Cid"), self.board_user(self.acme, user="dan")):
            for p in (path, f"/api/environments/{env['id']}/leases"):
                self.assert_error(self.req("GET", p, token=who["token"]), 403,
                                  "Missing permission: environments:manage")

    def test_last_used_first(self):
        env = self.environment(self.acme)
        one, two, three = (self.acquire(env)["lease"]["id"] for _ in range(3))
        self.assertEqual([lease["id"] for lease in self.leases_of(env)], [three, two, one])
        self.release(one)
        self.assertEqual([lease["id"] for lease in self.leases_of(env)], [one, three, two])
        self.ok("POST", f"/api/environment-leases/{two}/renew", {"ttlMs": 60000})
        self.assertEqual([lease["id"] for lease in self.leases_of(env)], [two, one, three])

    def test_pages(self):
        env = self.environment(self.acme)
        made = [self.acquire(env)["lease"]["id"] for _ in range(7)][::-1]
        for size in (1, 3, 6):
            seen, cursor = [], ""
            while cursor is not None:
                answer = self.req("GET", f"/api/environments/{env['id']}/leases?limit={size}{cursor}")
                self.assert_status(answer, 200)
                self.assertLessEqual(len(answer.json), size)
                seen += [lease["id"] for lease in answer.json]
                following = answer.headers.get("X-Next-Cursor")
                cursor = f"&cursor={following}" if following else None
            self.assertEqual(seen, made)
        for query in ("", "?limit=7", "?limit=500"):
            answer = self.req("GET", f"/api/environments/{env['id']}/leases{query}")
            self.assertEqual([lease["id"] for lease in answer.json], made)
            self.assertIsNone(answer.headers.get("X-Next-Cursor"))

    def test_leases_of_a_company(self):
        envs = [self.environment(self.acme, name=f"e{i}") for i in range(3)]
        made = [self.acquire(env)["lease"]["id"] for env in envs * 2][::-1]
        other = self.company("Other")
        self.acquire(self.environment(other))
        path = f"/api/companies/{self.acme['id']}/environment-leases"
        self.assertEqual([lease["id"] for lease in self.ok("GET", path)], made)
        self.release(made[2])
        living = [ident for ident in made if ident != made[2]]
        for query in ("?living=true&limit=2", "?limit=2"):
            seen, cursor = [], ""
            while cursor is not None:
                answer = self.req("GET", f"{path}{query}{cursor}")
                seen += [lease["id"] for lease in answer.json]
                following = answer.headers.get("X-Next-Cursor")
                cursor = f"&cursor={following}" if following else None
            self.assertEqual(sorted(seen), sorted(living if "living" in query else made))
            self.assertEqual(len(seen), len(set(seen)))
        self.assert_status(self.req("GET", path + "?limit=501"), 400)
        self.assert_status(self.req("GET", f"/api/companies/{RUN}/environment-leases"), 404)

    def test_pages_of_a_status(self):
        env = self.environment(self.acme)
        kept = []
        for i in range(6):
            lease = self.acquire(env)["lease"]["id"]
            if i % 2:
                self.release(lease)
            else:
                kept.insert(0, lease)
        answer = self.req("GET", f"/api/environments/{env['id']}/leases?status=active&limit=2")
        self.assertEqual([lease["id"] for lease in answer.json], kept[:2])
        cursor = answer.headers["X-Next-Cursor"]
        answer = self.req("GET", f"/api/environments/{env['id']}/leases?status=active&limit=2&cursor={cursor}")
        self.assertEqual([lease["id"] for lease in answer.json], kept[2:])

    def test_bad_pages(self):
        env = self.environment(self.acme)
        for query in ("limit=0", "limit=501", "limit=-1", "limit=x", "limit=1.5", "limit=99999999999999999999"):
            self.assert_error(self.req("GET", f"/api/environments/{env['id']}/leases?{query}"), 400,
                              "limit must be a whole number from 1 to 500")
        for cursor in ("x", "1", "1.x", f".{uuid.uuid4()}", f"0.{uuid.uuid4()}", f"-5.{uuid.uuid4()}"):
            self.assert_status(self.req("GET", f"/api/environments/{env['id']}/leases?cursor={cursor}"), 400)


class RealizeTest(LeasesTest):
    def setUp(self):
        self.base = self.temp_dir().resolve()
        self.root = self.base / "root"
        (self.root / "work").mkdir(parents=True)
        (self.base / "outside").mkdir()
        self.daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_WORKSPACE_ROOTS": f"/nowhere:{self.root}/"}
        super().setUp()

    def realize(self, lease, **workspace):
        return self.act(lease, "realize-workspace", {"workspace": workspace})

    def test_local(self):
        lease = self.acquire(self.local(), heartbeatRunId=RUN)["lease"]
        used_at = "SELECT last_used_at FROM environment_leases"  # to the microsecond
        before = self.daemon.sql(used_at)[0]["last_used_at"]
        path = str(self.root / "work")
        answer = self.realize(lease, localPath=path, mode="isolated")
        self.assert_status(answer, 200)
        self.assertEqual(answer.json["cwd"], path)
        record = answer.json["metadata"]["workspaceRealization"]
        self.assertEqual((record["version"], record["transport"], record["leaseId"], record["local"]["path"],
                          record["summary"]),
                         (1, "local", lease["id"], path, f"Local workspace realized at {path}."))
        self.assertEqual(record["sync"]["strategy"], "none")
        self.assertEqual(record["rebuild"]["mode"], "isolated")
        after = self.lease(lease)
        self.assertEqual(after["metadata"], {**lease["metadata"], "workspaceRealization": record})
        self.assertGreater(self.daemon.sql(used_at)[0]["last_used_at"], before)

    def test_paths(self):
        lease = self.acquire(self.local())["lease"]
        self.assertEqual(self.realize(lease).json["cwd"], "/")
        self.assertEqual(self.realize(lease, remotePath="/far").json["cwd"], "/far")
        self.assertEqual(self.realize(lease, localPath=str(self.root), remotePath="/far").json["cwd"],
                         str(self.root))

    def test_sandbox(self):
        lease = self.acquire(self.environment(self.acme))["lease"]
        path = str(self.root / "work")
        answer = self.realize(lease, localPath=path)
        self.assert_status(answer, 200)
        record = answer.json["metadata"]["workspaceRealization"]
        self.assertEqual((answer.json["cwd"], record["transport"], record["provider"], record["providerLeaseId"]),
                         (path, "sandbox", "fake", lease["providerLeaseId"]))
        self.assertEqual(self.lease(lease)["metadata"]["workspaceRealization"], record)

    def test_again_replaces(self):
        lease = self.acquire(self.local())["lease"]
        self.realize(lease, localPath=str(self.root))
        self.realize(lease, localPath=str(self.root / "work"))
        metadata = self.lease(lease)["metadata"]
        self.assertEqual(metadata["workspaceRealization"]["local"]["path"], str(self.root / "work"))
        self.assertEqual(set(metadata), {"driver", "executionWorkspaceMode", "workspaceRealization"})

    def test_outside_the_roots(self):
        lease = self.acquire(self.local())["lease"]
        work = self.root / "work"
        os.symlink("/etc", work / "out")
        os.symlink("../../outside", work / "up")
        os.symlink(str(self.root), work / "absolute")
        (self.base / "root-twin").mkdir()
        (self.base / "rootwork").mkdir()  # begins like the root, and "work" is beneath it
        (work / "file").write_text("x")
        for path in ("/", "/etc", str(self.base), str(self.base / "outside"), str(self.base / "root-twin"), str(self.base / "rootwork"),
                     f"{self.root}/..", f"{self.root}/../outside", f"{work}/../../outside", f"{work}/out",
                     f"{work}/out/ssh", f"{work}/up", f"{work}/missing", f"{work}/file", "work", "./work",
                     "../outside", "relative", f"{self.root}x", "/nowhere", "/proc/self/root/etc"):
            with self.subTest(path=path):
                answer = self.realize(lease, localPath=path)
                self.assert_error(answer, 422, contains=f"Workspace path '{path}' is not an existing directory")
        self.assertEqual(self.lease(lease), lease)

    def test_beneath_the_roots(self):
        lease = self.acquire(self.local())["lease"]
        deep = self.root / "a" / "b" / "c"
        deep.mkdir(parents=True)
        os.symlink("b", self.root / "a" / "link")
        for path in (self.root, deep, self.root / "a" / "link" / "c", f"{self.root}/", f"{self.root}//a/./b"):
            with self.subTest(path=path):
                self.assert_status(self.realize(lease, localPath=str(path)), 200)

    def test_bad_bodies(self):
        lease = self.acquire(self.local())["lease"]
        for body in (None, [], {}, {"workspace": None}, {"workspace": []}, {"workspace": {"localPath": ""}},
                     {"workspace": {"localPath": 7}}, {"workspace": {"localPath": None}},
                     {"workspace": {"localPath": "/" + "x" * 4096}}, {"workspace": {"metadata": []}},
                     {"workspace": {"mode": ""}}, {"workspace": {"cwd": "/"}}, {"workspace": {}, "x": 1}):
            with self.subTest(body=body):
                self.assert_error(self.act(lease, "realize-workspace", body), 400, "Validation error")
        self.assertEqual(self.lease(lease), lease)

    def test_strange_requests_inside_metadata(self):
        lease = self.acquire(self.local())["lease"]
        for metadata in ({"workspaceRealizationRequest": 7}, {"request": {"version": 1}},
                         {"request": {"version": 1, "source": [], "companyId": {}, "adapterType": None}},
                         {"workspaceRealizationRequest": {"version": 1, "companyId": "c", "environmentId": "e",
                                                          "heartbeatRunId": "r", "adapterType": "a",
                                                          "source": {"localPath": "/given"},
                                                          "runtimeOverlay": {"provisionCommand": {"odd": 1}}}}):
            with self.subTest(metadata=metadata):
                self.assert_status(self.realize(lease, metadata=metadata), 200)


class DefaultRootsTest(LeasesTest):
    def test_home_and_temporary_directory(self):
        lease = self.acquire(self.local())["lease"]
        for path in (os.environ["HOME"], self.temp_dir()):
            answer = self.act(lease, "realize-workspace",
                              {"workspace": {"localPath": str(pathlib.Path(path).resolve())}})
            self.assert_status(answer, 200)
        self.assert_status(self.act(lease, "realize-workspace", {"workspace": {"localPath": "/etc"}}), 422)


if __name__ == "__main__":
    unittest.main()
