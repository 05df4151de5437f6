// The MLPs of all experts of one device, by grouped products. What is kept for backward is as large as the rows, not as
// the weights.
#include <ATen/core/Tensor.h>

#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/grouped_product.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/differentiable.h>
#include <drivetrain/weight_work.h>

#include "choice_sums.h"
#include "token_rows.h"

namespace drivetrain {
namespace {

class PlainExperts : public Experts, public TokenExperts3 {
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

  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    const bool trains = ctx.mode() == Mode::train;
    const auto kept = std::make_shared<Kept>(Kept{x.detach(), {}, RowGroups(counts)});
    return differentiable(
        {x, fc_->tensor, proj_->tensor},
        [&](const Tensors& in) {
          kept->h = grouped_product(in[0], in[1], kept->groups, trains);
          return Tensors{grouped_product(ops::activation(activation_, kept->h, {}), in[2], kept->groups, trains)};
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

  // What is kept for backward is the tokens and what stands in front of the activation; their rows are gathered for a
  // product, or read where they lie by a kernel that can (GroupedRows).
  bool takes_tokens(at::DeviceType device) const override { return device == at::kCPU; }
  double kept_rows(double rows, at::DeviceType device) const override {
    return takes_tokens(device) ? 0 : 2 * planned_rows(rows);
  }

  // dw = dout . W a is computed as (W^T dout) . a, which backward needs anyway; so nobody needs the results of experts.
  at::Tensor of_tokens(const at::Tensor& x, const Routing& routing, StepContext& ctx,
                       const std::function<void()>& meanwhile, const std::vector<int64_t>& of_ranks) override {
    const bool trains = ctx.mode() == Mode::train;
    const at::Tensor &experts = routing.experts_TK, &weights = routing.weights_TK;
    SortedRows rows = sort_by_expert(experts, spec_.experts);
    const RowGroups groups(of_ranks.size() > 1 ? counts_of_parts(rows, of_ranks) : rows.counts_E);
    const at::Tensor token_R = rows.order_R.narrow(0, 0, groups.bounds().back()).div(experts.size(1), "floor");
    rows.order_R = at::Tensor();
    const auto kept =
        std::make_shared<KeptOfTokens>(KeptOfTokens{x.detach(), {}, weights.detach(), token_R, rows, groups});
    const at::Tensor y = differentiable(
        {x, weights, fc_->tensor, proj_->tensor},
        [&](const Tensors& in) {
          kept->h = grouped_product({in[0], kept->token_R}, in[2], kept->groups, trains);
          const at::Tensor y_RD =
              grouped_product(ops::activation(activation_, kept->h, {}), in[3], kept->groups, trains);
          return Tensors{weighted_sum(y_RD, in[1], rows)};
        },
        [kept, fc = fc_, proj = proj_, kind = activation_, wants_dx = x.requires_grad(),
         work = WeightWork::current()](const Tensors& dy) {
          Tensors gradients(4);
          const at::Tensor dh = backward_of_activation(*kept, dy[0], proj, kind, *work, gradients[1]);
          if (fc->trainable)
            work->run([=] { accumulate_grouped_weight_grad(*fc, dh, {kept->x, kept->token_R}, kept->groups); });
          if (wants_dx)
            gradients[0] = sum_of_choices(grouped_product_backward(dh, fc->tensor, kept->groups), {}, kept->rows);
          return gradients;
        })[0];
    meanwhile();
    return y;
  }

 private:
  // For backward: the input, and what fc gives. The activation is computed again.
  struct Kept {
    at::Tensor x, h;
    RowGroups groups;
  };

  // Of experts that read tokens: row r is of token token_R[r].
  struct KeptOfTokens {
    at::Tensor x, h, weights_TK, token_R;
    SortedRows rows;  // without order_R
    RowGroups groups;
  };

  // The gradient of what stands in front of the activation, which is kept no longer; that of the weights as `dw`.
  static at::Tensor backward_of_activation(KeptOfTokens& kept, const at::Tensor& dout, const ParamPtr& proj,
                                           ops::Activation kind, WeightWork& work, at::Tensor& dw) {
    const at::Tensor h = std::move(kept.h),
                     g = grouped_product_backward({dout, kept.token_R}, proj->tensor, kept.groups);
    {
      const at::Tensor a = ops::activation(kind, h, {});
      dw = weigh_rows(a, g, kept.weights_TK, kept.rows.place_TK).to(kept.weights_TK.scalar_type());
      if (proj->trainable)
        work.run([=, token_R = kept.token_R, groups = kept.groups] {
          accumulate_grouped_weight_grad(*proj, {dout, token_R}, a, groups);
        });
    }
    return ops::activation_backward(kind, h, g, nullptr);
  }

  const ExpertsSpec spec_;
  const ops::Activation activation_;
  ParamPtr fc_, proj_;
};

}  // namespace

std::shared_ptr<Experts> make_plain_experts(const ExpertsSpec& spec) { return std::make_shared<PlainExperts>(spec); }

}  // namespace drivetrain
