// `drivetrain evaluate`: sets of a run and of the command line, the result file, refusals.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class Evaluate : public ProgramTest {
 protected:
  Evaluate() {
    write("q.jsonl", R"({"context": "a", "choices": ["two", "three"], "label": 0}
{"context": "b", "choices": ["five", "six"], "label": "B"}
)");
    write("text.txt", "Some text that nobody has seen before, long enough for two rows.");
  }
  // One run for all: its evaluation after the last step is what the command has to find again.
  void train_once() const {
    tiny_with(R"("vocab_size": 64)", R"("vocab_size": 257)");
    const std::string eval = R"({"sets": {"text": {"type": "perplexity", "params": {"files": ["text.txt"]}},
      "choices": {"type": "multiple_choice", "params": {"files": ["q.jsonl"]}, "enabled": false}}})";
    const Ran ran = train("--set 'eval=" + eval + "'");
    ASSERT_EQ(ran.code, 0) << ran.output;
  }
  Value evaluated(const std::string& words) const {
    const Ran ran = run("evaluate " + words + " --json");
    EXPECT_EQ(ran.code, 0) << ran.output;
    return parse_json(ran.output, "output");
  }
};

double figure(const Value& report, const std::string& set, const std::string& name) {
  return report.find("results")->find(set)->find(name)->as_double();
}

TEST_F(Evaluate, gives_the_figures_of_the_training_as_the_harness_writes_them) {
  train_once();
  const std::vector<Value> steps = read_metrics(path("run"));
  const double loss = steps.back().find("eval/text/loss")->as_double();
  const Value report = evaluated(path("run") + " text --output " + path("out.json"));
  EXPECT_NEAR(figure(report, "text", "loss,none"), loss, 1e-6);
  EXPECT_NEAR(figure(report, "text", "bits_per_byte,none"), steps.back().find("eval/text/bits_per_byte")->as_double(),
              1e-6);
  EXPECT_EQ(report.find("results")->find("text")->find("alias")->as_string(), "text");
  EXPECT_EQ(report.find("configs")->find("text")->find("type")->as_string(), "perplexity");
  EXPECT_TRUE(report.find("versions")->find("text"));
  EXPECT_EQ(report.find("config")->find("model_args")->as_string(), "pretrained=" + path("run"));
  EXPECT_EQ(read_json_file(path("out.json")).find("results")->to_json(), report.find("results")->to_json());

  const Value choices = evaluated(path("run") + " choices");  // switched off in the training
  const double acc = figure(choices, "choices", "acc,none");
  EXPECT_TRUE(acc == 0 || acc == 0.5 || acc == 1) << acc;
  EXPECT_TRUE(choices.find("results")->find("choices")->find("acc_stderr,none"));
  EXPECT_EQ(figure(evaluated(path("run/final") + " " + path("q.jsonl")), "q", "acc,none"), acc) << "a file, a folder";
  EXPECT_EQ(choices.find("rows")->find("choices")->as_int(), 4);
  EXPECT_EQ(evaluated(path("run") + " choices --limit 1").find("rows")->find("choices")->as_int(), 2);

  const Ran table = run("evaluate " + path("run") + " choices");
  EXPECT_EQ(table.code, 0);
  expect_says(table.output, {"choices (evaluation/multiple_choice)", "4 rows", "acc ", "+-", "acc_norm"});
  EXPECT_EQ(table.output.find("stderr"), std::string::npos);

  const std::string by_name = path("run") + " text --tokenizer ";
  EXPECT_NEAR(figure(evaluated(by_name + "bytes"), "text", "loss,none"), loss, 1e-6);
  expect_refused("evaluate " + by_name + "nobody", 2, {"nobody", "bytes"});

  expect_refused("evaluate " + path("run") + " chioces", 2, {"chioces", "did you mean", "choices", "text, choices"});
  expect_refused("evaluate " + path("run") + R"( '{"type": "perplexity", "params": {"file": "x"}}')", 2, {"\"files\""});
  expect_refused("evaluate " + path("run") + R"( '{"type": "nothing"}')", 3, {"evaluation/nothing", "not installed"});
  expect_refused("evaluate " + path("run") + R"( '{"type": ')", 2, {"1:"});
  write("bad.jsonl", "{\"context\": 1\n");
  expect_refused("evaluate " + path("run") + " " + path("bad.jsonl"), 8, {"bad.jsonl:1:"});
  expect_refused("evaluate " + path("nowhere") + " " + path("q.jsonl"), 2, {"holds no model"});
  expect_refused("evaluate " + path("run") + " choices --output " + folder(), 2, {"is a folder"});
  expect_refused("evaluate " + path("run") + " choices --output " + path("missing/out.json"), 2,
                 {"there is no folder", "missing", "make it"});
  expect_refused("evaluate " + path("run"), 2, {"SET"});
}

}  // namespace
}  // namespace drivetrain::test
