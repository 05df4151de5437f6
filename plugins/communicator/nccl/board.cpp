#include "board.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include <drivetrain/error.h>

namespace drivetrain::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kCauseS = 5;  // for a value that is being written

Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string to_text(const Standing& s) { return concat(s.reached, " ", s.open, " ", s.call); }

Standing to_standing(const std::string& text) {
  std::istringstream in(text);
  Standing s;
  in >> s.reached >> s.open;
  in.get();  // the blank before the text
  std::getline(in, s.call);
  return s;
}

std::string place(const std::string& label) { return concat(" of group \"", label, "\""); }

}  // namespace

std::string rank_list(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

std::string explain(const Stall& stall, const std::vector<std::optional<Standing>>& standings, double timeout_s) {
  const int64_t number = stall.mine.open;
  std::vector<int64_t> absent, there;
  for (size_t i = 0; i < stall.ranks.size(); ++i) {
    const bool missing = number > 0 ? !standings[i] || standings[i]->reached < number : !standings[i];
    (missing ? absent : there).push_back(stall.ranks[i]);
  }
  const std::string call =
      number > 0 ? concat(stall.mine.call.substr(0, stall.mine.call.find(' ')), " #", number, place(stall.label))
                 : concat(stall.mine.call, " in group \"", stall.label, "\"");
  if (!absent.empty() && number > 0)
    return concat(rank_list(absent), " did not reach ", call, " within ", timeout_s, " s (", rank_list(there), " did)");
  if (!absent.empty())
    return concat(call, " did not end within ", timeout_s, " s, and ", rank_list(absent), " did not answer");
  for (size_t i = 1; number > 0 && i < standings.size(); ++i) {
    const Standing &a = *standings[0], &b = *standings[i];
    if (a.open == number && b.open == number && a.call != b.call)
      return concat("ranks disagree about call #", number, place(stall.label), ": rank ", stall.ranks[0], " called ",
                    a.call, ", rank ", stall.ranks[i], " called ", b.call);
  }
  std::string others;
  for (size_t i = 0; i < standings.size(); ++i)
    others += concat(i == 0 ? "" : "; ", "rank ", stall.ranks[i], " is in ",
                     standings[i]->call.empty() ? "no call of this group" : standings[i]->call);
  return concat(call, " did not end within ", timeout_s, " s (", others,
                "). If the calls fit, look at the links with NCCL_DEBUG=INFO, or raise timeout_s");
}

// 1000 questions per second at most, whatever the number of ranks.
Board::Board(Store& store, int64_t rank, int64_t world_size, double timeout_s)
    : store_(store),
      rank_(rank),
      timeout_s_(timeout_s),
      period_s_(std::max(0.1, 0.002 * static_cast<double>(world_size))) {
  // Communicators made one after the other on the same store must not find each other's keys.
  prefix_ = concat("communicator/nccl/", store_.add(concat("communicator/nccl/made/", rank_), 1), "/");
}

bool Board::wait_for(const std::string& name, double seconds) {
  const auto deadline = in_seconds(seconds);
  for (auto pause = std::chrono::microseconds(200); !store_.has(key(name));
       pause = std::min(2 * pause, std::chrono::microseconds(20000))) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

std::string Board::meet(const std::vector<int64_t>& ranks, const std::string& label,
                        const std::function<std::string()>& id) {
  const std::string where = concat("make_group", place(label));
  throw_if_aborted(where);
  if (rank_ == ranks.front()) store_.set(key("id/" + label), id());
  const auto here = [&](int64_t rank) { return concat("here/", label, "/", rank); };
  store_.set(key(here(rank_)), "");
  const auto deadline = in_seconds(timeout_s_);
  for (size_t next = 0; next < ranks.size();) {
    if (store_.has(key(here(ranks[next])))) {
      ++next;
      continue;
    }
    throw_if_aborted(where);
    if (const std::string gone = left({ranks[next]}, label, 1); !gone.empty()) raise(gone);
    if (Clock::now() > deadline) {
      std::vector<int64_t> absent, there;
      for (const int64_t rank : ranks) (store_.has(key(here(rank))) ? there : absent).push_back(rank);
      if (!absent.empty())
        raise(concat(rank_list(absent), " did not reach ", where, " within ", timeout_s_, " s (", rank_list(there),
                     " did)"));
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return store_.get(key("id/" + label), timeout_s_);
}

std::string Board::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Board::throw_if_aborted(const std::string& where) const {
  if (const std::string text = cause(); !text.empty())
    throw fail(ErrorCode::communication, "communicator/nccl, ", where, ": ", text);
}

void Board::adopt(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (cause_.empty()) cause_ = cause;
  aborted_ = true;
}

std::string Board::raise(const std::string& cause) noexcept {
  try {
    if (!this->cause().empty()) return this->cause();
    try {
      if (store_.add(key("causes"), 1) == 1)
        store_.set(key("cause"), cause);
      else if (wait_for("cause", kCauseS))
        adopt(store_.get(key("cause"), kCauseS));
    } catch (const std::exception&) {
      // The store is gone with rank 0: this rank still has to stop.
    }
    adopt(cause);
    return this->cause();
  } catch (...) {
    return cause;
  }
}

bool Board::look(const StandingOf& standing_of) {
  if (!cause().empty()) return true;
  if (store_.has(key("cause"))) {
    adopt(store_.get(key("cause"), kCauseS));
    return true;
  }
  if (!store_.has(key("question"))) return false;
  const std::string label = store_.get(key("question"), kCauseS);
  if (answered_ == label) return false;
  answered_ = label;
  store_.set(key(concat("standing/", rank_)), to_text(standing_of(label)));
  return false;
}

void Board::report(const Stall& stall, const StandingOf& standing_of) {
  if (store_.add(key("questions"), 1) != 1) {  // another rank asks already; it raises the cause
    const auto deadline = in_seconds(kCauseS + 6 * period_s_);
    while (Clock::now() < deadline && !look(standing_of)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (cause().empty())
      raise(concat(stall.mine.call, " in group \"", stall.label, "\" did not end within ", timeout_s_, " s on rank ",
                   rank_));
    return;
  }
  store_.set(key("question"), stall.label);
  look(standing_of);
  const auto deadline = in_seconds(1 + 4 * period_s_);  // every watchdog has looked by then
  std::vector<std::optional<Standing>> standings;
  for (const int64_t rank : stall.ranks) {
    const std::string name = concat("standing/", rank);
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    standings.emplace_back();
    if (wait_for(name, std::max(0.0, left))) standings.back() = to_standing(store_.get(key(name), kCauseS));
  }
  raise(explain(stall, standings, timeout_s_));
}

std::string Board::left(const std::vector<int64_t>& ranks, const std::string& label, int64_t number) {
  if (number == 0 || !store_.has(key("closed"))) return "";
  for (const int64_t rank : ranks) {
    const std::string closed = key(concat("closed/", rank)), reached = key(concat("reached/", label, "/", rank));
    if (rank == rank_ || !store_.has(closed)) continue;
    // Who has made the call may leave while others still wait for their own device.
    if (store_.has(reached) && std::stoll(store_.get(reached, kCauseS)) >= number) continue;
    return concat("rank ", rank, " (pid ", store_.get(closed, kCauseS), ") closed its communicator");
  }
  return "";
}

Board::Counter Board::counter(const std::string& label) {
  const std::lock_guard lock(mutex_);
  return reached_[label] = std::make_shared<std::atomic<int64_t>>(0);
}

void Board::close() noexcept {
  try {
    for (const auto& [label, reached] : reached_)
      store_.set(key(concat("reached/", label, "/", rank_)), std::to_string(reached->load()));
    store_.set(key(concat("closed/", rank_)), std::to_string(getpid()));
    store_.set(key("closed"), "");
  } catch (...) {
    // Nobody is there to read it.
  }
}

}  // namespace drivetrain::nccl
