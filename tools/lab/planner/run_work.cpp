#include "planner/run_work.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/expert_parallel.h>
#include <drivetrain/toolkit/dtype_name.h>

#include "planner/attention_work.h"
#include "planner/products_work.h"
#include "plugin_calls/plugin_call.h"
#include "predict/shape_work.h"

namespace drivetrain {
namespace {

double size_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

bool is_by(const PlanRecord::Traffic& traffic, const char* kind) {
  return traffic.by.rfind(std::string(kind) + "/", 0) == 0;
}

// Sizes as the model has them; of one without heads its products are as wide as its layers.
ModelShape shape_of(const ModelFacts& model) {
  ModelShape shape;
  shape.layers = static_cast<double>(std::max<int64_t>(model.num_layers, 1));
  shape.hidden = static_cast<double>(model.hidden_size), shape.vocab = static_cast<double>(model.vocab_size);
  shape.heads = static_cast<double>(model.num_attention_heads.value_or(1));
  shape.groups = static_cast<double>(model.num_query_groups.value_or(model.num_attention_heads.value_or(1)));
  shape.head_dim = static_cast<double>(model.head_dim.value_or(model.hidden_size));
  const bool mixture = model.mixture.layers > 0;
  shape.ffn = static_cast<double>(model.ffn_hidden_size.value_or(mixture ? 0 : 4 * model.hidden_size));
  const double queries = shape.heads * shape.head_dim;
  const double attention = shape.hidden * (2 * queries + 2 * shape.groups * shape.head_dim);
  const double mlp = (model.flops_per_token_fixed / 6 - shape.hidden * shape.vocab) / shape.layers - attention;
  shape.gated = mixture || mlp > 2.5 * shape.hidden * shape.ffn;
  return shape;
}

// A rank's part of a sequence inside of layers.
double positions_inside(const RunPlan& plan) {
  int64_t sum = 0;
  for (const RowRange& range : plan.positions.batch) sum += range.count;
  return static_cast<double>(sum > 0 ? sum : plan.run.seq_length.value());
}

// Of experts, forward and backward: what a token's choices compute.
double expert_flops_per_token(const ModelFacts::Mixture& m) {
  if (m.layers == 0) return 0;
  return 6 * static_cast<double>(m.parameters) * static_cast<double>(m.chosen) / static_cast<double>(m.experts);
}

// Products are scaled so that together with those of experts they are what the model counts.
void fit_products(StepWork& work, const ModelFacts& model, double tokens, double share) {
  double flops = 0;
  for (const auto* list : {&work.products, &work.head})
    for (const ProductWork& product : *list) flops += product.flops();
  const double wanted = (model.flops_per_token_fixed - expert_flops_per_token(model.mixture)) / 3 * tokens / share;
  if (flops <= 0 || wanted <= 0) return;
  for (auto* list : {&work.products, &work.head})
    for (ProductWork& product : *list) product.count *= wanted / flops;
}

// Ranks that share the experts of a layer.
double expert_ranks(const MeshPlan& mesh) {
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    if (mesh.owners[i].starts_with(std::string(ExpertParallel::kKind) + "/"))
      return static_cast<double>(mesh.axes[i].size);
  return 1;
}

// Of layers with experts, all loads equal: every expert has a product of its own rows, which come from all ranks that
// share the experts. Experts are gated MLPs. `tokens`: of this rank between layers. Rows are copied into the order of
// experts and back (four columns read or written of each), and experts' activation functions read and write.
void add_experts(StepWork& work, const RunPlan& plan, double tokens, double stages) {
  const ModelFacts::Mixture& m = plan.model_alone.mixture;
  std::erase_if(work.products, [](const ProductWork& product) { return product.flops() <= 0; });
  if (m.layers == 0) return;
  const auto experts = static_cast<double>(m.experts), hidden = static_cast<double>(plan.model_alone.hidden_size);
  const double layers = static_cast<double>(m.layers) / stages, ranks = expert_ranks(plan.mesh);
  const double ffn = static_cast<double>(m.parameters) / static_cast<double>(m.layers) / experts / (3 * hidden);
  const double rows = tokens * static_cast<double>(m.chosen);
  work.products.push_back({"experts, in", rows * ranks / experts, 2 * ffn, hidden, layers * experts / ranks});
  work.products.push_back({"experts, out", rows * ranks / experts, hidden, ffn, layers * experts / ranks});
  for (size_t i = work.products.size() - 2; i < work.products.size(); ++i) {
    work.products[i].of_experts = true;
    if (work.dtype == "bfloat16") work.products[i].together = experts / ranks;  // in other types they run one by one
  }
  work.passed_bytes += layers * plan.run.compute_bytes * rows * (4 * hidden + 3 * ffn);
}

// What the policy runs again of the blocks of this rank's stage, as shares of them.
void add_recompute(StepWork& work, const PreparedRun& run) {
  const Recompute* const policy = run.plugins.recompute.get();
  if (!policy) return;
  const std::string id = run.plan.id_of(Recompute::kKind);
  double blocks = 0, whole = 0, attention = 0, freed = 0;
  for (const UnitPtr& unit : run.units.units) {
    if (!unit->is_block()) continue;
    const auto keeps_all = [&](const std::string& region) {
      return plugin_call({id, "keep", unit->name()}, [&] { return policy->keep({unit->name(), region}); }) == Keep::all;
    };
    blocks += 1;
    if (!keeps_all("")) {
      whole += 1;
      continue;
    }
    const auto keeps = unit->keeps();
    if (!keeps) continue;
    for (const UnitKeeps::Region& region : keeps->regions) {
      if (keeps_all(region.name)) continue;
      const double all = keeps->all.whole + keeps->all.shared;
      freed += all > 0 ? (region.freed.whole + region.freed.shared) / all : 0;
      attention += region.name.starts_with("attn") ? 1 : 0;
    }
  }
  if (blocks == 0) return;
  work.again = whole / blocks;
  work.attention_again = std::min(1.0, (whole + attention) / blocks);
  work.passes_again = std::min(1.0, (whole + freed) / blocks);
}

// Ranks between neighbours of each axis.
int64_t apart(const MeshPlan& mesh, const std::string& name) {
  int64_t stride = 1;
  for (const Axis& axis : mesh.axes) {
    if (axis.name == name) return stride;
    stride *= axis.size;
  }
  return 1;
}

const Axis* axis_of(const MeshPlan& mesh, const std::string& name) {
  for (const Axis& axis : mesh.axes)
    if (axis.name == name) return &axis;
  return nullptr;
}

bool is_direct(const MeshPlan& mesh, const std::string& name) {
  for (size_t i = 0; i < mesh.axes.size() && i < mesh.places.size(); ++i)
    if (mesh.axes[i].name == name) return mesh.places[i] == PlanContext::kHeadsPlace;
  return false;
}

// The first axis that a data-parallel plugin claims.
std::string first_data_axis(const MeshPlan& mesh) {
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    if (mesh.owners[i].starts_with(std::string(DataParallel::kKind) + "/")) return mesh.axes[i].name;
  return {};
}

// Of the data-parallel plugin: also over axes that join its sums, such as parts of a sequence.
RankGroup gradient_group(const RunPlan& plan, const Axis& axis) {
  const bool first = first_data_axis(plan.mesh) == axis.name;
  const int64_t joined = first ? plan.run.joined_ranks.value_or(1) : 1;
  return {axis.size * joined, std::max<int64_t>(1, apart(plan.mesh, axis.name) / joined)};
}

// How often in a step a plugin sends what a rank has: once, or for every micro-batch.
double times_of(const RunPlan& plan, const PlanRecord::Traffic& traffic) {
  const double elements = static_cast<double>(plan.model.parameters) * plan.run.rank_share.value_or(1);
  const double once = 2 * elements * size_of(plan.dtypes.types.reduce);
  return once > 0 ? std::clamp(std::round(traffic.bytes / once), 1.0, static_cast<double>(plan.batch.accumulation)) : 1;
}

MessageWork message_of(const RunPlan& plan, const PlanRecord::Traffic& traffic, const Axis& axis, double again) {
  MessageWork message;
  message.axis = traffic.axis, message.what = traffic.what;
  const auto micro_batches = static_cast<double>(plan.batch.accumulation);
  const double activation = static_cast<double>(plan.batch.micro_batch_size) *
                            static_cast<double>(plan.run.rank_positions.value_or(plan.run.seq_length.value())) *
                            static_cast<double>(plan.model.hidden_size) * plan.run.compute_bytes;
  message.group = {axis.size, apart(plan.mesh, axis.name)};
  message.bytes = traffic.bytes;
  const auto others = static_cast<double>(axis.size - 1);
  if (is_by(traffic, DataParallel::kKind)) {
    message.group = gradient_group(plan, axis);
    const double times = times_of(plan, traffic);
    message.hops = times * static_cast<double>(plan.run.rank_layers.value_or(1) * (message.group.ranks - 1));
    message.beside_micro_batches = times;
  } else if (is_by(traffic, Optimizer::kKind)) {  // in rounds that go while others are computed
    message.direct = true, message.beside_update = true;
    message.hops = others;
  } else if (is_by(traffic, Schedule::kKind)) {
    message.hops = 2 * micro_batches * static_cast<double>(plan.schedule.chunks);
    message.beside_micro_batches = micro_batches;
  } else if (is_by(traffic, ExpertParallel::kKind)) {  // rows there and back, and their counts in a forward
    const double rows = activation * static_cast<double>(plan.model.mixture.chosen);
    message.bytes *= 1 + again / 2;
    message.direct = true;
    message.hops = rows > 0 ? std::ceil(1.25 * message.bytes / (rows * others / (others + 1))) : 0;
  } else {
    message.bytes *= 1 + again / 2;
    message.direct = is_direct(plan.mesh, axis.name);
    message.hops = activation > 0 ? std::ceil(message.bytes / activation) * (message.direct ? 1 : others) : 0;
  }
  return message;
}

// Bytes that an update reads and writes: values, state and gradient, and the parameters where they are a copy. The host
// always has a copy; one of the same type is sent to a device as it is, and made by a pass of its own where it stays.
double update_bytes(const RunPlan& plan) {
  const Dtypes& types = plan.dtypes.types;
  const double own = 2 * (size_of(types.master) + plan.optimizer_bytes_per_element) + size_of(types.grad);
  const bool converted = types.master != types.param, copied = plan.update.on_host && !plan.update.to_device;
  return plan.updated_elements * (own + size_of(types.param) * (converted ? 1 : copied ? 2 : 0));
}

// The norm reads the gradients before, which are on the rank's device wherever they are updated.
void add_update(StepWork& work, const RunPlan& plan) {
  (plan.update.on_host ? work.host_updated_bytes : work.updated_bytes) = update_bytes(plan);
  work.updated_elements = plan.updated_elements;
  const double trained =
      static_cast<double>(plan.model.parameters) * plan.run.rank_trained.value_or(plan.run.rank_share.value_or(1));
  if (plan.updated_elements > 0) work.owners = std::max(1.0, std::round(trained / plan.updated_elements));
  work.norm_bytes = plan.updated_elements * size_of(plan.dtypes.types.grad);
  for (const PlanRecord::Copies& said : plan.copies)
    if (said.traffic.bytes > 0) work.copies.push_back(said.traffic);
}

double flops_of(const UpdateWork& update) {
  double flops = 0;
  for (const UpdateWork::Product& p : update.products) flops += 2 * p.rows * p.out * p.in * p.count;
  return flops;
}

// Beside that: of the stage whose optimizer computes most, for which all others wait.
void add_update_products(StepWork& work, const RunPlan& plan) {
  const UpdateWork* most = nullptr;
  for (const StageMemory& stage : plan.stage_memories)
    if (!most ||
        std::pair(flops_of(stage.update), stage.update.passed_bytes) > std::pair(flops_of(*most), most->passed_bytes))
      most = &stage.update;
  if (!most) return;
  for (const UpdateWork::Product& p : most->products)
    work.update_products.push_back({"optimizer", p.rows, p.out, p.in, p.count, p.dtype});
  work.update_passed_bytes = most->passed_bytes;
}

}  // namespace

double model_flops_of(const RunPlan& plan) {
  return plan.model.flops_per_token(static_cast<double>(plan.run.seq_length.value()));
}

StepWork work_of_run(const PreparedRun& run) {
  const RunPlan& plan = run.plan;
  StepWork work;
  work.dtype = dtype_name(plan.dtypes.types.param);
  work.ranks = static_cast<double>(plan.run.world_size);
  work.micro_batches = static_cast<double>(plan.batch.accumulation);
  const auto stages = static_cast<double>(plan.schedule.stages);
  const auto tensor = static_cast<double>(plan.run.tensor_ranks.value_or(1));
  const double seq = static_cast<double>(plan.run.seq_length.value());
  const double tokens = static_cast<double>(plan.batch.micro_batch_size) * positions_inside(plan);
  work.tokens = static_cast<double>(plan.batch.train_batch_size) * seq / work.ranks;
  ShapeCuts cuts{tokens, seq, tensor, stages, plan.run.compute_bytes, 0};
  cuts.tokens_outside = static_cast<double>(plan.batch.micro_batch_size) *
                        static_cast<double>(plan.run.rank_positions.value_or(static_cast<int64_t>(seq)));
  const ModelShape shape = shape_of(plan.model_alone);
  add_shape(work, shape, cuts);
  fit_products(work, plan.model_alone, tokens, tensor * stages);
  add_products_work(work, plan, shape, cuts);
  add_experts(work, plan, cuts.tokens_outside, stages);
  apply_windows(work, plan.model_alone);
  add_attention(work, run, positions_inside(plan), stages);
  add_recompute(work, run);
  work.unit_visits = (static_cast<double>(plan.model.num_layers) / stages) * (2 + work.again) + 4;
  if (plan.schedule.timeline) work.bubble = plan.schedule.timeline->bubble();
  for (const PlanRecord::Traffic& traffic : plan.traffics) {
    const Axis* const axis = axis_of(plan.mesh, traffic.axis);
    if (axis && axis->size > 1 && traffic.bytes > 0)
      work.messages.push_back(message_of(plan, traffic, *axis, work.again));
  }
  add_update(work, plan);
  add_update_products(work, plan);
  double summed = 1;
  for (const Axis& axis : plan.mesh.axes) summed *= axis.joins_gradients ? static_cast<double>(axis.size) : 1;
  work.gradient_ranks = summed > 1 ? summed : 0;
  return work;
}

}  // namespace drivetrain
