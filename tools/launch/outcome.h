// Which of several ends is the one to report. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace drivetrain::program {

inline constexpr int kRequeue = 75;  // the code of a rank that was stopped, and has saved

struct RankEnd {
  int rank = 0;
  int code = 0;              // exit code, or 128 + the signal that killed it
  bool killed = false;       // by a signal
  bool by_launcher = false;  // told or made to end by the launcher, after something else had failed
  double after_s = 0;
  // Of one that the launcher ended because it did not go on: how it stood. Its code is 5, unless it had said its error
  // and ended with a code of its own after all.
  std::string fault = {};
};

// Whether this is the exit code of a rank that this signal, passed on to it, has stopped: with a checkpoint 75.
bool is_as_asked(int code, int signal);

// The failure that came first. A rank that ended because a peer was gone (exit 5) is not it if another failed
// otherwise or did not go on. `signal`: the one that was passed on to all ranks, 0 for none; ends with 128 + signal are
// then as they should be, and so is the loss of peers that ended so. None: nothing failed.
std::optional<RankEnd> first_failure(const std::vector<RankEnd>& ends, int signal);

// The code launch returns.
int launch_code(const std::vector<RankEnd>& ends, int signal);

// "exit 7 (numeric failure)", "killed by signal 11 (Segmentation fault)"
std::string describe_end(const RankEnd& end);

// "0.5 s"
std::string seconds_text(double seconds);

// "stopped by signal 19 (Stopped (signal))"
std::string describe_stop(int signal);

}  // namespace drivetrain::program
