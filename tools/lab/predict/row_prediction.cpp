#include "predict/row_prediction.h"

#include <algorithm>
#include <cmath>

namespace drivetrain {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// What a block's forward reads and writes besides its products, in elements per token: two norms (read, write) and two
// sums with the residual (two reads, write); the rotation of queries and keys; of the MLP the activation function.
constexpr double kHiddenPasses = 10, kHeadPasses = 4, kFfnPasses = 3;
// Logits in 16 bits are written and read, and float32 copies of them in the loss: bytes per token and word.
constexpr double kLossBytes = 12;

void add_tensor(StepWork& work, const PublishedRow& row) {
  if (row.tensor == 1) return;
  const double layers = row.model.layers / static_cast<double>(row.stages);
  const double calls = layers * (4 + (row.recompute ? 2 : 0)) * work.micro_batches;
  const double bytes = row.rank_tokens() * row.model.hidden * 2;
  const Sent sent = sent_by_rank(Collective::all_reduce, bytes, row.tensor);
  work.messages.push_back({"tensor", "activations summed", {row.tensor, 1}, calls * sent.bytes, calls * sent.hops});
}

void add_context(StepWork& work, const PublishedRow& row) {
  if (row.context == 1) return;
  const double layers = row.model.layers / static_cast<double>(row.stages), visits = row.recompute ? 3 : 2;
  const double columns =
      2 * (row.model.heads + row.model.groups) * row.model.head_dim / static_cast<double>(row.tensor);
  const double calls = layers * visits * work.micro_batches;
  const Sent sent = sent_by_rank(Collective::all_to_all, row.rank_tokens() * columns * 2, row.context);
  MessageWork message = {
      "context", "heads exchanged", {row.context, row.tensor}, calls * sent.bytes, calls * sent.hops};
  message.direct = true;
  work.messages.push_back(message);
}

// Values are gathered for forward and backward of every micro-batch, and gradients summed after each.
void add_shared_values(StepWork& work, const PublishedRow& row, double parameters) {
  const RankGroup group = {row.replicas(), row.tensor};
  const Sent gather = sent_by_rank(Collective::all_gather, 2 * parameters, group.ranks);
  const double layers = row.model.layers / static_cast<double>(row.stages), times = work.micro_batches;
  MessageWork message = {"data", "values gathered twice, gradients summed", group, 3 * gather.bytes * times,
                         3 * gather.hops * layers * times};
  message.beside_micro_batches = 1.5 * times;  // forwards too
  work.messages.push_back(message);
}

// Gradients are summed over all replicas; whoever owns a part of the state sends its new values to its group.
void add_shared_state(StepWork& work, const PublishedRow& row, double parameters, int64_t owners, double owner_s) {
  const RankGroup all = {row.replicas(), row.tensor}, group = {owners, row.tensor};
  const Sent sum = sent_by_rank(Collective::all_reduce, 2 * parameters, all.ranks);
  MessageWork gradients = {"data", "gradients summed", all, sum.bytes, 0};  // in large buckets
  gradients.beside_micro_batches = 1;
  work.messages.push_back(gradients);
  const Sent values = sent_by_rank(Collective::all_gather, 2 * parameters, owners);
  work.messages.push_back({"data", "new values gathered", group, values.bytes, 0});
  if (owners > 1) work.fixed_s += owner_s * static_cast<double>(owners);
}

// Layers of the fullest stage: whole ones.
double most_layers(const PublishedRow& row) { return std::ceil(row.model.layers / static_cast<double>(row.stages)); }

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
  work.loss_bytes += t * m.vocab / cuts.tensor / cuts.stages * kLossBytes;
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

double model_flops(const ModelShape& m, double seq_length) {
  const double queries = m.heads * m.head_dim;
  const double layer = m.hidden * (2 * queries + 2 * m.groups * m.head_dim) + (m.gated ? 3 : 2) * m.hidden * m.ffn;
  return 6 * m.layers * layer + 6 * m.hidden * m.vocab + 6 * m.layers * queries * seq_length;
}

StepWork work_of(const PublishedRow& row, const TrainingSystem& system) {
  StepWork work;
  work.dtype = system.dtype;
  work.ranks = static_cast<double>(row.ranks);
  work.micro_batches = static_cast<double>(row.micro_batches);
  const double share = static_cast<double>(row.tensor * row.stages);
  work.tokens = row.rank_tokens() * work.micro_batches / share;
  add_shape(work, row.model,
            {row.rank_tokens(), static_cast<double>(row.seq_length), static_cast<double>(row.tensor),
             static_cast<double>(row.stages)});
  work.again = work.attention_again = work.passes_again = row.recompute ? 1 : 0;
  work.bubble = static_cast<double>(row.stages - 1) / work.micro_batches;
  work.fixed_s = system.time.step_s;
  const double parameters = row.model.parameters / share;
  const int64_t replicas = row.replicas();
  const int64_t owners = row.shard_ranks < 0 ? replicas : std::min(row.shard_ranks, replicas);
  add_tensor(work, row), add_context(work, row);
  if (row.shard_values)
    add_shared_values(work, row, parameters);
  else
    add_shared_state(work, row, parameters, owners, system.time.owner_s);
  if (!system.time.overlaps)
    for (MessageWork& message : work.messages) message.beside_micro_batches = 0;
  work.updated_bytes =
      system.time.update_bytes * parameters / static_cast<double>(row.shard_values ? replicas : owners);
  work.gradient_ranks = replicas > 1 ? static_cast<double>(replicas) : 0;
  return work;
}

RowMemory memory_of(const PublishedRow& row, const SystemMemory& profile) {
  RowMemory memory;
  const auto add = [&](const char* what, double bytes) {
    memory.parts.push_back({what, bytes / kGiB}), memory.gib += bytes / kGiB;
  };
  const ModelShape& m = row.model;
  const double tensor = static_cast<double>(row.tensor), layers = most_layers(row), table = m.vocab * m.hidden;
  const double layer = (m.parameters - 2 * table) / m.layers;
  const double tables = row.stages == 1 ? 2 : 1;
  const double parameters = (layers * layer + tables * table) / tensor;
  const double replicas = static_cast<double>(row.replicas());
  const double owners = row.shard_ranks < 0 ? replicas : std::min(static_cast<double>(row.shard_ranks), replicas);
  if (row.shard_values) {
    add("states, sharded", profile.shared_values_bytes * parameters / replicas);
    if (replicas > 1) add("layers gathered", 2 * (2 * layer + table) / tensor);
  } else {
    add("states, whole", profile.whole_bytes * parameters);
    add("states, sharded", profile.shared_bytes * parameters / owners);
  }
  const double tokens = row.rank_tokens(), alive = static_cast<double>(std::min(row.stages, row.micro_batches));
  const double kept = row.recompute ? profile.input_bytes : profile.kept_layer_bytes / tensor;
  // The last stage has the output layer, the first one all micro-batches on their way: about the same.
  add("activations", tokens * m.hidden * (kept * layers * (row.stages > 1 ? 1 : alive) + profile.layer_bytes / tensor));
  add("logits", tokens * m.vocab / tensor * profile.logit_bytes);
  add("overhead", profile.overhead_gib * kGiB);
  return memory;
}

}  // namespace drivetrain
