#include <drivetrain/testkit/evaluation/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>

#include <cmath>

#include <drivetrain/evaluation.h>

#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/host.h>

namespace drivetrain::test {
namespace {
namespace of_evaluation {  // other suites have cases of the same names

constexpr int64_t kVocabulary = 256, kPositions = 64, kIgnored = -100;

// As the last of `ranks` ranks; for rows of at most `length` positions.
struct OpenedEvaluation {
  explicit OpenedEvaluation(const Subject& subject, int64_t ranks = 1, int64_t length = 0) {
    host.services.rank = host.services.local_rank = ranks - 1;
    host.services.world_size = host.services.local_size = ranks;
    evaluation = installed_plugins().make<Evaluation>(Evaluation::kKind, subject.name, subject.options, host.services);
    ModelFacts model;
    model.vocab_size = kVocabulary, model.max_position_embeddings = kPositions;
    RunFacts run;
    run.world_size = ranks, run.train_batch_size = 4 * ranks, run.micro_batch_size = ranks, run.accumulation = 4;
    if (length > 0) run.seq_length = length, run.documents = false;
    facts = evaluation->open(run, model);
  }
  Batch read(int64_t first, int64_t rows) const {
    Batch batch;
    evaluation->read(first, rows, batch);
    return batch;
  }
  Batch all() const { return read(0, facts.rows); }
  // Of all rows, as a model would give them in which no two labels are equally likely.
  std::vector<RowScore> scores() const {
    const at::Tensor counted = all().labels_BS.ne(kIgnored).sum(1);
    std::vector<RowScore> list;
    for (int64_t row = 0; row < facts.rows; ++row) {
      const auto tokens = counted[row].item<int64_t>();
      list.push_back({static_cast<double>(tokens) * (1 + 0.37 * static_cast<double>(row * row % 11)), tokens});
    }
    return list;
  }
  Value figures() const { return evaluation->result(scores()); }

  Host host;
  std::shared_ptr<Evaluation> evaluation;
  EvaluationFacts facts;
};

void expect_same_rows(const Batch& found, const Batch& wanted, int64_t first, const char* what) {
  const int64_t rows = found.tokens_BS.size(0);
  EXPECT_TRUE(equal_tensors(found.tokens_BS, wanted.tokens_BS.narrow(0, first, rows))) << what << ": tokens";
  EXPECT_TRUE(equal_tensors(found.labels_BS, wanted.labels_BS.narrow(0, first, rows))) << what << ": labels";
}

Batch copy_of(const Batch& batch) {
  Batch copy;
  copy.tokens_BS = batch.tokens_BS.clone(), copy.labels_BS = batch.labels_BS.clone();
  return copy;
}

void check_rows_have_their_shape(const OpenedEvaluation& opened) {
  ASSERT_GE(opened.facts.rows, 1);
  ASSERT_GE(opened.facts.seq_length, 1);
  ASSERT_LE(opened.facts.seq_length, kPositions);
  const Batch batch = opened.all();
  for (const at::Tensor& t : {batch.tokens_BS, batch.labels_BS}) {
    ASSERT_EQ(t.sizes(), at::IntArrayRef({opened.facts.rows, opened.facts.seq_length}));
    ASSERT_EQ(t.scalar_type(), at::kLong);
    EXPECT_TRUE(t.device().is_cpu());
    EXPECT_TRUE(t.is_contiguous());
  }
  const at::Tensor tokens = batch.tokens_BS, labels = batch.labels_BS;
  const at::Tensor counted = labels.masked_fill(labels.eq(kIgnored), 0);
  EXPECT_GE(tokens.min().item<int64_t>(), 0);
  EXPECT_LT(tokens.max().item<int64_t>(), kVocabulary);
  EXPECT_GE(counted.min().item<int64_t>(), 0) << "of labels but " << kIgnored;
  EXPECT_LT(counted.max().item<int64_t>(), kVocabulary) << "of labels";
  EXPECT_GT(labels.ne(kIgnored).sum().item<int64_t>(), 0) << "labels that count";
}

// Label i is what comes after token i, wherever both are known.
void check_labels_are_what_comes_next(const OpenedEvaluation& opened) {
  const Batch batch = opened.all();
  const int64_t S = opened.facts.seq_length;
  if (S < 2) return;
  const at::Tensor labels = batch.labels_BS.narrow(1, 0, S - 1), next = batch.tokens_BS.narrow(1, 1, S - 1);
  const at::Tensor follows = batch.labels_BS.narrow(1, 1, S - 1).ne(kIgnored);  // the row goes on
  const at::Tensor wrong = labels.ne(kIgnored).logical_and(follows).logical_and(labels.ne(next));
  EXPECT_EQ(wrong.sum().item<int64_t>(), 0) << "labels that are not the next token";
}

void check_rows_do_not_depend_on_the_cut(const OpenedEvaluation& opened) {
  const Batch whole = copy_of(opened.all());
  for (int64_t row = opened.facts.rows; row-- > 0;) expect_same_rows(opened.read(row, 1), whole, row, "a single row");
  if (opened.facts.rows > 2) expect_same_rows(opened.read(1, 2), whole, 1, "two rows from the second");
  expect_same_rows(opened.all(), whole, 0, "all rows again");
}

// It may write to them.
void check_batches_belong_to_the_caller(const OpenedEvaluation& opened) {
  const Batch kept = opened.read(0, 1), copy = copy_of(kept);
  opened.read(opened.facts.rows - 1, 1);
  expect_same_rows(kept, copy, 0, "after further reads");
  kept.tokens_BS.fill_(1), kept.labels_BS.fill_(1);
  expect_same_rows(opened.read(0, 1), copy, 0, "after the caller wrote to the batch");
}

void check_every_rank_has_the_same(const Subject& subject) {
  const OpenedEvaluation one(subject), other(subject, 2);
  EXPECT_EQ(other.facts.by_row, one.facts.by_row);
  ASSERT_EQ(other.facts.rows, one.facts.rows) << "as another rank";
  ASSERT_EQ(other.facts.seq_length, one.facts.seq_length) << "as another rank";
  expect_same_rows(other.all(), one.all(), 0, "as another rank");
  EXPECT_EQ(other.figures().to_json(), one.figures().to_json()) << "as another rank";
}

void check_length_of_the_run_is_kept(const Subject& subject) {
  const OpenedEvaluation cut(subject, 1, kPositions / 2);
  EXPECT_LE(cut.facts.seq_length, kPositions / 2) << "positions of a row, in a run whose rows are shorter";
  EXPECT_EQ(cut.all().tokens_BS.size(1), cut.facts.seq_length);
}

void check_figures_are_numbers(const OpenedEvaluation& opened) {
  const Value figures = opened.figures();
  ASSERT_TRUE(figures.is_object());
  EXPECT_FALSE(figures.members().empty());
  for (const Value::Member& m : figures.members()) {
    EXPECT_EQ(m.key.find('/'), std::string::npos) << m.key << " has a slash";
    ASSERT_TRUE(m.value.is_number()) << m.key << " is no number";
    EXPECT_TRUE(std::isfinite(m.value.as_double())) << m.key << " is not finite";
    constexpr std::string_view error = "_stderr";
    if (!m.key.ends_with(error)) continue;
    EXPECT_TRUE(figures.find(m.key.substr(0, m.key.size() - error.size()))) << m.key << " has no figure";
  }
}

void check_figures_follow_from_the_scores(const OpenedEvaluation& opened) {
  const Value first = opened.figures();
  std::vector<RowScore> others = opened.scores();
  for (RowScore& score : others) score.loss *= 1.5;
  const Value second = opened.evaluation->result(others);
  EXPECT_EQ(first.members().size(), second.members().size()) << "figures of other scores";
  EXPECT_EQ(opened.figures().to_json(), first.to_json()) << "figures of the same scores again";
}

// A name that its options take.
void check_files_that_it_takes(const Subject& subject) {
  const Host host;
  const auto evaluation =
      installed_plugins().make<Evaluation>(Evaluation::kKind, subject.name, subject.options, host.services);
  const OptionTable& table = installed_plugins().options(Evaluation::kKind, subject.name);
  bool any = false;
  for (const char* file : {"a.txt", "a.jsonl", "a.json", "a"}) {
    const Value options = evaluation->options_for(file);
    if (options.is_null()) continue;
    any = true;
    Problems problems;
    table.parse(options, subject.text(), "params", problems);
    EXPECT_EQ(problems.text(), "") << "options for " << file;
  }
  if (!any) left_out("files that a user names", "Evaluation::options_for takes none");
}

Suite cases() {
  const auto on_one = [](void (*check)(const OpenedEvaluation&)) {
    return [check](const Subject& subject) { check(OpenedEvaluation(subject)); };
  };
  return {
      {"rows_have_their_shape", on_one(check_rows_have_their_shape)},
      {"labels_are_what_comes_next", on_one(check_labels_are_what_comes_next)},
      {"rows_do_not_depend_on_the_cut", on_one(check_rows_do_not_depend_on_the_cut)},
      {"batches_belong_to_the_caller", on_one(check_batches_belong_to_the_caller)},
      {"every_rank_has_the_same", check_every_rank_has_the_same},
      {"the_length_of_the_run_is_kept", check_length_of_the_run_is_kept},
      {"figures_are_numbers", on_one(check_figures_are_numbers)},
      {"figures_follow_from_the_scores", on_one(check_figures_follow_from_the_scores)},
      {"files_are_taken_with_options", check_files_that_it_takes},
  };
}

}  // namespace of_evaluation
}  // namespace

Suite evaluation_suite() { return of_evaluation::cases(); }

}  // namespace drivetrain::test
