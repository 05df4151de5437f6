// A tokenizer for tests: a byte is a token, and so are some marks, from 256 on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

namespace drivetrain::test {

class MarkedBytes : public Tokenizer {
 public:
  std::vector<int32_t> prefix;  // as a tokenizer's files may say

  void open(const std::string&) override {}
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = 261;
    facts.prefix = prefix;
    return facts;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    while (!text.empty()) {
      int32_t id = static_cast<unsigned char>(text[0]);
      size_t length = 1;
      for (size_t i = 0; i < kFound; ++i)
        if (text.starts_with(kMarks[i]))
          id = 256 + static_cast<int32_t>(i), length = std::string_view(kMarks[i]).size();
      ids.push_back(id);
      text.remove_prefix(length);
    }
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    std::vector<int64_t> written(ids.begin(), ids.end());
    std::erase(written, 260);
    text += text_of(written);
  }
  // </s>, 260, is found in no text and decodes to nothing, as SentencePiece has it.
  std::optional<int32_t> id_of(std::string_view token) const override {
    for (size_t i = 0; i < std::size(kMarks); ++i)
      if (token == kMarks[i]) return 256 + static_cast<int32_t>(i);
    return std::nullopt;
  }

  // -100 is "_".
  static std::string text_of(const std::vector<int64_t>& ids) {
    std::string text;
    for (const int64_t id : ids)
      if (id >= 256)
        text += kMarks[id - 256];
      else
        text += id < 0 ? '_' : static_cast<char>(id);
    return text;
  }

 private:
  static constexpr const char* kMarks[] = {"<|im_start|>", "<|im_end|>", "<|bos|>", "<|eos|>", "</s>"};
  static constexpr size_t kFound = 4;
};

}  // namespace drivetrain::test
