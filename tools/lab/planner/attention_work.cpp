#include "planner/attention_work.h"

#include <algorithm>

#include "plugin_calls/plugin_call.h"
#include "report/shape_advice.h"

namespace drivetrain {
namespace {

// Of one call, what the plugin's temporaries have for each pair of a query and a key: scores that it keeps whole. What
// grows with positions alone, such as scratch of a kernel, is in the rate of attention.
struct KeptScores {
  double forward = 0, backward = 0;  // bytes
};
KeptScores kept_scores(const AttentionShape& shape, const PreparedRun& run) {
  const std::string plugin = run.plan.id_of(Attention::kKind);
  const auto held = [&](double queries, double keys) {
    AttentionShape part = shape;
    part.queries *= queries, part.keys *= keys;
    const AttentionMemory m = plugin_call({plugin, "memory"}, [&] { return run.plugins.attention->memory(part); });
    return std::pair(m.forward.bytes(), m.backward.bytes());
  };
  const auto all = held(1, 1), half = held(0.5, 0.5), queries = held(0.5, 1), keys = held(1, 0.5);
  const auto of_pairs = [](double whole, double quarter, double first, double second) {
    return std::max(0.0, 4 * (whole - first - second + quarter));
  };
  return {of_pairs(all.first, half.first, queries.first, keys.first),
          of_pairs(all.second, half.second, queries.second, keys.second)};
}

}  // namespace

void add_attention(StepWork& work, const PreparedRun& run, double positions, double stages) {
  const RunPlan& plan = run.plan;
  const ModelFacts& model = plan.model_alone;
  if (!model.head_dim.known() || !model.num_attention_heads.known() || !run.plugins.attention) return;
  const int64_t size = model.head_dim;
  if (plan.run.device != "cpu")
    work.attention_flops *= static_cast<double>(padded_head(size)) / static_cast<double>(size);
  const auto heads = static_cast<double>(model.num_attention_heads.value());
  const auto ranks = static_cast<double>(plan.run.tensor_ranks.value_or(1));
  AttentionShape shape;
  shape.rows = static_cast<double>(plan.batch.micro_batch_size), shape.queries = positions;
  shape.keys = static_cast<double>(plan.run.seq_length.value()), shape.head_dim = static_cast<double>(size);
  shape.heads = heads / ranks;
  shape.groups = static_cast<double>(model.num_query_groups.value_or(model.num_attention_heads.value())) / ranks;
  shape.dtype = plan.dtypes.types.param, shape.on_cpu = plan.run.device == "cpu";
  shape.dropout = model.attention_dropout > 0, shape.softcap = model.attention_softcap > 0;
  double all = model.flops_per_token_S;
  for (const ModelFacts::Windowed& one : model.windowed) all += one.flops_per_token_S;
  const auto add = [&](double window, double share) {
    shape.window = window;
    const KeptScores kept = kept_scores(shape, run);
    const double layers = static_cast<double>(model.num_layers) / stages * share;
    work.attention_bytes += 2 * layers * kept.forward, work.attention_bytes_backward += 2 * layers * kept.backward;
  };
  if (all > 0) add(0, model.flops_per_token_S / all);
  for (const ModelFacts::Windowed& one : model.windowed)
    if (all > 0) add(static_cast<double>(one.window), one.flops_per_token_S / all);
}

}  // namespace drivetrain
