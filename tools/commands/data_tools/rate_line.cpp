#include "data_tools/rate_line.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 120) return concat(whole, " s");
  if (whole < 7200) return concat(whole / 60, " min");
  return concat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

}  // namespace

uint64_t bytes_before(const std::vector<TextInput>& inputs, const InputPlace& place) {
  uint64_t bytes = place.file < inputs.size() ? std::min(place.offset, inputs[place.file].bytes) : 0;
  for (size_t i = 0; i < std::min<size_t>(place.file, inputs.size()); ++i) bytes += inputs[i].bytes;
  return bytes;
}

RateLine::RateLine(const std::vector<TextInput>& inputs, uint64_t skipped, Log& log) : skipped_(skipped), log_(log) {
  before_.push_back(0);
  for (const TextInput& input : inputs) before_.push_back(before_.back() + input.bytes);
}

void RateLine::show(const PrepareProgress& progress) {
  const Clock::time_point now = Clock::now();
  const auto since = [&](Clock::time_point then) { return std::chrono::duration<double>(now - then).count(); };
  if (since(shown_) < 0.5) return;
  shown_ = now;
  const uint64_t all = before_.back(), begin = before_[progress.place.file];
  const uint64_t end = progress.place.file + 1 < before_.size() ? before_[progress.place.file + 1] : all;
  const uint64_t done = std::min(begin + progress.place.offset, end);  // the text of a packed file is longer than it
  const double rate = static_cast<double>(done - skipped_) / since(begin_);
  const double left = rate > 0 ? static_cast<double>(all - done) / rate : 0;
  const std::string line =
      concat(formatted("%.1f %% of %.1f MB, %.1f MB/s, ", 100.0 * static_cast<double>(done) / static_cast<double>(all),
                       static_cast<double>(all) / 1e6, rate / 1e6),
             progress.counts.documents, " documents, ",
             formatted("%.1fM tokens, ", static_cast<double>(progress.counts.tokens) / 1e6), time_text(left), " left");
  log_.progress(line);
  if (since(logged_) < 30) return;
  logged_ = now;
  log_.info(line);
}

}  // namespace drivetrain
