// Where agents that mpirun or srun has started come to their launcher: each brings the key that the starter gave it,
// its rank and its host, and the connection is then what ssh's channel is to other agents.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "launch/rank_process.h"

namespace drivetrain::program {

struct Task {
  int rank = 0, size = 0;  // as the starter counts
  std::string host;
  Descriptor socket;
};

class TaskDoor {
 public:
  // `only_here`: all tasks are on this host, so that nobody else is listened to. Throws std::system_error.
  explicit TaskDoor(bool only_here);

  // For the agents' environment: the key, the port and the addresses of this host.
  const std::string& text() const { return text_; }
  std::vector<pollfd> fds() const;
  // Lets in who stands there, without waiting. Who has another key, or says nothing for five seconds, is sent away.
  // Returns those that have come since the last time.
  std::vector<Task> let_in(double now);

 private:
  struct Guest {
    Descriptor socket;
    double since;
    std::string line;
    bool done = false;
  };
  void hear(Guest& guest, double now, std::vector<Task>& came) const;

  Descriptor listener_;
  std::string key_, text_;
  std::vector<Guest> guests_;
};

// For an agent: goes to the launcher that `kTaskVariable` names, and makes the connection its standard input and
// output. Returns its ends as SSH_CONNECTION would have them. Throws std::runtime_error.
std::string join_launcher(const std::string& starter, const std::string& door);

}  // namespace drivetrain::program
