// Token files opened for reading: what they hold, and every check of their form. One thread, since
// reading moves windows over the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data_tools/block_file.h"
#include "data_tools/token_file_layout.h"
#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL TokenFile {
 public:
  // `prefix` without .bin and .idx; either of them may stand at its end. Error(io) if a file cannot be read, or if the
  // header does not make sense; so do all calls below if the files can no longer be read.
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
  void read_header();
  int64_t token(uint64_t offset) const;  // at this byte of .bin
  // Adds the wrong ones among `count` tokens from this byte of .bin on; the first of them has this position.
  void add_wrong_ids(uint64_t offset, uint64_t count, uint64_t end, uint64_t document, uint64_t position,
                     std::vector<std::string>& list, size_t most) const;

  const std::string prefix_;
  const OpenFile idx_, bin_;
  mutable BlockWindow lengths_{idx_}, begins_{idx_}, documents_{idx_}, tokens_{bin_};
  const TokenType* type_ = nullptr;
  uint64_t sequences_ = 0, entries_ = 0;
};

}  // namespace drivetrain
