// From options to shape: sizes known from elsewhere, aliases, and every refusal with its message.
#include <gtest/gtest.h>

#include <drivetrain/model.h>

#include "experts.h"
#include "test_model.h"

namespace drivetrain::test {
namespace {

constexpr const char* kTiny =
    R"("num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 64)";
constexpr const char* kLlama =
    R"("normalization": "rmsnorm", "activation": "swiglu", "position_embedding_type": "rope", "add_bias": false, )";

std::unique_ptr<Model> gpt_of(const std::string& options) { return gpt("{" + options + "}"); }

std::string refusal(const std::string& options) {
  return error_of([&] { gpt_of(options); });
}
void expect_refused(const std::string& options, const std::string& part) {
  const std::string text = refusal(options);
  EXPECT_NE(text.find(part), std::string::npos) << "found: " << text << "\nwanted: " << part;
}

TEST(GptFacts, parameters_of_published_models) {
  EXPECT_EQ(gpt_of(R"("n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024)")
                ->facts()
                .parameters,
            124439808);
  EXPECT_EQ(
      gpt_of(R"("n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257, "n_ctx": 1024)")->facts().parameters,
      1557611200);
  const std::string llama = kLlama;
  EXPECT_EQ(gpt_of(llama +
                   R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
                "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "rope_theta": 5e5,
                "untie_embeddings_and_output_weights": true)")
                ->facts()
                .parameters,
            8030261248);
  EXPECT_EQ(gpt_of(llama + R"("num_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_query_groups": 8,
                "ffn_hidden_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192)")
                ->facts()
                .parameters,
            1235814400);
}

// Megatron-LM's model FLOPs, as computed by others for these shapes.
TEST(GptFacts, flops_per_token_match_the_known_figures) {
  const auto gflops = [](int64_t L, int64_t h, int64_t a, int64_t k, int64_t ffn, int64_t V) {
    const ModelFacts f =
        gpt_of(concat(kLlama, "\"num_layers\":", L, ",\"hidden_size\":", h, ",\"num_attention_heads\":", a,
                      ",\"num_query_groups\":", k, ",\"ffn_hidden_size\":", ffn, ",\"vocab_size\":", V,
                      ",\"max_position_embeddings\":8192"))
            ->facts();
    return (f.flops_per_token_fixed + f.flops_per_token_S * 8192) / 1e9;
  };
  EXPECT_NEAR(gflops(32, 4096, 32, 32, 11008, 32000), 46.084915, 1e-6);
  EXPECT_NEAR(gflops(60, 7168, 56, 8, 20480, 64000), 224.715080, 1e-6);
  EXPECT_NEAR(gflops(80, 8192, 64, 8, 28672, 32000), 444.491366, 1e-6);
}

TEST(GptFacts, count_what_is_built) {
  const std::string sizes = kTiny;
  for (const std::string& more :
       {std::string(), std::string(R"(, "add_bias": false)"),
        std::string(R"(, "add_bias": false, "add_qkv_bias": true, "num_query_groups": 2)"),
        std::string(R"(, "activation": "swiglu", "kv_channels": 24)"),
        std::string(R"(, "position_embedding_type": "rope", "normalization": "rmsnorm")"),
        std::string(R"(, "untie_embeddings_and_output_weights": true, "ffn_hidden_size": 37)"),
        std::string(R"(, "norm_placement": "after", "qk_norm": "heads", "num_query_groups": 2)"),
        std::string(R"(, "norm_placement": "both", "qk_norm": "head", "kv_channels": 24, "normalization": "rmsnorm")"),
        std::string(R"(, "norm_gain": false, "norm_bias": false, "add_bias": false, "add_mlp_bias": true)"),
        std::string(
            R"(, "norm_bias": false, "use_parallel_residual": true, "add_bias": false, "add_proj_bias": true)")}) {
    const auto model = gpt_of(sizes + more);
    const BuiltModel built(*model);
    int64_t count = 0;
    for (const ParamPtr& param : built.chain.all()) count += param->layout.global_numel();
    EXPECT_EQ(model->facts().parameters, count) << more;
    EXPECT_EQ(built.chain.units.size(), 4u);
  }
}

TEST(GptOptions, defaults_follow_megatron) {
  const ModelFacts f = gpt_of(kTiny)->facts();
  EXPECT_EQ(f.num_query_groups, 4);
  EXPECT_EQ(f.head_dim, 16);
  EXPECT_EQ(f.ffn_hidden_size, 256);
  EXPECT_EQ(gpt_of(std::string(kTiny) + R"(, "activation": "swiglu")")->facts().ffn_hidden_size, 128);
  EXPECT_EQ(f.hidden_dropout, 0);
}

TEST(GptOptions, resolved_options_are_complete_and_give_the_same_model) {
  const Host host;
  const auto& entry = static_cast<const DrivetrainDescriptor*>(drivetrain_plugin)->entries[0];
  const auto& table = *static_cast<const OptionTable*>(entry.options());
  for (const std::string& options :
       {"{" + std::string(kTiny) + "}", std::string("{\"from\": \"" DRIVETRAIN_GOLDEN_DIR "/llama_tiny/model\"}")}) {
    Problems problems;
    const Value resolved = table.to_value(table.parse(parse_json(options, "t"), "model/gpt", "params", problems).get());
    const bool from = options.find("from") != std::string::npos;  // rope that is not stretched; else learned positions
    static const OptionTable of_experts =
        gpt::with_expert_options(drivetrain::table<gpt::Options>());  // there are none
    for (const Value::Member& m : resolved.members())
      EXPECT_EQ(m.value.is_null(), (of_experts.find(m.key) && m.key != "num_experts" && m.key != "moe_layers") ||
                                       m.key == "rope_scaling" || m.key == "family" || m.key == "rotary_local_base" ||
                                       m.key == "resize_embeddings" ||
                                       (!from && (m.key == "from" || m.key == "rotary_base")))
          << m.key;
    const auto again = make_plugin_from<Model>(host, "gpt", resolved), once = make_plugin<Model>(host, "gpt", options);
    EXPECT_EQ(again->facts().parameters, once->facts().parameters);
    EXPECT_EQ(again->weight_rules("hf").config.to_json(), once->weight_rules("hf").config.to_json());
  }
}

TEST(GptOptions, what_does_not_fit_is_shown_with_its_place) {
  expect_refused(concat(kTiny, ",\n\"num_query_groups\": 3"),
                 "test:1:1  model/gpt: options that do not fit each other:");
}

TEST(GptOptions, every_missing_size_is_named_at_once) {
  const std::string text = refusal(R"("hidden_size": 64)");
  for (const char* name : {"num_layers", "num_attention_heads", "vocab_size", "max_position_embeddings", "\"from\""})
    EXPECT_NE(text.find(name), std::string::npos) << name << " in: " << text;
}

TEST(GptOptions, sizes_that_do_not_fit_are_refused) {
  const std::string rest = R"(, "num_layers": 1, "vocab_size": 256, "max_position_embeddings": 8)";
  expect_refused(R"("hidden_size": 64, "num_attention_heads": 5)" + rest,
                 "num_attention_heads 5 does not divide hidden_size 64");
  expect_refused(R"("hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 3)" + rest,
                 "num_query_groups 3 does not divide num_attention_heads 4");
  expect_refused(R"("hidden_size": 36, "num_attention_heads": 4, "position_embedding_type": "rope")" + rest,
                 "the head dimension (kv_channels) is 9, but position_embedding_type rope turns pairs: make it even");
  expect_refused(R"("hidden_size": 8, "num_attention_heads": 2, "activation": "swiglu")" + rest,
                 "ffn_hidden_size has no default for swiglu with hidden_size 8");
  expect_refused(R"("hidden_size": 64, "num_attention_heads": 4, "rotary_base": 1e4)" + rest,
                 "rotary_base is set, but position_embedding_type is learned");
}

TEST(GptOptions, switches_that_do_not_go_together_are_refused) {
  const std::string rope = std::string(kTiny) + R"(, "position_embedding_type": "rope")";
  expect_refused(rope + R"(, "rotary_percent": 0.2)", "rotary_percent 0.2 of the head dimension (kv_channels) 16 is 3");
  expect_refused(rope + R"(, "rotary_layers": [1])",
                 "rotary_layers has 1 entries; it needs one for each of num_layers 2");
  expect_refused(rope + R"(, "window_layers": [1, 0])", "window_layers need sliding_window");
  expect_refused(rope + R"(, "normalization": "rmsnorm", "norm_bias": true)", "an rmsnorm has no bias");
  expect_refused(rope + R"(, "norm_placement": "both", "use_parallel_residual": true)", "needs norm_placement before");
  expect_refused(std::string(kTiny) + R"(, "rotary_local_base": 1e4)", "need position_embedding_type rope");
  expect_refused(rope + R"(, "rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [2]})",
                 "rope_scaling has 1 factors of longrope, but 8 pairs turn");
  for (const char* added : {"rotary_percent", "embedding_multiplier", "rotary_base"})
    EXPECT_EQ(refusal(rope + concat(", \"", added, "\": 1")), "") << added;
}

TEST(GptFacts, windows_are_told_with_their_share_of_the_work) {
  const auto facts = [](const std::string& more) { return gpt_of(std::string(kTiny) + more)->facts(); };
  const ModelFacts whole = facts(""), one = facts(R"(, "sliding_window": 16, "window_layers": [1, 0])");
  ASSERT_EQ(one.windowed.size(), 1u);
  EXPECT_EQ(one.windowed[0].window, 16);
  EXPECT_EQ(one.windowed[0].flops_per_token_S + one.flops_per_token_S, whole.flops_per_token_S);
  EXPECT_EQ(one.flops_per_token(16), whole.flops_per_token(16));
  EXPECT_LT(one.flops_per_token(64), whole.flops_per_token(64));
  EXPECT_TRUE(facts(R"(, "sliding_window": 64)").windowed.empty()) << "no position is beyond it";
  EXPECT_EQ(facts(R"(, "attn_logit_softcapping": 50)").attention_softcap, 50);
}

TEST(GptOptions, zero_sizes_are_refused) {
  for (const char* name : {"num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "kv_channels",
                           "ffn_hidden_size", "vocab_size", "max_position_embeddings"})
    expect_refused(concat("\"", name, "\": 0"), concat(name, " is 0, but model/gpt takes 1 to "));
}

TEST(GptOptions, sizes_whose_products_overflow_are_refused) {
  const std::string rest = R"(, "num_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64)";
  expect_refused(R"("hidden_size": 64, "vocab_size": 1e18)" + rest,
                 "vocab_size is 1e+18, but model/gpt takes 1 to 2147483647");
  expect_refused(R"("hidden_size": 8e18, "vocab_size": 256)" + rest, "hidden_size is 8e+18, but");
  expect_refused(R"("num_layers": 100000000)", "num_layers is 100000000, but model/gpt takes 1 to 10000");
  expect_refused(R"("hidden_size": 2147483648, "vocab_size": 256)" + rest, "but model/gpt takes 1 to 2147483647");
  expect_refused(R"("hidden_size": 2e9, "vocab_size": 256)" + rest, "parameters; more than 1e+15 cannot be counted");
}

TEST(GptOptions, other_weight_formats_are_refused) {
  const std::string text = error_of([] { gpt_of(kTiny)->weight_rules("gguf"); });
  for (const char* const word : {"\"hf\"", "\"megatron_core\"", "not \"gguf\""})
    EXPECT_NE(text.find(word), std::string::npos) << text;
}

}  // namespace
}  // namespace drivetrain::test
