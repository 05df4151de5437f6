#include <drivetrain/toolkit/host_memory/shared_memory.h>

#include <unistd.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::toolkit::host_memory {
namespace {

constexpr int64_t kLeast = 16 << 20;  // of a segment: enough for the windows and rings of a small group

int64_t whole_pages(int64_t bytes) { return (std::max<int64_t>(bytes, 1) + kPage - 1) / kPage * kPage; }

std::atomic<int32_t>& users_of(char* block) { return *reinterpret_cast<std::atomic<int32_t>*>(block - kPage); }

}  // namespace

std::optional<SegmentList::Entry> SegmentList::find(int64_t offset) const {
  const int64_t listed = std::min(count.load(), kMost);
  for (int64_t i = 0; i < listed; ++i) {
    const Entry entry = entries[i];
    if (offset >= entry.offset && offset - entry.offset < entry.bytes) return entry;
  }
  return std::nullopt;
}

int64_t most_shared_bytes(int64_t world_size) {
  const int64_t memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  const int64_t most = (int64_t{1} << 45) / world_size;
  return std::min(most, std::max(int64_t{1} << 30, 2 * memory)) / kPage * kPage;
}

SharedMemory::SharedMemory(AddressBook& book, int64_t rank, int64_t most) : book_(book), rank_(rank), most_(most) {
  segments_.reserve(SegmentList::kMost);
  add_segment(std::min(kLeast, most_), kHeadBytes);
  head_ = first().mapping()->base();
}

void SharedMemory::list_in(SegmentList& list) {
  const std::lock_guard lock(mutex_);
  list_ = &list;
  std::copy(entries_.begin(), entries_.end(), list.entries);
  list.count = static_cast<int64_t>(entries_.size());
}

// The gap of a page between the offsets of two segments keeps blocks of both from being joined.
void SharedMemory::add_segment(int64_t bytes, int64_t head) {
  const int64_t offset = entries_.empty() ? 0 : entries_.back().offset + entries_.back().bytes + kPage;
  const Segment& made = segments_.emplace_back(bytes, token_);
  entries_.push_back({offset, bytes, made.fd()});
  book_.add(rank_, offset, made.mapping());
  free_[offset + head] = bytes - head;
  if (list_ == nullptr) return;
  list_->entries[entries_.size() - 1] = entries_.back();
  list_->count = static_cast<int64_t>(entries_.size());
}

Block SharedMemory::allocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  reclaim_lent();
  const int64_t offset = allocate_locked(bytes);
  return {offset, address_of(offset, bytes)};
}

Block SharedMemory::allocate(int64_t bytes, int64_t users) {
  const std::lock_guard lock(mutex_);
  reclaim_lent();
  const int64_t offset = allocate_locked(bytes + kPage);
  const Block block{offset + kPage, address_of(offset, bytes + kPage) + kPage};
  users_of(block.address).store(static_cast<int32_t>(users));
  lent_.push_back(offset);
  return block;
}

void SharedMemory::release(char* block) { users_of(block).fetch_sub(1); }

void SharedMemory::reclaim_lent() {
  std::erase_if(lent_, [&](int64_t offset) {
    if (users_of(address_of(offset, kPage) + kPage).load() != 0) return false;
    release_locked(offset);
    return true;
  });
}

bool SharedMemory::take_free(int64_t wanted, int64_t& offset) {
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const auto [begin, size] = *block;
    if (size < wanted) continue;
    free_.erase(block);
    if (size > wanted) free_[begin + wanted] = size - wanted;
    used_[begin] = wanted;
    offset = begin;
    return true;
  }
  return false;
}

int64_t SharedMemory::allocate_locked(int64_t bytes) {
  const int64_t wanted = whole_pages(bytes);
  int64_t offset = 0;
  if (take_free(wanted, offset)) return offset;
  grow(wanted);
  take_free(wanted, offset);
  return offset;
}

// More than what is asked for only where that is to be had.
void SharedMemory::grow(int64_t wanted) {
  int64_t all = 0, left = 0;
  for (const auto& entry : entries_) all += entry.bytes;
  for (const auto& [offset, size] : free_) left += size;
  const int64_t least = wanted + kPage;
  if (least > most_ - all || static_cast<int64_t>(entries_.size()) == SegmentList::kMost)
    throw fail(ErrorCode::out_of_memory, "no block of ", wanted,
               " bytes left in this rank's shared memory, which may grow to ", most_,
               " bytes (twice the memory of this host) in ", SegmentList::kMost, " pieces and has ", left,
               " free: let the model, its buckets or the batch take less, or run fewer ranks on this host");
  const int64_t aim = std::min(most_ - all, std::max({least, kLeast, whole_pages(all / 4)}));
  if (aim > least) {
    try {
      return add_segment(aim, kPage);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::out_of_memory) throw;
    }
  }
  add_segment(least, kPage);
}

void SharedMemory::release(int64_t offset) {
  const std::lock_guard lock(mutex_);
  release_locked(offset);
}

void SharedMemory::release_locked(int64_t offset) {
  const auto block = used_.find(offset);
  if (block == used_.end()) return;
  int64_t size = block->second;
  used_.erase(block);
  auto next = free_.upper_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_[offset] = size;
}

}  // namespace drivetrain::toolkit::host_memory
