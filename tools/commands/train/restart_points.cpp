#include "train/restart_points.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace drivetrain {
namespace {

// The descriptor that the launcher left open, or -1.
int pipe_to_launcher() {
  const char* const text = std::getenv("DRIVETRAIN_RESTART_POINTS_FD");
  if (!text) return -1;
  int number = -1;
  const char* const end = text + std::strlen(text);
  const auto [stop, failed] = std::from_chars(text, end, number);
  if (failed != std::errc() || stop != end || number < 0 || ::fcntl(number, F_SETFD, FD_CLOEXEC) != 0)
    throw fail(ErrorCode::config, "environment variable DRIVETRAIN_RESTART_POINTS_FD=", text,
               ": wanted a descriptor that is open; only `drivetrain launch` sets it");
  return number;
}

// In one write, which is whole or not at all. A launcher that does not read is nobody's error.
void tell(int pipe, const std::string& text) {
  const ssize_t ignored = ::write(pipe, text.c_str(), text.size() + 1);
  static_cast<void>(ignored);
}

}  // namespace

std::function<void()> connect_launcher(TrainRequest& request) {
  if (const char* begun = std::getenv("DRIVETRAIN_BEGUN_FOLDER")) request.begun_folder = begun;
  const int pipe = pipe_to_launcher();
  if (pipe < 0) return [] {};
  request.on_restart_point = [pipe, &request](const std::string& tag) {
    tell(pipe, tag + " " + request.settings.output_dir);
  };
  return [pipe] { tell(pipe, "done"); };
}

}  // namespace drivetrain
