"""The variables of agents: what is accepted, what is bound, who gets them, what is written of them."""

import os
import unittest

from awsfake import AwsFake
from berthtest import BerthTest
from exectest import ExecTest
from providertest import ProviderTest

VALUE = "swordfish-4711-in-clear"
MISSING = "00000000-0000-4000-8000-000000000000"


def ref(secret, **more):
    return {"type": "secret_ref", "secretId": secret["id"], **more}


class Variables:
    """For tests that have a daemon."""

    def secret(self, company, name="API_TOKEN", value=VALUE):
        return self.ok("POST", f"/api/companies/{company['id']}/secrets", {"name": name, "value": value}, status=201)

    def make(self, company, env, name="Ada", **config):
        return self.req("POST", f"/api/companies/{company['id']}/agents",
                        {"name": name, "adapterConfig": {"env": env, **config}})

    def made(self, company, env, **more):
        answer = self.make(company, env, **more)
        self.assert_status(answer, 201)
        return answer.json

    def patch(self, agent, config, status=200, **more):
        return self.ok("PATCH", f"/api/agents/{agent['id']}", {"adapterConfig": config, **more}, status=status)

    def usage(self, secret):
        bindings = self.ok("GET", f"/api/secrets/{secret['id']}/usage")["bindings"]
        return sorted((b["targetId"], b["configPath"], b["versionSelector"]) for b in bindings)

    def uses(self, secret):
        return self.ok("GET", f"/api/secrets/{secret['id']}/access-events")


class AgentEnvTest(Variables, BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.key = self.secret(self.acme)

    def test_forms(self):
        agent = self.made(self.acme, {"A": "text", "B": {"type": "plain", "value": "b"}, "C": ref(self.key),
                                      "D": ref(self.key, version=1)})
        self.assertEqual(agent["adapterConfig"], {"env": {
            "A": {"type": "plain", "value": "text"}, "B": {"type": "plain", "value": "b"},
            "C": ref(self.key, version="latest"), "D": ref(self.key, version=1)}})
        self.assertEqual(self.usage(self.key), [(agent["id"], "env.C", "latest"), (agent["id"], "env.D", "1")])
        self.assertEqual(self.ok("GET", f"/api/agents/{agent['id']}")["adapterConfig"], agent["adapterConfig"])

    # environment-runtime 7.128, 7.139
    def test_refusals(self):
        other = self.secret(self.company("Other"))
        gone = self.secret(self.acme, "gone")
        self.ok("DELETE", f"/api/secrets/{gone['id']}")
        for env, status, text in (
                ({"1A": "x"}, 422, "Invalid environment variable name: 1A"),
                ({"": "x"}, 422, "Invalid environment variable name: "),
                ({"A": 1}, 422, "Invalid environment binding for key: A"),
                ({"A": {"type": "plain"}}, 422, "Invalid environment binding for key: A"),
                ({"A": {"type": "secret_ref", "secretId": "x"}}, 422, "Invalid environment binding for key: A"),
                ({"A": ref(self.key, version=0)}, 422, "Invalid environment binding for key: A"),
                ({"A": "***REDACTED***"}, 422, "Refusing to persist redacted placeholder for key: A"),
                ({"A": ref(other)}, 422, "Secret must belong to same company"),
                ({"A": ref({"id": MISSING})}, 404, "Secret not found"),
                ({"A": ref(gone)}, 404, "Secret not found"),
                ([], 422, "adapterConfig.env must be an object")):
            with self.subTest(env=env):
                self.assert_error(self.make(self.acme, env), status, text)
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}/agents"), [])
        agent = self.made(self.acme, {"A": ref(self.key)})
        self.assert_error(self.req("PATCH", f"/api/agents/{agent['id']}",
                                   {"adapterConfig": {"env": {"A": ref(other)}}}),
                          422, "Secret must belong to same company")
        self.assertEqual(self.usage(self.key), [(agent["id"], "env.A", "latest")])

    # environment-runtime 7.130
    def test_usage_names_the_agent(self):
        agent = self.made(self.acme, {"A": ref(self.key)}, name="CodexCoder")
        self.assertEqual(self.ok("GET", f"/api/secrets/{self.key['id']}/usage")["bindings"][0]["target"],
                         {"type": "agent", "id": agent["id"], "label": "CodexCoder", "href": "/agents/codexcoder",
                          "status": "idle"})

    # environment-runtime 7.132
    def test_changing(self):
        agent = self.made(self.acme, {"A": ref(self.key)}, command="sh")
        same = self.patch(agent, {"cwd": "/"})
        self.assertEqual(same["adapterConfig"]["command"], "sh")
        self.assertEqual(self.usage(self.key), [(agent["id"], "env.A", "latest")])
        self.patch(agent, {"env": {"B": ref(self.key, version=1)}})
        self.assertEqual(self.usage(self.key), [(agent["id"], "env.B", "1")])
        emptied = self.patch(agent, {"env": {}})
        self.assertEqual(self.usage(self.key), [])
        self.assertEqual(emptied["adapterConfig"], {"command": "sh", "cwd": "/", "env": {}})
        self.patch(agent, {"env": {"A": ref(self.key)}})
        self.assertEqual(self.patch(agent, {}, replaceAdapterConfig=True)["adapterConfig"], {})
        self.assertEqual(self.usage(self.key), [])

    def test_what_a_patch_refuses(self):
        agent = self.made(self.acme, {})
        path = f"/api/agents/{agent['id']}"
        self.assert_error(self.req("PATCH", path, {"permissions": {}}), 422,
                          "Use /api/agents/:id/permissions for permission changes")
        self.assert_error(self.req("PATCH", path, {"name": 1}), 400)
        self.assert_error(self.req("PATCH", f"/api/agents/{MISSING}", {}), 404, "Agent not found")

    def test_deleting_removes_bindings(self):
        agent = self.made(self.acme, {"A": ref(self.key)})
        self.assertEqual(self.ok("DELETE", f"/api/agents/{agent['id']}"), {"ok": True})
        self.assert_error(self.req("GET", f"/api/agents/{agent['id']}"), 404, "Agent not found")
        self.assertEqual(self.usage(self.key), [])
        self.ok("DELETE", f"/api/secrets/{self.key['id']}")

    # An agent could otherwise give itself any secret of its company.
    def test_agents_cannot_give_secrets(self):
        box = self.environment(self.acme, config={"provider": "berth"})["id"]
        ada = self.agent(self.acme, name="Ada", defaultEnvironmentId=box)
        boss = self.agent(self.acme, name="Boss", permissions={"canCreateAgents": True})
        self.patch(ada, {"env": {"A": ref(self.key)}})
        path = f"/api/agents/{ada['id']}"
        for who, key in (("self", ada["token"]), ("creator", boss["token"])):
            with self.subTest(who=who):
                self.assert_error(self.req("PATCH", path, {"adapterConfig": {"env": {"B": ref(self.key)}}}, token=key),
                                  403, contains="Only board users may give secrets to agents (B)")
                self.ok("PATCH", path, {"adapterConfig": {"env": {"A": ref(self.key), "X": "x"}}}, token=key)
                self.assert_error(self.req("DELETE", path, token=key), 403, "Board access required")
        self.assert_error(self.req("POST", f"/api/companies/{self.acme['id']}/agents",
                                   {"name": "New", "adapterConfig": {"env": {"A": ref(self.key)}}}, token=boss["token"]),
                          403, contains="Only board users")
        self.assert_error(self.req("PATCH", f"/api/agents/{boss['id']}", {"adapterConfig": {}}, token=ada["token"]), 403,
                          "Only CEO or agent creators can modify other agents")

    def test_what_others_see(self):
        agent = self.made(self.acme, {"A": ref(self.key), "PASSWORD": "plain"})
        token = self.agent(self.acme, name="Eve")["token"]
        for path in (f"/api/agents/{agent['id']}", f"/api/companies/{self.acme['id']}/agents"):
            answer = self.req("GET", path, token=token)
            self.assert_status(answer, 200)
            self.assertNotIn(self.key["id"], answer.text)
            self.assertNotIn("plain", answer.text)


class StrictTest(Variables, BerthTest):
    daemon_env = {"BERTH_SECRETS_STRICT_MODE": "true"}

    def test_sensitive_names_need_references(self):
        acme = self.company()
        key = self.secret(acme)
        self.assert_error(self.make(acme, {"API_TOKEN": "x"}), 422,
                          "Strict secret mode requires secret references for sensitive key: API_TOKEN")
        self.made(acme, {"API_TOKEN": ref(key), "PASSWORD": " ", "PATH": "/bin"})


class AgentExecTest(Variables, ExecTest):
    def setUp(self):
        super().setUp()
        self.home = {"id": self.held["lease"]["companyId"]}
        self.key = self.secret(self.home)

    def make_agent(self, env, **more):
        return self.made(self.home, env, **more)

    def show(self, agent, *names, **body):
        return self.sh("; ".join(f'printf "%s\\n" "${n}"' for n in names), agentId=agent["id"], **body)["stdout"]

    def change(self, statement):
        self.daemon.stop()
        with self.daemon.record() as db:
            db.execute(statement)
        self.daemon.start()

    def test_variables_arrive(self):
        agent = self.make_agent({"PLAIN": "a b", "API_TOKEN": ref(self.key)})
        length = self.sh('printf "%s %s" "$PLAIN" "${#API_TOKEN}"', agentId=agent["id"])
        self.assertEqual(length["stdout"], f"a b {len(VALUE)}")
        self.assertEqual(self.sh('printf "%s" "${API_TOKEN-unset}"')["stdout"], "unset")

    def test_the_value_is_replaced_in_the_output(self):
        agent = self.make_agent({"API_TOKEN": ref(self.key)})
        got = self.sh('echo "out $API_TOKEN."; echo "err $API_TOKEN." >&2', agentId=agent["id"])
        self.assertEqual((got["stdout"], got["stderr"]), ("out ***REDACTED***.\n", "err ***REDACTED***.\n"))

    def test_who_wins(self):
        other = self.secret(self.home, "other")
        agent = self.make_agent({"PATH": "/agents/own:/usr/bin:/bin", "A": "agent", "B": ref(other)})
        self.assertEqual(self.show(agent, "PATH", "A", "B", env={"A": "request", "B": "mine"}),
                         "/agents/own:/usr/bin:/bin\nrequest\nmine\n")
        self.assertEqual(self.uses(other), [])

    def test_rotation_and_versions(self):
        agent = self.make_agent({"NEW": ref(self.key), "OLD": ref(self.key, version=1)})
        self.ok("POST", f"/api/secrets/{self.key['id']}/rotate", {"value": "x" * 9})
        self.assertEqual(self.sh('echo ${#NEW} ${#OLD}', agentId=agent["id"])["stdout"], f"9 {len(VALUE)}\n")

    def test_every_use_leaves_an_event(self):
        agent = self.make_agent({"API_TOKEN": ref(self.key)})
        self.sh("true", agentId=agent["id"])
        event = self.uses(self.key)[0]
        self.assertEqual((event["consumerType"], event["consumerId"], event["configPath"], event["outcome"],
                          event["actorType"], event["issueId"], event["heartbeatRunId"]),
                         ("agent", agent["id"], "env.API_TOKEN", "success", "user", self.held["lease"]["issueId"],
                          self.held["lease"]["heartbeatRunId"]))

    def test_the_same_key_runs_and_resolves_once(self):
        agent = self.make_agent({"API_TOKEN": ref(self.key)})
        for _ in range(2):
            self.sh("true", agentId=agent["id"], idempotencyKey="once")
        self.assertEqual(len(self.uses(self.key)), 1)

    # A failed resolve starts nothing, and says which variable and which secret.
    def test_a_disabled_secret(self):
        agent = self.make_agent({"TOKEN": ref(self.key)})
        self.ok("PATCH", f"/api/secrets/{self.key['id']}", {"status": "disabled"})
        self.assert_error(self.execute("touch", ["/nonexistent"], agentId=agent["id"]), 422,
                          'variable TOKEN (secret "API_TOKEN"): Secret is not active')
        row = self.ok("GET", f"/api/environment-leases/{self.held['lease']['id']}/executions")[0]
        self.assertEqual((row["status"], row["pid"]), ("failed", None))
        self.assertIn("API_TOKEN", row["reason"])
        self.assertEqual(self.uses(self.key)[0]["outcome"], "failure")
        self.assertEqual(self.boxes(), {})

    def test_another_master_key(self):
        agent = self.make_agent({"TOKEN": ref(self.key)})
        self.daemon.stop()
        (self.daemon.data / "secrets/master.key").write_text(os.urandom(32).hex())
        self.daemon.start()
        answer = self.execute("true", agentId=agent["id"])
        self.assertGreaterEqual(answer.status, 400)
        self.assertIn('variable TOKEN (secret "API_TOKEN"): ', answer.error)
        self.assertEqual(self.boxes(), {})

    def test_a_binding_that_is_gone(self):
        agent = self.make_agent({"TOKEN": ref(self.key)})
        self.change("DELETE FROM company_secret_bindings")
        self.assert_error(self.execute("true", agentId=agent["id"]), 422,
                          f'variable TOKEN (secret "API_TOKEN"): Secret is not bound to agent:{agent["id"]} '
                          "at env.TOKEN")

    def test_which_agents(self):
        other = self.company("Other")
        self.assert_error(self.execute("true", agentId=self.made(other, {})["id"]), 422,
                          "Agent must belong to the company of the lease")
        self.assert_error(self.execute("true", agentId=MISSING), 404, "Agent not found")
        self.assert_error(self.execute("true", agentId="x"), 400)
        agent = self.make_agent({})
        self.change("UPDATE agents SET status = 'terminated'")
        answer = self.execute("true", agentId=agent["id"])
        self.assert_error(answer, 409, "Agent is not invokable in its current state")

    def test_too_much(self):
        agent = self.make_agent({f"V{i}": "x" * 60000 for i in range(40)})
        self.assert_error(self.execute("true", agentId=agent["id"]), 413, contains="together are at most")

    def test_command_line(self):
        def run(*args, status=0):
            got = self.cli("--company", self.home["id"], *args)
            self.assertEqual(got[0], status, got)
            return got[1]

        show = 'echo "$A ${#B} $B"'
        run("agent", "create", "Ada", "--env", "A=a b", "--secret-env", "B=API_TOKEN")
        self.assertEqual(run("run", "--agent", "ada", "--", "sh", "-c", show), f"a b {len(VALUE)} ***REDACTED***\n")
        lease = self.held["lease"]["id"]
        self.assertEqual(run("lease", "exec", lease, "--agent", "Ada", "-e", "B=mine", "--", "sh", "-c", show),
                         "a b 4 mine\n")
        self.ok("POST", f"/api/secrets/{self.key['id']}/rotate", {"value": "second-value"})
        shown = run("agent", "update", "Ada", "--secret-env", "B=API_TOKEN@1", "--unset", "A")
        self.assertIn(f"secret {self.key['id']}, version 1", shown)
        self.assertEqual(run("lease", "exec", lease, "--agent", "Ada", "--", "sh", "-c", show),
                         f" {len(VALUE)} ***REDACTED***\n")
        self.assertEqual(run("agent", "show", "Ada"), shown)
        self.assertIn("no variable 'A'", self.cli("agent", "update", "Ada", "--unset", "A",
                                                  "--company", self.home["id"])[2])
        run("run", "--agent", "nobody", "--", "true", status=5)
        run("agent", "delete", "Ada")
        run("agent", "show", "Ada", status=5)


class UnreachableVaultTest(Variables, ExecTest):
    daemon_autostart = False

    def test_it_is_named(self):
        aws = AwsFake()
        self.daemon.env.update({"AWS_EC2_METADATA_DISABLED": "true", "BERTH_SECRETS_AWS_ENDPOINT": aws.url,
                                "AWS_ACCESS_KEY_ID": "AKIDTEST", "HOME": str(self.temp_dir()),
                                "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"})
        try:
            self.daemon.start()
            self.make_lease()
            home = self.held["lease"]["companyId"]
            vault = self.ok("POST", f"/api/companies/{home}/secret-provider-configs",
                            {"provider": "aws_secrets_manager", "displayName": "prod",
                             "config": {"region": "us-east-1", "namespace": "prod"}}, status=201)["id"]
            key = self.ok("POST", f"/api/companies/{home}/secrets", {
                "name": "outside", "value": VALUE, "provider": "aws_secrets_manager", "providerConfigId": vault},
                status=201)
            agent = self.made({"id": home}, {"TOKEN": ref(key)})
        finally:
            aws.close()
        self.daemon.restart()  # connections that are kept would still be answered
        answer = self.execute("true", agentId=agent["id"])
        self.assertIn(answer.status, (502, 503, 504))
        self.assertIn('variable TOKEN (secret "outside"): ', answer.error)
        self.assertEqual(self.boxes(), {})


class PluginAgentTest(Variables, ProviderTest):
    """Commands that a plugin's worker runs: the variables arrive, and output is replaced on its way to the file."""

    def setUp(self):
        super().setUp()
        self.home = {"id": self.company_id}
        self.key = self.secret(self.home)
        self.ada = self.made(self.home, {"TOKEN": ref(self.key), "A": "agent", "B": "agent"})
        self.held = self.take(self.sandbox(apiKey="key-of-the-provider"))

    def run_it(self, **body):
        return self.ok("POST", f"/api/environment-leases/{self.held['id']}/execute",
                       {"command": "x", "agentId": self.ada["id"], **body})

    def test_variables_arrive(self):
        self.run_it(env={"B": "request"})
        self.assertEqual(self.provider.calls("environmentExecute")[0]["env"],
                         {"TOKEN": VALUE, "A": "agent", "B": "request"})
        self.assertEqual(self.uses(self.key)[0]["outcome"], "success")

    def test_output_in_pieces(self):
        self.provider.behave(Execute={"output": [["stdout", "ran " + VALUE[:7]], ["stdout", VALUE[7:] + "."],
                                                 ["stdout", "key-of-the-provider"]]})
        ran = self.run_it()
        self.assertEqual((ran["stdout"], ran["stderr"]), ("ran ***REDACTED***.***REDACTED***", "oops\n"))
        stored = b"".join(p.read_bytes() for p in (self.daemon.data / "output").rglob("std*"))
        self.assertNotIn(VALUE.encode(), stored)

    def test_output_at_the_end(self):
        """The worker's own answer: "ran COMMAND"."""
        self.provider.behave(Execute={"output": [["stdout", "ran " + VALUE[:6]]]})
        ran = self.run_it(command=f"{VALUE} and more")
        self.assertEqual((ran["stdout"], ran.get("metadata")), ("ran ***REDACTED*** and more\n", None))

    def test_a_disabled_secret(self):
        self.ok("PATCH", f"/api/secrets/{self.key['id']}", {"status": "disabled"})
        self.assert_error(self.req("POST", f"/api/environment-leases/{self.held['id']}/execute",
                                   {"command": "x", "agentId": self.ada["id"]}),
                          422, 'variable TOKEN (secret "API_TOKEN"): Secret is not active')
        self.assertEqual(self.provider.calls("environmentExecute"), [])


if __name__ == "__main__":
    unittest.main()
