#include "bench/timing.h"

#include <algorithm>
#include <chrono>

#include "device/device_runtime.h"

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

double seconds_of(const at::Device& device, const TimedWork& work) {
  if (device.is_cpu()) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  DeviceRuntime& runtime = *device_runtime();
  const auto start = runtime.new_mark(device), end = runtime.new_mark(device);
  runtime.synchronize(device);
  start->record();
  work();
  end->record();
  return end->seconds_since(*start);
}

std::vector<std::vector<double>> take_turns(const at::Device& device, const std::vector<TimedWork>& works,
                                            int64_t rounds) {
  std::vector<std::vector<double>> seconds(works.size());
  for (const TimedWork& work : works) work();
  for (int64_t round = 0; round < rounds; ++round)
    for (size_t i = 0; i < works.size(); ++i) seconds[i].push_back(seconds_of(device, works[i]));
  return seconds;
}

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> list;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) list.push_back(a[i] / b[i]);
  return list;
}

}  // namespace drivetrain
