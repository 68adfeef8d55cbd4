"""bench/run --only workspaces: trees in and out, beside cp, rsync and tar over ssh on the same trees.

`tools` is bench/run itself. Each tree is staged into a fresh place, then once more after one file was changed, and what
a command changed inside is brought home. The others copy the same tree to a directory: first to an empty one, then
again after the same change; back is the same for them as there.
"""

import os
import pathlib
import random
import shutil
import statistics
import subprocess
import time

KB, MB = 1 << 10, 1 << 20
CHANGED_INSIDE = 10

# name, files, bytes of each
TREES = (("a: 10 small files", 10, KB), ("b: 2,000 files, 20 MB", 2000, 10 * KB), ("c: one file, 200 MB", 1, 200 * MB),
         ("d: 50,000 files, 500 MB", 50_000, 10 * KB))


# For a quick look: BENCH_TREES=ab
TREES = [tree for tree in TREES if tree[0][0] in os.environ.get("BENCH_TREES", "abcd")]


def make_tree(path, files, size):
    """Half of the bytes compress, half do not, as in a checkout with its objects."""
    rng = random.Random(7)
    text = b"the quick brown fox jumps over the lazy dog\n" * (size // 90 + 1)
    for i in range(files):
        folder = path / f"d{i // 100:04}"
        folder.mkdir(parents=True, exist_ok=True)
        half = size // 2
        with open(folder / f"f{i:06}.txt", "wb") as f:
            f.write(text[:half])
            for at in range(half, size, MB):
                f.write(rng.randbytes(min(MB, size - at)))
    return path


def change_one(path, round):
    """A few bytes in the middle of one file, the same file for everybody."""
    victim = path / "d0000" / "f000000.txt"
    with open(victim, "r+b") as f:
        f.seek(victim.stat().st_size // 2)
        f.write(f"changed {round:6}\n".encode())


def timed(what, *args):
    begin = time.perf_counter()
    what(*args)
    return (time.perf_counter() - begin) * 1000


def shell(command):
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr[-300:]}")


class Others:
    """What people use without Berth. Each has a name and a way to bring a tree there."""

    def __init__(self, scratch, ssh=None):
        self.dir = pathlib.Path(scratch) / "others"
        self.dir.mkdir()
        self.ways = [("cp", lambda tree, to: shell(f"mkdir -p {to} && cp -a --reflink=auto {tree}/. {to}/"))]
        if shutil.which("rsync"):
            self.ways.append(("rsync", lambda tree, to: shell(f"rsync -a --delete {tree}/ {to}/")))
        if ssh:
            self.ways.append(("tar|zstd|ssh", lambda tree, to: shell(
                f"tar -C {tree} -cf - . | zstd -q -3 -T0 | {ssh} 'mkdir -p {to} && zstd -dq | tar -C {to} -xf -'")))
            if shutil.which("rsync"):
                self.ways.append(("rsync over ssh", lambda tree, to: shell(
                    f"rsync -a --delete -e '{ssh.rsplit(' ', 1)[0]}' {tree}/ {ssh.rsplit(' ', 1)[1]}:{to}/")))

    def measure(self, tree, repeats):
        """{name: (first, again)} in milliseconds."""
        figures = {}
        for name, way in self.ways:
            first, again = [], []
            for i in range(repeats):
                to = self.dir / "to"
                first.append(timed(way, tree, to))
                change_one(tree, i)
                again.append(timed(way, tree, to))
                shutil.rmtree(to)
            figures[name] = statistics.median(first), statistics.median(again)
        return figures


class Place:
    """An environment of one kind; a lease of it, staged and restored through the API."""

    def __init__(self, tools, scene, name, body):
        self.tools, self.scene, self.name = tools, scene, name
        self.environment = scene.post(f"/api/companies/{scene.company}/environments", {"name": name, **body})["id"]

    def act(self, lease, what, body):
        return self.tools.expect(self.scene.daemon.req("POST", f"/api/environment-leases/{lease}/{what}", body), 200)

    def measure(self, tree, repeats):
        """(stage, stage again, restore) in milliseconds."""
        first, again, back = [], [], []
        for i in range(repeats):
            lease = self.tools.acquire(self.scene, self.environment)
            first.append(timed(self.act, lease, "workspace/stage", {"localPath": str(tree)}))
            change_one(tree, 100 + i)
            again.append(timed(self.act, lease, "workspace/stage", {"localPath": str(tree)}))
            cwd = self.act(lease, "execute", {"command": "pwd"})["stdout"].strip()
            self.act(lease, "execute", {"command": "sh", "cwd": cwd, "args": [
                "-c", f"for i in $(seq {CHANGED_INSIDE}); do echo round {i} > new-$i.txt; done"]})
            back.append(timed(self.act, lease, "workspace/restore", {}))
            self.act(lease, "release", {})
        return statistics.median(first), statistics.median(again), statistics.median(back)


def rows(report, tree_name, place, figures, others):
    first, again, back = figures
    cp, rsync = others.get("cp"), others.get("rsync")
    over = others.get("tar|zstd|ssh"), others.get("rsync over ssh")
    remote = place != "sandbox"
    beside_first = ("tar|zstd|ssh", over[0][0]) if remote and over[0] else ("cp", cp[0])
    beside_again = ("rsync", (over[1] or rsync)[1]) if remote and rsync else ("cp", cp[1])
    big = tree_name.startswith("d")
    report.figure(f"{place} {tree_name[:1]}: stage", first, "ms", floors=[beside_first],
                  target=("<=", beside_first[1]) if remote else None)
    report.figure(f"{place} {tree_name[:1]}: again, one changed", again, "ms", floors=[beside_again],
                  target=("<=", beside_again[1]) if remote else None)
    report.figure(f"{place} {tree_name[:1]}: restore {CHANGED_INSIDE} files", back, "ms",
                  target=("<=", 20) if big and not remote else None)


def ssh_command(fixture):
    return (f"ssh -F none -o BatchMode=yes -o UserKnownHostsFile={fixture.known_hosts_path} -i {fixture.client_key} "
            f"-p {fixture.port} {fixture.username}@127.0.0.1")


def places(tools, scene, fixture, executor):
    """The kinds of environments that this machine has."""
    kinds = [Place(tools, scene, "sandbox", {"driver": "sandbox", "config": {"provider": "berth"}})]
    if fixture:
        kinds.append(Place(tools, scene, "ssh", {"driver": "ssh", "config": fixture.config()}))
    if executor:
        plugin = scene.post("/api/plugins/install", {"packageName": str(executor.package), "isLocalPath": True})
        (scene.daemon.data / "plugins" / "private" / plugin["id"] / "executor").write_text(str(executor.port))
        kinds.append(Place(tools, scene, "plugin", {"driver": "sandbox", "config": {"provider": "acme"}}))
    return kinds


class Executor:
    """A provider whose sandboxes are directories, installed as a plugin (test/workers/runner.py)."""

    def __init__(self, scratch):
        import providertest
        import test_plugin_box
        self.server = test_plugin_box.Executor()
        self.port = self.server.server_address[1]
        worker = test_plugin_box.PluginBoxTest.worker
        self.package = providertest.write_package(pathlib.Path(scratch) / "provider", worker)

    def close(self):
        self.server.close()


def measure(report, tools, scratch, fixture, executor):
    repeats = max(1, min(3, tools.options.repeats))
    others = Others(scratch, ssh_command(fixture) if fixture else None)
    trees = pathlib.Path(scratch) / "trees"
    env = {"BERTH_WORKSPACE_ROOTS": str(scratch), "BERTH_PLUGIN_BOX": "always", "BERTH_PLUGIN_CONFINE": "false"}
    with tools.Scene(env) as scene:
        kinds = places(tools, scene, fixture, executor)
        for name, files, size in TREES:
            tree = make_tree(trees / name[:1], files, size)
            beside = others.measure(tree, repeats)
            for other, (first, again) in beside.items():
                report.figure(f"{other} {name}", first, "ms")
                report.figure(f"{other} {name[:1]}: again, one changed", again, "ms")
            for place in kinds:
                if place.name == "plugin" and files * size > 100 * MB:
                    continue  # what is carried by calls takes longer than a client waits
                rows(report, name, place.name, place.measure(tree, repeats), beside)
            report.figure(f"daemon after {name[:1]}", scene.daemon.rss_kb() / 1024, "MB")
            shutil.rmtree(tree)


def bench(report, tools, scratch):
    import sshtest  # it lies beside berthtest
    report.group("workspaces")
    fixture = executor = None
    if reason := sshtest.missing_command():
        print(f"  (without ssh: {reason})")
    else:
        fixture = sshtest.Fixture(pathlib.Path(scratch) / "lab").start()
    try:
        executor = Executor(scratch)
        measure(report, tools, scratch, fixture, executor)
    finally:
        if executor:
            executor.close()
        if fixture:
            fixture.stop()
