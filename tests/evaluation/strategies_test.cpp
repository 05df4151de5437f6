// Runs whose strategies change what the model computes: sampled and evaluated by what the run has left, they have the
// figures of its own last evaluation.
#include "evaluation/strategy_runs.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <drivetrain/safetensors.h>

namespace drivetrain::test {
namespace {

TEST_F(RunsWithStrategies, an_adapter_alone_is_read_from_the_checkpoint_or_from_the_final_folder) {
  const RunResult run = lora_run("");
  ASSERT_FALSE(std::filesystem::exists(run.folder + "/final/config.json"));
  expect_figures_of_the_run(run);
  const at::Tensor tokens = at::ones({1, 9}, at::kLong);
  const at::Tensor logits = Inference(run.folder, 1, built_plugins(), quiet()).logits(tokens);
  EXPECT_FALSE(at::equal(logits, Inference(folder.path("base"), 1, built_plugins(), quiet()).logits(tokens)))
      << "the adapter does nothing, and the test shows nothing";
  remove_checkpoints(run);
  expect_figures_of_the_run(run);
  EXPECT_TRUE(at::equal(Inference(run.folder, 1, built_plugins(), quiet()).logits(tokens), logits));
}

TEST_F(RunsWithStrategies, an_adapter_that_went_on_with_another_is_the_one_of_the_end) {
  const RunResult first = lora_run("");
  const RunResult second = run("second", R"({"from": ")" + folder.path("base/final") + "\"}",
                               R"("lora": {"from": ")" + first.folder + "/final\"}");
  expect_figures_of_the_run(second);
  remove_checkpoints(second);
  expect_figures_of_the_run(second);
}

// The bases have equal shapes, so that nothing but their values tells them apart.
TEST_F(RunsWithStrategies, an_adapter_is_read_with_its_own_base_alone) {
  const RunResult first = lora_run("", R"("checkpoint_policy": false)");
  const RunResult kept =
      run("kept", R"({"from": ")" + folder.path("base/final") + "\"}", R"("lora": {"rank": 4, "targets": ["c_attn"]})");
  const std::string file = first.folder + "/final/adapter_model.safetensors", base = folder.path("base/final");
  std::map<std::string, std::string> said;
  for (const auto& [key, text] : SafetensorsFile::open(file).metadata()) said[key] = text;
  EXPECT_EQ(said["base_folder"], base);
  EXPECT_EQ(said["base_digest"].size(), 16u);
  EXPECT_EQ(read_json_file(first.folder + "/final/adapter_config.json").find("base_model_name_or_path")->as_string(),
            base);

  const std::string other = run_with_sets(folder, "other", "\"seed\": 4").folder + "/final";
  const auto go_on = [&](const std::string& name, const std::string& from) {
    run(name, R"({"from": ")" + from + "\"}", R"("lora": {"from": ")" + first.folder + "/final\"}");
  };
  const std::string text = error_of([&] { go_on("mistaken", other); });
  for (const std::string& part : {first.folder + "/final", base, other, said["base_digest"],
                                  std::string("another base"), std::string("model.params.from")})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
  std::filesystem::copy(base, folder.path("copy"));
  go_on("same", folder.path("copy"));  // by its values, not by its name
  std::filesystem::copy(other + "/model.safetensors", base + "/model.safetensors",
                        std::filesystem::copy_options::overwrite_existing);
  expect_refused(first.folder, {"another base", said["base_digest"], "put the weights of that run back"});
  expect_refused(kept.folder, {"refers to the frozen weights of " + base, "put the weights of that run back"});
  for (const RunResult* one : {&first, &kept})  // generate and evaluate have no config that could name another
    for (const char* option : {"--set", "model.params.from"})
      EXPECT_FALSE(says(error_of([&] { Inference(one->folder, 1, built_plugins(), quiet()); }), option)) << option;
}

TEST_F(RunsWithStrategies, merged_weights_get_no_adapter_once_more_and_need_no_base) {
  for (const char* save : {"merged", "both"}) {
    const RunResult run = lora_run(concat(R"(, "save": ")", save, "\""));
    std::filesystem::remove_all(folder.path("base"));
    expect_figures_of_the_run(run);
    remove_checkpoints(run);
    expect_figures_of_the_run(run);
    std::filesystem::remove_all(run.folder);
  }
}

// The plan of the run wants the folder that it began from: the way around it is named.
TEST_F(RunsWithStrategies, merged_weights_of_a_run_whose_first_adapter_has_gone_are_read_alone) {
  const RunResult first = lora_run("");
  const RunResult next = run("next", R"({"from": ")" + folder.path("base") + "/final\"}",
                             R"("lora": {"from": ")" + first.folder + R"(/final", "save": "merged"})");
  std::filesystem::remove_all(first.folder);
  expect_refused(next.folder, {"adapter_config.json", "give " + next.folder + "/final for the weights alone"});
  EXPECT_NEAR(loss_of(next.folder + "/final", next.folder, "text"), trained_loss(next, "text"), 4e-6);
}

TEST_F(RunsWithStrategies, an_adapter_of_a_model_that_nothing_holds_is_refused) {
  const RunResult made = run("seed", R"({"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
      "vocab_size": 257, "max_position_embeddings": 64})",
                             R"("lora": {"targets": ["c_attn"]})");
  expect_figures_of_the_run(made);
  remove_checkpoints(made);
  expect_refused(made.folder, {made.folder, "lora_A", "not the model that they were trained with", "no checkpoint"});
}

TEST_F(RunsWithStrategies, biases_of_routers_are_those_of_the_checkpoint) {
  const RunResult run = biased_run();
  expect_figures_of_the_run(run);
  const std::string final = run.folder + "/final";
  EXPECT_GT(std::abs(loss_of(final, run.folder, "text") - trained_loss(run, "text")), 1e-4)
      << "the biases change nothing, and the test shows nothing";
  remove_checkpoints(run);
  expect_refused(run.folder, {run.folder, "the state of strategy/router_bias", "router.bias", "only checkpoints hold",
                              "at_end", final});
}

TEST_F(RunsWithStrategies, final_weights_without_the_biases_say_so_wherever_they_lie) {
  const RunResult run = biased_run();
  std::filesystem::copy(run.folder + "/final", folder.path("copy"));
  for (const std::string& place : {run.folder + "/final", folder.path("copy")}) {
    const std::string said = said_of(place);
    for (const std::string& part : {place, std::string("strategy/router_bias"), std::string("another model")})
      EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  EXPECT_EQ(said_of(run.folder), "");
}

TEST_F(RunsWithStrategies, averages_of_weights_are_the_final_ones_as_before) {
  const auto averaged = [&](const std::string& name, const std::string& more) {
    return run(name, R"({"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 257,
      "max_position_embeddings": 64})",
               R"("ema": {"decay": 0.5})" + more);
  };
  const RunResult whole = averaged("averaged", "");
  const double of_run = loss_of(whole.folder, whole.folder, "text");
  EXPECT_EQ(of_run, loss_of(whole.folder + "/final", whole.folder, "text"));
  EXPECT_GT(std::abs(of_run - trained_loss(whole, "text")), 1e-5);
  EXPECT_EQ(said_of(whole.folder), "");

  const RunResult open = averaged("open", R"(, "save_final": false)");
  expect_figures_of_the_run(open);  // of the trained weights, which is said
  const std::string said = said_of(open.folder);
  for (const char* part : {"strategy/ema", "checkpoint of step 5", "no part in these weights", "save_final"})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\nin: " << said;
}

}  // namespace
}  // namespace drivetrain::test
