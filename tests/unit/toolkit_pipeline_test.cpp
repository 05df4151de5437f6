// What surrounds an order of computations: orders that wait for each other, and what goes between stages.
#include <gtest/gtest.h>

#include <algorithm>

#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/pipeline/pipeline.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

// Stage 0 wants its gradients before it has computed anything, stage 1 waits for what stage 0 computes.
struct Deadlocked : PipelineSchedule {
  Deadlocked() : PipelineSchedule({.stages = 2, .cuts = {}}, 2) {}
  Program order(int64_t stage, int64_t) const override {
    if (stage == 1) return {instr(Op::forward, 0), instr(Op::backward, 0)};
    return {instr(Op::backward, 0), instr(Op::forward, 0)};
  }
};

TEST(Pipeline, names_what_a_stage_waits_for_in_orders_that_cannot_run) {
  EXPECT_EQ(error_of([] {
              Deadlocked().partition({1, 1, 1, 1, 1});
            }),
            "the schedule's orders wait for each other: computation 0 of stage 0 wants the backward of micro-batch 0 "
            "through piece 1, which no stage comes to; mend the schedule's order");
}

double bytes_between_stages(const RunFacts& run) {
  ModelFacts model;
  model.hidden_size = 16;
  PlanRecord ctx(model, run);
  Deadlocked().plan(ctx);
  return ctx.traffics().at(0).bytes;
}

TEST(Pipeline, sends_the_positions_that_a_rank_has_between_layers) {
  RunFacts run;
  run.seq_length = 64, run.micro_batch_size = 2, run.accumulation = 3;
  const double whole = bytes_between_stages(run);
  EXPECT_EQ(whole, 3 * 3 * (2 * 64 * 16 * 4)) << "three messages of each micro-batch";
  run.position_ranks = 2;
  EXPECT_EQ(bytes_between_stages(run), whole / 2);
  run.rank_positions = 16;
  EXPECT_EQ(bytes_between_stages(run), whole / 4);
  run.compute_bytes = 2;
  EXPECT_EQ(bytes_between_stages(run), whole / 8);
}

// Every piece of every micro-batch forward before the first backward.
struct AllForwardFirst : PipelineSchedule {
  AllForwardFirst() : PipelineSchedule({.stages = 2, .cuts = {}}, 2) {}
  Program order(int64_t, int64_t micro_batches) const override {
    Program list;
    for (const int64_t c : {0, 1})
      for (int64_t m = 0; m < micro_batches; ++m) list.push_back(instr(Op::forward, m, c));
    for (const int64_t c : {1, 0})
      for (int64_t m = 0; m < micro_batches; ++m) list.push_back(instr(Op::backward, m, c));
    return list;
  }
};

TEST(Pipeline, refuses_more_activations_in_flight_than_an_instruction_can_name) {
  const std::string problem =
      "stage 0 of 2 has 40000 activations in flight with 2 chunks and 20000 micro-batches in a step, and a program can "
      "name 32768; lower chunks, group_size, or the micro-batches by making them larger "
      "(train_micro_batch_size_per_gpu)";
  EXPECT_EQ(error_of([] { AllForwardFirst().program(0, 20000, Pass::train); }), problem);
  RunFacts run;
  run.accumulation = 20000;
  PlanRecord ctx(ModelFacts(), run);
  AllForwardFirst().plan(ctx);
  ASSERT_EQ(ctx.refusals().size(), 1u);
  EXPECT_EQ(ctx.refusals()[0].text, problem);
}

TEST(Pipeline, names_as_many_activations_as_there_are_names) {
  int64_t highest = 0;
  for (const Instr& i : AllForwardFirst().program(0, 16384, Pass::train)) {
    ASSERT_GE(i.slot, 0);
    highest = std::max<int64_t>(highest, i.slot);
  }
  EXPECT_EQ(highest, 32767);
  EXPECT_EQ(AllForwardFirst().program(0, 20000, Pass::forward_only).back().slot, 0) << "nothing waits for a backward";
}

TEST(Pipeline, does_not_trust_a_schedule_that_counts_its_activations_wrongly) {
  struct Liar : AllForwardFirst {
    int64_t slots(int64_t, int64_t) const override { return 1; }
  };
  EXPECT_EQ(error_of([] { Liar().program(0, 20000, Pass::train); }),
            "more activations are in flight than the 32768 that a program can name");
}

}  // namespace
}  // namespace drivetrain::test
