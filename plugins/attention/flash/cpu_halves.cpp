#include "cpu_halves.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/attention/flash.h"

namespace drivetrain::flash {
namespace {

using kernels::FlashAttention;
using kernels::FlashBackward;
using kernels::FlashForward;
using kernels::FlashHeads;

// With fewer queries, as when a text grows token by token, packing keys takes longer than all the rest.
constexpr int64_t kLeastQueries = 8;

const uint16_t* bits(const at::Tensor& x) { return static_cast<const uint16_t*>(x.const_data_ptr()); }
uint16_t* mutable_bits(const at::Tensor& x) { return static_cast<uint16_t*>(x.mutable_data_ptr()); }

at::Tensor dense_heads(const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous(); }
FlashHeads heads_of(const at::Tensor& x) { return {bits(x), x.stride(0), x.stride(1), x.stride(2)}; }

// q, k and v have dense heads.
void describe(FlashAttention& op, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
              const AttentionArgs& args) {
  op.batch = q.size(0), op.queries = q.size(1), op.heads = q.size(2), op.head_size = q.size(3);
  op.keys = k.size(1), op.groups = k.size(2);
  op.scale = static_cast<float>(args.scale), op.causal = args.causal;
  op.window = args.window, op.offset = args.q_offset, op.softcap = static_cast<float>(args.softcap);
  op.unit = kernels::product_unit();
  op.q = heads_of(q), op.k = heads_of(k), op.v = heads_of(v);
}

at::Tensor memory_of(int64_t bytes) { return at::empty({bytes}, at::TensorOptions(at::kByte)); }

template <class Op>
int64_t parts_of(const Op& op) {
  return std::min<int64_t>(kernels::flash_tasks(op), at::get_num_threads());
}
template <class Op>
int64_t scratch_bytes(const Op& op) {
  return parts_of(op) * kernels::flash_scratch_bytes(op);
}

// Calls run(scratch, begin, end) for parts of all tasks, on all threads.
template <class Op, class Run>
void share_out(const Op& op, const Run& run) {
  const at::Tensor scratch = memory_of(scratch_bytes(op));
  char* const of_threads = static_cast<char*>(scratch.mutable_data_ptr());
  at::parallel_for(0, kernels::flash_tasks(op), 1, [&](int64_t begin, int64_t end) {
    run(of_threads + at::get_thread_num() * kernels::flash_scratch_bytes(op), begin, end);
  });
}

}  // namespace

bool on_16_bit_products(const at::Tensor& q, const at::Tensor& k) {
  return q.is_cpu() && q.scalar_type() == at::kBFloat16 && kernels::product_unit() != kernels::ProductUnit::none &&
         q.size(1) >= kLeastQueries && k.numel() > 0 && q.size(3) <= kernels::kFlashHeadSize;
}

bool on_16_bit_products(const AttentionShape& s) {
  return s.on_cpu && s.dtype == at::kBFloat16 && kernels::product_unit() != kernels::ProductUnit::none &&
         s.queries >= kLeastQueries && s.head_dim <= kernels::kFlashHeadSize;
}

AttentionState cpu_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) {
  const at::Tensor dense_q = dense_heads(q), dense_k = dense_heads(k), dense_v = dense_heads(v);
  FlashForward op;
  describe(op, dense_q, dense_k, dense_v, args);
  const at::Tensor out = at::empty(q.sizes(), q.options()),
                   lse = at::empty({op.batch, op.heads, op.queries}, q.options().dtype(at::kFloat)),
                   packed = memory_of(kernels::flash_packed_bytes(op));
  op.out = mutable_bits(out), op.lse = lse.mutable_data_ptr<float>(), op.packed = packed.mutable_data_ptr();
  at::parallel_for(0, kernels::flash_packs(op), 1,
                   [&](int64_t begin, int64_t end) { kernels::flash_pack(op, begin, end); });
  share_out(op,
            [&](void* scratch, int64_t begin, int64_t end) { kernels::flash_forward_cpu(op, scratch, begin, end); });
  return {q, k, v, out, lse, {}};
}

Tensors cpu_backward(const at::Tensor& given_dout, const AttentionState& s, const AttentionArgs& args) {
  const at::Tensor q = dense_heads(s.q), k = dense_heads(s.k), v = dense_heads(s.v), out = dense_heads(s.out),
                   dout = dense_heads(given_dout), lse = s.lse.contiguous();
  FlashBackward op;
  describe(op, q, k, v, args);
  op.out = heads_of(out), op.dout = heads_of(dout), op.lse = lse.const_data_ptr<float>();
  const at::Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()),
                   dv = at::empty(k.sizes(), k.options());
  op.dq = mutable_bits(dq), op.dk = mutable_bits(dk), op.dv = mutable_bits(dv);
  at::Tensor head_dk, head_dv;
  if (op.groups < op.heads) {
    head_dk = at::empty({op.batch, op.keys, op.heads, op.head_size}, q.options().dtype(at::kFloat));
    head_dv = at::empty_like(head_dk);
    op.head_dk = head_dk.mutable_data_ptr<float>(), op.head_dv = head_dv.mutable_data_ptr<float>();
  }
  share_out(op,
            [&](void* scratch, int64_t begin, int64_t end) { kernels::flash_backward_cpu(op, scratch, begin, end); });
  if (op.groups < op.heads)
    at::parallel_for(0, op.batch * op.keys * op.groups, 64,
                     [&](int64_t begin, int64_t end) { kernels::flash_sum_heads_cpu(op, begin, end); });
  return {dq, dk, dv};
}

Held cpu_held_bytes(const AttentionShape& s) {
  if (!on_16_bit_products(s)) return {};
  FlashForward forward;
  const auto whole = [](double x) { return static_cast<int64_t>(x); };
  forward.batch = whole(s.rows), forward.queries = whole(s.queries), forward.keys = whole(s.keys);
  forward.heads = whole(s.heads), forward.groups = whole(s.groups), forward.head_size = whole(s.head_dim);
  FlashBackward backward;
  static_cast<FlashAttention&>(backward) = forward;
  const double head_grads = s.groups < s.heads ? s.rows * s.keys * s.heads * s.head_dim * 2 * sizeof(float) : 0;
  return {static_cast<double>(kernels::flash_packed_bytes(forward) + scratch_bytes(forward)),
          head_grads + static_cast<double>(scratch_bytes(backward))};
}

}  // namespace drivetrain::flash
