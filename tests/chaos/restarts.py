#!/usr/bin/env python3
"""Launches with --max-restarts of which random ranks are killed at random moments, from the start to after the last
step. Each has to end by itself with the figures and final weights of a run that lost nobody, and to leave nothing.

    restarts.py PROGRAM --count 50 [--ranks 2] [--kills 3] [--seed 1]
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import time

import launches
from waiting import DEADLINE_S

TIMES = {"step_s", "tokens_per_s", "tgs", "tflops", "peak_memory_bytes", "peak_reserved_bytes"}
SAVE = ["--set", 'checkpoint_policy=[{"type": "every", "params": {"steps": 20, "keep": 2}}]']


def result_of(folder):
    """Everything that has to be equal: the curve without times, and the bytes of the final weights."""
    run = pathlib.Path(folder, "run")
    lines = [json.loads(line) for line in launches.text_of(run / "metrics.jsonl").splitlines()]
    curve = [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
    return curve, hashlib.sha256((run / "final/model.safetensors").read_bytes()).hexdigest()


def reference(program, ranks):
    launch = launches.Launch(program, ranks, SAVE)
    try:
        if launch.wait() != 0:
            sys.exit("an undisturbed launch failed:\n" + launch.output())
        return result_of(launch.folder), launch.lasts_s()
    finally:
        launch.remove()


def disturb(launch, choose, ranks, kills, length_s):
    """Kills random ranks one after the other. Returns how many were hit."""
    hits = 0
    for _ in range(kills):
        time.sleep(choose.uniform(0, length_s))  # Waits: until a random moment
        pid = launches.pid_of_rank(launch.process, choose.randrange(ranks))
        if pid is not None and launches.is_running(pid):
            os.kill(pid, signal.SIGKILL)
            hits += 1
    return hits


def problems_of(launch, code, wanted):
    if code is None:
        return [f"still runs after {DEADLINE_S} s"]
    problems = [] if code == 0 else [f"exit {code}"]
    if code == 0 and result_of(launch.folder) != wanted:
        problems.append("its figures or final weights are not those of an undisturbed run")
    return problems + [f"left behind: {name}" for name in launch.leftovers()]


def one(program, ranks, kills, choose, wanted, length_s):
    before = launches.shared_memory()
    launch = launches.Launch(program, ranks, SAVE + ["--max-restarts", str(kills)])
    try:
        hits = disturb(launch, choose, ranks, kills, length_s)
        code = launch.wait()
        problems = problems_of(launch, code, wanted)
        problems += [f"left in /dev/shm: {name}" for name in launches.shared_memory() - before]
        if problems:
            problems.append("its output:\n" + launch.output())
        return problems, f"{hits} killed, exit {code}"
    finally:
        launch.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=3, help="at most, in each launch")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    choose = random.Random(arguments.seed)
    reference(arguments.program, arguments.ranks)  # warms up caches
    wanted, length_s = reference(arguments.program, arguments.ranks)
    print(f"a run takes {length_s:.1f} s", flush=True)
    failures = 0
    for i in range(arguments.count):
        problems, what = one(arguments.program, arguments.ranks, arguments.kills, choose, wanted, length_s)
        failures += bool(problems)
        print(f"{i + 1:4} {what}", flush=True)
        for problem in problems:
            print(f"     PROBLEM: {problem}", flush=True)
    print(f"{arguments.count - failures} of {arguments.count} launches ended with the same bits")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
