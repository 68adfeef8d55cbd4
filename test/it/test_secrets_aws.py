"""Secrets of a company in AWS, through the daemon: the record and the vault agree, whatever AWS answers."""

import json
import unittest

from awsfake import AwsFake, lose_answer, refuse
from berthtest import BerthTest, wait_until

MARK = "marked-value-51c0"
SSH = {"host": "ssh.example.test", "username": "deploy", "remoteWorkspacePath": "/srv/work"}


class AwsSecretsTest(BerthTest):
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.aws = AwsFake()
        self.addCleanup(self.aws.close)
        self.daemon.env.update({
            "AWS_EC2_METADATA_DISABLED": "true", "BERTH_SECRETS_AWS_ENDPOINT": self.aws.url,
            "AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            "HOME": str(self.temp_dir())})
        self.daemon.start()
        self.acme = self.company()
        self.secrets = f"/api/companies/{self.acme['id']}/secrets"
        self.vault = self.ok("POST", f"/api/companies/{self.acme['id']}/secret-provider-configs",
                             {"provider": "aws_secrets_manager", "displayName": "prod",
                              "config": {"region": "us-east-1", "namespace": "prod"}}, status=201)["id"]

    def body(self, name="key", value=MARK):
        return {"name": name, "value": value, "provider": "aws_secrets_manager", "providerConfigId": self.vault}

    def activity(self):
        return self.operator("GET", f"/api/companies/{self.acme['id']}/activity?limit=500")

    def living(self):
        return {name for name, s in self.aws.secrets.items() if not s["deleted"]}

    def test_life(self):
        made = self.ok("POST", self.secrets, self.body(), status=201)
        name = f"paperclip/prod/{self.acme['id']}/key"
        self.assertEqual(self.living(), {name})
        self.ok("POST", f"/api/secrets/{made['id']}/rotate", {"value": "second"})
        self.assertEqual(self.aws.labels(name)["AWSCURRENT"], "second")  # H22: what is in use keeps its label
        self.ok("DELETE", f"/api/secrets/{made['id']}")
        self.assertEqual((self.living(), self.ok("GET", self.secrets)), (set(), []))
        self.assertNotIn(MARK, json.dumps(self.activity()) + self.daemon.log())

    def test_an_answer_that_was_lost(self):
        self.aws.script("CreateSecret", lose_answer)
        self.assertIn(self.req("POST", self.secrets, self.body()).status, (502, 503))
        self.assertEqual((self.living(), self.ok("GET", self.secrets)), (set(), []))

    def test_a_removal_that_aws_refuses_is_tried_again(self):
        made = self.ok("POST", self.secrets, self.body(), status=201)
        self.aws.script("DeleteSecret", refuse("AccessDeniedException"))
        self.assert_error(self.req("DELETE", f"/api/secrets/{made['id']}"), 403, contains="denied the request")
        self.assertEqual(self.ok("GET", self.secrets), [])
        self.daemon.restart()
        wait_until(lambda: not self.living(), "the sweeper removes it")
        self.assertEqual(self.daemon.sql("SELECT id FROM company_secrets"), [])

    def test_the_key_of_an_environment(self):
        self.daemon.env.update(PAPERCLIP_SECRETS_PROVIDER="aws_secrets_manager", PAPERCLIP_SECRETS_AWS_REGION="us-east-1",
                               PAPERCLIP_SECRETS_AWS_DEPLOYMENT_ID="prod", PAPERCLIP_SECRETS_AWS_KMS_KEY_ID="alias/k")
        self.daemon.restart()
        env = self.environment(self.acme, driver="ssh", config={**SSH, "privateKey": MARK})
        self.assertEqual(self.ok("GET", self.secrets)[0]["provider"], "aws_secrets_manager")
        self.assertEqual(len(self.living()), 1)
        self.ok("DELETE", f"/api/environments/{env['id']}")
        self.assertEqual(self.living(), set())

    # environment-runtime 7.190, 7.192; http-api 8.59, 8.61
    def test_importing(self):
        for name in ("team/one", "team/two"):
            self.aws.CreateSecret({"Name": name, "SecretString": MARK, "ClientRequestToken": "t" * 32}, "us-east-1")
        seen = self.ok("POST", self.secrets + "/remote-import/preview", {"providerConfigId": self.vault})
        self.assertEqual([(c["name"], c["status"]) for c in seen["candidates"]],
                         [("team/one", "ready"), ("team/two", "ready")])
        entry = next(r for r in self.activity() if r["action"] == "secret.remote_import.previewed")
        self.assertEqual(entry["details"], {"provider": "aws_secrets_manager", "candidateCount": 2, "readyCount": 2,
                                            "duplicateCount": 0, "conflictCount": 0})
        rows = [{"externalRef": c["externalRef"], "name": c["name"], "description": "  d  "}
                for c in seen["candidates"]]
        done = self.ok("POST", self.secrets + "/remote-import", {"providerConfigId": self.vault,
                                                                 "secrets": rows + rows[:1]})
        self.assertEqual((done["importedCount"], done["skippedCount"], done["errorCount"]), (2, 1, 0))
        self.assertEqual([r["status"] for r in done["results"]], ["imported", "imported", "skipped"])
        self.assertEqual(self.ok("GET", "/api/secrets/" + done["results"][0]["secretId"])["description"], "d")
        self.assertEqual(done["results"][2]["conflicts"], [
            {"type": "exact_reference", "existingSecretId": done["results"][0]["secretId"],
             "message": "An existing secret already links this exact provider reference."}])
        again = self.ok("POST", self.secrets + "/remote-import/preview", {"providerConfigId": self.vault})
        self.assertEqual([(c["status"], c["importable"]) for c in again["candidates"]], [("duplicate", False)] * 2)
        entry = next(r for r in self.activity() if r["action"] == "secret.remote_import.completed")
        self.assertEqual(entry["details"], {"provider": "aws_secrets_manager", "importedCount": 2, "skippedCount": 1,
                                            "errorCount": 0})
        text = json.dumps([r["details"] for r in self.activity() if "remote_import" in r["action"]])
        self.assertNotIn("team/", text)
        self.assertNotIn("arn:", text)
        self.assertNotIn("GetSecretValue", self.aws.operations())
        status, out, _ = self.daemon.cli("vault", "preview", "prod")
        self.assertEqual((status, out.count("duplicate")), (0, 2), out)
        status, out, _ = self.daemon.cli("vault", "import", "prod", rows[0]["externalRef"])
        self.assertEqual((status, "exact_reference_duplicate" in out), (0, True), out)

    # environment-runtime 7.191; http-api 8.60
    def test_a_denied_preview(self):
        before = len(self.activity())
        self.aws.script("ListSecrets", refuse("AccessDeniedException",
                                              message="arn:aws:iam::123456789012:user/x is not authorized"))
        answer = self.req("POST", self.secrets + "/remote-import/preview", {"providerConfigId": self.vault})
        self.assert_error(answer, 403, "AWS Secrets Manager denied the request. Check IAM permissions for this "
                                       "provider vault.")
        self.assertEqual(answer.json["details"], {"code": "access_denied"})
        self.assertNotIn("123456789012", answer.text)
        self.assertEqual(len(self.activity()), before)

    def test_throttling(self):
        self.aws.script("CreateSecret", *[refuse("ThrottlingException")] * 5)
        answer = self.req("POST", self.secrets, self.body())
        self.assert_error(answer, 429, contains="throttled the request")
        self.assertEqual(answer.json["details"], {"code": "throttled"})
        self.assertEqual((self.living(), self.ok("GET", self.secrets)), (set(), []))


if __name__ == "__main__":
    unittest.main()
