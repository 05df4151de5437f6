"""Several ranks on one GPU, at most four at a time: runs beside the CPU's losses, one set of bits, lost ranks, a resume over
another number of ranks. Counts, losses and bits are what this shows: ranks that share a GPU take turns, so times tell nothing."""
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import time

import runs
from machine import Failed, NotRun, losses_of, merged, processes_with, read_losses, start_of, write_config

SHARES_FROM = 23000  # of NCCL, as it tells its version
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
FLOAT32, BF16 = 1e-5, 2e-2  # how far losses may be from the CPU's on one rank, relative

SMALL = merged(runs.SMALL, {"train_steps": 6, "train_batch_size": 8, "attention": "standard", "model": {"params": {"num_layers": 4}}})
LLAMA = {"model": {"params": {"num_query_groups": 2, "normalization": "rmsnorm", "activation": "swiglu", "position_embedding_type": "rope",
                              "add_bias": False, "untie_embeddings_and_output_weights": True}}}
HALF = {"bf16": {"enabled": True}}
# Without the loss of routers, which is of a rank's own tokens and so another one where ranks cut the batch.
EXPERTS = {"model": {"params": {"family": "qwen3_moe", "num_query_groups": 2, "kv_channels": 32, "ffn_hidden_size": 384, "num_experts": 8,
                                "num_experts_per_tok": 2, "moe_intermediate_size": 128, "router_aux_loss_coef": 0}}}
MUON = {"optimizer": {"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 1e-3, "ns_dtype": "float32"}}}
EAGER, RECORDED = {"capture": False}, {"capture": True}


def zero(stage, **more):
    small = {"stage3_param_persistence_threshold": 1000} if stage == 3 else {}
    return {"zero_optimization": {"stage": stage, **small, **more}, **EAGER}


def fsdp(**params):
    return {"data_parallel": {"type": "fsdp", "params": params}, **EAGER}


def tp(size, **more):
    return {"tensor_parallel": {"size": size, **more}, **EAGER}


def pipeline(kind, stages, **more):
    return {"pipeline": {"type": kind, "params": {"stages": stages, **more}}, "train_micro_batch_size_per_gpu": 1, **EAGER}


def context(kind, size):
    return {"context_parallel": {"type": kind, "params": {"size": size}}, **EAGER}


def both(*parts):
    whole = {}
    for part in parts:
        whole = merged(whole, part)
    return whole


ACCUMULATED = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
OFFLOADED = {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}
EIGHT_LAYERS = {"model": {"params": {"num_layers": 8}}}  # two chunks for each of four stages
# name: ranks, on both devices, on the GPU alone. The CPU has one rank and float32.
#
# A stage of 150 s reaches about half of it: on an H200 a row of two ranks takes 6 s and has another beside it, nearly all of that the start of
# CUDA and NCCL and not the steps. So what tells most goes first: recorded steps, experts, 8 bits and Muon. Recorded pipelines are the last of two
# ranks: there they took 70 s each, probably since their groups waited for each other at the end; no GPU has run them since. Behind the first FIRST rows come resumes, lost ranks and bits.
FIRST = 2
TABLE = {
    "ddp": (2, {}, EAGER),
    "zero 3, recorded": (2, {}, both(zero(3), RECORDED)),
    "zero 2, recorded": (2, {}, both(zero(2), RECORDED)),
    "zero 1, recorded, with evaluations": (2, {}, both(zero(1), RECORDED, {"eval_interval": 2, "eval_iters": 1})),
    "fsdp, recorded": (2, {}, both(fsdp(), RECORDED)),
    "experts, 2 ranks": (2, EXPERTS, both(EAGER, {"expert_parallel": {"enabled": True, "size": 2}})),
    "8 bits, tp": (2, {"fp8": {"enabled": True}}, tp(2)),
    "Muon, zero 2": (2, MUON, zero(2)),
    "zero 2, bfloat16, recorded": (2, {}, both(zero(2), HALF, RECORDED)),
    "tp, recorded": (2, {}, both(tp(2), RECORDED)),
    "ddp, recorded": (2, {}, RECORDED),
    "ddp, bfloat16, recorded": (2, {}, both(RECORDED, HALF)),
    "tp, sequence parallel, Llama shape, bfloat16": (2, LLAMA, both(tp(2, sequence_parallel=True), HALF)),
    "ring, flash, bfloat16": (2, {}, both(context("ring", 2), HALF, {"attention": "flash"})),
    "zero 3, offload_param, offload_optimizer": (2, {}, zero(3, **OFFLOADED)),
    "zero 2, offload_optimizer, bfloat16": (2, {}, both(zero(2, offload_optimizer={"device": "cpu"}), HALF)),
    "zero 3, bfloat16, recompute full": (2, {}, both(zero(3), HALF, {"activation_checkpointing": "full"})),
    "ulysses": (2, {}, context("ulysses", 2)),
    "zero bubble": (2, {}, pipeline("zero_bubble_h1", 2)),
    "fsdp": (2, {}, fsdp()),
    "zero 2": (2, {}, zero(2)),
    "tp, sequence parallel": (2, {}, tp(2, sequence_parallel=True)),
    "1F1B": (2, {}, pipeline("one_f_one_b", 2)),
    "interleaved": (2, {}, pipeline("interleaved", 2, chunks=2)),
    "gpipe": (2, {}, pipeline("gpipe", 2)),
    "ring": (2, {}, context("ring", 2)),
    "tp": (2, {}, tp(2)),
    "zero 3": (2, {}, zero(3)),
    "zero 1": (2, {}, zero(1)),
    "ddp, bfloat16": (2, {}, both(EAGER, HALF)),
    "ddp, accumulation of 2": (2, {}, both(EAGER, ACCUMULATED)),
    "1F1B, recorded": (2, {}, both(pipeline("one_f_one_b", 2), RECORDED)),
    "zero bubble, recorded": (2, {}, both(pipeline("zero_bubble_h1", 2), RECORDED)),
    "interleaved, recorded": (2, {}, both(pipeline("interleaved", 2, chunks=2), RECORDED)),
    "gpipe, recorded": (2, {}, both(pipeline("gpipe", 2), RECORDED)),
    "zero 3, 4 ranks, recorded": (4, {}, both(zero(3), RECORDED)),
    "1F1B, 4 stages, recorded": (4, {}, both(pipeline("one_f_one_b", 4), RECORDED)),
    "pp 2, zero 2, dp 2, recorded": (4, {}, both(pipeline("one_f_one_b", 2), zero(2), RECORDED)),
    "fsdp, hybrid, recorded": (4, {}, both(fsdp(shard_group_size=2), RECORDED)),
    "zero 2, 4 ranks, recorded": (4, {}, both(zero(2), RECORDED)),
    "zero 3, hpZ": (4, {}, zero(3, zero_hpz_partition_size=2)),
    "tp 2, zero 3, dp 2": (4, {}, both(tp(2), zero(3))),
    "ring 2, fsdp, dp 2": (4, {}, both(context("ring", 2), fsdp())),
    "tp 2, pp 2": (4, {}, both(tp(2), pipeline("one_f_one_b", 2))),
    "pp 2, zero 2, dp 2": (4, {}, both(pipeline("one_f_one_b", 2), zero(2))),
    "1F1B, 4 stages": (4, {}, pipeline("one_f_one_b", 4)),
    "fsdp, hybrid": (4, {}, fsdp(shard_group_size=2)),
    "zero 3, 4 ranks": (4, {}, zero(3)),
    "zero 2, 4 ranks": (4, {}, zero(2)),
    "zero 1 in groups of 2": (4, {}, zero(1, group_size=2)),
    "gpipe, 4 stages": (4, {}, pipeline("gpipe", 4)),
    "ddp, 4 ranks": (4, {}, EAGER),
    "zero bubble, 4 stages": (4, {}, pipeline("zero_bubble_h1", 4)),
    "interleaved, 4 stages": (4, EIGHT_LAYERS, pipeline("interleaved", 4, chunks=2)),
    "fsdp, 4 ranks": (4, {}, fsdp()),
    "ddp, 4 ranks, recorded": (4, {}, RECORDED),
    "ddp, 4 ranks, bfloat16": (4, {}, both(EAGER, HALF)),
    "ddp, 4 ranks, accumulation of 2": (4, {}, both(EAGER, dict(ACCUMULATED, train_micro_batch_size_per_gpu=1))),
}
SAME_BITS = {"ddp": EAGER, "zero 1": zero(1), "zero 3": zero(3), "fsdp": fsdp(), "zero 2, recorded": both(zero(2), RECORDED)}
DETERMINISTIC = {"communicator": {"type": "nccl", "params": {"deterministic": True}}}
SAVED = {"checkpoint_policy": {"type": "every", "params": {"steps": 3}}}
# name: ranks, their way and its config, before and after.
RESUMED = {
    "resumed over 4 ranks": ((2, "zero 3", zero(3)), (4, "fsdp", fsdp())),
    "resumed over 2 ranks": ((4, "fsdp", fsdp()), (2, "zero 3", zero(3))),
}
ENDLESS = {"train_steps": 1000000, "monitors": {"type": "jsonl"}}
# name: config, signal, rank, exit code, most seconds from the signal to the end.
LOST = {
    "SIGSTOP of rank 0, ddp": (both(EAGER, {"rendezvous_timeout_s": 12}), signal.SIGSTOP, 0, 5, 40),
    "SIGKILL of a rank, ddp": (EAGER, signal.SIGKILL, 1, 137, 10),
    "SIGKILL of a rank, 1F1B": (pipeline("one_f_one_b", 2), signal.SIGKILL, 1, 137, 10),
}


def on_cpu(name):
    return merged(SMALL, TABLE[name][1])


def on_gpu(more):
    return dict(merged(SMALL, more), device="cuda")


def configs():
    """(name, ranks, config) of all that this stage runs."""
    for name, (ranks, alike, there) in TABLE.items():
        yield name, ranks, on_gpu(both(alike, there))
        yield f"{name}, CPU", 1, on_cpu(name)
    for name, more in SAME_BITS.items():
        yield f"bits of {name}", 2, on_gpu(both(more, DETERMINISTIC))
    for name, ranks, config in resumed_configs():
        yield name, ranks, config
    for name, (more, *_) in LOST.items():
        yield name, 2, on_gpu(both(more, ENDLESS))


def tolerance_of(config):
    if "bf16" in config or "fp8" in config:
        return BF16
    # Muon's iteration scales the smallest parts of a gradient up, and what they were rounded by.
    return runs.FLOAT32 if config["optimizer"]["type"] == "Muon" else FLOAT32


def library(machine, given=os.environ.get("DRIVETRAIN_NCCL")):
    """(version, path) of the NCCL that runs take: the given one, else LibTorch's."""
    path = pathlib.Path(given) if given else machine.torch and machine.torch.parent / "nvidia/nccl/lib/libnccl.so.2"
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(version))
    except (OSError, AttributeError) as e:
        raise Failed(f"the NCCL of these runs cannot be asked for its version: {e}") from None
    return version.value, path


def text_of(version):
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def check_library(machine):
    if machine.dry:
        return "ncclGetVersion"
    version, path = library(machine)
    return f"NCCL {text_of(version)} of {path}"


def environment_for(machine, ranks):
    """Where there are as many GPUs as ranks, each has its own; else they share, which wants an NCCL that lets them."""
    if machine.dry or len(machine.gpus) >= ranks:
        return {}
    version, path = library(machine)
    if version < SHARES_FROM:
        raise NotRun(f"{ranks} ranks on {len(machine.gpus)} GPU need NCCL 2.30 or newer, and {path} is {text_of(version)}; "
                     "DRIVETRAIN_NCCL=PATH names another")
    return SHARED


def check_row(machine, name, kept):
    ranks, alike, there = TABLE[name]
    config, reference = on_gpu(both(alike, there)), on_cpu(name)
    if machine.dry:
        return f"drivetrain launch -n {ranks} CONFIG"
    environment = environment_for(machine, ranks)
    machine.wants(89 if "fp8" in config else 80)
    expected = runs.reference(machine, name, reference, kept)
    found = losses_of(machine, name, config, 90, ranks, environment=environment)
    return compared(expected, found, tolerance_of(config))


def compared(expected, found, tolerance):
    difference = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
    if not difference < tolerance:
        raise Failed(f"losses differ by {difference:.1e} of their value, allowed {tolerance:.0e}: cpu {expected}, here {found}")
    return f"{len(found)} steps, losses within {difference:.1e} of the CPU's"


def check_bits(machine):
    if machine.dry:
        return f"drivetrain launch -n 2 CONFIG, {len(SAME_BITS)} times"
    environment, found = environment_for(machine, 2), {}
    for name, more in SAME_BITS.items():
        found[name] = losses_of(machine, f"bits of {name}", on_gpu(both(more, DETERMINISTIC)), 90, 2, environment=environment)
    if len({tuple(losses) for losses in found.values()}) != 1:
        raise Failed(f"{len(found)} ways have several sets of bits: {found}")
    return f"{', '.join(found)}: one set of bits"


def resumed_configs():
    for name, parts in RESUMED.items():
        for when, (ranks, _, more) in zip((f"{name}, before", name), parts, strict=True):
            yield when, ranks, on_gpu(both(more, SAVED))


def check_resumed(machine, name, kept):
    (before, before_way, first), (ranks, way, second) = RESUMED[name]
    if machine.dry:
        return f"drivetrain launch -n {ranks} CONFIG --resume step-00000003"
    environment = environment_for(machine, max(before, ranks))
    expected = runs.reference(machine, name, SMALL, kept)
    losses_of(machine, name, on_gpu(both(first, SAVED)), 90, before, environment=environment)
    folder, file = write_config(machine, name, on_gpu(both(second, SAVED)))
    (folder / "metrics.jsonl").rename(folder / "before.jsonl")
    machine.output(f"{name} again", [*start_of(machine, ranks), file, "--resume", "step-00000003"], 90, environment)
    return f"{before_way} on {before}, then {way} on {ranks}: " + compared(expected[3:], read_losses(folder), FLOAT32)


def rank_process(launcher, rank):
    """The process of a rank among those that a launcher has begun, or None."""
    for pid in processes_with(f"RANK={rank}"):
        above = pid
        with contextlib.suppress(OSError):  # it has ended meanwhile
            while above > 1 and above != launcher:
                above = int(pathlib.Path(f"/proc/{above}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if above == launcher:
                return pid
    return None


def check_lost(machine, name):
    more, sent, rank, code, most_s = LOST[name]
    if machine.dry:
        return f"drivetrain launch -n 2 CONFIG, {sent.name} to rank {rank}"
    environment = environment_for(machine, 2)
    folder, file = write_config(machine, name, on_gpu(both(more, ENDLESS)))
    sent_at = []

    def send(process):
        metrics, pid = folder / "metrics.jsonl", None
        while process.poll() is None and not pid:
            time.sleep(0.1)
            if metrics.is_file() and metrics.read_text().count("\n") >= 2:
                pid = rank_process(process.pid, rank)
        if pid:
            sent_at.append(time.monotonic())
            os.kill(pid, sent)

    found, out, err = machine.run(name, [*start_of(machine, 2), file], 90, environment, during=send)
    if not sent_at:
        raise Failed(f"rank {rank} was not found while the run went on; exit {found}: {(err or out).strip()[-200:]}")
    took = time.monotonic() - sent_at[0]
    if found != code or took > most_s or not re.search(rf"\brank {rank}\b", out + err):
        raise Failed(f"exit {found} after {took:.1f} s, wanted {code} within {most_s} s and rank {rank} named: {(err or out).strip()[-300:]}")
    warnings = (out + err).count("NCCL WARN")
    return f"exit {found} after {took:.1f} s, rank {rank} named, {warnings} warnings of NCCL's own"
