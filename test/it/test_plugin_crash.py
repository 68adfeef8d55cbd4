"""The daemon dies at every step of installing, upgrading, changing and removing a plugin. After the next start no fetch
is half done, every file belongs to a row, and what should run does; then the operation is done again."""

# slow: a daemon, and often an npm, for each crash point
# share 6: 20 s of processor time
import contextlib
import http.client
import signal
import unittest

from berthtest import wait_until
from plugintest import KEY, PluginTest

MORE = ["environment.drivers.register", "http.outbound"]


class CrashTest(PluginTest):
    daemon_binary = "faults"
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.variables = {**self.daemon_env, **self.start_registry()}
        self.publish(self.package(version="1.0.0"))

    def test_every_point_is_here(self):
        _, out, _ = self.daemon.cli("faults")
        here = {p for points in (INSTALL, UPGRADE, PENDING, DISABLE, ENABLE, UNINSTALL, PURGE, CONFIG)
                for p in both(points)}
        self.assertEqual({p for p in out.split() if p.startswith("registry.")}, here)

    # One crash.

    def stage(self, installed=True):
        """A daemon with the first version, or without."""
        self.daemon = self.new_daemon(env=dict(self.variables)).start()
        if installed:
            self.install_npm("acme-box", "1.0.0")

    def crash(self, point, act):
        """Start it with the point, let `act` run into it, and start it again without."""
        self.daemon.stop()
        self.daemon.env["BERTH_CRASH_AT"] = point
        self.daemon.spawn()  # some points are passed by the start itself
        with contextlib.suppress(AssertionError, OSError, http.client.HTTPException):
            wait_until(lambda: self.daemon.url or not self.daemon.running(), "it listens or is dead", 20)
            act()
        self.assertEqual(self.daemon.wait(), -signal.SIGKILL, f"{point} was not reached")
        del self.daemon.env["BERTH_CRASH_AT"]
        self.daemon.start()

    def settled(self):
        """Rows, files and workers agree."""
        rows = self.daemon.sql("SELECT * FROM plugins")
        wait_until(lambda: all(p["status"] != "installed" for p in self.ok("GET", "/api/plugins")), "it is loaded")
        self.assertEqual(self.files("staging"), [])
        self.assertEqual(self.daemon.sql("SELECT * FROM plugin_installs"), [])
        wanted = {row["install_id"] for row in rows if row["install_id"]}
        waiting = sum(row["pending"] is not None for row in rows)
        self.assertLessEqual(wanted, set(self.files("packages")))
        self.assertEqual(len(self.files("packages")), len(wanted) + waiting)
        for row in rows:
            if row["status"] in ("ready", "upgrade_pending", "installed"):
                wait_until(lambda: self.worker(row["id"]).get("status") == "running", "its worker runs")
            else:
                self.assertIsNone(self.plugin(row["id"], "/dashboard")["worker"])
        return rows[0] if rows else None

    def walk(self, points, stage, act, allowed):
        """`allowed` are the (status, version) that may be found afterwards; None: no row."""
        for point in both(points):
            with self.subTest(point=point):
                stage()
                self.crash(point, act)
                row = self.settled()
                self.assertIn(row and (row["status"], row["version"]), allowed)
                self.daemon.kill()

    def test_install(self):
        def act():
            self.req("POST", "/api/plugins/install", {"packageName": "acme-box"})

        def again():
            self.stage(installed=False)

        self.walk([p for p in INSTALL if p != "registry.start"], again, act, {None, ("installed", "1.0.0"),
                                                                           ("ready", "1.0.0")})

    def test_a_crash_and_the_same_again(self):
        """What a client does that does not know what became of its request."""
        for point in ("registry.fetch.after", "registry.place.after", "registry.record.after"):
            with self.subTest(point=point):
                self.stage(installed=False)
                self.crash(point, lambda: self.req("POST", "/api/plugins/install", {"packageName": "acme-box"}))
                row = self.settled()
                answer = self.req("POST", "/api/plugins/install", {"packageName": "acme-box"})
                self.assert_status(answer, 409 if row else 200)
                self.assertEqual(self.worker()["status"], "running")
                self.settled()

    def test_upgrade(self):
        self.publish(self.package(version="1.1.0"))
        self.walk([p for p in UPGRADE if p != "registry.start"], self.stage,
                  lambda: self.post(KEY, "upgrade", {}), {("ready", "1.0.0"), ("ready", "1.1.0")})

    def test_upgrade_that_waits(self):
        self.publish(self.package(version="1.1.0", capabilities=MORE))
        self.walk(PENDING, self.stage, lambda: self.post(KEY, "upgrade", {}),
                  {("ready", "1.0.0"), ("upgrade_pending", "1.0.0")})

    def test_disable(self):
        self.walk(DISABLE, self.stage, lambda: self.post(KEY, "disable"), {("ready", "1.0.0"), ("disabled", "1.0.0")})

    def test_enable(self):
        def stage():
            self.stage()
            self.post(KEY, "disable")

        self.walk([*ENABLE, "registry.start"], stage, lambda: self.post(KEY, "enable"),
                  {("ready", "1.0.0"), ("disabled", "1.0.0")})

    def test_uninstall(self):
        self.walk(UNINSTALL, self.stage, lambda: self.ok("DELETE", f"/api/plugins/{KEY}"),
                  {("ready", "1.0.0"), ("uninstalled", "1.0.0")})
        self.walk(PURGE, self.stage, lambda: self.ok("DELETE", f"/api/plugins/{KEY}?purge=true"),
                  {("ready", "1.0.0"), None})

    def test_config(self):
        self.walk(CONFIG, self.stage, lambda: self.post(KEY, "config", {"configJson": {"a": 1}}),
                  {("ready", "1.0.0")})


def both(points):
    return [f"{p}.{end}" for p in points for end in ("before", "after")]


INSTALL = ["registry.intent", "registry.fetch", "registry.place", "registry.record", "registry.load", "registry.start"]
UPGRADE = ["registry.intent", "registry.fetch", "registry.place", "registry.switch"]
PENDING = ["registry.pending"]
DISABLE = ["registry.disable", "registry.stop"]
ENABLE = ["registry.enable"]
UNINSTALL = ["registry.uninstall", "registry.stop"]
PURGE = ["registry.purge"]
CONFIG = ["registry.config"]


if __name__ == "__main__":
    unittest.main()
