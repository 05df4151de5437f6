// Flash attention, forward and backward. On the CPU our kernel for bfloat16 where the processor multiplies it, else
// LibTorch's; on CUDA the faster of cuDNN's and FlashAttention-2's. What the kernels cannot do is refused.
//
// Which of the two on CUDA is measured once, with the first batch of a training run, on the shape and type of the run.
// The first rank that comes with a shape decides for all ranks that come with it, so that replicas compute alike; it
// is not always rank 0, which may have a stage of a pipeline without attention. Option `backend` makes the choice
// independent of a measurement.
//
// Source: Dao et al. 2022, "FlashAttention", algorithms 1 and 4. The kernel works on [B, H, S, D] with any outer
// strides and returns its results with the strides of [B, S, H, D], so both directions are views. Legend of
// attention.h.
#include <drivetrain/attention.h>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <algorithm>
#include <mutex>

#include <drivetrain/error.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/layers/by_document.h>
#include <drivetrain/toolkit/layers/visible_keys.h>

#include "cpu_halves.h"
#include "cpu_masked.h"
#include "device_halves.h"

namespace {

using namespace drivetrain;
using flash::Backend;
using flash::heads_first;

// Of longer sequences the first ones, taken to decide for all: forty calls of 262,144 are three minutes by count.
constexpr int64_t kMeasuredPositions = 8192;
constexpr double kOtherRanksSeconds = 300;  // for the rank that came first to measure

class Flash : public Attention {
 public:
  struct Options {
    std::string backend = "auto";
  };
  static OptionTable options() {
    return table<Options>()
        .field("backend", &Options::backend, "on CUDA: cudnn, flash, or auto for the faster of them at the start")
        .one_of({"auto", "cudnn", "flash"});
  }

  Flash(const Options& options, const Services& services) : options_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    Attention::plan(ctx);
    ctx.capturable();
    training_ = ctx.run().training;
    documents_ = ctx.run().documents.value_or(false);
    if (on_cpu() && options_.backend == "cudnn")
      ctx.refuse("backend \"cudnn\" needs \"device\": \"cuda\"; leave it out");
  }

  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.gqa = can.varlen = can.returns_lse = can.partial_keys = can.partial_heads = true;
    can.remedy = "use attention/standard";
    if (on_cpu()) {
      can.dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
      can.window = can.q_offset = can.softcap = true;
      return can;
    }
    can.dtypes = {at::kBFloat16, at::kHalf};
    for (int64_t size = 8; size <= 256; size += 8) can.head_sizes.insert(size);
    can.deterministic = false;  // dq is added up by whichever block comes first
    return can;
  }

  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& full_args) const override {
    const bool sized = q.dim() == 4 && k.dim() == 4;
    const AttentionArgs args = sized ? without_idle_masks(full_args, q.size(1), k.size(1)) : full_args;
    check("attention/flash", q, k, v, args);
    if (!args.varlen.cu_seqlens.empty())
      return forward_by_document(q, k, v, args, [this](const auto&... one) { return compute(one...); });
    return compute(q, k, v, args);
  }

  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& full_args) const override {
    const AttentionArgs args = without_idle_masks(full_args, state.q.size(1), state.k.size(1));
    if (!args.varlen.cu_seqlens.empty())
      return backward_by_document(dout, state, args, [this](const auto&... one) { return compute_backward(one...); });
    return compute_backward(dout, state, args);
  }

  // LibTorch's own blocks do not grow with the sequence; those of cpu_halves.h and cpu_masked.h do, one set for each
  // thread.
  AttentionMemory memory(const AttentionShape& s) const override {
    AttentionMemory memory = attention_memory(s);
    const bool masked = s.on_cpu && ((s.window > 0 && s.window < s.keys) || s.softcap);
    const flash::Held held =
        masked && !flash::on_16_bit_products(s) ? flash::masked_held_bytes(s) : flash::cpu_held_bytes(s);
    memory.forward.add(held.forward), memory.backward.add(held.backward);
    return memory;
  }

 private:
  AttentionState compute(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const {
    if (!q.is_cpu()) return on_device(q, k, v, args);
    if (flash::on_16_bit_products(q, k)) return flash::cpu_forward(q, k, v, args);
    if (flash::beyond_libtorch(args)) return flash::masked_forward(q, k, v, args);
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        heads_first(q), heads_first(k), heads_first(v), 0.0, args.causal, {}, args.scale);
    return {q, k, v, out.transpose(1, 2), lse, {}};
  }

  Tensors compute_backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const {
    if (!state.q.is_cpu()) return flash::device_backward(dout, state, args);
    if (flash::on_16_bit_products(state.q, state.k)) return flash::cpu_backward(dout, state, args);
    if (flash::beyond_libtorch(args)) return flash::masked_backward(dout, state, args);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_first(dout), heads_first(state.q), heads_first(state.k), heads_first(state.v), heads_first(state.out),
        state.lse, 0.0, args.causal, {}, args.scale);
    return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
  }

  bool on_cpu() const { return services_.device.is_cpu(); }

  AttentionState on_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionArgs& args) const {
    if (args.causal && q.size(1) != k.size(1))  // the two kernels disagree about where the mask begins
      throw fail(ErrorCode::config, "attention/flash: a causal mask over ", q.size(1), " queries and ", k.size(1),
                 " keys is not supported on CUDA; use attention/standard");
    std::call_once(chosen_, [&] { backend_ = choose(q, k, v, args); });
    return flash::device_forward(backend_, q, k, v, args);
  }

  Backend choose(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) const {
    if (options_.backend != "auto") return options_.backend == "cudnn" ? Backend::cudnn : Backend::flash;
    if (!training_) return Backend::flash;  // a text that grows has a new shape for every token
    // Documents have a new length each.
    if (documents_) return Backend::flash;
    const std::string key = concat("attention/flash/backend/", q.sizes(), k.sizes(), args.causal ? "causal" : "full");
    if (services_.world_size > 1 && services_.store.add(key + "/claim", 1) > 1) {
      const std::string name = services_.store.get(key, kOtherRanksSeconds);
      services_.log.info(concat("attention/flash: ", name, " from now on, as another rank measured for ", q.sizes()));
      return name == flash::name_of(Backend::cudnn) ? Backend::cudnn : Backend::flash;
    }
    const auto first = [](const at::Tensor& x) { return x.narrow(1, 0, std::min(x.size(1), kMeasuredPositions)); };
    const flash::Measured measured = flash::measure(first(q), first(k), first(v), args);
    if (services_.world_size > 1) services_.store.set(key, flash::name_of(measured.faster));
    services_.log.info(concat("attention/flash: ", flash::name_of(measured.faster), " from now on (", measured.text,
                              " forward and backward for ", first(q).sizes(), ")"));
    return measured.faster;
  }

  const Options options_;
  const Services& services_;
  bool training_ = true, documents_ = false;  // training unless a plan says otherwise: benchmarks have none
  mutable std::once_flag chosen_;
  mutable Backend backend_ = Backend::flash;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Attention, "flash", Flash)
