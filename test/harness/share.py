#!/usr/bin/env python3
"""TEST_SHARE=K/N: of what would take too long for every change (crash points, rules of models, black-box tests under a
sanitizer, files that are linted) only the share K, from 0 to N-1. .ci/run takes K from the commit, so that each part has its turn and a commit
always gets the same; without the variable, as in `make test` and `make nightly`, all of it runs.

As a program it reads names of files and prints those of the share, and those that one of the last commits changed."""

import os
import subprocess
import sys
import zlib

COMMITS = 20  # whose files are all looked at

K, N = map(int, os.environ.get("TEST_SHARE", "0/1").split("/"))


def in_share(name):
    return zlib.crc32(name.encode()) % N == K


if __name__ == "__main__":
    log = [] if N == 1 else ["git", "log", f"-{COMMITS}", "--format=", "--name-only"]
    changed = set(subprocess.run(log, capture_output=True, text=True, check=True).stdout.split()) if log else set()
    for line in sys.stdin:
        if in_share(line.strip()) or line.strip() in changed:
            print(line.strip())
