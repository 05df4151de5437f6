// Where rank 0 of a run listens for the ranks of other hosts.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "launch/rank_process.h"

namespace drivetrain::program {

// With an exit code of the contract.
struct HostError : std::runtime_error {
  HostError(int exit_code, const std::string& text) : std::runtime_error(text), code(exit_code) {}
  int code;
};

struct Meeting {
  std::string address;  // as ranks are told
  int port = 0;
  Descriptor listener;  // on that address alone
};

// `address`: "" for the one from which `peers`, addresses of the other hosts, are reached by the routes of this host.
// `port`: 0 for a free one. Throws HostError.
Meeting open_meeting(const std::string& address, int port, const std::vector<std::string>& peers);

bool is_loopback(const std::string& address);

struct MeetingPlace {
  std::string address;
  int port = 0;
};
struct Tried {
  std::string problem;  // "Connection refused"; "": somebody answered
  double took_s = 0;
};
// Connects to all of them at once; the time of each is that of the network there and back.
std::vector<Tried> try_places(const std::vector<MeetingPlace>& places, double within_s);

// Throws HostError with the reason if nobody answers there within `within_s`.
void try_meeting(const std::string& address, int port, double within_s);

}  // namespace drivetrain::program
