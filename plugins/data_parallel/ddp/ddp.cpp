// Distributed data parallelism: every rank holds the whole model and sees other rows; gradients are summed over the ranks.
//
// Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2. We differ:
// a bucket is a unit of the model (its flat gradient buffer), so no bucket map is needed, and the sum is not divided: the
// runtime scales once, by the number of tokens.
#include <drivetrain/data_parallel.h>
#include <drivetrain/error.h>
#include <drivetrain/flat_unit.h>
#include <drivetrain/mesh.h>

namespace drivetrain {
namespace {

class Ddp : public DataParallel {
 public:
  Ddp(const NoOptions&, const Services& services) : services_(services) {}

  void plan(PlanContext& ctx) override {
    ctx.claim_axis("dp", PlanContext::kRest, true, 2);
    ctx.capturable();
    const auto elements = static_cast<double>(ctx.model().parameters);
    const Dtypes& types = services_.dtypes;
    const auto hold = [&](const char* what, at::ScalarType type) {
      const char* name = type == at::kFloat ? "float32" : type == at::kBFloat16 ? "bfloat16" : c10::toString(type);
      ctx.memory(concat(what, ", ", name), elements * static_cast<double>(c10::elementSize(type)));
    };
    hold("parameters", types.param);
    hold("gradients", types.grad);
    if (types.master != types.param) hold("masters", types.master);
  }

  void attach(UnitList& units) override {
    group_ = services_.mesh->group("dp");
    FlatOptions options;
    options.device = services_.device;
    options.dtypes = services_.dtypes;
    if (group_->size() > 1)  // alone there is nothing to move
      options.allocate_grads = [this](int64_t numel, at::ScalarType dtype) { return group_->allocate(numel, dtype); };
    flats_.resize(units.units.size());
    for (size_t u = 0; u < units.units.size(); ++u) {
      const auto params = units.owned(u);
      if (!params.empty()) flats_[u] = std::make_unique<FlatUnit>(params, *services_.mesh, options);
    }
  }

  // A unit's gradients are complete after its last backward visit: later visits of other units add to their own slots, and a
  // tied parameter belongs to the earlier unit, whose backward comes last.
  void after_backward(const Visit& visit, StepContext&) override {
    if (!visit.last || !flats_[visit.unit]) return;
    flats_[visit.unit]->settle_grads();
    if (group_->size() > 1) pending_.push_back(group_->all_reduce(flats_[visit.unit]->grads()));
  }

  void flush_grads(StepContext&) override {
    for (const WorkPtr& work : pending_) work->wait();
    pending_.clear();
  }

  std::vector<Trainables> trainables() override {
    std::vector<Trainables> chunks;
    for (const auto& flat : flats_)
      if (flat) chunks.push_back(flat->trainables());
    return chunks;
  }

 private:
  const Services& services_;
  GroupPtr group_;
  std::vector<std::unique_ptr<FlatUnit>> flats_;  // by unit; null where a unit owns no parameter
  std::vector<WorkPtr> pending_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "ddp", drivetrain::Ddp)
