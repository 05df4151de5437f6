// The rows of Megatron-LM's tensors that our parameters are made of, by its formula: per key/value head its queries,
// its key, its value.
#include <gtest/gtest.h>

#include <map>

#include "megatron_rules.h"
#include "support/plugin_under_test.h"

namespace drivetrain::gpt {
namespace {

Shape shape_of(int64_t heads, int64_t groups, bool llama) {
  Shape s;
  s.layers = 2, s.heads = heads, s.groups = groups, s.head_dim = 6, s.hidden = 20, s.ffn = 28, s.vocab = 50;
  s.positions = 9;
  if (llama)
    s.rms = s.rotary = true, s.qkv_bias = s.proj_bias = s.mlp_bias = s.norm_bias = s.tied = false,
    s.activation = "swiglu";
  return s;
}

TEST(GptMegatron, every_row_of_a_tensor_is_one_row_of_a_parameter) {
  for (const auto& [heads, groups, llama] : {std::tuple{4, 4, false}, {4, 2, true}, {6, 1, true}, {3, 3, true}}) {
    std::map<std::string, std::map<int64_t, int64_t>> used;  // by tensor, where parts begin and end
    for (const WeightRule& rule : megatron_rules(shape_of(heads, groups, llama)).rules)
      for (const WeightPart& part : rule.parts)
        EXPECT_TRUE(used[part.name].emplace(part.first, part.first + part.rows).second) << part.name;
    for (const auto& [name, parts] : used) {
      int64_t row = 0;
      for (const auto& [first, end] : parts) {
        EXPECT_EQ(first, row) << name;
        row = end;
      }
    }
    EXPECT_EQ(used.size(), llama ? 3u + 2 * 6 : 4u + 2 * 12);
  }
}

TEST(GptMegatron, queries_keys_and_values_stand_by_group) {
  const Shape s = shape_of(6, 2, true);
  const int64_t each = s.heads / s.groups, C = s.head_dim;
  const WeightRules rules = megatron_rules(s);
  std::vector<int64_t> rows;  // theirs, in our order
  for (const WeightRule& rule : rules.rules)
    if (rule.param == "block.1.attn.qkv.weight")
      for (const WeightPart& part : rule.parts) {
        EXPECT_EQ(part.name, "decoder.layers.1.self_attention.linear_qkv.weight");
        for (int64_t i = 0; i < part.rows; ++i) rows.push_back(part.first + i);
      }
  std::vector<int64_t> wanted;
  for (int64_t h = 0; h < s.heads; ++h)
    for (int64_t c = 0; c < C; ++c) wanted.push_back(((h / each) * (each + 2) + h % each) * C + c);
  for (int64_t value = 0; value < 2; ++value)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t c = 0; c < C; ++c) wanted.push_back((g * (each + 2) + each + value) * C + c);
  EXPECT_EQ(rows, wanted);
}

Shape with_experts() {
  Shape s = shape_of(6, 2, true);
  s.mixture.experts = 4, s.mixture.chosen = 2, s.mixture.ffn = 10, s.mixture.renormalize = true;
  s.mixture.shared_ffn = 8, s.mixture.shared_gate = true, s.mixture.layers = {0, 1};
  return s;
}

TEST(GptMegatron, experts_stand_one_after_another) {
  std::map<std::string, std::vector<std::string>> names;
  for (const WeightRule& rule : megatron_rules(with_experts()).rules)
    for (const WeightPart& part : rule.parts) names[rule.param].push_back(part.name);
  EXPECT_EQ(names.at("block.0.mlp.fc.weight").front(), "decoder.layers.0.mlp.linear_fc1.weight");
  EXPECT_EQ(names.at("block.1.mlp.experts.proj.weight").size(), 4u);
  EXPECT_EQ(names.at("block.1.mlp.experts.proj.weight")[3],
            "decoder.layers.1.mlp.experts.local_experts.3.linear_fc2.weight");
  EXPECT_EQ(names.at("block.1.mlp.router.weight").front(), "decoder.layers.1.mlp.router.weight");
  EXPECT_EQ(names.at("block.1.mlp.shared_gate.weight").front(), "decoder.layers.1.mlp.shared_experts.gate_weight");
  const Value facts = megatron_facts(with_experts());
  EXPECT_EQ(facts.find("moe_layer_freq")->to_json(), "[0,1]");
  EXPECT_FALSE(facts.find("moe_router_pre_softmax")->as_bool());
}

// Its groups are chosen by as many of their best as a token then has of each; with sigmoid scores weights have the sum
// 1.
TEST(GptMegatron, routers_that_it_has_not_are_refused) {
  const auto refusal = [](const auto& change) {
    Shape s = with_experts();
    change(s.mixture);
    return test::error_of([&] { megatron_rules(s); });
  };
  const auto sigmoid = [](ExpertShape& m) { m.scores = RouterScores::sigmoid, m.groups = 2, m.chosen_groups = 1; };
  EXPECT_EQ(refusal(sigmoid), "");
  EXPECT_NE(refusal([&](ExpertShape& m) { sigmoid(m), m.renormalize = false; }).find("norm_topk_prob"),
            std::string::npos);
  EXPECT_NE(refusal([&](ExpertShape& m) { m.groups = m.chosen_groups = 2; }).find("n_group"), std::string::npos);
}

TEST(GptMegatron, what_its_files_have_no_place_for_is_refused_by_name) {
  Shape s = shape_of(6, 2, true);
  s.norms = NormPlacement::both, s.qk_norm = NormOver::heads, s.window = 4, s.window_layers = {0, 1},
  s.logit_softcap = 30;
  const std::string refusal = test::error_of([&] { megatron_rules(s); });
  for (const char* option : {"norm_placement", "qk_norm", "sliding_window", "final_logit_softcapping"})
    EXPECT_NE(refusal.find(option), std::string::npos) << refusal;
}

// Its norms are of the kind of all others: RMS norms are ours, layer norms are not.
TEST(GptMegatron, norms_of_queries_and_keys_have_a_weight_for_all_heads) {
  Shape s = shape_of(6, 2, true);
  EXPECT_FALSE(megatron_facts(s).find("qk_layernorm")->as_bool());
  s.qk_norm = NormOver::head;
  std::map<std::string, WeightPart> parts;
  for (const WeightRule& rule : megatron_rules(s).rules)
    if (rule.param.find(".attn.") != std::string::npos && rule.param.find("_norm.") != std::string::npos)
      parts[rule.param] = rule.parts.front();
  EXPECT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts.at("block.1.attn.q_norm.weight").name, "decoder.layers.1.self_attention.q_layernorm.weight");
  EXPECT_EQ(parts.at("block.0.attn.k_norm.weight").name, "decoder.layers.0.self_attention.k_layernorm.weight");
  EXPECT_EQ(parts.at("block.0.attn.k_norm.weight").rows, s.head_dim);
  EXPECT_TRUE(megatron_facts(s).find("qk_layernorm")->as_bool());
  s.rms = false, s.norm_bias = true;
  EXPECT_NE(test::error_of([&] { megatron_rules(s); }).find("qk_norm with normalization layernorm"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::gpt
