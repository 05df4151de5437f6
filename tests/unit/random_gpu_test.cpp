// Random numbers on a GPU have the bits of the CPU's.
#include <drivetrain/random.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

#include "support/gpu.h"

namespace drivetrain {
namespace {

struct RandomOnGpu : testing::Test {
  void SetUp() override { DRIVETRAIN_NEEDS_GPU(); }
  const at::Device gpu{at::kCUDA, 0};
};

// Whole tensors, and rows of one that is cut in zig-zag.
std::vector<RandomKey> keys() {
  return {{11, 3, hash_name("block.0.dropout1"), 5, {}}, {11, 4, hash_name("block.0.dropout1"), 0, {{6, 4}, {1, 3}}}};
}

TEST_F(RandomOnGpu, uniform_numbers_are_those_of_the_cpu) {
  for (const RandomKey& key : keys()) {
    at::Tensor here = at::empty({3, 7, 129}), there = at::empty({3, 7, 129}, here.options().device(gpu));
    fill_uniform(here, key), fill_uniform(there, key);
    EXPECT_TRUE(at::equal(here, there.cpu()));
  }
}

TEST_F(RandomOnGpu, dropout_is_that_of_the_cpu) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const RandomKey& key : keys()) {
      const at::Tensor x = at::rand({3, 7, 129}).to(type);
      EXPECT_TRUE(at::equal(dropout(x, 0.3, key), dropout(x.to(gpu), 0.3, key).cpu())) << at::toString(type);
    }
}

}  // namespace
}  // namespace drivetrain
