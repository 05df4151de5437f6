#include "attention.h"

#include <ATen/ops/zeros.h>

#include <optional>

#include <drivetrain/error.h>
#include <drivetrain/step_context.h>
#include <drivetrain/toolkit/layers/by_document.h>
#include <drivetrain/toolkit/units/memory_trace.h>

#include "merged.h"

namespace drivetrain::ring {
namespace {

// The columns of k or v [B, T, G, D] of this rank that a part is about.
at::Tensor keys_of(const Part& part, const at::Tensor& x) { return rows_of(x, part.block.rows, 1, part.block.keys); }

std::vector<Block> blocks_of(const std::vector<Part>& parts) {
  std::vector<Block> blocks;
  for (const Part& part : parts) blocks.push_back(part.block);
  return blocks;
}

}  // namespace

void RingAttention::set_group(const GroupPtr& group) { exchanges_ = std::make_unique<Exchanges>(group); }

AttentionAbilities RingAttention::abilities() const {
  AttentionAbilities can = inner_->abilities();
  can.window = can.window && can.q_offset;  // keys of other chunks are at a distance
  can.q_offset = can.dropout = can.non_causal = can.partial_keys = false;
  can.returns_lse = true;
  can.remedy = "use context_parallel/ulysses";
  return can;
}

std::unique_ptr<Travel> RingAttention::begin_travel(const at::Tensor& k, const at::Tensor& v,
                                                    const RingShape& shape) const {
  return shape.window > 0 ? travel_straight(*exchanges_, k, v, shape) : travel_round(*exchanges_, k, v);
}

AttentionState RingAttention::compute(const Part& part, const AttentionState& all, const at::Tensor& k,
                                      const at::Tensor& v) const {
  return inner_->forward(rows_of(all.q, part.block.rows, 1, part.block.queries), k, v, part.args);
}

RingShape RingAttention::shape_of(const at::Tensor& q, const AttentionArgs& args) const {
  const int64_t S = q.size(1) * ranks_;
  return {q.size(0), q.size(1), ranks_, args.varlen.cu_seqlens, args.window < S ? args.window : 0};
}

std::vector<Part> RingAttention::own_parts(const AttentionArgs& args, const RingShape& shape) const {
  AttentionArgs own = args;
  own.window = shape.window;
  if (shape.window == 0) {
    own.varlen.cu_seqlens = own_boundaries(shape, index_);
    return {{{{0, shape.rows}, {0, shape.columns}, {0, shape.columns}}, own}};
  }
  std::vector<Part> parts;
  for (const OwnChunk& chunk : own_chunks(shape, index_)) {
    own.varlen.cu_seqlens = chunk.boundaries;
    parts.push_back({{{0, shape.rows}, chunk.columns, chunk.columns}, own});
  }
  for (const Part& part : parts_with(index_, args, shape)) parts.push_back(part);
  return parts;
}

std::vector<Part> RingAttention::parts_with(int64_t other, const AttentionArgs& args, const RingShape& shape) const {
  std::vector<Part> parts;
  for (const Block& block : blocks_between(shape, index_, other)) {
    parts.push_back({block, args});
    AttentionArgs& own = parts.back().args;
    own.varlen = {}, own.causal = false, own.window = block.window, own.q_offset = block.offset;
  }
  return parts;
}

AttentionState RingAttention::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const AttentionArgs& args) const {
  check_call(q, k, v, args);
  AttentionState state{q, k, v, {}, {}, {}};
  const RingShape shape = shape_of(q, args);
  const auto travel = begin_travel(k, v, shape);
  std::optional<Merged> merged;
  const std::vector<Part> own = own_parts(args, shape);
  if (own.size() > 1) merged = Merged::nothing(q);
  const auto add = [&](const Part& part, const at::Tensor& keys, const at::Tensor& values) {
    const AttentionState found = compute(part, state, keys, values);
    append_list(state.extra, found.extra);
    if (merged)
      merged->add(found.out, found.lse, part.block.rows.first, part.block.queries.first);
    else
      merged.emplace(found.out, found.lse);
  };
  for (const Part& part : own) add(part, keys_of(part, k), keys_of(part, v));
  for (int64_t step = 1; step < ranks_; ++step) {
    const std::vector<Part> parts = parts_with(source(step), args, shape);
    const Tensors arrived = travel->arrived(step, blocks_of(parts));
    for (size_t i = 0; i < parts.size(); ++i) add(parts[i], arrived[2 * i], arrived[2 * i + 1]);
  }
  state.out = merged->out().to(q.scalar_type());
  state.lse = merged->lse();
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
  if (!exchanges_) throw fail(ErrorCode::internal, "context_parallel/ring: forward before attach");
}

Tensors RingAttention::compute_backward(const Part& call, const at::Tensor& dout, const AttentionState& all,
                                        const at::Tensor& k, const at::Tensor& v, Tensors extra) const {
  const Block& b = call.block;
  const auto queries = [&](const at::Tensor& x) { return rows_of(x, b.rows, 1, b.queries); };
  const AttentionState part{
      queries(all.q), k, v, queries(all.out), rows_of(all.lse, b.rows, 2, b.queries).contiguous(), std::move(extra)};
  return inner_->backward(queries(dout), part, call.args);
}

Tensors RingAttention::own_gradients(const at::Tensor& dout, const AttentionState& state,
                                     const std::vector<Part>& parts, size_t& at_extra) const {
  const at::ScalarType type = wide_type(state.q);
  Tensors sums;
  if (parts.size() > 1)
    for (const at::Tensor* x : {&state.q, &state.k, &state.v})
      sums.push_back(at::zeros(x->sizes(), x->options().dtype(type)));
  for (const Part& part : parts) {
    const Tensors found = compute_backward(part, dout, state, keys_of(part, state.k), keys_of(part, state.v),
                                           take_list(state.extra, at_extra));
    if (sums.empty()) return {found[0].to(type), found[1].to(type), found[2].to(type)};
    const auto& [rows, queries, keys, window, offset] = part.block;
    rows_of(sums[0], rows, 1, queries).add_(found[0]);
    rows_of(sums[1], rows, 1, keys).add_(found[1]);
    rows_of(sums[2], rows, 1, keys).add_(found[2]);
  }
  return sums;
}

Tensors RingAttention::backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const {
  const RingShape shape = shape_of(state.q, args);
  size_t at_extra = 0;
  const auto travel = begin_travel(state.k, state.v, shape);
  const Tensors own = own_gradients(dout, state, own_parts(args, shape), at_extra);
  const at::Tensor dq = own[0], dk = own[1], dv = own[2];
  for (int64_t step = 1; step < ranks_; ++step) {
    const std::vector<Part> parts = parts_with(source(step), args, shape);
    const Tensors arrived = travel->arrived(step, blocks_of(parts));
    Tensors found;  // of keys and values
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tensors part =
          compute_backward(parts[i], dout, state, arrived[2 * i], arrived[2 * i + 1], take_list(state.extra, at_extra));
      rows_of(dq, parts[i].block.rows, 1, parts[i].block.queries).add_(part[0]);
      found.push_back(part[1]), found.push_back(part[2]);
    }
    travel->give(step, blocks_of(parts), found);
  }
  const Tensors home = travel->home();
  dk.add_(home[0]);
  dv.add_(home[1]);
  return {dq.to(state.q.scalar_type()), dk.to(state.k.scalar_type()), dv.to(state.v.scalar_type())};
}

// The own keys first, with sums in a wide type; then half a block, of other ranks' keys. With a window chunks meet one
// by one, and the sums are there from the beginning.
AttentionMemory RingAttention::memory(const AttentionShape& s) const {
  const bool windowed = s.window > 0 && s.window < s.keys * static_cast<double>(ranks_);
  AttentionShape whole = s, half = s;
  half.keys /= 2;
  if (windowed) half.queries /= 2, whole = half;
  const AttentionMemory own = inner_->memory(whole), part = inner_->memory(half);
  const double wide = s.dtype == at::kDouble ? 8 : 4, q = s.query_bytes() / s.element() * wide,
               k = s.key_bytes() / s.element() * wide;
  const double copies = s.element() < wide ? 1 : 0;
  AttentionMemory memory = attention_memory(s);
  MemoryTrace forward, backward;
  if (windowed) {
    forward.take(q).moment(own.forward).take(half.query_bytes());
    backward.take(q).take(k, 2).moment(own.backward).take(k, 2);  // at last what others give
  } else {
    forward.moment(own.forward).take(s.query_bytes()).take(q, copies);
    backward.moment(own.backward).take(q).take(k, 2);
  }
  forward.moment(part.forward).moment(q, 2).take(s.query_bytes(), copies);
  backward.moment(part.backward).take(s.query_bytes(), copies).take(s.key_bytes(), 2 * copies);
  memory.forward = forward.most(), memory.backward = backward.most();
  return memory;
}

}  // namespace drivetrain::ring
