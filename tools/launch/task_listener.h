// Where agents that mpirun or srun has started come to their launcher. Each side shows the other that it has the key
// that the starter carried (runtime/base/secret.h: a challenge and a response each way), and nobody sends it; the
// connection is then what ssh's channel is to other agents:
//
//   agent    -> launcher   hello, with its rank
//   launcher -> agent      welcome, with a proof; without a right one the agent takes no orders
//   agent    -> launcher   proof, then a line: number of tasks, host
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "launch/listener_address.h"
#include "launch/rank_process.h"

namespace drivetrain::program {

struct Task {
  int rank = 0, size = 0;  // as the starter counts
  std::string host;
  Descriptor socket;
};

class TaskListener {
 public:
  // `only_here`: all tasks are on this host, so that nobody else is listened to. Throws std::system_error.
  explicit TaskListener(bool only_here);

  const ListenerAddress& sign() const { return sign_; }  // for the agents' environment
  std::vector<pollfd> fds() const;
  // Lets in who stands there, without waiting. Who has another key, or says nothing for five seconds, is sent away; so
  // is who came first and has said nothing right, where there are too many. Returns those that have come since the last
  // time.
  std::vector<Task> let_in(double now);

 private:
  struct Guest {
    Descriptor socket;
    double since;
    std::string secret = {};  // of the address that it came to
    std::string said = {};    // and has not been understood yet
    std::string hello = {}, welcome = {};
    bool is_proved = false, done = false;
  };
  void accept_some(double now);
  void send_one_away();
  static void hear(Guest& guest, double now, std::vector<Task>& came);
  static bool has_said_more(Guest& guest);
  static void answer_hello(Guest& guest);
  static void check_proof(Guest& guest);
  static void enter(Guest& guest, std::vector<Task>& came);

  Descriptor listener_;
  ListenerAddress sign_;
  const size_t most_guests_;
  std::vector<Guest> guests_;  // in the order in which they came
};

// For an agent: goes to the launcher of `sign`, and makes the connection its standard input and output once that has
// proved itself. All its addresses are tried at once, so that a stranger at one of them delays nothing. Returns its
// ends as SSH_CONNECTION would have them. Throws std::runtime_error.
std::string join_launcher(const std::string& starter, const ListenerAddress& sign, double within_s = 60);

}  // namespace drivetrain::program
