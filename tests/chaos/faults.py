#!/usr/bin/env python3
"""Runs of four ranks into each of which one fault is put at a random step, at a random rank (0 included) or host.
Measured: seconds until a line names the culprit, whether it is the right one, the exit code, and what is left.

    faults.py PROGRAM --count 200 [--seed 1] [--kinds stop,kill] [--workers 2] [--table FILE.md]
    faults.py PROGRAM --false-alarms 10000     # a run beside a busy loop on every core: no line may come

    stop    SIGSTOP of a rank                          call    a rank calls another collective than the others
    kill    SIGKILL of a rank                          size    a rank calls the same with another size
    reader  its dataset does not return                host    a host is switched off, with all its processes
    hook    a hook of a strategy does not return       cut     packets to and from a host are lost
                                                       down    the host's own link goes down
Hosts are namespaces with sshd in them: this takes root. PROGRAM is that of a build, beside tests/misdeeds.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys

import trial

BEGINNINGS = 3

def row(kind, results):
    seconds = sorted(r.seconds for r in results if r.seconds is not None)
    median = f"{statistics.median(seconds):.1f}" if seconds else "-"
    longest = f"{seconds[-1]:.1f}" if seconds else "-"
    left = sum("left behind" in problem for r in results for problem in r.problems)
    return (f"| {kind} | {len(results)} | {median} | {longest} | {sum(r.right for r in results)} | "
            f"{sum(r.in_time for r in results)} | {left} |")


def table(results):
    lines = ["| fault | trials | median, s | longest, s | right culprit | in time | left behind |", "|" + " --- |" * 7]
    for kind in trial.KINDS:
        if of_kind := [r for r in results if r.kind == kind]:
            lines.append(row(kind, of_kind))
    return "\n".join([*lines, row("all", results)]) + "\n"


def begun(arguments, number, kind):
    """The result of a trial, and what it did. One that comes to no fault is begun again."""
    for _ in range(BEGINNINGS):
        made = trial.Trial(arguments.program, kind, f"{arguments.seed} {number}", arguments.folder)
        try:
            return made.run(), made.label()
        except trial.NotBegun as e:
            print(f"{number:4} {made.label()}: came to no fault: {e}", flush=True)
        except Exception as e:
            return trial.Result(kind, None, False, False, [f"{type(e).__name__}: {e}"]), made.label()
    return trial.Result(kind, None, False, False, [f"came to no fault in {BEGINNINGS} runs"]), made.label()


def one(arguments, number, kind):
    result, label = begun(arguments, number, kind)
    took = "not named" if result.seconds is None else f"named after {result.seconds:.1f} s"
    text = f"{number:4} {label}: {took}" + ("" if result.right else ", WRONG") + ("" if result.in_time else ", LATE")
    print("\n     PROBLEM: ".join([text, *result.problems]) + (f"\n{result.said}" if result.said else ""), flush=True)
    return result


def trials(arguments):
    kinds = arguments.kinds.split(",") if arguments.kinds else list(trial.KINDS)
    if unknown := [kind for kind in kinds if kind not in trial.KINDS]:
        sys.exit(f"no such kind: {', '.join(unknown)}; there are {', '.join(trial.KINDS)}")
    list_of = [kinds[i % len(kinds)] for i in range(arguments.count)]
    random.Random(arguments.seed).shuffle(list_of)
    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as workers:
        results = list(workers.map(lambda item: one(arguments, *item), enumerate(list_of, 1)))
    print(table(results))
    if arguments.table:
        pathlib.Path(arguments.table).write_text(table(results))
    bad = [r for r in results if not r.right or r.problems]
    late = sum(not r.in_time for r in results)
    return 1 if bad or late * 20 > len(results) else 0


def false_alarms(arguments):
    made = trial.Trial(arguments.program, "stop", 1, arguments.folder)
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]
    try:
        made.start(train_steps=arguments.false_alarms, save_final=False)
        code = made.process.wait()
        made.output.reader.join(10)
        words = ("does not go on", "is a straggler")
        alarms = [line for _, line in made.output.lines if any(word in line for word in words)]
        print(f"{arguments.false_alarms} steps beside {len(busy)} busy loops: exit {code}, {len(alarms)} alarms, "
              f"median step {made.median_step_s() * 1e3:.1f} ms")
        print("\n".join(alarms))
        return 1 if alarms or code != 0 else 0
    finally:
        for process in busy:
            process.kill()
            process.wait()
        made.network.end()
        shutil.rmtree(made.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", help="some of the above, with commas between them")
    parser.add_argument("--workers", type=int, default=2, help="trials at a time")
    parser.add_argument("--table", metavar="FILE.md")
    parser.add_argument("--false-alarms", type=int, metavar="STEPS")
    parser.add_argument("--folder", default="/var/tmp", help="for the runs; hosts have a /tmp of their own")
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"{arguments.program} is no program that can be run; that of a build is build/release/bin/drivetrain")
    if reason := trial.namespaces.why_not():
        sys.exit(reason)
    sys.exit(false_alarms(arguments) if arguments.false_alarms else trials(arguments))


if __name__ == "__main__":
    main()
