"""Hugging Face's models of the training cases, in float32 or, without the places that would fall back to it, in float64."""
import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2

from inputs import start_weights

transformers.utils.logging.disable_progress_bar()

GPT2 = GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
                  attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
LLAMA = LlamaConfig(vocab_size=256, max_position_embeddings=64, hidden_size=64, intermediate_size=172, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
QWEN2 = Qwen2Config(vocab_size=256, max_position_embeddings=64, hidden_size=64, intermediate_size=172, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=0,
                    tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6})


def gpt2_scale(name, shape):
    """GPT-2 stores its matrices input by output. Large enough that attention is far from uniform."""
    layer = name.split(".")[-2]
    return 0.12 if layer in ("wte", "wpe") else (1.28 if layer == "c_attn" else 0.8) / shape[0] ** 0.5


def llama_scale(name, shape):
    if name in ("lm_head.weight", "model.embed_tokens.weight"):
        return 0.12
    return (1.28 if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj") else 0.8) / shape[1] ** 0.5


STARTS = {"gpt2": (GPT2, gpt2_scale, {"transformer.ln_f.weight": 0.65}),
          "llama": (LLAMA, llama_scale, {"model.norm.weight": 0.35}),
          "qwen2": (QWEN2, llama_scale, {"model.norm.weight": 0.35})}


def write_start(family, seed, folder):
    """The Hugging Face folder of the start weights."""
    config, scale, last_norm = STARTS[family]
    model = AutoModelForCausalLM.from_config(config)
    weights = start_weights({name: list(p.shape) for name, p in model.named_parameters()}, scale, last_norm, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    model.save_pretrained(folder)


def load(folder, dtype=torch.float32, attention="eager"):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()


def plain_rms_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def float64_rotary(self, x, position_ids):
    size = self.config.hidden_size // self.config.num_attention_heads
    frequency = 1 / self.config.rope_parameters["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = position_ids[..., None].double() * frequency
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def load_float64(folder):
    """Attention by scaled_dot_product_attention: the eager one takes its softmax in float32."""
    model = load(folder, torch.float64, "sdpa")
    for module in model.modules():
        if isinstance(module, (modeling_llama.LlamaRMSNorm, modeling_qwen2.Qwen2RMSNorm)):
            module.forward = plain_rms_norm.__get__(module)
        if isinstance(module, (modeling_llama.LlamaRotaryEmbedding, modeling_qwen2.Qwen2RotaryEmbedding)):
            module.forward = float64_rotary.__get__(module)
    return model


def logits_of(model):
    return lambda tokens: model(input_ids=tokens, use_cache=False).logits


def logits_and_router_loss_of(model):
    """The logits, and a function that returns what the last call adds to the loss: that of the experts' loads."""
    last = {}

    def logits(tokens):
        result = model(input_ids=tokens, use_cache=False)
        last["loss"] = model.config.router_aux_loss_coef * result.aux_loss
        return result.logits
    return logits, lambda: last["loss"]
