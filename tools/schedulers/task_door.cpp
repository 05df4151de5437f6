#include "schedulers/task_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>

namespace drivetrain::program {
namespace {

constexpr double kLineMayTakeS = 5;
constexpr size_t kLongestGreeting = 512, kMostGuests = 4096;
constexpr size_t kMostLetInAtOnce = 64;  // so that a flood of strangers keeps nobody from his turn

std::string address_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* const number = address->sa_family == AF_INET
                                 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                                 : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return inet_ntop(address->sa_family, number, text, sizeof text) ? text : "";
}

// By which other hosts may reach this one; those of the first interfaces first.
std::string own_addresses() {
  std::string v4, v6;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw std::system_error(errno, std::generic_category(), "launch: addresses of this host");
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP) || (one->ifa_flags & IFF_LOOPBACK)) continue;
    if (one->ifa_addr->sa_family == AF_INET) v4 += " " + address_of(one->ifa_addr);
    if (one->ifa_addr->sa_family == AF_INET6 &&
        !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr))
      v6 += " " + address_of(one->ifa_addr);
  }
  freeifaddrs(list);
  return v4 + v6 + (v4.empty() && v6.empty() ? " 127.0.0.1" : "");
}

// Both kinds of addresses where the kernel has IPv6.
Descriptor listen_everywhere(int& port) {
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6, any.sin6_addr = in6addr_any;
  socklen_t size = sizeof any;
  auto* raw = reinterpret_cast<sockaddr*>(&any);
  const int no = 0;
  Descriptor wide(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (wide.get() >= 0 && setsockopt(wide.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0 &&
      bind(wide.get(), raw, size) == 0 && listen(wide.get(), SOMAXCONN) == 0 &&
      getsockname(wide.get(), raw, &size) == 0) {
    port = ntohs(any.sin6_port);
    return wide;
  }
  sockaddr_in narrow = {};
  narrow.sin_family = AF_INET;
  size = sizeof narrow;
  raw = reinterpret_cast<sockaddr*>(&narrow);
  Descriptor old(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (old.get() < 0 || bind(old.get(), raw, size) != 0 || listen(old.get(), SOMAXCONN) != 0 ||
      getsockname(old.get(), raw, &size) != 0)
    throw std::system_error(errno, std::generic_category(), "launch: no port for the tasks to come to");
  port = ntohs(narrow.sin_port);
  return old;
}

// In the same time for every wrong key.
bool is_same(const std::string& a, const std::string& b) {
  unsigned char differs = a.size() != b.size();
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

}  // namespace

TaskDoor::TaskDoor(bool only_here) : key_(new_run_token()) {
  int port = 0;
  listener_ = only_here ? listen_on_free_port(port) : listen_everywhere(port);
  fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
  text_ = key_ + " " + std::to_string(port) + (only_here ? " 127.0.0.1" : own_addresses());
}

std::vector<pollfd> TaskDoor::fds() const {
  std::vector<pollfd> list{{listener_.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) list.push_back({guest.socket.get(), POLLIN, 0});
  return list;
}

std::vector<Task> TaskDoor::let_in(double now) {
  for (size_t i = 0; i < kMostLetInAtOnce && guests_.size() < kMostGuests; ++i) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) break;
    const int yes = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    guests_.push_back({std::move(socket), now, ""});
  }
  std::vector<Task> came;
  for (Guest& guest : guests_) hear(guest, now, came);
  std::erase_if(guests_, [](const Guest& guest) { return guest.done; });
  return came;
}

// Byte by byte: what follows the line is for another reader.
void TaskDoor::hear(Guest& guest, double now, std::vector<Task>& came) const {
  char c = 0;
  ssize_t n = 0;
  while (guest.line.size() < kLongestGreeting && (n = read(guest.socket.get(), &c, 1)) == 1 && c != '\n')
    guest.line += c;
  guest.done = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || guest.line.size() >= kLongestGreeting ||
               now - guest.since > kLineMayTakeS;
  if (n != 1 || c != '\n') return;
  guest.done = true;
  std::istringstream words(guest.line);
  Task task;
  std::string key;
  if (!(words >> key >> task.rank >> task.size >> task.host) || !is_same(key, key_)) return;
  task.socket = std::move(guest.socket);
  came.push_back(std::move(task));
}

}  // namespace drivetrain::program
