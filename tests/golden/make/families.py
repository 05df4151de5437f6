"""families/: tiny random models of every family that model/gpt reads, as transformers saves them, their logits, and twenty steps
of training. Norms have random weights, head sizes differ from D / H, sequences are longer than windows, and the vocabulary is no
multiple of 8, so that a rule that is wrong shows."""
import json

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import hf_models
from golden_files import made_by, write_json, write_tensors
from inputs import rounded
from training import train

V, T, STEPS = 67, 24, 20
SIZES = {"vocab_size": V, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}
NO_HEAD_DIM = {"head_dim": None}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.3], "long_factor": [1.1, 3.1],
            "original_max_position_embeddings": 16}
# Large, so that a loss that is a little wrong shows.
BALANCED = {"output_router_logits": True, "router_aux_loss_coef": 0.1}
# By name: the model_type, and what differs from SIZES.
FAMILIES = {
    "gpt2": ("gpt2", {"n_inner": 40, "n_positions": 64, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "llama": ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama_biases": ("llama", {"attention_bias": True, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    "mistral": ("mistral", {"sliding_window": 7}),
    "qwen2": ("qwen2", {"head_dim": 6, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    "qwen3": ("qwen3", {}),
    "phi3": ("phi3", {**NO_HEAD_DIM, "rope_parameters": LONGROPE, "partial_rotary_factor": 0.67, "original_max_position_embeddings": 16}),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    "olmo3": ("olmo3", {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "internlm2": ("llama", {"head_dim": 6}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {"sliding_window": 7, "query_pre_attn_scalar": 10, "attn_logit_softcapping": 2.0,
                          "final_logit_softcapping": 3.0}),
    "gemma3": ("gemma3_text", {"sliding_window": 7, "query_pre_attn_scalar": 10, "layer_types": ["sliding_attention", "full_attention"],
                               "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "gpt_neox": ("gpt_neox", {**NO_HEAD_DIM, "num_key_value_heads": None,
                              "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.67}}),
    "stablelm": ("stablelm", {**NO_HEAD_DIM, "use_qkv_bias": True,
                              "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.67}}),
    "starcoder2": ("starcoder2", {"sliding_window": 7}),
    "granite": ("granite", {"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5,
                            "logits_scaling": 2.0}),
    "mixtral": ("mixtral", {"num_local_experts": 6, "intermediate_size": 20, **BALANCED}),
    "olmoe": ("olmoe", {**NO_HEAD_DIM, "num_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 20, **BALANCED}),
    "qwen2_moe": ("qwen2_moe", {**NO_HEAD_DIM, "num_hidden_layers": 3, "mlp_only_layers": [0], "num_experts": 6, "num_experts_per_tok": 2,
                                "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28, **BALANCED}),
    "qwen3_moe": ("qwen3_moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "norm_topk_prob": True,
                                **BALANCED}),
}
SETTINGS = {"train_batch_size": 2, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {
    "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}}
TOLERANCE = {"loss_abs": 1e-5, "grad_norm_rel": 1e-4, "logits_abs": 1e-5}


def config_of(name, sizes=SIZES):
    model_type, more = FAMILIES[name]
    members = {key: value for key, value in {**sizes, **more}.items() if value is not None}
    return AutoConfig.for_model(model_type, **members)


def random_model(name, seed, sizes=SIZES):
    """With biases and norms' weights that are random, too: around 1, or 0 where 1 is added to them."""
    torch.manual_seed(0)
    config = config_of(name, sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = numpy.random.default_rng(seed)
    middle = 0.0 if config.model_type.startswith("gemma") else 1.0
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            drawn = generator.standard_normal(tuple(parameter.shape))
            if parameter.dim() > 1:
                drawn = drawn * (0.25 if "embed" in key or "wte" in key else 1.2 / parameter.shape[-1] ** 0.5)
            else:
                drawn = 0.2 * drawn + (0.0 if key.endswith("bias") else middle)
            parameter.copy_(rounded(drawn))
    return model


def save(model, folder):
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def internlm2_from_llama(folder):
    """InternLM2 is not in transformers. It computes what a Llama does; its file has, for each key/value head, the rows of its
    queries, of its key and of its value, and other names."""
    config = json.loads((folder / "config.json").read_text())
    names = {"model.embed_tokens": "model.tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
             "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}
    tensors, heads, size = load_file(folder / "model.safetensors"), config["num_key_value_heads"], config["head_dim"]
    for i in range(config["num_hidden_layers"]):
        q, k, v = (tensors.pop(f"model.layers.{i}.self_attn.{one}_proj.weight").unflatten(0, (heads, -1, size)) for one in "qkv")
        tensors[f"model.layers.{i}.attention.wqkv.weight"] = torch.cat([q, k, v], dim=1).flatten(0, 2)
    renamed = {}
    for key, tensor in tensors.items():
        for theirs, ours in names.items():
            key = key.replace(theirs, ours)
        renamed[key] = tensor.contiguous()
    save_file(dict(sorted(renamed.items())), folder / "model.safetensors", metadata={"format": "pt"})
    for key in ("attention_bias", "mlp_bias", "head_dim", "attention_dropout"):
        config.pop(key, None)
    rope = config.pop("rope_parameters")
    config.update({"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "bias": False,
                   "rope_theta": rope["rope_theta"], "rope_scaling": {"type": "dynamic", "factor": 2.0}})
    write_json(folder / "config.json", config)


def batches_of(seed, vocabulary=V, length=T, steps=STEPS):
    # Without the padding token: torch.nn.Embedding computes no gradient for its row.
    generator = numpy.random.default_rng(seed)
    return torch.from_numpy(generator.integers(3, vocabulary, size=(steps, 1, 2, length + 1)))


def trained(model, batches):
    rates = [SETTINGS["optimizer"]["params"]["lr"]] * len(batches)
    logits, terms = hf_models.logits_of(model), None
    if getattr(model.config, "output_router_logits", False):
        logits, terms = hf_models.logits_and_router_loss_of(model)
    curve = train(logits, dict(model.named_parameters()), batches, SETTINGS, rates, "matrices", terms=terms)
    return {key: curve[key] for key in ("loss", "loss_total", "grad_norm") if key in curve}


def make(into):
    transformers.utils.logging.set_verbosity_error()
    folder, batches, logits, curves = into / "families", batches_of(41), {}, {}
    for place, name in enumerate(FAMILIES):
        model = random_model(name, 100 + place)
        save(model, folder / name)
        if name == "internlm2":
            internlm2_from_llama(folder / name)
        with torch.no_grad():
            logits[name] = hf_models.logits_of(model)(batches[0, 0, :, :-1])
        curves[name] = trained(model, batches)
    write_tensors(folder / "batches.safetensors", {"tokens": batches})
    write_tensors(folder / "logits.safetensors", logits)
    write_json(folder / "train.json", SETTINGS)
    write_json(folder / "curve.json", {"made_by": made_by("torch", "transformers", "safetensors", "numpy", "python"),
                                       "tolerance": TOLERANCE, "float32": curves})
