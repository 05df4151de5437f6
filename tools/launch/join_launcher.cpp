// The agent's way to the launcher of a run whose agents mpirun or srun starts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "base/secret.h"
#include "launch/starter_command.h"
#include "launch/task_listener.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kConnectMayTake = std::chrono::seconds(3), kWelcomeMayTake = std::chrono::seconds(20);
constexpr int kPauseMs = 100;  // before all addresses are tried again

struct Ends {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  std::string text() {  // "ADDRESS PORT"
    const bool narrow = storage.ss_family == AF_INET;
    return address_text(raw()) + " " +
           std::to_string(ntohs(narrow ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                                       : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port));
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

// A connection to one address, until who answers there has proved to be the launcher or has failed.
class Knock {
 public:
  Knock(const ListenerAddress& sign, const std::string& address, int rank)
      : address_(address), secret_(sign.secret(address)), hello_(hello_of(secret_, static_cast<uint32_t>(rank))) {
    Ends at = place(address, sign.port);
    socket_ = Descriptor(socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_.get() < 0 || (connect(socket_.get(), at.raw(), at.size) != 0 && errno != EINPROGRESS))
      fail(std::strerror(errno));
  }

  pollfd fd() const { return {socket_.get(), static_cast<short>(is_connected_ ? POLLIN : POLLOUT), 0}; }
  bool has_failed() const { return socket_.get() < 0; }
  bool has_proved() const { return !proof_.empty(); }
  bool was_cut_short() const { return was_cut_short_; }  // another try may do better
  const std::string& reason() const { return reason_; }
  const std::string& proof() const { return proof_; }
  Descriptor take() { return std::move(socket_); }

  void go_on(bool is_ready, Clock::time_point now) {
    if (is_ready && !is_connected_)
      greet();
    else if (is_ready)
      hear();
    else if (now - since_ > (is_connected_ ? Clock::duration(kWelcomeMayTake) : Clock::duration(kConnectMayTake)))
      fail(is_connected_ ? "nothing was said there" : std::strerror(ETIMEDOUT));
  }

 private:
  void fail(const std::string& why) {
    reason_ = address_ + ": " + why;
    socket_.close();
  }

  void greet() {
    int problem = 0;
    socklen_t size = sizeof problem;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &problem, &size);
    if (problem != 0) return fail(std::strerror(problem));
    is_connected_ = true, since_ = Clock::now();
    const int yes = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (send(socket_.get(), hello_.data(), hello_.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello_.size()))
      fail("the connection was closed");
  }

  void hear() {
    char bytes[kWelcomeBytes];
    const ssize_t n = recv(socket_.get(), bytes, sizeof bytes - welcome_.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      was_cut_short_ = true;
      return fail("the connection was closed");
    }
    welcome_.append(bytes, static_cast<size_t>(n));
    if (welcome_.size() < kWelcomeBytes) return;
    if (read_welcome(secret_, hello_, welcome_) != Verdict::welcome)
      return fail("who answers there is not the launcher of this run");
    proof_ = proof_of(secret_, hello_, welcome_);
  }

  const std::string address_, secret_, hello_;
  Descriptor socket_;
  Clock::time_point since_ = Clock::now();
  bool is_connected_ = false, was_cut_short_ = false;
  std::string welcome_, proof_, reason_;
};

// The first of them that has proved itself; null: all have failed, or it is too late.
Knock* first_proved(std::vector<std::unique_ptr<Knock>>& knocks, Clock::time_point end) {
  while (Clock::now() < end) {
    std::vector<pollfd> fds;
    for (const auto& knock : knocks) fds.push_back(knock->fd());
    poll(fds.data(), fds.size(), 250);
    for (size_t i = 0; i < knocks.size(); ++i) {
      if (!knocks[i]->has_failed()) knocks[i]->go_on(fds[i].revents != 0, Clock::now());
      if (knocks[i]->has_proved()) return knocks[i].get();
    }
    if (std::all_of(knocks.begin(), knocks.end(), [](const auto& knock) { return knock->has_failed(); })) break;
  }
  return nullptr;
}

std::string own_host_name() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node && *node) return node;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return *name ? name : "localhost";
}

// The ends of the connection that standard input and output are from now on.
std::string as_standard_streams(const Descriptor& made) {
  Ends here, there;
  getsockname(made.get(), here.raw(), &here.size);
  getpeername(made.get(), there.raw(), &there.size);
  dup2(made.get(), STDIN_FILENO);
  dup2(made.get(), STDOUT_FILENO);
  return there.text() + " " + here.text();
}

}  // namespace

std::string join_launcher(const std::string& starter, const ListenerAddress& sign, double within_s) {
  const TaskNumber number = task_number(starter);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(within_s));
  std::string reason;
  for (bool again = true; again && Clock::now() < end; poll(nullptr, 0, again ? kPauseMs : 0)) {
    std::vector<std::unique_ptr<Knock>> knocks;
    for (const std::string& address : sign.to_try())
      knocks.push_back(std::make_unique<Knock>(sign, address, number.rank));
    if (Knock* const launcher = first_proved(knocks, end)) {
      const Descriptor made = launcher->take();
      write_text(made.get(), launcher->proof() + std::to_string(number.size) + " " + own_host_name() + "\n");
      return as_standard_streams(made);
    }
    reason.clear(), again = false;
    for (const auto& knock : knocks) {
      if (!knock->reason().empty()) reason += (reason.empty() ? "" : ", ") + knock->reason();
      again = again || knock->was_cut_short();  // a crowd of strangers may have had the place
    }
  }
  throw std::runtime_error("the task " + std::to_string(number.rank) + " on host " + own_host_name() +
                           " does not reach `drivetrain launch`: " +
                           (reason.empty() ? "no address was given but those that this host has itself"
                                           : reason + " (port " + std::to_string(sign.port) + ")") +
                           "; open the ports between the hosts");
}

}  // namespace drivetrain::program
