#include "store/server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <drivetrain/error.h>

#include "base/secret.h"
#include "process/own_threads.h"
#include "store/socket.h"

namespace drivetrain {
namespace {

constexpr auto kMayTakeToProve = std::chrono::seconds(5);
constexpr size_t kStrangersBesideRanks = 128;
constexpr size_t kReadAtOnce = size_t{1} << 16;
constexpr int64_t kHighestRank = 1 << 20;
constexpr int kEventsAtOnce = 64;
constexpr std::string_view kRank = "rank ";  // so do news of the launcher begin

}  // namespace

StoreServer::StoreServer(StoreTable& table, ServedBy served_by)
    : table_(table),
      by_(std::move(served_by)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  bool ready = epoll_ >= 0 && bell_ >= 0;
  std::vector<int> watched = by_.listeners;
  watched.push_back(bell_);
  if (by_.news >= 0) watched.push_back(by_.news);
  for (const int fd : watched) {
    epoll_event event{EPOLLIN, {.fd = fd}};
    ready = ready && make_own(fd) && epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0;
  }
  if (!ready)
    throw fail(ErrorCode::communication, "rank 0 cannot serve the other ranks: ", std::strerror(errno),
               ". See `ulimit -n`, the number of files and sockets that a process may have");
  table_.on_change([this](const std::string& key) {
    {
      const std::lock_guard lock(mutex_);
      changes_.push_back(key);
    }
    wake(bell_);
  });
  const SignalsElsewhere elsewhere;
  thread_ = std::thread([this] {
    const OwnThread own;
    serve();
  });
}

StoreServer::~StoreServer() {
  table_.on_change(nullptr);
  ending_ = true;
  wake(bell_);
  thread_.join();
  for (auto& [fd, connection] : connections_) {
    flush(fd, connection);
    close(fd);
  }
  for (const int fd : by_.listeners) close(fd);
  if (by_.news >= 0) close(by_.news);
  close(bell_);
  close(epoll_);
}

bool StoreServer::wait_until_left(double seconds) {
  std::unique_lock lock(mutex_);
  return left_changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                [&] { return static_cast<int64_t>(ranks_left_.size()) >= by_.world_size - 1; });
}

void StoreServer::serve() {
  epoll_event events[kEventsAtOnce];
  while (!ending_) {
    const int count = epoll_wait(epoll_, events, kEventsAtOnce, milliseconds_to_wait());
    try {
      for (int i = 0; i < count; ++i) on_event(events[i].data.fd, events[i].events);
      drop_late_unauthenticated();
      on_changes();
    } catch (const std::exception& e) {
      table_.set(kStopped, concat("rank 0 cannot serve the other ranks any more: ", e.what()));
    }
  }
}

int StoreServer::milliseconds_to_wait() const {
  if (unauthenticated_.empty()) return -1;
  const auto until = connections_.at(unauthenticated_.begin()->second).since + kMayTakeToProve - Clock::now();
  return static_cast<int>(std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(until).count())) +
         1;
}

void StoreServer::drop_late_unauthenticated() {
  const auto late = Clock::now() - kMayTakeToProve;
  while (!unauthenticated_.empty() && connections_.at(unauthenticated_.begin()->second).since < late)
    drop(unauthenticated_.begin()->second);
}

void StoreServer::on_event(int fd, uint32_t events) {
  if (fd == bell_) {
    uint64_t rung = 0;
    static_cast<void>(!read(bell_, &rung, sizeof rung));
    return;
  }
  const auto found = connections_.find(fd);
  if (found == connections_.end()) {
    if (fd == by_.news) return read_launcher_news();
    for (const int listener : by_.listeners)
      if (listener == fd) accept_from(listener);
    return;
  }
  Connection& connection = found->second;
  const bool stays =
      (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || read_from(fd, connection)) && flush(fd, connection);
  if (stays) return watch(fd, connection);
  if (connection.stage == Stage::joined) lost(connection, "its connection to rank 0 closed");
  drop(fd);
}

// A rank that died before it came has no connection that could tell. One that ended well matters only where it never
// came, for the others would wait for it.
void StoreServer::read_launcher_news() {
  char text[4096];
  const ssize_t n = read(by_.news, text, sizeof text);
  if (n < 0) return;
  if (n == 0) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, by_.news, nullptr);
    return;
  }
  news_.append(text, static_cast<size_t>(n));
  for (size_t end = news_.find('\n'); end != std::string::npos; end = news_.find('\n')) {
    const std::string news = news_.substr(0, end);
    news_.erase(0, end + 1);
    const bool ended_well = news.ends_with(": exit 0");
    const int64_t rank = std::strtoll(news.c_str() + std::min(news.size(), kRank.size()), nullptr, 10);
    if (ended_well && (rank == 0 || ranks_seen_.count(rank) != 0)) continue;
    return table_.set(kStopped, news + (ended_well ? " before it had joined the run" : ""));
  }
}

// The oldest of those who did not say who they are goes first, so that silence keeps nobody out.
void StoreServer::make_room() {
  if (unauthenticated_.size() > kStrangersBesideRanks + static_cast<size_t>(by_.world_size))
    drop(unauthenticated_.begin()->second);
}

void StoreServer::accept_from(int listener) {
  for (int i = 0; i < kEventsAtOnce; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      if (unauthenticated_.empty())
        usleep(10000);  // the connection stays in the queue until somebody leaves
      else
        drop(unauthenticated_.begin()->second);
      return;
    }
    if (fd < 0) return;
    epoll_event event{EPOLLIN, {.fd = fd}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
      close(fd);
      return;
    }
    tune(fd);
    unauthenticated_[++arrivals_] = fd;
    connections_.emplace(fd, Connection{arrivals_, EPOLLIN});
    make_room();
  }
}

bool StoreServer::read_from(int fd, Connection& connection) {
  char bytes[kReadAtOnce];
  const bool stranger = connection.stage == Stage::hello || connection.stage == Stage::proof;
  const size_t wanted = connection.stage == Stage::hello ? kHelloBytes : kProofBytes;
  const ssize_t n = recv(fd, bytes, stranger ? wanted - connection.read.size() : sizeof bytes, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  if (!stranger) {
    connection.frames.take(bytes, static_cast<size_t>(n));
    return take_frames(fd, connection);
  }
  connection.read.append(bytes, static_cast<size_t>(n));
  if (connection.read.size() < wanted) return true;
  const bool good = connection.stage == Stage::hello ? take_hello(connection) : take_proof(connection);
  connection.read.clear();
  return good;
}

bool StoreServer::take_hello(Connection& connection) {
  const auto hello = read_hello(by_.secret, connection.read);
  if (!hello || hello->rank > kHighestRank) return false;
  connection.rank = hello->rank;
  connection.hello = connection.read;
  const Verdict verdict = !hello->our_run                                 ? Verdict::other_run
                          : connection.rank >= by_.world_size             ? Verdict::beyond_world
                          : connection.rank == 0 || here(connection.rank) ? Verdict::taken
                                                                          : Verdict::welcome;
  connection.welcome = welcome_to(by_.secret, connection.hello, verdict);
  connection.out += connection.welcome;
  connection.stage = Stage::proof;  // whom the verdict sends away goes, or is late
  return true;
}

bool StoreServer::take_proof(Connection& connection) {
  const bool welcome = read_welcome(by_.secret, connection.hello, connection.welcome) == Verdict::welcome;
  if (!welcome || here(connection.rank) ||
      !same_bytes(connection.read, proof_of(by_.secret, connection.hello, connection.welcome)))
    return false;
  unauthenticated_.erase(connection.number);
  connection.stage = Stage::joined;
  ranks_here_.insert(connection.rank);
  {
    const std::lock_guard lock(mutex_);
    ranks_left_.erase(connection.rank);
  }
  connection.out += frame_of(StoreAnswer{0, StoreAnswerKind::value, ""});
  if (const std::string reason = table_.stopped(); !reason.empty())
    connection.out += frame_of(StoreAnswer{0, StoreAnswerKind::stopped, reason});
  const bool news = ranks_seen_.insert(connection.rank).second;
  if (news && static_cast<int64_t>(ranks_seen_.size()) == by_.world_size - 1 && by_.on_all_here) by_.on_all_here();
  return true;
}

bool StoreServer::take_frames(int fd, Connection& connection) {
  while (const auto body = connection.frames.next()) {
    const auto request = request_of(*body);
    if (!request || connection.stage == Stage::left) return false;
    answer(fd, connection, *request);
  }
  return !connection.frames.broken();
}

void StoreServer::lost(const Connection& connection, const std::string& how) {
  const std::string at = table_.peek(concat(kAt, "/", connection.rank));
  table_.set(kStopped, concat("rank ", connection.rank, " is gone: ", how, at.empty() ? "" : " while it was ", at));
}

void StoreServer::count_left(int64_t rank) {
  ranks_here_.erase(rank);
  const std::lock_guard lock(mutex_);
  ranks_left_.insert(rank);
  left_changed_.notify_all();
}

void StoreServer::drop(int fd) {
  Connection& connection = connections_.at(fd);
  unauthenticated_.erase(connection.number);
  if (connection.stage == Stage::joined) count_left(connection.rank);
  std::erase_if(waiters_, [&](const auto& waiting) { return waiting.second.fd == fd; });
  connections_.erase(fd);
  close(fd);
}

}  // namespace drivetrain
