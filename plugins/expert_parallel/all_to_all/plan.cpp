#include <algorithm>
#include <string>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "all_to_all.h"

namespace drivetrain::all_to_all {
namespace {

using Options = AllToAllOptions;

constexpr int64_t kMostRanks = 1 << 20;  // of a run

// Keys by which DeepSpeed rewrites a model. `why` begins a sentence in the option's help and in the plan.
struct Key {
  const char* name;
  Value Options::*value;
  const char* why;
};
constexpr const char* kModelKnows = "the model says where its experts are";
constexpr const char* kOneWay = "there is one implementation";
constexpr Key kIdle[] = {
    {"preset_model", &Options::preset_model, kModelKnows},
    {"moe_layer_pattern", &Options::moe_layer_pattern, kModelKnows},
    {"router_pattern", &Options::router_pattern, kModelKnows},
    {"expert_pattern", &Options::expert_pattern, kModelKnows},
    {"expert_w1", &Options::expert_w1, kModelKnows},
    {"expert_w2", &Options::expert_w2, kModelKnows},
    {"expert_w3", &Options::expert_w3, kModelKnows},
    {"num_experts_attr", &Options::num_experts_attr, kModelKnows},
    {"top_k_attr", &Options::top_k_attr, kModelKnows},
    {"has_shared_experts", &Options::has_shared_experts, kModelKnows},
    {"shared_experts_pattern", &Options::shared_experts_pattern, kModelKnows},
    {"shared_experts_gate_pattern", &Options::shared_experts_gate_pattern, kModelKnows},
    {"use_grouped_mm", &Options::use_grouped_mm, kOneWay},
    {"disable_triton_grouped_mm", &Options::disable_triton_grouped_mm, kOneWay},
    {"combine_impl", &Options::combine_impl, kOneWay},
    {"row_weighting_impl", &Options::row_weighting_impl, kOneWay},
    {"gate_up_impl", &Options::gate_up_impl, kOneWay},
    {"async_split_plan", &Options::async_split_plan, "counts of rows are waited for where they are used"},
    {"validate_folding_routing", &Options::validate_folding_routing, "tensor-parallel ranks choose alike"},
    {"comm_num_sm", &Options::comm_num_sm, "it is DeepEP's"},
    {"comm_qp_margin", &Options::comm_qp_margin, "it is DeepEP's"},
    {"comm_max_tokens_per_rank", &Options::comm_max_tokens_per_rank, "it is DeepEP's"},
};

// Keys that would change what is computed, which is the model's to say. `is`: what asks for nothing else, beside null
// and "auto".
struct ModelKey {
  Key key;
  Value is;
};
const std::vector<ModelKey>& model_keys() {
  static const std::vector<ModelKey> keys = {
      {{"score_func", &Options::score_func, "the model's \"router\" says it"}, {}},
      {{"score_apply", &Options::score_apply, "weights multiply the experts' outputs"}, "post"},
      {{"route_norm", &Options::route_norm, "the model's \"norm_topk_prob\" says it"}, {}},
      {{"route_scale", &Options::route_scale, "the model's \"routed_scaling_factor\" says it"}, 1.0},
      {{"routed_scaling_factor", &Options::routed_scaling_factor, "the model's key of this name says it"}, {}},
      {{"num_expert_groups", &Options::num_expert_groups, "the model's \"n_group\" says it"}, {}},
      {{"num_limited_groups", &Options::num_limited_groups, "the model's \"topk_group\" says it"}, {}},
      {{"expert_activation", &Options::expert_activation, "the model's \"activation\" says it"}, {}},
      {{"load_balance_coeff", &Options::load_balance_coeff,
        "DeepSpeed refuses it, too; the model's \"router_bias_update_rate\" balances loads without a loss"},
       {}},
  };
  return keys;
}

bool asks_nothing(const Value& value) { return value.is_null() || value == Value("auto"); }

}  // namespace

OptionTable option_table() {
  TableBuilder<Options> table = drivetrain::table<Options>();
  table.field("size", &Options::size, "ranks over which the experts of every layer are split; 1: off")
      .alias("autoep_size")
      .alias("expert_model_parallel_size")
      .range(1, kMostRanks);
  table
      .field("imbalance_factor", &Options::imbalance_factor,
             "for the plan of memory: rows that the fullest rank gets, over those of equal loads; a run takes any")
      .at_least(1);
  table
      .field("expert_tensor_parallel_size", &Options::expert_tensor_parallel_size,
             "1: an expert is whole on its ranks; more is refused")
      .at_least(1);
  table.field("comm_backend", &Options::comm_backend, "comm: the run's communicator; deepep is refused")
      .one_of({"comm", "deepep"});
  table.field("top_k", &Options::top_k, "the model's number of experts per token, or \"auto\"; another is refused");
  for (const auto& [key, is] : model_keys())
    table.field(key.name, key.value, concat("null or \"auto\"; another value is refused: ", key.why));
  for (const Key& key : kIdle) table.field(key.name, key.value, concat("without effect: ", key.why));
  return table;
}

void check_keys(const Options& o, PlanContext& ctx) {
  for (const Key& key : kIdle)
    if (!asks_nothing(o.*key.value)) ctx.no_effect(concat("expert_parallel.", key.name), key.why);
  for (const auto& [key, is] : model_keys()) {
    const Value& value = o.*key.value;
    const bool same = value.is_number() && is.is_number() ? value.as_double() == is.as_double() : value == is;
    if (asks_nothing(value) || same) continue;
    ctx.refuse(concat(key.name, " ", value.to_json(), " is not for this section: ", key.why, "; leave it out here"));
  }
  const ModelFacts::Mixture& m = ctx.model().mixture;
  if (!asks_nothing(o.top_k) && !(o.top_k == Value(m.chosen)))
    ctx.refuse(concat("top_k ", o.top_k.to_json(), " is not the model's ", m.chosen,
                      " (num_experts_per_tok), which counts; leave it out here"));
  if (o.expert_tensor_parallel_size.value_or(1) > 1)
    ctx.refuse(concat("expert_tensor_parallel_size ", *o.expert_tensor_parallel_size,
                      " is not in this version: an expert is whole on its ranks; set it to 1 and use a larger size"));
  if (o.comm_backend.value_or("comm") != "comm")
    ctx.refuse(concat("comm_backend \"", *o.comm_backend, "\" is not in this version; set it to \"comm\""));
}

double planned_imbalance(const Options& options) {
  return std::min(options.imbalance_factor, static_cast<double>(options.size));
}

// A rank has none of them with the chance that all are among the others' experts.
double ranks_of_token(int64_t experts_of_rank, int64_t ranks, int64_t chosen) {
  const int64_t all = experts_of_rank * ranks;
  double none = 1;
  for (int64_t k = 0; k < chosen; ++k)
    none *= static_cast<double>(std::max<int64_t>(all - experts_of_rank - k, 0)) / static_cast<double>(all - k);
  return static_cast<double>(ranks) * (1 - none);
}

// A token is a row for each of its ranks. (P - 1) / P of them go to other ranks, with choices (4 bytes) and their
// weights (4), and as many come back, in both directions of a step.
void report_exchanges(const Options& options, const std::string& axis, PlanContext& ctx) {
  const RunFacts& run = ctx.run();
  if (run.device != "cpu")
    ctx.cost("in every layer with experts the host waits for the device to say how many rows travel");
  const ModelFacts& m = ctx.model();
  if (!run.seq_length.known() || !run.micro_batch_size.known()) return;
  const double ranks = static_cast<double>(options.size), passes = run.training ? 2 : 1;
  const double positions = run.rank_positions.known() ? static_cast<double>(run.rank_positions)
                                                      : static_cast<double>(run.seq_length) /
                                                            static_cast<double>(run.position_ranks.value_or(1));
  const double rows = static_cast<double>(run.micro_batch_size) * positions *
                      ranks_of_token(m.mixture.experts / options.size, options.size, m.mixture.chosen);
  const double bytes = static_cast<double>(m.hidden_size) * run.compute_bytes,
               of_choices = static_cast<double>(m.mixture.chosen) * (4 + 4 * passes);
  const double share =
      m.num_layers > 0 ? static_cast<double>(run.rank_layers.value_or(m.num_layers)) / static_cast<double>(m.num_layers)
                       : 1;
  const double layers = static_cast<double>(m.mixture.layers) * share;
  ctx.traffic(axis, "rows to experts and back",
              static_cast<double>(run.accumulation.value_or(1)) * layers * rows * (ranks - 1) / ranks *
                  (2 * passes * bytes + of_choices));
  ctx.memory(MemoryClass::buffers, concat("rows of other ranks' tokens, imbalance_factor ", options.imbalance_factor),
             2 * planned_imbalance(options) * rows * bytes);
}

}  // namespace drivetrain::all_to_all
