// Which weights of a run folder `generate` and `evaluate` take where there are several, and what they say of it.
#include "evaluation/strategy_runs.h"

#include "generate/model_source.h"

namespace drivetrain::test {
namespace {

// The run went on from final/, whose step has a checkpoint beside the newest, wherever the run keeps them.
TEST_F(RunsWithStrategies, an_adapter_is_that_of_its_final_folder_while_the_run_goes_on) {
  const RunResult first = run("first", kSmall, R"("lora": {"rank": 4, "targets": ["c_attn"]})");
  const std::string adapter = first.folder + "/final";
  expect_figures_of_the_run(first);
  const std::string elsewhere = R"(, "checkpoint_store": {"type": "sharded", "params": {"folder": "../elsewhere"}})";
  const std::pair<std::string, std::string> places[] = {{"", folder.path("longer0/checkpoints")},
                                                        {elsewhere, folder.path("elsewhere")}};
  for (const auto& [store, checkpoints] : places) {
    SCOPED_TRACE(checkpoints);
    const RunResult longer = run(store.empty() ? "longer0" : "longer1", kSmall,
                                 R"("lora": {"rank": 4, "targets": ["c_attn"]}, "save_final": false)" + store,
                                 concat(kAtEnd, R"(, "train_steps": 7)"));
    std::filesystem::copy(first.folder + "/checkpoints", checkpoints,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::skip_existing);
    std::filesystem::copy(adapter, longer.folder + "/final", std::filesystem::copy_options::recursive);
    EXPECT_NEAR(loss_of(longer.folder, longer.folder, "text"), trained_loss(first, "text"), 4e-6);
    EXPECT_TRUE(says(said_of(longer.folder), "newest checkpoint is of step 7"));
    forget_step(longer.folder + "/final/adapter_model.safetensors");
    EXPECT_NEAR(loss_of(longer.folder, longer.folder, "text"), trained_loss(longer, "text"), 4e-6);
    const std::string said = said_of(longer.folder);
    EXPECT_TRUE(says(said, "no weights in its final/ say their step; these are of the checkpoint of step 7")) << said;
  }
}

TEST_F(RunsWithStrategies, final_weights_that_are_older_than_the_checkpoint_say_so) {
  const RunResult run = run_with_sets(folder, "run", kAtEnd);
  EXPECT_EQ(said_of(run.folder), "");
  const RunResult longer =
      run_with_sets(folder, "longer", concat(kAtEnd, R"(, "train_steps": 7, "save_final": false)"));
  std::filesystem::copy(run.folder + "/final", longer.folder + "/final", std::filesystem::copy_options::recursive);
  const std::string said = said_of(longer.folder);
  for (const char* part : {"final weights, of step 5", "newest checkpoint is of step 7", "checkpoint convert"})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\nin: " << said;
  for (const bool whole_manifest : {true, false}) {  // what became of a checkpoint is nothing to weights that are whole
    for (const auto& file : std::filesystem::recursive_directory_iterator(longer.folder + "/checkpoints"))
      if (file.is_regular_file() && (!whole_manifest || file.path().filename() != "manifest.json"))
        std::filesystem::resize_file(file, 1);
    EXPECT_EQ(says(said_of(longer.folder), "final weights, of step 5"), whole_manifest);
  }
}

TEST_F(RunsWithStrategies, final_weights_that_do_not_say_their_step_are_said_to_be_taken_beside_checkpoints) {
  const RunResult run = run_with_sets(folder, "run", kAtEnd);
  forget_step(run.folder + "/final/model.safetensors");
  const std::string said = said_of(run.folder);
  for (const char* part : {"these are its final weights, which do not say their step", "newest checkpoint is of step 5",
                           "checkpoint convert"})
    EXPECT_TRUE(says(said, part)) << part << "\nin: " << said;
  remove_checkpoints(run);
  EXPECT_EQ(said_of(run.folder), "") << "there is nothing else that could be meant";
}

TEST_F(RunsWithStrategies, a_checkpoint_that_cannot_be_read_is_warned_of_once) {
  const auto warnings = [&](const std::string& from) {
    const std::string said = said_of(from);
    const std::string warning = "the checkpoint step-00000007 cannot be used";
    size_t count = 0;
    for (size_t at = said.find(warning); at != std::string::npos; at = said.find(warning, at + 1)) ++count;
    return concat(count, "\n", said);
  };
  for (const char* final : {"", R"(, "save_final": false)"}) {
    const RunResult run = run_with_sets(
        folder, *final ? "open" : "whole",
        concat(R"("checkpoint_policy": {"type": "every", "params": {"steps": 3, "at_end": true}}, "train_steps": 7)",
               final));
    std::filesystem::resize_file(run.folder + "/checkpoints/step-00000007/manifest.json", 1);
    const std::string found = warnings(run.folder);
    EXPECT_EQ(found.substr(0, found.find('\n')), "1") << found;
  }
}

// What it says of the run is missed, and the weights are whole.
TEST_F(RunsWithStrategies, a_damaged_resolved_json_leaves_the_final_weights_and_is_named) {
  const RunResult run = run_with_sets(folder, "run", eval_section(folder, R"("interval": 0)"));
  const std::string file = run.folder + "/resolved.json", final = run.folder + "/final";
  const double loss = loss_of(run.folder, run.folder, "text");
  const EvalSet text = find_eval_set(run.folder, "text", built_plugins());
  const auto taken = [&](std::string& said) {
    testing::internal::CaptureStderr();
    const auto log = make_console_log({.level = LogLevel::warning});
    const std::string place = readable_folder(run.folder, *log);
    said = testing::internal::GetCapturedStderr();
    return place;
  };
  std::string said;
  EXPECT_EQ(taken(said), run.folder);
  EXPECT_EQ(said, "");
  for (const char* content : {"", "{\"model\": {\"type\"", "[]", "{}"}) {
    std::ofstream(file) << content;
    ASSERT_EQ(taken(said), final) << content;
    for (const std::string& part : {file + " is damaged (", final + " is taken alone",
                                    "write it anew: drivetrain config resolve CONFIG > " + file})
      EXPECT_TRUE(says(said, part)) << part << "\nin: " << said;
    Inference model(taken(said), text.seed, built_plugins(), quiet());
    EXPECT_EQ(model.evaluate("text", choose_eval_set(text, built_plugins()), text.seq_length, 4)
                  .figures.find("loss")
                  ->as_double(),
              loss);
  }
  // A folder that is itself the weights' cannot be taken without it.
  std::ofstream(final + "/resolved.json") << "[]";
  EXPECT_TRUE(says(error_of([&] { readable_folder(final, *quiet()); }), "or take it out of the folder"));
  std::filesystem::remove_all(final);
  const std::string refused = error_of([&] { readable_folder(run.folder, *quiet()); });
  for (const std::string& part :
       {file + " is damaged (", final + " holds no whole model", std::string("config resolve")})
    EXPECT_TRUE(says(refused, part)) << part << "\nin: " << refused;
}

TEST_F(RunsWithStrategies, checkpoints_are_found_where_the_run_has_put_them) {
  const std::string elsewhere = R"("checkpoint_store": {"type": "sharded", "params": {"folder": "../elsewhere"}})";
  const RunResult run = run_with_sets(
      folder, "run",
      concat(eval_section(folder, R"("interval": 0)"), ", ", kAtEnd, ", ", elsewhere, R"(, "save_final": false)"));
  expect_figures_of_the_run(run);
  std::filesystem::remove_all(folder.path("elsewhere"));
  expect_refused(run.folder, {run.folder, "holds no model", "no final weights", "no known checkpoint is there"});
}

}  // namespace
}  // namespace drivetrain::test
