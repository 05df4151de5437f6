// The records in a run's folder: those that are damaged, missing or of another run do not hide the others.
#include "flight_tools/left_records.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

class Left : public ::testing::Test {
 protected:
  Left() { std::filesystem::create_directory(folder_.path() + "/flight"); }
  std::string path(int64_t rank) const { return folder_.path() + "/flight/rank_000" + std::to_string(rank); }
  void leave(int64_t rank, uint64_t run) const {
    FlightRecord record(rank, 3);
    record.belongs_to(run, folder_.path());
    record.keep_in(path(rank));
    record.at_step(static_cast<int64_t>(run));
  }
  std::vector<int64_t> ranks() const {
    std::vector<int64_t> list;
    for (const LeftRecord& record : read_left_records(folder_.path()).records) list.push_back(record.rank);
    return list;
  }
  std::string why_missing(int64_t rank) const { return read_left_records(folder_.path()).missing.at(rank); }
  const test::TempFolder folder_;
};

TEST_F(Left, are_read_in_order_and_none_is_missing) {
  for (const int64_t rank : {2, 0, 1}) leave(rank, 5);
  std::ofstream(folder_.path() + "/flight/rank_0002.new") << "half";
  std::ofstream(folder_.path() + "/flight/notes") << "mine";
  EXPECT_EQ(ranks(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(read_left_records(folder_.path() + "/flight").missing.empty()) << "the folder itself may be named";
}

TEST_F(Left, one_that_is_damaged_is_named_beside_the_others) {
  for (const int64_t rank : {0, 1, 2}) leave(rank, 5);
  std::filesystem::resize_file(path(1), 100);
  EXPECT_EQ(ranks(), (std::vector<int64_t>{0, 2}));
  EXPECT_NE(why_missing(1).find("rank_0001 is no flight record of this version"), std::string::npos);
  std::filesystem::remove(path(1));
  std::filesystem::copy_file(path(0), path(1));
  EXPECT_NE(why_missing(1).find("rank_0001 is the flight record of rank 0"), std::string::npos);
}

TEST_F(Left, one_of_another_run_is_not_mixed_in) {
  leave(1, 5);
  leave(0, 6), leave(2, 6);
  EXPECT_EQ(ranks(), (std::vector<int64_t>{0, 2}));
  EXPECT_NE(why_missing(1).find("of another run"), std::string::npos);
}

TEST_F(Left, the_launchers_word_on_a_missing_one_is_told) {
  leave(0, 5);
  std::ofstream(path(2) + ".missing") << "host b was lost: its agent is silent\nmore\n";
  EXPECT_EQ(why_missing(2), "host b was lost: its agent is silent");
  EXPECT_NE(why_missing(1).find("never began"), std::string::npos);
}

TEST_F(Left, where_there_are_none_or_none_can_be_read_it_is_an_error) {
  EXPECT_NE(test::error_of([&] { ranks(); }).find("holds no flight records"), std::string::npos);
  std::ofstream(path(0)) << "x";
  EXPECT_NE(test::error_of([&] { ranks(); }).find("rank_0000 is no flight record"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
