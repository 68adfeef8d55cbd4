#!/usr/bin/env python3
"""What of the long checks a commit runs: a share that has its turn, and what the last commits changed.

TEST_SHARE=NUMBER is made of the commit's id by .ci/run, so a commit always gets the same. A check that is divided into N parts
by the names of what it looks at (crash points, rules of models, test files, files for clang-tidy) runs the part NUMBER % N.
Without the variable, as in `make test` and `make nightly`, everything runs.

As a program: share.py PARTS COMMITS reads lines of a name and files, and prints the names that have their turn and those of
which the last COMMITS commits changed the name itself or one of the files. With 0 PARTS no name has a turn."""

import functools
import os
import pathlib
import re
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NUMBER = int(os.environ["TEST_SHARE"]) if os.environ.get("TEST_SHARE") else None
CRASH_PARTS = 8      # of the crash points
CODE_COMMITS = 2     # the tests of the code that they changed run beside the share
TEST_COMMITS = 5     # the tests that they changed do

# The test files for a folder's code, by a part of their names; deeper folders first.
TESTS_OF = {
    "src/core/kinds/berth": "sandbox", "src/core/kinds/plugin": "plugin|provider", "src/core/kinds/ssh": "ssh",
    "src/core/access": "access|auth|agent_key", "src/core/adapters": "adapter|real_agents|acp|readme", "src/core/agents": "agent|page_agents",
    "src/core/assets": "asset", "src/core/callbacks": "callback", "src/core/environments": "environment", "src/core/exec": "exec", "src/core/images": "image",
    "src/core/issues": "issue|project", "src/core/leases": "lease|place|crash_walk", "src/core/live": "live|stream",
    "src/core/places": "lease|place", "src/core/plugins": "plugin", "src/core/runs": "run_|test_runs|wakeup", "src/core/sandboxes": "sandbox",
    "src/core/secrets": "secret", "src/core/workspaces": "workspace",
    "src/api": "api_|http", "src/berth-box": "box", "src/box": "box|exec_", "src/cli": "cli", "src/client": "cli_run",
    "src/daemon": "bad_worlds|data_directory", "src/image": "image", "src/net": "http|proxy|terminal", "src/plugin": "plugin",
    "src/secret": "secret|vault", "src/ssh": "ssh", "src/store": "data_directory|power_cut", "src/workspace": "workspace",
    "web": "page|cross_site", "test/model": "models", "test/soak": "soak", "test/workers": "plugin",
}


@functools.cache
def changed(commits):
    """The files that the last commits changed; none where there is no history."""
    log = subprocess.run(["git", "-C", ROOT, "log", f"-{commits}", "--format=", "--name-only"], capture_output=True, text=True, check=False)
    return frozenset(log.stdout.split())


@functools.cache
def changed_tests():
    """A pattern of the test files whose code the last commits changed."""
    files = changed(CODE_COMMITS)
    found = {next((words for folder, words in TESTS_OF.items() if file.startswith(folder + "/")), None) for file in files} - {None}
    return re.compile("|".join(sorted(found)) or "$^")


def in_share(name, parts):
    """Whether a name's turn has come, which comes with one commit of `parts`."""
    return NUMBER is None or parts > 0 and zlib.crc32(name.encode()) % parts == NUMBER % parts


def was_changed(path):
    """Whether the last commits changed this test file."""
    return str(pathlib.Path(path).resolve().relative_to(ROOT)) in changed(TEST_COMMITS)


def was_touched(path):
    """Whether they changed it, or the code that it tests."""
    return was_changed(path) or bool(changed_tests().search(pathlib.Path(path).stem))


if __name__ == "__main__":
    parts, commits = map(int, sys.argv[1:])
    for words in map(str.split, sys.stdin):
        if in_share(words[0], parts) or changed(commits).intersection(words):
            print(words[0])
