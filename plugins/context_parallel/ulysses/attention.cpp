#include "attention.h"

#include <ATen/ops/empty.h>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/units/memory_trace.h>

namespace drivetrain::ulysses {
namespace {

using HeadsOfRank = std::vector<std::vector<RowRange>>;  // of each rank, of each tensor

// What the state keeps beside q, k and v of this rank's heads. `key_heads` is empty: its shape [G, 0] says what there
// are on all ranks together.
enum Extra : size_t { key_heads, inner_out, inner_lse, inner_extra };

int64_t total(const std::vector<RowRange>& ranges) {
  int64_t count = 0;
  for (const RowRange& range : ranges) count += range.count;
  return count;
}

at::Tensor heads_of(const at::Tensor& x, const RowRange& heads) { return x.narrow(2, heads.first, heads.count); }

AttentionState inner_state(const AttentionState& state) {
  return {state.q,
          state.k,
          state.v,
          state.extra[inner_out],
          state.extra[inner_lse],
          {state.extra.begin() + inner_extra, state.extra.end()}};
}

// Gradients of key heads, several ranks' where they share one: added in rank order, in float32 at least.
class KeyGradient {
 public:
  KeyGradient(const at::Tensor& piece, int64_t B, int64_t G, bool shared) : dtype_(piece.scalar_type()) {
    const bool wider = shared && dtype_ != at::kDouble;
    sum_ = at::empty({B, piece.size(0), G, piece.size(3)}, piece.options().dtype(wider ? at::kFloat : dtype_));
  }
  void add(const at::Tensor& piece, const RowRange& heads) {
    const at::Tensor there = heads_of(sum_, heads), here = piece.transpose(0, 1);
    if (heads.first < begun_) {
      there.add_(here);
    } else {
      there.copy_(here);
      begun_ = heads.first + heads.count;
    }
  }
  at::Tensor result() const { return sum_.to(dtype_); }

 private:
  at::ScalarType dtype_;
  at::Tensor sum_;
  int64_t begun_ = 0;  // heads before this one have values
};

}  // namespace

AttentionAbilities HeadsAttention::abilities() const {
  AttentionAbilities can = inner_->abilities();
  can.q_offset = can.returns_lse = false;  // they speak of positions that one rank has
  return can;
}

AttentionState HeadsAttention::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const AttentionArgs& args) const {
  AttentionArgs here = args;
  here.varlen = {};  // it is about whole sequences, which the attention inside has
  check("context_parallel/ulysses", q, k, v, here);
  if (q.size(1) != k.size(1))
    throw fail(ErrorCode::config, "context_parallel/ulysses: as many keys as queries are needed; found q ", q.sizes(),
               ", k ", k.sizes());
  if (!exchange_) throw fail(ErrorCode::internal, "context_parallel/ulysses: forward before attach");
  const std::vector<HeadShare> shares = share_heads(q.size(2), k.size(2), ranks_);
  HeadsOfRank heads;
  std::vector<int64_t> query_widths;
  for (const HeadShare& share : shares) {
    heads.push_back({share.query, share.key, share.key});
    query_widths.push_back(share.query.count);
  }
  const HeadShare& mine = shares[static_cast<size_t>(exchange_->group().rank())];
  const at::Tensor all = to_heads({q, k, v}, heads);
  const int64_t h = mine.query.count, g = mine.key.count;
  AttentionState inner =
      inner_->forward(all.narrow(2, 0, h), all.narrow(2, h, g), all.narrow(2, h + g, g), inner_args(args, mine));

  const Tensors pieces = to_positions({inner.out}, query_widths);
  const at::Tensor out = at::empty(q.sizes(), q.options());
  for (size_t i = 0; i < shares.size(); ++i) heads_of(out, shares[i].query).copy_(pieces[i].transpose(0, 1));
  Tensors extra = {at::empty({k.size(2), 0}), inner.out, inner.lse};
  extra.insert(extra.end(), inner.extra.begin(), inner.extra.end());
  return {inner.q, inner.k, inner.v, out, {}, std::move(extra)};
}

Tensors HeadsAttention::backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const {
  const int64_t B = dout.size(0), H = dout.size(2), G = state.extra[key_heads].size(0);
  const std::vector<HeadShare> shares = share_heads(H, G, ranks_);
  HeadsOfRank heads;
  std::vector<int64_t> widths;
  for (const HeadShare& share : shares) {
    heads.push_back({share.query});
    widths.push_back(share.width());
  }
  const HeadShare& mine = shares[static_cast<size_t>(exchange_->group().rank())];
  const Tensors gradients = inner_->backward(to_heads({dout}, heads), inner_state(state), inner_args(args, mine));
  const Tensors pieces = to_positions(gradients, widths);

  const bool shared = ranks_ > G;
  at::Tensor dq = at::empty(dout.sizes(), pieces[0].options());
  KeyGradient dk(pieces[0], B, G, shared), dv(pieces[0], B, G, shared);
  for (size_t i = 0; i < shares.size(); ++i) {
    const int64_t h = shares[i].query.count, g = shares[i].key.count;
    heads_of(dq, shares[i].query).copy_(pieces[i].narrow(2, 0, h).transpose(0, 1));
    dk.add(pieces[i].narrow(2, h, g), shares[i].key);
    dv.add(pieces[i].narrow(2, h + g, g), shares[i].key);
  }
  return {dq, dk.result(), dv.result()};
}

// Of the rank with the most heads. What has arrived is kept: queries, keys and values of its heads over the whole
// sequence.
AttentionMemory HeadsAttention::memory(const AttentionShape& s) const {
  const HeadShare share = share_heads(static_cast<int64_t>(s.heads), static_cast<int64_t>(s.groups), ranks_).front();
  AttentionShape all = s;
  all.queries *= static_cast<double>(ranks_), all.keys *= static_cast<double>(ranks_);
  all.heads = static_cast<double>(share.query.count), all.groups = static_cast<double>(share.key.count);
  const AttentionMemory inner = inner_->memory(all);
  const double arrived = all.query_bytes() + 2 * all.key_bytes(), here = s.query_bytes() + 2 * s.key_bytes();
  AttentionMemory memory;
  memory.kept.add(inner.kept).add(all.query_bytes(), -1).add(all.key_bytes(), -2).add(arrived).add(s.query_bytes());
  MemoryTrace forward, backward;
  forward.take(arrived).moment(inner.forward).take(all.query_bytes()).take(all.query_bytes()).take(s.query_bytes());
  backward.take(all.query_bytes()).moment(inner.backward).take(all.query_bytes()).take(all.key_bytes(), 2);
  backward.free(all.query_bytes()).take(here).take(s.query_bytes()).take(s.key_bytes(), 2);
  memory.forward = forward.most(), memory.backward = backward.most();
  return memory;
}

AttentionArgs HeadsAttention::inner_args(const AttentionArgs& args, const HeadShare& mine) const {
  AttentionArgs inner = args;
  inner.heads = inner.key.rows = rows_of_part(args.heads, mine.query);
  return inner;
}

at::Tensor HeadsAttention::to_heads(const Tensors& tensors, const HeadsOfRank& heads_of_rank) const {
  const at::Tensor& x = tensors[0];
  const int64_t B = x.size(0), P = x.size(1), D = x.size(3);
  const int64_t width_here = total(heads_of_rank[static_cast<size_t>(exchange_->group().rank())]);
  std::vector<int64_t> lengths, lengths_here(static_cast<size_t>(ranks_), P * B * width_here * D);
  int64_t numel = 0;
  for (const auto& heads : heads_of_rank) {
    lengths.push_back(P * B * total(heads) * D);
    numel += lengths.back();
  }
  const at::Tensor from = exchange_->outbox(numel, x.scalar_type());
  int64_t begin = 0;
  for (size_t j = 0; j < heads_of_rank.size(); ++j) {
    const at::Tensor message = from.narrow(0, begin, lengths[j]).view({P, B, total(heads_of_rank[j]), D});
    begin += lengths[j];
    int64_t at_head = 0;
    for (size_t n = 0; n < tensors.size(); ++n) {
      const RowRange& heads = heads_of_rank[j][n];
      message.narrow(2, at_head, heads.count).copy_(heads_of(tensors[n], heads).transpose(0, 1));
      at_head += heads.count;
    }
  }
  return exchange_->run(from, lengths, lengths_here).view({ranks_ * P, B, width_here, D}).transpose(0, 1);
}

Tensors HeadsAttention::to_positions(const Tensors& tensors, const std::vector<int64_t>& widths) const {
  const at::Tensor& x = tensors[0];
  const int64_t B = x.size(0), S = x.size(1), P = S / ranks_, D = x.size(3);
  const int64_t width = widths[static_cast<size_t>(exchange_->group().rank())];
  const at::Tensor from = exchange_->outbox(S * B * width * D, x.scalar_type());
  const at::Tensor messages = from.view({S, B, width, D});
  int64_t at_head = 0;
  for (const at::Tensor& tensor : tensors) {
    messages.narrow(2, at_head, tensor.size(2)).copy_(tensor.transpose(0, 1));
    at_head += tensor.size(2);
  }
  std::vector<int64_t> lengths_here;
  for (const int64_t w : widths) lengths_here.push_back(P * B * w * D);
  const at::Tensor got = exchange_->run(from, std::vector<int64_t>(widths.size(), P * B * width * D), lengths_here);
  Tensors pieces;
  int64_t begin = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    pieces.push_back(got.narrow(0, begin, lengths_here[i]).view({P, B, widths[i], D}));
    begin += lengths_here[i];
  }
  return pieces;
}

}  // namespace drivetrain::ulysses
