// The client's own thread: it finds rank 0, shows and asks for the proof of the run's secret, then takes answers.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/secret.h"
#include "store/client.h"

namespace drivetrain {
namespace {

constexpr auto kOneTry = std::chrono::seconds(5);
constexpr auto kEntry = std::chrono::seconds(60);  // rank 0 knows the proof then: to leave would look like a death
constexpr auto kBetweenTries = std::chrono::milliseconds(20);
constexpr size_t kAnswersAtOnce = size_t{1} << 16;

std::chrono::steady_clock::time_point after(std::chrono::steady_clock::duration time) {
  return std::chrono::steady_clock::now() + time;
}

}  // namespace

void StoreClient::run() {
  try {
    while (!ending_ && !join_rank_0()) {
      {
        const Lock lock(mutex_);
        if (failure_) return;
      }
      wait_for_socket(-1, 0, {after(kBetweenTries), bell_});
    }
    if (!ending_) read_answers();
  } catch (const Error& e) {
    give_up(e.code(), me() + e.what());
  } catch (const std::exception& e) {
    give_up(ErrorCode::communication, concat(me(), "cannot speak with rank 0: ", e.what()));
  }
}

bool StoreClient::join_rank_0() {
  std::string reason;
  const auto place = find_(reason);
  if (!place) {
    see("did not show itself for", reason);
    return false;
  }
  see("did not open", concat(place->host, " was not reached yet"));
  const int fd = connect_to(place->host, place->port, {after(kOneTry), bell_}, reason);
  if (fd < 0) {
    see("did not open", concat(reason,
                               ". Look at rank 0 for an earlier error, and check that all ranks were given this "
                               "MASTER_ADDR and MASTER_PORT"));
    if (place->open && reason == std::strerror(ECONNREFUSED))
      give_up(ErrorCode::communication, concat(me(), "nothing listens any more on ", address_,
                                               ", so rank 0 has ended: ", reason, "; its own message says why"));
    return false;
  }
  if (authenticate(fd, *place)) {
    {
      const Lock lock(mutex_);
      fd_ = fd;
      in_ = true;
    }
    changed_.notify_all();
    return true;
  }
  close(fd);
  return false;
}

bool StoreClient::authenticate(int fd, const ServerPlace& place) {
  const auto stranger = [&](const std::string& who, const std::string& what_to_do) {
    see("did not answer at", concat(who, " listens there", what_to_do));
    if (!place.stale) give_up(ErrorCode::communication, concat(me(), who, " listens at ", address_, what_to_do));
    return false;
  };
  see("did not answer at",
      "what listens there accepts connections and says nothing. Rank 0 is stopped or hangs, or another program listens "
      "there: look at rank 0, or choose another MASTER_PORT");
  const WaitLimit wait_limit{after(kOneTry), bell_};
  const std::string hello = hello_of(place.secret, static_cast<uint32_t>(rank_));
  std::string welcome;
  bool closed = false;
  if (!send_all(fd, hello, wait_limit) || !receive_all(fd, welcome, kWelcomeBytes, wait_limit, closed)) {
    if (closed && !welcome.empty())
      return stranger("something else than rank 0 of a run", ". Choose another MASTER_PORT, or end it");
    if (closed) see("did not answer at", "what listens there closes the connection at once");
    return false;
  }
  const auto verdict = read_welcome(place.secret, hello, welcome);
  if (!verdict)
    return stranger("something else than rank 0 of this run",
                    ": it does not know the run's secret. Choose another MASTER_PORT, or end it");
  if (*verdict == Verdict::other_run)
    return stranger("another run's rank 0",
                    ", one with another secret. Choose another MASTER_PORT for this run; where ranks are given "
                    "DRIVETRAIN_RUN_TOKEN, give all ranks of a run the same one");
  if (*verdict == Verdict::taken) {
    give_up(ErrorCode::config, concat("two processes call themselves rank ", rank_, ": this one, ", getpid(),
                                      ", and one that is with rank 0 already; each needs its own RANK, "
                                      "and each run its own MASTER_PORT"));
    return false;
  }
  if (*verdict == Verdict::beyond_world) {
    give_up(ErrorCode::config, concat("this process calls itself rank ", rank_,
                                      ", and rank 0's run has not that many ranks: "
                                      "give all ranks the same WORLD_SIZE"));
    return false;
  }
  return send_all(fd, proof_of(place.secret, hello, welcome), wait_limit) && await_entry(fd, {after(kEntry), bell_});
}

// The first frame: whoever closes instead found the proof wrong, or this rank here meanwhile.
bool StoreClient::await_entry(int fd, const WaitLimit& wait_limit) {
  const std::string wanted = frame_of(StoreAnswer{0, StoreAnswerKind::value, ""});
  std::string found;
  bool closed = false;
  if (receive_all(fd, found, wanted.size(), wait_limit, closed)) return found == wanted;
  if (closed) see("did not answer at", "what listens there closes the connection at once");
  return false;
}

void StoreClient::read_answers() {
  const WaitLimit for_ever{std::chrono::steady_clock::time_point::max(), bell_};
  char bytes[kAnswersAtOnce];
  for (;;) {
    const ssize_t n = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (!wait_for_socket(fd_, POLLIN, for_ever) && ending_) return;
      continue;
    }
    if (n <= 0) break;
    frames_.take(bytes, static_cast<size_t>(n));
    bool sound = true;
    while (const auto body = frames_.next()) {
      const auto answer = answer_of(*body);
      sound = sound && answer;
      if (answer) take(*answer);
    }
    if (!sound || frames_.broken()) break;
  }
  std::string reason;
  {
    const Lock lock(mutex_);
    reason = stop_reason_;
  }
  give_up(ErrorCode::communication, reason.empty() ? concat(me(), "the store of rank 0 at ", address_,
                                                            " is gone, so rank 0 has ended; its own message says why")
                                                   : reason);
}

void StoreClient::take(const StoreAnswer& answer) {
  {
    const Lock lock(mutex_);
    if (answer.id == 0 && answer.says == StoreAnswerKind::stopped) stop_reason_ = answer.text;
    const auto waiting = answers_.find(answer.id);
    if (waiting == answers_.end()) return;
    waiting->second = answer;
  }
  changed_.notify_all();
}

}  // namespace drivetrain
