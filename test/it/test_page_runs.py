"""Runs on the web page: waking an agent, watching what it does, its log, ending it, trying again."""
# slow: a browser, and what it asks for is tested without one
# share 6: 15 s of processor time
import json

from runtest import HOLD, RunTest, ident, wait_until
from webtest import PHONE, WebTest

MANY = 100_000


class PageRunTest(WebTest, RunTest):
    def setUp(self):
        super().setUp()
        self.at = f"/{self.acme['issuePrefix']}"

    def run_page(self, run, **options):
        page = self.page(f"{self.at}/runs/{ident(run)}", **options)
        page.get_by_role("heading", level=1).filter(hasText=ident(run)[-6:]).wait_for()
        return page

    def log(self, page):
        return page.get_by_role("region", name="Log")

    def lines(self, page):
        """What can be read of the log now."""
        return page.locator(".log-text").all_inner_texts()

    def state(self, page, word):
        page.locator(".facts .state").first().filter(hasText=word).wait_for()


class WatchTest(PageRunTest):
    def test_an_agent_is_woken_on_an_issue_and_watched(self):
        agent = self.runner(HOLD + "echo all done")
        page = self.page(f"{self.at}/issues")
        page.link("New issue").click()
        page.heading("New issue")
        page.get_by_label("Title").fill("Paint the fence")
        page.get_by_label("Description").fill("Green,\nplease.")
        self.assert_accessible(page)
        page.button("Create issue").click()
        page.heading(f"{self.acme['issuePrefix']}-1 Paint the fence")
        self.assert_accessible(page)
        page.get_by_role("navigation").get_by_role("link", name="Agents").click()
        page.button("Wake Ada").click()
        page.get_by_label("Issue").select_option({"label": f"{self.acme['issuePrefix']}-1 Paint the fence"})
        page.get_by_label("Reason").fill("it is dry")
        self.assert_accessible(page)
        page.get_by_role("dialog").get_by_role("button", name="Wake").click()
        # What it says is shown while it runs.
        self.log(page).get_by_text("up", exact=True).wait_for()
        self.state(page, "running")
        page.link(f"{self.acme['issuePrefix']}-1 Paint the fence").wait_for()
        self.assert_accessible(page)
        self.release_held()
        self.log(page).get_by_text("all done").wait_for()
        self.state(page, "succeeded")
        run = self.runs()[0]
        self.finished(run)
        self.assertEqual((run["agent_id"], json.loads(run["context_snapshot"])["wakeReason"]), (agent["id"], "it is dry"))
        lanes = page.get_by_role("group", name="Timeline of the run")
        for part in ("Waiting in the queue", "Leasing the environment", "Starting the command", "Until the first output", "The command", "Releasing the environment"):
            lanes.locator(f'[aria-label^="{part}, "]').wait_for()
        self.assertRegex(lanes.inner_text(), r"Work [\d,]+ ms")
        # Output that was lost is told.
        self.edit("UPDATE heartbeat_runs SET is_incomplete = 1 WHERE id = ?", (run["id"],))
        page.reload()
        page.get_by_text("incomplete", exact=True).wait_for()
        self.assert_accessible(page)
        # And from the list.
        page.get_by_role("navigation").get_by_role("link", name="Runs").click()
        page.heading("Runs")
        page.get_by_role("row").filter(hasText="succeeded").get_by_role("link", name="ACM-1").wait_for()
        self.assert_accessible(page)

    def test_cancelling(self):
        run = self.wake(self.runner(HOLD))
        self.up(run)
        page = self.run_page(run)
        page.button("Cancel…").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
        self.state(page, "cancelled")
        self.finished(run)
        page.button("Retry").wait_for()

    def test_trying_again(self):
        agent = self.runner("echo broken >&2; exit 3")
        task = self.issue(self.acme, title="Try")
        run = self.wake(agent, payload={"issueId": task["id"]})
        self.finished(run)
        page = self.run_page(run)
        self.state(page, "failed")
        self.assert_accessible(page)
        page.button("Retry").click()
        page.get_by_role("heading", level=1).filter(hasNotText=run["id"][-6:]).wait_for()
        again = wait_until(lambda: self.runs()[1:], "there is another run")[0]
        page.get_by_role("heading", level=1).filter(hasText=again["id"][-6:]).wait_for()
        self.assertEqual(again["issue_id"], task["id"])
        self.finished(again)

    def test_a_daemon_that_restarts_meanwhile(self):
        run = self.wake(self.runner(HOLD + "echo after"))
        self.up(run)
        page = self.run_page(run)
        self.log(page).get_by_text("up", exact=True).wait_for()
        self.daemon.stop()
        page.text("Connection lost")
        self.daemon.start()
        self.release_held()
        self.log(page).get_by_text("after", exact=True).wait_for()
        self.state(page, "succeeded")
        self.assertEqual(self.lines(page).count("up"), 1)


class LogTest(PageRunTest):
    def said(self, script, **options):
        """The page of a run that has ended."""
        run = self.wake(self.runner(script))
        self.finished(run)
        return self.run_page(run, **options)

    def test_colours(self):
        page = self.said(r"printf '\033[31mred \033[1;38;5;33mblue\033[0m plain\n\033[32mgreen\nstill green\033[0m\n'; "
                         r"printf 'a\rb\n'; printf '\033[48;2;255;255;0;30mback\033[0m<img src=x>\n'; echo err >&2")
        self.log(page).get_by_text("still green").wait_for()
        self.log(page).get_by_text("err", exact=True).wait_for()
        colours = page.evaluate("""Object.fromEntries([...document.querySelectorAll('.log-text span')]
            .map(s => [s.textContent.trim(), getComputedStyle(s).color]))""")
        plain = page.evaluate("getComputedStyle(document.querySelector('.log-text')).color")
        self.assertEqual(set(colours), {"red", "blue", "green", "still green", "back"})
        self.assertEqual(colours["green"], colours["still green"])
        self.assertEqual(len({plain, colours["red"], colours["blue"], colours["green"]}), 4)
        self.assertIn("b", self.lines(page))
        self.assertIn("back<img src=x>", self.lines(page))
        self.assertEqual(page.locator("img").count(), 0)
        self.assertEqual(page.locator(".log-row.stderr").count(), 1)
        self.assert_accessible(page)

    def test_searching(self):
        page = self.said("seq 1 3000 | sed 's/^/number /'; echo needle; seq 1 3000; echo NEEDLE")
        page.text("6,002 lines")
        search = page.get_by_label("Search the log")
        search.fill("needle")
        page.text("1 of 2")
        wait_until(lambda: "needle" in self.lines(page), "it is scrolled to")
        self.assertEqual(page.locator("mark.now").inner_text(), "needle")
        self.assert_accessible(page)
        search.press("Enter")
        page.text("2 of 2")
        page.locator("mark.now").filter(hasText="NEEDLE").wait_for()
        page.button("Next match").click()
        page.text("1 of 2")
        page.button("Previous match").click()
        page.text("2 of 2")
        search.fill("haystack")
        page.text("not found")

    def test_wrapping(self):
        page = self.said("seq -s '' 1 400; echo next")
        self.log(page).get_by_text("next").wait_for()
        self.assertTrue(page.evaluate("document.querySelector('.log-box').scrollWidth > document.querySelector('.log-box').clientWidth"))
        page.get_by_label("Wrap").check()
        page.locator(".log-rows.wrapped").wait_for()
        self.assertFalse(page.evaluate("document.querySelector('.log-box').scrollWidth > document.querySelector('.log-box').clientWidth"))
        wait_until(lambda: "".join(self.lines(page)[:-1]) == "".join(map(str, range(1, 401))), "every row is there")
        self.assertGreater(len(self.lines(page)), 5)
        self.assertTrue(page.evaluate("[...document.querySelectorAll('.log-text')].every(t => "
                                      "t.getBoundingClientRect().right <= document.querySelector('.log-box').getBoundingClientRect().right)"))
        # What was found in a wrapped line is marked across its rows.
        page.get_by_label("Search the log").fill("399400")
        page.text("1 of 1")
        self.assertEqual("".join(page.locator("mark.now").all_inner_texts()), "399400")

    def test_downloading(self):
        page = self.said(r"printf '\033[31mred\033[0m\n'; seq 1 5000")
        page.text("5,001 lines")
        page.button("Download").click()
        name, text = wait_until(page.downloads, "it is downloaded")[0]
        self.assertRegex(name, r"^run-[0-9a-f-]{36}\.log$")
        self.assertEqual(text, "red\n" + "".join(f"{i}\n" for i in range(1, 5001)))

    def test_a_hundred_thousand_lines(self):
        page = self.said(f"seq 1 {MANY} | sed 's/$/ of many lines/'")
        page.text("100,000 lines")
        self.assertLess(page.locator(".log-row").count(), 120)
        page.get_by_label("Follow").check()
        self.log(page).get_by_text(f"{MANY} of many lines").wait_for()
        page.evaluate("document.querySelector('.log-box').scrollTop = 900000")
        wait_until(lambda: any(t.startswith("50") for t in self.lines(page)), "it is scrolled to the middle")
        self.assertLess(page.locator(".log-row").count(), 120)
        page.get_by_label("Search the log").fill("99999 of")
        page.text("1 of 1")
        self.log(page).get_by_text("99999 of many lines").wait_for()

    def test_following(self):
        run = self.wake(self.runner("seq 1 500; " + HOLD + "seq 501 1000; echo the end"))
        self.up(run)
        page = self.run_page(run)
        self.log(page).get_by_text("up", exact=True).wait_for()
        # Who scrolls up is not pulled down again.
        page.evaluate("document.querySelector('.log-box').scrollTop = 0")
        wait_until(lambda: not page.get_by_label("Follow").is_checked(), "it is not followed")
        self.release_held()
        page.text("1,002 lines")
        self.assertIn("1", self.lines(page))
        page.get_by_label("Follow").check()
        self.log(page).get_by_text("the end").wait_for()

    def test_on_a_phone(self):
        page = self.said("echo hello; seq -s '' 1 200", colorScheme="dark", **PHONE)
        self.log(page).get_by_text("hello").wait_for()
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth > innerWidth"), False)
        self.assertTrue(page.get_by_label("Wrap").is_checked())
        self.assert_accessible(page)


class TranscriptTest(PageRunTest):
    """What Claude prints, by a script in its place. Its texts are hostile."""

    BEFORE = [
        {"type": "system", "subtype": "init", "session_id": "s", "model": "m"},
        {"type": "assistant", "message": {"content": [
            {"type": "thinking", "thinking": "First I look around.\nThen I see."},
            {"type": "text", "text": "I look at <img src=x onerror=alert(1)> \x1b[31mred\x1b[0m\x1b]0;title\x07\rfiles."},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls -la\necho second"}}]}},
    ]
    AFTER = [
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a-file <b>bold</b>"}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t2", "name": "Edit", "input": {"path": "a", "n": 1}}]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t2", "content": "no such file", "is_error": True}]}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "All done."}]}},
        {"type": "result", "result": "All done.", "is_error": False, "total_cost_usd": 0.0125,
         "usage": {"input_tokens": 1200, "cache_read_input_tokens": 800, "output_tokens": 40}},
    ]

    def claude(self, *parts):
        """An agent whose program prints these events, after each part but the last until release_held()."""
        texts = []
        for i, part in enumerate(parts):
            (self.work / f"part{i}").write_text("".join(json.dumps(event) + "\n" for event in part))
            texts.append(f"cat part{i}\n")
        script = self.work / "claude"
        script.write_text("#!/bin/sh\ncat > /dev/null\necho warned >&2\n" + "while [ ! -e go ]; do sleep 0.02; done\n".join(texts))
        script.chmod(0o755)
        return self.agent(self.acme, "Ada", adapterType="claude_local", adapterConfig={"command": str(script), "cwd": str(self.work)})

    def test_as_it_comes(self):
        run = self.wake(self.claude(self.BEFORE, self.AFTER))
        page = self.run_page(run)
        turns = page.get_by_role("region", name="Transcript")
        turns.get_by_text("I look at <img src=x onerror=alert(1)> redfiles.", exact=True).wait_for()
        bash = turns.locator("details.tool").filter(hasText="Bash")
        bash.locator("summary").filter(hasText="ls -la").filter(hasText="running").wait_for()
        self.assertEqual(page.get_by_text("echo second").count(), 0, "tool calls are folded")
        self.assertEqual(page.get_by_text("Then I see.").count(), 0, "thoughts are folded")
        turns.get_by_text("warned").wait_for()
        self.assertTrue(page.evaluate("document.querySelector('.turns').getBoundingClientRect().top < innerHeight / 2"), "above the fold")
        self.assert_accessible(page)
        self.release_held()
        turns.get_by_text("All done.").wait_for()
        self.state(page, "succeeded")
        # A call and its result are one.
        bash.locator("summary").click()
        page.get_by_role("region", name="What Bash was given").filter(hasText="echo second").wait_for()
        page.get_by_role("region", name="What Bash answered").filter(hasText="a-file <b>bold</b>").wait_for()
        turns.locator("details.tool.failed").filter(hasText='Edit {"path":"a","n":1}').get_by_text("failed").wait_for()
        page.text("2 tool calls · 1,200 tokens in, 800 cached, 40 out · $0.0125")
        page.get_by_label("Unfold").check()
        page.text("no such file")
        page.text("Then I see.")
        self.assert_accessible(page)
        self.assertEqual(page.locator("main img, .turns b:has(*)").count(), 0)
        self.assertEqual(page.evaluate("/[\\x00-\\x08\\x0b-\\x1f]/.test(document.body.textContent)"), False)
        # The log as it is, one click away.
        page.get_by_role("tab", name="Log").click()
        self.log(page).get_by_text('"subtype": "init"').wait_for()

    def test_on_a_phone_in_the_dark(self):
        long = [{"type": "assistant", "message": {"content": [{"type": "text", "text": f"Step {i}. {'x' * 400}"}]}} for i in range(600)]
        self.release_held()
        run = self.wake(self.claude(self.BEFORE, [*long, *self.AFTER]))
        self.finished(run)
        page = self.run_page(run, colorScheme="dark", **PHONE)
        page.text("Step 599.")
        self.assertLess(page.locator(".turn").count(), 420)
        page.button("earlier", exact=False).click()
        page.text("Step 0.")
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth > innerWidth"), False)
        self.assert_accessible(page)


class SandboxRunTest(PageRunTest):
    def test_callbacks_and_files(self):
        (self.work / "kept.txt").write_text("one\n")
        agent = self.runner('curl -s -H "Authorization: Bearer $PAPERCLIP_API_KEY" "$PAPERCLIP_API_URL/api/agents/me" > /dev/null; '
                            'curl -s -X DELETE -H "Authorization: Bearer $PAPERCLIP_API_KEY" "$PAPERCLIP_API_URL/api/secrets/1" > /dev/null; '
                            "echo two >> kept.txt; echo hunter2 > .env; echo up; while [ ! -e /tmp/go ]; do sleep 0.05; done", environment=self.sandbox())
        run = self.wake(agent)
        self.up(run)
        page = self.run_page(run)
        tab = page.get_by_role("tab", name="Callbacks (2)")
        tab.click()
        row = page.get_by_role("row").filter(hasText="/api/agents/me")
        self.assertIn("200", row.inner_text())
        self.assertIn("403", page.get_by_role("row").filter(hasText="DELETE").inner_text())
        page.get_by_role("group", name="Timeline of the run").get_by_text("Callbacks 2").wait_for()
        self.assert_accessible(page)
        # What it changed so far, while it runs.
        page.get_by_role("tab", name="Files").click()
        page.get_by_text("kept.txt").first().click()
        page.text("+two")
        self.assert_accessible(page)
        self.cancel(run)
        self.finished(run)
        # And what came home, when the place is gone.
        page.get_by_text("1 changed").wait_for()
        page.get_by_text("kept.txt").first().click()
        page.text("+two")
        self.assertNotIn("hunter2", page.content())
