// Tiny models of every family that model/gpt reads (tests/golden/make/families.py): twenty steps against PyTorch's, and
// a folder that comes back as it was. Ranks are threads of this process.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/value.h>

#include "golden/golden_config.h"
#include "support/run_program.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

const char* const kNames[] = {"gpt2",     "llama",   "llama_biases", "mistral",   "qwen2",    "qwen3",
                              "phi3",     "olmo",    "olmo2",        "olmo3",     "smollm3",  "gemma",
                              "gemma2",   "gemma3",  "granite",      "internlm2", "stablelm", "starcoder2",
                              "gpt_neox", "mixtral", "olmoe",        "qwen2_moe", "qwen3_moe"};

class GoldenFamily : public testing::TestWithParam<const char*> {
 protected:
  static Value config(const std::string& output) {
    Value config = read_json_file(golden_folder("families/train.json"));
    config.set("train_steps", 20);
    config.set("model", parse_json("{\"type\": \"gpt\", \"params\": {\"from\": \"" + folder() + "\"}}", "test"));
    config.set("dataset", parse_json("{\"type\": \"token_batches\", \"params\": {\"file\": \"" +
                                         golden_folder("families/batches.safetensors") + "\"}}",
                                     "test"));
    config.set("attention", "standard");
    config.set("output_dir", output);
    return config;
  }
  static double router_aux_loss_coef() {
    return read_json_file(folder() + "/config.json").find("router_aux_loss_coef")->as_double();
  }
  static std::string folder() { return golden_folder(std::string("families/") + GetParam()); }
};

void expect_losses(const std::string& run, const Value& wanted, double tolerance) {
  const std::vector<Value> metrics = read_metrics(run);
  ASSERT_EQ(metrics.size(), wanted.items().size());
  for (size_t i = 0; i < metrics.size(); ++i)
    EXPECT_NEAR(metrics[i].find("loss")->as_double(), wanted.items()[i].as_double(), tolerance) << "step " << i + 1;
}

// With what the experts' loads add.
void expect_totals(const std::string& run, const Value& wanted, double tolerance, double weight) {
  const std::vector<Value> metrics = read_metrics(run);
  ASSERT_EQ(metrics.size(), wanted.items().size());
  for (size_t i = 0; i < metrics.size(); ++i) {
    const Value* const terms = metrics[i].find("loss_terms.load_balancing_loss");
    ASSERT_NE(terms, nullptr);
    EXPECT_NEAR(metrics[i].find("loss")->as_double() + weight * terms->as_double(), wanted.items()[i].as_double(),
                tolerance)
        << "step " << i + 1;
  }
}

TEST_P(GoldenFamily, trains_as_in_pytorch_with_blocks_of_its_own_and_of_strategies) {
  const Value curve = read_json_file(golden_folder("families/curve.json"));
  const Value& own_curve = *curve.find("float32")->find(GetParam());
  for (const bool fused : {true, false}) {
    SCOPED_TRACE(fused ? "fused_block" : "own blocks");
    const TempFolder temporary;
    Value own = config(temporary / "run");
    if (!fused) own.set("fused_block", false);
    run_threads(own, 1);
    const double tolerance = curve.find("tolerance")->find("loss_abs")->as_double();
    expect_losses(temporary / "run", *own_curve.find("loss"), tolerance);
    if (const Value* const total = own_curve.find("loss_total"))
      expect_totals(temporary / "run", *total, tolerance, router_aux_loss_coef());
  }
}

// Of a mixture the loss for balance is of a rank's rows, and where it is of all layers together, of one stage.
TEST_P(GoldenFamily, trains_as_in_pytorch_on_several_ranks) {
  const Value curve = read_json_file(golden_folder("families/curve.json"));
  const Value& own = *curve.find("float32")->find(GetParam());
  const bool is_mixture = own.find("loss_total") != nullptr;
  struct Cut {
    const char* sections;
    int ranks;
  };
  const char *tensor = R"("tensor_parallel": {"type": "megatron", "params": {"size": 2, "sequence_parallel": true}})",
             *context = R"("context_parallel": {"type": "ring", "params": {"size": 2}})";
  const std::string sharded = concat("{", tensor, R"(, "zero_optimization": {"stage": 3}})"),
                    staged = concat("{", context, R"(, "pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}})"),
                    only_tensor = concat("{", tensor, "}"), only_context = concat("{", context, "}");
  const std::vector<Cut> cuts = is_mixture ? std::vector<Cut>{{only_tensor.c_str(), 2}, {only_context.c_str(), 2}}
                                           : std::vector<Cut>{{sharded.c_str(), 4}, {staged.c_str(), 4}};
  for (const Cut& cut : cuts) {
    SCOPED_TRACE(cut.sections);
    const TempFolder temporary;
    Value config = this->config(temporary / "run");
    const Value sections = parse_json(cut.sections, "cut");
    for (const Value::Member& section : sections.members()) config.set(section.key, section.value);
    run_threads(config, cut.ranks);
    const double tolerance = curve.find("tolerance")->find("loss_abs")->as_double();
    expect_losses(temporary / "run", *own.find("loss"), tolerance);
    if (is_mixture) expect_totals(temporary / "run", *own.find("loss_total"), tolerance, router_aux_loss_coef());
  }
}

TEST_P(GoldenFamily, a_folder_comes_back_as_it_was) {
  const TempFolder temporary;
  Value still = config(temporary / "run");
  still.set("train_steps", 1);
  still.set("optimizer", parse_json(R"({"type": "AdamW", "params": {"lr": 0}})", "test"));
  run_threads(still, 1);
  const auto came = SafetensorsFile::open(folder() + "/model.safetensors"),
             went = SafetensorsFile::open(temporary / "run/final/model.safetensors");
  const std::vector<std::string> came_names = came.names(), went_names = went.names();
  EXPECT_EQ(std::set<std::string>(came_names.begin(), came_names.end()),
            std::set<std::string>(went_names.begin(), went_names.end()));
  for (const std::string& name : came_names) {
    if (!went.contains(name)) continue;
    EXPECT_TRUE(at::equal(came.tensor(name), went.tensor(name))) << name;
  }
  // The same model for whoever reads it next.
  Value again = config(temporary / "again");
  again.set("train_steps", 1);
  again.set(
      "model",
      parse_json(concat("{\"type\": \"gpt\", \"params\": {\"from\": \"", temporary / "run/final", "\"}}"), "test"));
  run_threads(again, 1);
  const Value curve = read_json_file(golden_folder("families/curve.json"));
  EXPECT_NEAR(read_metrics(temporary / "again").at(0).find("loss")->as_double(),
              curve.find("float32")->find(GetParam())->find("loss")->items()[0].as_double(), 1e-5);
}

// Another name of as many letters in the place of the tensor's: the folder has one that nobody wants instead.
TEST(GoldenMixture, a_folder_without_a_tensor_of_one_expert_names_it) {
  const TempFolder temporary;
  std::filesystem::copy(golden_folder("families/qwen3_moe"), temporary / "folder");
  const std::string path = temporary / "folder/model.safetensors", name = "model.layers.1.mlp.experts.3.up_proj.weight";
  std::stringstream file;
  file << std::ifstream(path, std::ios::binary).rdbuf();
  std::string bytes = file.str();
  const size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, name.size(), "model.layers.1.mlp.experts.3.us_proj.weight");
  std::ofstream(path, std::ios::binary) << bytes;
  Value config = read_json_file(golden_folder("families/train.json"));
  config.set("train_steps", 1);
  config.set("model",
             parse_json(concat(R"({"type": "gpt", "params": {"from": ")", temporary / "folder", "\"}}"), "test"));
  config.set("dataset", parse_json(concat(R"({"type": "token_batches", "params": {"file": ")",
                                          golden_folder("families/batches.safetensors"), "\"}}"),
                                   "test"));
  config.set("output_dir", temporary / "run");
  try {
    run_threads(config, 1);
    ADD_FAILURE() << "no refusal";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFamily, testing::ValuesIn(kNames), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace drivetrain::test
