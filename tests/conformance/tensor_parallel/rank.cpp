#include <drivetrain/testkit/tensor_parallel/rank.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <random>

#include <drivetrain/attention.h>
#include <drivetrain/communicator.h>
#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/model.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/plugins.h>

namespace drivetrain::test {
namespace {

class TensorParallelContext : public StepContext {
 public:
  int64_t step() const override { return 3; }
  Mode mode() const override { return mode_; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view site) const override {
    RandomKey key{7, 3, hash_name(site), batch_.first_sample, {}};
    if (!cuts_->empty()) key.rows = activation_positions();
    return key;
  }
  std::vector<RowRange> activation_positions() const override {
    std::vector<RowRange> own = positions();
    for (const auto& cut : *cuts_) own = cut(own, {});
    return own;
  }
  Keep keep(std::string_view) const override { return keep_; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}

  Batch batch_;
  Mode mode_ = Mode::train;
  Visit visit_;
  Keep keep_ = Keep::all;
  const std::vector<Builder::SequenceCut>* cuts_ = nullptr;
};

class TensorParallelRank {
 public:
  TensorParallelRank(const TensorParallelTrial& trial, int64_t rank, const std::shared_ptr<Store>& store)
      : trial_(trial),
        store_(store),
        services_{.log = log_,
                  .store = *store_,
                  .rank = rank,
                  .world_size = trial.ranks,
                  .local_rank = rank,
                  .local_size = trial.ranks,
                  .plugins = &maker_} {
    if (trial.ranks > 1)
      communicator_ = installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services_);
    model_ = installed_plugins().make<Model>("gpt", trial.model, services_);
    if (trial.ranks > 1)
      plugin_ = installed_plugins().make<TensorParallel>(TensorParallel::kKind, trial.name,
                                                         parse_json(trial.options, "options"), services_);
    if (trial.fused)
      fused_ = installed_plugins().make<Strategy>("fused_block", R"({"recompute_cheap": false})", services_);
  }

  TensorParallelResult run() {
    try {
      build();
      fill();
      TensorParallelResult result;
      for (int64_t micro = 0; micro < 2; ++micro) {
        set_batch(micro);
        result.outputs = forward();
        result.gradients = backward();
        result.outputs.back() = result.outputs.back().clone();
      }
      result.positions = context_.activation_positions();
      result.slots = slots();
      without_gradients(result);
      result.log = log_.lines;
      return result;
    } catch (const std::exception& e) {
      if (communicator_) communicator_->abort(e.what());
      throw;
    }
  }

 private:
  std::vector<Axis> axes() {
    RunFacts run;
    run.world_size = trial_.ranks, run.micro_batch_size = trial_.B, run.accumulation = 2, run.seq_length = trial_.S;
    PlanRecord context(model_->facts(), run);
    if (plugin_) plugin_->plan(context);
    for (const auto& refusal : context.refusals()) ADD_FAILURE() << refusal.text;
    std::vector<Axis> axes;
    for (const auto& claim : context.claims()) {
      EXPECT_FALSE(claim.joins_gradients()) << claim.axis << ": all ranks read the same rows";
      axes.push_back({claim.axis, claim.size});
    }
    return axes;
  }

  void build() {
    mesh_ = std::make_unique<Mesh>(axes(), services_.rank, trial_.ranks, communicator_);
    services_.mesh = mesh_.get();
    const ModelFacts facts = model_->facts();
    Builder builder{nullptr, installed_plugins().make<Attention>("standard", "{}", services_), *mesh_, facts};
    builder.layers = make_plain_layers(builder.attention());
    if (trial_.inside) trial_.inside(builder);
    if (fused_) fused_->build(builder);
    if (plugin_) plugin_->build(builder);
    if (trial_.spoil) trial_.spoil(builder);
    units_.units = model_->build(*builder.layers);
    cuts_ = builder.activation_cuts, attention_ = builder.finish_attention();
    context_.cuts_ = &cuts_;
    context_.keep_ = trial_.recompute ? Keep::nothing : Keep::all;
    if (fused_) fused_->attach(units_);
    if (plugin_) plugin_->attach(units_);
  }

  static int64_t cut_dim(const Layout& layout) {
    for (size_t dim = 0; dim < layout.dims.size(); ++dim)
      if (!layout.dims[dim].axes.empty()) return static_cast<int64_t>(dim);
    return -1;
  }

  // Values by name, biases and gains not trivial; slots begin as numbers that nothing may leave there.
  void fill() {
    for (const ParamPtr& param : units_.all()) {
      const Layout& layout = param->layout;
      at::Tensor flat = at::empty({layout.global_numel()}, at::TensorOptions(at::kFloat));
      fill_normal(flat, 5, param->name, 0, layout.global_shape.size() > 1 ? 0.3 : 0.2);
      if (param->init.kind == InitRule::Kind::ones) flat.add_(1);
      at::Tensor value = flat.view(layout.global_shape).to(trial_.dtype);
      if (const int64_t dim = cut_dim(layout); dim >= 0) {
        Tensors parts;
        for (const auto& range : layout.ranges(static_cast<size_t>(dim), *mesh_))
          parts.push_back(value.narrow(dim, range.first, range.count));
        const at::Tensor own = at::cat(parts, dim);
        value = at::zeros(layout.local_shape(*mesh_), own.options());
        value.narrow(dim, 0, own.size(dim)).copy_(own);
      }
      param->trainable = !trial_.frozen.contains(param->name);
      param->tensor = value.set_requires_grad(param->trainable);
      if (!param->trainable) continue;
      param->grad = at::full(value.sizes(), std::numeric_limits<double>::quiet_NaN(), at::TensorOptions(trial_.dtype));
      param->restart_grad();
    }
  }

  void set_batch(int64_t micro) {
    const int64_t B = trial_.B, S = trial_.S;
    at::Tensor tokens = at::empty({B, S}, at::TensorOptions(at::kLong)), labels = at::empty({B, S}, tokens.options());
    std::mt19937 engine(11 + static_cast<unsigned>(micro));
    int64_t valid = 0;
    for (int64_t i = 0; i < B * S; ++i) {
      const auto draw = [&] { return static_cast<int64_t>(engine() % static_cast<unsigned>(trial_.vocabulary)); };
      tokens.mutable_data_ptr<int64_t>()[i] = draw();
      labels.mutable_data_ptr<int64_t>()[i] = i % 7 == 3 ? -100 : draw();
      valid += i % 7 == 3 ? 0 : 1;
    }
    context_.batch_ = {tokens, labels, 100 + micro * B, valid, {}, {}, {}};
  }

  Tensors forward() {
    Tensors outputs, x = {context_.batch_.tokens_BS};
    saved_.assign(units_.units.size(), Saved{});
    context_.visit_ = {};
    for (size_t i = 0; i < units_.units.size(); ++i) {
      x = units_.units[i]->forward(x, context_, saved_[i]);
      const bool loss = i + 1 == units_.units.size();  // filled as late as in backward
      outputs.push_back(loss ? x[0] : x.size() == 1 ? x[0].clone() : at::add(x[0], x[1]));
    }
    return outputs;
  }

  Tensors backward() {
    Tensors gradients, dy = {at::full({}, 0.5, at::kDouble)};
    context_.visit_.direction = Direction::backward;
    context_.visit_.part = trial_.part;
    for (size_t i = units_.units.size(); i-- > 0;) {
      dy = units_.units[i]->backward(dy, context_, saved_[i]);
      if (i > 0) gradients.push_back(dy[0].clone());
    }
    context_.visit_.part = Part::weight;
    if (trial_.part == Part::input)
      for (size_t i = units_.units.size(); i-- > 0;) units_.units[i]->backward_weight(context_, saved_[i]);
    return gradients;
  }

  void without_gradients(TensorParallelResult& result) {
    const at::AutoGradMode off(false);
    context_.mode_ = Mode::evaluate;
    result.evaluated = forward().back().clone();
    context_.mode_ = Mode::generate;
    context_.batch_.labels_BS.reset();
    result.logits = forward().back();
  }

  std::vector<CutGradient> slots() const {
    std::vector<CutGradient> all;
    for (const ParamPtr& param : units_.all()) {
      if (!param->trainable) continue;
      const Layout& layout = param->layout;
      CutGradient gradient{param->name, layout.global_shape,          cut_dim(layout),
                           {},          !layout.partial_over.empty(), param->grad.clone()};
      if (gradient.dim >= 0) gradient.ranges = layout.ranges(static_cast<size_t>(gradient.dim), *mesh_);
      all.push_back(std::move(gradient));
    }
    return all;
  }

  const TensorParallelTrial& trial_;
  LinesLog log_;
  const std::shared_ptr<Store> store_;
  Services services_;
  const InstalledMaker maker_{services_};
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Mesh> mesh_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<Strategy> plugin_, fused_;
  std::shared_ptr<Attention> attention_;
  std::vector<Builder::SequenceCut> cuts_;
  UnitList units_;
  std::vector<Saved> saved_;
  TensorParallelContext context_;
};

}  // namespace

std::string text_of(const TensorParallelTrial& t) {
  return concat(t.name, " ", t.options, " on ", t.ranks, " ranks, ", t.model, t.fused ? ", fused blocks" : "",
                t.inside ? ", decorated layers" : "", t.recompute ? ", recomputed" : "",
                t.part == Part::input ? ", split backward" : "", ", ", c10::toString(t.dtype));
}

TensorParallelResult run_tensor_parallel_rank(const TensorParallelTrial& trial, int64_t rank,
                                              const std::shared_ptr<Store>& store) {
  return TensorParallelRank(trial, rank, store).run();
}

}  // namespace drivetrain::test
