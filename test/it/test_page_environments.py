"""Environments on the web page, as somebody sets them up."""
# slow: a browser, and what it asks for is tested without one
# share 6: 12 s of processor time
from berthtest import wait_until
from providertest import ProviderTest
from webtest import WebTest

EVERY_KIND = {
    "type": "object", "required": ["region"],
    "properties": {
        "region": {"type": "string", "title": "Region", "description": "Where the machines stand.", "minLength": 2},
        "size": {"type": "integer", "title": "Size", "minimum": 1, "maximum": 64, "default": 4},
        "ratio": {"type": "number", "title": "Ratio", "exclusiveMinimum": 0},
        "debug": {"type": "boolean", "title": "Debug", "default": True, "description": "Say more."},
        "tier": {"type": "string", "title": "Tier", "enum": ["small", "large"]},
        "plan": {"title": "Plan", "oneOf": [{"const": "a", "title": "Plan A"}, {"const": "b", "title": "Plan B"}]},
        "apiKey": {"type": "string", "title": "API key", "format": "secret-ref"},
        "network": {"type": "object", "title": "Network", "description": "Who is reached.", "properties": {
            "cidr": {"type": "string", "title": "Range"},
            "ports": {"type": "array", "title": "Ports", "items": {"type": "integer", "title": "Port", "minimum": 1}}}},
        "mounts": {"type": "array", "title": "Mounts", "items": {"type": "object", "title": "Mount", "properties": {
            "path": {"type": "string", "title": "Path"}, "readOnly": {"type": "boolean", "title": "Read-only"}}}},
        "labels": {"type": "object", "title": "Labels", "additionalProperties": {"type": "string"}},
        "notes": {"type": "string", "title": "Notes", "format": "multiline"},
        "extra": {"title": "Extra"},
    },
}
EVIL = "<img src=x onerror=alert(1)>"


class FormTest(WebTest, ProviderTest):
    def install_provider(self, worker=None, **more):
        return super().install_provider(worker, environmentDrivers=[
            {"driverKey": "acme", "kind": "sandbox_provider", "displayName": "Acme", "description": "Machines of Acme.",
             "configSchema": EVERY_KIND},
            {"driverKey": "machine", "kind": "environment_driver", "displayName": "Acme machine", "description": "Whole machines.",
             "configSchema": {"type": "object", "required": ["rack"], "properties": {
                 "rack": {"type": "integer", "title": "Rack", "minimum": 1}, "image": {"type": "string", "title": "Image"},
                 "apiKey": {"type": "string", "title": "API key", "format": "secret-ref"}}}}], **more)

    def setUp(self):
        super().setUp()
        self.prefix = self.ok("GET", f"/api/companies/{self.company_id}")["issuePrefix"]

    def saved(self, name):
        return next(e for e in self.ok("GET", f"/api/companies/{self.company_id}/environments") if e["name"] == name)

    def fill(self, page):
        """All but the region and the secret."""
        page.get_by_text("Settings").click()
        page.get_by_label("Size").fill("8")
        page.get_by_label("Ratio").fill("0.5")
        page.get_by_label("Debug").uncheck()
        page.get_by_label("Tier").select_option({"label": "large"})
        page.get_by_label("Plan").select_option({"label": "Plan B"})
        network = page.get_by_role("group", name="Network")
        network.get_by_label("Range").fill("10.0.0.0/8")
        network.get_by_role("button", name="Add to ports").click()
        network.get_by_label("Port 1", exact=True).fill("80")
        network.get_by_role("button", name="Add to ports").click()
        network.get_by_label("Port 2", exact=True).fill("443")
        page.button("Add to mounts").click()
        page.get_by_label("Path").fill("/data")
        page.get_by_label("Read-only").check()
        page.button("Add to labels").click()
        page.get_by_label("Name 1").fill("team")
        page.get_by_label("Value 1").fill("blue")
        page.get_by_label("Notes").fill("two\nlines")
        page.get_by_label("Extra").fill('{"deep": [1, 2]}')

    def test_every_kind_of_field(self):
        page = self.page(f"/{self.prefix}/environments")
        page.link("New environment").click()
        page.heading("New environment")
        page.get_by_label("Kind").select_option({"label": "Acme"})
        page.text("Machines of Acme.")
        page.text("Where the machines stand.")
        page.get_by_label("Name", exact=True).fill("box")
        self.fill(page)
        self.assert_accessible(page)
        # What is wrong is said beside the field, which gets the focus.
        page.get_by_label("Size").fill("many")
        page.button("Create environment").click()
        page.text("This is needed.")
        page.text("Has to be a number.")
        page.focused("Region")
        self.assert_accessible(page)
        page.get_by_label("Size").fill("8")
        page.get_by_label("Region").fill("eu")
        page.get_by_label("API key", exact=True).select_option({"label": "Enter a value…"})
        page.get_by_label("API key: new value").fill("hunter2-hunter2")
        # The provider has the last word.
        self.provider.behave(ValidateConfig={"result": {"ok": False, "errors": ["No machines in eu.", "Choose us."]}})
        page.button("Create environment").click()
        page.text("No machines in eu.")
        page.text("Choose us.")
        self.provider.behave(Probe={"result": {"ok": False, "summary": "Half of it works.", "diagnostics": [
            {"severity": "error", "code": "quota", "message": "Too few machines."}, {"severity": "info", "message": "Reached."}]}})
        page.button("Test before creating").click()
        page.text("Half of it works.")
        page.text("Too few machines.")
        self.assert_accessible(page)
        page.button("Create environment").click()
        page.heading("box")
        config = self.saved("box")["config"]
        key = config.pop("apiKey")
        self.assertEqual(config, {
            "provider": "acme", "reuseLease": False, "region": "eu", "size": 8, "ratio": 0.5, "debug": False, "tier": "large", "plan": "b",
            "network": {"cidr": "10.0.0.0/8", "ports": [80, 443]}, "mounts": [{"path": "/data", "readOnly": True}],
            "labels": {"team": "blue"}, "notes": "two\nlines", "extra": {"deep": [1, 2]}})
        self.assertNotIn("hunter2", key)
        self.assertNotIn("hunter2", page.content())

    def test_a_plugin_driver(self):
        page = self.page(f"/{self.prefix}/environments/new")
        page.get_by_label("Kind").select_option({"label": "Acme machine"})
        page.text("Whole machines.")
        page.get_by_label("Name", exact=True).fill("iron")
        page.button("Create environment").click()
        page.text("This is needed.")
        page.get_by_label("Rack").fill("3")
        page.text("Kept as it is written")  # it is no secret to us
        self.assert_accessible(page)
        self.provider.behave(ValidateConfig={"result": {"ok": False, "errors": ["Rack 3 is on fire."]}})
        page.button("Create environment").click()
        page.text("Rack 3 is on fire.")
        self.provider.behave()
        page.button("Create environment").click()
        page.heading("iron")
        self.assertEqual(self.saved("iron")["config"], {"pluginKey": "acme.provider", "driverKey": "machine", "driverConfig": {"rack": 3}})
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("Image").fill("debian")
        page.button("Save").click()
        page.text("Saved “iron”.")
        self.assertEqual(self.saved("iron")["config"]["driverConfig"], {"rack": 3, "image": "debian"})

    def test_changing_one(self):
        secret = self.ok("POST", f"/api/companies/{self.company_id}/secrets", {"name": "Acme key", "value": "v"}, status=201)
        env = self.sandbox(region="eu", size=8, tier="large", labels={"team": "blue"}, apiKey="hunter2-hunter2")
        page = self.page(f"/{self.prefix}/environments/{env['id']}")
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("Size").fill("")
        page.get_by_label("Tier").select_option({"label": "Not set"})
        page.get_by_label("API key").locator("option:checked").filter(hasText="environment-sandbox-box").wait_for(state="attached")
        page.get_by_label("API key").select_option({"label": "Acme key"})
        page.button("Remove team").click()
        page.get_by_label("Description").fill("For the nightly builds")
        page.button("Save").click()
        page.text("Saved “box”.")
        saved = self.saved("box")
        self.assertEqual(saved["description"], "For the nightly builds")
        self.assertEqual(saved["config"], {"provider": "acme", "image": "i", "reuseLease": False, "region": "eu", "apiKey": secret["id"]})
        self.assert_accessible(page)

    def test_changed_by_somebody_else(self):
        env = self.sandbox(region="eu")
        page = self.page(f"/{self.prefix}/environments/{env['id']}?tab=settings")
        page.get_by_label("Region").fill("us")
        self.change(env, config={"region": "moon"})
        page.text("Somebody has changed it since you began")
        self.assert_accessible(page)
        page.button("Show what it is now").click()
        page.get_by_text("Somebody has changed it").gone()
        wait_until(lambda: page.get_by_label("Region").input_value() == "moon", "what it is now is shown")
        page.get_by_label("Region").fill("us")
        page.button("Save").click()
        page.text("Saved “box”.")
        page.get_by_text("Somebody has changed it").gone()
        self.assertEqual(self.saved("box")["config"]["region"], "us")

    def test_names_are_text(self):
        page = self.page(f"/{self.prefix}/environments/new")
        page.get_by_label("Kind").select_option({"label": "Acme"})
        page.get_by_label("Name", exact=True).fill(EVIL)
        page.get_by_label("Description").fill(EVIL)
        page.get_by_label("Region").fill(EVIL)
        self.provider.behave(Probe={"result": {"ok": False, "summary": EVIL, "diagnostics": [{"severity": EVIL, "message": EVIL}]}})
        page.button("Test before creating").click()
        page.get_by_role("status").get_by_text(EVIL).first().wait_for()
        page.button("Create environment").click()
        page.heading(EVIL)
        self.take(self.saved(EVIL))
        page.button("Delete…").click()
        page.get_by_role("heading", name=f"Delete “{EVIL}”?").wait_for()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        for section in ("Overview", "Leases", "Environments"):
            page.get_by_role("navigation").get_by_role("link", name=section).click()
            page.heading(section)
            page.text(EVIL)
            self.assertEqual(page.locator("img").count(), 0)


class EnvironmentsTest(WebTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.at = f"/{self.acme['issuePrefix']}"

    def test_testing_one(self):
        page = self.page(f"{self.at}/environments")
        page.link("Local").click()
        page.button("Test").click()
        page.text("Local environment is available")
        page.get_by_role("listitem").filter(hasText="hostname").wait_for()
        self.assert_accessible(page)

    def test_an_ssh_host_that_does_not_answer(self):
        page = self.page(f"{self.at}/environments/new")
        page.get_by_label("Kind").select_option({"label": "SSH host"})
        page.get_by_label("Name", exact=True).fill("far")
        page.get_by_label("Host", exact=True).fill("127.0.0.1")
        page.get_by_label("Port").fill("2")
        page.get_by_label("User name").fill("ada")
        page.get_by_label("Workspace path").fill("work")
        page.button("Create environment").click()
        page.text("SSH remote workspace path must be absolute.")
        page.get_by_label("Workspace path").fill("/work")
        page.get_by_label("Private key", exact=True).select_option({"label": "Enter a value…"})
        page.get_by_label("Private key: new value").fill("no key at all")
        page.button("Create environment").click()
        page.heading("far")
        env = next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments") if e["name"] == "far")
        self.assertEqual(env["config"]["privateKeySecretRef"]["type"], "secret_ref")
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("User name").fill("eve")
        page.button("Save").click()
        page.text("Saved “far”.")
        again = self.ok("GET", f"/api/environments/{env['id']}")["config"]
        self.assertEqual(again, {**env["config"], "username": "eve"})

    def test_archiving_and_deleting(self):
        env = self.environment(self.acme, name="box")
        self.acquire(env)
        page = self.page(f"{self.at}/environments/{env['id']}")
        page.button("Delete…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("1 living lease").wait_for()
        dialog.get_by_text("Somebody uses it now.").wait_for()
        self.assertTrue(dialog.get_by_role("button", name="Delete").is_disabled())
        self.assert_accessible(page)
        dialog.get_by_label("Give up its leases and sandboxes first").check()
        dialog.get_by_role("button", name="Delete").click()
        page.heading("Environments")
        self.assert_status(self.req("GET", f"/api/environments/{env['id']}"), 404)

    def test_who_uses_it(self):
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments")[0]
        crate = self.environment(self.acme, name="crate", config={"provider": "berth"})
        agent = self.ok("POST", f"/api/companies/{self.acme['id']}/agents",
                        {"name": "Ada", "defaultEnvironmentId": local["id"]}, 201)
        page = self.page(f"{self.at}/environments/{local['id']}")
        page.get_by_role("tab", name="Usage").click()
        page.link("Ada").wait_for()
        self.assert_accessible(page)
        page.button("Delete…").click()
        page.text("It belongs to its company and cannot be deleted")
        page.button("Cancel").click()
        page.button("Archive…").click()
        page.text("default of 1 agent")
        dialog = page.get_by_role("dialog")
        self.assertTrue(dialog.get_by_role("button", name="Archive").is_disabled())  # where would they work?
        dialog.get_by_label("Move what works here to").select_option("crate")
        self.assert_accessible(page)
        dialog.get_by_role("button", name="Archive").click()
        page.text("Archived “Local”.")
        self.assertEqual(self.ok("GET", f"/api/agents/{agent['id']}")["defaultEnvironmentId"], crate["id"])
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}")["defaultEnvironmentId"], crate["id"])
        page.button("Activate").click()
        page.text("is active again")
        page.text("this machine, not isolated")
        page.button("Make default").click()
        page.text("“Local” is the company's default: this machine, not isolated.")
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}")["defaultEnvironmentId"], local["id"])

    def test_what_fails_says_why(self):
        env = self.environment(self.acme, name="box")
        page = self.page(f"{self.at}/environments/{env['id']}")
        page.heading("box")
        self.ok("DELETE", f"/api/environments/{env['id']}")
        page.button("Acquire lease").click()
        page.text("Environment not found")

    def test_two_browsers(self):
        one = self.page(f"{self.at}/environments")
        two = self.page(f"{self.at}/environments", colorScheme="dark")
        one.heading("Environments")
        two.heading("Environments")
        env = self.environment(self.acme, name="shared")
        one.link("shared").click()
        two.link("shared").click()
        one.button("Archive…").click()
        one.get_by_role("dialog").get_by_role("button", name="Archive").click()
        two.button("Activate").click()
        one.button("Archive…").wait_for()
        wait_until(lambda: self.ok("GET", f"/api/environments/{env['id']}")["status"] == "active", "it is active again")

    def test_with_the_keyboard(self):
        page = self.page(f"{self.at}/environments")
        page.heading("Environments")
        page.link("New environment").press("Enter")
        page.heading("New environment")
        page.focused("H1", "document.activeElement?.tagName")
        page.get_by_label("Name", exact=True).press("Enter")
        page.text("A name is needed.")
        page.focused("Name")
