"""The comparisons of tools/peers/check_families. One line for each; exit 1 where something differs."""
import argparse
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests/golden/make"))
import families  # noqa: E402  the models, of other sizes
import family_shapes  # noqa: E402
import hf_models  # noqa: E402

SIZES = {**families.SIZES, "vocab_size": 203, "hidden_size": 36, "intermediate_size": 52, "num_hidden_layers": 4,
         "num_attention_heads": 6, "num_key_value_heads": 3}
# Lists with one entry for each layer, of four layers.
LAYERS = {"olmo3": ["sliding_attention"] * 3 + ["full_attention"], "gemma3": ["sliding_attention"] * 3 + ["full_attention"]}
LOSS, LOGITS = 1e-5, 2e-5  # absolute; of the largest
# Of the spread of a table's numbers: transformers draws new rows around the mean, 3.2e-5 of it wide.
MORE_TOKENS, NEW_ROWS = 11, 3e-4
# Of the batches. With 3 the scores of two experts come within 8e-6 of each other at step 5, so that rounding chooses.
SEED, SEEDS = 3, {"qwen3_moe": 4}


def model_of(name, untie):
    model_type, more = families.FAMILIES[name]
    if name in LAYERS:
        more = {**more, "layer_types": LAYERS[name]}
    if untie is not None:
        more = {**more, "tie_word_embeddings": untie}
    kept, families.FAMILIES[name] = families.FAMILIES[name], (model_type, more)
    try:
        return families.random_model(name, 7, SIZES)
    finally:
        families.FAMILIES[name] = kept


def length_of(folder):
    """Of the texts that are compared: beyond the short ones longrope needs a run that says how long they are."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type")) != "longrope":
        return 40
    return rope.get("original_max_position_embeddings", config.get("original_max_position_embeddings"))


class Checks:
    def __init__(self, build, four):
        self.build, self.four, self.good = build, four, True

    def line(self, name, what, difference, allowed):
        fits = difference <= allowed
        self.good = self.good and fits
        print(f"{'equal' if fits else 'DIFFERENT'}: {name}: {what}: {difference:.3g}, allowed {allowed:.3g}", flush=True)

    def run(self, *command, env=None):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env={**os.environ, **(env or {})})
        if done.returncode:
            self.good = False
            print(done.stdout[-2000:] + done.stderr[-2000:], flush=True)
        return done.returncode == 0

    def logits(self, name, model, folder, place):
        file = place / "logits.safetensors"
        if not self.run(self.build / "tests/write_logits", folder, file, 2, length_of(folder)):
            return
        ours = load_file(file)
        with torch.no_grad():
            theirs = hf_models.logits_of(model)(ours["tokens"])
        self.line(name, "logits", float((ours["logits"] - theirs).abs().max() / theirs.abs().max()), LOGITS)

    def grown(self, name, model, folder, place):
        """The tables that resize_embeddings makes, and those of transformers' resize_token_embeddings."""
        size = SIZES["vocab_size"] + MORE_TOKENS
        save_file({"tokens": families.batches_of(SEED, SIZES["vocab_size"], 1)}, place / "batches.safetensors")
        config = {**families.SETTINGS, "train_steps": 1, "output_dir": str(place / "grown"),
                  "optimizer": {"type": "AdamW", "params": {"lr": 0.0}}, "attention": "standard",
                  "model": {"type": "gpt", "params": {"from": str(folder), "resize_embeddings": {"vocab_size": size}}},
                  "dataset": {"type": "token_batches", "params": {"file": str(place / "batches.safetensors")}}}
        (place / "grown.json").write_text(json.dumps(config))
        if not self.run(self.build / "bin/drivetrain", "train", place / "grown.json"):
            return
        ours = transformers.AutoModelForCausalLM.from_pretrained(place / "grown/final", dtype=torch.float32)
        theirs = copy.deepcopy(model)
        theirs.resize_token_embeddings(size)
        for table in ("input", "output"):
            a, b = (getattr(m, f"get_{table}_embeddings")().weight.detach() for m in (ours, theirs))
            difference = (a - b).abs()
            self.line(name, f"{table} rows that were there", float(difference[:-MORE_TOKENS].max()), 0.0)
            self.line(name, f"{table} rows that are new", float(difference[-MORE_TOKENS:].max() / b.std()), NEW_ROWS)

    def steps(self, name, model, folder, place):
        batches = families.batches_of(SEEDS.get(name.split(",")[0], SEED), SIZES["vocab_size"], 40)
        save_file({"tokens": batches}, place / "batches.safetensors")
        config = {**families.SETTINGS, "train_steps": len(batches), "output_dir": str(place / "run"),
                  "model": {"type": "gpt", "params": {"from": str(folder)}},
                  "dataset": {"type": "token_batches", "params": {"file": str(place / "batches.safetensors")}},
                  "attention": "standard"}
        (place / "train.json").write_text(json.dumps(config))
        if not self.run(self.build / "bin/drivetrain", "train", place / "train.json"):
            return False
        lines = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
        ours = [line["loss"] for line in lines if "loss" in line]
        curve = families.trained(model, batches)
        theirs = curve["loss"]
        self.line(name, f"{len(theirs)} losses", max(abs(a - b) for a, b in zip(ours, theirs, strict=True)), LOSS)
        if "loss_total" in curve:
            weight = model.config.router_aux_loss_coef
            ours = [line["loss"] + weight * line["loss_terms.load_balancing_loss"] for line in lines if "loss" in line]
            difference = max(abs(a - b) for a, b in zip(ours, curve["loss_total"], strict=True))
            self.line(name, "with that of the experts' loads", difference, LOSS)
        return True

    def folder(self, name, place):
        """What training left, for transformers 5 and 4."""
        final, file = place / "run/final", place / "final.safetensors"
        if not self.run(self.build / "tests/write_logits", final, file, 2, length_of(final)):
            return
        for version, path in (("5", ""), ("4", self.four)):
            if name == "internlm2" or (version == "4" and not path):
                continue
            if self.run(sys.executable, HERE / "hf_equal_logits.py", final, "--logits", file, env={"PYTHONPATH": path}):
                print(f"equal: {name}: folder for transformers {version}", flush=True)
            else:
                print(f"DIFFERENT: {name}: folder for transformers {version}", flush=True)

    def family(self, name, untie):
        with tempfile.TemporaryDirectory() as temporary:
            place = pathlib.Path(temporary)
            model = model_of(name, untie)
            families.save(model, place / "model")
            if name == "internlm2":
                families.internlm2_from_llama(place / "model")
            label = name if untie is None else f"{name}, {'tied' if untie else 'untied'}"
            self.logits(label, model, place / "model", place)
            if name != "internlm2":  # which transformers has not
                self.grown(label, model, place / "model", place)
            if self.steps(label, model, place / "model", place):
                self.folder(name, place)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--transformers4", default="")
    parser.add_argument("--shapes", action="store_true", help="the table of many shapes instead (family_shapes.py)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in families.FAMILIES]:
        parser.error(f"no such family: {', '.join(unknown)}; there are {', '.join(families.FAMILIES)}")
    torch.set_num_threads(1)
    if options.shapes:
        return family_shapes.table(options.program)
    checks = Checks(options.program, options.transformers4)
    for name in options.names or families.FAMILIES:
        checks.family(name, None)
    for name, tied in (("qwen3", True), ("olmo2", True), ("gemma2", False)):
        if not options.names or name in options.names:
            checks.family(name, tied)
    return 0 if checks.good else 1


if __name__ == "__main__":
    sys.exit(main())
