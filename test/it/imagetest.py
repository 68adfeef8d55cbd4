"""A registry that does as it is told, images to put into it, and the library (src/image) as a program."""

import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tarfile
import tempfile
import threading
import unittest

from berthtest import BUILD

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
HERE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer(files):
    """A tar archive: {"path": b"content"}, or a tarfile.TarInfo for anything else."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(path)
            data = b"" if isinstance(content, tarfile.TarInfo) else content
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def remove(directory):
    """Also what an ordinary user closed to itself."""
    for path, names, _ in os.walk(directory):
        for name in names:
            if not os.path.islink(os.path.join(path, name)):
                os.chmod(os.path.join(path, name), 0o700)
    shutil.rmtree(directory)


class Image:
    """One image: its documents and layers by digest."""

    def __init__(self, *layers, architecture=HERE, **config):
        packed = [gzip.compress(plain, mtime=0) for plain in layers]
        self.layers = [digest(data) for data in packed]
        self.config = json.dumps({"os": "linux", "architecture": architecture, "config": config, "rootfs": {
            "type": "layers", "diff_ids": [digest(plain) for plain in layers]}}).encode()
        self.blobs = {digest(self.config): self.config, **dict(zip(self.layers, packed))}
        self.manifest = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(self.config),
                       "size": len(self.config)},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest(data),
                        "size": len(data)} for data in packed]}).encode()
        self.digest = digest(self.manifest)

    def layout(self, folder):
        """The same as an OCI layout, under the name v1."""
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        for key, data in {**self.blobs, self.digest: self.manifest}.items():
            (folder / "blobs/sha256" / key.split(":")[1]).write_bytes(data)
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [{
            "mediaType": MANIFEST, "digest": self.digest, "size": len(self.manifest),
            "annotations": {"org.opencontainers.image.ref.name": "v1"}}]}))
        return folder


class Registry:
    """Serves what is in `paths` ({"/v2/x/manifests/latest": bytes}); `rules` has functions by path that answer instead: each gets
    the handler and the number of the request for that path, and returns False to leave it alone. `seen` has all requests."""

    def __init__(self):
        self.paths, self.types, self.rules, self.seen = {}, {}, {}, []
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer_for(self.path.split("?")[0])

            def do_POST(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                self.answer_for(self.path)

            def answer_for(self, path):
                registry.seen.append((path, dict(self.headers), self))
                number = sum(1 for seen in registry.seen if seen[0] == path)
                rule = registry.rules.get(path) or registry.rules.get("*")
                if rule and rule(self, number) is not False:
                    return
                data = registry.paths.get(path)
                if data is None:
                    self.send(404, b'{"errors": [{"code": "X", "message": "not\\u0001here"}]}')
                    return
                start = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
                if start:
                    self.send(206, data[start:], {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})
                else:
                    self.send(200, data, {"Content-Type": registry.types.get(path, "application/octet-stream")})

            def send(self, status, data=b"", headers=None, length=None):
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data) if length is None else length))
                self.end_headers()
                self.wfile.write(data)
                if length is not None:
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # clients that had enough
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def add(self, image, name="x", tag="latest"):
        for reference in (tag, image.digest):
            self.paths[f"/v2/{name}/manifests/{reference}"] = image.manifest
            self.types[f"/v2/{name}/manifests/{reference}"] = MANIFEST
        for key, data in image.blobs.items():
            self.paths[f"/v2/{name}/blobs/{key}"] = data

    def asked(self, path):
        """The headers of all requests for a path."""
        return [headers for seen, headers, _ in self.seen if seen == path]


class ImageTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="image-"))
        self.addCleanup(remove, self.dir)

    def registry(self):
        registry = Registry()
        self.addCleanup(registry.close)
        return registry

    def drive(self, *args, env=None, **more):
        """imagedrive, whose answer is the last line; `into` is a directory of its own."""
        into = pathlib.Path(tempfile.mkdtemp(dir=self.dir)) if "into" not in more else more.pop("into")
        done = subprocess.run([str(BUILD / "test/harness/imagedrive"), *map(str, args), str(into),
                               *(f"{key}={value}" for key, value in more.items())],
                              capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.into, self.root = into, into / "root"
        return answer

    def pull(self, registry, name="x", **more):
        return self.drive("pull", f"{registry.host}/{name}", **{"rules": f"http://{registry.host}", **more})

    def pulled(self, registry, name="x", **more):
        answer = self.pull(registry, name, **more)
        self.assertNotIn("error", answer, answer.get("text"))
        return answer

    def refused(self, code, *words, answer):
        self.assertEqual(answer.get("error"), code, answer)
        for word in words:
            self.assertIn(word, answer["text"])
