// What else a run may find in its folder than whole checkpoints of its own: damaged ones, copies, those of other runs,
// links, and another run at work.
#include <unistd.h>

#include "program/resume_fixture.h"

namespace drivetrain::test {
namespace {

using RunFolder = SavingRuns;

TEST_F(RunFolder, damage_names_the_checkpoint_before_it) {
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=4").code, 0);
  {
    std::fstream file(path("b/checkpoints/step-00000004/rank-00000.safetensors"), std::ios::in | std::ios::out);
    file.seekp(9000), file.put('\xff');
  }
  const Ran ran = train(sets + " --set train_steps=6 --resume auto");
  EXPECT_EQ(ran.code, 6);
  expect_says(ran.output, {"step-00000004 cannot be read", "rank-00000.safetensors", "--resume step-00000002",
                           "drivetrain checkpoint verify"});
  std::filesystem::remove(path("b/checkpoints/step-00000004/manifest.json"));
  expect_train_refused(sets + " --set train_steps=6 --resume auto", 6,
                       {"step-00000004", "manifest.json: is missing", "--resume step-00000002"});
  EXPECT_EQ(train(sets + " --set train_steps=6 --resume step-00000002").code, 0);  // whose step 4 replaces that one
  EXPECT_EQ(run("checkpoint verify b").code, 0);
}

TEST_F(RunFolder, damage_of_the_first_checkpoint_names_those_behind_it_that_are_not_seen_to_be_damaged) {
  const std::string sets = "--set output_dir=b --set train_steps=6 --set " + policy(2);
  ASSERT_EQ(train(sets).code, 0);
  std::fstream(tag(2) + "/rank-00000.safetensors", std::ios::in | std::ios::out).seekp(9000).put('\xff');
  const std::string from_first = sets + " --resume step-00000002";
  expect_train_refused(from_first, 6,
                       {"step-00000002 cannot be read", "rank-00000.safetensors",
                        "none before it can be used; behind it: step-00000006, step-00000004\n",
                        "what is damaged, and what is whole: drivetrain checkpoint verify " + path("b")});
  std::filesystem::remove(tag(6) + "/manifest.json");
  expect_train_refused(from_first, 6, {"none before it can be used; behind it: step-00000004\n"});
  std::filesystem::resize_file(tag(4) + "/rank-00000.safetensors", 9000);
  expect_train_refused(from_first, 6, {"there is no other checkpoint in this folder that can be used\n"});
  std::filesystem::remove_all(tag(4)), std::filesystem::remove_all(tag(6));
  expect_train_refused(from_first, 6, {"there is no other checkpoint in this folder that can be used\n"});
}

// Its own checkpoints would be older than those, and the first ones to be removed.
TEST_F(RunFolder, a_new_run_does_not_mix_its_checkpoints_with_those_of_another) {
  const std::string shared = " --set checkpoint_store.folder=" + path("shared") + " --set " + policy(2);
  ASSERT_EQ(train("--set output_dir=b --set train_steps=4" + shared).code, 0);
  expect_train_refused("--set output_dir=c --set train_steps=2" + shared, 2,
                       {"c holds no run", "step-00000004 and 1 more", "output_dir=FOLDER"});
  EXPECT_FALSE(std::filesystem::exists(path("c")));
  EXPECT_TRUE(std::filesystem::exists(path("shared/step-00000002")));
}

// Where nobody watches: the newest that is whole, whatever is wrong with those behind it.
TEST_F(RunFolder, a_damaged_checkpoint_may_be_passed_over_if_the_config_says_so) {
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=6").code, 0);
  std::filesystem::remove_all(path("b/final"));
  {
    std::fstream file(tag(6) + "/rank-00000.safetensors", std::ios::in | std::ios::out);
    file.seekp(9000), file.put('\xff');
  }
  std::filesystem::remove(tag(4) + "/manifest.json");
  const std::string longer = sets + " --set train_steps=8 --resume auto";
  EXPECT_EQ(train(longer).code, 6);
  const Ran ran = train(longer + " --set damaged_checkpoint=previous");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"step-00000006 cannot be used", "passed over", "goes on from checkpoint step-00000002"});
  EXPECT_EQ(read_metrics(path("b")).size(), 8U);
  EXPECT_EQ(run("checkpoint verify b").code, 0);
}

// Whatever somebody calls them, before or behind "step" in the alphabet.
TEST_F(RunFolder, copies_of_a_checkpoint_under_other_names_are_no_damage) {
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=4").code, 0);
  for (const char* const name : {"before", "zz-after", "step-00000004-copy", "step-00000009"})
    std::filesystem::copy(tag(4), path(concat("b/checkpoints/", name)));
  const Ran verified = run("checkpoint verify b");
  EXPECT_EQ(verified.code, 0) << verified.output;
  expect_says(verified.output, {"a copy under another name", "0 damaged; the newest whole one is step-00000004"});
  const Ran ran = train(sets + " --set train_steps=6 --resume auto");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"goes on from checkpoint step-00000004"});
  EXPECT_TRUE(std::filesystem::exists(path("b/checkpoints/zz-after")));
}

// Exit code 6, as where one of several is damaged: neither the config nor the folder's name is what is wrong.
TEST_F(RunFolder, one_of_which_no_checkpoint_is_whole_is_refused_for_its_checkpoints) {
  const std::string sets = "--set output_dir=b --set " + policy(2), longer = sets + " --set train_steps=6";
  ASSERT_EQ(train(sets + " --set train_steps=4 --set save_final=false").code, 0);
  const auto damage = [&](int64_t step) { std::ofstream(tag(step) + "/manifest.json", std::ios::app) << "x"; };
  damage(4);
  expect_train_refused(longer + " --resume step-00000004", 6,
                       {"--resume step-00000004", "cannot be used", "manifest.json", "others are step-00000002"});
  expect_refused("checkpoint convert b x --to hf --tag step-00000004", 6,
                 {"the checkpoint step-00000004 cannot be used", "drivetrain checkpoint verify " + path("b")});
  damage(2);
  for (const char* resume : {"", " --resume auto", " --resume step-00000004", " --set damaged_checkpoint=previous"})
    expect_train_refused(
        longer + resume, 6,
        {"output_dir", path("b") + " holds a run of which no checkpoint is whole", "step-00000004/manifest.json",
         "another folder: --set output_dir=FOLDER", "checkpoint verify"});
  expect_refused("launch -n 2 " + path("tiny.json") + " " + longer, 6, {"no checkpoint is whole"});
  for (const char* command : {"generate b --prompt x", "checkpoint convert b x --to hf"})
    expect_refused(command, 6, {"b: none of its checkpoints can be used", "manifest.json", "checkpoint verify b"});
}

// Whether or not a command can name a checkpoint, and what it advises can be done.
TEST_F(RunFolder, what_damage_says_to_do_fits_the_command) {
  const std::string bytes = " --set model.vocab_size=256 --set model.max_position_embeddings=32";
  ASSERT_EQ(train("--set output_dir=b --set train_steps=4 --set save_final=false --set " + policy(2) + bytes).code, 0);
  write("text.txt", "some text");
  const std::string from = "train " + path("tiny.json") + bytes + " --set output_dir=c --set model.from=",
                    whole = file_bytes(tag(4) + "/rank-00000.index.json");
  for (const bool in_data : {false, true}) {  // which are read later
    write(tag(4).substr(folder().size() + 1) + "/rank-00000.index.json", in_data ? whole : whole + "x");
    if (in_data) std::fstream(tag(4) + "/rank-00000.safetensors", std::ios::in | std::ios::out).seekp(9000).put('\xff');
    for (const std::string& command : {std::string("generate b --prompt x"), std::string("evaluate b text.txt"),
                                       from + "b", from + tag(4), std::string("checkpoint convert b c --to hf")}) {
      const Ran ran = run(command);
      EXPECT_EQ(ran.code, 6) << command << ran.output;
      expect_says(ran.output, {"step-00000004/rank-00000", "copy this checkpoint again",
                               "drivetrain checkpoint verify " + path("b"),
                               "drivetrain checkpoint convert " + path("b") + " NEW --to hf --tag TAG"});
      EXPECT_EQ(ran.output.find("earlier tag"), std::string::npos) << ran.output;
      std::filesystem::remove_all(path("c"));
    }
  }
  EXPECT_EQ(run("checkpoint convert " + path("b") + " new --to hf --tag step-00000002").code, 0);
  EXPECT_EQ(run("generate new --prompt x --tokens 2").code, 0);
}

TEST_F(RunFolder, final_weights_whose_config_is_damaged_are_named_with_what_gives_them_anew) {
  const std::string bytes = " --set model.vocab_size=256 --set model.max_position_embeddings=32";
  ASSERT_EQ(train("--set output_dir=b --set train_steps=2 --set " + policy(2) + bytes).code, 0);
  write("text.txt", "some text");
  const std::string whole = file_bytes(path("b/final/config.json"));
  const std::string anew = "drivetrain checkpoint convert b NEW --to hf";
  for (const std::string& damaged : {whole.substr(0, 60), std::string(), std::string("[1]")}) {
    write("b/final/config.json", damaged);
    for (const char* command : {"generate b --prompt x", "evaluate b text.txt"})
      expect_refused(command, 2, {"b/final/config.json:", "wanted", anew});
  }
  write("b/final/config.json", whole.substr(0, 60));
  for (const std::string& command :
       {std::string("generate b/final --prompt x"), std::string("evaluate b/final text.txt"),
        "train " + path("tiny.json") + " --set output_dir=c --set model.from=b/final"})
    expect_refused(command, 2, {"b/final/config.json:", "a JSON file was wanted", "bring it again"});
  EXPECT_EQ(run("checkpoint convert b new --to hf").code, 0);
  EXPECT_EQ(file_bytes(path("new/config.json")), whole);
  EXPECT_EQ(file_bytes(path("new/model.safetensors")).size(), final_weights("b").size());
}

// A power cut, or a copy that was cut short, may keep any files.
TEST_F(RunFolder, a_newest_checkpoint_of_which_some_files_are_left_is_named) {
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(launch(2, sets + " --set train_steps=4").code, 0);
  for (const char* const name : {"manifest.json", "rank-00000.safetensors", "rank-00000.index.json"})
    std::filesystem::remove(tag(4) + "/" + name);
  expect_refused("checkpoint verify b", 6, {"step-00000004", "manifest.json: is missing"});
  expect_train_refused(sets + " --set train_steps=6 --resume auto", 6,
                       {"step-00000004", "manifest.json: is missing", "--resume step-00000002"});
}

// Its lock is the folder's, and it saves by a path that may be another run's by now.
TEST_F(RunFolder, a_run_whose_folder_is_moved_away_leaves_the_one_under_its_name_alone) {
  Background first = start(2, "b", 100000000, 2);
  ASSERT_TRUE(eventually([&] { return lines_of(path("b/metrics.jsonl")) > 20; })) << first.output();
  std::filesystem::rename(path("b"), path("moved"));
  const std::string sets = "--set output_dir=b --set " + policy(2);
  const Ran second = train(sets + " --set train_steps=4");
  EXPECT_EQ(first.wait(), 8) << first.output();
  expect_says(first.output(),
              {"output_dir " + path("b"), "was moved to " + path("moved"), "leave the folder of a run in its place"});
  EXPECT_EQ(second.code, 0) << second.output;
  const Ran verified = run("checkpoint verify b");
  EXPECT_EQ(verified.code, 0) << verified.output;
  expect_says(verified.output, {"step-00000004: whole", "step-00000002: whole", "checked 2 tags"});
}

// One that came into the folder by hand is another run's, whatever its step.
TEST_F(RunFolder, a_checkpoint_of_another_run_is_neither_gone_on_from_nor_removed) {
  ASSERT_EQ(train("--set output_dir=a --set train_steps=8 --set " + policy(4)).code, 0);
  const std::string sets = "--set output_dir=b --set " + policy(2);
  ASSERT_EQ(train(sets + " --set train_steps=4").code, 0);
  std::filesystem::rename(path("a/checkpoints/step-00000008"), tag(8));
  const Ran ran = train(sets + " --set train_steps=6 --resume auto");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"step-00000008 is of another run", "--resume step-00000008 goes on from it",
                           "goes on from checkpoint step-00000004"});
  EXPECT_TRUE(std::filesystem::exists(tag(8)));
  for (const int64_t step : {2, 4, 6}) std::filesystem::remove_all(tag(step));
  std::filesystem::remove_all(path("b/final"));
  expect_train_refused(sets + " --set train_steps=9 --resume auto", 2,
                       {"holds a run already", "step-00000008", "are of other runs", "--resume step-00000008"});
  EXPECT_EQ(train(sets + " --set train_steps=9 --resume step-00000008").code, 0);
}

TEST_F(RunFolder, links_of_another_user_in_the_folder_of_a_run_are_not_written_through) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make links of another user";
  const std::vector<std::string> names = {"memory.json", "step_times.json"};
  write("victim", "mine");
  std::filesystem::create_directories(path("run"));
  const auto plant = [&](const std::string& name) {
    std::filesystem::create_symlink(path("victim"), path("run/" + name));
    EXPECT_EQ(lchown(path("run/" + name).c_str(), 65534, 65534), 0);
  };
  for (const std::string& name : names) plant(name);
  EXPECT_EQ(launch(2).code, 0);
  EXPECT_EQ(file_bytes(path("victim")), "mine");
  for (const std::string& name : names) EXPECT_FALSE(std::filesystem::is_symlink(path("run/" + name))) << name;
  for (const char* const name : {"log.txt", "resolved.json", "metrics.jsonl"}) {
    std::filesystem::remove_all(path("run"));
    std::filesystem::create_directories(path("run"));
    plant(name);
    const Ran ran = train();
    EXPECT_NE(ran.code, 0) << name;
    expect_says(ran.output, {name});
    EXPECT_EQ(file_bytes(path("victim")), "mine") << name;
  }
}

TEST_F(RunFolder, one_run_at_a_time_works_in_a_folder) {
  ASSERT_EQ(train("--set output_dir=b --set train_steps=2 --set " + policy(2)).code, 0);
  Background first = start(1, "b", 100000000, 100000000);
  ASSERT_TRUE(eventually([&] { return lines_of(path("b/metrics.jsonl")) > 3; })) << first.output();
  const std::string being_saved = path("b/checkpoints/.saving-step-00000009");  // as if the first were writing it
  std::filesystem::create_directories(being_saved);
  const Ran second = train("--set output_dir=b --set train_steps=100 --resume auto --set " + policy(2));
  EXPECT_EQ(second.code, 2);
  expect_says(second.output, {"holds a run already", "is at work in it", "output_dir=FOLDER"});
  EXPECT_TRUE(std::filesystem::exists(being_saved));
  first.signal(SIGKILL);
  first.wait();
  EXPECT_TRUE(eventually([&] { return processes_with(folder()).empty(); }));  // ranks end with their launcher
}

}  // namespace
}  // namespace drivetrain::test
