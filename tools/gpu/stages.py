"""The stages of gpu_check: lists of checks in the order in which they are worth the time of a lent machine."""
import glob
import os
import re
import shutil
from collections import namedtuple

import errors
import figures
import long_sequences
import product_choices
import ranks
import runs
from machine import Failed, NotRun, gtest_figures, losses_of, merged, run_gtest

# pool: neighbours with the same number, not 1, run side by side, so many at a time.
Check = namedtuple("Check", "stage group name pool function")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
APART = ("step_gpu_test",)  # large programs whose tests always have a process of their own


# name: what is changed, the environment.
SANITIZED = {
    "a step": ({}, {}),
    "a step, blocks by autograd": ({"fused_block": False}, {}),
    "a step, bfloat16": ({"bf16": {"enabled": True}, "attention": "flash"}, {}),
    # What is freed too early is seen where LibTorch keeps no memory.
    "a step, memory given back at once": ({}, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
}


def test_programs(machine):
    return sorted(path for path in (machine.tree / "tests").glob("*") if path.is_file())


def live(machine, kept):
    def check(group, name, function, pool=1):
        return Check("live", group, name, pool, function)

    yield check("machine", "GPU and driver", lambda: figures.gpu(machine))
    yield check("machine", "libraries", lambda: figures.libraries(machine))
    yield check("machine", "kernels for this GPU", lambda: figures.kernels_for(machine))
    programs = test_programs(machine)
    if not programs:
        yield check("tests", "GPU tests", lambda: machine.there(machine.tree / "tests/device_gpu_test"))
    kernels = [p for p in programs if p.name.startswith("kernels_")]
    last = [p for p in programs if p.name in APART]
    for p in kernels:
        yield check("tests", p.name, lambda p=p: run_gtest(machine, p, 60), pool=16)
    for name in runs.LIVE:
        yield check("train", name, lambda n=name: runs.check_run(machine, runs.LIVE, n, kept), pool=8)
    for p in programs:
        if p not in kernels and p not in last:
            yield check("tests", p.name, lambda p=p: run_gtest(machine, p, 120), pool=8)
    for p in last:
        yield check("tests", p.name, lambda p=p: run_gtest(machine, p, 60, apart=not machine.dry))
    yield check("bench", "hardware", lambda: figures.hardware(machine))
    rates = {}
    for name in figures.BENCHES:
        yield check("bench", name, lambda n=name: figures.bench(machine, n, rates))
    for name in figures.TABLES:
        yield check("bench", name, lambda n=name: figures.table(machine, n))


def right(machine, kept):
    def check(group, name, function, pool=1):
        return Check("right", group, name, pool, function)

    for name in runs.PATHS:
        yield check("paths", name, lambda n=name: runs.check_run(machine, runs.PATHS, n, kept), pool=8)
    for capture in (False, True):
        yield check("paths", "resumed" + (", recorded" if capture else ""), lambda c=capture: runs.check_resumed(machine, c), pool=8)
    for name, (*_, code, words) in errors.TABLE.items():
        yield check("errors", name, lambda n=name: errors.check(machine, n), pool=5 if code == 2 else 1)
    sanitizer = find_sanitizer()
    if not sanitizer and not machine.dry:
        yield check("sanitizer", "compute-sanitizer", no_sanitizer)
        return
    for name in SANITIZED:
        yield check("sanitizer", f"memcheck {name}", lambda n=name: sanitized_run(machine, sanitizer, n), pool=8)
    for tool in TOOLS:
        for p in test_programs(machine):
            if p.name.startswith("kernels_"):
                yield check("sanitizer", f"{tool} {p.name}", lambda t=tool, p=p: sanitized_test(machine, sanitizer, t, p), pool=8)


def time(machine, kept):
    def check(group, name, function):
        return Check("time", group, name, 1, function)

    yield check("profile", product_choices.NAME, lambda: product_choices.check(machine))
    for name in ("gpt2_124m_gpu", "llama_7b_gpu"):
        yield check("profile", name, lambda n=name: figures.profile(machine, n))
    for name in ("gpt2_124m_gpu", "llama_7b_gpu"):
        yield check("peer", name, lambda n=name: figures.peer(machine, n))


def several(machine, kept):
    def check(name, function, pool=1):
        return Check("ranks", "ranks", name, pool, function)

    # Four ranks at a time: on a GPU with sixteen processes memory ran out, and groups were not closed in time.
    yield check("NCCL", lambda: ranks.check_library(machine))
    rows = [check(name, lambda n=name: ranks.check_row(machine, n, kept), pool=2 if size == 2 else 1)
            for name, (size, *_) in ranks.TABLE.items()]
    yield from rows[:ranks.FIRST]
    for name in ranks.RESUMED:
        yield check(name, lambda n=name: ranks.check_resumed(machine, n, kept))
    # All of these and the rows of two behind them go on side by side, without a pause for the longest.
    for name in ranks.LOST:
        yield check(name, lambda n=name: ranks.check_lost(machine, n), pool=2)
    yield check("deterministic", lambda: ranks.check_bits(machine), pool=2)
    yield from rows[ranks.FIRST:]


def long(machine, kept):
    yield Check("long", "long", long_sequences.NAME, 1, lambda: long_sequences.check(machine))


STAGES = {"live": live, "right": right, "ranks": several, "time": time, "long": long}
LIMITS = {"ranks": 150}  # seconds of a stage in one call; what it has no time for is left


def sanitized_configs():
    for name in SANITIZED:
        yield f"memcheck {name}", 1, sanitized_config(name)


# (stage, group): the configs that its checks train, for one check of them all where nothing is run.
CONFIGS = {
    ("live", "train"): lambda: runs.configs(runs.LIVE),
    ("right", "paths"): lambda: [*runs.configs(runs.PATHS), *runs.resumed_configs()],
    ("right", "errors"): errors.configs,
    ("right", "sanitizer"): sanitized_configs,
    ("ranks", "ranks"): ranks.configs,
    ("long", "long"): long_sequences.configs,
}


def find_sanitizer():
    places = [os.path.join(folder, "compute-sanitizer") for folder in glob.glob("/usr/local/cuda*/bin") + glob.glob("/opt/nvidia/*/bin")]
    return shutil.which("compute-sanitizer") or next((p for p in places if os.access(p, os.X_OK)), None)


def no_sanitizer():
    raise NotRun("needs compute-sanitizer, which is not installed")


def command_of(sanitizer, tool):
    return [sanitizer, "--tool", tool, "--error-exitcode", "99", "--print-limit", "20", "--target-processes", "all"]


def summary_of(output):
    found = re.findall(r"========= ((?:ERROR|RACECHECK) SUMMARY: .*)", output)
    return found[-1].split(": ", 1)[1] if found else "no summary"


def sanitized_test(machine, sanitizer, tool, program):
    machine.there(program, executable=True)
    if machine.dry:
        return f"compute-sanitizer --tool {tool}"
    code, out, err = machine.run(f"{tool} {program.name}", [*command_of(sanitizer, tool), program], 240)
    if code:
        found = re.search(r"========= (?!COMPUTE)(.*)", out)
        raise Failed(f"exit {code}: {found.group(1)[:160] if found else 'no word'}; {summary_of(out)}")
    gtest_figures(out, dry=False)
    return summary_of(out)


def sanitized_config(name):
    return merged(runs.SMALL, dict({"train_steps": 2, "device": "cuda"}, **merged(runs.EAGER, SANITIZED[name][0])))


def sanitized_run(machine, sanitizer, name):
    machine.there(machine.program, executable=True)
    config = sanitized_config(name)
    if machine.dry:
        return "compute-sanitizer --tool memcheck drivetrain train CONFIG"
    losses = losses_of(machine, "memcheck " + name, config, 300, wrap=command_of(sanitizer, "memcheck"), environment=SANITIZED[name][1])
    return f"{len(losses)} steps without an error"
