// Token files opened for reading: what they hold, and every check of their form. Const calls from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data_tools/token_file_layout.h"
#include "internal.h"

namespace drivetrain {

// The bytes of a file, mapped. Not to be copied.
class DRIVETRAIN_INTERNAL MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // Error(io)
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const unsigned char* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  const unsigned char* data_ = nullptr;
  uint64_t size_ = 0;
};

class DRIVETRAIN_INTERNAL TokenFile {
 public:
  // `prefix` without .bin and .idx; either of them may stand at its end. Error(io) if a file cannot be read, or if the
  // header does not make sense.
  explicit TokenFile(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const TokenType& type() const { return *type_; }
  uint64_t sequences() const { return sequences_; }
  uint64_t documents() const { return entries_ - 1; }
  uint64_t tokens() const { return bin_.size() / type_->bytes; }
  uint64_t bin_bytes() const { return bin_.size(); }

  int32_t sequence_length(uint64_t sequence) const;
  int64_t sequence_begin(uint64_t sequence) const;    // byte in .bin
  int64_t document_begin(uint64_t document) const;    // sequence; `document` up to documents()
  uint64_t document_length(uint64_t document) const;  // tokens
  std::vector<int64_t> document(uint64_t index, uint64_t most = ~uint64_t{0}) const;  // its tokens, or the first `most`

  // All problems of the form of both files, at most `most` of them, each naming file and place. Reading documents of
  // files with problems is not safe.
  std::vector<std::string> problems(size_t most = 20) const;
  // Ids below 0 or from `vocab_size` on; only the former if that is 0. Reads all of .bin.
  std::vector<std::string> wrong_ids(int64_t vocab_size, size_t most = 20) const;

 private:
  template <class T>
  T number(uint64_t offset) const;
  int64_t token(uint64_t offset) const;  // at this byte of .bin

  const std::string prefix_;
  const MappedFile idx_, bin_;
  const TokenType* type_ = nullptr;
  uint64_t sequences_ = 0, entries_ = 0;
};

}  // namespace drivetrain
