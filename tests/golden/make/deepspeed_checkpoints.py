"""deepspeed_checkpoints/: folders that DeepSpeed itself saved on two ranks, two steps of a model of 1,080 parameters, and one that
PyTorch's distributed checkpoint saved. Beside each stands what is in it, as DeepSpeed tells it."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

from deepspeed_curves import free_port
from golden_files import made_by, write_json, write_tensors

RANK_PROGRAM = pathlib.Path(__file__).with_name("deepspeed_checkpoint_rank.py")
CASES = {"zero0": {"stage": 0}, "zero2": {"stage": 2}, "zero3": {"stage": 3}, "bf16_zero1": {"stage": 1, "bf16": True}}


def run_ranks(case, output, world=2):
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
                   "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": str(world)}
    command = [sys.executable, RANK_PROGRAM, str(case["stage"]), "bf16" if case.get("bf16") else "fp32", output]
    ranks = [subprocess.Popen(command, env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.DEVNULL)
             for r in range(world)]
    if any([rank.wait() for rank in ranks]):
        sys.exit(f"deepspeed_checkpoints: the ranks of stage {case['stage']} failed; they say why above")


def without_scripts(folder):
    for script in folder.glob("*.py"):
        script.unlink()


def save_dcp(tensors, folder):
    import torch.distributed.checkpoint as dcp
    weights = {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.chdir(folder.parent):  # the file keeps the name
        dcp.save({"model": weights, "step": 2}, checkpoint_id=folder.name)


def make(folder):
    place = folder / "deepspeed_checkpoints"
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as temporary:
            output = pathlib.Path(temporary)
            run_ranks(case, output)
            shutil.rmtree(place / name, ignore_errors=True)
            shutil.copytree(output / "saved", place / name)
            without_scripts(place / name)
            write_tensors(place / f"{name}.safetensors", load_file(output / "expected.safetensors"))
    with torch.random.fork_rng():
        save_dcp(load_file(place / "zero0.safetensors"), place / "dcp")
    write_json(place / "case.json", {
        "case": "deepspeed_checkpoints",
        "what": "folders that DeepSpeed and torch.distributed.checkpoint wrote, and what is in them",
        "made_by": made_by("torch", "transformers", "safetensors", "python", "deepspeed"), "cases": CASES, "steps": 2, "ranks": 2})
