// Joules from counters that this machine may not have: a folder and a library that stand in for them.
#include "study/energy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace drivetrain::study {
namespace {

class EnergyTest : public testing::Test {
 protected:
  EnergyTest() {
    char name[] = "/tmp/drivetrain-energy-XXXXXX";
    folder = mkdtemp(name);
  }
  ~EnergyTest() override { std::filesystem::remove_all(folder); }
  void write(const std::string& zone, const char* file, const std::string& text) const {
    std::filesystem::create_directories(folder + "/" + zone);
    std::ofstream(folder + "/" + zone + "/" + file) << text << "\n";
  }
  void zone(const std::string& at, const std::string& name, const std::string& microjoules) const {
    write(at, "name", name), write(at, "energy_uj", microjoules), write(at, "max_energy_range_uj", "10000000");
  }
  std::string folder;
};

constexpr const char* kNoLibrary = "/nonexistent/libnvidia-ml.so.1";

TEST_F(EnergyTest, sums_packages_and_their_memory_and_counts_nothing_twice) {
  zone("intel-rapl:0", "package-0", "1000000"), zone("intel-rapl:0:0", "core", "400000");
  zone("intel-rapl:0:1", "dram", "200000"), zone("intel-rapl:1", "psys", "5000000");
  zone("intel-rapl-mmio:0", "package-0", "1000000");
  write("intel-rapl:2", "name", "package-1");  // its counter may not be read
  EnergyMeter meter(folder, kNoLibrary);
  EXPECT_EQ(meter.sources(), (std::vector<std::string>{"package-0", "dram"}));
  EXPECT_DOUBLE_EQ(meter.joules(), 0);
  for (const char* at : {"intel-rapl:0", "intel-rapl-mmio:0"}) write(at, "energy_uj", "4000000");
  write("intel-rapl:0:0", "energy_uj", "900000"), write("intel-rapl:0:1", "energy_uj", "700000");
  write("intel-rapl:1", "energy_uj", "9000000");
  EXPECT_DOUBLE_EQ(meter.joules(), 3 + 0.5);
}

TEST_F(EnergyTest, a_counter_that_ran_over_goes_on) {
  zone("intel-rapl:0", "package-0", "9000000");
  EnergyMeter meter(folder, kNoLibrary);
  write("intel-rapl:0", "energy_uj", "500000");
  EXPECT_DOUBLE_EQ(meter.joules(), 1.5);
}

TEST_F(EnergyTest, gpus_count_by_their_library) {
  EnergyMeter meter(folder, NVML_STAND_IN);
  EXPECT_EQ(meter.sources(), (std::vector<std::string>{"GPU 0", "GPU 1"}));
  EXPECT_DOUBLE_EQ(meter.joules(), 2 * 1.5);
  EXPECT_DOUBLE_EQ(meter.joules(), 2 * 3.0);
}

TEST_F(EnergyTest, a_machine_without_counters_has_no_source) {
  const EnergyMeter meter(folder + "/none", kNoLibrary);
  EXPECT_FALSE(meter.any());
  EXPECT_TRUE(meter.sources().empty());
}

}  // namespace
}  // namespace drivetrain::study
