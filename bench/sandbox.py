"""bench/run --only sandbox: boxes of the built-in provider beside bare namespaces, bwrap and crun.

`tools` is bench/run itself: its report, its daemon, its load. What is compared does the same each time: a root from
nothing with the host's /usr in it, namespaces of all kinds, `true`, and everything gone again.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import time

import imagestore

ALIVE = 500
POOL = 8
TAKES = 60
FILES, FORKS = 50000, 8
LOADS = (1, 8, 32)
CONFIG = {"provider": "berth"}
TOP = ("bin", "sbin", "lib", "lib64")

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--ro-bind-try", "/opt", "/opt",
         *(word for name in TOP for word in
           (("--symlink", os.readlink(f"/{name}"), f"/{name}") if os.path.islink(f"/{name}") else
            ("--ro-bind-try", f"/{name}", f"/{name}"))),
         "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/home", "--die-with-parent", "/bin/true"]


# crun refuses machines where both versions of cgroups have controllers; it gets a view with one of them.
ONE_CGROUP = ["unshare", "--mount", "sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', "sh"]


def crun_command(bundle):
    """A bundle with the same mounts and namespaces; None when crun does not run here."""
    if not shutil.which("crun"):
        return None
    rootfs = bundle / "rootfs"
    rootfs.mkdir(parents=True)
    for name in TOP:
        if os.path.islink(f"/{name}"):
            (rootfs / name).symlink_to(os.readlink(f"/{name}"))
    for name in ("usr", "opt", "proc", "dev", "tmp", "home"):
        (rootfs / name).mkdir()
    read_only = ["bind", "ro", "nosuid", "nodev"]
    mounts = [{"destination": f"/{name}", "type": "bind", "source": f"/{name}", "options": read_only}
              for name in ("usr", "opt", *TOP) if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
    mounts += [{"destination": "/proc", "type": "proc", "source": "proc"},
               {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
               {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance"]},
               {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}]
    ids = [{"containerID": 0, "hostID": 1000000, "size": 65536}]
    bundle.joinpath("config.json").write_text(json.dumps({
        "ociVersion": "1.0.0", "root": {"path": "rootfs"}, "mounts": mounts,
        "process": {"cwd": "/", "args": ["/bin/true"], "env": [], "user": {"uid": 0, "gid": 0},
                    "noNewPrivileges": True},
        "linux": {"namespaces": [{"type": kind} for kind in
                                 ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")],
                  "uidMappings": ids, "gidMappings": ids}}))
    for parent in (rootfs, bundle, *bundle.parents):
        if parent == pathlib.Path("/tmp"):
            break
        parent.chmod(0o755)
    command = ["crun", "--root", str(bundle / "state"), "--cgroup-manager=disabled", "run", "--bundle", str(bundle), "b@"]
    tried = subprocess.run([*ONE_CGROUP, *(c.replace("@", "0") for c in command)], capture_output=True, text=True)
    if tried.returncode != 0:
        print(f"  (crun does not run here: {tried.stderr.strip()[:200]})")
        return None
    return command


def kb(pid, *names):
    """Sums of /proc/PID/smaps_rollup."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return [int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1]) for name in names]


class Boxes:
    """A daemon with environments of the built-in provider."""

    def __init__(self, tools, scene):
        self.tools, self.scene = tools, scene
        self.environment = self.make("boxes")
        self.pooled = self.forked = self.of_image = None  # made when they are measured: filling the pool takes time

    def make(self, name, **config):
        return self.scene.post(f"/api/companies/{self.scene.company}/environments",
                               {"name": name, "driver": "sandbox", "config": {**CONFIG, **config}})["id"]

    def release(self, lease):
        self.tools.expect(self.scene.daemon.req("POST", f"/api/environment-leases/{lease}/release", {}), 200)

    def pids(self):
        found = []
        for file in (self.scene.daemon.data / "sandboxes").glob("*/box/pid"):
            try:
                found.append(int(file.read_text().split()[0]))
            except (OSError, ValueError, IndexError):
                pass
        return found

    def close(self):
        """Boxes outlive their daemon, so none may be left before it ends."""
        req = self.scene.daemon.req
        for environment in filter(None, (self.environment, self.pooled, self.forked, self.of_image)):
            for lease in self.tools.expect(req("GET", f"/api/environments/{environment}/leases?status=active"), 200):
                self.release(lease["id"])
            req("DELETE", f"/api/environments/{environment}?closeLeases=true")
        deadline = time.monotonic() + 30
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.02)

    def from_the_pool(self):
        """Microseconds of one acquire, of one first `true`, and of both to the moment the command itself knows."""
        req = self.scene.daemon.req
        self.wait_for_pool()
        began = time.time_ns()
        lease = self.tools.expect(req("POST", f"/api/environments/{self.pooled}/leases", {}), 201)["lease"]["id"]
        acquired = time.time_ns()
        done = self.tools.expect(req("POST", f"/api/environment-leases/{lease}/execute",
                                     {"command": "/bin/date", "args": ["+%s%N"]}), 200)
        ended = time.time_ns()
        self.release(lease)
        return {"acquire": (acquired - began) / 1000, "started": (int(done["stdout"]) - acquired) / 1000,
                "executed": (ended - acquired) / 1000}

    def wait_for_pool(self):
        deadline = time.monotonic() + 20
        while len(self.pids()) < POOL and time.monotonic() < deadline:
            time.sleep(0.005)


def date_floor():
    """Microseconds until a `date` that is spawned plainly knows the time."""
    began = time.time_ns()
    return (int(subprocess.run(["/bin/date", "+%s%N"], capture_output=True).stdout) - began) / 1000


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def creation(report, tools, boxes, scratch):
    def others(n, *argv, within=()):
        return lambda: tools.tool("bench-boxes", "--seconds", tools.options.seconds, "--connections", n, *argv,
                                  within=within)

    rivals = {"bwrap": BWRAP if shutil.which("bwrap") else None, "crun": crun_command(scratch / "crun")}
    measurements = {"sqlite": lambda: tools.floor("sqlite")}
    for n in LOADS:
        measurements["bare", n] = others(n, "bare")
        for name, argv in rivals.items():
            if argv:
                measurements[name, n] = others(n, "command", *argv, within=ONE_CGROUP if name == "crun" else ())
        measurements["berth", n] = lambda n=n: tools.load(boxes.scene.daemon, n, "run", boxes.environment)
    s = tools.repeat(measurements)

    # A cycle commits three times: the lease, its end, and that the box is gone. They are told apart from the box.
    commits = 3 * s["sqlite"].median("p50") / 1000
    bare = s["bare", 1].median("p50") / 1000
    report.figure("floor: SQLite commit, p50", commits / 3, "ms")
    for name in ("bare", "bwrap", "crun", "berth"):
        if (name, 1) not in s:
            continue
        series = s[name, 1]
        what = {"bare": "floor: clone3, mounts, pivot_root, true", "berth": "create + `true` + destroy, p50"}
        report.figure(what.get(name, f"{name} run true, p50"), series.median("p50") / 1000, "ms", series.median("p95"),
                      series.median("p99"), series.spread("p50"), [] if name == "bare" else [("bare", bare)],
                      ("<=", 1.5 * bare + commits) if name == "berth" else None,
                      f"({series.errors()} ERRORS)" if series.errors() else "")
    for n in LOADS:
        for name in ("bare", "bwrap", "crun", "berth"):
            if (name, n) in s:
                report.rate(f"{name}, {n} at a time", s[name, n], [] if name == "bare" else [("bare", s["bare", n])],
                            (">=", 200) if (name, n) == ("berth", 8) else None)


def image(report, tools, boxes, scratch):
    """The same cycle with an image of six layers as the root, beside the one without."""
    files = [imagestore.layer({f"etc/layer-{i}": b"x" * 1000}) for i in range(5)]
    layout = imagestore.Image(imagestore.programs("true"), *files).layout(scratch / "layout")
    path = f"/api/companies/{boxes.scene.company}/images"
    row = tools.expect(boxes.scene.daemon.req("POST", f"{path}/import", {"reference": "six:1", "path": str(layout)}), 202)
    while row["state"] == "pulling":
        time.sleep(0.01)
        row = tools.expect(boxes.scene.daemon.req("GET", f"{path}/{row['id']}"), 200)
    boxes.of_image = boxes.make("six layers", image="six:1")
    s = tools.repeat({"plain": lambda: tools.load(boxes.scene.daemon, 1, "run", boxes.environment),
                      "image": lambda: tools.load(boxes.scene.daemon, 1, "run", boxes.of_image)})
    plain = s["plain"].median("p50") / 1000
    report.figure("image of six layers: the same, p50", s["image"].median("p50") / 1000, "ms", s["image"].median("p95"),
                  s["image"].median("p99"), s["image"].spread("p50"), [("plain", plain)], ("<=", 1.3 * plain),
                  f"({s['image'].errors()} ERRORS)" if s["image"].errors() else "")


def living(report, tools, boxes):
    lease = tools.acquire(boxes.scene, boxes.environment)
    s = tools.repeat({"spawn": lambda: tools.floor("spawn"),
                      **{n: (lambda n=n: tools.load(boxes.scene.daemon, n, "exec", lease)) for n in LOADS}})
    spawn = s["spawn"].median("p50") / 1000
    report.figure("floor: posix_spawn of true, p50", spawn, "ms")
    report.figure("`true` in a living box, p50", s[1].median("p50") / 1000, "ms", s[1].median("p95"), s[1].median("p99"),
                  s[1].spread("p50"), [("spawn", spawn)])
    for n in LOADS:
        report.rate(f"`true` in a living box, {n} conn.", s[n], [("spawn", s["spawn"])])
    boxes.release(lease)


def pool(report, tools, boxes):
    boxes.pooled = boxes.make("pooled", poolSize=POOL)
    dates = [date_floor() for _ in range(TAKES)]
    takes = [boxes.from_the_pool() for _ in range(TAKES)]
    floor = statistics.median(dates)
    report.figure("floor: spawn date until it runs", floor / 1000, "ms", percentile(dates, 95), percentile(dates, 99))
    for what, key, target in (("from the pool: acquire, p50", "acquire", None),
                              ("  asked to run until it runs, p50", "started", ("<=", 1 + floor / 1000)),
                              ("  asked to run until answered, p50", "executed", None)):
        values = [t[key] for t in takes]
        report.figure(what, statistics.median(values) / 1000, "ms", percentile(values, 95), percentile(values, 99),
                      target=target)


def many_alive(report, tools, boxes):
    before, had = boxes.scene.daemon.rss_kb(), set(boxes.pids())
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(8) as workers:
        leases = list(workers.map(lambda _: tools.acquire(boxes.scene, boxes.environment), range(ALIVE)))
    seconds = time.perf_counter() - began
    pids = [pid for pid in boxes.pids() if pid not in had]
    sizes = [kb(pid, "Rss", "Pss") for pid in pids]
    report.figure(f"{ALIVE} boxes alive: all there after", seconds * 1000, "ms")
    report.figure("  resident, daemon", boxes.scene.daemon.rss_kb() / 1000, "MB")
    report.figure("  resident, daemon, grown by it", (boxes.scene.daemon.rss_kb() - before) / 1000, "MB")
    report.figure("  boxes counted", len(pids), "")
    if sizes:
        report.figure("  resident per box", statistics.median(size[0] for size in sizes) / 1000, "MB")
        report.figure("  proportional per box", statistics.median(size[1] for size in sizes) / 1000, "MB")
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(8) as workers:
        list(workers.map(boxes.release, leases))
    report.figure("  all given up after", (time.perf_counter() - began) * 1000, "ms")


def forks(report, tools, boxes):
    """Of a place with many files: the first fork takes them once, the others stand on what it took. Beside cp -a."""
    boxes.forked = boxes.make("forked", storage="disk")
    lease = tools.acquire(boxes.scene, boxes.forked)
    data = boxes.scene.daemon.data

    def timed(work):
        began = time.perf_counter()
        result = work()
        return (time.perf_counter() - began) * 1000, result

    def fork(of, n):
        return timed(lambda: boxes.scene.post(f"/api/environment-leases/{of}/fork", {"count": n}))

    def used():
        return sum(file.lstat().st_blocks * 512 for file in data.rglob("*"))

    tools.expect(boxes.scene.daemon.req("POST", f"/api/environment-leases/{lease}/execute",
                                        {"command": "sh", "args": ["-c", f"mkdir f && cd f && seq {FILES} | split -l 1 -a 4 - x"],
                                         "timeoutMs": 600000}), 200)
    files = next((data / "sandboxes").glob("*/store/workspace"))
    copied, _ = timed(lambda: subprocess.run(["cp", "-a", files, data / "copy"], check=True))
    shutil.rmtree(data / "copy")
    before = used()
    first, one = fork(lease, 1)
    taken = used()
    others, _ = fork(one[0]["lease"]["id"], FORKS)
    report.figure(f"floor: cp -a of {FILES} files", copied, "ms")
    report.figure(f"a fork of a place with {FILES} files", first, "ms", floors=[("cp -a", copied)])
    report.figure("  on disk", (taken - before) / 1e6, "MB")
    report.figure(f"{FORKS} forks of that fork", others, "ms", floors=[("cp -a", copied)])
    report.figure("  on disk", (used() - taken) / 1e6, "MB")


def bench(report, tools, scratch):
    report.group("sandbox")
    with tools.Scene() as scene:
        boxes = Boxes(tools, scene)
        try:
            creation(report, tools, boxes, pathlib.Path(scratch))
            image(report, tools, boxes, pathlib.Path(scratch))
            living(report, tools, boxes)
            pool(report, tools, boxes)
            if os.geteuid() == 0:
                forks(report, tools, boxes)
            many_alive(report, tools, boxes)
        finally:
            boxes.close()
