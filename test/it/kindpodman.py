"""A podman of the test's own: its storage, its settings, and an image with nothing but busybox."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from kindtest import BUSYBOX, KindTest, processes_with

IMAGE = "localhost/berth-test:1"
needs_podman = unittest.skipUnless(os.geteuid() == 0 and shutil.which("podman") and shutil.which("runc") and BUSYBOX,
                                   "podman, runc and a static busybox, as root")

# In a container of this machine some limits are lower than podman's own defaults.
CONTAINERS = """[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{root}/tmp"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "k8s-file"
"""
STORAGE = """[storage]
driver = "vfs"
graphroot = "{root}/graph"
runroot = "{root}/run"
"""


class PodmanStore:
    """One storage with the image in it."""

    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="p-"))
        (self.root / "containers.conf").write_text(CONTAINERS.format(root=self.root))
        (self.root / "storage.conf").write_text(STORAGE.format(root=self.root))
        self.env = {"CONTAINERS_CONF": str(self.root / "containers.conf"),
                    "CONTAINERS_STORAGE_CONF": str(self.root / "storage.conf")}
        rootfs = self.root / "rootfs"
        for folder in ("bin", "tmp", "root", "etc"):
            (rootfs / folder).mkdir(parents=True)
        (rootfs / "tmp").chmod(0o1777)
        shutil.copy(BUSYBOX, rootfs / "bin" / "busybox")
        for name in subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                os.symlink("busybox", rootfs / "bin" / name)
        (rootfs / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        tar = subprocess.run(["tar", "-C", rootfs, "-c", "."], capture_output=True, check=True).stdout
        self.run("import", "-", IMAGE, input=tar)

    def run(self, *args, **more):
        done = subprocess.run(["podman", *args], env={**os.environ, **self.env}, capture_output=True, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def containers(self):
        return json.loads(self.run("ps", "--all", "--format", "json", "--filter", "label=berth-place"))

    def close(self):
        for container in self.containers():
            self.run("rm", "--force", "--time", "0", container["Id"])
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[4].startswith(f"{self.root}/"):
                subprocess.run(["umount", "-l", line.split()[4]], capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)


class PodmanTest(KindTest):
    provider, config = "podman", {"image": IMAGE}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.podman = PodmanStore()
        cls.addClassCleanup(cls.podman.close)
        cls.daemon_env = {**cls.daemon_env, **cls.podman.env}

    def world(self):
        return {c["Labels"]["berth-place"] for c in self.podman.containers()}

    def remove(self, ref):
        self.podman.run("rm", "--force", "--time", "0", ref)

    def remove_place(self, place):
        self.remove(f"berth-{place}")

    def reachers(self, ref):
        return processes_with("podman", "exec", ref)


__all__ = ["IMAGE", "PodmanStore", "PodmanTest", "needs_podman"]
