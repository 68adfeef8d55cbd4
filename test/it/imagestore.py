"""A daemon with a registry beside it, and images with programs in them, for tests of sandboxes from images."""

import functools
import io
import os
import pathlib
import shutil
import tarfile
import tempfile
import urllib.parse

from escapetest import USER_ID, user_binary, why_not_as_user
from imagetest import Image, Registry, layer
from sandboxproto import small_root
from sandboxtest import BERTH, SandboxTest, ident, wait_until

PROGRAMS = ("sh", "ls", "cat", "id", "env", "stat", "touch", "sha256sum", "readlink")


@functools.cache
def programs(*more):
    """A layer with a few programs of this machine, all root's."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="programs-"))
    out = io.BytesIO()

    def owned(info):
        info.uid = info.gid = info.mtime = 0
        return info
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(small_root(folder / "root", PROGRAMS + more), ".", filter=owned)
    shutil.rmtree(folder)
    return out.getvalue()


def entry(path, **more):
    info = tarfile.TarInfo(path)
    for name, value in more.items():
        setattr(info, name, value)
    return info


class ImagesTest(SandboxTest):
    as_user = False  # the daemon is an ordinary user's

    def new_daemon(self, **options):
        daemon = super().new_daemon(**options)
        if self.as_user:
            os.chown(daemon.data, USER_ID, USER_ID)
            pathlib.Path(daemon.data).parent.chmod(0o711)
        return daemon

    def setUp(self):
        if self.as_user:
            if why := why_not_as_user():
                self.skipTest(why)
            self.daemon_binary = user_binary()
        self.registry = Registry()
        self.addCleanup(self.registry.close)
        home = tempfile.TemporaryDirectory(prefix="home-")
        self.addCleanup(home.cleanup)
        self.daemon_env = {**self.daemon_env, "BERTH_IMAGE_REGISTRIES": f"http://{self.registry.host}",
                           "HOME": home.name}
        super().setUp()

    def make_lease(self):
        self.acme = self.company()
        self.require_sandboxes()

    def images(self, company=None):
        return f"/api/companies/{ident(company or self.acme)}/images"

    def image(self, name, company=None, status=200):
        return self.ok("GET", f"{self.images(company)}/{urllib.parse.quote(name, safe='')}", status=status)

    def put(self, name="tools", *more, **config):
        """An image with programs, in the registry: its reference."""
        image = Image(programs(), *more, **config)
        self.registry.add(image, name)
        return f"{self.registry.host}/{name}:latest"

    def begun(self, reference, company=None, suffix="", **body):
        return ident(self.ok("POST", self.images(company) + suffix, {"reference": reference, **body}, status=202))

    def ended_image(self, image_id, company=None):
        def look():
            row = self.image(image_id, company)
            return row if row["state"] != "pulling" else None
        return wait_until(look, "the image is there", 30)

    def got(self, reference, company=None, **body):
        row = self.ended_image(self.begun(reference, company, **body), company)
        self.assertEqual((row["state"], row["error"]), ("ready", None))
        return row

    def blobs_asked(self):
        return [path for path, _, _ in self.registry.seen if "/blobs/" in path]

    def layer_rows(self):
        return self.daemon.sql("SELECT * FROM image_layers ORDER BY id")

    def layer_dirs(self):
        return {p.name for p in (self.daemon.data / "images").iterdir()}

    def inside(self, lease, script, **body):
        self.held = lease
        return self.sh(script, **body)["stdout"]

    def no_image_left(self):
        self.ok("POST", f"{self.images()}/prune", {})
        self.assertEqual((self.layer_rows(), self.layer_dirs()), ([], set()))


__all__ = ["BERTH", "Image", "ImagesTest", "entry", "ident", "layer", "os", "programs", "wait_until"]
