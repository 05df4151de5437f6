#include "board.h"

#include <drivetrain/toolkit/communicator/rank_list.h>
#include <drivetrain/toolkit/standstill.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include <drivetrain/error.h>

namespace drivetrain::nccl {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void write_counts(std::ostream& out, const std::vector<int64_t>& counts) {
  out << " " << counts.size();
  for (const int64_t count : counts) out << " " << count;
}

std::vector<int64_t> read_counts(std::istream& in) {
  size_t size = 0;
  in >> size;
  std::vector<int64_t> counts;
  for (int64_t count = 0; counts.size() < size && in >> count;) counts.push_back(count);
  return counts;
}

std::string to_text(const CommStatus& s) {
  std::ostringstream out;
  out << s.reached << " " << s.open;
  out << " " << s.replayed << " " << (s.in_replay ? 1 : 0);
  write_counts(out, s.counts.sent), write_counts(out, s.counts.received);
  out << " " << s.call;
  return out.str();
}

CommStatus to_status(const std::string& text) {
  std::istringstream in(text);
  CommStatus s;
  in >> s.reached >> s.open >> s.replayed >> s.in_replay;
  s.counts.sent = read_counts(in), s.counts.received = read_counts(in);
  in.get();  // the blank before the text
  std::getline(in, s.call);
  return s;
}

// The first pair of ranks of which one sends another number of elements than the other expects; empty: all agree.
std::string counts_that_differ(const Stall& stall, const std::vector<std::optional<CommStatus>>& statuses) {
  const size_t size = stall.ranks.size();
  for (const auto& standing : statuses)
    if (standing->counts.sent.size() != size || standing->counts.received.size() != size) return "";
  for (size_t from = 0; from < size; ++from)
    for (size_t to = 0; to < size; ++to) {
      const int64_t sent = statuses[from]->counts.sent[to], expected = statuses[to]->counts.received[from];
      if (sent != expected)
        return concat("rank ", stall.ranks[from], " sends ", sent, " elements to rank ", stall.ranks[to],
                      ", which expects ", expected);
    }
  return "";
}

// Whether a rank has not come to the call that `mine` waits in. Of messages, which have no numbers, that is not known
// unless they are in a replay, whose calls are counted.
bool is_absent(const CommStatus& mine, const std::optional<CommStatus>& other) {
  if (!other) return true;
  if (mine.in_replay) return other->replayed < mine.replayed && mine.open > 0;
  return mine.open > 0 && other->reached < mine.open;
}

std::string place(const std::string& label) { return concat(" of group \"", label, "\""); }

}  // namespace

std::string explain(const Stall& stall, const std::vector<std::optional<CommStatus>>& statuses, double timeout_s) {
  const int64_t number = stall.mine.open;
  std::vector<int64_t> absent, there;
  for (size_t i = 0; i < stall.ranks.size(); ++i)
    (is_absent(stall.mine, statuses[i]) ? absent : there).push_back(stall.ranks[i]);
  const std::string call =
      (number > 0 ? concat(stall.mine.call.substr(0, stall.mine.call.find(' ')), " #", number, place(stall.label))
                  : concat(stall.mine.call, " in group \"", stall.label, "\"")) +
      (stall.mine.in_replay ? " in the replay of a recorded step" : "");
  if (!absent.empty() && number > 0)
    return concat(toolkit::rank_list(absent), " did not reach ", call, " within ", timeout_s, " s (",
                  toolkit::rank_list(there), " did)");
  if (!absent.empty())
    return concat(call, " did not end within ", timeout_s, " s, and ", toolkit::rank_list(absent), " did not answer");
  for (size_t i = 1; number > 0 && i < statuses.size(); ++i) {
    const CommStatus &a = *statuses[0], &b = *statuses[i];
    if (a.open == number && b.open == number && a.in_replay == b.in_replay && a.call != b.call)
      return concat("ranks disagree about call #", number, place(stall.label), ": rank ", stall.ranks[0], " called ",
                    a.call, ", rank ", stall.ranks[i], " called ", b.call);
  }
  if (const std::string differ = number > 0 ? counts_that_differ(stall, statuses) : ""; !differ.empty())
    return concat("ranks disagree about call #", number, place(stall.label), ": ", differ);
  std::string others;
  for (size_t i = 0; i < statuses.size(); ++i)
    others += concat(i == 0 ? "" : "; ", "rank ", stall.ranks[i], " is in ",
                     statuses[i]->call.empty() ? "no call of this group" : statuses[i]->call);
  return concat(call, " did not end within ", timeout_s, " s (", others,
                "). If the calls fit, look at the links with NCCL_DEBUG=INFO, or raise timeout_s");
}

// 1000 questions per second at most, whatever the number of ranks.
Board::Board(Store& store, int64_t rank, int64_t world_size, double timeout_s)
    : AbortBoard("communicator/nccl", store, rank, timeout_s, std::max(0.1, 0.002 * static_cast<double>(world_size))) {}

bool Board::wait_for(const std::string& name, double seconds) {
  const auto deadline = in_seconds(seconds);
  for (auto pause = std::chrono::microseconds(200); !store().has(key(name));
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
  if (rank() == ranks.front()) store().set(key("id/" + label), id());
  arrive(label);
  auto deadline = in_seconds(timeout_s());
  for (std::vector<int64_t> missing = absent(ranks, label); !missing.empty(); missing = absent(missing, label)) {
    throw_if_aborted(where);
    if (const std::string gone = left({missing.front()}, label, {.open = 1}); !gone.empty()) raise(gone);
    if (Clock::now() > deadline)
      if (const std::vector<int64_t> never = absent(ranks, label); !never.empty()) raise(late(never, ranks, where));
    deadline += standstill_in([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  }
  return store().get(key("id/" + label), timeout_s());
}

bool Board::look(const StatusOf& status_of) {
  if (take_over()) return true;
  if (!store().has(key("question"))) return false;
  const std::string label = store().get(key("question"), kValueS);
  if (answered_ == label) return false;
  answered_ = label;
  store().set(key(concat("standing/", rank())), to_text(status_of(label)));
  return false;
}

void Board::report(const Stall& stall, const StatusOf& status_of) {
  if (store().add(key("questions"), 1) != 1) {  // another rank asks already; it raises the cause
    const auto deadline = in_seconds(kValueS + 6 * period_s());
    while (Clock::now() < deadline && !look(status_of)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (cause().empty())
      raise(concat(stall.mine.call, " in group \"", stall.label, "\" did not end within ", timeout_s(), " s on rank ",
                   rank()));
    return;
  }
  store().set(key("question"), stall.label);
  look(status_of);
  const auto deadline = in_seconds(1 + 4 * period_s());  // every watchdog has looked by then
  std::vector<std::optional<CommStatus>> statuses;
  for (const int64_t rank : stall.ranks) {
    const std::string name = concat("standing/", rank);
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    statuses.emplace_back();
    if (wait_for(name, std::max(0.0, left))) statuses.back() = to_status(store().get(key(name), kValueS));
  }
  raise(explain(stall, statuses, timeout_s()));
}

std::string Board::left(const std::vector<int64_t>& ranks, const std::string& label, const CommStatus& mine) {
  if (mine.open == 0 || !anyone_closed()) return "";
  const int64_t wanted = mine.in_replay ? mine.replayed : mine.open;
  for (const int64_t rank : ranks) {
    const std::string gone = closed(rank);
    const std::string reached = key(concat(mine.in_replay ? "replayed/" : "reached/", label, "/", rank));
    // Who has made the call may leave while others still wait for their own device.
    const bool made = !gone.empty() && store().has(reached) && std::stoll(store().get(reached, kValueS)) >= wanted;
    if (!gone.empty() && !made) return gone;
  }
  return "";
}

void Board::raise_own(const std::string& cause, std::exception_ptr failure) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!own_failure_ && !aborted()) own_failure_ = std::move(failure);
  }
  raise(cause);
}

void Board::throw_if_ended(const std::string& where) const {
  if (!aborted()) return;
  {
    const std::lock_guard lock(mutex_);
    if (own_failure_) std::rethrow_exception(own_failure_);
  }
  throw_if_aborted(where);
}

// At the end of a run the store may leave with rank 0, which tells nothing.
std::string Board::lost() noexcept {
  try {
    take_over();
  } catch (const std::exception&) {
  }
  return aborted() ? cause() : "";
}

Board::Counters Board::counters(const std::string& label) {
  const std::lock_guard lock(mutex_);
  return counters_[label] = Counters();
}

void Board::close() noexcept {
  try {
    for (const auto& [label, counters] : counters_) {
      store().set(key(concat("reached/", label, "/", rank())), std::to_string(counters.reached->load()));
      store().set(key(concat("replayed/", label, "/", rank())), std::to_string(counters.replayed->load()));
    }
  } catch (...) {
    // Nobody is there to read it.
  }
  AbortBoard::close();
}

}  // namespace drivetrain::nccl
