// `drivetrain bench checkpoint`: what it tells and what it leaves behind. Never what anything took.
#include "program/bench_fixture.h"

namespace drivetrain::test {
namespace {

TEST_F(Bench, saves_are_timed_on_two_ranks_and_nothing_is_left) {
  const Ran ran = on_stdout(concat("launch -n 2 ", path("tiny.json"), " --bench checkpoint --every 2 --rounds 2 --json",
                                   " --folder ", folder()));
  ASSERT_EQ(ran.code, 0) << ran.output << file_bytes(path("errors.txt"));
  const Value value = parse_json(ran.output, "report");
  EXPECT_EQ(value.find("bench")->as_string(), "checkpoint");
  EXPECT_EQ(value.find("ranks")->as_int(), 2);
  EXPECT_GT(value.find("bytes")->as_int(), 0);
  for (const char* key : {"block_without_s", "block_with_s", "stall_s", "write_s", "plain_direct_s", "plain_cached_s",
                          "load_s", "plain_read_s"})
    expect_spread(value, key);
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    EXPECT_EQ(entry.path().filename().string().find(".drivetrain-bench"), std::string::npos) << entry.path();
}

TEST_F(Bench, saves_need_a_folder_and_a_store) {
  expect_refused("bench checkpoint --folder /proc", 8, {"/proc", "--folder FOLDER"});
  expect_refused("bench checkpoint --set checkpoint_store=false", 2, {"checkpoint_store", "leave it out"});
}

}  // namespace
}  // namespace drivetrain::test
