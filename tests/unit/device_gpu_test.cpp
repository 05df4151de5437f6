#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/device.h>
#include "contract/device_runtime.h"
#include "support/gpu.h"

namespace drivetrain {
namespace {

class Device : public testing::Test {
 protected:
  void SetUp() override {
    DRIVETRAIN_NEEDS_GPU();
    pool = runtime().new_graph_pool();
  }
  static DeviceRuntime& runtime() { return *device_runtime(); }
  static double first(const at::Tensor& x) { return x.flatten()[0].item<double>(); }

  const at::Device gpu{at::kCUDA, 0};
  int64_t pool = 0;
  const at::TensorOptions floats = at::TensorOptions().dtype(at::kFloat).device(gpu);
};

TEST_F(Device, says_what_it_is) {
  const DeviceFacts facts = runtime().facts(0);
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.arch, 80);
  EXPECT_GT(facts.memory_bytes, int64_t{1} << 30);
  EXPECT_NE(runtime().error_text(2).find("cudaErrorMemoryAllocation"), std::string::npos);
}

TEST_F(Device, works_in_a_stream_of_its_own) { EXPECT_NE(current_stream(gpu), nullptr); }

TEST_F(Device, counts_what_is_allocated_and_the_peak) {
  const DeviceMemory before = runtime().memory(gpu);
  runtime().reset_peak(gpu);
  {
    const at::Tensor big = at::empty({64 << 20}, floats);
    EXPECT_EQ(runtime().memory(gpu).allocated - before.allocated, int64_t{256} << 20);
  }
  const DeviceMemory after = runtime().memory(gpu);
  EXPECT_EQ(after.allocated, before.allocated);
  EXPECT_EQ(after.peak_allocated - before.allocated, int64_t{256} << 20);
  EXPECT_GE(after.reserved, int64_t{256} << 20);
  EXPECT_GE(after.peak_reserved, after.peak_allocated);
}

TEST_F(Device, gives_pinned_memory) {
  const at::Tensor host = runtime().pinned(1000, at::kLong);
  EXPECT_TRUE(host.device().is_cpu());
  EXPECT_TRUE(host.is_pinned());
  EXPECT_EQ(host.numel(), 1000);
}

TEST_F(Device, gives_long_lived_pinned_memory_without_rounding_it_up) {
  const int64_t bytes = (int64_t{5} << 20) + 4096;
  at::Tensor host = runtime().pinned_exactly(bytes, at::kByte);
  EXPECT_TRUE(host.is_pinned());
  host.fill_(7);
  at::Tensor there = at::empty({bytes}, floats.dtype(at::kByte));
  there.copy_(host, /*non_blocking=*/true);
  host = at::Tensor();  // waits for the copy
  EXPECT_EQ(there[bytes - 1].item<int64_t>(), 7);
}

TEST_F(Device, products_add_their_parts_in_float32) {
  EXPECT_NE(at::globalContext().allowBF16ReductionCuBLAS(), at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
}

TEST_F(Device, marks_tell_the_time_between_them) {
  const at::Tensor x = at::ones({4096, 4096}, floats);
  const auto begin = runtime().new_mark(gpu), end = runtime().new_mark(gpu);
  begin->record();
  for (int i = 0; i < 10; ++i) at::matmul(x, x);
  end->record();
  const double seconds = end->seconds_since(*begin);
  EXPECT_GT(seconds, 1e-4) << "1.4e12 operations";
  EXPECT_LT(seconds, 10);  // Waits: what marks tell is the thing that is tested
}

TEST_F(Device, a_graph_does_its_work_at_each_replay_and_none_while_recorded) {
  const at::Tensor x = at::full({1000}, 2.0, floats);
  at::Tensor y = at::zeros({1000}, floats);
  (void)at::add(x, x);  // whatever the first use of an operation sets up
  const auto graph = runtime().new_graph(gpu, pool);
  graph->begin();
  y.add_(at::add(x, x));
  graph->end();
  EXPECT_EQ(first(y), 0);
  for (int i = 0; i < 3; ++i) graph->replay();
  EXPECT_EQ(first(y), 12);
  x.fill_(1.0);  // read anew by the next replay
  graph->replay();
  EXPECT_EQ(first(y), 14);
}

TEST_F(Device, two_graphs_with_a_value_read_between_them_share_one_pool) {
  at::Tensor x = at::full({1 << 20}, 1.0, floats), sum = at::zeros({1}, floats);
  (void)at::matmul(at::ones({64, 64}, floats), at::ones({64, 64}, floats));
  const auto one = runtime().new_graph(gpu, pool), two = runtime().new_graph(gpu, pool);
  one->begin();
  sum.copy_((x * 3).sum().view({1}));
  one->end();
  two->begin();
  x.sub_(x * 0.5);
  two->end();
  for (int step = 0; step < 4; ++step) {
    one->replay();
    EXPECT_EQ(first(sum), 3.0 * (1 << 20) / (1 << step));
    two->replay();
  }
}

TEST_F(Device, work_goes_on_after_a_recording_that_was_given_up) {
  const at::Tensor x = at::full({10}, 2.0, floats);
  void* const before = current_stream(gpu);
  {
    const auto graph = runtime().new_graph(gpu, pool);
    graph->begin();
    (void)(x * 2);
  }
  EXPECT_EQ(current_stream(gpu), before);
  EXPECT_EQ(first(x * 2), 4);
}

}  // namespace
}  // namespace drivetrain
