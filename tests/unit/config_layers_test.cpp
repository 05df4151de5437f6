// "extends": files read first, what wins, places of values, and what is refused.
#include "config_files/layers.h"

#include "config_files/load.h"
#include "config_test_support.h"

namespace drivetrain {
namespace {

class ConfigLayers : public ConfigFiles {
 protected:
  Value load(const std::string& text, const std::vector<std::string>& below = {}) {
    Problems problems;
    Value config = load_config(write("run.json", text), {}, problems, below);
    EXPECT_TRUE(problems.list().empty()) << problems.text();
    return config;
  }
  void expect_refused(const std::string& text, const std::vector<std::string>& parts) {
    const std::string said = config_error_of([&] { load(text); });
    for (const std::string& part : parts) EXPECT_HAS(said, part);
  }
};

TEST_F(ConfigLayers, what_is_said_later_wins) {
  write("base.json", R"({"seed": 1, "threads": 2, "list": [1, 2], "fp16": {"enabled": true, "loss_scale": 8}})");
  write("more.json", R"({"threads": 3})");
  const Value config =
      load(R"({"extends": ["base.json", "more.json"], "seed": 4, "list": [5], "fp16": {"loss_scale": 16}})");
  EXPECT_EQ(config, parse_json(R"({"seed": 4, "threads": 3, "list": [5], "fp16": {"enabled": true, "loss_scale": 16}})",
                               "wanted"));
}

TEST_F(ConfigLayers, options_of_one_type_come_together_and_those_of_two_do_not) {
  const auto optimizer = [&](const std::string& lower, const std::string& upper) {
    write("base.json", "{\"optimizer\": " + lower + "}");
    return load("{\"extends\": \"base.json\", \"optimizer\": " + upper + "}").find("optimizer")->to_json();
  };
  const std::string adam = R"({"type": "AdamW", "params": {"lr": 1, "eps": 2}})";
  EXPECT_EQ(optimizer(adam, R"({"params": {"lr": 3}})"), R"({"type":"AdamW","params":{"lr":3,"eps":2}})");
  EXPECT_EQ(optimizer(adam, R"({"lr": 3})"), R"({"type":"AdamW","params":{"lr":3,"eps":2}})");
  EXPECT_EQ(optimizer(R"({"lr": 3, "eps": 2})", R"({"type": "AdamW", "params": {"lr": 1}})"),
            R"({"params":{"lr":1,"eps":2},"type":"AdamW"})");
  EXPECT_EQ(optimizer(adam, R"({"type": "SGD", "params": {"lr": 3}})"), R"({"type":"SGD","params":{"lr":3}})");
  EXPECT_EQ(optimizer(adam, R"("SGD")"), R"("SGD")");
  EXPECT_EQ(optimizer(adam, "null"), "null");
}

// Of the values, for messages and for paths relative to the file.
TEST_F(ConfigLayers, values_keep_the_file_and_the_line_where_they_were_written) {
  const std::string base = write("base.json", "{\n  \"seed\": 1,\n  \"model\": {\"from\": \"x\"}\n}");
  const Value config = load("{\"extends\": \"base.json\",\n \"model\": {\"vocab_size\": 2}}");
  EXPECT_EQ(config.find("seed")->where.file, base);
  EXPECT_EQ(config.find("seed")->where.line, 2);
  EXPECT_EQ(config.find("model")->find("from")->where.file, base);
  EXPECT_EQ(config.find("model")->find("vocab_size")->where.file, (folder_ / "run.json").string());
}

TEST_F(ConfigLayers, files_extend_files_relative_to_themselves) {
  std::filesystem::create_directories(folder_ / "shared");
  write("shared/low.json", R"({"seed": 1, "threads": 1})");
  write("shared/base.json", R"({"extends": "low.json", "threads": 2})");
  EXPECT_EQ(load(R"({"extends": "shared/base.json", "eval_iters": 3})"),
            parse_json(R"({"seed": 1, "threads": 2, "eval_iters": 3})", "wanted"));
}

TEST_F(ConfigLayers, files_of_the_command_line_stand_below_all_others) {
  write("base.json", R"({"threads": 2})");
  const std::string below = write("ds.json", R"({"threads": 1, "seed": 5, "zero_optimization": {"stage": 2}})");
  EXPECT_EQ(load(R"({"extends": "base.json"})", {below}),
            parse_json(R"({"threads": 2, "seed": 5, "zero_optimization": {"stage": 2}})", "wanted"));
}

TEST_F(ConfigLayers, what_cannot_be_extended_is_refused) {
  expect_refused(R"({"extends": 3})", {"run.json:1:13", "a file or a list of files", "integer 3"});
  expect_refused(R"({"extends": ["base.json", ""]})", {"a file or a list of files"});
  expect_refused(R"({"extends": "nothing.json"})", {"run.json:1:13", "nothing.json", "relative to the file"});
  expect_refused(R"({"extends": "run.json"})", {"run.json:1:13", "extends this file itself"});
  write("a.json", R"({"extends": "run.json"})");
  expect_refused(R"({"extends": "a.json"})", {"a.json:1:13", "extends this file itself"});
  write("list.json", "[1]");
  expect_refused(R"({"extends": "list.json"})", {"list.json:1:1", "object of settings"});
  write("broken.json", "{\"seed\": }");
  expect_refused(R"({"extends": "broken.json"})", {"broken.json:1:"});
}

TEST_F(ConfigLayers, a_file_that_says_only_how_to_train_is_told_what_is_missing) {
  Problems problems;
  const Value half = parse_json(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}})", "ds.json");
  for (const char* part : {"\"extends\": \"ds.json\"", "--deepspeed ds.json", "model", "dataset", "train_steps"})
    EXPECT_HAS(missing_half(half, "ds.json"), part);
  EXPECT_EQ(missing_half(parse_json(R"({"model": "gpt", "seed": 1})", "a.json"), "a.json"), "");
}

}  // namespace
}  // namespace drivetrain
