#include <drivetrain/toolkit/layers/visible_keys.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

namespace drivetrain {
namespace {

constexpr int64_t kLeastBlock = 64;

// Calls use(first query, count, their keys).
template <class Use>
void each_block_of_queries(const AttentionArgs& args, int64_t S, int64_t T, const Use& use) {
  const int64_t size = window_block(args.window);
  for (int64_t first = 0; first < S; first += size) {
    const int64_t count = std::min(size, S - first);
    use(RowRange{first, count}, visible_keys(args, first, count, T));
  }
}

at::Tensor positions(const at::Tensor& x, const RowRange& range) { return x.narrow(1, range.first, range.count); }

}  // namespace

RowRange visible_keys(const AttentionArgs& args, int64_t first, int64_t count, int64_t T) {
  const int64_t nearest = first + args.q_offset, furthest = nearest + count - 1;
  const int64_t begin = args.window > 0 ? std::max<int64_t>(0, nearest - args.window + 1) : 0;
  const int64_t end = args.causal ? furthest + 1 : args.window > 0 ? furthest + args.window : T;
  return {begin, std::max<int64_t>(0, std::min(end, T) - begin)};
}

AttentionArgs without_idle_masks(AttentionArgs args, int64_t S, int64_t T) {
  const int64_t behind = S - 1 + args.q_offset, ahead = args.causal ? 0 : T - 1 - args.q_offset;
  if (args.window > std::max(behind, ahead)) args.window = 0;
  if (args.q_offset >= T - 1) args.causal = false;
  if (!args.causal && args.window == 0) args.q_offset = 0;
  return args;
}

AttentionArgs args_of_part(AttentionArgs args, int64_t first_query, int64_t first_key) {
  args.q_offset += first_query - first_key;
  return args;
}

int64_t window_block(int64_t window) { return std::max(kLeastBlock, window / 8); }

AttentionState forward_by_window(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionArgs& args,
                                 const std::function<AttentionState(const at::Tensor&, const at::Tensor&,
                                                                    const at::Tensor&, const AttentionArgs&)>& one) {
  const auto wide = q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  AttentionState all{q, k, v, at::empty(q.sizes(), q.options()), at::empty({q.size(0), q.size(2), q.size(1)}, wide),
                     {}};
  each_block_of_queries(args, q.size(1), k.size(1), [&](const RowRange& queries, const RowRange& keys) {
    const at::Tensor out = positions(all.out, queries), lse = all.lse.narrow(2, queries.first, queries.count);
    if (keys.count == 0) {
      out.zero_();
      lse.fill_(-std::numeric_limits<double>::infinity());
      return;
    }
    const AttentionState state = one(positions(q, queries), positions(k, keys), positions(v, keys),
                                     args_of_part(args, queries.first, keys.first));
    out.copy_(state.out);
    lse.copy_(state.lse);
  });
  return all;
}

Tensors backward_by_window(
    const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args,
    const std::function<Tensors(const at::Tensor&, const AttentionState&, const AttentionArgs&)>& one) {
  const auto& [q, k, v, out, lse, extra] = state;
  const Tensors sums = {at::zeros(q.sizes(), q.options()), at::zeros(k.sizes(), k.options()),
                        at::zeros(v.sizes(), v.options())};
  each_block_of_queries(args, q.size(1), k.size(1), [&](const RowRange& queries, const RowRange& keys) {
    if (keys.count == 0) return;
    const AttentionState part{positions(q, queries),
                              positions(k, keys),
                              positions(v, keys),
                              positions(out, queries),
                              lse.narrow(2, queries.first, queries.count),
                              {}};
    const Tensors found = one(positions(dout, queries), part, args_of_part(args, queries.first, keys.first));
    positions(sums[0], queries).copy_(found[0]);
    positions(sums[1], keys).add_(found[1]);
    positions(sums[2], keys).add_(found[2]);
  });
  return sums;
}

}  // namespace drivetrain
