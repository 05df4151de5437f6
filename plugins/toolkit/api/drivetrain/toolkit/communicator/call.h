// A call on a group: the values that ranks compare and that error messages name. Value semantics. Thread: any.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::toolkit {

enum class CallKind : uint32_t {
  none,
  make_group,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  all_to_all_counts,  // the overload with one count per rank
  broadcast,
  barrier,
  allocate_once,
  send,
  recv,
  batch  // the sends and receives between batch_begin and batch_end
};
// Accepts any value, since a peer may have written one that is no kind.
const char* name_of(CallKind kind);

// Trivially copyable, so that it can be in shared memory or be sent as bytes.
struct Call {
  CallKind kind = CallKind::none;
  at::ScalarType dtype = at::kFloat;
  // Number of elements (per slice, if the tensor has slices); of a batch: number of sends and receives. Of
  // all_to_all_counts: for the communicator's own use; ranks do not compare it.
  int64_t count = 0;
  int64_t peer = -1;   // the root, or the index of the other rank; -1: none
  int64_t number = 0;  // counts the group's collectives, from 1; 0 for messages

  int64_t element_bytes() const { return static_cast<int64_t>(c10::elementSize(dtype)); }
  int64_t bytes() const { return count * element_bytes(); }

  // Whether two ranks made the same call.
  bool fits(const Call& other) const;

  std::string amount() const;                         // "10 Float"
  std::string text() const;                           // "all_reduce of 10 Float"
  std::string where(const std::string& group) const;  // `all_reduce #17 of group "dp"`
  // The beginning of the error message if ranks made different calls: `ranks disagree about call #17 of group "dp": `.
  std::string disagreement(const std::string& group) const;
};

// The counts of an all_to_all: elements that this rank sends to each rank of the group, and receives from each.
struct Counts {
  std::vector<int64_t> sent, received;
};

// "rank 0 sends 3 Float to rank 1, which expects 4": the text after Call::disagreement. Global ranks.
std::string counts_differ(at::ScalarType dtype, int64_t from, int64_t sent, int64_t to, int64_t expected);

}  // namespace drivetrain::toolkit
