#include "generate/text_tokens.h"

#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/chat/template_text.h>
#include <drivetrain/toolkit/text/utf8.h>

#include "report/facts.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

// Models have room for more ids than their tokenizer has, so that shapes are multiples of something.
constexpr int64_t kMostSpareIds = 1024;

bool is_file(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

// A number, a list of numbers, or nothing.
template <class Take>
void each_id(const Value* ids, const Take& take) {
  if (!ids) return;
  if (ids->is_int()) take(ids->as_int());
  if (!ids->is_array()) return;
  for (const Value& id : ids->items())
    if (id.is_int()) take(id.as_int());
}

std::optional<OpenedTokenizer> find(const std::string& folder, const std::string& named,
                                    const TokenizerReaders& readers) {
  if (!named.empty()) return readers.open(named);
  const Value config = run_config(folder);
  if (const Value* section = tokenizer_section(config))
    return readers.open_section(*section, fs::path(folder) / "resolved.json");
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "final"})
    if (readers.recognized(place.string())) return readers.open(place.string());
  return std::nullopt;
}

// Where the last character of `text` begins if some of its bytes are missing; else the end.
size_t whole_characters(const std::string& text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

// A model may say bytes that make no character.
std::string valid(const std::string& text) {
  std::string made;
  append_replaced(text, made);
  return made;
}

}  // namespace

Value run_config(const std::string& folder) {
  const fs::path path = fs::path(folder) / "resolved.json";
  return is_file(path) ? read_json_file(path) : Value();
}

TextEnds text_ends(const std::string& folder, const TokenizerFacts& tokenizer) {
  TextEnds text{tokenizer.prefix, {}};
  const auto ends = [&](int64_t id) { text.ends.insert(id); };
  if (tokenizer.eos) ends(*tokenizer.eos);
  if (tokenizer.eod) ends(*tokenizer.eod);
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "final"})
    for (const char* file : {"generation_config.json", "config.json"})
      if (const fs::path path = place / file; is_file(path)) {
        each_id(read_json_file(path).find("eos_token_id"), ends);
        break;
      }
  const Value config = run_config(folder);
  const Value* const facts = config.find("_resolved");
  if (!facts) return text;
  for (const int32_t id : listed_tokens(*facts, "end_tokens").value_or(std::vector<int32_t>{})) ends(id);
  if (const auto begin = listed_tokens(*facts, "begin_tokens")) text.begin = *begin;
  return text;
}

std::optional<OpenedTokenizer> tokenizer_of(const std::string& folder, const std::string& named, int64_t vocab_size,
                                            const TokenizerReaders& readers) {
  std::optional<OpenedTokenizer> found = find(folder, named, readers);
  if (!found) return found;
  const int64_t ids = found->facts.vocab_size;
  const std::string files = found->facts.files.empty() ? "" : " of " + found->facts.files.front();
  if (ids > vocab_size || ids + kMostSpareIds < vocab_size)
    throw fail(
        ErrorCode::config, found->id, files, " has ", ids, " ids, and the model in ", folder, " ", vocab_size,
        ": they do not belong together\n   give the tokenizer that the model was trained with: --tokenizer FOLDER");
  return found;
}

TextStream::TextStream(const Tokenizer* tokenizer, const std::vector<int64_t>& prompt)
    : tokenizer_(tokenizer), ids_(prompt.begin(), prompt.end()) {
  if (tokenizer_) tokenizer_->decode(ids_, text_);
  shown_ = text_.size();
}

std::string TextStream::add(int64_t id) {
  if (!tokenizer_) return id < 256 ? std::string(1, static_cast<char>(id)) : std::string();
  ids_.push_back(static_cast<int32_t>(id));
  text_.clear();  // all of it again: the text of a token may depend on those before
  tokenizer_->decode(ids_, text_);
  const size_t end = std::max(shown_, whole_characters(text_));
  const std::string fresh = text_.substr(std::min(shown_, text_.size()), end - shown_);
  shown_ = end;
  return valid(fresh);
}

std::string TextStream::rest() const { return valid(text_.substr(std::min(shown_, text_.size()))); }

ModelTexts::ModelTexts(const std::string& folder, const std::string& named, const Model& model,
                       const TokenizerReaders& readers)
    : folder_(folder),
      tokenizer_(tokenizer_of(folder, named, model.facts().vocab_size, readers)),
      vocab_size_(model.facts().vocab_size),
      bytes_(model.byte_vocabulary()),
      ends_(!tokenizer_ && bytes_ ? TextEnds() : text_ends(folder, tokenizer_ ? tokenizer_->facts : TokenizerFacts())) {
}

std::vector<int64_t> ModelTexts::tokens_of_written(const std::string& text) const {
  if (!tokenizer_) return bytes_of(text);
  UnknownMarks unknown;
  const std::vector<int32_t> ids = encode_template_text(*tokenizer_->tokenizer, text, unknown);
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> ModelTexts::bytes_of(const std::string& text) const {
  if (!bytes_)
    throw fail(ErrorCode::config, folder_, " has a vocabulary of ", vocab_size_,
               " tokens and holds no tokenizer\n   give the one that the model was trained with: --tokenizer FOLDER");
  std::vector<int64_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::vector<int64_t> ModelTexts::ids_of(const Prompt& prompt) const {
  std::vector<int64_t> ids;
  for (const Value& id : prompt.given.items()) {
    ids.push_back(id.as_int());
    if (ids.back() >= vocab_size_)
      throw fail(ErrorCode::config, prompt.where, ": token ", ids.back(), " of the prompt: the model in ", folder_,
                 " has ", vocab_size_, " tokens, 0 to ", vocab_size_ - 1);
  }
  return ids;
}

std::vector<int64_t> ModelTexts::tokens_of(const Prompt& prompt) const {
  if (!prompt.given.is_string()) return ids_of(prompt);
  const std::string& text = prompt.given.as_string();
  std::vector<int32_t> ids;
  if (tokenizer_) tokenizer_->tokenizer->encode(text, ids);
  std::vector<int64_t> tokens = tokenizer_ ? std::vector<int64_t>(ids.begin(), ids.end()) : bytes_of(text);
  const std::vector<int32_t>& begin = ends_.begin;
  const bool begun = tokens.size() >= begin.size() && std::equal(begin.begin(), begin.end(), tokens.begin());
  if (tokenizer_ && !begun) tokens.insert(tokens.begin(), begin.begin(), begin.end());
  if (tokens.empty())
    throw fail(ErrorCode::config, "generate: the prompt has no token in ", tokenizer_->id, " (", prompt.where, ")");
  return tokens;
}

std::unique_ptr<TextStream> ModelTexts::stream(const std::vector<int64_t>& prompt) const {
  if (!tokenizer_ && !bytes_) return nullptr;
  return std::make_unique<TextStream>(tokenizer_ ? tokenizer_->tokenizer.get() : nullptr, prompt);
}

}  // namespace drivetrain
