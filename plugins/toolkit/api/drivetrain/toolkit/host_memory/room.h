// The memory that this rank shares with other ranks of its host, and theirs, for communicators that also reach further.
//
// What a peer says of its memory is checked before it is used: see segment.h, and a place has to lie inside what was
// mapped. Ownership: keeps all mappings; who hands out blocks of it keeps the room. Thread: any, but `meet` one at a
// time. Errors: Error(communication) for a peer's memory that is refused, Error(out_of_memory) as SharedMemory.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include <drivetrain/toolkit/host_memory/shared_memory.h>

namespace drivetrain::toolkit::host_memory {

class Room {
 public:
  Room(int64_t rank, int64_t world_size);

  // What the others need to know, in one word; for the store, to which only ranks of the run have access.
  std::string announcement() const;
  void meet(int64_t rank, const std::string& announcement);

  Block allocate(int64_t bytes) { return memory_.allocate(bytes); }
  void release(int64_t offset) { memory_.release(offset); }
  // Where those bytes lie in this rank's own memory; -1: not there, or not all of them.
  int64_t offset_of(const void* data, int64_t bytes) const;
  // Bytes of a rank that was met; maps what is new. Null where there are none.
  const char* find(int64_t rank, int64_t offset, int64_t bytes);

 private:
  const int64_t rank_;
  AddressBook book_;
  SharedMemory memory_;
  struct Peer {
    PeerSegment first;
    std::shared_ptr<Mapping> mapping;
  };
  std::map<int64_t, Peer> peers_;
  std::mutex mutex_;
};

}  // namespace drivetrain::toolkit::host_memory
