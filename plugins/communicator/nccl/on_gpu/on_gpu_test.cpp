// communicator/nccl on GPUs: the kernel against the tree's definition, then the suite of its kind with as many ranks as
// there are GPUs, each rank a thread. With one GPU only the loopback and the kernel run.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <cuda_runtime_api.h>

#include <drivetrain/device.h>
#include <drivetrain/testkit/communicator/suite.h>
#include "../tree_sum.h"
#include "conformance/communicator/linked.h"
#include "device/open_device.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

int64_t gpus = 0;

class CommunicatorNcclOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(status);
    open_device("cuda");
    gpus = count;
    usual_options = R"({"timeout_s": 60})";
    device_of_rank = [](int64_t rank) {
      use_device("cuda", rank, gpus);  // of the thread that makes the rank
      return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(rank));
    };
  }
  // 1, 2, 3 and all.
  static std::vector<int64_t> sizes() {
    std::vector<int64_t> list;
    for (const int64_t size : {int64_t{1}, int64_t{2}, int64_t{3}, std::min<int64_t>(gpus, 8)})
      if (size <= gpus && (list.empty() || size > list.back())) list.push_back(size);
    return list;
  }
};

// First line of a test.
#define NEEDS_GPUS(wanted) \
  if (gpus < (wanted))     \
  GTEST_SKIP() << "it needs " << (wanted) << " GPUs and here " << (gpus == 1 ? "is " : "are ") << gpus

// The kernel's slices of `ranks` ranks in device memory; `me` lies apart. Uneven values, so another order would show.
template <class T>
void check_kernel(nccl::SumType type, at::ScalarType dtype, int ranks, int64_t count, int64_t offset) {
  const int64_t stride = count + offset;
  const int me = ranks / 2;
  at::Tensor host = at::zeros({ranks * stride + offset}, at::TensorOptions(dtype));
  T* values = host.mutable_data_ptr<T>() + offset;
  for (int r = 0; r < ranks; ++r)
    for (int64_t i = 0; i < count; ++i) values[r * stride + i] = static_cast<T>(uneven(r, i) / 16);
  const auto device = at::Device(at::kCUDA, 0);
  const at::Tensor all = host.to(device), apart = all.narrow(0, offset + me * stride, count).clone();
  // The others packed: the ranks before this one, then those behind it.
  const at::Tensor packed = at::zeros({(ranks - 1) * stride + offset + 1}, all.options());
  for (int r = 0; r < ranks; ++r)
    if (r != me)
      packed.narrow(0, offset + (r - (r > me)) * stride, count).copy_(all.narrow(0, offset + r * stride, count));
  nccl::TreeSum sum;
  sum.type = type, sum.own = apart.const_data_ptr(), sum.others = packed.const_data_ptr<T>() + offset;
  sum.stride = stride, sum.ranks = ranks, sum.me = me, sum.out = apart.mutable_data_ptr(), sum.count = count;
  // Behind the copies above: the thread's stream does not order with the legacy default one.
  ASSERT_EQ(nccl::tree_sum(sum, current_stream(device)), 0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  const std::function<double(int, int, int64_t)> in_double = [&](int first, int n, int64_t i) -> double {
    if (n == 1) return static_cast<double>(static_cast<float>(values[first * stride + i]));
    const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
    const double sum = in_double(first, left, i) + in_double(first + left, n - left, i);
    return dtype == at::kDouble ? sum : static_cast<double>(static_cast<float>(sum));  // float32 at every step
  };
  const at::Tensor result = apart.cpu();
  for (int64_t i = 0; i < count; ++i) {
    const T wanted = static_cast<T>(in_double(0, ranks, i));
    const T found = result.const_data_ptr<T>()[i];
    ASSERT_EQ(std::memcmp(&found, &wanted, sizeof(T)), 0)
        << c10::toString(dtype) << ", " << ranks << " ranks, element " << i << " of " << count << ": "
        << static_cast<double>(found) << ", wanted " << static_cast<double>(wanted);
  }
}

TEST_F(CommunicatorNcclOnGpu, the_kernel_adds_in_the_fixed_tree) {
  use_device("cuda", 0, gpus);
  for (const int ranks : {1, 2, 3, 5, 7, 8, 15, 16, 33, 100})
    for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{1000}, int64_t{100003}})
      for (const int64_t offset : {0, 1}) {  // 1: nothing lies on a boundary of packs
        if (ranks > 16 && count > 1000) continue;
        check_kernel<float>(nccl::SumType::f32, at::kFloat, ranks, count, offset);
        check_kernel<double>(nccl::SumType::f64, at::kDouble, ranks, count, offset);
        check_kernel<c10::BFloat16>(nccl::SumType::bf16, at::kBFloat16, ranks, count, offset);
        check_kernel<c10::Half>(nccl::SumType::f16, at::kHalf, ranks, count, offset);
      }
}

TEST_F(CommunicatorNcclOnGpu, the_kernel_wraps_integers) {
  use_device("cuda", 0, gpus);
  const at::Device device(at::kCUDA, 0);
  const at::Tensor t = at::ones({64}, at::TensorOptions(at::kByte).device(device));
  const at::Tensor others = t.mul(200);
  const nccl::TreeSum sum{
      nccl::SumType::i8, t.const_data_ptr(), others.const_data_ptr(), 64, 2, 0, t.mutable_data_ptr(), 64};
  ASSERT_EQ(nccl::tree_sum(sum, current_stream(device)), 0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(t.cpu().const_data_ptr<uint8_t>()[63], 201);
}

TEST_F(CommunicatorNcclOnGpu, collectives_match_a_local_computation) { collectives_match_a_local_computation(sizes()); }

TEST_F(CommunicatorNcclOnGpu, deterministic_collectives_match_a_local_computation) {
  usual_options = R"({"timeout_s": 60, "deterministic": true})";
  collectives_match_a_local_computation(sizes());
  large_collectives_match_a_local_computation(sizes());
}

TEST_F(CommunicatorNcclOnGpu, deterministic_sums_follow_the_fixed_tree) {
  NEEDS_GPUS(2);
  usual_options = R"({"timeout_s": 60, "deterministic": true})";
  sums_follow_the_fixed_tree(std::min<int64_t>(gpus, 8));
}

TEST_F(CommunicatorNcclOnGpu, overlapping_groups_do_not_disturb_each_other) {
  NEEDS_GPUS(4);
  usual_options = R"({"timeout_s": 60, "deterministic": true})";
  overlapping_groups_do_not_disturb_each_other();
}

TEST_F(CommunicatorNcclOnGpu, a_late_rank_is_named_after_the_timeout) {
  NEEDS_GPUS(3);
  a_late_rank_is_named_after_the_timeout();
}

TEST_F(CommunicatorNcclOnGpu, a_rank_that_leaves_is_named) {
  NEEDS_GPUS(3);
  a_rank_that_leaves_is_named();
}

}  // namespace
}  // namespace drivetrain
