#include "store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// The addresses of a name; null and a reason where it has none.
Addresses addresses_of(const std::string& host, int64_t port, std::string& reason) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); failed != 0)
    reason = gai_strerror(failed);
  return Addresses(list);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

int listen_on(int family, const sockaddr* address, socklen_t length, bool also_ipv4) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1, only_ipv6 = also_ipv4 ? 0 : 1;
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof only_ipv6);
  if (bind(fd, address, length) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int cause = errno;
  close(fd);
  errno = cause;
  return -1;
}

Error cannot_listen(const std::string& host, int64_t port, const std::string& reason) {
  return fail(ErrorCode::communication, "rank 0 cannot listen on MASTER_PORT ", port, " of MASTER_ADDR ", host, ": ",
              reason, ". Choose another MASTER_PORT or end what uses it.");
}

int listen_on_everything(const std::string& host, int64_t port) {
  sockaddr_in6 both = {};
  both.sin6_family = AF_INET6;
  both.sin6_port = htons(static_cast<uint16_t>(port));
  int fd = listen_on(AF_INET6, reinterpret_cast<sockaddr*>(&both), sizeof both, true);
  if (fd < 0 && errno != EADDRINUSE) {  // a host without IPv6
    sockaddr_in ipv4 = {};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = both.sin6_port;
    fd = listen_on(AF_INET, reinterpret_cast<sockaddr*>(&ipv4), sizeof ipv4, false);
  }
  if (fd < 0) throw cannot_listen(host, port, std::strerror(errno));
  return fd;
}

}  // namespace

SignalsElsewhere::SignalsElsewhere() {
  sigset_t all;
  sigfillset(&all);
  // they are about the thread itself
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, own);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}
SignalsElsewhere::~SignalsElsewhere() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool make_own(int fd) {
  return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

// A host that is gone without a word, or a cable that was pulled out, is noticed after ten seconds, whether something
// was on its way or not. The kernel answers for processes that are stopped or busy.
void tune(int fd) {
  const int on = 1, idle_s = 4, every_s = 2, times = 3;
  const unsigned unanswered_ms = 10'000;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

void wake(int bell) { eventfd_write(bell, 1); }

ListeningSockets listen_at(const std::string& host, int64_t port, bool all_ranks_here) {
  std::string reason;
  const Addresses list = addresses_of(host, port, reason);
  if (!list)
    throw fail(ErrorCode::communication, "rank 0 cannot listen on MASTER_ADDR ", host, ": ", reason,
               ". Set it to a name or address of this host that all ranks reach.");
  const bool numeric_or_local = host == "localhost" || inet_addr(host.c_str()) != INADDR_NONE || host == "::1";
  ListeningSockets listening;
  bool beyond_loopback = false;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const int fd = listen_on(a->ai_family, a->ai_addr, a->ai_addrlen, false);
    if (fd < 0 && errno == EADDRINUSE) {
      for (const int open : listening.sockets) close(open);
      throw cannot_listen(host, port, std::strerror(EADDRINUSE));
    }
    if (fd < 0) continue;  // another host's address, or no such kind of address here
    listening.sockets.push_back(fd);
    beyond_loopback = beyond_loopback || !is_loopback(a->ai_addr);
  }
  // Where /etc/hosts gives a host's own name a loopback address, the other hosts know a better one.
  const bool reachable = all_ranks_here || beyond_loopback || numeric_or_local;
  if (!listening.sockets.empty() && reachable) return listening;
  const bool none = listening.sockets.empty();
  for (const int open : listening.sockets) close(open);
  listening.sockets = {listen_on_everything(host, port)};
  listening.warning =
      concat("MASTER_ADDR ", host, none ? " is no address of this host" : " is only the loopback on this host",
             ": rank 0 listens on port ", port,
             " of all its addresses, and lets in who knows the run's secret. Set MASTER_ADDR to an address "
             "of this host to listen on that alone");
  return listening;
}

int listen_on_loopback(int64_t& port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  const int fd = listen_on(AF_INET, raw, length, false);
  if (fd < 0 || getsockname(fd, raw, &length) != 0)
    throw fail(ErrorCode::communication,
               "rank 0 cannot open a port of 127.0.0.1 for the other ranks: ", std::strerror(errno),
               ". Set MASTER_ADDR and MASTER_PORT for all ranks instead");
  port = ntohs(address.sin_port);
  return fd;
}

int WaitLimit::milliseconds() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600000));
}

bool wait_for_socket(int fd, short events, const WaitLimit& wait_limit) {
  for (;;) {
    pollfd fds[2] = {{fd, events, 0}, {wait_limit.bell, POLLIN, 0}};
    const int ready = poll(fds, 2, wait_limit.milliseconds());
    if (fds[1].revents != 0) return false;
    if (ready > 0) return true;
    if (wait_limit.milliseconds() == 0) return false;
  }
}

int connect_to(const std::string& host, int64_t port, const WaitLimit& wait_limit, std::string& reason) {
  reason = "it has no address";
  const Addresses list = addresses_of(host, port, reason);
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) {
      reason = std::strerror(errno);
      continue;
    }
    tune(fd);
    int failed = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (failed == EINPROGRESS) {
      socklen_t size = sizeof failed;
      if (!wait_for_socket(fd, POLLOUT, wait_limit))
        failed = ETIMEDOUT;
      else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) != 0)
        failed = errno;
    }
    if (failed == 0) return fd;
    reason = std::strerror(failed);
    close(fd);
  }
  return -1;
}

ConnectionEnds ends_of(int fd) {
  const auto text = [fd](int (*name)(int, sockaddr*, socklen_t*)) -> std::string {
    sockaddr_storage address = {};
    socklen_t length = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    char host[NI_MAXHOST] = "";
    if (name(fd, raw, &length) != 0 || getnameinfo(raw, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
      return "";
    const std::string found = host, mapped = "::ffff:";
    return found.starts_with(mapped) ? found.substr(mapped.size()) : found;
  };
  return {text(getsockname), text(getpeername)};
}

bool send_all(int fd, const std::string& bytes, const WaitLimit& wait_limit) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) done += static_cast<size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n < 0 && errno == EAGAIN && !wait_for_socket(fd, POLLOUT, wait_limit)) return false;
  }
  return true;
}

bool receive_all(int fd, std::string& bytes, size_t count, const WaitLimit& wait_limit, bool& closed) {
  char some[256];
  for (bytes.clear(); bytes.size() < count;) {
    const ssize_t n = recv(fd, some, std::min(sizeof some, count - bytes.size()), MSG_DONTWAIT);
    if (n > 0) bytes.append(some, static_cast<size_t>(n));
    closed = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (closed) return false;
    if (n < 0 && errno == EAGAIN && !wait_for_socket(fd, POLLIN, wait_limit)) return false;
  }
  return true;
}

}  // namespace drivetrain
