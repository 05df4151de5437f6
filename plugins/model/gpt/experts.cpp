#include "experts.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::gpt {
namespace {

constexpr double kUsualBalance = 0.001;  // of transformers' families

std::vector<int64_t> layers_of(const Options& o, int64_t layers) {
  const int64_t first = o.first_k_dense_replace.value_or(0);
  if (!o.moe_layers.empty()) {
    const auto zeros = std::find(o.moe_layers.begin(), o.moe_layers.end(), 1) - o.moe_layers.begin();
    if (o.first_k_dense_replace && first != zeros)
      throw fail(ErrorCode::config, "model/gpt: first_k_dense_replace is ", first, ", and moe_layers begins with ",
                 zeros, " layers without experts; leave one of them out");
    const bool all = std::find(o.moe_layers.begin(), o.moe_layers.end(), 0) == o.moe_layers.end();
    return all && int64_t(o.moe_layers.size()) == layers ? std::vector<int64_t>{} : o.moe_layers;
  }
  if (first == 0) return {};
  if (first >= layers)
    throw fail(ErrorCode::config, "model/gpt: first_k_dense_replace is ", first, ", so that none of num_layers ",
               layers, " has experts; leave num_experts out, or lower it");
  std::vector<int64_t> result(size_t(layers), 1);
  std::fill_n(result.begin(), first, 0);
  return result;
}

// Options of experts that were given.
std::string given(const Options& o) {
  std::string list;
  const auto add_if = [&](bool is_there, const char* name) {
    if (is_there) list += concat(list.empty() ? "" : ", ", name);
  };
  add_if(o.num_experts_per_tok.has_value(), "num_experts_per_tok");
  add_if(o.moe_intermediate_size.has_value(), "moe_intermediate_size");
  add_if(o.shared_expert_intermediate_size.has_value(), "shared_expert_intermediate_size");
  add_if(o.shared_expert_gate.has_value(), "shared_expert_gate");
  add_if(o.first_k_dense_replace.has_value(), "first_k_dense_replace"), add_if(!o.moe_layers.empty(), "moe_layers");
  add_if(o.norm_topk_prob.has_value(), "norm_topk_prob"), add_if(o.router.has_value(), "router");
  add_if(o.n_group.has_value(), "n_group"), add_if(o.topk_group.has_value(), "topk_group");
  add_if(o.routed_scaling_factor.has_value(), "routed_scaling_factor");
  add_if(o.router_aux_loss_coef.has_value(), "router_aux_loss_coef"), add_if(o.aux_loss.has_value(), "aux_loss");
  add_if(o.router_z_loss_coef.has_value(), "router_z_loss_coef");
  add_if(o.router_bias_update_rate.has_value(), "router_bias_update_rate");
  add_if(o.router_forced_balance.has_value(), "router_forced_balance");
  return list;
}

}  // namespace

TableBuilder<Options> with_expert_options(TableBuilder<Options> table) {
  using O = Options;
  return table
      .field("num_experts", &O::num_experts,
             "MLPs among which a router chooses for each token, in the layers of moe_layers; 0: no mixture; default: 0")
      .alias("num_local_experts")
      .alias("n_routed_experts")
      .range(0, kMostExperts)
      .field("num_experts_per_tok", &O::num_experts_per_tok,
             "how many experts a token passes; with num_experts: required")
      .alias("moe_router_topk")
      .range(1, kMostExperts)
      .field("moe_intermediate_size", &O::moe_intermediate_size, "width inside an expert; default: ffn_hidden_size")
      .alias("moe_ffn_hidden_size")
      .range(1, kLargestSize)
      .field("shared_expert_intermediate_size", &O::shared_expert_intermediate_size,
             "width inside an MLP that every token passes beside its experts; 0: there is none; default: 0")
      .alias("moe_shared_expert_intermediate_size")
      .range(0, kLargestSize)
      .field("shared_expert_gate", &O::shared_expert_gate,
             "multiply what that MLP returns with sigmoid(x w) (Qwen2-MoE); default: false")
      .field("first_k_dense_replace", &O::first_k_dense_replace, "how many layers in front have no experts; default: 0")
      .range(0, kMostLayers)
      .field("moe_layers", &O::moe_layers,
             "1 or 0 for each block: whether it has experts; default: all but first_k_dense_replace")
      .alias("moe_layer_freq")
      .range(0, 1)
      .field("norm_topk_prob", &O::norm_topk_prob,
             "divide the weights of a token's experts by their sum (Mixtral: true); default: false")
      .field("router", &O::router, "how the router makes scores of its logits; default: softmax")
      .one_of({"softmax", "sigmoid"})
      .field("n_group", &O::n_group, "groups of experts, of which a token's experts come from topk_group; default: 1")
      .range(1, kMostExperts)
      .field("topk_group", &O::topk_group, "default: n_group")
      .range(1, kMostExperts)
      .field("routed_scaling_factor", &O::routed_scaling_factor, "of the weights of a token's experts; default: 1")
      .field(
          "router_aux_loss_coef", &O::router_aux_loss_coef,
          "of the loss that keeps the experts' loads equal; 0: none; default: 0.001, with router_bias_update_rate 0; "
          "with \"from\" the folder's, if it has output_router_logits true, else 0")
      .at_least(0)
      .field("aux_loss", &O::aux_loss,
             "which loss: over all layers together (transformers), or the sum of one for each (Megatron); default: "
             "pooled")
      .one_of({"pooled", "per_layer"})
      .field("router_z_loss_coef", &O::router_z_loss_coef,
             "of the loss that keeps the router's logits small; default: 0")
      .at_least(0)
      .field("router_bias_update_rate", &O::router_bias_update_rate,
             "step of a bias for each expert that keeps loads equal without a loss (DeepSeek-V3: 0.001); 0: no bias; "
             "default: 0")
      .at_least(0)
      .field("router_forced_balance", &O::router_forced_balance,
             "for figures of speed alone: experts are chosen in turn instead of by scores; default: false");
}

void refuse_without_experts(const Options& o) {
  if (const std::string options = given(o); !options.empty())
    throw fail(ErrorCode::config, "model/gpt: ", options, options.find(',') == std::string::npos ? " is" : " are",
               " of mixtures of experts, and num_experts is 0; set it, or leave the options out");
}

void complete_experts(const Options& o, Shape& s) {
  const int64_t experts = o.num_experts.value_or(0);
  if (experts == 0) return;
  if (!o.num_experts_per_tok)
    throw fail(ErrorCode::config, "model/gpt: num_experts is ", experts,
               ", and num_experts_per_tok is missing: how many of them a token passes");
  ExpertShape& m = s.mixture;
  m.experts = experts, m.chosen = *o.num_experts_per_tok;
  m.ffn = o.moe_intermediate_size.value_or(s.ffn);
  m.shared_ffn = o.shared_expert_intermediate_size.value_or(0), m.shared_gate = o.shared_expert_gate.value_or(false);
  m.layers = layers_of(o, s.layers);
  m.renormalize = o.norm_topk_prob.value_or(false);
  m.scores = o.router.value_or("softmax") == "sigmoid" ? RouterScores::sigmoid : RouterScores::softmax;
  m.groups = o.n_group.value_or(1), m.chosen_groups = o.topk_group.value_or(m.groups);
  m.scale = o.routed_scaling_factor.value_or(1);
  m.balance_weight = o.router_bias_update_rate.value_or(0) > 0 ? 0 : kUsualBalance;
  m.balance = BalanceLoss::pooled;
  take_balance(o, m);
}

void take_balance(const Options& o, ExpertShape& m) {
  const bool per_layer = m.balance == BalanceLoss::per_layer;
  m.balance_weight = o.router_aux_loss_coef.value_or(m.balance_weight);
  m.balance = o.aux_loss.value_or(per_layer ? "per_layer" : "pooled") == "per_layer" ? BalanceLoss::per_layer
                                                                                     : BalanceLoss::pooled;
  m.z_weight = o.router_z_loss_coef.value_or(m.z_weight);
  m.bias_update_rate = o.router_bias_update_rate.value_or(m.bias_update_rate);
  m.forced = o.router_forced_balance.value_or(m.forced);
}

void check_experts(const Shape& s, ShapeProblems& wrong) {
  const ExpertShape& m = s.mixture;
  if (m.experts == 0) return;
  for (const auto& [name, size] : {std::pair{"num_experts", m.experts}, {"moe_intermediate_size", m.ffn}})
    if (size < 1 || size > kLargestSize) return wrong.add(name, " is ", size, "; it must be from 1 to ", kLargestSize);
  if (m.experts > kMostExperts) return wrong.add("num_experts is ", m.experts, "; it must be from 1 to ", kMostExperts);
  const double elements = 3.0 * double(s.layers) * double(m.experts) * double(m.ffn) * double(s.hidden);
  if (elements > kMostParameters)
    wrong.add("these sizes make about ", elements, " parameters of experts; more than ", kMostParameters,
              " cannot be counted");
  if (m.chosen < 1 || m.chosen > m.experts)
    wrong.add("num_experts_per_tok is ", m.chosen, "; it must be from 1 to num_experts ", m.experts);
  if (m.shared_ffn < 0 || m.shared_ffn > kLargestSize)
    wrong.add("shared_expert_intermediate_size is ", m.shared_ffn, "; it must be from 0 to ", kLargestSize);
  if (m.shared_gate && m.shared_ffn == 0)
    wrong.add("shared_expert_gate needs shared_expert_intermediate_size, which is 0");
  if (m.groups < 1 || m.experts % m.groups != 0)
    wrong.add("n_group ", m.groups, " does not divide num_experts ", m.experts);
  else if (m.groups > 1 && m.experts / m.groups < 2)
    wrong.add("n_group ", m.groups, " leaves one of num_experts ", m.experts,
              " in a group; a group is chosen by its two best");
  else if (m.chosen_groups < 1 || m.chosen_groups > m.groups)
    wrong.add("topk_group is ", m.chosen_groups, "; it must be from 1 to n_group ", m.groups);
  else if (m.groups > 1 && m.chosen > m.chosen_groups * (m.experts / m.groups))
    wrong.add("num_experts_per_tok is ", m.chosen, ", but topk_group ", m.chosen_groups, " of n_group ", m.groups,
              " groups have ", m.chosen_groups * (m.experts / m.groups), " experts");
  if (m.layers.size() == size_t(s.layers) && std::find(m.layers.begin(), m.layers.end(), 1) == m.layers.end())
    wrong.add("moe_layers has no 1, so that no layer has the experts of num_experts ", m.experts);
}

void add_expert_facts(const Shape& s, Value& f) {
  const ExpertShape& m = s.mixture;
  const bool any = m.experts > 0;
  const auto set = [&](const char* name, Value value) { f.set(name, any ? std::move(value) : Value()); };
  f.set("num_experts", m.experts);
  set("num_experts_per_tok", m.chosen), set("moe_intermediate_size", m.ffn);
  set("shared_expert_intermediate_size", m.shared_ffn), set("shared_expert_gate", m.shared_gate);
  const auto first = std::find(m.layers.begin(), m.layers.end(), 1);
  set("first_k_dense_replace", int64_t(first - m.layers.begin()));
  f.set("moe_layers", Value(Value::Array(m.layers.begin(), m.layers.end())));
  set("norm_topk_prob", m.renormalize), set("router", m.scores == RouterScores::sigmoid ? "sigmoid" : "softmax");
  set("n_group", m.groups), set("topk_group", m.chosen_groups), set("routed_scaling_factor", m.scale);
  set("router_aux_loss_coef", m.balance_weight);
  set("aux_loss", m.balance == BalanceLoss::per_layer ? "per_layer" : "pooled");
  set("router_z_loss_coef", m.z_weight), set("router_bias_update_rate", m.bias_update_rate);
  set("router_forced_balance", m.forced);
}

std::string balance_line(const ExpertShape& m) {
  if (m.forced)
    return "router_forced_balance: experts are chosen in turn and their loads are equal; figures are of forced "
           "balance, "
           "and nothing sensible is learned";
  std::string how;
  if (m.balance_weight > 0)
    how = concat(m.balance == BalanceLoss::pooled ? "a loss over all layers together" : "a loss for each layer",
                 " times ", m.balance_weight);
  if (m.bias_update_rate > 0)
    how += concat(how.empty() ? "" : ", and ", "a bias that moves by ", m.bias_update_rate, " a step");
  if (how.empty())
    return "nothing keeps the loads of the experts equal: router_aux_loss_coef or router_bias_update_rate would";
  if (m.balance_weight > 0 || m.z_weight > 0)
    how += "; the router's losses count all tokens of a micro-batch of a data-parallel rank, padding included";
  if (m.bias_update_rate > 0) how += "; the bias counts all tokens of a step, padding included";
  return "the loads of the experts are kept equal by " + how;
}

}  // namespace drivetrain::gpt
