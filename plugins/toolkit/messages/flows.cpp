#include "flows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include <drivetrain/error.h>

#include "pieces.h"

namespace drivetrain::toolkit::messages {
// Nothing else overlaps: slices that are the same memory are left alone.
void copy(char* to, const char* from, int64_t bytes) {
  if (to != from && bytes > 0) memcpy(to, from, static_cast<size_t>(bytes));
}

// Sum of what came with the packets and of `own`.
void add_packets(const Operation& op, const Wire& wire, char* out, const char* own, int64_t bytes) {
  std::vector<const void*> sources;
  for (int p = 0; p < wire.size; ++p) sources.push_back(p == wire.me ? own : op.packets.data(p));
  add_sources(op.call, out, sources, bytes);
}

int64_t piece_of(const Call& call, const Wire& wire) {
  return std::max<int64_t>(1, wire.piece_bytes / call.element_bytes()) * call.element_bytes();
}

bool Operation::shares_an_end(const Operation& other) const {
  for (const Message& a : messages)
    for (const Message& b : other.messages)
      if (a.call.kind == b.call.kind && a.call.peer == b.call.peer) return true;
  return false;
}

Flow barrier() { co_return; }

Flow all_reduce(Operation& op, const Wire& wire, char* data) {
  if (op.call.bytes() <= kInlineBytes) {
    add_packets(op, wire, data, data, op.call.bytes());
    co_return;
  }
  const int64_t slice = (op.call.count + wire.size - 1) / wire.size * op.call.element_bytes();
  const Cut cut{op.call.bytes(), slice, piece_of(op.call, wire)};
  SliceSum even(wire, cut, op.call), odd(wire, cut, op.call);
  Spread spread(wire, cut, data);
  even.post(data, 0), odd.post(data, 1);
  // Three pieces are under way: one comes together on this host, one between hosts, one is spread on this host.
  for (int64_t k = 0; k < cut.pieces() + 2; ++k) {
    if (k < cut.pieces()) {
      SliceSum& sum = k % 2 == 0 ? even : odd;
      co_await sum.near();
      sum.send_parts();
    }
    if (k >= 1 && k <= cut.pieces()) {
      SliceSum& sum = k % 2 == 0 ? odd : even;
      co_await sum.parts();
      sum.add(data + cut.begin(wire.me, k - 1));
      // What this rank has sent is read by then, so results may be received where it lay.
      co_await sum.sent_parts();
      sum.let_go();
      co_await sum.sent_near();
      spread.post(k - 1);
      sum.post(data, k + 1);
    }
    if (k >= 2) {
      co_await spread.from_hosts(k - 2);
      spread.relay(k - 2);
    }
  }
  for (int64_t k = 0; k < cut.pieces(); ++k) co_await spread.rest(k);
}

Flow reduce_scatter(Operation& op, const Wire& wire, char* out, const char* in) {
  const int64_t slice = op.call.bytes();
  if (slice <= kInlineBytes) {
    add_packets(op, wire, out, in + wire.me * slice, slice);
    co_return;
  }
  const Cut cut{slice * wire.size, slice, piece_of(op.call, wire)};
  SliceSum even(wire, cut, op.call), odd(wire, cut, op.call);
  even.post(in, 0), odd.post(in, 1);
  for (int64_t k = 0; k <= cut.pieces(); ++k) {
    if (k < cut.pieces()) {
      SliceSum& sum = k % 2 == 0 ? even : odd;
      co_await sum.near();
      sum.send_parts();
    }
    if (k == 0) continue;
    SliceSum& sum = k % 2 == 0 ? odd : even;
    co_await sum.parts();
    sum.add(out + (k - 1) * cut.piece);
    co_await sum.sent_parts();
    sum.let_go();
    co_await sum.sent_near();
    sum.post(in, k + 1);
  }
}

// Every rank gets one slice from each: the one at `stride` times its index.
Flow slices_from_all(Operation& op, const Wire& wire, char* out, const char* in, int64_t stride, Tag tag) {
  const int64_t slice = op.call.bytes();
  copy(out + wire.me * slice, in + wire.me * stride, slice);
  Requests requests;
  for (int step = 1; step < wire.size; ++step) {
    const int from = (wire.me + wire.size - step) % wire.size, to = (wire.me + step) % wire.size;
    if (slice <= kInlineBytes) {
      copy(out + from * slice, op.packets.data(from), slice);
      continue;
    }
    wire.recv(requests, out + from * slice, slice, from, tag);
    wire.send(requests, in + to * stride, slice, to, tag);
  }
  co_await requests;
}

// What comes from another host comes once and is passed on, piece by piece.
Flow gather_over_hosts(Operation& op, const Wire& wire, char* out, const char* in) {
  const int64_t slice = op.call.bytes();
  const Cut cut{slice * wire.size, slice, piece_of(op.call, wire)};
  copy(out + wire.me * slice, in, slice);
  Spread spread(wire, cut, out);
  for (int64_t k = 0; k < cut.pieces(); ++k) spread.post(k);
  for (int64_t k = 0; k < cut.pieces(); ++k) {
    co_await spread.from_hosts(k);
    spread.relay(k);
  }
  for (int64_t k = 0; k < cut.pieces(); ++k) co_await spread.rest(k);
}

Flow all_gather(Operation& op, const Wire& wire, char* out, const char* in) {
  const bool over_hosts = wire.hosts.count() > 1 && wire.hosts.any_near() && op.call.bytes() > kInlineBytes;
  return over_hosts ? gather_over_hosts(op, wire, out, in) : slices_from_all(op, wire, out, in, 0, kResults);
}

Flow all_to_all(Operation& op, const Wire& wire, char* out, const char* in) {
  return slices_from_all(op, wire, out, in, op.call.bytes(), kSlices);
}

Flow all_to_all_counts(Operation& op, const Wire& wire, char* out, const char* in) {
  const auto slice = [&](const std::vector<int64_t>& counts, int index) {
    const auto first = counts.begin(), own = first + index;
    const int64_t element = op.call.element_bytes();
    return std::pair(std::accumulate(first, own, int64_t{0}) * element, *own * element);
  };
  const auto [own_out, own_bytes] = slice(op.counts.received, wire.me);
  copy(out + own_out, in + slice(op.counts.sent, wire.me).first, own_bytes);
  Requests requests;
  for (int step = 1; step < wire.size; ++step) {
    const int from = (wire.me + wire.size - step) % wire.size, to = (wire.me + step) % wire.size;
    const auto [there, received] = slice(op.counts.received, from);
    const auto [here, sent] = slice(op.counts.sent, to);
    if (received <= kInlineBytes)
      copy(out + there, op.packets.data(from), received);
    else
      wire.recv(requests, out + there, received, from, kSlices);
    if (sent > kInlineBytes) wire.send(requests, in + here, sent, to, kSlices);
  }
  co_await requests;
}

Flow broadcast(Operation& op, const Wire& wire, char* data) {
  const int root = static_cast<int>(op.call.peer);
  if (op.call.bytes() <= kInlineBytes) {
    if (root != wire.me) copy(data, op.packets.data(root), op.call.bytes());
    co_return;
  }
  // Down a binomial tree over the ranks from the root on, piece by piece.
  const int place = (wire.me - root + wire.size) % wire.size;
  const auto rank_at = [&](int at) { return (at + root) % wire.size; };
  const int own_bit = place == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(wire.size))) : place & -place;
  const int64_t piece = piece_of(op.call, wire), pieces = (op.call.bytes() + piece - 1) / piece;
  const auto length = [&](int64_t k) { return std::min(piece, op.call.bytes() - k * piece); };
  const auto arrived = std::make_unique<Requests[]>(static_cast<size_t>(pieces));
  for (int64_t k = 0; k < pieces && place != 0; ++k)
    wire.recv(arrived[static_cast<size_t>(k)], data + k * piece, length(k), rank_at(place - own_bit), kResults);
  Requests sent;
  for (int64_t k = 0; k < pieces; ++k) {
    co_await arrived[static_cast<size_t>(k)];
    for (int bit = own_bit / 2; bit > 0; bit /= 2)
      if (place + bit < wire.size) wire.send(sent, data + k * piece, length(k), rank_at(place + bit), kResults);
  }
  co_await sent;
}

Flow messages(Operation& op, const Wire& wire, const std::vector<int64_t>& ranks, const std::string& label) {
  const size_t count = op.messages.size();
  const auto heads = std::make_unique_for_overwrite<Packet[]>(count);
  const auto small = [](const Message& m) { return m.call.bytes() <= kInlineBytes; };
  Requests head_requests, data_requests;
  for (size_t i = 0; i < count; ++i) {
    const Message& m = op.messages[i];
    const int peer = static_cast<int>(m.call.peer);
    if (m.call.kind == CallKind::recv) {
      wire.recv(head_requests, &heads[i], sizeof(Packet), peer, kHeads);
      if (!small(m)) wire.recv(data_requests, m.tensor.mutable_data_ptr(), m.call.bytes(), peer, kMessages);
      continue;
    }
    heads[i].call = m.call;
    if (small(m)) copy(heads[i].data, static_cast<const char*>(m.tensor.const_data_ptr()), m.call.bytes());
    wire.send(head_requests, &heads[i], static_cast<int64_t>(sizeof(Call)) + (small(m) ? m.call.bytes() : 0), peer,
              kHeads);
    if (!small(m)) wire.send(data_requests, m.tensor.const_data_ptr(), m.call.bytes(), peer, kMessages);
  }
  co_await head_requests;
  for (size_t i = 0; i < count; ++i) {
    const Message& m = op.messages[i];
    if (m.call.kind != CallKind::recv) continue;
    const Call& sent = heads[i].call;
    if (sent.count != m.call.count || sent.dtype != m.call.dtype)
      throw fail(ErrorCode::communication, "group \"", label, "\": rank ", ranks[static_cast<size_t>(m.call.peer)],
                 " sent ", sent.amount(), " where rank ", ranks[static_cast<size_t>(wire.me)], " called recv of ",
                 m.call.amount());
    if (small(m)) copy(static_cast<char*>(m.tensor.mutable_data_ptr()), heads[i].data, m.call.bytes());
  }
  co_await data_requests;
}

}  // namespace drivetrain::toolkit::messages
