#include "compose/meeting_place.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

std::string file_of_process(int64_t pid, const char* name) {
  std::ifstream file(concat("/proc/", pid, "/", name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct ProcessPlace {
  int64_t parent = 0;
  std::string start;  // with the pid: unique since boot
};

// Behind the command's name, which may hold anything: state, parent, ..., start time as field 22.
ProcessPlace place_of_process(int64_t pid) {
  const std::string stat = file_of_process(pid, "stat");
  const size_t name_end = stat.rfind(')');
  ProcessPlace place;
  if (name_end == std::string::npos) return place;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {
    if (number == 4) place.parent = std::stoll(field);
    if (number == 22) place.start = field;
  }
  return place;
}

// "drivetrain/<user>/<launcher>.<its start>/"; the port follows.
std::string name_prefix(const std::string& rank_variable) {
  int64_t pid = getppid();
  const std::string wanted = concat('\0', rank_variable, "=");
  while (pid > 1 && ('\0' + file_of_process(pid, "environ")).find(wanted) != std::string::npos)
    pid = place_of_process(pid).parent;
  return concat("drivetrain/", getuid(), "/", pid, ".", place_of_process(pid).start, "/");
}

int64_t shown_port(const std::string& prefix) {
  std::ifstream names("/proc/net/unix");
  for (std::string line; std::getline(names, line);)
    if (const size_t at = line.find("@" + prefix); at != std::string::npos)
      return std::strtoll(line.c_str() + at + 1 + prefix.size(), nullptr, 10);
  return 0;
}

Error meeting_failed(const char* call) {
  return fail(ErrorCode::communication, "rank 0 cannot open a port for the other ranks: ", call, ": ", strerror(errno),
              ". Set MASTER_ADDR and MASTER_PORT for all ranks instead");
}

MeetingPlace::Found listen_on_loopback() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, raw, length) != 0 || listen(fd, 1024) != 0 || getsockname(fd, raw, &length) != 0)
    throw meeting_failed("a socket on 127.0.0.1");
  return {ntohs(address.sin_port), fd};
}

int show_name(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero: no file
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) throw meeting_failed("a Unix socket");
  return fd;
}

}  // namespace

MeetingPlace::Found MeetingPlace::open(int64_t rank, double timeout_s) {
  const std::string prefix = name_prefix(rank_variable_);
  if (rank == 0) {
    const Found found = listen_on_loopback();
    name_fd_ = show_name(concat(prefix, found.port));
    return found;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    if (const int64_t port = shown_port(prefix); port > 0) return {port, -1};
    if (std::chrono::steady_clock::now() > deadline)
      throw fail(ErrorCode::communication, "rank ", rank, ": rank 0 did not start on this host within ", timeout_s,
                 " s. If ranks cannot see each other's processes (containers), set MASTER_ADDR and MASTER_PORT for all "
                 "of them");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void MeetingPlace::close() {
  if (name_fd_ >= 0) ::close(name_fd_);
  name_fd_ = -1;
}

}  // namespace drivetrain
