// Ranks that share one GPU, what a GPU that fails says of itself, and how groups are closed, over the stand-ins.
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "fake_cuda.h"
#include "support/waiting.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

constexpr const char* kVariable = "NCCL_MULTI_RANK_GPU_ENABLE";

class SharedGpu : public ::testing::Test {
 protected:
  void SetUp() override { setenv(kVariable, "1", 1); }
  void TearDown() override {
    unsetenv(kVariable);
    nccl::host_nccl_version = 23007, nccl::host_gpu_name = "stand-in", nccl::host_gpus_differ = false;
    nccl::host_closing_ms = 0;
  }
  // What two ranks threw, and what rank 0 said.
  std::vector<std::string> meet() {
    said_.clear();
    return run_threads(
        2,
        [this](Rank& r) {
          try {
            use(r);
          } catch (const Error& e) {
            codes_[static_cast<size_t>(r.rank())] = e.code();
            throw;
          }
        },
        R"({"timeout_s": 5})");
  }
  void use(Rank& r) {
    const GroupPtr world = r.world(), again = r.group({0, 1}, "again");
    at::Tensor t = at::ones({3}, at::kFloat);
    world->all_reduce(t)->wait();
    world->barrier();
    EXPECT_EQ(t[0].item<float>(), 2);
    if (r.rank() == 0) said_ = r.log.lines;
  }
  void expect_says_no_more_than_the_library() const {
    ASSERT_EQ(said_.size(), 1u);
    expect_part(said_[0], "NCCL 2.28.9 of ");
    EXPECT_EQ(said_[0].find("share"), std::string::npos) << said_[0];
  }
  std::vector<std::string> said_;
  std::array<ErrorCode, 2> codes_{};
};

TEST_F(SharedGpu, is_allowed_from_nccl_2_30_on_and_said_once) {
  nccl::host_nccl_version = 23000;
  expect_no_errors(meet());
  ASSERT_EQ(said_.size(), 1u);
  for (const char* part : {"NCCL 2.30.0 of ", "ranks share a GPU", kVariable, "take turns"})
    expect_part(said_[0], part);
}

TEST_F(SharedGpu, is_refused_by_an_older_nccl_with_its_version_and_place) {
  nccl::host_nccl_version = 22809;
  const auto errors = meet();
  const bool first = errors[0].find("that needs") != std::string::npos;  // whoever comes second is refused
  for (const char* part : {"shares GPU 0 (stand-in) with another rank", kVariable, "needs NCCL 2.30.0 or newer",
                           "the one in use is 2.28.9", "communicator_nccl_on_host_test", "DRIVETRAIN_NCCL=PATH"})
    expect_part(errors[first ? 0 : 1], part);
  EXPECT_EQ(codes_[first ? 0 : 1], ErrorCode::config);
}

TEST_F(SharedGpu, an_older_nccl_does_where_every_rank_has_its_own) {
  nccl::host_nccl_version = 22809;
  nccl::host_gpus_differ = true;
  expect_no_errors(meet());
  expect_says_no_more_than_the_library();
}

TEST_F(SharedGpu, a_slice_of_a_gpu_is_refused) {
  nccl::host_gpu_name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
  for (const std::string& error : meet()) expect_part(error, "no slices (MIG)");
  for (const ErrorCode code : codes_) EXPECT_EQ(code, ErrorCode::config);
}

TEST_F(SharedGpu, without_the_variable_nothing_is_asked_and_0_is_without) {
  nccl::host_nccl_version = 22809;
  setenv(kVariable, "0", 1);
  expect_no_errors(meet());
  expect_says_no_more_than_the_library();
  unsetenv(kVariable);
  expect_no_errors(meet());
}

// The watchdog finds it while the rank waits; the rank throws what CUDA said, its peer that the run was ended.
TEST_F(SharedGpu, a_kernel_that_failed_is_no_failure_of_the_communicator) {
  std::atomic<int> number = 0;
  // The stand-ins' streams may still write there when a rank has left.
  const std::array<at::Tensor, 2> sums = {at::ones({3}, at::kFloat), at::ones({3}, at::kFloat)};
  const auto errors = run_threads(
      2,
      [&](Rank& r) {
        const GroupPtr world = r.world();
        world->barrier();
        if (r.rank() == 1) nccl::host_events_answer = cudaErrorIllegalAddress;
        try {
          for (;;) world->all_reduce(sums[static_cast<size_t>(r.rank())])->wait();
        } catch (const c10::AcceleratorError& e) {
          number = e.get_error_code();
          throw;
        }
      },
      R"({"timeout_s": 20})");
  EXPECT_EQ(number, 700);
  expect_part(errors[1], "CUDA error: ");
  expect_part(errors[0], "rank 1: ");
}

TEST_F(SharedGpu, groups_that_are_slow_to_close_are_waited_for_while_no_rank_is_lost) {
  nccl::host_closing_ms = 5500;
  expect_no_errors(run_threads(
      2,
      [](Rank& r) {
        r.world()->barrier();
        r.communicator.reset();
        EXPECT_EQ(r.log.warnings, std::vector<std::string>());
      },
      R"({"timeout_s": 50})"));
}

TEST_F(SharedGpu, a_group_is_left_open_where_a_rank_is_lost_and_its_reason_is_said) {
  nccl::host_closing_ms = 3000, nccl::host_closings_begun = 0;
  std::vector<std::string> warnings;
  run_threads(
      2,
      [&](Rank& r) {
        {
          const GroupPtr world = r.world();
          world->barrier();
          if (r.rank() == 1) {
            EXPECT_TRUE(eventually([] { return nccl::host_closings_begun > 0; }));
            r.communicator->abort("gone");
          }
        }
        r.communicator.reset();
        if (r.rank() == 0) warnings = r.log.warnings;
      },
      R"({"timeout_s": 0.8})");
  ASSERT_EQ(warnings.size(), 1u);
  expect_part(warnings[0],
              "group \"world\" was left open: NCCL has not closed it within 0.8 s, since the run was aborted: ");
  expect_part(warnings[0], "gone");
}

}  // namespace
}  // namespace drivetrain
