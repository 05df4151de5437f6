#include "launch/restart_point.h"

namespace drivetrain::program {

// Each point is "TAG FOLDER" and a zero byte, where a tag has no blanks; the last word is "done" and a zero byte.
void RestartPoints::take(const std::string& bytes) {
  unfinished_ += bytes;
  for (size_t end; (end = unfinished_.find('\0')) != std::string::npos; unfinished_.erase(0, end + 1)) {
    const size_t blank = unfinished_.find(' ');
    if (blank >= end) {
      done_ = done_ || unfinished_.substr(0, end) == "done";
      continue;
    }
    newest_ = {unfinished_.substr(0, blank), unfinished_.substr(blank + 1, end - blank - 1)};
    ++count_;
  }
}

}  // namespace drivetrain::program
