// What else the host did while a run was at work: load average, time that a hypervisor gave to others, other processes'
// share of the CPUs, clock. From the texts under /proc, so that tests can bring their own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include <drivetrain/value.h>

namespace drivetrain::study {

// Ticks of all CPUs since the host began, by the first line of /proc/stat.
struct CpuTicks {
  int64_t busy = 0, idle = 0, stolen = 0;
  int64_t all() const { return busy + idle + stolen; }
};
std::optional<CpuTicks> cpu_ticks_in(const std::string& stat);
// Of the last minute, by /proc/loadavg.
std::optional<double> load_average_in(const std::string& loadavg);
// The mean over CPUs, by "cpu MHz" of /proc/cpuinfo.
std::optional<double> clock_mhz_in(const std::string& cpuinfo);

// Of one run, as its line in the ledger has it.
struct HostLoad {
  double average = 0, average_most = 0;  // load averages that were read, the run's own ranks with them
  double others = 0;                     // share of the host's CPU time that processes beside the study's had
  double stolen = 0;                     // share of it that the host did not get
  std::optional<double> clock_mhz, clock_mhz_least;

  double taken() const { return others + stolen; }  // what "allow_load" is compared with
};
Value value_of(const HostLoad& load);
// Of an "end" line; nothing where it was not measured.
std::optional<HostLoad> host_load_in(const Value& end);
// An end that says something about speed, under more load than the study allows (0: any). Such a run comes again.
bool is_disturbed(const Value& end, double allow_load);

class LoadWatch {
 public:
  // `root`: the process whose time, with that of all its descendants, is the study's own.
  explicit LoadWatch(pid_t root, std::string proc = "/proc", std::string cpus = "/sys/devices/system/cpu");

  // Reads at its begin and about once in a second.
  void look(double now_s);
  // Reads once more; nothing where the host does not say it, or where no tick has passed.
  std::optional<HostLoad> end();

 private:
  void read();
  int64_t own_ticks() const;
  std::optional<double> clock_mhz() const;

  const pid_t root_;
  const std::string proc_, cpus_;
  std::optional<CpuTicks> first_, last_;
  int64_t own_first_ = 0, own_last_ = 0;
  double next_s_ = 0, average_sum_ = 0, average_most_ = 0, clock_sum_ = 0, clock_least_ = 0;
  int64_t averages_ = 0, clocks_ = 0;
};

}  // namespace drivetrain::study
