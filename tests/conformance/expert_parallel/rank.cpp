#include <drivetrain/testkit/expert_parallel/rank.h>

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include <drivetrain/attention.h>
#include <drivetrain/communicator.h>
#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/plugins.h>

namespace drivetrain::test {
namespace {

constexpr int64_t kExpertHidden = 6, kExpertFfn = 5,
                  kMostRows = 64;  // kMostRows: rows that a rank may have for an expert

class ExpertContext : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return at::GradMode::is_enabled() ? Mode::train : Mode::evaluate; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}

  Batch batch_;
  Visit visit_;
};

at::Tensor expert_numbers(int64_t count, const std::string& name, int64_t first = 0) {
  at::Tensor flat = at::empty({count}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 5, name, first, 0.5);
  return flat;
}

ExpertsSpec experts_spec_of(const ExpertTrial& trial) {
  return {"block.0.mlp.experts", trial.experts,         kExpertHidden,        kExpertFfn,
          trial.activation,      InitRule::normal(0.5), InitRule::normal(0.5)};
}

bool is_cut_by_experts(const Layout& layout) { return !layout.dims.empty() && !layout.dims[0].axes.empty(); }

// Values of a parameter as this rank has them. Its slot begins as numbers that nothing may leave there.
void give_experts(Param& param, const ExpertTrial& trial, const Mesh& mesh) {
  const Layout& layout = param.layout;
  at::Tensor value = expert_numbers(layout.global_numel(), param.name).view(layout.global_shape).to(trial.dtype);
  if (is_cut_by_experts(layout)) {
    Tensors parts;
    for (const auto& range : layout.ranges(0, mesh)) parts.push_back(value.narrow(0, range.first, range.count));
    value = at::cat(parts);
  }
  EXPECT_EQ(value.sizes().vec(), layout.local_shape(mesh)) << param.name;
  param.trainable = !trial.frozen;
  param.tensor = value.set_requires_grad(param.trainable);
  if (!param.trainable) return;
  param.grad = at::full(value.sizes(), std::numeric_limits<double>::quiet_NaN(), value.options().requires_grad(false));
  param.restart_grad();
}

std::vector<ExpertGradient> expert_gradients_of(const Experts& experts, const Mesh& mesh) {
  std::vector<ExpertGradient> all;
  for (const ParamPtr& param : experts.params()) {
    const Layout& layout = param->layout;
    ExpertGradient gradient{param->name, layout.global_shape, {{0, layout.global_shape[0]}}, {}};
    if (is_cut_by_experts(layout)) gradient.ranges = layout.ranges(0, mesh);
    if (param->trainable) param->complete_grad(), gradient.local = param->grad.clone();
    all.push_back(std::move(gradient));
  }
  return all;
}

at::Tensor computed(Experts& experts, const ExpertTrial& trial, const at::Tensor& x, const ExpertRows& rows,
                    StepContext& ctx) {
  if (!trial.tokens) return experts.forward(x, rows.counts_E, ctx);
  int beside = 0;
  const at::Tensor y = sum_of_experts(experts, trial.experts, x, rows.routing, ctx, [&] { ++beside; });
  EXPECT_EQ(beside, 1) << "the layer's other work was not done once";
  return y;
}

class ExpertRank {
 public:
  ExpertRank(const ExpertTrial& trial, int64_t rank, const std::shared_ptr<Store>& store)
      : trial_(trial),
        store_(store),
        services_{.log = log_,
                  .store = *store_,
                  .rank = rank,
                  .world_size = trial.ranks,
                  .local_rank = rank,
                  .local_size = trial.ranks,
                  .plugins = &maker_},
        communicator_(installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services_)),
        plugin_(installed_plugins().make<ExpertParallel>(ExpertParallel::kKind, trial.name,
                                                         parse_json(trial.options, "options"), services_)) {}

  ExpertResult run() {
    try {
      build();
      ExpertResult result;
      for (int64_t micro = 0; micro < kExpertMicros; ++micro) compute(micro, result);
      result.gradients = expert_gradients_of(*experts_, *mesh_);
      return result;
    } catch (const std::exception& e) {
      communicator_->abort(e.what());
      throw;
    }
  }

 private:
  std::vector<Axis> axes() {
    RunFacts run;
    run.world_size = trial_.ranks, run.micro_batch_size = 2, run.accumulation = kExpertMicros, run.seq_length = 8;
    PlanRecord context(facts_, run);
    plugin_->plan(context);
    for (const auto& refusal : context.refusals()) ADD_FAILURE() << refusal.text;
    std::vector<Axis> axes;
    for (const auto& claim : context.claims()) {
      EXPECT_EQ(claim.reads, PlanContext::Reads::other_rows) << claim.axis << ": ranks see different tokens";
      axes.push_back({claim.axis, claim.size, 0, claim.joins_gradients()});
    }
    return axes;
  }

  void build() {
    facts_.num_layers = 1, facts_.hidden_size = kExpertHidden;
    facts_.mixture.experts = trial_.experts, facts_.mixture.chosen = 2, facts_.mixture.layers = 1;
    mesh_ = std::make_unique<Mesh>(axes(), services_.rank, trial_.ranks, communicator_);
    services_.mesh = mesh_.get();
    Builder builder{make_plain_layers(nullptr), nullptr, *mesh_, facts_};
    if (trial_.inside) trial_.inside(builder);
    plugin_->build(builder);
    if (trial_.spoil) trial_.spoil(builder);
    layers_ = builder.layers;
    experts_ = layers_->experts(experts_spec_of(trial_));
    UnitList none;
    plugin_->attach(none);
    for (const ParamPtr& param : experts_->params()) give_experts(*param, trial_, *mesh_);
  }

  void compute(int64_t micro, ExpertResult& result) {
    const ExpertRows rows = rows_of_rank(trial_, services_.rank, micro);
    const at::Tensor x = rows.x_RD.to(trial_.dtype).set_requires_grad(true);
    at::Tensor y = computed(*experts_, trial_, x, rows, context_);
    if (trial_.recompute) {
      const at::Tensor again = computed(*experts_, trial_, x, rows, context_);
      EXPECT_TRUE(again.equal(y)) << "a second forward computes other values";
      y = again;
    }
    y.backward(rows.dy_RD.to(trial_.dtype));
    result.y[micro] = y.detach(), result.dx[micro] = x.grad();
    if (trial_.tokens) result.dweights[micro] = rows.routing.weights_TK.grad();
    const at::NoGradGuard off;
    result.evaluated[micro] = computed(*experts_, trial_, x.detach(), rows, context_);
  }

  const ExpertTrial& trial_;
  LinesLog log_;
  const std::shared_ptr<Store> store_;
  Services services_;
  const InstalledMaker maker_{services_};
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<ExpertParallel> plugin_;
  ModelFacts facts_;
  std::unique_ptr<Mesh> mesh_;
  std::shared_ptr<LayerFactory> layers_;
  std::shared_ptr<Experts> experts_;
  ExpertContext context_;
};

}  // namespace

std::string text_of(const ExpertTrial& t) {
  return concat(t.name, " ", t.options, " on ", t.ranks, " ranks, ", t.experts, " experts, ", t.activation,
                t.tokens ? ", tokens" : "", t.nobodys > 0 ? ", rows of nobody" : "", t.frozen ? ", frozen" : "",
                t.recompute ? ", recomputed" : "", t.inside ? ", decorated layers" : "", ", ", c10::toString(t.dtype));
}

// Token t chooses two different experts, or one and nobody.
static ExpertRows tokens_of_rank(const ExpertTrial& trial, int64_t rank, int64_t micro) {
  const int64_t T = trial.tokens(rank, micro), E = trial.experts, first = (rank * kExpertMicros + micro) * kMostRows;
  ExpertRows rows;
  rows.x_RD = expert_numbers(T * kExpertHidden, "x", first * kExpertHidden).view({T, kExpertHidden});
  rows.dy_RD = expert_numbers(T * kExpertHidden, "dy", first * kExpertHidden).view({T, kExpertHidden});
  rows.routing = {at::empty({T, 2}, at::TensorOptions(at::kLong)), expert_numbers(2 * T, "w", 2 * first).view({T, 2})};
  rows.routing.weights_TK.set_requires_grad(true);
  for (int64_t t = 0; t < T; ++t) {
    int64_t* const id = rows.routing.experts_TK.mutable_data_ptr<int64_t>() + 2 * t;
    id[0] = (5 * t + 3 * rank + micro) % E;
    id[1] = t % 6 == 4 ? -1 : (id[0] + 1 + t % (E - 1)) % E;
  }
  return rows;
}

ExpertRows rows_of_rank(const ExpertTrial& trial, int64_t rank, int64_t micro) {
  if (trial.tokens) return tokens_of_rank(trial, rank, micro);
  ExpertRows rows;
  rows.counts_E = at::empty({trial.experts}, at::TensorOptions(at::kLong));
  Tensors x, dy;
  const auto add = [&](int64_t expert, int64_t count) {
    const int64_t first = ((rank * kExpertMicros + micro) * (trial.experts + 1) + expert) * kMostRows * kExpertHidden;
    x.push_back(expert_numbers(count * kExpertHidden, "x", first).view({count, kExpertHidden}));
    dy.push_back(expert_numbers(count * kExpertHidden, "dy", first).view({count, kExpertHidden}));
  };
  for (int64_t e = 0; e < trial.experts; ++e) {
    const int64_t count = trial.rows(rank, e, micro);
    rows.counts_E.mutable_data_ptr<int64_t>()[e] = count;
    add(e, count);
  }
  add(trial.experts, trial.nobodys);
  rows.x_RD = at::cat(x), rows.dy_RD = at::cat(dy);
  return rows;
}

ExpertResult run_expert_rank(const ExpertTrial& trial, int64_t rank, const std::shared_ptr<Store>& store) {
  return ExpertRank(trial, rank, store).run();
}

// One rank after the other, so that rows need no sorting; gradients add up.
std::vector<ExpertResult> run_whole_experts(const ExpertTrial& given) {
  ExpertTrial trial = given;
  trial.dtype = at::kDouble;
  const Mesh mesh({}, 0, 1, nullptr);
  const ModelFacts facts;
  Builder builder{make_plain_layers(nullptr), nullptr, mesh, facts};
  if (trial.inside) trial.inside(builder);
  const std::shared_ptr<Experts> experts = builder.layers->experts(experts_spec_of(trial));
  for (const ParamPtr& param : experts->params()) give_experts(*param, trial, mesh);
  ExpertContext context;
  std::vector<ExpertResult> results(static_cast<size_t>(trial.ranks));
  for (int64_t rank = 0; rank < trial.ranks; ++rank)
    for (int64_t micro = 0; micro < kExpertMicros; ++micro) {
      const ExpertRows rows = rows_of_rank(trial, rank, micro);
      const at::Tensor x = rows.x_RD.to(trial.dtype).set_requires_grad(true);
      const at::Tensor y = computed(*experts, trial, x, rows, context);
      y.backward(rows.dy_RD.to(trial.dtype));
      ExpertResult& own = results[static_cast<size_t>(rank)];
      own.y[micro] = own.evaluated[micro] = y.detach(), own.dx[micro] = x.grad();
      if (trial.tokens) own.dweights[micro] = rows.routing.weights_TK.grad();
    }
  results.front().gradients = expert_gradients_of(*experts, mesh);
  return results;
}

}  // namespace drivetrain::test
