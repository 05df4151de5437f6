#include "observe/memory.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <mutex>
#include <sstream>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// "VmHWM:     1776 kB" lines of a file of /proc, in bytes; -1 for one that is not there.
class KilobyteLines {
 public:
  explicit KilobyteLines(const char* path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(':');
      if (colon != std::string::npos) lines_[line.substr(0, colon)] = line.substr(colon + 1);
    }
  }
  double bytes(const std::string& name) const {
    const auto found = lines_.find(name);
    return found == lines_.end() ? -1 : std::strtod(found->second.c_str(), nullptr) * 1024;
  }

 private:
  std::map<std::string, std::string> lines_;
};

// The system keeps the peak of the resident set only: what of it was shared is taken as the most that was seen around
// it. The exact share costs a walk over all pages. It changes while ranks map each other's buffers, in their first
// steps: it is looked up again when this process mapped more, and at the calls number 1, 2, 4, 8, ... since another one
// may have.
class ProcessPeak {
 public:
  double bytes() {
    const KilobyteLines status("/proc/self/status");
    const double largest = status.bytes("VmHWM"), shared = std::max(0.0, status.bytes("RssShmem"));
    const std::lock_guard lock(mutex_);
    ++calls_;
    private_ = std::max(private_, status.bytes("VmRSS") - shared);
    if (largest > largest_) private_ = std::max(private_, largest - std::max(shared, shared_));
    largest_ = largest, shared_ = shared;
    if ((calls_ & (calls_ - 1)) == 0 || std::abs(shared - looked_up_) > 0.01 * looked_up_) {
      share_ = shared > 0 ? shared_memory_bytes() : 0;
      looked_up_ = shared;
    }
    return private_ + share_;
  }

 private:
  std::mutex mutex_;
  uint64_t calls_ = 0;
  double largest_ = 0, shared_ = 0, private_ = 0;  // the resident set's peak, what is shared now, the rest's peak
  double looked_up_ = 0, share_ = 0;
};

}  // namespace

double peak_memory_bytes() {
  static ProcessPeak peak;
  return peak.bytes();
}

double shared_memory_bytes() {
  const double share = KilobyteLines("/proc/self/smaps_rollup").bytes("Pss_Shmem");
  return share >= 0 ? share : std::max(0.0, KilobyteLines("/proc/self/status").bytes("RssShmem"));  // before Linux 5.9
}

SharedMappings::SharedMappings() {
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string rights, device, inode;
    uint64_t offset = 0;
    words >> std::hex >> begin >> dash >> end >> rights >> offset >> device >> inode;
    if (words && rights.size() == 4 && rights[3] == 's') mappings_[begin] = {end, offset, device + ":" + inode};
  }
}

std::string SharedMappings::place(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto mapping = mappings_.upper_bound(at);
  if (mapping == mappings_.begin()) return {};
  --mapping;
  if (at >= mapping->second.end) return {};
  return concat(mapping->second.file, ":", mapping->second.offset + (at - mapping->first));
}

}  // namespace drivetrain
