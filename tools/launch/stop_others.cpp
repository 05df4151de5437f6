#include "launch/stop_others.h"

#include <algorithm>
#include <csignal>

#include "launch/question.h"

namespace drivetrain::program {

void signal_ranks(const std::vector<RankState>& ranks, int number) {
  for (const RankState& rank : ranks)
    if (rank.running()) kill(rank.pid, number);
}

void StopOthers::begin(double now) {
  if (!has_begun()) deadline_ = now + may_take_.peers_s;
}

void StopOthers::act(double now, int signal) {
  if (now < deadline_) return;
  if (sent_sigterm_) {
    signal_ranks(ranks_, SIGKILL);
    deadline_ = now + 3600;  // they are as good as gone
    return;
  }
  send_sigterm(signal);
  deadline_ = now + may_take_.sigterm_s;
}

void StopOthers::send_sigterm(int signal) {
  sent_sigterm_ = true;
  launcher_.send({.type = Message::stops});  // the cause is not kept back for as long as that takes
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].running() && ranks_[i].fault.empty()) end(i, signal);
}

void StopOthers::end(size_t index, int signal) {
  RankState& state = ranks_[index];
  const int rank = state.number;
  if (state.stop_signal != 0) return late_.end_stopped(index);
  // Where all others lost a peer, it is this one: it hangs outside of what they wait for.
  if (state.said_error())
    state.fault = kSaidError;
  else if (all_lost_a_peer(signal))
    state.fault = "did not go on while the others waited for it", kill(state.pid, ask_signal());
  launcher_.say("rank " + std::to_string(rank) + " " +
                (state.fault.empty() ? "did not notice the failure of another rank" : state.fault) + ", and is ended");
  kill(state.pid, SIGTERM);
}

bool StopOthers::all_lost_a_peer(int signal) const {
  return !ends_.empty() && signal == 0 &&
         std::all_of(ends_.begin(), ends_.end(), [](const RankEnd& end) { return end.code == 5; });
}

}  // namespace drivetrain::program
