#include "pairs.h"

#include <algorithm>
#include <bit>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/host_memory/copies.h>

namespace drivetrain::local {
namespace {

using namespace toolkit::host_memory;

bool write_slot(Transfer& t, Ring& ring, int64_t total) {
  const uint32_t sent = ring.sent.load(), read = ring.taken.load();
  if (sent - read == Ring::kSlots) return false;
  const int64_t bytes = std::min(Ring::kSlotBytes, total - t.moved);
  Ring::Head& head = ring.head(sent);
  head = {t.tensor.numel(), static_cast<int32_t>(t.tensor.scalar_type()), ring.first_free(read)};
  stream_bytes(ring.data_of(head), static_cast<const char*>(t.tensor.const_data_ptr()) + t.moved, bytes);
  end_of_stream();
  t.moved += bytes;
  ring.sent.store(sent + 1);
  return true;
}

bool read_slot(Transfer& t, Ring& ring, int64_t total) {
  const uint32_t taken = ring.taken.load();
  if (ring.sent.load() == taken) return false;
  const Ring::Head& head = ring.head(taken);
  if (head.numel != t.tensor.numel() || head.dtype != static_cast<int32_t>(t.tensor.scalar_type())) {
    t.mismatch = concat(head.numel, " ", c10::toString(static_cast<at::ScalarType>(head.dtype)));
    return false;
  }
  const int64_t bytes = std::min(Ring::kSlotBytes, total - t.moved);
  copy_bytes(static_cast<char*>(t.tensor.mutable_data_ptr()) + t.moved, ring.data_of(head), bytes);
  t.moved += bytes;
  ring.taken.store(taken + 1);
  return true;
}

}  // namespace

void Ring::clear() {
  sent = 0, taken = 0, given_back = 0;
  std::fill(std::begin(used), std::end(used), 0);
}

uint32_t Ring::first_free(uint32_t read) {
  constexpr uint32_t kBits = 64;
  for (; given_back != read; ++given_back) {
    const uint32_t place = head(given_back).place % kSlots;
    used[place / kBits] &= ~(uint64_t{1} << place % kBits);
  }
  uint32_t word = 0;
  while (word + 1 < kSlots / kBits && ~used[word] == 0) ++word;
  const auto bit = static_cast<uint32_t>(std::countr_one(used[word])) % kBits;
  used[word] |= uint64_t{1} << bit;
  return word * kBits + bit;
}

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
