// The bytes that the plan says against those that the exchanges send, forward and backward, counted in the group.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <drivetrain/plan_record.h>

#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>

#include "all_to_all.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

// Another's group, which counts what goes to other ranks: of rows apart from counts of rows.
class CountingGroup final : public Group {
 public:
  explicit CountingGroup(GroupPtr inner) : inner_(std::move(inner)) {}
  double row_bytes = 0, count_bytes = 0;

  int64_t rank() const override { return inner_->rank(); }
  const std::vector<int64_t>& ranks() const override { return inner_->ranks(); }
  const std::string& label() const override { return inner_->label(); }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override { return inner_->allocate(numel, dtype); }
  WorkPtr all_reduce(at::Tensor t) override { return inner_->all_reduce(t); }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override { return inner_->all_gather(out, in); }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override { return inner_->reduce_scatter(out, in); }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override {
    const auto size = static_cast<double>(ranks().size());
    count_bytes += static_cast<double>(in.nbytes()) * (size - 1) / size;
    return inner_->all_to_all(out, in);
  }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    for (size_t to = 0; to < sent.size(); ++to)
      if (static_cast<int64_t>(to) != rank())
        row_bytes += static_cast<double>(sent[to]) * static_cast<double>(in.element_size());
    return inner_->all_to_all(out, in, received, sent);
  }
  WorkPtr broadcast(at::Tensor t, int64_t root) override { return inner_->broadcast(t, root); }
  WorkPtr send(at::Tensor t, int64_t to) override { return inner_->send(t, to); }
  WorkPtr recv(at::Tensor t, int64_t from) override { return inner_->recv(t, from); }
  void batch_begin() override { inner_->batch_begin(); }
  void batch_end() override { inner_->batch_end(); }
  void barrier() override { inner_->barrier(); }

 private:
  const GroupPtr inner_;
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

constexpr int64_t kRanks = 4, kExperts = 8, kChosen = 2, kHidden = 6, kTokens = 16, kMicroBatches = 3, kLayers = 2;

double planned_bytes(bool training) {
  ModelFacts model;
  model.num_layers = kLayers, model.hidden_size = kHidden;
  model.mixture.experts = kExperts, model.mixture.chosen = kChosen, model.mixture.layers = kLayers;
  RunFacts run;
  run.world_size = kRanks, run.micro_batch_size = 2, run.accumulation = kMicroBatches, run.seq_length = kTokens / 2;
  run.position_ranks = 1, run.training = training;
  PlanRecord ctx(model, run);
  ctx.set_plugin("expert_parallel/all_to_all");
  all_to_all::AllToAllOptions options;
  options.size = kRanks;
  all_to_all::report_exchanges(options, "ep", ctx);
  return ctx.traffics().at(0).bytes;
}

// Every rank's tokens choose every expert equally often, as the plan assumes.
TEST(AllToAllTraffic, is_what_the_plan_says_with_equal_loads) {
  const auto store = make_memory_store();
  const std::vector<std::string> errors = on_threads(kRanks, [&](int64_t rank) {
    LinesLog log;
    const Services services{
        .log = log, .store = *store, .rank = rank, .world_size = kRanks, .local_rank = rank, .local_size = kRanks};
    const auto communicator =
        installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services);
    const auto group = std::make_shared<CountingGroup>(communicator->make_group({0, 1, 2, 3}, "ep"));
    const auto ranks = std::make_shared<ExpertRanks>();
    ranks->size = kRanks, ranks->group = group;
    const auto experts = all_to_all::split_experts(std::make_shared<Doubled>(), ranks, 1);
    const int64_t rows = kTokens * kChosen;
    const at::Tensor counts = at::full({kExperts}, rows / kExperts, at::TensorOptions(at::kLong));
    OneVisit ctx;
    double forward = 0;
    for (int64_t visit = 0; visit < kMicroBatches * kLayers; ++visit) {
      const double before = group->row_bytes;
      at::Tensor x = at::ones({rows, kHidden}, at::TensorOptions(at::kFloat));
      x.set_requires_grad(true);
      const at::Tensor y = experts->forward(x, counts, ctx);
      forward += group->row_bytes - before;
      y.backward(at::ones({rows, kHidden}, at::TensorOptions(at::kFloat)));
      EXPECT_TRUE(x.grad().eq(2).all().item<bool>()) << "rank " << rank;
    }
    EXPECT_EQ(group->row_bytes, planned_bytes(true)) << "rank " << rank;
    EXPECT_EQ(forward, planned_bytes(false)) << "rank " << rank << ", without a backward";
    EXPECT_LT(group->count_bytes, 0.2 * group->row_bytes) << "the counts are not in the plan";
  });
  expect_no_errors(errors);
}

}  // namespace
}  // namespace drivetrain::test
