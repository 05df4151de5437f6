#include "launch/line_relay.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "cli/error_line.h"
#include "launch/rank_pipe.h"

namespace drivetrain::program {
namespace {
constexpr size_t kLastLines = 20;         // a stack trace and what led to it
constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut, so that memory stays bounded
}  // namespace

void LineRelay::finish() {
  if (!line_.empty()) end_line();
  if (!errors_only_) to_->put(ready_);
  ready_.clear();
}

void LineRelay::take(const std::string& bytes) {
  ready_.clear();
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const size_t part = std::min(end - at, kLongestLine - line_.size());
    line_.append(bytes, at, part);
    at += part;
    const bool is_whole = at < bytes.size() && bytes[at] == '\n';
    if (is_whole || line_.size() >= kLongestLine) end_line();
    at += is_whole ? 1 : 0;
  }
  if (!errors_only_) to_->put(prefix_.empty() ? bytes : ready_);
  ready_.clear();
}

void LineRelay::end_line() {
  const bool in_error = !error_.empty() || line_.starts_with(kErrorBegins);
  if (in_error && error_.size() < kLongestLine) error_.append(line_).append("\n");
  if (!prefix_.empty() && (error_.empty() || error_passed_))
    ready_.append(prefix_).append(line_).append("\n");
  else if (!prefix_.empty() && !errors_only_ && error_.size() >= kLongestLine)
    ready_ += take_error();  // no last word: what follows would be lost
  std::string old;           // its memory is used again
  if (last_lines_.size() >= kLastLines) old = std::move(last_lines_.front()), last_lines_.pop_front();
  last_lines_.push_back(std::exchange(line_, std::move(old)));
  line_.clear();
}

std::string LineRelay::take_error() {
  error_passed_ = true;
  std::string text;
  std::istringstream lines(error_);
  for (std::string line; std::getline(lines, line);)
    text.append(prefix_).append(cli::with_red_begin(line, to_->fd())).append("\n");
  return text;
}

void LineRelay::pass_error() {
  if ((prefix_.empty() && !errors_only_) || error_passed_) return;
  to_->put(take_error());
}

}  // namespace drivetrain::program
