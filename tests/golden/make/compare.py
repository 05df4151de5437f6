"""Sets made golden data beside the committed ones. Equal files are best; where the kernels of another processor round otherwise,
a number may differ by what the golden tests themselves allow, which is said here per file and key."""
import json
import re

import torch
from safetensors.torch import load_file

ROUNDING = 1e-12  # of a float64 result, relative to it or to 1: sums in another order
SKIPPED = re.compile(r"\.made_by\.|\.transformers_version$")


def flat(value, path=""):
    """Every number and word of a JSON file by its path."""
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    else:
        return {path: value}
    return {key: leaf for name, member in members for key, leaf in flat(member, f"{path}.{name}").items()}


def as_number(path, value):
    """The hexadecimal lists hold numbers too."""
    if re.search(r"_hex\.\d+$", path):
        return float.fromhex(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def curve_bounds(tolerance):
    """Bounds of the float32 runs of a curve.json; bf16 cases have one for each way of taking the masters."""
    return tolerance.get("masters_from_weights_rounded_to_bf16", tolerance)


def allowed_of_curve(path, value, bounds):
    if re.match(r"\.(single_process_)?float64\.|\.\w+\.lr", path):
        return ROUNDING * max(1.0, abs(value))
    if re.match(r"\.(float32|deepspeed|single_process_float32)\.", path):
        if "norm" in path:
            return bounds["grad_norm_rel"] * abs(value)
        return bounds["loss_abs"] * (2 if "micro" in path else 1)  # a micro-batch has half the rows
    if re.match(r"\.(float32_samples|deepspeed)_max_difference", path):
        return bounds["loss_abs" if "loss" in path else "grad_norm_rel"]  # noise: its size alone says something
    if path.startswith(".bf16_samples"):
        return bounds["loss_abs"]
    return ROUNDING if path.startswith(".plain_float64") else 0.0


def allowed(name, path, value, tolerance):
    if name.endswith("curve.json"):
        return allowed_of_curve(path, value, curve_bounds(tolerance))
    if name == "schedules.json":
        return ROUNDING * abs(value)
    if name == "adamw.json" and ".float64." in path:
        return ROUNDING * max(1.0, abs(value))
    if name == "adamw.json" and ".float32." in path:
        return 1e-6 * abs(value) + 5e-8
    return 0.0


def compare_json(name, made, kept):
    """The largest difference as a share of what is allowed; a word or a key that differs is an error."""
    made, kept = json.loads(made), json.loads(kept)
    tolerance = kept.get("tolerance", {})
    made, kept = ({path: leaf for path, leaf in flat(side).items() if not SKIPPED.search(path)} for side in (made, kept))
    if made.keys() != kept.keys():
        raise ValueError(f"other keys: {sorted(made.keys() ^ kept.keys())[:4]}")
    share = 0.0
    for path, value in kept.items():
        number = as_number(path, value)
        if number is None or made[path] == value:
            if made[path] != value:
                raise ValueError(f"{path} is {made[path]!r}, committed {value!r}")
            continue
        bound = allowed(name, path, number, tolerance)
        difference = abs(as_number(path, made[path]) - number)
        if difference > bound:
            raise ValueError(f"{path} is {made[path]!r}, committed {value!r}: {difference:.2e} apart, allowed {bound:.2e}")
        share = max(share, difference / bound)
    return share


def compare_weights(made, kept, tolerance):
    """The rule of the golden tests: in each tensor all but max(2, n/1000) elements within its bound, none beyond the common one,
    and slices with bounds of their own."""
    share = 0.0
    for name, bound in tolerance["final_weights"].items():
        difference = (made[name].double() - kept[name].double()).abs().flatten()
        for piece in (p for p in tolerance["final_weights_slices"] if p["tensor"] == name):
            share = max(share, float(difference[piece["from"]:piece["to"]].max()) / piece["abs"])
            difference[piece["from"]:piece["to"]] = 0
        spared = max(2, -(-difference.numel() // 1000))
        share = max(share, float(difference.sort().values[-1 - spared]) / bound["abs"],
                    float(difference.max()) / tolerance["final_weights_all_abs"])
    return share


def compare_tensors(name, made_path, kept_path):
    made, kept = load_file(made_path), load_file(kept_path)
    if {n: (t.dtype, t.shape) for n, t in made.items()} != {n: (t.dtype, t.shape) for n, t in kept.items()}:
        raise ValueError("other tensors, types or shapes")
    if "/final" in name:
        return compare_weights(made, kept, json.loads(kept_path.with_name("curve.json").read_text())["tolerance"])
    share = 0.0
    for tensor, values in kept.items():
        if torch.equal(made[tensor], values):
            continue
        if name == "families/logits.safetensors":  # in float32
            share = max(share, float((made[tensor] - values).abs().max()) / 1e-5)
            continue
        if values.dtype != torch.float64:
            raise ValueError(f"{tensor} differs: inputs have no tolerance")
        bound = ROUNDING * values.abs().clamp(min=1)
        share = max(share, float(((made[tensor] - values).abs() / bound).max()))
    return share


def compare(name, made_path, kept_path):
    """None for equal bytes, else the largest difference as a share of what is allowed; ValueError says what is wrong."""
    made, kept = made_path.read_bytes(), kept_path.read_bytes()
    if made == kept or made_path.name == ".metadata" or made_path.suffix in (".pt", ".distcp"):
        return None  # what is in checkpoints of other programs stands beside them and is compared there
    share = compare_json(name, made, kept) if name.endswith(".json") else compare_tensors(name, made_path, kept_path)
    if share > 1:
        raise ValueError(f"differs by {share:.2f} of what is allowed")
    return share
