// What a group's members tell each other through shared memory.
//
// Each member posts its calls into a ring of its own; a slot is used again when every member has done its part of the
// call that lay there. The counters of a member only grow and are written by it alone, so nothing here is ever reset
// and no rank needs another to be quick. Ownership: the control block lies in the memory of the group's lowest member.
#pragma once

#include <c10/core/ScalarType.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/collective/tree_sum.h"

namespace drivetrain::local {

enum class CallKind : uint32_t {
  none,
  join,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  barrier,
  allocate_once,
  pairs
};
const char* name_of(CallKind kind);

// What the ranks' values are added as; integers wrap, so their sign does not matter. Null: there is no sum.
std::optional<kernels::SumType> sum_type(at::ScalarType dtype);

// Where a buffer lies that peers can reach: the rank whose memory it is and the offset in it.
struct Place {
  int64_t rank = -1;  // -1: in private memory
  int64_t offset = 0;
  bool mapped() const { return rank >= 0; }
  bool operator==(const Place&) const = default;
};

struct Call {
  CallKind kind = CallKind::none;
  int32_t dtype = 0;
  int64_t count = 0;  // elements per slice
  int64_t root = -1;
  Place in, out;
  int64_t number = 0;  // of the group's calls, from 1; make_group is 1, so callers read one less
  int64_t after = 0;   // call that every member must have done before this one may touch this member's buffers

  bool fits(const Call& other) const;
  std::string text() const;                           // "all_reduce of 10 Float"
  std::string where(const std::string& group) const;  // `all_reduce #17 of group "dp"`
};

struct alignas(64) Member {
  static constexpr int64_t kDepth = 64;

  // One cache line: who waits for a member reads all of them anyway.
  std::atomic<int64_t> posted, done;              // number of the last call
  std::atomic<int64_t> staged, summed, consumed;  // windows, over all calls
  std::atomic<uint32_t> waiting_in;               // CallKind, for messages of others
  int64_t windows_offset, rings_offset;           // in the member's own memory; set before the first call is posted
  alignas(64) Call calls[kDepth];

  const Call& call(int64_t number) const { return calls[number % kDepth]; }
};

}  // namespace drivetrain::local
