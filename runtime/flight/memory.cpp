#include "flight/memory.h"

#include <algorithm>
#include <cstring>

namespace drivetrain {
namespace {

using Memory = FlightRecord::Memory;

}  // namespace

FlightPlace place_in(const Memory& memory) {
  return {memory.step, memory.micro, static_cast<FlightDoing>(memory.doing.load())};
}

std::vector<FlightEntry> entries_in(const Memory& memory) {
  std::vector<FlightEntry> list;
  for (const Memory::Entry& entry : memory.places) {
    const uint64_t serial = entry.serial.load(std::memory_order_acquire);
    const auto state = static_cast<FlightState>(entry.state.load(std::memory_order_acquire));
    FlightEntry read{serial,
                     text_of(memory.labels[std::min<size_t>(entry.group.load(), FlightRecord::kGroups - 1)]),
                     {static_cast<FlightOp>(entry.op.load()), entry.number, entry.bytes, entry.dtype, entry.peer},
                     state,
                     in_seconds(entry.called_ns),
                     in_seconds(entry.waited_ns),
                     in_seconds(entry.done_ns)};
    if (serial != 0 && entry.serial.load(std::memory_order_acquire) == serial) list.push_back(std::move(read));
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.serial < b.serial; });
  return list;
}

std::map<std::string, int64_t> reached_in(const Memory& memory) {
  std::map<std::string, int64_t> reached;
  const size_t groups = std::min<size_t>(memory.groups, FlightRecord::kGroups - 1);  // but for "others"
  for (size_t i = 0; i < groups; ++i) reached[text_of(memory.labels[i])] = memory.reached[i];
  return reached;
}

}  // namespace drivetrain
