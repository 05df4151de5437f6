#include "even_cuts.h"

#include <algorithm>
#include <limits>

namespace drivetrain {
namespace {

// Costs within this of each other are equal: sums of the same units in another order must not decide a cut.
constexpr double kSameCost = 1e-9;

// The best cut of the first n units into k pieces for all n and k, where `join` adds a last piece to what stands before
// it.
class CutTable {
 public:
  CutTable(const std::vector<double>& costs, int64_t pieces)
      : units_(static_cast<int64_t>(costs.size())), pieces_(pieces), sums_(costs.size() + 1) {
    for (int64_t i = 0; i < units_; ++i) sums_[i + 1] = sums_[i] + costs[i];
  }

  template <class Join>
  double fill(const Join& join) {
    const size_t cells = static_cast<size_t>((pieces_ + 1) * (units_ + 1));
    best_.assign(cells, std::numeric_limits<double>::infinity());
    begin_.assign(cells, 0);
    best_[0] = 0;
    for (int64_t k = 1; k <= pieces_; ++k)
      for (int64_t n = k; n <= units_; ++n)
        for (int64_t b = k - 1; b < n; ++b) {
          const double value = join(best_[cell(k - 1, b)], sums_[n] - sums_[b]);
          // The first one found stays where several are equal: it has the longest last piece.
          if (value >= best_[cell(k, n)] * (1 - kSameCost)) continue;
          best_[cell(k, n)] = value;
          begin_[cell(k, n)] = b;
        }
    return best_[cell(pieces_, units_)];
  }

  std::vector<int64_t> cuts() const {
    std::vector<int64_t> first(static_cast<size_t>(pieces_));
    int64_t n = units_;
    for (int64_t k = pieces_; k > 0; --k) n = first[static_cast<size_t>(k - 1)] = begin_[cell(k, n)];
    return first;
  }

 private:
  size_t cell(int64_t k, int64_t n) const { return static_cast<size_t>(k * (units_ + 1) + n); }

  const int64_t units_, pieces_;
  std::vector<double> sums_, best_;
  std::vector<int64_t> begin_;
};

}  // namespace

std::vector<int64_t> even_cuts(const std::vector<double>& costs, int64_t pieces) {
  CutTable table(costs, pieces);
  const double largest = table.fill([](double before, double piece) { return std::max(before, piece); });
  const double limit = largest * (1 + kSameCost);
  table.fill([&](double before, double piece) {
    return piece > limit ? std::numeric_limits<double>::infinity() : before + piece * piece;
  });
  return table.cuts();
}

}  // namespace drivetrain
