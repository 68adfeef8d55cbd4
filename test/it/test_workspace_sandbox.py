"""Workspaces in the built-in sandbox, end to end: brought in, changed by commands, brought home, saved when nobody
brings them home."""
# share 3: 5 s of processor time

import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

import berthtest
from berthtest import ident, set_clock, wait_until
from sandboxtest import RUN_A, RUN_B
from workspacetest import WorkspaceTest, contents, tree


class RoundTripTest(WorkspaceTest):
    # remote-execution 8.2, 8.4, 8.12
    def test_changes_come_home(self):
        self.put("README", "hello\n")
        self.put("src/a.c", "a\n")
        self.put("src/old.c", "old\n")
        self.put("run.sh", "#!/bin/sh\n", 0o755)
        staged = self.stage()
        self.assertEqual(staged["cwd"], "/workspace")
        done = self.sh("pwd; cat README; echo changed > README; mkdir -p new/deep; echo n > new/deep/f; "
                       "rm src/old.c; chmod 755 src/a.c; ln -s README link")
        self.assertEqual((done["exitCode"], done["stdout"]), (0, "/workspace\nhello\n"), done)
        self.assertEqual(contents(self.dir)["README"], "hello\n")
        report = self.restore()
        self.assertEqual(report["conflicts"], [])
        self.assertEqual(report["deleted"], 1)
        self.assertEqual(tree(self.dir), {
            "README": (0o644, b"changed\n"), "src": "dir", "src/a.c": (0o755, b"a\n"), "new": "dir",
            "new/deep": "dir", "new/deep/f": (0o644, b"n\n"), "run.sh": (0o755, b"#!/bin/sh\n"),
            "link": ("link", "README")})
        st = os.stat(self.dir)
        for name in ("README", "new", "new/deep/f"):
            self.assertEqual((os.stat(self.dir / name).st_uid, os.stat(self.dir / name).st_gid),
                             (st.st_uid, st.st_gid))

    # remote-execution 8.1, 8.5, 8.14
    def test_what_is_left_out_stays_out_both_ways(self):
        self.put(".paperclip-runtime/state.json", "ours\n")
        self.put(".claude/settings.json", "ours\n")
        self.put("._junk", "junk\n")
        self.put("kept", "x\n")
        self.stage(exclude=[".claude"])
        # Nothing is copied, so names beginning with "._" are there; what is done to them does not come home.
        seen = self.sh("find . -mindepth 1 ! -name '._*' | sort")["stdout"]
        self.assertEqual(seen, "./kept\n")
        self.sh("mkdir -p .paperclip-runtime .claude; echo theirs > .paperclip-runtime/state.json; "
                "echo theirs > .paperclip-runtime/other; echo theirs > .claude/settings.json; echo y > ._other; "
                "echo z > new")
        self.restore()
        self.assertEqual(contents(self.dir), {
            ".paperclip-runtime/state.json": "ours\n", ".claude/settings.json": "ours\n", "._junk": "junk\n",
            "kept": "x\n", "new": "z\n"})

    # remote-execution 8.13
    def test_what_is_only_here_stays(self):
        self.put("a", "1\n")
        self.stage()
        self.sh("echo 2 > a")
        self.put("local-stale.txt", "mine\n")
        self.restore()
        self.assertEqual(contents(self.dir), {"a": "2\n", "local-stale.txt": "mine\n"})

    def test_changed_on_both_sides(self):
        self.put("a", "1\n")
        self.put("b", "1\n")
        self.stage()
        self.sh("echo theirs > a; rm b")
        self.put("a", "ours\n")
        self.put("b", "ours\n")
        report = self.restore()
        self.assertEqual([c["path"] for c in report["conflicts"]], ["a"])
        kept = report["conflicts"][0]["kept"]
        self.assertRegex(kept, r"^a\.berth-local-\d{8}T\d{6}Z$")
        self.assertEqual(report["left"], 1)
        self.assertEqual(contents(self.dir), {"a": "theirs\n", kept: "ours\n", "b": "ours\n"})

    def test_restoring_again_brings_what_came_since(self):
        self.put("a", "1\n")
        self.stage()
        self.sh("echo 2 > a; echo x > x")
        self.assertEqual(self.restore()["conflicts"], [])
        again = self.restore()
        self.assertEqual(self.counts(again), (0, 0, 0, 0))
        self.sh("echo 3 > a; rm x; echo y > y")
        self.assertEqual(self.restore()["conflicts"], [])
        self.assertEqual(contents(self.dir), {"a": "3\n", "y": "y\n"})
        state = self.ok("GET", self.ws())
        self.assertEqual(state["state"], "staged")
        self.assertEqual(state["lastRestore"]["deleted"], 1)
        changes = {c["path"]: c for c in state["lastRestore"]["changes"]}
        self.assertEqual({p: c["change"] for p, c in changes.items()}, {"a": "change", "x": "delete", "y": "add"})
        self.assertIn("-2\n+3", changes["a"]["diff"])

    def test_what_is_kept_of_a_restore(self):
        """Paths of all of it; no text of files whose names sound like secrets."""
        self.put("a", "1\n")
        self.stage()
        self.sh("echo 2 > a; echo hunter2 > .env; echo hunter2 > deploy.key; mkdir d; echo hunter2 > d/API_TOKEN.txt")
        self.restore()
        changes = {c["path"]: c.get("diff") for c in self.ok("GET", self.ws())["lastRestore"]["changes"]}
        self.assertEqual({p for p, diff in changes.items() if diff is None}, {".env", "d", "d/API_TOKEN.txt", "deploy.key"})
        self.assertNotIn("hunter2", str(self.daemon.sql("SELECT report FROM workspaces")))

    # remote-execution 8.15
    def test_two_stale_baselines(self):
        self.put("a", "1\n")
        other = self.acquire(self.env)
        self.stage()
        self.stage(other)
        self.sh("mkdir -p d/e; echo one > d/e/one")
        self.sh("mkdir -p d/e; echo two > d/e/two", lease=other)
        self.assertEqual(self.restore()["conflicts"], [])
        self.assertEqual(self.restore(other)["conflicts"], [])
        self.assertEqual(contents(self.dir), {"a": "1\n", "d/e/one": "one\n", "d/e/two": "two\n"})
        self.release(other)

    def test_restoring_elsewhere(self):
        self.put("a", "1\n")
        self.stage()
        self.sh("echo 2 > b")
        other = self.temp_dir()
        self.restore(localPath=str(other))
        self.assertEqual(contents(other), {"b": "2\n"})
        self.assertEqual(contents(self.dir), {"a": "1\n"})

    def test_the_difference(self):
        self.put("a", "one\n")
        self.put("gone", "x\n")
        self.stage()
        self.sh("echo two > a; rm gone; mkdir d; echo n > d/n")
        self.put("a", "ours\n")
        diff = self.ok("GET", self.ws("/diff"))
        self.assertEqual({c["path"]: c["change"] for c in diff["changes"]},
                         {"a": "change", "gone": "delete", "d": "add", "d/n": "add"})
        text = self.ok("GET", self.ws("/diff?text=1"))["changes"]
        self.assertEqual({c["path"]: c.get("diff") for c in text},
                         {"a": "@@ -1 +1 @@\n-ours\n+two\n", "gone": None, "d": None, "d/n": "@@ -0,0 +1 @@\n+n\n"})
        self.assertEqual([c["path"] for c in diff["restore"]["conflicts"]], ["a"])
        self.assertEqual(contents(self.dir), {"a": "ours\n", "gone": "x\n"})
        status, out, err = self.cli("workspace", "diff", ident(self.held))
        self.assertEqual(status, 0, err)
        self.assertIn("D gone\n", out)
        self.assertIn("A d/\n", out)
        self.assertIn("M a\n@@ -1 +1 @@\n-ours\n+two\n", out)
        self.assertIn("conflict: a", err)
        self.restore()
        self.assertEqual(self.ok("GET", self.ws("/diff"))["changes"], [])

    def test_the_command_line(self):
        self.put("a", "1\n")
        lease = ident(self.held)
        status, out, err = self.cli("workspace", "stage", lease, str(self.dir), "-x", "secret")
        self.assertEqual((status, out), (0, "/workspace\n"), err)
        self.sh("echo 2 > a; echo b > b")
        status, out, err = self.cli("workspace", "restore", lease)
        self.assertEqual(status, 0, err)
        self.assertIn("0 conflicts", out)
        self.assertEqual(contents(self.dir), {"a": "2\n", "b": "b\n"})
        status, out, err = self.cli("workspace", "show", lease)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"State +staged")
        status, out, err = self.cli("lease", "show", lease)
        self.assertIn(f"{self.dir} (staged, restored)", out)
        self.assertEqual(self.cli("workspace", "discard", lease)[0], 0)
        self.assertEqual(self.cli("workspace", "restore", lease)[0], 1)
        self.assertEqual(self.cli("workspace", "stage", lease, "/nonexistent")[0], 2)

    def test_run_brings_changes_home_whatever_the_status(self):
        self.put("a", "1\n")
        for command, status in (("echo 2 > a; cat b 2>/dev/null; exit 7", 7), ("echo b > b; kill -9 $$", 137)):
            done = self.cli("run", "--env", "box", "-w", str(self.dir), "--", "sh", "-c", command)
            self.assertEqual(done[0], status, done)
        self.assertEqual(contents(self.dir), {"a": "2\n", "b": "b\n"})
        status, out, err = self.cli("run", "--env", "box", "-w", str(self.dir), "--json", "--", "sh", "-c",
                                    f"echo 3 > a; echo ours >&2")
        result = json.loads(out)
        self.assertEqual(status, 0, err)
        self.assertEqual(result["stage"]["cwd"], "/workspace")
        self.assertEqual(result["restore"]["conflicts"], [])
        self.assertEqual(self.salvages(), [])


def box_between():
    """A daemon whose box runs `before` and `after`, beside itself, around the showing of a workspace: its binary."""
    name = "between"
    if name not in berthtest.BINARIES:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="between-"))
        real = os.environ.get("BERTH_BOX_BIN") or str(pathlib.Path(berthtest.BINARIES["normal"]).parent / "berth-box")
        shutil.copy2(berthtest.BINARIES["normal"], folder / "berth")
        wrapper = folder / "berth-box"
        wrapper.write_text('#!/bin/sh\ncase "$*" in *--lower*) ;; *) exec "$0.real" "$@" ;; esac\n'
                           '"${0%/*}/before"; "$0.real" "$@"; status=$?; "${0%/*}/after"; exit $status\n')
        wrapper.chmod(0o755)
        (folder / "berth-box.real").symlink_to(real)
        berthtest.BINARIES[name] = str(folder / "berth")
    return name


class SwappedTest(WorkspaceTest):
    daemon_binary = box_between()

    def test_a_path_that_leads_elsewhere_and_back(self):
        """Who owns a directory above the workspace makes a link of it while it is shown, and then puts it back."""
        (secrets := self.temp_dir() / "secrets").mkdir()
        (secrets / "secret").write_text("root only")
        self.put("mine", "shown\n")
        beside = f"{self.dir}.aside"
        for name, script in (("before", f"mv {self.dir} {beside} && ln -s {secrets} {self.dir}"),
                             ("after", f"rm {self.dir} && mv {beside} {self.dir}")):
            path = pathlib.Path(self.daemon.binary).parent / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        self.stage()
        self.assertEqual(self.sh("ls /workspace")["stdout"], "mine\n")


class BusyTest(WorkspaceTest):
    """While a restore waits for somebody else who merges into the same directory."""

    def lock(self):
        """What a merge locks; it is there once there was one."""
        self.restore()
        path = next(p for p in (self.daemon.data / "workspace-locks").iterdir() if p.suffix != ".hashes")
        held = open(path, "r+")
        self.addCleanup(held.close)
        fcntl.flock(held, fcntl.LOCK_EX)
        return held

    def change(self):
        self.put("a", "1\n")
        self.stage()
        held = self.lock()
        self.sh("echo 2 > a")
        return held

    def busy(self):
        state = self.ok("GET", self.ws())
        return state if state["progress"] and state["state"] == "restoring" else None

    def test_it_is_seen_and_nobody_else_begins(self):
        held = self.change()
        answers = []
        worker = threading.Thread(target=lambda: answers.append(self.req("POST", self.ws("/restore"), {})))
        worker.start()
        progress = wait_until(self.busy, "it is under way")["progress"]
        self.assertEqual(set(progress), {"phase", "done", "total"})
        for rest in ("/restore", "/discard"):
            self.assert_error(self.req("POST", self.ws(rest), {}), 409, contains="just now")
        self.assert_status(self.req("GET", self.ws("/diff")), 409)
        held.close()
        worker.join()
        self.assert_status(answers[0], 200)
        self.assertEqual(contents(self.dir), {"a": "2\n"})
        self.assertIsNone(self.ok("GET", self.ws())["progress"])

    def test_a_terminal_sees_how_far_it_is(self):
        held = self.change()
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        run = subprocess.Popen([self.daemon.binary, "workspace", "restore", ident(self.held)], stdout=subprocess.PIPE,
                               stderr=theirs, env={**os.environ, "BERTH_DATA": str(self.daemon.data)})
        self.addCleanup(run.kill)
        os.close(theirs)
        seen = b""
        while b"restoring: " not in seen:
            seen += os.read(ours, 4096)
        held.close()
        out, _ = run.communicate(timeout=60)
        self.assertEqual((run.returncode, out), (0, b"0 added, 1 changed, 0 deleted, 0 conflicts\n"), seen)

    def test_a_client_that_goes_away(self):
        """Its restore is given up, or comes to its end; either way nothing is lost, and the next one works."""
        held = self.change()
        run = subprocess.Popen([self.daemon.binary, "workspace", "restore", ident(self.held)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "BERTH_DATA": str(self.daemon.data)})
        wait_until(self.busy, "it is under way")
        run.kill()
        run.wait()
        wait_until(lambda: not self.ok("GET", self.ws())["progress"], "it was given up")
        held.close()
        self.restore()
        self.assertEqual(contents(self.dir), {"a": "2\n"})


class InterruptTest(WorkspaceTest):
    def test_ctrl_c_brings_changes_home(self):
        self.put("a", "1\n")
        self.put("ready", "")
        run = subprocess.Popen([self.daemon.binary, "run", "--env", "box", "-w", str(self.dir), "--", "sh", "-c",
                                "echo 2 > a; echo begun; exec sleep 600"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **self.daemon.env, "BERTH_DATA": str(self.daemon.data)})
        self.addCleanup(run.kill)
        self.assertEqual(run.stdout.readline(), "begun\n")
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, -signal.SIGINT, err)
        self.assertEqual(contents(self.dir)["a"], "2\n", err)
        self.assertEqual(self.salvages(), [])


class BudgetTest(WorkspaceTest):
    daemon_env = {**WorkspaceTest.daemon_env, "BERTH_RESTORE_MAX_MB": "1", "BERTH_RESTORE_MAX_FILES": "3"}

    def fail_to_restore(self, setting):
        answer = self.req("POST", self.ws("/restore"), {})
        self.assertEqual(answer.status, 413, answer)
        self.assertIn(setting, answer.json["error"])

    # At the limit, and one past it.
    def test_a_restore_has_a_budget(self):
        self.stage()
        self.sh("head -c 1048576 /dev/zero > big")
        self.assertEqual(self.counts(self.restore()), (1, 0, 0, 0))
        self.sh("echo >> big")
        self.fail_to_restore("restore_max_mb")
        self.sh("rm big; touch a b")
        self.assertEqual(self.counts(self.restore()), (2, 0, 1, 0))
        self.sh("touch 1 2 3 4")
        self.fail_to_restore("restore_max_files")
        self.ok("POST", self.ws("/discard"), {})

    # What was never written costs nothing, and is not lost when nobody brings it home.
    def test_a_file_that_is_only_said_to_be_large(self):
        self.stage()
        self.sh("echo x > small; truncate -s 8T huge")
        self.fail_to_restore("restore_max_mb")
        self.assertEqual(contents(self.dir), {})
        self.req("POST", f"/api/environment-leases/{ident(self.held)}/release", {})
        wait_until(lambda: "restore_max_mb" in (self.ok("GET", self.ws())["note"] or ""), "it says what to do")
        self.ok("POST", self.ws("/discard"), {})
        wait_until(lambda: not self.places(), "the place goes")


class GitTest(WorkspaceTest):
    """A workspace that is a git repository. What git makes of hostile ones is for unit tests."""

    def git(self, *words):
        return subprocess.run(["git", "-C", self.dir, "-c", "user.name=T", "-c", "user.email=t@example", *words],
                              check=True, capture_output=True, text=True).stdout.strip()

    def make_repository(self):
        self.git("init", "-q", "-b", "main")
        self.put("a", "1\n")
        self.git("add", "a")
        self.git("commit", "-q", "-m", "first")
        self.stage()

    def commit_there(self):
        done = self.sh("set -e; export HOME=/tmp; git config --global --add safe.directory /workspace; "
                       "git config --global user.name B; git config --global user.email b@example; "
                       "echo 2 > a; echo new > b; git add a b; git commit -q -m second; git rev-parse HEAD; "
                       "git config core.hooksPath /workspace/evil; mkdir -p .git/hooks; "
                       "echo 'touch /tmp/pwned' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit")
        self.assertEqual(done["exitCode"], 0, done)
        return done["stdout"].strip()

    def test_commits_come_home_and_configuration_does_not(self):
        self.make_repository()
        head = self.commit_there()
        report = self.restore()
        self.assertEqual((report["git"]["head"], report["conflicts"]), (head, []), report)
        self.assertEqual(self.git("rev-parse", "HEAD"), head)
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertEqual(self.git("log", "--format=%s"), "second\nfirst")
        self.assertNotIn("evil", (self.dir / ".git/config").read_text())
        self.assertFalse((self.dir / ".git/hooks/post-commit").exists())
        self.assertIsNone(self.restore()["git"])

    def make_bare_repository(self):
        """As a place could make one that runs a program on the host; its commits are honest."""
        done = self.sh("set -e; mkdir lib; git init -q --bare lib; cd lib; git config core.bare false; "
                       "git config core.worktree .; git config core.fsmonitor 'touch PWNED; false'; "
                       "ls HEAD config; cd ..; echo 2 > a")
        self.assertEqual(done["stdout"], "HEAD\nconfig\n", done)

    def assert_bare_repository_is_harmless(self, report):
        lib = self.dir / "lib"
        self.assertEqual(contents(self.dir)["a"], "2\n")
        self.assertTrue((lib / "HEAD").exists())
        subprocess.run(["git", "status"], cwd=lib, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertFalse((lib / "PWNED").exists())
        self.assertFalse((lib / "config").exists())
        self.assertGreater(report["git"]["refused"], 0)
        self.assertTrue(report["git"]["firstRefused"].startswith("lib/"))

    # What a restore and what a salvage brings home, by either way of staging.
    def test_a_bare_repository_brings_no_configuration_home(self):
        for isolation in (None, "copy"):
            with self.subTest(isolation):
                self.isolation = isolation
                self.dir = self.temp_dir()
                self.put("a", "1\n")
                self.stage()
                self.make_bare_repository()
                self.assert_bare_repository_is_harmless(self.restore())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a directory to somebody else")
    def test_a_repository_of_somebody_else(self):
        """A daemon of root's runs git in it as its owner, by way of its own program."""
        self.make_repository()
        os.chmod(self.dir.parent, 0o711)
        subprocess.run(["chown", "-R", "65534:65534", self.dir], check=True)
        self.stage()
        done = self.sh("set -e; export HOME=/tmp; git config --global --add safe.directory /workspace; "
                       "git config --global user.name B; git config --global user.email b@example; "
                       "echo 2 > a; git commit -qam second; git branch deep/er")
        self.assertEqual(done["exitCode"], 0, done)
        report = self.restore()["git"]
        self.assertIsNone(report["note"], report)
        self.assertEqual(self.git("-c", "safe.directory=*", "log", "--format=%s", "deep/er"), "second\nfirst")
        self.assertEqual(subprocess.run(["find", self.dir, "-user", "0"], capture_output=True, check=True).stdout, b"")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a directory to somebody else")
    def test_what_its_owner_cannot_read_is_not_shown(self):
        """Files of root's that he moved there: a daemon of root's reads with his rights."""
        os.chmod(self.dir.parent, 0o711)
        for isolation in (None, "copy"):
            with self.subTest(isolation):
                self.isolation = isolation
                self.dir = self.temp_dir()
                self.put("own", "own\n", 0o600)
                self.put("open", "open\n")
                self.put("secret", "secret\n", 0o600)
                self.put("closed/file", "secret\n")
                (self.dir / "closed").chmod(0o700)
                for path in (self.dir, self.dir / "own"):
                    os.chown(path, 65534, 65534)
                self.stage()
                done = self.sh("cd /workspace; cat own open secret closed/file 2>/dev/null; :")
                self.assertEqual(done["stdout"], "own\nopen\n", done)
                if isolation == "copy":  # nor is it in what a restore would do
                    self.sh("cd /workspace; echo mine >secret; echo mine >open")
                    changes = {c["path"]: c for c in self.ok("GET", self.ws("/diff?text=1"))["changes"]}
                    self.assertIn("-open\n+mine", changes["open"]["diff"])
                    self.assertNotIn("diff", changes["secret"])

    def test_a_salvaged_bare_repository_brings_no_configuration_home(self):
        self.put("a", "1\n")
        self.stage()
        self.make_bare_repository()
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/release", {})
        saved = wait_until(self.salvages, "a salvage")
        report = self.ok("POST", f"/api/salvages/{ident(saved[0])}/apply", {})
        self.assert_bare_repository_is_harmless(report)

    def test_both_sides_commit(self):
        self.make_repository()
        head = self.commit_there()
        self.put("c", "ours\n")
        self.git("add", "c")
        self.git("commit", "-q", "-m", "ours")
        report = self.restore()
        self.assertTrue(report["git"]["merged"], report)
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertIn(head, self.git("log", "--format=%H").split())
        self.assertEqual((self.dir / "c").read_text(), "ours\n")

    def test_a_salvage_has_the_commits(self):
        self.make_repository()
        head = self.commit_there()
        self.release(self.held)
        saved = self.salvages()[0]["id"]
        self.assertEqual({c["path"] for c in self.ok("GET", f"/api/salvages/{saved}/diff")["changes"]}, {"a", "b"})
        report = self.ok("POST", f"/api/salvages/{saved}/apply", {})
        self.assertEqual(report["git"]["head"], head)
        self.assertEqual(self.git("rev-parse", "HEAD"), head)


class CopyTest(WorkspaceTest):
    isolation = "copy"

    def test_a_release_while_it_is_staged(self):
        """Whoever is first: nothing is left of it, and the lease has ended."""
        for n in range(500):
            self.put(f"d{n % 20}/f{n}", f"{n}\n" * 200)
        answers = []
        worker = threading.Thread(target=lambda: answers.append(
            self.req("POST", self.ws("/stage"), {"localPath": str(self.dir), "isolation": "copy"})))
        worker.start()
        wait_until(lambda: self.daemon.sql("SELECT 1 FROM workspaces") or not worker.is_alive(), "it has begun")
        self.release(self.held)
        worker.join()
        self.assertIn(answers[0].status, (200, 409), answers[0].body)
        wait_until(lambda: not self.daemon.sql("SELECT id FROM workspaces WHERE state <> 'ended'"), "it has ended")
        wait_until(lambda: not os.listdir(self.daemon.data / "workspaces"), "its directory has gone")
        self.assertEqual(self.salvages(), [])

    def test_what_is_changed_here_is_not_seen_there(self):
        self.put("a", "1\n")
        self.put("b", "1\n")
        self.assertEqual(self.stage()["way"], "copy")
        self.put("a", "ours\n")
        self.assertEqual(self.sh("cat a")["stdout"], "1\n")
        self.sh("echo theirs > b")
        self.assertEqual(self.restore()["conflicts"], [])
        self.assertEqual(contents(self.dir), {"a": "ours\n", "b": "theirs\n"})


class SalvageTest(WorkspaceTest):
    def lease_body(self):
        return {"heartbeatRunId": RUN_A}

    def change(self):
        self.put("a", "1\n")
        self.put("gone", "x\n")
        self.stage()
        self.sh("echo 2 > a; rm gone; echo new > new")
        self.assertEqual(contents(self.dir), {"a": "1\n", "gone": "x\n"})

    def assert_saved(self, reason):
        found = self.salvages()
        self.assertEqual([s["reason"] for s in found], [reason])
        self.assertEqual((found[0]["changes"], found[0]["deletes"]), (2, 1))
        self.assertEqual(found[0]["localPath"], str(self.dir))
        self.assertEqual(contents(self.dir), {"a": "1\n", "gone": "x\n"})
        report = self.ok("POST", f"/api/salvages/{found[0]['id']}/apply", {})
        self.assertEqual(self.counts(report), (1, 1, 1, 0))
        self.assertEqual(contents(self.dir), {"a": "2\n", "new": "new\n"})
        return found[0]

    def test_release_without_a_restore(self):
        self.change()
        self.release(self.held)
        saved = self.assert_saved("released")
        self.assertIsNotNone(self.ok("GET", f"/api/salvages/{saved['id']}")["appliedAt"])
        self.ok("DELETE", f"/api/salvages/{saved['id']}")
        self.assertEqual(self.salvages(), [])
        self.assertEqual(os.listdir(self.daemon.data / "salvage"), [])
        self.assertEqual(os.listdir(self.daemon.data / "workspaces"), [])
        note = self.lease(self.held)["metadata"]["stagedWorkspace"]["note"]
        self.assertIn(saved["id"], note)

    def test_release_after_a_restore(self):
        self.change()
        self.restore()
        self.release(self.held)
        self.assertEqual(self.salvages(), [])

    def test_what_came_after_a_restore(self):
        self.change()
        self.restore()
        self.sh("echo late > late")
        self.release(self.held)
        self.assertEqual([(s["changes"], s["deletes"]) for s in self.salvages()], [(1, 0)])

    def test_destroy(self):
        self.change()
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/destroy", {})
        self.assert_saved("failed")

    def test_expiry(self):
        self.change()
        self.ok("POST", f"/api/environment-leases/{ident(self.held)}/renew", {"ttlMs": 1})
        wait_until(self.salvages, "it is saved")
        self.assert_saved("expired")

    def test_a_sandbox_that_died(self):
        self.change()
        self.kill_box()
        wait_until(self.salvages, "it is saved")
        self.assert_saved("failed")

    def test_the_directory_itself_is_gone(self):
        self.change()
        away = self.dir.with_name(self.dir.name + "-away")
        self.dir.rename(away)
        self.addCleanup(shutil.rmtree, away)
        self.assert_status(self.req("POST", self.ws("/restore"), {}), 404)
        self.release(self.held)
        self.assertEqual([s["changes"] for s in self.salvages()], [2])
        self.ok("POST", f"/api/salvages/{self.salvages()[0]['id']}/apply", {"localPath": str(away)})
        self.assertEqual(contents(away), {"a": "2\n", "gone": "x\n", "new": "new\n"})

    def test_a_place_is_not_closed_before_its_changes_are_saved(self):
        """Our own trouble (no room, here: no directory) is tried again until it is over."""
        self.change()
        folder = self.daemon.data / "salvage"
        folder.rmdir()
        folder.write_text("in the way")
        self.release(self.held)
        self.assertEqual(self.lease(self.held)["cleanupStatus"], "failed")
        self.assertEqual([p["state"] for p in self.places()], ["closing"])
        self.assertEqual(len(self.ok("GET", "/api/leaks")["cleanupDue"]), 1)
        self.assertIn("Could not be given up yet", self.ok("GET", self.ws())["note"])
        folder.unlink()
        folder.mkdir()
        self.ok("POST", f"/api/places/{self.place()}/close", {})
        self.assert_saved("released")
        self.assertEqual(self.lease(self.held)["cleanupStatus"], "success")

    def test_discarding_lets_a_place_go(self):
        self.change()
        folder = self.daemon.data / "salvage"
        folder.rmdir()
        folder.write_text("in the way")
        self.release(self.held)
        self.assertEqual(self.ok("POST", self.ws("/discard"), {})["state"], "ended")
        self.ok("POST", f"/api/places/{self.place()}/close", {})
        self.assertEqual(self.places(), [])
        folder.unlink()
        folder.mkdir()

    def test_an_environment_that_is_deleted(self):
        self.change()
        self.ok("DELETE", f"/api/environments/{self.env['id']}?closeLeases=true")
        self.assertEqual(len(self.salvages()), 1)

    def test_discarded(self):
        self.change()
        self.ok("POST", self.ws("/discard"), {})
        self.assertEqual(self.sh("ls", cwd="/")["exitCode"], 0)
        self.release(self.held)
        self.assertEqual(self.salvages(), [])
        self.assertEqual(contents(self.dir), {"a": "1\n", "gone": "x\n"})

    def test_staged_again(self):
        self.change()
        self.stage()
        self.assertEqual(self.sh("cat a; ls")["stdout"], "1\na\ngone\n")
        self.assert_saved("staged again")

    def test_nothing_was_changed(self):
        self.put("a", "1\n")
        self.stage()
        self.sh("cat a")
        self.release(self.held)
        self.assertEqual(self.salvages(), [])

    def test_conflicts_of_a_salvage(self):
        self.change()
        self.release(self.held)
        self.put("a", "ours\n")
        saved = self.salvages()[0]["id"]
        status, out, err = self.cli("workspace", "salvaged", "show", saved[:8])
        self.assertEqual(status, 0, err)
        self.assertIn("M a", out)
        self.assertIn("conflict: a", err)
        status, out, err = self.cli("workspace", "salvaged", "apply", saved[:8])
        self.assertEqual(status, 0, err)
        self.assertIn("1 conflicts", out)
        self.assertIn("conflict: a was changed here too", err)
        status, out, err = self.cli("workspace", "salvaged", "list")
        self.assertIn(saved, out)
        self.assertEqual(self.cli("workspace", "salvaged", "drop", saved[:8])[0], 0)
        self.assertIn("nothing was salvaged", "".join(self.cli("workspace", "salvaged", "list")[1:]))
        self.assertEqual(self.cli("workspace", "salvaged", "show", saved)[0], 5)

    def test_applied_elsewhere(self):
        self.change()
        self.release(self.held)
        other = self.temp_dir()
        self.ok("POST", f"/api/salvages/{self.salvages()[0]['id']}/apply", {"localPath": str(other)})
        self.assertEqual(contents(other), {"a": "2\n", "new": "new\n"})
        self.assert_error(self.req("POST", f"/api/salvages/{self.salvages()[0]['id']}/apply",
                                   {"localPath": "/etc"}), 422)


class ReuseTest(WorkspaceTest):
    config = {"reuseLease": True}

    def lease_body(self):
        return {"heartbeatRunId": RUN_A}

    def test_the_next_lease_does_not_see_it(self):
        self.put("a", "1\n")
        self.stage()
        place = self.place()
        self.sh("echo 2 > a")
        self.release(self.held)
        self.assertEqual(len(self.salvages()), 1)
        self.held = self.acquire(self.env, heartbeatRunId=RUN_B)
        self.assertEqual(self.place(), place)
        self.assertEqual(self.sh("ls -A /workspace")["stdout"], "")
        self.stage()
        self.assertEqual(self.sh("cat a")["stdout"], "1\n")

    def test_a_lease_that_shares_the_place_goes_on(self):
        self.put("a", "1\n")
        second = self.acquire(self.env, heartbeatRunId=RUN_A)
        self.assertEqual(self.place(second), self.place())
        self.stage(second)
        self.sh("echo 2 > a", lease=second)
        self.release(second)
        self.assertEqual(len(self.salvages()), 1)
        self.assertEqual(self.sh("echo still here", cwd="/")["stdout"], "still here\n")


class ExpiredSalvageTest(WorkspaceTest):
    daemon_env = {**WorkspaceTest.daemon_env, "BERTH_SALVAGE_TTL_MS": "1"}

    def test_old_ones_go(self):
        self.put("a", "1\n")
        self.stage()
        self.sh("echo 2 > a")
        self.release(self.held)
        wait_until(lambda: not self.salvages() and not os.listdir(self.daemon.data / "salvage"), "it has gone")
        actions = [a["action"] for a in self.ok("GET", f"/api/companies/{ident(self.acme)}/activity")]
        self.assertIn("environment.workspace_salvaged", actions)
        self.assertIn("environment.salvage_deleted", actions)


class ClockSalvageTest(WorkspaceTest):
    """What deletes by age counts time that passed; the wall clock may say what it likes."""
    daemon_binary = "faults"
    DAY = 86400 * 1000000

    def setUp(self):
        self.clock = self.temp_dir() / "clock"
        self.daemon_env = {**WorkspaceTest.daemon_env, "BERTH_TEST_CLOCK_FILE": str(self.clock),
                           "BERTH_SWEEP_INTERVAL_MS": "20"}
        super().setUp()
        self.put("a", "1\n")
        self.stage()
        self.kept = self.sh("echo kept; echo 2 > a")["execId"]
        self.release(self.held)
        (self.salvage,) = self.salvages()

    def edit(self, statement, *parameters):
        with self.daemon.record() as db:
            db.execute(statement, parameters)

    def sweeps(self):
        """Two of them begin after this, and the first is over."""
        def count():
            return re.search(r"^berth_sweeps_total (\d+)", self.daemon.req("GET", "/metrics").text, re.MULTILINE)[1]
        for _ in range(2):
            before = count()
            wait_until(lambda before=before: count() != before, "a sweep")

    def is_kept(self):
        output = self.req("GET", f"/api/environment-leases/{ident(self.held)}/executions/{self.kept}/output")
        return [s["id"] for s in self.salvages()] == [self.salvage["id"]] and output.status == 200

    def pass_days(self, days):
        """As if so much time had been counted: the marks are older."""
        self.edit("UPDATE clock_marks SET counted_us = counted_us - ?, wall_us = wall_us - ?", days * self.DAY,
                  days * self.DAY)
        self.edit("UPDATE clock_marks SET boot_id = 'another'")
        self.sweeps()
        self.edit("UPDATE clock_marks SET counted_us = counted_us + ? WHERE boot_id <> 'another'", days * self.DAY)
        for table, column in (("salvages", "created_at"), ("salvages", "seen_at"), ("executions", "ended_at")):
            self.edit(f"UPDATE {table} SET {column} = {column} - ?", (days + 1) * self.DAY)

    def test_a_clock_that_is_wrong_for_a_while(self):
        self.ok("GET", f"/api/salvages/{self.salvage['id']}")
        for days in (20, -20, 400, 0):
            with self.subTest(days):
                set_clock(self.clock, days * 86400)
                self.sweeps()
                self.assertTrue(self.is_kept())

    def test_a_salvage_that_nobody_saw_stays(self):
        self.assertIsNone(self.salvage["expiresAt"])
        self.pass_days(30)
        wait_until(lambda: not self.daemon.sql("SELECT 1 FROM executions WHERE id = ?", (self.kept,)),
                   "the old execution has gone")
        self.sweeps()
        self.assertEqual(len(self.salvages()), 1)

    def test_one_that_was_seen_goes_when_its_time_has_passed(self):
        self.assertIsNotNone(self.ok("GET", f"/api/salvages/{self.salvage['id']}")["expiresAt"])
        self.sweeps()
        self.assertTrue(self.is_kept())
        self.pass_days(15)
        wait_until(lambda: not self.salvages(), "it has gone")


if __name__ == "__main__":
    unittest.main()
