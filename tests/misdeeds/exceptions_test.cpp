// Whatever a plugin throws, wherever it is called: the message names plugin, call, unit and rank, the exit code is a
// plugin's, and a trace goes to log.txt.
#include "misdeeds/misdeeds_fixture.h"

namespace drivetrain::test {
namespace {

TEST_F(Misdeeds, an_exception_in_any_hook_of_a_strategy_is_named) {
  for (const char* hook : {"plan", "build", "attach", "step_begin", "flush_grads", "after_update", "step_end"})
    expect_blamed(misdeed("strategy", hook, "std"), 3,
                  {std::string("in strategy/misdeed, hook ") + hook + ": the tape drive is on fire"});
  for (const char* hook : {"before_forward", "after_backward"})
    expect_blamed(misdeed("strategy", hook, "std"), 3,
                  {std::string("in strategy/misdeed, hook ") + hook + ", unit ", ": the tape drive is on fire"});
}

TEST_F(Misdeeds, exceptions_of_every_type_are_the_plugins_fault_and_memory_is_memory) {
  expect_blamed(misdeed("strategy", "before_forward", "int"), 3, {"hook before_forward, unit ", "no exception (int)"});
  expect_blamed(misdeed("strategy", "before_forward", "c10"), 3,
                {"hook before_forward, unit ", "the tape drive is on fire", "the trace is in"});
  expect_blamed(misdeed("strategy", "before_forward", "bad_alloc"), 4,
                {"in strategy/misdeed, hook before_forward", "out of memory", "smaller"});
  expect_blamed(misdeed("strategy", "before_forward", "error"), 7,
                {"in strategy/misdeed, hook before_forward", "the tape drive is on fire"});
  expect_blamed(misdeed("strategy", "plan", "int"), 3, {"in strategy/misdeed, hook plan", "no exception (int)"});
  expect_blamed(misdeed("strategy", "create", "c10"), 3, {"in strategy/misdeed, create: the tape drive is on fire"});
}

// A GPU that is lost is no fault of whoever notices: the table of the runtime has its code, wherever it is thrown.
TEST_F(Misdeeds, what_a_device_says_has_its_code_place_and_remedy) {
  expect_blamed(
      misdeed("strategy", "step_end", "device"), 8,
      {"in strategy/misdeed, hook step_end", "the GPU is lost", "CUDA error: unknown error (cudaErrorUnknown)",
       "rank 0, step ", "last unit: ", "unit ", "Xid", "newest checkpoint"});
  for (const auto& [call, deed] : {std::pair("step_end", "device on a thread"), std::pair("destructor", "device")}) {
    const Ran ran = train(misdeed("strategy", call, deed) + here());
    EXPECT_EQ(ran.code, 8) << call << ": " << ran.output;
    expect_says(ran.output, {"drivetrain: error: the GPU is lost", "Xid"});
    EXPECT_EQ(ran.output.find("report it"), std::string::npos) << ran.output;
    std::filesystem::remove_all(path("run"));
  }
  const Ran ran = launch(2, misdeed("strategy", "step_end", "device", 1) + here());
  EXPECT_EQ(ran.code, 8) << ran.output;
  expect_says(ran.output, {"hook step_end, rank 1: the GPU is lost", "rank 1, step "});
}

TEST_F(Misdeeds, the_trace_goes_to_the_log_and_to_the_terminal_only_for_who_asks) {
  const Ran ran = train(misdeed("strategy", "step_end", "c10") + here());
  EXPECT_EQ(ran.code, 3) << ran.output;
  expect_says(ran.output, {"the trace is in " + path("run/log.txt")});
  EXPECT_EQ(ran.output.find("raised from"), std::string::npos) << ran.output;
  expect_says(file_bytes(path("run/log.txt")),
              {"trace of the exception in strategy/misdeed, hook step_end", "raised from", "deed.h"});
  std::filesystem::remove_all(path("run"));
  expect_says(train(misdeed("strategy", "plan", "c10") + here(), "DRIVETRAIN_LOG=debug").output,
              {"raised from", "deed.h"});
}

TEST_F(Misdeeds, a_rank_is_named_and_its_trace_is_in_the_runs_log_too) {
  const Ran ran = launch(2, misdeed("strategy", "step_end", "c10", 1) + here());
  EXPECT_EQ(ran.code, 3) << ran.output;
  expect_says(ran.output, {"in strategy/misdeed, hook step_end, rank 1: the tape drive is on fire", "the trace is in"});
  expect_says(file_bytes(path("run/log.txt")), {"[rank 1] trace of the exception in strategy/misdeed", "raised from"});
}

// Steps before the last end the run at once; behind the last update the trained weights are there and are written.
TEST_F(Misdeeds, behind_the_last_update_lose_no_weights) {
  const auto run_with = [&](int ranks, const std::string& arguments) {
    std::filesystem::remove_all(path("run"));
    const Ran ran = launch(ranks, arguments + here());
    EXPECT_EQ(ran.code, 3) << ran.output;
    expect_says(ran.output, {"/misdeed, hook ", "the tape drive is on fire"});
    expect_nothing_half_written();
  };
  run_with(1, misdeed("strategy", "step_end", "std"));
  EXPECT_FALSE(std::filesystem::exists(path("run/final"))) << "at step 1 of 5";
  const std::string last = " --set train_steps=1", last_of_2 = " --set train_steps=2";
  for (const std::string& arguments :
       {misdeed("strategy", "step_end", "std") + last, misdeed("monitor", "on_event", "std") + last_of_2}) {
    SCOPED_TRACE(arguments);
    run_with(1, arguments);
    EXPECT_FALSE(final_weights("run").empty());
  }
  run_with(2, misdeed("strategy", "step_end", "std", 1) + last);
  EXPECT_FALSE(final_weights("run").empty());
  EXPECT_EQ(read_metrics(path("run")).size(), 1u);
}

TEST_F(Misdeeds, other_kinds_are_named_likewise) {
  expect_blamed(misdeed("optimizer", "init", "std"), 3, {"in optimizer/misdeed, hook init: the tape drive is on fire"});
  expect_blamed(misdeed("optimizer", "update", "c10"), 3,
                {"in optimizer/misdeed, hook update: the tape drive is on fire"});
  expect_blamed(misdeed("optimizer", "state", "int"), 3, {"in optimizer/misdeed, hook state", "no exception"});
  expect_blamed(misdeed("lr_schedule", "at", "std"), 3, {"in lr_schedule/misdeed, hook at: the tape drive is on fire"});
  expect_blamed(misdeed("dataset", "open", "std"), 3, {"in dataset/misdeed, hook open: the tape drive is on fire"});
  expect_blamed(misdeed("dataset", "read", "int"), 3, {"in dataset/misdeed, hook read, step 3: ", "no exception"});
  expect_blamed(misdeed("attention", "forward", "std"), 3,
                {"unit block.0", "in attention/misdeed, hook forward: the tape drive is on fire"});
  expect_blamed(misdeed("attention", "backward", "c10"), 3,
                {"unit block.0", "in attention/misdeed, hook backward: the tape drive is on fire"});
  expect_blamed(misdeed("monitor", "on_event", "std"), 3,
                {"monitor/misdeed failed", "in monitor/misdeed, hook on_event, at step 2: the tape drive"});
  expect_blamed(misdeed("monitor", "on_event", "int"), 3,
                {"in monitor/misdeed, hook on_event, at step 2: ", "no exception"});
}

// Only rank 0's monitor counts; what it shows reaches all that go on.
TEST_F(Misdeeds, a_monitor_that_counts_goes_on_counting) {
  const std::string saves = " --set checkpoint_policy=every";
  const Ran first = launch(2, misdeed("monitor", "", "") + saves + " --set train_steps=3" + here());
  EXPECT_EQ(first.code, 0) << first.output;
  const Ran more = train(misdeed("monitor", "", "") + saves + " --set train_steps=7 --resume auto" + here());
  EXPECT_EQ(more.code, 0) << more.output;
  expect_says(run("checkpoint show run").output, {"monitor/misdeed/steps", "7"});
  expect_blamed(misdeed("monitor", "state", "std") + saves + " --set train_steps=9 --resume auto", 3,
                {"in monitor/misdeed, hook state: the tape drive is on fire"});
}

TEST_F(Misdeeds, what_a_schedule_or_a_precision_is_asked_is_a_call_too) {
  for (const char* hook : {"stages", "chunks", "piece", "partition", "program", "slots"})
    expect_blamed(misdeed("schedule", hook, "std"), 3,
                  {std::string("in schedule/misdeed, hook ") + hook + ": the tape drive is on fire"});
  for (const char* hook : {"dtypes", "loss_scaling", "skips_not_finite"})
    expect_blamed(misdeed("precision", hook, "std"), 3,
                  {std::string("in precision/misdeed, hook ") + hook + ": the tape drive is on fire"});
  const Ran ran = train(misdeed("schedule", "", "") + misdeed("precision", "", "") + here());
  EXPECT_EQ(ran.code, 0) << ran.output;
}

// The last step's hooks may be collective: whichever fails on a rank, it makes the calls that the others wait for.
TEST_F(Misdeeds, a_strategy_that_fails_at_the_end_keeps_no_other_from_its_own_end) {
  const Ran ran = launch(2, misdeed("strategy", "step_end", "std", 1) + misdeed("recompute", "", "barrier") +
                                " --set train_steps=1 --set tensor_parallel.size=2" + here());
  EXPECT_EQ(ran.code, 3) << ran.output;
  expect_says(ran.output, {"in strategy/misdeed, hook step_end, rank 1: the tape drive is on fire"});
  EXPECT_FALSE(final_weights("run").empty());
  EXPECT_EQ(ran.output.find("of group \""), std::string::npos) << ran.output;
}

// Its own trouble with somebody else: the ranks have each other, and the parts of the weights that each of them holds.
TEST_F(Misdeeds, a_late_failure_to_reach_something_is_no_loss_of_ranks) {
  const std::string last_of_1 = " --set train_steps=1", last_of_2 = " --set train_steps=2";
  for (const std::string& arguments : {misdeed("monitor", "on_event", "unreachable") + last_of_2,
                                       misdeed("strategy", "step_end", "unreachable", 1) + last_of_1}) {
    SCOPED_TRACE(arguments);
    std::filesystem::remove_all(path("run"));
    const Ran ran = launch(2, arguments + " --set tensor_parallel.size=2" + here());
    EXPECT_EQ(ran.code, 5) << ran.output;
    expect_says(ran.output, {"/misdeed, hook ", "the tape drive does not answer"});
    EXPECT_FALSE(final_weights("run").empty());
    expect_nothing_half_written();
  }
}

TEST_F(Misdeeds, a_destructor_that_throws_is_named_although_it_ends_the_process) {
  for (const char* kind : {"strategy", "monitor", "dataset"})
    expect_blamed(misdeed(kind, "destructor", "std"), 3,
                  {std::string("in ") + kind + "/misdeed, destructor", "the tape drive is on fire"});
  expect_blamed(misdeed("recompute", "destructor of held", "std"), 3,
                {"in recompute/misdeed, hook restore, unit ", "the tape drive is on fire"});
}

// A run that somebody else ended would pass for one that is done.
TEST_F(Misdeeds, an_exit_says_which_plugin_was_at_work) {
  expect_blamed(misdeed("strategy", "before_forward", "exit"), 3,
                {"in strategy/misdeed, hook before_forward, unit ", "exit() was called with code 0"});
}

// Past every handler of exit().
TEST_F(Misdeeds, a_leaving_without_a_word_is_no_run_that_is_done) {
  expect_blamed(misdeed("strategy", "before_forward", "_exit"), 3,
                {"in strategy/misdeed, hook before_forward, unit ", "_exit() was called with code 0"});
  expect_blamed(launch(2, misdeed("dataset", "read", "_exit") + here()), 3, {"in dataset/misdeed, hook read, step 3"});
}

TEST_F(Misdeeds, descriptors_of_the_run_are_not_a_plugins_to_close) {
  expect_blamed(misdeed("strategy", "step_end", "close"), 3,
                {"in strategy/misdeed, hook step_end: closes descriptors of the run that are not its own"});
  expect_blamed(launch(2, misdeed("strategy", "step_end", "close", 1) + here()), 3,
                {"in strategy/misdeed, hook step_end, rank 1: closes descriptors"});
}

TEST_F(Misdeeds, an_exception_on_a_thread_of_a_plugins_own_names_its_library) {
  expect_blamed(
      misdeed("strategy", "step_end", "throw on a thread"), 3,
      {"in strategy_misdeed.so, on a thread of its own", "the tape drive is on fire", "Leave out the plugin"});
}

TEST_F(Misdeeds, an_exception_text_is_as_long_as_somebody_reads) {
  const Ran ran = train(misdeed("strategy", "step_end", "long text") + here());
  EXPECT_EQ(ran.code, 3);
  EXPECT_LT(ran.output.size(), 50000u);
  expect_says(ran.output, {"in strategy/misdeed, hook step_end: the tape drive is on fire!!!", " bytes more)"});
}

TEST_F(Misdeeds, a_run_that_trains_nothing_is_not_done) {
  expect_blamed(misdeed("data_parallel", "", ""), 3, {"model/gpt: no parameter is trained", "drivetrain evaluate"});
}

TEST_F(Misdeeds, a_block_that_is_freed_twice_says_which_plugin_was_at_work) {
  const Ran ran = train(misdeed("strategy", "before_forward", "double free") + here());
  EXPECT_EQ(ran.code, 128 + 6) << ran.output;
  expect_says(ran.output, {"crashed by signal 6 in strategy/misdeed, hook before_forward, unit "});
}

TEST_F(Misdeeds, a_crash_says_which_plugin_was_at_work) {
  const Ran ran = train(misdeed("strategy", "before_forward", "crash") + here());
  EXPECT_EQ(ran.code, 128 + 11) << ran.output;
  expect_says(ran.output, {"crashed by signal 11 in strategy/misdeed, hook before_forward, unit "});
}

}  // namespace
}  // namespace drivetrain::test
