// Memory that calls use, to find those that must not run at the same time.
#pragma once

#include <ATen/core/Tensor.h>

namespace drivetrain::local {

struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;

  Range() = default;
  explicit Range(const at::Tensor& t)
      : begin(static_cast<const char*>(t.const_data_ptr())), end(begin == nullptr ? nullptr : begin + t.nbytes()) {}
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

struct Use {
  Range read, written;
  bool conflicts(const Use& other) const {
    return written.meets(other.written) || written.meets(other.read) || read.meets(other.written);
  }
};

}  // namespace drivetrain::local
