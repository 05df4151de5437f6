#include "base/piped.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "base/rank_variables.h"

namespace drivetrain {

int descriptor_named(const std::string& path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = -1;
    const char* const end = path.data() + path.size();
    if (path.rfind(folder, 0) != 0) continue;
    const auto [last, error] = std::from_chars(path.data() + folder.size(), end, number);
    if (error == std::errc() && last == end && number >= 0) return number;
  }
  return -1;
}

bool is_piped(const std::string& path) {
  struct stat found = {};
  return descriptor_named(path) >= 0 || (stat(path.c_str(), &found) == 0 && S_ISFIFO(found.st_mode));
}

std::filesystem::path folder_of_document(const std::string& path) {
  const RankStart start = RankStart::read();
  if (!start.config_folder.empty() && path == start.config_copy) return start.config_folder;
  return is_piped(path) ? std::filesystem::path() : std::filesystem::path(path).parent_path();
}

}  // namespace drivetrain
