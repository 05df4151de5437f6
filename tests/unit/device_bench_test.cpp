// Benchmarks start their GPU as a run does: one that is full ends them with the code, its UUID and who holds it.
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "bench/machine.h"
#include "bench/rank_alone.h"
#include "cli/parse.h"
#include "contract/device_runtime.h"
#include "plugin_calls/plugin_call.h"
#include "support/idle_device.h"

namespace drivetrain {
namespace {

// CUDA can choose it, and has no memory for the context, which is made at the first call that needs one.
struct FullDevice final : test::IdleDevice {
  int64_t count() const override { return 2; }
  DeviceFacts facts(int64_t index) const override {
    return {"test", 90, 0,
            index == 0 ? "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f" : "ffffffff0405060708090a0b0c0d0e0f"};
  }
  void synchronize(const at::Device&) override {
    throw c10::AcceleratorError({__func__, __FILE__, 0}, 2, "CUDA error: out of memory");
  }
};

class BenchDevice : public testing::Test {
 protected:
  void SetUp() override {
    // Found under its own name, as on a machine with a driver.
    ASSERT_TRUE(dlopen(NVIDIA_STAND_INS "/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) << dlerror();
    set_device_runtime(&device);
  }
  void TearDown() override {
    set_device_runtime(nullptr);
    work_rank() = {};
  }
  template <class Call>
  static void expect_refused(const Call& call, const std::vector<std::string>& parts) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::out_of_memory) << e.what();
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << "\nin: " << e.what();
    }
  }
  FullDevice device;
};

TEST_F(BenchDevice, of_one_process_that_is_full_names_itself_and_its_holders) {
  for (const char* bench : {"kernels", "attention", "optimizer", "products"})
    expect_refused(
        [&] {
          open_bench_device(cli::parse({"bench", bench, "--device", "cuda"}));
        },
        {"the GPU of this rank cannot be used: out of memory on the GPU",
         "GPU 0 (test, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f) of rank 0",
         "it is held by process 2147483002 (71680 MiB), process 2147483001 (1024 MiB)"});
}

TEST_F(BenchDevice, of_a_rank_that_is_full_names_the_rank_too) {
  const cli::Arguments arguments = cli::parse({"bench", "collectives", "--device", "cuda"});
  RankEnvironment environment;
  expect_refused([&] { RankAlone(arguments, environment); },
                 {"the GPU of this rank cannot be used: out of memory on the GPU", "of rank 0",
                  "it is held by process 2147483002"});
}

}  // namespace
}  // namespace drivetrain
