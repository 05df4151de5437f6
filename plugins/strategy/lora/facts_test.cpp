// What strategy/lora says of a model with adapters: known numbers of PEFT's adapters, and the work that frozen matrices
// save.
#include <gtest/gtest.h>

#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

ModelFacts changed(const std::string& options, ModelFacts facts) {
  const Host host;
  make_plugin<Strategy>(host, "lora", options)->change_facts(facts);
  return facts;
}

ModelFacts gpt2() {
  ModelFacts f;
  f.num_layers = 12, f.hidden_size = 768, f.num_attention_heads = 12, f.num_query_groups = 12, f.head_dim = 64;
  f.ffn_hidden_size = 3072, f.vocab_size = 50257, f.parameters = 124'439'808;
  f.flops_per_token_fixed = 6.0 * (12 * 12 * 768 * 768 + 50257 * 768);
  return f;
}

ModelFacts llama3_8b() {
  ModelFacts f;
  f.num_layers = 32, f.hidden_size = 4096, f.num_attention_heads = 32, f.num_query_groups = 8, f.head_dim = 128;
  f.ffn_hidden_size = 14336, f.vocab_size = 128'256, f.parameters = 8'030'261'248;
  const double block = 4096.0 * (2 * 4096 + 2 * 1024 + 3 * 14336);
  f.flops_per_token_fixed = 6 * (32 * block + 128'256.0 * 4096);
  return f;
}

TEST(LoraFacts, count_the_parameters_that_peft_prints) {
  const auto added = [](const std::string& options, const ModelFacts& facts) {
    return changed(options, facts).parameters - facts.parameters;
  };
  EXPECT_EQ(added(R"({"r": 16, "targets": "all-linear"})", gpt2()), 2'359'296);
  EXPECT_EQ(added(R"({"r": 8})", gpt2()), 294'912);
  EXPECT_EQ(added(R"({"r": 16, "targets": "all-linear"})", llama3_8b()), 41'943'040);
  EXPECT_EQ(added(R"({"r": 8})", llama3_8b()), 3'407'872);
  EXPECT_EQ(added(R"({"r": 8, "layers_to_transform": [0, 31]})", llama3_8b()), 3'407'872 / 16);
  ModelFacts experts = llama3_8b();
  experts.mixture = {8, 2, 30, 1000};  // the first two blocks have an MLP
  EXPECT_EQ(added(R"({"r": 16, "targets": "all-linear"})", experts), 41'943'040 - 30 * 3 * 16 * (14336 + 4096));
  EXPECT_EQ(added(R"({"r": 8, "targets": ["no_such_layer"]})", gpt2()), 0) << "is refused with the model at hand";
}

TEST(LoraFacts, frozen_matrices_have_two_of_three_products) {
  const double matrices = gpt2().flops_per_token_fixed / 6, adapters = 2'359'296, head = 50257.0 * 768;
  EXPECT_EQ(changed(R"({"r": 16, "targets": "all-linear"})", gpt2()).flops_per_token_fixed,
            4 * matrices + 6 * adapters);
  EXPECT_EQ(changed(R"({"r": 16, "targets": ["c_attn", "c_proj", "c_fc"], "modules_to_save": ["lm_head"]})", gpt2())
                .flops_per_token_fixed,
            4 * matrices + 6 * adapters + 2 * head);
  ModelFacts experts = gpt2();
  experts.parameters_active = 1'000'000;
  EXPECT_EQ(changed(R"({"r": 8})", experts).parameters_active, 1'294'912);
}

}  // namespace
}  // namespace drivetrain
