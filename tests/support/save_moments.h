// What policies of checkpoints are asked with: moments between two steps, and the tags that a store has.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_policy.h>

namespace drivetrain::test {

// `figures`: of the step; a Value that holds NaN is what a step with such a figure has in memory.
inline SaveMoment save_moment(int64_t step, Value figures = Value::object(), double seconds = 0) {
  SaveMoment moment;
  moment.step = step, moment.figures = std::move(figures), moment.seconds = seconds;
  return moment;
}

inline Value one_figure(const char* name, double value) { return Value::Object{{name, value}}; }

// Newest first, as a store lists them; `figures` by the same order, or none.
inline std::vector<StoredTag> stored_tags(const std::vector<int64_t>& steps, const std::vector<Value>& figures = {}) {
  std::vector<StoredTag> tags;
  for (size_t i = 0; i < steps.size(); ++i) {
    StoredTag tag;
    tag.tag = "step-" + std::to_string(steps[i]), tag.step = steps[i];
    tag.figures = i < figures.size() ? figures[i] : Value::object();
    tags.push_back(tag);
  }
  return tags;
}

// The steps of the tags that `policy` keeps.
inline std::vector<int64_t> kept_steps(CheckpointPolicy& policy, const std::vector<StoredTag>& tags) {
  const std::vector<bool> kept = policy.keep(tags);
  std::vector<int64_t> steps;
  for (size_t i = 0; i < std::min(kept.size(), tags.size()); ++i)
    if (kept[i]) steps.push_back(tags[i].step);
  return kept.size() == tags.size() ? steps : std::vector<int64_t>{-1};
}

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace drivetrain::test
