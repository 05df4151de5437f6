// The benchmarks behind `drivetrain bench NAME`. Each is one function from arguments to a report; nothing here knows an
// implementation by name. Main thread; wrong arguments are Error(config) with the usage line.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

// The words after the benchmark's name: plain ones, and options this benchmark takes.
class DRIVETRAIN_INTERNAL BenchArguments {
 public:
  // `flags` and `options`: what is allowed here ("--json", "--seq"); `most`: plain words.
  BenchArguments(const std::string& bench, const std::vector<std::string>& words, const std::vector<std::string>& flags,
                 const std::vector<std::string>& options, size_t most);

  const std::vector<std::string>& plain() const { return plain_; }
  bool has(const std::string& option) const { return !all(option).empty(); }
  std::vector<std::string> all(const std::string& option) const;  // every value given, in order; "" for a flag
  std::string text(const std::string& option, const std::string& otherwise) const;  // the last one given
  int64_t whole(const std::string& option, int64_t otherwise, int64_t least = 1) const;
  std::vector<std::string> options_without(const std::string& option) const;  // as words, for another process

 private:
  std::string bench_;
  std::vector<std::string> plain_;
  std::vector<std::pair<std::string, std::string>> options_;
};

struct BenchReport {
  Value json = Value::object();  // the one object of --json; `bench` and `machine` are set by its maker
  std::string text;              // tables for people
  bool silent = false;           // another rank than 0 says nothing
};

BenchReport bench_step(const BenchArguments& arguments);
BenchReport bench_kernels(const BenchArguments& arguments);
BenchReport bench_optimizer(const BenchArguments& arguments);
BenchReport bench_attention(const BenchArguments& arguments);
BenchReport bench_startup(const BenchArguments& arguments);
BenchReport bench_collectives(const BenchArguments& arguments);
BenchReport bench_context(const BenchArguments& arguments);

}  // namespace drivetrain
