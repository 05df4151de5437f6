#include "board.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <drivetrain/error.h>

#include "process.h"

namespace drivetrain::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kCauseS = 5;  // for a value that is being written
const char* const kGo = "go";

}  // namespace

std::string rank_list(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

// 1000 questions per second at most, whatever the number of ranks.
Board::Board(Store& store, int64_t rank, int64_t world_size, double timeout_s)
    : store_(store),
      rank_(rank),
      timeout_s_(timeout_s),
      period_s_(std::max(0.1, 0.001 * static_cast<double>(world_size))) {
  // Communicators made one after the other on the same store must not find each other's keys.
  prefix_ = concat("communicator/mpi/", store_.add(concat("communicator/mpi/made/", rank_), 1), "/");
}

// Making an MPI group cannot be interrupted, so all its ranks go there or none does: the last to arrive and whoever
// gives up before ask for the one word that decides.
void Board::meet(const std::vector<int64_t>& ranks, const std::string& label, const std::function<bool()>& meanwhile) {
  const std::string where = concat("make_group of group \"", label, "\""), verdict = key("verdict/" + label);
  throw_if_aborted(where);
  const auto here = [&](int64_t rank) { return key(concat("here/", label, "/", rank)); };
  store_.set(here(rank_), "");
  if (store_.add(key("arrived/" + label), 1) == static_cast<int64_t>(ranks.size())) decide(label, true);
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s_);
  constexpr std::chrono::microseconds kShort(200), kLong(20000);
  auto pause = kShort;
  while (!aborted_ && !store_.has(verdict)) {
    if (meanwhile()) pause = kShort;
    look();
    std::vector<int64_t> absent, there;
    for (const int64_t rank : ranks) (store_.has(here(rank)) ? there : absent).push_back(rank);
    const std::string gone = absent.empty() ? "" : left(absent.front());
    if (!gone.empty()) raise(gone);
    if (!absent.empty() && Clock::now() > deadline)
      raise(concat(rank_list(absent), " did not reach ", where, " within ", timeout_s_, " s (", rank_list(there),
                   " did)"));
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLong);
  }
  if (aborted_) decide(label, false);
  if (store_.get(verdict, kCauseS) == kGo) return;
  look();
  throw_if_aborted(where);
  throw fail(ErrorCode::communication, "communicator/mpi, ", where, ": another rank gave up");
}

void Board::decide(const std::string& label, bool go) {
  if (store_.add(key("decided/" + label), 1) == 1) store_.set(key("verdict/" + label), go ? kGo : "stop");
}

std::string Board::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Board::throw_if_aborted(const std::string& where) const {
  if (!aborted_) return;
  throw fail(ErrorCode::communication, "communicator/mpi, ", where, ": ", cause());
}

void Board::adopt(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (cause_.empty()) cause_ = cause;
  aborted_ = true;
  note_failure(false);
}

void Board::raise(const std::string& cause) noexcept {
  try {
    if (aborted_) return;
    try {
      if (store_.add(key("causes"), 1) == 1) {
        store_.set(key("cause"), cause);
        note_failure(true);
      } else {
        adopt(store_.get(key("cause"), kCauseS));
      }
    } catch (const std::exception&) {
      // The store is gone with rank 0: this rank still has to stop.
    }
    adopt(cause);
  } catch (...) {
    aborted_ = true;  // no memory for the text
    note_failure(false);
  }
}

void Board::look() noexcept {
  try {
    if (aborted_) return;
    if (store_.has(key("cause"))) adopt(store_.get(key("cause"), kCauseS));
  } catch (const std::exception& e) {
    try {
      adopt(e.what());
    } catch (...) {
      aborted_ = true;
      note_failure(false);
    }
  }
}

std::string Board::left(int64_t rank) {
  const std::string closed = key(concat("closed/", rank));
  if (rank == rank_ || !store_.has(closed)) return "";
  return concat("rank ", rank, " (pid ", store_.get(closed, kCauseS), ") closed its communicator");
}

void Board::close() noexcept {
  try {
    store_.set(key(concat("closed/", rank_)), std::to_string(getpid()));
    store_.set(key("closed"), "");
  } catch (...) {
    // Nobody is there to read it.
  }
}

}  // namespace drivetrain::mpi
