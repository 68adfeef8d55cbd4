"""Forks: new sandboxes with the files of a living one, or of a snapshot, each going its own way."""
# share 3: 5 s of processor time

import json
import os
import unittest

from berthtest import ident, wait_until
from imagestore import ImagesTest
from imagetest import layer
from sandboxtest import SandboxTest
from workspacetest import WorkspaceTest, contents

# Every file with its kind, mode, owners, links, size and content.
LOOK = ("find ~ /workspace /tmp -type d -printf '%p %m %U %G\\n' -o -printf '%p %y %m %U %G %n %l %s\\n' | sort; "
        "find ~ /workspace /tmp -type f -print0 | sort -z | xargs -0 sha256sum")
MAKE = ("umask 022; cd ~; mkdir -p d/e; echo one > d/one; chmod 640 d/one; ln d/one d/hard; ln -s d/one soft; chmod 2750 d/e; "
        "mkfifo d/pipe; echo work > /workspace/w; mkdir -m 700 /workspace/in; echo x > /workspace/in/x; echo t > /tmp/t; "
        "chmod 711 /workspace")


@unittest.skipUnless(os.geteuid() == 0, "only root can show files with other owners")
class ForkTest(SandboxTest):
    config = {"storage": "disk"}

    def fork(self, lease=None, status=201, **body):
        return self.ok("POST", f"/api/environment-leases/{ident(lease or self.held)}/fork", body, status)

    def out(self, command, lease=None):
        return self.sh(command, lease=lease or self.held)["stdout"]

    def bases(self):
        return self.daemon.sql("SELECT * FROM snapshots WHERE fork_by IS NOT NULL")

    def files_of_bases(self):
        return list((self.daemon.data / "snapshots").glob("*"))

    def nothing_left(self):
        for lease in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.release(lease["id"])
        wait_until(lambda: not self.bases(), "what the forks stood on is gone")
        super().nothing_left()
        self.assertEqual(self.files_of_bases(), [])

    def test_each_has_the_files_and_goes_its_own_way(self):
        self.sh(MAKE)
        was = self.out(LOOK)
        self.assertIn("/home/agent/d/one f 640 1000 1000 2  4", was)
        forks = self.fork(count=3)
        self.assertEqual(len({self.place(f) for f in forks} | {self.place()}), 4)
        for f in forks:
            self.assertEqual(self.out(LOOK, f), was)
            told = self.metadata(f)["fork"]
            self.assertEqual((told["leaseId"], told["filesBy"] in ("copy", "reflink")), (ident(self.held), True))
        self.assertEqual(len(self.bases()), 1)  # once, however many forks
        for i, f in enumerate(forks):
            self.sh(f"echo {i} > ~/d/one; echo {i} > /workspace/w; echo {i} > /tmp/t; rm -r /workspace/in; echo {i} > ~/new", lease=f)
        self.sh("echo source > ~/later")
        for i, f in enumerate(forks):
            read = self.out("cat ~/d/one /workspace/w /tmp/t ~/new; ls -A /workspace; ls ~", f)
            self.assertEqual(read, f"{i}\n" * 4 + "w\nd\nnew\nsoft\n")
        self.sh("rm ~/later")
        self.assertEqual(self.out(LOOK), was)

    def test_the_source_ends_and_a_fork_is_forked(self):
        self.sh("echo a > ~/a; echo b > ~/b; echo w > w; echo t > /tmp/t")
        first = self.fork()[0]
        self.release(self.held)
        self.sh("rm ~/b w /tmp/t; echo c > ~/c; echo v > v", lease=first)
        second = self.fork(first, count=2)
        self.release(first)
        for f in second:
            self.assertEqual(self.out("cd; cat a c; ls -A; ls -A /workspace /tmp", f), "a\nc\na\nc\n/tmp:\n\n/workspace:\nv\n")
        self.assertEqual(len(self.bases()), 2)  # one on the other
        self.ok("POST", f"/api/environment-leases/{ident(second[0])}/snapshot", {"name": "kept"}, 201)
        for f in second:
            self.release(f)
        env = self.sandbox_environment(name="from", snapshot="kept")
        self.held = self.acquire(env)
        self.assertEqual(self.out("cd; ls -A; ls -A /workspace /tmp"), "a\nc\n/tmp:\n\n/workspace:\n")
        self.assertEqual(len(self.bases()), 2)  # the snapshot stands on them
        self.release(self.held)
        self.ok("DELETE", f"/api/companies/{ident(self.acme)}/environment-snapshots/kept")

    def test_a_running_command_and_a_paused_source(self):
        run = self.detach("while sleep 0.01; do echo x >> ~/grows; done")
        wait_until(lambda: self.out("cat ~/grows; true") != "", "it writes")
        fork = self.fork()[0]
        size = self.out("stat -c %s ~/grows")
        wait_until(lambda: self.out("stat -c %s ~/grows") != size, "the source goes on")
        still = self.out("stat -c %s ~/grows; cat /proc/[0-9]*/comm", fork)
        self.assertNotIn("sleep", still)
        self.assertEqual(self.out("stat -c %s ~/grows; cat /proc/[0-9]*/comm", fork), still)
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/pause", {})
        self.fork()
        self.assertEqual(self.execution(run)["status"], "running")
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/resume", {})

    def test_memory(self):
        """Without storage on disk the files are read as the sandbox shows them."""
        env = self.sandbox_environment(name="memory", storage="memory")
        source = self.acquire(env)
        self.sh(MAKE, lease=source)
        was = self.out(LOOK, source)
        forks = self.fork(source, count=2)
        self.release(source)
        again = self.fork(forks[0])[0]
        self.sh("rm -r ~/d; echo y > /workspace/in/x", lease=forks[0])
        for f in (forks[1], again):
            self.assertEqual(self.out(LOOK, f), was)

    def test_from_a_snapshot(self):
        self.sh("echo one > ~/file; echo w > w")
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/snapshot", {"name": "tools"}, 201)
        path = f"/api/companies/{ident(self.acme)}/environment-snapshots/tools/fork"
        body = {"environmentId": ident(self.env), "count": 2, "idempotencyKey": "k"}
        forks = self.ok("POST", path, body, 201)
        self.assertEqual([ident(f) for f in self.ok("POST", path, body, 200)], [ident(f) for f in forks])
        for f in forks:
            self.assertEqual(self.out("cat ~/file; ls -A /workspace", f), "one\n")
            self.release(f)
        self.assertEqual(self.bases(), [])
        self.ok("DELETE", f"/api/companies/{ident(self.acme)}/environment-snapshots/tools")

    def test_a_key_gives_the_same_forks(self):
        forks = self.fork(count=2, idempotencyKey="k")
        again = self.fork(count=2, idempotencyKey="k", status=200)
        self.assertEqual([ident(f) for f in again], [ident(f) for f in forks])
        more = self.fork(count=3, idempotencyKey="k")
        self.assertEqual([ident(f) for f in more[:2]], [ident(f) for f in forks])
        self.assertEqual(len(self.bases()), 1)
        self.assertNotIn(ident(self.fork(idempotencyKey="other")[0]), [ident(f) for f in more])

    def test_the_command_line(self):
        self.sh("echo x > ~/x")
        status, out, err = self.daemon.cli("fork", ident(self.held), "-n", "2", "--ttl", "5m", "--json")
        self.assertEqual(status, 0, err)
        for fork in json.loads(out):
            self.assertEqual(self.out("cat ~/x", fork), "x\n")
        status, out, err = self.daemon.cli("fork", ident(self.held))
        self.assertRegex(out, r"(?m)^ID +ENVIRONMENT +STATUS +FILES +EXPIRES\n\S+ +box +active +(copy|reflink) ", err)

    def test_a_company_takes_them_along(self):
        """What stands on one another goes in the right order: a snapshot of a fork, what the fork stood on, a snapshot below."""
        snapshots = f"/api/companies/{ident(self.acme)}/environment-snapshots"
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/snapshot", {"name": "below"}, 201)
        source = self.ok("POST", f"{snapshots}/below/fork", {"environmentId": ident(self.env)}, 201)[0]
        fork = self.fork(source)[0]
        self.ok("POST", f"/api/environment-leases/{ident(fork)}/snapshot", {"name": "above"}, 201)
        self.assertEqual([s["name"] for s in self.ok("GET", snapshots)], ["above", "below"])
        self.assert_status(self.req("DELETE", f"{snapshots}/{self.bases()[0]['id']}"), 404)
        self.operator("DELETE", f"/api/companies/{ident(self.acme)}?confirm={ident(self.acme)}")
        self.assertEqual(self.daemon.sql("SELECT id FROM snapshots"), [])

    def test_what_is_refused(self):
        path = f"/api/environment-leases/{ident(self.held)}/fork"
        for count in (0, 33, "2"):
            self.assert_status(self.req("POST", path, {"count": count}), 400)
        self.assert_status(self.req("POST", path, {"config": {}}), 400)
        local = self.acquire(next(e for e in self.ok("GET", f"/api/companies/{ident(self.acme)}/environments")
                                  if e["driver"] == "local"))
        answer = self.req("POST", f"/api/environment-leases/{ident(local)}/fork", {})
        self.assert_error(answer, 422, contains='driver "local" does not support forks')
        self.release(self.held)
        self.assert_status(self.req("POST", path, {}), 409)
        self.assertEqual(self.bases(), [])

    def test_fifty_thousand_files_cost_their_blocks_once_at_most(self):
        """Counted by what the data directory takes: eight forks take no more than one."""
        self.sh("mkdir f && cd f && seq 50000 | split -l 1 -a 4 - x", timeoutMs=600000)
        one = self.fork()
        base = self.used()
        self.fork(one[0], count=8)
        self.assertLess(self.used() - base, 4 << 20)

    def used(self):
        return sum(os.lstat(os.path.join(folder, name)).st_blocks * 512
                   for folder, inner, files in os.walk(self.daemon.data) for name in inner + files)


@unittest.skipUnless(os.geteuid() == 0, "only root can show files with other owners")
class StagedTest(WorkspaceTest):
    config = {"storage": "disk"}

    def test_a_staged_workspace_is_taken_as_it_looks(self):
        self.put("kept", "k\n")
        self.put("gone", "g\n")
        self.stage()
        self.sh("rm gone; echo new > new; echo home > ~/h")
        forks = self.ok("POST", f"/api/environment-leases/{ident(self.held)}/fork", {"count": 2}, 201)
        again = self.ok("POST", f"/api/environment-leases/{ident(forks[0])}/fork", {}, 201)[0]
        for lease in (*forks, again):
            self.assertEqual(self.sh("ls; cat kept new ~/h; echo fork > kept", lease=lease)["stdout"], "kept\nnew\nk\nnew\nhome\n")
        self.restore()
        self.assertEqual(contents(self.dir), {"kept": "k\n", "new": "new\n"})  # nothing of a fork comes home
        for lease in (*forks, again):
            self.release(lease)


@unittest.skipUnless(os.geteuid() == 0, "only root can show files with other owners")
class FewIdsTest(SandboxTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_SANDBOX_UID_FIRST": "1900100000",
                  "BERTH_SANDBOX_UID_COUNT": "8192", "BERTH_SANDBOX_IDS_PER_BOX": "2048"}

    def test_all_or_none(self):
        """The fourth finds the machine's ids used up: the first three go, and their files."""
        answer = self.req("POST", f"/api/environment-leases/{ident(self.held)}/fork", {"count": 4})
        self.assert_error(answer, 503, contains="ranges of host ids are in use")
        active = self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'")
        self.assertEqual([row["id"] for row in active], [ident(self.held)])
        self.assertEqual(len(self.daemon.sql("SELECT id FROM environment_leases")), 4)
        wait_until(lambda: not self.daemon.sql("SELECT id FROM snapshots"), "the files are gone")
        self.assertEqual(list((self.daemon.data / "snapshots").glob("*")), [])


@unittest.skipUnless(os.geteuid() == 0, "only root can show files with other owners")
class ImageTest(ImagesTest):
    def test_a_fork_has_the_image_of_its_source(self):
        reference = self.put("tools", layer({"etc/image": b"image"}))
        source = self.acquire(self.sandbox_environment(image=reference, storage="disk"))
        self.inside(source, "echo w > /etc/written; echo t > /tmp/t; echo k > /workspace/k")
        fork = self.ok("POST", f"/api/environment-leases/{ident(source)}/fork", {}, 201)[0]
        look = "cat /etc/image /etc/written /tmp/t /workspace/k; id -u; pwd"
        was = self.inside(source, look)
        self.assertIn("imagew\nt\nk\n", was)
        self.assertEqual(self.inside(fork, look), was)
        memory = self.acquire(self.sandbox_environment("memory", image=reference))
        answer = self.req("POST", f"/api/environment-leases/{ident(memory)}/fork", {})
        self.assert_error(answer, 422, contains='only with storage "disk"')


class OrdinaryUserTest(ImagesTest):
    as_user = True

    def test_it_says_why_not(self):
        lease = self.acquire(self.sandbox_environment())
        answer = self.req("POST", f"/api/environment-leases/{ident(lease)}/fork", {})
        self.assert_error(answer, 422, contains="Only a daemon that is root can fork a sandbox")
        self.assertEqual(self.daemon.sql("SELECT id FROM snapshots"), [])


if __name__ == "__main__":
    unittest.main()
