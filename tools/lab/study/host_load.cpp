#include "study/host_load.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "study/ledger.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

constexpr double kReadEvery = 1;        // seconds
constexpr int64_t kClockReadEvery = 5;  // readings: the kernel may have to ask every core
constexpr size_t kMostClocks = 256;     // CPUs

std::string proc_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // A process may end while its file is read; iterators over the buffer would throw then.
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

struct ProcessTicks {
  pid_t parent = 0;
  int64_t ticks = 0;  // its own, and those of children that it has waited for
};

// Fields after the name, which may hold any character: state, parent, and from the twelfth on utime, stime, cutime,
// cstime.
std::optional<ProcessTicks> process_ticks_in(const std::string& stat) {
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream stream(stat.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; fields.size() < 15 && stream >> field;) fields.push_back(field);
  if (fields.size() < 15) return std::nullopt;
  ProcessTicks process{static_cast<pid_t>(std::atoll(fields[1].c_str())), 0};
  for (size_t i = 11; i < 15; ++i) process.ticks += std::atoll(fields[i].c_str());
  return process;
}

double load_figure(const Value& value, const char* key) {
  const Value* const number = value.find(key);
  return number && number->is_number() ? number->as_double() : 0;
}

}  // namespace

std::optional<CpuTicks> cpu_ticks_in(const std::string& stat) {
  std::istringstream stream(stat);
  std::string name;
  if (!(stream >> name) || name != "cpu") return std::nullopt;
  // user nice system idle iowait irq softirq steal; guests' time is in user's.
  int64_t ticks[8] = {};
  for (int i = 0; i < 8; ++i)
    if (!(stream >> ticks[i])) {
      if (i < 4) return std::nullopt;
      break;  // an old kernel has fewer of them
    }
  return CpuTicks{ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6], ticks[3] + ticks[4], ticks[7]};
}

std::optional<double> load_average_in(const std::string& loadavg) {
  std::istringstream stream(loadavg);
  double average = 0;
  return stream >> average ? std::optional(average) : std::nullopt;
}

std::optional<double> clock_mhz_in(const std::string& cpuinfo) {
  std::istringstream stream(cpuinfo);
  double sum = 0;
  int count = 0;
  for (std::string line; std::getline(stream, line);)
    if (const size_t colon = line.find(':'); line.starts_with("cpu MHz") && colon != std::string::npos)
      if (const double mhz = std::atof(line.c_str() + colon + 1); mhz > 0) sum += mhz, ++count;
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

Value value_of(const HostLoad& load) {
  Value value = Value::object();
  value.set("average", load.average), value.set("average_most", load.average_most);
  value.set("others", load.others), value.set("stolen", load.stolen);
  if (load.clock_mhz)
    value.set("clock_mhz", *load.clock_mhz), value.set("clock_mhz_least", load.clock_mhz_least.value_or(0));
  return value;
}

std::optional<HostLoad> host_load_in(const Value& end) {
  const Value* const value = end.find("load");
  if (!value || !value->is_object()) return std::nullopt;
  HostLoad load{load_figure(*value, "average"),
                load_figure(*value, "average_most"),
                load_figure(*value, "others"),
                load_figure(*value, "stolen"),
                std::nullopt,
                std::nullopt};
  if (value->find("clock_mhz"))
    load.clock_mhz = load_figure(*value, "clock_mhz"), load.clock_mhz_least = load_figure(*value, "clock_mhz_least");
  return load;
}

bool is_disturbed(const Value& end, double allow_load) {
  if (allow_load <= 0) return false;
  const Value* const state = end.find("state");
  const std::string name = state && state->is_string() ? state->as_string() : "";
  if (name != state_name(State::ok) && name != state_name(State::timeout)) return false;
  const std::optional<HostLoad> load = host_load_in(end);
  return load && load->taken() > allow_load;
}

LoadWatch::LoadWatch(pid_t root, std::string proc, std::string cpus)
    : root_(root), proc_(std::move(proc)), cpus_(std::move(cpus)) {}

void LoadWatch::look(double now_s) {
  if (first_ && now_s < next_s_) return;
  next_s_ = now_s + kReadEvery;
  read();
}

std::optional<HostLoad> LoadWatch::end() {
  read();
  if (!first_ || !last_ || last_->all() <= first_->all()) return std::nullopt;
  const auto all = static_cast<double>(last_->all() - first_->all());
  const auto share = [&](int64_t ticks) { return std::clamp(static_cast<double>(ticks) / all, 0.0, 1.0); };
  HostLoad load;
  if (averages_ > 0) load.average = average_sum_ / static_cast<double>(averages_), load.average_most = average_most_;
  load.others = share(last_->busy - first_->busy - (own_last_ - own_first_));
  load.stolen = share(last_->stolen - first_->stolen);
  if (clocks_ > 0) load.clock_mhz = clock_sum_ / static_cast<double>(clocks_), load.clock_mhz_least = clock_least_;
  return load;
}

void LoadWatch::read() {
  const std::optional<CpuTicks> now = cpu_ticks_in(proc_text(proc_ + "/stat"));
  if (!now) return;
  last_ = now, own_last_ = own_ticks();
  if (!first_) first_ = now, own_first_ = own_last_;
  if (const auto average = load_average_in(proc_text(proc_ + "/loadavg"))) {
    if (averages_ % kClockReadEvery == 0)
      if (const auto mhz = clock_mhz()) {
        clock_sum_ += *mhz, clock_least_ = clocks_ == 0 ? *mhz : std::min(clock_least_, *mhz);
        ++clocks_;
      }
    average_sum_ += *average, average_most_ = std::max(average_most_, *average), ++averages_;
  }
}

int64_t LoadWatch::own_ticks() const {
  std::map<pid_t, ProcessTicks> processes;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(proc_, none)) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    if (const auto process = process_ticks_in(proc_text(entry.path() / "stat")))
      processes[static_cast<pid_t>(std::atoll(name.c_str()))] = *process;
  }
  int64_t ticks = 0;
  for (const auto& [pid, process] : processes) {
    pid_t at = pid;
    for (size_t steps = 0; at != root_ && steps < processes.size(); ++steps) {  // a list that is read may have circles
      const auto up = processes.find(at);
      if (up == processes.end()) break;
      at = up->second.parent;
    }
    if (at == root_) ticks += process.ticks;
  }
  return ticks;
}

std::optional<double> LoadWatch::clock_mhz() const {
  double sum = 0;
  size_t count = 0;
  for (; count < kMostClocks; ++count) {
    const std::string khz = proc_text(cpus_ + "/cpu" + std::to_string(count) + "/cpufreq/scaling_cur_freq");
    if (khz.empty()) break;
    sum += std::atof(khz.c_str()) / 1e3;
  }
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : clock_mhz_in(proc_text(proc_ + "/cpuinfo"));
}

}  // namespace drivetrain::study
