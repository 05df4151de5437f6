// `drivetrain bench NAME`: finds the benchmark, prints its table or its object.
#include <iostream>

#include "bench/bench.h"
#include "shared/commands.h"

namespace drivetrain {
namespace {

struct Bench {
  const char* command;
  BenchReport (*run)(const BenchArguments&);
};

constexpr Bench kBenches[] = {{"bench step", bench_step},
                              {"bench kernels", bench_kernels},
                              {"bench optimizer", bench_optimizer},
                              {"bench attention", bench_attention},
                              {"bench startup", bench_startup},
                              {"bench collectives", bench_collectives},
                              {"bench context", bench_context},
                              {"bench checkpoint", bench_checkpoint},
                              {"bench data", bench_data},
                              {"bench plugins", bench_plugins},
                              {"bench hardware", bench_hardware},
                              {"bench products", bench_products},
                              {"bench rendezvous", bench_rendezvous}};

}  // namespace

int bench_command(const cli::Arguments& arguments) {
  for (const Bench& bench : kBenches) {
    if (arguments.command().name != bench.command) continue;
    const BenchReport report = bench.run(arguments);
    if (!report.silent)
      std::cout << (arguments.has("--json") ? report.json.to_json() + "\n" : report.text) << std::flush;
    return 0;
  }
  throw fail(ErrorCode::internal, "the table of commands has ", arguments.command().name, ", the library does not");
}

}  // namespace drivetrain
