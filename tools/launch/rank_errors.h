// What ranks said when they ended, told once each: often all of them have the same to say.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

// What went wrong, without who noticed it where: of "...: rank 2 (pid 7) died" only from "rank 2" on. The whole text
// where no rank is named.
std::string cause_of(const std::string& error);

// Of "...: rank 2 stopped: TEXT", which a rank says that has only heard of the error, TEXT; of other errors nothing.
std::string heard_error(const std::string& error);

// Whether who reads `heard`, "rank 2 stopped: TEXT", knows all of rank 2's own error and has not to look for it among
// what the other rank was doing.
bool says_as_much(const std::string& heard, const std::string& own);

// Ranks whose errors have the same cause, in order of their first rank; those that said nothing are in none. Who has
// heard an error says the same as the rank that had it.
struct SameError {
  std::vector<int> ranks;
  // "14 other ranks said the same as rank 1", which is `speaker`; empty for one rank
  std::string note(int speaker) const;
};
std::vector<SameError> same_errors(const std::vector<std::string>& errors);

}  // namespace drivetrain::program
