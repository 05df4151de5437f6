"""Weights of a Hugging Face folder for the model of peer_pytorch.py: its files read, and which tensor belongs to which parameter."""
import json
import struct

import torch

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64}


def read_safetensors(path):
    """Every tensor of a file, one read each: nothing stays mapped that would count as memory of the run."""
    tensors = {}
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + size + begin)
            data = bytearray(file.read(end - begin))
            tensors[name] = torch.frombuffer(data, dtype=DTYPES[entry["dtype"]]).view(entry["shape"])
    return tensors


def load_gpt2(model, t):
    t = {name.removeprefix("transformer."): x for name, x in t.items()}
    yield model.words.weight, t["wte.weight"]
    yield model.places.weight, t["wpe.weight"]
    for i, b in enumerate(model.blocks):
        pairs = (("ln_1", b.norm1), ("ln_2", b.norm2), ("attn.c_attn", b.qkv), ("attn.c_proj", b.proj), ("mlp.c_fc", b.up), ("mlp.c_proj", b.down))
        for name, module in pairs:
            weight = t[f"h.{i}.{name}.weight"]
            yield module.weight, weight.t() if weight.dim() == 2 else weight  # stored as [in, out]
            yield module.bias, t[f"h.{i}.{name}.bias"]
    yield model.norm.weight, t["ln_f.weight"]
    yield model.norm.bias, t["ln_f.bias"]


def load_llama(model, t):
    yield model.words.weight, t["model.embed_tokens.weight"]
    yield model.norm.weight, t["model.norm.weight"]
    if not model.s.tied:
        yield model.head.weight, t["lm_head.weight"]
    for i, b in enumerate(model.blocks):
        def part(name):
            return t[f"model.layers.{i}.{name}.weight"]
        yield b.norm1.weight, part("input_layernorm")
        yield b.norm2.weight, part("post_attention_layernorm")
        yield b.qkv.weight, torch.cat([part(f"self_attn.{n}_proj") for n in "qkv"])
        yield b.proj.weight, part("self_attn.o_proj")
        yield b.up.weight, torch.cat([part("mlp.gate_proj"), part("mlp.up_proj")])
        yield b.down.weight, part("mlp.down_proj")
