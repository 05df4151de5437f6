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

# Of the norm of what the steps moved. Two implementations in bfloat16 with another order of sums agree to 1.5 % of an update.
BOUND = {"float32": 1e-4, "bfloat16": 0.02}


def in_float32():
    """torch's iteration, of which only the type is another."""
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count("grad.bfloat16()") == 1
    exec(source.replace("grad.bfloat16()", "grad.clone()"), _muon.__dict__)


def main():
    case, final, params = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(1)
    if params["ns_dtype"] == "float32":
        in_float32()
    model = hf_models.load(case / "model")
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
    ours, worst = load_file(final / "model.safetensors"), (0.0, "")
    for name, p in model.named_parameters():
        moved = (p.detach() - start[name]).norm().item()
        distance = (ours[name] - p.detach()).norm().item() / moved
        assert math.isfinite(distance) and moved > 0, f"{name}: moved by {moved}"
        worst = max(worst, (distance, name))
    bound = BOUND[params["ns_dtype"]]
    if worst[0] > bound:
        sys.exit(f"{worst[1]} is {worst[0]:.2g} of what it moved away from torch's, more than {bound}")
    print(f"   {len(matrices)} matrices and {len(rest)} others: at most {worst[0]:.2g} of what they moved away ({worst[1]})")


if __name__ == "__main__":
    main()
