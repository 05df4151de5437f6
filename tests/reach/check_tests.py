"""Runs the tests of a build folder that can reach what has changed since they last passed. tools/check calls it.

Usage: check_tests.py SOURCE BUILD [--all] [--without-gpu] [-- CTEST-OPTION...]

It says what each test is run for, lets ctest run them, holds what each test opened against what its CMake line declares, and
ends with the ten longest tests and the suites that were skipped. Exit status 0: every test that was to run has passed.
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from declared import Tree, Undeclared, tests_of
from opened import Checker, drop, paths_of
from stamps import Digests, Stamps, add_setups, machine_facts

ENDED = re.compile(r"^\s*\d+/\d+ Test\s+#\d+: (\S+) \.+ *(.*?) +([\d.]+) sec")


def say(text):
    print(f"-- {text}", flush=True)


def memory_folder():
    """A new folder in memory for what tests write, or None where there is too little: runs sync some twenty files each, and a
    disk takes milliseconds for every one."""
    try:
        found = os.statvfs("/dev/shm")
        if found.f_bavail * found.f_frsize < 6 << 30 or found.f_flag & os.ST_NOEXEC:  # tests copy programs and plugins
            return None
        folder = Path(tempfile.mkdtemp(prefix="dt-", dir="/dev/shm"))  # a socket's path has 107 bytes
    except OSError:
        return None
    folder.chmod(0o1777)  # some tests start processes of another user
    return folder


def torch_of(build):
    """The LibTorch that a build folder is configured for."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(r"^DRIVETRAIN_TORCH:\w+=(.*)$", cache, re.MULTILINE).group(1)


def quick_tests(build):
    """Names of the tests that took less than three seconds, by what ctest remembers: lines `NAME RUNS SECONDS`."""
    costs = build / "Testing/Temporary/CTestCostData.txt"
    lines = costs.read_text(encoding="utf-8").splitlines() if costs.exists() else []
    entries = (line.split() for line in lines)
    return {entry[0] for entry in entries if len(entry) == 3 and float(entry[2]) < 3}


class Check:
    def __init__(self, source, build):
        self.tree = Tree(source, build)
        self.build = self.tree.build
        self.tests = tests_of(self.build)
        self.stamps = Stamps(self.build)
        digests = Digests(self.tree)
        torch = torch_of(self.build)
        library = Path(torch) / "lib/libtorch_cpu.so"
        facts = machine_facts(f"{torch} ({library.stat().st_size} bytes)")
        self.reached = {name: digests.of_test(name, test, facts) for name, test in self.tests.items()}
        add_setups(self.tests, self.reached)
        digests.save()
        self.checker = Checker(self.tree)
        self.logs = self.build / "tests/opened"
        self.seconds, self.skipped, self.undeclared = {}, {}, {}  # skipped: why

    def stale(self, names):
        """The tests whose stamps do not fit, and for each reason how many of them."""
        wanted, reasons = [], collections.Counter()
        for name in names:
            changed = self.stamps.changed(name, self.reached[name])
            if changed:
                wanted.append(name)
                reasons.update(changed)
        return wanted, reasons

    def explain(self, names, wanted, reasons):
        say(f"{len(wanted)} of {len(names)} tests can reach what changed since they passed")
        for word, count in reasons.most_common(12):
            say(f"  {count:4} for {word}")

    def run(self, wanted, options, near_first):
        """Lets ctest run these tests, and stamps each one as it passes. Near first: tests that do not start the program, which are
        those of one plugin, kind or area, tell of a mistake before whole runs begin; the quickest of them before the others."""
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir()
        self.logs.chmod(0o1777)  # some tests start processes of another user
        for name in wanted:
            self.stamps.drop(name)
        near = {name for name in wanted if near_first and not {"program", "package"} & self.reached[name].keys()}
        quick = near & quick_tests(self.build)
        waves = [[name for name in wanted if name in wave] for wave in (quick, near - quick, set(wanted) - near)]
        codes = [self.run_some(names, options) for names in waves if names]
        return next((code for code in codes if code), 0)

    def run_some(self, names, options):
        numbers = "0,0,0," + ",".join(str(self.tests[name]["number"]) for name in names)  # no range, then single ones
        environment = dict(os.environ, DRIVETRAIN_OPENED_LOGS=str(self.logs), DRIVETRAIN_OPENED_IN=str(self.tree.source),
                           DRIVETRAIN_OPENED_BY=str(self.build / "tests/lib/libdrivetrain_opened.so"))
        command = ["ctest", "--test-dir", str(self.build), "--output-on-failure", "--no-tests=error", "-I", numbers, *options]
        memory = None if "TMPDIR" in os.environ else memory_folder()
        if memory:
            environment["TMPDIR"] = str(memory)
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=environment) as ctest:
                for line in ctest.stdout:
                    ended = ENDED.match(line)
                    if ended and ended.group(1) in self.tests:
                        self.end_of(ended.group(1), ended.group(2), float(ended.group(3)))
                    print(line, end="", flush=True)
            for name in names:
                if name in self.skipped:
                    self.skipped[name] = self.last_line(name)
            return ctest.returncode
        finally:
            if memory:
                shutil.rmtree(memory, ignore_errors=True)

    def end_of(self, name, outcome, seconds):
        self.seconds[name] = seconds
        if outcome.endswith("Skipped"):
            self.skipped[name] = ""
        elif outcome == "Passed":
            undeclared = self.checker.undeclared(self.tests[name], *paths_of(self.logs, name))
            if undeclared:
                self.undeclared[name] = undeclared
            else:
                self.stamps.write(name, self.reached[name])
                drop(self.logs, name)

    def last_line(self, name):
        """What a test that was skipped said last."""
        log = (self.build / "Testing/Temporary/LastTest.log").read_text(encoding="utf-8", errors="replace")
        output = re.search(rf"Testing: {re.escape(name)}\n.*?^Output:\n-+\n(.*?)^<end of output>", log, re.DOTALL | re.MULTILINE)
        lines = output.group(1).strip().splitlines() if output else []
        return lines[-1].strip() if lines else "it does not say why"

    def tell_undeclared(self, name):
        paths = self.undeclared[name]
        shown = [str(path.relative_to(self.tree.source)) for path in paths[:8]]
        more = f" and {len(paths) - 8} more" if len(paths) > 8 else ""
        how = "error" if os.environ.get("CI") else "warning"
        print(f"{how}: {name} passed, but it opened what its REACHES does not declare: {', '.join(shown)}{more}.\n"
              "   Add it to the CMake line of the test, or do without it. A test that does not say what it opens is not run "
              "when that changes.", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("source")
    parser.add_argument("build")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--without-gpu", action="store_true")
    arguments, options = parser.parse_known_args()
    # Waits: it is told, and decides nothing
    begun = time.monotonic()
    try:
        check = Check(arguments.source, arguments.build)
    except Undeclared as error:
        sys.exit(f"error: {error}")
    names = list(check.tests)
    if arguments.without_gpu:
        gpu = [name for name in names if "gpu" in check.tests[name]["properties"].get("LABELS", [])]
        say(f"no NVIDIA GPU here (nvidia-smi finds none): {len(gpu)} tests labelled gpu are skipped")
        names = [name for name in names if name not in gpu]
    wanted, reasons = (names, collections.Counter()) if arguments.all else check.stale(names)
    check.explain(names, wanted, reasons) if not arguments.all else say(f"all {len(names)} tests")
    code = check.run(wanted, [option for option in options if option != "--"], not arguments.all) if wanted else 0
    # Waits: it is told, and decides nothing
    say(f"tests: {time.monotonic() - begun:.0f} s of wall time, {sum(check.seconds.values()):.0f} s in sum")
    for name, seconds in sorted(check.seconds.items(), key=lambda entry: -entry[1])[:10]:
        say(f"  {seconds:6.1f} s  {name}")
    for name, why in check.skipped.items():
        say(f"skipped: {name}: {why}")
    for name in check.undeclared:
        check.tell_undeclared(name)
    if check.undeclared and os.environ.get("CI"):
        code = code or 1
    if wanted and not code and len(check.seconds) < len(wanted):
        code = 1
        say(f"error: ctest ended after {len(check.seconds)} of {len(wanted)} tests")
    sys.exit(code)


try:
    main()
except KeyboardInterrupt:
    sys.exit("-- interrupted: the next check goes on with the tests that have not passed")
