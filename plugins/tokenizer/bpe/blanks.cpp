#include "blanks.h"

#include <algorithm>

#include <drivetrain/error.h>

#include "definition.h"

namespace drivetrain::bpe {
namespace {

std::string_view with_blanks(std::string_view text, bool one_more, std::string& buffer) {
  buffer.clear();
  if (one_more) buffer += kBlank;
  for (size_t done = 0;;) {
    const size_t blank = std::min(text.find(' ', done), text.size());
    buffer += text.substr(done, blank - done);
    if (blank == text.size()) return buffer;
    buffer += kBlank;
    done = blank + 1;
  }
}

Error unknown(const std::string& where, const Value& section, const char* known) {
  return fail(ErrorCode::config, where, ": ", section.to_json(), " is not known in this version beside byte_fallback; ",
              "known is ", known);
}

bool is(const Value& section, const char* key, const Value& value) {
  const Value* found = section.find(key);
  return found && *found == value;
}

bool is_replace(const Value& section, std::string_view from, std::string_view to) {
  const Value* pattern = section.find("pattern");
  return is(section, "type", "Replace") && pattern && is(*pattern, "String", std::string(from)) &&
         is(section, "content", std::string(to));
}

std::vector<Value> steps_of(const Value& section, const char* key) {
  if (!is(section, "type", "Sequence")) return {section};
  const Value* steps = section.find(key);
  return steps && steps->is_array() ? steps->items() : std::vector<Value>();
}

// A blank in front, then ▁ for all of them.
void read_normalizer(const Value& section, Blanks& blanks, const std::string& where) {
  constexpr const char* kKnown = "Replace of a blank by \u2581, and before it Prepend of \u2581";
  std::vector<Value> steps = steps_of(section, "normalizers");
  if (steps.empty()) return;
  if (!is_replace(steps.back(), " ", kBlank)) throw unknown(where, section, kKnown);
  steps.pop_back();
  blanks.by_normalizer = true;
  if (steps.empty()) return;
  if (steps.size() > 1 || !is(steps[0], "type", "Prepend") || !is(steps[0], "prepend", std::string(kBlank)))
    throw unknown(where, section, kKnown);
  blanks.in_front = Blanks::InFront::each;
}

// Gemma's: a cut behind every blank, of which the normalizer leaves none.
bool cuts_at_blanks(const Value& section) {
  const Value* const pattern = section.find("pattern");
  return is(section, "type", "Split") && pattern && is(*pattern, "String", " ");
}

// Files of before version 0.15 of the library have add_prefix_space instead of prepend_scheme, and always split.
void read_pre_tokenizer_of_blanks(const Value& section, Blanks& blanks, const std::string& where) {
  if (blanks.by_normalizer && cuts_at_blanks(section)) return;
  if (!is(section, "type", "Metaspace")) throw unknown(where, section, "Metaspace");
  refuse_other_keys(section, {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}, where);
  if (!is(section, "replacement", std::string(kBlank))) throw unknown(where, section, "the replacement \u2581");
  if (blanks.by_normalizer)
    throw unknown(where, section, "one of both, Metaspace or a normalizer that replaces blanks");
  const Value* const scheme = section.find("prepend_scheme");
  if (!scheme || *scheme == Value("always"))
    blanks.in_front = Blanks::InFront::each;
  else if (*scheme == Value("first"))
    blanks.in_front = Blanks::InFront::first;
  else if (*scheme != Value("never"))
    throw unknown(where, section, "the schemes always, first and never");
  if (is(section, "add_prefix_space", false)) blanks.in_front = Blanks::InFront::no;
  blanks.split = !is(section, "split", false);
}

void read_decoder(const Value& section, Blanks& blanks, const std::string& where) {
  constexpr const char* kKnown = "Replace of \u2581 by a blank, ByteFallback, Fuse, and Strip of one blank in front";
  for (const Value& step : steps_of(section, "decoders")) {
    if (is_replace(step, kBlank, " ") || is(step, "type", "ByteFallback") || is(step, "type", "Fuse")) continue;
    if (!is(step, "type", "Strip") || !is(step, "content", " ") || !is(step, "start", 1) || !is(step, "stop", 0))
      throw unknown(where, step, kKnown);
    blanks.strips_first = true;
  }
}

bool is_section(const Value* section) { return section && !section->is_null(); }

}  // namespace

std::string_view Blanks::normalized(std::string_view text, std::string& buffer) const {
  if (!by_normalizer || text.empty()) return text;
  return with_blanks(text, in_front == InFront::each, buffer);
}

std::string_view Blanks::part(std::string_view text, bool begins, std::string& buffer) const {
  if (by_normalizer) return text;
  const bool wanted = in_front == InFront::each || (in_front == InFront::first && begins);
  const bool has = text.starts_with(' ') || text.starts_with(kBlank);
  return with_blanks(text, wanted && !has, buffer);
}

Blanks read_blanks(const Value* normalizer, const Value* pre_tokenizer, const Value* decoder,
                   const std::string& where) {
  Blanks blanks;
  if (is_section(normalizer)) read_normalizer(*normalizer, blanks, where + ": normalizer");
  if (is_section(pre_tokenizer)) read_pre_tokenizer_of_blanks(*pre_tokenizer, blanks, where + ": pre_tokenizer");
  if (!is_section(pre_tokenizer) && !blanks.by_normalizer)
    throw fail(ErrorCode::config, where, ": has byte_fallback and neither a pre_tokenizer Metaspace nor a normalizer ",
               "that makes \u2581 of blanks; other vocabularies of characters are not known in this version");
  if (is_section(decoder)) read_decoder(*decoder, blanks, where + ": decoder");
  return blanks;
}

std::optional<unsigned char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return std::nullopt;
    byte = 16 * byte + digit;
  }
  return static_cast<unsigned char>(byte);
}

std::string text_of_token(std::string_view token) {
  if (const auto byte = byte_of_token(token)) return std::string(1, static_cast<char>(*byte));
  std::string text;
  for (size_t done = 0;;) {
    const size_t blank = std::min(token.find(kBlank, done), token.size());
    text += token.substr(done, blank - done);
    if (blank == token.size()) return text;
    text += ' ';
    done = blank + kBlank.size();
  }
}

bool ends_before_blanks(const std::vector<std::pair<std::string, int32_t>>& tokens) {
  return std::none_of(tokens.begin(), tokens.end(), [](const auto& token) { return !is_one_word(token.first); });
}

}  // namespace drivetrain::bpe
