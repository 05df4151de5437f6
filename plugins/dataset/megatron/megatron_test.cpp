// dataset/megatron in its own order, what the end of a document changes, and what resolved.json notes.
#include <ATen/ops/equal.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "support/open_megatron.h"

namespace drivetrain::test {
namespace {

class Counter : public ::testing::Test {
 protected:
  Counter() {
    write_token_pair(folder_.path("a"), counted_documents(40, 0, 12));
    write_token_pair(folder_.path("b"), counted_documents(15, 3, 30), 4);
  }
  Value options(const std::string& json) const { return options_in(folder_, json); }
  // All tokens of a pair's first `sequences` of `count` documents.
  static std::vector<int64_t> stream(const TokenDocuments& documents, size_t sequences) {
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < sequences; ++i) tokens.insert(tokens.end(), documents[i].begin(), documents[i].end());
    return tokens;
  }
  TempFolder folder_;
};

using Samples = std::multiset<std::vector<int64_t>>;

Samples samples(const OpenMegatron& opened, int64_t first, int64_t count) {
  Samples all;
  for (int64_t k = first; k < first + count; ++k) all.insert(opened.sample(k));
  return all;
}

TEST_F(Counter, each_epoch_has_every_cut_of_the_stream_once_in_another_order) {
  const OpenMegatron opened(options(R"({"data_path": "@/a", "split": "75,25", "seq_length": 6})"));
  const std::vector<int64_t> tokens = stream(counted_documents(40, 0, 12), 30);
  Samples wanted;
  for (size_t at = 0; at + 7 <= tokens.size(); at += 6)
    wanted.emplace(tokens.begin() + static_cast<int64_t>(at), tokens.begin() + static_cast<int64_t>(at) + 7);
  const auto count = static_cast<int64_t>(wanted.size());
  EXPECT_EQ(samples(opened, 0, count), wanted);
  EXPECT_EQ(samples(opened, count, count), wanted) << "second epoch";
  int64_t same = 0;
  for (int64_t k = 0; k < count; ++k) same += opened.sample(k) == opened.sample(count + k);
  EXPECT_LT(same, count / 4) << "the epochs have different orders";
  EXPECT_EQ(opened.facts.steps, -1);
}

TEST_F(Counter, the_order_follows_the_seed_and_far_steps_are_read_at_once) {
  const std::string text = R"({"data_path": "@/a", "split": "75,25", "seq_length": 6, "seed": )";
  const OpenMegatron one(options(text + "1}")), again(options(text + "1}")), other(options(text + "2}"));
  int64_t same = 0;
  for (int64_t k = 0; k < 30; ++k) {
    EXPECT_EQ(one.sample(k), again.sample(29 - (29 - k)));
    same += one.sample(k) == other.sample(k);
  }
  EXPECT_LT(same, 10);
  EXPECT_EQ(one.sample(3'000'000'000), again.sample(3'000'000'000));
}

TEST_F(Counter, validation_takes_the_documents_behind_those_of_training) {
  const OpenMegatron opened(options(R"({"data_path": "@/a", "split": "75,25", "seq_length": 6})"));
  const TokenDocuments documents = counted_documents(40, 0, 12);
  const std::vector<int64_t> train = stream(documents, 30), all = stream(documents, 40);
  const std::vector<int64_t> valid(all.begin() + static_cast<int64_t>(train.size()), all.end());
  ASSERT_TRUE(opened.facts.validation);
  Samples wanted, found;
  for (size_t at = 0; at + 7 <= valid.size(); at += 6)
    wanted.emplace(valid.begin() + static_cast<int64_t>(at), valid.begin() + static_cast<int64_t>(at) + 7);
  for (size_t k = 0; k < wanted.size(); ++k) found.insert(opened.sample(static_cast<int64_t>(k), DataPart::validation));
  EXPECT_EQ(found, wanted);
  const OpenMegatron none(options(R"({"data_path": "@/a", "split": "100,0,0", "seq_length": 6})"));
  EXPECT_FALSE(none.facts.validation);
  EXPECT_NE(error_of([&] { none.read(1, 0, 1, DataPart::validation); }).find("validation"), std::string::npos);
}

TEST_F(Counter, a_blend_takes_each_file_in_its_share_and_in_the_order_it_has_alone) {
  const std::string rest = R"(, "split": "1,0,0", "seq_length": 6})";
  const OpenMegatron pairs(options(R"({"data_path": [[1, "@/a"], [3, "@/b"]])" + rest)),
      flat(options(R"({"data_path": [1, "@/a", 3, "@/b"])" + rest)),
      with_nothing(options(R"({"data_path": [[1, "@/a"], [3, "@/b"], [0, "@/none"]])" + rest)),
      alone(options(R"({"data_path": "@/a")" + rest));
  std::vector<std::vector<int64_t>> of_a;
  for (int64_t k = 0; k < 80; ++k) {
    EXPECT_EQ(pairs.sample(k), flat.sample(k));
    EXPECT_EQ(pairs.sample(k), with_nothing.sample(k));
    if (pairs.sample(k) == alone.sample(static_cast<int64_t>(of_a.size()))) of_a.push_back(pairs.sample(k));
  }
  EXPECT_EQ(of_a.size(), 20u);
  const OpenMegatron by_size(options(R"({"data_path": ["@/b", "@/a"])" + rest));
  const Value& files = *by_size.facts.notes.find("train")->find("files");
  EXPECT_NEAR(files.find(folder_.path("a"))->find("epochs")->as_double(),
              files.find(folder_.path("b"))->find("epochs")->as_double(), 0.1);
}

TEST_F(Counter, all_types_give_the_same_rows) {
  const TokenDocuments documents = counted_documents(20, 5, 9);
  std::vector<std::vector<int64_t>> wanted;
  TokenDocuments small = documents;
  for (auto& document : small)
    for (int64_t& token : document) token %= 100;
  for (const int code : {1, 2, 3, 4, 5, 8}) {
    const std::string prefix = folder_.path(concat("type", code));
    write_token_pair(prefix, small, code);
    const OpenMegatron opened(
        parse_json(concat(R"({"data_path": ")", prefix, R"(", "seq_length": 10, "split": "1,0,0"})"), "test"));
    std::vector<std::vector<int64_t>> found;
    for (int64_t k = 0; k < 12; ++k) found.push_back(opened.sample(k));
    if (wanted.empty()) wanted = found;
    EXPECT_EQ(found, wanted) << "code " << code;
  }
}

TEST_F(Counter, new_epochs_are_announced_with_their_step) {
  const OpenMegatron opened(options(R"({"data_path": "@/b", "split": "1,0,0", "seq_length": 6})"));
  const int64_t epoch =
      opened.facts.notes.find("train")->find("files")->members()[0].value.find("samples_of_an_epoch")->as_int();
  const int64_t step = epoch / 4 + 1;  // four rows each
  opened.read(1, 0, 4), opened.read(step, 2, 2), opened.read(step + 1, 0, 4);
  EXPECT_TRUE(opened.host.log.lines.empty());
  opened.read(step, 0, 4);
  ASSERT_EQ(opened.host.log.lines.size(), 1u);
  EXPECT_NE(opened.host.log.lines[0].find("epoch 2 of "), std::string::npos);
  EXPECT_NE(opened.host.log.lines[0].find(concat("step ", step)), std::string::npos);
}

TEST_F(Counter, the_end_of_a_document_separates_what_options_say) {
  const std::string base = R"({"data_path": "@/b", "split": "1,0,0", "seq_length": 50, "eod": 9)";
  const OpenMegatron plain(options(base + "}")),
      all(options(base + R"(, "reset_position_ids": true, "reset_attention_mask": true, "eod_mask_loss": true})"));
  EXPECT_FALSE(plain.facts.documents);
  EXPECT_TRUE(all.facts.documents);
  int64_t ends = 0;
  for (int64_t step = 1; step < 8; ++step) {
    const Batch batch = all.read(step, 0, 2), before = plain.read(step, 0, 2);
    EXPECT_TRUE(before.cu_seqlens.empty() && !before.position_ids_BS.defined());
    std::vector<int64_t> wanted;
    for (int64_t i = 0; i < 100; ++i) {
      const auto of = [&](const at::Tensor& t) { return t.const_data_ptr<int64_t>()[i]; };
      const bool after_end = i % 50 > 0 && before.tokens_BS.const_data_ptr<int64_t>()[i - 1] == 9;
      if (i % 50 == 0 || after_end) wanted.push_back(i);
      EXPECT_EQ(of(batch.position_ids_BS), i - wanted.back());
      EXPECT_EQ(of(batch.labels_BS), of(batch.tokens_BS) == 9 ? -100 : of(before.labels_BS));
      ends += of(batch.tokens_BS) == 9;
    }
    wanted.push_back(100);
    EXPECT_EQ(batch.cu_seqlens, wanted);
    EXPECT_TRUE(at::equal(batch.tokens_BS, before.tokens_BS));
  }
  EXPECT_GT(ends, 3);
}

TEST_F(Counter, notes_tell_a_file_that_was_replaced) {
  const Value of_a = options(R"({"data_path": "@/a", "seq_length": 6, "split": "1,0,0"})");
  const auto facts = [&] { return OpenMegatron(of_a).facts.notes.find("files")->members()[0].value; };
  const Value before = facts();
  EXPECT_EQ(facts(), before);
  const auto time = std::filesystem::last_write_time(folder_.path("a.bin"));
  overwrite<uint16_t>(folder_.path("a.bin"), 0, 99);
  std::filesystem::last_write_time(folder_.path("a.bin"), time);  // same size, same time: the digest tells
  EXPECT_FALSE(*facts().find("digest") == *before.find("digest"));
  std::filesystem::last_write_time(folder_.path("a.bin"), time + std::chrono::seconds(1));
  EXPECT_FALSE(*facts().find("bin_mtime_ns") == *before.find("bin_mtime_ns"));
}

int64_t resident_kilobytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  return -1;
}

// A hundred million sequences, all empty but the last, which has two thousand million tokens. Sparse: no bytes on disk.
TEST_F(Counter, a_large_corpus_opens_without_reading_its_index) {
  const int64_t sequences = 100'000'000, tokens = 2'000'000'000, tables = 34;
  write_token_pair(folder_.path("big"), {{}});
  const std::string idx = folder_.path("big.idx");
  std::filesystem::resize_file(idx, static_cast<uintmax_t>(tables));
  std::filesystem::resize_file(idx, static_cast<uintmax_t>(tables + 20 * sequences + 8));
  std::filesystem::resize_file(folder_.path("big.bin"), static_cast<uintmax_t>(2 * tokens));
  overwrite<uint64_t>(idx, 18, static_cast<uint64_t>(sequences));
  overwrite<uint64_t>(idx, 26, static_cast<uint64_t>(sequences + 1));
  overwrite<int32_t>(idx, tables + 4 * (sequences - 1), static_cast<int32_t>(tokens));
  overwrite<int64_t>(idx, tables + 20 * sequences, sequences);
  const int64_t before = resident_kilobytes();
  const OpenMegatron opened(options(R"({"data_path": "@/big", "seq_length": 4096, "split": "1,0,0"})"));
  EXPECT_EQ(opened.read(123456, 0, 4).tokens_BS.sum().item<int64_t>(), 0);
  EXPECT_LT(resident_kilobytes() - before, 20'000);
}

}  // namespace
}  // namespace drivetrain::test
