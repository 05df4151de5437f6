#include "bench/machine.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <sstream>
#include <thread>

#include <drivetrain/toolkit/files/proc_text.h>
#include <drivetrain/toolkit/text.h>

#include "contract/device_runtime.h"
#include "device/open_device.h"
#include "log/log_console.h"
#include "shared/commands.h"
#include "shared/math_threads.h"
#include "train/start_device.h"

namespace drivetrain {
namespace {

constexpr double kBusyFrom = 0.1;  // a tenth of the processors already bends a table

struct Ticks {
  double idle = 0, all = 0;
};

// "cpu  user nice system idle iowait irq softirq steal guest guest_nice"; guests are in user already.
Ticks ticks_of(const std::string& stat) {
  std::istringstream words(stat);
  std::string name;
  Ticks ticks;
  if (!(words >> name) || name != "cpu") return ticks;
  double value = 0;
  for (int i = 0; i < 8 && words >> value; ++i) {
    ticks.all += value;
    if (i == 3 || i == 4) ticks.idle += value;
  }
  return ticks;
}

// The fourth word of /proc/loadavg: "running/all".
int64_t runnable_besides_us() {
  std::istringstream words(proc_text("/proc/loadavg"));
  std::string word;
  for (int i = 0; i < 4; ++i) words >> word;
  return std::max(0L, std::atol(word.c_str()) - 1);
}

std::string processor_name() {
  const std::string text = proc_text("/proc/cpuinfo");
  const size_t key = text.find("model name"), colon = text.find(": ", key);
  if (key == std::string::npos || colon == std::string::npos) return "unknown processor";
  return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

}  // namespace

double busy_between(const std::string& earlier, const std::string& later) {
  const Ticks a = ticks_of(earlier), b = ticks_of(later);
  const double all = b.all - a.all;
  return all > 0 ? std::max(0.0, 1 - (b.idle - a.idle) / all) : 0;
}

BenchMachine describe_machine() {
  BenchMachine machine;
  machine.processor = processor_name();
  machine.cores = std::max(1u, std::thread::hardware_concurrency());
  const std::string earlier = proc_text("/proc/stat");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  machine.busy_share = busy_between(earlier, proc_text("/proc/stat"));
  machine.runnable = runnable_besides_us();
  machine.idle = machine.busy_share < kBusyFrom;
  return machine;
}

Value machine_value(const BenchMachine& machine, int64_t threads) {
  Value value = Value::object();
  value.set("processor", machine.processor);
  value.set("cores", machine.cores);
  value.set("threads", threads);
  value.set("idle", machine.idle);
  value.set("idle_of", "processors");
  value.set("busy_share", machine.busy_share);
  value.set("runnable", machine.runnable);
  return value;
}

std::string machine_text(const BenchMachine& machine, int64_t threads) {
  std::string text =
      concat("machine: ", machine.processor, ", ", machine.cores, machine.cores == 1 ? " core, " : " cores, ", threads,
             threads == 1 ? " thread" : " threads");
  text += machine.accelerator ? "; processors " : "; ";
  text += machine.idle
              ? "idle before the benchmark"
              : concat("NOT IDLE: others had ", formatted("%.0f %%", 100 * machine.busy_share), " of ",
                       machine.accelerator ? "them" : "it", " before the benchmark, so the times below mean little");
  return text + "\n";
}

BenchReport report_on(const std::string& bench, const BenchMachine& looked_at) {
  BenchReport report;
  BenchMachine machine = looked_at;
  machine.accelerator = device_runtime() != nullptr;
  report.json.set("bench", bench);
  report.json.set("machine", machine_value(machine, at::get_num_threads()));
  report.text = machine_text(machine, at::get_num_threads());
  return report;
}

at::Device open_bench_device(const BenchArguments& arguments) {
  const std::string name = arguments.text("--device");
  open_device(name);
  start_device(name, 0, 1);
  set_math_threads(arguments.whole("--threads", std::max(1u, std::thread::hardware_concurrency())));
  return name == "cpu" ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
}

std::shared_ptr<Log> report_log(int64_t rank) {
  LogSettings settings = console_settings(rank);
  settings.out = settings.err;  // stdout is the report's
  return make_console_log(settings);
}

}  // namespace drivetrain
