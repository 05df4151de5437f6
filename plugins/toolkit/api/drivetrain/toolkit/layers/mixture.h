// A mixture of experts: the router and the experts of one device, and what goes on around them, which is the same
// whoever made them. Rows are sorted by expert without losing one, however many an expert gets (dropless).
//
// Source: Shazeer et al. 2017; without a limit per expert as in Gale et al. 2022. Thread: as layers.h.
// Legend: T tokens, D hidden, E experts, K choices per token, R = T K rows.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/toolkit/layers/block_layers.h>

namespace drivetrain {

// For one device, as LayerFactory::router and experts promise them. Error(config) for a spec that cannot be. The
// routers of one maker know of each other: a pooled balance loss is of all of them.
using RouterMaker = std::function<std::shared_ptr<Router>(const RouterSpec&)>;
RouterMaker make_plain_routers();
std::shared_ptr<Experts> make_plain_experts(const ExpertsSpec& spec);

// Rows sorted by expert, those of one expert by token.
struct SortedRows {
  at::Tensor order_R;     // int64: which of the T K choices, t K + k, each row is; choices of nobody (-1) come last
  at::Tensor place_TK;    // int64: the row of each choice
  at::Tensor counts_E;    // int64
  at::Tensor experts_TK;  // the choices
};
SortedRows sort_by_expert(const at::Tensor& experts_TK, int64_t experts);
// The same with one row for all choices of nobody, of which `used` leaves the others.
SortedRows without_nobody(SortedRows rows, int64_t used);

// Sums over the choices of a token are float32 (float64 for float64). On the CPU they are added by a fixed binary tree
// over the experts: halves of all, halves of these, and so on; so sums of ranks that have aligned halves, quarters, ...
// of the experts, added by such a tree over ranks, have the bits of one rank's with all experts. On a device they are
// added in ascending order of experts. Choices of nobody add nothing.

// Row r of the result is x[order_R[r] / K]; backward sums the rows of a token.
at::Tensor rows_of_tokens(const at::Tensor& x_TD, const SortedRows& rows);
// y_t = sum over k of y_R[place[t, k]], of the type of y_R. No autograd.
at::Tensor sum_over_choices(const at::Tensor& y_RD, const SortedRows& rows);
// The same of weights[t, k] y_R[place[t, k]], with autograd.
at::Tensor weighted_sum(const at::Tensor& y_RD, const at::Tensor& weights_TK, const SortedRows& rows);

// Experts that take tokens instead of their sorted rows. Another toolkit may be in the process: a change of the members
// changes the name.
class TokenExperts3 {
 public:
  virtual ~TokenExperts3() = default;
  // Whether tokens on such a device are given to `of_tokens`, instead of their rows to Experts::forward.
  virtual bool takes_tokens(at::DeviceType) const = 0;
  // y_t = sum over k of w_tk expert_tk(x_t), added as above. x and the result are [T, D]. `meanwhile`: what the layer
  // has to do beside, of which neither needs the other; called once, best where a rank would wait for others.
  // `of_ranks`: where tokens came from several ranks, how many of each, in order of ranks; their gradients of weights
  // in float32 are summed on their own and then over ranks, as a reduction does (kernels/collective/tree_sum.h).
  virtual at::Tensor of_tokens(const at::Tensor& x_TD, const Routing& routing, StepContext& ctx,
                               const std::function<void()>& meanwhile, const std::vector<int64_t>& of_ranks) = 0;
  // For the plan: how many rows of D elements are kept for backward where tokens have `rows` choices.
  virtual double kept_rows(double rows, at::DeviceType) const = 0;
};
// Of any experts. Those that get rows keep each as they read it and as they return it.
double kept_rows(const Experts& experts, double rows, at::DeviceType device);
// TokenExperts3::of_tokens of any experts: of those that do not take tokens, the weighted sum of their sorted rows.
// `count`: how many experts they are. `used`: how many choices are not nobody's, if the host knows. `of_ranks`: for
// those that take tokens.
at::Tensor sum_of_experts(Experts& experts, int64_t count, const at::Tensor& x_TD, const Routing& routing,
                          StepContext& ctx, const std::function<void()>& meanwhile, int64_t used = -1,
                          const std::vector<int64_t>& of_ranks = {});

// The MLP of a block that is a mixture, with layers of `layers`.
class Mixture {
 public:
  // `specs`: block_layer_specs of a block with BlockSpec::mixture.
  Mixture(const MixtureSpec& spec, const BlockLayerSpecs& specs, const std::string& activation, LayerFactory& layers);
  std::vector<ParamPtr> params() const;  // of router, experts, shared MLP and its gate
  at::Tensor forward(const at::Tensor& x_BSD, StepContext& ctx) const;
  const Experts& experts() const { return *experts_; }

 private:
  at::Tensor shared(const at::Tensor& x_BSD, StepContext& ctx) const;

  const MixtureSpec spec_;
  const std::string activation_;
  std::shared_ptr<Router> router_;
  std::shared_ptr<Experts> experts_;
  std::shared_ptr<Linear> shared_fc_, shared_proj_, shared_gate_;
};

}  // namespace drivetrain
