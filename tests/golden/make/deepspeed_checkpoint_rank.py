"""One rank of DeepSpeed on the CPU that trains two steps and saves: deepspeed_checkpoint_rank.py CASE OUTPUT, the case as JSON:
{"stage", "bf16", "accumulate": "fp32", "groups", "frozen", "fused"}."""
import json
import os
import pathlib
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
sys.dont_write_bytecode = True

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state  # noqa: E402
from transformers import AutoModelForCausalLM, GPT2Config  # noqa: E402

from golden_files import write_tensors  # noqa: E402
from training import mean_loss  # noqa: E402

# Odd sizes, so that partitions end within rows and have padding.
MODEL = GPT2Config(vocab_size=17, n_positions=7, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                   bos_token_id=0, eos_token_id=0)


def config(case):
    stage, bf16 = case["stage"], case.get("bf16", False)
    types = {"data_types": {"grad_accum_dtype": case["accumulate"]}} if "accumulate" in case else {}
    return {**types, "train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "steps_per_print": 1000,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1, "torch_adam": True}},
            "bf16": {"enabled": bf16}, "zero_optimization": {"stage": stage, "reduce_bucket_size": 50000}}


def parameters_of(model, case):
    """As users give them: all, or a group for each weight decay in the way of Hugging Face's Trainer; some of them frozen."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name not in case.get("frozen", [])
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not case.get("groups"):
        return [parameter for _, parameter in trained]
    return [{"params": [p for _, p in trained if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for _, p in trained if p.dim() <= 1], "weight_decay": 0.0}]


def masters_of_16_bits(engine):
    """Of the wrapper without ZeRO: by parameter its float32 values and moments, which lie flat or one by one."""
    masters = {}
    wrapper = engine.optimizer
    for group, own in enumerate(wrapper.fp16_groups):
        if hasattr(wrapper, "fp32_groups"):
            for parameter, master in zip(own, wrapper.fp32_groups[group]):
                masters[parameter] = (master, wrapper.optimizer.state[master])
            continue
        flat, at = wrapper.fp32_groups_flat[group], 0
        for parameter in own:
            cut = slice(at, at + parameter.numel())
            masters[parameter] = (flat[cut], {key: wrapper.optimizer.state[flat][key][cut] for key in ("exp_avg", "exp_avg_sq")})
            at += parameter.numel()
    return masters


def expected(engine, case):
    """Values and moments whole, by DeepSpeed's own functions; in stage 0 those of its optimizer."""
    tensors, stage = {}, case["stage"]
    masters = masters_of_16_bits(engine) if stage == 0 and case.get("bf16") else {}
    for name, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            with deepspeed.zero.GatheredParameters([parameter], enabled=stage == 3):
                tensors["model/" + name] = parameter.detach().float().clone()
            continue
        if masters:
            value, state = masters[parameter]
            tensors["model/" + name] = value.detach().clone().view(parameter.shape)
        elif stage == 0:
            tensors["model/" + name] = parameter.detach().float().clone()
            state = engine.optimizer.state[parameter]
        else:
            tensors["model/" + name] = safe_get_full_fp32_param(parameter).clone()
            state = {key: safe_get_full_optimizer_state(parameter, key) for key in ("exp_avg", "exp_avg_sq")}
        for key in ("exp_avg", "exp_avg_sq"):
            tensors[f"optimizer/{name}.{key}"] = state[key].clone().view(tensors["model/" + name].shape)
    return tensors


def main():
    case, output = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(5)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo alone: compiling it takes minutes
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    if case.get("fused"):  # the wrapper for DeepSpeed's fused Adam, which exists on GPUs only, around PyTorch's
        deepspeed.ops.adam.FusedAdam = deepspeed.runtime.engine.FusedAdam = torch.optim.AdamW
    model = AutoModelForCausalLM.from_config(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=parameters_of(model, case), config=config(case))
    for _ in range(2):
        tokens = torch.randint(0, 17, (4, 8))[2 * torch.distributed.get_rank():][:2]
        logits = engine(input_ids=tokens[:, :-1], use_cache=False).logits
        engine.backward(mean_loss(logits.float(), tokens[:, 1:]))
        engine.step()
    engine.save_checkpoint(output / "saved")
    tensors = expected(engine, case)
    if torch.distributed.get_rank() == 0:
        write_tensors(output / "expected.safetensors", tensors)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
