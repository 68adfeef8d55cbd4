"""What tests of workspaces in sandboxes stand on: a directory of the operator, ways to stage, work and restore, and
a look at what a directory holds."""

import os
import stat

from berthtest import ident
from sandboxtest import SandboxTest


def tree(path):
    """What a directory holds: relative name to content (a file), ('link', target) or 'dir'; the mode with files."""
    found = {}
    for folder, dirs, files in os.walk(path):
        for name in dirs + files:
            full = os.path.join(folder, name)
            rel = os.path.relpath(full, path)
            st = os.lstat(full)
            if stat.S_ISLNK(st.st_mode):
                found[rel] = ("link", os.readlink(full))
            elif stat.S_ISDIR(st.st_mode):
                found[rel] = "dir"
            else:
                with open(full, "rb") as f:
                    found[rel] = (stat.S_IMODE(st.st_mode), f.read())
    return found


def contents(path):
    """Files alone: name to text."""
    return {name: value[1].decode(errors="replace") for name, value in tree(path).items()
            if isinstance(value, tuple) and isinstance(value[1], bytes)}


class WorkspaceTest(SandboxTest):
    isolation = None

    def make_lease(self):
        super().make_lease()
        self.dir = self.temp_dir()
        os.chmod(self.dir, 0o755)

    def write(self, **files):
        for name, text in files.items():
            self.put(name.replace("__", "/").replace("_", "."), text)

    def put(self, name, text, mode=0o644):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def ws(self, rest="", lease=None):
        return f"/api/environment-leases/{ident(lease or self.held)}/workspace{rest}"

    def stage(self, lease=None, **body):
        body.setdefault("localPath", str(self.dir))
        if self.isolation:
            body.setdefault("isolation", self.isolation)
        return self.ok("POST", self.ws("/stage", lease), body)

    def restore(self, lease=None, **body):
        return self.ok("POST", self.ws("/restore", lease), body)

    def salvages(self):
        return self.ok("GET", f"/api/companies/{ident(self.acme)}/salvages")

    def counts(self, report):
        return report["added"], report["changed"], report["deleted"], len(report["conflicts"])
