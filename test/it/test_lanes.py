"""Nobody waits without end, and nobody waits for somebody else's provider: slow providers and silent hosts hold up what
was asked of them and nothing else, what waits for them says so, and the daemon ends when it is told to."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal

from berthtest import ident, wait_until
from providertest import ProviderTest
from runtest import TERMINAL
from sshtest import SshTest

MANY = 20  # more than there are threads for requests


class Together:
    """Requests that are under way, each on a thread of the test's."""

    def background(self, n=MANY):
        pool = concurrent.futures.ThreadPoolExecutor(n)
        self.addCleanup(pool.shutdown)
        return pool

    def local(self, company):
        return next(e for e in self.ok("GET", f"/api/companies/{ident(company)}/environments") if e["driver"] == "local")

    def assert_others_are_served(self):
        """Reads, changes, leases elsewhere, and the operator's socket."""
        company = self.company("Other")
        self.ok("GET", "/api/companies")
        lease = ident(self.acquire(self.local(company)))
        done = self.ok("POST", f"/api/environment-leases/{lease}/execute", {"command": "echo", "args": ["hello"]})
        self.assertEqual(done["stdout"], "hello\n")
        self.release(lease)
        self.assertEqual(self.daemon.req_unix("GET", "/api/companies").status, 200)

    def assert_ends(self):
        """It is told to and does, not by the last resort of one that cannot."""
        self.daemon.process.send_signal(signal.SIGTERM)
        self.daemon.wait(0, timeout=60)
        self.assertNotIn("stopping took too long", self.daemon.log())

    def assert_not_left_waiting(self, requests):
        """Each was answered, refused or cut off; none gave up by itself, which ends what the daemon did for it."""
        for request in requests:
            self.assertNotIsInstance(request.exception(), TimeoutError)

    def saturated(self):
        return self.ok("GET", "/api/health")["saturated"]

    def metric(self, name):
        for line in self.req("GET", "/metrics").text.splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        raise AssertionError(f"no metric {name}")


class SlowProviderTest(Together, ProviderTest):
    daemon_env = {**ProviderTest.daemon_env, "BERTH_CLOSE_TIMEOUT_MS": "600000"}

    def held(self, method="AcquireLease"):
        return len(self.provider.calls(f"environment{method}"))

    def test_acquires_that_take_long(self):
        slow, other = self.sandbox(), self.sandbox("other")
        self.provider.behave(AcquireLease={"hold": "go"})
        pool = self.background(MANY + 1)
        leases = [pool.submit(self.take, slow) for _ in range(MANY)]
        wait_until(lambda: self.held() >= 8, "the provider is asked by as many as may")
        wait_until(self.saturated, "health tells that something waits")
        self.assertEqual(self.held(), 8)
        self.assertEqual(self.ok("GET", "/api/health")["status"], "ok")
        self.assertEqual(self.metric("berth_operations_saturated"), 1)
        wait_until(lambda: self.metric("berth_operations_with_peers") == 8, "only they have a seat")  # the sweeper may have one
        self.assertEqual(self.metric("berth_operations_waiting_for_peers"), MANY - 8)
        self.assertIn("operations", self.cli("doctor")[1])
        self.assert_others_are_served()
        # Another environment of the same plugin has seats of its own.
        leases.append(pool.submit(self.take, other))
        wait_until(lambda: self.held() == 9, "the provider is asked for the other environment")
        self.provider.let_go()
        for lease in leases:
            self.release(lease.result()["id"])
        wait_until(lambda: not self.saturated(), "nothing waits any more")

    def test_what_ends_does_not_wait_for_what_begins(self):
        """All seats of the environment are taken by acquires: a release has another one."""
        slow = self.sandbox()
        first = self.take(slow)
        self.provider.behave(AcquireLease={"hold": "go"})
        pool = self.background()
        leases = [pool.submit(self.take, slow) for _ in range(MANY)]
        wait_until(lambda: self.held() >= 1 + 8, "the provider is asked by as many as may")
        self.release(first["id"])
        self.assertEqual(self.held(), 1 + 8)
        self.provider.let_go()
        for lease in leases:
            self.release(lease.result()["id"])

    def test_a_stop_while_a_provider_is_silent(self):
        slow = self.sandbox()
        self.provider.behave(AcquireLease={"hold": "go"})
        pool = self.background(3)
        leases = [pool.submit(self.req, "POST", f"/api/environments/{ident(slow)}/leases", {}) for _ in range(3)]
        wait_until(lambda: self.held() == 3, "the provider is asked")
        self.assert_ends()
        self.assert_not_left_waiting(leases)

    # Runs in an environment that does not get ready, beside a run in another.
    def test_runs_elsewhere_go_on(self):
        self.provider.behave(AcquireLease={"hold": "go"})
        slow = self.sandbox()

        def wake(name, **more):
            agent = self.agent(self.company_id, name, adapterType="process",
                               adapterConfig={"command": "/bin/sh", "args": ["-c", "echo hello"]}, **more)
            return self.ok("POST", f"/api/agents/{ident(agent)}/wakeup", {}, status=202)["id"]

        def status(run):
            return self.ok("GET", f"/api/heartbeat-runs/{run}")["status"]

        runs = [wake(f"Slow {i}", defaultEnvironmentId=ident(slow)) for i in range(MANY)]
        wait_until(lambda: self.held() == 8, "runs wait for the provider")
        here = wake("Here", defaultEnvironmentId=ident(self.local(self.company_id)))
        wait_until(lambda: status(here) in TERMINAL, "the run elsewhere ends")
        self.assertEqual(status(here), "succeeded")
        self.assert_others_are_served()
        self.provider.let_go()
        wait_until(lambda: all(status(run) in TERMINAL for run in runs), "the others end")

    # What nobody waits for obeys the same limits: a provider that does not close keeps the sweeper from no other.
    def test_the_sweeper_goes_on_elsewhere(self):
        slow = self.sandbox()
        local = self.local(self.company_id)
        self.provider.behave(ReleaseLease={"hold": "go"}, DestroyLease={"hold": "go"})
        first = ident(self.acquire(slow, ttlMs=1))
        wait_until(lambda: self.held("ReleaseLease") + self.held("DestroyLease") > 0, "the sweeper asks the provider")
        second = ident(self.acquire(local, ttlMs=1))
        wait_until(lambda: self.lease(second)["status"] == "expired", "the other lease is ended")
        self.provider.let_go()
        wait_until(lambda: self.lease(first)["cleanupStatus"] == "success", "the provider has closed it")


class FullLaneTest(Together, ProviderTest):
    daemon_env = {**ProviderTest.daemon_env, "BERTH_PEER_THREADS_EACH": "1", "BERTH_PEER_QUEUE": "1"}

    def test_a_full_lane_refuses(self):
        slow = self.sandbox()
        path = f"/api/environments/{ident(slow)}/leases"
        self.provider.behave(AcquireLease={"hold": "go"}, Probe={"hold": "go"})
        pool = self.background(2)
        first = pool.submit(self.req, "POST", path, {})
        wait_until(lambda: self.provider.calls("environmentAcquireLease"), "the provider is asked")
        second = pool.submit(self.req, "POST", path, {})
        wait_until(lambda: self.metric("berth_operations_waiting_for_peers") == 1, "one waits")
        refused = self.req("POST", path, {})
        self.assert_error(refused, 503, contains="try again shortly")
        self.assertEqual(refused.headers["Retry-After"], "1")
        self.provider.let_go()
        for lease in (first.result(), second.result()):
            self.release(lease.json)

    # Somebody who may not use an environment does not fill its queue.
    def test_strangers_do_not_wait(self):
        slow = self.sandbox()
        stranger = self.agent(self.company("Stranger"), "Eve")
        self.provider.behave(AcquireLease={"hold": "go"})
        pool = self.background(1)
        first = pool.submit(self.req, "POST", f"/api/environments/{ident(slow)}/leases", {})
        wait_until(lambda: self.provider.calls("environmentAcquireLease"), "the provider is asked")
        answer = self.req("POST", f"/api/environments/{ident(slow)}/probe", {}, token=stranger["token"])
        self.assertEqual(answer.status, 403)
        self.provider.let_go()
        first.result()


class CompaniesTest(Together, ProviderTest):
    """However many environments a company has, it leaves seats to the others."""

    daemon_env = {**ProviderTest.daemon_env, "BERTH_PEER_THREADS": "4", "BERTH_PEER_THREADS_EACH": "2"}

    def test_one_with_many_environments(self):
        slow = [self.sandbox(f"slow {i}") for i in range(4)]
        self.provider.behave(AcquireLease={"hold": "go"})
        pool = self.background(8)
        leases = [pool.submit(self.take, env) for env in slow for _ in range(2)]
        wait_until(lambda: len(self.provider.calls("environmentAcquireLease")) >= 2, "the provider is asked")
        wait_until(lambda: self.metric("berth_operations_waiting_for_peers") == 6, "the others wait")
        self.assertEqual(self.metric("berth_operations_with_peers"), 2)
        self.assert_others_are_served()
        self.provider.let_go()
        for lease in leases:
            self.release(lease.result()["id"])

    # What nobody asks for just now counts too: leases that are over, in environments that do not close.
    def test_the_sweeper_leaves_seats_to_others(self):
        slow = [self.sandbox(f"slow {i}") for i in range(4)]
        self.provider.behave(ReleaseLease={"hold": "go"}, DestroyLease={"hold": "go"})
        for env in slow:
            self.acquire(env, ttlMs=1)
        wait_until(lambda: len(self.provider.calls("environmentReleaseLease")
                               + self.provider.calls("environmentDestroyLease")) >= 4, "the sweeper waits for the provider")
        wait_until(lambda: self.metric("berth_operations_with_peers") == 0, "the sweeper takes none of their seats")
        self.assert_others_are_served()
        self.provider.let_go()
        wait_until(lambda: not self.daemon.sql("SELECT id FROM places WHERE provider = 'acme' AND state <> 'gone'"),
                   "all are closed")


class SilentHostTest(Together, SshTest):
    """A host whose connection lives and whose boxes do not answer, while workspaces are to be given up there."""

    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50"}

    def boxes(self):
        """The supervisors of the places on the host; not the relay, which holds the connection."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if str(self.fixture.home).encode() in b" ".join(words) and b"--relay" not in words:
                    found.append(int(entry.name))
        return found

    def signal_boxes(self, number):
        for pid in self.boxes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stage_many(self, env, n=MANY):
        leases = []
        for i in range(n):
            lease = ident(self.acquire(env))
            work = self.temp_dir()
            (work / "file").write_text(f"{i}\n")
            self.ok("POST", f"/api/environment-leases/{lease}/workspace/stage", {"localPath": str(work)})
            leases.append(lease)
        return leases

    def released(self):
        return self.daemon.sql("SELECT count(*) AS n FROM environment_leases WHERE status = 'released'")[0]["n"]

    def test_a_host_that_falls_silent(self):
        leases = self.stage_many(self.ssh_environment(self.company()))
        self.addCleanup(self.signal_boxes, signal.SIGCONT)
        self.signal_boxes(signal.SIGSTOP)
        pool = self.background(MANY)
        answers = [pool.submit(self.req, "POST", f"/api/environment-leases/{lease}/release", {}) for lease in leases]
        wait_until(lambda: self.released() >= 8, "as many as may wait for the host")
        wait_until(self.saturated, "health tells that something waits")
        self.assert_others_are_served()
        self.assert_ends()
        self.assert_not_left_waiting(answers)
        self.signal_boxes(signal.SIGCONT)
        self.daemon.start()
        for lease in leases:
            self.release(lease)
        wait_until(lambda: not self.daemon.sql("SELECT id FROM places WHERE state <> 'gone'"),
                   "the next start gives all places up", 60)
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)


class SilenceTest(SilentHostTest):
    """A transfer that stands still is given up by itself."""

    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_PEER_SILENCE_MS": "300"}
    test_a_host_that_falls_silent = None

    def test_a_silent_file_worker(self):
        [lease] = self.stage_many(self.ssh_environment(self.company()), 1)
        self.addCleanup(self.signal_boxes, signal.SIGCONT)
        self.signal_boxes(signal.SIGSTOP)
        answer = self.req("POST", f"/api/environment-leases/{lease}/workspace/restore", {})
        self.assert_error(answer, 502, contains="silent")
        self.signal_boxes(signal.SIGCONT)
        self.ok("POST", f"/api/environment-leases/{lease}/workspace/restore", {})
