"""A browser on the daemon's page, as a person uses it.

    class PageTest(WebTest):
        def test_create(self):
            page = self.page("/ACM/environments")
            page.get_by_role("link", name="New environment").click()
            page.get_by_label("Name").fill("box")
            page.get_by_role("button", name="Create").click()
            page.get_by_role("heading", name="box").wait_for()

Methods are Playwright's, in Python's spelling; those that find something are put together, those that do
something are done at once and wait until they can be. One browser serves a class, each page has a context of its own.
At the end of a test no page may have thrown, violated its policy, or asked anybody but the daemon.
"""
import json
import os
import re
import shutil
import subprocess
import unittest

from berthtest import SOURCE, BerthTest, wait_until

MODULES = SOURCE / "web/node_modules"
FINDERS = re.compile(r"get_by_|locator$|filter$|first$|last$|nth$|and_$|or_$")
PHONE = {"viewport": {"width": 390, "height": 844}, "deviceScaleFactor": 1, "hasTouch": True}


def camel(name):
    return re.sub(r"_([a-z])", lambda m: m[1].upper(), name.rstrip("_"))


class BrowserError(AssertionError):
    pass


class Browser:
    def __init__(self, origin):
        self.count = 0
        self.process = subprocess.Popen(
            ["node", SOURCE / "test/harness/browser.mjs", MODULES, shutil.which("chromium-headless-shell"), origin],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=SOURCE)

    def call(self, on, steps):
        self.count += 1
        self.process.stdin.write(json.dumps({"id": self.count, "on": on, "steps": steps}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise BrowserError(f"the browser is gone, status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(f"{steps}: {answer['error']}")
        return answer.get("value")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait()


class Chain:
    """Something to be found on a page; `page.get_by_role("row").filter(has_text="x").get_by_role("button").click()`."""

    def __init__(self, browser, on, steps=()):
        self._browser, self._on, self._steps = browser, on, list(steps)

    def __getattr__(self, name):
        def step(*args, **options):
            steps = [*self._steps, [camel(name), *args, *([{camel(k): v for k, v in options.items()}] if options else [])]]
            if FINDERS.match(name):
                return Chain(self._browser, self._on, steps)
            return self._browser.call(self._on, steps)
        return step

    def gone(self):
        self.wait_for(state="hidden")


class Page(Chain):
    def __init__(self, browser, name):
        super().__init__(browser, name)

    def text(self, text, exact=False):
        """Wait until it is to be read somewhere."""
        self.get_by_text(text, exact=exact).first().wait_for()

    def heading(self, text):
        self.get_by_role("heading", name=text, exact=True, level=1).wait_for()

    def button(self, name, exact=True):
        return self.get_by_role("button", name=name, exact=exact)

    def link(self, name, exact=True):
        return self.get_by_role("link", name=name, exact=exact)

    def focused(self, wanted, what="document.activeElement?.labels?.[0]?.textContent"):
        """Wait until the field with that label has the focus, which comes after the page is painted."""
        wait_until(lambda: self.evaluate(what) == wanted, f"{wanted} has the focus")

    def axe(self):
        return self._browser.call("browser", [["axe", self._on]])

    def troubles(self):
        return self._browser.call("browser", [["troubles", self._on]])

    def downloads(self):
        return self._browser.call("browser", [["downloads", self._on]])

    def shut(self):
        self._browser.call("browser", [["shut", self._on]])


def missing():
    """Why there can be no browser; None when there can."""
    if not shutil.which("chromium-headless-shell"):
        return "chromium-headless-shell is not installed"
    if not shutil.which("node"):
        return "node is not installed"
    if os.environ.get("BERTH_NO_PAGE"):
        return "built without the page"
    done = subprocess.run([SOURCE / "scripts/web", "fetch"], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[0] if done.returncode else None


class WebTest(BerthTest):
    browser = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        why = missing()
        if why:
            raise unittest.SkipTest(why)

    def setUp(self):
        super().setUp()
        self.pages = []
        # A restarted daemon has to be where the page looks for it.
        self.daemon.listen = f"{self.daemon.address[0]}:{self.daemon.address[1]}"
        if type(self).browser is None:
            type(self).browser = Browser(self.daemon.url)
            type(self).addClassCleanup(type(self).close_browser)

    @classmethod
    def close_browser(cls):
        cls.browser.close()
        cls.browser = None

    def tearDown(self):
        for page in self.pages:
            troubles = page.troubles()
            page.shut()
            self.assertEqual(troubles, [])
        super().tearDown()

    def page(self, path="/", **options):
        """A new browser window, as of somebody else, at this address."""
        options = {"baseURL": self.daemon.url, "trusted": self.daemon.url, **options}
        page = Page(self.browser, self.browser.call("browser", [["open", options]]))
        self.pages.append(page)
        page.goto(path)
        return page

    def issue(self, company, **body):
        return self.ok("POST", f"/api/companies/{company['id']}/issues", body, status=201)

    def assert_accessible(self, page):
        self.assertEqual(page.axe(), [])
