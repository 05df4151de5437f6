// The agent's way to the launcher of a run whose agents mpirun or srun starts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "launch/line_relay.h"
#include "schedulers/starter_command.h"
#include "schedulers/task_door.h"

namespace drivetrain::program {
namespace {

constexpr int kAnswerMayTakeMs = 3000;

struct Ends {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  std::string text() const {  // "ADDRESS PORT"
    char address[INET6_ADDRSTRLEN] = {};
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    const bool narrow = storage.ss_family == AF_INET;
    inet_ntop(storage.ss_family, narrow ? static_cast<const void*>(&v4.sin_addr) : &v6.sin6_addr, address,
              sizeof address);
    return std::string(address) + " " + std::to_string(ntohs(narrow ? v4.sin_port : v6.sin6_port));
  }
};

Ends place(const std::string& address, int port) {
  Ends at;
  auto& v4 = reinterpret_cast<sockaddr_in&>(at.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(at.storage);
  if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET, v4.sin_port = htons(static_cast<uint16_t>(port)), at.size = sizeof v4;
  } else if (inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6, v6.sin6_port = htons(static_cast<uint16_t>(port)), at.size = sizeof v6;
  } else {
    throw std::runtime_error("\"" + address + "\" is no address");
  }
  return at;
}

// Not open: `reason` says why.
Descriptor connected(const std::string& address, int port, std::string& reason) {
  Ends at = place(address, port);
  Descriptor made(socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int problem = connect(made.get(), at.raw(), at.size) == 0 ? 0 : errno;
  if (problem == EINPROGRESS) {
    pollfd answered{made.get(), POLLOUT, 0};
    socklen_t size = sizeof problem;
    if (poll(&answered, 1, kAnswerMayTakeMs) == 0)
      problem = ETIMEDOUT;
    else
      getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &problem, &size);
  }
  if (problem == 0) return made;
  reason += (reason.empty() ? "" : ", ") + address + ": " + std::strerror(problem);
  return Descriptor();
}

std::string own_host_name() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node && *node) return node;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return *name ? name : "localhost";
}

}  // namespace

std::string join_launcher(const std::string& starter, const std::string& door) {
  const TaskNumber number = task_number(starter);
  std::istringstream words(door);
  std::string key, address, reason;
  int port = 0;
  words >> key >> port;
  while (words >> address) {
    const Descriptor made = connected(address, port, reason);
    if (made.get() < 0) continue;
    const int yes = 1;
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    write_text(made.get(), key + " " + std::to_string(number.rank) + " " + std::to_string(number.size) + " " +
                               own_host_name() + "\n");
    Ends here, there;
    getsockname(made.get(), here.raw(), &here.size);
    getpeername(made.get(), there.raw(), &there.size);
    dup2(made.get(), STDIN_FILENO);
    dup2(made.get(), STDOUT_FILENO);
    return there.text() + " " + here.text();
  }
  throw std::runtime_error("the task " + std::to_string(number.rank) + " on host " + own_host_name() +
                           " does not reach `drivetrain launch`: " +
                           (reason.empty() ? "no address was given" : reason + " (port " + std::to_string(port) + ")") +
                           "; open the ports between the hosts");
}

}  // namespace drivetrain::program
