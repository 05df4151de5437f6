#!/usr/bin/env python3
"""Shows that `drivetrain generate` continues prompts greedily as transformers does, and how long both take.

Runs in the `peers` set: $(tools/setup/deps peers)/bin/python tools/peers/hf_generate.py --program build/release/bin/drivetrain
Without further options: tiny random models of every family, prompts of unequal lengths, token for token. Exit 0: all are
equal; 1: one is not.

  --time [ROUNDS]   instead: GPT-2's 124M shape with random weights, 64 tokens behind 16; processor seconds of the tokens
      behind the first, of both programs in turn (default 5 rounds), their ratio, and the time of a token at lengths of 16
      to 48 and of 480 to 512
  --dtype f32|bf16  of both (default f32)
  --threads N       of both (default: all cores)
"""

import argparse
import json
import os
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden/make"))
import families  # noqa: E402  the models

PROMPTS, TOKENS = (1, 5, 17, 17, 30), 32
LARGE = dict(n_embd=768, n_layer=12, n_head=12, n_positions=1024, vocab_size=50257, bos_token_id=None, eos_token_id=None)


def made(name, folder):
    """A random model of a family, as its folder. No token ends a text: what would is left out of the files."""
    model = families.random_model(name, 7)
    families.save(model, folder)
    if name == "internlm2":
        families.internlm2_from_llama(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    model.generation_config.eos_token_id = None
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
    for family in families.FAMILIES:
        place = pathlib.Path(folder) / family
        model = made(family, place)
        # Behind longrope's short lengths we stay with its short factors, as a run does; transformers changes them.
        count, most = (6, 10) if family == "phi3" else (TOKENS, 64)
        prompts = [torch.randint(3, families.V, (min(length, most),)).tolist() for length in PROMPTS]
        found = ours(program, str(place), prompts, count, "--batch-size", "3")
        wanted = [greedy(model, ids, count) for ids in prompts]
        different = sum(f != w for f, w in zip(found, wanted)) + abs(len(found) - len(wanted))
        good = good and different == 0
        print(f"{'equal' if different == 0 else 'DIFFERENT'}: {family}: {count} tokens behind each of {len(prompts)} prompts"
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
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(transformers.GPT2Config(**LARGE)).eval()
    model.save_pretrained(place)
    if dtype == "bf16":
        model = model.to(torch.bfloat16)
    prompts = {behind: torch.randint(50257, (behind,)).tolist() for behind in (16, 480)}
    wants = {"transformers": lambda ids, n: seconds_here(lambda: greedy(model, ids, n)),
             "drivetrain": lambda ids, n: seconds_of_children(lambda: ours(program, place, [ids], n, "--dtype", dtype))}
    counts = [(16, 1), (16, 33), (16, 65), (480, 1), (480, 33)]
    taken = {(who, *count): [] for who in wants for count in counts}
    for _ in range(rounds):
        for behind, count in counts:
            for who, run in wants.items():
                taken[who, behind, count].append(run(prompts[behind], count))
    for kind, name in ((0, "processor (user)"), (1, "wall")):
        for which, of in (("median", statistics.median), ("least", min)):
            def seconds(who, behind, count):
                return of(one[kind] for one in taken[who, behind, count]) - of(one[kind] for one in taken[who, behind, 1])
            theirs, mine = seconds("transformers", 16, 65), seconds("drivetrain", 16, 65)
            print(f"{dtype}, {name} s, {which}s: 64 tokens: transformers {theirs:.2f}, drivetrain {mine:.2f}, ratio {mine / theirs:.2f}")
            for who in wants:
                early, late = (1000 * seconds(who, behind, 33) / 32 for behind in (16, 480))
                print(f"  {who}, ms a token at lengths 16 to 48: {early:.1f}, at 480 to 512: {late:.1f}, ratio {late / early:.2f}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--time", nargs="?", type=int, const=5)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # of the programs that are started here
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        good = (measure(options.program, folder, options.time, options.dtype) if options.time
                else compare(options.program, folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
