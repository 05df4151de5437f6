#include "token_file.h"

#include <drivetrain/random.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

namespace drivetrain::megatron {
namespace {

// Message for a prefix without files: people write the name of one of the two files.
const std::string& checked_prefix(const std::string& prefix) {
  std::error_code unknown;
  for (const char* const end : {".idx", ".bin"}) {
    if (std::filesystem::exists(prefix + end, unknown)) continue;
    const bool is_file = prefix.ends_with(".idx") || prefix.ends_with(".bin");
    throw fail(ErrorCode::config, "dataset/megatron: data_path names ", prefix, ", but there is no ", prefix, end,
               is_file ? "\n   data_path is the name without .bin and .idx"
                       : "\n   a prefix stands for PREFIX.bin and PREFIX.idx, relative to the config file");
  }
  return prefix;
}

template <class T>
int64_t widen(const char* bytes, int64_t count, int64_t* tokens) {
  uint64_t most = 0;  // negative ids are the largest
  for (int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof token);
    tokens[i] = static_cast<int64_t>(token);
    most = std::max(most, static_cast<uint64_t>(tokens[i]));
  }
  return static_cast<int64_t>(most);  // below zero: an id is negative
}

// The largest of the ids, below zero if one of them is.
int64_t widen(TokenType type, const char* bytes, int64_t count, int64_t* tokens) {
  switch (type) {
    case TokenType::uint8:
      return widen<uint8_t>(bytes, count, tokens);
    case TokenType::int8:
      return widen<int8_t>(bytes, count, tokens);
    case TokenType::int16:
      return widen<int16_t>(bytes, count, tokens);
    case TokenType::uint16:
      return widen<uint16_t>(bytes, count, tokens);
    case TokenType::int32:
      return widen<int32_t>(bytes, count, tokens);
    case TokenType::int64:
      return widen<int64_t>(bytes, count, tokens);
  }
  return -1;
}

// Blocks of `file`: all of a small one, else sixteen from the first byte to the last.
void append_blocks(const DataFile& file, std::string& bytes) {
  constexpr int64_t kDigestBlocks = 16, kDigestBlock = 4096;
  const int64_t size = file.bytes();
  const bool whole = size <= kDigestBlocks * kDigestBlock;
  for (int64_t i = 0; i < (whole ? 1 : kDigestBlocks); ++i) {
    const int64_t count = whole ? size : kDigestBlock, at = whole ? 0 : (size - kDigestBlock) / (kDigestBlocks - 1) * i;
    const size_t before = bytes.size();
    bytes.resize(before + static_cast<size_t>(count));
    file.read(i + 1 == kDigestBlocks ? size - kDigestBlock : at, bytes.data() + before, count);
  }
}

}  // namespace

TokenFile::TokenFile(const std::string& prefix, int64_t vocabulary)
    : prefix_(checked_prefix(prefix)), vocabulary_(vocabulary), index_(prefix + ".idx"), file_(prefix + ".bin") {
  if (index_.end() > file_.bytes())
    throw fail(ErrorCode::io, "dataset/megatron: ", file_.path(), " has ", file_.bytes(),
               " bytes, but the last of the ", index_.sequences(), " sequences of ", index_.file().path(),
               " ends at byte ", index_.end(),
               "\n   the file was cut short, or belongs to another index: copy both again");
}

void TokenFile::read(int64_t byte, int64_t count, int64_t* tokens) const {
  index_.check_adjacent(byte, byte + count * token_bytes() - 1);
  convert(byte, count, tokens);
}

void TokenFile::read_sequence(int64_t sequence, int64_t first, int64_t count, int64_t* tokens) const {
  if (count == 0) return;
  const int64_t begin = index_.pointer(sequence), length = index_.length(sequence);
  if (first < 0 || first + count > length || begin + length * token_bytes() > file_.bytes())
    throw fail(ErrorCode::io, "dataset/megatron: ", index_.file().path(), ": tokens ", first, " to ", first + count - 1,
               " of sequence ", sequence, " were asked for, which has ", length, " tokens from byte ", begin, " of ",
               file_.path(), " (", file_.bytes(), " bytes) on\n   the files do not belong together: copy both again");
  convert(begin + first * token_bytes(), count, tokens);
}

void TokenFile::convert(int64_t byte, int64_t count, int64_t* tokens) const {
  thread_local std::vector<char> bytes;
  bytes.resize(static_cast<size_t>(count * token_bytes()));
  try {
    file_.read(byte, bytes.data(), static_cast<int64_t>(bytes.size()));
  } catch (const Error& e) {
    throw fail(e.code(), e.what(), "\n   it was to be read for ", place_of(byte));
  }
  const int64_t most = widen(index_.type(), bytes.data(), count, tokens);
  if (most >= 0 && most < vocabulary_) return;
  const int64_t* const bad = std::find_if(tokens, tokens + count, [&](int64_t t) { return t < 0 || t >= vocabulary_; });
  refuse(byte + (bad - tokens) * token_bytes(), *bad);
}

// "document 5, token 17"; with the sequence where a document has several.
std::string TokenFile::place_of(int64_t byte) const {
  const int64_t sequence = index_.sequence_at(byte), document = index_.document_of(sequence);
  const int64_t begin = index_.pointer(index_.first_sequence(document));
  return concat("document ", document, ", token ", (byte - begin) / token_bytes(),
                index_.documents() == index_.sequences() ? "" : concat(" (sequence ", sequence, ")"));
}

void TokenFile::refuse(int64_t byte, int64_t token) const {
  throw fail(ErrorCode::io, "dataset/megatron: ", file_.path(), ": ", place_of(byte), ", at byte ", byte, ": the id ",
             token, " is outside of the model's vocabulary (0 to ", vocabulary_ - 1,
             ")\n   use data made with this model's tokenizer, or set model.params.vocab_size");
}

std::string TokenFile::digest() const {
  std::string bytes = concat(index_.file().bytes(), " ", file_.bytes(), " ");
  append_blocks(index_.file(), bytes);
  append_blocks(file_, bytes);
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash_name(bytes)));
  return text;
}

}  // namespace drivetrain::megatron
