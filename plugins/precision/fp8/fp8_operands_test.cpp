// Layers in 8 bits that compute norms and activations themselves: the bits of those that read them.
#include <ATen/ops/equal.h>

#include "test_layer.h"
#include "test_operands.h"

namespace drivetrain::test {
namespace {

// Three steps of two micro-batches: results, gradients and the history of scales.
std::vector<at::Tensor> train(const Recipe& recipe, const Operand& x, const Operand& dy, bool keep, bool parked) {
  const Layer layer(recipe, kIn, kOut);
  const auto& takes = dynamic_cast<const OperandLinear1&>(*layer.linear);
  std::vector<at::Tensor> found;
  for (int step = 0; step < 3; ++step) {
    layer.scaling->step_begin();
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      KeptOperand kept;
      found.push_back(takes.apply_to(x, {}, keep ? &kept : nullptr));
      EXPECT_EQ(kept != nullptr, keep);
      WeightWork::Parked later;
      WeightWork work(parked ? &later : nullptr);
      found.push_back(takes.apply_backward_to(dy, x, kept, {}, work));
      for (const auto& one : later) one();
    }
    layer.scaling->step_end();
    found.push_back(layer.weight->grad.clone()), found.push_back(layer.bias->grad.clone());
  }
  return found;
}

TEST(Fp8Operands, have_the_bits_of_tensors_whatever_computes_them) {
  for (const Recipe& recipe : recipes())
    for (const Operand& x : inputs())
      for (const Operand& dy : gradients()) {
        if (!recipe.wgrad) continue;  // takes none
        const std::vector<at::Tensor> wanted = train(recipe, x.value(), dy.value(), false, false);
        for (const bool keep : {false, true})
          for (const bool parked : {false, true}) {
            const std::vector<at::Tensor> found = train(recipe, x, dy, keep, parked);
            ASSERT_EQ(found.size(), wanted.size());
            for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
          }
      }
}

// A layer whose weights' gradients stay in 16 bits would compute them once more.
TEST(Fp8Operands, are_taken_where_all_three_products_cast) {
  for (const Recipe& recipe : recipes()) EXPECT_EQ(operands_of(*Layer(recipe).linear) != nullptr, recipe.wgrad);
  LinearSpec spec;
  spec.name = "fc", spec.in = kIn, spec.out = kOut;
  EXPECT_EQ(operands_of(*make_plain_layers(nullptr)->linear(spec)), nullptr);
}

TEST(Fp8Operands, of_a_frozen_weight_nothing_is_kept) {
  const Layer layer({}, kIn, kOut);
  layer.weight->trainable = false;
  KeptOperand kept;
  dynamic_cast<const OperandLinear1&>(*layer.linear).apply_to(inputs()[1], {}, &kept);
  EXPECT_EQ(kept, nullptr);
}

}  // namespace
}  // namespace drivetrain::test
