// The memory that calls read and write, to find calls that must not run at the same time. Value semantics. Thread: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace drivetrain::toolkit {

// The bytes of a contiguous tensor.
struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;

  Range() = default;
  explicit Range(const at::Tensor& t)
      : begin(static_cast<const char*>(t.const_data_ptr())), end(begin == nullptr ? nullptr : begin + t.nbytes()) {}
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

// What a call reads and writes. Allocates nothing if there is one range of each.
struct Use {
  c10::SmallVector<Range, 1> read, written;
  bool conflicts(const Use& other) const;
};

}  // namespace drivetrain::toolkit
