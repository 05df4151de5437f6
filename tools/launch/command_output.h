// What a short command of a batch system or an MPI prints.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

struct CommandOutput {
  int code = 0;      // 127: it could not be run, 124: it took longer than ten seconds and was ended
  std::string text;  // both streams, without the last line's end
};

// `words` are looked up in PATH.
CommandOutput output_of(const std::vector<std::string>& words);

// The first of these programs that PATH has; "": none.
std::string first_in_path(const std::vector<std::string>& names);

}  // namespace drivetrain::program
