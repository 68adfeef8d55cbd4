"""Crash at every step of making, rotating and removing secrets, of environments that bring their own, and of changing
the master key. The vault outside is a directory (src/secret/vault_fake.c): each value is a file named by company, key
and version, so record and world can be compared from outside. Whether everything still opens is asked by changing the
master key once more, which opens every version there is.
"""

import base64
import hashlib
import json
import os
import re
import unittest

from crashworld import Died
from test_crash_walk import SECRETS, Operation, WalkTest, require

# slow: several hundred daemons
# share 6: 15 s of processor time
OPERATIONS = []
SSH = {"host": "h", "username": "u", "remoteWorkspacePath": "/w"}
FILE = re.compile(r"^[0-9a-f-]{36}\.(.+)\.(\d+)$")


def outside(w):
    """What the vault holds: (key, version)."""
    found = filter(None, map(FILE.match, os.listdir(w.path)))
    return {(m[1], int(m[2])) for m in found}


def recorded(w):
    return {(row["key"], row["version"]) for row in w.sql(
        "SELECT COALESCE(s.original_key, s.key) AS key, v.version FROM company_secrets s "
        "JOIN company_secret_versions v ON v.secret_id = s.id WHERE s.provider = 'vault'")}


def key_id(path):
    key = base64.b64decode(path.read_text())
    return hashlib.blake2b(b"berth master key id", digest_size=16, key=key).hexdigest()[:16]


class SecretOperation(Operation, base=True):
    provider = "local_encrypted"

    def __init_subclass__(cls, base=False):
        if not base:
            OPERATIONS.append(cls)

    def stage(self, w):
        w.facts["company"] = w.company()

    def create(self, w, name="key", value="v1", done="made"):
        return w.do(done, "POST", f"/api/companies/{w.facts['company']}/secrets",
                    {"name": name, "value": value, "provider": self.provider})

    def secrets(self, w):
        return {s["name"]: s for s in w.expect(200, "GET", f"/api/companies/{w.facts['company']}/secrets")}

    def agree(self, w):
        w.settle()
        require(not w.sql("SELECT id FROM company_secrets WHERE reserved_by IS NOT NULL"), "a reservation is left")
        require(not w.sql("SELECT id FROM company_secret_versions WHERE reserved_by IS NOT NULL"),
                "a reserved version is left")
        require(outside(w) == recorded(w), f"the vault has {outside(w)}, the record {recorded(w)}")
        w.expect(200, "POST", "/api/instance/secrets/rekey", {})
        key = w.daemon.data / "secrets/master.key"
        require(not key.with_suffix(".key.next").exists(), "the change of the key was not finished")
        for row in w.sql("SELECT v.material FROM company_secret_versions v JOIN company_secrets s "
                         "ON s.id = v.secret_id WHERE s.provider = 'local_encrypted'"):
            require(json.loads(row["material"])["key"] == key_id(key), "sealed with another key")


class FirstStart(SecretOperation):
    stage = Operation.stage

    def act(self, w):
        w.expect(200, "GET", "/api/health")

    def check(self, w):
        w.facts["company"] = w.company()
        self.create(w)
        self.agree(w)


class Create(SecretOperation):
    def act(self, w):
        self.create(w)

    def check(self, w):
        found = self.secrets(w)
        require("made" not in w.done or found["key"]["id"] == w.done["made"]["id"], found)
        self.agree(w)
        if not found:
            self.act(w)  # the name is free again (H30)
        self.agree(w)


class CreateOutside(Create):
    provider = "vault"


class CreateAnswerLost(CreateOutside):
    """The vault made it, but nobody heard: it is taken back."""

    def act(self, w):
        w.tell("lose-create")
        w.expect(503, "POST", f"/api/companies/{w.facts['company']}/secrets",
                 {"name": "key", "value": "v", "provider": "vault"})

    def check(self, w):
        self.agree(w)
        require(not outside(w), outside(w))
        w.untell()
        self.create(w)
        self.agree(w)


class CreateCannotUndo(CreateAnswerLost):
    """And it cannot be taken back at once: the sweeper goes on."""

    def act(self, w):
        w.tell("fail-remove")
        super().act(w)
        w.untell("fail-remove")


class Rotate(SecretOperation):
    def stage(self, w):
        super().stage(w)
        w.facts["secret"] = self.create(w)["id"]

    def act(self, w):
        w.do("rotated", "POST", f"/api/secrets/{w.facts['secret']}/rotate", {"value": "v2"})

    def check(self, w):
        version = self.secrets(w)["key"]["latestVersion"]
        require(version == 2 if "rotated" in w.done else version in (1, 2), version)
        self.agree(w)
        self.act(w)
        self.agree(w)
        states = [v["status"] for v in w.expect(200, "GET", f"/api/secrets/{w.facts['secret']}/versions")]
        require(states[0] == "current" and set(states[1:]) == {"previous"}, states)


class RotateOutside(Rotate):
    provider = "vault"


class RotateAnswerLost(RotateOutside):
    def act(self, w):
        w.tell("lose-version")
        w.expect(503, "POST", f"/api/secrets/{w.facts['secret']}/rotate", {"value": "v2"})

    def check(self, w):
        self.agree(w)
        require(self.secrets(w)["key"]["latestVersion"] == 1, "not taken back")
        w.untell()
        Rotate.act(self, w)
        self.agree(w)


class HealVersion(RotateOutside):
    """The stage is what a crash in a rotation leaves; the operation is the start that heals it."""

    point = "vault_fake.version.after"

    def stage(self, w):
        super().stage(w)
        w.daemon.stop()
        w.daemon.env["BERTH_CRASH_AT"] = self.point
        require(w.start(), "crashed too early")
        try:
            Rotate.act(self, w)
        except Died:
            pass
        del w.daemon.env["BERTH_CRASH_AT"]
        require(w.crashed(), f"{self.point} was not reached")

    def act(self, w):
        pass

    def check(self, w):
        self.agree(w)
        require(self.secrets(w)["key"]["latestVersion"] == 1, "nobody was told of the second")
        Rotate.act(self, w)
        self.agree(w)


class HealRecordedVersion(HealVersion):
    point = "secret.rotate_record.after"


class Update(Rotate):
    def act(self, w):
        w.do("changed", "PATCH", f"/api/secrets/{w.facts['secret']}", {"description": "new"})

    def check(self, w):
        text = self.secrets(w)["key"]["description"]
        require(text == "new" or "changed" not in w.done, text)
        self.agree(w)


class Remove(Rotate):
    def act(self, w):
        w.do("removed", "DELETE", f"/api/secrets/{w.facts['secret']}")

    def check(self, w):
        self.agree(w)
        found = self.secrets(w)
        require(not found or "removed" not in w.done, found)
        if found:
            self.act(w)
        self.agree(w)
        self.create(w)
        require(not outside(w) or self.provider == "vault", outside(w))


class RemoveOutside(Remove):
    provider = "vault"


class RemoveFails(RemoveOutside):
    """The vault says no; the sweeper goes on until it is gone, at the latest after a restart."""

    def act(self, w):
        w.tell("fail-remove")
        w.expect(503, "DELETE", f"/api/secrets/{w.facts['secret']}")
        require(not self.secrets(w), "still listed")

    def check(self, w):
        self.agree(w)
        if self.secrets(w):
            w.do("removed", "DELETE", f"/api/secrets/{w.facts['secret']}")
        require(not outside(w), outside(w))


class Rekey(SecretOperation):
    """More versions than one batch holds."""

    def stage(self, w):
        super().stage(w)
        for i in range(40):
            self.create(w, name=f"key {i}", value=f"value {i}")

    def act(self, w):
        w.do("rekeyed", "POST", "/api/instance/secrets/rekey", {})

    def check(self, w):
        require(len(self.secrets(w)) == 40, "secrets were lost")
        self.agree(w)


class EnvironmentKey(SecretOperation):
    """An environment that brings its key: both, bound, or neither (H17)."""

    def act(self, w):
        w.do("env", "POST", f"/api/companies/{w.facts['company']}/environments",
             {"name": "box", "driver": "ssh", "config": {**SSH, "privateKey": "PEM"}})

    def environments(self, w):
        return w.expect(200, "GET", f"/api/companies/{w.facts['company']}/environments?driver=ssh")

    def whole(self, w):
        self.agree(w)
        refs = {e["config"]["privateKeySecretRef"]["secretId"] for e in self.environments(w)}
        require(refs == {s["id"] for s in self.secrets(w).values()}, "environments and their keys differ")
        bound = {row["secret_id"] for row in w.sql("SELECT secret_id FROM company_secret_bindings")}
        require(refs == bound, "a key without its binding")

    def check(self, w):
        self.whole(w)
        require("env" not in w.done or self.environments(w), "the environment was lost")
        self.act(w)
        self.whole(w)


class EnvironmentKeyOutside(EnvironmentKey):
    provider = "vault"
    env = {"BERTH_SECRETS_PROVIDER": "vault"}


class EnvironmentKeyReplaced(EnvironmentKey):
    def stage(self, w):
        super().stage(w)
        super().act(w)
        w.facts["env"] = w.done["env"]["id"]

    def act(self, w):
        w.do("replaced", "PATCH", f"/api/environments/{w.facts['env']}", {"config": {"privateKey": "NEW"}})

    def check(self, w):
        self.whole(w)
        self.act(w)
        self.whole(w)


class EnvironmentKeyReplacedOutside(EnvironmentKeyReplaced):
    env = {"BERTH_SECRETS_PROVIDER": "vault"}


class EnvironmentKeyRemoved(EnvironmentKeyReplaced):
    def act(self, w):
        w.do("deleted", "DELETE", f"/api/environments/{w.facts['env']}")

    def check(self, w):
        self.whole(w)
        if self.environments(w):
            require("deleted" not in w.done, "told that it is gone")
            self.act(w)
        self.whole(w)
        require(not self.secrets(w), "the key outlived its environment")


class EnvironmentKeyOrphaned(EnvironmentKeyRemoved):
    """What an older daemon left behind: a key whose environment is gone."""

    def stage(self, w):
        super().stage(w)
        w.daemon.stop()
        w.edit("DELETE FROM company_secret_bindings")
        w.edit("DELETE FROM environments WHERE driver = 'ssh'")

    def act(self, w):
        w.settle()

    def check(self, w):
        self.whole(w)
        require(not self.secrets(w), "the key is still there")


class Vault(SecretOperation):
    """Vaults are rows only: made, changed, checked, switched off."""

    def act(self, w):
        vault = w.do("vault", "POST", f"/api/companies/{w.facts['company']}/secret-provider-configs",
                     {"provider": "local_encrypted", "displayName": "here", "config": {}})["id"]
        w.do("default", "POST", f"/api/secret-provider-configs/{vault}/default", {})
        w.do("health", "POST", f"/api/secret-provider-configs/{vault}/health", {})

    def check(self, w):
        vaults = w.expect(200, "GET", f"/api/companies/{w.facts['company']}/secret-provider-configs")
        require("vault" not in w.done or vaults, "the vault was lost")
        require("default" not in w.done or vaults[0]["isDefault"], "the default was lost")
        self.act(w)
        self.agree(w)


class SecretWalk(WalkTest):
    def test_every_point_of_every_operation(self):
        # Importing is walked where there is a vault that can list: test_vault.c, and the tests of AWS.
        listed = {p for p in self.listed() if p.startswith(SECRETS) and not p.startswith("vault.import.")}
        self.walk(OPERATIONS, listed)


if __name__ == "__main__":
    unittest.main()
