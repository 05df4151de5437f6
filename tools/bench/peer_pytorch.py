#!/usr/bin/env python3
"""One training run of a GPT-2 or Llama shaped model in PyTorch: the weights, tokens, optimizer and clipping of a run of ours.

    peer_pytorch.py --model FOLDER --batches FILE.safetensors --steps N [--threads T] [--device cuda --dtype bfloat16]
                    [--compile] [--malloc-tuned] [--adam default] [--implementation transformers]

Needs torch alone, or transformers too for --implementation transformers. FOLDER is a Hugging Face folder in safetensors (GPT-2 or
Llama); with config.json only, weights are random. FILE has `tokens` int64 [steps, 1, B, S+1], read again from its beginning when it
ends. With torch.distributed's variables set it runs under DistributedDataParallel. Prints one JSON object per step.

The model is written for speed: fused q, k, v and gate, up projections, scaled_dot_product_attention, fused AdamW. bfloat16 is
autocast over float32 weights. --malloc-tuned lets glibc keep what was freed instead of mapping fresh pages for every tensor.
"""
import argparse
import ctypes
import json
import os
import pathlib
import resource
import sys
import time


def keep_freed_memory():
    """glibc's malloc takes big blocks from its heap, which it never shrinks. Before anything large is allocated."""
    libc = ctypes.CDLL("libc.so.6")
    M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
    if not (libc.mallopt(M_MMAP_THRESHOLD, 1 << 30) and libc.mallopt(M_TRIM_THRESHOLD, -1)):
        sys.exit("peer_pytorch.py: mallopt refused; use MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_")


if "--malloc-tuned" in sys.argv:
    keep_freed_memory()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

sys.dont_write_bytecode = True
from peer_weights import load_gpt2, load_llama, read_safetensors  # noqa: E402


class Shape:
    """What a config.json says, under one set of names."""

    def __init__(self, folder):
        c = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.family = c["model_type"]
        if self.family == "gpt2":
            self.layers, self.hidden, self.heads, self.positions = c["n_layer"], c["n_embd"], c["n_head"], c["n_positions"]
            self.groups, self.ffn, self.epsilon = self.heads, c.get("n_inner") or 4 * self.hidden, c["layer_norm_epsilon"]
            self.tanh = c.get("activation_function", "gelu_new") in ("gelu_new", "gelu_pytorch_tanh")
            self.tied, self.base = c.get("tie_word_embeddings", True), None
        elif self.family == "llama":
            self.layers, self.hidden, self.heads = c["num_hidden_layers"], c["hidden_size"], c["num_attention_heads"]
            self.groups, self.ffn, self.epsilon = c["num_key_value_heads"], c["intermediate_size"], c["rms_norm_eps"]
            rope = c.get("rope_parameters") or {}
            self.positions, self.base = c["max_position_embeddings"], c.get("rope_theta") or rope.get("rope_theta", 10000.0)
            self.tied = c.get("tie_word_embeddings", False)
        else:
            sys.exit(f"peer_pytorch.py: {folder} is a {self.family}; wanted gpt2 or llama")
        self.vocabulary = c["vocab_size"]
        self.head_dim = c.get("head_dim") or self.hidden // self.heads
        self.std = c.get("initializer_range", 0.02)


def turn(x, cos, sin):
    """Rotary embedding of x [B, H, S, C]: pairs are (i, i + C/2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        gpt2 = s.family == "gpt2"
        norm = (lambda: nn.LayerNorm(s.hidden, s.epsilon)) if gpt2 else (lambda: nn.RMSNorm(s.hidden, s.epsilon))
        self.s = s
        self.sizes = [s.heads * s.head_dim, s.groups * s.head_dim, s.groups * s.head_dim]
        self.norm1, self.norm2 = norm(), norm()
        self.qkv = nn.Linear(s.hidden, sum(self.sizes), bias=gpt2)
        self.proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=gpt2)
        self.up = nn.Linear(s.hidden, s.ffn if gpt2 else 2 * s.ffn, bias=gpt2)
        self.down = nn.Linear(s.ffn, s.hidden, bias=gpt2)

    def attend(self, x, cos, sin):
        B, S, _ = x.shape
        q, k, v = (t.view(B, S, -1, self.s.head_dim).transpose(1, 2) for t in self.qkv(x).split(self.sizes, dim=-1))
        if cos is not None:
            q, k = turn(q, cos, sin).to(v.dtype), turn(k, cos, sin).to(v.dtype)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.s.groups != self.s.heads)
        return self.proj(out.transpose(1, 2).reshape(B, S, -1))

    def mlp(self, x):
        if self.s.family == "gpt2":
            return self.down(F.gelu(self.up(x), approximate="tanh" if self.s.tanh else "none"))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)

    def forward(self, x, cos, sin):
        x = x + self.attend(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.words = nn.Embedding(s.vocabulary, s.hidden)
        if s.base is None:
            self.places = nn.Embedding(s.positions, s.hidden)
        else:
            angles = torch.arange(s.positions)[:, None] / s.base ** (torch.arange(0, s.head_dim, 2) / s.head_dim)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.hidden, s.epsilon) if s.family == "gpt2" else nn.RMSNorm(s.hidden, s.epsilon)
        self.head = nn.Linear(s.hidden, s.vocabulary, bias=False)
        if s.tied:
            self.head.weight = self.words.weight
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=s.std)

    def forward(self, tokens, labels):
        S = tokens.shape[1]
        x, cos, sin = self.words(tokens), None, None
        if self.s.base is None:
            x = x + self.places.weight[:S]
        else:
            cos, sin = self.cos[:S], self.sin[:S]
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def plain_model(folder):
    shape = Shape(folder)
    model = Gpt(shape)
    files = sorted(pathlib.Path(folder).glob("*.safetensors"))
    tensors = {name: x for file in files for name, x in read_safetensors(file).items()}
    if tensors:
        with torch.no_grad():
            for parameter, value in (load_gpt2 if shape.family == "gpt2" else load_llama)(model, tensors):
                if parameter.shape != value.shape:
                    sys.exit(f"peer_pytorch.py: a tensor of {folder} is {tuple(value.shape)}, wanted {tuple(parameter.shape)}")
                parameter.copy_(value)
    return model


class Transformers(nn.Module):
    def __init__(self, folder):
        super().__init__()
        from transformers import AutoModelForCausalLM
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")

    def forward(self, tokens, labels):
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class Run:
    def __init__(self, args):
        self.args = args
        self.world, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        cuda = args.device == "cuda"
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank))) if cuda else torch.device("cpu")
        torch.set_num_threads(args.threads or max(1, os.cpu_count() // self.world))
        # The products that ours does in float32 are float32 here too.
        torch.backends.cuda.matmul.allow_tf32 = False
        if cuda:
            torch.cuda.set_device(self.device)
        model = plain_model(args.model) if args.implementation == "plain" else Transformers(args.model)
        self.model = model.to(self.device).train()
        if self.world > 1:
            torch.distributed.init_process_group("nccl" if cuda else "gloo")
        self.shard()
        if args.compile:
            self.runner = torch.compile(self.runner)

    def shard(self):
        """What runs the model and what updates it; peer_sharded.py has other ways."""
        self.runner = nn.parallel.DistributedDataParallel(self.model) if self.world > 1 else self.model
        self.optimizer = torch.optim.AdamW(self.groups(), **self.adam())

    def groups(self):
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        return [{"params": matrices, "weight_decay": self.args.weight_decay}, {"params": others, "weight_decay": 0.0}]

    def adam(self):
        return {"lr": self.args.lr, "betas": tuple(self.args.betas), "eps": self.args.eps, "fused": self.args.adam == "fused" or None}

    def batch(self, batches, step):
        rows = batches.shape[2] // self.world
        tokens = batches[step % batches.shape[0], 0, self.rank * rows:(self.rank + 1) * rows].to(self.device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def forward(self, tokens, labels):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.args.dtype == "bfloat16"):
            return self.runner(tokens, labels)

    def step(self, tokens, labels):
        loss = self.forward(tokens, labels)
        norm = self.backward_and_update(loss)
        value = loss.detach().clone()
        if self.world > 1:
            torch.distributed.all_reduce(value)
            value /= self.world
        return value, norm

    def backward_and_update(self, loss):
        loss.backward()
        norm = self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def clip(self):
        if self.args.clip > 0:
            return torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        return torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])

    def peak_memory(self):
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def train(self):
        batches = read_safetensors(self.args.batches)["tokens"]
        for step in range(self.args.steps):
            self.wait()
            start = time.perf_counter()
            loss, norm = self.step(*self.batch(batches, step))
            loss, norm = loss.item(), norm.item()
            self.wait()
            seconds = time.perf_counter() - start
            row = {"step": step + 1, "loss": loss, "grad_norm": norm, "step_s": seconds, "peak_memory_bytes": self.peak_memory()}
            if step + 1 == self.args.steps:
                row["peak_memory_bytes_by_rank"] = self.of_all_ranks(row["peak_memory_bytes"])
            if self.rank == 0:
                print(json.dumps(row), flush=True)
        if self.world > 1:
            torch.distributed.destroy_process_group()

    def of_all_ranks(self, value):
        values = [value]
        if self.world > 1:
            values *= self.world
            torch.distributed.all_gather_object(values, value)
        return values


def read_options(add=lambda parser: None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, default=0, help="default: cores / processes")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--implementation", choices=["plain", "transformers"], default="plain")
    parser.add_argument("--adam", choices=["fused", "default"], default="fused")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--malloc-tuned", action="store_true")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1, help="of matrices")
    parser.add_argument("--betas", type=float, nargs=2, default=[0.9, 0.95])
    parser.add_argument("--eps", type=float, default=1e-8)
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm; 0: off")
    add(parser)
    return parser.parse_args()


if __name__ == "__main__":
    Run(read_options()).train()
