"""Secrets and vaults over HTTP and on the command line: who may, what is answered, what is recorded, and that no
value is found anywhere it does not belong."""
# threads: rotations and resolutions at once

import base64
import json
import pathlib
import unittest

from berthtest import BerthTest

SSH = {"host": "ssh.example.test", "username": "deploy", "remoteWorkspacePath": "/srv/work"}
MARK = "marked-value-7f3a"


class SecretsTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.secrets = f"/api/companies/{self.acme['id']}/secrets"
        self.vaults = f"/api/companies/{self.acme['id']}/secret-provider-configs"
        self.providers = f"/api/companies/{self.acme['id']}/secret-providers"

    def create(self, name="API_KEY", value=MARK, **body):
        return self.ok("POST", self.secrets, {"name": name, "value": value, **body}, status=201)

    def vault(self, **body):
        body = {"provider": "aws_secrets_manager", "displayName": "prod", "config": {"region": "eu-central-1"}, **body}
        return self.ok("POST", self.vaults, body, status=201)

    def activity(self, action=None):
        rows = self.operator("GET", f"/api/companies/{self.acme['id']}/activity?limit=500")
        return [row for row in rows if action is None or row["action"] == action]

    def assert_issue(self, answer, contains):
        self.assert_error(answer, 400, "Validation error")
        self.assertIn(contains, " ".join(issue["message"] for issue in answer.json["details"]))

    def everything(self):
        """What is stored and logged, as one text."""
        files = [p for p in self.daemon.data.rglob("*") if p.is_file() and p.name != "master.key"]
        return b"".join(p.read_bytes() for p in files) + self.daemon.log().encode()


class LifeTest(SecretsTest):
    def test_shape(self):
        made = self.create("My Key!", description="d")
        self.assertEqual(made["key"], "my-key")
        self.assertEqual({k: made[k] for k in ("name", "provider", "status", "managedMode", "externalRef",
                                               "latestVersion", "createdByUserId", "referenceCount", "deletedAt")},
                         {"name": "My Key!", "provider": "local_encrypted", "status": "active",
                          "managedMode": "paperclip_managed", "externalRef": None, "latestVersion": 1,
                          "createdByUserId": "local-board", "referenceCount": 0, "deletedAt": None})
        self.assertEqual(self.ok("GET", f"/api/secrets/{made['id']}"), made)
        self.assertEqual(self.ok("GET", self.secrets), [made])

    # http-api 8.66
    def test_names_and_keys_are_unique(self):
        self.create("one", key="k1")
        self.assert_error(self.req("POST", self.secrets, {"name": "one", "value": "x"}), 409,
                          "Secret already exists: one")
        self.assert_error(self.req("POST", self.secrets, {"name": "two", "key": "K1", "value": "x"}), 409,
                          "Secret key already exists: k1")

    # environment-runtime 7.184; http-api 8.51
    def test_rules_of_the_body(self):
        for body, text in (({"name": "x", "value": "v", "externalRef": "r"}, "Managed secrets cannot set externalRef"),
                           ({"name": "x"}, "Managed secrets require value"),
                           ({"name": "x", "value": "  "}, "Managed secrets require value"),
                           ({"name": "x", "managedMode": "external_reference"},
                            "External reference secrets require externalRef"),
                           ({"name": "x", "value": "v", "key": "a b"}, "Invalid"),
                           ({"value": "v"}, "Required")):
            self.assert_issue(self.req("POST", self.secrets, body), text)
        self.assert_error(self.req("POST", self.secrets, {"name": "x", "managedMode": "external_reference",
                                                          "externalRef": "r"}), 400,
                          "local_encrypted does not support external reference secrets")
        self.assert_status(self.req("POST", self.secrets, {"name": "x", "value": "v" * 70000}), 413)
        self.assertEqual(self.ok("GET", self.secrets), [])

    # http-api 8.67
    def test_rotating(self):
        made = self.create()
        turned = self.ok("POST", f"/api/secrets/{made['id']}/rotate", {"value": "next"})
        self.assertEqual(turned["latestVersion"], 2)
        versions = self.ok("GET", f"/api/secrets/{made['id']}/versions")
        self.assertEqual([(v["version"], v["status"]) for v in versions], [(2, "current"), (1, "previous")])
        self.assertNotIn("material", versions[0])
        self.ok("PATCH", f"/api/secrets/{made['id']}", {"status": "disabled"})
        self.assert_error(self.req("POST", f"/api/secrets/{made['id']}/rotate", {"value": "x"}), 422,
                          "Cannot rotate a non-active secret")
        self.assertEqual([row["action"] for row in reversed(self.activity())][-3:],
                         ["secret.created", "secret.rotated", "secret.updated"])

    # environment-runtime 7.193, 7.194; http-api 8.62, 8.63
    def test_references_are_not_retargeted_and_deleted_twice(self):
        made = self.ok("POST", self.secrets, {"name": "far", "provider": "vault", "externalRef": "kv/x",
                                              "managedMode": "external_reference"}, status=201)
        before = len(self.activity())
        self.assert_error(self.req("PATCH", f"/api/secrets/{made['id']}", {"externalRef": "kv/y"}), 422,
                          "External reference secrets cannot be retargeted through generic update")
        self.assertEqual(len(self.activity()), before)
        self.ok("PATCH", f"/api/secrets/{made['id']}", {"status": "deleted"})
        self.assertEqual(self.ok("GET", self.secrets), [])
        self.assert_error(self.req("PATCH", f"/api/secrets/{made['id']}", {"name": "x"}), 404, "Secret not found")
        self.assertEqual(self.ok("DELETE", f"/api/secrets/{made['id']}"), {"ok": True})
        self.assertEqual(len(self.activity("secret.deleted")), 1)
        self.assert_error(self.req("DELETE", f"/api/secrets/{made['id']}"), 404, "Secret not found")

    def test_a_secret_in_use_is_kept(self):
        env = self.environment(self.acme, driver="ssh", name="box", config={**SSH, "privateKey": MARK})
        key = env["config"]["privateKeySecretRef"]["secretId"]
        answer = self.req("DELETE", f"/api/secrets/{key}")
        self.assert_error(answer, 409, contains="Secret is in use")
        self.assertEqual(answer.json["details"], {"code": "secret_in_use", "referenceCount": 1})
        usage = self.ok("GET", f"/api/secrets/{key}/usage")
        self.assertEqual([b["target"] for b in usage["bindings"]],
                         [{"type": "environment", "id": env["id"], "label": "box", "status": "active",
                           "href": f"/environments/{env['id']}"}])
        self.assertEqual(self.ok("DELETE", f"/api/secrets/{key}?force=true"), {"ok": True})


class EnvironmentKeyTest(SecretsTest):
    # environment-runtime 7.73; http-api 8.16
    def test_an_inline_key_becomes_a_secret(self):
        env = self.environment(self.acme, driver="ssh", name="My Box", config={**SSH, "privateKey": f"  {MARK}\n"})
        self.assertIsNone(env["config"]["privateKey"])
        secret = self.ok("GET", self.secrets)[0]
        self.assertRegex(secret["name"], r"^environment-ssh-my-box-private-key-[0-9a-f]{8}$")
        self.assertEqual(env["config"]["privateKeySecretRef"],
                         {"type": "secret_ref", "secretId": secret["id"], "version": "latest"})
        self.assertEqual((secret["provider"], secret["referenceCount"], secret["description"]),
                         ("local_encrypted", 1, "Secret for My Box private-key."))
        self.assertNotIn(MARK.encode(), self.everything())

    # What Paperclip could not do (H15): edit a configuration that has a key.
    def test_editing_keeps_the_key(self):
        env = self.environment(self.acme, driver="ssh", config={**SSH, "privateKey": MARK})
        changed = self.ok("PATCH", f"/api/environments/{env['id']}", {"config": {"port": 2222}})
        self.assertEqual(changed["config"]["privateKeySecretRef"], env["config"]["privateKeySecretRef"])
        self.ok("DELETE", f"/api/environments/{env['id']}")
        self.assertEqual(self.ok("GET", self.secrets), [])

    def test_an_unknown_reference(self):
        ref = {"type": "secret_ref", "secretId": "00000000-0000-4000-8000-000000000000"}
        self.assert_error(self.req("POST", f"/api/companies/{self.acme['id']}/environments",
                                   {"name": "x", "driver": "ssh", "config": {**SSH, "privateKeySecretRef": ref}}),
                          404, "Secret not found")
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}/environments?driver=ssh"), [])


class ConfiguredProviderTest(SecretsTest):
    daemon_env = {"PAPERCLIP_SECRETS_PROVIDER": "gcp_secret_manager"}

    def test_the_setting_decides(self):
        self.assert_error(self.req("POST", self.secrets, {"name": "x", "value": "v"}), 422,
                          "gcp_secret_manager provider is not configured for Paperclip-managed values")


class VaultTest(SecretsTest):
    # environment-runtime 7.185, 7.190; http-api 8.52, 8.53, 8.58
    def test_who_may(self):
        agent = self.agent(self.acme)
        stranger = self.board_user(self.company("Other"))
        made, vault = self.create(), self.vault()
        before = len(self.activity())
        calls = [("GET", self.secrets, None), ("POST", self.secrets, {}), ("GET", self.vaults, None),
                 ("POST", self.vaults, {}), ("GET", self.providers, None), ("GET", self.providers + "/health", None),
                 ("POST", self.secrets + "/remote-import/preview", {}), ("POST", self.secrets + "/remote-import", {}),
                 ("POST", self.secrets + "/import-sealed", {}),
                 ("GET", f"/api/secrets/{made['id']}", None), ("PATCH", f"/api/secrets/{made['id']}", {}),
                 ("DELETE", f"/api/secrets/{made['id']}", None), ("POST", f"/api/secrets/{made['id']}/rotate", {}),
                 ("GET", f"/api/secrets/{made['id']}/usage", None),
                 ("GET", f"/api/secrets/{made['id']}/versions", None),
                 ("GET", f"/api/secrets/{made['id']}/access-events", None)]
        calls += [(method, f"/api/secret-provider-configs/{vault['id']}{path}", body) for method, path, body in (
            ("GET", "", None), ("PATCH", "", {}), ("DELETE", "", None), ("POST", "/default", {}), ("POST", "/health", {}))]
        for method, path, body in calls:
            with self.subTest(f"{method} {path}"):
                self.assert_error(self.req(method, path, body, token=agent["token"]), 403, "Board access required")
                self.assert_error(self.req(method, path, body, token=stranger["token"]), 403,
                                  "User does not have access to this company")
        for token in (agent["token"], stranger["token"]):
            self.assert_status(self.req("POST", "/api/instance/secrets/rekey", {}, token=token), 403)
        self.assertEqual(len(self.activity()), before)

    # environment-runtime 7.186; http-api 8.54
    def test_credentials_do_not_belong_there(self):
        for key in ("accessKeyId", "secret_access_key", "Token", "PASSWORD", "service-account-json", "keyFilePath"):
            answer = self.req("POST", self.vaults, {"provider": "aws_secrets_manager", "displayName": "x",
                                                    "config": {"region": "us-east-1", key: "x"}})
            self.assert_issue(answer, f"Provider vault config cannot persist sensitive field: {key}")
        self.assertEqual(self.ok("GET", self.vaults), [])

    # environment-runtime 7.187; http-api 8.55
    def test_some_are_coming_soon(self):
        for provider in ("vault", "gcp_secret_manager"):
            self.assert_issue(self.req("POST", self.vaults, {"provider": provider, "displayName": "x",
                                                             "status": "ready", "config": {}}),
                              f"{provider} provider vaults are locked while coming soon")
        made = self.vault(provider="vault", config={"address": "https://Vault.example.test:8200/"})
        self.assertEqual((made["status"], made["config"]), ("coming_soon", {"address": "https://vault.example.test:8200"}))

    # environment-runtime 7.188; http-api 8.56
    def test_an_address_is_an_origin(self):
        for address in ("https://u:p@h", "https://h/?q=1", "https://h/#f", "https://h/path", "ftp://h", "h"):
            body = {"provider": "vault", "displayName": "x", "config": {"address": address}}
            self.assert_issue(self.req("POST", self.vaults, body), "origin-only")
            # before anything is looked up
            self.assert_issue(self.req("PATCH", "/api/secret-provider-configs/00000000-0000-4000-8000-000000000000",
                                       {"config": {"address": address}}), "origin-only")

    # environment-runtime 7.189; http-api 8.57
    def test_what_is_recorded(self):
        made = self.vault(isDefault=True)
        entry = self.activity("secret_provider_config.created")[0]
        self.assertEqual(entry["details"], {"provider": "aws_secrets_manager", "displayName": "prod",
                                            "status": "ready", "isDefault": True})
        self.assertEqual(entry["entityId"], made["id"])

    def test_life(self):
        first, second = self.vault(isDefault=True), self.vault(displayName="second")
        path = f"/api/secret-provider-configs/{second['id']}"
        self.assertTrue(self.ok("POST", path + "/default", {})["isDefault"])
        self.assertFalse(self.ok("GET", f"/api/secret-provider-configs/{first['id']}")["isDefault"])
        disabled = self.ok("DELETE", path)
        self.assertEqual((disabled["status"], disabled["isDefault"]), ("disabled", False))
        again = self.ok("DELETE", path)
        self.assertEqual(again["disabledAt"], disabled["disabledAt"])
        self.assert_error(self.req("POST", path + "/default", {}), 422,
                          "Only ready or warning provider vaults can be default")
        health = self.ok("POST", path + "/health", {})
        self.assertEqual((health["status"], health["message"], health["details"]["code"]),
                         ("disabled", "Provider vault is disabled.", "disabled"))
        self.assertIsNone(self.ok("PATCH", path, {"status": "ready"})["disabledAt"])
        answer = self.req("PATCH", path, {"config": {"region": "nowhere"}})
        self.assert_error(answer, 422, "Invalid provider vault config")
        self.assert_error(self.req("GET", "/api/secret-provider-configs/00000000-0000-4000-8000-000000000000"), 404,
                          "Provider vault not found")
        soon = self.vault(provider="gcp_secret_manager", config={})
        health = self.ok("POST", f"/api/secret-provider-configs/{soon['id']}/health", {})
        self.assertEqual((health["status"], health["message"], health["details"]["code"]),
                         ("coming_soon", "Provider vault runtime is locked while coming soon.", "runtime_locked"))
        here = self.vault(provider="local_encrypted", config={})
        health = self.ok("POST", f"/api/secret-provider-configs/{here['id']}/health", {})
        self.assertEqual((health["status"], health["details"]["code"]), ("ready", "provider_ready"))
        self.assertEqual(self.ok("GET", f"/api/secret-provider-configs/{here['id']}")["healthStatus"], "ready")
        answer = self.req("POST", self.secrets + "/remote-import/preview", {"providerConfigId": here["id"]})
        self.assert_error(answer, 422, "local_encrypted provider does not support remote import listing")

    # environment-runtime 7.181
    def test_descriptors(self):
        found = {p["id"]: p for p in self.ok("GET", self.providers)}
        self.assertEqual(found["local_encrypted"], {
            "id": "local_encrypted", "label": "Local encrypted (default)", "requiresExternalRef": False,
            "supportsManagedValues": True, "supportsExternalReferences": False, "configured": True})
        aws = found["aws_secrets_manager"]
        self.assertEqual((aws["supportsManagedValues"], aws["supportsExternalReferences"], aws["configured"]),
                         (True, True, False))

    # environment-runtime 7.182, 7.183; http-api 8.50
    def test_health(self):
        def local():
            return next(p for p in self.ok("GET", self.providers + "/health")["providers"]
                        if p["provider"] == "local_encrypted")

        key = self.daemon.data / "secrets/master.key"
        self.assertEqual(local()["status"], "ok")
        key.chmod(0o644)
        found = local()
        self.assertEqual((found["status"], found["details"]), ("warn", {"keySource": "file", "keyFilePath": str(key)}))
        self.assertIn("chmod 600", found["warnings"][0])
        self.assertIn("database", " ".join(found["backupGuidance"]))
        key.write_text("short")
        self.assertEqual((local()["status"], local()["message"]), ("error", f"Invalid key material in {key}"))
        key.unlink()
        self.assertEqual((local()["status"], local()["message"]), ("warn", f"Secrets key file does not exist yet: {key}"))


class KeyTest(SecretsTest):
    key = base64.b64encode(bytes(range(32))).decode()

    def health(self):
        return next(p for p in self.ok("GET", self.providers + "/health")["providers"]
                    if p["provider"] == "local_encrypted")

    def test_a_key_in_the_environment(self):
        self.daemon.env["BERTH_SECRETS_KEY"] = self.key
        self.daemon.restart()
        self.assertEqual((self.health()["status"], self.health()["message"], self.health()["details"]),
                         ("ok", "Local encrypted provider is using BERTH_SECRETS_KEY", {"keySource": "env"}))
        self.create()
        environ = pathlib.Path(f"/proc/{self.daemon.process.pid}/environ").read_bytes()
        self.assertNotIn(self.key.encode(), environ)
        answer = self.req("POST", "/api/instance/secrets/rekey", {})
        self.assert_error(answer, 422, contains="BERTH_SECRETS_OLD_KEY")
        # the way it is changed then
        self.daemon.env.update(BERTH_SECRETS_KEY="ab" * 32, BERTH_SECRETS_OLD_KEY=self.key)
        self.daemon.restart()
        del self.daemon.env["BERTH_SECRETS_OLD_KEY"]
        self.daemon.restart()
        self.assertEqual(self.rotate_all(), 200)

    def rotate_all(self):
        """Everything that is sealed opens: a file of our own takes over from the key of the environment."""
        self.daemon.env["BERTH_SECRETS_OLD_KEY"] = self.daemon.env.pop("BERTH_SECRETS_KEY")
        self.daemon.restart()
        return self.req("POST", "/api/instance/secrets/rekey", {}).status

    def test_a_bad_key(self):
        self.daemon.env["PAPERCLIP_SECRETS_MASTER_KEY"] = "too short"
        self.daemon.restart()
        text = ("Invalid PAPERCLIP_SECRETS_MASTER_KEY (expected 32-byte base64, 64-char hex, or raw 32-char string)")
        self.assertEqual((self.health()["status"], self.health()["message"]), ("error", text))
        self.assert_error(self.req("POST", self.secrets, {"name": "x", "value": "v"}), 400, text)

    def test_a_credential(self):
        credentials = self.temp_dir()
        (credentials / "berth-secrets-key").write_text(self.key)
        self.daemon.env["CREDENTIALS_DIRECTORY"] = str(credentials)
        self.daemon.restart()
        self.assertEqual(self.health()["details"]["keyFilePath"], str(credentials / "berth-secrets-key"))
        self.create()

    # Wrong key, missing key: a clear error that names the secret, and nothing lost.
    def test_the_wrong_key(self):
        self.create()
        key = self.daemon.data / "secrets/master.key"
        right = key.read_text()
        key.write_text(self.key)
        self.daemon.restart()
        answer = self.req("POST", "/api/instance/secrets/rekey", {})
        self.assert_error(answer, 422, contains='Secret "API_KEY" (version 1) cannot be opened: it was sealed with')
        self.daemon.stop()
        key.with_suffix(".key.next").unlink()
        key.unlink()
        self.daemon.start()
        self.assertFalse(key.exists(), "a key that would open nothing was made")
        self.assert_error(self.req("POST", self.secrets, {"name": "x", "value": "v"}), 422, contains="is missing")
        key.write_text(right)
        self.daemon.restart()
        self.ok("POST", "/api/instance/secrets/rekey", {})

    def test_a_flipped_bit(self):
        self.create()
        self.daemon.stop()
        material = json.loads(self.daemon.sql("SELECT material FROM company_secret_versions")[0]["material"])
        box = bytearray(base64.b64decode(material["box"]))
        box[0] ^= 1
        material["box"] = base64.b64encode(box).decode()
        with self.daemon.record() as db:
            db.execute("UPDATE company_secret_versions SET material = ?", (json.dumps(material),))
        self.daemon.start()
        answer = self.req("POST", "/api/instance/secrets/rekey", {})
        self.assert_error(answer, 422, contains='Secret "API_KEY" (version 1) cannot be opened: it is damaged')


class CommandTest(SecretsTest):
    def run_cli(self, *args, status=0, **more):
        done = self.cli(*args, **more)
        self.assertEqual(done[0], status, done)
        return done[1]

    def test_secrets(self):
        self.run_cli("secret", "create", "DB", "--description", "d", stdin=MARK + "\n")
        self.assertIn("the value is empty", self.cli("secret", "create", "NONE", stdin="\n")[2])
        self.assertIn("DB", self.run_cli("secret", "list"))
        self.assertIn("local_encrypted", self.run_cli("secret", "show", "db"))
        file = self.temp_dir() / "value"
        file.write_text("other")
        self.run_cli("secret", "rotate", "DB", "--file", file)
        self.assertEqual(len(json.loads(self.run_cli("secret", "versions", "DB", "--json"))), 2)
        self.run_cli("secret", "update", "DB", "--name", "DB2")
        self.run_cli("secret", "disable", "DB2")
        self.assertEqual(json.loads(self.run_cli("secret", "show", "DB2", "--json"))["status"], "disabled")
        self.run_cli("secret", "enable", "DB2")
        self.assertIn("nobody", self.run_cli("secret", "usage", "DB2"))
        self.assertIn("never", self.run_cli("secret", "events", "DB2"))
        self.run_cli("secret", "rekey")
        self.run_cli("secret", "delete", "DB2", "--yes")
        self.assertIn("no secrets", self.run_cli("secret", "list"))
        self.assertNotIn(MARK.encode(), self.everything())

    def test_vaults(self):
        self.run_cli("vault", "create", "aws_secrets_manager", "prod", "-o", "region=us-east-1", "--default")
        self.assertIn("prod", self.run_cli("vault", "list"))
        self.run_cli("vault", "update", "prod", "--name", "live")
        self.assertIn("live", self.run_cli("vault", "show", "live"))
        self.run_cli("vault", "default", "live")
        self.run_cli("vault", "disable", "live")
        self.assertIn("disabled", self.run_cli("vault", "health", "live"))
        self.assertIn("local_encrypted", self.run_cli("vault", "health"))
        self.run_cli("vault", "preview", "live", status=1)
        self.run_cli("vault", "import", "live", "arn:x", status=1)

    def test_linking(self):
        self.run_cli("secret", "link", "far", "kv/x", "--provider", "vault")
        self.assertEqual(json.loads(self.run_cli("secret", "show", "far", "--json"))["externalRef"], "kv/x")

    @unittest.skipUnless(" aes " in pathlib.Path("/proc/cpuinfo").read_text(), "no AES instructions")
    def test_bringing_over_from_paperclip(self):
        """The bytes are test case 14 of the specification of GCM: key and text all zero."""
        good = {"scheme": "local_encrypted_v1", "iv": "AAAAAAAAAAAAAAAA", "tag": "0NHIp5mZa/AmW5i11Iq5GQ==",
                "ciphertext": "zqdAPU1ga24HTsXTuvOdGA=="}
        rows = [{"name": "good", "key": "k", "description": "d", "material": good},
                {"name": "bad", "material": {**good, "iv": "BAAAAAAAAAAAAAAA"}},
                {"name": "foreign", "material": {}}, {"name": "good", "material": good}]
        self.daemon.env["BERTH_SECRETS_OLD_KEY"] = "00" * 32
        self.daemon.restart()
        out = self.run_cli("secret", "import", "-", stdin="\n".join(map(json.dumps, rows)), status=1)
        self.assertEqual([line.split(":")[1].strip() for line in out.splitlines()],
                         ["imported", "error", "error", "error"], out)
        self.assertEqual([(s["name"], s["key"], s["description"]) for s in self.ok("GET", self.secrets)],
                         [("good", "k", "d")])
        del self.daemon.env["BERTH_SECRETS_OLD_KEY"]  # sealed anew: Paperclip's key is not needed any more
        self.daemon.restart()
        self.ok("POST", "/api/instance/secrets/rekey", {})


if __name__ == "__main__":
    unittest.main()
