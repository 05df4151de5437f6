#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include <drivetrain/dataset.h>

#include "support/plugin_under_test.h"
#include "test_documents.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kS = 300, kBatch = 8, kVocabulary = 1'000'000;

// Numbered documents of mixed lengths: those of the training part first.
class Numbered : public Dataset {
 public:
  explicit Numbered(bool documents, bool validation) : documents_(documents), validates_(validation) {}
  DatasetFacts open(const RunFacts&, const ModelFacts&) override {
    DatasetFacts facts;
    facts.notes = Value::Object{{"files", "of the source"}};
    return facts;
  }
  void read(const BatchRequest&, Batch&) override { FAIL() << "the rows of the source are not used"; }
  const Documents* documents(DataPart part) const override {
    if (part == DataPart::validation) return validates_ ? &validation_ : nullptr;
    return documents_ ? &train_ : nullptr;
  }
  static std::vector<int64_t> lengths() {
    auto lengths = log_normal_lengths(300, 60, 1);
    for (int64_t& length : lengths) length = std::min(length, kS);
    lengths[17] = 700;
    return lengths;
  }

 private:
  const bool documents_, validates_;
  const NumberedDocuments train_{lengths()}, validation_{{5, 6, 7}};
};

struct NumberedMaker : PluginMaker {
  std::shared_ptr<Plugin> create_kind(const char*, const PluginChoice& choice) const override {
    return std::make_shared<Numbered>(choice.type != "streams", choice.type != "train_only");
  }
};

class Packed : public ::testing::Test {
 protected:
  Packed() { host_.services.plugins = &maker_, host_.services.seed = 5; }
  std::unique_ptr<Dataset> open(const std::string& method, const std::string& more = "",
                                const std::string& source = "numbered") {
    auto dataset = make_plugin<Dataset>(
        host_, "packed",
        concat(R"({"source": ")", source, R"(", "seq_length": )", kS, R"(, "method": ")", method, "\"", more, "}"));
    RunFacts run;
    run.train_batch_size = kBatch, run.train_steps = 7;
    ModelFacts model;
    model.vocab_size = kVocabulary;
    facts_ = dataset->open(run, model);
    return dataset;
  }

  NumberedMaker maker_;
  Host host_;
  DatasetFacts facts_;
};

Batch rows(Dataset& dataset, int64_t step, int64_t first, int64_t count, DataPart part = DataPart::train) {
  Batch batch;
  dataset.read({part, step, first, count}, batch);
  return batch;
}

std::vector<int64_t> ids(const at::Tensor& t) {
  const int64_t* data = t.const_data_ptr<int64_t>();
  return {data, data + t.numel()};
}

int64_t steps_per_epoch(const DatasetFacts& facts) {
  return facts.notes.find("train")->find("rows")->as_int() / kBatch;
}

const char* const kMethods[] = {"best_fit", "fixed", "length_groups", "none"};

// Position by position against the documents: every token is the one of its document, and its label too.
TEST_F(Packed, rows_are_documents_and_then_padding) {
  const auto lengths = Numbered::lengths();
  for (const char* method : kMethods) {
    const auto dataset = open(method, R"(, "pad_token": 999999)");
    std::map<int64_t, int64_t> seen;
    for (int64_t step = 1; step <= steps_per_epoch(facts_); ++step) {
      const Batch batch = rows(*dataset, step, 0, kBatch);
      const auto tokens = ids(batch.tokens_BS), labels = ids(batch.labels_BS);
      int64_t documents = 0, padding = 0;
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] == 999999) {
          EXPECT_EQ(labels[i], -100);
          ++padding;
          const bool last = (i + 1) % static_cast<size_t>(kS) == 0;
          EXPECT_TRUE(last || tokens[i + 1] == 999999) << "padding stands at the end";
          continue;
        }
        const int64_t document = tokens[i] / 1000, at = tokens[i] % 1000;
        ++seen[tokens[i]];
        documents += at == 0;
        EXPECT_EQ(labels[i], at + 1 < lengths[static_cast<size_t>(document)] ? tokens[i] + 1 : -100);
      }
      EXPECT_EQ(batch.documents, documents);
      EXPECT_EQ(batch.padding, padding);
    }
    for (const auto& [token, times] : seen) EXPECT_EQ(times, 1) << token << " with " << method;
  }
}

TEST_F(Packed, boundaries_stand_where_documents_begin_and_positions_start_again) {
  for (const char* method : {"best_fit", "fixed"}) {
    const auto dataset = open(method, R"(, "pad_token": 999999)");
    EXPECT_TRUE(facts_.documents);
    int64_t padded = 0;
    for (int64_t step = 1; step <= steps_per_epoch(facts_) + 1; ++step) {
      const Batch batch = rows(*dataset, step, 0, kBatch);
      const auto tokens = ids(batch.tokens_BS), positions = ids(batch.position_ids_BS);
      const std::set<int64_t> begins(batch.cu_seqlens.begin(), batch.cu_seqlens.end());
      EXPECT_TRUE(std::is_sorted(batch.cu_seqlens.begin(), batch.cu_seqlens.end()));
      EXPECT_EQ(begins.size(), batch.cu_seqlens.size()) << "none twice";
      EXPECT_EQ(*begins.rbegin(), kBatch * kS);
      int64_t from = 0;
      for (int64_t i = 0; i < kBatch * kS; ++i) {
        const int64_t token = tokens[static_cast<size_t>(i)];
        const bool padding = token == 999999;
        const bool goes_on = i % kS != 0 && !padding && token == tokens[static_cast<size_t>(i - 1)] + 1;
        if (begins.contains(i)) from = i;
        EXPECT_TRUE(padding || begins.contains(i) != goes_on) << "position " << i;
        EXPECT_EQ(positions[static_cast<size_t>(i)], i - from);
        EXPECT_TRUE(!padding || i - from < 128) << "padding is in short pieces";
        padded += padding;
      }
    }
    EXPECT_GT(padded, 0);
  }
}

TEST_F(Packed, one_document_per_row_needs_no_boundaries) {
  for (const char* method : {"length_groups", "none"}) {
    const auto dataset = open(method);
    const Batch batch = rows(*dataset, 1, 0, kBatch);
    EXPECT_FALSE(facts_.documents);
    EXPECT_TRUE(batch.cu_seqlens.empty());
    EXPECT_FALSE(batch.position_ids_BS.defined());
    EXPECT_GT(batch.padding, 0);
  }
}

// Ranks read other cuts of a batch, with other micro-batches.
TEST_F(Packed, rows_with_their_boundaries_do_not_depend_on_the_cut_of_the_batch) {
  const auto dataset = open("best_fit"), other = open("best_fit");
  for (const int64_t step : {40, 3}) {
    const Batch whole = rows(*dataset, step, 0, kBatch);
    for (const int64_t micro : {1, 2, 4}) {
      std::vector<at::Tensor> tokens, positions;
      std::vector<int64_t> begins = {0};
      for (int64_t first = 0; first < kBatch; first += micro) {
        const Batch part = rows(*other, step, first, micro);
        tokens.push_back(part.tokens_BS), positions.push_back(part.position_ids_BS);
        for (const int64_t begin : part.cu_seqlens)
          if (begin > 0) begins.push_back(first * kS + begin);
      }
      EXPECT_TRUE(at::equal(at::cat(tokens), whole.tokens_BS));
      EXPECT_TRUE(at::equal(at::cat(positions), whole.position_ids_BS));
      EXPECT_EQ(begins, whole.cu_seqlens);
    }
  }
}

TEST_F(Packed, validation_has_its_own_documents) {
  const auto dataset = open("best_fit");
  EXPECT_TRUE(facts_.validation);
  const Batch batch = rows(*dataset, 1, 0, 1, DataPart::validation);
  EXPECT_EQ(batch.documents, 3);
  EXPECT_EQ(batch.padding, kS - 18);
  EXPECT_EQ(std::vector(batch.cu_seqlens.begin() + 3, batch.cu_seqlens.end()),
            (std::vector<int64_t>{18, 18 + 128, 18 + 256, kS}));
  EXPECT_TRUE(at::equal(batch.tokens_BS, rows(*dataset, 9, 0, 1, DataPart::validation).tokens_BS))
      << "from the beginning";
  const auto without = open("best_fit", "", "train_only");
  EXPECT_FALSE(facts_.validation);
  EXPECT_NE(error_of([&] { rows(*without, 1, 0, 1, DataPart::validation); }).find("eval_interval"), std::string::npos);
}

TEST_F(Packed, figures_are_told_before_the_run) {
  open("best_fit");
  const Value& train = *facts_.notes.find("train");
  EXPECT_EQ(train.find("documents")->as_int(), 300);
  EXPECT_EQ(train.find("cut_documents")->as_int(), 1);
  const double fill = 100. * static_cast<double>(train.find("tokens")->as_int()) /
                      static_cast<double>(train.find("rows")->as_int() * kS);
  EXPECT_NEAR(train.find("fill_percent")->as_double(), fill, 0.01);
  EXPECT_EQ(facts_.notes.find("source")->find("files")->as_string(), "of the source");
  const std::string& line = host_.log.lines.at(0);
  for (const std::string& part : {std::string("300 documents"), std::string("% full"),
                                  std::string("1 longer than a row"), std::string("7 steps are 0.")})
    EXPECT_NE(line.find(part), std::string::npos) << line;
}

TEST_F(Packed, a_limit_of_epochs_is_a_limit_of_steps) {
  open("none");
  EXPECT_EQ(facts_.steps, -1);
  open("none", R"(, "epochs": 3)");
  EXPECT_EQ(facts_.steps, facts_.notes.find("train")->find("rows")->as_int() * 3 / kBatch);
}

TEST_F(Packed, epochs_are_told_when_they_are_reached) {
  const auto dataset = open("none");
  const auto told = [&] { return host_.log.lines.size(); };
  const size_t before = told();
  const int64_t last = steps_per_epoch(facts_);
  rows(*dataset, last, 0, kBatch);
  EXPECT_EQ(told(), before);
  for (int i = 0; i < 2; ++i) rows(*dataset, last + 2, 0, kBatch);
  ASSERT_EQ(told(), before + 1);
  EXPECT_NE(host_.log.lines.back().find(concat("step ", last + 2, " reaches epoch 2")), std::string::npos)
      << host_.log.lines.back();
}

TEST_F(Packed, what_cannot_be_packed_is_refused) {
  const auto text_of = [&](const std::string& more, const std::string& source) {
    return error_of([&] { open("best_fit", more, source); });
  };
  EXPECT_NE(text_of("", "streams").find("dataset/streams has no single documents"), std::string::npos);
  EXPECT_NE(text_of(R"(, "pad_token": 1000000)", "numbered").find("pad_token is 1000000"), std::string::npos);
  EXPECT_NE(error_of([&] { open("worst_fit"); }).find("best_fit"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
