#include "chunked_file.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <drivetrain/error.h>

#include "layout.h"

namespace drivetrain::sharded {
namespace {

constexpr uint64_t kChunksAtOnce = 4;  // a write of 4 MiB is long enough for a disk, a chunk of 1 MiB short for a cache

}  // namespace

AlignedMemory aligned_memory(uint64_t bytes) {
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  AlignedMemory memory(static_cast<char*>(std::aligned_alloc(kAlignment, std::max(rounded, kAlignment))));
  if (!memory) throw std::bad_alloc();
  return memory;
}

ChunkedFile::ChunkedFile(FileCalls& calls, const std::string& path, uint64_t bytes, uint64_t chunk_bytes)
    : bytes_(bytes),
      chunk_bytes_(chunk_bytes),
      write_bytes_(chunk_bytes * kChunksAtOnce),
      file_(calls, path, bytes, OutputFile::Way::direct),
      filling_(aligned_memory(std::min(bytes, write_bytes_))),
      writing_(aligned_memory(std::min(bytes, write_bytes_))),
      disk_([this] { write_chunks(); }) {}

ChunkedFile::~ChunkedFile() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  disk_.join();
}

void ChunkedFile::append(const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  if (begun_ + filled_ + bytes > bytes_)
    throw fail(ErrorCode::internal, file_.path(), ": more than the ", bytes_, " bytes that were announced");
  while (bytes > 0) {
    const uint64_t part = std::min(bytes, chunk_bytes_ - filled_ % chunk_bytes_);
    std::memcpy(filling_.get() + filled_, from, part);
    filled_ += part, from += part, bytes -= part;
    if (filled_ % chunk_bytes_ == 0) take_digest();
    if (filled_ == write_bytes_) hand_over();
  }
}

std::vector<Digest> ChunkedFile::finish() {
  if (filled_ % chunk_bytes_ != 0) take_digest();
  if (filled_ > 0) hand_over();
  if (begun_ != bytes_) throw fail(ErrorCode::internal, file_.path(), ": ", begun_, " of ", bytes_, " bytes came");
  wait_for_disk();
  file_.finish();
  return std::move(digests_);
}

// Of the last chunk in filling_. It comes from memory, so that damage on the way to the disk is found as well.
void ChunkedFile::take_digest() {
  const uint64_t begin = (filled_ - 1) / chunk_bytes_ * chunk_bytes_;
  digests_.push_back(digest_of(filling_.get() + begin, filled_ - begin));
}

void ChunkedFile::hand_over() {
  wait_for_disk();
  std::swap(filling_, writing_);
  begun_ += filled_;
  {
    const std::lock_guard lock(mutex_);
    to_write_ = std::exchange(filled_, 0);
  }
  changed_.notify_all();
}

void ChunkedFile::wait_for_disk() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return to_write_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// On the thread. After a failure nothing more is written.
void ChunkedFile::write_chunks() {
  uint64_t offset = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return to_write_ > 0 || ends_; });
    if (to_write_ == 0) return;
    const uint64_t bytes = to_write_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_.write_at(offset, writing_.get(), bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    offset += bytes;
    lock.lock();
    failure_ = failure, to_write_ = 0;
    changed_.notify_all();
  }
}

}  // namespace drivetrain::sharded
