// What the agent of a host does for `drivetrain doctor --hostfile`: tells the time, listens, tries to reach other
// hosts, and runs `drivetrain doctor` there.
#pragma once

#include <string>

#include "launch/launcher_channel.h"
#include "launch/meeting.h"
#include "launch/orders.h"

namespace drivetrain::program {

// Nanoseconds since 1970 by the clock of this host.
int64_t clock_ns();

class Examination {
 public:
  explicit Examination(LauncherChannel& channel) : channel_(channel) {}

  // Answers `order`; false: it is none of doctor's. Throws HostError.
  bool answer(const Message& order);

 private:
  void listen(const std::string& text);
  void reach(const std::string& text);
  void run(const ExamineOrder& order);

  LauncherChannel& channel_;
  Meeting listening_;  // until the agent ends
};

}  // namespace drivetrain::program
