#!/usr/bin/env python3
"""Shows that `drivetrain generate` continues prompts greedily as transformers does, and how long both take.

Runs in the `peers` set: $(tools/setup/deps peers)/bin/python tools/peers/hf_generate.py --program build/release/bin/drivetrain
Without further options: tiny random models of every family, prompts of unequal lengths, token for token. Exit 0: all are
equal; 1: one is not.

  --time [ROUNDS]   instead: GPT-2's 124M shape with random weights, 64 tokens behind 16; processor seconds of the tokens
      behind the first, of both programs in turn (default 5 rounds), their ratio, and how the time of a token grows
  --dtype f32|bf16  of both (default f32)
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TINY = dict(vocab_size=600, bos_token_id=None, eos_token_id=None, pad_token_id=None)
ROTARY = dict(TINY, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=128, initializer_range=0.2)
FAMILIES = {
    "gpt2": lambda: transformers.GPT2Config(**TINY, n_embd=64, n_layer=3, n_head=4, n_positions=128, initializer_range=0.2),
    "llama": lambda: transformers.LlamaConfig(**ROTARY),
    "qwen2": lambda: transformers.Qwen2Config(**ROTARY),
}
LARGE = dict(n_embd=768, n_layer=12, n_head=12, n_positions=1024, vocab_size=50257, bos_token_id=None, eos_token_id=None)


def made(config, folder):
    """A random model, every one-dimensional weight moved from where it begins."""
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def greedy(model, ids, count):
    with torch.no_grad():
        tokens = torch.tensor([ids])
        out = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=count,
                             min_new_tokens=count, use_cache=True)
    return out[0, len(ids):].tolist()


def ours(program, folder, prompts, count, *more):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps({"prompt": ids}) + "\n" for ids in prompts))
        file.flush()
        done = subprocess.run([program, "generate", folder, "--prompts", file.name, "--temperature", "0",
                               "--max-new-tokens", str(count), *more], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    if done.stderr:
        print(done.stderr, end="")
    return [json.loads(line)["tokens"] for line in done.stdout.splitlines()]


def compare(program, folder):
    good = True
    for family, config in FAMILIES.items():
        place = str(pathlib.Path(folder) / family)
        model = made(config(), place)
        prompts = [torch.randint(600, (length,)).tolist() for length in (1, 5, 17, 17, 40)]
        found = ours(program, place, prompts, 48, "--batch-size", "3")
        wanted = [greedy(model, ids, 48) for ids in prompts]
        different = sum(f != w for f, w in zip(found, wanted)) + abs(len(found) - len(wanted))
        good = good and different == 0
        print(f"{'equal' if different == 0 else 'DIFFERENT'}: {family}: 48 tokens behind each of {len(prompts)} prompts"
              + (f", {different} texts differ" if different else ""), flush=True)
    return good


def seconds_of_children(call):
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, time.perf_counter() - wall


def seconds_here(call):
    before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before.ru_utime, time.perf_counter() - wall


def measure(program, folder, rounds, dtype):
    place = str(pathlib.Path(folder) / "large")
    model = made(transformers.GPT2Config(**LARGE), place)
    if dtype == "bf16":
        model = model.to(torch.bfloat16)
    prompt = torch.randint(50257, (16,)).tolist()
    wants = {"transformers": lambda n: seconds_here(lambda: greedy(model, prompt, n)),
             "drivetrain": lambda n: seconds_of_children(lambda: ours(program, place, [prompt], n, "--dtype", dtype))}
    counts = (1, 65, 257)
    taken = {who: {n: [] for n in counts} for who in wants}
    for _ in range(rounds):
        for count in counts:
            for who, run in wants.items():
                taken[who][count].append(run(count))
    def behind_first(who, kind, more):
        return statistics.median(l[kind] - f[kind] for f, l in zip(taken[who][1], taken[who][more]))
    for kind, name in ((0, "user"), (1, "wall")):
        theirs, mine = behind_first("transformers", kind, 65), behind_first("drivetrain", kind, 65)
        print(f"64 tokens, {dtype}, {name} s: transformers {theirs:.2f}, drivetrain {mine:.2f}, ratio {mine / theirs:.2f}")
        late = (behind_first("drivetrain", kind, 257) - mine) / 192
        print(f"  drivetrain per token: {1000 * mine / 64:.1f} ms for tokens 2 to 65, {1000 * late:.1f} ms for 66 to 257")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--time", nargs="?", type=int, const=5)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    options = parser.parse_args()
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        good = (measure(options.program, folder, options.time, options.dtype) if options.time
                else compare(options.program, folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
