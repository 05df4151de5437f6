#include "store/client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include <drivetrain/toolkit/standstill.h>

#include "process/own_threads.h"
#include "store/table.h"

namespace drivetrain {
namespace {

using ClientClock = std::chrono::steady_clock;

constexpr auto kGrace = std::chrono::seconds(2);  // for rank 0 to say that a key did not come
constexpr auto kFarewell = std::chrono::milliseconds(200);
constexpr auto kTellWhy = std::chrono::seconds(1);  // for a rank that failed before it was let in

ClientClock::time_point in_seconds(double seconds) {
  return ClientClock::now() + std::chrono::duration_cast<ClientClock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

StoreClient::StoreClient(int64_t rank, std::string address, FindServer find)
    : rank_(rank), address_(std::move(address)), find_(std::move(find)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (bell_ < 0)
    throw fail(ErrorCode::communication, me(), "cannot connect to rank 0: ", std::strerror(errno),
               ". See `ulimit -n`, the number of files and sockets that a process may have");
  const SignalsElsewhere elsewhere;
  thread_ = std::thread([this] {
    const OwnThread own;
    run();
  });
}

StoreClient::~StoreClient() {
  const bool failed = std::uncaught_exceptions() > 0;
  {
    Lock lock(mutex_);
    const auto answered = [&] { return in_ || failure_; };
    if (failed) changed_.wait_for(lock, kTellWhy, answered);
    if (in_ && !failure_) {
      const StoreRequest farewell{0, StoreRequestKind::leave, failed ? 1 : 0, "", ""};
      send_all(fd_, frame_of(farewell), {ClientClock::now() + kFarewell, -1});
    }
  }
  ending_ = true;
  wake(bell_);
  thread_.join();
  if (fd_ >= 0) close(fd_);
  guard_.let_go();
  close(bell_);
}

void StoreClient::enter(double timeout_s) {
  Lock lock(mutex_);
  timeout_s_ = timeout_s;
  wait_until_in(lock, in_seconds(timeout_s), timeout_s);
}

void StoreClient::wait_until_in(Lock& lock, Clock::time_point deadline, double timeout_s) {
  const auto answered = [&] { return in_ || failure_; };
  if (!wait_patiently(changed_, lock, deadline, answered))
    failure_.emplace(ErrorCode::communication,
                     concat(me(), "rank 0 ", sight_, " ", address_, " within ", timeout_s, " s: ", reason_));
  throw_if_failed("");
}

void StoreClient::throw_if_failed(const std::string& words) const {
  if (!failure_) return;
  const bool told = failure_->what() == stop_reason_;  // the same words on all ranks
  throw words.empty() || told ? *failure_ : fail(failure_->code(), failure_->what(), " (", words, ")");
}

void StoreClient::give_up(ErrorCode code, const std::string& text) {
  {
    const Lock lock(mutex_);
    if (!failure_) failure_.emplace(code, text);
  }
  changed_.notify_all();
}

void StoreClient::see(const std::string& sight, const std::string& reason) {
  const Lock lock(mutex_);
  sight_ = sight, reason_ = reason;
}

void StoreClient::unanswered(Lock& lock, const PendingCall& wish) {
  throw_if_failed("");
  failure_.emplace(
      ErrorCode::communication,
      concat(me(), "rank 0 did not answer at ", address_, " within ", wish.timeout_s, " s (", wish.words,
             "): its process is stopped or hangs, or its host cannot be reached. Look there, end all ranks "
             "and start again"));
  changed_.notify_all();
  throw *failure_;
}

void StoreClient::send_frame(Lock& lock, const std::string& frame, const PendingCall& wish) {
  if (!wait_patiently(changed_, lock, wish.deadline, [&] { return !sending_ || failure_; })) unanswered(lock, wish);
  throw_if_failed(wish.words);
  sending_ = true;
  lock.unlock();
  const bool sent = send_all(fd_, frame, {wish.deadline, -1});
  lock.lock();
  sending_ = false;
  changed_.notify_all();
  if (sent) return;
  // What the reading thread finds says more, if the connection is gone.
  changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return failure_.has_value(); });
  throw_if_failed(wish.words);
  unanswered(lock, wish);
}

std::optional<StoreAnswer> StoreClient::await_answer(Lock& lock, uint32_t id, Clock::time_point deadline) {
  wait_patiently(changed_, lock, deadline, [&] { return answers_.at(id) || failure_; });
  return answers_.at(id);
}

std::optional<StoreAnswer> StoreClient::ask(PendingCall wish) {
  Lock lock(mutex_);
  const StoreRequestKind asks = wish.request.asks;
  wish.request.id = ++last_id_;
  wish.deadline = in_seconds(wish.timeout_s);
  wish.words =
      concat("this rank wanted to ", asks == StoreRequestKind::get || asks == StoreRequestKind::has ? "read" : "write",
             " \"", wish.request.key.substr(0, 80), "\"");
  wait_until_in(lock, wish.deadline, wish.timeout_s);
  const uint32_t id = wish.request.id;
  struct Place {  // gone with the call, however it ends; the mutex is held then
    std::map<uint32_t, std::optional<StoreAnswer>>& answers;
    uint32_t id;
    ~Place() { answers.erase(id); }
  } place{answers_, id};
  answers_[id] = std::nullopt;
  send_frame(lock, frame_of(wish.request), wish);
  auto answer = await_answer(lock, id, wish.deadline);
  if (!answer && !failure_ && asks == StoreRequestKind::get) {
    wish.deadline = ClientClock::now() + kGrace;
    send_frame(lock, frame_of(StoreRequest{id, StoreRequestKind::forget, 0, "", ""}), wish);
    answer = await_answer(lock, id, wish.deadline);
  }
  if (!answer) throw_if_failed(wish.words);
  if (!answer && !wish.may_stay_open) unanswered(lock, wish);
  return answer;
}

StoreAnswer StoreClient::call(StoreRequestKind asks, const std::string& key, const std::string& value, int64_t number,
                              double timeout_s) {
  const StoreAnswer answer = ask({{0, asks, number, key, value}, "", {}, timeout_s}).value();
  if (answer.says == StoreAnswerKind::stopped) throw Error(ErrorCode::communication, answer.text);
  if (answer.says == StoreAnswerKind::refused) throw Error(ErrorCode::communication, me() + answer.text);
  return answer;
}

std::optional<StoreAnswer> StoreClient::ask_within(double timeout_s, StoreRequestKind asks, const std::string& key,
                                                   const std::string& value, int64_t number) {
  auto answer = ask({{0, asks, number, key, value}, "", {}, timeout_s, true});
  if (answer && (answer->says == StoreAnswerKind::stopped || answer->says == StoreAnswerKind::refused))
    throw Error(ErrorCode::communication, answer->text);
  return answer;
}

void StoreClient::set(const std::string& key, const std::string& value) { set_within(timeout_s_, key, value); }

void StoreClient::set_within(double timeout_s, const std::string& key, const std::string& value) {
  StoreTable::check(key, value);  // before anything is sent
  call(StoreRequestKind::set, key, value, 0, timeout_s);
}

bool StoreClient::has(const std::string& key) {
  return call(StoreRequestKind::has, key, "", 0, timeout_s_).says == StoreAnswerKind::value;
}

int64_t StoreClient::add(const std::string& key, int64_t delta) {
  const std::string text = call(StoreRequestKind::add, key, "", delta, timeout_s_).text;
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string StoreClient::get(const std::string& key, double timeout_s) {
  const StoreAnswer answer = call(StoreRequestKind::get, key, "", 0, timeout_s);
  if (answer.says == StoreAnswerKind::value) return answer.text;
  throw fail(ErrorCode::communication, me(), "no rank set \"", key, "\" in the store at ", address_, " within ",
             timeout_s, " s");
}

}  // namespace drivetrain
