#include "normalizer.h"

#include <cstring>

#include <drivetrain/error.h>

namespace drivetrain::sentencepiece_models {
namespace {

// A unit of darts-clone's double array: a child is at this unit's index ^ offset ^ byte and has the byte as its label;
// the value of a node is in the unit at its index ^ offset.
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFFu); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1u) != 0; }
uint32_t value_of(uint32_t unit) { return unit & ((1u << 31) - 1); }

bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

}  // namespace

Normalizer::Normalizer(NormalizerSpec spec, bool blank_behind, const Trie& user_defined, const std::string& where)
    : spec_(std::move(spec)),
      blank_behind_(blank_behind),
      user_defined_(user_defined),
      blank_(spec_.escape_whitespaces ? kBlank : std::string_view(" ")) {
  const std::string_view rules = spec_.rules;
  if (!rules.empty()) {
    uint32_t size = 0;
    if (rules.size() > sizeof(size)) std::memcpy(&size, rules.data(), sizeof(size));
    if (size < 4 || size % 4 != 0 || rules.size() - sizeof(size) <= size || rules.back() != '\0')
      throw fail(ErrorCode::config, where, ": is no whole model of SentencePiece: its rules for characters ",
                 "(precompiled_charsmap) are damaged; copy or download the file again");
    units_.resize(size / 4);
    std::memcpy(units_.data(), rules.data() + sizeof(size), size);
    replacements_ = rules.substr(sizeof(size) + size);
  }
  for (size_t c = 0; c < plain_.size(); ++c) {
    char both[2] = {static_cast<char>(c), 0};
    plain_[c] = !user_defined_.begins(both[0]) && rule({both, 1}).length == 0;
    for (int next = 0; next < 128 && plain_[c]; ++next) {
      both[1] = static_cast<char>(next);
      plain_[c] = rule({both, 2}).reached < 2;
    }
  }
}

Normalizer::Rule Normalizer::rule(std::string_view text) const {
  Rule found;
  if (units_.empty()) return found;
  size_t node = offset_of(units_[0]);
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at++]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    found.reached = at;
    const bool ends = has_value(units_[node]);
    node ^= offset_of(units_[node]);
    if (!ends || node >= units_.size()) continue;
    const size_t replacement = value_of(units_[node]);
    if (replacement < replacements_.size()) found.length = at, found.replacement = replacement;
  }
  return found;
}

Normalizer::Begin Normalizer::begin(std::string_view text) const {
  if (!user_defined_.empty()) {
    const size_t length = user_defined_.longest(text).first;
    if (length > 0) return {text.substr(0, length), length};
  }
  const Rule found = rule(text);
  if (found.length > 0) return {replacements_.data() + found.replacement, found.length};
  const size_t length = character_length(text, 0);
  return {text.substr(0, length), length};
}

bool Normalizer::is_plain(std::string_view text, size_t at) const {
  return is_ascii(text[at]) && plain_[static_cast<size_t>(text[at])] &&
         (at + 1 == text.size() || is_ascii(text[at + 1]));
}

// Of blanks behind each other, the first one where extra ones are removed.
void Normalizer::append(std::string_view piece, bool& behind_blank, std::string& made) const {
  while (behind_blank && piece.starts_with(' ')) piece.remove_prefix(1);
  if (piece.empty()) return;
  for (const char c : piece) {
    if (c == ' ')
      made += blank_;
    else
      made += c;
  }
  behind_blank = spec_.remove_extra_whitespaces && piece.ends_with(' ');
}

void Normalizer::normalize(std::string_view text, std::string& made) const {
  made.clear();
  bool behind_blank = spec_.remove_extra_whitespaces;
  while (behind_blank && !text.empty()) {
    const Begin first = begin(text);
    if (first.made != " ") break;
    text.remove_prefix(first.length);
  }
  if (text.empty()) return;
  if (!blank_behind_ && spec_.add_dummy_prefix) made += blank_;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && text[end] != ' ' && is_plain(text, end)) ++end;
    if (end > at) {
      made += text.substr(at, end - at);
      behind_blank = false;
      at = end;
    } else if (text[at] == ' ' && is_plain(text, at)) {
      append(" ", behind_blank, made);
      ++at;
    } else {
      const Begin next = begin(text.substr(at));
      append(next.made, behind_blank, made);
      at += next.length;
    }
  }
  if (spec_.remove_extra_whitespaces)
    while (made.ends_with(blank_)) made.resize(made.size() - blank_.size());
  if (blank_behind_ && spec_.add_dummy_prefix) made += blank_;
}

}  // namespace drivetrain::sentencepiece_models
