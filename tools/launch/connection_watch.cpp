#include "launch/connection_watch.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <drivetrain/toolkit/files/proc_text.h>

namespace drivetrain::program {
namespace {

// Each repetition waits twice as long as the one before, from 0.2 s on: the fifth comes after six seconds, when ssh at
// the other end, which asks each second, has given up too.
constexpr unsigned kMostRepetitions = 5;

// "0100007F:0016", as the kernel prints them: words of 32 bits in its own order. Both forms of an IPv4 address.
std::string kernel_form(const std::string& address, unsigned port, bool v6) {
  in6_addr wide = {};
  in_addr narrow = {};
  const std::string plain = address.substr(0, address.find('%'));
  if (inet_pton(AF_INET, plain.c_str(), &narrow) == 1) {
    wide.s6_addr[10] = wide.s6_addr[11] = 0xff;
    std::memcpy(wide.s6_addr + 12, &narrow, 4);
  } else if (!v6 || inet_pton(AF_INET6, plain.c_str(), &wide) != 1) {
    return "";
  }
  std::string text;
  char buffer[16];
  for (int word = v6 ? 0 : 3; word < 4; ++word) {
    unsigned value = 0;
    std::memcpy(&value, wide.s6_addr + 4 * word, 4);
    std::snprintf(buffer, sizeof buffer, "%08X", value);
    text += buffer;
  }
  std::snprintf(buffer, sizeof buffer, ":%04X", port);
  return text + buffer;
}

}  // namespace

bool is_cut(const std::string& table, const std::string& session) {
  std::istringstream words(session);
  std::string client, server;
  unsigned client_port = 0, server_port = 0;
  if (!(words >> client >> client_port >> server >> server_port)) return false;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, repetitions, user;
    unsigned probes = 0;
    fields >> number >> local >> remote >> state >> queues >> timer >> repetitions >> user >> probes;
    const bool v6 = local.size() > 13;
    if (local.empty() || local != kernel_form(server, server_port, v6) ||
        remote != kernel_form(client, client_port, v6))
      continue;
    const bool repeats = timer.starts_with("01:");
    const bool probes_only = timer.starts_with("04:");  // nothing could be sent at all: the route is gone
    return (repeats && std::strtoul(repetitions.c_str(), nullptr, 16) >= kMostRepetitions) ||
           (probes_only && probes >= kMostRepetitions);
  }
  return false;
}

bool session_is_cut(const std::string& session) {
  if (session.empty()) return false;
  return is_cut(proc_text("/proc/net/tcp"), session) || is_cut(proc_text("/proc/net/tcp6"), session);
}

}  // namespace drivetrain::program
