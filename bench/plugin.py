"""bench/run --only plugin: a lease's life through a worker on the published SDK, beside the same calls made directly.

`tools` is bench/run itself. The worker is the example provider: a sandbox is a directory, `true` is a child of node. The
bare figure is the same program with the same requests, from bench-worker; what is left is Berth's own share.
"""

import json
import os
import pathlib
import shutil
import statistics
import sys
import unittest

COMMITS = 6  # two each: intent and lease, start and end of the command, end of the lease and of the place
CONFIG = {"image": "fake:latest", "timeoutMs": 300000, "reuseLease": False}
SOME_ID = "33333333-3333-4333-8333-333333333333"


def example(scratch):
    """A copy with its dependencies; raises SkipTest when they cannot be fetched."""
    import plugintest  # it lies beside berthtest
    path = pathlib.Path(scratch) / "example"
    modules = plugintest.sdk_modules()
    shutil.copytree(plugintest.EXAMPLE, path, ignore=shutil.ignore_patterns("node_modules", "package-lock.json"))
    shutil.copytree(modules, path / "node_modules", symlinks=True)
    return path


def write_calls(path, manifest):
    """What Berth says to the worker, for bench-worker."""
    base = {"driverKey": "fake-plugin", "companyId": SOME_ID, "environmentId": SOME_ID, "issueId": None, "config": CONFIG}
    metadata = {**CONFIG, "driver": "sandbox", "pluginId": SOME_ID, "pluginKey": "paperclip.fake-sandbox-provider",
                "sandboxProviderPlugin": True, "provider": "fake-plugin", "remoteCwd": "/tmp", "fakeRootDir": "/tmp",
                "resumedLease": False}
    lease = {"providerLeaseId": "@", "metadata": metadata, "expiresAt": None}
    calls = [("initialize", {"manifest": manifest, "config": {}, "apiVersion": 1, "databaseNamespace": None,
                             "instanceInfo": {"instanceId": SOME_ID, "hostVersion": "0"}}),
             ("environmentAcquireLease", {**base, "runId": SOME_ID}),
             ("environmentExecute", {**base, "lease": lease, "command": "/bin/true"}),
             ("environmentReleaseLease", {**base, "providerLeaseId": "@", "leaseMetadata": metadata})]
    path.write_text("".join(f"{method} {json.dumps(params)}\n" for method, params in calls))


def bench(report, tools, scratch):
    report.group("plugin")
    try:
        package = example(scratch)
    except unittest.SkipTest as reason:
        print(f"  (left out: {reason})")
        return
    with tools.Scene() as scene:
        plugin = scene.post("/api/plugins/install", {"packageName": str(package), "isLocalPath": True})
        if plugin["status"] != "ready":
            sys.exit(f"bench/run: the example provider does not start: {plugin['lastError']}")
        environment = scene.post(f"/api/companies/{scene.company}/environments", {
            "name": "plugin", "driver": "sandbox", "config": {"provider": "fake-plugin"}})["id"]
        calls = pathlib.Path(scratch) / "calls"
        write_calls(calls, plugin["manifestJson"])
        node = os.path.realpath(shutil.which(os.environ.get("BERTH_NODE", "node")))
        s = tools.repeat({
            "sqlite": lambda: tools.floor("sqlite"),
            "bare": lambda: tools.tool("bench-worker", "--seconds", tools.options.seconds, calls, node,
                                       package / "worker.js"),
            1: lambda: tools.load(scene.daemon, 1, "run", environment),
            16: lambda: tools.load(scene.daemon, 16, "run", environment)})
    bare, commit = s["bare"].median("p50") / 1000, s["sqlite"].median("p50") / 1000
    report.figure("floor: SQLite commit, p50", commit, "ms")
    report.figure("floor: the same calls directly, p50", bare, "ms", s["bare"].median("p95"), s["bare"].median("p99"),
                  s["bare"].spread("p50"))
    report.figure("acquire + `true` + release, p50", s[1].median("p50") / 1000, "ms", s[1].median("p95"),
                  s[1].median("p99"), s[1].spread("p50"), [("direct", bare)])
    # Each round is compared with its own neighbours: what disturbs the machine disturbs both.
    shares = [(run["p50"] - floor["p50"]) / 1000 for run, floor in zip(s[1].runs, s["bare"].runs)]
    share = statistics.median(shares)
    report.figure("Berth's own share of it", share, "ms", target=("<=", 1))
    report.figure(f"  without its {COMMITS} commits", share - COMMITS * commit, "ms")
    report.rate("acquire + `true` + release, 1 conn.", s[1], [("direct", s["bare"])])
    report.rate("acquire + `true` + release, 16 conn.", s[16], [("direct", s["bare"])])
