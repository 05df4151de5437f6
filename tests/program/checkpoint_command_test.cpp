// `drivetrain checkpoint`: what it says of whole and of damaged checkpoints, and that it writes nothing into them.
#include <cmath>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

struct CheckpointCommand : ProgramTest {
  // A run of two ranks with checkpoints after step 2 and step 4, trained once and copied for each test.
  CheckpointCommand() {
    static const TempFolder kept;
    if (fs::is_empty(kept.path())) {
      const Ran ran = launch(2, "--set output_dir=run --set train_steps=4 --set zero_optimization.stage=1 " + policy());
      EXPECT_EQ(ran.code, 0) << ran.output;
      fs::copy(path("run"), kept.path("run"), fs::copy_options::recursive);
    } else {
      fs::copy(kept.path("run"), path("run"), fs::copy_options::recursive);
    }
  }
  static std::string policy() {
    return R"(--set 'checkpoint_policy={"type": "every", "params": {"steps": 2, "keep": 0}}')";
  }

  std::string tag_file(int step, const std::string& name) const {
    return path(concat("run/checkpoints/step-0000000", step, "/", name));
  }
  static void flip_byte(const std::string& file, std::streamoff at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const char byte = static_cast<char>(stream.peek() ^ 1);
    stream.seekp(at).put(byte);
  }
  // Runs it, and checks that no file came, went or was written to.
  Ran checkpoint(const std::string& arguments, int code) const {
    const auto before = stamps();
    const Ran ran = run("checkpoint " + arguments);
    EXPECT_EQ(ran.code, code) << arguments << "\n" << ran.output;
    EXPECT_EQ(stamps(), before) << arguments;
    return ran;
  }
  Value json(const std::string& arguments, int code = 0) const {
    return parse_json(checkpoint(arguments + " --json", code).output, arguments);
  }
  std::set<std::pair<std::string, fs::file_time_type>> stamps() const {
    std::set<std::pair<std::string, fs::file_time_type>> found;
    for (const std::string& name : files()) found.emplace(name, fs::last_write_time(path(name)));
    return found;
  }
  const Value& item(const Value& value, const std::string& list, size_t i) const {
    return value.find(list)->items().at(i);
  }
};

TEST_F(CheckpointCommand, list_has_the_newest_first_from_a_run_or_its_folder_of_tags) {
  fs::copy(path("run/checkpoints"), path("copied"), fs::copy_options::recursive);
  expect_says(checkpoint("list run", 0).output,
              {"tag", "step", "loss", "step-00000004", "2 (dp 2)", "complete", "step-00000002", "complete"});
  for (const char* const folder : {"run/", "run/checkpoints", "copied"}) {
    const Value listed = json(concat("list ", folder));
    ASSERT_EQ(listed.find("checkpoints")->items().size(), 2U);
    const Value& newest = item(listed, "checkpoints", 0);
    EXPECT_EQ(newest.find("step")->as_int(), 4);
    EXPECT_EQ(newest.find("world_size")->as_int(), 2);
    EXPECT_EQ(newest.find("figures")->find("loss")->as_double(),
              read_metrics(path("run"))[3].find("loss")->as_double());
    uint64_t bytes = 0, count = 0;
    for (const auto& file : fs::directory_iterator(path("run/checkpoints/step-00000004")))
      bytes += file.file_size(), ++count;
    EXPECT_EQ(static_cast<uint64_t>(newest.find("bytes")->as_int()), bytes);
    EXPECT_EQ(static_cast<uint64_t>(newest.find("files")->as_int()), count);
  }
}

TEST_F(CheckpointCommand, verify_says_what_was_checked) {
  expect_says(checkpoint("verify run", 0).output,
              {"step-00000004: whole", "step-00000002: whole", "checked 2 tags, 10 files", "0 damaged",
               "the newest whole one is step-00000004"});
  expect_says(checkpoint("verify run step-00000002", 0).output, {"checked 1 tag, 5 files", "step-00000002"});
}

TEST_F(CheckpointCommand, damage_is_named_by_list_and_verify) {
  flip_byte(tag_file(4, "rank-00001.safetensors"), 4097);
  fs::create_directory(path("run/checkpoints/.saving-step-00000006"));
  const Ran bytes = checkpoint("verify run", 6);
  expect_says(bytes.output,
              {"step-00000004: damaged", "step-00000004/rank-00001.safetensors: bytes 0 to ", "in it: tensor \"",
               "step-00000002: whole", ".saving-step-00000006", "1 damaged", "whole one is step-00000002"});
  checkpoint("verify run step-00000002", 0);
  expect_says(checkpoint("list run", 0).output, {"step-00000004", "complete", ".saving-step-00000006"});  // not read
  fs::resize_file(tag_file(2, "rank-00000.safetensors"), 100);
  flip_byte(tag_file(4, "manifest.json"), 300);
  expect_says(
      checkpoint("list run", 0).output,
      {"step-00000002", "damaged", "step-00000004", "damaged", "drivetrain checkpoint verify run",
       "rank-00000.safetensors: has 100 bytes instead of", "step-00000004/manifest.json", "saving-step-00000006"});
  const Value found = json("verify run", 6);
  EXPECT_EQ(found.find("damaged")->as_int(), 2);
  EXPECT_TRUE(found.find("newest_whole")->is_null());
  EXPECT_EQ(found.find("left_overs")->items().size(), 1U);
  expect_says(checkpoint("show run step-00000004", 6).output, {"manifest.json", "drivetrain checkpoint verify run"});
  expect_says(checkpoint("diff run run:step-00000002", 6).output, {"drivetrain checkpoint verify run"});
}

// Who asks for the newest without a tag learns that it is not the last one that was saved.
TEST_F(CheckpointCommand, a_damaged_one_that_is_passed_over_is_told) {
  flip_byte(tag_file(4, "manifest.json"), 300);
  for (const char* const asked : {"show run", "show run newest", "diff run run:step-00000002"})
    expect_says(checkpoint(asked, 0).output, {"note: step-00000004 is damaged and passed over: ", "manifest.json",
                                              "drivetrain checkpoint verify run", "step-00000002"});
  for (const char* const asked : {"show run step-00000002", "diff run:step-00000002 run:step-00000002"})
    EXPECT_EQ(checkpoint(asked, 0).output.find("passed over"), std::string::npos) << asked;
  expect_says(checkpoint("average run --last 2 --output mean", 2).output,
              {"note: step-00000004 is damaged and passed over: ", "run has 1 complete checkpoints"});
}

TEST_F(CheckpointCommand, show_has_facts_tensors_and_values) {
  expect_says(checkpoint("show run", 0).output,
              {"step-00000004 of run", "ranks", "figures", "loss", "counters", "trainer/next_step", "plugins", "config",
               "optimizer.params.lr", "0.001", "tensor", "model/", "owner", "together"});
  const Value shown = json("show run step-00000002");
  EXPECT_EQ(shown.find("facts")->find("counters")->find("trainer/next_step")->as_int(), 3);
  int64_t tensors = 0, owners = 0;
  for (const Value& tensor : shown.find("tensors")->items()) tensors += tensor.find("bytes")->as_int();
  for (const Value& owner : shown.find("owners")->items()) owners += owner.find("bytes")->as_int();
  EXPECT_GT(tensors, 0);
  EXPECT_EQ(tensors, owners);
  EXPECT_EQ(item(shown, "owners", 0).find("owner")->as_string(), "model");
  const Value values = json("show run 'model/*norm*weight'");
  ASSERT_FALSE(values.find("tensors")->items().empty());
  for (const Value& tensor : values.find("tensors")->items()) {
    const double l2 = tensor.find("l2")->as_double(), mean = tensor.find("mean")->as_double();
    EXPECT_NEAR(mean, 1, 0.05);  // they begin as ones
    EXPECT_NEAR(l2, std::sqrt(16.), 0.2);
    EXPECT_EQ(tensor.find("not_finite")->as_int(), 0);
    EXPECT_EQ(tensor.find("first")->items().size(), 8U);
  }
  const std::string name = item(values, "tensors", 0).find("name")->as_string();
  EXPECT_EQ(json("show run newest " + name).find("tensors")->items().size(), 1U);
}

TEST_F(CheckpointCommand, diff_tells_equal_from_different) {
  expect_says(checkpoint("diff run run:newest", 0).output, {"equal to the bit"});
  const Ran other = checkpoint("diff run:step-00000002 run", 1);
  expect_says(other.output, {"counters", "trainer/next_step", "3", "5", "largest", "model/", "different"});
  // The same run on one rank: another topology, the sums in another order.
  ASSERT_EQ(train("--set output_dir=alone --set train_steps=4 " + policy()).code, 0);
  const Value close = json("diff run alone --tolerance 0.001");
  EXPECT_TRUE(close.find("equal")->as_bool());
  EXPECT_TRUE(close.find("counters")->items().empty());
  EXPECT_FALSE(close.find("config")->items().empty());
  ASSERT_EQ(train("--set output_dir=sgd --set train_steps=4 --set optimizer.type=SGD " + policy()).code, 0);
  expect_says(checkpoint("diff run/checkpoints:step-00000004 sgd --tolerance 1000", 1).output,
              {"optimizer.type", "in one only", "absent"});
}

TEST_F(CheckpointCommand, average_makes_a_checkpoint_of_weights_that_no_run_goes_on_from) {
  const auto before = stamps();
  const Ran ran = run("checkpoint average run step-00000004 step-00000002 --output mean");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output,
              {"averaged", "step-00000002, step-00000004", "left out", "optimizer", "saved as average-00000004"});
  ASSERT_EQ(run("checkpoint average run --last 2 --output last").code, 0);
  for (const auto& stamp : before) EXPECT_TRUE(stamps().contains(stamp)) << stamp.first;
  checkpoint("diff mean last", 0);
  checkpoint("verify mean", 0);
  const auto first = [&](const std::string& from) {
    return json("show " + from + " 'model/*'").find("tensors")->items();
  };
  const auto a = first("run step-00000002"), b = first("run step-00000004"), mean = first("mean newest");
  ASSERT_EQ(mean.size(), a.size());
  for (size_t t = 0; t < a.size(); ++t)
    for (size_t i = 0; i < a[t].find("first")->items().size(); ++i) {
      const auto value = [&](const Value& tensor) { return tensor.find("first")->items()[i].as_double(); };
      EXPECT_EQ(value(mean[t]), static_cast<float>((value(a[t]) + value(b[t])) / 2)) << a[t].find("name")->as_string();
    }
  const Value shown = json("show mean");
  EXPECT_EQ(shown.find("owners")->items().size(), 1U);
  EXPECT_EQ(shown.find("facts")->find("averaged")->find("tags")->items().size(), 2U);
  EXPECT_TRUE(shown.find("facts")->find("config")->find("model"));
  const Ran resumed = train("--resume auto --set train_steps=9 --set output_dir=mean " + policy());
  EXPECT_EQ(resumed.code, 6);
  expect_says(resumed.output, {"average-00000004", "no counters"});
}

TEST_F(CheckpointCommand, bad_input_of_average_is_refused_and_leaves_nothing) {
  const std::string average = "checkpoint average run ";
  expect_refused(average + "step-00000002 --output new", 2, {"two tags or more", "--last"});
  expect_refused(average + "step-00000002 step-00000002 --output new", 2, {"step-00000002 is named twice"});
  expect_refused(average + "--last 3 --output new", 2, {"--last 3", "2 complete"});
  expect_refused(average + "--last 2 step-00000002 --output new", 2, {"exclude each other"});
  expect_refused(average + "--last 2", 2, {"--output"});
  expect_refused(average + "--last 2 --output run", 2, {"--output", "is not empty"});
  expect_refused(average + "--last 2 --output tiny.json", 2, {"--output", "is no folder"});
  ASSERT_EQ(train("--set output_dir=other --set train_steps=6 --set model.params.num_layers=2 " + policy()).code, 0);
  fs::rename(path("other/checkpoints/step-00000006"), path("run/checkpoints/step-00000006"));
  expect_refused(average + "--last 2 --output new", 6,
                 {"step-00000004 and step-00000006", "the same model", "none in the one"});
}

TEST_F(CheckpointCommand, what_is_not_there_is_refused_with_what_is) {
  fs::create_directory(path("empty"));
  expect_refused("checkpoint list nowhere", 2, {"nowhere", "no such folder", "output_dir"});
  expect_refused("checkpoint list tiny.json", 2, {"is no folder"});
  expect_refused("checkpoint list empty", 2, {"empty: holds no checkpoint", "checkpoint_policy"});
  expect_refused("checkpoint list run/checkpoints/step-00000002", 2,
                 {"folder and its tag apart", "run/checkpoints step-00000002"});
  expect_refused("checkpoint verify run step-00000003", 2,
                 {"no checkpoint step-00000003", "step-00000004, step-00000002"});
  expect_refused("checkpoint show run step-00000002 model/nothing", 2,
                 {"no tensor model/nothing", "drivetrain checkpoint show"});
  expect_refused("checkpoint diff run run:step-00000003", 2, {"no checkpoint step-00000003"});
  expect_refused("checkpoint list run --store nothing", 3, {"checkpoint_store/nothing", "installed"});
  expect_refused("checkpoint vrify run", 2, {"did you mean \"verify\"?"});
  std::string config = file_bytes(path("run/resolved.json"));
  config.replace(config.find("\"sharded\""), 9, "\"elsewhere\"");
  write("run/resolved.json", config);
  expect_refused("checkpoint list run", 3, {"resolved.json", "checkpoint_store/elsewhere", "--store NAME"});
  checkpoint("list run --store sharded", 0);
  write("run/resolved.json", "{");
  expect_refused("checkpoint list run", 2, {"resolved.json:", "--store NAME"});
  checkpoint("list run --store sharded", 0);
}

}  // namespace
}  // namespace drivetrain::test
