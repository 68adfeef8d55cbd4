"""Secrets and vaults on the web page."""
# slow: a browser, and what it asks for is tested without one
# share 6: 5 s of processor time
from awsfake import AwsFake
from webtest import WebTest

MARK = "marked-value-77e1"


class SecretsTest(WebTest):
    def setUp(self):
        self.aws = AwsFake()
        self.addCleanup(self.aws.close)
        self.daemon_env = {"BERTH_SECRETS_AWS_ENDPOINT": self.aws.url, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "AKIDTEST",
                           "AWS_SECRET_ACCESS_KEY": self.aws.keys["AKIDTEST"].secret}
        super().setUp()
        self.acme = self.company()
        self.at = f"/{self.acme['issuePrefix']}"

    def secrets(self):
        return self.ok("GET", f"/api/companies/{self.acme['id']}/secrets")

    def test_the_life_of_a_secret(self):
        page = self.page(f"{self.at}/secrets")
        page.text("There is no secret.")
        self.assert_accessible(page)
        page.link("New secret").click()
        page.button("Create secret").click()
        page.text("A value is needed.")
        page.get_by_label("Name").fill("Token of <Acme>")
        page.get_by_label("Value").fill(MARK)
        self.assert_accessible(page)
        page.button("Create secret").click()
        page.heading("Token of <Acme>")
        secret = self.secrets()[0]
        # Who uses it, and who was given it.
        agent = self.agent(self.acme, "Ada", adapterType="process", adapterConfig={
            "command": "true", "env": {"TOKEN": {"type": "secret_ref", "secretId": secret["id"], "version": "latest"}}})
        row = page.get_by_role("row").filter(hasText="env.TOKEN")
        row.get_by_role("link", name="Ada").wait_for()
        self.assert_accessible(page)
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments")[0]
        lease = self.acquire(local)["lease"]
        self.ok("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "true", "agentId": agent["id"]})
        self.release(lease)
        page.get_by_role("tab", name="Access").click()
        page.get_by_role("row").filter(hasText="success").wait_for()
        self.assert_accessible(page)
        page.button("Rotate…").click()
        page.get_by_label("New value").fill(MARK + "-2")
        page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
        page.text("Rotated.")
        self.assertEqual(self.secrets()[0]["latestVersion"], 2)
        page.get_by_role("tab", name="Versions").click()
        page.get_by_role("row").filter(hasText="current").filter(hasText="2").wait_for()
        self.assertNotIn(MARK, page.content())
        page.button("Disable").click()
        page.button("Activate").click()
        # It is used: that is said, and can be insisted on.
        page.button("Delete…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Delete").click()
        dialog.get_by_role("alert").wait_for()
        self.assert_accessible(page)
        dialog.get_by_label("Also though it is used in 1 places").check()
        dialog.get_by_role("button", name="Delete").click()
        page.heading("Secrets")
        self.assertEqual(self.secrets(), [])

    def test_where_it_is_kept(self):
        """A value in a vault that was chosen, and one that is there already."""
        vault = self.ok("POST", f"/api/companies/{self.acme['id']}/secret-provider-configs", {
            "provider": "aws_secrets_manager", "displayName": "prod", "config": {"region": "us-east-1", "namespace": "prod"}}, 201)
        theirs, other = (self.aws.CreateSecret({"Name": name, "SecretString": MARK, "ClientRequestToken": "t" * 32}, "us-east-1")
                         for name in ("team/one", "team/two"))
        page = self.page(f"{self.at}/secrets/new")
        page.get_by_label("Name").fill("Ours")
        page.get_by_label("Description").fill("For the nightly builds")
        page.get_by_label("Kept in").select_option({"label": "prod"})
        page.get_by_label("Value").fill(MARK)
        self.assertEqual(page.get_by_label("Value").get_attribute("type"), "password")
        page.button("Create secret").click()
        page.heading("Ours")
        page.text("For the nightly builds")
        (ours,) = self.secrets()
        self.assertEqual((ours["description"], ours["providerConfigId"], ours["managedMode"]),
                         ("For the nightly builds", vault["id"], "paperclip_managed"))
        self.assertEqual(len(self.aws.secrets), 3)
        page.button("Rotate…").click()
        self.assertEqual(page.get_by_label("New value").get_attribute("type"), "password")
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").gone()
        page.link("Secrets", exact=True).first().click()
        page.link("New secret").click()
        page.get_by_label("Name").fill("Theirs")
        page.get_by_label("Kept in").select_option({"label": "prod"})
        page.get_by_label("It is there already").check()
        page.button("Create secret").click()
        page.text("A reference is needed.")
        page.get_by_label("Reference").fill(theirs["ARN"])
        self.assert_accessible(page)
        page.button("Create secret").click()
        page.heading("Theirs")
        secret = next(s for s in self.secrets() if s["name"] == "Theirs")
        self.assertEqual((secret["managedMode"], secret["externalRef"]), ("external_reference", theirs["ARN"]))
        # What replaces a reference is one too.
        page.button("Rotate…").click()
        page.get_by_label("New reference").fill(other["ARN"])
        page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
        page.text("Rotated.")
        secret = next(s for s in self.secrets() if s["name"] == "Theirs")
        self.assertEqual((secret["externalRef"], secret["latestVersion"]), (other["ARN"], 2))
        self.assertEqual(len(self.aws.secrets), 3)

    def test_vaults_and_import(self):
        page = self.page(f"{self.at}/secrets?tab=vaults")
        page.text("Local encrypted")
        page.button("New vault…").click()
        page.get_by_label("Provider").select_option({"label": "AWS Secrets Manager"})
        page.get_by_label("Name", exact=True).fill("prod")
        page.get_by_label("Region").fill("moon")
        page.button("Create vault").click()
        page.get_by_role("dialog").get_by_role("alert").wait_for()
        self.assert_accessible(page)
        page.get_by_label("Region").fill("us-east-1")
        page.get_by_label("Namespace").fill("prod")
        page.button("Create vault").click()
        page.get_by_role("row").filter(hasText="prod").get_by_role("button", name="Check").click()
        page.get_by_role("row").filter(hasText="prod").filter(hasText="ready").wait_for()
        self.assert_accessible(page)
        for name in ("team/one", "team/two"):
            self.aws.CreateSecret({"Name": name, "SecretString": MARK, "ClientRequestToken": "t" * 32}, "us-east-1")
        page.get_by_role("tab", name="Import").click()
        page.button("Look").click()
        page.get_by_label("team/one").check()
        self.assert_accessible(page)
        self.assertEqual(self.secrets(), [])
        page.button("Import 1 secret").click()
        page.text("imported")
        self.assertEqual([s["name"] for s in self.secrets()], ["team/one"])
        # Now it is there: it cannot be taken up twice.
        page.button("Look").click()
        page.get_by_role("row").filter(hasText="duplicate").wait_for()
        self.assertTrue(page.get_by_label("team/one").is_disabled())
        self.assertNotIn(MARK, page.content())
