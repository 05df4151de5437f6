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

void StoreServer::answer(int fd, Guest& guest, const StoreRequest& request) {
  if (request.asks == StoreAsks::forget) return forget(fd, guest, request.id);
  if (request.asks == StoreAsks::leave) return farewell(guest, request.number != 0);
  const StoreAnswer answer = answer_to(request);
  if (request.asks == StoreAsks::get && answer.says == StoreSays::absent)
    waiters_.emplace(request.key, Waiter{fd, request.id});
  else
    say(fd, guest, answer);
}

StoreAnswer StoreServer::answer_to(const StoreRequest& request) {
  try {
    switch (request.asks) {
      case StoreAsks::set:
        table_.set(request.key, request.value);
        return {request.id, StoreSays::value, ""};
      case StoreAsks::add:
        return {request.id, StoreSays::value, std::to_string(table_.add(request.key, request.number))};
      default:
        break;
    }
    const auto value = table_.find(request.key);
    if (!value) return {request.id, StoreSays::absent, ""};
    return {request.id, StoreSays::value, request.asks == StoreAsks::get ? *value : ""};
  } catch (const std::exception& e) {
    const bool question = request.asks == StoreAsks::get || request.asks == StoreAsks::has;
    return {request.id, question ? StoreSays::stopped : StoreSays::refused, e.what()};
  }
}

void StoreServer::forget(int fd, Guest& guest, uint32_t id) {
  for (auto waiting = waiters_.begin(); waiting != waiters_.end(); ++waiting)
    if (waiting->second.fd == fd && waiting->second.id == id) {
      waiters_.erase(waiting);
      return say(fd, guest, {id, StoreSays::absent, ""});
    }
}

void StoreServer::farewell(Guest& guest, bool failed) {
  guest.stage = Stage::left;
  if (failed) table_.set(kStopped, concat("rank ", guest.rank, " stopped; its own message says why"));
  table_.set(concat(kLeft, "/", guest.rank), "");
  table_.add(kLeft, 1);
  count_left(guest.rank);
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
    Guest& guest = guests_.at(waiting->second.fd);
    if (stopped && waiting->first != kStopped)
      say(waiting->second.fd, guest, {waiting->second.id, StoreSays::stopped, reason});
    else
      say(waiting->second.fd, guest, {waiting->second.id, StoreSays::value, table_.peek(waiting->first)});
  }
  waiters_.erase(first, last);
  if (!stopped) return;
  for (auto& [fd, guest] : guests_)
    if (guest.stage == Stage::joined) say(fd, guest, {0, StoreSays::stopped, reason});
}

// What cannot be sent now goes when epoll says so; a connection that fails is dropped when epoll tells of it.
void StoreServer::say(int fd, Guest& guest, const StoreAnswer& answer) {
  guest.out += frame_of(answer);
  flush(fd, guest);
  watch(fd, guest);
}

bool StoreServer::flush(int fd, Guest& guest) {
  while (!guest.out.empty()) {
    const ssize_t n = send(fd, guest.out.data(), guest.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    guest.out.erase(0, static_cast<size_t>(n));
  }
  return true;
}

void StoreServer::watch(int fd, Guest& guest) {
  const uint32_t wanted =
      (guest.out.empty() ? 0u : uint32_t{EPOLLOUT}) | (guest.out.size() < kMostUnread ? uint32_t{EPOLLIN} : 0u);
  if (wanted == guest.watched) return;
  epoll_event event{wanted, {.fd = fd}};
  if (epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0) guest.watched = wanted;
}

}  // namespace drivetrain
