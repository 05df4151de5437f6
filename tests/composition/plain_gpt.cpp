// The formulas, one function each.
#include "composition/plain_gpt.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace drivetrain::test {
namespace {

class PlainGpt {
 public:
  PlainGpt(const PlainShape& shape, const Weights& weights) : s_(shape), weights_(weights) {}

  at::Tensor logits(const at::Tensor& tokens_NS) const {
    at::Tensor x = rows(embedding(), tokens_NS);
    if (s_.gpt2) x = x + weight("transformer.wpe.weight").narrow(0, 0, tokens_NS.size(1));
    for (int64_t i = 0; i < s_.layers; ++i) x = s_.gpt2 ? gpt2_block(x, i) : llama_block(x, i);
    x = s_.gpt2 ? layer_norm(x, "transformer.ln_f") : rms_norm(x, "model.norm");
    return x.matmul((s_.tied ? embedding() : weight("lm_head.weight")).t());
  }

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  const at::Tensor& embedding() const {
    return weight(s_.gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
  }
  static at::Tensor rows(const at::Tensor& table, const at::Tensor& ids_NS) {
    return table.index_select(0, ids_NS.reshape({-1})).view({ids_NS.size(0), ids_NS.size(1), table.size(1)});
  }

  at::Tensor layer_norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centred = x - x.mean(-1, true);
    const at::Tensor variance = (centred * centred).mean(-1, true);
    return centred / (variance + s_.norm_epsilon).sqrt() * weight(name + ".weight") + weight(name + ".bias");
  }
  at::Tensor rms_norm(const at::Tensor& x, const std::string& name) const {
    return x / ((x * x).mean(-1, true) + s_.norm_epsilon).sqrt() * weight(name + ".weight");
  }
  // y = x W + b with W [in, out], as GPT-2 keeps it; y = x W^T with W [out, in], as Llama does.
  at::Tensor conv1d(const at::Tensor& x, const std::string& name) const {
    return x.matmul(weight(name + ".weight")) + weight(name + ".bias");
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const at::Tensor y = x.matmul(weight(name + ".weight").t());
    const auto bias = weights_.find(name + ".bias");
    return bias == weights_.end() ? y : y + bias->second;
  }

  at::Tensor split_heads(const at::Tensor& x_NSD, int64_t heads) const {  // [N, heads, S, E]
    return x_NSD.reshape({x_NSD.size(0), x_NSD.size(1), heads, s_.head_size}).transpose(1, 2);
  }

  // Query head h uses key head h / (H / groups).
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const int64_t S = q.size(2);
    const at::Tensor key_head = at::arange(s_.heads, at::kLong).floor_divide(s_.heads / s_.groups);
    const at::Tensor later = at::ones({S, S}, at::kBool).triu(1);
    const at::Tensor scores = q.matmul(k.index_select(1, key_head).transpose(2, 3)) / std::sqrt(double(s_.head_size));
    const at::Tensor seen = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
    const at::Tensor raised = (seen - seen.amax(-1, true).detach()).exp();
    const at::Tensor out = (raised / raised.sum(-1, true)).matmul(v.index_select(1, key_head));
    return out.transpose(1, 2).reshape({q.size(0), S, s_.heads * s_.head_size});
  }

  // Pairs (i, i + E/2) turn by position * base^(-2i/E).
  at::Tensor rotate(const at::Tensor& x_NHSE) const {
    const int64_t half = s_.head_size / 2;
    const at::Tensor exponent = at::arange(half, at::kDouble) * (-2.0 / double(s_.head_size));
    const at::Tensor angle = at::arange(x_NHSE.size(2), at::kDouble).unsqueeze(1) * at::pow(s_.rotary_base, exponent);
    const at::Tensor c = angle.cos().to(x_NHSE.scalar_type()), s = angle.sin().to(x_NHSE.scalar_type());
    const at::Tensor a = x_NHSE.narrow(3, 0, half), b = x_NHSE.narrow(3, half, half);
    return at::cat({a * c - b * s, b * c + a * s}, 3);
  }

  at::Tensor gpt2_block(const at::Tensor& x, int64_t i) const {
    const std::string h = "transformer.h." + std::to_string(i) + ".";
    const at::Tensor qkv = conv1d(layer_norm(x, h + "ln_1"), h + "attn.c_attn");
    const auto part = [&](int64_t j) { return split_heads(qkv.narrow(2, j * s_.hidden, s_.hidden), s_.heads); };
    const at::Tensor y = x + conv1d(attention(part(0), part(1), part(2)), h + "attn.c_proj");
    const at::Tensor z = conv1d(layer_norm(y, h + "ln_2"), h + "mlp.c_fc");
    const at::Tensor gelu = 0.5 * z * (1 + (std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)).tanh());
    return y + conv1d(gelu, h + "mlp.c_proj");
  }

  at::Tensor llama_block(const at::Tensor& x, int64_t i) const {
    const std::string h = "model.layers." + std::to_string(i) + ".";
    const at::Tensor a = rms_norm(x, h + "input_layernorm");
    const at::Tensor q = rotate(split_heads(linear(a, h + "self_attn.q_proj"), s_.heads));
    const at::Tensor k = rotate(split_heads(linear(a, h + "self_attn.k_proj"), s_.groups));
    const at::Tensor v = split_heads(linear(a, h + "self_attn.v_proj"), s_.groups);
    const at::Tensor y = x + linear(attention(q, k, v), h + "self_attn.o_proj");
    const at::Tensor b = rms_norm(y, h + "post_attention_layernorm");
    const at::Tensor gate = linear(b, h + "mlp.gate_proj");
    return y + linear(gate / (1 + (-gate).exp()) * linear(b, h + "mlp.up_proj"), h + "mlp.down_proj");
  }

  const PlainShape& s_;
  const Weights& weights_;
};

}  // namespace

PlainLoss plain_loss(const PlainShape& shape, const Weights& weights, const at::Tensor& tokens_NS,
                     const at::Tensor& labels_NS) {
  const at::Tensor logits = PlainGpt(shape, weights).logits(tokens_NS);
  const at::Tensor counts = labels_NS.ne(-100);
  const at::Tensor top = logits.amax(-1, true).detach();
  const at::Tensor log_sum = (logits - top).exp().sum(-1, true).log() + top;
  const at::Tensor of_label = logits.gather(2, labels_NS.clamp_min(0).unsqueeze(2));
  PlainLoss loss;
  loss.sum = (log_sum - of_label).squeeze(2).mul(counts).sum();
  loss.tokens = counts.sum().item<int64_t>();
  loss.largest_logit = logits.abs().max().item<double>();
  return loss;
}

}  // namespace drivetrain::test
