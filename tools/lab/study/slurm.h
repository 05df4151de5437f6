// Runs of a study as tasks of SLURM's array jobs: submitted by sbatch, asked for by squeue, ended by scancel.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "study/cell_run.h"
#include "study/study_file.h"

namespace drivetrain::study {

struct SlurmTask {
  std::string job;
  int64_t index = 0;
  std::string output;        // what it prints
  std::string name() const;  // "123_4", as squeue has it
};

// What a task cannot give: other hosts than its own. Throws Error(config).
void check_slurm(const StudyFile& study, const std::vector<Cell>& cells, const std::vector<CellPlan>& plans);

class SlurmQueue {
 public:
  // Throws Error(config) where there is no sbatch.
  SlurmQueue(const StudyFile& study, std::string program);

  // One array job with a task for each of these runs. Throws Error(communication) with what sbatch said.
  std::vector<SlurmTask> submit(const std::vector<CellRun>& runs);

  // How a task has ended ("COMPLETED", "CANCELLED", ...), or "gone" where SLURM does not know it any more. None: it
  // waits or runs, or squeue does not answer. SLURM is asked once in a few seconds for all tasks of a job.
  std::optional<std::string> end_of(const SlurmTask& task);

  void cancel_waiting(const std::string& job);  // tasks that have not begun
  void cancel(const std::string& job);

 private:
  struct Seen {
    std::chrono::steady_clock::time_point when;
    bool answered = false, unknown = false;  // the job is not in the queue any more
    std::map<int64_t, std::string> states;   // by task
    std::string others;                      // of tasks that are not listed one by one; "": there are none
  };
  const Seen& look(const std::string& job);

  const StudyFile& study_;
  const std::string program_;
  std::map<std::string, Seen> seen_;
};

}  // namespace drivetrain::study
