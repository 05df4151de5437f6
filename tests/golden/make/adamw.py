"""adamw.json: five steps of each optimizer on 37 elements, in float64 and float32. Lion by its formula, the others by torch.optim."""
import numpy
import torch

from golden_files import committed, made_by, with_hex, write_json
from inputs import normal, rounded

SEED, ELEMENTS, STEPS = 1700, 37, 5


def draw():
    """Start and gradients of many sizes, float32; the first six elements are special (adamw.json says how)."""
    generator = numpy.random.default_rng(SEED)
    start = rounded(normal(generator, ELEMENTS))
    start[5] = 0
    gradients = []
    for step in range(STEPS):
        g = rounded(normal(generator, ELEMENTS) * 10 ** generator.uniform(-3, 0, ELEMENTS))
        g[0], g[1], g[2], g[4] = 0, 3e-10 * (step + 1), 2e4 * (-1) ** step, 1e-8
        if step > 0:
            g[3] = 0
        gradients.append(g)
    return start, gradients


def lion_step(p, m, g, lr, betas, weight_decay):
    update = torch.sign(betas[0] * m + (1 - betas[0]) * g)
    return p * (1 - lr * weight_decay) - lr * update, betas[1] * m + (1 - betas[1]) * g


def run_lion(start, gradients, params):
    p, m, states = start.clone(), torch.zeros_like(start), []
    for g in gradients:
        p, m = lion_step(p, m, g, **params)
        states.append({"p": p, "m": m})
    return states


def run_torch(new, start, gradients, params):
    parameter = torch.nn.Parameter(start.clone())
    optimizer = new([parameter], foreach=False, **params)
    states = []
    for g in gradients:
        parameter.grad = g.clone()
        optimizer.step()
        state = optimizer.state[parameter]
        names = {"m": "exp_avg", "v": "exp_avg_sq"} if "exp_avg" in state else {"m": "momentum_buffer"}
        states.append({"p": parameter.detach().clone(), **{ours: state[theirs].clone() for ours, theirs in names.items()}})
    return states


RUNS = {"adamw": lambda *a: run_torch(torch.optim.AdamW, *a), "adam_l2": lambda *a: run_torch(torch.optim.Adam, *a),
        "sgd_momentum": lambda *a: run_torch(torch.optim.SGD, *a),
        "sgd_nesterov": lambda s, g, p: run_torch(torch.optim.SGD, s, g, {**p, "nesterov": True}), "lion": run_lion}


def recorded(states):
    return [with_hex({name: tensor.double().tolist() for name, tensor in state.items()}, tuple(state)) for state in states]


def make(folder):
    words = committed("adamw.json")
    start, gradients = draw()
    optimizers = {}
    for name, run in RUNS.items():
        said = {key: words["optimizers"][name][key] for key in ("formula", "params")}
        states = {str(dtype).removeprefix("torch."): run(start.to(dtype), [g.to(dtype) for g in gradients], said["params"])
                  for dtype in (torch.float64, torch.float32)}
        optimizers[name] = {**said, **{dtype: recorded(of_type) for dtype, of_type in states.items()}}
    write_json(folder / "adamw.json", {
        "made_by": made_by("torch", "numpy"), "seed": SEED, "elements": ELEMENTS, "steps": STEPS,
        **{key: words[key] for key in ("what", "special_elements", "tolerance")},
        **with_hex({"start": start.double().tolist()}, ("start",)),
        "gradients": [with_hex({"g": g.double().tolist()}, ("g",)) for g in gradients], "optimizers": optimizers})
