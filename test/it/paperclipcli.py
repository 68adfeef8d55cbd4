"""The published command line of Paperclip, for tests that use it against Berth.

    class T(PaperclipCliTest):
        def test_it(self):
            rows = self.pc("environment", "list", "-C", company["id"])       # parsed --json
            self.pc_fails("environment", "get", MISSING, says="API error 404: Environment not found")
            done = self.pc_process("plugin", "list")                         # as a user would start it

pc() and pc_fails() have one process for all commands of a test file, with the program's start cut off
(paperclipcli.mjs); everything else is as it was published.
"""

import json
import os
import pathlib
import subprocess
import tarfile
import unittest

from plugintest import PluginTest, from_npm, npm_install

VERSION = "2026.824.1"
# What its bundle imports. Its package also asks for the whole server, which no command used here loads.
LIBRARIES = ("@clack/prompts@0.11.0", "commander@13.1.0", "dotenv@17.4.2", "drizzle-orm@0.45.2", "picocolors@1.1.1",
             "postgres@3.4.9", "ws@8.21.1", "zod@3.25.76")
START = "\nvoid main();\n"


def fetch_cli(cache, package):
    if not npm_install(cache, *LIBRARIES):
        return False
    packed = subprocess.run(["npm", "pack", package, "--silent", "--pack-destination", str(cache)], cwd=cache,
                            capture_output=True, text=True, timeout=240)
    if packed.returncode != 0:
        return False
    archive = cache / packed.stdout.split()[-1]
    with tarfile.open(archive) as files:
        files.extractall(cache / "node_modules" / "unpacked")
    archive.unlink()
    os.rename(cache / "node_modules" / "unpacked" / "package", cache / "node_modules" / "paperclipai")
    dist = cache / "node_modules" / "paperclipai" / "dist"
    text = (dist / "index.js").read_text()
    assert text.count(START) == 1, "the program starts in another way"
    (dist / "commands.js").write_text(text.replace(START, "\nexport { program };\n"))
    return True


def paperclip_cli():
    """The directory of its program. Skips when it cannot be fetched."""
    return from_npm(f"paperclipai@{VERSION}", f"Paperclip's command line {VERSION}", fetch_cli) / "paperclipai" / "dist"


class Driver:
    """The process that runs commands. One per test file."""

    started = None

    def __init__(self, dist):
        mine = pathlib.Path(__file__).with_suffix(".mjs")
        self.process = subprocess.Popen(["node", str(mine), str(dist / "commands.js")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
        unittest.addModuleCleanup(self.close)

    @classmethod
    def get(cls, dist):
        if not cls.started:
            cls.started = cls(dist)
        return cls.started

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the command line died over {question}")
        return json.loads(line)

    def run(self, args, env):
        answer = self.ask(argv=[str(arg) for arg in args], env=env)
        return subprocess.CompletedProcess(args, answer["status"], answer["stdout"], answer["stderr"])

    def close(self):
        Driver.started = None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(20)


class PaperclipCliTest(PluginTest):
    def setUp(self):
        self.dist = paperclip_cli()
        super().setUp()
        self.home = self.temp_dir()

    def pc_env(self, token=None, run=None, **env):
        """No terminal, no browser, a home of its own, and nothing of the caller's."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith("PAPERCLIP_")}
        mine.update(HOME=str(self.home), PAPERCLIP_HOME=str(self.home / "paperclip"), PAPERCLIP_TELEMETRY_DISABLED="1",
                    PAPERCLIP_UPDATE_CHECK="0", PAPERCLIP_NO_BROWSER="1", NO_COLOR="1",
                    PAPERCLIP_API_URL=self.daemon.url, **env)
        if token:
            mine["PAPERCLIP_API_KEY"] = token
        if run:
            mine["PAPERCLIP_RUN_ID"] = run
        return mine

    def pc_process(self, *args, **more):
        """The program itself, from start to end: the finished process."""
        return subprocess.run(["node", str(self.dist / "index.js"), *map(str, args)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, cwd=self.home, env=self.pc_env(**more))

    def pc_json(self, args, more):
        if args and isinstance(args[-1], dict):
            args = (*args[:-1], "--payload-json", json.dumps(args[-1]))
        return Driver.get(self.dist).run((*args, "--json"), self.pc_env(**more))

    def pc(self, *args, **more):
        """Its answer with --json. A trailing dict is sent as --payload-json."""
        done = self.pc_json(args, more)
        self.assertEqual(done.returncode, 0, f"{args}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def pc_fails(self, *args, says, **more):
        done = self.pc_json(args, more)
        self.assertEqual(done.returncode, 1, f"{args}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        self.assertIn(says, done.stderr)
