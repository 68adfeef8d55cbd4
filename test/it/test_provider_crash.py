"""The daemon is killed at every crash point between it and a plugin's worker; afterwards record and world agree,
or the record says that it does not know."""
# slow: a daemon for each crash point

import http.client

from berthtest import wait_until
from providertest import RUN, TIMES, ProviderTest

RUN2 = "44444444-4444-4444-8444-444444444444"


class CrashTest(ProviderTest):
    daemon_env = {**ProviderTest.daemon_env, "BERTH_TEST_PLUGIN_TIMES": f"call=300,{TIMES}"}

    def points(self):
        status, out, _ = self.daemon.cli("faults")
        self.assertEqual(status, 0)
        return [line for line in out.split() if line.startswith("provider.")]

    # Each point by an operation that passes it.
    def acquire_one(self, env):
        self.req("POST", f"/api/environments/{env['id']}/leases", {"heartbeatRunId": RUN2})

    def release_one(self, env):
        self.req("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})

    def resume_one(self, env):
        self.release_one(env)
        self.acquire_one(env)

    def execute_one(self, env):
        self.req("POST", f"/api/environment-leases/{self.lease['id']}/execute", {"command": "x"})

    def be_late(self, env):
        self.provider.behave(AcquireLease={"hold": "go"})
        self.req("POST", f"/api/environments/{self.late['id']}/leases", {"heartbeatRunId": RUN2})
        self.provider.let_go()
        self.daemon.wait()
        raise ConnectionError

    def test_every_point(self):
        operations = {"acquire": self.acquire_one, "release": self.release_one, "resume": self.resume_one,
                      "execute": self.execute_one, "late": self.be_late}
        points = self.points()
        self.assertEqual({p.split(".")[1] for p in points}, set(operations))
        env = self.sandbox(reuseLease=True)
        self.late = self.machine()
        for point in points:
            with self.subTest(point=point):
                self.walk(env, point, operations[point.split(".")[1]])

    def walk(self, env, point, operation):
        self.provider.behave()
        (self.provider.dir / "go").unlink(missing_ok=True)
        self.lease = self.take(env, heartbeatRunId=RUN)
        self.daemon.stop()
        self.daemon.env["BERTH_CRASH_AT"] = point
        self.daemon.start()
        self.provider.wait_running()
        with self.assertRaises((OSError, http.client.HTTPException)):
            operation(env)
        self.daemon.wait(-9)
        self.daemon._disconnect()
        del self.daemon.env["BERTH_CRASH_AT"]
        self.daemon.start()
        self.provider.wait_running()
        self.ok("POST", f"/api/heartbeat-runs/{RUN}/release-leases", {})
        self.ok("POST", f"/api/heartbeat-runs/{RUN2}/release-leases", {})
        self.agree()

    def agree(self):
        """Nothing half done, and every sandbox named by a living place, unless a place is uncertain."""
        wait_until(lambda: not self.places("state NOT IN ('gone', 'ready', 'uncertain')"), "nothing is half done", 30)
        wait_until(lambda: not self.daemon.sql("SELECT id FROM executions WHERE status IN ('starting', 'running')"),
                   "every execution has its end")
        unnamed = self.provider.world() - {p["provider_lease_id"] for p in self.places("state <> 'gone'")}
        uncertain = self.places("state = 'uncertain'")
        self.assertLessEqual(len(unnamed), len(uncertain))
        for place in uncertain:
            self.ok("POST", f"/api/places/{place['id']}/forget")
        for name in unnamed:
            (self.provider.dir / "world" / name).unlink()
