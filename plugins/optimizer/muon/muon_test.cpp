// optimizer/muon against its formula written anew in float64, properties of an orthogonal update, and its options.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <set>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/optimizer/updates.h>

#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct MuonTest : ::testing::Test {
  MuonTest() {
    at::set_num_threads(1);  // matrices are small
    host.services.mesh = &alone, host.services.plugins = &maker;
  }
  std::unique_ptr<Optimizer> make(const std::string& json = "{}") { return make_plugin<Optimizer>(host, "muon", json); }
  std::string refusal(const std::string& json) {
    return error_of([&] { make(json); });
  }
  Host host;
  const Mesh alone{{}, 0, 1, nullptr};
  const InstalledMaker maker{host.services};
};

at::Tensor normal(std::vector<int64_t> shape, uint64_t seed) {
  return uneven_numbers(Layout::whole(shape).global_numel(), seed).view(shape);
}

// The formula in float64, one matrix after the other: everything that the plugin does in another order.
struct Formula {
  double lr = 0.02, decay = 0, momentum = 0.95, a = 3.4445, b = -4.7750, c = 2.0315;
  int steps = 5;
  bool nesterov = true, match_rms = false;

  at::Tensor orthogonal(at::Tensor u) const {
    const bool tall = u.size(0) > u.size(1);
    if (tall) u = u.t();
    at::Tensor x = u / std::max(u.norm().item<double>(), 1e-7);
    for (int i = 0; i < steps; ++i) {
      const at::Tensor gram = at::matmul(x, x.t());
      x = a * x + at::matmul(b * gram + c * at::matmul(gram, gram), x);
    }
    return tall ? x.t() : x;
  }
  void update(at::Tensor& p, at::Tensor& m, const at::Tensor& g) const {
    m = momentum * m + (1 - momentum) * g;
    const at::Tensor o = orthogonal(nesterov ? momentum * m + (1 - momentum) * g : m);
    const auto rows = static_cast<double>(p.size(0)), columns = static_cast<double>(p.size(1));
    const double scale =
        match_rms ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
    p = p * (1 - lr * decay) - lr * scale * o;
  }
};

// The largest distance of 20 steps from the formula, relative to the furthest that these moved.
double distance_of(Optimizer& optimizer, const Formula& formula, std::vector<int64_t> shape) {
  const at::Tensor start = normal(shape, 1) * 0.01;  // small: what is rounded is the step, not where it starts
  const Trainable t = trainable(optimizer, test_param("w", shape), start.view({-1}));
  at::Tensor p = start.to(at::kDouble), m = at::zeros(shape, at::kDouble);
  optimizer.init({t});
  double largest = 0, moved = 0;
  for (int64_t step = 0; step < 20; ++step) {
    const at::Tensor g = normal(shape, 100 + static_cast<uint64_t>(step));
    t.grad.copy_(g.view({-1}) * 4);
    optimizer.update({t}, update_args(optimizer, step, 0.25));
    formula.update(p, m, g.to(at::kDouble));
    moved = std::max(moved, (p - start).norm().item<double>());
    largest = std::max(largest, (t.value.view(shape) - p).norm().item<double>() / moved);
  }
  return largest;
}

const std::vector<int64_t> kShapes[] = {{24, 24}, {16, 48}, {64, 20}, {1, 30}, {30, 1}, {1, 1}, {64, 256}, {200, 300}};

TEST_F(MuonTest, is_the_formula_in_float32) {
  struct Options {
    const char* json;
    Formula formula;
  };
  const Options options[] = {
      {R"({"ns_dtype": "float32", "lr": 0.02})", {}},
      {R"({"ns_dtype": "float32", "lr": 0.02, "ns_method": "standard"})", {}},
      {R"({"ns_dtype": "float32", "lr": 0.01, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw", "momentum": 0.9})",
       {.lr = 0.01, .decay = 0.1, .momentum = 0.9, .match_rms = true}},
      {R"({"ns_dtype": "float32", "muon_lr": 0.05, "lr": 1, "nesterov": false})", {.lr = 0.05, .nesterov = false}},
      {R"({"ns_dtype": "float32", "ns_steps": 3, "ns_coefficients": [2, -1.5, 0.5]})",
       {.a = 2, .b = -1.5, .c = 0.5, .steps = 3}},
  };
  for (const auto& [json, formula] : options)
    for (const std::vector<int64_t>& shape : kShapes)
      EXPECT_LT(distance_of(*make(json), formula, shape), 1e-5) << json << " " << shape[0] << " x " << shape[1];
}

// On X X^T errors are larger: its eigenvalues are squares.
TEST_F(MuonTest, is_near_the_formula_in_bfloat16) {
  for (const auto& [json, bound] :
       {std::pair{R"({"ns_method": "standard"})", 0.02}, {R"({"ns_method": "gram"})", 0.03}})
    for (const std::vector<int64_t>& shape : kShapes)
      EXPECT_LT(distance_of(*make(json), {}, shape), bound) << json << " " << shape[0] << " x " << shape[1];
}

// What one update from zero makes of a gradient, without the rate and the factor.
at::Tensor direction_of(Optimizer& optimizer, const at::Tensor& grad, double lr = 1, double scale = 1) {
  const std::vector<int64_t> shape = grad.sizes().vec();
  const Trainable t = trainable(optimizer, test_param("w", shape), at::zeros({grad.numel()}, at::kFloat));
  t.grad.copy_(grad.reshape({-1}));
  optimizer.init({t});
  optimizer.update({t}, update_args(optimizer, 0));
  return t.value.view(shape).div(-lr * scale);
}

TEST_F(MuonTest, moves_by_a_matrix_that_is_nearly_orthogonal) {
  for (const char* method : {"standard", "gram"})
    for (const char* dtype : {"bfloat16", "float32"})
      for (const std::vector<int64_t>& shape :
           {std::vector<int64_t>{32, 96}, {96, 96}, {100, 30}, {64, 256}, {1, 40}}) {
        const double scale = std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
        const at::Tensor o = direction_of(
            *make(concat(R"({"lr": 1, "ns_method": ")", method, R"(", "ns_dtype": ")", dtype, "\"}")),
            // A random square matrix has singular values near 0, which five steps do not raise.
            shape[0] == shape[1] ? normal(shape, 3) * 0.01 + at::eye(shape[0]) : normal(shape, 3), 1, scale);
        const at::Tensor s = std::get<1>(at::linalg_svd(o, false));
        EXPECT_GT(s.min().item<double>(), 0.65) << method << " " << dtype << " " << shape[0] << " x " << shape[1];
        EXPECT_LT(s.max().item<double>(), 1.25) << method << " " << dtype << " " << shape[0] << " x " << shape[1];
      }
}

TEST_F(MuonTest, of_rank_one_keeps_the_directions) {
  const at::Tensor u = normal({20, 1}, 4), v = normal({1, 50}, 5);
  const at::Tensor unit = at::matmul(u / u.norm(), v / v.norm());
  for (const char* json : {R"({"lr": 1})", R"({"lr": 1, "ns_dtype": "float32"})"}) {
    const at::Tensor o = direction_of(*make(json), at::matmul(u, v) * 1e-3);
    const double along = (o * unit).sum().item<double>();
    EXPECT_GT(along, 0.65);
    EXPECT_LT(along, 1.25);
    // In 16 bits the roundings of u v^T are directions of their own, which the iteration raises as well.
    if (std::string(json).find("float32") != std::string::npos) {
      EXPECT_LT((o - along * unit).norm().item<double>(), 0.05);
    }
  }
}

TEST_F(MuonTest, moves_nothing_where_all_gradients_are_zero) {
  for (const char* json : {R"({"lr": 1})", R"({"lr": 1, "ns_method": "standard"})", R"({"lr": 1, "ns_eps": 0})"})
    EXPECT_TRUE(at::equal(direction_of(*make(json), at::zeros({8, 12})), at::zeros({8, 12}))) << json;
}

ParamPtr with_role(const std::string& name, std::vector<int64_t> shape, ParamRole role) {
  const ParamPtr param = test_param(name, std::move(shape));
  param->role = role;
  return param;
}

TEST_F(MuonTest, leaves_all_but_matrices_to_adamw) {
  const auto optimizer = make(R"({"muon_lr": 0.02, "adam_lr": 0.001, "weight_decay": 0.1})");
  struct Expected {
    ParamPtr param;
    bool matrix;
    double lr, decay;
  };
  const Expected list[] = {
      {with_role("w", {4, 6}, ParamRole::matrix), true, 0.02, 0.1},
      {with_role("r", {4, 6}, ParamRole::router), true, 0.02, 0.1},
      {with_role("x", {2, 4, 6}, ParamRole::expert), true, 0.02, 0.1},
      {with_role("a", {4, 6}, ParamRole::adapter), true, 0.02, 0.1},
      {with_role("e", {4, 6}, ParamRole::embedding), false, 0.001, 0.1},
      {with_role("o", {4, 6}, ParamRole::output), false, 0.001, 0.1},
      {with_role("b", {6}, ParamRole::bias), false, 0.001, 0},
      {with_role("n", {6}, ParamRole::norm), false, 0.001, 0},
      {with_role("v", {6}, ParamRole::matrix), false, 0.001, 0},
  };
  for (const auto& [param, matrix, lr, decay] : list) {
    SCOPED_TRACE(param->name);
    EXPECT_EQ(optimizer->wants_whole(*param), matrix);
    EXPECT_EQ(optimizer->state_bytes_per_element(*param), matrix ? 4 : 8);
    const Hyper hyper = optimizer->groups().at(static_cast<size_t>(optimizer->group_of(*param)));
    EXPECT_EQ(hyper.lr, lr);
    EXPECT_EQ(hyper.weight_decay, decay);
    EXPECT_EQ(hyper.momentum, matrix ? 0.95 : 0.9);
  }
}

TEST_F(MuonTest, updates_the_rest_as_adamw_does) {
  const char* const theirs = R"({"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-10, "weight_decay": 0.1})";
  const auto muon = make(R"({"muon_lr": 0.3, "adam_lr": 0.01, "weight_decay": 0.1})");
  const auto adamw = maker.create<Optimizer>({"adamw", parse_json(theirs, "test")});
  const ParamPtr w = test_param("w", {3, 5}), e = with_role("e", {6, 4}, ParamRole::embedding);
  const Trainable ours = trainable(*muon, e, uneven_numbers(24, 1)),
                  matrix = trainable(*muon, w, uneven_numbers(15, 2));
  const Trainable wanted = trainable(*adamw, e, uneven_numbers(24, 1));
  muon->init({matrix, ours}), adamw->init({wanted});
  for (int64_t step = 0; step < 3; ++step) {
    for (const Trainable* t : {&ours, &wanted}) t->grad.copy_(uneven_numbers(24, 7 + static_cast<uint64_t>(step)));
    muon->update({matrix, ours}, update_args(*muon, step));
    adamw->update({wanted}, update_args(*adamw, step));
    EXPECT_TRUE(at::equal(ours.value, wanted.value));
  }
  Keeper keeper;
  muon->state(keeper);
  std::set<std::string> names;
  for (const auto& [name, tensor] : keeper.tensors) names.insert(name.substr(0, name.find('@')));
  EXPECT_EQ(names, (std::set<std::string>{"e.exp_avg", "e.exp_avg_sq", "w.momentum_buffer"}));
}

// Blocks of a fused parameter, experts and heads are matrices of their own.
TEST_F(MuonTest, makes_each_matrix_of_a_parameter_orthogonal_by_itself) {
  struct Split {
    ParamPtr param;
    std::vector<std::pair<int64_t, int64_t>> matrices;  // rows and columns, in order
    bool per_head;
  };
  const ParamPtr fused = test_param("qkv", {16, 12}), heads = test_param("qkv", {16, 12});
  fused->blocks = heads->blocks = {8, 4, 4};
  const Split splits[] = {{fused, {{8, 12}, {4, 12}, {4, 12}}, false},
                          {heads, {{4, 12}, {4, 12}, {4, 12}, {4, 12}}, true},
                          {with_role("x", {3, 4, 6}, ParamRole::expert), {{4, 6}, {4, 6}, {4, 6}}, false}};
  for (const Split& split : splits) {
    const auto optimizer =
        make(concat(R"({"lr": 1, "ns_dtype": "float32", "per_head_muon": )", split.per_head ? "true" : "false", "}"));
    ModelFacts facts;
    facts.head_dim = 4;
    PlanRecord plan(facts, {});
    optimizer->plan(plan);
    const int64_t n = split.param->layout.global_numel();
    const Trainable t = trainable(*optimizer, split.param, at::zeros({n}, at::kFloat));
    t.grad.copy_(uneven_numbers(n, 3));
    optimizer->init({t});
    optimizer->update({t}, update_args(*optimizer, 0));
    int64_t first = 0;
    for (const auto& [rows, columns] : split.matrices) {
      const at::Tensor wanted =
          Formula().orthogonal(t.grad.narrow(0, first, rows * columns).view({rows, columns}).to(at::kDouble));
      EXPECT_LT((t.value.narrow(0, first, rows * columns).view({rows, columns}) + wanted).norm().item<double>(), 1e-4)
          << split.param->name << " from element " << first;
      first += rows * columns;
    }
    EXPECT_EQ(first, n);
  }
}

TEST_F(MuonTest, wants_to_know_the_heads_that_it_is_to_split) {
  PlanRecord plan({}, {});
  make(R"({"per_head_muon": true})")->plan(plan);
  ASSERT_EQ(plan.refusals().size(), 1u);
  EXPECT_NE(plan.refusals()[0].text.find("head_dim"), std::string::npos);
}

TEST_F(MuonTest, names_keys_without_effect_once) {
  const auto said = [&](const char* json) {
    PlanRecord plan({}, {});
    make(json)->plan(plan);
    std::string text;
    for (const PlanRecord::Note& note : plan.no_effects()) text += note.text + "\n";
    return text;
  };
  EXPECT_EQ(said(R"({"adam_w_mode": true, "torch_adam": false})"), "");
  EXPECT_EQ(said(R"({"adam_w_mode": false, "torch_adam": true})"),
            "adam_w_mode changes nothing: decay is decoupled in both halves, as in DeepSpeed\n"
            "torch_adam changes nothing: there is one AdamW, of the option rest\n");
}

TEST_F(MuonTest, says_where_deepspeed_differs) {
  const ParamPtr fused = test_param("qkv", {12, 4});
  fused->blocks = {4, 4, 4};
  const std::string note =
      make()->difference_note({fused, with_role("e", {8, 4}, ParamRole::embedding), test_param("w", {4, 4})});
  for (const char* part : {"gradient_clipping", "1 fused", "1 embedding"})
    EXPECT_NE(note.find(part), std::string::npos) << note;
  EXPECT_EQ(make()->difference_note({test_param("w", {4, 4})}).find("embedding"), std::string::npos);
}

TEST_F(MuonTest, has_deepspeeds_defaults) {
  const std::vector<Hyper> groups = make()->groups();
  EXPECT_EQ(groups[0].lr, 0.02);
  EXPECT_EQ(groups[0].momentum, 0.95);
  EXPECT_EQ(groups[0].weight_decay, 0);
  EXPECT_EQ(groups[1].lr, 3e-4);
  const std::vector<Hyper> one = make(R"({"lr": 0.007})")->groups();
  EXPECT_EQ(one[0].lr, 0.007);
  EXPECT_EQ(one[1].lr, 0.007);
  EXPECT_EQ(refusal(R"({"lr": 0.001, "momentum": 0.95, "weight_decay": 0.0, "muon_lr": 0.02, "adam_lr": 3e-4,
                        "betas": [0.9, 0.95], "eps": 1e-10, "ns_method": "gram", "per_head_muon": false,
                        "adam_w_mode": true, "torch_adam": false, "fp32_optimizer_states": true})"),
            "");
}

TEST_F(MuonTest, refuses_what_it_does_not_do) {
  EXPECT_NE(refusal(R"({"momentum": 1})").find("momentum must be below 1"), std::string::npos);
  EXPECT_NE(refusal(R"({"fp32_optimizer_states": false})").find("fp32_optimizer_states = false"), std::string::npos);
  EXPECT_NE(refusal(R"({"betas": [0.9, 1]})").find("betas must be below 1"), std::string::npos);
  EXPECT_NE(refusal(R"({"ns_method": "grams"})").find("ns_method"), std::string::npos);
  EXPECT_NE(refusal(R"({"ns_steps": 0})").find("ns_steps"), std::string::npos);
  EXPECT_NE(refusal(R"({"max_grad_norm": 1})").find("use gradient_clipping"), std::string::npos);
  EXPECT_NE(refusal(R"({"rest": "sgd", "betas": [0.8, 0.9]})").find("betas is a key of adamw, and rest is sgd; remove"),
            std::string::npos);
  const auto rest = [](const char* params) {
    return concat(R"({"rest": {"type": "adamw", "params": {)", params, "}}");
  };
  for (const auto& [options, says] :
       {std::pair{rest(R"("lr": 1e-3)") + R"(, "adam_lr": 3e-4})", "adam_lr is 3e-04 and rest.params.lr is 0.001"},
        {rest(R"("betas": [0.9, 0.99])") + R"(, "betas": [0.8, 0.9]})", "betas is [0.8,0.9] and rest.params.betas is"},
        {rest(R"("eps": 1e-8)") + R"(, "eps": 1e-9})", "eps is 1e-09 and rest.params.eps is 1e-08"}})
    EXPECT_NE(refusal(options).find(says), std::string::npos) << refusal(options);
  EXPECT_EQ(refusal(rest(R"("lr": 3e-4)") + R"(, "adam_lr": 3e-4})"), "");
  EXPECT_EQ(refusal(rest(R"("betas": [0.9, 0.99])") + "}"), "");
  for (const char* key : {"reduce_scatter", "save_muon_momentum_buffer_in_memory"})
    EXPECT_NE(refusal(concat("{\"", key, "\": true}"))
                  .find("it is a key of the section zero_optimization, where it changes nothing; remove it"),
              std::string::npos)
        << key;
  const auto optimizer = make();
  Trainable t = trainable(*optimizer, test_param("w", {2, 2}), uneven_numbers(4, 1));
  t.value = t.value.to(at::kBFloat16);
  EXPECT_NE(error_of([&] { optimizer->init({t}); }).find("updates float32 values; those of w are BFloat16"),
            std::string::npos);
}

// The config's parameter groups stand behind the optimizer's own: here one in which nothing moves.
TEST_F(MuonTest, a_matrix_has_the_rates_of_its_group) {
  for (const bool moves : {true, false}) {
    const auto muon = make();
    Trainable t = trainable(*muon, test_param("w", {8, 8}), uneven_numbers(64, 1));
    t.group = moves ? 0 : static_cast<int>(muon->groups().size());
    UpdateArgs args = update_args(*muon, 0);
    args.hyper = at::cat({args.hyper, at::zeros_like(args.hyper)});
    muon->init({t});
    t.grad.copy_(normal({64}, 2));
    const at::Tensor before = t.value.clone();
    muon->update({t}, args);
    EXPECT_EQ(at::equal(t.value, before), !moves);
  }
}

}  // namespace
}  // namespace drivetrain
