"""One rank of DeepSpeed on the CPU that trains two steps and saves: deepspeed_checkpoint_rank.py STAGE fp32|bf16 OUTPUT."""
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


def config(stage, bf16):
    return {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "steps_per_print": 1000,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1, "torch_adam": True}},
            "bf16": {"enabled": bf16}, "zero_optimization": {"stage": stage, "reduce_bucket_size": 50000}}


def expected(engine, stage):
    """Values and moments whole, by DeepSpeed's own functions; in stage 0 those of its optimizer."""
    tensors = {}
    for name, parameter in engine.module.named_parameters():
        if stage == 0:
            tensors["model/" + name] = parameter.detach().float().clone()
            state = engine.optimizer.state[parameter]
        else:
            tensors["model/" + name] = safe_get_full_fp32_param(parameter).clone()
            state = {key: safe_get_full_optimizer_state(parameter, key) for key in ("exp_avg", "exp_avg_sq")}
        for key in ("exp_avg", "exp_avg_sq"):
            tensors[f"optimizer/{name}.{key}"] = state[key].clone().view(tensors["model/" + name].shape)
    return tensors


def main():
    stage, kind, output = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(5)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo alone: compiling it takes minutes
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    model = AutoModelForCausalLM.from_config(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(stage, kind == "bf16"))
    for _ in range(2):
        tokens = torch.randint(0, 17, (4, 8))[2 * torch.distributed.get_rank():][:2]
        logits = engine(input_ids=tokens[:, :-1], use_cache=False).logits
        engine.backward(mean_loss(logits.float(), tokens[:, 1:]))
        engine.step()
    engine.save_checkpoint(output / "saved")
    tensors = expected(engine, stage)
    if torch.distributed.get_rank() == 0:
        write_tensors(output / "expected.safetensors", tensors)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
