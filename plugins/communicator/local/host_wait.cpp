// The part of Host that drives the groups and waits.
#include <algorithm>
#include <chrono>

#include <drivetrain/toolkit/seconds_since.h>
#include <drivetrain/toolkit/standstill.h>

#include "host.h"

namespace drivetrain::local {
namespace {

using WaitClock = std::chrono::steady_clock;

constexpr int kSliceMs = 50;
constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr int64_t kPausesPerLook = 1024;  // the clock costs as much as a few pauses

}  // namespace

void Host::add(Driven& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(&group);
}

void Host::remove(Driven& group) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(groups_, &group);
}

bool Host::advance(uint32_t sleepers) {
  bool moved = false;
  for (Driven* group : groups_) moved |= group->advance();
  if (moved) own_head().bell.ring(sleepers);  // another thread of this rank may wait for what just moved
  return moved;
}

// What all members have called ends well even if one of them aborts right afterwards.
bool Host::reached(Goal& goal, uint32_t sleepers, bool* moved) {
  const std::lock_guard lock(mutex_);
  const bool any = advance(sleepers);
  if (moved != nullptr) *moved = any;
  if (goal.reached()) return true;
  throw_if_aborted([&] { return goal.where(); });
  return false;
}

void Host::wait(Goal& goal) {
  if (reached(goal)) return;
  auto start = WaitClock::now();
  Bell& bell = own_head().bell;
  goal.show(true);
  auto looked = start;
  Standstill still;
  const auto look_when_due = [&] {
    start += still.seen();
    if (WaitClock::now() - looked < kLookEvery) return;
    looked = WaitClock::now();
    look(goal, seconds_since(start));
    still.here_again();
  };
  for (;;) {
    for (int64_t i = 1; i <= spin_; ++i) {
      if (reached(goal)) return goal.show(false);
      pause_core();
      if (i % kPausesPerLook == 0) look_when_due();
    }
    const uint32_t seen = bell.word.load();
    {
      const Sleeper sleeper(bell);
      bool moved = false;
      if (reached(goal, 1, &moved)) return goal.show(false);
      if (!moved) bell.sleep(seen, kSliceMs);
    }
    look_when_due();
  }
}

// Throws if the goal cannot be reached any more.
void Host::look(Goal& goal, double waited_s) {
  const std::lock_guard lock(mutex_);
  if (goal.reached()) return;
  const Obstacle found = goal.obstacle();
  for (const Peer& peer : found.absent) {
    const std::string cause = lost(peer);
    if (cause.empty()) continue;
    // It may have done what we wait for and left in order just before we looked.
    const auto same = [&](const Peer& other) { return other.rank == peer.rank; };
    const Obstacle still = goal.obstacle();
    if (std::any_of(still.absent.begin(), still.absent.end(), same)) give_up(goal.where(), cause);
  }
  if (waited_s < timeout_s() || found.absent.empty()) return;
  give_up(goal.where(), concat(found.what, " within ", timeout_s(), " s", found.note, stopped(found.absent)));
}

}  // namespace drivetrain::local
