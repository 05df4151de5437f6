// What agents that mpirun or srun starts are told of the place where their launcher listens for them.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace drivetrain::program {

struct ListenerAddress {
  std::string key;  // of this launch: it is shown by proofs, and sent to nobody
  int port = 0;
  std::string network;  // network_of_this_process() of the launcher
  std::vector<std::string> addresses;

  // For a variable of the environment, and back. Throws std::runtime_error.
  std::string text() const;
  static ListenerAddress of(const std::string& text);

  // The addresses to try from here: none that means this host, unless it is the launcher's.
  std::vector<std::string> to_try() const;
  // What proves a connection to `address` (runtime/base/secret.h): who passes on what comes to another address proves
  // nothing at either end.
  std::string secret(const std::string& address) const;
};

// By which other hosts may reach this one; those of the first interfaces first.
std::vector<std::string> addresses_for_others();

// The same for two processes if and only if they have the same interfaces; "?": not known.
std::string network_of_this_process();

// Of an IPv4 or IPv6 address, without its port.
std::string address_text(const sockaddr* address);

}  // namespace drivetrain::program
