#include "launch/command_output.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "cli/commands.h"
#include "launch/watched_command.h"

namespace drivetrain::program {

CommandOutput output_of(const std::vector<std::string>& words) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  WatchedCommand command(words);
  while (!command.has_ended() && std::chrono::steady_clock::now() < end) poll(nullptr, 0, 5);
  CommandOutput said{command.has_ended() ? command.code() : 124, command.out() + command.err()};
  while (!said.text.empty() && said.text.back() == '\n') said.text.pop_back();
  return said;
}

std::string first_in_path(const std::vector<std::string>& names) {
  const char* const path = std::getenv("PATH");
  for (const std::string& name : names)
    for (const std::string& folder : cli::split(path ? path : "", ':'))
      if (!folder.empty() && access((folder + "/" + name).c_str(), X_OK) == 0) return name;
  return "";
}

}  // namespace drivetrain::program
