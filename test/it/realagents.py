"""Real agent programs in tests: the five that scripts/agent-programs fetches, unmodified, with the model server of
test/models in the place of their vendors, in each kind of place that Berth has.

A cell is (program, place, case). test_real_agents.py makes a test of each; what became of it is a line in the file that
TEST_AGENTS_RESULTS names, and scripts/agent-table makes the table of docs/adapters.md of these lines.
"""

import fcntl
import functools
import hashlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

from berthtest import SOURCE

sys.path.append(str(SOURCE / "test" / "models"))

UNAVAILABLE = 69  # of scripts/agent-programs
KEY = "key-of-a-test"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CACHE = pathlib.Path(os.environ.get("BERTH_TEST_CACHE", SOURCE / ".cache"))
# What agents and their shell tools want of a system.
SYSTEM = """awk base64 basename bash cat chmod cp curl cut date dirname env expr false find git grep gzip head hostname id
    kill ln ls mkdir mktemp mv nproc ps pwd readlink realpath rm rmdir sed sh sleep sort stat stty tail tar tee test
    timeout touch tr true uname uniq wc which whoami xargs""".split()


@functools.cache
def fetch():
    return subprocess.run([SOURCE / "scripts" / "agent-programs"], capture_output=True, text=True)


def programs():
    """The directory with the commands. Skips when they cannot be fetched."""
    done = fetch()
    if done.returncode == UNAVAILABLE:
        raise unittest.SkipTest(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.split()[-1])


def version(package):
    pinned = json.loads((SOURCE / "test" / "models" / "programs" / "package.json").read_text())
    return pinned["dependencies"][package]


def copy_libraries(program, root):
    """What a program of this machine is linked with, in the same places below `root`."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout  # nothing of a static one
    for path in re.findall(r"(/\S+)", listed):
        target = root / path[1:]
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(path), target)


def make_rootfs(root):
    for folder in ("usr/bin", "usr/lib", "usr/lib64", "usr/local/bin", "etc/ssl/certs", "proc", "dev", "sys", "tmp", "run",
                   "root", "home", "var/tmp", "opt/agents"):
        (root / folder).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in SYSTEM:
        if found := shutil.which(name, path="/usr/bin:/bin"):
            shutil.copy(os.path.realpath(found), root / "usr/bin" / name)
            copy_libraries(found, root)
    # The programs are linked, not copied; nothing writes to them there.
    subprocess.run(["cp", "-al", programs().parent, root / "opt/agents/node_modules"], check=True)
    for name in (*{p.command or p.name for p in PROGRAMS}, "node"):
        (root / "usr/local/bin" / name).symlink_to(f"/opt/agents/node_modules/.bin/{name}")
        copy_libraries(programs() / name, root)
    if os.path.exists(CERTIFICATES):
        shutil.copy(CERTIFICATES, root / CERTIFICATES[1:])
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\nagent:x:1000:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    (root / "complete").touch()


@functools.cache
def rootfs():
    """The root of a small system with all programs in /usr/local/bin, made once for the versions and for what makes it.
    Sandboxes lie above it and do not change it."""
    made_by = (inspect.getsource(make_rootfs), inspect.getsource(copy_libraries), *SYSTEM, programs().parent.parent.name)
    root = CACHE / f"agent-rootfs-{hashlib.sha256(repr(made_by).encode()).hexdigest()[:12]}"
    with open(CACHE / "agent-rootfs.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "complete").exists():
            for old in CACHE.glob("agent-rootfs-*/"):
                shutil.rmtree(old)
            make_rootfs(root)
    return root


def make_certificate(folder, names):
    """A certificate for these names, and of whoever signed it: (file with the chain and its key, file with the signer)."""
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256")
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=Signer of a test", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", *new, "-subj", f"/CN={names[0]}", "-keyout", "host.key", "-out", "host.csr")
    (folder / "more").write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names) + "\n"
                                 "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-sha256",
            "-extfile", "more", "-out", "host.pem")
    (folder / "chain.pem").write_text((folder / "host.pem").read_text() + (folder / "host.key").read_text())
    return folder / "chain.pem", folder / "ca.pem"


class Program:
    """What a person would set up to use the program with a model server of their own. `settle(case)` is called with the
    test, which has `models`, `home` (of the daemon's user), `put(name, text)` (a file for the place; its path there) and
    `put_home(name, text)` (a file in the home of the place, or in the project where there is none beforehand);
    it returns the variables and further members of the agent's configuration. `host` is where the vendor's service is,
    `by_default(ca)` the same for an agent that uses it, trusting the signers in that file."""

    name = adapter = package = host = None
    by_the_minute = False  # a session can only be resumed in another minute than it was made
    cached = 80  # tokens that it says were cached
    command = codes = None  # its command and what its error codes begin with, where that is not the name

    @property
    def version(self):
        return version(self.package)


class Claude(Program):
    name, adapter, package = "claude", "claude_local", "@anthropic-ai/claude-code"
    host = "api.anthropic.com"

    def settle(self, case):
        return {"ANTHROPIC_BASE_URL": case.models.url, "ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_MAX_RETRIES": "1"}, {}

    def by_default(self, ca):
        return {"ANTHROPIC_API_KEY": KEY, "NODE_EXTRA_CA_CERTS": ca}, {}


class Codex(Program):
    name, adapter, package = "codex", "codex_local", "@openai/codex"
    host = "api.openai.com"

    def settle(self, case, more=""):
        (case.home / ".codex").mkdir(exist_ok=True)
        (case.home / ".codex" / "config.toml").write_text(f"""model_provider = "own"
{more}
[model_providers.own]
name = "A server of our own"
base_url = "{case.models.url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
""")
        return {"OPENAI_API_KEY": KEY}, {"model": "gpt-5.4"}

    def by_default(self, ca):
        return {"OPENAI_API_KEY": KEY, "SSL_CERT_FILE": ca, "CODEX_CA_CERTIFICATE": ca}, {"model": "gpt-5.4"}


class Gemini(Program):
    name, adapter, package = "gemini", "gemini_local", "@google/gemini-cli"
    host = "generativelanguage.googleapis.com"

    def settle(self, case):
        # With a base URL it would choose another kind of login, for which it has no key.
        case.put_home(".gemini/settings.json", json.dumps({
            "security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 2}}))
        return {"GOOGLE_GEMINI_BASE_URL": case.models.url, "GEMINI_API_KEY": KEY}, {}

    def by_default(self, ca):
        return {"GEMINI_API_KEY": KEY, "NODE_EXTRA_CA_CERTS": ca}, {}


class GeminiAcp(Gemini):
    """The same program through its ACP mode: what it asks permission for is given to it."""
    name, adapter, command, codes = "gemini-acp", "gemini_acp", "gemini", "acp"
    cached = 0  # it does not say
    by_the_minute = True  # a session that is loaded in the minute in which it was made is overwritten with an empty one

    def settle(self, case):
        env, more = super().settle(case)
        return env, {**more, "permissionMode": "allow-once"}


class ClaudeAcp(Claude):
    """The same through its ACP adapter, which brings a program of its own along."""
    name, adapter, command, codes = "claude-acp", "acpx_local", "claude-agent-acp", "acp"
    package = "@agentclientprotocol/claude-agent-acp"

    def settle(self, case):
        env, more = super().settle(case)
        return env, {**more, "permissionMode": "allow-once"}


class CodexAcp(Codex):
    name, adapter, command, codes = "codex-acp", "acpx_local", "codex-acp", "acp"
    package = "@agentclientprotocol/codex-acp"

    def settle(self, case):
        env, _ = super().settle(case, 'model = "gpt-5.4"')  # as a choice it takes only models of its own list
        # Outside of sandboxes its own sandbox has no network for commands, which is its default there.
        mode = {} if case.place == "sandbox" else {"sessionMode": "agent-full-access"}
        return env, {"agent": "codex", "permissionMode": "allow-once", **mode}


class Opencode(Program):
    name, adapter, package = "opencode", "opencode_local", "opencode-ai"
    host = "api.anthropic.com"

    def settle(self, case):
        provider = {"npm": "@ai-sdk/openai-compatible", "models": {"model-1": {"name": "Model"}},
                    "options": {"baseURL": f"{case.models.url}/v1", "apiKey": KEY}}
        return {"OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"own": provider}, "autoupdate": False}),
                "OPENCODE_DISABLE_MODELS_FETCH": "1"}, {"model": "own/model-1"}

    def by_default(self, ca):
        return {"ANTHROPIC_API_KEY": KEY, "NODE_EXTRA_CA_CERTS": ca}, {"model": "anthropic/claude-sonnet-4-5"}


class Pi(Program):
    name, adapter, package = "pi", "pi_local", "@mariozechner/pi-coding-agent"
    host = "api.anthropic.com"

    def settle(self, case):
        models = case.put("pi/models.json", json.dumps({"providers": {"own": {
            "baseUrl": f"{case.models.url}/v1", "api": "openai-completions", "apiKey": KEY,
            "models": [{"id": "model-1"}]}}}))
        case.put("pi/settings.json", json.dumps({"retry": {"maxRetries": 1, "baseDelayMs": 100, "provider": {"maxRetries": 0}}}))
        return {"PI_CODING_AGENT_DIR": os.path.dirname(models), "PI_OFFLINE": "1"}, {"model": "own/model-1"}

    def by_default(self, ca):
        return {"ANTHROPIC_API_KEY": KEY, "NODE_EXTRA_CA_CERTS": ca}, {"model": "anthropic/claude-sonnet-4-5"}


PROGRAMS = [Claude(), Codex(), Gemini(), GeminiAcp(), ClaudeAcp(), CodexAcp(), Opencode(), Pi()]
PLACES = ["local", "sandbox", "ssh", "plugin"]


def record(program, place, case, result, why, seconds):
    """One line for scripts/agent-table."""
    path = os.environ.get("TEST_AGENTS_RESULTS")
    if path:
        with open(path, "a") as results:
            results.write(json.dumps({"program": program.name, "version": program.version, "place": place, "case": case,
                                      "result": result, "why": why, "seconds": round(seconds, 1),
                                      "date": time.strftime("%Y-%m-%d", time.gmtime())}) + "\n")
