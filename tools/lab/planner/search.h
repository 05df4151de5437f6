// The fastest way to split a run that fits a machine. Every candidate is planned as the run itself would be, with its
// plugins, and nothing is started. Main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "internal.h"
#include "planner/forecast.h"
#include "planner/search_space.h"

namespace drivetrain {

struct Candidate {
  std::vector<std::string> levels;  // by factor
  Forecast forecast;
};

struct SearchResult {
  std::vector<std::string> factors;
  std::vector<Candidate> fits;       // fastest first
  std::vector<Candidate> too_large;  // smallest first
  size_t tried = 0, refused = 0;
  std::string refusal;  // of the first that was refused
};

// Plans a config; throws Error where it is refused.
using PlanOne = std::function<std::unique_ptr<PreparedRun>(const Value& config)>;

DRIVETRAIN_INTERNAL SearchResult search(const SearchSpace& space, const Value& config, int64_t train_batch_size,
                                        int64_t ranks, const Hardware& hardware, const PlanOne& plan);

// Why `other` is slower than `best`: the parts in which it loses most.
DRIVETRAIN_INTERNAL std::string why_slower(const StepTime& best, const StepTime& other);

DRIVETRAIN_INTERNAL std::string search_text(const SearchResult& result);
DRIVETRAIN_INTERNAL Value search_value(const SearchResult& result, const Hardware& hardware);

}  // namespace drivetrain
