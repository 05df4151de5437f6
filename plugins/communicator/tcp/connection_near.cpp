// The part of Connection for ranks of one host: long messages that stay in shared memory.
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/host_memory/copies.h>

#include "connection.h"

namespace drivetrain::tcp {

using namespace toolkit::host_memory;

void Seen::add(int64_t number) {
  const std::lock_guard lock(mutex_);
  numbers_.push_back(number);
}

std::vector<int64_t> Seen::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(numbers_, {});
}

bool Connection::lend(const TcpTransferPtr& transfer, int64_t channel, int tag) {
  int64_t at = near_.room->offset_of(transfer->data, transfer->bytes), copy = -1;
  if (at < 0) {
    if (copied_bytes_ + transfer->bytes > kMostCopied) return false;
    const auto block = near_.room->allocate(transfer->bytes);
    stream_bytes(block.address, transfer->data, transfer->bytes);
    end_of_stream();
    at = copy = block.offset;
    copied_bytes_ += transfer->bytes;
  }
  lent_[places_sent_++] = {transfer, copy};
  outgoing_.push_back({{kPlace, static_cast<uint32_t>(tag), channel, transfer->bytes, at}, nullptr});
  return true;
}

void Connection::take_back(int64_t number) {
  const auto lent = lent_.find(number);
  if (lent == lent_.end()) return lose(concat("it has read message ", number, ", which was not lent to it"));
  lent->second.transfer->finished = true;
  if (lent->second.copy >= 0) {
    near_.room->release(lent->second.copy);
    copied_bytes_ -= lent->second.transfer->bytes;
  }
  lent_.erase(lent);
}

// It was asked for: long messages wait until they are.
void Connection::take_place(const Head& head) {
  Stream& s = stream(head.channel, static_cast<int>(head.tag));
  if (s.asked.empty() || !near_.room) return lose(concat("it lent ", head.bytes, " bytes that nobody asked for"));
  const TcpTransferPtr asked = s.asked.front();
  s.asked.pop_front();
  if (head.bytes > asked->bytes)
    return lose(concat("it lent ", head.bytes, " bytes where ", asked->bytes, " were expected"));
  const char* there = nullptr;
  try {
    there = near_.room->find(near_.rank, head.at, head.bytes);
  } catch (const Error& e) {
    return lose(e.what());
  }
  if (there == nullptr)
    return lose(
        concat("it lent ", head.bytes, " bytes at offset ", head.at, " of its shared memory, which are not there"));
  asked->number = places_taken_++;
  if (asked->looks) {
    asked->lies_at = there;
    asked->seen = seen_;
  } else {
    copy_bytes(asked->data, there, head.bytes);
    seen_->add(asked->number);
  }
  asked->finished = true;
}

}  // namespace drivetrain::tcp
