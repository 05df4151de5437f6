// Token files being written, document by document, so that a preparation that was killed goes on where its last
// checkpoint was. Until they are complete they have other names, PREFIX.bin.part and PREFIX.lengths.part. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data_tools/token_file_layout.h"
#include "internal.h"

namespace drivetrain {

// A file that grows at its end.
class GrowingFile {
 public:
  // Keeps the first `bytes` bytes of what is there; Error(io) if there are fewer.
  GrowingFile(const std::string& path, uint64_t bytes);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  void append(const void* data, uint64_t bytes);
  void sync();  // everything so far is on the disk
  uint64_t bytes() const { return written_ + buffer_.size(); }
  const std::string& path() const { return path_; }

 private:
  void flush();
  const std::string path_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  std::vector<char> buffer_;
};

class DRIVETRAIN_INTERNAL TokenWriter {
 public:
  // `documents`, `tokens`: what the last checkpoint had; 0 begins anew.
  TokenWriter(const std::string& prefix, const TokenType& type, uint64_t documents, uint64_t tokens);
  void add(std::span<const int32_t> document);  // of at least one token
  uint64_t documents() const { return documents_; }
  uint64_t tokens() const { return tokens_; }
  void sync();
  // Everything and the index is on the disk; only the names are missing.
  void write_index();

  // Gives complete files their names, those that have them already left alone. Error(io) if one has neither name.
  static void give_names(const std::string& prefix);
  static std::vector<std::string> unfinished_files(const std::string& prefix);

 private:
  const std::string prefix_;
  const TokenType& type_;
  GrowingFile tokens_file_, lengths_;
  uint64_t documents_, tokens_;
  std::vector<uint16_t> narrow_;
};

}  // namespace drivetrain
