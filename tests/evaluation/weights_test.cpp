// Sets on the weights that a run has left: figures by hand from logits, and those of the training.
#include "evaluation/sets.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>

#include "generate/eval_set.h"
#include "generate/inference.h"

namespace drivetrain::test {
namespace {

std::shared_ptr<Log> quiet() { return make_console_log({.level = LogLevel::error}); }

struct SetsOfWeights : testing::Test {
  const TempFolder folder;
  const RunResult run = run_with_sets(folder, "run", eval_section(folder, R"("interval": 0)"));
  Inference model{run.folder, find_eval_set(run.folder, "same", built_plugins()).seed, built_plugins(), quiet()};

  Inference::Evaluated evaluated(const std::string& wanted, int64_t batch = 4) {
    const EvalSet set = find_eval_set(run.folder, wanted, built_plugins());
    return model.evaluate(set.name, choose_eval_set(set, built_plugins()), set.seq_length, batch);
  }
  // Of the text behind the prompt, in nats.
  double log_likelihood(const std::string& prompt, const std::string& rest) {
    std::vector<int64_t> ids;
    for (const char c : prompt + rest) ids.push_back(static_cast<unsigned char>(c));
    const at::Tensor logits = model.logits(at::tensor(ids, at::kLong).unsqueeze(0))[0].to(at::kDouble);
    const at::Tensor log_p = at::log_softmax(logits, 1);
    double sum = 0;
    for (size_t i = prompt.size(); i < ids.size(); ++i)
      sum += log_p[static_cast<int64_t>(i) - 1][ids[i]].item<double>();
    return sum;
  }
};

TEST_F(SetsOfWeights, figures_are_those_of_the_last_step_of_the_training) {
  for (const char* set : {"same", "choices", "text"}) {
    const Value figures = evaluated(set).figures;
    EXPECT_FALSE(figures.members().empty());
    for (const Value::Member& m : figures.members()) {
      const Value* trained = run.metrics.back().find(concat("eval/", set, "/", m.key));
      ASSERT_TRUE(trained) << m.key;
      EXPECT_NEAR(m.value.as_double(), trained->as_double(), 2e-6 * std::abs(trained->as_double()))
          << set << " " << m.key;
    }
  }
}

TEST_F(SetsOfWeights, multiple_choice_is_what_the_logits_say) {
  const std::vector<AskedByHand> questions = questions_by_hand();
  double right = 0, right_by_length = 0;
  for (const AskedByHand& one : questions) {
    size_t best = 0, best_by_length = 0;
    std::vector<double> plain, by_length;
    for (const std::string& choice : one.choices) {
      plain.push_back(log_likelihood(one.prompt, " " + choice));
      by_length.push_back(plain.back() / static_cast<double>(choice.size()));
    }
    for (size_t i = 1; i < plain.size(); ++i) {
      if (plain[i] > plain[best]) best = i;
      if (by_length[i] > by_length[best_by_length]) best_by_length = i;
    }
    right += static_cast<int64_t>(best) == one.right;
    right_by_length += static_cast<int64_t>(best_by_length) == one.right;
  }
  const double all = static_cast<double>(questions.size());
  const Value figures = evaluated("choices").figures;
  EXPECT_DOUBLE_EQ(figures.find("acc")->as_double(), right / all);
  EXPECT_DOUBLE_EQ(figures.find("acc_norm")->as_double(), right_by_length / all);
  EXPECT_DOUBLE_EQ(figures.find("acc_bytes")->as_double(), right_by_length / all) << "one byte per character here";
  EXPECT_NE(right, right_by_length) << "the test would not tell the two apart";
}

TEST_F(SetsOfWeights, perplexity_of_a_text_is_what_the_logits_say) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += concat("sentence ", i * i, " of a text.\n");
  double sum = 0;
  constexpr size_t S = 32;  // of the run: windows that do not overlap, the first behind byte 0
  const std::string whole = std::string(1, '\0') + text;
  for (size_t at = 0; at + 1 < whole.size(); at += S)
    sum += log_likelihood(whole.substr(at, 1), whole.substr(at + 1, S));
  const auto bytes = static_cast<double>(text.size());
  const Value figures = evaluated("text").figures;
  EXPECT_NEAR(figures.find("loss")->as_double(), -sum / bytes, 1e-5);
  EXPECT_NEAR(figures.find("bits_per_byte")->as_double(), -sum / bytes / std::log(2.0), 1e-5);
  EXPECT_NEAR(figures.find("byte_perplexity")->as_double(), std::exp(-sum / bytes), 1e-3);
}

TEST_F(SetsOfWeights, rows_that_are_computed_together_change_nothing_but_the_rounding) {
  const double one = evaluated("text", 1).figures.find("loss")->as_double();
  for (const int64_t batch : {2, 3, 64})
    EXPECT_NEAR(evaluated("text", batch).figures.find("loss")->as_double(), one, 1e-6);
}

TEST_F(SetsOfWeights, sets_may_be_entries_or_files) {
  const std::string questions = folder.path("questions.jsonl"), text = folder.path("held_out.txt");
  const double acc = evaluated("choices").figures.find("acc")->as_double();
  EXPECT_EQ(evaluated(questions).figures.find("acc")->as_double(), acc);
  EXPECT_EQ(evaluated(R"({"type": "multiple_choice", "params": {"files": [")" + questions + R"("]}})")
                .figures.find("acc")
                ->as_double(),
            acc);
  std::ofstream(folder.path("entry.json"))
      << R"({"mine": {"type": "multiple_choice", "params": {"files": ["questions.jsonl"]}}})";
  EXPECT_EQ(find_eval_set(run.folder, folder.path("entry.json"), built_plugins()).name, "mine");
  EXPECT_EQ(evaluated(folder.path("entry.json")).figures.find("acc")->as_double(), acc);
  EXPECT_NEAR(evaluated(text).figures.find("loss")->as_double(), evaluated("text").figures.find("loss")->as_double(),
              1e-9);
  const std::string unknown = error_of([&] { find_eval_set(run.folder, "choises", built_plugins()); });
  for (const char* part : {"choises", "\"choices\"", "same, choices, text"})
    EXPECT_NE(unknown.find(part), std::string::npos) << unknown;
}

// What a dataset keeps for validation follows from the seed: with another one it would be what was trained on.
TEST_F(SetsOfWeights, the_seed_is_that_of_the_run) {
  EXPECT_EQ(find_eval_set(run.folder, "same", built_plugins()).seed, 11);
  Inference other(run.folder, 12, built_plugins(), quiet());
  const EvalSet set = find_eval_set(run.folder, "same", built_plugins());
  const auto found = other.evaluate(set.name, choose_eval_set(set, built_plugins()), set.seq_length, 4);
  EXPECT_NE(found.figures.find("loss")->as_double(), evaluated("same").figures.find("loss")->as_double());
}

TEST_F(SetsOfWeights, a_limit_takes_the_first_of_a_set) {
  EvalSet set = find_eval_set(run.folder, "choices", built_plugins());
  set.set_option("limit", 5);
  const auto five = model.evaluate(set.name, choose_eval_set(set, built_plugins()), set.seq_length, 1);
  EXPECT_EQ(five.facts.rows, 15);
}

// Two documents fill less than a row of 30 positions, which is computed as one of 64.
TEST_F(SetsOfWeights, documents_that_share_a_row_have_the_losses_of_documents_alone) {
  const TempFolder texts;
  for (int i = 0; i < 60; ++i) std::ofstream(texts.path(concat(i, ".txt"))) << "document " << 100 + i * i;
  const std::string source =
      concat(R"({"type": "text", "params": {"seq_length": 30, "files": [")", texts.path(""), R"("]}})");
  const auto entry = [](const std::string& of, const std::string& more) {
    return concat(R"({"type": "perplexity", "params": {"part": "train", "source": )", of, more, "}}");
  };
  const auto alone = evaluated(entry(source, ""));
  const std::string packed = concat(R"({"type": "packed", "params": {"seq_length": 30, "source": )", source, "}}");
  const auto shared =
      evaluated(entry(packed, concat(R"(, "batch_size": 1, "iters": )", (alone.facts.rows + 1) / 2)), 3);
  ASSERT_GT(alone.facts.rows, 40);
  EXPECT_NEAR(shared.figures.find("loss")->as_double(), alone.figures.find("loss")->as_double(), 1e-5);
}

}  // namespace
}  // namespace drivetrain::test
