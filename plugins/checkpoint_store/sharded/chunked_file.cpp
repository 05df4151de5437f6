#include "chunked_file.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <drivetrain/error.h>

#include "layout.h"

namespace drivetrain::sharded {

AlignedMemory aligned_memory(uint64_t bytes) {
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  AlignedMemory memory(static_cast<char*>(std::aligned_alloc(kAlignment, std::max(rounded, kAlignment))));
  if (!memory) throw std::bad_alloc();
  return memory;
}

ChunkedFile::ChunkedFile(FileCalls& calls, const std::string& path, uint64_t bytes, uint64_t chunk_bytes)
    : bytes_(bytes),
      chunk_bytes_(chunk_bytes),
      file_(calls, path, bytes),
      chunk_(aligned_memory(std::min(bytes, chunk_bytes))) {}

void ChunkedFile::append(const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  if (written_ + filled_ + bytes > bytes_)
    throw fail(ErrorCode::internal, file_.path(), ": more than the ", bytes_, " bytes that were announced");
  while (bytes > 0) {
    if (filled_ == 0 && bytes >= chunk_bytes_) {
      write_chunk(from, chunk_bytes_);
      from += chunk_bytes_, bytes -= chunk_bytes_;
      continue;
    }
    const uint64_t part = std::min(bytes, chunk_bytes_ - filled_);
    std::memcpy(chunk_.get() + filled_, from, part);
    filled_ += part, from += part, bytes -= part;
    if (filled_ == chunk_bytes_) write_chunk(chunk_.get(), filled_), filled_ = 0;
  }
}

std::vector<Digest> ChunkedFile::finish() {
  if (filled_ > 0) write_chunk(chunk_.get(), filled_), filled_ = 0;
  if (written_ != bytes_) throw fail(ErrorCode::internal, file_.path(), ": ", written_, " of ", bytes_, " bytes came");
  file_.finish();
  return std::move(digests_);
}

// The digest comes from memory, so that damage on the way to the disk is found as well.
void ChunkedFile::write_chunk(const char* data, uint64_t bytes) {
  digests_.push_back(digest_of(data, bytes));
  file_.write_at(written_, data, bytes);
  written_ += bytes;
}

}  // namespace drivetrain::sharded
