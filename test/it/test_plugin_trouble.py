"""Workers that are late, die, lie or are killed: no lease is stuck, no sandbox unaccounted for."""
# threads: a thread for each worker, and calls that are given up

import contextlib
import os
import signal
import threading

from berthtest import wait_until
from providertest import RUN, TIMES, ProviderTest

ROUNDS = int(os.environ.get("BERTH_PLUGIN_ROUNDS", "10"))
METHODS = ("AcquireLease", "Execute", "RealizeWorkspace", "ResumeLease", "ReleaseLease", "DestroyLease")


class LateTest(ProviderTest):
    daemon_env = {**ProviderTest.daemon_env, "BERTH_TEST_PLUGIN_TIMES": f"call=150,{TIMES}"}

    # plugin-protocol 6.3.14: the lease that comes after its caller gave up is destroyed, and the place says so
    def test_late_acquire(self):
        env = self.machine()
        self.provider.behave(AcquireLease={"hold": "go"})
        answer = self.req("POST", f"/api/environments/{env['id']}/leases", {"heartbeatRunId": RUN})
        self.assertEqual(answer.status, 504)
        self.assertIn('RPC call "environmentAcquireLease" timed out after', answer.error)
        place = self.places()[0]
        self.assertEqual((place["state"], place["holder_run_id"], place["provider_lease_id"]), ("uncertain", RUN, None))
        self.assertIn(f"for run {RUN}", place["note"])
        self.assertEqual(len(self.provider.world()), 1)
        leaks = self.ok("GET", "/api/leaks")
        self.assertEqual([u["placeId"] for u in leaks["uncertain"]], [place["id"]])
        # nobody can close what has no name
        self.assert_error(self.req("POST", f"/api/places/{place['id']}/close"), 409, contains="berth leaks forget")
        self.provider.let_go()
        wait_until(lambda: not self.provider.world(), "the late sandbox is destroyed")
        wait_until(lambda: self.places()[0]["state"] == "gone", "and recorded")
        self.assertTrue(self.places()[0]["provider_lease_id"])
        self.assertEqual(self.provider.methods(), ["AcquireLease", "DestroyLease"])

    def test_late_after_it_was_written_off(self):
        env = self.machine()
        self.provider.behave(AcquireLease={"hold": "go"})
        self.assertEqual(self.req("POST", f"/api/environments/{env['id']}/leases", {}).status, 504)
        self.ok("POST", f"/api/places/{self.places()[0]['id']}/forget")
        self.provider.let_go()
        wait_until(lambda: not self.provider.world(), "it is destroyed all the same")

    # The caller goes away in the middle.
    def test_cancelled_acquire(self):
        self.daemon.env["BERTH_TEST_PLUGIN_TIMES"] = f"call=60000,{TIMES}"
        self.daemon.restart()
        self.provider.wait_running()
        env = self.machine()
        self.provider.behave(AcquireLease={"hold": "go"})
        with self.daemon.raw() as raw:
            body = b'{"heartbeatRunId":"%s"}' % RUN.encode()
            raw.send(b"POST /api/environments/%s/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (env["id"].encode(), len(body), body))
            wait_until(lambda: self.provider.calls("environmentAcquireLease"), "the worker is asked")
        wait_until(lambda: self.places()[0]["state"] == "uncertain", "the place is uncertain")
        self.provider.let_go()
        wait_until(lambda: not self.provider.world(), "the late sandbox is destroyed")
        wait_until(lambda: self.places()[0]["state"] == "gone", "and recorded")

    # A daemon that is killed meanwhile: nobody will ever hear of that sandbox, so it stays uncertain.
    def test_daemon_killed_during_acquire(self):
        env = self.machine()
        self.provider.behave(AcquireLease={"hold": "never"})
        thread = threading.Thread(target=lambda: self.try_acquire(env))
        thread.start()
        wait_until(self.provider.world, "the sandbox is made")
        self.daemon.kill()
        thread.join()
        self.daemon.start()
        wait_until(lambda: self.places()[0]["state"] == "uncertain", "it is not taken for gone")
        self.assertIn("left behind", self.places()[0]["note"])

    def try_acquire(self, env):
        try:
            self.daemon.req("POST", f"/api/environments/{env['id']}/leases", {"heartbeatRunId": RUN})
        except OSError:
            pass


class GivingUpTest(ProviderTest):
    # Pauses are short, the budget is the product's own.
    daemon_env = {**ProviderTest.daemon_env, "BERTH_TEST_PLUGIN_TIMES": TIMES.replace("crash_budget=1000", "")}

    def starts(self):
        return len(self.provider.calls("initialize"))

    def row(self):
        return self.ok("GET", f"/api/plugins/{self.provider.id}")

    # Section 3.8 of the plugin protocol: ten restarts in a row, then the row says so and only an operator brings it back
    def test_crash_budget(self):
        env = self.sandbox()
        lease = self.take(env)
        self.provider.behave_as({"initialize": {"exit": 4}})
        os.kill(self.ok("GET", f"/api/plugins/{self.provider.id}/dashboard")["worker"]["pid"], signal.SIGKILL)
        wait_until(lambda: self.row()["status"] == "error", "the daemon gives up", 30)
        self.assertEqual(self.starts(), 1 + 10)
        self.assertIn("Worker process exited (code=4, signal=null)", self.row()["lastError"])
        self.assert_error(self.req("POST", f"/api/environments/{env['id']}/leases", {}), 422,
                          contains="that plugin is currently error")
        # what was leased is not lost: its end waits for a worker, also across a restart
        self.assertEqual(self.release(lease)["lease"]["cleanupStatus"], "failed")
        self.daemon.restart()
        self.assertEqual((self.row()["status"], self.starts()), ("error", 11))
        self.assertEqual([p["state"] for p in self.places()], ["closing"])
        # one that still fails does not become ready by being enabled
        self.assertEqual(self.req("POST", f"/api/plugins/{self.provider.id}/enable").json["status"], "error")
        self.provider.behave()
        self.assertEqual(self.ok("POST", f"/api/plugins/{self.provider.id}/enable")["status"], "ready")
        self.assertIsNone(self.row()["lastError"])
        wait_until(lambda: [p["state"] for p in self.places()] == ["gone"], "the old sandbox is given up", 30)
        self.assertEqual(self.provider.world(), set())
        self.release(self.take(env))


class StartingTest(ProviderTest):
    def pid(self):
        worker = self.ok("GET", f"/api/plugins/{self.provider.id}/dashboard")["worker"]
        return worker and worker["pid"]

    def test_killed_while_it_starts(self):
        """A worker that dies before it has answered `initialize` counts in the crash budget as any other: nobody who could
        enable the plugin again sees the daemon start."""
        lease = self.take(self.sandbox())
        self.provider.behave_as({"initialize": {"hold": "go"}})
        self.daemon.restart()
        killed = set()
        for _ in range(3):
            pid = wait_until(lambda: self.pid() not in killed and self.pid(), "a worker starts", 30)
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        self.provider.let_go()
        self.provider.wait_running()
        row = self.ok("GET", f"/api/plugins/{self.provider.id}")
        self.assertEqual((row["status"], row["lastError"]), ("ready", None))
        self.assertEqual(self.release(lease)["lease"]["cleanupStatus"], "success")


class StartBudgetTest(GivingUpTest):
    test_crash_budget = None

    def test_a_start_that_always_fails(self):
        """Section 3.8 of the plugin protocol, with the daemon's own start as the first of them."""
        self.provider.behave_as({"initialize": {"exit": 4}})
        before = self.starts()
        self.daemon.restart()
        wait_until(lambda: self.row()["status"] == "error", "the daemon gives up", 30)
        self.assertEqual(self.starts(), before + 11)
        self.assertIn("Worker process exited (code=4, signal=null)", self.row()["lastError"])


class DyingTest(ProviderTest):
    # plugin-protocol 6.3.10: section 3.8, and the place says what is known
    def test_worker_dies_over_an_acquire(self):
        env = self.sandbox()
        self.provider.behave(AcquireLease={"die": True})
        answer = self.req("POST", f"/api/environments/{env['id']}/leases", {"heartbeatRunId": RUN})
        self.assertEqual(answer.status, 502)
        self.assertIn("Worker process exited (code=9, signal=null)", answer.error)
        place = self.places()[0]
        self.assertEqual((place["state"], place["holder_run_id"]), ("uncertain", RUN))
        self.assertIn("code=9", place["note"])
        self.assertEqual(len(self.provider.world()), 1)  # it is there, and the row says that it may be
        self.provider.behave()
        self.provider.wait_running()
        self.take(env, heartbeatRunId=RUN)

    def test_acquire_that_is_no_lease(self):
        env = self.sandbox()
        for result in (None, 7, [], {"providerLeaseId": 7}):
            self.provider.behave(AcquireLease={"result": result})
            self.assertEqual(self.req("POST", f"/api/environments/{env['id']}/leases", {}).status, 502)
        self.assertEqual({p["state"] for p in self.places()}, {"uncertain"})

    def test_acquire_that_is_refused(self):
        self.provider.behave(AcquireLease={"error": {"code": 429, "message": "quota"}})
        answer = self.req("POST", f"/api/environments/{self.sandbox()['id']}/leases", {})
        self.assert_error(answer, 502, contains="quota")
        self.assertEqual({p["state"] for p in self.places()}, {"gone"})

    # plugin-protocol 6.3.10: in each call in turn, before and after it had its effect
    def test_kill_during_each_call(self):
        env = self.sandbox(reuseLease=True)
        uncertain = 0
        for i in range(ROUNDS):
            for method in METHODS:
                for how in ({"exit": 1}, {"die": True}):
                    self.provider.behave(**{method: how})
                    uncertain += self.one_life(env)
                    self.provider.behave()
                    self.settle()
        self.provider.wait_running()
        living = self.places("state <> 'gone'")
        self.assertEqual([p["state"] for p in living if p["state"] not in ("uncertain", "ready")], [])
        self.assertEqual(len([p for p in living if p["state"] == "uncertain"]), uncertain)
        self.assertFalse(self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"))
        known = {p["provider_lease_id"] for p in living}
        self.assertLessEqual(len(self.provider.world() - known), uncertain)

    def one_life(self, env):
        """Whatever fails on the way, the lease is given up; 1 when a place became uncertain."""
        before = len(self.places("state = 'uncertain'"))
        answer = self.req("POST", f"/api/environments/{env['id']}/leases", {"heartbeatRunId": RUN})
        if answer.status == 201:
            lease = answer.json["lease"]
            self.req("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "x"})
            self.req("POST", f"/api/environment-leases/{lease['id']}/realize-workspace", {"workspace": {}})
            self.release(lease)
        return len(self.places("state = 'uncertain'")) - before

    def settle(self):
        wait_until(lambda: not self.places("state NOT IN ('gone', 'uncertain', 'ready')"), "nothing is half done", 30)

    # The process is killed from outside, at any moment.
    def test_kill_minus_nine(self):
        env = self.sandbox()
        for _ in range(ROUNDS):
            self.provider.wait_running()
            pid = self.ok("GET", f"/api/plugins/{self.provider.id}/dashboard")["worker"]["pid"]
            thread = threading.Thread(target=self.one_life, args=(env,))
            thread.start()
            with contextlib.suppress(ProcessLookupError):  # the one of the last round, whose end was not noticed yet
                os.kill(pid, signal.SIGKILL)
            thread.join()
        self.settle()
        self.assertFalse(self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"))
        uncertain = len(self.places("state = 'uncertain'"))
        self.assertLessEqual(len(self.provider.world()), uncertain)


class ExecTest(ProviderTest):
    def start(self, **body):
        lease = self.take(self.sandbox(), heartbeatRunId=RUN)
        self.path = f"/api/environment-leases/{lease['id']}"
        answer = self.req("POST", f"{self.path}/execute", {"command": "x", "detach": True, **body})
        self.assertIn(answer.status, (200, 202), answer.body)  # 200: it has ended already
        return lease, answer.json

    def execution(self, started):
        return self.ok("GET", f"{self.path}/executions/{started['execId']}")

    def output(self, started, stream="stdout"):
        return self.req("GET", f"{self.path}/executions/{started['execId']}/output?stream={stream}").text

    def ended(self, started):
        return wait_until(lambda: (lambda e: e["status"] not in ("starting", "running") and e)(self.execution(started)),
                          "the execution ends")

    # plugin-protocol section 3.6: live output, and only the rest at the end
    def test_live_output(self):
        self.provider.behave(Execute={"output": [["stdout", "ran"], ["stderr", "oo"], ["stdout", " x"]], "hold": "go"})
        _, started = self.start()
        wait_until(lambda: (self.output(started), self.output(started, "stderr")) == ("ran x", "oo"), "live output")
        self.assertEqual(self.execution(started)["status"], "running")
        self.provider.let_go()
        ended = self.ended(started)
        self.assertEqual((ended["status"], ended["exitCode"], ended["incomplete"]), ("exited", 3, False))
        self.assertEqual((self.output(started), self.output(started, "stderr")), ("ran x\n", "oops\n"))

    def test_live_output_that_is_something_else(self):
        self.provider.behave(Execute={"output": [["stdout", "other"]]})
        _, started = self.start()
        ended = self.ended(started)
        self.assertEqual((ended["status"], ended["incomplete"], self.output(started)), ("exited", True, "other"))

    # plugin-protocol 6.3.9, and U+0000 and U+2028 on the way
    def test_large_and_strange_output(self):
        text = "\0\u2028x" * 5 + "y" * 2_000_000
        self.provider.behave(Execute={"result": {"exitCode": 0, "timedOut": False, "stdout": text, "stderr": ""}})
        _, started = self.start(stdin="a\u2028b\u2029c")
        self.ended(started)
        self.assertEqual(self.output(started), text)
        self.assertEqual(self.provider.calls("environmentExecute")[0]["stdin"], "a\u2028b\u2029c")

    def test_timed_out_command(self):
        self.provider.behave(Execute={"result": {"exitCode": None, "signal": "SIGTERM", "timedOut": True, "stdout": "p",
                                                 "stderr": ""}})
        _, started = self.start(timeoutMs=100)
        ended = self.ended(started)
        self.assertEqual((ended["status"], ended["exitCode"], ended["signal"], ended["timedOut"]),
                         ("exited", None, "SIGTERM", True))

    def test_command_that_cannot_start(self):
        self.provider.behave(Execute={"error": {"code": -32002, "message": "spawn no-such-binary ENOENT"}})
        _, started = self.start_any()
        ended = self.ended(started)
        self.assertEqual((ended["status"], ended["reason"]), ("failed", "spawn no-such-binary ENOENT"))

    def start_any(self):
        lease = self.take(self.sandbox(), heartbeatRunId=RUN)
        self.path = f"/api/environment-leases/{lease['id']}"
        self.req("POST", f"{self.path}/execute", {"command": "x", "detach": True})
        row = self.daemon.sql("SELECT id FROM executions")[0]
        return lease, {"execId": row["id"]}

    def test_worker_dies(self):
        self.provider.behave(Execute={"output": [["stdout", "half"]], "die": True})
        _, started = self.start_any()
        ended = self.ended(started)
        self.assertEqual((ended["status"], ended["incomplete"]), ("lost", True))
        self.assertIn("Worker process exited (code=9", ended["reason"])
        self.assertEqual(self.output(started), "half")

    def test_giving_up(self):
        self.provider.behave(Execute={"hold": "go"})
        _, started = self.start()
        self.ok("POST", f"{self.path}/executions/{started['execId']}/signal", {"signal": "SIGTERM"})
        self.assertIn("was given up", self.ended(started)["reason"])
        self.provider.let_go()

    def test_release_while_it_runs(self):
        self.provider.behave(Execute={"hold": "go"})
        lease, started = self.start()
        self.assertEqual(self.release(lease)["lease"]["cleanupStatus"], "success")
        ended = self.ended(started)
        self.assertEqual(ended["status"], "lost")
        self.assertIn("The lease ended while the command ran", ended["reason"])
        self.provider.let_go()

    def test_restart_of_the_daemon(self):
        self.provider.behave(Execute={"output": [["stdout", "half"]], "hold": "never"})
        _, started = self.start()
        wait_until(lambda: self.output(started) == "half", "it runs")
        self.daemon.restart(crash=True)
        ended = self.ended(started)
        self.assertEqual((ended["status"], ended["reason"]), (
            "lost", "The daemon ended while the provider ran the command; how it ended is not known."))
        self.assertEqual(self.output(started), "half")

    def test_idempotency_key(self):
        _, first = self.start(idempotencyKey="k")
        self.ended(first)
        again = self.ok("POST", f"{self.path}/execute", {"command": "x", "idempotencyKey": "k"})
        self.assertEqual(again["execId"], first["execId"])
        self.assertEqual(len(self.provider.calls("environmentExecute")), 1)

    def test_what_a_worker_cannot_do(self):
        lease = self.take(self.sandbox(), heartbeatRunId=RUN)
        for more in ({"tty": {}}, {"openStdin": True}):
            answer = self.req("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "x", **more})
            self.assertEqual(answer.status, 400, answer.text)

    # A flood of log lines is bounded and says so.
    def test_log(self):
        self.provider.behave(Execute={"log": "hello from the plugin"})
        _, started = self.start()
        self.ended(started)
        lines = self.ok("GET", f"/api/plugins/{self.provider.id}/logs")
        self.assertIn("hello from the plugin", str(lines))
