"""What newer providers are told, and what they may take their time for."""

import json
import os
import threading

from berthtest import SOURCE, ident, wait_until
from providertest import KEY, RUN, ProviderTest
import runtest

RUN2 = "44444444-4444-4444-8444-444444444444"
AGENT, WORKSPACE, ISSUE, ISSUE2 = (f"{n}0000000-0000-4000-8000-000000000000" for n in "5678")


class NewerTest(ProviderTest):
    daemon_env = {**ProviderTest.daemon_env, "HOME": "/srv/of-the-daemon"}

    def execute(self, lease, **body):
        return self.ok("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "x", **body})

    # Kubernetes chooses its image by adapterType, Daytona reuses by agentId and executionWorkspaceId.
    def test_whom_a_place_is_for(self):
        env = self.sandbox(reuseLease=True)
        holder = {"agentId": AGENT, "adapterType": "claude_local", "executionWorkspaceId": WORKSPACE,
                  "requestedCwd": "/srv/repo", "executionWorkspaceSettings": {"mode": "isolated_workspace"}}
        first = self.take(env, heartbeatRunId=RUN, issueId=ISSUE, executionWorkspaceMode="isolated_workspace", **holder)
        asked = self.provider.calls("environmentAcquireLease")[0]
        self.assertEqual({name: asked[name] for name in (*holder, "issueId", "runId", "workspaceMode")},
                         {**holder, "issueId": ISSUE, "runId": RUN, "workspaceMode": "isolated_workspace"})
        self.assertEqual(first["metadata"]["agentId"], AGENT)
        self.release(first)
        second = self.take(env, heartbeatRunId=RUN2, issueId=ISSUE2, **holder)
        self.assertEqual(second["providerLeaseId"], first["providerLeaseId"])
        asked = self.provider.calls("environmentResumeLease")[0]
        self.assertEqual({name: asked[name] for name in (*holder, "issueId", "runId")},
                         {**holder, "issueId": ISSUE2, "runId": RUN2})
        self.assertEqual(asked["leaseMetadata"], first["metadata"])
        self.release(second)
        # the image of one adapter does not serve another
        third = self.take(env, heartbeatRunId=RUN, **{**holder, "adapterType": "codex_local"})
        self.assertNotEqual(third["providerLeaseId"], first["providerLeaseId"])

    # 2026.916.1: a provider stops what is left there instead of waiting for it
    def test_work_that_is_cut_short(self):
        for destroy in (True, False):
            lease = self.take(self.machine() if destroy else self.sandbox(), heartbeatRunId=RUN)
            if destroy:
                self.ok("POST", f"/api/environment-leases/{lease['id']}/destroy")
            else:
                self.release(lease)
        (destroyed,) = self.provider.calls("environmentDestroyLease")
        (released,) = self.provider.calls("environmentReleaseLease")
        self.assertEqual((destroyed["cancelActiveWork"], released.get("cancelActiveWork")), (True, None))

    def test_until_when_it_is_wanted(self):
        lease = self.take(self.sandbox(), ttlMs=60000)
        asked = self.provider.calls("environmentAcquireLease")[0]
        self.assertRegex(asked["requestedExpiresAt"], r"^\d{4}-\d\d-\d\dT")
        self.assertNotIn("agentId", asked)
        self.release(lease)

    # newer versions: pickers of secrets send objects
    def test_references_to_secrets(self):
        secret = self.ok("POST", f"/api/companies/{self.company_id}/secrets", {"name": "k", "value": "very-secret"},
                         status=201)
        reference = {"type": "secret_ref", "secretId": secret["id"], "version": "latest"}
        env = self.sandbox(apiKey=reference)
        self.assertEqual(env["config"]["apiKey"], secret["id"])
        lease = self.take(env, heartbeatRunId=RUN)
        self.assertEqual(self.provider.calls("environmentAcquireLease")[0]["config"]["apiKey"], "very-secret")
        self.assertNotIn("very-secret", json.dumps(lease))
        refused = self.req("POST", f"/api/companies/{self.company_id}/environments", {
            "name": "pinned", "driver": "sandbox", "config": {
                "provider": "acme", "image": "i", "apiKey": {**reference, "version": 1}}})
        self.assert_error(refused, 422, contains="pins a version")

    def secret(self, value, company=None):
        return self.ok("POST", f"/api/companies/{company or self.company_id}/secrets", {"name": "k", "value": value},
                       status=201)["id"]

    def events(self, secret):
        return [(e["outcome"], e["actorType"], e["consumerId"], e["configPath"])
                for e in self.ok("GET", f"/api/secrets/{secret}/access-events")]

    def draft(self, config, driver="sandbox", **more):
        return self.req("POST", f"/api/companies/{self.company_id}/environments/probe-config",
                        {"driver": driver, "config": config}, **more)

    def test_references_in_a_draft(self):
        secret = self.secret("very-secret")
        reference = {"type": "secret_ref", "secretId": secret, "version": "latest"}
        config = {"provider": "acme", "image": "i", "apiKey": reference}
        self.provider.behave(Probe={"result": {"ok": False, "summary": "bad key very-secret"}})
        answer = self.draft(config)
        self.assert_status(answer, 200)
        self.assertNotIn("very-secret", answer.text)
        (checked,) = self.provider.calls("environmentValidateConfig")
        (probed,) = self.provider.calls("environmentProbe")
        self.assertEqual((checked["config"]["apiKey"], probed["config"]["apiKey"]), (secret, "very-secret"))
        self.assertEqual(self.events(secret), [("success", "user", "unsaved", "apiKey")])
        for table in ("activity_log", "company_secret_bindings"):
            self.assertNotIn("very-secret", str(self.daemon.sql(f"SELECT * FROM {table}")))
        self.assertEqual(self.daemon.sql("SELECT * FROM company_secret_bindings"), [])
        # an id that was not sent as a reference is a text
        self.draft({**config, "apiKey": secret})
        self.assertEqual(self.provider.calls("environmentProbe")[1]["config"]["apiKey"], secret)
        self.assertEqual(len(self.events(secret)), 1)

    def test_who_may_not_refer_to_a_secret_in_a_draft(self):
        secret = self.secret("very-secret")
        reference = {"type": "secret_ref", "secretId": secret, "version": "latest"}
        config = {"provider": "acme", "image": "i", "apiKey": reference}
        ssh = {"host": "127.0.0.1", "port": 1, "username": "x", "remoteWorkspacePath": "/x",
               "privateKeySecretRef": reference}
        manager = self.agent(self.company_id, name="manager", grants=["environments:manage"])
        worker = self.board_user(self.company_id, user="bob", role="viewer")
        for token in (manager["token"], worker["token"]):
            self.assert_status(self.draft(config, token=token), 403)
            self.assert_status(self.draft(ssh, driver="ssh", token=token), 403)
        other = ident(self.company("other"))
        foreign = self.secret("of-others", other)
        self.assert_error(self.draft({**config, "apiKey": {**reference, "secretId": foreign}}), 422,
                          contains="same company")
        self.assertEqual(self.provider.calls("environmentProbe"), [])
        self.assertEqual((self.events(secret), self.events(foreign)), ([], []))

    # Where its schema says so, and only what is sent as a reference: texts and ids are the driver's own business.
    def test_references_of_a_driver(self):
        schema = {"type": "object", "properties": {
            "key": {"type": "string", "format": "secret-ref"}, "plain": {"type": "string", "format": "secret-ref"},
            "id": {"type": "string", "format": "secret-ref"}, "other": {}}}
        provider = self.install_provider(key=f"{KEY}2", environmentDrivers=[
            {"driverKey": "rack", "kind": "environment_driver", "displayName": "Rack", "configSchema": schema}])
        secret = self.secret("very-secret")
        reference = {"type": "secret_ref", "secretId": secret, "version": "latest"}
        sent = {"key": reference, "plain": "text", "id": secret, "other": reference}
        config = {"pluginKey": f"{KEY}2", "driverKey": "rack", "driverConfig": sent}
        got = {**sent, "key": "very-secret"}
        self.assertTrue(self.draft(config, driver="plugin").json["ok"])
        self.assertEqual(provider.calls("environmentProbe")[0]["config"], got)
        env = self.ok("POST", f"/api/companies/{self.company_id}/environments",
                      {"name": "rack", "driver": "plugin", "config": config}, status=201)
        self.assertEqual(env["config"]["driverConfig"], sent)
        self.assertEqual({c["config"]["key"] for c in provider.calls("environmentValidateConfig")}, {secret})
        bindings = self.daemon.sql("SELECT target_id, config_path FROM company_secret_bindings")
        self.assertEqual([tuple(b.values()) if hasattr(b, "values") else tuple(b) for b in bindings],
                         [(env["id"], "driverConfig.key")])
        self.ok("POST", f"/api/environments/{env['id']}/probe")
        provider.behave(AcquireLease={"more": {"metadata": {"key": "very-secret", "remoteCwd": "/work"}}})
        lease = self.take(env, heartbeatRunId=RUN)
        self.release(lease)
        for method in ("Probe", "AcquireLease", "ReleaseLease"):
            self.assertEqual(provider.calls(f"environment{method}")[-1]["config"], got, method)
        self.assertNotIn("very-secret", json.dumps(lease) + str(self.places()))
        self.assertEqual({e[:3] for e in self.events(secret)},
                         {("success", "user", "unsaved"), ("success", "system", env["id"])})
        broken = self.req("PATCH", f"/api/environments/{env['id']}",
                          {"config": {**config, "driverConfig": {"key": {**reference, "version": 0}}}})
        self.assert_error(broken, 422, contains="driverConfig.key")

    # remote-execution 8.51
    def test_where_a_command_starts_and_with_what(self):
        lease = self.take(self.sandbox(), heartbeatRunId=RUN)
        self.execute(lease, env={"HOME": "/srv/of-the-daemon", "LANG": "C", "USER": "somebody-else"})
        self.execute(lease, cwd="/elsewhere")
        first, second = self.provider.calls("environmentExecute")
        self.assertEqual((first["cwd"], second["cwd"]), ("/work", "/elsewhere"))
        self.assertEqual(first["env"], {"LANG": "C", "USER": "somebody-else"})
        machine = self.take(self.machine(), heartbeatRunId=RUN)
        self.execute(machine)
        self.assertEqual(self.provider.calls("environmentExecute")[2]["cwd"], "/work")

    # The request's own time is 2 s here, the provider's a minute.
    def test_slow_acquire(self):
        env = self.sandbox(timeoutMs=60000)
        self.daemon.stop()
        self.daemon.env["BERTH_OPERATION_TIMEOUT_MS"] = "2000"
        self.daemon.start()
        self.provider.wait_running()
        self.provider.behave(AcquireLease={"delay": 2.5})
        lease = self.take(env, heartbeatRunId=RUN)
        self.assertEqual(self.provider.world(), {lease["providerLeaseId"]})

    def test_a_file_that_the_worker_does_not_see(self):
        env = self.sandbox()
        said = {"code": -32002, "message": "ENOENT: no such file or directory, open '/root/.kube/config'"}
        self.provider.behave(AcquireLease={"error": said}, ValidateConfig={"error": said},
                             Probe={"result": {"ok": False, "summary": said["message"]}})
        setting = f'plugin_paths, here "{KEY}:/root/.kube/config"'
        self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {"heartbeatRunId": RUN}), 502,
                          contains=setting)
        self.assertIn(setting, self.ok("POST", f"/api/environments/{env['id']}/probe")["summary"])
        refused = self.req("PATCH", f"/api/environments/{env['id']}", {"config": {"provider": "acme", "image": "j"}})
        self.assertIn(setting, refused.error)

    # All workers are asked before one of them has answered, and requests wait for them.
    def test_workers_start_side_by_side(self):
        others = [self.install_provider(key=f"{KEY}{i}", environmentDrivers=[
            {"driverKey": f"acme{i}", "kind": "sandbox_provider", "displayName": "A", "configSchema": {}}])
            for i in range(3)]
        providers = [self.provider, *others]
        self.daemon.stop()
        for provider in providers:
            provider.behave_as({"initialize": {"hold": "go"}})
        self.daemon.start()
        for provider in providers:
            wait_until(lambda p=provider: len([c for c in (p.dir / "calls").read_text().splitlines()
                                               if '"initialize"' in c]) == 2, "it is being started")
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.req(
            "POST", f"/api/companies/{self.company_id}/environments",
            {"name": "box", "driver": "sandbox", "config": {"provider": "acme2", "image": "i"}})))
        asking.start()
        for provider in providers:
            provider.let_go()
        asking.join()
        self.assertEqual(answers[0].status, 201, answers[0].json)


class RunTest(ProviderTest):
    """What a run asks for."""
    worker = SOURCE / "test" / "workers" / "runner.py"
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PLUGIN_BOX": "off"}

    def test_run(self):
        env = self.sandbox()
        agent = self.ok("POST", f"/api/companies/{self.company_id}/agents", {
            "name": "worker", "role": "engineer", "adapterType": "process", "defaultEnvironmentId": env["id"],
            "adapterConfig": {"command": "/bin/sh", "args": ["-c", "true"]}}, status=201)
        runs = []
        for _ in range(2):
            run = self.ok("POST", f"/api/agents/{ident(agent)}/wakeup", {"source": "on_demand"}, status=202)
            wait_until(lambda r=run: self.ok("GET", f"/api/heartbeat-runs/{r['id']}")["status"]
                       not in ("queued", "running"), "it ends")
            runs.append(run["id"])
        asked = self.provider.calls("environmentAcquireLease")
        self.assertEqual([(a["agentId"], a["adapterType"], a["runId"]) for a in asked],
                         [(agent["id"], "process", run) for run in runs])
        # exe.dev names its machines by them
        self.assertNotEqual(runs[0][:8], runs[1][:8])


class RunThereTest(runtest.RunTest):
    daemon_env = {**runtest.RunTest.daemon_env, "BERTH_PLUGIN_BOX": "off"}

    def test_a_run(self):
        """A run says where and how its work is to be done; what the daemon runs beside it is not part of its session."""
        provider = ProviderTest.install_provider(self, SOURCE / "test" / "workers" / "runner.py")
        env = self.environment(self.acme, name="acme", driver="sandbox", config={"provider": "acme", "image": "i"})
        cwd = provider.dir / "there"
        cwd.mkdir()
        os.chown(cwd, provider.dir.stat().st_uid, -1)  # the worker's user
        provider.behave(AcquireLease={"more": {"metadata": {"remoteCwd": str(cwd)}}})
        issue = self.provisioned_issue(env, "echo ready > ready")
        self.edit("UPDATE issues SET execution_workspace_settings = ? WHERE id = ?",
                  (json.dumps({"mode": "shared_workspace"}), issue["id"]))
        run = self.finished(self.wake(self.runner("cat ready"), payload={"issueId": issue["id"]}))
        self.assertEqual(run["status"], "succeeded", run["error"])
        (asked,) = provider.calls("environmentAcquireLease")
        self.assertEqual((asked["requestedCwd"], asked["executionWorkspaceSettings"]),
                         (str(self.work), {"mode": "shared_workspace"}))
        calls = provider.calls("environmentExecute")
        own = [c for c in calls if c["command"] == "/bin/sh"]
        self.assertEqual([c.get("bypassSession") for c in own], [None])
        beside = [c for c in calls if c not in own]
        self.assertEqual({c.get("bypassSession") for c in beside}, {True})
        self.assertEqual(len([c for c in beside if "echo ready > ready" in " ".join(c["args"])]), 1)
