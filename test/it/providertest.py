"""Tests of leases through plugins: the provider of test/workers/provider.py, installed as a plugin, and both
sides of what it did: the calls that it got and the sandboxes that it has.
"""

import contextlib
import json
import os
import pathlib
import shutil
import unittest

from berthtest import SOURCE, BerthTest, ident, wait_until

KEY = "acme.provider"
TIMES = "settle=1,initialize=5000,drain=200,shutdown=1000,leave=200,term=200,kill=1000,backoff=1,backoff_max=5,crash_budget=1000"
RUN = "33333333-3333-4333-8333-333333333333"
SECRET_SCHEMA = {"type": "object", "properties": {"image": {"type": "string"},
                                                  "apiKey": {"type": "string", "format": "secret-ref"}}}


def manifest(key=KEY, **more):
    return {
        "id": key, "apiVersion": 1, "version": "1.0.0", "displayName": "Acme", "description": "For tests.",
        "author": "Acme", "categories": ["automation"], "capabilities": ["environment.drivers.register"],
        "entrypoints": {"worker": "./worker.py"},
        "environmentDrivers": [
            {"driverKey": "acme", "kind": "sandbox_provider", "displayName": "Acme", "configSchema": SECRET_SCHEMA},
            {"driverKey": "machine", "kind": "environment_driver", "displayName": "Machine", "configSchema": {}}],
        **more,
    }


def write_package(path, worker, **more):
    path.mkdir(parents=True)
    (path / "package.json").write_text(json.dumps({
        "name": "acme-provider", "version": "1.0.0", "type": "module",
        "paperclipPlugin": {"manifest": "./manifest.js", "worker": "./worker.py"}}))
    (path / "manifest.js").write_text(f"export default {json.dumps(manifest(**more))}")
    shutil.copy(worker, path / "worker.py")
    if worker.name in ("runner.py", "lister.py"):
        shutil.copy(worker.parent / "provider.py", path)
    return path


class Provider:
    """An installed provider, looked at from outside."""

    def __init__(self, test, plugin):
        self.test = test
        self.id = plugin["id"]

    @property
    def dir(self):
        return self.test.daemon.data / "plugins" / "private" / self.id

    def calls(self, method=None):
        """Requests without initialize, oldest first; with a method only its params."""
        try:
            lines = [json.loads(line) for line in (self.dir / "calls").read_text().splitlines()]
        except FileNotFoundError:
            return []
        if method:
            return [c["params"] for c in lines if c["method"] == method]
        return [c for c in lines if c["method"] != "initialize"]

    def methods(self):
        return [c["method"].removeprefix("environment") for c in self.calls()
                if c["method"] not in ("environmentValidateConfig",)]

    def world(self):
        return set(os.listdir(self.dir / "world"))

    def behave(self, **methods):
        """behave(AcquireLease={"exit": 3}); nothing: well."""
        self.behave_as({f"environment{name}": told for name, told in methods.items()})

    def behave_as(self, methods):
        """The same, with the whole names."""
        temporary = self.dir / "behave.new"
        temporary.write_text(json.dumps(methods))
        temporary.rename(self.dir / "behave")

    def let_go(self, name="go"):
        (self.dir / name).touch()

    def running(self):
        worker = self.test.ok("GET", f"/api/plugins/{self.id}/dashboard")["worker"]
        return worker and worker["status"] == "running"

    def wait_running(self):
        wait_until(self.running, "the worker runs")


class ProviderTest(BerthTest):
    daemon_binary = "faults"
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "20", "BERTH_TEST_PLUGIN_TIMES": TIMES, "BERTH_LOG_LEVEL": "debug",
                  "BERTH_CLOSE_TIMEOUT_MS": "3000"}
    worker = SOURCE / "test" / "workers" / "provider.py"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which("node"):
            raise unittest.SkipTest("node is not installed: manifests cannot be evaluated")

    def setUp(self):
        super().setUp()
        self.provider = self.install_provider()
        self.company_id = ident(self.company())

    def install_provider(self, worker=None, **more):
        path = write_package(pathlib.Path(self.temp_dir()) / "package", worker or self.worker, **more)
        row = self.ok("POST", "/api/plugins/install", {"packageName": str(path), "isLocalPath": True})
        self.assertEqual(row["status"], "ready", row)
        return Provider(self, row)

    # Environments.

    def sandbox(self, name="box", **config):
        return self.ok("POST", f"/api/companies/{self.company_id}/environments", {
            "name": name, "driver": "sandbox", "config": {"provider": "acme", "image": "i", **config}}, status=201)

    def machine(self, name="machine", **config):
        return self.ok("POST", f"/api/companies/{self.company_id}/environments", {
            "name": name, "driver": "plugin",
            "config": {"pluginKey": KEY, "driverKey": "machine", "driverConfig": config}}, status=201)

    def change(self, env, **body):
        return self.ok("PATCH", f"/api/environments/{ident(env)}", body)

    def take(self, env, **body):
        return self.acquire(env, **body)["lease"]

    # Looking.

    def places(self, where="1 = 1"):
        return self.daemon.sql(f"SELECT * FROM places WHERE {where} ORDER BY created_at")

    def limits(self, method):
        """The time limits that were used for a method, from the log."""
        found = []
        for line in self.daemon.log().splitlines():
            if 'msg="plugin call"' in line and f"method=environment{method} " in line:
                found.append(int(line.rpartition("limit_ms=")[2]))
        return found

    def nothing_unaccounted(self):
        """Every sandbox has a living place that names it; nothing is half done but what is uncertain."""
        living = {p["provider_lease_id"]: p["state"] for p in self.places("state <> 'gone'")}
        with contextlib.suppress(FileNotFoundError):
            self.assertEqual(self.provider.world() - set(living), set())
