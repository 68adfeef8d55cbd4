"""The tools that the other tests rely on: a harness that cannot see a failure makes every test worthless."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from berthtest import BUILD, SOURCE, wait_until

REAP = BUILD / "test/harness/reap"


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60, **more)


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


class ReapTest(unittest.TestCase):
    def test_status_of_the_command(self):
        self.assertEqual(run(REAP, "true").returncode, 0)
        self.assertEqual(run(REAP, "sh", "-c", "exit 3").returncode, 3)
        self.assertEqual(run(REAP, "sh", "-c", "kill -9 $$").returncode, 128 + 9)
        self.assertEqual(run(REAP, "/no/such/program").returncode, 126)

    def test_process_left_behind_in_its_own_session(self):
        done = run(REAP, "sh", "-c", "setsid sleep 600 & echo $!")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, r"left behind: \d+ sleep 600")
        self.assertFalse(alive(done.stdout.strip()))

    def test_process_left_behind_does_not_hide_the_status(self):
        done = run(REAP, "sh", "-c", "sleep 600 & exit 3")
        self.assertEqual(done.returncode, 3)
        self.assertIn("left behind", done.stderr)

    def test_time_limit_kills_the_tree(self):
        done = run(REAP, "--timeout", "0.2", "sh", "-c", "setsid sleep 600 & echo $!; sleep 600")
        self.assertEqual(done.returncode, 124)
        self.assertFalse(alive(done.stdout.strip()))

    def test_told_to_stop_it_takes_the_tree_along(self):
        reap = subprocess.Popen([REAP, "sh", "-c", "setsid sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        with reap:
            left = reap.stdout.readline().strip()
            wait_until(lambda: alive(left), "the process runs")
            reap.send_signal(signal.SIGTERM)
            self.assertEqual(reap.wait(30), 128 + signal.SIGTERM)
        self.assertFalse(alive(left))


class Tree:
    """A source tree of its own for test/run and scripts/assertions."""

    def __init__(self, case):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="tree-"))
        case.addCleanup(shutil.rmtree, self.path, ignore_errors=True)
        for name in ("test/run", "test/harness/postgres.py", "test/harness/share.py", "test/harness/tap_unittest.py",
                     "scripts/assertions"):
            self.write(name, (SOURCE / name).read_text(), executable=True)
        (self.path / "build/test/harness").mkdir(parents=True)
        shutil.copy(REAP, self.path / "build/test/harness/reap")
        (self.path / "test/unit").mkdir()
        (self.path / "test/it").mkdir()

    def write(self, name, text, executable=False):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if executable:
            path.chmod(0o755)

    def script(self, name, body):
        self.write(f"test/unit/{name}", f"#!/bin/sh\n{body}\n", executable=True)

    def run(self, *args):
        return run(sys.executable, self.path / "test/run", *args)

    def last_line(self, *args):
        done = self.run(*args)
        return done.returncode, done.stdout.splitlines()[-1], done.stdout


class RunnerTest(unittest.TestCase):
    def setUp(self):
        self.tree = Tree(self)

    def test_shares(self):
        """Every file runs with every commit on one of the builds, and under a sanitizer with one of eight, an attack of three."""
        quick, attack, slow = {f"it/test_{n}.py" for n in range(12)}, {"it/test_hostile.py"}, {"it/test_slow.py"}
        for name in quick | attack:
            self.tree.write(f"test/{name}", "")
        self.tree.write("test/it/test_slow.py", "# slow: so\n")
        shares = [self.listed(k, "--quick") for k in range(24)]
        self.assertEqual(set.union(*shares), quick | attack)
        for name in quick | attack:
            self.assertEqual(sum(name in share for share in shares), 8 if name in attack else 3)
        for k, share in enumerate(shares):
            self.assertEqual(self.listed(k, "--plain"), (quick | attack | slow) - share)
        self.assertEqual((self.listed("", "--quick"), self.listed("", "--plain")), (quick | attack, slow))

    def test_shares_of_long_files(self):
        """Each runs with one commit of as many as it says, and when somebody asks for it."""
        self.tree.write("test/it/test_long.py", "# slow: so\n# share 6: so\n")
        self.tree.write("test/it/test_other.py", "# slow: so\n# share 3: so\n")
        listed = [self.listed(k, "--plain") for k in range(6)]
        self.assertEqual(sum("it/test_long.py" in names for names in listed), 1)
        self.assertEqual(sum("it/test_other.py" in names for names in listed), 2)
        for k in range(6):
            self.assertEqual(self.listed(k, "-k", "long"), {"it/test_long.py"})
        self.assertEqual(self.listed("", "--plain"), {"it/test_long.py", "it/test_other.py"})

    def test_what_changed_runs_in_any_case(self):
        """A test that one of the last five commits changed, and one about a folder that one of the last two changed."""
        for name in ("image", "live"):
            self.tree.write(f"test/it/test_{name}.py", "# slow: so\n# share 1000: so\n")
        self.tree.write("test/it/test_quick.py", "")

        def commit(name):
            self.tree.write(name, str(self.commits))
            self.commits += 1
            run("git", "-C", self.tree.path, "add", "-A", check=True)
            run("git", "-C", self.tree.path, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", name, check=True)

        def always(part):
            return set.intersection(*(self.listed(k, part) for k in range(8)))

        self.commits = 0
        run("git", "init", "-q", self.tree.path, check=True)
        commit("first")
        self.assertEqual((always("--plain"), always("--quick")), ({"it/test_image.py", "it/test_live.py"}, {"it/test_quick.py"}))
        for n in range(4):
            commit(f"more-{n}")
        self.assertEqual(always("--quick"), {"it/test_quick.py"})
        commit("src/image/a.c")
        self.assertEqual((always("--plain"), always("--quick")), ({"it/test_image.py"}, set()))
        commit("more")
        self.assertEqual(always("--plain"), {"it/test_image.py"})
        commit("more-still")
        self.assertEqual(always("--plain"), set())

    def test_program_of_shares(self):
        """Names whose turn has come, and those of which a commit changed a file."""
        command = (sys.executable, self.tree.path / "test/harness/share.py", "8", "5")
        names = [f"name-{n}" for n in range(30)]
        text = "".join(f"{name} src/{name}.c\n" for name in names)
        listed = [run("env", f"TEST_SHARE={k}", *command, input=text).stdout.split() for k in range(8)]
        self.assertEqual(sorted(sum(listed, [])), sorted(names))
        self.assertEqual(run(*command, input=text, env={"PATH": os.environ["PATH"]}).stdout.split(), names)
        self.tree.write("src/name-7.c", "")
        run("git", "init", "-q", self.tree.path, check=True)
        run("git", "-C", self.tree.path, "add", "src", check=True)
        run("git", "-C", self.tree.path, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "one", check=True)
        for k in range(8):
            self.assertIn("name-7", run("env", f"TEST_SHARE={k}", *command, input=text).stdout.split())

    def test_folders_of_shares(self):
        """Each folder of the code that share.py names is there, and has tests of the names that it gives."""
        sys.path.insert(0, str(SOURCE / "test/harness"))
        import share
        files = [path.stem for path in (SOURCE / "test/it").glob("test_*.py")] + ["models"]
        for folder, words in share.TESTS_OF.items():
            self.assertTrue((SOURCE / folder).is_dir(), folder)
            for word in words.split("|"):
                self.assertTrue(any(word in name for name in files), word)

    def listed(self, share, *options):
        return set(run("env", f"TEST_SHARE={share}", sys.executable, self.tree.path / "test/run", "--list", *options).stdout.split())

    def test_nothing_is_a_failure(self):
        self.assertEqual(self.tree.last_line()[:2], (1, "0 passed, 0 failed"))

    def test_scripts_pass_fail_and_skip(self):
        self.tree.script("good", "exit 0")
        self.assertEqual(self.tree.last_line()[:2], (0, "1 passed, 0 failed"))
        self.tree.script("idle", "echo no moon; exit 77")
        status, line, output = self.tree.last_line()
        self.assertEqual((status, line), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("no moon", output)
        self.tree.script("bad", "echo what went wrong; exit 1")
        status, line, output = self.tree.last_line()
        self.assertEqual((status, line), (1, "1 passed, 1 failed, 1 skipped"))
        self.assertIn("what went wrong", output)

    def test_programs_that_speak_tap(self):
        self.tree.script("tap", "printf '1..3\\nok 1 - a\\nnot ok 2 - b\\n# why b\\nnot ok 3 # SKIP c\\n'; exit 1")
        status, line, output = self.tree.last_line()
        self.assertEqual((status, line), (1, "1 passed, 1 failed, 1 skipped"))
        self.assertIn("why b", output)

    def test_program_that_stops_halfway(self):
        self.tree.script("half", "printf '1..3\\nok 1 - a\\n'")
        self.assertEqual(self.tree.last_line()[:2], (1, "1 passed, 1 failed"))

    def test_program_that_dies_after_its_tests(self):
        self.tree.script("dies", "printf '1..1\\nok 1 - a\\n'; exit 86")
        self.assertEqual(self.tree.last_line()[:2], (1, "1 passed, 1 failed"))

    def test_process_left_behind(self):
        self.tree.script("leaves", "setsid sleep 600 & printf '1..1\\nok 1 - a\\n'")
        status, line, output = self.tree.last_line()
        self.assertEqual((status, line), (1, "1 passed, 1 failed"))
        self.assertIn("sleep 600", output)

    def test_time_limit(self):
        self.tree.script("hangs", "sleep 600")
        status, line, output = self.tree.last_line("--timeout", "0.2")
        self.assertEqual((status, line), (1, "0 passed, 1 failed"))

    def test_black_box_files(self):
        self.tree.write("test/it/test_x.py", (
            "import unittest\n"
            "class X(unittest.TestCase):\n"
            "    def test_good(self): pass\n"
            "    def test_bad(self): self.fail('so it is')\n"
            "    @unittest.skip('no moon')\n"
            "    def test_idle(self): pass\n"))
        status, line, output = self.tree.last_line()
        self.assertEqual((status, line), (1, "1 passed, 1 failed, 1 skipped"))
        self.assertIn("so it is", output)
        self.assertEqual(self.tree.last_line("-k", "test_good")[:2], (0, "1 passed, 0 failed"))

    def test_black_box_file_that_does_not_load(self):
        self.tree.write("test/it/test_x.py", "import no_such_module\n")
        self.assertEqual(self.tree.last_line()[:2], (1, "0 passed, 1 failed"))


class AssertionsTest(unittest.TestCase):
    SPEC = "http" + "-api"  # in two parts, or this file would be counted as a test of them

    def setUp(self):
        self.tree = Tree(self)
        for spec in ("environment-runtime", "remote-execution", "plugin-protocol"):
            self.tree.write(f"test/assertions/{spec}.txt", "# none\n")
        self.tree.write(f"test/assertions/{self.SPEC}.txt", "".join(f"8.{n}  text {n}\n" for n in range(1, 10)))

    def untested(self):
        done = run(self.tree.path / "scripts/assertions", "--root", self.tree.path)
        return done, [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]

    def test_lists_and_ranges(self):
        self.tree.write("test/unit/test_a.c", f"/* {self.SPEC} 8.1, 8.3-8.5,\n * 8.7 and more */\n// {self.SPEC} 8.8\n")
        done, untested = self.untested()
        self.assertEqual(done.returncode, 0)
        self.assertEqual(untested, ["8.2", "8.6", "8.9"])
        self.assertIn("6 of 9", done.stdout)

    def test_numbers_that_do_not_exist(self):
        for wrong in ("8.10", "8.8-8.11", "8.3-5", "3.4"):
            with self.subTest(wrong=wrong):
                self.tree.write("test/it/test_a.py", f"# {self.SPEC} {wrong}\n")
                done, _ = self.untested()
                self.assertEqual(done.returncode, 1)
                self.assertIn("wrong: test/it/test_a.py", done.stdout)

    def test_required_ones(self):
        self.tree.write("test/it/test_a.py", f"# {self.SPEC} 8.1\n")
        required = self.tree.path / "required.txt"
        command = (self.tree.path / "scripts/assertions", "--root", self.tree.path, "--check", required)
        required.write_text(f"# why\n{self.SPEC} 8.1\n")
        self.assertEqual(run(*command).returncode, 0)
        required.write_text(f"{self.SPEC} 8.1-8.2\n")
        done = run(*command)
        self.assertEqual(done.returncode, 1)
        self.assertIn("8.2  text 2", done.stdout)
        required.write_text("nonsense\n")
        self.assertEqual(run(*command).returncode, 1)


if __name__ == "__main__":
    unittest.main()
