// Plugins of the kinds that act around the model. Each adds to a gradient what it has kept since the first step: a
// whole number, a number and a tensor. An option says which of them it does not show to `state`.
#include <ATen/ops/zeros.h>

#include <atomic>

#include <drivetrain/attention.h>
#include <drivetrain/context_parallel.h>
#include <drivetrain/data_parallel.h>
#include <drivetrain/mesh.h>
#include <drivetrain/precision.h>
#include <drivetrain/recompute.h>
#include <drivetrain/services.h>
#include <drivetrain/tensor_parallel.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

namespace {

using namespace drivetrain;

struct Options {
  std::string forgets = "nothing";
  int64_t size = 1;
  bool counts_objects = false, wants_experts = false, refuses_adapters = false;
};

template <class Kind>
class Forgetful : public Kind {
 public:
  using Options = ::Options;
  static OptionTable options() {
    return table<Options>()
        .field("forgets", &Options::forgets, "what it keeps and does not show")
        .one_of({"nothing", "count", "pace", "sum"})
        .field("size", &Options::size, "ranks, where the kind has some")
        .field("counts_objects", &Options::counts_objects, "computes with how many there were before it")
        .field("wants_experts", &Options::wants_experts, "refuses a model without experts")
        .field("refuses_adapters", &Options::refuses_adapters, "refuses parameters with that role, and adds nothing");
  }
  // As plugins that wrap others do, it asks for one.
  Forgetful(const Options& options, const Services& services) : options_(options), services_(services) {
    static std::atomic<int> objects = 0;
    if (options.counts_objects) pace_ += ++objects;
    if (!services.plugins) throw fail(ErrorCode::internal, "nobody makes plugins for this one");
    wrapped_ = services.plugins->create<Attention>({"standard", Value::object()});
  }

  void plan(PlanContext& ctx) override {
    if (options_.wants_experts && ctx.model().mixture.experts == 0) ctx.refuse("it wants a model with experts");
  }
  void attach(UnitList& units) override {
    if (units.units.empty()) return;  // a suite of attention alone
    param_ = units.units.front()->params().front();
    for (const ParamPtr& param : units.all())
      if (options_.refuses_adapters && param->role == ParamRole::adapter)
        throw fail(ErrorCode::config, param->name, " is an adapter's");
  }
  void after_backward(const Visit& visit, StepContext&) override {
    if (visit.unit != 0 || options_.refuses_adapters) return;
    ++count_, pace_ *= 1.25, sum_.mul_(0.5).add_(static_cast<double>(count_));
    param_->grad.view(-1)[0] += 1e-3 * (static_cast<double>(count_) + pace_ + sum_.item<double>());
  }
  void state(StateVisitor& visitor) override {
    if (options_.forgets != "count") visitor.integer("count", count_);
    if (options_.forgets != "pace") visitor.number("pace", pace_);
    if (options_.forgets != "sum") visitor.tensor("sum", sum_, Layout::whole({1}));
  }

 protected:
  const Options options_;
  const Services& services_;

 private:
  ParamPtr param_;
  int64_t count_ = 0;
  double pace_ = 1;
  at::Tensor sum_ = at::zeros({1});
  std::shared_ptr<Attention> wrapped_;
};

class Around : public Forgetful<Strategy> {
 public:
  using Forgetful::Forgetful;
};

class InFloat32 : public Forgetful<Precision> {
 public:
  using Forgetful::Forgetful;
  Dtypes dtypes() const override { return {}; }
};

class KeepsAll : public Forgetful<Recompute> {
 public:
  using Forgetful::Forgetful;
  Keep keep(const Region&) const override { return Keep::all; }
};

// The same layers on every rank.
class UncutLayers : public Forgetful<TensorParallel> {
 public:
  using Forgetful::Forgetful;
  void plan(PlanContext& ctx) override {
    ctx.claim_axis("tp", options_.size, PlanContext::Reads::same, PlanContext::kTensorPlace);
  }
};

// Every rank attends to its own piece alone.
class OwnPieces : public Forgetful<ContextParallel> {
 public:
  using Forgetful::Forgetful;
  void plan(PlanContext& ctx) override {
    ctx.claim_axis("cp", options_.size, PlanContext::Reads::other_positions, PlanContext::kContextPlace);
  }
  void build(Builder& builder) override {
    const int64_t index = builder.mesh.index("cp"), size = options_.size;
    builder.batch_cuts.push_back([=](const std::vector<RowRange>& all, const std::vector<int64_t>&) {
      const int64_t count = all.at(0).count / size;
      return std::vector<RowRange>{{all[0].first + index * count, count}};
    });
  }
};

// Whole copies on every rank.
class Copies : public Forgetful<DataParallel> {
 public:
  using Forgetful::Forgetful;
  void plan(PlanContext& ctx) override {
    ctx.claim_axis("dp", PlanContext::kRest, PlanContext::Reads::other_rows, PlanContext::kDataPlace);
  }
  void attach(UnitList& units) override {
    Forgetful::attach(units);
    FlatOptions options;
    options.dtypes = services_.dtypes;
    for (size_t u = 0; u < units.units.size(); ++u)
      flats_.push_back(std::make_unique<FlatUnit>(units.owned(u), *services_.mesh, options));
  }
  void flush_grads(StepContext&) override {
    for (const auto& flat : flats_) {
      if (!flat->grads().defined()) continue;
      flat->zero_unwritten_grads();
      services_.mesh->group("dp")->all_reduce(flat->grads())->wait();
    }
  }
  std::vector<Trainables> trainables() override {
    std::vector<Trainables> chunks;
    for (const auto& flat : flats_)
      if (flat->grads().defined()) chunks.push_back(flat->trainables());
    return chunks;
  }

 private:
  std::vector<std::unique_ptr<FlatUnit>> flats_;
};

}  // namespace

DRIVETRAIN_PLUGINS(DRIVETRAIN_ENTRY(drivetrain::Strategy, "forgetful", Around),
                   DRIVETRAIN_ENTRY(drivetrain::Precision, "forgetful", InFloat32),
                   DRIVETRAIN_ENTRY(drivetrain::Recompute, "forgetful", KeepsAll),
                   DRIVETRAIN_ENTRY(drivetrain::TensorParallel, "forgetful", UncutLayers),
                   DRIVETRAIN_ENTRY(drivetrain::ContextParallel, "forgetful", OwnPieces),
                   DRIVETRAIN_ENTRY(drivetrain::DataParallel, "forgetful", Copies))
