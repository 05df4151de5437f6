// Joules that this host takes, by counters that hardware keeps: RAPL's of processors and memory
// (/sys/class/powercap), NVML's of every GPU. All of the host counts, whoever uses it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::study {

class EnergyMeter {
 public:
  // Both places may be others in tests. What is not there, or cannot be read, is no source.
  explicit EnergyMeter(const std::string& powercap = "/sys/class/powercap",
                       const std::string& nvml = "libnvidia-ml.so.1");
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  // "package-0", "dram", "GPU 0"
  std::vector<std::string> sources() const;
  bool any() const { return !zones_.empty() || !gpus_.empty(); }

  // Since the meter was made. A counter of RAPL runs over within minutes: to be called at least once in ten seconds.
  double joules();

 private:
  struct Zone {
    std::string name, path;
    uint64_t last_uj = 0, range_uj = 0;
  };
  struct Gpu {
    void* device = nullptr;
    unsigned long long first_mj = 0;
  };
  void find_zones(const std::string& powercap);
  void find_gpus(const std::string& nvml);

  std::vector<Zone> zones_;
  double zones_j_ = 0;
  void* library_ = nullptr;
  int (*total_energy_)(void* device, unsigned long long* millijoules) = nullptr;
  std::vector<Gpu> gpus_;
};

}  // namespace drivetrain::study
