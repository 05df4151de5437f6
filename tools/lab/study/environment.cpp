#include "study/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include <drivetrain/toolkit/text.h>

#include "study/energy.h"

namespace drivetrain::study {
namespace {

// The value of the first line "NAME : VALUE" of a file under /proc.
std::string line_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    const size_t begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "unknown";
}

Value gpus() {
  Value list = Value::array();
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none))
    list.items().push_back(line_in(entry.path() / "information", "Model"));
  return list;
}

std::string energy_counters() {
  const std::vector<std::string> sources = EnergyMeter().sources();
  return sources.empty() ? "none that can be read" : join(sources);
}

}  // namespace

std::string host_name() {
  utsname system = {};
  uname(&system);
  return system.nodename;
}

Value environment_now(const std::string& build) {
  utsname system = {};
  uname(&system);
  Value environment = Value::object();
  environment.set("host", host_name()), environment.set("cpu", line_in("/proc/cpuinfo", "model name"));
  environment.set("cores", static_cast<int64_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  environment.set("memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
  environment.set("kernel", system.release), environment.set("gpus", gpus());
  environment.set("libtorch", DRIVETRAIN_TORCH_RELEASE), environment.set("release", DRIVETRAIN_RELEASE);
  environment.set("energy_counters", energy_counters()), environment.set("build", build);
  return environment;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace drivetrain::study
