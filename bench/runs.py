"""bench/run --only runs: from an agent's wake-up to the end of its run, for an agent that runs `true`: on this machine, in the
built-in sandbox, on an ssh host, and in a plugin's sandbox; many agents at once; and how long a line takes from the agent's
printing to a reader of the log.

`tools` is bench/run itself. Times are those that the daemon recorded: made to finished.
"""

import contextlib
import pathlib
import re
import statistics
import threading
import time
import unittest

import plugin
from ssh import quantile

ROUNDS = 30
AGENTS, EACH = 32, 20
LINES = 200
OVER = "SELECT COUNT(*) AS n FROM heartbeat_runs WHERE step <> 'done'"


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("bench/run: runs do not come to an end")
        time.sleep(0.002)


class Failed(Exception):
    pass


class Runs:
    def __init__(self, scene):
        self.scene = scene

    def agent(self, name, environment=None, command="true", args=()):
        body = {"name": name, "adapterConfig": {"command": command, "args": list(args)}}
        if environment:
            body["defaultEnvironmentId"] = environment
        return self.scene.post(f"/api/companies/{self.scene.company}/agents", body)["id"]

    def wake(self, agent, task="t"):
        answer = self.scene.daemon.req("POST", f"/api/agents/{agent}/wakeup", {"payload": {"taskKey": task}})
        if answer.status != 202 or "id" not in answer.json:
            raise SystemExit(f"bench/run: {answer.text}")
        return answer.json["id"]

    def row(self, run):
        return self.scene.daemon.sql("SELECT * FROM heartbeat_runs WHERE id = ?", (run,))[0]

    def once(self, agent):
        """Milliseconds from its making to its end; the next begins when everything is given up."""
        run = self.wake(agent)
        wait_for(lambda: self.row(run)["step"] == "done")
        row = self.row(run)
        if row["status"] != "succeeded":
            raise Failed(f"a run {row['status']}: {row['error']}")
        return (row["finished_at"] - row["created_at"]) / 1000

    def measure(self, report, where, environment=None, target=None):
        agent = self.agent(f"bench {where}", environment)
        try:
            self.once(agent)
            times = [self.once(agent) for _ in range(ROUNDS)]
        except Failed as failure:
            print(f"  ({where} left out: {failure})")
            return
        report.figure(f"wake-up to finished, {where}, p50", statistics.median(times), "ms", quantile(times, 0.95),
                      quantile(times, 0.99), target=target)


def environment(scene, name, driver, config):
    return scene.post(f"/api/companies/{scene.company}/environments",
                      {"name": name, "driver": driver, "config": config})["id"]


def many(report, scene, runs):
    agents = [runs.agent(f"many {n}") for n in range(AGENTS)]
    begin = time.time() * 1e6

    def wake_all(agent):
        for n in range(EACH):
            runs.wake(agent, f"task {n}")

    threads = [threading.Thread(target=wake_all, args=(a,)) for a in agents]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wait_for(lambda: scene.daemon.sql(OVER)[0]["n"] == 0, 600)
    last = scene.daemon.sql("SELECT MAX(released_at) AS at FROM heartbeat_runs")[0]["at"]
    report.figure(f"runs of {AGENTS} agents, all given up", AGENTS * EACH / ((last - begin) / 1e6), "/s")


def log_lines(report, scene, runs):
    script = f"i=0; while [ $i -lt {LINES} ]; do date +at=%s%N; i=$((i+1)); sleep 0.01; done"
    run = runs.wake(runs.agent("speaker", command="sh", args=("-c", script)))
    late = []
    wait_for(lambda: runs.row(run)["log_ref"])
    with contextlib.closing(scene.daemon.events(f"/api/heartbeat-runs/{run}/log?follow=1")) as stream:
        for event in stream:
            now = time.time_ns()
            late += [(now - int(at)) / 1e6 for at in re.findall(r"at=(\d{19})", event.data or "")]
            if len(late) >= LINES:
                break
    report.figure("a line, printed to received, p50", statistics.median(late), "ms", quantile(late, 0.95), quantile(late, 0.99))
    report.figure("a line, printed to received, p95", quantile(late, 0.95) / 1000, "ms", target=("<=", 10))


def bench(report, tools, scratch):
    report.group("runs")
    with tools.Scene() as scene:
        runs = Runs(scene)
        runs.measure(report, "local", target=("<=", 10))
        box = environment(scene, "box", "sandbox", {"provider": "berth"})
        probe = scene.daemon.req("POST", f"/api/environments/{box}/probe", {}).json
        if probe.get("ok"):
            runs.measure(report, "sandbox", box, target=("<=", 20))
        else:
            print(f"  (sandbox left out: {probe.get('summary')})")
        bench_ssh(report, scene, runs, scratch)
        bench_plugin(report, scene, runs, scratch)
        many(report, scene, runs)
        log_lines(report, scene, runs)


def bench_ssh(report, scene, runs, scratch):
    import sshtest  # it lies beside berthtest
    if reason := sshtest.missing_command():
        print(f"  (ssh left out: {reason})")
        return
    fixture = sshtest.Fixture(pathlib.Path(scratch) / "lab").start()
    try:
        runs.measure(report, "ssh", environment(scene, "far", "ssh", fixture.config()))
    finally:
        fixture.stop()


def bench_plugin(report, scene, runs, scratch):
    try:
        package = plugin.example(scratch)
    except unittest.SkipTest as reason:
        print(f"  (plugin left out: {reason})")
        return
    scene.post("/api/plugins/install", {"packageName": str(package), "isLocalPath": True})
    runs.measure(report, "plugin", environment(scene, "theirs", "sandbox", {"provider": "fake-plugin"}))
