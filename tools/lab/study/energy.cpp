#include "study/energy.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include <drivetrain/toolkit/text.h>

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

template <class T>
std::optional<T> read_one(const fs::path& path) {
  std::ifstream file(path);
  T value{};
  if (!(file >> value)) return std::nullopt;
  return value;
}

// "psys" holds the others, "core" and "uncore" are parts of the package; what a package's memory takes is beside it.
bool counts_apart(const std::string& name) { return name.starts_with("package") || name == "dram"; }

}  // namespace

EnergyMeter::EnergyMeter(const std::string& powercap, const std::string& nvml) {
  find_zones(powercap);
  find_gpus(nvml);
}

EnergyMeter::~EnergyMeter() {
  if (library_) dlclose(library_);
}

void EnergyMeter::find_zones(const std::string& powercap) {
  std::error_code none;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(powercap, none)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    // The same counters are there once more under the name of another interface ("intel-rapl-mmio:0").
    if (!folder.filename().string().starts_with("intel-rapl:")) continue;
    const auto name = read_one<std::string>(folder / "name");
    const auto now = read_one<uint64_t>(folder / "energy_uj"),
               range = read_one<uint64_t>(folder / "max_energy_range_uj");
    if (name && now && range && counts_apart(*name))
      zones_.push_back({*name, (folder / "energy_uj").string(), *now, *range});
  }
}

// The functions are those of nvml.h, found by name since the library comes with the driver. 0 is success.
void EnergyMeter::find_gpus(const std::string& nvml) {
  library_ = dlopen(nvml.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) return;
  const auto init = reinterpret_cast<int (*)()>(dlsym(library_, "nvmlInit_v2"));
  const auto count = reinterpret_cast<int (*)(unsigned*)>(dlsym(library_, "nvmlDeviceGetCount_v2"));
  const auto handle = reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library_, "nvmlDeviceGetHandleByIndex_v2"));
  total_energy_ =
      reinterpret_cast<int (*)(void*, unsigned long long*)>(dlsym(library_, "nvmlDeviceGetTotalEnergyConsumption"));
  unsigned gpus = 0;
  if (!init || !count || !handle || !total_energy_ || init() != 0 || count(&gpus) != 0) return;
  for (unsigned i = 0; i < gpus; ++i) {
    Gpu gpu;
    if (handle(i, &gpu.device) == 0 && total_energy_(gpu.device, &gpu.first_mj) == 0) gpus_.push_back(gpu);
  }
}

std::vector<std::string> EnergyMeter::sources() const {
  std::vector<std::string> names;
  for (const Zone& zone : zones_) names.push_back(zone.name);
  for (size_t i = 0; i < gpus_.size(); ++i) names.push_back(concat("GPU ", i));
  return names;
}

double EnergyMeter::joules() {
  for (Zone& zone : zones_) {
    const uint64_t now = read_one<uint64_t>(zone.path).value_or(zone.last_uj);
    const uint64_t more = now >= zone.last_uj ? now - zone.last_uj : now + zone.range_uj - zone.last_uj;
    zones_j_ += 1e-6 * static_cast<double>(more);
    zone.last_uj = now;
  }
  double sum = zones_j_;
  for (const Gpu& gpu : gpus_)
    if (unsigned long long now = 0; total_energy_(gpu.device, &now) == 0)
      sum += 1e-3 * static_cast<double>(now - gpu.first_mj);
  return sum;
}

}  // namespace drivetrain::study
