// What is equal to the last bit: the initial model under every topology, and a pipeline's whole run where nothing but
// the place of the units changes.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include "matrix/cells.h"
#include "matrix/curve.h"

namespace drivetrain::test {
namespace {

using Names = std::vector<std::string>;

std::string test_name(const testing::TestParamInfo<Names>& info) {
  std::string name;
  for (const std::string& part : info.param) name += (name.empty() ? "" : "_") + part;
  return name;
}

void expect_same_weights(const Curve& a, const Curve& b) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, value] : a.weights) {
    ASSERT_TRUE(b.weights.contains(name)) << name;
    EXPECT_TRUE(at::equal(b.weights.at(name), value)) << name;
  }
}

// The learning rate is zero, so the final weights are the first ones.
Curve initial_weights(const Names& values) {
  const Cell cell = cell_of(values);
  Value config = config_of(cell, base_config());
  add_sections(config,
               R"({"train_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.0, "weight_decay": 0.0}}})");
  return run_curve(config, ranks_of(cell));
}

class InitialWeights : public testing::TestWithParam<Names> {};

TEST_P(InitialWeights, are_the_same_bits_under_every_topology) {
  for (const char* model : {"gpt2", "qwen2", "moe"}) {
    SCOPED_TRACE(model);
    static std::map<std::string, Curve> alone;
    if (!alone.contains(model)) alone[model] = initial_weights({model});
    Names values = GetParam();
    values.push_back(model);
    expect_same_weights(initial_weights(values), alone[model]);
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, InitialWeights,
                         testing::Values(Names{"dp2", "zero3"}, Names{"dp4", "hsdp"}, Names{"tp2"}, Names{"tp2sp"},
                                         Names{"ring2"}, Names{"ulysses2"}, Names{"ulysses2ring2", "fsdp"},
                                         Names{"1f1b2"}, Names{"interleaved2", "dp2", "zero2"}, Names{"tp2", "gpipe2"},
                                         Names{"tp2sp", "dp2", "zero3"}, Names{"tp2", "interleaved2", "dp2", "fsdp"},
                                         Names{"tp2sp", "zerobubble2", "ring2", "zero3"},
                                         Names{"dp4", "1f1b2", "mics"}),
                         test_name);

// An untied model: its parameters stand on one stage each, so no sum has another order than in one process.
const char kUntied[] =
    R"({"model": {"type": "gpt", "params": {"num_layers": 3, "hidden_size": 32, "num_attention_heads": 4,
    "num_query_groups": 2, "ffn_hidden_size": 36, "vocab_size": 97, "max_position_embeddings": 20,
    "normalization": "rmsnorm", "position_embedding_type": "rope", "activation": "swiglu", "add_bias": false,
    "untie_embeddings_and_output_weights": true, "init_method_std": 0.15}}})";

// Products in float32, since sums in another order would be rounded to 16 bits in another direction now and then.
const char kMuon[] = R"({"optimizer": {"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 0.01, "eps": 1e-4,
    "weight_decay": 0.1, "ns_dtype": "float32"}}})";

Curve untied_run(const Names& values, int reduce_every, const char* more = "{}") {
  const Cell cell = cell_of(values);
  Value config = config_of(cell, base_config());
  add_sections(config, kUntied);
  add_sections(config, more);
  config.set("reduce_every", reduce_every);
  return run_curve(config, ranks_of(cell));
}

class Pipeline : public testing::TestWithParam<Names> {};

TEST_P(Pipeline, of_an_untied_model_has_the_bits_of_one_stage) {
  Names one_stage = GetParam();
  one_stage.erase(one_stage.begin());
  // A split backward sums a micro-batch over ranks after its second half; the output layer's gradient is made in the
  // first one, so that of the next micro-batch may be in the slot by then. The same sum, but not in the same order.
  const int reduce_every = GetParam().front() == "zerobubble2" ? 0 : 1;
  static std::map<std::pair<Names, int>, Curve> made;  // the schedules have these in common
  if (!made.contains({one_stage, reduce_every})) made[{one_stage, reduce_every}] = untied_run(one_stage, reduce_every);
  const Curve &alone = made[{one_stage, reduce_every}], stages = untied_run(GetParam(), reduce_every);
  EXPECT_EQ(stages.losses, alone.losses);
  EXPECT_EQ(stages.norms, alone.norms);
  expect_same_weights(stages, alone);
}

std::vector<Names> pipelines() {
  std::vector<Names> list;
  for (const char* pipeline : {"gpipe2", "1f1b2", "interleaved2", "zerobubble2"})
    for (const Names& more : {Names{"plain", "standard"}, Names{"fused", "flash"}, Names{"fused", "standard", "full"},
                              Names{"fused", "flash", "dp2", "ddp"}, Names{"fused", "flash", "dp2", "zero3"},
                              Names{"plain", "flash", "dp2", "zero1", "selective"}}) {
      list.push_back({pipeline});
      list.back().insert(list.back().end(), more.begin(), more.end());
    }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Pipeline, testing::ValuesIn(pipelines()), test_name);

// An optimizer that computes with whole matrices: they have owners among the ranks of their stage.
TEST(MatrixBits, of_a_pipeline_with_whole_matrices_are_those_of_one_stage) {
  const Curve alone = untied_run({"fused", "flash", "dp2", "ddp"}, 1, kMuon);
  for (const char* sharding : {"ddp", "zero2", "zero3"}) {
    const Curve stages = untied_run({"1f1b2", "fused", "flash", "dp2", sharding}, 1, kMuon);
    EXPECT_EQ(stages.losses, alone.losses) << sharding;
    EXPECT_EQ(stages.norms, alone.norms) << sharding;
    expect_same_weights(stages, alone);
  }
}

class WholeMatrices : public testing::TestWithParam<Names> {};

TEST_P(WholeMatrices, train_as_one_process_does_where_sums_have_another_order) {
  for (const char* model : {"gpt2", "qwen2", "moe"}) {
    Names values = GetParam();
    values.push_back(model);
    const Cell cell = cell_of(values);
    Value config = config_of(cell, base_config());
    add_sections(config, kMuon);
    const Deviation d = deviation(run_curve(config, ranks_of(cell)), reference_of(config));
    EXPECT_LE(d.tolerances, 1) << d.outside;
    std::printf("  %.2f tolerances in %s\n", d.tolerances, d.where.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, WholeMatrices,
                         testing::Values(Names{"tp2"}, Names{"tp2sp", "dp2", "zero3"}, Names{"ring2", "fsdp"},
                                         Names{"ulysses2", "dp2", "zero1"}, Names{"interleaved2", "tp2", "zero2"},
                                         Names{"dp4", "hsdp"}),
                         test_name);

// Two runs of one cell.
TEST(MatrixBits, are_the_same_when_a_cell_is_run_twice) {
  for (const Names& values :
       {Names{"tp2sp", "1f1b2", "ring2", "fused", "flash"}, Names{"ulysses2ring2", "dp2", "zero3"},
        Names{"tp2", "zerobubble2", "dp2", "zero2", "offload", "qwen2"}}) {
    const Cell cell = cell_of(values);
    const Value config = config_of(cell, base_config());
    const Curve a = run_curve(config, ranks_of(cell)), b = run_curve(config, ranks_of(cell));
    EXPECT_EQ(a.losses, b.losses) << name_of(cell);
    EXPECT_EQ(a.norms, b.norms) << name_of(cell);
    expect_same_weights(a, b);
  }
}

}  // namespace
}  // namespace drivetrain::test
