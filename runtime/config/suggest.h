// Nearest names for a mistyped one. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/export.h>

namespace drivetrain {

// Insertions, deletions, substitutions and swaps of neighbours; upper case, '-' and '_' do not count.
DRIVETRAIN_API size_t edit_distance(const std::string& a, const std::string& b);

// The candidate closest to `word`, or "" if none is close enough to be meant.
DRIVETRAIN_API std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

DRIVETRAIN_API std::string lower_case(std::string text);
std::string join(const std::vector<std::string>& words, const std::string& separator = ", ");
std::string quoted_choice(const std::vector<std::string>& words);  // "a", "b" or "c"

// The second line of an unknown-name message: `\n   did you mean "x"?   known here: a, b`.
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

}  // namespace drivetrain
