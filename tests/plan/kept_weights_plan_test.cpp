// What `drivetrain plan` counts of weights in 8 bits that are kept, and which recipe it has faster.
#include "predict/hardware.h"
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class KeptWeights : public ProgramTest {
 protected:
  void SetUp() override {
    write("gpu.json",
          R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 1024, "ffn_hidden_size": 4096,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 512}}, "train_batch_size": 4,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 512}}, "device": "cuda",
    "fused_block": false})");
  }
  // Seconds of parts with this word.
  double planned(const std::string& precision, const std::string& word, int64_t micro_batches = 1, int64_t layers = 2) {
    const Ran ran = run(concat("plan ", path("gpu.json"), " --hardware h100 -n 1 --json --set '", precision,
                               "' --set train_micro_batch_size_per_gpu=", 4 / micro_batches,
                               " --set model.params.num_layers=", layers));
    EXPECT_EQ(ran.code, 0) << ran.output;
    double sum = 0;
    const Value plan = parse_json(ran.code == 0 ? ran.output : R"({"forecast": {"time": {"parts": []}}})", "plan");
    for (const Value& part : plan.find("forecast")->find("time")->find("parts")->items())
      if (part.find("what")->as_string().find(word) != std::string::npos) sum += part.find("seconds")->as_double();
    return sum;
  }
  static std::string in_8_bits(const std::string& recipe, const std::string& more = "") {
    return R"(fp8={"enabled": true, "recipe": ")" + recipe + "\"" + more + "}";
  }
  double casts(const std::string& recipe, const std::string& more = "", int64_t micro_batches = 1) {
    return planned(in_8_bits(recipe, more), "passes", micro_batches) -
           planned(R"(bf16={"enabled": true})", "passes", micro_batches);
  }
};

constexpr const char* kKept = R"(, "keep_weights": true)";
// Of one layer, elements that are cast: weights, weights and inputs of their products, gradients of their results.
constexpr double H = 1024, F = 4096, N = 2048, kWeights = 4 * H * H + 2 * H * F;
constexpr double kOperands = kWeights + N * (H + H + H + F), kGradients = N * (3 * H + H + F + H);

// Recast they are read for each of two casts in each of M micro-batches; kept, once per update, and written twice.
TEST_F(KeptWeights, are_cast_once_per_update) {
  const double unit = casts("Float8CurrentScaling") / (10 * kOperands + 6 * kGradients);  // seconds for a byte
  for (const auto& [recipe, cast] : {std::pair("Float8CurrentScaling", 5), std::pair("DelayedScaling", 3)})
    for (const int64_t m : {1, 4}) {
      const double saved = casts(recipe, "", m) - casts(recipe, kKept, m);
      EXPECT_NEAR(saved / unit / kWeights, 2. * cast * static_cast<double>(m) - (cast + 1), 0.1) << recipe << m;
    }
}

// Products at the peak of 8 bits, and the faster the fewer bytes casts move.
TEST_F(KeptWeights, and_remembered_scales_make_a_step_faster) {
  const auto two_layers = [&](const std::string& precision) {
    return planned(precision, "matrix products", 1, 4) - planned(precision, "matrix products", 1, 2);
  };
  const auto step = [&](const std::string& precision) { return planned(precision, "", 4); };
  const Hardware h100 = read_hardware(std::string(DRIVETRAIN_SOURCE_DIR) + "/configs/hardware/h100.json", "");
  for (const auto& [recipe, type] :
       {std::pair("DelayedScaling", "float8"), std::pair("Float8BlockScaling", "float8_blocks")})
    EXPECT_NEAR(two_layers(in_8_bits(recipe)) / two_layers(R"(bf16={"enabled": true})"),
                h100.peak("bfloat16") / h100.peak(type), 1e-6);
  const double current = step(in_8_bits("Float8CurrentScaling")), delayed = step(in_8_bits("DelayedScaling"));
  EXPECT_LT(delayed, current);
  EXPECT_LT(step(in_8_bits("DelayedScaling", kKept)), delayed);
  EXPECT_LT(step(in_8_bits("Float8CurrentScaling", kKept)), current);
}

}  // namespace
}  // namespace drivetrain::test
