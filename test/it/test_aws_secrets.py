"""Secrets in AWS Secrets Manager through the daemon's routes, against the stand-in of awsfake.py."""

import http.client
import json
import pathlib
import signal

import awsfake
from awsfake import AwsFake, lose_answer, refuse
from berthtest import BerthTest, wait_until

MARK = "marked-value-51c0ffee"
DENIED = "AWS Secrets Manager denied the request. Check IAM permissions for this provider vault."


class AwsSecretsTest(BerthTest):
    daemon_binary = "faults"

    def setUp(self):
        self.aws = AwsFake()
        self.addCleanup(self.aws.close)
        self.daemon_env = {
            "BERTH_SECRETS_AWS_ENDPOINT": self.aws.url, "AWS_ACCESS_KEY_ID": "AKIDTEST",
            "AWS_SECRET_ACCESS_KEY": self.aws.keys["AKIDTEST"].secret, "AWS_EC2_METADATA_DISABLED": "true",
            "http_proxy": "", "all_proxy": "", "BERTH_SWEEP_INTERVAL_MS": "50"}
        super().setUp()
        self.company_id = self.company()["id"]

    def vault(self, **config):
        return self.ok("POST", f"/api/companies/{self.company_id}/secret-provider-configs",
                       {"provider": "aws_secrets_manager", "displayName": "AWS", "config": {
                           "region": "us-east-1", "namespace": "prod", **config}}, 201)

    def secret(self, vault, **more):
        return {"name": "OPENAI_API_KEY", "provider": "aws_secrets_manager", "providerConfigId": vault["id"],
                "value": MARK, **more}

    def create(self, vault, **more):
        return self.ok("POST", f"/api/companies/{self.company_id}/secrets", self.secret(vault, **more), 201)

    def name(self, key="openai_api_key"):
        return f"paperclip/prod/{self.company_id}/{key}"

    def silent(self):
        """The value is neither in the log nor in a file, nor would a core file have it."""
        self.assertNotIn(MARK.encode(), self.daemon.log_path.read_bytes())
        proc = pathlib.Path(f"/proc/{self.daemon.process.pid}")
        for name in ("cmdline", "environ"):
            self.assertNotIn(MARK.encode(), (proc / name).read_bytes())
        self.assertRegex((proc / "limits").read_text(), r"Max core file size +1 +1 ")
        for path in self.daemon.data.rglob("*"):
            if path.is_file():
                self.assertNotIn(MARK.encode(), path.read_bytes(), path)

    # environment-runtime 7.145
    def test_the_life_of_a_secret(self):
        vault = self.vault()
        secret = self.create(vault)
        self.assertEqual(self.aws.labels(self.name()), {"AWSCURRENT": MARK})
        self.assertEqual(secret["externalRef"], self.aws.secrets[self.name()]["ARN"])
        for i in (2, 3):
            rotated = self.ok("POST", f"/api/secrets/{secret['id']}/rotate", {"value": f"{MARK}-{i}"})
            self.assertEqual(rotated["latestVersion"], i)
        # the current one is current in AWS too, and nothing in use can be discarded
        self.assertEqual(self.aws.labels(self.name()), {"AWSCURRENT": f"{MARK}-3", "PAPERCLIP_PENDING": f"{MARK}-3",
                                                        "AWSPREVIOUS": f"{MARK}-2"})
        self.assertEqual(self.ok("DELETE", f"/api/secrets/{secret['id']}"), {"ok": True})
        self.assertTrue(self.aws.secrets[self.name()]["deleted"])
        self.silent()

    def test_failures(self):
        vault = self.vault()
        for step, status, code in ((refuse("AccessDeniedException", message=MARK), 403, "access_denied"),
                                   (refuse("ThrottlingException"), 429, "throttled"),
                                   (refuse("InvalidParameterException", message=MARK), 422, "invalid_request"),
                                   (refuse("InternalServiceError", 500), 502, "provider_error"),
                                   (awsfake.hang_up, 503, "provider_unavailable")):
            self.aws.script("CreateSecret", step)
            answer = self.req("POST", f"/api/companies/{self.company_id}/secrets", self.secret(vault))
            self.assertEqual((answer.status, answer.json["details"]), (status, {"code": code}))
        self.assertEqual(self.ok("GET", f"/api/companies/{self.company_id}/secrets"), [])
        self.create(vault)
        self.silent()

    def test_a_lost_answer_is_taken_back(self):
        vault = self.vault()
        self.aws.script("CreateSecret", lose_answer)
        answer = self.req("POST", f"/api/companies/{self.company_id}/secrets", self.secret(vault))
        self.assertEqual(answer.status, 503)
        wait_until(lambda: not self.aws.secrets, "the secret is removed again")
        self.create(vault)

    def test_a_failed_promotion_is_made_up_for(self):
        vault = self.vault()
        secret = self.create(vault)
        rotate = f"/api/secrets/{secret['id']}/rotate"
        self.ok("POST", rotate, {"value": "two"})
        # the first asks before, the second after
        self.aws.script("UpdateSecretVersionStage", refuse("InternalServiceError", 500))
        self.ok("POST", rotate, {"value": "three"})
        self.assertEqual(self.aws.labels(self.name())["AWSCURRENT"], "two")
        self.ok("POST", rotate, {"value": "four"})
        self.assertEqual(self.aws.labels(self.name()), {"AWSCURRENT": "four", "PAPERCLIP_PENDING": "four",
                                                        "AWSPREVIOUS": "three"})

    def test_removing_what_aws_no_longer_has(self):
        vault = self.vault()
        secret = self.create(vault)
        self.aws.script("DeleteSecret", refuse("AccessDeniedException"))
        self.assertEqual(self.req("DELETE", f"/api/secrets/{secret['id']}").status, 403)
        self.aws.secrets.clear()
        self.ok("DELETE", f"/api/secrets/{secret['id']}")

    def test_removing_again_asks_for_the_same_name(self):
        """H24: the key was changed here, the name there was not."""
        vault = self.vault()
        secret = self.create(vault)
        self.aws.script("DeleteSecret", refuse("InternalServiceError", 500))
        self.assertEqual(self.req("DELETE", f"/api/secrets/{secret['id']}").status, 502)
        self.ok("DELETE", f"/api/secrets/{secret['id']}")
        self.assertTrue(self.aws.secrets[self.name()]["deleted"])

    def remote(self, name):
        self.aws.secrets[name] = {"ARN": f"arn:aws:secretsmanager:us-east-1:{awsfake.ACCOUNT}:secret:{name}-AbC123",
                                  "versions": {"v": [MARK, {"AWSCURRENT"}]}, "deleted": False,
                                  "Description": "private words", "Tags": [{"Key": "a", "Value": "private tag"}]}
        return self.aws.secrets[name]["ARN"]

    # environment-runtime 7.152, 7.154, 7.156, 7.157
    def test_import(self):
        vault = self.vault()
        first, second = self.remote("team/one"), self.remote("team/two")
        managed = self.remote("paperclip/prod/other-company/key")
        base = f"/api/companies/{self.company_id}/secrets/remote-import"
        page = self.ok("POST", f"{base}/preview", {"providerConfigId": vault["id"], "query": "team/", "pageSize": 1})
        self.assertEqual([(c["externalRef"], c["status"], c["key"]) for c in page["candidates"]],
                         [(first, "ready", "team-one")])
        self.assertEqual(page["nextToken"], "1")
        page = self.ok("POST", f"{base}/preview", {"providerConfigId": vault["id"]})
        self.assertEqual({c["externalRef"]: c["status"] for c in page["candidates"]},
                         {first: "ready", second: "ready", managed: "conflict"})
        self.assertNotIn("private", json.dumps(page))
        rows = [{"externalRef": first, "name": "One", "description": " words "}, {"externalRef": first, "name": "Again"},
                {"externalRef": managed, "name": "Theirs"}]
        result = self.ok("POST", base, {"providerConfigId": vault["id"], "secrets": rows})
        self.assertEqual([(r["status"], r["reason"]) for r in result["results"][:2]],
                         [("imported", None), ("skipped", "exact_reference_duplicate")])
        self.assertEqual((result["importedCount"], result["skippedCount"], result["errorCount"]), (1, 1, 1))
        self.ok("POST", f"/api/companies/{self.company_id}/secrets", {"name": "team/two", "value": "x"}, 201)
        page = self.ok("POST", f"{base}/preview", {"providerConfigId": vault["id"], "query": "team/"})
        imported = result["results"][0]["secretId"]
        self.assertEqual([(c["status"], [x["type"] for x in c["conflicts"]]) for c in page["candidates"]],
                         [("duplicate", ["exact_reference"]), ("conflict", ["name", "key"])])
        self.assertEqual(page["candidates"][0]["conflicts"][0]["existingSecretId"], imported)
        self.assertNotIn("GetSecretValue", self.aws.operations())
        self.silent()

    # The server's role reads what every company keeps there.
    def test_what_is_another_companys(self):
        theirs = self.create(self.vault())["externalRef"]
        other = self.company("Other")
        for role in ("owner", "operator"):
            token = self.board_user(other, role, role=role)["token"]
            base = f"/api/companies/{other['id']}"
            vault = self.ok("POST", f"{base}/secret-provider-configs", {
                "provider": "aws_secrets_manager", "displayName": "AWS", "config": {"region": "us-east-1"}}, 201, token=token)["id"]
            linked = self.ok("POST", f"{base}/secrets", {
                "name": f"ours-{role}", "provider": "aws_secrets_manager", "providerConfigId": vault,
                "managedMode": "external_reference", "externalRef": self.remote(f"ours/{role}")}, 201)["id"]
            stolen = {"name": "Stolen", "externalRef": theirs}
            for path, body in ((f"{base}/secrets/remote-import/preview", {}),
                               (f"{base}/secrets/remote-import", {"secrets": [stolen]}),
                               (f"{base}/secrets", {**stolen, "provider": "aws_secrets_manager",
                                                    "managedMode": "external_reference"}),
                               (f"/api/secrets/{linked}/rotate", {"externalRef": theirs}),
                               (f"/api/secrets/{linked}/rotate", {})):
                with self.subTest(role=role, path=path):
                    self.assert_error(self.req("POST", path, {"providerConfigId": vault, **body}, token=token), 403,
                                      contains="an instance admin")
            self.ok("POST", f"/api/secrets/{linked}/rotate", {}, token=token)
            self.ok("POST", f"{base}/secrets", {"name": f"own-{role}", "provider": "aws_secrets_manager", "value": MARK,
                                                "providerConfigId": vault}, 201, token=token)
        self.assertNotIn("ListSecrets", self.aws.operations())
        self.assertNotIn("GetSecretValue", self.aws.operations())

    # environment-runtime 7.153
    def test_a_refused_preview(self):
        vault = self.vault()
        self.aws.script("ListSecrets", refuse("AccessDeniedException", message=f"arn:aws:iam::{awsfake.ACCOUNT}:x"))
        answer = self.req("POST", f"/api/companies/{self.company_id}/secrets/remote-import/preview",
                          {"providerConfigId": vault["id"]})
        self.assertEqual((answer.status, answer.error, answer.json["details"]), (403, DENIED, {"code": "access_denied"}))
        self.assertNotIn(awsfake.ACCOUNT.encode(), self.daemon.log_path.read_bytes())

    # ---- crashes ----

    def crash(self, point, method, path, body=None):
        """Let the request run into the point, and start the daemon again without it."""
        self.daemon.stop()
        self.daemon.env["BERTH_CRASH_AT"] = point
        self.daemon.start()
        try:
            self.req(method, path, body)
        except (OSError, http.client.HTTPException):
            pass
        self.assertEqual(self.daemon.wait(), -signal.SIGKILL, f"{point} was not reached")
        del self.daemon.env["BERTH_CRASH_AT"]
        self.daemon.start()

    def agreed(self):
        """What AWS has is what we list, and every current version is there and resolvable by AWS's labels."""
        mine = {s["externalRef"] for s in self.ok("GET", f"/api/companies/{self.company_id}/secrets")
                if s["status"] == "active"}
        return mine == {s["ARN"] for s in self.aws.secrets.values() if not s["deleted"]}

    def test_crashes_while_creating(self):
        vault = self.vault()
        path = f"/api/companies/{self.company_id}/secrets"
        for i, point in enumerate(("secret.reserve.before", "secret.reserve.after", "secret.record.before",
                                   "secret.record.after", "secret.create.before", "secret.create.after")):
            with self.subTest(point=point):
                name = f"KEY_{i}"
                self.crash(point, "POST", path, self.secret(vault, name=name))
                wait_until(self.agreed, "AWS and the database agree")
                if self.name(f"key_{i}") not in self.aws.secrets:
                    self.create(vault, name=name)
                self.assertEqual(self.aws.labels(self.name(f"key_{i}")), {"AWSCURRENT": MARK})
        self.silent()

    def test_crashes_while_rotating(self):
        vault = self.vault()
        secret = self.create(vault)
        path, before = f"/api/secrets/{secret['id']}/rotate", MARK
        for i, point in enumerate(("secret.rotate_reserve.before", "secret.rotate_reserve.after",
                                   "secret.rotate_record.before", "secret.rotate_record.after",
                                   "secret.rotate.before", "secret.rotate.after")):
            with self.subTest(point=point):
                self.crash(point, "POST", path, {"value": f"crashed-{i}"})
                self.aws.discard()
                current = self.daemon.sql("SELECT provider_version_ref AS id FROM company_secret_versions "
                                          "WHERE secret_id = ? AND status = 'current'", (secret["id"],))
                self.assertEqual(len(current), 1)
                kept = self.aws.secrets[self.name()]["versions"]
                self.assertIn(current[0]["id"], kept)  # the version in use was never AWS's to drop
                self.assertIn(kept[current[0]["id"]][0], (before, f"crashed-{i}"))
                before = f"after-{i}"
                wait_until(lambda: self.req("POST", path, {"value": before}).status == 200, "it can be rotated again")
                self.assertEqual(self.aws.labels(self.name())["AWSCURRENT"], before)
        self.silent()

    def test_crashes_while_removing(self):
        vault = self.vault()
        for i, point in enumerate(p for p in self.daemon.cli("faults")[1].split() if p.startswith("secret.remove")):
            with self.subTest(point=point):
                secret = self.create(vault, name=f"KEY_{i}")
                self.crash(point, "DELETE", f"/api/secrets/{secret['id']}")
                self.req("DELETE", f"/api/secrets/{secret['id']}")
                wait_until(self.agreed, "AWS and the database agree")
                self.assertNotIn(secret["id"], [s["id"] for s in self.ok(
                    "GET", f"/api/companies/{self.company_id}/secrets")])
