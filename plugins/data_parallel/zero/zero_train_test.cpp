// data_parallel/zero in whole runs: options and spellings that the table of bits in tests/sharding leaves out.
#include "support/small_run.h"

namespace drivetrain::test {
namespace {

std::string stage(int64_t stage, const std::string& more = "") {
  return concat(R"({"zero_optimization": {"stage": )", stage, more, "}}");
}

TEST(ZeroRun, waiting_at_once_and_keeping_values_change_no_bit) {
  const TempFolder folder;
  const std::string whole = figures(train_small(folder, "whole", "{}", 2));
  int n = 0;
  for (const char* more :
       {R"(, "overlap_comm": false)", R"(, "stage3_max_reuse_distance": 1e9)", R"(, "stage3_max_live_parameters": 0)",
        R"(, "stage3_allgather_sequential": true)", R"(, "stage3_max_reuse_distance": 0)"}) {
    const std::string cut = R"(, "stage3_param_persistence_threshold": 0)";
    EXPECT_EQ(figures(train_small(folder, concat("run", ++n), stage(3, cut + more), 2)), whole) << more;
  }
}

TEST(ZeroRun, true_is_stage_1_and_data_parallel_may_name_it) {
  const TempFolder folder;
  const std::string whole = figures(train_small(folder, "whole", "{}", 2));
  const RunResult bare = train_small(folder, "bare", R"({"zero_optimization": true})", 2);
  EXPECT_EQ(figures(bare), whole);
  EXPECT_EQ(figures(train_small(folder, "typed", R"({"data_parallel": {"type": "zero", "params": {"stage": 2}}})", 2)),
            whole);
  EXPECT_EQ(figures(train_small(folder, "typed0", R"({"data_parallel": {"type": "zero", "params": {"stage": 0}}})", 2)),
            whole);
  EXPECT_EQ(figures(train_small(folder, "off", R"({"zero_optimization": {"stage": 0, "zenflow": {}}})", 2)), whole);
}

TEST(ZeroRun, groups_that_do_not_divide_the_ranks_stop_it_at_the_start) {
  const TempFolder folder;
  EXPECT_NE(error_of([&] {
              train_small(folder, "run", stage(1, R"(, "group_size": 3)"), 2);
            }).find("group_size = 3 does not divide the 2 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
