#include <drivetrain/toolkit/host/processors.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>

#include <drivetrain/toolkit/files/proc_text.h>

namespace drivetrain {
namespace {

double number_in(const std::string& path) {
  double number = 0;
  std::istringstream(proc_text(path)) >> number;
  return number;
}

// Version 2: "100000 50000" or "max 100000"; version 1: two files, -1 for no limit.
std::optional<double> quota_of(const std::string& folder) {
  std::istringstream words(proc_text(folder + "/cpu.max"));
  double quota = 0, period = 0;
  if (words >> quota >> period && period > 0) return quota / period;
  const double older = number_in(folder + "/cpu.cfs_quota_us"), of = number_in(folder + "/cpu.cfs_period_us");
  if (older > 0 && of > 0) return older / of;
  return std::nullopt;
}

}  // namespace

std::vector<std::string> control_groups(const std::string& controller, const std::string& root) {
  std::vector<std::string> folders;
  std::istringstream lines(proc_text(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/docker/..." or "0::/user.slice/..."
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    // Version 2 alone, or beside version 1; version 1 by the controller's name, and by the names that share a mount.
    const std::vector<std::string> mounts = controllers.empty() ? std::vector<std::string>{"", "/unified"}
                                                                : std::vector{"/" + controller, "/" + controllers};
    for (size_t i = 0; i < mounts.size() && (i == 0 || mounts[i] != mounts[0]); ++i)
      for (std::filesystem::path path = line.substr(second + 1);; path = path.parent_path()) {
        // In a container the group's own folder is the mount, whatever the host calls it.
        folders.push_back(root + "/sys/fs/cgroup" + mounts[i] + (path == "/" ? "" : path.string()));
        if (path == path.parent_path()) break;
      }
  }
  return folders;
}

int64_t ProcessorShare::usable() const {
  const auto whole = quota ? static_cast<int64_t>(std::min(*quota + 1e-6, 1e9)) : cores;
  return std::max<int64_t>(1, std::min(cores, whole));
}

ProcessorShare processor_share(const std::string& root) {
  ProcessorShare share;
  share.cores = std::max(1u, std::thread::hardware_concurrency());
  for (const std::string& folder : control_groups("cpu", root))
    if (const auto quota = quota_of(folder)) share.quota = std::min(*quota, share.quota.value_or(*quota));
  return share;
}

}  // namespace drivetrain
