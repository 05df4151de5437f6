// `drivetrain bench kernels`: every operation that kernels/ describes, against the bandwidth a simple loop gets at its
// size.
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include <drivetrain/device.h>
#include <drivetrain/toolkit/text.h>

#include "bench/bandwidth.h"
#include "bench/machine.h"
#include "bench/table.h"
#include "kernels/common/bench.h"
#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

class TensorMemory final : public kernels::BenchMemory {
 public:
  explicit TensorMemory(const at::Device& device) : device_(device) {}

  void* numbers(int64_t count, kernels::Dtype dtype) override {
    const at::ScalarType type = dtype == kernels::Dtype::f32    ? at::kFloat
                                : dtype == kernels::Dtype::bf16 ? at::kBFloat16
                                                                : at::kHalf;
    return keep(at::rand({count}, options(at::kFloat)).to(type));
  }
  double* doubles(int64_t count, double value) override {
    return static_cast<double*>(keep(at::full({count}, value, options(at::kDouble))));
  }
  int64_t* indices(int64_t count, int64_t below) override {
    return static_cast<int64_t*>(keep(at::randint(below, {count}, options(at::kLong))));
  }
  void sorted(const int64_t* indices, int64_t, const int64_t*& order, const int64_t*& values) override {
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i].const_data_ptr() != indices) continue;
      const auto [sorted, positions] = at::sort(kept_[i], /*stable=*/true, 0, false);
      values = static_cast<const int64_t*>(keep(sorted)), order = static_cast<const int64_t*>(keep(positions));
      return;
    }
  }
  void* zeros(int64_t bytes) override { return keep(at::zeros({bytes}, options(at::kByte))); }
  int64_t rows(int64_t on_cpu) const override { return device_.is_cpu() ? on_cpu : 16 * on_cpu; }

 private:
  at::TensorOptions options(at::ScalarType type) const { return at::TensorOptions(type).device(device_); }
  void* keep(const at::Tensor& tensor) {
    kept_.push_back(tensor);
    return tensor.mutable_data_ptr();
  }

  at::Device device_;
  std::vector<at::Tensor> kept_;
};

kernels::Dtype dtype_named(const std::string& name, const at::Device& device) {
  if (name == "f32") return kernels::Dtype::f32;
  if (device.is_cpu())
    throw fail(ErrorCode::config, "bench kernels: the CPU's kernels compute in f32; leave --dtype out");
  return name == "bf16" ? kernels::Dtype::bf16 : kernels::Dtype::f16;
}

TimedWork work_of(const kernels::BenchCase& c, const at::Device& device) {
  if (device.is_cpu())
    return [&c] { at::parallel_for(0, c.items, 1, [&](int64_t begin, int64_t end) { c.cpu(begin, end); }); };
  return [&c, device] { check_launch(c.cuda(current_stream(device)), c.op.c_str()); };
}

// Seconds of a call, and bytes per second of the better plain loop beside it.
std::pair<double, double> time_kernel(const kernels::BenchCase& c, const at::Device& device, int64_t rounds,
                                      Bandwidth& bandwidth) {
  const MemoryLoops& loops = bandwidth.loops_at(c.bytes);
  std::vector<TimedWork> works = loops.works;
  works.push_back(work_of(c, device));
  const std::vector<double> least = least_seconds(device, works, rounds);
  double bound = 0;
  for (size_t i = 0; i < loops.bytes.size(); ++i) bound = std::max(bound, loops.bytes[i] / least[i]);
  return {least.back(), bound};
}

}  // namespace

BenchReport bench_kernels(const BenchArguments& arguments) {
  const BenchMachine machine = describe_machine();
  const at::Device device = open_bench_device(arguments);
  const kernels::Dtype dtype = dtype_named(arguments.text("--dtype"), device);
  const int64_t rounds = arguments.whole("--rounds");
  install_cpu_allocator();
  BenchReport report = report_on("kernels", machine);
  Bandwidth bandwidth(device);
  TextTable table({"kernel", "shape", "time", "GB/s", "a plain loop", "share"});
  Value list = Value::array();
  std::vector<kernels::BenchEntry> entries = kernels::bench_entries();
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.op < b.op; });
  for (const kernels::BenchEntry& entry : entries) {
    TensorMemory memory(device);
    for (const kernels::BenchCase& c : entry.make(memory, dtype)) {
      if (!device.is_cpu() && !c.cuda) continue;
      const auto [seconds, bound] = time_kernel(c, device, rounds, bandwidth);
      const double share = c.bytes / seconds / bound;
      table.row({c.op, c.shape, seconds_text(seconds), formatted("%.1f", c.bytes / seconds / 1e9),
                 formatted("%.1f", bound / 1e9), formatted("%.0f %%", 100 * share)});
      Value one = Value::object();
      one.set("kernel", c.op);
      one.set("shape", c.shape);
      one.set("seconds", seconds);
      one.set("bytes", c.bytes);
      one.set("bytes_per_s", c.bytes / seconds);
      one.set("bound_bytes_per_s", bound);
      one.set("share", share);
      list.items().push_back(std::move(one));
    }
  }
  report.json.set("device", device.str());
  report.json.set("kernels", std::move(list));
  report.text += table.text();
  return report;
}

}  // namespace drivetrain
