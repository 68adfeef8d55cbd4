"""What plugins offer besides environments: data, actions, tools and jobs, and who may ask for them."""

import threading

from berthtest import wait_until
from plugintest import KEY, WORKER, PluginTest
from worktest import MISSING, RUN_A, WorkTest

MORE = """
answers.getData = (asked) => asked;
answers.performAction = ({ key }) => { if (key === "bad") throw new Error("not that"); return { done: key }; };
answers.executeTool = (asked) => ({ content: "found", asked });
answers.runJob = ({ job }) => { say({ method: "log", params: { level: "info", message: "ran " + JSON.stringify(job) } });
  return null; };
"""
OFFERS = {
    "capabilities": ["environment.drivers.register", "agent.tools.register", "jobs.schedule"],
    "tools": [{"name": "search", "displayName": "Search", "description": "Finds.", "parametersSchema": {"type": "object"}}],
    "jobs": [{"jobKey": "sync", "displayName": "Sync", "schedule": "0 * * * *"}],
}


class BusyTest(PluginTest, WorkTest):
    """One seat for each lane: what is asked of a plugin for one company does not wait for another's."""

    daemon_env = {"BERTH_PEER_THREADS_EACH": "1"}

    def test_companies_do_not_wait_for_each_other(self):
        slow = MORE + """
import { existsSync, readdirSync, writeFileSync } from "node:fs";
answers.getData = async ({ key }) => { writeFileSync("asked-" + key, ""); if (key === "slow")
  while (!existsSync("go")) await new Promise((r) => setTimeout(r, 10)); return { key }; };
"""
        worker = WORKER.replace("//MORE", slow).replace("say({ id, result: answer(params) })",
                                                        "Promise.resolve(answer(params)).then((result) => say({ id, result }))")
        plugin = self.install(self.package(worker=worker, **OFFERS))["id"]
        folder = self.daemon.data / "plugins" / "private" / plugin
        other = self.company("Other")
        ann, bob = self.board_user(self.acme)["token"], self.board_user(other, user="bob")["token"]

        def ask(key, company, token):
            return self.req("POST", f"/api/plugins/{KEY}/bridge/data", {"key": key, "companyId": company["id"]}, token=token)

        held = {}
        first = threading.Thread(target=lambda: held.update(answer=ask("slow", self.acme, ann)))
        first.start()
        try:
            wait_until(lambda: (folder / "asked-slow").exists(), "the plugin is asked for one company")
            # Whoever names a company that it may not see is in no lane of it.
            self.assert_status(ask("k", self.acme, bob), 403)
            self.assertEqual(ask("k", other, bob).json["data"], {"key": "k"})
            self.assertTrue(first.is_alive())
        finally:
            (folder / "go").write_text("")
            first.join(60)
        self.assertEqual(held["answer"].json["data"], {"key": "slow"})


class NodeWithoutViewTest(PluginTest, WorkTest):
    """What node does all the time goes on working under the filter of a worker without a view, on an old kernel."""

    daemon_binary = "faults"
    daemon_env = {"BERTH_TEST_NO_VIEW": "1", "BERTH_TEST_LANDLOCK": "5"}

    def test_children_threads_and_sockets(self):
        worker = WORKER.replace("//MORE", """
import { exec, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, connect } from "node:net";
import { lookup } from "node:dns/promises";
import { Worker } from "node:worker_threads";
answers.getData = async () => {
  const said = await new Promise((resolve) => exec("echo hello", (e, out) => resolve(e ? String(e) : out)));
  const child = spawn("sleep", ["1000"]);
  child.kill();
  const [, signal] = await once(child, "exit");
  const server = createServer((s) => s.end("net")).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect(server.address().port, "127.0.0.1");
  const [net] = await once(client, "data");
  server.close();
  const thread = new Worker("require('node:worker_threads').parentPort.postMessage('thread')", { eval: true });
  const [threaded] = await once(thread, "message");
  return { said, signal, net: String(net), threaded, family: (await lookup("localhost")).family > 0 };
};
""").replace("say({ id, result: answer(params) })", "Promise.resolve(answer(params)).then((result) => say({ id, result }))")
        self.install(self.package(worker=worker, **OFFERS))
        admin = self.board_user(self.acme, user="root", role="owner", admin=True)["token"]
        done = self.ok("POST", f"/api/plugins/{KEY}/bridge/data", {"key": "k"}, token=admin)["data"]
        self.assertEqual(done, {"said": "hello\n", "signal": "SIGTERM", "net": "net", "threaded": "thread", "family": True})


class BridgeTest(PluginTest, WorkTest):
    def setUp(self):
        super().setUp()
        self.plugin_id = self.install(self.package(worker=WORKER.replace("//MORE", MORE), **OFFERS))["id"]
        self.ann = self.board_user(self.acme)["token"]
        self.admin = self.board_user(self.acme, user="root", role="owner", admin=True)["token"]
        self.bridge = f"/api/plugins/{KEY}/bridge"

    # http-api 8.73
    def test_without_a_company_only_for_admins(self):
        body = {"key": "k", "params": {"a": 1}}
        for path in (f"{self.bridge}/data", f"{self.bridge}/action", f"/api/plugins/{KEY}/data/k"):
            self.assert_error(self.req("POST", path, body, token=self.ann), 403, "Instance admin access required")
        asked = self.ok("POST", f"{self.bridge}/data", body, token=self.admin)["data"]
        self.assertEqual((asked["key"], asked["params"]), ("k", {"a": 1}))
        done = self.ok("POST", f"{self.bridge}/action", {"key": "go"}, token=self.admin)
        self.assertEqual(done, {"data": {"done": "go"}})

    def test_with_a_company_for_its_members(self):
        other = self.company("Other")
        asked = self.ok("POST", f"{self.bridge}/data", {"key": "k", "companyId": self.acme["id"]}, token=self.ann)
        self.assertEqual(asked["data"], {"key": "k", "params": {}, "renderEnvironment": None})
        answer = self.req("POST", f"{self.bridge}/data", {"key": "k", "companyId": other["id"]}, token=self.ann)
        self.assert_error(answer, 403, "User does not have access to this company")
        viewer = self.board_user(self.acme, user="vic", role="viewer")["token"]
        answer = self.req("POST", f"{self.bridge}/action", {"key": "k", "companyId": self.acme["id"]}, token=viewer)
        self.assert_error(answer, 403, "Viewer access is read-only")
        ada = self.agent(self.acme)
        answer = self.req("POST", f"{self.bridge}/data", {"key": "k", "companyId": self.acme["id"]}, token=ada["token"])
        self.assert_error(answer, 403, "Board access required")

    def test_what_goes_wrong(self):
        answer = self.req("POST", f"{self.bridge}/action", {"key": "bad"})
        self.assert_status(answer, 502)
        self.assertEqual(answer.json["code"], "WORKER_ERROR")
        self.assertIn("not that", answer.json["message"])
        self.assert_error(self.req("POST", f"{self.bridge}/data", {}), 400, "Validation error")
        self.assert_error(self.req("POST", f"/api/plugins/{MISSING}/bridge/data", {"key": "k"}), 404, "Plugin not found")
        self.assert_error(self.req("GET", f"{self.bridge}/stream/ch"), 501, "Plugin stream bridge is not enabled")
        self.post(KEY, "disable")
        self.assert_error(self.req("POST", f"{self.bridge}/data", {"key": "k"}), 400,
                          "Plugin is not ready (current status: disabled)")
        self.assertEqual(self.ok("GET", "/api/plugins/tools"), [])

    # http-api 8.74
    def test_tools_stay_inside_the_company(self):
        tools = self.ok("GET", "/api/plugins/tools", token=self.ann)
        self.assertEqual([(t["name"], t["pluginId"]) for t in tools], [(f"{KEY}:search", self.plugin_id)])
        ada, project = self.agent(self.acme), self.ok("POST", self.projects, {"name": "P"}, 201)
        self.insert_run(ada)
        context = {"agentId": ada["id"], "runId": RUN_A, "companyId": self.acme["id"], "projectId": project["id"]}

        def execute(token=self.ann, tool=f"{KEY}:search", **change):
            return self.req("POST", "/api/plugins/tools/execute",
                            {"tool": tool, "parameters": {"q": "x"}, "runContext": {**context, **change}}, token=token)

        answer = execute()
        self.assert_status(answer, 200)
        self.assertEqual((answer.json["pluginId"], answer.json["toolName"]), (self.plugin_id, "search"))
        self.assertEqual(answer.json["result"]["asked"],
                         {"toolName": "search", "parameters": {"q": "x"}, "runContext": context})

        other = self.company("Other")
        eve = self.agent(other, name="Eve")
        theirs = self.ok("POST", f"/api/companies/{other['id']}/projects", {"name": "Q"}, 201)
        self.assert_error(execute(companyId=other["id"]), 403, "User does not have access to this company")
        outside = "Tool run context does not belong to the requested company"
        for change in ({"agentId": eve["id"]}, {"projectId": theirs["id"]}, {"runId": MISSING}, {"agentId": MISSING}):
            self.assert_error(execute(**change), 403, outside)
        bob = self.agent(self.acme, name="Bob")
        self.assert_error(execute(agentId=bob["id"]), 403, outside)  # the run is Ada's
        self.assert_error(execute(token=ada["token"]), 403, "Board access required")
        for tool in (f"{KEY}:other", "search", "nobody:search"):
            self.assert_error(execute(tool=tool), 404, f'Tool "{tool}" not found')

    # http-api 8.75
    def test_jobs_are_triggered_by_admins(self):
        jobs = self.ok("GET", f"/api/plugins/{KEY}/jobs", token=self.ann)
        self.assertEqual([(job["id"], job["schedule"]) for job in jobs], [("sync", "0 * * * *")])
        trigger = f"/api/plugins/{KEY}/jobs/sync/trigger"
        self.assert_error(self.req("POST", trigger, token=self.ann), 403, "Instance admin access required")
        begun = self.ok("POST", trigger, token=self.admin)
        self.assertEqual((sorted(begun), begun["jobId"]), (["jobId", "runId"], "sync"))
        ran = wait_until(lambda: [line for line in self.logged() if line.startswith("ran ")], "the job runs")
        self.assertEqual(len(ran), 1)
        self.assertIn(begun["runId"], ran[0])
        self.assertIn("plugin.job.triggered", self.actions(entityType="plugin"))
        self.assert_error(self.req("POST", f"/api/plugins/{KEY}/jobs/no/trigger"), 404, "Job not found")
