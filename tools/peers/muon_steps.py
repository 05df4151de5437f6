"""Trains a golden case with torch.optim.Muon and AdamW, for check_muon, and compares with weights that we trained.

    muon_steps.py CASE_FOLDER FINAL_FOLDER OPTIMIZER.json

Twenty steps from the case's start, with our optimizer section's parameters. "ns_dtype": "float32" has torch's own iteration run
without its conversion to bfloat16. Ends with 1 and a line where a tensor is further away than it may be.
"""
import inspect
import json
import math
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden/make"))

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch.optim import _muon  # noqa: E402

import hf_models  # noqa: E402
from training import backward, decay_groups  # noqa: E402

# Of the norm of what the steps moved. Two implementations in bfloat16 with another order of sums agree to 1.5 % of an update. In
# float32 it is not 1e-5, because torch's own steps are up to 3.1e-5 away from the same steps in float64, in what AdamW updates: it
# divides each gradient by its own size, so that errors of small ones count as much, and gains of norms are near 1 and move by
# hundredths. So ours may be about as far from float64 as torch's. Of the norm of the weights themselves it is 1e-5.
BOUND = {"float32": 4e-5, "bfloat16": 0.02}
OF_WEIGHTS = 1e-5
OF_TORCH = 1.5  # ours to float64, over torch's to float64


def in_float32():
    """torch's iteration, of which only the type is another."""
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count("grad.bfloat16()") == 1
    exec(source.replace("grad.bfloat16()", "grad.clone()"), _muon.__dict__)


def trained(case, params, model):
    """Its weights before and after twenty steps, by name, and how many of them Muon updates."""
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    matrices = {n: p for n, p in model.named_parameters() if p.dim() == 2 and "embed_tokens" not in n and "lm_head" not in n}
    rest = {n: p for n, p in model.named_parameters() if n not in matrices}
    muon = _muon.Muon(matrices.values(), lr=params["muon_lr"], weight_decay=params["weight_decay"], momentum=params["momentum"],
                      nesterov=params["nesterov"], adjust_lr_fn=params["adjust_lr_fn"])
    adamw = torch.optim.AdamW(decay_groups(rest, params["weight_decay"], "matrices"), lr=params["adam_lr"],
                              betas=tuple(params["betas"]), eps=params["eps"], foreach=False)
    for micro_batches in load_file(case / "batches.safetensors")["tokens"]:
        muon.zero_grad(), adamw.zero_grad()
        backward(hf_models.logits_of(model), micro_batches, False)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        muon.step(), adamw.step()
    return start, {name: p.detach() for name, p in model.named_parameters()}, len(matrices)


def furthest(weights, others, start=None):
    """The largest distance of a tensor from another's, as a part of what that one moved or, without a start, of its norm; and the
    tensor's name."""
    worst = (0.0, "")
    for name, p in others.items():
        whole = (p - start[name] if start else p).norm().item()
        distance = (weights[name].to(p.dtype) - p).norm().item() / whole
        assert math.isfinite(distance) and whole > 0, f"{name}: {whole}"
        worst = max(worst, (distance, name))
    return worst


def check(what, worst, bound):
    print(f"   {what}: at most {worst[0]:.2g} ({worst[1]})")
    if worst[0] > bound:
        sys.exit(f"{what}: {worst[0]:.2g} in {worst[1]}, more than {bound:.2g}")


def main():
    case, final, params = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(1)
    dtype = params["ns_dtype"]
    if dtype == "float32":
        in_float32()
    ours = load_file(final / "model.safetensors")
    start, theirs, matrices = trained(case, params, hf_models.load(case / "model"))
    check(f"{matrices} matrices and {len(theirs) - matrices} others, of what they moved", furthest(ours, theirs, start), BOUND[dtype])
    if dtype == "float32":
        check("of the weights", furthest(ours, theirs), OF_WEIGHTS)
        start, exact, _ = trained(case, params, hf_models.load_float64(case / "model"))
        torchs = furthest(theirs, exact, start)
        check(f"from torch's steps in float64, where its own in float32 are {torchs[0]:.2g} away", furthest(ours, exact, start),
              OF_TORCH * torchs[0])


if __name__ == "__main__":
    main()
