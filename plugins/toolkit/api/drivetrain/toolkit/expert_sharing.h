// What expert-parallel strategies on one axis of the mesh have around their experts: the claim of the axis, what cannot
// be divided, the factory that asks inside for this rank's experts, and the group that they talk over. How rows get to
// the experts is the strategy's own. Main thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/expert_parallel.h>
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {

// The ranks that share the experts of every layer, as these see them.
struct ExpertRanks {
  int64_t size = 1;
  int64_t experts = 0;  // of a layer, that each of them has
  int64_t chosen = 0;   // by a token, of all ranks' experts
  GroupPtr group;       // from Strategy::attach on
};

class ExpertSharing : public ExpertParallel {
 public:
  void plan(PlanContext& ctx) override { claim(ctx); }
  void build(Builder& builder) override {
    ranks_->experts = builder.facts.mixture.experts / ranks_->size, ranks_->chosen = builder.facts.mixture.chosen;
    if (ranks_->size > 1) builder.layers = std::make_shared<Layers>(builder.layers, *this);
  }
  void attach(UnitList&) override {
    if (ranks_->size > 1) ranks_->group = services_.mesh->group(axis_);
  }

 protected:
  ExpertSharing(const char* axis, int64_t size, const Services& services)
      : axis_(axis), services_(services), ranks_(std::make_shared<ExpertRanks>()) {
    ranks_->size = size;
  }

  // For `plan`. False where there is nothing more to plan.
  bool claim(PlanContext& ctx) const {
    const int64_t experts = ctx.model().mixture.experts, size = ranks_->size;
    if (size == 1) return ctx.no_effect("size", "one rank has all experts"), false;
    ctx.claim_axis(axis_, size, PlanContext::Reads::other_rows, PlanContext::kDataPlace - 5);
    if (experts == 0)
      ctx.refuse("the model has no experts; give it some (num_experts in its params), or take expert_parallel out");
    else if (experts % size != 0)
      ctx.refuse(concat("size ", size, " does not divide the model's ", experts,
                        " experts (num_experts). Use a size of ", divisors_text(experts)));
    return experts > 0;
  }

  // Called by Model::build. `own`: this rank's experts. Returns a layer that gets the rows of this rank's tokens for
  // all experts, as Experts::forward says, and has the parameters of `own`.
  virtual std::shared_ptr<Experts> share(std::shared_ptr<Experts> own) const = 0;

  const std::string axis_;  // of the mesh
  const Services& services_;
  const std::shared_ptr<ExpertRanks> ranks_;

 private:
  class Layers : public DecoratedLayers {
   public:
    Layers(std::shared_ptr<LayerFactory> inner, const ExpertSharing& strategy)
        : DecoratedLayers(std::move(inner)), strategy_(strategy) {}

    std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override {
      const int64_t ranks = strategy_.ranks_->size;
      if (spec.experts % ranks != 0)
        throw fail(ErrorCode::config, "expert_parallel: the ", spec.experts, " experts of ", spec.name,
                   " cannot be divided over ", ranks, " ranks. Use a size of ", divisors_text(spec.experts));
      ExpertsSpec own = spec;
      own.experts /= ranks;
      own.fc = cut(fc_layout(spec)), own.proj = cut(proj_layout(spec));
      return strategy_.share(inner_->experts(own));
    }

   private:
    // Rows of one expert stand together, so an even cut of dimension 0 is one by experts.
    Layout cut(Layout layout) const {
      layout.dims.resize(layout.global_shape.size());
      layout.dims[0].axes.push_back(strategy_.axis_);
      return layout;
    }

    const ExpertSharing& strategy_;
  };
};

}  // namespace drivetrain
