"""What clients saw: an append-only file of JSON lines, in the order in which they learned it. The checker reads nothing else.

A line has `n`, its number, and `t`, seconds since the beginning, and is one of

    {"ev": "begin", "op", "kind", …}       a client asks for something; the members say for what
    {"ev": "end", "op", "result", …}       ok: it was answered with success, and the members are the answer
                                           refused: nothing was done, and the answer says so
                                           unknown: it was not answered, or nobody can tell; it may have been done
    {"ev": "see", "what", …}               somebody looked when everything was quiet
    {"ev": "fault", "kind", "phase", …}    the driver broke something ("begin") or mended it ("end")

What an operation or a look has besides is listed in checker.py, which is the only one to read it.
"""

import json
import threading
import time


class History:
    """Any thread."""

    def __init__(self, path):
        self.file = open(path, "x", encoding="utf-8")
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.n = 0

    def write(self, ev, **members):
        """The number of the line."""
        with self.lock:
            self.n += 1
            if ev == "begin":
                members["op"] = self.n
            line = {"n": self.n, "t": round(time.monotonic() - self.began, 3), "ev": ev, **members}
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
            return self.n

    def begin(self, kind, **members):
        """The id of the operation, for end()."""
        return self.write("begin", kind=kind, **members)

    def end(self, op, result, **members):
        self.write("end", op=op, result=result, **members)

    def see(self, what, **members):
        self.write("see", what=what, **members)

    def fault(self, kind, phase, **members):
        self.write("fault", kind=kind, phase=phase, **members)


def load(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
