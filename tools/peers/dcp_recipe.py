"""Loads a folder of `checkpoint convert --to dcp` by PyTorch's recipe and compares it with the Hugging Face folder of the same
checkpoint: get_state_dict, torch.distributed.checkpoint.load, set_state_dict. Usage: dcp_recipe.py DCP HF LR STEP"""
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from transformers import AutoConfig, AutoModelForCausalLM

folder, hf, rate, step = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
wanted = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32)
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(hf))
optimizer = torch.optim.AdamW(model.parameters(), lr=123.0, betas=(0.5, 0.5), weight_decay=0.25)
model_state, optimizer_state = get_state_dict(model, optimizer)
state = {"model": model_state, "optimizer": optimizer_state}
dcp.load(state, checkpoint_id=folder)
set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

for name, tensor in wanted.state_dict().items():
    assert torch.equal(tensor, model.state_dict()[name]), name
assert len(optimizer.param_groups) == 1
group = optimizer.param_groups[0]
assert group["lr"] == rate and tuple(group["betas"]) == (0.9, 0.999), group
assert len(optimizer.state) == len(list(model.parameters()))
for parameter, moments in optimizer.state.items():
    assert float(moments["step"]) == step, moments["step"]
    assert moments["exp_avg"].shape == parameter.shape and moments["exp_avg"].abs().sum() > 0
tokens = torch.arange(8).view(1, 8)
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
print(f"{folder}: {len(optimizer.state)} parameters with moments of step {step}, lr {rate}; a further step runs")
