"""Makes the golden data, or some of it, and says how it compares with what is committed.

    all [NAME...]            writes into tests/golden/data
    all --check [NAME...]    makes it in a temporary folder and compares; exit 1 where something differs by more than is allowed
    all --list               the names, with the files that each makes
"""
import argparse
import functools
import pathlib
import sys
import tempfile

from golden_files import DATA

DEEPSPEED = [f"deepspeed_gpt2_zero{stage}" for stage in range(4)] + [
    "deepspeed_bf16_zero1", "deepspeed_bf16_zero1_fp32_accumulation"]
NAMES = {"gpt2_tiny": "gpt2_tiny/", "llama_tiny": "llama_tiny/", **{name: name + "/" for name in DEEPSPEED},
         "schedules": "schedules.json", "attention": "attention/", "ops": "ops/", "adamw": "adamw.json",
         "deepspeed_checkpoints": "deepspeed_checkpoints/", "megatron_checkpoints": "megatron_checkpoints/",
         "megatron_data": "megatron_data/", "tokenizer_files": "tokenizer_files/", "lora_gpt2": "lora_gpt2/",
         "lora_llama": "lora_llama/", "lora_qwen2": "lora_qwen2/", "chat": "chat/",
         "families": "families/"}


def maker(name):
    """The function that writes NAME's files into a folder. Imports what it needs when it is asked for."""
    if name in DEEPSPEED:
        import deepspeed_curves
        return functools.partial(deepspeed_curves.make_case, name)
    if name in ("gpt2_tiny", "llama_tiny"):
        import curves
        return functools.partial(curves.make_case, name)
    if name.startswith("lora_"):
        import adapters
        return functools.partial(adapters.make_case, name)
    import importlib
    return importlib.import_module(name).make


def files_of(name, folder):
    place = folder / NAMES[name]
    return sorted(place.rglob("*")) if place.is_dir() else [place]


def compare_files(name, folder):
    """One line per file; True if all are as they should be."""
    from compare import compare
    good = True
    made, kept = ({f.relative_to(side).as_posix() for f in files_of(name, side) if f.is_file()} for side in (folder, DATA))
    for file in sorted(made | kept):
        try:
            if file not in made or file not in kept:
                raise ValueError("made, but not committed" if file in made else "committed, but not made")
            share = compare(file, folder / file, DATA / file)
            verdict = "equal bytes" if share is None else f"{share:.3g} of what is allowed"
        except ValueError as error:
            good, verdict = False, f"WRONG: {error}"
        print(f"  {file:60} {verdict}", flush=True)
    return good


def run(name, folder):
    noise = maker(name)(folder)
    if noise:
        worst = max(noise, key=noise.get)
        print(f"{name}: float32 here is within {noise[worst]:.2g} of its bounds ({worst})", flush=True)
        return noise[worst] <= 1
    return True


def check(names):
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            print(name, flush=True)
            good = run(name, pathlib.Path(temporary)) and good
            good = compare_files(name, pathlib.Path(temporary)) and good
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", default=[])
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in NAMES]:
        parser.error(f"no such data: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = args.names or list(NAMES)
    if args.list:
        print("\n".join(f"{name:40} {NAMES[name]}" for name in names))
        return 0
    import torch
    torch.set_num_threads(1)
    if args.check:
        return 0 if check(names) else 1
    return 0 if all([run(name, DATA) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
