#include "study/outcome.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "study/study_levels.h"

namespace drivetrain::study {
namespace {

using At = Outcome::At;

// What everybody means by it; of other figures the study has to say it.
int known_direction(const std::string& metric) {
  const std::string last = metric.substr(metric.rfind('/') + 1);
  for (const char* end : {"loss", "perplexity", "bits_per_byte", "bytes", "step_s"})
    if (last.ends_with(end)) return -1;
  for (const char* begin : {"acc", "tgs", "tokens_per_s", "tflops"})
    if (last.starts_with(begin)) return 1;
  return 0;
}

void read_point(const Value& at, Outcome& outcome) {
  const std::vector<std::pair<const char*, At>> words = {
      {"last", At::last}, {"best", At::best}, {"equal_tokens", At::equal_tokens}, {"equal_seconds", At::equal_seconds}};
  const std::vector<std::pair<const char*, At>> points = {
      {"tokens", At::tokens}, {"seconds", At::seconds}, {"step", At::step}};
  for (const auto& [word, value] : words)
    if (at.is_string() && at.as_string() == word) {
      outcome.at = value;
      return;
    }
  for (const auto& [key, value] : points) {
    const Value* const point = at.find(key);
    if (!point || at.members().size() != 1) continue;
    if (!point->is_number() || point->as_double() <= 0)
      throw wrong(*point, concat("\"", key, "\" is a number above 0, found ", shown_value(*point)));
    outcome.at = value, outcome.point = point->as_double();
    return;
  }
  throw wrong(at, concat("\"at\" is \"last\", \"best\", \"equal_tokens\", \"equal_seconds\" or {\"tokens\": N}, "
                         "{\"seconds\": N}, {\"step\": N}, found ",
                         shown_value(at)));
}

void read_direction(const Value& value, Outcome& outcome) {
  const Value* const better = value.is_object() ? value.find("better") : nullptr;
  if (!better) {
    const int known = known_direction(outcome.metric);
    if (known == 0)
      throw wrong(value, concat("nothing says whether a higher or a lower ", shown(outcome.metric),
                                " is better\n   say it: {\"metric\": \"", shown(outcome.metric),
                                "\", \"better\": \"lower\"} or \"higher\""));
    outcome.higher = known > 0;
    return;
  }
  if (!better->is_string() || (better->as_string() != "lower" && better->as_string() != "higher"))
    throw wrong(*better, concat("\"better\" is \"lower\" or \"higher\", found ", shown_value(*better)));
  outcome.higher = better->as_string() == "higher";
}

Outcome outcome_of(const Value& value) {
  Outcome outcome;
  if (value.is_string() && !value.as_string().empty()) {
    outcome.metric = value.as_string();
    read_direction(value, outcome);
    return outcome;
  }
  const Value* const metric = value.find("metric");
  if (!metric || !metric->is_string() || metric->as_string().empty())
    throw wrong(value, concat("an outcome is the name of a figure of metrics.jsonl or {\"metric\": NAME, \"at\": ..., "
                              "\"better\": ...}, found ",
                              shown_value(value)));
  const std::vector<std::string> keys = {"metric", "at", "better", "window"};
  for (const Value::Member& m : value.members())
    if (m.key.find_first_of("_$") != 0 && std::find(keys.begin(), keys.end(), m.key) == keys.end())
      throw wrong_key(m.value, concat("an outcome has no key \"", shown(m.key), "\"", suggestion(m.key, keys)));
  outcome.metric = metric->as_string();
  read_direction(value, outcome);
  if (const Value* const at = value.find("at")) read_point(*at, outcome);
  if (const Value* const window = value.find("window")) {
    if (!window->is_int() || window->as_int() < 1)
      throw wrong(*window, concat("\"window\" is a whole number of values from 1, found ", shown_value(*window)));
    outcome.window = window->as_int();
  }
  return outcome;
}

std::vector<double> sums_of(const std::vector<double>& values) {
  std::vector<double> sums(values.size() + 1, 0);
  std::partial_sum(values.begin(), values.end(), sums.begin() + 1);
  return sums;
}

const char* unit_of(At at) {
  if (at == At::step) return "steps";
  return at == At::seconds || at == At::equal_seconds ? "s of training" : "tokens";
}

}  // namespace

std::string Outcome::name() const {
  const std::string smooth = window > 1 ? concat(", mean of ", window) : std::string();
  switch (at) {
    case At::best:
      return "best " + metric + smooth;
    case At::tokens:
      return metric + formatted(" at %.6g tokens", point) + smooth;
    case At::seconds:
      return metric + formatted(" after %.6g s", point) + smooth;
    case At::step:
      return metric + formatted(" at step %.6g", point) + smooth;
    case At::equal_tokens:
      return metric + " at equal tokens" + smooth;
    case At::equal_seconds:
      return metric + " at equal time" + smooth;
    default:
      return metric + smooth;
  }
}

std::string Outcome::column() const {
  std::string text = name();
  std::erase(text, ',');
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

std::vector<Outcome> outcomes_of(const Value& value) {
  if (!value.is_array()) return {outcome_of(value)};
  std::vector<Outcome> list;
  for (const Value& one : value.items()) {
    list.push_back(outcome_of(one));
    for (size_t i = 0; i + 1 < list.size(); ++i)
      if (list[i].name() == list.back().name())
        throw wrong(one, concat("two outcomes are ", shown(list.back().name()), ": leave one out"));
  }
  if (list.empty()) throw wrong(value, "\"outcome\" is an empty list: name a figure, or leave it out");
  return list;
}

std::vector<double> smoothed(const std::vector<double>& values, int64_t window) {
  std::vector<double> means;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t count = std::min(i + 1, static_cast<size_t>(window));
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(i + 1);
    means.push_back(std::accumulate(end - static_cast<std::ptrdiff_t>(count), end, 0.0) / static_cast<double>(count));
  }
  return means;
}

std::vector<double> positions_of(const Progressed& run, const Series& series, At at) {
  if (at == At::step) return series.step;
  const bool time = at == At::seconds || at == At::equal_seconds;
  const std::vector<double> sums = sums_of(time ? *run.step_s : *run.tokens);
  std::vector<double> positions;
  for (const double step : series.step)
    positions.push_back(sums[std::min(static_cast<size_t>(std::max(step, 0.0)), sums.size() - 1)]);
  return positions;
}

double reach_of(const Progressed& run, const Outcome& outcome) {
  const auto series = run.figures->find(outcome.metric);
  if (series == run.figures->end() || series->second.value.empty()) return -1;
  return positions_of(run, series->second, outcome.at).back();
}

Found found_in(const Progressed& run, const Outcome& outcome) {
  const auto found = run.figures->find(outcome.metric);
  if (found == run.figures->end() || found->second.value.empty()) {
    std::string names;
    for (const auto& [name, series] : *run.figures) names += (names.empty() ? "" : ", ") + name;
    return {0, concat("the run has no figure ", outcome.metric, names.empty() ? "" : "; it has " + names), true};
  }
  const Series& series = found->second;
  const std::vector<double> values = smoothed(series.value, outcome.window);
  const auto not_finite = [&](size_t i) {
    return Found{0, concat(outcome.metric, " is not a finite number at step ", series.step[i]), false};
  };
  if (outcome.at == At::last)
    return std::isfinite(values.back()) ? Found{values.back(), "", false} : not_finite(values.size() - 1);
  if (outcome.at == At::best) {
    std::vector<double> finite;
    std::copy_if(values.begin(), values.end(), std::back_inserter(finite), [](double x) { return std::isfinite(x); });
    if (finite.empty()) return not_finite(0);
    return {outcome.higher ? *std::max_element(finite.begin(), finite.end())
                           : *std::min_element(finite.begin(), finite.end()),
            "", false};
  }
  const std::vector<double> at = positions_of(run, series, outcome.at);
  const double point = outcome.point, near = 1e-9 * point;
  if (at.back() < point - near || at.front() > point + near)
    return {0,
            concat("it has ", outcome.metric, " from ", at.front(), " to ", at.back(), " ", unit_of(outcome.at),
                   ", not at ", point),
            true};
  const auto after = static_cast<size_t>(std::lower_bound(at.begin(), at.end(), point - near) - at.begin());
  if (after == 0 || at[after] <= point + near)
    return std::isfinite(values[after]) ? Found{values[after], "", false} : not_finite(after);
  for (const size_t i : {after - 1, after})
    if (!std::isfinite(values[i])) return not_finite(i);
  const double share = (point - at[after - 1]) / (at[after] - at[after - 1]);
  return {values[after - 1] + share * (values[after] - values[after - 1]), "", false};
}

}  // namespace drivetrain::study
