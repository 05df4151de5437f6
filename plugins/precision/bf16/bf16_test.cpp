// precision/bf16: its types and options, exact masters, and whole runs beside float32 ones.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include <drivetrain/flat_unit.h>
#include <drivetrain/mesh.h>
#include <drivetrain/precision.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/weight_grad.h>

#include "support/plugin_under_test.h"
#include "support/temp_folder.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// Relative distance of neighbouring bfloat16 numbers, at most.
constexpr double kUlp = 0x1p-7;

Value config(const TempFolder& folder, const std::string& name, const std::string& more) {
  Value value = parse_json(R"({
    "train_steps": 20, "seed": 7, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "vocab_size": 96,
              "max_position_embeddings": 32}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 32}},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}})",
                           "test");
  const Value further = parse_json(more, "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("output_dir", folder.path(name));
  return value;
}

double figure(const RunResult& run, size_t step, const char* name) {
  return run.metrics.at(step).find(name)->as_double();
}

// Losses within 0.5 % and gradient norms within 5 % of float32's: each activation is rounded to 8 bits, their sums are
// not.
void expect_same_curve(const RunResult& bf16, const RunResult& float32) {
  ASSERT_EQ(bf16.metrics.size(), float32.metrics.size());
  for (size_t i = 0; i < float32.metrics.size(); ++i) {
    const double loss = figure(float32, i, "loss"), norm = figure(float32, i, "grad_norm");
    EXPECT_NEAR(figure(bf16, i, "loss"), loss, 0.005 * loss) << "step " << i + 1;
    EXPECT_NEAR(figure(bf16, i, "grad_norm"), norm, 0.05 * norm) << "step " << i + 1;
  }
}

struct Bf16 : ::testing::Test {
  Host host;
  std::string refusal(const std::string& json) {
    return error_of([&] { make_plugin<Precision>(host, "bf16", json); });
  }
};

TEST_F(Bf16, computes_in_bfloat16_and_keeps_float32) {
  const Dtypes types = make_plugin<Precision>(host, "bf16")->dtypes();
  EXPECT_EQ(types.param, at::kBFloat16);
  for (const at::ScalarType type : {types.grad, types.reduce, types.master}) EXPECT_EQ(type, at::kFloat);
}

TEST_F(Bf16, takes_deepspeeds_options_where_they_say_what_happens) {
  EXPECT_EQ(refusal(R"({"immediate_grad_update": false, "check_grad_overflow": true, "bf16_optimizer_states": false})"),
            "");
  EXPECT_NE(refusal(R"({"check_grad_overflow": false})").find("check_grad_overflow = false is not in this version"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"bf16_master_weights_and_grads": true})")
                .find("bf16_master_weights_and_grads = true is not in this version"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"bf16_optimizer_states": true})").find("moments are float32"), std::string::npos);
  EXPECT_NE(refusal(R"({"enable": true})").find("enable"), std::string::npos);
}

TEST_F(Bf16, masters_add_up_updates_that_are_smaller_than_a_step_of_bfloat16) {
  const auto param = std::make_shared<Param>("w", Layout::whole({4}), InitRule::ones());
  const Mesh mesh({}, 0, 1, nullptr);
  FlatOptions options;
  options.dtypes = make_plugin<Precision>(host, "bf16")->dtypes();
  const FlatUnit flat({param}, mesh, options);
  const Trainable t = flat.trainables().at(0);
  ASSERT_EQ(t.value.scalar_type(), at::kFloat);
  ASSERT_EQ(param->tensor.scalar_type(), at::kBFloat16);
  t.value.fill_(1);
  for (int i = 1; i <= 64; ++i) {
    t.value.add_(0x1p-12);  // 1 / 32 of the step above 1
    t.working.copy_(t.value);
    EXPECT_EQ(t.value[0].item<double>(), 1 + i * 0x1p-12);
    EXPECT_EQ(param->tensor[0].item<double>(), 1 + std::nearbyint(i / 32.0) * kUlp) << i;  // ties to even, as the cast
  }
}

TEST_F(Bf16, a_weights_gradient_is_summed_in_float32) {
  Param weight("w", Layout::whole({1, 1}), InitRule::ones());
  weight.tensor = at::ones({1, 1}, at::kBFloat16);
  weight.grad = at::zeros({1, 1});
  const at::Tensor one = at::ones({1, 1}, at::kBFloat16), rows = at::ones({513, 1}, at::kBFloat16);
  accumulate_weight_grad(weight, rows, rows);
  EXPECT_EQ(weight.grad.item<double>(), 513);  // bfloat16 has 512 and 516
  accumulate_weight_grad(weight, one, one);
  EXPECT_EQ(weight.grad.item<double>(), 514);
}

TEST(Bf16Run, follows_the_float32_curve) {
  const TempFolder folder;
  const RunResult float32 = run_threads(config(folder, "float32", "{}"), 1);
  expect_same_curve(run_threads(config(folder, "bf16", R"({"bf16": {"enabled": true}})"), 1), float32);
  expect_same_curve(
      run_threads(
          config(folder, "alias", R"({"bfloat16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}})"), 1),
      float32);
  EXPECT_LT(figure(float32, 19, "loss"), figure(float32, 0, "loss") - 0.2);  // there was something to follow
}

TEST(Bf16Run, follows_it_with_plain_blocks_and_standard_attention_too) {
  const TempFolder folder;
  const std::string plain = R"("fused_block": false, "attention": "standard")";
  expect_same_curve(run_threads(config(folder, "bf16", "{" + plain + R"(, "bf16": {"enabled": true}})"), 1),
                    run_threads(config(folder, "float32", "{" + plain + "}"), 1));
}

TEST(Bf16Run, follows_it_with_the_shape_of_a_llama) {
  const TempFolder folder;
  const std::string model =
      R"("model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4,
    "num_query_groups": 2, "ffn_hidden_size": 64, "vocab_size": 96, "max_position_embeddings": 32, "normalization": "rmsnorm",
    "activation": "swiglu", "position_embedding_type": "rope", "add_bias": false, "untie_embeddings_and_output_weights": true}})";
  expect_same_curve(run_threads(config(folder, "bf16", "{" + model + R"(, "bf16": {"enabled": true}})"), 1),
                    run_threads(config(folder, "float32", "{" + model + "}"), 1));
}

TEST(Bf16Run, is_the_same_to_the_last_bit_on_every_run_and_on_two_ranks_close_to_it) {
  const TempFolder folder;
  const std::string on = R"({"bf16": {"enabled": true}})";
  const std::string two = R"({"bf16": {"enabled": true}, "gradient_accumulation_steps": 1})";
  const RunResult first = run_threads(config(folder, "first", on), 1),
                  second = run_threads(config(folder, "second", on), 1);
  const RunResult shared = run_threads(config(folder, "shared", two), 2);
  for (size_t i = 0; i < first.metrics.size(); ++i) {
    EXPECT_EQ(figure(first, i, "loss"), figure(second, i, "loss")) << i;
    EXPECT_NEAR(figure(first, i, "loss"), figure(shared, i, "loss"), 1e-3 * figure(first, i, "loss")) << i;
  }
}

TEST(Bf16Run, writes_the_float32_masters) {
  const TempFolder folder;
  const RunResult run = run_threads(config(folder, "run", R"({"bf16": {"enabled": true}})"), 1);
  const SafetensorsFile file = SafetensorsFile::open(run.weights_file());
  const at::Tensor weight = file.tensor("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(weight.scalar_type(), at::kFloat);
  EXPECT_FALSE(at::equal(weight, weight.to(at::kBFloat16).to(at::kFloat)));
}

TEST(Bf16Run, starts_from_the_values_that_a_float32_run_starts_from) {
  const TempFolder folder;
  const std::string still = R"("train_steps": 1, "optimizer": {"type": "SGD", "params": {"lr": 0}})";
  const RunResult bf16 = run_threads(config(folder, "bf16", "{" + still + R"(, "bf16": {"enabled": true}})"), 1);
  const RunResult float32 = run_threads(config(folder, "float32", "{" + still + "}"), 1);
  const SafetensorsFile a = SafetensorsFile::open(bf16.weights_file()),
                        b = SafetensorsFile::open(float32.weights_file());
  for (const char* name : {"transformer.wte.weight", "transformer.h.1.mlp.c_fc.weight"})
    EXPECT_TRUE(at::equal(a.tensor(name), b.tensor(name)));
}

TEST(Bf16Run, one_precision_is_enough) {
  const TempFolder folder;
  const std::string both = R"({"bf16": {"enabled": true}, "bfloat16": {"enabled": true}})";
  EXPECT_NE(error_of([&] { run_threads(config(folder, "run", both), 1); }).find("both choose the precision"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
