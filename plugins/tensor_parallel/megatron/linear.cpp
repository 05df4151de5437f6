// The two halves of a transformer's pairs of products: the first one's outputs are cut, the second one's inputs, so
// that between them no rank needs another's. The factory inside makes the layers of this rank's part, whatever they
// compute; what the ranks send each other is on its way while the gradients of their parameters are computed.
#include <algorithm>

#include <drivetrain/toolkit/ops/ops.h>

#include "late_input.h"
#include "layers.h"

namespace drivetrain::megatron {
namespace {

class CutLinear : public Linear {
 public:
  CutLinear(const Cut& cut, std::shared_ptr<Linear> inner) : cut_(cut), inner_(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  ParamPtr bias() const override { return inner_->bias(); }

 protected:
  const Exchange& exchange() const { return *cut_.exchange; }
  const Linear& inner() const { return *inner_; }
  const Cut cut_;

 private:
  const std::shared_ptr<Linear> inner_;
};

// y [B, S, O / ranks] = x [B, s, I] W^T + b
class ColumnLinear : public CutLinear {
 public:
  using CutLinear::CutLinear;

  bool keeps_input() const override { return keeps_gathered() || inner().keeps_input(); }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    const at::Tensor whole = exchange().cuts_positions() ? exchange().gather_positions(x).finish() : x;
    at::Tensor y = inner().apply(whole, options, kept);
    if (kept && !kept->defined() && keeps_gathered()) *kept = whole;
    return y;
  }

  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const bool again = exchange().cuts_positions() && x.size(1) != dy.size(1), later = work.puts_off();
    const bool needed = again && reads_input();
    const auto others = std::make_shared<Pending>();  // their positions of x, on their way during the product
    if (needed && !later) *others = exchange().gather_positions(x);
    const LateInput late = again ? LateInput(whole_sizes(x, dy), x.options()) : LateInput();
    // Held back until the sum over ranks has begun.
    WeightWork::Parked held;
    WeightWork hold(&held);
    at::Tensor dx = inner().apply_backward(dy, again ? late.tensor() : x, options, hold);
    Pending sum;
    if (options.wants_dx) sum = exchange().sum(dx.contiguous());
    dx.reset();
    if (!held.empty())
      work.run([held = std::move(held), needed, later, others, late, x, cut = cut_] {
        // What is put off holds this rank's share only until then.
        if (needed && later) *others = cut.exchange->gather_positions(x);
        if (needed) late.fill(others->finish());
        for (const auto& gradient : held) gradient();
      });
    return options.wants_dx ? sum.finish() : at::Tensor();
  }

 private:
  bool keeps_gathered() const { return exchange().cuts_positions() && cut_.keep_gathered; }
  // Every gradient but the bias's.
  bool reads_input() const {
    const std::vector<ParamPtr> all = params();
    return std::any_of(all.begin(), all.end(), [&](const ParamPtr& p) { return p->trainable && p != bias(); });
  }
  static std::vector<int64_t> whole_sizes(const at::Tensor& x, const at::Tensor& dy) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes[1] = dy.size(1);
    return sizes;
  }
};

// y [B, s, O] = sum over ranks of x [B, S, I / ranks] W^T, then + b, which all ranks have
class RowLinear : public CutLinear {
 public:
  using CutLinear::CutLinear;

  bool keeps_input() const override { return inner().keeps_input(); }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    at::Tensor y = exchange().sum(inner().apply(x, bare(options), kept).contiguous()).finish();
    const ParamPtr b = options.add_bias ? bias() : nullptr;
    return b ? y.add_(b->tensor.detach()) : y;
  }

  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    Pending whole;
    if (exchange().cuts_positions()) whole = exchange().gather_positions(dy);
    const ParamPtr b = options.add_bias ? bias() : nullptr;
    if (b && b->trainable) ops::accumulate_bias_grad(*b, dy.reshape({-1, dy.size(-1)}));
    return inner().apply_backward(exchange().cuts_positions() ? whole.finish() : dy, x, bare(options), work);
  }

 private:
  static Options bare(Options options) {
    options.add_bias = false;
    return options;
  }
};

int64_t share(int64_t size, const Cut& cut) { return size / cut.exchange->ranks(); }

}  // namespace

std::shared_ptr<Linear> column_linear(const LinearSpec& spec, const Cut& cut, LayerFactory& inner) {
  LinearSpec own = spec;
  own.weight = weight_layout(spec);
  own.weight->dims = {over_ranks(spec.blocks), {}};
  own.out = share(spec.out, cut);
  for (int64_t& block : own.blocks) block = share(block, cut);
  return std::make_shared<ColumnLinear>(cut, inner.linear(own));
}

std::shared_ptr<Linear> row_linear(const LinearSpec& spec, const Cut& cut, LayerFactory& inner) {
  LinearSpec own = spec;
  own.weight = weight_layout(spec);
  own.weight->dims = {{}, over_ranks()};
  own.in = share(spec.in, cut);
  std::shared_ptr<Linear> layer = inner.linear(own);
  if (layer->bias() && cut.exchange->cuts_positions()) layer->bias()->layout.partial_over = {kAxis};
  return std::make_shared<RowLinear>(cut, std::move(layer));
}

}  // namespace drivetrain::megatron
