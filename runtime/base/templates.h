// Files that a script was to fill in first. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "internal.h"

namespace drivetrain {

// Is the whole value a name that stands for a value: CONFIG_BATCH_SIZE, ${batch}, {{ batch }}, <batch>, %BATCH%?
DRIVETRAIN_INTERNAL bool is_placeholder(const std::string& value);

// The same where no text is wanted: GBSIZE and BATCH are names that stand for a value, too.
DRIVETRAIN_INTERNAL bool is_mark(const std::string& word);

// The first such mark in a text that is no JSON, {{...}}, {%...%}, ${...} or <<...>>, with its offset.
DRIVETRAIN_INTERNAL std::optional<std::pair<size_t, std::string>> find_placeholder(const std::string& text);

}  // namespace drivetrain
