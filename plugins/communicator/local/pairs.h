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
  // Slots that nobody writes have no memory.
  static constexpr uint32_t kSlots = 128;
  static constexpr int64_t kSlotBytes = 64 << 10;

  struct Head {
    int64_t numel;
    int32_t dtype;
  };

  std::atomic<uint32_t> sent;               // slots written so far
  alignas(64) std::atomic<uint32_t> taken;  // slots read so far
  alignas(64) Head heads[kSlots];
  alignas(64) char data[kSlots][kSlotBytes];
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
