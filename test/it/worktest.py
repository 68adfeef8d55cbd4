"""For tests of agents, issues and projects: making them, and runs that Berth did not start."""


from berthtest import BerthTest, ident

RUN_A = "00000000-0000-4000-8000-00000000000a"
RUN_B = "00000000-0000-4000-8000-00000000000b"
MISSING = "00000000-0000-4000-8000-000000000000"


class WorkTest(BerthTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.issues = f"/api/companies/{self.acme['id']}/issues"
        self.projects = f"/api/companies/{self.acme['id']}/projects"
        self.agents = f"/api/companies/{self.acme['id']}/agents"

    def agent(self, company, name="Ada", grants=(), wakes=False, **body):
        """Agents here do not run when something happens to their issues, unless `wakes`."""
        if not wakes:
            body.setdefault("runtimeConfig", {"heartbeat": {"wakeOnDemand": False}})
        return super().agent(company, name, grants, **body)

    def issue(self, title="task", **body):
        return self.ok("POST", self.issues, {"title": title, **body}, status=201)

    def as_agent(self, agent, method, path, body=None, run=RUN_A):
        headers = {"X-Paperclip-Run-Id": run} if run else {}
        return self.daemon.req(method, path, body, headers, agent["token"])

    def agent_ok(self, agent, method, path, body=None, run=RUN_A, status=200):
        answer = self.as_agent(agent, method, path, body, run)
        self.assert_status(answer, status)
        return answer.json

    def checkout(self, issue, agent, run=RUN_A, expected=("todo", "backlog", "blocked"), status=200):
        return self.agent_ok(agent, "POST", f"/api/issues/{ident(issue)}/checkout",
                             {"agentId": agent["id"], "expectedStatuses": list(expected)}, run, status)

    def row(self, issue):
        return self.ok("GET", f"/api/issues/{ident(issue)}")

    def actions(self, **entity):
        query = "&".join(f"{k}={v}" for k, v in entity.items())
        return [a["action"] for a in self.ok("GET", f"/api/companies/{self.acme['id']}/activity?{query}")]

    def edit(self, statement, parameters=()):
        """Change a row behind the daemon's back."""
        with self.daemon.record() as db:
            db.execute(statement, parameters)

    def insert_run(self, agent, run=RUN_A, status="running"):
        """A run that the daemon knows. Nothing executes it."""
        self.edit("INSERT INTO heartbeat_runs (id, company_id, agent_id, status, created_at, updated_at) "
                  "VALUES (?, ?, ?, ?, 1, 1) ON CONFLICT (id) DO UPDATE SET status = excluded.status",
                  (run, agent["companyId"], agent["id"], status))

    def strange(self, driver="plugin"):
        """An environment with a driver that nothing works in."""
        env = self.ssh(name="strange")
        self.edit("UPDATE environments SET driver = ? WHERE id = ?", (driver, env["id"]))
        return env

    def sandbox(self, name="box"):
        """A sandbox environment whose provider executes."""
        return self.environment(self.acme, name=name, config={"provider": "berth"})

    def ssh(self, company=None, name="far"):
        return self.environment(company or self.acme, name=name, driver="ssh", config={
            "host": "127.0.0.1", "username": "u", "remoteWorkspacePath": "/srv"})
