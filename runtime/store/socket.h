// Sockets of the store between processes. Functions return -1 or false where they fail, with errno set, unless they say
// that they throw. Thread: any.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

// Threads that are made while it lives take no signals: those belong to the threads that expect them.
class DRIVETRAIN_INTERNAL SignalsElsewhere {
 public:
  SignalsElsewhere();
  SignalsElsewhere(const SignalsElsewhere&) = delete;
  ~SignalsElsewhere();

 private:
  sigset_t before_;
};

bool make_own(int fd);  // it does not block, and programs that this one starts do not inherit it
void tune(int fd);      // small messages go at once; a host that is gone is noticed within a minute or two
void wake(int bell);    // an eventfd

struct ListeningSockets {
  std::vector<int> sockets;
  std::string warning;  // where they listen on more than was asked for; empty: they do not
};
// On what `host` is here. Where it is none of this host's addresses, or only the loopback although ranks run elsewhere,
// on all addresses, with a warning. Throws Error(communication).
DRIVETRAIN_INTERNAL ListeningSockets listen_at(const std::string& host, int64_t port, bool all_ranks_here);
// On a free port of the loopback, which it stores. Throws Error(communication).
int listen_on_loopback(int64_t& port);

// Limits of a wait: a deadline, and an eventfd (bell) that ends the wait early.
struct WaitLimit {
  std::chrono::steady_clock::time_point until;
  int bell = -1;
  int milliseconds() const;  // 0 once it is over
};
// False: the deadline has passed, or the bell was signalled.
bool wait_for_socket(int fd, short events, const WaitLimit& wait_limit);
// A connected socket to any address of that name, or -1 and why.
int connect_to(const std::string& host, int64_t port, const WaitLimit& wait_limit, std::string& reason);
// The numeric addresses of a connection; empty if it has none any more.
struct ConnectionEnds {
  std::string here, there;
};
ConnectionEnds ends_of(int fd);
// All bytes, or false: the deadline, the bell, or the other side is gone (`closed`).
bool send_all(int fd, const std::string& bytes, const WaitLimit& wait_limit);
bool receive_all(int fd, std::string& bytes, size_t count, const WaitLimit& wait_limit, bool& closed);

}  // namespace drivetrain
