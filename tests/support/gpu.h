// For tests that need a GPU: they skip with the reason where there is none, as CTest expects of programs labelled gpu.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include <drivetrain/error.h>

#include "device/open_device.h"

namespace drivetrain::test {

// Opens CUDA and makes GPU 0 this thread's; why that cannot be, or nothing.
inline std::string no_gpu(int64_t wanted = 1) {
  try {
    open_device("cuda");
    use_device("cuda", 0, wanted);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace drivetrain::test

// First line of a test or of SetUp.
#define DRIVETRAIN_NEEDS_GPUS(count) \
  if (const std::string reason = drivetrain::test::no_gpu(count); !reason.empty()) GTEST_SKIP() << reason
#define DRIVETRAIN_NEEDS_GPU() DRIVETRAIN_NEEDS_GPUS(1)
