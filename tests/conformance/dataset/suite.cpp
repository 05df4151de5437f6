#include <drivetrain/testkit/dataset/suite.h>

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <drivetrain/dataset.h>

#include <drivetrain/testkit/kit/host.h>

namespace drivetrain::test {
namespace {

constexpr int64_t kGlobalRows = 6, kVocabulary = 256;

struct OpenedDataset {
  explicit OpenedDataset(const Subject& subject)
      : dataset(installed_plugins().make<Dataset>(Dataset::kKind, subject.name, subject.options, host.services)) {
    ModelFacts model;
    model.vocab_size = kVocabulary, model.max_position_embeddings = 1 << 20;
    RunFacts run;
    run.train_batch_size = kGlobalRows, run.micro_batch_size = 2, run.accumulation = 3, run.train_steps = 2;
    facts = dataset->open(run, model);
  }
  Batch read(int64_t step, int64_t first, int64_t rows) const {
    Batch batch;
    dataset->read({DataPart::train, step, first, rows}, batch);
    return batch;
  }
  Host host;
  std::shared_ptr<Dataset> dataset;
  DatasetFacts facts;
};

void expect_same_rows(const Batch& found, const Batch& wanted, int64_t first, const char* what) {
  const int64_t rows = found.tokens_BS.size(0);
  EXPECT_TRUE(at::equal(found.tokens_BS, wanted.tokens_BS.narrow(0, first, rows))) << what << ": tokens";
  EXPECT_TRUE(at::equal(found.labels_BS, wanted.labels_BS.narrow(0, first, rows))) << what << ": labels";
}

void check_batches_have_their_shape(const OpenedDataset& opened) {
  ASSERT_GT(opened.facts.seq_length, 0);
  const Batch batch = opened.read(1, 0, kGlobalRows);
  for (const at::Tensor& t : {batch.tokens_BS, batch.labels_BS}) {
    EXPECT_EQ(t.sizes(), at::IntArrayRef({kGlobalRows, opened.facts.seq_length}));
    EXPECT_EQ(t.scalar_type(), at::kLong);
    EXPECT_TRUE(t.device().is_cpu());
  }
  EXPECT_GE(batch.tokens_BS.min().item<int64_t>(), 0);
  EXPECT_LT(batch.tokens_BS.max().item<int64_t>(), kVocabulary);
  EXPECT_LT(batch.labels_BS.max().item<int64_t>(), kVocabulary);
}

// Ranks read other cuts of the batch.
void check_rows_do_not_depend_on_the_cut(const OpenedDataset& opened) {
  const Batch whole = opened.read(1, 0, kGlobalRows);
  for (int64_t first = 0; first < kGlobalRows; first += 2)
    expect_same_rows(opened.read(1, first, 2), whole, first, "two rows of six");
  expect_same_rows(opened.read(1, kGlobalRows - 1, 1), whole, kGlobalRows - 1, "the last row");
}

// A run that goes on at any step reads what it would have read.
void check_any_order(const OpenedDataset& opened) {
  const Batch first = opened.read(1, 0, kGlobalRows), second = opened.read(2, 0, kGlobalRows);
  expect_same_rows(opened.read(1, 0, kGlobalRows), first, 0, "step 1 after step 2");
  expect_same_rows(opened.read(2, 0, kGlobalRows), second, 0, "step 2 again");
}

void check_opened_twice(const Subject& subject) {
  const OpenedDataset one(subject), other(subject);
  expect_same_rows(other.read(2, 0, kGlobalRows), one.read(2, 0, kGlobalRows), 0, "opened again, without step 1");
}

}  // namespace

Suite dataset_suite() {
  const auto on_one = [](void (*check)(const OpenedDataset&)) {
    return [check](const Subject& subject) { check(OpenedDataset(subject)); };
  };
  return {
      {"batches_have_their_shape", on_one(check_batches_have_their_shape)},
      {"rows_do_not_depend_on_the_cut_of_the_batch", on_one(check_rows_do_not_depend_on_the_cut)},
      {"steps_may_be_read_in_any_order", on_one(check_any_order)},
      {"opening_again_gives_the_same_rows", check_opened_twice},
  };
}

}  // namespace drivetrain::test
