// GPT-2 and Llama shaped transformers as the formulas of their papers, in the dtype of the weights, on leaf tensors
// named as in Hugging Face folders. Written without a line of the runtime or the plugins, to judge both. Thread: the
// caller's. Legend: N rows, S sequence, D width, H query heads, E head size, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace drivetrain::test {

struct PlainShape {
  bool gpt2 = true;  // layernorm, learned positions, tanh GELU, biases; else rmsnorm, rotary positions, SwiGLU
  int64_t layers = 1, hidden = 0, heads = 1, groups = 1, head_size = 0, ffn = 0, vocab = 0, positions = 0;
  bool tied = true;
  bool qkv_bias = false;  // Qwen2
  double norm_epsilon = 1e-5, rotary_base = 10000;
};

using Weights = std::map<std::string, at::Tensor>;

struct PlainLoss {
  at::Tensor sum;  // over labels that are not -100: log sum exp(logits) - logit of the label
  int64_t tokens = 0;
  double largest_logit = 0;
};

// tokens_NS, labels_NS: int64.
PlainLoss plain_loss(const PlainShape& shape, const Weights& weights, const at::Tensor& tokens_NS,
                     const at::Tensor& labels_NS);

}  // namespace drivetrain::test
