#include "launch/doctor/clocks.h"

#include <algorithm>
#include <numeric>

namespace drivetrain::program {
namespace {

bool is_behind(const ClockOffset& one, const ClockOffset& other) { return one.ahead_s < other.ahead_s; }

}  // namespace

ClockOffset clock_offset(const std::vector<ClockSample>& samples) {
  const auto first = std::min_element(samples.begin(), samples.end(), [](const ClockSample& a, const ClockSample& b) {
    return a.received_ns - a.sent_ns < b.received_ns - b.sent_ns;
  });
  const int64_t way = first->received_ns - first->sent_ns, middle = first->sent_ns + way / 2;
  return {1e-9 * static_cast<double>(first->there_ns - middle), 0.5e-9 * static_cast<double>(way)};
}

ClockPair farthest_apart(const std::vector<ClockOffset>& offsets) {
  const auto [behind, ahead] = std::minmax_element(offsets.begin(), offsets.end(), is_behind);
  return {static_cast<size_t>(behind - offsets.begin()), static_cast<size_t>(ahead - offsets.begin())};
}

size_t middle_clock(const std::vector<ClockOffset>& offsets) {
  std::vector<size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>((order.size() - 1) / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](size_t a, size_t b) { return is_behind(offsets[a], offsets[b]); });
  return *middle;
}

}  // namespace drivetrain::program
