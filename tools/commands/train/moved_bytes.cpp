#include "train/moved_bytes.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <drivetrain/toolkit/files/proc_text.h>

#include "plugin_calls/call_seats.h"
#include "process/own_threads.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTasks = "/proc/self/task";

bool has_seat(int thread) {
  for (size_t i = 0; i < kCallSeats; ++i)
    if (call_seats()[i].taken && call_seats()[i].thread == thread) return true;
  return false;
}

// Through read and write, and by pages that are mapped.
std::optional<uint64_t> bytes_of(const std::string& task) {
  std::ifstream file(task + "/io");
  uint64_t sum = 0, value = 0;
  std::string name;
  bool any = false;
  while (file >> name >> value)
    if (name == "rchar:" || name == "wchar:" || name == "read_bytes:" || name == "write_bytes:")
      sum += value, any = true;
  return any ? std::optional(sum) : std::nullopt;
}

// "12 (a name) D ...": behind the last parenthesis.
bool is_in_disk_sleep(const std::string& task) {
  const std::string line = proc_text(task + "/stat");
  const size_t end = line.rfind(')');
  return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'D';
}

}  // namespace

MovedBytes bytes_moved_by(int thread) {
  MovedBytes moved;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(kTasks, ignored)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number != thread && (has_seat(number) || is_own_thread(number))) continue;
    const std::optional<uint64_t> bytes = bytes_of(entry.path().string());
    if (number == thread) moved.known = bytes.has_value();
    moved.bytes += bytes.value_or(0);
    moved.waits_disk = moved.waits_disk || is_in_disk_sleep(entry.path().string());
  }
  return moved;
}

}  // namespace drivetrain
