// The attempts of a run, one after the other: on this host, or on several, whose lost ones are replaced.
#pragma once

#include <optional>
#include <string>

#include "launch/attempt_end.h"
#include "launch/fewer_ranks.h"
#include "launch/host_pool.h"
#include "launch/outlet.h"
#include "launch/request.h"
#include "launch/restart_count.h"
#include "launch/signal_watch.h"

namespace drivetrain::program {

class Restarting {
 public:
  explicit Restarting(const LaunchRequest& request);
  // Once. Returns the exit code of the contract.
  int run();

 private:
  int run_attempts();
  AttemptEnd attempt();
  std::string resume_word() const;
  std::string number_text() const;
  std::string where_from() const;

  // Other places for the next attempt, if it needs them. Returns the signal that ended it, or 0.
  int move(const AttemptEnd& end);
  int replace_lost(const AttemptEnd& end);
  int go_on_without(const std::vector<Host>& missing, const AttemptEnd& end);
  int replace_failing(int rank);
  // The numbers of ranks to go on with, from `most` on; over hosts without one of them.
  std::vector<int> choices(int most) const;
  std::vector<int> choices_without(const std::vector<std::string>& hosts) const;
  bool by_hosts() const { return request_.least_hosts > 0 && request_.hosts.over_ssh; }
  // Fewer ranks because of `reason`: 0 if there can be none.
  FewerRanks fewer(const std::vector<int>& choices, const std::string& reason);
  void tell_fewer(const std::string& reason, const FewerRanks& found);

  int left_in_the_middle(const RestartPoint& point) const;
  int no_host(const AttemptEnd& end) const;
  int no_restart(const AttemptEnd& end) const;
  int give_up() const;
  int code_of(int signal) const;
  void say(const std::string& text) const;

  const LaunchRequest& request_;
  SignalWatch signals_;
  mutable Outlets outlets_;  // all may speak
  int ranks_;
  HostPool pool_;
  bool may_shrink_;
  RestartCount count_;
  std::optional<RestartPoint> point_;  // once the run has begun
  int attempts_ = 0;
  bool lacks_a_host_ = false;  // for good
};

}  // namespace drivetrain::program
