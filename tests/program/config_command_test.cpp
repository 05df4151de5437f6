// `drivetrain config check|explain|diff`, and the first contact of a DeepSpeed file with `launch`.
#include "program_fixture.h"

namespace drivetrain::test {
namespace {

class ConfigCommand : public ProgramTest {
 protected:
  Value json(const std::string& arguments) const {
    const Ran ran = run("config " + arguments + " --json 2>errors");
    return parse_json(ran.output, "the output of config " + arguments);
  }
  std::string text_of(const Value& v, const char* key) const { return v.find(key) ? v.find(key)->as_string() : ""; }
};

TEST_F(ConfigCommand, check_judges_many_files_and_returns_the_code_of_the_first_that_is_refused) {
  write("bad.json", "{\"extends\": \"tiny.json\",\n \"optimiser\": {}, \"seed\": -1}");
  write("missing.json", "{\"extends\": \"tiny.json\", \"attention\": \"nobody\"}");
  write("noted.json", "{\"extends\": \"tiny.json\", \"wall_clock_breakdown\": true}");
  const Value reports = json("check tiny.json missing.json bad.json noted.json");
  ASSERT_EQ(reports.items().size(), 4u);
  EXPECT_EQ(run("config check tiny.json missing.json bad.json").code, 3);
  EXPECT_EQ(run("config check tiny.json bad.json missing.json").code, 2);
  EXPECT_EQ(run("config check tiny.json noted.json").code, 0);
  EXPECT_EQ(text_of(reports.items()[0], "verdict"), "accepted");
  EXPECT_EQ(reports.items()[1].find("code")->as_int(), 3);
  const Value& bad = reports.items()[2];
  ASSERT_EQ(bad.find("problems")->items().size(), 2u);
  for (const Value& problem : bad.find("problems")->items()) {
    EXPECT_EQ(text_of(problem, "file"), "bad.json");
    EXPECT_EQ(problem.find("line")->as_int(), 2);
  }
  EXPECT_NE(reports.items()[3].find("notes")->to_json().find("wall_clock_breakdown"), std::string::npos);
}

TEST_F(ConfigCommand, check_shows_the_notes_and_values_that_a_run_begins_with) {
  write("ds.json",
        R"({"train_batch_size": 4, "gradient_clipping": "auto", "fp16": {"loss_scale": 0}, "dump_state": true})");
  const std::string set = " --deepspeed ds.json";
  const Ran checked = run("config check tiny.json" + set), trained = train("--deepspeed ds.json --set train_steps=1");
  ASSERT_EQ(trained.code, 0) << trained.output;
  for (const char* part : {"fp16 is off", "dump_state has no effect here", "gradient_clipping", "max_grad_norm"}) {
    EXPECT_NE(checked.output.find(part), std::string::npos) << part << "\n" << checked.output;
    EXPECT_NE(trained.output.find(part), std::string::npos) << part << "\n" << trained.output;
  }
  const Value settled = *read_json_file(path("run/resolved.json")).find("_settled");
  ASSERT_EQ(settled.items().size(), 1u);
  EXPECT_EQ(text_of(settled.items()[0], "key"), "gradient_clipping");
}

TEST_F(ConfigCommand, explain_says_what_a_key_means_and_where_its_value_comes_from) {
  const Value lr = json("explain optimizer.lr tiny.json");
  ASSERT_EQ(lr.items().size(), 1u);  // of the optimizer that the run uses
  EXPECT_EQ(text_of(lr.items()[0], "owner"), "optimizer/adamw");
  EXPECT_EQ(text_of(lr.items()[0], "in_deepspeed"), "1e-3");
  EXPECT_EQ(text_of(*lr.items()[0].find("in_config"), "value"), "0.001");
  EXPECT_EQ(text_of(*lr.items()[0].find("in_config"), "from"), "tiny.json:8:51");
  const Value steps = json("explain gradient_clipping tiny.json");
  EXPECT_NE(text_of(*steps.items()[0].find("in_config"), "from").find("no such key"), std::string::npos);
  const Ran idle = run("config explain wall_clock_breakdown");
  expect_says(idle.output, {"without effect here", "in DeepSpeed"});
  const Ran unknown = run("config explain gradient_cliping");
  EXPECT_EQ(unknown.code, 2);
  expect_says(unknown.output, {"did you mean gradient_clipping?"});
}

TEST_F(ConfigCommand, diff_compares_meaning_and_not_text) {
  write("same.json", R"({"extends": "tiny.json", "optimizer": {"type": "adamw", "params": {"lr": 0.001}}, "_note": 1,
                        "gradient_clipping": 1, "output_dir": "elsewhere"})");
  write("other.json", R"({"extends": "tiny.json", "optimizer": {"lr": 0.002}})");
  const Ran same = run("config diff tiny.json same.json"), other = run("config diff tiny.json other.json");
  EXPECT_EQ(same.code, 0) << same.output;
  EXPECT_EQ(other.code, 1);
  expect_says(other.output, {"optimizer.params.lr", "0.001 -> 0.002"});
  EXPECT_EQ(std::count(other.output.begin(), other.output.end(), '\n'), 1);
  EXPECT_EQ(run("config diff tiny.json missing.json").code, 2);
}

TEST_F(ConfigCommand, a_DeepSpeed_file_alone_gets_one_paragraph_with_what_it_lacks) {
  write("ds.json", R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}})");
  for (const char* command : {"launch ds.json", "train ds.json", "config check ds.json"}) {
    const Ran ran = run(command);
    EXPECT_EQ(ran.code, 2);
    expect_says(ran.output, {"says how to train and not what", "\"extends\": \"ds.json\"", "--deepspeed ds.json"});
    EXPECT_EQ(ran.output.find("hidden_size"), std::string::npos) << ran.output;
  }
}

}  // namespace
}  // namespace drivetrain::test
