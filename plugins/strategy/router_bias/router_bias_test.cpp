// strategy/router_bias: the movement of biases against the plain formula, and whole runs, in which ranks that share the
// tokens in any way have the biases of one process.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/plan_record.h>
#include <drivetrain/random.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include "support/memory_checkpoint.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kHidden = 6, kExperts = 5, kChosen = 2, kTokens = 14;

class OneVisit : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}
  Batch batch_;
  Visit visit_;
};

class States : public StateVisitor {
 public:
  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override {
    EXPECT_EQ(layout, Layout::whole(t.sizes().vec()));
    biases[name] = t.clone();
  }
  void integer(const std::string&, int64_t&) override {}
  void number(const std::string&, double&) override {}
  std::map<std::string, at::Tensor> biases;
};

RouterSpec spec_of(const std::string& name, double rate = 0) {
  RouterSpec spec;
  spec.name = name, spec.hidden = kHidden, spec.experts = kExperts, spec.chosen = kChosen;
  spec.bias_update_rate = rate;
  return spec;
}

struct HoldsRouter : Unit {
  explicit HoldsRouter(std::shared_ptr<Router> router) : Unit("block"), own(std::move(router)) {}
  std::vector<ParamPtr> params() const override { return own->params(); }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
  std::shared_ptr<Router> own;
};

// The strategy on one rank, with two routers of which the second is another stage's.
struct OnOneRank {
  explicit OnOneRank(const std::string& options, double model_rate = 0)
      : strategy(make_plugin<Strategy>(host, "router_bias", options)),
        builder{make_plain_layers(nullptr), nullptr, mesh, facts} {
    strategy->build(builder);
    router = builder.layers->router(spec_of("block.0.mlp.router", model_rate));
    (void)builder.layers->router(spec_of("block.1.mlp.router", model_rate));
    for (const ParamPtr& param : router->params()) {
      param->tensor = drawn(param->layout.global_shape);
      param->trainable = false;
    }
    UnitList units{{std::make_shared<HoldsRouter>(router)}};
    strategy->attach(units);
  }
  // Micro-batches of a step; returns how often they chose each expert.
  std::vector<double> step(int micro_batches, bool skipped = false, bool recomputed = false) {
    std::vector<double> counts(kExperts);
    strategy->step_begin(ctx);
    for (int m = 0; m < micro_batches; ++m) {
      const at::Tensor x = drawn({2, kTokens / 2, kHidden}).add(0.5);
      const at::Tensor chosen = router->forward(x, ctx).experts_TK;
      for (int64_t i = 0; i < chosen.numel(); ++i) ++counts[size_t(chosen.view({-1})[i].item<int64_t>())];
      if (!recomputed) continue;
      ctx.visit_.direction = Direction::backward;
      EXPECT_TRUE(at::equal(router->forward(x, ctx).experts_TK, chosen));
      ctx.visit_.direction = Direction::forward;
    }
    Trainables updated;
    for (int lists = 0; !skipped && lists < 2; ++lists) strategy->after_update(updated, ctx);
    strategy->step_end(ctx);
    return counts;
  }
  at::Tensor drawn(const std::vector<int64_t>& shape) {
    at::Tensor flat = at::zeros({c10::multiply_integers(shape)}, at::TensorOptions(at::kFloat));
    fill_normal(flat, 5, concat("drawn ", ++draws), 0, 1);
    return flat.view(shape);
  }
  at::Tensor bias() {
    States states;
    strategy->state(states);
    EXPECT_EQ(states.biases.size(), 1u) << "the other router is not this stage's";
    return states.biases.at("block.0.mlp.router.bias");
  }

  const Host host;
  const Mesh mesh{{}, 0, 1, nullptr};
  const ModelFacts facts;
  std::unique_ptr<Strategy> strategy;
  Builder builder;
  std::shared_ptr<Router> router;
  OneVisit ctx;
  int draws = 0;
};

// b_e += rate sign(mean of c - c_e)
void move(std::vector<double>& bias, const std::vector<double>& counts, double rate) {
  double sum = 0;
  for (const double c : counts) sum += c;
  for (size_t e = 0; e < bias.size(); ++e) {
    const double more = sum / double(counts.size()) - counts[e];
    bias[e] += more > 0 ? rate : more < 0 ? -rate : 0;
  }
}
void expect_bias(const at::Tensor& found, const std::vector<double>& wanted) {
  for (size_t e = 0; e < wanted.size(); ++e)
    EXPECT_NEAR(found[int64_t(e)].item<double>(), wanted[e], 1e-6) << "expert " << e;
}

TEST(RouterBias, moves_by_the_plain_formula) {
  OnOneRank one(R"({"update_rate": 0.03})");
  std::vector<double> wanted(kExperts);
  Trainables initial;
  one.strategy->after_update(initial, one.ctx);  // before the first step
  for (int step = 0; step < 12; ++step) {
    const std::vector<double> counts = one.step(1 + step % 3, false, step % 2 == 1);
    move(wanted, counts, 0.03);
    expect_bias(one.bias(), wanted);
  }
  EXPECT_GT(one.bias().abs().max().item<double>(), 0.1);
}

TEST(RouterBias, a_step_without_an_update_leaves_it_and_its_counts_are_gone) {
  OnOneRank one(R"({"update_rate": 0.5})");
  std::vector<double> wanted(kExperts);
  move(wanted, one.step(1), 0.5);
  (void)one.step(3, true);
  expect_bias(one.bias(), wanted);
  move(wanted, one.step(1), 0.5);
  expect_bias(one.bias(), wanted);
}

TEST(RouterBias, makes_loads_equal) {
  const auto busiest = [](const std::string& rate) {
    OnOneRank one(concat(R"({"update_rate": )", rate, "}"));
    for (int step = 0; step < 40; ++step) (void)one.step(4);
    std::vector<double> sum(kExperts);
    for (int step = 0; step < 40; ++step) {
      const std::vector<double> counts = one.step(4);
      for (size_t e = 0; e < sum.size(); ++e) sum[e] += counts[e];
    }
    return *std::max_element(sum.begin(), sum.end()) * kExperts / (40 * 4 * kTokens * kChosen);
  };
  EXPECT_GT(busiest("0"), 1.3);
  EXPECT_LT(busiest("0.01"), 1.1);
}

TEST(RouterBias, the_rate_is_the_models_or_its_own) {
  const auto moved = [](const std::string& options, double model_rate) {
    OnOneRank one(options, model_rate);
    (void)one.step(1);
    return one.bias().abs().max().item<double>();
  };
  EXPECT_NEAR(moved("{}", 0), 1e-3, 1e-9);
  EXPECT_NEAR(moved("{}", 0.25), 0.25, 1e-9);
  EXPECT_NEAR(moved(R"({"update_rate": 0.25})", 0.25), 0.25, 1e-9);
  EXPECT_EQ(moved(R"({"update_rate": 0})", 0), 0);
  for (const char* rate : {"0.5", "0"})
    EXPECT_NE(error_of([&] { OnOneRank(concat(R"({"update_rate": )", rate, "}"), 0.25); })
                  .find(concat("update_rate is ", rate,
                               ", and the model's router_bias_update_rate is 0.25 "
                               "(block.0.mlp.router); leave one of them out")),
              std::string::npos);
}

TEST(RouterBias, refuses_what_it_cannot_do) {
  const Host host;
  EXPECT_NE(error_of([&] { make_plugin<Strategy>(host, "router_bias", R"({"update_rate": -1})"); }), "");
  OnOneRank one("{}");
  RouterSpec taken = spec_of("block.0.mlp.router");
  taken.bias = std::make_shared<RouterBias>();
  EXPECT_NE(error_of([&] { one.builder.layers->router(taken); }).find("another strategy keeps the bias"),
            std::string::npos);

  const auto planned = [&](const ModelFacts& model, bool training = true) {
    RunFacts run;
    run.training = training;
    PlanRecord plan(model, run);
    plan.set_plugin("strategy/router_bias");
    one.strategy->plan(plan);
    return plan;
  };
  EXPECT_NE(planned(ModelFacts()).refusals().at(0).text.find("num_experts"), std::string::npos);
  ModelFacts mixture;
  mixture.mixture = {kExperts, kChosen, 3, 1000};
  EXPECT_TRUE(planned(mixture).refusals().empty());
  EXPECT_EQ(planned(mixture).memories().at(0).bytes, 3 * kExperts * 4);  // biases, which checkpoints have
  EXPECT_EQ(planned(mixture).memories().at(1).bytes, 3 * kExperts * 8);  // counts
  EXPECT_TRUE(planned(mixture).no_effects().empty());
  EXPECT_NE(planned(mixture, false).no_effects().at(0).text.find("only checkpoints"), std::string::npos);
  RouterSpec forced = spec_of("block.2.mlp.router");
  forced.forced = true;
  (void)one.builder.layers->router(forced);
  EXPECT_NE(planned(mixture).no_effects().at(0).text.find("router_forced_balance"), std::string::npos);
}

TEST(RouterBias, says_once_that_files_of_weights_lack_the_biases) {
  Host host;
  Param matrix("block.0.mlp.fc.weight", Layout::whole({2, 2}), InitRule::zeros());
  Param router("block.0.mlp.router.weight", Layout::whole({2, 2}), InitRule::zeros());
  router.role = ParamRole::router;
  const at::Tensor value = at::full({2, 2}, 3.0);
  for (const auto& [rate, rank, lines] : {std::tuple{"0.5", 0, 1u}, {"0.5", 1, 0u}, {"0", 0, 0u}}) {
    host.services.rank = rank, host.log.warnings.clear();
    const auto strategy = make_plugin<Strategy>(host, "router_bias", concat(R"({"update_rate": )", rate, "}"));
    (void)strategy->merge(matrix, value, {});
    EXPECT_TRUE(host.log.warnings.empty());
    for (int again = 0; again < 2; ++again) EXPECT_TRUE(at::equal(strategy->merge(router, value, {}), value));
    EXPECT_EQ(host.log.warnings.size(), lines) << rate << " on rank " << rank;
  }
}

Value config_of(const std::string& sections) {
  static const TempFolder folder;
  static int runs = 0;
  Value value = parse_json(R"({
    "train_steps": 6, "seed": 7, "train_batch_size": 4, "checkpoint_policy": false, "router_bias": {"update_rate": 0.05},
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 61,
              "max_position_embeddings": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
              "router": "sigmoid", "norm_topk_prob": true, "router_aux_loss_coef": 0, "init_method_std": 0.2}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 16}}, "optimizer": {"type": "SGD", "params": {"lr": 0.05}}})",
                           "test");
  const Value further = parse_json(sections, "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("output_dir", folder.path(concat("run", runs++)));
  return value;
}

using Biases = std::map<std::string, at::Tensor>;
Biases biases_of(const RunPart& part) {
  Biases found;
  for (const auto& [name, tensor] : part.end.tensors_)
    if (name.find("router_bias") != std::string::npos) found[name] = tensor;
  EXPECT_EQ(found.size(), 2u);
  return found;
}
void expect_same(const Biases& found, const Biases& wanted, const std::string& what) {
  for (const auto& [name, bias] : wanted) {
    ASSERT_TRUE(found.contains(name)) << what << ": " << name;
    EXPECT_TRUE(at::equal(found.at(name), bias)) << what << ": " << name << "\n" << found.at(name) << bias;
  }
}

TEST(RouterBiasRuns, ranks_that_share_the_tokens_have_the_biases_of_one_process) {
  const RunPart one = run_part(config_of("{}"), 1, nullptr, 6);
  const Biases wanted = biases_of(one);
  for (const auto& [name, bias] : wanted) EXPECT_GT(bias.abs().max().item<double>(), 0.1) << name;
  constexpr const char* kSequenceParallel =
      R"("tensor_parallel": {"type": "megatron", "params": {"size": 2, "sequence_parallel": true}})";
  const std::pair<std::string, int> runs[] = {
      {R"({"gradient_accumulation_steps": 4})", 1},
      {R"({"activation_checkpointing": "full"})", 1},
      {R"({"gradient_accumulation_steps": 2})", 2},
      {R"({"zero_optimization": {"stage": 3}})", 4},
      {R"({"expert_parallel": 2})", 2},
      {R"({"expert_parallel": 2, "zero_optimization": {"stage": 1}})", 4},
      {R"({"tensor_parallel": {"type": "megatron", "params": {"size": 2}}})", 2},
      {concat("{", kSequenceParallel, "}"), 2},
      {R"({"context_parallel": {"type": "ring", "params": {"size": 2}}})", 2},
      {concat(R"({"context_parallel": {"type": "ring", "params": {"size": 2}}, )", kSequenceParallel, "}"), 4},
      {R"({"pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}, "gradient_accumulation_steps": 2})", 4}};
  for (const auto& [sections, ranks] : runs) {
    const RunPart other = run_part(config_of(sections), ranks, nullptr, 6);
    for (const auto& [step, figures] : one.figures)
      EXPECT_NEAR(other.figures.at(step).first, figures.first, 1e-5) << sections << " step " << step;
    expect_same(biases_of(other), wanted, sections);
  }
}

TEST(RouterBiasRuns, go_on_from_a_checkpoint_on_other_ranks) {
  const RunPart whole = run_part(config_of("{}"), 1, nullptr, 6), saved = run_part(config_of("{}"), 1, nullptr, 3);
  const RunPart rest = run_part(config_of("{}"), 1, &saved.end, 6);
  for (const auto& [name, tensor] : whole.end.tensors_)
    EXPECT_TRUE(at::equal(rest.end.tensors_.at(name), tensor)) << name;
  const std::string ep = R"({"expert_parallel": 2})",
                    pp = R"({"pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}})";
  for (const std::string& sections : {ep, pp})
    expect_same(biases_of(run_part(config_of(sections), 2, &saved.end, 6)), biases_of(whole), sections);
  const RunPart saved_by_stages = run_part(config_of(pp), 2, nullptr, 3);
  expect_same(biases_of(run_part(config_of(ep), 2, &saved_by_stages.end, 6)), biases_of(whole), "saved by stages");
}

// The first scale is too large for any gradient.
TEST(RouterBiasRuns, a_skipped_update_moves_nothing) {
  const RunPart part = run_part(config_of(R"({"fp16": {"enabled": true, "initial_scale_power": 40}})"), 1, nullptr, 1);
  for (const auto& [name, bias] : biases_of(part)) EXPECT_EQ(bias.abs().max().item<double>(), 0) << name;
}

TEST(RouterBiasRuns, a_model_without_experts_is_refused) {
  const Value config = config_of(R"({"model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16,
    "num_attention_heads": 2, "vocab_size": 61, "max_position_embeddings": 16}}})");
  EXPECT_NE(error_of([&] { run_threads(config, 1); }).find("the model has no experts"), std::string::npos);
}

// The model asks for it; without the strategy the run is refused, with the model's rate it runs.
TEST(RouterBiasRuns, the_models_option_is_heard) {
  const auto config = [](const char* router_bias) {
    Value value = config_of(router_bias);
    value.set("train_steps", 1);
    Value model = *value.find("model"), params = *model.find("params");
    params.set("router_bias_update_rate", 0.25), model.set("params", params), value.set("model", model);
    return value;
  };
  EXPECT_NE(error_of([&] { run_threads(config(R"({"router_bias": false})"), 1); }).find("router_bias"),
            std::string::npos);
  for (const auto& [name, bias] : biases_of(run_part(config(R"({"router_bias": true})"), 1, nullptr, 1)))
    EXPECT_EQ(bias.abs().max().item<double>(), 0.25) << name;
}

}  // namespace
}  // namespace drivetrain::test
