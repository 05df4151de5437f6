// A flight record's bytes: in memory, in the file, and in what an agent sends of it. The launcher reads the beginning
// of them, without the runtime's library.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "flight/record.h"

namespace drivetrain {

inline constexpr char kFlightMagic[8] = {'D', 'T', 'F', 'L', 'I', 'G', 'H', 'T'};
inline constexpr uint32_t kFlightVersion = 2;

struct FlightRecord::Memory {
  struct Entry {
    std::atomic<uint64_t> serial{0};  // 0: empty, or being written
    std::atomic<int64_t> number{0}, bytes{0};
    std::atomic<int64_t> called_ns{0}, waited_ns{0}, done_ns{0};  // since start_ns; 0: not yet
    std::atomic<int32_t> peer{-1};
    std::atomic<uint16_t> group{0};
    std::atomic<uint8_t> op{0}, state{0};
    std::atomic<uint8_t> on_device{0};  // the host has waited; the device may not be there yet
    std::atomic<int8_t> dtype{-1};
  };
  char magic[8] = {'D', 'T', 'F', 'L', 'I', 'G', 'H', 'T'};
  uint32_t version = kFlightVersion;
  std::atomic<uint32_t> groups{0};
  int64_t rank = 0, world_size = 1, pid = 0;
  int64_t start_ns = 0, start_unix_ns = 0;  // of the monotonic clock, of the time of day
  std::atomic<uint64_t> run{0};             // the same in all records of a run; 0: it has not begun
  std::atomic<uint8_t> in_file{0};          // of the run's folder, where the rank goes on to write
  std::atomic<uint8_t> over{0};             // its end was a good one
  std::atomic<uint32_t> stalls{0};          // how often it was said that the run does not go on
  std::atomic<int64_t> step{0}, micro{-1}, changed_ns{0};
  std::atomic<uint64_t> begun{0}, changes{0};
  std::atomic<int64_t> work_steps{0};
  std::atomic<int64_t> work_ns[kWorkParts] = {};  // over these steps
  std::atomic<uint8_t> doing{0};
  char host[65] = {}, call[200] = {};
  char folder[4096] = {};  // of the run, absolute
  char labels[kGroups][48] = {};
  std::atomic<int64_t> reached[kGroups] = {};
  Entry places[kEntries];
};

// Of the monotonic clock.
inline int64_t flight_clock_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

inline double in_seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// As much of a text as there is room for.
inline void copy_text(char* to, size_t size, const std::string& text) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

template <size_t size>
std::string text_of(const char (&text)[size]) {
  return {text, strnlen(text, size)};
}

// Bytes of a record that somebody may be writing: entries that changed meanwhile are left out.
// `read(to)`: the bytes as they are now; false: there are none.
template <class Read>
bool copy_record(const Read& read, FlightRecord::Memory& to) {
  const auto again = std::make_unique<FlightRecord::Memory>();
  if (!read(static_cast<void*>(&to)) || !read(static_cast<void*>(again.get()))) return false;
  for (size_t i = 0; i < FlightRecord::kEntries; ++i)
    if (again->places[i].serial.load() != to.places[i].serial.load()) to.places[i].serial = 0;
  return true;
}

DRIVETRAIN_INTERNAL FlightPlace place_in(const FlightRecord::Memory& memory);
DRIVETRAIN_INTERNAL std::vector<FlightEntry> entries_in(const FlightRecord::Memory& memory);
DRIVETRAIN_INTERNAL std::map<std::string, int64_t> reached_in(const FlightRecord::Memory& memory);

}  // namespace drivetrain
