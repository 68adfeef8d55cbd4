"""The vault provider for AWS Secrets Manager against a stand-in that checks signatures (awsfake.py)."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

import awsfake
from awsfake import AwsFake, hold, lose_answer, raw, refuse
from berthtest import BUILD, wait_until

COMPANY = "company-1"
MARK = "marked-value-7f3a9c\u20ac\"\\\n"
NAME = f"paperclip/prod/{COMPANY}/openai-api-key"
SUBJECT = {"companyId": COMPANY, "secretId": "s-1", "secretKey": "openai-api-key", "secretName": "OpenAI API key",
           "version": 1}
SETTINGS = {"PAPERCLIP_SECRETS_AWS_REGION": "us-east-1", "PAPERCLIP_SECRETS_AWS_DEPLOYMENT_ID": "prod",
            "PAPERCLIP_SECRETS_AWS_KMS_KEY_ID": "alias/berth"}
STATIC = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
VAULT = {"id": "vault-1", "provider": "aws_secrets_manager", "status": "ready",
         "config": {"region": "us-west-2", "namespace": "prod-us-west", "secretNamePrefix": "clip",
                    "ownerTag": "platform", "environmentTag": "staging"}}
DENIED = "AWS Secrets Manager denied the request. Check IAM permissions for this provider vault."
NO_CREDENTIALS = "AWS Secrets Manager cannot be used: this server has no valid AWS credentials."


class Driver:
    """A process with the provider in it."""

    def __init__(self, env, log):
        keep = {k: v for k, v in os.environ.items() if not k.startswith("AWS_") and not k.lower().endswith("_proxy")}
        self.log = open(log, "ab+")
        self.process = subprocess.Popen([str(BUILD / "test/harness/awsdrive")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, env={**keep, **env}, text=True)

    def call(self, call, **more):
        self.process.stdin.write(json.dumps({"call": call, **more}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"awsdrive ended: {self.logged()}")
        return json.loads(line)

    def logged(self):
        self.log.seek(0)
        return self.log.read().decode()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        status = self.process.wait(20)
        self.log.close()
        if status != 0:
            raise AssertionError(f"awsdrive ended with {status}")


class AwsTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="aws-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.aws = AwsFake()
        self.addCleanup(self.aws.close)
        self.drivers = []

    def driver(self, **env):
        base = {"HOME": str(self.dir), "AWS_EC2_METADATA_DISABLED": "true",
                "BERTH_SECRETS_AWS_ENDPOINT": self.aws.url, **SETTINGS, **STATIC, **env}
        d = Driver({k: v for k, v in base.items() if v is not None}, self.dir / f"log{len(self.drivers)}")
        self.drivers.append(d)
        self.addCleanup(d.close)
        return d

    def roles(self, **env):
        """A process without keys of its own."""
        return self.driver(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, **env)

    def ok(self, driver, call, **more):
        answer = driver.call(call, **more)
        self.assertNotIn("error", answer, driver.logged())
        return answer

    def fails(self, driver, call, **more):
        answer = driver.call(call, **more)
        self.assertIn("error", answer)
        return answer["error"]

    def create(self, driver, value=MARK, **more):
        return self.ok(driver, "create", subject=SUBJECT, value=value, **more)["material"]


class ManagedTest(AwsTest):
    # environment-runtime 7.167
    def test_create(self):
        d = self.driver()
        m = self.create(d, ref="arn:aws:secretsmanager:us-east-1:1:secret:other")
        operation, body = self.aws.calls[0]
        self.assertEqual((operation, body["Name"], body["SecretString"], body["KmsKeyId"], body["Description"]),
                         ("CreateSecret", NAME, MARK, "alias/berth", "Paperclip secret OpenAI API key"))
        self.assertEqual({t["Key"]: t["Value"] for t in body["Tags"]},
                         {"paperclip:managed-by": "paperclip", "paperclip:provider-owner": "paperclip",
                          "paperclip:deployment-id": "prod", "paperclip:company-id": COMPANY,
                          "paperclip:secret-key": "openai-api-key", "paperclip:environment": "unknown"})
        arn = self.aws.secrets[NAME]["ARN"]
        self.assertEqual(json.loads(m["material"]), {"scheme": "aws_secrets_manager_v1", "secretId": arn,
                                                     "versionId": body["ClientRequestToken"], "source": "managed"})
        self.assertEqual((m["externalRef"], m["versionRef"]), (arn, body["ClientRequestToken"]))
        self.assertNotIn("marked-value", json.dumps(m))
        self.assertNotIn(hashlib.sha256(MARK.encode()).hexdigest(), json.dumps(m))

    # environment-runtime 7.145, 7.168
    def test_a_vault_needs_no_process_settings(self):
        d = self.driver(**{name: None for name in SETTINGS})
        m = self.create(d, vault=VAULT)
        name, body = self.aws.calls[0][1]["Name"], self.aws.calls[0][1]
        self.assertEqual(name, "clip/prod-us-west/company-1/openai-api-key")
        self.assertNotIn("KmsKeyId", body)
        tags = {t["Key"]: t["Value"] for t in body["Tags"]}
        self.assertEqual((tags["paperclip:provider-owner"], tags["paperclip:environment"]), ("platform", "staging"))
        health = self.ok(self.roles(**{n: None for n in SETTINGS}), "health", vault=VAULT)
        self.assertEqual((health["status"], health["details"]["kmsKeyConfigured"], health["details"]["region"]),
                         ("ok", False, "us-west-2"))
        second = self.ok(d, "create_version", vault=VAULT, subject=SUBJECT, material=m, value="two")["material"]
        self.assertEqual(self.ok(d, "resolve", vault=VAULT, subject=SUBJECT, material=second), {"value": "two"})
        self.assertIs(d.call("configured"), False)
        self.assertIs(self.driver().call("configured"), True)

    # environment-runtime 7.169
    def test_requests_are_signed(self):
        self.aws.keys["AKIDSESSION"] = awsfake.Key("session-secret", token="the-session-token")
        d = self.driver(AWS_ACCESS_KEY_ID="AKIDSESSION", AWS_SECRET_ACCESS_KEY="session-secret",
                        AWS_SESSION_TOKEN="the-session-token")
        self.create(d)
        headers = self.aws.headers[0]
        self.assertEqual(headers["x-amz-target"], "secretsmanager.CreateSecret")
        self.assertEqual(headers["x-amz-security-token"], "the-session-token")
        self.assertRegex(headers["authorization"],
                         r"^AWS4-HMAC-SHA256 Credential=AKIDSESSION/\d{8}/us-east-1/secretsmanager/aws4_request, "
                         r"SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token;"
                         r"x-amz-target, Signature=[0-9a-f]{64}$")

    # environment-runtime 7.169
    def test_a_call_can_be_cancelled(self):
        release, began = threading.Event(), threading.Event()
        self.addCleanup(release.set)
        self.aws.script("GetSecretValue", hold(release, began))
        d = self.driver()
        m = self.create(d)
        result = []
        thread = threading.Thread(target=lambda: result.append(
            d.call("resolve", subject=SUBJECT, material=m, cancelFile=str(self.dir / "cancel"))))
        thread.start()
        self.assertTrue(began.wait(20))
        (self.dir / "cancel").touch()
        thread.join(20)
        self.assertEqual(result[0]["error"]["text"], "The operation was cancelled.")

    # environment-runtime 7.169
    def test_a_call_has_the_operations_deadline(self):
        release = threading.Event()
        self.addCleanup(release.set)
        self.aws.script("GetSecretValue", hold(release))
        d = self.driver()
        m = self.create(d)
        error = self.fails(d, "resolve", subject=SUBJECT, material=m, deadlineMs=300)
        self.assertEqual(error["text"], "The operation ran out of time.")

    # environment-runtime 7.170
    def test_rotation_puts_a_pending_version(self):
        d = self.driver()
        m = self.create(d, "one")
        self.aws.calls.clear()
        second = self.ok(d, "create_version", subject={**SUBJECT, "version": 2}, material=m, value="two")["material"]
        body = next(body for operation, body in self.aws.calls if operation == "PutSecretValue")
        self.assertEqual((body["SecretId"], body["SecretString"], body["VersionStages"]),
                         (m["externalRef"], "two", ["PAPERCLIP_PENDING"]))
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=second), {"value": "two"})
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": "one"})

    def test_the_version_in_use_always_has_a_label(self):
        """H22: AWS discards what has none, at every moment."""
        d = self.driver()
        current, value = self.create(d, "1"), "1"
        for i in range(2, 6):
            new = self.ok(d, "create_version", subject=SUBJECT, material=current, value=str(i))["material"]
            self.aws.discard()
            self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=current), {"value": value})
            self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=new), {"value": str(i)})
            if i == 4:  # given up: the old one stays
                self.ok(d, "archive", subject=SUBJECT, material=new)
                self.aws.discard()
                self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=current), {"value": "3"})
                continue
            current, value = new, str(i)
        self.assertEqual(self.aws.labels(NAME)["AWSCURRENT"], "3")
        self.ok(d, "promote", subject=SUBJECT, material=current)
        self.assertEqual(self.aws.labels(NAME), {"AWSCURRENT": "5", "AWSPREVIOUS": "3", "PAPERCLIP_PENDING": "5"})
        self.ok(d, "promote", subject=SUBJECT, material=current)  # twice is fine
        self.aws.discard()
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=current), {"value": "5"})

    def test_rotating_is_refused_while_the_version_in_use_cannot_be_kept(self):
        d = self.driver()
        m = self.create(d, "one")
        m = self.ok(d, "create_version", subject=SUBJECT, material=m, value="two")["material"]
        self.aws.script("UpdateSecretVersionStage", refuse("AccessDeniedException"))
        self.assertEqual(self.fails(d, "create_version", subject=SUBJECT, material=m, value="three")["code"],
                         "access_denied")
        self.assertEqual(self.aws.labels(NAME), {"AWSCURRENT": "one", "PAPERCLIP_PENDING": "two"})

    def test_rotating_cures_a_version_that_aws_lost(self):
        d = self.driver()
        m = self.create(d, "one")
        lost = {**m, "versionRef": "0" * 36}
        self.assertEqual(self.fails(d, "resolve", subject=SUBJECT, material=lost)["code"], "not_found")
        new = self.ok(d, "create_version", subject=SUBJECT, material=lost, value="two")["material"]
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=new), {"value": "two"})

    # environment-runtime 7.171, 7.177
    def test_references_outside_the_scope(self):
        d = self.driver()
        drifted = "AWS Secrets Manager managed secret ref drifted outside the derived deployment/company scope"
        for name in (f"paperclip/prod/company-2/openai-api-key-AbC123", f"{NAME}-AbC1234", f"{NAME}x", "elsewhere"):
            arn = f"arn:aws:secretsmanager:us-east-1:{awsfake.ACCOUNT}:secret:{name}"
            m = {"material": json.dumps({"scheme": "aws_secrets_manager_v1", "secretId": arn, "versionId": "v",
                                         "source": "managed"}), "externalRef": arn, "versionRef": "v"}
            for call in ("create_version", "resolve", "remove", "archive", "promote"):
                error = self.fails(d, call, subject=SUBJECT, material=m, value="x")
                self.assertEqual((error["status"], error["text"]), (422, drifted))
        self.assertEqual(self.aws.calls, [])

    # environment-runtime 7.176
    def test_resolve_by_version(self):
        d = self.driver()
        m = self.create(d)
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": MARK})
        self.assertEqual(self.aws.calls[-1][1], {"SecretId": m["externalRef"], "VersionId": m["versionRef"]})
        linked = self.ok(d, "link", subject=SUBJECT, ref="shared/token")["material"]
        self.aws.secrets["shared/token"] = {"ARN": "arn:x", "versions": {"v1": ["shared", {"AWSCURRENT"}]},
                                            "deleted": False}
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=linked), {"value": "shared"})
        self.assertEqual(self.aws.calls[-1][1], {"SecretId": "shared/token", "VersionStage": "AWSCURRENT"})

    # environment-runtime 7.179
    def test_delete(self):
        d = self.driver(PAPERCLIP_SECRETS_AWS_DELETE_RECOVERY_DAYS="9")
        m = self.create(d)
        self.ok(d, "remove", subject=SUBJECT, material=m)
        self.assertEqual(self.aws.calls[-1], ("DeleteSecret", {"SecretId": m["externalRef"],
                                                               "RecoveryWindowInDays": 9}))
        before = len(self.aws.calls)
        linked = self.ok(d, "link", subject=SUBJECT, ref="shared/token")["material"]
        self.ok(d, "remove", subject=SUBJECT, material=linked)
        self.ok(d, "archive", subject=SUBJECT, material=linked)
        self.assertEqual(len(self.aws.calls), before)
        self.ok(d, "remove", subject=SUBJECT, material=m)  # again: deleted already
        gone = self.fails(d, "create", subject=SUBJECT, value="x")
        self.assertEqual(gone["code"], "conflict")
        self.assertIn("still keeps a deleted secret of this key", gone["text"])
        self.aws.secrets.clear()
        self.assertEqual(self.fails(d, "remove", subject=SUBJECT, material=m)["code"], "not_found")
        bad = self.driver(PAPERCLIP_SECRETS_AWS_DELETE_RECOVERY_DAYS="31")
        self.assertEqual(self.fails(bad, "remove", subject=SUBJECT, material=m)["text"],
                         "PAPERCLIP_SECRETS_AWS_DELETE_RECOVERY_DAYS must be an integer between 7 and 30")

    # environment-runtime 7.180
    def test_archive(self):
        d = self.driver()
        m = self.create(d, "one")
        second = self.ok(d, "create_version", subject=SUBJECT, material=m, value="two")["material"]
        self.aws.calls.clear()
        self.ok(d, "archive", subject=SUBJECT, material=second)
        self.assertEqual(self.aws.calls, [("UpdateSecretVersionStage", {
            "SecretId": m["externalRef"], "VersionStage": "PAPERCLIP_PENDING",
            "RemoveFromVersionId": second["versionRef"]})])
        self.assertEqual(self.aws.labels(NAME), {"AWSCURRENT": "one"})

    def test_connections_are_used_again(self):
        d = self.driver()
        m = self.create(d)
        for _ in range(5):
            self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": MARK})
        self.assertEqual(len(self.aws.connections), 1)
        self.aws.connections[0].shutdown(socket.SHUT_RDWR)  # as servers do with idle ones
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": MARK})
        self.assertEqual(len(self.aws.connections), 2)
        self.aws.script("GetSecretValue", awsfake.hang_up)  # reading is tried again
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": MARK})
        self.aws.calls.clear()
        self.aws.script("PutSecretValue", awsfake.hang_up)  # writing is not
        self.assertEqual(self.fails(d, "create_version", subject=SUBJECT, material=m, value="x")["code"],
                         "provider_unavailable")
        self.assertEqual(self.aws.operations().count("PutSecretValue"), 1)

    def test_bad_material(self):
        d = self.driver()
        good = {"scheme": "aws_secrets_manager_v1", "secretId": NAME, "versionId": None, "source": "managed"}
        for text in ("", "{}", "[]", "{", json.dumps({**good, "scheme": "x"}), json.dumps({**good, "secretId": " "}),
                     json.dumps({**good, "source": "other"}), json.dumps({**good, "secretId": "x" * 2049})):
            for call in ("resolve", "remove", "archive", "create_version", "promote"):
                error = self.fails(d, call, subject=SUBJECT, material={"material": text}, value="x")
                self.assertEqual((error["status"], error["text"]), (422, "Invalid AWS Secrets Manager material"))

    def test_a_create_without_answer_can_be_taken_back(self):
        d = self.driver()
        self.aws.script("CreateSecret", lose_answer, awsfake.hang_up)
        error = self.fails(d, "create", subject=SUBJECT, value="x")
        self.assertEqual(error["code"], "provider_unavailable")
        self.ok(d, "remove", subject=SUBJECT, material={})
        self.assertEqual(self.aws.secrets, {})
        self.fails(d, "create", subject=SUBJECT, value="x")
        self.assertEqual(self.fails(d, "remove", subject=SUBJECT, material={})["code"], "not_found")
        self.create(d)  # the name is free

    def test_what_somebody_else_made_is_not_taken_back(self):
        d = self.driver()
        m = self.create(d, "kept")
        other = {**SUBJECT, "secretId": "s-2"}
        self.assertEqual(self.fails(d, "create", subject=other, value="x")["code"], "conflict")
        self.assertEqual(self.fails(d, "remove", subject=other, material={})["code"], "not_found")
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": "kept"})
        self.ok(d, "remove", subject=SUBJECT, material=m)
        self.assertEqual(self.fails(d, "remove", subject=SUBJECT, material={})["code"], "not_found")

    def test_a_version_without_answer_is_harmless(self):
        d = self.driver()
        m = self.create(d, "one")
        self.aws.script("PutSecretValue", lose_answer)
        self.fails(d, "create_version", subject=SUBJECT, material=m, value="two")
        self.ok(d, "archive", subject=SUBJECT, material={})
        m = self.ok(d, "create_version", subject=SUBJECT, material=m, value="three")["material"]
        self.aws.discard()
        self.assertEqual(self.aws.labels(NAME), {"AWSCURRENT": "one", "PAPERCLIP_PENDING": "three"})
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": "three"})


class ReferenceTest(AwsTest):
    # environment-runtime 7.172
    def test_link(self):
        d = self.driver()
        ref = f"arn:aws:secretsmanager:us-east-1:{awsfake.ACCOUNT}:secret:team/db-AbC123"
        m = self.ok(d, "link", subject=SUBJECT, ref=ref, versionRef="v7")["material"]
        self.assertEqual(json.loads(m["material"]), {"scheme": "aws_secrets_manager_v1", "secretId": ref,
                                                     "versionId": "v7", "source": "external_reference"})
        mark = hashlib.sha256(f"aws_secrets_manager_v1:{ref}:v7".encode()).hexdigest()
        self.assertEqual((m["externalRef"], m["versionRef"], m["fingerprint"]), (ref, "v7", mark))
        self.assertEqual(self.ok(d, "link", subject=SUBJECT, ref=" x ")["material"]["fingerprint"],
                         hashlib.sha256(b"aws_secrets_manager_v1:x:").hexdigest())
        self.assertEqual(self.aws.calls, [])  # nothing was read

    # environment-runtime 7.156, 7.173
    def test_the_managed_namespace_cannot_be_linked(self):
        d = self.driver()
        text = "AWS Paperclip-managed namespace secrets cannot be imported as external references"
        refs = ["paperclip/prod", "paperclip/prod/company-2/key",
                f"ARN:aws:SecretsManager:us-east-1:{awsfake.ACCOUNT}:SECRET:paperclip/prod/{COMPANY}/key-AbC123"]
        for ref in refs:
            error = self.fails(d, "link", subject=SUBJECT, ref=ref)
            self.assertEqual((error["status"], error["text"]), (422, text))
            # nor through a vault that calls its namespace something else
            self.assertEqual(self.fails(d, "link", subject=SUBJECT, ref=ref, vault=VAULT)["text"], text)
            m = {"material": json.dumps({"scheme": "aws_secrets_manager_v1", "secretId": ref, "versionId": None,
                                         "source": "external_reference"})}
            self.assertEqual(self.fails(d, "resolve", subject=SUBJECT, material=m, vault=VAULT)["text"], text)
        self.ok(d, "link", subject=SUBJECT, ref="paperclip/production/x")
        self.assertEqual(self.aws.calls, [])

    # environment-runtime 7.174
    def test_list(self):
        d = self.driver()
        for name in ("a/one", "a/two", "b/three"):
            self.aws.secrets[name] = {"ARN": f"arn:aws:secretsmanager:us-east-1:1:secret:{name}-AbC123",
                                      "versions": {"v": ["remote-value", {"AWSCURRENT"}]}, "deleted": False,
                                      "Description": "private words", "KmsKeyId": "k",
                                      "Tags": [{"Key": "owner", "Value": "private tag"}]}
        page = self.ok(d, "list", query="a/", pageSize=1)
        self.assertEqual(self.aws.calls[-1], ("ListSecrets", {"MaxResults": 1, "IncludePlannedDeletion": False,
                                                              "Filters": [{"Key": "all", "Values": ["a/"]}]}))
        self.assertEqual(page, {"secrets": [{
            "externalRef": "arn:aws:secretsmanager:us-east-1:1:secret:a/one-AbC123", "name": "a/one",
            "providerVersionRef": None,
            "providerMetadata": {"createdDate": "2017-07-14T02:40:00.000Z", "lastAccessedDate": None,
                                 "lastChangedDate": "2017-07-14T02:40:00.250Z", "deletedDate": None,
                                 "hasDescription": True, "hasKmsKey": True, "tagCount": 1}}], "nextToken": "1"})
        page = self.ok(d, "list", query="a/", pageSize=1, nextToken=page["nextToken"])
        self.assertEqual(self.aws.calls[-1][1]["NextToken"], "1")
        self.assertEqual(([s["name"] for s in page["secrets"]], page["nextToken"]), (["a/two"], None))
        self.assertEqual(len(self.ok(d, "list", pageSize=1000)["secrets"]), 3)
        self.assertEqual(self.aws.calls[-1][1], {"MaxResults": 100, "IncludePlannedDeletion": False})
        self.assertNotIn("private", json.dumps(page))
        self.assertNotIn("GetSecretValue", self.aws.operations())

    # environment-runtime 7.153, 7.155, 7.175
    def test_a_refused_listing(self):
        d = self.driver()
        said = (f"User: arn:aws:iam::{awsfake.ACCOUNT}:user/mallory is not authorized to perform: "
                f"secretsmanager:ListSecrets in account {awsfake.ACCOUNT} with key AKIAIOSFODNN7EXAMPLE")
        self.aws.script("ListSecrets", refuse("AccessDeniedException", message=said))
        error = self.fails(d, "list", pageSize=10)
        self.assertEqual((error["code"], error["status"], error["text"]), ("access_denied", 403, DENIED))
        log = d.logged()
        self.assertIn("is not authorized to perform", log)
        self.assertIn("AccessDeniedException", log)
        for private in (awsfake.ACCOUNT, "mallory", "AKIAIOSFODNN7EXAMPLE"):
            self.assertNotIn(private, log + error["text"])


class FailureTest(AwsTest):
    def test_each_kind_once(self):
        """H23: by AWS's own word for it, wherever it stands."""
        d = self.driver()
        m = self.create(d)
        expected = [("ResourceExistsException", 400, "conflict", 409), ("ResourceNotFoundException", 400, "not_found", 404),
                    ("AccessDeniedException", 400, "access_denied", 403),
                    ("UnrecognizedClientException", 400, "access_denied", 403),
                    ("ThrottlingException", 400, "throttled", 429), ("TooManyRequestsException", 429, "throttled", 429),
                    ("ValidationException", 400, "invalid_request", 422),
                    ("InvalidParameterException", 400, "invalid_request", 422),
                    ("InternalServiceError", 500, "provider_error", 502),
                    ("DecryptionFailure", 400, "provider_error", 502), ("Unheard", 404, "provider_error", 502),
                    ("ServiceUnavailable", 503, "provider_unavailable", 503)]
        for kind, status, code, http in expected:
            for header in (False, True):
                self.aws.script("GetSecretValue", refuse(kind, status, "ResourceNotFound throttled network", header))
                error = self.fails(d, "resolve", subject=SUBJECT, material=m)
                self.assertEqual((error["code"], error["status"]), (code, http), kind)

    def test_answers_that_are_no_answers(self):
        d = self.driver()
        m = self.create(d)
        failed = "AWS Secrets Manager request failed."
        steps = [(raw(404, "<html>not found</html>"), "provider_error", 502),
                 (raw(200, "{"), "provider_error", 502), (raw(200, ""), "provider_error", 502),
                 (raw(200, "[]"), "provider_error", 502), (raw(200, "{}"), "provider_error", 502),
                 (raw(200, '{"SecretString":"\\ud800"}'), "provider_error", 502),
                 (raw(200, b'{"SecretString":"' + b"x" * (1 << 20) + b'"}'), "provider_error", 502),
                 (raw(302, "", [("Location", f"{self.aws.url}/elsewhere")]), "provider_error", 502),
                 (raw(503, "try later"), "provider_unavailable", 503), (raw(429, ""), "throttled", 429),
                 (raw(403, ""), "access_denied", 403), (awsfake.hang_up, "provider_unavailable", 503)]
        for step, code, status in steps:
            self.aws.script("GetSecretValue", *[step] * (2 if step is awsfake.hang_up else 1))
            error = self.fails(d, "resolve", subject=SUBJECT, material=m)
            self.assertEqual((error["code"], error["status"]), (code, status))
            if code == "provider_error":
                self.assertEqual(error["text"], failed)
        self.assertNotIn(("GET", "/elsewhere"), self.aws.endpoint_calls)
        for answer in (raw(200, "nonsense"), raw(200, '{"SecretList":7}'), raw(200, '{"SecretList":[7,{},{"ARN":1}]}')):
            self.aws.script("ListSecrets", answer)
        self.assertEqual(self.fails(d, "list", pageSize=1)["code"], "provider_error")
        self.assertEqual(self.ok(d, "list", pageSize=1), {"secrets": [], "nextToken": None})
        self.assertEqual(self.ok(d, "list", pageSize=1), {"secrets": [], "nextToken": None})

    def test_a_value_at_the_limit_and_past_it(self):
        d = self.driver()
        largest = "\u0001\"" * 32768
        m = self.create(d, largest)
        self.assertEqual(self.ok(d, "resolve", subject=SUBJECT, material=m), {"value": largest})
        self.aws.script("GetSecretValue", raw(200, json.dumps({"SecretString": "x" * 65537})))
        self.assertEqual(self.fails(d, "resolve", subject=SUBJECT, material=m)["status"], 413)

    def test_binary_secrets(self):
        self.aws.secrets["bin"] = {"ARN": "arn:x", "versions": {"v1": [b"x", {"AWSCURRENT"}]}, "deleted": False}
        d = self.driver()
        m = self.ok(d, "link", subject=SUBJECT, ref="bin")["material"]
        self.assertEqual(self.fails(d, "resolve", subject=SUBJECT, material=m)["code"], "provider_error")
        self.assertIn("SecretString was empty", d.logged())

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        d = self.driver(BERTH_SECRETS_AWS_ENDPOINT=f"http://127.0.0.1:{port}")
        error = self.fails(d, "list", pageSize=1)
        self.assertEqual((error["code"], error["text"]),
                         ("provider_unavailable", "AWS Secrets Manager is unavailable right now."))

    def test_a_certificate_that_nobody_vouches_for(self):
        if not shutil.which("openssl"):
            self.skipTest("needs openssl to make a certificate")
        import ssl
        key, cert = self.dir / "key.pem", self.dir / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "1",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.aws.server.socket = context.wrap_socket(self.aws.server.socket, server_side=True)
        url = self.aws.url.replace("http:", "https:")
        d = self.driver(BERTH_SECRETS_AWS_ENDPOINT=url)
        self.assertEqual(self.fails(d, "list", pageSize=1)["code"], "provider_unavailable")
        self.assertEqual(self.aws.calls, [])
        trusting = self.driver(BERTH_SECRETS_AWS_ENDPOINT=url, AWS_CA_BUNDLE=str(cert))
        self.ok(trusting, "list", pageSize=1)

    def test_endpoints_that_are_refused(self):
        for url in ("http://example.com", "ftp://127.0.0.1", "https://a/b?c", "https://u:p@a/", "https://", "http://127.0.0.1@x/",
                    "http://localhost.example.com/", "https://a/../b"):
            d = self.driver(BERTH_SECRETS_AWS_ENDPOINT=url)
            self.assertEqual(self.fails(d, "list", pageSize=1)["status"], 422, url)

    # environment-runtime 7.178
    def test_incomplete_settings(self):
        d = self.driver(**{name: None for name in SETTINGS})
        missing = ["PAPERCLIP_SECRETS_AWS_REGION or AWS_REGION/AWS_DEFAULT_REGION",
                   "PAPERCLIP_SECRETS_AWS_DEPLOYMENT_ID", "PAPERCLIP_SECRETS_AWS_KMS_KEY_ID"]
        health = self.ok(d, "health")
        self.assertEqual((health["status"], health["message"], health["details"]["missingConfig"]),
                         ("warn", f"AWS Secrets Manager provider is not ready: missing {', '.join(missing)}.", missing))
        self.assertIn("Static AWS access keys", health["warnings"][0])
        error = self.fails(d, "create", subject=SUBJECT, value="x")
        self.assertEqual((error["status"], error["text"]), (
            422, f"AWS Secrets Manager provider requires non-secret config: {', '.join(missing)}"))
        self.assertEqual(self.ok(self.roles(**{name: None for name in SETTINGS}), "health")["warnings"], [])
        self.assertEqual(self.aws.calls, [])

    # environment-runtime 7.158
    def test_vaults_that_cannot_be_used(self):
        d = self.driver()
        cases = [({**VAULT, "provider": "vault"}, "AWS Secrets Manager provider received a mismatched provider vault"),
                 ({**VAULT, "status": "disabled"}, "AWS Secrets Manager provider vault is disabled"),
                 ({**VAULT, "status": "coming_soon"},
                  "AWS Secrets Manager provider vault runtime is locked while coming soon"),
                 ({**VAULT, "config": {}}, "AWS Secrets Manager provider vault requires non-secret config: region"),
                 ({**VAULT, "config": {"region": "evil.example.com/"}}, "Invalid AWS region")]
        for vault, text in cases:
            error = self.fails(d, "list", pageSize=1, vault=vault)
            self.assertEqual((error["status"], error["text"]), (422, text))

    def test_health(self):
        health = self.ok(self.driver(), "health")
        self.assertEqual(health["status"], "warn")  # keys in the environment
        health = self.ok(self.roles(AWS_WEB_IDENTITY_TOKEN_FILE="/x"), "health")
        self.assertEqual((health["status"], health["details"]), (
            "ok", {"credentialSource": "AWS SDK default credential provider chain",
                   "detectedCredentialSources": ["web_identity"], "region": "us-east-1", "prefix": "paperclip",
                   "deploymentId": "prod", "kmsKeyConfigured": True}))
        self.assertEqual(self.aws.calls, [])


class CredentialTest(AwsTest):
    def used(self):
        return [re.search("Credential=([^/]+)/", h["authorization"])[1] for h in self.aws.headers]

    def write(self, name, text):
        path = self.dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    def test_shared_files(self):
        self.aws.keys["AKIDFILE"] = awsfake.Key("file-secret")
        self.aws.keys["AKIDWORK"] = awsfake.Key("work-secret", token="work-token")
        self.write(".aws/credentials", "[default]\naws_access_key_id = AKIDFILE\naws_secret_access_key = file-secret\n")
        self.write(".aws/config", "[profile work]\naws_access_key_id=AKIDWORK\naws_secret_access_key=work-secret\n"
                   "aws_session_token=work-token\n[profile role]\nrole_arn = x\nsource_profile = work\n"
                   "[profile run]\ncredential_process = touch ran\n")
        self.ok(self.roles(), "list", pageSize=1)
        self.ok(self.roles(AWS_PROFILE="work"), "list", pageSize=1)
        self.assertEqual(self.used(), ["AKIDFILE", "AKIDWORK"])
        for profile in ("role", "run", "absent"):
            d = self.roles(AWS_PROFILE=profile)
            error = self.fails(d, "list", pageSize=1)
            self.assertEqual((error["code"], error["text"]), ("access_denied", NO_CREDENTIALS))
            self.assertIn(f"the AWS profile '{profile}' has no access key", d.logged())
        self.write(".aws/credentials", "nonsense secret-looking\n")
        d = self.roles()
        self.assertEqual(self.fails(d, "list", pageSize=1)["code"], "access_denied")
        self.assertIn("AWS shared file credentials: line 1", d.logged())
        self.assertNotIn("secret-looking", d.logged())

    def test_container(self):
        token = self.write("token", "container-secret\n")
        self.aws.container_token = "container-secret"
        d = self.roles(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{self.aws.url}/container",
                       AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=token)
        self.ok(d, "list", pageSize=1)
        self.assertEqual(self.used(), ["ASIATEMP1"])
        self.assertEqual(self.aws.headers[0]["x-amz-security-token"], "session-token-1/+=")
        wrong = self.roles(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{self.aws.url}/container")
        self.assertEqual(self.fails(wrong, "list", pageSize=1)["text"], NO_CREDENTIALS)
        for url in ("http://example.com/creds", "http://127.0.0.1.example.com/creds", "http://localhost@example.com/"):
            far = self.roles(AWS_CONTAINER_CREDENTIALS_FULL_URI=url)
            self.assertEqual(self.fails(far, "list", pageSize=1)["code"], "access_denied")
            self.assertIn("neither https nor the container's own agent", far.logged())

    def test_instance(self):
        d = self.roles(AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=self.aws.url + "/")
        self.ok(d, "list", pageSize=1)
        path = "/latest/meta-data/iam/security-credentials/"
        self.assertEqual(self.aws.endpoint_calls, [("PUT", "/latest/api/token"), ("GET", path),
                                                   ("GET", path + "machine-role")])
        self.assertEqual(self.used(), ["ASIATEMP1"])
        self.aws.script("GET", raw(200, "../../../evil"))
        other = {**VAULT, "config": {"region": "eu-west-1"}}
        self.assertEqual(self.fails(d, "list", pageSize=1, vault=other)["text"], NO_CREDENTIALS)
        self.assertIn("this machine has no role", d.logged())

    def test_web_identity(self):
        env = {"AWS_ROLE_ARN": f"arn:aws:iam::{awsfake.ACCOUNT}:role/berth", "AWS_ENDPOINT_URL_STS": self.aws.url,
               "AWS_WEB_IDENTITY_TOKEN_FILE": self.write("web", "web-token")}
        self.ok(self.roles(**env), "list", pageSize=1)
        self.assertEqual((self.aws.endpoint_calls, self.used()), ([("STS", env["AWS_ROLE_ARN"])], ["ASIATEMP1"]))
        self.aws.web_token = "another"
        d = self.roles(**env)
        self.assertEqual(self.fails(d, "list", pageSize=1)["text"], NO_CREDENTIALS)
        self.assertIn("InvalidIdentityToken", d.logged())
        self.assertNotIn(awsfake.ACCOUNT, d.logged())
        for answer in (raw(200, "<a>"), raw(200, ""), raw(200, "{}"),
                       raw(200, "<AssumeRoleWithWebIdentityResponse/>")):
            self.aws.script("STS", answer)
            self.assertEqual(self.fails(d, "list", pageSize=1)["code"], "access_denied")
        self.aws.script("STS", awsfake.hang_up, awsfake.hang_up)
        self.assertEqual(self.fails(d, "list", pageSize=1)["code"], "provider_unavailable")

    def test_no_source(self):
        error = self.fails(self.roles(), "list", pageSize=1)
        self.assertEqual((error["code"], error["text"]), ("access_denied", NO_CREDENTIALS))

    def container(self, **env):
        return self.roles(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{self.aws.url}/container", **env)

    def test_cached_per_region(self):
        d = self.container()
        for _ in range(3):
            self.ok(d, "list", pageSize=1)
        self.assertEqual(len(self.aws.endpoint_calls), 1)
        self.ok(d, "list", pageSize=1, vault=VAULT)
        self.assertEqual(len(self.aws.endpoint_calls), 2)

    def test_not_cached_when_about_to_expire(self):
        self.aws.lifetime = 50
        d = self.container()
        self.ok(d, "list", pageSize=1)
        self.ok(d, "list", pageSize=1)
        self.assertEqual(len(self.aws.endpoint_calls), 2)
        self.aws.lifetime = -1
        self.assertEqual(self.fails(d, "list", pageSize=1)["code"], "access_denied")

    def test_one_load_for_all_who_ask(self):
        release, began = threading.Event(), threading.Event()
        creds = self.aws.handed_out()

        def slow(handler, _act):
            began.set()
            release.wait(20)
            handler.answer(200, json.dumps(creds))
        self.aws.script("GET", slow)
        d = self.container()
        result = []
        thread = threading.Thread(target=lambda: result.append(d.call("list", pageSize=1, threads=8)))
        thread.start()
        self.assertTrue(began.wait(20))
        tasks = pathlib.Path(f"/proc/{d.process.pid}/task")
        wait_until(lambda: len(list(tasks.iterdir())) > 8, "all who ask")
        release.set()
        thread.join(30)
        self.assertEqual(result, [{"succeeded": 8}])
        self.assertEqual(len(self.aws.endpoint_calls), 1)

    def test_a_failed_load_fails_all_who_wait(self):
        d = self.container()
        self.aws.container_token = "not sent"
        self.assertEqual(self.ok(d, "list", pageSize=1, threads=8), {"succeeded": 0})

    def test_expired_credentials_are_replaced_once(self):
        d = self.container()
        self.ok(d, "list", pageSize=1)
        self.aws.keys["ASIATEMP1"].expired = True
        self.ok(d, "list", pageSize=1)
        self.assertEqual(self.used(), ["ASIATEMP1", "ASIATEMP2"])  # the refused one never counted as a call
        self.aws.script("GET", raw(500, ""))
        self.aws.keys["ASIATEMP2"].expired = True
        error = self.fails(d, "list", pageSize=1)
        self.assertEqual((error["code"], error["text"]), ("access_denied", DENIED))

    def test_expired_keys_of_the_environment(self):
        self.aws.keys["AKIDTEST"].expired = True
        d = self.driver()
        error = self.fails(d, "list", pageSize=1)
        self.assertEqual((error["code"], error["text"]), ("access_denied", DENIED))
        self.assertEqual(self.aws.calls, [])


class SilenceTest(AwsTest):
    """A value is nowhere but in the request and in the answer."""

    def test_nothing_is_told(self):
        d = self.driver()
        mark = "marked-value-7f3a9c"
        m = self.create(d, mark)
        echo = f"1 validation error detected: Value '{mark}' at 'secretString' failed to satisfy constraint"
        for operation in ("CreateSecret", "PutSecretValue", "GetSecretValue"):
            for step in (refuse("ValidationException", message=echo), raw(200, json.dumps({"Value": mark})),
                         raw(500, mark), raw(400, json.dumps({"__type": "X", "message": mark})), lose_answer):
                self.aws.script(operation, step)
        self.aws.script("GetSecretValue", lose_answer)  # reading is tried twice
        told = []
        for _ in range(5):
            told.append(self.fails(d, "create", subject={**SUBJECT, "secretKey": f"k{len(told)}"}, value=mark))
            told.append(self.fails(d, "create_version", subject=SUBJECT, material=m, value=mark))
            told.append(self.fails(d, "resolve", subject=SUBJECT, material=m))
        pid = d.process.pid
        outside = d.logged() + json.dumps(told)
        for name in ("cmdline", "environ"):
            outside += pathlib.Path(f"/proc/{pid}/{name}").read_text(errors="replace")
        self.assertNotIn(mark, outside)
        self.assertNotIn(STATIC["AWS_SECRET_ACCESS_KEY"], d.logged())
        self.assertIn("ValidationException", d.logged())


if __name__ == "__main__":
    unittest.main()
