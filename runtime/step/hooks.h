// Calls the hooks of all strategies in the onion's order and says whose hook failed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/strategy.h>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {

struct NamedStrategy {
  std::string id;  // "data_parallel/..."
  std::shared_ptr<Strategy> strategy;
};
using Strategies = std::vector<NamedStrategy>;  // outermost first

enum class Nesting { outermost_first, innermost_first };

// `call(strategy)` for each; what it throws names the strategy, the hook and the unit.
template <class Call>
void each_strategy(const Strategies& list, Nesting order, const char* hook, const std::string& unit, const Call& call) {
  const auto one = [&](const NamedStrategy& s) { plugin_call({s.id, hook, unit}, [&] { call(*s.strategy); }); };
  if (order == Nesting::outermost_first)
    for (auto it = list.begin(); it != list.end(); ++it) one(*it);
  else
    for (auto it = list.rbegin(); it != list.rend(); ++it) one(*it);
}

}  // namespace drivetrain
