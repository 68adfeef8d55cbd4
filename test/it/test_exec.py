"""Executions over HTTP, on the real daemon and the real box: every route, what it answers, and what it refuses."""
# plain: the daemon's memory is measured
# threads: the loop, the operations that wait and the boxes

import base64
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import uuid

from berthtest import PATIENCE, ident, wait_until
from exectest import OPEN, ExecTest, event_bytes, marked, memory_tells, process_state

MIB = 1 << 20
ISO = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"


class AnswerTest(ExecTest):
    def test_what_an_execution_answers(self):
        done = self.sh("echo out; echo err >&2; exit 3")
        self.assertEqual(set(done), {"execId", "exitCode", "signal", "timedOut", "stdout", "stderr", "truncated",
                                     "pid", "startedAt"})
        self.assertEqual((done["exitCode"], done["signal"], done["timedOut"]), (3, None, False))
        self.assertEqual((done["stdout"], done["stderr"], done["truncated"]), ("out\n", "err\n", False))
        self.assertRegex(done["startedAt"], ISO)
        row = self.execution(done["execId"])
        self.assertEqual((row["status"], row["exitCode"], row["pid"]), ("exited", 3, done["pid"]))
        self.assertEqual((row["stdoutBytes"], row["stderrBytes"]), (4, 4))
        self.assertEqual((row["command"], row["args"]), ("/bin/sh", ["-c", "echo out; echo err >&2; exit 3"]))
        self.assertEqual((row["startedAt"], row["tty"], row["incomplete"], row["reason"]),
                         (done["startedAt"], False, False, None))
        self.assertGreaterEqual(row["endedAt"], row["startedAt"])

    def test_exit_codes(self):
        for code in (0, 1, 2, 126, 127, 128, 255):
            self.assertEqual(self.sh(f"exit {code}")["exitCode"], code)

    def test_a_signal_that_ends_it(self):
        for name in ("TERM", "KILL", "SEGV", "USR1"):
            done = self.sh(f"kill -{name} $$; sleep 60")
            self.assertEqual((done["exitCode"], done["signal"], done["timedOut"]), (None, f"SIG{name}", False))

    def test_arguments_arrive_as_they_are(self):
        args = ["", " ", "a b", "$HOME", "*", "'\"\\", "--", "-n", "é\U0001f600", "\n\t\x01", "x" * 100_000]
        done = self.run_ok("/usr/bin/printf", ["%s\\0", *args])
        self.assertEqual(done["stdout"].split("\0")[:-1], args)

    def test_a_command_is_looked_up_in_the_path_it_gets(self):
        folder = self.temp_dir()
        (folder / "hello-there").write_text("#!/bin/sh\necho found\n")
        (folder / "hello-there").chmod(0o755)
        self.assertEqual(self.run_ok("hello-there", env={"PATH": str(folder)})["stdout"], "found\n")
        self.assert_error(self.execute("hello-there"), 422, contains="hello-there")

    def test_no_descriptor_of_ours_gets_in(self):
        done = self.run_ok("/bin/ls", ["/proc/self/fd"])
        self.assertEqual(done["stdout"].split(), ["0", "1", "2", "3"])  # 3 is the directory that is listed

    def test_default_signals_and_a_session_of_its_own(self):
        done = self.sh("sed -n 's/^Sig\\(Ign\\|Blk\\):[[:space:]]*//p' /proc/self/status; cut -d' ' -f1,5,6 /proc/$$/stat")
        blocked, ignored, ids = done["stdout"].split("\n")[:3]
        # 32 and 33 are glibc's own: its posix_spawn leaves them ignored, and nobody else may use them.
        self.assertEqual((int(blocked, 16), int(ignored, 16) & ~(3 << 31)), (0, 0))
        self.assertEqual(set(ids.split()), {str(done["pid"])})

    def test_bytes_that_are_not_text(self):
        """In the answer they are replaced; the raw output has them."""
        done = self.sh(r"printf 'a\377\000b\303\251'")
        self.assertTrue(done["stdout"].startswith("a") and done["stdout"].endswith("\0bé"), done["stdout"])
        self.assertEqual(self.output(done["execId"]), b"a\xff\0b\xc3\xa9")

    def test_no_output(self):
        done = self.run_ok("/bin/true")
        self.assertEqual((done["stdout"], done["stderr"], self.output(done["execId"])), ("", "", b""))


class RefusalTest(ExecTest):
    def assert_recorded_as_failed(self, text):
        row = self.ok("GET", f"/api/environment-leases/{ident(self.held)}/executions")[0]
        self.assertEqual((row["status"], row["pid"], row["startedAt"]), ("failed", None, None))
        self.assertEqual(row["reason"], text)

    def refused(self, *call, contains, **body):
        answer = self.execute(*call, **body)
        self.assert_error(answer, 422, contains=contains)
        self.assert_recorded_as_failed(answer.error)
        detached = self.execute(*call, detach=True, **body)
        self.assert_error(detached, 422, text=answer.error)

    def test_a_command_that_is_not_there(self):
        self.refused("/no/such/thing", contains="/no/such/thing")
        self.refused("no-such-thing-either", contains="no-such-thing-either")

    def test_a_command_that_is_not_executable(self):
        self.refused("/etc/passwd", contains="/etc/passwd")
        self.refused("/etc", contains="/etc")

    def test_a_working_directory_that_is_not_there(self):
        self.refused("/bin/true", cwd="/no/such/directory", contains="working directory")
        self.refused("/bin/true", cwd="/etc/passwd", contains="working directory")

    def test_bodies(self):
        for body in ({}, {"command": ""}, {"command": 5}, {"command": "x", "args": "y"},
                     {"command": "x", "args": [1]}, {"command": "x", "env": []}, {"command": "x", "env": {"A": 1}},
                     {"command": "x", "env": {"A=B": "c"}}, {"command": "x", "env": {"": "c"}},
                     {"command": "x", "timeoutMs": 0}, {"command": "x", "timeoutMs": "1"},
                     {"command": "x", "timeoutMs": 1.5}, {"command": "x", "detach": "yes"},
                     {"command": "x", "tty": True}, {"command": "x", "tty": {"columns": 0}},
                     {"command": "x", "tty": {"columns": 80, "height": 5}}, {"command": "x", "cwd": ""},
                     {"command": "x", "idempotencyKey": ""}, {"command": "x", "idempotencyKey": "k" * 256},
                     {"command": "x", "unknown": 1}, {"command": "x", "stdin": 5},
                     {"command": "x", "args": ["y"] * 4097}):
            answer = self.req("POST", f"/api/environment-leases/{ident(self.held)}/execute", body)
            self.assert_status(answer, 400)
            self.assertTrue(answer.error, body)
        self.assertEqual(self.exec_ids(), [])

    def test_nul_in_strings(self):
        """JSON can say it, no process can have it."""
        for body in ({"command": "/bin/echo\0x"}, {"command": "/bin/echo", "args": ["a\0b"]},
                     {"command": "/bin/echo", "env": {"A": "b\0c"}}, {"command": "/bin/echo", "cwd": "/tmp\0x"}):
            answer = self.req("POST", f"/api/environment-leases/{ident(self.held)}/execute", body)
            self.assert_status(answer, 400)
        self.assertEqual(self.exec_ids(), [])

    def test_sizes(self):
        self.assertEqual(self.run_ok("/bin/true", ["x"] * 4096)["exitCode"], 0)
        self.assertEqual(self.run_ok("/bin/true", ["x" * 100_000] * 15)["exitCode"], 0)
        self.assert_status(self.execute("/bin/true", ["x" * 100_000] * 21), 413)
        # Longer than the kernel takes in one argument, but not than we do altogether.
        self.assert_status(self.execute("/bin/true", ["x" * 131_072]), 413)
        self.assertEqual(self.run_ok("/bin/true", ["x" * 131_071])["exitCode"], 0)
        self.assert_status(self.req("POST", f"/api/environment-leases/{ident(self.held)}/execute",
                                    b'{"command":"' + b"x" * (32 * MIB) + b'"}',
                                    {"Content-Type": "application/json"}), 413)
        self.assertEqual(self.sh("echo alive")["stdout"], "alive\n")

    def test_leases_that_cannot_be_used(self):
        ended = self.acquire(self.local)
        self.release(ended)
        self.assert_status(self.execute("/bin/true", lease=ended), 409)
        expired = self.acquire(self.local, ttlMs=1)
        wait_until(lambda: self.lease(expired)["status"] == "expired", "it expires")
        self.assert_status(self.execute("/bin/true", lease=expired), 409)
        self.assert_status(self.execute("/bin/true", lease=str(uuid.uuid4())), 404)
        self.assert_status(self.execute("/bin/true", lease="x"), 404)

    def test_execution_ids(self):
        other = self.acquire(self.local)
        mine = self.sh("echo mine")["execId"]
        for exec_id, lease in ((mine, other), (str(uuid.uuid4()), None), ("x", None)):
            for method, tail, body in (("GET", "", None), ("GET", "/events", None), ("GET", "/output", None),
                                       ("POST", "/signal", {"signal": "SIGTERM"}), ("POST", "/stdin", b"x"),
                                       ("POST", "/resize", {"columns": 1, "rows": 1})):
                answer = self.req(method, self.path(exec_id, tail, lease), body)
                self.assert_error(answer, 404, text="Execution not found")
        self.assertEqual(self.execution(mine)["execId"], mine)

    def test_queries(self):
        exec_id = self.sh("echo x")["execId"]
        for tail in ("/output?stream=stdin", "/output?offset=-1", "/output?offset=x"):
            self.assert_status(self.req("GET", self.path(exec_id, tail)), 400)
        for last in ("x", "1", "1.x", "1.2.3", "1,2"):
            answer = self.req("GET", self.path(exec_id, "/events"), headers={"Last-Event-ID": last})
            self.assert_status(answer, 400)

    def test_other_drivers(self):
        daemon = self.new_daemon(env={"BERTH_ALLOW_FAKE_PROVIDER": "1"}).start()
        company = daemon.req("POST", "/api/companies", {"name": "Other"}).json["id"]
        env = daemon.req("POST", f"/api/companies/{company}/environments",
                         {"name": "fake", "driver": "sandbox", "config": {"provider": "fake"}}).json["id"]
        lease = daemon.req("POST", f"/api/environments/{env}/leases", {}).json["lease"]["id"]
        answer = daemon.req("POST", f"/api/environment-leases/{lease}/execute", {"command": "true"})
        self.assertEqual(answer.status, 422, answer.body)


class InputTest(ExecTest):
    def test_text(self):
        self.assertEqual(self.run_ok("/bin/cat", stdin="some\ntext é")["stdout"], "some\ntext é")
        self.assertEqual(self.run_ok("/bin/cat", stdin="")["stdout"], "")

    def test_none(self):
        self.assertEqual(self.sh("readlink /proc/self/fd/0; cat")["stdout"], "/dev/null\n")

    def test_a_megabyte(self):
        text = "".join(random.Random(1).choices("abcdefghijklmnop\n", k=MIB))
        done = self.run_ok("/usr/bin/sha256sum", stdin=text)
        self.assertEqual(done["stdout"].split()[0], hashlib.sha256(text.encode()).hexdigest())

    def test_a_command_that_does_not_read(self):
        self.assertEqual(self.sh("exec <&-; echo closed", stdin="x" * MIB)["stdout"], "closed\n")
        self.assertEqual(self.run_ok("/bin/true", stdin="x" * MIB)["exitCode"], 0)

    def test_in_pieces(self):
        exec_id = self.detach("exec cat", openStdin=True)
        for piece in (b"one ", b"", b"two\xff\0 ", b"three"):
            self.assert_status(self.stdin(exec_id, piece), 200)
        self.output_is(exec_id, b"one two\xff\0 three")
        self.assertEqual(self.execution(exec_id)["status"], "running")
        self.assert_status(self.stdin(exec_id, b" end", eof=True), 200)
        self.assertEqual(self.ended(exec_id)["exitCode"], 0)
        self.assertEqual(self.output(exec_id), b"one two\xff\0 three end")

    def test_the_first_text_then_more(self):
        exec_id = self.detach("exec cat", openStdin=True, stdin="first ")
        self.assert_status(self.stdin(exec_id, b"second", eof=True), 200)
        self.ended(exec_id)
        self.assertEqual(self.output(exec_id), b"first second")

    def test_end_alone(self):
        exec_id = self.detach("cat; echo end", openStdin=True)
        self.assert_status(self.stdin(exec_id, b"", eof=True), 200)
        self.ended(exec_id)
        self.assertEqual(self.output(exec_id), b"end\n")

    def test_large_pieces_wait_for_the_command(self):
        """More than the box holds: the request is answered when all of it was taken."""
        exec_id = self.detach("read line; exec sha256sum", openStdin=True)
        data = random.Random(2).randbytes(4 * MIB)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            sent = pool.submit(self.stdin, exec_id, b"go\n" + data, True)
            self.assert_status(sent.result(60), 200)
        self.ended(exec_id)
        self.assertEqual(self.output(exec_id).split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_input_that_nobody_takes(self):
        exec_id = self.detach("sleep 1000", openStdin=True)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            sent = pool.submit(self.stdin, exec_id, b"x" * MIB)
            self.signal(exec_id, "SIGKILL")
            # Refused at the end; or taken and dropped, when the box sees the closed pipe before it sees the death.
            self.assertIn(sent.result(60).status, (200, 409))

    def test_a_writer_that_goes_away(self):
        exec_id = self.detach("read line; cat >/dev/null; echo $line", openStdin=True)
        with self.daemon.raw() as raw:
            raw.send(f"POST {self.path(exec_id, '/stdin')} HTTP/1.1\r\nHost: localhost\r\n"
                     f"Content-Length: {2 * MIB}\r\n\r\n".encode() + b"x" * (2 * MIB))
        self.signal(exec_id, "SIGTERM")
        self.assertEqual(self.ended(exec_id)["signal"], "SIGTERM")

    def test_refusals(self):
        quiet = self.detach("sleep 1000")
        self.assert_status(self.stdin(quiet, b"x"), 409)
        closed = self.detach("cat; sleep 1000", openStdin=True)
        self.assert_status(self.stdin(closed, b"x", eof=True), 200)
        self.assert_status(self.stdin(closed, b"x"), 409)
        given = self.detach("cat; sleep 1000", stdin="x")
        self.assert_status(self.stdin(given, b"x"), 409)
        for exec_id in (quiet, closed, given):
            self.assertEqual(self.execution(exec_id)["status"], "running")
            self.signal(exec_id, "SIGKILL")
            self.ended(exec_id)
            self.assert_status(self.stdin(exec_id, b"x"), 409)


class WhereTest(ExecTest):
    def test_given(self):
        self.assertEqual(self.sh("pwd", cwd="/usr/bin")["stdout"], "/usr/bin\n")

    def test_home_by_default(self):
        self.assertEqual(self.sh("pwd -P")["stdout"], os.path.realpath(os.environ["HOME"]) + "\n")

    def test_the_workspace(self):
        folder = self.temp_dir()
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/realize-workspace",
                {"workspace": {"localPath": str(folder)}})
        self.assertEqual(self.sh("pwd -P")["stdout"], f"{folder.resolve()}\n")
        self.assertEqual(self.sh("pwd", cwd="/")["stdout"], "/\n")
        self.assertEqual(self.execution(self.exec_ids()[0])["cwd"], str(folder))


class EnvironmentTest(ExecTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_LOCAL_ENV": "NAMED_ONE, NAMED_TWO,NOT_SET",
                  "NAMED_ONE": "1 = one", "NAMED_TWO": "two\nlines", "MARKED_SECRET": "s3cret-of-the-daemon",
                  "BERTH_SECRET_KEY": "s3cret-too", "LC_ALL": "C.UTF-8", "LD_PRELOAD": ""}
    INHERITED = ("PATH", "HOME", "USER", "SHELL", "LANG", "TMPDIR")

    def variables(self, **body):
        done = self.run_ok("/usr/bin/env", ["-0"], **body)
        pairs = [p.split("=", 1) for p in done["stdout"].split("\0")[:-1]]
        self.assertEqual(len(pairs), len(dict(pairs)), "a variable twice")
        variables = dict(pairs)
        self.assertEqual(variables.pop("BERTH_EXEC"), done["execId"])
        return variables

    def base(self):
        wanted = {name: os.environ[name] for name in self.INHERITED if name in os.environ}
        return {**wanted, "NAMED_ONE": "1 = one", "NAMED_TWO": "two\nlines"}

    def test_exactly_these(self):
        variables = self.variables()
        self.assertEqual(variables, self.base())
        self.assertNotIn("s3cret", json.dumps(variables))

    def test_the_daemon_has_what_the_command_has_not(self):
        own = pathlib.Path(f"/proc/{self.daemon.process.pid}/environ").read_bytes()
        self.assertIn(b"MARKED_SECRET=s3cret-of-the-daemon", own)
        box = pathlib.Path(f"/proc/{self.box_pid_after_start()}/environ").read_bytes()
        self.assertNotIn(b"s3cret", box)

    def box_pid_after_start(self):
        self.run_ok("/bin/true")
        return self.box_pid()

    def test_who_wins(self):
        self.ok("PATCH", f"/api/environments/{self.local['id']}",
                {"config": {"env": {"NAMED_ONE": "config", "MORE": "config", "BOTH": "config"}}})
        variables = self.variables(env={"BOTH": "request", "PATH": "/request", "EMPTY": ""})
        self.assertEqual(variables, {**self.base(), "NAMED_ONE": "config", "MORE": "config", "BOTH": "request",
                                     "PATH": "/request", "EMPTY": ""})

    def test_the_marker_cannot_be_set(self):
        self.variables(env={"BERTH_EXEC": str(uuid.uuid4())})


class EndTest(ExecTest):
    def test_time_limit(self):
        done = self.sh("echo began; sleep 1000", timeoutMs=1000)
        self.assertEqual((done["timedOut"], done["signal"], done["stdout"]), (True, "SIGTERM", "began\n"))
        self.assertTrue(self.execution(done["execId"])["timedOut"])

    def test_time_limit_that_is_handled(self):
        done = self.sh("trap 'echo caught; exit 7' TERM; echo began; while :; do sleep 0.02; done", timeoutMs=1500)
        self.assertEqual((done["timedOut"], done["exitCode"], done["stdout"]), (True, 7, "began\ncaught\n"))

    def test_time_limit_is_enforced_without_a_daemon(self):
        exec_id = self.detach("echo $$; exec sleep 1000", timeoutMs=500)
        pid = self.execution(exec_id)["pid"]
        self.daemon.kill()
        wait_until(lambda: process_state(pid) in (None, "Z"), "the box ends it")
        self.daemon.start()
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["timedOut"], row["signal"]), ("exited", True, "SIGTERM"))

    def test_a_disconnected_caller_leaves_it_running(self):
        folder = self.temp_dir()
        with self.daemon.raw() as raw:
            body = json.dumps({"command": "/bin/sh", "args": ["-c", f"echo begun; read x < {folder}/go; echo done"]})
            os.mkfifo(folder / "go")
            raw.send(f"POST /api/environment-leases/{ident(self.held)}/execute HTTP/1.1\r\nHost: localhost\r\n"
                     f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}")
            exec_id = wait_until(self.exec_ids, "it is recorded")[0]
            self.output_is(exec_id, b"begun\n")
        wait_until(lambda: self.sh("true")["exitCode"] == 0, "the daemon goes on")
        self.assertEqual(self.execution(exec_id)["status"], "running")
        (folder / "go").write_text("\n")
        self.assertEqual(self.ended(exec_id)["exitCode"], 0)
        self.assertEqual(self.output(exec_id), b"begun\ndone\n")

    def test_signals(self):
        exec_id = self.detach("for s in HUP INT USR1 TERM; do trap \"echo $s\" $s; done; echo ready; "
                              "while :; do sleep 0.01; done")
        self.output_is(exec_id, b"ready\n")
        expected = b"ready\n"
        for name in ("HUP", "INT", "USR1", "TERM"):
            self.signal(exec_id, f"SIG{name}")
            expected += name.encode() + b"\n"
            self.output_is(exec_id, expected)
        self.signal(exec_id, "SIGKILL")
        row = self.ended(exec_id)
        self.assertEqual((row["signal"], row["exitCode"], row["timedOut"]), ("SIGKILL", None, False))
        self.assert_status(self.req("POST", self.path(exec_id, "/signal"), {"signal": "SIGTERM"}), 409)

    def test_signal_names(self):
        exec_id = self.detach("sleep 1000")
        for body in ({"signal": "TERM"}, {"signal": "sigterm"}, {"signal": "SIGNOPE"}, {"signal": 15}, {},
                     {"signal": "SIGTERM", "more": 1}):
            self.assert_status(self.req("POST", self.path(exec_id, "/signal"), body), 400)
        self.assertEqual(self.execution(exec_id)["status"], "running")
        self.signal(exec_id, "SIGTERM")
        self.assertEqual(self.ended(exec_id)["signal"], "SIGTERM")

    def test_release_ends_what_runs(self):
        ids = [self.detach("echo one; exec sleep 1000"), self.detach("trap '' TERM; echo two; while :; do sleep 1; done")]
        quick = self.sh("echo quick")["execId"]
        for exec_id, text in zip(ids, (b"one\n", b"two\n")):
            self.output_is(exec_id, text)
        streams = [self.follow(i) for i in ids]
        self.assertEqual(self.release(self.held)["lease"]["status"], "released")
        for exec_id, name in zip(ids, ("SIGTERM", "SIGKILL")):
            row = self.ended(exec_id)
            self.assertEqual((row["status"], row["signal"]), ("exited", name))
            self.assertEqual(row["reason"], "The lease ended while the command ran.")
        for end, text in zip(streams, (b"one\n", b"two\n")):
            got = end()
            self.assertEqual((got.stdout, got.exit["reason"]), (text, "The lease ended while the command ran."))
        self.assertEqual(marked(ids), [])
        self.assertEqual(self.output(ids[0]), b"one\n")
        self.assertEqual(self.output(quick), b"quick\n")
        self.assertEqual(len(self.ok("GET", f"/api/environment-leases/{ident(self.held)}/executions")), 3)

    def test_release_answers_who_waits(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.execute, "/bin/sh", ["-c", "echo here; exec sleep 1000"])
            exec_id = wait_until(self.exec_ids, "it is recorded")[0]
            self.output_is(exec_id, b"here\n")
            self.release(self.held)
            done = waiting.result(30)
        self.assert_status(done, 200)
        self.assertEqual((done.json["signal"], done.json["stdout"]), ("SIGTERM", "here\n"))
        self.assertEqual(done.json["metadata"]["reason"], "The lease ended while the command ran.")

    def test_an_expired_lease_ends_what_runs(self):
        lease = self.acquire(self.local, ttlMs=1500)
        exec_id = self.detach("exec sleep 1000", lease=lease)
        row = self.ended(exec_id, lease)
        self.assertEqual((row["status"], row["signal"]), ("exited", "SIGTERM"))
        wait_until(lambda: self.lease(lease)["status"] == "expired", "the lease says so")


class IdempotencyTest(ExecTest):
    def test_the_same_key_is_the_same_execution(self):
        folder = self.temp_dir()
        script = f"echo x >> {folder}/ran; echo out"
        first = self.sh(script, idempotencyKey="k")
        again = self.sh(script, idempotencyKey="k")
        self.assertEqual(again, first)
        self.assertEqual(self.detach_answer(script, "k"), first["execId"])
        other = self.sh(script, idempotencyKey="l")
        self.assertNotEqual(other["execId"], first["execId"])
        self.assertEqual((folder / "ran").read_text(), "x\nx\n")

    def detach_answer(self, script, key):
        answer = self.execute("/bin/sh", ["-c", script], detach=True, idempotencyKey=key)
        self.assertIn(answer.status, (200, 202))
        return answer.json["execId"]

    def test_all_at_once(self):
        """Also while the supervisor is only being started."""
        for _ in range(5):
            lease = self.acquire(self.local)
            folder = self.temp_dir()
            body = {"lease": lease, "idempotencyKey": "k"}
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                answers = [f.result(60) for f in [pool.submit(
                    self.sh, f"echo x >> {folder}/ran; sleep 0.05; echo out; exit 5", **body) for _ in range(12)]]
            self.assertEqual((folder / "ran").read_text(), "x\n")
            for answer in answers:
                self.assertEqual((answer["exitCode"], answer["stdout"]), (5, "out\n"))
            self.assertEqual(len({a["execId"] for a in answers}), 1)

    def test_keys_are_of_one_lease(self):
        other = self.acquire(self.local)
        self.assertNotEqual(self.sh("true", idempotencyKey="k")["execId"],
                            self.sh("true", idempotencyKey="k", lease=other)["execId"])

    def test_while_it_runs_and_after_a_restart(self):
        exec_id = self.detach("read x; echo $x", openStdin=True, idempotencyKey="k")
        self.daemon.restart(crash=True)
        self.assertEqual(self.detach_answer("read x; echo $x", "k"), exec_id)
        self.signal(exec_id, "SIGKILL")
        self.ended(exec_id)
        self.assertEqual(self.sh("read x; echo $x", idempotencyKey="k")["signal"], "SIGKILL")

    def test_a_failed_start(self):
        for _ in range(2):
            self.assert_error(self.execute("/no/such", idempotencyKey="k"), 422, contains="/no/such")
        self.assertEqual(len(self.exec_ids()), 1)


class ListTest(ExecTest):
    def list(self, query="", lease=None):
        return self.req("GET", f"/api/environment-leases/{ident(lease or self.held)}/executions{query}")

    def test_pages(self):
        ids = [self.run_ok("/bin/true")["execId"] for _ in range(7)][::-1]
        self.assertEqual([e["execId"] for e in self.list().json], ids)
        for limit in (1, 2, 3, 6, 7, 8):
            got, cursor, pages = [], "", 0
            while True:
                page = self.list(f"?limit={limit}{cursor}")
                self.assert_status(page, 200)
                self.assertLessEqual(len(page.json), limit)
                got += [e["execId"] for e in page.json]
                pages += 1
                if "X-Next-Cursor" not in page.headers:
                    break
                cursor = "&cursor=" + page.headers["X-Next-Cursor"]
            self.assertEqual(got, ids)
            self.assertEqual(pages, -(-7 // limit))
        for query in ("?limit=0", "?limit=501", "?limit=x", "?cursor=x", "?cursor=1.x"):
            self.assert_status(self.list(query), 400)

    def test_live_values(self):
        exec_id = self.detach("printf 12345; printf 123 >&2; exec sleep 1000")
        self.output_is(exec_id, b"123", "stderr")
        (row,) = self.list().json
        self.assertEqual((row["status"], row["stdoutBytes"], row["stderrBytes"]), ("running", 5, 3))
        self.assertEqual((row["endedAt"], row["exitCode"], row["signal"]), (None, None, None))
        self.assertIn(row["killMethod"], ("cgroup", "subreaper"))
        self.assertEqual(self.list(lease=self.acquire(self.local)).json, [])


class OutputTest(ExecTest):
    def test_from_every_offset(self):
        text = "grüße \U0001f600 ".encode() + b"\xff\xfe\0\x80 end"
        octal = "".join(f"\\{b:03o}" for b in text)
        exec_id = self.sh(f"printf '{octal}'; printf '{octal}' >&2")["execId"]
        for stream in ("stdout", "stderr"):
            for offset in range(len(text) + 3):
                self.assertEqual(self.output(exec_id, stream, offset), text[offset:])
        for out in range(len(text) + 1):
            err = len(text) - out
            got = {"stdout": b"", "stderr": b""}
            with self.events(exec_id, f"{out}.{err}") as stream:
                events = list(stream)
            for event in events[:-1]:
                self.assertEqual(event.json["offset"], {"stdout": out, "stderr": err}[event.type] + len(got[event.type]))
                got[event.type] += event_bytes(event)
            self.assertEqual(got, {"stdout": text[out:], "stderr": text[err:]})
            self.assertEqual((events[-1].type, events[-1].json["exitCode"]), ("exit", 0))
            self.assertEqual(events[-1].id, f"{len(text)}.{len(text)}")

    def test_the_exit_event(self):
        exec_id = self.sh("echo out; exit 4")["execId"]
        with self.events(exec_id) as stream:
            self.assertEqual(stream.headers["Content-Type"], "text/event-stream; charset=utf-8")
            events = list(stream)
        self.assertEqual([(e.type, e.json, e.id) for e in events],
                         [("stdout", {"offset": 0, "data": "out\n", "encoding": "utf8"}, "4.0"),
                          ("exit", {"exitCode": 4, "signal": None, "timedOut": False, "status": "exited"}, "4.0")])

    def test_characters_cut_in_two(self):
        """A character arrives whole, however it was written; what is none arrives at once."""
        folder = self.temp_dir()
        os.mkfifo(folder / "go")
        exec_id = self.detach(f"exec 3<{folder}/go; printf 'a\\303'; read x <&3; printf '\\251\\360\\237'; read x <&3; "
                              f"printf '\\230\\200'; read x <&3; printf '\\377'; read x <&3; printf '\\342'")
        with self.events(exec_id) as stream, open(folder / "go", "w", buffering=1) as go:
            self.assertEqual(stream.next().json, {"offset": 0, "data": "a", "encoding": "utf8"})
            go.write("\n")
            self.assertEqual(stream.next().json, {"offset": 1, "data": "é", "encoding": "utf8"})
            go.write("\n")
            self.assertEqual(stream.next().json, {"offset": 3, "data": "\U0001f600", "encoding": "utf8"})
            go.write("\n")
            self.assertEqual(stream.next().json,
                             {"offset": 7, "data": base64.b64encode(b"\xff").decode(), "encoding": "base64"})
            go.write("\n")
            self.assertEqual(stream.next().json,
                             {"offset": 8, "data": base64.b64encode(b"\xe2").decode(), "encoding": "base64"})
            self.assertEqual(stream.next().type, "exit")

    def test_follow(self):
        exec_id = self.detach("echo one; read x; echo $x", openStdin=True)
        with self.daemon.raw() as raw:
            raw.send(f"GET {self.path(exec_id, '/output?stream=stdout&follow=1&offset=1')} HTTP/1.1\r\n"
                     f"Host: localhost\r\n\r\n")
            self.output_is(exec_id, b"one\n")
            self.assert_status(self.stdin(exec_id, b"two\n", eof=True), 200)
            self.assertEqual(raw.response().body, b"ne\ntwo\n")
        # Without it: what there is now.
        running = self.detach("echo now; exec sleep 1000")
        self.output_is(running, b"now\n")

    def test_head_does_not_follow(self):
        """It has its answer at once, and the connection is there for the next request."""
        exec_id = self.detach("exec sleep 1000")
        for tail in ("/events", "/output?follow=1"):
            connection = http.client.HTTPConnection(*self.daemon.address, timeout=10 * PATIENCE)
            with contextlib.closing(connection):
                connection.request("HEAD", self.path(exec_id, tail))
                self.assertEqual(connection.getresponse().read(), b"")
                connection.request("GET", "/api/health")
                self.assertEqual(connection.getresponse().status, 200)

    def test_many_watch_one(self):
        exec_id = self.detach("read x; seq 20000; seq 5 >&2", openStdin=True)
        ends = [self.follow(exec_id) for _ in range(20)]
        self.assert_status(self.stdin(exec_id, b"go\n"), 200)
        wanted = "".join(f"{i}\n" for i in range(1, 20001)).encode()
        for end in ends:
            got = end()
            self.assertEqual(got.stdout, wanted)
            self.assertEqual((got.stderr, got.exit["exitCode"]), (b"1\n2\n3\n4\n5\n", 0))

    def test_a_watcher_that_does_not_read(self):
        """It holds up neither the command nor the others, and the daemon's memory stays."""
        exec_id = self.detach("read x; head -c 30000000 /dev/zero; echo >&2", openStdin=True)
        with self.daemon.raw() as lazy:
            lazy.send(f"GET {self.path(exec_id, '/events')} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            before = self.daemon.rss_kb()
            self.assert_status(self.stdin(exec_id, b"go\n"), 200)
            self.assertEqual(self.ended(exec_id)["stdoutBytes"], 30_000_000)
            if memory_tells():
                self.assertLess(self.daemon.rss_kb() - before, 16 * 1024)

    def test_sixty_four_megabytes(self):
        """Byte-exact over both ways, with the daemon's memory bounded."""
        size, total = 64 * MIB, self.temp_dir() / "sum"
        self.sh("true")
        before = self.daemon.rss_kb()
        exec_id = self.detach(f"head -c {size} /dev/urandom | tee {total}.raw; sha256sum < {total}.raw > {total}; rm {total}.raw")
        digest, at, peak = hashlib.sha256(), 0, 0
        with self.events(exec_id) as stream:
            for event in stream:
                if event.type != "stdout":
                    break
                self.assertEqual(event.json["offset"], at)
                data = event_bytes(event)
                at += len(data)
                digest.update(data)
                peak = max(peak, self.daemon.rss_kb())
        wanted = total.read_text().split()[0]
        self.assertEqual((at, digest.hexdigest()), (size, wanted))
        raw = hashlib.sha256(self.output(exec_id)).hexdigest()
        self.assertEqual(raw, wanted)
        peak = max(peak, self.daemon.rss_kb())
        if memory_tells():
            self.assertLess(peak - before, 24 * 1024, "KB that the daemon grew")

    def test_truncated_in_the_answer(self):
        limit = 16 * MIB
        done = self.sh(f"head -c {limit} /dev/zero | tr '\\0' x")
        self.assertEqual((len(done["stdout"]), done["truncated"]), (limit, False))
        done = self.sh(f"head -c {limit + 1} /dev/zero | tr '\\0' x; echo err >&2")
        self.assertEqual((len(done["stdout"]), done["stderr"], done["truncated"]), (limit, "err\n", True))
        self.assertEqual(len(self.output(done["execId"])), limit + 1)

    def test_the_largest_answer(self):
        """Both streams full of what JSON writes with six characters."""
        limit = 16 * MIB
        done = self.sh(f"head -c {limit} /dev/zero | tr '\\0' '\\1' | tee /dev/stderr")
        self.assertEqual((len(done["stdout"]), len(done["stderr"])), (limit, limit))
        self.assertEqual(set(done["stdout"]) | set(done["stderr"]), {"\1"})


class TerminalTest(ExecTest):
    def test_size_and_resize(self):
        exec_id = self.detach("trap 'stty size' WINCH; stty size; while :; do sleep 0.01; done",
                              tty={"columns": 100, "rows": 30})
        self.output_is(exec_id, b"30 100\r\n")
        self.assertTrue(self.execution(exec_id)["tty"])
        self.ok("POST", self.path(exec_id, "/resize"), {"columns": 121, "rows": 41})
        self.output_is(exec_id, b"30 100\r\n41 121\r\n")
        for body in ({}, {"columns": 1}, {"columns": 0, "rows": 1}, {"columns": 10000, "rows": 1},
                     {"columns": 1, "rows": 1, "more": 1}):
            self.assert_status(self.req("POST", self.path(exec_id, "/resize"), body), 400)
        self.signal(exec_id, "SIGKILL")
        self.ended(exec_id)
        self.assert_status(self.req("POST", self.path(exec_id, "/resize"), {"columns": 1, "rows": 1}), 409)

    def test_input_and_its_end(self):
        exec_id = self.detach("stty -echo; echo ready; cat; echo end; tty", tty={})
        self.output_is(exec_id, b"ready\r\n")
        self.assert_status(self.stdin(exec_id, b"hello\n"), 200)
        self.output_is(exec_id, b"ready\r\nhello\r\n")
        self.assert_status(self.stdin(exec_id, b"", eof=True), 200)
        self.assertEqual(self.ended(exec_id)["exitCode"], 0)
        self.assertRegex(self.output(exec_id), rb"^ready\r\nhello\r\nend\r\n/dev/pts/\d+\r\n$")

    def test_the_default_size_and_control_c(self):
        exec_id = self.detach("stty size; exec sleep 1000", tty={})
        self.output_is(exec_id, b"24 80\r\n")
        self.assert_status(self.stdin(exec_id, b"\x03"), 200)
        self.assertEqual(self.ended(exec_id)["signal"], "SIGINT")


class RestartTest(ExecTest):
    def test_output_goes_on_over_a_restart(self):
        """Orderly and not; the subscriber comes back with the last id it saw."""
        exec_id = self.detach("i=0; while read x; do i=$((i+1)); echo out $i; echo err $i >&2; done", openStdin=True)
        got = {"stdout": b"", "stderr": b""}
        last = None
        for i in range(1, 5):
            self.assert_status(self.stdin(exec_id, b"\n"), 200)
            wanted = {"stdout": f"out {i}\n".encode(), "stderr": f"err {i}\n".encode()}
            with self.events(exec_id, last) as stream:
                while not all(got[s].endswith(wanted[s]) for s in wanted):
                    event = stream.next()
                    self.assertEqual(event.json["offset"], len(got[event.type]))
                    got[event.type] += event_bytes(event)
                    last = event.id
            self.daemon.restart(crash=i % 2 == 0)
            self.assertEqual(self.execution(exec_id)["status"], "running")
        self.assert_status(self.stdin(exec_id, b"", eof=True), 200)
        self.assertEqual(self.ended(exec_id)["exitCode"], 0)
        self.assertEqual(self.output(exec_id), b"".join(b"out %d\n" % i for i in range(1, 5)))
        self.assertEqual(got["stdout"], self.output(exec_id))
        self.assertEqual(got["stderr"], self.output(exec_id, "stderr"))

    def test_an_end_while_nobody_was_there(self):
        folder = self.temp_dir()
        os.mkfifo(folder / "go")
        exec_id = self.detach(f"read x < {folder}/go; echo done; exit 9")
        pid = self.execution(exec_id)["pid"]
        self.daemon.stop()
        (folder / "go").write_text("\n")
        wait_until(lambda: process_state(pid) is None, "it ends")
        self.daemon.start()
        row = self.ended(exec_id)
        self.assertEqual((row["status"], row["exitCode"], row["stdoutBytes"]), ("exited", 9, 5))
        self.assertEqual(self.collect(exec_id).stdout, b"done\n")

    def test_input_that_was_closed_before_the_restart(self):
        """The new daemon finds out; the execution and its connection are not disturbed."""
        closed = self.detach("cat; exec sleep 1000", openStdin=True)
        self.assert_status(self.stdin(closed, b"x", eof=True), 200)
        without = self.detach("exec sleep 1000")
        is_open = self.detach("exec cat", openStdin=True)
        self.daemon.restart(crash=True)
        for exec_id in (closed, without):
            for data, eof in ((b"", True), (b"more", False), (b"more", True)):
                self.assert_status(self.stdin(exec_id, data, eof), 409)
            self.assertEqual(self.execution(exec_id)["status"], "running")
            self.signal(exec_id, "SIGTERM")
            self.assertEqual(self.ended(exec_id)["signal"], "SIGTERM")
        self.assert_status(self.stdin(is_open, b"more", eof=True), 200)
        self.assertEqual(self.ended(is_open)["exitCode"], 0)
        self.assertEqual(self.output(is_open), b"more")
        self.assertNotIn("a box reported an error", self.daemon.log())
