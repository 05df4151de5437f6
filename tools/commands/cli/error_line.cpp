#include "cli/error_line.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/printable.h"

namespace drivetrain::cli {
namespace {

constexpr const char *kRed = "\033[31m", *kYellow = "\033[33m", *kPlain = "\033[0m";
constexpr const char *kError = "drivetrain: error:", *kNote = "note:";

std::string coloured(const std::string& line, const char* begin, const char* colour, int fd) {
  if (!line.starts_with(begin) || !has_colour(fd)) return line;
  return std::string(colour) + begin + kPlain + line.substr(std::strlen(begin));
}

}  // namespace

bool has_colour(int fd) {
  const char *const off = std::getenv("NO_COLOR"), *const kind = std::getenv("TERM");
  return isatty(fd) && !(off && *off) && !(kind && std::strcmp(kind, "dumb") == 0);
}

std::string error_line(const std::string& message, int fd) {
  return with_red_begin(std::string(kError) + " " + printable(message) + "\n", fd);
}

std::string note_line(const std::string& message, int fd) {
  return coloured(std::string(kNote) + " " + printable(message) + "\n", kNote, kYellow, fd);
}

std::string with_red_begin(const std::string& line, int fd) { return coloured(line, kError, kRed, fd); }

}  // namespace drivetrain::cli
