#include "hosts/launcher_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "hosts/connection_watch.h"

namespace drivetrain::program {
namespace {

constexpr size_t kMostWaiting = 1U << 20;  // then ranks wait with what they write

Descriptor moved_away(int standard) { return Descriptor(fcntl(standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)); }

}  // namespace

LauncherChannel::LauncherChannel(std::string session)
    : in_(moved_away(STDIN_FILENO)), out_(moved_away(STDOUT_FILENO)), session_(std::move(session)) {
  fcntl(in_.get(), F_SETFL, O_NONBLOCK);
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  out_.put_bytes(kAgentBegins);
}

void LauncherChannel::receive() {
  std::string bytes;
  if (!lost_ && !read_available(in_.get(), bytes)) lost_ = true;
  reader_.take(bytes);
}

// The launcher takes a long silence for the end of this agent, and the network is looked at as often.
void LauncherChannel::note_time() {
  if (Clock::now() - last_sign_ < std::chrono::seconds(1)) return;
  last_sign_ = Clock::now();
  if (out_.size() < kMostWaiting) send({.type = Message::alive});
  if (session_is_cut(session_)) lost_ = true;
}

std::optional<Message> LauncherChannel::order(double within_s) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(within_s));
  for (;;) {
    if (auto message = reader_.next()) return message;
    if (lost_ || Clock::now() >= end) return std::nullopt;
    std::vector<pollfd> list = fds();
    poll(list.data(), list.size(), 250);
    out_.flush();
    note_time();
    if (list[0].revents) receive();
  }
}

void LauncherChannel::flush(double within_s) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(within_s));
  while (!lost_ && !out_.is_empty() && out_.fd() >= 0 && Clock::now() < end) {
    std::vector<pollfd> list = fds();
    poll(list.data(), list.size(), 250);
    out_.flush();
    note_time();
    if (list[0].revents) receive();
  }
}

std::vector<pollfd> LauncherChannel::fds() const {
  return {{lost_ ? -1 : in_.get(), POLLIN, 0}, {out_.is_empty() ? -1 : out_.fd(), POLLOUT, 0}};
}

bool LauncherChannel::takes_output() const { return lost_ || (!paused_ && out_.size() < kMostWaiting); }

OtherHosts::News LauncherChannel::news() {
  receive();
  out_.flush();
  note_time();
  News news;
  while (const auto message = reader_.next()) {
    if (message->type == Message::end) news.ends.push_back(rank_end_of(*message));
    if (message->type == Message::signal) news.signals.push_back(message->rank);
    if (message->type == Message::pause) paused_ = message->rank != 0;
    if (message->type == Message::flight) news.wants_flight_records = true;
  }
  news.lost = lost_;
  return news;
}

void LauncherChannel::output(int rank, bool is_error, const std::string& bytes) {
  if (!lost_) send({is_error ? Message::err : Message::out, rank, bytes});
}

void LauncherChannel::ended(const RankEnd& end) { send(message_of(end)); }

void LauncherChannel::restart_points(const std::string& bytes) { send({Message::points, 0, bytes}); }

void LauncherChannel::flight_record(int rank, const std::string& bytes) {
  if (!lost_) send({Message::flight, rank, bytes});
}

void LauncherChannel::said(const std::string& text) { send({Message::say, 0, text}); }

}  // namespace drivetrain::program
