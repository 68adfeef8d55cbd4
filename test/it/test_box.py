"""berth-box over its protocol: connections, starting, output, input, terminals, robustness (docs/box-protocol.md)."""

import signal
import os
import pathlib
import random
import resource
import stat
import struct
import subprocess
import unittest
import uuid as uuids
import zlib

from berthtest import wait_until
from boxproto import (ACK, CONT, DATA, DROP, ERROR, EXIT, FAILED, GREW, HELLO, INCOMPLETE, LIST, LISTED, OPEN_STDIN, OUTPUT_LIMIT, PATH,
                      PING, PONG, RESIZE, SHARED, START, STARTED, STATE, STDERR, STDIN, STDOUT, STOPPED_BY_BOX, TAKEN, TERMINAL,
                      WAIT, WELCOME, Box, Closed, frame, header, parse_data, parse_error, parse_exit, parse_state,
                      process_lives, start_payload)

STALE, MALFORMED, UNKNOWN, FULL, NOT_FOUND, REFUSED, BAD_CWD, SPOOL = 2, 3, 4, 5, 6, 7, 8, 10


class BoxTest(unittest.TestCase):
    def box(self, *flags, **more):
        return Box(self, *flags, **more)

    def assert_ends(self, host, code, channel=0):
        """The box answers with this error and closes the connection."""
        f = host.wait(channel, ERROR)
        self.assertEqual(parse_error(f.payload)[0], code, parse_error(f.payload))
        with self.assertRaises(Closed):
            while True:
                host.next()

    def assert_error(self, host, channel, code):
        self.assertEqual(parse_error(host.wait(channel, ERROR, FAILED).payload)[0], code)

    def wait_for_state(self, host, exec_id, condition, what):
        found = []

        def look():
            found[:] = [s for s in host.list() if s.id == exec_id]
            return found and condition(found[0])
        wait_until(look, what, 30)
        return found[0]


class CommandLineTest(BoxTest):
    def test_version(self):
        done = subprocess.run([self.box(start=False).binary, "--version"], capture_output=True, check=True)
        self.assertRegex(done.stdout.decode(), r"^berth-box \d+\.\d+\.\d+ protocol 1\n$")

    def test_wrong_usage(self):
        box = self.box("--spool-limit", "many", start=False)
        status, out, _ = box.launch()
        self.assertEqual((status, out), (2, "error --spool-limit: not a number\n"))
        box.flags, box.id = [], "nonsense"
        self.assertEqual(box.launch()[0], 2)
        self.assertFalse(box.dir.exists())

    def test_its_directory_is_private(self):
        box = self.box()
        self.assertEqual(stat.S_IMODE(box.dir.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE((box.dir / "box.sock").stat().st_mode), 0o600)
        self.assertEqual((box.dir / "pid").read_text().split()[0], str(box.pid))

    def test_one_box_per_directory(self):
        box = self.box()
        host = box.connect()
        status, out, _ = box.launch()
        self.assertEqual((status, out), (1, f"error another box runs in {box.dir}\n"))
        host.ping()

    def test_a_path_longer_than_an_address(self):
        box = self.box(start=False)
        box.dir = box.base / ("d" * 100) / ("e" * 100)
        box.dir.parent.mkdir()
        box.start()
        self.assertEqual(box.connect().run("echo", ["far"])[0], b"far\n")

    def test_a_directory_that_cannot_be_made(self):
        box = self.box(start=False)
        box.dir = box.base / "missing" / "box"
        status, out, _ = box.launch()
        self.assertEqual(status, 1)
        self.assertTrue(out.startswith("error create "), out)

    def test_it_keeps_nothing_of_its_caller(self):
        box = self.box(start=False)
        reader, writer = os.pipe()
        done = subprocess.run([box.binary, "--dir", str(box.dir), "--id", str(box.id)], pass_fds=[writer],
                              env={"SECRET": "swordfish"}, capture_output=True, check=True)
        box.pid = int(done.stdout.split()[1])
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            self.assertEqual(pipe.read(), b"")  # ends only when the box does not hold the other end
        try:
            self.assertNotIn(b"swordfish", pathlib.Path(f"/proc/{box.pid}/environ").read_bytes())
        except PermissionError:
            self.assertNotEqual(os.getuid(), 0)  # its user may not even look
        self.assertNotEqual(os.getsid(box.pid), os.getsid(0))


class ConnectionTest(BoxTest):
    def test_welcome(self):
        box = self.box("--spool-limit", "123456")
        host = box.connect()
        w = host.welcome
        self.assertEqual((w.version, w.features, w.box, w.pid, w.limit, w.executions),
                         (1, 1 | 2 | 4 | 8 | 16 | 32 | 64, box.id, box.pid, 123456, 0))
        self.assertEqual(w.kill, box.kill_method)
        host.run("true")
        self.assertEqual(box.connect().welcome.executions, 1)

    def test_versions(self):
        box = self.box()
        host = box.host()
        self.assertEqual(parse_error(host.hello(low=2, high=9).payload)[0], 1)
        with self.assertRaises(Closed):
            host.next()
        self.assertEqual(box.host().hello(low=0, high=9).type, WELCOME)

    def test_what_is_no_hello(self):
        box = self.box()
        good = box.connect()
        for first in (frame(PING, 0, bytes(8)), frame(LIST), frame(CONT, 1, b"x"), frame(HELLO, 1, bytes(32)),
                      frame(HELLO, 0, b"HTTP" + bytes(28)), frame(HELLO, 0, b"BRTH"), b"GET / HTTP/1.1\r\n\r\n",
                      frame(HELLO, 0, b"BRTH" + struct.pack(">HH", 2, 1) + bytes(24))):
            host = box.host()
            host.raw(first)
            f = host.next()
            self.assertEqual((f.type, parse_error(f.payload)[0]), (ERROR, MALFORMED), first)
            with self.assertRaises(Closed):
                host.next()
        good.ping()

    def test_a_second_hello_is_an_error(self):
        host = self.box().connect()
        host.send(HELLO, 0, b"BRTH" + struct.pack(">HH", 1, 1) + bytes(16) + struct.pack(">Q", 1))
        self.assert_ends(host, MALFORMED)

    def test_the_newest_host_takes_over(self):
        box = self.box()
        first = box.connect(epoch=5)
        silent = box.host()
        first.ping()
        second = box.connect(epoch=5)
        self.assert_ends(first, STALE)
        third = box.host()
        self.assertEqual(parse_error(third.hello(epoch=4).payload)[0], STALE)
        second.ping()
        fourth = box.connect(epoch=6)
        self.assert_ends(second, STALE)
        fourth.ping()
        silent.close()
        fourth.ping()

    def test_silent_connections_do_not_lock_anybody_out(self):
        box = self.box()
        host = box.connect()
        silent = [box.host() for _ in range(40)]
        host.ping()
        self.assertEqual(box.connect().run("echo", ["in"])[0], b"in\n")
        self.assertEqual(len(silent), 40)

    def test_a_silent_connection_is_closed(self):
        host = self.box().host()
        with self.assertRaises(Closed):
            host.next()

    def test_ping_goes_byte_by_byte(self):
        host = self.box().connect()
        for byte in frame(PING, 0, struct.pack(">Q", 7)):
            host.raw(bytes([byte]))
        self.assertEqual(host.next(), (PONG, 0, struct.pack(">Q", 7)))

    def test_malformed_frames_end_the_connection_and_nothing_else(self):
        box = self.box()
        host = box.connect()
        exec_id = uuids.uuid4()
        host.started(host.start("sleep", ["1000"], exec_id=exec_id))
        good = start_payload(uuids.uuid4(), "true")
        bad = [
            struct.pack(">IBBHI", 65537, PING, 0, 0, 0), struct.pack(">IBBHI", 8, PING, 1, 0, 0) + bytes(8),
            struct.pack(">IBBHI", 8, PING, 0, 1, 0) + bytes(8), frame(PING, 0, bytes(7)), frame(PING, 0, bytes(9)),
            frame(0), frame(255), frame(99, 3), frame(LISTED, 0, bytes(4)), frame(STATE, 3), frame(DATA, 3), frame(LIST, 3),
            frame(START, 0, good), frame(START, 9, good[:-1]), frame(START, 9, good + b"\0"), frame(START, 9),
            frame(START, 9, start_payload(uuids.uuid4(), "true", flags=8)),
            frame(START, 9, start_payload(uuids.uuid4(), "true", flags=SHARED, spool="relative")),
            frame(START, 9, start_payload(uuids.uuid4(), "true", spool="/tmp/x")),
            frame(START, 9, start_payload(uuids.uuid4(), "tr\0ue")),
            frame(START, 9, start_payload(uuids.uuid4(), "x" * 131073)),
            frame(START, 9, start_payload(uuids.uuid4(), "true")[:-20] + struct.pack(">I", 0xffffffff)),
            frame(CONT, 9, b"x") + frame(PING, 0, bytes(8)), frame(CONT, 9, b"x") + frame(START, 8, good),
            frame(CONT, 9, b"x") + frame(ACK, 9, bytes(17)), frame(CONT, 9, bytes(65536)) * 65,
        ]
        for data in bad:
            host = box.connect()
            try:
                host.raw(data)
            except Closed:
                pass  # it need not read all of it
            f = host.next()
            self.assertEqual((f.type, parse_error(f.payload)[0]), (ERROR, MALFORMED), data[:40])
            with self.assertRaises(Closed):
                host.next()
        state = box.connect().list()
        self.assertEqual([(s.id, s.state) for s in state], [(exec_id, 1)])

    def test_random_bytes(self):
        box = self.box()
        source = random.Random(20260510)
        for _ in range(300):
            host = box.connect()
            data = bytearray()
            for _ in range(source.randrange(1, 6)):
                payload = source.randbytes(source.choice((0, 1, 4, 8, 17, 40, 200)))
                data += header(source.randrange(0, 64), source.randrange(0, 3), len(payload)) + payload
            if source.random() < 0.5:
                data[source.randrange(len(data))] ^= 1 << source.randrange(8)
            try:
                host.raw(bytes(data))
            except Closed:
                pass
            host.close()
            if not box.alive():
                self.fail(f"the box is gone after {bytes(data)!r}")
            if pathlib.Path(box.path).exists() is False:  # STOP is a frame like any other
                box.wait_gone()
                box.start()
        box.wait_gone() if not os.path.exists(box.path) else box.connect().ping()

    def test_unknown_channels_are_answered_and_ignored(self):
        host = self.box().connect()
        channel = host.start("no-such-command")
        host.ack(channel, STDOUT, 0)
        host.signal(channel, 15)
        self.assert_error(host, channel, NOT_FOUND)
        host.forget(77)
        self.assert_error(host, 77, UNKNOWN)
        host.send(18, 78, uuids.uuid4().bytes)
        self.assert_error(host, 78, UNKNOWN)
        host.ping()

    def test_a_host_that_does_not_read(self):
        box = self.box()
        host = box.connect()
        exec_id = uuids.uuid4()
        channel = host.start("head", ["-c", "30000000", "/dev/zero"], exec_id=exec_id)
        host.open_output(channel)
        second = box.connect(epoch=2)
        state = self.wait_for_state(second, exec_id, lambda s: s.state == 2, "the command is done")
        self.assertEqual(state.out, 30000000)
        second.send(PING, 0, bytes(8))
        rss = int(pathlib.Path(f"/proc/{box.pid}/statm").read_text().split()[1]) * resource.getpagesize()
        self.assertLess(rss, 16 << 20)


class StartTest(BoxTest):
    def setUp(self):
        self.started_box = self.box()
        self.host = self.started_box.connect()

    def test_exit_codes_and_signals(self):
        for script, code, number in (("exit 0", 0, 0), ("exit 1", 1, 0), ("exit 255", 255, 0), ("kill -TERM $$", -1, 15),
                                     ("kill -KILL $$", -1, 9)):
            _, _, end = self.host.run_shell(script)
            self.assertEqual((end.code, end.signal, end.flags), (code, number, 0), script)

    def test_both_streams(self):
        out, err, end = self.host.run_shell("echo one; echo two >&2; echo three")
        self.assertEqual((out, err, end.out, end.err), (b"one\nthree\n", b"two\n", 10, 4))

    def test_values_are_replaced_before_they_are_spooled(self):
        box, value = self.started_box, "hunter2-marked-value"
        # in one write, byte by byte, on both streams, a beginning that is none at the end, and one per line
        script = ('printf "a %s b" "$V"; for c in $(printf %s "$V" | sed "s/./& /g"); do printf %s "$c"; done; '
                  'printf "<%s>" "$V" >&2; printf hunter2-mark; grep -rl "$V" "$D" || printf " nowhere"')
        with self.subTest("own spool"):
            ch = self.host.shell(script, env={"PATH": PATH, "V": value, "D": str(box.dir)}, redact=[value])
            self.host.started(ch)
            out, err, end = self.host.collect(ch)
            self.assertEqual((out, err), (b"a ***REDACTED*** b***REDACTED***hunter2-mark nowhere", b"<***REDACTED***>"))
            self.assertEqual((end.out, end.err, end.flags), (len(out), len(err), 0))
            self.host.forget(ch)
        with self.subTest("shared spool"):
            spool = box.dir / "host"
            ch = self.host.shell(script, env={"PATH": PATH, "V": value, "D": str(box.dir)}, redact=[value, "x"],
                                 flags=SHARED, spool=str(spool))
            self.host.wait(ch, EXIT)
            self.assertEqual((spool / "stdout").read_bytes(), b"a ***REDACTED*** b***REDACTED***hunter2-mark nowhere")
            self.host.forget(ch)
        with self.subTest("a terminal"):
            key = "line-one-of-a-key\nline-two-of-a-key\n"
            ch = self.host.shell('printf "%s" "$V"', env={"PATH": PATH, "V": key}, redact=[key], flags=TERMINAL)
            self.host.started(ch)
            self.assertEqual(self.host.collect(ch)[0], b"***REDACTED***\r\n***REDACTED***\r\n")

    def test_values_past_their_limit_are_refused(self):
        ch = self.host.start("true", redact=["x" * 100_000] * 11)
        code, text = parse_error(self.host.wait(ch, FAILED).payload)
        self.assertEqual((code, text), (9, "too many values to replace"))
        self.assertEqual(self.host.run("true")[2].code, 0)

    def test_the_environment_is_exact(self):
        exec_id = uuids.uuid4()
        out, _, _ = self.host.run("/usr/bin/env", exec_id=exec_id, env={"A": "1", "BERTH_EXEC": "forged", "B": "x=y\nz"})
        self.assertEqual(out, f"BERTH_EXEC={exec_id}\nA=1\nB=x=y\nz\n".encode())

    def test_arguments_are_exact(self):
        args = ["", "a b", "'\"\\", "ä\n", "-n"]
        out, _, _ = self.host.run("/usr/bin/printf", ["%s|", *args])
        self.assertEqual(out.decode(), "".join(f"{a}|" for a in args))

    def test_large_arguments(self):
        args = [str(i) * (100_000 // len(str(i))) for i in range(10, 25)]
        out, _, end = self.host.run("/usr/bin/printf", ["%s\n", *args])
        self.assertEqual((end.code, out.decode().split()), (0, args))

    def test_the_longest_argument(self):
        out, _, _ = self.host.run("/usr/bin/printf", ["%s", "x" * 131071])
        self.assertEqual(len(out), 131071)
        self.assert_error(self.host, self.host.start("true", ["x" * 131072]), REFUSED)  # Linux counts the NUL

    def test_what_cannot_start(self):
        folder = self.started_box.base
        plain = folder / "plain"
        plain.write_text("echo no\n")
        script = folder / "script"
        script.write_text("no format\n")
        script.chmod(0o755)
        for command, more, code in (
                ("no-such-command", {}, NOT_FOUND), ("/no/such/file", {}, NOT_FOUND), ("", {}, NOT_FOUND),
                (str(plain), {}, REFUSED), (str(folder), {}, REFUSED), (str(script), {}, REFUSED),
                ("plain", {"env": {"PATH": f"/nowhere:{folder}"}}, REFUSED), ("true", {"env": {"PATH": "/nowhere"}}, NOT_FOUND),
                ("true", {"cwd": "/nowhere"}, BAD_CWD), ("true", {"cwd": str(plain)}, BAD_CWD)):
            exec_id = uuids.uuid4()
            channel = self.host.start(command, exec_id=exec_id, **more)
            self.assert_error(self.host, channel, code)
            self.assertEqual(list((self.started_box.dir / "spool").iterdir()), [])
        self.assertEqual(self.host.list(), [])

    def test_an_id_that_failed_is_free(self):
        exec_id = uuids.uuid4()
        self.assert_error(self.host, self.host.start("no-such-command", exec_id=exec_id), NOT_FOUND)
        self.assertEqual(self.host.run("echo", ["now"], exec_id=exec_id)[0], b"now\n")

    def test_working_directory_and_path(self):
        folder = self.started_box.base
        tool = folder / "tool"
        tool.write_text("#!/bin/sh\npwd\n")
        tool.chmod(0o755)
        self.assertEqual(self.host.run("tool", env={"PATH": f"/nowhere:{folder}:/bin"})[0], b"/\n")
        self.assertEqual(self.host.run("./tool", cwd=str(folder), env={"PATH": "/bin"})[0], f"{folder}\n".encode())
        self.assertEqual(self.host.run("tool", cwd=str(folder), env={"PATH": ""})[0], f"{folder}\n".encode())
        self.assertEqual(self.host.run("true", env={})[2].code, 0)

    def test_a_clean_process(self):
        out, _, _ = self.host.run("ls", ["/proc/self/fd"])
        self.assertEqual(out.split(), [b"0", b"1", b"2", b"3"])  # 3 is its own
        out, _, _ = self.host.run_shell("grep -E 'Sig(Blk|Ign)' /proc/self/status; cut -d' ' -f1,6 /proc/$$/stat")
        words = out.split()
        self.assertEqual([int(w, 16) for w in words[1:4:2]], [0, 0])
        self.assertEqual(words[4], words[5])  # a session of its own

    def test_descriptor_limits_are_the_callers(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (300, 4000))
        box = self.box(start=False)
        done = subprocess.run([box.binary, "--dir", str(box.dir), "--id", str(box.id)], preexec_fn=few, capture_output=True,
                              check=True)
        box.pid = int(done.stdout.split()[1])
        self.assertEqual(resource.prlimit(box.pid, resource.RLIMIT_NOFILE), (4000, 4000))
        self.assertEqual(box.connect().run_shell("ulimit -Sn; ulimit -Hn")[0], b"300\n4000\n")

    def test_starting_twice_starts_once(self):
        exec_id = uuids.uuid4()
        trace = self.started_box.base / "trace"
        script = f"echo x >> {trace}; cat"
        first = self.host.shell(script, exec_id=exec_id, flags=OPEN_STDIN)
        self.host.started(first)
        host = self.started_box.connect(epoch=2)
        channel = host.shell(script, exec_id=exec_id, flags=OPEN_STDIN)
        state = parse_state(host.wait(channel).payload)
        self.assertEqual((state.id, state.state), (exec_id, 1))
        self.assertEqual(host.wait(channel).type, TAKEN)
        host.stdin(channel, 0, b"done", True)
        self.assertEqual(host.collect(channel)[0], b"done")
        self.assertEqual(trace.read_text(), "x\n")

    def test_channels_are_used_once(self):
        channel = self.host.start("sleep", ["1000"])
        pid = self.host.started(channel)
        self.host.send(START, channel, start_payload(uuids.uuid4(), "true"))
        self.assert_ends(self.host, MALFORMED, channel)
        self.assertTrue(process_lives(pid))

    def test_an_execution_has_one_channel(self):
        exec_id = uuids.uuid4()
        self.host.started(self.host.start("sleep", ["1000"], exec_id=exec_id))
        self.host.send(18, 50, exec_id.bytes)
        self.assert_ends(self.host, MALFORMED, 50)

    def test_forgetting(self):
        exec_id = uuids.uuid4()
        channel = self.host.start("cat", exec_id=exec_id, flags=OPEN_STDIN)
        self.host.started(channel)
        self.host.forget(channel)
        self.assert_ends(self.host, MALFORMED, channel)
        host = self.started_box.connect()
        channel, state = host.attach(exec_id)
        self.assertEqual(state.state, 1)
        host.stdin(channel, 0, b"x", True)
        host.collect(channel)
        self.assertTrue((self.started_box.dir / "spool" / str(exec_id) / "exit").exists())
        host.forget(channel)
        host.ping()
        self.assertEqual(host.list(), [])
        self.assertEqual(list((self.started_box.dir / "spool").iterdir()), [])
        self.assertEqual(host.run("echo", ["again"], exec_id=exec_id)[0], b"again\n")

    def test_the_table_has_room_for_1024(self):
        channels = []
        for _ in range(1024):
            channels.append(self.host.start("true"))
            if len(channels) % 32 == 0:
                self.host.exit(channels[-1])
        self.assertEqual([self.host.exit(c).code for c in channels if c % 32], [0] * 992)
        self.assertEqual(len(self.host.list()), 1024)
        self.assert_error(self.host, self.host.start("true"), FULL)
        self.host.forget(channels[500])
        self.assertEqual(self.host.run("true")[2].code, 0)

    def test_two_hundred_at_once(self):
        channels = [self.host.shell(f"echo {i}; read x; echo $x", flags=OPEN_STDIN) for i in range(200)]
        for c in channels:
            self.host.started(c)
        self.assertEqual([s.state for s in self.host.list()], [1] * 200)
        for c in channels:
            self.host.stdin(c, 0, b"%d\n" % (c * 7), True)
        for i, c in enumerate(channels):
            self.assertEqual(self.host.collect(c)[0], b"%d\n%d\n" % (i, c * 7))


class OutputTest(BoxTest):
    def test_nothing_is_sent_before_the_first_ack(self):
        host = self.box().connect()
        exec_id = uuids.uuid4()
        channel = host.start("echo", ["hello"], exec_id=exec_id)
        host.started(channel)
        self.wait_for_state(host, exec_id, lambda s: s.state == 2, "the command ends")
        host.ping()
        self.assertEqual([f for f in host.kept if f.channel == channel], [])
        host.ack(channel, STDOUT, 2)
        self.assertEqual(parse_data(host.wait(channel).payload), (STDOUT, 2, b"llo\n"))
        self.assertEqual(host.wait(channel).type, EXIT)

    def test_credit_is_exact(self):
        host = self.box().connect()
        channel = host.shell("printf 0123456789")
        host.started(channel)
        host.ack(channel, STDOUT, 0, 4)
        self.assertEqual(parse_data(host.wait(channel, DATA).payload), (STDOUT, 0, b"0123"))
        host.ping()
        self.assertEqual([f for f in host.kept if f.channel == channel], [])
        host.ack(channel, STDOUT, 4, 7)
        self.assertEqual(parse_data(host.wait(channel).payload), (STDOUT, 4, b"456"))
        host.ack(channel, STDOUT, 4, 10)
        self.assertEqual(parse_data(host.wait(channel).payload), (STDOUT, 7, b"789"))
        self.assertEqual(host.wait(channel).type, EXIT)

    def test_impossible_acks(self):
        box = self.box()
        exec_id = uuids.uuid4()
        host = box.connect()
        host.run("echo", ["hello"], exec_id=exec_id)
        for stream, stored in ((STDOUT, 7), (STDOUT, 5), (STDERR, 1), (0, 0), (3, 0)):
            host = box.connect()
            channel, state = host.attach(exec_id)
            self.assertEqual(state.out, 6)
            host.ack(channel, stream, stored)
            self.assert_ends(host, MALFORMED, channel)

    def test_what_was_acknowledged_leaves_the_disk(self):
        box = self.box()
        host = box.connect()
        exec_id = uuids.uuid4()
        host.run("head", ["-c", "20000000", "/dev/urandom"], exec_id=exec_id)
        file = box.dir / "spool" / str(exec_id) / "stdout"
        self.assertEqual(file.stat().st_size, 20000000)
        wait_until(lambda: file.stat().st_blocks * 512 < 3_000_000, "the file is punched out")

    def test_reconnecting_at_any_point(self):
        box = self.box("--spool-limit", "300000")
        source = random.Random(7)
        exec_id = uuids.uuid4()
        script = "i=0; while [ $i -lt 60000 ]; do echo line $i; echo error $i >&2; i=$((i+1)); done"
        host = box.connect()
        host.started(host.shell(script, exec_id=exec_id))
        host.close()
        got, end, connections = {STDOUT: bytearray(), STDERR: bytearray()}, None, 0
        while end is None:
            connections += 1
            host = box.connect()
            channel, _ = host.attach(exec_id)
            host.open_output(channel, len(got[STDOUT]), len(got[STDERR]))
            budget = source.randrange(1, 40)
            while budget > 0 and end is None:
                f = host.wait(channel, DATA, EXIT)
                if f.type == EXIT:
                    end = parse_exit(f.payload)
                    break
                stream, offset, data = parse_data(f.payload)
                self.assertEqual(offset, len(got[stream]))
                got[stream] += data
                budget -= 1
                if source.random() < 0.8:  # the others were taken, but the box does not know
                    host.ack(channel, stream, len(got[stream]))
            host.close()
        self.assertGreater(connections, 3)
        self.assertEqual(bytes(got[STDOUT]), b"".join(b"line %d\n" % i for i in range(60000)))
        self.assertEqual(bytes(got[STDERR]), b"".join(b"error %d\n" % i for i in range(60000)))
        self.assertEqual((end.code, end.out, end.err), (0, len(got[STDOUT]), len(got[STDERR])))

    def test_shared_spool(self):
        box = self.box()
        host = box.connect()
        spool = box.base / "shared"
        exec_id = uuids.uuid4()
        channel = host.shell("echo one; read x; echo two; echo three >&2; exit 4", exec_id=exec_id, flags=SHARED | OPEN_STDIN,
                             spool=str(spool))
        host.started(channel)
        self.assertEqual(host.wait(channel, GREW).payload, struct.pack(">BQ", STDOUT, 4))
        self.assertEqual((spool / "stdout").read_text(), "one\n")
        host.ack(channel, STDOUT, 4)
        host.stdin(channel, 0, b"\n")
        lengths = {STDOUT: 4, STDERR: 0}
        while (f := host.wait(channel, GREW, EXIT)).type == GREW:
            stream, length = struct.unpack(">BQ", f.payload)
            self.assertGreater(length, lengths[stream])
            lengths[stream] = length
        end = parse_exit(f.payload)
        self.assertEqual((end.code, end.out, end.err, lengths), (4, 8, 6, {STDOUT: 8, STDERR: 6}))
        self.assertEqual((spool / "stdout").read_text() + (spool / "stderr").read_text(), "one\ntwo\nthree\n")
        record = (spool / "exit").read_bytes()
        self.assertEqual(record, struct.pack(">I", zlib.crc32(f.payload)) + f.payload)
        host.forget(channel)
        host.ping()
        self.assertTrue((spool / "exit").exists())
        self.assertEqual(list((box.dir / "spool").iterdir()), [])

    def limited(self, host, script, output, shared=True, **more):
        """Run a script with an output limit, with all credit there is: (bytes on the disk or sent, Exit)."""
        if not shared:
            out, err, end = host.run_shell(script, output=output, **more)
            return len(out) + len(err), end
        spool = self.started_box.base / str(uuids.uuid4())
        channel = host.shell(script, flags=SHARED, spool=str(spool), output=output, **more)
        host.started(channel)
        while (f := host.wait(channel, GREW, EXIT)).type == GREW:
            stream, length = struct.unpack(">BQ", f.payload)
            host.ack(channel, stream, length)
        host.forget(channel)
        return sum((spool / name).stat().st_blocks for name in ("stdout", "stderr")) * 512, parse_exit(f.payload)

    def test_a_command_ignores_no_signal(self):
        before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the box inherits it
        try:
            host = self.box().connect()
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual(host.run_shell("sed -n 's/^SigIgn:\t//p' /proc/self/status")[0].strip(), b"0" * 16)

    # At the limit, one past it, and far past it; of files and of a spool that is sent.
    def test_output_stops_at_its_limit(self):
        self.started_box = self.box()
        host = self.started_box.connect()
        limit = 1 << 20
        for shared in (True, False):
            with self.subTest(shared=shared):
                kept, end = self.limited(host, f"head -c {limit} /dev/zero", (limit, 0, 0, 50, WAIT), shared)
                self.assertEqual((kept, end.code, end.flags), (limit, 0, 0), end)
                kept, end = self.limited(host, f"head -c {limit - 1} /dev/zero; echo xx >&2; exit 3",
                                         (limit, 0, 0, 50, WAIT), shared)
                self.assertEqual((end.out + end.err, end.code, end.flags), (limit, 3, INCOMPLETE | OUTPUT_LIMIT), end)
                kept, end = self.limited(host, "exec cat /dev/zero", (limit, 0, 0, 50, WAIT), shared)
                self.assertEqual((kept, end.signal, end.flags), (limit, 9, INCOMPLETE | OUTPUT_LIMIT), end)

    def test_what_printed_no_more_than_its_limit_goes_on(self):
        self.started_box = self.box()
        host = self.started_box.connect()
        channel = host.shell("head -c 5000 /dev/zero; read x; exit 4", flags=OPEN_STDIN, output=(5000, 0, 0, 1, WAIT))
        host.started(channel)
        host.open_output(channel)
        got = 0
        while got < 5000:
            got += len(parse_data(host.wait(channel, DATA).payload)[2])
        for _ in range(20):
            host.ping()  # turns of the loop, with the time to wait long over
        host.stdin(channel, 0, b"\n")
        self.assertEqual(host.exit(channel).code, 4)

    # What a place keeps of commands that are over counts as well, and room lets a command that waits go on.
    def test_the_limit_of_a_place(self):
        self.started_box = self.box()
        host = self.started_box.connect()
        mib = 1 << 20
        kept, end = self.limited(host, f"head -c {mib} /dev/zero", (4 * mib, 2 * mib, 0, 50, WAIT))
        self.assertEqual((kept, end.flags), (mib, 0))
        kept, end = self.limited(host, "exec cat /dev/zero", (4 * mib, 2 * mib, mib, 50, WAIT))
        self.assertEqual((kept, end.flags), (mib, INCOMPLETE | OUTPUT_LIMIT))
        channel = host.shell("head -c 300000 /dev/zero", output=(4 * mib, 2 * mib, 2 * mib, 600000, WAIT))
        host.started(channel)
        host.open_output(channel)
        host.ping()
        kept, end = self.limited(host, "true", (4 * mib, 2 * mib, 0, 50, WAIT))  # some was removed meanwhile
        self.assertEqual(host.collect(channel)[2].out, 300000)

    def test_the_oldest_output_goes(self):
        self.started_box = self.box()
        host = self.started_box.connect()
        mib = 1 << 20
        kept, end = self.limited(host, "i=0; while [ $i -lt 200000 ]; do echo $i 0123456789012345678901234567890123456789; "
                                       "i=$((i+1)); done", (2 * mib, 0, 0, 50, DROP))
        self.assertEqual((end.code, end.flags), (0, 0), end)
        self.assertGreater(end.out, 8 * mib)
        self.assertLessEqual(kept, 2 * mib + 4096)
        self.assertGreater(kept, mib - 4096)

    # Values that stand for others are longer than they are.
    def test_replaced_values_count_as_they_are_kept(self):
        self.started_box = self.box()
        host = self.started_box.connect()
        limit = 1 << 20
        _, end = self.limited(host, "exec yes hush", (limit, 0, 0, 50, WAIT), redact=["hush"])
        self.assertEqual((end.signal, end.flags), (9, INCOMPLETE | OUTPUT_LIMIT), end)
        self.assertLessEqual(end.out, limit + len("***REDACTED***"))
        self.assertGreater(end.out, limit // 2)

    # The box holds to the limit by itself: no host has to be there.
    def test_the_limit_without_a_host(self):
        box = self.started_box = self.box()
        host = box.connect()
        spool, exec_id = box.base / "alone", uuids.uuid4()
        host.started(host.shell("exec cat /dev/zero", exec_id=exec_id, flags=SHARED, spool=str(spool),
                                output=(5000, 0, 0, 50, WAIT)))
        host.close()
        wait_until(lambda: (spool / "exit").exists() and (spool / "exit").stat().st_size == 34, "it ends")
        end = parse_exit((spool / "exit").read_bytes()[4:])
        self.assertEqual((end.out, end.flags), (5000, INCOMPLETE | OUTPUT_LIMIT))

    def test_a_shared_spool_that_is_in_use(self):
        box = self.box()
        host = box.connect()
        spool = box.base / "shared"
        spool.mkdir()
        (spool / "stdout").write_text("precious")
        channel = host.start("echo", ["x"], flags=SHARED, spool=str(spool))
        self.assert_error(host, channel, SPOOL)
        self.assertEqual((spool / "stdout").read_text(), "precious")
        self.assert_error(host, host.start("echo", flags=SHARED, spool=str(box.base / "no" / "such")), SPOOL)

    def test_a_full_spool_blocks_the_writer(self):
        box = self.box("--spool-limit", "100000")
        for flags, more in ((0, {}), (SHARED, {"spool": str(box.base / "shared")})):
            host = box.connect()
            exec_id = uuids.uuid4()
            done = box.base / f"done{flags}"
            host.started(host.shell(f"head -c 3000000 /dev/zero; echo x > {done}", exec_id=exec_id, flags=flags, **more))
            self.wait_for_state(host, exec_id, lambda s: s.out == 100000, "the spool is full")
            host.ping()
            state = host.list()[-1]
            self.assertEqual((state.state, state.out, done.exists()), (1, 100000, False))
            host = box.connect()
            channel, _ = host.attach(exec_id)
            if not flags:
                self.assertEqual(len(host.collect(channel)[0]), 3000000)
            else:
                host.ack(channel, STDOUT, 100000)
                while (f := host.wait(channel, GREW, EXIT)).type == GREW:
                    host.ack(channel, STDOUT, struct.unpack(">BQ", f.payload)[1])
                self.assertEqual(parse_exit(f.payload).out, 3000000)
            self.assertTrue(done.exists())

    def test_the_end_does_not_wait_for_a_host(self):
        box = self.box("--spool-limit", "100000")
        host = box.connect()
        exec_id = uuids.uuid4()
        host.start("head", ["-c", "500000", "/dev/zero"], exec_id=exec_id)
        host.close()
        host = box.connect()
        state = self.wait_for_state(host, exec_id, lambda s: s.state == 2, "it ends")
        self.assertEqual((state.out, state.exit.code, state.exit.flags), (500000, 0, 0))
        channel, _ = host.attach(exec_id)
        self.assertEqual(len(host.collect(channel)[0]), 500000)

    def test_a_failing_spool_ends_the_execution(self):
        box = self.box()
        host = box.connect()
        resource.prlimit(box.pid, resource.RLIMIT_FSIZE, (100000, 100000))
        channel = host.start("cat", ["/dev/zero"])
        host.started(channel)
        self.assert_error(host, channel, SPOOL)
        host.open_output(channel)
        end = host.exit(channel)
        self.assertEqual((end.code, end.signal, end.flags, end.out), (-1, 9, INCOMPLETE, 100000))
        self.assertEqual(host.run("echo", ["well"])[0], b"well\n")

    def test_attaching_to_what_has_ended(self):
        box = self.box()
        host = box.connect()
        exec_id = uuids.uuid4()
        channel = host.shell("echo out; echo err >&2; exit 9", exec_id=exec_id)
        self.wait_for_state(host, exec_id, lambda s: s.state == 2, "it ends")
        self.assertEqual(host.started(channel) > 0, True)
        for _ in range(2):
            host = box.connect()
            channel, state = host.attach(exec_id)
            self.assertEqual((state.state, state.exit.code, state.out, state.err), (2, 9, 4, 4))
            host.open_output(channel)
            data = sorted(parse_data(host.wait(channel, DATA).payload) for _ in range(2))
            self.assertEqual(data, [(STDOUT, 0, b"out\n"), (STDERR, 0, b"err\n")])
            self.assertEqual(host.exit(channel), state.exit)


class InputTest(BoxTest):
    def test_it_is_asked_for_once_the_process_was_announced(self):
        """remote-execution 8.57: a host sends no input beyond its credit, and the first credit comes after STARTED."""
        host = self.box().connect()
        channel = host.start("cat", flags=OPEN_STDIN)
        self.assertEqual([host.wait(channel).type for _ in range(2)], [STARTED, TAKEN])
        host.stdin(channel, 0, b"input", True)
        self.assertEqual(host.collect(channel)[0], b"input")

    def test_much_input_within_its_credit(self):
        host = self.box().connect()
        data = random.Random(3).randbytes(3_000_000)
        channel = host.start("sha256sum", flags=OPEN_STDIN)
        host.started(channel)
        at = 0
        while at < len(data):
            taken, limit = struct.unpack(">QQ", host.wait(channel, TAKEN).payload)
            self.assertLessEqual(taken, at)
            while at < min(limit, len(data)):
                piece = data[at:min(limit, at + 60000, len(data))]
                host.stdin(channel, at, piece)
                at += len(piece)
        host.stdin(channel, at, b"", True)
        import hashlib
        self.assertEqual(host.collect(channel)[0].split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_overlap_is_dropped_and_gaps_are_refused(self):
        box = self.box()
        host = box.connect()
        exec_id = uuids.uuid4()
        channel = host.start("cat", flags=OPEN_STDIN, exec_id=exec_id)
        host.started(channel)
        host.stdin(channel, 0, b"hello")
        host.stdin(channel, 0, b"hello")
        host.stdin(channel, 3, b"lo world")
        host.stdin(channel, 12, b"!")
        self.assert_ends(host, MALFORMED, channel)
        host = box.connect()
        channel, state = host.attach(exec_id)
        self.assertEqual(state.stdin, 11)
        host.stdin(channel, 11, b".", True)
        host.stdin(channel, 11, b".", True)
        self.assertEqual(host.collect(channel)[0], b"hello world.")

    def test_input_past_its_limits(self):
        box = self.box()
        for bad in ((60000, b"x" * 60000, False), (0, b"x" * 4, False)):
            host = box.connect()
            channel = host.start("sleep", ["1000"], flags=OPEN_STDIN)
            host.started(channel)
            if bad[0]:  # more than the credit: nobody reads
                limit = struct.unpack(">QQ", host.wait(channel, TAKEN).payload)[1]
                host.stdin(channel, 0, b"x" * 60000)
                at = 60000
                while at <= limit + 65536:  # a pipe's worth goes on
                    host.stdin(channel, at, b"x" * 60000)
                    at += 60000
            else:  # more than the end
                host.stdin(channel, 0, b"xx", True)
                host.stdin(channel, 0, b"xxxx")
            self.assert_ends(host, MALFORMED, channel)

    def test_a_command_that_does_not_want_it(self):
        host = self.box().connect()
        channel = host.shell("exec <&-; echo closed; read x < /dev/null; sleep 1000", flags=OPEN_STDIN)
        host.started(channel)
        host.ack(channel, STDOUT, 0)
        host.wait(channel, DATA)
        at = 0
        while at < 1_000_000:
            limit = struct.unpack(">QQ", host.wait(channel, TAKEN).payload)[1]
            while at + 50000 <= limit:
                host.stdin(channel, at, bytes(50000))
                at += 50000
        host.signal(channel, 9)
        self.assertEqual(host.exit(channel).signal, 9)

    def test_without_input(self):
        host = self.box().connect()
        self.assertEqual(host.run("readlink", ["/proc/self/fd/0"])[0], b"/dev/null\n")
        channel = host.start("sleep", ["1000"])
        host.started(channel)
        host.send(STDIN, channel, struct.pack(">QB", 0, 1))
        self.assert_ends(host, MALFORMED, channel)


class TerminalTest(BoxTest):
    def test_a_terminal(self):
        host = self.box().connect()
        channel = host.shell("tty >&2; stty size; stty -echo; echo ready; read x; stty size; echo got $x",
                             flags=TERMINAL | OPEN_STDIN, size=(132, 43))
        host.started(channel)
        host.open_output(channel)
        seen = b""
        while b"ready" not in seen:
            stream, offset, data = parse_data(host.wait(channel, DATA).payload)
            self.assertEqual((stream, offset), (STDOUT, len(seen)))
            seen += data
        host.send(RESIZE, channel, struct.pack(">HH", 100, 50))
        host.stdin(channel, 0, b"word\n")
        while (f := host.wait(channel, DATA, EXIT)).type == DATA:
            seen += parse_data(f.payload)[2]
        self.assertRegex(seen.decode(), r"^/dev/pts/\d+\r\n43 132\r\nready\r\n50 100\r\ngot word\r\n$")
        self.assertEqual(parse_exit(f.payload).err, 0)

    def test_control_c_and_end_of_file(self):
        host = self.box().connect()
        channel = host.shell("trap 'echo int' INT; cat; echo after; cat; echo end", flags=TERMINAL | OPEN_STDIN)
        host.started(channel)
        host.open_output(channel)
        seen = b""
        host.stdin(channel, 0, b"x\n")
        while seen.count(b"x\r\n") < 2:  # the terminal's echo and cat's answer
            seen += parse_data(host.wait(channel, DATA).payload)[2]
        host.stdin(channel, 2, b"\x03")
        while b"after" not in seen:
            seen += parse_data(host.wait(channel, DATA).payload)[2]
        host.stdin(channel, 3, b"more\n", True)
        while (f := host.wait(channel, DATA, EXIT)).type == DATA:
            seen += parse_data(f.payload)[2]
        self.assertIn(b"int\r\nafter", seen)
        self.assertIn(b"more\r\nmore\r\nend\r\n", seen)

    def test_much_output(self):
        host = self.box().connect()
        channel = host.start("seq", ["200000"], flags=TERMINAL)
        host.started(channel)
        out, _, end = host.collect(channel)
        self.assertEqual(out, b"".join(b"%d\r\n" % i for i in range(1, 200001)))
        self.assertEqual((end.code, end.flags), (0, 0))

    def test_a_command_that_leaves_its_terminal(self):
        host = self.box().connect()
        out, _, _ = host.run_shell("exec </dev/null >/dev/null 2>&1; sleep 0.05; echo back > /dev/tty", flags=TERMINAL)
        self.assertEqual(out, b"back\r\n")

    def test_resizing_what_has_no_terminal(self):
        host = self.box().connect()
        channel = host.start("sleep", ["1000"])
        host.send(RESIZE, channel, struct.pack(">HH", 100, 50))
        host.started(channel)
        host.ping()


class LifeTest(BoxTest):
    def test_idle_exit(self):
        box = self.box("--idle-exit", "50")
        box.wait_gone()
        self.assertFalse(box.dir.exists())

    def test_a_box_that_knows_something_is_not_idle(self):
        box = self.box("--idle-exit", "1000")
        host = box.connect()
        exec_id = uuids.uuid4()
        host.run("true", exec_id=exec_id)
        host.close()
        self.box("--idle-exit", "1500").wait_gone()  # one that knows nothing, and has more time
        host = box.connect()
        channel, _ = host.attach(exec_id)
        host.forget(channel)
        host.ping()
        host.close()
        box.wait_gone()

    def test_sigterm_is_stop(self):
        box = self.box()
        host = box.connect()
        channel = host.start("sleep", ["1000"])
        pid = host.started(channel)
        os.kill(box.pid, 15)
        end = host.exit(channel)
        self.assertEqual((end.signal, end.flags), (15, STOPPED_BY_BOX))
        box.wait_gone()
        self.assertFalse(process_lives(pid) or box.dir.exists())

    def test_stop_by(self):
        box = self.box()
        host = box.connect()
        channel = host.start("sleep", ["1000"])
        host.started(channel)
        host.send(7, 0, struct.pack(">Q", 3_600_000))
        host.send(7, 0, struct.pack(">Q", 0))
        host.ping()
        host.send(7, 0, struct.pack(">Q", 50))
        host.close()
        box.wait_gone()
        self.assertFalse(box.dir.exists())

    def test_stopping_with_a_host_that_listens(self):
        box = self.box()
        host = box.connect()
        channel = host.shell("exec 2>/dev/null; trap 'echo bye; exit 5' TERM; echo hi; while :; do sleep 0.01; done")
        host.started(channel)
        host.open_output(channel)
        self.assertEqual(parse_data(host.wait(channel, DATA).payload)[2], b"hi\n")
        host.send(8, 0, struct.pack(">I", 30000))
        self.assertEqual(parse_data(host.wait(channel, DATA).payload)[2], b"bye\n")
        end = host.exit(channel)
        self.assertEqual((end.code, end.flags), (5, STOPPED_BY_BOX))
        host.wait(0, 9)
        with self.assertRaises(Closed):
            host.next()
        box.wait_gone()

    def test_no_start_while_stopping(self):
        box = self.box()
        host = box.connect()
        channel = host.shell("trap '' TERM; echo deaf; sleep 1000")
        host.started(channel)
        host.ack(channel, STDOUT, 0)
        host.wait(channel, DATA)
        host.send(8, 0, struct.pack(">I", 600000))
        self.assert_error(host, host.start("true"), REFUSED)
        host.stop(0)  # a second word shortens the first
        box.wait_gone()


if __name__ == "__main__":
    unittest.main()
