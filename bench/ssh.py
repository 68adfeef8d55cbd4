"""bench/run --only ssh: commands on an ssh host, beside plain `ssh host true` to the same server.

`tools` is bench/run itself. The server is a real sshd on loopback (test/it/sshtest.py); the floor is what it takes without
Berth: a login each time, and over a connection that is kept (ControlMaster).
"""

import concurrent.futures
import pathlib
import shutil
import statistics
import subprocess
import time

ROUNDS = 30
TOGETHER = 200


def timed(work):
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] * 1000  # microseconds


def plain(fixture, scratch, shared):
    """`ssh host true`, as anybody would type it."""
    command = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={fixture.known_hosts_path}",
               "-i", str(fixture.client_key), "-p", str(fixture.port)]
    if shared:
        command += ["-o", "ControlMaster=auto", "-o", f"ControlPath={scratch}/cm", "-o", "ControlPersist=yes"]
    command.append(f"{fixture.username}@127.0.0.1")

    def once():
        subprocess.run([*command, "true"], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    once()  # warm, and with ControlMaster the connection itself
    times = [timed(once) for _ in range(ROUNDS)]
    if shared:
        subprocess.run([*command[:-1], "-O", "exit", command[-1]], stdin=subprocess.DEVNULL, capture_output=True)
    return times


def show(report, what, times, floors=(), note=""):
    report.figure(what, statistics.median(times), "ms", quantile(times, 0.95), quantile(times, 0.99), floors=floors, note=note)


def bench(report, tools, scratch):
    import sshtest  # it lies beside berthtest
    report.group("ssh")
    if reason := sshtest.missing_command():
        print(f"  (left out: {reason})")
        return
    fixture = sshtest.Fixture(pathlib.Path(scratch) / "lab").start()
    try:
        with tools.Scene() as scene:
            measure(report, scene, fixture, scratch)
    finally:
        fixture.stop()


def measure(report, scene, fixture, scratch):
    def environment(name):
        return scene.post(f"/api/companies/{scene.company}/environments",
                          {"name": name, "driver": "ssh", "config": fixture.config()})["id"]

    def acquire(env):
        return scene.post(f"/api/environments/{env}/leases", {})["lease"]["id"]

    def execute(lease):
        done = scene.post(f"/api/environment-leases/{lease}/execute", {"command": "true"})
        assert done["exitCode"] == 0, done

    def release(lease):
        scene.post(f"/api/environment-leases/{lease}/release", {})

    def cycle(env):
        lease = acquire(env)
        execute(lease)
        release(lease)

    alone, kept = plain(fixture, scratch, False), plain(fixture, scratch, True)
    show(report, "ssh host true", alone)
    show(report, "... with ControlMaster", kept)
    floors = (("ssh", statistics.median(alone)), ("ControlMaster", statistics.median(kept)))

    first = []
    for i in range(5):  # the box is brought each time
        shutil.rmtree(fixture.home / ".cache", ignore_errors=True)
        env = environment(f"first {i}")
        first.append(timed(lambda e=env: release(acquire(e))))
    show(report, "first connection, box brought", first, floors[:1])
    env = environment("cycles")
    first = timed(lambda: cycle(env))
    show(report, "first lease + true + release", [first], floors[:1])
    show(report, "lease + true + release", [timed(lambda: cycle(env)) for _ in range(ROUNDS)], floors)
    lease = acquire(env)
    execute(lease)
    show(report, "true in a living lease", [timed(lambda: execute(lease)) for _ in range(ROUNDS)], floors)

    def together():
        with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
            list(pool.map(lambda _: execute(lease), range(TOGETHER)))
    times = [timed(together) for _ in range(3)]
    report.figure(f"{TOGETHER} at once, one connection", statistics.median(times), "ms",
                  note=f"{statistics.median(times) / TOGETHER:.1f} ms each")
    release(lease)
