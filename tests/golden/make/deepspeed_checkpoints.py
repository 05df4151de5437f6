"""deepspeed_checkpoints/: folders that DeepSpeed itself saved on two ranks, two steps of a model of 1,080 parameters, and one that
PyTorch's distributed checkpoint saved in the layouts of several programs. Beside each stands what is in it, as DeepSpeed tells it."""
import contextlib
import json
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
FROZEN = ["transformer.wpe.weight", "transformer.h.0.ln_1.bias"]
CASES = {"zero0": {"stage": 0}, "zero2": {"stage": 2}, "zero3": {"stage": 3}, "bf16_zero1": {"stage": 1, "bf16": True},
         # BF16_Optimizer, whose files name no stage, and its wrapper without ZeRO.
         "bf16_zero1_fp32": {"stage": 1, "bf16": True, "accumulate": "fp32", "groups": True}, "bf16_zero0": {"stage": 0, "bf16": True},
         "bf16_zero0_fused": {"stage": 0, "bf16": True, "fused": True, "groups": True},
         # What users do with parameters: a group for each weight decay, and some that are not trained.
         "zero0_groups": {"stage": 0, "groups": True, "frozen": FROZEN[:1]}, "zero0_frozen": {"stage": 0, "frozen": FROZEN}, "zero1_frozen": {"stage": 1, "frozen": FROZEN},
         "zero3_groups": {"stage": 3, "groups": True, "frozen": FROZEN}}


def run_ranks(case, output, world=2):
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
                   "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": str(world)}
    command = [sys.executable, RANK_PROGRAM, json.dumps(case), output]
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


def save_accelerate(tensors, folder):
    """As accelerate's save_state has it with FSDP: weights and the optimizer's state in folders of their own."""
    import torch.distributed.checkpoint as dcp
    weights, moments = {}, {}
    for name, value in tensors.items():
        kind, rest = name.split("/", 1)
        if kind == "model":
            weights[rest] = value
        else:
            parameter, moment = rest.rsplit(".", 1)
            moments.setdefault(parameter, {"step": torch.tensor(2.0)})[moment] = value
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with contextlib.chdir(folder):
        dcp.save({"model": weights}, checkpoint_id="pytorch_model_fsdp_0")
        groups = [{"lr": 0.01, "params": list(moments)}]
        dcp.save({"optimizer": {"state": moments, "param_groups": groups}}, checkpoint_id="optimizer_0")
    write_json(folder / "trainer_state.json", {"global_step": 3, "max_steps": 4, "log_history": []})


def save_titan(folder):
    """As torchtitan has it: Meta's names and order of rows, flat keys of the optimizer. Beside it the weights as a Hugging Face folder
    names and orders them, by the permutation of its conversion from Meta's files."""
    import torch.distributed.checkpoint as dcp
    hidden, heads, groups, size, ffn, vocabulary = 16, 4, 2, 4, 24, 11
    shapes = {"tok_embeddings": (vocabulary, hidden), "norm": (hidden,), "output": (vocabulary, hidden)}
    layer = {"attention_norm": (hidden,), "ffn_norm": (hidden,), "attention.wq": (heads * size, hidden),
             "attention.wk": (groups * size, hidden), "attention.wv": (groups * size, hidden), "attention.wo": (hidden, heads * size),
             "feed_forward.w1": (ffn, hidden), "feed_forward.w2": (hidden, ffn), "feed_forward.w3": (ffn, hidden)}
    shapes.update({f"layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()})
    theirs = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head", "attention_norm": "input_layernorm",
              "ffn_norm": "post_attention_layernorm", "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj",
              "attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj",
              "feed_forward.w2": "mlp.down_proj", "feed_forward.w3": "mlp.up_proj"}
    weights, flat, expected = {}, {}, {}
    for name, shape in shapes.items():
        values = {part: torch.randn(shape) for part in ("", "exp_avg", "exp_avg_sq")}
        weights[name + ".weight"] = values[""]
        flat[f"state.{name}.weight.step"] = torch.tensor(5.0)
        flat[f"param_groups.{name}.weight.lr"] = 0.01
        short = name.split(".", 2)[2] if name.startswith("layers.") else name
        full = (f"model.layers.{name.split('.')[1]}." if name.startswith("layers.") else "") + theirs[short] + ".weight"
        for part, value in values.items():
            if part:
                flat[f"state.{name}.weight.{part}"] = value
            if short in ("attention.wq", "attention.wk"):
                value = value.view(-1, size // 2, 2, hidden).transpose(1, 2).reshape(shape).contiguous()
            expected[f"optimizer/{full}.{part}" if part else f"model/{full}"] = value.clone()
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.chdir(folder.parent):
        dcp.save({**weights, "optimizer": flat, "train_state": {"step": torch.tensor(5, dtype=torch.int32)}}, checkpoint_id=folder.name)
    write_tensors(folder.with_suffix(".safetensors"), expected)


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
        save_accelerate(load_file(place / "zero0.safetensors"), place / "accelerate")
        torch.manual_seed(8)
        save_titan(place / "titan")
    write_json(place / "case.json", {
        "case": "deepspeed_checkpoints",
        "what": "folders that DeepSpeed and torch.distributed.checkpoint wrote, and what is in them",
        "made_by": made_by("torch", "transformers", "safetensors", "python", "deepspeed"), "cases": CASES, "steps": 2, "ranks": 2})
