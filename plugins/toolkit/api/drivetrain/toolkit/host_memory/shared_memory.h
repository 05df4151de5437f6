// This rank's memory that peers can map, in pages: segments that are made as they are needed.
//
// Nobody knows at the start how much a run will share, and address space and file sizes may be limited, so each new
// segment is as large as what is asked for or a quarter of all before it. Freed blocks stay resident for the next
// allocation, because fresh pages are slow. Peers find segments in a list that lies in the first one's head. Ownership:
// keeps its segments; the address book knows them. Thread: any. Errors: Error(out_of_memory) when `most` bytes are used
// or the system gives no more.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <drivetrain/toolkit/host_memory/address_book.h>
#include <drivetrain/toolkit/host_memory/segment.h>

namespace drivetrain::toolkit::host_memory {

// In shared memory, written by the owner alone; entries below `count` do not change any more.
struct SegmentList {
  static constexpr int64_t kMost = 256;
  struct Entry {
    int64_t offset, bytes;
    int32_t fd;
  };
  std::atomic<int64_t> count;
  Entry entries[kMost];
  // The segment in which that offset lies, if there is one. Any rank.
  std::optional<Entry> find(int64_t offset) const;
};

// For `SharedMemory`: twice the memory of the host, as long as the memory of all ranks fits the address space of each.
// Sparse, so the figure only has to be large enough for what one rank may hold for all.
int64_t most_shared_bytes(int64_t world_size);

struct Block {
  int64_t offset = 0;  // of this rank's memory
  char* address = nullptr;
};

class SharedMemory {
 public:
  // The first bytes of the first segment, after its token, are the owner's (zeroed) up to kHeadBytes.
  static constexpr int64_t kHeadBytes = 3 * kPage;
  // `most`: bytes that all segments may have together.
  SharedMemory(AddressBook& book, int64_t rank, int64_t most);

  const Segment& first() const { return segments_.front(); }
  char* head() const { return head_; }  // a rank that waits reads it without a lock
  const Token& token() const { return token_; }
  void list_in(SegmentList& list);  // which lies in the head

  Block allocate(int64_t bytes);  // a fresh page is zero, a reused one is not
  void release(int64_t offset);
  // A block that `users` ranks share. Each of them lets go of it once, through its own mapping; when all have, the
  // next allocation finds it free. The page before it counts them.
  Block allocate(int64_t bytes, int64_t users);
  static void release(char* block);

 private:
  int64_t allocate_locked(int64_t bytes);
  bool take_free(int64_t wanted, int64_t& offset);
  void grow(int64_t wanted);
  void add_segment(int64_t bytes, int64_t head);
  void release_locked(int64_t offset);
  void reclaim_lent();
  char* address_of(int64_t offset, int64_t bytes) const { return book_.find({rank_, offset}, bytes); }

  AddressBook& book_;
  const int64_t rank_, most_;
  const Token token_ = random_token();
  std::vector<Segment> segments_;            // never moved, so that `first` stays where it is
  char* head_ = nullptr;                     // set once
  std::vector<SegmentList::Entry> entries_;  // of segments_
  SegmentList* list_ = nullptr;
  std::mutex mutex_;
  std::map<int64_t, int64_t> free_, used_;  // offset -> bytes
  std::vector<int64_t> lent_;
};

}  // namespace drivetrain::toolkit::host_memory
