// A data-parallel strategy that is as unkind as the rules allow:
// outside its before/after spans every unit's parameters are overwritten with NaN and their memory is freed, and
// gradients are summed by reduce-scatter and all-gather, one parameter at a time and in reverse. Whatever runs under it
// with unchanged bits relies on nothing but the hooks.
#include <drivetrain/data_parallel.h>
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <limits>
#include <map>

namespace {

using namespace drivetrain;

class Poison : public DataParallel {
 public:
  Poison(const NoOptions&, const Services& services) : services_(services) {}

  void plan(PlanContext& ctx) override { ctx.claim_axis("dp", PlanContext::kRest, PlanContext::Reads::other_rows, 2); }

  void attach(UnitList& units) override {
    group_ = services_.mesh->group("dp");
    // Whole everywhere: flat buffers are multiples of kNormBlock,
    // which up to so many ranks in powers of two cut evenly for the reduce-scatter.
    const FlatOptions options;
    std::map<Param*, size_t> owner;
    for (size_t u = 0; u < units.units.size(); ++u) {
      const auto owned = units.owned(u);
      if (!owned.empty()) {
        for (const ParamPtr& param : owned) owner[param.get()] = hidden_.size();
        HiddenUnit unit;
        unit.flat = std::make_unique<FlatUnit>(owned, *services_.mesh, options);
        unit.masters = unit.flat->values().clone();
        hidden_.push_back(std::move(unit));
      }
      // A tied parameter is kept whole by the spans of either unit.
      std::vector<size_t> used;
      for (const ParamPtr& param : units.units[u]->params()) used.push_back(owner.at(param.get()));
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
      used_by_.push_back(used);
    }
    for (HiddenUnit& unit : hidden_) hide(unit);
  }

  void before_forward(const Visit& visit, StepContext&) override { enter(visit.unit); }
  void after_forward(const Visit& visit, StepContext&) override { leave(visit.unit); }
  void before_backward(const Visit& visit, StepContext&) override { enter(visit.unit); }
  void values_done(const Visit& visit, StepContext&) override { leave(visit.unit); }

  void flush_grads(StepContext& ctx) override {
    ctx.metric("poisoned_units", at::scalar_tensor(static_cast<double>(hidden_.size())));
    for (auto unit = hidden_.rbegin(); unit != hidden_.rend(); ++unit) {
      unit->flat->zero_unwritten_grads();
      at::Tensor grads = unit->flat->grads();
      const int64_t part = grads.numel() / group_->size();
      at::Tensor mine = at::Tensor(grads.narrow(0, group_->rank() * part, part)).clone();
      group_->reduce_scatter(mine, grads)->wait();
      group_->all_gather(grads, mine)->wait();
    }
  }

  std::vector<Trainables> trainables() override {
    std::vector<Trainables> chunks;
    for (HiddenUnit& unit : hidden_) {
      Trainables chunk = unit.flat->trainables();  // copied: the masters replace the values
      size_t i = 0;
      for (Trainable& t : chunk) {
        while (unit.flat->params()[i] != t.param) ++i;
        t.value = t.working = unit.masters.narrow(0, unit.flat->offset(i), t.grad.numel());
      }
      chunks.push_back(std::move(chunk));
    }
    return chunks;
  }

 private:
  struct HiddenUnit {
    std::unique_ptr<FlatUnit> flat;
    at::Tensor masters;  // what the optimizer updates
    int open = 0;        // spans that need it now
  };

  static void hide(HiddenUnit& unit) {
    // Below autograd: a version bump on views saved by a graph would be an error of ours, not of the unit.
    at::Tensor values = unit.flat->values();
    std::fill_n(static_cast<float*>(values.storage().mutable_data()), values.numel(),
                std::numeric_limits<float>::quiet_NaN());
    unit.flat->release();
  }

  void enter(int64_t unit) {
    for (const size_t i : used_by_[unit]) {
      HiddenUnit& unit = hidden_[i];
      if (unit.open++ > 0) continue;
      unit.flat->fill();
      const float* from = unit.masters.const_data_ptr<float>();
      std::copy_n(from, unit.masters.numel(), static_cast<float*>(unit.flat->values().storage().mutable_data()));
    }
  }

  void leave(int64_t unit) {
    for (const size_t i : used_by_[unit])
      if (--hidden_[i].open == 0) hide(hidden_[i]);
  }

  const Services& services_;
  GroupPtr group_;
  std::vector<HiddenUnit> hidden_;
  std::vector<std::vector<size_t>> used_by_;  // shelves of each unit's parameters
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "poison", Poison)
