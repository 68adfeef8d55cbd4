"""The log of a run while it is written: followed as events and as lines, over restarts, bounded, and told live."""
# threads: a log that is read while it is written

import contextlib
import json
import re
import unittest

from berthtest import ident, wait_until
from exectest import memory_tells
from runtest import HOLD, RunTest
from websockettest import PING_MS, Reading, WebSocket


class FollowTest(RunTest):
    def stream(self, run, **more):
        stream = self.daemon.events(f"/api/heartbeat-runs/{ident(run)}/stream", **more)
        self.addCleanup(stream.close)
        self.assertEqual(stream.status, 200)
        return stream

    def until(self, stream, text):
        """Read records until `text` was printed: the records, and the id of the last."""
        records, ident_ = [], None
        while text not in "".join(r["chunk"] for r in records):
            event = stream.next()
            self.assertEqual(event.type, "log")
            records.append(event.json)
            ident_ = event.id
        return records, ident_

    def rest(self, stream):
        """Everything up to the end: the records and the last event."""
        records = []
        while (event := stream.next()).type == "log":
            records.append(event.json)
        self.assertEqual(event.type, "end")
        self.assertIsNone(stream.next())
        return records, event.json

    @staticmethod
    def printed(records, stream="stdout"):
        return "".join(r["chunk"] for r in records if r["stream"] == stream)


class Following(FollowTest):
    def test_as_it_is_written_and_coming_back(self):
        run = self.wake(self.runner("echo one; echo oops >&2; while [ ! -e go ]; do sleep 0.02; done; echo two"))
        stream = self.stream(run)
        first, at = self.until(stream, "one\n")
        stream.close()
        again = self.stream(run, headers={"Last-Event-ID": at})
        self.release_held()
        records, end = self.rest(again)
        self.assertEqual(end, {"runId": run["id"], "status": "succeeded", "exitCode": 0})
        self.assertEqual(self.printed(first + records), "one\ntwo\n")
        self.assertEqual(self.printed(first + records, "stderr"), "oops\n")
        self.assertEqual([r["seq"] for r in first + records], list(range(1, len(first + records) + 1)))
        # Afterwards the whole of it, and the same as pages (http-api, section 9.8).
        records, _ = self.rest(self.stream(run))
        content, offset = "", 0
        while True:
            page = self.ok("GET", f"/api/heartbeat-runs/{run['id']}/log?offset={offset}&limitBytes=1")
            self.assertTrue(page["content"] == "" or page["content"].endswith("\n"))
            content += page["content"]
            if page.get("eof"):
                break
            offset = page["nextOffset"]
        self.assertEqual([json.loads(line) for line in content.splitlines()], records)

    def test_as_lines(self):
        run = self.wake(self.runner("seq 1 1000"))
        answer = self.req("GET", f"/api/heartbeat-runs/{run['id']}/log?follow=1")
        self.assertEqual(answer.headers["Content-Type"], "application/x-ndjson; charset=utf-8")
        records = [json.loads(line) for line in answer.text.splitlines()]
        self.assertEqual(self.printed(records), "".join(f"{i}\n" for i in range(1, 1001)))

    def test_over_a_restart(self):
        run = self.wake(self.runner("i=0; while [ ! -e go ]; do i=$((i+1)); echo $i; sleep 0.01; done; echo end $i"))
        records, at = self.until(self.stream(run), "20\n")
        for crash in (True, False):
            self.daemon.restart(crash=crash)
            more, at = self.until(self.stream(run, headers={"Last-Event-ID": at}), "1\n")
            records += more
        stream = self.stream(run, headers={"Last-Event-ID": at})
        self.release_held()
        more, end = self.rest(stream)
        self.assertEqual(end["status"], "succeeded")
        text = self.printed(records + more)
        last = int(re.search(r"end (\d+)\n$", text)[1])
        self.assertEqual(text, "".join(f"{i}\n" for i in range(1, last + 1)) + f"end {last}\n")

    def test_cancelled(self):
        run = self.wake(self.runner("echo up; exec sleep 1000"))
        stream = self.stream(run)
        self.until(stream, "up\n")
        self.cancel(run)
        _, end = self.rest(stream)
        self.assertEqual(end["status"], "cancelled")

    def test_one_that_never_had_a_log(self):
        run = self.wake(self.runner("true"))
        self.finished(run)
        self.edit("UPDATE heartbeat_runs SET log_ref = NULL WHERE id = ?", (run["id"],))
        self.assertEqual(self.rest(self.stream(run))[0], [])

    def test_a_log_that_cannot_be_read_for_a_while(self):
        run = self.wake(self.runner(HOLD))
        self.until(self.stream(run), "up\n")
        log = self.daemon.data / "run-logs" / self.row_of(run)["log_ref"]
        while not log.is_dir():  # the daemon may make it anew in between
            log.replace(log.with_suffix(".away"))
            with contextlib.suppress(FileExistsError):
                log.mkdir()
        self.assertIsNone(self.stream(run).next())
        log.rmdir()
        log.with_suffix(".away").rename(log)
        stream = self.stream(run)
        self.release_held()
        self.assertEqual(self.rest(stream)[1]["status"], "succeeded")

    def test_who_may(self):
        run = self.wake(self.runner("echo hi"))
        self.finished(run)
        other = self.agent(self.company("Other"), "Eve")
        path = f"/api/heartbeat-runs/{run['id']}/"
        for route in ("stream", "log?follow=1"):
            self.assertIn(self.req("GET", path + route, token=other["token"]).status, (403, 404))
            self.assertEqual(self.req("GET", path + route, token="pcp_no").status, 401)
        self.assert_error(self.req("GET", "/api/heartbeat-runs/x/stream"), 404)
        self.assert_error(self.req("GET", path + "stream", headers={"Last-Event-ID": "x"}), 400)

    def test_slow_follower_gets_everything(self):
        run = self.wake(self.runner("seq 1 1500000"))  # over 10 MB
        stream = self.stream(run)
        first, _ = self.until(stream, "1\n")
        self.finished(run)
        if memory_tells():
            self.assertLess(self.daemon.rss_kb(), 200000)
        records, end = self.rest(stream)
        self.assertEqual(self.printed(first + records), "".join(f"{i}\n" for i in range(1, 1500001)))
        self.assertEqual(end["status"], "succeeded")
        # Who asks for more than a page gets a page.
        page = self.ok("GET", f"/api/heartbeat-runs/{run['id']}/log?limitBytes=999999999")
        self.assertLessEqual(len(page["content"]), 1048576)
        self.assertEqual(page["nextOffset"], len(page["content"]))


class Quiet(FollowTest):
    daemon_env = {**FollowTest.daemon_env, "BERTH_LIVE_PING_MS": "3600000"}

    def test_who_comes_back_hears_something(self):
        run = self.wake(self.runner(HOLD))
        _, at = self.until(self.stream(run), "up\n")
        again = self.stream(run, headers={"Last-Event-ID": at})
        self.assertEqual(again.answer.readline(), b": still here\n")
        self.release_held()
        self.assertEqual(self.rest(again)[1]["status"], "succeeded")


class Revoked(FollowTest):
    daemon_flags = ("--mode", "authenticated")
    daemon_env = {**FollowTest.daemon_env, **PING_MS}

    def req(self, method, path, body=None, headers=None, token=None):
        """Who has no token is the operator."""
        if token is None:
            return self.daemon.req_unix(method, path, body, headers)
        return self.daemon.req(method, path, body, headers, token)

    def test_who_may_no_longer(self):
        run = self.wake(self.runner(HOLD))
        board = self.board_user(self.acme, "ann")
        stream = self.stream(run, token=board["token"])
        self.until(stream, "up\n")
        reading = Reading(stream)
        self.operator("DELETE", f"/api/board-api-keys/{board['id']}")
        reading.join()
        self.assertEqual(self.row_of(run)["status"], "running")
        self.release_held()
        self.finished(run)


class Bounded(FollowTest):
    daemon_env = {**FollowTest.daemon_env, "BERTH_RUN_LOG_MAX_BYTES": "20000"}

    def test_limit(self):
        run = self.wake(self.runner("echo begins; while [ ! -e go ]; do sleep 0.02; done; seq 1 100000; echo bad >&2"))
        stream = self.stream(run)
        self.until(stream, "begins\n")
        self.release_held()
        records, _ = self.rest(stream)
        marks = {r["mark"]: r["chunk"] for r in records if "mark" in r}
        self.assertEqual(set(marks), {"limit", "left_out"})
        kept = len(self.printed(records)) + len("begins\n")
        left = re.search(r"(\d+) bytes of stdout and (\d+) bytes of stderr", marks["left_out"])
        self.assertEqual(kept + int(left[1]), len("begins\n") + sum(len(f"{i}\n") for i in range(1, 100001)))
        self.assertEqual(len(self.printed(records, "stderr")) + int(left[2]), 4)
        self.assertLess(self.run_row(run)["logBytes"], 21000)


class Live(FollowTest):
    def test_a_run_as_the_company_hears_it(self):
        """http-api, section 4.1: the order of one run's events; http-api, section 9.6: no secret in log and events."""
        secret = self.ok("POST", f"/api/companies/{self.acme['id']}/secrets",
                         {"name": "TOKEN", "value": "hunter2-hunter2"}, status=201)
        agent = self.runner('echo "it is $TOKEN"', adapter={"env": {"TOKEN": {"type": "secret_ref",
                                                                             "secretId": secret["id"]}}})
        socket = WebSocket(self.daemon, f"/api/companies/{self.acme['id']}/events/ws")
        self.addCleanup(socket.close)
        run = self.wake(agent)
        events = []
        while not (events and events[-1]["type"] == "activity.logged" and
                   events[-1]["payload"]["action"] == "environment.lease_released"):
            events.append(socket.next())
        self.assertNotIn("hunter2", json.dumps(events))
        self.assertNotIn("hunter2", self.log_text(run))
        mine = [e for e in events if e["payload"].get("runId") == run["id"] and e["type"].startswith("heartbeat.run.")]
        kinds = [e["type"].removeprefix("heartbeat.run.") + ":" + str(e["payload"].get("status") or "") for e in mine]
        self.assertEqual(kinds[0], "queued:")
        self.assertLess(kinds.index("status:running"), kinds.index("log:"))
        self.assertLess(kinds.index("log:"), kinds.index("status:succeeded"))
        log = next(e for e in mine if e["type"] == "heartbeat.run.log" and e["payload"]["stream"] == "stdout")
        self.assertEqual(set(log["payload"]), {"runId", "agentId", "ts", "stream", "chunk", "truncated"})
        self.assertEqual(log["payload"]["chunk"], "it is ***REDACTED***\n")
        self.assertEqual([e["id"] for e in events], sorted(e["id"] for e in events))

    def test_reader_from_before_the_run_sees_all_of_a_long_log_once(self):
        run = self.wake(self.runner("echo up; while [ ! -e go ]; do sleep 0.02; done; seq 1 20000"))
        wait_until(lambda: self.row_of(run)["log_ref"], "it has a log")
        stream = self.stream(run)
        self.until(stream, "up\n")
        self.release_held()
        records, _ = self.rest(stream)
        self.assertEqual(self.printed(records), "".join(f"{i}\n" for i in range(1, 20001)))


if __name__ == "__main__":
    unittest.main()
