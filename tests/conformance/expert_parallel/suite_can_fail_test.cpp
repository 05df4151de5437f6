// The conformance suite of expert_parallel finds what it is there for: layers around a right plugin's pass, and do not
// with any one mistake.
#include "support/mistakes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/flip.h>

#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include <drivetrain/testkit/expert_parallel/suite.h>

namespace drivetrain::test {
namespace {

enum class Mistake {
  none,
  a_row_is_dropped,
  rows_return_in_another_order,
  gradients_averaged_over_ranks,
  gradient_of_rows_is_lost,
  experts_of_the_wrong_rank,
};

struct SpoiledExperts : Experts {
  SpoiledExperts(std::shared_ptr<Experts> inner, Mistake mistake) : inner(std::move(inner)), mistake(mistake) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    at::Tensor used = counts.clone();
    if (mistake == Mistake::a_row_is_dropped)
      for (int64_t e = counts.numel() - 1, dropped = 0; e >= 0 && !dropped; --e)
        if (used[e].item<int64_t>() > 0) used[e].sub_(1), dropped = 1;
    const at::Tensor y = inner->forward(x, used, ctx);
    return differentiable(
        {y},
        [&](const Tensors& in) {
          return Tensors{mistake == Mistake::rows_return_in_another_order ? in[0].flip({0}) : in[0].clone()};
        },
        [m = mistake](const Tensors& dy) {
          return Tensors{m == Mistake::gradient_of_rows_is_lost        ? dy[0] * 0
                         : m == Mistake::gradients_averaged_over_ranks ? dy[0] / 2
                                                                       : dy[0]};
        })[0];
  }
  const std::shared_ptr<Experts> inner;
  const Mistake mistake;
};

struct SpoiledLayers : DecoratedLayers {
  SpoiledLayers(std::shared_ptr<LayerFactory> inner, Mistake mistake)
      : DecoratedLayers(std::move(inner)), mistake(mistake) {}
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override {
    return std::make_shared<SpoiledExperts>(inner_->experts(spec), mistake);
  }
  const Mistake mistake;
};

// Inside of the plugin: rows of the second expert go to the first one as well.
struct FirstExpertOnly : Experts {
  explicit FirstExpertOnly(std::shared_ptr<Experts> inner) : inner(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    at::Tensor all = counts * 0;
    all[0].copy_(counts.sum());
    return inner->forward(x, all, ctx);
  }
  const std::shared_ptr<Experts> inner;
};
struct FirstExpertLayers : DecoratedLayers {
  using DecoratedLayers::DecoratedLayers;
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override {
    if (!spec.fc) return inner_->experts(spec);  // the reference has all
    return std::make_shared<FirstExpertOnly>(inner_->experts(spec));
  }
};

std::string complaints(Mistake mistake) {
  ExpertTrial trial;
  trial.name = "all_to_all", trial.options = R"({"size": 2})";
  trial.rows = [](int64_t r, int64_t e, int64_t m) { return (3 * e + 2 * r + m) % 5; };
  if (mistake == Mistake::experts_of_the_wrong_rank)
    trial.inside = [](Builder& builder) { builder.layers = std::make_shared<FirstExpertLayers>(builder.layers); };
  else
    trial.spoil = [mistake](Builder& builder) {
      builder.layers = std::make_shared<SpoiledLayers>(builder.layers, mistake);
    };
  return failures_of([&] { check_expert_parallel(trial); });
}

TEST(ExpertParallelSuite, accepts_a_right_plugin) { EXPECT_EQ(complaints(Mistake::none), ""); }

TEST(ExpertParallelSuite, finds_every_mistake) {
  for (const Mistake mistake :
       {Mistake::a_row_is_dropped, Mistake::rows_return_in_another_order, Mistake::gradients_averaged_over_ranks,
        Mistake::gradient_of_rows_is_lost, Mistake::experts_of_the_wrong_rank})
    EXPECT_NE(complaints(mistake), "") << static_cast<int>(mistake);
}

}  // namespace
}  // namespace drivetrain::test
