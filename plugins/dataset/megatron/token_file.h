// A pair PREFIX.bin and PREFIX.idx: tokens by place in the file or by sequence, as int64, checked against the
// vocabulary. Thread: const calls from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "index_file.h"

namespace drivetrain::megatron {

class TokenFile {
 public:
  // Ids are from 0 to vocabulary - 1. Error(config) if there is no such pair, Error(io) if it is damaged.
  TokenFile(const std::string& prefix, int64_t vocabulary);

  const std::string& prefix() const { return prefix_; }
  const IndexFile& index() const { return index_; }
  const DataFile& file() const { return file_; }
  int64_t token_bytes() const { return bytes_of(index_.type()); }

  // `count` tokens from this byte of the .bin file on; the sequences there lie one after another.
  void read(int64_t byte, int64_t count, int64_t* tokens) const;
  void expect(int64_t byte, int64_t count) const { file_.expect(byte, count * token_bytes()); }
  // `count` tokens of a sequence from its token `first` on.
  void read_sequence(int64_t sequence, int64_t first, int64_t count, int64_t* tokens) const;

  // Sixteen hexadecimal digits over the sizes and over parts of both files: begin, end, and blocks spread evenly.
  std::string digest() const;

 private:
  void convert(int64_t byte, int64_t count, int64_t* tokens) const;
  [[noreturn]] void refuse(int64_t byte, int64_t token) const;
  std::string place_of(int64_t byte) const;

  const std::string prefix_;
  const int64_t vocabulary_;
  IndexFile index_;
  DataFile file_;
};

}  // namespace drivetrain::megatron
