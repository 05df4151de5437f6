// The whole model in float64 against the recorded first step of both golden runs: loss and the gradient norm of every
// tensor of the folder, found by our own weight rules. Then what must not depend on how rows are batched.
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>

#include <cmath>

#include <drivetrain/safetensors.h>

#include "test_model.h"

namespace drivetrain::test {
namespace {

std::string foreign_name(const WeightRules& rules, const WeightPart& part) {
  return part.prefixed ? rules.prefix + part.name : part.name;
}

const WeightRule& rule_of(const WeightRules& rules, const std::string& param) {
  for (const WeightRule& rule : rules.rules)
    if (rule.param == param) return rule;
  throw std::runtime_error("no rule for " + param);
}

class GoldenModel : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = std::string(DRIVETRAIN_GOLDEN_DIR "/") + GetParam();
};

TEST_P(GoldenModel, first_loss_and_every_gradient_norm_are_those_recorded) {
  const auto model = gpt("{\"from\": \"" + folder_ + "/model\"}");
  const WeightRules rules = model->weight_rules("hf");
  const SafetensorsFile weights = SafetensorsFile::open(folder_ + "/model/model.safetensors");
  BuiltModel built(*model);
  size_t used = 0;
  built.fill([&](const Param& param) {
    const WeightRule& rule = rule_of(rules, param.name);
    std::vector<at::Tensor> parts;
    for (const WeightPart& part : rule.parts) {
      const at::Tensor t = weights.tensor(foreign_name(rules, part));
      parts.push_back(rule.transposed ? t.t() : t);
      EXPECT_EQ(parts.back().size(0), part.rows) << part.name;
      ++used;
    }
    return at::cat(parts);
  });
  EXPECT_EQ(used, weights.names().size());
  EXPECT_EQ(built.chain.all().size(), rules.rules.size());

  const at::Tensor batches = SafetensorsFile::open(folder_ + "/batches.safetensors").rows("tokens", 0, 1)[0];
  const int64_t length = batches.size(2) - 1;
  double loss = 0, tokens = 0;
  for (int64_t m = 0; m < batches.size(0); ++m) {
    const at::Tensor inputs = batches[m].narrow(1, 0, length).contiguous(),
                     labels = batches[m].narrow(1, 1, length).contiguous();
    const at::Tensor sum = built.forward(inputs, labels);
    tokens += static_cast<double>(labels.numel());
    built.backward();
    loss += sum.item<double>();
  }
  const Value curve = read_json_file(folder_ + "/curve.json");
  const Value& truth = *curve.find("float64");
  EXPECT_NEAR(loss / tokens, truth.find("loss")->items()[0].as_double(), 1e-12);

  std::map<std::string, ParamPtr> params;
  for (const ParamPtr& param : built.chain.all()) params[param->name] = param;
  std::map<std::string, double> norms;
  for (const WeightRule& rule : rules.rules) {
    int64_t row = 0;
    for (const WeightPart& part : rule.parts) {
      const at::Tensor g = params.at(rule.param)->grad.narrow(0, row, part.rows);
      norms[foreign_name(rules, part)] = g.norm().item<double>() / tokens;
      row += part.rows;
    }
  }
  const auto& recorded = truth.find("step1_tensor_grad_norms")->members();
  EXPECT_EQ(norms.size(), recorded.size());
  for (const Value::Member& r : recorded) {
    ASSERT_TRUE(norms.count(r.key)) << r.key;
    EXPECT_NEAR(norms[r.key], r.value.as_double(), 1e-11 * (1 + r.value.as_double())) << r.key;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpt, GoldenModel, ::testing::Values("gpt2_tiny", "llama_tiny"));

constexpr const char* kSmall = R"({"num_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "vocab_size": 31,
                                   "max_position_embeddings": 16, "hidden_dropout": 0.3})";

TEST(GptModel, a_row_gets_the_same_numbers_in_any_batch_also_with_dropout) {
  const auto model = gpt(kSmall);
  BuiltModel built(*model);
  built.fill_by_rule();
  const at::Tensor tokens = at::randint(31, {3, 9}, at::TensorOptions(at::kLong));
  const at::Tensor whole = built.forward(tokens, {}, 100).detach().clone();
  for (int64_t i = 0; i < 3; ++i) {
    const at::Tensor row = built.forward(tokens.narrow(0, i, 1), {}, 100 + i);
    EXPECT_TRUE(at::allclose(row, whole.narrow(0, i, 1), 1e-12, 1e-12)) << i;
  }
}

TEST(GptModel, evaluation_has_no_dropout) {
  const auto model = gpt(kSmall);
  BuiltModel built(*model);
  built.fill_by_rule();
  const at::Tensor tokens = at::randint(31, {2, 9}, at::TensorOptions(at::kLong));
  built.context.mode_ = Mode::evaluate;
  const at::Tensor quiet = built.forward(tokens, {}, 0).detach().clone();
  EXPECT_TRUE(at::equal(built.forward(tokens, {}, 50), quiet));
  built.context.mode_ = Mode::train;
  EXPECT_FALSE(at::allclose(built.forward(tokens, {}, 0), quiet));
}

TEST(GptModel, later_tokens_do_not_reach_earlier_logits) {
  const auto model = gpt(kSmall);
  BuiltModel built(*model);
  built.fill_by_rule();
  built.context.mode_ = Mode::evaluate;
  at::Tensor tokens = at::randint(30, {1, 9}, at::TensorOptions(at::kLong));
  const at::Tensor before = built.forward(tokens, {}).detach().clone();
  tokens[0][6] = 30;
  const at::Tensor after = built.forward(tokens, {}).detach();
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 6), after.narrow(1, 0, 6)));
  EXPECT_FALSE(at::equal(before.narrow(1, 6, 1), after.narrow(1, 6, 1)));
}

TEST(GptModel, output_projections_start_smaller_by_the_root_of_twice_the_layers) {
  const auto model = gpt(kSmall);
  const BuiltModel built(*model);
  for (const ParamPtr& param : built.chain.all()) {
    const auto ends_with = [&](const char* end) { return param->name.ends_with(end); };
    const double wanted = ends_with("proj.weight") ? 0.02 / 2 : 0.02;
    if (param->layout.global_shape.size() == 2)
      EXPECT_DOUBLE_EQ(param->init.std, wanted) << param->name;
    else
      EXPECT_EQ(param->init.kind == InitRule::Kind::ones, param->role == ParamRole::norm && ends_with("weight"))
          << param->name;
  }
}

TEST(GptModel, a_sequence_beyond_the_positions_is_refused_at_run_time_too) {
  const auto model = gpt(kSmall);
  BuiltModel built(*model);
  built.fill_by_rule();
  EXPECT_EQ(error_of([&] {
              built.forward(at::zeros({1, 17}, at::TensorOptions(at::kLong)), {});
            }),
            "model/gpt: a sequence of 17 tokens is longer than max_position_embeddings 16");
}

}  // namespace
}  // namespace drivetrain::test
