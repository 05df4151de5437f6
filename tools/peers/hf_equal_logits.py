#!/usr/bin/env python3
"""Shows that transformers loads a folder Drivetrain wrote, and computes what Drivetrain computes.

Runs in the `peers` set: $(tools/setup/deps peers)/bin/python tools/peers/hf_equal_logits.py FOLDER ...
Each option is one comparison; all that are given must hold. Exit 0: they do; 1: one does not; 2: usage.

  --batches FILE [--step N]  token batches (`tokens`, int64 [steps, micro_batches, B, S+1]); prints transformers' loss
      of step N (from 1) with this folder's weights
  --metrics FILE             metrics.jsonl of a run that began with these weights: its loss at that step (1) must agree
  --logits FILE              safetensors of ours: `tokens` int64 [B, S] and `logits` float32 [B, S, V]
  --adapter FOLDER           a PEFT adapter that the model is to have (needs the set `peft`)
  --same-as FOLDER           another folder: equal tensors, and equal logits bit for bit
"""

import argparse
import json
import pathlib
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def load(folder, adapter=None):
    """The model in float32, with its adapter, and what transformers had to say about its tensors."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True, output_loading_info=True
    )
    complaints = {key: sorted(value) for key, value in info.items() if value}
    if adapter:
        import peft
        model = peft.PeftModel.from_pretrained(model, adapter)
    return model.eval(), complaints


def tensors(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})
    return found


def step_tokens(path, step):
    """[rows, S+1] of one optimizer step."""
    tokens = load_file(path)["tokens"]
    if not 1 <= step <= tokens.shape[0]:
        sys.exit(f"{path} has steps 1 to {tokens.shape[0]}; {step} was asked for")
    return tokens[step - 1].flatten(0, 1)


def mean_loss(model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), tokens[:, 1:].flatten()).item()


def metrics_loss(path, step):
    for line in open(path, encoding="utf-8"):
        record = json.loads(line)
        if record.get("step") == step:
            return record["loss"]
    sys.exit(f"{path} has no step {step}")


class Report:
    """One line per comparison."""

    def __init__(self):
        self.good = True

    def check(self, what, difference, tolerance):
        fits = difference <= tolerance  # false for NaN too
        self.good = self.good and fits
        print(f"{'equal' if fits else 'DIFFERENT'}: {what}: difference {difference:.3g}, allowed {tolerance:.3g}")


def compare_folders(report, model, folder, other):
    ours, theirs = tensors(folder), tensors(other)
    same = ours.keys() == theirs.keys() and all(
        ours[n].dtype == theirs[n].dtype and torch.equal(ours[n], theirs[n]) for n in ours
    )
    report.check(f"tensors of {other}", 0.0 if same else 1.0, 0.0)
    config = model.config
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(config.vocab_size, (2, min(64, config.max_position_embeddings)), generator=generator)
    difference = (model(tokens).logits - load(other)[0](tokens).logits).abs().max().item()
    report.check(f"logits of {other}", difference, 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--batches")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--metrics")
    parser.add_argument("--logits")
    parser.add_argument("--adapter")
    parser.add_argument("--same-as")
    parser.add_argument("--loss-tolerance", type=float, default=4e-6, help="absolute, in nats (default 4e-6)")
    parser.add_argument("--logits-tolerance", type=float, default=2e-5, help="of the largest logit (default 2e-5)")
    options = parser.parse_args()
    if options.metrics and not options.batches:
        parser.error("--metrics needs --batches")

    print(f"transformers {transformers.__version__}: {options.folder}")
    report = Report()
    model, complaints = load(options.folder, options.adapter)
    report.check(f"tensor names {complaints or ''}", float(len(complaints)), 0.0)
    with torch.no_grad():
        if options.batches:
            loss = mean_loss(model, step_tokens(options.batches, options.step))
            print(f"transformers: loss {loss!r} at step {options.step} of {options.batches}")
            if options.metrics:
                ours = metrics_loss(options.metrics, options.step)
                report.check(f"loss {ours!r} in {options.metrics}", abs(ours - loss), options.loss_tolerance)
        if options.logits:
            file = load_file(options.logits)
            theirs = model(file["tokens"]).logits
            difference = (file["logits"] - theirs).abs().max() / theirs.abs().max()
            report.check(f"logits in {options.logits}", difference.item(), options.logits_tolerance)
        if options.same_as:
            compare_folders(report, model, options.folder, options.same_as)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
