// Momentum whose matrices are made orthogonal before the step, AdamW for all else. See README.md.
#include <drivetrain/optimizer.h>
#include <drivetrain/planned_update.h>
#include <drivetrain/services.h>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include <drivetrain/toolkit/sharding/planned_matrices.h>

namespace {

using namespace drivetrain;

bool is_matrix(const Param& param) { return param.layout.global_shape.size() == 2 && param.role == ParamRole::matrix; }

// What is fused of several matrices (q, k and v) is several here, too.
std::vector<WholeTensor> matrices_of(const ParamPtr& param) {
  const int64_t rows = param->layout.global_shape[0], columns = param->layout.global_shape[1];
  std::vector<WholeTensor> list;
  int64_t first = 0;
  for (const int64_t block : param->blocks.empty() ? std::vector<int64_t>{rows} : param->blocks) {
    const auto n = static_cast<double>(block), m = static_cast<double>(columns);
    list.push_back({param, first, block, block, columns, n * m * std::min(n, m)});
    first += block;
  }
  return list;
}

// About u v^T of the singular value decomposition, by Newton-Schulz steps.
at::Tensor orthogonal(const at::Tensor& matrix, int64_t steps) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x.div(at::linalg_vector_norm(x).clamp_min(1e-7));
  for (int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = at::matmul(x, x.t());
    x = at::matmul(gram.mul(-4.7750).add_(at::matmul(gram, gram).mul_(2.0315)), x).add_(x.mul(3.4445));
  }
  return tall ? x.t() : x;
}

struct MuonOptions {
  double lr = 0.02, adam_lr = 3e-4, momentum = 0.95;
  int64_t steps = 5;
};

class SmallMuon : public Optimizer, public UpdatePlan {
 public:
  using Options = MuonOptions;
  static OptionTable options() {
    return table<Options>()
        .field("lr", &Options::lr, "learning rate of the matrices")
        .at_least(0)
        .field("adam_lr", &Options::adam_lr, "learning rate of all other parameters")
        .at_least(0)
        .field("momentum", &Options::momentum, "how much of the running mean of gradients is kept")
        .range(0, 1)
        .field("steps", &Options::steps, "Newton-Schulz steps")
        .at_least(1);
  }
  SmallMuon(const Options& options, const Services& services)
      : options_(options),
        services_(services),
        rest_(services.plugins->create<Optimizer>({"adamw", Value::Object{{"lr", options.adam_lr}}})) {}

  // The matrices' group is the first, those of the rest follow.
  std::vector<Hyper> groups() const override {
    std::vector<Hyper> all = {{options_.lr, 0, options_.momentum}};
    for (const Hyper& hyper : rest_->groups()) all.push_back(hyper);
    return all;
  }
  int group_of(const Param& param) const override { return is_matrix(param) ? 0 : 1 + rest_->group_of(param); }
  double state_bytes_per_element(const Param& param) const override {
    return is_matrix(param) ? 4 : rest_->state_bytes_per_element(param);
  }
  bool wants_whole(const Param& param) const override { return is_matrix(param); }

  // In float32, all of each product: the owner with the most work.
  UpdateWork plan_update(PlanContext& ctx, const PlannedUpdate& update) const override {
    const auto cut = [](const ParamPtr& p) { return is_matrix(*p) ? matrices_of(p) : std::vector<WholeTensor>(); };
    const PlannedMatrices matrices(update, cut, WholeTensors::Options());
    matrices.tell_traffic(ctx);
    UpdateWork work;
    for (const WholeTensor& t : matrices.of_busiest()) {
      const auto r = static_cast<double>(std::min(t.rows, t.columns)),
                 c = static_cast<double>(std::max(t.rows, t.columns));
      const auto steps = static_cast<double>(options_.steps);
      work.products.push_back({"float32", r, r, c, steps});
      work.products.push_back({"float32", r, r, r, steps});
      work.products.push_back({"float32", r, c, r, steps});
    }
    return work;
  }

  void init(const Trainables& all) override {
    for (const Trainable& t : all) {
      if (!is_matrix(*t.param)) continue;
      places_[key(t)] = matrices_.size();
      matrices_.push_back(t), momenta_.push_back(at::zeros_like(t.value));
    }
    trainables_ = all.size();
    rest_->init(of_rest(all));
    whole_ = std::make_unique<WholeTensors>(matrices_, matrices_of, *services_.mesh, WholeTensors::Options());
  }

  void update(const Trainables& chunk, const UpdateArgs& args) override {
    for (const Trainable& t : chunk)
      if (is_matrix(*t.param) && !places_.contains(key(t)))
        throw fail(ErrorCode::internal, "optimizer/small_muon: ", t.param->name, " was not in init");
    // A parameter's parts may be in several lists. When the first comes, all gradients are final.
    if (seen_ == 0 && !*args.skip.const_data_ptr<bool>()) update_matrices(args);
    seen_ = (seen_ + chunk.size()) % trainables_;
    UpdateArgs theirs = args;
    theirs.hyper = args.hyper.narrow(0, 1, args.hyper.size(0) - 1);
    rest_->update(of_rest(chunk), theirs);
  }

  void state(StateVisitor& visitor) override {
    for (const auto& [key, i] : places_)
      visitor.tensor(key.first + ".momentum_buffer", momenta_[i], matrices_[i].layout);
    rest_->state(visitor);
  }

 private:
  using Key = std::pair<std::string, int64_t>;  // name, and the first element of a part
  static Key key(const Trainable& t) { return {t.param->name, t.layout.begin}; }
  static Trainables of_rest(const Trainables& all) {
    Trainables rest;
    for (const Trainable& t : all)
      if (!is_matrix(*t.param)) rest.push_back(t), rest.back().group -= 1;
    return rest;
  }

  // Products and sums are operations of their own, so that their roundings are the same for every cut of a matrix.
  void update_matrices(const UpdateArgs& args) {
    const double* const hyper = args.hyper.const_data_ptr<double>();
    const auto lr = [&](const Trainable& t) { return hyper[3 * t.group]; };
    const double mu = hyper[2], scale = *args.grad_scale.const_data_ptr<double>();
    const auto fresh = [&](const at::Tensor& grad) { return grad.to(at::kFloat).mul(scale * (1 - mu)); };
    for (size_t i = 0; i < matrices_.size(); ++i) momenta_[i].mul_(mu).add_(fresh(matrices_[i].grad));
    whole_->run(
        [&](const WholeTensors::Part& part, const at::Tensor& to) {
          to.copy_(part.in(momenta_[part.trainable]).mul(mu).add_(fresh(part.in(matrices_[part.trainable].grad))));
        },
        [&](const WholeTensor&, const at::Tensor& matrix) { return orthogonal(matrix, options_.steps); },
        [&](const WholeTensors::Part& part, const at::Tensor& direction) {
          const WholeTensor& whole = whole_->tensors()[part.tensor];
          const double taller = static_cast<double>(whole.rows) / static_cast<double>(whole.columns);
          const Trainable& t = matrices_[part.trainable];
          part.in(t.value).sub_(direction.mul(lr(t) * std::sqrt(std::max(1.0, taller))));
        });
    for (const Trainable& t : matrices_)
      if (!t.working.is_same(t.value)) t.working.copy_(t.value);
  }

  const Options options_;
  const Services& services_;
  const std::shared_ptr<Optimizer> rest_;
  std::unique_ptr<WholeTensors> whole_;
  Trainables matrices_;  // of init
  std::vector<at::Tensor> momenta_;
  std::map<Key, size_t> places_;      // in both
  size_t trainables_ = 0, seen_ = 0;  // of init, and of the lists of this step so far
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Optimizer, "small_muon", SmallMuon)
