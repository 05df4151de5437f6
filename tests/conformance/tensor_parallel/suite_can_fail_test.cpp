// The conformance suite of tensor_parallel finds what it is there for: layers that decorate a right plugin's pass, and
// do not with any one mistake.
#include "support/mistakes.h"

#include <ATen/TensorOperators.h>

#include <drivetrain/toolkit/layers/attend.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include <drivetrain/testkit/kit/terms.h>
#include <drivetrain/testkit/tensor_parallel/suite.h>

namespace drivetrain::test {
namespace {

enum class Mistake {
  none,
  bias_before_the_sum,
  input_gradient_not_summed,
  weight_gradient_at_once_of_half,
  heads_draw_the_same_numbers,
  norms_not_partial,
  positions_in_wrong_order,
  wrong_first_row_of_the_vocabulary,
  loss_gradient_not_summed,
};

struct SpoiledLinear : Linear {
  SpoiledLinear(std::shared_ptr<Linear> inner, Split split, Mistake mistake)
      : inner(std::move(inner)), split(split), mistake(mistake) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  ParamPtr bias() const override { return inner->bias(); }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    at::Tensor y = inner->apply(x, options, kept);
    if (mistake == Mistake::bias_before_the_sum && split == Split::rows && options.add_bias && bias())
      y.add_(bias()->tensor.detach());
    return y;
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const bool half = mistake == Mistake::weight_gradient_at_once_of_half && split == Split::rows;
    const at::Tensor dx = inner->apply_backward(dy, half ? x * 0.5 : x, options, work);
    const bool local = mistake == Mistake::input_gradient_not_summed && split == Split::columns;
    if (!local) return dx;
    const at::Tensor& w = params()[0]->tensor;
    return product_backward(dy.reshape({-1, dy.size(-1)}), w).view(dx.sizes());
  }
  const std::shared_ptr<Linear> inner;
  const Split split;
  const Mistake mistake;
};

struct SpoiledAttention : AttentionLayer {
  SpoiledAttention(std::shared_ptr<AttentionLayer> inner, std::shared_ptr<Attention> plugin)
      : inner(std::move(inner)), plugin(std::move(plugin)) {}
  std::vector<ParamPtr> params() const override { return {}; }
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, StepContext& ctx) override {
    return attend(plugin, q, k, v, args(ctx));
  }
  AttentionArgs args(StepContext& ctx) const override {
    AttentionArgs args = inner->args(ctx);
    args.key.rows.clear();
    return args;
  }
  const std::shared_ptr<AttentionLayer> inner;
  const std::shared_ptr<Attention> plugin;
};

// The second rank takes its rows for those that begin one token earlier.
struct SpoiledEmbedding : Embedding {
  explicit SpoiledEmbedding(std::shared_ptr<Embedding> inner) : inner(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& ids, StepContext& ctx) override { return inner->forward(ids.add(1), ctx); }
  const std::shared_ptr<Embedding> inner;
};

// With all rows of the vocabulary on the first rank, what the second one would have without the sum is nothing.
struct SpoiledLoss : LmLoss {
  explicit SpoiledLoss(std::shared_ptr<LmLoss> inner) : inner(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override {
    const auto own = [](const Tensors& dy) { return Tensors{dy[0] * 0}; };
    return inner->forward(differentiable(
                              {x}, [](const Tensors& in) { return Tensors{in[0].clone()}; }, own)[0],
                          ctx);
  }
  const std::shared_ptr<LmLoss> inner;
};

struct SpoiledLayers : LayerFactory {
  SpoiledLayers(const Builder& builder, Mistake mistake)
      : inner(builder.layers),
        plugin(builder.attention()),
        mistake(mistake),
        second_rank(builder.mesh.index("tp") == 1) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    return std::make_shared<SpoiledLinear>(inner->linear(spec), spec.split, mistake);
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override {
    const bool spoiled = mistake == Mistake::wrong_first_row_of_the_vocabulary && spec.vocabulary && second_rank;
    if (!spoiled) return inner->embedding(spec);
    return std::make_shared<SpoiledEmbedding>(inner->embedding(spec));
  }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override {
    auto norm = inner->norm(spec);
    if (mistake == Mistake::norms_not_partial)  // and as if the layer had summed them itself
      for (const ParamPtr& param : norm->params())
        param->layout.partial_over.clear(), param->reduction_axes = std::vector<std::string>{};
    return norm;
  }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override {
    if (mistake != Mistake::heads_draw_the_same_numbers) return inner->attention(spec);
    return std::make_shared<SpoiledAttention>(inner->attention(spec), plugin);
  }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override {
    if (mistake != Mistake::loss_gradient_not_summed || !second_rank) return inner->lm_loss(spec);
    return std::make_shared<SpoiledLoss>(inner->lm_loss(spec));
  }
  const std::shared_ptr<LayerFactory> inner;
  const std::shared_ptr<Attention> plugin;
  const Mistake mistake;
  const bool second_rank;
};

// The ranks' parts of the sequence the other way round.
void turn_round(Builder& builder) {
  for (auto& cut : builder.activation_cuts)
    cut = [cut](const std::vector<RowRange>& positions, const std::vector<int64_t>& cu_seqlens) {
      const std::vector<RowRange> own = cut(positions, cu_seqlens);
      const int64_t end = positions.front().first + positions.front().count;
      return std::vector<RowRange>{{end - own.front().first - own.front().count, own.front().count}};
    };
}

std::string complaints(Mistake mistake, bool sequence_parallel) {
  TensorParallelTrial trial;
  trial.name = "megatron", trial.model = tensor_parallel_models()[0];
  // 13 rows: 7, and 6 with one of padding; or all on the first rank.
  trial.options =
      concat(R"({"size": 2, "make_vocab_size_divisible_by": )", mistake == Mistake::loss_gradient_not_summed ? 128 : 1,
             R"(, "sequence_parallel": )", sequence_parallel ? "true" : "false", "}");
  trial.spoil = [mistake](Builder& builder) {
    builder.layers = std::make_shared<SpoiledLayers>(builder, mistake);
    if (mistake == Mistake::positions_in_wrong_order) turn_round(builder);
  };
  return failures_of([&] { check_tensor_parallel(trial); });
}

TEST(TensorParallelSuite, accepts_a_right_plugin) {
  for (const bool sequence_parallel : {false, true}) EXPECT_EQ(complaints(Mistake::none, sequence_parallel), "");
}

TEST(TensorParallelSuite, finds_every_mistake) {
  for (const Mistake mistake : {Mistake::bias_before_the_sum, Mistake::input_gradient_not_summed,
                                Mistake::weight_gradient_at_once_of_half, Mistake::heads_draw_the_same_numbers,
                                Mistake::wrong_first_row_of_the_vocabulary, Mistake::loss_gradient_not_summed})
    EXPECT_NE(complaints(mistake, false), "") << static_cast<int>(mistake);
}

TEST(TensorParallelSuite, finds_mistakes_of_sequence_parallelism) {
  for (const Mistake mistake :
       {Mistake::bias_before_the_sum, Mistake::norms_not_partial, Mistake::positions_in_wrong_order})
    EXPECT_NE(complaints(mistake, true), "") << static_cast<int>(mistake);
}

// A factory that makes its own layers and does not ask the one inside: it is as if it had found plain ones there.
TEST(TensorParallelSuite, finds_a_decorator_that_gets_lost) {
  TensorParallelTrial trial;
  trial.name = "megatron", trial.model = tensor_parallel_models()[0], trial.options = R"({"size": 2})";
  const auto decorated = [](Builder& builder) { builder.layers = std::make_shared<TermLayers>(builder.layers); };
  trial.inside = decorated;
  EXPECT_EQ(failures_of([&] { check_tensor_parallel(trial); }), "");
  trial.inside = [=](Builder& builder) {
    if (builder.mesh.size("tp") == 1) decorated(builder);
  };
  EXPECT_NE(failures_of([&] { check_tensor_parallel(trial); }).find("output of unit 0"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
