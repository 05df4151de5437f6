// Point-to-point messages: a ring of slots in shared memory for each ordered pair of ranks, one writer and one reader.
//
// A message takes as many slots as it needs, at least one; each says what the whole message is, so a receive that does
// not fit the send is noticed. Nothing here waits: `advance` moves what can be moved now. Ownership: the receiver's
// file holds the ring; a Transfer keeps its tensor. Thread: one per end of a ring.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/toolkit/communicator/memory_use.h>

namespace drivetrain::local {

using toolkit::Range;
using toolkit::Use;

struct alignas(64) Ring {
  // 8 MB: a message of that size is on its way when `send` returns, though its sender computes from then on.
  // Places that nobody writes have no memory. A slot's data goes to the first free place, so memory is taken for what
  // was ever unread at one time.
  static constexpr uint32_t kSlots = 128;
  static constexpr int64_t kSlotBytes = 64 << 10;

  struct Head {
    int64_t numel;
    int32_t dtype;
    uint32_t place;  // of the slot's data
  };

  std::atomic<uint32_t> sent;  // slots written so far
  // The writer's own: which places have data, and how many of the slots that were read gave theirs back.
  uint64_t used[kSlots / 64];
  uint32_t given_back;
  alignas(64) std::atomic<uint32_t> taken;  // slots read so far
  alignas(64) Head heads[kSlots];
  alignas(64) char data[kSlots][kSlotBytes];

  void clear();  // before either end uses it
  Head& head(uint32_t slot) { return heads[slot % kSlots]; }
  char* data_of(const Head& head) { return data[head.place % kSlots]; }
  // For the writer, which has seen that so many slots were read. There is one, since fewer than kSlots are unread.
  uint32_t first_free(uint32_t read);
};

struct Transfer {
  bool sending = false;
  bool batched = false;  // in a batch that has not ended
  at::Tensor tensor;
  Use use;
  int64_t peer = 0;                                // index within the group
  int64_t after = 0;                               // collective that uses the same memory and must be over first
  std::vector<std::shared_ptr<Transfer>> earlier;  // messages that use the same memory
  int64_t moved = 0;                               // bytes
  bool finished = false;
  std::string mismatch;  // set by advance: what the other end sent instead

  std::string text() const;  // "send of 3 Float"
};

// Moves as much as the ring allows; true if that was anything.
bool advance(Transfer& transfer, Ring& ring);

}  // namespace drivetrain::local
