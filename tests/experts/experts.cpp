// Expert parallelism as a strategy of somebody else: it claims an axis "ep" whose ranks read other rows, and holds a
// part of the rows of each MLP's first weight on each of them. Rows of the batch travel to the parts and back.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <drivetrain/communicator.h>
#include <drivetrain/mesh.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>

namespace {

using namespace drivetrain;

struct ExpertRanks {
  std::string axis;
  int64_t size = 1;
  GroupPtr group;  // from attach on
};

// weight [O / ranks, I]: the part of it that this rank applies to the rows of all ranks. N: rows of x. bias [O], whole.
class PartsOfRows : public Linear {
 public:
  PartsOfRows(const LinearSpec& spec, std::shared_ptr<ExpertRanks> ranks) : ranks_(std::move(ranks)) {
    Layout layout = Layout::whole({spec.out, spec.in});
    layout.dims = {{{ranks_->axis}, {}, 0}, {}};
    weight_ = std::make_shared<Param>(spec.name + ".weight", layout, spec.init);
    weight_->role = ParamRole::expert;
    if (!spec.bias) return;
    bias_ = std::make_shared<Param>(spec.name + ".bias", Layout::whole({spec.out}), InitRule::zeros());
    bias_->role = ParamRole::bias;
  }
  std::vector<ParamPtr> params() const override {
    return bias_ ? std::vector<ParamPtr>{weight_, bias_} : std::vector<ParamPtr>{weight_};
  }
  ParamPtr bias() const override { return bias_; }

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor*) const override {
    const at::Tensor part = product(of_all_ranks(x), weight_->tensor).contiguous(), parts = at::empty_like(part);
    ranks_->group->all_to_all(parts, part)->wait();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = ranks_->size * part.size(1);
    const at::Tensor y = at::cat(parts.chunk(ranks_->size), 1).view(shape);
    return bias_ && options.add_bias ? y.add_(bias_->tensor.detach()) : y;
  }

  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::Tensor dy_NO = dy.reshape({-1, dy.size(-1)});
    const at::Tensor sent = at::cat(dy_NO.chunk(ranks_->size, 1)), mine = at::empty_like(sent);
    ranks_->group->all_to_all(mine, sent)->wait();
    if (bias_ && options.add_bias && bias_->trainable) ops::accumulate_bias_grad(*bias_, dy_NO);
    if (weight_->trainable)
      work.run([weight = weight_, mine, all = of_all_ranks(x)] { accumulate_weight_grad(*weight, mine, all); });
    if (!options.wants_dx) return {};
    const at::Tensor of_all = product_backward(mine, weight_->tensor).contiguous();
    const at::Tensor dx = at::empty({dy_NO.size(0), of_all.size(1)}, of_all.options());
    ranks_->group->reduce_scatter(dx, of_all)->wait();
    return dx.view(x.sizes());
  }

 private:
  at::Tensor of_all_ranks(const at::Tensor& x) const {
    const at::Tensor own = x.detach().reshape({-1, x.size(-1)}).contiguous();
    const at::Tensor all = at::empty({ranks_->size * own.size(0), own.size(1)}, own.options());
    ranks_->group->all_gather(all, own)->wait();
    return all;
  }

  const std::shared_ptr<ExpertRanks> ranks_;
  ParamPtr weight_, bias_;
};

class ExpertLayers : public DecoratedLayers {
 public:
  ExpertLayers(std::shared_ptr<LayerFactory> inner, std::shared_ptr<ExpertRanks> ranks)
      : DecoratedLayers(std::move(inner)), ranks_(std::move(ranks)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (!spec.name.ends_with(".mlp.fc")) return inner_->linear(spec);
    return std::make_shared<PartsOfRows>(spec, ranks_);
  }

 private:
  const std::shared_ptr<ExpertRanks> ranks_;
};

class Experts : public Strategy {
 public:
  struct Options {
    std::string axis = "ep";
    int64_t size = 2;
    bool split = true;
  };
  static OptionTable options() {
    return table<Options>()
        .field("axis", &Options::axis, "of the mesh")
        .field("size", &Options::size, "ranks along it")
        .field("split", &Options::split, "false: no parameter is split, the axis reads other rows and nothing else");
  }
  Experts(const Options& options, const Services& services)
      : split_(options.split),
        ranks_(std::make_shared<ExpertRanks>(ExpertRanks{options.axis, options.size, nullptr})),
        services_(services) {}

  void plan(PlanContext& ctx) override {
    ctx.claim_axis(ranks_->axis, ranks_->size, PlanContext::Reads::other_rows, PlanContext::kDataPlace - 5);
  }
  void build(Builder& builder) override {
    if (split_) builder.layers = std::make_shared<ExpertLayers>(builder.layers, ranks_);
  }
  void attach(UnitList&) override { ranks_->group = services_.mesh->group(ranks_->axis); }

 private:
  const bool split_;
  const std::shared_ptr<ExpertRanks> ranks_;
  const Services& services_;
};

}  // namespace

DRIVETRAIN_PLUGIN(Strategy, "experts", Experts)
