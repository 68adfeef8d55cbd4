"""Who may what, over the real daemon: tokens, roles, grants, the sign-in of the command line, names and
origins of requests, and the operator's own socket."""

import errno
import json
import os
import pathlib
import stat
import unittest

import berthtest
from berthtest import BerthTest, Client, ident, new_company

NOBODY = 65534
RUN = "7b2f0a52-8a53-4c8e-9d4e-0a4e3f6f6a11"
OTHER_RUN = "7b2f0a52-8a53-4c8e-9d4e-0a4e3f6f6a12"
MISSING = "00000000-0000-4000-8000-000000000000"
BAD_BEARERS = ("pcp_" + "0" * 48, "pcp_board_" + "0" * 48, "x", "a.b.c", "", " ", "'; DROP TABLE users; --", "ü" * 10,
               "pcp_board_" + "f" * 5000)


class AuthTest(BerthTest):
    """Adds what the operator does through the socket, and a pen for the database."""

    def operator(self, method, path, body=None, status=200):
        answer = self.daemon.req_unix(method, path, body)
        self.assert_status(answer, status)
        return answer.json

    def company(self, name="Acme"):
        return self.operator("POST", "/api/companies", new_company(name), 201)

    def key(self, user=None, company=None, role=None, grants=(), admin=False, **more):
        """A board key; the whole answer."""
        body = {"name": "test", **more}
        if user:
            body["user"] = user
        if company:
            body["requestedCompanyId"] = ident(company)
        if role:
            body["membershipRole"] = role
        if grants:
            body["grants"] = [{"permissionKey": g, "scope": None} for g in grants]
        if admin:
            body["instanceAdmin"] = True
        return self.operator("POST", "/api/board-api-keys", body, 201)

    def token(self, *args, **more):
        return self.key(*args, **more)["token"]

    def agent(self, company, name="Ada", **body):
        return self.operator("POST", f"/api/companies/{ident(company)}/agents", {"name": name, **body}, 201)

    def agent_token(self, agent):
        return self.operator("POST", f"/api/agents/{ident(agent)}/keys", {}, 201)["token"]

    def environment(self, company, **body):
        body = {"name": "box", "driver": "sandbox", "config": {"provider": "fake"}, **body}
        return self.operator("POST", f"/api/companies/{ident(company)}/environments", body, 201)

    def edit(self, statement, parameters=()):
        """Change the database behind the daemon's back."""
        with self.daemon.record() as db:
            self.assertNotEqual(db.execute(statement, parameters).rowcount, 0)

    def as_(self, token, method, path, body=None, headers=None):
        return self.req(method, path, body, headers=headers, token=token)


class BearerTest(AuthTest):
    """Local trusted mode: nobody in particular is the board, but a bad token is nobody at all."""

    def test_without_a_token(self):
        me = self.ok("GET", "/api/cli-auth/me")
        self.assertEqual((me["userId"], me["source"], me["isInstanceAdmin"], me["keyId"]),
                         ("local-board", "local_implicit", True, None))
        self.assertEqual(self.ok("GET", "/api/health")["deploymentMode"], "local_trusted")

    # http-api 8.86: a bearer that is not known never falls back to the trusted board
    def test_bad_tokens_are_nobody(self):
        company = self.company()
        paths = ("/api/companies", f"/api/companies/{company['id']}", "/api/cli-auth/me", "/api/leaks", "/api/health",
                 "/metrics", "/")
        for token in BAD_BEARERS:
            for path in paths:
                with self.subTest(token=token[:20], path=path):
                    answer = self.req("GET", path, headers={"Authorization": f"Bearer {token}".encode()})
                    self.assert_error(answer, 401, "Unauthorized")
                    self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")
        for scheme in ("Basic bG9jYWwtYm9hcmQ6", "Bearer", "bearer", "Token x", "Digest", ""):
            with self.subTest(scheme=scheme):
                self.assert_status(self.req("GET", "/api/companies", headers={"Authorization": scheme}), 401)
        self.assert_status(self.req("DELETE", f"/api/companies/{company['id']}", token="pcp_" + "0" * 48), 401)
        self.assertEqual(len(self.ok("GET", "/api/companies")), 1)

    def test_bad_tokens_on_the_operators_socket(self):
        answer = self.daemon.req_unix("GET", "/api/companies", token="pcp_board_" + "0" * 48)
        self.assert_error(answer, 401, "Unauthorized")

    # http-api 8.86
    def test_the_trusted_board_needs_no_membership(self):
        company = self.company()
        self.edit("DELETE FROM company_memberships")
        self.ok("GET", f"/api/companies/{company['id']}")
        self.ok("PATCH", f"/api/companies/{company['id']}", {"description": "mine"})

    def test_revoked_and_expired(self):
        """A token that ended never falls back to the trusted board."""
        key, agent = self.key(), self.agent(self.company())
        agent_key = self.operator("POST", f"/api/agents/{agent['id']}/keys", {}, 201)
        self.assert_status(self.as_(key["token"], "GET", "/api/cli-auth/me"), 200)
        self.assert_status(self.as_(agent_key["token"], "GET", "/api/agents/me"), 200)
        self.edit("UPDATE board_api_keys SET expires_at = 1")
        self.assert_error(self.as_(key["token"], "GET", "/api/cli-auth/me"), 401, "Unauthorized")
        self.edit("UPDATE board_api_keys SET expires_at = NULL")
        self.assert_status(self.as_(key["token"], "GET", "/api/cli-auth/me"), 200)
        self.ok("DELETE", f"/api/board-api-keys/{key['id']}")
        self.assert_error(self.as_(key["token"], "GET", "/api/cli-auth/me"), 401, "Unauthorized")
        self.ok("DELETE", f"/api/agents/{agent['id']}/keys/{agent_key['id']}")
        self.assert_error(self.as_(agent_key["token"], "GET", "/api/agents/me"), 401, "Unauthorized")

    def test_revocation_outlives_the_daemon(self):
        key = self.key()
        self.ok("DELETE", f"/api/board-api-keys/{key['id']}")
        self.daemon.restart(crash=True)
        self.assert_status(self.as_(key["token"], "GET", "/api/cli-auth/me"), 401)

    def test_a_token_is_taken_as_it_is(self):
        token = self.token()
        for changed in (token.upper(), token + "0", token[:-1], token[10:], " " + token):
            with self.subTest(changed=changed[-6:]):
                self.assert_status(self.as_(changed, "GET", "/api/companies"), 401)
        for scheme in ("Bearer", "bearer", "BEARER"):
            self.assert_status(self.req("GET", "/api/companies", headers={"Authorization": f"{scheme} {token}"}), 200)

    def test_run_id(self):
        for value in ("x", "1", RUN[:-1], RUN + "0", "../../etc/passwd", RUN.replace("-", "_"), "' OR 1=1"):
            with self.subTest(value=value):
                answer = self.req("POST", "/api/companies", {"name": "x"}, headers={"X-Paperclip-Run-Id": value})
                self.assert_error(answer, 400, "X-Paperclip-Run-Id must be a UUID")
        self.assertEqual(self.ok("GET", "/api/companies"), [])
        company = self.company()
        self.ok("POST", f"/api/companies/{company['id']}/environments",
                {"name": "box", "driver": "sandbox", "config": {"provider": "fake"}}, 201,
                headers={"X-Paperclip-Run-Id": RUN.upper()})
        rows = self.ok("GET", f"/api/companies/{company['id']}/activity?entityType=environment")
        self.assertIn(RUN, [r["runId"] for r in rows])


class TokenStorageTest(AuthTest):
    def files(self):
        return {p.name: p.read_bytes() for p in pathlib.Path(self.daemon.data).iterdir() if p.is_file()}

    @berthtest.sqlite_only
    def test_only_digests_are_stored(self):
        agent = self.agent(self.company())
        challenge = self.ok("POST", "/api/cli-auth/challenges", {"command": "test"}, 201)
        secrets = [self.token(), self.agent_token(agent), challenge["token"], challenge["boardApiToken"]]
        for secret, prefix in zip(secrets, ("pcp_board_", "pcp_", "pcp_cli_auth_", "pcp_board_")):
            self.assertRegex(secret, f"^{prefix}[0-9a-f]{{48}}$")
        self.ok("POST", f"/api/cli-auth/challenges/{challenge['id']}/approve", {"token": challenge["token"]})
        files = self.files()
        self.assertIn("berth.db", files)
        self.assertTrue(any(b"token_sha256" in data for data in files.values()), "the database is among them")
        for secret in secrets:
            for form in (secret.encode(), secret.rpartition("_")[2].encode(), bytes.fromhex(secret.rpartition("_")[2])):
                for name, data in files.items():
                    self.assertNotIn(form, data, name)
                self.assertNotIn(form, self.daemon.log().encode())

    def test_lists_never_show_tokens(self):
        agent = self.agent(self.company())
        tokens = [self.token(), self.agent_token(agent)]
        for path in ("/api/board-api-keys", f"/api/agents/{agent['id']}/keys", f"/api/agents/{agent['id']}",
                     f"/api/companies/{agent['companyId']}/activity", "/metrics"):
            text = self.req("GET", path).text
            for token in tokens:
                self.assertNotIn(token.rpartition("_")[2], text, path)
            self.assertNotIn("sha256", text)
            self.assertNotIn('"token"', text)
        self.assertEqual(set(self.ok("GET", f"/api/agents/{agent['id']}/keys")[0]),
                         {"id", "name", "createdAt", "revokedAt"})

    def test_the_files_are_the_operators_alone(self):
        for path in pathlib.Path(self.daemon.data).rglob("*"):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode) & 0o077, 0, path)

    def test_tokens_are_not_alike(self):
        tokens = {self.token() for _ in range(20)}
        self.assertEqual(len(tokens), 20)
        self.assertEqual(len({t[-48:-40] for t in tokens}), 20)


class AuthenticatedTest(AuthTest):
    daemon_flags = ("--mode", "authenticated")

    # http-api 8.89
    def test_anonymous_health(self):
        health = self.ok("GET", "/api/health")
        self.assertEqual(set(health), {"status", "deploymentMode", "bootstrapStatus", "bootstrapInviteActive"})
        self.assertEqual((health["status"], health["deploymentMode"]), ("ok", "authenticated"))
        known = self.ok("GET", "/api/health", token=self.token())
        self.assertLess(set(health), set(known))

    # http-api 8.89
    @berthtest.sqlite_only
    def test_health_without_a_database(self):
        token = self.token()
        for path in self.daemon.data.glob("berth.db*"):
            if path.suffix != ".db-shm":
                size = path.stat().st_size
                with open(path, "r+b") as file:
                    file.write(os.urandom(size))
        self.assert_status(self.req("GET", "/api/companies", token=token), 500)
        answer = self.req("GET", "/api/health")
        self.assert_status(answer, 503)
        self.assertEqual(answer.json, {"status": "unhealthy", "version": "0.3.1", "error": "database_unreachable"})
        self.daemon.kill()

    def test_anonymous(self):
        company = self.company()
        env, agent = self.environment(company), self.agent(company)
        lease = self.operator("POST", f"/api/environments/{env['id']}/leases", {}, 201)["lease"]
        c, e, a, l = f"/api/companies/{company['id']}", f"/api/environments/{env['id']}", f"/api/agents/{agent['id']}", \
            f"/api/environment-leases/{lease['id']}"
        for method, path, status in (
                ("GET", "/api/companies", 403), ("POST", "/api/companies", 403), ("GET", "/api/companies/stats", 403),
                ("GET", c, 401), ("PATCH", c, 403), ("DELETE", c, 403), ("POST", f"{c}/archive", 403),
                ("GET", f"{c}/members", 403), ("GET", f"{c}/environments", 401), ("POST", f"{c}/environments", 401),
                ("GET", f"{c}/environments/capabilities", 401), ("POST", f"{c}/environments/probe-config", 401),
                ("GET", f"{c}/agents", 401), ("POST", f"{c}/agents", 401), ("GET", f"{c}/activity", 401),
                ("POST", f"{c}/activity", 403), ("GET", e, 401), ("PATCH", e, 401), ("DELETE", e, 401),
                ("POST", f"{e}/probe", 401), ("GET", f"{e}/leases", 401), ("POST", f"{e}/leases", 403),
                ("GET", l, 401), ("POST", f"{l}/renew", 403), ("POST", f"{l}/release", 403),
                ("POST", f"{l}/destroy", 403), ("POST", f"{l}/execute", 403), ("GET", a, 401),
                ("GET", f"{a}/keys", 403), ("POST", f"{a}/keys", 403), ("PATCH", f"{a}/permissions", 401),
                ("GET", "/api/agents/me", 401), ("GET", "/api/cli-auth/me", 401), ("GET", "/api/auth/get-session", 401),
                ("GET", "/api/board-api-keys", 403), ("POST", "/api/board-api-keys", 403),
                ("GET", "/api/instance/settings/general", 403), ("PATCH", "/api/instance/settings/general", 403),
                ("GET", "/api/instance/scheduler-heartbeats", 403), ("GET", "/api/leaks", 403), ("GET", "/metrics", 403),
                ("POST", f"/api/heartbeat-runs/{RUN}/release-leases", 403),
                ("POST", f"/api/places/{MISSING}/close", 403), ("POST", f"/api/places/{MISSING}/forget", 403)):
            with self.subTest(method=method, path=path):
                answer = self.req(method, path, {} if method in ("POST", "PATCH") else None)
                self.assertIn(answer.status, (401, 403), answer.body)
                self.assertEqual(answer.status, status, answer.body)
                self.assertIn(answer.error, ("Unauthorized", "Board access required", "Board authentication required",
                                             "Agent authentication required"))
                self.assertNotIn("Acme", answer.text)
        self.assertEqual(self.operator("GET", f"/api/environment-leases/{lease['id']}")["status"], "active")

    def test_bad_tokens(self):
        """A token that ended never falls back to the trusted board."""
        for token in BAD_BEARERS:
            with self.subTest(token=token[:20]):
                for path in ("/api/companies", "/api/health"):
                    answer = self.req("GET", path, headers={"Authorization": f"Bearer {token}".encode()})
                    self.assert_error(answer, 401, "Unauthorized")

    def test_the_first_key_comes_through_the_socket(self):
        status, token, err = self.cli("key", "create", "--board", "--name", "first")
        self.assertEqual(status, 0, err)
        token = token.strip()
        self.assertNotIn(token, err)
        me = self.ok("GET", "/api/cli-auth/me", token=token)
        self.assertEqual((me["userId"], me["source"], me["isInstanceAdmin"]), ("local-board", "board_key", True))
        self.assert_error(self.req("POST", "/api/board-api-keys", {"name": "x"}), 403, "Board access required")

    # http-api 8.86
    def test_roles(self):
        company = self.company()
        # Without a default environment: an agent that would work on this machine takes an instance admin.
        self.operator("PATCH", f"/api/companies/{company['id']}", {"defaultEnvironmentId": None})
        c = f"/api/companies/{company['id']}"
        env = self.environment(company)
        rights = {  # may: read, write, environments, agents, permissions
            "viewer": (True, False, False, False, False),
            "operator": (True, True, False, False, False),
            "admin": (True, True, True, True, False),
            "owner": (True, True, True, True, True),
        }
        member = self.operator("GET", f"{c}/members")["members"][0]
        for role, (read, write, environments, agents, permissions) in rights.items():
            token = self.token(role, company, role)
            for allowed, method, path, body, refusal in (
                    (read, "GET", c, None, ""),
                    (read, "GET", f"{c}/environments", None, ""),
                    (write, "PATCH", c, {"description": role}, ""),
                    (environments, "POST", f"/api/environments/{env['id']}/probe", {}, "environments:manage"),
                    (environments, "GET", f"/api/environments/{env['id']}/leases", None, "environments:manage"),
                    (agents, "POST", f"{c}/agents", {"name": f"of {role}"}, "agents:create"),
                    (permissions, "PATCH", f"{c}/members/{member['id']}/permissions", {"grants": []},
                     "users:manage_permissions")):
                with self.subTest(role=role, method=method, path=path):
                    answer = self.as_(token, method, path, body)
                    if allowed:
                        self.assertIn(answer.status, (200, 201), answer.body)
                    elif role == "viewer":
                        self.assert_error(answer, 403, "Viewer access is read-only")
                    else:
                        self.assert_error(answer, 403, f"Missing permission: {refusal}")
        self.assertEqual({a["name"] for a in self.operator("GET", f"{c}/agents")}, {"of admin", "of owner"})

    # http-api 8.11, 8.12
    def test_grants(self):
        company, other = self.company(), self.company("Other")
        path = f"/api/companies/{company['id']}/environments"
        body = {"name": "granted", "driver": "sandbox", "config": {"provider": "fake"}}
        token = self.token("greta", company, "operator")
        self.assert_error(self.as_(token, "POST", path, body), 403, "Missing permission: environments:manage")
        self.assertNotIn("granted", [e["name"] for e in self.operator("GET", path)])
        member = [m for m in self.operator("GET", f"/api/companies/{company['id']}/members")["members"]
                  if m["membershipRole"] == "operator"][0]
        grants = f"/api/companies/{company['id']}/members/{member['id']}/permissions"
        answer = self.operator("PATCH", grants, {"grants": [{"permissionKey": "environments:manage", "scope": None}]})
        self.assertEqual(answer["grants"], [{"permissionKey": "environments:manage", "scope": None}])
        self.assert_status(self.as_(token, "POST", path, body), 201)
        self.assert_error(self.as_(token, "POST", path.replace(company["id"], other["id"]), body), 403,
                          "User does not have access to this company")
        # A grant counts only with an active membership.
        self.edit("UPDATE company_memberships SET status = 'suspended' WHERE id = ?", (member["id"],))
        self.assert_error(self.as_(token, "POST", path, body), 403, "User does not have active company access")
        self.edit("UPDATE company_memberships SET status = 'active' WHERE id = ?", (member["id"],))
        self.operator("PATCH", grants, {"grants": []})
        self.assert_error(self.as_(token, "POST", path, {**body, "name": "more"}), 403, contains="environments:manage")

    def test_permissions_route(self):
        company, other = self.company(), self.company("Other")
        members = self.operator("GET", f"/api/companies/{company['id']}/members")["members"]
        path = f"/api/companies/{company['id']}/members/{members[0]['id']}/permissions"
        for body in ({}, {"grants": None}, {"grants": "all"}, {"grants": [{}]}, {"grants": ["agents:create"]},
                     {"grants": [{"permissionKey": "root"}]}, {"grants": [], "role": "owner"},
                     {"grants": [{"permissionKey": "agents:create", "scope": "all"}]},
                     {"grants": [{"permissionKey": "agents:create", "extra": 1}]}):
            with self.subTest(body=body):
                answer = self.daemon.req_unix("PATCH", path, body)
                self.assert_error(answer, 400, "Validation error")
        for wrong in (path.replace(members[0]["id"], MISSING), path.replace(members[0]["id"], "x"),
                      path.replace(company["id"], other["id"])):
            self.assert_error(self.daemon.req_unix("PATCH", wrong, {"grants": []}), 404, "Member not found")
        agent = self.agent_token(self.agent(company))
        self.assert_error(self.as_(agent, "PATCH", path, {"grants": []}), 403, "Board access required")
        viewer = self.token("viewer", company, "viewer")
        self.assert_error(self.as_(viewer, "PATCH", path, {"grants": []}), 403, "Viewer access is read-only")

    # http-api 8.86
    def test_membership(self):
        company, other = self.company(), self.company("Other")
        c, o = f"/api/companies/{company['id']}", f"/api/companies/{other['id']}"
        token = self.token("mia", company, "owner")
        self.assertEqual([x["id"] for x in self.ok("GET", "/api/companies", token=token)], [company["id"]])
        for method, path, body in (("GET", o, None), ("PATCH", o, {"name": "x"}), ("GET", f"{o}/environments", None),
                                   ("GET", f"{o}/agents", None), ("GET", f"{o}/members", None), ("DELETE", o, None),
                                   ("GET", f"{o}/activity", None)):
            with self.subTest(method=method, path=path):
                self.assert_error(self.as_(token, method, path, body), 403, "User does not have access to this company")
        self.edit("UPDATE company_memberships SET status = 'suspended' WHERE principal_id <> 'local-board'")
        self.assert_error(self.as_(token, "GET", c), 403, "User does not have access to this company")
        self.assert_error(self.as_(token, "PATCH", c, {"name": "x"}), 403, "User does not have active company access")
        me = self.ok("GET", "/api/cli-auth/me", token=token)
        self.assertEqual((me["companyIds"], me["memberships"][0]["status"]), ([], "suspended"))
        self.assertEqual(self.operator("GET", c)["name"], "Acme")

    # http-api 8.86
    def test_admin_without_membership(self):
        company = self.company()
        token = self.token("root", admin=True)
        self.assertEqual(len(self.ok("GET", "/api/companies", token=token)), 1)
        c = f"/api/companies/{company['id']}"
        for method, path, body in (("GET", c, None), ("PATCH", c, {"name": "x"}), ("GET", f"{c}/environments", None)):
            self.assert_error(self.as_(token, method, path, body), 403, "User does not have access to this company")
        mine = self.ok("POST", "/api/companies", {"name": "Mine"}, 201, token=token)
        self.ok("PATCH", f"/api/companies/{mine['id']}", {"name": "Still mine"}, token=token)
        me = self.ok("GET", "/api/cli-auth/me", token=token)
        self.assertEqual([(m["companyId"], m["membershipRole"]) for m in me["memberships"]], [(mine["id"], "owner")])

    def test_what_only_an_admin_may(self):
        token = self.token("olga", self.company(), "owner")
        self.assert_error(self.as_(token, "POST", "/api/companies", {"name": "x"}), 403, "Instance admin required")
        for method, path, body in (("PATCH", "/api/instance/settings/general", {}), ("GET", "/api/leaks", None),
                                   ("PATCH", "/api/instance/settings/experimental", {}),
                                   ("GET", "/api/instance/scheduler-heartbeats", None),
                                   ("POST", f"/api/places/{MISSING}/forget", {}),
                                   ("POST", "/api/board-api-keys", {"user": "eve"}),
                                   ("POST", "/api/board-api-keys", {"instanceAdmin": True}),
                                   ("POST", "/api/board-api-keys", {"requestedCompanyId": MISSING})):
            with self.subTest(path=path, body=body):
                self.assert_error(self.as_(token, method, path, body), 403, "Instance admin access required")
        self.assertFalse(self.ok("GET", "/api/cli-auth/me", token=token)["isInstanceAdmin"])

    def test_users_make_keys_for_themselves_only(self):
        company = self.company()
        first = self.key("mia", company, "viewer")
        other = self.key("noa", company, "owner")
        second = self.ok("POST", "/api/board-api-keys", {"name": "mine"}, 201, token=first["token"])
        self.assertEqual(second["userId"], first["userId"])
        self.assertEqual({k["id"] for k in self.ok("GET", "/api/board-api-keys", token=first["token"])},
                         {first["id"], second["id"]})
        self.assert_error(self.as_(first["token"], "DELETE", f"/api/board-api-keys/{other['id']}"), 404,
                          "Key not found")
        self.assert_status(self.as_(other["token"], "GET", "/api/cli-auth/me"), 200)
        self.ok("DELETE", f"/api/board-api-keys/{first['id']}", token=second["token"])
        self.assert_status(self.as_(first["token"], "GET", "/api/cli-auth/me"), 401)

    def test_a_further_key_keeps_the_role(self):
        company = self.company()
        self.token("olga", company, "owner")
        token = self.token("olga", company)
        me = self.ok("GET", "/api/cli-auth/me", token=token)
        self.assertEqual([m["membershipRole"] for m in me["memberships"]], ["owner"])
        token = self.token("olga", company, "viewer")
        me = self.ok("GET", "/api/cli-auth/me", token=token)
        self.assertEqual([m["membershipRole"] for m in me["memberships"]], ["viewer"])

    def test_key_bodies(self):
        company = self.company()
        for body in ({"name": ""}, {"name": 1}, {"name": "x" * 121}, {"expiresAt": "tomorrow"}, {"user": ""},
                     {"membershipRole": "god"}, {"requestedCompanyId": "x"}, {"token": "pcp_board_mine"},
                     {"instanceAdmin": "yes"}, {"grants": [{"permissionKey": "x"}]}):
            with self.subTest(body=body):
                self.assert_error(self.daemon.req_unix("POST", "/api/board-api-keys", body), 400, "Validation error")
        self.assert_status(self.daemon.req_unix("POST", "/api/board-api-keys", {"membershipRole": "owner"}), 422)
        self.assert_error(self.daemon.req_unix("POST", "/api/board-api-keys", {"requestedCompanyId": MISSING}), 404,
                          "Company not found")
        key = self.key("late", company, "owner", expiresAt="2001-01-01T00:00:00.000Z")
        self.assert_status(self.as_(key["token"], "GET", "/api/companies"), 401)
        self.assertIsNone(self.key(expiresAt=None)["expiresAt"])
        self.assertIsNotNone(self.key()["expiresAt"])

    # http-api 8.6, 8.7, 8.14, 8.25
    def test_agent_scope(self):
        company, other = self.company(), self.company("Other")
        token = self.agent_token(self.agent(company))
        env, foreign = self.environment(company), self.environment(other)
        c, o = f"/api/companies/{company['id']}", f"/api/companies/{other['id']}"
        self.assertEqual(self.ok("GET", "/api/agents/me", token=token)["name"], "Ada")
        self.assertEqual(self.ok("GET", c, token=token)["id"], company["id"])
        for seen in (self.ok("GET", f"/api/environments/{env['id']}", token=token),
                     self.ok("GET", f"{c}/environments", token=token)[0]):
            self.assertEqual((seen["config"], seen["metadata"], seen["configRedacted"], seen["metadataRedacted"]),
                             ({}, None, True, True))
        for method, path, body in (("GET", o, None), ("GET", f"{o}/environments", None), ("GET", f"{o}/agents", None),
                                   ("GET", f"/api/environments/{foreign['id']}", None),
                                   ("DELETE", f"/api/environments/{foreign['id']}", None),
                                   ("POST", f"{o}/environments", {"name": "x", "driver": "local"}),
                                   ("POST", f"{o}/agents", {"name": "x"})):
            with self.subTest(path=path):
                self.assert_error(self.as_(token, method, path, body), 403, "Agent key cannot access another company")
        for method, path, body in (("POST", f"{c}/environments", {"name": "x", "driver": "local"}),
                                   ("GET", f"/api/environments/{env['id']}/leases", None),
                                   ("POST", f"/api/environments/{env['id']}/probe", {})):
            with self.subTest(path=path):
                self.assert_error(self.as_(token, method, path, body), 403, "Missing permission: environments:manage")
        for method, path in (("GET", "/api/companies"), ("GET", "/api/board-api-keys"), ("GET", "/api/leaks"),
                             ("POST", "/api/board-api-keys"), ("POST", f"/api/environments/{env['id']}/leases"),
                             ("DELETE", c), ("GET", "/metrics"), ("GET", f"{c}/members")):
            with self.subTest(path=path):
                self.assert_error(self.as_(token, method, path, {} if method == "POST" else None), 403,
                                  "Board access required")
        self.assert_error(self.as_(token, "GET", "/api/cli-auth/me"), 401, "Board authentication required")

    # http-api 8.8, 8.9, 8.13
    def test_agents_with_rights(self):
        company = self.company()
        agent = self.agent(company)
        token = self.agent_token(agent)
        path = f"/api/companies/{company['id']}/environments"
        body = {"name": "by agent", "driver": "sandbox", "config": {"provider": "fake"}}
        self.operator("PATCH", f"/api/agents/{agent['id']}/permissions", {"canCreateAgents": True})
        made = self.ok("POST", path, body, 201, token=token, headers={"X-Paperclip-Run-Id": RUN})
        self.assertEqual(made["config"]["provider"], "fake")
        self.assertNotIn("configRedacted", made)
        entry = self.operator("GET", f"/api/companies/{company['id']}/activity?entityId={made['id']}")[0]
        self.assertEqual((entry["action"], entry["agentId"], entry["runId"]),
                         ("environment.created", agent["id"], RUN))
        self.operator("PATCH", f"/api/agents/{agent['id']}/permissions", {"canCreateAgents": False})
        self.assert_error(self.as_(token, "POST", path, {**body, "name": "2"}), 403, contains="environments:manage")
        self.edit("INSERT INTO permission_grants (company_id, principal_type, principal_id, permission_key, created_at) "
                  "VALUES (?, 'agent', ?, 'environments:manage', 1)", (company["id"], agent["id"]))
        self.ok("POST", path, {**body, "name": "3"}, 201, token=token)
        # Taking one right away leaves the others.
        self.operator("PATCH", f"/api/agents/{agent['id']}/permissions",
                      {"canCreateAgents": False, "canAssignTasks": False})
        self.ok("POST", path, {**body, "name": "4"}, 201, token=token)

    # http-api 8.77, 8.78, 8.83, 8.84
    def test_agent_keys(self):
        company, other = self.company(), self.company("Other")
        agent = self.agent(company, adapterConfig={"env": {"TOKEN": "hidden"}})
        stranger = self.agent(other, "Bob")
        key = self.operator("POST", f"/api/agents/{agent['id']}/keys", {"name": "k"}, 201)
        keys = f"/api/agents/{agent['id']}/keys"
        outsider = self.token("eve", other, "owner")
        for method, path in (("GET", keys), ("POST", keys), ("DELETE", f"{keys}/{key['id']}")):
            answer = self.as_(outsider, method, path, {} if method == "POST" else None)
            self.assert_error(answer, 403, "User does not have access to this company")
        self.assert_error(self.as_(outsider, "DELETE", f"/api/agents/{stranger['id']}/keys/{key['id']}"), 404,
                          "Key not found")
        member = self.token("mia", company, "operator")
        self.assert_error(self.as_(member, "POST", keys, {}), 403, "Missing permission: agents:create")
        seen = self.ok("GET", f"/api/agents/{agent['id']}", token=member)
        self.assertEqual((seen["adapterConfig"], seen["runtimeConfig"]), ({}, {}))
        self.assertNotIn("hidden", self.as_(member, "GET", f"/api/companies/{company['id']}/agents").text)
        self.assertEqual(self.ok("GET", "/api/agents/me", token=key["token"])["adapterConfig"]["env"],
                         {"TOKEN": {"type": "plain", "value": "hidden"}})
        self.assert_error(self.as_(key["token"], "POST", keys, {}), 403, "Board access required")
        self.operator("DELETE", f"{keys}/{key['id']}")
        self.assert_status(self.as_(key["token"], "GET", "/api/agents/me"), 401)
        for status in ("terminated", "pending_approval"):
            fresh = self.agent(company, status)
            token = self.agent_token(fresh)
            self.edit("UPDATE agents SET status = ? WHERE id = ?", (status, fresh["id"]))
            self.assert_error(self.as_(token, "GET", "/api/agents/me"), 401, contains="cannot authenticate")
            answer = self.daemon.req_unix("POST", f"/api/agents/{fresh['id']}/keys", {})
            self.assert_error(answer, 409, contains="Cannot create keys for")

    # http-api 8.82
    def test_agent_list_takes_no_parameters(self):
        company = self.company()
        answer = self.daemon.req_unix("GET", f"/api/companies/{company['id']}/agents?status=idle")
        self.assert_error(answer, 400, "Unsupported query parameter: status")

    def test_releasing_a_run_across_companies(self):
        """The run id is the caller's to choose, so it must not reach the leases of others."""
        mine, theirs = self.company(), self.company("Theirs")
        my_env, their_env = self.environment(mine), self.environment(theirs)
        victim = self.operator("POST", f"/api/environments/{their_env['id']}/leases", {"heartbeatRunId": RUN}, 201)
        token = self.token("mallory", mine, "owner")
        path = f"/api/heartbeat-runs/{RUN}/release-leases"
        self.assert_error(self.as_(token, "POST", path, {}), 403, "User does not have access to this company")
        own = self.ok("POST", f"/api/environments/{my_env['id']}/leases", {"heartbeatRunId": RUN}, 201, token=token)
        released = self.ok("POST", path, {}, token=token)
        self.assertEqual([r["lease"]["id"] for r in released], [own["lease"]["id"]])
        self.assertEqual(self.operator("GET", f"/api/environment-leases/{ident(victim)}")["status"], "active")
        self.assertEqual(self.ok("POST", f"/api/heartbeat-runs/{OTHER_RUN}/release-leases", {}, token=token), [])
        self.assertEqual(len(self.operator("POST", path, {})), 1)

    def test_leases_of_others(self):
        mine, theirs = self.company(), self.company("Theirs")
        env = self.environment(theirs)
        lease = self.operator("POST", f"/api/environments/{env['id']}/leases", {"idempotencyKey": "k"}, 201)["lease"]
        token = self.token("mallory", mine, "owner")
        path = f"/api/environment-leases/{lease['id']}"
        for method, where, body in (("GET", path, None), ("POST", f"{path}/renew", {"ttlMs": 1}),
                                    ("POST", f"{path}/release", {}), ("POST", f"{path}/destroy", {}),
                                    ("POST", f"{path}/resume", {}), ("POST", f"{path}/execute", {"command": "id"}),
                                    ("POST", f"{path}/realize-workspace", {"workspace": {}}),
                                    ("POST", f"/api/environments/{env['id']}/leases", {"idempotencyKey": "k"}),
                                    ("GET", f"/api/environments/{env['id']}/leases", None),
                                    ("PATCH", f"/api/environments/{env['id']}", {"name": "x"}),
                                    ("DELETE", f"/api/environments/{env['id']}", None)):
            with self.subTest(method=method, path=where):
                self.assert_error(self.as_(token, method, where, body), 403, "User does not have access to this company")
        self.assertEqual(self.operator("GET", path)["status"], "active")


class ChallengeTest(AuthTest):
    daemon_flags = ("--mode", "authenticated")

    def challenge(self, **body):
        return self.ok("POST", "/api/cli-auth/challenges", {"command": "berth env list", **body}, 201)

    def status(self, challenge):
        return self.ok("GET", f"/api{challenge['pollPath']}?token={challenge['token']}")["status"]

    def approve(self, challenge, token=None, secret=None):
        return self.req("POST", f"/api/cli-auth/challenges/{challenge['id']}/approve",
                        {"token": secret or challenge["token"]}, token=token)

    # http-api 8.96
    def test_life(self):
        first, second = self.company(), self.company("Other")
        self.key("mia", first, "operator")
        token = self.token("mia", second, "viewer")
        challenge = self.challenge(clientName="laptop")
        self.assertIn(challenge["id"], challenge["approvalUrl"])
        self.assertIn(challenge["token"], challenge["approvalUrl"])
        self.assertEqual(challenge["approvalUrl"], self.daemon.url + challenge["approvalPath"])
        self.assertEqual(self.status(challenge), "pending")
        self.assert_status(self.as_(challenge["boardApiToken"], "GET", "/api/cli-auth/me"), 401)
        self.assert_error(self.approve(challenge), 401, "Sign in before approving CLI access")
        self.assert_status(self.as_(challenge["boardApiToken"], "GET", "/api/cli-auth/me"), 401)
        answer = self.approve(challenge, token)
        self.assert_status(answer, 200)
        self.assertEqual((answer.json["approved"], answer.json["status"]), (True, "approved"))
        self.assertEqual(self.status(challenge), "approved")
        me = self.ok("GET", "/api/cli-auth/me", token=challenge["boardApiToken"])
        self.assertEqual((me["userId"], me["keyId"], me["isInstanceAdmin"]),
                         (answer.json["userId"], answer.json["keyId"], False))
        self.assertEqual(set(me["companyIds"]), {first["id"], second["id"]})
        for company in (first, second):  # one audit entry each, without the secrets
            rows = [r for r in self.operator("GET", f"/api/companies/{company['id']}/activity")
                    if r["entityType"] == "board_api_key"]
            self.assertEqual([r["entityId"] for r in rows], [answer.json["keyId"]])
            self.assertNotIn(challenge["token"], json.dumps(rows))
            self.assertNotIn(challenge["boardApiToken"], json.dumps(rows))
        # Approving again changes nothing.
        self.assertEqual(self.approve(challenge, token).json, answer.json)
        self.assertEqual(self.approve(challenge, self.token("other", first, "owner")).json, answer.json)
        self.assertEqual(len(self.daemon.sql("SELECT * FROM board_api_keys WHERE name = 'laptop'")), 1)
        self.assertEqual(self.ok("POST", f"/api/cli-auth/challenges/{challenge['id']}/cancel",
                                 {"token": challenge["token"]})["cancelled"], False)
        revoked = self.ok("POST", "/api/cli-auth/revoke-current", token=challenge["boardApiToken"])
        self.assertEqual(revoked, {"revoked": True, "keyId": answer.json["keyId"]})
        self.assert_status(self.as_(challenge["boardApiToken"], "GET", "/api/cli-auth/me"), 401)
        self.assert_status(self.as_(token, "GET", "/api/cli-auth/me"), 200)

    def test_wrong_secrets(self):
        challenge, other = self.challenge(), self.challenge()
        token = self.token()
        path = f"/api/cli-auth/challenges/{challenge['id']}"
        text = "CLI auth challenge not found"
        for secret in (other["token"], challenge["boardApiToken"], challenge["token"][:-1], "x" * 16,
                       challenge["token"].upper()):
            with self.subTest(secret=secret[-8:]):
                self.assert_error(self.req("GET", f"{path}?token={secret}"), 404, text)
                self.assert_error(self.approve(challenge, token, secret), 404, text)
                self.assert_error(self.req("POST", f"{path}/cancel", {"token": secret}), 404, text)
        self.assert_error(self.req("GET", path), 404, text)
        self.assert_error(self.req("GET", f"/api/cli-auth/challenges/{MISSING}?token={challenge['token']}"), 404, text)
        self.assert_error(self.req("GET", f"/api/cli-auth/challenges/x?token={challenge['token']}"), 404, text)
        for body in ({}, {"token": "short"}, {"token": 1}, {"token": "x" * 257}):
            self.assert_error(self.req("POST", f"{path}/approve", body, token=token), 400, "Validation error")
        self.assertEqual(self.status(challenge), "pending")

    def test_cancelled(self):
        challenge = self.challenge()
        answer = self.ok("POST", f"/api/cli-auth/challenges/{challenge['id']}/cancel", {"token": challenge["token"]})
        self.assertEqual(answer, {"status": "cancelled", "cancelled": True})
        self.assertFalse(self.approve(challenge, self.token()).json["approved"])
        self.assertEqual(self.status(challenge), "cancelled")
        self.assert_status(self.as_(challenge["boardApiToken"], "GET", "/api/cli-auth/me"), 401)

    def test_expired(self):
        challenge = self.challenge()
        self.edit("UPDATE cli_auth_challenges SET expires_at = created_at + 1 WHERE id = ?", (challenge["id"],))
        self.assertEqual(self.status(challenge), "expired")
        answer = self.approve(challenge, self.token())
        self.assertEqual((answer.json["approved"], answer.json["status"]), (False, "expired"))
        self.assert_status(self.as_(challenge["boardApiToken"], "GET", "/api/cli-auth/me"), 401)

    def test_admin_access_needs_an_admin(self):
        challenge = self.challenge(requestedAccess="instance_admin_required")
        owner = self.token("olga", self.company(), "owner")
        self.assert_error(self.approve(challenge, owner), 403, "Instance admin access required")
        self.assertEqual(self.status(challenge), "pending")
        self.assert_status(self.approve(challenge, self.token("root", admin=True)), 200)
        self.assertTrue(self.ok("GET", "/api/cli-auth/me", token=challenge["boardApiToken"])["isInstanceAdmin"])

    def test_agents_do_not_approve(self):
        challenge = self.challenge()
        token = self.agent_token(self.agent(self.company()))
        self.assert_error(self.approve(challenge, token), 403, "Board access required")

    def test_bodies(self):
        for body in ({}, {"command": ""}, {"command": "x" * 241}, {"command": "x", "clientName": "x" * 121},
                     {"command": "x", "requestedAccess": "root"}, {"command": "x", "requestedCompanyId": "x"}):
            with self.subTest(body=body):
                self.assert_error(self.req("POST", "/api/cli-auth/challenges", body), 400, "Validation error")

    def test_revoke_current_needs_a_key(self):
        text = "Current board API key context is required"
        self.assert_error(self.req("POST", "/api/cli-auth/revoke-current"), 400, text)
        self.assert_error(self.daemon.req_unix("POST", "/api/cli-auth/revoke-current"), 400, text)

    @berthtest.sqlite_only
    def test_open_challenges_are_bounded(self):
        """Anybody may open them, so somebody could fill the disk."""
        challenge = self.challenge()
        self.edit("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) "
                  "INSERT INTO cli_auth_challenges (id, secret_sha256, board_token_sha256, command, requested_access, "
                  "expires_at, created_at) SELECT 'c' || i, 's' || i, 'b' || i, 'x', 'board', c.expires_at, c.created_at "
                  "FROM n, cli_auth_challenges c WHERE c.id = ?", (challenge["id"],))
        answer = self.req("POST", "/api/cli-auth/challenges", {"command": "x"})
        self.assert_status(answer, 503)
        self.assertEqual(answer.headers["Retry-After"], "1")
        self.edit("UPDATE cli_auth_challenges SET expires_at = 1 WHERE command = 'x'")
        self.challenge()
        self.assertEqual(self.daemon.sql("SELECT count(*) AS n FROM cli_auth_challenges")[0]["n"], 2)


class NamesTest(AuthTest):
    """By which names requests may come, and from which pages."""

    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_ALLOWED_HOSTNAMES": "berth.example, other.example",
                  "BERTH_PUBLIC_URL": "https://public.example/"}

    def get(self, host, path="/api/companies", **headers):
        return self.req("GET", path, headers={"Host": host, **headers})

    # http-api 8.95
    def test_hosts(self):
        for host in ("localhost", "LOCALHOST:3100", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:3100", "a.localhost",
                     "berth.example", "BERTH.example:443", "other.example", "public.example"):
            with self.subTest(host=host):
                self.assert_status(self.get(host), 200)
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.evil", "xlocalhost",
                     "berth.example.evil", "xberth.example", "example", "0.0.0.0", "10.0.0.1", "[::2]", "localhost.",
                     "127.0.0.1x", "localhost_"):
            with self.subTest(host=host):
                answer = self.get(host)
                self.assert_status(answer, 403)
                bare = host.split(":")[0] if "[" not in host else host.strip("[]")
                self.assertTrue(answer.error.startswith(
                    f"Hostname '{bare}' is not allowed for this Paperclip instance."), answer.error)
                self.assertIn("BERTH_ALLOWED_HOSTNAMES", answer.error)

    # http-api 8.95
    def test_refusals_elsewhere_are_text(self):
        answer = self.get("evil.example", "/")
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (403, "text/plain; charset=utf-8"))
        self.assertTrue(answer.text.startswith("Hostname 'evil.example' is not allowed"))

    def test_a_foreign_name_has_no_effect(self):
        answer = self.req("POST", "/api/companies", {"name": "x"}, headers={"Host": "evil.example"})
        self.assert_status(answer, 403)
        self.assertEqual(self.ok("GET", "/api/companies"), [])

    def test_old_clients_need_a_name_too(self):
        with self.daemon.raw() as raw:
            raw.send("GET /api/companies HTTP/1.0\r\n\r\n")
            answer = raw.response()
        self.assert_status(answer, 403)
        self.assertTrue(answer.error.startswith("Missing Host header."))

    # http-api 8.87
    def test_forwarded_hosts(self):
        """A forwarded name can only forbid: a page under a foreign name can send the header too."""
        forwarded = "X-Forwarded-Host"
        self.assert_status(self.get("evil.example", **{forwarded: "localhost"}), 403)
        self.assert_status(self.get("localhost", **{forwarded: "evil.example"}), 403)
        self.assert_status(self.get("localhost", **{forwarded: "berth.example"}), 200)
        self.assert_status(self.get("localhost", **{forwarded: "localhost, evil.example"}), 403)
        self.assert_status(self.get("localhost", Forwarded="host=evil.example"), 200)
        answer = self.req("POST", "/api/companies", {"name": "x"}, headers={
            "Host": "localhost", forwarded: "berth.example", "Origin": "https://evil.example"})
        self.assert_error(answer, 403, "Board mutation requires trusted browser origin")

    # http-api 8.87
    def test_origins(self):
        own = self.daemon.address
        here = f"{own[0]}:{own[1]}"
        for origin in (f"http://{here}", f"https://{here}", "https://public.example", "HTTPS://PUBLIC.EXAMPLE"):
            with self.subTest(origin=origin):
                self.ok("POST", "/api/companies", {"name": "x"}, 201, headers={"Origin": origin})
        made = len(self.ok("GET", "/api/companies"))
        for origin in ("null", "", "http://evil.example", f"http://{here}.evil.example", f"http://evil.example#{here}",
                       f"http://{here}@evil.example", f"http://{here}/", f"http://{own[0]}", f"http://localhost:{own[1]}",
                       f"ftp://{here}", here, "https://public.example.evil", "https://public.example/", "file://",
                       f"http://{here} http://evil.example", "http://berth.example"):
            with self.subTest(origin=origin):
                for method, path in (("POST", "/api/companies"), ("PATCH", "/api/instance/settings/general"),
                                     ("DELETE", f"/api/companies/{MISSING}"), ("PUT", "/api/companies")):
                    answer = self.req(method, path, {"name": "x"}, headers={"Origin": origin})
                    self.assert_error(answer, 403, "Board mutation requires trusted browser origin")
                self.assert_status(self.req("GET", "/api/companies", headers={"Origin": origin}), 200)
        self.assertEqual(len(self.ok("GET", "/api/companies")), made)

    def test_no_page_may_read_answers(self):
        answer = self.req("GET", "/api/companies", headers={"Origin": "http://evil.example"})
        self.assertEqual([h for h in answer.headers if h.lower().startswith("access-control")], [])
        answer = self.req("OPTIONS", "/api/companies", headers={
            "Origin": "http://evil.example", "Access-Control-Request-Method": "POST"})
        self.assertEqual([h for h in answer.headers if h.lower().startswith("access-control")], [])
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")

    def test_forms_are_not_bodies(self):
        """What a page can send without asking first is not JSON."""
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""):
            with self.subTest(kind=kind):
                answer = self.req("POST", "/api/companies", b'{"name": "x"}', headers={"Content-Type": kind})
                self.assert_error(answer, 400, "Validation error")
        self.assertEqual(self.ok("GET", "/api/companies"), [])

    def test_local_trusted_stays_at_home(self):
        for listen, variables in (("0.0.0.0:0", {}), ("127.0.0.1:0", {"BERTH_DEPLOYMENT_EXPOSURE": "public"})):
            daemon = self.new_daemon(listen=listen, env=variables)
            daemon.spawn()
            self.assertNotEqual(daemon.wait(), 0)
            daemon.killed = True
            self.assertIn("local_trusted", daemon.log())


class PublicTest(AuthTest):
    daemon_flags = ("--mode", "authenticated")
    daemon_env = {"BERTH_DEPLOYMENT_EXPOSURE": "public"}

    # http-api 8.87: browsers have no sessions here, so a cookie is nobody, from wherever it comes
    def test_cookies_mean_nothing(self):
        own = {"Origin": self.daemon.url, "Cookie": f"paperclip-default.session_token={self.token()}"}
        self.ok("GET", "/api/cli-auth/me", token=own["Cookie"].partition("=")[2])
        self.assert_error(self.req("GET", "/api/cli-auth/me", headers=own), 401, "Board authentication required")
        self.assert_error(self.req("POST", "/api/companies", {"name": "x"}, headers=own), 403)
        foreign = {**own, "Origin": "http://evil.example"}
        self.assert_error(self.req("POST", "/api/companies", {"name": "x"}, headers=foreign), 403,
                          "Board mutation requires trusted browser origin")
        self.assertEqual(self.operator("GET", "/api/companies"), [])

    def test_any_name_but_not_any_origin(self):
        token = self.token()
        self.assert_status(self.req("GET", "/api/companies", headers={"Host": "any.example"}, token=token), 200)
        answer = self.req("POST", "/api/companies", {"name": "x"}, token=token,
                          headers={"Host": "any.example", "Origin": "http://evil.example"})
        self.assert_error(answer, 403, "Board mutation requires trusted browser origin")


class SettingsTest(AuthTest):
    daemon_flags = ("--mode", "authenticated")
    general, experimental = "/api/instance/settings/general", "/api/instance/settings/experimental"

    def test_defaults_and_changes(self):
        self.assertEqual(set(self.operator("GET", self.general)),
                         {"censorUsernameInLogs", "keyboardShortcuts", "feedbackDataSharingPreference", "backupRetention"})
        before = self.operator("GET", self.experimental)
        self.assertEqual(before, {"enableEnvironments": False, "enableIsolatedWorkspaces": False,
                                  "autoRestartDevServerWhenIdle": False, "enableIssueGraphLivenessAutoRecovery": False,
                                  "issueGraphLivenessAutoRecoveryLookbackHours": 24, "enableManagedSandboxOnly": False})
        after = self.operator("PATCH", self.experimental, {"enableEnvironments": True})
        self.assertEqual(after, {**before, "enableEnvironments": True})
        self.daemon.restart(crash=True)
        self.assertEqual(self.operator("GET", self.experimental), after)

    def test_strict(self):
        before = self.operator("GET", self.general)
        retention = before["backupRetention"]
        for path, body in (
                (self.general, {"unknown": True}), (self.general, {"censorUsernameInLogs": "yes"}),
                (self.general, {"censorUsernameInLogs": None}), (self.general, {"feedbackDataSharingPreference": "x"}),
                (self.general, {"backupRetention": 7}), (self.general, {"backupRetention": {**retention, "x": 1}}),
                (self.general, {"backupRetention": {}}), (self.general, {"backupRetention": {**retention, "dailyDays": "7"}}),
                (self.general, {"keyboardShortcuts": True, "enableEnvironments": True}),
                (self.experimental, {"enableEnvironments": 1}), (self.experimental, {"__proto__": {}}),
                (self.experimental, {"issueGraphLivenessAutoRecoveryLookbackHours": 0}),
                (self.experimental, {"issueGraphLivenessAutoRecoveryLookbackHours": 1.5}),
                (self.general, []), (self.general, "x"), (self.general, None)):
            with self.subTest(path=path, body=body):
                self.assert_error(self.daemon.req_unix("PATCH", path, body), 400, "Validation error")
        self.assertEqual(self.operator("GET", self.general), before)
        changed = self.operator("PATCH", self.general, {"backupRetention": {**retention, "dailyDays": 14}})
        self.assertEqual(changed["backupRetention"], {**retention, "dailyDays": 14})

    def test_who(self):
        company = self.company()
        for role in ("viewer", "operator", "admin", "owner"):
            token = self.token(role, company, role)
            self.ok("GET", self.general, token=token)
            for path in (self.general, self.experimental):
                self.assert_error(self.as_(token, "PATCH", path, {}), 403, "Instance admin access required")
        text = "Company membership or instance admin access required"
        loner = self.token("loner")
        self.assert_error(self.as_(loner, "GET", self.general), 403, text)
        self.assert_error(self.as_(loner, "GET", self.experimental), 403, text)
        self.ok("GET", self.general, token=self.token("root", admin=True))
        agent = self.agent_token(self.agent(company))
        self.assert_error(self.as_(agent, "GET", self.general), 403, "Board access required")
        self.assert_error(self.as_(agent, "PATCH", self.general, {}), 403, "Board access required")

    def test_writes_are_never_not_modified(self):
        etag = self.daemon.req_unix("GET", self.general).headers["ETag"]
        read = self.daemon.req_unix("GET", self.general, headers={"If-None-Match": etag})
        self.assertEqual((read.status, read.body), (304, b""))
        write = self.daemon.req_unix("PATCH", self.general, {}, headers={"If-None-Match": etag})
        self.assertEqual((write.status, write.headers["ETag"]), (200, etag))


class SocketTest(AuthTest):
    daemon_flags = ("--mode", "authenticated")

    def as_user(self, uid):
        """What another user of the machine gets from the socket: the statuses, or the error."""
        reader, writer = os.pipe()
        child = os.fork()  # no other program: the interpreter may lie where that user cannot read
        if child == 0:
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                os.write(writer, self.ask_as_user().encode())
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        return said

    def ask_as_user(self):
        try:
            client = Client(self.daemon.data / "berth.sock", timeout=20)
            return " ".join(str(client.req(method, path).status) for method, path in (
                ("GET", "/api/cli-auth/me"), ("GET", "/api/companies"), ("POST", "/api/board-api-keys")))
        except OSError as error:
            return errno.errorcode[error.errno]

    def test_modes(self):
        self.assertEqual(stat.S_IMODE(os.stat(self.daemon.data / "berth.sock").st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.daemon.data).st_mode), 0o700)

    @unittest.skipUnless(os.geteuid() == 0, "only root can act as another user")
    def test_another_user(self):
        sock, opened = self.daemon.data / "berth.sock", []
        for directory in (self.daemon.data, *self.daemon.data.parents):
            mode = stat.S_IMODE(directory.stat().st_mode)
            if mode & 0o011 != 0o011:
                opened.append((directory, mode))
                directory.chmod(mode | 0o011)
        try:
            self.assertEqual(self.as_user(NOBODY), "EACCES")
            sock.chmod(0o666)
            # The mode alone is not what makes an operator: nobody is anonymous here.
            self.assertEqual(self.as_user(NOBODY), "401 403 403")
        finally:
            for directory, mode in opened:
                directory.chmod(mode)
        self.assert_status(self.daemon.req_unix("GET", "/api/companies"), 200)
        self.assertEqual(self.daemon.sql("SELECT * FROM board_api_keys"), [])

    def test_headers_make_no_operator(self):
        for name in ("X-Forwarded-For", "X-Real-IP", "X-Berth-Uid", "X-Remote-User", "Cookie"):
            answer = self.req("GET", "/api/companies", headers={name: "127.0.0.1; uid=0"})
            self.assert_error(answer, 403, "Board access required")
