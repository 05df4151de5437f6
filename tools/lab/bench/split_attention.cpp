#include "bench/split_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <cmath>

#include <drivetrain/context_parallel.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/random.h>

#include "bench/dtype.h"

namespace drivetrain {
namespace {

constexpr double kFarOff = 2e-2;  // more than 16 bits and another order of sums make, on values of order 1

void expect_near(const std::string& who, const char* what, const at::Tensor& found, const at::Tensor& wanted) {
  const at::Tensor distance = found.to(at::kFloat).sub(wanted.to(at::kFloat)).abs();
  const double most = distance.max().item<double>();
  if (!(most <= kFarOff))
    throw fail(ErrorCode::communication, who, " gave wrong values: ", what, " is up to ", most, " from the whole's");
}

}  // namespace

WholeAttention::WholeAttention(const BenchArguments& a, const at::Device& device)
    : batch(a.whole("--batch")),
      heads(a.whole("--heads")),
      groups(a.whole("--groups", heads)),
      head_size(a.whole("--head-size")),
      length(a.whole("--seq")),
      dtype(bench_dtype(a)) {
  if (heads % groups != 0)
    throw fail(ErrorCode::config, "bench context: --groups ", groups, " does not divide --heads ", heads);
  const auto numbers = [&](int64_t h, uint64_t site) {
    at::Tensor x = at::empty({batch, length, h, head_size}, at::TensorOptions(at::kFloat));
    fill_uniform(x, {1, 1, site, 0, {}});
    return x.sub_(0.5).mul_(2).to(dtype).to(device);
  };
  q = numbers(heads, 1), k = numbers(groups, 2), v = numbers(groups, 3), dout = numbers(heads, 4);
}

std::string WholeAttention::text() const {
  return concat("B ", batch, ", S ", length, ", H ", heads, groups == heads ? "" : concat(" over ", groups), ", D ",
                head_size, ", causal, ", c10::toString(dtype));
}

AttentionArgs WholeAttention::args() const {
  AttentionArgs args;
  args.scale = 1 / std::sqrt(static_cast<double>(head_size));
  return args;
}

SplitAttention::SplitAttention(const std::string& name, const RankAlone& rank, std::shared_ptr<Attention> inner,
                               const std::shared_ptr<Communicator>& communicator, const WholeAttention& whole)
    : name_(name), services_(rank.services()), args_(whole.args()) {
  const std::string id = concat(ContextParallel::kKind, "/", name);
  Value params = Value::object();
  params.set("size", services_.world_size);
  Problems problems;
  const auto options = rank.registry().options(ContextParallel::kKind, name).parse(params, id, "params", problems);
  problems.throw_if_any();
  strategy_ = std::dynamic_pointer_cast<Strategy>(
      rank.registry().create_plugin(ContextParallel::kKind, name, options.get(), services_));
  if (!strategy_) throw fail(ErrorCode::plugin, id, " is no Strategy");
  const std::vector<RowRange> positions = plan(rank, std::move(inner), communicator, whole);
  ids_ = position_ids(positions, rank.device());
  const auto cut = [&](const at::Tensor& x) { return x.index_select(1, ids_); };
  q_ = cut(whole.q), k_ = cut(whole.k), v_ = cut(whole.v), dout_ = cut(whole.dout);
}

// As a run does it; this rank's positions.
std::vector<RowRange> SplitAttention::plan(const RankAlone& rank, std::shared_ptr<Attention> inner,
                                           const std::shared_ptr<Communicator>& communicator,
                                           const WholeAttention& whole) {
  ModelFacts model;
  model.num_layers = 1, model.num_attention_heads = whole.heads, model.num_query_groups = whole.groups;
  model.head_dim = whole.head_size;
  RunFacts run;
  run.world_size = services_.world_size, run.device = rank.device_name(), run.seq_length = whole.length;
  run.micro_batch_size = whole.batch, run.accumulation = 1;
  run.heads_per_rank = whole.heads, run.groups_per_rank = whole.groups;
  PlanRecord context(model, run);
  strategy_->plan(context);
  for (const auto& refusal : context.refusals())
    throw fail(ErrorCode::config, ContextParallel::kKind, "/", name_, ": ", refusal.text);
  std::vector<Axis> axes;
  for (const auto& claim : context.claims()) axes.push_back({claim.axis, claim.size, 0, claim.joins_gradients()});
  mesh_ = std::make_unique<Mesh>(axes, services_.rank, services_.world_size, communicator, services_.device);
  services_.mesh = mesh_.get();
  Builder builder{nullptr, std::move(inner), *mesh_, model};
  strategy_->build(builder);
  attention_ = builder.finish_attention();
  UnitList none;
  strategy_->attach(none);
  std::vector<RowRange> positions = {{0, whole.length}};
  for (const Builder::SequenceCut& cut : builder.batch_cuts) positions = cut(positions, {});
  return positions;
}

void SplitAttention::check(const WholeAttention& whole) {
  both();
  const std::string who = concat("rank ", services_.rank, ": ", ContextParallel::kKind, "/", name_);
  const auto cut = [&](const at::Tensor& x) { return x.index_select(1, ids_); };
  expect_near(who, "out", state_.out, cut(whole.out));
  expect_near(who, "dq", grads_[0], cut(whole.dq));
  expect_near(who, "dk", grads_[1], cut(whole.dk));
  expect_near(who, "dv", grads_[2], cut(whole.dv));
}

}  // namespace drivetrain
