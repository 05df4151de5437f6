// The .idx file of Megatron's indexed datasets: how long each sequence is, where it begins in the .bin file, and which
// sequences are a document. Opening reads the header and the last entries only, however many documents there are; each
// entry is checked when it is used. Layout, little-endian, N sequences, D documents:
//   "MMIDIDX\0\0", u64 version 1, u8 type, u64 N, u64 D + 1, i32 length[N], i64 pointer[N] (bytes), i64 document[D + 1]
//   (its first sequence), and in files for images i8 mode[N].
// Thread: const calls from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data_file.h"

namespace drivetrain::megatron {

enum class TokenType : uint8_t { uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, uint16 = 8 };
int64_t bytes_of(TokenType type);
const char* name_of(TokenType type);

class IndexFile {
 public:
  // Error(io) naming the file and the byte for what is no index of tokens.
  explicit IndexFile(const std::string& path);

  const DataFile& file() const { return file_; }
  TokenType type() const { return type_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return documents_; }
  int64_t end() const { return end_; }  // of the last sequence in the .bin file, in bytes

  int64_t length(int64_t sequence) const;   // tokens
  int64_t pointer(int64_t sequence) const;  // bytes; of sequences(): end()
  std::vector<int32_t> lengths(int64_t first, int64_t count) const;
  int64_t first_sequence(int64_t document) const;  // of documents(): sequences()
  std::vector<int64_t> first_sequences(int64_t document, int64_t count) const;
  // Each number of a sequence, ascending, becomes its pointer.
  void replace_by_pointers(std::vector<int64_t>& sequences) const;

  // The sequence that holds this byte of the .bin file; needs 0 <= byte < end().
  int64_t sequence_at(int64_t byte) const;
  // The document that holds this sequence.
  int64_t document_of(int64_t sequence) const;
  // That the sequences with these bytes lie one after another: the tokens between are theirs alone. Error(io) if not.
  void check_adjacent(int64_t first_byte, int64_t last_byte) const;

 private:
  template <class T>
  T entry(int64_t table, int64_t i) const;
  void check_header();
  void check_ends();
  template <class At>
  int64_t last_up_to(int64_t wanted, int64_t count, int64_t table, const At& at) const;
  int64_t pointers_at() const { return kHeader + 4 * sequences_; }
  int64_t documents_at() const { return kHeader + 12 * sequences_; }
  template <class... Parts>
  Error wrong(int64_t byte, const Parts&... parts) const;

  static constexpr int64_t kHeader = 34;
  DataFile file_;
  TokenType type_{};
  int64_t sequences_ = 0, documents_ = 0, end_ = 0;
  // The pointers at which each search looks first, by their place in the tree of halves; -1: not read yet.
  std::unique_ptr<std::atomic<int64_t>[]> tops_;
};

}  // namespace drivetrain::megatron
