// mpirun or srun while it works for a launch: its words, and its end.
#pragma once

#include <string>
#include <vector>

#include "launch/line_relay.h"

namespace drivetrain::program {

class StarterProcess {
 public:
  // `environment` reaches the tasks by the starter's own channel. Throws std::system_error.
  StarterProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                 const void* signal_mask, Outlet& words_to);
  ~StarterProcess();  // ends it
  StarterProcess(StarterProcess&&) = delete;
  StarterProcess& operator=(StarterProcess&&) = delete;

  int fd() const { return words_from_.get(); }
  void pass();       // what it has said since the last time
  void keep_back();  // from now on nothing is passed: the launch itself says more
  bool has_ended();
  std::string last_words() const;  // ": its last line"; "": it has said nothing
  std::string reason() const;      // "mpiexec ended with exit 1: its last line"
  void end(double may_take_s);     // it may leave by itself so long, then gets SIGTERM, then SIGKILL

 private:
  bool ended_within(double seconds);

  const std::string name_;
  pid_t pid_ = -1;
  int code_ = -1;
  Descriptor words_from_;
  LineRelay relay_;
  bool passes_ = true;
  std::string last_line_;
};

}  // namespace drivetrain::program
