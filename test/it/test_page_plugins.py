"""Plugins on the web page: installing with progress, upgrading, rights, what they say."""
# slow: npm takes its time
# share 6: 6 s of processor time
from berthtest import wait_until
from plugintest import KEY, PluginTest
from webtest import WebTest

SETTINGS = {"type": "object", "properties": {"region": {"type": "string", "title": "Region"}}}


class NpmDaemon(PluginTest):
    """A daemon with a registry of its own."""
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.daemon.env = {**self.daemon.env, **self.start_registry()}
        self.daemon.start()


class PagePluginsTest(WebTest, NpmDaemon):
    def setUp(self):
        super().setUp()
        self.at = f"/{self.company()['issuePrefix']}"

    def test_from_installing_to_uninstalling(self):
        self.publish(self.package(version="1.0.0", instanceConfigSchema=SETTINGS))
        page = self.page(f"{self.at}/plugins")
        page.text("None is installed.")
        self.assert_accessible(page)
        page.link("Install…").click()
        page.button("Install").click()
        page.text("A name is needed.")
        page.get_by_label("Package").fill("acme-nothing")
        page.button("Install").click()
        page.get_by_role("region", name="Progress").wait_for()
        page.get_by_role("alert").wait_for()
        self.assert_accessible(page)
        page.get_by_label("Package").fill("acme-box")
        page.button("Install").click()
        page.text("Installed.", exact=True)
        page.locator(".facts .state").first().filter(hasText="ready").wait_for()
        self.assert_accessible(page)
        # What it says, what it may, how it is set.
        page.get_by_role("tab", name="Log").click()
        page.text("config {")
        self.assert_accessible(page)
        page.get_by_role("tab", name="Rights").click()
        page.text("provides environments")
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("Region").fill("moon")
        page.button("Test").click()
        page.text("no moon")
        page.get_by_label("Region").fill("eu")
        page.button("Save").click()
        page.text("Saved.")
        self.assert_accessible(page)
        self.assertEqual(self.plugin(KEY, "/config")["configJson"], {"region": "eu"})
        page.button("Disable").click()
        page.locator(".facts .state").first().filter(hasText="disabled").wait_for()
        page.button("Enable").click()
        page.locator(".facts .state").first().filter(hasText="ready").wait_for()
        # A version that wants more waits for somebody to say yes.
        self.publish(self.package(version="2.0.0", capabilities=["environment.drivers.register", "http.outbound"]))
        page.button("Upgrade…").click()
        page.get_by_role("dialog").get_by_role("button", name="Upgrade").click()
        page.get_by_role("heading", name="Version 2.0.0 wants more rights").wait_for()
        page.text("reaches the network")
        self.assert_accessible(page)
        page.button("Approve").click()
        page.locator(".facts").get_by_text("2.0.0").wait_for()
        self.assertEqual(self.plugin()["version"], "2.0.0")
        page.button("Uninstall…").click()
        page.get_by_role("dialog").get_by_role("button", name="Uninstall").click()
        page.heading("Plugins")
        page.text("None is installed.")

    def test_from_a_directory_and_of_a_version(self):
        """Which version, what is refused, and what of it is left."""
        for version in ("1.0.0", "1.1.0", "1.2.0"):
            self.publish(self.package(version=version))
        page = self.page(f"{self.at}/plugins/install")
        page.get_by_label("Package").fill("acme-box")
        page.get_by_label("Version").fill("1.0.0")
        page.button("Install").click()
        page.text("Installed.", exact=True)
        self.assertEqual(self.plugin()["version"], "1.0.0")
        page.button("Upgrade…").click()
        page.get_by_role("dialog").get_by_label("Version").fill("1.1.0")
        page.get_by_role("dialog").get_by_role("button", name="Upgrade").click()
        page.locator(".facts").get_by_text("1.1.0").wait_for()
        # No is no.
        self.publish(self.package(version="2.0.0", capabilities=["environment.drivers.register", "http.outbound"]))
        page.button("Upgrade…").click()
        page.get_by_role("dialog").get_by_role("button", name="Upgrade").click()
        page.button("Reject").click()
        page.text("Version 2.0.0 was thrown away.")
        page.get_by_role("heading", name="Version 2.0.0 wants more rights").gone()
        self.assertEqual((self.plugin()["version"], self.plugin()["status"]), ("1.1.0", "ready"))
        page.button("Uninstall…").click()
        page.get_by_role("dialog").get_by_label("Also delete its settings and data").check()
        page.get_by_role("dialog").get_by_role("button", name="Uninstall").click()
        page.heading("Plugins")
        page.text("None is installed.")
        self.assertEqual(self.daemon.sql("SELECT plugin_key FROM plugins"), [])
        page.link("Install…").click()
        page.get_by_label("From").select_option({"label": "A directory of the daemon's machine"})
        page.get_by_label("Directory").fill(str(self.package(version="3.0.0")))
        page.button("Install").click()
        # The word of the first time may still be there.
        wait_until(lambda: [(p["version"], p["status"]) for p in self.ok("GET", "/api/plugins")] == [("3.0.0", "ready")],
                   "it is installed")
        page.text("Installed.", exact=True)
