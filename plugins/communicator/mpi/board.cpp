#include "board.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <drivetrain/error.h>

#include "process.h"

namespace drivetrain::mpi {
namespace {

using Clock = std::chrono::steady_clock;

const char* const kGo = "go";

}  // namespace

// 1000 questions per second at most, whatever the number of ranks.
Board::Board(Store& store, int64_t rank, int64_t world_size, double timeout_s)
    : AbortBoard("communicator/mpi", store, rank, timeout_s, std::max(0.1, 0.001 * static_cast<double>(world_size))) {}

void Board::on_abort(bool ours) noexcept { note_failure(ours); }

// Making an MPI group cannot be interrupted, so all its ranks go there or none does: the last to arrive and whoever
// gives up before ask for the one word that decides.
void Board::meet(const std::vector<int64_t>& ranks, const std::string& label, const std::function<bool()>& meanwhile) {
  const std::string where = concat("make_group of group \"", label, "\""), verdict = key("verdict/" + label);
  throw_if_aborted(where);
  arrive(label);
  if (store().add(key("arrived/" + label), 1) == static_cast<int64_t>(ranks.size())) decide(label, true);
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s());
  constexpr std::chrono::microseconds kShort(200), kLong(20000);
  auto pause = kShort;
  while (!aborted() && !store().has(verdict)) {
    if (meanwhile()) pause = kShort;
    look();
    const std::vector<int64_t> missing = absent(ranks, label);
    const std::string gone = missing.empty() ? "" : closed(missing.front());
    if (!gone.empty()) raise(gone);
    if (!missing.empty() && Clock::now() > deadline) raise(late(missing, ranks, where));
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLong);
  }
  if (aborted()) decide(label, false);
  if (store().get(verdict, kValueS) == kGo) return;
  look();
  throw_if_aborted(where);
  throw fail(ErrorCode::communication, "communicator/mpi, ", where, ": another rank gave up");
}

void Board::decide(const std::string& label, bool go) {
  if (store().add(key("decided/" + label), 1) == 1) store().set(key("verdict/" + label), go ? kGo : "stop");
}

void Board::look() noexcept {
  try {
    take_over();
  } catch (const std::exception& e) {
    adopt(e.what());
  }
}

}  // namespace drivetrain::mpi
