// Whether two tensors have the same values, with the numbers where they do not:
//
//   EXPECT_TRUE(equal_tensors(found, wanted)) << "what they are";
#pragma once

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

namespace drivetrain::test {

// Same shape, dtype and values; the failure names the first element that differs, how many do, and by how much at most.
testing::AssertionResult equal_tensors(const at::Tensor& found, const at::Tensor& wanted);

}  // namespace drivetrain::test
