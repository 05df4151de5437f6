// Source: Dao et al. 2022, "FlashAttention", algorithms 1 and 4, with all keys of a block of queries in one step.
// Products are LibTorch's; what is between them is kernels/attention/scores.h.
#include "cpu_masked.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include <drivetrain/toolkit/layers/visible_keys.h>

#include "kernels/attention/scores.h"

namespace drivetrain::flash {
namespace {

constexpr int64_t kBlock = 96;      // queries of a task: fewer keys in vain, or fewer products, both take longer
constexpr int64_t kKeysAlign = 16;  // products of odd numbers of keys take longer than those of some keys more
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::ScalarType wide_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }
int64_t blocks_of(int64_t n) { return (n + kBlock - 1) / kBlock; }
at::Tensor rows(const at::Tensor& x, const RowRange& range) { return x.narrow(0, range.first, range.count); }

// The most keys that a block of queries is multiplied with.
int64_t most_keys(const AttentionArgs& args, int64_t S, int64_t T) {
  if (args.window == 0) return T;
  return std::min(T, (args.causal ? args.window : 2 * args.window - 1) + std::min(kBlock, S) + kKeysAlign - 2);
}

// What one thread uses again from task to task: blocks of scores, and a key head's keys and values in one piece.
class Scratch {
 public:
  Scratch(int64_t keys, const at::TensorOptions& options) : scores_(at::empty({2, kBlock * keys}, options)) {}

  at::Tensor scores(int64_t place, int64_t queries, int64_t keys) const {
    return scores_[place].narrow(0, 0, queries * keys).view({queries, keys});
  }

  int64_t head = -1;  // whose keys and values these are, all batches counted through
  at::Tensor k, v;

 private:
  at::Tensor scores_;
};

// to := a b^T * factor
void multiply_rows(at::Tensor to, const at::Tensor& a, const at::Tensor& b, double factor) {
  at::addmm_out(to, to, a, b.t(), 0, factor);
}

// A call as tasks see it: heads as matrices [positions, D] of the wide type.
struct Call {
  const AttentionArgs& args;
  const int64_t S, T, H, G;
  const at::TensorOptions wide;

  Call(const at::Tensor& q, const at::Tensor& k, const AttentionArgs& a)
      : args(a),
        S(q.size(1)),
        T(k.size(1)),
        H(q.size(2)),
        G(k.size(2)),
        wide(q.options().dtype(wide_type(q.scalar_type()))) {}

  at::Tensor head(const at::Tensor& x, int64_t b, int64_t h) const { return x[b].select(1, h); }
  at::Tensor dense_head(const at::Tensor& x, int64_t b, int64_t h) const {
    return head(x, b, h).to(wide.dtype()).contiguous();
  }
  void load_keys(Scratch& scratch, const AttentionState& s, int64_t b, int64_t h) const {
    const int64_t g = h / (H / G);
    if (scratch.head == b * G + g) return;
    scratch.head = b * G + g, scratch.k = dense_head(s.k, b, g), scratch.v = dense_head(s.v, b, g);
  }

  RowRange keys_of(const RowRange& queries) const {
    RowRange keys = visible_keys(args, queries.first, queries.count, T);
    const int64_t more = keys.count > 0 ? keys.first % kKeysAlign : 0;
    return {keys.first - more, keys.count + more};
  }

  // What of scores [queries, keys] each query sees.
  template <class T>
  void describe(kernels::ScoreRows<T>& op, const at::Tensor& scores, const RowRange& queries,
                const RowRange& keys) const {
    const int64_t distance = queries.first + args.q_offset - keys.first;  // from the first key to the first query
    op.scores = scores.mutable_data_ptr<T>(), op.rows = queries.count, op.columns = keys.count;
    op.begin = args.window > 0 ? distance - args.window + 1 : -queries.count;
    op.end = args.causal ? distance + 1 : args.window > 0 ? distance + args.window : keys.count;
    op.softcap = args.softcap;
  }
};

// Calls use(T{}) with float or double.
template <class Use>
void with_type(const at::Tensor& x, const Use& use) {
  if (x.scalar_type() == at::kDouble)
    use(double{});
  else
    use(float{});
}

void forward_block(const Call& call, const AttentionState& s, int64_t b, int64_t h, const RowRange& queries,
                   Scratch& scratch) {
  const at::Tensor out = rows(call.head(s.out, b, h), queries), lse = rows(s.lse[b][h], queries);
  const RowRange keys = call.keys_of(queries);
  if (keys.count == 0) {
    out.zero_();
    lse.fill_(-kInfinity);
    return;
  }
  call.load_keys(scratch, s, b, h);
  const at::Tensor q = rows(call.head(s.q, b, h), queries).to(call.wide.dtype()),
                   scores = scratch.scores(0, queries.count, keys.count), sums = at::empty({queries.count}, call.wide);
  multiply_rows(scores, q, rows(scratch.k, keys), call.args.scale);
  with_type(scores, [&]<class T>(T) {
    kernels::SoftmaxRows<T> op;
    call.describe(op, scores, queries, keys);
    op.lse = lse.mutable_data_ptr<T>(), op.sums = sums.mutable_data_ptr<T>();
    kernels::softmax_rows_cpu(op);
  });
  sums.masked_fill_(sums.eq(0), 1);
  out.copy_(at::mm(scores, rows(scratch.v, keys)).div_(sums.unsqueeze(1)));
}

// Gradients of one query head: dq [S, D] of the model's type, dk and dv [T, D] of the wide one, which begin as 0.
struct HeadGradients {
  at::Tensor dq, dk, dv;
};

void backward_head(const Call& call, const AttentionState& s, const at::Tensor& given_dout, int64_t b, int64_t h,
                   const HeadGradients& to, Scratch& scratch) {
  call.load_keys(scratch, s, b, h);
  const at::Tensor all_q = call.dense_head(s.q, b, h), all_dout = call.dense_head(given_dout, b, h),
                   all_delta = all_dout.mul(call.dense_head(s.out, b, h)).sum(1);
  at::Tensor all_lse = s.lse[b][h].to(call.wide.dtype());
  all_lse = all_lse.masked_fill(all_lse.eq(-kInfinity), kInfinity);  // sees no key: probabilities of 0
  for (int64_t first = 0; first < call.S; first += kBlock) {
    const RowRange queries{first, std::min(kBlock, call.S - first)};
    const RowRange keys = call.keys_of(queries);
    at::Tensor dq = rows(to.dq, queries);
    if (keys.count == 0) {
      dq.zero_();
      continue;
    }
    const at::Tensor q = rows(all_q, queries), dout = rows(all_dout, queries), k = rows(scratch.k, keys);
    const at::Tensor p = scratch.scores(0, queries.count, keys.count),
                     ds = scratch.scores(1, queries.count, keys.count);
    multiply_rows(p, q, k, call.args.scale);
    multiply_rows(ds, dout, rows(scratch.v, keys), 1);
    with_type(p, [&]<class T>(T) {
      kernels::SoftmaxGradRows<T> op;
      call.describe(op, p, queries, keys);
      op.gradients = ds.mutable_data_ptr<T>();
      op.lse = all_lse.const_data_ptr<T>() + first, op.delta = all_delta.const_data_ptr<T>() + first;
      kernels::softmax_grad_rows_cpu(op);
    });
    rows(to.dv, keys).addmm_(p.t(), dout);
    dq.copy_(at::mm(ds, k).mul_(call.args.scale));
    rows(to.dk, keys).addmm_(ds.t(), q, 1, call.args.scale);
  }
}

// Calls run(task, scratch) for all tasks, on all threads.
template <class Run>
void share_out(const Call& call, int64_t tasks, const Run& run) {
  at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;  // a thread of its own has its own setting
    Scratch scratch(most_keys(call.args, call.S, call.T), call.wide);
    for (int64_t task = begin; task < end; ++task) run(task, scratch);
  });
}

// Of query heads [B, H, T, D] to key heads [B, T, G, D], added in the order of the heads.
at::Tensor by_group(const at::Tensor& x, int64_t G, at::ScalarType type) {
  const at::Tensor groups = x.view({x.size(0), G, x.size(1) / G, x.size(2), x.size(3)});
  return (groups.size(2) == 1 ? groups.squeeze(2) : groups.sum(2)).transpose(1, 2).to(type);
}

}  // namespace

bool beyond_libtorch(const AttentionArgs& args) { return args.window > 0 || args.softcap > 0 || args.q_offset != 0; }

AttentionState masked_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionArgs& args) {
  const RowRange seen = visible_keys(args, 0, q.size(1), k.size(1));
  if (seen.count > 0 && seen.count < k.size(1)) {  // as where one token comes after many
    const auto part = [&](const at::Tensor& x) { return x.narrow(1, seen.first, seen.count); };
    const AttentionState found = masked_forward(q, part(k), part(v), args_of_part(args, 0, seen.first));
    return {q, k, v, found.out, found.lse, {}};
  }
  const Call call(q, k, args);
  const AttentionState state{
      q, k, v, at::empty(q.sizes(), q.options()), at::empty({q.size(0), call.H, call.S}, call.wide), {}};
  const int64_t blocks = blocks_of(call.S);
  share_out(call, q.size(0) * call.H * blocks, [&](int64_t task, Scratch& scratch) {
    const int64_t first = task % blocks * kBlock, head = task / blocks;
    forward_block(call, state, head / call.H, head % call.H, {first, std::min(kBlock, call.S - first)}, scratch);
  });
  return state;
}

Tensors masked_backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) {
  const auto& [q, k, v, out, lse, extra] = state;
  const Call call(q, k, args);
  const at::Tensor dq = at::empty(q.sizes(), q.options()),
                   dk = at::zeros({q.size(0), call.H, call.T, q.size(3)}, call.wide), dv = at::zeros_like(dk);
  share_out(call, q.size(0) * call.H, [&](int64_t task, Scratch& scratch) {
    const int64_t b = task / call.H, h = task % call.H;
    backward_head(call, state, dout, b, h, {call.head(dq, b, h), dk[b][h], dv[b][h]}, scratch);
  });
  return {dq, by_group(dk, call.G, k.scalar_type()), by_group(dv, call.G, v.scalar_type())};
}

Held masked_held_bytes(const AttentionShape& s) {
  const double wide = s.dtype == at::kDouble ? 8 : 4, converted = wide == s.element() ? 0 : wide;
  const double keys = s.window > 0 ? std::min(s.keys, s.window + kBlock + kKeysAlign - 2) : s.keys;
  const double tasks = s.rows * s.heads, threads = at::get_num_threads();
  const double scores = 2 * kBlock * keys * wide, head = s.head_dim * wide, head_grads = tasks * s.keys * head;
  const double of_block = scores + (2 * s.keys + 2 * kBlock) * head;    // k and v; q and out
  const double of_head = scores + (2 * s.keys + 4 * s.queries) * head;  // q, dout, out, and the last two's product
  // Where they are not converted or added up, the gradients of heads are the results.
  const double held_grads = converted > 0 || s.groups < s.heads ? 2 * head_grads : 0;
  return {std::min(threads, tasks * s.queries / kBlock) * of_block, std::min(threads, tasks) * of_head + held_grads};
}

}  // namespace drivetrain::flash
