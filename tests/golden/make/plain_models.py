"""The two models written from their formulas, in any type: a second implementation beside Hugging Face's."""
import math

import torch
from torch.nn import functional as F

HEADS, HEAD_SIZE, KV_HEADS, ROTARY_BASE, NORM_EPS = 4, 16, 2, 10000.0, 1e-5


def attend(q, k, v):
    """[B, T, heads, D] each; causal; a key head serves neighbouring query heads."""
    share = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(share, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(HEAD_SIZE)
    later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)


def heads(x, n):
    return x.view(*x.shape[:2], n, HEAD_SIZE)


def layer_norm(x, w, name):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + NORM_EPS) * w[name + ".weight"] + w[name + ".bias"]


def rms_norm(x, gain):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + NORM_EPS) * gain


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2(w, tokens):
    """Logits. Matrices of GPT-2 are stored input by output."""
    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]]
    for layer in ("transformer.h.0.", "transformer.h.1."):
        q, k, v = linear(layer_norm(x, w, layer + "ln_1"), layer + "attn.c_attn").chunk(3, dim=-1)
        x = x + linear(attend(heads(q, HEADS), heads(k, HEADS), heads(v, HEADS)), layer + "attn.c_proj")
        x = x + linear(gelu_tanh(linear(layer_norm(x, w, layer + "ln_2"), layer + "mlp.c_fc")), layer + "mlp.c_proj")
    return layer_norm(x, w, "transformer.ln_f") @ w["transformer.wte.weight"].T


def rotate(x):
    """Pairs are the two halves of a head."""
    half = HEAD_SIZE // 2
    frequency = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def llama(w, tokens):
    x = w["model.embed_tokens.weight"][tokens]
    for layer in ("model.layers.0.", "model.layers.1."):
        normed = rms_norm(x, w[layer + "input_layernorm.weight"])
        q, k, v = (normed @ w[f"{layer}self_attn.{name}_proj.weight"].T for name in "qkv")
        mixed = attend(rotate(heads(q, HEADS)), rotate(heads(k, KV_HEADS)), heads(v, KV_HEADS))
        x = x + mixed @ w[layer + "self_attn.o_proj.weight"].T
        normed = rms_norm(x, w[layer + "post_attention_layernorm.weight"])
        gate, up = (normed @ w[f"{layer}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (F.silu(gate) * up) @ w[layer + "mlp.down_proj.weight"].T
    return rms_norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T


HIDDEN = {gpt2: ((".mlp.c_fc.weight", 1), (".mlp.c_fc.bias", 0), (".mlp.c_proj.weight", 0)),
          llama: ((".mlp.gate_proj.weight", 0), (".mlp.up_proj.weight", 0), (".mlp.down_proj.weight", 1))}


def with_permuted_hidden_units(model, weights, seed):
    """The same function of the tokens, whose sums run in another order."""
    permuted = dict(weights)
    for name, tensor in weights.items():
        for suffix, dim in HIDDEN[model]:
            if name.endswith(suffix):
                order = torch.randperm(tensor.shape[dim], generator=torch.Generator().manual_seed(seed))
                permuted[name] = tensor.index_select(dim, order)
    return permuted
