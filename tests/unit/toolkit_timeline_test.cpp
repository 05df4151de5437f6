// The simulation of schedules finds every mistake that it is there for: a small schedule of two stages passes, and does
// not with any one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/pipeline/timeline.h>

namespace drivetrain {
namespace {

// Two stages; all micro-batches forward, then all backward. `spoil` changes the program of one stage.
class Plain : public Schedule {
 public:
  std::function<void(int64_t stage, Program&)> spoil = [](int64_t, Program&) {};
  int64_t promised = -1;  // slots; -1: as many as micro-batches

  int64_t stages() const override { return 2; }
  std::vector<int64_t> partition(const std::vector<double>&) const override { return {0, 1}; }
  int64_t slots(int64_t, int64_t micro_batches) const override { return promised < 0 ? micro_batches : promised; }
  Program program(int64_t stage, int64_t micro_batches, Pass pass) const override {
    Program list;
    for (int16_t m = 0; m < micro_batches; ++m) {
      list.push_back({Op::load, m});
      if (stage == 1) list.push_back({Op::recv_forward, m, 0, m});
      list.push_back({Op::forward, m, 0, m});
      if (stage == 0) list.push_back({Op::send_forward, m, 0, m});
    }
    if (pass == Pass::forward_only) return list;
    for (int16_t m = 0; m < micro_batches; ++m) {
      if (stage == 0) list.push_back({Op::recv_backward, m, 0, m});
      list.push_back({Op::backward, m, 0, m});
      if (stage == 1) list.push_back({Op::send_backward, m, 0, m});
    }
    spoil(stage, list);
    return list;
  }
};

std::string error_of(const Schedule& schedule, int64_t micro_batches = 2, Pass pass = Pass::train) {
  try {
    simulate(schedule, micro_batches, pass);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Program::iterator find(Program& list, Op op, int16_t micro = 0) {
  return std::find_if(list.begin(), list.end(), [&](const Instr& i) { return i.op == op && i.micro == micro; });
}

struct Mistakes : ::testing::Test {
  Plain schedule;

  // What is said of the schedule with stage `stage`'s program changed.
  void spoiled(int64_t stage, const std::function<void(Program&)>& change, const std::string& wanted) {
    schedule.spoil = [=](int64_t s, Program& list) {
      if (s == stage) change(list);
    };
    EXPECT_NE(error_of(schedule).find(wanted), std::string::npos) << error_of(schedule);
  }
};

TEST_F(Mistakes, none_passes_and_times_add_up) {
  const Timeline line = simulate(schedule, 2, Pass::train);
  EXPECT_EQ(line.makespan, 9);  // 3 until all is forward, then three backwards in a row
  EXPECT_EQ(line.stages[0].busy, 6);
  EXPECT_EQ(line.stages[1].peak_in_flight, 2);
  EXPECT_EQ(line.bubble(), 0.5);
  EXPECT_EQ(error_of(schedule, 2, Pass::forward_only), "");
}

TEST_F(Mistakes, idle_time_counts_unequal_stages) {
  const Timeline line = simulate(schedule, 1, Pass::train, piece_times({1, 3}));
  EXPECT_EQ(line.stages[0].busy, 1.5);
  EXPECT_EQ(line.stages[1].busy, 4.5);
  EXPECT_EQ(line.makespan, 6);
  EXPECT_EQ(line.bubble(), 1);
}

// Stage 0 wants the first gradient before it sends the second activation, stage 1 gives none before it has both.
TEST_F(Mistakes, deadlock_says_who_waits_for_whom) {
  spoiled(
      0,
      [](Program& l) { std::rotate(find(l, Op::load, 1), find(l, Op::recv_backward), find(l, Op::recv_backward, 1)); },
      "the stages wait for each other forever:\n"
      "   stage 0 waits in recv_backward 0.0 for stage 1, which is at recv_forward 1.0\n"
      "   stage 1 waits in recv_forward 1.0 for stage 0, which is at recv_backward 0.0");
}

TEST_F(Mistakes, missing_computations_are_named) {
  spoiled(
      0, [](Program& l) { l.erase(find(l, Op::backward, 1)); },
      "stage 0: micro-batch 1 of chunk 0 has no backward_input, backward_weight");
  spoiled(
      1, [](Program& l) { l.erase(find(l, Op::forward, 1)); }, "stage 1: B1.0 comes before forward");
  spoiled(
      1, [](Program& l) { find(l, Op::backward)->op = Op::backward_input; }, "has no backward_weight");
}

TEST_F(Mistakes, missing_messages_are_named) {
  spoiled(
      0, [](Program& l) { l.erase(find(l, Op::send_forward)); }, "micro-batch 0 of chunk 0 has no send_forward");
  spoiled(
      1, [](Program& l) { l.erase(find(l, Op::recv_forward)); }, "stage 1: F0.0 comes before recv_forward");
  spoiled(
      0, [](Program& l) { l.erase(find(l, Op::recv_backward)); }, "stage 0: B0.0 comes before recv_backward");
}

TEST_F(Mistakes, double_computations_and_messages_nobody_sends_are_named) {
  spoiled(
      0, [](Program& l) { l.insert(find(l, Op::forward), *find(l, Op::forward)); }, "F0.0 comes twice");
  spoiled(
      1, [](Program& l) { l.insert(find(l, Op::backward), {Op::recv_backward}); },
      "recv_backward 0.0 comes twice, or has no business");
  spoiled(
      0, [](Program& l) { find(l, Op::forward)->chunk = 1; },
      "forward names micro-batch 0 of chunk 1; there are 2 of 1");
}

TEST_F(Mistakes, loads_are_counted) {
  spoiled(
      1, [](Program& l) { l.erase(find(l, Op::load, 1)); }, "F1.0 comes before its load");
  spoiled(
      1,
      [](Program& l) {
        l.insert(l.begin(), {Op::load, 1});
      },
      "micro-batch 1 is loaded twice");
}

TEST_F(Mistakes, slots_that_clash_or_are_not_promised_are_named) {
  spoiled(
      0,
      [](Program& l) {
        for (Instr& i : l) i.slot = 0;
      },
      "F1.0 takes slot 0, which micro-batch 0 of chunk 0 still holds");
  spoiled(
      0, [](Program& l) { find(l, Op::backward)->slot = 1; }, "B0.0 names slot 1, and its activation is in 0");
  schedule.promised = 1;
  spoiled(
      0, [](Program&) {}, "F1.0 takes slot 1, and slots() promises 1");
}

TEST(Timeline, pieces_must_be_dealt_out_once) {
  struct Twice : Plain {
    int64_t piece(int64_t, int64_t) const override { return 0; }
  };
  EXPECT_NE(error_of(Twice()).find("chunk 0 of stage 1 is piece 0, which is another's"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
