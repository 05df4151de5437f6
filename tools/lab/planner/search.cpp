#include "planner/search.h"

#include <algorithm>
#include <map>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

constexpr size_t kShown = 10;  // rows of the text

std::string level_text(const Value& level) { return level.is_string() ? level.as_string() : level.to_json(); }

std::string mix_text(const std::vector<std::string>& factors, const Candidate& candidate) {
  std::string text;
  for (size_t f = 0; f < factors.size(); ++f) text += concat(f ? ", " : "", factors[f], " ", candidate.levels[f]);
  return text;
}

Value candidate_value(const std::vector<std::string>& factors, const Candidate& candidate, const Hardware& hardware) {
  Value value = Value::object();
  for (size_t f = 0; f < factors.size(); ++f) value.set(factors[f], candidate.levels[f]);
  value.set("seconds", candidate.forecast.time.seconds), value.set("gib", candidate.forecast.memory.gib);
  value.set("forecast", forecast_value(candidate.forecast, hardware));
  return value;
}

}  // namespace

SearchResult search(const SearchSpace& space, const Value& config, int64_t train_batch_size, int64_t ranks,
                    const Hardware& hardware, const PlanOne& plan, const Told& told) {
  SearchResult result;
  for (const SearchFactor& factor : space.factors) result.factors.push_back(factor.name);
  const std::vector<std::vector<size_t>> mixes = mixes_of(space, ranks);
  for (const std::vector<size_t>& mix : mixes) {
    if (told) told(result.tried, mixes.size());
    ++result.tried;
    Candidate candidate;
    for (size_t f = 0; f < mix.size(); ++f) candidate.levels.push_back(level_text(space.factors[f].levels[mix[f]]));
    try {
      candidate.forecast = forecast(*plan(config_of(space, mix, config, train_batch_size)), hardware);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::config) throw;
      if (result.refused++ == 0) result.refusal = mix_text(result.factors, candidate) + ": " + first_line(e.what());
      continue;
    }
    add_candidate(result, std::move(candidate), hardware);
  }
  if (told) told(result.tried, mixes.size());
  // Equal times: the one that needs less memory, then the one that was tried first.
  std::stable_sort(result.fits.begin(), result.fits.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.forecast.time.seconds, a.forecast.memory.gib) <
           std::pair(b.forecast.time.seconds, b.forecast.memory.gib);
  });
  std::stable_sort(result.too_large.begin(), result.too_large.end(), [](const Candidate& a, const Candidate& b) {
    return a.forecast.memory.gib < b.forecast.memory.gib;
  });
  return result;
}

void add_candidate(SearchResult& result, Candidate candidate, const Hardware& hardware) {
  if (!result.plans.insert(forecast_value(candidate.forecast, hardware).to_json()).second)
    ++result.same;
  else
    (candidate.forecast.memory.fits() ? result.fits : result.too_large).push_back(std::move(candidate));
}

std::string why_slower(const StepTime& best, const StepTime& other) {
  std::map<std::string, double> more;
  for (const TimePart& part : other.parts) more[part.what] += part.seconds;
  for (const TimePart& part : best.parts) more[part.what] -= part.seconds;
  std::vector<std::pair<double, std::string>> losses;
  for (const auto& [what, seconds] : more)
    if (seconds > 0) losses.emplace_back(seconds, what);
  std::sort(losses.rbegin(), losses.rend());
  if (losses.empty()) return "as fast";
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(losses.size(), 2); ++i)
    text += concat(i ? ", " : "", losses[i].second, formatted(" +%.3g s", losses[i].first));
  return text;
}

std::string search_text(const SearchResult& result) {
  std::string text =
      concat(result.tried, " candidates: ", result.fits.size(), " fit, ", result.too_large.size(), " do not, ",
             result.refused, " are refused", result.refused > 0 ? " (the first: " + result.refusal + ")" : "",
             result.same > 0 ? concat(", ", result.same, " are planned as one of these and left out") : "", "\n");
  if (result.fits.empty()) {
    if (result.too_large.empty()) return text + "nothing that the run accepts was found\n";
    const Candidate& nearest = result.too_large.front();
    return text + concat("nothing fits; nearest is ", mix_text(result.factors, nearest),
                         formatted(": %.1f GiB of %.1f", nearest.forecast.memory.gib, nearest.forecast.memory.has_gib),
                         "\n   take more ranks (-n), a shorter sequence or a smaller model\n");
  }
  const StepTime& best = result.fits.front().forecast.time;
  for (size_t i = 0; i < std::min(result.fits.size(), kShown); ++i) {
    const Forecast& one = result.fits[i].forecast;
    text +=
        formatted("%3zu  %9.4g s  %7.1f TFLOPS  %6.1f GiB  ", i + 1, one.time.seconds, one.time.tflops, one.memory.gib);
    text += mix_text(result.factors, result.fits[i]);
    if (i > 0)
      text += formatted("; %.1f %% slower: ", 100 * (one.time.seconds / best.seconds - 1)) + why_slower(best, one.time);
    text += "\n";
  }
  return text;
}

Value search_value(const SearchResult& result, const Hardware& hardware) {
  Value list = Value::array();
  const StepTime* const best = result.fits.empty() ? nullptr : &result.fits.front().forecast.time;
  for (const Candidate& candidate : result.fits) {
    Value one = candidate_value(result.factors, candidate, hardware);
    if (&candidate.forecast.time != best) one.set("why_slower", why_slower(*best, candidate.forecast.time));
    list.items().push_back(std::move(one));
  }
  Value value = Value::object();
  value.set("tried", static_cast<int64_t>(result.tried)), value.set("refused", static_cast<int64_t>(result.refused));
  value.set("same", static_cast<int64_t>(result.same));
  value.set("too_large", static_cast<int64_t>(result.too_large.size()));
  value.set("first_refusal", result.refused > 0 ? Value(result.refusal) : Value());
  value.set("fits", std::move(list));
  return value;
}

}  // namespace drivetrain
