// Cuts the weights of matrices over ranks: each computes some of the outputs, and all ranks gather all of them.
//
// Memory of weights, their gradients and the optimizer falls with the number of ranks; activations stay whole, so
// nothing but the matrices needs to know. A matrix whose outputs the ranks do not divide stays whole.
#include <drivetrain/toolkit/layer_sharing.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace {

using namespace drivetrain;

const char* const kAxis = "new_plugin";  // of the mesh

// weight [O / ranks, I]; bias [O], whole on every rank. N: rows of x.
class CutLinear : public Linear {
 public:
  CutLinear(const LinearSpec& spec, std::shared_ptr<LayerRanks> ranks) : ranks_(std::move(ranks)) {
    Layout layout = Layout::whole({spec.out, spec.in});
    layout.dims = {{{kAxis}, {}, 0}, {}};
    weight_ = std::make_shared<Param>(spec.name + ".weight", layout, spec.init);
    if (spec.bias) bias_ = std::make_shared<Param>(spec.name + ".bias", Layout::whole({spec.out}), InitRule::zeros());
  }
  std::vector<ParamPtr> params() const override {
    return bias_ ? std::vector<ParamPtr>{weight_, bias_} : std::vector<ParamPtr>{weight_};
  }
  ParamPtr bias() const override { return bias_; }

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor*) const override {
    const at::Tensor own = product(x.reshape({-1, x.size(-1)}), weight_->tensor);
    const at::Tensor all = at::empty({ranks_->size, own.size(0), own.size(1)}, own.options());
    ranks_->group->all_gather(all, own.contiguous())->wait();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = ranks_->size * own.size(1);
    const at::Tensor y = at::cat(all.unbind(0), 1).view(shape);
    return bias_ && options.add_bias ? y.add_(bias_->tensor.detach()) : y;
  }

  // Every rank has all of dy; the gradient of x is a sum over the ranks' outputs.
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::Tensor dy_NO = dy.reshape({-1, dy.size(-1)});
    const int64_t columns = dy.size(-1) / ranks_->size;
    const at::Tensor own = dy_NO.narrow(1, ranks_->index * columns, columns).contiguous();
    if (bias_ && options.add_bias && bias_->trainable) ops::accumulate_bias_grad(*bias_, dy_NO);
    if (weight_->trainable)
      work.run([weight = weight_, own, x] { accumulate_weight_grad(*weight, own, x.reshape({-1, x.size(-1)})); });
    if (!options.wants_dx) return {};
    const at::Tensor dx = product_backward(own, weight_->tensor).contiguous();
    ranks_->group->all_reduce(dx)->wait();
    return dx.view(x.sizes());
  }

 private:
  const std::shared_ptr<LayerRanks> ranks_;
  ParamPtr weight_, bias_;
};

// Replaces the matrices; all other layers are those of the factory inside.
class CutLayers : public DecoratedLayers {
 public:
  CutLayers(std::shared_ptr<LayerFactory> inner, std::shared_ptr<LayerRanks> ranks)
      : DecoratedLayers(std::move(inner)), ranks_(std::move(ranks)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (spec.split == Split::none || spec.out % ranks_->size != 0) return inner_->linear(spec);
    return std::make_shared<CutLinear>(spec, ranks_);
  }

 private:
  const std::shared_ptr<LayerRanks> ranks_;
};

class NewPlugin : public LayerSharing {
 public:
  static OptionTable options() { return size_table("ranks that share every matrix; 1: off"); }
  NewPlugin(const Options& options, const Services& services) : LayerSharing(kAxis, options, services) {}

 protected:
  std::shared_ptr<LayerFactory> make_layers(std::shared_ptr<LayerFactory> inner) const override {
    return std::make_shared<CutLayers>(std::move(inner), ranks_);
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::TensorParallel, "new_plugin", NewPlugin)
