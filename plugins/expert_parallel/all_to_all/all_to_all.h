// Expert parallelism by all-to-all: what its section may say, what it sends, and the layers that do it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <drivetrain/value.h>

#include "exchange.h"

namespace drivetrain::all_to_all {

struct AllToAllOptions {
  int64_t size = 1;
  double imbalance_factor = 1.25;
  // DeepSpeed's section says these of a model that it rewrites; here the model says them itself.
  std::optional<int64_t> expert_tensor_parallel_size;
  std::optional<std::string> comm_backend;
  Value top_k, score_func, score_apply, route_norm, route_scale, routed_scaling_factor, num_expert_groups,
      num_limited_groups, load_balance_coeff, expert_activation;
  Value preset_model, moe_layer_pattern, router_pattern, expert_pattern, expert_w1, expert_w2, expert_w3,
      num_experts_attr, top_k_attr, has_shared_experts, shared_experts_pattern, shared_experts_gate_pattern;
  Value use_grouped_mm, disable_triton_grouped_mm, combine_impl, row_weighting_impl, gate_up_impl, async_split_plan,
      validate_folding_routing, comm_num_sm, comm_qp_margin, comm_max_tokens_per_rank;
};
OptionTable option_table();

// Refuses keys that ask for something else than what is done.
void check_keys(const AllToAllOptions& options, PlanContext& ctx);
// Rows that the fullest rank is planned to get, over those of equal loads: at most those of all ranks.
double planned_imbalance(const AllToAllOptions& options);
// How many ranks have an expert of one token, on average, where every choice is as likely as another.
double ranks_of_token(int64_t experts_of_rank, int64_t ranks, int64_t chosen);
// Says what the plugin sends and holds.
void report_exchanges(const AllToAllOptions& options, const std::string& axis, PlanContext& ctx);

// This rank's experts `own` as the experts of all ranks. `one_sided`: of all layers; null: nobody is told.
std::shared_ptr<Experts> split_experts(std::shared_ptr<Experts> own, std::shared_ptr<const ExpertRanks> ranks,
                                       double imbalance, std::shared_ptr<OneSided> one_sided = {});

}  // namespace drivetrain::all_to_all
