// evaluation/perplexity: rows of text files, of a dataset's batches and of its documents; figures; refusals.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include <drivetrain/dataset.h>
#include <drivetrain/evaluation.h>
#include <drivetrain/tokenizer.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

// Documents of `lengths` positions; a validation part of rows that are their own number.
struct Source : Dataset {
  struct Lists : Documents {
    std::vector<int64_t> lengths = {3, 9, 4};
    int64_t last = -1;  // label of every document; -1: as the others
    int64_t count() const override { return static_cast<int64_t>(lengths.size()); }
    int64_t length(int64_t document) const override { return lengths.at(document); }
    void read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const override {
      for (int64_t i = 0; i < count; ++i)
        tokens[i] = 20 * document + first + i, labels[i] = document == 2 && first + i == 1 ? -100 : tokens[i] + 1;
      if (last >= 0 && first + count == length(document)) labels[count - 1] = last;
    }
  };
  DatasetFacts open(const RunFacts& run, const ModelFacts&) override {
    rows = run.train_batch_size;
    DatasetFacts facts;
    facts.seq_length = 4, facts.steps = 2, facts.validation = validates;
    return facts;
  }
  void read(const BatchRequest& request, Batch& batch) override {
    const int64_t first = (request.step - 1) * rows + request.first_row + (request.part == DataPart::train ? 100 : 0);
    const at::Tensor number = at::arange(first, first + request.rows, at::TensorOptions(at::kLong)).unsqueeze(1);
    batch.tokens_BS = number.expand({request.rows, 4}).contiguous(), batch.labels_BS = batch.tokens_BS.clone();
  }
  const Documents* documents(DataPart) const override { return lists ? &*lists : nullptr; }

  int64_t rows = 0;
  bool validates = true;
  std::optional<Lists> lists;
};

// A token is a letter that stands twice.
struct Doubles : Tokenizer {
  void open(const std::string&) override {}
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = 300, facts.eod = 299;
    return facts;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (size_t i = 0; i < text.size(); i += 2) ids.push_back(static_cast<unsigned char>(text[i]));
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (const int32_t id : ids) text += std::string(2, static_cast<char>(id));
  }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }
};

struct OneSource : PluginMaker {
  std::shared_ptr<Plugin> create_kind(const char* kind, const PluginChoice&) const override {
    if (std::strcmp(kind, Tokenizer::kKind) == 0) return std::make_shared<Doubles>();
    return source;
  }
  std::shared_ptr<Source> source = std::make_shared<Source>();
};

struct Perplexity : testing::Test {
  Perplexity() { host.services.plugins = &maker; }

  EvaluationFacts open(const std::string& options, int64_t length = 0, int64_t vocabulary = 256) {
    evaluation = make_plugin<Evaluation>(host, "perplexity", "{" + options + "}");
    ModelFacts model;
    model.vocab_size = vocabulary, model.max_position_embeddings = 64;
    RunFacts run;
    if (length > 0) run.seq_length = length;
    return evaluation->open(run, model);
  }
  Batch read(int64_t first, int64_t rows) {
    Batch batch;
    evaluation->read(first, rows, batch);
    return batch;
  }
  std::string files(const std::vector<std::string>& texts) const {
    std::string list;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string path = folder.path(concat(i, ".txt"));
      std::ofstream(path, std::ios::binary) << texts[i];
      list += concat(list.empty() ? "" : ", ", "\"", path, "\"");
    }
    return "\"files\": [" + list + "]";
  }
  static std::vector<int64_t> list(const at::Tensor& t) {
    const at::Tensor flat = t.contiguous().view(-1);
    return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
  }
  void expect_refused(const std::string& options, const std::vector<std::string>& parts, int64_t vocabulary = 256) {
    const std::string text = error_of([&] { open(options, 0, vocabulary); });
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
  }

  Host host;
  OneSource maker;
  const TempFolder folder;
  std::unique_ptr<Evaluation> evaluation;
};

using Ids = std::vector<int64_t>;

TEST_F(Perplexity, every_byte_of_a_text_counts_once) {
  const EvaluationFacts facts = open(files({"abcde", "", "xy"}), 4);
  EXPECT_EQ(facts.rows, 3);
  EXPECT_EQ(facts.seq_length, 4);
  EXPECT_FALSE(facts.by_row);
  EXPECT_EQ(facts.notes.find("bytes")->as_int(), 7);
  const Batch all = read(0, 3);
  EXPECT_EQ(list(all.tokens_BS), (Ids{0, 'a', 'b', 'c', 'd', 0, 0, 0, 0, 'x', 0, 0}));
  EXPECT_EQ(list(all.labels_BS), (Ids{'a', 'b', 'c', 'd', 'e', -100, -100, -100, 'x', 'y', -100, -100}));
}

TEST_F(Perplexity, figures_are_per_token_and_per_byte) {
  open(files({"abcdefgh"}), 4);
  const RowScore scores[] = {{6, 4}, {10, 4}};
  const Value figures = evaluation->result(scores);
  EXPECT_DOUBLE_EQ(figures.find("loss")->as_double(), 2);
  EXPECT_DOUBLE_EQ(figures.find("perplexity")->as_double(), std::exp(2.0));
  EXPECT_DOUBLE_EQ(figures.find("bits_per_byte")->as_double(), 2 / std::log(2.0));
  EXPECT_DOUBLE_EQ(figures.find("byte_perplexity")->as_double(), std::exp(2.0));
  const RowScore high[] = {{1e6, 4}};
  EXPECT_TRUE(std::isfinite(evaluation->result(high).find("perplexity")->as_double()));
  const RowScore none[] = {{0, 0}};
  EXPECT_NE(error_of([&] { evaluation->result(none); }).find("no label counts"), std::string::npos);
}

// A vocabulary of other tokens says nothing of bytes.
TEST_F(Perplexity, batches_of_a_source_come_in_their_order) {
  const EvaluationFacts facts = open(R"("source": "x", "iters": 2, "batch_size": 3)", 0, 50000);
  EXPECT_EQ(facts.rows, 6);
  EXPECT_EQ(list(read(1, 4).tokens_BS.select(1, 0)), (Ids{1, 2, 3, 4})) << "across the end of a batch";
  const RowScore scores[] = {{6, 4}};
  EXPECT_FALSE(evaluation->result(scores).find("bits_per_byte"));
  open(R"("source": "x", "part": "train", "iters": 2, "batch_size": 3)");
  EXPECT_EQ(list(read(4, 2).tokens_BS.select(1, 0)), (Ids{104, 105}));
}

TEST_F(Perplexity, documents_of_a_source_are_read_whole) {
  maker.source->lists.emplace();
  const EvaluationFacts facts = open(R"("source": "x")");
  EXPECT_EQ(facts.rows, 1 + 3 + 1);
  const Batch all = read(0, 5);
  EXPECT_EQ(list(all.tokens_BS[3]), (Ids{28, 0, 0, 0}));
  EXPECT_EQ(list(all.labels_BS[3]), (Ids{29, -100, -100, -100}));
  EXPECT_EQ(list(all.labels_BS[4]), (Ids{41, -100, 43, 44})) << "labels that do not count stay so";
  EXPECT_TRUE(at::equal(read(2, 1).tokens_BS[0], all.tokens_BS[2]));
}

TEST_F(Perplexity, a_tokenizer_gives_tokens_and_their_bytes) {
  const std::string text = files({"aabbcc"}) + R"(, "tokenizer": "doubles")";
  EXPECT_EQ(open(text, 0, 50000).notes.find("bytes")->as_int(), 6);
  EXPECT_EQ(list(read(0, 1).tokens_BS), (Ids{299, 'a', 'b'}));
  EXPECT_EQ(list(read(0, 1).labels_BS), (Ids{'a', 'b', 'c'}));
  const RowScore scores[] = {{6, 3}};
  EXPECT_DOUBLE_EQ(evaluation->result(scores).find("loss")->as_double(), 2);
  EXPECT_DOUBLE_EQ(evaluation->result(scores).find("bits_per_byte")->as_double(), 1 / std::log(2.0));
  EXPECT_EQ(open(text + R"(, "limit": 1)", 2, 50000).notes.find("bytes")->as_int(), 4);
  maker.source->lists.emplace();
  EXPECT_EQ(open(R"("source": "x", "tokenizer": "doubles")", 0, 50000).notes.find("bytes")->as_int(), 2 * 15)
      << "of 16 positions one has no label that counts";
  maker.source->lists->last = 299;
  EXPECT_EQ(open(R"("source": "x", "tokenizer": "doubles")", 0, 50000).notes.find("bytes")->as_int(), 2 * 12)
      << "the mark behind each of three documents is no text";
  expect_refused(text, {"tokenizer/doubles", "300", "257"}, 257);
}

TEST_F(Perplexity, a_limit_takes_the_first_rows) {
  EXPECT_EQ(open(files({"abcdefgh"}) + R"(, "limit": 1)", 4).rows, 1);
}

TEST_F(Perplexity, what_cannot_be_evaluated_is_refused) {
  expect_refused("", {"neither", "\"source\"", "\"files\""});
  expect_refused(files({"abc"}) + R"(, "source": "x")", {"both"});
  expect_refused(R"("source": "x")", {"dataset/x", "set iters"});
  expect_refused(R"("source": "x", "part": "train", "iters": 3)", {"iters is 3", "2"});
  expect_refused(R"("files": ["/no/such.txt"])", {"/no/such.txt"});
  expect_refused(files({"", ""}), {"no text", "2 files"});
  expect_refused(files({"abc"}), {"vocabulary of 1000", "\"tokenizer\""}, 1000);
  maker.source->validates = false;
  expect_refused(R"("source": "x", "iters": 1)", {"dataset/x", "no validation part", "\"train\""});
}

}  // namespace
}  // namespace drivetrain::test
