"""ops/: operators of the models in float64, gradients by autograd. Inputs are drawn from one generator, operator by operator."""
import math

import numpy
import torch

from golden_files import committed, made_by, write_json, write_tensors
from inputs import normal, rounded

SPECIAL = torch.tensor([0.0] + [sign * x for x in (1e-8, 1e-3, 0.5, 3, 6, 12, 40) for sign in (1, -1)])
LAYERNORM_X = {"large_mean": {"scale": 0.25, "mean": 100.0}}
RMSNORM_X = {"small": {"scale": 0.001}}
LOGITS_SCALE = {"b": 3.0, "large_logits": 60.0}


def drawn(r, *shape, scale=1.0, mean=0.0):
    """Rounded before it is scaled, and after."""
    return rounded(mean + scale * rounded(normal(r, *shape)).double().numpy())


def draw_norm(r, name, case, x_of, bias):
    x = drawn(r, *case["shape"], **x_of.get(name, {"scale": 2.0, "mean": 0.5} if bias else {"scale": 1.5}))
    last = case["shape"][-1]
    inputs = {"x": x, "weight": drawn(r, last, scale=0.3, mean=1.0)}
    if bias:
        inputs["bias"] = drawn(r, last, scale=0.3)
    return {**inputs, "dy": drawn(r, *case["shape"])}


def draw_gelu(r, name, case):
    if name == "special":
        return {"x": SPECIAL, "dy": torch.ones_like(SPECIAL)}
    return {"x": drawn(r, *case["shape"], scale=2.0), "dy": drawn(r, *case["shape"])}


def draw_swiglu(r, name, case):
    gate = SPECIAL if name == "special" else drawn(r, *case["shape"], scale=2.0)
    return {"gate": gate, "up": drawn(r, *case["shape"]), "dy": drawn(r, *case["shape"])}


def draw_rope(r, name, case):
    return {"x": drawn(r, *case["shape"]), "dy": drawn(r, *case["shape"])}


def draw_cross_entropy(r, name, case):
    rows, classes = case["shape"]
    logits = drawn(r, rows, classes, scale=LOGITS_SCALE.get(name, 1.0))
    labels = r.integers(0, classes, size=rows)
    labels[0], labels[1], labels[-1] = classes - 1, -100, 0
    if rows > 8:
        labels[[4, 9]] = -100
    return {"logits": logits, "labels": torch.from_numpy(labels)}


def layernorm(case, x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + case["eps"]) * weight + bias


def rmsnorm(case, x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + case["eps"]) * weight


def rope_tables(case, dtype):
    half = case["shape"][-1] // 2
    position = torch.arange(case["first_position"], case["first_position"] + case["shape"][1], dtype=torch.float64)
    angle = position[:, None] * case["theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    return {"cos": angle.cos().to(dtype), "sin": angle.sin().to(dtype)}


def rope(case, x):
    table = rope_tables(case, x.dtype)
    cos, sin = table["cos"][:, None], table["sin"][:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def gradients(function, case, inputs, dtype):
    """y and d<input> of one case whose inputs are named."""
    leaves = {name: tensor.to(dtype, copy=True).requires_grad_() for name, tensor in inputs.items() if name != "dy"}
    y = function(case, **leaves)
    y.backward(inputs["dy"].to(dtype))
    return {"y": y.detach(), **{"d" + name: leaf.grad for name, leaf in leaves.items()}}


def cross_entropy(case, inputs, dtype):
    result, labels = {}, inputs["labels"]
    counts = labels != -100
    for reduction, divisor in (("sum", 1), ("mean", int(counts.sum()))):
        logits = inputs["logits"].to(dtype, copy=True).requires_grad_()
        of_label = logits.gather(1, labels.clamp(min=0)[:, None])[:, 0]
        loss = (torch.logsumexp(logits, -1) - of_label)[counts].sum() / divisor
        loss.backward()
        result.update({f"loss_{reduction}": loss.detach(), f"dlogits_{reduction}": logits.grad})
    return result


OPS = {  # name: how inputs are drawn, how results are computed
    "layernorm": (lambda r, n, c: draw_norm(r, n, c, LAYERNORM_X, True), layernorm),
    "rmsnorm": (lambda r, n, c: draw_norm(r, n, c, RMSNORM_X, False), rmsnorm),
    "gelu_tanh": (draw_gelu, lambda case, x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "gelu_erf": (draw_gelu, lambda case, x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))),
    "swiglu": (draw_swiglu, lambda case, gate, up: gate / (1 + torch.exp(-gate)) * up),
    "rope": (draw_rope, rope),
    "cross_entropy": (draw_cross_entropy, None)}


def results(op, case, inputs, dtype):
    if op == "cross_entropy":
        return cross_entropy(case, inputs, dtype)
    return gradients(OPS[op][1], case, inputs, dtype)


def noise_of(case, exact, rounded, rtol):
    """Largest difference of float32 as a share of what the case allows."""
    shares = {}
    for key, atol in case["atol_float32"].items():
        difference = (rounded[key].double() - exact[key]).abs() / (atol + rtol * exact[key].abs())
        shares[key] = float(difference.max())
    return shares


def make(folder):
    """Returns the noise of float32, as a share of the bounds."""
    said, noise = committed("ops/cases.json"), {}
    generator = numpy.random.default_rng(said["seed"])
    for op, about in said["ops"].items():
        tensors = {}
        for name, case in about["cases"].items():
            inputs = OPS[op][0](generator, name, case)
            exact, rounded = (results(op, case, inputs, dtype) for dtype in (torch.float64, torch.float32))
            table = rope_tables(case, torch.float64) if op == "rope" else {}
            stored = {key: value if key == "labels" else value.double() for key, value in inputs.items()}
            tensors.update({f"{name}.{key}": value for key, value in {**stored, **exact, **table}.items()})
            shares = noise_of(case, exact, rounded, said["rtol_float32"])
            noise.update({f"{op} {name}.{key}": share for key, share in shares.items()})
        write_tensors(folder / "ops" / about["file"], tensors)
    versions = made_by("torch", "transformers", "safetensors", "numpy", "python")
    write_json(folder / "ops/cases.json", {**said, "made_by": versions})
    return noise
