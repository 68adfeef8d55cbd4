"""Bad worlds: full disks, foreign files, wrong settings, clocks that jump, providers that fail for good. Each has to end
in a text that says what is wrong, with nothing damaged, and to be well again once the world is."""
# share 3: 6 s of processor time

# sqlite: damaged and full SQLite files

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from berthtest import BINARIES, RawConnection, set_clock, wait_until
from crashworld import Died, World

RUN_A = "00000000-0000-4000-8000-00000000000a"
RUN_B = "00000000-0000-4000-8000-00000000000b"


def can_unshare():
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


class Waiting:
    """A request on a thread of its own; answer() waits for it. None: the daemon died."""

    def __init__(self, w, method, path, body=None):
        self.outcome = []

        def ask():
            try:
                self.outcome.append(w.ask(method, path, body))
            except Died:
                self.outcome.append(None)

        self.thread = threading.Thread(target=ask, daemon=True)
        self.thread.start()

    def answer(self):
        self.thread.join(30)
        assert self.outcome, "no answer"
        return self.outcome[0]


class BadWorld(unittest.TestCase):
    binary = "normal"
    env = {}

    def setUp(self):
        self.w = World(binary=self.binary, env=self.env)
        self.addCleanup(self.w.dispose)

    def failure_log(self):
        return self.w.daemon.log_tail()

    def start(self):
        self.assertTrue(self.w.start(), self.w.daemon.log_tail())

    def wrap(self, script):
        """Run the daemon beneath a shell script, which ends with `exec "$@"`."""
        wrapper = self.w.root / "wrapper"
        wrapper.write_text(f"#!/bin/sh\nset -e\nset -- {BINARIES[self.binary]} \"$@\"\n{script}\nexec \"$@\"\n")
        wrapper.chmod(0o755)
        self.w.daemon.binary = str(wrapper)

    def assert_refused(self, *texts, daemon=None, status=1):
        """It does not start, and the last line says why."""
        daemon = daemon or self.w.daemon
        daemon.spawn()
        self.assertEqual(daemon.wait(), status, daemon.log_tail())
        last = daemon.log().splitlines()[-1]
        self.assertRegex(last, "^berth: ")
        for text in texts:
            self.assertIn(text, last)
        self.assertIsNone(daemon.url)

    def scene(self, **config):
        self.start()
        self.company = self.w.company()
        self.environment = self.w.environment(self.company, **config)
        return self.environment

    def acquire_held(self, control="hold-open", **body):
        """An acquire that the provider keeps waiting."""
        self.w.tell(control)
        waiting = Waiting(self.w, "POST", f"/api/environments/{self.environment}/leases", body)
        wait_until(lambda: waiting.outcome or self.w.places("state = 'intended'"), "the provider is asked")
        return waiting


@unittest.skipUnless(can_unshare(), "needs root, to mount a small file system of its own")
class FullDisk(BadWorld):
    """Not even room for closing (test_full_disk.py has that): nothing is changed by halves."""

    env = {"BERTH_OPERATION_TIMEOUT_MS": "1000", "BERTH_CLOSE_TIMEOUT_MS": "100", "BERTH_DISK_RESERVE_MB": "0"}

    def setUp(self):
        super().setUp()
        self.w.daemon.data.mkdir()
        self.wrap(f"[ \"$1\" ] && exec unshare -m sh -c 'mount -t tmpfs -o mode=700,size=4m none {self.w.daemon.data} && "
                  f"exec \"$@\"' sh \"$@\"")
        self.scene()
        self.inside = pathlib.Path(f"/proc/{self.w.daemon.process.pid}/root{self.w.daemon.data}")
        self.w.daemon.sql = self.sql_inside

    def sql_inside(self, query, parameters=()):
        """The file system ends with the daemon and is seen by it alone: ask beside it."""
        code = ("import json, sqlite3, sys\n"
                "db = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True, timeout=10)\n"
                "db.row_factory = sqlite3.Row\n"
                "print(json.dumps([dict(row) for row in db.execute(sys.argv[2], json.loads(sys.argv[3]))]))")
        done = subprocess.run(["nsenter", "-t", str(self.w.daemon.process.pid), "-m", sys.executable, "-c", code,
                               str(self.w.daemon.data / "berth.db"), query, json.dumps(parameters)],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def fill(self):
        with contextlib.suppress(OSError), open(self.inside / "filler", "ab", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def free(self):
        (self.inside / "filler").unlink()

    def write_until_full(self):
        """What is written goes into room that the database has already; in the end there is none."""
        for _ in range(10000):
            answer = self.w.ask("POST", "/api/companies", {"name": "x" * 200})
            if answer.status != 201:
                return answer
            self.fill()
        self.fail("the disk does not fill up")

    def test_writes_say_so_and_reads_go_on(self):
        lease = self.w.acquire(self.environment)["id"]
        self.fill()
        answer = self.write_until_full()
        self.assertEqual(answer.status, 503)
        self.assertIn("disk with the data directory is full", answer.error)
        things = self.w.things()
        for method, path in (("POST", f"/api/environments/{self.environment}/leases"),
                             ("POST", f"/api/environment-leases/{lease}/release"),
                             ("POST", f"/api/environment-leases/{lease}/renew"),
                             ("DELETE", f"/api/environments/{self.environment}?closeLeases=true")):
            refused = self.w.ask(method, path, {"ttlMs": 60000} if method == "POST" and "release" not in path else {})
            self.assertEqual(refused.status, 503, (path, refused.text))
            self.assertIn("full", refused.error)
        self.assertEqual(self.w.things(), things)  # no row, no effect
        self.assertEqual(self.w.lease(lease)["status"], "active")
        companies = len(self.w.expect(200, "GET", "/api/companies"))
        self.assertEqual(self.w.expect(200, "GET", "/api/leaks")["total"], 0)
        self.free()
        self.assertEqual(len(self.w.expect(200, "GET", "/api/companies")), companies)
        self.w.release(lease)
        self.w.acquire(self.environment)
        self.w.release_all()
        self.w.settle()

    def test_full_between_asking_the_provider_and_the_lease(self):
        waiting = self.acquire_held(idempotencyKey="k")
        self.fill()
        self.write_until_full()
        self.w.untell()
        answer = waiting.answer()
        self.assertEqual(answer.status, 503, answer.text)
        self.assertIn("full", answer.error)
        self.free()
        self.w.settle()  # without a restart
        self.assertEqual(self.w.things(), set())
        self.w.acquire(self.environment, idempotencyKey="k")
        self.w.release_all()
        self.w.settle()


class DataDirectory(BadWorld):
    def test_missing_is_made_for_its_owner_only(self):
        self.w.daemon.data = self.w.root / "a/b/c"
        self.start()
        self.assertEqual(self.w.daemon.data.stat().st_mode & 0o777, 0o700)
        self.assertEqual((self.w.daemon.data / "berth.db").stat().st_mode & 0o777, 0o600)

    def test_beneath_a_file(self):
        (self.w.root / "file").touch()
        self.w.daemon.data = self.w.root / "file/d"
        self.assert_refused("data directory", str(self.w.daemon.data))

    @unittest.skipUnless(can_unshare(), "needs root, to mount read-only")
    def test_read_only(self):
        data = self.w.daemon.data
        data.mkdir()
        self.wrap(f"exec unshare -m sh -c 'mount --bind {data} {data} && mount -o remount,bind,ro {data} && "
                  f"exec \"$@\"' sh \"$@\"")
        self.assert_refused(str(data), "--data")

    def test_second_daemon(self):
        self.scene()
        lease = self.w.acquire(self.environment)["id"]
        second = World(copy_of=None, binary=self.binary)
        self.addCleanup(second.dispose)
        second.daemon.data = self.w.daemon.data
        self.assert_refused(f"process {self.w.daemon.process.pid}", "another berth daemon", str(self.w.daemon.data),
                            daemon=second.daemon)
        self.assertEqual(self.w.lease(lease)["status"], "active")
        self.assertEqual(self.w.daemon.req_unix("GET", "/api/health").status, 200)  # its socket was not taken away

    def test_socket_of_a_killed_daemon(self):
        self.start()
        self.w.daemon.kill()
        self.assertTrue((self.w.daemon.data / "berth.sock").is_socket())
        self.start()
        self.assertEqual(self.w.daemon.req_unix("GET", "/api/health").status, 200)

    def test_something_else_where_the_socket_belongs(self):
        self.w.daemon.data.mkdir()
        (self.w.daemon.data / "berth.sock").write_text("mine")
        self.assert_refused("berth.sock", "not a socket")
        self.assertEqual((self.w.daemon.data / "berth.sock").read_text(), "mine")

    def test_path_too_long_for_a_socket(self):
        self.w.daemon.data = self.w.root / ("x" * 120)
        self.assert_refused("too long", "--data")

    def test_node_id_is_nonsense(self):
        self.start()
        self.w.daemon.stop()
        (self.w.daemon.data / "node-id").write_text("nonsense")
        self.assert_refused("node-id", "does not hold a node id")


class Port(BadWorld):
    def test_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.w.daemon.listen = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assert_refused(self.w.daemon.listen, "in use")
        self.start()

    def test_not_an_address(self):
        for listen in ("127.0.0.1:port", "127.0.0.1:99999", "no.such.host.invalid:80"):
            with self.subTest(listen):
                self.w.daemon.listen = listen
                self.assert_refused(listen.rpartition(":")[0])


class Database(BadWorld):
    def setUp(self):
        super().setUp()
        self.scene()
        self.lease = self.w.acquire(self.environment, ttlMs=3600000)["id"]
        self.w.daemon.stop()
        self.file = self.w.daemon.data / "berth.db"
        self.good = self.file.read_bytes()

    def refuse_and_recover(self, *texts):
        """Refused, the file left as it was; the backup put back works."""
        before = hashlib.sha256(self.file.read_bytes()).digest()
        self.assert_refused(*texts)
        self.assertEqual(hashlib.sha256(self.file.read_bytes()).digest(), before)
        for more in self.w.daemon.data.glob("berth.db-*"):
            more.unlink()
        self.file.write_bytes(self.good)
        self.start()
        self.assertEqual(self.w.lease(self.lease)["status"], "active")
        self.w.settle()

    def test_not_a_database(self):
        self.file.write_text("hello " * 1000)
        self.refuse_and_recover("damaged or not a Berth database", "berth.db")

    def test_damaged_header(self):
        self.file.write_bytes(b"\xff" * 4096 + self.good[4096:])
        self.refuse_and_recover("damaged or not a Berth database", "berth.db")

    def test_damaged_pages(self):
        self.file.write_bytes(self.good[:4096] + b"\xff" * (len(self.good) - 4096))
        self.refuse_and_recover("damaged or not a Berth database", "berth.db")

    def test_truncated(self):
        self.file.write_bytes(self.good[:len(self.good) // 2])
        self.refuse_and_recover("damaged or not a Berth database", "berth.db")

    def test_of_a_newer_berth(self):
        self.w.edit("INSERT INTO schema_migrations VALUES (9999, 'from the future', 0)")
        self.refuse_and_recover("version 9999", "newer berth")

    def test_a_directory(self):
        self.file.unlink()
        self.file.mkdir()
        self.assert_refused("berth.db")

    def test_locked_by_another_program(self):
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            self.assert_refused("in use by another program")
        self.start()
        self.w.settle()


class Settings(BadWorld):
    def setUp(self):
        super().setUp()
        self.w.daemon.data.mkdir()
        self.file = self.w.daemon.data / "berth.toml"

    def test_file_that_is_not_toml(self):
        self.file.write_text("listen = \"127.0.0.1:0\"\nthis is no setting\n")
        self.assert_refused("berth.toml", "2")

    def test_values_that_no_setting_has(self):
        for text in ("op_threads = 1.5", "idle_place_ttl_ms = 99999999999999999999"):
            with self.subTest(text):
                self.file.write_text(text + "\n")
                self.assert_refused("berth.toml line 1")

    def test_file_that_cannot_be_read(self):
        self.file.mkdir()
        self.assert_refused("berth.toml")

    def test_unknown_key(self):
        self.file.write_text("lissen = \"127.0.0.1:0\"\n")
        self.assert_refused("berth.toml", "lissen")

    def test_bad_values_in_the_file(self):
        for text in ("op_threads = 0", "op_threads = \"many\"", "op_queue = -1",
                     "adhoc_ttl_ms = true", "mode = \"friendly\"", "exposure = 1", "log.level = \"loud\"",
                     "workspace_roots = [1]", "workspace_roots = 7", "database = 5", "public_url = true",
                     "idle_place_ttl_ms = 9999999999999999"):
            with self.subTest(text):
                self.file.write_text(text + "\n")
                self.assert_refused(text.split()[0], "berth.toml")

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_the_data_directory_of_another_user(self):
        """He could change the settings of a daemon of root's, and would be left with files of root's."""
        os.chown(self.w.daemon.data, 65534, 65534)
        self.assert_refused("belongs to user 65534", "chown it to root")
        self.assertEqual(list(self.w.daemon.data.iterdir()), [])
        os.chown(self.w.daemon.data, 0, 0)
        self.w.daemon.start()

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_data_directory_that_others_write_to(self):
        """Whoever puts a file there makes the settings, the keys and the users of the daemon."""
        berth = pathlib.Path(shutil.copy2(BINARIES["normal"], tempfile.mkdtemp()))
        folder = berth.parent / "data"
        for parent in berth.parents[:-1]:
            if not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)

        def first_line(owner, mode, uid, *files):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name in files:
                (folder / name).write_text(f'trusted_uids = "{owner}"\n')
            folder.chmod(mode)
            os.chown(folder, owner, owner)
            daemon = subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", berth, "serve", "--data",
                                       folder, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            with daemon:
                line = daemon.stdout.readline()
                daemon.kill()
            return line
        for uid in (0, 65534):
            self.assertIn("belongs to user 65533", first_line(65533, 0o777, uid))
            self.assertIn("other users can write to data directory", first_line(uid, 0o777, uid, "berth.toml"))
            self.assertIn("other users can write to data directory", first_line(uid, 0o1777, uid))
            self.assertNotRegex(first_line(uid, 0o777, uid), "^berth: ")
            self.assertEqual(folder.stat().st_mode & 0o7777, 0o700)

    def test_workspace_roots_in_one_another(self):
        """What one company brings home could put a link where the other's root is."""
        one, two = (f"{i}1a1e3c9-26db-41ff-8d49-f7b220dbbcef" for i in range(2))
        link = self.w.daemon.data / "link"
        (self.w.daemon.data / "real/inner").mkdir(parents=True)
        link.symlink_to(self.w.daemon.data / "real/inner")
        for roots in ([f"{one}=/srv/a", f"{two}=/srv/a/b"], ["/srv/", f"{one}=/srv/a"], ["/srv", "/srv/{company}"],
                      [f"{one}=/srv/a/{two}/x", "/srv/a/{company}"], [f"{one}=/srv", "/srv/{company}"], ["/", "/srv/{company}"],
                      [f"{one}={link}", f"{two}={self.w.daemon.data}/real"]):
            with self.subTest(roots):
                self.file.write_text(f"workspace_roots = {json.dumps(roots)}\n")
                self.assert_refused("lies in", "give each company directories beside those of the others")

    def test_workspace_roots_beside_one_another(self):
        one, two = (f"{i}1a1e3c9-26db-41ff-8d49-f7b220dbbcef" for i in range(2))
        roots = ["/srv/all", "/srv/all/nested", f"{one}=/srv/a", f"{one}=/srv/a/b", f"{two}=/srv/ab", "/srv/each/{company}",
                 f"{one}=/srv/each/{one}/more"]
        self.file.write_text(f"workspace_roots = {json.dumps(roots)}\n")
        self.w.daemon.start()

    def test_bad_values_in_variables(self):
        for name, value in (("BERTH_OP_THREADS", "0"), ("BERTH_OP_QUEUE", "x"), ("BERTH_SWEEP_INTERVAL_MS", "1"),
                            ("BERTH_DEPLOYMENT_MODE", "friendly"), ("BERTH_LOG_LEVEL", "loud"),
                            ("BERTH_LOG_FORMAT", "xml"), ("BERTH_ALLOW_FAKE_PROVIDER", "yes"),
                            ("BERTH_CLOSE_TIMEOUT_MS", "1 minute"), ("BERTH_ADHOC_TTL_MS", "-5")):
            with self.subTest(name):
                good = dict(self.w.daemon.env)
                self.w.daemon.env[name] = value
                self.assert_refused(name, f"'{value}'")
                self.w.daemon.env = good
        self.start()

    def test_open_to_everybody_without_a_key(self):
        self.w.daemon.listen = "0.0.0.0:0"
        self.assert_refused("local_trusted", "loopback")

    def test_fake_world_that_is_not_there(self):
        self.scene()
        shutil.rmtree(self.w.path)
        answer = self.w.ask("POST", f"/api/environments/{self.environment}/leases", {})
        self.assertEqual(answer.status, 502)
        self.w.path.mkdir()
        self.w.acquire(self.environment)
        self.w.release_all()
        self.w.settle()


class Clock(BadWorld):
    binary = "faults"

    def setUp(self):
        super().setUp()
        self.file = self.w.root / "clock"
        self.w.daemon.env["BERTH_TEST_CLOCK_FILE"] = str(self.file)
        self.scene(reuseLease=True)
        self.jumps = 0

    def jump(self, seconds):
        """Set the clock, and wait until the daemon says that it noticed."""
        self.jumps += 1
        self.set(seconds)
        self.noticed()

    def set(self, seconds):
        set_clock(self.file, seconds)

    def noticed(self):
        wait_until(lambda: self.w.daemon.log().count("the wall clock was set") >= self.jumps, "it notices")

    def left(self, lease, offset):
        """Seconds that the lease has left, by the daemon's wall clock."""
        row = self.w.leases(f"id = '{lease}'")[0]
        return row["expires_at"] / 1e6 - time.time() - offset

    def assert_left(self, lease, offset, seconds):
        left = self.left(lease, offset)
        self.assertGreater(left, seconds - 300)  # however slow this machine is
        self.assertLessEqual(left, seconds + 10)

    def test_leases_keep_the_time_they_had_left(self):
        lease = self.w.acquire(self.environment, ttlMs=3600000)["id"]
        for offset in (86400, -86400, 3600, 0):
            with self.subTest(offset):
                self.jump(offset)
                self.assertEqual(self.w.lease(lease)["status"], "active")
                self.assert_left(lease, offset, 3600)
        self.assertRegex(self.w.daemon.log(), "seconds=86(400|399)")
        self.assertRegex(self.w.daemon.log(), "seconds=-172(800|799)")

    def test_new_and_renewed_leases_after_setting_it_back(self):
        old = self.w.acquire(self.environment, ttlMs=3600000)["id"]
        self.jump(-86400)
        new = self.w.acquire(self.environment, ttlMs=600000)["id"]
        self.w.do("renewed", "POST", f"/api/environment-leases/{old}/renew", {"ttlMs": 600000})
        for lease in (old, new):
            self.assert_left(lease, -86400, 600)

    def test_leases_made_before_it_notices(self):
        for offset in (-86400, 0):
            with self.subTest(offset):
                self.jumps += 1
                self.set(offset)
                lease = self.w.acquire(self.environment, ttlMs=3600000)["id"]
                self.noticed()
                self.assertEqual(self.w.lease(lease)["status"], "active")
                self.assert_left(lease, offset, 3600)

    def test_expiry_still_comes(self):
        self.jump(-86400)
        lease = self.w.acquire(self.environment, ttlMs=1)["id"]
        wait_until(lambda: self.w.lease(lease)["status"] == "expired", "it expires")
        self.w.settle()

    def test_places_move_along(self):
        self.w.release(self.w.acquire(self.environment, heartbeatRunId=RUN_A)["id"])
        self.jump(86400)
        self.assertEqual([p["state"] for p in self.w.places()], ["ready"])  # idle for an hour at most, not over yet
        self.w.tell("fail-close")
        self.w.release(self.w.acquire(self.environment)["id"])
        self.jump(0)
        self.w.untell()
        self.w.settle()  # the next attempt does not wait for tomorrow
        self.assertEqual(len(self.w.places()), 1)


class Signals(BadWorld):
    def test_sigterm_during_a_request(self):
        self.scene()
        waiting = self.acquire_held()
        self.w.daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in self.w.daemon.log(), "it stops")
        self.w.untell()
        answer = waiting.answer()
        self.assertEqual(answer.status, 201)
        self.w.daemon.wait(expect=0)
        self.start()
        self.assertEqual(self.w.lease(answer.json["lease"]["id"])["status"], "active")
        self.w.settle()

    def test_sigterm_twice(self):
        self.scene()
        waiting = self.acquire_held()
        self.w.daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in self.w.daemon.log(), "it stops")
        self.w.daemon.process.send_signal(signal.SIGTERM)
        self.w.daemon.wait(expect=128 + signal.SIGTERM)
        self.assertIsNone(waiting.answer())
        self.w.untell()
        self.start()
        self.w.settle()
        self.assertEqual(self.w.things(), set())

    def test_client_that_goes_away(self):
        self.scene()
        self.w.tell("hold-open")
        request = (f"POST /api/environments/{self.environment}/leases HTTP/1.1\r\nHost: localhost\r\n"
                   f"Content-Length: 0\r\n\r\n")
        with RawConnection(self.w.daemon.address) as connection:
            connection.send(request)
            wait_until(lambda: self.w.places("state = 'intended'"), "the provider is asked")
        self.w.settle()  # with the provider still holding: the operation was cancelled
        self.assertEqual(self.w.places() + self.w.leases(), [])


class Provider(BadWorld):
    env = {"BERTH_CLOSE_TIMEOUT_MS": "100"}

    def leaks(self, kind):
        return self.w.expect(200, "GET", "/api/leaks")[kind]

    def test_close_fails_for_good(self):
        self.scene()
        lease = self.w.acquire(self.environment)["id"]
        self.w.tell("fail-close")
        released = self.w.release(lease)
        self.assertEqual((released["status"], released["cleanupStatus"]), ("released", "failed"))
        [due] = self.leaks("cleanupDue")
        place = due["placeId"]
        self.assertEqual(self.w.things(), {place})
        self.assertGreaterEqual(due["attempts"], 1)
        self.assertIn("told to fail", due["note"])
        self.assertIn("berth leaks close", due["nextStep"])
        pauses = {}
        for _ in range(5):
            status, _, error = self.w.daemon.cli("leaks", "close", place)
            self.assertEqual(status, 1)
            self.assertIn("told to fail", error)
            [row] = self.w.places()
            pauses[row["attempts"]] = round((row["next_attempt_at"] - row["updated_at"]) / 1e6)
        for attempts, pause in pauses.items():
            self.assertEqual(pause, min(2 ** (attempts - 1), 300), pauses)
        status, listed, _ = self.w.daemon.cli("leaks")
        self.assertEqual(status, 1)
        self.assertIn("clean-up due", listed)
        self.w.untell()
        status, _, error = self.w.daemon.cli("leaks", "close", place)
        self.assertEqual((status, error), (0, ""))
        self.assertEqual(self.w.daemon.cli("leaks")[:2], (0, "no leaks\n"))
        self.assertEqual(self.w.lease(lease)["cleanupStatus"], "success")
        self.w.settle()

    def test_recovers_by_itself(self):
        self.scene()
        self.w.tell("fail-close")
        self.w.release(self.w.acquire(self.environment)["id"])
        self.assertEqual(len(self.leaks("cleanupDue")), 1)
        self.w.untell()
        self.w.settle()
        self.assertEqual(self.w.things(), set())

    def test_close_that_never_answers(self):
        self.scene()
        lease = self.w.acquire(self.environment)["id"]
        self.w.tell("hold-close")
        self.assertEqual(self.w.release(lease)["cleanupStatus"], "failed")
        [due] = self.leaks("cleanupDue")
        self.assertGreaterEqual(due["attempts"], 1)
        wait_until(lambda: self.leaks("cleanupDue")[0]["attempts"] >= 2, "it is tried again")
        self.w.untell()
        self.w.settle()

    def test_open_that_never_answers(self):
        self.w.daemon.env["BERTH_OPERATION_TIMEOUT_MS"] = "200"
        self.scene()
        answer = self.acquire_held(idempotencyKey="k").answer()
        self.assertEqual(answer.status, 504, answer.text)
        self.w.untell()
        self.w.settle()
        self.w.acquire(self.environment, idempotencyKey="k")

    def test_two_leases_of_one_run_at_once(self):
        self.scene(reuseLease=True)
        self.w.acquire(self.environment, heartbeatRunId=RUN_A)
        self.w.tell("hold-resume")
        path = f"/api/environments/{self.environment}/leases"
        waiting = [Waiting(self.w, "POST", path, {"heartbeatRunId": RUN_A}) for _ in range(2)]
        # Both, and the one that asks.
        wait_until(lambda: "\nberth_operations_busy 3\n" in self.w.daemon.req("GET", "/metrics").text, "both joined")
        self.w.untell()
        for one in waiting:
            self.assertEqual(one.answer().status, 201, one.answer().text)
        self.w.settle()
        self.w.do("all", "POST", f"/api/heartbeat-runs/{RUN_A}/release-leases", {})
        self.w.settle()


class Uncertain(BadWorld):
    """Places of which nobody can know. The drivers so far can all look, so the rows are made here."""

    def make(self, driver):
        """One in the world, uncertain, with a driver that may not be there."""
        self.scene()
        self.w.acquire(self.environment)
        [place] = self.w.things()
        self.w.daemon.stop()
        later = int(time.time() + 3600) * 1000000  # not yet the sweeper's
        self.w.edit("DELETE FROM environment_leases")
        self.w.edit("UPDATE places SET state = 'uncertain', note = 'made by hand', driver = ?, next_attempt_at = ?",
                    (driver, later))
        self.start()
        leaks = self.w.expect(200, "GET", "/api/leaks")
        self.assertEqual(leaks["total"], 1)
        [shown] = leaks["uncertain"]
        self.assertEqual((shown["placeId"], shown["state"], shown["note"]), (place, "uncertain", "made by hand"))
        self.assertIn("berth leaks forget", shown["nextStep"])
        status, text, _ = self.w.daemon.cli("leaks")
        self.assertEqual(status, 1)
        self.assertIn("uncertain", text)
        return place

    def test_close(self):
        place = self.make("sandbox")
        self.assertEqual(self.w.daemon.cli("leaks", "close", place)[0], 0)
        self.assertEqual(self.w.things(), set())
        self.w.settle()

    def test_forget(self):
        place = self.make("gone-driver")
        status, _, error = self.w.daemon.cli("leaks", "close", place)
        self.assertEqual(status, 1)
        self.assertIn("gone-driver", error)
        self.assertEqual(self.w.expect(200, "GET", "/api/leaks")["cleanupDue"][0]["placeId"], place)
        self.assertEqual(self.w.daemon.cli("leaks", "forget", place)[0], 0)
        # Forgotten by the record, and then nobody's: that is how it is listed, until somebody removes it.
        self.assertEqual([x["ownerTag"] for x in self.w.expect(200, "GET", "/api/leaks")["unknown"]], [place])
        (self.w.path / place).unlink()
        self.w.settle()

    def test_the_sweeper_settles_what_it_can_find(self):
        self.make("sandbox")
        self.w.daemon.stop()
        self.w.edit("UPDATE places SET next_attempt_at = 0")
        self.start()
        self.w.settle()
        self.assertEqual(self.w.things(), set())

    def test_a_place_in_use_is_not_for_either(self):
        self.scene()
        self.w.acquire(self.environment)
        [place] = self.w.things()
        for action in ("close", "forget"):
            answer = self.w.ask("POST", f"/api/places/{place}/{action}", {})
            self.assertEqual(answer.status, 409)
            self.assertIn("Release its lease instead", answer.error)
        self.w.settle()

    def test_things_that_nobody_knows(self):
        self.scene()
        (self.w.path / RUN_A).touch()
        [unknown] = self.w.expect(200, "GET", "/api/leaks")["unknown"]
        self.assertEqual(unknown["ownerTag"], RUN_A)

    def test_things_that_vanished(self):
        self.scene()
        lease = self.w.acquire(self.environment)["id"]
        [place] = self.w.things()
        (self.w.path / place).unlink()
        [missing] = self.w.expect(200, "GET", "/api/leaks")["missing"]
        self.assertEqual(missing["placeId"], place)
        self.w.release(lease)
        self.w.settle()


class QueueFull(BadWorld):
    env = {"BERTH_OP_THREADS": "1", "BERTH_OP_QUEUE": "1", "BERTH_PEER_THREADS": "1", "BERTH_PEER_QUEUE": "1",
           "BERTH_SWEEP_INTERVAL_MS": "3600000"}

    def test_answers_503_and_never_hangs(self):
        self.scene()
        first = self.acquire_held()
        rest = [Waiting(self.w, "POST", f"/api/environments/{self.environment}/leases", {}) for _ in range(6)]
        wait_until(lambda: sum(bool(x.outcome) for x in rest) == 5, "all but the one that waits are answered")
        refused = [x.outcome[0] for x in rest if x.outcome]
        for answer in refused:
            self.assertEqual(answer.status, 503)
            self.assertEqual(answer.headers["Retry-After"], "1")
            self.assertIn("Too many operations", answer.error)
        self.assertEqual(self.w.ask("GET", "/api/health").status, 200)  # needs no operation
        # Waits for no provider. The one that waits may still be on its way to its lane, with the queue's only seat.
        wait_until(lambda: self.w.ask("GET", f"/api/environments/{self.environment}/leases").status == 200, "reads go on")
        self.w.untell()
        self.assertEqual(first.answer().status, 201)
        self.assertEqual(sorted(x.answer().status for x in rest), [201] + 5 * [503])
        self.w.release_all()
        self.w.settle()

    def test_many_at_once(self):
        self.scene()
        statuses = [Waiting(self.w, "POST", f"/api/environments/{self.environment}/leases", {}) for _ in range(40)]
        statuses = {x.answer().status for x in statuses}
        self.assertLessEqual(statuses, {201, 503})
        self.w.release_all()
        self.w.settle()


if __name__ == "__main__":
    unittest.main()
