// Times of pieces of work, taken in turns: what the machine does meanwhile meets all of them alike.
#pragma once

#include "bench/bench.h"
#include "internal.h"

namespace drivetrain {

struct Spread {
  double min = 0, median = 0, max = 0;
  Value to_value() const;
};
DRIVETRAIN_INTERNAL Spread spread_of(std::vector<double> values);  // of at least one

using TimedWork = std::function<void()>;

// Seconds of one call; on an accelerator by its own clock, from an empty queue, so the launch counts too.
DRIVETRAIN_INTERNAL double seconds_of(const at::Device& device, const TimedWork& work);
// The same for work that may be repeated as often as one likes: on an accelerator so many calls behind each other, by
// its clock, that the launch of the first, some microseconds, does not show.
DRIVETRAIN_INTERNAL double seconds_of_each(const at::Device& device, const TimedWork& work);

// Every work once for warm-up, then `rounds` times in turn. One list of `rounds` seconds per work.
std::vector<std::vector<double>> take_turns(const at::Device& device, const std::vector<TimedWork>& works,
                                            int64_t rounds);

// a[i] / b[i], round by round.
std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace drivetrain
