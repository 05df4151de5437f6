// A command of this host with what it prints, for those who wait for its end beside other things.
#pragma once

#include <string>
#include <vector>

#include "launch/rank_process.h"

namespace drivetrain::program {

class WatchedCommand {
 public:
  // Starts it, with further variables NAME=VALUE. Throws std::system_error.
  explicit WatchedCommand(const std::vector<std::string>& command, const std::vector<std::string>& environment = {});
  WatchedCommand(WatchedCommand&&) = delete;
  ~WatchedCommand();  // kills it

  bool has_ended();
  void signal(int number);
  int code() const { return code_; }  // or 128 + the signal that killed it
  std::string out() const;
  std::string err() const;

 private:
  Descriptor out_, err_;  // files without a name, so that the command waits for no reader
  pid_t pid_ = -1;
  int code_ = 0;
};

}  // namespace drivetrain::program
