"""gpt2_tiny/ and llama_tiny/: twenty steps of Hugging Face's models in float32 and float64, and how far float32 runs stray."""
import torch
from safetensors.torch import load_file

import hf_models
import plain_models
from golden_files import committed, made_by, with_hex, write_json, write_tensors
from inputs import token_batches
from training import train

FAMILIES = {"gpt2_tiny": ("gpt2", plain_models.gpt2), "llama_tiny": ("llama", plain_models.llama)}
NUMBERS = ("loss", "grad_norm", "lr")


def run_hf(model, case, batches, **how):
    parameters = dict(model.named_parameters())
    rates = how.pop("rates", None) or [case["settings"]["optimizer"]["params"]["lr"]] * len(batches)
    curve = train(hf_models.logits_of(model), parameters, batches, case["settings"], rates, case["decay"], **how)
    return curve, {name: p.detach() for name, p in parameters.items()}


def run_plain(model, start, dtype, case, batches, rates=None):
    weights = {name: tensor.to(dtype, copy=True).requires_grad_() for name, tensor in start.items()}
    rates = rates or [case["settings"]["optimizer"]["params"]["lr"]] * len(batches)
    return train(lambda tokens: model(weights, tokens), weights, batches, case["settings"], rates, case["decay"])


def on_two_threads(run):
    torch.set_num_threads(2)
    try:
        return run()
    finally:
        torch.set_num_threads(1)


def float32_samples(folder, model, start, case, batches):
    """The same mathematics in float32, summed in other orders: what an implementation may stray from float64."""
    def hf(attention, **how):
        return run_hf(hf_models.load(folder, attention=attention), case, batches, **how)[0]

    samples = {"eager": hf("eager"), "sdpa": hf("sdpa"),
               "sdpa, fused AdamW, 2 threads": on_two_threads(lambda: hf("sdpa", fused=True)),
               "one row at a time": hf("eager", one_row_at_a_time=True),
               "plain formulas": run_plain(model, start, torch.float32, case, batches)}
    for seed in (1, 2, 3):
        permuted = plain_models.with_permuted_hidden_units(model, start, seed)
        samples[f"plain formulas, hidden units permuted ({seed})"] = run_plain(model, permuted, torch.float32, case, batches)
    return samples


def difference(curve, exact):
    pairs = list(zip(curve["grad_norm"], exact["grad_norm"]))
    return {"loss_abs": max(abs(a - b) for a, b in zip(curve["loss"], exact["loss"])),
            "grad_norm_rel": max(abs(a - b) / b for a, b in pairs)}


def moved_rms(moved, slices):
    """Root mean square of what training added to a tensor, the slices with bounds of their own left out."""
    kept = torch.ones(moved.numel(), dtype=torch.bool)
    for piece in slices:
        kept[piece["from"]:piece["to"]] = False
    return float(f"{moved.flatten()[kept].square().mean().sqrt():.3g}")


def with_moved(tolerance, start, final):
    """The bounds, which are kept, and how far training moved each tensor, for scale."""
    weights = {}
    for name, bound in tolerance["final_weights"].items():
        slices = [piece for piece in tolerance["final_weights_slices"] if piece["tensor"] == name]
        moved = final[name].double() - start[name].double()
        weights[name] = {"abs": bound["abs"], "moved_rms": moved_rms(moved, slices)}
    return {**tolerance, "final_weights": weights}


def write_old_keys(path):
    """The same config as transformers 4 wrote it."""
    config = committed("llama_tiny/model/config.json")
    config["transformers_version"] = "4.46.3"
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    write_json(path, config)


def make_case(name, into):
    folder = into / name
    family, plain = FAMILIES[name]
    said, settings = committed(f"{name}/case.json"), committed(f"{name}/train.json")
    case = {"settings": settings, "decay": "matrices"}
    hf_models.write_start(family, said["seeds"]["weights"], folder / "model")
    batches = token_batches(said["tokens_shape"], said["seeds"]["tokens"])
    start = load_file(folder / "model/model.safetensors")

    in_float32, final_float32 = run_hf(hf_models.load(folder / "model"), case, batches)
    exact, final_float64 = run_hf(hf_models.load_float64(folder / "model"), case, batches)
    samples = float32_samples(folder / "model", plain, start, case, batches)
    plain_exact = run_plain(plain, start, torch.float64, case, batches)

    write_tensors(folder / "batches.safetensors", {"tokens": batches})
    write_tensors(folder / "final_float32.safetensors", final_float32)
    write_tensors(folder / "final_float64_rounded.safetensors", {n: t.float() for n, t in final_float64.items()})
    write_json(folder / "case.json", said)
    write_json(folder / "train.json", settings)
    write_json(folder / "curve.json", {
        "case": name, "made_by": made_by("torch", "transformers", "safetensors", "numpy", "python"), "steps": len(batches),
        "float32": with_hex(in_float32, NUMBERS), "float64": with_hex(exact, NUMBERS),
        "tolerance": with_moved(committed(f"{name}/curve.json")["tolerance"], start, final_float64),
        "float32_samples_max_difference_to_float64": {n: difference(sample, exact) for n, sample in samples.items()},
        "plain_float64_max_difference": difference(plain_exact, exact)["loss_abs"]})
    if family == "llama":
        write_old_keys(folder / "config_old_keys.json")
