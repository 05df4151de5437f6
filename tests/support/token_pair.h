// Token files as Megatron-LM writes them, PREFIX.bin and PREFIX.idx, for tests; and single bytes of them changed.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace drivetrain::test {

using TokenDocuments = std::vector<std::vector<int64_t>>;

template <class T>
void append_as(std::string& bytes, int64_t value) {
  const T typed = static_cast<T>(value);
  bytes.append(reinterpret_cast<const char*>(&typed), sizeof typed);
}

inline int64_t token_bytes_of(int code) { return code <= 2 ? 1 : code == 3 || code == 8 ? 2 : code == 4 ? 4 : 8; }

// Codes: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16.
inline void append_token(std::string& bytes, int64_t token, int code) {
  bytes.append(reinterpret_cast<const char*>(&token), static_cast<size_t>(token_bytes_of(code)));  // little-endian
}

// Each document is one sequence; `sequences_each` of them, one after another, are a document.
inline void write_token_pair(const std::string& prefix, const TokenDocuments& sequences, int code = 8,
                             size_t sequences_each = 1) {
  std::string bin, lengths, pointers, documents;
  for (size_t i = 0; i < sequences.size(); ++i) {
    append_as<int32_t>(lengths, static_cast<int64_t>(sequences[i].size()));
    append_as<int64_t>(pointers, static_cast<int64_t>(bin.size()));
    if (i % sequences_each == 0) append_as<int64_t>(documents, static_cast<int64_t>(i));
    for (const int64_t token : sequences[i]) append_token(bin, token, code);
  }
  append_as<int64_t>(documents, static_cast<int64_t>(sequences.size()));
  std::string idx("MMIDIDX\0\0", 9);
  append_as<uint64_t>(idx, 1), append_as<uint8_t>(idx, code);
  append_as<uint64_t>(idx, static_cast<int64_t>(sequences.size()));
  append_as<uint64_t>(idx, static_cast<int64_t>(documents.size() / 8));
  std::ofstream(prefix + ".bin", std::ios::binary) << bin;
  std::ofstream(prefix + ".idx", std::ios::binary) << idx + lengths + pointers + documents;
}

// `count` documents of `first` tokens, one more each until `most`, then `first` again; all ids are different up to 250.
inline TokenDocuments counted_documents(int64_t count, int64_t first, int64_t most) {
  TokenDocuments documents;
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    documents.emplace_back();
    for (int64_t j = 0; j < first + i % (most - first + 1); ++j) documents.back().push_back(next++ % 250);
  }
  return documents;
}

template <class T>
void overwrite(const std::string& path, int64_t at, T value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace drivetrain::test
