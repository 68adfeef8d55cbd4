"""berth-box as PID 1 of a sandbox, driven directly: what is inside, what is not, limits, storage, and what is left."""

import os
import pathlib
import signal
import stat
import struct
import subprocess
import tempfile
import time
import unittest
import uuid as uuids

from berthtest import wait_until
from boxproto import ACCEPT, CONNECT, EXIT, FILES, FROM_HOST, NO_LIMIT, SHARED, STOPPED_BY_BOX, TERMINAL, parse_exit, process_lives
from exectest import descendants
from sandboxproto import (AGENT, BIND, DIRECTORY, HOST_NETWORK, IDS, OVERLAY, SUPERVISOR, Sandbox, first_id, inside,
                          small_root, spec)

CALL = "import ctypes,os,sys;libc=ctypes.CDLL(None,use_errno=True);"


def python(code):
    """A command line for a few lines of Python in the sandbox."""
    return "/usr/bin/python3 -c '" + code.replace("'", "'\\''") + "'"


@unittest.skipUnless(os.geteuid() == 0, "as an ordinary user: RootlessTest")
class SandboxTest(unittest.TestCase):
    def folder(self):
        folder = tempfile.TemporaryDirectory(prefix="sandbox-")
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def box(self, *flags, **more):
        return Sandbox(self, *flags, **more)

    def refused(self, **more):
        status, out, _ = Sandbox(self, start=False, **more).launch()
        self.assertEqual(status, 1, out)
        return out


class InsideTest(SandboxTest):
    def test_who_a_command_is(self):
        box = self.box()
        out, code = box.shell("id -u; id -un; grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status; cat /proc/self/uid_map")
        self.assertEqual(code, 0)
        lines = out.split("\n")
        self.assertEqual(lines[:2], ["1000", "agent"])
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertIn(f"{name}:\t0000000000000000", lines)
        self.assertIn("NoNewPrivs:\t1", lines)
        self.assertIn("Seccomp:\t2", lines)
        self.assertEqual(box.report["ids"], f"{first_id()} {first_id() + AGENT} {first_id() + IDS - 1}")
        self.assertNotIn(" 0 ", " ".join(lines[-3:]).replace("  ", " ").replace(" 0 ", "", 1))

    def test_the_commands_host_uid_is_of_the_range(self):
        box = self.box()
        host = box.connect()
        host.started(host.start("sleep", ["1000"]))
        owners = {pathlib.Path(f"/proc/{p}/status").read_text().split("Uid:\t")[1].split("\t")[0] for p in inside(box)}
        self.assertEqual(owners, {str(first_id() + AGENT), str(first_id() + IDS - 1)})

    def test_namespaces_are_its_own(self):
        box = self.box()
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            self.assertNotEqual(os.readlink(f"/proc/{box.pid}/ns/{kind}"), os.readlink(f"/proc/self/ns/{kind}"), kind)
        self.assertEqual(box.report["namespaces"], "user mnt pid net ipc uts cgroup")
        self.assertEqual(box.kill_method, 2)

    def test_the_hosts_network_on_request(self):
        box = self.box(network=HOST_NETWORK)
        self.assertEqual(os.readlink(f"/proc/{box.pid}/ns/net"), os.readlink("/proc/self/ns/net"))
        self.assertNotIn("net", box.report["namespaces"].split())

    def test_only_loopback(self):
        out, _ = self.box().shell("cat /proc/net/dev | tail -n +3; " + python(
            "import socket;s=socket.socket();s.bind((\"127.0.0.1\",0));s.listen();"
            "c=socket.create_connection(s.getsockname());print(\"connected\")"))
        self.assertEqual([line.split(":")[0].strip() for line in out.splitlines()], ["lo", "connected"])

    def test_nothing_else_of_the_host_exists(self):
        out, _ = self.box().shell("ls -A /; echo --; ls -A /etc /home /root /tmp /var /run /srv /mnt 2>/dev/null")
        top = set(out.split("--")[0].split())
        self.assertLessEqual(top, {"bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "opt", "proc",
                                   "root", "run", "sbin", "srv", "tmp", "usr", "var", "workspace"})
        self.assertNotIn("shadow", out)
        for path in ("/etc/shadow", "/etc/ssh", "/sys/kernel", "/var/backups", "/proc/1/root", str(pathlib.Path(__file__))):
            self.assertEqual(self.box().shell(f"test -e {path}")[1], 1, path)

    def test_programs_work(self):
        out, code = self.box().shell("set -e; /usr/bin/python3 -c 'import ssl,json;print(1)'; echo a | sed s/a/b/; ls /dev/fd/;"
                                     " date +%Z; mktemp; cat /proc/meminfo | head -1")
        self.assertEqual(code, 0, out)

    def test_the_system_is_read_only_and_home_is_not(self):
        out, _ = self.box().shell("touch /usr/x /etc/x /x /dev/x 2>&1 | grep -c 'Permission\\|Read-only';"
                                  "touch ~/a /tmp/a /workspace/a /dev/shm/a && echo fine", env={"HOME": "/home/agent",
                                                                                              "PATH": "/usr/bin"})
        self.assertEqual(out.split(), ["4", "fine"])

    def test_other_processes_are_not_seen(self):
        out, _ = self.box().shell("ls -d /proc/[0-9]* | wc -l; test -e /proc/1 || echo hidden; kill -9 1 2>&1")
        self.assertLessEqual(int(out.split()[0]), 4)
        self.assertIn("hidden", out)

    def test_no_descriptor_leaks(self):
        out, _ = self.box().shell("ls -l /proc/self/fd")
        open_files = [line.split(" -> ")[1] for line in out.splitlines() if " -> " in line]
        self.assertEqual(len(open_files), 4, out)
        self.assertTrue(all(f.startswith(("pipe:", "/dev/null", "/proc/")) for f in open_files), out)

    def test_system_calls_that_are_refused(self):
        """Each prints its name when it is not."""
        code = CALL + """
import errno,socket
def call(nr,*a): return -ctypes.get_errno() if libc.syscall(nr,*a)<0 else 0
for name,nr in dict(mount=165,umount=166,pivot=155,unshare=(272,0x10000000),setns=308,bpf=321,perf=298,uring=425,uffd=323,keyctl=250,
 addkey=248,vmread=310,vmwrite=311,getfd=438,kexec=246,module=175,byhandle=304,ptree=428,fsopen=430,movemount=429,setattr=442,chroot=161,reboot=169,
 swapon=167,syslog=(103,2),quotactl=179,acct=163,settime=227,fanotify=300,kcmp=312,clonens=(56,0x10000000|17)).items():
    nr,*rest = nr if isinstance(nr,tuple) else (nr,0)
    if call(nr,*rest,0,0,0,0) != -errno.EPERM: print(name)
if call(435,0,0) != -errno.ENOSYS: print("clone3")
for family,kind in ((16,3),(17,3),(40,1),(2,3),(10,3),(38,5),(31,3)):
    try: socket.socket(family,kind); print("socket",family,kind)
    except OSError as e: pass
import fcntl
m,s=os.openpty()
for request in (0x5412,0x541c):
    try: fcntl.ioctl(s,request,b"x"); print("ioctl")
    except PermissionError: pass
print("done")
"""
        out, _ = self.box().shell(python(code))
        self.assertEqual(out.split(), ["done"])

    def test_pid_1_cannot_be_reached(self):
        out, _ = self.box().shell("kill -TERM 1; kill -KILL 1; cat /proc/1/environ /proc/1/maps; ls /proc/1/fd /proc/1/root; echo end")
        self.assertIn("end", out)
        self.assertEqual(out.count("No such file"), 4, out)

    def test_terminal_belongs_to_the_command(self):
        host = self.box().connect()
        channel = host.shell("tty; stat -c %U $(tty); echo hi > $(tty)", flags=TERMINAL)
        host.started(channel)
        out = host.collect(channel)[0].decode().split()
        self.assertEqual(out, ["/dev/pts/0", "agent", "hi"])

    def test_nested_sandbox(self):
        script = "unshare -Urm sh -c 'mount -t tmpfs none /mnt && echo nested'"
        self.assertIn("nested", self.box(nested=True).shell(script)[0])
        self.assertNotIn("nested", self.box().shell(script)[0])

    @unittest.skipUnless(os.path.exists("/usr/bin/bwrap"), "bubblewrap is not installed")
    def test_nested_bubblewrap(self):
        script = "bwrap --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --unshare-all sh -c 'id -u; echo $$; echo nested'"
        self.assertEqual(self.box(nested=True).shell(script)[0].split(), ["1000", "2", "nested"])
        self.assertNotIn("nested", self.box().shell(script)[0])

    def test_hostname(self):
        self.assertEqual(self.box(hostname="builder-7").shell("uname -n; cat /etc/hostname")[0].split(), ["builder-7"] * 2)


class LimitTest(SandboxTest):
    def enforced(self, box, name):
        return box.report.get(name, "")

    def test_processes(self):
        box = self.box(processes=20)
        self.assertIn(self.enforced(box, "processes"), ("cgroup2", "cgroup1", "rlimit"))
        out, _ = box.shell(python("""
import os,time
n=0
try:
    while n < 200:
        if os.fork()==0: time.sleep(1000)
        n+=1
except BlockingIOError: pass
print(n)"""))
        self.assertLess(int(out), 20)
        self.assertTrue(process_lives(box.pid))

    def test_memory(self):
        box = self.box(memory=64 << 20)
        self.assertIn(self.enforced(box, "memory"), ("cgroup2", "cgroup1", "rlimit"))
        out, code = box.shell(python("x=bytearray(256<<20); print(len(x))"))
        self.assertNotEqual(code, 0)
        self.assertEqual(box.shell("echo alive")[0], "alive\n")

    def test_whose_memory_is_limited(self):
        """That of commands and of file workers, which commands can get hold of; not that of PID 1."""
        box = self.box(memory=64 << 20)
        if self.enforced(box, "memory") not in ("cgroup2", "cgroup1"):
            self.skipTest("no cgroup limits memory here")

        def cgroup(pid):
            lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
            return next((l for l in lines if ":memory:" in l), lines[-1])

        host = box.connect(epoch=2)
        host.send(CONNECT, FROM_HOST | 1, struct.pack(">BQ", FILES, NO_LIMIT))
        self.assertEqual(host.wait(FROM_HOST | 1).type, ACCEPT)
        host.started(host.start("/bin/sleep", ["1000"]))
        sleeping, worker = sorted(descendants(box.pid), key=lambda p: "sleep" not in pathlib.Path(f"/proc/{p}/comm").read_text())
        self.assertIn(f"berth-{box.id}", cgroup(sleeping))
        self.assertIn(f"berth-{box.id}", cgroup(worker))
        self.assertNotEqual(cgroup(box.pid), cgroup(sleeping))

    def test_disk_and_inodes(self):
        box = self.box(disk=4 << 20, inodes=500)
        self.assertEqual((self.enforced(box, "disk"), self.enforced(box, "inodes")), ("tmpfs", "tmpfs"))
        out, _ = box.shell("head -c 8000000 /dev/zero > /tmp/big; wc -c < /tmp/big; rm /tmp/big;"
                           "cd /workspace; touch $(seq 600) 2>/dev/null; ls | wc -l")
        size, files = [int(word) for word in out.split() if word.isdigit()]
        self.assertLess(size, 4 << 20)
        self.assertLess(files, 500)

    def test_open_files(self):
        box = self.box(files=32)
        self.assertEqual(box.shell("ulimit -n; ulimit -Hn")[0].split(), ["32", "32"])
        self.assertEqual(self.enforced(box, "open_files"), "rlimit")

    def test_cpu_says_how(self):
        box = self.box(cpu=500)
        if self.enforced(box, "cpu") == "cgroup1":
            (group,) = [g for g in box.cgroups() if "/cpu/" in str(g)]
            self.assertEqual((group / "cpu.cfs_quota_us").read_text(), "50000\n")

    def test_wall_time(self):
        box = self.box(wall=300)
        host = box.connect()
        channel = host.start("sleep", ["1000"])
        host.started(channel)
        host.open_output(channel)
        self.assertEqual(parse_exit(host.wait(channel, EXIT).payload).flags, STOPPED_BY_BOX)
        box.wait_gone()

    def test_without_cgroups(self):
        box = self.box("--kill", "subreaper", memory=1 << 30, processes=50, cpu=500)
        self.assertEqual(box.cgroups(), [])
        self.assertEqual([self.enforced(box, n) for n in ("memory", "processes", "cpu", "freeze", "exec_kill")],
                         ["rlimit", "rlimit", "", "signals", "3"])
        host = box.connect()
        # Left to itself, in a session of its own, with nothing of its environment.
        channel = host.shell("setsid env -i sleep 1000 & sleep 0.1; echo $!")
        host.started(channel)
        host.collect(channel)
        self.assertEqual(inside(box), [box.pid])


class StorageTest(SandboxTest):
    def test_shared_spool(self):
        folder = self.folder()
        output, exec_id = folder / "output", uuids.uuid4()
        folder.chmod(0o700)
        output.mkdir(mode=0o700)
        box = self.box(output=str(output))
        host = box.connect()
        place = output / str(exec_id)
        place.mkdir(mode=0o700)
        os.chown(place, first_id() + IDS - 1, first_id() + IDS - 1)
        channel = host.shell("echo out; echo err >&2", exec_id=exec_id, flags=SHARED, spool=str(place))
        host.started(channel)
        self.assertEqual(host.exit(channel).code, 0)
        host.forget(channel)
        host.ping()
        self.assertEqual(((place / "stdout").read_text(), (place / "stderr").read_text()), ("out\n", "err\n"))
        self.assertTrue((place / "exit").exists())

    def test_shared_spool_is_only_where_it_was_allowed(self):
        output = self.folder()
        host = self.box(output=str(output)).connect()
        exec_id = uuids.uuid4()
        for place in (f"{output}/{uuids.uuid4()}", f"{output}x/{exec_id}", "/tmp/x", f"{output}/../{exec_id}", f"{output}/{exec_id}"):
            channel = host.shell("true", exec_id=exec_id, flags=SHARED, spool=place)
            self.assertEqual(host.wait(channel).type, 29, place)  # FAILED: somebody else's, or not made for it
        self.assertEqual(list(output.iterdir()), [])

    def test_directory_keeps_home(self):
        storage = self.folder()
        one = self.box(storage=DIRECTORY, storage_path=str(storage))
        one.shell("echo kept > /home/agent/note; echo kept > /workspace/note; echo kept > /tmp/note")
        one.kill()
        two = self.box(storage=DIRECTORY, storage_path=str(storage))
        self.assertEqual(two.shell("cat /home/agent/note /workspace/note /tmp/note")[0].split(), ["kept"] * 3)
        self.assertEqual((storage / "upper/agent/note").stat().st_uid, first_id() + AGENT)

    def test_workspace_of_the_host(self):
        work = self.folder()
        (work / "file").write_text("mine\n")
        for path in (work, work / "file"):
            os.chown(path, 54321, 54321)
        box = self.box(workspace=BIND, workspace_dir=str(work), workspace_path="/home/agent/project")
        out, code = box.shell("cd /home/agent/project && cat file && echo new > made && stat -c %U made file")
        self.assertEqual((out.split(), code), (["mine", "agent", "agent"], 0))
        self.assertEqual((work / "made").stat().st_uid, 54321)

    def test_workspace_behind_an_overlay(self):
        work = self.folder()
        (work / "file").write_text("mine\n")
        (work / "gone").write_text("")
        out, _ = self.box(workspace=OVERLAY, workspace_dir=str(work)).shell(
            "cd /workspace; echo changed > file; rm gone; : > made; cat file; ls; ls -A / | grep -c workspace")
        self.assertEqual(out.split(), ["changed", "file", "made", "1"])
        self.assertEqual(sorted(f.name for f in work.iterdir()), ["file", "gone"])
        self.assertEqual((work / "file").read_text(), "mine\n")

    def test_rootfs_as_root(self):
        root, storage = small_root(self.folder() / "root"), self.folder()
        box = self.box(rootfs=str(root), root=True, storage=DIRECTORY, storage_path=str(storage))
        out, code = box.shell("id -u; touch /etc/installed; rm /bin/stat; chown 33:33 /etc/installed; ls -ln /etc/passwd /etc/installed;"
                              "cat /proc/self/status", env={"PATH": "/bin"})
        self.assertEqual(code, 0, out)
        self.assertEqual([line.split()[2] for line in out.splitlines() if line.startswith("-")], ["33", "0"])
        self.assertIn("CapEff:\t00000000800404fb", out)
        self.assertTrue((root / "bin/stat").exists())
        self.assertFalse((root / "etc/installed").exists())
        self.assertEqual((storage / "upper/etc/installed").stat().st_uid, first_id() + 33)

    def test_inner_root_cannot_become_the_supervisor(self):
        root = small_root(self.folder() / "root", programs=("sh", "setpriv", "id"))
        box = self.box(rootfs=str(root), root=True)
        self.assertIn("not permitted", box.shell(f"setpriv --reuid {SUPERVISOR} id -u", env={"PATH": "/bin"})[0])
        self.assertEqual(box.shell("setpriv --reuid 33 id -u", env={"PATH": "/bin"})[0], "33\n")

    def test_rootfs_in_memory_as_agent(self):
        root = small_root(self.folder() / "root")
        out, _ = self.box(rootfs=str(root)).shell("id -un; touch /etc/x; touch /tmp/x /workspace/x /home/agent/x && ls /",
                                                  env={"PATH": "/bin"})
        self.assertTrue(out.startswith("agent\n"), out)
        self.assertIn("Permission denied", out)

    def image(self, n_layers):
        """So many directories, the uppermost first; the last has the programs."""
        folder = self.folder()
        bottom = small_root(folder / "0")
        for name in ("hidden", "replaced"):
            (bottom / "etc" / name).mkdir()
            (bottom / "etc" / name / "below").write_text("")
        for i in range(1, n_layers):
            (folder / str(i) / "etc").mkdir(parents=True)
            (folder / str(i) / "etc/top").write_text(f"{i}\n")
            (folder / str(i) / f"etc/only-{i}").write_text("")
        top = folder / str(n_layers - 1)
        os.mknod(top / "etc/hidden", stat.S_IFCHR, os.makedev(0, 0))
        (top / "etc/replaced").mkdir()
        os.setxattr(top / "etc/replaced", "user.overlay.opaque", b"y")
        os.chown(top / "etc/top", 33, 34)
        return [str(folder / str(i)) for i in reversed(range(n_layers))]

    def test_the_layers_of_an_image(self):
        # Six names fit what fsconfig() takes; 128 do not. With own_users nothing is added to the image's users.
        for n in (6, 128):
            base = self.image(n)
            box = self.box(base=base, root=True, own_users=True, working_dir="/srv/app/deep")
            out, code = box.shell("cat etc/top; stat -c %u:%g etc/top; ls etc | cat; cat etc/passwd; pwd; ls -d home srv/app/deep",
                                  env={"PATH": "/bin"}, cwd="/")
            lines = out.splitlines()
            self.assertEqual(lines[:2], [str(n - 1), "33:34"], out)
            names = {f"only-{i}" for i in range(1, n)} | {"passwd", "group", "top", "replaced", "hosts", "hostname", "resolv.conf"}
            self.assertEqual(set(lines[2:2 + len(names)]), names)
            self.assertIn("root:x:0:0:root:/root:/bin/sh", lines)
            self.assertNotIn("agent", out)
            self.assertIn("srv/app/deep", lines)
            self.assertEqual(os.listdir(base[0] + "/etc/replaced"), [])
        out, _ = box.shell("ls /etc/replaced; echo x > /etc/hidden; cat /etc/hidden", env={"PATH": "/bin"})
        self.assertEqual(out, "x\n")

    def test_links_of_an_image_do_not_lead_out(self):
        # Until the root is changed, an absolute link means the host's directory.
        for link in ("etc", "dev", "proc", "etc/hosts"):
            outside, top = self.folder(), self.folder()
            outside.chmod(0o777)
            outside.parent.chmod(0o755)
            (top / link).parent.mkdir(exist_ok=True)
            (top / link).symlink_to(outside / "new" if link == "etc/hosts" else outside)
            box = self.box(base=[str(top), str(small_root(self.folder() / "root"))], root=True, own_users=True)
            self.assertEqual(os.listdir(outside), [])
            out, _ = box.shell("cat /etc/hosts; ls -d /proc/self/fd /dev/null", env={"PATH": "/bin"})
            self.assertIn("127.0.0.1 localhost", out, link)
            self.assertIn("/dev/null", out, link)
        self.assertIn("must be plain", self.refused(base=[str(top)], working_dir="/../../var/tmp/x"))

    def test_commands_are_the_user_of_the_image(self):
        box = self.box(base=self.image(2), own_users=True, user=33, group=34, working_dir="/srv")
        out, _ = box.shell("id -u; id -g; touch /workspace/mine && stat -c %u:%g /workspace/mine; touch /etc/x", env={"PATH": "/bin"})
        self.assertEqual(out.split()[:3], ["33", "34", "33:34"], out)
        self.assertIn("Permission denied", out)
        status, out, _ = Sandbox(self, base=self.image(2), user=65535, start=False).launch()
        self.assertEqual((status, "cannot be user 65535" in out), (1, True), out)

    def test_layers_of_another_sandbox(self):
        layers, storage = self.folder(), self.folder()
        before = first_id() + 100000
        (layers / "agent").mkdir()
        (layers / "agent/tool").write_text("v1\n")
        for path in (layers / "agent", layers / "agent/tool"):
            os.chown(path, before + AGENT, before + AGENT)
        os.chown(layers, before, before)
        box = self.box(storage=DIRECTORY, storage_path=str(storage), layers=[(str(layers), before)])
        out, _ = box.shell("cd /home/agent; stat -c %U tool; cat tool; echo v2 > tool; cat tool")
        self.assertEqual(out.split(), ["agent", "v1", "v2"])
        self.assertEqual(((layers / "agent/tool").read_text(), (storage / "upper/agent/tool").read_text()), ("v1\n", "v2\n"))
        # Without storage of its own as well.
        self.assertEqual(self.box(layers=[(str(layers), before)]).shell("cat /home/agent/tool")[0], "v1\n")

    def test_image(self):
        image = self.folder() / "image"
        with image.open("wb") as f:
            f.truncate(16 << 20)
        subprocess.run(["/sbin/mkfs.ext4", "-q", str(image)], check=True)
        if not os.path.exists("/dev/loop-control"):
            self.skipTest("no loop devices")
        box = self.box(storage=2, storage_path=str(image), disk=16 << 20)
        self.assertEqual(box.report["disk"], "image")
        out, _ = box.shell("head -c 30000000 /dev/zero > /home/agent/big 2>/dev/null; wc -c < /home/agent/big")
        self.assertLess(int(out.split()[-1]), 16 << 20)


class RefusalTest(SandboxTest):
    def test_what_is_no_description(self):
        good = spec()
        for raw in (b"", b"BSBX", good[:-1], good + b"\0", b"XXXX" + good[4:], b"BSBX\0\1" + good[6:], os.urandom(2000), b"x" * 70000):
            status, out, _ = Sandbox(self, raw=raw, start=False).launch()
            self.assertEqual((status, out[:6]), (1, "error "), raw[:40])

    def test_what_cannot_be(self):
        for more, text in ((dict(first=0), "cannot be given"), (dict(ids=100), "at least 2048"), (dict(root=True), "needs a rootfs"),
                           (dict(rootfs="relative"), "absolute"), (dict(workspace_path="/etc/x"), "makes itself"),
                           (dict(workspace_path="/a/../b"), "plain"), (dict(hostname="a b"), "hostname"),
                           (dict(rootfs="/nonexistent"), "No such file"), (dict(storage=DIRECTORY), "needs a path"),
                           (dict(workspace=BIND, workspace_dir="/etc/passwd"), "not a directory"),
                           (dict(workspace=BIND), "needs a directory")):
            self.assertIn(text, self.refused(**more))

    def test_a_failure_leaves_no_process_and_no_mount(self):
        box = Sandbox(self, rootfs="/nonexistent", start=False)
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        self.assertEqual(box.launch()[0], 1)
        self.assertEqual(pathlib.Path("/proc/self/mountinfo").read_text(), mounts)
        self.assertFalse((box.dir / "pid").exists())

    def test_one_box_per_directory(self):
        box = self.box()
        status, out, _ = box.launch()
        self.assertEqual((status, out), (1, f"error another box runs in {box.dir}\n"))


class DeathTest(SandboxTest):
    def test_pid_1_takes_everything_with_it(self):
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        box = self.box()
        host = box.connect()
        host.started(host.shell("setsid sleep 1000 & setsid sleep 1000 & wait"))
        wait_until(lambda: len(inside(box)) == 4, "both are there", 20)
        before = inside(box)
        self.assertEqual(pathlib.Path("/proc/self/mountinfo").read_text(), mounts)
        box.kill()
        self.assertEqual([p for p in before if process_lives(p)], [])

    def test_stop(self):
        box = self.box()
        host = box.connect()
        channel = host.shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
        host.started(channel)
        host.open_output(channel)
        host.wait(channel, 20)
        host.send(8, 0, struct.pack(">I", 5000))
        self.assertEqual(parse_exit(host.wait(channel, EXIT).payload).code, 3)
        box.wait_gone()

    def test_a_signal_from_outside_stops_it_and_one_from_inside_does_not(self):
        root = small_root(self.folder() / "root")
        box = self.box(rootfs=str(root), root=True)
        self.assertEqual(box.shell("kill -TERM 1; kill -INT 1; kill -KILL 1; echo on", env={"PATH": "/bin"})[0], "on\n")
        self.assertEqual(box.shell("echo still", env={"PATH": "/bin"})[0], "still\n")
        os.kill(box.pid, signal.SIGTERM)
        box.wait_gone()

    def test_a_launcher_that_is_killed_at_any_moment_leaves_no_process(self):
        """Later and later, until it has ended by itself. Whatever it got to, nothing may run without a way to it."""
        ready = 0
        for step in range(400):
            box = Sandbox(self, start=False, memory=1 << 30)
            launcher = subprocess.Popen([box.binary, "--dir", str(box.dir), "--id", str(box.id), "--sandbox"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
            os.write(launcher.stdin.fileno(), box.spec)
            launcher.stdin.close()
            until = time.monotonic() + step * 0.0001 * (1 + step / 50)
            while time.monotonic() < until:
                pass
            launcher.kill()
            out = launcher.stdout.read()
            launcher.stdout.close()
            launcher.wait()
            if out.startswith(b"ready "):
                ready += 1
                os.kill(int(out.split()[1]), signal.SIGKILL)
            wait_until(lambda: not named_on_command_line(box.id), f"nothing runs after step {step}", 20)
            # The directory says where its cgroups are, if it has any.
            noted = (box.dir / "cgroup").read_text().split() if (box.dir / "cgroup").exists() else []
            self.assertLessEqual({str(g) for g in box.cgroups()}, set(noted))
            if ready > 3:
                return
        self.fail("it never got ready")


def named_on_command_line(box_id):
    """Processes that were started for this box."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(box_id).encode() in line and process_lives(int(entry.name)):
            found.append(int(entry.name))
    return found


USER = 54321
FIRST = 1_700_000_000


@unittest.skipUnless(os.geteuid() == 0, "makes a user of its own, for which it has to be root")
@unittest.skipUnless(os.path.exists("/usr/bin/newuidmap"), "newuidmap is not installed (package uidmap)")
class RootlessTest(unittest.TestCase):
    """As an ordinary user with a range of ids. The user exists in a mount namespace of the test's own only."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="rootless-", dir="/tmp")  # the runner's own is closed to others
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.folder.chmod(0o755)
        self.home = self.folder / "home"
        self.home.mkdir(mode=0o700)
        os.chown(self.home, USER, USER)
        extra = {"passwd": f"tester:x:{USER}:{USER}::/:/bin/sh\n", "group": f"tester:x:{USER}:\n",
                 "subuid": f"tester:{FIRST}:{IDS}\n", "subgid": f"tester:{FIRST}:{IDS}\n"}
        mounts = []
        for name, line in extra.items():
            there = pathlib.Path("/etc", name)
            if not there.exists():
                self.skipTest(f"{there} is missing")
            (self.folder / name).write_text(there.read_text() + line)
            mounts.append(f"mount --bind {self.folder / name} {there}")
        self.prefix = ["unshare", "-m", "sh", "-c", "; ".join(mounts) +
                       f'; exec setpriv --reuid {USER} --regid {USER} --clear-groups -- "$@"', "sh"]
        self.binary = self.folder / "berth-box"
        self.binary.write_bytes(pathlib.Path(Sandbox(self, start=False).binary).read_bytes())
        self.binary.chmod(0o755)

    def box(self, *flags, **more):
        more.setdefault("first", FIRST)
        box = Sandbox(self, *flags, prefix=self.prefix, dir=self.home / str(uuids.uuid4()), start=False, **more)
        box.binary = str(self.binary)
        return box.start()

    def test_who_is_who(self):
        box = self.box()
        self.assertEqual((box.report["rootless"], box.report["ids"]), ("yes", f"{FIRST} {FIRST + AGENT} {USER}"))
        out, _ = box.shell("id -u; grep -E '^(CapEff|CapBnd|NoNew|Seccomp:)' /proc/self/status | cut -f2; ls /proc/1; ls /home")
        self.assertEqual(out.split()[:5], ["1000", "0000000000000000", "0000000000000000", "1", "2"])
        host = box.connect()
        host.started(host.start("sleep", ["1000"]))
        owners = {os.stat(f"/proc/{p}").st_uid for p in inside(box) if p != box.pid}
        self.assertLessEqual(owners, {FIRST + AGENT, 0})

    def test_the_program_is_a_sealed_copy(self):
        box = self.box()
        self.assertTrue(os.readlink(f"/proc/{box.pid}/exe").startswith("/memfd:"))
        with self.assertRaises(OSError):
            os.open(f"/proc/{box.pid}/exe", os.O_WRONLY)

    def test_storage_and_workspace(self):
        storage, work = self.home / "storage", self.home / "work"
        for place in (storage, work):
            place.mkdir()
            os.chown(place, USER, USER)
        (work / "file").write_text("mine\n")
        os.chown(work / "file", USER, USER)
        box = self.box(storage=DIRECTORY, storage_path=str(storage), workspace=OVERLAY, workspace_dir=str(work))
        out, _ = box.shell("echo kept > /home/agent/note; cat /workspace/file; : > /workspace/made && ls /workspace")
        self.assertEqual(out.split(), ["mine", "file", "made"])
        self.assertEqual((storage / "upper/agent/note").stat().st_uid, FIRST + AGENT)

    def test_a_range_that_is_not_ours(self):
        with self.assertRaisesRegex(AssertionError, "/etc/subuid"):
            self.box(first=FIRST + 2 * IDS)

    def own_root(self):
        root = small_root(self.folder / "root")
        for path in (root, *root.rglob("*")):
            os.chown(path, USER, USER)
        return str(root)

    def test_root_inside_changes_a_rootfs_of_the_user(self):
        box = self.box(rootfs=self.own_root(), root=True)
        out, _ = box.shell("id -u; id -G; echo x >>/etc/group && rm /bin/ls && mkdir /var/x && echo changed", env={"PATH": "/bin"})
        self.assertEqual(out.split(), ["0", "0", "changed"])

    def test_root_with_nested_sandboxes_is_refused(self):
        """Root inside could give itself the id of the user who starts the sandbox."""
        with self.assertRaisesRegex(AssertionError, f"could become user {USER}"):
            self.box(rootfs=self.own_root(), root=True, nested=True)

    def test_killed(self):
        box = self.box(processes=30, memory=1 << 30)
        self.assertEqual(box.report["processes"], "rlimit")
        host = box.connect()
        host.started(host.shell("setsid sleep 1000 & sleep 1000"))
        wait_until(lambda: len(inside(box)) == 4, "both are there", 20)
        before = inside(box)
        os.kill(box.pid, signal.SIGKILL)
        wait_until(lambda: not any(process_lives(p) for p in before), "all are gone", 20)


class CheckTest(SandboxTest):
    def run_box(self, *arguments):
        return subprocess.run([Sandbox(self, start=False).binary, *arguments, "--ids", f"{first_id()}:{IDS}"], capture_output=True,
                              text=True).stdout

    def test_check(self):
        lines = [line.split("\t") for line in self.run_box("--check").splitlines()]
        self.assertTrue(all(len(line) == 4 for line in lines), lines)
        table = {line[0]: line[1] for line in lines}
        self.assertEqual({name: table[name] for name in ("kernel", "namespaces", "id-ranges", "mounts", "proc", "seccomp")},
                         dict.fromkeys(("kernel", "namespaces", "id-ranges", "mounts", "proc", "seccomp"), "ok"))


if __name__ == "__main__":
    unittest.main()
