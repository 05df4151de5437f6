// Steps whose gradients or losses are not finite: what is left out, what ends the run, what people are told. A strategy
// of the test breaks numbers of one rank; every rank has to come to the same end.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <limits>
#include <set>

#include "step/trainer.h"
#include "support/train_threads.h"

namespace drivetrain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Fault {
  std::set<int64_t> steps;
  double value = kInfinity;
  bool in_weights = false;  // else in a gradient
  int rank = 0;
};

// Innermost, so that it acts before gradients are summed over ranks.
class Breaker : public Strategy {
 public:
  Breaker(const Composition& run, const Fault& fault) : run_(run), fault_(fault) {}
  void before_forward(const Visit& visit, StepContext& ctx) override {
    if (fault_.in_weights && due(visit, ctx)) parameter()->tensor.detach().view(-1)[0] = fault_.value;
  }
  void after_backward(const Visit& visit, StepContext& ctx) override {
    if (!fault_.in_weights && due(visit, ctx)) parameter()->grad.view(-1)[0] = fault_.value;
  }

 private:
  bool due(const Visit& visit, const StepContext& ctx) const {
    return visit.unit == 0 && run_.services->rank == fault_.rank && fault_.steps.count(ctx.step()) > 0;
  }
  ParamPtr parameter() const { return run_.units.units[0]->params()[0]; }
  const Composition& run_;
  const Fault fault_;
};

struct Lines : Log {
  void write(LogLevel, const std::string& line) override { lines.push_back(line); }
  void progress(const std::string&) override {}
  std::vector<std::string> lines;
};

struct Outcome {
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

Tensors masters(const Composition& run) {
  Tensors copies;
  for (const Trainables& chunk : run.chunks)
    for (const Trainable& t : chunk) {
      copies.push_back(t.value.clone());
      EXPECT_TRUE(at::equal(t.working, t.value.to(t.working.scalar_type()))) << t.param->name;
    }
  return copies;
}

bool same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

Value config(int64_t steps, const std::string& more) {
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

void train(const Value& config, const Fault& fault, const RankEnvironment& environment,
           const std::shared_ptr<Store>& store, Outcome& outcome) {
  at::set_num_threads(1);
  Problems problems;
  const RunSettings settings = read_run_settings(config, "test.json", problems);
  const auto chosen = choose_plugins(config, test::built_plugins(), "cpu", problems);
  problems.throw_if_any();
  const auto log = std::make_shared<Lines>();
  const auto run = plan_run(settings, chosen, test::built_plugins(), {environment, store, log}, Purpose::train);
  build_run(*run);
  run->strategies.push_back({"test/breaker", std::make_shared<Breaker>(*run, fault)});
  outcome.weights.push_back(masters(*run));
  log->lines.clear();
  const std::atomic<int> stop = 0;
  const auto done = [&](int64_t, Value data) {
    outcome.figures.push_back(std::move(data));
    if (outcome.figures.size() < 10) outcome.weights.push_back(masters(*run));
  };
  try {
    Trainer(*run, done, stop).train();
  } catch (const Error& e) {
    outcome.error = e.what(), outcome.code = e.code();
    if (run->communicator) run->communicator->abort("the test's other rank stopped");
  }
  outcome.said = log->lines;
}

std::vector<Outcome> run(const Value& config, const Fault& fault, int ranks = 1) {
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

TEST(Overflow, of_one_rank_leaves_the_update_out_on_all_and_nothing_but_the_step_number_goes_on) {
  for (const char* precision :
       {R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true, "initial_scale_power": 8}})"}) {
    const auto both = run(config(6, precision), {{2, 4, 5}, kInfinity, false, 1}, 2);
    for (const Outcome& o : both) {
      ASSERT_EQ(o.error, "");
      for (size_t step = 1; step <= 6; ++step) {
        const bool left_out = step == 2 || step == 4 || step == 5;
        EXPECT_EQ(o.skipped(step), left_out) << step;
        EXPECT_EQ(same(o.weights[step - 1], o.weights[step]), left_out) << step;
        EXPECT_EQ(o.figures[step - 1].find("grad_norm")->to_json() == "null", left_out)
            << "as it is written to metrics.jsonl";
      }
      // The schedule follows updates, not steps.
      EXPECT_LT(o.figure(1, "lr"), o.figure(3, "lr") + 1e-12);
      EXPECT_EQ(o.figure(2, "lr"), o.figure(3, "lr"));
      EXPECT_EQ(o.figure(4, "lr"), o.figure(6, "lr"));
    }
    for (size_t i = 0; i < both[0].weights.size(); ++i) EXPECT_TRUE(same(both[0].weights[i], both[1].weights[i])) << i;
    EXPECT_HAS(both[0].all_said(), "step 2: gradients are not finite, first that of embedding.word");
    EXPECT_HAS(both[0].all_said(), "the update is left out");
    EXPECT_EQ(both[1].all_said().find("left out"), std::string::npos) << "one rank speaks for all";
  }
}

// Moments and bias correction too: what is left out was never there.
TEST(Overflow, a_step_that_was_left_out_shows_in_nothing_that_follows) {
  const std::string still =
      R"(, "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "gradient_accumulation_steps": 1)";
  const Value plain = config(3, R"({"bf16": {"enabled": true})" + still + "}");
  const Outcome o = run(plain, {{1}, kInfinity, false, 0})[0];
  const Outcome never = run(plain, {})[0];
  EXPECT_TRUE(o.skipped(1));
  EXPECT_EQ(o.figure(2, "lr"), never.figure(1, "lr"));
  EXPECT_EQ(o.figure(1, "loss"), never.figure(1, "loss"));
  for (const at::Tensor& weight : o.weights[3]) EXPECT_TRUE(weight.isfinite().all().item<bool>());
}

TEST(Overflow, lowers_the_loss_scale_by_its_rules) {
  const Outcome o = run(
      config(9, R"({"fp16": {"enabled": true, "initial_scale_power": 8, "hysteresis": 2, "loss_scale_window": 3}})"),
      {{2, 3, 4}, kInfinity, false, 0})[0];
  ASSERT_EQ(o.error, "");
  std::vector<double> scales;
  for (size_t step = 1; step <= 9; ++step) scales.push_back(o.figure(step, "loss_scale"));
  EXPECT_EQ(scales, (std::vector<double>{256, 256, 256, 128, 64, 64, 64, 64, 128}));
  EXPECT_HAS(o.all_said(),
             "step 2: gradients are not finite, first that of embedding.word.weight; the update is left out, loss "
             "scale 256 stays");
  EXPECT_HAS(o.all_said(), "loss scale 256 falls to 128");
}

TEST(Overflow, at_the_least_loss_scale_ends_the_run_with_the_parameter_and_advice) {
  const Outcome o =
      run(config(9, R"({"fp16": {"enabled": true, "initial_scale_power": 5, "hysteresis": 1, "min_loss_scale": 8}})"),
          {{2, 3, 4, 5}, kInfinity, false, 0})[0];
  EXPECT_EQ(o.figures.size(), 3u);
  EXPECT_EQ(o.code, ErrorCode::numeric);
  EXPECT_HAS(o.error, "step 4: loss is ");
  EXPECT_HAS(o.error, "at loss scale 8, which is its minimum, first in the gradient of embedding.word");
  EXPECT_HAS(o.error, "The weights are those of step 3");
  EXPECT_HAS(o.error, "bfloat16");
}

TEST(Overflow, a_static_scale_or_none_gives_up_after_a_hundred_in_a_row) {
  std::set<int64_t> all;
  for (int64_t step = 2; step < 300; ++step) all.insert(step);
  for (const char* precision :
       {R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true, "loss_scale": 128}})"}) {
    const Outcome o = run(config(300, precision), {all, kInfinity, false, 0})[0];
    EXPECT_EQ(o.figures.size(), 100u);
    EXPECT_EQ(o.code, ErrorCode::numeric);
    EXPECT_HAS(o.error, "step 101: ");
    EXPECT_HAS(o.error, "as in the 99 steps before it, whose updates were left out");
  }
}

TEST(Overflow, ends_the_run_where_the_precision_does_not_leave_updates_out) {
  for (const char* precision : {"{}", R"({"bf16": {"enabled": true, "check_grad_overflow": false}})"}) {
    const Outcome o = run(config(4, precision), {{3}, kInfinity, false, 0})[0];
    EXPECT_EQ(o.code, ErrorCode::numeric);
    EXPECT_HAS(o.error, "step 3: loss is ");
    EXPECT_HAS(o.error, "first in the gradient of embedding.word");
    ASSERT_EQ(o.figures.size(), 2u);
    EXPECT_EQ(o.figures[0].find("skipped"), nullptr);
    EXPECT_EQ(o.figures[0].find("loss_scale"), nullptr);
  }
}

// No scale would make it finite.
TEST(Overflow, a_loss_that_is_no_number_is_none) {
  for (const char* precision : {R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true}})"}) {
    const Outcome o = run(config(4, precision), {{2}, std::numeric_limits<double>::quiet_NaN(), true, 0})[0];
    EXPECT_EQ(o.code, ErrorCode::numeric);
    EXPECT_HAS(o.error, "step 2: loss is nan");
    EXPECT_EQ(o.figures.size(), 1u);
    EXPECT_EQ(o.error.find("does not depend on the loss scale") != std::string::npos,
              std::string(precision).find("fp16") != std::string::npos);
  }
}

// The scale doubles in every step; dividing by the next one, as DeepSpeed does, would halve the norms.
TEST(LossScale, gradients_are_divided_by_the_scale_they_were_made_with) {
  const Outcome fixed = run(config(6, R"({"fp16": {"enabled": true, "loss_scale": 64}})"), {})[0];
  const Outcome growing =
      run(config(6, R"({"fp16": {"enabled": true, "initial_scale_power": 6, "loss_scale_window": 1}})"), {})[0];
  ASSERT_EQ(growing.error + fixed.error, "");
  EXPECT_EQ(growing.figure(6, "loss_scale"), 64 * 16);
  for (size_t step = 1; step <= 6; ++step) {
    EXPECT_NEAR(growing.figure(step, "grad_norm"), fixed.figure(step, "grad_norm"),
                2e-3 * fixed.figure(step, "grad_norm"))
        << step;
    EXPECT_NEAR(growing.figure(step, "loss"), fixed.figure(step, "loss"), 2e-3) << step;
    EXPECT_FALSE(growing.skipped(step));
  }
}

// 1000.3 is no float16, but 1000.5 is what the backward pass sees.
TEST(LossScale, a_static_scale_that_float16_rounds_is_divided_out_as_it_was_rounded) {
  const Outcome even = run(config(1, R"({"fp16": {"enabled": true, "loss_scale": 1024}})"), {})[0];
  const Outcome odd = run(config(1, R"({"fp16": {"enabled": true, "loss_scale": 1023.7}})"), {})[0];
  EXPECT_NEAR(odd.figure(1, "grad_norm") / even.figure(1, "grad_norm"), 1, 1e-3);
  EXPECT_EQ(odd.figure(1, "loss_scale"), 1023.7);
}

}  // namespace
}  // namespace drivetrain
