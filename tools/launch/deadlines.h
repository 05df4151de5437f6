// How long ranks may take for what, once something has happened.
#pragma once

#include <limits>

namespace drivetrain::program {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Deadlines {
  double peers_s = 10;     // after the first failure, before SIGTERM: ranks notice a lost peer by themselves
  double sigterm_s = 5;    // before SIGKILL
  double stopped_s = 3;    // a rank that a signal stopped, once no other goes on
  double idle_s = 60;      // a rank that does nothing, once another is done
  double working_s = 600;  // one that uses no files, computing or not, once another is done or all were told
  double told_s = 120;     // the same once another is done and all were told to end
};

}  // namespace drivetrain::program
