// The fastest way to split a run that fits a machine. Every candidate is planned as the run itself would be, with its
// plugins, and nothing is started. Main thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
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
  size_t same = 0;              // planned to the last figure as one before them, which stands for them
  std::string refusal;          // of the first that was refused
  std::set<std::string> plans;  // in JSON, of those that are listed
};

// Plans a config; throws Error where it is refused.
using PlanOne = std::function<std::unique_ptr<PreparedRun>(const Value& config)>;
using Told = std::function<void(size_t tried, size_t all)>;  // before each one, and at the end

DRIVETRAIN_INTERNAL SearchResult search(const SearchSpace& space, const Value& config, int64_t train_batch_size,
                                        int64_t ranks, const Hardware& hardware, const PlanOne& plan,
                                        const Told& told = {});

// Adds it to those that fit or do not, unless one of these has the same plan: ZeRO has nothing to share on one rank.
// Mixes with fewer changes come first.
DRIVETRAIN_INTERNAL void add_candidate(SearchResult& result, Candidate candidate, const Hardware& hardware);

// Why `other` is slower than `best`: the parts in which it loses most.
DRIVETRAIN_INTERNAL std::string why_slower(const StepTime& best, const StepTime& other);

DRIVETRAIN_INTERNAL std::string search_text(const SearchResult& result);
DRIVETRAIN_INTERNAL Value search_value(const SearchResult& result, const Hardware& hardware);

}  // namespace drivetrain
