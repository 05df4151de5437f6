#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "contract/device_runtime.h"

namespace drivetrain {

Value Spread::to_value() const {
  Value value = Value::object();
  value.set("min", min);
  value.set("median", median);
  value.set("max", max);
  return value;
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {values.front(), (values[(n - 1) / 2] + values[n / 2]) / 2, values.back()};
}

namespace {

constexpr double kLongAgainstLaunch = 2e-3;  // seconds; a launch takes up to 5e-6
constexpr int64_t kMostCalls = 4096;

// From an empty queue, by the device's clock.
double device_seconds(const at::Device& device, const TimedWork& work, int64_t calls) {
  DeviceRuntime& runtime = *device_runtime();
  const auto start = runtime.new_mark(device), end = runtime.new_mark(device);
  runtime.synchronize(device);
  start->record();
  for (int64_t i = 0; i < calls; ++i) work();
  end->record();
  return end->seconds_since(*start);
}

}  // namespace

double seconds_of(const at::Device& device, const TimedWork& work) {
  if (device.is_cpu()) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return device_seconds(device, work, 1);
}

double seconds_of_each(const at::Device& device, const TimedWork& work) {
  if (device.is_cpu()) return seconds_of(device, work);
  for (int64_t calls = 1;;) {
    const double seconds = device_seconds(device, work, calls);
    if (seconds >= kLongAgainstLaunch || calls >= kMostCalls) return seconds / static_cast<double>(calls);
    const double wanted = std::ceil(1.2 * kLongAgainstLaunch / std::max(seconds, 1e-9) * static_cast<double>(calls));
    calls = static_cast<int64_t>(std::clamp(wanted, 2.0 * static_cast<double>(calls), double{kMostCalls}));
  }
}

std::vector<std::vector<double>> take_turns(const at::Device& device, const std::vector<TimedWork>& works,
                                            int64_t rounds) {
  std::vector<std::vector<double>> seconds(works.size());
  for (const TimedWork& work : works) work();
  for (int64_t round = 0; round < rounds; ++round)
    for (size_t i = 0; i < works.size(); ++i) seconds[i].push_back(seconds_of_each(device, works[i]));
  return seconds;
}

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> list;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) list.push_back(a[i] / b[i]);
  return list;
}

}  // namespace drivetrain
