// Runs that are watched step by step while a strategy of the test breaks numbers of one rank: figures, masters and
// lines of every rank. Ranks are threads. Thread: the caller's, which waits. Errors: in each rank's Outcome.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <limits>
#include <set>

#include "plan/prepare_run.h"
#include "run/run.h"
#include "support/train_threads.h"

namespace drivetrain::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Fault {
  std::set<int64_t> steps;
  double value = kInfinity;
  bool in_weights = false;  // else in a gradient
  int rank = 0;
  bool throws = false;  // instead: an Error from step_end
};

// Innermost, so that it acts before gradients are summed over ranks.
class Breaker : public Strategy {
 public:
  Breaker(const Run& run, const Fault& fault, at::Tensor& first) : run_(run), fault_(fault), first_(first) {}
  void before_forward(const Visit& visit, StepContext& ctx) override {
    if (fault_.in_weights && due(visit, ctx)) parameter()->tensor.detach().view(-1)[0] = fault_.value;
  }
  void after_backward(const Visit& visit, StepContext& ctx) override {
    if (visit.unit == 0 && !first_.defined()) first_ = parameter()->grad.clone();
    if (!fault_.in_weights && due(visit, ctx)) parameter()->grad.view(-1)[0] = fault_.value;
  }
  void step_end(StepContext& ctx) override {
    if (fault_.throws && run_.services->rank == fault_.rank && fault_.steps.count(ctx.step()) > 0)
      throw fail(ErrorCode::io, "the test's step_end");
  }

 private:
  bool due(const Visit& visit, const StepContext& ctx) const {
    return !fault_.throws && visit.unit == 0 && run_.services->rank == fault_.rank &&
           fault_.steps.count(ctx.step()) > 0;
  }
  ParamPtr parameter() const { return run_.units.units[0]->params()[0]; }
  const Run& run_;
  const Fault fault_;
  at::Tensor& first_;
};

struct Lines : Log {
  void write(LogLevel, const std::string& line) override { lines.push_back(line); }
  void progress(const std::string&) override {}
  std::vector<std::string> lines;
};

struct Outcome {
  at::Tensor first_gradient;      // of the first unit's first parameter, from the first micro-batch, as units left it
  std::vector<Value> figures;     // of each step done
  std::vector<Tensors> weights;   // masters after each step, and before the first
  std::vector<std::string> said;  // by the runtime
  std::string error;
  ErrorCode code = ErrorCode::internal;
  bool skipped(size_t step) const { return figures.at(step - 1).find("skipped")->as_bool(); }
  double figure(size_t step, const char* name) const { return figures.at(step - 1).find(name)->as_double(); }
  std::string all_said() const {
    std::string text;
    for (const std::string& line : said) text += line + "\n";
    return text;
  }
};

inline Tensors masters(const Run& run) {
  Tensors copies;
  for (const Trainables& chunk : run.chunks)
    for (const Trainable& t : chunk) {
      copies.push_back(t.value.clone());
      EXPECT_TRUE(at::equal(t.working, t.value.to(t.working.scalar_type()))) << t.param->name;
    }
  return copies;
}

inline bool same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

inline Value config(int64_t steps, const std::string& more) {
  Value value = parse_json(R"({
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "monitors": false, "save_final": false,
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1000, "warmup_min_lr": 0.001, "warmup_type": "linear"}},
    "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 32,
              "max_position_embeddings": 8}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})",
                           "test");
  const Value further = parse_json(more, "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("train_steps", steps);
  return value;
}

inline void train(const Value& config, const Fault& fault, const RankEnvironment& environment,
                  const std::shared_ptr<Store>& store, Outcome& outcome) {
  at::set_num_threads(1);
  Problems problems;
  const RunSettings settings = read_run_settings(config, "test.json", problems);
  const auto chosen = choose_plugins(config, built_plugins(), "cpu", problems);
  problems.throw_if_any();
  const auto log = std::make_shared<Lines>();
  Run run(std::move(*prepare_run(settings, chosen, built_plugins(), {environment, store, log}, Purpose::train)));
  build_run(run);
  run.plugins.strategies.push_back({"test/breaker", std::make_shared<Breaker>(run, fault, outcome.first_gradient)});
  outcome.weights.push_back(masters(run));
  log->lines.clear();
  const std::atomic<int> stop = 0;
  const auto done = [&](int64_t, Value data) {
    outcome.figures.push_back(std::move(data));
    if (outcome.figures.size() < 10) outcome.weights.push_back(masters(run));
  };
  try {
    Trainer trainer(trainer_parts(run), done, stop);
    trainer.train();
    if (trainer.late_failure()) std::rethrow_exception(trainer.late_failure());
  } catch (const Error& e) {
    outcome.error = e.what(), outcome.code = e.code();
    if (run.plugins.communicator) run.plugins.communicator->abort("the test's other rank stopped");
  }
  outcome.said = log->lines;
}

inline std::vector<Outcome> run(const Value& config, const Fault& fault, int ranks = 1) {
  const auto store = make_local_store();
  std::vector<Outcome> outcomes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RankEnvironment environment;
      environment.rank = environment.local_rank = rank;
      environment.world_size = environment.local_size = ranks;
      try {
        train(config, fault, environment, store, outcomes[rank]);
      } catch (const Error& e) {
        outcomes[rank].error = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace drivetrain::test
