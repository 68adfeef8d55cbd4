"""Rounds in which a workspace is changed in a sandbox and on the host at once, and the daemon is killed while the changes
come home: afterwards every file is whole, the old one or the new one, and every change is in the directory, in a copy
kept beside it, or in a salvage.

    rounds = WorkspaceRounds(daemon, company_id, environment_id, directory, seed)
    rounds.run(20)                      # raises AssertionError with the seed and what is wrong
"""

import http.client
import os
import pathlib
import random
import threading
import time

from berthtest import wait_until

NAMES = ("a", "b", "c", "d/a", "d/b", "e/f/a", "e/f/b", "long")
REPEAT = 3000  # a token is long, so that a file cut off is seen


class WorkspaceRounds:
    def __init__(self, daemon, company, environment, directory, seed, isolations=(None, None, "copy")):
        self.daemon, self.company, self.environment = daemon, company, environment
        self.dir = pathlib.Path(directory)
        self.seed, self.random = seed, random.Random(seed)
        self.isolations = isolations
        self.counter = 0
        self.kills = self.salvaged = self.conflicts = 0
        for name in NAMES:
            self.host_write(name, self.token("start"))

    def token(self, who):
        self.counter += 1
        return f"{who}-{self.seed}-{self.counter}"

    # Files.

    def host_write(self, name, token):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(".writing")
        temporary.write_text(f"{token}\n" * REPEAT)
        temporary.rename(path)

    def read(self):
        """Name to token of each file; whole ones only."""
        found = {}
        for folder, _, files in os.walk(self.dir):
            for name in files:
                path = os.path.join(folder, name)
                rel = os.path.relpath(path, self.dir)
                lines = pathlib.Path(path).read_text().splitlines()
                assert len(lines) == REPEAT and len(set(lines)) == 1, f"{rel} is neither old nor new"
                found[rel] = lines[0]
        return found

    # The daemon.

    def ask(self, method, path, body=None, status=(200, 201)):
        answer = self.daemon.req(method, path, body)
        assert answer.status in status, f"{method} {path}: {answer.status} {answer.body[:500]}"
        return answer.json

    def lease_path(self, rest):
        return f"/api/environment-leases/{self.lease}/{rest}"

    def kill_during(self, act):
        """Start it, kill the daemon some time later, start that again."""
        def run():
            try:
                act()
            except (OSError, http.client.HTTPException):
                pass  # as intended
        worker = threading.Thread(target=run)
        worker.start()
        if self.random.random() < 0.9:
            time.sleep(self.random.random() ** 2 * 0.06)
            self.daemon.kill()
            self.kills += 1
        worker.join()
        if not self.daemon.running():
            self.daemon.start()

    def settled(self):
        return not self.daemon.sql("SELECT id FROM workspaces WHERE state IN ('staging', 'restoring')")

    # One round.

    def begin(self):
        self.before = self.read()
        self.lease = self.ask("POST", f"/api/environments/{self.environment}/leases", {})["lease"]["id"]
        isolation = self.random.choice(self.isolations)
        self.ask("POST", self.lease_path("workspace/stage"),
                 {"localPath": str(self.dir), **({"isolation": isolation} if isolation else {})})

    def edit(self):
        self.theirs, self.ours, script = {}, {}, ["set -e"]
        for name in self.random.sample(NAMES + ("new1", "n/new2"), self.random.randint(1, 6)):
            if name in self.before and self.random.random() < 0.3:
                self.theirs[name] = None
                script.append(f"rm {name}")
            else:
                self.theirs[name] = token = self.token("box")
                script.append(f"mkdir -p ./$(dirname {name}); yes {token} | head -n {REPEAT} > {name}")
        done = self.ask("POST", self.lease_path("execute"), {"command": "sh", "args": ["-c", "\n".join(script)]})
        assert done["exitCode"] == 0, done
        for name in self.random.sample(NAMES, self.random.randint(0, 3)):
            if name in self.before:
                self.ours[name] = self.token("host")
                self.host_write(name, self.ours[name])

    def bring_home(self):
        how = self.random.choice(("restore", "restore", "release", "both"))
        if how != "release":
            self.kill_during(lambda: self.daemon.req("POST", self.lease_path("workspace/restore"), {}))
        if how != "restore":
            self.kill_during(lambda: self.daemon.req("POST", self.lease_path("release"), {}))
        wait_until(self.settled, "no workspace is half done", 30)
        self.read()  # whole files, also now
        self.ask("POST", self.lease_path("release"), {})
        wait_until(lambda: not self.daemon.sql("SELECT id FROM workspaces WHERE state <> 'ended'"),
                   "workspaces have ended", 30)

    def apply_salvages(self):
        for saved in self.ask("GET", f"/api/companies/{self.company}/salvages"):
            self.salvaged += 1
            path = f"/api/salvages/{saved['id']}"
            self.kill_during(lambda path=path: self.daemon.req("POST", f"{path}/apply", {}))
            self.ask("POST", f"{path}/apply", {})
            self.ask("DELETE", path)
        assert not os.listdir(self.daemon.data / "salvage"), "a salvage without a row"
        assert not os.listdir(self.daemon.data / "workspaces"), "a directory of no workspace"

    def check(self):
        now = self.read()
        kept = {name for name in now if ".berth-local-" in name}
        for name, token in self.theirs.items():
            if token is not None:
                assert now.get(name) == token, f"{name}: {now.get(name)}, the box wrote {token}"
            elif name not in self.ours:
                assert name not in now, f"{name} was deleted in the box"
        for name, token in self.ours.items():
            if self.theirs.get(name) is None:
                assert now.get(name) == token, f"{name}: {now.get(name)}, the host wrote {token}"
            else:
                assert token in {now[k] for k in kept if k.startswith(name)}, f"{name}: {token} of the host is lost"
        for name, token in self.before.items():
            if name not in self.theirs and name not in self.ours:
                assert now.get(name) == token, f"{name} was changed by nobody"
        self.conflicts += len(kept)
        for name in kept:
            (self.dir / name).unlink()
        assert not [n for n in now if ".berth-tmp" in n], "temporary files are left"

    def run(self, rounds):
        for n in range(rounds):
            try:
                self.begin()
                self.edit()
                self.bring_home()
                self.apply_salvages()
                self.check()
            except AssertionError as error:
                raise AssertionError(f"seed {self.seed}, round {n}: {error}\nbox {self.theirs}\nhost {self.ours}"
                                     f"\n{self.daemon.log_tail(30)}") from error

    def summary(self):
        return f"{self.kills} kills, {self.salvaged} salvages, {self.conflicts} conflicts"
