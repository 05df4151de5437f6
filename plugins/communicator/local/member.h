// What a group's members tell each other through shared memory.
//
// Each member posts its calls into a ring of its own; a slot is used again when every member has done its part of the
// call that lay there. The counters of a member only grow and are written by it alone, so nothing here is ever reset
// and no rank needs another to be quick. Ownership: the control block lies in the memory of the group's lowest member.
#pragma once

#include <drivetrain/toolkit/communicator/call.h>
#include <drivetrain/toolkit/host_memory/address_book.h>

#include <atomic>
#include <cstdint>

namespace drivetrain::local {

using toolkit::CallKind;
using namespace toolkit::host_memory;  // a part of this plugin that others share

struct PostedCall : toolkit::Call {
  Place in, out;
  int64_t turn = 0;   // counts make_group too, which is 1
  int64_t after = 0;  // turn of the call that every member must have done before this one may touch this one's buffers
};

struct alignas(64) Member {
  static constexpr int64_t kDepth = 64;

  // One cache line: who waits for a member reads all of them anyway.
  std::atomic<int64_t> posted, done;              // turn of the last call
  std::atomic<int64_t> staged, summed, consumed;  // windows, over all calls
  std::atomic<uint32_t> waiting_in;               // CallKind, for messages of others
  int64_t windows_offset, rings_offset;           // in the member's own memory; set before the first call is posted
  alignas(64) PostedCall calls[kDepth];

  const PostedCall& call(int64_t turn) const { return calls[turn % kDepth]; }
};

// Behind the members lie the counts of their calls: per member and slot, what it sends to each rank and what it expects
// from each. Only calls with counts write them.
class CountTable {
 public:
  CountTable() = default;
  CountTable(int64_t* table, int64_t members) : table_(table), members_(members) {}
  static int64_t bytes(int64_t members) { return members * Member::kDepth * 2 * members * int64_t{sizeof(int64_t)}; }

  int64_t* sent(int64_t member, int64_t turn) const {
    return table_ + (member * Member::kDepth + turn % Member::kDepth) * 2 * members_;
  }
  int64_t* received(int64_t member, int64_t turn) const { return sent(member, turn) + members_; }

 private:
  int64_t* table_ = nullptr;
  int64_t members_ = 0;
};

}  // namespace drivetrain::local
