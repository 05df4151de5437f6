#include "launch/meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

namespace drivetrain::program {

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr int kUsage = 2, kCommunication = 5;

Addresses addresses_of(const std::string& name, int port) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) throw HostError(kCommunication, "the name " + name + " is not known there: " + gai_strerror(failed));
  return {list, freeaddrinfo};
}

std::string numeric_text(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// The address that packets to `peer` leave with; nothing is sent. "": there is no route.
std::string source_address(const std::string& peer) {
  const Addresses list = addresses_of(peer, 9);
  for (const addrinfo* one = list.get(); one; one = one->ai_next) {
    const Descriptor socket_(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t size = sizeof own;
    if (socket_.get() < 0 || connect(socket_.get(), one->ai_addr, one->ai_addrlen) != 0) continue;
    if (getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) continue;
    return numeric_text(reinterpret_cast<sockaddr*>(&own), size);
  }
  return "";
}

std::string address_by_route(const std::vector<std::string>& peers) {
  std::string found = "127.0.0.1", without_route;
  for (const std::string& peer : peers) {
    const std::string source = source_address(peer);
    if (source.empty()) without_route = peer;
    if (!source.empty() && is_loopback(found)) found = source;
  }
  if (is_loopback(found) && !without_route.empty())
    throw HostError(kCommunication, "it has no route to " + without_route +
                                        "; name an address of it that the others reach with --master_addr");
  return found;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A connection on its way.
struct Attempted {
  Descriptor socket;
  double begin_s = 0;
  bool is_over = false;
  Tried result = {};

  void end(const std::string& problem) { is_over = true, result = {problem, seconds_now() - begin_s}; }
};

Attempted begin_to_reach(const MeetingPlace& place) {
  Attempted one;
  one.begin_s = seconds_now();
  try {
    const Addresses list = addresses_of(place.address, place.port);
    one.begin_s = seconds_now();
    one.socket = Descriptor(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (one.socket.get() >= 0 && connect(one.socket.get(), list->ai_addr, list->ai_addrlen) == 0)
      one.end("");
    else if (errno != EINPROGRESS)
      one.end(std::strerror(errno));
  } catch (const HostError& e) {
    one.end(e.what());
  }
  return one;
}

void finish(Attempted& one) {
  int reason = 0;
  socklen_t size = sizeof reason;
  getsockopt(one.socket.get(), SOL_SOCKET, SO_ERROR, &reason, &size);
  one.end(reason == 0 ? "" : std::strerror(reason));
}

}  // namespace

Meeting open_meeting(const std::string& address, int port, const std::vector<std::string>& peers) {
  Meeting meeting;
  meeting.address = address.empty() ? address_by_route(peers) : address;
  const Addresses list = addresses_of(meeting.address, port);
  const addrinfo& at = *list;
  meeting.listener = Descriptor(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;  // connections of the run before may still be dying there
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  const int fd = meeting.listener.get();
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (fd >= 0 && bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
    meeting.port = port_of(own);
    return meeting;
  }
  const int reason = errno;
  std::string text = "it cannot listen on " + meeting.address + (port == 0 ? "" : " port " + std::to_string(port)) +
                     ": " + std::strerror(reason);
  if (reason == EADDRINUSE) text += "; without --master_port a free port is taken";
  if (reason == EADDRNOTAVAIL)
    text += "; rank 0 runs there, and --master_addr has to be an address of that host (default: by its routes)";
  throw HostError(reason == EADDRNOTAVAIL ? kUsage : kCommunication, text);
}

std::vector<Tried> try_places(const std::vector<MeetingPlace>& places, double within_s) {
  std::vector<Attempted> all;
  for (const MeetingPlace& place : places) all.push_back(begin_to_reach(place));
  const double end = seconds_now() + within_s;
  for (;;) {
    std::vector<pollfd> fds;
    for (const Attempted& one : all) fds.push_back({one.is_over ? -1 : one.socket.get(), POLLOUT, 0});
    const bool waits = std::any_of(all.begin(), all.end(), [](const Attempted& one) { return !one.is_over; });
    const double left = end - seconds_now();
    if (!waits || left <= 0) break;
    poll(fds.data(), fds.size(), static_cast<int>(left * 1000) + 1);
    for (size_t i = 0; i < all.size(); ++i)
      if (fds[i].revents != 0) finish(all[i]);
  }
  std::vector<Tried> list;
  for (Attempted& one : all) {
    if (!one.is_over) one.result = {std::strerror(ETIMEDOUT), within_s};
    list.push_back(std::move(one.result));
  }
  return list;
}

void try_meeting(const std::string& address, int port, double within_s) {
  const std::string problem = try_places({{address, port}}, within_s).front().problem;
  if (!problem.empty())
    throw HostError(kCommunication, "it does not reach rank 0's host at " + address + " port " + std::to_string(port) +
                                        ": " + problem +
                                        "; open that port, or name another address with --master_addr");
}

}  // namespace drivetrain::program
