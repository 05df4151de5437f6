"""A Llama 3 8B shape of four of its 32 layers on sequences of 262,144 tokens: seconds per step and memory beside the plan's."""
import json
import re
import statistics

import figures
from machine import files_of, losses_of

TOKENS = 262144
# All 32 layers keep 144 GB on the host, more than a lent machine has. So little of the GPU is given that `long_context` has to do
# for four what it does for all of them: the MLP goes in chunks, the inputs of blocks to the host.
CONFIG = {
    "train_steps": 3, "device": "cuda", "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0, "save_final": False, "checkpoint_policy": False, "long_context": {"memory_gib": 30},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
    "model": {"type": "gpt", "params": {
        "num_layers": 4, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8, "ffn_hidden_size": 14336, "vocab_size": 128256,
        "max_position_embeddings": TOKENS, "normalization": "rmsnorm", "position_embedding_type": "rope", "rotary_base": 500000,
        "activation": "swiglu", "add_bias": False, "untie_embeddings_and_output_weights": True}},
    "dataset": {"type": "synthetic", "params": {"seq_length": TOKENS}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
}
NAME = f"long_context, Llama shape, {TOKENS:,} tokens"


def configs():
    yield NAME, 1, CONFIG


def check(machine):
    machine.there(machine.program, executable=True)
    if machine.dry:
        return "drivetrain train CONFIG"
    losses_of(machine, NAME, CONFIG, 240)
    folder, config = files_of(machine, NAME)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    # The first step chooses a backend of attention and takes its memory.
    said = {"step_s": {"median": statistics.median(row["step_s"] for row in rows[1:])},
            "peak_memory_bytes": max(row["peak_memory_bytes"] for row in rows)}
    chosen = re.findall(r"^  (\w+) +(\S+) +long_context: ", (folder / "log.txt").read_text(), re.MULTILINE)
    steps = ", ".join(f"{row['step_s']:.4g}" for row in rows)
    return (f"steps {steps} s, {rows[-1]['tgs']:,.0f} tokens/s, peak {said['peak_memory_bytes'] / 1e9:.1f} GB, of the host's "
            f"{max(row['host_peak_memory_bytes'] for row in rows) / 1e9:.1f} GB" + figures.planned(machine, NAME, config, [], said)
            + "; chosen: " + (", ".join(" ".join(pair) for pair in chosen) or "nothing"))
