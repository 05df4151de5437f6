"""Models of Megatron-Core, saved by Megatron-Core and read here: megatron_weights.py PROGRAM WRITE_LOGITS. Each is made on the CPU with
weights drawn at random, saved by dist_checkpointing (form torch_dist) with the options that Megatron-LM keeps beside them, and converted by
PROGRAM; WRITE_LOGITS computes its logits, which have to be Megatron-Core's. Ends with 1 where they are not."""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

from megatron_core_data import import_core

LAYERS, HIDDEN, HEADS, VOCABULARY, POSITIONS = 2, 64, 4, 300, 64
TOLERANCE = 2e-5  # of the largest logit
ROPE = {"normalization": "RMSNorm", "add_bias_linear": False, "position_embedding_type": "rope", "swiglu": True,
        "untie_embeddings_and_output_weights": True, "ffn_hidden_size": 172, "num_query_groups": 2, "group_query_attention": True}
CASES = {  # options by Megatron-LM's names
    "gpt2": {"normalization": "LayerNorm", "add_bias_linear": True, "position_embedding_type": "learned_absolute", "swiglu": False,
             "untie_embeddings_and_output_weights": False, "ffn_hidden_size": 256, "num_query_groups": HEADS,
             "group_query_attention": False},
    "llama": {**ROPE, "rotary_base": 500000},
    "qwen2": {**ROPE, "rotary_base": 1000000, "add_qkv_bias": True},
    "qwen3": {**ROPE, "rotary_base": 1000000, "qk_layernorm": True},
    "mixtral": {**ROPE, "rotary_base": 1000000, "num_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 96},
    "qwen2_moe": {**ROPE, "rotary_base": 10000, "add_qkv_bias": True, "num_experts": 8, "moe_router_topk": 4, "moe_ffn_hidden_size": 48,
                  "moe_layer_freq": [0, 1], "moe_router_pre_softmax": True, "moe_shared_expert_intermediate_size": 80,
                  "moe_shared_expert_gate": True},
}
MOE = ("moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq", "moe_router_pre_softmax", "moe_shared_expert_intermediate_size",
       "moe_shared_expert_gate")


def make_model(case):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.manual_seed(7)
    activation = torch.nn.functional.silu if case["swiglu"] else torch.nn.functional.gelu
    experts = {name: case[name] for name in MOE if name in case}
    if "num_experts" in case:
        experts.update(num_moe_experts=case["num_experts"], moe_grouped_gemm=False, moe_token_dispatcher_type="allgather",
                       moe_router_load_balancing_type="none")
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=case["num_query_groups"],
        ffn_hidden_size=case["ffn_hidden_size"], normalization=case["normalization"], layernorm_epsilon=1e-5,
        add_bias_linear=case["add_bias_linear"], add_qkv_bias=case.get("add_qkv_bias", False),
        qk_layernorm=case.get("qk_layernorm", False), gated_linear_unit=case["swiglu"],
        activation_func=activation, hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
        bias_activation_fusion=False, masked_softmax_fusion=False, bias_dropout_fusion=False, gradient_accumulation_fusion=False,
        apply_rope_fusion=False, persist_layer_norm=False, **experts)
    model = GPTModel(
        config=config, transformer_layer_spec=get_gpt_decoder_block_spec(
            config, use_transformer_engine=False, normalization=case["normalization"]),
        vocab_size=VOCABULARY, max_sequence_length=POSITIONS, position_embedding_type=case["position_embedding_type"],
        rotary_base=case.get("rotary_base", 10000), parallel_output=False,
        share_embeddings_and_output_weights=not case["untie_embeddings_and_output_weights"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(0.1 * torch.randn(parameter.shape))
            else:
                parameter.normal_(std=0.3 if parameter.dim() > 1 else 0.1)
    return model.eval()


def save(model, case, folder):
    from megatron.core import dist_checkpointing

    place = folder / "iter_0000040"
    place.mkdir(parents=True)
    args = argparse.Namespace(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, kv_channels=HIDDEN // HEADS, norm_epsilon=1e-5,
        bias_gelu_fusion=False, max_position_embeddings=POSITIONS, rotary_percent=1.0, tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1, **case)
    dist_checkpointing.save({"args": args, "checkpoint_version": 3.0, "iteration": 40, "model": model.sharded_state_dict()}, str(place))
    (folder / "latest_checkpointed_iteration.txt").write_text("40")


def config_of(case):
    """The model's section by the same options; this program has one GELU by tanh and one by erf."""
    params = {"num_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "vocab_size": VOCABULARY,
              "max_position_embeddings": POSITIONS, "ffn_hidden_size": case["ffn_hidden_size"],
              "num_query_groups": case["num_query_groups"], "normalization": case["normalization"].lower(),
              "position_embedding_type": case["position_embedding_type"].split("_")[0], "add_bias": case["add_bias_linear"],
              "activation": "swiglu" if case["swiglu"] else "gelu", "norm_epsilon": 1e-5,
              "untie_embeddings_and_output_weights": case["untie_embeddings_and_output_weights"]}
    params.update({name: case[name] for name in ("rotary_base", "add_qkv_bias", "num_experts") if name in case})
    if case.get("qk_layernorm"):
        params["qk_norm"] = "head"
    if "num_experts" in case:
        params.update({ours: case[theirs] for ours, theirs in (
            ("num_experts_per_tok", "moe_router_topk"), ("moe_intermediate_size", "moe_ffn_hidden_size"), ("moe_layers", "moe_layer_freq"),
            ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
            ("shared_expert_gate", "moe_shared_expert_gate")) if theirs in case})
        params.update(norm_topk_prob=not case.get("moe_router_pre_softmax", False), router_aux_loss_coef=0)
    return {"model": {"type": "gpt", "params": params}}


def logits_of(model, tokens):
    length = tokens.shape[1]
    positions = torch.arange(length).expand_as(tokens)
    hidden = torch.ones(1, 1, length, length).triu(1).bool()
    with torch.no_grad():
        return model(tokens, positions, hidden).float()


def on_the_cpu():
    """Megatron-Core asks for a GPU in some places whatever holds the tensors, also for the generator of a dropout of 0."""
    from megatron.core.tensor_parallel import random

    class NoTracker:
        def fork(self, *_):
            return contextlib.nullcontext()

    random._CUDA_RNG_STATE_TRACKER, random._CUDA_RNG_STATE_TRACKER_INITIALIZED = NoTracker(), True
    from megatron.core.transformer.moe import moe_utils
    moe_utils.te_general_gemm = None  # a name that is missing where there is no Transformer Engine
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self


def compare(name, case, program, write_logits, folder):
    model = make_model(case)
    save(model, case, folder / "megatron")
    (folder / "config.json").write_text(json.dumps(config_of(case)))
    subprocess.run([program, "checkpoint", "convert", folder / "megatron", folder / "hf", "--to", "hf", "--config", folder / "config.json"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run([write_logits, folder / "hf", folder / "logits.safetensors"], check=True)
    ours = load_file(folder / "logits.safetensors")
    theirs = logits_of(model, ours["tokens"])
    difference = ((ours["logits"] - theirs).abs().max() / theirs.abs().max()).item()
    good = difference <= TOLERANCE
    print(f"{'equal' if good else 'DIFFERENT'}: logits of {name}: difference {difference:.3g} of the largest, allowed {TOLERANCE:.3g}")
    return good


def main():
    program, write_logits = sys.argv[1:]
    import_core()
    from megatron.core import parallel_state

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{folder}/meet")
        parallel_state.initialize_model_parallel()
        on_the_cpu()
        good = [compare(name, case, program, write_logits, folder / name) for name, case in CASES.items()]
        torch.distributed.destroy_process_group()
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":  # its writer starts processes that import this file
    main()
