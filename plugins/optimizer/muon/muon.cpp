// Muon: momentum whose matrices are made orthogonal before the step; AdamW for all that is no matrix inside the model.
//
// Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"
// (kellerjordan.github.io/posts/muon), in torch.optim.Muon's form:
//   m = mu m + (1 - mu) g;  u = mu m + (1 - mu) g, or m without nesterov;  o = u v^T of the decomposition of u
//   p = p (1 - lr wd) - lr scale(shape) o
// Owners of whole matrices compute o (toolkit/sharding/whole_tensors.h). The AdamW is a plugin, that of the option
// `rest`.
#include <drivetrain/optimizer.h>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/planned_update.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/sharding/planned_matrices.h>

#include "elementwise.h"
#include "options.h"
#include "tiled_iteration.h"

namespace {

using namespace drivetrain;
namespace muon = drivetrain::muon;

constexpr int kMatrices = 0;  // the group of the matrices; those of the rest follow

// Two dimensions or more, and neither read by index nor the output layer.
bool is_matrix(const Param& param) {
  return param.layout.global_shape.size() >= 2 && param.role != ParamRole::embedding &&
         param.role != ParamRole::output && param.role != ParamRole::norm && param.role != ParamRole::bias;
}

class Muon : public Optimizer, public UpdatePlan {
 public:
  using Options = muon::Options;
  static OptionTable options() { return muon::option_table(); }

  Muon(const Options& options, const Services& services)
      : options_(options), services_(services), how_(options.newton_schulz()) {
    if (!services.plugins) throw fail(ErrorCode::internal, "optimizer/muon needs the plugins of the run");
    rest_ = services.plugins->create<Optimizer>(muon::rest(options));
  }

  std::vector<Hyper> groups() const override {
    std::vector<Hyper> all = {{options_.rate_of_matrices(), options_.weight_decay, options_.momentum}};
    for (const Hyper& hyper : rest_->groups()) all.push_back(hyper);
    return all;
  }
  int group_of(const Param& param) const override {
    return is_matrix(param) ? kMatrices : kMatrices + 1 + rest_->group_of(param);
  }
  double state_bytes_per_element(const Param& param) const override {
    return is_matrix(param) ? 4 : rest_->state_bytes_per_element(param);
  }
  bool wants_whole(const Param& param) const override { return is_matrix(param); }
  double host_bytes_per_element(at::ScalarType param) const override { return rest_->host_bytes_per_element(param); }
  std::string difference_note(const std::vector<ParamPtr>& params) const override;

  void plan(PlanContext& plan) override;
  UpdateWork plan_update(PlanContext& ctx, const PlannedUpdate& update) const override;
  void init(const Trainables& all) override;
  void update(const Trainables& chunk, const UpdateArgs& args) override;
  void state(StateVisitor& visitor) override {
    for (auto& [key, i] : places_)
      if (momenta_[i].defined())
        visitor.tensor(matrices_[i].param->name + ".momentum_buffer", momenta_[i], matrices_[i].layout);
    rest_->state(visitor);
  }

 private:
  // A parameter may be updated in parts: by name and first element, an order that is the same on every run.
  using Key = std::pair<std::string, int64_t>;
  static Key key(const Trainable& t) { return {t.param->name, t.layout.begin}; }

  std::vector<WholeTensor> cut(const ParamPtr& param) const;
  std::vector<int64_t> rows_of_matrices(const Param& param) const;
  WholeTensors::Options sending() const;
  void update_matrices(const UpdateArgs& args);
  void update_rest(const Trainables& chunk, const UpdateArgs& args);

  const Options options_;
  const Services& services_;
  const muon::NewtonSchulz how_;
  std::shared_ptr<Optimizer> rest_;
  int64_t head_dim_ = 0;  // of the model's attention; 0: not known
  std::unique_ptr<WholeTensors> whole_;
  Trainables matrices_;  // of `init`, in its order
  std::vector<at::Tensor> momenta_;
  std::map<Key, size_t> places_;  // in both
  size_t trainables_ = 0;         // of init, and of the lists of this step so far
  size_t seen_ = 0;
};

void Muon::plan(PlanContext& plan) {
  head_dim_ = plan.model().head_dim.value_or(0);
  if (options_.per_head_muon && head_dim_ == 0)
    plan.refuse("per_head_muon needs a model that says how large its heads are (head_dim); set it to false");
  if (!options_.adam_w_mode) plan.no_effect("adam_w_mode", "decay is decoupled in both halves, as in DeepSpeed");
  if (options_.torch_adam) plan.no_effect("torch_adam", "there is one AdamW, of the option rest");
}

WholeTensors::Options Muon::sending() const {
  WholeTensors::Options options;
  options.dtype = options_.ns_dtype == "float32" ? at::kFloat : at::kBFloat16;
  options.device = services_.device;
  // Other products than those of tiles may have other bits on another number of threads.
  options.side_by_side = muon::multiplies_in_tiles(options.device, options.dtype);
  return options;
}

// Processors without tiles hold what is to be bfloat16 in float32, and multiply it so.
UpdateWork Muon::plan_update(PlanContext& ctx, const PlannedUpdate& update) const {
  const WholeTensors::Options sent = sending();
  const PlannedMatrices matrices(
      update, [this](const ParamPtr& p) { return is_matrix(*p) ? cut(p) : std::vector<WholeTensor>(); }, sent);
  const bool on_cpu = sent.device.is_cpu(), in_tiles = muon::multiplies_in_tiles(sent.device, sent.dtype);
  const at::ScalarType held = on_cpu && !in_tiles ? at::kFloat : sent.dtype;
  const auto element = static_cast<double>(c10::elementSize(held));
  const std::vector<WholeTensor> own = matrices.of_busiest();
  std::map<std::array<double, 3>, double> products;  // how many of each size
  UpdateWork work;
  double largest = 0;
  for (const WholeTensor& t : own) {
    const muon::NewtonSchulzWork w = muon::newton_schulz_work(t.rows, t.columns, how_);
    const double symmetric = on_cpu ? 0.5 : 1;
    products[{w.r, w.r, w.c}] += symmetric * w.grams;
    products[{w.r, w.r, w.r}] += symmetric * w.squares;
    products[{w.r, w.c, w.r}] += w.moves;
    work.passed_bytes += element * (in_tiles ? 3 * w.r * w.c : w.passed);
    largest = std::max(largest, muon::newton_schulz_bytes(t.rows, t.columns, how_, sent.device, sent.dtype));
  }
  for (const auto& [size, count] : products)
    work.products.push_back({dtype_name(held), size[0], size[1], size[2], count});
  work.passed_bytes += 2 * static_cast<double>(c10::elementSize(sent.dtype)) * matrices.held();
  const int64_t at_a_time = sent.side_by_side ? at::get_num_threads() : 1;
  matrices.tell_traffic(ctx);
  ctx.memory(MemoryClass::buffers, "matrices of a round at their owner, with what travels meanwhile",
             matrices.most_bytes(largest * static_cast<double>(at_a_time <= std::ssize(own) ? at_a_time : 1)));
  return work;
}

// Sizes of the matrices that dimension 0 is made of, in rows.
std::vector<int64_t> Muon::rows_of_matrices(const Param& param) const {
  const std::vector<int64_t> whole = {param.layout.global_shape[0]};
  const std::vector<int64_t>& blocks = param.blocks.empty() ? whole : param.blocks;
  // q, k and v: three matrices whose heads are of one size, as many of k as of v.
  if (!options_.per_head_muon || blocks.size() != 3 || blocks[1] != blocks[2] || head_dim_ == 0) return blocks;
  std::vector<int64_t> heads;
  for (const int64_t rows : blocks) {
    if (rows % head_dim_ != 0)
      throw fail(ErrorCode::config, "optimizer/muon: per_head_muon: ", param.name, " has a block of ", rows,
                 " rows, which no number of heads of ", head_dim_, " makes up; set it to false");
    heads.insert(heads.end(), rows / head_dim_, head_dim_);
  }
  return heads;
}

// Three dimensions: [experts, rows, columns].
std::vector<WholeTensor> Muon::cut(const ParamPtr& param) const {
  const std::vector<int64_t>& shape = param->layout.global_shape;
  std::vector<WholeTensor> tensors;
  const auto add = [&](int64_t first, int64_t count, int64_t rows, int64_t columns) {
    tensors.push_back({param, first, count, rows, columns, muon::newton_schulz_flops(rows, columns, how_)});
  };
  if (shape.size() == 2) {
    int64_t first = 0;
    for (const int64_t rows : rows_of_matrices(*param)) add(first, rows, rows, shape[1]), first += rows;
    if (first != shape[0])
      throw fail(ErrorCode::plugin, param->name, " says that it is fused of ", first, " rows; it has ", shape[0]);
    return tensors;
  }
  int64_t columns = 1;
  for (size_t dim = 2; dim < shape.size(); ++dim) columns *= shape[dim];
  for (int64_t i = 0; i < shape[0]; ++i) add(i, 1, shape[1], columns);
  return tensors;
}

std::string Muon::difference_note(const std::vector<ParamPtr>& params) const {
  int64_t embeddings = 0, fused = 0;
  for (const ParamPtr& p : params) {
    embeddings += p->role == ParamRole::embedding && p->layout.global_shape.size() >= 2;
    fused += is_matrix(*p) && p->layout.global_shape.size() == 2 && cut(p).size() > 1;
  }
  std::string note =
      "DeepSpeed's gradient_clipping shrinks the orthogonalised update; ours clips gradients before, as for every "
      "optimizer";
  if (fused > 0)
    note += concat("; ", fused,
                   " fused tensors are orthogonalised in the blocks that they are fused of (q, k, v), "
                   "DeepSpeed does what its model fuses in one");
  if (embeddings > 0)
    note += concat("; ", embeddings,
                   " embeddings are AdamW's by what they are, DeepSpeed goes by the names "
                   "\"embed\" and \"lm_head\"");
  const std::string decay = decay_note(options_, params);
  return decay.empty() ? note : note + "; " + decay;
}

void Muon::init(const Trainables& all) {
  Trainables rest;
  matrices_.clear(), momenta_.clear(), places_.clear();
  trainables_ = all.size(), seen_ = 0;
  for (const Trainable& t : all) {
    if (!is_matrix(*t.param)) {
      rest.push_back(t);
      rest.back().group -= kMatrices + 1;
      continue;
    }
    if (t.value.scalar_type() != at::kFloat)
      throw fail(ErrorCode::config, "optimizer/muon updates float32 values; those of ", t.param->name, " are ",
                 at::toString(t.value.scalar_type()), ". The precision plugin's master dtype decides");
    places_[key(t)] = matrices_.size();
    matrices_.push_back(t);
    momenta_.push_back(at::zeros_like(t.value));
  }
  rest_->init(rest);
  whole_ = std::make_unique<WholeTensors>(
      matrices_, [this](const ParamPtr& p) { return cut(p); }, *services_.mesh, sending());
}

void Muon::update(const Trainables& chunk, const UpdateArgs& args) {
  for (const Trainable& t : chunk)
    if (is_matrix(*t.param) && !places_.contains(key(t)))
      throw fail(ErrorCode::internal, "optimizer/muon: ", t.param->name, " was not in init");
  // All matrices of the step at its first list: their gradients are final, and every rank has a first list.
  if (seen_ == 0) update_matrices(args);
  seen_ += chunk.size();
  if (seen_ >= trainables_) seen_ = 0;
  update_rest(chunk, args);
}

void Muon::update_matrices(const UpdateArgs& args) {
  std::map<int, muon::StepScalars> steps;  // by group: the config's parameter groups have rates of their own
  for (const Trainable& t : matrices_) steps.try_emplace(t.group, args, t.group);
  const auto step_of = [&](size_t trainable) -> const muon::StepScalars& {
    return steps.at(matrices_[trainable].group);
  };
  const std::vector<WholeTensors::Part>& parts = whole_->parts();
  std::vector<bool> taken(parts.size(), false);  // the part's gradient
  whole_->run(
      [&](const WholeTensors::Part& part, const at::Tensor& to) {
        taken[static_cast<size_t>(&part - parts.data())] = true;
        muon::take_gradient_into(to, part.in(momenta_[part.trainable]), part.in(matrices_[part.trainable].grad),
                                 options_.nesterov, step_of(part.trainable));
      },
      [&](const WholeTensor&, const at::Tensor& matrix) { return muon::orthogonalised(matrix, how_); },
      [&](const WholeTensors::Part& part, const at::Tensor& direction) {
        const WholeTensor& whole = whole_->tensors()[part.tensor];
        muon::take_step(part.in(matrices_[part.trainable].value), direction, options_.scale(whole.rows, whole.columns),
                        step_of(part.trainable));
      });
  for (size_t i = 0; i < parts.size(); ++i)  // of which another rank has a copy, and gave it to the owner
    if (!taken[i])
      muon::take_gradient(parts[i].in(momenta_[parts[i].trainable]), parts[i].in(matrices_[parts[i].trainable].grad),
                          step_of(parts[i].trainable));
  for (const Trainable& t : matrices_)
    if (!t.working.is_same(t.value)) t.working.copy_(t.value, /*non_blocking=*/t.working.device() != t.value.device());
}

void Muon::update_rest(const Trainables& chunk, const UpdateArgs& args) {
  Trainables rest;
  for (const Trainable& t : chunk)
    if (!is_matrix(*t.param)) {
      rest.push_back(t);
      rest.back().group -= kMatrices + 1;
    }
  if (rest.empty()) return;
  UpdateArgs theirs = args;
  theirs.hyper = args.hyper.narrow(0, kMatrices + 1, args.hyper.size(0) - kMatrices - 1);
  rest_->update(rest, theirs);
}

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Optimizer, "muon", Muon)
