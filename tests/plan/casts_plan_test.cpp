// What `drivetrain plan` counts of casts to 8 bits.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

// By its own largest value a tensor is read twice for a cast, else once. Of 16 bits that is 5 bytes or 3 for each of
// four casts of inputs and weights, and one more for gradients, which are cast as they lie and transposed.
TEST_F(ProgramTest, casts_read_once_where_their_scales_are_known_or_of_blocks) {
  constexpr double H = 1024, F = 4096, N = 2048;
  write("gpu.json",
        R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 1024, "ffn_hidden_size": 4096,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 512}}, "train_batch_size": 4,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 512}}, "device": "cuda"})");
  const auto passes = [&](const std::string& precision) {
    const Ran ran = run("plan " + path("gpu.json") + " --hardware h100 -n 1 --json --set '" + precision + "'");
    EXPECT_EQ(ran.code, 0) << ran.output;
    double sum = 0;
    const Value plan = parse_json(ran.code == 0 ? ran.output : R"({"forecast": {"time": {"parts": []}}})", "plan");
    for (const Value& part : plan.find("forecast")->find("time")->find("parts")->items())
      if (part.find("what")->as_string().find("passes") != std::string::npos) sum += part.find("seconds")->as_double();
    return sum;
  };
  const auto casts = [&](const std::string& recipe) {
    return passes(R"(fp8={"enabled": true, "recipe": ")" + recipe + "\"}") - passes(R"(bf16={"enabled": true})");
  };
  const double operands = H * (N + 3 * H) + H * (N + H) + H * (N + F) + F * (N + H),
               gradients = N * (3 * H + H + F + H);
  const double current = casts("Float8CurrentScaling"), blocks = casts("Float8BlockScaling");
  EXPECT_GT(blocks, 0);
  EXPECT_NEAR(current / blocks, (2 * 5 * operands + 6 * gradients) / (2 * 3 * operands + 4 * gradients), 0.02);
  EXPECT_NEAR(casts("DelayedScaling"), blocks, 1e-12);
}

}  // namespace
}  // namespace drivetrain::test
