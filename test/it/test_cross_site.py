"""Pages from elsewhere in the operator's browser: none of them reads the API, none of them changes anything.

A page of another port, of another name, and one whose name was made to mean this machine (DNS rebinding) try every way
that a browser has to reach another server without being asked. What they got to see is compared with a word that only
the API knows; what they changed is looked for in the database. The daemon's own page does the same tries at the end,
and succeeds: a try that cannot succeed anywhere proves nothing.

TEST_HOSTILE_ROUNDS plays the tries so many times, in a random order.
"""

# slow: a browser tries every way from every place
# share 6: 25 s of processor time

# sqlite: asks SQLite for its tables

import http.server
import json
import os
import random
import threading
import unittest

from webtest import Page, WebTest

ROUNDS = int(os.environ.get("TEST_HOSTILE_ROUNDS", "1"))

# Functions of a page: (the daemon's address, path, ...) => text that was read, or why not. Every one has an
# end: what neither succeeds nor fails within its time has not got anywhere either.
READS = {
    "fetch": "async (at, path) => (await fetch(at + path)).text()",
    "fetch with credentials": "async (at, path) => (await fetch(at + path, {credentials: 'include'})).text()",
    "fetch with a key": "async (at, path) => (await fetch(at + path, {headers: {authorization: 'Bearer pcp_board_x'}})).text()",
    "fetch without asking": "async (at, path) => (await fetch(at + path, {mode: 'no-cors'})).text()",
    "XMLHttpRequest": """(at, path) => new Promise((done) => {
        const x = new XMLHttpRequest();
        x.onloadend = () => done(x.responseText);
        x.open("GET", at + path);
        x.send();
    })""",
    "a script": """(at, path) => new Promise((done) => {
        const s = document.createElement("script");
        window.onerror = (message, file, line, column, error) => done(String(message) + String(error));
        s.onload = () => done("loaded");
        s.onerror = () => done("refused");
        s.src = at + path;
        document.head.append(s);
    })""",
    "a frame": """(at, path) => new Promise((done) => {
        const f = document.createElement("iframe");
        f.onload = () => {
            try { done(f.contentDocument.documentElement.outerHTML); } catch (e) { done(String(e)); }
        };
        f.src = at + path;
        document.body.append(f);
    })""",
    "an image": """(at, path) => new Promise((done) => {
        const i = new Image();
        i.onload = () => done("loaded");
        i.onerror = () => done("refused");
        i.src = at + path;
    })""",
    "a style": """(at, path) => new Promise((done) => {
        const l = document.createElement("link");
        l.rel = "stylesheet";
        l.onload = () => done([...document.styleSheets].map((s) => { try { return s.cssRules[0].cssText } catch (e) { return "" } }).join());
        l.onerror = () => done("refused");
        l.href = at + path;
        document.head.append(l);
    })""",
    "events": """(at, path, events) => new Promise((done) => {
        const e = new EventSource(at + events);
        e.onopen = () => { e.close(); done("CANARY: it is open"); };
        e.onerror = () => { e.close(); done("refused"); };
    })""",
    "a socket": """(at, path, events, socket) => new Promise((done) => {
        const w = new WebSocket(at.replace("http", "ws") + socket);
        w.onopen = () => { w.close(); done("CANARY: it is open"); };
        w.onerror = w.onclose = () => done("refused");
    })""",
}

WRITES = {
    "fetch": "async (at, path, body, method) => (await fetch(at + path, {method, body, headers: {'content-type': 'application/json'}})).text()",
    "fetch as text": "async (at, path, body, method) => (await fetch(at + path, {method, body, mode: 'no-cors', headers: {'content-type': 'text/plain'}})).text()",
    "fetch without a type": "async (at, path, body) => (await fetch(at + path, {method: 'POST', body: new Blob([body]), mode: 'no-cors'})).text()",
    "fetch that outlives the page": "async (at, path, body) => (await fetch(at + path, {method: 'POST', body, mode: 'no-cors', keepalive: true})).text()",
    "a beacon": "(at, path, body) => String(navigator.sendBeacon(at + path, body))",
    "a beacon with a type": "(at, path, body) => { try { return String(navigator.sendBeacon(at + path, new Blob([body], {type: 'application/json'}))) } catch (e) { return String(e) } }",
    **{f"a form, {name}": """(at, path, body) => new Promise((done) => {
        const frame = document.createElement("iframe"), form = document.createElement("form");
        frame.name = "f" + Math.random();
        form.method = "POST"; form.enctype = "%s"; form.target = frame.name; form.action = at + path;
        const field = document.createElement("input");
        field.name = body.slice(0, -2) + ',"x":"'; field.value = '"}';
        form.append(field);
        document.body.append(frame, form);
        frame.onload = () => done("sent");
        form.submit();
    })""" % kind for name, kind in (("text", "text/plain"), ("fields", "application/x-www-form-urlencoded"),
                                    ("parts", "multipart/form-data"))},
    "a page without an origin": """(at, path, body) => new Promise((done) => {
        const frame = document.createElement("iframe");
        frame.sandbox = "allow-scripts";
        frame.srcdoc = `<script>
            const all = ["application/json", "text/plain", ""].map((type) => fetch(${JSON.stringify(at + path)},
                {method: "POST", mode: type == "application/json" ? "cors" : "no-cors", body: new Blob([${JSON.stringify(body)}], {type})}));
            Promise.allSettled(all).then(() => parent.postMessage("sent", "*"));
        </scr` + `ipt>`;
        onmessage = () => done("sent");
        document.body.append(frame);
    })""",
}

TRY = """(async () => {
    const limit = new Promise((done) => setTimeout(() => done("nothing came"), %d));
    try { return String(await Promise.race([(%s)(...%s), limit])); } catch (e) { return String(e); }
})()"""


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A server of somebody else, with a page that may do everything."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Prizes</title><body>You have won.")

    def log_message(self, *args):
        pass


class CrossSite(WebTest):
    TABLES = ("companies", "agents", "environments", "environment_leases", "executions", "issues", "projects", "company_secrets",
              "board_api_keys", "agent_api_keys")

    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
        self.addCleanup(self.server.server_close)
        threading.Thread(target=self.server.serve_forever).start()
        self.addCleanup(self.server.shutdown)
        self.word = f"canary{os.urandom(6).hex()}"
        self.acme = self.operator("POST", "/api/companies", {"name": self.word}, 201)
        self.env = self.operator("POST", f"/api/companies/{self.acme['id']}/environments",
                                 {"name": f"{self.word}-box", "driver": "sandbox", "config": {"provider": "fake"}}, 201)
        self.random = random.Random(self.word)

    def foreign(self, origin, path="/"):
        """A window on a page of somebody else. What it is told is its own business, so it has no troubles."""
        page = Page(self.browser, self.browser.call("browser", [["open", {"baseURL": origin, "bypassCSP": True}]]))
        self.addCleanup(page.shut)
        page.goto(path)
        return page

    def attempt(self, page, code, *args):
        patience = 4000 * int(os.environ.get("TEST_PATIENCE", 1))
        return page.evaluate(TRY % (patience, code, json.dumps(args)))

    def reads(self):
        company = self.acme["id"]
        for name, code in READS.items():
            yield name, code, ("/api/companies", f"/api/companies/{company}/events", f"/api/companies/{company}/events/ws")

    def writes(self):
        company, env = self.acme["id"], self.env["id"]
        for name, code in WRITES.items():
            yield name, code, ("/api/companies", '{"name":"owned"}', "POST")
            yield name, code, (f"/api/environments/{env}/leases", '{"ttlMs":60000}', "POST")
            yield name, code, (f"/api/companies/{company}/agents", '{"name":"Eve"}', "POST")
        for method, path in (("DELETE", f"/api/environments/{env}"), ("PATCH", f"/api/environments/{env}")):
            for name in ("fetch", "fetch as text"):
                yield name, WRITES[name], (path, '{"name":"owned"}', method)

    def state(self):
        """What there is, by table: a row more or less, or another name, is a change."""
        names = {row["name"] for row in self.daemon.sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
        known = [t for t in self.TABLES if t in names]
        self.assertIn("environment_leases", known)
        return {t: sorted(json.dumps({k: row[k] for k in row.keys() if k in ("id", "name", "status")})
                          for row in self.daemon.sql(f"SELECT * FROM {t}")) for t in known}

    def assert_nothing_gets_through(self, page):
        before = self.state()
        own = [f"http://{name}:{self.daemon.address[1]}" for name in ("127.0.0.1", "localhost", "berth.localhost", "rebound.example")]
        tries = [(name, code, (at, *args)) for at in own for name, code, args in [*self.reads(), *self.writes()]]
        for _ in range(ROUNDS):
            if ROUNDS > 1:
                self.random.shuffle(tries)
            for name, code, args in tries:
                got = self.attempt(page, code, *args)
                self.assertNotIn(self.word, got, f"{name} {args}")
                self.assertNotIn("CANARY", got, f"{name} {args}")
            self.assertEqual(self.state(), before)

    def foreign_pages(self):
        """Where an enemy's page can come from."""
        port = self.server.server_address[1]
        for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"http://evil.example:{port}"):
            yield origin, self.foreign(origin)
        # A name that meant the enemy's server a moment ago, and means ours now. The page is what ours said to that.
        yield "rebinding", self.foreign(f"http://rebound.example:{self.daemon.address[1]}", "/api/health")

    def test_pages_from_elsewhere(self):
        for origin, page in self.foreign_pages():
            with self.subTest(origin):
                self.assert_nothing_gets_through(page)

    def test_the_page_is_in_no_frame(self):
        page = self.foreign(f"http://localhost:{self.server.server_address[1]}")
        self.attempt(page, READS["a frame"], self.daemon.url, "/")
        shown = self.browser.call(page._on, [["frameLocator", "iframe"], ["locator", "body"], ["evaluate", "location.href"]])
        self.assertTrue(shown.startswith("chrome-error:"), shown)


class TrustedTest(CrossSite):
    """Everything that comes from this machine is the operator: only the browser's word tells a page from elsewhere."""

    def test_our_own_page_gets_through(self):
        page = self.page("/")
        self.assertIn(self.word, self.attempt(page, READS["fetch"], self.daemon.url, "/api/companies"))
        self.assertIn("CANARY", self.attempt(page, READS["events"], self.daemon.url, "", f"/api/companies/{self.acme['id']}/events"))
        self.assertIn("CANARY", self.attempt(page, READS["a socket"], self.daemon.url, "", "",
                                             f"/api/companies/{self.acme['id']}/events/ws"))
        before = self.state()
        self.attempt(page, WRITES["fetch"], self.daemon.url, f"/api/companies/{self.acme['id']}/agents", '{"name":"Ada"}', "POST")
        self.assertNotEqual(self.state(), before)


class AuthenticatedTest(CrossSite):
    """The operator is signed in, in the same browser: what the page keeps is nothing that a browser sends along."""

    daemon_flags = ("--mode", "authenticated")

    def setUp(self):
        super().setUp()
        self.key = self.board_user(admin=True)["token"]

    def foreign(self, origin, path="/"):
        """In the browser profile of the signed-in page."""
        page = super().foreign(self.daemon.url, f"/{self.acme['issuePrefix']}/environments")
        page.get_by_label("Board key").fill(self.key)
        page.button("Sign in").click()
        page.heading("Environments")
        page.goto(origin + path)
        return page


del CrossSite

if __name__ == "__main__":
    unittest.main()
