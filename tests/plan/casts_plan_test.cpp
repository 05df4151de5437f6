// What `drivetrain plan` counts of casts to 8 bits.
#include "predict/hardware.h"
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class Casts : public ProgramTest {
 protected:
  // Seconds of passes over memory.
  double passes(const std::string& precision, const std::string& more = "") {
    const Ran ran =
        run(concat("plan ", path("gpu.json"), " --hardware h100 -n 1 --json --set '", precision, "'", more));
    EXPECT_EQ(ran.code, 0) << ran.output;
    double sum = 0;
    const Value plan = parse_json(ran.code == 0 ? ran.output : R"({"forecast": {"time": {"parts": []}}})", "plan");
    for (const Value& part : plan.find("forecast")->find("time")->find("parts")->items())
      if (part.find("what")->as_string().find("passes") != std::string::npos) sum += part.find("seconds")->as_double();
    return sum;
  }
};

// By its own largest value a tensor is read twice for a cast, else once. Of 16 bits that is 5 bytes or 3 for each of
// four casts of inputs and weights, and one more for gradients, which are cast as they lie and transposed.
TEST_F(Casts, read_once_where_their_scales_are_known_or_of_blocks) {
  constexpr double H = 1024, F = 4096, N = 2048;
  write("gpu.json",
        R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 1024, "ffn_hidden_size": 4096,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 512}}, "train_batch_size": 4,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 512}}, "device": "cuda",
    "fused_block": false})");
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

// Of a block with a gate: a norm's output, the activation and its gradient are written in two bytes, read by two casts
// (the gradient by one) and, where they compute them, not at all. What they are computed from is read in their place: a
// norm's sum once more; where the largest value is looked for first, all of it twice.
TEST_F(Casts, of_blocks_leave_out_what_they_compute) {
  constexpr double H = 1024, F = 4096, N = 2048;
  write("gpu.json",
        R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 1024, "ffn_hidden_size": 4096,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 512, "activation": "swiglu", "add_bias": false,
    "normalization": "rmsnorm",
    "position_embedding_type": "rope", "untie_embeddings_and_output_weights": true}}, "train_batch_size": 4, "train_steps": 1, "device": "cuda",
    "dataset": {"type": "synthetic", "params": {"seq_length": 512}}})");
  const auto saved = [&](const std::string& recipe) {
    const std::string fp8 = R"(fp8={"enabled": true, "recipe": ")" + recipe + "\"}";
    return passes(fp8, " --set fused_block=false") - passes(fp8);
  };
  const std::string bf16 = R"(bf16={"enabled": true})";
  EXPECT_EQ(passes(bf16, " --set fused_block=false"), passes(bf16));
  // Nothing where weights' gradients stay in 16 bits, or where adapters add to the layers.
  const std::string wide = R"(fp8={"enabled": true, "fp8_wgrad": false})", adapted = R"( --set 'lora={"r": 8}')";
  EXPECT_EQ(passes(wide, " --set fused_block=false"), passes(wide));
  EXPECT_EQ(passes(wide, adapted + " --set fused_block=false"), passes(R"(fp8={"enabled": true})", adapted));
  const double delayed = saved("DelayedScaling"), current = saved("Float8CurrentScaling");
  EXPECT_NEAR(current / delayed, (2 * H * 6 + F * 6 + 2 * F * 3) / (2 * H * 4 + F * 6 + 2 * F * 4), 1e-6);
  const std::string fp8 = R"(fp8={"enabled": true, "recipe": "DelayedScaling"})", off = " --set fused_block=false";
  const double casts = passes(fp8, off) - passes(bf16, off);
  const double weights = 3 * H * H + H * H + 2 * F * H + F * H, inputs = N * (H + H + H + F),
               gradients = N * (3 * H + H + 2 * F + H);
  EXPECT_NEAR(delayed / casts, N * (2 * H * 4 + F * 6 + 2 * F * 4) / (6 * (weights + inputs) + 4 * gradients), 1e-3);
}

// In the epilogues of products it neither reads what it is of again, nor writes its gradient in between. In 8 bits and
// where it is not GELU a product has none.
TEST_F(Casts, beside_them_gelu_in_products_leaves_out_two_passes) {
  constexpr double F = 4096, N = 2048, kLayers = 2, kBytes = 2;
  const auto write_shape = [&](const std::string& more) {
    write("gpu.json",
          R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 1024, "ffn_hidden_size": 4096,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 512)" +
              more + R"(}}, "train_batch_size": 4, "train_steps": 1, "device": "cuda",
    "dataset": {"type": "synthetic", "params": {"seq_length": 512}}})");
  };
  const auto saved = [&](const std::string& precision) {
    return passes(precision) - passes(precision, " --set fused_block.gelu_fusion=true");
  };
  const std::string bf16 = R"(bf16={"enabled": true})";
  const Hardware h100 = read_hardware(std::string(DRIVETRAIN_SOURCE_DIR) + "/configs/hardware/h100.json", "");
  write_shape("");
  EXPECT_NEAR(saved(bf16), kLayers * 2 * F * N * kBytes / h100.pass_rate(), 1e-9);
  EXPECT_EQ(saved(R"(fp8={"enabled": true})"), 0);
  EXPECT_EQ(passes(bf16, R"( --set 'lora={"r": 8}')"),
            passes(bf16, R"( --set 'lora={"r": 8}' --set fused_block.gelu_fusion=true)"));
  write_shape(
      R"(, "activation": "swiglu", "add_bias": false, "normalization": "rmsnorm", "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": true)");
  EXPECT_EQ(saved(bf16), 0);
}

}  // namespace
}  // namespace drivetrain::test
