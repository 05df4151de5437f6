#include "flight/watch.h"

#include <unistd.h>

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "checks/call_seats.h"
#include "checks/plugin_call.h"
#include "flight/culprit.h"

namespace drivetrain {
namespace {

constexpr double kTickS = 0.25, kListenS = 1;
constexpr double kOutsideSteps = 12;  // times the patience: building, loading, saving and evaluating have no rhythm
constexpr size_t kStepsKept = 15;
constexpr double kPicturesS = 3;  // a rank that is alive listens once a second

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

std::string host_name() {
  char name[65] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

FlightWatch::FlightWatch(FlightWatchParts parts)
    : parts_(std::move(parts)),
      exchange_(parts_.store, parts_.record->rank(), parts_.record->world_size()),
      host_(host_name()),
      moved_(Clock::now()),
      looked_(moved_),
      listened_(moved_),
      step_at_(moved_),
      asked_(parts_.asked ? parts_.asked->load() : 0) {
  thread_ = std::thread([this, rank = work_rank()] {
    work_rank() = rank;
    watch();
  });
}

FlightWatch::~FlightWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void FlightWatch::watch() {
  if (parts_.record->world_size() > 1) exchange_.tell_host(host_);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::duration<double>(kTickS), [this] { return over_; })) {
    lock.unlock();
    const Clock::time_point now = Clock::now();
    look(now);
    const bool goes_on = over_store(now);
    looked_ = Clock::now();
    lock.lock();
    if (!goes_on) return;
  }
}

void FlightWatch::look(Clock::time_point now) {
  // A machine that gives this thread no time gives the others none: what it missed does not count.
  const double late = seconds_between(looked_, now) - kTickS;
  if (late > kTickS) moved_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(late));
  moved_ = std::min(moved_, now);
  look_at_seats(now);
  look_at_step(now);
  const uint64_t progress = parts_.record->progress() + main_calls_;
  if (progress == progress_) return;
  progress_ = progress;
  if (told_ && stalled_s_ > 0)
    parts_.log->info(concat("the run goes on, after ", formatted("%.0f s", seconds_between(moved_, now))));
  moved_ = now, told_ = false, stalled_s_ = 0;
}

void FlightWatch::look_at_seats(Clock::time_point now) {
  std::string longest;
  double most = -1;
  for (size_t i = 0; i < kCallSeats; ++i) {
    CallSeat& seat = call_seats()[i];
    const uint64_t calls = seat.calls;
    const bool main_thread = seat.thread == getpid();
    if (main_thread) main_calls_ = calls;
    if (seat.innermost == nullptr) {
      seats_.erase(i);
      continue;
    }
    Seat& seen = seats_[i];
    if (!seen.busy || seen.calls != calls) {
      seen = {calls, now, "", true, false, main_thread};
    } else if (seconds_between(seen.since, now) > 1) {  // of others nobody wants to know
      if (const auto call = see_call(seat)) seen.call = call->text, seen.slow_kind = call->moves_files;
    }
    const double s = seconds_between(seen.since, now);
    if (!seen.call.empty() && s > most) most = s, longest = seen.call;
  }
  parts_.record->seen_in(longest);
}

void FlightWatch::look_at_step(Clock::time_point now) {
  const int64_t step = parts_.record->place().step;
  if (step == step_) return;
  if (step_ > 0 && step > step_) {
    step_s_.push_back(seconds_between(step_at_, now) / static_cast<double>(step - step_));
    if (step_s_.size() > kStepsKept) step_s_.pop_front();
  }
  step_ = step, step_at_ = now;
}

double FlightWatch::patience() const {
  const bool files = std::any_of(seats_.begin(), seats_.end(), [](const auto& s) { return s.second.slow_kind; });
  const bool in_step = parts_.record->place().doing != FlightDoing::outside;
  if (files || !in_step || step_s_.empty()) return kOutsideSteps * parts_.stall_s;
  std::vector<double> sorted(step_s_.begin(), step_s_.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(sorted.size() / 2), sorted.end());
  return std::max(parts_.stall_s, 3 * sorted[sorted.size() / 2]);
}

RankPicture FlightWatch::picture() const {
  RankPicture p = picture_of(*parts_.record);
  const Clock::time_point now = Clock::now();
  p.host = host_, p.quiet_s = seconds_between(moved_, now);
  for (const auto& [index, seat] : seats_)
    if (!seat.call.empty()) p.stays.push_back({seat.call, seconds_between(seat.since, now), seat.main_thread});
  return p;
}

// False: the run ends, and nothing is to be watched any more.
bool FlightWatch::over_store(Clock::time_point now) {
  const double quiet = seconds_between(moved_, now);
  const bool stalled = parts_.stall_s > 0 && !told_ && quiet >= patience();
  const int requests = parts_.asked ? parts_.asked->load() : 0;
  const bool requested = requests != asked_;
  asked_ = requests;
  FlightExchange::Heard heard = FlightExchange::Heard::no;
  if (stalled || requested) {
    heard = exchange_.ask();
  } else if (parts_.record->world_size() > 1 && seconds_between(listened_, now) >= kListenS) {
    listened_ = now;
    heard = exchange_.asked();
    if (heard == FlightExchange::Heard::silent) return true;  // said once this rank does not go on either
  }
  if (heard == FlightExchange::Heard::over) return false;
  if (heard == FlightExchange::Heard::silent) return say_nobody_answers(), true;
  if (heard == FlightExchange::Heard::yes) {
    if (compare(stalled || requested, stalled) && stalled) stalled_s_ = quiet;
    told_ = told_ || quiet > parts_.stall_s / 2;  // of this stall: whoever stalls a moment later has been heard
  }
  return true;
}

bool FlightWatch::compare(bool asks, bool stalled) {
  exchange_.give(picture());
  // Who merely listened leaves it to those who asked.
  const bool mine = asks && exchange_.first_to_compare().value_or(false);
  if (mine) {
    const auto pictures = exchange_.pictures(kPicturesS);
    std::vector<std::string> hosts = exchange_.hosts();
    const FlightVerdict verdict = find_culprit(pictures, hosts);
    if (stalled)
      parts_.log->warning(concat("the run does not go on: ", verdict.text));
    else
      parts_.log->info(concat("asked where the run is: ", verdict.text));
    exchange_.tell_verdict(verdict.different_calls, verdict.text);
  }
  const auto different = exchange_.verdict_of_different_calls(mine ? 0.1 : kPicturesS + 1);
  exchange_.next_round();
  if (different && parts_.on_different_calls) parts_.on_different_calls(*different);
  return mine;
}

void FlightWatch::say_nobody_answers() {
  told_ = true;
  if (!parts_.first_of_host) return;
  const RankPicture own = picture();
  std::string waits;
  for (const RankPicture::Call& call : own.open)
    if (call.state == FlightState::waiting)
      waits = concat("; rank ", parts_.record->rank(), " waits in ", call_text(call.group, call.call));
  parts_.log->warning(concat(
      "the run does not go on: rank 0 does not answer: stopped, or its host is gone, overloaded or cut off", waits));
}

}  // namespace drivetrain
