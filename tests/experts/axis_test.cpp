// Runs with an axis "ep" that a strategy claims for ranks that read other rows: the global batch is divided over it,
// tokens count once, and the numbers are those of one process, whether parameters are split over it or not.
#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include <drivetrain/safetensors.h>
#include <drivetrain/testkit/kit/temp_folder.h>

#include "support/run_program.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

const Registry& with_experts() {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_EXPERTS_DIR}, ""));
  return registry;
}

Value config_with(const std::string& sections) {
  Value config = parse_json(R"({
    "train_steps": 4, "seed": 11, "train_batch_size": 8, "gradient_accumulation_steps": 2, "monitors": "jsonl",
    "gradient_clipping": 0.3,
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 36, "num_attention_heads": 3,
              "ffn_hidden_size": 76,
              "vocab_size": 97, "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 12}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "eps": 1e-4, "weight_decay": 0.1}}})",
                            "test");
  const Value more = parse_json("{" + sections + "}", "sections");
  for (const Value::Member& member : more.members()) config.set(member.key, member.value);
  return config;
}

std::string experts(const std::string& options) {
  return R"("strategy": {"type": "experts", "params": {)" + options + "}}";
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<int64_t> tokens;
  std::map<std::string, at::Tensor> weights;
};

Trained train(const std::string& sections, int ranks) {
  const TempFolder folder;
  Value config = config_with(sections);
  config.set("output_dir", folder.path("run"));
  const RunResult run = run_threads(config, ranks, with_experts());
  Trained trained;
  for (const Value& line : run.metrics) {
    trained.losses.push_back(line.find("loss")->as_double());
    trained.norms.push_back(line.find("grad_norm")->as_double());
    trained.tokens.push_back(line.find("tokens")->as_int());
  }
  const SafetensorsFile file = SafetensorsFile::open(run.weights_file());
  for (const std::string& name : file.names()) trained.weights[name] = file.tensor(name).clone();
  return trained;
}

TEST(AxisOfOtherRows, trains_with_the_numbers_of_one_process_at_the_same_global_batch) {
  const Trained alone = train("", 1);
  ASSERT_EQ(alone.losses.size(), 4u);
  for (const auto& [sections, ranks] : std::vector<std::pair<std::string, int>>{
           {experts(R"("size": 2)"), 2},
           {experts(R"("size": 4)"), 4},
           {experts(R"("size": 2)"), 4},
           {experts(R"("size": 2)") + R"(, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0})",
            4}}) {
    SCOPED_TRACE(sections);
    const Trained found = train(sections, ranks);
    EXPECT_EQ(found.tokens, alone.tokens);
    ASSERT_EQ(found.losses.size(), alone.losses.size());
    for (size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], alone.losses[i], 2e-6 * alone.losses[i]) << "step " << i + 1;
      EXPECT_NEAR(found.norms[i], alone.norms[i], 1e-5 * alone.norms[i]) << "step " << i + 1;
    }
    ASSERT_EQ(found.weights.size(), alone.weights.size());
    for (const auto& [name, value] : alone.weights)
      EXPECT_TRUE(at::allclose(found.weights.at(name), value, 0, 2e-5)) << name;
  }
}

// Nothing is split: it is data parallelism under another name, to the last bit.
TEST(AxisOfOtherRows, without_split_parameters_is_data_parallelism) {
  for (const char* owner : {R"("data_parallel": "ddp")", R"("zero_optimization": {"stage": 3})"}) {
    const Trained data = train(owner, 4), both = train(experts(R"("split": false)") + ", " + owner, 4);
    EXPECT_EQ(both.losses, data.losses) << owner;
    EXPECT_EQ(both.norms, data.norms) << owner;
    for (const auto& [name, value] : data.weights) EXPECT_TRUE(at::equal(both.weights.at(name), value)) << name;
  }
}

std::string refusal_of(const std::string& sections, int ranks) {
  try {
    train(sections, ranks);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    return e.what();
  }
  return "no refusal";
}

TEST(AxisOfOtherRows, that_somebody_else_claims_names_both) {
  EXPECT_NE(refusal_of(experts(R"("axis": "dp")") + R"(, "data_parallel": "ddp")", 2)
                .find("axis dp of the mesh is claimed by data_parallel/ddp"),
            std::string::npos);
  const std::string rest = refusal_of(experts(R"("size": 0)"), 2);
  EXPECT_NE(rest.find("both take the rest of the world"), std::string::npos) << rest;
}

TEST(AxisOfOtherRows, wants_somebody_who_sums_gradients) {
  const std::string text = refusal_of(experts("") + R"(, "data_parallel": "none")", 2);
  EXPECT_NE(text.find("parts of the batch are on 2 ranks, and nobody sums their gradients"), std::string::npos) << text;
}

}  // namespace
}  // namespace drivetrain::test
