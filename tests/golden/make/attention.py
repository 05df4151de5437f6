"""attention/: forward, log-sum-exp and gradients in float64 by the plain formula, gradients by autograd."""
import numpy
import torch

from golden_files import committed, made_by, write_json, write_tensors
from inputs import normal, rounded


def draw(case):
    """q, k, v and the gradient of out, float32. Without a batch dimension where several sequences are packed."""
    generator = numpy.random.default_rng(case["seed"])
    batch = [] if case["cu_seqlens"] else [case["B"]]
    heads = {"q": case["H"], "k": case["Hkv"], "v": case["Hkv"], "dout": case["H"]}
    return {name: rounded(1.3 * normal(generator, *batch, case["S"], heads[name], case["D"])) for name in heads}


def allowed(case, causal):
    """Which key each query may see, [S, S]."""
    i, j = torch.arange(case["S"])[:, None], torch.arange(case["S"])[None, :]
    mask = torch.ones(case["S"], case["S"], dtype=torch.bool)
    if causal:
        mask &= j <= i
    if case["window"]:
        mask &= (i - j).abs() < case["window"]
    if case["cu_seqlens"]:
        segment = torch.bucketize(torch.arange(case["S"]), torch.tensor(case["cu_seqlens"][1:]), right=True)
        mask &= segment[:, None] == segment[None, :]
    return mask


def attend(q, k, v, mask, scale):
    """out [..., S, H, D] and lse [..., H, S]."""
    share = q.shape[-2] // k.shape[-2]
    k, v = (x.repeat_interleave(share, dim=-2) for x in (k, v))
    scores = torch.einsum("...ihd,...jhd->...hij", q, k) * scale
    scores = scores.masked_fill(~mask, -torch.inf)
    lse = torch.logsumexp(scores, dim=-1)
    return torch.einsum("...hij,...jhd->...ihd", torch.exp(scores - lse[..., None]), v), lse


def results(case, inputs, causal, dtype):
    leaves = {name: inputs[name].to(dtype, copy=True).requires_grad_() for name in "qkv"}
    out, lse = attend(*leaves.values(), allowed(case, causal), case["scale"])
    out.backward(inputs["dout"].to(dtype))
    return {"out": out.detach(), "lse": lse.detach(), **{"d" + name: leaf.grad for name, leaf in leaves.items()}}


def make(folder):
    """Returns the noise of float32, as a share of the bounds."""
    cases, noise = committed("attention/cases.json"), {}
    for name, case in cases["cases"].items():
        inputs = draw(case)
        tensors = dict(inputs)
        if case["cu_seqlens"]:
            tensors["cu_seqlens"] = torch.tensor(case["cu_seqlens"], dtype=torch.int64)
        for mode in ("causal", "full"):
            exact = results(case, inputs, mode == "causal", torch.float64)
            in_float32 = results(case, inputs, mode == "causal", torch.float32)
            tensors.update({f"{mode}.{key}": value for key, value in exact.items()})
            for key, bound in case["tolerance_float32_abs"][mode].items():
                noise[f"{name} {mode}.{key}"] = float((in_float32[key].double() - exact[key]).abs().max()) / bound
        write_tensors(folder / "attention" / case["file"], tensors)
    versions = made_by("torch", "transformers", "safetensors", "numpy", "python")
    write_json(folder / "attention/cases.json", {**cases, "made_by": versions})
    return noise
