// The record of a rank's last collectives: what is written, what a crash leaves, and what a damaged file is told.
#include "flight/record.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "flight/group.h"
#include "flight/picture.h"
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

FlightCall all_reduce(int64_t number) {
  return {FlightOp::all_reduce, number, 64, static_cast<int8_t>(at::kFloat), -1};
}

TEST(FlightRecord, keeps_the_last_calls_in_their_order) {
  FlightRecord record(2, 4);
  const size_t dp = record.group("dp@0");
  record.group("tp@2");
  const int64_t calls = static_cast<int64_t>(FlightRecord::kEntries) + 7;
  for (int64_t n = 1; n <= calls; ++n) {
    const uint64_t serial = record.begin(dp, all_reduce(n));
    record.pending(serial);
    if (n < calls) record.waiting(serial), record.done(serial);
  }
  const std::vector<FlightEntry> entries = record.entries();
  ASSERT_EQ(entries.size(), FlightRecord::kEntries);
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].call.number, static_cast<int64_t>(i) + 8);
    EXPECT_EQ(entries[i].state, i + 1 < entries.size() ? FlightState::done : FlightState::pending);
    EXPECT_LE(entries[i].called_s, record.now());
  }
  EXPECT_EQ(entries.front().group, "dp@0");
  EXPECT_EQ(record.reached(), (std::map<std::string, int64_t>{{"dp@0", calls}, {"tp@2", 0}}));
}

TEST(FlightRecord, what_is_late_does_not_touch_the_place_of_another) {
  FlightRecord record(0, 2);
  const size_t dp = record.group("dp@0");
  const uint64_t first = record.begin(dp, all_reduce(1));
  for (size_t n = 0; n < FlightRecord::kEntries; ++n) record.begin(dp, all_reduce(2 + static_cast<int64_t>(n)));
  record.done(first);
  for (const FlightEntry& entry : record.entries()) EXPECT_EQ(entry.state, FlightState::called);
}

TEST(FlightRecord, groups_beyond_its_room_share_one_place) {
  FlightRecord record(0, 2);
  for (size_t i = 0; i < FlightRecord::kGroups + 3; ++i) record.begin(record.group(concat("g", i)), all_reduce(1));
  EXPECT_EQ(record.entries().back().group, "others");
  EXPECT_EQ(record.reached().size(), FlightRecord::kGroups - 1);
}

class FlightFile : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/rank_0001"; }
  void damage(int64_t at, const std::string& bytes) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << bytes;
  }
  void leave_one() const {
    FlightRecord record(1, 2);
    const size_t dp = record.group("dp@0");
    record.waiting(record.begin(dp, all_reduce(1)));
    record.keep_in(path());
    record.failed(record.begin(dp, all_reduce(2)));
    record.at_step(17);
    record.at(FlightDoing::backward, 3);
    record.seen_in("dataset/text, hook read");
  }
  const test::TempFolder folder_;
};

TEST_F(FlightFile, has_what_was_written_before_it_and_after) {
  leave_one();
  const LeftRecord left = read_record(path());
  EXPECT_EQ(left.rank, 1);
  EXPECT_EQ(left.world_size, 2);
  EXPECT_EQ(left.call, "dataset/text, hook read");
  EXPECT_EQ(left.place.step, 17);
  EXPECT_EQ(left.place.micro, 3);
  EXPECT_EQ(left.place.doing, FlightDoing::backward);
  ASSERT_EQ(left.entries.size(), 2u);
  EXPECT_EQ(left.entries[0].state, FlightState::waiting);
  EXPECT_EQ(left.entries[1].state, FlightState::failed);
  EXPECT_EQ(picture_of(left).open.size(), 2u) << "what failed at the end was waited for";
}

TEST_F(FlightFile, goes_at_a_good_end) {
  FlightRecord record(1, 2);
  record.keep_in(path());
  record.forget();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(FlightFile, that_cannot_be_written_is_named) {
  FlightRecord record(1, 2);
  EXPECT_NE(test::error_of([&] { record.keep_in(folder_.path() + "/absent/rank_0001"); }).find("/absent/rank_0001"),
            std::string::npos);
}

TEST_F(FlightFile, that_is_damaged_is_refused_with_what_is_wrong) {
  const auto says = [&](const char* part) {
    const std::string error = test::error_of([&] { read_record(path()); });
    EXPECT_NE(error.find(path()), std::string::npos) << error;
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  says("cannot be read");
  leave_one(), damage(0, "ELF"), says("its first bytes are others");
  leave_one(), damage(8, "\x7f"), says("version 127");
  leave_one(), std::filesystem::resize_file(path(), 100), says("it should have");
}

TEST(RecordedGroup, writes_its_calls_and_gives_what_the_group_gives) {
  const auto record = std::make_shared<FlightRecord>(0, 1);
  const GroupPtr group = recorded_group(loopback_group(0, at::kCPU, "dp@0"), record);
  EXPECT_EQ(group->label(), "dp@0");
  EXPECT_EQ(group->size(), 1);
  const at::Tensor in = at::zeros({4}), out = at::zeros({4});
  const WorkPtr work = group->all_gather(out, in);
  EXPECT_EQ(record->entries().back().state, FlightState::pending);
  work->wait();
  work->wait();
  EXPECT_EQ(record->entries().back().state, FlightState::done);
  group->send(in, 0)->wait();
  group->recv(out, 0)->wait();
  group->barrier();
  std::vector<std::string> calls;
  for (const FlightEntry& entry : record->entries()) calls.push_back(call_text(entry.group, entry.call));
  EXPECT_EQ(calls, (std::vector<std::string>{"all_gather #1 of group dp@0 (4 elements of Float)",
                                             "send #1 to rank 0, group dp@0 (4 elements of Float)",
                                             "recv #1 from rank 0, group dp@0 (4 elements of Float)",
                                             "barrier #2 of group dp@0"}));
}

TEST(RecordedGroup, a_call_that_fails_is_written_as_failed) {
  const auto record = std::make_shared<FlightRecord>(0, 1);
  const GroupPtr group = recorded_group(loopback_group(0, at::kCPU, "dp@0"), record);
  EXPECT_NE(test::error_of([&] { group->all_gather(at::zeros({3}), at::zeros({4})); }), "");
  EXPECT_EQ(record->entries().back().state, FlightState::failed);
  EXPECT_NE(test::error_of([&] { group->allocate_once(-1, at::kFloat); }), "");  // one that ends within the call
  EXPECT_EQ(record->entries().size(), 2u);
  EXPECT_EQ(record->entries().back().state, FlightState::failed);
  EXPECT_EQ(recorded_group(nullptr, record), nullptr);
}

}  // namespace
}  // namespace drivetrain
