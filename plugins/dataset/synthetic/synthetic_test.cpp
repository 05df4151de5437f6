#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include <drivetrain/dataset.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

std::unique_ptr<Dataset> opened(const std::string& json, int64_t vocab = 50, uint64_t seed = 1) {
  Host host;
  host.services.seed = seed;
  auto dataset = make_plugin<Dataset>(host, "synthetic", json);
  ModelFacts model;
  model.vocab_size = vocab;
  dataset->open({}, model);
  return dataset;
}

Batch rows(Dataset& dataset, int64_t step, int64_t first, int64_t count, DataPart part = DataPart::train) {
  Batch batch;
  dataset.read({part, step, first, count}, batch);
  return batch;
}

constexpr const char* kOptions = R"({"seq_length": 200})";

TEST(Synthetic, a_row_is_the_same_in_every_cut_of_the_batch) {
  const auto dataset = opened(kOptions);
  const Batch whole = rows(*dataset, 3, 0, 6), part = rows(*dataset, 3, 2, 3);
  EXPECT_TRUE(at::equal(part.tokens_BS, whole.tokens_BS.narrow(0, 2, 3)));
  EXPECT_TRUE(at::equal(part.labels_BS, whole.labels_BS.narrow(0, 2, 3)));
}

TEST(Synthetic, labels_are_the_next_tokens) {
  const auto dataset = opened(kOptions);
  const Batch b = rows(*dataset, 1, 0, 2);
  EXPECT_TRUE(at::equal(b.labels_BS.narrow(1, 0, 199), b.tokens_BS.narrow(1, 1, 199)));
}

TEST(Synthetic, steps_rows_parts_and_seeds_differ) {
  const auto dataset = opened(kOptions);
  const at::Tensor one = rows(*dataset, 1, 0, 1).tokens_BS;
  EXPECT_FALSE(at::equal(one, rows(*dataset, 2, 0, 1).tokens_BS));
  EXPECT_FALSE(at::equal(one, rows(*dataset, 1, 1, 1).tokens_BS));
  EXPECT_FALSE(at::equal(one, rows(*dataset, 1, 0, 1, DataPart::validation).tokens_BS));
  EXPECT_FALSE(at::equal(one, rows(*opened(kOptions, 50, 2), 1, 0, 1).tokens_BS));
}

TEST(Synthetic, each_token_is_followed_by_at_most_four_others_as_often_as_promised) {
  const auto dataset = opened(kOptions);
  std::map<int64_t, std::map<int64_t, double>> after;
  for (int64_t step = 1; step <= 200; ++step) {
    const Batch b = rows(*dataset, step, 0, 4);
    for (int64_t i = 0; i < b.tokens_BS.numel(); ++i)
      after[b.tokens_BS.view({-1}).const_data_ptr<int64_t>()[i]][b.labels_BS.const_data_ptr<int64_t>()[i]] += 1;
  }
  double entropy = 0, total = 0;
  for (const auto& [token, next] : after) {
    EXPECT_LE(next.size(), 4u) << token;
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 50);
    double sum = 0;
    for (const auto& [label, count] : next) sum += count;
    for (const auto& [label, count] : next) entropy -= count * std::log(count / sum);
    total += sum;
  }
  EXPECT_LT(entropy / total, 1.2131);
  EXPECT_GT(entropy / total, 0.9);
}

TEST(Synthetic, a_vocabulary_beyond_the_model_is_refused) {
  EXPECT_EQ(error_of([] { opened(R"({"seq_length": 8, "vocab": 51})"); }),
            "dataset/synthetic: vocab 51 is larger than the model's vocab_size 50. Leave vocab out to use the model's");
}

}  // namespace
}  // namespace drivetrain::test
