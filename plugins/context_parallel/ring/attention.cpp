#include "attention.h"

#include <drivetrain/error.h>
#include <drivetrain/step_context.h>
#include <drivetrain/toolkit/layers/by_document.h>
#include <drivetrain/toolkit/units/memory_trace.h>

#include "merged.h"

namespace drivetrain::ring {
namespace {

at::ScalarType wide_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor rows_of(const at::Tensor& x, const RowRange& rows, int64_t dimension, const RowRange& columns) {
  return x.narrow(0, rows.first, rows.count).narrow(dimension, columns.first, columns.count);
}

}  // namespace

void RingAttention::set_group(const GroupPtr& group) {
  keys_ = std::make_unique<RingExchange>(group);
  gradients_ = std::make_unique<RingExchange>(group);
}

AttentionAbilities RingAttention::abilities() const {
  AttentionAbilities can = inner_->abilities();
  can.window = can.q_offset = can.dropout = can.non_causal = can.partial_keys = false;
  can.returns_lse = true;
  can.remedy = "use context_parallel/ulysses";
  return can;
}

void RingAttention::load(const at::Tensor& k, const at::Tensor& v) const {
  keys_->allocate({2, k.size(0), k.size(1), k.size(2), k.size(3)}, k.scalar_type());
  keys_->current().select(0, 0).copy_(k);
  keys_->current().select(0, 1).copy_(v);
}

AttentionState RingAttention::compute(const Block& block, const AttentionState& all, const at::Tensor& k,
                                      const at::Tensor& v, const AttentionArgs& args) const {
  return inner_->forward(rows_of(all.q, block.rows, 1, block.queries), rows_of(k, block.rows, 1, block.keys),
                         rows_of(v, block.rows, 1, block.keys), args);
}

RingAttention::Arguments RingAttention::arguments(const AttentionArgs& args, const RingShape& shape) const {
  Arguments list{args, args};
  list.own.varlen.cu_seqlens = own_boundaries(shape, index_);
  list.others.varlen = {}, list.others.causal = false;
  return list;
}

AttentionState RingAttention::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const AttentionArgs& args) const {
  check_call(q, k, v, args);
  AttentionState state{q, k, v, {}, {}, {}};
  const RingShape shape{q.size(0), q.size(1), ranks_, args.varlen.cu_seqlens};
  const Arguments parts = arguments(args, shape);
  load(k, v);
  keys_->begin();
  const AttentionState own = inner_->forward(q, k, v, parts.own);
  append_list(state.extra, own.extra);
  Merged merged(own.out, own.lse);
  for (int64_t step = 1; step < ranks_; ++step) {
    keys_->wait();
    const at::Tensor keys = keys_->current();
    if (step + 1 < ranks_) keys_->begin();
    for (const Block& block : blocks_between(shape, index_, source(step))) {
      const AttentionState part = compute(block, state, keys[0], keys[1], parts.others);
      append_list(state.extra, part.extra);
      merged.add(part.out, part.lse, block.rows.first, block.queries.first);
    }
  }
  state.out = merged.out().to(q.scalar_type());
  state.lse = merged.lse();
  return state;
}

void RingAttention::check_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionArgs& args) const {
  AttentionArgs here = args;
  here.varlen = {};  // it is about whole sequences
  check("context_parallel/ring", q, k, v, here);
  if (q.size(1) != k.size(1) || q.size(1) % 2 != 0)
    throw fail(ErrorCode::config, "context_parallel/ring: as many keys as queries are needed, an even number; found q ",
               q.sizes(), ", k ", k.sizes());
  const std::string problem = cu_seqlens_problem(args.varlen.cu_seqlens, q.size(0), q.size(1) * ranks_);
  if (!problem.empty()) throw fail(ErrorCode::config, "context_parallel/ring: ", problem);
  if (!keys_) throw fail(ErrorCode::internal, "context_parallel/ring: forward before attach");
}

Tensors RingAttention::compute_backward(const Block& b, const at::Tensor& dout, const AttentionState& all,
                                        const at::Tensor& k, const at::Tensor& v, Tensors extra,
                                        const AttentionArgs& args) const {
  const auto queries = [&](const at::Tensor& x) { return rows_of(x, b.rows, 1, b.queries); };
  const AttentionState part{queries(all.q),
                            rows_of(k, b.rows, 1, b.keys),
                            rows_of(v, b.rows, 1, b.keys),
                            queries(all.out),
                            rows_of(all.lse, b.rows, 2, b.queries).contiguous(),
                            std::move(extra)};
  return inner_->backward(queries(dout), part, args);
}

Tensors RingAttention::backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const {
  const RingShape shape{state.q.size(0), state.q.size(1), ranks_, args.varlen.cu_seqlens};
  const Arguments parts = arguments(args, shape);
  const at::ScalarType sums = wide_type(state.q);
  size_t at_extra = 0;
  load(state.k, state.v);
  keys_->begin();
  const AttentionState all{
      state.q, state.k, state.v, state.out, state.lse.contiguous(), take_list(state.extra, at_extra)};
  const Tensors own = inner_->backward(dout, all, parts.own);
  const at::Tensor dq = own[0].to(sums), dk = own[1].to(sums), dv = own[2].to(sums);
  for (int64_t step = 1; step < ranks_; ++step) {
    keys_->wait();
    const at::Tensor keys = keys_->current();
    if (step + 1 < ranks_) keys_->begin();
    const std::vector<Block> blocks = blocks_between(shape, index_, source(step));
    std::vector<Tensors> found;
    for (const Block& b : blocks) {
      found.push_back(
          compute_backward(b, dout, state, keys[0], keys[1], take_list(state.extra, at_extra), parts.others));
      rows_of(dq, b.rows, 1, b.queries).add_(found.back()[0]);
    }
    if (step > 1)
      gradients_->wait();
    else
      gradients_->allocate(keys.sizes(), sums), gradients_->current().zero_();
    for (size_t i = 0; i < blocks.size(); ++i)
      for (const int64_t which : {0, 1})
        rows_of(gradients_->current()[which], blocks[i].rows, 1, blocks[i].keys)
            .add_(found[i][static_cast<size_t>(1 + which)]);
    gradients_->begin();  // after the last step: home
  }
  gradients_->wait();
  dk.add_(gradients_->current()[0]);
  dv.add_(gradients_->current()[1]);
  return {dq.to(state.q.scalar_type()), dk.to(state.k.scalar_type()), dv.to(state.v.scalar_type())};
}

// The own keys first, with sums in a wide type; then half a block, of other ranks' keys.
AttentionMemory RingAttention::memory(const AttentionShape& s) const {
  AttentionShape half = s;
  half.keys /= 2;
  const AttentionMemory own = inner_->memory(s), part = inner_->memory(half);
  const double wide = s.dtype == at::kDouble ? 8 : 4, q = s.query_bytes() / s.element() * wide,
               k = s.key_bytes() / s.element() * wide;
  const double copies = s.element() < wide ? 1 : 0;
  AttentionMemory memory = attention_memory(s);
  MemoryTrace forward, backward;
  forward.moment(own.forward).take(s.query_bytes()).take(q, copies);
  forward.moment(part.forward).moment(q, 2).take(s.query_bytes(), copies);
  backward.moment(own.backward).take(q).take(k, 2);
  backward.moment(part.backward).take(s.query_bytes(), copies).take(s.key_bytes(), 2 * copies);
  memory.forward = forward.most(), memory.backward = backward.most();
  return memory;
}

}  // namespace drivetrain::ring
