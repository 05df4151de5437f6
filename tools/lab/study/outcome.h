// What cells are compared by beside speed and memory: a figure of metrics.jsonl at one point of a run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::study {

struct Outcome {
  // equal_tokens, equal_seconds: the most that every run of the study has reached.
  enum class At { last, best, tokens, seconds, step, equal_tokens, equal_seconds };
  std::string metric;  // its name in metrics.jsonl: "valid_loss", "eval/NAME/acc"
  At at = At::last;
  double point = 0;     // tokens, seconds or step, where `at` names one
  bool higher = false;  // is better
  int64_t window = 1;   // the mean of so many values up to the point

  std::string name() const;    // "valid_loss at equal tokens"
  std::string column() const;  // of a CSV file: "valid_loss_at_equal_tokens"
};

// A name, an object or a list of these; the first one decides over places and effects. Throws Error(config) with place.
std::vector<Outcome> outcomes_of(const Value& value);

// A figure of one run, wherever metrics.jsonl has it. A value that is null there is not a number here.
struct Series {
  std::vector<double> step, value;
};

// What a run has, to find an outcome in.
struct Progressed {
  const std::map<std::string, Series>* figures = nullptr;
  const std::vector<double>* tokens = nullptr;  // of every step, from the first
  const std::vector<double>* step_s = nullptr;
};

struct Found {
  double value = 0;
  std::string missing;  // why there is none; "": there is
  bool absent = false;  // since the run does not have the figure there; else it is not a finite number
};
Found found_in(const Progressed& run, const Outcome& outcome);

// Where the figure's last value lies, in tokens or seconds as `outcome` has them; below 0: the run does not have it.
double reach_of(const Progressed& run, const Outcome& outcome);

// Positions of the figure's values in tokens, seconds (of training steps, without evaluations) or steps.
std::vector<double> positions_of(const Progressed& run, const Series& series, Outcome::At at);
// The mean of every value and of those before it, `window` in all; fewer at the begin.
std::vector<double> smoothed(const std::vector<double>& values, int64_t window);

}  // namespace drivetrain::study
