"""TEST_SHARE=K/N: of what would take too long for every change (crash points, rules of models, black-box tests under a
sanitizer) only the share K, from 0 to N-1. .ci/run takes K from the commit, so that each part has its turn and a commit
always gets the same; without the variable, as in `make test` and `make nightly`, all of it runs."""

import os
import zlib

K, N = map(int, os.environ.get("TEST_SHARE", "0/1").split("/"))


def in_share(name):
    return zlib.crc32(name.encode()) % N == K
