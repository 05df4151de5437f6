// A tokenizer for tests: a byte is a token, and so is what stands in <|...|>, from 256 on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

namespace drivetrain::test {

class MarkedBytes : public Tokenizer {
 public:
  void open(const std::string&) override {}
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = 260;
    return facts;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    while (!text.empty()) {
      int32_t id = static_cast<unsigned char>(text[0]);
      size_t length = 1;
      for (size_t i = 0; i < std::size(kMarks); ++i)
        if (text.starts_with(kMarks[i]))
          id = 256 + static_cast<int32_t>(i), length = std::string_view(kMarks[i]).size();
      ids.push_back(id);
      text.remove_prefix(length);
    }
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    text += text_of({ids.begin(), ids.end()});
  }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }

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
  static constexpr const char* kMarks[] = {"<|im_start|>", "<|im_end|>", "<|bos|>", "<|eos|>"};
};

}  // namespace drivetrain::test
