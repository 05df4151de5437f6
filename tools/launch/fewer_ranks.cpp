#include "launch/fewer_ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "launch/hosts_run.h"

namespace drivetrain::program {
namespace {

// Without "drivetrain: error: ", line ends as semicolons.
std::string one_line(std::string error) {
  const std::string begin = "drivetrain: error: ";
  if (error.starts_with(begin)) error.erase(0, begin.size());
  std::istringstream lines(error);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (!line.empty()) text += (text.empty() ? "" : "; ") + line;
  }
  return text;
}

// The member "train_batch_size" of the plan.
int64_t sequences_of(const std::string& plan) {
  const std::string key = "\"train_batch_size\":";
  const size_t at = plan.find(key);
  return at == std::string::npos ? 0 : std::atoll(plan.c_str() + at + key.size());
}

}  // namespace

FewerRanks fewer_ranks(int now, const std::vector<int>& choices, const AskPlan& ask) {
  FewerRanks found;
  const PlanAnswer before = ask(now);
  found.signal = before.signal;
  for (const int ranks : choices) {
    if (found.signal != 0) return found;
    PlanAnswer answer = ranks == now ? before : ask(ranks);
    found.signal = answer.signal;
    if (answer.refusal.empty() && before.sequences != 0 && answer.sequences != before.sequences)
      answer.refusal = "the global batch would have " + std::to_string(answer.sequences) + " sequences instead of " +
                       std::to_string(before.sequences) + ", for the config gives no train_batch_size";
    if (answer.refusal.empty()) {
      found.ranks = ranks;
      return found;
    }
    found.refused += (found.refused.empty() ? "" : "; ") + std::to_string(ranks) +
                     (ranks == 1 ? " rank: " : " ranks: ") + answer.refusal;
  }
  return found;
}

PlanAnswer ask_plan(const LaunchRequest& request, int ranks, SignalWatch& signals) {
  const Descriptor plan(memfd_create("drivetrain-plan", MFD_CLOEXEC));
  const Descriptor nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  Host here{"localhost", std::vector<int>(static_cast<size_t>(ranks))};
  std::iota(here.slots.begin(), here.slots.end(), 0);
  HostsToRun wanted{.hosts = {here}, .is_here = true, .world = ranks, .only_rank_0 = true};
  wanted.command = request.command_here.empty() ? request.command : request.command_here;
  wanted.command.insert(wanted.command.end(), {"--plan", "--json"});
  Outlets outlets(plan.get(), nowhere.get());
  const AttemptEnd end = HostsRun(request, wanted, signals, outlets).run();
  PlanAnswer answer;
  answer.signal = end.signal;
  if (end.failure) answer.refusal = end.error.empty() ? end.cause : one_line(end.error);
  answer.sequences = sequences_of(content_of(plan));
  return answer;
}

}  // namespace drivetrain::program
