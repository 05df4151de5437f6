#include <drivetrain/toolkit/layers/by_document.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace drivetrain {
namespace {

// A document among rows of S positions.
struct Place {
  int64_t row, first, count;

  at::Tensor of(const at::Tensor& x) const { return x.narrow(0, row, 1).narrow(1, first, count); }      // [B, S, H, D]
  at::Tensor of_lse(const at::Tensor& x) const { return x.narrow(0, row, 1).narrow(2, first, count); }  // [B, H, S]
};

template <class Use>
void each_document(const Varlen& varlen, int64_t S, const Use& use) {
  const auto& ends = varlen.cu_seqlens;
  for (size_t i = 0; i + 1 < ends.size(); ++i) use(Place{ends[i] / S, ends[i] % S, ends[i + 1] - ends[i]});
}

AttentionArgs alone(AttentionArgs args) {
  args.varlen = {};
  return args;
}

}  // namespace

void append_list(Tensors& list, const Tensors& more) {
  list.push_back(at::empty({static_cast<int64_t>(more.size()), 0}));
  list.insert(list.end(), more.begin(), more.end());
}

Tensors take_list(const Tensors& list, size_t& at) {
  const auto first = list.begin() + static_cast<int64_t>(at) + 1, end = first + list[at].size(0);
  at = static_cast<size_t>(end - list.begin());
  return {first, end};
}

AttentionState forward_by_document(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionArgs& args,
                                   const std::function<AttentionState(const at::Tensor&, const at::Tensor&,
                                                                      const at::Tensor&, const AttentionArgs&)>& one) {
  AttentionState all{q, k, v, at::empty(q.sizes(), q.options()), {}, {}};
  const AttentionArgs own = alone(args);
  each_document(args.varlen, q.size(1), [&](const Place& place) {
    const AttentionState state = one(place.of(q), place.of(k), place.of(v), own);
    place.of(all.out).copy_(state.out);
    if (!all.lse.defined()) all.lse = at::empty({q.size(0), q.size(2), q.size(1)}, state.lse.options());
    place.of_lse(all.lse).copy_(state.lse);
    append_list(all.extra, state.extra);
  });
  return all;
}

Tensors backward_by_document(
    const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args,
    const std::function<Tensors(const at::Tensor&, const AttentionState&, const AttentionArgs&)>& one) {
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const Tensors gradients = {like(state.q), like(state.k), like(state.v)};
  const AttentionArgs own = alone(args);
  size_t at = 0;
  each_document(args.varlen, state.q.size(1), [&](const Place& place) {
    const AttentionState part{place.of(state.q),
                              place.of(state.k),
                              place.of(state.v),
                              place.of(state.out),
                              place.of_lse(state.lse).contiguous(),
                              take_list(state.extra, at)};
    const Tensors found = one(place.of(dout), part, own);
    for (size_t i = 0; i < gradients.size(); ++i) place.of(gradients[i]).copy_(found[i]);
  });
  return gradients;
}

}  // namespace drivetrain
