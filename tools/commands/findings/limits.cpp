#include "findings/limits.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

#include <drivetrain/toolkit/files/proc_text.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

// The number behind a key of a file such as /proc/meminfo.
double number_behind(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atof(text.c_str() + at + key.size());
}

// The first word of a file as a number; none for "max" and where there is no such file.
std::optional<double> first_number(const std::string& path) {
  std::istringstream words(proc_text(path));
  double number = 0;
  if (words >> number && number < 9e18) return number;
  return std::nullopt;
}

std::string processor_name() {
  const std::string text = proc_text("/proc/cpuinfo");
  const size_t key = text.find("model name"), colon = text.find(": ", key);
  if (key == std::string::npos || colon == std::string::npos) return "a processor without a name";
  return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

}  // namespace

ProcessorLimits processor_limits() {
  ProcessorLimits found;
  found.name = processor_name();
  found.cores = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  found.share = processor_share();
  return found;
}

double MemoryLimits::most() const {
  const double machine = total + swap;
  return std::min({machine, group_limit.value_or(machine), address_space.value_or(machine)});
}

double MemoryLimits::free() const {
  const double machine = available + swap;
  return std::min(machine, group_limit ? *group_limit - group_used.value_or(0) : machine);
}

MemoryLimits memory_limits() {
  MemoryLimits found;
  const std::string text = proc_text("/proc/meminfo");
  found.total = 1024 * number_behind(text, "MemTotal:"), found.available = 1024 * number_behind(text, "MemAvailable:");
  found.swap = 1024 * number_behind(text, "SwapFree:");
  for (const std::string& folder : control_groups("memory")) {
    auto limit = first_number(folder + "/memory.max"), used = first_number(folder + "/memory.current");
    if (!limit)
      limit = first_number(folder + "/memory.limit_in_bytes"), used = first_number(folder + "/memory.usage_in_bytes");
    if (limit && *limit < found.group_limit.value_or(found.total)) found.group_limit = limit, found.group_used = used;
  }
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    found.address_space = static_cast<double>(space.rlim_cur);
  return found;
}

FileLimits file_limits() {
  FileLimits found;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) found.open_now = files.rlim_cur, found.open_most = files.rlim_max;
  return found;
}

std::vector<UserLimit> user_limits() {
  std::vector<UserLimit> list;
  const auto add = [&](const char* name, char letter, __rlimit_resource_t resource, rlim_t unit) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0) return;
    list.push_back({name, letter, std::nullopt});
    if (limit.rlim_cur != RLIM_INFINITY) list.back().value = limit.rlim_cur / unit;
  };
  add("processes", 'u', RLIMIT_NPROC, 1), add("file size", 'f', RLIMIT_FSIZE, 1024);
  add("locked memory", 'l', RLIMIT_MEMLOCK, 1024), add("stack", 's', RLIMIT_STACK, 1024);
  return list;
}

PortLimits port_limits() {
  PortLimits found;
  std::istringstream range(proc_text("/proc/sys/net/ipv4/ip_local_port_range"));
  if (!(range >> found.first >> found.last)) return {};
  std::set<unsigned> taken;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(proc_text(table));
    for (std::string line; std::getline(lines, line);) {
      unsigned port = 0;  // "  0: 0100007F:0016 00000000:0000 0A ..."
      if (std::sscanf(line.c_str(), " %*d: %*[0-9A-Fa-f]:%x", &port) == 1 &&
          port >= static_cast<unsigned>(found.first) && port <= static_cast<unsigned>(found.last))
        taken.insert(port);
    }
  }
  found.taken = static_cast<int>(taken.size());
  return found;
}

DiskPlace disk_place(const std::string& place) {
  DiskPlace found;
  fs::path folder = fs::absolute(place).lexically_normal();
  std::error_code unknown;
  while (!fs::is_directory(folder, unknown) && folder != folder.parent_path()) folder = folder.parent_path();
  found.folder = folder.string();
  struct statvfs disk {};
  if (statvfs(found.folder.c_str(), &disk) == 0) {
    found.total = static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize);
    found.free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  }
  std::string name = (folder / ".drivetrain-doctor-XXXXXX").string();
  const int file = mkstemp(name.data());
  if (file < 0) {
    found.unwritable = std::strerror(errno);
  } else {
    ::close(file);
    ::unlink(name.c_str());
  }
  return found;
}

std::string bytes_text(double bytes) {
  return bytes < 1e9    ? formatted("%.0f MB", bytes / 1e6)
         : bytes < 1e14 ? formatted("%.1f GB", bytes / 1e9)
                        : formatted("%.3g GB", bytes / 1e9);
}

}  // namespace drivetrain
