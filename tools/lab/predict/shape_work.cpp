#include "predict/shape_work.h"

namespace drivetrain {
namespace {

// What a block's forward reads and writes besides its products, in elements per token: two norms (read, write) and two
// sums with the residual (two reads, write); the rotation of queries and keys; of the MLP the activation function.
constexpr double kHiddenPasses = 10, kHeadPasses = 4, kFfnPasses = 3;
// Logits are read for their sum and again for their gradient, which is written: elements per token and word.
constexpr double kLossPasses = 3;

}  // namespace

void add_shape(StepWork& work, const ModelShape& m, const ShapeCuts& cuts) {
  const double t = cuts.tokens, layers = m.layers / cuts.stages, queries = m.heads * m.head_dim;
  const auto product = [&](const char* what, double out, double in, double count) {
    work.products.push_back({what, t, out, in, count});
  };
  product("queries, keys, values", (queries + 2 * m.groups * m.head_dim) / cuts.tensor, m.hidden, layers);
  product("attention's output", m.hidden, queries / cuts.tensor, layers);
  product("mlp, in", (m.gated ? 2 : 1) * m.ffn / cuts.tensor, m.hidden, layers);
  product("mlp, out", m.hidden, m.ffn / cuts.tensor, layers);
  work.head.push_back({"output layer", t, m.vocab / cuts.tensor, m.hidden, 1 / cuts.stages});
  work.attention_flops += layers * t * 2 * cuts.seq_length * queries / cuts.tensor;
  const double outside = cuts.tokens_outside > 0 ? cuts.tokens_outside : t;
  const double inside = kHeadPasses * queries + kFfnPasses * m.ffn;
  work.passed_bytes += layers * cuts.element * (outside * kHiddenPasses * m.hidden + t * inside / cuts.tensor);
  work.loss_bytes += t * m.vocab / cuts.tensor / cuts.stages * kLossPasses * cuts.element;
  work.seq_length = cuts.seq_length;
}

// The time of several lengths is that of their mean: a rate over 1 + half_seq / length loses the same time in each
// layer.
void apply_windows(StepWork& work, const ModelFacts& model) {
  double per_position = model.flops_per_token_S;
  for (const ModelFacts::Windowed& layers : model.windowed) per_position += layers.flops_per_token_S;
  if (model.windowed.empty() || per_position <= 0) return;
  work.attention_length = (model.flops_per_token(work.seq_length) - model.flops_per_token_fixed) / per_position;
  work.attention_flops *= work.attention_length / work.seq_length;
}

}  // namespace drivetrain
