"""The table of tools/peers/check_families --shapes: what model/gpt makes of many shapes of folders, of families that it reads and of
others. A tiny random model of each is saved by transformers; ours either has its logits or refuses the folder. Prints a table
(markdown); exit 1 where logits differ, or where a refusal names no key and no tensor."""
import json
import pathlib
import re
import subprocess
import tempfile

import torch
import transformers
from safetensors.torch import load_file

import families
import hf_models

LENGTH, LOGITS = 24, 2e-5  # tokens; of the largest logit
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
STABLE = {"head_dim": None, "hidden_size": 32}
NEOX = {"num_key_value_heads": None, "head_dim": None, "hidden_size": 32}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **more}}


LINEAR, DYNAMIC = rope("linear", factor=2.0), rope("dynamic", factor=2.0)
LLAMA3, YARN = {"rope_parameters": families.LLAMA3}, {"rope_parameters": families.YARN}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}
# model_type: what differs from families.SIZES, one shape each.
SHAPES = {
    "gpt2": [{}, {"n_inner": 40}, {"activation_function": "relu"}, {"activation_function": "gelu"}, {"tie_word_embeddings": False},
             {"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}],
    "llama": [{}, {"tie_word_embeddings": True}, {"attention_bias": True}, {"mlp_bias": True}, {"head_dim": 10}, {"num_key_value_heads": 1},
              {"num_key_value_heads": 4}, {"hidden_act": "gelu"}, {"hidden_act": "relu"}, {"rms_norm_eps": 1e-3}, LINEAR, LLAMA3, YARN,
              DYNAMIC, {"hidden_act": "mish"}],
    "mistral": [{}, {"sliding_window": 7}, {"sliding_window": None}, {"head_dim": 10}, {"tie_word_embeddings": True}],
    "qwen2": [{}, {"tie_word_embeddings": True}, {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}, LAYERS],
    "qwen3": [{}, {"attention_bias": True}, {"tie_word_embeddings": True}, YARN, {**LAYERS, "use_sliding_window": True}],
    "phi3": [{"head_dim": None}, {"head_dim": None, "sliding_window": 7}, {"head_dim": None, **rope("default", partial_rotary_factor=0.67)}],
    "olmo": [{}, {"clip_qkv": 8.0}, {"attention_bias": True}],
    "olmo2": [{}, {"attention_bias": True}, YARN],
    "olmo3": [LAYERS],
    "smollm3": [{}, {"no_rope_layers": [1, 0]}, {"no_rope_layers": [1, 1]}],
    "gemma": [{}, {"hidden_activation": "gelu"}, {"num_key_value_heads": 1}],
    "gemma2": [{"sliding_window": 7}, {"final_logit_softcapping": None}, {"attn_logit_softcapping": None}],
    "gemma3_text": [LAYERS, {"layer_types": ["full_attention"] * 2}, {**LAYERS, "use_bidirectional_attention": True}],
    "gpt_neox": [NEOX, {**NEOX, "use_parallel_residual": False}, {**NEOX, "attention_bias": False}, {**NEOX, "hidden_act": "relu"}],
    "stablelm": [STABLE, {**STABLE, "use_parallel_residual": True}, {**STABLE, "qk_layernorm": True}, {**STABLE, "use_qkv_bias": True}],
    "starcoder2": [{}, {"sliding_window": 7}, {"use_bias": False}],
    "granite": [{}, {"residual_multiplier": 0.5, "embedding_multiplier": 3.0}],
    "mixtral": [{"num_local_experts": 6}, {"num_local_experts": 6, "router_jitter_noise": 0.1}, {"num_local_experts": 6, "sliding_window": 7}],
    "olmoe": [{"head_dim": None, "num_experts": 6, "num_experts_per_tok": 3}, {"head_dim": None, "num_experts": 6, "clip_qkv": 8.0}],
    "qwen2_moe": [{**MOE, "shared_expert_intermediate_size": 28}],
    "qwen3_moe": [MOE, {**MOE, "norm_topk_prob": True}, {**MOE, "mlp_only_layers": [0]}, {**MOE, "decoder_sparse_step": 2}],
    # Families that are not in the table of model/gpt.
    "opt": [{"ffn_dim": 40, "word_embed_proj_dim": 24}], "bloom": [{"n_layer": 2, "n_head": 4}], "gptj": [{"n_embd": 24, "n_layer": 2, "n_head": 4, "rotary_dim": 4}],
    "falcon": [{"head_dim": None, "new_decoder_architecture": True}], "phi": [{"head_dim": None}], "cohere": [{}], "glm": [{}], "nemotron": [{"head_dim": None}],
    "helium": [{}], "exaone4": [{}], "seed_oss": [{}], "arcee": [{}], "ministral": [{"sliding_window": 7}], "granitemoe": [{"num_local_experts": 4}],
    "deepseek_v3": [{"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}], "gpt_oss": [{"num_local_experts": 4}],
    "mpt": [{"d_model": 24, "n_heads": 4, "n_layers": 2}], "mamba": [{"state_size": 4}], "persimmon": [{"head_dim": None}]}


def label_of(model_type, more):
    return f"{model_type} {json.dumps(more)[1:-1]}" if more else model_type


def our_answer(build, folder, place):
    file = place / "logits.safetensors"
    done = subprocess.run([build / "tests/write_logits", folder, file, "2", str(LENGTH)], capture_output=True, text=True)
    return (load_file(file), "") if done.returncode == 0 else (None, done.stderr.strip() or f"exit {done.returncode}")


def reason_of(text, folder):
    """The line with the error, and what stands in the way where that is told below it."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    told = re.sub(r"; known are .*", "", re.sub(r"^.*?error: ", "", lines[first]))
    told = " ".join([told, *(line.strip() for line in lines[first + 1:first + 2])])
    return told.replace(str(folder), "FOLDER").replace("model/gpt: FOLDER/config.json: ", "")[:240].replace("|", "\\|")


def names_something(reason, folder):
    """A key of config.json other than the family's name, or a tensor; or that there is none in the way."""
    config = json.loads((folder / "config.json").read_text())
    keys = set(config) | set(config.get("rope_parameters") or {})
    keys -= {"model_type", "architectures", "dtype"}
    tensors = {re.sub(r"\.(weight|bias)$", "", re.sub(r"\.\d+\.", ".{}.", name)) for name in load_file(folder / "model.safetensors")}
    return "its tensors are those of" in reason or any(
        re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", reason) for name in [*keys, *tensors])


def row(build, model_type, more):
    """What is in the table, or None where transformers makes no such model."""
    families.FAMILIES["shape"] = (model_type, more)
    with tempfile.TemporaryDirectory() as temporary:
        place = pathlib.Path(temporary)
        try:
            model = families.random_model("shape", 7)
            families.save(model, place / "model")
        except Exception as error:  # of whatever kind: it is theirs
            return None, f"transformers makes none: {type(error).__name__}: {str(error)[:90]}"
        ours, refusal = our_answer(build, place / "model", place)
        if ours is None:
            reason = reason_of(refusal, place / "model")
            return ("refused" if names_something(refusal, place / "model") else "REFUSED BY NAME"), reason
        with torch.no_grad():
            theirs = hf_models.logits_of(model)(ours["tokens"])
        difference = float((ours["logits"] - theirs).abs().max() / theirs.abs().max())
        return ("equal" if difference <= LOGITS else "WRONG"), f"logits differ by {difference:.1e} of the largest"


def table(build):
    transformers.utils.logging.set_verbosity_error()
    counts, bad = {}, 0
    print(f"transformers {transformers.__version__}\n\n| folder | ours | |\n| --- | --- | --- |")
    for model_type, shapes in SHAPES.items():
        for more in shapes:
            verdict, what = row(build, model_type, more)
            print(f"| `{label_of(model_type, more)}` | {verdict or '-'} | {what} |", flush=True)
            counts[verdict] = counts.get(verdict, 0) + 1
            bad += verdict in ("WRONG", "REFUSED BY NAME")
    print("\n" + ", ".join(f"{count} {verdict or 'that transformers does not make'}" for verdict, count in counts.items()))
    return 1 if bad else 0
