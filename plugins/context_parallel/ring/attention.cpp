#include "attention.h"

#include <ATen/ops/empty.h>

#include <drivetrain/error.h>

#include "merged.h"

namespace drivetrain::ring {
namespace {

at::ScalarType wide_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// What each step's attention keeps, in one list: its length in the shape of an empty tensor [n, 0], then the tensors.
void append_extra(Tensors& list, const Tensors& extra) {
  list.push_back(at::empty({static_cast<int64_t>(extra.size()), 0}));
  list.insert(list.end(), extra.begin(), extra.end());
}
Tensors take_extra(const Tensors& list, size_t& at) {
  const auto first = list.begin() + static_cast<int64_t>(at) + 1, end = first + list[at].size(0);
  at = static_cast<size_t>(end - list.begin());
  return {first, end};
}

}  // namespace

void RingAttention::set_group(const GroupPtr& group) {
  keys_ = std::make_unique<RingExchange>(group);
  gradients_ = std::make_unique<RingExchange>(group);
}

AttentionAbilities RingAttention::abilities() const {
  AttentionAbilities can = inner_->abilities();
  can.varlen = can.window = can.q_offset = can.dropout = can.non_causal = can.partial_keys = false;
  can.returns_lse = true;
  can.remedy = "use context_parallel/ulysses";
  return can;
}

RingAttention::Block RingAttention::block(int64_t step, int64_t T) const {
  if (step == 0) return {true, 0, T, T};
  if (step <= index_) return {false, 0, T, T / 2};  // keys of rank index_ - step
  return {false, T / 2, T / 2, T};
}

void RingAttention::load(const at::Tensor& k, const at::Tensor& v) const {
  keys_->allocate({2, k.size(0), k.size(1), k.size(2), k.size(3)}, k.scalar_type());
  keys_->current().select(0, 0).copy_(k);
  keys_->current().select(0, 1).copy_(v);
}

AttentionState RingAttention::compute(const Block& block, const AttentionState& all, const at::Tensor& k,
                                      const at::Tensor& v, AttentionArgs args) const {
  args.causal = block.causal;
  return inner_->forward(all.q.narrow(1, block.first_query, block.queries), k.narrow(1, 0, block.keys),
                         v.narrow(1, 0, block.keys), args);
}

AttentionState RingAttention::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const AttentionArgs& args) const {
  check("context_parallel/ring", q, k, v, args);
  if (q.size(1) != k.size(1) || q.size(1) % 2 != 0)
    throw fail(ErrorCode::config, "context_parallel/ring: as many keys as queries are needed, an even number; found q ",
               q.sizes(), ", k ", k.sizes());
  if (!keys_) throw fail(ErrorCode::internal, "context_parallel/ring: forward before attach");
  AttentionState state{q, k, v, {}, {}, {}};
  load(k, v);
  keys_->begin();
  const AttentionState own = compute(block(0, q.size(1)), state, k, v, args);
  append_extra(state.extra, own.extra);
  Merged merged(own.out, own.lse);
  for (int64_t step = 1; step < ranks_; ++step) {
    keys_->wait();
    const at::Tensor keys = keys_->current();
    if (step + 1 < ranks_) keys_->begin();
    const Block b = block(step, q.size(1));
    const AttentionState part = compute(b, state, keys[0], keys[1], args);
    append_extra(state.extra, part.extra);
    merged.add(part.out, part.lse, b.first_query);
  }
  state.out = merged.out().to(q.scalar_type());
  state.lse = merged.lse();
  return state;
}

Tensors RingAttention::compute_backward(const Block& b, const at::Tensor& dout, const AttentionState& all,
                                        const at::Tensor& k, const at::Tensor& v, Tensors extra,
                                        AttentionArgs args) const {
  args.causal = b.causal;
  const auto queries = [&](const at::Tensor& x) { return x.narrow(1, b.first_query, b.queries); };
  const AttentionState part{queries(all.q),
                            k.narrow(1, 0, b.keys),
                            v.narrow(1, 0, b.keys),
                            queries(all.out),
                            all.lse.narrow(2, b.first_query, b.queries).contiguous(),
                            std::move(extra)};
  return inner_->backward(queries(dout), part, args);
}

Tensors RingAttention::backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const {
  const int64_t T = state.q.size(1);
  const at::ScalarType sums = wide_type(state.q);
  size_t at_extra = 0;
  load(state.k, state.v);
  keys_->begin();
  const Tensors own =
      compute_backward(block(0, T), dout, state, state.k, state.v, take_extra(state.extra, at_extra), args);
  const at::Tensor dq = own[0].to(sums), dk = own[1].to(sums), dv = own[2].to(sums);
  for (int64_t step = 1; step < ranks_; ++step) {
    keys_->wait();
    const at::Tensor keys = keys_->current();
    if (step + 1 < ranks_) keys_->begin();
    const Block b = block(step, T);
    const Tensors part = compute_backward(b, dout, state, keys[0], keys[1], take_extra(state.extra, at_extra), args);
    dq.narrow(1, b.first_query, b.queries).add_(part[0]);
    if (step > 1)
      gradients_->wait();
    else
      gradients_->allocate(keys.sizes(), sums), gradients_->current().zero_();
    for (const int64_t i : {0, 1}) gradients_->current()[i].narrow(1, 0, b.keys).add_(part[static_cast<size_t>(1 + i)]);
    gradients_->begin();  // after the last step: home
  }
  gradients_->wait();
  dk.add_(gradients_->current()[0]);
  dv.add_(gradients_->current()[1]);
  return {dq.to(state.q.scalar_type()), dk.to(state.k.scalar_type()), dv.to(state.v.scalar_type())};
}

}  // namespace drivetrain::ring
