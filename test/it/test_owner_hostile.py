"""A company's owner is not the user that the daemon runs as: in authenticated mode he gets neither this machine, nor what
is the daemon's own, nor what is another company's."""

import os
import pathlib
import subprocess
import unittest
import uuid

from berthtest import BerthTest, ident

KEY = "secrets/master.key"


class OwnerTest(BerthTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_SWEEP_INTERVAL_MS": "50"}
    daemon_flags = ("--mode", "authenticated")
    daemon_autostart = False
    roots = "{home}"

    def setUp(self):
        super().setUp()
        self.home = self.temp_dir()
        self.daemon.env = {**self.daemon.env, **self.settings()}
        self.daemon.start()
        self.acme = self.operator("POST", "/api/companies", {"name": "Acme"}, 201)
        self.owner = self.board_user(self.acme, "olga", role="owner")["token"]

    def settings(self):
        return {"BERTH_WORKSPACE_ROOTS": f"/tmp:/dev/shm:{self.home}:{self.daemon.data.parent}:{self.daemon.data}"}

    def own(self, method, path, body=None, status=200):
        return self.ok(method, path, body, status=status, token=self.owner)

    def asks(self, method, path, body=None):
        return self.req(method, path, body, token=self.owner)

    def env(self, driver="sandbox", **config):
        return self.own("POST", f"/api/companies/{self.acme['id']}/environments",
                        {"name": f"{driver}-{os.urandom(3).hex()}", "driver": driver,
                         "config": {"provider": "berth", **config}}, 201)

    def local(self):
        listed = self.operator("GET", f"/api/companies/{self.acme['id']}/environments")
        return next(e for e in listed if e["driver"] == "local")

    def lease(self, env=None):
        lease = self.own("POST", f"/api/environments/{ident(env or self.env())}/leases", {}, 201)["lease"]
        self.give_up(lease)
        return lease

    def give_up(self, lease):
        daemon = self.daemon
        self.addCleanup(lambda: daemon.running() and daemon.req_unix("POST", f"/api/environment-leases/{lease['id']}/destroy"))

    def stage(self, lease, path, **body):
        return self.asks("POST", f"/api/environment-leases/{lease['id']}/workspace/stage", {"localPath": str(path), **body})

    def sh(self, lease, script):
        return self.own("POST", f"/api/environment-leases/{lease['id']}/execute",
                        {"command": "sh", "args": ["-c", script]})["stdout"]


@unittest.skipUnless(os.geteuid() == 0, "needs a daemon that is root, for overlays and mounts")
class OwnFilesTest(OwnerTest):
    """What is the daemon's own is in no workspace, by whatever name it is called."""

    def assert_kept(self, answer):
        self.assert_error(answer, 422, contains="belongs to the daemon itself")

    def mount(self, source, target):
        done = subprocess.run(["mount", "--bind", str(source), str(target)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"mount: {done.stderr}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(target)], check=True)

    def test_names_of_the_data_directory(self):
        data = self.daemon.data
        link = self.home / "link"
        link.symlink_to(data)
        inner = self.home / "inner"
        inner.symlink_to(data / "secrets")
        above = data.parent
        lease = self.lease()
        for path in (data, data / "secrets", data / "boxes", above, f"{data}/../{data.name}", f"{data}/.", f"{data}//"):
            self.assert_kept(self.stage(lease, path))
            for isolation in ("overlay", "copy"):
                self.assert_kept(self.stage(lease, path, isolation=isolation))
            self.assert_kept(self.asks("POST", f"/api/environment-leases/{lease['id']}/realize-workspace",
                                       {"workspace": {"localPath": str(path)}}))
        for path in (link, inner):  # out of its root, or into the daemon's
            self.assert_status(self.stage(lease, path), 422)

    def test_bind_mounts(self):
        data, lease = self.daemon.data, self.lease()
        whole, part = self.home / "whole", self.home / "part"
        for folder in (whole, part):
            folder.mkdir()
        self.mount(data, whole)
        self.mount(data / "secrets", part)
        self.assertTrue((part / "master.key").exists())
        for path in (whole, part, whole / "secrets", self.home / "whole" / "boxes"):
            self.assert_kept(self.stage(lease, path))
        # What is mounted inside of one is not part of it.
        (self.home / "own").write_text("mine")
        for isolation in ("overlay", "copy"):
            self.assert_status(self.stage(lease, self.home, isolation=isolation), 200)
            self.assertEqual(self.sh(lease, "cat own; find . -type f | grep -v '^./own$'"), "mine")

    def test_the_directory_below_a_mounted_one(self):
        """The data directory is itself mounted from elsewhere: there it is the daemon's too."""
        below = self.home / "srv" / "x"
        (below / "data").mkdir(parents=True)
        there = self.home / "mounted"
        there.mkdir()
        self.mount(below / "data", there)
        second = self.new_daemon(data=there, env={**self.daemon.env}, flags=self.daemon_flags)
        second.start()
        self.daemon = second
        self.acme = self.operator("POST", "/api/companies", {"name": "Acme"}, 201)
        self.owner = self.board_user(self.acme, "olga", role="owner")["token"]
        lease = self.lease()
        for path in (below, below / "data", below / "data" / "secrets", self.home / "srv"):
            self.assert_kept(self.stage(lease, path))

    def test_another_name_of_a_key(self):
        key = self.daemon.data / KEY
        os.link(key, self.home / "innocent")
        (self.home / "other").write_text("mine")
        for isolation in ("overlay", "copy"):
            lease = self.lease()
            self.assert_status(self.stage(lease, self.home, isolation=isolation), 200)
            self.assertEqual(self.sh(lease, "ls -A | grep -v paperclip"), "other\n")
            self.sh(lease, "echo new >new")
            self.own("POST", f"/api/environment-leases/{lease['id']}/workspace/restore", {})
            self.assertEqual((self.home / "innocent").stat().st_ino, key.stat().st_ino, "it is nobody's to delete")
            self.assertEqual((self.home / "new").read_text(), "new\n")
            (self.home / "new").unlink()

    def test_restoring_into_it(self):
        lease = self.lease()
        self.assert_status(self.stage(lease, self.home), 200)
        self.sh(lease, "echo 'mode = \"local_trusted\"' >berth.toml")
        for path in (self.daemon.data, self.daemon.data.parent):
            self.assert_kept(self.asks("POST", f"/api/environment-leases/{lease['id']}/workspace/restore",
                                       {"localPath": str(path)}))
        self.own("POST", f"/api/environment-leases/{lease['id']}/release", {})
        saved = self.own("GET", f"/api/companies/{self.acme['id']}/salvages")
        self.assertEqual(len(saved), 1)
        self.assert_kept(self.asks("POST", f"/api/salvages/{saved[0]['id']}/apply", {"localPath": str(self.daemon.data)}))
        self.assertFalse((self.daemon.data / "berth.toml").exists())

    def test_a_directory_that_is_replaced_meanwhile(self):
        """A part of the path becomes a link between staging and restoring."""
        work = self.home / "a" / "b"
        work.mkdir(parents=True)
        lease = self.lease()
        self.assert_status(self.stage(lease, work), 200)
        self.sh(lease, "echo x >berth.toml")
        (self.home / "a").rename(self.home / "was")
        (self.home / "a").mkdir()
        (self.home / "a" / "b").symlink_to(self.daemon.data)
        answer = self.asks("POST", f"/api/environment-leases/{lease['id']}/workspace/restore", {})
        self.assertIn(answer.status, (409, 422), answer.body)
        self.assertFalse((self.daemon.data / "berth.toml").exists())

    def test_the_root_of_a_sandbox(self):
        answer = self.asks("POST", f"/api/companies/{self.acme['id']}/environments",
                           {"name": "r", "driver": "sandbox",
                            "config": {"provider": "berth", "rootfs": str(self.daemon.data / "secrets")}})
        self.assertIn(answer.status, (400, 422))
        self.daemon.stop()
        self.daemon.env["BERTH_SANDBOX_ROOTFS_DIRS"] = str(self.daemon.data)
        self.daemon.start()
        (self.daemon.data / "rootfs" / "good").mkdir(parents=True)
        for path in (self.daemon.data, self.daemon.data / "secrets"):
            answer = self.asks("POST", f"/api/companies/{self.acme['id']}/environments",
                               {"name": f"r{path.name}", "driver": "sandbox",
                                "config": {"provider": "berth", "rootfs": str(path)}})
            self.assertIn("belongs to the daemon itself", answer.text)
        self.env(rootfs=str(self.daemon.data / "rootfs" / "good"))


@unittest.skipUnless(os.geteuid() == 0, "needs a daemon that is root")
class KeyElsewhereTest(OwnerTest):
    """The master key, the database and the plugins may lie anywhere."""

    def settings(self):
        for name in ("keys", "db", "plugins", "real"):
            (self.home / name).mkdir()
        (self.home / "real" / "key").write_bytes(os.urandom(16).hex().encode())
        (self.home / "real" / "key").chmod(0o600)
        (self.home / "keys" / "key").symlink_to(self.home / "real" / "key")
        return {**super().settings(), "BERTH_SECRETS_KEY_FILE": str(self.home / "keys" / "key"),
                "BERTH_DATABASE": str(self.home / "db" / "berth.db"), "BERTH_PLUGIN_DIR": str(self.home / "plugins")}

    def test_where_they_are(self):
        lease = self.lease()
        (self.home / "free").mkdir()
        (self.home / "plugins" / "one").mkdir(exist_ok=True)
        self.assert_status(self.stage(lease, self.home / "free"), 200)
        for name in ("", "keys", "real", "db", "plugins", "plugins/one"):
            self.assert_error(self.stage(lease, self.home / name), 422, contains="belongs to the daemon itself")


class RootsTest(OwnerTest):
    """Directories of this machine are a company's."""

    def settings(self):
        self.other_id = str(uuid.uuid4())
        for name in ("all", "others", "each"):
            (self.home / name).mkdir()
        return {"BERTH_WORKSPACE_ROOTS": f"{self.home}/all:{self.other_id}={self.home}/others:{self.home}/each/{{company}}"}

    def test_each_has_its_own(self):
        lease = self.lease()
        globex = self.operator("POST", "/api/companies", {"name": "Globex"}, 201)
        for company in (self.acme, globex):
            (self.home / "each" / company["id"] / "work").mkdir(parents=True)
        self.assert_status(self.stage(lease, self.home / "all"), 200)
        self.assert_status(self.stage(lease, self.home / "each" / self.acme["id"] / "work"), 200)
        for path in (self.home / "each" / globex["id"] / "work", self.home / "each", self.home / "others",
                     f"{self.home}/each/{self.acme['id']}/../{globex['id']}"):
            answer = self.stage(lease, path)
            self.assert_error(answer, 422, contains="beneath the allowed roots")
            self.assertNotIn(globex["id"], answer.error.replace(str(path), ""))
            self.assertNotIn("others", answer.error.replace(str(path), ""))
        self.daemon.stop()
        self.daemon.env["BERTH_WORKSPACE_ROOTS"] = f"{self.acme['id']}={self.home}/others:{self.home}/all"
        self.daemon.start()
        self.assert_status(self.stage(lease, self.home / "others"), 200)


class DefaultRootsTest(OwnerTest):
    def settings(self):
        return {"HOME": str(self.home)}

    def test_nothing_is_shared_by_default(self):
        lease = self.lease()
        own = self.home / "berth" / self.acme["id"]
        own.mkdir(parents=True)
        (self.home / "private").mkdir()
        self.assert_status(self.stage(lease, own), 200)
        for path in (self.home, self.home / "private", self.home / "berth", "/tmp"):
            self.assert_error(self.stage(lease, path), 422, contains="beneath the allowed roots")


if __name__ == "__main__":
    unittest.main()
