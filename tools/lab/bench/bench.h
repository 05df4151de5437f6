// The benchmarks behind `drivetrain bench NAME`. Each is one function from arguments to a report; nothing here knows an
// implementation by name. Main thread; arguments that contradict each other are Error(config).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

#include "cli/arguments.h"

namespace drivetrain {

// Of one benchmark: its rows of the table say which options there are.
using BenchArguments = cli::Arguments;

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
BenchReport bench_rendezvous(const BenchArguments& arguments);
BenchReport bench_collectives(const BenchArguments& arguments);
BenchReport bench_context(const BenchArguments& arguments);
BenchReport bench_checkpoint(const BenchArguments& arguments);
BenchReport bench_hardware(const BenchArguments& arguments);
BenchReport bench_data(const BenchArguments& arguments);
BenchReport bench_products(const BenchArguments& arguments);
BenchReport bench_plugins(const BenchArguments& arguments);

}  // namespace drivetrain
