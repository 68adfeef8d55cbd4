"""A daemon with the fake provider's world beside it, and the one question that matters after a crash: do the
record and the world agree?

The fake provider keeps each sandbox as a file named by its place (src/core/kinds/fake/fake.c), so both sides can
be read from outside: the rows with SQL, the world with listdir().
"""

import contextlib
import http.client
import os
import pathlib
import re
import shutil
import signal
import tempfile

from berthtest import Daemon, bring_home, new_company, wait_until

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
CONTROLS = ("fail-open", "fail-resume", "fail-close", "lose-open", "hold-open", "hold-resume", "hold-close",
            "fail-create", "fail-version", "fail-remove", "lose-create", "lose-version")


class Died(Exception):
    """The daemon went away before it answered."""


class World:
    def __init__(self, binary="faults", env=None, copy_of=None):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="w-"))
        self.path = self.root / "world"
        self.facts = {}  # what the stage was set with
        self.done = {}  # what the client was told: name -> JSON of a 2xx answer
        if copy_of:
            ignore = shutil.ignore_patterns("berth.sock")
            shutil.copytree(copy_of.path, self.path)
            shutil.copytree(copy_of.daemon.data, self.root / "d", ignore=ignore)
            bring_home(self.root / "d")
            self.facts = dict(copy_of.facts)
        else:
            self.path.mkdir()
        self.daemon = Daemon(data=self.root / "d", binary=binary, env={
            "BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_FAKE_WORLD": str(self.path),
            "BERTH_FAKE_VAULT": str(self.path),
            "BERTH_SWEEP_INTERVAL_MS": "20", **(env or {})})

    def dispose(self):
        self.daemon.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    # The daemon's life.

    def start(self):
        """Start; False when it was killed by its crash point before it listened."""
        self.daemon._disconnect()
        self.daemon.spawn()
        wait_until(lambda: self.daemon.url or not self.alive(), "the daemon listens or ends", 20)
        return self.alive()

    def alive(self):
        return self.daemon.process.poll() is None

    def crashed(self):
        """Whether a crash point killed it; any other end is an error."""
        status = self.daemon.process.poll()
        if status not in (None, -signal.SIGKILL):
            raise AssertionError(f"the daemon ended with status {status}\n{self.daemon.log_tail()}")
        return status is not None

    # Talking to it.

    def ask(self, method, path, body=None, token=None):
        try:
            return self.daemon.req(method, path, body, token=token)
        except (OSError, http.client.HTTPException) as error:
            self.daemon.process.wait(20)
            raise Died(f"{method} {path}") from error

    def do(self, name, method, path, body=None, **more):
        """A request that has to succeed when it is answered; the answer is kept as `done[name]`."""
        answer = self.ask(method, path, body, **more)
        for _ in range(1000):  # the daemon's own work at its start may fill a short queue
            if answer.status != 503 or "Too many operations" not in answer.text:
                break
            answer = self.ask(method, path, body, **more)
        if not 200 <= answer.status < 300:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.text}")
        self.done[name] = answer.json
        return answer.json

    def expect(self, status, method, path, body=None, **more):
        answer = self.ask(method, path, body, **more)
        if answer.status != status:
            raise AssertionError(f"{method} {path}: {answer.status}, not {status}: {answer.text}")
        return answer.json

    # Looking at both sides.

    def tell(self, control):
        (self.path / control).touch()

    def untell(self, *controls):
        for control in controls or CONTROLS:
            with contextlib.suppress(FileNotFoundError):
                (self.path / control).unlink()

    def things(self):
        return {name for name in os.listdir(self.path) if UUID.match(name)}

    def sql(self, query, parameters=()):
        return self.daemon.sql(query, parameters)

    def edit(self, statement, parameters=()):
        """Change the record behind the daemon's back, while it is down."""
        assert not self.alive()
        with self.daemon.record() as db:
            return db.execute(statement, parameters).rowcount

    def places(self, where="state <> 'gone'"):
        return self.sql(f"SELECT * FROM places WHERE {where}")

    def leases(self, where="status IN ('active', 'retained')"):
        return self.sql(f"SELECT * FROM environment_leases WHERE {where}")

    def damage(self):
        """What the database itself finds wrong with itself."""
        found = [row for row in self.sql("PRAGMA integrity_check") if "ok" not in row.values()]
        return found + self.sql("PRAGMA foreign_key_check")

    def disagreement(self):
        """None when record and world agree and nothing is half done, else what is wrong."""
        places, leases, things = self.places(), self.leases(), self.things()
        real = {p["id"] for p in places if p["has_world"]}
        held = {p["id"] for p in places if p["state"] == "held"}
        used = {lease["place_id"] for lease in leases}
        checks = {
            "half done": [f"{p['id']} {p['state']}: {p['note']}" for p in places
                          if p["state"] not in ("held", "ready")],
            "in the world without a row": sorted(things - real),
            "rows without a thing in the world": sorted(real - things),
            "held by no lease": sorted(held - used),
            "leases whose place is not held": sorted(used - held),
            "leases still being cleaned up": [
                row["id"] for row in self.leases("status NOT IN ('active', 'retained') "
                                                 "AND cleanup_status NOT IN ('success')")],
        }
        wrong = {what: found for what, found in checks.items() if found}
        if not wrong:
            leaks = self.expect(200, "GET", "/api/leaks")
            if leaks["total"]:
                wrong["leaks"] = leaks
        return wrong or None

    def settle(self, what="record and world agree", timeout=15):
        """Wait until they agree, and nothing in the file is damaged."""
        last = []

        def settled():
            if not self.alive():
                raise Died(what)
            last[:] = [self.disagreement()]
            return last[0] is None

        try:
            wait_until(settled, what, timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last[0]}\n{self.daemon.log_tail(15)}") from None
        if self.damage():
            raise AssertionError(f"damaged: {self.damage()}")

    # First steps.

    def company(self, name="Acme"):
        return self.do("company", "POST", "/api/companies", new_company(name))["id"]

    def environment(self, company, name="box", **config):
        body = {"name": name, "driver": "sandbox", "config": {"provider": "fake", **config}}
        return self.do(f"environment {name}", "POST", f"/api/companies/{company}/environments", body)["id"]

    def acquire(self, environment, name="lease", **body):
        return self.do(name, "POST", f"/api/environments/{environment}/leases", body)["lease"]

    def release(self, lease, name="release", **body):
        return self.do(name, "POST", f"/api/environment-leases/{lease}/release", body)["lease"]

    def lease(self, lease):
        return self.expect(200, "GET", f"/api/environment-leases/{lease}")

    def release_all(self):
        for lease in self.leases():
            self.release(lease["id"], name="last release")
