// Verdicts where the pictures of the ranks are not of one moment: of a run that goes on, and of one that is over.
#include <algorithm>
#include <limits>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "watch/culprit.h"

namespace drivetrain {
namespace {

// A quiet rank listens all the time, a busy one once a second.
constexpr double kApartS = 1.5;

bool has_failed_call(const LeftRecord& record) {
  return std::any_of(record.entries.begin(), record.entries.end(),
                     [](const FlightEntry& e) { return e.state == FlightState::failed; });
}

std::string end_text(const LeftRecord& r, bool several_hosts) {
  std::string text = concat("rank ", r.rank, several_hosts ? concat(" on host ", r.host) : "", " ended first, in ");
  text += r.call.empty() ? name_of(r.place.doing) : r.call;
  return text + (r.place.step > 0 ? concat(" (step ", r.place.step, ")") : " (before the first step)");
}

// Those that saw no call fail and wrote nothing any more when the first one failed elsewhere.
std::vector<const LeftRecord*> ended_first(const std::vector<LeftRecord>& records) {
  int64_t failed_ns = std::numeric_limits<int64_t>::max();
  for (const LeftRecord& record : records)
    if (has_failed_call(record)) failed_ns = std::min(failed_ns, record.written_ns);
  std::vector<const LeftRecord*> found;
  for (const LeftRecord& record : records)
    if (!has_failed_call(record) && record.written_ns < failed_ns) found.push_back(&record);
  return found.size() < records.size() ? found : std::vector<const LeftRecord*>{};
}

}  // namespace

std::optional<std::string> text_of_a_run_that_goes_on(const std::vector<std::optional<RankPicture>>& pictures) {
  std::map<int64_t, std::vector<int64_t>, std::greater<>> at_step;
  bool moves = false;
  for (const auto& picture : pictures) {
    if (!picture) return std::nullopt;
    moves = moves || picture->quiet_s < kApartS;
    at_step[picture->place.step].push_back(picture->rank);
  }
  if (!moves) return std::nullopt;
  std::vector<std::string> words;
  for (const auto& [step, ranks] : at_step)
    words.push_back(concat(ranks_text(ranks), ranks.size() == 1 ? " goes on, " : " go on, ",
                           step > 0 ? concat("at step ", step) : "before the first step"));
  return join(words, "; ");
}

FlightVerdict find_culprit(const std::vector<LeftRecord>& records) {
  std::vector<std::optional<RankPicture>> pictures(records.size());
  std::vector<std::string> hosts(records.size());
  for (const LeftRecord& record : records) {
    if (record.rank < 0 || record.rank >= static_cast<int64_t>(records.size())) continue;
    pictures[static_cast<size_t>(record.rank)] = picture_of(record);
    hosts[static_cast<size_t>(record.rank)] = record.host;
  }
  FlightVerdict verdict = find_culprit(pictures, hosts);
  const std::vector<const LeftRecord*> first = ended_first(records);
  if (!verdict.all_wait || first.empty()) return verdict;
  const bool several = std::any_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host != hosts[0]; });
  verdict.culprits.clear();
  std::vector<std::string> words;
  for (const LeftRecord* record : first) {
    verdict.culprits.push_back(record->rank);
    words.push_back(end_text(*record, several));
  }
  verdict.text = concat(join(words, "; "), "; calls of the others failed after that, for want of it");
  return verdict;
}

}  // namespace drivetrain
