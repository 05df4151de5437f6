#!/usr/bin/env python3
"""Launches of which a random rank is stopped (SIGSTOP) or killed (SIGKILL) at a random moment, from its start to after
the last step. Each has to end, to name that rank as the cause, and to leave nothing behind.

    launches.py PROGRAM --count 200 [--ranks 3] [--seed 1] [--not-rank-0] [--workers 1]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from waiting import DEADLINE_S, scaled

TIMEOUT_S = scaled(4)
RENDEZVOUS_S = round(scaled(8))  # ranks of a busy machine start seconds apart

CONFIG = {
    "train_steps": 400,
    "threads": 1,
    "train_batch_size": 12,
    "steps_per_print": 100,
    "rendezvous_timeout_s": RENDEZVOUS_S,
    "communicator": {"type": "local", "params": {"timeout_s": TIMEOUT_S}},
    "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
                                        "vocab_size": 64, "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "output_dir": "run",
}


def text_of(path):
    try:
        return pathlib.Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def processes_of(folder):
    return [int(p.name) for p in pathlib.Path("/proc").iterdir()
            if p.name.isdigit() and int(p.name) != os.getpid() and folder in text_of(p / "cmdline")]


def pid_of_rank(launcher, rank):
    """Once it is the rank's own program; None when the launch is over before."""
    while launcher.poll() is None:
        for pid in text_of(f"/proc/{launcher.pid}/task/{launcher.pid}/children").split():
            if f"\0RANK={rank}\0" in "\0" + text_of(f"/proc/{pid}/environ"):
                return int(pid)
        time.sleep(0.002)  # Waits: before the next look, which is to come soon
    return None


def is_running(pid):
    after_name = text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(after_name) and after_name[0] not in "ZX"


class Launch:
    def __init__(self, program, ranks, options=()):
        self.folder = tempfile.mkdtemp(prefix="drivetrain_chaos_")
        os.mkdir(f"{self.folder}/tmp")
        pathlib.Path(f"{self.folder}/tiny.json").write_text(json.dumps(CONFIG))
        self.started = time.monotonic()  # Waits: moments are chosen over the length of a run
        with open(f"{self.folder}/output", "wb") as output:
            self.process = subprocess.Popen(
                [program, "launch", "-n", str(ranks), f"{self.folder}/tiny.json", *options], cwd=self.folder,
                stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": f"{self.folder}/tmp"})

    def output(self):
        return text_of(f"{self.folder}/output")

    def lasts_s(self):
        return time.monotonic() - self.started  # Waits: see above

    def wait(self):
        """The exit code; None: it still runs at the deadline."""
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def is_complete(self):
        run = pathlib.Path(self.folder, "run")
        steps = text_of(run / "metrics.jsonl").count("\n")
        return steps == CONFIG["train_steps"] and (run / "final/model.safetensors").exists()

    def leftovers(self):
        found = [f"process {pid}" for pid in processes_of(self.folder)]
        for path in pathlib.Path(self.folder).rglob("*"):
            if ".tmp" in path.name or ".unfinished" in path.name or path.parent.name == "tmp":
                found.append(str(path.relative_to(self.folder)))
        return found

    def remove(self):
        for pid in processes_of(self.folder):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def shared_memory():
    """Names of ours, but for scratch folders of tests that run beside this one."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {name for name in names if "drivetrain" in name and not name.startswith(("drivetrain-test-", "drivetrain-fuzz-", "drivetrain_chaos_"))}


def problems_of(launch, rank, number, hit, code):
    if code is None:
        return [f"still runs {DEADLINE_S} s after the signal"]
    problems = []
    done = code == 0 and launch.is_complete()
    if hit and not done:  # a rank that is about to end may do so in spite of the signal
        wanted = 5 if number == signal.SIGSTOP else 128 + number
        how = "stopped" if number == signal.SIGSTOP else "killed"
        if code != wanted:
            problems.append(f"exit {code}, wanted {wanted}")
        if not re.search(rf"rank {rank} failed first: {how} by signal {number} ", launch.output()):
            problems.append(f"rank {rank} is not named as the cause")
    if not hit and not done:
        problems.append(f"exit {code} without a signal")
    left = launch.leftovers()
    # What rank 0 was writing when it was ended is the next run's to remove.
    if hit and rank == 0:
        left = [name for name in left if ".unfinished" not in name]
    return problems + [f"left behind: {name}" for name in left]


def one(program, ranks, rank, number, after_s):
    """Problems, and what happened in a few words."""
    before = shared_memory()
    launch = Launch(program, ranks)
    try:
        pid = pid_of_rank(launch.process, rank)
        hit = False
        if pid is not None:
            time.sleep(max(0, after_s - launch.lasts_s()))  # Waits: until the chosen moment
            hit = is_running(pid)
            if hit:
                os.kill(pid, number)
        sent_s = launch.lasts_s()
        code = launch.wait()
        took_s = launch.lasts_s() - sent_s
        problems = problems_of(launch, rank, number, hit, code)
        problems += [f"left in /dev/shm: {name}" for name in shared_memory() - before]
        if problems:
            problems.append("its output:\n" + launch.output())
        return problems, f"{'hit' if hit else 'over before'}, exit {code} after {took_s:.1f} s"
    finally:
        launch.remove()


def length_of_a_run(program, ranks):
    launch = Launch(program, ranks)
    try:
        code = launch.wait()
        if code != 0 or not launch.is_complete() or launch.leftovers():
            sys.exit(f"an undisturbed launch failed (exit {code}, left {launch.leftovers()}):\n{launch.output()}")
        return launch.lasts_s()
    finally:
        launch.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--not-rank-0", action="store_true", help="leave rank 0 alone")
    parser.add_argument("--workers", type=int, default=1, help="launches at a time")
    arguments = parser.parse_args()
    choose = random.Random(arguments.seed)
    length_s = min(length_of_a_run(arguments.program, arguments.ranks) for _ in range(2))  # the first warms up caches
    print(f"a run takes {length_s:.1f} s", flush=True)
    chosen = []
    for _ in range(arguments.count):
        rank = choose.randrange(1 if arguments.not_rank_0 else 0, arguments.ranks)
        number = choose.choice([signal.SIGSTOP, signal.SIGKILL])
        # A third of the moments lie in the start and a third around the end, where most of the waits are.
        share = choose.choice([choose.uniform(0, 0.3), choose.uniform(0, 1), choose.uniform(0.85, 1.02)])
        chosen.append((rank, number, share * length_s))
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as workers:
        ends = workers.map(lambda moment: one(arguments.program, arguments.ranks, *moment), chosen)
        for i, ((rank, number, after_s), (problems, what)) in enumerate(zip(chosen, ends), 1):
            failures += bool(problems)
            print(f"{i:4} rank {rank} {number.name} at {after_s:5.2f} s: {what}", flush=True)
            for problem in problems:
                print(f"     PROBLEM: {problem}", flush=True)
    print(f"{arguments.count - failures} of {arguments.count} launches ended as they should")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
