"""Compares a folder of torch.distributed.checkpoint with a Hugging Face folder of the same weights, as PyTorch reads them:
same_weights.py DCP_FOLDER HF_FOLDER STEP. Ends with 1 where a tensor differs in one bit."""
import pathlib
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file


def main():
    wanted = load_file(pathlib.Path(sys.argv[2]) / "model.safetensors")
    moments = {name: {"exp_avg": torch.full_like(value, torch.nan), "exp_avg_sq": torch.full_like(value, torch.nan),
                      "step": torch.zeros(())} for name, value in wanted.items()}
    state = {"model": {name: torch.zeros_like(value) for name, value in wanted.items()}, "optimizer": {"state": moments}, "step": 0}
    dcp.load(state, checkpoint_id=sys.argv[1])
    for name, value in wanted.items():
        if not torch.equal(state["model"][name], value):
            sys.exit(f"{name} differs")
        if not all(torch.isfinite(moments[name][key]).all() for key in ("exp_avg", "exp_avg_sq")):
            sys.exit(f"the moments of {name} were not loaded")
    if state["step"] != int(sys.argv[3]):
        sys.exit(f"step is {state['step']}")
    print(f"   {len(wanted)} tensors and their moments were read by PyTorch, step {state['step']}")


if __name__ == "__main__":
    main()
