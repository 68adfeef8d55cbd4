"""Conventions of the API that hold for every route: paths, validators, bodies, hosts, and never a 500."""

import json
import re
import resource
import unittest
import uuid

from berthtest import SOURCE, BerthTest

HOST_REFUSED = "Hostname 'evil.example' is not allowed for this Paperclip instance."


class OpenApiTest(BerthTest):
    daemon_flags = ("--mode", "authenticated")

    def routes(self):
        """What the tables of the source have, but for those of the test build."""
        for file in sorted((SOURCE / "src/api").glob("*.c")):
            text = file.read_text()
            for name, value in re.findall(r'#define (\w+)\s+"(/api/[^"]*)"', text):
                text = text.replace(f'{name} "', f'"{value}').replace(f" {name},", f' "{value}",')
            if file.name != "callback_test.c":
                yield from re.findall(r'\{\s*"([A-Z]+)",\s*"(/api/[^"]+)",', text)

    def test_every_route_is_there(self):
        paths = self.operator("GET", "/api/openapi.json")["paths"]
        wanted = {}
        for method, pattern in self.routes():
            path = re.sub(r":(\w+)", r"{\1}", pattern)
            wanted.setdefault(path, set()).add(method.lower())
            self.assertEqual([(p["name"], p["in"], p["required"]) for p in paths[path]["parameters"]],
                             [(name, "path", True) for name in re.findall(r":(\w+)", pattern)])
        self.assertGreater(len(wanted), 150)
        self.assertEqual({path: set(said) - {"parameters"} for path, said in paths.items()}, wanted)

    def test_not_for_everybody(self):
        self.assert_error(self.req("GET", "/api/openapi.json"), 401, "Unauthorized")


class ConventionsTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.environments = f"/api/companies/{self.acme['id']}/environments"

    def test_headers(self):
        answer = self.req("GET", "/api/companies")
        self.assertEqual(answer.headers["Content-Type"], "application/json; charset=utf-8")
        self.assertRegex(answer.headers["ETag"], r'^W/"[0-9a-f]+-[0-9a-f]+"$')
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual([h for h in answer.headers if h.lower().startswith("access-control-")], [])

    def test_etag(self):
        answer = self.req("GET", self.environments)
        tag = answer.headers["ETag"]
        self.assertEqual(self.req("GET", self.environments).headers["ETag"], tag)
        for header in (tag, f'"x", {tag}', f'{tag}, W/"y"'):
            again = self.req("GET", self.environments, headers={"If-None-Match": header})
            self.assertEqual((again.status, again.body, again.headers["ETag"]), (304, b"", tag))
        self.assertEqual(self.req("GET", self.environments, headers={"If-None-Match": 'W/"1-2"'}).status, 200)
        self.environment(self.acme)
        changed = self.req("GET", self.environments, headers={"If-None-Match": tag})
        self.assertEqual(changed.status, 200)
        self.assertNotEqual(changed.headers["ETag"], tag)

    def test_head(self):
        answer = self.req("GET", self.environments)
        head = self.req("HEAD", self.environments)
        self.assertEqual((head.status, head.body), (200, b""))
        for name in ("Content-Type", "ETag", "Content-Length"):
            self.assertEqual(head.headers[name], answer.headers[name])
        self.assertEqual(self.req("HEAD", "/api/nowhere").status, 404)
        self.assertEqual(self.req("HEAD", f"/api/environments/{uuid.uuid4()}").status, 404)

    def test_options(self):
        answer = self.req("OPTIONS", self.environments)
        self.assert_status(answer, 200)
        self.assertEqual({m.strip() for m in answer.headers["Allow"].split(",")}, {"GET", "HEAD", "POST"})
        self.assertEqual(answer.text, answer.headers["Allow"])
        answer = self.req("OPTIONS", f"/api/environments/{uuid.uuid4()}")
        self.assertEqual({m.strip() for m in answer.headers["Allow"].split(",")}, {"GET", "HEAD", "PATCH", "DELETE"})
        self.assert_status(self.req("OPTIONS", "/api/nowhere"), 404)

    def test_paths(self):
        wanted = self.ok("GET", self.environments)
        for path in (self.environments + "/", self.environments.upper(), self.environments.replace("api", "Api"),
                     f"/API/Companies/{self.acme['id'].upper()}/ENVIRONMENTS/",
                     f"/api/companies/%{ord(self.acme['id'][0]):02x}{self.acme['id'][1:]}/environments"):
            with self.subTest(path=path):
                self.assertEqual(self.ok("GET", path), wanted)

    def test_unknown_routes(self):
        for method, path in (("GET", "/api"), ("GET", "/api/"), ("GET", "/api/nowhere"), ("PUT", self.environments),
                             ("DELETE", "/api/companies"), ("GET", self.environments + "/x/y/z"),
                             ("GET", "/api//companies"), ("GET", "/api/companies//environments"),
                             ("POST", "/api/health"), ("GET", "/API/nowhere"),
                             ("GET", "/api" + "/x" * 50)):
            with self.subTest(method=method, path=path):
                self.assert_error(self.req(method, path), 404, "API route not found")
        self.assert_error(self.req("POST", "/nowhere", {}), 404, "Not found")

    def test_health(self):
        answer = self.ok("GET", "/api/health")
        answer.pop("berthVersion")  # ours: this, and how busy it is
        self.assertIs(answer.pop("saturated"), False)
        self.assertEqual(set(answer.pop("operations")),
                         {"busy", "queued", "withPeers", "waitingForPeers", "longestWaitMs"})
        self.assertEqual(answer, {
            "status": "ok", "version": "0.3.1", "deploymentMode": "local_trusted", "deploymentExposure": "private",
            "authReady": True, "bootstrapStatus": "ready", "bootstrapInviteActive": False,
            "features": {"companyDeletionEnabled": True}})

    # http-api 8.89
    def test_health_without_a_database(self):
        """The disk takes no more: everything that writes says so, nothing is half done, and it heals."""
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        answer = self.req("POST", "/api/companies", {"name": "x"})
        self.assert_status(answer, 503)
        answer = self.req("GET", "/api/health")
        self.assertEqual((answer.status, answer.json),
                         (503, {"status": "unhealthy", "version": "0.3.1", "error": "database_unreachable"}))
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE,
                         (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.ok("POST", "/api/companies", {"name": "y"}, status=201)
        self.assertEqual(self.req("GET", "/api/health").status, 200)
        self.assertEqual([c["name"] for c in self.ok("GET", "/api/companies")], ["Acme", "y"])

    def test_malformed_json(self):
        lease = self.acquire(self.environment(self.acme))["lease"]
        for body in (b"{", b"{]", b"nope", b'{"name":', b'{"name":"x"} x', b'\xff\xfe', b'{"a":"\xff"}',
                     b'{"a":"\\ud800"}', b'{"a":"\\u0000"}', b'{"a":1,"a":2}', b"[" * 200 + b"]" * 200,
                     b'{"a":1e999}', b"'x'", b"NaN", b"\x00"):
            for method, path in (("POST", "/api/companies"), ("POST", self.environments),
                                 ("PATCH", f"/api/environments/{lease['environmentId']}"),
                                 ("POST", f"/api/environments/{lease['environmentId']}/leases"),
                                 ("POST", f"/api/environment-leases/{lease['id']}/renew"),
                                 ("POST", f"/api/environment-leases/{lease['id']}/realize-workspace"),
                                 ("POST", f"/api/companies/{self.acme['id']}/activity"),
                                 ("POST", f"/api/companies/{self.acme['id']}/agents"),
                                 ("POST", "/api/cli-auth/challenges")):
                with self.subTest(body=body[:20], path=path):
                    answer = self.req(method, path, body, headers={"Content-Type": "application/json"})
                    self.assert_status(answer, 400)
                    self.assertTrue(answer.error)
        self.assertEqual(self.lease(lease), lease)

    def test_every_route_with_strange_bodies(self):
        """Whatever a caller sends is the caller's mistake, not ours."""
        lease = self.acquire(self.environment(self.acme))["lease"]
        agent = self.agent(self.acme)
        member = self.ok("GET", f"/api/companies/{self.acme['id']}/members")["members"][0]
        company = f"/api/companies/{self.acme['id']}"
        routes = [("POST", "/api/companies"), ("PATCH", company), ("POST", self.environments),
                  ("POST", self.environments + "/probe-config"),
                  ("PATCH", f"/api/environments/{lease['environmentId']}"),
                  ("POST", f"/api/environments/{lease['environmentId']}/leases"),
                  ("POST", f"/api/environments/{lease['environmentId']}/probe"),
                  ("POST", f"/api/heartbeat-runs/{uuid.uuid4()}/release-leases"),
                  ("POST", company + "/activity"), ("POST", company + "/agents"),
                  ("PATCH", f"{company}/members/{member['id']}/permissions"),
                  ("PATCH", f"/api/agents/{agent['id']}/permissions"), ("POST", f"/api/agents/{agent['id']}/keys"),
                  ("POST", "/api/board-api-keys"), ("POST", "/api/cli-auth/challenges"),
                  ("POST", f"/api/cli-auth/challenges/{uuid.uuid4()}/approve"),
                  ("POST", f"/api/cli-auth/challenges/{uuid.uuid4()}/cancel"),
                  ("POST", "/api/cli-auth/revoke-current"),
                  ("PATCH", "/api/instance/settings/general"), ("PATCH", "/api/instance/settings/experimental"),
                  ("POST", f"/api/places/{uuid.uuid4()}/close"), ("POST", f"/api/places/{uuid.uuid4()}/forget")]
        routes += [("POST", f"/api/environment-leases/{lease['id']}/{action}")
                   for action in ("renew", "resume", "destroy", "realize-workspace", "execute")]
        keys = ("name", "driver", "status", "config", "metadata", "description", "ttlMs", "heartbeatRunId", "issueId",
                "executionWorkspaceId", "executionWorkspaceMode", "idempotencyKey", "workspace", "command", "args",
                "env", "permissions", "grants", "token", "actorId", "details", "expiresAt", "user")
        bodies = [None, [], {}, 7, "x", None, True, [[[]]], {"x": {"y": [1, None]}}]
        bodies += [{key: value for key in keys} for value in (None, 7, -1.5, True, "", "x", "\u0001", [], {}, [{}],
                                                              {"provider": 7, "host": [], "localPath": {}})]
        for method, path in routes:
            for body in bodies:
                with self.subTest(method=method, path=path, body=str(body)[:60]):
                    answer = self.req(method, path, json.dumps(body).encode(),
                                      headers={"Content-Type": "application/json"})
                    self.assertLess(answer.status, 500, answer.body)
                    if answer.status >= 400:
                        self.assertTrue(answer.error)

    def test_every_route_with_strange_ids(self):
        for ident in ("x", "0", "%20", "%00", "%ff", "%", "%zz", "%2e%2e", "..", "a" * 500, "'", "%22", "-",
                      "00000000-0000-0000-0000-00000000000", "00000000000000000000000000000000",
                      "00000000-0000-0000-0000-0000000000000", "{}", "%F0%9F%98%80"):
            for method, path in (("GET", "/api/companies/{}"), ("GET", "/api/companies/{}/environments"),
                                 ("POST", "/api/companies/{}/environments"), ("GET", "/api/environments/{}"),
                                 ("PATCH", "/api/environments/{}"), ("DELETE", "/api/environments/{}"),
                                 ("GET", "/api/environments/{}/leases"), ("POST", "/api/environments/{}/leases"),
                                 ("POST", "/api/environments/{}/probe"), ("GET", "/api/environment-leases/{}"),
                                 ("GET", "/api/environments/{}/delete-blast-radius"),
                                 ("POST", "/api/environment-leases/{}/release"),
                                 ("POST", "/api/heartbeat-runs/{}/release-leases"), ("GET", "/api/agents/{}"),
                                 ("GET", "/api/companies/{}/activity"), ("GET", "/api/cli-auth/challenges/{}"),
                                 ("DELETE", "/api/board-api-keys/{}"), ("POST", "/api/places/{}/close")):
                with self.subTest(method=method, path=path, ident=ident):
                    answer = self.req(method, path.replace("{}", ident), {"name": "x", "driver": "local"}
                                      if method in ("POST", "PATCH") else None)
                    # What could be the short name of an agent needs a company.
                    expected = (400, 404, 422) if "agents" in path else (400, 404)
                    self.assertIn(answer.status, expected, answer.body)

    def test_body_of_another_type(self):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "text/json"):
            answer = self.req("POST", "/api/companies", b'{"name":"x"}', headers={"Content-Type": kind})
            self.assert_error(answer, 400, "Validation error")
            self.assertEqual(answer.json["details"], [{"code": "invalid_type", "expected": "object",
                                                       "received": "undefined", "path": [], "message": "Required"}])
        for kind in ("application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.api+json"):
            self.assert_status(self.req("POST", "/api/companies", b'{"name":"x"}', headers={"Content-Type": kind}), 201)

    def test_large_bodies(self):
        limit = 10 * 1024 * 1024
        frame = len(json.dumps({"name": ""}))
        answer = self.req("POST", "/api/companies", {"name": "x" * (limit - frame)})
        self.assert_status(answer, 201)
        answer = self.req("POST", "/api/companies", {"name": "x" * (limit - frame + 1)})
        self.assert_status(answer, 413)
        self.assertTrue(answer.error)
        self.assert_status(self.req("GET", "/api/health"), 200)

    def test_bad_query(self):
        for query in ("?", "?&&&", "?=", "?status=%zz", "?driver=%00", "?status=a&status=b", "?" + "x" * 2000):
            answer = self.req("GET", self.environments + query)
            self.assertIn(answer.status, (200, 400))

    def test_metrics(self):
        self.acquire(self.environment(self.acme))
        answer = self.req("GET", "/metrics")
        self.assertTrue(answer.headers["Content-Type"].startswith("text/plain"))
        self.assertIn("berth_leases_acquired_total 1\n", answer.text)
        self.assertIn('berth_places{state="held"} 1\n', answer.text)
        self.assertIn('berth_leases{status="active"} 1\n', answer.text)

    def test_root(self):
        answer = self.req("GET", "/")
        self.assert_status(answer, 200)
        self.assertIn("Berth", answer.text)


class HostTest(BerthTest):
    # http-api 8.95
    def test_unknown_host(self):
        for headers in ({"Host": "evil.example"}, {"Host": "evil.example:3100"},
                        {"Host": "localhost", "X-Forwarded-Host": "evil.example"},
                        {"Host": "evil.example", "X-Forwarded-Host": "localhost"}):
            with self.subTest(headers=headers):
                answer = self.req("GET", "/api/health", headers=headers)
                self.assert_error(answer, 403, contains=HOST_REFUSED)
                self.assertIn("BERTH_ALLOWED_HOSTNAMES", answer.error)
                answer = self.req("GET", "/", headers=headers)
                self.assert_status(answer, 403)
                self.assertTrue(answer.headers["Content-Type"].startswith("text/plain"))
                self.assertTrue(answer.text.startswith(HOST_REFUSED))

    def test_hosts_that_are_ours(self):
        for host in ("localhost", "localhost:1", "127.0.0.1", "127.0.0.1:99", "[::1]:3100", "x.localhost",
                     "LOCALHOST"):
            self.assert_status(self.req("GET", "/api/health", headers={"Host": host}), 200)
        for host in ("localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost", "10.0.0.1"):
            self.assert_status(self.req("GET", "/api/health", headers={"Host": host}), 403)

    def test_no_host(self):
        with self.daemon.raw() as raw:
            raw.send("GET /api/health HTTP/1.0\r\n\r\n")
            answer = raw.response()
        self.assert_error(answer, 403, contains="Missing Host header.")

    def test_the_socket_needs_none(self):
        answer = self.daemon.req_unix("GET", "/api/health", headers={"Host": "evil.example"})
        self.assert_status(answer, 200)

    def test_foreign_origin(self):
        for origin in ("http://evil.example", "null", "https://localhost", f"{self.daemon.url}x", "file://"):
            answer = self.req("POST", "/api/companies", {"name": "x"}, headers={"Origin": origin})
            self.assert_error(answer, 403, "Board mutation requires trusted browser origin")
            self.assert_status(self.req("GET", "/api/companies", headers={"Origin": origin}), 200)
        self.assertEqual(self.ok("GET", "/api/companies"), [])
        self.assert_status(self.req("POST", "/api/companies", {"name": "x"},
                                    headers={"Origin": self.daemon.url}), 201)


class AllowedHostTest(BerthTest):
    daemon_env = {"BERTH_ALLOWED_HOSTNAMES": "berth.example, other.example",
                  "BERTH_PUBLIC_URL": "https://public.example:8443/"}

    def test_configured_names(self):
        for host in ("berth.example", "OTHER.example:80", "public.example"):
            self.assert_status(self.req("GET", "/api/health", headers={"Host": host}), 200)
        self.assert_status(self.req("GET", "/api/health", headers={"Host": "third.example"}), 403)
        answer = self.req("POST", "/api/companies", {"name": "x"},
                          headers={"Host": "public.example", "Origin": "https://public.example:8443"})
        self.assert_status(answer, 201)


class SettingsTest(BerthTest):
    EXPERIMENTAL = {"enableEnvironments": False, "enableIsolatedWorkspaces": False,
                    "autoRestartDevServerWhenIdle": False, "enableIssueGraphLivenessAutoRecovery": False,
                    "issueGraphLivenessAutoRecoveryLookbackHours": 24, "enableManagedSandboxOnly": False}

    def test_experimental(self):
        path = "/api/instance/settings/experimental"
        self.assertEqual(self.ok("GET", path), self.EXPERIMENTAL)
        changed = {**self.EXPERIMENTAL, "enableEnvironments": True, "issueGraphLivenessAutoRecoveryLookbackHours": 5}
        self.assertEqual(self.ok("PATCH", path, {"enableEnvironments": True,
                                                 "issueGraphLivenessAutoRecoveryLookbackHours": 5}), changed)
        self.daemon.restart()
        self.assertEqual(self.ok("GET", path), changed)
        for body in (None, {"enableEnvironments": "yes"}, {"unknown": True}, {"enableEnvironments": None}):
            self.assert_error(self.req("PATCH", path, body), 400, "Validation error")
        self.assertEqual(self.ok("GET", path), changed)

    def test_general(self):
        path = "/api/instance/settings/general"
        self.assertEqual(set(self.ok("GET", path)), {"censorUsernameInLogs", "keyboardShortcuts",
                                                     "feedbackDataSharingPreference", "backupRetention"})
        self.assertTrue(self.ok("PATCH", path, {"keyboardShortcuts": True})["keyboardShortcuts"])
        self.assertTrue(self.ok("GET", path)["keyboardShortcuts"])

    def test_who_may(self):
        user = self.board_user(self.company())["token"]
        self.ok("GET", "/api/instance/settings/general", token=user)
        self.assert_error(self.req("PATCH", "/api/instance/settings/general", {}, token=user), 403,
                          "Instance admin access required")


if __name__ == "__main__":
    unittest.main()
