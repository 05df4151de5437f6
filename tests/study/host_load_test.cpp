// How busy a host was, by texts under /proc that were recorded or made up: nothing here looks at this host.
#include "study/host_load.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "planted_study.h"
#include "study/past_runs.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

// A /proc with a study (100), its launch (101) with a rank (102), and a process of somebody else (7).
class Proc {
 public:
  Proc() : root_(fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
  }
  ~Proc() { fs::remove_all(root_); }

  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  // user, stolen and idle ticks of all CPUs.
  void stat(int64_t user, int64_t stolen, int64_t idle) const {
    put("stat", "cpu  " + std::to_string(user) + " 0 0 " + std::to_string(idle) + " 0 0 0 " + std::to_string(stolen) +
                    " 0 0\ncpu0 1 2 3 4\n");
  }
  void process(int pid, int parent, int64_t own, int64_t of_children) const {
    put(std::to_string(pid) + "/stat", std::to_string(pid) + " (a) name (S) R " + std::to_string(parent) +
                                           " 13312 29333 0 -1 4194304 97 0 0 0 " + std::to_string(own) + " 0 " +
                                           std::to_string(of_children) + " 0 20 0 1 0 1662046 3133440 386\n");
  }
  void gone(int pid) const { fs::remove_all(root_ / std::to_string(pid)); }
  std::string path() const { return root_; }

 private:
  const fs::path root_;
};

TEST(HostLoad, reads_what_a_kernel_says) {
  const auto ticks = cpu_ticks_in("cpu  2477002 12238 429610 388352 5950 0 2314 5297 900 0\ncpu0 1225816 8610\n");
  ASSERT_TRUE(ticks);
  EXPECT_EQ(ticks->busy, 2477002 + 12238 + 429610 + 2314) << "guests' time is in the user's";
  EXPECT_EQ(ticks->idle, 388352 + 5950);
  EXPECT_EQ(ticks->stolen, 5297);
  EXPECT_EQ(cpu_ticks_in("cpu  1 2 3 4\n")->all(), 10) << "kernels before 2.6";
  EXPECT_FALSE(cpu_ticks_in(""));
  EXPECT_FALSE(cpu_ticks_in("intr 1 2 3 4"));
  EXPECT_DOUBLE_EQ(*load_average_in("1.12 2.46 3.12 2/123 13322\n"), 1.12);
  EXPECT_FALSE(load_average_in(""));
  EXPECT_DOUBLE_EQ(*clock_mhz_in("model name\t: X\ncpu MHz\t\t: 2400.5\nflags\t: a\ncpu MHz\t\t: 2600.5\n"), 2500.5);
  EXPECT_FALSE(clock_mhz_in("processor\t: 0\n")) << "not every kind of CPU has it";
}

TEST(HostLoad, others_are_all_that_is_no_descendant_of_the_study) {
  const Proc proc;
  proc.stat(1000, 50, 9000), proc.put("loadavg", "1.00 0 0 1/2 3\n"), proc.put("cpuinfo", "cpu MHz : 3000\n");
  proc.process(100, 1, 10, 500), proc.process(7, 1, 400, 0);
  LoadWatch watch(100, proc.path(), proc.path() + "/none");
  watch.look(0);
  proc.process(101, 100, 5, 0), proc.process(102, 101, 300, 0), proc.process(7, 1, 495, 0);
  proc.stat(1400, 70, 9580), proc.put("loadavg", "3.00 0 0 1/2 3\n");
  watch.look(0.5);  // too soon: nothing is read
  watch.look(2);
  proc.gone(101), proc.gone(102), proc.process(100, 1, 10, 500 + 320);  // they ended, and were waited for
  proc.stat(1420, 70, 9580);
  const auto load = watch.end();
  ASSERT_TRUE(load);
  EXPECT_DOUBLE_EQ(load->others, (420 - 320) / 1020.);
  EXPECT_DOUBLE_EQ(load->stolen, 20 / 1020.);
  EXPECT_DOUBLE_EQ(load->taken(), 120 / 1020.);
  EXPECT_DOUBLE_EQ(load->average, (1 + 3 + 3) / 3.);
  EXPECT_DOUBLE_EQ(load->average_most, 3);
  EXPECT_DOUBLE_EQ(*load->clock_mhz, 3000);
  Value end = Value::object();
  end.set("load", value_of(*load));
  EXPECT_DOUBLE_EQ(host_load_in(end)->others, load->others);
  EXPECT_DOUBLE_EQ(*host_load_in(end)->clock_mhz_least, 3000);
}

TEST(HostLoad, the_clock_is_that_of_the_driver_where_there_is_one) {
  const Proc proc;
  proc.stat(1, 0, 1), proc.put("loadavg", "0 0 0"), proc.put("cpuinfo", "cpu MHz : 3000\n");
  proc.put("cpus/cpu0/cpufreq/scaling_cur_freq", "1000000\n");
  proc.put("cpus/cpu1/cpufreq/scaling_cur_freq", "2000000\n");
  LoadWatch watch(100, proc.path(), proc.path() + "/cpus");
  watch.look(0);
  proc.stat(2, 0, 2);
  EXPECT_DOUBLE_EQ(*watch.end()->clock_mhz, 1500);
}

TEST(HostLoad, a_host_that_says_nothing_is_no_load) {
  const Proc proc;
  LoadWatch watch(100, proc.path(), proc.path());
  watch.look(0);
  EXPECT_FALSE(watch.end());
  EXPECT_FALSE(host_load_in(Value::object()));
  EXPECT_FALSE(is_disturbed(Value::object(), 0.1));
}

Value end_under(const std::string& run, const char* state, double others) {
  Value end = Value::object(), load = Value::object();
  load.set("others", others), load.set("stolen", 0.05);
  end.set("event", "end"), end.set("run", run), end.set("state", state), end.set("load", load);
  return end;
}

TEST(HostLoad, runs_under_more_than_is_allowed_come_again) {
  const std::vector<Value> lines = {end_under("a", "ok", 0.1), end_under("b", "ok", 0.2),
                                    end_under("c", "crashed", 0.9), end_under("d", "timeout", 0.9)};
  const auto done = [&](double allowed) {
    std::string runs;
    for (const auto& [run, state] : ended_runs(lines, allowed)) runs += run;
    return runs;
  };
  EXPECT_EQ(done(0), "abcd") << "any load is allowed";
  EXPECT_EQ(done(0.2), "ac") << "stolen time counts; a crash is one under any load";
  EXPECT_EQ(done(1), "abcd");
}

TEST(HostLoad, repeats_that_ended_under_load_alone_are_counted_apart) {
  StudyRecord study = planted();
  const size_t all = study.cells.size() * kBlocks;
  EXPECT_NE(repeats_text(study).find(concat(all, " of ", all, " runs have ended.")), std::string::npos);
  CellRecord& cell = study.cells[2];
  cell.disturbed = {cell.runs.back(), cell.runs.back(), cell.runs.front()};  // the first one has come again
  cell.runs.pop_back();
  EXPECT_NE(repeats_text(study).find(concat(all - 1, " of ", all, " runs have ended, 1 more under load")),
            std::string::npos)
      << repeats_text(study);
}

// The report tells disturbed runs and has them in no figure.
TEST(HostLoad, disturbed_runs_are_told_and_left_out) {
  StudyRecord study = planted();
  study.allow_load = 0.1;
  const double mean = analysis_of(study).cells[1].speed.mean;
  RunRecord slow = study.cells[1].runs[0];
  slow.load = HostLoad{9, 9, 0.4, 0.1, 2000, 2000}, slow.id = "slow one";
  for (double& step : slow.step_s) step *= 10;
  study.cells[1].disturbed.push_back(slow);
  study.cells[0].runs[0].load = HostLoad{1, 1, 0.04, 0, {}, {}};
  const Analysis analysis = analysis_of(study);
  EXPECT_DOUBLE_EQ(analysis.cells[1].speed.mean, mean);
  const std::string page = html_text(study, analysis, {}, "none"), runs = runs_csv(study, analysis);
  for (const char* part : {"1 run under load left out of all figures", "took 50.0 % of the CPU time", "up to 4.0 % of"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_NE(runs.find("slow one"), std::string::npos);
  EXPECT_NE(runs.find(",no,9,0.4,0.1,2000"), std::string::npos) << runs;
  EXPECT_NE(json_text(study, analysis).find("\"runs_under_load\""), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::study
