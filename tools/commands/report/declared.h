// What a plugin declares by itself, for `inspect`: it is made with its defaults and asked for the plan of a run of one
// rank, in which nothing is allocated. Main thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plugin/registry.h"

namespace drivetrain {

struct Declared {
  using Line = std::pair<std::string, std::string>;
  std::vector<std::string> offers;  // abilities that others may need: "attention.returns_lse"
  std::vector<Line> needs;          // ability, and why
  std::vector<Line> abilities;      // of an attention: what it can compute; name and value
  std::string untold;               // why the above is not known; empty: it is
};

// Opens the library. Throws nothing for what the plugin throws.
Declared declared_by(const Registry& registry, const Found& found);

}  // namespace drivetrain
