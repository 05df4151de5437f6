// Cuts of the model and of sequences that cannot be, worlds that the mesh does not explain, and ranks that die while
// others wait for their messages.
#include <stdexcept>

#include "program/background.h"

namespace drivetrain::test {
namespace {

class Parallel : public ProgramTest {
 protected:
  static std::string set(const std::string& text) { return " --set '" + text + "'"; }
  static std::string tensor(int size) { return set(concat("tensor_parallel={\"size\": ", size, "}")); }
  static std::string stages(int count, const std::string& type = "one_f_one_b") {
    return set(concat(R"(pipeline={"type": ")", type, R"(", "params": {"stages": )", count, "}}"));
  }
  static std::string context(const std::string& type, int size) {
    return set(concat(R"(context_parallel={"type": ")", type, R"(", "params": {"size": )", size, "}}"));
  }
  void expect_launch_refused(int ranks, const std::string& sets, const std::vector<std::string>& parts) const {
    expect_refused(concat("launch -n ", ranks, " ", path("tiny.json"), sets), 2, parts);
  }
};

TEST_F(Parallel, sizes_that_do_not_divide_the_model_are_refused_with_the_number) {
  expect_launch_refused(3, tensor(3) + set("model.num_attention_heads=4"),
                        {"tensor_parallel/", "size 3 does not divide", "4"});
  expect_launch_refused(2, tensor(2) + set("model.ffn_hidden_size=33"),
                        {"size 2 does not divide", "33", "ffn_hidden_size"});
}

TEST_F(Parallel, fewer_heads_than_ranks_are_refused_with_both_numbers) {
  expect_launch_refused(2, tensor(2) + set("model.num_query_groups=1"),
                        {"tensor_parallel/", "size 2", "num_query_groups 1"});
  expect_launch_refused(4, context("ulysses", 4), {"context_parallel/ulysses", "2 query heads", "4 ranks"});
}

TEST_F(Parallel, more_stages_than_units_are_refused_with_both_numbers) {
  expect_launch_refused(
      4, stages(4),
      {"--set #1", "schedule/one_f_one_b: asks for 4 stages of 1 = 4 pieces", "3 units", "Use fewer stages"});
  expect_launch_refused(2, stages(2, "interleaved"), {"2 stages of 2 = 4 pieces", "3 units", "chunks"});
}

TEST_F(Parallel, what_a_ring_cannot_do_is_refused_with_the_way_out) {
  expect_launch_refused(2, context("ring", 2) + set("model.attention_dropout=0.1") + set("attention=standard"),
                        {"context_parallel/ring", "dropout 0.1", "ulysses"});
  expect_launch_refused(2, context("ring", 2) + set("dataset.seq_length=6"),
                        {"context_parallel/ring", "6 positions", "multiple of 4"});
  expect_launch_refused(2, context("ulysses", 2) + set("dataset.seq_length=7"),
                        {"context_parallel/ulysses", "7", "set seq_length"});
}

TEST_F(Parallel, parts_of_a_sequence_want_somebody_who_sums_their_gradients) {
  for (const char* type : {"ring", "ulysses"})
    expect_launch_refused(2, context(type, 2) + set("data_parallel=none"),
                          {"parts of one sequence are on 2 ranks, and nobody sums their gradients", "data_parallel"});
}

TEST_F(Parallel, a_world_that_the_axes_do_not_explain_gets_every_reading) {
  expect_launch_refused(3, tensor(2),
                        {"tp 2 does not divide the world of 3 ranks", "tensor_parallel/", "--set #1", "could be 1, 3",
                         "takes the rest (data_parallel/", "launch -n 2 or 4"});
  expect_launch_refused(6, tensor(2) + stages(2),
                        {"tp 2 x pp 2 = 4 does not divide the world of 6 ranks", "tp is 2", "could be 1, 3", "pp is 2",
                         "could be 1, 3", "launch -n 4 or 8"});
}

TEST_F(Parallel, more_ranks_than_any_run_has_are_refused_with_the_key) {
  expect_refused("config check tiny.json --set tensor_parallel.size=1e12", 2,
                 {"--set #1", "tensor_parallel.size is 1e+12", "takes 0 to 1048576"});
  expect_refused(R"(config check tiny.json --set 'expert_parallel={"enabled": true, "autoep_size": 1e12}')", 2,
                 {"--set #1", "expert_parallel.autoep_size is 1e+12", "takes 1 to 1048576"});
  expect_refused("config check tiny.json" + stages(3) + context("ring", 1000000000), 2,
                 {"does not divide the world of 1 rank", "1000000000"});
}

TEST_F(Parallel, a_name_in_mesh_order_that_nobody_claims_is_refused_with_those_there_are) {
  expect_launch_refused(2, tensor(2) + set(R"(mesh_order=["dp", "pp"])"),
                        {"mesh_order names the axis pp", "claimed are ", "tp"});
  expect_launch_refused(2, set(R"(mesh_order="dp")"), {"mesh_order"});
}

TEST_F(Parallel, groups_that_do_not_divide_what_other_axes_leave_say_what_that_is) {
  expect_launch_refused(4, tensor(2) + set(R"(zero_optimization={"stage": 1, "group_size": 4})"),
                        {"data_parallel/zero", "group_size = 4 does not divide the 2 ranks left by tp 2 of 4", "1, 2",
                         "start a multiple of 8 ranks"});
}

TEST_F(Parallel, an_order_of_axes_that_is_not_the_usual_one_trains_the_same_curve) {
  const std::string sets = tensor(2) + set("steps_per_print=5");
  EXPECT_EQ(launch(4, sets).code, 0);
  const Ran other = launch(4, sets + set(R"(mesh_order=["dp", "tp"])") + set("output_dir=other"));
  EXPECT_EQ(other.code, 0) << other.output;
  expect_says(other.output, {"dp 2 x tp 2"});
  EXPECT_EQ(curve("other"), curve("run"));
}

TEST_F(Parallel, a_config_is_checked_for_as_many_ranks_as_its_axes_need) {
  const std::string check = "config check " + path("tiny.json") + tensor(2) + stages(2);
  const Ran ran = run(check);
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"no problems found", "4 ranks (tp 2 x dp 1 x pp 2)"});
  expect_says(run(check + " -n 8").output, {"8 ranks (tp 2 x dp 2 x pp 2)"});
  expect_refused(check + " -n 6", 2, {"does not divide the world of 6 ranks"});
}

// -- a rank that dies while its neighbours wait for what it sends

class LostPeer : public Parallel {
 protected:
  std::vector<std::string> words(const std::vector<std::string>& sets) const {
    std::vector<std::string> list = {program(), "train", path("tiny.json")};
    for (const std::string& set : sets) list.insert(list.end(), {"--set", set});
    return list;
  }
};

class DyingStage : public LostPeer, public testing::WithParamInterface<int> {};

TEST_P(DyingStage, in_a_pipeline_ends_the_other_stage_with_its_name_and_exit_5) {
  const std::string port = free_port();
  std::vector<Background> ranks;
  const std::vector<std::string> list = words({"train_steps=100000000", "train_micro_batch_size_per_gpu=1",
                                               R"(pipeline={"type": "one_f_one_b", "params": {"stages": 2}})"});
  for (int rank : {0, 1}) ranks.emplace_back(folder(), list, environment(rank, port));
  ASSERT_TRUE(ranks[0].wait_for_file(path("run/metrics.jsonl"))) << ranks[0].output() << ranks[1].output();
  const int victim = GetParam(), other = 1 - victim;
  ranks[victim].signal(SIGKILL);
  EXPECT_EQ(ranks[victim].wait(), 128 + SIGKILL);
  EXPECT_EQ(ranks[other].wait(), 5) << ranks[other].output();
  expect_says(ranks[other].output(), {concat("rank ", victim, " (pid ", ranks[victim].pid(), ") died")});
  EXPECT_TRUE(eventually([&] { return processes_with(folder()).empty(); }));
  expect_nothing_half_written();
}

INSTANTIATE_TEST_SUITE_P(Rank, DyingStage, testing::Values(0, 1));

// The head's stage may use 700 MB, and its output layer with gradient and moments takes 1 GB.
TEST_F(LostPeer, that_runs_out_of_memory_says_so_with_exit_4_and_the_other_stage_repeats_it) {
  const std::string port = free_port();
  std::vector<std::string> list =
      words({"save_final=false", "model.vocab_size=4000000", "model.untie_embeddings_and_output_weights=true",
             R"(pipeline={"type": "one_f_one_b", "params": {"stages": 2, "cuts": [1]}})"});
  Background first(folder(), list, environment(0, port));
  const std::vector<std::string> limited = {"/bin/sh", "-c", "ulimit -d 700000; exec \"$0\" \"$@\""};
  list.insert(list.begin(), limited.begin(), limited.end());
  Background second(folder(), list, environment(1, port));
  EXPECT_EQ(second.wait(), 4) << second.output();
  EXPECT_EQ(first.wait(), 5) << first.output();
  expect_says(second.output(), {"no memory for a tensor of 256000000 bytes", "smaller micro-batch"});
  expect_says(first.output(), {"rank 1 stopped: in optimizer/adamw, hook init", "no memory for a tensor"});
}

}  // namespace
}  // namespace drivetrain::test
