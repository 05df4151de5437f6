#include "launch/late_ranks.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "launch/outcome.h"

namespace drivetrain::program {

void LateRanks::note_stop(size_t rank, double now) {
  RankState& state = ranks_[rank];
  siginfo_t info = {};
  const int what = WSTOPPED | WCONTINUED | WNOHANG;
  if (waitid(P_PID, static_cast<id_t>(state.pid), &info, what) != 0 || info.si_pid == 0) return;
  state.stop_signal = info.si_code == CLD_STOPPED ? info.si_status : 0;
  state.alone_since = now;
  state.stillness = {}, state.files = {};
  const std::string name = state.name();
  if (state.stop_signal == 0) return launcher_.say(name + " goes on");
  launcher_.say(name + " is " + describe_stop(state.stop_signal) +
                (has_several_ ? "; the others wait for it, up to their time-outs" : ""));
}

void LateRanks::told_to_end(double now) {
  for (RankState& rank : ranks_) rank.alone_since = now;
  told_ = true, since_ = now;
}

void LateRanks::output_waits(double now) {
  for (RankState& rank : ranks_) rank.stillness = {}, rank.files = {};
  since_ = now;
}

void LateRanks::watch(double now, bool done, bool failed) {
  if (done && !done_) done_ = true, since_ = now;
  const bool some_go_on = std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.goes_on(); });
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankState& rank = ranks_[i];
    if (!rank.running()) continue;
    if (now >= rank.kill_at) kill(rank.pid, SIGKILL);
    if (!rank.fault.empty()) continue;
    if (rank.stop_signal != 0) {
      if (some_go_on && !told_) rank.alone_since = now;  // it cannot obey a signal to end
      if (now - rank.alone_since >= may_take_.stopped_s) end_stopped(i);
    } else if (!failed) {
      watch_work(i, now);
    }
  }
}

// While none is done, all may be in one long step whose end they wait for before they obey the signal.
void LateRanks::watch_work(size_t rank, double now) {
  RankState& state = ranks_[rank];
  const Activity activity = activity_of(state.pid);
  if (done_ && state.stillness.seconds(activity, now, may_take_.idle_s) >= may_take_.idle_s)
    return end(rank, now,
               "did nothing for " + seconds_text(may_take_.idle_s) + " while another rank was done (it is " +
                   activity.text() + ")");
  const double limit = done_ && told_ ? may_take_.told_s : may_take_.working_s;
  if (std::min(state.files.quiet_seconds(activity, now), now - since_) < limit) return;
  end(rank, now,
      "did not end within " + seconds_text(limit) + " after " +
          (told_ ? "the signal to end" : "another rank was done") + " and read and wrote no files meanwhile (it " +
          state.files.text(activity) + ")");
}

// SIGTERM would not reach it.
void LateRanks::end_stopped(size_t rank) {
  RankState& state = ranks_[rank];
  state.fault = describe_stop(state.stop_signal) + " and not continued";
  launcher_.say(state.name() + " is " + state.fault + ", and is ended");
  kill(state.pid, SIGKILL);
}

void LateRanks::end(size_t rank, double now, const std::string& fault) {
  RankState& state = ranks_[rank];
  state.fault = fault;
  launcher_.say(state.name() + " " + fault + ", and is ended");
  state.kill_at = now + may_take_.sigterm_s;
  kill(state.pid, SIGTERM);
}

}  // namespace drivetrain::program
