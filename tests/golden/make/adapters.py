"""lora_gpt2/, lora_llama/ and lora_qwen2/: twenty steps of PEFT's adapters on the models of gpt2_tiny/ and llama_tiny/ and on a
Qwen2, in float64 and in float32 in several orders. The files are an adapter's folder to start with, the curve, and the adapter
afterwards; and the model, where no other case has it."""
import json

import numpy
import peft
import torch

import hf_models
from curves import difference, on_two_threads
from golden_files import DATA, committed, made_by, with_hex, write_json, write_tensors
from inputs import rounded
from safetensors.torch import load_file
from training import train

NUMBERS = ("loss", "grad_norm", "lr")
PREFIX = "base_model.model."


def base_folder(case):
    return DATA / case["case"] / case["model"]


def adapted(case, dtype, start=None, attention="eager"):
    """The base model with PEFT's adapters; with `start` as their values."""
    folder = base_folder(case)
    base = hf_models.load_float64(folder) if dtype == torch.float64 else hf_models.load(folder, attention=attention)
    model = peft.get_peft_model(base, peft.LoraConfig(**case["adapter"]), autocast_adapter_dtype=False)
    if start:
        given = {name: tensor.to(dtype) for name, tensor in start.items()}
        problem = peft.set_peft_model_state_dict(model, given)
        assert not problem.unexpected_keys, problem.unexpected_keys
    return model.eval()


def start_of(case):
    """A random, B zero, and what is trained whole as the base has it. So the first loss is the base model's."""
    generator = numpy.random.default_rng(case["seeds"]["adapter"])
    start = peft.get_peft_model_state_dict(adapted(case, torch.float32))
    for name in sorted(start):
        if ".lora_A." in name:
            start[name] = rounded(generator.uniform(-1, 1, start[name].shape)) / start[name].shape[1] ** 0.5
    return start


def run(case, dtype, start, batches, **how):
    """The curve, and the adapter's tensors afterwards."""
    model = adapted(case, dtype, start, how.pop("attention", "sdpa" if dtype == torch.float64 else "eager"))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    settings = committed(f"{case['case']}/train.json")
    rates = [settings["optimizer"]["params"]["lr"]] * len(batches)
    curve = train(hf_models.logits_of(model), trained, batches, settings, rates, "matrices", **how)
    del curve["step1_tensor_grad_norms"]
    return curve, peft.get_peft_model_state_dict(model)


def write_adapter(case, start, folder):
    """As PEFT saves it, but for the order of names, which changes from run to run."""
    adapted(case, torch.float32, start).save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = case["base"]
    for key in ("target_modules", "modules_to_save"):
        config[key] = sorted(config[key]) if config[key] else config[key]
    write_json(folder / "adapter_config.json", config)


def float32_samples(case, start, batches):
    def sample(attention, **how):
        return run(case, torch.float32, start, batches, attention=attention, **how)[0]

    return {"eager": sample("eager"), "sdpa": sample("sdpa"),
            "sdpa, fused AdamW, 2 threads": on_two_threads(lambda: sample("sdpa", fused=True)),
            "one row at a time": sample("eager", one_row_at_a_time=True)}


def make_case(name, into):
    folder = into / name
    case = committed(f"{name}/case.json")
    if "weights" in case["seeds"]:
        hf_models.write_start(case["base"], case["seeds"]["weights"], folder / "model")
    batches = load_file(DATA / name / case["batches"])["tokens"]
    start = start_of(case)
    write_adapter(case, start, folder / "adapter")
    exact, final = run(case, torch.float64, start, batches)
    samples = float32_samples(case, start, batches)
    write_tensors(folder / "final_float64_rounded.safetensors", {n: t.float() for n, t in final.items()})
    write_json(folder / "case.json", case)
    write_json(folder / "train.json", committed(f"{name}/train.json"))
    write_json(folder / "curve.json", {
        "case": name, "made_by": made_by("torch", "transformers", "peft", "safetensors", "numpy", "python"),
        "steps": len(batches), "float64": with_hex(exact, NUMBERS), "tolerance": committed(f"{name}/curve.json")["tolerance"],
        "float32_samples_max_difference_to_float64": {n: difference(curve, exact) for n, curve in samples.items()}})
