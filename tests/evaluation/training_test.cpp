// Named sets during the training: when they are due, that their figures are those of the weights of that step whatever
// the topology, and what uses them.
#include "evaluation/sets.h"

#include <filesystem>

namespace drivetrain::test {
namespace {

struct SetsInTraining : testing::Test {
  const TempFolder folder;
  const std::string sets = eval_section(folder);
  // A kernel adds up in another order where rows are cut in another way.
  static void expect_near(const Value& found, const Value& wanted, double distance) {
    ASSERT_EQ(found.members().size(), wanted.members().size());
    for (const Value::Member& m : wanted.members()) {
      ASSERT_TRUE(found.find(m.key)) << m.key;
      EXPECT_NEAR(found.find(m.key)->as_double(), m.value.as_double(), distance * std::abs(m.value.as_double()))
          << m.key;
    }
  }
};

TEST_F(SetsInTraining, perplexity_of_the_validation_part_is_the_validation_loss) {
  const RunResult run = run_with_sets(folder, "run", sets);
  int compared = 0;
  for (const Value& step : run.metrics) {
    const Value *valid = step.find("valid_loss"), *same = step.find("eval/same/loss");
    ASSERT_EQ(valid != nullptr, same != nullptr);
    if (!valid) continue;
    ++compared;
    EXPECT_NEAR(same->as_double(), valid->as_double(), 1e-9 * valid->as_double());
    EXPECT_NEAR(step.find("eval/same/perplexity")->as_double(), std::exp(valid->as_double()), 1e-6);
    EXPECT_NEAR(step.find("eval/same/bits_per_byte")->as_double(), valid->as_double() / std::log(2.0), 1e-8);
  }
  EXPECT_EQ(compared, 3);
}

TEST_F(SetsInTraining, ranks_in_any_topology_have_the_figures_of_one) {
  const RunResult alone = run_with_sets(folder, "alone", sets);
  ASSERT_EQ(set_figures(alone.metrics.at(4)).members().size(), 4u + 6 + 4);
  const std::pair<const char*, int> topologies[] = {
      {R"("zero_optimization": {"stage": 1})", 2},
      {R"("zero_optimization": {"stage": 3})", 2},
      {R"("tensor_parallel": {"type": "megatron", "params": {"size": 2}})", 2},
      {R"("tensor_parallel": {"type": "megatron", "params": {"size": 2, "sequence_parallel": true}})", 2},
      {R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})", 2},
      {R"("pipeline": {"type": "interleaved", "params": {"stages": 2, "chunks": 2}})", 2},
      {R"("context_parallel": {"type": "ring", "params": {"size": 2}})", 2},
      {R"("context_parallel": {"type": "ulysses", "params": {"size": 2}})", 2},
      {R"("pipeline": {"type": "gpipe", "params": {"stages": 2}}, "zero_optimization": {"stage": 1})", 4},
      {R"("activation_checkpointing": {"type": "full"}, "fused_block": {"enabled": false})", 1},
  };
  for (int n = 0; const auto& [section, ranks] : topologies) {
    SCOPED_TRACE(section);
    const RunResult found = run_with_sets(folder, concat("run", ++n), sets + ", " + section, ranks);
    ASSERT_EQ(found.metrics.size(), alone.metrics.size());
    for (size_t step = 0; step < found.metrics.size(); ++step)
      expect_near(set_figures(found.metrics[step]), set_figures(alone.metrics[step]), 1e-5);
  }
}

// Weights that do not move are the same to the bit in both runs; so are the figures, as blocks and their order are.
TEST_F(SetsInTraining, figures_do_not_depend_on_the_number_of_ranks_to_the_bit) {
  const std::string still = R"(, "optimizer": {"type": "AdamW", "params": {"lr": 0, "weight_decay": 0}})";
  const RunResult one = run_with_sets(folder, "one", sets + still, 1),
                  two = run_with_sets(folder, "two", sets + still, 2);
  const RunResult four = run_with_sets(folder, "four", sets + still + R"(, "zero_optimization": {"stage": 3})", 4);
  const std::string wanted = set_figures(one.metrics.back()).to_json();
  EXPECT_EQ(set_figures(two.metrics.back()).to_json(), wanted);
  EXPECT_EQ(set_figures(four.metrics.back()).to_json(), wanted);
}

TEST_F(SetsInTraining, training_is_the_same_with_sets_and_without) {
  const RunResult with = run_with_sets(folder, "with", sets), without = run_with_sets(folder, "without", "");
  for (size_t i = 0; i < 5; ++i)
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_EQ(with.metrics.at(i).find(key)->as_double(), without.metrics.at(i).find(key)->as_double()) << key;
}

std::string steps_of(const RunResult& run, const std::string& figure) {
  std::string steps;
  for (const Value& step : run.metrics)
    if (step.find(figure)) steps += concat(step.find("step")->as_int(), " ");
  return steps;
}

TEST_F(SetsInTraining, each_set_has_its_steps) {
  const std::string text = write_text(folder);
  const auto set = [&](const char* more) {
    return concat(R"({"type": "perplexity", "params": {"files": [")", text, R"("]})", more, "}");
  };
  const std::string named =
      concat(R"("sets": {"usual": )", set(""), R"(, "own": )", set(R"(, "interval": 3)"), R"(, "last": )",
             set(R"(, "interval": 0)"), R"(, "off": )", set(R"(, "enabled": false)"), "}");
  const RunResult run = run_with_sets(folder, "run", R"("eval": {"interval": 4, )" + named + "}");
  EXPECT_EQ(steps_of(run, "eval/usual/loss"), "4 5 ");
  EXPECT_EQ(steps_of(run, "eval/own/loss"), "3 5 ");
  EXPECT_EQ(steps_of(run, "eval/last/loss"), "5 ");
  EXPECT_EQ(steps_of(run, "eval/off/loss"), "");
  EXPECT_EQ(steps_of(run_with_sets(folder, "usual", "\"eval\": {" + named + "}"), "eval/usual/loss"), "2 4 5 ")
      << "eval_interval where the section has none";
  EXPECT_EQ(steps_of(run_with_sets(folder, "none", R"("eval": {"enabled": false, )" + named + "}"), "eval/usual/loss"),
            "");
}

TEST_F(SetsInTraining, resolved_json_has_the_sets_in_full_and_repeats_the_run) {
  const RunResult run = run_with_sets(folder, "run", sets);
  Value again = read_json_file(folder.path("run/resolved.json"));
  const Value* choices = again.find("eval")->find("sets")->find("choices");
  EXPECT_EQ(choices->find("params")->find("delimiter")->as_string(), " ");
  EXPECT_EQ(again.find("eval")->find("sets")->find("same")->find("params")->find("source")->find("type")->as_string(),
            "synthetic");
  again.set("output_dir", folder.path("again"));
  const RunResult second = run_threads(again, 1);
  EXPECT_EQ(set_figures(second.metrics.back()).to_json(), set_figures(run.metrics.back()).to_json());
}

TEST_F(SetsInTraining, a_run_that_goes_on_has_the_figures_of_one_that_was_not_stopped) {
  const std::string saves =
      sets + R"(, "checkpoint_policy": {"type": "every", "params": {"steps": 3, "at_end": false}})";
  const RunResult whole = run_with_sets(folder, "whole", saves);
  const RunResult resumed = run_with_sets(folder, "whole", saves);  // from step 3
  ASSERT_EQ(resumed.metrics.back().find("step")->as_int(), 5);
  EXPECT_EQ(set_figures(resumed.metrics.back()).to_json(), set_figures(whole.metrics.back()).to_json());
}

TEST_F(SetsInTraining, the_best_checkpoint_may_be_that_of_a_set) {
  const std::string best =
      R"(, "checkpoint_policy": {"type": "best", "params": {"metric": "eval/text/bits_per_byte"}})";
  const RunResult run = run_with_sets(folder, "run", sets + best, 2);
  double least = 1e9;
  int64_t step_of_least = 0;
  for (const Value& step : run.metrics)
    if (const Value* figure = step.find("eval/text/bits_per_byte"); figure && figure->as_double() < least)
      least = figure->as_double(), step_of_least = step.find("step")->as_int();
  EXPECT_TRUE(std::filesystem::exists(concat(folder.path("run/checkpoints/step-0000000"), step_of_least)));
}

// Of the configuration, before anything is computed: which set, and what is wrong.
TEST_F(SetsInTraining, sets_that_cannot_be_evaluated_are_refused_by_name) {
  const auto refusal = [&](const std::string& eval) {
    return error_of([&] { run_with_sets(folder, "refused", "\"eval\": " + eval); });
  };
  const auto expect = [&](const std::string& eval, const std::vector<const char*>& parts) {
    const std::string text = refusal(eval);
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << eval << "\n" << text;
  };
  expect(R"({"sets": {"a": {"type": "perplexity", "params": {"file": "x"}}}})", {"eval.sets.a.params", "\"files\""});
  expect(R"({"sets": {"a": {"type": "perplexity"}}})", {"eval.sets.a", "neither", "\"source\"", "\"files\""});
  expect(R"({"sets": {"a": {"type": "perplexity", "params": {"files": ["/no/such.txt"]}}}})",
         {"eval.sets.a", "/no/such.txt"});
  expect(R"({"sets": {"a": {"type": "perplexityy"}}})", {"evaluation/perplexityy", "is not installed"});
  expect(R"({"sets": {"a": {"params": {}}}})", {"eval.sets.a", "\"type\""});
  expect(R"({"sets": {"a/b": "perplexity"}})", {"eval.sets.a/b", "letters"});
  expect(R"({"sets": {"a": {"type": "perplexity", "interval": -1}}})", {"eval.sets.a.interval", "-1"});
  expect(R"({"sets": ["perplexity"]})", {"eval.sets", "named sets"});
  expect(R"({"intervall": 2})", {"eval.intervall", "\"interval\""});
  expect(R"({"sets": {"a": {"type": "perplexity", "params": {"source": {"type": "synthetic", "params":
            {"seq_length": 48}}, "iters": 1}}}})",
         {"eval.sets.a", "48", "32", "seq_length"});
  expect(R"({"sets": {"a": {"type": "perplexity", "params": {"source": {"type": "synthetic", "params":
            {"seq_length": 32}}}}}})",
         {"eval.sets.a", "set iters"});
  expect(R"({"sets": {"a": {"type": "perplexity", "params": {"source": "nothing", "iters": 1}}}})",
         {"eval.sets.a", "dataset/nothing"});
  EXPECT_FALSE(std::filesystem::exists(folder.path("refused")));
}

}  // namespace
}  // namespace drivetrain::test
