#include <drivetrain/testkit/dataset/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <set>

#include <drivetrain/dataset.h>

#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/keeper.h>
#include <drivetrain/testkit/kit/plugins.h>

namespace drivetrain::test {
namespace {

constexpr int64_t kGlobalRows = 6, kVocabulary = 256;

// As one of `ranks` ranks, the last, which share the rows of a step.
struct OpenedDataset {
  explicit OpenedDataset(const Subject& subject, int64_t ranks = 1) {
    host.services.rank = host.services.local_rank = ranks - 1;
    host.services.world_size = host.services.local_size = ranks;
    dataset = installed_plugins().make<Dataset>(Dataset::kKind, subject.name, subject.options, host.services);
    ModelFacts model;
    model.vocab_size = kVocabulary, model.max_position_embeddings = 1 << 20;
    RunFacts run;
    run.world_size = ranks, run.train_batch_size = kGlobalRows, run.train_steps = 2;
    run.micro_batch_size = ranks == 1 ? 2 : 1, run.accumulation = 3;
    facts = dataset->open(run, model);
  }
  Batch read(int64_t step, int64_t first, int64_t rows, DataPart part = DataPart::train) const {
    Batch batch;
    dataset->read({part, step, first, rows}, batch);
    return batch;
  }
  // Rows depend on what was read before. No case but the one of the state may ask for a row in another order.
  bool shows_state() const {
    Keeper keeper;
    dataset->state(keeper);
    return !keeper.empty();
  }
  Host host;
  std::shared_ptr<Dataset> dataset;
  DatasetFacts facts;
};

// Where documents begin in rows [first, first + rows), the end of the last among it.
std::vector<int64_t> begins_in(const Batch& batch, int64_t first, int64_t rows) {
  const int64_t S = batch.tokens_BS.size(1);
  std::vector<int64_t> begins;
  for (const int64_t begin : batch.cu_seqlens)
    if (begin >= first * S && begin <= (first + rows) * S) begins.push_back(begin - first * S);
  return begins;
}

void expect_same_rows(const Batch& found, const Batch& wanted, int64_t first, const char* what) {
  const int64_t rows = found.tokens_BS.size(0);
  EXPECT_EQ(found.cu_seqlens, begins_in(wanted, first, rows)) << what << ": documents";
  EXPECT_EQ(found.position_ids_BS.defined(), wanted.position_ids_BS.defined()) << what << ": positions";
  if (found.position_ids_BS.defined() && wanted.position_ids_BS.defined()) {
    EXPECT_TRUE(equal_tensors(found.position_ids_BS, wanted.position_ids_BS.narrow(0, first, rows)))
        << what << ": positions";
  }
  EXPECT_TRUE(equal_tensors(found.tokens_BS, wanted.tokens_BS.narrow(0, first, rows))) << what << ": tokens";
  EXPECT_TRUE(equal_tensors(found.labels_BS, wanted.labels_BS.narrow(0, first, rows))) << what << ": labels";
}

void check_batches_have_their_shape(const OpenedDataset& opened) {
  ASSERT_GT(opened.facts.seq_length, 0);
  const Batch batch = opened.read(1, 0, kGlobalRows);
  for (const at::Tensor& t : {batch.tokens_BS, batch.labels_BS}) {
    EXPECT_EQ(t.sizes(), at::IntArrayRef({kGlobalRows, opened.facts.seq_length}));
    EXPECT_EQ(t.scalar_type(), at::kLong);
    EXPECT_TRUE(t.device().is_cpu());
    EXPECT_TRUE(t.is_contiguous());
  }
  constexpr int64_t kIgnored = -100;
  const at::Tensor tokens = batch.tokens_BS, labels = batch.labels_BS;
  const at::Tensor counted = labels.masked_fill(labels.eq(kIgnored), 0);
  EXPECT_GE(tokens.min().item<int64_t>(), 0);
  EXPECT_LT(tokens.max().item<int64_t>(), kVocabulary);
  EXPECT_GE(counted.min().item<int64_t>(), 0) << "of labels but " << kIgnored;
  EXPECT_LT(counted.max().item<int64_t>(), kVocabulary) << "of labels";
}

// What is said of documents is right in itself, for all positions of the rows.
void check_documents_have_boundaries(const OpenedDataset& opened) {
  const Batch batch = opened.read(1, 0, kGlobalRows);
  const int64_t S = opened.facts.seq_length;
  EXPECT_TRUE(opened.facts.documents || batch.cu_seqlens.empty()) << "boundaries that open() said nothing of";
  if (!opened.facts.documents) left_out("several documents in a row", "DatasetFacts::documents is false");
  if (!opened.facts.validation) left_out("validation batches", "DatasetFacts::validation is false");
  if (!batch.cu_seqlens.empty()) {
    const std::set<int64_t> begins(batch.cu_seqlens.begin(), batch.cu_seqlens.end());
    EXPECT_EQ(std::vector<int64_t>(begins.begin(), begins.end()), batch.cu_seqlens) << "boundaries in ascending order";
    for (int64_t row = 0; row <= kGlobalRows; ++row) EXPECT_TRUE(begins.contains(row * S)) << "boundary at row " << row;
    EXPECT_EQ(*begins.rbegin(), kGlobalRows * S) << "boundary at the end";
  }
  if (!batch.position_ids_BS.defined()) return;
  EXPECT_EQ(batch.position_ids_BS.sizes(), batch.tokens_BS.sizes()) << "of position ids";
  EXPECT_GE(batch.position_ids_BS.min().item<int64_t>(), 0) << "of position ids";
  const at::Tensor beyond = batch.position_ids_BS - at::arange(S, at::TensorOptions(at::kLong));
  EXPECT_LE(beyond.max().item<int64_t>(), 0) << "of position ids beyond their column";
}

// Ranks read other cuts of the batch.
void check_rows_do_not_depend_on_the_cut(const Subject& subject) {
  const OpenedDataset one(subject);
  const bool anew = one.shows_state();
  const auto read = [&](int64_t first, int64_t rows) {
    return anew ? OpenedDataset(subject).read(1, first, rows) : one.read(1, first, rows);
  };
  const Batch whole = read(0, kGlobalRows);
  for (int64_t first = 0; first < kGlobalRows; first += 2)
    expect_same_rows(read(first, 2), whole, first, "two rows of six");
  expect_same_rows(read(kGlobalRows - 1, 1), whole, kGlobalRows - 1, "the last row");
}

Batch copy_of(const Batch& batch) {
  Batch copy;
  copy.tokens_BS = batch.tokens_BS.clone(), copy.labels_BS = batch.labels_BS.clone();
  copy.cu_seqlens = batch.cu_seqlens;
  if (batch.position_ids_BS.defined()) copy.position_ids_BS = batch.position_ids_BS.clone();
  return copy;
}

// A run that goes on at any step reads what it would have read, with evaluations in between or without.
void check_any_order(const OpenedDataset& opened) {
  if (opened.shows_state()) return;
  const Batch first = copy_of(opened.read(1, 0, kGlobalRows)), second = copy_of(opened.read(2, 0, kGlobalRows));
  if (opened.facts.validation) {
    const Batch validation = copy_of(opened.read(1, 0, 2, DataPart::validation));
    expect_same_rows(opened.read(1, 0, 2, DataPart::validation), validation, 0, "validation batch 1 again");
  }
  expect_same_rows(opened.read(1, 0, kGlobalRows), first, 0, "step 1 after step 2");
  expect_same_rows(opened.read(2, 0, kGlobalRows), second, 0, "step 2 again");
}

// It may keep them, as the loader does that reads ahead, and write to them.
void check_batches_belong_to_the_caller(const OpenedDataset& opened) {
  const Batch kept = opened.read(1, 0, 2), copy = copy_of(kept);
  opened.read(2, 0, 2);
  expect_same_rows(kept, copy, 0, "after further reads");
  kept.tokens_BS.fill_(0), kept.labels_BS.fill_(0);
  if (opened.shows_state()) return;
  expect_same_rows(opened.read(1, 0, 2), copy, 0, "after the caller wrote to the batch");
}

void check_every_rank_reads_the_same_rows(const Subject& subject) {
  const OpenedDataset one(subject), other(subject, 2);
  for (const int64_t step : {1, 2})
    expect_same_rows(other.read(step, 0, kGlobalRows), one.read(step, 0, kGlobalRows), 0, "as another rank");
}

// A step as a rank reads it, with the validation batch that follows.
std::vector<Batch> read_step(const OpenedDataset& opened, int64_t step) {
  std::vector<Batch> batches;
  for (int64_t first = 0; first < kGlobalRows; first += 2) batches.push_back(copy_of(opened.read(step, first, 2)));
  if (opened.facts.validation) batches.push_back(copy_of(opened.read(step, 0, 2, DataPart::validation)));
  return batches;
}

void check_dataset_survives_a_stop(const Subject& subject) {
  const OpenedDataset whole(subject), before(subject), after(subject);
  read_step(whole, 1), read_step(before, 1);
  Keeper keeper;
  before.dataset->state(keeper);
  keeper.loading = true;
  after.dataset->state(keeper);
  EXPECT_EQ(keeper.loaded, keeper.names) << "names that are loaded are those that were saved, in their order";
  const auto wanted = read_step(whole, 2), found = read_step(after, 2);
  for (size_t i = 0; i < wanted.size(); ++i) expect_same_rows(found[i], wanted[i], 0, "after a stop");
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
      {"documents_have_boundaries", on_one(check_documents_have_boundaries)},
      {"rows_do_not_depend_on_the_cut_of_the_batch", check_rows_do_not_depend_on_the_cut},
      {"steps_may_be_read_in_any_order", on_one(check_any_order)},
      {"batches_belong_to_the_caller", on_one(check_batches_belong_to_the_caller)},
      {"every_rank_reads_the_same_rows", check_every_rank_reads_the_same_rows},
      {"opening_again_gives_the_same_rows", check_opened_twice},
      {"state_survives_a_stop", check_dataset_survives_a_stop},
  };
}

}  // namespace drivetrain::test
