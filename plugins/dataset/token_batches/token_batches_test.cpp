#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <drivetrain/dataset.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"
#include "support/write_safetensors.h"

namespace drivetrain::test {
namespace {

class TokenBatches : public ::testing::Test {
 protected:
  using Tensors = std::map<std::string, at::Tensor>;

  std::string write(const Tensors& tensors) {
    std::vector<SafetensorsItem> items;
    for (const auto& [name, t] : tensors) items.push_back({name, t.scalar_type(), t.sizes().vec()});
    write_safetensors(folder_.path("b.safetensors"), items, {},
                      [&](const std::string& name) { return tensors.at(name); });
    return folder_.path("b.safetensors");
  }
  std::unique_ptr<Dataset> open(const Tensors& tensors, const std::string& more = "", int64_t batch = 6) {
    const Host host;
    auto dataset = make_plugin<Dataset>(host, "token_batches", "{\"file\": \"" + write(tensors) + "\"" + more + "}");
    RunFacts run;
    run.train_batch_size = batch;
    facts_ = dataset->open(run, {});
    return dataset;
  }
  void expect_refused(const Tensors& tensors, const std::string& part, const std::string& more = "",
                      int64_t batch = 6) {
    const std::string text = error_of([&] { open(tensors, more, batch); });
    EXPECT_NE(text.find(part), std::string::npos) << "found: " << text << "\nwanted: " << part;
    EXPECT_NE(text.find("b.safetensors"), std::string::npos) << text;
  }

  TempFolder folder_;
  DatasetFacts facts_;
};

at::Tensor longs(std::vector<int64_t> shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return at::arange(n, at::TensorOptions(at::kLong)).view(shape);
}

Batch rows(Dataset& dataset, int64_t step, int64_t first, int64_t count) {
  Batch batch;
  dataset.read({DataPart::train, step, first, count}, batch);
  return batch;
}

// 4 steps of 2 micro-batches of 3 rows of 5 + 1 tokens.
const at::Tensor kTokens = longs({4, 2, 3, 6});

TEST_F(TokenBatches, rows_come_in_file_order_through_the_micro_batches) {
  const auto dataset = open({{"tokens", kTokens}});
  EXPECT_EQ(facts_.seq_length, 5);
  EXPECT_EQ(facts_.steps, 4);
  const at::Tensor step = kTokens[2].reshape({6, 6});
  const Batch b = rows(*dataset, 3, 2, 3);
  EXPECT_TRUE(at::equal(b.tokens_BS, step.narrow(0, 2, 3).narrow(1, 0, 5)));
  EXPECT_TRUE(at::equal(b.labels_BS, step.narrow(0, 2, 3).narrow(1, 1, 5)));
  EXPECT_TRUE(b.tokens_BS.is_contiguous() && b.labels_BS.is_contiguous());
}

TEST_F(TokenBatches, labels_of_the_file_win_over_shifted_tokens) {
  const at::Tensor labels = longs({4, 2, 3, 5}).neg();
  const auto dataset = open({{"tokens", kTokens}, {"labels", labels}});
  EXPECT_TRUE(at::equal(rows(*dataset, 4, 1, 5).labels_BS, labels[3].reshape({6, 5}).narrow(0, 1, 5)));
}

TEST_F(TokenBatches, a_file_without_any_label_that_counts_is_refused) {
  at::Tensor labels = at::zeros({4, 2, 3, 5}, at::TensorOptions(at::kLong)).sub(100);
  expect_refused({{"tokens", kTokens}, {"labels", labels}}, "no label of its 4 steps counts: every one is -100");
  labels.mutable_data_ptr<int64_t>()[labels.numel() - 1] = 7;
  EXPECT_NO_THROW(open({{"tokens", kTokens}, {"labels", labels}}));
}

TEST_F(TokenBatches, a_step_beyond_the_end_is_an_error_of_the_data) {
  const auto dataset = open({{"tokens", kTokens}});
  const std::string text = error_of([&] { rows(*dataset, 5, 0, 6); });
  EXPECT_NE(text.find("step 5 was asked for, but "), std::string::npos) << text;
  EXPECT_NE(text.find("has 4 steps; set train_steps to 4 or less"), std::string::npos) << text;
}

TEST_F(TokenBatches, files_that_do_not_fit_are_refused) {
  expect_refused({{"labels", kTokens}}, "has no tensor \"tokens\"");
  expect_refused({{"tokens", kTokens.to(at::kInt)}}, "\"tokens\" is Int, wanted int64");
  expect_refused({{"tokens", kTokens[0]}}, "\"tokens\" has shape [2, 3, 6], wanted [steps, micro_batches, B, S+1]");
  expect_refused({{"tokens", kTokens}},
                 "2 micro-batches x 3 rows = 6, but train_batch_size is 8; set train_batch_size to 6", "", 8);
  expect_refused({{"tokens", kTokens}}, "rows are 5 tokens long", ", \"seq_length\": 6");
  expect_refused({{"tokens", kTokens}, {"labels", kTokens}}, "\"labels\" has shape [4, 2, 3, 6], wanted [4, 2, 3, 5]");
  expect_refused({{"tokens", kTokens}, {"labels", at::zeros({4, 2, 3, 5})}}, "\"labels\" is Float, wanted int64");
}

TEST_F(TokenBatches, a_tensor_that_means_nothing_is_refused_with_the_nearest_name) {
  const at::Tensor labels = longs({4, 2, 3, 5});
  expect_refused({{"tokens", kTokens}, {"lacels", labels}},
                 "has a tensor \"lacels\", which means nothing here; known are \"tokens\", \"labels\" and "
                 "\"documents\"; did you mean \"labels\"?");
  expect_refused({{"tokns", kTokens}}, "did you mean \"tokens\"?");
  expect_refused({{"tokens", kTokens}, {"attention_mask", labels}}, "\"attention_mask\", which means nothing here");
}

TEST_F(TokenBatches, a_file_that_is_cut_short_while_it_is_read_is_an_error_with_both_sizes) {
  const auto dataset = open({{"tokens", kTokens}});
  const auto before = std::filesystem::file_size(folder_.path("b.safetensors"));
  std::filesystem::resize_file(folder_.path("b.safetensors"), before - 300);
  rows(*dataset, 1, 0, 6);
  const std::string text = error_of([&] { rows(*dataset, 4, 0, 6); });
  for (const std::string& part :
       {std::string("b.safetensors: was cut short while it was in use"), concat("had ", before, " bytes"),
        concat("has ", before - 300, " now"), std::string("put the whole file back")})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(TokenBatches, a_file_that_is_replaced_or_grows_is_read_as_it_was) {
  const auto dataset = open({{"tokens", kTokens}});
  std::filesystem::rename(folder_.path("b.safetensors"), folder_.path("old.safetensors"));
  std::ofstream(folder_.path("b.safetensors")) << "another file";
  std::ofstream(folder_.path("old.safetensors"), std::ios::app) << "more";
  EXPECT_TRUE(at::equal(rows(*dataset, 4, 0, 6).tokens_BS, kTokens[3].reshape({6, 6}).narrow(1, 0, 5)));
}

TEST_F(TokenBatches, a_missing_file_is_named) {
  const Host host;
  auto dataset = make_plugin<Dataset>(host, "token_batches", "{\"file\": \"/no/such/file\"}");
  EXPECT_NE(error_of([&] { dataset->open({}, {}); }).find("/no/such/file"), std::string::npos);
}

TEST_F(TokenBatches, another_file_of_the_same_shape_has_another_digest) {
  const at::Tensor tokens = at::zeros({4, 3, 2, 5}, at::kLong);
  open({{"tokens", tokens}});
  const std::string before = facts_.notes.find("digest")->as_string();
  open({{"tokens", tokens.clone()}});
  EXPECT_EQ(facts_.notes.find("digest")->as_string(), before);
  at::Tensor other = tokens.clone();
  other.view(-1).mutable_data_ptr<int64_t>()[7] = 1;
  open({{"tokens", other}});
  EXPECT_NE(facts_.notes.find("digest")->as_string(), before);
}

}  // namespace
}  // namespace drivetrain::test
