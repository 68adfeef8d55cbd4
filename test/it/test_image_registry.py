"""src/image against the real parts: Debian's docker-registry, images made and moved by umoci and skopeo, archives of all kinds."""
# slow: umoci, skopeo and the registry are programs of their own, started some thirty times
# share 6: 6 s of processor time

import crypt
import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tarfile
import tempfile
import unittest

from berthtest import wait_until
from imagetest import Image, ImageTest, remove

TOOLS = ("docker-registry", "skopeo", "umoci")


def tree(root):
    """What is in a directory: kind, mode, owner, link or content, and which names are one file."""
    first, found = {}, {}
    for path in sorted(root.rglob("*")):
        st, name = path.lstat(), str(path.relative_to(root))
        what = [stat.filemode(st.st_mode), st.st_uid, st.st_gid, int(st.st_mtime)]
        if path.is_symlink():
            what.append(os.readlink(path))
        elif path.is_file():
            what += [hashlib.sha256(path.read_bytes()).hexdigest(), first.setdefault(st.st_ino, name)]
        found[name] = what
    return found


@unittest.skipUnless(all(map(shutil.which, TOOLS)), f"needs {', '.join(TOOLS)}")
class RealTest(ImageTest):
    @classmethod
    def setUpClass(cls):
        cls.home = pathlib.Path(tempfile.mkdtemp(prefix="image-"))
        cls.addClassCleanup(remove, cls.home)
        cls.layout = cls.home / "layout"
        cls.make_layout()

    @classmethod
    def run_tool(cls, *command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120,
                              env={**os.environ, "HOME": str(cls.home), "TMPDIR": str(cls.home)})
        if done.returncode:
            raise AssertionError(f"{command}: {done.stderr}")

    @classmethod
    def make_layout(cls):
        """Two layers by umoci: files, then one changed, one removed, a directory replaced."""
        rootless = ["--rootless"] if os.geteuid() else []
        image, bundle = f"{cls.layout}:latest", cls.home / "bundle"
        cls.run_tool("umoci", "init", "--layout", cls.layout)
        cls.run_tool("umoci", "new", "--image", image)
        cls.run_tool("umoci", "unpack", *rootless, "--image", image, bundle)
        root = bundle / "rootfs"
        (root / "etc").mkdir()
        (root / "etc/name").write_text("one")
        (root / "etc/gone").write_text("gone")
        (root / "old/deep").mkdir(parents=True)
        (root / "old/deep/file").write_text("old")
        (root / ("long" * 50)).write_text("a name of 200 bytes")
        (root / "etc/link").symlink_to("../nowhere")
        os.link(root / "etc/name", root / "etc/twin")
        (root / "closed").mkdir()
        (root / "closed/file").write_text("x")
        (root / "closed").chmod(0o555)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        if not os.geteuid():
            os.chown(root / "etc/gone", 1000, 1001)
            os.chown(root / "tmp", 5, 6)
        cls.run_tool("umoci", "repack", "--image", image, "--refresh-bundle", bundle)
        (root / "etc/gone").unlink()
        (root / "etc/name").write_text("two")
        shutil.rmtree(root / "old")
        (root / "old").write_text("a file now")
        cls.run_tool("umoci", "repack", "--image", image, "--refresh-bundle", bundle)
        cls.run_tool("umoci", "config", "--image", image, "--config.user", "1000:1000", "--config.env", "A=b",
                      "--config.workingdir", "/etc", "--config.entrypoint", "/bin/sh", "--config.cmd", "-c")
        again = cls.home / "again"
        cls.run_tool("umoci", "unpack", *rootless, "--image", image, again)
        cls.rootfs = again / "rootfs"
        cls.expected = tree(cls.rootfs)

    def assert_image(self, answer):
        self.assertNotIn("error", answer, answer.get("text"))
        self.assertEqual((answer["user"], answer["workingDir"]), ("1000:1000", "/etc"))
        self.assertIn("A=b", answer["env"])
        self.assertEqual((answer["entrypoint"], answer["cmd"]), (["/bin/sh"], ["-c"]))
        self.assertEqual(tree(self.root), self.expected)

    def start(self, **more):
        """docker-registry on a free port; its URL is http unless it has certificates."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(self.dir / "store")}},
                  "http": {"addr": f"127.0.0.1:{port}", **more.pop("http", {})}, "log": {"level": "error"}, **more}
        file = self.dir / "registry.yml"
        file.write_text(json.dumps(config))
        log = open(self.dir / "registry.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(["docker-registry", "serve", str(file)], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)

        def listens():
            self.assertIsNone(process.poll(), (self.dir / "registry.log").read_text())
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0
        wait_until(listens, "the registry", 30)
        return f"localhost:{port}"

    def push(self, host, *flags):
        self.run_tool("skopeo", "copy", "--dest-tls-verify=false", *flags, f"oci:{self.layout}:latest",
                      f"docker://{host}/org/name:v1")

    def test_a_registry(self):
        host = self.start()
        for flags in ((), ("--dest-compress-format=zstd",), ("--format=v2s2",)):
            self.push(host, *flags)
            self.assert_image(self.drive("pull", f"{host}/org/name:v1", rules=f"http://{host}"))
        self.refused("not_found", "no image org/name", answer=self.drive("pull", f"{host}/org/name:v2",
                                                                         rules=f"http://{host}"))

    def test_a_registry_with_passwords_and_certificates(self):
        users = self.dir / "htpasswd"
        users.write_text(f"ann:{crypt.crypt('pass', crypt.mksalt(crypt.METHOD_BLOWFISH)).replace('$2b$', '$2y$')}\n")
        self.run_tool("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                      "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", self.dir / "key",
                      "-out", self.dir / "ca")
        host = self.start(auth={"htpasswd": {"realm": "r", "path": str(users)}},
                          http={"tls": {"certificate": str(self.dir / "ca"), "key": str(self.dir / "key")}})
        self.push(host, "--dest-creds=ann:pass")
        pull = lambda **more: self.drive("pull", f"{host}/org/name:v1", **{"rules": host, "ca": self.dir / "ca", **more})
        self.assert_image(pull(user="ann", password="pass"))
        self.refused("unauthorized", "docker login", answer=pull())
        self.refused("unauthorized", "refuses the credentials", answer=pull(user="ann", password="x"))
        self.refused("unreachable", "certificate", answer=pull(user="ann", password="pass", ca="/etc/ssl/certs/ca-certificates.crt"))
        self.refused("forbidden", "loopback", answer=pull(user="ann", password="pass", rules=""))
        self.run_tool("skopeo", "login", "--tls-verify=false", "--authfile", self.dir / "auth.json", "-u", "ann", "-p", "pass", host)
        self.assert_image(pull(config=self.dir / "auth.json"))

    def test_archives(self):
        answer = self.drive("import", self.layout)
        self.assert_image(answer)
        digest = answer["digest"]
        docker, oci = self.dir / "docker.tar", self.dir / "oci.tar"
        self.run_tool("skopeo", "copy", f"oci:{self.layout}:latest", f"docker-archive:{docker}:org/name:v1")
        self.run_tool("skopeo", "copy", f"oci:{self.layout}:latest", f"oci-archive:{oci}:v1")
        first = self.drive("import", docker)
        self.assert_image(first)
        self.assertEqual(self.drive("import", docker)["digest"], first["digest"])
        self.assert_image(self.drive("import", oci))
        # What is cut, changed or no archive at all.
        data = oci.read_bytes()
        for content, words in ((data[:len(data) // 2], ""), (b"x" * 2048, "not an archive"), (b"\x1f\x8b" + data, "gunzip"),
                               (b"\0" * 1024, "neither"), (data.replace(b"two", b"TWO"), "")):
            (self.dir / "broken.tar").write_bytes(content)
            answer = self.drive("import", self.dir / "broken.tar")
            if content != data:
                self.refused("invalid", words, answer=answer)
        self.refused("invalid", "oci-layout", answer=self.drive("import", self.dir))
        # A link of a layout that leads out of it.
        layout = self.dir / "changed"
        shutil.copytree(self.layout, layout)
        blob = layout / "blobs/sha256" / digest.removeprefix("sha256:")
        outside = self.dir / "outside"
        blob.rename(outside)
        blob.symlink_to(outside)
        self.refused("forbidden", "symlink", answer=self.drive("import", layout))

    def test_names_in_a_docker_archive(self):
        """Links inside it are followed, and go nowhere else."""
        docker = self.dir / "docker.tar"
        self.run_tool("skopeo", "copy", f"oci:{self.layout}:latest", f"docker-archive:{docker}:org/name:v1")
        with tarfile.open(docker) as tar:
            members = {m.name: (m, tar.extractfile(m).read() if m.isfile() else None) for m in tar.getmembers()}
        manifest = json.loads(members["manifest.json"][1])
        for target, good in (("../sub/real.tar", True), ("../../etc/passwd", False), ("/etc/passwd", False), ("missing", False)):
            changed = self.dir / "changed.tar"
            layer = manifest[0]["Layers"][0]
            with tarfile.open(changed, "w") as tar:
                for name, (info, content) in members.items():
                    if name == layer:
                        link = tarfile.TarInfo("id/layer.tar")
                        link.type, link.linkname = tarfile.SYMTYPE, target
                        tar.addfile(link)
                        info.name = "sub/real.tar"
                    if name == "manifest.json":
                        content = json.dumps([{**manifest[0], "Layers": ["id/layer.tar", *manifest[0]["Layers"][1:]]}]).encode()
                        info.size = len(content)
                    if content is not None:
                        tar.addfile(info, io.BytesIO(content))
                    info.name = name
            answer = self.drive("import", changed)
            self.assert_image(answer) if good else self.refused("invalid", answer=answer)

    def test_a_directory(self):
        source = self.rootfs
        os.setxattr(source / "etc/name", "user.mine", b"1")
        first = self.drive("from-dir", source)
        self.assertNotIn("error", first, first.get("text"))
        self.assertEqual(tree(self.root), self.expected)
        self.assertEqual(os.getxattr(self.root / "etc/name", "user.mine"), b"1")
        self.assertEqual(self.drive("from-dir", source)["digest"], first["digest"])
        other = self.dir / "other"
        other.mkdir()
        (other / ".wh.x").write_text("")
        self.refused("unprocessable", ".wh.", answer=self.drive("from-dir", other))

    def test_sparse_files_of_gnu_tar(self):
        """All four ways to write them, with long names and with more pieces than a header holds."""
        source, names = self.dir / "source", ("short", "long" * 40)
        source.mkdir()
        for name, pieces in zip(names, (3, 40)):
            with open(source / name, "wb") as file:
                for i in range(pieces):
                    file.seek(i * 200_000)
                    file.write(b"data%d" % i * 100)
                file.truncate(pieces * 200_000 + 77)
        for form in ("gnu", "0.0", "0.1", "1.0"):
            flags = ["--format=gnu"] if form == "gnu" else ["--format=posix", f"--sparse-version={form}"]
            packed = subprocess.run(["tar", "-S", *flags, "-C", source, "-cf", "-", "."], capture_output=True, check=True).stdout
            self.assertLess(len(packed), 1_000_000)  # the holes are not in it
            registry = self.registry()
            registry.add(Image(packed))
            self.pulled(registry)
            self.assertEqual(sorted(os.listdir(self.root)), sorted(names))
            for name in names:
                self.assertEqual((self.root / name).read_bytes(), (source / name).read_bytes(), form)
