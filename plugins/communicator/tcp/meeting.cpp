#include "meeting.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/communicator/rank_list.h>

namespace drivetrain::tcp {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Failure = boost::system::error_code;

constexpr char kMagic[8] = {'d', 't', '-', 't', 'c', 'p', '/', '1'};
constexpr size_t kMostPending = 256;
constexpr auto kHelloTime = std::chrono::seconds(5);
constexpr auto kPauseBetweenAttempts = std::chrono::milliseconds(100);
// A host that is gone answers no probes: its connections end after about this time, whatever timeout_s is.
constexpr int kProbeAfterS = 10, kProbeEveryS = 5, kProbes = 4, kUnansweredMs = 30000;

std::string new_secret(size_t bytes) {
  std::string secret(bytes, '\0');
  if (getrandom(secret.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    throw fail(ErrorCode::io, "communicator/tcp: getrandom: ", std::strerror(errno));
  return secret;
}

std::string in_hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[(static_cast<uint8_t>(c) >> shift) & 15];
  return text;
}

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

void tune(tcp::socket& socket) {
  const int fd = socket.native_handle(), on = 1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  socket.non_blocking(true);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kProbeAfterS, sizeof kProbeAfterS);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kProbeEveryS, sizeof kProbeEveryS);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMs, sizeof kUnansweredMs);
}

std::string text_of(const std::string& address, int port) {
  return address.find(':') == std::string::npos ? concat(address, ":", port) : concat("[", address, "]:", port);
}

}  // namespace

// A connection that this rank opens, again and again until it stands.
struct Meeting::Attempt {
  enum State { idle, opening, open, refused };
  const int64_t rank;
  Pending pending;
  std::shared_ptr<std::atomic<int>> state;  // set by the handler
  std::shared_ptr<Failure> failure;
  Clock::time_point again{};
  std::string reason = "it has not said where it listens";
};

Meeting::Meeting(asio::io_context& context, Store& store, std::string key, int64_t me, std::vector<int64_t> ranks,
                 const asio::ip::address& address, const std::string& memory)
    : context_(context), store_(store), key_(std::move(key)), me_(me), ranks_(std::move(ranks)) {
  if (ranks_.empty()) return;
  secret_ = new_secret(kSecretBytes / 2);
  secret_ = in_hex(secret_);
  uint16_t port = 0;
  if (ranks_.back() > me_) {
    listen(address);
    port = acceptor_->local_endpoint().port();
    at_ = text_of(address.to_string(), port);
  }
  store_.set(entry_key(me_), concat(address.to_string(), " ", port, " ", secret_, " ", memory, " rank ", me_, " (pid ",
                                    getpid(), " on host ", host_name(), ")"));
}

Meeting::~Meeting() = default;

void Meeting::listen(const asio::ip::address& address) {
  try {
    acceptor_.emplace(context_);
    acceptor_->open(address.is_v4() ? tcp::v4() : tcp::v6());
    fcntl(acceptor_->native_handle(), F_SETFD, FD_CLOEXEC);
    acceptor_->bind({address, 0});
    acceptor_->listen();
    acceptor_->non_blocking(true);
  } catch (const boost::system::system_error& e) {
    throw fail(ErrorCode::communication, "communicator/tcp: rank ", me_, " cannot listen at ", address.to_string(),
               ": ", e.code().message());
  }
}

std::string Meeting::entry_key(int64_t rank) const { return concat(key_, "at/", rank); }

const Meeting::Entry* Meeting::entry(int64_t rank) {
  if (const auto known = entries_.find(rank); known != entries_.end()) return &known->second;
  if (!store_.has(entry_key(rank))) return nullptr;
  std::istringstream text(store_.get(entry_key(rank), 5));
  Entry read;
  text >> read.address >> read.port >> read.secret >> read.memory;
  std::getline(text >> std::ws, read.who);
  return &entries_.emplace(rank, std::move(read)).first->second;
}

Meeting::Hello Meeting::hello(const std::string& secret) const {
  Hello hello = {};
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  hello.rank = me_;
  std::memcpy(hello.secret, secret.data(), std::min(secret.size(), kSecretBytes));
  return hello;
}

// Takes the same time wherever they differ.
bool Meeting::shows(const Hello& hello, const std::string& secret) {
  unsigned differences = secret.size() == kSecretBytes ? 0 : 1;
  for (size_t i = 0; i < kSecretBytes && i < secret.size(); ++i)
    differences |= static_cast<unsigned>(hello.secret[i] ^ secret[i]);
  return differences == 0;
}

bool Meeting::read_hello(Pending& pending, std::optional<Hello>& hello) {
  char bytes[sizeof(Hello)];
  Failure failure;
  const size_t got = pending.socket->read_some(asio::buffer(bytes, sizeof(Hello) - pending.bytes.size()), failure);
  if (failure == asio::error::would_block || failure == asio::error::try_again) return true;
  if (failure) return false;
  pending.bytes.append(bytes, got);
  const size_t known = std::min(pending.bytes.size(), sizeof kMagic);
  if (std::memcmp(pending.bytes.data(), kMagic, known) != 0) return false;
  if (pending.bytes.size() < sizeof(Hello)) return true;
  std::memcpy(&hello.emplace(), pending.bytes.data(), sizeof(Hello));
  return true;
}

void Meeting::enter(int64_t rank, Socket socket) {
  met_.emplace(rank, Met{std::move(socket), entry(rank)->who, entry(rank)->memory});
  if (std::all_of(ranks_.begin(), ranks_.end(), [&](int64_t r) { return r < me_ || met_.contains(r); }))
    acceptor_.reset(), pending_.clear();
}

// ---- ranks above this one come here ----

bool Meeting::answer(Pending& pending) {
  std::optional<Hello> said;
  if (!read_hello(pending, said)) return true;
  if (!said) return Clock::now() - pending.since > kHelloTime;
  const int64_t rank = said->rank;
  const bool known = rank > me_ && std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end();
  if (!known || !shows(*said, secret_)) return true;
  const Entry* const theirs = entry(rank);  // written before it connected
  if (theirs == nullptr) return true;
  const Hello reply = hello(theirs->secret);
  Failure failure;
  if (pending.socket->write_some(asio::buffer(&reply, sizeof reply), failure) != sizeof reply) return true;
  // It may have given up an earlier attempt: the last one holds.
  met_.erase(rank);
  enter(rank, std::move(*pending.socket));
  return true;
}

void Meeting::accept() {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce && acceptor_; ++i) {
    Failure failure;
    auto socket = std::make_unique<Socket>(context_);
    acceptor_->accept(*socket, failure);
    if (failure) {
      const bool nobody = failure == asio::error::would_block || failure == asio::error::try_again;
      if (!nobody && failure != asio::error::connection_aborted) accept_reason_ = failure.message();
      break;
    }
    tune(*socket);
    if (pending_.size() == kMostPending) pending_.pop_front();
    pending_.push_back({std::move(socket), Clock::now(), ""});
  }
  for (size_t i = 0; i < pending_.size() && acceptor_;) {
    Pending one = std::move(pending_[i]);
    const bool over = answer(one);
    if (!acceptor_) return;  // all are here
    if (over)
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      pending_[i++] = std::move(one);
  }
}

// ---- this rank goes to those below it ----

void Meeting::connect(int64_t rank) {
  auto& slot = attempts_[rank];
  if (!slot) slot.reset(new Attempt{rank, {}, nullptr, nullptr, {}, "it has not said where it listens"});
  Attempt& attempt = *slot;
  if (attempt.state) return go_on(attempt);
  const Entry* const there = entry(rank);
  if (there == nullptr || Clock::now() < attempt.again) return;
  attempt.reason = concat("no answer from ", text_of(there->address, there->port));
  attempt.pending = {std::make_unique<Socket>(context_), Clock::now(), ""};
  attempt.state = std::make_shared<std::atomic<int>>(Attempt::opening);
  attempt.failure = std::make_shared<Failure>();
  const tcp::endpoint end(asio::ip::make_address(there->address), there->port);
  attempt.pending.socket->async_connect(end, [state = attempt.state, failure = attempt.failure](const Failure& e) {
    *failure = e;
    *state = e ? Attempt::refused : Attempt::open;
  });
}

void Meeting::go_on(Attempt& attempt) {
  const Entry& there = *entry(attempt.rank);
  const auto retry = [&](const std::string& reason) {
    attempt.reason = concat(text_of(there.address, there.port), ": ", reason);
    attempt.again = Clock::now() + kPauseBetweenAttempts;
    attempt.pending = {};
    attempt.state = nullptr;
  };
  if (*attempt.state == Attempt::refused) return retry(attempt.failure->message());
  if (*attempt.state == Attempt::opening) return;
  if (*attempt.state == Attempt::open) {
    Failure failure;
    tune(*attempt.pending.socket);
    const Hello own = hello(there.secret);
    if (attempt.pending.socket->write_some(asio::buffer(&own, sizeof own), failure) != sizeof own)
      return retry(failure.message());
    *attempt.state = Attempt::idle;
  }
  std::optional<Hello> said;
  if (!read_hello(attempt.pending, said)) return retry("what listens there is not this run's rank, or it was busy");
  if (!said) return;
  if (said->rank != attempt.rank || !shows(*said, secret_)) return retry("what listens there is not this run's rank");
  enter(attempt.rank, std::move(*attempt.pending.socket));
}

void Meeting::advance() {
  if (acceptor_) accept();
  for (const int64_t rank : ranks_)
    if (rank < me_ && !met_.contains(rank)) connect(rank);
}

std::string Meeting::missing() const {
  std::vector<int64_t> silent;
  std::string text;
  for (const int64_t rank : ranks_) {
    if (met_.contains(rank)) continue;
    if (rank > me_) {
      silent.push_back(rank);
      continue;
    }
    const auto attempt = attempts_.find(rank);
    text += concat(text.empty() ? "" : "; ", "rank ", me_, " could not connect to rank ", rank, ": ",
                   attempt == attempts_.end() ? "not tried yet" : attempt->second->reason);
  }
  if (!silent.empty())
    text += concat(text.empty() ? "" : "; ", toolkit::rank_list(silent), " did not connect to rank ", me_, " at ", at_,
                   accept_reason_.empty() ? "" : concat(" (", accept_reason_, ")"));
  return text;
}

}  // namespace drivetrain::tcp
