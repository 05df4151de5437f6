#include "flows.h"

#include <drivetrain/toolkit/communicator/sum_type.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include <drivetrain/error.h>

#include "kernels/collective/tree_sum.h"

namespace drivetrain::toolkit::messages {
// Nothing else overlaps: slices that are the same memory are left alone.
void copy(char* to, const char* from, int64_t bytes) {
  if (to != from && bytes > 0) memcpy(to, from, static_cast<size_t>(bytes));
}

void add(const Call& call, char* out, const std::vector<const void*>& sources, int64_t bytes) {
  static_assert(static_cast<int>(SumType::i64) == static_cast<int>(kernels::SumType::i64));
  const auto type = static_cast<kernels::SumType>(*sum_type(call.dtype));
  kernels::tree_sum_cpu({sources.data(), out, static_cast<int64_t>(sources.size()), type}, 0,
                        bytes / call.element_bytes());
}

// Sum of what came with the packets and of `own`.
void add_packets(const Operation& op, const Wire& wire, char* out, const char* own, int64_t bytes) {
  std::vector<const void*> sources;
  for (int p = 0; p < wire.size; ++p) sources.push_back(p == wire.me ? own : op.packets.data(p));
  add(op.call, out, sources, bytes);
}

// How a buffer is cut: rank p adds slice p, in pieces. Bytes.
struct Cut {
  int64_t total, slice, piece;

  int64_t pieces() const { return slice == 0 ? 0 : (slice + piece - 1) / piece; }
  int64_t begin(int p, int64_t k) const { return std::min(total, std::min((p + 1) * slice, p * slice + k * piece)); }
  int64_t length(int p, int64_t k) const { return begin(p, k + 1) - begin(p, k); }
};

// A piece under way to the ranks that add it; two in turn.
class SliceStep {
 public:
  SliceStep(const Wire& wire, const Cut& cut) : wire_(wire), cut_(cut) {
    const int64_t slot = std::min(cut.piece, cut.slice);
    scratch_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(slot * wire.size));
    slot_ = slot;
  }
  void post(const char* in, int64_t k) {
    requests_.clear();
    for (int step = 1; step < wire_.size; ++step) {
      const int from = (wire_.me + wire_.size - step) % wire_.size;
      wire_.recv(requests_, &scratch_[static_cast<size_t>(from * slot_)], cut_.length(wire_.me, k), from, kSlices);
    }
    for (int step = 1; step < wire_.size; ++step) {
      const int to = (wire_.me + step) % wire_.size;
      wire_.send(requests_, in + cut_.begin(to, k), cut_.length(to, k), to, kSlices);
    }
  }
  Requests& requests() { return requests_; }
  void sum(const Call& call, char* out, const char* own, int64_t k) const {
    std::vector<const void*> sources;
    for (int p = 0; p < wire_.size; ++p)
      sources.push_back(p == wire_.me ? own : &scratch_[static_cast<size_t>(p * slot_)]);
    add(call, out, sources, cut_.length(wire_.me, k));
  }

 private:
  const Wire& wire_;
  const Cut cut_;
  int64_t slot_ = 0;
  std::unique_ptr<char[]> scratch_;
  Requests requests_;
};

// Piece k of every rank's result.
void post_results(Requests& requests, const Wire& wire, const Cut& cut, char* data, int64_t k) {
  requests.clear();
  for (int step = 1; step < wire.size; ++step) {
    const int from = (wire.me + wire.size - step) % wire.size, to = (wire.me + step) % wire.size;
    wire.recv(requests, data + cut.begin(from, k), cut.length(from, k), from, kResults);
    wire.send(requests, data + cut.begin(wire.me, k), cut.length(wire.me, k), to, kResults);
  }
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
  SliceStep even(wire, cut), odd(wire, cut);
  Requests even_results, odd_results;
  even.post(data, 0);
  for (int64_t k = 0; k < cut.pieces(); ++k) {
    SliceStep& step = k % 2 == 0 ? even : odd;
    Requests& results = k % 2 == 0 ? even_results : odd_results;
    if (k + 1 < cut.pieces()) (k % 2 == 0 ? odd : even).post(data, k + 1);
    // Its own sends are over too, so results may be received where they lay.
    co_await step.requests();
    char* const own = data + cut.begin(wire.me, k);
    step.sum(op.call, own, own, k);
    co_await results;
    post_results(results, wire, cut, data, k);
  }
  co_await even_results;
  co_await odd_results;
}

Flow reduce_scatter(Operation& op, const Wire& wire, char* out, const char* in) {
  const int64_t slice = op.call.bytes();
  if (slice <= kInlineBytes) {
    add_packets(op, wire, out, in + wire.me * slice, slice);
    co_return;
  }
  const Cut cut{slice * wire.size, slice, piece_of(op.call, wire)};
  SliceStep even(wire, cut), odd(wire, cut);
  even.post(in, 0);
  for (int64_t k = 0; k < cut.pieces(); ++k) {
    SliceStep& step = k % 2 == 0 ? even : odd;
    if (k + 1 < cut.pieces()) (k % 2 == 0 ? odd : even).post(in, k + 1);
    co_await step.requests();
    step.sum(op.call, out + k * cut.piece, in + cut.begin(wire.me, k), k);
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

Flow all_gather(Operation& op, const Wire& wire, char* out, const char* in) {
  return slices_from_all(op, wire, out, in, 0, kResults);
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
