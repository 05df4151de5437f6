// What dataset/megatron refuses, and that the message says where and what to do.
#include <filesystem>
#include <functional>

#include "data_file.h"
#include "support/open_megatron.h"

namespace drivetrain::test {
namespace {

class BadInput : public ::testing::Test {
 protected:
  static constexpr int64_t kSequences = 30, kTables = 34;
  BadInput() { write(); }
  void write(int code = 8) { write_token_pair(folder_.path("a"), counted_documents(kSequences, 5, 9), code); }
  std::string idx() const { return folder_.path("a.idx"); }
  std::string bin() const { return folder_.path("a.bin"); }
  static int64_t pointer_at(int64_t sequence) { return kTables + 4 * kSequences + 8 * sequence; }
  static int64_t document_at(int64_t document) { return kTables + 12 * kSequences + 8 * document; }

  Value options(const std::string& json) const { return options_in(folder_, json); }
  Value usual() const { return options(R"({"data_path": "@/a", "seq_length": 8, "split": "1,0,0"})"); }

  // An error with this code whose text has all of `parts`.
  static void expect_error(const std::function<void()>& action, ErrorCode code, const std::vector<std::string>& parts) {
    try {
      action();
      ADD_FAILURE() << "not refused; wanted " << parts[0];
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "wanted: " << part << "\nfound: " << e.what();
    }
  }
  void expect_config_error(const std::string& json, const std::vector<std::string>& parts) const {
    expect_error([&] { OpenMegatron opened(options(json)); }, ErrorCode::config, parts);
  }
  // Of a spoilt index; written anew afterwards.
  void expect_bad_index(const std::function<void()>& spoil, std::vector<std::string> parts) {
    spoil();
    parts.push_back(idx());
    expect_error([&] { OpenMegatron opened(usual()); }, ErrorCode::io, parts);
    write();
  }
  void read_all(const OpenMegatron& opened) const {
    for (int64_t step = 1; step < 12; ++step) opened.read(step, 0, 4);
  }
  TempFolder folder_;
};

TEST_F(BadInput, headers_of_the_index) {
  expect_bad_index([&] { overwrite<char>(idx(), 0, 'X'); }, {"byte 0", "MMIDIDX"});
  expect_bad_index([&] { std::ofstream(idx()).write("TNTIDX\0\0", 8); }, {"TNTIDX", "prepare"});
  expect_bad_index([&] { std::ofstream(idx()) << ""; }, {"MMIDIDX"});
  expect_bad_index([&] { std::filesystem::resize_file(idx(), 20); }, {"header"});
  expect_bad_index([&] { overwrite<uint64_t>(idx(), 9, 2); }, {"byte 9", "version is 2"});
  expect_bad_index([&] { overwrite<char>(idx(), 17, 9); }, {"byte 17", "code 9"});
  expect_bad_index([&] { overwrite<char>(idx(), 17, 0); }, {"code 0"});
  expect_bad_index([&] { overwrite<char>(idx(), 17, 7); }, {"float"});
  expect_bad_index([&] { overwrite<uint64_t>(idx(), 18, 31); }, {"31 sequences", "bytes; the file has"});
  expect_bad_index([&] { overwrite<uint64_t>(idx(), 18, 0); }, {"empty"});
  expect_bad_index([&] { overwrite<uint64_t>(idx(), 18, UINT64_MAX / 12 + 5); }, {"more than a file can have"});
  expect_bad_index([&] { overwrite<uint64_t>(idx(), 26, UINT64_MAX / 8 + 2); }, {"more than a file can have"});
  expect_bad_index([&] { std::filesystem::resize_file(idx(), std::filesystem::file_size(idx()) - 1); }, {"bytes"});
}

TEST_F(BadInput, ends_of_the_tables) {
  expect_bad_index([&] { overwrite<int64_t>(idx(), document_at(0), 1); }, {"first document"});
  expect_bad_index([&] { overwrite<int64_t>(idx(), document_at(kSequences), 29); }, {"end at sequence 29"});
  expect_bad_index([&] { overwrite<int64_t>(idx(), pointer_at(kSequences - 1), -8); }, {"byte -8"});
  expect_bad_index([&] { overwrite<int64_t>(idx(), pointer_at(kSequences - 1), INT64_MAX - 3); }, {"last sequence"});
  expect_bad_index([&] { overwrite<int32_t>(idx(), kTables + 4 * (kSequences - 1), -1); }, {"sequence 29", "-1"});
  std::filesystem::resize_file(bin(), std::filesystem::file_size(bin()) - 2);
  expect_error([&] { OpenMegatron opened(usual()); }, ErrorCode::io, {bin(), idx(), "cut short"});
}

TEST_F(BadInput, a_part_that_ends_before_it_begins) {
  overwrite<int64_t>(idx(), pointer_at(0), 100);
  overwrite<int64_t>(idx(), pointer_at(15), 50);
  Value of = usual();
  of.set("split", "50,50,0");
  expect_error([&] { OpenMegatron opened(of); }, ErrorCode::io, {idx(), "damaged"});
}

TEST_F(BadInput, entries_within_the_tables_are_found_when_they_are_used) {
  const auto expect_bad_reads = [&](const std::function<void()>& spoil, const std::string& order,
                                    std::vector<std::string> parts) {
    spoil();
    parts.push_back(idx());
    Value of = usual();
    of.set("order", order);
    expect_error([&] { read_all(OpenMegatron(of)); }, ErrorCode::io, parts);
    write();
  };
  expect_bad_reads([&] { overwrite<int64_t>(idx(), pointer_at(7), 4); }, "counter", {"sequence"});
  expect_bad_reads([&] { overwrite<int64_t>(idx(), pointer_at(7), 1 << 30); }, "megatron", {"sequence 7"});
  expect_bad_reads([&] { overwrite<int32_t>(idx(), kTables + 4 * 9, 3); }, "counter", {"sequence 9", "megatron"});
  expect_bad_reads([&] { overwrite<int32_t>(idx(), kTables + 4 * 9, -3); }, "megatron", {"sequence 9", "-3"});
  expect_bad_reads([&] { overwrite<int32_t>(idx(), kTables + 4 * 9, 1 << 20); }, "megatron", {"sequence 9"});
}

TEST_F(BadInput, ids_beyond_the_vocabulary_are_named_with_their_place) {
  for (const char* const order : {"counter", "megatron"}) {
    write(4);
    overwrite<int32_t>(bin(), 4 * (5 + 6 + 2), 250);  // documents of 5, 6, 7, ... tokens
    Value of = usual();
    of.set("order", order);
    const std::vector<std::string> place = {bin(),      "document 2, token 2", "byte 52", "id 250",
                                            "0 to 249", "vocab_size"};
    expect_error([&] { read_all(OpenMegatron(of)); }, ErrorCode::io, place);
    overwrite<int32_t>(bin(), 4 * (5 + 6 + 2), -1);
    expect_error([&] { read_all(OpenMegatron(of)); }, ErrorCode::io, {"document 2, token 2", "id -1"});
  }
}

TEST_F(BadInput, a_file_cut_short_meanwhile_is_an_error_and_can_be_put_back) {
  const OpenMegatron opened(usual());
  const Batch before = opened.read(3, 0, 4);
  std::filesystem::copy_file(bin(), folder_.path("whole"));
  std::filesystem::resize_file(bin(), 40);
  expect_error([&] { read_all(opened); }, ErrorCode::io, {bin(), "cut short", "document", "token"});
  std::ofstream(bin(), std::ios::binary) << folder_.text("whole");
  EXPECT_TRUE(opened.read(3, 0, 4).tokens_BS.equal(before.tokens_BS));
}

// As from a bad sector: nothing is mapped at address 0 of this process.
TEST_F(BadInput, a_place_that_cannot_be_read_is_named) {
  const megatron::DataFile file("/proc/self/mem");
  expect_error(
      [&] {
        char byte;
        file.read(0, &byte, 1);
      },
      ErrorCode::io, {"/proc/self/mem", "byte 0", "cannot be read"});
}

TEST_F(BadInput, files_that_are_not_there_or_no_files) {
  expect_config_error(R"({"data_path": "@/none", "seq_length": 8})", {"none.idx", "relative to the config"});
  expect_config_error(R"({"data_path": "@/a.bin", "seq_length": 8})", {"without .bin"});
  std::filesystem::remove(bin());
  expect_config_error(R"({"data_path": "@/a", "seq_length": 8})", {"a.bin"});
  std::filesystem::create_directory(bin());
  expect_error([&] { OpenMegatron opened(usual()); }, ErrorCode::io, {bin(), "regular file"});
}

TEST_F(BadInput, blends) {
  const auto refused = [&](const std::string& path, const std::vector<std::string>& parts) {
    expect_config_error(R"({"seq_length": 8, "data_path": )" + path + "}", parts);
  };
  refused(R"([[-1, "@/a"], [2, "@/a"]])", {"data_path", "weight", "-1"});
  refused(R"([[0, "@/a"], [0.0, "@/a"]])", {"weights", "sum"});
  refused(R"([])", {"empty"});
  refused(R"([["@/a", 0.3]])", {"[0]"});
  refused(R"([[0.3, "@/a", 1]])", {"[0]"});
  refused(R"([0.3, "@/a", 0.7])", {"3 elements"});
  refused(R"([0.3, 0.7])", {"[0], [1]"});
  refused(R"(3)", {"data_path", "3"});
  refused(R"({"a": 1})", {"data_path"});
}

TEST_F(BadInput, splits_and_parts_that_get_nothing) {
  const auto refused = [&](const std::string& rest, const std::vector<std::string>& parts) {
    expect_config_error(R"({"data_path": "@/a", )" + rest + "}", parts);
  };
  refused(R"("seq_length": 8, "split": "1,x")", {"split", "\"x\""});
  refused(R"("seq_length": 8, "split": "1,-2")", {"less than 0"});
  refused(R"("seq_length": 8, "split": "1,2,3,4")", {"4 numbers"});
  refused(R"("seq_length": 8, "split": "0,0,0")", {"sum"});
  refused(R"("seq_length": 8, "split": "")", {"sum"});
  refused(R"("seq_length": 8, "split": "0,1,0")", {"training"});
  for (const char* const order : {"counter", "megatron"}) {  // Megatron-Core loops for ever here
    const std::string with = concat(R"(, "order": ")", order, "\"");
    refused(R"("seq_length": 8, "split": "999,1,0")" + with, {"valid", "gets no document", "30 sequences", "100,0,0"});
  }
  refused(R"("seq_length": 1000, "split": "1,0,0")", {"1001", "seq_length"});
  write_token_pair(folder_.path("a"), {{}, {}, {}});
  refused(R"("seq_length": 8, "split": "1,0,0", "order": "megatron")", {"0 tokens"});
  refused(R"("seq_length": 8, "split": "1,0,0")", {"0 tokens"});
}

TEST_F(BadInput, options_that_need_others) {
  const auto refused = [&](const std::string& rest, const std::vector<std::string>& parts) {
    expect_config_error(R"({"data_path": "@/a", "seq_length": 8, "split": "1,0,0", )" + rest + "}", parts);
  };
  for (const char* const key : {"reset_position_ids", "reset_attention_mask", "eod_mask_loss"})
    refused(concat("\"", key, "\": true"), {key, "eod"});
  refused(R"("eod": 250)", {"eod is 250", "0 to 249"});
  for (const char* const key : {"train_samples", "valid_samples"})
    refused(concat("\"", key, "\": 5"), {key, "megatron"});
  refused(R"("index_cache": "@/c")", {"index_cache"});
  refused(R"("seed": 4294967296, "order": "megatron")", {"2^32"});
  refused(R"("train_samples": 100000000000000, "order": "megatron")", {"counter"});
}

TEST_F(BadInput, bytes_behind_the_last_sequence_are_told) {
  std::ofstream(bin(), std::ios::app) << "abc";
  const OpenMegatron opened(usual());
  ASSERT_EQ(opened.host.log.warnings.size(), 1u);
  EXPECT_NE(opened.host.log.warnings[0].find("3 bytes"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
