// A run of the program that stops, by a signal or by kill -9, and goes on: its figures and final weights are those of a
// run that was never stopped. What a user sees where it cannot go on.
#include <unistd.h>

#include "program/resume_fixture.h"

namespace drivetrain::test {
namespace {

struct Resume : SavingRuns {
  void expect_same_run(const std::string& a, const std::string& b) const {
    EXPECT_EQ(curve(a), curve(b));
    EXPECT_TRUE(final_weights(a) == final_weights(b));
  }
};

TEST_F(Resume, a_run_that_was_killed_goes_on_with_the_same_bits) {
  for (const char* more : {"", "--set zero_optimization.stage=3", "--set fp16.enabled=true"}) {
    SCOPED_TRACE(more);
    const std::string sets = concat("--set train_steps=8 ", more, " --set ", policy(2));
    ASSERT_EQ(launch(2, sets + " --set output_dir=a").code, 0);
    // Its folder as kill -9 in step 6 would leave it: checkpoints up to step 4, figures up to step 5.
    ASSERT_EQ(launch(2, sets + " --set output_dir=b").code, 0);
    std::filesystem::remove_all(path("b/final"));
    for (const int64_t step : {6, 8}) std::filesystem::remove_all(tag(step));
    const Ran rest = launch(2, sets + " --set output_dir=b");
    ASSERT_EQ(rest.code, 0) << rest.output;
    expect_says(rest.output, {"goes on from checkpoint step-00000004 with step 5"});
    expect_same_run("a", "b");
    std::filesystem::remove_all(path("a")), std::filesystem::remove_all(path("b"));
  }
}

TEST_F(Resume, a_signal_saves_and_asks_to_be_started_again) {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    Background first = start(2, "b", 100000000, 100000000);
    ASSERT_TRUE(first.wait_for_file(path("b/metrics.jsonl"))) << first.output();
    // Launch passes SIGINT and SIGTERM on to all; any rank may get one of its own.
    if (number == SIGUSR1 || number == SIGHUP)
      ASSERT_EQ(kill(pid_of_rank(path("tiny.json"), 1), number), 0);
    else
      first.signal(number);
    EXPECT_EQ(first.wait(), number == SIGINT ? 128 + SIGINT : 75) << first.output();
    const size_t steps = read_metrics(path("b")).size();
    expect_says(first.output(), {concat("stopped after step ", steps), "the same command goes on from checkpoint"});
    EXPECT_FALSE(std::filesystem::exists(path("b/final")));
    expect_nothing_half_written();
    std::filesystem::remove_all(path("b"));
  }
}

// Experts on two ranks, one of which is killed: the run goes on where nothing is split, and under ZeRO 3.
TEST_F(Resume, experts_of_a_killed_rank_go_on_on_another_topology) {
  tiny_with(
      R"("vocab_size": 64,)",
      R"("vocab_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "activation": "swiglu", "ffn_hidden_size": 16,)");
  const std::string eps = "optimizer.params.eps=1e-4";  // a gradient of rounding's size makes no whole step
  const std::string sets =
      " --set save_final=false --set train_steps=8 --set " + eps + " --set " + policy(2) + " --set output_dir=";
  const Ran whole = launch(2, "--set expert_parallel=2" + sets + "a");
  ASSERT_EQ(whole.code, 0) << whole.output;
  std::string words = policy(2);
  Background run(folder(), {program(), "launch", "-n", "2", path("tiny.json"), "--set",
                            words.substr(1, words.size() - 2), "--set", "expert_parallel=2", "--set", eps, "--set",
                            "save_final=false", "--set", "train_steps=99999999", "--set", "output_dir=b"});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(tag(8)) || run.ended(); }) && !run.ended())
      << run.output();  // with step 8's folder there, step 4's is whole
  ASSERT_EQ(kill(pid_of_rank(path("tiny.json"), 1), SIGKILL), 0);
  EXPECT_EQ(run.wait(), 128 + SIGKILL) << run.output();
  for (const auto& entry : std::filesystem::directory_iterator(path("b/checkpoints")))
    if (entry.path() > tag(4)) std::filesystem::remove_all(entry.path());
  const std::vector<Value> wanted = read_metrics(path("a"));
  for (const auto& [ranks, section] : {std::pair<int, const char*>{1, ""}, {2, "--set zero_optimization.stage=3 "}}) {
    std::filesystem::remove_all(path("c"));
    std::filesystem::copy(path("b"), path("c"), std::filesystem::copy_options::recursive);
    const Ran rest = launch(ranks, section + std::string("--resume auto") + sets + "c");
    ASSERT_EQ(rest.code, 0) << rest.output;
    expect_says(rest.output, {"goes on from checkpoint step-00000004 with step 5"});
    const std::vector<Value> found = read_metrics(path("c"));
    ASSERT_EQ(found.size(), 8u) << section;
    for (size_t step = 0; step < 8; ++step)
      for (const char* figure : {"loss", "grad_norm"})
        EXPECT_NEAR(found[step].find(figure)->as_double(), wanted[step].find(figure)->as_double(),
                    1e-5 * wanted[step].find(figure)->as_double())
            << figure << " of step " << step + 1 << " " << section;
  }
}

TEST_F(Resume, a_hangup_that_is_ignored_does_nothing) {
  std::signal(SIGHUP, SIG_IGN);  // as nohup does; what is ignored stays so in the process that begins
  Background run(folder(), {program(), "train", path("tiny.json"), "--set", "train_steps=100000000", "--set",
                            "output_dir=b", "--set", "steps_per_print=100000000"});
  std::signal(SIGHUP, SIG_DFL);
  const std::string metrics = path("b/metrics.jsonl");
  ASSERT_TRUE(run.wait_for_file(metrics)) << run.output();
  run.signal(SIGHUP);
  const size_t before = lines_of(metrics);
  EXPECT_TRUE(eventually([&] { return lines_of(metrics) > before + 5; })) << run.output();
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.output();  // the config keeps no checkpoints
  expect_says(run.output(), {"by signal 15"});
}

TEST_F(Resume, data_that_were_copied_again_are_the_same_and_an_edited_file_is_not) {
  write("text.jsonl",
        "{\"text\": \"" + std::string(3000, '1') + "\"}\n{\"text\": \"" + std::string(3000, '2') + "\"}\n");
  const Ran prepared =
      run("data prepare --input " + path("text.jsonl") + " --tokenizer bytes --output " + path("data"));
  ASSERT_EQ(prepared.code, 0) << prepared.output;
  const std::string data = R"('dataset={"type": "megatron", "params": {"data_path": ")" + path("data") +
                           R"(", "split": "1,0,0", "seq_length": 8}}')";
  const std::string sets = "--set output_dir=b --set " + policy(2) + " --set " + data;
  const auto again = [&](const std::string& more) {
    std::filesystem::remove_all(path("b/final")), std::filesystem::remove_all(tag(4));
    return train(sets + " --set train_steps=4" + more);
  };
  ASSERT_EQ(train(sets + " --set train_steps=4").code, 0);
  for (const char* end : {"data.bin", "data.idx"}) {
    std::filesystem::copy_file(path(end), path("copy"));
    std::filesystem::rename(path("copy"), path(end));
  }
  const Ran same = again("");
  ASSERT_EQ(same.code, 0) << same.output;
  expect_says(same.output,
              {"without effect on the numbers: the data's files", "goes on from checkpoint step-00000002"});
  std::string bytes = file_bytes(path("data.bin"));
  bytes[0] = '3';
  write("data.bin", bytes);
  const Ran other = again("");
  EXPECT_EQ(other.code, 2) << other.output;
  expect_says(other.output, {"digest", "--resume auto"});
}

TEST_F(Resume, changes_of_the_config_are_explained_before_they_act) {
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=4").code, 0);
  const std::string longer = sets + " --set train_steps=8 --set optimizer.lr=5e-4";
  const Ran refused = train(longer);
  EXPECT_EQ(refused.code, 2);
  expect_says(refused.output,
              {"train_steps: 4 then, 8 now", "optimizer.params.lr: 0.001 then, 5e-04 now", "--resume auto"});
  const Ran accepted = train(longer + " --resume auto");
  ASSERT_EQ(accepted.code, 0) << accepted.output;
  expect_says(accepted.output, {"other numbers", "optimizer.params.lr", "goes on from checkpoint step-00000004"});
  EXPECT_EQ(read_metrics(path("b")).size(), 8U);
  // An older checkpoint by its name, with other ranks: its steps are done again.
  const Ran again = launch(2, longer + " --resume step-00000004");
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(read_metrics(path("b")).size(), 8U);
}

// Without --resume: what a plugin declares to leave the numbers as they are asks nobody.
TEST_F(Resume, other_ways_to_save_memory_go_on_with_the_same_bits) {
  const std::string sets = "--set output_dir=b --set train_steps=6 --set " + policy(2);
  ASSERT_EQ(train(sets + " --set fused_block.recompute_cheap=false").code, 0);
  const std::string whole = final_weights("b");
  const auto goes_on = [&](const std::string& more, const std::vector<std::string>& words) {
    std::filesystem::remove_all(tag(6)), std::filesystem::remove_all(path("b/final"));
    const Ran ran = train(sets + more);
    EXPECT_EQ(ran.code, 0) << ran.output;
    expect_says(ran.output, words);
    return ran.output;
  };
  const std::string harmless = "without effect on the numbers: ", rounding = "sums are in another order: ";
  const std::string told = goes_on(" --set activation_checkpointing=full",
                                   {harmless + "strategy/fused_block.params.recompute_cheap: false then, true now",
                                    harmless + "activation_checkpointing: absent then, {\"type\":\"full\"",
                                    "goes on from checkpoint step-00000004"});
  EXPECT_EQ(told.find(rounding), std::string::npos) << told;
  EXPECT_EQ(final_weights("b"), whole);
  goes_on(" --set fused_block=false", {rounding + "strategy/fused_block", "goes on from checkpoint step-00000004"});
}

TEST_F(Resume, checkpoints_behind_the_one_that_was_asked_for_do_not_stay_the_newest) {
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=8").code, 0);
  const Ran again = train(sets + " --set train_steps=5 --resume step-00000002");
  ASSERT_EQ(again.code, 0) << again.output;
  expect_says(again.output, {"goes on from step-00000002", "step-00000008", "removed when the next checkpoint"});
  std::set<std::string> tags;
  for (const auto& entry : std::filesystem::directory_iterator(path("b/checkpoints")))
    tags.insert(entry.path().filename());
  EXPECT_EQ(tags, (std::set<std::string>{"step-00000002", "step-00000004", "step-00000005"}));
}

TEST_F(Resume, the_same_command_with_the_name_of_a_checkpoint_goes_on_where_it_was_stopped) {
  ASSERT_EQ(train("--set output_dir=b --set train_steps=100000000 --set eval_interval=0 --set " + policy(50000000) +
                  " --set train_steps=2")
                .code,
            0);
  const std::vector<std::string> command = {program(),       "train",        path("tiny.json"),
                                            "--set",         "output_dir=b", "--resume",
                                            "step-00000002", "--set",        "train_steps=100000000"};
  size_t before = 2;
  for (int i = 0; i < 2; ++i) {
    std::vector<std::string> words = command;
    std::string policies = policy(50000000);
    words.insert(words.end(), {"--set", policies.substr(1, policies.size() - 2)});
    Background run(folder(), words);
    ASSERT_TRUE(eventually([&] { return lines_of(path("b/metrics.jsonl")) > before + 3; })) << run.output();
    run.signal(SIGTERM);
    EXPECT_EQ(run.wait(), 75) << run.output();
    if (i == 1)
      expect_says(run.output(), {"a run that went on from step-00000002 has come to", "goes on from checkpoint"});
    const size_t steps = read_metrics(path("b")).size();
    EXPECT_GT(steps, before);
    before = steps;
  }
}

// What it left is of another past than the newest checkpoint.
TEST_F(Resume, a_run_after_one_that_went_back_and_saved_nothing_goes_back_as_well) {
  const std::string sets = "--set train_steps=6 --set " + policy(2);
  ASSERT_EQ(train(sets + " --set output_dir=a").code, 0);
  ASSERT_EQ(train(sets + " --set output_dir=b").code, 0);
  ASSERT_EQ(train("--set output_dir=b --set train_steps=3 --set optimizer.params.lr=0.5 --resume step-00000002 "
                  R"(--set 'checkpoint_policy={"type": "every", "params": {"steps": 50, "at_end": false}}')")
                .code,
            0);
  const Ran rest = train(sets + " --set output_dir=b --resume auto");
  EXPECT_EQ(rest.code, 0) << rest.output;
  expect_says(rest.output, {"the last run in this folder went on from step-00000002", "--resume step-00000006"});
  expect_same_run("a", "b");
}

TEST_F(Resume, other_data_is_explained_before_it_acts) {
  write("words.txt", std::string(4000, 'a') + "\n");
  const std::string sets =
      "--set output_dir=b --set model.params.vocab_size=256 --set 'dataset={\"type\": \"text\", "
      "\"params\": {\"files\": [\"" +
      path("words.txt") + "\"], \"seq_length\": 8}}' --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=4").code, 0);
  write("words.txt", std::string(4000, 'b') + "\n");
  expect_train_refused(sets + " --set train_steps=4", 2, {"holds a run that is done"});
  const Ran other = train(sets + " --set train_steps=6");
  EXPECT_EQ(other.code, 2);
  expect_says(other.output, {"would change its numbers", "the data's "});
}

// The loss that keeps experts' loads equal is one of each micro-batch; elsewhere its rows are only added otherwise.
TEST_F(Resume, another_micro_batch_of_a_mixture_is_told_as_other_numbers) {
  const std::string sets = "--set train_batch_size=4 --set train_steps=4 --set save_final=false --set " + policy(2),
                    mixture = " --set model.params.num_experts=4 --set model.params.num_experts_per_tok=2";
  const auto goes_on = [&](const std::string& more, const std::string& folder) {
    const std::string in = concat(" --set output_dir=", folder, more);
    EXPECT_EQ(train(sets + in + " --set train_micro_batch_size_per_gpu=2").code, 0);
    std::filesystem::remove_all(path(folder + "/checkpoints/step-00000004"));
    std::filesystem::remove_all(path(folder + "/final"));
    return train(sets + in + " --set train_micro_batch_size_per_gpu=1");
  };
  const Ran dense = goes_on("", "dense"), experts = goes_on(mixture, "experts");
  EXPECT_EQ(dense.code, 0) << dense.output;
  expect_says(dense.output, {"sums are in another order: ", "train_micro_batch_size_per_gpu: 2 then, 1 now"});
  EXPECT_EQ(experts.code, 2) << experts.output;
  expect_says(experts.output, {"would change its numbers",
                               "train_micro_batch_size_per_gpu (a loss that balances experts is one of each "
                               "micro-batch): 2 then, 1 now"});
  // On half the ranks each has twice as many of the same micro-batches.
  const auto on = [&](int ranks, const std::string& folder) {
    return launch(ranks, sets + concat(mixture, " --set train_micro_batch_size_per_gpu=2 --set output_dir=", folder));
  };
  EXPECT_EQ(on(2, "ranks").code, 0);
  std::filesystem::remove_all(path("ranks/checkpoints/step-00000004"));
  const Ran fewer = on(1, "ranks");
  EXPECT_EQ(fewer.code, 0) << fewer.output;
  expect_says(fewer.output, {"sums are in another order: ", "gradient_accumulation_steps: 1 then, 2 now"});
}

TEST_F(Resume, two_policies_of_a_type_keep_state_of_their_own) {
  const std::string two = R"(--set output_dir=b --set 'checkpoint_policy=["on_signal", {"type": "best", "params": )"
                          R"({"metric": "loss"}}, {"type": "best", "params": {"metric": "grad_norm"}}]' )";
  ASSERT_EQ(train(two + "--set train_steps=4").code, 0);
  const Ran shown = run("checkpoint show b");
  expect_says(shown.output, {"checkpoint_policy/best/best", "checkpoint_policy/best 2/best"});
  const Ran rest = train(two + "--set train_steps=6 --resume auto");
  EXPECT_EQ(rest.code, 0) << rest.output;
}

TEST_F(Resume, a_run_that_trains_on_has_the_last_weights_in_final) {
  const std::string sets = " --set " + policy(2);
  ASSERT_EQ(train("--set output_dir=a --set train_steps=6" + sets).code, 0);
  ASSERT_EQ(train("--set output_dir=b --set train_steps=4" + sets).code, 0);
  const std::string first = final_weights("b");
  ASSERT_EQ(train("--set output_dir=b --set train_steps=6 --resume auto" + sets).code, 0);
  EXPECT_TRUE(final_weights("a") == final_weights("b"));
  EXPECT_TRUE(file_bytes(path("b/final-step-4/model.safetensors")) == first);
  // As one that was killed before it wrote them.
  std::filesystem::remove_all(path("b/final"));
  std::filesystem::rename(path("b/final-step-4"), path("b/final"));
  ASSERT_EQ(train("--set output_dir=b --set train_steps=6" + sets).code, 0);
  EXPECT_TRUE(final_weights("a") == final_weights("b"));
}

TEST_F(Resume, what_cannot_go_on_says_why) {
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=4").code, 0);
  expect_train_refused(sets + " --set train_steps=4", 2, {"holds a run that is done", "step 4 of 4", "train_steps"});
  expect_train_refused(sets + " --set train_steps=4 --resume never", 2, {"holds a run already", "output_dir=FOLDER"});
  expect_train_refused(sets + " --resume step-00000003", 2, {"no such checkpoint", "step-00000004, step-00000002"});
  expect_train_refused("--set output_dir=c --resume step-00000003", 2, {"holds no run"});
  const Ran other = train(sets + " --set train_steps=6 --resume auto --set model.params.hidden_size=32");
  EXPECT_EQ(other.code, 6);
  expect_says(other.output, {"does not hold", "the checkpoint has", "resolved.json"});
  EXPECT_EQ(file_bytes(path("b/resolved.json")).find("\"hidden_size\": 32"), std::string::npos);
  expect_train_refused(sets + " --resume ''", 2, {"--resume is empty"});
  expect_train_refused(sets + " --set checkpoint_store.folder=elsewhere", 2,
                       {"holds a run already", "checkpoint_store"});
}

TEST_F(Resume, a_run_that_was_killed_behind_its_last_step_writes_its_final_weights) {
  const std::string sets = "--set train_steps=4 --set " + policy(2);
  ASSERT_EQ(train(sets + " --set output_dir=a").code, 0);
  ASSERT_EQ(train(sets + " --set output_dir=b").code, 0);
  std::filesystem::remove_all(path("b/final"));
  const Ran rest = train(sets + " --set output_dir=b");
  ASSERT_EQ(rest.code, 0) << rest.output;
  expect_same_run("a", "b");
}

}  // namespace
}  // namespace drivetrain::test
