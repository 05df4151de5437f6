// A call on a group: what ranks compare and what error messages name. Value semantics. Thread: any.
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
  all_to_all_counts,  // with a count per pair of ranks
  broadcast,
  barrier,
  allocate_once,
  send,
  recv,
  batch  // sends and receives that belong together
};
// Of any value: a peer may have written one that is no kind.
const char* name_of(CallKind kind);

// Trivially copyable, so that it may lie in shared memory or be sent as it is.
struct Call {
  CallKind kind = CallKind::none;
  at::ScalarType dtype = at::kFloat;
  // Elements, of one slice where there are slices; of a batch: sends and receives.
  // Of all_to_all_counts: for the communicator's own use, ranks do not compare it.
  int64_t count = 0;
  int64_t peer = -1;   // root, or the index of the other end; -1: none
  int64_t number = 0;  // of the group's collectives, from 1; 0 for messages

  int64_t element_bytes() const { return static_cast<int64_t>(c10::elementSize(dtype)); }
  int64_t bytes() const { return count * element_bytes(); }

  // Whether two ranks made the same call.
  bool fits(const Call& other) const;

  std::string amount() const;                         // "10 Float"
  std::string text() const;                           // "all_reduce of 10 Float"
  std::string where(const std::string& group) const;  // `all_reduce #17 of group "dp"`
  // Begins the error of ranks that made different calls: `ranks disagree about call #17 of group "dp": `.
  std::string disagreement(const std::string& group) const;
};

// Of an all_to_all with counts: elements that this rank has for each rank of the group, and expects from each of them.
struct Counts {
  std::vector<int64_t> sent, received;
};

// "rank 0 sends 3 Float to rank 1, which expects 4": goes behind Call::disagreement. Global ranks.
std::string counts_differ(at::ScalarType dtype, int64_t from, int64_t sent, int64_t to, int64_t expected);

}  // namespace drivetrain::toolkit
