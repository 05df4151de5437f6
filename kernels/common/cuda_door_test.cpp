#include "kernels/common/cuda_door.h"

#include <gtest/gtest.h>

#include "kernels/activation/activation.h"
#include "kernels/optimizer/adamw.h"
#include "kernels/rotary/qk_norm.h"

namespace drivetrain::kernels {
namespace {

// No GPU is needed: without rows nothing is launched, and what fits is told by the arguments.
TEST(CudaDoor, leads_to_the_function_of_the_cuda_library) {
  // Opened by its path, as a sanitizer looks for names in its own folders only.
  ASSERT_TRUE(dlopen(DRIVETRAIN_BUILD_DIR "/lib/libdrivetrain_kernels_cuda.so", RTLD_NOW)) << dlerror();
  EXPECT_EQ(adam_cuda({}, nullptr), 0);
  EXPECT_EQ(activation_forward_cuda({}, nullptr), 0);
  QkNormRotary op;
  op.rotary.head_dim = 64;
  EXPECT_TRUE(qk_norm_fits_cuda(op));
  op.rotary.head_dim = 63;
  EXPECT_FALSE(qk_norm_fits_cuda(op));
}

int not_in_that_library(int x) { return x; }
bool fits_not_in_that_library(int) { return true; }

TEST(CudaDoor, without_such_a_function_gives_the_status_that_says_so) {
  EXPECT_EQ(behind<&not_in_that_library>(0), kNoCudaLibrary);
  EXPECT_FALSE(behind<&fits_not_in_that_library>(0)) << "a kernel that is not there takes nothing";
}

}  // namespace
}  // namespace drivetrain::kernels
