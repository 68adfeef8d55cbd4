"""README.md: the lines under "A first agent", read from there and run as they stand, with the model server of test/models in
the place of the vendor and a registry of the test's own in the place of npm's."""
# slow: a whole agent program is installed and runs twice
# share 6: 40 s of processor time

import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import unittest
import urllib.parse

import realagents
from berthtest import BINARIES, SOURCE, wait_until
from models import ModelServer, Say, Shell

REGISTRY_AT = "127.0.0.2"  # not an address that npm reaches without its proxy
CLAUDE = realagents.PROGRAMS[0]
API = """curl -sS --fail-with-body -X PATCH -H "Authorization: Bearer $PAPERCLIP_API_KEY" -H "X-Paperclip-Run-Id: $PAPERCLIP_RUN_ID" \
-H 'Content-Type: application/json' -d '{"status":"done","comment":"Added."}' "$PAPERCLIP_API_URL/api/issues/$PAPERCLIP_TASK_ID"
"""


def block(heading):
    """The lines of the first block under a heading of README.md."""
    section = (SOURCE / "README.md").read_text().split(f"\n## {heading}\n")[1]
    return re.search(r"^```\n(.*?)^```", section, re.M | re.S)[1].splitlines()


class Registry(http.server.BaseHTTPRequestHandler):
    """Knows one package, as it lies installed in the cache."""

    def do_GET(self):
        path = urllib.parse.unquote(self.path)
        if path == f"/{CLAUDE.package}":
            package = json.loads((self.server.package / "package.json").read_text())
            for member in ("optionalDependencies", "scripts"):  # the executable is in its place already
                package.pop(member, None)
            package["dist"] = {"tarball": f"{self.server.url}/claude.tgz"}
            body = json.dumps({"name": CLAUDE.package, "dist-tags": {"latest": CLAUDE.version},
                               "versions": {CLAUDE.version: package}}).encode()
        elif path == "/claude.tgz":
            body = packed(self.server.package).read_bytes()
            self.server.sent += 1
        else:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@functools.cache
def packed(package):
    """The package as an archive, made once for its version."""
    path = realagents.CACHE / f"claude-code-{CLAUDE.version}.tgz"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=realagents.CACHE, delete=False) as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
                tar.add(package, "package")
        os.rename(file.name, path)
    return path


class FirstAgentTest(unittest.TestCase):
    def setUp(self):
        if not shutil.which("npm", path="/usr/local/bin:/usr/bin"):
            raise unittest.SkipTest("npm is not in /usr")
        package = realagents.programs().parent / CLAUDE.package
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="b-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.clone = self.root / "berth"
        (self.clone / "build").mkdir(parents=True)
        (self.clone / "build" / "berth").symlink_to(BINARIES["faults"])
        subprocess.run(["git", "init", "-q", self.clone], check=True)
        (self.clone / ".git/info/exclude").write_text("/build\n/ca.pem\n")

        chain, ca = realagents.make_certificate(self.root, [CLAUDE.host])
        shutil.copy(ca, self.clone / "ca.pem")
        self.models = ModelServer("127.0.0.1", chain)
        self.addCleanup(self.models.close)
        (self.root / "hosts").write_text(f"{CLAUDE.host} !127.0.0.1:{self.models.port}\n")

        self.registry = http.server.ThreadingHTTPServer((REGISTRY_AT, 0), Registry)
        self.registry.package, self.registry.sent = package, 0
        address = "%s:%d" % self.registry.server_address
        self.registry.url = f"http://{address}"
        threading.Thread(target=self.registry.serve_forever, daemon=True).start()
        self.addCleanup(self.registry.server_close)
        self.addCleanup(self.registry.shutdown)

        self.env = {"HOME": str(self.root), "PATH": os.environ["PATH"], "BERTH_LISTEN": "127.0.0.1:0",
                    "BERTH_WORKSPACE_ROOTS": str(self.root), "BERTH_PRIVATE_HOSTS": address,
                    "BERTH_TEST_HOSTS": str(self.root / "hosts"), "npm_config_registry": self.registry.url,
                    "ANTHROPIC_API_KEY": realagents.KEY}
        self.addCleanup(self.stop_daemon)
        tried = self.sh("build/berth run --sandbox -- true")
        if tried.returncode:
            raise unittest.SkipTest(f"no sandboxes here: {tried.stderr}")

    def stop_daemon(self):
        lock = self.root / ".local/share/berth/berth.lock"
        if lock.exists():
            self.sh("build/berth env delete Claude --yes --close-leases --move-to Sandbox")  # with the sandbox that is kept
            pid = int(lock.read_text().split()[0])
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon ends")

    def sh(self, line):
        return subprocess.run(["bash", "-c", line], cwd=self.clone, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)

    def berth(self, *args):
        done = subprocess.run(["build/berth", *args, "--json"], cwd=self.clone, env=self.env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_the_lines(self):
        lines = block("A first agent")
        self.assertEqual(len(lines), 5, lines)
        for line in lines[:4]:
            done = self.sh(line)
            self.assertEqual(done.returncode, 0, (line, done.stdout, done.stderr))
        # The vendor's address is the test's: the program has to trust who signed its certificate.
        self.berth("agent", "update", "Coder", "--env", "NODE_EXTRA_CA_CERTS=/workspace/ca.pem")

        self.models.script(Shell("printf 'root = true\\n' > .editorconfig\n" + API), Say("It is there."))
        done = self.sh(lines[4])
        run = self.berth("runs", "list")[0]
        events = [e["message"] for e in self.berth("runs", "events", run["id"])]
        story = (done.stdout, done.stderr, events)
        self.assertEqual(done.returncode, 0, story)
        self.assertIn("> Bash: printf", done.stdout)
        self.assertIn("It is there.", done.stdout)
        self.assertIn("succeeded", done.stderr)
        self.assertEqual(self.sh("git status --porcelain").stdout, "?? .editorconfig\n", story)
        self.assertEqual((self.clone / ".editorconfig").read_text(), "root = true\n")
        self.assertEqual(self.berth("issue", "list")[0]["status"], "done", story)
        self.assertEqual(self.models.turns[0].key, realagents.KEY)
        self.assertEqual(self.registry.sent, 1)

        wait_until(lambda: self.berth("runs", "show", run["id"])["step"] == "done", "the sandbox is free again")

        # A second time: what is there says so, and the program is not installed again.
        said = []
        for line in lines[:4]:
            done = self.sh(line)
            said.append((done.returncode, (done.stdout + done.stderr).partition("already ")[2][:6]))
        self.assertEqual(said, [(0, "runs ("), (1, "exists"), (1, "exists"), (1, "exists")])
        self.models.script(Shell("echo '[*.c]' >> .editorconfig\n" + API), Say("Again."))
        done = self.sh(lines[4])
        self.assertEqual(done.returncode, 0, (done.stdout, done.stderr))
        self.assertEqual((self.clone / ".editorconfig").read_text(), "root = true\n[*.c]\n")
        self.assertEqual(self.registry.sent, 1)


if __name__ == "__main__":
    unittest.main()
