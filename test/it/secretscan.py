"""Looking for values where none may be: files, processes, answers of the API. What is found is told by the name of the
value and the place, in clear, as base64 (at any offset) or as hex."""

import base64
import os
import pathlib
import re

from berthtest import SOURCE


def forms(value):
    """How the bytes of a value may look: as they are, each long line of it, base64, hex."""
    data = value.encode()
    found = {data, data.hex().encode(), data.hex().upper().encode()}
    found |= {line.encode() for line in value.splitlines() if len(line) >= 8}
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + data)
        inner = text[(shift * 8 + 5) // 6:len(text) - 4]  # only what the value alone decides
        found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return found


class Marks:
    """Values by name. make() gives one that nothing else contains by chance."""

    def __init__(self):
        self.values = {}

    def make(self, name, lines=1):
        value = "\n".join(f"Zq{os.urandom(12).hex()}Kx" for _ in range(lines))
        self.values[name] = value
        return value

    def found_in(self, data):
        return {name for name, value in self.values.items() if any(form in data for form in forms(value))}

    def in_files(self, *roots):
        """(name, path) of what regular files below the roots hold."""
        found = set()
        for root in roots:
            for path in [root] if root.is_file() else root.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    found |= {(name, str(path)) for name in self.found_in(path.read_bytes())}
        return found

    def in_processes(self, but=()):
        """(name, pid, file) of what arguments and environments of all processes hold."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            for file in ("cmdline", "environ"):
                try:
                    data = pathlib.Path(f"/proc/{pid}/{file}").read_bytes()
                except OSError:
                    continue
                found |= {(name, int(pid), file) for name in self.found_in(data) if int(pid) not in but}
        return found


def get_routes():
    """The patterns of all GET routes, as the source has them."""
    found = []
    for path in sorted(pathlib.Path(SOURCE / "src/api").glob("*.c")):
        text = path.read_text()
        base = re.search(r'#define BASE "([^"]*)"', text)
        for prefix, tail in re.findall(r'\{ "GET",\s+(BASE )?"([^"]*)"', text):
            found.append((base[1] if prefix else "") + tail)
    return found


def fill(pattern, ids):
    """All paths of a pattern; ids: what stands behind a segment, {"secrets": [ids]}."""
    paths = [""]
    before = ""
    for part in pattern.split("/")[1:]:
        choices = ids.get(before, ["none"]) if part.startswith(":") else [part]
        paths = [f"{path}/{choice}" for path in paths for choice in choices]
        before = part
    return paths
