"""What tests of plugins stand on: packages written by the test, a registry on loopback for npm, and the published
SDK, fetched once.

    class T(PluginTest):
        def test_it(self):
            plugin = self.install(self.package())              # from its directory
            plugin = self.install_npm("acme-box", "1.0.0")     # after self.publish(self.package(version="1.0.0"))
"""

import base64
import fcntl
import hashlib
import http.server
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile
import threading
import unittest
import urllib.parse

from berthtest import SOURCE, BerthTest, ident

KEY = "acme.box"
SDK = "2026.512.0"
NEW_SDK = "2026.916.1"
NEW_NODE = (24, 11)  # which it asks for
EXAMPLE = SOURCE / "examples" / "fake-sandbox-provider"

# A worker without a library: answers what is asked of it, as the plugin's author would have it.
WORKER = """
import { createInterface } from "node:readline";
const say = (m) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...m }) + "\\n");
const answers = {
  initialize: ({ config }) => { say({ method: "log", params: { level: "info", message: "config " + JSON.stringify(config) } });
    return { ok: true, supportedMethods: Object.keys(answers) }; },
  configChanged: ({ config }) => { say({ method: "log", params: { level: "warn", message: "changed " + JSON.stringify(config) } }); return null; },
  validateConfig: ({ config }) => config.region === "moon" ? { ok: false, errors: ["no moon"] } : { ok: true },
  shutdown: () => { setImmediate(() => process.exit(0)); return null; },
};
//MORE
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const answer = answers[method];
  try {
    if (answer) return say({ id, result: answer(params) });
  } catch (e) {
    return say({ id, error: { code: -32002, message: String(e) } });
  }
  say({ id, error: { code: -32004, message: method + " is not implemented by this plugin" } });
}).on("close", () => process.exit(0));
"""


def manifest(key=KEY, version="1.0.0", worker="./worker.js", **more):
    return {
        "id": key, "apiVersion": 1, "version": version, "displayName": "Acme Box", "description": "For tests.",
        "author": "Acme", "categories": ["automation"], "capabilities": ["environment.drivers.register"],
        "entrypoints": {"worker": worker},
        "environmentDrivers": [{"driverKey": "acme", "kind": "sandbox_provider", "displayName": "Acme",
                                "configSchema": {"type": "object", "properties": {"image": {"type": "string"}}}}],
        **more,
    }


def need_node():
    if not shutil.which("node"):
        raise unittest.SkipTest("node is not installed")


def need_npm():
    need_node()
    if not shutil.which("npm"):
        raise unittest.SkipTest("npm is not installed")


def npm_install(cache, *packages):
    """Put packages into cache/node_modules. False when they cannot be had."""
    return subprocess.run(["npm", "install", *packages, "--ignore-scripts", "--no-audit", "--no-fund", "--prefix",
                           str(cache)], cwd=cache, capture_output=True, text=True, timeout=240).returncode == 0


def from_npm(package, what, fetch=npm_install):
    """node_modules with one published package, fetched once for all tests. Skips when it cannot be fetched."""
    need_npm()
    cache = pathlib.Path(os.environ.get("BERTH_TEST_CACHE", SOURCE / ".cache")) / package.split("/")[-1].replace("@", "-")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(cache.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "complete").exists():
            shutil.rmtree(cache, ignore_errors=True)
            cache.mkdir()
            (cache / "package.json").write_text("{}")
            if not fetch(cache, package):
                raise unittest.SkipTest(f"{what} cannot be fetched from the npm registry")
            (cache / "complete").touch()
    return cache / "node_modules"


def sdk_modules(version=SDK):
    return from_npm(f"@paperclipai/plugin-sdk@{version}", f"the SDK {version}")


def node_version(node="node"):
    shown = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.(\d+)\.", shown)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def new_node():
    """A node that the newest SDK runs on: the one in PATH, or one from npm. Skips when there is neither."""
    need_node()
    if node_version() >= NEW_NODE:
        return shutil.which("node")
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    wanted = f"node-linux-{machine}"
    node = from_npm(f"{wanted}@{NEW_NODE[0]}", f"node {NEW_NODE[0]}") / wanted / "bin" / "node"
    if node_version(node) < NEW_NODE:
        raise unittest.SkipTest(f"node is older than {NEW_NODE[0]}.{NEW_NODE[1]}, and the one from npm does not run here")
    return str(node)


class Registry:
    """As much of an npm registry as `npm install` asks for."""

    def __init__(self):
        self.packages = {}  # name: {version: (package.json, archive)}
        self.asked = []
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                registry.asked.append(self.path)
                body, kind = registry.answer(urllib.parse.unquote(self.path.split("?")[0]))
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"{}")))
                self.end_headers()
                self.wfile.write(body if body is not None else b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def publish(self, directory):
        package = json.loads((directory / "package.json").read_text())
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path in sorted(directory.rglob("*")):
                archive.add(path, f"package/{path.relative_to(directory)}", recursive=False)
        self.packages.setdefault(package["name"], {})[package["version"]] = (package, packed.getvalue())
        return package["name"]

    def answer(self, path):
        if path.endswith(".tgz"):
            name, _, version = path.strip("/").removesuffix(".tgz").rpartition("/-/")
            found = self.packages.get(name, {}).get(version)
            return (found and found[1]), "application/octet-stream"
        name = path.strip("/")
        versions = self.packages.get(name)
        if not versions:
            return None, "application/json"
        shown = {}
        for version, (package, archive) in versions.items():
            digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
            shown[version] = {**package, "dist": {"tarball": f"{self.url}{name}/-/{version}.tgz",
                                                  "integrity": f"sha512-{digest}"}}
        return json.dumps({"name": name, "dist-tags": {"latest": list(versions)[-1]}, "versions": shown}
                          ).encode(), "application/json"


class PluginTest(BerthTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_PLUGIN_INSTALL_TIMEOUT_MS": "60000"}

    def setUp(self):
        self.registry = None
        super().setUp()

    # Packages.

    def package(self, key=KEY, version="1.0.0", worker=WORKER, manifest_js=None, name="acme-box", package_version=None,
                scripts=None, **more):
        """A directory with a package. `more` goes into the manifest."""
        path = self.temp_dir() / "package"
        path.mkdir()
        text = manifest_js or f"export default {json.dumps(manifest(key, version, **more))}"
        (path / "package.json").write_text(json.dumps({
            "name": name, "version": package_version or version, "type": "module",
            "paperclipPlugin": {"manifest": "./manifest.js", "worker": "./worker.js"},
            **({"scripts": scripts} if scripts else {})}))
        (path / "manifest.js").write_text(text)
        (path / "worker.js").write_text(worker)
        return path

    def example(self, version=SDK):
        """The example provider, with its dependencies."""
        modules = sdk_modules(version)
        path = self.temp_dir() / "example"
        shutil.copytree(EXAMPLE, path, ignore=shutil.ignore_patterns("node_modules", "package-lock.json"))
        shutil.copytree(modules, path / "node_modules", symlinks=True)
        return path

    def start_registry(self):
        """A registry that the daemon's npm is pointed to. Before the daemon is started."""
        need_npm()
        self.registry = Registry()
        self.addCleanup(self.registry.close)
        return {"npm_config_registry": self.registry.url, "npm_config_cache": str(self.temp_dir()),
                "npm_config_fetch_retries": "0"}

    def publish(self, directory):
        return self.registry.publish(directory)

    # Asking.

    def install(self, directory, status=200, **more):
        return self.ok("POST", "/api/plugins/install", {"packageName": str(directory), "isLocalPath": True, **more},
                       status=status)

    def install_npm(self, name, version=None, status=200):
        body = {"packageName": name, **({"version": version} if version else {})}
        return self.ok("POST", "/api/plugins/install", body, status=status)

    def plugin(self, plugin=KEY, suffix=""):
        return self.ok("GET", f"/api/plugins/{ident(plugin)}{suffix}")

    def post(self, plugin, action, body=None, status=200):
        return self.ok("POST", f"/api/plugins/{ident(plugin)}/{action}", body, status=status)

    def worker(self, plugin=KEY):
        """The worker as the dashboard shows it."""
        return self.plugin(plugin, "/dashboard")["worker"] or {}

    def logged(self, plugin=KEY):
        return [line["message"] for line in self.plugin(plugin, "/logs?limit=500")]

    # Looking.

    def plugin_dir(self, *parts):
        return self.daemon.data.joinpath("plugins", *parts)

    def files(self, *parts):
        path = self.plugin_dir(*parts)
        return sorted(os.listdir(path)) if path.exists() else []


