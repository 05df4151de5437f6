// What the server says to ranks that it has let in.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include <drivetrain/error.h>

#include "store/server.h"

namespace drivetrain {
namespace {

constexpr size_t kMostUnread = size_t{64} << 20;  // who does not read what it asked for is heard no further

}  // namespace

void StoreServer::answer(int fd, Connection& connection, const StoreRequest& request) {
  if (request.asks == StoreRequestKind::forget) return forget(fd, connection, request.id);
  if (request.asks == StoreRequestKind::leave) return handle_leave(connection, request.number != 0);
  const StoreAnswer answer = answer_to(request);
  if (request.asks == StoreRequestKind::get && answer.says == StoreAnswerKind::absent)
    waiters_.emplace(request.key, Waiter{fd, request.id});
  else
    say(fd, connection, answer);
}

StoreAnswer StoreServer::answer_to(const StoreRequest& request) {
  try {
    switch (request.asks) {
      case StoreRequestKind::set:
        table_.set(request.key, request.value);
        return {request.id, StoreAnswerKind::value, ""};
      case StoreRequestKind::add:
        return {request.id, StoreAnswerKind::value, std::to_string(table_.add(request.key, request.number))};
      default:
        break;
    }
    const auto value = table_.find(request.key);
    if (!value) return {request.id, StoreAnswerKind::absent, ""};
    return {request.id, StoreAnswerKind::value, request.asks == StoreRequestKind::get ? *value : ""};
  } catch (const std::exception& e) {
    const bool question = request.asks == StoreRequestKind::get || request.asks == StoreRequestKind::has;
    return {request.id, question ? StoreAnswerKind::stopped : StoreAnswerKind::refused, e.what()};
  }
}

void StoreServer::forget(int fd, Connection& connection, uint32_t id) {
  for (auto waiting = waiters_.begin(); waiting != waiters_.end(); ++waiting)
    if (waiting->second.fd == fd && waiting->second.id == id) {
      waiters_.erase(waiting);
      return say(fd, connection, {id, StoreAnswerKind::absent, ""});
    }
}

void StoreServer::handle_leave(Connection& connection, bool failed) {
  connection.stage = Stage::left;
  if (failed) table_.set(kStopped, concat("rank ", connection.rank, " stopped; its own message says why"));
  table_.set(concat(kLeft, "/", connection.rank), "");
  table_.add(kLeft, 1);
  count_left(connection.rank);
}

void StoreServer::on_changes() {
  std::vector<std::string> changes;
  {
    const std::lock_guard lock(mutex_);
    changes.swap(changes_);
  }
  for (const std::string& key : changes) on_change(key);
}

void StoreServer::on_change(const std::string& key) {
  const bool stopped = key == kStopped;
  const std::string reason = stopped ? table_.stopped() : "";
  const auto [first, last] = stopped ? std::pair(waiters_.begin(), waiters_.end()) : waiters_.equal_range(key);
  for (auto waiting = first; waiting != last; ++waiting) {
    Connection& connection = connections_.at(waiting->second.fd);
    if (stopped && waiting->first != kStopped)
      say(waiting->second.fd, connection, {waiting->second.id, StoreAnswerKind::stopped, reason});
    else
      say(waiting->second.fd, connection, {waiting->second.id, StoreAnswerKind::value, table_.peek(waiting->first)});
  }
  waiters_.erase(first, last);
  if (!stopped) return;
  for (auto& [fd, connection] : connections_)
    if (connection.stage == Stage::joined) say(fd, connection, {0, StoreAnswerKind::stopped, reason});
}

// What cannot be sent now goes when epoll says so; a connection that fails is dropped when epoll tells of it.
void StoreServer::say(int fd, Connection& connection, const StoreAnswer& answer) {
  connection.out += frame_of(answer);
  flush(fd, connection);
  watch(fd, connection);
}

bool StoreServer::flush(int fd, Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t n = send(fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    connection.out.erase(0, static_cast<size_t>(n));
  }
  return true;
}

void StoreServer::watch(int fd, Connection& connection) {
  const uint32_t wanted = (connection.out.empty() ? 0u : uint32_t{EPOLLOUT}) |
                          (connection.out.size() < kMostUnread ? uint32_t{EPOLLIN} : 0u);
  if (wanted == connection.watched) return;
  epoll_event event{wanted, {.fd = fd}};
  if (epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0) connection.watched = wanted;
}

}  // namespace drivetrain
