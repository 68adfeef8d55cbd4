"""Signing in from the command line: a challenge, its approval by somebody who is signed in, and the key of it."""

import os
import unittest
import uuid

from berthtest import BerthTest, RawConnection


class SignInTest(BerthTest):
    daemon_flags = ("--mode", "authenticated")

    def challenge(self, **body):
        return self.ok("POST", "/api/cli-auth/challenges", {"command": "berth env list", **body}, status=201)

    def status(self, challenge):
        return self.ok("GET", f"/api/cli-auth/challenges/{challenge['id']}?token={challenge['token']}")["status"]

    def approve(self, challenge, who=None, token=None):
        return self.req("POST", f"/api/cli-auth/challenges/{challenge['id']}/approve",
                        {"token": token or challenge["token"]}, token=who)

    # http-api 8.96
    def test_challenge(self):
        made = self.challenge(clientName="laptop", requestedAccess="board")
        self.assertRegex(made["token"], "^pcp_cli_auth_[0-9a-f]{48}$")
        self.assertRegex(made["boardApiToken"], "^pcp_board_[0-9a-f]{48}$")
        self.assertIn(made["id"], made["approvalUrl"])
        self.assertIn(made["token"], made["approvalUrl"])
        self.assertEqual(made["approvalPath"], f"/cli-auth/{made['id']}?token={made['token']}")
        self.assertEqual(made["approvalUrl"], self.daemon.url + made["approvalPath"])
        self.assertEqual(made["pollPath"], f"/cli-auth/challenges/{made['id']}")
        self.assertEqual(made["suggestedPollIntervalMs"], 1000)
        self.assertEqual(self.status(made), "pending")
        # the board token means nothing yet
        self.assert_error(self.req("GET", "/api/cli-auth/me", token=made["boardApiToken"]), 401, "Unauthorized")

    # http-api 8.96
    def test_approval(self):
        companies = [self.operator("POST", "/api/companies", {"name": name}, 201) for name in ("One", "Two")]
        self.operator("POST", "/api/companies", {"name": "Not mine"}, 201)
        user = self.board_user(companies[0])
        self.board_user(companies[1])
        made = self.challenge(clientName="laptop")
        approved = self.approve(made, user["token"])
        self.assert_status(approved, 200)
        self.assertEqual((approved.json["approved"], approved.json["status"], approved.json["userId"]),
                         (True, "approved", user["userId"]))
        self.assertEqual(self.status(made), "approved")
        me = self.ok("GET", "/api/cli-auth/me", token=made["boardApiToken"])
        self.assertEqual((me["userId"], me["source"], me["keyId"]),
                         (user["userId"], "board_key", approved.json["keyId"]))
        rows = self.daemon.sql("SELECT company_id, actor_id, entity_id, details FROM activity_log "
                               "WHERE action = 'board_api_key.created'")
        self.assertEqual({r["company_id"] for r in rows}, {c["id"] for c in companies})
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertEqual((row["actor_id"], row["entity_id"]), (user["userId"], approved.json["keyId"]))
            self.assertNotIn("pcp_", row["details"])
        # once is enough
        again = self.approve(made, user["token"])
        self.assertEqual((again.status, again.json["keyId"]), (200, approved.json["keyId"]))
        self.assertEqual(len(self.daemon.sql("SELECT id FROM activity_log WHERE action = 'board_api_key.created'")), 2)

    def test_who_may_approve(self):
        company = self.operator("POST", "/api/companies", {"name": "One"}, 201)
        made = self.challenge()
        self.assert_error(self.approve(made), 401, "Sign in before approving CLI access")
        self.assert_error(self.approve(made, self.agent(company)["token"]), 403, "Board access required")
        user = self.board_user(company)["token"]
        self.assert_error(self.approve(made, user, token="pcp_cli_auth_" + "0" * 48), 404,
                          "CLI auth challenge not found")
        wide = self.challenge(requestedAccess="instance_admin_required")
        self.assert_error(self.approve(wide, user), 403, "Instance admin access required")
        self.assertEqual((self.status(made), self.status(wide)), ("pending", "pending"))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for sockets of other users")
    def test_one_client_does_not_use_all_of_them_up(self):
        """A user of this machine is one client, whatever addresses it comes from."""
        def opened(uid, source="127.0.0.1"):
            with RawConnection(self.daemon.address, source=source, uid=uid) as raw:
                body = b'{"command": "berth env list"}'
                return raw.send(b"POST /api/cli-auth/challenges HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body).response()

        made = [opened(1, f"127.0.0.{2 + i}").json for i in range(100)]
        self.assert_error(opened(1, "127.0.3.3"), 503, contains="Too many sign-in requests from here")
        self.assert_status(opened(2), 201)
        # One that is answered is not open any more.
        self.ok("POST", f"/api/cli-auth/challenges/{made[0]['id']}/cancel", {"token": made[0]["token"]})
        self.assert_status(opened(1), 201)
        self.operator("POST", f"/api/cli-auth/challenges/{made[1]['id']}/approve", {"token": made[1]["token"]})
        self.assert_status(opened(1), 201)
        self.assert_status(opened(1), 503)

    def test_cancel(self):
        made = self.challenge()
        path = f"/api/cli-auth/challenges/{made['id']}/cancel"
        self.assert_error(self.req("POST", path, {"token": "0" * 16}), 404, "CLI auth challenge not found")
        self.assertEqual(self.ok("POST", path, {"token": made["token"]}), {"status": "cancelled", "cancelled": True})
        self.assertEqual(self.status(made), "cancelled")
        company = self.operator("POST", "/api/companies", {"name": "One"}, 201)
        answer = self.approve(made, self.board_user(company)["token"])
        self.assertEqual((answer.status, answer.json["approved"]), (200, False))
        self.assert_status(self.req("GET", "/api/cli-auth/me", token=made["boardApiToken"]), 401)

    def test_wrong_ids_and_tokens(self):
        made = self.challenge()
        for path in (f"{made['id']}", f"{made['id']}?token=", f"{made['id']}?token=wrong",
                     f"{uuid.uuid4()}?token={made['token']}", f"nonsense?token={made['token']}"):
            self.assert_error(self.req("GET", f"/api/cli-auth/challenges/{path}"), 404,
                              "CLI auth challenge not found")
        for body in (None, {}, {"command": ""}, {"command": "x" * 241}, {"command": "x", "clientName": "y" * 121},
                     {"command": "x", "requestedAccess": "all"}, {"command": "x", "requestedCompanyId": "y"}):
            self.assert_error(self.req("POST", "/api/cli-auth/challenges", body), 400, "Validation error")

    def test_revoke_current(self):
        company = self.operator("POST", "/api/companies", {"name": "One"}, 201)
        user = self.board_user(company)
        self.assertEqual(self.ok("POST", "/api/cli-auth/revoke-current", {}, token=user["token"]),
                         {"revoked": True, "keyId": user["id"]})
        self.assert_status(self.req("GET", "/api/cli-auth/me", token=user["token"]), 401)
        answer = self.daemon.req_unix("POST", "/api/cli-auth/revoke-current", {})
        self.assert_error(answer, 400, "Current board API key context is required")


class ReverseProxyTest(BerthTest):
    """The proxy is the user that the tests run as; whoever else says X-Forwarded-For is himself."""

    daemon_flags = ("--mode", "authenticated")
    daemon_env = {"BERTH_REVERSE_PROXY": str(os.geteuid())}

    def opened(self, forwarded, uid=None):
        body = b'{"command": "berth env list"}'
        with RawConnection(self.daemon.address, uid=uid) as raw:
            return raw.send(b"POST /api/cli-auth/challenges HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                            b"%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
                            (b"X-Forwarded-For: %s\r\n" % forwarded.encode() if forwarded else b"", len(body)) +
                            body).response()

    def fill(self, forwarded, **options):
        for i in range(100):
            self.assert_status(self.opened(forwarded.format(i), **options), 201)

    def test_clients_of_a_reverse_proxy(self):
        self.fill("198.51.100.{}, 192.0.2.1")  # what the client itself sends comes first, and says nothing
        for same in ("192.0.2.1", " 192.0.2.1:4711\t", "192.0.2.1, 192.0.2.1", "::ffff:192.0.2.1"):
            self.assert_error(self.opened(same), 503, contains="Too many sign-in requests from here")
        self.fill("[2001:db8::{}]:4711")
        self.assert_status(self.opened("2001:db8::ffff"), 503)
        for other in ("192.0.2.2", "2001:db8:0:1::1", "192.0.2.1, 192.0.2.3"):
            self.assert_status(self.opened(other), 201)

    def test_what_names_nobody_is_the_proxys(self):
        self.fill("not an address {}")
        for text in (None, "", ",", "192.0.2.1,", "192.0.2.300", "[::1", "1:2", "unknown", "9" * 9000):
            with self.subTest(text):
                self.assert_status(self.opened(text), 503)
        self.assert_status(self.opened("192.0.2.2"), 201)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for sockets of other users")
    def test_nobody_else_is_believed(self):
        self.fill("192.0.2.{}", uid=1)
        self.assert_status(self.opened("192.0.2.200", uid=1), 503)


class ReverseProxySettingTest(BerthTest):
    daemon_autostart = False

    def refused(self, proxy, mode, says):
        daemon = self.new_daemon(flags=("--mode", mode), env={"BERTH_REVERSE_PROXY": proxy}).spawn()
        daemon.wait(expect=1)
        daemon.kill()
        self.assertIn(says, daemon.log_tail())

    def test_what_makes_no_sense(self):
        self.refused("banana", "authenticated", "neither an address nor a user of this machine")
        self.refused("70000", "authenticated", "with a number below 65536")  # of those one user may have many
        self.refused("127.0.0.1", "authenticated", "name the user that the proxy runs as")
        self.refused("192.0.2.1", "local_trusted", "use --mode authenticated")


if __name__ == "__main__":
    unittest.main()
