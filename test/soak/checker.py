#!/usr/bin/env python3
"""What must hold of a history (history.py): checker.py FILE prints every violation.

It knows nothing of the daemon but what its clients were promised, and shares no code with it or with its tests.

Operations, and what their lines have:

    acquire   place (kind of environment), key?                 -> lease
    release   lease                                             -> status
    execute   lease, token, key?, code, size, sha (of the       -> execution, code, size?, sha?, incomplete?
              output that it has to print)                         refused: started (false: it says that nothing ran)
    wake      place, agent, key, size, sha (of its output)      -> run
    cancel    run
    comment   issue, sha (of the body)                          -> comment
    rotate    secret, sha (of the value)
    restore   token, path                                       -> (the file at `path` has to hold `token` from now on)

Looks, taken when all faults are mended and all clients rest:

    lease      id, found, status, place, place_id       effects    token, count, complete (false: it may be gone with its place),
                                                                   inside (true: the note is in the place)
    execution  id, found, status, code, size, sha, incomplete, reason, lease, place_id, signal
    run        id, found, status, code, spawned, error, retry_of, size, sha, log_incomplete
    comments   issue, comments {id: sha}                secret     id, sha
    file       path, tokens
    trouble    rule, text: what a look at the whole found (leaks, processes, growth, the end of the daemon, …)

Faults name what they ended as `touched`: ids of places and executions, kinds of environments, or "*" for everything. What was
begun later is not excused by it.
"""

import collections
import json
import sys

Violation = collections.namedtuple("Violation", "rule text n")

LEASE_ENDED = {"released", "expired", "failed"}
EXECUTION_ENDED = {"exited", "failed", "lost", "timed_out"}
RUN_ENDED = {"succeeded", "failed", "cancelled", "timed_out"}
RULES = {
    "double-run": "a command ran more often than once",
    "lost-effect": "a command was answered with success, and what it did is not there",
    "ran-although-refused": "a command that was said not to have been started ran",
    "output-differs": "output that is said to be whole is not what the command printed",
    "output-changed": "output that was answered is another one later",
    "end-changed": "a lease, an execution or a run ended twice, in different ways",
    "vanished": "what was answered with success is not there any more",
    "key-used-twice": "one idempotency key gave two results",
    "wake-up-not-run": "an accepted wake-up ended, and no command was started for it",
    "wake-up-not-ended": "an accepted wake-up has not ended although all is quiet",
    "ended-by-nobody": "a lease or a command ended, and neither a client nor a fault ended it",
    "comment-changed": "a comment is not what was written",
    "comment-twice": "one comment is there twice",
    "secret-differs": "a secret has a value that it cannot have",
    "change-lost": "a file that came home is not there",
    "unsettled": "the daemon does not come to rest",
    "leak": "record and world disagree",
    "left-behind": "something is left of what has ended",
    "daemon-died": "the daemon ended by itself",
    "not-started": "the daemon does not start",
    "damaged": "the database is damaged",
    "grew": "memory, descriptors or threads grow",
}


class Checker:
    def __init__(self):
        self.found = []
        self.seen = set()
        self.ops = {}
        self.touched = {}  # by faults: name: the last line that says so
        self.begun = {}  # lease: the line in which it was asked for
        self.faults = []  # (kind, n of the beginning, n of the end or None)
        self.keys = {}  # (kind, scope, key): result
        self.acked = {}  # (kind, id): n
        self.asked = set()  # leases whose end, and runs whose cancel, somebody asked for
        self.ends = {}  # (kind, id): how it ended
        self.tokens = {}  # token: operation of the command
        self.outputs = {}  # execution: (size, sha) as answered
        self.runs = {}  # run: operation of the wake-up
        self.comments = {}  # issue: {sha: "ok" or "unknown"}
        self.values = collections.defaultdict(list)  # secret: [(sha, result)], oldest first
        self.files = {}  # path: tokens that have to be there

    def violation(self, rule, text, line):
        """Each once: a look is repeated after every round."""
        assert rule in RULES, rule
        if (rule, text) not in self.seen:
            self.seen.add((rule, text))
            self.found.append(Violation(rule, text, line["n"]))

    # Reading.

    def take(self, line):
        if line["ev"] == "begin":
            self.ops[line["op"]] = {"result": "unknown", **line}
            getattr(self, f"begin_{line['kind']}", lambda op: None)(self.ops[line["op"]])
        elif line["ev"] == "end":
            op = self.ops[line["op"]]
            op.update(result=line["result"], answer=line)
            getattr(self, f"end_{op['kind']}", lambda op, line: None)(op, line)
        elif line["ev"] == "see":
            getattr(self, f"see_{line['what']}")(line)
        elif line["ev"] == "fault":
            self.touched.update((name, line["n"]) for name in line.get("touched", ()))
            if line["phase"] == "begin":
                self.faults.append([line["kind"], line["n"], None])
            else:
                for fault in self.faults:
                    if fault[0] == line["kind"] and fault[2] is None:
                        fault[2] = line["n"]

    def ack(self, kind, ident, line):
        self.acked.setdefault((kind, ident), line["n"])

    def use_key(self, kind, scope, op, ident, line):
        if op.get("key"):
            first = self.keys.setdefault((kind, scope, op["key"]), ident)
            if first != ident:
                self.violation("key-used-twice", f"{kind} with key {op['key']}: {first} and {ident}", line)

    def note_end(self, kind, ident, how, line):
        first = self.ends.setdefault((kind, ident), how)
        if first != how:
            self.violation("end-changed", f"{kind} {ident}: {first}, then {how}", line)

    def is_touched(self, since, *names):
        """Whether a fault ended one of them, or everything, since that line."""
        return any(self.touched.get(name, 0) >= since for name in ("*", *names))

    def during(self, kinds, first, last):
        """Whether one of these faults was there at some time between two lines."""
        return any(kind in kinds and begin <= last and (end is None or end >= first) for kind, begin, end in self.faults)

    # Leases.

    def end_acquire(self, op, line):
        if line["result"] == "ok":
            self.ack("lease", line["lease"], line)
            self.begun.setdefault(line["lease"], op["n"])
            self.use_key("acquire", op["place"], op, line["lease"], line)

    def begin_release(self, op):
        self.asked.add(op["lease"])

    def see_lease(self, line):
        if not line["found"]:
            if ("lease", line["id"]) in self.acked:
                self.violation("vanished", f"lease {line['id']}", line)
            return
        if line["status"] not in LEASE_ENDED:
            return
        self.note_end("lease", line["id"], line["status"], line)
        since = self.begun.get(line["id"], 0)
        if line["id"] not in self.asked and not self.is_touched(since, line.get("place_id"), line.get("place")):
            self.violation("ended-by-nobody", f"lease {line['id']} ({line.get('place')}) is {line['status']}", line)

    # Commands.

    def begin_execute(self, op):
        self.tokens[op["token"]] = op

    def end_execute(self, op, line):
        if line["result"] != "ok":
            return
        ident = line["execution"]
        self.ack("execution", ident, line)
        op["execution"] = ident
        self.use_key("execute", op["lease"], op, ident, line)
        if line.get("sha") is not None:
            self.outputs[ident] = (line["size"], line["sha"])
            self.check_output(op, ident, line)

    def check_output(self, op, ident, line):
        """Of a command that ended as it had to."""
        if line["code"] == op["code"] and not line.get("incomplete") and line["sha"] != op["sha"]:
            self.violation("output-differs", f"execution {ident} ({op['token']}): {line['size']} of {op['size']} bytes", line)

    def see_execution(self, line):
        ident = line["id"]
        op = next((o for o in self.tokens.values() if o.get("execution") == ident), None)
        if not line["found"]:
            if ("execution", ident) in self.acked:
                self.violation("vanished", f"execution {ident}", line)
            return
        if line["status"] not in EXECUTION_ENDED:
            return
        self.note_end("execution", ident, [line["status"], line["code"], line.get("signal")], line)
        if ident in self.outputs and line.get("sha") is not None:
            if (line["size"], line["sha"]) != self.outputs[ident]:
                self.violation("output-changed", f"execution {ident}: {self.outputs[ident][0]} bytes were answered, "
                                                 f"{line['size']} are there", line)
        elif op and line.get("sha") is not None:
            self.check_output(op, ident, line)
        well = line["status"] == "exited" and op and line["code"] == op["code"]
        if op and not well:
            self.check_bad_end(op, line)

    def check_bad_end(self, op, line):
        if op["lease"] in self.asked or self.is_touched(op["n"], line["id"], line.get("place_id"), line.get("place")):
            return
        told = line.get("incomplete") or line.get("reason")
        if told and self.during(("enospc", "eio", "enomem", "emfile"), op["n"], line["n"]):
            return
        self.violation("ended-by-nobody", f"execution {line['id']} ({line.get('place')}): {line['status']}, "
                                          f"{line['code']}, {line.get('signal')}, {line.get('reason')}", line)

    def see_effects(self, line):
        token, count = line["token"], line["count"]
        if count > 1:
            self.violation("double-run", f"{token} ran {count} times", line)
        op = self.tokens.get(token)
        if not op:
            return
        answer = op.get("answer", {})
        if count and op["result"] == "refused" and answer.get("started") is False:
            self.violation("ran-although-refused", f"{token} was refused: {answer.get('text')}", line)
        # A command syncs nothing: a power cut may take what it wrote on a disk of its place.
        is_cut = line.get("inside") and self.during(("power-cut",), op["n"], line["n"])
        if not count and line["complete"] and not is_cut and op["result"] == "ok" and answer["code"] == op["code"]:
            self.violation("lost-effect", f"{token}, execution {answer['execution']}", line)

    # Runs.

    def end_wake(self, op, line):
        if line["result"] == "ok":
            self.ack("run", line["run"], line)
            self.use_key("wake", op["agent"], op, line["run"], line)
            self.runs[line["run"]] = op

    def begin_cancel(self, op):
        self.asked.add(op["run"])

    def see_run(self, line):
        ident, status = line["id"], line.get("status")
        if not line["found"]:
            if ("run", ident) in self.acked:
                self.violation("vanished", f"run {ident}", line)
            return
        op = self.runs.get(ident) or self.runs.get(line.get("retry_of"))
        if status not in RUN_ENDED:
            if op:
                self.violation("wake-up-not-ended", f"run {ident} is {status}", line)
            return
        self.note_end("run", ident, [status, line.get("code")], line)
        if not op:
            return
        if not line["spawned"] and ident not in self.asked and line.get("retry_of") not in self.asked:
            self.violation("wake-up-not-run", f"run {ident} ({op['place']}) is {status}: {line.get('error')}", line)
        if status == "succeeded" and not line.get("log_incomplete") and line["sha"] != op["sha"]:
            self.violation("output-differs", f"the log of run {ident} has {line['size']} of {op['size']} bytes", line)

    # Records.

    def begin_comment(self, op):
        self.comments.setdefault(op["issue"], {})[op["sha"]] = op

    def end_comment(self, op, line):
        if line["result"] == "ok":
            self.ack("comment", line["comment"], line)

    def see_comments(self, line):
        wanted = self.comments.get(line["issue"], {})
        have = collections.Counter(line["comments"].values())
        for sha, n in have.items():
            if sha not in wanted:
                self.violation("comment-changed", f"nobody wrote one of issue {line['issue']}: {sha}", line)
            elif n > 1:
                self.violation("comment-twice", f"{sha} in issue {line['issue']}", line)
        for sha, op in wanted.items():
            if op["result"] != "ok":
                continue
            ident = op["answer"]["comment"]
            if ident not in line["comments"]:
                self.violation("vanished", f"comment {ident}", line)
            elif line["comments"][ident] != sha:
                self.violation("comment-changed", f"comment {ident}", line)

    def begin_rotate(self, op):
        self.values[op["secret"]].append(op)

    def see_secret(self, line):
        """The last one that was answered, or one that was asked for later and not answered."""
        allowed = set()
        for op in reversed(self.values[line["id"]]):
            if op["result"] != "refused":
                allowed.add(op["sha"])
            if op["result"] == "ok":
                break
        if allowed and line["sha"] not in allowed:
            self.violation("secret-differs", f"secret {line['id']}", line)

    def end_restore(self, op, line):
        if line["result"] == "ok":
            self.files.setdefault(op["path"], set()).add(op["token"])

    def see_file(self, line):
        for token in self.files.get(line["path"], set()) - set(line["tokens"]):
            self.violation("change-lost", f"{token} is not in {line['path']}", line)

    def see_trouble(self, line):
        self.violation(line["rule"], line["text"], line)


def check(lines):
    """Violations of a whole history."""
    checker = Checker()
    for line in lines:
        checker.take(line)
    return checker.found


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        found = check(json.loads(line) for line in file)
    for violation in found:
        print(f"{violation.rule}: {violation.text} (line {violation.n})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
