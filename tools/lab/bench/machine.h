// What a benchmark ran on, and whether it had the machine for itself.
#pragma once

#include <memory>

#include <drivetrain/log.h>

#include "bench/bench.h"
#include "internal.h"

namespace drivetrain {

struct BenchMachine {
  std::string processor;
  int64_t cores = 1;
  double busy_share = 0;     // of all processors, by others, over the third of a second before the benchmark
  int64_t runnable = 0;      // tasks that want a processor besides this one
  bool idle = true;          // the processors; nobody looks at an accelerator
  bool accelerator = false;  // the work is an accelerator's
};

// Waits 0.3 s. Never refuses. Where /proc tells nothing the machine counts as idle.
DRIVETRAIN_INTERNAL BenchMachine describe_machine();
DRIVETRAIN_INTERNAL Value machine_value(const BenchMachine& machine, int64_t threads);
DRIVETRAIN_INTERNAL std::string machine_text(const BenchMachine& machine, int64_t threads);  // one line

// Share of the time between two texts of /proc/stat that processors were not idle.
DRIVETRAIN_INTERNAL double busy_between(const std::string& earlier, const std::string& later);

// Report with `bench` and `machine` set and the machine's line as text.
BenchReport report_on(const std::string& bench, const BenchMachine& machine);

// For ranks of a benchmark: what plugins tell goes to stderr, since stdout is the report's.
std::shared_ptr<Log> report_log(int64_t rank);

// "cpu" or "cuda" of --device, opened; sets the number of threads from --threads, else one per core.
DRIVETRAIN_INTERNAL at::Device open_bench_device(const BenchArguments& arguments);

}  // namespace drivetrain
