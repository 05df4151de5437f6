#include "launch/restarting.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include <drivetrain/toolkit/text.h>

#include "base/rank_variables.h"
#include "launch/hosts_run.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

// The agent of a host that was lost ends its ranks by itself, some seconds after the launcher has noticed.
constexpr double kLostHostEndsInS = 6;

std::string ranks_text(int count) { return std::to_string(count) + (count == 1 ? " rank" : " ranks"); }

// Where ranks may be: on this host alone, where no agents on others start them. It may have more slots than ranks.
std::vector<Host> hosts_with_ranks(const LaunchRequest& request) {
  const HostsRequest& hosts = request.hosts;
  if (hosts.over_ssh) return hosts.hosts;
  if (!hosts.hosts.empty()) return {hosts.hosts[static_cast<size_t>(hosts.node_rank)]};
  Host here{"localhost", std::vector<int>(static_cast<size_t>(std::max(request.ranks, request.most_ranks)))};
  std::iota(here.slots.begin(), here.slots.end(), 0);
  return {here};
}

}  // namespace

Restarting::Restarting(const LaunchRequest& request)
    : request_(request),
      outlets_(request.out, request.err),
      ranks_(request.ranks),
      pool_(hosts_with_ranks(request), request.hosts.spares),
      may_shrink_(request.least_ranks > 0 || (request.least_hosts > 0 && request.hosts.over_ssh)),
      count_(request.max_restarts, request.first_pause_s, request.longest_pause_s) {
  unsetenv(RankStart::kBegunFolder);  // of another launch
}

int Restarting::run() {
  const int code = run_attempts();
  outlets_.finish(signals_);
  return code;
}

int Restarting::run_attempts() {
  for (;;) {
    const AttemptEnd end = attempt();
    if (end.code == 0 && end.restart_point && !end.run_is_done) return left_in_the_middle(*end.restart_point);
    if (end.signal != 0 && end.not_started && attempts_ > 1) return code_of(end.signal);
    if (!end.failure || end.signal != 0 || request_.max_restarts == 0) return end.code;
    // It is told. A host that was lost before the first rank started is replaced like one that is lost later.
    if (end.not_started && attempts_ == 1 && !(may_pass(*end.failure, false) && pool_.has_spares())) return end.code;
    if (end.restart_point) point_ = end.restart_point;
    if (!end.not_started && !may_pass(*end.failure, point_.has_value())) return no_restart(end);
    if (end.run_is_done) {
      say("the run was done before that: there is nothing to start again");
      return 0;
    }
    count_.failed({end.cause, end.code, pool_.place_of_rank(end.failure->rank)}, end.has_new_checkpoint);
    if (const int signal = move(end)) return code_of(signal);
    if (lacks_a_host_) return no_host(end);
    if (count_.used_up()) return give_up();
    const double pause_s = std::max(count_.pause_s(), end.lost_hosts.empty() || end.not_started ? 0 : kLostHostEndsInS);
    say("restart " + number_text() + "in " + seconds_text(pause_s) + ", " + where_from());
    if (const int signal = outlets_.pause(pause_s, signals_)) return code_of(signal);
  }
}

// A library may have left the processes without a word, and a run that did not finish must not pass for one that did.
int Restarting::left_in_the_middle(const RestartPoint& point) const {
  say("error: every rank ended with exit 0 and the run in " + point.output_dir +
      " is not done: rank 0 has not said that all is written\n   a plugin, or a library that it brings, has ended the "
      "process, by _exit or a call of the system's; it must throw instead");
  return 3;
}

AttemptEnd Restarting::attempt() {
  ++attempts_;
  outlets_.begin();
  const HostsRequest& hosts = request_.hosts;
  HostsToRun wanted{.hosts = pool_.hosts_of_ranks(ranks_), .is_here = !hosts.over_ssh, .world = ranks_};
  // Where each host's launch is started by somebody else.
  if (wanted.is_here && !hosts.hosts.empty())
    wanted.first = ranks_of({hosts.hosts.begin(), hosts.hosts.begin() + hosts.node_rank});
  wanted.only_rank_0 = request_.only_rank_0;
  wanted.command = request_.command;
  if (const std::string resume = resume_word(); !resume.empty())
    wanted.command.insert(wanted.command.end(), {"--resume", resume});
  wanted.environment = hosts.environment;
  if (point_ && point_->tag.empty()) wanted.begun_folder = point_->output_dir;
  if (point_) wanted.run_folder = point_->output_dir;
  // --master_addr is an address of the host that had rank 0 at the start.
  if (wanted.is_here || wanted.hosts.front().name == hosts.hosts.front().name) wanted.master_addr = hosts.master_addr;
  wanted.master_port = hosts.master_port;
  wanted.setup = request_.setup;
  wanted.is_again = attempts_ > 1;
  return HostsRun(request_, wanted, signals_, outlets_).run();
}

// Until the run has begun, as the user said. One that began with an old tag has newer ones of another past beside it.
std::string Restarting::resume_word() const {
  const bool by_tag = !request_.resume.empty() && request_.resume != "auto" && request_.resume != "never";
  if (!point_ || (by_tag && point_->tag.empty())) return request_.resume;
  return by_tag ? point_->tag : "auto";
}

std::string Restarting::number_text() const {
  if (count_.number() == 0) return "";
  return std::to_string(count_.number()) + " of " + std::to_string(request_.max_restarts) + " ";
}

std::string Restarting::where_from() const {
  if (!point_) return "as the first time, for the run had not begun";
  if (point_->tag.empty()) return "from the beginning, for there is no checkpoint yet";
  return "from checkpoint " + point_->tag;
}

int Restarting::move(const AttemptEnd& end) {
  if (!end.lost_hosts.empty()) return replace_lost(end);
  if (!count_.same_slot_again()) return 0;
  return replace_failing(end.failure->rank);
}

// A host that was lost may come back: it stands by, after all others. One that cannot take part does not.
int Restarting::replace_lost(const AttemptEnd& end) {
  const auto is_lost = [&](const Host& host) {
    return std::find(end.lost_hosts.begin(), end.lost_hosts.end(), host.name) != end.lost_hosts.end();
  };
  std::vector<Host> lost, missing;
  std::copy_if(pool_.hosts().begin(), pool_.hosts().end(), std::back_inserter(lost), is_lost);
  for (const Host& host : lost) {
    const std::string other = pool_.replace(host.name);
    if (other.empty()) {
      missing.push_back(host);
      continue;
    }
    say("host " + other + " takes the place of " + host.name);
    if (end.not_started) count_.begin_anew();  // the run itself has not failed
  }
  if (const int signal = missing.empty() ? 0 : go_on_without(missing, end)) return signal;
  for (const Host& host : lost)
    if (!end.not_started && !pool_.has(host.name)) pool_.stands_by(host);
  return 0;
}

int Restarting::go_on_without(const std::vector<Host>& missing, const AttemptEnd& end) {
  std::vector<std::string> names;
  for (const Host& host : missing) names.push_back(host.name);
  if (may_shrink_ && pool_.ranks_without(names) > 0) {
    const std::string reason =
        names.size() == 1 ? "host " + names[0] + " is lost" : "hosts " + join(names, ", ") + " are lost";
    const FewerRanks found = fewer(choices_without(names), reason);
    if (found.signal != 0 || found.ranks == 0) return found.signal;
    pool_.leave_out(names), pool_.keep_ranks(found.ranks);
    tell_fewer(reason, found);
  } else if (end.not_started && !may_pass(*end.failure, false)) {
    lacks_a_host_ = true;
  } else {
    for (const Host& host : missing)
      say("no host stands by for " + ranks_text(static_cast<int>(host.slots.size())) + " of " + host.name +
          ", which is tried again; --spare names such hosts, and --elastic or --elastic_training allows fewer ranks");
  }
  return 0;
}

// By another host, by other slots, or by none: the run goes on with fewer ranks then.
int Restarting::replace_failing(int rank) {
  const std::string host = pool_.host_of_rank(rank);
  const bool is_here = !request_.hosts.over_ssh;
  const std::string failed = "rank " + std::to_string(rank) + (is_here ? "" : " on host " + host) +
                             " failed twice in a row" + (is_here ? " without a newer checkpoint" : "");
  if (const std::string other = pool_.replace(host); !other.empty()) {
    say(failed + ": host " + other + " takes the place of " + host);
    count_.begin_anew();
    return 0;
  }
  if (!may_shrink_) return 0;
  const int places = ranks_of(pool_.hosts()) - 1;
  FewerRanks found;
  if (by_hosts() || ranks_ > places)
    found = fewer(by_hosts() ? choices_without({host}) : choices(places), failed);
  else
    found.ranks = ranks_;  // there are more places than ranks
  if (found.signal != 0 || found.ranks == 0) return found.signal;
  if (by_hosts())
    pool_.leave_out({host});
  else
    pool_.leave_out_slot_of(rank);
  if (!is_here) pool_.keep_ranks(found.ranks);
  tell_fewer(failed, found);
  return 0;
}

std::vector<int> Restarting::choices(int most) const {
  std::vector<int> numbers;
  for (int ranks = most; ranks >= request_.least_ranks; --ranks) numbers.push_back(ranks);
  return numbers;
}

std::vector<int> Restarting::choices_without(const std::vector<std::string>& hosts) const {
  if (by_hosts()) return pool_.whole_hosts_without(hosts, request_.least_hosts);
  return choices(std::min(ranks_, pool_.ranks_without(hosts)));
}

FewerRanks Restarting::fewer(const std::vector<int>& choices, const std::string& reason) {
  FewerRanks found = fewer_ranks(ranks_, choices, [&](int ranks) { return ask_plan(request_, ranks, signals_); });
  if (found.signal != 0 || found.ranks != 0) return found;
  may_shrink_ = false;  // nor will it be
  const std::string not_allowed =
      by_hosts() ? "--min_elastic_nodes " + std::to_string(request_.least_hosts) + " allows no fewer hosts"
                 : "--elastic allows no fewer";
  say(reason + ", and the run cannot go on with fewer than " + ranks_text(ranks_) + ": " +
      (found.refused.empty() ? not_allowed : found.refused));
  return found;
}

// Once the ranks have their places.
void Restarting::tell_fewer(const std::string& reason, const FewerRanks& found) {
  say(reason + ": goes on with " + ranks_text(found.ranks) +
      (found.ranks == ranks_ ? " in other places" : " instead of " + std::to_string(ranks_)) +
      (request_.hosts.over_ssh ? ", on " + hosts_text(pool_.hosts().size()) : "") +
      (found.refused.empty() ? "" : "; " + found.refused));
  ranks_ = found.ranks;
  count_.begin_anew();
}

int Restarting::no_host(const AttemptEnd& end) const {
  say("no restart: " + end.cause + "; no other host stands by; the first failure was " + count_.first().cause);
  return count_.first().code;
}

int Restarting::no_restart(const AttemptEnd& end) const {
  const bool asked = end.code == 75 || end.code > 128;  // killed otherwise, it would be started again
  say("no restart: " + end.cause + (asked ? "; it was asked to end" : "; it would fail again") +
      (count_.number() > 0 ? "; the failure before it: " + count_.last().cause : ""));
  return end.code;
}

int Restarting::give_up() const {
  const bool same = count_.first().cause == count_.last().cause;
  say("gives up after " + std::to_string(count_.done()) + (count_.done() == 1 ? " restart" : " restarts") +
      " without a newer checkpoint; the first failure was " + count_.first().cause +
      (same ? ", and so was the last" : "; the last " + count_.last().cause));
  return count_.first().code;
}

// Between two attempts nothing runs that would have to end first.
int Restarting::code_of(int signal) const {
  const bool has_checkpoint = point_ && !point_->tag.empty();
  say("stopped by signal " + std::to_string(signal) + " before the restart; " +
      (has_checkpoint ? "the same command goes on from checkpoint " + point_->tag
       : point_       ? "there is no checkpoint to go on from"
                      : "the run had not begun"));
  const bool requeue = signal != SIGINT && has_checkpoint;
  return requeue ? 75 : 128 + (signal == SIGHUP ? SIGTERM : signal);
}

void Restarting::say(const std::string& text) const { launcher_says(outlets_.err, text); }

}  // namespace drivetrain::program
