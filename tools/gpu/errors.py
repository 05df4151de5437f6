"""GPUs in a bad state: what the program says of each, with which exit code, and that no process of it is left. Last, a run that
works."""
import contextlib
import os
import re
import subprocess
import time

import ranks
import runs
from machine import Failed, NotRun, processes_with, start_of, write_config

MOST_S = 60
MARK = "DRIVETRAIN_GPU_CHECK"  # in the environment of a run's processes, which may leave its process group
NOWHERE = "GPU-00000000-1111-2222-3333-444444444444"
FILL = """
import signal, torch
signal.alarm(100)  # an end of its own, whatever becomes of this one
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - (150 << 20), dtype=torch.uint8, device="cuda")
print("held", flush=True)
signal.pause()
"""
# A tensor between blocks takes 34 GB, and a block keeps many.
LARGE = {"train_batch_size": 65536, "model": {"params": {"hidden_size": 2048}}}
ASK = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
ONE_GPU = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}  # one that this process was given
NOT_SHARED = dict(ONE_GPU, NCCL_MULTI_RANK_GPU_ENABLE="")
OLD_NCCL = dict(ONE_GPU, NCCL_MULTI_RANK_GPU_ENABLE="1", DRIVETRAIN_NCCL="")
FILLED = "a GPU that another process fills"
# name: ranks, what is changed, the environment, exit code, words of the message. Those of exit code 2 end before they need memory of a
# GPU, and run side by side.
TABLE = {
    "two ranks on one GPU": (2, {}, NOT_SHARED, 2, "one and the same GPU"),
    "two ranks on one GPU, an NCCL that cannot": (2, {}, OLD_NCCL, 2, "needs NCCL 2.30"),
    "a GPU that is not there": (1, {}, {"CUDA_VISIBLE_DEVICES": "63"}, 2, "CUDA_VISIBLE_DEVICES=63 shows none of the"),
    "a GPU of another host": (1, {}, {"CUDA_VISIBLE_DEVICES": NOWHERE}, 2, f"CUDA_VISIBLE_DEVICES={NOWHERE} shows none of the"),
    "no GPU visible": (1, {}, {"CUDA_VISIBLE_DEVICES": ""}, 2, "CUDA_VISIBLE_DEVICES= shows none of the"),
    "a batch too large for the GPU": (1, LARGE, {}, 4, "memory on the GPU"),
    FILLED: (1, {}, ONE_GPU, 4, "memory on the GPU"),
    "a run afterwards": (1, {}, {}, 0, ""),
}


def config_of(name):
    return runs.merged(runs.SMALL, dict(runs.merged(runs.EAGER, TABLE[name][1]), train_steps=2, device="cuda"))


def configs():
    for name, (count, *_) in TABLE.items():
        yield name, count, config_of(name)


@contextlib.contextmanager
def filled(machine):
    """The GPU's memory is taken by another process; the processes that hold some of it, as NVIDIA's management library tells them:
    where this machine is a container, that may have other numbers, or none."""
    with subprocess.Popen([machine.python, "-c", FILL], env=dict(machine.environment, **ONE_GPU), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as holder:
        try:
            if holder.stdout.readline().strip() != "held":
                raise Failed(f"the memory cannot be filled: {holder.communicate()[1].strip()[-200:]}")
            yield subprocess.run(ASK, capture_output=True, text=True, timeout=MOST_S, check=False).stdout.split()
        finally:
            holder.kill()


def mark_of(name):
    """Of this call alone: others may run beside it."""
    return f"{name}, {os.getpid()}"


def left_by(name, wait_s=5):
    """Processes of that run; those that are ending have a while."""
    end = time.monotonic() + wait_s
    while (left := processes_with(f"{MARK}={mark_of(name)}")) and time.monotonic() < end:
        time.sleep(0.1)
    return ", ".join(map(str, left))


def named(holders, said):
    """What the message says of them."""
    if not holders:
        return "; nvidia-smi tells no process here, so none could be named"
    known = [pid for pid in holders if re.search(rf"\bprocess {pid}\b", said)]
    if not known:
        raise Failed(f"nvidia-smi tells that process {', '.join(holders)} holds the GPU, and none is named: {said.strip()[-400:]}")
    return f"; process {known[0]} named"


def check(machine, name):
    count, _, environment, code, words = TABLE[name]
    command = [*start_of(machine, count), write_config(machine, name, config_of(name))[1]]
    if machine.dry:
        return f"drivetrain {' '.join(map(str, command[1:-1]))} CONFIG"
    if environment is OLD_NCCL and (version := ranks.library(machine, given=None)[0]) >= ranks.SHARES_FROM:
        raise NotRun(f"LibTorch's NCCL is {ranks.text_of(version)}, which lets them")
    with filled(machine) if name == FILLED else contextlib.nullcontext() as holders:
        begin = time.monotonic()
        found, out, err = machine.run(name, command, MOST_S, dict(environment, **{MARK: mark_of(name)}))
        text = f"exit {found} after {time.monotonic() - begin:.1f} s" + (f", {words!r}" if words else "")
    if found != code or words not in err + out:
        raise Failed(f"{text}: wanted {code}: {(err or out).strip()[-400:]}")
    if left := left_by(name):
        raise Failed(f"{text}, and 5 s later there are still its processes {left}")
    return text + ("" if holders is None else named(holders, err))
