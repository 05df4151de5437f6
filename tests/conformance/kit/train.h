// Whole training runs for suites whose promise is one of runs: what policies and precisions do to the numbers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

namespace drivetrain::test {

struct TrainedRun {
  std::string folder;          // output_dir
  std::vector<Value> metrics;  // the objects of metrics.jsonl, one per step
  std::string final_folder() const { return folder + "/final"; }
  std::string weights_file() const { return final_folder() + "/model.safetensors"; }
};

// Trains with a config as in a file, which names output_dir, on this number of ranks; every rank computes on one
// thread. Throws what ended the run, with its exit code as the code of the error.
using TrainFunction = std::function<TrainedRun(const Value& config, int ranks)>;

// The program `drivetrain` of the installation that libdrivetrain.so belongs to, run to its end.
struct Output {
  int code = 0;
  std::string text;  // standard output and errors
};
Output run_program(const std::vector<std::string>& words);

// Why a run was refused, in one line: without the place in a config that is gone, and what the program said before.
std::string reason_of(const Error& refusal);

// By `drivetrain launch`, with the libraries that were opened explicitly.
TrainedRun train_by_program(const Value& config, int ranks);

std::vector<Value> read_metrics_file(const std::string& folder);

}  // namespace drivetrain::test
