#include "lane.h"

#include <algorithm>
#include <thread>

#include <drivetrain/error.h>

namespace drivetrain::mpi {
namespace {

constexpr int64_t kPolls = 20000;  // before a rank that has a core of its own sleeps: some milliseconds
constexpr int64_t kPollsOnSharedCore = 20;

std::vector<int64_t> others_of(const std::vector<int64_t>& all, const std::vector<int64_t>& some) {
  std::vector<int64_t> others;
  for (const int64_t rank : all)
    if (std::find(some.begin(), some.end(), rank) == some.end()) others.push_back(rank);
  return others;
}

}  // namespace

// ---- Lane ----

Lane::Lane(std::shared_ptr<Engine> engine, Wire wire, std::vector<int64_t> ranks, std::string label)
    : engine_(std::move(engine)), wire_(std::move(wire)), ranks_(std::move(ranks)), label_(std::move(label)) {
  engine_->join(this);
}

// The MPI communicator is kept: freeing it is a collective call, and ranks drop groups when they like.
Lane::~Lane() {
  engine_->leave(this);
  if (!queue_.empty()) new std::deque<OperationPtr>(std::move(queue_));  // abandoned: MPI may still use its memory
}

bool Lane::advance_head() {
  Operation& op = *queue_.front();
  if (op.messages.empty() && !op.compared) {
    if (!op.begun) op.packets.post(wire_, op.call, op.call.bytes(), op.data_for);
    op.begun = true;
    if (!op.packets.requests().done()) return false;
    op.packets.compare(wire_, op.call, ranks_, label_);
    op.compared = true;
  }
  return op.flow.advance();
}

bool Lane::advance() {
  bool moved = false;
  while (!queue_.empty()) {
    Operation& op = *queue_.front();
    const int64_t before = op.moved();
    op.done = advance_head();
    moved |= op.done || op.moved() != before;
    if (!op.done) break;
    op.tensors.clear(), op.messages.clear();
    queue_.pop_front();
  }
  if (moved) moved_at_ = std::chrono::steady_clock::now();
  return moved;
}

std::vector<int64_t> Lane::pending() {
  Operation& op = *queue_.front();
  Requests* const requests = op.begun && !op.compared ? &op.packets.requests() : op.flow.waiting();
  std::vector<int64_t> ranks;
  if (requests == nullptr) return ranks;
  for (const int64_t index : requests->pending()) ranks.push_back(ranks_[static_cast<size_t>(index)]);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string Lane::why_late(double timeout_s) {
  const std::vector<int64_t> late = pending();
  const Operation& op = *queue_.front();
  const std::string where = op.call.where(label_);
  const bool collective = op.begun;
  if (collective && !op.compared && !late.empty())
    return concat(rank_list(late), " did not reach ", where, " within ", timeout_s, " s (",
                  rank_list(others_of(ranks_, late)), " did)");
  return concat(where, " did not end within ", timeout_s, " s on rank ", ranks_[static_cast<size_t>(wire_.me)],
                late.empty() ? "" : concat(", which waits for ", rank_list(late)),
                ". Look there for what it does instead, or raise timeout_s");
}

// ---- Engine ----

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
    lane.queue_.push_back(std::move(operation));
    advance_all();
  }
  board_->throw_if_aborted(where);
}

// What fails here fails for all ranks: they no longer stand at the same call.
bool Engine::advance_all() {
  if (board_->aborted()) return false;
  bool moved = false;
  try {
    for (Lane* lane : lanes_)
      if (lane->busy()) moved |= lane->advance();
  } catch (const std::exception& e) {
    board_->raise(e.what());
  }
  return moved;
}

// A rank that left may have sent what is still on its way, so it is named only if it is missed twice.
void Engine::look() {
  looked_ = Clock::now();
  board_->look();
  try {
    if (board_->aborted() || !board_->anyone_left()) return;
    for (Lane* lane : lanes_) {
      if (board_->aborted() || !lane->busy()) continue;
      const std::vector<int64_t> before = std::exchange(lane->gone_, {});
      for (const int64_t rank : lane->pending()) {
        const std::string left = board_->left(rank);
        if (left.empty()) continue;
        if (std::find(before.begin(), before.end(), rank) != before.end()) board_->raise(left);
        lane->gone_.push_back(rank);
      }
    }
  } catch (const std::exception& e) {
    board_->raise(e.what());
  }
}

void Engine::check_late(Lane& lane, Clock::time_point since) {
  if (board_->aborted() || !lane.busy()) return;
  const double waited = std::chrono::duration<double>(Clock::now() - std::max(since, lane.moved_at_)).count();
  if (waited > board_->timeout_s()) board_->raise(lane.why_late(board_->timeout_s()));
}

void Engine::wait(Lane& lane, const Operation& operation) {
  const auto period = std::chrono::duration<double>(board_->period_s());
  const auto since = Clock::now();
  for (int64_t idle = 0;; ++idle) {
    {
      const std::lock_guard lock(mutex_);
      if (advance_all()) idle = 0;
      // Also before a wait that is over: what was aborted meanwhile must not go on.
      if (idle % 64 == 0 || idle > kPolls || !cores_to_spare_)
        if (Clock::now() - looked_ > period) look(), check_late(lane, since);
      board_->throw_if_aborted(operation.call.where(lane.label()));
      if (operation.done) return;
    }
    pause(idle);
  }
}

void Engine::pause(int64_t idle) {
  const int64_t polls = cores_to_spare_ ? kPolls : kPollsOnSharedCore;
  if (idle < polls)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(500, 20 + (idle - polls))));
}

}  // namespace drivetrain::mpi
