#include <drivetrain/testkit/context_parallel/rank.h>

#include <gtest/gtest.h>

#include <ATen/ops/index_select.h>

#include <algorithm>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>

namespace drivetrain::test {

static Value options_of(const ContextPart& part) {
  Value options = part.options;
  options.set("size", part.size);
  return options;
}

ContextRank::ContextRank(const ContextTrial& trial, int64_t rank, const std::shared_ptr<Store>& store)
    : trial_(trial),
      store_(store),
      services_{.log = log_,
                .store = *store_,
                .rank = rank,
                .world_size = trial.ranks(),
                .local_rank = rank,
                .local_size = trial.ranks(),
                .plugins = &maker_} {
  if (trial.ranks() > 1)
    communicator_ = installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services_);
  inner_ = installed_plugins().make<Attention>(trial.attention, "{}", services_);
  if (trial.around) inner_ = trial.around(inner_);
  for (const ContextPart& part : trial.parts)
    strategies_.push_back(trial.make ? trial.make(part, services_)
                                     : installed_plugins().make<ContextParallel>(ContextParallel::kKind, part.name,
                                                                                 options_of(part), services_));
}

std::string ContextRank::plan(const ModelFacts& model, RunFacts run) {
  std::string refusals;
  const int64_t S = run.seq_length;
  run.world_size = trial_.ranks();
  run.heads_per_rank = model.num_attention_heads.value(), run.groups_per_rank = model.num_query_groups.value();
  run.seq_length.forget();
  for (const bool known : {false, true}) {
    if (known) run.seq_length = S;
    PlanRecord context(model, run);
    for (size_t i = 0; i < strategies_.size(); ++i) {
      context.set_plugin(concat(ContextParallel::kKind, "/", trial_.parts[i].name));
      strategies_[i]->plan(context);
    }
    claims_ = context.claims();
    refusals.clear();
    for (const auto& refusal : context.refusals()) refusals += refusal.text + "\n";
    for (const auto& need : context.needs())
      if (!need.taken_by.empty()) refusals += concat(need.taken_by, " takes away ", need.ability, "\n");
  }
  return refusals;
}

std::string ContextRank::plan() {
  RunFacts run;
  run.seq_length = trial_.shape.S, run.micro_batch_size = trial_.shape.B, run.accumulation = 1;
  return plan(facts(), run);
}

ModelFacts ContextRank::facts() const {
  ModelFacts model;
  model.num_layers = 1, model.num_attention_heads = trial_.shape.H, model.num_query_groups = trial_.shape.G;
  model.head_dim = trial_.shape.D, model.hidden_size = trial_.shape.H * trial_.shape.D;
  return model;
}

void ContextRank::build() {
  std::stable_sort(claims_.begin(), claims_.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
  std::vector<Axis> axes;
  for (const auto& claim : claims_) {
    EXPECT_TRUE(claim.joins_gradients()) << claim.axis << ": ranks of a sequence share its gradients";
    axes.push_back({claim.axis, claim.size, 0, claim.joins_gradients()});
  }
  mesh_ = std::make_unique<Mesh>(axes, services_.rank, trial_.ranks(), communicator_);
  services_.mesh = mesh_.get();
  const ModelFacts model = facts();
  Builder builder{nullptr, inner_, *mesh_, model};
  for (auto it = strategies_.rbegin(); it != strategies_.rend(); ++it) (*it)->build(builder);
  EXPECT_TRUE(builder.activation_cuts.empty());
  attention_ = builder.finish_attention();
  cuts_ = builder.batch_cuts;
}

void ContextRank::attach() {
  UnitList none;
  for (auto it = strategies_.rbegin(); it != strategies_.rend(); ++it) (*it)->attach(none);
}

std::vector<RowRange> ContextRank::positions(std::vector<RowRange> all, const std::vector<int64_t>& cu_seqlens) const {
  for (const Builder::SequenceCut& cut : cuts_) all = cut(all, cu_seqlens);
  return all;
}

AttentionInputs ContextRank::slice(const AttentionInputs& whole) const {
  const auto own = positions({{0, trial_.shape.S}}, trial_.shape.args.varlen.cu_seqlens);
  const at::Tensor ids = position_ids(own, at::kCPU);
  const auto cut = [&](const at::Tensor& x) { return x.index_select(1, ids); };
  return {cut(whole.q), cut(whole.k), cut(whole.v), cut(whole.dout)};
}

AttentionResult ContextRank::attend_here(const AttentionInputs& whole, const AttentionArgs& args) const {
  const AttentionInputs x = slice(whole);
  return run_attention(*attention_, x.q, x.k, x.v, x.dout, args);
}

void ContextRank::give_up(const std::string& reason) const {
  if (communicator_) communicator_->abort(reason);
}

std::vector<std::string> run_context_ranks(const ContextTrial& trial,
                                           const std::function<void(ContextRank&, int64_t)>& body) {
  const auto store = make_memory_store();
  return on_threads(trial.ranks(), [&](int64_t r) {
    ContextRank rank(trial, r, store);
    try {
      const std::string refusals = rank.plan();
      if (!refusals.empty()) throw fail(ErrorCode::config, refusals);
      rank.build();
      rank.attach();
      body(rank, r);
    } catch (const std::exception& e) {
      rank.give_up(e.what());
      throw;
    }
  });
}

}  // namespace drivetrain::test
