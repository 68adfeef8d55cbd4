#!/usr/bin/python3
"""A worker that does what it is told: the tests' side of the plugin protocol, without any SDK.

Each request's params may carry `do`, a list of steps: see Worker.step(). What the worker sees of its start is
decided by the file `behave` in its working directory (a JSON object), so that a test can make it fail before
anybody can tell it anything.
"""

import json
import os
import signal
import sys
import threading
import time

LOCK = threading.Lock()


def write(text):
    with LOCK:
        sys.stdout.write(text)
        sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


class Worker:
    def __init__(self, behave):
        self.behave = behave
        self.held = []
        self.answers = {}

    def result(self, request):
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            return {"ok": self.behave.get("ok", True),
                    "supportedMethods": self.behave.get("methods", ["environmentExecute"])}
        if method == "env":
            return dict(os.environ)
        if method == "echo":
            return params
        return {"method": method}

    def step(self, request, name, value):
        ident = request["id"]
        if name == "print":
            write(value)
        elif name == "answer":
            send({"id": ident, "result": value})
        elif name == "error":
            send({"id": ident, "error": value})
        elif name == "hold":  # answered when somebody says release
            self.held.append((ident, self.result(request)))
        elif name == "release":
            for held, result in reversed(self.held):
                send({"id": held, "result": result})
            self.held.clear()
        elif name == "ask":  # a request of our own with their id
            send({"id": ident, "method": value, "params": {}})
        elif name == "big":
            send({"id": ident, "result": {"text": "x" * value}})
        elif name == "log":
            send({"method": "log", "params": value})
        elif name == "output":
            send({"method": "execute.log", "params": value,
                  "paperclipInvocationId": request.get("paperclipInvocation", {}).get("id")})
        elif name == "stderr":
            sys.stderr.write(value)
            sys.stderr.flush()
        elif name == "exit":
            os._exit(value)
        elif name == "kill":
            os.kill(os.getpid(), value)
        elif name == "wait":  # for a file to be there
            while not os.path.exists(value):
                time.sleep(0.002)
        elif name == "told":  # what the host answered to our requests
            send({"id": ident, "result": self.answers})
        elif name == "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.behave["ignore-shutdown"] = True

    def take(self, request):
        steps = request.get("params", {}).get("do")
        if steps is None:
            send({"id": request["id"], "result": self.result(request)})
            return
        for name, value in steps:
            self.step(request, name, value)

    def run(self):
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                self.answers[str(message["id"])] = message.get("result", message.get("error"))
            elif message["method"] == "shutdown":
                if self.behave.get("ignore-shutdown"):
                    continue
                send({"id": message["id"], "result": None})
                return
            else:
                self.take(message)
        if self.behave.get("ignore-shutdown"):
            while True:
                signal.pause()


def main():
    try:
        with open("behave", encoding="utf-8") as file:
            behave = json.load(file)
    except FileNotFoundError:
        behave = {}
    with open("starts", "a", encoding="utf-8") as file:
        file.write("x")
    for name, value in behave.get("first", []):
        Worker(behave).step({"id": 1}, name, value)
    if behave.get("silent"):
        while True:
            signal.pause()
    Worker(behave).run()


if __name__ == "__main__":
    main()
