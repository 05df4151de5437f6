#include "launch/launcher_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "launch/connection_watch.h"

namespace drivetrain::program {
namespace {

constexpr size_t kMostWaiting = 1U << 20;  // then ranks wait with what they write

Descriptor moved_away(int standard) { return Descriptor(fcntl(standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)); }

}  // namespace

LauncherChannel::LauncherChannel(Descriptor in, Descriptor out, std::string session)
    : in_(std::move(in)), out_(std::move(out)), session_(std::move(session)) {
  fcntl(in_.get(), F_SETFL, O_NONBLOCK);
  out_.put_bytes(kAgentBegins);
}

LauncherChannel LauncherChannel::of_standard_streams(std::string session) {
  Descriptor in = moved_away(STDIN_FILENO), out = moved_away(STDOUT_FILENO);
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return {std::move(in), std::move(out), std::move(session)};
}

std::vector<pollfd> LauncherChannel::fds() const {
  return {{lost_ ? -1 : in_.get(), POLLIN, 0}, {out_.is_empty() ? -1 : out_.fd(), POLLOUT, 0}};
}

// The launcher takes a long silence for the end of this agent, and the network is looked at as often.
void LauncherChannel::turn() {
  std::string bytes;
  if (!lost_ && !read_available(in_.get(), bytes)) lost_ = true;
  reader_.take(bytes);
  out_.flush();
  if (Clock::now() - last_sign_ < std::chrono::seconds(1)) return;
  last_sign_ = Clock::now();
  if (has_room()) send({.type = Message::alive});
  if (session_is_cut(session_)) lost_ = true;
}

void LauncherChannel::wait(double seconds) const {
  std::vector<pollfd> list = fds();
  poll(list.data(), list.size(), static_cast<int>(seconds * 1000) + 1);
}

bool LauncherChannel::has_room() const { return out_.size() < kMostWaiting; }

void LauncherChannel::send(const Message& message) {
  if (!lost_) out_.put(message);
}

}  // namespace drivetrain::program
