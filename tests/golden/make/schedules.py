"""schedules.json: 60 learning rates of every DeepSpeed scheduler, by DeepSpeed's own classes."""
import torch

from golden_files import committed, made_by, with_hex, write_json

STEPS = 60
WARMUP = {"warmup_min_lr": 1e-05, "warmup_max_lr": 0.001, "warmup_num_steps": 10}
COSINE = {"total_num_steps": 50, "warmup_min_ratio": 0.1, "warmup_num_steps": 10, "cos_min_ratio": 0.05}
CYCLE = {"cycle_min_lr": 0.0001, "cycle_max_lr": 0.001}
RANGE = {"lr_range_test_min_lr": 0.0001, "lr_range_test_step_size": 7, "lr_range_test_step_rate": 0.5}
SCHEDULES = {
    "warmup_linear": ("WarmupLR", {**WARMUP, "warmup_type": "linear"}),
    "warmup_log": ("WarmupLR", {**WARMUP, "warmup_type": "log"}),
    "warmup_from_zero_default_type": ("WarmupLR", {**WARMUP, "warmup_min_lr": 0}),
    "warmup_max_from_optimizer": ("WarmupLR", {"warmup_num_steps": 10, "warmup_type": "linear"}),
    "warmup_one_step": ("WarmupLR", {**WARMUP, "warmup_num_steps": 1, "warmup_type": "linear"}),
    "warmup_decay_linear": ("WarmupDecayLR", {"total_num_steps": 50, **WARMUP, "warmup_type": "linear"}),
    "warmup_decay_log": ("WarmupDecayLR", {"total_num_steps": 50, **WARMUP, "warmup_type": "log"}),
    "warmup_decay_defaults": ("WarmupDecayLR", {"total_num_steps": 40, "warmup_num_steps": 8}),
    "warmup_decay_total_below_warmup": ("WarmupDecayLR",
                                        {"total_num_steps": 12, "warmup_num_steps": 20, "warmup_type": "linear"}),
    "warmup_cosine_linear": ("WarmupCosineLR", {**COSINE, "warmup_type": "linear"}),
    "warmup_cosine_log": ("WarmupCosineLR", {**COSINE, "warmup_type": "log"}),
    "warmup_cosine_defaults": ("WarmupCosineLR", {"total_num_steps": 50, "warmup_num_steps": 10}),
    "one_cycle": ("OneCycle", {**CYCLE, "cycle_first_step_size": 10, "cycle_second_step_size": 15, "decay_step_size": 5,
                               "decay_lr_rate": 0.5, "cycle_min_mom": 0.8, "cycle_max_mom": 0.9, "decay_mom_rate": 0.0}),
    "one_cycle_stairs": ("OneCycle", {**CYCLE, "cycle_first_step_size": 12, "cycle_first_stair_count": 4,
                                      "cycle_second_stair_count": 3, "cycle_momentum": False}),
    "one_cycle_momentum_decay": ("OneCycle", {**CYCLE, "cycle_first_step_size": 8, "decay_step_size": 4,
                                              "decay_lr_rate": 0.25, "cycle_min_mom": 0.85, "cycle_max_mom": 0.95,
                                              "decay_mom_rate": 0.01}),
    "lr_range_test": ("LRRangeTest", {**RANGE, "lr_range_test_staircase": False}),
    "lr_range_test_staircase": ("LRRangeTest", {**RANGE, "lr_range_test_staircase": True})}


def new_optimizer(lr=0.002):
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr, betas=(0.9, 0.999))


def new_schedule(kind, optimizer, params):
    from deepspeed.runtime import lr_schedules
    return getattr(lr_schedules, kind)(optimizer, **params)


def rates(kind, params, steps=STEPS, optimizer=None):
    """Learning rate and betas that each optimizer step uses: the schedule moves once after each."""
    optimizer = optimizer or new_optimizer()
    schedule = new_schedule(kind, optimizer, params)
    used = []
    for _ in range(steps):
        group = optimizer.param_groups[0]
        used.append((float(group["lr"]), group["betas"]))
        optimizer.step()
        schedule.step()
    return [lr for lr, _ in used], [betas for _, betas in used]


def entry(name, words):
    kind, params = SCHEDULES[name]
    lr, betas = rates(kind, params)
    numbers = {"type": kind, "params": params, "lr_step_1": lr[0], "lr": lr}
    if params.get("cycle_momentum", True) and kind == "OneCycle":
        numbers.update(beta1=[float(beta1) for beta1, _ in betas], beta2=betas[-1][1], note=words["note"])
    return with_hex(numbers, ("lr", "beta1"))


def make(folder):
    words = committed("schedules.json")
    write_json(folder / "schedules.json", {
        "made_by": made_by("deepspeed", "torch"),
        **{key: words[key] for key in ("what", "optimizer_lr", "steps", "lr_rel_tolerance")},
        "schedules": {name: entry(name, words["schedules"][name]) for name in SCHEDULES}})
