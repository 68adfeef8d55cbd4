"""The routes of runs: lists, one run, its events, its log by pages, its issues, ending it."""

import json
import unittest
import uuid

from berthtest import BerthTest, wait_until
from waketest import WakeTest
from worktest import MISSING

SILENT = {"lastOutputAt", "lastOutputSeq", "lastOutputStream", "silenceStartedAt", "silenceAgeMs", "level",
          "suspicionThresholdMs", "criticalThresholdMs", "snoozedUntil", "evaluationIssueId",
          "evaluationIssueIdentifier", "evaluationIssueAssigneeAgentId"}


class RunRoutesTest(WakeTest):
    def process(self, script, name="Ada", **body):
        return self.agent(self.acme, name, wakes=True,
                          adapterConfig={"command": "sh", "args": ["-c", script]}, **body)

    def one(self, run):
        return self.ok("GET", f"/api/heartbeat-runs/{ident_of(run)}")

    def finished(self, run):
        return wait_until(lambda: (r := self.one(run))["finishedAt"] and r["step"] == "done" and r, "the run is over")

    def pages(self, run, limit):
        offset, pages = 0, []
        while True:
            page = self.ok("GET", f"/api/heartbeat-runs/{run['id']}/log?offset={offset}&limitBytes={limit}")
            pages.append(page)
            if page.get("eof"):
                return pages
            self.assertGreater(page["nextOffset"], offset)
            offset = page["nextOffset"]

    def test_a_run_from_its_wake_up_to_its_end(self):
        ada = self.process("echo out; echo err >&2")
        run = self.finished(self.wake(ada, triggerDetail="manual"))
        self.assertEqual((run["status"], run["exitCode"], run["error"], run["errorCode"], run["signal"],
                          run["agentName"], run["adapterType"], run["stdoutExcerpt"], run["stderrExcerpt"]),
                         ("succeeded", 0, None, None, None, "Ada", "process", "out\n", "err\n"))
        self.assertEqual((run["logStore"], run["logRef"], run["logCompressed"]),
                         ("local_file", f"{self.acme['id']}/{ada['id']}/{run['id']}.ndjson", False))
        self.assertEqual(set(run["outputSilence"]), SILENT)
        self.assertEqual(run["outputSilence"]["level"], "not_applicable")
        steps = [run["timeline"][k] for k in ("queuedAt", "startedAt", "leasedAt", "spawnedAt", "exitedAt",
                                              "finishedAt", "releasedAt")]
        self.assertEqual((all(steps), steps), (True, sorted(steps)))
        (listed,) = self.ok("GET", f"/api/companies/{self.acme['id']}/heartbeat-runs?agentId={ada['id']}")
        self.assertEqual((listed["id"], listed["stdoutExcerpt"], listed["resultJson"].get("stdout"),
                          listed["contextSnapshot"]),
                         (run["id"], None, None, {"wakeSource": "on_demand", "wakeTriggerDetail": "manual"}))

    def test_events(self):
        run = self.finished(self.wake(self.process("true")))
        path = f"/api/heartbeat-runs/{run['id']}/events"
        events = self.ok("GET", path)
        self.assertEqual([e["seq"] for e in events], list(range(1, len(events) + 1)))
        self.assertEqual([(e["eventType"], e["message"]) for e in (events[0], events[-1])],
                         [("lifecycle", "run started"), ("lifecycle", "run succeeded")])
        self.assertIn("adapter.invoke", [e["eventType"] for e in events])
        self.assertEqual(self.ok("GET", path + "?afterSeq=1&limit=1"), events[1:2])
        self.assertEqual(self.ok("GET", path + "?afterSeq=99"), [])

    def test_events_of_a_cancelled_run(self):
        run = self.wake(self.process("sleep 600"))
        wait_until(lambda: self.one(run)["timeline"]["spawnedAt"], "it runs")
        ended = self.ok("POST", f"/api/heartbeat-runs/{run['id']}/cancel")
        self.assertEqual((ended["status"], ended["error"], ended["errorCode"]),
                         ("cancelled", "Cancelled by control plane", "cancelled"))
        self.assertEqual(self.ok("POST", f"/api/heartbeat-runs/{run['id']}/cancel")["status"], "cancelled")
        self.finished(run)
        said = [e["message"] for e in self.ok("GET", f"/api/heartbeat-runs/{run['id']}/events")
                if e["eventType"] == "lifecycle"]
        self.assertEqual(said, ["run started", "run cancelled"])

    def test_the_log_by_pages(self):
        run = self.finished(self.wake(self.process("for i in 1 2 3 4 5 6; do echo läuft $i; sleep 0.02; done")))
        whole = self.pages(run, 1048576)
        self.assertEqual(len(whole), 1)
        self.assertNotIn("nextOffset", whole[0])
        records = [json.loads(line) for line in whole[0]["content"].splitlines()]
        said = "".join(r["chunk"] for r in records if r["stream"] == "stdout")
        self.assertEqual(said, "".join(f"läuft {i}\n" for i in range(1, 7)))
        small = self.pages(run, 1)  # at least one record each
        self.assertEqual("".join(p["content"] for p in small), whole[0]["content"])
        self.assertGreaterEqual(len(small), len(records))
        for page in small:
            self.assertTrue(page["content"].endswith("\n") or page["content"] == "", page)
        after = self.ok("GET", f"/api/heartbeat-runs/{run['id']}/log?offset=99999999")
        self.assertEqual((after["content"], after["eof"]), ("", True))

    def test_the_end_of_a_log_that_grows(self):
        gate = self.temp_dir() / "gate"
        run = self.wake(self.process(f"echo one; while [ ! -e {gate} ]; do sleep 0.02; done; echo two"))
        log = f"/api/heartbeat-runs/{run['id']}/log"
        wait_until(lambda: (a := self.req("GET", log)).status == 200 and "one" in a.json["content"], "it speaks")
        page = self.ok("GET", log)
        again = self.ok("GET", f"{log}?offset={page['nextOffset']}")
        self.assertEqual((again["content"], again["nextOffset"], "eof" in again), ("", page["nextOffset"], False))
        gate.write_text("")
        self.finished(run)
        last = self.ok("GET", f"{log}?offset={page['nextOffset']}")
        self.assertEqual(("two" in last["content"], last["eof"]), (True, True))

    def test_the_end_of_the_log_of_one_that_was_cancelled(self):
        """It is over at once, and its command goes on for a while. What it says is not cut off."""
        gate = self.temp_dir() / "gate"
        run = self.wake(self.process(f"trap '' TERM; echo one; while [ ! -e {gate} ]; do sleep 0.02; done; echo two"))
        log = f"/api/heartbeat-runs/{run['id']}/log"
        wait_until(lambda: (a := self.req("GET", log)).status == 200 and "one" in a.json["content"], "it speaks")
        self.assertEqual(self.ok("POST", f"/api/heartbeat-runs/{run['id']}/cancel")["status"], "cancelled")
        page = self.ok("GET", log)
        self.assertNotIn("eof", page)
        gate.write_text("")
        self.finished(run)
        last = self.ok("GET", f"{log}?offset={page['nextOffset']}")
        self.assertEqual(("two" in last["content"], last["eof"]), (True, True))

    def test_before_there_is_a_log(self):
        run = self.wake(self.sleeper())
        self.assert_error(self.req("GET", f"/api/heartbeat-runs/{run['id']}/log"), 404, "Run log not found")
        for query in ("offset=-1", "offset=x", "limitBytes=0"):
            self.assert_error(self.req("GET", f"/api/heartbeat-runs/{run['id']}/log?{query}"), 400)

    def test_lists(self):
        ada, bob = self.sleeper(), self.sleeper("Bob")
        runs = [self.wake(ada, payload={"taskKey": str(n)}) for n in range(3)]
        self.wake(bob)
        path = f"/api/companies/{self.acme['id']}/heartbeat-runs"
        found = self.ok("GET", f"{path}?agentId={ada['id']}&limit=2")
        self.assertEqual([r["id"] for r in found], [runs[2]["id"], runs[1]["id"]])
        cursor = self.req("GET", f"{path}?agentId={ada['id']}&limit=2").headers["X-Next-Cursor"]
        rest = self.ok("GET", f"{path}?agentId={ada['id']}&limit=2&cursor={cursor}")
        self.assertEqual(rest[0]["id"], runs[0]["id"])
        self.assertEqual(len(self.ok("GET", path)), 6)  # and one of each that seems to run
        self.assertEqual(len(self.ok("GET", f"{path}?limit=0")), 1)
        live = f"/api/companies/{self.acme['id']}/live-runs"
        self.assertEqual({r["status"] for r in self.ok("GET", live)}, {"queued", "running"})
        self.assertEqual(self.ok("GET", f"{live}?limit=1")[0]["agentName"], "Bob")
        self.ok("POST", f"/api/heartbeat-runs/{runs[0]['id']}/cancel")
        self.assertEqual((len(self.ok("GET", live)), len(self.ok("GET", f"{live}?minCount=6"))), (5, 6))
        self.assert_error(self.req("GET", f"/api/companies/{MISSING}/live-runs"), 404, "Company not found")

    def test_runs_of_an_issue(self):
        ada = self.sleeper()
        issue = self.issue(assigneeAgentId=ada["id"])
        (run,) = self.runs(ada)
        path = f"/api/issues/{issue['identifier']}"
        self.assertEqual(self.ok("GET", f"{path}/active-run")["id"], run["id"])
        self.assertEqual([r["id"] for r in self.ok("GET", f"{path}/live-runs")], [run["id"]])
        running = self.run_row(ada, issue=issue)
        self.assertEqual(self.ok("GET", f"{path}/active-run")["id"], running)  # before what waits
        self.assertEqual(self.agent_ok(ada, "GET", "/api/agents/me/inbox-lite")[0]["activeRun"]["id"], running)
        self.end(running)
        self.ok("POST", f"/api/heartbeat-runs/{run['id']}/cancel")
        self.assertIsNone(self.ok("GET", f"{path}/active-run"))
        self.assertIsNone(self.agent_ok(ada, "GET", "/api/agents/me/inbox-lite")[0]["activeRun"])
        self.assertEqual((self.ok("GET", f"{path}/live-runs"), {r["runId"] for r in self.ok("GET", f"{path}/runs")}),
                         ([], {run["id"], running}))
        self.assert_error(self.req("GET", f"/api/issues/{MISSING}/runs"), 404, "Issue not found")

    # http-api 8.90
    def test_issues_of_a_run(self):
        ada = self.sleeper()
        issue, other = self.issue(assigneeAgentId=ada["id"]), self.issue("other")
        (run,) = self.runs(ada)
        self.agent_ok(ada, "POST", f"/api/issues/{other['id']}/comments", {"body": "seen"}, run=run["id"], status=201)
        touched = self.ok("GET", f"/api/heartbeat-runs/{run['id']}/issues")
        self.assertEqual([(i["issueId"], i["identifier"]) for i in touched],
                         [(issue["id"], issue["identifier"]), (other["id"], other["identifier"])])
        self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{MISSING}/issues"), [])
        self.assertEqual(self.ok("GET", f"/api/heartbeat-runs/{run['id']}/workspace-operations"), [])

    def test_a_silent_run(self):
        ada = self.sleeper()
        run = self.run_row(ada, started_at=1, last_output_at=2)
        self.assertEqual(self.one(run)["outputSilence"]["level"], "critical")
        path = f"/api/heartbeat-runs/{run}/watchdog-decisions"
        for body in ({}, {"decision": "sleep"}, {"decision": "snooze"}, {"decision": "snooze", "snoozedUntil": "soon"}):
            self.assert_error(self.req("POST", path, body), 400, "Validation error")
        made = self.ok("POST", path, {"decision": "snooze", "snoozedUntil": "2099-01-01T00:00:00Z", "reason": "known"})
        self.assertEqual((made["decision"], made["runId"], made["createdByUserId"]), ("snooze", run, "local-board"))
        silence = self.one(run)["outputSilence"]
        self.assertEqual((silence["level"], silence["snoozedUntil"]), ("snoozed", "2099-01-01T00:00:00.000Z"))
        self.ok("POST", path, {"decision": "dismissed_false_positive"})
        self.assertEqual(self.one(run)["outputSilence"]["level"], "ok")
        self.assertEqual(self.one(self.wake(ada))["outputSilence"]["level"], "not_applicable")

    # http-api 8.85
    def test_who_may_look_and_end(self):
        ada = self.sleeper()
        run = self.wake(ada)
        stranger = self.board_user(self.company("Other"), user="bob", role="owner")["token"]
        text = "User does not have access to this company"
        base = f"/api/heartbeat-runs/{run['id']}"
        self.assert_error(self.req("POST", f"{base}/cancel", token=stranger), 403, text)
        for path in (base, f"{base}/events", f"{base}/log", f"{base}/issues", f"{base}/workspace-operations",
                     f"/api/companies/{self.acme['id']}/heartbeat-runs", f"/api/companies/{self.acme['id']}/live-runs"):
            with self.subTest(path=path):
                self.assert_error(self.req("GET", path, token=stranger), 403, text)
        self.assert_error(self.as_agent(ada, "POST", f"{base}/cancel"), 403, "Board access required")
        self.assertEqual(self.one(run)["status"], "queued")
        for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/events"), ("GET", "/log")):
            self.assert_error(self.req(method, f"/api/heartbeat-runs/{uuid.uuid4()}{path}"), 404,
                              "Heartbeat run not found")
        self.assert_error(self.req("GET", "/api/heartbeat-runs/nonsense"), 404, "Heartbeat run not found")


class AnonymousTest(BerthTest):
    daemon_flags = ("--mode", "authenticated")

    # http-api 8.90
    def test_nobody_learns_whether_a_run_is_there(self):
        for path in ("", "/issues", "/events", "/log", "/workspace-operations"):
            self.assert_error(self.req("GET", f"/api/heartbeat-runs/{MISSING}{path}"), 401, "Unauthorized")


def ident_of(run):
    return run["id"] if isinstance(run, dict) else run


if __name__ == "__main__":
    unittest.main()
