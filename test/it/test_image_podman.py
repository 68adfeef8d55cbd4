"""One image, made by buildah, run by podman and by berth: inside, both must look the same."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from imagestore import ImagesTest, programs

TOOLS = ("buildah", "podman", "runc")
RUN = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--network", "none")
# Each system makes these itself.
OWN_FILES = {"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}
OWN_DIRECTORIES = ("proc", "sys", "dev", "run", "workspace")
OWN_VARIABLES = {"container", "HOSTNAME", "TERM", "PWD", "SHLVL", "OLDPWD", "_", "USER", "LOGNAME", "SHELL", "LANG", "BERTH_EXEC"}
ENTRIES = ("cd /; find . -mindepth 1 \\( " + " -o ".join(f"-path ./{name}" for name in OWN_DIRECTORIES)
           + " \\) -prune -o -printf '%P|%y|%m|%U|%G|%D:%i|%l\\n'")
CONTENT = ("cd /; find . \\( " + " -o ".join(f"-path ./{name}" for name in OWN_DIRECTORIES)
           + " \\) -prune -o -type f -exec sha256sum {} +")
WHO = "env; echo =; id -u; id -g; pwd; umask; readlink /proc/self/cwd"


def entries(listed):
    """Kind, mode, owner, link target by name, and the names that are one file."""
    found, files = {}, {}
    for line in listed.splitlines():
        name, kind, mode, uid, gid, inode, link = line.split("|")
        if name in OWN_FILES:
            continue
        found[name] = (kind, mode, uid, gid, link)
        if kind == "f":
            files.setdefault(inode, set()).add(name)
    return found, sorted(sorted(names) for names in files.values() if len(names) > 1)


def sums(listed):
    return {name[2:]: digest for digest, name in (line.split(None, 1) for line in listed.splitlines()) if name[2:] not in OWN_FILES}


def who(said):
    """Variables, and the lines about the rest."""
    variables, rest = said.split("\n=\n", 1)
    return {k: v for k, v in (line.split("=", 1) for line in variables.splitlines()) if k not in OWN_VARIABLES}, rest


@unittest.skipUnless(all(map(shutil.which, TOOLS)) and os.geteuid() == 0, f"needs {', '.join(TOOLS)} and root")
class PodmanTest(ImagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = pathlib.Path(tempfile.mkdtemp(prefix="p-"))
        cls.home.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, cls.home)
        cls.env = {**os.environ, "HOME": str(cls.home), "TMPDIR": str(cls.home), "STORAGE_DRIVER": "vfs"}
        cls.make_image()

    @classmethod
    def tool(cls, name, *args):
        command = [name, "--root", cls.home / "s", "--runroot", cls.home / "r", *args]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, env=cls.env)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    @classmethod
    def commit(cls, base, name, change, *config):
        """One more layer: what `change` does to the files."""
        container = cls.tool("buildah", "from", "--pull-never", base).strip()
        change(pathlib.Path(cls.tool("buildah", "mount", container).strip()))
        if config:
            cls.tool("buildah", "config", *config, container)
        cls.tool("buildah", "commit", "--quiet", container, name)
        cls.tool("buildah", "rm", container)

    @classmethod
    def make_image(cls):
        def base(root):
            subprocess.run(["tar", "-C", root, "-x"], input=programs("find"), check=True)
            (root / "etc/passwd").write_text("root:x:0:0:r:/root:/bin/sh\nweb:x:33:34:w:/srv/web:/bin/sh\n")
            (root / "etc/group").write_text("root:x:0:\nstaff:x:34:\n")
            (root / "tmp").chmod(0o1777)
            for name in ("root", "srv/web", "old/deep", "replaced", "closed"):
                (root / name).mkdir(parents=True)
            for name in ("gone", "old/inner", "old/deep/one", "replaced/file", "changed", "became"):
                (root / name).write_text(name)

        def second(root):
            (root / "gone").unlink()
            shutil.rmtree(root / "old")
            (root / "old").mkdir()
            (root / "old/new").write_text("new")
            shutil.rmtree(root / "replaced")
            (root / "replaced").write_text("a file now")
            (root / "became").unlink()
            (root / "became").mkdir()
            (root / "changed").write_text("by the second layer")
            os.chown(root / "changed", 3, 4)

        def third(root):
            os.chown(root / "srv/web", 33, 34)
            (root / "srv/web").chmod(0o2750)
            for name, mode, uid, gid in (("set", 0o4755, 0, 0), ("group", 0o2755, 0, 34), ("private", 0o600, 33, 34), ("high", 0o444, 4000, 50000)):
                (root / name).write_text(name)
                os.chown(root / name, uid, gid)
                (root / name).chmod(mode)
            (root / "closed").chmod(0o700)
            (root / "relative").symlink_to("changed")
            (root / "absolute").symlink_to("/etc/passwd")
            (root / "dangling").symlink_to("../../nothing here")
            os.link(root / "private", root / "srv/web/twin")
            os.mkfifo(root / "pipe", 0o640)
            os.lchown(root / "relative", 33, 34)
        cls.commit("scratch", "base", base)
        cls.commit("base", "second", second)
        cls.commit("second", "root", third, "--env", "A=image", "--env", "EMPTY=", "--env", "PATH=/bin", "--workingdir", "/srv/web",
                   "--entrypoint", '["/bin/sh", "-c"]', "--cmd", "id -u; pwd; echo $A its own")
        cls.commit("root", "web", lambda root: None, "--user", "web", "--env", "A=web image", "--workingdir", "/srv/app/new")
        for name in ("root", "web"):
            cls.tool("buildah", "push", "--quiet", name, f"oci:{cls.home}/{name}:v1")
        for path in (cls.home / "root", cls.home / "web"):
            subprocess.run(["chmod", "-R", "a+rX", path], check=True)

    def podman(self, name, *args, entry=()):
        return self.tool("podman", "--runtime", "runc", "--cgroup-manager=cgroupfs", "--events-backend=none",
                         "--tmpdir", self.home / "t", "run", "--rm", *RUN, *entry, f"localhost/{name}", *args)

    def podman_sh(self, name, script, *more):
        return self.podman(name, "-c", script, entry=("--entrypoint", "/bin/sh", *more))

    def berth(self, name, *args):
        status, out, err = self.cli("run", "--image", f"{name}:1", *args)
        self.assertEqual(status, 0, err)
        return out

    def take(self, name):
        self.got(f"{name}:1", suffix="/import", path=str(self.home / name))

    def same(self, found, wanted, what):
        self.assertEqual({k: (found.get(k), wanted.get(k)) for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k)}, {}, what)

    def without_owners(self, found):
        """A user's daemon has one owner for all files of a layer, and drops setuid bits there (docs/images.md)."""
        if not self.as_user:
            return found
        return {name: (kind, oct(int(mode, 8) & 0o1777), link) for name, (kind, mode, _, _, link) in found.items()}

    def compare_files(self, name, script_out):
        found, twins = entries(script_out(ENTRIES))
        wanted, wanted_twins = entries(self.podman_sh(name, ENTRIES, "--user", "root"))
        for expected in ("old/new", "pipe", "high", "srv/web/twin", "dangling", "tmp"):
            self.assertIn(expected, wanted)
        self.assertFalse({"gone", "old/inner", "old/deep", "replaced/file"} & wanted.keys())
        self.same(self.without_owners(found), self.without_owners(wanted), "entries")
        self.assertEqual(twins, wanted_twins)
        self.assertIn(["private", "srv/web/twin"], twins)
        self.same(sums(script_out(CONTENT)), sums(self.podman_sh(name, CONTENT, "--user", "root")), "content")

    def test_files(self):
        self.take("root")
        self.compare_files("root", lambda script: self.berth("root", "--", "/bin/sh", "-c", script))

    def test_files_with_the_user_root_by_name(self):
        """Nothing is added for a user that is in the image: no home, and no lines in passwd and group."""
        self.take("web")
        lease = self.acquire(self.sandbox_environment(image="web:1", user="root"))
        self.compare_files("web", lambda script: self.inside(lease, script, timeoutMs=60000))

    def test_who_runs_where(self):
        for name in ("root", "web"):
            self.take(name)
            found, wanted = who(self.berth(name, "--", "/bin/sh", "-c", WHO)), who(self.podman_sh(name, WHO))
            self.assertIn("A", wanted[0])
            self.same(found[0], wanted[0], f"variables of {name}")
            self.assertEqual(found[1], wanted[1], name)
            self.assertEqual(self.berth(name), self.podman(name), "entry point")


class UserTest(PodmanTest):
    as_user = True


if __name__ == "__main__":
    unittest.main()
