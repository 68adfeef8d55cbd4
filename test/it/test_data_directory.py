"""The data directory and its database: a copy beside the original, one that was moved, a database that is missing, empty
or damaged; backing up, restoring and checking (`berth db`)."""
# slow: starts several daemons, and some of them with sandboxes

# sqlite: files of the data directory

import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
import threading

from berthtest import BerthTest, ident, wait_until
from exectest import ExecTest, marked
from sandboxtest import BERTH

WAIT = "trap 'echo ok; exit 7' TERM; echo ready; while :; do sleep 0.05; done"


class Refusals:
    def assert_refused(self, daemon, *texts):
        """It does not start; the last line says why."""
        daemon.spawn()
        self.assertEqual(daemon.wait(), 1, daemon.log_tail())
        daemon.process = None  # this end was expected
        last = daemon.log().splitlines()[-1]
        self.assertRegex(last, "^berth: ")
        for text in texts:
            self.assertIn(text, last)


class CopyTest(ExecTest, Refusals):
    """Another daemon on a copy of the data directory, while the original works."""

    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def setUp(self):
        super().setUp()
        self.leases = [self.held]
        self.acme = self.local["companyId"]
        probe = self.ok("POST", f"/api/companies/{self.acme}/environments/probe-config",
                        {"driver": "sandbox", "config": BERTH})
        if probe["ok"]:
            self.leases.append(self.acquire(self.environment(self.acme, name="real", config=BERTH)))
        self.commands = [self.ok("POST", f"/api/environment-leases/{ident(lease)}/execute",
                                 {"command": "sh", "args": ["-c", WAIT], "detach": True}, status=202)["execId"]
                         for lease in self.leases]
        for lease, command in zip(self.leases, self.commands):
            self.output_is(command, b"ready\n", lease=lease)

    def backup(self, node_id=True):
        """What the manual once told to keep: the database, the node's id."""
        folder = self.temp_dir()
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db, \
                contextlib.closing(sqlite3.connect(folder / "berth.db")) as copy:
            db.backup(copy)
        if node_id:
            shutil.copy(self.daemon.data / "node-id", folder / "node-id")
        return folder

    def whole_copy(self):
        folder = self.temp_dir() / "copy"
        shutil.copytree(self.daemon.data, folder, ignore=shutil.ignore_patterns("*.sock", "sock", "merged", "work"))
        return folder

    def assert_original_works(self):
        """Its commands were not touched: they end when they are told to, as they want to."""
        for lease, command in zip(self.leases, self.commands):
            self.assertEqual(self.lease(lease)["status"], "active")
            self.assertEqual(self.execution(command, lease=lease)["status"], "running")
            self.assertTrue(marked([command]))
        for lease, command in zip(self.leases, self.commands):
            self.signal(command, "SIGTERM", lease=lease)
            end = self.ended(command, lease=lease)
            self.assertEqual((end["status"], end["exitCode"]), ("exited", 7), end)
            self.output_is(command, b"ready\nok\n", lease=lease)

    def test_a_copy_beside_the_original_is_refused(self):
        for folder in (self.backup(), self.backup(node_id=False), self.whole_copy()):
            self.assert_refused(self.new_daemon(data=folder), "not at home", "--new-identity")
        self.assert_original_works()

    def test_a_copy_with_an_identity_of_its_own_leaves_the_originals_work_alone(self):
        for folder in (self.backup(), self.backup(node_id=False), self.whole_copy()):
            copy = self.new_daemon(data=folder, flags=("--new-identity",)).start()
            swept = self.sweeps(copy)
            wait_until(lambda: self.sweeps(copy) > swept + 3, "the copy has swept")
            self.assertNotEqual((folder / "node-id").read_text(), (self.daemon.data / "node-id").read_text())
            for lease, command in zip(self.leases, self.commands):
                self.assertEqual(copy.req("GET", f"/api/environment-leases/{ident(lease)}").json["status"], "failed")
                row = copy.req("GET", f"/api/environment-leases/{ident(lease)}/executions/{command}").json
                self.assertEqual(row["status"], "lost")
                self.assertIn("Left to the instance", row["reason"])
            self.check_leaks(copy)
            copy.stop()
            copy.flags = []  # it is at home from now on
            copy.start()
            copy.stop()
        self.assert_original_works()

    def sweeps(self, daemon):
        text = daemon.req("GET", "/metrics").text
        return next(int(line.split()[-1]) for line in text.splitlines() if line.startswith("berth_sweeps"))

    def check_leaks(self, copy):
        """They are listed with what can be done; closing needs one more word."""
        mine = (self.daemon.data / "node-id").read_text()
        leaks = copy.req("GET", "/api/leaks").json
        self.assertEqual(len(leaks["uncertain"]), len(self.leases), leaks)
        for item in leaks["uncertain"]:
            self.assertIn(mine, item["nextStep"])
            self.assertIn("--take-over", item["nextStep"])
        place = leaks["uncertain"][0]["placeId"]
        status, _, text = copy.cli("leaks", "close", place)
        self.assertEqual(status, 1, text)
        self.assertIn("--take-over", text)
        self.assertEqual(copy.cli("leaks", "forget", place)[0], 0)

    def test_new_places_of_the_copy_live_beside_those_of_the_original(self):
        copy = self.new_daemon(data=self.backup(), flags=("--new-identity",)).start()
        for lease in self.leases:
            env = self.lease(lease)["environmentId"]
            made = copy.req("POST", f"/api/environments/{env}/leases", {})
            self.assert_status(made, 201)
            done = copy.req("POST", f"/api/environment-leases/{ident(made.json)}/execute",
                            {"command": "echo", "args": ["hi"]})
            self.assertEqual((done.status, done.json.get("stdout")), (200, "hi\n"), done.text)
            self.assert_status(copy.req("POST", f"/api/environment-leases/{ident(made.json)}/release", {}), 200)
        copy.stop()
        self.assert_original_works()

    def test_what_was_moved_can_be_taken_over_and_ended(self):
        self.daemon.stop()
        moved = self.whole_copy()  # to another file system
        shutil.rmtree(self.daemon.data, ignore_errors=True)
        self.assert_refused(self.new_daemon(data=moved), "another directory", "--new-identity")
        there = self.new_daemon(data=moved, flags=("--new-identity",)).start()
        self.assertTrue(marked(self.commands))
        for item in there.req("GET", "/api/leaks").json["uncertain"]:
            status, out, text = there.cli("leaks", "close", item["placeId"], "--take-over")
            self.assertEqual(status, 0, out + text)
        wait_until(lambda: not marked(self.commands), "the commands have ended")
        self.assertEqual(there.req("GET", "/api/leaks").json["total"], 0)
        there.stop()
        self.leases, self.daemon = [], there.start()  # for what every test looks at in the end


class HomeTest(BerthTest, Refusals):
    def test_another_machine_is_refused(self):
        self.daemon.stop()
        self.daemon.env["BERTH_MACHINE_ID"] = "one"
        self.daemon.start()  # how it is told does not matter
        self.daemon.stop()
        self.daemon.env["BERTH_MACHINE_ID"] = "two"
        self.assert_refused(self.daemon, "another machine")
        self.daemon.env["BERTH_MACHINE_ID"] = "one"
        self.daemon.start()

    def edit(self, sql, *args):
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db, db:
            db.execute(sql, args)

    def test_the_device_counts_within_one_boot_only(self):
        self.daemon.stop()
        self.edit("UPDATE database_home SET device = device + 1")
        self.assert_refused(self.daemon, "another file system")
        self.edit("UPDATE database_home SET boot_id = 'an earlier one'")
        self.daemon.start()
        row = self.daemon.sql("SELECT * FROM database_home")[0]
        self.assertEqual((row["device"], row["inode"]),
                         (os.stat(self.daemon.data).st_dev, os.stat(self.daemon.data).st_ino))
        self.assertNotEqual(row["boot_id"], "an earlier one")

    def test_a_database_from_before_belongs_to_the_node_of_its_directory(self):
        env = self.environment(self.company())
        lease = self.acquire(env)
        self.daemon.stop()
        node = (self.daemon.data / "node-id").read_text()
        self.edit("DELETE FROM database_home")
        self.daemon.start()
        self.assertEqual(self.daemon.sql("SELECT node_id FROM database_home")[0]["node_id"], node)
        self.assertEqual(self.lease(lease)["status"], "active")
        self.daemon.stop()
        self.edit("DELETE FROM database_home")
        (self.daemon.data / "node-id").unlink()
        self.assert_refused(self.daemon, "does not say which node")

    def test_a_renamed_directory_is_the_same(self):
        lease = self.acquire(self.environment(self.company()))
        self.daemon.stop()
        renamed = self.temp_dir() / "renamed"
        os.rename(self.daemon.data, renamed)
        self.addCleanup(lambda: renamed.exists() and os.rename(renamed, self.daemon.data))
        there = self.new_daemon(data=renamed).start()
        self.assertEqual(there.req("GET", f"/api/environment-leases/{ident(lease)}").json["status"], "active")
        there.stop()

    def test_a_node_id_that_was_removed_comes_back(self):
        node = (self.daemon.data / "node-id").read_text()
        self.daemon.stop()
        (self.daemon.data / "node-id").unlink()
        self.daemon.start()
        self.assertEqual((self.daemon.data / "node-id").read_text(), node)

    def test_the_word_changes_nothing_where_it_is_not_needed(self):
        lease = self.acquire(self.environment(self.company()))
        node = (self.daemon.data / "node-id").read_text()
        self.daemon.stop()
        self.daemon.flags = ["--new-identity"]
        self.daemon.start()
        self.assertEqual((self.daemon.data / "node-id").read_text(), node)
        self.assertEqual(self.lease(lease)["status"], "active")

    def test_runs_that_were_queued_or_running_are_not_done_twice(self):
        """Ended in the copy's record, with their wake-ups and what they had locked."""
        company = self.company()
        go = self.temp_dir() / "go"
        agent = self.ok("POST", f"/api/companies/{ident(company)}/agents",
                        {"name": "Ada", "adapterType": "process", "adapterConfig": {
                            "command": "sh", "args": ["-c", f"echo $PAPERCLIP_RUN_ID >> {go}.log; until [ -e {go} ]; do sleep 0.05; done"]}},
                        status=201)
        for _ in range(2):
            self.assertIn(self.req("POST", f"/api/agents/{agent['id']}/wakeup", {}).status, (200, 201, 202))
        log = pathlib.Path(f"{go}.log")
        wait_until(log.exists, "the first run has begun")
        folder = self.temp_dir()
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db, \
                contextlib.closing(sqlite3.connect(folder / "berth.db")) as copy:
            db.backup(copy)
        there = self.new_daemon(data=folder, flags=("--new-identity",)).start()
        for row in there.sql("SELECT status, step, error FROM heartbeat_runs"):
            self.assertEqual(row["step"], "done")
            self.assertIn(row["status"], ("failed", "cancelled"))
            self.assertIn("Left to the instance", row["error"])
        there.stop()
        go.touch()
        wait_until(lambda: all(r["status"] == "succeeded" for r in self.daemon.sql("SELECT status FROM heartbeat_runs")),
                   "the original's runs end well")
        self.assertEqual(sorted(log.read_text().split()), sorted(r["id"] for r in self.daemon.sql("SELECT id FROM heartbeat_runs")))

    def test_a_copy_does_not_wake_agents_by_their_timers(self):
        """They are paused there, with a reason, until somebody resumes them; those without a timer are as they were."""
        company = self.company()
        agents = {name: self.ok("POST", f"/api/companies/{ident(company)}/agents", {
            "name": name, "adapterType": "process", "adapterConfig": {"command": "true"},
            "runtimeConfig": {"heartbeat": {"enabled": name == "Ada", "intervalSec": 3600}}}, status=201)["id"]
            for name in ("Ada", "Eve")}
        due = "SELECT agent_id FROM agent_schedules"
        wait_until(lambda: self.daemon.sql(due), "the timer runs")
        folder = self.temp_dir()
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db, \
                contextlib.closing(sqlite3.connect(folder / "berth.db")) as copy:
            db.backup(copy)
        there = self.new_daemon(data=folder, flags=("--new-identity",)).start()
        ada, eve = (there.req("GET", f"/api/agents/{agents[name]}").json for name in ("Ada", "Eve"))
        self.assertEqual((ada["status"], eve["status"]), ("paused", "idle"))
        self.assertIn("a copy with an identity of its own", ada["pauseReason"])
        wait_until(lambda: not there.sql(due), "the timer does not run there")
        self.assertEqual(self.ok("GET", f"/api/agents/{agents['Ada']}")["status"], "idle")
        self.assertEqual(there.req("POST", f"/api/agents/{agents['Ada']}/resume", {}).status, 200)
        wait_until(lambda: there.sql(due), "it runs again")


class VaultTest(BerthTest):
    """Values in a vault elsewhere, which the original and its copy share."""

    daemon_binary = "faults"

    def setUp(self):
        self.vault = self.temp_dir()
        self.daemon_env = {"BERTH_FAKE_VAULT": str(self.vault), "BERTH_SWEEP_INTERVAL_MS": "50"}
        super().setUp()

    def test_a_value_that_was_being_written_is_not_taken_back_by_the_copy(self):
        """The original goes on and records it; the copy has only the intent."""
        company = ident(self.company())
        for name in ("KEPT", "MADE"):
            self.ok("POST", f"/api/companies/{company}/secrets", {"name": name, "value": "v", "provider": "vault"},
                    status=201)
        values = sorted(os.listdir(self.vault))
        self.assertEqual(len(values), 2)
        folder = self.temp_dir()
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db, \
                contextlib.closing(sqlite3.connect(folder / "berth.db")) as copy, copy:
            db.backup(copy)
            copy.execute("UPDATE company_secret_versions SET reserved_by = 'somebody'")
            copy.execute("UPDATE company_secrets SET reserved_by = 'somebody' WHERE name = 'MADE'")
        there = self.new_daemon(data=folder, flags=("--new-identity",)).start()
        self.assertEqual([s["name"] for s in there.req("GET", f"/api/companies/{company}/secrets").json], ["KEPT"])
        there.stop()
        self.assertEqual(sorted(os.listdir(self.vault)), values)


class MissingTest(BerthTest, Refusals):
    def setUp(self):
        super().setUp()
        self.acme = self.company()
        self.daemon.kill()  # leaves a log
        self.file = self.daemon.data / "berth.db"
        self.assertGreater((self.daemon.data / "berth.db-wal").stat().st_size, 0)

    def refuse_and_leave(self, *texts):
        before = {p.name: p.read_bytes() for p in self.daemon.data.glob("berth.db*")}
        self.assert_refused(self.daemon, "there was an instance here", "berth db restore", *texts)
        self.assertEqual({p.name: p.read_bytes() for p in self.daemon.data.glob("berth.db*")}, before)

    def test_an_empty_database_beside_its_log(self):
        os.truncate(self.file, 0)
        self.refuse_and_leave("is empty", "berth.db-wal")

    def test_a_missing_database_beside_its_log(self):
        kept = self.file.read_bytes()
        self.file.unlink()
        self.refuse_and_leave("is missing", "berth.db-wal")
        self.file.write_bytes(kept)
        self.file.chmod(0o600)
        self.daemon.start()
        self.assertEqual([c["id"] for c in self.ok("GET", "/api/companies")], [self.acme["id"]])

    def test_a_missing_database_without_a_log(self):
        for file in self.daemon.data.glob("berth.db*"):
            file.unlink()
        self.refuse_and_leave("is missing", "node-id")
        (self.daemon.data / "node-id").unlink()
        (self.daemon.data / "output" / self.acme["id"]).mkdir()
        self.refuse_and_leave("is missing", "output")


class DamageTest(BerthTest, Refusals):
    """A page that was overwritten. Nothing answers from it as if all were well."""

    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50"}

    def fill(self, comments=400):
        issue = self.ok("POST", f"/api/companies/{ident(self.company())}/issues", {"title": "Board"}, status=201)["id"]
        for i in range(comments):
            self.ok("POST", f"/api/issues/{issue}/comments", {"body": f"c{i} " + "x" * 2000}, status=201)
        return issue

    def damage(self):
        """All leaves of the comments, in the file; what is in the log is there first."""
        file = self.daemon.data / "berth.db"
        with contextlib.closing(sqlite3.connect(file, timeout=10)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            pages = [row[0] for row in db.execute("SELECT pageno FROM dbstat WHERE name = 'issue_comments' "
                                                  "AND pagetype = 'leaf'")]
            size = db.execute("PRAGMA page_size").fetchone()[0]
        with open(file, "r+b") as handle:
            for page in pages[1:]:
                handle.seek((page - 1) * size)
                handle.write(b"\xff" * 64)

    def test_at_the_start(self):
        self.fill()
        self.daemon.stop()
        self.damage()
        self.assert_refused(self.daemon, "damaged", "berth db check", "berth db restore")
        status, out, _ = self.cli("db", "check")
        self.assertEqual(status, 1)
        self.assertNotIn("no findings", out)

    def test_met_by_a_request(self):
        """API 503: what health says of a database that fails."""
        issue = self.fill()
        self.daemon.stop()
        self.daemon.start()  # nothing of it is in a cache
        self.damage()
        self.assert_status(self.req("GET", f"/api/issues/{issue}/comments"), 500)
        self.company("Another")  # a write that works says nothing about the rest
        answer = self.req("GET", "/api/health")
        self.assert_status(answer, 503)
        self.assertEqual(answer.json["error"], "database_unreachable")
        wait_until(lambda: "the database file is damaged" in self.daemon.log(), "it is in the log")

    def test_found_by_the_scrub(self):
        self.fill()
        self.daemon.stop()
        self.daemon.env["BERTH_SCRUB_INTERVAL_MS"] = "50"
        self.daemon.start()
        self.assert_status(self.req("GET", "/api/health"), 200)
        self.damage()
        wait_until(lambda: self.req("GET", "/api/health").status == 503, "nobody asked for the page, and health knows")
        wait_until(lambda: "the database file is damaged" in self.daemon.log(), "it is in the log")


class BackupTest(BerthTest, Refusals):
    def writing(self):
        """Writes go on until it is left; the number of those that were answered."""
        company, done, answered = self.company(), threading.Event(), []

        def write():
            while not done.is_set():
                answered.append(self.ok("POST", f"/api/companies/{ident(company)}/issues",
                                        {"title": f"issue {len(answered)}"}, status=201)["id"])

        @contextlib.contextmanager
        def go():
            threads = [threading.Thread(target=write) for _ in range(3)]
            for thread in threads:
                thread.start()
            try:
                wait_until(lambda: len(answered) > 20, "writes are under way")
                yield answered
            finally:
                done.set()
                for thread in threads:
                    thread.join()

        return go()

    def test_under_load(self):
        folder = self.temp_dir()
        with self.writing() as answered:
            before = list(answered)
            status, out, text = self.cli("db", "backup", folder / "copy.db")
            self.assertEqual(status, 0, text)
            self.assertEqual(self.cli("db", "check")[:2], (0, f"{self.daemon.data / 'berth.db'}: no findings\n"))
        self.assertIn("master", out)
        self.assertEqual(os.listdir(folder), ["copy.db"])
        self.assertEqual((folder / "copy.db").stat().st_mode & 0o777, 0o600)
        with contextlib.closing(sqlite3.connect(folder / "copy.db")) as db:
            kept = {row[0] for row in db.execute("SELECT id FROM issues")}
        self.assertLessEqual(set(before), kept)
        self.assertEqual(self.cli("db", "check", folder / "copy.db"), (0, f"{folder / 'copy.db'}: no findings\n", ""))

    def test_what_exists_is_not_overwritten(self):
        folder = self.temp_dir()
        file = folder / "mine"
        file.write_text("mine")
        status, _, text = self.cli("db", "backup", file)
        self.assertEqual(status, 1)
        self.assertIn("--replace", text)
        self.assertEqual(file.read_text(), "mine")
        self.assertEqual(self.cli("db", "backup", "--replace", file)[0], 0)
        self.assertEqual(self.cli("db", "check", file)[0], 0)
        file.unlink()
        self.assertEqual(self.cli("db", "backup", folder)[0], 0)
        self.assertRegex(os.listdir(folder)[0], r"^berth-\d{8}T\d{6}Z\.db$")

    def test_restored_elsewhere_it_is_an_instance_of_its_own(self):
        company = self.company()
        lease = self.acquire(self.environment(company))
        file = self.temp_dir() / "copy.db"
        self.assertEqual(self.cli("db", "backup", file)[0], 0)
        there = self.new_daemon(data=self.temp_dir())
        status, out, text = there.cli("db", "restore", file)
        self.assertEqual(status, 0, text)
        self.assertIn("an instance of its own", out)
        there.start()
        self.assertEqual([c["id"] for c in there.req("GET", "/api/companies").json], [company["id"]])
        self.assertEqual(there.req("GET", f"/api/environment-leases/{ident(lease)}").json["status"], "failed")
        self.assertNotEqual((there.data / "node-id").read_text(), (self.daemon.data / "node-id").read_text())
        self.assertEqual(self.lease(lease)["status"], "active")

    def test_restoring_over_a_database(self):
        company = self.company()
        file = self.temp_dir() / "copy.db"
        self.assertEqual(self.cli("db", "backup", file)[0], 0)
        later = self.company("Later")
        status, _, text = self.cli("db", "restore", "--replace", file)
        self.assertNotEqual(status, 0)
        self.assertIn(f"process {self.daemon.process.pid}", text)  # it lives
        self.daemon.stop()
        status, _, text = self.cli("db", "restore", file)
        self.assertEqual(status, 1)
        self.assertIn("--replace", text)
        self.assertEqual(self.cli("db", "restore", "--replace", file)[0], 0)
        self.daemon.start()
        self.assertEqual([c["id"] for c in self.ok("GET", "/api/companies")], [company["id"]])
        aside = next(self.daemon.data.glob("berth.db.before-*"))
        with contextlib.closing(sqlite3.connect(aside)) as db:
            self.assertIn((later["id"],), db.execute("SELECT id FROM companies").fetchall())

    def test_a_file_does_not_steer_a_terminal(self):
        """What SQLite says of a file quotes it, and `berth db` shows what SQLite says."""
        file = self.temp_dir() / "from-somebody.db"
        with contextlib.closing(sqlite3.connect(file)) as db:
            db.execute("CREATE TABLE p (id)")
            db.execute("PRAGMA writable_schema = ON")
            db.execute("UPDATE sqlite_master SET name = ?, tbl_name = name, sql = 'CREATE'", ("\x1b]0;owned\x07\u202e",))
            db.commit()
        for args in (("check", file), ("restore", file, "--data", self.temp_dir() / "new")):
            status, out, text = self.cli("db", *args)
            self.assertNotEqual(status, 0)
            self.assertIn("]0;owned", out + text)
            for sign in "\x1b\x07\u202e":
                self.assertNotIn(sign, out + text)

    def test_no_data_directory(self):
        """Without --data it is the default one, which may not be where the daemon's is."""
        folder = self.temp_dir()
        file, home = folder / "copy.db", folder / "home"
        self.assertEqual(self.cli("db", "backup", file)[0], 0)
        for action in (("backup", folder / "x.db"), ("check",)):
            with self.subTest(action=action):
                status, _, text = self.cli("db", *action, env={"HOME": str(home), "BERTH_DATA": "", "XDG_DATA_HOME": ""})
                self.assertEqual(status, 5, text)
                self.assertEqual(text, f"berth: there is no data directory {home}/.local/share/berth; name the daemon's "
                                       "with --data\n")
        # A backup needs none to be looked at, and none is made for it.
        status, out, text = self.cli("db", "check", file, env={"HOME": str(home), "BERTH_DATA": "", "XDG_DATA_HOME": ""})
        self.assertEqual((status, out, text), (0, f"{file}: no findings\n", ""))
        self.assertFalse(home.exists())

    def test_what_is_no_backup_is_refused(self):
        self.company()
        self.daemon.stop()
        before = (self.daemon.data / "berth.db").read_bytes()
        folder = self.temp_dir()
        (folder / "text").write_text("hello " * 1000)
        with contextlib.closing(sqlite3.connect(folder / "other")) as db, db:
            db.execute("CREATE TABLE t (x)")
        (folder / "cut").write_bytes(before[:len(before) // 2])
        for name in ("text", "other", "cut", "missing"):
            with self.subTest(name):
                status, _, text = self.cli("db", "restore", "--replace", folder / name)
                self.assertNotEqual(status, 0)
                self.assertTrue(text.startswith("berth: "), text)
        self.assertEqual((self.daemon.data / "berth.db").read_bytes(), before)
        self.assertEqual([p.name for p in self.daemon.data.glob("berth.db?*")], ["berth.db-reserve"])
        self.daemon.start()

    def test_a_check_compares_rows_and_files(self):
        lease = self.acquire(self.environment(self.company()))
        place = self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?", (ident(lease),))[0]["place_id"]
        self.daemon.stop()
        stray = self.daemon.data / "output" / ident(lease)
        stray.mkdir()
        with contextlib.closing(sqlite3.connect(self.daemon.data / "berth.db")) as db, db:
            db.execute("UPDATE places SET state = 'gone' WHERE id = ?", (place,))
            db.execute("UPDATE environments SET company_id = 'nobody'")
        status, out, _ = self.cli("--json", "db", "check")
        self.assertEqual(status, 1)
        found = json.loads(out)["findings"]
        self.assertTrue(any(ident(lease) in text and "no place" in text for text in found), found)
        self.assertTrue(any(f"output/{ident(lease)}" in text for text in found), found)
        self.assertTrue(any("refers to a row of companies" in text for text in found), found)


class ModeTest(BerthTest):
    """Other users and the directory itself."""

    def mode_after_restart(self, mode, *foreign):
        self.daemon.stop()
        for name in foreign:
            (self.daemon.data / name).write_text("x")
        self.daemon.data.chmod(mode)
        self.daemon.start()
        return self.daemon.data.stat().st_mode & 0o7777

    def test_other_users_lose_their_rights(self):
        for mode in (0o755, 0o750, 0o701):
            self.assertEqual(self.mode_after_restart(mode), 0o700)
        self.assertIn("is not any more", self.daemon.log())

    def test_a_directory_of_others_is_left_alone(self):
        self.assertEqual(self.mode_after_restart(0o1755), 0o1755)
        self.assertEqual(self.mode_after_restart(0o755, "somebodys-file"), 0o755)
        self.assertIn("chmod 700", self.daemon.log())
        for path in self.daemon.data.iterdir():
            if path.name not in ("somebodys-file", self.daemon.log_path.name):
                self.assertEqual(path.stat().st_mode & 0o077, 0, path)


if __name__ == "__main__":
    import unittest
    unittest.main()
