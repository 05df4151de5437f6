// What tensor-parallel strategies on one axis of the mesh have around their layers: the option `size`, the claim of the
// axis, the layer factory and the group that layers talk over. How layers are cut and what they compute is the
// strategy's own. Main thread.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/mesh.h>
#include <drivetrain/tensor_parallel.h>

namespace drivetrain {

// The ranks that share a layer, as its cut layers see them.
struct LayerRanks {
  int64_t size = 1, index = 0;
  GroupPtr group;  // from Strategy::attach on
};

class LayerSharing : public TensorParallel {
 public:
  struct Options {
    int64_t size = 1;
  };

  void plan(PlanContext& ctx) override {
    if (ranks_->size == 1) return ctx.no_effect("size", "one rank has every layer whole");
    ctx.claim_axis(axis_, ranks_->size, PlanContext::Reads::same, PlanContext::kTensorPlace);
  }
  void build(Builder& builder) override {
    if (ranks_->size == 1) return;
    ranks_->index = builder.mesh.index(axis_);
    builder.layers = make_layers(builder.layers);
  }
  void attach(UnitList&) override {
    if (ranks_->size > 1) ranks_->group = services_.mesh->group(axis_);
  }

 protected:
  LayerSharing(const char* axis, const Options& options, const Services& services)
      : axis_(axis), services_(services), ranks_(std::make_shared<LayerRanks>()) {
    ranks_->size = options.size;
  }

  static OptionTable size_table(const std::string& help) {
    return table<Options>().field("size", &Options::size, help).at_least(1);
  }

  // Called by `build` once, where more than one rank shares a layer. Returns a factory that holds `inner`.
  virtual std::shared_ptr<LayerFactory> make_layers(std::shared_ptr<LayerFactory> inner) const = 0;

  const std::string axis_;  // of the mesh
  const Services& services_;
  const std::shared_ptr<LayerRanks> ranks_;
};

}  // namespace drivetrain
