// Questions to the program itself that need its library, such as the plan of a cell. One process loads the library and
// forks for each question: loading LibTorch takes nine tenths of a question that has a process of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include <drivetrain/value.h>

#include "launch/rank_process.h"
#include "study/process.h"

namespace drivetrain::study {

class Questions {
 public:
  // Main thread, before there are others. Throws Error(io) if there can be no further process.
  Questions();
  ~Questions();  // ends the process and with it what is still asked
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;

  // What `command` would print, and its exit code. From any thread. Of `question` are read: command, environment,
  // timeout_s and stops_by_second. Variables that LibTorch reads while it is loaded, such as OMP_NUM_THREADS, have no
  // effect; no plan depends on them. Throws Error(io) where nothing answers: no process can be made for the question,
  // or it ends before it has an exit code, as one that the kernel ends for memory. That says nothing about a config.
  ProcessEnd ask(const ProcessStart& question) const;

  // The JSON that `question` prints. None: the program refuses, and `refusal` says why. Throws Error(config) if a
  // second signal stops the study meanwhile, Error(io) if there is no answer in time.
  std::optional<Value> answer(ProcessStart question, std::string& refusal) const;

 private:
  program::Descriptor socket_;
  pid_t pid_ = -1;
};

// Calls ask_one(i) of each i in [first, end), as many at a time as there are cores, since each asks a process of its
// own. Throws Error(config) if a signal stops the study.
void ask_side_by_side(size_t first, size_t end, const std::function<void(size_t)>& ask_one);

// An error's text as the program printed it, without "drivetrain: error: ".
std::string without_prefix(std::string text);

}  // namespace drivetrain::study
