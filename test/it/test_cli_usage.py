"""The command line where no daemon is needed: help, wrong usage, exit statuses, the doctor, completion."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

from berthtest import BINARIES, SOURCE

BERTH = BINARIES["normal"]
NO_DAEMON = "unix:/nonexistent/berth.sock"


def berth(*args, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("BERTH_", "PAPERCLIP_"))}
    done = subprocess.run([BERTH, *args], capture_output=True, text=True, timeout=60,
                          env={**env, "BERTH_API_URL": NO_DAEMON, **variables})
    return done.returncode, done.stdout, done.stderr


def commands_in(help_text):
    section = re.search(r"^Commands:\n(.*?)\n\n", help_text, re.S | re.M)
    return re.findall(r"^  ([a-z]+) ", section[1], re.M) if section else []


def every_command():
    """All paths of the tree, with their help."""
    todo, found = [()], []
    while todo:
        path = todo.pop()
        status, text, _ = berth(*path, "--help")
        assert status == 0, path
        found.append((path, text))
        todo += [(*path, name) for name in commands_in(text)]
    return found


def without_substitutions(line):
    """Each $(...), innermost first, replaced by a word."""
    while (shorter := re.sub(r"\$\([^()]*\)", "some", line)) != line:
        line = shorter
    return line


class HelpTest(unittest.TestCase):
    def test_every_level_explains_itself(self):
        for path, text in every_command():
            with self.subTest(path=path):
                self.assertTrue(text.startswith("Usage: berth"), text)
                self.assertIn("\nExample:\n  berth ", text)
                self.assertEqual(berth("help", *path)[1], text)

    def test_examples_are_understood(self):
        """An example may fail for want of a daemon, never because it is not understood."""
        for path, text in every_command():
            words = shlex.split(without_substitutions(re.search(r"\nExample:\n  berth (.*)", text)[1]))
            if words[0] in ("serve", "db", "doctor", "faults") or "conformance" in words or words[:2] == ["kind", "check"]:
                continue
            with self.subTest(path=path):
                status, _, err = berth(*words)
                self.assertIn(status, (0, 3), err)

    def test_version(self):
        self.assertRegex(berth("--version")[1], r"^berth \d+\.\d+\.\d+\n$")


class UsageTest(unittest.TestCase):
    def wrong(self, *args, says):
        status, out, err = berth(*args)
        self.assertEqual(status, 2, err)
        self.assertTrue(err.startswith("berth: "), err)
        self.assertIn(says, err)
        return out

    def test_suggestions(self):
        self.wrong("evn", says="did you mean 'berth env'?")
        self.wrong("env", "crate", says="did you mean 'berth env create'?")
        self.wrong("env", "list", "--staus", "x", says="did you mean --status?")
        self.wrong("xyzzy", says="unknown command 'xyzzy'")

    def test_wrong_words(self):
        self.wrong(says="a command is missing")
        self.wrong("env", "show", says="usage: berth env show ENV")
        self.wrong("env", "list", "more", says="too many words")
        self.wrong("lease", "acquire", "box", "--ttl", "30", says="has no unit")
        self.wrong("lease", "renew", "box", says="--ttl")
        self.wrong("lease", "acquire", "box", "--run", "me", says="not a UUID")
        self.wrong("env", "create", "box", says="--driver")
        self.wrong("env", "create", "box", "--driver", "moon", says="local, ssh, sandbox, plugin")
        self.wrong("env", "create", "local", "box", "-o", "x", says="key=value")
        self.wrong("env", "create", "local", "box", "--config", "[]", says="--config must be a JSON object")
        self.wrong("key", "create", says="--board or --agent")
        self.wrong("serve", "--mode", "open", says="local_trusted, authenticated")
        self.wrong("--api-url", "https://example.org", "leaks", says="https")

    def test_no_daemon(self):
        for args in (["env", "list"], ["lease", "list"], ["leaks"], ["key", "list"], ["company", "list"]):
            with self.subTest(args=args):
                status, out, err = berth(*args)
                self.assertEqual((status, out), (3, ""))
                self.assertIn(NO_DAEMON, err)
                self.assertIn("start one with: berth serve", err)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(subprocess.run([BERTH, "--version"], stdout=full, stderr=subprocess.DEVNULL).returncode, 1)


class DoctorTest(unittest.TestCase):
    def test_report(self):
        with tempfile.TemporaryDirectory() as data:
            status, out, err = berth("doctor", "--json", "--data", data)
            report = json.loads(out)
            self.assertEqual(status, 0 if report["ok"] else 1, err)
            self.assertEqual(os.listdir(data), [])
        checks = {c["name"]: c for c in report["checks"]}
        for name in ("kernel", "openat2", "pidfd_open", "seccomp", "landlock", "user namespace", "mount namespace",
                     "pid namespace", "net namespace", "overlayfs", "cgroup", "ssh", "node", "git", "data directory",
                     "daemon"):
            self.assertIn(name, checks)
        for check in report["checks"]:
            self.assertIn(check["status"], ("ok", "limited", "missing"))
            self.assertEqual(check["status"] == "ok", check["fix"] is None, check)
        self.assertEqual(checks["data directory"]["detail"], data)
        self.assertEqual(checks["daemon"]["status"], "missing")

    def test_data_directory_that_cannot_be(self):
        status, out, err = berth("doctor", "--data", "/dev/null/berth")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"missing +data directory")
        self.assertIn("cannot do without", err)


class CompletionTest(unittest.TestCase):
    def complete(self, *words):
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _berth; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        path = f"{pathlib.Path(BERTH).parent}:{os.environ['PATH']}"
        out = subprocess.run(["bash", "-c", script, "-", str(SOURCE / "completion/berth.bash"), "berth", *words],
                             capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path})
        return out.stdout.split()

    def test_bash(self):
        self.assertEqual(self.complete("le"), ["lease", "leaks"])
        self.assertEqual(self.complete("env", "cr"), ["create"])
        self.assertEqual(self.complete("--company", "acme", "env", "sh"), ["show"])
        self.assertIn("--ttl", self.complete("lease", "acquire", "box", "--"))
        self.assertEqual(self.complete("env", "create", "box", "--driver", "s"), ["ssh", "sandbox"])
        self.assertEqual(self.complete("ru"), ["run", "runs"])
        self.assertEqual(self.complete("lease", "exec"), ["exec", "executions"])
        self.assertIn("--workspace", self.complete("run", "--"))
        self.assertNotIn("--private", self.complete("serve", "--"))
        self.assertEqual(self.complete("run", "--cwd", "/us"), ["/usr"])


if __name__ == "__main__":
    unittest.main()
