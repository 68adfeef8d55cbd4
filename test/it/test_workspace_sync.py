"""Workspaces that are moved by the file worker of a box: the local driver with isolation "copy"."""
# threads: an operation that moves files over a stream of the loop

import hashlib
import os
import pathlib
import unittest

from berthtest import BerthTest, ident, wait_until


class SyncTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.dir = self.temp_dir()
        self.c = self.company()
        self.env = next(e for e in self.ok("GET", f"/api/companies/{self.c['id']}/environments")
                        if e["driver"] == "local")
        self.lease_id = ident(self.acquire(self.env))
        self.addCleanup(self.release, self.lease_id)

    def path(self, rest=""):
        return f"/api/environment-leases/{self.lease_id}/workspace{rest}"

    def stage(self, **body):
        return self.ok("POST", self.path("/stage"),
                       {"localPath": str(self.dir), "isolation": "copy", **body})

    def sh(self, script):
        done = self.ok("POST", f"/api/environment-leases/{self.lease_id}/execute",
                       {"command": "sh", "args": ["-c", script]})
        self.assertEqual(done["exitCode"], 0, done)
        return done["stdout"]

    def restore(self):
        return self.ok("POST", self.path("/restore"), {})

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a directory to somebody else")
    def test_what_its_owner_cannot_read_is_not_sent(self):
        """Files of root's that he moved there: a daemon of root's reads with his rights."""
        os.chmod(self.dir.parent, 0o711)
        for name, mode in {"own": 0o600, "open": 0o644, "secret": 0o600, "closed/file": 0o644}.items():
            (self.dir / name).parent.mkdir(exist_ok=True)
            (self.dir / name).write_text(f"{name}\n")
            (self.dir / name).chmod(mode)
        (self.dir / "closed").chmod(0o700)
        for path in (self.dir, self.dir / "own"):
            os.chown(path, 65534, 65534)
        cwd = self.stage()["cwd"]
        self.assertEqual(self.sh(f"cd '{cwd}' && cat own open; cat secret closed/file 2>/dev/null; :"), "own\nopen\n")

    # remote-execution 8.1, 8.2, 8.4, 8.5
    def test_there_and_back(self):
        (self.dir / "README").write_text("hello\n")
        (self.dir / ".paperclip-runtime").mkdir()
        (self.dir / ".paperclip-runtime/state.json").write_text("local")
        (self.dir / "sub").mkdir()
        (self.dir / "sub/gone").write_text("x")
        staged = self.stage()
        self.assertEqual(staged["way"], "sync")
        self.assertNotEqual(staged["cwd"], str(self.dir))
        self.assertEqual(self.sh("cat README; ls -a"), "hello\n.\n..\nREADME\nsub\n")
        self.sh("echo more >> README; rm sub/gone; mkdir -p new/dir; echo 1 > new/dir/file; ln -s file new/dir/link;"
                "mkdir .paperclip-runtime; echo remote > .paperclip-runtime/other; chmod 755 README")
        self.assertEqual((self.dir / "README").read_text(), "hello\n")
        report = self.restore()
        self.assertEqual(report["conflicts"], [])
        self.assertEqual((self.dir / "README").read_text(), "hello\nmore\n")
        self.assertTrue(os.access(self.dir / "README", os.X_OK))
        self.assertFalse((self.dir / "sub/gone").exists())
        self.assertEqual((self.dir / "new/dir/link").read_text(), "1\n")
        self.assertEqual(os.listdir(self.dir / ".paperclip-runtime"), ["state.json"])
        # And once more: only what is new since.
        self.sh("echo even more >> README")
        (self.dir / "local").write_text("kept")
        report = self.restore()
        self.assertEqual((report["added"], report["changed"], report["deleted"]), (0, 1, 0))
        self.assertEqual((self.dir / "README").read_text(), "hello\nmore\neven more\n")
        self.assertEqual((self.dir / "local").read_text(), "kept")

    # remote-execution 8.10
    def test_what_is_left_out_and_links(self):
        (self.dir / "._junk").write_text("x")
        (self.dir / ".claude").mkdir()
        (self.dir / ".claude/settings.json").write_text("x")
        (self.dir / "real").write_text("content")
        (self.dir / "link").symlink_to("real")
        self.stage(exclude=[".claude"])
        self.assertEqual(self.sh("ls -A; readlink link"), "link\nreal\nreal\n")
        self.restore()
        self.assertTrue((self.dir / ".claude/settings.json").exists())

    def test_a_large_file_comes_back_by_its_chunks(self):
        (self.dir / "large").write_bytes(os.urandom(4 << 20))
        self.stage()
        self.sh("printf X | dd of=large bs=1 seek=2000000 conv=notrunc 2>/dev/null")
        self.restore()
        self.assertEqual((self.dir / "large").read_bytes()[2000000:2000001], b"X")
        self.assertEqual((self.dir / "large").stat().st_size, 4 << 20)

    def test_a_release_without_a_restore_saves(self):
        (self.dir / "file").write_text("x")
        self.stage()
        self.sh("echo changed > file")
        self.release(self.lease_id)
        salvages = self.ok("GET", f"/api/companies/{self.c['id']}/salvages")
        self.assertEqual(len(salvages), 1)
        self.ok("POST", f"/api/salvages/{salvages[0]['id']}/apply", {})
        self.assertEqual((self.dir / "file").read_text(), "changed\n")

    def test_what_was_fetched_in_vain_does_not_become_the_baseline(self):
        """A restore stops after it fetched; when the lease ends, fetching again stops half way, for a reason of ours. What was
        written between the two is saved all the same."""
        def digest(data, size):
            return hashlib.blake2b(data, digest_size=size).hexdigest()

        (self.dir / "a").write_text("0\n")
        self.stage()
        [mine] = (self.daemon.data / "workspaces").iterdir()
        lock = self.daemon.data / "workspace-locks" / digest(os.fsencode(os.path.realpath(self.dir)), 16)
        self.sh("echo 1 > a")
        lock.mkdir()
        self.assertGreaterEqual(self.req("POST", self.path("/restore"), {}).status, 400)
        self.sh("echo 2 > b")
        in_the_way = mine / "fetching/files" / digest(b"2\n", 32)
        in_the_way.mkdir(parents=True)
        self.release(self.lease_id)
        wait_until(lambda: self.ok("GET", self.path())["note"] and not self.ok("GET", self.path())["progress"], "it is tried")
        self.assertIn("Could not be given up yet", self.ok("GET", self.path())["note"])
        lock.rmdir()
        in_the_way.rmdir()
        wait_until(lambda: self.ok("GET", self.path())["state"] == "ended", "it is given up", timeout=30)
        for salvage in self.ok("GET", f"/api/companies/{self.c['id']}/salvages"):
            self.ok("POST", f"/api/salvages/{salvage['id']}/apply", {})
        self.assertEqual((self.dir / "a").read_text(), "1\n")
        self.assertEqual((self.dir / "b").read_text(), "2\n")

    def test_a_way_that_this_version_does_not_know(self):
        def become(way, state, step):
            self.daemon.stop()
            with self.daemon.record() as db:
                db.execute("UPDATE workspaces SET way = ?, state = ?, step = ?", (way, state, step))
            self.daemon.start()

        self.stage()
        become("beam", "restoring", "merging")
        wait_until(lambda: "that this version does not know" in self.daemon.log(), "somebody looks at it")
        self.assertEqual(self.ok("GET", self.path())["state"], "restoring")
        become("sync", "staged", None)
        self.restore()

    def test_no_worker_is_left(self):
        (self.dir / "file").write_text("x")
        self.stage()
        box = int(self.sh("ps -o ppid= -p $$").strip())
        children = pathlib.Path(f"/proc/{box}/task/{box}/children")
        wait_until(lambda: children.read_text() == "", "the worker has ended")

    def test_the_daemon_restarts_in_between(self):
        (self.dir / "file").write_text("x")
        self.stage()
        self.daemon.restart(crash=True)
        self.sh("echo y > file")
        self.daemon.restart(crash=True)
        self.restore()
        self.assertEqual((self.dir / "file").read_text(), "y\n")


if __name__ == "__main__":
    unittest.main()
