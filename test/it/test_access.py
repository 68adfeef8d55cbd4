"""Who gets in: identities, memberships, keys, and what an anonymous caller sees."""

import pathlib
import unittest
import uuid

from berthtest import FAKE_CONFIG, BerthTest, new_company

SSH = {"host": "h", "username": "u", "remoteWorkspacePath": "/w"}


class TrustedTest(BerthTest):
    # http-api 8.86
    def test_the_local_board_passes(self):
        company = self.company()
        me = self.ok("GET", "/api/cli-auth/me")
        self.assertEqual((me["userId"], me["isInstanceAdmin"], me["source"], me["keyId"]),
                         ("local-board", True, "local_implicit", None))
        self.assertEqual(me["user"], {"id": "local-board", "name": "Board", "email": "local@paperclip.local"})
        self.environment(company)

    def test_unknown_tokens_are_nobody(self):
        """No token that means nothing falls back to the trusted local board."""
        company = self.company()
        agent = self.agent(company)
        keys = self.ok("GET", f"/api/agents/{agent['id']}/keys")
        self.ok("DELETE", f"/api/agents/{agent['id']}/keys/{keys[0]['id']}")
        board = self.board_user(company)
        self.ok("DELETE", f"/api/board-api-keys/{board['id']}")
        late = self.operator("POST", "/api/board-api-keys", {"expiresAt": "2020-01-01T00:00:00Z"}, 201)
        for token in ("x", "pcp_" + "0" * 48, "pcp_board_" + "0" * 48, agent["token"], board["token"], late["token"],
                      "", " ", "a" * 4000):
            for path in (f"/api/companies/{company['id']}/environments", "/api/companies", "/api/health"):
                with self.subTest(token=token[:20], path=path):
                    answer = self.req("GET", path, token=token)
                    self.assert_error(answer, 401, "Unauthorized")
                    self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")
        for header in ("Basic dTpw", "bearer", "pcp_board_x"):
            self.assert_status(self.req("GET", "/api/companies", headers={"Authorization": header}), 401)

    def test_tokens_are_stored_as_digests(self):
        company = self.company()
        tokens = [self.agent(company)["token"], self.board_user(company)["token"]]
        self.assertRegex(tokens[0], "^pcp_[0-9a-f]{48}$")
        self.assertRegex(tokens[1], "^pcp_board_[0-9a-f]{48}$")
        self.daemon.stop()
        stored = b"".join(p.read_bytes() for p in pathlib.Path(self.daemon.data).rglob("*") if p.is_file())
        for token in tokens:
            self.assertNotIn(token.encode(), stored)
            self.assertNotIn(token, self.daemon.log())

    def test_key_lists_show_no_tokens(self):
        company = self.company()
        agent, board = self.agent(company), self.board_user(company)
        for path in (f"/api/agents/{agent['id']}/keys", "/api/board-api-keys"):
            answer = self.req("GET", path)
            self.assert_status(answer, 200)
            self.assertNotIn("token", answer.json[0])
            for secret in (agent["token"], board["token"]):
                self.assertNotIn(secret, answer.text)

    def test_last_grant_counts(self):
        company = self.company()
        agent = self.agent(company, grants=["environments:manage"])
        path = f"/api/companies/{company['id']}/environments"
        body = {"name": "x", "driver": "sandbox", "config": FAKE_CONFIG}
        self.ok("POST", path, body, status=201, token=agent["token"])
        # another right that is taken leaves this one alone
        self.ok("PATCH", f"/api/agents/{agent['id']}/permissions",
                {"canCreateAgents": False, "canAssignTasks": False})
        self.ok("POST", path, body, status=201, token=agent["token"])
        member = next(m for m in self.ok("GET", f"/api/companies/{company['id']}/members")["members"]
                      if m["principalId"] == agent["id"])
        self.assertEqual([g["permissionKey"] for g in member["grants"]], ["environments:manage"])
        self.ok("PATCH", f"/api/companies/{company['id']}/members/{member['id']}/permissions", {"grants": []})
        self.assert_error(self.req("POST", path, body, token=agent["token"]), 403,
                          "Missing permission: environments:manage")

    def test_members_and_what_the_caller_may_do(self):
        company = self.company()
        shown = self.ok("GET", f"/api/companies/{company['id']}/members")
        self.assertEqual([(m["principalId"], m["membershipRole"]) for m in shown["members"]], [("local-board", "owner")])
        self.assertEqual(shown["access"], {"currentUserRole": "owner", "canManageMembers": True, "canInviteUsers": False,
                                           "canApproveJoinRequests": False})
        viewer = self.board_user(company, user="bob", role="viewer")["token"]
        shown = self.ok("GET", f"/api/companies/{company['id']}/members", token=viewer)
        self.assertEqual((shown["access"]["currentUserRole"], shown["access"]["canManageMembers"]), ("viewer", False))

    def test_grants_are_checked(self):
        company = self.company()
        member = self.ok("GET", f"/api/companies/{company['id']}/members")["members"][0]
        path = f"/api/companies/{company['id']}/members/{member['id']}/permissions"
        for body in (None, {}, {"grants": {}}, {"grants": ["environments:manage"]}, {"grants": [{}]},
                     {"grants": [{"permissionKey": "everything"}]},
                     {"grants": [{"permissionKey": "environments:manage", "x": 1}]}, {"grants": [], "y": 1}):
            with self.subTest(body=body):
                self.assert_error(self.req("PATCH", path, body), 400, "Validation error")
        for ident in (str(uuid.uuid4()), "x"):
            self.assert_error(self.req("PATCH", f"/api/companies/{company['id']}/members/{ident}/permissions",
                                       {"grants": []}), 404, "Member not found")
        agent = self.agent(company)["token"]
        self.assert_error(self.req("PATCH", path, {"grants": []}, token=agent), 403, "Board access required")
        operator = self.board_user(company)["token"]
        self.assert_error(self.req("PATCH", path, {"grants": []}, token=operator), 403,
                          "Missing permission: users:manage_permissions")


class AuthenticatedTest(BerthTest):
    daemon_flags = ("--mode", "authenticated")

    def company(self, name="Acme"):
        return self.operator("POST", "/api/companies", new_company(name), 201)

    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.path = f"/api/companies/{self.acme['id']}/environments"
        self.body = {"name": "x", "driver": "ssh", "config": SSH}

    def test_anonymous_callers_get_nothing(self):
        env = self.operator("POST", self.path, self.body, 201)
        for method, path, status in (
                ("GET", self.path, 401), ("POST", self.path, 401), ("GET", f"/api/environments/{env['id']}", 401),
                ("PATCH", f"/api/environments/{env['id']}", 401), ("DELETE", f"/api/environments/{env['id']}", 401),
                ("GET", f"/api/environments/{env['id']}/leases", 401),
                ("POST", f"/api/environments/{env['id']}/leases", 403),
                ("GET", f"/api/environment-leases/{uuid.uuid4()}", 401),
                ("POST", f"/api/heartbeat-runs/{uuid.uuid4()}/release-leases", 403),
                ("GET", "/api/companies", 403), ("GET", f"/api/companies/{self.acme['id']}", 401),
                ("GET", f"/api/companies/{self.acme['id']}/activity", 401),
                ("GET", f"/api/companies/{self.acme['id']}/agents", 401),
                ("GET", "/api/cli-auth/me", 401), ("GET", "/api/board-api-keys", 403), ("GET", "/api/leaks", 403),
                ("GET", "/metrics", 403), ("GET", "/api/instance/settings/general", 403),
                ("GET", f"/api/environments/{uuid.uuid4()}", 401)):
            with self.subTest(method=method, path=path):
                answer = self.req(method, path, {} if method in ("POST", "PATCH") else None)
                self.assert_status(answer, status)
                self.assertEqual(answer.error in ("Unauthorized", "Board authentication required"), status == 401)

    # http-api 8.89
    def test_anonymous_health(self):
        self.assertEqual(self.ok("GET", "/api/health"), {
            "status": "ok", "deploymentMode": "authenticated", "bootstrapStatus": "ready",
            "bootstrapInviteActive": False})
        user = self.board_user(self.acme)["token"]
        answer = self.ok("GET", "/api/health", token=user)
        self.assertEqual((answer["version"], answer["deploymentExposure"], answer["authReady"]),
                         ("0.3.1", "private", True))

    # http-api 8.86
    def test_viewers_read(self):
        viewer = self.board_user(self.acme, role="viewer", grants=["environments:manage"])["token"]
        self.ok("GET", self.path, token=viewer)
        self.ok("GET", f"/api/companies/{self.acme['id']}", token=viewer)
        for method, path, body in (("POST", self.path, self.body),
                                   ("PATCH", f"/api/companies/{self.acme['id']}", {"name": "Mine"}),
                                   ("POST", f"/api/companies/{self.acme['id']}/agents", {"name": "a"}),
                                   ("DELETE", f"/api/companies/{self.acme['id']}", None)):
            self.assert_error(self.req(method, path, body, token=viewer), 403, "Viewer access is read-only")

    # http-api 8.86
    def test_membership_is_needed(self):
        other = self.company("Other")
        stranger = self.board_user(other, user="sam")["token"]
        admin = self.board_user(user="root", admin=True)["token"]
        for who in (stranger, admin):
            for method, body in (("GET", None), ("POST", self.body)):
                self.assert_error(self.req(method, self.path, body, token=who), 403,
                                  "User does not have access to this company")
        # as a member the admin passes, without any grant
        self.board_user(self.acme, user="root", role="operator")
        self.ok("POST", self.path, self.body, status=201, token=admin)

    def test_membership_that_is_not_active(self):
        user = self.board_user(self.acme, grants=["environments:manage"])
        self.daemon.stop()
        with self.daemon.record() as db:
            db.execute("UPDATE company_memberships SET status = 'suspended' WHERE principal_id = ?",
                       (user["userId"],))
        self.daemon.start()
        self.assert_error(self.req("GET", self.path, token=user["token"]), 403,
                          "User does not have access to this company")
        self.assert_error(self.req("POST", self.path, self.body, token=user["token"]), 403,
                          "User does not have active company access")

    def test_roles(self):
        for role, status in (("owner", 201), ("admin", 201), ("operator", 403)):
            user = self.board_user(self.acme, user=role, role=role)["token"]
            self.assert_status(self.req("POST", self.path, self.body, token=user), status)

    def test_the_operator_s_socket(self):
        me = self.operator("GET", "/api/cli-auth/me")
        self.assertEqual((me["userId"], me["isInstanceAdmin"]), ("local-board", True))
        # a token given there counts instead
        viewer = self.board_user(self.acme, role="viewer")["token"]
        answer = self.daemon.req_unix("POST", self.path, self.body, token=viewer)
        self.assert_error(answer, 403, "Viewer access is read-only")
        self.assert_error(self.daemon.req_unix("GET", self.path, token="wrong"), 401, "Unauthorized")

    def test_board_keys(self):
        user = self.board_user(self.acme)["token"]
        own = self.ok("POST", "/api/board-api-keys", {"name": "laptop"}, status=201, token=user)
        me = self.ok("GET", "/api/cli-auth/me", token=own["token"])
        self.assertEqual((me["user"]["name"], me["source"], me["keyId"], me["isInstanceAdmin"]),
                         ("ann", "board_key", own["id"], False))
        self.assertEqual(me["memberships"], [{"companyId": self.acme["id"], "membershipRole": "operator",
                                              "status": "active"}])
        # only an administrator makes keys for others, or rights
        for body in ({"user": "root"}, {"instanceAdmin": True}, {"requestedCompanyId": self.acme["id"]},
                     {"requestedCompanyId": self.acme["id"], "membershipRole": "owner"},
                     {"grants": [{"permissionKey": "environments:manage"}]}):
            self.assert_error(self.req("POST", "/api/board-api-keys", body, token=user), 403,
                              "Instance admin access required")
        agent = self.agent(self.acme)["token"]
        self.assert_error(self.req("POST", "/api/board-api-keys", {}, token=agent), 403, "Board access required")
        # a user sees and revokes its own
        mine = {k["id"] for k in self.ok("GET", "/api/board-api-keys", token=user)}
        other = self.board_user(self.acme, user="bob")
        self.assertNotIn(other["id"], mine)
        self.assert_error(self.req("DELETE", f"/api/board-api-keys/{other['id']}", token=user), 404, "Key not found")
        self.ok("DELETE", f"/api/board-api-keys/{own['id']}", token=user)
        self.assert_status(self.req("GET", "/api/cli-auth/me", token=own["token"]), 401)

    def test_bad_board_keys(self):
        for body in ([], {"name": ""}, {"name": "x" * 121}, {"user": ""}, {"requestedCompanyId": "x"},
                     {"membershipRole": "king"}, {"grants": {}}, {"expiresAt": "tomorrow"}, {"expiresAt": 5},
                     {"token": "x"}):
            with self.subTest(body=body):
                answer = self.daemon.req_unix("POST", "/api/board-api-keys", body)
                self.assert_error(answer, 400, "Validation error")
        answer = self.daemon.req_unix("POST", "/api/board-api-keys", {"membershipRole": "owner"})
        self.assert_status(answer, 422)
        answer = self.daemon.req_unix("POST", "/api/board-api-keys", {"user": "x", "requestedCompanyId": str(uuid.uuid4())})
        self.assert_error(answer, 404, "Company not found")
        self.assertEqual(self.daemon.sql("SELECT name FROM users"), [{"name": "Board"}])


if __name__ == "__main__":
    unittest.main()
