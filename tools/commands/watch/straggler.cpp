#include "watch/straggler.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "watch/picture.h"

namespace drivetrain {
namespace {

// Who was named is as quick as the others again once it is nearer to the median than to the limit.
double limit_of(double factor, bool named) { return named ? (1 + factor) / 2 : factor; }

// "1.8 times", of a median that is next to nothing "more than 100 times".
std::string times_text(double own, double median) {
  return own > 100 * median ? "more than 100 times" : formatted("%.1f times", own / median);
}

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

const char* name_of(WorkPart part) {
  constexpr const char* kNames[kWorkParts] = {
      "reading data",        "forward",       "backward",    "summing gradients",
      "links of a pipeline", "the optimizer", "checkpoints", "between the steps"};
  return static_cast<size_t>(part) < kWorkParts ? kNames[static_cast<size_t>(part)] : "?";
}

StragglerJudge::StragglerJudge(const StragglerRule& rule, std::vector<std::vector<int64_t>> alike)
    : rule_(rule), alike_(std::move(alike)) {}

StragglerJudge::Step StragglerJudge::with_slow(const std::vector<WorkSeconds>& ranks) const {
  Step step{ranks, std::vector<char>(ranks.size(), 0)};
  for (const auto& set : alike_) {
    std::vector<double> totals;
    for (const int64_t rank : set) totals.push_back(total(ranks.at(static_cast<size_t>(rank))));
    const double median = lower_median(totals);
    for (size_t i = 0; i < set.size(); ++i)
      step.slow[static_cast<size_t>(set[i])] = totals[i] > rule_.factor * median ? 1 : 0;
  }
  return step;
}

void StragglerJudge::add(const Step& step, int sign) {
  for (size_t r = 0; r < step.work.size(); ++r) {
    for (size_t part = 0; part < kWorkParts; ++part) ranks_[r].sum[part] += sign * step.work[r][part];
    ranks_[r].slow_steps += sign * step.slow[r];
  }
}

bool StragglerJudge::is_straggler(const Rank& rank, double median) const {
  const double own = total(rank.sum), steps = static_cast<double>(rule_.steps);
  if (own <= limit_of(rule_.factor, rank.named) * median) return false;
  return rank.named || (own - median >= rule_.least_s * steps && 2 * rank.slow_steps >= rule_.steps);
}

Straggler StragglerJudge::found(int64_t number, const std::vector<int64_t>& set, double median) const {
  const Rank& rank = ranks_[static_cast<size_t>(number)];
  const double steps = static_cast<double>(rule_.steps);
  Straggler s;
  s.rank = number, s.own_s = total(rank.sum) / steps, s.median_s = median / steps;
  s.compared = set, s.steps = rule_.steps;
  for (size_t part = 0; part < kWorkParts; ++part) {
    std::vector<double> sums;
    for (const int64_t other : set) sums.push_back(ranks_[static_cast<size_t>(other)].sum[part]);
    const double lost = (rank.sum[part] - lower_median(sums)) / steps;
    if (lost > s.lost_s) s.lost_s = lost, s.part = static_cast<WorkPart>(part);
  }
  return s;
}

void StragglerJudge::judge(const std::vector<int64_t>& set, News& news) {
  std::vector<double> totals;
  for (const int64_t rank : set) totals.push_back(total(ranks_[static_cast<size_t>(rank)].sum));
  const double median = lower_median(totals);
  for (const int64_t number : set) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    const bool slow = is_straggler(rank, median);
    if (slow == rank.named) continue;
    if (slow)
      news.found.push_back(found(number, set, median));
    else
      news.recovered.push_back(number);
    rank.named = slow;
  }
}

StragglerJudge::News StragglerJudge::step(const std::vector<WorkSeconds>& ranks) {
  News news;
  if (rule_.factor <= 0) return news;
  ranks_.resize(ranks.size());
  window_.push_back(with_slow(ranks));
  add(window_.back(), 1);
  if (static_cast<int64_t>(window_.size()) > rule_.steps) add(window_.front(), -1), window_.pop_front();
  if (static_cast<int64_t>(window_.size()) < rule_.steps) return news;
  for (const auto& set : alike_)
    if (set.size() > 1) judge(set, news);
  return news;
}

std::vector<std::vector<int64_t>> ranks_alike(const std::vector<int64_t>& sizes, const std::vector<size_t>& cut_axes) {
  const int64_t world = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  std::map<std::vector<int64_t>, std::vector<int64_t>> sets;  // by the other coordinates
  for (int64_t rank = 0; rank < world; ++rank) {
    std::vector<int64_t> place;
    int64_t rest = rank;
    for (size_t axis = 0; axis < sizes.size(); rest /= sizes[axis++])
      if (std::find(cut_axes.begin(), cut_axes.end(), axis) == cut_axes.end()) place.push_back(rest % sizes[axis]);
    sets[place].push_back(rank);
  }
  std::vector<std::vector<int64_t>> list;
  for (auto& [place, ranks] : sets) list.push_back(std::move(ranks));
  return list;
}

std::string straggler_text(const Straggler& s, const std::string& host, const std::string& plugin) {
  return concat("rank ", s.rank, host.empty() ? "" : " on host " + host, " is a straggler: its own work takes ",
                times_text(s.own_s, s.median_s), " the median of ", ranks_text(s.compared),
                ", which do the same work, over the last ", s.steps, " steps (",
                formatted("%.3f s against %.3f s", s.own_s, s.median_s), " a step); most of the difference, ",
                formatted("%.3f s", s.lost_s), " a step, is in ", name_of(s.part),
                plugin.empty() ? "" : concat(" (", plugin, ")"));
}

}  // namespace drivetrain
