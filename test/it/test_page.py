"""The web page: what is served, signing in, the overview, live changes."""
# slow: a browser, and what it asks for is tested without one
# share 6: 8 s of processor time
import gzip
import re

from berthtest import BerthTest, new_company, set_clock
from webtest import PHONE, WebTest

SCRIPTS_MAX = 150_000  # bytes, compressed


class ServedTest(BerthTest):
    def assets(self):
        return re.findall(r'"(/assets/[^"]+)"', self.req("GET", "/").text)

    def test_the_page_itself(self):
        answer = self.req("GET", "/")
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = answer.headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"):
            self.assertIn(part, policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(answer.headers["Cache-Control"], "no-cache")
        again = self.req("GET", "/", headers={"If-None-Match": answer.headers["ETag"]})
        self.assertEqual((again.status, again.body), (304, b""))

    def test_how_much_script_there_is(self):
        """All of it, also what is loaded only when it is needed."""
        found, wanted = {}, [p for p in self.assets() if p.endswith(".js")]
        while wanted:
            path = wanted.pop()
            if path in found:
                continue
            packed = self.req("GET", path, headers={"Accept-Encoding": "gzip"}).body
            found[path] = len(packed)
            names = re.findall(rb'"\./([\w.-]+\.js)"', gzip.decompress(packed))
            wanted += [f"/assets/{name.decode()}" for name in names]
        lazy = [p for p in found if "terminal" in p]
        self.assertEqual(len(lazy), 1, found)
        self.assertLessEqual(sum(found.values()), SCRIPTS_MAX, found)

    def test_addresses_of_the_page_are_the_page(self):
        page = self.req("GET", "/").body
        for path in ("/ACM", "/ACM/environments/new", "/apis", "/%3Cscript%3E", "/ACM?x=1"):
            with self.subTest(path=path):
                answer = self.req("GET", path)
                self.assertEqual((answer.status, answer.body), (200, page))
        self.assertEqual(self.req("HEAD", "/ACM").status, 200)
        for path in ("/api/nowhere", "/API/nowhere", "/api"):
            with self.subTest(path=path):
                self.assert_error(self.req("GET", path), 404, "API route not found")
        self.assert_error(self.req("POST", "/ACM", {}), 404, "Not found")

    def test_files_of_the_page(self):
        self.assertGreaterEqual(len(self.assets()), 2)
        for path in self.assets():
            with self.subTest(path=path):
                answer = self.req("GET", path, headers={"Accept-Encoding": "gzip, br"})
                self.assertEqual((answer.status, answer.headers["Content-Encoding"]), (200, "gzip"))
                self.assertIn("immutable", answer.headers["Cache-Control"])
                self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
                self.assertGreater(len(gzip.decompress(answer.body)), 1000)
                self.assertEqual(self.req("GET", path, headers={"If-None-Match": answer.headers["ETag"], "Accept-Encoding": "*"}).status, 304)
                self.assertEqual(self.req("GET", path, headers={"Accept-Encoding": "identity"}).status, 406)
        # What a browser loads at first; scripts/web bounds the sum of all there is.
        scripts = [self.req("GET", path, headers={"Accept-Encoding": "gzip"}).body for path in self.assets() if path.endswith(".js")]
        self.assertLess(sum(map(len, scripts)), 150_000)
        for path in ("/assets/", "/assets/nothing.js", "/assets/index.html", "/assets/../index.html"):
            with self.subTest(path=path):
                self.assert_error(self.req("GET", path), 404, "Not found")


class OverviewTest(WebTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def test_the_first_company(self):
        page = self.page()
        page.heading("Welcome")
        self.assert_accessible(page)
        page.get_by_label("Company name").fill("Acme")
        page.button("Create company").click()
        page.heading("Overview")
        page.text("Records and world agree")
        self.assert_accessible(page)

    def test_living_leases(self):
        company = self.company()
        env = self.environment(company, name="box")
        lease = self.acquire(env, ttlMs=3600_000)["lease"]
        page = self.page(f"/{company['issuePrefix']}")
        row = page.get_by_role("region", name="Leases").get_by_role("row").filter(hasText=lease["id"][-12:])
        row.get_by_role("link", name="box").wait_for()
        self.assertIn("by hand", row.inner_text())
        self.assert_accessible(page)
        # It changes by itself.
        self.release(lease)
        row.gone()

    def test_on_a_phone(self):
        company = self.company()
        self.environment(company, name="box")
        page = self.page(f"/{company['issuePrefix']}", colorScheme="dark", **PHONE)
        page.heading("Overview")
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth > innerWidth"), False)
        self.assert_accessible(page)

    def test_a_daemon_that_restarts(self):
        company = self.company()
        page = self.page(f"/{company['issuePrefix']}/environments")
        page.heading("Environments")
        page.text("live", exact=True)
        self.daemon.stop()
        page.text("Connection lost")
        self.assert_accessible(page)
        self.daemon.start()
        page.get_by_text("Connection lost").gone()
        self.environment(company, name="after the restart")
        page.text("after the restart")
        page.text("live", exact=True)


class LeaksTest(WebTest):
    def setUp(self):
        self.world = self.temp_dir()
        self.daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_FAKE_WORLD": str(self.world)}
        super().setUp()

    def test_deciding(self):
        company = self.company()
        env = self.environment(company, name="box")
        lease = self.acquire(env)["lease"]
        (self.world / "fail-close").touch()
        self.release(lease)
        page = self.page(f"/{company['issuePrefix']}")
        page.get_by_role("listitem").filter(hasText="clean-up due").wait_for()
        self.assert_accessible(page)
        page.button("Close now").click()
        place = self.ok("GET", "/api/leaks")["cleanupDue"][0]["placeId"]
        page.text(self.req("POST", f"/api/places/{place}/close").error)
        page.button("Forget…").click()
        page.text("it is yours to remove")
        self.assert_accessible(page)
        (self.world / place).unlink()
        page.get_by_role("dialog").get_by_role("button", name="Forget").click()
        page.text("Records and world agree")


class SignInTest(WebTest):
    daemon_flags = ("--mode", "authenticated")
    daemon_binary = "faults"  # for its clock

    def setUp(self):
        self.clock = self.temp_dir() / "clock"
        self.clock.write_text("0")
        self.daemon_env = {"BERTH_TEST_CLOCK_FILE": str(self.clock)}
        super().setUp()
        self.acme = self.operator("POST", "/api/companies", new_company(), 201)

    def signed_in(self, key):
        page = self.page(f"/{self.acme['issuePrefix']}/environments")
        page.get_by_label("Board key").fill(key["token"])
        page.button("Sign in").click()
        page.heading("Environments")
        return page

    def test_a_key_that_expires(self):
        key = self.board_user(admin=True)
        page = self.signed_in(key)
        set_clock(self.clock, 40 * 86400)
        # The page may notice by itself, and then there is no menu any more: look and click in one step.
        went_on = page.evaluate("""(() => {
            const link = document.querySelector("nav a[href$='/overview']");
            link?.click();
            return link !== null;
        })()""")
        page.text("The key is not valid any more")
        self.assertNotIn(key["token"], page.evaluate("JSON.stringify(sessionStorage) + JSON.stringify(localStorage)"))
        page.get_by_label("Board key").fill(self.board_user(user="eve", admin=True)["token"])
        page.button("Sign in").click()
        page.heading("Overview" if went_on else "Environments")
        page.button("Sign out").click()
        page.heading("Sign in to Berth")

    def test_a_member_of_one_company(self):
        self.operator("POST", "/api/companies", {"name": "Other"}, 201)
        page = self.signed_in(self.board_user(self.acme, role="viewer"))
        self.assertEqual(page.get_by_label("Company").locator("option").all_inner_texts(), ["Acme"])
        page.get_by_role("navigation").get_by_role("link", name="Overview").click()
        page.heading("Overview")
        self.assert_accessible(page)

    def test_a_key(self):
        key = self.board_user(admin=True)
        page = self.page(f"/{self.acme['issuePrefix']}/environments")
        page.heading("Sign in to Berth")
        self.assert_accessible(page)
        page.get_by_label("Board key").fill("pcp_board_" + "0" * 48)
        page.button("Sign in").click()
        page.text("This key is not valid")
        page.get_by_label("Board key").fill(key["token"])
        page.button("Sign in").click()
        page.heading("Environments")
        page.reload()
        page.heading("Environments")
        # It is revoked while the page is open.
        self.operator("DELETE", f"/api/board-api-keys/{key['id']}")
        page.text("The key is not valid any more")
        self.assertNotIn(key["token"], page.evaluate("JSON.stringify(sessionStorage) + JSON.stringify(localStorage)"))
