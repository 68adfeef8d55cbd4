"""Leases and salvages on the web page."""
# slow: a browser, and what it asks for is tested without one
# share 6: 5 s of processor time
import pathlib

from berthtest import wait_until
from webtest import WebTest


class PageTest(WebTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.at = f"/{self.acme['issuePrefix']}"

    def local(self):
        return next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments") if e["driver"] == "local")


class LeasesTest(PageTest):
    def status(self, lease):
        return self.ok("GET", f"/api/environment-leases/{lease['id']}")["status"]

    def test_from_acquiring_to_releasing(self):
        page = self.page(f"{self.at}/environments")
        page.link("Local").click()
        page.button("Acquire lease").click()
        page.heading("Lease in Local")
        lease = {"id": page.url().rsplit("/", 1)[1].split("?")[0]}
        self.ok("POST", f"/api/environment-leases/{lease['id']}/execute",
                {"command": "sh", "args": ["-c", "echo '<b>bold</b>'; echo oops >&2; exit 3"]})
        row = page.get_by_role("row").filter(hasText="exit 3")
        row.get_by_role("button").click()
        page.get_by_role("region", name="Standard output").get_by_text("<b>bold</b>").wait_for()
        page.get_by_role("region", name="Standard error").get_by_text("oops").wait_for()
        self.assert_accessible(page)
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
        page.button("Renew").click()
        page.text("It lasts an hour from now.")
        page.button("Release…").click()
        self.assert_accessible(page)
        page.get_by_role("dialog").get_by_role("button", name="Release").click()
        page.text("Released.")
        self.assertEqual(self.status(lease), "released")
        page.button("Release…").gone()
        page.get_by_role("navigation").get_by_role("link", name="Leases").click()
        page.text("Nothing is leased.")
        self.assert_accessible(page)
        page.get_by_role("tab", name="Living").press("ArrowRight")
        page.link(lease["id"][-12:]).wait_for()
        self.assert_accessible(page)

    def test_what_a_driver_cannot_do(self):
        lease = self.acquire(self.local())["lease"]
        page = self.page(f"{self.at}/leases/{lease['id']}")
        page.button("Pause").click()
        wanted = self.req("POST", f"/api/environment-leases/{lease['id']}/pause").error
        page.text(wanted)
        page.button("Destroy…").click()
        page.get_by_role("dialog").get_by_role("button", name="Destroy").click()
        wanted = self.req("POST", f"/api/environment-leases/{lease['id']}/destroy").error
        page.get_by_role("dialog").get_by_role("alert").get_by_text(wanted).wait_for()
        self.assertEqual(self.status(lease), "active")

    def test_a_lease_that_is_not_there(self):
        page = self.page(f"{self.at}/leases/01a1dfb9-f7f8-4d36-a6dd-faa43c2f0a39")
        page.text("Environment lease not found")
        self.assert_accessible(page)


class WorkspaceTest(PageTest):
    def setUp(self):
        self.root = pathlib.Path(self.temp_dir())
        self.daemon_env = {**self.daemon_env, "BERTH_WORKSPACE_ROOTS": str(self.root)}
        super().setUp()
        (self.root / "w").mkdir()
        (self.root / "w/old").write_text("old\n")

    def staged(self):
        lease = self.acquire(self.local())["lease"]
        self.addCleanup(self.release, lease)  # its box would outlive the daemon
        at = f"/api/environment-leases/{lease['id']}"
        self.ok("POST", f"{at}/workspace/stage", {"localPath": str(self.root / "w"), "isolation": "copy"})
        self.ok("POST", f"{at}/execute", {"command": "sh", "args": ["-c", "echo new >new; echo changed >old"]})
        return lease

    def test_changes_and_salvages(self):
        lease = self.staged()
        page = self.page(f"{self.at}/leases/{lease['id']}?tab=workspace")
        page.button("Show changes").click()
        page.get_by_text("old", exact=True).click()
        page.get_by_role("region", name="Changes of old").get_by_text("+changed").wait_for()
        self.assert_accessible(page)
        page.button("Release…").click()
        page.get_by_role("dialog").get_by_role("button", name="Release").click()
        page.text("Released.")
        page.get_by_role("navigation").get_by_role("link", name="Salvages").click()
        page.button("Apply…").click()
        page.get_by_role("dialog").get_by_text("new", exact=True).wait_for()
        self.assert_accessible(page)
        page.get_by_role("dialog").get_by_role("button", name="Apply").click()
        page.text("Applied.")
        wait_until(lambda: (self.root / "w/new").exists(), "it is there again")
        self.assertEqual((self.root / "w/old").read_text(), "changed\n")
        page.button("Delete…").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        page.text("Nothing had to be saved.")
        self.assert_accessible(page)

    def test_bringing_home(self):
        lease = self.staged()
        page = self.page(f"{self.at}/leases/{lease['id']}?tab=workspace")
        page.button("Bring home").click()
        page.text("Brought home.")
        self.assertEqual((self.root / "w/new").read_text(), "new\n")
