// A flight record's bytes, in memory and in the file.
#pragma once

#include <atomic>
#include <cstdint>

#include "flight/record.h"

namespace drivetrain {

inline constexpr char kFlightMagic[8] = {'D', 'T', 'F', 'L', 'I', 'G', 'H', 'T'};
inline constexpr uint32_t kFlightVersion = 1;

struct FlightRecord::Memory {
  struct Entry {
    std::atomic<uint64_t> serial{0};  // 0: empty, or being written
    std::atomic<int64_t> number{0}, bytes{0};
    std::atomic<int64_t> called_ns{0}, waited_ns{0}, done_ns{0};  // since start_ns; 0: not yet
    std::atomic<int32_t> peer{-1};
    std::atomic<uint16_t> group{0};
    std::atomic<uint8_t> op{0}, state{0};
    std::atomic<int8_t> dtype{-1};
  };
  char magic[8] = {'D', 'T', 'F', 'L', 'I', 'G', 'H', 'T'};
  uint32_t version = kFlightVersion;
  std::atomic<uint32_t> groups{0};
  int64_t rank = 0, world_size = 1, pid = 0;
  int64_t start_ns = 0, start_unix_ns = 0;  // of the monotonic clock, of the time of day
  std::atomic<int64_t> step{0}, micro{-1}, changed_ns{0};
  std::atomic<uint64_t> begun{0}, changes{0};
  std::atomic<uint8_t> doing{0};
  char host[64] = {}, call[200] = {};
  char labels[kGroups][48] = {};
  std::atomic<int64_t> reached[kGroups] = {};
  Entry places[kEntries];
};

FlightPlace place_in(const FlightRecord::Memory& memory);
std::vector<FlightEntry> entries_in(const FlightRecord::Memory& memory);
std::map<std::string, int64_t> reached_in(const FlightRecord::Memory& memory);

}  // namespace drivetrain
