// Bare sockets of the loopback, for tests that play strangers.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "support/waiting.h"

namespace drivetrain::test {

inline int listening_socket(int64_t& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, raw, length) != 0 || listen(fd, 512) != 0 || getsockname(fd, raw, &length) != 0)
    throw std::runtime_error("listen");
  port = ntohs(address.sin_port);
  return fd;
}

struct Accepted {
  int fd;
};

class Dialled {
 public:
  explicit Dialled(int64_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) throw std::runtime_error("connect");
  }
  explicit Dialled(Accepted accepted) : fd_(accepted.fd) {}
  Dialled(const Dialled&) = delete;
  ~Dialled() { close(fd_); }

  // As much as the other side takes before it closes.
  void send(const std::string& bytes) const {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }
  void finish() const { shutdown(fd_, SHUT_WR); }
  // Less where the other side closes before, or says nothing until the deadline.
  std::string receive(size_t count) const {
    std::string bytes;
    for (char byte; bytes.size() < count && readable(deadline_s()) && recv(fd_, &byte, 1, 0) == 1;) bytes += byte;
    return bytes;
  }
  // Whether the other side closes, with no more than so many seconds between what it says, which is thrown away.
  bool is_closed(double seconds = deadline_s()) const {
    for (char bytes[512];;) {
      if (!readable(seconds)) return false;
      if (recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

 private:
  bool readable(double seconds) const {
    pollfd waiting{fd_, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(seconds * 1000)) > 0;
  }
  const int fd_;
};

}  // namespace drivetrain::test
