#include "kit/conformance.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "kit/kit_error.h"

namespace drivetrain::kit {

void conformance(const cli::Arguments& arguments) {
  const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "drivetrain-conformance").string();
  std::vector<std::string> words = arguments.as_words();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  const int code = errno;
  if (code == ENOENT)
    throw KitError(Exit::plugin, "conformance: " + program +
                                     " is not there\n   it has the suites and is in every whole build: `cmake --build` "
                                     "without a target, then `cmake --install`");
  throw KitError(Exit::plugin, "conformance: cannot start " + program + ": " + std::strerror(code));
}

}  // namespace drivetrain::kit
