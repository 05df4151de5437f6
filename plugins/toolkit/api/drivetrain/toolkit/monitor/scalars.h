// What DeepSpeed's monitors write of a step: series of figures over the number of samples. Header only. Thread: any.
//
// Source: DeepSpeed engine.py and monitor/monitor.py: the events "Train/Samples/train_loss", ".../lr" and
// ".../loss_scale", whose x axis is the number of samples so far.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <drivetrain/monitor.h>
#include <drivetrain/options.h>

namespace drivetrain {

// The options of the sections csv_monitor and tensorboard, without `enabled`.
struct ScalarOptions {
  std::string output_path, job_name = "DeepSpeedJobName";
};

inline OptionTable scalar_options_table() {
  return table<ScalarOptions>()
      .field("output_path", &ScalarOptions::output_path,
             "folder that holds the job's folder, relative to the current one; \"\": the run's output_dir")
      .field("job_name", &ScalarOptions::job_name, "folder for the files of this job")
      .finish([](ScalarOptions& o) {
        if (o.job_name.empty() || o.job_name.find_first_of("/\\") != std::string::npos || o.job_name.starts_with('.'))
          throw fail(ErrorCode::config, "job_name is \"", o.job_name, "\"; wanted the name of one folder");
      });
}

// The folder of the files, made if it is not there. `facts`: of the event "run_begin". `plugin`: "monitor/mine".
inline std::string scalar_folder(const ScalarOptions& options, const Value& facts, const char* plugin) {
  const Value* const run = facts.find("output_dir");
  if (!run) throw fail(ErrorCode::internal, plugin, ": run_begin names no output_dir");
  const std::filesystem::path base = options.output_path.empty() ? run->as_string() : options.output_path;
  const std::string folder = std::filesystem::absolute(base / options.job_name).lexically_normal().string();
  std::error_code why;
  std::filesystem::create_directories(folder, why);
  if (why)
    throw fail(ErrorCode::io, plugin, ": cannot make the folder ", folder, ": ", why.message(),
               "\n   choose another output_path");
  return folder;
}

struct Scalar {
  std::string name;  // "Train/Samples/lr"
  double value = 0;
};

// Every number of a "step" event but the step. The loss has DeepSpeed's name, the others their own behind the same
// words.
inline std::vector<Scalar> scalars_of(const Event& event) {
  std::vector<Scalar> scalars;
  for (const Value::Member& m : event.data.members())
    if (m.value.is_number() && m.key != "step")
      scalars.push_back({"Train/Samples/" + (m.key == "loss" ? "train_loss" : m.key), m.value.as_double()});
  return scalars;
}

}  // namespace drivetrain
