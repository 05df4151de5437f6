// The record of a rank's last collectives: what is written, what a crash leaves, and what a damaged file is told.
#include "flight/record.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "flight/group.h"
#include "support/plugin_under_test.h"
#include "support/waiting.h"
#include "watch/picture.h"

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

// Of whoever else writes there: what is not the rank's own is neither read nor written.
TEST_F(FlightFile, no_link_is_followed_and_no_pipe_waited_for) {
  const std::string strangers = folder_.path() + "/strangers";
  std::ofstream(strangers) << "not ours";
  for (const char* name : {"/rank_0001", "/rank_0001.new"})
    std::filesystem::create_symlink(strangers, folder_.path() + name);
  EXPECT_NE(test::error_of([&] { read_record(path()); }).find("symbolic link, which is not followed"),
            std::string::npos);
  leave_one();
  EXPECT_FALSE(std::filesystem::is_symlink(path()));
  EXPECT_EQ(read_record(path()).rank, 1);
  EXPECT_EQ(std::filesystem::file_size(strangers), 8u);
  std::filesystem::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(test::error_of([&] { read_record(path()); }), "");
}

// A record is copied while its rank writes: an entry is then whole, or left out.
TEST_F(FlightFile, what_is_read_meanwhile_is_whole) {
  FlightRecord record(1, 2);
  const size_t dp = record.group("dp@0");
  record.keep_in(path());
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (int64_t n = 1; !over; ++n) {
      FlightCall call = all_reduce(n);
      call.bytes = 3 * n;
      record.done(record.begin(dp, call));
    }
  });
  // Looks that come before the writer's first call see nothing and do not count: on a busy machine it starts late.
  bool whole = true;
  for (int looks = 0; looks < 300;) {
    const std::vector<FlightEntry> entries = read_record(path()).entries;
    for (const FlightEntry& entry : entries)
      whole &= entry.call.bytes == 3 * entry.call.number && entry.serial == static_cast<uint64_t>(entry.call.number);
    looks += entries.empty() ? 0 : 1;
  }
  over = true;
  writer.join();
  EXPECT_TRUE(whole);
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

// What a device records is made again by each replay, without the host: its record says so, with numbers that follow.
TEST(RecordedGroup, calls_of_a_recorded_step_are_made_by_its_replays) {
  const auto record = std::make_shared<FlightRecord>(0, 1);
  const GroupPtr group = recorded_group(loopback_group(0, at::kCPU, "dp@0"), record);
  const at::Tensor t = at::zeros({4});
  const auto states = [&] {
    std::vector<std::string> list;
    for (const FlightEntry& entry : record->entries())
      list.push_back(concat(name_of(entry.call.op), " ", entry.call.number, " ", name_of(entry.state)));
    return list;
  };
  group->all_reduce(t)->wait();
  record->recording_begins();
  group->all_gather(t, t)->wait();
  group->send(t, 0)->wait();
  std::thread([&] { record->done(record->begin(0, all_reduce(7))); }).join();  // another thread is not recorded
  const std::vector<RecordedCall> calls = record->recording_ends();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(states(), (std::vector<std::string>{"all_reduce 1 done", "all_reduce 7 done"}));
  record->replayed(calls), record->replayed(calls);
  group->all_reduce(t)->wait();
  EXPECT_EQ(states(), (std::vector<std::string>{"all_reduce 1 done", "all_reduce 7 done", "all_gather 2 waiting",
                                                "send 1 waiting", "all_gather 3 waiting", "send 2 waiting",
                                                "all_reduce 4 done"}));
  record->device_reached();
  for (const FlightEntry& entry : record->entries()) EXPECT_EQ(entry.state, FlightState::done);
}

TEST(FlightRecord, a_wait_that_is_only_enqueued_ends_when_the_device_is_there) {
  FlightRecord record(0, 2);
  record.at_step(1);  // on this thread, which is then the main one
  const size_t dp = record.group("dp@0");
  const uint64_t serial = record.begin(dp, all_reduce(1));
  record.pending(serial), record.waiting(serial), record.enqueued(serial);
  EXPECT_EQ(record.entries().back().state, FlightState::waiting);
  record.device_reached();
  EXPECT_EQ(record.entries().back().state, FlightState::done);
}

TEST(FlightRecord, own_work_leaves_out_waits_evaluations_and_what_the_device_is_waited_for) {
  FlightRecord record(0, 2);
  const size_t dp = record.group("dp@0");
  const auto pause = [] { test::let_pass(0.03); };  // Waits: what is added up is time
  record.at_step(1);
  record.at(FlightDoing::forward, 0), pause();
  const uint64_t serial = record.begin(dp, all_reduce(1));
  pause();
  record.pending(serial), record.waiting(serial), pause(), record.done(serial);
  record.aside(FlightDoing::evaluate), record.at(FlightDoing::backward), pause(), record.aside_over();
  record.at(FlightDoing::agree), pause(), record.device_reached();
  const WorkSeconds work = record.take_own_work();
  EXPECT_GE(work[static_cast<size_t>(WorkPart::forward)], 0.03);
  EXPECT_EQ(work[static_cast<size_t>(WorkPart::backward)], 0);
  EXPECT_EQ(record.take_own_work()[static_cast<size_t>(WorkPart::forward)], 0) << "since the last time";
}

// Its barrier fails; nothing else is called.
class BrokenGroup final : public Group {
 public:
  int64_t rank() const override { return 0; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  const std::string& label() const override { return label_; }
  at::Tensor allocate(int64_t, at::ScalarType) override { return {}; }
  WorkPtr all_reduce(at::Tensor) override { return nullptr; }
  WorkPtr all_gather(at::Tensor, at::Tensor) override { return nullptr; }
  WorkPtr reduce_scatter(at::Tensor, at::Tensor) override { return nullptr; }
  WorkPtr all_to_all(at::Tensor, at::Tensor) override { return nullptr; }
  WorkPtr all_to_all(at::Tensor, at::Tensor, const std::vector<int64_t>&, const std::vector<int64_t>&) override {
    return nullptr;
  }
  WorkPtr broadcast(at::Tensor, int64_t) override { return nullptr; }
  WorkPtr send(at::Tensor, int64_t) override { return nullptr; }
  WorkPtr recv(at::Tensor, int64_t) override { return nullptr; }
  void batch_begin() override {}
  void batch_end() override {}
  void barrier() override { throw fail(ErrorCode::communication, "a peer is lost"); }

 private:
  const std::vector<int64_t> ranks_{0};
  const std::string label_ = "dp@1";
};

TEST(RecordedGroup, a_call_that_fails_is_written_as_failed) {
  const auto record = std::make_shared<FlightRecord>(0, 1);
  const GroupPtr group = recorded_group(loopback_group(0, at::kCPU, "dp@0"), record);
  EXPECT_NE(test::error_of([&] { group->all_gather(at::zeros({3}), at::zeros({4})); }), "");
  EXPECT_EQ(record->entries().back().state, FlightState::failed);
  const GroupPtr broken = recorded_group(std::make_shared<BrokenGroup>(), record);
  EXPECT_NE(test::error_of([&] { broken->barrier(); }), "");  // one that ends within the call
  EXPECT_EQ(record->entries().size(), 2u);
  EXPECT_EQ(record->entries().back().state, FlightState::failed);
  EXPECT_EQ(recorded_group(nullptr, record), nullptr);
}

}  // namespace
}  // namespace drivetrain
