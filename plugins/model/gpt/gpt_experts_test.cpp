// Mixtures of experts: sizes known from elsewhere, every refusal with its message, what the block is told, and keys of
// folders that say which layers have experts and how their loads are kept equal.
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/plan_record.h>

#include "block_spec.h"
#include "hf_config.h"
#include "test_hf_configs.h"
#include "test_model.h"

namespace drivetrain::test {
namespace {

constexpr const char* kTiny = R"("num_layers": 3, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 64,
  "max_position_embeddings": 32, "normalization": "rmsnorm", "activation": "swiglu", "position_embedding_type": "rope",
  "ffn_hidden_size": 24, "add_bias": false, "untie_embeddings_and_output_weights": true)";
constexpr const char* kExperts = R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8)";

std::string tiny(const std::string& more) { return concat("{", kTiny, more.empty() ? "" : ", ", more, "}"); }
std::string mixed(const std::string& more = "") { return tiny(concat(kExperts, more.empty() ? "" : ", ", more)); }
gpt::Shape shape_of(const std::string& options) {
  static const OptionTable table = gpt::option_table();
  Problems problems;
  const auto parsed = table.parse(parse_json(options, "t"), "model/gpt", "params", problems);
  return gpt::shape_from_options(*static_cast<const gpt::Options*>(parsed.get()), Value());
}

struct Published {
  const char* sizes;
  int64_t parameters, active;
};

// Mixtral-8x7B, OLMoE-1B-7B, Qwen3-30B-A3B: the elements of their files, and active ones of 12.9, 1.3 and 3.3 billion.
TEST(GptExperts, parameters_of_published_models) {
  const Published models[] = {
      {R"("family": "mixtral", "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8,
          "ffn_hidden_size": 14336, "vocab_size": 32000, "num_experts": 8, "num_experts_per_tok": 2)",
       46'702'792'704, 12'879'925'248},
      {R"("family": "olmoe", "num_layers": 16, "hidden_size": 2048, "num_attention_heads": 16, "ffn_hidden_size": 1024,
          "vocab_size": 50304, "num_experts": 64, "num_experts_per_tok": 8)",
       6'919'161'856, 1'282'017'280},
      {R"("family": "qwen3_moe", "num_layers": 48, "hidden_size": 2048, "num_attention_heads": 32,
          "num_query_groups": 4, "kv_channels": 128, "ffn_hidden_size": 6144, "moe_intermediate_size": 768,
          "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8)",
       30'532'122'624, 3'353'032'704}};
  for (const Published& model : models) {
    const ModelFacts f = gpt(concat("{\"max_position_embeddings\": 4096, ", model.sizes, "}"))->facts();
    EXPECT_EQ(f.parameters, model.parameters) << model.sizes;
    EXPECT_EQ(f.parameters_active, model.active) << model.sizes;
    const double unused = static_cast<double>(f.parameters - f.parameters_active);
    EXPECT_EQ(unused, static_cast<double>(f.mixture.parameters) *
                          static_cast<double>(f.mixture.experts - f.mixture.chosen) /
                          static_cast<double>(f.mixture.experts));
  }
}

TEST(GptExperts, facts_count_what_is_built) {
  for (const char* more :
       {R"("first_k_dense_replace": 1)", R"("moe_layers": [0, 1, 0], "shared_expert_intermediate_size": 12)",
        R"("shared_expert_intermediate_size": 12, "shared_expert_gate": true)", R"("qk_norm": "heads")"}) {
    const auto model = gpt(mixed(more));
    const BuiltModel built(*model);
    int64_t count = 0, experts = 0;
    for (const ParamPtr& param : built.chain.all()) {
      count += param->layout.global_numel();
      if (param->role == ParamRole::expert) experts += param->layout.global_numel();
    }
    EXPECT_EQ(model->facts().parameters, count) << more;
    EXPECT_EQ(model->facts().mixture.parameters, experts) << more;
  }
}

// 6 per parameter of a product that a token passes: the router, the experts that it chose, and the shared one.
TEST(GptExperts, work_counts_experts_that_a_token_passes) {
  const ModelFacts dense = gpt(tiny(""))->facts(),
                   all = gpt(mixed(R"("shared_expert_intermediate_size": 12, "shared_expert_gate": true)"))->facts();
  const double expert = 3 * 8 * 16, shared = 3 * 12 * 16 + 16, router = 4 * 16, mlp = 3 * 24 * 16;
  EXPECT_EQ(all.flops_per_token_fixed - dense.flops_per_token_fixed, 6 * 3 * (2 * expert + shared + router - mlp));
  EXPECT_NE(all.flops_formula.find("of experts the 2 that a token passes"), std::string::npos);
  // A layer without experts costs another time than one with them.
  const auto model = gpt(mixed(R"("first_k_dense_replace": 1)"));
  BuiltModel built(*model);
  EXPECT_EQ(model->cost(*built.chain.units[2]) - model->cost(*built.chain.units[1]), 2 * expert + router - mlp);
  EXPECT_EQ(model->cost(*built.chain.units[3]), model->cost(*built.chain.units[2]));
}

TEST(GptExperts, blocks_are_told_of_their_router_and_experts) {
  const gpt::Shape s = shape_of(mixed(R"("moe_layers": [1, 0, 1], "router": "sigmoid", "n_group": 2, "topk_group": 1,
    "routed_scaling_factor": 2.5, "norm_topk_prob": true, "router_bias_update_rate": 0.001, "router_z_loss_coef": 0.01,
    "shared_expert_intermediate_size": 12)"));
  EXPECT_FALSE(gpt::block_spec(s, 1, 0).mixture.has_value());
  const MixtureSpec last = gpt::block_spec(s, 2, 0).mixture.value();
  EXPECT_EQ(last.router.name, "block.2.mlp.router");
  EXPECT_EQ(last.router.index, 1);
  EXPECT_EQ(last.router.layers, 2);
  EXPECT_EQ(last.router.scores, RouterScores::sigmoid);
  EXPECT_EQ(last.router.groups, 2);
  EXPECT_EQ(last.router.chosen_groups, 1);
  EXPECT_EQ(last.router.scale, 2.5);
  EXPECT_TRUE(last.router.renormalize);
  EXPECT_EQ(last.router.bias_update_rate, 0.001);
  EXPECT_EQ(last.router.z_weight, 0.01);
  EXPECT_EQ(last.router.balance, BalanceLoss::none) << "the bias does it";
  EXPECT_EQ(last.experts.ffn, 8);
  EXPECT_EQ(last.shared_ffn, 12);
  const RouterSpec usual = gpt::block_spec(shape_of(mixed()), 0, 0).mixture->router;
  EXPECT_EQ(usual.balance, BalanceLoss::pooled);
  EXPECT_EQ(usual.balance_weight, 0.001);
  const RouterSpec both = gpt::block_spec(shape_of(mixed(R"("router_aux_loss_coef": 0.02, "aux_loss": "per_layer",
    "router_bias_update_rate": 0.001)")),
                                          0, 0)
                              .mixture->router;
  EXPECT_EQ(both.balance, BalanceLoss::per_layer);
  EXPECT_EQ(both.balance_weight, 0.02);
}

TEST(GptExperts, options_that_do_not_fit_are_refused) {
  const std::pair<std::string, const char*> cases[] = {
      {tiny(R"("num_experts_per_tok": 2)"), "num_experts_per_tok is of mixtures of experts, and num_experts is 0"},
      {tiny(R"("router": "sigmoid", "aux_loss": "pooled")"), "router, aux_loss are of mixtures of experts"},
      {tiny(R"("num_experts": 4)"), "num_experts is 4, and num_experts_per_tok is missing"},
      {tiny(R"("num_experts": 4, "num_experts_per_tok": 5)"),
       "num_experts_per_tok is 5; it must be from 1 to num_experts 4"},
      {mixed(R"("n_group": 3)"), "n_group 3 does not divide num_experts 4"},
      {mixed(R"("n_group": 4)"), "leaves one of num_experts 4 in a group"},
      {mixed(R"("n_group": 2, "topk_group": 3)"), "topk_group is 3; it must be from 1 to n_group 2"},
      {tiny(R"("num_experts": 4, "num_experts_per_tok": 3, "n_group": 2, "topk_group": 1)"),
       "num_experts_per_tok is 3, but topk_group 1 of n_group 2 groups have 2 experts"},
      {mixed(R"("shared_expert_gate": true)"), "shared_expert_gate needs shared_expert_intermediate_size"},
      {mixed(R"("first_k_dense_replace": 3)"), "so that none of num_layers 3 has experts"},
      {mixed(R"("first_k_dense_replace": 2, "moe_layers": [0, 1, 1])"),
       "first_k_dense_replace is 2, and moe_layers begins with 1"},
      {mixed(R"("moe_layers": [0, 1])"), "moe_layers has 2 entries; it needs one for each of num_layers 3"},
      {mixed(R"("moe_layers": [0, 0, 0])"), "moe_layers has no 1"},
      {mixed(R"("add_mlp_bias": true)"), "every layer has experts, which have no biases"}};
  for (const auto& [options, wanted] : cases) {
    const std::string refusal = error_of([&, o = options] { gpt(o); });
    EXPECT_NE(refusal.find(wanted), std::string::npos) << options << "\n" << refusal;
  }
}

TEST(GptExperts, resolved_options_give_the_same_model) {
  const Host host;
  const auto& entry = static_cast<const DrivetrainDescriptor*>(drivetrain_plugin)->entries[0];
  const auto& table = *static_cast<const OptionTable*>(entry.options());
  for (const std::string& options :
       {mixed(R"("moe_layers": [1, 0, 1], "router_bias_update_rate": 0.001)"),
        mixed(R"("first_k_dense_replace": 1, "aux_loss": "per_layer", "shared_expert_intermediate_size": 12)"),
        mixed()}) {
    Problems problems;
    const Value resolved = table.to_value(table.parse(parse_json(options, "t"), "model/gpt", "params", problems).get());
    EXPECT_EQ(gpt::facts_of(shape_of(resolved.to_json())), gpt::facts_of(shape_of(options)));
    for (const char* option : {"moe_layers", "router_aux_loss_coef", "aux_loss", "n_group", "norm_topk_prob"})
      EXPECT_FALSE(resolved.find(option)->is_null()) << option;
  }
}

TEST(GptExperts, the_plan_says_how_loads_are_kept_equal) {
  const auto lines = [](const std::string& options) {
    const auto model = gpt(options);
    PlanRecord plan(model->facts(), RunFacts());
    model->plan(plan);
    std::string all;
    for (const auto& note : plan.costs()) all += note.text + "\n";
    return all;
  };
  EXPECT_NE(lines(mixed()).find("a loss over all layers together times 0.001; the router's losses count all tokens"),
            std::string::npos);
  EXPECT_NE(lines(mixed(R"("router_aux_loss_coef": 0)")).find("nothing keeps the loads"), std::string::npos);
  EXPECT_NE(lines(mixed(R"("router_forced_balance": true)")).find("figures are of forced balance"), std::string::npos);
  EXPECT_EQ(lines(tiny("")).find("experts"), std::string::npos);
}

// Qwen's files say which layers have none in two ways.
TEST(GptExperts, layers_without_them_are_those_of_the_file) {
  const auto layers = [](const char* more) {
    Value config = whole_config("qwen2_moe");
    config.erase("layer_types"), config.set("num_hidden_layers", 4);
    const Value members = parse_json(more, "test");
    for (const Value::Member& member : members.members()) config.set(member.key, member.value);
    const gpt::FolderConfig read = gpt::parse_config(config, "F");
    const Value written = gpt::write_config(*read.family, read.shape, Value());
    EXPECT_EQ(gpt::facts_of(gpt::parse_config(written, "W").shape), gpt::facts_of(read.shape));
    return read.shape.mixture.layers;
  };
  using List = std::vector<int64_t>;
  EXPECT_EQ(layers(R"({"mlp_only_layers": []})"), List());
  EXPECT_EQ(layers(R"({"mlp_only_layers": null, "decoder_sparse_step": 2})"), (List{0, 1, 0, 1}));
  EXPECT_EQ(layers(R"({"mlp_only_layers": [3], "decoder_sparse_step": 2})"), (List{0, 1, 0, 0}));
  EXPECT_NE(error_of([&] { layers(R"({"mlp_only_layers": [4]})"); }).find("there is no such layer"), std::string::npos);
  EXPECT_NE(error_of([&] { layers(R"({"decoder_sparse_step": 5})"); }).find("no layer has experts"), std::string::npos);
}

// router_aux_loss_coef of a file counts where transformers would add the loss; that of the run replaces it.
TEST(GptExperts, the_loss_of_a_file_is_that_of_transformers) {
  const auto read = [](bool output, const char* option) {
    Value config = whole_config("mixtral");
    config.set("output_router_logits", output);
    const gpt::FolderConfig folder = gpt::parse_config(config, "F");
    gpt::Options options;
    if (*option) options.router_aux_loss_coef = std::stod(option);
    const gpt::Shape shape = gpt::shape_from_folder(options, folder.shape, "F");
    const Value written = gpt::write_config(*folder.family, shape, config);
    return concat(shape.mixture.balance_weight, " ", written.find("router_aux_loss_coef")->to_json(), " ",
                  written.find("output_router_logits")->to_json());
  };
  EXPECT_EQ(read(true, ""), "0.1 0.1 true");
  EXPECT_EQ(read(false, ""), "0 0.1 false") << "the file stays as it was";
  EXPECT_EQ(read(false, "0.02"), "0.02 0.02 true");
  EXPECT_EQ(read(true, "0"), "0 0.1 false");

  Value negative = whole_config("mixtral");
  negative.set("router_aux_loss_coef", -1.0);
  const std::string refusal = error_of([&] { gpt::parse_config(negative, "F"); });
  EXPECT_NE(refusal.find("\"router_aux_loss_coef\": -1"), std::string::npos) << refusal;
}

TEST(GptExperts, every_row_of_theirs_is_one_row_of_a_parameter) {
  const gpt::FolderConfig folder = gpt::parse_config(whole_config("qwen2_moe"), "F");
  const WeightRules rules = gpt::weight_rules(*folder.family, folder.shape);
  std::map<std::string, int64_t> rows;
  for (const WeightRule& rule : rules.rules)
    for (const WeightPart& part : rule.parts) {
      EXPECT_EQ(part.first, 0) << part.name;
      EXPECT_TRUE(rows.emplace(part.name, part.rows).second) << part.name;
    }
  EXPECT_EQ(rows.at("layers.0.mlp.up_proj.weight"), 40);
  EXPECT_EQ(rows.at("layers.2.mlp.experts.5.up_proj.weight"), 20);
  EXPECT_EQ(rows.at("layers.2.mlp.experts.5.down_proj.weight"), 24);
  EXPECT_EQ(rows.at("layers.1.mlp.shared_expert_gate.weight"), 1);
  EXPECT_FALSE(rows.contains("layers.0.mlp.gate.weight"));
  EXPECT_FALSE(rows.contains("layers.1.mlp.experts.6.up_proj.weight"));
  for (const WeightRule& rule : rules.rules)
    if (rule.param == "block.1.mlp.experts.fc.weight") {
      EXPECT_EQ(rule.parts[2].name, "layers.1.mlp.experts.1.gate_proj.weight");
      EXPECT_EQ(rule.parts[3].name, "layers.1.mlp.experts.1.up_proj.weight");
    }
}

TEST(GptExperts, families_hold_what_they_can_say) {
  const auto family = [](const std::string& options) { return gpt::family_of(shape_of(options))->model_type; };
  const std::string alike = R"("num_experts": 4, "num_experts_per_tok": 2, )";
  EXPECT_EQ(family(tiny(alike + R"("norm_topk_prob": true)")), "mixtral");
  EXPECT_EQ(family(tiny(alike + R"("qk_norm": "heads")")), "olmoe");
  EXPECT_EQ(family(mixed(R"("norm_topk_prob": true)")), "mixtral") << "no layer has an MLP of ffn_hidden_size";
  EXPECT_EQ(family(mixed(R"("qk_norm": "head", "first_k_dense_replace": 1)")), "qwen3_moe");
  const std::string refusal = error_of([&] { family(mixed(R"("router": "sigmoid", "qk_norm": "head")")); });
  EXPECT_NE(refusal.find("The nearest is Qwen3-MoE, which cannot say router \"sigmoid\""), std::string::npos)
      << refusal;
  const std::string none = error_of([&] { gpt(tiny(R"("family": "mixtral")")); });
  EXPECT_NE(none.find("family Mixtral cannot say"), std::string::npos) << none;
  EXPECT_NE(none.find("num_experts 0"), std::string::npos) << none;
}

}  // namespace
}  // namespace drivetrain::test
