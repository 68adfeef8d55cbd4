"""The activity log: reading it, writing to it, and what never gets into it."""

import unittest
import uuid

from berthtest import BerthTest

RUN = "7e0a33f4-5a5c-4d55-9c5e-3f3f6f4d9b01"


class ActivityTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.path = f"/api/companies/{self.acme['id']}/activity"

    def write(self, status=201, **body):
        entry = {"actorId": "a", "action": "test.done", "entityType": "thing", "entityId": "t", **body}
        return self.ok("POST", self.path, entry, status=status)

    # http-api 8.90
    def test_limits(self):
        for _ in range(4):
            for i in range(128):
                self.write(entityId=str(i))

        def count(query):
            return len(self.ok("GET", self.path + query))

        self.assertEqual(count(""), 100)
        self.assertEqual(count("?limit=500"), 500)
        self.assertEqual(count("?limit=501"), 500)
        self.assertEqual(count("?limit=99999999999999999999"), 500)
        self.assertEqual(count("?limit=101"), 101)
        self.assertEqual(count("?limit=0"), 1)
        self.assertEqual(count("?limit=-5"), 1)
        self.assertEqual(count("?limit="), 100)
        self.assertEqual([r["entityId"] for r in self.ok("GET", self.path + "?limit=3")], ["127", "126", "125"])

    def test_filters(self):
        agent = self.agent(self.acme)
        self.write(entityType="thing", entityId="1")
        self.write(entityType="thing", entityId="2", agentId=agent["id"])
        self.write(entityType="other", entityId="1")

        def found(query):
            return [(r["entityType"], r["entityId"]) for r in self.ok("GET", self.path + query)]

        self.assertEqual(found("?entityType=thing"), [("thing", "2"), ("thing", "1")])
        self.assertEqual(found("?entityType=thing&entityId=1"), [("thing", "1")])
        self.assertEqual(found("?entityId=1"), [("other", "1"), ("thing", "1")])
        self.assertEqual(found(f"?agentId={agent['id']}"), [("thing", "2")])
        self.assertEqual(found(f"?agentId={uuid.uuid4()}"), [])

    def test_shape(self):
        made = self.write(actorType="user", actorId="ann", details={"n": 1})
        self.assertEqual({k: v for k, v in made.items() if k not in ("id", "createdAt")}, {
            "companyId": self.acme["id"], "actorType": "user", "actorId": "ann", "action": "test.done",
            "entityType": "thing", "entityId": "t", "agentId": None, "runId": None, "details": {"n": 1}})
        self.assertEqual(self.ok("GET", self.path + "?limit=1"), [made])
        self.assertEqual(self.write()["actorType"], "system")
        self.assertIsNone(self.write()["details"])

    def test_run_of_the_caller(self):
        answer = self.req("POST", self.path, {"actorId": "a", "action": "x", "entityType": "t", "entityId": "1"},
                          headers={"X-Paperclip-Run-Id": RUN.upper()})
        self.assertEqual(answer.json["runId"], RUN)
        answer = self.req("POST", self.path, {"actorId": "a", "action": "x", "entityType": "t", "entityId": "1"},
                          headers={"X-Paperclip-Run-Id": "run-1"})
        self.assert_error(answer, 400, "X-Paperclip-Run-Id must be a UUID")

    def test_secrets_are_scrubbed_by_name(self):
        made = self.write(details={"apiKey": "hush", "nested": {"PASSWORD": "hush", "ok": 1},
                                   "list": [{"access_token": "hush"}, "plain"], "name": "kept"})
        self.assertEqual(made["details"]["name"], "kept")
        self.assertEqual(made["details"]["nested"]["ok"], 1)
        self.assertEqual(made["details"]["list"][1], "plain")
        self.assertNotIn("hush", str(made))
        self.assertNotIn("hush", str(self.daemon.sql("SELECT * FROM activity_log")))

    def test_bad_entries(self):
        good = {"actorId": "a", "action": "x", "entityType": "t", "entityId": "1"}
        for body in (None, [], {}, {**good, "actorType": "ghost"}, {**good, "actorId": ""}, {**good, "action": 1},
                     {**good, "agentId": "x"}, {**good, "details": []}):
            with self.subTest(body=body):
                self.assert_error(self.req("POST", self.path, body), 400, "Validation error")

    def test_unknown_agent(self):
        self.write(agentId=str(uuid.uuid4()))

    def test_who_may(self):
        agent = self.agent(self.acme)["token"]
        self.ok("GET", self.path, token=agent)
        self.assert_error(self.req("POST", self.path, {"actorId": "a", "action": "x", "entityType": "t",
                                                       "entityId": "1"}, token=agent), 403, "Board access required")
        viewer = self.board_user(self.acme, role="viewer")["token"]
        self.ok("GET", self.path, token=viewer)
        self.assert_error(self.req("POST", self.path, {"actorId": "a", "action": "x", "entityType": "t",
                                                       "entityId": "1"}, token=viewer), 403,
                          "Viewer access is read-only")

    def test_nothing_of_a_life_of_leases_shows_values(self):
        """Names, counts and statuses, whatever is in config, metadata and paths."""
        env = self.environment(self.acme, config={"provider": "fake", "image": "hidden-image"},
                               metadata={"hidden-key": "hidden-value"}, description="hidden-description")
        self.ok("POST", f"/api/environments/{env['id']}/probe")
        self.ok("PATCH", f"/api/environments/{env['id']}", {"config": {"image": "hidden-image-2"},
                                                            "metadata": {"hidden": 1}, "description": "hidden"})
        lease = self.acquire(env, idempotencyKey="hidden-idempotency")["lease"]
        self.ok("POST", f"/api/environment-leases/{lease['id']}/realize-workspace",
                {"workspace": {"remotePath": "/hidden", "metadata": {"hidden": 1}}})
        self.release(lease)
        self.ok("DELETE", f"/api/environments/{env['id']}")
        rows = self.ok("GET", self.path)
        self.assertEqual([r["action"] for r in rows if r["action"].startswith("environment.")],
                         ["environment.deleted", "environment.lease_released", "environment.lease_acquired",
                          "environment.updated", "environment.probed", "environment.created"])
        shown = str([r for r in rows if r["action"] != "environment.probed"])  # a summary names the image
        self.assertNotIn("hidden", shown)


if __name__ == "__main__":
    unittest.main()
