// LibTorch's CPU flash attention, forward and backward. What the kernel cannot do is refused.
//
// Source: Dao et al. 2022, "FlashAttention", algorithms 1 and 4. The kernel works on [B, H, S, D] with any outer
// strides and returns its results with the strides of [B, S, H, D], so both directions are views. Legend of
// attention.h.
#include <drivetrain/attention.h>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

at::Tensor heads_first(const at::Tensor& x) { return (x.stride(3) == 1 ? x : x.contiguous()).transpose(1, 2); }

// The kernel's causal mask starts at position 0. Where query 0 sees every key already there is no mask at all, as for
// one token after its past; without a mask the offset means nothing.
AttentionArgs simplified(AttentionArgs args, int64_t T) {
  if (args.causal && args.window == 0 && args.q_offset >= T - 1) args.causal = false;
  if (!args.causal && args.window == 0) args.q_offset = 0;
  return args;
}

class Flash : public Attention {
 public:
  Flash(const NoOptions&, const Services&) {}

  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
    can.gqa = can.returns_lse = true;
    can.remedy = "use attention/standard";
    return can;
  }

  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& full_args) const override {
    const AttentionArgs args = k.dim() == 4 ? simplified(full_args, k.size(1)) : full_args;
    check("attention/flash", q, k, v, args);
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        heads_first(q), heads_first(k), heads_first(v), 0.0, args.causal, {}, args.scale);
    return {q, k, v, out.transpose(1, 2), lse, {}};
  }

  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& full_args) const override {
    const AttentionArgs args = simplified(full_args, state.k.size(1));
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_first(dout), heads_first(state.q), heads_first(state.k), heads_first(state.v), heads_first(state.out),
        state.lse, 0.0, args.causal, {}, args.scale);
    return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Attention, "flash", Flash)
