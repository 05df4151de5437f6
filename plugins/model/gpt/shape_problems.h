// What shape.cpp and options.cpp share.
#pragma once

#include <drivetrain/error.h>

#include "shape.h"

namespace drivetrain::gpt {

inline constexpr int64_t kLargestSize = (int64_t{1} << 31) - 1;
// Each layer costs a plan some kilobytes before anything is trained, and nobody has trained so many.
inline constexpr int64_t kMostLayers = 10000;
inline constexpr int64_t kMostExperts = 65536;
inline constexpr double kMostParameters = 1e15;  // products of sizes stay far from overflow

// Collects what is wrong, so that all of it is told at once.
class ShapeProblems {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    text_ += concat("\n   ", parts...);
  }
  void throw_if_any(const std::string& head) const {
    if (!text_.empty()) throw fail(ErrorCode::config, "model/gpt: ", head, text_);
  }

 private:
  std::string text_;
};

// Error(config): sizes and switches that do not go together.
void check(const Shape& shape, const std::string& where);
// Of options that have the five sizes without a default.
Shape complete_shape(const Options& options);

}  // namespace drivetrain::gpt
