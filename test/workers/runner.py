#!/usr/bin/python3
"""A provider as provider.py, whose sandboxes are directories of this machine in which commands really run, and which
takes and gives files itself (environmentSyncIn and environmentSyncOut). provider.py has to lie beside it.

A file `lossy` in its working directory, {"unheard", "lost", "twice", "late": probability}, says what becomes of commands
that are marked as ours (PAPERCLIP_SANDBOX_EXEC_CHANNEL): they are not run, or run and not answered, run twice, or
answered late. `executor` names a port of this machine where a test runs the commands, outside of what
keeps a worker in."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # what is installed must not change

import provider  # noqa: E402


def acquire(params):
    ident = provider.acquire(params)["providerLeaseId"]
    root = os.path.abspath(provider.sandbox(ident))
    os.unlink(root)
    os.makedirs(os.path.join(root, "work"))
    return {"providerLeaseId": ident, "metadata": {"remoteCwd": os.path.join(root, "work")}}


def remove(params):
    if params.get("providerLeaseId"):
        shutil.rmtree(provider.sandbox(params["providerLeaseId"]), ignore_errors=True)


def execute(params):
    env = dict(params.get("env", {}))
    if env.pop("PAPERCLIP_SANDBOX_EXEC_CHANNEL", None) != "bridge":
        return run(params, env)
    lossy, luck = provider.read("lossy", {}), random.random()
    if luck < lossy.get("unheard", 0):
        raise OSError("lost on its way there")
    answer = run(params, env)
    luck = random.random()
    if luck < lossy.get("twice", 0):
        answer = run(params, env)
    if random.random() < lossy.get("late", 0):
        time.sleep(random.random() / 20)
    if random.random() < lossy.get("lost", 0):
        raise OSError("lost on its way back")
    return answer


def run(params, env):
    port = provider.read("executor", None)
    if port:
        with socket.create_connection(("127.0.0.1", port)) as there, there.makefile("rw") as lines:
            lines.write(json.dumps({**params, "config": None, "env": env}) + "\n")
            lines.flush()
            return json.loads(lines.readline())
    given = {"input": params["stdin"].encode()} if "stdin" in params else {"stdin": subprocess.DEVNULL}
    cwd = params.get("cwd") or params["lease"]["metadata"]["remoteCwd"]
    if cwd == "/work":  # what provider.py says of a workspace that it did not make
        cwd = params["lease"]["metadata"].get("remoteCwd", "/")
    timed_out = False
    try:
        done = subprocess.run([params["command"], *params.get("args", [])], cwd=cwd, capture_output=True,
                              env={"PATH": os.environ["PATH"], **env},
                              timeout=params.get("timeoutMs", 300000) / 1000, **given)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, err, timed_out = None, late.stdout or b"", late.stderr or b"", True
    return {"exitCode": code, "timedOut": timed_out, "stdout": out.decode("utf-8", "replace"),
            "stderr": err.decode("utf-8", "replace")}


def copy(file):
    """Copies one mapping; how many files and bytes it was."""
    source, target = file["sourcePath"], file["targetPath"]
    if file["kind"] == "file":
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target + ".paperclip-upload")
        os.chmod(target + ".paperclip-upload", file.get("mode", 0o644))
        os.rename(target + ".paperclip-upload", target)
        return 1, os.path.getsize(target)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=not file.get("followSymlinks"),
                    ignore=shutil.ignore_patterns(*file.get("exclude", [])))
    sizes = [os.lstat(os.path.join(base, name)).st_size for base, _, names in os.walk(target) for name in names]
    return len(sizes), sum(sizes)


def sync(params):
    done = []
    for operation in params["operations"]:
        counts = [copy(file) for file in operation["files"]]
        for command in operation.get("postUploadCommands", []):
            subprocess.run(["sh", "-c", command["command"]], cwd=command.get("cwd", "/"), check=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
        done.append({"operationId": operation["operationId"], "filesTransferred": sum(n for n, _ in counts),
                     "bytesTransferred": sum(size for _, size in counts)})
    return {"operations": done}


provider.METHODS += ["environmentSyncIn", "environmentSyncOut"]
provider.DO.update({
    "environmentAcquireLease": acquire,
    "environmentReleaseLease": remove,
    "environmentDestroyLease": remove,
    "environmentExecute": execute,
    "environmentSyncIn": sync,
    "environmentSyncOut": sync,
})

if __name__ == "__main__":
    provider.main()
