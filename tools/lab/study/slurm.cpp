#include "study/slurm.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "launch/hosts_request.h"
#include "study/process.h"
#include "study/study_task.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

constexpr auto kAskEvery = std::chrono::seconds(3);
constexpr double kAnswerTime = 120;   // seconds for one command of SLURM
constexpr double kMoreThanRun = 120;  // seconds of a task beside its run's timeout

ProcessEnd said_by(const std::vector<std::string>& command, const std::string& input = "") {
  ProcessStart start;
  start.command = command, start.input = input, start.timeout_s = kAnswerTime, start.stops_by_second = false;
  return run_process(start);
}

// What is in a name of --output is no pattern of sbatch's.
std::string without_patterns(const std::string& path) {
  std::string result;
  for (const char c : path) result += c == '%' ? std::string("%%") : std::string(1, c);
  return result;
}

std::string new_folder_of(const StudyFile& study) {
  for (int number = 1;; ++number) {
    const std::string folder = concat(study.output_dir, "/slurm/", number);
    std::error_code error;
    if (fs::exists(folder, error)) continue;
    fs::create_directories(folder, error);
    if (error) throw fail(ErrorCode::io, "study: cannot create ", one_line(folder), ": ", error.message());
    return folder;
  }
}

std::string script_of(const std::string& program, const std::string& folder) {
  return "#!/bin/bash\n# One run of a study; its line goes into the run's folder, where the study takes it up.\nexec " +
         program::shell_quoted(program) + " study task " + program::shell_quoted(folder) +
         "/\"$SLURM_ARRAY_TASK_ID\".json\n";
}

// CONFIGURING, SIGNALING and others are of jobs that are not over.
bool is_over(const std::string& state) {
  for (const char* word : {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
                           "PREEMPTED", "REVOKED", "TIMEOUT"})
    if (state == word) return true;
  return false;
}

}  // namespace

std::string SlurmTask::name() const { return concat(job, "_", index); }

void check_slurm(const StudyFile& study, const std::vector<Cell>& cells, const std::vector<CellPlan>& plans) {
  if (!study.dispatch.is_slurm) return;
  for (size_t i = 0; i < plans.size(); ++i)
    if (!plans[i].hosts.empty())
      throw fail(ErrorCode::config, study.path, ": \"dispatch\": the cell ", shown(cells[i].id), " runs on ",
                 shown(plans[i].hosts), ", and a task of SLURM is on one host that SLURM chooses\n   leave out ",
                 "\"dispatch\" or \"hosts\"");
}

SlurmQueue::SlurmQueue(const StudyFile& study, std::string program) : study_(study), program_(std::move(program)) {
  const ProcessEnd said = said_by({"sbatch", "--version"});
  if (said.code != 0)
    throw fail(ErrorCode::config, study.path, ": \"dispatch\": sbatch is not to be had here: ",
               said.code == 127 ? std::string("there is no such program") : first_line(said.err),
               "\n   begin the study on a host that submits jobs to SLURM, or take {\"slots\": N} for this host alone");
}

std::vector<SlurmTask> SlurmQueue::submit(const std::vector<CellRun>& runs) {
  const std::string folder = new_folder_of(study_);
  for (size_t i = 0; i < runs.size(); ++i) write_task(concat(folder, "/", i, ".json"), runs[i]);
  const Slurm& slurm = study_.dispatch.slurm;
  std::vector<std::string> command = {
      "sbatch",
      "--parsable",
      "--no-requeue",
      "--nodes=1",
      "--ntasks=1",
      "--job-name=" + study_.name,
      concat("--array=0-", runs.size() - 1, slurm.at_once > 0 ? concat("%", slurm.at_once) : std::string()),
      concat("--time=", static_cast<int64_t>(std::ceil((study_.timeout_s + kMoreThanRun) / 60))),
      "--output=" + without_patterns(folder) + "/%a.txt"};
  command.insert(command.end(), slurm.options.begin(), slurm.options.end());
  const ProcessEnd said = said_by(command, script_of(program_, folder));
  const std::string job = said.out.substr(0, said.out.find_first_of(";\n "));
  if (said.code != 0 || job.empty() || job.find_first_not_of("0123456789") != std::string::npos)
    throw fail(ErrorCode::communication, "study: sbatch took no array job of ", runs.size(),
               " tasks: ", shown(first_line(said.err.empty() ? said.out : said.err)),
               "\n   it was asked: ", shown(join(command, " ")),
               "\n   correct \"dispatch\": {\"slurm\": {\"options\": [...]}} or ask the cluster's administrators, and "
               "go on with --resume");
  std::vector<SlurmTask> tasks;
  for (size_t i = 0; i < runs.size(); ++i)
    tasks.push_back({job, static_cast<int64_t>(i), concat(folder, "/", i, ".txt")});
  return tasks;
}

const SlurmQueue::Seen& SlurmQueue::look(const std::string& job) {
  Seen& seen = seen_[job];
  const auto now = std::chrono::steady_clock::now();
  if (seen.when.time_since_epoch().count() > 0 && now - seen.when < kAskEvery) return seen;
  const ProcessEnd said =
      said_by({"squeue", "--noheader", "--array", "--states=all", "--jobs=" + job, "--format=%K %T"});
  seen.when = std::chrono::steady_clock::now(), seen.answered = said.code == 0;
  seen.unknown = said.code != 0 && said.err.find("Invalid job id") != std::string::npos;
  if (!seen.answered) return seen;
  seen.states.clear(), seen.others.clear();
  std::istringstream lines(said.out);
  // Tasks that ended while they waited may stand in one line for all of them, without a number of their own.
  for (std::string index, state; lines >> index >> state;)
    if (index.find_first_not_of("0123456789") == std::string::npos)
      seen.states[std::stoll(index)] = state;
    else
      seen.others = state;
  return seen;
}

std::optional<std::string> SlurmQueue::end_of(const SlurmTask& task) {
  const Seen& seen = look(task.job);
  if (seen.unknown) return "gone";
  if (!seen.answered) return std::nullopt;
  const auto own = seen.states.find(task.index);
  const std::string& state = own == seen.states.end() ? seen.others : own->second;
  if (state.empty()) return "gone";
  return is_over(state) ? std::optional(state) : std::nullopt;
}

void SlurmQueue::cancel_waiting(const std::string& job) { said_by({"scancel", "--state=PENDING", job}); }
void SlurmQueue::cancel(const std::string& job) { said_by({"scancel", job}); }

}  // namespace drivetrain::study
