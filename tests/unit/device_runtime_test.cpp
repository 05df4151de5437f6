#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <drivetrain/device.h>
#include <drivetrain/error.h>
#include "contract/device_runtime.h"
#include "device/open_device.h"
#include "plugin_calls/start_device.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {
namespace {

// Two GPUs that only remember what is asked of them.
class TwoDevices : public DeviceRuntime {
 public:
  int64_t count() const override { return seen; }
  DeviceFacts facts(int64_t index) const override { return {"test", 90, 0, concat("uuid-", first + index)}; }
  void use(int64_t index) override {
    used = index;
    if (!says.empty()) throw c10::AcceleratorError({__func__, __FILE__, 0}, 2, says);
  }
  void* current_stream(const at::Device& device) override { return this; }
  void synchronize(const at::Device& device) override {}
  std::string error_text(int status) const override { return "the driver's words"; }
  at::Tensor pinned(int64_t numel, at::ScalarType dtype) override { return {}; }
  DeviceMemory memory(const at::Device& device) override { return {}; }
  void reset_peak(const at::Device& device) override {}
  at::Tensor pinned_exactly(int64_t numel, at::ScalarType dtype) override { return {}; }
  int64_t new_graph_pool() override { return 0; }
  std::unique_ptr<DeviceGraph> new_graph(const at::Device& device, int64_t pool) override { return nullptr; }
  std::unique_ptr<DeviceMark> new_mark(const at::Device& device) override { return nullptr; }

  int64_t used = -1;
  std::string says = {};        // what CUDA answers to its first call
  int64_t seen = 2, first = 0;  // GPUs, of which others may be hidden
};

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

class DeviceRuntimeTest : public testing::Test {
 protected:
  ~DeviceRuntimeTest() override { set_device_runtime(nullptr); }
  TwoDevices devices;
};

TEST_F(DeviceRuntimeTest, cpu_runs_open_nothing_and_have_no_stream) {
  open_device("cpu");
  use_device("cpu", 5, 6);
  EXPECT_EQ(device_runtime(), nullptr);
  EXPECT_EQ(current_stream(at::kCPU), nullptr);
  EXPECT_NE(error_of([] { (void)current_stream(at::Device(at::kCUDA, 0)); }).find("before its device was opened"),
            std::string::npos);
}

TEST_F(DeviceRuntimeTest, a_gpu_that_another_process_has_filled_or_taken_is_no_bug_of_ours) {
  set_device_runtime(&devices);
  for (const auto& [says, code, remedy] :
       {std::tuple("CUDA error: out of memory", 4, "nvidia-smi"),
        std::tuple("CUDA error: CUDA-capable device(s) is/are busy or unavailable", 2, "exclusive mode")}) {
    devices.says = says;
    try {
      start_device("cuda", 1, 2);
      ADD_FAILURE() << says;
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(static_cast<int>(e.code()), code) << text;
      for (const char* part : {"GPU 1 (test) cannot be used", says, remedy})
        EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
    }
  }
  devices.says = "CUDA error: an illegal memory access was encountered";
  EXPECT_THROW(start_device("cuda", 1, 2), c10::Error);
}

TEST_F(DeviceRuntimeTest, each_rank_of_a_host_takes_its_own_device) {
  set_device_runtime(&devices);
  use_device("cuda", 1, 2);
  EXPECT_EQ(devices.used, 1);
  EXPECT_EQ(current_stream(at::Device(at::kCUDA, 1)), &devices);
}

TEST_F(DeviceRuntimeTest, more_ranks_than_devices_are_refused_with_both_numbers_and_the_way_out) {
  set_device_runtime(&devices);
  const std::string message = error_of([] { use_device("cuda", 0, 3); });
  for (const char* part :
       {"3 ranks of this host need a GPU each, and this process sees 2", "launch -n 2", "CUDA_VISIBLE_DEVICES"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(devices.used, -1);
}

// As under `srun --gpus-per-task=1`: each process sees one, its own.
TEST_F(DeviceRuntimeTest, a_rank_that_sees_one_device_takes_it_whatever_its_number) {
  set_device_runtime(&devices);
  devices.seen = 1;
  use_device("cuda", 3, 4);
  EXPECT_EQ(devices.used, 0);
  EXPECT_EQ(device_index(3, 4), 0);
  devices.seen = 4;
  EXPECT_EQ(device_index(3, 4), 3);
}

TEST_F(DeviceRuntimeTest, two_ranks_on_one_device_are_told_which) {
  set_device_runtime(&devices);
  devices.seen = 1;
  const auto store = make_local_store();
  for (const int64_t rank : {0, 1, 2}) {
    devices.first = rank;
    check_own_device(*store, rank, rank, 4);
  }
  devices.first = 1;
  const std::string message = error_of([&] { check_own_device(*store, 3, 3, 4); });
  for (const char* part : {"rank 3 and another rank", "one and the same GPU (test, UUID uuid-1)", "4 ranks",
                           "launch -n 1", "CUDA_VISIBLE_DEVICES"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(DeviceRuntimeTest, a_failed_launch_is_told_in_the_drivers_words) {
  set_device_runtime(&devices);
  check_launch(0, "norm");
  EXPECT_EQ(error_of([] { check_launch(700, "norm"); }),
            "norm: the launch failed with status 700 (the driver's words)");
}

}  // namespace
}  // namespace drivetrain
