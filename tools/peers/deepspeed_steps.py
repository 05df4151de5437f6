"""One rank of DeepSpeed on the CPU, for check_deepspeed: the first steps of a golden case and a checkpoint, or the steps after one.

    deepspeed_steps.py save CASE_FOLDER FOLDER STEPS
    deepspeed_steps.py go-on CASE_FOLDER FOLDER STEPS OUTPUT.json     from a universal checkpoint in FOLDER

CASE_FOLDER is one of tests/golden/data/deepspeed_*; started with torch.distributed's environment.
"""
import json
import os
import pathlib
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden/make"))

import deepspeed  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import hf_models  # noqa: E402
from deepspeed_rank import record_clipping, train  # noqa: E402


def main():
    what, case, folder, steps = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo alone: compiling it takes minutes
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    clipped = record_clipping()
    model = hf_models.load(case.parent / "gpt2_tiny/model")
    settings = json.loads((case / "ds_config.json").read_text())
    batches = load_file(case / "batches.safetensors")["tokens"]
    if what == "go-on":
        settings["checkpoint"] = {"load_universal": True}
        with torch.no_grad():  # what is not loaded shows
            for parameter in model.parameters():
                parameter.fill_(0.123)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    if what == "save":
        train(engine, batches[:steps], clipped)
        engine.save_checkpoint(folder)
    else:
        path, _ = engine.load_checkpoint(folder)
        assert path is not None and engine.global_steps == steps, f"loaded {path} at step {engine.global_steps}"
        curve = train(engine, batches[steps:], clipped)
        said = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(said, [sum(micro) / len(micro) for micro in curve["micro_losses"]])
        if torch.distributed.get_rank() == 0:
            losses = [sum(ranks) / len(ranks) for ranks in zip(*said)]
            rows = [{"step": steps + 1 + i, "loss": loss, "grad_norm": norm, "lr": lr}
                    for i, (loss, norm, lr) in enumerate(zip(losses, curve["grad_norm"], curve["lr"]))]
            pathlib.Path(sys.argv[5]).write_text("\n".join(map(json.dumps, rows)) + "\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
