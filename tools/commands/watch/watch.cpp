#include "watch/watch.h"

#include <unistd.h>

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/host.h>
#include <drivetrain/toolkit/text.h>

#include "plugin_calls/call_seats.h"
#include "plugin_calls/plugin_call.h"
#include "process/own_threads.h"
#include "watch/culprit.h"
#include "watch/step_words.h"

namespace drivetrain {
namespace {

// A rank that is quiet itself expects to be asked.
constexpr double kTickS = 0.25, kListenS = 1, kQuietS = 1;
// Ahead of the time when the line is due: when the pictures are asked for, and when the line is said.
constexpr double kAskAheadS = 2.5, kSayAheadS = 1;
constexpr double kOutsideSteps = 12;  // times the patience: building, loading, saving and evaluating have no rhythm
constexpr size_t kStepsKept = 15;
constexpr double kPicturesS = 1.5, kAskedPicturesS = 3;  // at least; a rank that is alive listens once a second
constexpr double kVerdictS = kAskedPicturesS + 1;
// A thread here that is late tells that others may be late, too.
constexpr double kForget = 0.95, kSlack = 2, kMostLateS = 1;
constexpr double kUnheardS = 1.5;  // for which a store has to be silent, over several questions

double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
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
    const OwnThread own;
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
  late_s_ = std::max(std::min(late, kMostLateS), kForget * late_s_);
  if (late > kTickS) moved_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(late));
  moved_ = std::min(moved_, now);
  look_at_seats(now);
  look_at_step(now);
  const uint64_t progress = parts_.record->progress() + main_calls_;
  if (progress == progress_) return;
  progress_ = progress;
  if (told_ && stalled_s_ > 0)
    note(concat("the run goes on, after ", formatted("%.0f s", seconds_between(moved_, now))));
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
  // All steps so far may lie between two looks: then they took no longer than the time since this thread began.
  const int64_t made = step_ > 0 ? step - step_ : parts_.record->steps_made();
  if (made > 0 && step > step_) {
    step_s_.push_back(seconds_between(step_at_, now) / static_cast<double>(made));
    if (step_s_.size() > kStepsKept) step_s_.pop_front();
  }
  step_ = step, step_at_ = now;
}

double FlightWatch::patience() const {
  const bool files = std::any_of(seats_.begin(), seats_.end(), [](const auto& s) { return s.second.slow_kind; });
  const bool in_step = is_in_step(parts_.record->place().doing);
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

// Seconds of quiet, and so much more as this machine is late with everything.
double FlightWatch::say_after() const {
  const double due = patience();
  return due - std::min(kSayAheadS, due / 5) + kSlack * std::max(late_s_ - kTickS, 0.0);
}

bool FlightWatch::holds_still() const { return parts_.record->progress() + main_calls_ == progress_; }

// False: the run ends, and nothing is to be watched any more.
bool FlightWatch::over_store(Clock::time_point now) {
  using Heard = FlightExchange::Heard;
  const double quiet = seconds_between(moved_, now), due = patience();
  const bool stalled = parts_.stall_s > 0 && !told_ && quiet >= due - std::min(kAskAheadS, due / 2);
  const int requests = parts_.asked ? parts_.asked->load() : 0;
  const bool requested = requests != asked_;
  asked_ = requests;
  Heard heard = Heard::no;
  if (requested || (stalled && !unheard_)) {
    heard = exchange_.ask();
  } else if (parts_.record->world_size() > 1 && seconds_between(listened_, now) >= (quiet < kQuietS ? kListenS : 0)) {
    listened_ = now;
    heard = exchange_.asked();
  }
  if (heard == Heard::over) return false;
  if (heard == Heard::silent) {
    if (!unheard_) unheard_ = now;
    const Clock::time_point then = Clock::now();
    const bool is_due =
        stalled && seconds_between(moved_, then) >= say_after() && seconds_between(*unheard_, then) >= kUnheardS;
    if (requested || is_due) say_nobody_answers();
    return true;
  }
  unheard_.reset();
  if (heard == Heard::yes && compare(stalled || requested, stalled) && stalled) stalled_s_ = quiet;
  return true;
}

// Of ranks other than 0 only warnings are shown, and whichever rank was first has this to say.
void FlightWatch::note(const std::string& text) {
  parts_.log->write(parts_.record->rank() == 0 ? LogLevel::info : LogLevel::warning, text);
}

bool FlightWatch::compare(bool asks, bool stalled) {
  using Verdict = FlightExchange::Verdict;
  const double quiet = seconds_between(moved_, Clock::now());
  exchange_.give(picture());
  // Who merely listened leaves it to those who asked.
  const bool mine = asks && exchange_.first_to_compare().value_or(false);
  Verdict verdict;
  if (mine) {
    const Clock::time_point say_at =
        moved_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(say_after()));
    const auto pictures =
        exchange_.pictures(stalled ? std::max(kPicturesS, seconds_between(Clock::now(), say_at)) : kAskedPicturesS);
    const std::vector<std::string> hosts = exchange_.hosts();
    const FlightVerdict found = find_culprit(pictures, hosts);
    const auto goes_on = stalled ? std::nullopt : text_of_a_run_that_goes_on(pictures);
    if (stalled) std::this_thread::sleep_until(say_at);
    look_at_seats(Clock::now());
    verdict = {found.different_calls ? Verdict::different_calls : Verdict::said, found.text};
    if (stalled && !holds_still())
      verdict = {Verdict::withdrawn};
    else if (stalled)
      parts_.log->warning(concat("the run does not go on: ", found.text));
    else
      note(concat("asked where the run is: ", goes_on.value_or(found.text)));
    if (goes_on) verdict = {Verdict::withdrawn};
    exchange_.tell(verdict);
  } else {
    verdict = exchange_.verdict(kVerdictS);
  }
  exchange_.next_round();
  if (verdict.kind == Verdict::said || verdict.kind == Verdict::different_calls) parts_.record->stall_told();
  // Of this stall: whoever stalls a moment later has been heard.
  told_ = told_ || (verdict.kind != Verdict::withdrawn && quiet > parts_.stall_s / 2);
  if (verdict.kind == Verdict::different_calls && parts_.on_different_calls) parts_.on_different_calls(verdict.text);
  return mine && verdict.kind != Verdict::withdrawn;
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
