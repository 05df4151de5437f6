// The plain router and what goes on around experts, in float64: outputs and losses against loops over single numbers,
// gradients against differences of those.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

namespace drivetrain {
namespace {

using Numbers = std::vector<double>;

class OneVisit : public StepContext {
 public:
  int64_t step() const override { return step_; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string& name, const at::Tensor& value, double weight) override {
    terms[name].push_back(value), total = total.defined() ? total + value * weight : value * weight;
    return {};
  }
  void metric(const std::string& name, const at::Tensor& value) override { figures[name] = value.item<double>(); }
  int64_t step_ = 1;
  Batch batch_;
  Visit visit_;
  std::map<std::string, std::vector<at::Tensor>> terms;
  std::map<std::string, double> figures;
  at::Tensor total;
};

Numbers drawn(size_t count, uint64_t seed) {
  Numbers list(count);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    list[i] = static_cast<double>(seed >> 40) / (1 << 24) * 2 - 1;
  }
  return list;
}
at::Tensor tensor_of(const Numbers& list, at::IntArrayRef sizes) { return at::tensor(list, at::kDouble).view(sizes); }

constexpr int64_t T = 6, D = 3, F = 2;

// The numbers of one mixture, and what they give by the formulas.
struct Reference {
  RouterSpec spec;
  Numbers x, router, fc, proj, bias;

  struct Result {
    std::vector<std::vector<int64_t>> chosen;
    Numbers y, load, scores;  // f and P
    double z = 0;
  };

  Result run() const {
    Result r;
    const int64_t E = spec.experts;
    r.load.assign(size_t(E), 0), r.scores.assign(size_t(E), 0);
    for (int64_t t = 0; t < T; ++t) {
      Numbers logits, scores;
      for (int64_t e = 0; e < E; ++e) {
        double sum = 0;
        for (int64_t d = 0; d < D; ++d) sum += x[size_t(t * D + d)] * router[size_t(e * D + d)];
        logits.push_back(sum);
      }
      double exps = 0;
      for (const double l : logits) exps += std::exp(l);
      const bool softmax = spec.scores == RouterScores::softmax;
      for (const double l : logits) scores.push_back(softmax ? std::exp(l) / exps : 1 / (1 + std::exp(-l)));
      r.z += std::log(exps) * std::log(exps) / double(T);
      const double all = softmax ? 1 : std::accumulate(scores.begin(), scores.end(), 0.0);
      for (int64_t e = 0; e < E; ++e) r.scores[size_t(e)] += scores[size_t(e)] / all / double(T);
      r.chosen.push_back(choice(scores));
      double sum = 0;
      for (const int64_t e : r.chosen.back()) sum += scores[size_t(e)], r.load[size_t(e)] += 1.0 / double(T);
      Numbers y(size_t(D), 0);
      for (const int64_t e : r.chosen.back()) {
        const double weight = scores[size_t(e)] / (spec.renormalize ? sum : 1) * spec.scale;
        const Numbers out = expert(e, t);
        for (int64_t d = 0; d < D; ++d) y[size_t(d)] += weight * out[size_t(d)];
      }
      r.y.insert(r.y.end(), y.begin(), y.end());
    }
    return r;
  }

 private:
  std::vector<int64_t> choice(const Numbers& scores) const {
    const int64_t E = spec.experts, size = E / spec.groups;
    const auto at = [&](int64_t e) { return scores[size_t(e)] + (bias.empty() ? 0 : bias[size_t(e)]); };
    const auto first_of = [](std::vector<int64_t> ids, int64_t count, const auto& key) {
      std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
      ids.resize(size_t(count));
      return ids;
    };
    std::vector<int64_t> groups(size_t(spec.groups)), ids;
    std::iota(groups.begin(), groups.end(), 0);
    groups = first_of(groups, spec.chosen_groups, [&](int64_t g) {
      Numbers inside;
      for (int64_t e = g * size; e < (g + 1) * size; ++e) inside.push_back(at(e));
      std::sort(inside.rbegin(), inside.rend());
      return inside[0] + (size > 1 ? inside[1] : 0);
    });
    for (int64_t e = 0; e < E; ++e)
      if (std::count(groups.begin(), groups.end(), e / size)) ids.push_back(e);
    return first_of(ids, spec.chosen, at);
  }

  Numbers expert(int64_t e, int64_t t) const {
    Numbers act, out(size_t(D), 0);
    const auto row = [&](int64_t r) {
      double sum = 0;
      for (int64_t d = 0; d < D; ++d) sum += fc[size_t((e * 2 * F + r) * D + d)] * x[size_t(t * D + d)];
      return sum;
    };
    for (int64_t f = 0; f < F; ++f) act.push_back(row(f) / (1 + std::exp(-row(f))) * row(F + f));
    for (int64_t d = 0; d < D; ++d)
      for (int64_t f = 0; f < F; ++f) out[size_t(d)] += proj[size_t((e * D + d) * F + f)] * act[size_t(f)];
    return out;
  }
};

Reference reference(RouterSpec spec, uint64_t seed = 7) {
  spec.name = "router", spec.hidden = D;
  const auto E = size_t(spec.experts);
  Reference r{spec,
              drawn(size_t(T * D), seed),
              drawn(E * D, seed + 1),
              drawn(E * 2 * F * D, seed + 2),
              drawn(E * D * F, seed + 3),
              {}};
  return r;
}

RouterSpec router_of(int64_t experts, int64_t chosen) {
  RouterSpec spec;
  spec.experts = experts, spec.chosen = chosen;
  return spec;
}

void set(const ParamPtr& param, const at::Tensor& value) {
  param->tensor = value.clone().set_requires_grad(true);
  param->grad = at::empty_like(value);
}

struct Ours {
  explicit Ours(const Reference& r, const std::shared_ptr<LayerFactory>& layers = make_plain_layers(nullptr)) {
    MixtureSpec spec;
    spec.router = r.spec;
    spec.experts = {"experts", r.spec.experts, D, F, "swiglu"};
    mixture = std::make_shared<Mixture>(spec, BlockLayerSpecs{}, "swiglu", *layers);
    params = mixture->params();
    const int64_t E = r.spec.experts;
    set(params[0], tensor_of(r.router, {E, D}));
    set(params[1], tensor_of(r.fc, {E * 2 * F, D}));
    set(params[2], tensor_of(r.proj, {E * D, F}));
    x = tensor_of(r.x, {2, T / 2, D}).set_requires_grad(true);
  }
  std::shared_ptr<Mixture> mixture;
  std::vector<ParamPtr> params;
  at::Tensor x;
};

void expect_near(const at::Tensor& ours, const Numbers& theirs, double tolerance, const std::string& what) {
  const at::Tensor flat = ours.detach().to(at::kDouble).reshape({-1}).contiguous();
  ASSERT_EQ(size_t(flat.numel()), theirs.size()) << what;
  for (size_t i = 0; i < theirs.size(); ++i)
    EXPECT_NEAR(flat.const_data_ptr<double>()[i], theirs[i], tolerance) << what << "[" << i << "]";
}

double balance_of(const Reference::Result& r, const RouterSpec& spec) {
  double sum = 0;
  for (size_t e = 0; e < r.load.size(); ++e) sum += r.load[e] * r.scores[e];
  sum *= double(spec.experts);
  return spec.balance == BalanceLoss::per_layer ? sum / double(spec.chosen) : sum;
}

// Of sum(y g) + the losses by their weights, by differences; choices and loads do not change.
void expect_gradients(const Reference& at, const Numbers& g, const Ours& ours) {
  const Numbers load = at.run().load;
  const auto value = [&](const Reference& r) {
    Reference::Result found = r.run();
    EXPECT_EQ(found.load, load);
    double sum = balance_of(found, r.spec) * r.spec.balance_weight + found.z * r.spec.z_weight;
    for (size_t i = 0; i < g.size(); ++i) sum += g[i] * found.y[i];
    return sum;
  };
  const auto check = [&](Numbers Reference::*what, const at::Tensor& gradient, const char* name) {
    Numbers slopes;
    for (size_t i = 0; i < (at.*what).size(); ++i) {
      Reference more = at, less = at;
      (more.*what)[i] += 1e-5, (less.*what)[i] -= 1e-5;
      slopes.push_back((value(more) - value(less)) / 2e-5);
    }
    expect_near(gradient, slopes, 1e-8, name);
  };
  check(&Reference::x, ours.x.grad(), "dx");
  check(&Reference::router, ours.params[0]->grad, "drouter");
  check(&Reference::fc, ours.params[1]->grad, "dfc");
  check(&Reference::proj, ours.params[2]->grad, "dproj");
}

void expect_formulas(const Reference& r) {
  Ours ours(r);
  OneVisit ctx;
  const Numbers g = drawn(size_t(T * D), 99);
  const at::Tensor y = ours.mixture->forward(ours.x, ctx);
  const Reference::Result found = r.run();
  expect_near(y, found.y, 1e-12, "y");
  at::Tensor total = (y * tensor_of(g, y.sizes())).sum();
  if (ctx.total.defined()) total = total + ctx.total;
  total.backward();
  if (r.spec.balance != BalanceLoss::none)
    expect_near(ctx.terms.at("load_balancing_loss").at(0), {balance_of(found, r.spec)}, 1e-6, "balance");
  if (r.spec.z_weight != 0) expect_near(ctx.terms.at("z_loss").at(0), {found.z}, 1e-12, "z");
  const double most = *std::max_element(found.load.begin(), found.load.end());
  EXPECT_NEAR(ctx.figures.at("router.load"), most * double(r.spec.experts) / double(r.spec.chosen), 1e-12);
  expect_gradients(r, g, ours);
}

TEST(Mixture, softmax_then_the_largest) { expect_formulas(reference(router_of(5, 2))); }

TEST(Mixture, weights_that_sum_to_one) {
  RouterSpec spec = router_of(4, 3);
  spec.renormalize = true;
  expect_formulas(reference(spec));
}

TEST(Mixture, sigmoid_scores_of_the_best_groups_with_a_bias) {
  RouterSpec spec = router_of(8, 3);
  spec.scores = RouterScores::sigmoid, spec.renormalize = true, spec.scale = 2.5;
  spec.groups = 4, spec.chosen_groups = 2;
  expect_formulas(reference(spec));
  Reference with_bias = reference(spec);
  with_bias.bias = {-3, 2, 0.5, -0.25, 0, 1, -1, 0.125};
  EXPECT_NE(with_bias.run().chosen, reference(spec).run().chosen);
  with_bias.spec.bias = std::make_shared<RouterBias>();
  with_bias.spec.bias->bias_E = at::tensor(with_bias.bias, at::kFloat);
  expect_formulas(with_bias);
  EXPECT_EQ(with_bias.spec.bias->counts_E.sum().item<int64_t>(), T * 3);
}

TEST(Mixture, losses_for_balance) {
  RouterSpec spec = router_of(5, 2);
  spec.balance = BalanceLoss::per_layer, spec.balance_weight = 0.75, spec.z_weight = 0.125;
  expect_formulas(reference(spec));
  spec.scores = RouterScores::sigmoid;
  expect_formulas(reference(spec));
  spec.balance = BalanceLoss::pooled;
  expect_formulas(reference(spec));
}

// E sum_e of the product of means over both layers: its gradient in one layer has the loads of the other.
TEST(Mixture, the_pooled_loss_is_of_all_layers) {
  RouterSpec spec = router_of(4, 2);
  spec.balance = BalanceLoss::pooled, spec.balance_weight = 1, spec.layers = 2;
  const auto layers = make_plain_layers(nullptr);
  Reference first = reference(spec, 7), second = reference(spec, 70);
  second.spec.index = 1;
  Ours one(first, layers), two(second, layers);
  for (int64_t step = 1; step <= 2; ++step) {
    OneVisit ctx;
    ctx.step_ = step;
    (void)one.mixture->forward(one.x, ctx);
    (void)two.mixture->forward(two.x, ctx);
    const auto pooled = [](const Reference& a, const Reference& b) {
      const Reference::Result l = a.run(), r = b.run();
      double sum = 0;
      for (size_t e = 0; e < 4; ++e) sum += (l.load[e] + r.load[e]) / 2 * (l.scores[e] + r.scores[e]) / 2;
      return 4 * sum;
    };
    EXPECT_NEAR(ctx.total.item<double>(), pooled(first, second), 1e-6);
    one.params[0]->restart_grad(), ctx.total.backward();
    Numbers slopes;
    for (size_t i = 0; i < first.router.size(); ++i) {
      Reference more = first, less = first;
      more.router[i] += 1e-5, less.router[i] -= 1e-5;
      slopes.push_back((pooled(more, second) - pooled(less, second)) / 2e-5);
    }
    expect_near(one.params[0]->grad, slopes, 1e-7, "drouter");
  }
}

TEST(Mixture, a_pooled_loss_without_all_layers_is_refused_in_backward) {
  RouterSpec spec = router_of(4, 2);
  spec.balance = BalanceLoss::pooled, spec.balance_weight = 1, spec.layers = 2;
  Ours ours(reference(spec));
  OneVisit ctx;
  (void)ours.mixture->forward(ours.x, ctx);
  try {
    ctx.total.backward();
    ADD_FAILURE() << "no refusal";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("aux_loss \"per_layer\""), std::string::npos) << e.what();
  }
}

// Where all scores are equal, as with a router of zeros.
TEST(Mixture, of_equal_scores_the_smaller_id) {
  Reference r = reference(router_of(6, 2));
  std::fill(r.router.begin(), r.router.end(), 0);
  const auto router = make_plain_routers()(r.spec);
  set(router->params()[0], tensor_of(r.router, {6, D}));
  OneVisit ctx;
  const Routing routing = router->forward(tensor_of(r.x, {1, T, D}), ctx);
  for (int64_t t = 0; t < T; ++t) {
    EXPECT_EQ(routing.experts_TK[t][0].item<int64_t>(), 0);
    EXPECT_EQ(routing.experts_TK[t][1].item<int64_t>(), 1);
  }
}

TEST(Mixture, forced_balance_gives_every_expert_as_much) {
  RouterSpec spec = router_of(4, 2);
  spec.forced = true;
  const Reference r = reference(spec);
  const auto router = make_plain_routers()(r.spec);
  set(router->params()[0], tensor_of(r.router, {4, D}));
  OneVisit ctx;
  const Routing routing = router->forward(tensor_of(r.x, {1, T, D}), ctx);
  EXPECT_TRUE(sort_by_expert(routing.experts_TK, 4).counts_E.eq(3).all().item<bool>());
}

TEST(Mixture, choices_of_nobody_come_last_and_add_nothing) {
  const at::Tensor experts = at::tensor(std::vector<int64_t>{1, -1, -1, 0, 1, 0}, at::kLong).view({3, 2});
  const SortedRows rows = sort_by_expert(experts, 2);
  EXPECT_EQ(rows.counts_E[0].item<int64_t>(), 2);
  EXPECT_EQ(rows.counts_E[1].item<int64_t>(), 2);
  const int64_t order[] = {3, 5, 0, 4, 1, 2};
  for (int64_t r = 0; r < 6; ++r) EXPECT_EQ(rows.order_R[r].item<int64_t>(), order[r]);
  const at::Tensor y = tensor_of({1, 2, 3, 4, 1e9, 1e9}, {6, 1});
  const at::Tensor weights = tensor_of({1, 10, 100, 1000, 1e4, 1e5}, {3, 2});
  expect_near(weighted_sum(y, weights, rows), {3, 1000, 2e5 + 4e4}, 0, "y");
}

TEST(Mixture, routers_that_cannot_be_are_refused) {
  const auto refusal = [](RouterSpec spec) {
    spec.name = "block.0.mlp.router", spec.hidden = D;
    try {
      make_plain_routers()(spec);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      return std::string(e.what());
    }
    return std::string("no refusal");
  };
  EXPECT_NE(refusal(router_of(4, 5)).find("cannot choose 5 of 4 experts"), std::string::npos);
  RouterSpec groups = router_of(6, 2);
  groups.groups = 4;
  EXPECT_NE(refusal(groups).find("4 groups do not divide 6 experts"), std::string::npos);
  groups.groups = 3, groups.chosen = 4;
  EXPECT_NE(refusal(groups).find("1 groups have only 2"), std::string::npos);
  RouterSpec rate = router_of(4, 2);
  rate.bias_update_rate = 1e-3;
  EXPECT_NE(refusal(rate).find("\"router_bias\""), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
