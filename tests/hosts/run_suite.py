#!/usr/bin/env python3
"""Runs the tests of some files at once: run_suite.py [-k PART] FILE.py...

They mostly wait, for what they have broken to be noticed. So several processes take one test after the other, and each
makes its hosts once, for all tests that it runs. -k: only tests in whose names it stands. Skipped with the reason (77) where there can be no such hosts.
"""

import argparse
import concurrent.futures
import importlib
import io
import multiprocessing
import pathlib
import re
import sys
import unittest

import namespaces

AT_ONCE = 8


def tests_of(suite):
    for one in suite:
        yield from tests_of(one) if isinstance(one, unittest.TestSuite) else (one.id(),)


def run(name):
    """Whether it succeeded, and what is to be told of it."""
    text = io.StringIO()
    result = unittest.TextTestRunner(text, verbosity=2, warnings="ignore").run(unittest.defaultTestLoader.loadTestsFromName(name))
    took = re.search(r"Ran \d+ tests? in (\S+)", text.getvalue())[1]
    bad = result.failures + result.errors
    told = [f"FAILED {name}, {took}\n{text.getvalue()}"] if bad or not result.testsRun else \
        [f"skipped {name}: {reason}" for _, reason in result.skipped] or [f"ok {name}, {took}"]
    return not bad and result.testsRun > 0, "\n".join(told)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("-k", default="", metavar="PART")
    arguments = parser.parse_args()
    if reason := namespaces.why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    names = []
    for file in arguments.files:
        sys.path.insert(0, str(file.resolve().parent))
        module = importlib.import_module(file.stem)
        if reason := getattr(module, "why_not", lambda: None)():
            print(f"skipped {file.stem}: {reason}")
            continue
        names += [name for name in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)) if arguments.k in name]
    if not names:
        sys.exit(77)
    right = True
    with concurrent.futures.ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("fork")) as workers:
        for done in concurrent.futures.as_completed([workers.submit(run, name) for name in names]):
            succeeded, told = done.result()
            right = right and succeeded
            print(told, flush=True)
    print(f"{len(names)} tests", flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
