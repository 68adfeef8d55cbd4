"""Companies: the object, its Local environment, changing, archiving, deleting."""

import concurrent.futures
import unittest
import uuid

from berthtest import BerthTest


class CompaniesTest(BerthTest):
    def test_shape(self):
        made = self.company("Acme")
        local, = self.ok("GET", f"/api/companies/{made['id']}/environments")
        self.assertEqual({k: v for k, v in made.items() if k not in ("id", "createdAt", "updatedAt")}, {
            "name": "Acme", "description": None, "status": "active", "issuePrefix": "ACM", "issueCounter": 0,
            "budgetMonthlyCents": 0, "spentMonthlyCents": 0, "attachmentMaxBytes": 10485760,
            "requireBoardApprovalForNewAgents": False, "feedbackDataSharingEnabled": False,
            "feedbackDataSharingConsentAt": None, "feedbackDataSharingConsentByUserId": None,
            "feedbackDataSharingTermsVersion": None, "brandColor": None, "defaultEnvironmentId": local["id"],
            "logoAssetId": None, "logoUrl": None, "pauseReason": None, "pausedAt": None, "defaultResponsibleUserId": None,
            "interactionResolverGovernance": {}})
        self.assertEqual(made["createdAt"], made["updatedAt"])
        self.assertEqual(self.ok("GET", f"/api/companies/{made['id']}"), made)
        self.assertEqual(self.ok("GET", "/api/companies"), [made])
        self.assertEqual(list(self.ok("GET", "/api/companies/stats")), [made["id"]])

    # environment-runtime 7.42
    def test_has_a_local_environment(self):
        made = self.company()
        environments = self.ok("GET", f"/api/companies/{made['id']}/environments")
        self.assertEqual(len(environments), 1)
        self.assertEqual({k: environments[0][k] for k in ("name", "driver", "status", "config", "metadata")}, {
            "name": "Local", "driver": "local", "status": "active", "config": {},
            "metadata": {"managedByPaperclip": True}})

    def test_creator_owns_it(self):
        made = self.company()
        me = self.ok("GET", "/api/cli-auth/me")
        self.assertEqual(me["companyIds"], [made["id"]])
        self.assertEqual(me["memberships"],
                         [{"companyId": made["id"], "membershipRole": "owner", "status": "active"}])

    def test_prefixes(self):
        self.assertEqual([self.company(name)["issuePrefix"] for name in ("Acme", "Acme", "acm x", "4 U", "--", "Ä")],
                         ["ACM", "ACM2", "ACM3", "4U", "PAP", "PAP2"])

    def test_prefixes_in_parallel(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            prefixes = list(pool.map(lambda _: self.company()["issuePrefix"], range(16)))
        self.assertEqual(len(set(prefixes)), 16)

    def test_fields_and_bad_ones(self):
        made = self.ok("POST", "/api/companies", {"name": "A", "description": "d", "budgetMonthlyCents": 5,
                                                  "attachmentMaxBytes": 7}, status=201)
        self.assertEqual((made["description"], made["budgetMonthlyCents"], made["attachmentMaxBytes"]), ("d", 5, 7))
        for body in (None, [], {}, {"name": ""}, {"name": None}, {"name": "x", "budgetMonthlyCents": -1},
                     {"name": "x", "budgetMonthlyCents": "5"}, {"name": "x", "attachmentMaxBytes": 0.5},
                     {"name": "x", "description": 7}):
            with self.subTest(body=body):
                self.assert_error(self.req("POST", "/api/companies", body), 400, "Validation error")
        self.assertEqual(len(self.ok("GET", "/api/companies")), 1)

    def test_update(self):
        made = self.company()
        changed = self.ok("PATCH", f"/api/companies/{made['id']}",
                          {"name": "New", "description": "d", "status": "paused", "budgetMonthlyCents": 9,
                           "requireBoardApprovalForNewAgents": True, "brandColor": "#fff"})
        self.assertEqual((changed["name"], changed["description"], changed["status"], changed["budgetMonthlyCents"],
                          changed["requireBoardApprovalForNewAgents"], changed["brandColor"]),
                         ("New", "d", "paused", 9, True, "#fff"))
        self.assertEqual(changed["issuePrefix"], made["issuePrefix"])
        self.assertEqual(self.ok("PATCH", f"/api/companies/{made['id']}", {"description": None})["description"], None)
        for body in ([], {"name": ""}, {"status": "gone"}, {"budgetMonthlyCents": 1.5}):
            self.assert_error(self.req("PATCH", f"/api/companies/{made['id']}", body), 400, "Validation error")

    def test_archive(self):
        made = self.company()
        archived = self.ok("POST", f"/api/companies/{made['id']}/archive")
        self.assertEqual(archived["status"], "archived")
        actions = [r["action"] for r in self.ok("GET", f"/api/companies/{made['id']}/activity")]
        self.assertEqual(actions, ["company.archived", "company.created"])

    def test_delete(self):
        made = self.company()
        kept = self.company("Other")
        self.environment(made)
        self.assertEqual(self.ok("DELETE", f"/api/companies/{made['id']}"), {"ok": True})
        self.assert_error(self.req("GET", f"/api/companies/{made['id']}"), 404, "Company not found")
        self.assert_error(self.req("DELETE", f"/api/companies/{made['id']}"), 404, "Company not found")
        self.assertEqual([c["id"] for c in self.ok("GET", "/api/companies")], [kept["id"]])
        self.assertEqual(len(self.daemon.sql("SELECT id FROM environments")), 1)

    def test_delete_with_something_living(self):
        made = self.company()
        record = self.acquire(self.environment(made))
        self.assert_error(self.req("DELETE", f"/api/companies/{made['id']}"), 409,
                          "The company still has living leases or sandboxes; release them first.")
        self.release(record)
        self.ok("DELETE", f"/api/companies/{made['id']}")

    def test_delete_with_an_agent(self):
        made = self.company()
        self.agent(made)
        self.assert_error(self.req("DELETE", f"/api/companies/{made['id']}"), 409, contains="agents")
        self.assertEqual(self.req("GET", f"/api/companies/{made['id']}").status, 200)

    def test_missing(self):
        for ident in (str(uuid.uuid4()), "nonsense", "stats2"):
            for method, path, body in (("GET", "", None), ("PATCH", "", {}), ("DELETE", "", None),
                                       ("POST", "/archive", None), ("GET", "/members", None),
                                       ("GET", "/activity", None), ("GET", "/agents", None)):
                with self.subTest(method=method, path=path, ident=ident):
                    self.assert_error(self.req(method, f"/api/companies/{ident}{path}", body), 404,
                                      "Company not found")

    def test_who_sees_what(self):
        one, two = self.company("One"), self.company("Two")
        user = self.board_user(one)["token"]
        self.assertEqual([c["id"] for c in self.ok("GET", "/api/companies", token=user)], [one["id"]])
        self.ok("GET", f"/api/companies/{one['id']}", token=user)
        self.assert_error(self.req("GET", f"/api/companies/{two['id']}", token=user), 403,
                          "User does not have access to this company")
        self.assert_error(self.req("POST", "/api/companies", {"name": "Three"}, token=user), 403,
                          "Instance admin required")
        agent = self.agent(one)["token"]
        self.ok("GET", f"/api/companies/{one['id']}", token=agent)
        self.assert_error(self.req("GET", f"/api/companies/{two['id']}", token=agent), 403,
                          "Agent key cannot access another company")
        for method, path, body in (("GET", "/api/companies", None), ("POST", "/api/companies", {"name": "x"}),
                                   ("GET", "/api/companies/stats", None),
                                   ("DELETE", f"/api/companies/{one['id']}", None),
                                   ("POST", f"/api/companies/{one['id']}/archive", None)):
            self.assert_error(self.req(method, path, body, token=agent), 403, "Board access required")


if __name__ == "__main__":
    unittest.main()
