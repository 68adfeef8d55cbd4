"""Agents, issues and the terminal on the web page."""
# slow: a browser, and what it asks for is tested without one
# share 6: 11 s of processor time
import re

from berthtest import wait_until
from exectest import marked
from sandboxtest import SandboxTest
from webtest import WebTest

SIZE = r"(?m)^(\d+) (\d+)\s*$"
EVIL = "<img src=x onerror=alert(1)>"


class AgentsTest(WebTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.at = f"/{self.acme['issuePrefix']}"

    def agents(self):
        return self.ok("GET", f"/api/companies/{self.acme['id']}/agents")

    def test_making_one(self):
        page = self.page(f"{self.at}/agents")
        page.text("There is no agent yet.")
        self.assert_accessible(page)
        page.link("New agent").click()
        page.button("Create agent").click()
        page.text("A name is needed.")
        self.assert_accessible(page)
        self.assertEqual(page.get_by_label("Environment").locator("option").all_inner_texts(), [
            "The company's default: Local – this machine, not isolated", "Local – this machine, not isolated"])
        page.get_by_label("Name").fill(EVIL)
        page.get_by_label("Command").fill("echo")
        page.get_by_label("Arguments").fill("""one "two three" 'four "five"'""")
        page.button("Create agent").click()
        page.heading(EVIL)
        self.assertEqual(self.agents()[0]["adapterConfig"]["args"], ["one", "two three", 'four "five"'])
        self.assert_accessible(page)
        page.get_by_role("tab", name="Configuration").click()
        page.text("two three")
        page.button("Pause").click()
        page.button("Resume").wait_for()
        # What the server says is shown where it was asked.
        page.button("Wake…").click()
        page.get_by_role("dialog").get_by_role("button", name="Wake").click()
        page.get_by_role("dialog").get_by_text("Agent is not invokable in its current state").wait_for()
        self.assert_accessible(page)
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.button("Resume").click()
        page.button("Wake…").click()
        page.get_by_role("dialog").get_by_role("button", name="Wake").click()
        page.get_by_role("region", name="Log").get_by_text('one two three four "five"').wait_for()
        self.assertEqual(page.locator("img").count(), 0)

    def test_an_issue(self):
        ada = self.agent(self.acme, "Ada", adapterType="process", adapterConfig={"command": "true"})
        task = self.issue(self.acme, title=EVIL)
        page = self.page(f"{self.at}/issues")
        page.link(f"{task['identifier']} {EVIL}").click()
        page.get_by_label("New comment").fill(f"Look: {EVIL}")
        page.button("Comment").click()
        page.get_by_role("listitem").filter(hasText=f"Look: {EVIL}").wait_for()
        self.assert_accessible(page)
        page.get_by_label("State").select_option({"label": "todo"})
        page.locator(".facts .state").first().filter(hasText="todo").wait_for()
        page.get_by_label("Agent").select_option({"label": "Ada"})
        # Giving it to somebody wakes them.
        page.get_by_role("row").filter(hasText="assignment").get_by_role("link").wait_for()
        self.assertEqual(self.ok("GET", f"/api/issues/{task['id']}")["assigneeAgentId"], ada["id"])
        page.get_by_label("State").select_option({"label": "done"})
        page.locator(".facts .state").first().filter(hasText="done").wait_for()
        # Somebody else's words appear by themselves.
        self.ok("POST", f"/api/issues/{task['id']}/comments", {"body": "from elsewhere"}, 201)
        page.text("from elsewhere")
        self.assertEqual(page.locator("img").count(), 0)
        page.get_by_role("navigation").get_by_role("link", name="Issues").click()
        page.text("Nothing is to be done.")
        page.get_by_label("Also those that are done or cancelled").check()
        page.link(f"{task['identifier']} {EVIL}").wait_for()
        self.assert_accessible(page)


# Sockets that are opened from now on hear nothing until release().
HELD_SOCKETS = """
    window.held = [];
    window.release = () => { const all = held; held = null; all.forEach((hear) => hear()); };
    window.WebSocket = class extends WebSocket {
        set onmessage(hear) { super.onmessage = (e) => held ? held.push(() => hear(e)) : hear(e); }
    };
    0
"""


class TerminalTest(WebTest, SandboxTest):
    def setUp(self):
        # What somebody's login shell reads may take its time.
        self.daemon_env = {**SandboxTest.daemon_env, "BERTH_ALLOW_FAKE_PROVIDER": "1", "HOME": str(self.temp_dir())}
        super().setUp()

    def make_lease(self):
        self.acme = self.company()

    def open(self, env):
        self.held = self.acquire(env)
        lease = self.held["lease"]
        page = self.page(f"/{self.acme['issuePrefix']}/leases/{lease['id']}")
        self.assertEqual(self.chunks(page), [])
        page.link("Terminal").click()
        page.heading("Terminal")
        page.text("ends the shell.")
        self.assertEqual(len(self.chunks(page)), 1)
        return page, lease

    def chunks(self, page):
        """The emulator, as far as it was loaded."""
        return page.evaluate("performance.getEntriesByType('resource').map(r => r.name).filter(n => n.includes('terminal-screen'))")

    def type(self, page, text):
        page.locator(".xterm-helper-textarea").press_sequentially(text)
        page.locator(".xterm-helper-textarea").press("Enter")

    def screen(self, page):
        return page.locator(".xterm-rows").inner_text()

    def see(self, page, pattern):
        try:
            wait_until(lambda: re.search(pattern, self.screen(page)), pattern)
        except AssertionError as e:
            raise AssertionError(f"{e} on {self.screen(page)!r}") from None

    def commands(self, lease):
        return self.ok("GET", f"/api/environment-leases/{lease['id']}/executions")

    def use(self, env):
        page, lease = self.open(env)
        self.type(page, "echo $((6*7))-$TERM; tty > /dev/null && echo is-a-tty")
        self.see(page, r"42-xterm-256color")
        self.see(page, r"(?m)^is-a-tty")
        self.type(page, r"printf '\033[38;2;10;200;10mgreen\033[0m \033[31mred\033[0m\n'; stty size")
        self.see(page, r"(?m)^green red")
        self.see(page, SIZE)
        size = re.search(SIZE, self.screen(page))
        self.assertGreater(int(size[2]), 60)
        self.assert_accessible(page)
        return page, lease

    def test_here(self):
        local = self.ok("GET", f"/api/companies/{self.acme['id']}/environments")[0]
        page, lease = self.use(local)
        page.set_viewport_size({"width": 700, "height": 500})
        self.type(page, "echo; clear; until set -- $(stty size); [ $2 -lt 85 ]; do :; done; echo narrow-$((40+2))")
        self.see(page, r"(?m)^narrow-42")
        # A daemon that restarts takes nothing away.
        self.type(page, "mark=still-here; echo set-$mark")
        self.see(page, r"(?m)^set-still-here")
        self.daemon.restart()
        self.type(page, "echo again-$mark")
        self.see(page, r"(?m)^again-still-here")
        self.assertEqual(len(self.commands(lease)), 1)
        self.type(page, "exit 3")
        page.text("The shell has ended, exit 3.")
        page.button("New shell").click()
        page.text("ends the shell.")
        page.link("Lease in Local").click()
        page.heading("Lease in Local")
        self.none_left(lease)

    def test_what_was_asked_is_answered_once(self):
        page, _ = self.open(self.ok("GET", f"/api/companies/{self.acme['id']}/environments")[0])
        # The screen says what it is in seven characters.
        self.type(page, r"stty -icanon -echo; printf '\033[c'; head -c 7 > /dev/null; stty sane; echo asked-$((40+2))")
        self.see(page, r"(?m)^asked-42")
        self.daemon.restart()
        self.type(page, "echo again-$((40+2))")
        self.see(page, r"(?m)^again-42")
        self.type(page, "echo clean-$((40+2))")
        self.see(page, r"(?m)^clean-42")
        self.assertNotIn("1;2c", self.screen(page))

    def test_its_size_changes_while_it_starts(self):
        lease = self.acquire(self.ok("GET", f"/api/companies/{self.acme['id']}/environments")[0])["lease"]
        page = self.page(f"/{self.acme['issuePrefix']}/leases/{lease['id']}")
        page.evaluate(HELD_SOCKETS)
        page.link("Terminal").click()
        page.text("Starting a shell…")
        wait_until(lambda: page.evaluate("held.length > 0"), "the shell is there")
        page.set_viewport_size({"width": 700, "height": 500})
        wait_until(lambda: page.evaluate("document.querySelector('.xterm-screen').clientWidth < 700"), "it is narrow")
        # What the page puts off is done before what is put off for longer afterwards.
        page.evaluate("new Promise((done) => setTimeout(done, 200))")
        page.evaluate("release()")
        self.type(page, "until set -- $(stty size); [ $2 -lt 85 ]; do :; done; echo narrow-$((40+2))")
        self.see(page, r"(?m)^narrow-42")

    def none_left(self, lease):
        wait_until(lambda: all(c["status"] == "exited" and not marked([c["execId"]]) for c in self.commands(lease)),
                   "no shell is left")

    def test_it_ends_with_the_tab(self):
        page, lease = self.open(self.ok("GET", f"/api/companies/{self.acme['id']}/environments")[0])
        self.type(page, "echo up-$((1+1)); sleep 1000")
        self.see(page, r"(?m)^up-2")
        (command,) = self.commands(lease)
        self.assertNotEqual(marked([command["execId"]]), [])
        page.close()
        self.none_left(lease)

    def test_what_cannot_be_opened_says_why(self):
        lease = self.acquire(self.environment(self.acme))["lease"]
        wanted = self.req("POST", f"/api/environment-leases/{lease['id']}/execute", {"command": "true"}).error
        page = self.page(f"/{self.acme['issuePrefix']}/leases/{lease['id']}")
        page.link("Terminal").click()
        page.get_by_role("alert").get_by_text(wanted).wait_for()

    def test_in_a_sandbox(self):
        self.require_sandboxes()
        self.use(self.sandbox_environment())
