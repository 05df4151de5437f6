"""Our step beside PyTorch eager's, interleaved: GPT-2 124M (vocabulary 50304), float32, AdamW, clip 1.0, the same weights, the
same tokens. Prints one row per arrangement with the ratio's median and spread over the rounds; exit 1 if losses disagree.

    $(tools/setup/deps peers)/bin/python tools/peers/side_by_side.py [--batch 4 --length 64 --rounds 5 --steps 8 --processes 1 2]
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PROGRAM = REPO / "build" / "release" / "bin" / "drivetrain"


def write_batches(path, steps, batch, length, vocabulary):
    import torch
    from safetensors.torch import save_file
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, vocabulary, (steps, 1, batch, length + 1), generator=generator)
    save_file({"tokens": tokens}, path)


def config(folder, batches, steps, batch, model):
    return {"train_steps": steps, "train_batch_size": batch, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "save_final": False, "model": {"type": "gpt", "params": model},
            "dataset": {"type": "token_batches", "params": {"file": str(batches)}},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}}


def ours(settings, processes, folder):
    file, run = folder / "ours.json", folder / "run"
    file.write_text(json.dumps(settings))
    subprocess.run(["rm", "-rf", str(run)], check=True)
    subprocess.run([str(PROGRAM), "launch", "-n", str(processes), str(file), "--set", f"output_dir={run}"], check=True,
                   stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def theirs(model, batches, steps, processes, cores):
    command = [sys.executable, str(Path(__file__).with_name("pytorch_run.py")), "--model", str(model), "--batches", str(batches),
               "--steps", str(steps), "--threads", str(max(1, cores // processes))]
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(processes))
    ranks = [subprocess.Popen(command, env=dict(environment, RANK=str(rank)), stdout=subprocess.PIPE, text=True)
             for rank in range(processes)]
    text = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("PyTorch failed; see above")
    return [json.loads(line) for line in text[0].splitlines()]


def settled(rows):
    """Median seconds of a step, the first two (warm-up, allocation) left out."""
    return statistics.median(row["step_s"] for row in rows[2:])


def compare(processes, args, folder, model, batches):
    settings = config(folder, batches, args.steps, args.batch, {"from": str(model)})
    ratios, mine, other, memory = [], [], [], []
    for _ in range(args.rounds):
        a, b = ours(settings, processes, folder), theirs(model, batches, args.steps, processes, os.cpu_count())
        worst = max(abs(x["loss"] - y["loss"]) for x, y in zip(a, b))
        if worst > 1e-4:
            sys.exit(f"losses differ by {worst:.2e}: nothing is compared")
        mine.append(settled(a)), other.append(settled(b)), ratios.append(settled(a) / settled(b))
        memory.append((a[-1]["peak_memory_bytes"], b[-1]["peak_memory_bytes"]))
    ours_gb, theirs_gb = (statistics.median(m[i] for m in memory) / 1e9 for i in (0, 1))
    print(f"| B{args.batch} T{args.length}, {processes} process{'es' if processes > 1 else ''} | {statistics.median(mine):.3f} s | "
          f"{statistics.median(other):.3f} s | {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) | "
          f"{ours_gb:.2f} GB | {theirs_gb:.2f} GB | {ours_gb / theirs_gb:.2f} | {worst:.0e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batches = folder / "batches.safetensors"
        write_batches(batches, args.steps, args.batch, args.length, 50304)
        # A folder of our own writing: one step at learning rate 0 leaves the initial weights.
        shape = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "vocab_size": 50304,
                 "max_position_embeddings": 1024}
        first = config(folder, batches, 1, args.batch, shape)
        first["save_final"], first["optimizer"]["params"]["lr"] = True, 0.0
        ours(first, 1, folder)
        model = folder / "model"
        (folder / "run" / "final").rename(model)
        print("| shape | ours | PyTorch eager | time ratio, median (range) | our memory | theirs | ratio | loss difference |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for processes in args.processes:
            compare(processes, args, folder, model, batches)


if __name__ == "__main__":
    main()
