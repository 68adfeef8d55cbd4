"""The record in PostgreSQL: a server that goes away, one daemon at a time, moving over, backups."""

# postgres: a server of its own would cost seconds for each test; databases on it are cheap.
# sqlite: has databases of its own

import http.client
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import signal
import tempfile
import threading
import unittest

import postgres
from berthtest import BINARIES, SOURCE, BerthTest, wait_until


def setUpModule():
    if "BERTH_TEST_POSTGRES" not in os.environ:
        raise unittest.SkipTest("no PostgreSQL; scripts/setup test installs it")


class PostgresTest(BerthTest):
    daemon_autostart = False

    def setUp(self):
        super().setUp()
        self.daemon.env["BERTH_DATABASE"] = self.daemon.database = postgres.database_of(self.daemon.data)
        self.addCleanup(postgres.drop_database_of, self.daemon.data)

    def begin(self):
        self.daemon.start()
        self.acme = self.company()
        self.box = self.environment(self.acme)

    def cut_sessions(self):
        """What a server does with its sessions when it is restarted."""
        self.daemon.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                        "AND datname = current_database()")

    def fails_to_start(self, daemon, text):
        self.assertNotEqual(daemon.spawn().wait(), 0)
        daemon.killed = True
        self.assertIn(text, daemon.log())


class ServingTest(PostgresTest):
    def test_a_lease_and_a_restart(self):
        self.begin()
        lease = self.acquire(self.box)["lease"]
        self.daemon.restart(crash=True)
        self.assertEqual(self.lease(lease)["status"], "active")
        self.release(lease)
        self.daemon.restart()
        self.assertEqual(self.lease(lease)["status"], "released")
        self.assertFalse((self.daemon.data / "berth.db").exists())

    def test_the_daemon_is_killed_around_commits(self):
        """What is recorded is what happened, before and after each commit of an acquire."""
        self.daemon.binary = BINARIES["faults"]
        self.begin()
        crashed = 0
        for when in ("before", "after"):
            for n in range(1, 4):
                self.daemon.stop()
                # Commits of the start come first; a point that is not reached leaves the daemon alive.
                self.daemon.env["BERTH_CRASH_AT"] = f"store.commit.{when}:{n + 1}"
                self.daemon.spawn()
                wait_until(lambda: self.daemon.url or not self.daemon.running(), "it listens or is gone", 20)
                try:
                    self.req("POST", f"/api/environments/{self.box['id']}/leases", {"idempotencyKey": f"{when}{n}"})
                except (OSError, AttributeError, http.client.HTTPException):  # no client where it did not listen yet
                    crashed += 1
                self.daemon.kill()
                del self.daemon.env["BERTH_CRASH_AT"]
                self.daemon.start()
                answer = self.req("POST", f"/api/environments/{self.box['id']}/leases", {"idempotencyKey": f"{when}{n}"})
                self.assertIn(answer.status, (200, 201), answer.body)
                rows = self.daemon.sql("SELECT id FROM environment_leases WHERE idempotency_key = ?", (f"{when}{n}",))
                self.assertEqual([row["id"] for row in rows], [answer.json["lease"]["id"]])
        self.assertEqual(crashed, 6)
        self.assertEqual(self.daemon.cli("db", "check")[:2], (0, "the database on the server: no findings\n"))

    def test_lost_sessions_are_not_noticed(self):
        self.begin()
        for lease in [self.acquire(self.box)["lease"] for _ in range(3)]:
            self.cut_sessions()
            self.release(lease)
            self.cut_sessions()
            self.assertEqual(self.lease(lease)["status"], "released")

    def test_sessions_are_cut_while_clients_work(self):
        """Each request that succeeded is in the record, and each that failed says that it may be tried again."""
        self.begin()
        made, wrong, over = [], [], threading.Event()

        def client(number):
            for i in range(15):
                answer = self.req("POST", f"/api/environments/{self.box['id']}/leases", {"idempotencyKey": f"k{number}-{i}"})
                if answer.status == 201:
                    made.append(answer.json["lease"]["id"])
                elif answer.status != 503 and b"is not known" not in answer.body:
                    wrong.append(answer.body)

        def cut():
            while not over.wait(0.05):
                self.cut_sessions()

        clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        cutter = threading.Thread(target=cut)
        for thread in (cutter, *clients):
            thread.start()
        for thread in clients:
            thread.join()
        over.set()
        cutter.join()
        self.assertEqual(wrong, [])
        self.assertGreater(len(made), 10)
        self.assertEqual(len(made), len(set(made)))
        statuses = {row["id"]: row["status"] for row in self.daemon.sql("SELECT id, status FROM environment_leases")}
        self.assertEqual({statuses.get(lease) for lease in made}, {"active"})

    def test_one_daemon_at_a_time(self):
        self.begin()
        self.fails_to_start(self.new_daemon(env={**self.daemon.env}), "another berth daemon (berth ")
        self.company("Second")

    def test_a_directory_that_had_another_record(self):
        here = self.new_daemon()
        here.start()
        here.stop()
        self.fails_to_start(self.new_daemon(data=here.data, env=self.daemon.env), "berth db copy")

    def test_a_password_in_the_command_line(self):
        self.fails_to_start(self.new_daemon(env={}, flags=["--database", "postgres://me:secret@localhost/x"]),
                            "every user of this machine")

    def test_all_statements_are_understood(self):
        """Every SQL text of the sources, which tests need not reach. SQLite's side is test/unit/query-plans."""
        self.begin()
        loader = importlib.machinery.SourceFileLoader("query_plans", str(SOURCE / "test/unit/query-plans"))
        plans = importlib.util.module_from_spec(importlib.util.spec_from_loader("query_plans", loader))
        loader.exec_module(plans)
        columns, wrong, seen, db = plans.database(), [], 0, postgres.Connection(self.daemon.database)
        for file, sql in sorted(set(plans.statements())):
            if file.startswith("src/store/sqlite/"):
                continue
            text = re.sub(r"\?(\d+)", r"$\1", plans.expanded(columns, sql))
            try:
                db.execute(f"PREPARE s{seen} AS {text}")
            except RuntimeError as e:
                # The star stands for all columns here, and some are assigned behind it.
                if "multiple assignments" not in str(e):
                    wrong.append(f"{file}: {sql}: {e}")
            seen += 1
        db.close()
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 300)


class RestartTest(PostgresTest):
    """A server of its own, that is ended and started again. With fsync: what was acknowledged is there."""

    def setUp(self):
        BerthTest.setUp(self)
        directory = pathlib.Path(tempfile.mkdtemp(prefix="p-"))
        directory.chmod(0o755)
        self.server = postgres.Postgres(directory / "s", durable=True)
        self.addCleanup(self.server.stop, signal.SIGQUIT)
        self.server.start()
        self.daemon.env["BERTH_DATABASE"] = self.daemon.database = self.server.create("record")

    def test_it_is_ridden_out(self):
        self.begin()
        for how in (signal.SIGINT, signal.SIGQUIT):
            lease = self.acquire(self.box)["lease"]
            self.server.stop(how)
            answers = []
            waiting = threading.Thread(target=lambda: answers.append(
                self.req("POST", f"/api/environments/{self.box['id']}/leases", {})))
            waiting.start()
            self.server.start()
            waiting.join()
            self.assertEqual(self.lease(lease)["status"], "active")
            self.assertIn(answers[0].status, (201, 503), answers[0].body)
            if answers[0].status == 201:
                self.assertEqual(self.lease(answers[0].json["lease"])["status"], "active")

    def test_it_stays_away(self):
        """Requests fail with 503 and a hint, and work again when it is back."""
        self.begin()
        self.server.stop()
        answer = self.req("POST", f"/api/environments/{self.box['id']}/leases", {})
        self.assert_status(answer, 503)
        self.assertIn("database server does not answer", answer.error)
        self.assertIsNotNone(answer.headers["Retry-After"])
        self.assert_status(self.req("GET", f"/api/companies/{self.acme['id']}/environments"), 503)
        self.server.start()
        wait_until(lambda: self.req("POST", f"/api/environments/{self.box['id']}/leases", {}).status == 201,
                   "leases are made again", 30)


class MovingTest(PostgresTest):
    def setUp(self):
        super().setUp()
        self.url = self.daemon.env["BERTH_DATABASE"]
        self.on_server(False)

    def on_server(self, yes):
        self.daemon.database = self.url if yes else None
        self.daemon.env.pop("BERTH_DATABASE", None)
        if yes:
            self.daemon.env["BERTH_DATABASE"] = self.url

    def test_there_and_back(self):
        self.begin()
        lease = self.acquire(self.box)["lease"]
        with self.daemon.record() as db:  # no UTF-8
            db.execute("UPDATE companies SET description = CAST(x'61ff62' AS TEXT)")
        self.daemon.stop()
        before = {table: self.daemon.sql(f"SELECT COUNT(*) AS n FROM {table}")[0]["n"] for table in self.daemon.tables()}
        status, out, err = self.daemon.cli("db", "copy", self.daemon.data, self.url)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("compared them", out)
        self.assertFalse((self.daemon.data / "berth.db").exists())
        self.assertEqual(len(list(self.daemon.data.glob("berth.db.copied-*"))), 1)
        self.fails_to_start(self.daemon, "berth.db is missing")
        self.on_server(True)
        for table in set(before) - {"disk_reserve", "sqlite_sequence"}:
            self.assertEqual(self.daemon.sql(f"SELECT COUNT(*) AS n FROM {table}")[0]["n"], before[table], table)
        self.daemon.start()
        self.assertEqual(self.lease(lease)["status"], "active")
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}")["description"], "a\ufffdb")
        self.release(lease)
        self.daemon.stop()
        status, out, err = self.daemon.cli("db", "copy", self.url, self.daemon.data)
        self.assertEqual((status, err), (0, ""))
        self.fails_to_start(self.daemon, "copied away")  # it has no home any more
        self.on_server(False)
        self.daemon.start()
        self.assertEqual(self.lease(lease)["status"], "released")

    def test_a_difference_is_found(self):
        """A trigger in the target changes a row on its way: nothing is copied, and the source stays."""
        self.begin()
        self.daemon.stop()
        other = postgres.Connection(self.url)
        self.daemon.cli("db", "migrate", env={"BERTH_DATABASE": self.url, "BERTH_DATA": str(self.temp_dir())})
        other.execute("CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS "
                      "$$ BEGIN NEW.name = NEW.name || '!'; RETURN NEW; END $$")
        other.execute("CREATE TRIGGER change BEFORE INSERT ON environments FOR EACH ROW EXECUTE FUNCTION change()")
        status, _, err = self.daemon.cli("db", "copy", self.daemon.data, self.url)
        self.assertNotEqual(status, 0)
        self.assertIn("environments is not what it was made from", err)
        self.assertEqual(other.execute("SELECT COUNT(*) AS n FROM companies")[0]["n"], 0)
        other.close()
        self.daemon.start()

    def test_backup_check_and_restore(self):
        self.on_server(True)
        self.begin()
        lease = self.acquire(self.box)["lease"]
        file = self.temp_dir() / "backup.db"
        status, out, err = self.daemon.cli("db", "backup", file)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(self.daemon.cli("db", "check", file)[:2], (0, f"{file}: no findings\n"))
        self.assertEqual(self.daemon.cli("db", "check")[:2], (0, "the database on the server: no findings\n"))
        self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
        self.daemon.stop()
        status, _, err = self.daemon.cli("db", "restore", file)
        self.assertNotEqual(status, 0)
        self.assertIn("has rows already", err)
        # Into a new database: an instance of its own, which leaves the lease to the other one.
        fresh = self.new_daemon()
        fresh.database = postgres.database_of(fresh.data)
        fresh.env = {**self.daemon.env, "BERTH_DATABASE": fresh.database}
        status, out, err = fresh.cli("db", "restore", file)
        self.assertEqual((status, err), (0, ""))
        fresh.start()
        self.assertEqual(fresh.req("GET", f"/api/environment-leases/{lease['id']}").json["status"], "failed")
