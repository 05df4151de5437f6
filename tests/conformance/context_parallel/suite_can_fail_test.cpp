// The conformance suite of context_parallel finds what it is there for: mistakes that a plugin could make show as
// deviations.
#include <gtest/gtest.h>

#include <drivetrain/testkit/context_parallel/suite.h>

namespace drivetrain::test {
namespace {

enum class Mistake { none, no_communication, lse_of_one_block, own_rows, gradients_of_one_block };

// An attention that does something wrong inside of a plugin that is right.
class Lying : public Attention {
 public:
  Lying(std::shared_ptr<Attention> inner, Mistake mistake) : inner_(std::move(inner)), mistake_(mistake) {}
  AttentionAbilities abilities() const override { return inner_->abilities(); }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    AttentionArgs changed = args;
    if (mistake_ == Mistake::own_rows) changed.key.rows = {{0, q.size(2)}};  // each rank draws for heads 0, 1, ...
    AttentionState state = inner_->forward(q, k, v, changed);
    if (mistake_ == Mistake::lse_of_one_block) state.lse.zero_();  // as if every block weighed the same
    if (mistake_ == Mistake::gradients_of_one_block) state.extra = {state.out.clone(), state.lse.clone()};
    return state;
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    AttentionState changed = state;
    if (mistake_ == Mistake::gradients_of_one_block)  // the block's own out and lse in place of the merged ones
      changed.out = state.extra[0], changed.lse = state.extra[1], changed.extra = {};
    return inner_->backward(dout, changed, args);
  }

 private:
  std::shared_ptr<Attention> inner_;
  Mistake mistake_;
};

// Cuts the sequence and attends to what is there.
class Alone : public Strategy {
 public:
  explicit Alone(int64_t size) : size_(size) {}
  void plan(PlanContext& ctx) override {
    ctx.claim_axis("cp", size_, PlanContext::Reads::other_positions, PlanContext::kContextPlace);
  }
  void build(Builder& builder) override {
    const int64_t index = builder.mesh.index("cp"), size = size_;
    builder.batch_cuts.push_back([=](const std::vector<RowRange>& all, const std::vector<int64_t>&) {
      const int64_t count = all[0].count / size;
      return std::vector<RowRange>{{all[0].first + index * count, count}};
    });
  }

 private:
  int64_t size_;
};

double deviation(const std::string& name, Mistake mistake, double dropout = 0) {
  ContextTrial trial{.parts = {{name, 2}}};
  trial.shape = {"", 2, 16, 16, 4, 2, 8, context_args(true, 0, dropout)};
  if (mistake == Mistake::no_communication)
    trial.make = [](const ContextPart& part, const Services&) { return std::make_shared<Alone>(part.size); };
  else if (mistake != Mistake::none)
    trial.around = [=](std::shared_ptr<Attention> inner) { return std::make_shared<Lying>(std::move(inner), mistake); };
  const ContextOutcome outcome = run_context(trial);
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  return context_deviation(trial, outcome);
}

TEST(ContextParallelSuite, finds_a_mistake_that_it_would_not_find_without_one) {
  EXPECT_LE(deviation("ring", Mistake::none), 1e-12);
  EXPECT_LE(deviation("ulysses", Mistake::none), 1e-12);
  EXPECT_LE(deviation("ulysses", Mistake::none, 0.25), 1e-12);
}

TEST(ContextParallelSuite, finds_ranks_that_see_their_own_piece_only) {
  EXPECT_GT(deviation("ring", Mistake::no_communication), 1e-3);
}

TEST(ContextParallelSuite, finds_blocks_that_are_merged_without_their_lse) {
  EXPECT_GT(deviation("ring", Mistake::lse_of_one_block), 1e-3);
}

TEST(ContextParallelSuite, finds_gradients_by_a_blocks_own_result) {
  EXPECT_GT(deviation("ring", Mistake::gradients_of_one_block), 1e-3);
}

TEST(ContextParallelSuite, finds_ranks_that_drop_by_their_own_count_of_heads) {
  EXPECT_GT(deviation("ulysses", Mistake::own_rows, 0.25), 1e-3);
}

}  // namespace
}  // namespace drivetrain::test
