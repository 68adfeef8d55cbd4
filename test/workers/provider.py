#!/usr/bin/python3
"""A sandbox provider that writes down what it is asked and can be told to misbehave, without any SDK.

In its working directory: `calls` has every request, one JSON document a line, unless there is a file `quiet`;
`world/` has a file for every sandbox, named by its id; `behave` is a JSON object {method: {...}} that is read anew with every request:

    error      answer with this error
    exit       end with this status instead of doing anything; "die": do it and end before the answer
    delay      wait for so many seconds first
    hold       do it, then wait for this file before answering
    result     answer with this; "more": members to add to the usual answer
    output     [[stream, chunk], ...] to send as execute.log first
    log        a message to log first
"""

import json
import os
import sys
import threading
import time

LOCK = threading.Lock()
METHODS = ["environmentValidateConfig", "environmentProbe", "environmentAcquireLease", "environmentResumeLease",
           "environmentReleaseLease", "environmentDestroyLease", "environmentRealizeWorkspace", "environmentExecute"]


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def read(name, otherwise):
    try:
        with open(name, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return otherwise


def note(request):
    if os.path.exists("quiet"):
        return
    with LOCK, open("calls", "a", encoding="utf-8") as file:
        file.write(json.dumps(request) + "\n")


def sandbox(ident):
    return os.path.join("world", ident)


def acquire(params):
    ident = f"sb-{params['runId']}-{time.monotonic_ns()}"
    with open(sandbox(ident), "w", encoding="utf-8") as file:
        if "owner" in params:  # otherwise the file is empty, and made on a full disk too
            json.dump(params["owner"], file)
    return {"providerLeaseId": ident, "metadata": {"sandboxId": ident, "remoteCwd": "/work"}}


def resume(params):
    ident = params["providerLeaseId"]
    found = os.path.exists(sandbox(ident))
    return {"providerLeaseId": ident if found else None, "metadata": {"sandboxId": ident, "resumed": True}}


def remove(params):
    if params.get("providerLeaseId"):
        try:
            os.unlink(sandbox(params["providerLeaseId"]))
        except FileNotFoundError:
            pass


def list_leases(_):
    """Only where `methods` says that there is this one."""
    return {"leases": [{"providerLeaseId": name, "owner": read(sandbox(name), None)} for name in os.listdir("world")]}


def release(params):
    if not params["config"].get("reuseLease"):
        remove(params)


def execute(params):
    return {"exitCode": 3, "signal": None, "timedOut": False, "stdout": f"ran {params['command']}\n", "stderr": "oops\n"}


DO = {
    "initialize": lambda _: {"ok": True, "supportedMethods": read("methods", METHODS)},
    "environmentValidateConfig": lambda p: {"ok": True, "normalizedConfig": p["config"]},
    "environmentProbe": lambda p: {"ok": True, "metadata": {"seen": sorted(p["config"])}},
    "environmentAcquireLease": acquire,
    "environmentResumeLease": resume,
    "environmentReleaseLease": release,
    "environmentDestroyLease": remove,
    "environmentRealizeWorkspace": lambda p: {"cwd": "/work", "metadata": {"given": p["workspace"]}},
    "environmentExecute": execute,
    "environmentListLeases": list_leases,
}


def handle(request):
    ident, method, params = request["id"], request["method"], request.get("params", {})
    told = read("behave", {}).get(method, {})
    note(request)
    if "exit" in told:
        os._exit(told["exit"])
    time.sleep(told.get("delay", 0))
    if "error" in told:
        send({"id": ident, "error": told["error"]})
        return
    if method not in DO:
        send({"id": ident, "error": {"code": -32004, "message": f"{method} is not implemented by this plugin"}})
        return
    invocation = request.get("paperclipInvocation", {}).get("id")
    if "log" in told:
        send({"method": "log", "params": {"level": "info", "message": told["log"]}})
    for stream, chunk in told.get("output", []):
        send({"method": "execute.log", "params": {"stream": stream, "chunk": chunk},
              "paperclipInvocationId": invocation})
    try:
        result = told["result"] if "result" in told else DO[method](params)
    except OSError as e:
        send({"id": ident, "error": {"code": -32002, "message": str(e)}})
        return
    if "more" in told:
        result = {**result, **told["more"]}
    if told.get("die"):
        os._exit(9)
    while "hold" in told and not os.path.exists(told["hold"]):
        time.sleep(0.002)
    send({"id": ident, "result": result})


def main():
    os.makedirs("world", exist_ok=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "shutdown":
            send({"id": request["id"], "result": None})
            return
        if "method" in request:
            threading.Thread(target=handle, args=(request,), daemon=True).start()


if __name__ == "__main__":
    main()
