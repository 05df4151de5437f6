// What `drivetrain bench kernels` is told about an operation: <op>_bench.cpp describes typical shapes, the bytes that
// one call has to move and how it is called. Those files are compiled into the benchmark, not into the library of
// kernels.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// Memory of the device that is measured, owned by the benchmark and alive as long as the cases.
class BenchMemory {
 public:
  virtual ~BenchMemory() = default;
  virtual void* numbers(int64_t count, Dtype dtype) = 0;       // uniform in (0, 1)
  virtual double* doubles(int64_t count, double value) = 0;    // all `value`
  virtual int64_t* indices(int64_t count, int64_t below) = 0;  // uniform in [0, below)
  // A stable sort of what `indices` gave, and the positions it took them from.
  virtual void sorted(const int64_t* indices, int64_t count, const int64_t*& order, const int64_t*& values) = 0;
  virtual void* zeros(int64_t bytes) = 0;
  virtual int64_t rows(int64_t on_cpu) const = 0;  // accelerators want more at once
  float* floats(int64_t count) { return static_cast<float*>(numbers(count, Dtype::f32)); }
};

struct BenchCase {
  std::string op, shape;
  double bytes = 0;   // that one call reads and writes; an array passed over twice counts twice if it exceeds caches
  int64_t items = 0;  // rows or blocks that threads share
  std::function<void(int64_t begin, int64_t end)> cpu;
  std::function<int(void* stream)> cuda;  // empty without CUDA
};

using BenchMaker = std::vector<BenchCase> (*)(BenchMemory& memory, Dtype dtype);
struct BenchEntry {
  std::string op;
  BenchMaker make;
};
inline std::vector<BenchEntry>& bench_entries() {
  static std::vector<BenchEntry> entries;
  return entries;
}
// At namespace scope of <op>_bench.cpp: const BenchRegistration registered("op", make).
struct BenchRegistration {
  BenchRegistration(const char* op, BenchMaker make) { bench_entries().push_back({op, make}); }
};

inline double bytes_of(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }

template <class Op>
BenchCase bench_case(const std::string& name, const std::string& shape, double bytes, int64_t items, const Op& op,
                     void (*cpu)(const Op&, int64_t, int64_t), int (*cuda)(const std::type_identity_t<Op>&, void*)) {
  BenchCase c{name, shape, bytes, items, [op, cpu](int64_t begin, int64_t end) { cpu(op, begin, end); }, {}};
  if (cuda) c.cuda = [op, cuda](void* stream) { return cuda(op, stream); };
  return c;
}

inline std::string shape_text(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// Builds without nvcc have no CUDA functions to name.
#ifdef DRIVETRAIN_WITH_CUDA
#define DRIVETRAIN_BENCH_CUDA(function) function
#else
#define DRIVETRAIN_BENCH_CUDA(function) nullptr
#endif

}  // namespace drivetrain::kernels
