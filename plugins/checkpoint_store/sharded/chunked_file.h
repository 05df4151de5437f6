// A new file that is written front to back, with a digest of every chunk. A thread writes a few chunks at once past the
// page cache while the next ones are filled, so that copying and digests take no time of the disk's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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
  ~ChunkedFile();
  ChunkedFile(const ChunkedFile&) = delete;
  ChunkedFile& operator=(const ChunkedFile&) = delete;

  // The next bytes of the file.
  void append(const void* data, uint64_t bytes);
  // Writes what is left and puts everything on the disk. Returns the digest of every chunk.
  std::vector<Digest> finish();

 private:
  void take_digest();
  void hand_over();
  void wait_for_disk();
  void write_chunks();

  const uint64_t bytes_, chunk_bytes_, write_bytes_;  // write_bytes_: of all writes but the last
  OutputFile file_;
  AlignedMemory filling_, writing_;
  uint64_t filled_ = 0, begun_ = 0;  // of the file: in filling_; what was handed over before
  std::vector<Digest> digests_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  uint64_t to_write_ = 0;  // bytes of writing_; 0: the thread has nothing to do
  bool ends_ = false;
  std::exception_ptr failure_;  // of the thread, until it was thrown
  std::thread disk_;
};

}  // namespace drivetrain::sharded
