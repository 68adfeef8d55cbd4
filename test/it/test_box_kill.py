"""berth-box ends process trees, whatever they do: by cgroup and by descent and marker; and it survives being killed itself.

Each test runs with both methods; where cgroups do not work, that half is skipped.
"""
# share 3: 6 s of processor time

import os
import pathlib
import signal
import struct
import unittest
import uuid as uuids

from berthtest import wait_until
from boxproto import (CGROUP, DATA, EXIT, INCOMPLETE, OPEN_STDIN, SHARED, STDOUT, STOPPED_BY_BOX, SUBREAPER, TIMED_OUT, Box,
                      find_cgroups, marked, parse_data, parse_exit, process_lives)

FORGETFUL = "setsid env -i sleep"  # neither session nor marker


class Kill:
    flags = ()
    method = None

    def box(self, *flags, **more):
        box = Box(self, *self.flags, *flags, **more)
        if box.pid and box.kill_method != self.method:
            self.skipTest("no writable cgroup2 here")
        return box

    def start(self, host, script, **more):
        """Start a script that prints READY when everything is in place; returns (channel, id, what it printed)."""
        exec_id = uuids.uuid4()
        channel = host.shell(script, exec_id=exec_id, **more)
        host.started(channel)
        host.open_output(channel)
        seen = b""
        while b"READY" not in seen:
            seen += parse_data(host.wait(channel, DATA).payload)[2]
        return channel, exec_id, seen.decode().split()

    def assert_dead(self, pids):
        self.assertEqual([p for p in pids if process_lives(p)], [])

    def test_daemons_end_with_their_command(self):
        box = self.box()
        host = box.connect()
        channel, exec_id, words = self.start(
            host, "(setsid sleep 1111 & echo $!); (sleep 1112 & echo $!); (setsid sh -c 'sleep 1113 & echo $!; sleep 1114' &);"
                  f"({FORGETFUL} 1115 & echo $!); nohup sleep 1116 >/dev/null 2>&1 & echo $!; sleep 0.1; echo READY; exit 3")
        end = host.exit(channel)
        self.assertEqual((end.code, end.signal, end.flags), (3, 0, 0))
        pids = [int(w) for w in words if w.isdigit()]
        self.assertEqual(len(pids), 5)
        self.assert_dead(pids)
        self.assertEqual(marked(exec_id), [])

    def test_only_its_own_tree(self):
        box = self.box()
        host = box.connect()
        first, first_id, words = self.start(host, "(setsid sleep 1111 & echo $!); sleep 1112 & echo $!; echo READY; sleep 1113")
        second, second_id, others = self.start(host, "(setsid sleep 1114 & echo $!); sleep 1115 & echo $!; echo READY; sleep 1116")
        host.signal(first, 9)
        self.assertEqual(host.exit(first).signal, 9)
        self.assert_dead([int(w) for w in words if w.isdigit()])
        self.assertEqual(marked(first_id), [])
        self.assertEqual([process_lives(int(w)) for w in others if w.isdigit()], [True, True])
        host.signal(second, 9)
        host.exit(second)
        self.assertEqual(marked(second_id), [])

    def test_a_daemon_that_only_its_session_tells(self):
        box = self.box()
        host = box.connect()
        self.start(host, "echo READY; sleep 1000")
        channel, _, words = self.start(host, "(env -i sleep 1111 & echo $!); sleep 0.1; echo READY")
        self.assertEqual(host.exit(channel).code, 0)
        self.assert_dead([int(w) for w in words if w.isdigit()])

    def test_a_daemon_without_a_trace_ends_with_the_last_execution(self):
        box = self.box()
        host = box.connect()
        other, _, _ = self.start(host, "echo READY; sleep 1000")
        channel, _, words = self.start(host, f"({FORGETFUL} 1111 & echo $!); sleep 0.1; echo READY")
        host.exit(channel)
        host.signal(other, 9)
        host.exit(other)
        self.assert_dead([int(w) for w in words if w.isdigit()])

    def test_stopped_processes(self):
        box = self.box()
        host = box.connect()
        channel, exec_id, _ = self.start(host, "(setsid sh -c 'kill -STOP $$' &); sh -c 'kill -STOP $$' & echo READY; kill -STOP $$")
        host.signal(channel, 9)
        self.assertEqual(host.exit(channel).signal, 9)
        self.assertEqual(marked(exec_id), [])

    def test_children_that_hold_the_pipes_open(self):
        box = self.box()
        host = box.connect()
        channel, exec_id, _ = self.start(host, "(while :; do echo still here; done) & echo READY; sleep 0.05; exit 7")
        lines = b""
        while (f := host.wait(channel, DATA, EXIT)).type == DATA:
            stream, offset, data = parse_data(f.payload)
            lines += data
            host.ack(channel, stream, offset + len(data))
        end = parse_exit(f.payload)
        self.assertEqual((end.code, end.flags), (7, 0))
        self.assertGreater(len(lines), 0)
        self.assertEqual(marked(exec_id), [])

    def test_the_time_limit(self):
        box = self.box()
        host = box.connect()
        cases = (
            ("echo READY; sleep 1000", -1, 15),
            ("trap '' TERM; setsid sleep 1000 & echo READY; sleep 1000; sleep 1000", -1, 9),
            ("trap 'exit 6' TERM; echo READY; while :; do sleep 0.01; done", 6, 0),
            ("trap 'exit 8' TERM; echo READY; kill -STOP $$; while :; do sleep 0.01; done", 8, 0),
        )
        for script, code, number in cases:
            grace = 200 if number == 9 else 60000
            channel, exec_id, _ = self.start(host, script, limit=300, grace=grace)
            end = host.exit(channel)
            self.assertEqual((end.code, end.signal, end.flags), (code, number, TIMED_OUT), script)
            self.assertEqual(marked(exec_id), [])

    def test_the_time_limit_without_a_host(self):
        box = self.box()
        host = box.connect()
        exec_id = uuids.uuid4()
        host.started(host.start("sleep", ["1000"], exec_id=exec_id, limit=100))
        host.close()
        wait_until(lambda: (box.dir / "spool" / str(exec_id) / "exit").exists(), "the exit record")
        _, state = box.connect().attach(exec_id)
        self.assertEqual((state.exit.signal, state.exit.flags), (15, TIMED_OUT))

    def test_a_signal_goes_to_the_group(self):
        box = self.box()
        host = box.connect()
        channel, _, words = self.start(
            host, "setsid sleep 1111 & echo $!; sh -c 'trap \"echo child\" USR1; echo up; while :; do sleep 0.01; done' &"
                  "trap 'echo parent' USR1; sleep 0.2; echo READY; while :; do sleep 0.01; done")
        host.signal(channel, signal.SIGUSR1)
        seen = b""
        while b"child" not in seen or b"parent" not in seen:
            seen += parse_data(host.wait(channel, DATA).payload)[2]
        self.assertTrue(process_lives(int(words[0])))  # a session of its own, not reached
        host.signal(channel, 9)
        host.exit(channel)
        self.assert_dead([int(words[0])])

    def test_a_fork_bomb(self):
        box = self.box()
        host = box.connect()
        exec_id = uuids.uuid4()
        if os.getuid() == 0:
            limits = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", "--nproc=200"]
        else:
            mine = sum(os.stat(f"/proc/{p}").st_uid == os.getuid() for p in os.listdir("/proc") if p.isdigit())
            limits = ["prlimit", f"--nproc={mine + 200}"]
        bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass\n"
        channel = host.start(limits[0], [*limits[1:], "python3", "-c", bomb], exec_id=exec_id)
        host.started(channel)
        wait_until(lambda: len(marked(exec_id)) > 50, "the bomb has gone off")
        host.signal(channel, 9)
        self.assertEqual(host.exit(channel).signal, 9)
        self.assertEqual(marked(exec_id), [])
        self.assertEqual(host.run("echo", ["alive"])[0], b"alive\n")

    def test_ten_thousand_short_processes(self):
        box = self.box()
        host = box.connect()
        script = "i=0; while [ $i -lt 5000 ]; do (: &); i=$((i+1)); done; echo READY; sleep 1000"
        channel, _, _ = self.start(host, script)
        children = pathlib.Path(f"/proc/{box.pid}/task/{box.pid}/children")
        wait_until(lambda: len(children.read_text().split()) == 1, "all orphans are reaped")
        host.signal(channel, 9)
        host.exit(channel)
        self.assertEqual(children.read_text().split(), [])

    def test_stop_removes_everything(self):
        box = self.box()
        host = box.connect()
        spool = box.base / "shared"
        first, first_id, words = self.start(host, f"({FORGETFUL} 1111 & echo $!); sleep 0.1; trap '' TERM; echo READY; sleep 1000")
        shared = host.shell("echo kept; sleep 1000", flags=SHARED, spool=str(spool))
        host.started(shared)
        host.run("echo", ["ended"])
        host.wait(shared)
        self.assertEqual(bool(box.cgroups()), self.method == CGROUP)
        host.send(8, 0, struct.pack(">I", 100))
        end = host.exit(first)
        self.assertEqual((end.signal, end.flags), (9, STOPPED_BY_BOX))
        end = host.exit(shared)
        self.assertEqual((end.signal, end.flags), (15, STOPPED_BY_BOX))
        host.wait(0, 9)
        box.wait_gone()
        self.assertFalse(box.dir.exists())
        self.assertEqual(box.cgroups(), [])
        self.assert_dead([int(w) for w in words if w.isdigit()])
        self.assertEqual(marked(first_id), [])
        self.assertEqual((spool / "stdout").read_text(), "kept\n")
        self.assertEqual(len((spool / "exit").read_bytes()), 34)

    def test_cgroups_do_not_pile_up(self):
        box = self.box()
        host = box.connect()
        for _ in range(20):
            host.run("true")
        host.wait(host.start("no-such-command"))
        for folder in box.cgroups():
            self.assertEqual([p for p in folder.iterdir() if p.is_dir()], [])

    def test_a_command_that_makes_cgroups(self):
        box = self.box()
        if self.method != CGROUP:
            self.skipTest("no cgroup to make them in")
        host = box.connect()
        channel, exec_id, _ = self.start(
            host, "d=$(find /sys/fs/cgroup -name $BERTH_EXEC 2>/dev/null); mkdir -p $d/a/b; sleep 1111 & echo $! > $d/a/b/cgroup.procs;"
                  "echo READY; sleep 1000")
        host.signal(channel, 9)
        host.exit(channel)
        self.assertEqual(marked(exec_id), [])
        self.assertEqual(find_cgroups(str(exec_id)), [])

    def test_a_command_that_leaves_its_cgroup(self):
        box = self.box()
        if self.method != CGROUP or os.getuid() != 0:
            self.skipTest("needs a cgroup, and the right to leave it")
        host = box.connect()
        channel, exec_id, words = self.start(
            host, "d=$(find /sys/fs/cgroup -name $BERTH_EXEC 2>/dev/null); setsid sleep 1111 & echo $! > $d/../../cgroup.procs; echo $!;"
                  "echo READY; read x", flags=OPEN_STDIN)
        self.assertTrue(process_lives(int(words[0])))
        host.stdin(channel, 0, b"\n")
        host.exit(channel)
        self.assertEqual(marked(exec_id), [])

    def test_the_box_is_killed(self):
        box = self.box()
        host = box.connect()
        running, running_id, words = self.start(host, "(setsid sleep 1111 & echo $!); echo READY; sleep 1000")
        ended_id, shared_id = uuids.uuid4(), uuids.uuid4()
        host.run_shell("echo over; exit 5", exec_id=ended_id)
        spool = box.base / "shared"
        shared = host.shell("echo shared; sleep 1000", exec_id=shared_id, flags=SHARED, spool=str(spool))
        pid = host.started(shared)
        host.wait(shared)
        box.kill()
        wait_until(lambda: not process_lives(pid), "the commands die with it")
        box.start()
        host = box.connect()
        states = {s.id: s for s in host.list()}
        self.assertEqual(set(states), {running_id, ended_id, shared_id})
        for exec_id in (running_id, shared_id):
            s = states[exec_id]
            self.assertEqual((s.state, s.pid, s.exit.code, s.exit.signal, s.exit.flags), (2, 0, -1, 0, INCOMPLETE))
            self.assertEqual(marked(exec_id), [])
        self.assertEqual((states[ended_id].exit.code, states[ended_id].exit.flags), (5, 0))
        self.assertEqual(states[shared_id].out, 7)
        self.assert_dead([int(w) for w in words if w.isdigit()])
        channel, _ = host.attach(ended_id)
        self.assertEqual(host.collect(channel, out=5)[0], b"")
        channel, _ = host.attach(running_id)
        out, _, end = host.collect(channel)
        self.assertIn(b"READY", out)
        self.assertEqual(end, states[running_id].exit)
        self.assertEqual(len((spool / "exit").read_bytes()), 34)
        channel = host.start("true", exec_id=running_id)  # still known: it does not run again
        self.assertEqual(host.wait(channel).type, 10)

    def test_a_killed_box_with_punched_files(self):
        box = self.box("--spool-limit", "4000000")
        host = box.connect()
        exec_id = uuids.uuid4()
        channel = host.shell("head -c 3500000 /dev/zero | tr '\\0' x; sleep 1000", exec_id=exec_id)
        host.started(channel)
        host.open_output(channel)
        at = 0
        while at < 3500000:
            at += len(parse_data(host.wait(channel, DATA).payload)[2])
        host.ack(channel, STDOUT, 3000000)
        host.ping()
        box.kill()
        box.start()
        host = box.connect()
        channel, state = host.attach(exec_id)
        self.assertEqual(state.out, 3500000)
        host.ack(channel, STDOUT, 0)  # gone, and never sent as zeros
        self.assertEqual(host.wait(channel).payload[:2], b"\0\3")
        host = box.connect()
        channel, _ = host.attach(exec_id)
        out, _, _ = host.collect(channel, out=3000000)
        self.assertEqual(out, b"x" * 500000)

    def test_the_box_is_killed_while_starting_things(self):
        box = self.box()
        for round_number in range(5):
            host = box.connect()
            for i in range(30):
                host.start("sleep", ["1000"])
            for i in range(round_number * 6):
                host.started(i + 1)
            box.kill()
            box.start()
        host = box.connect()
        for s in host.list():
            self.assertEqual((s.state, marked(s.id)), (2, []))
        host.stop()
        box.wait_gone()
        self.assertFalse(box.dir.exists())
        self.assertEqual(box.cgroups(), [])


class CgroupTest(Kill, unittest.TestCase):
    method = CGROUP


class SubreaperTest(Kill, unittest.TestCase):
    flags = ("--kill", "subreaper")
    method = SUBREAPER


if __name__ == "__main__":
    unittest.main()
