"""Clients at work on one daemon that is killed again and again: for test_kill_rounds.py.

Each client keeps a diary of what it was told with a 2xx answer. Whatever was told must be so after every crash; what was
asked and not answered may have happened or not, so the client asks again, as the API means it: with the same idempotency
key, or with a request that may be repeated. Every lease belongs to one client, places are shared by all of them.
"""

import http.client
import random
import threading
import time
import uuid

from berthtest import Client, wait_until

ACTIVE, ENDED = "active", "ended"


class ClientThread(threading.Thread):
    def __init__(self, rounds, number, seed):
        super().__init__(name=f"client {number}", daemon=True)
        self.rounds = rounds
        self.random = random.Random(seed)
        self.runs = [self.uuid() for _ in range(2)]
        self.diary = {}  # lease id -> ACTIVE or ENDED, as told
        self.expiry = {}  # lease id -> expiresAt, as told
        self.of_run = {run: set() for run in self.runs}
        self.answers = 0
        self.problem = None
        self.client = None

    def uuid(self):
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    # Asking

    def once(self, method, path, body):
        """The answer, or None when the daemon went away."""
        address = self.rounds.address
        if address is None:
            return None
        if self.client is None or self.client.target != address:
            self.hang_up()
            self.client = Client(address)
        try:
            answer = self.client.req(method, path, body)
        except (OSError, http.client.HTTPException):
            self.hang_up()
            return None
        self.answers += 1
        return answer

    def hang_up(self):
        if self.client:
            self.client.close()
        self.client = None

    def ask(self, method, path, body, statuses, repeat=True):
        """Until it is answered, if it may be repeated."""
        while True:
            answer = self.once(method, path, body)
            if answer is None and repeat:
                self.rounds.wait_until_up(self)
                continue
            if answer is not None and answer.status not in statuses:
                raise AssertionError(f"{method} {path}: {answer.status} {answer.text}")
            return answer and answer.json

    # What it does

    def acquire(self):
        run = self.random.choice([*self.runs, None])
        key = self.uuid() if self.random.random() < 0.7 else None
        body = {name: value for name, value in (("heartbeatRunId", run), ("idempotencyKey", key)) if value}
        path = f"/api/environments/{self.random.choice(self.rounds.environments)}/leases"
        told = self.ask("POST", path, body, (200, 201), repeat=key is not None)
        if told is None:
            return  # it may exist; nobody was told
        lease = told["lease"]
        assert lease["status"] == "active", lease
        self.diary[lease["id"]] = ACTIVE
        self.expiry[lease["id"]] = lease["expiresAt"]
        if run:
            self.of_run[run].add(lease["id"])
        if key and self.random.random() < 0.2:
            again = self.ask("POST", path, body, (200,))
            assert again["lease"]["id"] == lease["id"], "the key gave another lease"

    def some_active(self):
        active = [lease for lease, status in self.diary.items() if status == ACTIVE]
        return self.random.choice(active) if active else None

    def release(self):
        lease = self.some_active()
        if lease:
            body = {"status": self.random.choice(["released", "released", "failed", "expired"])}
            told = self.ask("POST", f"/api/environment-leases/{lease}/release", body, (200,))
            assert told["lease"]["status"] == body["status"], told
            self.diary[lease] = ENDED

    def release_run(self):
        run = self.random.choice(self.runs)
        self.ask("POST", f"/api/heartbeat-runs/{run}/release-leases", {}, (200,))
        for lease in self.of_run[run]:
            self.diary[lease] = ENDED
        self.of_run[run].clear()

    def renew(self):
        lease = self.some_active()
        if lease:
            told = self.ask("POST", f"/api/environment-leases/{lease}/renew",
                            {"ttlMs": self.random.randint(600000, 900000)}, (200,))
            self.expiry[lease] = told["lease"]["expiresAt"]

    def look(self):
        lease = self.some_active()
        if lease:
            told = self.ask("GET", f"/api/environment-leases/{lease}", None, (200,))
            assert told["status"] == "active", told
            assert told["expiresAt"] == self.expiry[lease], told

    def run(self):
        steps = [self.acquire] * 5 + [self.release] * 4 + [self.renew, self.look, self.release_run]
        try:
            while not self.rounds.over.is_set():
                self.random.choice(steps)()
        except Stopped:
            pass
        except BaseException as error:  # told to the main thread
            self.problem = error
        finally:
            self.hang_up()


class Stopped(Exception):
    pass


class KillRounds:
    """Clients on `world` (crashworld.World, started). Use as a context; kill() as often as you like; then finish()."""

    def __init__(self, world, seed, clients=4):
        self.world = world
        self.random = random.Random(seed)
        self.address = world.daemon.address
        self.changed = threading.Condition()
        self.over = threading.Event()
        company = world.company()
        self.environments = [world.environment(company, "once"), world.environment(company, "again", reuseLease=True)]
        self.clients = [ClientThread(self, n, seed * 1000 + n) for n in range(clients)]
        self.kills = 0

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def wait_until_up(self, client):
        """After a lost connection: until there is a daemon to talk to again."""
        with self.changed:
            while not self.over.is_set() and self.address is None:
                self.changed.wait(1)
        if self.over.is_set() and self.address is None:
            raise Stopped

    def kill(self, shortest=0.01, longest=0.15):
        """Let them work for a random while, then kill the daemon and start it anew."""
        time.sleep(self.random.uniform(shortest, longest))  # the moment of the crash, not a wait for anything
        self.address = None
        self.world.daemon.kill()
        self.kills += 1
        self.world.daemon.start()
        with self.changed:
            self.address = self.world.daemon.address
            self.changed.notify_all()
        self.check_clients()

    def check_clients(self):
        for client in self.clients:
            if client.problem:
                raise AssertionError(f"{client.name}: {client.problem}\n{self.world.daemon.log_tail(20)}")

    def stop(self):
        self.over.set()
        with self.changed:
            self.changed.notify_all()
        for client in self.clients:
            client.join(60)

    def answers(self):
        return sum(client.answers for client in self.clients)

    def lost(self):
        """What was told and is not so."""
        rows = {row["id"]: row for row in self.world.leases("1 = 1")}
        wrong = []
        for client in self.clients:
            for lease, told in client.diary.items():
                row = rows.get(lease)
                if row is None or (row["status"] == "active") != (told == ACTIVE):
                    wrong.append(f"{client.name} was told that {lease} is {told}: {row and row['status']}")
        return wrong

    def finish(self):
        """Everything told is so; then give all up, and record and world agree."""
        self.stop()
        self.check_clients()
        if not any(client.diary for client in self.clients):
            raise AssertionError("the clients got nothing done")
        wrong = self.lost()
        if wrong:
            raise AssertionError("\n".join(wrong))
        self.world.settle()
        self.world.release_all()
        self.world.settle()
        if self.world.leases():
            raise AssertionError(f"active although all were released: {self.world.leases()}")
        wait_until(lambda: all(p["state"] == "ready" for p in self.world.places()), "only idle places are left")
