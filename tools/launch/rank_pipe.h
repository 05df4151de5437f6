// A pipe that a rank writes to, as the agent reads it: every byte goes on as it comes.
#pragma once

#include <functional>
#include <string>

#include "launch/rank_process.h"

namespace drivetrain::program {

constexpr const char* kErrorBegins = "drivetrain: error: ";  // a rank's last word

class RankPipe {
 public:
  using Listener = std::function<void(const std::string&)>;
  // from: the read end, not blocking.
  RankPipe(Descriptor from, Listener listener) : from_(std::move(from)), listener_(std::move(listener)) {}

  int fd() const { return from_.get(); }  // -1 once the other side has closed it
  bool pass();                            // what is there now, up to 64 KB; false: nothing
  bool said_error() const { return said_error_; }

 private:
  void look_for_error(const std::string& bytes);
  void end_line();

  Descriptor from_;
  Listener listener_;
  std::string line_;  // its begin, as much as it takes to know it
  bool said_error_ = false;
};

}  // namespace drivetrain::program
