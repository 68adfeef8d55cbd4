"""For tests of wake-ups: agents that are woken but kept from running, and runs that nobody executes."""

import uuid

from worktest import WorkTest


class WakeTest(WorkTest):
    def sleeper(self, name="Ada", company=None, **body):
        """An agent whose wake-ups stay queued: it may run one at a time, and seems to run already."""
        agent = self.agent(company or self.acme, name, wakes=True,
                           runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}},
                           adapterConfig={"command": "true"}, **body)
        self.run_row(agent)
        return agent

    def run_row(self, agent, status="running", issue=None, **columns):
        """A run that nobody executes; its id."""
        run = str(uuid.uuid4())
        self.insert_run(agent, run, status)
        for column, value in {"issue_id": issue and issue["id"], **columns}.items():
            self.edit(f"UPDATE heartbeat_runs SET {column} = ? WHERE id = ?", (value, run))
        return run

    def wake(self, agent, status=202, **body):
        return self.ok("POST", f"/api/agents/{agent['id']}/wakeup", body, status=status)

    def runs(self, agent, query=""):
        """Those that a wake-up made, oldest first."""
        path = f"/api/companies/{agent['companyId']}/heartbeat-runs?agentId={agent['id']}{query}"
        return [r for r in reversed(self.ok("GET", path)) if r["wakeupRequestId"]]

    def told(self, run):
        return self.ok("GET", f"/api/heartbeat-runs/{run['id']}")["contextSnapshot"]

    def requests(self, agent):
        return self.daemon.sql("SELECT status, reason, run_id AS run, error, coalesced_count AS count, payload "
                               "FROM agent_wakeup_requests WHERE agent_id = ? ORDER BY requested_at",
                               (agent["id"],))

    def comment(self, issue, body, **more):
        return self.ok("POST", f"/api/issues/{issue['id']}/comments", {"body": body, **more}, status=201)

    def end(self, run):
        self.edit("UPDATE heartbeat_runs SET status = 'succeeded', step = 'done' WHERE id = ?", (run,))
