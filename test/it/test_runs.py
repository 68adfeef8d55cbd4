"""Runs: an agent is woken, works in its environment, and what it did is recorded."""
# threads: the run host, its jobs and the sweeper

import contextlib
import json
import shutil
import sqlite3
import unittest

import berthtest
from runtest import HOLD, HookTest, RunTest, wait_until


class LocalTest(RunTest):
    def test_a_run_from_wake_to_done(self):
        """environment-runtime 7.117, where the company's default environment is Local: one lease, released; the context
        names both."""
        agent = self.runner('echo hello; echo "$PAPERCLIP_AGENT_ID"')
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["exitCode"], run["errorCode"]), ("succeeded", 0, None), run)
        self.assertEqual(self.log_text(run), f"hello\n{agent['id']}\n")
        envs = self.ok("GET", f"/api/companies/{self.acme['id']}/environments")
        self.assertEqual([(e["name"], e["driver"]) for e in envs], [("Local", "local")])
        (lease,) = self.leases(run)
        self.assertEqual((lease["status"], lease["provider"]), ("released", "local"))
        self.assertIsNotNone(lease["released_at"])
        place = run["contextSnapshot"]["paperclipEnvironment"]
        self.assertEqual((place["id"], place["leaseId"]), (envs[0]["id"], lease["id"]))
        self.assertEqual(self.began(), {run["id"]: 1})
        self.assertEqual(self.messages(run), ["run started", "adapter invocation", "run succeeded"])
        self.assertEqual([e["seq"] for e in self.run_events(run)], [1, 2, 3])
        self.nothing_held()

    def test_the_order_of_its_times(self):
        row = self.row_of(self.finished(self.wake(self.runner("echo short"))))
        names = ("created", "started", "leased", "staged", "spawned", "first_output", "exited", "finished", "released")
        times = [row[f"{name}_at"] for name in names]
        self.assertNotIn(None, times)
        self.assertEqual(times, sorted(times))

    def test_a_command_that_fails(self):
        run = self.finished(self.wake(self.runner("echo so >&2; exit 7")))
        self.assertEqual((run["status"], run["exitCode"], run["errorCode"]), ("failed", 7, "adapter_failed"))
        self.assertEqual(self.log_text(run, "stderr"), "so\n")
        self.assertEqual([l["status"] for l in self.leases(run)], ["failed"])
        self.nothing_held()

    def test_a_command_that_is_killed(self):
        run = self.finished(self.wake(self.runner("kill -9 $$")))
        self.assertEqual((run["status"], run["signal"], run["errorCode"]), ("failed", "SIGKILL", "adapter_failed"), run)
        self.assertEqual(len(self.runs()), 1)

    def test_a_command_that_is_none(self):
        agent = self.agent(self.acme, adapterType="process", adapterConfig={"command": "/no/such/program"})
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "adapter_failed"))
        self.assertTrue(run["error"])
        self.assertEqual(len(self.runs()), 1)  # not the machine's fault: not tried again

    def test_without_a_directory_it_works_in_its_own(self):
        agent = self.agent(self.acme, adapterType="process", adapterConfig={"command": "/bin/pwd"})
        run = self.finished(self.wake(agent))
        self.assertEqual(self.log_text(run), f"{self.daemon.data}/agents/{agent['id']}\n")

    def test_time_limit(self):
        """remote-execution 8.46, 8.58: timeoutSec ends the command and what it started."""
        agent = self.runner("sleep 1000 & echo $! > child; wait", adapter={"timeoutSec": 1})
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["resultJson"]["timeoutFired"]), ("timed_out", True))
        self.assertTrue(run["resultJson"]["timeoutConfigured"])
        self.assertEqual([l["status"] for l in self.leases(run)], ["failed"])
        self.nothing_held()

    def test_no_time_limit(self):
        """remote-execution 8.56: 0 sets no limit, and says so to the box."""
        run = self.finished(self.wake(self.runner("echo done", adapter={"timeoutSec": 0})))
        self.assertEqual((run["status"], self.log_text(run)), ("succeeded", "done\n"))
        self.assertEqual((run["resultJson"]["timeoutFired"], run["resultJson"]["effectiveTimeoutSec"]), (False, 0))
        (execution,) = self.daemon.sql("SELECT * FROM executions WHERE idempotency_key = ?", (f"run:{run['id']}",))
        self.assertFalse(execution["timeout_ms"])

    def test_at_most_so_many_at_once(self):
        agent = self.runner(HOLD, runtimeConfig={"heartbeat": {"maxConcurrentRuns": 2}})
        runs = self.wake_several(agent, 4)
        self.up(runs[0])
        self.up(runs[1])
        # The oldest are first, and the others wait.
        self.assertEqual([self.row_of(r)["status"] for r in runs], ["running", "running", "queued", "queued"])
        # Room for one is room for one.
        self.cancel(runs[0])
        self.up(runs[2])
        self.assertEqual([self.row_of(r)["status"] for r in runs], ["cancelled", "running", "running", "queued"])
        self.release_held()
        for run in runs[1:]:
            self.assertEqual(self.finished(run)["status"], "succeeded")
        self.nothing_held()

    def test_what_its_status_and_its_agent_say(self):
        agent = self.runner(HOLD)
        run = self.wake(agent)
        self.up(run)
        self.assertEqual(self.ok("GET", f"/api/agents/{agent['id']}")["status"], "running")
        wakeup = lambda: self.daemon.sql("SELECT status, claimed_at, finished_at FROM agent_wakeup_requests")[0]
        self.assertEqual((wakeup()["status"], bool(wakeup()["claimed_at"]), wakeup()["finished_at"]), ("claimed", True, None))
        self.release_held()
        self.finished(run)
        self.assertEqual((wakeup()["status"], bool(wakeup()["finished_at"])), ("completed", True))
        now = self.ok("GET", f"/api/agents/{agent['id']}")
        self.assertEqual(now["status"], "idle")
        self.assertIsNotNone(now["lastHeartbeatAt"])
        state = self.ok("GET", f"/api/agents/{agent['id']}/runtime-state")
        self.assertEqual((state["lastRunId"], state["lastRunStatus"]), (run["id"], "succeeded"))
        self.assertEqual(self.finished(self.wake(self.runner("exit 1", "Bob")))["status"], "failed")
        bob = next(a for a in self.ok("GET", f"/api/companies/{self.acme['id']}/agents") if a["name"] == "Bob")
        self.assertEqual(bob["status"], "error")

    def test_the_issue_is_its_own_while_it_runs(self):
        agent = self.runner(HOLD)
        issue = self.ok("POST", f"/api/companies/{self.acme['id']}/issues",
                        {"title": "work", "status": "todo", "assigneeAgentId": agent["id"]}, status=201)
        wait_until(self.runs, "the assignment wakes the agent")
        run = self.runs()[0]
        self.up(run)
        now = self.ok("GET", f"/api/issues/{issue['id']}")
        self.assertEqual((now["status"], now["checkoutRunId"], now["executionRunId"]),
                         ("in_progress", run["id"], run["id"]))
        self.release_held()
        self.finished(run)
        now = self.ok("GET", f"/api/issues/{issue['id']}")
        self.assertEqual((now["checkoutRunId"], now["executionRunId"]), (None, None))
        self.nothing_held()

    def test_whose_issue_it_is_not(self):
        """A run takes what is its agent's, what nobody works on, and what waits for nothing."""
        ada, bob = self.runner(HOLD), self.runner(HOLD, "Bob")
        issues = f"/api/companies/{self.acme['id']}/issues"
        lock = lambda: [self.daemon.sql("SELECT status, checkout_run_id, execution_run_id FROM issues WHERE id = ?",
                                        (issue["id"],))[0][k] for k in ("status", "checkout_run_id", "execution_run_id")]
        # Somebody else's.
        issue = self.ok("POST", issues, {"title": "bob's", "status": "backlog", "assigneeAgentId": bob["id"]}, status=201)
        self.up(self.wake(ada, payload={"issueId": issue["id"]}))
        self.assertEqual(lock(), ["backlog", None, None])
        # One that waits for another; who is spoken to answers.
        issue = self.ok("POST", issues, {"title": "later", "status": "todo", "assigneeAgentId": ada["id"],
                                         "blockedByIssueIds": [issue["id"]]}, status=201)
        comment = self.ok("POST", f"/api/issues/{issue['id']}/comments", {"body": "when?"}, status=201)
        (run,) = wait_until(lambda: [r for r in self.runs() if comment["id"] in (r["context_snapshot"] or "")], "a run")
        self.up(run)
        self.assertEqual(lock(), ["todo", None, None])
        # One that another run of the same agent works on.
        issue = self.ok("POST", issues, {"title": "work", "status": "todo", "assigneeAgentId": ada["id"]}, status=201)
        (first,) = wait_until(lambda: [r for r in self.runs() if r["issue_id"] == issue["id"]], "a run")
        self.up(first)
        self.up(self.wake(ada, reason="issue_comment_mentioned", payload={"issueId": issue["id"]}))
        self.assertEqual(lock(), ["in_progress", first["id"], first["id"]])
        self.release_held()
        self.nothing_held()

    def test_an_agent_that_was_paused_meanwhile(self):
        agent = self.runner(HOLD, runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        first, second = self.wake_several(agent, 2)
        self.up(first)
        self.ok("POST", f"/api/agents/{agent['id']}/pause", {})
        for run in (first, second):
            self.assertEqual(self.finished(run)["status"], "cancelled")
        self.assertEqual(list(self.began()), [first["id"]])
        self.assertEqual(self.ok("GET", f"/api/agents/{agent['id']}")["status"], "paused")
        self.nothing_held()

    @berthtest.sqlite_only
    def test_one_that_cannot_be_claimed(self):
        """It keeps nobody else from working, and begins when it can."""
        ada, bob = self.runner("true"), self.runner("true", "Bob")
        self.edit("CREATE TRIGGER in_the_way BEFORE UPDATE ON heartbeat_runs "
                  f"WHEN NEW.status = 'running' AND NEW.agent_id = '{ada['id']}' "
                  "BEGIN SELECT RAISE(ABORT, 'in the way'); END")
        first = self.wake(ada)
        self.assertEqual(self.finished(self.wake(bob))["status"], "succeeded")
        self.assertEqual(self.row_of(first)["status"], "queued")
        self.edit("DROP TRIGGER in_the_way")
        self.assertEqual(self.finished(first)["status"], "succeeded")

    def test_one_that_may_not_run_when_its_turn_comes(self):
        agent = self.runner(HOLD, runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        first, second = self.wake_several(agent, 2)
        self.up(first)
        self.edit("UPDATE agents SET status = 'paused' WHERE id = ?", (agent["id"],))
        self.release_held()
        self.finished(first)
        run = self.finished(second)
        self.assertEqual((run["status"], run["errorCode"]), ("cancelled", "agent_not_invokable"))

    def test_what_it_is_told_about_its_issue(self):
        agent = self.runner('printf %s "$PAPERCLIP_WAKE_PAYLOAD_JSON"')
        task = self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "Mend it", "status": "backlog"}, 201)
        said = self.ok("POST", f"/api/issues/{task['id']}/comments", {"body": "now, please"}, 201)
        long = self.ok("POST", f"/api/issues/{task['id']}/comments", {"body": "x" * 9000}, 201)
        for comment, told in ((said, ("now, please", False)), (long, ("x" * 8192, True))):
            run = self.finished(self.wake(agent, reason="issue_commented",
                                          payload={"issueId": task["id"], "commentId": comment["id"]}))
            wake = json.loads(self.log_text(run))
            self.assertEqual(wake["reason"], "issue_commented")
            self.assertEqual((wake["issue"]["identifier"], wake["issue"]["title"]), (task["identifier"], "Mend it"))
            self.assertEqual([(c["body"], c["truncated"]) for c in wake["comments"]], [told])
        # It is cut between characters, never within one.
        wide = self.ok("POST", f"/api/issues/{task['id']}/comments", {"body": "x" + "\u20ac" * 3000}, 201)
        run = self.finished(self.wake(agent, payload={"issueId": task["id"], "commentId": wide["id"]}))
        (said,) = json.loads(self.log_text(run))["comments"]
        self.assertEqual((said["body"], said["truncated"]), ("x" + "\u20ac" * 2730, True))

    def test_the_record_of_its_command_is_gone(self):
        """Deleting an environment takes the records with it. The run ends all the same."""
        run = self.wake(self.runner(HOLD))
        self.up(run)
        self.edit("DELETE FROM executions")
        self.release_held()
        run = self.finished(run)
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "process_lost"))
        self.assertEqual(len(self.runs()), 1)

    def test_variables(self):
        """http-api, section 7, and remote-execution, section 6.2: also for `process`; what the agent's configuration sets wins."""
        agent = self.runner("env", adapter={"env": {"PAPERCLIP_COMPANY_ID": "mine", "PLAIN": "1"}})
        run = self.finished(self.wake(agent))
        got = dict(line.split("=", 1) for line in self.log_text(run).splitlines() if "=" in line)
        self.assertEqual(got["PAPERCLIP_RUN_ID"], run["id"])
        self.assertEqual(got["PAPERCLIP_AGENT_ID"], agent["id"])
        self.assertEqual((got["PAPERCLIP_COMPANY_ID"], got["PLAIN"]), ("mine", "1"))


class SessionTest(RunTest):
    def test_a_session_that_is_used_up(self):
        """It is not taken up again: the next run begins anew."""
        program = self.work / "claude"
        program.write_text("""#!/bin/sh
case "$*" in *--resume*)
echo '{"type":"result","subtype":"error_max_turns","is_error":true,"session_id":"s1","result":"maximum turns reached"}'
exit 1;; esac
echo '{"type":"system","subtype":"init","session_id":"s1","model":"m1"}'
echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s1","result":"done"}'
""")
        program.chmod(0o755)
        agent = self.agent(self.acme, adapterType="claude_local",
                           adapterConfig={"command": str(program), "cwd": str(self.work)})
        kept = lambda: [row["session_id"] for row in self.daemon.sql("SELECT * FROM agent_runtime_state")]
        for status, session in (("succeeded", "s1"), ("failed", None), ("succeeded", "s1")):
            run = self.finished(self.wake(agent))
            self.assertEqual((run["status"], kept()), (status, [session]), run)


class CancelTest(RunTest):
    def test_one_that_waits(self):
        agent = self.runner(HOLD, runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        first, second = self.wake_several(agent, 2)
        self.up(first)
        run = self.cancel(second)
        self.assertEqual((run["status"], run["errorCode"], run["error"]),
                         ("cancelled", "cancelled", "Cancelled by control plane"))
        self.assertEqual(self.row_of(second)["step"], "done")
        self.release_held()
        self.assertEqual(self.finished(first)["status"], "succeeded")
        self.assertEqual(list(self.began()), [first["id"]])
        self.nothing_held()

    def test_one_that_runs(self):
        agent = self.runner("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.02; done")
        run = self.wake(agent)
        self.up(run)
        told = self.cancel(run)
        self.assertEqual((told["status"], told["resultJson"]["stopReason"]), ("cancelled", "cancelled"))
        run = self.finished(run)
        self.assertEqual((run["status"], run["error"]), ("cancelled", "Cancelled by control plane"))
        self.assertEqual(self.log_text(run), "up\nbye\n")  # what it says at its end is kept
        self.assertEqual([l["status"] for l in self.leases(run)], ["released"])
        self.assertEqual(self.cancel(run)["finishedAt"], run["finishedAt"])  # again: as it is
        self.nothing_held()

    def test_one_of_two(self):
        agent = self.runner(HOLD)
        first, second = self.wake_several(agent, 2)
        self.up(first)
        self.up(second)
        self.cancel(first)
        self.finished(first)
        status = lambda: self.ok("GET", f"/api/agents/{agent['id']}")["status"]
        self.assertEqual(status(), "running")  # the other one goes on
        self.release_held()
        self.assertEqual(self.finished(second)["status"], "succeeded")
        self.assertEqual(status(), "idle")
        self.nothing_held()

    def test_one_that_does_not_listen(self):
        agent = self.runner("trap '' TERM; echo up; while :; do sleep 0.02; done", adapter={"graceSec": 1})
        run = self.wake(agent)
        self.up(run)
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")
        self.nothing_held()

    def test_while_it_is_prepared(self):
        env = self.sandbox()
        runs = []
        for i in range(6):  # at whatever point each of them is
            agent = self.runner("sleep 1000", f"Agent {i}", environment=env)
            runs.append(self.wake(agent))
            wait_until(lambda run=runs[-1]: self.row_of(run)["status"] != "queued", "it was claimed")
            self.cancel(runs[-1])
        for run in runs:
            self.assertEqual(self.finished(run)["status"], "cancelled")
        self.nothing_held()


class UnsweptTest(RunTest):
    """What happens next happens at once, and not when somebody looks by chance."""
    daemon_env = {**RunTest.daemon_env, "BERTH_SWEEP_INTERVAL_MS": "3600000"}

    def test_the_next_one_begins_when_there_is_room(self):
        agent = self.runner(HOLD, runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        first, second, third = self.wake_several(agent, 3)
        self.up(first)
        self.cancel(first)
        self.assertEqual(self.finished(first)["status"], "cancelled")
        self.up(second)
        self.release_held()
        for run in (second, third):
            self.assertEqual(self.finished(run)["status"], "succeeded")

    def test_who_waited_for_the_issue_is_next(self):
        ada, bob = self.runner(HOLD), self.runner("true", "Bob")
        issue = self.ok("POST", f"/api/companies/{self.acme['id']}/issues",
                        {"title": "work", "status": "todo", "assigneeAgentId": ada["id"]}, status=201)
        run = wait_until(self.runs, "the assignment wakes the agent")[0]
        self.up(run)
        told = self.wake(bob, payload={"issueId": issue["id"]})
        self.assertEqual(told["reason"], "issue_execution_deferred")
        self.release_held()
        self.finished(run)
        _, second = wait_until(lambda: len(self.runs()) == 2 and self.runs(), "what was deferred is taken up")
        self.assertEqual(self.finished(second)["agentId"], bob["id"])


class SandboxRunTest(RunTest):
    def test_its_changes_come_home(self):
        env = self.sandbox()
        (self.work / "in").write_text("there\n")
        agent = self.runner("cat in; echo made > out; rm in; pwd", environment=env)
        run = self.finished(self.wake(agent))
        self.assertEqual(run["status"], "succeeded", run)
        self.assertEqual(self.log_text(run).splitlines()[0], "there")
        self.assertEqual((self.work / "out").read_text(), "made\n")
        self.assertFalse((self.work / "in").exists())
        self.assertEqual(self.began(), {run["id"]: 1})
        (lease,) = self.leases(run)
        place = run["contextSnapshot"]["paperclipEnvironment"]
        self.assertEqual((place["driver"], place["leaseId"]), ("sandbox", lease["id"]))
        self.assertTrue(place["workspaceRealization"])
        self.nothing_held()

    def test_what_a_cancelled_one_did_comes_home_too(self):
        env = self.sandbox()
        agent = self.runner("echo made > out; echo up; sleep 1000", environment=env)
        run = self.wake(agent)
        self.up(run)
        self.cancel(run)
        self.assertEqual(self.finished(run)["status"], "cancelled")
        self.assertEqual((self.work / "out").read_text(), "made\n")
        self.nothing_held()

    def test_changes_that_cannot_come_home(self):
        """It did its work, and still it failed: nobody has what it made. It is saved."""
        agent = self.runner("echo made > out; echo up; while [ ! -e /tmp/go ]; do sleep 0.02; done",
                            environment=self.sandbox())
        run = self.wake(agent)
        self.up(run)
        (lease,) = self.leases(run)
        shutil.rmtree(self.work)
        self.work.write_text("in the way\n")
        self.ok("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "touch", "args": ["/tmp/go"]})
        run = self.finished(run)
        self.assertEqual((run["status"], run["exitCode"], run["errorCode"]), ("failed", 0, "workspace_restore_failed"), run)
        self.assertRegex(run["error"], "^Failed to restore workspace: .")
        self.assertIn("What the run changed could not be brought home; it is saved.", self.messages(run))
        self.assertEqual(len(self.daemon.sql("SELECT * FROM salvages WHERE lease_id = ?", (lease["id"],))), 1)
        self.work.unlink()
        self.work.mkdir()

    def test_an_adapter_that_cannot_work_there(self):
        """H28: it does not run here instead."""
        env = self.sandbox()
        agent = self.agent(self.acme, adapterType="openclaw_gateway")
        self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (env["id"], agent["id"]))
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["errorCode"]), ("failed", "unsupported_adapter_environment"))
        self.assertEqual(self.leases(run), [])


class SelectTest(RunTest):
    """environment-runtime, section 5.1, without anything that would take long: the environments are ones that nobody can use."""

    def setUp(self):
        super().setUp()
        self.envs = {name: self.environment(self.acme, name=name) for name in ("agent", "project", "issue", "workspace")}
        for env in self.envs.values():  # refused before anything is leased, with its name in the text
            self.edit("UPDATE environments SET status = 'archived' WHERE id = ?", (env["id"],))

    def chosen(self, run):
        run = self.finished(run)
        if run["status"] == "succeeded":
            return "local"
        self.assertEqual(run["errorCode"], "environment_inactive", run)
        return run["error"].split('"')[1]

    def select(self, agent_env=True, project=True, issue=True, isolated=True):
        agent = self.runner("true")
        if agent_env:
            self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?",
                      (self.envs["agent"]["id"], agent["id"]))
        self.edit("INSERT INTO instance_settings (singleton_key, experimental, created_at, updated_at) "
                  "VALUES ('default', ?, 1, 1) ON CONFLICT (singleton_key) DO UPDATE SET experimental = excluded.experimental",
                  ('{"enableIsolatedWorkspaces": true}' if isolated else "{}",))
        made = self.ok("POST", f"/api/companies/{self.acme['id']}/projects", {"name": "proj"}, status=201)
        if project:
            self.edit("UPDATE projects SET execution_workspace_policy = ? WHERE id = ?",
                      ('{"enabled": true, "environmentId": "%s"}' % self.envs["project"]["id"], made["id"]))
        task = self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "t", "projectId": made["id"]},
                       status=201)
        if issue:
            self.edit("UPDATE issues SET execution_workspace_settings = ? WHERE id = ?",
                      ('{"environmentId": "%s"}' % self.envs["issue"]["id"], task["id"]))
        return agent, task

    def wake_for(self, agent, task):
        return self.wake(agent, payload={"issueId": task["id"]})

    def test_the_issue_wins(self):
        """environment-runtime 7.116: also over a workspace that is not reused."""
        agent, task = self.select()
        self.assertEqual(self.chosen(self.wake_for(agent, task)), "issue")
        self.edit("UPDATE execution_workspaces SET metadata = ?",
                  ('{"config": {"environmentId": "%s"}}' % self.envs["workspace"]["id"],))
        self.assertEqual(self.chosen(self.wake_for(agent, task)), "issue")
        (workspace,) = self.daemon.sql("SELECT * FROM execution_workspaces")  # and it is told
        self.assertEqual(json.loads(workspace["metadata"])["config"]["environmentId"], self.envs["issue"]["id"])

    def test_then_the_project_then_the_agent_then_the_company(self):
        for what, wanted in ((("issue",), "project"), (("issue", "project"), "agent"),
                             (("issue", "project", "agent_env"), "local")):
            agent, task = self.select(**{name: False for name in what})
            self.assertEqual(self.chosen(self.wake_for(agent, task)), wanted)

    def test_without_isolated_workspaces_only_the_agent_counts(self):
        agent, task = self.select(isolated=False)
        self.assertEqual(self.chosen(self.wake_for(agent, task)), "agent")

    def test_a_reused_workspace_is_first(self):
        agent, task = self.select()
        self.assertEqual(self.chosen(self.wake_for(agent, task)), "issue")
        (workspace,) = self.daemon.sql("SELECT * FROM execution_workspaces")
        self.edit("UPDATE issues SET execution_workspace_preference = 'reuse_existing' WHERE id = ?", (task["id"],))
        self.edit("UPDATE execution_workspaces SET metadata = ? WHERE id = ?",
                  ('{"config": {"environmentId": "%s"}}' % self.envs["workspace"]["id"], workspace["id"]))
        self.assertEqual(self.chosen(self.wake_for(agent, task)), "workspace")
        # One whose configuration names none pins the run to the company's default, and is left as it is.
        self.edit("UPDATE execution_workspaces SET metadata = ? WHERE id = ?",
                  ('{"config": {"desiredState": "running"}}', workspace["id"]))
        run = self.finished(self.wake_for(agent, task))  # which is this machine, and the agent's own is a sandbox
        self.assertEqual((run["errorCode"], run["error"].split('"')[1]), ("environment_not_isolated", "Local"))
        self.edit("UPDATE agents SET default_environment_id = NULL WHERE id = ?", (agent["id"],))
        self.assertEqual(self.chosen(self.wake_for(agent, task)), "local")
        (workspace,) = self.daemon.sql("SELECT * FROM execution_workspaces")
        self.assertEqual(json.loads(workspace["metadata"])["config"], {"desiredState": "running"})
        self.edit("UPDATE execution_workspaces SET status = 'archived' WHERE id = ?", (workspace["id"],))
        self.assertEqual(self.chosen(self.wake_for(agent, task)), "issue")

    def test_one_that_is_not_there(self):
        agent = self.runner("true")
        other = self.environment(self.company("Other"), name="foreign")
        for ident_, text in ((other["id"], f'Environment "{other["id"]}" does not belong to this company.'),):
            self.edit("UPDATE agents SET default_environment_id = ? WHERE id = ?", (ident_, agent["id"]))
            run = self.finished(self.wake(agent))
            self.assertEqual((run["errorCode"], run["error"]), ("environment_not_found", text))

    def nothing_left(self):
        self.edit("UPDATE environments SET status = 'active'")
        super().nothing_left()


class HttpTest(HookTest):
    def test_cancelled_before_its_turn(self):
        """Only some requests are made at a time. One that was cancelled while it waited is never made."""
        self.gate.clear()
        runs = self.wake_several(self.hook(), 5)
        for run in runs:
            self.wait_for(run, step="executing")
        wait_until(lambda: len(self.requests) == 4, "as many as there may be")
        sent = b"".join(body for _, _, body in self.requests)
        (waiting,) = [run for run in runs if run["id"].encode() not in sent]
        self.cancel(waiting)
        self.assertEqual(self.finished(waiting)["status"], "cancelled")  # and does not wait for the others
        self.gate.set()
        self.assertEqual([self.finished(run)["status"] for run in runs if run is not waiting], ["succeeded"] * 4)
        self.assertEqual(len(self.requests), 4)
        self.nothing_held()

    @berthtest.sqlite_only
    def test_an_answer_that_cannot_be_recorded_at_once(self):
        self.gate.clear()
        run = self.wake(self.hook())
        wait_until(lambda: self.requests, "it is made")
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db", timeout=20)) as other:
            other.execute("BEGIN IMMEDIATE")
            self.gate.set()
            wait_until(lambda: "cannot be recorded yet" in self.daemon.log(), "it is noticed", 60)
            other.rollback()
        self.assertEqual((self.finished(run)["status"], len(self.requests)), ("succeeded", 1))
        self.nothing_held()

    def test_a_request(self):
        agent = self.hook()
        run = self.finished(self.wake(agent))
        self.assertEqual(run["status"], "succeeded", run)
        self.assertEqual(len(self.requests), 1)
        self.assertIn(run["id"].encode(), self.requests[0][2])
        self.assertEqual(self.requests[0][1]["Idempotency-Key"], run["id"])
        self.status = 500
        run = self.finished(self.wake(agent))
        self.assertEqual((run["status"], run["error"]), ("failed", "HTTP invoke failed with status 500"))
        self.assertEqual(len(self.requests), 2)
        self.nothing_held()


if __name__ == "__main__":
    unittest.main()
