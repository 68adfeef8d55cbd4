"""Makes chosen system calls of a daemon fail while it runs (test/harness/failcalls.c).

    class MyTest(FailingCalls, BerthTest):
        def test_it(self):
            with self.failing("open,stat", errno.EMFILE, "/sandboxes/"):
                ...
"""

import contextlib
import os
import unittest

import berthtest
from exectest import sanitized

LIBRARY = berthtest.BUILD / "test/harness/libfailcalls.so"
SIZE = 4096


class FailingCalls:
    """Before the class that starts daemons: its daemons do what failing() says."""

    rules = None

    def new_daemon(self, **options):
        if sanitized():
            raise unittest.SkipTest("a sanitizer has to be the first library")
        if not self.rules:
            self.rules = self.temp_dir() / "rules"
            self.set_rules()
        options.setdefault("env", {**self.daemon_env, "LD_PRELOAD": str(LIBRARY), "FAIL_CALLS": str(self.rules)})
        return super().new_daemon(**options)

    def set_rules(self, *rules):
        text = "".join(f"{calls} {number} {text}\n" for calls, number, text in rules).encode()
        fd = os.open(self.rules, os.O_RDWR | os.O_CREAT, 0o600)  # in place: the daemon has it mapped
        try:
            os.pwrite(fd, text.ljust(SIZE, b"\0"), 0)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def failing(self, calls, number, text):
        self.set_rules((calls, number, text))
        try:
            yield
        finally:
            self.set_rules()
