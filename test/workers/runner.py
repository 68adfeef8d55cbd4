#!/usr/bin/python3
"""A provider as provider.py, whose sandboxes are directories of this machine in which commands really run, and which
takes and gives files itself (environmentSyncIn and environmentSyncOut). provider.py has to lie beside it."""

import os
import shutil
import subprocess
import sys

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
    given = {"input": params["stdin"].encode()} if "stdin" in params else {"stdin": subprocess.DEVNULL}
    cwd = params.get("cwd") or params["lease"]["metadata"]["remoteCwd"]
    timed_out = False
    try:
        done = subprocess.run([params["command"], *params.get("args", [])], cwd=cwd, capture_output=True,
                              env={"PATH": os.environ["PATH"], **params.get("env", {})},
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
