"""deepspeed_*/: DeepSpeed itself on two ranks, and the same training by one process in float32 and float64."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

import hf_models
from curves import NUMBERS, difference, run_hf, with_moved
from golden_files import committed, made_by, with_hex, write_json, write_tensors
from inputs import token_batches
from schedules import new_optimizer, rates

RANK_PROGRAM = pathlib.Path(__file__).with_name("deepspeed_rank.py")
START_SEED = 1101  # gpt2_tiny's


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(case, model, world):
    """What each rank wrote, and the final weights."""
    with tempfile.TemporaryDirectory() as output:
        common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
                  "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": str(world)}
        command = [sys.executable, RANK_PROGRAM, case, model, output]
        ranks = [subprocess.Popen(command, env={**common, "RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.DEVNULL)
                 for r in range(world)]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            sys.exit(f"{case.name}: the ranks of DeepSpeed ended with {codes}; they say why above")
        folder = pathlib.Path(output)
        said = [json.loads((folder / f"rank{r}.json").read_text()) for r in range(world)]
        return said, load_file(folder / "final.safetensors")


def mean(numbers):
    return sum(numbers) / len(numbers)


def curve_of(ranks):
    """Losses of the ranks are means over their micro-batches, the step's is the mean over the ranks."""
    of_rank = {f"loss_rank{r}": [mean(micro) for micro in rank["micro_losses"]] for r, rank in enumerate(ranks)}
    curve = {"loss": [mean(losses) for losses in zip(*of_rank.values())], **of_rank}
    curve.update({f"micro_losses_rank{r}": rank["micro_losses"] for r, rank in enumerate(ranks)})
    return {**curve, "grad_norm": ranks[0]["grad_norm"], "lr": ranks[0]["lr"]}


def single_process(model, settings, batches):
    """float32 and float64 curves and the float64 weights. All rows of a micro-batch of all ranks are one piece."""
    adam, schedule = settings["optimizer"]["params"], settings["scheduler"]
    used, _ = rates(schedule["type"], schedule["params"], len(batches), new_optimizer(adam["lr"]))
    case = {"settings": settings, "decay": "all"}
    curves = []
    for loaded in (hf_models.load(model), hf_models.load_float64(model)):
        curve, weights = run_hf(loaded, case, batches, rates=used)
        curve.pop("step1_tensor_grad_norms")
        curves.append(curve)
    return (*curves, weights)


def make_case(name, folder):
    said, settings, bounds = (committed(f"{name}/{file}.json") for file in ("case", "ds_config", "curve"))
    model, case = folder / "gpt2_tiny/model", folder / name
    hf_models.write_start("gpt2", START_SEED, model)
    batches = token_batches(said["tokens_shape"], said["seeds"]["tokens"])
    write_tensors(case / "batches.safetensors", {"tokens": batches})
    write_json(case / "case.json", said)
    write_json(case / "ds_config.json", settings)

    ranks, final = run_ranks(case, model, said["processes"])
    deepspeed, keys = curve_of(ranks), (*NUMBERS, "loss_rank0", "loss_rank1")
    in_float32, exact, exact_weights = single_process(model, settings, batches)
    curve = {"case": name, "made_by": made_by("torch", "transformers", "safetensors", "numpy", "python", "deepspeed"),
             "steps": len(batches), "deepspeed": with_hex(deepspeed, keys)}
    if "final" in said:
        write_tensors(case / "final.safetensors", final)
        curve.update(single_process_float32=with_hex(in_float32, NUMBERS), single_process_float64=with_hex(exact, NUMBERS),
                     tolerance=with_moved(bounds["tolerance"], load_file(model / "model.safetensors"), exact_weights))
    else:
        exact.pop("lr")
        curve.update(single_process_float64=with_hex(exact, NUMBERS), tolerance=bounds["tolerance"],
                     bf16_samples=bounds["bf16_samples"])
    write_json(case / "curve.json", {**curve, "deepspeed_max_difference_to_float64": difference(deepspeed, exact),
                                     "deepspeed_objects": ranks[0]["objects"]})
