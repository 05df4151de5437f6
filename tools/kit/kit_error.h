// What ends a command of the kit: a message for stderr and the exit code of the contract.
#pragma once

#include <stdexcept>
#include <string>

namespace drivetrain::kit {

enum class Exit { usage = 2, plugin = 3, io = 8 };

class KitError : public std::runtime_error {
 public:
  KitError(Exit exit, const std::string& message) : std::runtime_error(message), exit_(exit) {}
  int code() const { return static_cast<int>(exit_); }

 private:
  const Exit exit_;
};

}  // namespace drivetrain::kit
