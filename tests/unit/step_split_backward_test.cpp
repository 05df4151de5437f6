// A storage owner that knows nothing of halves of a backward: it takes the gradients of each visit in after_backward.
// Under a schedule that splits backward it trains as the runtime's own storage does, which sums them in the slots.
#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <map>

#include "run/run.h"
#include "support/broken_run.h"

namespace drivetrain::test {
namespace {

class SumsAtOnce : public DataParallel {
 public:
  explicit SumsAtOnce(const Services& services) : services_(services) {}

  void attach(UnitList& units) override {
    for (size_t u = 0; u < units.units.size(); ++u) {
      owned_.push_back(units.owned(u));
      Trainables chunk;
      for (const ParamPtr& param : owned_.back()) {
        const at::Tensor value = at::empty(param->layout.global_shape, at::TensorOptions(at::kFloat));
        param->tensor = value.detach().set_requires_grad(true);
        param->grad = at::full_like(value, 1e30);  // nobody may read what was there before
        Trainable t;
        t.param = param, t.layout = param->layout;
        t.value = t.working = value.view(-1);
        t.grad = sums_[param.get()] = at::zeros({value.numel()}, value.options());
        chunk.push_back(t);
      }
      if (!chunk.empty()) chunks_.push_back(std::move(chunk));
    }
  }
  void step_begin(StepContext&) override {
    for (auto& [param, sum] : sums_) sum.zero_();
  }
  void after_backward(const Visit& visit, StepContext&) override {
    ++visits;
    for (const ParamPtr& param : owned_[static_cast<size_t>(visit.unit)]) {
      sums_.at(param.get()).add_(param->grad.view(-1));
      param->restart_grad();
    }
  }
  std::vector<Trainables> trainables() override { return chunks_; }

  int64_t visits = 0;

 private:
  const Services& services_;
  std::vector<std::vector<ParamPtr>> owned_;
  std::map<Param*, at::Tensor> sums_;
  std::vector<Trainables> chunks_;
};

// Hooks of the backward of a stage's first unit in the first step, by micro-batch.
struct HookSpy : Strategy {
  void note(const Visit& v, const StepContext& ctx, const char* hook) {
    if (v.unit == 0 && ctx.step() == 1)
      hooks[v.micro] += concat(hook, v.first ? " first" : "", v.last ? " last" : "", "; ");
  }
  void before_backward(const Visit& v, StepContext& c) override { note(v, c, "before_backward"); }
  void before_grads(const Visit& v, StepContext& c) override { note(v, c, "before_grads"); }
  void after_backward(const Visit& v, StepContext& c) override { note(v, c, "after_backward"); }
  void values_done(const Visit& v, StepContext& c) override { note(v, c, "values_done"); }
  std::map<int64_t, std::string> hooks;
};

// Masters of one rank after each step, and before the first. `spy`: on the last stage, which splits; may be null.
std::vector<Tensors> train_rank(const Value& config, int rank, const std::shared_ptr<Store>& store, bool toy,
                                const std::shared_ptr<HookSpy>& spy = nullptr) {
  at::set_num_threads(1);
  Problems problems;
  const RunSettings settings = read_run_settings(config, "test.json", problems);
  const auto chosen = choose_plugins(config, built_plugins(), "cpu", problems);
  problems.throw_if_any();
  RankEnvironment environment;
  environment.rank = environment.local_rank = rank, environment.world_size = environment.local_size = 2;
  Run run(std::move(*prepare_run(settings, chosen, built_plugins(), {environment, store, std::make_shared<Lines>()},
                                 Purpose::train)));
  const auto owner = std::make_shared<SumsAtOnce>(*run.services);
  if (toy) {
    for (NamedStrategy& s : run.plugins.strategies)
      if (s.strategy == run.plugins.data_parallel) s = {"data_parallel/toy", owner};
    run.plugins.data_parallel = owner;
  }
  build_run(run);
  if (spy && rank == 1) run.plugins.strategies.push_back({"test/spy", spy});
  std::vector<Tensors> weights = {masters(run)};
  const std::atomic<int> stop = 0;
  Trainer trainer(
      trainer_parts(run), [&](int64_t, const Value&) { weights.push_back(masters(run)); }, stop);
  trainer.train();
  EXPECT_EQ(owner->visits > 0, toy);
  return weights;
}

std::vector<std::vector<Tensors>> train_stages(const std::string& schedule, bool toy,
                                               const std::shared_ptr<HookSpy>& spy = nullptr) {
  const Value with = config(3, concat(R"({"gradient_accumulation_steps": 4, "model": {"type": "gpt", "params": {
      "num_layers": 3, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 32, "max_position_embeddings": 8}},
      "communicator": {"type": "local", "params": {"timeout_s": 20}},
      "schedule": {"type": ")",
                                      schedule, R"(", "params": {"stages": 2}}})"));
  const auto store = make_local_store();
  std::vector<std::vector<Tensors>> ranks(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ranks[static_cast<size_t>(rank)] = train_rank(with, rank, store, toy, spy);
      } catch (const Error& e) {
        ADD_FAILURE() << schedule << ", rank " << rank << ": " << e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

TEST(SplitBackward, is_nothing_that_a_strategy_has_to_know_of) {
  for (const char* schedule : {"one_f_one_b", "zero_bubble_h1"}) {
    const auto wanted = train_stages(schedule, false), found = train_stages(schedule, true);
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(wanted[rank].size(), 4u);
      ASSERT_EQ(found[rank].size(), 4u);
      for (size_t step = 0; step < 4; ++step) {
        ASSERT_EQ(found[rank][step].size(), wanted[rank][step].size());
        for (size_t i = 0; i < wanted[rank][step].size(); ++i)
          EXPECT_TRUE(at::allclose(found[rank][step][i], wanted[rank][step][i], 1e-4, 1e-6))
              << schedule << ", rank " << rank << ", step " << step << ", trainable " << i;
      }
      EXPECT_FALSE(same(wanted[rank][0], wanted[rank][3])) << "something was trained";
    }
  }
}

TEST(SplitBackward, calls_hooks_with_the_half_that_they_are_about) {
  const auto whole = std::make_shared<HookSpy>(), halves = std::make_shared<HookSpy>();
  train_stages("one_f_one_b", false, whole), train_stages("zero_bubble_h1", false, halves);
  ASSERT_EQ(whole->hooks.size(), 4u);
  ASSERT_EQ(halves->hooks.size(), 4u);
  EXPECT_EQ(whole->hooks[1], "before_backward; before_grads; after_backward; values_done; ");
  EXPECT_EQ(halves->hooks[1], "before_backward; before_grads; values_done; before_grads; after_backward; ");
  // Whoever begins sums with the first visit and ends them with the last sees both, whatever the schedule.
  EXPECT_EQ(whole->hooks[0], "before_backward first; before_grads first; after_backward first; values_done first; ");
  EXPECT_EQ(halves->hooks[0],
            "before_backward first; before_grads first; values_done first; before_grads first; after_backward first; ");
  EXPECT_EQ(halves->hooks[3],
            "before_backward last; before_grads last; values_done last; before_grads last; after_backward last; ");
}

}  // namespace
}  // namespace drivetrain::test
