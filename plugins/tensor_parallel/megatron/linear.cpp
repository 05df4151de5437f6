// The two halves of a transformer's pairs of products: the first one's outputs are cut, the second one's inputs, so
// that between them no rank needs another's. What the ranks send each other is on its way while the weight's gradient
// is computed.
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>

#include "layers.h"

namespace drivetrain::megatron {
namespace {

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// [N, columns] as [B, S, columns] like x.
at::Tensor shaped(const at::Tensor& rows, const at::Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = rows.size(1);
  return rows.view(sizes);
}

ParamPtr weight_of(const LinearSpec& spec, Layout layout) {
  return std::make_shared<Param>(spec.name + ".weight", std::move(layout), spec.init);
}

class CutLinear : public Linear {
 public:
  CutLinear(const Cut& cut, ParamPtr weight, ParamPtr bias)
      : cut_(cut), weight_(std::move(weight)), bias_(std::move(bias)) {}
  std::vector<ParamPtr> params() const override {
    return bias_ ? std::vector<ParamPtr>{weight_, bias_} : std::vector<ParamPtr>{weight_};
  }
  ParamPtr bias() const override { return bias_; }

 protected:
  const Exchange& exchange() const { return *cut_.exchange; }
  at::Tensor weight() const { return weight_->tensor; }
  at::Tensor bias_value(const Options& options) const {
    return bias_ && options.add_bias ? bias_->tensor : at::Tensor();
  }
  void add_bias_gradient(const at::Tensor& dy, const Options& options) const {
    if (bias_ && options.add_bias && bias_->trainable) ops::accumulate_bias_grad(*bias_, as_rows(dy));
  }
  const Cut cut_;
  const ParamPtr weight_, bias_;
};

// y [B, S, O / ranks] = x [B, s, I] W^T + b
class ColumnLinear : public CutLinear {
 public:
  using CutLinear::CutLinear;

  bool keeps_input() const override { return exchange().cuts_positions() && cut_.keep_gathered; }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    at::Tensor whole = x;
    if (exchange().cuts_positions()) {
      whole = exchange().gather_positions(x).finish();
      if (kept && cut_.keep_gathered) *kept = whole;
    }
    return shaped(product(as_rows(whole), weight(), bias_value(options)), whole);
  }

  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::Tensor dy_NO = as_rows(dy);
    const bool again = weight_->trainable && exchange().cuts_positions() && x.size(1) != dy.size(1);
    const auto others = std::make_shared<Pending>();  // their positions of x, on their way during the product
    if (again && !work.puts_off()) *others = exchange().gather_positions(x);
    Pending dx;
    if (options.wants_dx) dx = exchange().sum(shaped(product_backward(dy_NO, weight()), dy));
    if (weight_->trainable)
      work.run([weight = weight_, dy_NO, again, others, x, cut = cut_, later = work.puts_off()] {
        // What is put off holds this rank's share only until then.
        if (again && later) *others = cut.exchange->gather_positions(x);
        accumulate_weight_grad(*weight, dy_NO, as_rows(again ? others->finish() : x));
      });
    add_bias_gradient(dy, options);
    return options.wants_dx ? dx.finish() : at::Tensor();
  }
};

// y [B, s, O] = sum over ranks of x [B, S, I / ranks] W^T, then + b, which all ranks have
class RowLinear : public CutLinear {
 public:
  using CutLinear::CutLinear;

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor*) const override {
    at::Tensor y = exchange().sum(shaped(product(as_rows(x), weight()), x)).finish();
    const at::Tensor b = bias_value(options);
    return b.defined() ? y.add_(b.detach()) : y;
  }

  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    Pending whole;
    if (exchange().cuts_positions()) whole = exchange().gather_positions(dy);
    add_bias_gradient(dy, options);
    const at::Tensor dy_NO = as_rows(exchange().cuts_positions() ? whole.finish() : dy);
    at::Tensor dx;
    if (options.wants_dx) dx = product_backward(dy_NO, weight()).view(x.sizes());
    if (weight_->trainable)
      work.run([weight = weight_, dy_NO, x] { accumulate_weight_grad(*weight, dy_NO, as_rows(x)); });
    return dx;
  }
};

}  // namespace

std::shared_ptr<Linear> column_linear(const LinearSpec& spec, const Cut& cut) {
  const DimSplit split = over_ranks(spec.blocks);
  Layout layout = Layout::whole({spec.out, spec.in});
  layout.dims = {split, {}};
  ParamPtr bias;
  if (spec.bias) {
    Layout of_bias = Layout::whole({spec.out});
    of_bias.dims = {split};
    bias = std::make_shared<Param>(spec.name + ".bias", of_bias, InitRule::zeros());
  }
  return std::make_shared<ColumnLinear>(cut, weight_of(spec, layout), bias);
}

std::shared_ptr<Linear> row_linear(const LinearSpec& spec, const Cut& cut) {
  Layout layout = Layout::whole({spec.out, spec.in});
  layout.dims = {{}, over_ranks()};
  ParamPtr bias;
  if (spec.bias) {
    bias = std::make_shared<Param>(spec.name + ".bias", Layout::whole({spec.out}), InitRule::zeros());
    if (cut.exchange->cuts_positions()) bias->layout.partial_over = {kAxis};
  }
  return std::make_shared<RowLinear>(cut, weight_of(spec, layout), bias);
}

}  // namespace drivetrain::megatron
