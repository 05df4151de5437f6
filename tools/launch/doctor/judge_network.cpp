#include <algorithm>
#include <cmath>
#include <map>

#include <drivetrain/toolkit/text.h>

#include "launch/doctor/judge.h"

namespace drivetrain::program {
namespace {

constexpr double kMostApartS = 0.5;  // what logs and times of files bear

std::string time_text(double seconds) {
  const double size = std::abs(seconds);
  return size < 1e-3 ? formatted("%.0f us", 1e6 * size)
         : size < 1  ? formatted("%.1f ms", 1e3 * size)
                     : formatted("%.2f s", size);
}

// Of hosts whose clocks are known.
struct Clocks {
  std::vector<std::string> hosts;
  std::vector<ClockOffset> offsets;
};

Clocks clocks_of(const SurveyReport& survey) {
  Clocks clocks;
  for (const HostReport& host : survey.hosts)
    if (host.clock) clocks.hosts.push_back(host.name), clocks.offsets.push_back(*host.clock);
  return clocks;
}

std::string remedy_for(const std::string& problem, const std::string& from, const std::string& address) {
  const auto is = [&](const char* word) { return problem.find(word) != std::string::npos; };
  if (is("timed out"))
    return "packets are lost on the way: let TCP pass between the hosts, whatever the port (`nft list ruleset`, "
           "`iptables -L`, the cloud's security groups)";
  if (is("refused"))
    return concat("a firewall refuses it, or another host has the address ", address, ": look at `ip address` on both");
  return concat("look at `ip route get ", address, "` on ", from, " and at the interfaces of both");
}

// "b does not reach c at 10.0.0.3 port 40123: Connection timed out"
void add_pair(Findings& findings, const SurveyReport& survey, const PairReport& pair) {
  const HostReport &from = survey.hosts[pair.from], &to = survey.hosts[pair.to];
  findings.problem(
      concat(from.name, " -> ", to.name),
      concat(from.name, " does not reach ", to.name, " at ", to.listens_at, " port ", to.port, ": ", pair.problem),
      remedy_for(pair.problem, from.name, to.listens_at), ErrorCode::communication);
}

using Pairs = std::vector<const PairReport*>;

Pairs failed_pairs(const SurveyReport& survey) {
  Pairs list;
  for (const PairReport& pair : survey.pairs)
    if (!pair.problem.empty()) list.push_back(&pair);
  return list;
}

// A host that no other one reaches, or that reaches no other one, is one problem instead of a hundred. `side`: which
// of a pair that host is.
void take_out_whole_hosts(Findings& findings, const SurveyReport& survey, Pairs& failed, size_t PairReport::*side) {
  std::map<size_t, size_t> tried, lost;
  for (const PairReport& pair : survey.pairs) ++tried[pair.*side];
  for (const PairReport* pair : failed) ++lost[pair->*side];
  for (const auto& [host, count] : lost) {
    if (count < 2 || count != tried[host]) continue;
    const HostReport& report = survey.hosts[host];
    const auto first =
        std::find_if(failed.begin(), failed.end(), [&](const PairReport* p) { return p->*side == host; });
    const PairReport& pair = **first;
    const bool is_to = side == &PairReport::to;
    const std::string other = survey.hosts[is_to ? pair.from : pair.to].name;
    findings.problem(
        is_to ? concat("all -> ", report.name) : concat(report.name, " -> all"),
        is_to ? concat("none of the other ", count, " hosts reaches ", report.name, " at ", report.listens_at, " port ",
                       report.port, "; from ", other, ": ", pair.problem)
              : concat(report.name, " reaches none of the other ", count, " hosts; ", other, ": ", pair.problem),
        remedy_for(pair.problem, is_to ? other : report.name, survey.hosts[pair.to].listens_at),
        ErrorCode::communication);
    std::erase_if(failed, [&](const PairReport* p) { return p->*side == host; });
  }
}

// Two names of one host, or two networks behind routers that use the same addresses.
void judge_addresses(Findings& findings, const SurveyReport& survey) {
  std::map<std::string, std::vector<std::string>> at;
  for (const HostReport& host : survey.hosts)
    if (!host.listens_at.empty()) at[host.listens_at].push_back(host.name);
  for (const auto& [address, hosts] : at)
    if (hosts.size() > 1)
      findings.problem("addresses",
                       concat("the hosts ", join(hosts), " have the same address towards others: ", address),
                       "one host has one line in the hostfile, with all its slots; different hosts need addresses of "
                       "their own");
}

}  // namespace

void judge_clocks(Findings& findings, const SurveyReport& survey) {
  const Clocks clocks = clocks_of(survey);
  if (clocks.hosts.size() < 2) return;
  findings.begin("network");
  const ClockOffset middle = clocks.offsets[middle_clock(clocks.offsets)];
  bool all_right = true;
  for (size_t i = 0; i < clocks.hosts.size(); ++i) {
    const double apart = clocks.offsets[i].ahead_s - middle.ahead_s;
    const double within = clocks.offsets[i].within_s + middle.within_s;
    if (std::abs(apart) - within < kMostApartS) continue;
    all_right = false;
    findings.warning(
        "clocks",
        concat("the clock of ", clocks.hosts[i], " is ", time_text(apart), apart > 0 ? " ahead of" : " behind",
               " most others (+-", time_text(within), ")"),
        "set it: `timedatectl set-ntp true`, or chrony; files and logs of hosts are compared by their times");
  }
  if (!all_right) return;
  const ClockPair pair = farthest_apart(clocks.offsets);
  const ClockOffset &behind = clocks.offsets[pair.behind], &ahead = clocks.offsets[pair.ahead];
  findings.ok("clocks",
              concat("at most ", time_text(ahead.ahead_s - behind.ahead_s), " apart, ", clocks.hosts[pair.behind],
                     " and ", clocks.hosts[pair.ahead], " (+-", time_text(ahead.within_s + behind.within_s), ")"));
}

void judge_pairs(Findings& findings, const SurveyReport& survey) {
  findings.begin("network");
  judge_addresses(findings, survey);
  if (survey.pairs.empty()) return;
  Pairs failed = failed_pairs(survey);
  const size_t reached = survey.pairs.size() - failed.size();
  take_out_whole_hosts(findings, survey, failed, &PairReport::to);
  take_out_whole_hosts(findings, survey, failed, &PairReport::from);
  for (const PairReport* pair : failed) add_pair(findings, survey, *pair);
  double slowest = 0;
  for (const PairReport& pair : survey.pairs)
    if (pair.problem.empty()) slowest = std::max(slowest, pair.took_s);
  if (reached > 0)
    findings.ok("connections", concat(reached, " of ", survey.pairs.size(), " pairs of hosts connect, in at most ",
                                      time_text(slowest)));
}

}  // namespace drivetrain::program
