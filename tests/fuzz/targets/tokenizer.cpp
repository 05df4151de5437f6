// tokenizer.json, and the regular expressions in it.
#include "tokenizer/bpe/encoder.h"

#include "all.h"
#include "scratch.h"
#include "tokenizer/bpe/pattern.h"

namespace drivetrain::fuzz {
namespace {

constexpr const char* kText =
    "Hello  world's 1234567 don't\n\n  \xC3\xA9t\xC3\xA9 <|endoftext|> \xE4\xBD\xA0\xE5\xA5\xBD\t!?\xFF";

void read_tokenizer(const std::string& input) {
  const bpe::Encoder encoder(bpe::read_tokenizer_json(scratch_file("tokenizer.json", input)));
  std::vector<int32_t> ids;
  encoder.encode(kText, ids);
  for (const int32_t id : ids) FUZZ_CHECK(id >= 0 && id < encoder.vocab_size());
  std::string text;
  encoder.decode(ids, text);
}

// The first line is the expression, the rest a text in which it is looked for.
void read_pattern(const std::string& input) {
  const size_t end = std::min(input.find('\n'), input.size());
  const bpe::Pattern pattern(input.substr(0, end), "fuzz");
  std::string text;
  append_replaced(input.substr(std::min(end + 1, input.size())).substr(0, 200) + kText, text);
  for (size_t at = 0; at < text.size();) {
    const auto found = pattern.find(text, at);
    if (found.begin == bpe::Pattern::kNone) break;
    FUZZ_CHECK(found.begin >= at && found.end >= found.begin && found.end <= text.size());
    at = found.end + (found.end == found.begin);
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
}

Inputs tokenizer_seeds() {
  Inputs files;
  for (const char* name : {"deepseek", "digits", "llama2", "llama3", "mistral", "o200k", "qwen2"})
    files.push_back(source_file(std::string("tests/golden/data/tokenizer_files/") + name + "/tokenizer.json"));
  return files;
}

Inputs pattern_seeds() {
  return {
      std::string(bpe::kGpt2Pattern) + "\nwe're  here 12",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
      "\nA b\r\n",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}|\s++)"
      "\nABc"};
}

}  // namespace

Target tokenizer_target() {
  return {"tokenizer",
          "tokenizer.json",
          read_tokenizer,
          tokenizer_seeds,
          {"\"added_tokens\":",
           "\"merges\":",
           "\"vocab\":",
           "\"pre_tokenizer\":",
           "\"Split\"",
           "\"Regex\":",
           "\"String\":",
           "\"ByteLevel\"",
           "\"Sequence\"",
           "null",
           "[]",
           "{}",
           "\"\"",
           "2147483646",
           "-1",
           "\\u0120",
           "true",
           "\"lstrip\": true",
           "\"Metaspace\"",
           "\u2581",
           "<0x0A>"},
          "tokenizer.json",
          8};
}
Target token_pattern_target() {
  return {"token_pattern",
          "regular expressions of pre-tokenizers",
          read_pattern,
          pattern_seeds,
          {"\\p{L}",         "\\p{^N}", "\\s", "\\S", "[^", "]",   "(?i:", "(?!", "(?=", ")", "|", "{1,3}",
           "{0,4294967295}", "*",       "+",   "?",   "++", "\\d", "-",    "(",   "&&",  "$", "^", "."},
          "fuzz",
          8};
}

}  // namespace drivetrain::fuzz
