// Questions to the program itself that need its library, such as the plan of a cell. One process loads the library and
// forks for each question: loading LibTorch takes nine tenths of a question that has a process of its own.
#pragma once

#include <sys/types.h>

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

  // What `command` would print, and its exit code; a process ended by a signal has 1. From any thread. Of `question`
  // are read: command, environment, timeout_s and stops_by_second. Variables that LibTorch reads while it is loaded,
  // such as OMP_NUM_THREADS, have no effect; no plan depends on them.
  ProcessEnd ask(const ProcessStart& question) const;

 private:
  program::Descriptor socket_;
  pid_t pid_ = -1;
};

}  // namespace drivetrain::study
