// Processors that a process may keep busy, by trees of files as control groups of both versions show them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/testkit/kit/temp_folder.h>
#include <drivetrain/toolkit/host/processors.h>

namespace drivetrain::test {
namespace {

class Processors : public testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) {
    const std::filesystem::path place = folder_.path("root") + path;
    std::filesystem::create_directories(place.parent_path());
    std::ofstream(place) << text;
  }
  std::optional<double> quota() const { return processor_share(folder_.path("root")).quota; }

  const TempFolder folder_;
};

TEST_F(Processors, without_control_groups_all_cores_are_usable) {
  EXPECT_FALSE(quota());
  EXPECT_EQ(processor_share(folder_.path("root")).usable(), processor_share(folder_.path("root")).cores);
}

TEST_F(Processors, version_2_has_quota_and_period_in_one_file_and_the_tightest_above_counts) {
  file("/proc/self/cgroup", "0::/pod/box\n");
  file("/sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  EXPECT_FALSE(quota());
  file("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  file("/sys/fs/cgroup/pod/box/cpu.max", "400000 50000\n");
  EXPECT_EQ(quota(), 1.5);
  file("/sys/fs/cgroup/pod/box/cpu.max", "25000 50000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(Processors, version_1_has_two_files_under_its_controller) {
  file("/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n");
  file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");  // a container: the mount is its own group
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(quota());
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(quota(), 2.0);
}

TEST_F(Processors, version_1_may_be_mounted_by_the_names_that_share_it_and_version_2_beside_it) {
  file("/proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/a\n");
  file("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  file("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(quota(), 3.0);
  file("/sys/fs/cgroup/unified/a/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 1.0);
}

TEST_F(Processors, a_quota_leaves_whole_threads_and_at_least_one) {
  const auto usable = [](int64_t cores, std::optional<double> quota) { return ProcessorShare{cores, quota}.usable(); };
  EXPECT_EQ(usable(8, std::nullopt), 8);
  EXPECT_EQ(usable(8, 2.5), 2);
  EXPECT_EQ(usable(8, 0.5), 1);
  EXPECT_EQ(usable(8, 16), 8);
  EXPECT_TRUE((ProcessorShare{8, 7.0}.is_cut()));
  EXPECT_FALSE((ProcessorShare{1, 0.5}.is_cut()));
}

}  // namespace
}  // namespace drivetrain::test
