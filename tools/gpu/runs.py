"""Small runs on the GPU beside the same ones on the CPU, whose losses are computed once per config and kept."""
import json
import threading

from machine import Failed, Missing, NotRun, files_of, losses_of, merged, read_losses

SMALL = {
    "train_steps": 10, "train_batch_size": 4, "gradient_clipping": 1.0, "save_final": False,
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "vocab_size": 512,
                                        "max_position_embeddings": 64}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 64}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
}
SIX = {"train_steps": 6}
EAGER = {"attention": "standard", "capture": False}
REFERENCE = threading.Lock()  # one run on the CPU at a time: several checks may want the same
LLAMA = {"model": {"params": {
    "num_query_groups": 2, "normalization": "rmsnorm", "activation": "swiglu", "position_embedding_type": "rope",
    "add_bias": False, "untie_embeddings_and_output_weights": True}}}
FLOAT32, BF16 = 1e-4, 2e-2  # how far losses may be from the CPU's, relative


def vocabulary(size):
    return {"model": {"params": {"vocab_size": size}}}


def length(tokens):
    return {"model": {"params": {"max_position_embeddings": tokens}}, "dataset": {"params": {"seq_length": tokens}}}


# name: on both devices, on the GPU alone, ranks, tolerance, the oldest GPU, or it and the newest. On the CPU all is float32 but
# what the first says.
LIVE = {
    "float32, not recorded": ({}, EAGER, 1, FLOAT32, 80),
    "float32, recorded": ({}, {"attention": "standard", "capture": True}, 1, FLOAT32, 80),
    "bfloat16, not recorded": ({}, {"bf16": {"enabled": True}, "capture": False}, 1, BF16, 80),
    "bfloat16, recorded": ({}, {"bf16": {"enabled": True}, "capture": True}, 1, BF16, 80),
    "float32, 2 ranks": ({}, {"attention": "standard"}, 2, FLOAT32, 80),
}
PATHS = {
    "accumulation of 4": (dict(SIX, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4), EAGER, 1, FLOAT32, 80),
    "accumulation of 4, recorded": (dict(SIX, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4),
                                    {"attention": "standard", "capture": True}, 1, FLOAT32, 80),
    "blocks by autograd": (dict(SIX, fused_block=False), EAGER, 1, FLOAT32, 80),
    "recompute full": (dict(SIX, activation_checkpointing="full"), EAGER, 1, FLOAT32, 80),
    "recompute selective": (dict(SIX, activation_checkpointing="selective"), EAGER, 1, FLOAT32, 80),
    "recompute offload": (dict(SIX, activation_checkpointing="offload"), EAGER, 1, FLOAT32, 80),
    "zero 2": (dict(SIX, zero_optimization={"stage": 2}), EAGER, 1, FLOAT32, 80),
    "zero 3": (dict(SIX, zero_optimization={"stage": 3}), EAGER, 1, FLOAT32, 80),
    "offload_optimizer": (dict(SIX, zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}}), EAGER, 1, FLOAT32, 80),
    "offload_optimizer, bfloat16": (dict(SIX, zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}}),
                                    {"bf16": {"enabled": True}, "capture": False}, 1, BF16, 80),
    "offload_param": (dict(SIX, zero_optimization={"stage": 3, "offload_param": {"device": "cpu"}}), EAGER, 2, FLOAT32, 80),
    "float16, dynamic scale": (SIX, {"fp16": {"enabled": True}, "capture": False}, 1, BF16, 80),
    "GELU in products": (SIX, {"bf16": {"enabled": True}, "fused_block": {"gelu_fusion": True}, "capture": False}, 1, BF16, 80),
    "GELU in products, accumulation of 4, recorded": (
        dict(SIX, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4, activation_checkpointing="selective"),
        {"bf16": {"enabled": True}, "fused_block": {"gelu_fusion": True}, "capture": True}, 1, BF16, 80),
    "8 bits, delayed scaling": (dict(SIX, fp8={"enabled": True}), {"capture": False}, 1, BF16, 89),
    "8 bits, recorded": (dict(SIX, fp8={"enabled": True, "recipe": "Float8CurrentScaling"}), {"capture": True}, 1, BF16, 89),
    "8 bits, weights kept, accumulation of 4, recorded": (
        dict(SIX, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4, fp8={"enabled": True, "keep_weights": True}),
        {"capture": True}, 1, BF16, 89),
    # Without biases casts compute the MLP's gradient, too; what is kept of norms and activations are their 8 bits.
    "8 bits, Llama shape, nothing computed again, recorded": (
        merged(dict(SIX, fp8={"enabled": True}, fused_block={"recompute_cheap": False}), LLAMA), {"capture": True}, 1, BF16, 89),
    "8 bits, scales of blocks": (dict(SIX, fp8={"enabled": True, "recipe": "Float8BlockScaling"}), {"capture": False}, 1, BF16, (90, 90)),
    "8 bits, scales of blocks, weights kept, recorded": (
        dict(SIX, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=4,
             fp8={"enabled": True, "recipe": "Float8BlockScaling", "keep_weights": True}),
        {"capture": True}, 1, BF16, (90, 90)),
    "Muon": (dict(SIX, optimizer={"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 1e-3, "ns_dtype": "float32"}}), EAGER, 1, FLOAT32, 80),
    "LoRA": (dict(SIX, lora={"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}), EAGER, 1, FLOAT32, 80),
    "experts": (merged(SIX, {"model": {"params": {
        "family": "qwen3_moe", "num_query_groups": 2, "kv_channels": 32, "ffn_hidden_size": 384, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128, "aux_loss": "per_layer", "router_aux_loss_coef": 0.01}}}),
        EAGER, 1, FLOAT32, 80),
    "norms of heads": (merged(SIX, {"model": {"params": {"family": "qwen3", "num_query_groups": 2, "kv_channels": 32}}}),
                       EAGER, 1, FLOAT32, 80),
    "dropout": (merged(dict(SIX, attention="standard"), {"model": {"params": {"hidden_dropout": 0.1, "attention_dropout": 0.1}}}),
                EAGER, 1, FLOAT32, 80),
    "evaluation between steps": (dict(SIX, eval_interval=2, eval_iters=1), {"attention": "standard", "capture": True}, 1, FLOAT32, 80),
    "vocabulary of 257": (merged(SIX, vocabulary(257)), EAGER, 1, FLOAT32, 80),
    "vocabulary of 50257, bfloat16": (merged(SIX, vocabulary(50257)), {"bf16": {"enabled": True}}, 1, BF16, 80),
    "sequences of 1000": (merged(SIX, length(1000)), EAGER, 1, FLOAT32, 80),
    "Llama shape": (merged(SIX, LLAMA), EAGER, 1, FLOAT32, 80),
}


HALF = {"bf16": {"enabled": True}, "capture": False}
# Grouped products of experts are taken in bfloat16 alone. Muon computes in its default type here, on the CPU too. The memory of the
# last row is so small that its MLP has to go in chunks and the inputs of its blocks to the host.
PATHS |= {f"{name}, bfloat16": (PATHS[name][0], HALF, 1, BF16, 80) for name in ("experts", "LoRA", "norms of heads")}
PATHS |= {
    "Muon, bfloat16": (dict(SIX, optimizer={"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 1e-3}}), HALF, 1, BF16, 80),
    "long_context": (merged(length(8192), {"train_steps": 3, "train_batch_size": 1, "model": {"params": {"num_layers": 8}}}),
                     dict(HALF, long_context={"memory_gib": 0.585}), 1, BF16, 80),
}


def configs(runs):
    """(name, ranks, config) of what the GPUs and the CPU are given."""
    for name, (both, there, ranks, *_) in runs.items():
        yield name, ranks, dict(merged(merged(SMALL, both), there), device="cuda")
        yield f"{name}, CPU", 1, merged(SMALL, both)


def check_configs(machine, configs):
    """Dry: all of them planned, those for the same number of ranks in one process. `configs`: (name, ranks, config)."""
    machine.there(machine.program, executable=True)
    files = {}
    for name, ranks, config in configs:
        file = machine.logs / ("plan_" + "".join(c if c.isalnum() else "_" for c in name) + ".json")
        file.write_text(json.dumps(config))
        files.setdefault(ranks, []).append(file)
    wrong = []
    for ranks, some in files.items():
        said = json.loads(machine.run("config check", [machine.program, "config", "check", "-n", ranks, "--json", *some], 120)[1])
        wrong += [f"{file['file']}: {file['problems']}" for file in said if file["code"]]
    if wrong:
        raise Failed("; ".join(wrong)[:900])
    return f"{sum(map(len, files.values()))} configs"


def reference(machine, name, config, kept):
    """Losses of a config on the CPU; `kept` has them by config, and gets new ones."""
    key = json.dumps(config, sort_keys=True)
    with REFERENCE:
        if key not in kept:
            kept[key] = losses_of(machine, "cpu " + name, config, 120)
        return kept[key]


def check_run(machine, runs, name, kept):
    """`kept`: losses of the CPU by config, filled here."""
    if not machine.program.is_file():
        raise Missing(f"{machine.program} is not there")
    both, there, ranks, tolerance, arch = runs[name]
    if machine.dry:
        return f"drivetrain {'train' if ranks == 1 else f'launch -n {ranks}'} CONFIG"
    if ranks > max(1, len(machine.gpus)):
        raise NotRun(f"needs {ranks} GPUs")
    machine.wants(arch)
    config = merged(SMALL, both)
    expected = reference(machine, name, config, kept)
    found = losses_of(machine, name, dict(merged(config, there), device="cuda"), 120, ranks)
    difference = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
    if not difference < tolerance:
        raise Failed(f"losses differ by {difference:.1e} of their value, allowed {tolerance:.0e}: cpu {expected}, here {found}")
    return f"{len(found)} steps, losses within {difference:.1e} of the CPU's"


# Standard attention: the other ones add up the gradient of queries in the order in which blocks come.
RESUMED = dict(train_steps=6, device="cuda", bf16={"enabled": True}, attention="standard", checkpoint_policy={"type": "every", "params": {"steps": 3}})


def resumed_config(capture):
    return merged(SMALL, dict(RESUMED, capture=capture))


def resumed_configs():
    for capture in (False, True):
        yield f"resumed, capture {capture}", 1, resumed_config(capture)


def check_resumed(machine, capture):
    """A run goes on from its third step with the bits that it had."""
    machine.there(machine.program, executable=True)
    config = resumed_config(capture)
    if machine.dry:
        return "drivetrain train CONFIG --resume step-00000003"
    name = "resumed" + (", recorded" if capture else "")
    first = losses_of(machine, name, config, 120)
    folder, file = files_of(machine, name)
    (folder / "metrics.jsonl").rename(folder / "before.jsonl")
    machine.output(f"train {name} again", [machine.program, "train", file, "--resume", "step-00000003"], 120)
    again = read_losses(folder)
    if again != first[3:]:
        raise Failed(f"steps 4 to 6 had the losses {first[3:]}; resumed {again}")
    return f"{len(again)} steps after the checkpoint, losses equal to the bit"
