#!/usr/bin/env python3
"""How long the experts of a mixture take beside transformers' (OlmoeExperts through grouped products), and how much memory.

Runs in the `peers` set: $(tools/setup/deps peers)/bin/python tools/peers/hf_experts.py --program build/release/tests/experts_layer
The defaults are a layer of OLMoE: hidden 2048, inner 1024, 8 choices of a token, 64 rows an expert. Both programs run in turn on one
thread; processor seconds, the least of the repeats of a round, medians over rounds (with --dense the least of all). Every expert has as many rows. Memory: kept for
backward, and at most while it runs, beside weights and their gradients (ours by our allocator; theirs what autograd saves, and
resident pages).

  --dtype f32|bf16   of activations and weights (default f32); our weight gradients are float32
  --tokens, --experts, --hidden, --inner, --chosen, --repeats, --rounds
  --dense            instead: our three grouped products beside products of the same rows with one matrix
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch


def resident(name):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])


class Theirs:
    def __init__(self, options):
        from transformers import OlmoeConfig
        from transformers.models.olmoe.modeling_olmoe import OlmoeExperts
        config = OlmoeConfig(hidden_size=options.hidden, intermediate_size=options.inner, num_experts=options.experts,
                             num_experts_per_tok=options.chosen)
        config._experts_implementation = "grouped_mm"
        self.dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
        self.layer = OlmoeExperts(config).to(self.dtype)
        for weight in self.layer.parameters():
            torch.nn.init.normal_(weight, std=0.02)
        shape = options.tokens, options.hidden
        self.x = torch.randn(shape, dtype=self.dtype, requires_grad=True)
        self.dy = torch.randn(shape, dtype=self.dtype)
        self.choices = torch.arange(options.tokens * options.chosen).remainder(options.experts).view(options.tokens, options.chosen)
        self.weights = torch.full(self.choices.shape, 1 / options.chosen, dtype=self.dtype, requires_grad=True)

    def step(self):
        for tensor in [*self.layer.parameters(), self.x, self.weights]:
            tensor.grad = None
        start = time.thread_time()
        y = self.layer(self.x, self.choices, self.weights)
        middle = time.thread_time()
        y.backward(self.dy)
        return {"forward": middle - start, "backward": time.thread_time() - middle}

    def round(self, repeats):
        steps = [self.step() for _ in range(repeats + 1)]
        return {key: min(step[key] for step in steps) for key in steps[0]}

    def memory(self):
        """What backward keeps, and pages beyond the gradients; the C library gives back what is freed."""
        ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD
        for tensor in [*self.layer.parameters(), self.x, self.weights]:
            tensor.grad = None
        known = {tensor.untyped_storage().data_ptr() for tensor in [*self.layer.parameters(), self.x, self.weights]}
        saved = {}

        def keep(tensor):
            if tensor.untyped_storage().data_ptr() not in known:
                saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        before = resident("VmRSS")
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            y = self.layer(self.x, self.choices, self.weights)
        y.backward(self.dy)
        gradients = sum(weight.grad.numel() * weight.grad.element_size() for weight in self.layer.parameters())
        return {"kept": sum(saved.values()), "peak": resident("VmHWM") - before - gradients}


def ours(options, *more):
    command = [options.program, options.dtype, *(str(getattr(options, name)) for name in
                                                  ("tokens", "hidden", "inner", "experts", "chosen", "repeats")), *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def dense(options):
    rounds = [ours(options, "dense") for _ in range(options.rounds)]
    for i, name in enumerate(("forward", "input gradients", "weight gradients")):
        grouped, single = (min(one[key][i] for one in rounds) for key in ("grouped", "dense"))
        print(f"{name}: grouped {grouped * 1e3:.1f} ms, one matrix {single * 1e3:.1f} ms, rate {single / grouped:.2f}")
    grouped, single = (min(sum(one[key]) for one in rounds) for key in ("grouped", "dense"))
    print(f"all three: rate {single / grouped:.2f}")


def beside(options):
    theirs = Theirs(options)
    rounds = [(ours(options), theirs.round(options.repeats)) for _ in range(options.rounds)]
    for key in ("forward", "backward"):
        mine, other = (statistics.median(one[i][key] for one in rounds) for i in (0, 1))
        print(f"{key}: ours {mine * 1e3:.1f} ms, theirs {other * 1e3:.1f} ms, ratio {mine / other:.2f}")
    mine, other = (statistics.median(one[i]["forward"] + one[i]["backward"] for one in rounds) for i in (0, 1))
    print(f"both: ratio {mine / other:.2f}")
    fresh = subprocess.run([sys.executable, "-B", __file__, *sys.argv[1:], "--memory"], check=True, stdout=subprocess.PIPE, text=True)
    for key, other in json.loads(fresh.stdout).items():
        mine = rounds[0][0][key]
        print(f"{key}: ours {mine / 1e6:.0f} MB, theirs {other / 1e6:.0f} MB, ratio {mine / other:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    for name, value in (("tokens", 512), ("experts", 64), ("hidden", 2048), ("inner", 1024), ("chosen", 8), ("repeats", 3), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--memory", action="store_true", help="of theirs alone, in a process that has freed nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        print(json.dumps(Theirs(options).memory()))
        return
    dense(options) if options.dense else beside(options)


main()
