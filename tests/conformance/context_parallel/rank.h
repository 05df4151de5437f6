// One rank under suite.h: drives plugins of that kind as the runtime does - plan twice, build and
// attach from the innermost - and attends with what they make of an attention. Ranks are threads with the local
// communicator.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <functional>
#include <thread>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/strategy.h>

#include "conformance/attention/suite.h"
#include "rendezvous/rendezvous.h"
#include "support/train_threads.h"

namespace drivetrain::test {

constexpr const char* kContextKind = "context_parallel";

struct ContextPart {
  std::string name;
  int64_t size = 1;
};

// Sequences [B, S] whose positions lie on the ranks of `parts`, outermost first.
struct ContextTrial {
  std::vector<ContextPart> parts;
  std::string attention = "standard";
  AttentionCase shape = {};  // T is S
  at::ScalarType dtype = at::kDouble;
  std::function<std::shared_ptr<Strategy>(const ContextPart&, const Services&)> make =
      nullptr;  // null: the installed plugin
  std::function<std::shared_ptr<Attention>(std::shared_ptr<Attention>)> around =
      nullptr;  // between plugins and attention

  int64_t ranks() const {
    int64_t product = 1;
    for (const ContextPart& part : parts) product *= part.size;
    return product;
  }
  std::string text() const {
    std::string names;
    for (const ContextPart& part : parts) names += concat(part.name, " ", part.size, ", ");
    return concat(names, attention, ", ", shape.what, ", ", c10::toString(dtype));
  }
};

template <class Kind>
std::shared_ptr<Kind> make_built(const std::string& kind, const std::string& name, const std::string& json,
                                 const Services& services) {
  Problems problems;
  const auto options = built_plugins().options(kind, name).parse(parse_json(json, "test"), name, "params", problems);
  problems.throw_if_any();
  return std::dynamic_pointer_cast<Kind>(built_plugins().create_plugin(kind, name, options.get(), services));
}

class ContextRank {
 public:
  ContextRank(const ContextTrial& trial, int64_t rank, const std::shared_ptr<Store>& store)
      : trial_(trial),
        store_(store),
        services_{.log = log_,
                  .store = *store_,
                  .rank = rank,
                  .world_size = trial.ranks(),
                  .local_rank = rank,
                  .local_size = trial.ranks()} {
    if (trial.ranks() > 1)
      communicator_ = make_built<Communicator>(Communicator::kKind, "local", R"({"timeout_s": 20})", services_);
    inner_ = make_built<Attention>(Attention::kKind, trial.attention, "{}", services_);
    if (trial.around) inner_ = trial.around(inner_);
    for (const ContextPart& part : trial.parts)
      strategies_.push_back(
          trial.make ? trial.make(part, services_)
                     : make_built<Strategy>(kContextKind, part.name, concat("{\"size\": ", part.size, "}"), services_));
  }

  // Plans as a run does: once without lengths, once with them. All refusals, one a line.
  std::string plan(const ModelFacts& model, RunFacts run) {
    std::string refusals;
    const int64_t S = run.seq_length;
    run.world_size = trial_.ranks();
    run.heads_per_rank = model.num_attention_heads.value(), run.groups_per_rank = model.num_query_groups.value();
    run.seq_length.forget();
    for (const bool known : {false, true}) {
      if (known) run.seq_length = S;
      PlanRecord context(model, run);
      for (size_t i = 0; i < strategies_.size(); ++i) {
        context.speaker(concat(kContextKind, "/", trial_.parts[i].name));
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
  std::string plan() {
    RunFacts run;
    run.seq_length = trial_.shape.S, run.micro_batch_size = trial_.shape.B, run.accumulation = 1;
    return plan(facts(), run);
  }
  ModelFacts facts() const {
    ModelFacts model;
    model.num_layers = 1, model.num_attention_heads = trial_.shape.H, model.num_query_groups = trial_.shape.G;
    model.head_dim = trial_.shape.D, model.hidden_size = trial_.shape.H * trial_.shape.D;
    return model;
  }

  void build() {
    std::stable_sort(claims_.begin(), claims_.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
    std::vector<Axis> axes;
    for (const auto& claim : claims_) {
      EXPECT_TRUE(claim.joins_gradients) << claim.axis << ": ranks of a sequence share its gradients";
      axes.push_back({claim.axis, claim.size, 0, claim.joins_gradients});
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
  void attach() {
    UnitList none;
    for (auto it = strategies_.rbegin(); it != strategies_.rend(); ++it) (*it)->attach(none);
  }

  std::vector<RowRange> positions(std::vector<RowRange> all) const {
    for (const Builder::SequenceCut& cut : cuts_) all = cut(all);
    return all;
  }
  // This rank's positions of whole tensors [B, S, heads, D].
  AttentionInputs slice(const AttentionInputs& whole) const {
    const at::Tensor ids = position_ids(positions({{0, trial_.shape.S}}), at::kCPU);
    const auto cut = [&](const at::Tensor& x) { return x.index_select(1, ids); };
    return {cut(whole.q), cut(whole.k), cut(whole.v), cut(whole.dout)};
  }
  // Both halves on this rank's positions. A rank that cannot tells the others.
  AttentionResult attend_here(const AttentionInputs& whole, const AttentionArgs& args) const {
    const AttentionInputs x = slice(whole);
    return run_attention(*attention_, x.q, x.k, x.v, x.dout, args);
  }

  const Attention& attention() const { return *attention_; }
  const std::shared_ptr<Attention>& shared_attention() const { return attention_; }
  const std::shared_ptr<Attention>& inner() const { return inner_; }
  bool wraps() const { return attention_ != inner_; }
  size_t cuts() const { return cuts_.size(); }
  void give_up(const std::string& reason) const {
    if (communicator_) communicator_->abort(reason);
  }

 private:
  const ContextTrial& trial_;
  std::shared_ptr<Store> store_;
  LinesLog log_;
  Services services_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Attention> inner_;
  std::unique_ptr<Mesh> mesh_;
  std::vector<std::shared_ptr<Strategy>> strategies_;
  std::vector<PlanRecord::Claim> claims_;
  std::vector<Builder::SequenceCut> cuts_;
  std::shared_ptr<Attention> attention_;
};

// Runs `body` on every rank of the trial, planned and built; what each threw, "" for nothing.
inline std::vector<std::string> run_context_ranks(const ContextTrial& trial,
                                                  const std::function<void(ContextRank&, int64_t)>& body) {
  const auto store = make_local_store();
  std::vector<std::string> errors(static_cast<size_t>(trial.ranks()));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < trial.ranks(); ++r)
    threads.emplace_back([&, r] {
      at::set_num_threads(1);
      try {
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
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace drivetrain::test
