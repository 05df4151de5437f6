#include "study/study_task.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>
#include <vector>

#include <drivetrain/error.h>

#include "base/input_file.h"
#include "base/printable.h"
#include "study/environment.h"
#include "study/interrupts.h"

namespace drivetrain::study {
namespace {

constexpr const char* kEnd = "/end.json";

// Whole or not at all, also for a study that looks at it from another host.
void write_whole(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  const bool written = static_cast<bool>(file << text << std::flush);
  file.close();
  if (!written || std::rename(unfinished.c_str(), path.c_str()) != 0)
    throw fail(ErrorCode::io, "study: cannot write ", one_line(path), ": ", std::strerror(errno));
}

Value texts_value(const std::set<std::string>& list) {
  Value values = Value::array();
  for (const std::string& one : list) values.items().push_back(one);
  return values;
}

// The run is one of this host alone, as where a study runs by itself: launch is not to take the job's tasks for ranks.
void forget_job() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry)
    names.push_back(std::string(*entry).substr(0, std::strcspn(*entry, "=")));
  for (const std::string& name : names)
    if (name.starts_with("SLURM_") || name.starts_with("PMI")) unsetenv(name.c_str());
}

}  // namespace

void write_task(const std::string& path, const CellRun& run) {
  Value task = Value::object();
  task.set("program", run.program), task.set("base", run.base), task.set("folder", run.folder);
  task.set("timeout_s", run.timeout_s), task.set("memory_limit", run.memory_limit);
  if (run.seed) task.set("seed", *run.seed);
  task.set("figures", texts_value(run.figures)), task.set("launch", launch_value(*run.plan));
  task.set("refusal", ""), task.set("config", run.plan->config);
  write_whole(path, task.to_json(2) + "\n");
}

int run_task(const std::string& path) {
  const Value task = parse_json(read_text(path, InputKind::file, "a task of a study"), path);
  for (const char* key : {"program", "base", "folder", "timeout_s", "memory_limit", "figures", "launch"})
    if (!task.find(key))
      throw fail(ErrorCode::config, "study task: ", one_line(path), " is no task of a study: it has no \"", key,
                 "\"\n   a study with \"dispatch\": {\"slurm\": ...} writes such files, and SLURM runs them");
  const Interrupts interrupts;
  const CellPlan plan = plan_of_launch(task);
  CellRun run{.plan = &plan,
              .program = task.find("program")->as_string(),
              .base = task.find("base")->as_string(),
              .folder = task.find("folder")->as_string(),
              .timeout_s = task.find("timeout_s")->as_double(),
              .memory_limit = task.find("memory_limit")->as_int()};
  if (const Value* const seed = task.find("seed")) run.seed = seed->as_int();
  for (const Value& name : task.find("figures")->items()) run.figures.insert(name.as_string());
  forget_job();
  CellProcess process(run);
  for (; Interrupts::count() == 0; std::this_thread::sleep_for(kPollEvery))
    if (const std::optional<CellEnd> end = process.poll()) {
      Value line = end->line;
      line.set("host", host_name()), line.set("disk_full", end->disk_full);
      write_whole(run.folder + kEnd, line.to_json() + "\n");
      return 0;
    }
  std::cerr << "study task: told to end by signal " << Interrupts::last() << "; the run is stopped\n";
  return 128 + Interrupts::last();
}

std::optional<CellEnd> task_end(const std::string& folder) {
  std::ifstream file(folder + kEnd, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Value written = parse_json(text, folder + kEnd);
  CellEnd end;
  end.line = Value::object();
  for (const Value::Member& m : written.members())
    if (m.key != "disk_full") end.line.set(m.key, m.value);
  if (const Value* const wall = written.find("wall_s")) end.wall_s = wall->as_double();
  if (const Value* const full = written.find("disk_full")) end.disk_full = full->as_bool();
  return end;
}

}  // namespace drivetrain::study
