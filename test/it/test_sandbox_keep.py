"""Sandboxes that outlive a lease: reuse, snapshots, and the pool of those made in advance."""

import ctypes
import json
import os
import threading
import unittest

from sandboxtest import RUN_A, RUN_B, SandboxTest, ident, process_state, wait_until


class ReuseTest(SandboxTest):
    config = {"reuseLease": True}

    def lease_body(self):
        return {"heartbeatRunId": RUN_A}

    # environment-runtime section 3.6
    def test_the_next_run_finds_what_the_last_one_left(self):
        self.sh("echo work > note; echo home > ~/note; echo t > /tmp/note")
        pid, place = self.init_pid(), self.place()
        self.assertNotIn("resumedLease", self.metadata())
        self.release(self.held)
        self.assertEqual([p["state"] for p in self.places()], ["ready"])
        self.held = self.acquire(self.env, heartbeatRunId=RUN_B)
        self.assertEqual((self.init_pid(), self.place()), (pid, place))
        self.assertTrue(self.metadata()["resumedLease"])
        self.assertEqual(self.sh("cat note ~/note /tmp/note")["stdout"], "work\nhome\nt\n")

    def test_commands_of_the_ended_lease_end_with_it(self):
        run = self.detach("sleep 1000 & setsid sleep 1000 & sleep 1000")
        self.release(self.held)
        self.assertEqual(self.execution(run)["signal"], "SIGKILL")
        self.held = self.acquire(self.env, heartbeatRunId=RUN_B)
        self.assertNotIn("sleep", self.sh("cat /proc/[0-9]*/comm")["stdout"])

    def test_an_ad_hoc_lease_gets_its_own(self):
        other = self.acquire(self.env)
        self.assertNotEqual(self.place(other), self.place())
        self.release(other)
        self.assertEqual(self.sandboxes(), {self.place()})

    def test_an_idle_one_that_died_is_replaced(self):
        pid, place = self.init_pid(), self.place()
        self.release(self.held)
        os.kill(pid, 9)
        wait_until(lambda: process_state(pid) in (None, "Z"), "the box is dead")
        self.held = self.acquire(self.env, heartbeatRunId=RUN_B)
        self.assertNotEqual(self.place(), place)
        self.assertEqual(self.sh("echo fresh")["stdout"], "fresh\n")

    def test_a_restart_keeps_the_idle_one(self):
        self.sh("echo kept > note")
        place = self.place()
        self.release(self.held)
        self.daemon.restart(crash=True)
        self.held = self.acquire(self.env, heartbeatRunId=RUN_B)
        self.assertEqual(self.place(), place)
        self.assertEqual(self.sh("cat note")["stdout"], "kept\n")

    def test_another_configuration_needs_another_sandbox(self):
        place = self.place()
        self.release(self.held)
        self.ok("PATCH", f"/api/environments/{ident(self.env)}", {"config": {"memoryMb": 100}})
        self.held = self.acquire(self.env, heartbeatRunId=RUN_B)
        self.assertNotEqual(self.place(), place)
        wait_until(lambda: self.sandboxes() == {self.place()}, "the old one is closed")


def exchange(one, other):
    """Each gets the other's name, at once."""
    if ctypes.CDLL(None).renameat2(-100, bytes(one), -100, bytes(other), 2) != 0:
        raise OSError("renameat2")


@unittest.skipUnless(os.geteuid() == 0, "storage on disk needs root")
class SnapshotTest(SandboxTest):
    config = {"storage": "disk"}

    def snapshots(self):
        return f"/api/companies/{ident(self.acme)}/environment-snapshots"

    def snapshot(self, name, lease=None, status=201):
        return self.ok("POST", f"/api/environment-leases/{ident(lease or self.held)}/snapshot", {"name": name}, status)

    def from_snapshot(self, name):
        env = self.sandbox_environment(name=f"from {name}", snapshot=name)
        return self.acquire(env)

    def nothing_left(self):
        for lease in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.release(lease["id"])
        for row in self.daemon.sql("SELECT id FROM snapshots ORDER BY created_at DESC"):
            self.ok("DELETE", f"{self.snapshots()}/{row['id']}")
        super().nothing_left()
        self.assertEqual(list((self.daemon.data / "snapshots").glob("*")), [])

    def test_new_leases_start_from_it(self):
        self.sh("echo one > ~/file; mkdir ~/dir; echo x > ~/dir/x; ln -s file ~/link; chmod 640 ~/file; echo w > work")
        got = self.snapshot("tools")
        self.assertEqual((got["name"], got["state"], got["parentId"]), ("tools", "ready", None))
        self.assertGreater(got["bytes"], 0)
        self.assertEqual(self.sh("echo goes on")["stdout"], "goes on\n")  # thawed
        other = self.from_snapshot("tools")
        read = self.sh("cat ~/file ~/dir/x ~/link; stat -c '%a %U' ~/file; ls -A /workspace", lease=other)
        self.assertEqual(read["stdout"], "one\nx\none\n640 agent\n")
        self.sh("echo changed > ~/file; rm -r ~/dir", lease=other)
        third = self.from_snapshot_again("tools")
        self.assertEqual(self.sh("cat ~/file ~/dir/x", lease=third)["stdout"], "one\nx\n")

    def test_a_failure_does_not_name_the_data_directory(self):
        """Where the daemon keeps its files is not the company's."""
        kept = self.daemon.data / "snapshots"
        kept.rmdir()
        kept.touch()
        for _ in range(2):
            answer = self.req("POST", f"/api/environment-leases/{ident(self.held)}/snapshot", {"name": "s"})
            self.assertGreaterEqual(answer.status, 500)
            self.assertIn("Not a directory", answer.error)
            self.assertNotIn(str(self.daemon.data), answer.body.decode())
        kept.unlink()
        kept.mkdir()

    def from_snapshot_again(self, name):
        return self.acquire(self.sandbox_environment(name=f"again {name}", snapshot=name))

    def test_a_layer_on_a_layer(self):
        self.sh("echo one > ~/a; echo gone > ~/b")
        first = self.snapshot("first")
        other = self.from_snapshot("first")
        self.sh("echo two > ~/c; rm ~/b", lease=other)
        second = self.snapshot("second", lease=other)
        self.assertEqual(second["parentId"], first["id"])
        top = self.from_snapshot("second")
        self.assertEqual(self.sh("cd; cat a c; ls", lease=top)["stdout"], "one\ntwo\na\nc\n")
        for lease in (other, top):
            self.release(lease)
        answer = self.req("DELETE", f"{self.snapshots()}/first")
        self.assert_error(answer, 409, contains="in use by 1")
        self.ok("DELETE", f"{self.snapshots()}/second")
        self.ok("DELETE", f"{self.snapshots()}/first")

    def test_a_directory_that_becomes_a_link_while_it_is_copied(self):
        """A command that is started meanwhile is not frozen: what it makes of the tree leads the copy nowhere else."""
        secret = self.daemon.data / "private"
        secret.mkdir(mode=0o700)
        (secret / "0").write_text("secret")
        for i in range(1, 10000):
            os.link(secret / "0", secret / str(i))
        self.sh(f"mkdir ~/dir && cd ~/dir && seq 0 9999 | xargs touch && ln -s {secret} ~/link")
        home = self.daemon.data / "sandboxes" / self.place() / "store/upper/agent"
        answers = []
        copying = threading.Thread(target=lambda: answers.append(self.req(
            "POST", f"/api/environment-leases/{ident(self.held)}/snapshot", {"name": "s"})))
        copying.start()
        while not any((self.daemon.data / "snapshots").glob("*.new/agent/dir/*")) and copying.is_alive():
            pass
        exchange(home / "dir", home / "link")
        copying.join()
        kept = [f for f in (self.daemon.data / "snapshots").rglob("*") if f.is_file() and f.read_text() == "secret"]
        self.assertEqual(len(kept), 0)
        self.assert_error(answers[0], 502, contains="Too many levels of symbolic links")

    def test_one_in_use_is_not_deleted(self):
        self.snapshot("used")
        other = self.from_snapshot("used")
        self.assert_error(self.req("DELETE", f"{self.snapshots()}/used"), 409, contains="in use by 1 sandboxes")
        self.release(other)
        self.ok("DELETE", f"{self.snapshots()}/used")
        self.assert_error(self.req("GET", f"{self.snapshots()}/used"), 404, "Snapshot not found")

    def test_names(self):
        self.snapshot("a.b-c_1")
        answer = self.req("POST", f"/api/environment-leases/{ident(self.held)}/snapshot", {"name": "a.b-c_1"})
        self.assert_error(answer, 409, 'There is a snapshot "a.b-c_1" already.')
        for bad in ("../x", ".x", "a b", "", "x" * 65, "00000000-0000-4000-8000-000000000001"):
            answer = self.req("POST", f"/api/environment-leases/{ident(self.held)}/snapshot", {"name": bad})
            self.assertIn(answer.status, (400, 422), bad)
        self.assertEqual([s["name"] for s in self.ok("GET", self.snapshots())], ["a.b-c_1"])

    def test_what_is_written_in_memory_cannot_be_kept(self):
        env = self.sandbox_environment(name="memory", storage="memory")
        answer = self.req("POST", f"/api/environment-leases/{ident(self.acquire(env))}/snapshot", {"name": "x"})
        self.assert_error(answer, 422, 'Only a sandbox with storage "disk" can be kept as a snapshot.')

    def test_another_company_has_its_own(self):
        self.snapshot("mine")
        other = self.company("Other")
        env = self.environment(other, config={"provider": "berth", "snapshot": "mine"})
        answer = self.req("POST", f"/api/environments/{ident(env)}/leases", {})
        self.assert_error(answer, 422, 'There is no snapshot "mine" to start from in this company.')
        self.assertEqual(self.ok("GET", f"/api/companies/{ident(other)}/environment-snapshots"), [])
        answer = self.req("GET", f"/api/companies/{ident(other)}/environment-snapshots/mine")
        self.assert_status(answer, 404)

    def test_a_paused_lease_stays_paused(self):
        run = self.detach("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done")
        wait_until(lambda: self.output(run), "it prints")
        lease = f"/api/environment-leases/{ident(self.held)}"
        self.ok("POST", f"{lease}/pause", {})
        before = wait_until(lambda: (text := self.output(run)) == self.output(run) and text, "what was on its way came")
        self.snapshot("paused")
        self.assertEqual(self.output(run), before)
        self.assert_error(self.execute("true"), 409, "The lease is paused; resume it first.")
        self.ok("POST", f"{lease}/resume", {})

    def test_paging(self):
        for name in ("a", "b", "c"):
            self.snapshot(name)
        first = self.req("GET", f"{self.snapshots()}?limit=2")
        self.assertEqual([s["name"] for s in first.json], ["c", "b"])
        rest = self.req("GET", f"{self.snapshots()}?limit=2&cursor={first.headers['X-Next-Cursor']}")
        self.assertEqual([s["name"] for s in rest.json], ["a"])

    def test_the_command_line(self):
        status, out, err = self.cli("lease", "snapshot", ident(self.held), "cli", "--json")
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out)["name"], "cli")
        status, out, _ = self.cli("snapshot", "list")
        self.assertIn("cli", out)
        self.assertEqual(self.cli("snapshot", "show", "cli")[0], 0)
        self.assertEqual(self.cli("snapshot", "delete", "cli")[0], 0)
        self.assertEqual(self.cli("snapshot", "show", "cli")[0], 5)


class PoolBase(SandboxTest):
    config = {"poolSize": 2}

    def stock(self):
        return [p["id"] for p in self.places("policy = 'stock' AND state = 'ready'")]

    def stock_is(self, n):
        wait_until(lambda: len(self.stock()) == n and len(self.places("policy = 'stock'")) >= n, f"{n} in advance")
        return set(self.stock())


class PoolTest(PoolBase):
    def test_a_lease_takes_one_and_another_is_made(self):
        ready = self.stock_is(2)
        held = self.acquire(self.env)
        self.assertIn(self.place(held), ready)
        self.assertEqual(self.places(f"id = '{self.place(held)}'")[0]["policy"], "ephemeral")
        self.assertNotIn("resumedLease", self.metadata(held))
        self.assertEqual(self.metadata(held)["isolation"], "shared kernel")
        self.assertEqual(self.sh("echo hi; ls -A /workspace ~", lease=held)["stdout"], "hi\n/home/agent:\n\n/workspace:\n")
        self.assertNotIn(self.place(held), self.stock_is(2))

    def test_a_used_one_never_comes_back(self):
        self.stock_is(2)
        held = self.acquire(self.env)
        place = self.place(held)
        self.release(held)
        self.assertNotIn(place, self.sandboxes())
        self.assertNotIn(place, self.stock_is(2))

    def test_two_take_two(self):
        self.stock_is(2)
        self.assertEqual(len({self.place(self.acquire(self.env)) for _ in range(4)}), 4)

    def test_one_key_takes_one(self):
        self.stock_is(2)
        first = self.acquire(self.env, idempotencyKey="k")
        again = self.ok("POST", f"/api/environments/{ident(self.env)}/leases", {"idempotencyKey": "k"})
        self.assertEqual(ident(first), ident(again))

    def test_one_that_died_is_not_given_out(self):
        for place in self.stock_is(2):
            pid = int((self.daemon.data / "sandboxes" / place / "box" / "pid").read_text().split()[0])
            os.kill(pid, 9)
            wait_until(lambda: process_state(pid) in (None, "Z"), "the box is dead")
        held = self.acquire(self.env)
        self.assertEqual(self.sh("echo alive", lease=held)["stdout"], "alive\n")

    def test_a_restart_keeps_them(self):
        ready = self.stock_is(2)
        self.daemon.restart(crash=True)
        self.assertEqual(self.stock_is(2), ready)
        self.assertIn(self.place(self.acquire(self.env)), ready)

    def test_a_smaller_pool_and_another_configuration(self):
        ready = self.stock_is(2)
        self.ok("PATCH", f"/api/environments/{ident(self.env)}", {"config": {"poolSize": 1}})
        self.assertLess(self.stock_is(1), ready)
        self.ok("PATCH", f"/api/environments/{ident(self.env)}", {"config": {"memoryMb": 64}})
        wait_until(lambda: self.stock() and not ready & set(self.stock()), "made anew")

    def test_an_archived_environment_has_none(self):
        self.stock_is(2)
        self.ok("PATCH", f"/api/environments/{ident(self.env)}", {"status": "archived"})
        self.stock_is(0)

    def test_deleting_the_environment_ends_the_pool(self):
        """The pool makes new ones while the deletion gives up the others: leases that take from it make sure of that."""
        for n in range(5):
            env = self.sandbox_environment(name=f"pool {n}", poolSize=3)
            where = f"environment_id = '{ident(env)}' AND state = 'ready'"
            wait_until(lambda w=where: len(self.places(w)) == 3, "three in advance")
            for _ in range(2):
                self.acquire(env)
            self.ok("DELETE", f"/api/environments/{ident(env)}?closeLeases=true")
            self.assertEqual(self.places(f"environment_id = '{ident(env)}' AND state <> 'gone'"), [])


class SmallPoolTest(PoolBase):
    """The daemon's own bound."""

    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_SANDBOX_POOL_MAX": "1"}

    def test_the_daemon_bounds_it(self):
        self.stock_is(1)


class ReusePoolTest(PoolBase):
    """With reuse, the first run takes one from the pool, and the place is the environment's from then on."""

    config = {"poolSize": 1, "reuseLease": True}

    def test_from_the_pool_into_reuse(self):
        self.stock_is(1)
        held = self.acquire(self.env, heartbeatRunId=RUN_A)
        place = self.place(held)
        self.sh("echo x > note", lease=held)
        self.release(held)
        self.stock_is(1)
        again = self.acquire(self.env, heartbeatRunId=RUN_B)
        self.assertEqual(self.place(again), place)
        self.assertEqual(self.sh("cat note", lease=again)["stdout"], "x\n")


if __name__ == "__main__":
    unittest.main()
