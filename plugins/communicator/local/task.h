// A call as its own rank sees it: the buffers it keeps, what must come before it, how far it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "member.h"
#include "pairs.h"

namespace drivetrain::local {

// How data moves; all members conclude the same from the posted calls.
enum class Route : uint8_t {
  nothing,  // it is where it should be
  pull,     // from the peers' mapped buffers, or into and out of them (all_reduce)
  push,     // into the peers' mapped buffers
  once,     // into the memory that all members share
  windows   // through shared windows, both ends being private
};

struct Task {
  enum class Phase : uint8_t { queued, posted, matched, done };

  PostedCall call;
  toolkit::Counts counts;  // empty: the call has none
  at::Tensor in, out;      // undefined where the call has none
  Use use;
  std::vector<std::shared_ptr<Transfer>> messages;  // earlier ones that use the same memory
  Phase phase = Phase::queued;
  Route route = Route::nothing;
  bool touched = false;  // peers use this rank's buffers, or write its result: over when they are done, too
  int64_t block = -1;    // allocate_once: offset in the lowest member's memory, -1 if some member wants none
  char* once = nullptr;  // that block
  int64_t after = 0;     // the largest of all members' `after`
  int64_t longest = 0;   // slice of any member, in elements
  // Windows of this call: how many, elements of a slice in each, and how many went through which stage.
  int64_t windows = 0, piece = 0, staged = 0, summed = 0, consumed = 0;

  at::ScalarType dtype() const { return call.dtype; }
  int64_t element() const { return static_cast<int64_t>(c10::elementSize(dtype())); }
  const char* source() const { return static_cast<const char*>(in.const_data_ptr()); }
  char* target() const { return static_cast<char*>(out.mutable_data_ptr()); }
};
using TaskPtr = std::shared_ptr<Task>;

}  // namespace drivetrain::local
