"""megatron_checkpoints/: two small models as Hugging Face folders, and the same weights in folders laid out as Megatron-LM saves
them. Megatron-LM itself is not used: names, shapes and files are those of its megatron/training/checkpointing.py,
megatron/legacy/model, megatron/core/transformer and megatron/core/dist_checkpointing."""
import argparse
import collections
import enum
import io
import random
import shutil
import sys
import types

import numpy
import torch
from transformers import GPT2Config, LlamaConfig

from golden_files import made_by, write_json, write_tensors
from inputs import start_weights
from megatron_dist import save_dist

LAYERS, HIDDEN, HEADS, GROUPS, VOCABULARY, POSITIONS, FFN = 4, 16, 4, 2, 29, 12, 24
PADDED = 32  # make_vocab_size_divisible_by 16 times two tensor ranks
ITERATION = 40
TENSOR_RANKS = 2
TOKENS = {"bos_token_id": 0, "eos_token_id": 0}
GPT2 = GPT2Config(vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0.0,
                  embd_pdrop=0.0, attn_pdrop=0.0, architectures=["GPT2LMHeadModel"], dtype="float32", **TOKENS)
LLAMA = LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
                    num_attention_heads=HEADS, num_key_value_heads=GROUPS, max_position_embeddings=POSITIONS, rms_norm_eps=1e-5,
                    architectures=["LlamaForCausalLM"], dtype="float32", **TOKENS)


def gpt2_weights():
    shapes = {"wte.weight": (VOCABULARY, HIDDEN), "wpe.weight": (POSITIONS, HIDDEN), "ln_f.weight": (HIDDEN,), "ln_f.bias": (HIDDEN,)}
    for i in range(LAYERS):
        for name, shape in {"ln_1": (HIDDEN,), "ln_2": (HIDDEN,), "attn.c_attn": (HIDDEN, 3 * HIDDEN), "attn.c_proj": (HIDDEN, HIDDEN),
                            "mlp.c_fc": (HIDDEN, 4 * HIDDEN), "mlp.c_proj": (4 * HIDDEN, HIDDEN)}.items():
            shapes[f"h.{i}.{name}.weight"] = shape
            shapes[f"h.{i}.{name}.bias"] = shape[-1:]
    return start_weights({"transformer." + name: shape for name, shape in shapes.items()}, lambda *_: 0.3, {}, 61)


def llama_weights():
    width = HIDDEN // HEADS
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        for name, shape in {"input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,), "self_attn.q_proj": (HIDDEN, HIDDEN),
                            "self_attn.k_proj": (GROUPS * width, HIDDEN), "self_attn.v_proj": (GROUPS * width, HIDDEN),
                            "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN),
                            "mlp.down_proj": (HIDDEN, FFN)}.items():
            shapes[f"model.layers.{i}.{name}.weight"] = shape
    return start_weights(shapes, lambda *_: 0.3, {}, 62)


# ---- one rank's tensors, under the names of Megatron Core with Transformer Engine

def padded(table):
    return torch.cat([table, torch.zeros(PADDED - VOCABULARY, HIDDEN)])


def share(tensor, rank, dim=0):
    return tensor.chunk(TENSOR_RANKS, dim)[rank].clone()


def interleaved(q, k, v, groups):
    """Rows by group: its queries, its key, its value."""
    return torch.cat([torch.cat([part.chunk(groups)[g] for part in (q, k, v)]) for g in range(groups)])


def gpt2_layer(hf, i, rank):
    get = lambda name: hf[f"transformer.h.{i}.{name}"]
    layer = {}
    for kind in ("weight", "bias"):
        turned = (lambda t: t.t().contiguous()) if kind == "weight" else (lambda t: t)  # Conv1D keeps [in, out]
        qkv = interleaved(*turned(get("attn.c_attn." + kind)).chunk(3), HEADS)
        proj, fc2 = turned(get("attn.c_proj." + kind)), turned(get("mlp.c_proj." + kind))
        layer["self_attention.linear_qkv.layer_norm_" + kind] = get("ln_1." + kind)
        layer["self_attention.linear_qkv." + kind] = share(qkv, rank)
        layer["self_attention.linear_proj." + kind] = share(proj, rank, 1) if kind == "weight" else proj
        layer["mlp.linear_fc1.layer_norm_" + kind] = get("ln_2." + kind)
        layer["mlp.linear_fc1." + kind] = share(turned(get("mlp.c_fc." + kind)), rank)
        layer["mlp.linear_fc2." + kind] = share(fc2, rank, 1) if kind == "weight" else fc2
    return layer


def llama_layer(hf, i, rank):
    get = lambda name: hf[f"model.layers.{i}.{name}.weight"]
    qkv = interleaved(*(get(f"self_attn.{part}_proj") for part in "qkv"), GROUPS)
    return {"self_attention.linear_qkv.layer_norm_weight": get("input_layernorm"),
            "self_attention.linear_qkv.weight": share(qkv, rank),
            "self_attention.linear_proj.weight": share(get("self_attn.o_proj"), rank, 1),
            "mlp.linear_fc1.layer_norm_weight": get("post_attention_layernorm"),
            "mlp.linear_fc1.weight": torch.cat([share(get("mlp.gate_proj"), rank), share(get("mlp.up_proj"), rank)]),
            "mlp.linear_fc2.weight": share(get("mlp.down_proj"), rank, 1)}


GPT2_ENDS = {"embedding.word_embeddings.weight": "wte.weight", "embedding.position_embeddings.weight": "wpe.weight",
             "decoder.final_layernorm.weight": "ln_f.weight", "decoder.final_layernorm.bias": "ln_f.bias"}
LLAMA_ENDS = {"embedding.word_embeddings.weight": "model.embed_tokens.weight", "decoder.final_layernorm.weight": "model.norm.weight",
              "output_layer.weight": "lm_head.weight"}


def core_chunk(model, hf, layers, rank, first, last):
    """What Module.state_dict() of GPTModel has on a stage: layers are counted from 0 on every stage."""
    ends = {ours: hf["transformer." + theirs] for ours, theirs in GPT2_ENDS.items()} if model == "gpt2" else {
        ours: hf[theirs] for ours, theirs in LLAMA_ENDS.items()}
    for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
        if name in ends:
            ends[name] = share(padded(ends[name]), rank)
    state = collections.OrderedDict((name, tensor) for name, tensor in ends.items() if first and name.startswith("embedding."))
    state._metadata = {"": {"version": 1}}
    for local, i in enumerate(layers):
        layer = (gpt2_layer if model == "gpt2" else llama_layer)(hf, i, rank)
        state.update({f"decoder.layers.{local}.{name}": tensor for name, tensor in layer.items()})
    if last:
        state.update({name: tensor for name, tensor in ends.items() if name.startswith(("decoder.", "output_layer."))})
    if last and not first and model == "gpt2":  # the tied table's second copy
        state["output_layer.weight"] = ends["embedding.word_embeddings.weight"].clone()
    return state


def renamed(state, pairs):
    def name_of(name):
        for before, after in pairs:
            name = name.replace(before, after)
        return name
    return {name_of(name): tensor for name, tensor in state.items()}


# Without Transformer Engine norms are modules of their own.
LOCAL = [("self_attention.linear_qkv.layer_norm_", "input_layernorm."), ("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.")]
OLD = LOCAL + [("pre_mlp_layernorm", "post_attention_layernorm"), ("linear_qkv", "query_key_value"), ("linear_proj", "dense"),
               ("linear_fc1", "dense_h_to_4h"), ("linear_fc2", "dense_4h_to_h"), ("decoder.", "")]


def old_chunk(state):
    """The dicts in dicts of the classes before Megatron Core."""
    blocks = {name: tensor for name, tensor in state.items() if name.startswith("decoder.")}
    language = {"encoder": renamed(blocks, OLD)}
    if "embedding.word_embeddings.weight" in state:
        language["embedding"] = {"word_embeddings": {"weight": state["embedding.word_embeddings.weight"]},
                                 "position_embeddings": {"weight": state["embedding.position_embeddings.weight"]}}
    model = {"language_model": language}
    if "output_layer.weight" in state:
        model["word_embeddings_for_head"] = {"weight": state["output_layer.weight"]}
    return model


def with_extra_state(state):
    """What Transformer Engine adds: bytes in older versions, a tensor of bytes in newer ones."""
    extra = {name.removesuffix("weight") + "_extra_state": (io.BytesIO(b"fp8") if "fc1" in name else torch.arange(3, dtype=torch.uint8))
             for name in state if name.endswith(("linear_qkv.weight", "linear_fc1.weight"))}
    state.update(extra)
    return state


# ---- what stands beside the model

def class_of_megatron(module, name, **members):
    """An enumeration under the module that a pickle names."""
    made = enum.Enum(name, members)
    made.__module__, made.__qualname__ = module, name
    for end in range(1, module.count(".") + 2):
        part = ".".join(module.split(".")[:end])
        sys.modules.setdefault(part, types.ModuleType(part))
    setattr(sys.modules[module], name, made)
    return made


MODEL_TYPE = class_of_megatron("megatron.core.enums", "ModelType", encoder_or_decoder=1)


def options(model, pipeline, virtual):
    llama = model == "llama"
    return argparse.Namespace(
        tensor_model_parallel_size=TENSOR_RANKS, pipeline_model_parallel_size=pipeline, expert_model_parallel_size=1,
        virtual_pipeline_model_parallel_size=virtual if virtual > 1 else None, num_layers=LAYERS, hidden_size=HIDDEN,
        num_attention_heads=HEADS, num_query_groups=GROUPS if llama else None, group_query_attention=llama,
        ffn_hidden_size=FFN if llama else 4 * HIDDEN, max_position_embeddings=POSITIONS, padded_vocab_size=PADDED, make_vocab_size_divisible_by=16, swiglu=llama,
        normalization="RMSNorm" if llama else "LayerNorm", position_embedding_type="rope" if llama else "learned_absolute",
        rotary_percent=1.0, rotary_interleaved=False, apply_layernorm_1p=False, num_experts=None, multi_latent_attention=False,
        apply_residual_connection_post_layernorm=False, add_bias_linear=not llama, untie_embeddings_and_output_weights=llama,
        params_dtype=torch.float32, model_type=MODEL_TYPE.encoder_or_decoder, iteration=ITERATION, betas=(0.9, 0.95))


def beside(model, pipeline, virtual=1):
    return {"args": options(model, pipeline, virtual), "checkpoint_version": 3.0, "iteration": ITERATION,
            "opt_param_scheduler": {"max_lr": 1e-3, "num_steps": 640}, "num_floating_point_operations_so_far": 123456789}


def generators():
    random.seed(3)
    return [{"random_rng_state": random.getstate(), "np_rng_state": numpy.random.RandomState(3).get_state(),
             "torch_rng_state": torch.zeros(16, dtype=torch.uint8), "rng_tracker_states": {}}]


def save_ranks(folder, model, hf, pipeline, virtual=1, change=with_extra_state, release=False):
    """Form "torch": a pickle per tensor rank and pipeline stage."""
    each = LAYERS // (pipeline * virtual)
    for rank in range(TENSOR_RANKS):
        for stage in range(pipeline):
            state = beside(model, pipeline, virtual)
            for chunk in range(virtual):
                at = chunk * pipeline + stage
                part = change(core_chunk(model, hf, range(at * each, (at + 1) * each), rank, at == 0, at == pipeline * virtual - 1))
                state["model" if virtual == 1 else f"model{chunk}"] = part
            state["optimizer"] = {"optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 1e-3}]}}
            state["rng_state"] = generators()
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if pipeline > 1 else "")
            place = folder / ("release" if release else f"iter_{ITERATION:07d}") / name
            place.mkdir(parents=True)
            torch.save(state, place / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("release" if release else str(ITERATION))


def make(folder):
    place = folder / "megatron_checkpoints"
    shutil.rmtree(place, ignore_errors=True)
    weights = {"gpt2": gpt2_weights(), "llama": llama_weights()}
    for name, config in {"gpt2": GPT2, "llama": LLAMA}.items():
        write_tensors(place / name / "model.safetensors", weights[name])
        config.save_pretrained(place / name)
    save_ranks(place / "ranks_gpt2", "gpt2", weights["gpt2"], pipeline=2, virtual=2)
    save_ranks(place / "ranks_llama", "llama", weights["llama"], pipeline=1, change=lambda state: renamed(state, LOCAL), release=True)
    save_ranks(place / "ranks_old_gpt2", "gpt2", weights["gpt2"], pipeline=2, change=old_chunk)
    for name, stacked in {"dist_stacked_llama": True, "dist_layers_llama": False}.items():
        ranks = [core_chunk("llama", weights["llama"], range(LAYERS), rank, True, True) for rank in range(TENSOR_RANKS)]
        save_dist(place / name, ranks, beside("llama", 1), ITERATION, LAYERS, stacked)
    write_json(place / "case.json", {
        "case": "megatron_checkpoints", "what": "weights in folders laid out as Megatron-LM saves them, and as Hugging Face folders",
        "made_by": made_by("torch", "transformers", "safetensors", "python"), "iteration": ITERATION, "tensor_ranks": TENSOR_RANKS})
