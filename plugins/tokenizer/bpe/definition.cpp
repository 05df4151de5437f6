#include "definition.h"

#include <algorithm>
#include <array>
#include <limits>

#include <drivetrain/error.h>

#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::bpe {
namespace {

constexpr uint32_t kLastCharacter = 0x143;

// GPT-2's table: printable bytes are themselves, the others count on from 256.
std::array<int16_t, kLastCharacter + 1> byte_of_character() {
  std::array<int16_t, kLastCharacter + 1> bytes;
  bytes.fill(-1);
  size_t further = 256;
  for (int16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    bytes[printable ? static_cast<size_t>(b) : further++] = b;
  }
  return bytes;
}

}  // namespace

std::optional<std::string> token_bytes(std::string_view spelled) {
  static const auto bytes = byte_of_character();
  std::string made;
  for (size_t at = 0; at < spelled.size();) {
    const CodePoint one = code_point(spelled, at);
    if (one.value > kLastCharacter || bytes[one.value] < 0) return std::nullopt;
    made += static_cast<char>(bytes[one.value]);
    at += one.length;
  }
  return made;
}

std::string type_of(const Value& section, const std::string& where) {
  const Value* type = section.find("type");
  if (!type || !type->is_string()) throw fail(ErrorCode::config, where, ": has no \"type\"");
  return type->as_string();
}

const Value& wanted(const Value& section, const char* key, const std::string& where) {
  const Value* value = section.find(key);
  if (!value) throw fail(ErrorCode::config, where, ": has no \"", key, "\"");
  return *value;
}

int32_t token_id(const Value& value, const std::string& where) {
  const int64_t id = value.as_int();
  if (id < 0 || id >= std::numeric_limits<int32_t>::max())
    throw fail(ErrorCode::config, where, ": ", id, " is no id of a token");
  return static_cast<int32_t>(id);
}

void read_tokens(const Value& vocab, Definition& definition, const std::string& where) {
  for (const Value::Member& token : vocab.members())
    definition.tokens.emplace_back(token.key, token_id(token.value, where));
}

AddedToken read_flags(const Value& entry, const std::string& where) {
  AddedToken token;
  token.content = wanted(entry, "content", where).as_string();
  const auto read = [&](const char* key, bool& flag) {
    if (const Value* value = entry.find(key)) flag = value->as_bool();
  };
  read("special", token.special), read("single_word", token.single_word), read("lstrip", token.lstrip);
  read("rstrip", token.rstrip), read("normalized", token.normalized);
  if (token.content.empty()) throw fail(ErrorCode::config, where, ": a token without content");
  return token;
}

void refuse_other_keys(const Value& section, std::initializer_list<const char*> known, const std::string& where) {
  for (const Value::Member& member : section.members())
    if (std::none_of(known.begin(), known.end(), [&](const char* key) { return member.key == key; }))
      throw fail(ErrorCode::config, where, ": has \"", member.key, "\", which this version does not know");
}

MergeReader::MergeReader(Definition& into) : into_(into) {
  for (const auto& [token, id] : into.tokens) ids_.emplace(token, id);
}

int32_t MergeReader::id(const std::string& token, const std::string& where) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) throw fail(ErrorCode::config, where, ": the token \"", token, "\" is not in the vocabulary");
  return found->second;
}

void MergeReader::add(const std::string& left, const std::string& right, const std::string& where) {
  into_.merges.push_back({id(left, where), id(right, where), id(left + right, where)});
}

void MergeReader::add(const std::string& both, const std::string& where) {
  const size_t blank = both.find(' ');
  if (blank == std::string::npos || blank == 0 || blank + 1 == both.size() ||
      both.find(' ', blank + 1) != std::string::npos)
    throw fail(ErrorCode::config, where, ": a merge is two tokens with a blank between them; found \"", both, "\"");
  add(both.substr(0, blank), both.substr(blank + 1), where);
}

}  // namespace drivetrain::bpe
