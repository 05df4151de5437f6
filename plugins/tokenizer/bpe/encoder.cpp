#include "encoder.h"

#include <algorithm>

#include <drivetrain/error.h>

#include <drivetrain/toolkit/text/utf8.h>
#include "nfc.h"

namespace drivetrain::bpe {
namespace {

// Whether a byte can be part of valid UTF-8.
bool is_used(size_t byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

// The number of ids. An id far behind the number of tokens is a mistake in the file, and the table by ids would take
// the memory for it: real vocabularies leave a few thousand ids unused.
size_t count_ids(const std::vector<std::pair<std::string, int32_t>>& tokens, const std::vector<AddedToken>& added,
                 const std::string& where) {
  int32_t highest = -1;
  const std::string* name = nullptr;
  const auto look = [&](const std::string& token, int32_t id) {
    if (id > highest) highest = id, name = &token;
  };
  for (const auto& [token, id] : tokens) look(token, id);
  for (const AddedToken& token : added) look(token.content, token.id);
  const size_t count = tokens.size() + added.size(), most = 4 * count + 65536;
  if (name && static_cast<size_t>(highest) > most)
    throw fail(ErrorCode::config, where, ": the token \"", *name, "\" has the id ", highest, ", and there are ", count,
               " tokens; the highest id that is taken for so many is ", most, ", so check the id");
  return static_cast<size_t>(highest + 1);
}

// A token that is a single character.
void add_character(std::string_view token, int32_t id, std::vector<int32_t>& characters) {
  if (token.empty() || valid_utf8(token) != token.size()) return;
  const CodePoint one = code_point(token, 0);
  if (one.length != token.size()) return;
  if (one.value >= characters.size()) characters.resize(one.value + 1, -1);
  characters[one.value] = id;
}

}  // namespace

Encoder::Encoder(Definition definition)
    : added_(std::move(definition.added)),
      nfc_(definition.nfc),
      blanks_(definition.blanks),
      by_words_(blanks_ && (blanks_->split || (!definition.whole_first && ends_before_blanks(definition.tokens)))),
      pieces_(std::move(definition.cuts)) {
  const std::string& where = definition.files.front();
  bytes_.resize(count_ids(definition.tokens, added_, where));

  TokenIds by_bytes;
  std::array<int32_t, 256> of_byte;
  of_byte.fill(-1);
  std::vector<int32_t> characters;
  for (const auto& [name, id] : definition.tokens) {
    names_.emplace(name, id);
    std::optional<std::string> bytes = bytes_of(name);
    std::optional<std::string>& place = bytes_[static_cast<size_t>(id)];
    if (place) throw fail(ErrorCode::config, where, ": two tokens have the id ", id, ", one of them \"", name, "\"");
    place = bytes ? *bytes : name;
    if (!bytes) continue;
    std::optional<unsigned char> byte;
    if (blanks_)
      byte = byte_of_token(name);
    else if (bytes->size() == 1)
      byte = static_cast<unsigned char>((*bytes)[0]);
    if (byte) of_byte[*byte] = id;
    if (blanks_ && !byte) add_character(name, id, characters);
    by_bytes.emplace(blanks_ ? name : std::move(*bytes), id);
  }
  for (size_t byte = 0; byte < 256; ++byte)
    if (of_byte[byte] < 0 && is_used(byte))
      throw fail(ErrorCode::config, where, ": no token stands for byte ", byte, ", so texts with it would lose it");
  for (const AddedToken& token : added_) {
    const auto [known, fresh] = names_.emplace(token.content, token.id);
    if (!fresh && known->second != token.id)
      throw fail(ErrorCode::config, where, ": added_tokens: \"", token.content, "\" has the id ", token.id, ", and ",
                 known->second, " elsewhere in the file");
    std::optional<std::string>& place = bytes_[static_cast<size_t>(token.id)];
    if (fresh && place)
      throw fail(ErrorCode::config, where, ": added_tokens: the id ", token.id, " of \"", token.content,
                 "\" is that of another token");
    if (fresh) place = bytes_of(token.content).value_or(token.content);
  }
  merges_ =
      std::make_unique<Merges>(by_bytes, of_byte, definition.merges, definition.whole_first, std::move(characters));
  in_text_ = finder(false);
  in_normalized_ = finder(true);
}

std::optional<std::string> Encoder::bytes_of(const std::string& token) const {
  return blanks_ ? text_of_token(token) : token_bytes(token);
}

std::string_view Encoder::normalized(std::string_view text, std::string& buffer) const {
  if (blanks_) return blanks_->normalized(text, buffer);
  return nfc_ ? to_nfc(text, buffer) : text;
}

std::unique_ptr<TokenFinder> Encoder::finder(bool in_normalized) const {
  std::vector<std::pair<std::string, const AddedToken*>> list;
  std::string buffer;
  for (const AddedToken& token : added_)
    if (token.normalized == in_normalized)
      list.emplace_back(in_normalized ? std::string(normalized(token.content, buffer)) : token.content, &token);
  return std::make_unique<TokenFinder>(std::move(list));
}

void Encoder::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const auto work = work_.take();
  if (valid_utf8(text) != text.size()) {
    work->replaced.clear();
    append_replaced(text, work->replaced);
    text = work->replaced;
  }
  in_text_->split(text, work->parts);
  for (const TokenFinder::Part& part : work->parts) {
    if (part.token)
      ids.push_back(part.token->id);
    else
      encode_text(text.substr(part.begin, part.end - part.begin), part.begin == 0, *work, ids);
  }
}

void Encoder::encode_text(std::string_view text, bool begins, Workspace& work, std::vector<int32_t>& ids) const {
  text = normalized(text, work.normalized);
  in_normalized_->split(text, work.inner_parts);
  for (const TokenFinder::Part& part : work.inner_parts) {
    const std::string_view inner = text.substr(part.begin, part.end - part.begin);
    if (part.token)
      ids.push_back(part.token->id);
    else if (blanks_)
      encode_words(inner, begins && part.begin == 0, work, ids);
    else
      pieces_.each(inner, [&](std::string_view piece) { merges_->encode(piece, work.merges, ids); });
  }
}

void Encoder::encode_words(std::string_view text, bool begins, Workspace& work, std::vector<int32_t>& ids) const {
  text = blanks_->part(text, begins, work.part);
  if (!by_words_) return merges_->encode(text, work.merges, ids);
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_word(text, at, blanks_->split);
    merges_->encode(text.substr(at, end - at), work.merges, ids);
    at = end;
  }
}

void Encoder::decode(std::span<const int32_t> ids, std::string& text) const {
  const size_t begin = text.size();
  for (const int32_t id : ids) {
    const bool known = id >= 0 && static_cast<size_t>(id) < bytes_.size() && bytes_[static_cast<size_t>(id)];
    if (!known)
      throw fail(ErrorCode::config, "token ", id, " is none of this tokenizer, which has ", bytes_.size(), " ids");
    text += *bytes_[static_cast<size_t>(id)];
  }
  if (blanks_ && blanks_->strips_first && text.size() > begin && text[begin] == ' ') text.erase(begin, 1);
}

bool Encoder::is_added(int32_t id) const {
  return std::any_of(added_.begin(), added_.end(), [&](const AddedToken& token) { return token.id == id; });
}

std::optional<int32_t> Encoder::id_of(std::string_view token) const {
  const auto found = names_.find(token);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace drivetrain::bpe
