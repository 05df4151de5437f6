// Every plugin that keeps state from step to step shows it: k steps, the state out into memory, a run built anew with
// other values in it, the state in, and the rest of the steps; against all steps without a stop. Ranks are threads.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <sstream>

#include "plan/prepare_run.h"
#include "run/run_state.h"
#include "support/quiet_log.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kSteps = 6, kStop = 3;

// All that was visited on one rank, in order.
class Memory final : public StateVisitor {
 public:
  void tensor(const std::string& name, at::Tensor& t, const Layout&) override {
    ASSERT_TRUE(t.defined()) << name;
    at::Tensor& kept = slot(name, tensors_);
    if (loading_)
      t.copy_(kept);
    else
      kept = t.clone();
  }
  void integer(const std::string& name, int64_t& value) override { number_like(name, value, integers_); }
  void number(const std::string& name, double& value) override { number_like(name, value, numbers_); }

  void load() { loading_ = true, at_ = 0; }
  bool all_was_loaded() const { return at_ == names_.size(); }
  const std::vector<std::string>& names() const { return names_; }
  Tensors tensors() const {
    Tensors all;
    for (const auto& [place, tensor] : tensors_) all.push_back(tensor);
    return all;
  }

 private:
  template <class T>
  T& slot(const std::string& name, std::map<size_t, T>& of) {
    if (!loading_) names_.push_back(name);
    const size_t here = loading_ ? at_++ : names_.size() - 1;
    EXPECT_LT(here, names_.size()) << name;
    EXPECT_EQ(names_.at(here), name) << "the same names in the same order";
    return of[here];
  }
  template <class T>
  void number_like(const std::string& name, T& value, std::map<size_t, T>& of) {
    T& kept = slot(name, of);
    (loading_ ? value : kept) = loading_ ? kept : value;
  }

  bool loading_ = false;
  size_t at_ = 0;
  std::vector<std::string> names_;
  std::map<size_t, at::Tensor> tensors_;
  std::map<size_t, int64_t> integers_;
  std::map<size_t, double> numbers_;
};

// Adds to a gradient what it has kept since the first step: a number and a tensor.
class Drift : public Strategy {
 public:
  explicit Drift(UnitList& units) : param_(units.units.front()->params().front()) {}
  void after_backward(const Visit& visit, StepContext&) override {
    if (visit.unit != 0) return;
    sum_.add_(param_->grad.view(-1)[0], 0.5);
    param_->grad.view(-1)[0] += 1e-3 * static_cast<double>(++visits_) + sum_.item<double>();
  }
  void state(StateVisitor& visitor) override {
    visitor.integer("visits", visits_);
    visitor.tensor("sum", sum_, Layout::whole({1}));
  }

 private:
  const ParamPtr param_;
  int64_t visits_ = 0;
  at::Tensor sum_ = at::zeros({1});
};

// Gives the rows of another step than it is asked for: of one that follows from how often it was read.
class Walk : public Dataset {
 public:
  explicit Walk(std::shared_ptr<Dataset> inner) : inner_(std::move(inner)) {}
  DatasetFacts open(const RunFacts& run, const ModelFacts& model) override { return inner_->open(run, model); }
  void read(const BatchRequest& request, Batch& batch) override {
    BatchRequest other = request;
    other.step = 1 + 7 * ++reads_ % 50;
    inner_->read(other, batch);
  }
  void state(StateVisitor& visitor) override { visitor.integer("reads", reads_); }

 private:
  const std::shared_ptr<Dataset> inner_;
  int64_t reads_ = 0;
};

// Per step the figures that are the same on every machine.
using Figures = std::map<int64_t, std::string>;

struct Rank {
  Figures figures;
  Tensors weights, state;  // in the end; all tensors that were visited
  std::vector<std::string> names;
};

std::string line_of(const Value& data) {
  std::string line;
  for (const char* name : {"loss", "grad_norm", "lr", "tokens", "loss_scale", "skipped"})
    if (const Value* value = data.find(name)) line += concat(name, " ", value->to_json(), " ");
  return line;
}

// Trains from where `memory` says, if it is given, and stops after `last`, if that is before the end.
void train_part(const Value& config, bool stateful, const RankSetup& setup, int64_t last, Memory* from, Memory* to,
                Rank& rank) {
  at::set_num_threads(1);
  Problems problems;
  Value own = config;
  // Initial values are others: none of them may be left over. Dropout goes on with the seed that it had.
  const bool drops = config.find("model")->to_json().find("dropout") != std::string::npos;
  if (from && !drops) own.set("seed", 99);
  const RunSettings settings = read_run_settings(own, "test.json", problems);
  const auto chosen = choose_plugins(own, built_plugins(), "cpu", problems);
  problems.throw_if_any();
  const auto planned = prepare_run(settings, chosen, built_plugins(), setup, Purpose::train);
  Run run(std::move(*planned));
  build_run(run);
  if (stateful) {
    run.plugins.strategies.push_back({"strategy/drift", std::make_shared<Drift>(run.units)});
    run.plugins.dataset = std::make_shared<Walk>(run.plugins.dataset);
  }
  std::atomic<int> stop = 0;
  Trainer trainer(
      trainer_parts(run),
      [&](int64_t step, Value data) {
        rank.figures[step] = line_of(data);
        if (step + 1 >= last) stop = 1;  // all ranks stop after the step that follows
      },
      stop);
  if (from) {
    from->load();
    visit_state(run_state(run, trainer), *from);
    EXPECT_TRUE(from->all_was_loaded());
    spread_values(run);
  }
  trainer.train();
  if (trainer.late_failure()) std::rethrow_exception(trainer.late_failure());
  if (to) visit_state(run_state(run, trainer), *to), rank.names = to->names(), rank.state = to->tensors();
  rank.weights.clear();
  for (const Trainables& chunk : run.chunks)
    for (const Trainable& t : chunk) rank.weights.push_back(t.value.clone());
}

std::vector<Rank> run_ranks(const Value& config, bool stateful, int ranks, const std::vector<int64_t>& stops) {
  std::vector<Rank> results(static_cast<size_t>(ranks));
  std::vector<Memory> memories(static_cast<size_t>(ranks));
  for (size_t part = 0; part < stops.size(); ++part) {
    const auto store = make_local_store();
    std::vector<std::thread> threads;
    std::vector<Memory> next(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        RankEnvironment environment;
        environment.rank = environment.local_rank = r, environment.world_size = environment.local_size = ranks;
        const auto i = static_cast<size_t>(r);
        try {
          train_part(config, stateful, {environment, store, std::make_shared<QuietLog>()}, stops[part],
                     part > 0 ? &memories[i] : nullptr, &next[i], results[i]);
        } catch (const Error& e) {
          ADD_FAILURE() << "rank " << r << ": " << e.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    memories = std::move(next);
  }
  return results;
}

Value config_with(const std::string& more) {
  Value value = parse_json(R"({
    "seed": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "monitors": false,
    "save_final": false, "gradient_clipping": 0.5,
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 33,
              "max_position_embeddings": 8}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8, "seed": 3}},
    "communicator": {"type": "local", "params": {"share": false}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_type": "linear"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})",
                           "test");
  const Value further = parse_json(more, "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("train_steps", kSteps);
  return value;
}

// The names that were visited.
std::vector<std::string> expect_same_bits(const std::string& more, int ranks, bool stateful = false) {
  const Value config = config_with(more);
  const auto whole = run_ranks(config, stateful, ranks, {kSteps}),
             parts = run_ranks(config, stateful, ranks, {kStop, kSteps});
  for (size_t r = 0; r < whole.size(); ++r) {
    SCOPED_TRACE(concat(more, ", rank ", r));
    EXPECT_EQ(whole[r].figures.size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(parts[r].figures, whole[r].figures);
    EXPECT_EQ(parts[r].weights.size(), whole[r].weights.size());
    for (size_t i = 0; i < std::min(whole[r].weights.size(), parts[r].weights.size()); ++i)
      EXPECT_TRUE(at::equal(parts[r].weights[i], whole[r].weights[i])) << "trainable " << i;
    EXPECT_EQ(parts[r].state.size(), whole[r].state.size());
    for (size_t i = 0; i < std::min(whole[r].state.size(), parts[r].state.size()); ++i)
      EXPECT_TRUE(at::equal(parts[r].state[i], whole[r].state[i])) << "tensor " << i << " of the state";
  }
  return parts[0].names;
}

bool contains(const std::vector<std::string>& names, const std::string& part) {
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& name) { return name.find(part) != std::string::npos; });
}

TEST(Restart, optimizers_show_their_state) {
  for (const char* optimizer : {R"("optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})",
                                R"("optimizer": {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}})"}) {
    const auto names = expect_same_bits(concat("{", optimizer, "}"), 1);
    EXPECT_TRUE(contains(names, "model/block.0.attn.qkv.weight"));
    EXPECT_TRUE(contains(names, "optimizer/"));
    EXPECT_TRUE(contains(names, "trainer/next_step"));
    EXPECT_TRUE(contains(names, "finish/tokens_seen"));
  }
}

TEST(Restart, strategies_and_datasets_show_what_they_keep) {
  const auto names = expect_same_bits("{}", 1, true);
  EXPECT_TRUE(contains(names, "strategy/drift/visits"));
  EXPECT_TRUE(contains(names, "strategy/drift/sum"));
  EXPECT_TRUE(contains(names, "/reads"));
}

TEST(Restart, moving_averages_go_on) {
  const std::string ema = R"("ema": {"decay": 0.7, "update_after_step": 1})";
  EXPECT_TRUE(contains(expect_same_bits("{" + ema + "}", 1), "strategy/ema/block.0.attn.qkv.weight.ema"));
  for (const char* sections :
       {R"("zero_optimization": {"stage": 1})", R"("zero_optimization": {"stage": 3})", R"("data_parallel": "fsdp")",
        R"("tensor_parallel": {"type": "megatron", "params": {"size": 2}})"})
    expect_same_bits(concat("{", ema, ", ", sections, "}"), 2);
}

TEST(Restart, precisions_show_masters_and_the_loss_scale) {
  expect_same_bits(R"({"bf16": {"enabled": true}})", 1);
  // A scale that moves within these steps.
  const auto names = expect_same_bits(
      R"({"fp16": {"enabled": true, "initial_scale_power": 19, "loss_scale_window": 2, "hysteresis": 1}})", 1);
  EXPECT_TRUE(contains(names, "finish/loss_scaler/scale"));
}

TEST(Restart, learning_rates_go_on) {
  for (const std::string& name : built_plugins().names("lr_schedule")) {
    const std::string keys = built_plugins().options("lr_schedule", name).schema().to_json();
    const char* const params = keys.find("decay_num_steps") != std::string::npos
                                   ? R"("total_num_steps": 6, "decay_num_steps": 4, "warmup_num_steps": 2)"
                               : keys.find("total_num_steps") != std::string::npos ? R"("total_num_steps": 10)"
                                                                                   : "";
    expect_same_bits(concat(R"({"scheduler": {"type": ")", name, R"(", "params": {)", params, "}}}"), 1);
  }
}

TEST(Restart, strategies_that_share_state_out_find_their_parts_again) {
  for (const int stage : {0, 1, 2, 3})
    expect_same_bits(concat(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": )", stage, "}}"), 2);
  expect_same_bits(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})", 2);
  expect_same_bits(R"({"data_parallel": {"type": "fsdp"}})", 2);
}

TEST(Restart, pipelines_and_cut_layers_find_their_parts_again) {
  expect_same_bits(R"({"schedule": {"type": "zero_bubble_h1", "params": {"stages": 2}}})", 2);
  expect_same_bits(R"({"tensor_parallel": {"type": "megatron", "params": {"size": 2}}})", 2);
  expect_same_bits(R"({"context_parallel": {"type": "ring", "params": {"size": 2}}})", 2);
}

// Neither keeps anything from step to step: numbers of dropout are functions of seed, step and place.
TEST(Restart, dropout_and_recompute_go_on) {
  expect_same_bits(R"({"activation_checkpointing": "full", "attention": "standard",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 33,
              "max_position_embeddings": 8, "hidden_dropout": 0.2, "attention_dropout": 0.1}}})",
                   1);
}

}  // namespace
}  // namespace drivetrain::test
