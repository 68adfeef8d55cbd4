"""What tests of the built-in sandbox stand on: a daemon, as root or as a user made up for the test, an environment of
the provider `berth`, and the programs of test/it/escape inside its boxes.

    class DeviceTest(HostileTest):
        def test_nodes(self):
            self.held("mknod", "/tmp")

A made-up user exists only in the mount namespace of its daemon: /etc/passwd and the id ranges are bound over there, and
the machine's own files stay as they are.
"""

import base64
import contextlib
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

import berthtest
from berthtest import BerthTest, ident

ESCAPE = pathlib.Path(os.environ.get("BERTH_ESCAPE_BIN", berthtest.BUILD / "test/it/escape/escape"))
USER, USER_ID, SUB_IDS = "berth-test", 58231, (2_000_000_000, 4 * 65536)

WRAPPER = """#!/bin/sh
set -e
for file in passwd group subuid subgid; do mount --bind "{folder}/$file" /etc/$file; done
export HOME={folder}/home USER={name}
unset XDG_RUNTIME_DIR
exec setpriv --reuid {uid} --regid {uid} --clear-groups "{folder}/bin/berth" "$@"
"""


def why_not_as_user():
    """The reason why no daemon of another user can be tested here; "" when it can."""
    if os.geteuid() != 0:
        return "needs root, to become another user"
    for program in ("newuidmap", "newgidmap", "setpriv", "unshare"):
        if not shutil.which(program):
            return f"{program} is missing (packages uidmap, util-linux)"
    if not os.stat(shutil.which("newuidmap")).st_mode & stat.S_ISUID:
        return "newuidmap is not setuid"
    for file in ("/etc/subuid", "/etc/subgid"):
        if not os.path.exists(file):
            return f"{file} is missing, so nothing can be bound over it"
    return ""


def user_binary(program="berth"):
    """A daemon that is an ordinary user's: the name of a binary for daemon_binary."""
    kind = f"user-{program}"
    if kind in berthtest.BINARIES:
        return kind
    folder = pathlib.Path(tempfile.mkdtemp(prefix="u-"))
    for parent in (folder, *folder.parents):  # our own temporary directories; the system's are open already
        if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    (folder / "bin").mkdir()
    for name, of in (("berth", program), ("berth-box", "berth-box")):
        shutil.copy2(berthtest.BUILD / of, folder / "bin" / name)
    (folder / "home").mkdir(mode=0o700)
    os.chown(folder / "home", USER_ID, USER_ID)
    for file, line in (("passwd", f"{USER}:x:{USER_ID}:{USER_ID}::{folder}/home:/bin/sh\n"),
                       ("group", f"{USER}:x:{USER_ID}:\n"), ("subuid", ""), ("subgid", "")):
        ranges = f"{USER}:{SUB_IDS[0]}:{SUB_IDS[1]}\n" if file.startswith("sub") else ""
        there = pathlib.Path(f"/etc/{file}")
        (folder / file).write_text(there.read_text() + line + ranges)
    (folder / "as-user").write_text(WRAPPER.format(folder=folder, name=USER, uid=USER_ID))
    berth = folder / "berth"
    berth.write_text(f'#!/bin/sh\nexec unshare --mount --propagation private sh "{folder}/as-user" "$@"\n')
    berth.chmod(0o755)
    berthtest.BINARIES[kind] = str(berth)
    return kind


class HostileTest(BerthTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50"}
    as_user = False
    config = {}

    def setUp(self):
        if self.as_user:
            if why := why_not_as_user():
                self.skipTest(why)
            self.daemon_binary = user_binary()
        elif os.geteuid() != 0:
            self.skipTest("needs root")
        super().setUp()
        self.home = {}

    def new_daemon(self, **options):
        daemon = super().new_daemon(**options)
        if self.as_user:
            os.chown(daemon.data, USER_ID, USER_ID)
            home = pathlib.Path(daemon.data).parent
            if not home.stat().st_mode & stat.S_ISVTX:  # not /tmp itself
                home.chmod(0o711)
        return daemon

    def sandbox(self, name="box", **config):
        """An environment of the built-in provider."""
        if not hasattr(self, "acme"):
            self.acme = self.company()
        return self.environment(self.acme, name=name, config={"provider": "berth", **self.config, **config})

    def box(self, **config):
        """A lease on a box."""
        return self.acquire(self.sandbox(name=f"box-{len(self.home)}-{os.urandom(3).hex()}", **config))

    # Running.

    def run_in(self, lease, command, *args, **body):
        return self.ok("POST", f"/api/environment-leases/{ident(lease)}/execute",
                       {"command": command, "args": list(map(str, args)), **body})

    def sh(self, lease, script, **body):
        done = self.run_in(lease, "/bin/sh", "-c", script, **body)
        self.assertEqual(done["exitCode"], 0, done)
        return done["stdout"]

    def escape_program(self, lease):
        """Where the programs are inside; they are brought in on first need."""
        key = ident(lease)
        if key not in self.home:
            where = self.sh(lease, "cd && base64 -d >escape && chmod 755 escape && pwd",
                            stdin=base64.b64encode(ESCAPE.read_bytes()).decode())
            self.home[key] = where.strip()
        return f"{self.home[key]}/escape"

    def verdict(self, lease, case, *args, **body):
        """(HELD, ESCAPED or BROKEN, the rest of the line)"""
        done = self.run_in(lease, self.escape_program(lease), case, *args, **body)
        line = (done["stdout"].strip().splitlines() or [f"BROKEN {done}"])[-1]
        word, _, text = line.partition(" ")
        if word not in ("HELD", "ESCAPED"):
            return "BROKEN", f"{line} {done}"
        return word, text

    def held(self, lease, case, *args, **body):
        word, text = self.verdict(lease, case, *args, **body)
        self.assertEqual(word, "HELD", f"{case} {' '.join(map(str, args))}: {text}")
        return text

    # Looking from outside.

    def box_pid(self, lease):
        """PID 1 of a lease's box, as the host counts."""
        place = self.daemon.sql("SELECT place_id FROM environment_leases WHERE id = ?", (ident(lease),))[0]["place_id"]
        return int((self.daemon.data / "sandboxes" / place / "box/pid").read_text().split()[0])

    def tearDown(self):
        if self.daemon.running():
            for row in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
                self.req("POST", f"/api/environment-leases/{row['id']}/release", {})
        super().tearDown()


def ids_of(pid):
    """Every user id that a process has, as the host counts."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Uid:"):
            return set(map(int, line.split()[1:]))
    return set()


def bare(case, *args, **options):
    """The same program without a sandbox, in a mount namespace that goes with it."""
    done = subprocess.run(["unshare", "--mount", str(ESCAPE), case, *map(str, args)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, **options)
    line = (done.stdout.strip().splitlines() or [f"BROKEN {done}"])[-1]
    word, _, text = line.partition(" ")
    return word, text
