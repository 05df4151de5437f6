#include "wire.h"

#include <algorithm>
#include <cstring>

#include <drivetrain/error.h>

namespace drivetrain::toolkit::messages {

// A multiple of the piece, so that tests with small pieces also cut what is not summed.
int64_t Wire::most_bytes() const { return std::min(carrier->most_bytes(), 64 * piece_bytes); }

void Wire::send(Requests& requests, const void* data, int64_t bytes, int to, Tag tag) const {
  for (int64_t at = 0; at < bytes; at += most_bytes())
    requests.add(
        to, carrier->send(channel, to, tag, static_cast<const char*>(data) + at, std::min(most_bytes(), bytes - at)));
}

void Wire::recv(Requests& requests, void* data, int64_t bytes, int from, Tag tag) const {
  for (int64_t at = 0; at < bytes; at += most_bytes())
    requests.add(from,
                 carrier->recv(channel, from, tag, static_cast<char*>(data) + at, std::min(most_bytes(), bytes - at)));
}

TransferPtr Wire::look(Requests& requests, void* data, int64_t bytes, int from, Tag tag) const {
  TransferPtr transfer = carrier->look(channel, from, tag, data, bytes);
  requests.add(from, transfer);
  return transfer;
}

Hosts::Hosts(std::vector<int> of_members) : of_(std::move(of_members)) {
  const int size = static_cast<int>(of_.size());
  for (int i = 0; i < size; ++i) {
    if (of(i) >= count()) members_.resize(static_cast<size_t>(of(i)) + 1);
    auto& on_host = members_[static_cast<size_t>(of(i))];
    place_.push_back(static_cast<int>(on_host.size()));
    on_host.push_back(i);
  }
  const auto crosses = [&](int level) {
    for (int i = 1; i < size; ++i)
      if (!near(i, (i >> level) << level)) return true;
    return false;
  };
  while (1 << level_ < size && !crosses(level_ + 1)) ++level_;
}

int Hosts::relay(int host, int member) const {
  if (of(member) == host) return member;
  const std::vector<int>& there = on(host);
  return there[static_cast<size_t>(place_[static_cast<size_t>(member)]) % there.size()];
}

std::shared_ptr<char> Scratch::take(size_t bytes) {
  Piece piece;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [bytes](const Piece& p) { return p.bytes >= bytes; });
    if (found != kept_.end()) {
      piece = std::move(*found);
      kept_bytes_ -= piece.bytes;
      kept_.erase(found);
    }
  }
  if (!piece.memory) piece = {std::make_unique_for_overwrite<char[]>(bytes), bytes};
  const size_t size = piece.bytes;
  return {piece.memory.release(), [self = shared_from_this(), size](char* memory) {
            self->keep({std::unique_ptr<char[]>(memory), size});
          }};
}

void Scratch::keep(Piece piece) {
  const std::lock_guard lock(mutex_);
  if (kept_bytes_ + piece.bytes > kMostKept) kept_.clear(), kept_bytes_ = 0;
  if (piece.bytes > kMostKept) return;
  kept_bytes_ += piece.bytes;
  kept_.push_back(std::move(piece));
}

void Packets::post(const Wire& wire, const Call& call, const PayloadFor& payload_for) {
  const auto size = static_cast<size_t>(wire.size);
  to_ = std::make_unique_for_overwrite<Packet[]>(size);
  from_ = std::make_unique_for_overwrite<Packet[]>(size);
  // Step by step another peer, so that not all ranks send to the same one.
  for (int step = 1; step < wire.size; ++step) {
    const int from = (wire.me + wire.size - step) % wire.size;
    requests_.add(from, wire.carrier->recv(wire.channel, from, kPackets, &from_[from], sizeof(Packet)));
  }
  for (int step = 1; step < wire.size; ++step) {
    const int to = (wire.me + step) % wire.size;
    Packet& packet = to_[to];
    packet.call = call;
    const Payload payload = payload_for ? payload_for(to) : Payload{};
    if (call.kind == CallKind::all_to_all_counts) packet.call.count = payload.count;
    const int64_t bytes = payload.count * call.element_bytes();
    const bool inside = payload.exists() && bytes <= kInlineBytes;
    if (inside) memcpy(packet.data, payload.data, static_cast<size_t>(bytes));
    const size_t length = sizeof(Call) + (inside ? static_cast<size_t>(bytes) : 0);
    requests_.add(to, wire.carrier->send(wire.channel, to, kPackets, &packet, static_cast<int64_t>(length)));
  }
}

void Packets::compare(const Wire& wire, const Call& call, const std::vector<int64_t>& expected,
                      const std::vector<int64_t>& ranks, const std::string& label) const {
  const auto called = [&](int index) -> const Call& { return index == wire.me ? call : from_[index].call; };
  const auto rank = [&](int index) { return ranks[static_cast<size_t>(index)]; };
  for (int i = 1; i < wire.size; ++i)
    if (!called(i).fits(called(0)))
      throw fail(ErrorCode::communication, call.disagreement(label), "rank ", rank(0), " called ", called(0).text(),
                 ", rank ", rank(i), " called ", called(i).text());
  for (int i = 0; i < wire.size && call.kind == CallKind::all_to_all_counts; ++i)
    if (const int64_t wanted = expected[static_cast<size_t>(i)]; i != wire.me && called(i).count != wanted)
      throw fail(ErrorCode::communication, call.disagreement(label),
                 counts_differ(call.dtype, rank(i), called(i).count, rank(wire.me), wanted));
}

}  // namespace drivetrain::toolkit::messages
