// The MLPs of all experts of one device, by grouped products. What is kept for backward is as large as the rows, not as
// the weights.
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/grouped_product.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>
#include <drivetrain/weight_work.h>

namespace drivetrain {
namespace {

class PlainExperts : public Experts {
 public:
  explicit PlainExperts(const ExpertsSpec& spec) : spec_(spec), activation_(ops::activation_of(spec.activation)) {
    const auto param = [](const std::string& name, Layout layout, InitRule init) {
      auto made = std::make_shared<Param>(name, std::move(layout), init);
      made->role = ParamRole::expert;
      return made;
    };
    fc_ = param(spec.name + ".fc.weight", fc_layout(spec), spec.init);
    proj_ = param(spec.name + ".proj.weight", proj_layout(spec), spec.output_init);
    fc_->blocks.assign(static_cast<size_t>(fc_->layout.global_shape[0] / spec.ffn), spec.ffn);
    proj_->blocks.assign(static_cast<size_t>(proj_->layout.global_shape[0] / spec.hidden), spec.hidden);
  }
  std::vector<ParamPtr> params() const override { return {fc_, proj_}; }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext&) override {
    const auto kept = std::make_shared<Kept>(Kept{x.detach(), {}, RowGroups(counts)});
    return differentiable(
        {x, fc_->tensor, proj_->tensor},
        [&](const Tensors& in) {
          kept->h = grouped_product(in[0], in[1], kept->groups);
          return Tensors{grouped_product(ops::activation(activation_, kept->h, {}), in[2], kept->groups)};
        },
        [kept, fc = fc_, proj = proj_, kind = activation_, wants_dx = x.requires_grad(),
         work = WeightWork::current()](const Tensors& dy) {
          if (proj->trainable)
            work->run([=, dy = dy[0]] {
              accumulate_grouped_weight_grad(*proj, dy, ops::activation(kind, kept->h, {}), kept->groups);
            });
          if (!wants_dx && !fc->trainable) return Tensors(3);
          const at::Tensor dh = ops::activation_backward(
              kind, kept->h, grouped_product_backward(dy[0], proj->tensor, kept->groups), nullptr);
          if (fc->trainable) work->run([=] { accumulate_grouped_weight_grad(*fc, dh, kept->x, kept->groups); });
          return Tensors{wants_dx ? grouped_product_backward(dh, fc->tensor, kept->groups) : at::Tensor(), {}, {}};
        })[0];
  }

 private:
  // For backward: the input, and what fc gives. The activation is computed again.
  struct Kept {
    at::Tensor x, h;
    RowGroups groups;
  };

  const ExpertsSpec spec_;
  const ops::Activation activation_;
  ParamPtr fc_, proj_;
};

}  // namespace

std::shared_ptr<Experts> make_plain_experts(const ExpertsSpec& spec) { return std::make_shared<PlainExperts>(spec); }

}  // namespace drivetrain
