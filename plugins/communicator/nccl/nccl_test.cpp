// communicator/nccl without a GPU: its manifest, its options, what it says where there is none, and how it explains a
// call that does not end. on_host/ runs its calls over stand-ins, on_gpu/ over the real thing.
#include <cuda_runtime_api.h>

#include <thread>

#include <drivetrain/plan_record.h>

#include <drivetrain/testkit/communicator/ranks.h>
#include "board.h"
#include "conformance/communicator/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

const DrivetrainDescriptor& descriptor() { return *static_cast<const DrivetrainDescriptor*>(drivetrain_plugin); }

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" does not say \"" << part << "\"";
}

TEST(CommunicatorNccl, the_manifest_says_what_it_was_linked_with) {
  const std::string manifest = descriptor().manifest;
  for (const char* part :
       {R"("device":"cuda")", R"("default":true)", R"("uses_cuda":true)", R"("nccl_major":2)", "sm_90"})
    expect_part(manifest, part);
  EXPECT_EQ(manifest.find(R"("cuda_runtime":0)"), std::string::npos);
}

TEST(CommunicatorNccl, unknown_options_and_ranges_are_refused) {
  const auto store = make_local_store();
  expect_part(error_of([&] { Rank(0, 1, *store, R"({"time_out_s": 1})"); }), "timeout_s");
  expect_part(error_of([&] { Rank(0, 1, *store, R"({"timeout_s": 0})"); }), "timeout_s");
  expect_part(error_of([&] { Rank(0, 1, *store, R"({"deterministic": 1})"); }), "deterministic");
}

TEST(CommunicatorNccl, a_machine_without_gpu_is_told_what_to_do) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return;  // then on_gpu/ creates it
  const auto store = make_local_store();
  try {
    Rank(2, 4, *store, "{}");
    FAIL() << "created without a GPU";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::config);
    for (const char* part :
         {"rank 2 wanted a GPU", "there is no GPU", "CUDA says: ", "CUDA_VISIBLE_DEVICES", "communicator/local"})
      expect_part(error.what(), part);
  }
}

TEST(CommunicatorNccl, steps_may_be_captured_and_only_runs_on_cuda_are_planned) {
  const auto store = make_local_store();
  device_of_rank = [](int64_t) { return at::Device(at::kCUDA, 0); };  // as the runtime gives it: no GPU is asked for
  const Rank rank(0, 1, *store, "{}");
  device_of_rank = [](int64_t) { return at::Device(at::kCPU); };
  RunFacts facts;
  facts.device = "cuda";
  PlanRecord good({}, facts), bad({}, RunFacts{});
  rank.communicator->plan(good);
  rank.communicator->plan(bad);
  EXPECT_TRUE(good.refusals().empty());
  EXPECT_EQ(good.capturables().size(), 1u);
  ASSERT_EQ(bad.refusals().size(), 1u);
  expect_part(bad.refusals()[0].text, "\"device\" is \"cpu\"; use communicator/local");
}

// ---- explanations ----

using CommStatuses = std::vector<std::optional<nccl::CommStatus>>;
nccl::Stall stall(const nccl::CommStatus& mine) { return {"dp", {0, 2, 5}, mine}; }

TEST(CommunicatorNcclExplains, who_did_not_come) {
  const nccl::CommStatus there{7, 7, "all_reduce of 10 Float"};
  EXPECT_EQ(nccl::explain(stall(there), CommStatuses{there, nccl::CommStatus{6, 0, ""}, there}, 30),
            "rank 2 did not reach all_reduce #7 of group \"dp\" within 30 s (ranks 0 and 5 did)");
  EXPECT_EQ(nccl::explain(stall(there), CommStatuses{there, std::nullopt, std::nullopt}, 30),
            "ranks 2 and 5 did not reach all_reduce #7 of group \"dp\" within 30 s (rank 0 did)");
}

TEST(CommunicatorNcclExplains, calls_that_differ) {
  const nccl::CommStatus a{7, 7, "all_reduce of 10 Float"}, b{7, 7, "barrier"};
  EXPECT_EQ(
      nccl::explain(stall(a), CommStatuses{a, a, b}, 30),
      "ranks disagree about call #7 of group \"dp\": rank 0 called all_reduce of 10 Float, rank 5 called barrier");
}

TEST(CommunicatorNcclExplains, everybody_is_there_and_nothing_moves) {
  const nccl::CommStatus a{7, 7, "all_reduce of 10 Float"};
  const std::string text = nccl::explain(stall(a), CommStatuses{a, a, a}, 30);
  for (const char* part :
       {"did not end within 30 s", "rank 5 is in all_reduce of 10 Float", "NCCL_DEBUG=INFO", "timeout_s"})
    expect_part(text, part);
}

TEST(CommunicatorNcclExplains, a_message_that_nobody_took) {
  const nccl::CommStatus sends{3, 0, "send of 4 Float to index 1"}, idle{3, 0, ""};
  const std::string text = nccl::explain(stall(sends), CommStatuses{sends, idle, idle}, 2);
  for (const char* part :
       {"send of 4 Float to index 1 in group \"dp\" did not end within 2 s", "rank 2 is in no call of this group"})
    expect_part(text, part);
}

TEST(CommunicatorNcclBoard, the_first_cause_reaches_all) {
  const auto store = make_local_store();
  nccl::Board a(*store, 0, 2, 1), b(*store, 1, 2, 1);
  const auto nowhere = [](const std::string&) { return nccl::CommStatus{}; };
  EXPECT_FALSE(a.look(nowhere));
  EXPECT_EQ(b.raise("disk full"), "disk full");
  EXPECT_EQ(a.raise("later"), "disk full");
  EXPECT_TRUE(a.look(nowhere));
  expect_part(error_of([&] { a.throw_if_aborted("all_reduce #1 of group \"dp\""); }),
              "communicator/nccl, all_reduce #1 of group \"dp\": disk full");
}

TEST(CommunicatorNcclBoard, the_id_of_the_lowest_rank_reaches_its_group) {
  const auto store = make_local_store();
  std::string got;
  nccl::Board lowest(*store, 3, 8, 5), other(*store, 6, 8, 5);
  const std::string id("a\0b", 3);
  std::thread thread([&] { got = other.meet({3, 6}, "tp", [] { return std::string(); }); });
  EXPECT_EQ(lowest.meet({3, 6}, "tp", [&] { return id; }), id);
  thread.join();
  EXPECT_EQ(got, id);
}

TEST(CommunicatorNcclBoard, who_made_the_call_may_leave) {
  const auto store = make_local_store();
  nccl::Board stays(*store, 0, 2, 1), leaves(*store, 1, 2, 1);
  const nccl::Board::Counters counters = leaves.counters("dp");
  *counters.reached = 5, *counters.replayed = 2;
  const auto waits_in = [](int64_t number) { return nccl::CommStatus{.reached = number, .open = number}; };
  const auto replays = [](int64_t number) {
    return nccl::CommStatus{.reached = 5, .open = 1, .replayed = number, .in_replay = true};
  };
  EXPECT_EQ(stays.left({0, 1}, "dp", waits_in(5)), "");
  leaves.close();
  EXPECT_EQ(stays.left({0, 1}, "dp", waits_in(5)), "");
  EXPECT_EQ(stays.left({0, 1}, "dp", replays(2)), "");
  const std::string gone = concat("rank 1 (pid ", getpid(), ") closed its communicator");
  EXPECT_EQ(stays.left({0, 1}, "dp", waits_in(6)), gone);
  EXPECT_EQ(stays.left({0, 1}, "dp", replays(3)), gone);
}

TEST(CommunicatorNcclCalls, are_named_as_the_ranks_compare_them) {
  using toolkit::Call, toolkit::CallKind;
  EXPECT_EQ((Call{CallKind::all_gather, at::kBFloat16, 8, -1, 3}.text()), "all_gather of 8 BFloat16 per rank");
  EXPECT_EQ((Call{CallKind::broadcast, at::kFloat, 4, 1, 3}.text()), "broadcast of 4 Float from index 1");
  EXPECT_EQ((Call{CallKind::broadcast, at::kFloat, 4, 1, 3}.where("dp")), "broadcast #3 of group \"dp\"");
  EXPECT_EQ((Call{CallKind::recv, at::kFloat, 4, 1, 0}.where("pp")), "recv of 4 Float from index 1 in group \"pp\"");
}

}  // namespace
}  // namespace drivetrain
