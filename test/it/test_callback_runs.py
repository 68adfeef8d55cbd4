"""Callbacks of real runs: the agent is a shell script with curl."""

import json

from runtest import RunTest, ident, wait_until

CURL = ('ask() { method=$1; path=$2; shift 2; curl -s -m 20 -o out -w "%{http_code} " -X "$method" '
        '-H "Authorization: Bearer $PAPERCLIP_API_KEY" "$PAPERCLIP_API_URL$path" "$@"; }; '
        'json="Content-Type: application/json"; ')
WORK = (CURL + 'echo "mode=$PAPERCLIP_API_BRIDGE_MODE"; ask GET /api/agents/me; cat out; echo; '
        'ask POST "/api/issues/$PAPERCLIP_TASK_ID/comments" -H "$json" -d \'{"body":"on it"}\'; '
        'ask PATCH "/api/issues/$PAPERCLIP_TASK_ID" -H "$json" -d \'{"status":"done"}\'; '
        'ask DELETE /api/secrets -H "$json" -d "{}"; rm -f out')


class CallbackRunTest(RunTest):
    daemon_binary = "faults"

    def does_its_work(self, environment, mode, statuses, listed):
        agent = self.runner(WORK, environment=environment)
        issue = self.ok("POST", f"/api/companies/{ident(self.acme)}/issues",
                        {"title": "Work", "status": "todo", "assigneeAgentId": agent["id"]}, status=201)
        run = wait_until(lambda: self.daemon.sql("SELECT * FROM heartbeat_runs"), "it is woken")[0]
        row = self.finished(run)
        self.assertEqual(row["status"], "succeeded", self.log_text(run) + self.log_text(run, "stderr"))
        first, me, rest = self.log_text(run).split("\n")
        self.assertEqual((first, rest.split()), (f"mode={mode}", statuses))
        self.assertEqual((me.split(" ")[0], json.loads(me.partition(" ")[2])["id"]), ("200", agent["id"]))
        self.assertEqual(self.ok("GET", f"/api/issues/{issue['id']}")["status"], "done")
        comment = self.ok("GET", f"/api/issues/{issue['id']}/comments")[0]
        self.assertEqual((comment["body"], comment["authorAgentId"]), ("on it", agent["id"]))
        events = wait_until(lambda: len(self.callbacks(run)) == listed and self.callbacks(run), "all are listed")
        self.assertEqual(events[0]["payload"]["path"], "/api/agents/me")
        self.assertEqual([e["payload"]["status"] for e in events][:3], [200, 201, 200])
        self.nothing_held()

    def callbacks(self, run):
        return [e for e in self.run_events(run) if e["eventType"] == "callback"]

    def test_in_a_sandbox(self):
        self.does_its_work(self.sandbox(network="none"), "tunnel_v1", ["201", "200", "403"], 4)

    def test_on_this_machine(self):
        self.does_its_work(None, "", ["201", "200", "404"], 3)

    # The channel outlives the daemon, and ends with the run.
    def test_the_daemon_is_killed(self):
        agent = self.runner(CURL + "echo up; until ask GET /api/agents/me > s && grep -q 200 s && [ -e /tmp/go ]; do "
                            "sleep 0.05; done; echo again", environment=self.sandbox(network="none"))
        run = self.wake(agent)
        self.up(run)
        wait_until(lambda: self.callbacks(run), "it calls")
        before = self.row_of(run)["callback_port"]
        self.daemon.restart(crash=True)
        seen = len(self.callbacks(run))
        wait_until(lambda: len(self.callbacks(run)) > seen, "it calls again")
        self.assertEqual(self.row_of(run)["callback_port"], before)
        self.cancel(run)
        self.finished(run)
        self.nothing_held()
