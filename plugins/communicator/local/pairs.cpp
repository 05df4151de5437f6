#include "pairs.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/host_memory/copies.h>

namespace drivetrain::local {
namespace {

using namespace toolkit::host_memory;

bool write_slot(Transfer& t, Ring& ring, int64_t total) {
  const uint32_t sent = ring.sent.load();
  if (sent - ring.taken.load() == Ring::kSlots) return false;
  const uint32_t slot = sent % Ring::kSlots;
  const int64_t bytes = std::min(Ring::kSlotBytes, total - t.moved);
  ring.heads[slot] = {t.tensor.numel(), static_cast<int32_t>(t.tensor.scalar_type())};
  stream_bytes(ring.data[slot], static_cast<const char*>(t.tensor.const_data_ptr()) + t.moved, bytes);
  end_of_stream();
  t.moved += bytes;
  ring.sent.store(sent + 1);
  return true;
}

bool read_slot(Transfer& t, Ring& ring, int64_t total) {
  const uint32_t taken = ring.taken.load();
  if (ring.sent.load() == taken) return false;
  const uint32_t slot = taken % Ring::kSlots;
  const Ring::Head& head = ring.heads[slot];
  if (head.numel != t.tensor.numel() || head.dtype != static_cast<int32_t>(t.tensor.scalar_type())) {
    t.mismatch = concat(head.numel, " ", c10::toString(static_cast<at::ScalarType>(head.dtype)));
    return false;
  }
  const int64_t bytes = std::min(Ring::kSlotBytes, total - t.moved);
  copy_bytes(static_cast<char*>(t.tensor.mutable_data_ptr()) + t.moved, ring.data[slot], bytes);
  t.moved += bytes;
  ring.taken.store(taken + 1);
  return true;
}

}  // namespace

std::string Transfer::text() const {
  return concat(sending ? "send" : "recv", " of ", tensor.numel(), " ", c10::toString(tensor.scalar_type()));
}

bool advance(Transfer& t, Ring& ring) {
  const int64_t total = static_cast<int64_t>(t.tensor.nbytes());
  bool moved = false;
  // Half a ring at a time, so that both ends work at once.
  for (uint32_t i = 0; i < Ring::kSlots / 2 && !t.finished; ++i) {
    if (!(t.sending ? write_slot(t, ring, total) : read_slot(t, ring, total))) break;
    moved = true;
    t.finished = t.moved == total;
  }
  return moved;
}

}  // namespace drivetrain::local
