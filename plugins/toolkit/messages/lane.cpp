#include "lane.h"

#include <drivetrain/toolkit/communicator/rank_list.h>

#include <algorithm>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/standstill.h>

namespace drivetrain::toolkit::messages {
// Before a rank that has a core of its own sleeps: some milliseconds, or less where what arrives wakes it.
constexpr int64_t kPolls = 20000, kPollsBeforeWaking = 1000;
constexpr int64_t kPollsOnSharedCore = 20;
// A socket holds a few MB, of which tcp reads 256 KB in a turn.
constexpr int kLastTurns = 64;

std::vector<int64_t> others_of(const std::vector<int64_t>& all, const std::vector<int64_t>& some) {
  std::vector<int64_t> others;
  for (const int64_t rank : all)
    if (std::find(some.begin(), some.end(), rank) == some.end()) others.push_back(rank);
  return others;
}

// ---- Lane ----

Lane::Lane(std::shared_ptr<Engine> engine, std::string plugin, Wire wire, std::vector<int64_t> ranks, std::string label)
    : engine_(std::move(engine)),
      plugin_(std::move(plugin)),
      wire_(std::move(wire)),
      ranks_(std::move(ranks)),
      label_(std::move(label)) {
  engine_->join(this);
}

Lane::~Lane() {
  engine_->leave(this);
  if (queue_.empty()) {
    const std::lock_guard lock(engine_->carrier().mutex());
    engine_->carrier().close(wire_.channel);
    return;
  }
  new std::deque<OperationPtr>(std::move(queue_));  // abandoned: the carrier may still use its memory
}

void Lane::enter(OperationPtr operation) {
  open_messages_ += operation->collective() ? 0 : 1;
  queue_.push_back(std::move(operation));
}

bool Lane::advance(Operation& op) {
  if (op.collective() && !op.compared) {
    if (!op.begun) op.packets.post(wire_, op.call, op.payload_for);
    op.begun = true;
    if (!op.packets.requests().done()) return false;
    op.packets.compare(wire_, op.call, op.counts.received, ranks_, label_);
    op.compared = true;
  }
  op.begun = true;
  return op.flow.advance();
}

bool Lane::may_begin(size_t index) const {
  const Operation& op = *queue_[index];
  for (size_t i = 0; i < index; ++i) {
    const Operation& earlier = *queue_[i];
    if (op.collective() && earlier.collective()) return false;
    if (!earlier.begun && op.shares_an_end(earlier)) return false;
    if (op.use.conflicts(earlier.use)) return false;
  }
  return true;
}

// Once over the queue. True if something ended, for which others may have waited.
bool Lane::pass() {
  bool ended = false;
  for (size_t i = 0; i < queue_.size();) {
    Operation& op = *queue_[i];
    const bool collective = op.collective();
    op.done = (op.begun || may_begin(i)) && advance(op);
    if (op.done) {
      ended = true;
      open_messages_ -= collective ? 0 : 1;
      op.tensors.clear(), op.messages.clear();
      queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (open_messages_ == 0) break;  // one collective at a time
    ++i;
  }
  return ended;
}

bool Lane::advance() {
  const auto moved = [this] {
    int64_t sum = 0;
    for (const OperationPtr& op : queue_)
      if (op->begun) sum += op->moved();
    return sum;
  };
  const int64_t before = moved();
  bool ended = false;
  while (pass()) ended = true;
  if (!ended && moved() == before) return false;
  moved_at_ = std::chrono::steady_clock::now();
  return true;
}

std::vector<int64_t> Lane::pending(Operation& op) {
  Requests* const requests = op.collective() && !op.compared ? &op.packets.requests() : op.flow.waiting();
  std::vector<int64_t> ranks;
  if (!op.begun || requests == nullptr) return ranks;
  for (const int64_t index : requests->pending()) ranks.push_back(ranks_[static_cast<size_t>(index)]);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<int64_t> Lane::pending() {
  std::vector<int64_t> ranks;
  for (const OperationPtr& op : queue_)
    for (const int64_t rank : pending(*op))
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  return ranks;
}

// Of what is waited for, or of the first call, which keeps it from beginning.
std::string Lane::why_late(const Operation& waited, double timeout_s) {
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [&](const OperationPtr& op) { return op.get() == &waited && op->begun; });
  Operation& op = found == queue_.end() ? *queue_.front() : **found;
  const std::vector<int64_t> late = pending(op);
  const std::string where = op.call.where(label_);
  if (op.collective() && op.begun && !op.compared && !late.empty())
    return concat(rank_list(late), " did not reach ", where, " within ", timeout_s, " s (",
                  rank_list(others_of(ranks_, late)), " did)");
  return concat(where, " did not end within ", timeout_s, " s on rank ", ranks_[static_cast<size_t>(wire_.me)],
                late.empty() ? "" : concat(", which waits for ", rank_list(late)),
                ". Look there for what it does instead, or raise timeout_s");
}

// ---- Engine ----

Engine::Engine(BoardPtr board, std::shared_ptr<Carrier> carrier, bool cores_to_spare)
    : board_(std::move(board)),
      carrier_(std::move(carrier)),
      mutex_(carrier_->mutex()),
      cores_to_spare_(cores_to_spare),
      polls_(!cores_to_spare     ? kPollsOnSharedCore
             : carrier_->wakes() ? kPollsBeforeWaking
                                 : kPolls) {}

void Engine::join(Lane* lane) {
  const std::lock_guard lock(mutex_);
  lanes_.push_back(lane);
}

void Engine::leave(Lane* lane) {
  const std::lock_guard lock(mutex_);
  std::erase(lanes_, lane);
}

void Engine::enter(Lane& lane, OperationPtr operation) {
  const std::string where = operation->call.where(lane.label());
  board_->throw_if_aborted(where);
  {
    const std::lock_guard lock(mutex_);
    lane.enter(std::move(operation));
    advance_all();
  }
  board_->throw_if_aborted(where);
}

bool Engine::advance() {
  const std::lock_guard lock(mutex_);
  return advance_all();
}

// What fails here fails for all ranks: they no longer stand at the same call.
bool Engine::advance_all() {
  if (board_->aborted()) return false;
  bool moved = false;
  try {
    carrier_->advance();
    for (Lane* lane : lanes_)
      if (lane->busy()) moved |= lane->advance();
    if (moved) carrier_->flush();
  } catch (const std::exception& e) {
    board_->raise(e.what());
  }
  return moved;
}

// Why a rank that `lane` waits for does not come any more. A rank that left may have sent what is still on its way, so
// it is named only if it is missed twice; a lost connection has no further way.
std::string Engine::gone(Lane& lane, int64_t rank, const std::vector<int64_t>& before) {
  const std::string left = board_->anyone_closed() ? board_->closed(rank) : "", lost = carrier_->lost(rank);
  if (left.empty()) return lost;
  const bool twice = std::find(before.begin(), before.end(), rank) != before.end();
  lane.gone_.push_back(rank);
  return twice || !lost.empty() ? left : "";
}

// What a rank sent before it left has come by now, but a carrier reads little of it at a time.
bool Engine::is_missed_in_the_end(Lane& lane, int64_t rank) {
  for (int turn = 0; turn < kLastTurns; ++turn) {
    advance_all();
    const std::vector<int64_t> still = lane.pending();
    if (std::find(still.begin(), still.end(), rank) == still.end()) return false;
  }
  return true;
}

void Engine::look() {
  looked_ = Clock::now();
  board_->look();
  try {
    for (Lane* lane : lanes_) {
      if (board_->aborted() || !lane->busy()) continue;
      const std::vector<int64_t> before = std::exchange(lane->gone_, {});
      for (const int64_t rank : lane->pending()) {
        const std::string why = gone(*lane, rank, before);
        if (!why.empty() && is_missed_in_the_end(*lane, rank)) board_->raise(why);
      }
    }
  } catch (const std::exception& e) {
    board_->raise(e.what());
  }
}

void Engine::check_late(Lane& lane, const Operation& waited, Clock::time_point since) {
  if (board_->aborted() || !lane.busy()) return;
  const double idle_s = std::chrono::duration<double>(Clock::now() - std::max(since, lane.moved_at_)).count();
  if (idle_s > board_->timeout_s()) board_->raise(lane.why_late(waited, board_->timeout_s()));
}

void Engine::wait(Lane& lane, const Operation& operation) {
  const auto period = std::chrono::duration<double>(board_->period_s());
  auto since = Clock::now();
  Standstill still;
  for (int64_t idle = 0;; ++idle) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto passed = still.seen(); passed.count() > 0) since = std::max(since, lane.moved_at_) + passed;
      if (advance_all()) idle = 0;
      // Also before a wait that is over: what was aborted meanwhile must not go on.
      if (idle % 64 == 0 || idle > polls_ || !cores_to_spare_)
        if (Clock::now() - looked_ > period) look(), check_late(lane, operation, since), still.here_again();
      board_->throw_if_aborted(operation.call.where(lane.label()));
      if (operation.done) return;
    }
    pause(idle);
  }
}

void Engine::pause(int64_t idle) {
  if (idle < polls_)
    std::this_thread::yield();
  else
    carrier_->pause(idle - polls_);
}

}  // namespace drivetrain::toolkit::messages
