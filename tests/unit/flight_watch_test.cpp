// The watch over a rank that does not go on: who is named, who is left alone, and what everybody learns.
#include "watch/watch.h"

#include <gtest/gtest.h>

#include <mutex>

#include "plugin_calls/plugin_call.h"
#include "rendezvous/rendezvous.h"
#include "support/waiting.h"

namespace drivetrain {
namespace {

class Lines final : public Log {
 public:
  void write(LogLevel level, const std::string& line) override {
    const std::lock_guard lock(mutex_);
    (level == LogLevel::warning ? warnings_ : infos_) += line + "\n";
  }
  void progress(const std::string&) override {}
  std::string warnings() const { return read(warnings_); }
  // Whichever rank was first says it, and of ranks other than 0 only warnings are shown.
  std::string all() const { return read(infos_) + warnings(); }

 private:
  std::string read(const std::string& text) const {
    const std::lock_guard lock(mutex_);
    return text;
  }
  mutable std::mutex mutex_;
  std::string warnings_, infos_;
};

// Ranks that are records: what they would do is written by the test.
class Watched : public ::testing::Test {
 protected:
  static constexpr double kStallS = 0.4;

  void SetUp() override {
    for (int64_t r = 0; r < 2; ++r) {
      records_.push_back(std::make_shared<FlightRecord>(r, 2));
      dp_ = records_.back()->group("dp@0");
      // Two steps, so that it knows how long one takes.
      records_.back()->at_step(1);
    }
  }
  void start(double stall_s) {
    for (const auto& record : records_) {
      FlightWatchParts parts;
      parts.record = record, parts.store = store_, parts.log = log_, parts.stall_s = stall_s, parts.asked = &asked_;
      parts.on_different_calls = [this](const std::string& reason) {
        EXPECT_NE(reason, "");
        ++told_;
      };
      watches_.push_back(std::make_unique<FlightWatch>(std::move(parts)));
    }
  }
  void watch(double stall_s = kStallS) {
    start(stall_s);
    test::let_pass(0.4);  // Waits: watches see the first step
    for (const auto& record : records_) record->at_step(2), record->at(FlightDoing::forward, 0);
    test::let_pass(0.4);  // Waits: and the next one
  }
  void wait_in(int64_t rank, FlightOp op, int64_t number) {
    FlightCall call;
    call.op = op, call.number = number;
    records_[static_cast<size_t>(rank)]->waiting(records_[static_cast<size_t>(rank)]->begin(dp_, call));
  }

  const std::shared_ptr<Store> store_ = make_local_store();
  const std::shared_ptr<Lines> log_ = std::make_shared<Lines>();
  std::vector<std::shared_ptr<FlightRecord>> records_;
  size_t dp_ = 0;
  std::atomic<int> asked_{0}, told_{0};
  std::vector<std::unique_ptr<FlightWatch>> watches_;
};

TEST_F(Watched, a_rank_in_a_plugin_that_others_wait_for_is_named_once) {
  watch();
  wait_in(0, FlightOp::all_reduce, 1);
  const std::string id = "dataset/slow";
  plugin_call({id, "read"}, [&] {
    EXPECT_TRUE(test::eventually([&] { return !log_->warnings().empty(); }));
    test::let_pass(1);  // Waits: a second line would come
  });
  const std::string said = log_->warnings();
  EXPECT_NE(said.find("rank 1 is in "), std::string::npos) << said;
  EXPECT_NE(said.find("rank 0 waits in all_reduce #1 of group dp@0"), std::string::npos) << said;
  EXPECT_EQ(said.find("does not go on"), said.rfind("does not go on")) << "once: " << said;
  for (const auto& record : records_) record->at(FlightDoing::backward, 0);
  EXPECT_TRUE(test::eventually([&] { return log_->all().find("the run goes on") != std::string::npos; }));
}

// The host of rank 0 waits for its device, in no call of the communicator: that is where the device makes them.
TEST_F(Watched, a_rank_that_others_wait_for_in_a_replay_is_named) {
  const auto numbers = std::make_shared<CallNumbers>();
  const std::vector<RecordedCall> step = {{numbers, dp_, {.op = FlightOp::all_reduce}},
                                          {numbers, dp_, {.op = FlightOp::all_gather}}};
  watch();
  records_[0]->at(FlightDoing::replay);
  records_[0]->replayed(step);
  const std::string id = "dataset/slow";
  plugin_call({id, "read"}, [&] {
    EXPECT_TRUE(test::eventually([&] { return log_->warnings().find("the run does not go on") != std::string::npos; }));
  });
  const std::string said = log_->warnings();
  EXPECT_NE(said.find("rank 1 is in "), std::string::npos) << said;
  EXPECT_NE(said.find("rank 0 waits in all_gather #2 of group dp@0"), std::string::npos) << said;
}

// A step of milliseconds: the watch sees the first ones at once. Without their time it would wait for 24 s.
TEST_F(Watched, a_stall_after_steps_that_nobody_saw_one_by_one_is_told) {
  start(2);
  for (const auto& record : records_)
    for (int64_t step = 1; step < 30; ++step) record->at_step(step), record->take_own_work();
  for (const auto& record : records_) record->at(FlightDoing::backward, 0);
  wait_in(0, FlightOp::all_reduce, 1);
  EXPECT_TRUE(test::eventually([&] { return log_->warnings().find("the run does not go on") != std::string::npos; }));
}

TEST_F(Watched, ranks_that_go_on_are_left_alone) {
  watch(2);
  for (int i = 0; i < 100; ++i) {
    for (const auto& record : records_) record->at(FlightDoing::forward, i);
    test::let_pass(0.05);  // Waits: far less than two seconds, and in all far more
  }
  EXPECT_EQ(log_->warnings(), "");
}

// The pictures are asked for before the line is due: 1.5 s, which a busy machine leaves to this thread.
TEST_F(Watched, a_pause_that_ends_in_time_is_not_told) {
  watch(5);
  wait_in(0, FlightOp::all_reduce, 1);
  EXPECT_TRUE(test::eventually([&] { return store_->has("drivetrain/flight/1/asked"); }));
  for (const auto& record : records_) record->at(FlightDoing::backward, 0);
  EXPECT_TRUE(test::eventually([&] { return store_->has("drivetrain/flight/1/verdict"); }));
  EXPECT_EQ(log_->warnings(), "");
}

TEST_F(Watched, whoever_asks_is_told_where_the_ranks_are) {
  watch(0);
  ++asked_;
  EXPECT_TRUE(
      test::eventually([&] { return log_->all().find("ranks 0 and 1 go on, at step 2") != std::string::npos; }));
  test::let_pass(2);  // Waits: from then on nothing has moved
  ++asked_;
  EXPECT_TRUE(test::eventually([&] { return log_->all().find("asked where the run is: rank ") != std::string::npos; }));
  EXPECT_EQ(log_->all().find("does not go on"), std::string::npos) << log_->all();
}

TEST_F(Watched, different_calls_are_told_to_every_rank) {
  watch();
  wait_in(0, FlightOp::all_reduce, 1);
  wait_in(1, FlightOp::barrier, 1);
  EXPECT_TRUE(test::eventually([&] { return told_ == 2; }));
  EXPECT_NE(log_->warnings().find("ranks make different calls"), std::string::npos) << log_->warnings();
}

}  // namespace
}  // namespace drivetrain
