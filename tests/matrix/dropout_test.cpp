// Dropout under every way of cutting a step: numbers belong to an element's place in the whole, so the curve is that of
// one process that drops the same elements.
#include <gtest/gtest.h>

#include "matrix/cells.h"
#include "matrix/curve.h"

namespace drivetrain::test {
namespace {

using Names = std::vector<std::string>;

Value with_dropout(const Cell& cell, double hidden, double attention) {
  Value config = config_of(cell, base_config());
  Value model = *config.find("model");
  Value params = *model.find("params");
  params.set("hidden_dropout", hidden);
  params.set("attention_dropout", attention);
  model.set("params", params);
  config.set("model", model);
  return config;
}

std::string test_name(const testing::TestParamInfo<Names>& info) {
  std::string name;
  for (const std::string& part : info.param) name += (name.empty() ? "" : "_") + part;
  return name;
}

class Dropout : public testing::TestWithParam<Names> {
 protected:
  static void expect_the_curve_of_one_process(const Value& config, int ranks) {
    const Reference& reference = reference_of(config);
    const Deviation d = deviation(run_curve(config, ranks), reference);
    EXPECT_LE(d.tolerances, 1) << d.outside << "\n" << config.to_json();
  }
};

TEST_P(Dropout, of_activations_follows_the_element) {
  for (const char* block : {"plain", "fused"}) {
    Names values = GetParam();
    values.push_back(block);
    const Cell cell = cell_of(values);
    SCOPED_TRACE(name_of(cell));
    expect_the_curve_of_one_process(with_dropout(cell, 0.2, 0), ranks_of(cell));
  }
}

class AttentionDropout : public Dropout {};

TEST_P(AttentionDropout, of_probabilities_and_activations_follows_the_element) {
  for (const char* block : {"plain", "fused"}) {
    Names values = GetParam();
    values.push_back(block);
    const Cell cell = cell_of(values);
    SCOPED_TRACE(name_of(cell));
    expect_the_curve_of_one_process(with_dropout(cell, 0.1, 0.2), ranks_of(cell));
  }
}

const Names kWhole[] = {{"dp2", "zero3"},
                        {"tp2"},
                        {"tp2sp"},
                        {"tp2sp", "qwen2"},
                        {"ulysses2"},
                        {"ulysses2", "qwen2"},
                        {"1f1b2"},
                        {"interleaved2"},
                        {"zerobubble2", "full"},
                        {"tp2", "full"},
                        {"tp2sp", "offload"},
                        {"ulysses2", "selective"},
                        {"tp2sp", "1f1b2", "ulysses2"},
                        {"tp2sp", "1f1b2", "dp2", "zero3", "full"}};
INSTANTIATE_TEST_SUITE_P(Cuts, AttentionDropout, testing::ValuesIn(kWhole), test_name);

const Names kSlices[] = {{"ring2"},
                         {"ring2", "qwen2"},
                         {"ring2", "tp2sp"},
                         {"ring2", "zerobubble2", "full"},
                         {"ulysses2ring2", "dp2", "zero2"}};
INSTANTIATE_TEST_SUITE_P(Cuts, Dropout, testing::ValuesIn(kSlices), test_name);

// Adapters beside frozen weights, which are added to them in the final folder. Their dropout draws for the inputs of
// layers, of which tensor parallelism cuts positions and columns.
Value with_adapters(const Cell& cell, double dropout) {
  Value config = config_of(cell, base_config());
  Value lora = parse_json(R"({"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "save": "merged"})", "test");
  lora.set("lora_dropout", dropout);
  config.set("lora", lora);
  return config;
}

class AdapterDropout : public Dropout {};

TEST_P(AdapterDropout, follows_the_element) {
  for (const char* block : {"plain", "fused"}) {
    Names values = GetParam();
    values.push_back(block);
    const Cell cell = cell_of(values);
    SCOPED_TRACE(name_of(cell));
    expect_the_curve_of_one_process(with_adapters(cell, 0.2), ranks_of(cell));
  }
}

const Names kAdapted[] = {{"dp2", "zero3"},
                          {"dp2", "fsdp", "qwen2"},
                          {"tp2"},
                          {"tp2sp", "qwen2"},
                          {"ring2", "qwen2"},
                          {"ulysses2"},
                          {"zerobubble2", "full"},
                          {"tp2sp", "offload"},
                          {"dp2", "zero2", "selective", "qwen2"},
                          {"tp2sp", "1f1b2", "dp2", "zero3", "full", "qwen2"}};
INSTANTIATE_TEST_SUITE_P(Cuts, AdapterDropout, testing::ValuesIn(kAdapted), test_name);

TEST(DropoutReference, of_adapters_is_not_the_curve_without) {
  const Cell cell = cell_of({"standard"});
  EXPECT_GT(deviation(run_curve(with_adapters(cell, 0.2), 1), reference_of(with_adapters(cell, 0))).tolerances, 100);
}

TEST(DropoutReference, is_not_the_curve_without_dropout) {
  const Cell cell = cell_of({"standard"});
  const Reference& reference = reference_of(with_dropout(cell, 0, 0));
  EXPECT_GT(deviation(run_curve(with_dropout(cell, 0.2, 0), 1), reference).tolerances, 100);
  EXPECT_GT(deviation(run_curve(with_dropout(cell, 0, 0.2), 1), reference).tolerances, 100);
}

}  // namespace
}  // namespace drivetrain::test
