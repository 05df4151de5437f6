// What was typed cannot be run: the message for stderr; the exit code is 2.
#pragma once

#include <stdexcept>

namespace drivetrain {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace drivetrain
