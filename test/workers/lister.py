#!/usr/bin/python3
"""A provider as provider.py, which also tells what it has (environmentListLeases). provider.py has to lie beside it."""

import sys

sys.dont_write_bytecode = True  # what is installed must not change

import provider  # noqa: E402

provider.METHODS.append("environmentListLeases")

if __name__ == "__main__":
    provider.main()
