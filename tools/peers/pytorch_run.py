"""GPT-2 in PyTorch eager, for comparison: the folder, batches, optimizer and clipping of a run of ours, on one process or, with
torch.distributed's variables set, under DistributedDataParallel over Gloo. Prints one JSON object per step.

    python pytorch_run.py --model FOLDER --batches FILE.safetensors --steps N [--threads T]
"""
import argparse
import json
import os
import resource
import time

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-4)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=args.lr, betas=(0.9, 0.95), eps=1e-8)
    runner = model
    if world > 1:
        torch.distributed.init_process_group("gloo")
        runner = torch.nn.parallel.DistributedDataParallel(model)
    batches = load_file(args.batches)["tokens"]
    rows = batches.shape[2] // world
    for step in range(args.steps):
        tokens = batches[step, 0, rank * rows:(rank + 1) * rows]
        start = time.perf_counter()
        logits = runner(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.detach().clone()
        if world > 1:
            torch.distributed.all_reduce(value)
            value /= world
        seconds = time.perf_counter() - start
        if rank == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps({"step": step + 1, "loss": value.item(), "grad_norm": norm.item(), "step_s": seconds,
                              "peak_memory_bytes": peak}), flush=True)
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
