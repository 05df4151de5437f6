// Where tokens stand in a text that they do not spell letter by letter. The golden tests of chat templates compare with
// transformers; these are the cases by themselves.
#include "learned_tokens.h"

#include <gtest/gtest.h>

#include <drivetrain/toolkit/chat/template_text.h>

namespace drivetrain::test {
namespace {

using instruction::tokens_in_spans;

// A token per letter. "<s>" takes the white space behind it, a blank is put in front of what follows it, and "e" with
// an acute accent behind it is one letter, as a normaliser has it. "[C]" is a control token: no text has it.
class Letters : public Tokenizer {
 public:
  void open(const std::string&) override {}
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = 500;
    return facts;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (size_t at = 0; at < text.size();) {
      const std::string_view rest = text.substr(at);
      if (rest.starts_with("<s>")) {
        ids.push_back(kMark);
        at = std::min(text.find_first_not_of(" \n", at + 3), text.size());
        if (at < text.size()) ids.push_back(' ');
      } else if (rest.starts_with("e\u0301")) {
        ids.push_back(kAccent), at += 3;
      } else {
        ids.push_back(static_cast<unsigned char>(text[at++]));
      }
    }
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (const int32_t id : ids)
      text += id == kControl  ? ""
              : id == kMark   ? "<s>"
              : id == kAccent ? "\u00e9"
                              : std::string(1, static_cast<char>(id));
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    if (token == "<s>") return kMark;
    if (token == "[C]") return kControl;
    if (token == "[X]" || token == "<x>") return 'q';
    return std::nullopt;
  }

  static constexpr int32_t kMark = 300, kAccent = 301, kControl = 302;
};

const Letters kLetters;

// A digit per token: 1 where it is in the span.
std::string in_span(const std::string& text, size_t begin, size_t end) {
  std::vector<int32_t> ids;
  kLetters.encode(text, ids);
  std::string digits;
  const std::optional<std::vector<char>> found = tokens_in_spans(kLetters, ids, text, {{begin, end}});
  for (const char in : *found) digits += in ? '1' : '0';
  return digits;
}

TEST(LearnedTokens, letters_stand_where_they_are_spelled) {
  EXPECT_EQ(in_span("abcd", 1, 3), "0110");
  EXPECT_EQ(in_span("abcd", 2, 2), "0000");
}

TEST(LearnedTokens, a_blank_that_is_put_in_front_belongs_to_the_letter_behind_it) {
  EXPECT_EQ(in_span("<s>ab", 3, 4), "0110") << "<s>, blank, a, b";
  EXPECT_EQ(in_span("<s>ab", 0, 3), "1000");
}

TEST(LearnedTokens, white_space_belongs_to_the_token_that_took_it) {
  const std::string text = "x<s>\n ab";  // x, <s>, blank, a, b
  EXPECT_EQ(in_span(text, 6, 7), "00110");
  EXPECT_EQ(in_span(text, 5, 7), "01110") << "the span begins with a blank of <s>";
  EXPECT_EQ(in_span(text, 0, 5), "11000");
}

TEST(LearnedTokens, letters_that_a_normaliser_joins_are_learned_as_a_whole) {
  const std::string text = "ae\u0301b";  // a, e with its accent, b
  EXPECT_EQ(in_span(text, 1, 4), "010");
  EXPECT_EQ(in_span(text, 1, 2), "010");
  EXPECT_EQ(in_span(text, 4, 5), "001");
}

TEST(TemplateText, only_tokens_that_no_text_has_are_put_in) {
  UnknownMarks unknown;
  bool hidden = false;
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(encode_template_text(kLetters, "[X]", unknown, &hidden), (Ids{'[', 'X', ']'}));
  EXPECT_EQ(encode_template_text(kLetters, "<x>", unknown, &hidden), (Ids{'<', 'x', '>'}))
      << "a word of the vocabulary";
  EXPECT_FALSE(hidden);
  EXPECT_EQ(encode_template_text(kLetters, "a[C]b<s>", unknown, &hidden),
            (Ids{'a', Letters::kControl, 'b', Letters::kMark}));
  EXPECT_TRUE(hidden);
  EXPECT_EQ(unknown, (UnknownMarks{{"<x>", 3}}));
}

}  // namespace
}  // namespace drivetrain::test
