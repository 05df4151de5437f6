// What a search tries, as data: levels of keys of a config, and the mixes of them. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

struct SearchFactor {
  std::string name, section, option;  // option: within the section; "": the section's own value
  std::vector<Value> levels;
  std::optional<Value> off;             // the level at which the section is left out
  Value otherwise;                      // the section where the config has none
  std::vector<std::string> instead_of;  // sections that go
  std::vector<std::string> aliases;     // other names of the option, in whose place it stands
  bool cuts_ranks = false;
};

struct SearchSpace {
  std::vector<SearchFactor> factors;
};

// `experts`: of a layer of the model; where it has none, factors up to their number are left out. Error(config) for
// what is no search space.
DRIVETRAIN_INTERNAL SearchSpace search_space(const Value& file, int64_t ranks, int64_t ranks_per_host,
                                             int64_t experts = 0);

// Those whose cuts divide the ranks; each has one index of a level per factor.
DRIVETRAIN_INTERNAL std::vector<std::vector<size_t>> mixes_of(const SearchSpace& space, int64_t ranks);

// The config with the levels of a mix; the global batch stays, accumulation follows.
DRIVETRAIN_INTERNAL Value config_of(const SearchSpace& space, const std::vector<size_t>& mix, Value config,
                                    int64_t train_batch_size);

}  // namespace drivetrain
