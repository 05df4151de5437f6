// A new file that is written front to back in chunks, with a digest of each.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/toolkit/files/durable.h>

#include "digest.h"

namespace drivetrain::sharded {

// Memory at a multiple of 4096, as direct I/O wants it.
struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<char, FreeMemory>;
AlignedMemory aligned_memory(uint64_t bytes);  // std::bad_alloc

class ChunkedFile {
 public:
  // `bytes`: of the whole file. `chunk_bytes`: of all chunks but the last; a multiple of 4096.
  ChunkedFile(FileCalls& calls, const std::string& path, uint64_t bytes, uint64_t chunk_bytes);

  // The next bytes of the file. Whole chunks are written from where they are, without a copy.
  void append(const void* data, uint64_t bytes);
  // Writes what is left and puts everything on the disk. Returns the digest of every chunk.
  std::vector<Digest> finish();

 private:
  void write_chunk(const char* data, uint64_t bytes);

  const uint64_t bytes_, chunk_bytes_;
  OutputFile file_;
  AlignedMemory chunk_;  // the one that is being filled
  uint64_t filled_ = 0, written_ = 0;
  std::vector<Digest> digests_;
};

}  // namespace drivetrain::sharded
