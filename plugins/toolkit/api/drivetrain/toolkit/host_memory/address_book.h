// Which addresses of this process are shared memory of which rank, and the other way round.
//
// A rank's segments follow each other on a line of offsets of its own, with gaps between them, so that a place (rank
// and offset) names a byte for all ranks although each maps it elsewhere. Entries are only added. Looking up takes no
// lock: every collective does it several times. Ownership: keeps the mappings. Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <drivetrain/toolkit/host_memory/segment.h>

namespace drivetrain::toolkit::host_memory {

// Where a buffer lies that peers can reach: the rank whose memory it is and the offset in it.
struct Place {
  int64_t rank = -1;  // -1: in private memory
  int64_t offset = 0;
  bool mapped() const { return rank >= 0; }
  bool operator==(const Place&) const = default;
};

class AddressBook {
 public:
  AddressBook() { tables_.push_back(std::make_unique<Table>()), newest_ = tables_.back().get(); }

  void add(int64_t rank, int64_t offset, std::shared_ptr<Mapping> mapping);
  Place place_of(const void* address) const;  // rank -1: in no rank's shared memory
  // Null where `bytes` from there are not inside one mapped segment.
  char* find(const Place& place, int64_t bytes) const;

 private:
  struct Entry {
    char* begin;
    char* end;
    int64_t rank, offset;
    std::shared_ptr<Mapping> mapping;
  };
  struct Table {
    std::vector<Entry> by_address, by_place;
  };

  std::mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_;  // older ones stay for who reads them just now; growing is rare
  std::atomic<const Table*> newest_{nullptr};
};

}  // namespace drivetrain::toolkit::host_memory
