// A program that is started, watched and ended: a launch of a cell, or a question to the program itself.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/rank_process.h"

namespace drivetrain::study {

struct ProcessStart {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE
  std::string input;                     // what it reads; "": nothing
  std::string output;                    // a file for what it prints; "": it is returned
  double timeout_s = 600;
  int64_t memory_limit = 0;     // bytes of address space; 0: none
  bool stops_by_second = true;  // a second signal to the study ends it
  std::vector<int> cpus{};      // that it and what it starts may use; empty: those of the study
};

struct ProcessEnd {
  int code = 0;            // exit code, or 128 + signal
  int signal = 0;          // that killed it; 0: none did
  bool timed_out = false;  // it was ended after timeout_s
  bool stopped = false;    // it was ended by a second signal to the study
  double wall_s = 0;
  std::string out{}, err{};  // where there is no output file
};

// One that has been started. The process and what it started are gone at its end, and when the object goes.
class Process {
 public:
  explicit Process(const ProcessStart& start);  // throws Error(io) if it cannot be started
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // To be asked every 20 ms or so: also ends what takes too long. The end is told once.
  std::optional<ProcessEnd> poll();
  double now_s() const;  // since its start

 private:
  class Ending;
  const ProcessStart start_;
  const program::Descriptor out_, err_;
  const std::chrono::steady_clock::time_point begin_;
  std::unique_ptr<Ending> ending_;
  pid_t pid_ = -1;  // -1: it has ended
  ProcessEnd end_;
};

inline constexpr auto kPollEvery = std::chrono::milliseconds(20);

// To its end. Throws Error(io) if it cannot be started.
ProcessEnd run_process(const ProcessStart& start);

std::string written_to(int descriptor);  // all of a file, from its begin

}  // namespace drivetrain::study
