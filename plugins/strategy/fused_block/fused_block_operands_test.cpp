// strategy/fused_block where linear layers compute norms and activations in the pass that casts them: the bits of a
// block that writes them first, and the bytes that the plan is told.
#include <ATen/ops/equal.h>

#include "test_block_pass.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

void clear_counts() { OperandsAnywhere::inputs = OperandsAnywhere::gradients = OperandsAnywhere::restored = 0; }

void expect_bits_of_two_passes(const BlockSpec& spec, Keep keep, bool cheap, int64_t chunk, const char* which) {
  SCOPED_TRACE(concat("keep ", static_cast<int>(keep), cheap ? ", cheap" : "", ", chunk ", chunk, ", layers ", which));
  const Passed wanted = pass(spec, true, at::kFloat, keep, 5, cheap, chunk);
  clear_counts();
  const Passed found = pass(spec, true, at::kFloat, keep, 5, cheap, chunk, nullptr, which);
  ASSERT_EQ(found.names, wanted.names);
  for (const auto& [name, tensor] : wanted.tensors) EXPECT_TRUE(at::equal(found.tensors.at(name), tensor)) << name;
}

TEST(FusedBlockOperands, blocks_of_each_switch_have_the_bits_of_one_that_writes_them_first) {
  for (const Switch& one : kSwitches) {
    SCOPED_TRACE(one.name);
    BlockSpec spec = llama();
    one.set(spec);
    for (const Keep keep : {Keep::all, Keep::input, Keep::nothing})
      for (const bool cheap : {false, true})
        for (const int64_t chunk : {0, 2}) expect_bits_of_two_passes(spec, keep, cheap, chunk, "");
    for (const char* which : {"attn.qkv", "mlp.fc", "mlp.proj"})
      expect_bits_of_two_passes(spec, Keep::all, true, 0, which);
  }
}

// Both norms and the activation; the MLP's gradient unless a bias is summed in its pass. Kept where the options say so.
TEST(FusedBlockOperands, norms_activation_and_its_gradient_are_left_to_the_layers) {
  for (const bool bias : {false, true})
    for (const bool cheap : {false, true}) {
      BlockSpec spec = llama();
      spec.bias = bias;
      expect_bits_of_two_passes(spec, Keep::all, cheap, 0, "");
      EXPECT_EQ(OperandsAnywhere::inputs, 3);
      EXPECT_EQ(OperandsAnywhere::gradients, bias ? 0 : 1);
      EXPECT_EQ(OperandsAnywhere::restored, cheap ? 0 : 3);
      // In chunks of two of five positions the second norm is written, and nothing of the MLP kept.
      expect_bits_of_two_passes(spec, Keep::all, cheap, 2, "");
      EXPECT_EQ(OperandsAnywhere::inputs, 1 + 3);
      EXPECT_EQ(OperandsAnywhere::gradients, bias ? 0 : 3);
      EXPECT_EQ(OperandsAnywhere::restored, cheap ? 0 : 1);
    }
}

TEST(FusedBlockOperands, blocks_keep_the_bytes_that_they_tell_the_plan) {
  OperandsAnywhere::in_half = true;  // as 8 bits are of 16
  for (const Switch& one : kSwitches)
    for (const bool cheap : {false, true}) {
      SCOPED_TRACE(concat(one.name, cheap ? ", cheap" : ""));
      BlockSpec spec = llama();
      one.set(spec);
      const Passed found = pass(spec, true, at::kFloat, Keep::all, 64, cheap, 0, nullptr, "");
      EXPECT_NEAR(found.kept, found.told, 0.03 * found.told);
      const Passed chunked = pass(spec, true, at::kFloat, Keep::all, 64, cheap, 16, nullptr, "");
      EXPECT_NEAR(chunked.kept, chunked.told, 0.03 * found.told) << "with the MLP in chunks";
    }
  OperandsAnywhere::in_half = false;
}

// To half of the residual stream: what a layer casts of an input that is there is its own affair, and where the cast is
// computed again the plan holds it a little longer.
TEST(FusedBlockOperands, blocks_take_the_bytes_that_the_plan_is_told) {
  OperandsAnywhere::in_half = true;
  for (const Switch& one : kSwitches)
    for (const Keep keep : {Keep::all, Keep::nothing})
      for (const bool cheap : {false, true})
        for (const int64_t chunk : {0, 8}) {
          SCOPED_TRACE(concat(one.name, ", keep ", static_cast<int>(keep), cheap ? ", cheap" : "", ", chunk ", chunk));
          BlockSpec spec = llama();
          one.set(spec);
          const Passed found = pass(spec, true, at::kFloat, keep, 32, cheap, chunk, nullptr, "");
          EXPECT_NEAR(found.working, found.told_working, 2 * 32 * 4 * spec.hidden / 2);
        }
  OperandsAnywhere::in_half = false;
}

}  // namespace
}  // namespace drivetrain
