// The bytes of a file that is packed by gzip or zstd, front to back. One thread. Errors: Error(io) naming the file, for
// one that is damaged, that ends too soon or is no such file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "internal.h"

namespace drivetrain {

enum class Packing { none, gzip, zstd };
// By the ending of the name: .gz, .zst.
Packing packing_of(const std::string& path);

class DRIVETRAIN_INTERNAL UnpackedFile {
 public:
  UnpackedFile(const std::string& path, Packing packing);
  ~UnpackedFile();
  // Appends the next bytes, at most so many; returns how many these were, 0 at the end. Members of gzip and frames of
  // zstd that follow each other are one text.
  uint64_t read(std::string& to, uint64_t most);

  struct Impl;  // by the library

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace drivetrain
