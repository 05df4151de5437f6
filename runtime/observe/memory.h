// Memory figures of this process, as Linux counts them. Ranks that are threads of one process share them. Thread: any.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "internal.h"

namespace drivetrain {

// The largest memory of this process so far: pages of its own, plus its share of pages that processes share. A page of
// shared memory counts 1/n where it is mapped n times, so that the figures of ranks that read each other's buffers add
// up to what the host gave. (A resident set, ru_maxrss, counts such a page in every process that ever looked at it.)
DRIVETRAIN_INTERNAL double peak_memory_bytes();

// That share of shared memory, now. Walks the page tables, 10 ms per GB.
DRIVETRAIN_INTERNAL double shared_memory_bytes();

// Where shared memory is mapped in this process, as of construction.
class DRIVETRAIN_INTERNAL SharedMappings {
 public:
  SharedMappings();
  // Names the memory at `address`: equal in every process, and at every address, where the same memory is mapped.
  // Empty: not shared.
  std::string place(const void* address) const;

 private:
  struct Mapping {
    uintptr_t end;
    uint64_t offset;
    std::string file;  // device and inode
  };
  std::map<uintptr_t, Mapping> mappings_;  // by begin
};

}  // namespace drivetrain
