// Texts in a folder, a tokenizer that may stop half way, and token files as bytes.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "data_tools/prepare.h"
#include "data_tools/token_file.h"

namespace drivetrain::test {

// Every byte is a token, `first` added to it; throws in call `fails_at`, as a process that is killed there would stop.
class Shifted : public Tokenizer {
 public:
  explicit Shifted(int64_t vocab_size = 256, int32_t first = 0, int64_t fails_at = -1)
      : vocab_size_(vocab_size), first_(first), left_(fails_at) {}
  void open(const std::string&) override {}
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = vocab_size_, facts.eod = 0;
    return facts;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    if (left_-- == 0) throw Error(ErrorCode::io, "stopped");
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) + first_);
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (const int32_t id : ids) text += static_cast<char>(id - first_);
  }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }

 private:
  const int64_t vocab_size_;
  const int32_t first_;
  mutable std::atomic<int64_t> left_;
};

// Puts something in the place of a file while texts are encoded.
struct InTheWay : Shifted {
  explicit InTheWay(std::string name) : path(std::move(name)) {}
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::filesystem::create_directories(path + "/something");
    Shifted::encode(text, ids);
  }
  const std::string path;
};

class DataTools : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  OpenedTokenizer tokenizer(int64_t vocab_size = 256, int32_t first = 0, int64_t fails_at = -1) const {
    auto made = std::make_shared<Shifted>(vocab_size, first, fails_at);
    return {"tokenizer/shifted", made, made->facts()};
  }
  PrepareRequest request(const std::string& output, std::vector<std::string> inputs) const {
    PrepareRequest request;
    request.inputs = std::move(inputs), request.output = folder_ / output, request.threads = 3;
    request.seconds_between_saves = 0;  // after every block
    return request;
  }
  std::string both(const std::string& output) const {
    return folder_.text(output + ".bin") + "|" + folder_.text(output + ".idx");
  }
  static std::vector<std::string> texts_of(const TokenFile& file) {
    std::vector<std::string> texts;
    for (uint64_t d = 0; d < file.documents(); ++d) {
      texts.emplace_back();
      for (const int64_t id : file.document(d)) texts.back() += static_cast<char>(id);
    }
    return texts;
  }

  const TempFolder folder_;
  Host host_;
};

}  // namespace drivetrain::test
