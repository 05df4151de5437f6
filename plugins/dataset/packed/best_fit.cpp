#include "best_fit.h"

#include <bit>

namespace drivetrain::packed {
namespace {

// A set of whole numbers in [0, limit]: words of 64 bits, above them words that say which of them are not zero, and so
// on. Every call takes as many steps as there are levels: three for a quarter of a million.
class NumberSet {
 public:
  explicit NumberSet(size_t limit) {
    size_t words = limit + 1;
    do levels_.emplace_back(words = (words + 63) / 64, 0);
    while (words > 1);
  }

  void insert(size_t x) {
    for (auto& level : levels_) {
      level[x / 64] |= uint64_t{1} << x % 64;
      x /= 64;
    }
  }
  void erase(size_t x) {
    for (auto& level : levels_) {
      level[x / 64] &= ~(uint64_t{1} << x % 64);
      if (level[x / 64] != 0) return;
      x /= 64;
    }
  }
  // The smallest number of the set that is at least x, or -1.
  int64_t next(size_t x) const {
    for (size_t depth = 0; depth < levels_.size(); ++depth) {
      const auto& level = levels_[depth];
      if (x / 64 >= level.size()) return -1;
      if (const uint64_t rest = level[x / 64] >> x % 64; rest != 0) return descend(depth, x + lowest(rest));
      x = x / 64 + 1;
    }
    return -1;
  }

 private:
  static size_t lowest(uint64_t word) { return static_cast<size_t>(std::countr_zero(word)); }
  int64_t descend(size_t depth, size_t x) const {
    while (depth-- > 0) x = x * 64 + lowest(levels_[depth][x]);
    return static_cast<int64_t>(x);
  }

  std::vector<std::vector<uint64_t>> levels_;
};

// Bins by the space that is free in them; among equal ones the last put back comes first.
class OpenBins {
 public:
  explicit OpenBins(int32_t capacity) : capacity_(capacity), spaces_(size(capacity)), first_(size(capacity) + 1, -1) {}

  // The bin that `size` fills best, now with that much less room.
  int32_t take(int32_t wanted) {
    const int64_t space = spaces_.next(size(wanted));
    const int32_t bin = space < 0 ? open() : pop(static_cast<size_t>(space));
    push(bin, static_cast<int32_t>(space < 0 ? capacity_ : space) - wanted);
    return bin;
  }
  size_t count() const { return next_.size(); }

 private:
  static size_t size(int32_t x) { return static_cast<size_t>(x); }
  int32_t open() {
    next_.push_back(-1);
    return static_cast<int32_t>(next_.size()) - 1;
  }
  int32_t pop(size_t space) {
    const int32_t bin = first_[space];
    first_[space] = next_[size(bin)];
    if (first_[space] < 0) spaces_.erase(space);
    return bin;
  }
  void push(int32_t bin, int32_t space) {
    if (space == 0) return;  // full
    next_[size(bin)] = first_[size(space)];
    first_[size(space)] = bin;
    spaces_.insert(size(space));
  }

  const int32_t capacity_;
  NumberSet spaces_;
  std::vector<int32_t> first_;  // by free space: a bin, or -1
  std::vector<int32_t> next_;   // by bin: another one with as much space, or -1
};

// Numbers of the items, sorted by counting.
std::vector<int32_t> decreasing(std::span<const int32_t> sizes, int32_t capacity) {
  std::vector<int32_t> at(static_cast<size_t>(capacity) + 2, 0);
  const auto slot = [&](int32_t size) { return static_cast<size_t>(capacity - size); };
  for (const int32_t size : sizes) ++at[slot(size) + 1];
  for (size_t i = 1; i < at.size(); ++i) at[i] += at[i - 1];
  std::vector<int32_t> order(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) order[static_cast<size_t>(at[slot(sizes[i])]++)] = static_cast<int32_t>(i);
  return order;
}

}  // namespace

Bins best_fit_decreasing(std::span<const int32_t> sizes, int32_t capacity) {
  const std::vector<int32_t> order = decreasing(sizes, capacity);
  OpenBins open(capacity);
  std::vector<int32_t> bin_of(order.size());
  for (size_t i = 0; i < order.size(); ++i) bin_of[i] = open.take(sizes[static_cast<size_t>(order[i])]);
  Bins bins{std::vector<int32_t>(open.count() + 1, 0), std::vector<int32_t>(order.size())};
  for (const int32_t bin : bin_of) ++bins.begin[static_cast<size_t>(bin) + 1];
  for (size_t b = 1; b < bins.begin.size(); ++b) bins.begin[b] += bins.begin[b - 1];
  std::vector<int32_t> at(bins.begin.begin(), bins.begin.end() - 1);
  for (size_t i = 0; i < order.size(); ++i)
    bins.items[static_cast<size_t>(at[static_cast<size_t>(bin_of[i])]++)] = order[i];
  return bins;
}

}  // namespace drivetrain::packed
