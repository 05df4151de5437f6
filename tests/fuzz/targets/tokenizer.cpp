// tokenizer.json, and the regular expressions in it; models of SentencePiece.
#include "tokenizer/bpe/encoder.h"

#include "all.h"
#include "scratch.h"
#include "tokenizer/bpe/pattern.h"
#include "tokenizer/sentencepiece/encoder.h"

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

void read_sentencepiece(const std::string& input) {
  const std::string file = scratch_file("tokenizer.model", input);
  const sentencepiece_models::Encoder encoder(sentencepiece_models::read_model_file(file), file);
  std::string text, back;
  append_replaced(kText, text);
  std::vector<int32_t> ids;
  encoder.encode(text, ids);
  for (const int32_t id : ids) FUZZ_CHECK(id >= 0 && static_cast<size_t>(id) < encoder.model().pieces.size());
  encoder.decode(ids, back);
}

// Small models of every type: fields of trainer_spec are model_type (3) and byte_fallback (35).
Inputs sentencepiece_seeds() {
  Inputs models{source_file("tests/golden/data/tokenizer_files/sentencepiece/tokenizer.model")};
  const auto field = [](int number, const std::string& bytes) {
    std::string made;
    for (unsigned tag = static_cast<unsigned>(number) << 3 | 2; tag > 0; tag >>= 7)
      made += static_cast<char>((tag & 0x7F) | (tag >= 0x80 ? 0x80 : 0));
    return made + static_cast<char>(bytes.size()) + bytes;
  };
  for (char type = 2; type <= 4; ++type) {
    std::string model = field(1, field(1, "<unk>") + "\x18\x02") + field(1, field(1, "</s>") + "\x18\x03");
    for (const char* piece : {"\u2581", "l", "o", "ll", "llo", "\u2581w", "wo"}) model += field(1, field(1, piece));
    model += field(1, field(1, "Hello") + "\x18\x04") + field(1, field(1, "lo") + "\x18\x05");
    models.push_back(model + field(2, std::string("\x18") + type));
  }
  return models;
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
Target sentencepiece_target() {
  return {"sentencepiece",
          "models of SentencePiece",
          read_sentencepiece,
          sentencepiece_seeds,
          {"\x0A\x05", "\x18\x04", "\x18\x05", "\x12\x02\x18\x01", "\x98\x02\x01", "\xC0\x01\x01", "\x1A\x02\x18"},
          "tokenizer.model",
          8};
}

}  // namespace drivetrain::fuzz
