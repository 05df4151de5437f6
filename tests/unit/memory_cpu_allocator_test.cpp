// The caching allocator behind LibTorch's CPU tensors.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <limits>
#include <thread>
#include <vector>

#include <drivetrain/error.h>

#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

at::Tensor bytes(int64_t n) { return at::empty({n}, at::TensorOptions(at::kByte)); }

class CpuAllocator : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_cpu_allocator(); }
};

TEST_F(CpuAllocator, tensors_of_every_size_are_aligned_and_writable_to_the_last_byte) {
  for (int64_t n : {1, 63, 64, 65'471, 65'472, 65'473, 65'536, 81'856, 81'857, 131'072, 1'000'003, 16'777'216}) {
    at::Tensor t = bytes(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data_ptr()) % 64, 0u) << n;
    t.fill_(7);
    EXPECT_EQ(t[n - 1].item<uint8_t>(), 7) << n;
  }
}

TEST_F(CpuAllocator, what_no_machine_has_is_out_of_memory) {
  const int64_t before = cpu_memory().in_use;
  for (int64_t n : {int64_t{1} << 50, int64_t{1} << 56, int64_t{1} << 60, std::numeric_limits<int64_t>::max()}) try {
      bytes(n);
      ADD_FAILURE() << n;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    }
  EXPECT_EQ(cpu_memory().in_use, before);
}

TEST_F(CpuAllocator, an_empty_tensor_takes_nothing) {
  const int64_t before = cpu_memory().in_use;
  const at::Tensor t = bytes(0);
  EXPECT_EQ(cpu_memory().in_use, before);
}

TEST_F(CpuAllocator, a_freed_block_serves_the_next_tensor_of_its_class) {
  at::Tensor first = bytes(3'000'000);
  const void* data = first.data_ptr();
  const int64_t reserved = cpu_memory().reserved;
  first.reset();
  const at::Tensor second = bytes(2'950'000);
  EXPECT_EQ(second.data_ptr(), data);
  EXPECT_EQ(cpu_memory().reserved, reserved);
}

TEST_F(CpuAllocator, at_most_a_quarter_more_than_asked_for_is_reserved) {
  for (int64_t n = 70'000; n < 50'000'000; n = n * 9 / 8 + 1) {
    const int64_t before = cpu_memory().in_use;
    const at::Tensor t = bytes(n);
    const int64_t taken = cpu_memory().in_use - before;
    EXPECT_GE(taken, n);
    EXPECT_LE(taken, n + n / 4 + 128) << n;
  }
}

TEST_F(CpuAllocator, threads_get_blocks_of_their_own) {
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([id] {
      for (int i = 0; i < 200; ++i) {
        const at::Tensor t = at::full({50'000 + 1000 * i}, id, at::kInt);
        ASSERT_EQ(t.min().item<int>(), id);
        ASSERT_EQ(t.max().item<int>(), id);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(CpuAllocator, more_than_there_is_memory_is_an_error_with_the_size) {
  const int64_t before = cpu_memory().in_use;
  try {
    bytes(int64_t{1} << 55);
    FAIL() << "nothing was thrown";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("36028797018963968 bytes"), std::string::npos) << e.what();
  }
  EXPECT_EQ(cpu_memory().in_use, before);
}

}  // namespace
}  // namespace drivetrain
