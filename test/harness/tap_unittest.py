#!/usr/bin/env python3
"""Run one unittest file and print the outcome in TAP: tap_unittest.py FILE [-k PATTERN]...

test/run starts this once per black-box file. Each test method is one TAP line; what a test printed and
its traceback follow as '#' lines. SIGABRT (the time limit of test/harness/reap) prints where it stands.
"""

import argparse
import faulthandler
import importlib.util
import pathlib
import sys
import unittest


class TapResult(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.number = 0

    def line(self, ok, test, suffix="", details=""):
        self.number += 1
        name = test.id().split(".", 1)[-1]
        print(f"{'ok' if ok else 'not ok'} {self.number} - {name}{suffix}")
        for text in details.splitlines():
            print(f"# {text}")
        sys.stdout.flush()

    def addSuccess(self, test):
        self.line(True, test)

    def addSkip(self, test, reason):
        self.line(True, test, f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(False, test, details=self.describe(test, err))

    def addError(self, test, err):
        super().addError(test, err)
        self.line(False, test, details=self.describe(test, err))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.line(False, subtest, details=self.describe(test, err))

    def addExpectedFailure(self, test, err):
        self.line(True, test, " # TODO expected failure")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.line(False, test, details="this test was expected to fail, and did not")

    def describe(self, test, err):
        log = getattr(test, "failure_log", lambda: "")()
        return self._exc_info_to_string(err, test) + log  # without the frames of unittest itself


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("-k", dest="patterns", action="append")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()

    faulthandler.enable(file=sys.stdout)
    sys.path.insert(0, str(args.file.resolve().parent))
    spec = importlib.util.spec_from_file_location(args.file.stem, args.file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[args.file.stem] = module
    spec.loader.exec_module(module)

    loader = unittest.TestLoader()
    if args.patterns:
        loader.testNamePatterns = [f"*{p}*" for p in args.patterns]
    suite = loader.loadTestsFromModule(module)
    if args.list:
        for test in tests_of(suite):
            print(test.id())
        return 0
    print(f"1..{suite.countTestCases()}", flush=True)
    result = TapResult()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
