#!/usr/bin/env python3
"""Clients at work on one daemon while everything beneath it breaks, and a checker that reads only what they saw:

    make soak SECONDS=1800 SEED=7          test/soak/soak.py --seconds 1800 --seed 7

A round: clients work (clients.py) while faults come one after the other (faults.py); then all is mended, the clients end
what they began, the driver waits until the daemon rests, looks at everything that was answered, and checker.py judges the
history so far. At the end come a time without faults, in which nothing may grow, and a look for what is left. The last thing
printed is a table of operations, faults and violations; the status is 1 when there is one.

The seed decides what is done and broken, in which order and after which pauses; what meets what is up to the machine. With a
violation the history and the daemon's log are kept, and their directory is printed: test/soak/checker.py FILE judges again.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def seconds(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of seconds, from 1 on")
    return int(text)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--seconds", type=seconds, default=120)
parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
parser.add_argument("--build", default="build")
parser.add_argument("--only", action="append", metavar="FAULT", help="nothing but these faults")
parser.add_argument("--without", action="append", metavar="FAULT", default=[], help="all but these")
parser.add_argument("--place", action="append", metavar="KIND", help="nothing but these kinds of places")
parser.add_argument("--directory", help="where history and logs are made; kept")
options = parser.parse_args()
os.environ["BERTH_BUILD"] = str((ROOT / options.build).resolve())
sys.path[:0] = [str(ROOT / "test/soak"), str(ROOT / "test/it")]

from berthtest import PATIENCE, wait_until  # noqa: E402  (the build has to be known before)
from checker import RULES, Checker  # noqa: E402
from clients import everybody  # noqa: E402
from faults import KINDS as FAULTS, Faults  # noqa: E402
from history import History  # noqa: E402
from world import KINDS as PLACES, World, digest  # noqa: E402

for given, there in ((options.only, FAULTS), (options.without, FAULTS), (options.place, PLACES)):
    for name in given or []:
        if name not in there:
            parser.error(f"there is no '{name}'; there are {', '.join(there)}")

ROUND = (3.0, 8.0)  # seconds
SETTLE = 60
OLD_LOOKS = 30  # of what earlier rounds made
# What may come on top of the first quiet time without being a leak: threads of the pool that were not needed before, and for
# each a reading connection (database, log, shared memory) with its cache of 2 MiB; an allocator's share.
GROWTH = {"anon_kb": 32 * 1024, "fds": 3 * 16, "threads": 16}


class Soak:
    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        self.random = random.Random(options.seed)
        self.history = History(self.dir / "history")
        self.world = World(self.dir, self.history, self.random)
        self.faults = Faults(self.world, self.history, self.random)
        self.checker = Checker()
        self.reader = open(self.dir / "history", encoding="utf-8")
        self.ops = collections.Counter()
        self.known = {"lease": {}, "execution": {}, "run": {}}  # id: round in which it was answered
        self.execution_of, self.place_of = {}, {}
        self.written_off = 0  # places of the plugin
        self.told = set()  # leaks that are violations already
        self.rounds = 0
        self.shown = 0

    def trouble(self, rule, text):
        self.history.see("trouble", rule=rule, text=text)

    # A round.

    def play(self, seconds, kinds):
        over = threading.Event()
        clients = everybody(self.world, f"{options.seed}/{self.rounds}", over)
        for client in clients:
            client.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self.random.uniform(0.05, 0.6))  # between two faults
            if kinds:
                kind = self.random.choice(sorted(kinds))
                self.faults.one(kind, kinds[kind])
            self.world.watch()
        self.faults.mend()
        over.set()
        for client in clients:
            client.join(SETTLE * PATIENCE)
            if client.is_alive():
                self.trouble("unsettled", f"{client.name} waits for an answer")
            if client.problem:
                raise AssertionError(f"{client.name}: {client.problem}")

    def settled(self, condition, what, rule="unsettled"):
        """Wait for it; what is not so is a violation."""
        last = []

        def holds():
            last[:] = condition()
            return not last
        try:
            wait_until(holds, what, SETTLE)
            return True
        except AssertionError:
            self.trouble(rule, f"{what}: {str(last[:5])[:1500]}")
            return False

    def settle(self):
        daemon, world = self.world.daemon, self.world
        self.settled(lambda: daemon.sql("SELECT id, status, step, error FROM heartbeat_runs WHERE step <> 'done'"),
                     "all runs are done")
        for row in daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            op = self.history.begin("release", lease=row["id"])
            answer = world.client.req("POST", f"/api/environment-leases/{row['id']}/release", {})
            self.history.end(op, "ok" if answer.status == 200 else "unknown", code=answer.status)
        self.settled(lambda: daemon.sql("SELECT id, status FROM environment_leases WHERE status = 'active'"),
                     "no lease is active")
        self.settled(lambda: daemon.sql("SELECT id, status FROM executions WHERE status IN ('starting', 'running')"),
                     "no command runs")
        if not self.settled(self.leaks, "no leaks", "leak"):
            self.told.update(self.name_of(leak) for leak in self.leaks())
        self.settled(lambda: sorted(world.outside.marked()), "no process of a command is left", "left-behind")

    def leaks(self):
        """Those that are nobody's business but the daemon's. Others are an operator's, and done here as `nextStep` says: what
        was tried in vain is tried now, not after its pause; a provider that cannot be asked for a list is looked at by hand."""
        found = self.world.ask("GET", "/api/leaks")
        for place in found["cleanupDue"]:
            if "placeId" in place:
                self.world.client.req("POST", f"/api/places/{place['placeId']}/close", {})
        for place in found["uncertain"]:
            if place["provider"] == "acme":
                self.world.ask("POST", f"/api/places/{place['placeId']}/forget", {})
                self.written_off += 1
        return [leak for kind in ("unknown", "missing", "uncertain", "cleanupDue") for leak in found[kind]
                if leak.get("provider") != "acme" and self.name_of(leak) not in self.told]

    def name_of(self, leak):
        return leak.get("placeId") or leak["ownerTag"]

    # Looking.

    def read_history(self):
        """The new lines, judged; what they name is looked at from now on."""
        for line in self.reader:
            line = json.loads(line)
            self.checker.take(line)
            if line["ev"] == "end":
                op = self.checker.ops[line["op"]]
                self.ops[op["kind"], line["result"]] += 1
                for kind in self.known:
                    if kind in line:
                        self.known[kind].setdefault(line[kind], self.rounds)
                if op["kind"] == "execute" and line["result"] == "ok":
                    self.execution_of[line["execution"]] = op

    def chosen(self, kind):
        """What this round made, and some of what is older."""
        now = [i for i, n in self.known[kind].items() if n == self.rounds]
        old = [i for i, n in self.known[kind].items() if n != self.rounds]
        return now + self.random.sample(old, min(OLD_LOOKS, len(old)))

    def look(self):
        self.read_history()
        rows = {row["id"]: row for row in self.world.daemon.sql(
            "SELECT l.id, l.place_id, l.environment_id FROM environment_leases l")}
        kinds = {environment: kind for kind, environment in self.world.kinds.items()}
        place = {i: {"place_id": row["place_id"], "place": kinds.get(row["environment_id"])} for i, row in rows.items()}
        for ident in self.chosen("lease"):
            answer = self.world.client.req("GET", f"/api/environment-leases/{ident}")
            told = answer.json if answer.status == 200 else {}
            self.history.see("lease", id=ident, found=answer.status == 200, status=told.get("status"), **place.get(ident, {}))
        for ident in self.chosen("execution"):
            self.look_at_execution(ident, place)
        self.look_at_runs()
        self.look_at_records()
        self.look_at_files()
        self.read_history()

    def look_at_execution(self, ident, place):
        op = self.execution_of[ident]
        path = f"/api/environment-leases/{op['lease']}/executions/{ident}"
        answer = self.world.client.req("GET", path)
        if answer.status != 200:
            self.history.see("execution", id=ident, found=False)
            return
        told = answer.json
        output = self.world.client.req("GET", f"{path}/output?stream=stdout")
        whole = {"size": len(output.body), "sha": digest(output.body)} if output.status == 200 else {}
        self.history.see("execution", id=ident, found=True, status=told["status"], code=told["exitCode"],
                         signal=told["signal"], incomplete=told["incomplete"], reason=told["reason"], lease=op["lease"],
                         **whole, **place.get(op["lease"], {}))
        if op["place"] in ("local", "ssh"):
            file = self.world.effects / op["token"]
            self.history.see("effects", token=op["token"], complete=True,
                             count=len(file.read_text().splitlines()) if file.exists() else 0)

    def look_at_runs(self):
        chosen = self.chosen("run")
        again = self.world.daemon.sql("SELECT id, retry_of_run_id FROM heartbeat_runs WHERE retry_of_run_id IS NOT NULL")
        chosen += [row["id"] for row in again if row["retry_of_run_id"] in set(chosen)]
        for ident in chosen:
            answer = self.world.client.req("GET", f"/api/heartbeat-runs/{ident}")
            if answer.status != 200:
                self.history.see("run", id=ident, found=False)
                continue
            run = answer.json
            log = "".join(r["chunk"] for r in self.log_of(ident) if r["stream"] == "stdout")
            self.history.see("run", id=ident, found=True, status=run["status"], code=run["exitCode"],
                             spawned=bool(run["timeline"]["spawnedAt"]), error=run["error"], retry_of=run["retryOfRunId"],
                             size=len(log), sha=digest(log), log_incomplete=run["incomplete"])
        for _, home in self.world.agents.values():
            for file in home.glob("began-*"):
                self.history.see("effects", token=f"run:{file.name[6:]}", count=len(file.read_text().splitlines()),
                                 complete=False)
                file.unlink(missing_ok=True)

    def log_of(self, run):
        path, answers = f"/api/heartbeat-runs/{run}/log?limitBytes=1000000", []

        def answered():  # a busy daemon says 503
            answers[:] = [self.world.client.req("GET", path)]
            return answers[0].status < 500
        self.settled(lambda: [] if answered() else [answers[0].text], f"the log of {run} is read")
        content = answers[0].json["content"] if answers[0].status == 200 else ""
        return [json.loads(line) for line in content.splitlines()]

    def look_at_records(self):
        for issue in self.world.issues:
            told = self.world.ask("GET", f"/api/issues/{issue}/comments")
            self.history.see("comments", issue=issue, comments={c["id"]: digest(c["body"]) for c in told})
        for name, (_, agent) in self.world.secrets.items():
            lease = self.world.ask("POST", f"/api/environments/{self.world.kinds['local']}/leases", {})["lease"]["id"]
            told = self.world.ask("POST", f"/api/environment-leases/{lease}/execute", {
                "command": "/bin/sh", "args": ["-c", 'printf %s "$VALUE" | sha256sum'], "agentId": agent})
            self.history.see("secret", id=name, sha=told["stdout"].split()[0])  # the value itself is blackened
            self.world.ask("POST", f"/api/environment-leases/{lease}/release", {})

    def look_at_files(self):
        for path in list(self.checker.files):
            text = pathlib.Path(path).read_text() if os.path.exists(path) else ""
            self.history.see("file", path=path, tokens=text.split())
            del self.checker.files[path]
            shutil.rmtree(pathlib.Path(path).parent, ignore_errors=True)

    def show(self):
        """What is new of violations."""
        for violation in self.checker.found[self.shown:]:
            print(f"soak: VIOLATION in round {self.rounds}: {violation.rule}: {violation.text[:1500]} (line {violation.n})",
                  flush=True)
        self.shown = len(self.checker.found)

    def say(self):
        faults = sum(self.faults.counts.values())
        print(f"soak: round {self.rounds}: {sum(self.ops.values())} operations, {faults} faults, {self.sample()}", flush=True)

    # All of it.

    def run(self):
        self.world.start(options.place)
        kinds, missing = self.faults.available()
        kinds = {k: f for k, f in kinds.items() if (not options.only or k in options.only) and k not in options.without}
        for what, why in {**self.world.missing, **missing}.items():
            print(f"soak: without {what}: {why}")
        began = time.monotonic()
        while time.monotonic() - began < options.seconds - min(15, options.seconds / 5) or not self.rounds:
            self.rounds += 1
            self.play(self.random.uniform(*ROUND), kinds)
            self.settle()
            self.look()
            self.show()
            self.say()
        self.grow()
        self.end()
        self.read_history()
        self.show()

    def grow(self):
        """Without faults: the first times are for what is made once."""
        samples = []
        for _ in range(6):
            self.rounds += 1
            self.play(1.5, {})
            self.settle()
            self.look()
            samples.append(self.sample())
        for what, more in GROWTH.items():
            if samples[-1][what] > samples[2][what] + more:
                self.trouble("grew", f"{what}: {[s[what] for s in samples]}")

    def sample(self):
        self.world.client.close()
        daemon = self.world.daemon
        return {"anon_kb": self.anonymous_kb(), "fds": daemon.fd_count(), "threads": daemon.thread_count()}

    def anonymous_kb(self):
        """Without pages of files: the database lies on a disk in memory."""
        status = pathlib.Path(f"/proc/{self.world.daemon.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", status)[1])

    def end(self):
        """Everything is given up: nothing may be left on this machine, and the database is whole."""
        world = self.world
        if "pooled" in world.kinds:
            world.ask("PATCH", f"/api/environments/{world.kinds['pooled']}", {"config": {"poolSize": 0}})
        self.settled(lambda: self.leaks() + [
            p for p in world.daemon.sql("SELECT id, state, note FROM places WHERE state <> 'gone'")
            if p["id"] not in self.told], "no place lives", "leak")
        try:
            world.daemon.stop()
        except AssertionError as error:
            self.trouble("daemon-died", str(error)[:2000])
        self.settled(self.left, "nothing is left", "left-behind")
        self.settled(lambda: sorted(world.supervisors().items()), "no supervisor is left", "left-behind")
        status, out, _ = world.daemon.cli("db", "check")
        if status != 0:
            self.trouble("damaged", out[:2000])

    def left(self):
        """A real power cut takes the cgroups with the kernel; ours does not. What the provider has that an operator wrote
        off is not looked for."""
        excused = ("cgroup ",) if "power-cut" in self.faults.counts else ()
        if self.written_off or excused:
            excused += (f"file {self.world.data}/plugins/private/",)
        return [text for text in self.world.outside.left() if not text.startswith(excused)]

    def table(self):
        ops = collections.defaultdict(dict)
        for (kind, result), n in self.ops.items():
            ops[kind][result] = n
        print(f"\n{'OPERATION':<20}{'ok':>8}{'refused':>9}{'unknown':>9}")
        for kind in sorted(ops):
            print(f"{kind:<20}" + f"{ops[kind].get('ok', 0):>8}{ops[kind].get('refused', 0):>9}{ops[kind].get('unknown', 0):>9}")
        print(f"\n{'FAULT':<20}{'times':>8}")
        for kind, n in sorted(self.faults.counts.items()):
            print(f"{kind:<20}{n:>8}")
        violations = collections.Counter(v.rule for v in self.checker.found)
        print(f"\n{'VIOLATION':<22}{'times':>6}")
        for rule, n in sorted(violations.items()):
            print(f"{rule:<22}{n:>6}  {RULES[rule]}")
        print(f"soak: seed {options.seed}, {self.rounds} rounds, {sum(self.ops.values())} operations, "
              f"{sum(self.faults.counts.values())} faults, {len(self.checker.found)} violations")


def main():
    print(f"soak: {options.seconds:g} s, seed {options.seed}", flush=True)
    directory = options.directory or tempfile.mkdtemp(prefix="soak-")
    pathlib.Path(directory).mkdir(exist_ok=True)
    soak = Soak(directory)
    failed = True
    try:
        soak.run()
        soak.table()
        failed = bool(soak.checker.found)
    finally:
        soak.world.close()
        if failed or options.directory:
            print(f"soak: the history and the daemon's log are in {directory}")
        else:
            shutil.rmtree(directory)
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
