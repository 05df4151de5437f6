// The rise that warmup schedules share.
#include <drivetrain/toolkit/schedule/warmup.h>

#include <cmath>

#include <drivetrain/error.h>

namespace drivetrain {

double warmup_factor(const Warmup& warmup, int64_t t) {
  const int64_t W = warmup.length();
  if (t < 0) return 0;
  if (t >= W) return 1;
  const double x = static_cast<double>(t), length = static_cast<double>(W);
  return warmup.warmup_type == "linear" ? x / length : std::log(x + 1) / std::log(length);
}

void warn_if_never_full(const Warmup& warmup, int64_t total_num_steps, const char* plugin, Log& log) {
  if (total_num_steps < warmup.length())
    log.warning(concat(plugin, ": total_num_steps ", total_num_steps, " is less than warmup_num_steps ",
                       warmup.length(), ": the full rate is never reached"));
}

}  // namespace drivetrain
