"""bench/run --only page: the web page with much to show, in Debian's Chromium.

`tools` is bench/run itself. First paint is the browser's own figure (first-contentful-paint, from the start of the
navigation); complete is when the runs and the environments are on the screen. The floor is the first paint of a page
of the same daemon that has one word. Every round opens a new window without anything kept.

The log is one of a run that printed 100,000 lines. It is loaded when the page counts them all; it is scrolled from the
beginning to the end in 200 steps, one for each frame, and what a frame took is the figure. Its floor is a window in
which nothing is drawn.
"""
import contextlib
import sqlite3
import statistics
import time

ENVIRONMENTS = 500
RUNS = 5000
AGENTS = 20
PAINT = """() => new Promise((done) => new PerformanceObserver((list) => {
        const paint = list.getEntries().find((e) => e.name === "first-contentful-paint");
        if (paint) done(paint.startTime);
}).observe({ type: "paint", buffered: true }))"""
COMPLETE = """() => new Promise((done) => {
        const look = () => document.querySelectorAll("tbody tr").length >= 60 && document.querySelector(".timeline")
                ? done(performance.now()) : requestAnimationFrame(look);
        look();
})"""
LINES = 100_000
STEPS = 200
LOADED = """() => new Promise((done) => {
        const look = () => document.querySelector(".log-count")?.textContent === "100,000 lines"
                ? done(performance.now()) : requestAnimationFrame(look);
        look();
})"""
FRAMES = """() => new Promise((done) => {
        const box = document.querySelector(".log-box"), frames = [];
        let last = 0, step = 0;
        const frame = (now) => {
                if (last) frames.push(now - last);
                last = now;
                if (box) box.scrollTop = (box.scrollHeight - box.clientHeight) * ++step / STEPS;
                else step++;
                if (step <= STEPS) requestAnimationFrame(frame);
                else done(frames.sort((a, b) => a - b)[Math.floor(frames.length * 0.95)]);
        };
        requestAnimationFrame(frame);
})""".replace("STEPS", str(STEPS))
STATUSES = ["succeeded"] * 8 + ["failed", "cancelled"]


def fill(scene):
    """Rows as they would be after a while of use."""
    for i in range(ENVIRONMENTS - len(scene.daemon.req("GET", f"/api/companies/{scene.company}/environments").json)):
        scene.post(f"/api/companies/{scene.company}/environments",
                   {"name": f"environment {i}", "driver": "sandbox", "config": {"provider": "fake"}, "description": "One of many."})
    agents = [scene.post(f"/api/companies/{scene.company}/agents", {"name": f"Agent {i}"})["id"] for i in range(AGENTS)]
    scene.daemon.stop()
    now = time.time_ns() // 1000
    with contextlib.closing(sqlite3.connect(scene.daemon.data / "berth.db")) as db, db:
        for i in range(RUNS):
            began = now - (RUNS - i) * 20_000_000
            status = STATUSES[i % len(STATUSES)]
            db.execute("INSERT INTO heartbeat_runs (id, company_id, agent_id, status, step, started_at, finished_at, error, exit_code, "
                       "created_at, updated_at) VALUES (?, ?, ?, ?, 'done', ?, ?, ?, ?, ?, ?)",
                       (f"{i:08x}-0000-4000-8000-000000000000", scene.company, agents[i % AGENTS], status, began, began + 15_000_000,
                        "It did not work." if status == "failed" else None, int(status == "failed"), began, began))
    scene.daemon.start()


def print_lines(scene):
    """A run whose log is long; its id."""
    agent = scene.post(f"/api/companies/{scene.company}/agents", {"name": "Printer", "adapterType": "process", "adapterConfig": {
        "command": "/bin/sh", "args": ["-c", f"seq 1 {LINES} | sed 's/$/ \\x1b[32mok\\x1b[0m a line as tests print them/'"]}})
    run = scene.daemon.req("POST", f"/api/agents/{agent['id']}/wakeup", {}).json["id"]
    while scene.daemon.req("GET", f"/api/heartbeat-runs/{run}").json["step"] != "done":
        time.sleep(0.1)
    return run


def bench(report, tools):
    import webtest  # it lies beside berthtest
    report.group("page")
    why = webtest.missing()
    if why:
        print(f"  (left out: {why})")
        return
    with tools.Scene() as scene:
        fill(scene)
        prefix = scene.daemon.req("GET", f"/api/companies/{scene.company}").json["issuePrefix"]
        browser = webtest.Browser(scene.daemon.url)
        try:
            measure(report, tools, webtest, browser, scene.daemon.url, prefix)
            measure_log(report, tools, webtest, browser, scene.daemon.url, f"/{prefix}/runs/{print_lines(scene)}")
        finally:
            browser.close()


def look(webtest, browser, url, path, *scripts):
    """What scripts find out in a new window."""
    page = webtest.Page(browser, browser.call("browser", [["open", {"baseURL": url}]]))
    page.goto(path, waitUntil="commit")
    values = [browser.call("browser", [["measure", page._on, script]]) for script in scripts]
    page.shut()
    return values


def measure(report, tools, webtest, browser, url, prefix):
    def visit(path, script):
        return look(webtest, browser, url, path, script)[0]

    visit(f"/{prefix}", COMPLETE)  # the browser itself warms up
    rounds = [(visit("/api/health", PAINT), visit(f"/{prefix}", PAINT), visit(f"/{prefix}", COMPLETE))
              for _ in range(tools.options.repeats)]
    floor, paint, complete = (statistics.median(column) for column in zip(*rounds))
    what = f"{ENVIRONMENTS} environments, {RUNS:,} runs"
    report.figure("floor: first paint of one word", floor, "ms")
    report.figure("overview, first paint", paint, "ms", floors=[("word", floor)], note=what)
    report.figure("overview, complete", complete, "ms", floors=[("word", floor)], target=("<=", 1000), note=what)


def measure_log(report, tools, webtest, browser, url, path):
    rounds = [(*look(webtest, browser, url, "/api/health", FRAMES), *look(webtest, browser, url, path, LOADED, FRAMES))
              for _ in range(tools.options.repeats)]
    floor, loaded, frame = (statistics.median(column) for column in zip(*rounds))
    what = f"{LINES:,} lines"
    report.figure("floor: p95 of a frame, nothing drawn", floor, "ms")
    report.figure("log, loaded", loaded, "ms", target=("<=", 2000), note=what)
    report.figure("log, p95 of a frame while scrolling", frame, "ms", floors=[("nothing", floor)], target=("<=", 33.4), note=what)
