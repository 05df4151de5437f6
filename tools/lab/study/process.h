// A program that is started, watched and ended: a launch of a cell, or a question to the program itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace drivetrain::study {

struct ProcessStart {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE
  std::string input;                     // what it reads; "": nothing
  std::string output;                    // a file for what it prints; "": it is returned
  double timeout_s = 600;
  int64_t memory_limit = 0;            // bytes of address space; 0: none
  bool stops_by_second = true;         // a second signal to the study ends it
  std::function<void(double)> tick{};  // every 20 ms, with the seconds since its start
};

struct ProcessEnd {
  int code = 0;            // exit code, or 128 + signal
  int signal = 0;          // that killed it; 0: none did
  bool timed_out = false;  // it was ended after timeout_s
  bool stopped = false;    // it was ended by a second signal to the study
  double wall_s = 0;
  std::string out{}, err{};  // where there is no output file
};

// Throws Error(io) if it cannot be started. The process and what it started are gone at the end.
ProcessEnd run_process(const ProcessStart& start);

std::string written_to(int descriptor);  // all of a file, from its begin

}  // namespace drivetrain::study
