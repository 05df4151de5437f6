// Flight records on their way from the rank of another host to the user: held by its agent, written by the launcher.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "flight/memory.h"
#include "launch/brought_records.h"
#include "launch/held_record.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;
using Memory = FlightRecord::Memory;

class FlightRecords : public ::testing::Test {
 protected:
  FlightRecords() {
    char name[] = "/tmp/drivetrain-flight-XXXXXX";
    folder_ = mkdtemp(name);
    fs::create_directory(folder_ + "/run");
  }
  ~FlightRecords() override { fs::remove_all(folder_); }

  std::string run() const { return folder_ + "/run"; }
  std::string file(const std::string& name) const { return run() + "/flight/" + name; }
  // As a rank has it. `run_number` 0: it had not begun.
  std::unique_ptr<Memory> record(int64_t rank, uint64_t run_number, int64_t step) const {
    auto memory = std::make_unique<Memory>();
    memory->rank = rank, memory->world_size = 4, memory->pid = 100 + rank, memory->run = run_number;
    memory->step = step;
    if (run_number != 0) std::strcpy(memory->folder, run().c_str());
    return memory;
  }
  static std::string bytes(const Memory& memory) { return {reinterpret_cast<const char*>(&memory), sizeof memory}; }
  void put(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int64_t step_in(const std::string& name) const { return step_of(text_of(file(name))); }
  static int64_t step_of(const std::string& text) {
    if (text.size() != sizeof(Memory)) return -1;
    Memory memory;
    std::memcpy(static_cast<void*>(&memory), text.data(), sizeof memory);
    return memory.step;
  }

  std::string folder_, said_;
  BroughtRecords brought_{[this](const std::string& text) { said_ += text + "\n"; }};
};

TEST_F(FlightRecords, are_held_until_the_end_was_a_good_one) {
  HeldRecord held = HeldRecord::make();
  ASSERT_GE(held.fd(), 0);
  EXPECT_FALSE(held.bytes()) << "none was begun";
  FlightRecord of_rank(1, 4, held.fd());
  of_rank.at_step(3);
  EXPECT_EQ(step_of(held.bytes().value_or("")), 3);
  EXPECT_FALSE(held.stall_was_told());
  of_rank.stall_told();
  EXPECT_TRUE(held.stall_was_told());
  EXPECT_FALSE(held.stall_was_told()) << "once";
  of_rank.forget();
  EXPECT_FALSE(held.bytes());
  EXPECT_FALSE(HeldRecord().bytes()) << "where there is no such memory";
}

TEST_F(FlightRecords, that_go_on_in_a_file_are_read_there_while_it_is_that_of_the_rank) {
  fs::create_directory(run() + "/flight");
  HeldRecord held = HeldRecord::make();
  {
    FlightRecord of_rank(1, 4, held.fd());
    of_rank.belongs_to(77, run());
    of_rank.at_step(3);
    of_rank.keep_in(file("rank_0001"));
    of_rank.at_step(9);
  }
  EXPECT_EQ(step_of(held.bytes().value_or("")), 9);
  put("rank_0001", bytes(*record(1, 78, 11)));
  EXPECT_EQ(step_of(held.bytes().value_or("")), 3) << "of another run";
  fs::remove(file("rank_0001"));
  EXPECT_EQ(step_of(held.bytes().value_or("")), 3) << "there is no file";
}

TEST_F(FlightRecords, are_written_where_the_user_reads_them_and_those_before_go) {
  fs::create_directory(run() + "/flight");
  put("rank_0003", bytes(*record(3, 5, 1)));
  put("rank_0000", bytes(*record(0, 77, 8)));  // rank 0 is here and writes its own
  brought_.take(0, bytes(*record(0, 77, 4)));
  brought_.take(1, bytes(*record(1, 77, 4)));
  EXPECT_EQ(step_in("rank_0000"), 8);
  EXPECT_EQ(step_in("rank_0001"), 4);
  EXPECT_FALSE(fs::exists(file("rank_0003"))) << "of another run";
  brought_.take(1, bytes(*record(1, 77, 6)));
  EXPECT_EQ(step_in("rank_0001"), 6) << "the newer one";
  EXPECT_EQ(brought_.ranks(), "rank 1");
  EXPECT_EQ(brought_.folder(), run());
  EXPECT_EQ(said_, "");
}

TEST_F(FlightRecords, of_a_run_that_went_on_and_ended_well_go) {
  brought_.take(1, bytes(*record(1, 77, 4)));
  brought_.forget();
  EXPECT_FALSE(fs::exists(run() + "/flight"));
  EXPECT_TRUE(fs::exists(run()));
  EXPECT_FALSE(brought_.any());
}

TEST_F(FlightRecords, that_are_missing_leave_the_reason) {
  brought_.missing(3, "host b was lost");
  EXPECT_FALSE(fs::exists(run() + "/flight")) << "where none came nobody knows the folder";
  brought_.take(2, bytes(*record(2, 0, 0)));  // had not begun, and knows no folder
  brought_.take(1, bytes(*record(1, 77, 4)));
  for (const int rank : {1, 2, 3}) brought_.missing(rank, "host b was lost");
  EXPECT_EQ(step_in("rank_0001"), 4);
  EXPECT_EQ(step_in("rank_0002"), 0);
  EXPECT_EQ(text_of(file("rank_0003.missing")), "host b was lost\n");
  EXPECT_FALSE(fs::exists(file("rank_0001.missing")));
  EXPECT_EQ(brought_.ranks(), "ranks 1 and 2");
}

TEST_F(FlightRecords, of_strangers_are_not_taken_and_no_link_is_followed) {
  brought_.take(1, "no record"), brought_.take(1, bytes(*record(2, 77, 4)));
  EXPECT_EQ(brought_.folder(), "");
  fs::create_directory(folder_ + "/strangers");
  fs::create_directory_symlink(folder_ + "/strangers", run() + "/flight");
  brought_.take(1, bytes(*record(1, 77, 4)));
  EXPECT_TRUE(fs::is_empty(folder_ + "/strangers"));
  EXPECT_NE(said_.find("symbolic link, which is not followed"), std::string::npos) << said_;
  EXPECT_FALSE(brought_.any());
}

}  // namespace
}  // namespace drivetrain::program
