// What the group sees of the exchanges, forward and backward: bytes, against those that the plan says, and what is
// computed while rows are under way.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/units/differentiable.h>

#include <drivetrain/testkit/kit/passing_group.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>

#include "all_to_all.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

// Another's group, which counts what goes to other ranks, of rows apart from counts of rows, and knows for how many
// calls of rows nobody has waited.
class CountingGroup final : public PassingGroup {
 public:
  using PassingGroup::PassingGroup;
  double row_bytes = 0, count_bytes = 0;
  std::shared_ptr<int> under_way = std::make_shared<int>(0);

  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override {
    const auto size = static_cast<double>(ranks().size());
    count_bytes += static_cast<double>(in.nbytes()) * (size - 1) / size;
    return PassingGroup::all_to_all(out, in);
  }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    for (size_t to = 0; to < sent.size(); ++to)
      if (static_cast<int64_t>(to) != rank())
        row_bytes += static_cast<double>(sent[to]) * static_cast<double>(in.element_size());
    ++*under_way;
    return std::make_shared<Counted>(PassingGroup::all_to_all(out, in, received, sent), under_way);
  }

 private:
  class Counted final : public Work {
   public:
    Counted(WorkPtr inner, std::shared_ptr<int> open) : inner_(std::move(inner)), open_(std::move(open)) {}
    void wait() override {
      inner_->wait();
      if (open_) --*open_;
      open_ = nullptr;
    }

   private:
    const WorkPtr inner_;
    std::shared_ptr<int> open_;
  };
};

class Doubled final : public Experts {
 public:
  std::vector<ParamPtr> params() const override { return {}; }
  at::Tensor forward(const at::Tensor& x, const at::Tensor&, StepContext&) override { return x * 2; }
};

class OneVisit final : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}

 private:
  const Batch batch_;
  const Visit visit_;
};

constexpr int64_t kRanks = 4, kExperts = 8, kChosen = 2, kHidden = 6, kTokens = 28, kMicroBatches = 3, kLayers = 2;

double planned_bytes(bool training) {
  ModelFacts model;
  model.num_layers = kLayers, model.hidden_size = kHidden;
  model.mixture.experts = kExperts, model.mixture.chosen = kChosen, model.mixture.layers = kLayers;
  RunFacts run;
  run.world_size = kRanks, run.micro_batch_size = 4, run.accumulation = kMicroBatches, run.seq_length = kTokens / 4;
  run.position_ranks = 1, run.training = training;
  PlanRecord ctx(model, run);
  ctx.set_plugin("expert_parallel/all_to_all");
  all_to_all::AllToAllOptions options;
  options.size = kRanks;
  all_to_all::report_exchanges(options, "ep", ctx);
  return ctx.traffics().at(0).bytes;
}

// Every pair of experts once, as the plan assumes.
Routing all_pairs() {
  std::vector<int64_t> ids;
  for (int64_t a = 0; a < kExperts; ++a)
    for (int64_t b = a + 1; b < kExperts; ++b) ids.insert(ids.end(), {a, b});
  return {at::tensor(ids, at::kLong).view({kTokens, kChosen}),
          at::full({kTokens, kChosen}, 0.25, at::kFloat).set_requires_grad(true)};
}

at::Tensor tokens() { return at::ones({kTokens, kHidden}, at::kFloat).set_requires_grad(true); }

using OfRank = std::function<void(Experts& experts, CountingGroup& group)>;
void on_ranks(const OfRank& of_rank) {
  const auto store = make_memory_store();
  const std::vector<std::string> errors = on_threads(kRanks, [&](int64_t rank) {
    LinesLog log;
    const Services services{
        .log = log, .store = *store, .rank = rank, .world_size = kRanks, .local_rank = rank, .local_size = kRanks};
    const auto communicator =
        installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services);
    const auto group = std::make_shared<CountingGroup>(communicator->make_group({0, 1, 2, 3}, "ep"));
    const auto ranks = std::make_shared<ExpertRanks>();
    ranks->size = kRanks, ranks->experts = kExperts / kRanks, ranks->chosen = kChosen, ranks->group = group;
    of_rank(*all_to_all::split_experts(std::make_shared<Doubled>(), ranks, 1), *group);
    EXPECT_EQ(*group->under_way, 0) << "rank " << rank;
  });
  expect_no_errors(errors);
}

TEST(AllToAllTraffic, is_what_the_plan_says_with_equal_loads) {
  on_ranks([](Experts& experts, CountingGroup& group) {
    OneVisit ctx;
    double forward = 0;
    for (int64_t visit = 0; visit < kMicroBatches * kLayers; ++visit) {
      const double before = group.row_bytes;
      const at::Tensor x = tokens();
      const Routing routing = all_pairs();
      const at::Tensor y = sum_of_experts(experts, kExperts, x, routing, ctx, [] {});
      forward += group.row_bytes - before;
      y.backward(at::ones_like(y));
      EXPECT_TRUE(y.eq(1).all().item<bool>());
      EXPECT_TRUE(x.grad().eq(1).all().item<bool>());
      EXPECT_TRUE(routing.weights_TK.grad().eq(2 * kHidden).all().item<bool>());
    }
    EXPECT_NEAR(group.row_bytes, planned_bytes(true), 1e-6);
    EXPECT_NEAR(forward, planned_bytes(false), 1e-6) << "without a backward";
    EXPECT_LT(group.count_bytes, 0.2 * group.row_bytes) << "the counts are not in the plan";
  });
}

// Results and gradients with the other work of the layer in the middle and behind it.
TEST(AllToAllTraffic, the_layers_other_work_is_done_while_rows_are_under_way_with_the_same_bits) {
  on_ranks([](Experts& experts, CountingGroup& group) {
    const auto run = [&](bool in_the_middle) {
      OneVisit ctx;
      const at::Tensor x = tokens();
      std::vector<int> under_way;  // when the other work was done, forward and backward
      at::Tensor other;
      const std::function<void()> work = [&] {
        under_way.push_back(*group.under_way);
        other = differentiable(
            {x}, [](const Tensors& in) { return Tensors{in[0] * 0.1}; },
            [&](const Tensors& dy) {
              under_way.push_back(*group.under_way);
              return Tensors{dy[0] * 0.1};
            })[0];
      };
      const std::function<void()> nothing = [] {};
      const at::Tensor y = sum_of_experts(experts, kExperts, x, all_pairs(), ctx, in_the_middle ? work : nothing);
      if (!in_the_middle) work();
      const at::Tensor sum = y + other;
      sum.backward(at::ones_like(sum) * 0.3);
      for (const int open : under_way) EXPECT_EQ(open > 0, in_the_middle);
      EXPECT_EQ(under_way.size(), 2u);
      return Tensors{sum.detach(), x.grad()};
    };
    const Tensors overlapped = run(true), in_turn = run(false);
    EXPECT_TRUE(overlapped[0].equal(in_turn[0]));
    EXPECT_TRUE(overlapped[1].equal(in_turn[1]));
  });
}

}  // namespace
}  // namespace drivetrain::test
