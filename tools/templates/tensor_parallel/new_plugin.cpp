// Cuts the weights of matrices over ranks: each computes some of the outputs, and all ranks gather all of them.
//
// Memory of weights, their gradients and the optimizer falls with the number of ranks; activations stay whole, so
// nothing but the matrices needs to know. A matrix whose outputs the ranks do not divide stays whole.
#include <drivetrain/toolkit/layer_sharing.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/ops/ops.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace {

using namespace drivetrain;

const char* const kAxis = "new_plugin";  // of the mesh

// `inner` has weight [O / ranks, I]; bias [O] is whole on every rank. N: rows of x.
class CutLinear : public Linear {
 public:
  CutLinear(std::shared_ptr<Linear> inner, ParamPtr bias, std::shared_ptr<LayerRanks> ranks)
      : inner_(std::move(inner)), bias_(std::move(bias)), ranks_(std::move(ranks)) {}
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all = inner_->params();
    if (bias_) all.insert(all.begin() + 1, bias_);  // weight, bias, what decorators add
    return all;
  }
  ParamPtr bias() const override { return bias_; }
  bool keeps_input() const override { return inner_->keeps_input(); }

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    const at::Tensor own = inner_->apply(x, {.add_bias = false, .wants_dx = options.wants_dx}, kept);
    const at::Tensor all = at::empty({ranks_->size, own.numel() / own.size(-1), own.size(-1)}, own.options());
    ranks_->group->all_gather(all, own.contiguous())->wait();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = ranks_->size * own.size(-1);
    const at::Tensor y = at::cat(all.unbind(0), 1).view(shape);
    return bias_ && options.add_bias ? y.add_(bias_->tensor.detach()) : y;
  }

  // Every rank has all of dy; the gradient of x is a sum over the ranks' outputs.
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    if (bias_ && options.add_bias && bias_->trainable) ops::accumulate_bias_grad(*bias_, dy.reshape({-1, dy.size(-1)}));
    const int64_t columns = dy.size(-1) / ranks_->size;
    const at::Tensor own = dy.narrow(-1, ranks_->index * columns, columns).contiguous();
    at::Tensor dx = inner_->apply_backward(own, x, {.add_bias = false, .wants_dx = options.wants_dx}, work);
    if (!dx.defined()) return dx;
    dx = dx.contiguous();
    ranks_->group->all_reduce(dx)->wait();
    return dx;
  }

 private:
  const std::shared_ptr<Linear> inner_;
  const ParamPtr bias_;
  const std::shared_ptr<LayerRanks> ranks_;
};

// Asks the factory inside for this rank's part of a matrix, so that what other plugins do to layers is not lost; all
// other layers are those of that factory.
class CutLayers : public DecoratedLayers {
 public:
  CutLayers(std::shared_ptr<LayerFactory> inner, std::shared_ptr<LayerRanks> ranks)
      : DecoratedLayers(std::move(inner)), ranks_(std::move(ranks)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (spec.split == Split::none || spec.out % ranks_->size != 0) return inner_->linear(spec);
    LinearSpec own = spec;
    own.weight = weight_layout(spec);
    own.weight->dims = {{{kAxis}, {}, 0}, {}};
    own.out /= ranks_->size, own.blocks.clear(), own.bias = false;
    std::shared_ptr<Linear> part = inner_->linear(own);
    part->params().front()->blocks = spec.blocks;
    ParamPtr bias;
    if (spec.bias) {
      bias = std::make_shared<Param>(spec.name + ".bias", Layout::whole({spec.out}), InitRule::zeros());
      bias->role = ParamRole::bias;
    }
    return std::make_shared<CutLinear>(std::move(part), std::move(bias), ranks_);
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
