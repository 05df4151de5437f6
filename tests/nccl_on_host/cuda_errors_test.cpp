// What CUDA says inside NCCL ends a run as it does elsewhere, by the runtime's table; NCCL's other errors are the
// communicator's. Over the stand-ins.
#include <ATen/ops/ones.h>
#include <dlfcn.h>
#include <nccl.h>

#include <array>
#include <string>
#include <utility>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "contract/device_runtime.h"
#include "fake_cuda.h"
#include "plugin_calls/plugin_call.h"
#include "support/idle_device.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct NamedDevice final : IdleDevice {
  DeviceFacts facts(int64_t) const override { return {"test", 90, 0, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"}; }
};

// As the runtime calls the plugin of a rank that has a GPU. The code and the text with which that ends.
template <class Call>
std::pair<int, std::string> end_of(const Rank& r, const char* hook, const Call& call) {
  static const std::string id = "communicator/nccl";
  work_rank() = {.rank = r.rank(), .world_size = 2, .device = 0};
  try {
    plugin_call({id, hook}, call);
  } catch (const Error& e) {
    return {static_cast<int>(e.code()), e.what()};
  }
  return {};
}

class CudaInsideNccl : public ::testing::Test {
 protected:
  void SetUp() override { set_device_runtime(&device_); }
  void TearDown() override {
    set_device_runtime(nullptr);
    nccl::host_joining_answer = nccl::host_background_answer = ncclSuccess;
    nccl::host_nccl_last_words = "";
  }
  // Of rank 1, which NCCL lets join no group.
  static std::pair<int, std::string> joining(ncclResult_t answer, const char* last_words) {
    nccl::host_joining_answer = answer, nccl::host_nccl_last_words = last_words;
    std::array<std::pair<int, std::string>, 2> ended;
    expect_no_errors(run_threads(
        2, [&](Rank& r) { ended[static_cast<size_t>(r.rank())] = end_of(r, "make_group", [&] { r.world(); }); }));
    return ended[1];
  }

 private:
  NamedDevice device_;
};

TEST_F(CudaInsideNccl, has_the_code_and_the_remedy_of_the_table_and_names_the_gpu) {
  struct Case {
    ncclResult_t answer;
    const char* last_words;
    int code;
    const char* remedy;
  };
  for (const auto& [answer, last_words, code, remedy] : {
           Case{ncclUnhandledCudaError, "Cuda failure 2 'out of memory'", 4, "look who holds it (nvidia-smi)"},
           Case{ncclUnhandledCudaError, "Cuda failure 'out of memory'", 4, "look who holds it (nvidia-smi)"},
           Case{ncclUnhandledCudaError, "Failed to CUDA malloc 4194304 bytes", 4, "look who holds it (nvidia-smi)"},
           Case{ncclUnhandledCudaError, "Failed to CUDA calloc async 8 bytes", 4, "look who holds it (nvidia-smi)"},
           Case{ncclUnhandledCudaError, "Cuda failure 214 'in words of another release'", 8, "nvidia-smi -q -d ECC"},
           Case{ncclUnhandledCudaError, "Cuda failure 'uncorrectable ECC error encountered'", 8, "-q -d ECC"},
           Case{ncclUnhandledCudaError, "Cuda failure 700 'an illegal memory access was encountered'", 3,
                "CUDA_LAUNCH_BLOCKING=1"},
           Case{ncclSystemError, "Cuda failure 999 'unknown error'", 8, "Xid"},
       }) {
    const auto [found, text] = joining(answer, last_words);
    EXPECT_EQ(found, code) << text;
    for (const char* part : {"in communicator/nccl, hook make_group, rank 1: ", "ncclCommInitRank failed", last_words,
                             remedy, "GPU 0 (test, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f) of rank 1"})
      expect_part(text, part);
  }
}

TEST_F(CudaInsideNccl, tells_who_holds_a_full_gpu) {
  // Found under its own name, as on a machine with a driver.
  ASSERT_TRUE(dlopen(NVIDIA_STAND_INS "/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) << dlerror();
  expect_part(joining(ncclUnhandledCudaError, "Cuda failure 2 'out of memory'").second,
              "it is held by process 2147483002 (71680 MiB), process 2147483001 (1024 MiB)");
}

TEST_F(CudaInsideNccl, is_all_that_the_table_knows_and_other_errors_stay_the_communicators) {
  for (const auto& [answer, last_words] : {
           std::pair(ncclUnhandledCudaError, "Cuda failure 217 'peer access is not supported between these devices'"),
           std::pair(ncclUnhandledCudaError, "Cuda failure 'invalid argument'"),
           std::pair(ncclUnhandledCudaError, "Cuda failure"),
           std::pair(ncclUnhandledCudaError, "Cuda failure 2 'cut"),
           std::pair(ncclUnhandledCudaError, ""),
           std::pair(ncclSystemError, "Call to bind failed: Address already in use"),
           // The words are of the process's last failure, which may be another one.
           std::pair(ncclRemoteError, "Cuda failure 2 'out of memory'"),
           std::pair(ncclInternalError, "Cuda failure 700 'an illegal memory access was encountered'"),
       }) {
    const auto [code, text] = joining(answer, last_words);
    EXPECT_EQ(code, 5) << text;
    for (const char* part : {"ncclCommInitRank failed: an error of the stand-in", last_words, ". NCCL_DEBUG=INFO says"})
      expect_part(text, part);
    EXPECT_EQ(text.find("CUDA error"), std::string::npos) << text;
  }
}

// Of two ranks that call until they learn what NCCL found in the background of rank 1.
std::array<std::pair<int, std::string>, 2> in_the_background(ncclResult_t answer, const char* last_words) {
  std::array<std::pair<int, std::string>, 2> ended;
  // The stand-ins' streams may still write there when a rank has left.
  const std::array<at::Tensor, 2> sums = {at::ones({3}, at::kFloat), at::ones({3}, at::kFloat)};
  expect_no_errors(run_threads(
      2,
      [&](Rank& r) {
        const GroupPtr world = r.world();
        world->barrier();
        if (r.rank() == 1) {
          nccl::host_nccl_last_words = last_words;
          nccl::host_background_answer = answer;
        }
        const auto own = static_cast<size_t>(r.rank());
        ended[own] = end_of(r, "all_reduce", [&] {
          for (;;) world->all_reduce(sums[own])->wait();
        });
      },
      R"({"timeout_s": 20})"));
  return ended;
}

TEST_F(CudaInsideNccl, is_found_in_the_background_by_the_watchdog_too) {
  const auto ended =
      in_the_background(ncclUnhandledCudaError, "Cuda failure 700 'an illegal memory access was encountered'");
  EXPECT_EQ(ended[1].first, 3) << ended[1].second;
  for (const char* part : {"group \"world\": NCCL reports an error of the stand-in (Cuda failure 700 'an illegal",
                           "GPU 0 (test, GPU-00010203", "of rank 1", "CUDA_LAUNCH_BLOCKING=1"})
    expect_part(ended[1].second, part);
  EXPECT_EQ(ended[0].first, 5) << ended[0].second;
  expect_part(ended[0].second, "rank 1, group \"world\": NCCL reports");
}

TEST_F(CudaInsideNccl, in_the_background_other_errors_stay_those_of_a_peer_or_a_link) {
  const auto ended = in_the_background(ncclRemoteError, "socket closed");
  for (const auto& [code, text] : ended) {
    EXPECT_EQ(code, 5) << text;
    expect_part(text, "(socket closed). A peer or a link is gone; NCCL_DEBUG=INFO says more");
  }
}

}  // namespace
}  // namespace drivetrain
