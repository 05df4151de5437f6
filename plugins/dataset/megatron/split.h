// "969,30,1": which sequences of a file are for training, validation and test, as Megatron-Core 0.16.1 cuts them: in
// file order, at rounded places. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace drivetrain::megatron {

inline constexpr const char* kPartNames[] = {"train", "valid", "test"};

struct Range {
  int64_t first = 0, end = 0;
  int64_t count() const { return end - first; }
};

class Split {
 public:
  // Up to three numbers with commas between. Error(config) for anything else, and if their sum is not positive.
  explicit Split(const std::string& text);
  // From where to where each part goes, of 1; no value: the part is nothing.
  const std::array<std::optional<std::pair<double, double>>, 3>& bounds() const { return bounds_; }
  bool has(int64_t part) const { return bounds_[static_cast<size_t>(part)].has_value(); }
  Range sequences(int64_t part, int64_t count) const;  // of a file with `count` sequences

 private:
  std::array<std::optional<std::pair<double, double>>, 3> bounds_;
};

}  // namespace drivetrain::megatron
