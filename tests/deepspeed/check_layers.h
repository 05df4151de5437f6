// `drivetrain config check` over many DeepSpeed files at once, each beneath a run that gives what such a file does not
// say.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <drivetrain/testkit/kit/temp_folder.h>
#include <drivetrain/value.h>
#include "support/run_program.h"

namespace drivetrain::test {

// A run of 100 steps with a hidden size of 64 on the CPU.
constexpr const char* kRun = R"("train_steps": 100, "save_final": false,
  "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256,
            "max_position_embeddings": 32}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 32}})";

// The reports of `config check --json`, one for each file, in their order. `settings`: further keys of every run.
inline Value check_files(const TempFolder& folder, const std::vector<std::string>& files,
                         const std::string& settings = "") {
  std::string names;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string run = concat("run", i, ".json");
    std::ofstream(folder / run) << "{\"extends\": " << Value(files[i]).to_json() << ", " << kRun << settings << "}";
    names += " " + run;
  }
  const Ran ran = run_shell("cd " + folder.path() + " && " + program() + " config check --json" + names + " 2>errors");
  return parse_json(ran.output, "the output of config check");
}

}  // namespace drivetrain::test
