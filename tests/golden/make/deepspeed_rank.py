"""One rank of a DeepSpeed run on the CPU: deepspeed_rank.py CASE_FOLDER MODEL_FOLDER OUTPUT, started with torch.distributed's
environment. Rank r takes rows [r*B/R, (r+1)*B/R) of every micro-batch. Writes OUTPUT.json, and rank 0 OUTPUT.safetensors."""
import json
import os
import pathlib
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
sys.dont_write_bytecode = True

import deepspeed  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import hf_models  # noqa: E402
from golden_files import write_json, write_tensors  # noqa: E402
from training import mean_loss  # noqa: E402


def my_rows(batches):
    rows = batches.shape[2] // torch.distributed.get_world_size()
    first = torch.distributed.get_rank() * rows
    return batches[:, :, first:first + rows]


def record_clipping():
    """Stage 0 clips by a function whose result it drops: the last result, in a list."""
    from deepspeed.runtime import engine
    clip, last = engine.clip_grad_norm_, []

    def recording(*args, **kwargs):
        last[:] = [clip(*args, **kwargs)]

    engine.clip_grad_norm_ = recording
    return last


def train(engine, batches, clipped):
    curve = {"micro_losses": [], "grad_norm": [], "lr": []}
    for micro_batches in my_rows(batches):
        losses = []
        for tokens in micro_batches:
            logits = engine(input_ids=tokens[:, :-1], use_cache=False).logits
            loss = mean_loss(logits.float(), tokens[:, 1:])
            engine.backward(loss)
            losses.append(float(loss.detach()))
            rate = float(engine.optimizer.param_groups[0]["lr"])
            engine.step()
        curve["micro_losses"].append(losses)
        norm = engine.get_global_grad_norm()
        curve["grad_norm"].append(float(clipped[0] if norm is None else norm))
        curve["lr"].append(rate)
    return curve


def final_weights(engine):
    """Every parameter whole, on every rank."""
    weights = {}
    for name, parameter in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
            weights[name] = parameter.detach().clone()
    return weights


def objects(engine):
    """What DeepSpeed made of the file."""
    optimizer = engine.optimizer
    inner = getattr(optimizer, "optimizer", optimizer)
    of_stage_3 = {}
    if engine.zero_optimization_stage() == 3:
        of_stage_3 = {"persistent_parameters": len(optimizer.persistent_parameters),
                      "parameters": len(list(engine.module.parameters()))}
    source = "engine.get_global_grad_norm()"
    if engine.get_global_grad_norm() is None:
        source = "value returned by the engine's clipping call (engine.get_global_grad_norm() is None)"
    return {"optimizer": type(optimizer).__name__, "inner_optimizer": type(inner).__name__,
            "param_groups": len(optimizer.param_groups), "weight_decay": optimizer.param_groups[0]["weight_decay"],
            "scheduler": type(engine.lr_scheduler).__name__, "stage": engine.zero_optimization_stage(),
            "world": torch.distributed.get_world_size(), "dtype": str(next(engine.module.parameters()).dtype),
            "deepspeed": deepspeed.__version__.split("+")[0], "norm_source": source, **of_stage_3}


def main():
    case, model_folder, output = map(pathlib.Path, sys.argv[1:])
    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo alone: compiling it takes minutes
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    clipped = record_clipping()
    model = hf_models.load(model_folder)
    settings = json.loads((case / "ds_config.json").read_text())
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    curve = train(engine, load_file(case / "batches.safetensors")["tokens"], clipped)
    weights = final_weights(engine)
    rank = torch.distributed.get_rank()
    write_json(output / f"rank{rank}.json", {**curve, "objects": objects(engine)})
    if rank == 0:
        write_tensors(output / "final.safetensors", weights)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
