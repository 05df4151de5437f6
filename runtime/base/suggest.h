// Nearest names for a mistyped one. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

// What it takes to type `word` where `meant` was wanted, in slips of about 1: a missing, a further or a wrong letter,
// two swapped ones. Slips that fingers make (the key beside it, a letter doubled or not) cost less; upper case, '-' and
// '_' as separators do not count.
DRIVETRAIN_INTERNAL double typing_cost(const std::string& word, const std::string& meant);

// The candidate most likely meant, or "" if none is close enough. Words longer than any name are nobody's typing error.
DRIVETRAIN_INTERNAL std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

DRIVETRAIN_INTERNAL std::string lower_case(std::string text);
DRIVETRAIN_INTERNAL std::string quoted_choice(const std::vector<std::string>& words);  // "a", "b" or "c"

// `did you mean "x"?`, after `before`; "" if nothing is near.
DRIVETRAIN_INTERNAL std::string did_you_mean(const std::string& word, const std::vector<std::string>& known,
                                             const std::string& before = "\n   ");

// The second line of an unknown-name message: `\n   did you mean "x"?   known here: a, b`. x may be one of `unlisted`
// too.
DRIVETRAIN_INTERNAL std::string suggestion(const std::string& word, const std::vector<std::string>& known,
                                           const std::vector<std::string>& unlisted = {});

}  // namespace drivetrain
